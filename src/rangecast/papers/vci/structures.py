"""`vci`: predicates cut into virtual construct intervals; the paper's look-ups, and ours.

Source: Wu, Chen, Yu and Mei, "Efficient interval indexing for content-based subscription e-commerce and
services" (IBM Research Report, 2004). constructs.py has the constructs and their numbers. Each has
a list of the predicates that use it, and an event finds the lists of the constructs that cover its
value. `lookup=` says how:

    runs      ours, the default: no list but slices of one array; static parts (engine/runs.py)
    bitmap    a vector of bits per value, one per construct anywhere (sec. 2)
    clipped   the vector holds the value's covering segment only (sec. 3)
    virtual   no bits: every list of the segment is looked at, its right end computed (sec. 4)
    table     no bits: only the lists that the distance table names (sec. 4.1)

This module holds the paper's four, which take single predicates in and out in place:

    array     dtype    shape                 meaning
    heads     int32    n_cells * width + 1   first node of each construct's list, -1 if empty; the last
                                             list holds the boxes that cover every cell
    crossing  int32    n_cells or 0          first node of each cell's list of boxes that cross it
    nodes     int32    (capacity, 2)         box and next node; free nodes are linked the same way
    pool      int64    2                     first free node or -1, and how many were ever used
    bits      uint32   (n_cells, words)      bitmap and clipped: which constructs are active
    table     int64    L(L+1)/2 or 2L - 1    table: the distances

Where we depart. ConstructIntervals are read as half-open (constructs.py says why), so each id is found
once and a predicate may hold a single value. They lie on the cells of a Grid: a small domain of whole
numbers has a value per cell, as in the paper, and the three outer cells take what lies outside; a
predicate that holds only some codes of a cell is in that cell's crossing list and is checked. One that
covers all cells is in one list instead of n_cells / L. A bulk delete sweeps each list that it touches
once, so that a thousand deletes from one long list do not walk it a thousand times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import count_bytes
from rangecast.engine import kernels as checks
from rangecast.engine.answers import Numbers, Rows
from rangecast.engine.boxes import Boxes, ExpandedBoxes, grown
from rangecast.engine.checks import flat, hold, listed, shaped
from rangecast.engine.grid import Grid
from rangecast.engine.index import Index
from rangecast.engine.layouts.runs import RunsIndex, check_length, cover_cells
from rangecast.engine.layouts.runs_kernels import CellRanges
from rangecast.engine.selectivity import choose_attributes
from rangecast.errors import OptionError
from rangecast.kernels.papers.vci import lists as kernels
from rangecast.kernels.papers.vci.lists import ConstructShape, IntervalLists
from rangecast.memory import check_fits, check_numbered
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.vci.constructs import ConstructIntervals
from rangecast.papers.vci.in_place import Head, InPlaceIndex, grow_rows
from rangecast.types.attributes import Codes
from rangecast.types.schema import Schema

LOOKUPS = {
    "bitmap": kernels.BITMAP,
    "clipped": kernels.CLIPPED,
    "virtual": kernels.VIRTUAL,
    "table": kernels.TABLE,
}
LONGEST_CHOSEN = 1024


class VciIndex(Index):
    """Opens the kind that `lookup=` names.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> rc.open_index("vci", schema), rc.open_index("vci", schema, lookup="table", L=16)
    (<RunsIndex 'vci': 0 subscriptions>, <IntervalListsIndex 'vci': 0 subscriptions>)
    """

    name = "vci"

    def __new__(cls, schema: Schema, **options: Any) -> Any:
        lookup = options.get("lookup", "runs")
        if lookup != "runs" and lookup not in LOOKUPS:
            raise OptionError(f"lookup must be one of runs, {', '.join(LOOKUPS)}, got {lookup!r}")
        return RunsIndex(schema, **options) if lookup == "runs" else IntervalListsIndex(schema, **options)


class _ListLayout(NamedTuple):
    """What the data decides: the grid, the constructs, and the bytes they take before any predicate."""

    grid: Grid
    constructs: ConstructIntervals
    words: int

    @property
    def n_constructs(self) -> int:
        return self.grid.n_cells * self.constructs.width

    @property
    def nbytes(self) -> int:
        return 4 * (self.n_constructs + 1) + 4 * self.words * self.grid.n_cells


class _LaidOut(NamedTuple):
    """What follows from the data, and the lists."""

    grid: Grid
    longest: int
    words: int
    free: int
    lists: IntervalLists


class _StoredIntervalLists(NamedTuple):
    """What a file holds."""

    head: Head
    laid_out: _LaidOut | None


class IntervalListsIndex(InPlaceIndex):
    """A list per construct, found by bitmap, clipped bitmap, virtual bitmap or distance table."""

    name = "vci"

    def _configure(  # type: ignore[override]
        self,
        lookup: str = "table",
        constructs: str = "lci",
        on: Any = None,
        L: int | None = None,
        cells: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        super()._configure(on)
        self._lookup = LOOKUPS[lookup]
        ConstructIntervals.of(constructs, 1)
        if L is not None:
            check_length(L)
        if cells is not None and not 5 <= cells <= 2**24:
            raise OptionError(f"cells must be within 5 and {2**24}, got {cells}")
        self._kind, self._longest, self._memory_limit = constructs, L, memory_limit
        # a value per cell for the paper's domains, except where bits grow with the square of the cells
        most = 2**13 if lookup == "bitmap" else 2**14 if constructs == "sci" else 2**18
        self._cells = cells or most

    def _reset(self) -> None:
        super()._reset()
        self._marked: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def _adapts(self) -> bool:
        stated = self._on_option is not None or len(self.schema) == 1
        return not stated or self._longest is None or self.schema[self._on].domain is None

    def _check_capacity(self, subs: Subscriptions) -> None:
        if self._on < 0 and subs.n_boxes:
            boxes = ExpandedBoxes(subs.lows, subs.highs, subs.owners, subs.n_boxes)
            numbers = np.arange(boxes.n)
            (on,) = self._on_option or choose_attributes(self.schema, None, 1, boxes, numbers)
            self._check_layout(on, self._plan(on, boxes, numbers))

    def _check_layout(self, on: int, layout: _ListLayout) -> None:
        check_fits(
            layout.nbytes,
            self._memory_limit,
            f"'vci' on {self.schema[on].name!r} with {layout.grid.n_cells:,} cells and "
            f"{layout.n_constructs:,} constructs",
            "fewer cells=, a smaller L= or lookup='table' need less",
        )

    def _plan(self, on: int, boxes: Boxes, numbers: Numbers) -> _ListLayout:
        lows, highs = boxes.lows[on, numbers], boxes.highs[on, numbers]
        grid = Grid.fit(self.schema[on], lows, highs, self._cells)
        longest = self._longest
        if longest is None:
            covered = grid.locate(highs).astype(np.int64) + 1 - grid.locate(lows)
            bounded = covered[covered < grid.n_cells]
            mean = int(np.ceil(bounded.mean())) if len(bounded) else 1
            longest = min(1 << (mean - 1).bit_length(), LONGEST_CHOSEN)
        constructs = ConstructIntervals.of(self._kind, longest)
        first, last = constructs.segment(longest, closed=False)
        n_bits = {kernels.BITMAP: grid.n_cells * constructs.width, kernels.CLIPPED: last - first + 1}
        return _ListLayout(grid, constructs, -(-n_bits.get(self._lookup, 0) // 32))

    def _lay_out(self, boxes: Boxes, numbers: Numbers) -> None:
        layout = self._plan(self._on, boxes, numbers)
        self._check_layout(self._on, layout)
        self._use(layout)
        distances = layout.constructs.distances(closed=False)
        self._lists = IntervalLists(
            heads=np.full(layout.n_constructs + 1, -1, np.int32),
            crossing=np.empty(0, np.int32),
            nodes=np.empty((0, 2), np.int32),
            pool=np.array([-1, 0], np.int64),
            bits=np.zeros((layout.grid.n_cells if layout.words else 0, layout.words), np.uint32),
            table=distances if self._lookup == kernels.TABLE else np.empty(0, np.int64),
        )
        self._free = 0

    def _use(self, layout: _ListLayout) -> None:
        self._layout = layout
        constructs = layout.constructs
        self._shape = ConstructShape(
            constructs.columns,
            constructs.lengths,
            constructs.longest,
            layout.grid.n_cells,
            layout.n_constructs,
            self._lookup,
        )
        # each construct that covers a cell, the list of all, and the crossing list
        longest = layout.constructs.longest
        most = longest * (longest + 1) // 2 if self._kind == "sci" else 2 * longest
        self._found: npt.NDArray[np.int32] = np.empty(min(most, layout.n_constructs) + 2, np.int32)

    def _cover(self, boxes: Boxes, numbers: Numbers) -> tuple[CellRanges, int]:
        return cover_cells(self._layout.grid, boxes.lows[self._on, numbers], boxes.highs[self._on, numbers])

    def _enter(self, boxes: Boxes, numbers: Numbers) -> None:
        lists, shape = self._lists, self._shape
        ranges, crossing = self._cover(boxes, numbers)
        if crossing and not len(lists.crossing):
            lists = lists._replace(crossing=np.full(shape.n_cells, -1, np.int32))
        needed = int(kernels.count_postings(ranges, shape))
        used = int(lists.pool[1])
        if (wanted := used + needed - self._free) > len(lists.nodes):
            check_numbered(wanted, "the list entries of 'vci'", "fewer cells= or a larger L= need fewer")
            # the first load gets exactly its size, as in the catalog
            room = wanted if used == 0 else max(wanted, len(lists.nodes) * 3 // 2, 64)
            nodes = np.empty((room, 2), np.int32)
            nodes[:used] = lists.nodes[:used]
            lists = lists._replace(nodes=nodes)
        self._free = max(0, self._free - needed)
        self._lists = lists
        kernels.enter(numbers, ranges, shape, lists)

    def _leave(self, boxes: Boxes, numbers: Numbers) -> None:
        ranges, _ = self._cover(boxes, numbers)
        n = int(kernels.count_postings(ranges, self._shape))
        postings = np.empty(n, np.int64)
        kernels.list_postings(ranges, self._shape, postings)
        named, counts = np.unique(postings, return_counts=True)
        if len(self._marked) < boxes.n:
            self._marked = grown(np.zeros(0, np.uint8), 0, len(boxes.slots))
            self._marked[:] = 0
        self._marked[numbers] = 1
        kernels.leave(named, counts, self._marked, self._shape, self._lists)
        self._marked[numbers] = 0
        self._free += n

    def _emit(self, codes: Codes, boxes: Boxes) -> Rows:
        cells = self._layout.grid.locate(codes[self._on])
        found = np.empty_like(self._found)
        return grow_rows(
            codes.shape[1],
            lambda event, offsets, out: kernels.stab(
                codes, cells, self._on, event, self._shape, self._lists, found, self._checked, boxes.arrays,
                self._plain, offsets, out,
            ),
        )  # fmt: skip

    def count_lists(self, codes: Codes) -> int:
        """How many lists a batch finds, without reading them: what the paper times as a search."""
        cells = self._layout.grid.locate(codes[self._on])
        return int(kernels.count_lists(cells, self._shape, self._lists, self._found))

    def _structure(self) -> _StoredIntervalLists:
        return _StoredIntervalLists(self._head(), None if self._on < 0 else self._laid_out())

    def _laid_out(self) -> _LaidOut:
        used = int(self._lists.pool[1])
        grid, constructs, words = self._layout
        lists = self._lists._replace(nodes=self._lists.nodes[:used])
        return _LaidOut(grid, constructs.longest, words, self._free, lists)

    def _take_laid_out(self, laid_out: _LaidOut) -> None:
        self._lists, self._free = laid_out.lists, laid_out.free
        constructs = ConstructIntervals.of(self._kind, laid_out.longest)
        self._use(_ListLayout(laid_out.grid, constructs, laid_out.words))

    def _check_laid_out(self, n_boxes: int) -> None:
        lists, layout = self._lists, self._layout
        flat(lists, nodes=2, bits=2)
        layout.grid.check()
        n_cells, n_constructs = layout.grid.n_cells, layout.n_constructs
        shaped("heads of lists", lists.heads, n_constructs + 1)
        shaped("crossing lists", lists.crossing, n_cells if len(lists.crossing) else 0)
        shaped("nodes of lists", lists.nodes, len(lists.nodes), 2)
        shaped("the pool of lists", lists.pool, 2)
        listed("lists", lists.nodes, 1, n_boxes, lists.heads, lists.crossing, lists.pool[:1])
        if self._lookup == kernels.TABLE:
            distances = layout.constructs.distances(closed=False)
            hold("that distances are those of constructs", np.array_equal(lists.table, distances))
        shaped("bitmaps of cells", lists.bits, n_cells if layout.words else 0, layout.words)
        base, step = 0, 0
        if self._lookup == kernels.CLIPPED:
            width, longest = layout.constructs.width, layout.constructs.longest
            base, step = (1 - longest) * width + width - 1, width
        hold("that bits are of constructs", checks.check_bits(lists.bits, base, step, n_constructs))
        # beside the list of all and the crossing one
        most = checks.most_bits(lists.bits)
        hold("that bits find as many lists as there can be", most <= len(self._found) - 2)

    def _structure_stats(self) -> dict[str, Any]:
        if self._on < 0:
            return {"bytes": 0}
        lists = self._lists
        used = int(lists.pool[1])
        return {
            "bytes": count_bytes(self._laid_out()),
            "cells": self._layout.grid.n_cells,
            "L": self._layout.constructs.longest,
            "constructs": self._layout.n_constructs,
            "active": int((lists.heads >= 0).sum()),
            "entries": used - self._free,
            "bitmap_bytes": lists.bits.nbytes,
        }
