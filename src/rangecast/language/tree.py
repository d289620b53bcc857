"""Conditions: what the parser makes of a text, before it knows of codes and boxes.

    Condition
    ├── And, Or, Not     of other conditions
    ├── Comparison       price < 10
    ├── Range            price BETWEEN 10 AND 20, 10 <= price < 20
    ├── Membership       symbol IN ('A', 'B')
    ├── Presence         price IS MISSING, price IS PRESENT
    ├── Has              tags HAS 'a', until the parser has settled which hidden attribute that is
    ├── Inside           at WITHIN 500 m OF (13.4, 52.5), at IN BOX (...), at IN POLYGON '...'
    ├── Fits             a text that fulfils a pattern, or several values of which one is a string
    ├── Within           an attribute within intervals of its codes
    ├── LiteralInterval  an attribute within the interval of codes that a literal comes to
    └── Stated           a predicate on an expression, and the condition on hidden attributes that it comes to

`str` of a condition is a text that reads back to the same meaning; that of a node inside of a `Stated`, which
nobody wrote, is for errors. A literal keeps the text it was
written with and its ordinal: its number among the literals of the text. Two texts that differ in their
literals alone therefore share one condition, and `templates.py` fills in others for each; where more must
agree than the literals' places, the condition says in what (`Likeness`). TRUE, FALSE and INF
are words of the language and have no ordinal (-1). A condition also knows its span: the part of the
text that it was read from, without the parentheses around it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

import pyarrow as pa

from rangecast.errors import LanguageError, SchemaError
from rangecast.types import addresses
from rangecast.types.arrow_compute import pc
from rangecast.types.attributes import LAST, PRESENT, Interval
from rangecast.types.columns import is_unicode
from rangecast.types.derived import PART, text_code, text_range
from rangecast.types.expressions import RANGES, Expression, quoted_name
from rangecast.types.patterns import like_pieces

Span = tuple[int, int]
Value = int | float | Decimal | str | bool | dt.datetime

STRING = r"'[^']*(?:''[^']*)*'"
_TIME = r"[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
TIMESTAMP = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:{_TIME})?"
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
# a minus may be the sign of word processors too, and a k stands for thousands
NUMBER = (
    rf"[+\u2212\u2013-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS}|[kK])?"
    r"|[+\u2212\u2013-]?(?i:inf(?:inity)?)"
)

_TIMESTAMP = re.compile(TIMESTAMP + r"\Z")
_WORDS: dict[str, Value] = {"true": True, "false": False}
# Beyond this many digits before the point a number is larger than any double and any code.
_MANY_DIGITS = 400


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it was written; `start` is its offset in the text. With `changes` (tree.py), `text`
    is what they make of what was written.
    """

    text: str
    start: int = field(default=0, compare=False)
    ordinal: int = field(default=-1, compare=False)
    changes: tuple[str, ...] = ()

    def among(self, texts: Sequence[str]) -> str:
        """The text at this literal's ordinal, changed as this one was, or its own when it has none."""
        if self.ordinal < 0:
            return self.text
        found = texts[self.ordinal]
        for change in self.changes:
            found = CHANGES[change](found)
        return found

    def changed(self, change: str) -> Literal:
        """What a change makes of it."""
        return Literal(CHANGES[change](self.text), self.start, self.ordinal, (*self.changes, change))


class Condition:
    """What an event must fulfil; `str` writes it down again, `span` says where it stood."""

    __slots__ = ()
    span: Span


@dataclass(frozen=True, slots=True)
class Comparison(Condition):
    """`attribute operator literal`, with the operator one of = != < <= > >=, or ON for a day."""

    attribute: str
    position: int
    operator: str
    literal: Literal
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{quoted_name(self.attribute)} {self.operator} {self.literal.text}"


@dataclass(frozen=True, slots=True)
class Range(Condition):
    """An attribute between two literals; `above` is > or >=, `below` is < or <=.

    Only the closed one, BETWEEN, is written with a NOT of its own.
    """

    attribute: str
    position: int
    low: Literal
    high: Literal
    above: str = ">="
    below: str = "<="
    negated: bool = False
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        name = quoted_name(self.attribute)
        if self.above == ">=" and self.below == "<=":
            word = "NOT BETWEEN" if self.negated else "BETWEEN"
            return f"{name} {word} {self.low.text} AND {self.high.text}"
        return f"{self.low.text} {self.above.replace('>', '<')} {name} {self.below} {self.high.text}"


