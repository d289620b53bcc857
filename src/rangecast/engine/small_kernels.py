"""One event at a time, where a batch's kernel would spend its time on what a batch needs.

Bitmaps look only at the blocks that may hold the event, few attributes first: a batch finds the bitsets of a
block in the cache and had better take all at once, one event fetches every line. Lists by leading entry
collect in as much room as the event's own lists have records. Lists by value, sorted ones and a small bitmap
beside them are asked in one call, for calling costs more than looking.

Each kernel takes the arrays of a part as a table of views (simd/memory.py), in the order that the
part's module says, and writes the boxes that hold the event. It returns how many there are, or where `out`
has too little room, minus what is surely enough.
"""

from __future__ import annotations

import numpy as np

from rangecast.engine.boxes_kernels import holds, view_boxes
from rangecast.engine.layouts import lists_kernels, sorted_lists_kernels
from rangecast.engine.layouts.bitmap_kernels import BitmapBlocks, choose_blocks
from rangecast.engine.layouts.leads_kernels import (
    NUMBERS,
    CellFinder,
    LeadLists,
    Room,
    find_lists,
    find_lists_of_entries,
    stab_rows,
)
from rangecast.engine.packed_kernels import pack_values
from rangecast.simd.bytes import compare_fields, compare_rests
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import WORDS, and_cells, lowest
from rangecast.simd.memory import prefetch, scratch, view, view_rows

_FIRST = 4
_BLOCK = 64 * WORDS
_SHORTEST = 2
_ON_STACK = 256
LEADS_ATTRIBUTES = 1024
_LEADS_RECORDS = 2048
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = ~_NONE


@kernel
def _verify(blocks, points, codes, boxes, first, last, out):
    """Keep the rows of out[first:last] whose boxes hold the event; returns where the last one ends.

    By their fields, those that have an end in the event's middle cell by the rests too, and those in its fine
    cell by codes.
    """
    own = np.uint64(0)
    p = first
    for q in range(first, last):
        row = np.uint64(out[q])
        held = compare_fields(blocks.bounds, row, points[0], own, blocks.unsure[0])
        if held == 1:
            held = compare_rests(
                blocks.bounds, blocks.rests, row, points[0], own, blocks.unsure[1], points[1]
            )
            if held == 1 and holds(boxes, blocks.boxes[row], codes, blocks.boxes, np.int64(0)):
                held = 2
        out[p] = out[q]
        p += held == 2
    return p


