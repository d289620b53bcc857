"""Lists by value: long and short ones, bounds that few boxes have, values told apart or not, deletes."""

import pickle

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine import equality
from rangecast.engine.parts import StaticIndex
from rangecast.kernels.engine.equality import _CHUNK

SCHEMA = rc.Schema(
    rc.Int("key"),
    rc.Int("small", 0, 99),
    rc.Int("large"),
    rc.Float("price"),
    *(rc.Int(f"r{k}") for k in range(3)),
)


class Lists(StaticIndex):
    """Every subscription in the list of its key."""

    name = "lists"

    expands = False

    def _build(self, boxes, numbers):
        return equality.build_equality(boxes, numbers, 0)


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


def test_a_batch_in_the_order_of_lists_gives_the_same(monkeypatch, size):
    subs = subscriptions(max(size(3000), _CHUNK + 200), 5)
    index = Lists(SCHEMA)
    index.insert(subs)
    events = batch(subs, 80, 6)
    straight = index.match(events)
    monkeypatch.setattr(equality, "SORTED", 1)
    assert index.match(events) == straight
    check(index, events)
    # most events without a list
    few = rc.Events.from_rows(SCHEMA, [{"key": 7 if k % 9 == 0 else -1 - k, "small": k} for k in range(99)])
    check(index, few)


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
