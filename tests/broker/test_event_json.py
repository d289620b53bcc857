"""Arrow columns of every type as JSON: written, or rejected with a reason; never a consumer that stops."""

import datetime as dt
import decimal
import itertools
import json
import time

import httpx
import numpy as np
import pyarrow as pa
import pytest

from rangecast.broker import bodies
from rangecast.broker.bodies import ARROW_TYPES
from rangecast.broker.event_json import json_rows, rows_kept, unwritable_rows

ARROW = {"Content-Type": ARROW_TYPES[0]}
LATE = 253_402_300_800  # the first second of the year 10000


def runs(values):
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), values)


def stored(kind, values, storage):
    return pa.ExtensionArray.from_storage(kind, pa.array(values, storage))


WRITTEN = {
    "bool": (pa.array([True, None, False]), [True, None, False]),
    "int8": (pa.array([1, None, -3], pa.int8()), [1, None, -3]),
    "uint64": (pa.array([2**64 - 1, None, 0], pa.uint64()), [2**64 - 1, None, 0]),
    "half": (pa.array(np.array([0.5, 1.5, 2], np.float16)), [0.5, 1.5, 2]),
    "float": (pa.array([0.5, None, -1.5], pa.float32()), [0.5, None, -1.5]),
    "decimal": (pa.array([decimal.Decimal("1.50"), None, None], pa.decimal128(9, 2)), ["1.50", None, None]),
    "decimal256": (
        pa.array([decimal.Decimal(10**60), None, None], pa.decimal256(70, 0)),
        [f"{10**60}", None, None],
    ),
    "string": (pa.array(["a", None, "\u2028\r\n"]), ["a", None, "\u2028\r\n"]),
    "large_string": (pa.array(["a", None, ""], pa.large_string()), ["a", None, ""]),
    "string_view": (pa.array(["a", None, "b" * 30], pa.string_view()), ["a", None, "b" * 30]),
    "binary": (pa.array([b"a", None, b"\xff"]), ["YQ==", None, "/w=="]),
    "binary_view": (pa.array([b"a", None, b"\xff"], pa.binary_view()), ["YQ==", None, "/w=="]),
    "fixed_binary": (pa.array([b"ab", None, b"\xff\0"], pa.binary(2)), ["YWI=", None, "/wA="]),
    "dictionary": (pa.array(["x", None, "y"]).dictionary_encode(), ["x", None, "y"]),
    "runs": (runs(pa.array(["x", None])), ["x", "x", None]),
    "runs_of_words": (runs(pa.array(["x", "y"]).dictionary_encode()), ["x", "x", "y"]),
    "runs_of_times": (
        runs(pa.array([0, 1], pa.timestamp("s"))),
        ["1970-01-01T00:00:00"] * 2 + ["1970-01-01T00:00:01"],
    ),
    "date32": (pa.array([dt.date(2026, 11, 18), None, dt.date(1, 1, 1)]), ["2026-11-18", None, "0001-01-01"]),
    "date64": (pa.array([dt.date(2026, 11, 18)] * 3, pa.date64()), ["2026-11-18"] * 3),
    "time32": (pa.array([1, None, 86_399], pa.time32("s")), ["00:00:01", None, "23:59:59"]),
    "time64": (pa.array([1, None, 1_000], pa.time64("us")), ["00:00:00.000001", None, "00:00:00.001000"]),
    "time64_ns": (
        pa.array([1, None, 1_000], pa.time64("ns")),
        ["00:00:00.000000001", None, "00:00:00.000001"],
    ),
    "timestamp": (
        pa.array([0, None, -1], pa.timestamp("ms")),
        ["1970-01-01T00:00:00", None, "1969-12-31T23:59:59.999000"],
    ),
    "zone": (
        pa.array([0, None, 1], pa.timestamp("s", "Europe/Berlin")),
        ["1970-01-01T01:00:00+01:00", None, "1970-01-01T01:00:01+01:00"],
    ),
    "offset": (
        pa.array([0, None, 1], pa.timestamp("s", "-05:30")),
        ["1969-12-31T18:30:00-05:30", None, "1969-12-31T18:30:01-05:30"],
    ),
    "no_zone_of_ours": (
        pa.array([0, None, 1], pa.timestamp("us", "Mars/Phobos")),
        ["1970-01-01T00:00:00Z", None, "1970-01-01T00:00:00.000001Z"],
    ),
    "nanoseconds": (
        pa.array([0, 1, 1_000], pa.timestamp("ns", "UTC")),
        ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000001Z", "1970-01-01T00:00:00.000001Z"],
    ),
    "duration": (pa.array([0, 90_000, -1], pa.duration("s")), ["P0D", "P1DT3600S", "-PT1S"]),
    "duration_ns": (
        pa.array([1, None, 1_500_000_000], pa.duration("ns")),
        ["PT0.000000001S", None, "PT1.5S"],
    ),
    "interval": (pa.array([(1, 2, 3), None, None], pa.month_day_nano_interval()), [[1, 2, 3], None, None]),
    "list": (pa.array([[1, None], None, []]), [[1, None], None, []]),
    "large_list": (pa.array([[1], None, []], pa.large_list(pa.int8())), [[1], None, []]),
    "list_view": (pa.array([[1], None, []], pa.list_view(pa.int8())), [[1], None, []]),
    "large_list_view": (pa.array([["a"], None, []], pa.large_list_view(pa.string())), [["a"], None, []]),
    "pairs": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)), [[1, 2], None, [3, 4]]),
    "struct": (
        pa.array(
            [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}],
            pa.struct([("a", pa.int8()), ("b", pa.string_view())]),
        ),
        [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}],
    ),
    "map": (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int8())), [[["a", 1]], None, []]),
    "map_of_times": (
        pa.array([[(0, 1)], None, []], pa.map_(pa.timestamp("ns"), pa.time64("ns"))),
        [[["1970-01-01T00:00:00", "00:00:00.000000001"]], None, []],
    ),
    "deep": (
        pa.array([[{"a": [0, None]}], None, []], pa.list_(pa.struct([("a", pa.list_(pa.timestamp("ns")))]))),
        [[{"a": ["1970-01-01T00:00:00", None]}], None, []],
    ),
    "dense_union": (
        pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [pa.array([1, 2]), pa.array(["x"])],
        ),
        [1, "x", 2],
    ),
    "sparse_union": (
        pa.UnionArray.from_sparse(
            pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["x", "y", "z"])]
        ),
        [1, "y", 3],
    ),
    "uuid": (stored(pa.uuid(), [b"0" * 16] * 3, pa.binary(16)), ["30303030-3030-3030-3030-303030303030"] * 3),
    "flag": (stored(pa.bool8(), [1, 0, 1], pa.int8()), [True, False, True]),
    "null": (pa.nulls(3), [None] * 3),
}
REJECTED = {
    "late": pa.array([0, LATE, 1], pa.timestamp("s")),
    "early": pa.array([0, -99_999_999_999, 1], pa.timestamp("s", "UTC")),
    "late_elsewhere": pa.array([0, LATE - 1, 1], pa.timestamp("s", "Asia/Tokyo")),
    "late_on_mars": pa.array([0, LATE, 1], pa.timestamp("s", "Mars/Phobos")),
    "late_date": pa.array([0, 3_000_000, 1], pa.int32()).cast(pa.date32()),
    "late_date64": pa.array([0, LATE * 1_000, 0], pa.int64()).view(pa.date64()),
    "long": pa.array([0, 2**60, 1], pa.duration("s")),
    "late_in_list": pa.array([[0], [1, LATE], None], pa.list_(pa.timestamp("s"))),
    "late_in_struct": pa.array([{"a": 0}, {"a": LATE}, None], pa.struct([("a", pa.timestamp("s"))])),
    "late_word": pa.array([0, LATE, 1], pa.timestamp("s")).dictionary_encode(),
    "late_run": pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 2, 3], pa.int32()), pa.array([0, LATE, 0], pa.timestamp("s"))
    ),
}
TWICE = pa.StructArray.from_arrays([pa.array([1, 2, 3])] * 2, ["a", "a"])


