"""`cells`: a grid of aligned cells, in levels of doubling size, on one or two attributes.

Codes are laid on a Grid of fine cells. A level's cells are 2**shift fine cells per side, and each box
is listed at one level that suits its width (cells.py): in every cell that it holds whole, where its
id is copied to the answer unseen, and in those that it only crosses. An event reads the lists of one
cell per level in use. A box over everything is one entry of a cell that spans the domain.

On one attribute even the crossing lists are not compared entry by entry. A box that begins in a cell
and goes on beyond it matches every value from its low on; with those entries in ascending order, an
event takes a run of them, and a table by fine cell says how far it goes. Boxes that end in a cell
give another run. Only a box that lies within one cell is compared.

    array          dtype    shape                   meaning, on one attribute
    whole_starts   int32    n_lists + 1             boxes that hold the cell whole
    whole          int32    n_whole
    begins         int32    n_begins                boxes that begin in a cell and go on, by level and low
    begin_ranks    int32    (n_levels, n_fine + 1)  how many of them begin before a fine cell
    ends           int32    n_ends                  boxes that end in a cell and began before it
    end_ranks      int32    (n_levels, n_fine + 1)
    inner_starts   int32    n_lists + 1             boxes within the cell
    inner          int32    n_inner
    inner_ends     uint64   n_inner                 fine cells of both ends

    array    dtype    shape             meaning, on two attributes
    starts   int32    2 * n_lists + 1   whole, crossing, whole, crossing, ...
    words    uint32   n_words + 8       of each cell: the entries that hold it whole, those that cross it, and
                                        as many bounds, of four bytes each (engine/layouts/cells_kernels.py)

What a cell has lies together, so that an event waits for memory once, and that of events to come is asked for
meanwhile. Bounds are those within the cell alone. As ends on the grid of all fine cells, in 64 bits, compared
one after the other and in arrays of their own, a million small rectangles took 45 bytes each instead of 30,
and an event 0.42 us instead of 0.08.

Lists hold slots, or box numbers when codes may have to be looked at: because other attributes are
bounded, or because fine cells hold several codes with an end of a box between them (an event in the
same fine cell as an end of a box is compared with its codes), or, on two attributes, because a cell has more
fine cells per side than a byte tells apart. engine/packed.py has the bounds on other attributes. A few events
are answered by one kernel call (engine/parts.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine import packed_kernels
from rangecast.engine.answers import Counted, Found, IdRows, Request, Rows, restore_order
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.grid import Grid, bounded_attributes, estimate_selectivity, named_attributes
from rangecast.engine.kernels import locate, sort_by_cell
from rangecast.engine.layouts import cells_kernels as kernels
from rangecast.engine.layouts.cells_kernels import (
    CellBoxes,
    LineCells,
    PlaneCells,
    PlaneSteps,
    stab_plane_few,
)
from rangecast.engine.packed import CELLS, Checked, Packed, fit_grid
from rangecast.engine.parts import FEW_EVENTS, FewEvents, Part, StaticIndex
from rangecast.errors import OptionError
from rangecast.memory import check_fits, check_numbered
from rangecast.simd.lanes import EIGHT
from rangecast.simd.memory import Views
from rangecast.types.attributes import Codes

BUDGET = 72
_UNCHECKED = np.empty((0, 3), np.int64)
MOST_FINE = 1 << 20


@dataclass(eq=False)
class CellsPart(Part):
    """Lists of boxes per cell; see the module head for the arrays."""

    on: npt.NDArray[np.int64]
    packed: Packed
    boxed: bool
    """Whether lists hold box numbers and not slots."""
    identical: bool
    """Whether the two are the same."""
    cells: LineCells | PlaneCells
    checked: Checked | None

    exact = True
    ratio = 16

    def __post_init__(self) -> None:
        # as the kernels read them
        packed, checked = self.packed, self.checked
        self._reader: PlaneReader | None = None
        beside = (_UNCHECKED, _UNCHECKED) if checked is None else (checked.views, checked.packed.views)
        if isinstance(self.cells, PlaneCells):
            self._reader = PlaneReader(self.on, packed, self.cells)
            views = Views(self.on, *self.cells, *self._reader.steps, packed.views, *beside)
            self._few = FewEvents(stab_plane_few, views)
        else:
            grid = packed.grid(0)
            head = np.array([self.on[0], packed.exact[0], grid.origin, grid.shift], np.int64)
            self._few = FewEvents(kernels.stab_line_few, Views(head, grid.cuts, *self.cells, *beside))

    def check(self, boxes: Boxes, n_slots: int) -> None:
        c, d = self.cells, boxes.n_attributes
        self.packed.check(d)
        n_on = 2 if isinstance(c, PlaneCells) else 1
        shaped("attributes of cells", self.on, n_on)
        within("attributes of cells", self.on, d)
        shaped("packed attributes of cells", self.packed.attributes, n_on)
        hold("that cells have grids", None not in self.packed.grids)
        levels = len(c.bases)
        within("shifts of cells", c.shifts, 63)
        within("lists of levels", c.bases, 2**31)
        if isinstance(c, PlaneCells):
            assert self._reader is not None
            n_lists = len(c.starts) // 2
            entries, last = self._reader.check(self.boxed)
            names = [entries]
        else:
            n_lists = len(c.whole_starts) - 1
            shaped("shifts of cells", c.shifts, levels)
            fine = self.packed.grid(0).n_cells
            ascending("whole cells", c.whole_starts, len(c.whole), n_lists + 1)
            ascending("inner cells", c.inner_starts, len(c.inner), n_lists + 1)
            for name, ranks, entries in (("begins", c.begin_ranks, c.begins), ("ends", c.end_ranks, c.ends)):
                shaped(f"{name} of cells", ranks, levels, fine + 1)
                ascending(f"{name} of cells", ranks, len(entries)) if levels else None
            shaped("ends of inner cells", c.inner_ends, len(c.inner))
            names, last = [c.whole, c.begins, c.ends, c.inner], c.bases + ((fine - 1) >> c.shifts)
        within("lists of cells", last, max(n_lists, 1) if levels else 0)
        for entries in names:
            within("entries of cells", entries, boxes.n if self.boxed else n_slots)
        if self.checked is not None:
            hold("that checked cells hold boxes", self.boxed)
            self.checked.check(d, names)

    def stab(self, request: Request) -> Found:
        codes, boxes = request.codes, request.boxes
        m = codes.shape[1]
        if isinstance(self.cells, LineCells) and not self.boxed:
            small = self._few.stab_small(codes, boxes) if m < FEW_EVENTS else None
            return self._count_line(codes, boxes, self.cells) if small is None else small
        if m < FEW_EVENTS:
            offsets, out = self._few.stab(codes, boxes)
            if self.boxed and not self.identical:
                packed_kernels.to_slots(out, len(out), boxes.slots)
            return offsets, out
        order, turned = np.arange(m), False
        if isinstance(self.cells, LineCells):
            offsets, out, n = self._stab_line(codes, boxes, self.cells)
        else:
            assert self._reader is not None
            places = self._reader.places(codes)
            turned = self._reader.goes_by_place(codes)
            if request.base is not None and not turned and self._lists_slots:
                beside = None if request.beside is None else request.beside()
                rows = self._reader.stab(order, places, codes, boxes, np.int64, request.base, beside)
                return IdRows(*rows)
            if turned:
                order = self._reader.order_by_place(places)
            offsets, out = self._reader.stab(order, places, codes, boxes, np.int32)
            n = len(out)
        if self.checked is not None:
            n = self.checked.keep(order, codes, boxes, offsets, out)
        if self.boxed and not self.identical:
            packed_kernels.to_slots(out, n, boxes.slots)
        return restore_order(order, m, offsets, out[:n]) if turned else (offsets, out[:n])

    @property
    def _lists_slots(self) -> bool:
        """Whether what is found needs no check and no other name."""
        return self.checked is None and (not self.boxed or self.identical)

    def stab_one(self, codes: Any, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        if isinstance(self.cells, LineCells) and not self.boxed:
            return self._few.stab_one_small(codes, boxes)
        return self._few.stab_one(codes, boxes, boxes.slots if self.boxed and not self.identical else None)

    def _stab_line(self, codes: Codes, boxes: Boxes, line: LineCells) -> tuple[*Rows, int]:
        """On one attribute: what may match, and how much it is."""
        offsets = memory.empty(codes.shape[1] + 1, np.int64)
        on = int(self.on[0])
        cells = self.packed.grid(0).locate(codes[on])
        out = memory.empty(kernels.bound_line(cells, line), np.int32)
        n = kernels.stab_line(
            codes[on], cells, self.packed.exact[0], line, boxes.arrays, on, False, offsets,
            np.int32(0), out,
        )  # fmt: skip
        return offsets, out, n

    def _count_line(self, codes: Codes, boxes: Boxes, line: LineCells) -> Counted:
        """Matches on one attribute that need no check, counted; they are copied when they are wanted."""
        on = int(self.on[0])
        values = codes[on]
        cells = self.packed.grid(0).locate(values)
        counts = np.empty(len(cells), np.int64)
        kernels.count_line(cells, line, counts)

        def fill(places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
            kernels.stab_line(
                values, cells, True, line, boxes.arrays, on, True, places, out.dtype.type(add), out
            )

        return Counted(counts, fill)

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        cells = self.cells
        fine = [self.packed.grid(k).locate(codes[j]).astype(np.int64) for k, j in enumerate(self.on)]
        counts = np.zeros(codes.shape[1], np.int64)
        for level, base in enumerate(cells.bases):
            if isinstance(cells, PlaneCells):
                x, y = (fine[k] >> cells.shifts[level, k] for k in (0, 1))
                c = base + y * cells.columns[level] + x
                whole = cells.starts[2 * c + 1]
                counts += whole - cells.starts[2 * c] + (cells.starts[2 * c + 2] - whole >> 1)
                continue
            shift = cells.shifts[level]
            c = base + (fine[0] >> shift)
            first = (fine[0] >> shift) << shift
            last = np.minimum(first + (1 << shift), cells.begin_ranks.shape[1] - 1)
            for starts in (cells.whole_starts, cells.inner_starts):
                counts += starts[c + 1] - starts[c]
            counts += cells.begin_ranks[level, fine[0] + 1] - cells.begin_ranks[level, first]
            counts += cells.end_ranks[level, last] - cells.end_ranks[level, fine[0]]
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> CellsPart | None:
        if self.boxed and not self.identical:
            return None
        c = self.cells
        swept = replace(
            self, cells=sweep_plane(c, dead) if isinstance(c, PlaneCells) else _swept_line(c, dead)
        )
        if self._reader is not None and swept._reader is not None:
            swept._reader.per_event = self._reader.per_event
        return swept

    def stats(self) -> dict[str, int]:
        c = self.cells
        if isinstance(c, PlaneCells):
            return {"levels": len(c.bases), "entries": count_entries(c)}
        return {"levels": len(c.bases), "entries": sum(map(len, (c.whole, c.begins, c.ends, c.inner)))}


def _swept_line(line: LineCells, dead: npt.NDArray[np.uint8]) -> LineCells:
    """The lists without dead entries."""
    none = np.empty(0, np.uint64)

    def sweep(
        starts: npt.NDArray[np.int32], entries: npt.NDArray[np.int32], payload: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        new_starts, out, more = np.empty_like(starts), np.empty_like(entries), np.empty_like(payload)
        n = kernels.sweep(starts.reshape(-1), entries, payload, dead, new_starts.reshape(-1), out, more)
        return new_starts, out[:n].copy(), more[:n].copy()

    whole_starts, whole, _ = sweep(line.whole_starts, line.whole, none)
    begin_ranks, begins, _ = sweep(line.begin_ranks, line.begins, none)
    end_ranks, ends, _ = sweep(line.end_ranks, line.ends, none)
    inner_starts, inner, inner_ends = sweep(line.inner_starts, line.inner, line.inner_ends)
    return LineCells(
        line.shifts, line.bases, whole_starts, begin_ranks, end_ranks, inner_starts, whole, begins, ends,
        inner, inner_ends,
    )  # fmt: skip


class CellsIndex(StaticIndex):
    """Cells in levels of doubling size.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Float("lon"), rc.Float("lat"))
    >>> index = rc.open_index("cells", schema, on=("lon", "lat"))
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "lon between 2.1 and 2.5 and lat > 48.7"}))
    >>> index.match(rc.Events.from_rows(schema, [{"lon": 2.35, "lat": 48.86}])).row(0).tolist()
    [7]
    """

    name = "cells"
    expands = False

    def _configure(
        self, on: Any = None, bytes_per_subscription: int = BUDGET, memory_limit: int | None = None
    ) -> None:
        if bytes_per_subscription < 16:
            raise OptionError(f"bytes_per_subscription must be at least 16, got {bytes_per_subscription}")
        if on is not None:
            names = [on] if isinstance(on, str) else list(on)
            if len(names) not in (1, 2):
                raise OptionError(f"on= takes one or two attribute names, got {on!r}")
            on = named_attributes(self.schema, names, len(names))
        self._on: tuple[int, ...] | None = on
        self._budget = bytes_per_subscription
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        on = self._on or choose_axes(boxes, numbers)
        return build_cells(boxes, numbers, on, self._budget, self._memory_limit)


def choose_axes(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """The most selective attribute, with the second if that halves what is left."""
    shares = estimate_selectivity(boxes, numbers)
    order = np.argsort(shares, kind="stable")
    if len(order) > 1 and shares[order[1]] < 0.5:
        return int(order[0]), int(order[1])
    return (int(order[0]),)


def build_cells(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    on: tuple[int, ...],
    budget: float = BUDGET,
    memory_limit: int | None = None,
) -> CellsPart:
    """Cells over the boxes with these numbers, on one or two attributes."""
    n = len(numbers)
    # on one attribute few boxes get a fine cell for each of their ends and not many more: a level has two
    # tables by fine cell, and choose_levels keeps those below four cells per box
    most = CELLS if len(on) == 2 else min(MOST_FINE, max(4096, n // 2), 2 * max(n, FEW_BOXES) + 8)
    fitted = []
    firsts, lasts = (np.empty((len(on), n), np.int32) for _ in range(2))
    edges = np.zeros(n, np.uint8)
    # one attribute at a time: the codes of both would be half of what is built of them
    for k, j in enumerate(on):
        lows, highs = boxes.column(j, numbers)
        grid, known = fit_grid(lows, highs, most)
        fitted.append((grid, known))
        for codes, cells_of in ((lows, firsts[k]), (highs, lasts[k])):
            locate(codes, grid.cuts, grid.origin, grid.shift, cells_of)
        kernels.mark_edges(lows, highs, firsts[k], lasts[k], grid.cuts, 2 * k, edges)
        del lows, highs, codes
    grids = [g for g, _ in fitted]
    packed = Packed(
        np.array(on, np.int64), np.empty((0, 2), np.int64), list(grids), [known for _, known in fitted]
    )
    levels, shifts, per_box = assign_levels(firsts, lasts, grids, budget)
    checked = bounded_attributes(boxes, numbers, on)
    check_fits(
        int(per_box * n) + 8 * (len(checked) + 1 >> 1) * n,
        memory_limit,
        f"'cells' for {n:,} boxes",
        "a smaller bytes_per_subscription= or the index 'bitmap' needs less",
    )
    told = all(packed.exact)
    if len(on) == 2:
        told = not steps_of(shifts, packed.exact).ones.any()
    boxed = bool(checked) or not told
    slots = boxes.slots_of(numbers)
    identical = bool((slots == numbers).all())
    names = numbers.astype(np.int32) if boxed else slots
    listed = CellBoxes(firsts, lasts, edges, levels, names)
    if len(on) == 1:
        cells: LineCells | PlaneCells = _fill_line(listed, shifts, packed)
    else:
        cells = fill_plane(listed, shifts, packed)
    rest = Checked.fit(boxes, numbers, checked) if checked else None
    return CellsPart(np.array(on, np.int64), packed, boxed, identical, cells, rest)


def assign_levels(
    firsts: npt.NDArray[np.int32],
    lasts: npt.NDArray[np.int32],
    grids: list[Grid],
    budget: float,
    each: float = 1.0,
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64], float]:
    """The level of each box, and the shifts of the levels; a box stands for so many."""
    n_axes, n = firsts.shape
    if n == 0:
        return np.empty(0, np.int8), np.zeros((1, n_axes), np.int64), 0.0
    classes = np.zeros(n, np.int64)
    part = np.empty(n, np.int64)
    crowding = 1.0
    for k in range(n_axes):
        kernels.width_classes(firsts[k], lasts[k], part)
        classes = classes * 32 + part
        heaps = np.bincount(firsts[k][:: max(1, n // 8192)] * 64 // grids[k].n_cells, minlength=64)
        crowding *= float((heaps / heaps.sum() * heaps).sum() / heaps.sum() * 64)
    counts = np.bincount(classes)
    present = np.flatnonzero(counts)
    widths = [
        np.bincount(classes, lasts[k] - firsts[k] + 1.0)[present] / counts[present] for k in range(n_axes)
    ]
    held: npt.NDArray[np.float64] = counts[present].astype(np.float64) * each
    chosen = choose_levels(present, widths, held, [g.n_cells for g in grids], crowding, budget)
    return chosen.level_of_class[classes], chosen.shifts, chosen.bytes_per_box


def _check_entries(counts: npt.NDArray[np.int32]) -> None:
    """Raise unless the entries that were counted can be numbered."""
    check_numbered(int(counts.sum(dtype=np.int64)), "the entries of 'cells'", ADVICE)


def _fill_line(listed: CellBoxes, shifts: npt.NDArray[np.int64], packed: Packed) -> LineCells:
    grid = packed.grid(0)
    shifts = np.ascontiguousarray(shifts[:, 0])
    sizes = (grid.n_cells - 1 >> shifts) + 1
    bases = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    n_lists = int(sizes.sum())
    order = np.empty(len(listed.names), np.int64)
    sort_by_cell(listed.firsts[0], np.zeros(grid.n_cells + 1, np.int64), order)
    by_list, by_fine = n_lists + 1, (len(sizes), grid.n_cells + 1)
    none = np.empty(0, np.int32)
    line = LineCells(
        shifts=shifts,
        bases=bases,
        whole_starts=np.zeros(by_list, np.int32),
        begin_ranks=np.zeros(by_fine, np.int32),
        end_ranks=np.zeros(by_fine, np.int32),
        inner_starts=np.zeros(by_list, np.int32),
        whole=none,
        begins=none,
        ends=none,
        inner=none,
        inner_ends=np.empty(0, np.uint64),
    )
    kernels.fill_line(listed, order, grid.n_cells, True, line)
    ranks = (line.whole_starts, line.begin_ranks, line.end_ranks, line.inner_starts)
    for array in ranks:
        _check_entries(array)
        # a list ends where the next begins, of the next level too
        flat = array.reshape(-1)
        np.cumsum(flat, out=flat)
    whole, begins, ends, inner = (np.empty(int(array.flat[-1]), np.int32) for array in ranks)
    inner_ends = np.empty(len(inner), np.uint64)
    line = line._replace(whole=whole, begins=begins, ends=ends, inner=inner, inner_ends=inner_ends)
    cursors = line._replace(
        whole_starts=line.whole_starts.copy(),
        begin_ranks=line.begin_ranks.copy(),
        end_ranks=line.end_ranks.copy(),
        inner_starts=line.inner_starts.copy(),
    )
    kernels.fill_line(listed, order, grid.n_cells, False, cursors)
    return line


# Cells on two attributes: building their lists, and answering a batch from them.
#
# cells.py tells what the arrays are, engine/layouts/cells_kernels.py what a word of a cell is.

# Events of a large batch that read many entries go by place: 1.4 us instead of 1.8 where they read 1,700
# each, as long where they read 620.
SORTED, SORTED_ENTRIES, SORTED_BITS, SORTED_SAMPLE = 4096, 1024, 7, 64
ADVICE = "a smaller bytes_per_subscription=, or the index 'bitmap', lists fewer"
_PER_EVENT, _ROOM = 16.0, 1024
_NO_OFFSETS = np.empty(0, np.int64)
_FIELD, _HALF = np.uint64(0x7FFF), np.uint64(32)


class PlaneReader:
    """Lists of cells with what is needed to read them: the grids, and how many fine cells a step is."""

    def __init__(self, on: npt.NDArray[np.int64], packed: Packed, plane: PlaneCells) -> None:
        self._on = on
        self._packed = packed
        self._plane = plane
        self.steps = steps_of(plane.shifts, packed.exact)
        self.per_event = _PER_EVENT
        """Entries of an answer for which there is room at first: as many as a batch before has needed."""

    def check(self, boxed: bool) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Raise StorageError unless kernels stay within the arrays; the entries, and the last list that each
        level reads."""
        c, levels = self._plane, len(self._plane.bases)
        shaped("shifts of cells", c.shifts, levels, 2)
        shaped("columns of cells", c.columns, levels)
        within("columns of cells", c.columns, 2**31)
        ascending("starts of cells", c.starts, len(c.words) - EIGHT, 2 * (len(c.starts) // 2) + 1)
        shaped("words of cells", c.words, int(c.starts[-1]) + EIGHT)
        hold("that crossing entries have bounds", not ((c.starts[2::2] - c.starts[1::2]) & 1).any())
        hold("that cells whose bounds do not tell all hold boxes", boxed or not self.steps.ones.any())
        x, y = ((self._packed.grid(k).n_cells - 1) >> c.shifts[:, k] for k in (0, 1))
        entries = np.empty(count_entries(c), np.int32)
        kernels.gather_entries(c, entries)
        return entries, c.bases + y * c.columns + x

    def places(self, codes: Codes) -> npt.NDArray[np.uint64]:
        """The fine cells of events on both attributes, packed."""
        return self._packed.pack_events(codes).reshape(-1)

    def goes_by_place(self, codes: Codes) -> bool:
        """Whether events had better be answered in the order of their places: by some of them."""
        m = codes.shape[1]
        if m < SORTED:
            return False
        some = np.ascontiguousarray(codes[:, :: max(1, m // SORTED_SAMPLE)])
        return bool(kernels.bound_plane(self.places(some), self._plane) > SORTED_ENTRIES * some.shape[1])

    def order_by_place(self, places: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """An order in which events of one place follow each other: they read the same lists."""
        down = [max(0, self._packed.grid(k).n_cells.bit_length() - SORTED_BITS) for k in (0, 1)]
        x, y = (((places >> up) & _FIELD).astype(np.int64) - 1 for up in (np.uint64(0), _HALF))
        order = memory.empty(len(x), np.int64)
        near = (x >> down[0]) | ((y >> down[1]) << SORTED_BITS)
        sort_by_cell(near, np.zeros((1 << 2 * SORTED_BITS) + 1, np.int64), order)
        return order

    def stab(
        self,
        order: npt.NDArray[np.int64],
        places: npt.NDArray[np.uint64],
        codes: Codes,
        boxes: Boxes,
        dtype: Any,
        add: int = 0,
        beside: IdRows | None = None,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Rows of entries in some order, with a number added, and behind each of them that beside."""
        m = len(order)
        offsets = memory.empty(m + 1, np.int64)
        offsets[0] = 0
        others = (_NO_OFFSETS, np.empty(0, dtype)) if beside is None else beside
        out = memory.empty(int(m * self.per_event) + len(others[1]) + _ROOM, dtype)
        i = 0
        while True:
            i = int(
                kernels.stab_plane(
                    order, i, codes, self._on, places, self._plane, self.steps, boxes.arrays, add, *others,
                    offsets, out,
                )
            )  # fmt: skip
            if i == m:
                return offsets, out[: offsets[m]]
            # of one event that reads more than all before, too
            room = kernels.bound_plane(places[order[i : i + 1]], self._plane) + EIGHT
            out = memory.lengthened(out, int(offsets[i]), i / m, room)
            self.per_event = len(out) / m


def steps_of(shifts: npt.NDArray[np.int64], exact: list[bool]) -> PlaneSteps:
    """The steps of cells on two attributes, level by level."""
    downs = np.maximum(shifts - (kernels.STEPS.bit_length() - 1), 0)
    unsure = (downs > 0) | ~np.array(exact, bool)
    ones = unsure @ np.array([0x0101, 0x0101_0000], np.int64)
    return PlaneSteps(np.ascontiguousarray(downs), ones.astype(np.uint32))


def count_entries(plane: PlaneCells) -> int:
    """How many entries the lists have: a bound is none."""
    starts = plane.starts
    return int(starts[-1]) - int((starts[2::2] - starts[1::2]).sum(dtype=np.int64)) // 2


def sweep_plane(plane: PlaneCells, dead: npt.NDArray[np.uint8]) -> PlaneCells:
    """The lists without dead entries."""
    room = plane._replace(starts=np.empty_like(plane.starts), words=np.empty_like(plane.words))
    n = kernels.sweep_plane(plane, dead, room)
    room.words[n : n + EIGHT] = 0
    return room._replace(words=room.words[: n + EIGHT].copy())


def fill_plane(listed: CellBoxes, shifts: npt.NDArray[np.int64], packed: Packed) -> PlaneCells:
    """The lists of cells of these levels."""
    fine = packed.grid(0).n_cells, packed.grid(1).n_cells
    columns, rows = ((n - 1 >> shifts[:, k]) + 1 for k, n in enumerate(fine))
    sizes = columns * rows
    n_lists = int(sizes.sum())
    plane = PlaneCells(
        shifts=shifts,
        bases=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
        columns=columns.astype(np.int64),
        starts=np.zeros(2 * n_lists + 1, np.int32),
        words=np.empty(0, np.uint32),
    )
    downs = steps_of(shifts, packed.exact).downs
    kernels.fill_plane(listed, *fine, True, downs, plane, plane.starts)
    check_numbered(int(plane.starts.sum(dtype=np.int64)), "the words of 'cells'", ADVICE)
    np.cumsum(plane.starts, out=plane.starts)
    plane = plane._replace(words=np.empty(int(plane.starts[-1]) + EIGHT, np.uint32))
    plane.words[-EIGHT:] = 0
    kernels.fill_plane(listed, *fine, False, downs, plane, plane.starts.copy())
    return plane


# Which sizes of cells to use, chosen from the widths of what is to be stored.
#
# Every interval or rectangle is put into the cells of one level: those of 2**shift fine cells per side
# (one shift per attribute). Small cells list a wide one often; large cells make many events look at a
# narrow one. Boxes are grouped by the logarithm of their widths, and levels are taken one at a time,
# each the one that lowers the cost most, where
#
#     cost = nanoseconds per event (a constant per level, and what is read needlessly)
#            + price * bytes per box
#
# and the price of memory is raised until the budget of bytes per box is kept. A level where a box would be
# listed more often than MOST_ENTRIES is as good as ruled out, so that a giant among many has a level of
# its own however little it would cost the others.

MOST_LEVELS = 6
FEW_BOXES = 256  # fewer may have tables as large as those of so many
MOST_ENTRIES = (16, 64)  # of one box, on one and on two attributes
# on one and on two attributes, where entries are compared eight at a time and what is read is asked for ahead
_LEVEL_NS = (60.0, 40.0)
_LOOK_NS = (4.8, 0.5)
_COPY_NS = 0.2


class Levels(NamedTuple):
    """The levels in use: shifts (n_levels, n_axes), and the level of each class of boxes."""

    shifts: npt.NDArray[np.int64]
    level_of_class: npt.NDArray[np.int8]
    bytes_per_box: float


def choose_levels(
    classes: npt.NDArray[np.int64],
    widths: list[npt.NDArray[np.float64]],
    counts: npt.NDArray[np.float64],
    n_cells: list[int],
    crowding: float,
    budget: float,
) -> Levels:
    """Levels for classes of boxes: mean widths per axis in fine cells, and how many each has.

    `crowding` is how many times more boxes lie near an event than if they were spread evenly.
    """
    n = counts.sum()
    tops = [max(1, int(size - 1).bit_length()) for size in n_cells]
    shifts = np.array(list(itertools.product(*(range(top + 1) for top in tops))), np.int64)
    looks, copies, held, touches = _costs(widths, n_cells, shifts, crowding)
    cells = np.prod([(size >> shifts[:, k]) + 1 for k, size in enumerate(n_cells)], axis=0)
    headers = cells * 8.0 + 8.0 * n_cells[0] if len(n_cells) == 1 else cells * 8.0
    # a table of more than four cells per box is not worth building, but some level there must be
    usable = np.flatnonzero(headers <= max(32.0 * max(n, FEW_BOXES), headers.min()))
    ns = (looks * _LOOK_NS[len(n_cells) - 1] + copies * _COPY_NS) * counts[:, None]
    # runs of a line are copied whole whatever the cell, so there smaller is better from the start
    ns += np.where(touches > MOST_ENTRIES[len(n_cells) - 1], 1e3, 0.0) * counts[:, None]
    price = 16.0 if len(n_cells) == 1 else 0.25
    while True:
        chosen = _greedy(usable, ns, held * counts[:, None], headers, price / n, _LEVEL_NS[len(n_cells) - 1])
        picked = np.argmin((ns + price / n * held * counts[:, None])[:, chosen], axis=1)
        per_box = float(
            (held[np.arange(len(counts)), np.array(chosen)[picked]] * counts).sum() / n
            + headers[sorted({chosen[k] for k in picked})].sum() / n
        )
        if per_box <= budget or price > 1e7:
            break
        price *= 1.7
    used = sorted(set(picked.tolist()))
    rank = {level: at for at, level in enumerate(used)}
    level_of_class = np.zeros(int(classes.max()) + 1, np.int8)
    level_of_class[classes] = [rank[int(k)] for k in picked]
    return Levels(np.ascontiguousarray(shifts[[chosen[k] for k in used]]), level_of_class, per_box)


def _costs(
    widths: list[npt.NDArray[np.float64]],
    n_cells: list[int],
    shifts: npt.NDArray[np.int64],
    crowding: float,
) -> tuple[npt.NDArray[np.float64], ...]:
    """Per class and level, of one box: entries looked at and copied by an event, bytes, and cells touched."""
    sides = [np.exp2(shifts[:, k])[None, :] for k in range(len(widths))]
    # how many cells an interval of w fine cells touches, and how many of those it fills, on average
    touched = [(w[:, None] - 1) / s + 1 for w, s in zip(widths, sides, strict=True)]
    filled = [
        np.maximum(t - 2, 0.0) + (s == 1) * np.minimum(t, 2.0) for t, s in zip(touched, sides, strict=True)
    ]
    if len(widths) == 1:
        # an edge list is sorted, so only what lies within one cell is looked at
        inside = np.maximum(sides[0] - widths[0][:, None] + 1, 0.0) / sides[0]
        inside = np.where(sides[0] == 1, 0.0, inside)
        looks = inside * np.minimum(sides[0] / n_cells[0] * crowding, 1.0)
        edges = np.where(sides[0] == 1, 0.0, 2.0 * (1 - inside))
        return looks, np.zeros_like(looks), inside * 12 + edges * 4 + filled[0] * 4, touched[0]
    whole = filled[0] * filled[1]
    crossing = touched[0] * touched[1] - whole
    area = sides[0] * sides[1] / (n_cells[0] * n_cells[1]) * crowding
    looks, copies = np.minimum(crossing * area, 1.0), np.minimum(whole * area, 1.0)
    return looks, copies, crossing * 8 + whole * 4, crossing + whole


def _greedy(
    usable: npt.NDArray[np.int64],
    ns: npt.NDArray[np.float64],
    held: npt.NDArray[np.float64],
    headers: npt.NDArray[np.float64],
    price: float,
    level_ns: float,
) -> list[int]:
    cost = (ns + price * held)[:, usable]
    fixed = level_ns + price * headers[usable]
    best = np.full(len(cost), np.inf)
    chosen: list[int] = []
    total = np.inf
    while len(chosen) < MOST_LEVELS:
        totals = np.minimum(cost, best[:, None]).sum(axis=0) + fixed
        k = int(np.argmin(totals))
        spent = float(sum(level_ns + price * headers[level] for level in chosen))
        if totals[k] + spent >= total:
            break
        total = float(totals[k]) + spent
        best = np.minimum(best, cost[:, k])
        chosen.append(int(usable[k]))
    return chosen
