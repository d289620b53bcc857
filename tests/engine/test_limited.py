"""A part of the answer: what is refused, and what is left when much is dead."""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from strategies import int_schema, random_events, random_subscriptions


def test_limits_and_priorities_are_checked():
    schema = int_schema(1)
    index = rc.open_index("scan", schema)
    subs = random_subscriptions(schema, 2, seed=1)
    with pytest.raises(rc.OptionError, match="limit must be a whole number of at least 1, got 0"):
        index.match(random_events(schema, 1, seed=1), limit=0)
    with pytest.raises(
        rc.SubscriptionError, match=r"one number per subscription, 2 of them, got the shape \(1,\)"
    ):
        index.insert(subs, priorities=[1])
    with pytest.raises(rc.SubscriptionError, match="subscription 1: a priority must be finite, got nan"):
        index.insert(subs, priorities=[1, np.nan])
    with pytest.raises(rc.SubscriptionError, match="priorities must be numbers"):
        index.insert(subs, priorities=["low", "high"])


def test_what_is_left_when_most_is_dead():
    """All that is found at first may be dead; the others must be found all the same."""
    schema = int_schema(1)
    index = rc.open_index("auto", schema)
    n = 600
    index.sweep_share = 1
    index.insert(rc.Subscriptions(schema, np.arange(n), np.zeros((1, n), np.int64), np.full((1, n), 9)))
    index.delete(list(range(120)))
    batch = rc.Events.from_rows(schema, [{"a0": 5}, {"a0": 10}, {"a0": 9}])
    for limit in (1, 7, 480, 1000):
        m = index.match(batch, limit=limit)
        assert m.counts.tolist() == [min(limit, 480), 0, min(limit, 480)]
        assert (m.ids >= 120).all()
    assert index.match_any(batch).tolist() == [True, False, True]
