"""The dictionary of a category: strings to codes, append-only.

Code 0 is every string that no subscription names: it equals none of them, and lies inside the
ranges that `!=` makes. Named strings get 1, 2, ... in the order in which they are first named, so a
code never changes once it was given, and a longer dictionary agrees with a shorter one on the
shorter one's strings.

Reading takes no lock: a string has its code before it counts in `len`, so who reads the length and then
looks up finds every string that was counted. Arrow columns are looked up by a table of the words' bytes
(strings.py), which is made when first needed and again when the words have become many more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable import lock
from rangecast.simd.memory import Views
from rangecast.types.kernels import WordTable
from rangecast.types.strings import FoundStrings, arrow_numbers, find_strings, without_views, word_table

UNKNOWN = 0
FEW = 32  # strings: fewer are looked up sooner in Python's own dictionary
_PATIENCE = 8  # look-ups of what a table does not know before it is made anew


class Vocabulary:
    """An append-only dictionary of strings, shared by all that is encoded with one schema.

    >>> v = Vocabulary(["IBM"])
    >>> v.add("HAL"), v.look_up("IBM"), v.look_up("none"), v.word(2)
    (2, 1, 0, 'HAL')
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.codes: dict[str, int] = {}
        """The code of each word, to be read: one dictionary for ever, so that its methods may be kept."""
        self._words: list[str] = []
        self._lock = threading.Lock()
        self._table: WordTable | None = None
        self._placed: tuple[WordTable, npt.NDArray[np.int64]] | None = None
        self._stale = 0
        lock.watch(self)
        for word in words:
            self.add(word)

    def _after_fork(self) -> None:
        if not self._lock.acquire(blocking=False):
            # another thread was adding a word, which may have its code and not its place
            self.codes.clear()
            self.codes.update({word: code for code, word in enumerate(self._words, 1)})
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._words)

    def __getstate__(self) -> list[str]:
        return self.words()

    def __setstate__(self, words: list[str]) -> None:
        self.__init__(words)  # type: ignore[misc]

    def add(self, word: str) -> int:
        """The code of `word`, giving it one if it has none."""
        code = self.codes.get(word)
        if code is None:
            with self._lock:
                code = self.codes.get(word)
                if code is None:
                    code = len(self._words) + 1
                    self.codes[word] = code
                    self._words.append(word)
        return code

    def look_up(self, word: str) -> int:
        """The code of `word`, or 0 when no subscription names it."""
        return self.codes.get(word, UNKNOWN)

    def look_up_all(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """The code of each of these."""
        return np.fromiter(map(self.codes.get, words, repeat(UNKNOWN)), np.int64, len(words))

    def word(self, code: int) -> str | None:
        """The string behind a code, or None for the unknown one."""
        words = self.words() if code > len(self._words) else self._words
        return words[code - 1] if 1 <= code <= len(words) else None

    def words(self) -> list[str]:
        """Every string in order of its code, from code 1: all whose code anybody has."""
        with self._lock:
            return list(self._words)

    def encode(self, column: pa.Array[Any], grow: bool) -> npt.NDArray[np.int64]:
        """Codes of a column of strings without nulls; `grow` names the new ones."""
        if not grow and len(column) >= FEW:
            return self.find(column).codes
        return self._by_dictionary(column, self.add if grow else self.look_up)

    def _by_dictionary(self, column: pa.Array[Any], give: Callable[[str], int]) -> npt.NDArray[np.int64]:
        uniques = column.dictionary_encode()
        words: Sequence[str] = uniques.dictionary.to_pylist()
        codes = np.fromiter(map(give, words), np.int64, len(words))
        if not len(codes):
            return np.empty(0, np.int64)
        where: npt.NDArray[np.int64] = uniques.indices.to_numpy(zero_copy_only=False)
        return codes[where]

    def find(self, column: Any, out: npt.NDArray[np.int64] | None = None) -> FoundStrings:
        """Codes of an Arrow column of strings (strings.py), chunked or not: 0 for the unknown ones. They are
        put into `out` if it is given.

        >>> Vocabulary(["IBM"]).find(pa.array(["HAL", "IBM", None])).codes.tolist()
        [0, 1, -9223372036854775808]
        """
        known = len(self._words)
        table = self.table()
        found = find_strings(table, column, out)
        if known < len(table.starts) or found.n_strange == 0:
            return found
        rows = np.flatnonzero(found.codes == UNKNOWN)
        if len(rows):
            self._stale += 1
            words = without_views(column).take(arrow_numbers(rows)).cast(pa.large_string())
            if isinstance(words, pa.ChunkedArray):
                words = pa.concat_arrays(words.chunks)
            found.codes[rows] = self._by_dictionary(words, self.look_up)
        return FoundStrings(found.codes, None)

    def table(self) -> WordTable:
        """A table of the words, or of all but few of them: of the first ones."""
        table = self._table
        n = -1 if table is None else len(table.starts) - 1
        if table is None or 8 * (len(self._words) - n) > n + 512 or self._stale > _PATIENCE:
            table = self._table = word_table(self.words())
            self._stale = 0
        return table

    def placed_table(self) -> tuple[WordTable, npt.NDArray[np.int64]]:
        """The table, and where its arrays lie for a kernel that looks up words of several columns."""
        table = self.table()
        placed = self._placed
        if placed is None or placed[0] is not table:
            placed = self._placed = table, Views(*table).table
        return placed

    def agrees_with(self, other: Vocabulary) -> bool:
        """Whether each of the two gives the other's strings the same codes, as far as both go."""
        n = min(len(self), len(other))
        return self is other or self._words[:n] == other._words[:n]

    def extend_from(self, other: Vocabulary) -> None:
        """Take over the strings that `other` has beyond ours (they must agree)."""
        if other is not self:
            for word in other.words()[len(self) :]:
                self.add(word)

    def translation_from(self, other: Vocabulary) -> npt.NDArray[np.int64]:
        """An array that maps the codes of `other` to ours (unknown where we have none)."""
        codes = [UNKNOWN, *map(self.look_up, other.words())]
        return np.array(codes, np.int64)
