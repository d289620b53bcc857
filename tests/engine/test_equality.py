"""Lists by value: long and short ones, bounds that few boxes have, values told apart or not, deletes."""

import pickle

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine.layouts import lists
from rangecast.engine.layouts.lists_kernels import _CHUNK
from rangecast.engine.parts import TAIL_LIMIT, StaticIndex
from rangecast.simd.compiler import kernel
from rangecast.simd.lanes import (
    EIGHT,
    hold_one_by_one,
    hold_row,
    keep_members,
    keep_one_by_one,
    put_one_by_one,
    put_row,
)

SCHEMA = rc.Schema(
    rc.Int("key"),
    rc.Int("small", 0, 99),
    rc.Int("large"),
    rc.Float("price"),
    *(rc.Int(f"r{k}") for k in range(3)),
)


@kernel
def _keep(members, bounds, first, among, value, guard, out, to):
    return keep_members(members, bounds, first, among, value, guard, out, to)


@kernel
def _hold(bounds, first, stride, values, guards):
    return hold_row(bounds, first, stride, values, guards)


@kernel
def _put(members, first, held, out, to):
    return put_row(members, first, held, out, to)


class Lists(StaticIndex):
    """Every subscription in the list of its key."""

    name = "lists"

    expands = False

    def _build(self, boxes, numbers):
        return lists.build_equality(boxes, numbers, 0)


