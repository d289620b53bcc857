"""One event as a dict: the same codes, refusals and matches as the same dict among rows."""

import datetime as dt
import math
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
from rangecast.model import one_event
from rangecast.model.one_event import EventPlan
from rangecast.types.attributes import MISSING

# of numbers that are instants of another unit
pytestmark = pytest.mark.filterwarnings("ignore::rangecast.errors.RangecastWarning")

ATTRIBUTES = (rc.Int("i"), rc.Float("f"), rc.Category("c"), rc.Timestamp("t"), rc.Bool("b"))
OTHERS = (
    rc.Text("x"), rc.Tags("g"), rc.Timestamp("s", unit="s"), rc.Timestamp("ms", unit="ms"), rc.Timestamp("ns", unit="ns"),
    rc.Point("p"), rc.Point("q", longitude="lon", latitude="lat"), rc.Int("lon"), rc.Float("lat"),
)  # fmt: skip
WHEN = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
# ruff: noqa: E501
NASTY = [
    None,
    True,
    False,
    0,
    -0.0,
    5,
    -5,
    5.0,
    5.5,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) + 1,
    2**64,
    10**400,
    float("nan"),
    float("inf"),
    -float("inf"),
    2.0**63,
    -(2.0**63),
    9.2e18,
    1e300,
    5e-324,
    Decimal("5"),
    Decimal("5.5"),
    Decimal("NaN"),
    Decimal("1E+30"),
    Decimal("-0"),
    Decimal("Infinity"),
    np.int8(-3),
    np.int64(7),
    np.uint64(2**63),
    np.uint64(7),
    np.float32(0.1),
    np.float64("nan"),
    np.float64(2.5),
    np.float16(1.5),
    np.longdouble(3),
    np.bool_(True),
    np.str_("IBM"),
    np.datetime64("NaT"),
    np.datetime64("2026-01-02T03:04:05.123456789"),
    np.datetime64("2026", "Y"),
    np.timedelta64(5, "s"),
    WHEN,
    WHEN.replace(tzinfo=dt.UTC),
    WHEN.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5, minutes=30))),
    WHEN.replace(tzinfo=ZoneInfo("Europe/Berlin")),
    WHEN.replace(tzinfo=dt.timezone(dt.timedelta(seconds=3601))),
    dt.datetime.min,
    dt.datetime.max,
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
    dt.date(2026, 1, 2),
    dt.date.min,
    dt.date.max,
    dt.time(1, 2),
    dt.timedelta(1),
    pd.NaT,
    pd.NA,
    pd.Timestamp("2026-01-02T03:04:05.123456789"),
    pd.Timestamp("2026-01-02", tz="Asia/Tokyo"),
    "",
    " ",
    "IBM",
    "ibm",
    " IBM",
    "true",
    "nan",
    "5",
    " 5 ",
    "+5",
    "5.0",
    "1e3",
    "0x10",
    "1_000",
    "٣",
    "\ud800",
    "日本",
    "a\0b",
    "2026-01-02",
    "2026-01-02T03:04",
    "2026-01-02 03:04:05",
    "2026-01-02T03:04:05Z",
    "20260102T030405",
    "2026-01-02T03:04:05.123+01:00",
    "2026-01-02T03:04:05.123456789",
    "2026-01-02T03:04:05.1",
    "2026-01-02Z",
    "2026-13-02",
    "0000-01-01",
    "2026-01-02T24:00:00",
    "2026-01-02T03:04:05+24:00",
    "2026-01-02T03:04:60",
    "2026-01-02T03:04:05+01",
    "2026-W01-1",
    "2026-01-02T03:04:05-00:00",
    "1969-12-31T23:59:59.999999Z",
    "2026-01-02T03:04:05.123456-23:59",
    "٢٠٢٦-01-02",
    b"IBM",
    {},
    object,
    5j,
    range(3),
    "1767225600",
    "1767225600000.5",
    " 17672 ",
    "yes",
    "No",
    "off",
    "t",
    "2",
    1.0,
    0.0,
    1e-9,
    -1,
    1767225600.25,
    "POINT(1 2)",
    "13.4, 52.5",
    "POINT(1 91)",
    "1 2 3",
    {"lon": 1, "lat": 2},
    {"LNG": 1.5, "Latitude": -2, "z": 3},
    {"lon": 1},
    {"lon": None, "lat": None},
    {"lon": "1", "lat": "2"},
    {"lon": 200, "lat": 2},
    {"lon": 1, "x": 2, "lat": 3},
    {"type": "Point", "coordinates": [13.4, 52.5]},
    {"type": "Line", "coordinates": [13.4, 52.5]},
]
POINTS = [
    [13.4, 52.5], (1, 2), [1, 2, 3], [1], [], [None, None], [1, None], [float("nan"), 2.0], [180, 90], [-180.0, -90.0],
    [181, 0], [0, 91], [0.00000005, 0.00000015], [1e-7, 2.5e-7], [True, False], ["1", "2"], [Decimal(1), Decimal("2.5")],
    np.array([1.5, 2.5]), np.array([1, 2]), [[1, 2]], [float("inf"), 0],
]  # fmt: skip


