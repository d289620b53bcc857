"""Why a subscription does or does not match an event: in the words that were written, and box by box.

Where the text of a condition was kept, the explanation is a tree of verdicts on its parts
(language/evaluation.py). The boxes that it became are a second view: they are what an index matches, so
they alone say whether it matches. Subscriptions that came as arrays have the boxes only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rangecast.errors import LanguageError
from rangecast.language.evaluation import Verdict, evaluate, plain, shown
from rangecast.model.events import Events
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Category, Codes
from rangecast.types.schema import Schema


class Predicate(NamedTuple):
    """One attribute of one box: what it asks for, what the event has, whether that holds."""

    attribute: str
    wanted: str
    value: Any
    holds: bool


class Explanation:
    """The verdict on one subscription and one event; `str` gives it as lines to read.

    `text` is the condition as it was written and `verdict` what each part of it comes to; both are None
    where no text was kept. `boxes` are the predicates of each box.
    """

    def __init__(
        self,
        id: Any,
        boxes: list[list[Predicate]],
        text: str | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        self.id = id
        self.boxes = boxes
        self.text = text
        self.verdict = verdict

    @property
    def matches(self) -> bool:
        """Whether one of the boxes holds."""
        return any(all(p.holds for p in box) for box in self.boxes)

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
        for number, box in enumerate(self.boxes, 1):
            mark = "yes" if all(p.holds for p in box) else "no"
            if len(self.boxes) > 1:
                lines.append(f"  alternative {number} of {len(self.boxes)}: {mark}")
            indent = "    " if len(self.boxes) > 1 else "  "
            if not box:
                lines.append(f"{indent}yes  it asks for nothing")
            for p in box:
                lines.append(
                    f"{indent}{'yes' if p.holds else 'no':<4} {p.attribute} {p.wanted}: {shown(p.value)}"
                )
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
    schema: Schema, id: Any, lows: Codes, highs: Codes, events: Events, text: str | None = None
) -> Explanation:
    """The explanation for the boxes of one subscription (columns) and one event, by its text if it has one.

    A text that is no condition of this schema, or not the one of these boxes, explains nothing: whoever
    makes Subscriptions from arrays may give them any text.
    """
    codes = events.codes_for(schema)
    boxes = []
    for b in range(lows.shape[1]):
        predicates = []
        for j, attribute in enumerate(schema):
            low, high, code = int(lows[j, b]), int(highs[j, b]), int(codes[j, 0])
            if low == MISSING and high == LAST:
                continue
            value = events.value(attribute.name, 0)
            predicates.append(
                Predicate(attribute.name, describe_interval(attribute, low, high), value, low <= code <= high)
            )
        boxes.append(predicates)
    found = Explanation(id, boxes, text)
    if text is not None:

        def look_up(position: int) -> tuple[int, Any]:
            return int(codes[position, 0]), events.value(schema.names[position], 0)

        try:
            verdict = evaluate(text, schema, look_up)
        except LanguageError:
            return found
        if (verdict.holds is True) is found.matches:
            found.verdict = verdict
    return found


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
