"""Why a subscription does or does not match an event: in the words that were written, and box by box.

Where the text of a condition was kept, the explanation is a tree of verdicts on its parts
(language/evaluation.py). The boxes that it became are a second view: they are what an index matches, so
they alone say whether it matches. Subscriptions that came as arrays have the boxes only.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import LanguageError
from rangecast.language.evaluation import Verdict, evaluate, plain, shown
from rangecast.model.boxes import SparseBoxes, entries_of
from rangecast.model.events import Events
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Category, Codes
from rangecast.types.patterns import BELOW, HELD, HeldBundle
from rangecast.types.places import Point
from rangecast.types.schema import Schema

_SHOWN = 8


class Predicate(NamedTuple):
    """One attribute of one box: what it asks for, what the event has, whether that holds."""

    attribute: str
    wanted: str
    value: Any
    holds: bool


class Explanation:
    """The verdict on one subscription and one event; `str` turns it into lines to read.

    `text` is the condition as it was written and `verdict` what each part of it comes to; both are None
    where no text was kept. `boxes` are the predicates of each box.
    """

    def __init__(
        self,
        id: Any,
        boxes: list[list[Predicate]],
        holding: list[bool],
        text: str | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        self.id = id
        self.boxes = boxes
        self.holding = holding
        """Whether each box holds: where an attribute has several values, all of it of one of them."""
        self.text = text
        self.verdict = verdict

    @property
    def matches(self) -> bool:
        """Whether one of the boxes holds."""
        return any(self.holding)

    def __bool__(self) -> bool:
        return self.matches

    def __str__(self) -> str:
        if self.verdict is None:
            return self.in_boxes()
        return "\n".join([*self._head(), *self.verdict.lines()])

    __repr__ = __str__

    def in_boxes(self) -> str:
        """The second view, as lines to read: the boxes that the condition became."""
        lines = self._head()
        for number, (box, holds) in enumerate(zip(self.boxes, self.holding, strict=True), 1):
            mark = "yes" if holds else "no"
            if len(self.boxes) > 1:
                lines.append(f"  alternative {number} of {len(self.boxes)}: {mark}")
            indent = "    " if len(self.boxes) > 1 else "  "
            if not box:
                lines.append(f"{indent}yes  it has no predicates")
            for p in box:
                lines.append(
                    f"{indent}{'yes' if p.holds else 'no':<4} {p.attribute} {p.wanted}: {shown(p.value)}"
                )
            if box and not holds and all(p.holds for p in box):
                lines.append(f"{indent}no   all of it for one of several values")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Both views as plain data, ready for JSON."""
        return {
            "id": self.id,
            "matches": self.matches,
            "text": self.text,
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "boxes": [[{**p._asdict(), "value": plain(p.value)} for p in box] for box in self.boxes],
        }

    def _head(self) -> list[str]:
        verdict = "matches" if self.matches else "does not match"
        never = ["  its condition can never hold"] if not self.boxes else []
        return [f"subscription {self.id!r} {verdict}", *never]


def explain_boxes(
    schema: Schema, id: Any, sparse: SparseBoxes, events: Events, text: str | None = None
) -> Explanation:
    """The explanation for the boxes of one subscription and one event, by its text if it has one.

    A text that is no condition of this schema, or not the one of these boxes, explains nothing: whoever
    makes Subscriptions from arrays may give them any text.
    """
    # one event, of several columns where an attribute has several values
    codes = events.encoded(schema).codes
    boxes, holding = [], []
    for b in range(len(sparse.owners)):
        predicates = []
        together = np.ones(codes.shape[1], bool)
        for j, spans in entries_of(sparse, b):
            attribute, own = schema.attributes[j], codes[j].tolist()
            if isinstance(attribute, HeldBundle):
                if attribute.name != BELOW:  # the ends of a gap say one thing together
                    predicates.append(_trait_predicate(attribute, spans, codes, j))
                together &= [any(low <= code <= high for low, high in spans) for code in own]
                continue
            value = events.value_at(j, 0, schema)
            if isinstance(attribute, Point):
                held = [attribute.holds(code, spans) for code in own]
            else:
                held = [any(low <= code <= high for low, high in spans) for code in own]
            together &= held
            predicates.append(Predicate(attribute.name, describe_spans(attribute, spans), value, any(held)))
        boxes.append(predicates)
        holding.append(bool(together.any()))
    found = Explanation(id, boxes, holding, text)
    if text is not None:
        found.verdict = _verdict_on(text, schema, events, codes, found.matches)
    return found


