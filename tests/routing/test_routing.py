"""Routing: whatever is covered or not, the same subscribers hear of the same events."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes
from rangecast.covering import searches
from rangecast.routing.router import Message, merge_messages
from strategies import events, int_schema, random_events, random_subscriptions, subscriptions

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "1"
MODES = [{"epsilon": None}, {"epsilon": 0.0}, {"epsilon": 0.3}, {"epsilon": 0.8}]
TAKING_BACK = [
    {"epsilon": 0.0, "withdraw": True},
    {"epsilon": 0.0, "together": 3, "withdraw": True},
    {"epsilon": 0.6, "together": 50, "withdraw": True},
]
"""Here a subscription may be sent, taken back and sent again: fewer entries, not always fewer messages."""


def rows_of(matches):
    return [matches.row(e).tolist() for e in range(len(matches))]


def expected(held, batch):
    """Per event, the sorted ids of all held subscriptions that match."""
    want = [[] for _ in range(len(batch))]
    for one in held.values():
        for row, found in zip(want, match_boxes(one, batch), strict=True):
            row += found
    return [sorted(row) for row in want]


@settings(max_examples=40 if JIT else 10)
@given(data=st.data())
def test_every_mode_delivers_the_same(data):
    """Random subscribe, unsubscribe and publish at random routers, against the definition of a match."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "TAIL_LIMIT", 2)
        schema = int_schema(data.draw(st.integers(1, 2)))
        n = data.draw(st.integers(1, 5))
        links = [(data.draw(st.integers(0, i - 1)), i) for i in range(1, n)]
        options = {"bits": 4, "index": "scan"}
        networks = [rc.Network(schema, links, **mode, **options) for mode in MODES + TAKING_BACK]
        held, homes, next_id = {}, {}, 0
        for _ in range(data.draw(st.integers(1, 8))):
            at = data.draw(st.integers(0, n - 1))
            act = data.draw(st.sampled_from(["subscribe", "subscribe", "unsubscribe", "publish"]))
            if act == "subscribe":
                subs = data.draw(subscriptions(schema, max_size=4, first_id=next_id))
                next_id += len(subs)
                for network in networks:
                    network.subscribe(at, subs)
                held.update({subs.ids[i]: subs.select([i]) for i in range(len(subs))})
                homes.update(dict.fromkeys(subs.ids.values.tolist(), at))
            elif act == "unsubscribe":
                ids = data.draw(st.lists(st.integers(0, max(0, next_id)), max_size=4, unique=True))
                mine = [i for i in ids if homes.get(i) == at]
                for network in networks:
                    unknown = network.unsubscribe(at, np.array(ids, np.int64))
                    assert sorted(unknown) == sorted(set(ids) - set(mine))
                for i in mine:
                    del held[i], homes[i]
            else:
                batch = data.draw(events(schema, max_size=4))
                for network in networks:
                    assert rows_of(network.publish(at, batch)) == expected(held, batch)
        batch = data.draw(events(schema, max_size=4))
        want = expected(held, batch)
        for at in range(n):
            for network in networks:
                assert rows_of(network.publish(at, batch)) == want
        sent = [network.stats()["subscription_messages"] for network in networks]
        assert max(sent[1 : len(MODES)]) <= sent[0]
        entries = [network.stats()["table_entries"] for network in networks]
        assert max(entries[1:]) <= entries[0]


@settings(max_examples=40 if JIT else 15)
@given(data=st.data())
def test_with_withdrawal_the_order_does_not_matter(data):
    """A neighbour holds what `reduce` leaves of all subscriptions, whatever came first and has gone since."""
    schema = int_schema(data.draw(st.integers(1, 2)))
    subs = data.draw(subscriptions(schema, max_size=8))
    order = data.draw(st.permutations(range(len(subs))))
    gone = data.draw(st.lists(st.sampled_from(order), max_size=3, unique=True)) if order else []
    network = rc.Network.line(schema, 3, index="scan", withdraw=True)
    for row in order:
        network.subscribe(0, subs.select([row]))
    for row in gone:
        network.unsubscribe(0, [subs.ids[row]])
    rest = subs.select(~np.isin(np.arange(len(subs)), gone))
    assert network.stats()["table_entries"] == 2 * len(rc.covering.reduce(rest).kept)


