"""Several values of one attribute in one event, from every door, in every index."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import match_boxes, rows_of
from tests.strategies import int_schema, subscriptions

import rangecast as rc
from rangecast.engine import REGISTRY, auto

SCHEMA = rc.Schema(rc.Category("tag"), rc.Int("size"))
SUBS = {
    1: "tag = 'red'",
    2: "tag = 'blue' and size > 5",
    3: "size in (3, 9)",
    4: "tag is missing",
    5: "size < 3",
}
COLUMN = [["red", "blue"], None, [], "blue", ["green", None]]


def loaded(index="auto"):
    opened = rc.open_index(index, SCHEMA)
    opened.insert(rc.Subscriptions.parse(SCHEMA, SUBS))
    return opened


@pytest.mark.parametrize(
    "column",
    [
        COLUMN,
        np.array([*COLUMN, 0], object)[:-1],
        pd.Series(COLUMN),
        pa.array([["red", "blue"], None, [], ["blue"], ["green", None]]),
        pa.array([["red", "blue"], None, [], ["blue"], ["green", None]], pa.large_list(pa.string())),
    ],
    ids=["list", "numpy", "pandas", "arrow", "large"],
)
def test_lists_from_every_door(column):
    events = rc.Events.from_arrays(SCHEMA, {"tag": column, "size": [9, 1, 3, 6, 0]})
    assert len(events) == 5
    assert rows_of(loaded().match(events)) == [[1, 2, 3], [4, 5], [3, 4], [2], [5]]
    assert events.value("tag", 0) == ["red", "blue"]
    assert [events.value("tag", e) for e in (1, 2, 3)] == [None, None, "blue"]


def test_lists_of_one_length():
    column = pa.array([[1, 9], None, [4, 6]], pa.list_(pa.int64(), 2))
    events = rc.Events.from_arrow(SCHEMA, pa.table({"size": column}))
    assert rows_of(loaded().match(events)) == [[3, 4, 5], [4], [4]]


def test_one_value_must_be_in_the_whole_set():
    index = rc.open_index("auto", SCHEMA)
    index.insert(rc.Subscriptions.parse(SCHEMA, {1: "size > 3 and size < 7", 2: "size > 3", 3: "size < 7"}))
    events = rc.Events.from_rows(SCHEMA, [{"size": [2, 9]}, {"size": (5,)}])
    assert rows_of(index.match(events)) == [[2, 3], [1, 2, 3]]


def test_strings_that_a_later_subscription_names():
    events = rc.Events.from_rows(SCHEMA, [{"tag": {"new"}}, {"tag": ["new", "newer"]}, {}])
    index = loaded()
    assert rows_of(index.match(events)) == [[], [], [4]]
    index.insert(rc.Subscriptions.parse(SCHEMA, {8: "tag = 'newer'"}))
    assert rows_of(index.match(events)) == [[], [8], [4]]
    assert rows_of(index.match(events.select([1, 1, 0]))) == [[8], [8], []]
    assert rows_of(index.match(events.select([-2]))) == [[8]]
    other = rc.open_index("auto", rc.Schema(rc.Category("tag"), rc.Int("size")))
    other.insert(rc.Subscriptions.parse(other.schema, {9: "tag = 'new'"}))
    assert rows_of(other.match(events)) == [[9], [9], []]


def test_bad_values_in_lists_are_rejected():
    rows = [{"size": [1, "x"]}, {"size": [3, 2]}, {"size": "y"}]
    with pytest.raises(
        rc.EventError, match=r"event 0: 'size' is an int, got the string 'x' \(2 of 3 events\)"
    ):
        rc.Events.from_rows(SCHEMA, rows)
    events = rc.Events.from_rows(SCHEMA, rows, on_error="collect")
    assert [bad.row for bad in events.rejected] == [0, 2]
    assert rows_of(loaded().match(events)) == [[3, 4, 5]]


def test_an_event_of_too_many_choices_is_rejected():
    many = {"size": list(range(32)), "tag": [f"t{k}" for k in range(32)]}
    assert len(loaded().match(rc.Events.from_rows(SCHEMA, [many])).row(0)) == 2
    rows = [{"size": [3, 4]}, {**many, "size": list(range(33))}]
    with pytest.raises(
        rc.EventError, match="event 1: an event must have at most 1,024 choices of its values, got 1,056"
    ):
        rc.Events.from_rows(SCHEMA, rows)
    assert len(rc.Events.from_rows(SCHEMA, rows, on_error="collect")) == 1


def test_one_event_as_a_dict():
    index = loaded()
    row = {"tag": ["red", "blue"], "size": 9, "more": 1}
    assert sorted(index.match_one(row).tolist()) == sorted(index.match(row).row(0).tolist()) == [1, 2, 3]
    assert index.match_one({"tag": [], "size": 4}).tolist() == [4]
    with pytest.raises(rc.EventError, match="an event must have attributes of the schema"):
        index.match_one(row, unknown="error")
    with pytest.raises(rc.EventError, match="'size' is an int, got the string 'x'"):
        index.match_one({"size": [1, "x"]})


def test_explain_looks_at_all_values():
    row = {"tag": ["red", "blue"], "size": 9}
    why = loaded().explain(2, row)
    assert why.matches
    assert why.boxes[0][0].value == ["red", "blue"]


def test_explain_speaks_in_the_words_that_were_written():
    schema = rc.Schema(rc.Tags("tags"), rc.Int("size"))
    texts = {
        1: "tags has all ('red', 'blue') and 2 * size > 10",
        2: "size between 1 and 5 and tags has 'blue'",
        3: "tags has any ('green', 'grey') or size is missing",
        4: "size > 3 and size < 8",
    }
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    row = {"tags": ["red", "blue", "new"], "size": [2, 9]}
    said = {id: str(index.explain(id, row)).splitlines() for id in texts}
    assert said[1] == [
        "subscription 1 matches",
        "  yes  AND",
        "    yes  tags has all ('red', 'blue'): ['red', 'blue', 'new']",
        "    yes  2 * size > 10: [2, 9]",
    ]
    assert said[2][0] == "subscription 2 matches"
    assert "    yes  tags has 'blue': ['red', 'blue', 'new']" in said[2]
    assert said[3][:2] == ["subscription 3 does not match", "  no   OR"]
    # each part holds for one of the sizes and both for none
    assert said[4][0] == "subscription 4 does not match"
    assert sorted(line.split()[0] for line in said[4][2:]) == ["no", "yes"]


@pytest.mark.parametrize("name", sorted(REGISTRY))
@settings(max_examples=12)
@given(data=st.data())
def test_every_index_equals_oracle(name, data):
    schema = int_schema(data.draw(st.integers(1, 3)))
    subs = data.draw(subscriptions(schema))
    value = st.one_of(st.none(), st.integers(-2, 10), st.lists(st.integers(-2, 10), max_size=3))
    rows = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(schema.names, value)), max_size=6))
    rows.append({schema.names[0]: [1, 2]})
    events = rc.Events.from_rows(schema, rows)
    index = rc.open_index(name, schema)
    index.insert(subs)
    want = [sorted(row) for row in match_boxes(subs, events)]
    assert rows_of(index.match(events)) == want
    assert rows_of(index.match(events, threads=2)) == want
    assert [sorted(ids.tolist()) for _, ids in index.match_each(events)] == want


_TEXTS = st.one_of(
    st.integers(0, 7).flatmap(
        lambda low: st.integers(low, 7).map(lambda high: f"size between {low} and {high}")
    ),
    st.integers(0, 3).map(lambda n: f"price > {n}.5"),
    st.sampled_from(["x", "y"]).map(lambda tag: f"tags has '{tag}'"),
    st.sampled_from(
        [
            "spot within 5 km of (13, 52)",
            "spot within 900 m of (13.01, 52) or price < 2",
            "tags has 'x' and size > 3",
            "tags has none ('x', 'y') and price < 3",
            "kind in ('a', 'b', 'c') and size < 5",
            "size in (1, 3, 5) or tags has 'y'",
            "price * size > 4",
            "kind like '%a%' and size != 4",
        ]
    ),
)
_ROWS = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.lists(st.sampled_from(["x", "y", "z"]), max_size=3),
        "size": st.one_of(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=2)),
        "price": st.integers(0, 4).map(float),
        "spot": st.sampled_from([[13.0, 52.0], [13.01, 52.0], [14.0, 52.0]]),
        "kind": st.sampled_from(["a", "ba", "c", "d"]),
    },
)


@pytest.mark.usefixtures("used_machine")
@given(
    texts=st.lists(_TEXTS, min_size=1, max_size=12),
    rows=st.lists(_ROWS, min_size=1, max_size=8),
    line=st.sampled_from(["runs", "windows", "cells"]),
    tail=st.sampled_from([0, 2]),
    dead=st.integers(0, 3),
)
def test_paths_that_look_at_one_of_an_events_columns(texts, rows, line, tail, dead):
    """A path of attributes in which the columns of an event do not differ is asked once for the event."""
    schema = rc.Schema(
        rc.Tags("tags"), rc.Int("size", 0, 7), rc.Float("price"), rc.Point("spot"), rc.Category("kind")
    )
    subs = rc.Subscriptions.parse(schema, dict(enumerate(texts)))
    scan = rc.open_index("scan", schema)
    scan.insert(subs)
    events = rc.Events.from_rows(schema, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.auto.TINY", 0)
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", tail)
        patch.setattr("rangecast.engine.costs.MANY_ALONE", 1)
        if line != "runs":
            patch.setattr(auto, "FEWEST_CELLS", 0)
            patch.setattr(auto, "MOST_CELLS", 0)
        if line == "cells":
            patch.setattr("rangecast.engine.layouts.windows.WindowsPart.crowded", lambda *_: True)
        index = rc.open_index("auto", schema)
        index.insert(subs)
        for gone in range(-1, dead):
            scan.delete([gone])
            index.delete([gone])
            expected = rows_of(scan.match(events))
            assert rows_of(index.match(events)) == expected
            assert index.count(events).tolist() == [len(row) for row in expected]
            assert rows_of(index.match(events, limit=100)) == expected


def test_what_is_counted_once_for_events_of_several_columns(monkeypatch, used_machine):
    """Other paths than that of the tags see each event once, however many tags it has."""
    monkeypatch.setattr("rangecast.engine.auto.TINY", 0)
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    monkeypatch.setattr("rangecast.engine.costs.MANY_ALONE", 4)
    schema = rc.Schema(rc.Tags("tags"), rc.Int("size", 0, 99))
    texts = [f"size between {k} and {k + 3}" for k in range(40)] + [f"tags has 't{k}'" for k in range(40)]
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, dict(enumerate(texts))))
    asked = {}
    for path in index._state.parts[0].part.paths:
        stab = path.part.stab
        monkeypatch.setattr(
            path.part,
            "stab",
            lambda request, stab=stab, on=path.on: (
                asked.update({on: request.codes.shape[1]}),
                stab(request),
            )[1],
        )
    rows = [{"tags": ["t1", "t2", "t3"], "size": 5}] * 20
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == [[2, 3, 4, 5, 41, 42, 43]] * 20
    assert sorted(asked.values()) == [20, 60]
    assert asked[(schema.position("size"),)] == 20


_VALUES = {
    "i": st.one_of(st.integers(-2, 3), st.floats(-2, 3, width=16), st.none(), st.booleans(), st.just(2**63)),
    "f": st.one_of(st.floats(-2, 3, width=16), st.integers(-2, 3), st.just(float("nan")), st.none()),
    "c": st.one_of(st.sampled_from(["red", "blue", "new", ""]), st.none(), st.booleans(), st.integers(0, 1)),
}


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.one_of(one, st.lists(one, max_size=5), st.lists(one, max_size=3).map(tuple))
            for name, one in _VALUES.items()
        },
    )
)
def test_one_event_with_lists_means_what_it_means_among_rows(event):
    own = rc.Schema(rc.Int("i"), rc.Float("f"), rc.Category("c"))
    index = rc.open_index("auto", own)
    texts = {1: "i > 1", 2: "c = 'red' and f < 1", 3: "c != 'blue'", 4: "f is missing", 5: "i = 0 or f = 0"}
    index.insert(rc.Subscriptions.parse(own, texts))
    try:
        want = sorted(index.match(rc.Events.from_rows(own, [event])).ids.tolist())
    except rc.EventError:
        with pytest.raises(rc.EventError):
            index.match_one(event)
        return
    assert sorted(index.match_one(event).tolist()) == want
    wide = rc.open_index("scan", own)
    wide.insert(rc.Subscriptions.parse(own, texts))
    assert sorted(wide.match_one(event).tolist()) == want


def test_as_many_choices_for_one_event_as_among_rows():
    index = loaded()
    many = {"tag": ["red", "blue"] * 20, "size": list(range(20))}
    assert sorted(index.match_one(many).tolist()) == sorted(index.match(many).ids.tolist())
    with pytest.raises(rc.EventError, match=r"at most 1,024 choices of its values, got 1,600"):
        index.match_one({"tag": ["red"] * 40, "size": [1] * 40})
