"""What a literal comes to where a predicate does not take it as it stands.

`symbol STARTS WITH 'AB'` is an interval of codes that the string begins, `price - close > 3` is
`close - price < -3`, and `name LIKE 'A%Z'` asks for one string in front and one at the end. So that texts
which differ in their literals alone share one tree (templates.py), the tree says three things of such a
literal:

    change     how its text becomes another one: negated, in small letters, backwards, a part of a pattern
    form       the interval of codes that the text gives one hidden attribute (`LiteralInterval`)
    likeness   what two texts must have in common to share the tree: as many parts of eight bytes, wildcards
               in the same places. A text that has no key for it has an error, or is read by itself
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import pyarrow as pa

from rangecast.errors import SchemaError
from rangecast.types import addresses
from rangecast.types.arrow_compute import pc
from rangecast.types.attributes import LAST, PRESENT, Interval
from rangecast.types.columns import is_unicode
from rangecast.types.derived import PART, text_code, text_range
from rangecast.types.literal_pieces import like_pieces

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


KEYS: dict[str, Callable[..., LikenessKey | None]] = {
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
