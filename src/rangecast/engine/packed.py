"""Bounds packed two attributes to a word, so that a candidate is checked without touching its codes.

An attribute gets a Grid of at most CELLS cells. When every end point starts a cell (few different
ones, or a small domain) the grid is exact and comparing cells is comparing codes. Otherwise only a
value in the same cell as an end of the box needs its codes looked at, one in thousands.

    array        dtype    shape        meaning
    attributes   int64    k            the attributes that are packed
    inexact      int64    <= k         those whose grid is not exact
    ones         uint64   n_words      1 in every field of an inexact attribute
    spans        int64    (n, 2)       least and largest end point of the attributes without a grid: of those
                                       with wide fields, then of those with medium ones
    guards       uint64   n_words      the guard bits of each word

engine/packed_kernels.py has the layout of a word and the comparison. Events are packed by a kernel
that finds these arrays and those of the grids by a table, `views`: ten of them handed over cost more than
packing one event.

The bounds that a layout does not go by, packed box by box, so that a candidate costs a line of memory.

A candidate of `cells` on one or two attributes must still hold the event on the others. Their codes lie
attribute by attribute, two lines of memory each; packed (packed.py), eight attributes are half a line.
On 100,000 boxes of 8 attributes and 1,000 candidates per event that takes 7 us instead of 43.

    array    dtype    shape          meaning
    words    uint64   (n, n_words)   the packed bounds of each box
    rows     int32    span or 0      the row of each box from the first on; none where boxes follow each other

A batch with few candidates per event is compared by codes: packing its events would cost more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine import packed_kernels as kernels
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import hold, shaped, within
from rangecast.engine.grid import Grid
from rangecast.engine.packed_kernels import CheckedBounds, Fields
from rangecast.engine.threads import runner
from rangecast.simd.memory import Views
from rangecast.types.attributes import LAST, MISSING, PRESENT, Codes, decoded_floats

CELLS = 32_000
HINTED = 8
COMPARED = 32
_SAMPLE = 65_536
_FINER = 8
_FINE_PLACES = 1 << 16


@dataclass(eq=False)
class Packed:
    """How some attributes are packed: those of wide fields, those of medium ones, the others two by two."""

    attributes: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]
    grids: list[Grid | None]
    exact: list[bool]

    def __post_init__(self) -> None:
        grids, exact = self.grids, self.exact
        self.n_wide = n_wide = sum(not _is_medium(low, high) for low, high in self.spans.tolist())
        n_medium = -(-2 * (len(self.spans) - n_wide) // 3)
        self.n_words = n_wide + n_medium + (len(grids) - len(self.spans) + 1) // 2
        self.fields = Fields(
            ones=np.zeros(max(1, self.n_words), np.uint64),
            guards=np.full(max(1, self.n_words), kernels.GUARDS, np.uint64),
            inexact=np.array(
                [j for j, known in zip(self.attributes, exact, strict=True) if not known], np.int64
            ),
        )
        self.fields.guards[:n_wide] = kernels.WIDE_GUARDS
        self.fields.guards[n_wide : n_wide + n_medium] = kernels.MEDIUM_GUARDS
        self._first_narrow = n_wide + n_medium
        lengths = [0 if grid is None else grid.n_cells for grid in grids]
        self._cut_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        held = [grid.cuts for grid in grids if grid is not None]
        # one array for one kernel; a single grid's own is shared
        self._cuts = held[0] if len(held) == 1 else np.concatenate([np.empty(0, np.int64), *held])
        self._origins = np.array([0 if g is None else g.origin for g in grids], np.int64)
        self._shifts = np.array([0 if g is None else g.shift for g in grids], np.int64)
        at = self._cut_starts
        for i, grid in enumerate(grids):
            if grid is not None:
                grid.cuts = self._cuts[at[i] : at[i + 1]]
        self._hints = _hints(grids)
        for i, known in enumerate(exact):
            if not known:
                word, half = self._field_of(i)
                self.fields.ones[word] |= np.uint64(0x0001_0001 << 32 * half)
        # as kernels.pack_values reads them
        places = np.array([n_wide, self._first_narrow], np.int64)
        grids_are = (self._cuts, self._cut_starts, self._origins, self._shifts, *self._hints)
        self.views = Views(places, self.attributes, self.spans, *grids_are)

    def check(self, n_attributes: int) -> None:
        """Raise StorageError unless kernels stay within codes and grids."""
        k = len(self.attributes)
        hold("that packed attributes have grids", k == len(self.grids) == len(self.exact))
        shaped("spans of packed attributes", self.spans, len(self.spans), 2)
        within("packed attributes", self.attributes, n_attributes)
        for i, grid in enumerate(self.grids):
            hold("that packed attributes have a grid or a span", (grid is None) == (i < len(self.spans)))
            if grid is not None:
                grid.check()
        hold("that spans ascend", (self.spans[:, 0] <= self.spans[:, 1]).all())

    def _field_of(self, i: int) -> tuple[int, int]:
        """The word, and its half, that holds the narrow bounds of attribute i."""
        k = i - len(self.spans)
        return self._first_narrow + k // 2, k % 2

    @classmethod
    def fit(
        cls,
        boxes: Boxes,
        numbers: npt.NDArray[np.int64],
        attributes: Any,
        cells: int = CELLS,
        widen: float | None = None,
    ) -> Packed:
        """Grids for the bounds of these boxes.

        With `widen`, how many of them an event is compared with, attributes may have wider fields: where
        boxes ask for single values, or where locating an event's cell costs more than longer bounds.
        """
        spanned: list[tuple[int, int, int]] = []
        narrow: list[tuple[int, Grid, bool]] = []
        for j in attributes:
            lows, highs = boxes.column(j, numbers)
            grid, known = fit_grid(lows, highs, cells)
            span = None
            if widen is not None and not (known and grid.shift >= 0):
                span = _wide_span(lows, highs, widen < COMPARED)
            if span is None:
                narrow.append((j, grid, known))
            else:
                spanned.append((j, *span))
        spanned.sort(key=lambda entry: _is_medium(*entry[1:]))
        return cls(
            attributes=np.array([j for j, *_ in spanned] + [j for j, *_ in narrow], np.int64),
            spans=np.array([ends for _, *ends in spanned], np.int64).reshape(-1, 2),
            grids=[None] * len(spanned) + [grid for _, grid, _ in narrow],
            exact=[True] * len(spanned) + [known for *_, known in narrow],
        )

    def pack_boxes(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """A row of words for each box."""
        columns = np.zeros((max(1, self.n_words), len(numbers)), np.uint64)
        for i, (j, grid) in enumerate(zip(self.attributes, self.grids, strict=True)):
            lows, highs = boxes.column(j, numbers)
            if grid is None:
                first, last = self.spans[i]
                kernels.pack_spanned_bounds(lows, highs, first, last, i, self.n_wide, columns)
            else:
                word, half = self._field_of(i)
                grid_is = (grid.cuts, grid.origin, grid.shift)
                kernels.pack_bounds(lows, highs, *grid_is, half, columns[word])
        return np.ascontiguousarray(columns.T)

    def pack_events(self, codes: Codes) -> npt.NDArray[np.uint64]:
        """A row of words for each event."""
        n = codes.shape[1]
        n_words = len(self.fields.ones)
        out = memory.empty(n * n_words, np.uint64).reshape(n, n_words)
        self.pack_into(codes, out)
        return out

    def pack_into(self, codes: Codes, out: npt.NDArray[np.uint64]) -> None:
        """Write a row of words for each event."""
        kernels.pack_values(codes, self.views.table, out)

    @property
    def derived_bytes(self) -> int:
        """Bytes of the tables by which events find their cells."""
        return sum(table.nbytes for table in self._hints)

    def grid(self, i: int) -> Grid:
        """The grid of the i-th attribute, which has no wide field."""
        grid = self.grids[i]
        assert grid is not None
        return grid


def _hints(
    grids: list[Grid | None],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For grids that are cut anywhere: between which cells to search, by a code's distance from the first
    cut; as whole numbers, or as what the codes of floats mean, where that spreads the cuts better.

    kernels.pack_values tells how they are read.
    """
    hints: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
    at = np.full((len(grids), 5), -1, np.int64)
    scales = np.zeros((len(grids), 2))
    start = 0
    left = _FINE_PLACES
    for i, grid in enumerate(grids):
        if grid is None or grid.shift >= 0 or grid.n_cells < HINTED:
            continue
        cuts = grid.cuts[2:]
        first, last = int(cuts[0]), int(cuts[-1])
        # of few cuts, so many places that most have none and hardly one has two
        wanted = _FINER * grid.n_cells
        if wanted > left:
            wanted = grid.n_cells
        else:
            left -= wanted
        shift = max(0, (last - first).bit_length() - wanted.bit_length())
        least, largest = decoded_floats(cuts[[0, -1]]).tolist()
        places, scale = None, 0.0
        if last - first < 2**62:
            places = (cuts - first) >> shift
        if np.isfinite(least) and 1e-200 < largest - least < np.inf:
            scale = wanted / (largest - least)
            by_value = ((decoded_floats(cuts) - least) * scale).astype(np.int64)
            if places is None or _crowding(by_value) < _crowding(places):
                places = by_value
                scales[i] = least, scale
        if places is None:
            continue
        # the cells that begin before each place; 0 and 1 are those of no value and of values before the first
        before = np.searchsorted(places, np.arange(int(places[-1]) + 2)) + 1
        hints.append(before.astype(np.int32))
        at[i] = first, last, shift, start, int(np.diff(before).max(initial=0))
        start += len(before)
    return np.concatenate(hints), at, scales