def test_a_later_larger_subscription_takes_back_what_it_covers():
    schema = int_schema(1)
    conditions = {1: "a0 = 7", 2: "a0 < 20", 3: "a0 < 50"}
    entries = {}
    for withdraw in (False, True):
        network = rc.Network.line(schema, 3, index="scan", withdraw=withdraw)
        for i, text in conditions.items():
            network.subscribe(0, rc.Subscriptions.parse(schema, {i: text}))
        entries[withdraw] = network.stats()["table_entries"]
    assert entries == {False: 6, True: 2}
    assert network.stats()["withdrawal_messages"] == 4
    network.unsubscribe(0, [3])
    assert network.stats()["table_entries"] == 2
    batch = rc.Events.from_rows(schema, [{"a0": 7}, {"a0": 30}])
    assert rows_of(network.publish(2, batch)) == [[1, 2], []]


def test_several_together_withhold_one():
    schema = int_schema(1)
    network = rc.Network.line(schema, 2, index="scan", together=10)
    for i, text in {1: "a0 between 0 and 5", 2: "a0 between 6 and 9", 3: "a0 between 0 and 9"}.items():
        network.subscribe(0, rc.Subscriptions.parse(schema, {i: text}))
    assert network.stats()["table_entries"] == 2
    assert network.stats()["withheld"] == 1
    network.unsubscribe(0, [2])
    assert network.stats()["table_entries"] == 2
    assert rows_of(network.publish(1, rc.Events.from_rows(schema, [{"a0": 8}, {"a0": 3}]))) == [[3], [1, 3]]


def test_messages_that_undo_each_other_are_not_sent():
    schema = int_schema(1)
    one, two = (rc.Subscriptions.parse(schema, {i: "a0 < 9"}) for i in (1, 2))
    merged = merge_messages(Message(one, np.array([2])), Message(two, np.array([1, 5])))
    assert (len(merged.add), merged.drop.tolist()) == (0, [5])


def test_no_event_goes_twice_over_a_link_or_where_nobody_is():
    schema = int_schema(2)
    network = rc.Network.random_tree(schema, 20, seed=3, index="scan")
    subs = random_subscriptions(schema, 60, seed=1)
    for i in range(0, 60, 6):
        network.subscribe(i % 20, subs.select(np.arange(i, i + 6)))
    batch = random_events(schema, 25, seed=2)
    matches = network.publish(4, batch)
    assert rows_of(matches) == [sorted(row) for row in match_boxes(subs, batch)]
    # a tree: an event crosses each of 19 links at most once
    assert network.stats()["event_messages"] <= 19 * len(batch)
    silent = rc.Network.line(schema, 10, index="scan")
    silent.publish(0, batch)
    assert silent.stats()["event_messages"] == 0


