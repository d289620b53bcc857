"""The B+tree over Z-addresses against a sorted list."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.durable.arrays import flatten, unflatten
from rangecast.zorder import kernels
from rangecast.zorder.curve import ZCurve
from rangecast.zorder.tree import ZTree


def words_of(values, n_words):
    """Small integers as addresses whose words all matter."""
    out = np.zeros((len(values), n_words), np.uint64)
    for i, v in enumerate(values):
        out[i] = [int(v) // 3] * (n_words - 1) + [int(v)]
    return out


def contents(tree):
    addresses, numbers, columns = tree.items()
    return [
        (*a, n, *c) for a, n, c in zip(addresses.tolist(), numbers.tolist(), columns.T.tolist(), strict=True)
    ]


def model(held, n_words):
    return sorted(
        (*words_of([v], n_words)[0].tolist(), number, *columns) for (v, number), columns in held.items()
    )


def check_shape(tree):
    """Every invariant: depth, fill, bounds, links, counts and free lists."""
    state, counts, nexts, keys, entries, _, node_counts, children, node_keys, node_ties = tree.arrays
    leaves, nodes = [], [0]

    def key(leaf, row):
        return (*keys[leaf, row].tolist(), int(entries[leaf, row]))

    def walk(block, depth, low, high, root):
        if depth == 0:
            leaves.append(block)
            assert root or counts[block] >= tree.capacity // 3
            own = [key(block, r) for r in range(counts[block])]
            assert own == sorted(set(own))
            assert all((low is None or low <= k) and (high is None or k < high) for k in own)
            return
        nodes[0] += 1
        n = int(node_counts[block])
        assert n >= (2 if root else max(2, tree.fanout // 3))
        bounds = [
            low,
            *((*node_keys[block, i].tolist(), int(node_ties[block, i])) for i in range(1, n)),
            high,
        ]
        for i in range(n):
            walk(int(children[block, i]), depth - 1, bounds[i], bounds[i + 1], False)

    walk(int(state[kernels.ROOT]), tree.height, None, None, True)
    assert [int(nexts[leaf]) for leaf in leaves] == [*leaves[1:], -1]
    assert sum(int(counts[leaf]) for leaf in leaves) == len(tree)
    assert (len(leaves), nodes[0]) == (tree.n_leaves, int(state[kernels.LIVE_NODES]))


@pytest.mark.parametrize(
    ("n_words", "n_columns", "capacity", "fanout"), [(1, 0, 4, 4), (3, 2, 5, 4), (2, 1, 8, 6)]
)
def test_changes_equal_a_sorted_list(n_words, n_columns, capacity, fanout, size):
    """Growth by single inserts, then shrinkage to nothing, with equal addresses throughout."""
    rng = np.random.default_rng(capacity)
    tree = ZTree(n_words, n_columns, capacity, fanout)
    held = {}
    steps = max(60, size(900))
    for step in range(2 * steps):
        growing = rng.random() < (0.8 if step < steps else 0.2)
        if growing or not held:
            k = 1 if rng.random() < 0.9 else int(rng.integers(2, 20))
            fresh = {}
            while len(fresh) < k:
                entry = int(rng.integers(0, 60)), int(rng.integers(0, 10_000))
                if entry not in held:
                    fresh[entry] = rng.integers(0, 100, n_columns).tolist()
            held.update(fresh)
            columns = np.array(list(fresh.values()), np.uint16).reshape(k, n_columns).T.copy()
            tree.insert(words_of([v for v, _ in fresh], n_words), [n for _, n in fresh], columns)
        else:
            entry = sorted(held)[int(rng.integers(len(held)))]
            del held[entry]
            assert tree.delete(words_of([entry[0]], n_words), [entry[1]]).tolist() == [True]
        if step % 25 == 0 or len(held) < 2:
            check_shape(tree)
            assert contents(tree) == model(held, n_words)
    gone = sorted(held)
    assert tree.delete(words_of([v for v, _ in gone], n_words), [n for _, n in gone]).all()
    check_shape(tree)
    assert (len(tree), tree.height, contents(tree)) == (0, 0, [])


@given(data=st.data())
def test_find_equals_a_sorted_list(data):
    values = data.draw(st.lists(st.integers(0, 40), max_size=60))
    tree = ZTree(2, capacity=4, fanout=4)
    half = len(values) // 2
    for part in (range(half), range(half, len(values))):
        tree.insert(words_of([values[i] for i in part], 2), list(part))
    check_shape(tree)
    ranges = data.draw(st.lists(st.tuples(st.integers(0, 42), st.integers(0, 42)), min_size=1, max_size=20))
    entries = sorted((v, i) for i, v in enumerate(values))
    want = []
    for a, b in ranges:
        at = bisect.bisect_left(entries, (a, -1))
        want.append(entries[at][1] if at < len(entries) and entries[at][0] <= b else -1)
    firsts, lasts = (words_of([r[side] for r in ranges], 2) for side in (0, 1))
    assert tree.find(firsts, lasts).tolist() == want


def test_unknown_entries_are_said_and_nothing_changes():
    tree = ZTree(1, capacity=4, fanout=4)
    tree.insert(words_of([1, 1, 2], 1), [10, 11, 12])
    assert tree.delete(words_of([1, 2, 9, 1], 1), [12, 12, 10, 11]).tolist() == [False, True, False, True]
    assert contents(tree) == [(1, 10)]


def test_all_alike(size):
    """Equal addresses are told apart by number, so each is found among them."""
    n = size(20_000)
    tree = ZTree(8, capacity=32)
    address = np.full((1, 8), 2**64 - 1, np.uint64)
    rng = np.random.default_rng(4)
    tree.insert(np.repeat(address, n, axis=0), rng.permutation(n))
    for _ in range(40):
        tree.insert(address, [n])
        assert tree.delete(address, [n]).all()
    order = rng.permutation(n)[: n // 2]
    assert tree.delete(np.repeat(address, len(order), axis=0), order).all()
    check_shape(tree)
    assert tree.find(address, address)[0] == np.setdiff1d(np.arange(n), order)[0]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 13, 100])
def test_loading_at_once(n):
    tree = ZTree(1, capacity=4, fanout=4)
    values = np.random.default_rng(n).integers(0, 2**63, n)
    tree.insert(values.astype(np.uint64)[:, None], np.arange(n))
    check_shape(tree)
    assert tree.items()[0][:, 0].tolist() == sorted(values.tolist())


def test_an_extremal_square_is_one_run():
    """256 x 256 at the far corner of a universe of 512 x 512 is one range of addresses."""
    curve = ZCurve([9, 9])
    corner = np.array([[256, 511], [256, 511]])
    first, last = curve.encode(corner)
    assert int(last[0] - first[0]) >> 64 - 18 == 256 * 256 - 1
    tree = ZTree(1)
    tree.insert(curve.encode(np.array([[255, 300], [511, 300]])), [1, 2])
    assert tree.find(first[None], last[None]).tolist() == [2]


def test_exports_and_restores():
    tree = ZTree(2, 1, capacity=4, fanout=4)
    tree.insert(words_of(range(50), 2), np.arange(50), np.arange(50, dtype=np.uint16)[None])
    meta, arrays = flatten(tree.arrays)
    again = ZTree.of(
        unflatten(kernels.TreeArrays, meta, {name: array.copy() for name, array in arrays.items()})
    )
    assert contents(again) == contents(tree)
    again.insert(words_of([7], 2), [99], np.zeros((1, 1), np.uint16))
    check_shape(again)
    assert (len(again), len(tree)) == (51, 50)


def test_options_are_checked():
    with pytest.raises(rc.OptionError, match="at least one word, got 0"):
        ZTree(0)
    with pytest.raises(rc.OptionError, match="capacity of a leaf must be within 4 and 1048576, got 3"):
        ZTree(1, capacity=3)
    with pytest.raises(rc.OptionError, match="fan-out must be within 4 and 65536, got 2"):
        ZTree(1, fanout=2)
    with pytest.raises(rc.OptionError, match=r"2 entries need addresses \(2, 1\) and columns \(0, 2\)"):
        ZTree(1).insert(np.zeros((2, 2), np.uint64), [1, 2])
