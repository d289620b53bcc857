"""Lists per cell and level of two attributes: filling them, and reading them for a batch of events.

engine/cells.py tells what the arrays are. The words of a cell are the entries that hold it whole, those that
cross it, and the bounds of these, four bytes each: both ends on both attributes, counted from the first fine
cell of the cell. A byte has no room for more than STEPS fine cells, so in a larger cell a step of a bound is
several of them. A step is counted from 1; a bound of 0 lies beyond the cell and holds all of it, and so that
the other end is compared in the same way, it is what is left of 255.

An event in the same step as a bound is told by its fine cell where a step is one and the grid is exact, and
by codes otherwise: the ones of a level say for which attributes.

What an event reads lies anywhere. So the starts of the cells are asked for when the event is 2 * AHEAD away,
and the words when it is AHEAD away: 0.08 us per event instead of 0.21 on a million small rectangles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds, view_boxes
from rangecast.engine.layouts.cells_kernels import begins_by, ends_after
from rangecast.engine.packed_kernels import check_few, pack_values
from rangecast.kernels.machine.bitsets import lowest
from rangecast.kernels.machine.kept_entries import EIGHT, move_entries, which_hold
from rangecast.kernels.machine.views import view, view_rows
from rangecast.model.kernels import copy_run
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.memory import ask, prefetch

STEPS = 128
_FIELD = np.uint64(0x7FFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_ALL = np.uint64((1 << EIGHT) - 1)
_TOP = 255
AHEAD = 8


class PlaneCells(NamedTuple):
    """Lists per cell of two attributes."""

    shifts: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint32]


class PlaneSteps(NamedTuple):
    """By level: how many fine cells a step is, as a shift per attribute, and 1 in the bytes of attributes of
    which a step does not tell all."""

    downs: npt.NDArray[np.int64]
    ones: npt.NDArray[np.uint32]


@inlined_kernel
def _bytes_of(x, y):
    """Steps on both attributes as the four bytes of a point."""
    return np.uint32(x | (_TOP - x) << 8 | y << 16 | (_TOP - y) << 24)


@kernel
def fill_plane(boxes, n_fine_x, n_fine_y, counting, downs, plane, cursors):
    """Count the words of each list (whole, crossing, whole, ...), or write them; cursors are the starts, and
    are moved on."""
    firsts = boxes.firsts
    lasts = boxes.lasts
    names = boxes.names
    starts = plane.starts
    words = plane.words
    for i in range(names.size):
        level = boxes.levels[i]
        sx = plane.shifts[level, 0]
        sy = plane.shifts[level, 1]
        x0 = firsts[0, i] >> sx
        x1 = lasts[0, i] >> sx
        y0 = firsts[1, i] >> sy
        y1 = lasts[1, i] >> sy
        # which of its sides lie on sides of cells: a cell at another side is only crossed
        edges = boxes.edges[i]
        left = begins_by(firsts[0, i], sx, edges & 1)
        right = ends_after(lasts[0, i], sx, edges & 2, n_fine_x)
        bottom = begins_by(firsts[1, i], sy, edges & 4)
        top = ends_after(lasts[1, i], sy, edges & 8, n_fine_y)
        for y in range(y0, y1 + 1):
            above = y > y0 or bottom
            below = y < y1 or top
            for x in range(x0, x1 + 1):
                after = x > x0 or left
                before = x < x1 or right
                c = plane.bases[level] + y * plane.columns[level] + x
                if above and below and after and before:
                    if counting:
                        starts[2 * c + 1] += 1
                    else:
                        p = cursors[2 * c]
                        cursors[2 * c] = p + 1
                        words[p] = names[i]
                elif counting:
                    starts[2 * c + 2] += 2
                else:
                    p = cursors[2 * c + 1]
                    cursors[2 * c + 1] = p + 1
                    words[p] = names[i]
                    bounds = 0
                    if not after:
                        bounds |= ((firsts[0, i] - (x << sx)) >> downs[level, 0]) + 1
                    if not before:
                        bounds |= (_TOP - 1 - ((lasts[0, i] - (x << sx)) >> downs[level, 0])) << 8
                    if not above:
                        bounds |= (((firsts[1, i] - (y << sy)) >> downs[level, 1]) + 1) << 16
                    if not below:
                        bounds |= (_TOP - 1 - ((lasts[1, i] - (y << sy)) >> downs[level, 1])) << 24
                    words[p + (starts[2 * c + 2] - starts[2 * c + 1] >> 1)] = np.uint32(bounds)


@kernel
def gather_entries(plane, out):
    """The entries of all lists, without bounds; returns how many they are."""
    starts = plane.starts
    n = 0
    for c in range(starts.size >> 1):
        crossing = (starts[2 * c + 2] - starts[2 * c + 1]) >> 1
        for q in range(starts[2 * c], starts[2 * c + 1] + crossing):
            out[n] = plane.words[q]
            n += 1
    return n


@kernel
def sweep_plane(plane, dead, out):
    """The lists without their dead entries, into the arrays of another plane; returns how many words."""
    starts = plane.starts
    words = plane.words
    p = 0
    for c in range(starts.size >> 1):
        out.starts[2 * c] = p
        for q in range(starts[2 * c], starts[2 * c + 1]):
            out.words[p] = words[q]
            p += not dead[words[q]]
        out.starts[2 * c + 1] = p
        first = starts[2 * c + 1]
        n = (starts[2 * c + 2] - first) >> 1
        for q in range(first, first + n):
            out.words[p] = words[q]
            p += not dead[words[q]]
        for q in range(first, first + n):
            out.words[p] = words[q + n]
            p += not dead[words[q]]
    out.starts[starts.size - 1] = p
    return p


@inlined_kernel
def _cell_at(place, plane, level):
    """The first of the two starts of an event's cell at a level."""
    x = (np.int64(place & _FIELD) - 1) >> plane.shifts[level, 0]
    y = (np.int64((place >> _HALF) & _FIELD) - 1) >> plane.shifts[level, 1]
    return np.uint64(2 * (plane.bases[level] + y * plane.columns[level] + x))


