"""Cells on two attributes: building their lists, and answering a batch from them.

cells.py tells what the arrays are, kernels/engine/plane_cells.py what a word of a cell is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast import buffers
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.layouts.cells_kernels import CellBoxes
from rangecast.engine.packed import Packed
from rangecast.engine.static_part import IdRows
from rangecast.kernels.engine import plane_cells as kernels
from rangecast.kernels.engine.grid import sort_by_cell
from rangecast.kernels.engine.plane_cells import PlaneCells, PlaneSteps
from rangecast.kernels.machine.kept_entries import EIGHT
from rangecast.memory import check_numbered
from rangecast.types.attributes import Codes

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
        order = buffers.empty(len(x), np.int64)
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
        offsets = buffers.empty(m + 1, np.int64)
        offsets[0] = 0
        others = (_NO_OFFSETS, np.empty(0, dtype)) if beside is None else beside
        out = buffers.empty(int(m * self.per_event) + len(others[1]) + _ROOM, dtype)
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
            out = buffers.lengthened(out, int(offsets[i]), i / m, room)
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
