"""The UB-tree's range search: regions on the curve, grid tables, and the filter within a leaf.

A subscription's box is a point of two coordinates per attribute, the cells of its start and its end; an
event is the box of points whose starts do not come after its cell and whose ends do not come before it.
`tree` is the `TreeArrays` of zorder/kernels.py. In the optimised form a leaf's columns are the cell
ids, one per grid table, and then start and end of each attribute.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import allocating_kernel, kernel
from rangecast.zorder.kernels import compare, jump_in, leaf_of, spread

COLLECT, PLAIN, OPTIMISED = range(3)
JUMPS, REGIONS, ENTERED, FILTERED = range(4)
N_COUNTERS = 4

_ONE = np.uint64(1)


class Tables(NamedTuple):
    """What was chosen from the data: where the curve puts each bit, the cells of each attribute, which are to
    be checked, and the grid tables (as in `cell_ids`), of at most table_size cells."""

    dims: npt.NDArray[np.int32]
    shifts: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]
    n_cells: npt.NDArray[np.int64]
    checked: npt.NDArray[np.int64]
    members: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]
    table_size: int


class CellEvents(NamedTuple):
    """Events as codes and cells; wides[j, e] says that a cell holds several codes."""

    codes: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]
    wides: npt.NDArray[np.bool_]


@kernel
def part_of(cell, parts, n_cells):
    """The part of an attribute's domain in which a cell lies."""
    return cell * parts // n_cells


@kernel
def pair_of(start, end, parts):
    """The number of a (start, end) pair of parts, start <= end: dead space has no number."""
    return start * parts - start * (start - 1) // 2 + end - start