@allocating_kernel
def stab_bitmap(part, own_boxes, codes, offsets, out):
    """The boxes of a bitmap that hold an event; `part` is the table of engine/layouts/bitmap.py."""
    # in the order of the fields
    blocks = BitmapBlocks(
        view(part[0], np.int32),
        view_rows(part[1], np.uint8),
        view_rows(part[2], np.uint8),
        view(part[3], np.uint8),
        view(part[4], np.int64),
        view_rows(part[5], np.uint64),
        view_rows(part[6], np.int32),
        view_rows(part[7], np.int32),
        view(part[8], np.int32),
        view(part[9], np.int64),
        view_rows(part[10], np.uint64),
        view(part[11], np.int64),
        view(part[12], np.uint8),
        view(part[13], np.int32),
        view_rows(part[14], np.uint8),
    )
    boxes = view_boxes(own_boxes)
    n_attributes = blocks.top_bases.size
    n_blocks = blocks.n_block_attributes.size
    width = blocks.bounds.shape[1]
    # what the event is: its fields, its cells, the blocks that may hold it
    # on the stack where it fits: memory of one's own is counted by who holds it
    n_values = max(1, (n_attributes + 1) >> 1)
    n_tops = blocks.tops.shape[1]
    n_words = n_values + 2 * n_tops
    words = scratch(_ON_STACK, np.uint64) if n_words <= _ON_STACK else np.empty(n_words, np.uint64)
    n_bytes = n_attributes + 2 * width
    fields = scratch(_ON_STACK, np.uint8) if n_bytes <= _ON_STACK else np.empty(n_bytes, np.uint8)
    n_rows = 2 * n_attributes
    rows = scratch(_ON_STACK, np.int64) if n_rows <= _ON_STACK else np.empty(n_rows, np.int64)
    values = words[:n_values].reshape((1, n_values))
    pack_values(codes, view_rows(part[15], np.int64), values)
    points = fields[: 2 * width].reshape((2, 1, width))
    cells = fields[2 * width : n_bytes].reshape((1, n_attributes))
    line = words[n_values : n_values + n_tops]
    chosen = words[n_values + n_tops : n_words]
    choose_blocks(values, blocks, cells, points, line, chosen.reshape((n_tops, 1)))
    attributes = rows[:n_attributes]
    bases = rows[n_attributes:n_rows]
    left = scratch(WORDS, np.uint64)
    # rows are collected over blocks, so that their bounds are on the way while others are looked for
    done = np.int64(0)
    n = np.int64(0)
    for word in range(chosen.size):
        here = chosen[word]
        while here != _NONE:
            b = 64 * word + lowest(here)
            here &= here - _ONE
            if b >= n_blocks:  # without attributes all bits are set
                break
            first = b * _BLOCK
            size = min(blocks.boxes.size - first, _BLOCK)
            own = np.int64(blocks.n_block_attributes[b])
            for q in range(own):
                attributes[q] = blocks.block_attributes[b, q]
                bases[q] = blocks.row_bases[b, attributes[q]]
            if own > 0:
                upto = min(own, np.int64(_FIRST))
                some = and_cells(blocks.bits, bases, attributes, cells, np.int64(0), np.int64(0), upto, left)
                if own > _FIRST and some != _NONE:
                    some = and_cells(blocks.bits, bases, attributes, cells, np.int64(0), upto, own, left)
            else:
                some = (_ONE << np.uint64((size + 63) >> 6)) - _ONE
                for w in range((size + 63) >> 6):
                    left[w] = _ALL >> np.uint64(64 - min(size - 64 * w, 64))
            if some == _NONE:
                continue
            if n + size > out.size:
                n = _verify(blocks, points, codes, boxes, done, n, out)
                done = n
                if n + size > out.size:
                    return -(blocks.boxes.size + _BLOCK + 1)
            while some != _NONE:
                w = lowest(some)
                some &= some - _ONE
                x = left[w]
                at = first + 64 * w
                while x != _NONE:
                    row = at + lowest(x)
                    x &= x - _ONE
                    out[n] = row
                    n += 1
                    prefetch(blocks.bounds, row * width)
                    prefetch(blocks.bounds, row * width + width - 1)
    n = _verify(blocks, points, codes, boxes, done, n, out)
    for q in range(n):
        out[q] = blocks.boxes[out[q]]
    offsets[0] = 0
    offsets[1] = n
    return n


@inlined_kernel
def _view_leads(part):
    # in the order of the fields
    lists = LeadLists(
        view(part[0], np.int32),
        view(part[1], np.int64),
        view(part[2], np.int64),
        view(part[3], np.int64),
        view(part[4], np.uint32),
        view(part[5], np.int32),
        view(part[6], np.int32),
        view(part[7], np.int64),
        view(part[8], np.uint8),
        view(part[9], np.int64),
    )
    finder = CellFinder(
        view(part[10], np.int32),
        view(part[11], np.uint8),
        view(part[12], np.int32),
        view(part[13], np.int64),
        view(part[14], np.uint64),
        view(part[15], np.uint64),
    )
    return lists, finder


@inlined_kernel
def _stab_leads(lists, finder, boxes, room, out):
    """Write what the lists hold that were found of an event; -1 where there is too little room."""
    most = np.int64(1)
    for r in range(room.counts[0]):
        cell = room.cells[0, r]
        most += (lists.starts[cell + 1] - lists.starts[cell]) // _SHORTEST
    if most > room.found.size:
        return np.int64(-1)
    offsets = scratch(2, np.int64)
    offsets[0] = 0
    done = stab_rows(lists, finder, boxes, np.int64(0), np.int64(1), room, offsets, out)
    return offsets[1] if done else np.int64(-1)