def stream(table):
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def through_ipc(table):
    return pa.ipc.open_stream(stream(table)).read_all()


def table_of(column, **others):
    return pa.table({"price": pa.array([1, 2, 3]), "c": column, **others})


def expected(values):
    return [{"price": k, **({} if value is None else {"c": value})} for k, value in enumerate(values, 1)]


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", WRITTEN)
def test_a_column_is_written_whatever_its_type(name):
    column, values = WRITTEN[name]
    table = table_of(column)
    assert unwritable_rows(table) == {}
    for one in (table, through_ipc(table), pa.concat_tables([table.slice(0, 1), table.slice(1)])):
        assert [json.loads(text) for text in json_rows(one, np.arange(3))] == expected(values)
        assert [json.loads(text) for text in json_rows(one, np.array([2, 0]))] == expected(values)[::-2]
        assert not any(b"\n" in text or b"\r" in text for text in json_rows(one, np.arange(3)))
    for good in ([True, False, True], [False] * 3, [False, True, True]):
        kept = through_ipc(rows_kept(table, np.array(good)))
        wanted = [value for value, is_good in zip(expected(values), good, strict=True) if is_good]
        assert [json.loads(text) for text in json_rows(kept, np.arange(kept.num_rows))] == wanted


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", REJECTED)
def test_a_value_that_cannot_be_written_is_found_with_its_row(name):
    table = table_of(REJECTED[name], view=pa.array(["a", "b", "c"], pa.string_view()))
    bad = unwritable_rows(table)
    assert list(bad) == [1]
    assert "column 'c' cannot be written as JSON: " in bad[1]
    texts = json_rows(table, np.arange(3))
    assert [bool(text) for text in texts] == [True, False, True]
    kept = through_ipc(rows_kept(table, np.array([True, False, True])))
    assert json_rows(kept, np.arange(2)) == [texts[0], texts[2]]


