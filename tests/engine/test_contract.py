"""The contract that every index keeps: it gives exactly the oracle's answer, whatever happened before."""

from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
import seeds
from oracle import match_boxes, match_held, match_values, rows_of
from rangecast.durable.arrays import write_arrays
from rangecast.engine import REGISTRY
from rangecast.types.attributes import LAST, MISSING, PRESENT
from strategies import events, history, int_schema, random_events, random_subscriptions, subscriptions

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "1"
N = 900 if JIT else 60  # past the limit of an unsorted tail when compiled
VARIANTS = [(name, {}) for name in REGISTRY]
NEW_MACHINE = ("auto", {}, "on a new machine")
VARIANTS += [NEW_MACHINE]
VARIANTS += [("vci", {"lookup": "table"}), ("vci", {"lookup": "clipped", "constructs": "sci", "L": 4})]
VARIANTS += [("vcr", {"storage": "array"}), ("vcr", {"storage": "hash", "decomposition": "od"})]
VARIANTS += [("rtree", {"load": "insert", "node_capacity": 4, "leaf_capacity": 4})]
VARIANTS += [("cei", {"L": 4, "cells": 16})]
VARIANTS += [("ubtree", {"form": "plain", "leaf": 8, "fanout": 4})]


def expected(subs, batch):
    return [sorted(row) for row in match_boxes(subs, batch)]


def sizes(rng, most):
    """A whole number from 1 to `most`, as often between 10 and 100 as between 100 and 1,000."""
    return round(np.exp(rng.uniform(0, np.log(most))))