@kernel
def stab_leads(part, own_boxes, codes, out):
    """The slots in lists by leading entry that an event matches; `part` is the table of
    engine/layouts/leads.py.

    Returns how many there are, or -1 where there is too little room: for attributes, for records or for them.
    """
    lists, finder = _view_leads(part)
    boxes = view_boxes(own_boxes)
    if boxes.bases.size > LEADS_ATTRIBUTES:
        return np.int64(-1)
    # on the stack: memory of one's own would be a seventh of the time, with the counts that it needs
    rows, whole = scratch(LEADS_ATTRIBUTES, np.uint64), scratch(LEADS_ATTRIBUTES, np.int64)
    cells, wide = scratch(LEADS_ATTRIBUTES, np.int64), (1, LEADS_ATTRIBUTES)
    counts, found = scratch(1, np.int64), scratch(_LEADS_RECORDS, np.int64)
    heads, order = scratch(_LEADS_RECORDS, np.uint32), scratch(_LEADS_RECORDS, np.int32)
    ends, left = scratch(NUMBERS, np.int64), scratch(_LEADS_RECORDS, np.int64)
    rows_are = rows.reshape(wide), whole.reshape(wide), cells.reshape(wide)
    room = Room(*rows_are, counts, found, heads, order, ends, left)
    find_lists(codes, lists, finder, np.int64(0), np.int64(1), room)
    return _stab_leads(lists, finder, boxes, room, out)


@kernel
def stab_leads_entries(part, own_boxes, starts, attributes, codes, out):
    """The same of an event by what it says."""
    lists, finder = _view_leads(part)
    boxes = view_boxes(own_boxes)
    if boxes.bases.size > LEADS_ATTRIBUTES:
        return np.int64(-1)
    rows, whole = scratch(LEADS_ATTRIBUTES, np.uint64), scratch(LEADS_ATTRIBUTES, np.int64)
    cells, wide = scratch(LEADS_ATTRIBUTES, np.int64), (1, LEADS_ATTRIBUTES)
    counts, found = scratch(1, np.int64), scratch(_LEADS_RECORDS, np.int64)
    heads, order = scratch(_LEADS_RECORDS, np.uint32), scratch(_LEADS_RECORDS, np.int32)
    ends, left = scratch(NUMBERS, np.int64), scratch(_LEADS_RECORDS, np.int64)
    rows_are = rows.reshape(wide), whole.reshape(wide), cells.reshape(wide)
    room = Room(*rows_are, counts, found, heads, order, ends, left)
    find_lists_of_entries(starts, attributes, codes, lists, finder, np.int64(0), np.int64(1), room)
    return _stab_leads(lists, finder, boxes, room, out)


@allocating_kernel
def stab_lists(parts, own_boxes, codes, offsets, out):
    """The boxes of several lists that hold an event, one after the other.

    parts[0] has how many of the tables behind it are of sorted lists; the others are of lists by value.
    """
    n_sorted = view(parts[0], np.int64)[0]
    p = 0
    for k in range(1, parts.shape[0]):
        table = view_rows(parts[k], np.int64)
        if k <= n_sorted:
            n = sorted_lists_kernels.stab_few(table, own_boxes, codes, offsets, out[p:])
        else:
            n = lists_kernels.stab_either(table, own_boxes, codes, offsets, out[p:])
        if n < 0:
            return n - 4 * out.size
        p += n
    offsets[0] = 0
    offsets[1] = p
    return p


@allocating_kernel
def stab_lists_and_bitmap(parts, own_boxes, codes, offsets, out):
    """The same with a bitmap, whose table is the last."""
    last = parts.shape[0] - 1
    p = stab_lists(parts[:last], own_boxes, codes, offsets, out)
    if p < 0:
        return p
    n = stab_bitmap(view_rows(parts[last], np.int64), own_boxes, codes, offsets, out[p:])
    if n < 0:
        return n - 4 * out.size
    offsets[0] = 0
    offsets[1] = p + n
    return p + n
