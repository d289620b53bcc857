"""Loops over sparse boxes (model/boxes.py): entries of the attributes that a box bounds, some with a set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import inlined_kernel, kernel

SET = 1 << 30
"""The bit of an entry's attribute that says that the entry has a set."""

_POSITION = SET - 1
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max


class ListedValues(NamedTuple):
    """Long sets of values, which have no spans among boxes; engine/listed_values.py tells what each array
    is."""

    sets: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    wide: npt.NDArray[np.uint8]
    on: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint32]


@inlined_kernel
def find_set(boxes, entry):
    """The number of the set of an entry that has one."""
    a = np.int64(0)
    b = np.int64(boxes.sets.size)
    while b - a > 1:
        middle = (a + b) >> 1
        if boxes.sets[middle] <= entry:
            a = middle
        else:
            b = middle
    return a


@inlined_kernel
def in_set(boxes, number, code):
    """Whether a span of a set holds a code that its hull holds."""
    a = boxes.set_starts[number]
    b = boxes.set_starts[number + 1]
    while b - a > 1:
        middle = (a + b) >> 1
        if boxes.set_lows[middle] <= code:
            a = middle
        else:
            b = middle
    return code <= boxes.set_highs[a]


@kernel
def in_list(lists, number, code):
    """Whether the list of a set holds a code that its hull holds; a set without a list holds none."""
    a = np.int64(0)
    b = np.int64(lists.sets.size)
    while b - a > 1:
        middle = (a + b) >> 1
        if lists.sets[middle] <= number:
            a = middle
        else:
            b = middle
    if a == b or lists.sets[a] != number:
        return False
    wanted = np.uint64(code) - np.uint64(lists.bases[a])
    first = lists.starts[a]
    step = np.int64(1) + lists.wide[a]
    n = (lists.starts[a + 1] - first) // step
    low = np.int64(0)
    while low < n:
        middle = (low + n) >> 1
        found = np.uint64(lists.words[first + middle * step])
        if step == 2:
            found |= np.uint64(lists.words[first + middle * step + 1]) << np.uint64(32)
        if found == wanted:
            return True
        if found < wanted:
            low = middle + 1
        else:
            n = middle
    return False


@inlined_kernel
def in_spans_or_list(boxes, lists, number, code):
    """Whether a set holds a code that its hull holds: one without spans has a list."""
    if boxes.set_starts[number] == boxes.set_starts[number + 1]:
        return in_list(lists, number, code)
    return in_set(boxes, number, code)


@inlined_kernel
def first_check(check, slot, tail):
    """The first box that a slot is checked by, -1 where it is not; `drop_unheld` tells what a check is."""
    if check < 0:
        check = -check if slot >= tail else 0
    return check - 1


@inlined_kernel
def holds(boxes, lists, box, codes, e):
    """Whether a box holds event e: each entry's hull first, then the spans of those that have a set."""
    first = boxes.starts[box]
    last = boxes.starts[box + 1]
    with_set = last
    for i in range(last - 1, first - 1, -1):
        at = boxes.attributes[i]
        v = codes[at & _POSITION, e]
        if v < boxes.lows[i] or boxes.highs[i] < v:
            return False
        if at & SET:
            with_set = i
    if with_set < last:
        # the sets of a box follow one another, so that one is looked up and the others counted on from it
        number = find_set(boxes, with_set)
        for i in range(with_set, last):
            at = boxes.attributes[i]
            if at & SET:
                if not in_spans_or_list(boxes, lists, number, codes[at & _POSITION, e]):
                    return False
                number += 1
    return True


@kernel
def count_entries(lows, highs, starts):
    """starts[b + 1] = how many entries the boxes up to b have, of dense ends."""
    d = lows.shape[0]
    n = lows.shape[1]
    for b in range(n + 1):
        starts[b] = 0
    for j in range(d):
        for b in range(n):
            starts[b + 1] += (lows[j, b] != _MISSING) | (highs[j, b] != _LAST)
    for b in range(n):
        starts[b + 1] += starts[b]