@kernel
def cell_ids(points, members, parts, n_cells, out):
    """out[t, i] = the cell of point i in grid table t; members[t] are its attributes, then -1."""
    for t in range(members.shape[0]):
        for i in range(points.shape[1]):
            cell = 0
            for q in range(members.shape[1]):
                j = members[t, q]
                if j < 0:
                    break
                k = parts[t, q]
                start = part_of(np.int64(points[2 * j, i]), k, n_cells[j])
                end = part_of(np.int64(points[2 * j + 1, i]), k, n_cells[j])
                cell = cell * (k * (k + 1) // 2) + pair_of(start, end, k)
            out[t, i] = cell


@kernel
def _reached_cells(values, members, parts, n_cells, reached):
    """The cells of one grid table that an event's box meets; returns how many."""
    reached[0] = 0
    n = 1
    for q in range(members.size):
        j = members[q]
        if j < 0:
            break
        k = parts[q]
        part = part_of(values[j], k, n_cells[j])
        # expanding from the back: what is written lies at or behind what is still to be read
        fan = (part + 1) * (k - part)
        for i in range(n - 1, -1, -1):
            base = reached[i] * (k * (k + 1) // 2)
            p = i * fan
            for start in range(part + 1):
                for end in range(part, k):
                    reached[p] = base + pair_of(start, end, k)
                    p += 1
        n *= fan
    return n


@kernel
def _coordinate(keys, leaf, row, places, k):
    """Coordinate k of an address, bit by bit from where the curve has put them."""
    value = np.uint64(0)
    for b in range(places.shape[1]):
        p = places[k, b]
        if p < 0:
            break
        value = (value << _ONE) | ((keys[leaf, row, p >> 6] >> np.uint64(63 - (p & 63))) & _ONE)
    return np.int64(value)


@kernel
def _filter_addresses(tree, leaf, tables, values, events, e, boxes, found):
    """Rows of a leaf whose points are in the event's box, by their addresses alone."""
    places = tables.places
    checked = tables.checked
    codes = events.codes
    keys = tree.keys
    entries = tree.entries
    n = 0
    for row in range(tree.counts[leaf]):
        hit = True
        for q in range(checked.size):
            j = checked[q]
            start = _coordinate(keys, leaf, row, places, 2 * j)
            if start > values[j]:
                hit = False
                break
            end = _coordinate(keys, leaf, row, places, 2 * j + 1)
            if end < values[j]:
                hit = False
                break
            if events.wides[j, e] and (start == values[j] or end == values[j]):
                box = entries[leaf, row]
                if codes[j, e] < boxes.lows[j, box] or codes[j, e] > boxes.highs[j, box]:
                    hit = False
                    break
        found[n] = row
        n += hit
    return n


@kernel
def _filter_columns(tree, leaf, n_tables, tables, values, events, e, boxes, found, n):
    """Of n rows found so far, those whose points are in the event's box, attribute by attribute."""
    checked = tables.checked
    codes = events.codes
    columns = tree.columns
    entries = tree.entries
    for q in range(checked.size):
        if n == 0:
            break
        j = checked[q]
        value = values[j]
        starts = columns[leaf, n_tables + 2 * j]
        ends = columns[leaf, n_tables + 2 * j + 1]
        kept = 0
        for i in range(n):
            row = found[i]
            found[kept] = row
            kept += (starts[row] <= value) & (value <= ends[row])
        if events.wides[j, e]:
            # the event's cell holds several codes: at the border of a box the code itself decides
            n = kept
            kept = 0
            for i in range(n):
                row = found[i]
                hit = True
                if starts[row] == value or ends[row] == value:
                    box = entries[leaf, row]
                    hit = boxes.lows[j, box] <= codes[j, e] and codes[j, e] <= boxes.highs[j, box]
                found[kept] = row
                kept += hit
        n = kept
    return n


@allocating_kernel
def stab(form, tree, tables, events, boxes, first, done, offsets, out, counters):
    """Match events first.. and write their slots from out[done] on; returns the event it got to.

    It stops before an event whose matches might not fit; the caller makes room and calls again.
    """
    dims = tables.dims
    shifts = tables.shifts
    n_cells = tables.n_cells
    cells = events.cells
    counts = tree.counts
    nexts = tree.nexts
    keys = tree.keys
    entries = tree.entries
    columns = tree.columns
    d, m = cells.shape
    n_words = keys.shape[2]
    n_tables = tables.members.shape[0] if form == OPTIMISED else 0
    box_lows = np.zeros(2 * d, np.uint64)
    box_highs = np.zeros(2 * d, np.uint64)
    spreads = np.empty((2 * d, n_words), np.uint64)
    left_lows = np.empty(2 * d, np.int64)
    left_highs = np.empty(2 * d, np.int64)
    address = np.empty(n_words, np.uint64)
    values = np.empty(d, np.int64)
    # of each grid table: 1 in the cells that the event's box meets, and which those are
    marked = np.zeros((n_tables, tables.table_size), np.uint8)
    reached = np.empty((n_tables, tables.table_size), np.int64)
    n_reached = np.empty(n_tables, np.int64)
    found = np.empty(entries.shape[1], np.int64)
    p = done
    for e in range(first, m):
        p_before = p
        jumps = 0
        regions = 0
        entered = 0
        filtered = 0
        # the event's box of points, and its lowest address, from which the search goes along the curve
        for j in range(d):
            values[j] = cells[j, e]
            box_highs[2 * j] = np.uint64(values[j])
            box_lows[2 * j + 1] = np.uint64(values[j])
            box_highs[2 * j + 1] = np.uint64(n_cells[j] - 1)
        spread(box_lows, dims, shifts, spreads)
        for w in range(n_words):
            address[w] = np.uint64(0)
            for k in range(1, 2 * d, 2):
                address[w] |= spreads[k, w]
        for t in range(n_tables):
            n_reached[t] = _reached_cells(values, tables.members[t], tables.parts[t], n_cells, reached[t])
            for i in range(n_reached[t]):
                marked[t, reached[t, i]] = 1
        # leaf by leaf: what a leaf holds is filtered, then the next address in the box is sought beyond it
        full = False
        leaf = leaf_of(tree, address, -1)
        # each leaf is met once at most; a crafted file must not make it more
        while jumps < counts.size:
            n = counts[leaf]
            if n > 0 and compare(keys[leaf, n - 1], address) >= 0:
                regions += 1
                entered += n
                if p + n > out.size:
                    full = True
                    break
                if form == PLAIN:
                    filtered += n
                    n = _filter_addresses(tree, leaf, tables, values, events, e, boxes, found)
                elif form == OPTIMISED:
                    # the grid tables first: two bytes per entry, and no branch
                    if n_tables == 0:
                        for row in range(n):
                            found[row] = row
                    else:
                        ids = columns[leaf, 0]
                        kept = 0
                        for row in range(n):
                            found[kept] = row
                            kept += marked[0, ids[row]]
                        n = kept
                    for t in range(1, n_tables):
                        ids = columns[leaf, t]
                        kept = 0
                        for i in range(n):
                            row = found[i]
                            found[kept] = row
                            kept += marked[t, ids[row]]
                        n = kept
                    filtered += n
                    n = _filter_columns(tree, leaf, n_tables, tables, values, events, e, boxes, found, n)
                else:
                    n = 0
                for i in range(n):
                    out[p] = boxes.slots[entries[leaf, found[i]]]
                    p += 1
            after = nexts[leaf]
            if after < 0:
                break
            jumps += 1
            if not jump_in(
                keys[after, 0], box_lows, box_highs, spreads, dims, shifts, left_lows, left_highs, address
            ):
                break
            leaf = after
            if compare(keys[leaf, counts[leaf] - 1], address) < 0:
                leaf = leaf_of(tree, address, -1)
        # the tables are cleared by what was marked: they are far larger than that
        for t in range(n_tables):
            for i in range(n_reached[t]):
                marked[t, reached[t, i]] = 0
        if full:
            offsets[e] = p_before
            return e
        counters[JUMPS] += jumps
        counters[REGIONS] += regions
        counters[ENTERED] += entered
        counters[FILTERED] += filtered
        offsets[e + 1] = p
    return m


# Counting satisfied predicates: stabbing one interval tree per attribute, then adding up.
#
# The tree of an attribute is laid over the ranks of its distinct end points, 1 to n_points: the nodes
# are the ranks themselves, the root the largest power of two, and an interval belongs to the node in it
# that is highest (has the most trailing zeros). A node's intervals all hold its point; they stand twice, by
# low ascending and by high descending, so those that hold a value are a prefix of one of the two lists.


class IntervalTrees(NamedTuple):
    """An interval tree per attribute, one after the other.

    used[k] is the attribute whose points are point_starts[k]..point_starts[k + 1]; needed[i] the number
    of predicates of box i; `always` the boxes without any.
    """

    used: npt.NDArray[np.int64]
    point_starts: npt.NDArray[np.int64]
    points: npt.NDArray[np.int64]
    node_starts: npt.NDArray[np.int64]
    low_keys: npt.NDArray[np.int64]
    low_boxes: npt.NDArray[np.int32]
    high_keys: npt.NDArray[np.int64]
    high_boxes: npt.NDArray[np.int32]
    needed: npt.NDArray[Any]
    always: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]


@kernel
def forks(lows, highs, out):
    """out[i] = the rank within lows[i]..highs[i] (ranks from 1) with the most trailing zeros."""
    for i in range(lows.size):
        below = lows[i] - 1
        high = highs[i]
        step = np.int64(1)
        # clear low bits of `high` as long as that keeps it above `below`
        while high & ~(2 * step - 1) > below:
            step *= 2
        out[i] = high & ~(step - 1)


@kernel
def _rank(points, code):
    """How many points are not greater than a code."""
    low = 0
    high = points.size
    while low < high:
        middle = (low + high) >> 1
        if points[middle] <= code:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _prefix_from(keys, first, last, code):
    """End of the prefix of descending keys[first:last] that are not less than a code."""
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] >= code:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def _slices(code, k, trees, slices, n):
    """The list slices of the k-th tree whose intervals hold a code, from slices[n] on; returns the end.

    Its points are points[a:b]; its node of rank r has node_starts[a + r - 1] to the next. A slice is (which
    list, first, last): list 0 is in the order of lows, 1 of highs.
    """
    a = trees.point_starts[k]
    own = trees.points[a : trees.point_starts[k + 1]]
    rank = _rank(own, code)
    node = np.int64(1)
    while 2 * node <= own.size:
        node *= 2
    step = node
    while step > 0:
        step >>= 1
        if node > own.size:
            # the tree is cut off at the last point: only the left side is there
            node -= step
            continue
        first = trees.node_starts[a + node - 1]
        last = trees.node_starts[a + node]
        if node > rank:
            end = prefix_upto(trees.low_keys, first, last, code)
            slices[n, 0] = 0
        else:
            end = _prefix_from(trees.high_keys, first, last, code)
            slices[n, 0] = 1
        if end > first:
            slices[n, 1] = first
            slices[n, 2] = end
            n += 1
        node = node - step if node > rank else node + step
    return n


