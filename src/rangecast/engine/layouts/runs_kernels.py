"""Constructs laid out level by level: counting, filling and stabbing them.

A box covers a range of cells. Those that it only crosses get an entry in the list of their cell, to be
checked; those that it covers whole are cut, from the left, into runs of 2**k, then 2**(k-1), ... cells,
and each run gets an entry in the list (its length, its first cell).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds, holds_value, view_boxes
from rangecast.engine.kernels import locate
from rangecast.model.kernels import copy_run
from rangecast.simd.compiler import allocating_kernel, kernel
from rangecast.simd.memory import ask, prefetch, prefetch_to_write, settle, view, view_rows

_LAST = np.iinfo(np.int64).max
_ROWS_AHEAD = 16


class Runs(NamedTuple):
    """The lists of constructs; engine/layouts/runs.py tells what the arrays are.

    The columns before n_whole hold whole cells of attribute `on`; only `checked` attributes are compared
    there.
    """

    on: int
    n_whole: int
    starts: npt.NDArray[Any]
    spans: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


class CellRanges(NamedTuple):
    """The cells of each box: all that it touches, first and last, and the whole ones begins .. ends - 1."""

    firsts: npt.NDArray[np.int32]
    lasts: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]


@kernel
def trim(lows, highs, cuts, ranges):
    """Write the whole cells of each box, whose first and last cells are there; returns how many cells are
    crossed."""
    firsts, lasts, begins, ends = ranges
    crossing = 0
    n = cuts.size
    for i in range(lows.size):
        a = firsts[i]
        b = lasts[i]
        end = cuts[b + 1] - 1 if b + 1 < n else _LAST
        begins[i] = a if lows[i] <= cuts[a] else a + 1
        ends[i] = b + 1 if end <= highs[i] else b
        if begins[i] > ends[i]:
            # one cell, crossed on both sides
            ends[i] = begins[i]
        crossing += (b + 1 - a) - (ends[i] - begins[i])
    return crossing


@kernel
def count_constructs(begins, ends, k, totals):
    """totals[l] = how many constructs of 2**l cells the ranges are cut into."""
    for i in range(begins.size):
        rest = np.int64(ends[i] - begins[i])
        totals[k] += rest >> k
        rest &= (np.int64(1) << k) - 1
        level = 0
        while rest > 0:
            totals[level] += rest & 1
            rest >>= 1
            level += 1


@kernel
def count_entries(ranges, k, columns, n_cells, starts):
    """starts (zeros, columns * n_cells + 1) becomes where each list ends; lists go column by column."""
    firsts, lasts, begins, ends = ranges
    crossed = columns[k + 1]
    for i in range(begins.size):
        a = np.int64(begins[i])
        rest = np.int64(ends[i]) - a
        level = k
        while rest > 0:
            while (np.int64(1) << level) > rest:
                level -= 1
            starts[columns[level] * n_cells + a + 1] += 1
            a += np.int64(1) << level
            rest -= np.int64(1) << level
        for c in range(firsts[i], begins[i]):
            starts[crossed * n_cells + c + 1] += 1
        for c in range(max(ends[i], begins[i]), lasts[i] + 1):
            starts[crossed * n_cells + c + 1] += 1
    for j in range(1, starts.size):
        starts[j] += starts[j - 1]


@kernel
def fill_entries(ranges, k, columns, n_cells, cursors, numbers, own_slots, runs):
    """Write each box into its lists: its slot, and its number among those of the last entries."""
    firsts, lasts, begins, ends = ranges
    slots = runs.slots
    boxes = runs.boxes
    crossed = columns[k + 1]
    skipped = slots.size - boxes.size
    for i in range(begins.size):
        box = numbers[i]
        slot = own_slots[i]
        a = np.int64(begins[i])
        rest = np.int64(ends[i]) - a
        level = k
        while rest > 0:
            while (np.int64(1) << level) > rest:
                level -= 1
            j = columns[level] * n_cells + a
            p = cursors[j]
            cursors[j] = p + 1
            slots[p] = slot
            if p >= skipped:
                boxes[p - skipped] = box
            a += np.int64(1) << level
            rest -= np.int64(1) << level
        for c in range(firsts[i], lasts[i] + 1):
            if begins[i] <= c < ends[i]:
                continue
            j = crossed * n_cells + c
            p = cursors[j]
            cursors[j] = p + 1
            slots[p] = slot
            boxes[p - skipped] = box


@kernel
def turn(flat, n_cells, starts):
    """From list starts column by column to rows of one cell's lists, so that a look-up reads few lines."""
    for c in range(n_cells + 1):
        for j in range(starts.shape[1]):
            starts[c, j] = flat[j * n_cells + c]


@kernel
def sweep(runs, dead, out):
    """The lists without dead slots, into the arrays of other runs; returns how many entries and boxes are
    left."""
    starts = runs.starts
    slots = runs.slots
    boxes = runs.boxes
    new_starts = out.starts
    new_slots = out.slots
    new_boxes = out.boxes
    skipped = slots.size - boxes.size
    p = np.int64(0)
    b = np.int64(0)
    for j in range(starts.shape[1]):
        for c in range(starts.shape[0] - 1):
            new_starts[c, j] = p
            for q in range(starts[c, j], starts[c + 1, j]):
                new_slots[p] = slots[q]
                alive = 1 - np.int64(dead[np.uint32(slots[q])])
                p += alive
                if q >= skipped:
                    new_boxes[b] = boxes[q - skipped]
                    b += alive
        new_starts[starts.shape[0] - 1, j] = p
    return p, b


