"""Searching an R-tree that lives in arrays: one event after the other, or a batch level by level.

`Tree` holds the arrays (papers/rtree/index.py has their table); a NamedTuple of arrays compiles and caches as
its fields would. What is searched for is a box too, so that one loop serves both searches: an event
is the box whose lows are its highs.

A node keeps its bounds attribute by attribute: `lows[node, j]` is a row of one bound per entry. So a test
of a node reads the rows of the first attributes, and those of the others only for entries that are still
in question; entry by entry, with leaving at the first attribute that fails, took twice as long in twelve
attributes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import allocating_kernel, kernel

ROOT, USED, FREE, N_FREE = 0, 1, 2, 3
CAPACITY, LEAST, LEAF_CAPACITY, LEAF_LEAST = 0, 1, 2, 3


class Tree(NamedTuple):
    """The arrays of one tree."""

    header: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    children: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    levels: npt.NDArray[np.int32]
    parents: npt.NDArray[np.int32]
    leaves: npt.NDArray[np.int32]
    floors: npt.NDArray[np.float64]
    scales: npt.NDArray[np.float64]


@kernel
def meet(tree, node, low, high, found):
    """found = the entries of a node whose boxes share a point with [low, high]; returns how many."""
    k = 0
    for i in range(tree.counts[node]):
        found[k] = i
        k += (tree.lows[node, 0, i] <= high[0]) & (tree.highs[node, 0, i] >= low[0])
    for j in range(1, low.size):
        if k == 0:
            break
        kept = 0
        for q in range(k):
            i = found[q]
            found[kept] = i
            kept += (tree.lows[node, j, i] <= high[j]) & (tree.highs[node, j, i] >= low[j])
        k = kept
    return k


@allocating_kernel
def search(tree, box_slots, lows, highs, events, firsts, nodes, state, offsets, out, visits):
    """Search for events one by one, each from nodes[firsts[e]:firsts[e + 1]] downwards.

    Row k of the answer is that of events[k]; visits[k] counts the nodes that were looked at. state[0] is
    the rows done, state[1] the matches written; returns False when `out` has no room for the next row,
    and that row is then done again.
    """
    d = lows.shape[0]
    width = tree.children.shape[1]
    stack = np.empty(width * (tree.levels[tree.header[ROOT]] + 1), np.int32)
    found = np.empty(width, np.int32)
    low = np.empty(d, np.int64)
    high = np.empty(d, np.int64)
    p = state[1]
    for k in range(state[0], events.size):
        e = events[k]
        for j in range(d):
            low[j] = lows[j, e]
            high[j] = highs[j, e]
        offsets[k] = p
        seen = 0
        for f in range(firsts[e], firsts[e + 1]):
            stack[0] = nodes[f]
            depth = 1
            while depth > 0:
                depth -= 1
                node = stack[depth]
                seen += 1
                n = meet(tree, node, low, high, found)
                if tree.levels[node] > 0:
                    for q in range(n):
                        stack[depth] = tree.children[node, found[q]]
                        depth += 1
                else:
                    if p + n > out.size:
                        state[0] = k
                        state[1] = offsets[k]
                        return False
                    for q in range(n):
                        out[p] = box_slots[tree.children[node, found[q]]]
                        p += 1
        visits[k] = seen
    offsets[events.size] = p
    state[0] = events.size
    state[1] = p
    return True


@kernel
def descend(tree, lows, highs, nodes, offsets, events, state, out_nodes, out_offsets, out_events):
    """Take a batch one level down: from nodes with the events that meet each, to their children likewise.

    The events of nodes[f] are events[offsets[f]:offsets[f + 1]]; a child that no event meets is left out.
    state holds the nodes done, the nodes and the events written; returns False when the next node's
    children might not fit.
    """
    d = lows.shape[0]
    p = state[1]
    r = state[2]
    for f in range(state[0], nodes.size):
        node = nodes[f]
        first = offsets[f]
        n = offsets[f + 1] - first
        count = tree.counts[node]
        if p + count > out_nodes.size or r + count * n > out_events.size:
            state[0] = f
            state[1] = p
            state[2] = r
            return False
        for i in range(count):
            low = tree.lows[node, 0, i]
            high = tree.highs[node, 0, i]
            k = 0
            for q in range(n):
                e = events[first + q]
                out_events[r + k] = e
                k += (low <= highs[0, e]) & (high >= lows[0, e])
            for j in range(1, d):
                if k == 0:
                    break
                low = tree.lows[node, j, i]
                high = tree.highs[node, j, i]
                kept = 0
                for q in range(k):
                    e = out_events[r + q]
                    out_events[r + kept] = e
                    kept += (low <= highs[j, e]) & (high >= lows[j, e])
                k = kept
            if k > 0:
                out_offsets[p] = r
                out_nodes[p] = tree.children[node, i]
                p += 1
                r += k
    out_offsets[p] = r
    state[0] = nodes.size
    state[1] = p
    state[2] = r
    return True


@kernel
def spread(nodes, offsets, out):
    """out = for each event of a frontier, the node that it is listed at."""
    for f in range(nodes.size):
        for q in range(offsets[f], offsets[f + 1]):
            out[q] = nodes[f]
