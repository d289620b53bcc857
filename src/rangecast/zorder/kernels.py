"""Changing the B+tree over Z-addresses: insertion with splits, deletion with merges.

The tuple of arrays is that of kernels/zorder/tree.py. Full nodes split in half. A leaf or node that falls
below a third merges with a sibling, or shares with it evenly where both together are too many; the
sibling merged away is always the right one, so leaves need no link to the one before.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.zorder.tree import (
    FREE_LEAF,
    FREE_NODE,
    HEIGHT,
    LEAVES,
    LIVE_LEAVES,
    LIVE_NODES,
    MAX_HEIGHT,
    NODES,
    ROOT,
    SIZE,
    before,
    child_of,
    row_of,
)
from rangecast.simd.compiler import allocating_kernel, kernel


@kernel
def _move_rows(tree, source, first, last, target, to):
    """Rows first..last of one leaf to another place; ranges within one leaf may overlap."""
    keys = tree.keys
    entries = tree.entries
    columns = tree.columns
    n = last - first
    n_words = keys.shape[2]
    back = to > first
    for q in range(n):
        r = n - 1 - q if back else q
        entries[target, to + r] = entries[source, first + r]
    for q in range(n):
        r = n - 1 - q if back else q
        for w in range(n_words):
            keys[target, to + r, w] = keys[source, first + r, w]
    for c in range(columns.shape[1]):
        for q in range(n):
            r = n - 1 - q if back else q
            columns[target, c, to + r] = columns[source, c, first + r]


@kernel
def _move_slots(tree, source, first, last, target, to):
    """Slots first..last of one inner node to another place, as `_move_rows`."""
    children = tree.children
    node_keys = tree.node_keys
    node_ties = tree.node_ties
    n = last - first
    back = to > first
    for q in range(n):
        r = n - 1 - q if back else q
        children[target, to + r] = children[source, first + r]
        node_ties[target, to + r] = node_ties[source, first + r]
        for w in range(node_keys.shape[2]):
            node_keys[target, to + r, w] = node_keys[source, first + r, w]


@kernel
def _bound_by_leaf(tree, node, slot, leaf):
    """The bound of a child becomes the first key of a leaf."""
    keys = tree.keys
    entries = tree.entries
    node_keys = tree.node_keys
    node_ties = tree.node_ties
    node_ties[node, slot] = entries[leaf, 0]
    for w in range(keys.shape[2]):
        node_keys[node, slot, w] = keys[leaf, 0, w]


@kernel
def _copy_bound(tree, source, slot, target, to):
    node_keys = tree.node_keys
    node_ties = tree.node_ties
    node_ties[target, to] = node_ties[source, slot]
    for w in range(node_keys.shape[2]):
        node_keys[target, to, w] = node_keys[source, slot, w]


@kernel
def _new_leaf(tree):
    state = tree.state
    nexts = tree.nexts
    state[LIVE_LEAVES] += 1
    leaf = state[FREE_LEAF]
    if leaf >= 0:
        state[FREE_LEAF] = nexts[leaf]
        return leaf
    state[LEAVES] += 1
    return state[LEAVES] - 1


@kernel
def _new_node(tree):
    state = tree.state
    children = tree.children
    state[LIVE_NODES] += 1
    node = state[FREE_NODE]
    if node >= 0:
        state[FREE_NODE] = children[node, 0]
        return node
    state[NODES] += 1
    return state[NODES] - 1


@kernel
def _descend(tree, address, entry, path_nodes, path_slots):
    """As `leaf_of`, noting the way from the root: level 0 is the root's."""
    state = tree.state
    node_counts = tree.node_counts
    children = tree.children
    node_keys = tree.node_keys
    node_ties = tree.node_ties
    node = state[ROOT]
    for level in range(state[HEIGHT]):
        slot = child_of(node_counts, node_keys, node_ties, node, address, entry)
        path_nodes[level] = node
        path_slots[level] = slot
        node = children[node, slot]
    return node


