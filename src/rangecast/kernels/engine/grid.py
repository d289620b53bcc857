"""Finding the cell of a code."""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import kernel

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
    # no branch depends on the code: at random codes a wrong guess costs more than the whole step
    low = np.uint64(0)
    rest = np.uint64(n)
    while rest > np.uint64(1):
        half = rest >> np.uint64(1)
        low += half * np.uint64(cuts[low + half] <= code)
        rest -= half
    return np.int64(low)


@kernel
def locate(codes, cuts, origin, shift, out):
    """out[i] = the cell of codes[i]."""
    for i in range(codes.size):
        out[i] = cell_of(codes[i], cuts, origin, shift)


@kernel
def sort_by_cell(cells, counts, order):
    """order = positions by ascending cell, stable; counts: zeros, one more than there are cells."""
    for i in range(cells.size):
        counts[cells[i] + 1] += 1
    for c in range(1, counts.size):
        counts[c] += counts[c - 1]
    for i in range(cells.size):
        order[counts[cells[i]]] = i
        counts[cells[i]] += 1
