"""`cells`: a grid of aligned cells, in levels of doubling size, on one or two attributes.

Codes are laid on a Grid of fine cells. A level's cells are 2**shift fine cells a side, and each box
is listed at one level that suits its width (cell_levels.py): in every cell that it holds whole, where its
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

    array          dtype    shape             meaning, on two attributes
    starts         int32    2 * n_lists + 1   whole, crossing, whole, crossing, ...
    entries        int32    n_entries
    bound_starts   int32    n_lists + 1       where the bounds of a cell's crossing entries begin
    bounds         uint64   n_crossing        all four ends in one word (packed_bounds.py)

Lists hold slots, or box numbers when codes may have to be looked at: because other attributes are
bounded, or because fine cells hold several codes with an end of a box between them (an event in the
same fine cell as an end of a box is compared with its codes). packed_bounds.py has the bounds on other
attributes. A few events on two attributes are answered by one kernel call (small_batches.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast import buffers
from rangecast.array_file import Arrays
from rangecast.engine.answers import Counted, Found, Rows, restore_order
from rangecast.engine.catalog import Boxes
from rangecast.engine.cell_levels import choose_levels
from rangecast.engine.grid import Grid
from rangecast.engine.packed_bounds import CELLS, Checked, Packed, fit_grid
from rangecast.engine.parts import Part, StaticIndex
from rangecast.engine.selectivity import bounded_attributes, estimate_selectivity, named_attributes
from rangecast.engine.small_batches import FEW, FewEvents
from rangecast.errors import OptionError
from rangecast.kernels.engine import cells as kernels
from rangecast.kernels.engine import packed_bounds as packed_kernels
from rangecast.kernels.engine.grid import sort_by_cell
from rangecast.kernels.machine.views import Views
from rangecast.memory import check_fits
from rangecast.types.attributes import Codes

BUDGET = 72
MOST_FINE = 1 << 20
SORTED, SORTED_ENTRIES, SORTED_BITS = 4096, 64, 7
_RANKS = ("whole_starts", "begin_ranks", "end_ranks", "inner_starts")
_LISTS = ("whole", "begins", "ends", "inner")
_PLANE = ("starts", "entries", "bound_starts", "bounds", "columns")


class CellsPart(Part):
    """Lists of boxes per cell; see the module head for the arrays."""

    exact = True
    ratio = 16

    def __init__(
        self, on: list[int], packed: Packed, boxed: bool, identical: bool, arrays: Arrays,
        checked: Checked | None,
    ) -> None:  # fmt: skip
        self.on = np.array(on, np.int64)
        self.packed = packed
        self.checked = checked
        self.boxed = boxed
        self.identical = identical
        self.arrays = arrays
        if len(on) == 2:
            # as kernels.stab_plane_few reads them
            own = (arrays[name] for name in ("shifts", "bases", *_PLANE))
            self._few = FewEvents(kernels.stab_plane_few, Views(self.on, packed.ones, *own, packed.views))

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        if len(self.on) == 1 and not self.boxed:
            return self._count_line(codes)
        m = codes.shape[1]
        order, turned = np.arange(m), False
        if len(self.on) == 1:
            offsets, out, n = self._stab_line(codes, boxes)
        elif m < FEW:
            offsets, out = self._few.stab(codes, boxes)
            n = len(out)
        else:
            offsets = buffers.empty(m + 1, np.int64)
            words = self.packed.pack_events(codes)
            x, y = buffers.empty(m, np.int64), buffers.empty(m, np.int64)
            kernels.locate_plane(words, x, y)
            a = self.arrays
            room = kernels.bound_plane(x, y, a["shifts"], a["bases"], a["columns"], a["starts"])
            turned = m >= SORTED and room > SORTED_ENTRIES * m
            if turned:
                order = self._along(x, y)
            out = buffers.empty(room, np.int32)
            n = kernels.stab_plane(
                order, codes, self.on, x, y, words, self.packed.ones[0], a["shifts"], a["bases"],
                a["columns"], a["starts"], a["bound_starts"], a["entries"], a["bounds"], boxes.lows,
                boxes.highs, offsets, out,
            )  # fmt: skip
        if self.checked is not None:
            n = self.checked.keep(order, codes, boxes, offsets, out)
        if self.boxed and not self.identical:
            packed_kernels.to_slots(out, n, boxes.slots)
        return restore_order(order, m, offsets, out[:n]) if turned else (offsets, out[:n])

    def _stab_line(self, codes: Codes, boxes: Boxes) -> tuple[*Rows, int]:
        """On one attribute: what may match, and how much it is."""
        offsets = buffers.empty(codes.shape[1] + 1, np.int64)
        a, on = self.arrays, int(self.on[0])
        shifts, bases = a["shifts"][:, 0], a["bases"]
        cells = self.packed.grid(0).locate(codes[on])
        whole_starts, begin_ranks, end_ranks, inner_starts = (a[name] for name in _RANKS)
        whole, begins, ends, inner = (a[name] for name in _LISTS)
        out = buffers.empty(
            kernels.bound_line(cells, shifts, bases, whole_starts, begin_ranks, end_ranks, inner_starts),
            np.int32,
        )
        n = kernels.stab_line(
            codes[on], cells, self.packed.exact[0], shifts, bases, whole_starts, begin_ranks, end_ranks,
            inner_starts, whole, begins, ends, inner, a["inner_ends"], boxes.lows[on], boxes.highs[on],
            False, offsets, np.int32(0), out,
        )  # fmt: skip
        return offsets, out, n

    def _along(self, x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Events of one place after each other: they read the same lists."""
        down = [max(0, self.packed.grid(k).n_cells.bit_length() - SORTED_BITS) for k in (0, 1)]
        order = buffers.empty(len(x), np.int64)
        places = (x >> down[0]) | ((y >> down[1]) << SORTED_BITS)
        sort_by_cell(places, np.zeros((1 << 2 * SORTED_BITS) + 1, np.int64), order)
        return order

    def _count_line(self, codes: Codes) -> Counted:
        """Matches on one attribute that need no check, counted; they are copied when they are wanted."""
        a = self.arrays
        values = codes[int(self.on[0])]
        cells = self.packed.grid(0).locate(values)
        shifts, bases = a["shifts"][:, 0], a["bases"]
        whole_starts, begin_ranks, end_ranks, inner_starts = (a[name] for name in _RANKS)
        counts = np.empty(len(cells), np.int64)
        kernels.count_line(
            cells, shifts, bases, whole_starts, begin_ranks, end_ranks, inner_starts, a["inner_ends"], counts
        )

        def fill(places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
            whole, begins, ends, inner = (a[name] for name in _LISTS)
            kernels.stab_line(
                values, cells, True, shifts, bases, whole_starts, begin_ranks, end_ranks, inner_starts,
                whole, begins, ends, inner, a["inner_ends"], values, values, True, places,
                out.dtype.type(add), out,
            )  # fmt: skip

        return Counted(counts, fill)

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64]:
        a = self.arrays
        fine = [self.packed.grid(k).locate(codes[j]).astype(np.int64) for k, j in enumerate(self.on)]
        counts = np.zeros(codes.shape[1], np.int64)
        for level, (shifts, base) in enumerate(zip(a["shifts"], a["bases"], strict=True)):
            c = base + (fine[0] >> shifts[0])
            if len(self.on) == 2:
                c += (fine[1] >> shifts[1]) * a["columns"][level]
                counts += a["starts"][2 * c + 2] - a["starts"][2 * c]
                continue
            first = (fine[0] >> shifts[0]) << shifts[0]
            last = np.minimum(first + (1 << shifts[0]), a["begin_ranks"].shape[1] - 1)
            for name in ("whole_starts", "inner_starts"):
                counts += a[name][c + 1] - a[name][c]
            counts += a["begin_ranks"][level, fine[0] + 1] - a["begin_ranks"][level, first]
            counts += a["end_ranks"][level, last] - a["end_ranks"][level, fine[0]]
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> CellsPart | None:
        if self.boxed and not self.identical:
            return None
        a = dict(self.arrays)
        if len(self.on) == 1:
            none = np.empty(0, np.uint64)
            for starts_name, name in zip(_RANKS, _LISTS, strict=True):
                payload = a["inner_ends"] if name == "inner" else none
                starts, out, more = (np.empty_like(x) for x in (a[starts_name], a[name], payload))
                n = kernels.sweep(
                    a[starts_name].reshape(-1), a[name], payload, dead, starts.reshape(-1), out, more
                )
                a[starts_name], a[name] = starts, out[:n].copy()
                if name == "inner":
                    a["inner_ends"] = more[:n].copy()
        else:
            names = ("starts", "entries", "bound_starts", "bounds")
            starts, entries, bound_starts, bounds = (np.empty_like(a[name]) for name in names)
            n, n_bounds = kernels.sweep_plane(
                a["starts"], a["entries"], a["bound_starts"], a["bounds"], dead,
                starts, entries, bound_starts, bounds,
            )  # fmt: skip
            a["starts"], a["bound_starts"] = starts, bound_starts
            a["entries"], a["bounds"] = entries[:n].copy(), bounds[:n_bounds].copy()
        return CellsPart(self.on.tolist(), self.packed, self.boxed, self.identical, a, self.checked)

    @property
    def derived_bytes(self) -> int:
        checked = 0 if self.checked is None else self.checked.packed.derived_bytes
        return self.packed.derived_bytes + checked

    def export(self) -> tuple[dict[str, Any], Arrays]:
        meta, arrays = self.packed.export()
        named = {"on": self.on.tolist(), "boxed": self.boxed, "identical": self.identical, "packed": meta}
        named["checked"], others = (None, {}) if self.checked is None else self.checked.export()
        return named, {**self.arrays, **arrays, **others}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: Arrays) -> CellsPart:
        packed = Packed.restore(meta["packed"], arrays)
        own = {name: array for name, array in arrays.items() if "." not in name}
        checked = None if meta["checked"] is None else Checked.restore(meta["checked"], arrays)
        return cls(meta["on"], packed, meta["boxed"], meta["identical"], own, checked)

    def stats(self) -> dict[str, int]:
        lists = _LISTS if len(self.on) == 1 else ("entries",)
        return {
            "levels": len(self.arrays["bases"]),
            "entries": sum(len(self.arrays[name]) for name in lists),
        }


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
    part_type = CellsPart

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
    lows = np.ascontiguousarray(boxes.lows[list(on)][:, numbers])
    highs = np.ascontiguousarray(boxes.highs[list(on)][:, numbers])
    most = CELLS if len(on) == 2 else min(MOST_FINE, max(4096, n // 2))
    fitted = [fit_grid(low, high, most) for low, high in zip(lows, highs, strict=True)]
    grids = [g for g, _ in fitted]
    packed = Packed(np.array(on, np.int64), list(grids), [known for _, known in fitted])
    firsts = np.stack([g.locate(low) for g, low in zip(grids, lows, strict=True)])
    lasts = np.stack([g.locate(high) for g, high in zip(grids, highs, strict=True)])
    levels, shifts, per_box = _assign_levels(firsts, lasts, grids, budget)
    checked = bounded_attributes(boxes, numbers, on)
    check_fits(
        int(per_box * n) + 8 * (len(checked) + 1 >> 1) * n,
        memory_limit,
        f"'cells' for {n:,} boxes",
        "a smaller bytes_per_subscription= or the index 'bitmap' needs less",
    )
    boxed = bool(checked) or not all(packed.exact)
    slots = boxes.slots[numbers]
    identical = bool((slots == numbers).all())
    names = numbers.astype(np.int32) if boxed else slots
    fill = _fill_line if len(on) == 1 else _fill_plane
    arrays = fill(lows, highs, firsts, lasts, levels, shifts, packed, names, boxes, numbers)
    arrays["shifts"] = shifts
    rest = Checked.fit(boxes, numbers, checked) if checked else None
    return CellsPart(list(on), packed, boxed, identical, arrays, rest)


def _assign_levels(
    firsts: npt.NDArray[np.int32], lasts: npt.NDArray[np.int32], grids: list[Grid], budget: float
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64], float]:
    """The level of each box, and the shifts of the levels."""
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
    chosen = choose_levels(
        present, widths, counts[present].astype(np.float64), [g.n_cells for g in grids], crowding, budget
    )
    return chosen.level_of_class[classes], chosen.shifts, chosen.bytes_per_box


def _fill_line(
    lows: Codes, highs: Codes, firsts: Any, lasts: Any, levels: Any, shifts: Any, packed: Packed,
    names: npt.NDArray[np.int32], boxes: Boxes, numbers: npt.NDArray[np.int64],
) -> Arrays:  # fmt: skip
    grid = packed.grid(0)
    sizes = (grid.n_cells - 1 >> shifts[:, 0]) + 1
    bases = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    n_lists = int(sizes.sum())
    order = np.empty(len(names), np.int64)
    sort_by_cell(firsts[0], np.zeros(grid.n_cells + 1, np.int64), order)
    lists = (n_lists + 1, (len(sizes), grid.n_cells + 1), (len(sizes), grid.n_cells + 1), n_lists + 1)
    ranks = [np.zeros(shape, np.int32) for shape in lists]
    line = (lows[0], highs[0], firsts[0], lasts[0], order, levels, np.ascontiguousarray(shifts[:, 0]), bases)
    none = np.empty(0, np.int32), np.empty(0, np.uint64)
    fill: Any = kernels.fill_line
    fill(*line, grid.cuts, True, *ranks, names, none[0], none[0], none[0], *none)
    for array in ranks:
        # a list ends where the next begins, of the next level too
        flat = array.reshape(-1)
        np.cumsum(flat, out=flat)
    entries = [np.empty(int(array.flat[-1]), np.int32) for array in ranks]
    inner_ends = np.empty(len(entries[3]), np.uint64)
    cursors = [array.copy() for array in ranks]
    fill(*line, grid.cuts, False, *cursors, names, *entries, inner_ends)
    named = {**dict(zip(_RANKS, ranks, strict=True)), **dict(zip(_LISTS, entries, strict=True))}
    return {"bases": bases, "inner_ends": inner_ends, **named}


def _fill_plane(
    lows: Codes, highs: Codes, firsts: Any, lasts: Any, levels: Any, shifts: Any, packed: Packed,
    names: npt.NDArray[np.int32], boxes: Boxes, numbers: npt.NDArray[np.int64],
) -> Arrays:  # fmt: skip
    columns, rows = (
        (grid.n_cells - 1 >> shifts[:, k]) + 1 for k, grid in enumerate((packed.grid(0), packed.grid(1)))
    )
    sizes = columns * rows
    bases = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    n_lists = int(sizes.sum())
    starts = np.zeros(2 * n_lists + 1, np.int32)
    words = np.ascontiguousarray(packed.pack_boxes(boxes, numbers)[:, 0])
    place = (lows, highs, firsts, lasts, levels, shifts, bases, columns)
    cuts = packed.grid(0).cuts, packed.grid(1).cuts
    none = np.empty(0, np.int32), np.empty(0, np.uint64)
    fill: Any = kernels.fill_plane
    fill(*place, *cuts, True, starts, names, words, *none, none[0])
    bound_starts = np.zeros(n_lists + 1, np.int32)
    np.cumsum(starts[2::2], out=bound_starts[1:])
    np.cumsum(starts, out=starts)
    entries = np.empty(int(starts[-1]), np.int32)
    bounds = np.empty(int(bound_starts[-1]), np.uint64)
    fill(*place, *cuts, False, starts.copy(), names, words, entries, bounds, bound_starts.copy())
    values = (starts, entries, bound_starts, bounds, columns.astype(np.int64))
    return {"bases": bases, **dict(zip(_PLANE, values, strict=True))}
