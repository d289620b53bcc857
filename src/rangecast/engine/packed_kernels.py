"""Two attributes to a 64-bit word: bounds and values in fields of 15 bits, compared all at once.

    bits      bound              value
    0-14      cell of the low    cell of the value            first attribute
    16-30     TOP - cell, high   TOP - cell of the value
    32-62     the same for the second attribute

or one attribute to a word in wide fields of 31 bits (0-30 and 32-62), or three attributes to two words in
medium fields of 20 bits (0-19, 21-40 and 42-61), where 15 cannot tell its values apart and boxes ask for
single ones.

A box holds an event when no field of its bound exceeds the event's, which one subtraction tells:
with the guard bits 15, 31, 47 and 63 set in the event's word, a field that is too small borrows its
guard. Cells count from 1, so a field of 0 is "not bounded", and a field still holds after one is
taken from the event's: then its cell lies strictly inside and the comparison needs no codes. Guards stand
above each field, so words of wide fields have theirs in the bits 31 and 63, of medium ones in 20, 41 and 62.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds, view_boxes
from rangecast.engine.kernels import cell_of
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.memory import float_of, view, view_rows

TOP = 32_767
WIDE_TOP = 2**31 - 1
MEDIUM_TOP = 2**20 - 1
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max
GUARDS = np.uint64(0x8000_8000_8000_8000)
WIDE_GUARDS = np.uint64(0x8000_0000_8000_0000)
MEDIUM_GUARDS = np.uint64(1 << 20 | 1 << 41 | 1 << 62)


class Fields(NamedTuple):
    """What a comparison of words needs to know: ones and guards of each word, and which attributes need a
    look at the codes (engine/packed.py)."""

    ones: npt.NDArray[np.uint64]
    guards: npt.NDArray[np.uint64]
    inexact: npt.NDArray[np.int64]


class CheckedBounds(NamedTuple):
    """The packed bounds of boxes from the number `first` on: in row box - first, or where `rows` says."""

    first: int
    rows: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint64]


@kernel
def pack_bounds(lows, highs, cuts, origin, shift, half, out):
    """Put one attribute's bounds into the half-words of out (n,)."""
    up = np.uint64(32 * half)
    for i in range(lows.size):
        low = lows[i]
        high = highs[i]
        word = 0
        if low != _MISSING:
            word = cell_of(low, cuts, origin, shift) + 1
        if high != _LAST:
            word |= (TOP - 1 - cell_of(high, cuts, origin, shift)) << 16
        out[i] |= np.uint64(word) << up


@kernel
def _spanned_cell(code, origin, last):
    """MISSING, below, one cell per code from origin to last, above; counted from 1."""
    if code == _MISSING:
        return 1
    if code < origin:
        return 2
    if code > last:
        return last - origin + 4
    return code - origin + 3


