"""Long IN lists of whole numbers or strings, read from the bytes of a text and not by a tree of literals.

A list of thousands of values is most of its text, and a Python object for each of them is most of what
compiling it takes: 1.7 us per number, of which splitting the text and looking each literal up are half, and
5 to 10 us per string. So the list is cut out of the text. What is left, with two values in its place, has a
shape that all texts alike share (templates.py), and once its clause is there, the values of the list take
their place in it:

    text      product IN (17, 4, ..., 90) AND price < 5
    short     product IN (0, 1) AND price < 5
    list      spans of 4, 17, ..., 90, for the attribute of `product`

Numbers are read into the array where they stay. As long as no list has values that touch each other, it holds
both ends of all spans.

This needs a condition that is one clause in which nothing else bounds the attribute of the list: a predicate
alone, or an AND of predicates. Any other text, and one whose list is written in another way, is compiled as a
whole, which alone makes the errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import LanguageError
from rangecast.language import kernels
from rangecast.language.kernels import SET
from rangecast.language.parser import read
from rangecast.language.templates import split
from rangecast.language.tokens import MAX_LISTED
from rangecast.language.tree import And, Comparison, Condition, Membership, Presence, Range
from rangecast.types.attributes import LAST, PRESENT, Category, Codes
from rangecast.types.kernels import WordTable, enter_words
from rangecast.types.schema import Schema
from rangecast.types.strings import LettersRoom, arrow_numbers, find_strings, strings_of_spans
from rangecast.types.vocabulary import Vocabulary

LEAST = 256
"""Values of a list that is cut out: below it, looking for one costs what it saves."""
SHORTEST = 2 * LEAST
"""How many characters a text with such a list has at least."""

_OPENING = re.compile(r"\bin\s*\(\s*(?=[-0-9'])", re.IGNORECASE)
_PREDICATES = (Comparison, Range, Membership, Presence)
_MANY_TEXTS = 4_096
_NUMBERS = "0, 1"


class CutText(NamedTuple):
    """A text without its long list: what stood before and behind it, and two values that are put instead.

    `n` values were read, from the next place of the spans on: strings by their numbers if they are `textual`.
    `apart` says that they ascend and that none touches the next one.
    """

    before: str
    instead: str
    behind: str
    n: int
    textual: bool
    apart: bool

    @property
    def short(self) -> str:
        """The text with the two values."""
        return self.before + self.instead + self.behind


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
        self._seen: dict[tuple[str, str, bool], ListPlace | None] = {}
        self._words = ListedWords()
        self._letters = LettersRoom(kernels.PADDING)
        self._texts: Sequence[str] = ()
        self._lows = np.empty(0, np.int64)
        self._highs: Codes | None = None  # as long as None: the lows
        self._found = np.zeros(2, np.int64)
        self._n_spans = 0
        self._n_letters = 0
        self.found: list[ListSpans] = []

    def expect(self, texts: Sequence[str]) -> None:
        """Say which texts will come, so that there can be room for the lists of all of them at once."""
        self._texts = texts

    def without(self, row: int, text: str) -> str:
        """A text without its long list, whose spans are noted for the row; the same text if it has none."""
        cut = self._cut(text)
        if cut is None:
            return text
        place = self._place(cut)
        if place is None:
            return text
        first = self._n_spans
        self._add_spans(cut, place)
        self._n_letters += len(text)
        self.found.append(ListSpans(row, place.position, first, self._n_spans))
        return cut.short

    def spans(self) -> tuple[Codes, Codes]:
        """The spans of all lists, when there are no more to come."""
        self._lows.resize(self._n_spans, refcheck=False)
        if self._highs is None:
            return self._lows, self._lows
        self._highs.resize(self._n_spans, refcheck=False)
        return self._lows, self._highs

    def _add_spans(self, cut: CutText, place: ListPlace) -> None:
        """Note the spans of the values that were read, or of all others."""
        first, n = self._n_spans, cut.n
        values = self._lows[first : first + n]
        attribute = self._schema.attribute(place.position)
        if isinstance(attribute, Category):
            self._words.name(values, place.position, attribute.vocabulary)
        if not cut.apart:
            values.sort()
        if not place.negated and (cut.apart or bool((values[1:] > values[:-1] + 1).all())):
            if self._highs is not None:
                self._highs[first : first + n] = values
            self._n_spans += n
            return
        if self._highs is None:
            self._highs = self._lows.copy()
        lows, highs = self._lows[first:], self._highs[first:]
        if not place.negated:
            self._n_spans += kernels.unite_values(values, lows, highs)
            return
        # values of eighteen digits lie within the codes: there are others before the first and after the last
        n = kernels.unite_values(values.copy(), highs[:-1], lows[1:])
        highs[:n] -= 1
        lows[1 : n + 1] += 1
        lows[0], highs[n] = PRESENT, LAST
        self._n_spans += n + 1

    def _reserve(self, n: int) -> None:
        """Make room for n spans more.

        Memory that is touched for the first time costs more than all else that is done to a value, unless it
        is asked for in one piece, which then comes in large pages. So there is room for the lists of all
        texts that were announced, as soon as the first one has told how many letters a value takes; what is
        not written to takes no memory. If that was too little, arrays are made longer where they are.
        """
        wanted = self._n_spans + n
        if wanted <= len(self._lows):
            return
        if self._n_spans and self._texts:
            coming = sum(len(text) for text in self._texts if isinstance(text, str))
            self._texts = ()
            longer = wanted + int(1.02 * coming * self._n_spans / self._n_letters)
            self._lows = _moved(self._lows, self._n_spans, longer)
            if self._highs is not None:
                self._highs = _moved(self._highs, self._n_spans, longer)
            return
        longer = max(wanted, len(self._lows) + (len(self._lows) >> 2))
        self._lows.resize(longer, refcheck=False)
        if self._highs is not None:
            self._highs.resize(longer, refcheck=False)

    def _cut(self, text: str) -> CutText | None:
        if len(text) >= 2 * MAX_LISTED and text.count(",") >= MAX_LISTED:
            return None  # they may be too many
        letters = None
        for opening in _OPENING.finditer(text):
            if letters is None:
                try:
                    letters = self._letters.put(text)
                except UnicodeEncodeError:
                    return None
            cut = self._read(text, letters, opening.end())
            if cut is not None and cut.n >= LEAST:
                return cut
        return None

    def _read(self, text: str, letters: npt.NDArray[np.uint8], at: int) -> CutText | None:
        """The list from a place of a text on, None where it is written in another way."""
        before, found = text[:at], self._found
        first = at if text.isascii() else len(before.encode())
        # of a value there are at least a digit and a comma; a list has one span more than values at most
        self._reserve((len(letters) - first) // 2 + 2)
        out = self._lows[self._n_spans :]
        textual = text[at] == "'"
        if textual:
            n = self._words.read(letters, first, out, found)
        else:
            n = int(kernels.read_numbers(letters, first, out, found))
        if n < 0:
            return None
        end, apart, instead = int(found[0]), not textual and bool(found[1]), _NUMBERS
        if textual:
            # no other word: whatever stands in a text is named in the vocabulary
            word = letters[first : int(found[1])].tobytes().decode()
            instead = f"{word}, {word}"
        behind = text[end:] if text.isascii() else letters[end : -kernels.PADDING].tobytes().decode()
        return CutText(before, instead, behind, n, textual, apart)

    def _place(self, cut: CutText) -> ListPlace | None:
        """What the list of a text bounds; None where it cannot be cut out."""
        around = cut.before, cut.behind, cut.textual
        if around not in self._seen:
            if len(self._seen) >= _MANY_TEXTS:
                self._seen.clear()
            self._seen[around] = self._place_in_shape(cut)
        return self._seen[around]

    def _place_in_shape(self, cut: CutText) -> ListPlace | None:
        shape, literals = split(cut.short)
        key = shape, len(split(cut.before)[1]), cut.textual
        if key not in self._places:
            try:
                condition, found = read(cut.short, self._schema)
            except LanguageError:
                return None
            # as for shapes: where a comment or a name in quotes misled `split`, texts are not alike
            alike = found == literals
            self._places[key] = self._bounded(condition, len(cut.before), cut.textual) if alike else None
        return self._places[key]

    def _bounded(self, condition: Condition, place: int, textual: bool) -> ListPlace | None:
        parts = condition.parts if isinstance(condition, And) else (condition,)
        own = None
        for part in parts:
            if not isinstance(part, _PREDICATES):
                return None
            if isinstance(part, Membership) and part.literals[0].start == place:
                own = part
        wanted = "category" if textual else "int"
        if own is None or self._schema.attribute(own.position).kind != wanted:
            return None
        if sum(part.position == own.position for part in parts if isinstance(part, _PREDICATES)) != 1:
            return None
        return ListPlace(own.position, own.negated)


def _moved(spans: Codes, n: int, longer: int) -> Codes:
    """The first n of some ends of spans, in an array with more room."""
    out = np.empty(longer, np.int64)
    out[:n] = spans[:n]
    return out


def put_lists(
    lists: LongLists, owners: npt.NDArray[np.int32], starts: Codes,
    entries: tuple[npt.NDArray[np.int32], Codes, Codes], sets: tuple[Codes, Codes, Codes, Codes],
) -> tuple[Codes, Codes, Codes, Codes]:  # fmt: skip
    """Put spans of lists into boxes by owner: `entries` are their attributes, lows and highs, which change,
    and `sets` the four arrays of their sets, of which others are given back. Rows ascend, as owners do."""
    attributes, lows, highs = entries
    at, set_starts, set_lows, set_highs = sets
    list_lows, list_highs = lists.spans()
    if not len(attributes):
        return sets
    counts = np.zeros(len(attributes), np.int64)
    counts[at] = np.diff(set_starts)
    firsts = np.zeros(len(attributes), np.int64)
    # those of lists come first, and then those of other sets
    firsts[at] = set_starts[:-1] + len(list_lows)
    rows, positions, begins, ends = np.array(lists.found, np.int64).T
    box = np.minimum(np.searchsorted(owners, rows), len(owners) - 1)
    there = np.flatnonzero(owners[box] == rows)  # the others failed, or can never hold
    box, positions, begins, sizes = box[there], positions[there], begins[there], (ends - begins)[there]
    # entries stand by box, and in each by attribute
    own = attributes & ~SET
    width = int(own.max()) + 1
    keys = np.repeat(np.arange(len(owners)), np.diff(starts)) * width + own
    entry = np.searchsorted(keys, box * width + positions)
    lows[entry], highs[entry] = list_lows[begins], list_highs[begins + sizes - 1]
    several = sizes > 1
    attributes[entry] = positions | np.where(several, SET, 0)
    counts[entry], firsts[entry] = np.where(several, sizes, 0), np.where(several, begins, 0)
    kept = np.flatnonzero(counts)
    sizes = counts[kept]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    if int(ends[-1]) <= len(list_lows) and np.array_equal(firsts[kept], ends[:-1]):
        # the lists are all sets that there are
        return kept, ends, list_lows[: ends[-1]], list_highs[: ends[-1]]
    all_lows, all_highs = np.concatenate([list_lows, set_lows]), np.concatenate([list_highs, set_highs])
    where = np.arange(ends[-1]) + np.repeat(firsts[kept] - ends[:-1], sizes)
    return kept, ends, all_lows[where], all_highs[where]


# The strings of long lists: numbered by a kernel as they are read, and named in the vocabulary once each.
#
# A load has a table of the strings of its lists. It grows as they come, so a string that was there before
# costs a look-up by its bytes. One that is new is looked up in the table that the vocabulary has when the
# load begins, and only if it is new there too, it costs a call of `Vocabulary.add`. That table cannot grow,
# and would be rebuilt again and again if it had to know all strings.
#
#     array    dtype   shape      meaning
#     words    WordTable          the strings by their bytes, numbered from 1 on as they came
#     counts   int64   2          how many strings there are, and how many letters they have
#     codes    int64   n + 1      of an attribute: the code of each string in its vocabulary, 0 where no list
#                                 on it has the string

_NONE = np.zeros(1, np.int64)
_SHORTEST = 3  # letters of a string in its quotes, with the comma


class ListedWords:
    """The strings of the lists of a load."""

    def __init__(self) -> None:
        self._words = WordTable(np.zeros((16, 3), np.uint64), np.zeros(1, np.int64), np.zeros(0, np.uint8))
        self._counts = np.zeros(2, np.int64)
        self._codes: dict[int, Codes] = {}
        self._known: dict[int, WordTable] = {}
        self._room = np.empty(0, np.uint8)
        self._spans = np.empty((0, 2), np.int64)

    def read(self, letters: npt.NDArray[np.uint8], first: int, out: Codes, found: Codes) -> int:
        """Put the numbers of the strings from a place on into `out`; what kernels.read_words returns."""
        self._reserve(len(letters))
        where = self._room, self._spans
        return int(kernels.read_words(letters, first, self._words, self._counts, *where, out, found))

    def name(self, numbers: Codes, position: int, vocabulary: Vocabulary) -> None:
        """Make codes out of numbers that `read` gave, where they are: those of an attribute's vocabulary."""
        known = self._codes.get(position, _NONE)
        if len(known) <= int(self._counts[0]):
            longer = np.zeros(2 * int(self._counts[0]) + 1, np.int64)
            longer[: len(known)] = known
            known = self._codes[position] = longer
        codes = known[numbers]
        unnamed = codes == 0
        if unnamed.any():
            new = np.unique(numbers[unnamed])
            known[new] = self._code_of(new, position, vocabulary)
            codes = known[numbers]
        numbers[:] = codes

    def _code_of(self, new: Codes, position: int, vocabulary: Vocabulary) -> Codes:
        """The codes of strings by their numbers, in a vocabulary that takes in new ones."""
        begins, letters = self._words.starts[new - 1], self._words.letters
        place = np.array([(letters.ctypes.data, len(letters), 1)], np.int64)
        words = strings_of_spans(place, begins, self._words.starts[new] - begins)
        if position not in self._known:
            self._known[position] = vocabulary.table()
        codes = find_strings(self._known[position], words).codes
        rest = np.flatnonzero(codes == 0)
        if len(rest):
            unknown = words.take(arrow_numbers(rest)) if len(rest) < len(words) else words
            codes[rest] = np.fromiter(map(vocabulary.add, unknown.to_pylist()), np.int64, len(rest))
        return codes

    def _reserve(self, n: int) -> None:
        """Make room for what a text of n letters may bring."""
        n_words, n_letters = self._counts.tolist()
        words, starts, letters = self._words
        most = n_words + n // _SHORTEST + 1
        if len(self._room) < n:
            self._room = np.empty(2 * n, np.uint8)
            self._spans = np.empty((2 * n // _SHORTEST + 2, 2), np.int64)
        if len(letters) < n_letters + n:
            letters = np.concatenate([letters[:n_letters], np.zeros(n_letters + 2 * n, np.uint8)])
        if len(starts) <= most:
            starts = np.concatenate([starts[: n_words + 1], np.zeros(2 * most, np.int64)])
        if len(words) < 2 * most:
            words = np.zeros((1 << (2 * most).bit_length(), 3), np.uint64)
            enter_words(WordTable(words, starts[: n_words + 1], letters), 0)
        self._words = WordTable(words, starts, letters)
