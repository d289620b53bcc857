"""Events and matches: columns in, pairs out."""

from __future__ import annotations

import collections
import math
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

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


def test_matching_changes_no_event(monkeypatch):
    """Another match in the middle of a look-up sees every string; with one category it could not be wrong."""
    schema = rc.Schema(rc.Category("a"), rc.Category("b"))
    events = rc.Events.from_arrays(schema, {"a": ["x", "y"], "b": ["x", "y"]})
    before = events.codes
    rc.Subscriptions.parse(schema, {1: "a = 'x' and b = 'y'"})
    second = schema["b"].vocabulary
    plain, inner = second.encode, []

    def encode(column, grow):
        if not inner:
            inner.append(None)
            inner[0] = events.encoded(schema).codes.tolist()
        return plain(column, grow)

    monkeypatch.setattr(second, "encode", encode, raising=False)
    assert events.encoded(schema).codes.tolist() == [[1, 0], [0, 1]]
    assert inner == [[[1, 0], [0, 1]]]
    assert events.encoded(schema).codes.tolist() == [[1, 0], [0, 1]]
    assert events.codes is before
    assert before.tolist() == [[0, 0], [0, 0]]
    assert [events.value("a", e) for e in range(2)] == ["x", "y"]


def test_a_string_has_its_code_before_it_counts():
    """Who sees a longer dictionary finds every string of it; a look-up in between would be final."""
    vocabulary = rc.Category("c").vocabulary
    seen = []

    class Words(list):
        def append(self, word):
            seen.append(vocabulary.look_up(word))
            super().append(word)

    vocabulary._words = Words()
    assert vocabulary.add("x") == 1
    assert seen == [1]


def test_many_threads_match_one_batch():
    schema = rc.Schema(rc.Category("a"), rc.Category("b"))
    words = [f"w{i}" for i in range(40)]
    index = rc.open_index("scan", schema)
    for number, word in enumerate(words):
        events = rc.Events.from_arrays(schema, {"a": words, "b": words})
        index.insert(rc.Subscriptions.parse(schema, {number: f"a = '{word}' and b = '{word}'"}))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _, batch=events: index.match(batch).counts.tolist(), range(8)))
        assert found == [[1] * (number + 1) + [0] * (39 - number)] * 8


def test_strangers_are_looked_up_for_another_schema_with_the_same_dictionary(schema):
    events = rc.Events.from_arrays(schema, {"symbol": ["X", "Y"]})
    other = rc.Schema(rc.Int("price"), rc.Category("symbol", schema["symbol"].vocabulary))
    index = rc.open_index("scan", other)
    index.insert(rc.Subscriptions.parse(other, {1: "symbol = 'X'"}))
    assert index.match(events).counts.tolist() == [1, 0]


def test_callers_keep_their_arrays(schema):
    codes = np.zeros((2, 3), np.int64)
    events = rc.Events(schema, codes)
    ids, ends = np.arange(3), np.zeros((2, 3), np.int64)
    owners = np.arange(3, dtype=np.int32)
    subs = rc.Subscriptions(schema, ids, ends, ends, owners)
    frame = pd.Series([7, 8, 9])
    named = rc.Subscriptions.from_arrays(schema, frame, {"price": ends[0]}, {"price": ends[0]})
    offsets = np.array([0, 3])
    matches = rc.Matches.from_ids(offsets, ids)
    index = rc.open_index("scan", schema)
    index.insert(subs)
    for array in (codes, ids, ends, owners, offsets):
        array[:] = 5
    frame.iloc[:] = 5
    assert events.codes.tolist() == [[0] * 3] * 2
    assert [subs.ids[row] for row in range(3)] == [0, 1, 2]
    assert (subs.lows == 0).all()
    assert (subs.highs == 0).all()
    assert subs.owners.tolist() == [0, 1, 2]
    assert [named.ids[row] for row in range(3)] == [7, 8, 9]
    assert index.match(events).sort().row(0).tolist() == [0, 1, 2]
    assert matches.ids.tolist() == [0, 1, 2]


def test_one_long_id_does_not_cost_the_others_its_room():
    """Numpy would give each of 5,001 ids the room of the longest: 18.6 GiB."""
    ids = ["x" * 1_000_000, *(f"b{i:04}" for i in reversed(range(5_000)))]
    tracemalloc.start()
    try:
        found = rc.Matches.from_ids([0, len(ids)], ids).sort().ids
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tolist() == sorted(ids)
    assert peak < 100_000_000


