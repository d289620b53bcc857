"""One event as a dict: the same codes, refusals and matches as the same dict among rows."""

import datetime as dt
import threading
from collections import ChainMap
from decimal import Decimal
from types import MappingProxyType
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from rangecast.model.one_event import RowEncoder
from rangecast.types.attributes import MISSING

ATTRIBUTES = (rc.Int("i"), rc.Float("f"), rc.Category("c"), rc.Timestamp("t"), rc.Bool("b"))
WHEN = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
# ruff: noqa: E501
NASTY = [
    None, True, False, 0, -0.0, 5, -5, 5.0, 5.5, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) + 1, 2**64, 10**400,
    float("nan"), float("inf"), -float("inf"), 2.0**63, -(2.0**63), 9.2e18, 1e300, 5e-324,
    Decimal("5"), Decimal("5.5"), Decimal("NaN"), Decimal("1E+30"), Decimal("-0"), Decimal("Infinity"),
    np.int8(-3), np.int64(7), np.uint64(2**63), np.uint64(7), np.float32(0.1), np.float64("nan"), np.float64(2.5),
    np.float16(1.5), np.longdouble(3), np.bool_(True), np.str_("IBM"), np.datetime64("NaT"),
    np.datetime64("2026-01-02T03:04:05.123456789"), np.datetime64("2026", "Y"), np.timedelta64(5, "s"),
    WHEN, WHEN.replace(tzinfo=dt.UTC), WHEN.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5, minutes=30))),
    WHEN.replace(tzinfo=ZoneInfo("Europe/Berlin")), WHEN.replace(tzinfo=dt.timezone(dt.timedelta(seconds=3601))),
    dt.datetime.min, dt.datetime.max, dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
    dt.date(2026, 1, 2), dt.date.min, dt.date.max, dt.time(1, 2), dt.timedelta(1), pd.NaT, pd.NA,
    pd.Timestamp("2026-01-02T03:04:05.123456789"), pd.Timestamp("2026-01-02", tz="Asia/Tokyo"),
    "", " ", "IBM", "ibm", " IBM", "true", "nan", "5", " 5 ", "+5", "5.0", "1e3", "0x10", "1_000", "٣", "\ud800", "日本",
    "a\0b", "2026-01-02", "2026-01-02T03:04", "2026-01-02 03:04:05", "2026-01-02T03:04:05Z", "20260102T030405",
    "2026-01-02T03:04:05.123+01:00", "2026-01-02T03:04:05.123456789", "2026-01-02T03:04:05.1", "2026-01-02Z",
    "2026-13-02", "0000-01-01", "2026-01-02T24:00:00", "2026-01-02T03:04:05+24:00", "2026-01-02T03:04:60",
    "2026-01-02T03:04:05+01", "2026-W01-1", "2026-01-02T03:04:05-00:00", "1969-12-31T23:59:59.999999Z",
    "2026-01-02T03:04:05.123456-23:59", "٢٠٢٦-01-02", b"IBM", {}, object, 5j, range(3),
]  # fmt: skip


def schema():
    return rc.Schema(
        *(type(a)(a.name) for a in ATTRIBUTES[:2]), rc.Category("c", ["IBM", "true"]), *ATTRIBUTES[3:]
    )


def both(schema, encoder, event):
    """The codes of an event each way, or the reason why there are none."""
    try:
        one = encoder.encode(event).ravel().tolist()
    except rc.EventError as error:
        one = str(error)
    events = rc.Events.from_rows(schema, [event], on_error="collect")
    rows = events.rejected[0].reason if events.rejected else events.codes.ravel().tolist()
    return one, rows


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", ["i", "f", "c", "t", "b"])
def test_a_value_means_what_it_means_among_rows(name):
    own = schema()
    encoder = RowEncoder(own)
    for value in NASTY:
        one, rows = both(own, encoder, {name: value})
        assert one == rows, repr(value)


@pytest.mark.without_kernels
@settings(max_examples=80, deadline=None)
@given(
    event=st.fixed_dictionaries(
        {},
        optional={
            "i": st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.decimals(), st.none()),
            "f": st.one_of(st.floats(), st.integers(), st.booleans(), st.none()),
            "c": st.one_of(st.text(max_size=5), st.booleans(), st.floats(), st.none()),
            "t": st.one_of(
                st.datetimes(),
                st.datetimes(timezones=st.timezones()),
                st.dates(),
                st.datetimes().map(dt.datetime.isoformat),
                st.datetimes(timezones=st.just(dt.UTC)).map(str),
                st.integers(),
                st.none(),
            ),
            "other": st.text(max_size=3),
        },
    )
)
def test_an_event_means_what_it_means_among_rows(event):
    own = schema()
    one, rows = both(own, RowEncoder(own), event)
    assert one == rows