@kernel
def _enter_child(tree, level, path_nodes, path_slots, child, bounds, bound_slot):
    """Put a new right sibling into the parents at `level` and above, splitting those that are full.

    Its bound stands in slot `bound_slot` of the spare inner node `bounds`.
    """
    state = tree.state
    node_counts = tree.node_counts
    children = tree.children
    fanout = children.shape[1]
    while True:
        if level < 0:
            root = _new_node(tree)
            children[root, 0] = state[ROOT]
            children[root, 1] = child
            _copy_bound(tree, bounds, bound_slot, root, 1)
            node_counts[root] = 2
            state[ROOT] = root
            state[HEIGHT] += 1
            return
        node = path_nodes[level]
        slot = path_slots[level] + 1
        n = node_counts[node]
        if n < fanout:
            _move_slots(tree, node, slot, n, node, slot + 1)
            children[node, slot] = child
            _copy_bound(tree, bounds, bound_slot, node, slot)
            node_counts[node] = n + 1
            return
        # split: the left half keeps what comes before the middle of the n + 1 children
        half = (n + 1) >> 1
        right = _new_node(tree)
        if slot < half:
            _move_slots(tree, node, half - 1, n, right, 0)
            _move_slots(tree, node, slot, half - 1, node, slot + 1)
            children[node, slot] = child
            _copy_bound(tree, bounds, bound_slot, node, slot)
        else:
            _move_slots(tree, node, half, slot, right, 0)
            children[right, slot - half] = child
            _copy_bound(tree, bounds, bound_slot, right, slot - half)
            _move_slots(tree, node, slot, n, right, slot - half + 1)
        node_counts[node] = half
        node_counts[right] = n + 1 - half
        # slot 0 of the right half keeps its key: it is the bound that goes up
        _copy_bound(tree, right, 0, bounds, bound_slot)
        child = right
        level -= 1


@kernel
def _write_row(tree, leaf, row, address, entry, values, i):
    counts = tree.counts
    keys = tree.keys
    entries = tree.entries
    columns = tree.columns
    _move_rows(tree, leaf, row, counts[leaf], leaf, row + 1)
    for w in range(address.size):
        keys[leaf, row, w] = address[w]
    entries[leaf, row] = entry
    for c in range(columns.shape[1]):
        columns[leaf, c, row] = values[c, i]
    counts[leaf] += 1


@allocating_kernel
def insert(tree, addresses, numbers, values, order, first):
    """Insert entries order[first:]; returns where it stopped because a new leaf or node had no room.

    The last inner node of the arrays is never in use: it holds a bound on its way up.
    """
    state = tree.state
    counts = tree.counts
    nexts = tree.nexts
    node_counts = tree.node_counts
    capacity = tree.entries.shape[1]
    path_nodes = np.empty(MAX_HEIGHT, np.int64)
    path_slots = np.empty(MAX_HEIGHT, np.int64)
    spare = node_counts.size - 1
    for q in range(first, order.size):
        i = order[q]
        entry = np.int64(numbers[i])
        leaf = _descend(tree, addresses[i], entry, path_nodes, path_slots)
        if counts[leaf] == capacity:
            if state[FREE_LEAF] < 0 and state[LEAVES] == counts.size:
                return q
            if state[NODES] + state[HEIGHT] + 1 > spare:
                return q
            right = _new_leaf(tree)
            half = capacity >> 1
            _move_rows(tree, leaf, half, capacity, right, 0)
            counts[leaf] = half
            counts[right] = capacity - half
            nexts[right] = nexts[leaf]
            nexts[leaf] = right
            _bound_by_leaf(tree, spare, 0, right)
            _enter_child(tree, state[HEIGHT] - 1, path_nodes, path_slots, right, spare, 0)
            if not before(tree.keys, tree.entries, right, 0, addresses[i], entry):
                right = leaf
            leaf = right
        row = row_of(tree, leaf, addresses[i], entry)
        _write_row(tree, leaf, row, addresses[i], entry, values, i)
        state[SIZE] += 1
    return order.size


