"""Loops over rows of matches: ordering, and dropping what a row names twice."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import lowest
from rangecast.simd.memory import count_to_line, prefetch, prefetch_to_write, put_line_past, put_past, settle
from rangecast.types.kernels import eight, put_eight

# Hashing ids and the open-addressing table that finds a slot by its id.

_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_C = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 4096


@kernel
def mix(x):
    """The finaliser of splitmix64: every bit of x reaches every bit of the result."""
    x = (x ^ (x >> np.uint64(30))) * _A
    x = (x ^ (x >> np.uint64(27))) * _B
    return x ^ (x >> np.uint64(31))


@kernel
def hash_integer(value):
    """A well-mixed 64-bit hash."""
    return mix(np.uint64(value) + _C)


@kernel
def hash_integers(values, out):
    """out[i] = a well-mixed 64-bit hash of values[i]."""
    for i in range(values.size):
        out[i] = hash_integer(values[i])


@kernel
def hash_strings(starts, letters, out):
    """out[i] = a 64-bit hash of the bytes of string i, eight at a time."""
    for i in range(starts.size - 1):
        a = starts[i]
        b = starts[i + 1]
        h = np.uint64(b - a) * _C
        word = np.uint64(0)
        held = 0
        for q in range(a, b):
            word = (word << np.uint64(8)) | np.uint64(letters[q])
            held += 1
            if held == 8:
                h = mix(h ^ word)
                word = np.uint64(0)
                held = 0
        out[i] = mix(h ^ word ^ np.uint64(held))


@kernel
def _same(values, starts, letters, i, other_values, other_starts, other_letters, j, textual):
    if not textual:
        return values[i] == other_values[j]
    a = starts[i]
    b = other_starts[j]
    n = starts[i + 1] - a
    if other_starts[j + 1] - b != n:
        return False
    for q in range(n):
        if letters[a + q] != other_letters[b + q]:
            return False
    return True


@kernel
def enter(table, hashes, values, starts, letters, textual, first):
    """Put slots first, first + 1, ... into the table.

    With first = 0 an id that stands twice keeps its first slot; later entries (an id inserted again)
    replace the slot that held the id before.
    """
    mask = np.uint64(table.size - 1)
    for k in range(hashes.size):
        slot = first + k
        p = hashes[k] & mask
        while True:
            held = table[p]
            if held < 0:
                table[p] = slot
                break
            if _same(values, starts, letters, held, values, starts, letters, slot, textual):
                if first > 0:
                    table[p] = slot
                break
            p = (p + np.uint64(1)) & mask


@kernel
def enter_living(table, hashes, alive):
    """Put the living slots into an empty table; living ids are distinct, so nothing is compared."""
    mask = np.uint64(table.size - 1)
    for slot in range(hashes.size):
        if alive[slot]:
            p = hashes[slot] & mask
            while table[p] >= 0:
                p = (p + np.uint64(1)) & mask
            table[p] = slot


@kernel
def find(table, values, starts, letters, hashes, other_values, other_starts, other_letters, textual, out):
    """out[j] = the slot whose id is other j; left alone when there is none."""
    mask = np.uint64(table.size - 1)
    for j in range(hashes.size):
        p = hashes[j] & mask
        while table[p] >= 0:
            if _same(
                values, starts, letters, table[p], other_values, other_starts, other_letters, j, textual
            ):
                out[j] = table[p]
                break
            p = (p + np.uint64(1)) & mask


@kernel
def count_from(first, slots, out):
    """out[p] = first + slots[p] (numpy widens the slots first, at four times the cost for a few thousand)."""
    for p in range(slots.size):
        out[p] = np.int64(first) + np.int64(slots[p])


@kernel
def gather(values, slots, out):
    """out[p] = values[slots[p]] (numpy's take first widens the slots, at several times the cost)."""
    for p in range(slots.size):
        # unsigned, so that Numba does not look for negative indexes: 2.3 ns instead of 3.9 at random
        out[p] = values[np.uint32(slots[p])]


@kernel
def counts_up(values):
    """Whether each value is one more than the one before it."""
    # block by block: a loop that may end at any value is not vectorised, and takes three times as long
    for first in range(0, values.size - 1, _AT_ONCE):
        last = min(first + _AT_ONCE, values.size - 1)
        before = values[first:last]
        after = values[first + 1 : last + 1]
        n = 0
        for i in range(before.size):
            n += after[i] - before[i] == 1
        if n < last - first:
            return False
    return True


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


# Events by what they say: rows of attributes and codes, from columns and back.

_MISSING = np.iinfo(np.int64).min


@kernel
def keep_present(column, rows, codes):
    """The rows of a column that have a value, and the values; returns how many."""
    n = 0
    for e in range(column.size):
        rows[n] = e
        codes[n] = column[e]
        n += column[e] != _MISSING
    return n


@kernel
def count_rows(rows, counts):
    """counts[e] += how often event e is among the rows."""
    for i in range(rows.size):
        counts[rows[i]] += 1


@kernel
def enter_column(position, rows, values, cursors, attributes, codes):
    """Append an attribute to the entries of those who have it, at their cursors, which move on."""
    for i in range(rows.size):
        p = cursors[rows[i]]
        attributes[p] = position
        codes[p] = values[i]
        cursors[rows[i]] = p + 1


@kernel
def spread_entries(starts, attributes, codes, out):
    """out[j, e] = the code of event e on attribute j; what it does not say stays as it is."""
    for e in range(starts.size - 1):
        for p in range(starts[e], starts[e + 1]):
            out[attributes[p], e] = codes[p]


# Texts that are mostly digits, in half a byte for each of them.
#
#     half   stands for                 half   stands for
#     0-9    the digit                  12     a space
#     10     a comma and a space        13     a minus
#     11     a comma                    15     the byte that the next two halves are, the lower one first
#
# The halves of a text begin in a byte of their own, the lower half of each byte first. Digits are taken eight
# at a time, so a number of six digits and its comma cost 6 ns, where a step for each letter takes 38.

PADDING = 16
_SPACE, _COMMA, _MINUS, _ZERO = 32, 44, 45, 48
_ZEROS = np.uint64(0x3030303030303030)
_HIGH_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0)
_LOW_HALVES = np.uint64(0x0F0F0F0F0F0F0F0F)
_SIXES = np.uint64(0x0606060606060606)
_BYTES = np.uint64(0x00FF00FF00FF00FF)
_TWOS = np.uint64(0x0000FFFF0000FFFF)
_FOURS = np.uint64(0x00000000FFFFFFFF)
_COMMA_SPACE, _TWO_LETTERS, _PAIR = np.uint64(0x202C), np.uint64(0xFFFF), np.uint64(10)
_4, _8, _16 = np.uint64(4), np.uint64(8), np.uint64(16)


