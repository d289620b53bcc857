"""Changing an R*-tree: choosing a subtree, splitting, forced re-insertion, deleting, bulk loading.

Arrays of a tree (indexes/rtree.py has the table): lows and highs (n_nodes, width, d), children
(n_nodes, width), counts, levels, parents per node, leaves per box. `width` is one more than the larger
capacity, so that a node can overflow before it is treated. `header` holds scalars:

    ROOT, USED, FREE, N_FREE   the root node, nodes ever used, head of the free list, nodes in it

Volumes and margins are heuristics only: widths are clipped to the data's span in each attribute and
divided by it, so that unbounded predicates do not drown the others and products stay within a double.
Boxes themselves are kept exactly.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel

ROOT, USED, FREE, N_FREE = 0, 1, 2, 3
_REINSERT_SHARE = 0.3


@kernel
def _extent(low, high, floor, ceiling, scale):
    a = low if low > floor else floor
    b = high if high < ceiling else ceiling
    if b < a:
        return 0.0
    # one is added so that an equality has some width and a volume is never nought by one attribute
    return (np.float64(b) - np.float64(a)) * scale + 1e-3


@kernel
def new_node(header, counts, levels, parents, level):
    """A node from the free list, or the next unused one."""
    node = header[FREE]
    if header[N_FREE] > 0:
        header[FREE] = parents[node]
        header[N_FREE] -= 1
    else:
        node = header[USED]
        header[USED] += 1
    counts[node] = 0
    levels[node] = level
    parents[node] = -1
    return node


@kernel
def free_node(header, counts, parents, node):
    """Give a node back; the free list runs through the parents."""
    counts[node] = 0
    parents[node] = header[FREE]
    header[FREE] = node
    header[N_FREE] += 1


@kernel
def cover(lows, highs, counts, node, low, high):
    """low, high = the bounding box of a node's entries."""
    d = low.size
    low[:] = lows[node, 0]
    high[:] = highs[node, 0]
    for i in range(1, counts[node]):
        for j in range(d):
            if lows[node, i, j] < low[j]:
                low[j] = lows[node, i, j]
            if highs[node, i, j] > high[j]:
                high[j] = highs[node, i, j]


@kernel
def _place_in(children, counts, parent, node):
    for i in range(counts[parent]):
        if children[parent, i] == node:
            return i
    return -1


@kernel
def adjust(lows, highs, children, counts, parents, node):
    """Make the bounding boxes of a node's ancestors tight, up to the first that is already."""
    d = lows.shape[2]
    low = np.empty(d, np.int64)
    high = np.empty(d, np.int64)
    while parents[node] >= 0:
        parent = parents[node]
        i = _place_in(children, counts, parent, node)
        cover(lows, highs, counts, node, low, high)
        same = True
        for j in range(d):
            if lows[parent, i, j] != low[j] or highs[parent, i, j] != high[j]:
                same = False
            lows[parent, i, j] = low[j]
            highs[parent, i, j] = high[j]
        if same:
            return
        node = parent


@kernel
def _choose(lows, highs, counts, node, low, high, floors, ceilings, scales, near_leaf):
    """The entry to descend into: least overlap enlargement above leaves, least enlargement elsewhere."""
    d = low.size
    n = counts[node]
    best = 0
    best_overlap = np.inf
    best_growth = np.inf
    best_volume = np.inf
    for i in range(n):
        volume = 1.0
        grown = 1.0
        for j in range(d):
            a = lows[node, i, j]
            b = highs[node, i, j]
            volume *= _extent(a, b, floors[j], ceilings[j], scales[j])
            grown *= _extent(min(a, low[j]), max(b, high[j]), floors[j], ceilings[j], scales[j])
        growth = grown - volume
        overlap = 0.0
        if near_leaf and growth > 0.0:
            for k in range(n):
                if k == i:
                    continue
                before = 1.0
                after = 1.0
                for j in range(d):
                    a = max(lows[node, i, j], lows[node, k, j])
                    b = min(highs[node, i, j], highs[node, k, j])
                    before *= _extent(a, b, floors[j], ceilings[j], scales[j])
                    a = max(min(lows[node, i, j], low[j]), lows[node, k, j])
                    b = min(max(highs[node, i, j], high[j]), highs[node, k, j])
                    after *= _extent(a, b, floors[j], ceilings[j], scales[j])
                    if after == 0.0:
                        break
                overlap += after - before
        better = overlap < best_overlap
        if overlap == best_overlap:
            better = growth < best_growth or (growth == best_growth and volume < best_volume)
        if better:
            best, best_overlap, best_growth, best_volume = i, overlap, growth, volume
    return best