@kernel
def _repair_leaf(tree, parent, slot):
    """Fill up a leaf that got too small: merge with a sibling, or share evenly. True when merged."""
    state = tree.state
    counts = tree.counts
    nexts = tree.nexts
    entries = tree.entries
    node_counts = tree.node_counts
    children = tree.children
    capacity = entries.shape[1]
    if slot + 1 == node_counts[parent]:
        slot -= 1
    left = children[parent, slot]
    right = children[parent, slot + 1]
    n = counts[left]
    m = counts[right]
    half = n + m if n + m <= capacity else (n + m) >> 1
    if n < half:
        _move_rows(tree, right, 0, half - n, left, n)
        _move_rows(tree, right, half - n, m, right, 0)
    else:
        _move_rows(tree, right, 0, m, right, n - half)
        _move_rows(tree, left, half, n, right, 0)
    counts[left] = half
    counts[right] = n + m - half
    if counts[right]:
        _bound_by_leaf(tree, parent, slot + 1, right)
        return False
    nexts[left] = nexts[right]
    nexts[right] = state[FREE_LEAF]
    state[FREE_LEAF] = right
    state[LIVE_LEAVES] -= 1
    _move_slots(tree, parent, slot + 2, node_counts[parent], parent, slot + 1)
    node_counts[parent] -= 1
    return True


@kernel
def _repair_node(tree, parent, slot):
    """As `_repair_leaf` for an inner node."""
    state = tree.state
    node_counts = tree.node_counts
    children = tree.children
    fanout = children.shape[1]
    if slot + 1 == node_counts[parent]:
        slot -= 1
    left = children[parent, slot]
    right = children[parent, slot + 1]
    n = node_counts[left]
    m = node_counts[right]
    # child 0 of the right node has no bound of its own: the parent holds it
    _copy_bound(tree, parent, slot + 1, right, 0)
    half = n + m if n + m <= fanout else (n + m) >> 1
    if n < half:
        _move_slots(tree, right, 0, half - n, left, n)
        _move_slots(tree, right, half - n, m, right, 0)
    else:
        _move_slots(tree, right, 0, m, right, n - half)
        _move_slots(tree, left, half, n, right, 0)
    node_counts[left] = half
    node_counts[right] = n + m - half
    if node_counts[right]:
        _copy_bound(tree, right, 0, parent, slot + 1)
        return False
    children[right, 0] = state[FREE_NODE]
    state[FREE_NODE] = right
    state[LIVE_NODES] -= 1
    _move_slots(tree, parent, slot + 2, node_counts[parent], parent, slot + 1)
    node_counts[parent] -= 1
    return True


@allocating_kernel
def delete(tree, addresses, numbers, order, found):
    """Delete entries in the given order; found[i] says whether entry i was there."""
    state = tree.state
    counts = tree.counts
    keys = tree.keys
    entries = tree.entries
    node_counts = tree.node_counts
    children = tree.children
    capacity = entries.shape[1]
    fanout = children.shape[1]
    path_nodes = np.empty(MAX_HEIGHT, np.int64)
    path_slots = np.empty(MAX_HEIGHT, np.int64)
    for q in range(order.size):
        i = order[q]
        entry = np.int64(numbers[i])
        leaf = _descend(tree, addresses[i], entry, path_nodes, path_slots)
        row = row_of(tree, leaf, addresses[i], entry)
        here = row < counts[leaf] and entries[leaf, row] == entry
        if here:
            for w in range(keys.shape[2]):
                here = here and keys[leaf, row, w] == addresses[i, w]
        found[i] = here
        if not here:
            continue
        _move_rows(tree, leaf, row + 1, counts[leaf], leaf, row)
        counts[leaf] -= 1
        state[SIZE] -= 1
        # a third, not a half: a leaf that was just split or merged is not at once repaired again
        level = state[HEIGHT] - 1
        if level < 0 or counts[leaf] >= capacity // 3:
            continue
        merged = _repair_leaf(tree, path_nodes[level], path_slots[level])
        while merged and level > 0 and node_counts[path_nodes[level]] < max(2, fanout // 3):
            level -= 1
            merged = _repair_node(tree, path_nodes[level], path_slots[level])
        root = state[ROOT]
        if state[HEIGHT] > 0 and node_counts[root] == 1:
            state[ROOT] = children[root, 0]
            state[HEIGHT] -= 1
            children[root, 0] = state[FREE_NODE]
            state[FREE_NODE] = root
            state[LIVE_NODES] -= 1
