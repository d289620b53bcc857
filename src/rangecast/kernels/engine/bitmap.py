"""Bitsets per block, attribute and cell: building them, and running a batch through block by block.

engine/bitmap.py tells what the arrays are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels import allocating_kernel, inlined_kernel, kernel
from rangecast.kernels.engine.boxes import first_word, holds, view_boxes
from rangecast.kernels.engine.packed_bounds import GUARDS
from rangecast.kernels.machine.bitsets import WORDS, and_cells, lowest
from rangecast.kernels.machine.memory import prefetch, scratch

_FIRST, _NEXT = 12, 8
_AHEAD = 16
_PENDING = 256
_BLOCK = 64 * WORDS
_ROOM = _PENDING + _BLOCK + 1
_QUEUED = 32
_PLACES = _QUEUED + 1
_LEFTS = (_QUEUED + 1) * WORDS
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = ~_NONE
_EVERY = np.int64(np.iinfo(np.int64).max)


class BitmapBlocks(NamedTuple):
    """Blocks of boxes and their bitsets; engine/bitmap.py tells what the arrays are."""

    boxes: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.uint64]
    tables: npt.NDArray[np.uint8]
    table_starts: npt.NDArray[np.int64]
    bits: npt.NDArray[np.uint64]
    row_bases: npt.NDArray[np.int32]
    block_attributes: npt.NDArray[np.int32]
    n_block_attributes: npt.NDArray[np.int32]
    block_rows: npt.NDArray[np.int64]
    tops: npt.NDArray[np.uint64]
    top_bases: npt.NDArray[np.int64]
    coarse: npt.NDArray[np.uint8]


@kernel
def count_ends(firsts, lasts, n_cells, counts):
    """counts[c] = how many intervals begin in the cell c or end just before it, the outer ends left out."""
    for i in range(firsts.size):
        if firsts[i] > 0:
            counts[firsts[i]] += 1
        if lasts[i] + 1 < n_cells:
            counts[lasts[i] + 1] += 1


@kernel
def block_spans(firsts, lasts, order, n_cells, sums):
    """sums[b] += the share of cells that the intervals of block b touch; returns nothing."""
    per_block = WORDS * 64
    for k in range(order.size):
        i = order[k]
        sums[k // per_block] += (lasts[i] - firsts[i] + 1) / n_cells


@kernel
def fill_rows(firsts, lasts, order, row_bases, attribute, n_cells, bits):
    """Set the bits of one attribute: in the rows of all cells that an interval touches.

    A bit is toggled in the first row and in the row after the last; then each row takes over the bits
    of the row before it.
    """
    per_block = WORDS * 64
    for k in range(order.size):
        base = row_bases[k // per_block, attribute]
        if base < 0:
            continue
        i = order[k]
        w = (k % per_block) >> 6
        bit = _ONE << np.uint64(k & 63)
        bits[base + firsts[i], w] ^= bit
        if lasts[i] + 1 < n_cells:
            bits[base + lasts[i] + 1, w] ^= bit
    for b in range(row_bases.shape[0]):
        base = row_bases[b, attribute]
        if base >= 0:
            for c in range(1, n_cells):
                for w in range(WORDS):
                    bits[base + c, w] ^= bits[base + c - 1, w]


@allocating_kernel
def fill_tops(firsts, lasts, order, n_cells, tops):
    """tops[c]: the blocks that have somebody in the middle cell c, as a bitset."""
    per_block = WORDS * 64
    marks = np.empty(n_cells + 1, np.int32)
    for b in range((order.size + per_block - 1) // per_block):
        marks[:] = 0
        for k in range(b * per_block, min((b + 1) * per_block, order.size)):
            i = order[k]
            marks[firsts[i]] += 1
            marks[lasts[i] + 1] -= 1
        inside = 0
        for c in range(n_cells):
            inside += marks[c]
            if inside > 0:
                tops[c, b >> 6] |= _ONE << np.uint64(b & 63)


@kernel
def choose_blocks(values, blocks, cells, line, chosen):
    """cells[e, k] = event e's coarse cell; chosen[:, e] = the blocks that may hold it, as a bitset.

    Words of 64 blocks lie event beside event, for that is how they are read; `line` has room for those of one
    event.
    """
    tables = blocks.tables
    table_starts = blocks.table_starts
    tops = blocks.tops
    top_bases = blocks.top_bases
    coarse = blocks.coarse
    for e in range(cells.shape[0]):
        line[:] = _ALL
        for k in range(cells.shape[1]):
            fine = np.int64((values[e, k >> 1] >> np.uint64(32 * (k & 1))) & np.uint64(0x7FFF)) - 1
            middle = top_bases[k] + tables[table_starts[k] + fine]
            cells[e, k] = coarse[middle]
            top = tops[middle]
            for w in range(line.size):
                line[w] &= top[w]
        for w in range(line.size):
            chosen[w, e] = line[w]


@kernel
def _expand(left, some, first, e, rows, events, k):
    """Append the numbers of all bits that are set, counted from `first`, and the event to each; returns how
    many there are then. `some` tells the words that have any."""
    while some != _NONE:
        w = lowest(some)
        some &= some - _ONE
        x = left[w]
        at = first + 64 * w
        if x == _ALL:
            run = rows[k : k + 64]
            own = events[k : k + 64]
            for b in range(64):
                run[b] = at + b
                own[b] = e
            k += 64
            continue
        while x != _NONE:
            rows[k] = at + lowest(x)
            events[k] = e
            x &= x - _ONE
            k += 1
    return k


@inlined_kernel
def _keeps(values, e, bounds, row):
    """Whether no field of a box's row exceeds the event's, whose guards are set."""
    held = GUARDS
    for w in range(bounds.shape[1]):
        held &= values[e, w] - bounds[row, w]
    return held == GUARDS


@kernel
def _verify(bounds, guarded, codes, boxes, theirs, inexact, n, rows, events, p, out, out_events):
    """Write which of n candidates hold their event, from the place p on; returns the place behind them.

    guarded[0] has the words of events with their guards set, guarded[1] the same less one in each field that
    needs a look at codes when a cell is that of an end.
    """
    n_words = bounds.shape[1]
    values = guarded[0]
    start = p
    for q in range(n):
        # rows are seldom in cache: they are asked for so early that they are there in time
        ahead = np.int64(rows[min(q + _AHEAD, n - 1)]) * n_words
        prefetch(bounds, ahead)
        prefetch(bounds, ahead + n_words - 1)
        row = np.uint64(rows[q])
        e = np.uint64(events[q])
        out[p] = rows[q]
        out_events[p] = events[q]
        p += _keeps(values, e, bounds, row)
    if inexact.size == 0:
        return p
    surely = guarded[1]
    upto = p
    p = start
    unsure = 0
    for q in range(start, upto):
        row = out[q]
        e = out_events[q]
        known = _keeps(surely, np.uint64(e), bounds, np.uint64(row))
        out[p] = row
        out_events[p] = e
        p += known
        rows[unsure] = row
        events[unsure] = e
        unsure += not known
    for q in range(unsure):
        # where events have the very values that boxes ask for, all of them come here
        if q + _AHEAD < unsure:
            box = boxes[rows[q + _AHEAD]]
            prefetch(theirs.words, first_word(theirs.starts, theirs.stride, box))
        row = rows[q]
        if holds(theirs, boxes[row], codes, inexact, np.int64(events[q])):
            out[p] = row
            out_events[p] = events[q]
            p += 1
    return p


@kernel
def stab_blocks(
    blocks, guarded, cells, chosen, codes, own_boxes, ones, inexact, state, room, out_events, out
):  # fmt: skip
    """Emit the rows of boxes that hold an event, and the event of each, block by block.

    The events come as packed values, with as much room again; their cells and blocks are written by the first
    call. state[0] is the block to go on with and state[3] the event of it, by its place among those that look
    at the block; state[1] counts rows written, state[2] candidates; returns False when there may be no room
    for another block's. An event for which a block gave state[4] rows is done. `room` has a place for each
    event, two for each attribute and one for each word of blocks.

    Candidates are collected over events and blocks, and compared when there are some hundreds of them.

    Codes and the fields of packed words come one by one, and the boxes as their table of views: each
    NamedTuple costs a call 1 us, which is nothing to a batch, but four of them are a sixth of a match of one
    event.
    """
    m = cells.shape[0]
    own = room[:m]
    attributes = room[m : m + cells.shape[1]]
    bases = room[m + cells.shape[1] : m + 2 * cells.shape[1]]
    if state[0] == 0 and state[3] == 0:
        choose_blocks(guarded[0], blocks, cells, room[m + 2 * cells.shape[1] :].view(np.uint64), chosen)
        for e in range(m):
            for w in range(ones.size):
                guarded[1, e, w] = (guarded[0, e, w] - ones[w]) | GUARDS
                guarded[0, e, w] |= GUARDS
    theirs = view_boxes(own_boxes)
    boxes = blocks.boxes
    bounds = blocks.bounds
    block_attributes = blocks.block_attributes
    n_block_attributes = blocks.n_block_attributes
    block_rows = blocks.block_rows
    row_bases = blocks.row_bases
    bits = blocks.bits
    n_blocks = n_block_attributes.size
    lefts = scratch(_LEFTS, np.uint64)
    somes = scratch(_PLACES, np.uint64)
    places = scratch(_PLACES, np.int64)
    # one place more: what is no candidate is written behind the last one
    rows = scratch(_ROOM, np.int32)
    events = scratch(_ROOM, np.int32)
    n_found = np.int64(0)
    more = np.int64(0)
    looked = np.int64(0)
    p = state[1]
    limit = state[4]
    for b in range(state[0], n_blocks):
        begun = p
        column = chosen[b >> 6]
        up = np.uint64(b & 63)
        n = n_block_attributes[b]
        first = b * WORDS * 64
        size = min(boxes.size - first, WORDS * 64)
        for q in range(n):
            attributes[q] = block_attributes[b, q]
            bases[q] = row_bases[b, block_attributes[b, q]]
        # without a branch: which events look at a block follows no pattern
        n_own = np.int64(0)
        for e in range(m):
            own[n_own] = e
            n_own += np.int64((column[e] >> up) & _ONE)
        # the rows of the next block come while the events of this one are looked at
        coming = WORDS * block_rows[b + 1]
        until = WORDS * block_rows[b + 2] if m > 64 and b + 1 < n_blocks else coming
        step = ((until - coming) // max(n_own, 1) + 8) & -8
        # where most had bits left after the first ones, all at once; asked again now and then
        at_once = n if 2 * more > looked else min(n, _FIRST)
        if at_once < n or b & 15 == 0:
            more = np.int64(0)
            looked = n_own
        for since in range(state[3], n_own, _QUEUED):
            # who has bits left is put down without a branch, for nothing tells it beforehand
            queued = np.int64(0)
            behind = np.int64(since + _QUEUED)
            if behind > n_own:
                behind = n_own
            for i in range(since, behind):
                e = own[i]
                for _ in range(0, min(step, until - coming), 8):
                    prefetch(bits, coming)
                    coming += 8
                left = lefts[WORDS * queued : WORDS * (queued + 1)]
                if n > 0:
                    # so many at once that mostly nothing is left; the most selective ones come first
                    k = at_once
                    some = and_cells(bits, bases, attributes, cells, e, 0, k, left)
                    more += k < n and some != _NONE
                    while k < n and some != _NONE:
                        upto = min(n, k + _NEXT)
                        some = and_cells(bits, bases, attributes, cells, e, k, upto, left)
                        k = upto
                else:
                    n_words = (size + 63) >> 6
                    some = (_ONE << np.uint64(n_words)) - _ONE
                    for w in range(n_words):
                        left[w] = _ALL >> np.uint64(64 - min(size - 64 * w, 64))
                places[queued] = i
                somes[queued] = some
                queued += some != _NONE
            for j in range(queued):
                if n_found >= _PENDING or p + n_found + size >= out.size:
                    state[2] += n_found
                    p = _verify(
                        bounds, guarded, codes, boxes, theirs, inexact, n_found, rows, events, p, out,
                        out_events,
                    )  # fmt: skip
                    n_found = np.int64(0)
                    if p + size >= out.size:
                        state[0] = b
                        state[1] = p
                        state[3] = places[j]
                        return False
                # what the bitsets leave shares a coarse cell with the event; packed bounds say who holds it
                left = lefts[WORDS * j : WORDS * (j + 1)]
                event = np.int32(own[places[j]])
                n_found = _expand(left, somes[j], first, event, rows, events, n_found)
        state[3] = 0
        if limit != _EVERY:
            state[2] += n_found
            p = _verify(
                bounds, guarded, codes, boxes, theirs, inexact, n_found, rows, events, p, out, out_events
            )
            n_found = np.int64(0)
            _leave_out(out_events[begun:p], limit, b, chosen)
    state[2] += n_found
    p = _verify(bounds, guarded, codes, boxes, theirs, inexact, n_found, rows, events, p, out, out_events)
    state[0] = n_blocks
    state[1] = p
    return True


@kernel
def _leave_out(events, limit, b, chosen):
    """Where an event stands in `limit` places in a row, it looks at no block behind b."""
    word = b >> 6
    q = 0
    while q < events.size:
        e = events[q]
        start = q
        while q < events.size and events[q] == e:
            q += 1
        if q - start >= limit:
            chosen[word, e] &= _ALL >> np.uint64(63 - (b & 63))
            for w in range(word + 1, chosen.shape[0]):
                chosen[w, e] = _NONE


@kernel
def count_events(events, n, counts):
    """counts[e] = how many of the first n entries are of event e; counts start as zeros."""
    for q in range(n):
        counts[np.uint64(events[q])] += 1


@kernel
def place_rows(events, n, rows, boxes, places, add, out):
    """Write the box of each row, with `add` added, to its event's place, which moves on by one."""
    for q in range(n):
        if q + _AHEAD < n:
            prefetch(boxes, np.int64(rows[q + _AHEAD]))
        e = np.uint64(events[q])
        p = places[e]
        out[np.uint64(p)] = boxes[np.uint64(rows[q])] + add
        places[e] = p + 1
