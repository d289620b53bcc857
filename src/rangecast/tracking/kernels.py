"""Loops over successive states of objects: who came before, and what changed since.

The subscriptions that an event matches are a row of codes in ascending order. The row that an object had
before is that of an earlier event of the same batch, or one of `pool`, where the rows of earlier batches are.
"""

from __future__ import annotations

from rangecast.simd.compiler import kernel

# what precedes an event where it is no event of the batch
KEPT = -1  # the row in the pool
LATE = -2  # nothing: the event is older than what is known of its object

ENTERED = 0
LEFT = 1
STAYS = 2


@kernel
def chain(order, objects, times, newest, previous, last):
    """Link each event to the one before it of the same object; last[e] = 1 for the last one of an object.

    order: the events by object, and those of one object as they came; newest: the time of what is known of
    each event's object.
    """
    before = KEPT
    known = 0
    for p in range(order.size):
        e = order[p]
        if p == 0 or objects[order[p - 1]] != objects[e]:
            before = KEPT
            known = newest[e]
        last[e] = 0
        if times[e] < known:
            previous[e] = LATE
            continue
        if before >= 0:
            last[before] = 0
        previous[e] = before
        last[e] = 1
        before = e
        known = times[e]


@kernel
def compare(previous, starts, lengths, offsets, codes, pool, stays, changes, same):
    """Write each event's changes in the order of events; same[e] = 1 where there is none. Returns how many.

    starts, lengths: the row in the pool of each event's object; changes: (events, codes, kinds) with room for
    both rows of every event.
    """
    out_events, out_codes, out_kinds = changes
    p = 0
    for e in range(previous.size):
        same[e] = 1
        if previous[e] == LATE:
            continue
        # the row before: [c, d) of the pool or of this batch
        in_pool = previous[e] == KEPT
        c = starts[e] if in_pool else offsets[previous[e]]
        d = c + lengths[e] if in_pool else offsets[previous[e] + 1]
        a = offsets[e]
        b = offsets[e + 1]
        # both ascend: the smaller one is in its row alone
        while a < b or c < d:
            old = 0
            if c < d:
                old = pool[c] if in_pool else codes[c]
            if c == d or (a < b and codes[a] < old):
                out_kinds[p] = ENTERED
                out_codes[p] = codes[a]
                a += 1
                same[e] = 0
            elif a == b or old < codes[a]:
                out_kinds[p] = LEFT
                out_codes[p] = old
                c += 1
                same[e] = 0
            else:
                a += 1
                c += 1
                if not stays:
                    continue
                out_kinds[p] = STAYS
                out_codes[p] = old
            out_events[p] = e
            p += 1
    return p


@kernel
def copy_rows(rows, starts, lengths, source, out, first):
    """Copy some rows of `source` one behind the other to out[first] on; starts[r] becomes their new place."""
    p = first
    for k in range(rows.size):
        r = rows[k]
        start = starts[r]
        for q in range(lengths[r]):
            out[p + q] = source[start + q]
        starts[r] = p
        p += lengths[r]
    return p