@kernel
def pack_digits(letters, n, out, first):
    """Write the halves of letters[:n] from out[first] on; returns where they end.

    PADDING zeros stand behind the letters, and `out` has room for twice as many bytes and PADDING.
    """
    at = 0
    w = first
    word = np.uint64(0)
    bits = 0
    while at < n:
        letters_here = eight(letters, at)
        digits = letters_here ^ _ZEROS
        others = (digits & _HIGH_HALVES) | (((digits & _LOW_HALVES) + _SIXES) & _HIGH_HALVES)
        k = lowest(others) >> 3  # 8 where all are digits
        if k > 0:
            cut = np.uint64(64 - 8 * k)
            digits = (digits << cut) >> cut
            digits = (digits | (digits >> _4)) & _BYTES
            digits = (digits | (digits >> _8)) & _TWOS
            digits = (digits | (digits >> _16)) & _FOURS
            word |= digits << np.uint64(bits)
            bits += 4 * k
            if k <= 6 and (letters_here >> np.uint64(8 * k)) & _TWO_LETTERS == _COMMA_SPACE:
                # as most lists are written: the next place depends on nothing but how many digits there are
                at += k + 2
                word |= _PAIR << np.uint64(bits)
                put_eight(out, w, word)
                w += (bits + 4) >> 3
                word = word >> np.uint64((bits + 4) & 56)
                bits = (bits + 4) & 7
                continue
            at += k
        letter = letters[at]
        if letter == _COMMA:
            pair = letters[at + 1] == _SPACE
            word |= np.uint64(10 if pair else 11) << np.uint64(bits)
            bits += 4
            at += 2 if pair else 1
        elif k == 0:
            if letter == _SPACE or letter == _MINUS:
                word |= np.uint64(12 if letter == _SPACE else 13) << np.uint64(bits)
                bits += 4
            else:
                word |= np.uint64(15 | (np.int64(letter) << 4)) << np.uint64(bits)
                bits += 12
            at += 1
        put_eight(out, w, word)
        w += bits >> 3
        word = word >> np.uint64(bits & 56)
        bits &= 7
    return w + (bits > 0)


