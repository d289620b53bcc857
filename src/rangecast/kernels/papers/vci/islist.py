"""The interval skip list: its nodes, its edges and the markers on them.

State is arrays that the caller has made large enough (papers/vci/islist.py has the table). Levels count
from 0; edge e = edges[x] + i leaves node x at level i and ends at targets[e], or at the tail (-1).
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel

LEVELS = 24
_LAST = np.iinfo(np.int64).max
FREE_NODE, USED_NODES, USED_EDGES, FREE_MARKER = 0, 1, 2, 3
USED_MARKERS, FREE_MARKERS, PENDING, SEED = 4, 5, 6, 7


@kernel
def find_path(key, keys, edges, targets, path):
    """path[i] = the last node before `key` at level i; returns the node with this key, or -1.

    The head has the smallest key there is and is before none: asked for that key, it is the answer.
    """
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
def _unmark(box, firsts, marks, edge_heads, state):
    """Take a box off all edges that it marks."""
    m = firsts[box]
    while m >= 0:
        before = marks[m, 2]
        after = marks[m, 3]
        if before >= 0:
            marks[before, 3] = after
        else:
            edge_heads[marks[m, 1]] = after
        if after >= 0:
            marks[after, 2] = before
        following = marks[m, 4]
        marks[m, 4] = state[FREE_MARKER]
        state[FREE_MARKER] = m
        state[FREE_MARKERS] += 1
        m = following
    firsts[box] = -1


@kernel
def _loosen(edge, firsts, marks, edge_heads, state, pending):
    """Unmark every box that marks an edge, and note it: it is to be marked again."""
    while edge_heads[edge] >= 0:
        box = marks[edge_heads[edge], 0]
        _unmark(box, firsts, marks, edge_heads, state)
        pending[state[PENDING]] = box
        state[PENDING] += 1


@kernel
def add_end(
    key, keys, owners, heights, edges, targets, edge_heads, free_edges, firsts, marks, state, pending, path
):
    """Count one more interval that ends at a key, and put a node there if there is none."""
    x = find_path(key, keys, edges, targets, path)
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
    keys[x] = key
    owners[x] = 1
    heights[x] = height
    edges[x] = first
    for level in range(height):
        split = edges[path[level]] + level
        _loosen(split, firsts, marks, edge_heads, state, pending)
        targets[first + level] = targets[split]
        edge_heads[first + level] = -1
        targets[split] = x


@kernel
def drop_end(
    key, keys, owners, heights, edges, targets, edge_heads, free_edges, firsts, marks, state, pending, path
):
    """Count one interval less that ends at a key, and take its node out if there is none left."""
    x = find_path(key, keys, edges, targets, path)
    owners[x] -= 1
    if owners[x] > 0 or x == 0:
        return
    first = edges[x]
    height = heights[x]
    for level in range(height):
        into = edges[path[level]] + level
        _loosen(into, firsts, marks, edge_heads, state, pending)
        _loosen(first + level, firsts, marks, edge_heads, state, pending)
        targets[into] = targets[first + level]
    targets[first] = free_edges[height]
    free_edges[height] = first
    owners[x] = state[FREE_NODE]
    state[FREE_NODE] = x


@kernel
def add_ends(
    numbers, start, lows, highs, keys, owners, heights, edges, targets, edge_heads, free_edges, firsts,
    marks, state, pending, path,
):  # fmt: skip
    """The nodes of all ends of these boxes from `start` on; boxes that are to be marked again go to
    `pending`. Returns the box for which there was no room left."""
    for i in range(start, numbers.size):
        box = numbers[i]
        if state[USED_NODES] + 2 > keys.size or state[USED_EDGES] + 2 * LEVELS > targets.size:
            return i
        if lows[box] != keys[0]:
            add_end(
                lows[box], keys, owners, heights, edges, targets, edge_heads, free_edges, firsts, marks,
                state, pending, path,
            )  # fmt: skip
        if highs[box] != _LAST:
            add_end(
                highs[box] + 1, keys, owners, heights, edges, targets, edge_heads, free_edges, firsts, marks,
                state, pending, path,
            )  # fmt: skip
    return numbers.size


@kernel
def drop_boxes(
    numbers, lows, highs, keys, owners, heights, edges, targets, edge_heads, free_edges, firsts, marks, state,
    pending, path,
):  # fmt: skip
    """Unmark these boxes, then take out the nodes at which no interval ends any more."""
    for i in range(numbers.size):
        _unmark(numbers[i], firsts, marks, edge_heads, state)
    for i in range(numbers.size):
        box = numbers[i]
        if lows[box] != keys[0]:
            drop_end(
                lows[box], keys, owners, heights, edges, targets, edge_heads, free_edges, firsts, marks,
                state, pending, path,
            )  # fmt: skip
        if highs[box] != _LAST:
            drop_end(
                highs[box] + 1, keys, owners, heights, edges, targets, edge_heads, free_edges, firsts, marks,
                state, pending, path,
            )  # fmt: skip


@kernel
def _inside(y, endless, end, keys):
    return endless if y < 0 else endless or keys[y] <= end


@kernel
def mark_boxes(
    numbers, start, lows, highs, keys, heights, edges, targets, edge_heads, firsts, marks, state, path
):
    """Mark the edges of each box from `start` on; returns the box for which `marks` had no room.

    From its low node an interval goes, at each node, along the highest edge that ends within it: up
    a staircase and down again, over a logarithmic number of edges that cover it without overlap.
    """
    for i in range(start, numbers.size):
        box = numbers[i]
        endless = highs[box] == _LAST
        end = highs[box] if endless else highs[box] + 1
        x = find_path(lows[box], keys, edges, targets, path)
        while x >= 0 and (endless or keys[x] < end):
            level = 0
            while level + 1 < heights[x] and _inside(targets[edges[x] + level + 1], endless, end, keys):
                level += 1
            m = state[FREE_MARKER]
            if m >= 0:
                state[FREE_MARKER] = marks[m, 4]
                state[FREE_MARKERS] -= 1
            elif state[USED_MARKERS] < marks.shape[0]:
                m = state[USED_MARKERS]
                state[USED_MARKERS] += 1
            else:
                _unmark(box, firsts, marks, edge_heads, state)
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
def count_marked(values, top, keys, edges, targets, edge_heads):
    """How many edges with markers a batch of values meets: the search without reading the markers."""
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
def stab(
    codes, on, event, top, keys, edges, targets, edge_heads, marks, checked, lows, highs, box_slots, plain,
    offsets, out,
):  # fmt: skip
    """Write the rows of events from `event` on; returns the event for which `out` had no room."""
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
                hit = True
                for k in range(checked.size):
                    j = checked[k]
                    if codes[j, e] < lows[j, box] or codes[j, e] > highs[j, box]:
                        hit = False
                        break
                if hit:
                    if p == out.size:
                        return e
                    out[p] = box if plain else box_slots[box]
                    p += 1
    offsets[codes.shape[1]] = p
    return codes.shape[1]
