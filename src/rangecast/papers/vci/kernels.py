"""The interval skip list: its nodes, its edges and the markers on them.

State is arrays that the caller has made large enough (papers/vci/structures.py has the table). Levels count
from 0; edge e = edges[x] + i leaves node x at level i and ends at targets[e], or at the tail (-1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense, holds_dense_value
from rangecast.simd.compiler import kernel

LEVELS = 24
_LAST = np.iinfo(np.int64).max
FREE_NODE, USED_NODES, USED_EDGES, FREE_MARKER = 0, 1, 2, 3
USED_MARKERS, FREE_MARKERS, PENDING, SEED = 4, 5, 6, 7


class SkipList(NamedTuple):
    """Nodes, edges and markers; papers/vci/structures.py tells what the arrays are."""

    keys: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int32]
    heights: npt.NDArray[np.int32]
    edges: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    edge_heads: npt.NDArray[np.int32]
    free_edges: npt.NDArray[np.int32]
    marks: npt.NDArray[np.int32]
    firsts: npt.NDArray[np.int32]
    state: npt.NDArray[np.int64]


@kernel
def find_path(key, skip, path):
    """path[i] = the last node before `key` at level i; returns the node with this key, or -1.

    The head has the smallest key there is and is before none: asked for that key, it is the answer.
    """
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    x = 0
    for level in range(LEVELS - 1, -1, -1):
        y = targets[edges[x] + level]
        while y >= 0 and keys[y] < key:
            x = y
            y = targets[edges[x] + level]
        path[level] = x
    if key == keys[0]:
        return 0
    y = targets[edges[x]]
    return y if y >= 0 and keys[y] == key else -1


@kernel
def _unmark(box, skip):
    """Take a box off all edges that it marks."""
    firsts = skip.firsts
    marks = skip.marks
    state = skip.state
    m = firsts[box]
    while m >= 0:
        before = marks[m, 2]
        after = marks[m, 3]
        if before >= 0:
            marks[before, 3] = after
        else:
            skip.edge_heads[marks[m, 1]] = after
        if after >= 0:
            marks[after, 2] = before
        following = marks[m, 4]
        # of no list any more: what reads a file relies on that
        marks[m, 3] = -1
        marks[m, 4] = state[FREE_MARKER]
        state[FREE_MARKER] = m
        state[FREE_MARKERS] += 1
        m = following
    firsts[box] = -1


@kernel
def _loosen(edge, skip, pending):
    """Unmark every box that marks an edge, and note it: it is to be marked again."""
    while skip.edge_heads[edge] >= 0:
        box = skip.marks[skip.edge_heads[edge], 0]
        _unmark(box, skip)
        pending[skip.state[PENDING]] = box
        skip.state[PENDING] += 1


@kernel
def add_end(key, skip, pending, path):
    """Count one more interval that ends at a key, and put a node there if there is none."""
    owners = skip.owners
    targets = skip.targets
    free_edges = skip.free_edges
    state = skip.state
    x = find_path(key, skip, path)
    if x >= 0:
        owners[x] += 1
        return
    # a coin a level, from a linear congruence whose high bits are good enough for coins
    height = 1
    state[SEED] = (state[SEED] * 1103515245 + 12345) & 0x7FFFFFFF
    coins = state[SEED] >> 7
    while height < LEVELS and coins & 1:
        height += 1
        coins >>= 1
    x = state[FREE_NODE]
    if x >= 0:
        state[FREE_NODE] = owners[x]
    else:
        x = state[USED_NODES]
        state[USED_NODES] += 1
    first = free_edges[height]
    if first >= 0:
        free_edges[height] = targets[first]
    else:
        first = state[USED_EDGES]
        state[USED_EDGES] += height
    skip.keys[x] = key
    owners[x] = 1
    skip.heights[x] = height
    skip.edges[x] = first
    for level in range(height):
        split = skip.edges[path[level]] + level
        _loosen(split, skip, pending)
        targets[first + level] = targets[split]
        skip.edge_heads[first + level] = -1
        targets[split] = x


@kernel
def drop_end(key, skip, pending, path):
    """Count one interval less that ends at a key, and take its node out if there is none left."""
    owners = skip.owners
    edges = skip.edges
    targets = skip.targets
    x = find_path(key, skip, path)
    owners[x] -= 1
    if owners[x] > 0 or x == 0:
        return
    first = edges[x]
    height = skip.heights[x]
    for level in range(height):
        into = edges[path[level]] + level
        _loosen(into, skip, pending)
        _loosen(first + level, skip, pending)
        targets[into] = targets[first + level]
    # no edges are its own any more: what reads a file relies on that
    skip.heights[x] = 0
    targets[first] = skip.free_edges[height]
    skip.free_edges[height] = first
    owners[x] = skip.state[FREE_NODE]
    skip.state[FREE_NODE] = x


@kernel
def add_ends(numbers, start, lows, highs, skip, pending, path):
    """The nodes of all ends of these boxes from `start` on; boxes that are to be marked again go to
    `pending`. Returns the box for which there was no room left."""
    state = skip.state
    for i in range(start, numbers.size):
        box = numbers[i]
        if state[USED_NODES] + 2 > skip.keys.size or state[USED_EDGES] + 2 * LEVELS > skip.targets.size:
            return i
        if lows[box] != skip.keys[0]:
            add_end(lows[box], skip, pending, path)
        if highs[box] != _LAST:
            add_end(highs[box] + 1, skip, pending, path)
    return numbers.size


@kernel
def drop_boxes(numbers, lows, highs, skip, pending, path):
    """Unmark these boxes, then take out the nodes at which no interval ends any more."""
    for i in range(numbers.size):
        _unmark(numbers[i], skip)
    for i in range(numbers.size):
        box = numbers[i]
        if lows[box] != skip.keys[0]:
            drop_end(lows[box], skip, pending, path)
        if highs[box] != _LAST:
            drop_end(highs[box] + 1, skip, pending, path)


@kernel
def _inside(y, endless, end, keys):
    return endless if y < 0 else endless or keys[y] <= end


@kernel
def mark_boxes(numbers, start, lows, highs, skip, path):
    """Mark the edges of each box from `start` on; returns the box for which `marks` had no room.

    From its low node an interval goes, at each node, along the highest edge that ends within it: up
    a staircase and down again, over a logarithmic number of edges that cover it without overlap.
    """
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    edge_heads = skip.edge_heads
    firsts = skip.firsts
    marks = skip.marks
    state = skip.state
    for i in range(start, numbers.size):
        box = numbers[i]
        endless = highs[box] == _LAST
        end = highs[box] if endless else highs[box] + 1
        x = find_path(lows[box], skip, path)
        while x >= 0 and (endless or keys[x] < end):
            level = 0
            while level + 1 < skip.heights[x] and _inside(targets[edges[x] + level + 1], endless, end, keys):
                level += 1
            m = state[FREE_MARKER]
            if m >= 0:
                state[FREE_MARKER] = marks[m, 4]
                state[FREE_MARKERS] -= 1
            elif state[USED_MARKERS] < marks.shape[0]:
                m = state[USED_MARKERS]
                state[USED_MARKERS] += 1
            else:
                _unmark(box, skip)
                return i
            edge = edges[x] + level
            head = edge_heads[edge]
            marks[m, 0] = box
            marks[m, 1] = edge
            marks[m, 2] = -1
            marks[m, 3] = head
            marks[m, 4] = firsts[box]
            if head >= 0:
                marks[head, 2] = m
            edge_heads[edge] = m
            firsts[box] = m
            x = targets[edge]
    return numbers.size


@kernel
def count_marked(values, top, skip):
    """How many edges with markers a batch of values meets: the search without reading the markers."""
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    edge_heads = skip.edge_heads
    total = 0
    for e in range(values.size):
        x = 0
        for level in range(top - 1, -1, -1):
            y = targets[edges[x] + level]
            while y >= 0 and keys[y] <= values[e]:
                x = y
                y = targets[edges[x] + level]
            if edge_heads[edges[x] + level] >= 0:
                total += 1
    return total


@kernel
def stab_skip_list(codes, on, event, top, skip, checked, boxes, plain, offsets, out):
    """Write the rows of events from `event` on; returns the event for which `out` had no room."""
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    edge_heads = skip.edge_heads
    marks = skip.marks
    p = offsets[event]
    for e in range(event, codes.shape[1]):
        offsets[e] = p
        v = codes[on, e]
        x = 0
        for level in range(top - 1, -1, -1):
            y = targets[edges[x] + level]
            while y >= 0 and keys[y] <= v:
                x = y
                y = targets[edges[x] + level]
            m = edge_heads[edges[x] + level]
            while m >= 0:
                box = marks[m, 0]
                m = marks[m, 3]
                if holds_dense(boxes, box, codes, checked, e):
                    if p == out.size:
                        return e
                    out[p] = box if plain else boxes.slots[box]
                    p += 1
    offsets[codes.shape[1]] = p
    return codes.shape[1]


# Construct intervals with a linked list each: decomposition, entering, leaving and four look-ups.
#
# A construct of column q that starts at cell a has the coordinate a * width + q and covers lengths[q]
# cells. columns[r] is the column of the longest construct of at most r cells, for r up to the maximal
# length L: that is all in which SCI and LCI differ here.

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
    """The lists; papers/vci/structures.py tells what the arrays are."""

    heads: npt.NDArray[np.int32]
    crossing: npt.NDArray[np.int32]
    nodes: npt.NDArray[np.int32]
    pool: npt.NDArray[np.int64]
    bits: npt.NDArray[np.uint32]
    table: npt.NDArray[np.int64]


@kernel
def decompose(begin, end, columns, lengths, out):
    """The coordinates that begin .. end - 1 is cut into, from the left; returns how many.

    Lines 1 to 8 of figure 2, for SCI and LCI alike, with equation (1) or (2) for a coordinate; transcript.py
    has the figure as printed.
    """
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
def stab_lists(codes, cells, on, event, shape, lists, found, checked, boxes, plain, offsets, out):
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


# Lists per cell: counting, filling, and stabbing them.


class DirectLists(NamedTuple):
    """Lists per cell of attribute `on`; papers/vci/structures.py tells what the arrays are."""

    on: int
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _covers(low, high, cell, cuts):
    end = cuts[cell + 1] - 1 if cell + 1 < cuts.size else _LAST
    return low <= cuts[cell] and end <= high


@kernel
def count_entries(lows, highs, firsts, lasts, cuts, starts):
    """starts becomes the ends of the lists (whole, crossing, whole, ...); returns the crossing ones."""
    crossing = 0
    for i in range(lows.size):
        for c in range(firsts[i], lasts[i] + 1):
            if _covers(lows[i], highs[i], c, cuts):
                starts[2 * c + 1] += 1
            else:
                starts[2 * c + 2] += 1
                crossing += 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]
    return crossing


@kernel
def fill_entries(lows, highs, firsts, lasts, cuts, cursors, numbers, box_slots, lists):
    """Write each interval's slot (and box) into its lists; cursors are the starts of the lists."""
    for i in range(lows.size):
        for c in range(firsts[i], lasts[i] + 1):
            k = 2 * c if _covers(lows[i], highs[i], c, cuts) else 2 * c + 1
            p = cursors[k]
            cursors[k] = p + 1
            lists.slots[p] = box_slots[numbers[i]]
            if lists.boxes.size:
                lists.boxes[p] = numbers[i]


@kernel
def count(cells, starts):
    """How many entries a batch will look at."""
    total = 0
    for e in range(cells.size):
        total += starts[2 * cells[e] + 2] - starts[2 * cells[e]]
    return total


@kernel
def stab_direct(codes, cells, lists, lows, highs, offsets, out):
    """Copy whole lists, check what must be checked; returns the number of matches."""
    on = lists.on
    starts = lists.starts
    slots = lists.slots
    checked = lists.checked
    p = 0
    for e in range(cells.size):
        offsets[e] = p
        a = starts[2 * cells[e]]
        b = starts[2 * cells[e] + 1]
        c = starts[2 * cells[e] + 2]
        if checked.size == 0:
            for q in range(a, b):
                out[p + q - a] = slots[q]
            p += b - a
        v = codes[on, e]
        for q in range(a if checked.size else b, c):
            box = lists.boxes[q]
            hit = q < b or (lows[on, box] <= v and v <= highs[on, box])
            for k in range(checked.size):
                if not hit:
                    break
                j = checked[k]
                hit = lows[j, box] <= codes[j, e] and codes[j, e] <= highs[j, box]
            out[p] = slots[q]
            p += hit
    offsets[cells.size] = p
    return p
