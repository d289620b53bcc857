"""Long IN lists of whole numbers, read from the bytes of a text and not by a tree of literals.

A list of thousands of values is most of its text, and a Python object for each of them is most of what
compiling it takes: 1.7 us per value, of which splitting the text and looking each literal up are half. So the
list is cut out of the text. What is left, with two numbers in its place, has a shape that all texts alike
share (templates.py), and once its clause is there, the values of the list take their place in it:

    text      product IN (17, 4, ..., 90) AND price < 5
    short     product IN (0, 1) AND price < 5
    list      spans of 4, 17, ..., 90, for the attribute of `product`

This needs a condition that is one clause in which nothing else bounds the attribute of the list: a predicate
alone, or an AND of predicates. Any other text, and one whose list is written in another way, is compiled as a
whole, which alone makes the errors.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import LanguageError
from rangecast.kernels.language import lists as kernels
from rangecast.kernels.model.boxes import SET
from rangecast.language.normal_form import WORK_LIMIT
from rangecast.language.parser import read
from rangecast.language.templates import split
from rangecast.language.tree import And, Comparison, Condition, Membership, Presence, Range
from rangecast.types.attributes import LAST, PRESENT, Codes
from rangecast.types.schema import Schema

LEAST = 256
"""Values of a list that is cut out: below it, looking for one costs what it saves."""

_OPENING = re.compile(r"\bin\s*\(\s*(?=[-0-9])", re.IGNORECASE)
_INSTEAD = "0, 1"
_PREDICATES = (Comparison, Range, Membership, Presence)


class CutText(NamedTuple):
    """A text without its long list: where the list was, and its values as they were written."""

    short: str
    place: int
    values: Codes


class ListPlace(NamedTuple):
    """Which attribute the list of a shape bounds, and whether it says which values are not meant."""

    position: int
    negated: bool


class ListSpans(NamedTuple):
    """Which spans a list gives the attribute at a position, in one row: those of all lists from the first one
    up to the last."""

    row: int
    position: int
    first: int
    last: int


class LongLists:
    """The lists that were cut out of the texts of a load, and which shapes had one."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._places: dict[tuple[object, ...], ListPlace | None] = {}
        self._room = np.empty(0, np.int64)
        self._lows, self._highs = np.empty(0, np.int64), np.empty(0, np.int64)
        self._n_spans = 0
        self.found: list[ListSpans] = []

    def without(self, row: int, text: str) -> str:
        """A text without its long list, whose spans are noted for the row; the same text if it has none."""
        cut = self._cut(text)
        if cut is None:
            return text
        place = self._place(cut)
        if place is None:
            return text
        first = self._n_spans
        self._add_spans(cut.values, place.negated)
        self.found.append(ListSpans(row, place.position, first, self._n_spans))
        return cut.short

    def spans(self) -> tuple[Codes, Codes]:
        """The spans of all lists, when there are no more to come."""
        for array in (self._lows, self._highs):
            array.resize(self._n_spans, refcheck=False)
        return self._lows, self._highs

    def _add_spans(self, values: Codes, negated: bool) -> None:
        """Note the spans of values in any order, or of all others."""
        values.sort()
        first = self._n_spans
        wanted = first + len(values) + 1
        if wanted > len(self._lows):
            # memory that is touched for the first time costs more than all else that is done to a value, so
            # the arrays are made longer where they are, if that can be, and never joined from pieces
            for array in (self._lows, self._highs):
                array.resize(max(wanted, len(array) + (len(array) >> 2)), refcheck=False)
        lows, highs = self._lows[first:], self._highs[first:]
        if not negated:
            self._n_spans += kernels.unite_values(values, lows, highs)
            return
        # values of eighteen digits lie within the codes: there are others before the first and after the last
        n = kernels.unite_values(values, highs[:-1], lows[1:])
        highs[:n] -= 1
        lows[1 : n + 1] += 1
        lows[0], highs[n] = PRESENT, LAST
        self._n_spans += n + 1

    def _cut(self, text: str) -> CutText | None:
        if not isinstance(text, str) or len(text) < 2 * LEAST or not text.isascii():
            return None
        if len(self._room) < len(text):
            self._room = np.empty(2 * len(text), np.int64)
        letters = np.frombuffer(bytearray(text, "ascii"), np.uint8)
        end = np.zeros(1, np.int64)
        for opening in _OPENING.finditer(text):
            n = kernels.read_numbers(letters, opening.end(), self._room, end)
            if LEAST <= n <= WORK_LIMIT:
                short = text[: opening.end()] + _INSTEAD + text[int(end[0]) :]
                return CutText(short, opening.end(), self._room[:n])
        return None

    def _place(self, cut: CutText) -> ListPlace | None:
        """What the list of a text bounds; None where it cannot be cut out."""
        shape, literals = split(cut.short)
        key = shape, len(split(cut.short[: cut.place])[1])
        if key not in self._places:
            try:
                condition, found = read(cut.short, self._schema)
            except LanguageError:
                return None
            # as for shapes: where a comment or a name in quotes misled `split`, texts are not alike
            self._places[key] = self._bounded(condition, cut.place) if found == literals else None
        return self._places[key]

    def _bounded(self, condition: Condition, place: int) -> ListPlace | None:
        parts = condition.parts if isinstance(condition, And) else (condition,)
        own = None
        for part in parts:
            if not isinstance(part, _PREDICATES):
                return None
            if isinstance(part, Membership) and part.literals[0].start == place:
                own = part
        if own is None or self._schema.attribute(own.position).kind != "int":
            return None
        if sum(part.position == own.position for part in parts if isinstance(part, _PREDICATES)) != 1:
            return None
        return ListPlace(own.position, own.negated)