@kernel
def unpack_digits(packed, sizes, out):
    """Write the letters of texts of these sizes one after the other; returns how many bytes of `packed` they
    are, -1 where they are not what pack_digits writes. A size of -1 is no text."""
    p = 0  # halves
    end = 2 * packed.size
    w = 0
    for size in sizes:
        last = w + max(size, 0)
        while w < last:
            if p >= end:
                return -1
            half = (packed[p >> 1] >> np.uint8(4 * (p & 1))) & 15
            p += 1
            if half < 10:
                out[w] = _ZERO + half
            elif half <= 11:
                out[w] = _COMMA
                if half == 10:
                    if w + 1 == last:
                        return -1
                    w += 1
                    out[w] = _SPACE
            elif half <= 13:
                out[w] = _SPACE if half == 12 else _MINUS
            elif half == 14 or p + 2 > end:
                return -1
            else:
                low = (packed[p >> 1] >> np.uint8(4 * (p & 1))) & 15
                high = (packed[(p + 1) >> 1] >> np.uint8(4 * ((p + 1) & 1))) & 15
                out[w] = low | (high << 4)
                p += 2
            w += 1
        p += p & 1
    return p >> 1


# Loops over the boxes of subscriptions.

_LAST = np.iinfo(np.int64).max


@kernel
def close_bounds(lows, highs, has_highs):
    """Turn encoded bounds, MISSING where a side is not bounded, into closed intervals.

    Neither side bounded is "any value or none"; one side bounded asks for a present value.
    """
    for i in range(lows.size):
        high_open = (not has_highs) or highs[i] == _MISSING
        if high_open:
            highs[i] = _LAST
        if lows[i] == _MISSING and not high_open:
            lows[i] = _MISSING + 1


@kernel
def _follow_each_other(lows, highs, first, last):
    """Whether the boxes first..last lie one behind the other on some attribute, as those of a list do."""
    for j in range(lows.shape[0]):
        b = first + 1
        while b < last and highs[j, b - 1] < lows[j, b]:
            b += 1
        if b >= last:
            return True
    return False


@kernel
def _share_a_point(lows, highs, b, c):
    for j in range(lows.shape[0]):
        if lows[j, b] > highs[j, c] or lows[j, c] > highs[j, b]:
            return False
    return True


@kernel
def flag_overlapping(lows, highs, owners, out):
    """out[s] = 1 when two boxes of subscription s share a point in every attribute."""
    n = owners.size
    first = 0
    while first < n:
        s = owners[first]
        last = first + 1
        while last < n and owners[last] == s:
            last += 1
        # neighbours first: thousands of values of a list, in order, are not each compared with all others
        for b in range(first, last - 1):
            out[s] |= _share_a_point(lows, highs, b, b + 1)
        if last - first > 2 and not out[s] and not _follow_each_other(lows, highs, first, last):
            for b in range(first, last):
                c = b + 1
                while c < last and not out[s]:
                    out[s] |= _share_a_point(lows, highs, b, c)
                    c += 1
        first = last