@kernel
def _add_fields(i, n_wide, low, high, row):
    """Put both fields of the i-th attribute, which has no grid, into its words."""
    if i < n_wide:
        row[i] |= np.uint64(low) | np.uint64(high) << np.uint64(32)
    else:
        k = 2 * (i - n_wide)
        row[n_wide + k // 3] |= np.uint64(low) << np.uint64(21 * (k % 3))
        k += 1
        row[n_wide + k // 3] |= np.uint64(high) << np.uint64(21 * (k % 3))


@inlined_kernel
def hinted_cell(v, own, origin, shift, hints, first, last, down, start, most, least, scale):
    """The cell of a code in a grid, counted from 1; `pack_values` tells what hints are."""
    # the hints leave a few cuts to search; among four, counting beats a search that branches
    if down >= 0 and first <= v and v <= last:
        if scale > 0:
            number = float_of(v if v >= 0 else v ^ _LAST)
            at = start + np.int64((number - least) * scale)
        else:
            at = start + ((v - first) >> down)
        low = np.int64(hints[at])
        if most <= 1:
            # no branch: the next cut lies behind v where none is in this place
            return low + 1 + np.int64(own[low + 1] <= v)
        high = np.int64(hints[at + 1])
        if high - low > 4:
            return low + 1 + cell_of(v, own[low : high + 1], np.int64(0), np.int64(-1))
        c = low + 1
        for q in range(low + 1, high + 1):
            c += own[q] <= v
        return c
    return cell_of(v, own, origin, shift) + 1


@kernel
def pack_values(codes, packing, out):
    """out[e] = the words of event e: wide fields, medium fields, then the others two by two.

    hint_at[i] = (first code, last code, shift, start, most): the cell of a code between them lies within
    hints[start + k] .. hints[start + k + 1], at most so many apart, where k is its distance from the first,
    shifted; a shift below 0: there are no hints. With a scale, scales[i] = (first value, scale), k is the
    distance of its value as a float, times the scale: rounding keeps the order, which is all that is needed.

    All attributes in one call, and all arrays as one table of views (those of engine/packed.py, in its
    order): for a single event more calls or more arrays would cost more than the packing.
    """
    n_wide = view(packing[0], np.int64)[0]
    first_narrow = view(packing[0], np.int64)[1]
    attributes = view(packing[1], np.int64)
    spans = view_rows(packing[2], np.int64)
    cuts = view(packing[3], np.int64)
    cut_starts = view(packing[4], np.int64)
    origins = view(packing[5], np.int64)
    shifts = view(packing[6], np.int64)
    hints = view(packing[7], np.int32)
    hint_at = view_rows(packing[8], np.int64)
    scales = view_rows(packing[9], np.float64)
    out[:] = np.uint64(0)
    # attribute by attribute, so that its grid stays in the registers while all events go by
    for i in range(attributes.size):
        values = codes[attributes[i]]
        if i < spans.shape[0]:
            # a wide or medium field holds a cell per code: nothing is searched
            top = WIDE_TOP if i < n_wide else MEDIUM_TOP
            for e in range(values.size):
                c = _spanned_cell(values[e], spans[i, 0], spans[i, 1])
                _add_fields(i, n_wide, c, top - c, out[e])
        else:
            k = i - spans.shape[0]
            word = first_narrow + (k >> 1)
            up = np.uint64(32 * (k & 1))
            own = cuts[cut_starts[i] : cut_starts[i + 1]]
            first = hint_at[i, 0]
            last = hint_at[i, 1]
            down = hint_at[i, 2]
            start = hint_at[i, 3]
            most = hint_at[i, 4]
            least = scales[i, 0]
            scale = scales[i, 1]
            origin = origins[i]
            shift = shifts[i]
            for e in range(values.size):
                c = hinted_cell(
                    values[e], own, origin, shift, hints, first, last, down, start, most, least, scale
                )
                out[e, word] |= np.uint64(c | ((TOP - c) << 16)) << up


@kernel
def pack_spanned_bounds(lows, highs, origin, last, i, n_wide, columns):
    """Put the bounds on the i-th attribute, which has no grid, into columns (n_words, n)."""
    top = WIDE_TOP if i < n_wide else MEDIUM_TOP
    for r in range(lows.size):
        low = lows[r]
        high = highs[r]
        from_low = 0 if low == _MISSING else _spanned_cell(low, origin, last)
        from_high = 0 if high == _LAST else top - _spanned_cell(high, origin, last)
        _add_fields(i, n_wide, from_low, from_high, columns[:, r])


@kernel
def check_codes(order, codes, boxes, attributes, offsets, candidates):
    """Keep the boxes of each row that hold its event on the given attributes, in place; row i is that of
    event order[i]."""
    p = 0
    a = offsets[0]
    for i in range(order.size):
        b = offsets[i + 1]
        offsets[i] = p
        for q in range(a, b):
            box = candidates[q]
            candidates[p] = box
            p += holds(boxes, box, codes, attributes, order[i])
        a = b
    offsets[offsets.size - 1] = p
    return p


@kernel
def check_packed(order, codes, own, values, part, offsets, candidates):
    """As `check_codes`, by packed bounds; `part` is the table of views of `Checked` in
    engine/packed.py, `own` that of the boxes. Two NamedTuples instead would cost a match of one event
    a quarter more."""
    p = np.uint64(0)
    boxes = view_boxes(own)
    first = view(part[0], np.int64)[0]
    rows = view(part[1], np.int32)
    words = view_rows(part[2], np.uint64)
    ones = view(part[3], np.uint64)
    inexact = view(part[4], np.int64)
    n_words = np.uint64(words.shape[1])
    direct = rows.size == 0
    a = np.uint64(offsets[0])
    for i in range(order.size):
        e = order[i]
        b = np.uint64(offsets[i + 1])
        offsets[i] = np.int64(p)
        # Word by word, each of those that are left: a loop with nothing to choose takes 1.1 to 2.6 ns per
        # candidate, where one that looks at all words of a candidate, and at its codes, takes 2.6 to 8.
        start = p
        for w in range(n_words):
            value = values[e, w] | GUARDS
            to = start
            for q in range(a, b):
                box = candidates[q]
                # unsigned, or Numba looks for negative indexes
                at = np.uint64(box - first)
                row = at if direct else np.uint64(rows[at])
                candidates[to] = box
                to += np.uint64(((value - words[row, w]) & GUARDS) == GUARDS)
            a = start
            b = to
        a = np.uint64(offsets[i + 1])
        p = b
        if inexact.size == 0:
            continue
        p = start
        for q in range(start, b):
            box = candidates[q]
            at = np.uint64(box - first)
            row = at if direct else np.uint64(rows[at])
            sure = GUARDS
            for w in range(n_words):
                sure &= ((values[e, w] - ones[w]) | GUARDS) - words[row, w]
            candidates[p] = box
            p += np.uint64(sure == GUARDS or holds(boxes, box, codes, inexact, e))
    offsets[offsets.size - 1] = np.int64(p)
    return np.int64(p)


@allocating_kernel
def check_few(part, at, own_boxes, codes, offsets, out, n):
    """Of n candidates, keep those that hold their few events on further attributes, if there are any; `part`
    has the table of views of `Checked` at a row, and that of its packing at the next."""
    checked = view_rows(part[at], np.int64)
    if checked.shape[0] == 0 or n == 0:
        return np.int64(n)
    m = codes.shape[1]
    words = np.empty((m, view(checked[3], np.uint64).size), np.uint64)
    pack_values(codes, view_rows(part[at + 1], np.int64), words)
    return check_packed(np.arange(m), codes, own_boxes, words, checked, offsets, out)


@kernel
def to_slots(boxes, n, box_slots):
    """Turn the first n box numbers into slots, in place."""
    for p in range(n):
        boxes[p] = box_slots[boxes[p]]


@kernel
def span_column(lows, highs):
    """The least and the largest end of intervals, those that stand for no end left out."""
    low = np.int64(_LAST)
    high = np.int64(_MISSING)
    for i in range(lows.size):
        if lows[i] > _MISSING + 1:
            low = min(low, lows[i])
            high = max(high, lows[i])
        if _MISSING < highs[i] and highs[i] < _LAST:
            low = min(low, highs[i])
            high = max(high, highs[i])
    return low, high
