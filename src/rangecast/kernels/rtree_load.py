"""Loading an R-tree at once: sort-tile-recursive packing.

The boxes are sorted by their centre in the first attribute and cut into slabs, each slab is sorted by
the second and cut again, and so on; runs of the last order fill the leaves, and the leaves' boxes are
packed the same way into the level above (Leutenegger, Lopez, Edgington 1997, sec. 2.2). Slabs are cut at
page borders that differ by one entry at most, so that no page, and not the last one either, falls below
the least fill that updates rely on.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel
from rangecast.kernels.rtree import ROOT
from rangecast.kernels.rtree_update import cover, new_node


@kernel
def box_centres(tree, lows, highs, numbers, out):
    """out[j, i] = the centre of box numbers[i] in attribute j, as a share of the data's span."""
    for j in range(out.shape[0]):
        for i in range(numbers.size):
            b = numbers[i]
            low = (np.float64(lows[j, b]) - tree.floors[j]) * tree.scales[j]
            high = (np.float64(highs[j, b]) - tree.floors[j]) * tree.scales[j]
            out[j, i] = max(low, 0.0) + min(high, 1.0)


@kernel
def node_covers(tree, first, last, lows, highs):
    """lows, highs = the covers of nodes first..last, one column each."""
    low = np.empty(lows.shape[0], np.int64)
    high = np.empty(lows.shape[0], np.int64)
    for node in range(first, last):
        cover(tree, node, low, high)
        for j in range(low.size):
            lows[j, node - first] = low[j]
            highs[j, node - first] = high[j]


@kernel
def tile(centres, n_pages, order):
    """order = the entries page after page; page p is [n * p // n_pages, n * (p + 1) // n_pages)."""
    d, n = centres.shape
    cuts = np.empty(n_pages + 1, np.int64)
    fresh = np.empty(n_pages + 1, np.int64)
    cuts[0] = 0
    cuts[1] = n_pages
    n_slabs = 1
    for i in range(n):
        order[i] = i
    for j in range(d):
        made = 0
        for s in range(n_slabs):
            first = cuts[s]
            pages = cuts[s + 1] - first
            if pages > 1:
                a = n * first // n_pages
                b = n * (first + pages) // n_pages
                keys = np.empty(b - a)
                old = np.empty(b - a, np.int64)
                for i in range(a, b):
                    old[i - a] = order[i]
                    keys[i - a] = centres[j, order[i]]
                ranks = np.argsort(keys, kind="mergesort")
                for i in range(a, b):
                    order[i] = old[ranks[i - a]]
            parts = pages
            if j < d - 1:
                # the root may come out a hair above a whole number, which must not add a slab
                parts = min(pages, int(np.ceil(pages ** (1.0 / (d - j)) - 1e-9)))
            for t in range(parts):
                fresh[made] = first + pages * t // parts
                made += 1
        fresh[made] = n_pages
        n_slabs = made
        for s in range(made + 1):
            cuts[s] = fresh[s]


@kernel
def fill_pages(tree, level, lows, highs, numbers, order, n_pages):
    """Make the nodes of one level from entries in page order; numbers are boxes, or nodes below."""
    n = order.size
    for page in range(n_pages):
        node = new_node(tree, level)
        a = n * page // n_pages
        b = n * (page + 1) // n_pages
        for i in range(a, b):
            column = order[i] if level > 0 else numbers[order[i]]
            for j in range(lows.shape[0]):
                tree.lows[node, j, i - a] = lows[j, column]
                tree.highs[node, j, i - a] = highs[j, column]
            child = numbers[order[i]]
            tree.children[node, i - a] = child
            if level == 0:
                tree.leaves[child] = node
            else:
                tree.parents[child] = node
        tree.counts[node] = b - a
        tree.header[ROOT] = node
