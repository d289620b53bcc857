"""Finding the cell of a code."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel

_MISSING = np.iinfo(np.int64).min


@kernel
def cell_of(code, cuts, origin, shift):
    """The cell that holds a code; shift >= 0 means inner cells of 2**shift codes from `origin`."""
    n = cuts.size
    if shift >= 0:
        if code == _MISSING:
            return 0
        if code < origin:
            return 1
        if code >= cuts[n - 1]:
            return n - 1
        # shifted before the difference is taken: origin is a multiple of 2**shift, and codes at the two
        # ends of int64 would overflow the other way round
        return (code >> shift) - (origin >> shift) + 2
    low = 0
    high = n
    while high - low > 1:
        middle = (low + high) >> 1
        if cuts[middle] <= code:
            low = middle
        else:
            high = middle
    return low


@kernel
def locate(codes, cuts, origin, shift, out):
    """out[i] = the cell of codes[i]."""
    for i in range(codes.size):
        out[i] = cell_of(codes[i], cuts, origin, shift)
