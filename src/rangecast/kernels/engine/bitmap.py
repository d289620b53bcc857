"""Bitsets per block, attribute and cell: building them, and running a batch through block by block.

engine/bitmap.py tells what the arrays are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels import allocating_kernel, kernel
from rangecast.kernels.engine.boxes import first_word, holds, view_boxes
from rangecast.kernels.engine.packed_bounds import GUARDS, pack_values
from rangecast.kernels.machine.bitsets import WORDS, and_cells
from rangecast.kernels.machine.memory import prefetch, scratch
from rangecast.kernels.machine.views import view, view_rows

_FIRST, _NEXT = 12, 8
_AHEAD = 8
_BLOCK = 64 * WORDS
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = ~_NONE
_EVERY = np.int64(np.iinfo(np.int64).max)
_SEQUENCE = np.uint64(0x03F7_9D71_B4CB_0A89)  # de Bruijn's: every six bits in a row are different
_POSITIONS = np.zeros(64, np.int32)
_POSITIONS[[(int(_SEQUENCE) << k & 2**64 - 1) >> 58 for k in range(64)]] = np.arange(64)


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
def choose_blocks(values, blocks, cells, chosen):
    """cells[e, k] = event e's coarse cell; chosen[e] = the blocks that may hold it, as a bitset."""
    tables = blocks.tables
    table_starts = blocks.table_starts
    tops = blocks.tops
    top_bases = blocks.top_bases
    coarse = blocks.coarse
    for e in range(cells.shape[0]):
        row = chosen[e]
        for k in range(cells.shape[1]):
            fine = np.int64((values[e, k >> 1] >> np.uint64(32 * (k & 1))) & np.uint64(0x7FFF)) - 1
            middle = top_bases[k] + tables[table_starts[k] + fine]
            cells[e, k] = coarse[middle]
            top = tops[middle]
            for w in range(row.size):
                row[w] &= top[w]


@kernel
def lowest(x):
    """The position of the lowest bit that is set."""
    # that bit alone times the sequence moves each window of six bits to the top once
    return _POSITIONS[((x & (~x + _ONE)) * _SEQUENCE) >> np.uint64(58)]


@kernel
def _touch(array, first, last):
    """Read a word of every cache line of some rows, in order, which memory delivers fastest."""
    seen = _NONE
    for r in range(first, last):
        for q in range(0, array.shape[1], 8):
            seen |= array[r, q]
    return seen


@kernel
def _expand(left, n_words, first, found):
    """found = the numbers of all bits that are set, counted from `first`; returns how many."""
    k = 0
    for w in range(n_words):
        x = left[w]
        at = first + 64 * w
        if x == _ALL:
            run = found[k : k + 64]
            for b in range(64):
                run[b] = at + b
            k += 64
            continue
        while x != _NONE:
            found[k] = at + lowest(x)
            x &= x - _ONE
            k += 1
    return k


