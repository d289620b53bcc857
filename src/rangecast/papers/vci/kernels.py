"""The interval skip list: its nodes, its edges and the markers on them.

State is arrays that the caller has made large enough (papers/vci/islist.py has the table). Levels count
from 0; edge e = edges[x] + i leaves node x at level i and ends at targets[e], or at the tail (-1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds_dense
from rangecast.simd.compiler import kernel

LEVELS = 24
_LAST = np.iinfo(np.int64).max
FREE_NODE, USED_NODES, USED_EDGES, FREE_MARKER = 0, 1, 2, 3
USED_MARKERS, FREE_MARKERS, PENDING, SEED = 4, 5, 6, 7


class SkipList(NamedTuple):
    """Nodes, edges and markers; papers/vci/islist.py tells what the arrays are."""

    keys: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int32]
    heights: npt.NDArray[np.int32]
    edges: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    edge_heads: npt.NDArray[np.int32]
    free_edges: npt.NDArray[np.int32]
    marks: npt.NDArray[np.int32]
    firsts: npt.NDArray[np.int32]
    state: npt.NDArray[np.int64]


@kernel
def find_path(key, skip, path):
    """path[i] = the last node before `key` at level i; returns the node with this key, or -1.

    The head has the smallest key there is and is before none: asked for that key, it is the answer.
    """
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    x = 0
    for level in range(LEVELS - 1, -1, -1):
        y = targets[edges[x] + level]
        while y >= 0 and keys[y] < key:
            x = y
            y = targets[edges[x] + level]
        path[level] = x
    if key == keys[0]:
        return 0
    y = targets[edges[x]]
    return y if y >= 0 and keys[y] == key else -1


@kernel
def _unmark(box, skip):
    """Take a box off all edges that it marks."""
    firsts = skip.firsts
    marks = skip.marks
    state = skip.state
    m = firsts[box]
    while m >= 0:
        before = marks[m, 2]
        after = marks[m, 3]
        if before >= 0:
            marks[before, 3] = after
        else:
            skip.edge_heads[marks[m, 1]] = after
        if after >= 0:
            marks[after, 2] = before
        following = marks[m, 4]
        # of no list any more: what reads a file relies on that
        marks[m, 3] = -1
        marks[m, 4] = state[FREE_MARKER]
        state[FREE_MARKER] = m
        state[FREE_MARKERS] += 1
        m = following
    firsts[box] = -1


@kernel
def _loosen(edge, skip, pending):
    """Unmark every box that marks an edge, and note it: it is to be marked again."""
    while skip.edge_heads[edge] >= 0:
        box = skip.marks[skip.edge_heads[edge], 0]
        _unmark(box, skip)
        pending[skip.state[PENDING]] = box
        skip.state[PENDING] += 1


@kernel
def add_end(key, skip, pending, path):
    """Count one more interval that ends at a key, and put a node there if there is none."""
    owners = skip.owners
    targets = skip.targets
    free_edges = skip.free_edges
    state = skip.state
    x = find_path(key, skip, path)
    if x >= 0:
        owners[x] += 1
        return
    # a coin a level, from a linear congruence whose high bits are good enough for coins
    height = 1
    state[SEED] = (state[SEED] * 1103515245 + 12345) & 0x7FFFFFFF
    coins = state[SEED] >> 7
    while height < LEVELS and coins & 1:
        height += 1
        coins >>= 1
    x = state[FREE_NODE]
    if x >= 0:
        state[FREE_NODE] = owners[x]
    else:
        x = state[USED_NODES]
        state[USED_NODES] += 1
    first = free_edges[height]
    if first >= 0:
        free_edges[height] = targets[first]
    else:
        first = state[USED_EDGES]
        state[USED_EDGES] += height
    skip.keys[x] = key
    owners[x] = 1
    skip.heights[x] = height
    skip.edges[x] = first
    for level in range(height):
        split = skip.edges[path[level]] + level
        _loosen(split, skip, pending)
        targets[first + level] = targets[split]
        skip.edge_heads[first + level] = -1
        targets[split] = x


@kernel
def drop_end(key, skip, pending, path):
    """Count one interval less that ends at a key, and take its node out if there is none left."""
    owners = skip.owners
    edges = skip.edges
    targets = skip.targets
    x = find_path(key, skip, path)
    owners[x] -= 1
    if owners[x] > 0 or x == 0:
        return
    first = edges[x]
    height = skip.heights[x]
    for level in range(height):
        into = edges[path[level]] + level
        _loosen(into, skip, pending)
        _loosen(first + level, skip, pending)
        targets[into] = targets[first + level]
    # no edges are its own any more: what reads a file relies on that
    skip.heights[x] = 0
    targets[first] = skip.free_edges[height]
    skip.free_edges[height] = first
    owners[x] = skip.state[FREE_NODE]
    skip.state[FREE_NODE] = x


@kernel
def add_ends(numbers, start, lows, highs, skip, pending, path):
    """The nodes of all ends of these boxes from `start` on; boxes that are to be marked again go to
    `pending`. Returns the box for which there was no room left."""
    state = skip.state
    for i in range(start, numbers.size):
        box = numbers[i]
        if state[USED_NODES] + 2 > skip.keys.size or state[USED_EDGES] + 2 * LEVELS > skip.targets.size:
            return i
        if lows[box] != skip.keys[0]:
            add_end(lows[box], skip, pending, path)
        if highs[box] != _LAST:
            add_end(highs[box] + 1, skip, pending, path)
    return numbers.size


@kernel
def drop_boxes(numbers, lows, highs, skip, pending, path):
    """Unmark these boxes, then take out the nodes at which no interval ends any more."""
    for i in range(numbers.size):
        _unmark(numbers[i], skip)
    for i in range(numbers.size):
        box = numbers[i]
        if lows[box] != skip.keys[0]:
            drop_end(lows[box], skip, pending, path)
        if highs[box] != _LAST:
            drop_end(highs[box] + 1, skip, pending, path)


@kernel
def _inside(y, endless, end, keys):
    return endless if y < 0 else endless or keys[y] <= end


@kernel
def mark_boxes(numbers, start, lows, highs, skip, path):
    """Mark the edges of each box from `start` on; returns the box for which `marks` had no room.

    From its low node an interval goes, at each node, along the highest edge that ends within it: up
    a staircase and down again, over a logarithmic number of edges that cover it without overlap.
    """
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    edge_heads = skip.edge_heads
    firsts = skip.firsts
    marks = skip.marks
    state = skip.state
    for i in range(start, numbers.size):
        box = numbers[i]
        endless = highs[box] == _LAST
        end = highs[box] if endless else highs[box] + 1
        x = find_path(lows[box], skip, path)
        while x >= 0 and (endless or keys[x] < end):
            level = 0
            while level + 1 < skip.heights[x] and _inside(targets[edges[x] + level + 1], endless, end, keys):
                level += 1
            m = state[FREE_MARKER]
            if m >= 0:
                state[FREE_MARKER] = marks[m, 4]
                state[FREE_MARKERS] -= 1
            elif state[USED_MARKERS] < marks.shape[0]:
                m = state[USED_MARKERS]
                state[USED_MARKERS] += 1
            else:
                _unmark(box, skip)
                return i
            edge = edges[x] + level
            head = edge_heads[edge]
            marks[m, 0] = box
            marks[m, 1] = edge
            marks[m, 2] = -1
            marks[m, 3] = head
            marks[m, 4] = firsts[box]
            if head >= 0:
                marks[head, 2] = m
            edge_heads[edge] = m
            firsts[box] = m
            x = targets[edge]
    return numbers.size


@kernel
def count_marked(values, top, skip):
    """How many edges with markers a batch of values meets: the search without reading the markers."""
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    edge_heads = skip.edge_heads
    total = 0
    for e in range(values.size):
        x = 0
        for level in range(top - 1, -1, -1):
            y = targets[edges[x] + level]
            while y >= 0 and keys[y] <= values[e]:
                x = y
                y = targets[edges[x] + level]
            if edge_heads[edges[x] + level] >= 0:
                total += 1
    return total


@kernel
def stab(codes, on, event, top, skip, checked, boxes, plain, offsets, out):
    """Write the rows of events from `event` on; returns the event for which `out` had no room."""
    keys = skip.keys
    edges = skip.edges
    targets = skip.targets
    edge_heads = skip.edge_heads
    marks = skip.marks
    p = offsets[event]
    for e in range(event, codes.shape[1]):
        offsets[e] = p
        v = codes[on, e]
        x = 0
        for level in range(top - 1, -1, -1):
            y = targets[edges[x] + level]
            while y >= 0 and keys[y] <= v:
                x = y
                y = targets[edges[x] + level]
            m = edge_heads[edges[x] + level]
            while m >= 0:
                box = marks[m, 0]
                m = marks[m, 3]
                if holds_dense(boxes, box, codes, checked, e):
                    if p == out.size:
                        return e
                    out[p] = box if plain else boxes.slots[box]
                    p += 1
    offsets[codes.shape[1]] = p
    return codes.shape[1]