def _crowding(places: npt.NDArray[np.int64]) -> int:
    """How many pairs of cuts share a place."""
    counts = np.diff(np.flatnonzero(np.diff(places, prepend=-1, append=-2)))
    return int((counts * counts).sum())


def _is_medium(low: int, high: int) -> bool:
    """Whether these end points fit a medium field."""
    return high - low < kernels.MEDIUM_TOP - 8


def _wide_span(lows: Codes, highs: Codes, cheap: bool) -> tuple[int, int] | None:
    """The least and largest end point, where a wider field is worth its room and holds them."""
    bounded = (lows != MISSING) | (highs != LAST)
    if not cheap and np.count_nonzero(lows == highs) * 20 < np.count_nonzero(bounded):
        return None
    starts, ends = lows, highs
    # a copy where it leaves some out
    if len(lows) and int(lows.min()) <= PRESENT:
        starts = lows[lows > PRESENT]
    if len(highs) and (int(highs.min()) == MISSING or int(highs.max()) == LAST):
        ends = highs[(highs > MISSING) & (highs < LAST)]
    if not len(starts) and not len(ends):  # all ask whether a value is there
        return None
    low = min(int(a.min()) for a in (starts, ends) if len(a))
    high = max(int(a.max()) for a in (starts, ends) if len(a))
    return (low, high) if high - low < kernels.WIDE_TOP - 8 else None