@kernel
def stab_blocks(
    blocks, values, cells, chosen, codes, own_boxes, ones, inexact, state, room, run_events, run_ends, out
):  # fmt: skip
    """Emit the rows of boxes that hold an event, block by block: a run for each block and
    event, out[run_ends[r - 1] : run_ends[r]], which begins at 0 for the first.

    The events come as packed values; their cells and blocks are written by the first call. state[0] is the
    block to go on with, state[1] counts rows written, state[2] candidates, state[4] runs; returns False when
    there may be no room for another block. An event for which a block gave state[5] rows is done.
    `room` has a place for each event and two for each attribute.

    Codes and the fields of packed words come one by one, and the boxes as their table of views: each
    NamedTuple costs a call 1 us, which is nothing to a batch, but four of them are a sixth of a match of one
    event.
    """
    if state[0] == 0:
        choose_blocks(values, blocks, cells, chosen)
    theirs = view_boxes(own_boxes)
    boxes = blocks.boxes
    bounds = blocks.bounds
    block_attributes = blocks.block_attributes
    n_block_attributes = blocks.n_block_attributes
    block_rows = blocks.block_rows
    row_bases = blocks.row_bases
    bits = blocks.bits
    m = cells.shape[0]
    n_blocks = n_block_attributes.size
    own = room[:m]
    attributes = room[m : m + cells.shape[1]]
    bases = room[m + cells.shape[1] :]
    left = scratch(WORDS, np.uint64)
    found = scratch(_BLOCK, np.int64)
    p = state[1]
    runs = state[4]
    candidates = state[2]
    limit = state[5]
    seen = _NONE
    found_before = 0
    for b in range(state[0], n_blocks):
        word = b >> 6
        up = np.uint64(b & 63)
        n = n_block_attributes[b]
        first = b * WORDS * 64
        size = min(boxes.size - first, WORDS * 64)
        n_words = (size + 63) >> 6
        before = p
        runs_before = runs
        candidates_before = candidates
        if m > 64 and b == state[0]:
            seen |= _touch(bits, block_rows[b], block_rows[b + 1])
        if found_before > size // 16:
            seen |= _touch(bounds, first, first + size)
        for q in range(n):
            attributes[q] = block_attributes[b, q]
            bases[q] = row_bases[b, block_attributes[b, q]]
        # without a branch: which events look at a block follows no pattern
        n_own = np.int64(0)
        for e in range(m):
            own[n_own] = e
            n_own += np.int64((chosen[e, word] >> up) & _ONE)
        # the rows of the next block come while the events of this one are looked at
        coming = WORDS * block_rows[b + 1]
        until = WORDS * block_rows[b + 2] if m > 64 and b + 1 < n_blocks else coming
        step = ((until - coming) // max(n_own, 1) + 8) & -8
        for i in range(n_own):
            e = own[i]
            for _ in range(0, min(step, until - coming), 8):
                prefetch(bits, coming)
                coming += 8
            if p + size >= out.size or runs >= run_ends.size:
                # what this block wrote is given up, so that the next call can begin with it
                state[0] = b
                state[1] = before
                state[2] = candidates_before
                state[4] = runs_before
                return False
            if n > 0:
                # so many at once that mostly nothing is left: a branch that goes either way costs more than
                # four rows, and the most selective ones come first
                k = min(n, _FIRST)
                some = and_cells(bits, bases, attributes, cells, e, 0, k, left)
                while k < n and some != _NONE:
                    upto = min(n, k + _NEXT)
                    some = and_cells(bits, bases, attributes, cells, e, k, upto, left)
                    k = upto
            else:
                some = _ONE
                for w in range(n_words):
                    here = min(size - 64 * w, 64)
                    left[w] = _ALL >> np.uint64(64 - here)
            if some == _NONE:
                continue
            # what the bitsets leave shares a coarse cell with the event; the packed bounds say who holds it
            k = _expand(left, n_words, first, found)
            candidates += k
            start = p
            if inexact.size == 0:
                for q in range(k):
                    row = found[q]
                    held = GUARDS
                    for w in range(bounds.shape[1]):
                        held &= (values[e, w] | GUARDS) - bounds[row, w]
                    out[p] = row
                    p += (held & GUARDS) == GUARDS
            else:
                # all words of a row, without a branch: rows are seldom in cache, and so several are on
                # their way at a time (leaving at the first word that fails: 1.2 times on REIN's workload)
                unsure = 0
                for q in range(k):
                    row = found[q]
                    held = GUARDS
                    sure = GUARDS
                    for w in range(bounds.shape[1]):
                        held &= (values[e, w] | GUARDS) - bounds[row, w]
                        sure &= ((values[e, w] - ones[w]) | GUARDS) - bounds[row, w]
                    out[p] = row
                    p += (sure & GUARDS) == GUARDS
                    found[unsure] = row
                    unsure += ((held & GUARDS) == GUARDS) & ((sure & GUARDS) != GUARDS)
                for q in range(unsure):
                    # where events have the very values that boxes ask for, all of them come here
                    if q + _AHEAD < unsure:
                        box = boxes[found[q + _AHEAD]]
                        prefetch(theirs.words, first_word(theirs.starts, theirs.stride, box))
                    row = found[q]
                    if holds(theirs, boxes[row], codes, inexact, e):
                        out[p] = row
                        p += 1
            if p > start:
                run_events[runs] = e
                run_ends[runs] = p
                runs += 1
                if p - start >= limit:
                    # enough: no block behind this one, which may be begun anew, is looked at for the event
                    chosen[e, word] &= _ALL >> (np.uint64(63) - up)
                    chosen[e, word + 1 :] = _NONE
        found_before = candidates - candidates_before
    state[3] = np.int64(seen & _ONE)  # so that the reads are not optimised away
    state[0] = n_blocks
    state[1] = p
    state[2] = candidates
    state[4] = runs
    return True


@kernel
def count_runs(run_events, run_ends, n_runs, counts):
    """counts[e] = how many entries the runs of event e have; counts start as zeros."""
    a = 0
    for r in range(n_runs):
        counts[run_events[r]] += run_ends[r] - a
        a = run_ends[r]


@kernel
def place_runs(run_events, run_ends, n_runs, rows, boxes, places, add, out):
    """Write the boxes of each event's runs, with `add` added, from its place on, which moves behind them."""
    a = np.uint64(0)
    for r in range(n_runs):
        p = np.uint64(places[run_events[r]])
        n = np.uint64(run_ends[r]) - a
        for q in range(n):
            out[p + q] = boxes[np.uint64(rows[a + q])] + add
        places[run_events[r]] += n
        a += n


@allocating_kernel
def stab_one(part, own_boxes, codes, offsets, out):
    """All that one event needs, in one call: its words, its blocks, the boxes that hold it.

    `part` is the table of views of engine/bitmap.py, `own_boxes` that of the boxes. Returns how many boxes
    there are, or where `out` may have too little room, minus what is surely enough.
    """
    # in the order of the fields
    blocks = BitmapBlocks(
        view(part[0], np.int32),
        view_rows(part[1], np.uint64),
        view(part[2], np.uint8),
        view(part[3], np.int64),
        view_rows(part[4], np.uint64),
        view_rows(part[5], np.int32),
        view_rows(part[6], np.int32),
        view(part[7], np.int32),
        view(part[8], np.int64),
        view_rows(part[9], np.uint64),
        view(part[10], np.int64),
        view(part[11], np.uint8),
    )
    ones = view(part[12], np.uint64)
    words = np.empty((1, ones.size), np.uint64)
    pack_values(codes, view_rows(part[14], np.int64), words)
    cells = np.empty((1, blocks.top_bases.size), np.uint8)
    chosen = np.full((1, blocks.tops.shape[1]), _ALL)
    state = np.zeros(6, np.int64)
    state[5] = _EVERY
    n_blocks = blocks.n_block_attributes.size
    room = np.empty(1 + 2 * cells.shape[1], np.int64)
    run_events = np.empty(n_blocks + 1, np.int32)
    run_ends = np.empty(n_blocks + 1, np.int64)
    if not stab_blocks(
        blocks, words, cells, chosen, codes, own_boxes, ones, view(part[13], np.int64), state, room,
        run_events, run_ends, out,
    ):  # fmt: skip
        return -(blocks.boxes.size + _BLOCK + 1)
    n = state[1]
    for q in range(n):
        out[q] = blocks.boxes[out[q]]
    offsets[0] = 0
    offsets[1] = n
    return n
