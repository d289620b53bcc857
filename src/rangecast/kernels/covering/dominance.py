"""Exact cover search: points in blocks of 64, each block known by its greatest coordinates.

A stored box is a point of uint16 coordinates, (-low, high) of every attribute, rounded to cells so
that a cover is never below what it covers. `nodes[i]` holds 64 points, or the greatest corners of 64
nodes of the level below, coordinate by coordinate; 0 is "no entry", coordinates and queries start at 1:

    level 0   nodes starts[0] .. starts[1]   points; entry e of node i is box entries[64 i + e]
    level l   nodes starts[l] .. starts[l+1] entry e of its node i is node 64 i + e of level l - 1
    top       one node

A sought goes down only where the corner is nowhere below it. The 64 comparisons of a coordinate are one
loop without branches over adjacent uint16, which compiles to a few vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.covering.kernels import CANDIDATES, HITS, confirm
from rangecast.kernels.model.ids import mix
from rangecast.simd.compiler import allocating_kernel, kernel

NODES = 0
_WIDTH = 64


class PointBlocks(NamedTuple):
    """The nodes of all levels, where each level begins, and the box of each entry."""

    nodes: npt.NDArray[np.uint16]
    starts: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int32]


@kernel
def _widest(points, order, first, last):
    """The coordinate that varies most among a sample of points first..last."""
    step = max(1, (last - first) >> 7)
    best = -1.0
    widest = 0
    for k in range(points.shape[0]):
        total = 0.0
        squares = 0.0
        n = 0
        for i in range(first, last, step):
            x = float(points[k, order[i]])
            total += x
            squares += x * x
            n += 1
        spread = squares - total * total / n
        if spread > best:
            best = spread
            widest = k
    return widest


@kernel
def _split(row, order, first, last, place):
    """Reorder so that what stands before `place` is not greater than what stands from there on."""
    a = first
    b = last - 1
    while a < b:
        pivot = row[order[(a + b) >> 1]]
        i = a
        j = b
        while i <= j:
            while row[order[i]] < pivot:
                i += 1
            while row[order[j]] > pivot:
                j -= 1
            if i <= j:
                held = order[i]
                order[i] = order[j]
                order[j] = held
                i += 1
                j -= 1
        if place <= j:
            b = j
        elif place >= i:
            a = i
        else:
            return


@kernel
def order_points(points, order, stack):
    """Order points into blocks of 64 by halving along the coordinate that varies most (a k-d tree)."""
    depth = 1
    stack[0, 0] = 0
    stack[0, 1] = order.size
    while depth > 0:
        depth -= 1
        first = stack[depth, 0]
        last = stack[depth, 1]
        if last - first <= _WIDTH:
            continue
        # halves of whole blocks: only the very last block is not full
        blocks = (last - first + _WIDTH - 1) // _WIDTH
        place = first + (blocks >> 1) * _WIDTH
        _split(points[_widest(points, order, first, last)], order, first, last, place)
        stack[depth, 0] = first
        stack[depth, 1] = place
        stack[depth + 1, 0] = place
        stack[depth + 1, 1] = last
        depth += 2


@kernel
def fill_nodes(points, order, blocks):
    """Lay out the points in `order` and the greatest corners above them; nodes start as zeros."""
    starts = blocks.starts
    nodes = blocks.nodes
    for i in range(order.size):
        for k in range(points.shape[0]):
            nodes[i >> 6, k, i & 63] = points[k, order[i]]
    for level in range(1, starts.size - 1):
        below = starts[level - 1]
        for i in range(starts[level] - below):
            for k in range(points.shape[0]):
                top = nodes[below + i, k, 0]
                for e in range(1, _WIDTH):
                    top = max(top, nodes[below + i, k, e])
                nodes[starts[level] + (i >> 6), k, i & 63] = top


@kernel
def _compare(node, sought, passed):
    """passed[e] = 1 where entry e of a node is nowhere below the sought."""
    row = node[0]
    least = sought[0]
    for e in range(_WIDTH):
        passed[e] = row[e] >= least
    for k in range(1, sought.size):
        row = node[k]
        least = sought[k]
        for e in range(_WIDTH):
            passed[e] &= row[e] >= least


@kernel
def _search_one(blocks, stored, sought, row, point, stack, passed, words, counts):
    """A slot that covers a row of the sought, whose first box is the point, or -1."""
    starts = blocks.starts
    top = starts.size - 2
    stack[0, 0] = 0
    stack[0, 1] = top
    depth = 1
    while depth > 0:
        depth -= 1
        node = stack[depth, 0]
        level = stack[depth, 1]
        counts[NODES] += 1
        _compare(blocks.nodes[starts[level] + node], point, passed)
        # eight flags at a time: most are 0
        for w in range(_WIDTH >> 3):
            if words[w] == 0:
                continue
            for e in range(w << 3, (w + 1) << 3):
                if passed[e] == 0:
                    continue
                if level > 0:
                    stack[depth, 0] = (node << 6) + e
                    stack[depth, 1] = level - 1
                    depth += 1
                    continue
                counts[CANDIDATES] += 1
                slot = confirm(stored, blocks.entries[(node << 6) + e], sought, row)
                if slot >= 0:
                    counts[HITS] += 1
                    return slot
    return -1


@allocating_kernel
def search_blocks(blocks, stored, sought, rows, points, passed, words, out, counts):
    """out[row] = a slot that covers it, or -1, for each of `rows` of the sought.

    points[:, i] are the coordinates of the first box of rows[i]; `words` is `passed` seen as uint64.
    """
    n_dims = points.shape[0]
    point = np.empty(n_dims, np.uint16)
    stack = np.empty((_WIDTH * blocks.starts.size, 2), np.int64)
    for i in range(rows.size):
        for k in range(n_dims):
            point[k] = points[k, i]
        out[rows[i]] = _search_one(blocks, stored, sought, rows[i], point, stack, passed, words, counts)


@kernel
def search_tail(stored, first, last, sought, rows, out, counts):
    """As `search_blocks`, by looking at each of the boxes first..last."""
    for i in range(rows.size):
        row = rows[i]
        out[row] = -1
        for box in range(first, last):
            slot = confirm(stored, box, sought, row)
            if slot >= 0:
                counts[HITS] += 1
                out[row] = slot
                break


@kernel
def drop_inner(lows, highs, first_boxes, keep):
    """keep[b] = 0 for a box that lies in another box of its subscription; of equal ones one stays."""
    for s in range(first_boxes.size - 1):
        for b in range(first_boxes[s], first_boxes[s + 1]):
            for c in range(first_boxes[s], first_boxes[s + 1]):
                if b == c or not keep[c]:
                    continue
                inside = True
                for j in range(lows.shape[0]):
                    if lows[j, c] > lows[j, b] or highs[j, c] < highs[j, b]:
                        inside = False
                        break
                if inside:
                    keep[b] = 0
                    break


@kernel
def hash_boxes(lows, highs, first_boxes, out):
    """out[s] = a hash of the boxes of subscription s, in their order."""
    for s in range(first_boxes.size - 1):
        h = np.uint64(0x243F6A8885A308D3)
        for b in range(first_boxes[s], first_boxes[s + 1]):
            for j in range(lows.shape[0]):
                h = mix(h ^ np.uint64(lows[j, b]))
                h = mix(h ^ np.uint64(highs[j, b]))
        out[s] = h


@kernel
def _same(lows, highs, first_boxes, s, t):
    n = first_boxes[s + 1] - first_boxes[s]
    if first_boxes[t + 1] - first_boxes[t] != n:
        return False
    a = first_boxes[s]
    b = first_boxes[t]
    for i in range(n):
        for j in range(lows.shape[0]):
            if lows[j, a + i] != lows[j, b + i] or highs[j, a + i] != highs[j, b + i]:
                return False
    return True


@kernel
def find_twins(lows, highs, first_boxes, hashes, order, out):
    """out[s] = the first subscription, in `order`, with the same boxes; `order` goes by hash."""
    n = order.size
    start = 0
    for i in range(n):
        s = order[i]
        if i > 0 and hashes[s] != hashes[order[start]]:
            start = i
        out[s] = s
        # unlike subscriptions of one hash are next to never: the first comparison decides
        for k in range(start, i):
            t = order[k]
            if out[t] == t and _same(lows, highs, first_boxes, s, t):
                out[s] = t
                break


@kernel
def follow(parents):
    """Replace each parent by the last one up its chain; a root is its own parent."""
    for i in range(parents.size):
        root = i
        while parents[root] != root:
            root = parents[root]
        at = i
        while parents[at] != root:
            above = parents[at]
            parents[at] = root
            at = above