@inlined_kernel
def _entries_at(place, plane):
    """How many entries an event can touch at most."""
    total = np.int64(0)
    for level in range(plane.bases.size):
        c = _cell_at(place, plane, level)
        whole = np.int64(plane.starts[c + _ONE])
        total += whole - plane.starts[c]
        total += (plane.starts[c + _TWO] - whole) >> 1
    return total


@kernel
def bound_plane(places, plane):
    """How many entries a batch can touch at most."""
    total = np.int64(0)
    for e in range(places.size):
        total += _entries_at(places[e], plane)
    return total


@kernel
def stab_plane(
    order, first, codes, on, places, plane, steps, boxes, add, beside_starts, beside, offsets, out
):
    """Copy the whole list of each level's cell with `add` added, compare the crossing one.

    Row i of the answer is that of event order[i]; behind what is found stand the entries of row i beside, if
    there are any. Begins with row `first` and returns the one for which there was no room, or how many there
    are.
    """
    starts = plane.starts
    words = plane.words
    n_levels = plane.bases.size
    last = order.size - 1
    p = np.uint64(offsets[first])
    for i in range(first, order.size):
        # the words of an event to come, whose starts are there by now, and the starts of one further on
        near = places[order[min(i + AHEAD, last)]]
        far = places[order[min(i + 2 * AHEAD, last)]]
        for level in range(n_levels):
            prefetch(starts, _cell_at(far, plane, level))
            c = _cell_at(near, plane, level)
            ask(words, np.int64(starts[c]), np.int64(starts[c + _TWO]))
        e = order[i]
        place = places[e]
        n_beside = beside_starts[i + 1] - beside_starts[i] if beside_starts.size else 0
        if np.int64(p) + _entries_at(place, plane) + n_beside + EIGHT > out.size:
            return i
        for level in range(n_levels):
            c = _cell_at(place, plane, level)
            a = np.uint64(starts[c])
            b = np.uint64(starts[c + _ONE])
            n = (np.uint64(starts[c + _TWO]) - b) >> _ONE
            p = np.uint64(copy_run(words, a, b - a, add, False, out, p))
            x = (np.int64(place & _FIELD) - 1) & ((1 << plane.shifts[level, 0]) - 1)
            y = (np.int64((place >> _HALF) & _FIELD) - 1) & ((1 << plane.shifts[level, 1]) - 1)
            point = _bytes_of((x >> steps.downs[level, 0]) + 1, (y >> steps.downs[level, 1]) + 1)
            ones = steps.ones[level]
            k = np.uint64(0)
            while k < n:
                held = which_hold(words, b + n + k, point)
                if n - k < np.uint64(EIGHT):
                    held &= (_ONE << (n - k)) - _ONE
                if ones:
                    # in the same step as one of their ends: by codes
                    doubtful = held & ~which_hold(words, b + n + k, np.uint32(point - ones))
                    while doubtful:
                        at = np.uint64(lowest(doubtful))
                        if not holds(boxes, np.int64(words[b + k + at]), codes, on, e):
                            held ^= _ONE << at
                        doubtful &= doubtful - _ONE
                p += move_entries(words, b + k, held, add, out, p)
                k += np.uint64(EIGHT)
        if n_beside:
            p = np.uint64(copy_run(beside, beside_starts[i], np.uint64(n_beside), np.int64(0), False, out, p))
        offsets[i + 1] = np.int64(p)
    return order.size


@allocating_kernel
def stab_plane_few(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/cells.py.

    Returns how many boxes there are, or where `out` has less room than they might take, minus that.
    """
    m = codes.shape[1]
    # in the order of the fields
    plane = PlaneCells(
        view_rows(part[1], np.int64),
        view(part[2], np.int64),
        view(part[3], np.int64),
        view(part[4], np.int32),
        view(part[5], np.uint32),
    )
    steps = PlaneSteps(view_rows(part[6], np.int64), view(part[7], np.uint32))
    places = np.empty((m, 1), np.uint64)
    pack_values(codes, view_rows(part[8], np.int64), places)
    places = places.reshape(m)
    room = bound_plane(places, plane) + EIGHT
    if room > out.size:
        return -room
    offsets[0] = 0
    beside = np.empty(0, np.int32)
    stab_plane(
        np.arange(m), np.int64(0), codes, view(part[0], np.int64), places, plane, steps,
        view_boxes(own_boxes), np.int64(0), np.empty(0, np.int64), beside, offsets, out,
    )  # fmt: skip
    return check_few(part, 9, own_boxes, codes, offsets, out, offsets[m])
