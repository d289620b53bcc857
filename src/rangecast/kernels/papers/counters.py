"""Counting satisfied predicates: what `counting` and `opindex` do alike once they have found them.

An event's satisfied predicates are slices of lists of boxes, (which list, first, last). Each adds one to the
counter of its box, and a box is a match when its counter reaches the number of its predicates.
"""

from __future__ import annotations

from rangecast.simd.compiler import kernel


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
