"""Rows by way of marshal: what columns say of the same rows, or left to them."""

import collections
import datetime as dt
import enum
import json
import marshal
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from rangecast.model import events as events_module
from rangecast.model import events as marshalled_rows
from rangecast.types.attributes import MISSING

WORDS = ["IBM", "HAL", "", "true", "é", "x" * 300, "ü" * 200, "sixteen letters.", "seventeen letters"]
VALUES = {
    "i": st.one_of(
        st.integers(-5, 5),
        st.sampled_from(
            [s * (2**k + e) for k in (15, 30, 31, 45, 53, 60, 62, 63) for s in (1, -1) for e in (-1, 0, 1)]
        ),
    ),
    "f": st.one_of(
        st.floats(), st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308]), st.integers(-9, 9)
    ),
    "c": st.one_of(st.sampled_from(WORDS), st.text(max_size=9)),
    "t": st.integers(0, 2**60),
    "b": st.booleans(),
}
ODD = st.one_of(
    st.sampled_from(["\ud800", "7", 2**70, 10**400, b"IBM", 1.5, True, [], ["IBM", "HAL"], (1,), {"a": 1}]),
    st.sampled_from([np.float64(1.5), np.int64(7), np.str_("IBM"), np.bool_(True), float("nan"), 3 + 1j]),
    st.just(dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
)


def make_schema():
    words = [word for word in WORDS if word not in ("", "HAL")]
    return rc.Schema(rc.Int("i"), rc.Float("f"), rc.Category("c", words), rc.Timestamp("t"), rc.Bool("b"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(marshalled_rows, "PATIENCE", 0)
    monkeypatch.setattr(marshalled_rows, "FEW", 1)


def read(schema, rows, **options):
    """What from_rows says of rows: codes, strings without a code, rejected rows, warnings; or its error."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            events = rc.Events.from_rows(schema, rows, **options)
        except rc.RangecastError as error:
            return type(error), str(error)
    strangers = {
        at: (one.rows.tolist(), one.words.to_pylist())
        for at, one in events._strangers.items()
        if len(one.rows)
    }
    told = [(one.category, str(one.message), one.filename) for one in said]
    return events.codes.tolist(), strangers, events.rejected, told


def as_columns(schema, rows, **options):
    """The same by columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_module, "read_rows", lambda schema, rows: None)
        return read(schema, rows, **options)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_rows_mean_what_columns_say(data):
    known = st.fixed_dictionaries({}, optional={k: st.one_of(st.none(), v) for k, v in VALUES.items()})
    rows = data.draw(st.lists(known, min_size=1, max_size=6))
    rows = [{key: row[key] for key in data.draw(st.permutations(list(row)))} for row in rows]
    more = st.sampled_from(["other", "I", "ff", "é", "\ud800", 7, *VALUES])
    for row in rows:
        if data.draw(st.integers(0, 5)) == 0:
            row[data.draw(more)] = data.draw(ODD)
    rows += data.draw(st.lists(st.sampled_from(rows), max_size=3))
    schema = make_schema()
    for options in ({}, {"on_error": "collect"}, {"strict": True}):
        assert read(schema, rows, **options) == as_columns(schema, rows, **options)


def test_what_is_taken():
    schema = make_schema()
    rows = [
        {"i": -(2**63) + 1, "f": -0.0, "c": "IBM", "t": 5, "b": True},
        {"b": False, "c": "é", "i": 2**63 - 1, "f": float("-inf")},
        {"c": None, "f": float("nan"), "more": "x", "i": 2**31},
        {"f": 7, "c": "new é", "even more": 2**70},
        {},
        {"c": "ü" * 200, "i": -(2**31) - 1, "f": -2147483648},
    ]
    found = marshalled_rows.read_rows(schema, rows)
    assert found.codes[0].tolist() == [1 - 2**63, 2**63 - 1, 2**31, MISSING, MISSING, -(2**31) - 1]
    assert found.codes[1, 0] == 0
    assert found.codes[1, 2] == MISSING
    assert found.codes[4].tolist() == [1, 0] + [MISSING] * 4
    assert found.strangers[2].rows.tolist() == [3]
    assert found.strangers[2].words.to_pylist() == ["new é"]
    assert found.named.unused == ["more", "even more"]
    assert read(schema, rows) == as_columns(schema, rows)


class Side(enum.StrEnum):
    BUY = "IBM"


@pytest.mark.parametrize(
    "row",
    [
        {"i": 2**63},
        {"i": -(2**63)},
        {"i": 1.0},
        {"i": True},
        {"i": np.int64(5)},
        {"f": 2**31},
        {"f": np.float64(5)},
        {"f": "5"},
        {"c": 5},
        {"c": True},
        {"c": "\ud800"},
        {"c": Side.BUY},
        {"c": np.str_("IBM")},
        {"c": ["IBM", "HAL"]},
        {"b": 1},
        {"t": "2026-01-01"},
        {"t": dt.datetime(2026, 1, 1)},
        {"C": "IBM"},
        {7: "IBM"},
        {"other": [1, 2]},
        collections.OrderedDict(i=5),
        collections.defaultdict(int, i=5),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_what_is_left_to_columns(row, first):
    schema = make_schema()
    plain = {"i": 5} if "C" not in row else {"i": 5, "b": None}
    rows = [row, plain] if first else [plain, row]
    assert marshalled_rows.read_rows(schema, rows) is None
    assert read(schema, rows, on_error="collect") == as_columns(schema, rows, on_error="collect")


def test_what_is_not_asked():
    rows = [{"a": 5}]
    assert marshalled_rows.read_rows(rc.Schema(rc.Int("a")), tuple(rows)).codes.tolist() == [[5]]
    assert marshalled_rows.read_rows(rc.Schema(rc.Int("a")), collections.deque(rows)) is None
    assert marshalled_rows.read_rows(rc.Schema(rc.Timestamp("a", unit="s")), rows) is None
    assert marshalled_rows.read_rows(rc.Schema(rc.Tags("a")), rows) is None
    assert marshalled_rows.read_rows(rc.Schema(rc.Int("a")), [{"a": 5, "b": 1, "c": 2}]) is None


def test_a_process_begins_with_columns(monkeypatch):
    monkeypatch.setattr(marshalled_rows, "PATIENCE", 10)
    monkeypatch.setattr(marshalled_rows._Read, "n", 0)
    schema = rc.Schema(rc.Int("a"))
    taken = [marshalled_rows.read_rows(schema, [{"a": 1}] * 4) is not None for _ in range(4)]
    assert taken == [False, False, True, True]
    monkeypatch.setattr(marshalled_rows, "FEW", 5)
    assert marshalled_rows.read_rows(schema, [{"a": 1}] * 4) is None


def test_another_format_is_left_alone(monkeypatch):
    schema = rc.Schema(rc.Int("a"))
    assert marshalled_rows.read_rows(schema, [{"a": 1}]) is not None
    written = marshal.dumps
    monkeypatch.setattr(
        marshalled_rows.marshal, "dumps", lambda value, version: b"?" + written(value, version)
    )
    marshalled_rows._is_known_format.cache_clear()
    try:
        assert marshalled_rows.read_rows(schema, [{"a": 1}]) is None
    finally:
        marshalled_rows._is_known_format.cache_clear()


def test_rows_share_objects_or_do_not():
    schema = make_schema()
    row = {"i": 2**40, "f": 0.25, "c": "new", "b": None}
    lines = [json.loads(json.dumps(row | {"i": k})) for k in range(5)]
    shared = [dict.fromkeys(("c", "i"), None) | {"f": row["f"], "c": row["c"]} for _ in range(5)]
    for rows in ([row] * 5, [row, {"b": True}, row, *lines, row], lines, [*shared, *lines, *shared]):
        found = marshalled_rows.read_rows(schema, rows)
        assert found is not None
        assert read(schema, rows) == as_columns(schema, rows)


def test_more_rows_than_are_written_at_once(monkeypatch):
    monkeypatch.setattr(marshalled_rows, "_AT_ONCE", 3)
    schema = make_schema()
    rows = [
        {"c": f"new {k}" if k % 3 else "IBM", "i": k} | ({"more": 1} if k == 7 else {}) for k in range(11)
    ]
    for given_rows in (rows, tuple(rows)):
        found = marshalled_rows.read_rows(schema, given_rows)
        assert found.named.unused == ["more"]
        assert read(schema, given_rows) == as_columns(schema, given_rows)


def test_many_keys():
    schema = rc.Schema(rc.Int("a"))
    rows = [{"a": k, f"other {k}": k} for k in range(marshalled_rows.MOST_KEYS + 1)]
    assert marshalled_rows.read_rows(schema, rows) is None
    assert marshalled_rows.read_rows(schema, rows[:-2]).codes.tolist() == [list(range(len(rows) - 2))]


def test_strangers_are_looked_up_when_they_are_named():
    schema = rc.Schema(rc.Category("c", ["IBM"]), rc.Int("i"))
    rows = [{"c": word, "i": k} for k, word in enumerate(["IBM", "new", None, "newer", "new"])]
    events = rc.Events.from_rows(schema, rows)
    copied = pickle.loads(pickle.dumps(events))
    some = events.select([4, 0, 3])
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "c = 'new'", 2: "c != 'IBM' and i > 2"}))
    assert [index.match(events).sort().row(k).tolist() for k in range(5)] == [[], [1], [], [2], [1, 2]]
    assert index.match(copied).sort() == index.match(events).sort()
    assert index.match(some).counts.tolist() == [2, 0, 1]
    assert events.value("c", 3) == "newer"
    assert events.value("c", 2) is None


def test_keys_that_look_like_an_attribute():
    schema = rc.Schema(rc.Int("price"), rc.Int("size"))
    with pytest.warns(rc.RangecastWarning, match="did you mean its column 'sice'"):
        rc.Events.from_rows(schema, [{"price": 1, "sice": 2}] * 2)
    with pytest.raises(rc.EventError, match="no event has a value for 'size'"):
        rc.Events.from_rows(schema, [{"price": 1}] * 2, strict=True)
    with pytest.warns(rc.RangecastWarning, match="'Price' is ignored"):
        rc.Events.from_rows(schema, [{"price": 1, "size": 2}, {"price": 1, "size": 2, "Price": 3}])
    with pytest.raises(rc.EventError, match="on_error must be"):
        rc.Events.from_rows(schema, [{"price": 1}], on_error="ignore")
