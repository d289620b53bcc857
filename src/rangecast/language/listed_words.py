"""The strings of long lists: numbered by a kernel as they are read, and named in the vocabulary once each.

A load has a table of the strings of its lists. It grows as they come, so a string that was there before costs
a look-up by its bytes. One that is new is looked up in the table that the vocabulary has when the load
begins, and only if it is new there too, it costs a call of `Vocabulary.add`. That table cannot grow, and
would be rebuilt again and again if it had to know all strings.

    array    dtype   shape      meaning
    words    WordTable          the strings by their bytes, numbered from 1 on as they came
    counts   int64   2          how many strings there are, and how many letters they have
    codes    int64   n + 1      of an attribute: the code of each string in its vocabulary, 0 where no list
                                on it has the string
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.kernels.language import lists as kernels
from rangecast.kernels.types.strings import WordTable, enter_words
from rangecast.types.attributes import Codes
from rangecast.types.strings import arrow_numbers, find_strings, strings_of_spans
from rangecast.types.vocabulary import Vocabulary

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
