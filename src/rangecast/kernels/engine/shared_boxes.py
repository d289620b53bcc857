"""Boxes that are alike: found by hash, verified bound by bound, and their members copied in runs."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel
from rangecast.kernels.model.ids import mix
from rangecast.kernels.model.matches import copy_run


@kernel
def hash_boxes(lows, highs, attributes, numbers, out):
    """out[i] = a hash of the bounds of box numbers[i] on some attributes."""
    out[:] = np.uint64(1)
    for k in range(attributes.size):
        low = lows[attributes[k]]
        high = highs[attributes[k]]
        for i in range(numbers.size):
            box = numbers[i]
            out[i] = mix(mix(out[i] ^ np.uint64(low[box])) ^ np.uint64(high[box]))


@kernel
def mark_firsts(lows, highs, attributes, ordered, out):
    """out[i] = 1 unless box ordered[i] has the same bounds as the one before it."""
    out[:] = 0
    out[:1] = 1
    for k in range(attributes.size):
        low = lows[attributes[k]]
        high = highs[attributes[k]]
        for i in range(1, ordered.size):
            a = ordered[i - 1]
            b = ordered[i]
            out[i] |= (low[a] != low[b]) | (high[a] != high[b])


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
