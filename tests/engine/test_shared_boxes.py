"""Boxes that are alike, kept once: found exactly, expanded exactly, and a group outlives its members."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, match_held, rows_of
from rangecast.engine import kernels
from rangecast.engine.boxes import BoxEntries, Boxes
from rangecast.engine.layouts import shared
from rangecast.model.boxes import DenseBoxes, from_dense
from rangecast.types.attributes import LAST, MISSING
from strategies import events, history, int_schema, interval, random_events


@pytest.fixture(autouse=True)
def no_tail(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    monkeypatch.setattr("rangecast.engine.auto.TINY", 0)


def alike(schema, n, kinds, seed, boxes=1):
    """n subscriptions that hold `boxes` out of a few kinds of boxes."""
    rng = np.random.default_rng(seed)
    d = len(schema)
    lows = rng.integers(0, 40, (d, kinds))
    highs = lows + rng.integers(0, 25, (d, kinds))
    free = rng.random((d, kinds)) < 0.2
    lows[free], highs[free] = MISSING, LAST
    picked = rng.integers(0, kinds, n * boxes)
    owners = np.repeat(np.arange(n, dtype=np.int32), boxes)
    return rc.Subscriptions(schema, np.arange(n) * 2 + 7, lows[:, picked], highs[:, picked], owners)


def opened(subs):
    index = rc.open_index("auto", subs.schema)
    index.insert(subs)
    return index


def expected(subs, batch):
    return [sorted(row) for row in match_boxes(subs, batch)]


@pytest.mark.parametrize("boxes", [1, 3])
@pytest.mark.parametrize("kinds", [1, 7, 40])
@pytest.mark.parametrize("d", [2, 4])
def test_equals_oracle(d, kinds, boxes, tmp_path, leg):
    schema = int_schema(d)
    subs = alike(schema, 700, kinds, seed=d + kinds, boxes=boxes)
    batch = random_events(schema, 10 if leg == "nojit" else 30, seed=kinds)
    index = opened(subs)
    stats = index.stats()
    assert stats["grouped_boxes"] == 700 * boxes
    assert stats["groups"] <= kinds
    assert f"{700 * boxes:,} boxes are kept as {stats['groups']} that differ" in index.explain_plan()
    want = expected(subs, batch)
    assert rows_of(index.match(batch)) == want
    assert rows_of(index.match(batch, threads=2)) == want
    assert index.match(batch).n_pairs == sum(map(len, want))
    assert len(index.estimate(batch)) == len(batch)
    index.save(tmp_path / "i")
    for other in (rc.load_index(tmp_path / "i"), pickle.loads(pickle.dumps(index))):
        assert rows_of(other.match(batch)) == want
        assert other.stats()["groups"] == stats["groups"]


def test_a_group_outlives_the_box_that_stands_for_it():
    schema = int_schema(2)
    subs = alike(schema, 600, 5, seed=1)
    batch = random_events(schema, 30, seed=2)
    index = opened(subs)
    first = subs.ids.values
    # the first of each kind came first, so these are they
    for gone in (first[:20], first[20:23], first[23:120], first[120:590]):
        assert index.delete(gone) == []
        left = subs.select(np.flatnonzero(index.known(first)))
        assert rows_of(index.match(batch)) == expected(left, batch)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)


def test_sweeping_keeps_the_groups():
    schema = int_schema(2)
    subs = alike(schema, 600, 5, seed=3)
    batch = random_events(schema, 30, seed=4)
    index = opened(subs)
    index.delete(subs.ids.values[:10])
    assert index._state.dead is None
    assert index.stats()["grouped_boxes"] == 590
    assert rows_of(index.match(batch)) == expected(subs.select(np.arange(10, 600)), batch)


@given(data=st.data())
def test_history_equals_oracle(data):
    """Few kinds of odd boxes, in subscriptions of several boxes that come, change and go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
        patch.setattr("rangecast.engine.auto.TINY", 0)
        patch.setattr(shared, "FEWEST", 1)
        patch.setattr(shared, "FEWEST_ON_TWO", 1)
        patch.setattr(shared, "_REPEATS", -1.0)
        schema = int_schema(data.draw(st.integers(2, 3)))
        kinds = [[data.draw(interval()) for _ in schema.names] for _ in range(3)]
        index = rc.open_index("auto", schema)

        def alike(first):
            owned = data.draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=8))
            picked = np.array([kinds[k] for own in owned for k in own], np.int64).reshape(-1, len(schema), 2)
            owners = np.repeat(np.arange(len(owned), dtype=np.int32), [len(own) for own in owned])
            ids = np.arange(first, first + len(owned))
            return rc.Subscriptions(schema, ids, picked[:, :, 0].T, picked[:, :, 1].T, owners)

        *_, held = history(data, index, schema, 4, alike)
        batch = data.draw(events(schema))
        assert rows_of(index.match(batch)) == match_held(held, batch)


def test_hashes_that_meet_are_told_apart(monkeypatch):
    """Were all hashes the same, boxes would still be grouped by their bounds alone."""

    def constant(lows, highs, out):
        out[:] = 7

    monkeypatch.setattr(kernels, "hash_boxes", constant)
    schema = int_schema(3)
    subs = alike(schema, 500, 4, seed=5)
    subs = subs.select(np.lexsort((*subs.lows, *subs.highs)))
    batch = random_events(schema, 30, seed=6)
    index = opened(subs)
    assert index.stats()["groups"] >= 2
    assert rows_of(index.match(batch)) == expected(subs, batch)


def by_entry(lows, highs, slots=None):
    n = lows.shape[1]
    entries = BoxEntries(len(lows))
    entries.add(from_dense(DenseBoxes(lows, highs, np.arange(n, dtype=np.int32))))
    return Boxes(entries.arrays(np.empty(0, np.int32) if slots is None else slots))


@pytest.mark.parametrize("kinds", [1, 100, 900])
def test_groups_are_those_of_the_boxes(kinds):
    rng = np.random.default_rng(kinds)
    n = 9_000
    own = rng.integers(0, 50, (3, kinds))
    picked = rng.integers(0, kinds, n)
    lows = own[:, picked]
    boxes = by_entry(lows, lows + 3, np.arange(n, dtype=np.int32) + 5)
    groups = shared.find_groups(boxes, np.arange(n), [0, 1, 2])
    assert groups.boxes.n == len(np.unique(lows, axis=1).T)
    starts, members = groups.starts, groups.members
    assert sorted(members.tolist()) == list(range(5, n + 5))
    group_of = np.repeat(np.arange(groups.boxes.n), np.diff(starts))
    held, _ = groups.boxes.columns(range(3), np.arange(groups.boxes.n))
    assert (held[:, group_of] == lows[:, members - 5]).all()


def test_leaves_alone_what_differs(size):
    n = max(size(5_000), 500)
    rng = np.random.default_rng(1)
    lows = rng.integers(0, 10**9, (3, n))
    boxes = by_entry(lows, lows + 3)
    assert shared.find_groups(boxes, np.arange(n), [0, 1, 2]) is None
    # half are alike, but too few by group
    pairs = np.repeat(lows[:, : n // 2], 2, axis=1)
    boxes = by_entry(pairs, pairs + 3)
    assert shared.find_groups(boxes, np.arange(2 * (n // 2)), [0, 1, 2]) is None
    # one attribute is laid out in runs
    same = np.zeros((3, n), np.int64)
    boxes = by_entry(same, same + 3)
    assert shared.find_groups(boxes, np.arange(n), [1]) is None