def boxes_that_hold(subs, batch):
    """As `match_boxes` of the oracle, for many boxes and events: (event, id), each pair once, in order."""
    pairs = [np.empty((0, 2), np.int64)]
    ids = subs.ids.values[subs.owners]
    step = max(1, 500_000 // len(batch))
    for first in range(0, subs.n_boxes, step):
        lows, highs = (bounds[:, first : first + step, None] for bounds in (subs.lows, subs.highs))
        inside = np.ones((lows.shape[1], len(batch)), bool)
        for low, codes, high in zip(lows, batch.codes, highs, strict=True):
            inside &= (low <= codes) & (codes <= high)
        boxes, own = np.nonzero(inside)
        pairs.append(np.column_stack([own, ids[first + boxes]]))
    return np.unique(np.concatenate(pairs), axis=0)


def pairs_of(matches):
    """The same of an answer; a pair that was reported twice is there twice."""
    pairs = np.column_stack([matches.events(), matches.ids]).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def events_that_say_little(rng, schema, m, span):
    """Events of which some, or all, have no value for any attribute."""
    batch = random_events(
        schema, m, seed=int(rng.integers(2**32)), span=span, missing=rng.choice([0, 0.1, 1])
    )
    batch.codes[:, rng.random(m) < rng.choice([0, 0.05, 0.5])] = MISSING
    return batch


@pytest.fixture(
    scope="module", params=VARIANTS, ids=lambda v: "-".join([v[0], *map(str, v[1].values()), *v[2:]])
)
def make(request):
    name, options, *_ = request.param
    return lambda schema: rc.open_index(name, schema, **options)


@pytest.fixture(autouse=True)
def way(request, used_machine):
    """`auto` begins in two ways: it lays out at once, or scans until that is worth compiling."""
    if request.node.callspec.params["make"] == NEW_MACHINE:
        request.getfixturevalue("new_machine")


@pytest.fixture(autouse=True, scope="module")
def small_tails():
    """Without compiled kernels sets are small: parts must appear all the same."""
    with pytest.MonkeyPatch.context() as patch:
        if not JIT:
            patch.setattr("rangecast.engine.parts.TAIL_LIMIT", 16)
        yield


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("boxes", [1, 2])
def test_bulk_equals_oracle(make, d, boxes):
    schema = int_schema(d)
    subs = random_subscriptions(schema, N, seed=d, boxes=boxes)
    batch = random_events(schema, 40, seed=100 + d)
    index = make(schema)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)
    assert len(index) == len(subs)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_any_sizes_equal_the_oracle(make, d, size, monkeypatch, request):
    """Sets and batches of 1 to 5,000, on domains of any width: what is built depends on all three."""
    rng = np.random.default_rng(seeds.seed_of(request.node.name))
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
    for round_ in range(6 if JIT else 3):
        n = sizes(rng, size(5_000))
        m = sizes(rng, min(size(5_000), max(1, 1_000_000 // n)))
        # a domain of 1,024 to 4,096 values once left a few hundred boxes without a layout
        span = int(rng.choice([sizes(rng, 500) * 40, rng.integers(1_024, 4_000)]))
        boxes = int(rng.choice([1, 1, 2]))
        width = sizes(rng, span)
        # as users have it, or with a layout for any set
        monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", int(rng.choice([512, 0])))
        # a new machine lays out after 2**30 boxes looked at, which no test waits for
        monkeypatch.setattr("rangecast.engine.auto.COLD_WORK", int(rng.choice([1 << 30, 1 << 16, 1])))
        told = f"round {round_}: {n} subscriptions of {boxes} boxes, {m} events, span {span}, width {width}"
        drawn = {"seed": int(rng.integers(2**32)), "boxes": boxes}
        subs = random_subscriptions(schema, n, span=span, width=width, bounded=rng.choice([0.5, 1]), **drawn)
        index = make(schema)
        index.insert(subs)
        for batch in (events_that_say_little(rng, schema, k, span) for k in (m, 1, m)):
            want = boxes_that_hold(subs, batch)
            assert np.array_equal(pairs_of(index.match(batch)), want), told
            assert np.array_equal(index.count(batch), np.bincount(want[:, 0], minlength=len(batch))), told
        gone = rng.random(n) < rng.choice([0.1, 0.9])
        assert index.delete(subs.ids.values[gone]) == []
        left = boxes_that_hold(subs.select(~gone), batch)
        assert np.array_equal(pairs_of(index.match(batch)), left), told


@settings(max_examples=40 if JIT else 10)  # a set as small as these is scanned by most kinds
@given(data=st.data())
def test_small_sets_equal_oracle(make, data):
    schema = int_schema(data.draw(st.integers(1, 3)))
    subs = data.draw(subscriptions(schema))
    batch = data.draw(events(schema))
    index = make(schema)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)


@given(data=st.data())
def test_small_parts_equal_oracle(make, data):
    """As above with every insert laid out at once, so that the structure itself sees odd bounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
        schema = int_schema(data.draw(st.integers(1, 3)))
        subs = data.draw(subscriptions(schema))
        batch = data.draw(events(schema))
        index = make(schema)
        index.insert(subs)
        assert rows_of(index.match(batch)) == expected(subs, batch)


@given(data=st.data())
def test_history_equals_oracle(make, data):
    """Inserts, replacements and deletes in any order leave what the last writes say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", data.draw(st.sampled_from([0, 2, 512])))
        schema = int_schema(2)
        index = make(schema)
        *_, held = history(data, index, schema, 5)
        batch = data.draw(events(schema))
        assert rows_of(index.match(batch)) == match_held(held, batch)
        assert len(index) == len(held)


@pytest.mark.parametrize("n", [1, 70])
def test_parts_of_subscriptions_that_bound_nothing(make, n, monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = int_schema(2)
    index = make(schema)
    index.insert(rc.Subscriptions(schema, np.arange(n), np.full((2, n), MISSING), np.full((2, n), LAST)))
    batch = rc.Events.from_rows(schema, [{"a0": 3, "a1": -4}, {"a0": 5}, {}])
    assert rows_of(index.match(batch)) == [list(range(n))] * 3
    assert rows_of(index.match(batch.select([]))) == []


def test_deletes(make):
    schema = int_schema(2)
    subs = random_subscriptions(schema, N, seed=3)
    batch = random_events(schema, 30, seed=4)
    index = make(schema)
    index.insert(subs)
    ids = subs.ids.values
    assert index.delete([*ids[::3].tolist(), -1]) == [-1]
    keep = np.ones(len(subs), bool)
    keep[::3] = False
    left = subs.select(keep)
    assert rows_of(index.match(batch)) == expected(left, batch)
    assert index.delete(ids[keep]) == []
    assert len(index) == 0
    assert index.match(batch).n_pairs == 0
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)


def test_replacing_an_id(make):
    schema = int_schema(1)
    index = make(schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "a0 = 1", 2: "a0 = 2"}))
    index.insert(rc.Subscriptions.parse(schema, {1: "a0 = 2"}))
    batch = rc.Events.from_rows(schema, [{"a0": 1}, {"a0": 2}])
    assert rows_of(index.match(batch)) == [[], [1, 2]]
    assert len(index) == 2


