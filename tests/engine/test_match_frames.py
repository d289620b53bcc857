"""`rc.match`: the same pairs from every kind of frame, as a frame of that kind; and the face of Matches."""

from __future__ import annotations

import datetime as dt

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rangecast as rc

EVENTS = [
    {"id": "a", "price": 12, "symbol": "IBM", "paid": True, "took": None},
    {"id": "b", "price": 3, "symbol": "HAL", "paid": False, "took": dt.timedelta(1)},
    {"id": "c", "price": None, "symbol": "IBM", "paid": None, "took": None},
]
ALERTS = [
    {"id": 7, "condition": "price > 10 and paid", "owner": "ann"},
    {"id": 8, "condition": "symbol = 'IBM'", "owner": "bob"},
]
TWICE = pa.table([[1], [2]], names=["price", "price"])
WANTED = [("a", 7, "IBM", "ann"), ("a", 8, "IBM", "bob"), ("c", 8, "IBM", "bob")]


def relation(rows):
    table = pa.Table.from_pylist(rows)
    return duckdb.from_arrow(table)


KINDS = {
    pd.DataFrame: pd.DataFrame,
    pl.DataFrame: pl.DataFrame,
    pa.Table: pa.Table.from_pylist,
    duckdb.DuckDBPyRelation: relation,
    list: list,
}


def rows_of(frame):
    if isinstance(frame, pd.DataFrame):
        return [tuple(row) for row in frame.itertuples(index=False)]
    if isinstance(frame, pl.DataFrame):
        return frame.rows()
    if isinstance(frame, duckdb.DuckDBPyRelation):
        return frame.fetchall()
    return [tuple(row.values()) for row in (frame if isinstance(frame, list) else frame.to_pylist())]


@pytest.mark.parametrize("theirs", KINDS)
@pytest.mark.parametrize("ours", KINDS)
def test_frame_in_frame_of_the_same_kind_out(ours, theirs):
    found = rc.match(
        KINDS[ours](EVENTS), KINDS[theirs](ALERTS), keep=["symbol"], payload=["owner"], index="scan"
    )
    assert isinstance(found, ours)
    assert rows_of(found) == WANTED


def test_without_ids_and_with_a_dict_of_conditions():
    frame = pd.DataFrame({"price": [12, 3]})
    found = rc.match(frame, {"x": "price > 10", "y": "price < 15"}, index="scan")
    assert rows_of(found) == [(0, "x"), (0, "y"), (1, "y")]
    schema = rc.Schema(rc.Int("price"), rc.Int("size"))
    subs = rc.Subscriptions.parse(schema, {1: "price > 10"})
    assert rows_of(rc.match(frame, subs, index="scan")) == [(0, 1)]
    with pytest.raises(rc.EventError, match="no event has a value for 'size'"):
        rc.match(frame, subs, strict=True)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((5, {}), {}, "events must be a DataFrame of pandas or Polars"),
        ((EVENTS, 5), {}, "subscriptions must be a DataFrame"),
        ((EVENTS, ALERTS), {"event_id": "key"}, "events: there is no column 'key'"),
        ((EVENTS, ALERTS), {"payload": ["team"]}, "subscriptions: there is no column 'team'"),
        ((TWICE, {1: "price > 1"}), {}, "events: the columns must have different names, got 'price' more"),
        ((TWICE.to_pandas(), {1: "price > 1"}), {}, "events: the columns must have different names"),
        ((EVENTS, TWICE), {"id": "price"}, "subscriptions: the columns must have different names"),
        ((EVENTS, {1: "price > 1"}), {"payload": ["owner"]}, "have no payload 'owner', only none"),
        ((EVENTS, ALERTS), {"keep": ["price", "price"]}, "must differ"),
    ],
)
def test_what_cannot_be_matched(arguments, options, message):
    with pytest.raises(rc.OptionError, match=message):
        rc.match(*arguments, **options)


def test_events_without_a_column_to_ask_about():
    with pytest.raises(rc.SchemaError, match="no column of the events can be an attribute, got id, l"):
        rc.match([{"id": 1, "l": [1]}], {1: "price > 1"})