def put_lists(
    lists: LongLists, owners: npt.NDArray[np.int32], starts: Codes,
    entries: tuple[npt.NDArray[np.int32], Codes, Codes], sets: tuple[Codes, Codes, Codes, Codes],
) -> tuple[Codes, Codes, Codes, Codes]:  # fmt: skip
    """Put spans of lists into boxes by owner: `entries` are their attributes, lows and highs, which change,
    and `sets` the four arrays of their sets, of which others are given back. Rows ascend, as owners do."""
    attributes, lows, highs = entries
    at, set_starts, set_lows, set_highs = sets
    list_lows, list_highs = lists.spans()
    counts = np.zeros(len(attributes), np.int64)
    counts[at] = np.diff(set_starts)
    firsts = np.zeros(len(attributes), np.int64)
    # those of lists come first, and then those of other sets
    firsts[at] = set_starts[:-1] + len(list_lows)
    for row, position, first, last in lists.found:
        box = int(np.searchsorted(owners, row))
        if box == len(owners) or owners[box] != row:
            continue  # it failed, or can never hold
        entry = int(starts[box]) + int(
            np.flatnonzero((attributes[starts[box] : starts[box + 1]] & ~SET) == position)[0]
        )
        lows[entry], highs[entry] = list_lows[first], list_highs[last - 1]
        attributes[entry] = position | (SET if last - first > 1 else 0)
        counts[entry], firsts[entry] = (last - first, first) if last - first > 1 else (0, 0)
    kept = np.flatnonzero(counts)
    sizes = counts[kept]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    if int(ends[-1]) <= len(list_lows) and np.array_equal(firsts[kept], ends[:-1]):
        # the lists are all sets that there are
        return kept, ends, list_lows[: ends[-1]], list_highs[: ends[-1]]
    all_lows, all_highs = np.concatenate([list_lows, set_lows]), np.concatenate([list_highs, set_highs])
    where = np.arange(ends[-1]) + np.repeat(firsts[kept] - ends[:-1], sizes)
    return kept, ends, all_lows[where], all_highs[where]
