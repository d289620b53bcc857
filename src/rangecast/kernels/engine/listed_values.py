"""Long lists of values: keeping them, giving them back as spans, and laying boxes out by value."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import inlined_kernel, kernel
from rangecast.simd.memory import prefetch

_AHEAD = 8  # lists: 4 and 16 are as good
_LINE = 16  # words
_MISSING = np.iinfo(np.int64).min
_NARROW = np.uint64(2**32)
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


@kernel
def measure_sets(boxes, least, widest, sizes):
    """sizes[k] = how many values set k has, where it has `least` spans, of `widest` values each on average at
    the most, and asks for values alone; otherwise 0."""
    for k in range(boxes.sets.size):
        first = boxes.set_starts[k]
        last = boxes.set_starts[k + 1]
        sizes[k] = 0
        if last - first < least or boxes.set_lows[first] == _MISSING:
            continue
        most = np.uint64(widest * (last - first))
        n = np.uint64(0)
        for q in range(first, last):
            # without their signs: a span may be longer than the largest number
            n += min(np.uint64(boxes.set_highs[q]) - np.uint64(boxes.set_lows[q]), most) + np.uint64(1)
        if n <= most:
            sizes[k] = n


@kernel
def describe_lists(boxes, sets, bases, wide):
    """The least value of each of some sets, and whether some value is too far from it for 32 bits."""
    for i in range(sets.size):
        k = sets[i]
        bases[i] = boxes.set_lows[boxes.set_starts[k]]
        last = boxes.set_highs[boxes.set_starts[k + 1] - 1]
        wide[i] = np.uint64(last) - np.uint64(bases[i]) >= _NARROW


@kernel
def fill_lists(boxes, sets, sizes, bases, wide, p, words):
    """Write the values of some sets one after the other, from p on; sizes[i] says how many the i-th has."""
    for i in range(sets.size):
        first = boxes.set_starts[sets[i]]
        last = boxes.set_starts[sets[i] + 1]
        base = np.uint64(bases[i])
        if not wide[i] and sizes[i] == last - first:
            # single values alone: one subtraction each, several at once
            _fill_singles(boxes.set_lows[first:last], base, words[p : p + last - first])
            p += last - first
            continue
        for q in range(first, last):
            value = np.uint64(boxes.set_lows[q]) - base
            n = np.int64(np.uint64(boxes.set_highs[q]) - np.uint64(boxes.set_lows[q])) + 1
            for _ in range(n):
                words[p] = value & _LOW
                p += 1
                if wide[i]:
                    words[p] = value >> _HALF
                    p += 1
                value += np.uint64(1)


@kernel
def _fill_singles(lows, base, out):
    for q in range(lows.size):
        out[q] = np.uint64(lows[q]) - base


@inlined_kernel
def _value(lists, k, at):
    """A value of list k, as its distance from the base."""
    value = np.uint64(lists.words[at])
    if lists.wide[k]:
        value |= np.uint64(lists.words[at + 1]) << _HALF
    return value


@kernel
def check_lists(lists):
    """Whether the values of each list begin with its base and ascend."""
    for k in range(lists.bases.size):
        step = np.int64(1) + lists.wide[k]
        before = np.uint64(0)
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            value = _value(lists, k, at)
            if (value != before) if at == lists.starts[k] else (value <= before):
                return False
            before = value
        # the last one has a code
        if np.uint64(lists.bases[k]) + np.uint64(2**63) + before < before:
            return False
    return True


@kernel
def count_spans(lists, chosen, counts):
    """How many spans each of the chosen lists is."""
    for i in range(chosen.size):
        k = chosen[i]
        step = np.int64(1) + lists.wide[k]
        n = np.int64(0)
        before = np.uint64(0)
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            value = _value(lists, k, at)
            n += n == 0 or value != before + np.uint64(1)
            before = value
        counts[i] = n


@kernel
def fill_spans(lists, chosen, firsts, lows, highs):
    """Write the spans of the chosen lists, those of the i-th from firsts[i] on."""
    for i in range(chosen.size):
        k = chosen[i]
        base = np.uint64(lists.bases[k])
        step = np.int64(1) + lists.wide[k]
        p = firsts[i] - 1
        before = np.uint64(0)
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            value = _value(lists, k, at)
            code = np.int64(base + value)
            if p < firsts[i] or value != before + np.uint64(1):
                p += 1
                lows[p] = code
            highs[p] = code
            before = value


@kernel
def gather_values(lists, chosen, p, out):
    """Write the codes of the chosen lists one after the other."""
    for i in range(chosen.size):
        k = chosen[i]
        base = np.uint64(lists.bases[k])
        step = np.int64(1) + lists.wide[k]
        for at in range(lists.starts[k], lists.starts[k + 1], step):
            out[p] = np.int64(base + _value(lists, k, at))
            p += 1


@kernel
def rank_values(codes, hashes, values, table, out):
    """out[i] = the place of code i among the values, all of which are in the table (open addressing)."""
    mask = np.uint64(table.size - 1)
    for i in range(codes.size):
        p = hashes[i] & mask
        while values[table[p]] != codes[i]:
            p = (p + np.uint64(1)) & mask
        out[i] = table[p]


@kernel
def lay_out_by_key(words, firsts, lasts, adds, members, tile, cursors, starts, out):
    """Write the member of each list once for each of its keys, key after key, those of a key in the order of
    the lists; starts[key] is where they begin. A key is a word of a list and what is added in that list, and
    keys ascend within a list.

    All lists are walked through together, `tile` keys at a time, so that what is counted and written lies
    within the caches. A list has few words in a tile, and there are more lists than a processor foresees: the
    words of one some lists ahead are asked for, in both passes, which halves the time (35 ns per value
    become 17 with 20,000 lists of 5,000; asked for in the first pass alone, 29).
    """
    n_keys = starts.size - 1
    n_lists = firsts.size
    for i in range(n_lists):
        cursors[i] = firsts[i]
    for key in range(starts.size):
        starts[key] = 0
    p = np.int64(0)
    for first in range(0, n_keys, tile):
        last = min(first + tile, n_keys)
        # starts[key + 1] counts, and becomes the place of the next member of the key: at last where it ends
        for i in range(n_lists):
            ahead = cursors[min(i + _AHEAD, n_lists - 1)]
            prefetch(words, ahead)
            prefetch(words, ahead + _LINE)
            add = adds[i]
            q = cursors[i]
            while q < lasts[i]:
                key = np.int64(words[q]) + add
                if key >= last:
                    break
                starts[key + 1] += 1
                q += 1
        for key in range(first, last):
            n = starts[key + 1]
            starts[key + 1] = p
            p += n
        for i in range(n_lists):
            ahead = cursors[min(i + _AHEAD, n_lists - 1)]
            prefetch(words, ahead)
            prefetch(words, ahead + _LINE)
            add = adds[i]
            q = cursors[i]
            member = members[i]
            while q < lasts[i]:
                key = np.int64(words[q]) + add
                if key >= last:
                    break
                out[starts[key + 1]] = member
                starts[key + 1] += 1
                q += 1
            cursors[i] = q


@kernel
def spread_columns(starts, members, rows, out):
    """The bounds of each list word by word, as engine/equality.py has them: row m is that of member m."""
    n_words = rows.shape[1]
    p = np.int64(0)
    for k in range(starts.size - 1):
        for w in range(n_words):
            for q in range(starts[k], starts[k + 1]):
                out[p] = rows[members[q], w]
                p += 1


@kernel
def rename(members, numbers):
    """members[q] = numbers[members[q]], in place."""
    for q in range(members.size):
        members[q] = numbers[members[q]]
