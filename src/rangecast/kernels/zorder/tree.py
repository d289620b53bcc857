"""The B+tree over Z-addresses: descending to a key, the first entry of a range, the whole tree in and out.

Every kernel takes the tree as its `TreeArrays` (zorder/tree.py has the table).

The key of an entry is its address and, among equal addresses, its number: so keys are distinct, and
one of a million equal addresses is found and deleted in logarithmic time. In an inner node child 0
has no lower bound; child i > 0 holds keys from (node_keys[i], node_ties[i]) on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import allocating_kernel, kernel

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