@pytest.mark.parametrize("n", [0, 2])
def test_a_column_without_a_value_says_that_its_type_is_not_known(n):
    frame = pd.DataFrame({"price": [None] * n}, dtype=object)
    for nothing in (pa.table({"price": pa.nulls(n), "s": ["a"] * n}), frame):
        with pytest.raises(
            rc.SubscriptionError, match="of the events: column 'price' has no value, which says"
        ):
            rc.match(nothing, {1: "price > 1"})
        rules = {1: "price > 1", 2: "price is missing"}
        found = rc.match(nothing, rules, schema=rc.Schema(rc.Int("price")))
        assert len(found) == n


def test_matches_as_rows():
    m = rc.Matches.from_ids([0, 2, 2, 3], ["s8", "s7", "<b>"])
    assert [ids.tolist() for ids in m] == [["s8", "s7"], [], ["<b>"]]
    assert m[-1].tolist() == ["<b>"]
    with pytest.raises(IndexError):
        m[3]
    pairs = [("x", "s8"), ("x", "s7"), ("z", "<b>")]
    assert rows_of(m.to_pandas(["x", "y", "z"])) == pairs
    assert m.to_polars(["x", "y", "z"]).rows() == pairs
    assert rows_of(m.to_pandas())[2] == (2, "<b>")
    assert "<td>&lt;b&gt;</td>" in m._repr_html_()
    many = rc.Matches.from_ids(np.arange(0, 400, 20), np.arange(380))
    assert "and 10 more" in many._repr_html_()
    assert "and 9 more events" in many._repr_html_()


class Thing:
    pass


MIXED = {
    "pandas": lambda values: pd.DataFrame({"price": [1, 12], "odd": pd.Series(values, dtype=object)}),
    "polars": lambda values: pl.DataFrame({"price": [1, 12], "odd": pl.Series(values, dtype=pl.Object)}),
    "rows": lambda values: [{"price": p, "odd": v} for p, v in zip([1, 12], values, strict=True)],
}


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("values", [["a", 1], [Thing(), {}], [2**70, 1]], ids=["types", "objects", "huge"])
def test_a_column_that_nobody_names_may_hold_anything(kind, values):
    events = MIXED[kind](values)
    assert len(rc.match(events, {1: "price > 10"})) == 1
    assert len(rc.match(events, [{"id": 1, "condition": "price > 10"}], keep=["price"])) == 1
    with pytest.raises(rc.SubscriptionError, match=r"unknown attribute 'odd'(.|\n)*'odd' cannot be"):
        rc.match(events, {1: "odd = 'a'"})
    with pytest.raises(rc.OptionError, match="events: the values of 'odd' cannot be read as a column"):
        rc.match(events, {1: "price > 10"}, keep=["odd"])
    with pytest.raises(rc.OptionError, match="events: the values of 'odd' cannot be read as a column"):
        rc.match(events, {1: "odd = 'a'"}, schema=rc.Schema(rc.Int("price"), rc.Category("odd")))
    rules = MIXED[kind](values)
    with pytest.raises(rc.OptionError, match="subscriptions: there is no column 'id'"):
        rc.match(events, rules)
    with pytest.raises(rc.OptionError, match="subscriptions: the values of 'odd' cannot be read"):
        rc.match(events, rules, id="odd")


def test_a_condition_on_a_column_of_no_attribute_says_why():
    events = pd.DataFrame(
        {
            "price": [1, 12],
            "took": pd.to_timedelta([1, 2], unit="s"),
            "day": pd.period_range("2026", periods=2, freq="D"),
        }
    )
    assert len(rc.match(events, {1: "price > 10"})) == 1
    for name, kind in {"took": "duration", "day": "extension<pandas.period"}.items():
        message = rf"unknown attribute '{name}'(.|\n)*of the events: column '{name}' has type {kind}"
        with pytest.raises(rc.SubscriptionError, match=message):
            rc.match(events, {1: f"{name} > 5"})
