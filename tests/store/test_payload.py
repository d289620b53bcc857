"""Columns of the users' own: kept with subscriptions, changes and snapshots, given back on request."""

import datetime as dt
import json
import pickle
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.model.user_columns import UserColumns, unpacked

SCHEMA = rc.Schema(rc.Int("price"))
TABLE = pa.table(
    {
        "id": ["a", "b", "c", "d"],
        "condition": ["price < 5", "price <", "price > 3", "price = 4"],
        "owner": ["ann", "bob", None, "ann"],
        "level": [1, 2, 3, None],
        "until": ["2030-01-01", None, None, "2031-01-01T12:00"],
    }
)
OPTIONS = {"payload": ["owner", "level"], "expires": "until", "on_error": "collect"}
GOOD = [{"owner": "ann", "level": 1}, {"owner": None, "level": 3}, {"owner": "ann", "level": None}]
ENDS = [1893456000000000, 0, 1925035200000000]


def test_rejected_rows_take_their_payload_and_their_end_with_them():
    for subs in (
        rc.Subscriptions.from_arrow(SCHEMA, TABLE, **OPTIONS),
        rc.Subscriptions.from_rows(SCHEMA, TABLE.to_pylist(), **OPTIONS),
        rc.Subscriptions.from_pandas(SCHEMA, TABLE.to_pandas(), **OPTIONS),
    ):
        assert subs.payload.select(["owner"]).to_pylist() == [{"owner": row["owner"]} for row in GOOD]
        assert subs.payload["level"].to_pylist()[:2] == [1, 3]
        assert subs.expires.tolist() == ENDS
        assert [row.id for row in subs.rejected] == ["b"]
    chosen = subs.select([2, 0])
    assert (chosen.payload["owner"].to_pylist(), chosen.expires.tolist()) == (["ann", "ann"], ENDS[::-2])
    both = rc.Subscriptions.concat([chosen, rc.Subscriptions.parse(SCHEMA, {"z": "price = 1"})])
    assert both.payload["owner"].to_pylist() == ["ann", "ann", None]
    assert both.expires.tolist() == [*ENDS[::-2], 0]


def test_bounds_have_payload_too_and_it_is_no_bound():
    table = pa.table({"id": [1, 2], "price_low": [3, 9], "price_high": [5, 7], "price": [99, 98]})
    subs = rc.Subscriptions.from_arrow(SCHEMA, table, payload=["price"], on_error="collect")
    assert subs.payload.to_pylist() == [{"price": 99}]
    assert subs.lows.tolist() == [[3]]


def test_a_time_that_is_none_rejects_its_row():
    table = pa.table({"id": [1, 2, 3], "condition": ["price = 1"] * 3, "ends": ["2030-01-01", "soon", None]})
    subs = rc.Subscriptions.from_arrow(SCHEMA, table, expires="ends", on_error="collect")
    assert [(row.id, row.reason) for row in subs.rejected] == [
        (2, "expires: 'expires' is a timestamp, got the string 'soon'")
    ]
    with pytest.raises(rc.SubscriptionError, match="subscription 2: expires: 'expires' is a timestamp"):
        rc.Subscriptions.from_arrow(SCHEMA, table, expires="ends")


def test_an_index_keeps_it_through_files_and_pickles(tmp_path):
    index = rc.open_index("scan", SCHEMA)
    index.insert(rc.Subscriptions.parse(SCHEMA, {"early": "price = 0"}))
    index.insert(rc.Subscriptions.from_arrow(SCHEMA, TABLE, **OPTIONS))
    index.save(tmp_path / "a.index")
    for one in (index, rc.load_index(tmp_path / "a.index"), pickle.loads(pickle.dumps(index))):
        found = one.match(pa.table({"price": [4, 0]})).sort()
        assert one.payload(found.ids).to_pylist() == [*GOOD, GOOD[0], {"owner": None, "level": None}]
        assert one.payload(["a", "nobody"], ["owner"]).to_pylist() == [{"owner": "ann"}, {"owner": None}]
        assert one.subscriptions().payload["owner"].to_pylist() == [None, "ann", None, "ann"]
        assert one.subscriptions().expires is None
        with pytest.raises(rc.OptionError, match="have no payload 'team', only owner, level"):
            one.payload(["a"], ["team"])
    index.delete(["early", "a"])
    index.compact()
    assert index.payload(["d", "a"]).to_pylist() == [GOOD[2], {"owner": None, "level": None}]