def span_of_ends(boxes: Boxes, numbers: npt.NDArray[np.int64], j: int, threads: int = 1) -> tuple[int, int]:
    """The least and the largest end of some boxes on one attribute; the first above the second for none."""

    def look(piece: tuple[int, int]) -> tuple[int, int]:
        low, high = kernels.span_column(*boxes.column(j, numbers[slice(*piece)]))
        return int(low), int(high)

    spans = list(runner(threads)(look, boxes.pieces(len(numbers))))
    return (
        min((low for low, _ in spans), default=int(LAST)),
        max((high for _, high in spans), default=int(MISSING)),
    )


def fit_grid(lows: Codes, highs: Codes, cells: int) -> tuple[Grid, bool]:
    """A grid of at most `cells` cells for these intervals, and whether every end point starts a cell.

    Cells of equal width are found by a shift, the others by binary search, so they come first: one
    code a cell when that fits, then wider ones unless the end points crowd in a few of them.
    """
    starts, ends = lows[lows > PRESENT], highs[(highs > MISSING) & (highs < LAST)]
    if not len(starts) and not len(ends):
        return Grid.cut_at([]), True
    low = min(int(a.min()) for a in (starts, ends) if len(a))
    high = max(int(a.max()) for a in (starts, ends) if len(a))
    if low > PRESENT and high < LAST and high - low + 4 <= cells:
        return Grid.uniform(low, high, cells), True
    step = max(1, (len(starts) + len(ends)) // _SAMPLE)
    sample = np.sort(np.concatenate([starts[::step], ends[::step]]))
    distinct = len(_distinct(sample))
    # by how seldom two of a sample meet: sorting all is for those who probably have few
    many = distinct * distinct > 8 * cells * max(1, len(sample) - distinct)
    if step == 1 or (distinct < cells * 3 // 4 and not many):
        points = _distinct(np.sort(np.concatenate([starts, ends + 1])))
        if len(points) + 3 <= cells:
            return Grid.cut_at(points), True
    if high - low < 2**40 and not _crowded(sample, low, high):
        return Grid.uniform(low, high, cells), False
    return Grid.quantiles(lows, highs, cells), False


def _distinct(ordered: Codes) -> Codes:
    # np.unique goes by a hash table, then sorts: several times slower for codes that mostly differ
    kept: Codes = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return kept


def _crowded(sample: Codes, low: int, high: int) -> bool:
    counts, _ = np.histogram(sample.astype(np.float64), 64, (float(low), float(high)))
    return bool(counts.max() > 8 * counts.mean())


FEW_CANDIDATES = 4  # per event: below it comparing codes costs less than packing the events


@dataclass(eq=False)
class Checked:
    """Packed bounds of some boxes on some attributes."""

    packed: Packed
    bounds: CheckedBounds

    def __post_init__(self) -> None:
        first, rows, words = self.bounds
        fields = self.packed.fields
        # as kernels.check_packed reads them
        self.views = Views(np.array([first], np.int64), rows, words, fields.ones, fields.inexact)

    def check(self, n_attributes: int, names: list[npt.NDArray[np.int32]]) -> None:
        """Raise StorageError unless there are bounds for each of the boxes in some lists."""
        self.packed.check(n_attributes)
        first, rows, words = self.bounds
        shaped("checked bounds", words, len(words), max(1, self.packed.n_words))
        within("rows of checked bounds", rows, len(words))
        for boxes in names:
            within("boxes with checked bounds", boxes, first + (len(rows) or len(words)), first)

    @classmethod
    def fit(cls, boxes: Boxes, numbers: npt.NDArray[np.int64], attributes: list[int]) -> Checked:
        """The bounds of the boxes with these numbers (ascending)."""
        packed = Packed.fit(boxes, numbers, attributes)
        first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
        rows = np.empty(0, np.int32)
        if last - first != len(numbers) - 1:
            rows = np.zeros(last - first + 1, np.int32)
            rows[numbers - first] = np.arange(len(numbers), dtype=np.int32)
        return cls(packed, CheckedBounds(first, rows, packed.pack_boxes(boxes, numbers)))

    def keep(
        self,
        order: npt.NDArray[np.int64],
        codes: Codes,
        boxes: Boxes,
        offsets: npt.NDArray[np.int64],
        candidates: npt.NDArray[np.int32],
    ) -> int:
        """Keep the candidates of each row that hold its event, in place; returns how many there are.

        Row i is that of event order[i].
        """
        packed = self.packed
        if int(offsets[-1]) < FEW_CANDIDATES * codes.shape[1]:
            return int(
                kernels.check_codes(order, codes, boxes.arrays, packed.attributes, offsets, candidates)
            )
        words = packed.pack_events(codes)
        table = self.views.table
        return int(kernels.check_packed(order, codes, boxes.table, words, table, offsets, candidates))