@kernel
def _order_entries(lows, highs, node, n, axis, by_high, order):
    """order = the entries of a node by their low (or high) on an axis; insertion sort: n is small."""
    for i in range(n):
        first = highs[node, i, axis] if by_high else lows[node, i, axis]
        second = lows[node, i, axis] if by_high else highs[node, i, axis]
        k = i
        while k > 0:
            o = order[k - 1]
            other = highs[node, o, axis] if by_high else lows[node, o, axis]
            if other < first:
                break
            if other == first:
                tie = lows[node, o, axis] if by_high else highs[node, o, axis]
                if tie <= second:
                    break
            order[k] = o
            k -= 1
        order[k] = i


@kernel
def _sweep(lows, highs, node, order, n, low, high, backwards):
    """low[k], high[k] = the bounding box of the first k + 1 entries in order (or the last ones)."""
    for k in range(n):
        i = order[n - 1 - k] if backwards else order[k]
        for j in range(lows.shape[2]):
            a = lows[node, i, j]
            b = highs[node, i, j]
            if k > 0:
                a = min(a, low[k - 1, j])
                b = max(b, high[k - 1, j])
            low[k, j] = a
            high[k, j] = b


@kernel
def _split_order(lows, highs, node, n, least, floors, ceilings, scales, best_order):
    """The best distribution of an overflowing node: fills best_order, returns the first group's size.

    The axis with the least sum of margins over all distributions; on it the distribution with the least
    overlap, then the least volume (Beckmann and others 1990, sec. 4.2).
    """
    d = lows.shape[2]
    order = np.empty(n, np.int64)
    low_a = np.empty((n, d), np.int64)
    high_a = np.empty((n, d), np.int64)
    low_b = np.empty((n, d), np.int64)
    high_b = np.empty((n, d), np.int64)
    best_axis = 0
    best_margin = np.inf
    for axis in range(d):
        margin = 0.0
        for by_high in range(2):
            _order_entries(lows, highs, node, n, axis, by_high, order)
            _sweep(lows, highs, node, order, n, low_a, high_a, False)
            _sweep(lows, highs, node, order, n, low_b, high_b, True)
            for k in range(least, n - least + 1):
                for j in range(d):
                    margin += _extent(low_a[k - 1, j], high_a[k - 1, j], floors[j], ceilings[j], scales[j])
                    margin += _extent(low_b[n - k - 1, j], high_b[n - k - 1, j], floors[j], ceilings[j], scales[j])
        if margin < best_margin:
            best_margin = margin
            best_axis = axis
    best_overlap = np.inf
    best_volume = np.inf
    size = least
    for by_high in range(2):
        _order_entries(lows, highs, node, n, best_axis, by_high, order)
        _sweep(lows, highs, node, order, n, low_a, high_a, False)
        _sweep(lows, highs, node, order, n, low_b, high_b, True)
        for k in range(least, n - least + 1):
            overlap = 1.0
            volume_a = 1.0
            volume_b = 1.0
            for j in range(d):
                a0, a1 = low_a[k - 1, j], high_a[k - 1, j]
                b0, b1 = low_b[n - k - 1, j], high_b[n - k - 1, j]
                volume_a *= _extent(a0, a1, floors[j], ceilings[j], scales[j])
                volume_b *= _extent(b0, b1, floors[j], ceilings[j], scales[j])
                overlap *= _extent(max(a0, b0), min(a1, b1), floors[j], ceilings[j], scales[j])
            volume = volume_a + volume_b
            if overlap < best_overlap or (overlap == best_overlap and volume < best_volume):
                best_overlap = overlap
                best_volume = volume
                size = k
                best_order[:n] = order
    return size


@kernel
def _move(lows, highs, children, source, i, target, k):
    lows[target, k] = lows[source, i]
    highs[target, k] = highs[source, i]
    children[target, k] = children[source, i]