@kernel
def count(order, cells, runs, counts):
    """counts[e] = how many candidates event e has; events are looked at in an order."""
    spans = runs.spans
    starts = runs.starts
    for i in range(order.size):
        e = order[i]
        c = np.int64(cells[e])
        total = np.int64(0)
        for j in range(spans.size):
            total += np.int64(starts[c + 1, j]) - np.int64(starts[max(c + 1 - spans[j], 0), j])
        counts[e] = total


@kernel
def copy(order, scattered, cells, runs, places, add, past, out):
    """Nothing to check: per event, one slice of slots for each length of construct, with `add` added.

    `scattered` when the order of the events does not follow the cells: the next slices are then asked
    for ahead. `past` writes past the caches.
    """
    spans = runs.spans
    starts = runs.starts
    slots = runs.slots
    n_columns = np.int64(spans.size)
    for i in range(order.size):
        # two events ahead where the slices begin and end, one event ahead what is in them: each is on its way
        # while the event before is copied
        if scattered and i + 2 < order.size:
            c = np.int64(cells[order[i + 2]])
            prefetch(starts, (c + 1) * n_columns)
            for j in range(n_columns):
                prefetch(starts, max(c + 1 - spans[j], 0) * n_columns + j)
        if scattered and i + 1 < order.size:
            c = np.int64(cells[order[i + 1]])
            for j in range(n_columns):
                ask(slots, np.int64(starts[max(c + 1 - spans[j], 0), j]), np.int64(starts[c + 1, j]))
        # a small part writes a few entries behind those of a large one: each row would be waited for
        if not past and i + _ROWS_AHEAD < order.size:
            prefetch_to_write(out, np.uint64(places[order[i + _ROWS_AHEAD]]))
        e = order[i]
        c = np.int64(cells[e])
        p = places[e]
        for j in range(n_columns):
            a = np.int64(starts[max(c + 1 - spans[j], 0), j])
            p = copy_run(slots, a, np.int64(starts[c + 1, j]) - a, add, past, out, p)
    settle()


@kernel
def copy_some(cells, runs, limit, offsets, out):
    """As `copy`, one event after the other, until it has as many as the limit. Returns how many there are."""
    p = np.int64(0)
    for e in range(cells.size):
        offsets[e] = p
        c = np.int64(cells[e])
        for j in range(runs.spans.size):
            a = np.int64(runs.starts[max(c + 1 - runs.spans[j], 0), j])
            n = min(np.int64(runs.starts[c + 1, j]) - a, limit - (p - offsets[e]))
            p = copy_run(runs.slots, a, n, np.int32(0), False, out, p)
    offsets[cells.size] = p
    return p


@kernel
def check(codes, cells, runs, own_boxes, offsets, out):
    """As `copy`, but check what must be; offsets are rewritten. Returns the number of matches."""
    boxes = view_boxes(own_boxes)
    on = runs.on
    spans = runs.spans
    starts = runs.starts
    checked = runs.checked
    skipped = runs.slots.size - runs.boxes.size
    p = np.int64(0)
    for e in range(cells.size):
        offsets[e] = p
        c = np.int64(cells[e])
        v = codes[on, e]
        for j in range(spans.size):
            first = np.int64(starts[max(c + 1 - spans[j], 0), j])
            last = np.int64(starts[c + 1, j])
            whole = j < runs.n_whole
            if whole and checked.size == 0:
                p = copy_run(runs.slots, first, last - first, np.int32(0), False, out, p)
                continue
            for q in range(first, last):
                box = runs.boxes[q - skipped]
                hit = whole or holds_value(boxes, box, on, v)
                hit = hit and (checked.size == 0 or holds(boxes, box, codes, checked, e))
                out[p] = runs.slots[q]
                p += hit
    offsets[cells.size] = p
    return p


@allocating_kernel
def stab_few(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/layouts/runs.py.

    Returns how many entries there are, or where `out` has less room than they might take, minus that.
    """
    head = view(part[0], np.int64)
    # in the order of the fields
    runs = Runs(
        head[0],
        head[1],
        view_rows(part[2], np.int32),
        view(part[3], np.int64),
        view(part[4], np.int32),
        view(part[5], np.int32),
        view(part[6], np.int64),
    )
    values = codes[runs.on]
    cells = np.empty(values.size, np.int32)
    locate(values, view(part[1], np.int64), head[2], head[3], cells)
    room = np.int64(0)
    for e in range(cells.size):
        c = np.int64(cells[e])
        for j in range(runs.spans.size):
            room += runs.starts[c + 1, j] - runs.starts[max(c + 1 - runs.spans[j], 0), j]
    if room > out.size:
        return -room
    return check(codes, cells, runs, own_boxes, offsets, out)
