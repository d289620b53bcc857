"""Spaces with an object key: what was entered and left, live and from the log."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="needs the extra serve")

import rangecast as rc
from oracle import match_boxes
from rangecast.broker.access import ConflictError
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.event_log import (
    EventRecord,
    PublishedBody,
    joined_strings,
    pack_record,
    read_record_head,
)
from rangecast.broker.objects import ObjectStates, changed_pairs, check_object_key
from rangecast.broker.server import serving
from rangecast.client import Client, ClientError
from rangecast.tracking.kernels import ENTERED, LEFT, STAYS

SCHEMA = rc.Schema(rc.Category("vehicle"), rc.Int("x"))
SUBS = rc.Subscriptions.parse(SCHEMA, {0: "x < 5", 1: "x between 3 and 8", 2: "vehicle = 'a' and x > 6"})

pytestmark = pytest.mark.once


@given(
    batches=st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 9)), min_size=1, max_size=5
        ),
        max_size=5,
    )
)
def test_changes_are_those_of_plain_loops(batches):
    states, index = ObjectStates("vehicle"), rc.open_index("scan", SCHEMA)
    index.insert(SUBS)
    last, sequence, records = {}, 1, []
    for batch in batches:
        rows = [{"vehicle": vehicle, "x": x} for vehicle, x in batch]
        events = rc.Events.from_rows(SCHEMA, rows)
        wanted, inside = [], [set(row) for row in match_boxes(SUBS, events)]
        for row, (vehicle, _) in enumerate(batch):
            before = last.get(vehicle, set()) if vehicle is not None else set()
            kinds = {(True, False): ENTERED, (False, True): LEFT, (True, True): STAYS}
            wanted += [(row, e, kinds[e in inside[row], e in before]) for e in sorted(inside[row] | before)]
            if vehicle is not None:
                last[vehicle] = inside[row]
        codes = events.encoded(SCHEMA).codes
        links = states.link(events, codes, sequence)
        states.keep()
        body = PublishedBody(joined_strings([b"{}"] * len(rows)))
        raw = b"".join(pack_record(sequence, 0, 1, 0, codes, body, links=links))
        record = EventRecord(read_record_head(raw), memoryview(raw)[64:])
        assert record.whole
        assert record.codes.tolist() == codes.tolist()
        records.append(record)
        for found in (links, record.links):
            changes = changed_pairs(index, events, found)
            assert list(zip(*(array.tolist() for array in changes), strict=True)) == wanted
        sequence += len(rows)
    again = ObjectStates("vehicle")
    again.load(records)
    for key, (number, codes) in states._states.items():
        assert again._states[key][0] == number
        assert np.array_equal(again._states[key][1], codes)
    assert len(again) == len(states)
    states.forget(sequence)
    assert len(states) == 0


def test_what_is_not_on_disk_is_no_state():
    states = ObjectStates("vehicle")
    events = rc.Events.from_rows(SCHEMA, [{"vehicle": "a", "x": 1}])
    states.link(events, events.codes, 1)
    states.drop()
    assert states.link(events, events.codes, 1).previous.tolist() == [0]
    with pytest.raises(rc.SchemaError, match=r"must be an int or a category of the schema, got 'y'"):
        check_object_key(SCHEMA, "y")


def moves(messages):
    return [(m.sequence, m.subscriptions, m.entered, m.left) for m in messages]


def started(folder, **options):
    broker = Broker(BrokerSettings(data=folder, port=0))
    broker.open()
    broker.ensure_space("main", rc.Schema(rc.Category("vehicle"), rc.Int("x")), **options)
    return serving(broker)


def test_live_as_from_the_log_and_after_a_start(tmp_path):
    wanted = [
        (1, ("low",), ("low",), ()),
        (2, ("low",), ("low",), ()),
        (3, ("low", "middle"), ("middle",), ()),
        (4, ("middle",), (), ("low",)),
        (5, (), (), ("low",)),
        (6, (), (), ("middle",)),
    ]
    with started(tmp_path, object_key="vehicle") as url, Client(url) as client:
        client.subscribe("alice", "low", "x < 5")
        client.subscribe("alice", "middle", "x between 3 and 8")
        live = client.stream("alice", start="now", notices=True)
        assert next(live).kind == "caught_up"
        client.publish([{"vehicle": "a", "x": 1}, {"vehicle": "b", "x": 2}, {"vehicle": "a", "x": 4}])
        client.publish({"vehicle": "a", "x": 7})
        with pytest.raises(ClientError, match="one value for each attribute"):
            client.publish({"vehicle": ["a", "b"], "x": 7})
        matches = (m for m in live if m.kind == "match")
        assert moves(itertools.islice(matches, 4)) == wanted[:4]
    with started(tmp_path, object_key="vehicle") as url, Client(url) as client:
        client.publish([{"vehicle": "b", "x": 9}, {"vehicle": "a", "x": 9}, {"vehicle": "a", "x": 9}])
        assert moves(itertools.islice(client.stream("alice", start="earliest"), 6)) == wanted
    with pytest.raises(ConflictError, match="has another object key: 'vehicle'"):
        started(tmp_path)


def test_expressions_that_came_between_two_states(tmp_path):
    with started(tmp_path, object_key="vehicle") as url, Client(url) as client:
        client.subscribe("alice", "bus", "vehicle starts with 'bus' and x > 1")
        live = client.stream("alice", start="now", notices=True)
        assert next(live).kind == "caught_up"
        client.publish({"vehicle": "bus 7", "x": 2})
        client.subscribe("alice", "twice", "2 * x + x * x > 7")  # the state before fulfils it
        client.publish([{"vehicle": "bus 7", "x": 3}, {"vehicle": "bus 7", "x": 1}])
        wanted = [(1, ("bus",), ("bus",), ()), (2, ("bus", "twice"), (), ()), (3, (), (), ("bus", "twice"))]
        matches = (m for m in live if m.kind == "match")
        assert moves(itertools.islice(matches, 3)) == wanted
        assert moves(itertools.islice(client.stream("alice", start="earliest"), 3)) == wanted
