"""Changing the B+tree over Z-addresses: insertion with splits, deletion with merges.

The tuple of arrays is that of zorder/kernels.py. Full nodes split in half. A leaf or node that falls
below a third merges with a sibling, or shares with it evenly where both together are too many; the
sibling merged away is always the right one, so leaves need no link to the one before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


# Z-addresses of any width: interleaving coordinates and back, comparing, jumping into a box.
#
# An address is a row of 64-bit words, the most significant first. Which coordinate gives which bit is
# laid down by two arrays (zorder/curve.py makes them):
#
#     dims     int32   n_bits   the dimension of each bit of the address, from the top
#     shifts   int32   n_bits   which bit of that coordinate it is
#
# so dimensions may differ in their number of bits, and no kernel assumes an order among them.

_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@kernel
def bit_of(address, p):
    """Bit p of an address, counted from the top."""
    return (address[p >> 6] >> np.uint64(63 - (p & 63))) & _ONE


@kernel
def interleave(coordinates, dims, shifts, out):
    """out[i] = the address of the point coordinates[:, i]."""
    n_words = out.shape[1]
    for i in range(coordinates.shape[1]):
        for w in range(n_words):
            word = _ZERO
            first = w << 6
            last = min(first + 64, dims.size)
            for p in range(first, last):
                bit = (np.uint64(coordinates[dims[p], i]) >> np.uint64(shifts[p])) & _ONE
                word = (word << _ONE) | bit
            out[i, w] = word << np.uint64(64 - last + first)


@kernel
def separate(addresses, dims, shifts, out):
    """out[:, i] = the coordinates of address i; out starts as zeros."""
    for i in range(addresses.shape[0]):
        for p in range(dims.size):
            bit = bit_of(addresses[i], p)
            k = dims[p]
            out[k, i] = np.int64(np.uint64(out[k, i]) | (bit << np.uint64(shifts[p])))


@kernel
def compare(a, b):
    """-1, 0 or 1: how address a stands to address b on the curve."""
    for w in range(a.size):
        if a[w] != b[w]:
            return -1 if a[w] < b[w] else 1
    return 0


@kernel
def spread(lows, dims, shifts, out):
    """out[k] = the bits of coordinate lows[k] at their places in an address, all else 0."""
    for k in range(out.shape[0]):
        for w in range(out.shape[1]):
            out[k, w] = _ZERO
    for p in range(dims.size):
        k = dims[p]
        bit = (lows[k] >> np.uint64(shifts[p])) & _ONE
        out[k, p >> 6] |= bit << np.uint64(63 - (p & 63))


@kernel
def jump_in(address, lows, highs, spreads, dims, shifts, left_lows, left_highs, out):
    """out = the first address, from `address` on, of a point in the box; False when there is none.

    The walk goes down from the top bit and keeps, per dimension, where the coordinate's prefix left
    that of the box's low side (`left_lows[k]`, a bit's place) and of its high side. It ends where the
    address leaves the box. Below the box, the bit at fault is raised; above it, the last 0 that could
    be a 1 within the box is. What follows is the least completion: bits of the low side in dimensions
    still tight to it, 0 in the others. `spreads` holds the low sides bit by bit (see `spread`).
    """
    n_bits = dims.size
    for k in range(lows.size):
        left_lows[k] = n_bits
        left_highs[k] = n_bits
    raised = -1
    inside = True
    for p in range(n_bits):
        k = dims[p]
        s = np.uint64(shifts[p])
        low = (lows[k] >> s) & _ONE
        high = (highs[k] >> s) & _ONE
        if bit_of(address, p):
            if high == _ZERO and left_highs[k] == n_bits:
                inside = False
                break
            if low == _ZERO and left_lows[k] == n_bits:
                left_lows[k] = p
        else:
            if low == _ONE and left_lows[k] == n_bits:
                inside = False
                raised = p
                break
            if left_highs[k] < n_bits:
                raised = p
            elif high == _ONE:
                raised = p
                left_highs[k] = p
    if inside:
        for w in range(out.size):
            out[w] = address[w]
        return True
    if raised < 0:
        return False
    word = raised >> 6
    place = np.uint64(63 - (raised & 63))
    for w in range(word):
        out[w] = address[w]
    upper = ~((_ONE << place) - _ONE)
    out[word] = (address[word] & upper) | (_ONE << place)
    for w in range(word + 1, out.size):
        out[w] = _ZERO
    for k in range(lows.size):
        if lows[k] == _ZERO or left_lows[k] < raised:
            continue
        if k == dims[raised] and (lows[k] >> np.uint64(shifts[raised])) & _ONE == _ZERO:
            continue
        out[word] |= spreads[k, word] & ~upper
        for w in range(word + 1, out.size):
            out[w] |= spreads[k, w]
    return True


@allocating_kernel
def jump_in_each(addresses, lows, highs, dims, shifts, out, found):
    """`jump_in` for many addresses and one box: found[i] says whether out[i] was written."""
    spreads = np.empty((lows.size, addresses.shape[1]), np.uint64)
    spread(lows, dims, shifts, spreads)
    left_lows = np.empty(lows.size, np.int64)
    left_highs = np.empty(lows.size, np.int64)
    for i in range(addresses.shape[0]):
        found[i] = jump_in(addresses[i], lows, highs, spreads, dims, shifts, left_lows, left_highs, out[i])


# The B+tree over Z-addresses: descending to a key, the first entry of a range, the whole tree in and out.
#
# Every kernel takes the tree as its `TreeArrays` (zorder/tree.py has the table).
#
# The key of an entry is its address and, among equal addresses, its number: so keys are distinct, and
# one of a million equal addresses is found and deleted in logarithmic time. In an inner node child 0
# has no lower bound; child i > 0 holds keys from (node_keys[i], node_ties[i]) on.

ROOT, HEIGHT, SIZE, LEAVES, NODES, FREE_LEAF, FREE_NODE, LIVE_LEAVES, LIVE_NODES = range(9)
N_STATE = 9
MAX_HEIGHT = 48


class TreeArrays(NamedTuple):
    """The leaves and nodes of a tree."""

    state: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    nexts: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    entries: npt.NDArray[np.int32]
    columns: npt.NDArray[np.uint16]
    node_counts: npt.NDArray[np.int64]
    children: npt.NDArray[np.int64]
    node_keys: npt.NDArray[np.uint64]
    node_ties: npt.NDArray[np.int32]


@kernel
def before(keys, ties, block, row, address, entry):
    """Whether the key at (block, row) comes before (address, entry)."""
    for w in range(address.size):
        held = keys[block, row, w]
        if held != address[w]:
            return held < address[w]
    return ties[block, row] < entry


@kernel
def child_of(node_counts, node_keys, node_ties, node, address, entry):
    """The slot of the child that would hold a key: the last whose bound does not come after it."""
    low = 0
    high = node_counts[node]
    while high - low > 1:
        middle = (low + high) >> 1
        after = node_ties[node, middle] > entry
        for w in range(address.size):
            bound = node_keys[node, middle, w]
            if bound != address[w]:
                after = bound > address[w]
                break
        if after:
            high = middle
        else:
            low = middle
    return low


@kernel
def leaf_of(tree, address, entry):
    """The leaf that would hold a key."""
    state = tree.state
    node_counts = tree.node_counts
    children = tree.children
    node_keys = tree.node_keys
    node_ties = tree.node_ties
    node = state[ROOT]
    for _ in range(state[HEIGHT]):
        node = children[node, child_of(node_counts, node_keys, node_ties, node, address, entry)]
    return node


@kernel
def row_of(tree, leaf, address, entry):
    """The first row of a leaf whose key does not come before this one."""
    counts = tree.counts
    keys = tree.keys
    entries = tree.entries
    low = 0
    high = counts[leaf]
    while low < high:
        middle = (low + high) >> 1
        if before(keys, entries, leaf, middle, address, entry):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def seek(tree, address, entry):
    """Leaf and row of the first key from this one on; leaf -1 when there is none."""
    counts = tree.counts
    nexts = tree.nexts
    leaf = leaf_of(tree, address, entry)
    row = row_of(tree, leaf, address, entry)
    if row == counts[leaf]:
        leaf = nexts[leaf]
        row = 0
    return leaf, row


@kernel
def find_in_range(tree, first, last):
    """The entry with the least address in first..last, both inclusive, or -1."""
    keys = tree.keys
    entries = tree.entries
    leaf, row = seek(tree, first, -1)
    if leaf < 0:
        return -1
    for w in range(last.size):
        held = keys[leaf, row, w]
        if held != last[w]:
            return np.int64(entries[leaf, row]) if held < last[w] else -1
    return np.int64(entries[leaf, row])


@kernel
def find_in_ranges(tree, firsts, lasts, out):
    """out[i] = `find_in_range` of range i."""
    for i in range(firsts.shape[0]):
        out[i] = find_in_range(tree, firsts[i], lasts[i])


@kernel
def read_all(tree, out_addresses, out_entries, out_columns):
    """Copy all entries in the order of their keys."""
    state = tree.state
    counts = tree.counts
    nexts = tree.nexts
    keys = tree.keys
    entries = tree.entries
    columns = tree.columns
    leaf = state[ROOT]
    for _ in range(state[HEIGHT]):
        leaf = tree.children[leaf, 0]
    p = 0
    while leaf >= 0:
        n = counts[leaf]
        for row in range(n):
            out_entries[p + row] = entries[leaf, row]
            for w in range(keys.shape[2]):
                out_addresses[p + row, w] = keys[leaf, row, w]
        for c in range(columns.shape[1]):
            for row in range(n):
                out_columns[c, p + row] = columns[leaf, c, row]
        p += n
        leaf = nexts[leaf]


@allocating_kernel
def load(tree, addresses, numbers, values, order, n_leaves, per_node):
    """Fill an empty tree with entries in the order of their keys: n_leaves leaves, equally full."""
    state = tree.state
    counts = tree.counts
    nexts = tree.nexts
    keys = tree.keys
    entries = tree.entries
    columns = tree.columns
    node_counts = tree.node_counts
    children = tree.children
    node_keys = tree.node_keys
    node_ties = tree.node_ties
    n = order.size
    for leaf in range(n_leaves):
        a = leaf * n // n_leaves
        b = (leaf + 1) * n // n_leaves
        for q in range(a, b):
            i = order[q]
            entries[leaf, q - a] = numbers[i]
            for w in range(keys.shape[2]):
                keys[leaf, q - a, w] = addresses[i, w]
        for c in range(columns.shape[1]):
            for q in range(a, b):
                columns[leaf, c, q - a] = values[c, order[q]]
        counts[leaf] = b - a
        nexts[leaf] = leaf + 1 if leaf + 1 < n_leaves else -1
    state[SIZE] = n
    state[LEAVES] = n_leaves
    state[LIVE_LEAVES] = n_leaves
    # each level keeps, next to a child, the first leaf below it: its first key is the child's bound
    below = np.arange(n_leaves)
    lowest = np.arange(n_leaves)
    height = 0
    while below.size > 1:
        k = (below.size + per_node - 1) // per_node
        nodes = np.empty(k, np.int64)
        firsts = np.empty(k, np.int64)
        for j in range(k):
            a = j * below.size // k
            b = (j + 1) * below.size // k
            node = state[NODES]
            state[NODES] += 1
            for c in range(a, b):
                children[node, c - a] = below[c]
                node_ties[node, c - a] = entries[lowest[c], 0]
                for w in range(keys.shape[2]):
                    node_keys[node, c - a, w] = keys[lowest[c], 0, w]
            node_counts[node] = b - a
            nodes[j] = node
            firsts[j] = lowest[a]
        below = nodes
        lowest = firsts
        height += 1
    state[ROOT] = below[0]
    state[LIVE_NODES] = state[NODES]
    state[HEIGHT] = height