@dataclass(frozen=True, slots=True)
class Has(Condition):
    """An attribute of several values, one of which is one of these strings."""

    attribute: str
    position: int
    literals: tuple[Literal, ...]
    span: Span = field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fits(Condition):
    """A pattern that a text fulfils, or one of several values is (types/patterns.py); `bundles` is the
    position of the first hidden attribute of trait bundles."""

    op: str
    source: Expression
    position: int
    bundles: int
    literal: Literal
    span: Span = field(default=(0, 0), compare=False, repr=False)

    @property
    def attribute(self) -> str:
        """The attribute that it reads."""
        (name,) = self.source.names
        return name

    def __str__(self) -> str:
        return f"{self.op}({self.source.text}, {self.literal.text})"


@dataclass(frozen=True, slots=True)
class Membership(Condition):
    """An attribute that equals one of some literals, or (negated) none of them."""

    attribute: str
    position: int
    literals: tuple[Literal, ...]
    negated: bool = False
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        word = "NOT IN" if self.negated else "IN"
        return (
            f"{quoted_name(self.attribute)} {word} ({', '.join(literal.text for literal in self.literals)})"
        )


@dataclass(frozen=True, slots=True)
class Presence(Condition):
    """Whether an attribute has a value."""

    attribute: str
    position: int
    present: bool
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{quoted_name(self.attribute)} IS {'PRESENT' if self.present else 'MISSING'}"


@dataclass(frozen=True, slots=True)
class Inside(Condition):
    """A point within an area (types/places.py): a "circle" of a distance in `unit` and a centre, a "box" or
    a "polygon". `longitude` and `latitude` are the positions of the hidden attributes of those.
    """

    attribute: str
    position: int
    area: str
    literals: tuple[Literal, ...]
    unit: str = ""
    longitude: int = -1
    latitude: int = -1
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        name, texts = quoted_name(self.attribute), [literal.text for literal in self.literals]
        if self.area == "circle":
            return f"{name} WITHIN {texts[0]} {self.unit} OF ({texts[1]}, {texts[2]})"
        shown = texts[0] if self.area == "polygon" else f"({', '.join(texts)})"
        return f"{name} IN {self.area.upper()} {shown}"


@dataclass(frozen=True, slots=True)
class Within(Condition):
    """An attribute whose code lies within one of some intervals."""

    attribute: str
    position: int
    spans: tuple[tuple[int, int], ...]
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{quoted_name(self.attribute)} within {self.spans}"


@dataclass(frozen=True, slots=True)
class LiteralInterval(Condition):
    """An attribute whose code lies within the interval that a literal comes to, by its form and its part of
    eight bytes or its word (tree.py).
    """

    attribute: str
    position: int
    literal: Literal
    form: str
    part: int
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{quoted_name(self.attribute)} {self.form} {self.literal.text}"

    def interval(self, texts: Sequence[str] | None = None) -> tuple[int, int]:
        """The codes that it allows, with other literals if there are any."""
        text = self.literal.text if texts is None else self.literal.among(texts)
        return interval_of(self.form, self.part, text)


@dataclass(frozen=True, slots=True)
class Stated(Condition):
    """A predicate on an expression as it was written, and what it comes to on hidden attributes. `likenesses`
    say which texts that differ in their literals come to the same but for those.
    """

    text: str
    expression: Expression
    position: int
    part: Condition
    likenesses: tuple[Likeness, ...] = field(default=(), compare=False, repr=False)
    odd: tuple[str, str] | None = field(default=None, compare=False, repr=False)
    """What is odd about it, and what was probably meant (lint.py)."""
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class And(Condition):
    """All of the parts hold."""

    parts: tuple[Condition, ...]
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        # HAS ALL is a part for each string, all of which were written as one; a loop, since each level of a
        # generator is a call more, and 128 parentheses are 256 levels
        shown: dict[str, None] = {}
        for part in self.parts:
            shown[f"({part})" if isinstance(part, Or) else str(part)] = None
        return " AND ".join(shown)


@dataclass(frozen=True, slots=True)
class Or(Condition):
    """At least one of the parts holds."""

    parts: tuple[Condition, ...]
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        return " OR ".join(dict.fromkeys(map(str, self.parts)))


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """Each predicate of the part is turned into its opposite; on a missing value both are false."""

    part: Condition
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def __str__(self) -> str:
        return f"NOT ({self.part})" if isinstance(self.part, And | Or) else f"NOT {self.part}"