def test_a_damaged_payload_is_refused_when_it_is_read(tmp_path):
    index = rc.open_index("scan", SCHEMA)
    index.insert(rc.Subscriptions.from_arrow(SCHEMA, TABLE, **OPTIONS))
    index.save(tmp_path / "a.index")
    raw = bytearray((tmp_path / "a.index").read_bytes())
    raw[raw.index(b"annann")] ^= 1
    (tmp_path / "a.index").write_bytes(raw)
    damaged = rc.load_index(tmp_path / "a.index")
    assert damaged.match(pa.table({"price": [4]})).n_pairs == 3
    with pytest.raises(rc.StorageError, match="damaged"):
        damaged.payload(["a"])
    packed = UserColumns.of(1, None, {"owner": ["ann"]}).pack_payload()
    packed[14] ^= 1
    with pytest.raises(rc.StorageError, match="its head is none"):
        unpacked(None, packed)


def test_a_store_keeps_it_and_deletes_by_it(tmp_path):
    store = rc.Store.open(tmp_path / "store", SCHEMA)
    store.insert(rc.Subscriptions.from_arrow(SCHEMA, TABLE, **OPTIONS))
    assert store.expires_at(["a", "c", "d"]).tolist() == ENDS
    other = rc.Subscriptions.parse(SCHEMA, {"e": "price = 7"}, payload={"owner": ["eve"], "team": ["x"]})
    store.insert(other)
    wanted = {
        "a": {"owner": "ann", "level": 1, "team": None},
        "c": {"owner": None, "level": 3, "team": None},
        "d": {"owner": "ann", "level": None, "team": None},
        "e": {"owner": "eve", "level": None, "team": "x"},
    }
    for again in (store, rc.Store.open(tmp_path / "store")):
        for index in (again.index(2), rc.load_index(again.snapshot(2))):
            assert dict(zip("acde", index.payload(list("acde")).to_pylist(), strict=True)) == wanted
    changes = list(store.changes(0))
    assert changes[0].inserted.payload.to_pylist() == GOOD
    assert store.delete(where="owner = 'ann' and level is present") == ["a"]
    assert store.delete(where="OWNER in ('ann', 'eve')") == ["d", "e"]
    assert (store.version, sorted(store.subscriptions().ids)) == (4, ["c"])
    assert store.delete(where="level < 2") == []
    assert store.version == 4
    store.compact()
    assert rc.Store.open(tmp_path / "store").index().payload(["c"], ["level"]).to_pylist() == [{"level": 3}]


def test_delete_refuses_what_it_cannot_choose_by(tmp_path):
    store = rc.Store.open(tmp_path / "store", SCHEMA)
    store.insert(rc.Subscriptions.parse(SCHEMA, {1: "price = 1"}))
    with pytest.raises(rc.SubscriptionError, match="no subscription has a payload"):
        store.delete(where="owner = 'ann'")
    store.insert(rc.Subscriptions.parse(SCHEMA, {2: "price = 1"}, payload={"owner": ["ann"]}))
    with pytest.raises(rc.SubscriptionError, match="unknown attribute 'ownr'; did you mean owner"):
        store.delete(where="ownr = 'ann'")
    with pytest.raises(rc.SubscriptionError, match="got both"):
        store.delete([1], where="owner = 'ann'")
    with pytest.raises(rc.SubscriptionError, match="takes ids, or a condition"):
        store.delete()
    assert len(store) == 2


