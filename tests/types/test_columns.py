"""Columns of any form: each value exactly or its row rejected, whatever stands beside it."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from rangecast.types.attributes import HIGH, LAST, LOW, MISSING, PRESENT

BIG = 9_007_199_254_740_993  # 2^53 + 1, the first whole number that no double holds


@pytest.mark.parametrize(
    "column",
    [
        [f"{BIG}.0"],
        [f"{BIG}e0"],
        [f" +{BIG}.000 "],
        [f"{BIG}0e-1"],
        [Decimal(BIG)],
        [Decimal(BIG), Decimal("0.5")],
        [Decimal(BIG), "x"],
        [BIG, 0.5],
        pa.array([Decimal(BIG)], pa.decimal128(38, 18)),
        pa.array([Decimal(BIG)], pa.decimal128(20, 0)),
        pa.array([Decimal(BIG)], pa.decimal256(70, 30)),
        pa.array([None, Decimal(BIG)], getattr(pa, "decimal64", pa.decimal128)(18, 1)).slice(1),
    ],
)
def test_no_digit_of_a_whole_number_is_lost(column):
    assert int(rc.Int("a").encode(column).codes[0]) == BIG
    assert int(rc.Timestamp("t").encode(column).codes[0]) == BIG or not isinstance(column, pa.Array)


@pytest.mark.parametrize("whole", [np.uint64(2**64 - 1), np.uint64(2**53 + 1), np.int64(2**53 + 1)])
def test_whole_numbers_of_numpy_beside_doubles(whole):
    """Arrow makes doubles of both, and a negative number of a large uint64."""
    alone, beside = rc.Int("a").encode([whole]), rc.Int("a").encode([2.0, whole, -0.0])
    assert beside.codes[1] == alone.codes[0]
    assert (1 in beside.bad) == (len(alone.bad) == 1)
    assert rc.Float("x").encode([2.0, whole]).codes[1] == rc.Float("x").encode([float(whole)]).codes[0]


@pytest.mark.parametrize("value", [np.True_, np.float16(2.5), np.float32(2.5)])
def test_scalars_of_numpy_beside_whole_numbers(value):
    """Arrow makes whole numbers of numpy's booleans and of half doubles."""
    for column in ([2, value], [value, 2], [None, value, 2]):
        found, at = rc.Int("a").encode(column), column.index(value)
        assert found.bad.tolist() == [at]
        assert found.codes[column.index(2)] == 2
    assert rc.Float("x").encode([2, np.float16(2.5)]).codes[1] == rc.Float("x").encode([2.5]).codes[0]


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (f"{BIG}.5", BIG + 1, BIG),
        ("0.99999999999999999999", 1, 0),
        ("5.00000000000000000001", 6, 5),
        ("-1e-99999999999999999999", 0, -1),
        ("1e-400", 1, 0),
        ("9223372036854775806.5", LAST, LAST - 1),
    ],
)
def test_no_fraction_is_lost(text, low, high):
    a = rc.Int("a")
    columns = [[text]]
    if "9999999999999999" not in text.partition("e")[2]:
        columns.append([Decimal(text)])
    for column in columns:
        assert a.encode(column).bad.tolist() == [0]
        assert a.encode(column, LOW).codes.tolist() == [low]
        assert a.encode(column, HIGH).codes.tolist() == [high]


def test_decimals_agree_with_exact_arithmetic():
    rng = np.random.default_rng(5)
    for kind in (pa.decimal128(38, 0), pa.decimal128(38, 6), pa.decimal128(38, 25), pa.decimal256(76, 40)):
        room = kind.precision - kind.scale
        values = [
            Decimal(int(rng.integers(-(2**62), 2**62))).scaleb(-int(rng.integers(0, kind.scale + 1)))
            for _ in range(200)
        ]
        values += [Decimal(v) for v in (LAST, LAST + 1, MISSING, PRESENT) if len(str(abs(v))) <= room]
        values = [v for v in values if v.adjusted() < room]
        column = pa.array([*values, None], kind)
        exact = [v if MISSING < v <= LAST and v == int(v) else None for v in values]
        encoded = rc.Int("a").encode(column)
        assert encoded.bad.tolist() == [row for row, v in enumerate(exact) if v is None]
        assert encoded.codes.tolist() == [*(MISSING if v is None else int(v) for v in exact), MISSING]
        x = rc.Float("x")
        assert [x.decode(c) for c in x.encode(column).codes.tolist()] == [*map(float, values), None]


