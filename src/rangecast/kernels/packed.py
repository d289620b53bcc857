"""Two attributes to a 64-bit word: bounds and values in fields of 15 bits, compared all at once.

    bits      bound              value
    0-14      cell of the low    cell of the value            first attribute
    16-30     TOP - cell, high   TOP - cell of the value
    32-62     the same for the second attribute

A box holds an event when no field of its bound exceeds the event's, which one subtraction tells:
with the guard bits 15, 31, 47 and 63 set in the event's word, a field that is too small borrows its
guard. Cells count from 1, so a field of 0 is "not bounded", and a field still holds after one is
taken from the event's: then its cell lies strictly inside and the comparison needs no codes.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel
from rangecast.kernels.grid import cell_of

TOP = 32_767
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max
GUARDS = np.uint64(0x8000_8000_8000_8000)


@kernel
def pack_values(codes, cuts, origin, shift, half, out):
    """Put one attribute's values into the half-words of out (n,): half 0 is the lower."""
    up = np.uint64(32 * half)
    for e in range(codes.size):
        c = cell_of(codes[e], cuts, origin, shift) + 1
        out[e] |= np.uint64(c | ((TOP - c) << 16)) << up


@kernel
def pack_bounds(lows, highs, numbers, cuts, origin, shift, half, out):
    """Put one attribute's bounds into the half-words of out (n,), for the boxes with these numbers."""
    up = np.uint64(32 * half)
    for i in range(numbers.size):
        low = lows[numbers[i]]
        high = highs[numbers[i]]
        word = 0
        if low != _MISSING:
            word = cell_of(low, cuts, origin, shift) + 1
        if high != _LAST:
            word |= (TOP - 1 - cell_of(high, cuts, origin, shift)) << 16
        out[i] |= np.uint64(word) << up


@kernel
def holds(bounds, row, values, e):
    """Whether every word of a box's row of bounds lets the event's words through."""
    for w in range(bounds.shape[1]):
        if (((values[e, w] | GUARDS) - bounds[row, w]) & GUARDS) != GUARDS:
            return False
    return True


@kernel
def surely_holds(bounds, row, values, ones, e):
    """As `holds`, but only when no inexact field lies on a border cell of the box."""
    for w in range(bounds.shape[1]):
        if ((((values[e, w] - ones[w]) | GUARDS) - bounds[row, w]) & GUARDS) != GUARDS:
            return False
    return True


@kernel
def box_holds(lows, highs, box, codes, attributes, e):
    """The comparison of codes, on some attributes."""
    for k in range(attributes.size):
        j = attributes[k]
        if codes[j, e] < lows[j, box] or codes[j, e] > highs[j, box]:
            return False
    return True


@kernel
def check_rest(codes, lows, highs, attributes, offsets, boxes):
    """Keep the boxes of each row that hold its event on the given attributes, in place."""
    p = 0
    a = offsets[0]
    for e in range(offsets.size - 1):
        b = offsets[e + 1]
        offsets[e] = p
        for q in range(a, b):
            box = boxes[q]
            boxes[p] = box
            p += box_holds(lows, highs, box, codes, attributes, e)
        a = b
    offsets[offsets.size - 1] = p
    return p


@kernel
def to_slots(boxes, n, box_slots):
    """Turn the first n box numbers into slots, in place."""
    for p in range(n):
        boxes[p] = box_slots[boxes[p]]