def test_files_have_payload_and_ends(tmp_path):
    rows = TABLE.to_pylist()
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    header = ",".join(TABLE.column_names)
    lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    (tmp_path / "a.csv").write_text("\n".join([header, *lines]))
    pq.write_table(TABLE, tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.csv", "a.parquet"):
        rejects = rc.Rejects()
        subs = rc.load_subscriptions(
            SCHEMA, tmp_path / name, rejects, payload=["owner", "level"], expires="until"
        )
        assert len(rejects) == 1
        assert [owner or None for owner in subs.payload["owner"].to_pylist()] == ["ann", None, "ann"], name
        assert [str(level or "") for level in subs.payload["level"].to_pylist()] == ["1", "3", ""], name
        assert subs.expires.tolist() == ENDS
    with pytest.raises(rc.SubscriptionError, match="there is no column 'team'"):
        rc.load_subscriptions(SCHEMA, tmp_path / "a.csv", payload=["team"])


def test_match_takes_the_payload_of_subscriptions():
    subs = rc.Subscriptions.from_arrow(SCHEMA, TABLE, **OPTIONS)
    found = rc.match([{"price": 2}], subs, payload=["owner"])
    assert found == [{"event_id": 0, "subscription_id": "a", "owner": "ann"}]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1], [2]], "payload 'x' must be strings, numbers, booleans, dates or times, got list"),
        (["a"], "payload 'x' must have one row per id, got 1 for 2 ids"),
        ([1, [2]], r"payload 'x' must be strings, numbers, booleans, dates or times, got \[2\]"),
        (["a", object()], "payload 'x' must be strings, numbers, booleans, dates or times, got <object"),
        (pa.array([1, 2], pa.timestamp("ns")), "payload 'x' cannot be kept"),
    ],
)
def test_what_cannot_be_kept_is_refused(values, message):
    with pytest.raises(rc.SubscriptionError, match=message):
        rc.Subscriptions.parse(SCHEMA, {1: "price = 1", 2: "price = 2"}, payload={"x": values})


def test_values_of_several_types_are_kept_as_texts():
    values = [1, "a", 2.5, True, None, 2**64, dt.date(2026, 1, 31)]
    texts = {k: f"price = {k}" for k in range(len(values))}
    subs = rc.Subscriptions.parse(SCHEMA, texts, payload={"x": values})
    wanted = ["1", "a", "2.5", "true", None, "18446744073709551616", "2026-01-31"]
    assert subs.payload["x"].to_pylist() == wanted


SIMPLE = {
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "date": st.dates(dt.date(1, 1, 1)),
    "instant": st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC)),
    "timestamp": st.datetimes(dt.datetime(1, 1, 1)),
}


@given(st.data())
def test_what_goes_in_comes_out(data):
    """Packed, selected and joined, each column gives back what a list of its values would."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(SIMPLE)), min_size=1, max_size=3))
    n = data.draw(st.integers(1, 5))
    columns = {
        f"{kind}{k}": data.draw(st.lists(st.none() | SIMPLE[kind], min_size=n, max_size=n))
        for k, kind in enumerate(kinds)
    }
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=6))
    made = UserColumns.of(n, None, columns)
    again = unpacked(None, made.pack_payload())
    joined = UserColumns.concat([again.select(np.array(rows, np.int64)), made])
    for name, values in columns.items():
        assert joined.table()[name].to_pylist() == [*(values[row] for row in rows), *values]


def test_types_that_differ_are_widened():
    parts = [
        UserColumns.of(1, None, {"a": values, "b": values})
        for values in (pa.array([1]), pa.array([0.5]), pa.array([None], pa.null()))
    ]
    assert UserColumns.concat(parts).table()["a"].to_pylist() == [1.0, 0.5, None]
    mixed = UserColumns.concat([*parts, UserColumns.of(1, None, {"a": ["x"], "b": [True]})])
    assert mixed.table().to_pylist()[3] == {"a": "x", "b": "true"}


def test_uuids_are_ids():
    given_ids = [uuid.UUID(int=1), uuid.UUID(int=2)]
    subs = rc.Subscriptions.parse(SCHEMA, {given_ids[0]: "price = 1", given_ids[1]: "price = 2"})
    index = rc.open_index("scan", SCHEMA)
    index.insert(subs)
    assert index.match_one({"price": 2}).tolist() == [str(given_ids[1])]
    assert given_ids[0] in index
    assert index.delete([given_ids[0], uuid.UUID(int=3)]) == [str(uuid.UUID(int=3))]