def test_matches_face():
    m = rc.Matches.from_ids([0, 2, 2, 3], [8, 7, 9])
    events, ids = m.pairs()
    assert (events.tolist(), ids.tolist()) == ([0, 0, 2], [8, 7, 9])
    assert repr(m) == "Matches(3 events, 3 pairs)"
    assert m.row(-1).tolist() == [9]
    with pytest.raises(IndexError, match="within the batch of 3, got 3"):
        m.row(3)
    table = m.to_arrow(event_ids=["a", "b", "c"])
    assert table.to_pydict() == {"event_id": ["a", "a", "c"], "subscription_id": [8, 7, 9]}
    assert m == rc.Matches.from_ids([0, 2, 2, 3], [7, 8, 9])
    assert m != rc.Matches.from_ids([0, 1, 2, 3], [7, 8, 9])
    assert m != rc.Matches.from_ids([0, 2, 2, 3], [7, 8, 6])
    assert m.sort().ids.tolist() == [7, 8, 9]


def test_string_matches_are_a_dictionary():
    m = rc.Matches.from_ids([0, 3], ["b", "a", "b"])
    assert m.sort().ids.tolist() == ["a", "b", "b"]
    assert pa.types.is_dictionary(m.to_arrow().column("subscription_id").type)
    assert len(rc.Matches.from_ids([0], [])) == 0


def _collected(schema, rows):
    events = rc.Events.from_rows(schema, rows, on_error="collect")
    return events.codes.tolist(), [tuple(one) for one in events.rejected]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2**63 - 1, -(2**63) + 1],
        [1, -(2**63)],
        [1, 2**63],
        [1, True],
        [0.0, -0.0, math.nan, math.inf, -5e-324],
        [1.0, 2],
        [1.5, None],
        ["a", "strange", ""],
        ["a", "\ud800"],
        [True, False],
        [None, None],
        [[1, 2], [3]],
    ],
)
def test_rows_with_the_same_keys_mean_what_other_rows_mean(values):
    """Plain dicts that all have attributes alone are read by a way of their own."""

    def make():
        return rc.Schema(
            rc.Int("i"), rc.Float("f"), rc.Category("c", ["a"]), rc.Timestamp("at"), rc.Bool("b")
        )

    for name in ("i", "f", "c", "at", "b"):
        rows = [{name: value} for value in values]
        # neither plain dicts, nor all of one key
        others = [collections.OrderedDict(row) for row in rows]
        more = [*rows[:-1], rows[-1] | {"nobody": 1}]
        wanted = _collected(make(), others)
        assert _collected(make(), rows) == wanted
        assert _collected(make(), more) == wanted


def test_rows_with_the_same_keys_warn_as_others_do():
    schema = rc.Schema(rc.Int("price"), rc.Int("size"))
    with pytest.raises(rc.EventError, match="no event has a value for 'size'"):
        rc.Events.from_rows(schema, [{"price": 1}, {"price": 2}], strict=True)
    with pytest.warns(rc.RangecastWarning, match="did you mean its column 'sice'"):
        rc.Events.from_rows(schema, [{"price": 1, "sice": 2}] * 2)
    folded = rc.Events.from_rows(schema, [{"Price": 1, "size": 2}] * 2)
    assert folded.codes.tolist() == [[1, 1], [2, 2]]
    some = rc.Events.from_rows(schema, [{"price": 1, "size": 2}, {"price": 1, "other": 2}])
    assert some.value("size", 1) is None


@pytest.mark.parametrize("kind", ["auto", "cells", "bitmap", "scan", "counting"])
def test_one_event_at_a_time_matches_as_in_a_batch(kind):
    """With words that come later, several boxes per subscription, deletes, expressions and lists."""
    rng = np.random.default_rng(5)
    schema = rc.Schema(rc.Int("a"), rc.Int("b"), rc.Category("c"))
    index = rc.open_index(kind, schema)
    starts = rng.integers(0, 60, (400, 2)).tolist()
    rows = [{"a": int(a), "b": int(b), "c": f"w{a % 9}"} for a, b in rng.integers(0, 70, (40, 2))]
    rows += [{}, {"c": "later"}, {"a": [3, 50], "c": "w1"}]
    batch = rc.Events.from_rows(schema, rows)
    single = [batch.select([row]) for row in range(len(rows))]

    def check():
        found = index.match(batch).sort()
        for row, one in enumerate(single):
            alone = index.match(one).sort()
            assert alone.ids.tolist() == found.row(row).tolist()
            assert alone.offsets.tolist() == [0, len(alone.ids)]
            assert index.stats()["last_matches"] == len(alone.ids)

    check()
    texts = {
        k: f"a between {a} and {a + 9} and b < {b} or c = 'w{k % 12}'" for k, (a, b) in enumerate(starts)
    }
    index.insert(rc.Subscriptions.parse(schema, texts))
    check()
    index.delete(list(range(0, 400, 3)))
    check()
    index.insert(rc.Subscriptions.parse(schema, {900: "c = 'later'", 901: "c != 'later'"}))
    check()
    index.insert(rc.Subscriptions.parse(schema, {902: "a + b > 40"}))
    check()