def subscriptions(
    n: int, seed: int, used=("small", "large", "price"), rare: float = 0.03
) -> rc.Subscriptions:
    rng = np.random.default_rng(seed)
    keys = np.where(np.arange(n) < min(n, _CHUNK + 100), 7, rng.integers(0, 1 + n // 8, n) * 1_000_003)
    lows, highs = {"key": keys}, {"key": keys}
    for name, top in (("small", 99), ("large", 2**40), ("price", 1000)):
        if name in used:
            low = rng.integers(0, top // 2, n)
            lows[name] = low
            highs[name] = np.where(rng.random(n) < 0.2, low, np.minimum(low + rng.integers(0, top, n), top))
    texts = rc.Subscriptions.from_arrays(SCHEMA, np.arange(n), lows, highs)
    for j in (4, 5, 6):
        chosen = np.flatnonzero(rng.random(n) < rare)
        at = rng.integers(0, 10, len(chosen))
        texts.lows[j, chosen], texts.highs[j, chosen] = at, at + rng.integers(0, 5, len(chosen))
    return texts


def batch(subs: rc.Subscriptions, m: int, seed: int) -> rc.Events:
    """Events at the lower ends of subscriptions, so that many match, some with values missing."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(subs), m)
    columns = {"key": subs.lows[0, rows].tolist()}
    for name, top in (("small", 99), ("large", 2**40), ("price", 1000), ("r0", 12), ("r1", 12), ("r2", 12)):
        columns[name] = [None if rng.random() < 0.05 else int(v) for v in rng.integers(0, top, m)]
    return rc.Events.from_rows(
        SCHEMA, [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    )


def check(index: rc.Index, events: rc.Events) -> None:
    scan = rc.open_index("scan", SCHEMA)
    scan.insert(index.subscriptions())
    expected = scan.match(events)
    assert index.match(events) == expected
    assert index.match(events, threads=2) == expected
    assert [index.match(events).row(e).tolist() for e in range(3)] == [
        index.match(events.select(np.array([e]))).ids.tolist() for e in range(3)
    ]


@pytest.mark.parametrize(
    "used", [(), ("small",), ("large",), ("price", "small"), ("small", "large", "price")]
)
@pytest.mark.parametrize("rare", [0.0, 0.03])
def test_lists_equal_the_scan_through_deletes(used, rare, size, leg):
    if leg == "nojit" and len(used) == 1:
        pytest.skip("too slow without compiled kernels")
    n = max(size(4000), _CHUNK + 200)
    subs = subscriptions(n, 1, used, rare)
    index = Lists(SCHEMA)
    index.insert(subs)
    events = batch(subs, max(size(40), 10), 2)
    check(index, events)
    part = index._state.parts[0].part
    assert bool(len(part.lists.rare)) == bool(rare)
    rng = np.random.default_rng(3)
    index.delete(rng.choice(n, n // 10, replace=False))
    swept = index._state.parts[0].part
    assert swept is not part
    assert len(swept.lists.boxes) == n - n // 10
    check(index, events)
    index.insert(subscriptions(n // 40, 4, used, rare))
    check(index, events)
    check(pickle.loads(pickle.dumps(index)), events)


def test_a_batch_of_which_few_events_have_a_list(size):
    subs = subscriptions(max(size(3000), _CHUNK + 200), 5)
    index = Lists(SCHEMA)
    index.insert(subs)
    check(index, batch(subs, 80, 6))
    few = rc.Events.from_rows(SCHEMA, [{"key": 7 if k % 9 == 0 else -1 - k, "small": k} for k in range(99)])
    check(index, few)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9, 40])
@pytest.mark.parametrize("m", [3, 5, 100])
def test_one_exact_word_in_lists_of_any_length(n, m):
    # every list of one length, all of them side by side, and the last at the end of the arrays
    keys = np.repeat(np.arange(23), n)
    lows = np.arange(len(keys)) % 7
    sides = {"key": keys, "small": lows}, {"key": keys, "small": lows + np.arange(len(keys)) % 3}
    index = Lists(SCHEMA)
    index.insert(rc.Subscriptions.from_arrays(SCHEMA, np.arange(len(keys)), *sides))
    rows = [{"key": 22 - k % 25, "small": k % 10 if k % 11 else None} for k in range(m)]
    check(index, rc.Events.from_rows(SCHEMA, rows))


@pytest.mark.parametrize("among", range(16))
def test_four_members_are_kept_as_one_by_one(among):
    guard, value = np.uint64(1 << 15), np.uint64(1 << 15 | 5)
    members = np.arange(100, 110, dtype=np.int32)
    for held in range(16):
        bounds = np.full(10, 99, np.uint64)
        bounds[3:7] = [5 if held >> k & 1 else 6 for k in range(4)]
        kept = []
        for keep in (_keep, keep_one_by_one):
            out = np.full(8, -1, np.int32)
            n = keep(members, bounds, np.uint64(3), np.uint64(among), value, guard, out, np.uint64(2))
            assert out[:2].tolist() == [-1, -1]
            assert (out[6:] == -1).all()
            kept.append(out[2 : 2 + int(n)].tolist())
        assert kept == [[103 + k for k in range(4) if among & held & 1 << k]] * 2


@pytest.mark.parametrize("n", [1, 7, 8, 9, 15, 16, 17, 40, _CHUNK + 1])
@pytest.mark.parametrize("rare", [0, 5, 40])
def test_several_exact_words_in_lists_of_any_length(n, rare, leg):
    if leg == "nojit" and n not in (1, 9, 16):
        pytest.skip("too slow without compiled kernels")
    # 0: nobody bounds r0; 5: many do, so that it has fields of its own; 40: few do
    n_lists = max(5, TAIL_LIMIT // n + 1)
    keys = np.repeat(np.arange(n_lists), n)
    k = np.arange(len(keys))
    lows = {"key": keys, "small": k % 7, "price": (k % 5).astype(float), "large": 10**6 * (k % 3)}
    highs = {
        "key": keys,
        "small": k % 7 + k % 3,
        "price": (k % 5 + k % 2).astype(float),
        "large": lows["large"],
    }
    subs = rc.Subscriptions.from_arrays(SCHEMA, k, lows, highs)
    if rare:
        chosen = k[k % rare == 0]
        subs.lows[4, chosen], subs.highs[4, chosen] = 3, 4 + chosen % 2
    index = Lists(SCHEMA)
    index.insert(subs)
    part = index._state.parts[0].part
    assert all(part.packed.exact)
    assert part.packed.n_words > 1
    assert bool(len(part.lists.rare)) == (rare == 40)
    # values at ends, one before and one behind, keys without a list, missing values of each attribute
    rows = [
        {
            "key": n_lists - j % 6,
            "small": j % 9,
            "price": j % 6 + 0.5 * (j % 4 == 0),
            "large": 10**6 * (j % 4),
            "r0": j % 7,
        }
        for j in range(60)
    ]
    for j, name in ((3, "small"), (5, "price"), (7, "r0"), (11, "key"), (13, "large")):
        for row in rows[j::17]:
            row.pop(name, None)
    events = rc.Events.from_rows(SCHEMA, rows)
    assert n == 1 or index.match(events).n_pairs
    check(index, events)
    index.delete(k[::3])
    check(index, events)


@pytest.mark.parametrize("n_words", [0, 1, 2, 5])
def test_a_row_of_members_holds_as_one_by_one(n_words):
    rng = np.random.default_rng(n_words)
    guards = np.full(max(n_words, 1), 1 << 15 | 1 << 31 | 1 << 63, np.uint64)
    guards[-1] = 1 << 20 | 1 << 62
    for turn in range(200):
        # values as large as fields are, equal to bounds and one off
        bounds = rng.integers(0, 3, n_words * 11 + 9).astype(np.uint64) * np.uint64(1 << 32 | 1 << 16 | 1)
        values = (rng.integers(1, 4, n_words).astype(np.uint64) * np.uint64(1 << 32 | 1 << 16 | 1)) | guards[
            :n_words
        ]
        if turn % 2:
            bounds[:] = values[0] & ~guards[0] if n_words else 0
            bounds[rng.integers(len(bounds))] += np.uint64(1)
        at, stride = np.uint64(turn % 2), np.uint64(11)
        held = hold_one_by_one(bounds, at, stride, values, guards[: max(n_words, 1)])
        assert int(_hold(bounds, at, stride, values, guards[: max(n_words, 1)])) == int(held)
        assert n_words or int(held) == (1 << EIGHT) - 1


def test_a_row_of_members_is_put_as_one_by_one():
    members = np.arange(100, 112, dtype=np.int32)
    for held in range(1 << EIGHT):
        for put in (_put, put_one_by_one):
            out = np.full(EIGHT + 4, -1, np.int32)
            n = int(put(members, np.uint64(3), np.uint64(held), out, np.uint64(2)))
            assert out[2 : 2 + n].tolist() == [103 + k for k in range(EIGHT) if held >> k & 1]
            assert out[:2].tolist() == [-1, -1]
            assert (out[2 + EIGHT :] == -1).all()


def test_bounds_that_ask_only_whether_a_value_is_there():
    texts = {i: f"key = {i % 900} and small is {'present' if i % 2 else 'missing'}" for i in range(3_000)}
    index = rc.open_index("auto", SCHEMA)
    index.insert(rc.Subscriptions.parse(SCHEMA, texts))
    found = index.match(rc.Events.from_rows(SCHEMA, [{"key": 7, "small": 5}, {"key": 8}, {"key": 10}]))
    assert [sorted(found.row(e).tolist()) for e in range(3)] == [
        [7, 907, 1807, 2707],
        [8, 908, 1808, 2708],
        [10, 910, 1810, 2710],
    ]
