"""Merging: mergers match what their members match, and with no waste nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes
from rangecast.covering import merge
from strategies import int_schema, subscriptions


def every_event(schema):
    """All events of a small domain, missing values among them."""
    values = [None, *range(-1, 13)]
    rows = [
        dict(zip(schema.names, row, strict=True)) for row in itertools.product(values, repeat=len(schema))
    ]
    return rc.Events.from_rows(schema, rows)


@given(data=st.data(), waste=st.sampled_from([0.0, 0.0, 0.2, 0.6]))
def test_mergers_match_what_their_members_match(data, waste):
    schema = int_schema(data.draw(st.integers(1, 2)))
    subs = data.draw(subscriptions(schema, max_size=8))
    merging = merge(subs, waste)
    events = every_event(schema)
    of_merger = {}
    for row, merger in zip(merging.members.tolist(), merging.into.tolist(), strict=True):
        of_merger.setdefault(merger, set()).add(subs.ids[row])
    for wanted, found in zip(match_boxes(subs, events), match_boxes(merging.mergers, events), strict=True):
        # whoever wants an event is a member of a merger that matches it
        assert all(any(i in of_merger[m] for m in found) for i in wanted)
        if waste == 0:
            # and a merger that matches has a member that does
            assert all(of_merger[m] & set(wanted) for m in found)
    assert len(merging.mergers) <= subs.expanded().n_boxes
    assert set(of_merger) == set(range(len(merging.mergers)))
    assert merge(merging.mergers, waste).mergers.n_boxes <= len(merging.mergers)


@given(data=st.data(), waste=st.sampled_from([0.1, 0.3, 0.7]))
def test_no_more_than_the_waste_is_wanted_by_nobody(data, waste):
    schema = rc.Schema(rc.Int("x", 0, 9), rc.Int("y", 0, 9))
    ends = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)
    boxes = np.array(data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=8)))
    subs = rc.Subscriptions(schema, np.arange(len(boxes)), boxes[:, :, 0].T.copy(), boxes[:, :, 1].T.copy())
    merging = merge(subs, waste)
    cells = rc.Events(schema, np.stack([grid.ravel() for grid in np.mgrid[0:10, 0:10]]))
    wanted = np.array([len(row) > 0 for row in match_boxes(subs, cells)])
    found = match_boxes(merging.mergers, cells)
    for merger in range(len(merging.mergers)):
        inside = np.array([merger in row for row in found])
        assert (inside & ~wanted).sum() <= waste * inside.sum() + 1e-9


def test_a_square_of_tiles_becomes_one():
    schema = rc.Schema(rc.Int("x", 0, 99), rc.Int("y", 0, 99))
    x, y = (grid.ravel() * 10 for grid in np.mgrid[0:10, 0:10])
    order = np.random.default_rng(3).permutation(100)
    lows = np.stack([x, y])[:, order]
    tiles = rc.Subscriptions(schema, np.arange(100), lows, lows + 9)
    merging = merge(tiles)
    assert len(merging.mergers) == 1
    assert repr(merging) == "Merging(100 subscriptions, 1 mergers)"
    assert merging.to_arrow().to_pylist()[7] == {"subscription": 7, "merger": 0}
    without = tiles.select(np.arange(1, 100))
    assert len(merge(without).mergers) > 1
    assert len(merge(without, waste=0.1).mergers) == 1


def test_boxes_that_differ_in_two_attributes_stay():
    schema = rc.Schema(rc.Int("x", 0, 9), rc.Int("y", 0, 9))
    texts = {1: "x < 2 and y < 3", 2: "x < 3 and y = 3", 3: "x >= 2 and y < 3"}
    merging = merge(rc.Subscriptions.parse(schema, texts))
    assert merging.into.tolist() == [0, 1, 0]


def test_a_small_gap_between_sides_without_ends_is_seen():
    """Floats of 64 bits do not tell codes apart that lie far out."""
    schema = rc.Schema(rc.Int("x"), rc.Int("y"))
    texts = {1: "x < 0", 2: "x > 5", 3: "x = 2"}
    assert len(merge(rc.Subscriptions.parse(schema, texts)).mergers) == 3
    assert len(merge(rc.Subscriptions.parse(schema, texts), waste=0.2).mergers) == 3
    assert len(merge(rc.Subscriptions.parse(schema, texts | {4: "x = 4"}), waste=0.4).mergers) == 1


def test_nothing_and_errors():
    schema = int_schema(1)
    assert len(merge(rc.Subscriptions.empty(schema)).mergers) == 0
    never = rc.Subscriptions.parse(schema, {1: "a0 < 3 and a0 > 5", 2: "a0 = 1"})
    assert merge(never).members.tolist() == [1]
    with pytest.raises(rc.SubscriptionError, match="merge takes Subscriptions, got list"):
        merge([])
    with pytest.raises(rc.OptionError, match="waste must be at least 0 and below 1, got 1"):
        merge(never, waste=1)