@pytest.mark.without_kernels
def test_a_struct_with_a_name_twice_is_written_nowhere():
    assert list(unwritable_rows(table_of(TWICE))) == [0, 1, 2]
    assert "different names" in unwritable_rows(table_of(TWICE))[0]


def taken(client, n):
    return [(one.sequence, one.event) for one in itertools.islice(client.stream("alice"), n)]


def test_events_of_every_type_are_delivered_and_what_cannot_be_is_rejected(client, url):
    client.subscribe("alice", "all", "price > 0")
    sent = []
    for column, values in WRITTEN.values():
        answer = httpx.post(f"{url}/v1/main/events", content=stream(table_of(column)), headers=ARROW)
        assert (answer.status_code, answer.json()["rejected"]) == (200, []), answer.text
        sent += expected(values)
    for name, column in REJECTED.items():
        # a row that the schema rejects as well
        prices = pa.array(["x", "2", "3"]) if name == "late" else pa.array([1, 2, 3])
        table = pa.table({"price": prices, "c": column})
        answer = httpx.post(f"{url}/v1/main/events", content=stream(table), headers=ARROW)
        assert answer.status_code == 200, answer.text
        rejected = answer.json()["rejected"]
        assert [one["row"] for one in rejected] == ([0, 1] if name == "late" else [1]), name
        assert "column 'c' cannot be written as JSON" in rejected[-1]["reason"]
        sent += [{"price": n} for n in ([3] if name == "late" else [1, 3])]
    got = taken(client, len(sent))
    assert [sequence for sequence, _ in got] == list(range(1, len(sent) + 1))
    n = 3 * len(WRITTEN)
    assert [event for _, event in got[:n]] == sent[:n]
    assert [int(event["price"]) for _, event in got[n:]] == [event["price"] for event in sent[n:]]


def test_what_an_older_version_took_is_a_gap_for_those_who_are_live_and_those_who_are_behind(
    start, client, url, monkeypatch
):
    client.subscribe("alice", "all", "price > 0")
    monkeypatch.setattr(bodies, "unwritable_rows", lambda _: {})  # as 0.4.0 had it
    live = client.stream("alice", notices=True)
    while next(live).kind != "caught_up":
        pass
    table = table_of(REJECTED["late"])
    for _ in range(2):
        answer = httpx.post(f"{url}/v1/main/events", content=stream(table), headers=ARROW)
        assert answer.json()["rejected"] == []
    behind = client.stream("alice", start="earliest", notices=True)
    for messages in (live, behind):
        found = []
        deadline = time.monotonic() + 60
        while len(found) < 6 and time.monotonic() < deadline:
            one = next(messages)
            if one.kind in ("match", "gap"):
                found.append((one.kind, one.sequence or one.content["from"]))
        kinds = ["match", "gap", "match"] * 2
        assert found == list(zip(kinds, range(1, 7), strict=True))
    polled = client.messages("alice")
    assert [message["sequence"] for message in polled["messages"]] == [1, 3, 4, 6]
    gaps = [notice for notice in polled["notices"] if notice["type"] == "gap"]
    assert [(gap["from"], gap["to"]) for gap in gaps] == [(2, 2), (5, 5)]
    assert "cannot be written as JSON" in gaps[0]["reason"]