def nested(schema, n, seed=0):
    """Intervals around few centres, each within larger ones."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(100, 900, 8)[rng.integers(0, 8, n)]
    widths = (2 ** rng.uniform(0, 6.5, n)).astype(np.int64)
    lows = np.stack([centres - widths, centres - widths])
    highs = np.stack([centres + widths, centres + widths])
    return rc.Subscriptions(schema, np.arange(n), lows, highs)


@pytest.mark.parametrize("kind", ["line", "star", "random_tree"])
def test_tables_shrink_on_a_nested_workload(kind):
    schema = rc.Schema(rc.Int("a", 0, 1023), rc.Int("b", 0, 1023))
    n = 600 if JIT else 60
    subs = nested(schema, n)
    entries = {}
    for epsilon in (None, 0.0, 0.5):
        network = getattr(rc.Network, kind)(schema, 12, epsilon=epsilon, bits=6)
        for first in range(0, n, 20):
            network.subscribe(first // 20 % 12, subs.select(np.arange(first, first + 20)))
        entries[epsilon] = network.stats()["table_entries"]
    assert entries[None] == n * 11
    assert entries[0.0] * 4 < entries[None]
    assert entries[0.0] <= entries[0.5] <= entries[None]


def test_unsubscribing_forwards_what_was_covered():
    schema = int_schema(1)
    network = rc.Network.line(schema, 3, index="scan")
    conditions = {1: "a0 < 50", 2: "a0 < 20", 3: "a0 = 7", 4: "a0 = 30"}
    for i, text in conditions.items():
        network.subscribe(0, rc.Subscriptions.parse(schema, {i: text}))
    assert network.stats()["table_entries"] == 2
    network.unsubscribe(0, [1])
    # 2 takes 3 along; 4 is on its own
    assert network.stats()["table_entries"] == 4
    assert network.stats()["withdrawal_messages"] == 2
    assert network.unsubscribe(0, [1, 3, 77]) == [1, 77]
    batch = rc.Events.from_rows(schema, [{"a0": 7}, {"a0": 30}])
    assert rows_of(network.publish(2, batch)) == [[2], [4]]
    assert network.unsubscribe(1, 2) == [2]
    assert network.unsubscribe(0, 2) == []


def test_a_router_on_its_own():
    schema = int_schema(1)
    router = rc.Router(schema, ["north"], index="scan")
    sent = router.subscribe(rc.Subscriptions.parse(schema, {"a": "a0 < 9", "b": "a0 < 5"}))
    assert sent["north"].add.ids.take(np.arange(1)).tolist() == ["a"]
    assert router.stats()["withheld"] == 1
    from_north = rc.Subscriptions.parse(schema, {"n": "a0 > 3"})
    assert router.subscribe(from_north, "north") == {}
    # a neighbour that comes later hears of everything that it needs
    message = router.connect("south")
    assert sorted(message.add.ids.take(np.arange(2)).tolist()) == ["a", "n"]
    local, onward = router.publish(rc.Events.from_rows(schema, [{"a0": 4}, {"a0": 1}]))
    assert sorted(local.row(0).tolist()) == ["a", "b"]
    assert {to: rows.tolist() for to, rows in onward.items()} == {"north": [0]}
    assert router.neighbours == ("north", "south")
    assert repr(router) == "<Router: 2 neighbours, 3 subscriptions>"


def test_errors():
    schema = int_schema(1)
    one = rc.Subscriptions.parse(schema, {1: "a0 < 9"})
    network = rc.Network.line(schema, 2, index="scan")
    network.subscribe(0, one)
    assert repr(network) == "<Network: 2 routers, 1 subscriptions>"
    with pytest.raises(rc.SubscriptionError, match="new to a network, got 1 again"):
        network.subscribe(1, one)
    with pytest.raises(rc.OptionError, match="router must be within 0 and 1, got 2"):
        network.publish(2, rc.Events.from_rows(schema, [{}]))
    with pytest.raises(rc.OptionError, match="as a tree, got"):
        rc.Network(schema, [(0, 1), (1, 0)])
    with pytest.raises(rc.OptionError, match="at least one router"):
        rc.Network.star(schema, 0)
    router = rc.Router(schema, ["x"], index="scan")
    router.subscribe(one)
    with pytest.raises(rc.SubscriptionError, match="new to a router, got 1 again"):
        router.subscribe(one, "x")
    with pytest.raises(rc.SubscriptionError, match="no subscription of 'x' has the id 1"):
        router.unsubscribe([1], "x")
    with pytest.raises(rc.OptionError, match="source must be None or a neighbour, got 'y'"):
        router.subscribe(one, "y")
    with pytest.raises(rc.OptionError, match="a new name, got 'x'"):
        router.connect("x")
    with pytest.raises(rc.OptionError, match="epsilon must be None"):
        rc.Router(schema, epsilon=2)
    with pytest.raises(rc.OptionError, match="together must be a budget of pieces, 0 for none, got -1"):
        rc.Router(schema, together=-1)
    with pytest.raises(rc.OptionError, match="epsilon must not be None"):
        rc.Router(schema, epsilon=None, withdraw=True)
