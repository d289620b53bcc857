"""Changing an R*-tree: inserting with forced re-insertion, splitting, deleting with condensing.

Beckmann, Kriegel, Schneider and Seeger 1990, sec. 4.3, and Guttman 1984 for deletes. Levels count from
the leaves, which are 0, so that an entry waiting for re-insertion keeps its level when the root splits.
`header` holds

    ROOT, USED       the root, nodes ever used
    FREE, N_FREE     head and length of the free list, which runs through `parents`

and a node's rows have room for one entry above its capacity, so that it can overflow before it is treated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.papers.rtree.search import (
    CAPACITY,
    FREE,
    LEAF_CAPACITY,
    LEAF_LEAST,
    LEAST,
    N_FREE,
    ROOT,
    USED,
)
from rangecast.kernels.papers.rtree.split import centre_distances, choose_entry, order_entries, split_order
from rangecast.simd.compiler import allocating_kernel, kernel

_REINSERT_SHARE = 0.3


class PendingEntries(NamedTuple):
    """A stack of entries to insert: the child, the level of the node that takes it, its box."""

    children: Any
    levels: Any
    lows: Any
    highs: Any


@kernel
def new_node(tree, level):
    """A node from the free list, or the next unused one."""
    header = tree.header
    if header[N_FREE] > 0:
        node = header[FREE]
        header[FREE] = tree.parents[node]
        header[N_FREE] -= 1
    else:
        node = header[USED]
        header[USED] += 1
        # room comes unwritten; what a file would show of it must not be what was there before
        for i in range(tree.children.shape[1]):
            tree.children[node, i] = 0
            for j in range(tree.lows.shape[1]):
                tree.lows[node, j, i] = 0
                tree.highs[node, j, i] = 0
    tree.counts[node] = 0
    tree.levels[node] = level
    tree.parents[node] = -1
    return node


@kernel
def _free_node(tree, node):
    tree.counts[node] = 0
    tree.parents[node] = tree.header[FREE]
    tree.header[FREE] = node
    tree.header[N_FREE] += 1


@kernel
def cover(tree, node, low, high):
    """low, high = the box around a node's entries."""
    n = tree.counts[node]
    for j in range(low.size):
        a = tree.lows[node, j, 0]
        b = tree.highs[node, j, 0]
        for i in range(1, n):
            a = min(a, tree.lows[node, j, i])
            b = max(b, tree.highs[node, j, i])
        low[j] = a
        high[j] = b


@kernel
def _place_in(tree, parent, child):
    for i in range(tree.counts[parent]):
        if tree.children[parent, i] == child:
            return i
    return -1


@kernel
def _tighten(tree, node, low, high):
    """Make the boxes of a node's ancestors tight, up to the first that is already."""
    while tree.parents[node] >= 0:
        parent = tree.parents[node]
        i = _place_in(tree, parent, node)
        cover(tree, node, low, high)
        same = True
        for j in range(low.size):
            if tree.lows[parent, j, i] != low[j] or tree.highs[parent, j, i] != high[j]:
                same = False
                tree.lows[parent, j, i] = low[j]
                tree.highs[parent, j, i] = high[j]
        if same:
            return
        node = parent


@kernel
def _move(tree, source, i, target, k):
    for j in range(tree.lows.shape[1]):
        tree.lows[target, j, k] = tree.lows[source, j, i]
        tree.highs[target, j, k] = tree.highs[source, j, i]
    tree.children[target, k] = tree.children[source, i]


@kernel
def _take_out(tree, node, i):
    """Remove an entry; the last one takes its place."""
    last = tree.counts[node] - 1
    _move(tree, node, last, node, i)
    tree.counts[node] = last


@kernel
def _append(tree, node, child, low, high):
    """Add an entry and tell the child who holds it."""
    k = tree.counts[node]
    for j in range(low.size):
        tree.lows[node, j, k] = low[j]
        tree.highs[node, j, k] = high[j]
    tree.children[node, k] = child
    tree.counts[node] = k + 1
    if tree.levels[node] == 0:
        tree.leaves[child] = node
    else:
        tree.parents[child] = node


@kernel
def _push(tree, node, i, pending, n_pending):
    pending.children[n_pending] = tree.children[node, i]
    pending.levels[n_pending] = tree.levels[node]
    for j in range(tree.lows.shape[1]):
        pending.lows[n_pending, j] = tree.lows[node, j, i]
        pending.highs[n_pending, j] = tree.highs[node, j, i]
    return n_pending + 1


@kernel
def _keep(tree, node, kept):
    """Drop the entries of a node that are not kept."""
    k = 0
    for i in range(tree.counts[node]):
        if kept[i]:
            _move(tree, node, i, node, k)
            k += 1
    tree.counts[node] = k