def test_infinite_and_absent_decimals():
    a, x = rc.Int("a"), rc.Float("x")
    column = [Decimal("Infinity"), Decimal("-Infinity"), Decimal("NaN"), Decimal(3)]
    assert a.encode(column).bad.tolist() == [0, 1]
    assert a.encode(column, HIGH).bad.tolist() == [1]
    assert a.encode(column, HIGH).codes.tolist() == [LAST, MISSING, MISSING, 3]
    assert a.encode(column, LOW).codes.tolist() == [MISSING, PRESENT, MISSING, 3]
    assert [x.decode(c) for c in x.encode(column).codes.tolist()] == [np.inf, -np.inf, None, 3.0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62, 0], pa.timestamp("s")),
        pa.array([2**62, 0], pa.timestamp("ms", "UTC")),
        pa.array([2**31 - 1, 0], pa.date32()),
        pa.array([-(2**31), 0], pa.date32()),
        pa.array([2**62, 0], pa.date64()),
        pa.array([MISSING, 0], pa.timestamp("us")),
        np.array([2**40, 0], "datetime64[D]"),
        np.array([2**62, 0], "datetime64[s]"),
        np.array([-(2**62), 0], "datetime64[ms]"),
        np.array([2**40, 0], "datetime64[W]"),
        np.array([300_001, 0], "datetime64[Y]"),
        np.array([-(2**62), 0], "datetime64[Y]"),
        np.array([2**62, 0], "datetime64[M]"),
        np.array([2**50, 0], "datetime64[15m]"),
        [np.datetime64(2**62, "s"), np.datetime64(0, "ns")],
        np.ma.masked_array(np.array([2**62, 0], "datetime64[s]"), [False, False]),
    ],
)
def test_times_beyond_the_range_are_rejected(column):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = rc.Timestamp("t").encode(column)
    assert encoded.bad.tolist() == [0]
    assert encoded.codes.tolist() == [MISSING, 0]
    assert encoded.reasons[0].startswith("'t' is a timestamp, got ")


@pytest.mark.parametrize(
    ("unit", "ticks", "low", "high"),
    [
        ("Y", 1, 365 * 86_400_000_000, 365 * 86_400_000_000),
        ("M", -1, -31 * 86_400_000_000, -31 * 86_400_000_000),
        ("W", 2, 14 * 86_400_000_000, 14 * 86_400_000_000),
        ("h", 1, 3_600_000_000, 3_600_000_000),
        ("15m", 2, 1_800_000_000, 1_800_000_000),
        ("ns", 1_500, 2, 1),
        ("ps", -1, 0, -1),
        ("fs", 2_000_000_000, 2, 2),
        ("as", 1, 1, 0),
        ("3ns", 500, 2, 1),
    ],
)
def test_times_of_every_unit(unit, ticks, low, high):
    t = rc.Timestamp("t")
    column = np.array([ticks, MISSING], np.int64).view(f"datetime64[{unit}]")
    assert t.encode(column, LOW).codes.tolist() == [low, MISSING]
    assert t.encode(column, HIGH).codes.tolist() == [high, MISSING]
    assert t.encode(column).bad.tolist() == []
    assert t.bracket(column[0]) == (high, low)


def test_a_condition_on_a_time_beyond_the_range_bounds_nothing():
    t = rc.Timestamp("t")
    assert t.intervals("<", np.datetime64(2**62, "s")) == ((PRESENT, LAST),)
    assert t.intervals(">", np.datetime64(-300_001, "Y")) == ((PRESENT, LAST),)
    assert t.intervals(">", np.datetime64(300_001, "Y")) == ()


@pytest.mark.parametrize("text", ["+-5", "--5", "²", "٣", "9" * 4_301, "\ud800", "5\x00", "1e400", "e5"])
def test_no_text_stops_a_column(text):
    for kind in (rc.Int, rc.Float, rc.Timestamp):
        encoded = kind("a").encode(["1970-01-01" if kind is rc.Timestamp else "5", text])
        if kind is rc.Float and text[0] in "91":  # a number, if a large one
            assert encoded.bad.tolist() == []
            continue
        assert encoded.bad.tolist() == [1]
        assert encoded.reasons[0].encode()
    wrong = rc.Category("c").encode(["IBM", text]).bad.tolist()
    assert wrong == ([1] if text == "\ud800" else [])