def schema():
    return rc.Schema(
        *(type(a)(a.name) for a in ATTRIBUTES[:2]), rc.Category("c", ["IBM", "true"]), *ATTRIBUTES[3:]
    )


def wide_schema():
    return rc.Schema(*schema(), *OTHERS)


def both(schema, plan, event):
    """The codes of an event each way, or the reason why there are none."""
    try:
        one = plan.encode(event).ravel().tolist()
    except rc.EventError as error:
        one = str(error)
    columns = {name: [event.get(name)] for name in schema.read_names}
    events = rc.Events.from_arrays(schema, columns, on_error="collect")
    rows = events.rejected[0].reason if events.rejected else events.codes.ravel().tolist()
    return one, rows


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", ["i", "f", "c", "t", "b"])
def test_a_value_means_what_it_means_among_rows(name):
    own = schema()
    plan = EventPlan(own)
    for value in NASTY:
        one, rows = both(own, plan, {name: value})
        assert one == rows, repr(value)


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", ["x", "g", "s", "ms", "ns", "p"])
def test_a_value_of_any_type_means_what_it_means_among_rows(name):
    own = wide_schema()
    plan = EventPlan(own)
    for value in [*NASTY, *(POINTS if name == "p" else [])]:
        one, rows = both(own, plan, {name: value})
        assert one == rows, repr(value)


@pytest.mark.without_kernels
@pytest.mark.parametrize("lon", [None, 0, 13, -180, 180, 181, 2**53 + 1])
@pytest.mark.parametrize("lat", [None, 0.0, 52.5, 90.0, 90.1, float("nan"), float("inf")])
def test_a_point_of_two_attributes(lon, lat):
    own = wide_schema()
    one, rows = both(own, EventPlan(own), {"lon": lon, "lat": lat})
    assert one == rows


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
    one, rows = both(own, EventPlan(own), event)
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
    plan = EventPlan(schema())
    mine = plan.encode({"i": 1})
    theirs = []
    thread = threading.Thread(target=lambda: theirs.append(plan.encode({"i": 2}).copy()))
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


COMPUTED = [
    "i > lon", "2 * i - 3 * lon < 5", "i * lon > 100", "i * i * i * lon > 0", "abs(i - lon) <= 2", "i / lon > 1.5",
    "f / lat < 1", "0.1 * f + 0.2 * lat + 0.3 * i > 0.5", "f * lat >= 2", "floor(f) = 2", "ceil(f) = 3", "round(f) = 2",
    "round(f, 1) = 2.5", "least(f, lat) > 0", "greatest(i, f) > 5", "coalesce(i, lon) = 5", "coalesce(f, lat) > 1",
    "hour(t) = 22", "minute(s) < 30", "weekday(t) = 'fri'", "day(t) = 30", "month(ms) = 1", "year(ns) = 2026", "year(t) < 0",
    "date(t) = '2026-01-30'", "t - ms > 1 h", "t + 5 min > s", "lower(x) = 'abc'", "upper(x) starts with 'AB'",
    "length(x) > 3", "x starts with 'ab'", "x ends with 'c'", "x contains 'b'", "x like '%b_c%'", "x like 'a%c'",
    "x matches 'a+b'", "x matches '^[0-9]+$'", "not x contains 'b'", "x >= 'abc'", "c contains 'B' and not x contains 'c'",
    "lower(c) = 'ibm'", "length(c) = length(x)", "g has 'x'", "g has all ('x', 'y')", "g has none ('x', 'q')",
    "not g has 'x'", "g is missing", "p within 100 km of (13.4, 52.5)", "p is missing", "latitude(p) > 10",
    "q in box (0, 0, 20, 60)", "longitude(q) + latitude(q) > 5", "x in '10.0.0.0/8'", "not x in '::/0'", "b", "not b",
]  # fmt: skip
TEXTS = st.sampled_from(
    [
        "",
        "a",
        "ab",
        "abc",
        "ABC",
        "äb",
        "aab",
        "b\nc",
        "b_c",
        "10.0.0.1",
        "::1",
        "12",
        "abcabcabcabcabc",
        "new",
    ]
)
WHENS = st.sampled_from([
    WHEN, dt.datetime(2026, 1, 30, 22, 15), dt.datetime.max, dt.datetime.min, 0, -1, 2**62, -(2**62), 2**63 - 1, 1 - 2**63,
])  # fmt: skip
WHOLES = st.sampled_from([0, 1, 2, 3, 5, 7, -1, 10**6, 2**31, 2**62, 2**63 - 1, 1 - 2**63])
NUMBERS = st.sampled_from(
    [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 2.25, 2.35, 1e300, -1e300, 5e-324, math.inf, -math.inf]
)
PLACES = st.sampled_from([[13.4, 52.5], [13.41, 52.51], [0, 0], [180, -90], {"lon": 1, "lat": 1}])


