"""Texts that are mostly digits, in half a byte for each of them.

    half   stands for                 half   stands for
    0-9    the digit                  12     a space
    10     a comma and a space        13     a minus
    11     a comma                    15     the byte that the next two halves are, the lower one first

The halves of a text begin in a byte of their own, the lower half of each byte first. Digits are taken eight
at a time, so a number of six digits and its comma cost 6 ns, where a step for each letter takes 38.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.machine.bitsets import lowest
from rangecast.kernels.types.strings import eight, put_eight
from rangecast.simd.compiler import kernel

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
