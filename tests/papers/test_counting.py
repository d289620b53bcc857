"""What is particular to counting: its interval trees, its counters, attributes that cost nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.papers.ubtree import kernels
from rangecast.types.attributes import LAST, MISSING
from strategies import int_schema, random_events, random_subscriptions


@pytest.fixture(autouse=True)
def parts_at_once(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=20))
def test_forks_are_the_highest_node_inside(pairs):
    lows = np.array([min(p) for p in pairs])
    highs = np.array([max(p) for p in pairs])
    out = np.empty(len(pairs), np.int64)
    kernels.forks(lows, highs, out)
    want = [max(range(a, b + 1), key=lambda r: r & -r) for a, b in zip(lows, highs, strict=True)]
    assert out.tolist() == want


@pytest.mark.parametrize("n_points", [1, 2, 3, 4, 7, 8, 9, 33])
def test_every_value_on_trees_of_every_shape(n_points):
    """All intervals among n points, asked for at each point and between: a tree cut off anywhere."""
    schema = rc.Schema(rc.Int("a"))
    pairs = [(2 * a, 2 * b) for a in range(n_points) for b in range(a, n_points)]
    subs = rc.Subscriptions(
        schema, np.arange(len(pairs)), np.array([[a for a, _ in pairs]]), np.array([[b for _, b in pairs]])
    )
    index = rc.open_index("counting", schema)
    index.insert(subs)
    batch = rc.Events(schema, np.array([[MISSING, *range(-1, 2 * n_points + 1), LAST]]))
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_unused_attributes_cost_nothing():
    schema = int_schema(6)
    subs = rc.Subscriptions.parse(schema, {1: "a0 = 1", 2: "a0 = 1 and a3 > 5", 3: "a0 is missing"})
    index = rc.open_index("counting", schema)
    index.insert(subs)
    assert index.stats()["predicates"] == 4
    index.match(rc.Events.from_rows(schema, [{"a0": 1, "a1": 9, "a3": 6}, {"a0": 1}]))
    assert index.stats()["satisfied_predicates"] == 5


def test_more_predicates_than_a_byte_counts(size):
    d = 300
    schema = int_schema(d)
    n = 20
    lows = np.zeros((d, n), np.int64)
    highs = np.full((d, n), 5)
    lows[280, :10] = 4
    subs = rc.Subscriptions(schema, np.arange(n), lows, highs)
    index = rc.open_index("counting", schema)
    index.insert(subs)
    codes = np.full((d, 2), 3)
    codes[280, 1] = 4
    assert index.match(rc.Events(schema, codes)).counts.tolist() == [10, 20]


def test_counters_start_afresh_for_each_event(size):
    """Events that touch many and few boxes in turn, so that both ways of clearing are taken."""
    schema = int_schema(2)
    subs = random_subscriptions(schema, size(2_000), seed=1, span=400)
    index = rc.open_index("counting", schema)
    index.insert(subs)
    codes = random_events(schema, 60, seed=2, span=400).codes
    codes[:, ::2] = 10_000
    batch = rc.Events(schema, codes)
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_room_for_matches_grows(size):
    schema = int_schema(1)
    n = size(10_000)
    index = rc.open_index("counting", schema)
    index.insert(rc.Subscriptions(schema, np.arange(n), np.full((1, n), MISSING), np.full((1, n), LAST)))
    index.insert(rc.Subscriptions(schema, n + np.arange(n), np.zeros((1, n), int), np.ones((1, n), int)))
    batch = rc.Events(schema, np.array([[0, 5, MISSING]]))
    assert index.match(batch).counts.tolist() == [2 * n, n, n]


def test_a_limit_of_memory_is_kept():
    schema = int_schema(2)
    index = rc.open_index("counting", schema, memory_limit=100)
    with pytest.raises(rc.CapacityError, match=r"'counting' of 50 boxes needs about .* 'scan' needs less"):
        index.insert(random_subscriptions(schema, 50, seed=1))
