"""Construct intervals with a linked list each: decomposition, entering, leaving and four look-ups.

A construct of column q that starts at cell a has the coordinate a * width + q and covers lengths[q]
cells. columns[r] is the column of the longest construct of at most r cells, for r up to the maximal
length L: that is all in which SCI and LCI differ here.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel

BITMAP, CLIPPED, VIRTUAL, TABLE = 0, 1, 2, 3
# position of the single bit that is set in a word of 32, by a multiplication (de Bruijn)
_BIT_POSITIONS = np.array(
    [0, 1, 28, 2, 29, 14, 24, 3, 30, 22, 20, 15, 25, 17, 4, 8, 31, 27, 13, 23, 21, 19, 16, 7, 26, 12, 18, 6,
     11, 5, 10, 9],
    np.int64,
)  # fmt: skip


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
def count_postings(firsts, lasts, begins, ends, columns, lengths, n_cells):
    """How many list nodes these boxes need."""
    total = 0
    longest = columns.size - 1
    for i in range(begins.size):
        if list_of_all(begins[i], ends[i], n_cells):
            total += 1
            continue
        rest = np.int64(ends[i]) - np.int64(begins[i])
        while rest > 0:
            rest -= lengths[columns[min(rest, longest)]]
            total += 1
        total += (lasts[i] + 1 - firsts[i]) - (ends[i] - begins[i])
    return total


@kernel
def list_postings(firsts, lasts, begins, ends, columns, lengths, n_cells, out):
    """The lists that these boxes are in: coordinates, then the list of all, then the crossing lists."""
    n = 0
    n_constructs = n_cells * lengths.size
    for i in range(begins.size):
        if list_of_all(begins[i], ends[i], n_cells):
            out[n] = n_constructs
            n += 1
            continue
        n += decompose(np.int64(begins[i]), np.int64(ends[i]), columns, lengths, out[n:])
        for c in range(firsts[i], lasts[i] + 1):
            if c < begins[i] or c >= ends[i]:
                out[n] = n_constructs + 1 + c
                n += 1


@kernel
def write_bits(c, lengths, longest, clipped, value, bits):
    """Set or reset the bit of construct c in the vector of each cell that it covers."""
    width = lengths.size
    a = c // width
    for i in range(a, a + lengths[c - a * width]):
        # a clipped vector begins with the construct of maximal length that ends with the cell
        p = c - ((i - longest + 1) * width + width - 1) if clipped else c
        mask = np.int64(1) << (p & 31)
        word = np.int64(bits[i, p >> 5])
        bits[i, p >> 5] = np.uint32(word | mask) if value else np.uint32(word & ~mask)


@kernel
def enter(
    numbers,
    firsts,
    lasts,
    begins,
    ends,
    columns,
    lengths,
    n_cells,
    lookup,
    heads,
    crossing,
    pool,
    nodes,
    bits,
):
    """Put boxes at the heads of their lists. pool = [first free node or -1, nodes ever used]."""
    longest = columns.size - 1
    width = lengths.size
    n_constructs = n_cells * width
    for i in range(numbers.size):
        box = numbers[i]
        if list_of_all(begins[i], ends[i], n_cells):
            _push(heads, n_constructs, box, pool, nodes)
            continue
        a = np.int64(begins[i])
        while a < ends[i]:
            q = columns[min(ends[i] - a, longest)]
            c = a * width + q
            if lookup <= CLIPPED and heads[c] < 0:
                write_bits(c, lengths, longest, lookup == CLIPPED, True, bits)
            _push(heads, c, box, pool, nodes)
            a += lengths[q]
        for c in range(firsts[i], lasts[i] + 1):
            if c < begins[i] or c >= ends[i]:
                _push(crossing, np.int64(c), box, pool, nodes)


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
def leave(lists, counts, marked, lengths, longest, n_constructs, lookup, heads, crossing, pool, nodes, bits):
    """Unlink the marked boxes from each of these lists, which holds so many of them."""
    for i in range(lists.size):
        c = lists[i]
        if c <= n_constructs:
            _unlink(heads, c, counts[i], marked, pool, nodes)
            if lookup <= CLIPPED and c < n_constructs and heads[c] < 0:
                write_bits(c, lengths, longest, lookup == CLIPPED, False, bits)
        else:
            _unlink(crossing, c - n_constructs - 1, counts[i], marked, pool, nodes)


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
def find(cell, lookup, lengths, longest, n_constructs, heads, bits, table, found):
    """Write the heads of the lists that cover a cell into `found`; returns how many."""
    n = 0
    width = lengths.size
    first = (cell - longest + 1) * width + width - 1
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
                if a + lengths[c - a * width] > cell:
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
def count_lists(cells, lookup, lengths, longest, n_constructs, heads, bits, table, found):
    """How many lists a batch of cells finds: the search that the paper times."""
    total = 0
    for e in range(cells.size):
        total += find(np.int64(cells[e]), lookup, lengths, longest, n_constructs, heads, bits, table, found)
    return total


@kernel
def stab(
    codes, cells, on, event, lookup, lengths, longest, n_constructs, heads, crossing, nodes, bits, table,
    found, checked, lows, highs, box_slots, plain, offsets, out,
):  # fmt: skip
    """Write the rows of events from `event` on; returns the event for which `out` had no room."""
    p = offsets[event]
    for e in range(event, cells.size):
        cell = np.int64(cells[e])
        offsets[e] = p
        n = find(cell, lookup, lengths, longest, n_constructs, heads, bits, table, found)
        if crossing.size:
            found[n] = crossing[cell]
        for i in range(n + 1 if crossing.size else n):
            node = found[i]
            while node >= 0:
                box = nodes[node, 0]
                node = nodes[node, 1]
                if i == n and (codes[on, e] < lows[on, box] or codes[on, e] > highs[on, box]):
                    continue
                hit = True
                for k in range(checked.size):
                    j = checked[k]
                    if codes[j, e] < lows[j, box] or codes[j, e] > highs[j, box]:
                        hit = False
                        break
                if hit:
                    if p == out.size:
                        return e
                    out[p] = box if plain else box_slots[box]
                    p += 1
    offsets[cells.size] = p
    return cells.size
