"""Constructs in runs: cutting rectangles of cells, sorting what is listed, and stabbing the runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import allocating_kernel, kernel

_M1 = np.uint64(0x5555555555555555)
_M2 = np.uint64(0x3333333333333333)
_M4 = np.uint64(0x0F0F0F0F0F0F0F0F)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_EIGHT = np.uint64(8)
_SIXTEEN = np.uint64(16)
_HALF = np.uint64(32)
_LOW = np.uint64(127)


class RectangleRuns(NamedTuple):
    """Runs of entries; papers/vcr/runs.py tells what the arrays are."""

    stride: int
    shift: int
    planes: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint64]
    ranks: npt.NDArray[np.int32]
    heads: npt.NDArray[np.int32]
    starts: npt.NDArray[np.uint8]
    entries: npt.NDArray[np.int32]
    checked: npt.NDArray[np.int64]


@kernel
def _bits(x):
    """How many bits are set; sums instead of a product, which would overflow."""
    x = x - ((x >> _ONE) & _M1)
    x = (x & _M2) + ((x >> _TWO) & _M2)
    x = (x + (x >> _FOUR)) & _M4
    x = x + (x >> _EIGHT)
    x = x + (x >> _SIXTEEN)
    x = x + (x >> _HALF)
    return np.int64(x & _LOW)


@kernel
def _rank(place, words, ranks):
    """How many buckets before this place hold something."""
    w = place >> 6
    below = (_ONE << np.uint64(place & 63)) - _ONE
    return ranks[w] + _bits(words[w] & below)


@kernel
def _aligned(y, last, k):
    """The largest j <= k for which y is a multiple of 2**j and the block at y ends by `last`."""
    j = 0
    while j < k and (y >> j) & 1 == 0 and y + (2 << j) - 1 <= last:
        j += 1
    return j


@kernel
def count_blocks(y0, y1, k):
    """How many aligned blocks of at most 2**k cells make y0..y1."""
    n = 0
    y = y0
    while y <= y1:
        y += 1 << _aligned(y, y1, k)
        n += 1
    return n


@kernel
def count_pieces(x0s, x1s, y0s, y1s, kx, ky, across, upward):
    """across[k, r], upward[k, r] = pieces of rectangle r along x, y when sizes stop at 2**k."""
    for r in range(x0s.size):
        w = x1s[r] - x0s[r] + 1
        for k in range(kx + 1):
            n = w >> k
            rest = w & ((1 << k) - 1)
            while rest:
                rest &= rest - 1
                n += 1
            across[k, r] = n
        for k in range(ky + 1):
            upward[k, r] = count_blocks(y0s[r], y1s[r], k)


@allocating_kernel
def count_planes(x0s, x1s, y0s, y1s, kinds, kx, ky, counts):
    """counts[kind, i, j] += entries of constructs of 2**i by 2**j cells."""
    tops = np.empty(ky + 1, np.int64)
    for r in range(x0s.size):
        tops[:] = 0
        y = y0s[r]
        while y <= y1s[r]:
            j = _aligned(y, y1s[r], ky)
            tops[j] += 1
            y += 1 << j
        w = x1s[r] - x0s[r] + 1
        i = kx
        while w > 0:
            n = w >> i
            if n:
                for j in range(ky + 1):
                    counts[kinds[r], i, j] += n * tops[j]
                w -= n << i
            i -= 1


@kernel
def fill_keys(x0s, x1s, y0s, y1s, kinds, values, kx, ky, bases, stride, keys, entries):
    """Cut each rectangle; keys[p] = the place of a construct, entries[p] = whose it is."""
    p = 0
    for r in range(x0s.size):
        y = y0s[r]
        while y <= y1s[r]:
            j = _aligned(y, y1s[r], ky)
            x = x0s[r]
            i = kx
            while x <= x1s[r]:
                while x + (1 << i) - 1 > x1s[r]:
                    i -= 1
                keys[p] = bases[kinds[r], i, j] + (y >> j) * stride + x
                entries[p] = values[r]
                p += 1
                x += 1 << i
            y += 1 << j
    return p


@kernel
def interleave(xs, ys, out):
    """out[r] = the bits of xs[r] and ys[r] in turn: the place on the Z curve."""
    for r in range(xs.size):
        z = 0
        for bit in range(15):
            z |= ((xs[r] >> bit) & 1) << (2 * bit)
            z |= ((ys[r] >> bit) & 1) << (2 * bit + 1)
        out[r] = z


@allocating_kernel
def sort_pass(keys, entries, shift, out_keys, out_entries):
    """One stable pass of a radix sort by eleven bits of the keys."""
    starts = np.zeros(2049, np.int64)
    for p in range(keys.size):
        starts[((keys[p] >> shift) & 2047) + 1] += 1
    for d in range(2048):
        starts[d + 1] += starts[d]
    for p in range(keys.size):
        d = (keys[p] >> shift) & 2047
        q = starts[d]
        out_keys[q] = keys[p]
        out_entries[q] = entries[p]
        starts[d] = q + 1


@kernel
def count_buckets(keys, most, out):
    """out[s] = how many buckets of 2**s places hold something, for sorted keys and s <= most."""
    for s in range(most + 1):
        out[s] = 1 if keys.size else 0
    for p in range(1, keys.size):
        apart = keys[p] ^ keys[p - 1]
        s = 0
        while apart and s <= most:
            out[s] += 1
            apart >>= 1
            s += 1


@kernel
def fill_buckets(keys, runs):
    """Mark the buckets that hold something and note where each begins."""
    shift = runs.shift
    words = runs.words
    heads = runs.heads
    starts = runs.starts
    k = 0
    last = -1
    for p in range(keys.size):
        place = keys[p] >> shift
        if place != last:
            last = place
            words[place >> 6] |= _ONE << np.uint64(place & 63)
            heads[k] = p
            k += 1
        if starts.size:
            starts[p] = keys[p] & ((1 << shift) - 1)
    heads[k] = keys.size
    before = 0
    for w in range(words.size):
        runs.ranks[w] = before
        before += _bits(words[w])


@kernel
def _first_at_least(starts, a, b, bound):
    """The first place in a..b whose start is not below the bound; a bucket is in ascending order."""
    while b - a > 16:
        middle = (a + b) >> 1
        if starts[middle] < bound:
            a = middle + 1
        else:
            b = middle
    while a < b and starts[a] < bound:
        a += 1
    return a


@kernel
def find_runs(x, y, runs, found):
    """found[2r], found[2r + 1] = the entries of plane r whose constructs hold the cell (x, y).

    Returns how many entries there are.
    """
    planes = runs.planes
    shift = runs.shift
    words = runs.words
    ranks = runs.ranks
    heads = runs.heads
    starts = runs.starts
    total = 0
    inside = (1 << shift) - 1
    for r in range(planes.shape[0]):
        i = planes[r, 1]
        row = planes[r, 3] + (y >> planes[r, 2]) * runs.stride
        low = x - (1 << i) + 1
        if low < 0:
            low = 0
        first = (row + low) >> shift
        last = (row + x) >> shift
        k = _rank(first, words, ranks)
        m = _rank(last + 1, words, ranks)
        a = heads[k]
        b = heads[m]
        if shift and a < b:
            # the first and the last bucket may hold constructs that begin too early or too late
            f = heads[k + np.int64((words[first >> 6] >> np.uint64(first & 63)) & _ONE)]
            g = heads[m - np.int64((words[last >> 6] >> np.uint64(last & 63)) & _ONE)]
            a = _first_at_least(starts, a, f, low & inside)
            if g < a:
                g = a
            b = _first_at_least(starts, g, b, (x & inside) + 1)
        found[2 * r] = a
        found[2 * r + 1] = b
        total += b - a
    return total


@kernel
def estimate(xs, ys, runs, found):
    """How many entries a batch will look at."""
    total = 0
    for e in range(xs.size):
        total += find_runs(xs[e], ys[e], runs, found)
    return total


@kernel
def stab(codes, xs, ys, runs, n_whole, tested, boxes, found, state, offsets, out):
    """Copy the runs of whole planes, check those of crossed ones.

    state[0] is the event to go on with, state[1] the matches written; returns False when `out` has
    no room for the next event. The first n_whole planes are whole: an entry of these is a slot when no
    other attribute is checked; otherwise a box whose attributes in `checked` are to be looked at; of crossed
    planes it is a box, and `tested` lists all attributes that matter.
    """
    lows = boxes.lows
    highs = boxes.highs
    entries = runs.entries
    copied = runs.checked.size == 0
    p = state[1]
    for e in range(state[0], xs.size):
        total = find_runs(xs[e], ys[e], runs, found)
        if p + total > out.size:
            state[0] = e
            state[1] = p
            return False
        offsets[e] = p
        for r in range(runs.planes.shape[0]):
            a = found[2 * r]
            b = found[2 * r + 1]
            if copied and r < n_whole:
                for q in range(b - a):
                    out[p + q] = entries[a + q]
                p += b - a
                continue
            attributes = runs.checked if r < n_whole else tested
            for q in range(a, b):
                box = entries[q]
                hit = True
                for k in range(attributes.size):
                    j = attributes[k]
                    v = codes[j, e]
                    if v < lows[j, box] or highs[j, box] < v:
                        hit = False
                        break
                if hit:
                    out[p] = boxes.slots[box]
                    p += 1
    offsets[xs.size] = p
    state[0] = xs.size
    state[1] = p
    return True