def test_text_that_is_not_unicode_is_rejected():
    binary = pa.array([b"5", b"\xff5", None, b"6"])
    text = pa.StringArray.from_buffers(4, *binary.buffers()[1:], binary.buffers()[0])
    for column in (text, text.cast(pa.large_binary()).view(pa.large_string()), text.dictionary_encode()):
        encoded = rc.Int("a").encode(column)
        assert encoded.bad.tolist() == [1]
        assert encoded.codes.tolist() == [5, MISSING, MISSING, 6]
        c = rc.Category("c", ["6"])
        assert c.encode(column).codes.tolist() == [0, MISSING, MISSING, 1]
        assert c.encode(column).bad.tolist() == [1]


@pytest.mark.parametrize(
    ("kind", "column", "bad"),
    [
        (rc.Category, ["IBM", b"IBM", "HAL"], [1]),
        (rc.Category, [b"IBM", "IBM", None], [0]),
        (rc.Category, np.array(["IBM", b"\xff", np.nan], object), [1]),
        (rc.Float, [1.5, True], [1]),
        (rc.Float, [Decimal("1.5"), True], [1]),
        (rc.Int, [10**5_000, 1], [0]),
        (rc.Int, [object(), 1, [2], {}], [0, 2, 3]),
    ],
)
def test_a_bad_value_leaves_its_neighbours_alone(kind, column, bad):
    assert kind("a").encode(column).bad.tolist() == bad


def test_a_date_beside_an_instant_does_not_cut_it():
    t = rc.Timestamp("t")
    hour = 3_600_000_000
    assert t.encode([dt.date(1970, 1, 1), dt.datetime(1970, 1, 1, 1)]).codes.tolist() == [0, hour]
    assert t.encode([dt.datetime(1970, 1, 1, 1), dt.date(1970, 1, 1)]).codes.tolist() == [hour, 0]


def test_numpy_times_beside_other_scalars():
    """Arrow is not asked to make one column of these: it would end the process."""
    t = rc.Timestamp("t")
    column = [np.datetime64(1, "s"), np.int8(5), np.float32(2), None, np.datetime64("NaT"), np.bool_(True)]
    encoded = t.encode(column)
    assert encoded.codes.tolist() == [1_000_000, 5, 2, MISSING, MISSING, MISSING]
    assert encoded.bad.tolist() == [5]


def test_a_float_takes_whole_numbers_of_any_size():
    x = rc.Float("x")
    column = [10**30, 1.5, -(10**400), 2**53 + 1]
    got = [x.decode(code) for code in x.encode(column).codes.tolist()]
    assert got == [1e30, 1.5, -np.inf, float(2**53)]


def test_a_file_with_times_beyond_the_range(tmp_path):
    """The way of match_files: a batch of a Parquet file, with its bad rows collected."""
    schema = rc.Schema(rc.Timestamp("t"))
    pq.write_table(pa.table({"t": pa.array([0, 2**54, 5], pa.timestamp("ms"))}), tmp_path / "e.parquet")
    events = rc.Events.from_arrow(schema, pq.read_table(tmp_path / "e.parquet"), on_error="collect")
    assert events.codes.tolist() == [[0, 5_000]]
    assert [(r.row, r.reason) for r in events.rejected] == [
        (1, "'t' is a timestamp, got timestamp[ms] 18014398509481984")
    ]


def test_a_decimal_that_is_rejected_stays_as_it_was():
    column = pa.array([Decimal("1E+30")])
    encoded = rc.Int("a").encode(column)
    assert encoded.reasons[0] == "'a' is an int, got Decimal('1000000000000000000000000000000')"
    assert column.to_pylist() == [Decimal("1E+30")]


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_a_longdouble_counts_a_unit(unit):
    at = rc.Timestamp("at", unit=unit)
    assert at.encode([np.longdouble(3_000)]).codes.tolist() == at.encode([3_000]).codes.tolist()
