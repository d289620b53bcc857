"""A condition evaluated on one event, predicate by predicate, in the words that were written.

    Verdict
    ├── text      the part of the condition that this is about; AND, OR and NOT have their parts below
    ├── holds     yes, no, or None where a missing value leaves it undecided
    ├── value     what the event has, for a predicate
    └── parts     the verdicts on the parts of AND, OR and NOT

A predicate on a missing value is false and so is its negation, which is to say that it is undecided: so is
NOT of it, and AND and OR unless another part decides, and only what holds matches. This is what the
normal form comes to by pushing NOT down to the predicates.

Numbers and times are compared by their codes, as the index does it. Strings are compared as such, for
the words of a condition must not enter the dictionary because somebody asks about it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rangecast.language.normal_form import Spans, extent_of, fulfils, intersect, spans_of, unite, word_of
from rangecast.language.parser import read
from rangecast.language.tree import (
    STRING,
    And,
    Comparison,
    Condition,
    Fits,
    Inside,
    Literal,
    LiteralInterval,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Span,
    Stated,
    Within,
    value_of,
)
from rangecast.types.derived import TextBytes
from rangecast.types.expressions import TEXT, Expression
from rangecast.types.places import degrees_of, inside
from rangecast.types.schema import Schema

# The code and the value of an attribute, by its position; the value is None where it is missing.
Lookup = Callable[[int], tuple[int, Any]]
# The value alone; of an event with several values of an attribute, the list of them.
Whole = Callable[[int], Any]

_SPACES = re.compile(rf"""({STRING}|"[^"]*(?:""[^"]*)*")|\s+""")
_WORDS = {And: "AND", Or: "OR", Not: "NOT"}


class Verdict(NamedTuple):
    """What one part of a condition comes to; see the module head."""

    text: str
    holds: bool | None
    attribute: str | None = None
    value: Any = None
    word: str = ""
    parts: tuple[Verdict, ...] = ()

    @property
    def n_fulfilled(self) -> int:
        """How many of its predicates hold."""
        if not self.parts:
            return int(self.holds is True)
        return sum(part.n_fulfilled for part in self.parts)

    def lines(self, indent: str = "  ") -> list[str]:
        """Lines to read: yes or no for each part, with the event's value."""
        mark = "yes" if self.holds else "no"
        if self.attribute is not None:
            named = f"{self.word} is " if self.word else ""
            return [f"{indent}{mark:<4} {self.text}: {named}{shown(self.value)}"]
        undecided = ": undecided, because a value is missing" if self.holds is None else ""
        below = [line for part in self.parts for line in part.lines(indent + "  ")]
        return [f"{indent}{mark:<4} {self.word}{undecided}", *below]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `undecided` where a missing value leaves it so."""
        found: dict[str, Any] = {
            "text": self.text,
            "holds": self.holds is True,
            "undecided": self.holds is None,
        }
        if self.attribute is not None:
            return {**found, "attribute": self.attribute, "value": plain(self.value)}
        return {**found, "word": self.word, "parts": [part.to_dict() for part in self.parts]}


def evaluate(text: str, schema: Schema, lookup: Lookup, whole: Whole | None = None) -> Verdict:
    """The verdict on a text and one event; LanguageError for a text that cannot be read.

    Of an event with several values, `lookup` has one choice of them, which is what is compared, and `whole`
    all of them, which is what traits such as HAS ALL look at and what is shown.

    >>> from rangecast.types.attributes import Int
    >>> event = {"price": 12}
    >>> schema = Schema(Int("price"))
    >>> verdict = evaluate("price > 10 and not price = 12", schema, lambda position: (12, 12))
    >>> print("\\n".join(verdict.lines()))
      no   AND
        yes  price > 10: 12
        no   NOT
          yes  price = 12: 12
    """
    return _Evaluation(text, schema, lookup, whole or (lambda position: lookup(position)[1])).of(
        read(text, schema)[0]
    )


def one_line(text: str) -> str:
    """A text in one line: line breaks and runs of blanks say nothing, but for those inside quotes.

    >>> one_line("price >\\n   5 and name = 'a  b'")
    "price > 5 and name = 'a  b'"
    """
    return _SPACES.sub(lambda found: found[1] or " ", text).strip()


def shown(value: Any) -> str:
    """A value as people write it.

    >>> shown(None), shown("it's"), shown(dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
    ('missing', '"it\\'s"', '2026-01-02T00:00:00+00:00')
    """
    if value is None:
        return "missing"
    return value.isoformat() if isinstance(value, dt.datetime) else repr(value)


def plain(value: Any) -> Any:
    """A value as JSON has it: times as text."""
    return value.isoformat() if isinstance(value, dt.datetime) else value


class _Evaluation:
    def __init__(self, text: str, schema: Schema, lookup: Lookup, whole: Whole) -> None:
        self.text = text
        self.schema = schema
        self.lookup = lookup
        self.whole = whole
        self._written: dict[Span, str] = {}

    def of(self, condition: Condition) -> Verdict:
        span = condition.span
        written = self._written.get(span)
        if written is None:  # the parts of HAS ALL have the same one
            written = self._written[span] = one_line(self.text[slice(*span)])
        if isinstance(condition, And | Or):
            parts = tuple(self.of(part) for part in condition.parts)
            decisive = isinstance(condition, Or)
            found = {part.holds for part in parts}
            holds = decisive if decisive in found else None if None in found else not decisive
            if all(part.attribute is not None and part.text == written for part in parts):
                # one predicate that stands for several, such as HAS ALL
                return Verdict(written, holds, parts[0].attribute, parts[0].value)
            return Verdict(written, holds, word=_WORDS[type(condition)], parts=parts)
        if isinstance(condition, Not):
            inner = self.of(condition.part)
            holds = None if inner.holds is None else not inner.holds
            return Verdict(written, holds, word=_WORDS[Not], parts=(inner,))
        if isinstance(condition, Stated):
            return self._stated(condition, written)
        if isinstance(condition, Fits):
            value = self.whole(condition.position)
            holds = None if value is None else fulfils(condition, value)
            return Verdict(written, holds, condition.attribute, value)
        if isinstance(condition, Within | LiteralInterval):  # part of a predicate on an expression
            code, value = self.lookup(condition.position)
            spans = condition.spans if isinstance(condition, Within) else (condition.interval(),)
            holds = None if value is None else _inside(spans, code)
            return Verdict(written, holds, condition.attribute, self.whole(condition.position))
        if isinstance(condition, Inside):
            code, value = self.lookup(condition.position)
            holds = None if value is None else _holds(condition, code)
            return Verdict(written, holds, condition.attribute, self.whole(condition.position))
        if not isinstance(condition, Comparison | Range | Membership | Presence):
            raise TypeError(f"expected a condition, got {condition!r}")
        code, value = self.lookup(condition.position)
        name, shown = condition.attribute, self.whole(condition.position)
        if isinstance(condition, Presence):
            return Verdict(written, (value is not None) is condition.present, name, shown)
        if value is None:
            return Verdict(written, None, name, shown)
        return Verdict(written, self._holds(condition, code, value), name, shown)

    def _stated(self, condition: Stated, written: str) -> Verdict:
        """One verdict for the predicate, with the value of its expression."""
        holds = self.of(condition.part).holds
        value = self.whole(condition.position)
        if condition.expression.kind == TEXT and value is not None and condition.expression.op != "attribute":
            value = "".join(
                str(self.lookup(position)[1]) for position in self._parts_of(condition.expression)
            )
        # a comparison of two expressions is shown with the value of what was compared
        of = condition.expression.text
        return Verdict(written, holds, of, value, "" if of in written else of)

    def _parts_of(self, expression: Expression) -> list[int]:
        """The positions of the hidden attributes that hold a text, as far as there are any."""
        return [
            position
            for position, attribute in enumerate(self.schema.attributes)
            if isinstance(attribute, TextBytes)
            and attribute.expression is not None
            and attribute.expression.text == expression.text
        ]

    def _holds(self, condition: Comparison | Range | Membership, code: int, value: Any) -> bool:
        position = condition.position
        if isinstance(condition, Range):
            low = self._spans(position, condition.above, condition.low)
            spans = intersect(low, self._spans(position, condition.below, condition.high))
            return _inside(spans, code) is not condition.negated
        if self.schema.attribute(position).kind in ("category", "tags", "text"):
            literals = condition.literals if isinstance(condition, Membership) else (condition.literal,)
            named = value in {_word(literal) for literal in literals}
        elif isinstance(condition, Membership):
            named = _inside(
                unite(span for one in condition.literals for span in self._spans(position, "=", one)), code
            )
        else:
            return _inside(self._spans(position, condition.operator, condition.literal), code)
        negated = condition.negated if isinstance(condition, Membership) else condition.operator == "!="
        return named is not negated

    def _spans(self, position: int, operator: str, literal: Literal) -> Spans:
        return spans_of(self.schema.attribute(position), operator, value_of(literal.text))


def _holds(condition: Inside, code: int) -> bool:
    if condition.area != "box":
        return inside(word_of(condition), code)
    extent = extent_of(condition)
    longitude, latitude = (float(found[0]) for found in degrees_of(np.array([code])))
    across = any(west <= longitude <= east for west, east in extent.longitudes)
    return across and extent.south <= latitude <= extent.north


def _inside(spans: Spans, code: int) -> bool:
    return any(low <= code <= high for low, high in spans)


def _word(literal: Literal) -> str:
    value = value_of(literal.text)
    return ("false", "true")[value] if isinstance(value, bool) else str(value)