def likenesses_of(condition: Condition) -> tuple[Likeness, ...]:
    """In what texts that differ in their literals must be alike to share this condition."""
    if isinstance(condition, And | Or):
        return tuple(one for part in condition.parts for one in likenesses_of(part))
    if isinstance(condition, Not):
        return likenesses_of(condition.part)
    return condition.likenesses if isinstance(condition, Stated) else ()


def value_of(text: str) -> Value:
    """The value that a literal writes; LanguageError for a date that no calendar has, and the like.

    A number is an int when it is whole, however it is written, so that no digit is lost. Any other
    is the nearest double, unless that would be a whole number: then it stays a Decimal.

    >>> value_of("'it''s'"), value_of("1e3"), value_of("0.5"), value_of("TRUE"), value_of("1.5k")
    ("it's", 1000, 0.5, True, 1500)
    """
    if text[0] == "'":
        return string_in(text)
    if _TIMESTAMP.match(text):
        try:
            return dt.datetime.fromisoformat(text.upper())
        except ValueError as error:
            raise LanguageError(f"{text} is not a timestamp: {error}") from None
    if text[0] in "\u2212\u2013":
        text = "-" + text[1:]
    if text[-1] in "kK":
        return _decimal(text[:-1] + "e3")
    if text[-1].isalpha():
        word = text.lower()
        return _WORDS[word] if word in _WORDS else float(word)
    try:
        return int(text)
    except ValueError:  # not whole as written, or past the digits that Python takes
        return _decimal(text)


def _decimal(text: str) -> int | float | Decimal:
    number = float(text)
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise LanguageError(f"the exponent of {text} is too large") from None
    if exact and exact.adjusted() >= _MANY_DIGITS:
        return math.copysign(math.inf, number)
    if not number.is_integer():
        return number
    return int(exact) if exact == exact.to_integral_value() else exact


# What a literal comes to where a predicate does not take it as it stands.
#
# `symbol STARTS WITH 'AB'` is an interval of codes that the string begins, `price - close > 3` is
# `close - price < -3`, and `name LIKE 'A%Z'` asks for one string in front and one at the end. So that texts
# which differ in their literals alone share one tree (templates.py), the tree says three things of such a
# literal:
#
#     change     how its text becomes another one: negated, in small letters, backwards, a part of a pattern
#     form       the interval of codes that the text gives one hidden attribute (`LiteralInterval`)
#     likeness   what two texts must have in common to share the tree: as many parts of eight bytes, wildcards
#                in the same places. A text that has no key for it has an error, or is read by itself

LONGEST_PATTERN = 1_000
_MINUS = "-\u2212\u2013"
_FEW = 1 << 16

LikenessKey = tuple[object, ...]


class WrittenLiteral(Protocol):
    """A literal of a tree (tree.py)."""

    def among(self, texts: Sequence[str]) -> str:
        """Its text, where the literals of the whole condition are `texts`."""


class Likeness(NamedTuple):
    """In what some literals of a text must be alike to those of another, so that both share a tree."""

    name: str
    literals: tuple[WrittenLiteral, ...]

    def key(self, texts: Sequence[str]) -> LikenessKey | None:
        """What texts that share a tree have in common; None where there is nothing to share."""
        return KEYS[self.name](*(literal.among(texts) for literal in self.literals))