@allocating_kernel
def stab_trees(codes, trees, first, done, offsets, out, counters):
    """Match events first.. and write their slots from out[done] on; returns the event it got to.

    counters[0] adds up satisfied predicates.
    """
    counts = np.zeros(trees.needed.size, trees.needed.dtype)
    slices = np.empty((64 * trees.used.size, 3), np.int64)
    p = done
    for e in range(first, codes.shape[1]):
        n = 0
        # all slices first: their lengths say how much room the event can need
        for k in range(trees.used.size):
            n = _slices(codes[trees.used[k], e], k, trees, slices, n)
        total = add_up(slices, n)
        end = count_slices(
            slices,
            n,
            total,
            trees.low_boxes,
            trees.high_boxes,
            trees.needed,
            trees.always,
            trees.slots,
            counts,
            out,
            p,
        )
        if end < 0:
            offsets[e] = p
            return e
        p = end
        counters[0] += total
        offsets[e + 1] = p
    return codes.shape[1]


# Counting satisfied predicates: what `counting` and `opindex` do alike once they have found them.
#
# An event's satisfied predicates are slices of lists of boxes, (which list, first, last). Each adds one to
# the counter of its box, and a box is a match when its counter reaches the number of its predicates.


@kernel
def prefix_upto(keys, first, last, code):
    """End of the prefix of ascending keys[first:last] that are not greater than a code."""
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] <= code:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def add_up(slices, n):
    """How many predicates n slices have."""
    total = 0
    for s in range(n):
        total += slices[s, 2] - slices[s, 1]
    return total


@kernel
def count_slices(slices, n, total, lists, other_lists, needed, always, slots, counts, out, p):
    """Write the slots of boxes without a predicate, and of those whose count is complete, from out[p] on.

    Returns the end, or -1 where `out` has no room for what an event of so many satisfied predicates could
    need. Counters are 0 before and after.
    """
    # each box is complete at most once, and only through a satisfied predicate
    if p + min(total, needed.size) + always.size > out.size:
        return -1
    for i in range(always.size):
        out[p] = slots[always[i]]
        p += 1
    for s in range(n):
        boxes = lists if slices[s, 0] == 0 else other_lists
        for q in range(slices[s, 1], slices[s, 2]):
            box = boxes[q]
            count = counts[box] + 1
            counts[box] = count
            if count == needed[box]:
                out[p] = slots[box]
                p += 1
    # counters go back to 0 by the same lists, or all at once where the lists are long
    if total < needed.size >> 3:
        for s in range(n):
            boxes = lists if slices[s, 0] == 0 else other_lists
            for q in range(slices[s, 1], slices[s, 2]):
                counts[boxes[q]] = 0
    else:
        counts[:] = 0
    return p
