"""Building `bitmap`: fields of bytes out of bounds, and bitsets out of fields.

engine/bitmap.py tells what the arrays are.

Field 2k of a row is about the low end of attribute k and counts middle cells from 1, field 2k + 1 about the
high end and counts them from TOP down; a field of 0 is "not bounded". So a box holds an event only if no
field exceeds the event's, and the larger a field, the further its end is from that side.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.engine.grid import cell_of
from rangecast.kernels.machine.bitsets import WORDS
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel

TOP = 255
MOST_REST = 254
"""The largest distance from the first fine cell of a middle one that a rest tells apart from larger ones."""
BLOCK = 64 * WORDS
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max
_ONE = np.uint64(1)


@kernel
def locate_ends(lows, highs, cuts, origin, shift, fines, counts):
    """fines = the fine cells of both ends, -1 where there is none; counts[c] = how many intervals begin in
    the cell c or end just before it, the outer ends left out."""
    for i in range(lows.size):
        fines[0, i] = -1
        fines[1, i] = -1
        if lows[i] != _MISSING:
            c = cell_of(lows[i], cuts, origin, shift)
            fines[0, i] = c
            if c > 0:
                counts[c] += 1
        if highs[i] != _LAST:
            c = cell_of(highs[i], cuts, origin, shift)
            fines[1, i] = c
            if c + 1 < counts.size:
                counts[c + 1] += 1


@kernel
def put_fields(fines, table, firsts, k, bounds, rests):
    """Write the two fields of attribute k, and how far into its middle cell each end is, counted likewise."""
    for i in range(fines.shape[1]):
        low = fines[0, i]
        if low >= 0:
            middle = table[low]
            bounds[i, 2 * k] = middle + 1
            rests[i, 2 * k] = min(low - firsts[middle], MOST_REST) + 1
        high = fines[1, i]
        if high >= 0:
            middle = table[high]
            bounds[i, 2 * k + 1] = TOP - middle
            rests[i, 2 * k + 1] = TOP - min(high - firsts[middle], MOST_REST)


@inlined_kernel
def first_of(bounds, i, k):
    """The first middle cell of box i on attribute k."""
    return max(np.int64(bounds[i, 2 * k]) - 1, 0)


@inlined_kernel
def last_of(bounds, i, k, size):
    """The last one, of so many."""
    field = np.int64(bounds[i, 2 * k + 1])
    return TOP - field if field > 0 else size - 1


@kernel
def count_cells(bounds, sizes, counts):
    """counts[k, 0, c] = how many boxes begin in the middle cell c of attribute k; counts[k, 1, c] = how many
    end in it."""
    for i in range(bounds.shape[0]):
        for k in range(sizes.size):
            counts[k, 0, first_of(bounds, i, k)] += 1
            counts[k, 1, last_of(bounds, i, k, sizes[k])] += 1


@kernel
def block_spans(bounds, sizes, bases, coarse, n_cells, sums, ends):
    """sums[k, b] = the share of coarse cells that the boxes of block b touch on attribute k, added up;
    ends[:, k, b] = the first and the last of them, which it begins as the last and the first there are."""
    for i in range(bounds.shape[0]):
        b = i // BLOCK
        for k in range(sizes.size):
            first = np.int64(coarse[bases[k] + first_of(bounds, i, k)])
            last = np.int64(coarse[bases[k] + last_of(bounds, i, k, sizes[k])])
            sums[k, b] += (last - first + 1) / n_cells[k]
            ends[0, k, b] = min(ends[0, k, b], first)
            ends[1, k, b] = max(ends[1, k, b], last)


@kernel
def fill_rows(bounds, sizes, bases, coarse, ends, bounded, row_bases, bits):
    """Set the bits of each box: in the rows of all coarse cells that it touches.

    A bit is toggled in the first row and in the row after the last; then each row takes over the bits
    of the row before it. A block has rows for the cells that some box of it touches.
    """
    n = bounds.shape[0]
    for b in range(row_bases.shape[0]):
        for k in range(sizes.size):
            if not bounded[k, b]:
                continue
            base = np.int64(row_bases[b, k])
            for i in range(b * BLOCK, min((b + 1) * BLOCK, n)):
                w = (i % BLOCK) >> 6
                bit = _ONE << np.uint64(i & 63)
                first = np.int64(coarse[bases[k] + first_of(bounds, i, k)])
                behind = np.int64(coarse[bases[k] + last_of(bounds, i, k, sizes[k])]) + 1
                bits[base + first, w] ^= bit
                if behind <= ends[1, k, b]:
                    bits[base + behind, w] ^= bit
            for c in range(ends[0, k, b] + 1, ends[1, k, b] + 1):
                for w in range(WORDS):
                    bits[base + c, w] ^= bits[base + c - 1, w]


@allocating_kernel
def fill_tops(bounds, sizes, bases, tops):
    """tops[bases[k] + c]: the blocks that have somebody in the middle cell c of attribute k, as a bitset."""
    n = bounds.shape[0]
    marks = np.empty(TOP + 2, np.int32)
    for b in range((n + BLOCK - 1) // BLOCK):
        for k in range(sizes.size):
            marks[:] = 0
            for i in range(b * BLOCK, min((b + 1) * BLOCK, n)):
                marks[first_of(bounds, i, k)] += 1
                marks[last_of(bounds, i, k, sizes[k]) + 1] -= 1
            inside = 0
            for c in range(sizes[k]):
                inside += marks[c]
                if inside > 0:
                    tops[bases[k] + c, b >> 6] |= _ONE << np.uint64(b & 63)