@kernel
def _adopt(children, counts, levels, parents, leaves, node):
    """Tell a node's children who holds them now."""
    for i in range(counts[node]):
        if levels[node] == 0:
            leaves[children[node, i]] = node
        else:
            parents[children[node, i]] = node


@kernel
def _split(header, lows, highs, children, counts, levels, parents, leaves, node, least, floors, ceilings, scales):
    """Split an overflowing node; returns the new sibling, which is not yet in the parent."""
    n = counts[node]
    order = np.empty(n, np.int64)
    size = _split_order(lows, highs, node, n, least, floors, ceilings, scales, order)
    sibling = new_node(header, counts, levels, parents, levels[node])
    for k in range(size, n):
        _move(lows, highs, children, node, order[k], sibling, k - size)
    counts[sibling] = n - size
    # the first group moves to the front through a copy, since order may permute in place
    kept_low = np.empty((size, lows.shape[2]), np.int64)
    kept_high = np.empty((size, lows.shape[2]), np.int64)
    kept = np.empty(size, np.int32)
    for k in range(size):
        kept_low[k] = lows[node, order[k]]
        kept_high[k] = highs[node, order[k]]
        kept[k] = children[node, order[k]]
    for k in range(size):
        lows[node, k] = kept_low[k]
        highs[node, k] = kept_high[k]
        children[node, k] = kept[k]
    counts[node] = size
    _adopt(children, counts, levels, parents, leaves, sibling)
    return sibling


@kernel
def _put_out(lows, highs, children, counts, node, share, floors, ceilings, pending, pending_level, pending_box, n_pending):
    """Take the entries farthest from a node's centre out for re-insertion, nearest of them last in."""
    n = counts[node]
    d = lows.shape[2]
    low = np.empty(d, np.int64)
    high = np.empty(d, np.int64)
    cover(lows, highs, counts, node, low, high)
    distances = np.empty(n, np.float64)
    for i in range(n):
        distances[i] = 0.0
        for j in range(d):
            span = np.float64(ceilings[j]) - np.float64(floors[j]) + 1.0
            a = max(lows[node, i, j], floors[j])
            b = min(highs[node, i, j], ceilings[j])
            u = max(low[j], floors[j])
            v = min(high[j], ceilings[j])
            gap = ((np.float64(a) + np.float64(b)) - (np.float64(u) + np.float64(v))) / span
            distances[i] += gap * gap
    order = np.argsort(distances, kind="mergesort")
    taken = max(1, int(n * share))
    gone = np.zeros(n, np.uint8)
    # the pending list is a stack: the farthest goes in first, so that the nearest is re-inserted first
    for k in range(n - 1, n - 1 - taken, -1):
        i = order[k]
        gone[i] = 1
        pending_box[n_pending, 0] = lows[node, i]
        pending_box[n_pending, 1] = highs[node, i]
        pending[n_pending] = children[node, i]
        pending_level[n_pending] = 0
        n_pending += 1
    k = 0
    for i in range(n):
        if not gone[i]:
            _move(lows, highs, children, node, i, node, k)
            k += 1
    counts[node] = k
    return n_pending


