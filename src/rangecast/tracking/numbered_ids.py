"""Ids that are numbered in the order of their first coming."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes import grown
from rangecast.model.ids import Ids, IdTable


class NumberedIds:
    """Ids and their numbers, append-only: `with_more` gives a longer one, which shares the arrays.

    Only the hash table is changed in place. The longer one takes it away, so that a shorter one whose
    successor was given up makes another when it is next asked.

    >>> few = NumberedIds(Ids.of(["b", "a"]))
    >>> few.with_more(Ids.of(["c"])).find(Ids.of(["c", "a", "z"])).tolist(), few.find(Ids.of(["c"])).tolist()
    ([2, 1, -1], [-1])
    """

    __slots__ = ("_letters", "_places", "_size", "_table", "textual")

    def __init__(self, ids: Ids) -> None:
        self.textual = ids.textual
        self._places = ids.starts if ids.textual else ids.values
        self._letters = ids.letters
        self._size = len(ids)
        self._table: IdTable | None = None

    def __len__(self) -> int:
        return self._size

    @property
    def ids(self) -> Ids:
        """The ids by number, without a copy."""
        if not self.textual:
            return Ids(self._places[: self._size])
        starts = self._places[: self._size + 1]
        return Ids(None, starts, self._letters[: starts[-1]])

    @property
    def nbytes(self) -> int:
        """Bytes of ids and table."""
        table = 0 if self._table is None else self._table.nbytes
        return self._places.nbytes + self._letters.nbytes + table

    def find(self, wanted: Ids) -> npt.NDArray[np.int32]:
        """The number of each id, -1 where it has none."""
        if self._table is None:
            self._table = IdTable(self.ids)
        return self._table.find(wanted)

    def with_more(self, more: Ids) -> NumberedIds:
        """These and some that are not among them, numbered on."""
        if not len(more):
            return self
        if not self._size:
            return NumberedIds(more)
        n, k = self._size, len(more)
        out = NumberedIds(self.ids)
        out._size = n + k
        if self.textual:
            used, length = int(self._places[n]), int(more.starts[-1])
            out._letters = grown(self._letters, used, used + length)
            out._letters[used : used + length] = more.letters[:length]
            out._places = grown(self._places, n + 1, n + 1 + k)
            out._places[n + 1 : n + 1 + k] = more.starts[1:] + used
        else:
            out._places = grown(self._places, n, n + k)
            out._places[n : n + k] = more.values
        table, self._table = self._table, None
        if table is not None:
            out._table = table.extended(out.ids, np.ones(out._size, np.uint8))
        return out