@kernel
def fill_entries(lows, highs, starts, cursors, attributes, out_lows, out_highs):
    """The entries of dense ends; `cursors` takes one number per box."""
    d = lows.shape[0]
    n = lows.shape[1]
    for b in range(n):
        cursors[b] = starts[b]
    for j in range(d):
        for b in range(n):
            if lows[j, b] != _MISSING or highs[j, b] != _LAST:
                p = cursors[b]
                attributes[p] = j
                out_lows[p] = lows[j, b]
                out_highs[p] = highs[j, b]
                cursors[b] = p + 1


@kernel
def fill_pieces(boxes, chosen, firsts, lows, highs):
    """Dense ends of the pieces of each box, which are firsts[b] .. firsts[b + 1]; all ends are written.

    A box is cut along its chosen sets, one piece for each choice of spans; other sets give their hull.
    """
    d = lows.shape[0]
    n = firsts.size - 1
    for j in range(d):
        for p in range(firsts[n]):
            lows[j, p] = _MISSING
            highs[j, p] = _LAST
    number = np.int64(0)
    for b in range(n):
        first = firsts[b]
        n_pieces = firsts[b + 1] - first
        every = np.int64(1)
        for i in range(boxes.starts[b], boxes.starts[b + 1]):
            j = boxes.attributes[i] & _POSITION
            size = np.int64(1)
            if boxes.attributes[i] & SET:
                if chosen[number]:
                    start = boxes.set_starts[number]
                    size = boxes.set_starts[number + 1] - start
                    for p in range(n_pieces):
                        q = start + (p // every) % size
                        lows[j, first + p] = boxes.set_lows[q]
                        highs[j, first + p] = boxes.set_highs[q]
                number += 1
            if size == 1:
                for p in range(first, first + n_pieces):
                    lows[j, p] = boxes.lows[i]
                    highs[j, p] = boxes.highs[i]
            every *= size


@kernel
def fill_piece_entries(boxes, chosen, counts, attributes, lows, highs):
    """As `fill_pieces`, by entry: the counts[b] pieces of box b one after the other."""
    number = np.int64(0)
    end = np.int64(0)
    for b in range(counts.size):
        width = boxes.starts[b + 1] - boxes.starts[b]
        every = np.int64(1)
        for k in range(width):
            i = boxes.starts[b] + k
            size = np.int64(1)
            start = np.int64(-1)
            if boxes.attributes[i] & SET:
                if chosen[number]:
                    start = boxes.set_starts[number]
                    size = boxes.set_starts[number + 1] - start
                number += 1
            for p in range(counts[b]):
                at = end + p * width + k
                attributes[at] = boxes.attributes[i] & _POSITION
                lows[at] = boxes.lows[i]
                highs[at] = boxes.highs[i]
                if start >= 0:
                    q = start + (p // every) % size
                    lows[at] = boxes.set_lows[q]
                    highs[at] = boxes.set_highs[q]
            every *= size
        end += width * counts[b]


@kernel
def choose_cuts(boxes, few, most, sizes, led, chosen, leads, checked):
    """Which sets to cut a box along: all where that makes few pieces, otherwise one, at most.

    That one is the shortest list of values (half of its spans are single codes), of `most` spans at the most.
    sizes[k] > 0 where set k is a long list of so many values: no box is cut along that, but leads[k] says
    that a layout finds the box by its list, if led[b] allows it.
    checked[b] = 1 where a set is left that the pieces of box b do not say, 2 where it is the one that leads.
    """
    number = np.int64(0)
    for b in range(boxes.owners.size):
        first = number
        product = np.int64(1)
        best = np.int64(-1)
        best_size = np.int64(most + 1)
        for i in range(boxes.starts[b], boxes.starts[b + 1]):
            if boxes.attributes[i] & SET:
                start = boxes.set_starts[number]
                size = boxes.set_starts[number + 1] - start
                product = min(product * size, np.int64(1) << 31)
                if sizes[number] > 0:
                    if size < best_size or best < 0:
                        best = number
                        best_size = size
                elif size < best_size:
                    values = np.int64(0)
                    for q in range(start, start + size):
                        values += boxes.set_lows[q] == boxes.set_highs[q]
                    if 2 * values >= size:
                        best = number
                        best_size = size
                number += 1
        checked[b] = 0
        for k in range(first, number):
            chosen[k] = 1 if product <= few or (k == best and sizes[k] == 0) else 0
            leads[k] = 1 if k == best and not chosen[k] and led[b] else 0
            if not chosen[k]:
                checked[b] = 2 if leads[k] and checked[b] != 1 and number == first + 1 else 1


@inlined_kernel
def _sets_meet(boxes, i, k):
    """Whether two entries of one attribute share a code, by their sets where they have some."""
    a = i
    a_end = i + 1
    a_lows = boxes.lows
    a_highs = boxes.highs
    if boxes.attributes[i] & SET:
        number = find_set(boxes, i)
        a = boxes.set_starts[number]
        a_end = boxes.set_starts[number + 1]
        a_lows = boxes.set_lows
        a_highs = boxes.set_highs
    c = k
    c_end = k + 1
    c_lows = boxes.lows
    c_highs = boxes.highs
    if boxes.attributes[k] & SET:
        number = find_set(boxes, k)
        c = boxes.set_starts[number]
        c_end = boxes.set_starts[number + 1]
        c_lows = boxes.set_lows
        c_highs = boxes.set_highs
    while a < a_end and c < c_end:
        if a_highs[a] < c_lows[c]:
            a += 1
        elif c_highs[c] < a_lows[a]:
            c += 1
        else:
            return True
    return False


@kernel
def _boxes_meet(boxes, b, c, hulls):
    """Whether two boxes share a point; by the hulls of their sets alone if told."""
    i = boxes.starts[b]
    k = boxes.starts[c]
    while i < boxes.starts[b + 1] and k < boxes.starts[c + 1]:
        own = boxes.attributes[i] & _POSITION
        other = boxes.attributes[k] & _POSITION
        if own < other:
            i += 1
        elif other < own:
            k += 1
        else:
            if boxes.lows[i] > boxes.highs[k] or boxes.lows[k] > boxes.highs[i]:
                return False
            either = (boxes.attributes[i] | boxes.attributes[k]) & SET
            if either and not hulls and not _sets_meet(boxes, i, k):
                return False
            i += 1
            k += 1
    return True


@kernel
def flag_meeting(boxes, hulls, out):
    """out[s] = 1 when two boxes of subscription s share a point; by the hulls of sets alone if told."""
    owners = boxes.owners
    n = owners.size
    for b in range(n):
        s = owners[b]
        c = b + 1
        while c < n and owners[c] == s and not out[s]:
            if _boxes_meet(boxes, b, c, hulls):
                out[s] = 1
            c += 1


@kernel
def drop_unheld(codes, offsets, slots, checks, boxes, lists, tail, out_offsets):
    """Keep the slots that need no check and those of which a box holds the event, in place.

    checks[s] is 0 where slot s needs none, otherwise 1 more than the number of its first box; it is negative
    where a layout that goes by lists finds nothing else, so that only slots from `tail` on, which are in
    none, are checked. `owners` of the boxes are slots. Returns the new size.
    """
    p = np.int64(0)
    n = np.int64(boxes.owners.size)
    for e in range(offsets.size - 1):
        first = offsets[e]
        out_offsets[e] = p
        for q in range(first, offsets[e + 1]):
            s = slots[q]
            box = first_check(np.int64(checks[s]), s, tail)
            kept = box < 0
            while not kept and box < n and boxes.owners[box] == s:
                kept = holds(boxes, lists, box, codes, e)
                box += 1
            if kept:
                slots[p] = s
                p += 1
    out_offsets[offsets.size - 1] = p
    return p
