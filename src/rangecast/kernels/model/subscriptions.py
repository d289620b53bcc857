"""Loops over the boxes of subscriptions."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import kernel

_MISSING = np.iinfo(np.int64).min
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
