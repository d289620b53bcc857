"""Lists per cell and level of one attribute: filling them, and reading them for a batch of events.

Those of two are in cells_kernels.py. engine/layouts/cells.py tells what the arrays are. A cell of level i is
a fine cell shifted right by shifts[i]; the lists of level i begin at bases[i].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds, holds_value, view_boxes
from rangecast.engine.kernels import locate
from rangecast.engine.packed_kernels import check_few, pack_values
from rangecast.model.kernels import copy_run
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import EIGHT, lowest, move_entries, which_hold
from rangecast.simd.memory import ask, prefetch, view, view_rows

_LAST = np.iinfo(np.int64).max
_LOWER = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)


class LineCells(NamedTuple):
    """Lists per cell of one attribute; engine/layouts/cells.py tells what the arrays are."""

    shifts: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    whole_starts: npt.NDArray[np.int32]
    begin_ranks: npt.NDArray[np.int32]
    end_ranks: npt.NDArray[np.int32]
    inner_starts: npt.NDArray[np.int32]
    whole: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    inner: npt.NDArray[np.int32]
    inner_ends: npt.NDArray[np.uint64]


class CellBoxes(NamedTuple):
    """What is listed: by attribute the fine cells of both ends of each box, which of the ends are those of
    their fine cell (two bits per attribute), its level and its name."""

    firsts: npt.NDArray[np.int32]
    lasts: npt.NDArray[np.int32]
    edges: npt.NDArray[np.uint8]
    levels: npt.NDArray[np.int8]
    names: npt.NDArray[np.int32]


@kernel
def width_classes(firsts, lasts, out):
    """out[i] = the whole logarithm of base 2 of how many fine cells interval i touches."""
    for i in range(firsts.size):
        width = lasts[i] - firsts[i] + 1
        t = 0
        while width > 1:
            width >>= 1
            t += 1
        out[i] = t


@kernel
def mark_edges(lows, highs, firsts, lasts, cuts, bit, edges):
    """Set a bit in edges[i] where interval i has all of the fine cell in which it begins that lies above its
    low, and the next bit where it has all of the one in which it ends."""
    for i in range(lows.size):
        after = lasts[i] + 1
        begins = lows[i] <= cuts[firsts[i]]
        ends = highs[i] >= (cuts[after] - 1 if after < cuts.size else _LAST)
        edges[i] |= np.uint8(begins << bit | ends << bit + 1)


@inlined_kernel
def begins_by(first, shift, whole):
    """Whether an interval that begins in a fine cell begins no later than the cell around it; `whole` says so
    of the fine cell."""
    return whole != 0 and first & ((1 << shift) - 1) == 0


@inlined_kernel
def ends_after(last, shift, whole, n_fine):
    """Whether an interval that ends in a fine cell ends no sooner than the cell around it."""
    return whole != 0 and ((last + 1) & ((1 << shift) - 1) == 0 or last + 1 == n_fine)


@kernel
def fill_line(boxes, order, n_fine, counting, line):
    """One attribute: count the entries of each list, or write them (starts and ranks are then cursors).

    A cell's lists of beginnings and ends are kept by fine cell, so that an event finds its part of
    them in a table: begin_ranks[level, f] entries begin before the fine cell f.
    """
    firsts = boxes.firsts[0]
    lasts = boxes.lasts[0]
    names = boxes.names
    for k in range(order.size):
        i = order[k]
        level = boxes.levels[i]
        s = line.shifts[level]
        base = line.bases[level]
        a = firsts[i] >> s
        b = lasts[i] >> s
        at_start = begins_by(firsts[i], s, boxes.edges[i] & 1)
        at_end = ends_after(lasts[i], s, boxes.edges[i] & 2, n_fine)
        # within one cell: the only entries that an event compares, so they carry both ends
        if a == b and not (at_start and at_end):
            c = base + a
            if counting:
                line.inner_starts[c + 1] += 1
            else:
                p = line.inner_starts[c]
                line.inner_starts[c] = p + 1
                line.inner[p] = names[i]
                line.inner_ends[p] = np.uint64(firsts[i]) | (np.uint64(lasts[i]) << np.uint64(32))
            continue
        # the cells at both ends that it does not fill: an event takes runs of these
        if not at_start:
            if counting:
                line.begin_ranks[level, firsts[i] + 1] += 1
            else:
                p = line.begin_ranks[level, firsts[i]]
                line.begin_ranks[level, firsts[i]] = p + 1
                line.begins[p] = names[i]
            a += 1
        if not at_end:
            if counting:
                line.end_ranks[level, lasts[i] + 1] += 1
            else:
                p = line.end_ranks[level, lasts[i]]
                line.end_ranks[level, lasts[i]] = p + 1
                line.ends[p] = names[i]
            b -= 1
        # the cells between them, which it holds whole
        for cell in range(base + a, base + b + 1):
            if counting:
                line.whole_starts[cell + 1] += 1
            else:
                p = line.whole_starts[cell]
                line.whole_starts[cell] = p + 1
                line.whole[p] = names[i]


@kernel
def bound_line(cells, line):
    """How many entries a batch can touch at most."""
    whole_starts = line.whole_starts
    begin_ranks = line.begin_ranks
    end_ranks = line.end_ranks
    inner_starts = line.inner_starts
    total = 0
    n_fine = begin_ranks.shape[1] - 1
    for e in range(cells.size):
        f = cells[e]
        for level in range(line.shifts.size):
            s = line.shifts[level]
            c = line.bases[level] + (f >> s)
            first = (f >> s) << s
            total += whole_starts[c + 1] - whole_starts[c]
            total += begin_ranks[level, f + 1] - begin_ranks[level, first]
            total += end_ranks[level, min(first + (1 << s), n_fine)] - end_ranks[level, f]
            total += inner_starts[c + 1] - inner_starts[c]
    return total


@kernel
def stab_line(values, cells, exact, line, boxes, on, placed, offsets, add, out):
    """One attribute: copy runs of lists, look only at what shares the event's fine cell.

    With `placed` the row of event e goes to out[offsets[e]] on; otherwise rows follow each other and
    offsets are written; only exact cells can be placed. `add` is added to each entry.
    """
    shifts = line.shifts
    bases = line.bases
    whole_starts = line.whole_starts
    begin_ranks = line.begin_ranks
    end_ranks = line.end_ranks
    inner_starts = line.inner_starts
    whole = line.whole
    begins = line.begins
    ends = line.ends
    p = 0
    n_fine = begin_ranks.shape[1] - 1
    for e in range(cells.size):
        if placed:
            p = offsets[e]
        else:
            offsets[e] = p
        f = cells[e]
        v = values[e]
        for level in range(shifts.size):
            s = shifts[level]
            c = bases[level] + (f >> s)
            first = (f >> s) << s
            # who holds the cell whole matches, whatever the value
            p = copy_run(whole, whole_starts[c], whole_starts[c + 1] - whole_starts[c], add, False, out, p)
            # who begins in the cell before the event's fine cell, or ends in it after that, matches too; in
            # the fine cell itself only an exact grid tells
            a = begin_ranks[level, first]
            b = begin_ranks[level, f + exact]
            p = copy_run(begins, a, b - a, add, False, out, p)
            if not exact:
                for q in range(b, begin_ranks[level, f + 1]):
                    out[p] = begins[q] + add
                    p += holds_value(boxes, begins[q], on, v)
            a = end_ranks[level, f + 1 - exact]
            b = end_ranks[level, min(first + (1 << s), n_fine)]
            p = copy_run(ends, a, b - a, add, False, out, p)
            if not exact:
                for q in range(end_ranks[level, f], a):
                    out[p] = ends[q] + add
                    p += holds_value(boxes, ends[q], on, v)
            # who lies within the cell is compared by fine cells, and by codes where those do not tell
            n = inner_starts[c + 1] - inner_starts[c]
            if n > 0:
                own = line.inner[inner_starts[c] : inner_starts[c] + n]
                spans = line.inner_ends[inner_starts[c] : inner_starts[c] + n]
                into = out[p : p + n]
                k = 0
                if placed:
                    # what lies beyond the row is another's
                    for q in range(n):
                        if (spans[q] & _LOWER) <= f and (spans[q] >> _HALF) >= f:
                            into[k] = own[q] + add
                            k += 1
                elif exact:
                    for q in range(n):
                        into[k] = own[q] + add
                        k += ((spans[q] & _LOWER) <= f) & ((spans[q] >> _HALF) >= f)
                else:
                    for q in range(n):
                        if (spans[q] & _LOWER) <= f and (spans[q] >> _HALF) >= f:
                            into[k] = own[q] + add
                            k += holds_value(boxes, own[q], on, v)
                p += k
    if not placed:
        offsets[cells.size] = p
    return p


@kernel
def count_line(cells, line, counts):
    """counts[e] = the matches of event e, where fine cells are exact."""
    shifts = line.shifts
    bases = line.bases
    whole_starts = line.whole_starts
    begin_ranks = line.begin_ranks
    end_ranks = line.end_ranks
    inner_starts = line.inner_starts
    n_fine = begin_ranks.shape[1] - 1
    for e in range(cells.size):
        f = cells[e]
        total = np.int64(0)
        for level in range(shifts.size):
            s = shifts[level]
            c = bases[level] + (f >> s)
            first = (f >> s) << s
            total += whole_starts[c + 1] - whole_starts[c]
            total += begin_ranks[level, f + 1] - begin_ranks[level, first]
            total += end_ranks[level, min(first + (1 << s), n_fine)] - end_ranks[level, f]
            spans = line.inner_ends[inner_starts[c] : inner_starts[c + 1]]
            for q in range(spans.size):
                total += ((spans[q] & _LOWER) <= f) & ((spans[q] >> _HALF) >= f)
        counts[e] = total


@allocating_kernel
def stab_line_few(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/layouts/cells.py.

    Returns how many entries there are, or where `out` has less room than they might take, minus that.
    """
    on, exact, origin, shift = view(part[0], np.int64)[:4]
    # in the order of the fields
    line = LineCells(
        view(part[2], np.int64),
        view(part[3], np.int64),
        view(part[4], np.int32),
        view_rows(part[5], np.int32),
        view_rows(part[6], np.int32),
        view(part[7], np.int32),
        view(part[8], np.int32),
        view(part[9], np.int32),
        view(part[10], np.int32),
        view(part[11], np.int32),
        view(part[12], np.uint64),
    )
    values = codes[on]
    cells = np.empty(values.size, np.int32)
    locate(values, view(part[1], np.int64), origin, shift, cells)
    room = bound_line(cells, line)
    if room > out.size:
        return -room
    boxes = view_boxes(own_boxes)
    n = stab_line(values, cells, exact != 0, line, boxes, on, False, offsets, np.int32(0), out)
    return check_few(part, 13, own_boxes, codes, offsets, out, n)


