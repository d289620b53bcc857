"""Boxes that are alike: found by hash, verified bound by bound, and their members copied in runs."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel
from rangecast.kernels.model.ids import mix
from rangecast.kernels.model.matches import copy_run


@kernel
def hash_boxes(lows, highs, out):
    """Mix the bounds of each box on one attribute into its hash."""
    for i in range(lows.size):
        out[i] = mix(mix(out[i] ^ np.uint64(lows[i])) ^ np.uint64(highs[i]))


@kernel
def mark_firsts(lows, highs, out):
    """Set out[i] where box i has other bounds on one attribute than the box before it."""
    for i in range(1, lows.size):
        out[i] |= (lows[i - 1] != lows[i]) | (highs[i - 1] != highs[i])


@kernel
def count_members(offsets, groups, starts, counts):
    """counts[e] = how many members the groups of row e have."""
    for e in range(counts.size):
        n = np.int64(0)
        for q in range(offsets[e], offsets[e + 1]):
            n += starts[groups[q] + 1] - starts[groups[q]]
        counts[e] = n


@kernel
def copy_members(offsets, groups, starts, members, places, add, out):
    """Write the members of the groups of row e, with `add` added, from out[places[e]] on."""
    for e in range(places.size):
        p = places[e]
        for q in range(offsets[e], offsets[e + 1]):
            a = starts[groups[q]]
            p = copy_run(members, a, starts[groups[q] + 1] - a, add, False, out, p)