def some_of(values):
    """One value, none, or several of them."""
    return st.one_of(values, values, values, st.none(), st.lists(values, max_size=3))


def outcome(match):
    """The ids, or the reason why the event is rejected."""
    try:
        return sorted(match().tolist())
    except rc.EventError as error:
        return str(error).removeprefix("event 0: ").removesuffix(" (1 of 2 events)")


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.sampled_from(COMPUTED), min_size=1, max_size=12, unique=True),
    others=st.lists(st.sampled_from(COMPUTED), max_size=6),
    rows=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "i": some_of(WHOLES), "lon": some_of(st.integers(-180, 180)), "f": some_of(NUMBERS),
                "lat": st.integers(-90, 90).map(float), "t": some_of(WHENS), "s": st.integers(-(10**9), 10**9),
                "ms": st.just(1767225600000), "ns": st.just(10**18), "c": some_of(st.sampled_from(["IBM", "a", True])),
                "x": some_of(TEXTS), "g": st.lists(st.sampled_from("xyzqw")), "b": st.booleans(), "p": PLACES,
            },
        ),
        min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_whatever_is_computed_means_what_it_means_among_rows(texts, others, rows):
    own = wide_schema()
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, {999: "i is present"}))
    index.match_one({})  # a plan without what comes now
    other = rc.open_index("auto", own)
    for some, where in ((others, other), (texts, index)):
        if some:
            where.insert(rc.Subscriptions.parse(own, dict(enumerate(some))))
    for row in rows:
        for one in (index, other):
            # two rows are read as columns
            wanted = outcome(lambda one=one, row=row: one.match(rc.Events.from_rows(own, [row, {}])).row(0))
            assert outcome(lambda one=one, row=row: one.match_one(row)) == wanted


def test_nothing_is_computed_for_other_indexes(monkeypatch):
    own = wide_schema()
    other = rc.open_index("auto", own)
    other.insert(rc.Subscriptions.parse(own, {1: "i > lon", 2: "x contains 'a'", 3: "g has 'x'"}))
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, {1: "i > 3"}))

    def computed(*_):
        raise AssertionError("nobody has asked for this")

    monkeypatch.setattr(one_event, "code_of", computed)
    monkeypatch.setattr(own.traits, "find_one", computed)
    event = {"i": 5, "lon": 3, "lat": 4.0, "x": "abc", "g": ["x", "y"]}
    assert index.match_one(event).tolist() == [1]
    with pytest.raises(AssertionError, match="nobody has asked"):
        other.match_one(event)


def test_after_a_write_that_failed():
    """What the failed one would have bound is bound by the next one."""
    own = wide_schema()
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, {1: "i > lon and f > 0"}))
    assert index.match_one({"i": 5, "lon": 3, "lat": 0.0, "f": 1.0}).tolist() == [1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(index), "_publish", lambda self: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            index.insert(rc.Subscriptions.parse(own, {2: "hour(t) = 3"}))
    index.insert(rc.Subscriptions.parse(index._read.catalog.schema.widest(), {2: "hour(t) = 3"}))
    assert index.match_one({"t": WHEN}).tolist() == [2]


def test_an_index_of_a_file(tmp_path):
    own = wide_schema()
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, {1: "x contains 'a'", 2: "i > lon", 3: "g has 'x'"}))
    index.save(tmp_path / "index")
    again = rc.load_index(tmp_path / "index")
    event = {"i": 5, "lon": 3, "lat": 4.0, "x": "abc", "g": ["x", "y"]}
    assert sorted(again.match_one(event).tolist()) == [1, 2, 3]
    again.insert(rc.Subscriptions.parse(again.schema, {4: "x contains 'bc'", 5: "lower(x) = 'abc'"}))
    assert sorted(again.match_one(event).tolist()) == [1, 2, 3, 4, 5]


