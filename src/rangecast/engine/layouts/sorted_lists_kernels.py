"""Lists by value whose members are sorted by a second attribute: finding, copying and comparing them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.layouts.lists_kernels import find_dense, find_hashed
from rangecast.engine.layouts.windows_kernels import copy_slots, window
from rangecast.model.kernels import hash_integers
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.memory import view, view_rows

_MISSING = np.iinfo(np.int64).min
_EVERY = np.int64(np.iinfo(np.int64).max)

# how the members of a list are bounded on the attribute by which they are sorted
RISING, FALLING, CLOSED = range(3)


class SortedLists(NamedTuple):
    """The members of all lists; engine/layouts/sorted_lists.py tells what the arrays are.

    Those of `Windows` have the same names and meanings here, so that the kernels of windows read them.
    """

    by: int
    form: int
    starts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]
    end_starts: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    lows: npt.NDArray[np.uint32]
    highs: npt.NDArray[np.uint32]
    tables: npt.NDArray[np.int32]
    classes: npt.NDArray[np.int64]
    checked: npt.NDArray[np.int64]
    checked_lows: npt.NDArray[Any]
    checked_highs: npt.NDArray[Any]


@inlined_kernel
def _rank(ends, first, stop, value):
    """How many of the ascending ends first..stop are at most a value, without a branch that depends on it."""
    low = np.uint64(first)
    rest = np.uint64(stop - first)
    while rest > np.uint64(0):
        half = (rest + np.uint64(1)) >> np.uint64(1)
        low += half * np.uint64(ends[low + half - np.uint64(1)] <= value)
        rest -= half
    return np.int64(low) - first


@kernel
def place(found, values, s, places):
    """places[e] = where event e stands among the ends of its list, counted over all lists; -1 for none.

    A list of n ends has n + 1 such places. found[e] is the list of event e, -1 for none.
    """
    for e in range(found.size):
        k = np.int64(found[e])
        p = np.int64(-1)
        if k >= 0 and values[e] != _MISSING:
            first = np.int64(s.end_starts[k])
            p = first + k + _rank(s.ends, first, np.int64(s.end_starts[k + 1]), values[e])
        places[e] = p


@inlined_kernel
def _members(s, k, place):
    """Which members of list k an event at a place must look at, where they are bounded on one side: a run at
    the beginning of the list or at its end, all of which hold it there."""
    first = np.int64(s.starts[k])
    stop = np.int64(s.starts[k + 1])
    at = place - np.int64(s.end_starts[k]) - k
    if s.form == RISING:
        return first, first + at
    return first + at, stop


@kernel
def count_members(order, found, places, s, counts):
    """counts[i] = how many members event order[i] looks at; returns all of them together."""
    total = np.int64(0)
    for i in range(order.size):
        e = order[i]
        n = np.int64(0)
        if places[e] >= 0:
            if s.form == CLOSED:
                u = np.uint64(places[e])
                for k in range(s.classes.shape[0]):
                    first, _, _, stop = window(s, k, u)
                    n += np.int64(stop - first)
            else:
                first, stop = _members(s, np.int64(found[e]), places[e])
                n = stop - first
        counts[i] = n
        total += n
    return total


@inlined_kernel
def _keep(s, first, stop, v, out, p):
    """Append the positions of those of the members first..stop that hold a place; returns the next place."""
    for j in range(first, stop):
        out[p] = np.int32(j)
        p += np.uint64((s.lows[j] <= v) & (s.highs[j] >= v))
    return p


@inlined_kernel
def _keep_boxes(s, first, stop, v, out, p):
    for j in range(first, stop):
        out[p] = s.boxes[j]
        p += np.uint64((s.lows[j] <= v) & (s.highs[j] >= v))
    return p


@inlined_kernel
def _number(first, stop, out, p):
    """Append the positions first..stop; returns the next place."""
    for j in range(np.uint64(stop - first)):
        out[p + j] = np.int32(first + j)
    return p + np.uint64(stop - first)


@kernel
def stab(order, found, places, s, codes, limit, offsets, out):
    """The boxes of each event, row i being that of event order[i]; returns how many there are.

    `out` has room for all that events look at, and for one more, which is written before it is known to
    match. An event that has as many as the limit is done.
    """
    p = np.uint64(0)
    n_checked = s.checked.size
    for i in range(order.size):
        offsets[i] = p
        e = order[i]
        if places[e] < 0:
            continue
        start = p
        # what the sorted attribute lets through: boxes where nothing else is asked for, else positions
        if s.form != CLOSED:
            first, stop = _members(s, np.int64(found[e]), places[e])
            if n_checked == 0:
                p = copy_slots(s.boxes, np.uint64(first), np.uint64(first + min(stop - first, limit)), out, p)
                continue
            # the first other attribute at once, so that a member that fails costs no store and load more
            j = s.checked[0]
            v = codes[j, e]
            for q in range(np.uint64(first), np.uint64(stop)):
                out[p] = np.int32(q)
                p += np.uint64((s.checked_lows[0, q] <= v) & (s.checked_highs[0, q] >= v))
            n_done = 1
        else:
            u = np.uint64(places[e])
            own = np.uint32(u)
            if n_checked == 0:
                for k in range(s.classes.shape[0]):
                    if np.int64(p - start) >= limit:
                        break
                    first_, sure, end, stop_ = window(s, k, u)
                    p = _keep_boxes(s, first_, sure, own, out, p)
                    p = copy_slots(s.boxes, sure, end, out, p)
                    p = _keep_boxes(s, end, stop_, own, out, p)
                continue
            for k in range(s.classes.shape[0]):
                first_, sure, end, stop_ = window(s, k, u)
                p = _keep(s, first_, sure, own, out, p)
                p = _number(sure, end, out, p)
                p = _keep(s, end, stop_, own, out, p)
            n_done = 0
        # the other attributes, one after the other
        for c in range(n_done, n_checked):
            v = codes[s.checked[c], e]
            to = start
            for q in range(start, p):
                j = np.uint64(out[q])
                out[to] = out[q]
                to += np.uint64((s.checked_lows[c, j] <= v) & (s.checked_highs[c, j] >= v))
            p = to
        for q in range(start, p):
            out[q] = s.boxes[np.uint64(out[q])]
    offsets[order.size] = p
    return np.int64(p)


@allocating_kernel
def stab_few(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call: their lists, their places, the boxes that hold them.

    `part` is the table of views of engine/layouts/sorted_lists.py. Returns how many boxes there are, or where
    `out` has less room than events look at, minus that.
    """
    m = codes.shape[1]
    head = view(part[0], np.int64)
    on = head[0]
    # in the order of the fields
    s = SortedLists(
        head[2],
        head[3],
        view(part[3], np.int32),
        view(part[4], np.int64),
        view(part[5], np.int32),
        view(part[6], np.int32),
        view(part[7], np.uint32),
        view(part[8], np.uint32),
        view(part[9], np.int32),
        view_rows(part[10], np.int64),
        view(part[11], np.int64),
        view_rows(part[12], np.int64),
        view_rows(part[13], np.int64),
    )
    found = np.zeros(m, np.int32)
    if on >= 0:
        own = codes[on]
        values = view(part[1], np.int64)
        table = view(part[2], np.int32)
        if head[1] != 0:
            origin = values[0] if values.size else 0
            find_dense(own, origin, table, s.starts, found)
        else:
            hashes = np.empty(m, np.uint64)
            hash_integers(own, hashes)
            find_hashed(own, hashes, values, table, s.starts, found)
    places = np.empty(m, np.int64)
    place(found, codes[s.by], s, places)
    order = np.arange(m)
    # what is counted is not asked for: offsets have the room
    total = count_members(order, found, places, s, offsets) + 1
    if total > out.size:
        return -total
    return stab(order, found, places, s, codes, _EVERY, offsets, out)


@allocating_kernel
def stab_one(parts, own_boxes, codes, offsets, out):
    """What one event matches in several parts, one after the other; `parts` is a table of their tables.

    Returns how many boxes there are, or where `out` has too little room, minus the room to try with.
    """
    p = 0
    for k in range(parts.shape[0]):
        n = stab_few(view_rows(parts[k], np.int64), own_boxes, codes, offsets, out[p:])
        if n < 0:
            return n - 4 * out.size
        p += n
    offsets[0] = 0
    offsets[1] = p
    return p
