"""Construct intervals with a linked list each: decomposition, entering, leaving and four look-ups.

A construct of column q that starts at cell a has the coordinate a * width + q and covers lengths[q]
cells. columns[r] is the column of the longest construct of at most r cells, for r up to the maximal
length L: that is all in which SCI and LCI differ here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense, holds_dense_value
from rangecast.simd.compiler import kernel

BITMAP, CLIPPED, VIRTUAL, TABLE = 0, 1, 2, 3
# position of the single bit that is set in a word of 32, by a multiplication (de Bruijn)
_BIT_POSITIONS = np.array(
    [0, 1, 28, 2, 29, 14, 24, 3, 30, 22, 20, 15, 25, 17, 4, 8, 31, 27, 13, 23, 21, 19, 16, 7, 26, 12, 18, 6,
     11, 5, 10, 9],
    np.int64,
)  # fmt: skip


class ConstructShape(NamedTuple):
    """What the constructs are, and how they are looked up.

    Their number is that of the list of all, which stands behind them; the longest has L cells.
    """

    columns: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    longest: int
    n_cells: int
    n_constructs: int
    lookup: int


class IntervalLists(NamedTuple):
    """The lists; papers/vci/index.py tells what the arrays are."""

    heads: npt.NDArray[np.int32]
    crossing: npt.NDArray[np.int32]
    nodes: npt.NDArray[np.int32]
    pool: npt.NDArray[np.int64]
    bits: npt.NDArray[np.uint32]
    table: npt.NDArray[np.int64]


@kernel
def decompose(begin, end, columns, lengths, out):
    """The coordinates that begin .. end - 1 is cut into, from the left; returns how many."""
    n = 0
    a = begin
    longest = columns.size - 1
    while a < end:
        q = columns[min(end - a, longest)]
        out[n] = a * lengths.size + q
        n += 1
        a += lengths[q]
    return n


@kernel
def list_of_all(begin, end, n_cells):
    """Whether a range is all cells: such boxes have one list of their own."""
    return begin == 0 and end == n_cells


@kernel
def count_postings(ranges, shape):
    """How many list nodes these boxes need."""
    firsts, lasts, begins, ends = ranges
    total = 0
    for i in range(begins.size):
        if list_of_all(begins[i], ends[i], shape.n_cells):
            total += 1
            continue
        rest = np.int64(ends[i]) - np.int64(begins[i])
        while rest > 0:
            rest -= shape.lengths[shape.columns[min(rest, shape.longest)]]
            total += 1
        total += (lasts[i] + 1 - firsts[i]) - (ends[i] - begins[i])
    return total


@kernel
def list_postings(ranges, shape, out):
    """The lists that these boxes are in: coordinates, then the list of all, then the crossing lists."""
    firsts, lasts, begins, ends = ranges
    n = 0
    for i in range(begins.size):
        if list_of_all(begins[i], ends[i], shape.n_cells):
            out[n] = shape.n_constructs
            n += 1
            continue
        n += decompose(np.int64(begins[i]), np.int64(ends[i]), shape.columns, shape.lengths, out[n:])
        for c in range(firsts[i], lasts[i] + 1):
            if c < begins[i] or c >= ends[i]:
                out[n] = shape.n_constructs + 1 + c
                n += 1


@kernel
def write_bits(c, shape, value, bits):
    """Set or reset the bit of construct c in the vector of each cell that it covers."""
    width = shape.lengths.size
    a = c // width
    for i in range(a, a + shape.lengths[c - a * width]):
        # a clipped vector begins with the construct of maximal length that ends with the cell
        p = c - ((i - shape.longest + 1) * width + width - 1) if shape.lookup == CLIPPED else c
        mask = np.int64(1) << (p & 31)
        word = np.int64(bits[i, p >> 5])
        bits[i, p >> 5] = np.uint32(word | mask) if value else np.uint32(word & ~mask)


@kernel
def enter(numbers, ranges, shape, lists):
    """Put boxes at the heads of their lists. pool = [first free node or -1, nodes ever used]."""
    firsts, lasts, begins, ends = ranges
    heads = lists.heads
    width = shape.lengths.size
    for i in range(numbers.size):
        box = numbers[i]
        if list_of_all(begins[i], ends[i], shape.n_cells):
            _push(heads, shape.n_constructs, box, lists.pool, lists.nodes)
            continue
        a = np.int64(begins[i])
        while a < ends[i]:
            q = shape.columns[min(ends[i] - a, shape.longest)]
            c = a * width + q
            if shape.lookup <= CLIPPED and heads[c] < 0:
                write_bits(c, shape, True, lists.bits)
            _push(heads, c, box, lists.pool, lists.nodes)
            a += shape.lengths[q]
        for c in range(firsts[i], lasts[i] + 1):
            if c < begins[i] or c >= ends[i]:
                _push(lists.crossing, np.int64(c), box, lists.pool, lists.nodes)


@kernel
def _push(heads, c, box, pool, nodes):
    node = pool[0]
    if node >= 0:
        pool[0] = nodes[node, 1]
    else:
        node = pool[1]
        pool[1] = node + 1
    nodes[node, 0] = box
    nodes[node, 1] = heads[c]
    heads[c] = node


@kernel
def leave(numbers, counts, marked, shape, lists):
    """Unlink the marked boxes from the lists with these numbers, each of which holds so many of them."""
    heads = lists.heads
    for i in range(numbers.size):
        c = numbers[i]
        if c <= shape.n_constructs:
            _unlink(heads, c, counts[i], marked, lists.pool, lists.nodes)
            if shape.lookup <= CLIPPED and c < shape.n_constructs and heads[c] < 0:
                write_bits(c, shape, False, lists.bits)
        else:
            _unlink(lists.crossing, c - shape.n_constructs - 1, counts[i], marked, lists.pool, lists.nodes)


@kernel
def _unlink(heads, c, count, marked, pool, nodes):
    before = -1
    node = heads[c]
    while count > 0:
        after = nodes[node, 1]
        if marked[nodes[node, 0]]:
            if before < 0:
                heads[c] = after
            else:
                nodes[before, 1] = after
            nodes[node, 1] = pool[0]
            pool[0] = node
            count -= 1
        else:
            before = node
        node = after


@kernel
def find(cell, shape, lists, found):
    """Write the heads of the lists that cover a cell into `found`; returns how many."""
    lookup = shape.lookup
    n_constructs = shape.n_constructs
    heads = lists.heads
    bits = lists.bits
    table = lists.table
    n = 0
    width = shape.lengths.size
    first = (cell - shape.longest + 1) * width + width - 1
    if lookup <= CLIPPED:
        base = first if lookup == CLIPPED else 0
        for w in range(bits.shape[1]):
            word = np.int64(bits[cell, w])
            while word != 0:
                bit = word & -word
                found[n] = heads[base + 32 * w + _BIT_POSITIONS[((bit * 0x077CB531) & 0xFFFFFFFF) >> 27]]
                n += 1
                word ^= bit
    elif lookup == VIRTUAL:
        for c in range(max(first, 0), (cell + 1) * width):
            if heads[c] >= 0:
                a = c // width
                if a + shape.lengths[c - a * width] > cell:
                    found[n] = heads[c]
                    n += 1
    else:
        d = 0
        while first + table[d] < 0:
            d += 1
        for i in range(d, table.size):
            head = heads[np.uint64(first + table[i])]
            if head >= 0:
                found[n] = head
                n += 1
    if heads[n_constructs] >= 0:
        found[n] = heads[n_constructs]
        n += 1
    return n


@kernel
def count_lists(cells, shape, lists, found):
    """How many lists a batch of cells finds: the search that the paper times."""
    total = 0
    for e in range(cells.size):
        total += find(np.int64(cells[e]), shape, lists, found)
    return total


@kernel
def stab(codes, cells, on, event, shape, lists, found, checked, boxes, plain, offsets, out):
    """Write the rows of events from `event` on; returns the event for which `out` had no room."""
    crossing = lists.crossing
    nodes = lists.nodes
    p = offsets[event]
    for e in range(event, cells.size):
        cell = np.int64(cells[e])
        offsets[e] = p
        n = find(cell, shape, lists, found)
        if crossing.size:
            found[n] = crossing[cell]
        for i in range(n + 1 if crossing.size else n):
            node = found[i]
            while node >= 0:
                box = nodes[node, 0]
                node = nodes[node, 1]
                # the crossing list is the last one: only its boxes are compared on the attribute itself
                if i == n and not holds_dense_value(boxes, box, on, codes[on, e]):
                    continue
                if holds_dense(boxes, box, codes, checked, e):
                    if p == out.size:
                        return e
                    out[p] = box if plain else boxes.slots[box]
                    p += 1
    offsets[cells.size] = p
    return cells.size
