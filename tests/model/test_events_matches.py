"""Events and matches: columns in, pairs out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rangecast as rc
from rangecast.types.attributes import MISSING


@pytest.fixture
def schema():
    return rc.Schema(rc.Int("price"), rc.Category("symbol"))


def test_event_forms_agree(schema):
    rc.Subscriptions.parse(schema, {1: "symbol = 'A'"})
    rows = [{"price": 1, "symbol": "A"}, {"symbol": "B"}, {"price": 3, "other": 9}]
    columns = {"price": [1, None, 3], "symbol": ["A", "B", None]}
    want = rc.Events.from_rows(schema, rows).codes
    assert want[0].tolist() == [1, MISSING, 3]
    for events in (
        rc.Events.from_arrays(schema, columns),
        rc.Events.from_arrow(schema, pa.table({**columns, "other": [1, 2, 3]})),
        rc.Events.from_arrow(schema, pa.RecordBatch.from_pydict(columns)),
        rc.Events.from_pandas(schema, pd.DataFrame(columns)),
    ):
        assert np.array_equal(events.codes, want)
    assert events.value("symbol", 1) == "B"
    assert events.value("symbol", 0) == "A"
    assert events.value("price", 1) is None


def test_bad_events(schema):
    columns = {"price": ["1", "x", "3"], "symbol": ["A", "B", "C"]}
    with pytest.raises(
        rc.EventError, match=r"event 1: 'price' is an int, got the string 'x' \(1 of 3 events\)"
    ):
        rc.Events.from_arrays(schema, columns)
    events = rc.Events.from_arrays(schema, columns, on_error="collect")
    assert events.codes[0].tolist() == [1, 3]
    assert [(r.row, r.reason) for r in events.rejected] == [(1, "'price' is an int, got the string 'x'")]
    assert [events.value("symbol", e) for e in range(2)] == ["A", "C"]
    with pytest.raises(rc.EventError, match="equally long, got price 1, symbol 2"):
        rc.Events.from_arrays(schema, {"price": [1], "symbol": ["A", "B"]})
    with pytest.raises(rc.EventError, match="must have a column of the schema"):
        rc.Events.from_arrow(schema, pa.table({"x": [1]}))
    with pytest.raises(rc.EventError, match="must have a column of the schema"):
        rc.Events.from_pandas(schema, pd.DataFrame({"x": [1]}))
    with pytest.raises(rc.SchemaError, match="unknown attribute 'cost'"):
        rc.Events.from_arrays(schema, {"cost": [1]})
    with pytest.raises(rc.EventError, match="on_error must be"):
        rc.Events.from_arrays(schema, {}, on_error="x")
    with pytest.raises(rc.EventError, match=r"codes must be \(2, n_events\), got \(1, 3\)"):
        rc.Events(schema, np.zeros((1, 3)))


def test_select_keeps_strangers(schema):
    events = rc.Events.from_arrays(schema, {"symbol": ["X", None, "Y", "Z"]}).select([3, 0])
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "symbol = 'X'", 2: "symbol = 'Z'"}))
    assert [index.match(events).row(e).tolist() for e in range(2)] == [[2], [1]]


def test_matches_face():
    m = rc.Matches.from_ids([0, 2, 2, 3], [8, 7, 9])
    events, ids = m.pairs()
    assert (events.tolist(), ids.tolist()) == ([0, 0, 2], [8, 7, 9])
    assert repr(m) == "Matches(3 events, 3 pairs)"
    assert m.row(-1).tolist() == [9]
    with pytest.raises(IndexError, match="within the batch of 3, got 3"):
        m.row(3)
    table = m.to_arrow(event_ids=["a", "b", "c"])
    assert table.to_pydict() == {"event": ["a", "a", "c"], "subscription": [8, 7, 9]}
    assert m == rc.Matches.from_ids([0, 2, 2, 3], [7, 8, 9])
    assert m != rc.Matches.from_ids([0, 1, 2, 3], [7, 8, 9])
    assert m != rc.Matches.from_ids([0, 2, 2, 3], [7, 8, 6])
    assert m.sort().ids.tolist() == [7, 8, 9]


def test_string_matches_are_a_dictionary():
    m = rc.Matches.from_ids([0, 3], ["b", "a", "b"])
    assert m.sort().ids.tolist() == ["a", "b", "b"]
    assert pa.types.is_dictionary(m.to_arrow().column("subscription").type)
    assert len(rc.Matches.from_ids([0], [])) == 0