@pytest.mark.without_kernels
def test_one_row_is_read_as_columns_are():
    own = wide_schema()
    names = [name for name in own.read_names if name not in ("lon", "lat")]
    made = rc.Schema(*(own[name] for name in names))
    for name in names:
        for value in NASTY:
            alone = rc.Events.from_rows(made, [{name: value}], on_error="collect")
            columns = rc.Events.from_arrays(made, {name: [value]}, on_error="collect")
            assert [row.reason for row in alone.rejected] == [row.reason for row in columns.rejected], repr(
                value
            )
            assert alone.codes.tolist() == columns.codes.tolist(), repr(value)
            if len(alone):
                assert repr(alone.value(name, 0)) == repr(columns.value(name, 0))


LISTED = [
    [], [None], [1], [1, 2], [1, None, 2], [1, 1], (1, 2), {3}, frozenset([4]), ["a"], ["a", "b", None], ["IBM", "new"],
    ["a", 1], [True, False], [1, "x"], [[1]], [0.5, math.nan], [math.nan], [WHEN, "2026-01-02"], np.array([1, 2]),
    np.array(["a", "b"]), list(range(1_024)), list(range(1_025)), [Decimal(1), 2], [2**63], ["", "true", True],
]  # fmt: skip


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", ["i", "f", "c", "t", "b", "x", "g", "ms"])
def test_lists_of_one_row_are_read_as_columns_are(name):
    own = rc.Schema(*schema(), *OTHERS[:5])
    for beside in ({}, {"g": ["x", "IBM"], "i": [7, 8]}):
        for value in LISTED:
            event = {**beside, name: value}
            alone = rc.Events.from_rows(own, [event], on_error="collect")
            columns = {key: [cell] for key, cell in event.items()}
            several = rc.Events.from_arrays(own, columns, on_error="collect")
            assert [row.reason for row in alone.rejected] == [row.reason for row in several.rejected], event
            assert sorted(alone.codes.T.tolist()) == sorted(several.codes.T.tolist()), event
            assert len(alone) == len(several)
            for key in own.names if len(alone) and len(several.codes.T) < 100 else ():
                assert repr(alone.value(key, 0)) == repr(several.value(key, 0)), event


def test_a_string_of_one_row_that_is_named_later():
    own = schema()
    events = rc.Events.from_rows(own, [{"c": "new", "i": 1}])
    assert events.value("c", 0) == "new"
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, {1: "c = 'new'", 2: "c = 'old'"}))
    assert index.match(events).ids.tolist() == [1]
    several = rc.Events.from_rows(own, [{"c": ["newer", "old", "newest"], "i": 1}])
    assert several.value("c", 0) == ["newer", "old", "newest"]
    index.insert(rc.Subscriptions.parse(own, {3: "c = 'newest'"}))
    assert index.match(several).sort().ids.tolist() == [2, 3]


def test_one_row_is_warned_of_as_several_are():
    own = schema()
    for _ in range(2):
        with pytest.warns(rc.RangecastWarning, match="did you mean its column 'ii'"):
            rc.Events.from_rows(rc.Schema(rc.Int("iii"), rc.Int("f")), [{"ii": 1, "f": 2}])
    with pytest.raises(rc.EventError, match="no event has a value for 'f'"):
        rc.Events.from_rows(own, [{"i": 1}], strict=True)


def test_a_dict_matches_as_among_rows():
    own = wide_schema()
    index = rc.open_index("auto", own)
    index.insert(rc.Subscriptions.parse(own, dict(enumerate(COMPUTED))))
    rows = [
        {"i": 5, "x": "abc", "g": ["x", "y"]},
        {"f": [0.5, 2.5], "c": "IBM", "t": WHEN},
        {},
        {"X": "ab", "p": [1, 2]},
    ]
    kept = [index.match(row) for row in rows]  # written when somebody asks
    batch = index.match(rc.Events.from_rows(own, rows)).sort()
    for k, matches in enumerate(kept):
        assert len(matches) == 1
        assert sorted(matches.ids.tolist()) == batch.row(k).tolist()
        assert sorted(index.match(rows[k], limit=10_000).ids.tolist()) == batch.row(k).tolist()
    assert index.stats()["last_events"] == 1
    with pytest.warns(rc.RangecastWarning, match="did you mean its column 'latt'"):
        index.match({"latt": 1, "i": 2})
    with pytest.raises(rc.EventError, match="'i' is an int, got the string 'x'"):
        index.match({"i": "x"})
