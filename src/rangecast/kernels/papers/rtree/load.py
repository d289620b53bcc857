"""Loading an R-tree at once: sort-tile-recursive packing, with slabs where they tell boxes apart.

The boxes are sorted by their centre in the first attribute and cut into slabs, each slab is sorted by
the second and cut again, and so on; runs of the last order fill the leaves, and the leaves' boxes are
packed the same way into the level above (Leutenegger, Lopez, Edgington 1997, sec. 2.2). Where we depart:

- They cut every attribute into as many slabs. We cut an attribute in which the mean box is as wide as a
  share w of all into slabs in proportion to 1/w, the narrowest first. An event meets about 1/s + w of s
  slabs, and for a given number of pages the product of these is least so. An attribute that would get
  fewer than four slabs is left out. It is their rule for few attributes alike; with 16 attributes of
  unlike use an event meets half of the nodes that it met by theirs, with one key attribute a tenth.
- Slabs are cut at page borders that differ by one entry at most, so that no page, and not the last one
  either, falls below the least fill that updates rely on.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.papers.rtree.search import ROOT
from rangecast.papers.rtree.kernels import cover, new_node
from rangecast.simd.compiler import allocating_kernel, kernel

# over all of 12 or 20 like attributes, two slabs each, an event meets 15 to 70 % more nodes
_LEAST_SLABS = 4.0


@kernel
def box_centres(tree, lows, highs, numbers, out):
    """out[j, i] = the centre of box numbers[i] in attribute j, as a share of the data's span."""
    for j in range(out.shape[0]):
        for i in range(numbers.size):
            b = numbers[i]
            low = (np.float64(lows[j, b]) - tree.floors[j]) * tree.scales[j]
            high = (np.float64(highs[j, b]) - tree.floors[j]) * tree.scales[j]
            out[j, i] = max(low, 0.0) + min(high, 1.0)


@allocating_kernel
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
def _slabs(widths, j, pages):
    """Into how many slabs attribute j cuts so many pages, with the attributes after it to share them."""
    product = 1.0
    count = 0
    for i in range(j, widths.size):
        # an attribute that would get fewer is left to the boxes' own order
        share = (pages * product * widths[i]) ** (1.0 / (count + 1)) / widths[i]
        if i > j and share < _LEAST_SLABS - 1e-9:
            break
        product *= widths[i]
        count += 1
    if count == 1:
        return pages
    share = (pages * product) ** (1.0 / count) / widths[j]
    return min(max(int(share + 0.5), 1), pages)


@allocating_kernel
def tile(centres, widths, n_pages, order):
    """order = the entries page after page; page p is [n * p // n_pages, n * (p + 1) // n_pages).

    widths are the attributes' mean shares w, ascending, in the order of the rows of centres.
    """
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
            parts = _slabs(widths, j, pages)
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
