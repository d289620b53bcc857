"""Lists by leading entry: choosing leads, and filling, checking and sweeping the lists of cells.

A list is made of words of 32 bits: how many boxes it has; for each of them a head and its first entry; and
then the other entries, box after box. What heads and entries are made of, LeadLists.form tells:

    word      from the lowest bit on
    a head    the number of the box; REFERS, where it has more entries than are here; how many are here
    an entry  its length (`fill_lengths`), its first mark, its attribute

A mark is the place of a code among pieces of one width of its attribute (`mark_of`), so that an entry tells
of nearly every mark whether a code there is held: it does not of the pieces in which the entry has an end,
unless a piece is one code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import inlined_kernel, kernel

INEXACT = 1 << 7
"""In the scale of an attribute of which a mark may be several codes."""

_MISSING = np.iinfo(np.int64).min
_PRESENT = _MISSING + 1
_LAST = np.iinfo(np.int64).max


class LeadLists(NamedTuple):
    """Lists of boxes per leading attribute and cell; engine/leads.py tells what the arrays are."""

    attributes: npt.NDArray[np.int32]
    cut_starts: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    records: npt.NDArray[np.uint32]
    every: npt.NDArray[np.int32]
    bounded: npt.NDArray[np.int32]
    origins: npt.NDArray[np.int64]
    scales: npt.NDArray[np.uint8]
    form: npt.NDArray[np.int64]


class Form(NamedTuple):
    """Where the fields of words are, as `read_form` gives it: shifts; masks of marks, lengths and boxes."""

    attribute: np.uint32
    mark: np.uint32
    marks: np.uint32
    lengths: np.uint32
    entries: np.uint32
    box: np.uint32
    boxes: np.uint32


@inlined_kernel
def read_form(form):
    """The fields of words, out of how many bits the length, the mark and the number of a box have."""
    length, mark, box = np.uint32(form[0]), np.uint32(form[1]), np.uint32(form[2])
    one = np.uint32(1)
    return Form(
        np.uint32(length + mark),
        length,
        np.uint32(((one << mark) - one) << length),
        np.uint32((one << length) - one),
        np.uint32(box + one),
        box,
        np.uint32((one << box) - one),
    )


@kernel
def choose_leads(starts, shares, leads, seconds):
    """The entry of each box that lets the least through, and the next one; -1 where there is none."""
    for b in range(leads.size):
        first = np.int64(-1)
        second = np.int64(-1)
        for i in range(starts[b], starts[b + 1]):
            if first < 0 or shares[i] < shares[first]:
                second = first
                first = np.int64(i)
            elif second < 0 or shares[i] < shares[second]:
                second = np.int64(i)
        leads[b] = first
        seconds[b] = second


@kernel
def fill_cells(firsts, lasts, cursors, rows):
    """Enter the number of each interval in every cell from its first to its last."""
    for i in range(firsts.size):
        for cell in range(firsts[i], lasts[i] + 1):
            rows[cursors[cell]] = i
            cursors[cell] += 1


@inlined_kernel
def mark_of(code, origin, scale, last):
    """The mark of a code: 0 is missing, 1 lies before the origin, and `last` is everything far behind it."""
    if code == _MISSING:
        return np.uint32(0)
    if code < origin:
        return np.uint32(1)
    # as unsigned: the difference of two codes may be none
    far = (np.uint64(code) - np.uint64(origin)) >> np.uint64(scale & np.uint8(INEXACT - 1))
    return np.uint32(far) + np.uint32(2) if far < np.uint64(last) - np.uint64(2) else np.uint32(last)


@kernel
def fill_lengths(bits, reaches, sure):
    """How far from its first mark an entry of length k may reach, and before which distance it surely does:
    sure[k] where a mark is one code, and otherwise sure[k + half], counted from the second mark. As distances
    stand in words, above the bits of a length.

    A length has an exponent of four bits and a mantissa: small ones are themselves, of large ones the last
    bits are not known.
    """
    half = sure.size // 2
    mantissa = bits - 4
    for k in range(half):
        exponent = max((k >> mantissa) - 1, 0)
        value = k & ((1 << mantissa) - 1)
        if k >> mantissa:
            value |= 1 << mantissa
        least = value << exponent
        most = least + (1 << exponent) - 1
        reaches[k] = (most << bits) | ((1 << bits) - 1)
        sure[k] = (least + 1) << bits
        sure[half + k] = max(least - 1, 0) << bits


@inlined_kernel
def _length_of(marks, bits):
    """What stands for a length: the largest that is not longer."""
    mantissa = np.int64(bits) - 4
    exponent = np.int64(0)
    while (marks >> exponent) >> (mantissa + 1):
        exponent += 1
    if marks >> mantissa == 0:
        return marks
    return ((exponent + 1) << mantissa) | ((marks >> exponent) & ((1 << mantissa) - 1))


@inlined_kernel
def _put_entry(lists, p, attribute, low, high):
    """Write an entry into the records at p; returns where the next one begins."""
    bits, mark_bits = lists.form[0], lists.form[1]
    origin, scale = lists.origins[attribute], lists.scales[attribute]
    last = (np.int64(1) << mark_bits) - 1
    first = np.int64(mark_of(low, origin, scale, last))
    if high == _LAST:
        # beyond the last mark there is none, so that it need not end there
        length = _length_of(last - first + 1, bits) + 1
    else:
        length = _length_of(np.int64(mark_of(high, origin, scale, last)) - first, bits)
    lists.records[p] = np.uint32((np.int64(attribute) << (bits + mark_bits)) | (first << bits) | length)
    return p + 1


@kernel
def find_inexact(entries, origins, last, scales):
    """Say of the scales of attributes whether a mark that an end of an entry is in may be several codes."""
    _, attributes, lows, highs = entries
    for i in range(attributes.size):
        j = attributes[i]
        scale = scales[j]
        exact = scale == 0
        if lows[i] > _PRESENT:
            mark = mark_of(lows[i], origins[j], scale, last)
            exact &= (mark > 1) & (mark < last)
        if highs[i] > _MISSING and highs[i] < _LAST:
            mark = mark_of(highs[i], origins[j], scale, last)
            exact &= (mark > 1) & (mark < last)
        if not exact:
            scales[j] |= np.uint8(INEXACT)


@kernel
def size_records(starts, leads, n_places, most_again, most, counts, refers):
    """counts[b] = how many entries of box b stand in a list; whether its head refers to the box for others:
    when to write them in n_places[b] lists would take more than most_again words, or they are more than most.
    """
    for b in range(counts.size):
        if leads[b] < 0:
            counts[b] = 0
            refers[b] = False
            continue
        n = starts[b + 1] - starts[b]
        counts[b] = 1 if (n - 1) * n_places[b] > most_again else min(n, most)
        refers[b] = counts[b] < n


@kernel
def fill_lists(listed, list_starts, numbers, entries, leads, seconds, counts, refers, lists):
    """Write lists.starts and lists.records; of a box the second entry first, the leading one last.

    listed[list_starts[cell] : list_starts[cell + 1]] are the boxes of a cell. Returns how many words there
    are; where there is no room for records, they are only counted.
    """
    starts, attributes, lows, highs = entries
    form = lists.form
    counting = lists.records.size == 0
    p = np.int64(0)
    for cell in range(list_starts.size - 1):
        lists.starts[cell] = p
        n = list_starts[cell + 1] - list_starts[cell]
        if n == 0:
            continue
        at = p + 1
        p = at + 2 * n
        if not counting:
            lists.records[at - 1] = np.uint32(n)
        for q in range(list_starts[cell], list_starts[cell + 1]):
            b = listed[q]
            last = p + counts[b] - 1
            if counting:
                p = last
                continue
            flag = np.int64(refers[b]) << form[2]
            lists.records[at] = np.uint32(numbers[b] | flag | (counts[b] << (form[2] + 1)))
            one = seconds[b] if seconds[b] >= 0 else leads[b]
            _put_entry(lists, at + 1, attributes[one], lows[one], highs[one])
            at += 2
            for i in range(starts[b], starts[b + 1]):
                if p < last and i != one and i != leads[b]:
                    p = _put_entry(lists, p, attributes[i], lows[i], highs[i])
            if p < last:
                p = _put_entry(lists, p, attributes[leads[b]], lows[leads[b]], highs[leads[b]])
    lists.starts[list_starts.size - 1] = p
    return p


@kernel
def check_lists(lists, n_boxes, n_attributes):
    """Whether each list is whole boxes with one entry or more on attributes; starts ascend."""
    form = read_form(lists.form)
    starts, records = lists.starts, lists.records
    for cell in range(starts.size - 1):
        first, last = starts[cell], starts[cell + 1]
        if first == last:
            continue
        n = np.int64(records[first])
        p = first + 1 + 2 * n
        if n == 0 or p > last:
            return False
        for q in range(first + 1, first + 1 + 2 * n, 2):
            count = np.int64(records[q] >> form.entries)
            if count == 0 or np.int64(records[q] & form.boxes) >= n_boxes:
                return False
            if np.int64(records[q + 1] >> form.attribute) >= n_attributes:
                return False
            p += count - 1
        if p != last:
            return False
        for q in range(first + 1 + 2 * n, last):
            if np.int64(records[q] >> form.attribute) >= n_attributes:
                return False
    return True


@kernel
def sweep_lists(lists, dead, swept_starts, swept):
    """Copy what lives; returns how many words that are."""
    form = read_form(lists.form)
    starts, records = lists.starts, lists.records
    p = np.int64(0)
    for cell in range(starts.size - 1):
        swept_starts[cell] = p
        if starts[cell] == starts[cell + 1]:
            continue
        first = starts[cell] + 1
        rests = first + 2 * np.int64(records[first - 1])
        left = np.int64(0)
        for q in range(first, rests, 2):
            left += dead[records[q] & form.boxes] == 0
        if left == 0:
            continue
        swept[p] = np.uint32(left)
        at = p + 1
        p = at + 2 * left
        r = rests
        for q in range(first, rests, 2):
            count = np.int64(records[q] >> form.entries)
            if dead[records[q] & form.boxes] == 0:
                swept[at] = records[q]
                swept[at + 1] = records[q + 1]
                at += 2
                for w in range(count - 1):
                    swept[p + w] = records[r + w]
                p += count - 1
            r += count - 1
    swept_starts[starts.size - 1] = p
    return p