def quoted_string(text: str) -> str:
    """A string as a condition writes it.

    >>> quoted_string("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def string_in(text: str) -> str:
    """The string that a literal in quotes writes."""
    return text[1:-1].replace("''", "'")


def _negated(text: str) -> str:
    return text[1:] if text[0] in _MINUS else "-" + text.removeprefix("+")


def _of_strings(change: Callable[[str], str]) -> Callable[[str], str]:
    """A change of strings, which leaves any other literal as it is: that has no key."""
    return lambda text: quoted_string(change(string_in(text))) if text[0] == "'" else text


def _like_ends(pattern: str) -> tuple[str, str]:
    """What stands before and after the only % of a pattern; all of it before, where there is none."""
    pieces = like_pieces(pattern)
    at = pieces.index(("%", "")) if ("%", "") in pieces else len(pieces)
    first, last = ("".join(string for _, string in part) for part in (pieces[:at], pieces[at + 1 :]))
    return first, last


CHANGES: dict[str, Callable[[str], str]] = {
    "negated": _negated,
    "small letters": _of_strings(str.lower),
    "backwards": _of_strings(lambda string: string[::-1]),
    "stripped": _of_strings(str.strip),
    "like first": _of_strings(lambda pattern: _like_ends(pattern)[0]),
    "like last": _of_strings(lambda pattern: _like_ends(pattern)[1]),
    "like within": _of_strings(lambda pattern: like_pieces(pattern)[1][1]),
}


def interval_of(form: str, part: int, text: str) -> Interval:
    """The codes that a literal gives one hidden attribute.

    >>> interval_of("longer", 0, "'AB%Z'"), interval_of("network", 0, "'10.0.0.0/8'")
    ((3, 9223372036854775807), (167772160, 184549375))
    """
    string = string_in(text)
    if form == "network":
        return _network_words(text)[part]
    if form == "longer":  # than both ends of a pattern together
        return sum(map(len, _like_ends(string))), LAST
    raw = string.encode()
    if form == "begins":
        return text_range(raw[PART * part :])
    code = text_code(raw, part)
    return (code, code) if form == "same" else (PRESENT, code - 1)


def n_parts(text: str) -> tuple[int, bool]:
    """How many whole parts of eight bytes a literal in quotes has, and whether there is a rest."""
    size = len(text) - 2
    if not text.isascii() or "''" in text[1:-1]:
        size = len(string_in(text).encode())
    return size // PART, size % PART > 0


def _string_key(text: str) -> LikenessKey | None:
    return n_parts(text) if text[0] == "'" and is_unicode(text) else None


def _ascending_key(low: str, high: str) -> LikenessKey | None:
    ours, theirs = _string_key(low), _string_key(high)
    if ours is None or theirs is None or string_in(low) > string_in(high):
        return None
    return ours + theirs


def _like_key(text: str) -> LikenessKey | None:
    if _string_key(text) is None:
        return None
    try:
        pieces = like_pieces(string_in(text))
    except SchemaError:
        return None
    wild = "".join(mark for mark, _ in pieces)
    if wild not in ("", "%"):
        return (wild == "%%" and len(pieces) == 3 and bool(pieces[1][1]),)
    first, last = map(quoted_string, _like_ends(string_in(text)))
    return wild, *n_parts(first), *n_parts(last)


@lru_cache(_FEW)
def _regular_expression_key(text: str) -> LikenessKey | None:
    if _string_key(text) is None or what_is_wrong_with(string_in(text)):
        return None
    return ()


@lru_cache(_FEW)
def _network_words(text: str) -> list[Interval]:
    return addresses.network_words(string_in(text))


def _network_key(text: str) -> LikenessKey | None:
    if _string_key(text) is None:
        return None
    try:
        return (len(_network_words(text)),)
    except SchemaError:
        return None


def is_out_of_range(function: str, operator: str, text: str) -> bool:
    """Whether no value of a function fulfils `operator literal`, or the literal lies beyond all of them.

    `hour(at) < 24` is as good as <= 23.

    >>> is_out_of_range("hour", "=", "24"), is_out_of_range("hour", "<", "24")
    (True, False)
    """
    value = value_of(text)
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return False
    low, high = RANGES[function]
    match operator:
        case "<":
            return value <= low or value > high + 1
        case ">":
            return value >= high or value < low - 1
        case _:
            # a Decimal is never whole
            fractional = isinstance(value, Decimal) or value % 1 != 0
            return value < low or value > high or (operator in ("=", "!=") and fractional)


def _key_unless_changed(change: Callable[[str], str], text: str) -> LikenessKey | None:
    return () if change(text) == text else None


KEYS: dict[str, Callable[..., LikenessKey | None]] = {
    "lower": partial(_key_unless_changed, str.lower),
    "upper": partial(_key_unless_changed, str.upper),
    "string": _string_key,
    "ascending": _ascending_key,
    "like": _like_key,
    "regular expression": _regular_expression_key,
    "network": _network_key,
}


def what_is_wrong_with(pattern: str) -> str:
    """Why a string is no regular expression, or nothing."""
    if len(pattern) > LONGEST_PATTERN:
        return f"a regular expression has at most {LONGEST_PATTERN:,} characters, this one {len(pattern):,}"
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        return f"{pattern!r} is no regular expression of RE2 (no look-around, no back references): {reason}"
    return ""