@kernel
def sweep(starts, entries, payload, dead, out_starts, out, out_payload):
    """Lists without their dead entries; a payload goes along where there is one. Returns the new size."""
    p = 0
    for k in range(starts.size - 1):
        out_starts[k] = p
        for q in range(starts[k], starts[k + 1]):
            out[p] = entries[q]
            if payload.size:
                out_payload[p] = payload[q]
            if not dead[entries[q]]:
                p += 1
    out_starts[starts.size - 1] = p
    return p


# Lists per cell and level of two attributes: filling them, and reading them for a batch of events.
#
# engine/layouts/cells.py tells what the arrays are. The words of a cell are the entries that hold it whole,
# those that cross it, and the bounds of these, four bytes each: both ends on both attributes, counted from
# the first fine cell of the cell. A byte has no room for more than STEPS fine cells, so in a larger cell a
# step of a bound is several of them. A step is counted from 1; a bound of 0 lies beyond the cell and holds
# all of it, and so that the other end is compared in the same way, it is what is left of 255.
#
# An event in the same step as a bound is told by its fine cell where a step is one and the grid is exact, and
# by codes otherwise: the ones of a level say for which attributes.
#
# What an event reads lies anywhere. So the starts of the cells are asked for when the event is 2 * AHEAD
# away, and the words when it is AHEAD away: 0.08 us per event instead of 0.21 on a million small rectangles.

STEPS = 128
_FIELD = np.uint64(0x7FFF)
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
    """All that a few events need, in one call; `part` is the table of views of engine/layouts/cells.py.

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
