"""Random conditions of the whole language beside their meanings in plain Python, at every door."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from meanings import EVENTS, HAVING, TEXTS, conditions, matches
from oracle import match_boxes, rows_of
from rangecast.engine import REGISTRY

pytestmark = [pytest.mark.without_kernels, pytest.mark.filterwarnings("ignore::rangecast.RangecastWarning")]


def schema_of():
    return rc.Schema(
        rc.Int("a"), rc.Int("b"), rc.Float("x"), rc.Timestamp("at"), rc.Text("name"), rc.Category("title"),
        rc.Tags("tags"), rc.Category("ip"), rc.Bool("ok"), rc.Point("spot"),
    )  # fmt: skip


def texts_of(some):
    return {k: text for k, (text, _) in enumerate(some)}


rows_of_events = st.lists(EVENTS, min_size=1, max_size=6)


@given(st.lists(conditions(), min_size=1, max_size=5), rows_of_events)
def test_every_condition_means_what_python_says(some, rows):
    schema = schema_of()
    wanted = matches(some, rows)
    subs = rc.Subscriptions.parse(schema, texts_of(some))
    events = rc.Events.from_rows(schema, rows)
    assert [sorted(row) for row in match_boxes(subs, events)] == wanted
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert rows_of(index.match(events)) == wanted
    assert index.count(events).tolist() == list(map(len, wanted))
    assert index.match_any(events).tolist() == [bool(row) for row in wanted]
    assert [sorted(index.match_one(row).tolist()) for row in rows] == wanted


@given(st.lists(conditions(TEXTS, HAVING), min_size=2, max_size=6), rows_of_events, st.data())
def test_patterns_that_come_and_go_between_matches(some, rows, data):
    schema = schema_of()
    index = rc.open_index("auto", schema)
    events = rc.Events.from_rows(schema, rows)
    wanted, held = matches(some, rows), set()
    for k, (text, _) in enumerate(some):
        index.insert(rc.Subscriptions.parse(schema, {k: text}))
        held.add(k)
        if data.draw(st.booleans()):
            assert rows_of(index.match(events)) == [[i for i in row if i in held] for row in wanted]
        if data.draw(st.integers(0, 3)) == 0:
            index.delete([k])
            held.discard(k)
    assert rows_of(index.match(events)) == [[i for i in row if i in held] for row in wanted]


@pytest.mark.parametrize("kind", sorted(REGISTRY))
@settings(max_examples=3)
@given(some=st.lists(conditions(), min_size=4, max_size=8), rows=st.lists(EVENTS, min_size=3, max_size=5))
def test_every_index(kind, some, rows):
    schema = schema_of()
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, texts_of(some)))
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == matches(some, rows)


@settings(max_examples=5)
@given(some=st.lists(conditions(), min_size=2, max_size=5), rows=rows_of_events)
def test_stores_files_arrow_and_json(tmp_path_factory, some, rows):
    folder = tmp_path_factory.mktemp("doors")
    wanted = matches(some, rows)
    store = rc.Store.open(folder / "store", schema_of())
    for k, (text, _) in enumerate(some):  # one change each, so that words and sets come one by one
        store.insert(rc.Subscriptions.parse(store.schema, {k: text}))
    again = rc.Store.open(folder / "store")
    index = again.index()
    full = [{name: row.get(name) for name in again.schema.names} for row in rows]
    kinds = pa.schema(
        {
            "a": pa.int64(), "b": pa.int64(), "x": pa.float64(), "at": pa.timestamp("us"),
            "name": pa.string(), "title": pa.large_string(), "tags": pa.list_(pa.string()),
            "ip": pa.string(), "ok": pa.bool_(), "spot": pa.list_(pa.float64()),
        }
    )  # fmt: skip
    table = pa.Table.from_pylist(full, kinds)
    assert rows_of(index.match(table)) == wanted
    index.save(folder / "index")
    assert rows_of(rc.load_index(folder / "index").match(table)) == wanted
    lines = folder / "events.jsonl"
    with lines.open("w") as file:
        for k, row in enumerate(rows):
            known = {n: v.isoformat() if isinstance(v, dt.datetime) else v for n, v in row.items()}
            file.write(json.dumps({"id": k, **known}) + "\n")
    out = folder / "pairs.csv"
    rc.match_file(again.index(), lines, out, event_id="id")
    pairs = sorted(tuple(map(int, line.split(","))) for line in out.read_text().split()[1:])
    assert pairs == [(e, k) for e, row in enumerate(wanted) for k in row]


@given(conditions(), EVENTS)
def test_an_explanation_says_the_same(one, row):
    schema = schema_of()
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: one[0]}))
    told = index.explain(1, row)
    assert told.matches is (one[1](row) is True)
