"""Loops over the boxes of subscriptions."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel

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
def flag_overlapping(lows, highs, owners, out):
    """out[s] = 1 when two boxes of subscription s share a point in every attribute."""
    d = lows.shape[0]
    n = owners.size
    for b in range(n):
        s = owners[b]
        c = b + 1
        while c < n and owners[c] == s and not out[s]:
            apart = False
            for j in range(d):
                if lows[j, b] > highs[j, c] or lows[j, c] > highs[j, b]:
                    apart = True
                    break
            if not apart:
                out[s] = 1
            c += 1