@allocating_kernel
def _put_out(tree, node, pending, n_pending):
    """Take the entries farthest from a node's centre out, to be inserted again."""
    n = tree.counts[node]
    d = tree.lows.shape[1]
    distances = np.empty(n)
    centre_distances(tree, node, np.empty((d, n)), np.empty((d, n)), distances)
    order = np.empty(n, np.int64)
    order_entries(distances, distances, order)
    kept = np.ones(n, np.uint8)
    # the farthest goes onto the stack first, so that the nearest is inserted first ("close re-insert")
    for k in range(n - 1, n - 1 - max(1, int(n * _REINSERT_SHARE)), -1):
        kept[order[k]] = 0
        n_pending = _push(tree, node, order[k], pending, n_pending)
    _keep(tree, node, kept)
    return n_pending


@allocating_kernel
def _split(tree, node, least, low, high):
    """Split an overflowing node; returns the new sibling, which is not yet in the parent."""
    n = tree.counts[node]
    order = np.empty(n, np.int64)
    size = split_order(tree, node, least, order)
    sibling = new_node(tree, tree.levels[node])
    kept = np.ones(n, np.uint8)
    for k in range(size, n):
        i = order[k]
        kept[i] = 0
        for j in range(low.size):
            low[j] = tree.lows[node, j, i]
            high[j] = tree.highs[node, j, i]
        _append(tree, sibling, tree.children[node, i], low, high)
    _keep(tree, node, kept)
    return sibling


@allocating_kernel
def _insert_pending(tree, pending, n_pending):
    """Insert the entries of the stack at their levels, with all that follows from it."""
    d = tree.lows.shape[1]
    low = np.empty(d, np.int64)
    high = np.empty(d, np.int64)
    # forced re-insertion happens once per level for one insertion from outside
    treated = np.zeros(64, np.uint8)
    while n_pending > 0:
        n_pending -= 1
        level = pending.levels[n_pending]
        for j in range(d):
            low[j] = pending.lows[n_pending, j]
            high[j] = pending.highs[n_pending, j]
        node = tree.header[ROOT]
        while tree.levels[node] > level:
            i = choose_entry(tree, node, low, high)
            for j in range(d):
                tree.lows[node, j, i] = min(tree.lows[node, j, i], low[j])
                tree.highs[node, j, i] = max(tree.highs[node, j, i], high[j])
            node = tree.children[node, i]
        _append(tree, node, pending.children[n_pending], low, high)
        while True:
            level = tree.levels[node]
            if tree.counts[node] <= tree.sizes[CAPACITY if level > 0 else LEAF_CAPACITY]:
                break
            if node != tree.header[ROOT] and not treated[level]:
                treated[level] = 1
                n_pending = _put_out(tree, node, pending, n_pending)
                _tighten(tree, node, low, high)
                break
            sibling = _split(tree, node, tree.sizes[LEAST if level > 0 else LEAF_LEAST], low, high)
            if node == tree.header[ROOT]:
                root = new_node(tree, level + 1)
                tree.header[ROOT] = root
                cover(tree, node, low, high)
                _append(tree, root, node, low, high)
            parent = tree.parents[node]
            i = _place_in(tree, parent, node)
            cover(tree, node, low, high)
            for j in range(d):
                tree.lows[parent, j, i] = low[j]
                tree.highs[parent, j, i] = high[j]
            cover(tree, sibling, low, high)
            _append(tree, parent, sibling, low, high)
            # the two together cover what the one did, so nothing changes further up
            node = parent


@kernel
def _remove_box(tree, box, pending, low, high):
    """Take a box out; nodes that fall below their least are dissolved into the stack. Returns its height.

    Orphans of the highest level end up on top, so that those below find them in place again.
    """
    node = tree.leaves[box]
    _take_out(tree, node, _place_in(tree, node, box))
    tree.leaves[box] = -1
    n_pending = 0
    while node != tree.header[ROOT]:
        parent = tree.parents[node]
        if tree.counts[node] < tree.sizes[LEAST if tree.levels[node] > 0 else LEAF_LEAST]:
            for i in range(tree.counts[node]):
                n_pending = _push(tree, node, i, pending, n_pending)
            _take_out(tree, parent, _place_in(tree, parent, node))
            _free_node(tree, node)
        else:
            _tighten(tree, node, low, high)
        node = parent
    return n_pending


@allocating_kernel
def change_boxes(tree, gone, lows, highs, first, last, pending):
    """Delete the boxes in `gone`, then insert boxes first..last of the catalog, each by itself.

    One kernel for both, with one call of the insertion, which is half of all that has to compile.
    """
    low = np.empty(lows.shape[0], np.int64)
    high = np.empty(lows.shape[0], np.int64)
    for step in range(gone.size + last - first):
        if step < gone.size:
            n_pending = _remove_box(tree, gone[step], pending, low, high)
        else:
            box = first + step - gone.size
            pending.children[0] = box
            pending.levels[0] = 0
            for j in range(low.size):
                pending.lows[0, j] = lows[j, box]
                pending.highs[0, j] = highs[j, box]
            n_pending = 1
        _insert_pending(tree, pending, n_pending)
        # a root with one child, as a delete may leave it, gives way to the child
        root = tree.header[ROOT]
        while tree.levels[root] > 0 and tree.counts[root] == 1:
            only = tree.children[root, 0]
            _free_node(tree, root)
            tree.parents[only] = -1
            tree.header[ROOT] = only
            root = only