def test_churn(make):
    """Many rounds of replacing and deleting, so that parts merge and are built anew."""
    schema = int_schema(2)
    index = make(schema)
    held = {}
    rng = np.random.default_rng(8)
    rounds, size = (12, 400) if JIT else (6, 30)
    for round_ in range(rounds):
        fresh = random_subscriptions(schema, size, seed=round_)
        chosen = fresh.select(np.sort(rng.choice(size, size // 2, replace=False)))
        index.insert(chosen)
        held.update({chosen.ids[i]: (round_, i, chosen) for i in range(len(chosen))})
        gone = rng.choice(fresh.ids.values, size // 5, replace=False)
        index.delete(gone)
        for i in gone.tolist():
            held.pop(i, None)
    batch = random_events(schema, 20, seed=77)
    want = [set() for _ in range(len(batch))]
    for round_ in range(rounds):
        own = [(i, subs) for r, i, subs in held.values() if r == round_]
        if own:
            subs = own[0][1].select(sorted(i for i, _ in own))
            want = [row | found for row, found in zip(want, match_boxes(subs, batch), strict=True)]
    assert rows_of(index.match(batch)) == [sorted(row) for row in want]
    assert len(index) == len(held)


def test_empty_index_and_empty_batch(make):
    schema = int_schema(2)
    index = make(schema)
    batch = random_events(schema, 5, seed=1)
    assert rows_of(index.match(batch)) == [[]] * 5
    assert index.delete([4, 5]) == [4, 5]
    index.insert(rc.Subscriptions.empty(schema))
    assert len(index) == 0
    index.insert(random_subscriptions(schema, N, seed=2))
    nothing = index.match(rc.Events.from_rows(schema, []))
    assert (len(nothing), nothing.n_pairs) == (0, 0)
    assert index.stats()["subscriptions"] == N


def test_missing_values(make):
    schema = int_schema(2)
    texts = {
        1: "a0 is missing",
        2: "a0 is present",
        3: "a0 < 5",
        4: "not a0 < 5",
        5: "a1 = 1",
        6: "a0 != 5",
        7: "a0 is missing or a0 = 3",
        8: "not (a0 = 3 and a1 = 1)",
    }
    index = make(schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    rows = [
        {},
        {"a0": 3},
        {"a1": 1},
        {"a0": 3, "a1": 1},
        {"a0": None, "a1": 2},
        {"a0": 9, "a1": float("nan")},
    ]
    want = [[1, 7], [2, 3, 6, 7], [1, 5, 7], [2, 3, 5, 6, 7], [1, 7, 8], [2, 4, 6, 8]]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == want


def test_touching_bounds(make):
    schema = int_schema(1)
    index = make(schema)
    lows = [[0], [5], [5], [6], [4]]
    highs = [[5], [5], [9], [9], [6]]
    index.insert(rc.Subscriptions.from_arrays(schema, [1, 2, 3, 4, 5], lows, highs))
    rows = [{"a0": v} for v in (4, 5, 6)]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == [[1, 5], [1, 2, 3, 5], [3, 4, 5]]


def test_open_and_infinite_ends(make):
    schema = rc.Schema(rc.Float("x", -1.0, 1.0), rc.Timestamp("at"))
    inf = float("inf")
    ids = list(range(8))
    lows = [
        [None, None],
        [0.5, None],
        [-inf, None],
        [None, None],
        [-0.0, None],
        [inf, None],
        [-1e300, None],
        [5e-324, None],
    ]
    highs = [
        [0.5, None],
        [None, None],
        [inf, None],
        [None, None],
        [0.0, None],
        [inf, None],
        [1e300, None],
        [5e-324, None],
    ]
    index = make(schema)
    index.insert(rc.Subscriptions.from_arrays(schema, ids, np.array(lows, object), np.array(highs, object)))
    values = [
        0.5,
        np.nextafter(0.5, 1),
        0.0,
        -0.0,
        inf,
        -inf,
        None,
        float("nan"),
        1e300,
        5e-324,
        -5e-324,
        7.25,
    ]
    rows = [{"x": v} for v in values]
    want = [sorted(row) for row in match_values(schema, ids, lows, highs, rows)]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == want


def test_int64_extremes(make):
    schema = rc.Schema(rc.Int("a"), rc.Int("b", 0, 10))
    ids = list(range(6))
    lows = [[PRESENT, None], [LAST, None], [LAST - 1, None], [None, PRESENT], [PRESENT, LAST], [0, 0]]
    highs = [[PRESENT, None], [LAST, None], [LAST, None], [None, LAST], [LAST, LAST], [0, 0]]
    index = make(schema)
    index.insert(rc.Subscriptions.from_arrays(schema, ids, np.array(lows, object), np.array(highs, object)))
    rows = [{"a": a, "b": b} for a in (PRESENT, LAST, LAST - 1, 0) for b in (None, PRESENT, LAST, 0)]
    want = [sorted(row) for row in match_values(schema, ids, lows, highs, rows)]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == want


def test_duplicate_boxes_and_all_alike(make):
    schema = int_schema(2)
    n = N
    lows = np.full((2, n), 3)
    subs = rc.Subscriptions(schema, np.arange(n), lows, lows + 2)
    index = make(schema)
    index.insert(subs)
    m = index.match(rc.Events(schema, np.array([[4, 6], [5, 4]])))
    assert m.counts.tolist() == [n, 0]
    assert sorted(m.row(0).tolist()) == list(range(n))


@pytest.mark.parametrize("boxes", [1, 2])
def test_few_kinds_of_boxes(make, boxes):
    """Many subscriptions hold the same boxes; the first of each kind go, then most of the others."""
    schema = int_schema(3)
    rng = np.random.default_rng(12)
    lows = rng.integers(0, 9, (3, 6))
    picked = rng.integers(0, 6, N * boxes)
    owners = np.repeat(np.arange(N, dtype=np.int32), boxes)
    subs = rc.Subscriptions(schema, np.arange(N) * 3, lows[:, picked], lows[:, picked] + 4, owners)
    batch = rc.Events(schema, rng.integers(0, 14, (3, 30)))
    index = make(schema)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)
    for kept in (np.arange(N // 9, N), np.arange(N - 20, N)):
        index.delete(np.setdiff1d(subs.ids.values, subs.ids.values[kept]))
        assert rows_of(index.match(batch)) == expected(subs.select(kept), batch)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)


def test_one_giant_among_small(make):
    schema = int_schema(2)
    subs = random_subscriptions(schema, N, seed=6)
    subs.lows[:, 0], subs.highs[:, 0] = MISSING, LAST
    batch = random_events(schema, 30, seed=5)
    index = make(schema)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)


def test_boxes_of_one_subscription_are_reported_once(make):
    schema = int_schema(2)
    lows = np.array([[0, 2, 4, 0], [0, 0, 0, 0]])
    highs = np.array([[5, 6, 7, 9], [9, 9, 9, 9]])
    subs = rc.Subscriptions(schema, [10, 11], lows, highs, np.array([0, 0, 0, 1], np.int32))
    index = make(schema)
    index.insert(subs)
    assert rows_of(index.match(rc.Events(schema, np.array([[4, 1], [3, 3]])))) == [[10, 11], [10, 11]]


def test_string_ids(make):
    schema = int_schema(1)
    index = make(schema)
    index.insert(rc.Subscriptions.parse(schema, {"b": "a0 < 5", "a": "a0 > 2", "é": "a0 = 3"}))
    batch = rc.Events.from_rows(schema, [{"a0": 3}, {"a0": 9}])
    assert rows_of(index.match(batch)) == [["a", "b", "é"], ["a"]]
    assert index.delete(["a", "zz"]) == ["zz"]
    index.insert(rc.Subscriptions.parse(schema, {"c": "a0 = 9"}))
    m = index.match(batch)
    assert rows_of(m) == [["b", "é"], ["c"]]
    assert m.sort().to_arrow().column("subscription_id").to_pylist() == ["b", "é", "c"]
    with pytest.raises(rc.SubscriptionError, match="ids of this index are strings"):
        index.insert(rc.Subscriptions.parse(schema, {7: "a0 < 5"}))


def test_categories(make):
    schema = rc.Schema(rc.Category("symbol"), rc.Int("price", 0, 99))
    index = make(schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "symbol = 'IBM'", 2: "symbol != 'IBM'", 3: "price < 10"}))
    batch = rc.Events.from_rows(schema, [{"symbol": "IBM"}, {"symbol": "new"}, {"price": 5}])
    assert rows_of(index.match(batch)) == [[1], [2], [3]]
    # named only now, by a subscription that comes after the events were made
    index.insert(rc.Subscriptions.parse(schema, {4: "symbol = 'new'", 5: "symbol in ('IBM', 'HAL')"}))
    assert rows_of(index.match(batch)) == [[1, 5], [2, 4], [3]]
    other = rc.Schema(rc.Category("symbol", ["HAL", "new", "x"]), rc.Int("price", 0, 99))
    foreign = rc.Events.from_rows(other, [{"symbol": "IBM"}, {"symbol": "new"}, {"symbol": "HAL"}])
    assert rows_of(index.match(foreign)) == [[1, 5], [2, 4], [2, 5]]


def test_order_of_insertion_does_not_matter(make):
    schema = int_schema(2)
    subs = random_subscriptions(schema, N, seed=9)
    batch = random_events(schema, 25, seed=10)
    once, piecewise = make(schema), make(schema)
    once.insert(subs)
    order = np.random.default_rng(1).permutation(len(subs))
    for piece in np.array_split(order, 5):
        piecewise.insert(subs.select(piece))
    assert once.match(batch) == piecewise.match(batch)


def test_input_is_untouched(make):
    schema = int_schema(2)
    subs = random_subscriptions(schema, N, seed=11)
    batch = random_events(schema, 10, seed=12)
    before = subs.lows.copy(), subs.highs.copy(), subs.ids.values.copy(), batch.codes.copy()
    index = make(schema)
    index.insert(subs)
    index.match(batch)
    index.delete(subs.ids.values[:10])
    index.insert(subs.select(np.arange(20)))
    for was, now in zip(before, (subs.lows, subs.highs, subs.ids.values, batch.codes), strict=True):
        assert np.array_equal(was, now)


def test_threads_agree(make):
    schema = int_schema(2)
    index = make(schema)
    index.insert(random_subscriptions(schema, N, seed=13, boxes=2))
    batch = random_events(schema, 101 if JIT else 41, seed=14)
    one = index.match(batch)
    for threads in (2, 3, 8):
        assert index.match(batch, threads=threads) == one


def test_pickles(make):
    schema = int_schema(2)
    index = make(schema)
    subs = random_subscriptions(schema, N, seed=15)
    index.insert(subs)
    index.delete(subs.ids.values[:5])
    batch = random_events(schema, 20, seed=16)
    again = pickle.loads(pickle.dumps(index))
    assert again.match(rc.Events(again.schema, batch.codes)) == index.match(batch)
    again.insert(subs.select([0]).reconciled(again.schema))
    assert len(again) == len(index) + 1


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("textual", [True, False])
def test_saves_and_loads(make, tmp_path, mmap, textual):
    schema = int_schema(2)
    subs = random_subscriptions(schema, N, seed=17)
    if textual:
        subs = rc.Subscriptions(schema, [f"s{i}" for i in range(N)], subs.lows, subs.highs, subs.owners)
    index = make(schema)
    index.insert(subs)
    index.delete([subs.ids[0], subs.ids[7]])
    path = tmp_path / "index.rc"
    size = index.save(path)
    assert size == path.stat().st_size
    loaded = rc.load_index(path, mmap=mmap)
    batch = random_events(schema, 20, seed=18)
    assert loaded.name == index.name
    assert loaded.match(rc.Events(loaded.schema, batch.codes)) == index.match(batch)
    # a loaded index lives on, and the file does not change under it
    written = path.read_bytes()
    loaded.insert(subs.select([0, 7, 9]).reconciled(loaded.schema))
    assert loaded.delete([subs.ids[1]]) == []
    want = subs.select([i for i in range(len(subs)) if i != 1])
    assert rows_of(loaded.match(rc.Events(loaded.schema, batch.codes))) == expected(want, batch)
    assert path.read_bytes() == written


def test_a_file_of_another_layout_is_read_by_building_anew(make, tmp_path):
    schema = int_schema(2)
    index = make(schema)
    subs = random_subscriptions(schema, N, seed=31)
    index.insert(subs)
    assert index.delete([subs.ids[i] for i in range(0, N, 3)]) == []
    meta, arrays = index._dump()
    old = {name: array for name, array in arrays.items() if name.startswith("catalog.")}
    write_arrays(tmp_path / "old.index", {**meta, "layout": 1, "structure": {"of": "old"}}, old)
    loaded = rc.load_index(tmp_path / "old.index")
    batch = random_events(schema, 30, seed=32)
    assert loaded.match(batch) == index.match(batch)
    loaded.insert(subs.select([0, 1, 2]).reconciled(loaded.schema))
    assert len(loaded) == len(index) + 1


def test_texts_stay_with_their_ids(make, tmp_path):
    schema = int_schema(2)
    index = make(schema)
    written = {3 * i + 1: f"a0 between {i % 5} and {i % 5 + 2} and a1 < {i % 9}" for i in range(N)}
    index.insert(rc.Subscriptions.parse(schema, dict(reversed(written.items()))))
    bounds = rc.Subscriptions.from_arrays(schema, [4, 2], [[1, 1], [2, 2]], [[3, 3], [4, 4]])
    more = {7: "a0 = 1 or a1 = 2", -5: "not a0 is missing"}

    def change(some):
        some.insert(bounds.reconciled(some.schema))
        some.insert(rc.Subscriptions.parse(some.schema, more))
        some.delete([10, 13])

    def told(some):
        subs = some.subscriptions()
        return dict(zip(subs.ids.values.tolist(), subs.texts, strict=True))

    index.save(tmp_path / "first.index")
    loaded = rc.load_index(tmp_path / "first.index")
    assert told(index) == told(loaded) == told(pickle.loads(pickle.dumps(index))) == written
    want = {id: text for id, text in {**written, 4: None, 2: None, **more}.items() if id not in (10, 13)}
    for some in (index, loaded):
        change(some)
        assert told(some) == told(pickle.loads(pickle.dumps(some))) == want
        some.save(tmp_path / "second.index")
        assert told(rc.load_index(tmp_path / "second.index", mmap=False)) == want
        some.compact()
        assert told(some) == want


def test_empty_index_saves(make, tmp_path):
    schema = int_schema(2)
    index = make(schema)
    index.save(tmp_path / "i")
    loaded = rc.load_index(tmp_path / "i")
    assert len(loaded) == 0
    loaded.insert(random_subscriptions(loaded.schema, 5, seed=1))
    assert len(loaded) == 5


def test_stats(make):
    schema = int_schema(2)
    index = make(schema)
    index.insert(random_subscriptions(schema, N, seed=19))
    m = index.match(random_events(schema, 10, seed=20))
    stats = index.stats()
    assert (stats["subscriptions"], stats["boxes"]) == (N, N)
    assert stats["bytes"] >= N * 2 * 8
    assert stats["catalog_bytes"] == sum(stats["catalog"].values())
    assert (stats["last_matches"], stats["last_events"]) == (m.n_pairs, 10)


def test_explain(make):
    schema = int_schema(2)
    index = make(schema)
    subs = rc.Subscriptions.parse(schema, {1: "a0 between 2 and 5 and a1 > 3", 2: "a0 = 9 or a1 is missing"})
    index.insert(subs)
    told = index.explain(1, {"a0": 4, "a1": 3})
    assert not told.matches
    assert str(told).splitlines() == [
        "subscription 1 does not match",
        "  no   AND",
        "    yes  a0 between 2 and 5: 4",
        "    no   a1 > 3: 3",
    ]
    assert told.in_boxes().splitlines()[1:] == ["  yes  a0 between 2 and 5: 4", "  no   a1 >= 4: 3"]
    assert index.explain(2, {"a0": 4}).matches
    assert index.explain(subs.select([1]), {"a0": 9}).matches
    with pytest.raises(rc.SubscriptionError, match="no subscription has the id 77"):
        index.explain(77, {"a0": 1})


def test_matching_while_writing(make):
    """A match sees all of a write or nothing of it: the pair of ids is always replaced together."""
    schema = int_schema(1)
    index = make(schema)
    filler = random_subscriptions(schema, N, seed=21, span=4, bounded=1.0)
    index.insert(rc.Subscriptions(schema, filler.ids.values + 1000, filler.lows, filler.highs))
    both = {
        flip: rc.Subscriptions.parse(schema, {1: f"a0 = {50 + flip}", 2: f"a0 = {50 + flip}"})
        for flip in (0, 1)
    }
    index.insert(both[0])
    stop = threading.Event()
    failures = []

    def read():
        batch = rc.Events.from_rows(schema, [{"a0": 50}, {"a0": 51}])
        while not stop.is_set():
            rows = rows_of(index.match(batch))
            if sorted(rows, key=len) != [[], [1, 2]]:
                failures.append(rows)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(60 if JIT else 10):
        index.insert(both[step % 2])
    stop.set()
    reader.join()
    assert not failures


def check_some(index, batch, whole, limit):
    """Any so many of the matches, all of them where they are fewer; whether there are some; how many."""
    some = rows_of(index.match(batch, limit=limit))
    assert [len(row) for row in some] == [min(len(row), limit) for row in whole]
    assert all(len(set(row)) == len(row) for row in some)
    assert all(set(row) <= set(every) for row, every in zip(some, whole, strict=True))
    assert index.match_any(batch).tolist() == [len(row) > 0 for row in whole]
    assert index.count(batch).tolist() == [len(row) for row in whole]


@pytest.mark.parametrize("d", [1, 3])
def test_parts_of_an_answer(make, d):
    """Among overlapping boxes and after deletes too, with parts and a tail."""
    schema = int_schema(d)
    subs = random_subscriptions(schema, N, seed=d + 7, boxes=2)
    batch = random_events(schema, 12, seed=200 + d)
    index = make(schema)
    index.insert(subs.select(np.arange(N - 10)))
    index.insert(subs.select(np.arange(N - 10, N)))
    whole = expected(subs, batch)
    for limit in (1, 3, 1000):
        check_some(index, batch, whole, limit)
    gone = np.arange(0, N, 3)
    assert not index.delete([subs.ids[i] for i in gone])
    kept = subs.select(np.setdiff1d(np.arange(N), gone))
    check_some(index, batch, expected(kept, batch), 2)
    check_some(index, batch.select([]), [], 2)
    several = rc.Events.from_rows(schema, [{"a0": [3, 9]}, {"a0": 4}, {"a0": [-80, -90]}])
    check_some(index, several, rows_of(index.match(several)), 2)
    assert (
        index.match(batch, threads=2, limit=2).counts.tolist() == index.match(batch, limit=2).counts.tolist()
    )


@settings(max_examples=30 if JIT else 5)
@given(data=st.data())
def test_any_of_small_parts(make, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", data.draw(st.sampled_from([0, 2])))
        schema = int_schema(data.draw(st.integers(1, 3)))
        subs = data.draw(subscriptions(schema))
        batch = data.draw(events(schema))
        index = make(schema)
        index.insert(subs)
        gone = data.draw(st.lists(st.integers(0, 14), max_size=4, unique=True))
        index.delete(gone)
        kept = subs.select([i for i in range(len(subs)) if subs.ids[i] not in gone])
        check_some(index, batch, expected(kept, batch), data.draw(st.integers(1, 3)))


def test_the_highest_priorities(make, tmp_path, size):
    schema = int_schema(2)
    rng = np.random.default_rng(3)
    n = max(size(N), 30)
    subs = random_subscriptions(schema, n, seed=5, boxes=2)
    batch = random_events(schema, max(size(30), 10), seed=6)
    priorities = {subs.ids[i]: float(p) for i, p in enumerate(rng.integers(-9, 10, n))}
    index = make(schema)
    index.insert(subs, priorities=list(priorities.values()))
    # one that is replaced without a priority has 0, and one that comes later has its own
    index.insert(subs.select([4, 5]))
    index.insert(subs.select([6]), priorities=[99])
    priorities.update({subs.ids[4]: 0.0, subs.ids[5]: 0.0, subs.ids[6]: 99.0})
    index.delete([subs.ids[0]])
    whole = [[i for i in row if i != subs.ids[0]] for row in expected(subs, batch)]
    path = tmp_path / "index.rc"
    index.save(path)
    for own in (index, pickle.loads(pickle.dumps(index)), rc.load_index(path)):
        m = own.match(batch, limit=3)
        for e, row in enumerate(whole):
            best = sorted((priorities[i] for i in row), reverse=True)[:3]
            assert [priorities[i] for i in m.row(e).tolist()] == best
    index.compact()
    assert [[priorities[i] for i in index.match(batch, limit=1).row(e)] for e in range(len(whole))] == [
        sorted((priorities[i] for i in row), reverse=True)[:1] for row in whole
    ]
