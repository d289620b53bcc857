"""Codes keep order and are exact; bad rows come back with reasons."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.types.attributes import HIGH, LAST, LOW, MISSING, PRESENT, float_codes
from rangecast.types.vocabulary import UNKNOWN

FLOATS = st.floats(allow_nan=False, width=64)


@given(FLOATS, FLOATS)
def test_float_codes_keep_order(a, b):
    x, y = float_codes(np.array([a, b])).tolist()
    assert (a < b) == (x < y)
    assert (a == b) == (x == y)


@given(FLOATS)
def test_float_codes_decode(a):
    x = rc.Float("x")
    code = int(x.encode([a]).codes[0])
    assert x.bracket(a) == (code, code)
    assert PRESENT <= code <= LAST
    assert x.decode(code) == a


@given(FLOATS)
def test_an_open_end_is_the_neighbour(a):
    ((low, high),) = rc.Float("x").intervals("<", a)
    assert low == PRESENT
    assert high == int(float_codes(np.array([a]))[0]) - 1
    if math.isfinite(a) and a != 0:
        assert rc.Float("x").decode(high) == np.nextafter(a, -math.inf)


@pytest.mark.parametrize(
    ("operator", "value", "want"),
    [
        ("=", 5, [(5, 5)]),
        ("=", 5.5, []),
        ("!=", 5, [(PRESENT, 4), (6, LAST)]),
        ("!=", 5.5, [(PRESENT, LAST)]),
        ("<", 5.5, [(PRESENT, 5)]),
        ("<", 5, [(PRESENT, 4)]),
        ("<=", 5.5, [(PRESENT, 5)]),
        (">", 5.5, [(6, LAST)]),
        (">=", 5.5, [(6, LAST)]),
        ("<", math.inf, [(PRESENT, LAST)]),
        (">", math.inf, []),
        (">", -math.inf, [(PRESENT, LAST)]),
        ("<", PRESENT, []),
        ("<=", PRESENT, [(PRESENT, PRESENT)]),
        (">", LAST, []),
        ("<", 10**30, [(PRESENT, LAST)]),
        ("=", 10**30, []),
        ("!=", LAST, [(PRESENT, LAST - 1)]),
    ],
)
def test_int_intervals(operator, value, want):
    assert list(rc.Int("a").intervals(operator, value)) == want


def test_int_columns():
    a = rc.Int("a")
    assert a.encode(np.array([1, -2], np.int8)).codes.tolist() == [1, -2]
    assert a.encode([1, None, 3]).codes.tolist() == [1, MISSING, 3]
    assert a.encode(np.array([1.0, np.nan])).codes.tolist() == [1, MISSING]
    assert a.encode(pa.chunked_array([[1], [None, 2]])).codes.tolist() == [1, MISSING, 2]
    assert a.encode(pd.Series([1, None], dtype="Int64")).codes.tolist() == [1, MISSING]
    assert a.encode(np.ma.masked_array([1, 2], [False, True])).codes.tolist() == [1, MISSING]
    assert a.encode(["7", " +8 ", "", None, "9223372036854775807"]).codes.tolist() == [
        7,
        8,
        MISSING,
        MISSING,
        LAST,
    ]
    assert a.encode(["1e3", "-5.0"]).codes.tolist() == [1000, -5]
    assert a.encode([]).codes.tolist() == []
    assert a.encode([2**62 + 1]).codes.tolist() == [2**62 + 1]


@pytest.mark.parametrize(
    ("column", "rows", "reason"),
    [
        ([1, "x"], [1], "'a' is an int, got the string 'x'"),
        (np.array([1.5, 2.0]), [0], "'a' is an int, got the number 1.5"),
        (np.array([1, 2**64 - 1], np.uint64), [1], "got 18446744073709551615"),
        (np.array([MISSING, 0]), [0], "got -9223372036854775808"),
        ([True, 1], [0], "got the boolean True"),
        (["1", "abc", "99999999999999999999"], [1, 2], "got the string 'abc'"),
        ([2**70, 1], [0], "is an int, got 1180591620717411303424"),
        ([dt.date(2020, 1, 1)], [0], "got datetime.date"),
    ],
)
def test_bad_ints(column, rows, reason):
    encoded = rc.Int("a").encode(column)
    assert encoded.bad.tolist() == rows
    assert reason in encoded.reasons[0]


def test_int_bounds_round_inwards():
    a = rc.Int("a")
    values = np.array([1.5, -1.5, np.nan])
    assert a.encode(values, LOW).codes.tolist() == [2, -1, MISSING]
    assert a.encode(values, HIGH).codes.tolist() == [1, -2, MISSING]
    assert a.encode(np.array([-np.inf]), LOW).codes.tolist() == [PRESENT]
    assert a.encode(np.array([np.inf]), HIGH).codes.tolist() == [LAST]
    assert a.encode(np.array([np.inf]), LOW).bad.tolist() == [0]
    assert a.encode(np.array([1e30]), HIGH).bad.tolist() == [0]


def test_float_columns():
    x = rc.Float("x")
    column = ["1.5", "", "nan", "-inf", " 2 ", ".5e1"]
    got = [x.decode(code) for code in x.encode(column).codes.tolist()]
    assert got == [1.5, None, None, -math.inf, 2.0, 5.0]
    bad = x.encode(["1.5", "abc"])
    assert bad.bad.tolist() == [1]
    assert bad.reasons == ["'x' is a float, got the string 'abc'"]
    assert x.encode([1, 2.5, None]).bad.tolist() == []
    assert x.encode([dt.datetime(2020, 1, 1)]).bad.tolist() == [0]


def test_timestamp_columns():
    at = rc.Timestamp("at")
    second = 1_000_000
    want = [0, second, MISSING]
    assert (
        at.encode(np.array(["1970-01-01", "1970-01-01T00:00:01", "NaT"], "datetime64[s]")).codes.tolist()
        == want
    )
    assert at.encode(np.array(["1970-01-02"], "datetime64[D]")).codes.tolist() == [86_400 * second]
    assert at.encode(pa.array([0, 1500, None], pa.timestamp("ns"))).codes.tolist() == [0, 1, MISSING]
    assert at.encode(pa.array([1500], pa.timestamp("ns")), LOW).codes.tolist() == [2]
    texts = [
        "1970-01-01T00:00:01Z",
        "1970-01-01T01:00:01+01:00",
        "1970-01-01 00:00:01",
        "1970-01-01",
        None,
        "",
    ]
    assert at.encode(texts).codes.tolist() == [second, second, second, 0, MISSING, MISSING]
    aware = dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert at.encode([aware, dt.datetime(1970, 1, 1, 0, 0, 1)]).codes.tolist() == [0, second]
    assert at.encode(pd.Series(pd.to_datetime(["1970-01-01"]))).codes.tolist() == [0]
    assert at.encode(np.array([5, 6])).codes.tolist() == [5, 6]
    bad = at.encode(["1970-01-01", "soon", "1970-13-01"])
    assert bad.bad.tolist() == [1, 2]
    assert bad.reasons[0] == "'at' is a timestamp, got the string 'soon'"


def test_timestamp_scalars():
    at = rc.Timestamp("at", "2020-01-01", dt.date(2021, 1, 1))
    low, high = at.domain
    assert at.decode(low) == dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    assert high - low == 366 * 86_400 * 1_000_000
    assert at.bracket(np.datetime64("1970-01-01T00:00:00.000001500")) == (1, 2)
    with pytest.raises(rc.SchemaError, match="'at' is a timestamp, got the string 'x'"):
        at.bracket("x")
    with pytest.raises(rc.SchemaError, match=r"got the number 1\.5"):
        at.bracket(1.5)


def test_category_columns():
    symbol = rc.Category("symbol", ["IBM"])
    assert symbol.encode(["IBM", "HAL", None]).codes.tolist() == [1, UNKNOWN, MISSING]
    assert symbol.encode(["HAL", True], grow=True).codes.tolist() == [2, 3]
    assert symbol.encode(pa.array(["IBM", "HAL"]).dictionary_encode()).codes.tolist() == [1, 2]
    assert symbol.encode(np.array([True, False])).codes.tolist() == [3, UNKNOWN]
    assert symbol.encode(pd.Series(["IBM", None])).codes.tolist() == [1, MISSING]
    bad = symbol.encode(["IBM", 5, float("nan")])
    assert bad.bad.tolist() == [1]
    assert bad.reasons == ["'symbol' is a category, got 5"]
    with pytest.raises(rc.SchemaError, match="it takes = != IN, got <"):
        symbol.intervals("<", "IBM")
    assert symbol.decode(1) == "IBM"
    assert symbol.decode(MISSING) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rc.Int(" x"), "must be a text in one line without blanks around it, got the string ' x'"),
        (lambda: rc.Int("a", 5, 2), r"low must not exceed high, got \[5, 2\]"),
        (lambda: rc.Int("a", "x", 2), "'a' is an int, got the string 'x'"),
        (lambda: rc.Category("a", "IBM"), "must be a list of strings"),
        (lambda: rc.Category("a", [5]), "is a category, got 5"),
        (rc.Schema, "at least one attribute"),
        (lambda: rc.Schema("a"), "takes attributes such as Int and Bool, got 'a'"),
        (lambda: rc.Schema(rc.Int("a"), rc.Float("a")), "must differ, got twice: a"),
        (lambda: rc.Schema(rc.Int("a"))["b"], "unknown attribute 'b'; the schema has a"),
    ],
)
def test_schema_errors(make, message):
    with pytest.raises(rc.SchemaError, match=message):
        make()
