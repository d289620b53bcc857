"""Loops over rows of matches: ordering, and dropping what a row names twice."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.memory import count_to_line, prefetch, prefetch_to_write, put_line_past, put_past, settle

_ROWS_AHEAD = 8


@inlined_kernel
def copy_run(source, start, n, add, past, out, p):
    """Copy n entries from source[start] on, with `add` added, to out[p] on, or past the caches.

    Returns where the next would go. Places are unsigned here: an index might be negative for all that the
    compiler knows, and the test for it keeps the loop from being vectorised (0.68 ns per entry instead of
    0.16; 0.43 through slices). Past the caches a line is written at once: entry by entry, a row of 400 takes
    1.2 times as long.
    """
    first = np.uint64(start)
    to = np.uint64(p)
    if past:
        all_of_it = np.uint64(n)
        line = np.uint64(64 // out.itemsize)
        q = min(count_to_line(out, to), all_of_it)
        for k in range(q):
            put_past(out, to + k, source[first + k] + add)
        while q + line <= all_of_it:
            put_line_past(source, first + q, add, out, to + q)
            q += line
        for k in range(q, all_of_it):
            put_past(out, to + k, source[first + k] + add)
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
def drop_repeats(offsets, slots, flagged, every, seen, out_offsets):
    """Keep each slot once per row, in place; only `flagged` slots can repeat, or all where `every` is set.
    Returns the new size.

    `seen` is a hash table by open addressing of at least twice as many places as a row has slots, a power of
    two, filled with -1: an entry is an event above 32 bits and a slot below, so that those of other events
    are free places. A stamp for each slot of the index would be megabytes to fill for a batch, and a load
    from memory per match: rows of a few hundred of a million slots take 0.4 of the time this way.
    """
    p = 0
    last = seen.size - 1
    for e in range(offsets.size - 1):
        out_offsets[e] = p
        mark = np.int64(e) << 32
        for q in range(offsets[e], offsets[e + 1]):
            s = slots[q]
            if every or flagged[s]:
                # spread by a product, for slots that differ by a power of two alone are common
                at = ((np.int64(s) * 2_654_435_769) >> 16) & last
                while seen[at] >= mark and seen[at] != mark + s:
                    at = (at + 1) & last
                if seen[at] == mark + s:
                    continue
                seen[at] = mark + s
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
def cut_rows(offsets, slots, limit, out_offsets):
    """Keep the first `limit` slots of each row, in place. Returns the new size."""
    p = np.int64(0)
    for e in range(offsets.size - 1):
        out_offsets[e] = p
        p = copy_run(slots, offsets[e], min(offsets[e + 1] - offsets[e], limit), np.int32(0), False, slots, p)
    out_offsets[offsets.size - 1] = p
    return p


@kernel
def shorten_rows(offsets, slots, counts, out_offsets):
    """Keep the first counts[e] slots of each row, in place. Returns the new size."""
    p = np.int64(0)
    for e in range(offsets.size - 1):
        out_offsets[e] = p
        p = copy_run(slots, offsets[e], counts[e], np.int32(0), False, slots, p)
    out_offsets[offsets.size - 1] = p
    return p


@inlined_kernel
def _yields(a, b, priorities):
    """Whether slot a gives way to slot b: of lower priority, or of the same and with the larger number."""
    return priorities[a] < priorities[b] or (priorities[a] == priorities[b] and a > b)


@inlined_kernel
def _sink(slots, first, at, n, priorities):
    """Restore a heap of n slots, in which the first gives way to all others, from one place on."""
    while True:
        low = at
        for child in range(2 * at + 1, min(2 * at + 3, n)):
            if _yields(slots[first + child], slots[first + low], priorities):
                low = child
        if low == at:
            return
        other = slots[first + at]
        slots[first + at] = slots[first + low]
        slots[first + low] = other
        at = low


@kernel
def keep_highest(offsets, slots, priorities, limit, out_offsets):
    """Keep the slots of highest priority of each row, the highest first, in place. Returns the new size.

    What is kept of a row is a heap until the row ends: never behind the slot that is read next.
    """
    p = np.int64(0)
    for e in range(offsets.size - 1):
        out_offsets[e] = p
        first = offsets[e]
        n = min(offsets[e + 1] - first, limit)
        for q in range(n):
            slots[p + q] = slots[first + q]
        for at in range(n // 2 - 1, -1, -1):
            _sink(slots, p, at, n, priorities)
        for q in range(first + n, offsets[e + 1]):
            if _yields(slots[p], slots[q], priorities):
                slots[p] = slots[q]
                _sink(slots, p, 0, n, priorities)
        # the one that gives way to all others goes last, until all are in order
        for left in range(n - 1, 0, -1):
            other = slots[p]
            slots[p] = slots[p + left]
            slots[p + left] = other
            _sink(slots, p, 0, left, priorities)
        p += n
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
    """Turn the slots of some rows into ids, where they stand.

    Rows are far apart where these are a few behind many, and ids are anywhere: both are asked for ahead.
    """
    for e in range(places.size):
        if e + 2 * _ROWS_AHEAD < places.size:
            prefetch_to_write(out, np.uint64(places[e + 2 * _ROWS_AHEAD]))
        if e + _ROWS_AHEAD < places.size:
            p = np.uint64(places[e + _ROWS_AHEAD])
            for q in range(np.uint64(min(counts[e + _ROWS_AHEAD], _ROWS_AHEAD))):
                prefetch(values, np.int64(out[p + q]))
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
