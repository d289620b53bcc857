"""`CoverIndex` asked for covers by several, and the other way round, against the definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import covers_of, match_boxes
from strategies import int_schema, subscriptions


def every_event(schema):
    """All events of a small domain, missing values among them."""
    values = [None, *range(-1, 13)]
    return rc.Events.from_rows(
        schema,
        [dict(zip(schema.names, row, strict=True)) for row in itertools.product(values, repeat=len(schema))],
    )


def filled(schema, subs, gone):
    index = rc.CoverIndex(schema)
    index.insert(subs)
    index.delete([subs.ids[row] for row in gone])
    return index, subs.select(~np.isin(np.arange(len(subs)), gone))


@given(data=st.data(), budget=st.sampled_from([2, 10_000]))
def test_together_they_match_whatever_it_matches(data, budget):
    schema = int_schema(data.draw(st.integers(1, 2)))
    subs = data.draw(subscriptions(schema, max_size=6))
    gone = data.draw(st.lists(st.integers(0, max(0, len(subs) - 1)), max_size=2)) if len(subs) else []
    index, living = filled(schema, subs, gone)
    # some with ids of the index: nobody covers himself
    asked = data.draw(subscriptions(schema, max_size=4, first_id=3))
    found = [ids.tolist() for ids in index.covers_together(asked, budget)]
    alone = index.covered(asked).tolist()
    events = every_event(schema)
    wanted, held = match_boxes(asked, events), match_boxes(living, events)
    for row, ids in enumerate(found):
        own = asked.ids[row]
        assert own not in ids
        assert set(ids) <= set(living.ids.values.tolist())
        mine = [e for e, matched in enumerate(wanted) if own in matched]
        if ids:
            assert all(set(held[e]) & set(ids) for e in mine)
            assert len(ids) == 1 or not alone[row]
        else:
            assert not alone[row]
            if budget > 2 and mine:
                # the events are all that there are, within the domain
                assert not all(set(held[e]) - {own} for e in mine) or beyond(asked, row)


def beyond(subs, row):
    """Whether a subscription holds values that no event of the test has."""
    subs = subs.expanded()
    mine = subs.owners == row
    return bool((subs.lows[:, mine] < -(2**40)).any() or (subs.highs[:, mine] > 12).any() or not mine.any())


@given(data=st.data())
def test_the_other_way_round(data):
    schema = int_schema(data.draw(st.integers(1, 2)))
    subs = data.draw(subscriptions(schema, max_size=8))
    gone = data.draw(st.lists(st.integers(0, max(0, len(subs) - 1)), max_size=2)) if len(subs) else []
    index, living = filled(schema, subs, gone)
    larger = data.draw(subscriptions(schema, max_size=3, first_id=6))
    want = {
        own: ids
        for own, ids in zip(living.ids.values.tolist(), covers_of(larger, living), strict=True)
        if ids
    }
    covered, covers = (ids.tolist() for ids in index.covered_by(larger))
    assert sorted(covered) == sorted(want)
    assert all(cover in want[own] for own, cover in zip(covered, covers, strict=True))


def test_three_together_in_a_plane():
    schema = rc.Schema(rc.Int("x", 0, 99), rc.Int("y", 0, 99))
    index = rc.CoverIndex(schema)
    texts = {
        "left": "x between 0 and 50",
        "low": "x >= 0 and y between 0 and 59",
        "rest": "x > 40 and y between 60 and 80",
    }
    index.insert(rc.Subscriptions.parse(schema, texts))
    asked = rc.Subscriptions.parse(
        schema, {"in": "x >= 0 and y between 0 and 80", "out": "x >= 0 and y between 0 and 81"}
    )
    assert [sorted(ids.tolist()) for ids in index.covers_together(asked)] == [["left", "low", "rest"], []]
    assert index.stats()["last_together"] == 1
    assert [ids.tolist() for ids in index.covers_together(asked, budget=1)] == [[], []]
    assert index.covers_together(rc.Subscriptions.empty(schema)) == []
    with pytest.raises(rc.OptionError, match="budget must be at least 1, got 0"):
        index.covers_together(asked, budget=0)
