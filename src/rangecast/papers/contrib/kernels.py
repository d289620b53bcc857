"""Containment-encoded intervals: cutting intervals into them, and stabbing the ones that hold a value.

Within a segment of 2**k cells they are numbered as the nodes of a heap: 1 is the whole segment, 2c and 2c +
1 the halves of c, so who holds a cell is found by shifting its leaf's number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense, holds_dense_value
from rangecast.papers.ubtree.kernels import add_up, count_slices, prefix_upto
from rangecast.simd.compiler import allocating_kernel, kernel

_LAST = np.iinfo(np.int64).max


class EncodedLists(NamedTuple):
    """Lists per construct of attribute `on`; papers/contrib/cei.py tells what the arrays are."""

    on: int
    k: int
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _enter(list_, filling, starts, slot, number, lists):
    """Count an entry of a list, or write it where its cursor is."""
    if filling:
        p = starts[list_]
        lists.slots[p] = slot
        lists.boxes[p] = number
        starts[list_] = p + 1
    else:
        starts[list_ + 1] += 1


@kernel
def enter_all(lows, highs, firsts, lasts, cuts, numbers, box_slots, filling, starts, lists):
    """Count the entries of all lists, or fill them; `starts` are counts behind the first, or cursors.

    List 0 has the boxes that hold every cell; list c + 1 those that hold cell c in part; behind them are the
    lists of the constructs.
    """
    n_cells = cuts.size
    size = np.int64(1) << lists.k
    for i in range(lows.size):
        slot = box_slots[numbers[i]]
        number = numbers[i]
        first = np.int64(firsts[i])
        last = np.int64(lasts[i])
        if lows[i] > cuts[first]:
            _enter(1 + first, filling, starts, slot, number, lists)
            first += 1
        end = cuts[lasts[i] + 1] - 1 if lasts[i] + 1 < n_cells else _LAST
        if highs[i] < end and first <= last:
            _enter(1 + last, filling, starts, slot, number, lists)
            last -= 1
        if first == 0 and last == n_cells - 1:
            _enter(0, filling, starts, slot, number, lists)
            continue
        while first <= last:
            # what lies in one segment, from its leaves up
            segment = first >> lists.k
            a = first - segment * size + size
            b = min(last, (segment + 1) * size - 1) - segment * size + size + 1
            base = 1 + n_cells + 2 * size * segment
            while a < b:
                if a & 1:
                    _enter(base + a, filling, starts, slot, number, lists)
                    a += 1
                if b & 1:
                    b -= 1
                    _enter(base + b, filling, starts, slot, number, lists)
                a >>= 1
                b >>= 1
            first = (segment + 1) * size
    if not filling:
        for q in range(1, starts.size):
            starts[q] += starts[q - 1]


@kernel
def count_encoded(cells, n_cells, lists):
    """How many entries a batch will look at."""
    size = np.int64(1) << lists.k
    total = cells.size * (lists.starts[1] - lists.starts[0])
    for e in range(cells.size):
        total += lists.starts[cells[e] + 2] - lists.starts[cells[e] + 1]
        segment = cells[e] >> lists.k
        base = 1 + n_cells + 2 * size * segment
        node = cells[e] - segment * size + size
        while node > 0:
            total += lists.starts[base + node + 1] - lists.starts[base + node]
            node >>= 1
    return total


@kernel
def _copy(list_, lists, codes, e, boxes, out, p):
    if lists.checked.size == 0:
        for q in range(lists.starts[list_], lists.starts[list_ + 1]):
            out[p] = lists.slots[q]
            p += 1
        return p
    for q in range(lists.starts[list_], lists.starts[list_ + 1]):
        out[p] = lists.slots[q]
        p += holds_dense(boxes, lists.boxes[q], codes, lists.checked, e)
    return p


@kernel
def stab_encoded(codes, cells, n_cells, lists, boxes, offsets, out):
    """Write the matches of a batch; returns their number."""
    size = np.int64(1) << lists.k
    p = 0
    for e in range(cells.size):
        offsets[e] = p
        v = codes[lists.on, e]
        p = _copy(0, lists, codes, e, boxes, out, p)
        for q in range(lists.starts[cells[e] + 1], lists.starts[cells[e] + 2]):
            out[p] = lists.slots[q]
            p += holds_dense_value(boxes, lists.boxes[q], lists.on, v) and holds_dense(
                boxes, lists.boxes[q], codes, lists.checked, e
            )
        segment = cells[e] >> lists.k
        base = 1 + n_cells + 2 * size * segment
        node = cells[e] - segment * size + size
        while node > 0:
            p = _copy(base + node, lists, codes, e, boxes, out, p)
            node >>= 1
    offsets[cells.size] = p
    return p


# The hierarchy of intervals: assigning them to partitions, and stabbing one partition per level.
#
# The partitions of level l are numbered 2**l - 1 .. 2**(l + 1) - 2; each has four lists, one after the other
# (papers/contrib/hint.py has their names).


class Hierarchy(NamedTuple):
    """Lists per partition of attribute `on`; papers/contrib/hint.py tells what the arrays are."""

    on: int
    bottom: int
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _list(level, place, first, last, bottom):
    """The list of a partition that an interval of cells is in: replicas, and who ends behind, come later."""
    shift = bottom - level
    replica = first >> shift != place
    behind = last >> shift != place
    return 4 * ((np.int64(1) << level) - 1 + place) + 2 * replica + behind


@kernel
def count_entries(firsts, lasts, bottom, starts):
    """starts becomes the ends of the lists; an interval is in two partitions of a level at most."""
    for i in range(firsts.size):
        a = np.int64(firsts[i])
        b = np.int64(lasts[i])
        level = bottom
        while a <= b:
            if a & 1:
                starts[_list(level, a, firsts[i], lasts[i], bottom) + 1] += 1
                a += 1
            # what is left may be empty now: the last one was the first
            if not b & 1:
                starts[_list(level, b, firsts[i], lasts[i], bottom) + 1] += 1
                b -= 1
            a >>= 1
            b >>= 1
            level -= 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]


@kernel
def fill_entries(firsts, lasts, numbers, box_slots, cursors, tree):
    """Write each interval into its lists; cursors are the starts of the lists."""
    for i in range(firsts.size):
        a = np.int64(firsts[i])
        b = np.int64(lasts[i])
        level = tree.bottom
        while a <= b:
            for side in range(2):
                # the same two questions as in count_entries, in the same order
                place = b if side else a
                if (place & 1) == side:
                    continue
                k = _list(level, place, firsts[i], lasts[i], tree.bottom)
                tree.slots[cursors[k]] = box_slots[numbers[i]]
                tree.boxes[cursors[k]] = numbers[i]
                cursors[k] += 1
                if side:
                    b -= 1
                else:
                    a += 1
            a >>= 1
            b >>= 1
            level -= 1


@kernel
def count_partitions(cells, tree):
    """How many entries a batch will look at."""
    total = 0
    for e in range(cells.size):
        for level in range(tree.bottom + 1):
            k = 4 * ((np.int64(1) << level) - 1 + (cells[e] >> (tree.bottom - level)))
            total += tree.starts[k + 4] - tree.starts[k]
    return total


@kernel
def stab_partitions(codes, cells, tree, boxes, offsets, out, compared):
    """Write the matches of a batch; compared[0] adds up entries whose bounds were looked at."""
    p = 0
    for e in range(cells.size):
        offsets[e] = p
        v = codes[tree.on, e]
        for level in range(tree.bottom + 1):
            k = 4 * ((np.int64(1) << level) - 1 + (cells[e] >> (tree.bottom - level)))
            # who begins or ends in this partition may do so beyond the value; replicas that end behind it
            # hold it
            sure = tree.starts[k + 3]
            for q in range(tree.starts[k], sure):
                out[p] = tree.slots[q]
                p += holds_dense_value(boxes, tree.boxes[q], tree.on, v) and holds_dense(
                    boxes, tree.boxes[q], codes, tree.checked, e
                )
            compared[0] += sure - tree.starts[k]
            for q in range(sure, tree.starts[k + 4]):
                out[p] = tree.slots[q]
                p += holds_dense(boxes, tree.boxes[q], codes, tree.checked, e)
    offsets[cells.size] = p
    return p


# Predicates by pivot, operator and attribute: counting the satisfied ones.

EQUAL, AT_LEAST, AT_MOST = 0, 1, 2
_MISSING = np.iinfo(np.int64).min


class OperatorLists(NamedTuple):
    """Sorted lists of operands; papers/contrib/opindex.py tells what the arrays are."""

    pivots: npt.NDArray[np.int64]
    without: npt.NDArray[np.uint8]
    pivot_starts: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.int64]
    operators: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    operands: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.int32]
    needed: npt.NDArray[np.int32]
    always: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]


@kernel
def _below(operands, first, last, code):
    """End of the prefix of ascending operands that are less than a code."""
    while first < last:
        middle = (first + last) >> 1
        if operands[middle] < code:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def _slices(codes, e, lists, slices):
    """The satisfied predicates of an event as slices of the lists; returns how many slices there are."""
    n = 0
    for k in range(lists.pivots.size):
        # whoever has this pivot needs a value of it, unless one of them asks for none
        if codes[lists.pivots[k], e] == _MISSING and not lists.without[k]:
            continue
        for g in range(lists.pivot_starts[k], lists.pivot_starts[k + 1]):
            v = codes[lists.attributes[g], e]
            first = lists.starts[g]
            last = lists.starts[g + 1]
            if lists.operators[g] == AT_LEAST:
                last = prefix_upto(lists.operands, first, last, v)
            else:
                first = _below(lists.operands, first, last, v)
                if lists.operators[g] == EQUAL:
                    last = prefix_upto(lists.operands, first, last, v)
            if first < last:
                slices[n, 0] = 0
                slices[n, 1] = first
                slices[n, 2] = last
                n += 1
    return n


@allocating_kernel
def stab_operators(codes, lists, first, done, offsets, out, counters):
    """Match events first.. and write their slots from out[done] on; returns the event it got to.

    counters[0] adds up satisfied predicates.
    """
    counts = np.zeros(lists.needed.size, lists.needed.dtype)
    slices = np.empty((lists.attributes.size, 3), np.int64)
    p = done
    for e in range(first, codes.shape[1]):
        n = _slices(codes, e, lists, slices)
        total = add_up(slices, n)
        end = count_slices(
            slices,
            n,
            total,
            lists.boxes,
            lists.boxes,
            lists.needed,
            lists.always,
            lists.slots,
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


# Marking who does not match: two sorted lists of ends per attribute, cut into buckets.


class BucketLists(NamedTuple):
    """Low and high ends per attribute, bucket by bucket; papers/contrib/rein.py tells what the arrays are."""

    used: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]
    cut_starts: npt.NDArray[np.int64]
    low_starts: npt.NDArray[np.int64]
    low_keys: npt.NDArray[np.int64]
    low_boxes: npt.NDArray[np.int32]
    high_starts: npt.NDArray[np.int64]
    high_keys: npt.NDArray[np.int64]
    high_boxes: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]


@kernel
def _bucket(cuts, first, last, code):
    """The bucket of a code: how many of cuts[first:last] are not greater."""
    a = first
    b = last
    while a < b:
        middle = (a + b) >> 1
        if cuts[middle] <= code:
            a = middle + 1
        else:
            b = middle
    return a - first


@kernel
def _mark(boxes, first, last, marks):
    for q in range(first, last):
        marks[boxes[q] >> 6] |= np.uint64(1) << np.uint64(boxes[q] & 63)


@kernel
def _mark_event(codes, e, lists, marks, counters):
    """Mark every box that some value of an event rules out."""
    for k in range(lists.used.size):
        v = codes[lists.used[k], e]
        first = lists.cut_starts[k]
        last = lists.cut_starts[k + 1]
        bucket = _bucket(lists.cuts, first, last, v)
        # the lists of attribute k begin after those of the others: each has a bucket more than cuts
        own = first + k + bucket
        begin = first + k
        end = last + k + 1
        # low ends in the value's own bucket are compared, those of later buckets are all above it
        for q in range(lists.low_starts[own], lists.low_starts[own + 1]):
            if lists.low_keys[q] > v:
                marks[lists.low_boxes[q] >> 6] |= np.uint64(1) << np.uint64(lists.low_boxes[q] & 63)
        counters[0] += lists.low_starts[own + 1] - lists.low_starts[own]
        _mark(lists.low_boxes, lists.low_starts[own + 1], lists.low_starts[end], marks)
        for q in range(lists.high_starts[own], lists.high_starts[own + 1]):
            if lists.high_keys[q] < v:
                marks[lists.high_boxes[q] >> 6] |= np.uint64(1) << np.uint64(lists.high_boxes[q] & 63)
        counters[0] += lists.high_starts[own + 1] - lists.high_starts[own]
        _mark(lists.high_boxes, lists.high_starts[begin], lists.high_starts[own], marks)
        counters[1] += lists.low_starts[end] - lists.low_starts[own + 1]
        counters[1] += lists.high_starts[own] - lists.high_starts[begin]


@allocating_kernel
def stab_buckets(codes, lists, first, done, offsets, out, counters):
    """Match events first.. and write their slots from out[done] on; returns the event it got to.

    counters[0] adds up ends that were compared, counters[1] those that were marked without.
    """
    n = lists.slots.size
    marks = np.zeros((n >> 6) + 1, np.uint64)
    p = done
    for e in range(first, codes.shape[1]):
        # all of them may be left, and an event is done whole or not at all
        if p + n > out.size:
            offsets[e] = p
            return e
        marks[:] = 0
        _mark_event(codes, e, lists, marks, counters)
        for w in range(marks.size):
            free = ~marks[w]
            if free == 0:
                continue
            for b in range(64):
                box = 64 * w + b
                if box >= n:
                    break
                if free >> np.uint64(b) & np.uint64(1):
                    out[p] = lists.slots[box]
                    p += 1
        offsets[e + 1] = p
    return codes.shape[1]