@kernel
def insert_pending(
    header, lows, highs, children, counts, levels, parents, leaves, sizes, floors, ceilings, scales,
    pending, pending_level, pending_box, n_pending,
):  # fmt: skip
    """Insert the pending entries (a stack) at their levels; sizes = capacity and least, inner and leaf."""
    d = lows.shape[2]
    # forced re-insertion happens once per level for one insertion from outside
    treated = np.zeros(64, np.uint8)
    low = np.empty(d, np.int64)
    high = np.empty(d, np.int64)
    while n_pending > 0:
        n_pending -= 1
        child = pending[n_pending]
        level = pending_level[n_pending]
        low[:] = pending_box[n_pending, 0]
        high[:] = pending_box[n_pending, 1]
        node = header[ROOT]
        while levels[node] > level:
            i = _choose(lows, highs, counts, node, low, high, floors, ceilings, scales, levels[node] == 1)
            for j in range(d):
                lows[node, i, j] = min(lows[node, i, j], low[j])
                highs[node, i, j] = max(highs[node, i, j], high[j])
            node = children[node, i]
        k = counts[node]
        lows[node, k] = low
        highs[node, k] = high
        children[node, k] = child
        counts[node] = k + 1
        if level == 0:
            leaves[child] = node
        else:
            parents[child] = node
        while True:
            at = levels[node]
            capacity = sizes[0] if at > 0 else sizes[2]
            if counts[node] <= capacity:
                break
            if node != header[ROOT] and not treated[at]:
                treated[at] = 1
                before = n_pending
                n_pending = _put_out(
                    lows, highs, children, counts, node, _REINSERT_SHARE, floors, ceilings,
                    pending, pending_level, pending_box, n_pending,
                )  # fmt: skip
                for q in range(before, n_pending):
                    pending_level[q] = at
                adjust(lows, highs, children, counts, parents, node)
                break
            least = sizes[1] if at > 0 else sizes[3]
            sibling = _split(
                header, lows, highs, children, counts, levels, parents, leaves, node, least, floors, ceilings, scales
            )
            if node == header[ROOT]:
                root = new_node(header, counts, levels, parents, at + 1)
                header[ROOT] = root
                children[root, 0] = node
                cover(lows, highs, counts, node, lows[root, 0], highs[root, 0])
                counts[root] = 1
                parents[node] = root
            parent = parents[node]
            i = _place_in(children, counts, parent, node)
            cover(lows, highs, counts, node, lows[parent, i], highs[parent, i])
            k = counts[parent]
            children[parent, k] = sibling
            cover(lows, highs, counts, sibling, lows[parent, k], highs[parent, k])
            counts[parent] = k + 1
            parents[sibling] = parent
            adjust(lows, highs, children, counts, parents, parent)
            node = parent


@kernel
def insert_boxes(
    header, lows, highs, children, counts, levels, parents, leaves, sizes, floors, ceilings, scales,
    box_lows, box_highs, first, last, pending, pending_level, pending_box,
):  # fmt: skip
    """Insert boxes first..last of the catalog, one by one."""
    for box in range(first, last):
        for j in range(box_lows.shape[0]):
            pending_box[0, 0, j] = box_lows[j, box]
            pending_box[0, 1, j] = box_highs[j, box]
        pending[0] = box
        pending_level[0] = 0
        insert_pending(
            header, lows, highs, children, counts, levels, parents, leaves, sizes, floors, ceilings, scales,
            pending, pending_level, pending_box, 1,
        )  # fmt: skip


@kernel
def delete_boxes(
    header, lows, highs, children, counts, levels, parents, leaves, sizes, floors, ceilings, scales,
    boxes, pending, pending_level, pending_box,
):  # fmt: skip
    """Delete boxes; a node that falls below its least is dissolved and its entries inserted again."""
    for b in range(boxes.size):
        box = boxes[b]
        node = leaves[box]
        i = _place_in(children, counts, node, box)
        last = counts[node] - 1
        _move(lows, highs, children, node, last, node, i)
        counts[node] = last
        leaves[box] = -1
        n_pending = 0
        while node != header[ROOT]:
            parent = parents[node]
            least = sizes[1] if levels[node] > 0 else sizes[3]
            if counts[node] < least:
                for k in range(counts[node]):
                    pending[n_pending] = children[node, k]
                    pending_level[n_pending] = levels[node]
                    pending_box[n_pending, 0] = lows[node, k]
                    pending_box[n_pending, 1] = highs[node, k]
                    n_pending += 1
                i = _place_in(children, counts, parent, node)
                last = counts[parent] - 1
                _move(lows, highs, children, parent, last, parent, i)
                counts[parent] = last
                free_node(header, counts, parents, node)
            else:
                adjust(lows, highs, children, counts, parents, node)
            node = parent
        # a root with one child gives way to it, but only after orphans of its height are back
        if n_pending > 0:
            insert_pending(
                header, lows, highs, children, counts, levels, parents, leaves, sizes, floors, ceilings, scales,
                pending, pending_level, pending_box, n_pending,
            )  # fmt: skip
        root = header[ROOT]
        while levels[root] > 0 and counts[root] <= 1:
            if counts[root] == 0:
                levels[root] = 0
                break
            only = children[root, 0]
            free_node(header, counts, parents, root)
            parents[only] = -1
            header[ROOT] = only
            root = only
