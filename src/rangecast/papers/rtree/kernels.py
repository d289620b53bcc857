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
import numpy.typing as npt

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


# The heuristics of an R*-tree: which subtree takes a box, and how an overflowing node is split.
#
# Beckmann, Kriegel, Schneider and Seeger 1990, sec. 4.1 and 4.2. They weigh volumes and margins, which are
# computed here from bounds as shares of the data's span in each attribute: clipped to it, so that an
# unbounded predicate counts as the whole span and does not drown the others, and as doubles, so that
# neither the ends of int64 nor a product of many attributes overflows. Nothing but quality hangs on them;
# the boxes themselves are kept exactly.

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


# Searching an R-tree that lives in arrays: one event after the other, or a batch level by level.
#
# `Tree` holds the arrays (papers/rtree/structures.py has their table); a NamedTuple of arrays compiles and
# caches as its fields would. What is searched for is a box too, so that one loop serves both searches: an
# event is the box whose lows are its highs.
#
# A node keeps its bounds attribute by attribute: `lows[node, j]` is a row of one bound per entry. So a test
# of a node reads the rows of the first attributes, and those of the others only for entries that are still
# in question; entry by entry, with leaving at the first attribute that fails, took twice as long in twelve
# attributes.

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

    Lines 6 to 15 of BatchIntersect (figure 2 of Wang, Zhang and Kitsuregawa 2004) for all nodes of a level,
    where the figure recurses; transcript.py has it as printed.

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


# Loading an R-tree at once: sort-tile-recursive packing, with slabs where they tell boxes apart.
#
# The boxes are sorted by their centre in the first attribute and cut into slabs, each slab is sorted by
# the second and cut again, and so on; runs of the last order fill the leaves, and the leaves' boxes are
# packed the same way into the level above (Leutenegger, Lopez, Edgington 1997, sec. 2.2). Where we depart:
#
# - They cut every attribute into as many slabs. We cut an attribute in which the mean box is as wide as a
#   share w of all into slabs in proportion to 1/w, the narrowest first. An event meets about 1/s + w of s
#   slabs, and for a given number of pages the product of these is least so. An attribute that would get
#   fewer than four slabs is left out. It is their rule for few attributes alike; with 16 attributes of
#   unlike use an event meets half of the nodes that it met by theirs, with one key attribute a tenth.
# - Slabs are cut at page borders that differ by one entry at most, so that no page, and not the last one
#   either, falls below the least fill that updates rely on.

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
