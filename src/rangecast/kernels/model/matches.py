"""Loops over rows of matches: ordering, and dropping what a row names twice."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import allocating_kernel, inlined_kernel, kernel
from rangecast.kernels.machine.memory import put_past, settle


@inlined_kernel
def copy_run(source, start, n, add, past, out, p):
    """Copy n entries from source[start] on, with `add` added, to out[p] on, or past the caches.

    Returns where the next would go. Places are unsigned here: an index might be negative for all that the
    compiler knows, and the test for it keeps the loop from being vectorised (0.68 ns per entry instead of
    0.16; 0.43 through slices).
    """
    first = np.uint64(start)
    to = np.uint64(p)
    if past:
        for q in range(np.uint64(n)):
            put_past(out, to + q, source[first + q] + add)
    else:
        for q in range(np.uint64(n)):
            out[to + q] = source[first + q] + add
    return p + n


@allocating_kernel
def order_rows(offsets, keys, order):
    """order[p] = where the p-th smallest key of each row stands."""
    for e in range(offsets.size - 1):
        a = offsets[e]
        b = offsets[e + 1]
        if b - a == 1:
            order[a] = a
        elif b > a:
            order[a:b] = np.argsort(keys[a:b], kind="mergesort") + a


@kernel
def drop_repeats(offsets, slots, flagged, stamps, out_offsets):
    """Keep each slot once per row, in place; only `flagged` slots can repeat. Returns the new size.

    stamps: one int64 per slot, all below 0 or left from other events (event numbers only grow).
    """
    p = 0
    for e in range(offsets.size - 1):
        out_offsets[e] = p
        for q in range(offsets[e], offsets[e + 1]):
            s = slots[q]
            if flagged[s]:
                if stamps[s] == e:
                    continue
                stamps[s] = e
            slots[p] = s
            p += 1
    out_offsets[offsets.size - 1] = p
    return p


@kernel
def drop_dead(offsets, slots, dead, out_offsets):
    """Keep the slots that are not dead, in place. Returns the new size."""
    p = np.int64(0)
    for e in range(offsets.size - 1):
        out_offsets[e] = p
        for q in range(offsets[e], offsets[e + 1]):
            s = slots[q]
            slots[p] = s
            p += 1 - np.int64(dead[np.uint32(s)])
    out_offsets[offsets.size - 1] = p
    return p


@kernel
def place_rows(offsets, slots, places, add, past, out):
    """Copy row e of one source, with `add` added, to out[places[e]] on; past the caches if told."""
    for e in range(places.size):
        copy_run(slots, offsets[e], offsets[e + 1] - offsets[e], add, past, out, places[e])
    settle()


@kernel
def place_turned(order, offsets, slots, places, add, past, out):
    """As `place_rows`, where row r of the source is that of event order[r]."""
    for r in range(order.size):
        copy_run(slots, offsets[r], offsets[r + 1] - offsets[r], add, past, out, places[order[r]])
    settle()


@kernel
def name_rows(counts, values, places, out):
    """Turn the slots of some rows into ids, where they stand."""
    for e in range(places.size):
        p = np.uint64(places[e])
        for q in range(np.uint64(counts[e])):
            out[p + q] = values[np.uint64(out[p + q])]


@kernel
def group_pairs(events, slots, n, offsets, out):
    """Put n (event, slot) pairs into rows, keeping their order within a row; offsets start as zeros."""
    for p in range(n):
        offsets[events[p] + 1] += 1
    for e in range(1, offsets.size):
        offsets[e] += offsets[e - 1]
    for p in range(n):
        e = events[p]
        out[offsets[e]] = slots[p]
        offsets[e] += 1
    for e in range(offsets.size - 1, 0, -1):
        offsets[e] = offsets[e - 1]
    offsets[0] = 0
