"""Z-addresses of any width: interleaving coordinates and back, comparing, jumping into a box.

An address is a row of 64-bit words, the most significant first. Which coordinate gives which bit is
laid down by two arrays (zorder/curve.py makes them):

    dims     int32   n_bits   the dimension of each bit of the address, from the top
    shifts   int32   n_bits   which bit of that coordinate it is

so dimensions may differ in their number of bits, and no kernel assumes an order among them.
"""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import allocating_kernel, kernel

_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@kernel
def bit_of(address, p):
    """Bit p of an address, counted from the top."""
    return (address[p >> 6] >> np.uint64(63 - (p & 63))) & _ONE


@kernel
def interleave(coordinates, dims, shifts, out):
    """out[i] = the address of the point coordinates[:, i]."""
    n_words = out.shape[1]
    for i in range(coordinates.shape[1]):
        for w in range(n_words):
            word = _ZERO
            first = w << 6
            last = min(first + 64, dims.size)
            for p in range(first, last):
                bit = (np.uint64(coordinates[dims[p], i]) >> np.uint64(shifts[p])) & _ONE
                word = (word << _ONE) | bit
            out[i, w] = word << np.uint64(64 - last + first)


@kernel
def separate(addresses, dims, shifts, out):
    """out[:, i] = the coordinates of address i; out starts as zeros."""
    for i in range(addresses.shape[0]):
        for p in range(dims.size):
            bit = bit_of(addresses[i], p)
            k = dims[p]
            out[k, i] = np.int64(np.uint64(out[k, i]) | (bit << np.uint64(shifts[p])))


@kernel
def compare(a, b):
    """-1, 0 or 1: how address a stands to address b on the curve."""
    for w in range(a.size):
        if a[w] != b[w]:
            return -1 if a[w] < b[w] else 1
    return 0


@kernel
def spread(lows, dims, shifts, out):
    """out[k] = the bits of coordinate lows[k] at their places in an address, all else 0."""
    for k in range(out.shape[0]):
        for w in range(out.shape[1]):
            out[k, w] = _ZERO
    for p in range(dims.size):
        k = dims[p]
        bit = (lows[k] >> np.uint64(shifts[p])) & _ONE
        out[k, p >> 6] |= bit << np.uint64(63 - (p & 63))


@kernel
def jump_in(address, lows, highs, spreads, dims, shifts, left_lows, left_highs, out):
    """out = the first address, from `address` on, of a point in the box; False when there is none.

    The walk goes down from the top bit and keeps, per dimension, where the coordinate's prefix left
    that of the box's low side (`left_lows[k]`, a bit's place) and of its high side. It ends where the
    address leaves the box. Below the box, the bit at fault is raised; above it, the last 0 that could
    be a 1 within the box is. What follows is the least completion: bits of the low side in dimensions
    still tight to it, 0 in the others. `spreads` holds the low sides bit by bit (see `spread`).
    """
    n_bits = dims.size
    for k in range(lows.size):
        left_lows[k] = n_bits
        left_highs[k] = n_bits
    raised = -1
    inside = True
    for p in range(n_bits):
        k = dims[p]
        s = np.uint64(shifts[p])
        low = (lows[k] >> s) & _ONE
        high = (highs[k] >> s) & _ONE
        if bit_of(address, p):
            if high == _ZERO and left_highs[k] == n_bits:
                inside = False
                break
            if low == _ZERO and left_lows[k] == n_bits:
                left_lows[k] = p
        else:
            if low == _ONE and left_lows[k] == n_bits:
                inside = False
                raised = p
                break
            if left_highs[k] < n_bits:
                raised = p
            elif high == _ONE:
                raised = p
                left_highs[k] = p
    if inside:
        for w in range(out.size):
            out[w] = address[w]
        return True
    if raised < 0:
        return False
    word = raised >> 6
    place = np.uint64(63 - (raised & 63))
    for w in range(word):
        out[w] = address[w]
    upper = ~((_ONE << place) - _ONE)
    out[word] = (address[word] & upper) | (_ONE << place)
    for w in range(word + 1, out.size):
        out[w] = _ZERO
    for k in range(lows.size):
        if lows[k] == _ZERO or left_lows[k] < raised:
            continue
        if k == dims[raised] and (lows[k] >> np.uint64(shifts[raised])) & _ONE == _ZERO:
            continue
        out[word] |= spreads[k, word] & ~upper
        for w in range(word + 1, out.size):
            out[w] |= spreads[k, w]
    return True


@allocating_kernel
def jump_in_each(addresses, lows, highs, dims, shifts, out, found):
    """`jump_in` for many addresses and one box: found[i] says whether out[i] was written."""
    spreads = np.empty((lows.size, addresses.shape[1]), np.uint64)
    spread(lows, dims, shifts, spreads)
    left_lows = np.empty(lows.size, np.int64)
    left_highs = np.empty(lows.size, np.int64)
    for i in range(addresses.shape[0]):
        found[i] = jump_in(addresses[i], lows, highs, spreads, dims, shifts, left_lows, left_highs, out[i])
