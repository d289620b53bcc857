"""Events by what they say: the same events, the same matches, and no columns in between."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.errors import EventError
from rangecast.model import events, wide_events
from rangecast.model.wide_events import EventEntries
from rangecast.types.attributes import MISSING

D = 5
SCHEMA = rc.Schema(rc.Int("a"), rc.Float("b"), rc.Category("c"), rc.Int("d"), rc.Category("e"))
VALUES = {
    "a": st.one_of(st.none(), st.integers(0, 5), st.sampled_from([-(2**62), 2**62])),
    "b": st.one_of(st.none(), st.sampled_from([0.0, -1.5, float("nan"), float("inf"), 2.0])),
    "c": st.one_of(st.none(), st.sampled_from(["x", "y", "never named"])),
    "d": st.one_of(st.none(), st.integers(-2, 2)),
    "e": st.one_of(st.none(), st.sampled_from(["x", "z"])),
}
ROWS = st.lists(st.fixed_dictionaries({}, optional=VALUES), max_size=12)
TEXTS = st.lists(
    st.sampled_from(
        [
            "a = 3", "a between 1 and 4 and b > 0", "c = 'x' and d >= 0", "e in ('x', 'z') and a != 2",
            "b is missing and a is present", "d is missing or c = 'y'", f"a >= {2**61}", "not (c = 'x')",
            "a <= 3 and b <= 0 and c != 'y' and d between -1 and 1",
        ]
    ),
    min_size=1,
    max_size=9,
)  # fmt: skip


def keep_said(patch, wide=1, sparse=0):
    """Events of any schema are kept by what they say."""
    for module in (wide_events, events):
        patch.setattr(module, "WIDE", wide)
    patch.setattr(wide_events, "SPARSE", sparse)


@pytest.mark.usefixtures("used_machine")
@given(rows=ROWS, texts=TEXTS, leads=st.booleans(), tail=st.sampled_from([0, 256]), threads=st.integers(1, 2))
def test_matches_what_columns_match(rows, texts, leads, tail, threads):
    subs = rc.Subscriptions.parse(SCHEMA, dict(enumerate(texts)))
    columns = rc.Events.from_rows(SCHEMA, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.auto.TINY", 0)
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", tail)
        if leads:
            patch.setattr("rangecast.engine.layouts.leads.are_sparse", lambda *_: True)
        keep_said(patch)
        said = rc.Events.from_rows(SCHEMA, rows)
        if rows:
            assert isinstance(said.encoded(SCHEMA, entries=True).codes, EventEntries)
        index = rc.open_index("auto", SCHEMA)
        index.insert(subs)
        found = index.match(said, threads=threads)
        assert rows_of(found) == [sorted(row) for row in match_boxes(subs, columns)]
        assert index.count(said).tolist() == found.counts.tolist()
        index.delete([0])
        assert rows_of(index.match(said)) == [
            [id for id in sorted(row) if id != 0] for row in match_boxes(subs, columns)
        ]
    assert np.array_equal(said.codes, columns.codes)


@given(rows=ROWS, data=st.data())
def test_the_same_events(rows, data):
    with pytest.MonkeyPatch.context() as patch:
        keep_said(patch)
        said = rc.Events.from_rows(SCHEMA, rows)
        columns = {name: [row.get(name) for row in rows] for name in SCHEMA.names}
        by_column = rc.Events.from_arrays(SCHEMA, columns)
    plain = rc.Events.from_rows(SCHEMA, rows)
    for one in (said, by_column, pickle.loads(pickle.dumps(said))):
        assert len(one) == len(plain)
        assert np.array_equal(one.codes, plain.codes)
        for e in range(len(rows)):
            for name in SCHEMA.names:
                assert one.value(name, e) == plain.value(name, e)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5) if rows else st.just([]))
    assert np.array_equal(said.select(chosen).codes, plain.select(chosen).codes)


def test_a_string_that_is_named_later(monkeypatch):
    keep_said(monkeypatch)
    schema = rc.Schema(rc.Category("c"), rc.Int("a"))
    index = rc.open_index("auto", schema)
    batch = rc.Events.from_rows(schema, [{"c": "new"}, {"a": 3}])
    assert isinstance(batch.encoded(schema, entries=True).codes, EventEntries)
    index.insert(rc.Subscriptions.parse(schema, {1: "c = 'new'", 2: "a = 3"}))
    assert not isinstance(batch.encoded(schema, entries=True).codes, EventEntries)
    assert rows_of(index.match(batch)) == [[1], [2]]


@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_a_bad_value_is_refused_as_in_columns(monkeypatch, on_error):
    rows = [{"a": 1}, {"b": 2.0}, {"a": "seven", "d": 1}, {"d": 2**70}]
    said = []
    for _ in range(2):
        if on_error == "raise":
            with pytest.raises(EventError) as caught:
                rc.Events.from_rows(SCHEMA, rows)
            said.append(str(caught.value))
        else:
            batch = rc.Events.from_rows(SCHEMA, rows, on_error="collect")
            said.append((batch.rejected, batch.codes.tolist()))
        keep_said(monkeypatch)
    assert said[0] == said[1]


def test_lists_of_values_are_columns(monkeypatch):
    keep_said(monkeypatch)
    batch = rc.Events.from_rows(SCHEMA, [{"c": ["x", "y"]}, {"a": 1}])
    assert not isinstance(batch.encoded(SCHEMA, entries=True).codes, EventEntries)
    index = rc.open_index("auto", SCHEMA)
    index.insert(rc.Subscriptions.parse(SCHEMA, {1: "c = 'y'", 2: "a = 1"}))
    assert rows_of(index.match(batch)) == [[1], [2]]


def test_events_that_say_much_are_columns(monkeypatch):
    keep_said(monkeypatch, sparse=2)
    much = rc.Events.from_rows(SCHEMA, [{"a": 1, "b": 2.0, "c": "x"}])
    assert not isinstance(much.encoded(SCHEMA, entries=True).codes, EventEntries)
    little = rc.Events.from_rows(SCHEMA, [{"a": 1, "b": 2.0}])
    assert isinstance(little.encoded(SCHEMA, entries=True).codes, EventEntries)


def test_a_wide_schema_takes_memory_by_what_is_said():
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(2_000)))
    table = pa.table({f"a{j}": [None, j, None] for j in range(40)})
    for batch in (
        rc.Events.from_rows(schema, [{}, {f"a{j}": j for j in range(40)}, {}]),
        rc.Events.from_arrow(schema, table),
    ):
        entries = batch.encoded(schema, entries=True).codes
        assert isinstance(entries, EventEntries)
        assert entries.starts.tolist() == [0, 0, 40, 40]
        assert entries.attributes.tolist() == entries.codes.tolist() == list(range(40))
        assert (batch.codes != MISSING).sum() == 40
