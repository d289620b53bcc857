"""Loops over rows of matches: ordering, and dropping what a row names twice."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel


@kernel
def copy_run(source, start, n, out, p):
    """Copy n entries from source[start] on to out[p] on, and return where the next would go.

    Through views: an index that is a sum might be negative for all that the compiler knows, and the
    test for it keeps the loop from being vectorised (4.4 ns an entry instead of 0.35).
    """
    into = out[p : p + n]
    taken = source[start : start + n]
    for q in range(n):
        into[q] = taken[q]
    return p + n


@kernel
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
    p = 0
    for e in range(offsets.size - 1):
        out_offsets[e] = p
        for q in range(offsets[e], offsets[e + 1]):
            s = slots[q]
            slots[p] = s
            p += 1 - dead[s]
    out_offsets[offsets.size - 1] = p
    return p


@kernel
def interleave_rows(offsets_a, slots_a, offsets_b, slots_b, out_offsets, out):
    """Row by row, the matches of two parts one after the other."""
    p = 0
    for e in range(offsets_a.size - 1):
        out_offsets[e] = p
        p = copy_run(slots_a, offsets_a[e], offsets_a[e + 1] - offsets_a[e], out, p)
        p = copy_run(slots_b, offsets_b[e], offsets_b[e + 1] - offsets_b[e], out, p)
    out_offsets[offsets_a.size - 1] = p


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