def _verdict_on(text: str, schema: Schema, events: Events, codes: Codes, matches: bool) -> Verdict | None:
    """The verdict of a text that says the same as the boxes, None if it does not.

    An event with several values matches if one choice of them does: that choice is shown, and of an event
    that does not match the one that comes nearest.
    """

    def whole(position: int) -> Any:
        return events.value_at(position, 0, schema)

    nearest: Verdict | None = None
    for column in range(codes.shape[1]):

        def look_up(position: int, column: int = column) -> tuple[int, Any]:
            code, value = int(codes[position, column]), whole(position)
            return code, schema.attributes[position].decode(code) if isinstance(value, list) else value

        try:
            verdict = evaluate(text, schema, look_up, whole)
        except LanguageError:
            return None
        if verdict.holds is True:
            return verdict if matches else None
        if nearest is None or verdict.n_fulfilled > nearest.n_fulfilled:
            nearest = verdict
    return None if matches else nearest


def _trait_predicate(attribute: HeldBundle, spans: list[tuple[int, int]], codes: Codes, j: int) -> Predicate:
    """Whether one of some bundles of traits holds, in the words of the bundles."""
    if attribute.name == HELD:
        wanted = [code for low, high in spans for code in range(low, high + 1)]
        held = bool(np.isin(codes[j], wanted).any())
    else:
        code = spans[0][0] - 1
        wanted = [code]
        held = bool(((codes[j - 1] < code) & (codes[j] > code)).any())
    shown = [str(attribute.decode(code)) for code in wanted[:_SHOWN]]
    more = [f"{len(wanted) - _SHOWN:,} more"] if len(wanted) > _SHOWN else []
    return Predicate("traits", " or ".join([*shown, *more]), held, held)


def describe_spans(attribute: Attribute, spans: list[tuple[int, int]]) -> str:
    """A set of closed code intervals in words of the language.

    >>> from rangecast import Int
    >>> price = Int("price")
    >>> describe_spans(price, [(1, 1), (5, 5)]), describe_spans(price, [(PRESENT, 6), (8, LAST)])
    ('in (1, 5)', '!= 7')
    """
    if isinstance(attribute, Point):
        return attribute.describe_spans(spans)
    if len(spans) > 1 and spans[0][0] == PRESENT and spans[-1][1] == LAST:
        gaps = [(a[1] + 1, b[0] - 1) for a, b in itertools.pairwise(spans)]
        if len(gaps) == 1 and gaps[0][0] == gaps[0][1]:
            return f"!= {attribute.decode(gaps[0][0])!r}"
        if (codes := _single_codes(attribute, gaps)) is not None:
            return f"not in ({_list_values(attribute, codes)})"
    elif len(spans) > 1 and (codes := _single_codes(attribute, spans)) is not None:
        return f"in ({_list_values(attribute, codes)})"
    shown = [describe_interval(attribute, low, high) for low, high in spans[:_SHOWN]]
    more = f", or {len(spans) - _SHOWN:,} more" if len(spans) > _SHOWN else ""
    return " or ".join(shown) + more


def _single_codes(attribute: Attribute, spans: list[tuple[int, int]]) -> list[int] | None:
    """The codes of spans of values, None where a span is wider; words have no order, so theirs may be."""
    if isinstance(attribute, Category) and spans[0][0] > PRESENT and spans[-1][1] < LAST:
        return [code for low, high in spans for code in range(low, high + 1)]
    if any(low != high or low == MISSING for low, high in spans):
        return None
    return [low for low, _ in spans]


def _list_values(attribute: Attribute, codes: list[int]) -> str:
    shown = [repr(attribute.decode(code)) for code in codes[:_SHOWN]]
    return ", ".join(shown) + (f", and {len(codes) - _SHOWN:,} more" if len(codes) > _SHOWN else "")


def describe_interval(attribute: Attribute, low: int, high: int) -> str:
    """A closed code interval in words of the language.

    >>> from rangecast import Int
    >>> describe_interval(Int("price"), PRESENT, 9), describe_interval(Int("price"), 3, 3)
    ('<= 9', '= 3')
    """
    if high == MISSING:
        return "is missing"
    if isinstance(attribute, Category) and PRESENT <= low < high and (low, high) != (PRESENT, LAST):
        return _describe_words(attribute, low, high)
    if low == MISSING:
        return "is missing or present" if high == LAST else f"is missing or <= {attribute.decode(high)!r}"
    if low == PRESENT:
        return "is present" if high == LAST else f"<= {attribute.decode(high)!r}"
    if low == high:
        return f"= {attribute.decode(low)!r}"
    if high == LAST:
        return f">= {attribute.decode(low)!r}"
    return f"between {attribute.decode(low)!r} and {attribute.decode(high)!r}"


def _describe_words(attribute: Category, low: int, high: int) -> str:
    """An interval of a dictionary: some words of it, or one side of what != cuts away."""
    if high == LAST:
        return f"!= {attribute.decode(low - 1)!r}, and named after it"
    if low == PRESENT:
        return f"!= {attribute.decode(high + 1)!r}, and named before it or by no subscription"
    shown = [repr(attribute.decode(code)) for code in range(low, min(high, low + 7) + 1)]
    more = f", and {high - low - 7} more" if high - low > 7 else ""
    return f"in ({', '.join(shown)}{more})"
