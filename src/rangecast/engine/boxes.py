"""The boxes of one moment, as layouts read them.

How bounds are kept is known here, in box_entries.py and in kernels/engine/boxes.py alone. Whoever lays boxes
out asks for columns; whoever matches hands `arrays` to a kernel, or `table` where a few events must be fast,
and the kernel asks `holds`.

Boxes are kept by entry, and a layout is built attribute by attribute. So when many boxes are asked for a
column, their entries are turned around once, and kept for as long as this object lives: one for each build.
Where all boxes share their heads, a column is read from where it stands.

The structures of papers need the ends of every box on every attribute: `ExpandedBoxes` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine import boxes_kernels as kernels
from rangecast.engine.boxes_kernels import POSITION, BoxArrays, DenseArrays
from rangecast.kernels.engine import shared_heads
from rangecast.kernels.machine.views import Views
from rangecast.kernels.model.ids import counts_up
from rangecast.language.kernels import ListedValues
from rangecast.model.boxes import DenseBoxes, SparseBoxes, from_dense, starts_of
from rangecast.types.attributes import LAST, MISSING, Codes

FEW = 4096
AT_ONCE = 1 << 18
"""So many boxes are read one by one; for more, all entries are turned around once."""

_BoxNumbers = npt.NDArray[np.int64]
_NO_SLOTS = np.empty(0, np.int32)


class _Turned(NamedTuple):
    """The entries of boxes first..last by attribute: those of j are starts[j] .. starts[j + 1]."""

    first: int
    last: int
    starts: _BoxNumbers
    positions: npt.NDArray[np.int32]
    lows: Codes
    highs: Codes


class Boxes:
    """Boxes by number."""

    lists: ListedValues | None = None
    """The lists that some of them are led by (listed_values.py)."""

    def __init__(self, arrays: BoxArrays, lists: ListedValues | None = None) -> None:
        self.arrays: Any = arrays
        self.lists = lists
        self._turned: _Turned | None = None

    @property
    def n(self) -> int:
        """How many boxes there are."""
        return int(self.arrays.n)

    @property
    def n_attributes(self) -> int:
        """How many attributes the schema has."""
        return len(self.arrays.bases)

    @property
    def slots(self) -> npt.NDArray[np.int32]:
        """The slot of each box; empty where it is the box's own number (`are_slots`)."""
        slots: npt.NDArray[np.int32] = self.arrays.slots
        return slots

    @cached_property
    def _views(self) -> Views:
        a = self.arrays
        return Views(a.words, a.heads, a.starts, a.bases, a.slots, np.array([a.n, a.stride], np.int64))

    @cached_property
    def table(self) -> _BoxNumbers:
        """The table from which `view_boxes` makes the arrays again."""
        return self._views.table

    @property
    def stand_in_columns(self) -> bool:
        """Whether a column of some boxes is read without a look at others."""
        return len(self.arrays.heads) > 0

    def again(self) -> Boxes:
        """The same boxes, for one build: what it turns around goes with it."""
        return Boxes(self.arrays, self.lists)

    def column(self, j: int, numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        """The low and the high ends of some boxes on one attribute, MISSING and LAST where it is ignored.

        They may be views, and must not be written to.
        """
        n = len(numbers)
        turned = self._turned
        if n <= FEW or len(self.arrays.heads):
            lows, highs = np.empty(n, np.int64), np.empty(n, np.int64)
            fill = shared_heads.fill_shared_column if len(self.arrays.heads) else kernels.fill_column
            fill(self.arrays, np.ascontiguousarray(numbers), j, lows, highs)
            return lows, highs
        first, last = int(numbers.min()), int(numbers.max()) + 1
        if turned is None or first < turned.first or last > turned.last:
            turned = self._turned = self._turn(first, last)
        own = slice(int(turned.starts[j]), int(turned.starts[j + 1]))
        size = turned.last - turned.first
        lows, highs = turned.lows[own], turned.highs[own]
        if len(lows) < size:
            positions = turned.positions[own]
            whole = np.full(size, MISSING), np.full(size, LAST)
            whole[0][positions], whole[1][positions] = lows, highs
            lows, highs = whole
        if follow_each_other(numbers):
            rows = slice(first - turned.first, last - turned.first)
            return lows[rows], highs[rows]
        places = numbers - turned.first
        return lows[places], highs[places]

    def column_pieces(self, j: int, numbers: _BoxNumbers) -> Iterator[tuple[int, Codes, Codes]]:
        """The same, some boxes at a time, with the place of the first: all codes of an attribute may take as
        much memory as all that is built of them. At once where the boxes have to be turned around anyway."""
        for first, last in self.pieces(len(numbers)):
            yield first, *self.column(j, numbers[first:last])

    def pieces(self, n: int) -> list[tuple[int, int]]:
        """Where to cut n boxes of which a column is read: threads may read the pieces side by side."""
        step = AT_ONCE if self.stand_in_columns else max(n, 1)
        return [(first, min(first + step, n)) for first in range(0, n, step)]

    def distances(self, j: int, numbers: _BoxNumbers, base: int, dtype: Any) -> tuple[Any, Any]:
        """The low and the high ends of boxes that have both on an attribute, unsigned and from a base on."""
        lows, highs = np.empty(len(numbers), dtype), np.empty(len(numbers), dtype)
        if dtype == np.uint32 and not isinstance(self, ExpandedBoxes) and len(self.arrays.heads):
            own = np.ascontiguousarray(numbers)
            if shared_heads.fill_distances(self.arrays, own, j, base, lows, highs):
                return lows, highs
        origin = np.array([base]).view(np.uint64)
        for codes, out in zip(self.column(j, numbers), (lows, highs), strict=True):
            np.subtract(codes.view(np.uint64), origin, out=out, casting="unsafe")
        return lows, highs

    def _turn(self, first: int, last: int) -> _Turned:
        counts = np.zeros(self.n_attributes, np.int64)
        kernels.count_entries(self.arrays, first, last, counts)
        starts = starts_of(counts)
        n = int(starts[-1])
        positions, lows, highs = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        kernels.turn_entries(self.arrays, first, last, starts[:-1].copy(), positions, lows, highs)
        return _Turned(first, last, starts, positions, lows, highs)

    def columns(self, attributes: Iterable[int], numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        """The same of several attributes, a row each."""
        own = np.array(list(attributes), np.int64)
        lows, highs = (np.empty((len(own), len(numbers)), np.int64) for _ in range(2))
        for k, j in enumerate(own.tolist()):
            lows[k], highs[k] = self.column(j, numbers)
        return lows, highs

    def bounded(self, numbers: _BoxNumbers) -> list[int]:
        """The attributes that some of the boxes bound."""
        if len(self.arrays.heads) and len(numbers):
            shared: list[int] = np.unique(self.arrays.heads & np.uint32(POSITION)).tolist()
            return shared
        marks = np.zeros(self.n_attributes, np.uint8)
        kernels.mark_bounded(self.arrays, np.ascontiguousarray(numbers), marks)
        found: list[int] = np.flatnonzero(marks).tolist()
        return found

    def bounds_at(self, attributes: npt.NDArray[Any], numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        """The ends of box numbers[i] on attributes[i]."""
        lows, highs = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
        kernels.find_bounds(self.arrays, attributes, np.ascontiguousarray(numbers), lows, highs)
        return lows, highs

    def entries(self, numbers: _BoxNumbers, owners: npt.NDArray[np.int32]) -> SparseBoxes:
        """Some boxes by their entries, with the owners that they get."""
        numbers = np.ascontiguousarray(numbers, np.int64)
        counts = np.empty(len(numbers), np.int64)
        kernels.count_own_entries(self.arrays, numbers, counts)
        starts = starts_of(counts)
        n = int(starts[-1])
        attributes, lows, highs = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        kernels.read_entries(self.arrays, numbers, attributes, lows, highs)
        none = np.empty(0, np.int64)
        return SparseBoxes(owners, starts, attributes, lows, highs, none, np.zeros(1, np.int64), none, none)

    def entry_counts(self, numbers: _BoxNumbers) -> npt.NDArray[np.int64]:
        """How many entries each of some boxes has."""
        counts = np.empty(len(numbers), np.int64)
        kernels.count_own_entries(self.arrays, np.ascontiguousarray(numbers), counts)
        return counts

    def count_entries(self, numbers: _BoxNumbers) -> int:
        """How many entries some boxes have together."""
        shared = len(self.arrays.heads)
        return shared * len(numbers) if shared else int(self.entry_counts(numbers).sum())

    def slots_of(self, numbers: _BoxNumbers) -> npt.NDArray[np.int32]:
        """The slots of some boxes."""
        slots = self.slots
        return slots[numbers] if len(slots) else numbers.astype(np.int32)

    def are_slots(self, numbers: _BoxNumbers) -> bool:
        """Whether the numbers of these boxes are their slots."""
        return not len(self.slots) or bool((self.slots[numbers] == numbers).all())

    @property
    def lows(self) -> Codes:
        """The low ends (d, >= n) of expanded boxes; others have none."""
        raise AttributeError("boxes are kept by entry: ask for column(), or set `expands` on the index")

    @property
    def highs(self) -> Codes:
        """The high ends (d, >= n) of expanded boxes; others have none."""
        raise AttributeError("boxes are kept by entry: ask for column(), or set `expands` on the index")


class ExpandedBoxes(Boxes):
    """Boxes with the ends of every attribute; what is behind `n` is spare room."""

    def __init__(self, lows: Codes, highs: Codes, slots: npt.NDArray[np.int32], n: int) -> None:
        self.arrays = DenseArrays(lows, highs, slots, n)

    @property
    def n_attributes(self) -> int:
        return len(self.arrays.lows)

    @property
    def lows(self) -> Codes:
        lows: Codes = self.arrays.lows
        return lows

    @property
    def highs(self) -> Codes:
        highs: Codes = self.arrays.highs
        return highs

    @property
    def stand_in_columns(self) -> bool:
        return True

    def again(self) -> ExpandedBoxes:
        return self

    def column(self, j: int, numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        n = len(numbers)
        if follow_each_other(numbers):
            own = slice(int(numbers[0]), int(numbers[0]) + n)
            return self.lows[j, own], self.highs[j, own]
        return self.lows[j, numbers], self.highs[j, numbers]

    def bounded(self, numbers: _BoxNumbers) -> list[int]:
        out = []
        for j in range(self.n_attributes):
            lows, highs = self.column(j, numbers)
            if (lows != MISSING).any() or (highs != LAST).any():
                out.append(j)
        return out

    def bounds_at(self, attributes: npt.NDArray[Any], numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        return self.lows[attributes, numbers], self.highs[attributes, numbers]

    def entries(self, numbers: _BoxNumbers, owners: npt.NDArray[np.int32]) -> SparseBoxes:
        return from_dense(DenseBoxes(self.lows[:, numbers], self.highs[:, numbers], owners))


def follow_each_other(numbers: npt.NDArray[Any]) -> bool:
    """Whether each number is one more than the one before it.

    >>> follow_each_other(np.array([4, 5, 6])), follow_each_other(np.array([4, 6, 5, 7]))
    (True, False)
    """
    n = len(numbers)
    if not n or int(numbers[-1]) - int(numbers[0]) != n - 1:
        return False
    return bool(counts_up(numbers))


def grown(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array, or a copy with more room along its last axis, so that `wanted` entries fit."""
    capacity = array.shape[-1]
    if wanted <= capacity:
        return array
    # the first load gets exactly its size: most indexes are loaded once
    room = wanted if used == 0 else max(wanted, capacity + (capacity >> 1), 64)
    out = np.empty((*array.shape[:-1], room), array.dtype)
    out[..., :used] = array[..., :used]
    return out