def subscribed(kind="auto"):
    own = schema()
    index = rc.open_index(kind, own)
    index.insert(
        rc.Subscriptions.parse(own, {1: "i > 3", 2: "c = 'IBM' or f < 0", 3: "c != 'HAL'", 4: "t is missing"})
    )
    return index


@pytest.mark.parametrize("kind", ["auto", "scan", "rtree", "counting"])
def test_ids_of_one_event(kind):
    index = subscribed(kind)
    assert sorted(index.match_one({"i": 5, "c": "IBM", "none": 1}).tolist()) == [1, 2, 3, 4]
    assert sorted(index.match_one({"c": "HAL", "t": WHEN}).tolist()) == []
    assert sorted(index.match_one({}).tolist()) == [4]
    assert index.stats()["last_matches"] == 1
    assert sorted(index.match({"i": 5, "t": "2026-01-02"}).row(0).tolist()) == [1]
    for mapping in (MappingProxyType({"i": 5}), ChainMap({"i": 5})):
        assert sorted(index.match_one(mapping).tolist()) == [1, 4]


def test_a_string_that_is_named_later_is_found():
    index = subscribed()
    assert sorted(index.match_one({"c": "new", "t": 1}).tolist()) == [3]
    index.insert(rc.Subscriptions.parse(index.schema, {9: "c = 'new'"}))
    assert sorted(index.match_one({"c": "new", "t": 1}).tolist()) == [3, 9]
    assert index.delete([9]) == []
    assert sorted(index.match_one({"c": "new", "t": 1}).tolist()) == [3]


@pytest.mark.parametrize("values", [["IBM", "HAL"], ("HAL",), [], {"IBM"}, [None], np.array(["IBM"])])
def test_several_values_match_as_among_rows(values):
    index = subscribed()
    event = {"i": 5, "c": values}
    wanted = index.match(rc.Events.from_rows(index.schema, [event])).ids
    assert sorted(index.match_one(event).tolist()) == sorted(wanted.tolist())
    assert sorted(index.match(event).ids.tolist()) == sorted(wanted.tolist())


def test_string_ids():
    own = schema()
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, {"a": "i > 3", "b": "i > 4"}))
    assert sorted(index.match_one({"i": 5}).tolist()) == ["a", "b"]


def test_what_is_refused():
    index = subscribed()
    with pytest.raises(rc.EventError, match=r"'i' is an int, got the string 'x'"):
        index.match_one({"i": "x"})
    with pytest.raises(rc.EventError, match=r"'i' is an int, got 9223372036854775808"):
        index.match_one({"i": 2**63})
    with pytest.raises(rc.EventError, match=r"attributes of the schema \(i, f, c, t, b\), got 'size'"):
        index.match_one({"i": 5, "size": 1}, unknown="error")
    with pytest.raises(rc.EventError, match=r"unknown must be 'ignore' or 'error', got 'drop'"):
        index.match_one({"i": 5}, unknown="drop")
    assert sorted(index.match_one({"i": 5}, unknown="error").tolist()) == [1, 4]


def test_threads_do_not_share_their_rows():
    encoder = RowEncoder(schema())
    mine = encoder.encode({"i": 1})
    theirs = []
    thread = threading.Thread(target=lambda: theirs.append(encoder.encode({"i": 2}).copy()))
    thread.start()
    thread.join()
    assert mine[0, 0] == 1
    assert theirs[0].ravel().tolist() == [2, *4 * [MISSING]]


def test_beside_writers():
    """Each answer has the subscription that always matches, and none that never does."""
    own = schema()
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, {0: "c = 'word'", 1: "i < 0"}))
    done = threading.Event()
    wrong = []

    def read():
        while not done.is_set():
            found = set(index.match_one({"c": "word", "i": 7}).tolist())
            if 0 not in found or 1 in found:
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for k in range(20):
        index.insert(rc.Subscriptions.parse(own, {10 + k: f"c = 'word' and i > {k}", 100 + k: f"c = 'w{k}'"}))
        index.delete([10 + k - 3])
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sorted(index.match_one({"c": "word", "i": 7}).tolist()) == sorted(
        index.match(rc.Events.from_rows(own, [{"c": "word", "i": 7}])).ids.tolist()
    )
