"""Frames at every door: what hands out Arrow data is taken; a wrong type is refused at its first value."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rangecast as rc
from rangecast.types.frames import frame_like, kind_of

pytestmark = pytest.mark.without_kernels

ROWS = [
    {"price": 12, "change": 0.5, "symbol": "IBM", "paid": True, "at": dt.datetime(2026, 1, 31)},
    {"price": 3, "change": None, "symbol": None, "paid": None, "at": None},
]
TABLE = pa.Table.from_pylist(ROWS)


class Stream:
    """What hands out Arrow data and is nobody's frame."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Array:
    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


def duckdb_relation(table):
    import duckdb

    return duckdb.from_arrow(table)


KINDS = {
    "rows": lambda table: table.to_pylist(),
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "lazy": lambda table: pl.from_arrow(table).lazy(),
    "arrow": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(),
    "stream": Stream,
    "array": lambda table: Array(table.combine_chunks().to_batches()[0]),
    "duckdb": duckdb_relation,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_door_takes_every_frame(kind):
    make = KINDS[kind]
    schema = rc.Schema.infer(make(TABLE))
    assert [(a.name, a.kind) for a in schema] == [
        ("price", "int"),
        ("change", "float"),
        ("symbol", "category"),
        ("paid", "bool"),
        ("at", "timestamp"),
    ]
    alerts = pa.table({"id": [7, 8], "condition": ["price > 10", "paid is missing"], "owner": ["ann", "bob"]})
    subs = (
        rc.Subscriptions.from_rows(schema, make(alerts), payload=["owner"])
        if kind == "rows"
        else rc.Subscriptions.from_arrow(schema, make(alerts), payload=["owner"])
    )
    index = rc.open_index("scan", schema)
    index.insert(subs)
    assert [ids.tolist() for ids in index.match(make(TABLE))] == [[7], [8]]
    assert index.count(make(TABLE)).tolist() == [1, 1]
    assert index.match_any(make(TABLE)).tolist() == [True, True]
    assert len(rc.Events.of(schema, make(TABLE))) == 2
    found = rc.match(make(TABLE), make(alerts), payload=["owner"], index="scan")
    pairs = found.collect() if kind == "lazy" else found
    table = pa.Table.from_pylist(pairs) if kind == "rows" else pa.table(pairs)
    assert table.to_pylist() == [
        {"event_id": 0, "subscription_id": 7, "owner": "ann"},
        {"event_id": 1, "subscription_id": 8, "owner": "bob"},
    ]


def test_what_comes_back_is_of_the_same_kind():
    assert isinstance(frame_like(TABLE, pl.LazyFrame()), pl.LazyFrame)
    assert isinstance(frame_like(TABLE, Stream(TABLE)), pa.Table)
    assert kind_of(Stream(TABLE)) == kind_of(Array(TABLE)) == "pyarrow"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (5, "events must be a DataFrame of pandas or Polars, .*, got 5"),
        (Array(pa.array([1, 2])), "events must have rows of named columns"),
        (np.arange(3), "events must be a DataFrame"),
    ],
)
def test_what_is_no_frame_is_refused(frame, message):
    index = rc.open_index("scan", rc.Schema(rc.Int("price")))
    with pytest.raises(rc.OptionError, match=message):
        index.match(frame)


def test_rows_of_several_types_are_refused_with_their_name():
    with pytest.raises(
        rc.OptionError, match="the frame: the values of 'a' cannot be read as a column of one type"
    ):
        rc.Schema.infer([{"a": 1}, {"a": "x"}])
    with pytest.raises(rc.SchemaError, match="column 'a' has type duration"):
        rc.Schema.infer(pd.DataFrame({"a": pd.to_timedelta([1], unit="s")}))


N = 2_000
WRONG = {
    "timedelta": pd.Series(pd.to_timedelta(np.arange(N), unit="s")),
    "durations": pa.array(np.arange(N), pa.duration("s")),
    "times": pa.array([dt.time(1)] * N),
    "structs": pa.array([{"a": 1}] * N),
    "texts": pa.array(["abc"] * N),
    "objects": [object()] * N,
    "fractions": np.arange(N) + 0.5,
}


@pytest.mark.parametrize("values", WRONG.values(), ids=WRONG)
def test_only_the_first_wrong_value_is_described(values, monkeypatch):
    """To describe every value of a wrong column took seconds, and the error names one."""
    schema = rc.Schema(rc.Int("price"))
    described = []
    wrong = rc.Int.wrong
    monkeypatch.setattr(rc.Int, "wrong", lambda self, value: described.append(value) or wrong(self, value))
    with pytest.raises(rc.EventError, match=rf"event 0: 'price' is an int, got .* \({N} of {N} events\)"):
        rc.Events.from_arrays(schema, {"price": values})
    with pytest.raises(rc.SubscriptionError, match=rf"subscription 0: .*\({N} of {N} subscriptions\)"):
        rc.Subscriptions.from_arrays(schema, np.arange(N), {"price": values}, {"price": [-1] * N})
    assert len(described) <= 2


@pytest.mark.parametrize("kind", ["timedelta", "durations", "times", "structs"])
def test_a_column_that_no_attribute_holds_is_named_by_its_type(kind):
    schema = rc.Schema(
        rc.Int("price"), rc.Category("symbol"), rc.Float("x"), rc.Timestamp("at"), rc.Bool("b")
    )
    for name in schema.names:
        with pytest.raises(rc.EventError, match=f"event 0: '{name}' is an? .*, got a column of type "):
            rc.Events.from_arrays(schema, {name: WRONG[kind]})


def test_collected_rows_have_their_reasons_each():
    schema = rc.Schema(rc.Int("price"))
    events = rc.Events.from_arrays(schema, {"price": ["1", "x", None, "y"]}, on_error="collect")
    assert [(row.row, row.reason[-3:]) for row in events.rejected] == [(1, "'x'"), (3, "'y'")]
    low, high = {"price": ["5", "x", "1", "9"]}, {"price": [4, 7, 2, 8]}
    subs = rc.Subscriptions.from_arrays(schema, [0, 1, 2, 3], low, high, on_error="collect")
    assert [(row.id, row.reason[-6:]) for row in subs.rejected] == [
        (0, "[5, 4]"),
        (1, "ng 'x'"),
        (3, "[9, 8]"),
    ]
    with pytest.raises(rc.SubscriptionError, match=r"subscription 0: .*got \[5, 4\] \(3 of 4"):
        rc.Subscriptions.from_arrays(schema, [0, 1, 2, 3], low, high)
