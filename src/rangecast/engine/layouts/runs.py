"""`vci` with lookup="runs": the paper's constructs, laid out so that a look-up reads slices.

Source: the virtual construct intervals of Wu, Chen, Yu and Mei (IBM Research Report, 2004), sec. 2.3:
from every value start constructs of 1, 2, 4, ..., L = 2**k values, and a predicate is cut, from the
left, into the fewest of them. The paper keeps a list of ids per construct and probes the 2L + k
constructs that cover a value. The layout is ours: the lists are one array, level by level (a level is
one length) and within a level by the first cell. The constructs of 2**l cells that cover cell c start
at c - 2**l + 1 .. c, so their lists are one slice of that array: k + 1 slices answer an event, and all
that is in them matches.

    level 0    [0][1][2][3][4][5][6][7]        cell 5 reads  list 5
    level 1    [0-1][1-2][2-3] ... [6-7]                     lists 4-5
    level 2    [0-3][1-4][2-5][3-6][4-7]                     lists 2-5

The arrays are the `Runs` of engine/layouts/runs_kernels.py:

    array    dtype           shape                   meaning
    starts   int32 or int64  (n_cells + 1, columns)  starts[c, j]: where the list of column j and first
                                                     cell c begins; it ends at starts[c + 1, j]
    spans    int64           columns                 the cells of a construct of each column
    slots    int32           n_entries               the slot of each entry, column by column
    boxes    int32           n_entries or fewer      the box of each of the last entries: all of them when
                                                     other attributes are checked; otherwise the crossing ones
    checked  int64           <= d                    the other attributes that some box bounds

Cells are those of a Grid; a construct is a half-open run of cells, so no cell is in two constructs of
a predicate, no id comes twice, and a predicate of one value is a construct of one cell. A predicate
that crosses a cell (holds some of its codes only) is entered in one more column, whose entries are
checked. Levels that no predicate uses have no column. A few events are answered by one kernel call
(engine/parts.py). L is the one that needs the fewest bytes: a
higher level costs one number per cell, a lower one more entries; the number of matches copied is the
same for every L.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine.answers import ALL, STORES, Counted, Found, Request, Rows, event_order, order_by_cell
from rangecast.engine.boxes import Boxes, ExpandedBoxes
from rangecast.engine.checks import ascending, flat, hold, shaped, within
from rangecast.engine.grid import Grid, bounded_attributes, choose_attributes, named_attributes
from rangecast.engine.kernels import sort_by_cell
from rangecast.engine.layouts import runs_kernels as kernels
from rangecast.engine.layouts.runs_kernels import CellRanges, Runs
from rangecast.engine.parts import FEW_EVENTS, FewEvents, Part, StaticIndex
from rangecast.errors import OptionError
from rangecast.memory import check_fits
from rangecast.model.subscriptions import Subscriptions
from rangecast.simd.memory import Views
from rangecast.types.attributes import Codes

MOST_CELLS = 2**20
LONGEST = 2**20
MOST_NARROW = 2**31 - 1
"""Entries whose places take 32 bits; those of more take 64."""
FEWEST_CELLS = 1024
SAMPLE = 16_384
SORTED = 4096
ROOMY = 16
ROOM_EACH = 1024


@dataclass(eq=False)
class RunsPart(Part):
    """Entries of constructs, one slice a level for each cell."""

    grid: Grid
    runs: Runs

    exact = True
    ratio = 32

    def __post_init__(self) -> None:
        runs, grid = self.runs, self.grid
        head = np.array([runs.on, runs.n_whole, grid.origin, grid.shift], np.int64)
        arrays: tuple[npt.NDArray[Any], ...] = runs[2:]
        # as kernels.stab_few reads them; starts of 64 bits are of more entries than it knows
        views = Views(head, grid.cuts, *arrays)
        self._few = FewEvents(kernels.stab_few, views, ROOM_EACH) if runs.starts.dtype == np.int32 else None

    def check(self, boxes: Boxes, n_slots: int) -> None:
        runs = self.runs
        flat(runs, starts=2)
        self.grid.check()
        hold("that runs are on an attribute", 0 <= runs.on < boxes.n_attributes)
        shaped("starts of runs", runs.starts, self.grid.n_cells + 1, len(runs.spans))
        within("spans of runs", runs.spans, 2**62, 1)
        ascending("starts of runs", runs.starts.T, len(runs.slots)) if runs.starts.size else None
        within("slots of runs", runs.slots, n_slots)
        within("boxes of runs", runs.boxes, boxes.n)
        within("attributes of runs", runs.checked, boxes.n_attributes)
        # the first entry that is looked at as a box
        first = 0 if len(runs.checked) or runs.n_whole <= 0 else len(runs.slots)
        if not len(runs.checked) and 0 < runs.n_whole < len(runs.spans):
            first = int(runs.starts[0, runs.n_whole])
        hold("that checked entries have boxes", len(runs.slots) - len(runs.boxes) <= first)
        hold("that entries have at most a box each", len(runs.boxes) <= len(runs.slots))

    def stab(self, request: Request) -> Found:
        codes, boxes = request.codes, request.boxes
        runs = self.runs
        if request.limit < ALL and not request.counts and not len(runs.boxes):
            return self._stab_some(codes, request.limit)
        if self._few is not None and codes.shape[1] < FEW_EVENTS:
            small = self._few.stab_small(codes, boxes)
            if small is not None:
                return small
        cells = self.grid.locate(codes[runs.on])
        m = len(cells)
        turned = m >= SORTED and not len(runs.boxes)
        order = order_by_cell(cells, self.grid.n_cells) if turned else event_order(m)
        counts = memory.empty(m, np.int64)
        kernels.count(order, cells, runs, counts)
        total = int(counts.sum())
        if not len(runs.boxes):

            def fill(places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
                plus = out.dtype.type(add)

                def write(first: int, last: int, past: bool) -> int:
                    own = order[first:last]
                    kernels.copy(own, not turned, cells, runs, places, plus, past, out)
                    return total if len(own) == m else int(counts[own].sum())

                STORES.write(total, m, out, write)

            return Counted(counts, fill)
        offsets = np.empty(m + 1, np.int64)
        out = memory.empty(total, np.int32)
        n = kernels.check(codes, cells, runs, boxes.table, offsets, out)
        return offsets, out[:n]

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return None if self._few is None else self._few.stab_one_small(codes, boxes)

    def _stab_some(self, codes: Codes, limit: int) -> Rows:
        cells = self.grid.locate(codes[self.runs.on])
        counts = np.empty(len(cells), np.int64)
        kernels.count(event_order(len(cells)), cells, self.runs, counts)
        offsets = np.empty(len(cells) + 1, np.int64)
        out = memory.empty(int(np.minimum(counts, limit).sum()), np.int32)
        kernels.copy_some(cells, self.runs, limit, offsets, out)
        return offsets, out

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        cells = self.grid.locate(codes[self.runs.on])
        counts = np.empty(len(cells), np.int64)
        kernels.count(event_order(len(cells)), cells, self.runs, counts)
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> RunsPart:
        runs = self.runs
        starts, slots, boxes = (np.empty_like(array) for array in (runs.starts, runs.slots, runs.boxes))
        swept = runs._replace(starts=starts, slots=slots, boxes=boxes)
        n, n_boxes = kernels.sweep(runs, dead, swept)
        return RunsPart(self.grid, swept._replace(slots=slots[:n].copy(), boxes=boxes[:n_boxes].copy()))

    def stats(self) -> dict[str, int]:
        return {
            "cells": self.grid.n_cells,
            "columns": len(self.runs.spans),
            "entries": len(self.runs.slots),
        }


class RunsIndex(StaticIndex):
    """Constructs of powers of two on one attribute, a slice a level; opened as `vci`.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> index = rc.open_index("vci", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price between 10 and 20"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 20}, {"price": 21}])).counts.tolist()
    [1, 0]
    """

    name = "vci"
    expands = False

    def _configure(
        self,
        lookup: str = "runs",
        constructs: str = "lci",
        on: Any = None,
        L: int | None = None,
        cells: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        if constructs != "lci":
            raise OptionError(
                f"lookup='runs' lays out constructs='lci' (powers of two), got {constructs!r}; "
                "the paper's look-ups take 'sci' too"
            )
        if cells is not None and not 5 <= cells <= 2**24:
            raise OptionError(f"cells must be within 5 and {2**24}, got {cells}")
        if L is not None:
            check_length(L)
        self._on = None if on is None else named_attributes(self.schema, on, 1)
        self._longest = L
        self._cells = cells
        self._memory_limit = memory_limit

    def _arranged(self, subs: Subscriptions) -> Subscriptions:
        if subs.n_boxes < 2:
            return subs
        boxes = ExpandedBoxes(subs.lows, subs.highs, subs.owners, subs.n_boxes)
        numbers = np.arange(subs.n_boxes)
        (on,) = self._on or choose_attributes(self.schema, None, 1, boxes, numbers)
        if subs.ids.dense and not bounded_attributes(boxes, numbers, (on,)):
            # nothing but ids will be read
            return super()._arranged(subs)
        return sorted_by_length_and_low(subs, on)

    def _grid(self, on: int, lows: Codes, highs: Codes) -> Grid:
        if self._cells is not None:
            return Grid.fit(self.schema[on], lows, highs, self._cells)
        n = max(len(lows), FEWEST_CELLS)
        # a value per cell needs no checks, and is worth the bytes of up to four cells per subscription;
        # where that is not to be had, a cell per subscription is enough
        grid = Grid.fit(self.schema[on], lows, highs, min(4 * n, MOST_CELLS))
        return grid if grid.shift == 0 else Grid.fit(self.schema[on], lows, highs, min(n, MOST_CELLS))

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        (on,) = self._on or choose_attributes(self.schema, None, 1, boxes, numbers)
        lows, highs = boxes.column(on, numbers)
        grid = self._grid(on, lows, highs)
        who = f"'vci' on {self.schema[on].name!r}"
        return build_runs(boxes, numbers, on, grid, self._longest, self._memory_limit, who)


def build_runs(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    on: int,
    grid: Grid,
    longest: int | None = None,
    memory_limit: int | None = None,
    who: str = "'vci'",
) -> RunsPart:
    """Constructs of up to `longest` cells of a grid, for the boxes with these numbers."""
    lows, highs = boxes.column(on, numbers)
    checked = np.array(bounded_attributes(boxes, numbers, (on,)), np.int64)
    # from left to right: lists are then written nearly in their order, in a third of the time
    order = np.empty(len(numbers), np.int64)
    sort_by_cell(grid.locate(lows), np.zeros(grid.n_cells + 1, np.int64), order)
    lows, highs, numbers = lows[order], highs[order], numbers[order]
    ranges, crossing = cover_cells(grid, lows, highs)
    # in a part that is small beside the index, bytes are few whatever they are spent on
    enough = ROOMY if len(numbers) * ROOMY <= boxes.n else 0
    k = (
        choose_level(ranges.ends - ranges.begins, grid.n_cells, enough)
        if longest is None
        else longest.bit_length() - 1
    )
    totals = np.zeros(k + 1, np.int64)
    kernels.count_constructs(ranges.begins, ranges.ends, k, totals)
    columns = np.zeros(k + 2, np.int64)
    used = np.flatnonzero(totals)
    columns[used] = np.arange(len(used))
    columns[k + 1] = len(used)
    spans = (np.int64(1) << used).astype(np.int64)
    if crossing:
        spans = np.append(spans, 1)
    n = int(totals.sum()) + crossing
    n_boxes = n if len(checked) else crossing
    check_fits(
        4 * (n + n_boxes) + 16 * len(spans) * (grid.n_cells + 1),
        memory_limit,
        f"{who} with {n:,} entries",
        "a larger L=, fewer cells=, or the index 'cells', need less",
    )
    flat = np.zeros(len(spans) * grid.n_cells + 1, np.int64)
    kernels.count_entries(ranges, k, columns, grid.n_cells, flat)
    starts = np.empty((grid.n_cells + 1, len(spans)), np.int32 if n <= MOST_NARROW else np.int64)
    kernels.turn(flat, grid.n_cells, starts)
    slots, entry_boxes = np.empty(n, np.int32), np.empty(n_boxes, np.int32)
    runs = Runs(on, len(used), starts, spans, slots, entry_boxes, checked)
    kernels.fill_entries(ranges, k, columns, grid.n_cells, flat, numbers, boxes.slots_of(numbers), runs)
    return RunsPart(grid, runs)


def cover_cells(grid: Grid, lows: Codes, highs: Codes) -> tuple[CellRanges, int]:
    """The cells of some intervals, and how many of them are crossed, all intervals together."""
    firsts, lasts = grid.locate(lows), grid.locate(highs)
    ranges = CellRanges(firsts, lasts, np.empty_like(firsts), np.empty_like(lasts))
    return ranges, int(kernels.trim(lows, highs, grid.cuts, ranges))


def sorted_by_length_and_low(subs: Subscriptions, on: int) -> Subscriptions:
    """The subscriptions by the magnitude of their length on an attribute, then by lower bound.

    Those of one slice then have slots near each other, and the layout is built from neighbours. At a
    million subscriptions, gathering the ids of the matches takes 0.9 ns each instead of 4.5 in the order
    of arrival; by lower bound alone 1.2, by exact length and lower bound 1.3.
    """
    lows, highs = subs.lows[on], subs.highs[on]
    if not subs.single:
        # by the first box of each; one that has none goes anywhere
        firsts = np.minimum(subs.box_starts()[:-1], subs.n_boxes - 1)
        lows, highs = lows[firsts], highs[firsts]
    # as floats, since the difference of two codes may not be a code
    magnitudes = np.frexp(highs.astype(np.float64) - lows.astype(np.float64) + 1)[1].astype(np.int8)
    order = np.argsort(lows, kind="stable")
    return subs.select(order[np.argsort(magnitudes[order], kind="stable")])


def choose_level(lengths: npt.NDArray[Any], n_cells: int, enough: int = 0) -> int:
    """The k for which constructs of up to 2**k cells need the fewest bytes, or the smallest for which they
    need no more than enough entries each: an event reads a slice for every level.

    >>> choose_level(np.full(1000, 100), 5_000), choose_level(np.ones(1000, int), 5_000)
    (4, 0)
    >>> choose_level(np.full(1000, 100), 5_000, 16)
    3
    """
    longest = int(lengths.max(initial=1))
    step = max(1, len(lengths) // SAMPLE)
    sample = lengths[::step].astype(np.int64)
    best, fewest = 0, np.inf
    for k in range(max(longest, 1).bit_length()):
        rests = sample & ((1 << k) - 1)
        entries = (sample >> k).sum() + np.bitwise_count(rests).sum()
        if entries <= enough * len(sample):
            return k
        size = (k + 1) * n_cells + step * int(entries)
        if size < fewest:
            best, fewest = k, size
    return best


def check_length(longest: int) -> None:
    """Raise unless this is a maximal length of constructs: a power of two."""
    if not isinstance(longest, int) or not 1 <= longest <= LONGEST or longest & (longest - 1):
        raise OptionError(f"L must be a power of two within 1 and {LONGEST}, got {longest!r}")
