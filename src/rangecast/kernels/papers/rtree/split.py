"""The heuristics of an R*-tree: which subtree takes a box, and how an overflowing node is split.

Beckmann, Kriegel, Schneider and Seeger 1990, sec. 4.1 and 4.2. They weigh volumes and margins, which are
computed here from bounds as shares of the data's span in each attribute: clipped to it, so that an
unbounded predicate counts as the whole span and does not drown the others, and as doubles, so that
neither the ends of int64 nor a product of many attributes overflows. Nothing but quality hangs on them;
the boxes themselves are kept exactly.
"""

from __future__ import annotations

import numpy as np

from rangecast.simd.compiler import allocating_kernel, kernel

# added to every width, so that an equality has a volume and one attribute cannot make all volumes nought
_LEAST_WIDTH = 1e-3


@kernel
def shares(tree, node, n, low, high):
    """low, high (d, n) = the bounds of a node's entries as shares of the span."""
    for j in range(low.shape[0]):
        floor = tree.floors[j]
        scale = tree.scales[j]
        for i in range(n):
            low[j, i] = min(max((np.float64(tree.lows[node, j, i]) - floor) * scale, 0.0), 1.0)
            high[j, i] = min(max((np.float64(tree.highs[node, j, i]) - floor) * scale, 0.0), 1.0)


@allocating_kernel
def choose_entry(tree, node, box_low, box_high):
    """The entry to descend into: least overlap enlargement above leaves, least enlargement elsewhere."""
    d = box_low.size
    n = tree.counts[node]
    low = np.empty((d, n))
    high = np.empty((d, n))
    shares(tree, node, n, low, high)
    u = np.empty(d)
    v = np.empty(d)
    volumes = np.empty(n)
    grown = np.empty(n)
    for i in range(n):
        volumes[i] = 1.0
        grown[i] = 1.0
    for j in range(d):
        u[j] = min(max((np.float64(box_low[j]) - tree.floors[j]) * tree.scales[j], 0.0), 1.0)
        v[j] = min(max((np.float64(box_high[j]) - tree.floors[j]) * tree.scales[j], 0.0), 1.0)
        for i in range(n):
            volumes[i] *= high[j, i] - low[j, i] + _LEAST_WIDTH
            grown[i] *= max(high[j, i], v[j]) - min(low[j, i], u[j]) + _LEAST_WIDTH
    best = 0
    best_overlap = np.inf
    best_growth = np.inf
    best_volume = np.inf
    before = np.empty(n)
    after = np.empty(n)
    near_leaf = tree.levels[node] == 1
    for i in range(n):
        growth = grown[i] - volumes[i]
        overlap = 0.0
        if near_leaf and growth > 0.0:
            for k in range(n):
                before[k] = 1.0
                after[k] = 1.0
            for j in range(d):
                a, b = low[j, i], high[j, i]
                c, e = min(a, u[j]), max(b, v[j])
                for k in range(n):
                    shared = min(b, high[j, k]) - max(a, low[j, k])
                    before[k] *= shared + _LEAST_WIDTH if shared >= 0.0 else 0.0
                    shared = min(e, high[j, k]) - max(c, low[j, k])
                    after[k] *= shared + _LEAST_WIDTH if shared >= 0.0 else 0.0
            for k in range(n):
                if k != i:
                    overlap += after[k] - before[k]
        better = overlap < best_overlap
        if overlap == best_overlap:
            better = growth < best_growth or (growth == best_growth and volumes[i] < best_volume)
        if better:
            best, best_overlap, best_growth, best_volume = i, overlap, growth, volumes[i]
    return best


@kernel
def order_entries(first, second, order):
    """order = the entries by one bound, ties by the other; an insertion sort, since nodes are small."""
    for i in range(first.size):
        k = i
        while k > 0:
            o = order[k - 1]
            if first[o] < first[i] or (first[o] == first[i] and second[o] <= second[i]):
                break
            order[k] = o
            k -= 1
        order[k] = i


@kernel
def _sweep(low, high, order, backwards, out_low, out_high):
    """out_low[j, k], out_high[j, k] = the cover of the first k + 1 entries in order, or the last ones."""
    d, n = low.shape
    for j in range(d):
        a = np.inf
        b = -np.inf
        for k in range(n):
            i = order[n - 1 - k] if backwards else order[k]
            a = min(a, low[j, i])
            b = max(b, high[j, i])
            out_low[j, k] = a
            out_high[j, k] = b


@allocating_kernel
def split_order(tree, node, least, best_order):
    """The best distribution of an overflowing node: fills best_order, returns the first group's size.

    The axis is the one with the least sum of margins over all distributions; on it the distribution with
    the least overlap, then the least volume.
    """
    d = tree.lows.shape[1]
    n = tree.counts[node]
    low = np.empty((d, n))
    high = np.empty((d, n))
    shares(tree, node, n, low, high)
    order = np.empty(n, np.int64)
    low_a, high_a = np.empty((d, n)), np.empty((d, n))
    low_b, high_b = np.empty((d, n)), np.empty((d, n))
    # the axis first, by margins: a sweep from each end gives the boxes of all distributions of one order, so
    # that they cost one pass and not one each
    best_axis = 0
    best_margin = np.inf
    for axis in range(d):
        margin = 0.0
        for by_high in range(2):
            if by_high:
                order_entries(high[axis], low[axis], order)
            else:
                order_entries(low[axis], high[axis], order)
            _sweep(low, high, order, False, low_a, high_a)
            _sweep(low, high, order, True, low_b, high_b)
            for j in range(d):
                for k in range(least, n - least + 1):
                    margin += high_a[j, k - 1] - low_a[j, k - 1] + high_b[j, n - k - 1] - low_b[j, n - k - 1]
        if margin < best_margin:
            best_margin = margin
            best_axis = axis
    # then the distribution along it: only here products over all attributes are needed
    best_overlap = np.inf
    best_volume = np.inf
    size = least
    for by_high in range(2):
        if by_high:
            order_entries(high[best_axis], low[best_axis], order)
        else:
            order_entries(low[best_axis], high[best_axis], order)
        _sweep(low, high, order, False, low_a, high_a)
        _sweep(low, high, order, True, low_b, high_b)
        for k in range(least, n - least + 1):
            overlap = 1.0
            volume_a = 1.0
            volume_b = 1.0
            for j in range(d):
                a0, a1 = low_a[j, k - 1], high_a[j, k - 1]
                b0, b1 = low_b[j, n - k - 1], high_b[j, n - k - 1]
                # a side of no width must not make all volumes alike
                volume_a *= a1 - a0 + _LEAST_WIDTH
                volume_b *= b1 - b0 + _LEAST_WIDTH
                shared = min(a1, b1) - max(a0, b0)
                overlap *= shared + _LEAST_WIDTH if shared >= 0.0 else 0.0
            volume = volume_a + volume_b
            if overlap < best_overlap or (overlap == best_overlap and volume < best_volume):
                best_overlap = overlap
                best_volume = volume
                size = k
                for i in range(n):
                    best_order[i] = order[i]
    return size


@kernel
def centre_distances(tree, node, low, high, out):
    """out = squared distances of a node's entries' centres from that of their cover."""
    n = out.size
    shares(tree, node, n, low, high)
    for i in range(n):
        out[i] = 0.0
    for j in range(low.shape[0]):
        a = np.inf
        b = -np.inf
        for i in range(n):
            a = min(a, low[j, i])
            b = max(b, high[j, i])
        for i in range(n):
            gap = low[j, i] + high[j, i] - a - b
            out[i] += gap * gap
