"""Windows over intervals that are sorted by their low end: counting, reading and sweeping them.

engine/layouts/windows.py tells what the arrays are. All distances are unsigned, since codes at the two ends
of int64 are further apart than a signed number says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import EIGHT, TOGETHER, copy_eight, keep_eight, keep_eight_reaching, keep_reaching
from rangecast.simd.memory import prefetch, view, view_rows

_MISSING = np.iinfo(np.int64).min
_EVERY = np.int64(np.iinfo(np.int64).max)
_PRESENT = _MISSING + 1
_LAST = np.iinfo(np.int64).max
_ONE = np.uint64(1)
_FOUR = np.uint64(2**TOGETHER - 1)
_EIGHT = np.uint64(EIGHT)
_AHEAD = 8
_LINE = 16
"""Entries of 32 bits in a line of memory."""
DIGIT = 11
CLOSED, RISING, FALLING, ODD, EVERY = range(5)

# the columns of `classes`
TABLE, BUCKETS, SHIFT, NARROWEST, WIDEST = range(5)


class Windows(NamedTuple):
    """The arrays of a part; see the head of engine/layouts/windows.py."""

    base: int
    origin: npt.NDArray[np.uint64]
    lows: npt.NDArray[Any]
    highs: npt.NDArray[Any]
    slots: npt.NDArray[np.int32]
    tables: npt.NDArray[np.int32]
    classes: npt.NDArray[np.int64]
    rising: npt.NDArray[np.int64]
    rising_slots: npt.NDArray[np.int32]
    falling: npt.NDArray[np.int64]
    falling_slots: npt.NDArray[np.int32]
    odd: npt.NDArray[np.int64]
    odd_slots: npt.NDArray[np.int32]
    every: npt.NDArray[np.int32]


@kernel
def sort_out(lows, highs, kinds):
    """Which intervals have both ends, and which are open where; whether all have both."""
    closed = True
    for i in range(lows.size):
        kind = CLOSED
        if lows[i] == _MISSING:
            kind = EVERY if highs[i] == _LAST else ODD
        elif highs[i] == _LAST:
            kind = RISING
        elif lows[i] == _PRESENT:
            kind = FALLING
        kinds[i] = kind
        closed &= kind == CLOSED
    return closed


@kernel
def span_closed(lows, highs):
    """Whether intervals, of which there is one at least, have both ends; the least and the largest low end,
    the largest high end, and the largest width."""
    least = lows[0]
    largest = lows[0]
    top = highs[0]
    widest = np.uint64(0)
    closed = True
    for i in range(lows.size):
        least = min(least, lows[i])
        largest = max(largest, lows[i])
        top = max(top, highs[i])
        widest = max(widest, np.uint64(highs[i]) - np.uint64(lows[i]))
        closed &= (lows[i] > _PRESENT) & (highs[i] != _LAST)
    return closed, least, largest, top, widest


@inlined_kernel
def _heap_of(start, stop, edges, shift, n_digits):
    """Which heap an interval goes to: those of a class by the first digit of where it begins."""
    k = count_below(edges, np.uint64(stop - start))
    return k * n_digits + np.int64(np.uint64(start) >> np.uint64(shift))


@kernel
def count_heaps(starts, stops, edges, shift, n_digits, counts):
    """counts[h] += how many intervals go to heap h."""
    for i in range(starts.size):
        counts[_heap_of(starts[i], stops[i], edges, shift, n_digits)] += 1


@kernel
def fill_heaps(starts, stops, own_slots, edges, shift, n_digits, cursors, lows, highs, slots):
    """Put intervals and their slots into their heaps, at the cursors, which move on."""
    for i in range(starts.size):
        h = _heap_of(starts[i], stops[i], edges, shift, n_digits)
        p = cursors[h]
        lows[p] = starts[i]
        highs[p] = stops[i]
        slots[p] = own_slots[i]
        cursors[h] = p + 1


@inlined_kernel
def _permute(array, first, order, n, copy):
    for q in range(n):
        copy[q] = array[first + q]
    for q in range(n):
        array[first + q] = copy[order[q]]


@kernel
def sort_heaps(ends, first_heap, last_heap, bits, lows, highs, slots, digits, order, other, copy, slot_copy):
    """Sort the intervals of some heaps by where they begin, of which the lowest `bits` bits differ in a heap.

    ends[h] is where heap h ends. A heap lies in the caches and is sorted digit by digit, the lowest first,
    all of them stable; the last five arrays have room for the largest heap.
    """
    mask = np.uint64((1 << DIGIT) - 1)
    for h in range(first_heap, last_heap):
        first = ends[h - 1] if h else np.int64(0)
        n = ends[h] - first
        if n < 2:
            continue
        for q in range(n):
            order[q] = q
        turned = False
        shift = 0
        while shift < bits:
            source = other if turned else order
            target = order if turned else other
            digits[:] = 0
            for q in range(n):
                digits[np.int64((np.uint64(lows[first + q]) >> np.uint64(shift)) & mask)] += 1
            total = np.int64(0)
            for k in range(digits.size):
                total += digits[k]
                digits[k] = total - digits[k]
            for q in range(n):
                i = source[q]
                digit = np.int64((np.uint64(lows[first + i]) >> np.uint64(shift)) & mask)
                target[digits[digit]] = i
                digits[digit] += 1
            turned = not turned
            shift += DIGIT
        sorted_order = other if turned else order
        _permute(lows, first, sorted_order, n, copy)
        _permute(highs, first, sorted_order, n, copy)
        _permute(slots, first, sorted_order, n, slot_copy)


@kernel
def span_widths(lows, highs):
    """The least and the largest width of intervals, of which there is one at least."""
    least = np.uint64(highs[0] - lows[0])
    largest = least
    for i in range(lows.size):
        width = np.uint64(highs[i] - lows[i])
        least = min(least, width)
        largest = max(largest, width)
    return least, largest


@kernel
def rank_buckets(lows, first, shift, from_bucket, to_bucket, table):
    """table[c] = first + how many of the ascending lows lie before bucket c; all lie before the last.

    Of the buckets from one to before another, as far as the table has them: threads share a table.
    """
    j = count_below(lows, np.uint64(from_bucket) << np.uint64(shift))
    last = table.size - 1
    for c in range(from_bucket, min(to_bucket, last)):
        start = np.uint64(c) << np.uint64(shift)
        while j < lows.size and np.uint64(lows[j]) < start:
            j += 1
        table[c] = first + j
    if from_bucket <= last and last < to_bucket:
        table[last] = first + lows.size


@inlined_kernel
def count_below(keys, value):
    """How many of the ascending keys are below a value, without a branch that depends on it."""
    low = np.uint64(0)
    rest = np.uint64(keys.size)
    while rest > np.uint64(0):
        half = (rest + np.uint64(1)) >> np.uint64(1)
        low += half * np.uint64(keys[low + half - np.uint64(1)] < value)
        rest -= half
    return np.int64(low)


@inlined_kernel
def window(w, k, u):
    """Where the candidates of a distance from the base begin in class k, where those that are sure to hold it
    begin and end, and where the candidates end."""
    table = w.classes[k, TABLE]
    last = np.uint64(w.classes[k, BUCKETS])
    shift = np.uint64(w.classes[k, SHIFT])
    narrowest = np.uint64(w.classes[k, NARROWEST])
    widest = np.uint64(w.classes[k, WIDEST])
    bucket = u >> shift
    # an interval that holds u begins at most `widest` before it; one that begins less than `narrowest` before
    # it, and in an earlier bucket, must hold it
    from_bucket = np.uint64(0)
    if u > widest:
        from_bucket = (u - widest) >> shift
    first = w.tables[table + np.int64(min(from_bucket, last))]
    end = w.tables[table + np.int64(min(bucket, last))]
    stop = w.tables[table + np.int64(min(bucket + np.uint64(1), last))]
    sure = first
    if u >= narrowest:
        sure = min(w.tables[table + np.int64(min(((u - narrowest) >> shift) + np.uint64(1), last))], end)
    return np.uint64(first), np.uint64(sure), np.uint64(end), np.uint64(stop)


@inlined_kernel
def ask_ahead(w, u, far):
    """Ask for what an event that comes soon reads and those before it did not: entries of each class that
    begin about its value, and those that it is the first to compare. Its bucket was asked for before, as that
    of an event further ahead is now."""
    for k in range(w.classes.shape[0]):
        table = w.classes[k, TABLE]
        last = np.uint64(w.classes[k, BUCKETS])
        shift = np.uint64(w.classes[k, SHIFT])
        narrowest = np.uint64(w.classes[k, NARROWEST])
        prefetch(w.tables, table + np.int64(min(far >> shift, last)))
        end = np.int64(w.tables[table + np.int64(min(u >> shift, last))])
        prefetch(w.lows, end)
        prefetch(w.highs, end)
        prefetch(w.slots, end)
        prefetch(w.slots, end - _LINE)
        if u >= narrowest:
            sure = np.int64(w.tables[table + np.int64(min(((u - narrowest) >> shift) + _ONE, last))])
            prefetch(w.highs, sure)
            prefetch(w.highs, sure - _LINE)


@inlined_kernel
def open_ends(w, v):
    """How many entries of `rising` hold a value, and from where on those of `falling` and `odd` do."""
    if v == _MISSING:
        return np.int64(0), np.int64(w.falling.size), np.int64(0)
    rising = count_below(w.rising, v + 1) if v < np.iinfo(np.int64).max else np.int64(w.rising.size)
    return rising, count_below(w.falling, v), count_below(w.odd, v)


@kernel
def count_candidates(order, values, w, counts):
    """counts[i] = how many entries event order[i] reads; returns all of them together."""
    total = np.int64(0)
    for i in range(order.size):
        v = values[order[i]]
        rising, falling, odd = open_ends(w, v)
        n = rising + (w.falling.size - falling) + (w.odd.size - odd) + w.every.size
        if v >= w.base:
            u = np.uint64(v) - w.origin[0]
            for k in range(w.classes.shape[0]):
                first, _, _, stop = window(w, k, u)
                n += np.int64(stop - first)
        counts[i] = n
        total += n
    return total


@inlined_kernel
def copy_slots(source, first, stop, out, p):
    """Append source[first:stop] to out, from p on; returns where the next goes."""
    for j in range(np.uint64(stop - first)):
        out[p + j] = source[first + j]
    return p + np.uint64(stop - first)


@inlined_kernel
def keep_holders(w, first, stop, v, out, p):
    """Append those of the entries first..stop that hold a distance; returns where the next goes.

    Each is written and kept only if it holds: a branch would be guessed wrong every second time.
    """
    for j in range(first, stop):
        out[p] = w.slots[j]
        p += np.uint64((w.lows[j] <= v) & (w.highs[j] >= v))
    return p


@inlined_kernel
def keep_wide(w, first, stop, v, out, p):
    """As `keep_holders`, for entries that begin before the distance: only their high ends are compared, four
    at a time where nothing is read behind the entries or written behind `out`."""
    four = np.uint64(TOGETHER)
    if stop + four > np.uint64(w.slots.size) or p + (stop - first) + four > np.uint64(out.size):
        for j in range(first, stop):
            out[p] = w.slots[j]
            p += np.uint64(w.highs[j] >= v)
        return p
    j = first
    while j + four <= stop:
        p += keep_reaching(w.slots, w.highs, j, _FOUR, v, out, p)
        j += four
    return p + keep_reaching(w.slots, w.highs, j, (_ONE << (stop - j)) - _ONE, v, out, p)


@inlined_kernel
def keep_by_eights(w, first, sure, end, stop, v, out, p):
    """As `keep_wide`, `copy_slots` and `keep_holders` after each other, eight at a time, the last ones too:
    loops over what is left of eight are guessed wrong, and took a quarter of the time of 400 matches.

    Eight are read behind `stop`, and eight places written behind the last that holds.
    """
    j = first
    while j < sure:
        p += keep_eight_reaching(w.slots, w.highs, j, sure - j, v, out, p)
        j += _EIGHT
    j = sure
    while j < end:
        copy_eight(w.slots, j, out, p + (j - sure))
        j += _EIGHT
    p += end - sure
    # a bucket has one or two
    p += keep_eight(w.slots, w.lows, w.highs, end, stop - end, v, out, p)
    if stop > end + _EIGHT:
        p = keep_holders(w, end + _EIGHT, stop, v, out, p)
    return p


@inlined_kernel
def tally_holders(w, first, stop, v):
    """How many of the entries first..stop hold a distance."""
    n = np.int64(0)
    for j in range(first, stop):
        n += (w.lows[j] <= v) & (w.highs[j] >= v)
    return n


@kernel
def count_holders(order, values, w, counts):
    """counts[i] = how many entries hold event order[i]."""
    largest = np.uint64(np.iinfo(w.lows.dtype).max)
    for i in range(order.size):
        v = values[order[i]]
        rising, falling, odd = open_ends(w, v)
        n = rising + (w.falling.size - falling) + (w.odd.size - odd) + w.every.size
        if v >= w.base and np.uint64(v) - w.origin[0] <= largest:
            u = np.uint64(v) - w.origin[0]
            own = w.lows.dtype.type(u)
            for k in range(w.classes.shape[0]):
                first, sure, end, stop = window(w, k, u)
                n += tally_holders(w, first, sure, own) + np.int64(end - sure)
                n += tally_holders(w, end, stop, own)
        counts[i] = n


@kernel
def stab(order, values, w, limit, offsets, out):
    """The slots of each event, row i being that of event order[i]; returns how many there are.

    A class is skipped for an event that has as many as the limit.

    `out` has room for all candidates and one more, and for EIGHT more all may be taken eight at a time.
    """
    p = np.uint64(0)
    size = np.uint64(w.slots.size)
    room = np.uint64(out.size)
    largest = np.uint64(np.iinfo(w.lows.dtype).max)
    for i in range(order.size):
        offsets[i] = p
        v = values[order[i]]
        if i + 2 * _AHEAD < order.size:
            soon = values[order[i + _AHEAD]]
            later = values[order[i + 2 * _AHEAD]]
            if w.base <= soon and w.base <= later:
                ask_ahead(w, np.uint64(soon) - w.origin[0], np.uint64(later) - w.origin[0])
        # open at one side or at both: a sorted list begins or ends with those that hold the value
        rising, falling, odd = open_ends(w, v)
        rising, falling = min(rising, limit), max(falling, w.falling.size - limit)
        p = copy_slots(w.rising_slots, np.uint64(0), np.uint64(rising), out, p)
        p = copy_slots(
            w.falling_slots,
            np.uint64(max(falling, w.falling.size - limit)),
            np.uint64(w.falling.size),
            out,
            p,
        )
        p = copy_slots(w.odd_slots, np.uint64(odd), np.uint64(w.odd.size), out, p)
        p = copy_slots(w.every, np.uint64(0), np.uint64(w.every.size), out, p)
        if v < w.base:
            continue
        u = np.uint64(v) - w.origin[0]
        if u > largest:
            continue
        # compared in the width in which ends are stored, so that several are compared at a time
        own = w.lows.dtype.type(u)
        for k in range(w.classes.shape[0]):
            if np.int64(p) - offsets[i] >= limit:
                break
            first, sure, end, stop = window(w, k, u)
            if (
                stop + _EIGHT <= size
                and p + (stop - first) + _EIGHT <= room
                and end - sure <= np.uint64(limit)
            ):
                p = keep_by_eights(w, first, sure, end, stop, own, out, p)
                continue
            p = keep_wide(w, first, sure, own, out, p)
            p = copy_slots(w.slots, sure, min(end, sure + np.uint64(limit)), out, p)
            p = keep_holders(w, end, stop, own, out, p)
    offsets[order.size] = p
    return np.int64(p)


@allocating_kernel
def _stab_few(w, values, offsets, out):
    order = np.arange(values.size)
    # what is counted is not asked for: offsets have the room
    total = count_candidates(order, values, w, offsets) + 1
    if total > out.size:
        return -total
    return stab(order, values, w, _EVERY, offsets, out)


@allocating_kernel
def stab_few_32(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call, where ends have 32 bits.

    `part` is the table of views of engine/layouts/windows.py. Returns how many slots there are, or where
    `out` has less room than events read, minus that.
    """
    head = view(part[0], np.int64)
    # in the order of the fields
    w = Windows(
        head[1],
        view(part[1], np.uint64),
        view(part[2], np.uint32),
        view(part[3], np.uint32),
        view(part[4], np.int32),
        view(part[5], np.int32),
        view_rows(part[6], np.int64),
        view(part[7], np.int64),
        view(part[8], np.int32),
        view(part[9], np.int64),
        view(part[10], np.int32),
        view(part[11], np.int64),
        view(part[12], np.int32),
        view(part[13], np.int32),
    )
    return _stab_few(w, codes[head[0]], offsets, out)


@allocating_kernel
def stab_few_64(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call, where ends have 64 bits.

    `part` is the table of views of engine/layouts/windows.py. Returns how many slots there are, or where
    `out` has less room than events read, minus that.
    """
    head = view(part[0], np.int64)
    # in the order of the fields
    w = Windows(
        head[1],
        view(part[1], np.uint64),
        view(part[2], np.uint64),
        view(part[3], np.uint64),
        view(part[4], np.int32),
        view(part[5], np.int32),
        view_rows(part[6], np.int64),
        view(part[7], np.int64),
        view(part[8], np.int32),
        view(part[9], np.int64),
        view(part[10], np.int32),
        view(part[11], np.int64),
        view(part[12], np.int32),
        view(part[13], np.int32),
    )
    return _stab_few(w, codes[head[0]], offsets, out)
