"""A table of matches that is kept up to date by merges is what matching everything anew would give."""

import datetime as dt
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
KEYS = ("event_id", "subscription_id")


def subscriptions(schema, ids, draw, text_ids):
    """Random ranges, some on a string, each with an owner."""
    rows = []
    for own in ids:
        low = int(draw.integers(0, 20))
        condition = f"price between {low} and {low + int(draw.integers(0, 8))}"
        if draw.random() < 0.4:
            condition += f" and symbol = '{'ABCD'[draw.integers(4)]}'"
        row = {"id": f"s{own}" if text_ids else own, "condition": condition}
        rows.append(row | {"owner": ["ann", "bob", None][draw.integers(3)], "rank": int(draw.integers(3))})
    return rc.Subscriptions.from_rows(schema, rows, payload=["owner", "rank"])


def merged(table, changes):
    """What MERGE makes of it, with each change checked against what is there."""
    keys = [tuple(row[key] for key in KEYS) for row in changes]
    assert len(set(keys)) == len(keys), "one row for each pair"
    for key, row in zip(keys, changes, strict=True):
        assert (key in table) == (row["change"] != "insert"), row
        if row["change"] == "delete":
            gone = table.pop(key)
            assert gone == {name: row[name] for name in gone}, "a row that goes has what it had"
            continue
        new = {name: value for name, value in row.items() if name not in (*KEYS, "change", "version")}
        assert table.get(key) != new, "nothing is said of what stays as it was"
        table[key] = new
    return table


def collected(frame):
    return [row.asDict() for row in frame.collect()]


def expected(store, version, rows):
    subs = store.subscriptions(version)
    index = rc.open_index("scan", subs.schema)
    index.insert(subs)
    payload = dict(zip(subs.ids.arrow().to_pylist(), subs.payload.to_pylist(), strict=True))
    found = index.match([{"price": row["price"], "symbol": row["symbol"]} for row in rows])
    out = {}
    for k, row in enumerate(rows):
        for own in found.row(k).tolist():
            values = {"day": row["day"], "owner": payload[own]["owner"], "rank": payload[own]["rank"]}
            out[row["id"], own] = values
    return out


@pytest.mark.parametrize(("text_ids", "nights"), [(False, 3), (True, 2)])
def test_merging_night_by_night_is_matching_everything_anew(spark, tmp_path, text_ids, nights):
    draw = np.random.default_rng(4 + text_ids)
    schema = rc.Schema(rc.Int("price", 0, 30), rc.Category("symbol"))
    store = rc.Store.open(tmp_path / "store", schema, index="scan")
    store.insert(subscriptions(schema, range(40), draw, text_ids))
    rows, table = [], {}
    fields = "id long, price long, symbol string, day string"

    def frame(some):
        return spark.createDataFrame([tuple(row.values()) for row in some], fields)

    options = {"event_id": "id", "keep": ["day"], "payload": ["owner", "rank"]}
    for night in range(nights):
        first = len(rows)
        fresh = [
            {
                "id": first + k,
                "price": None if draw.random() < 0.1 else int(draw.integers(0, 30)),
                "symbol": ["A", "B", "E", None][draw.integers(4)],
                "day": f"day-{night}",
            }
            for k in range(30)
        ]
        refresh = rs.begin_refresh(store, "matches", name=f"night-{night}")
        known = frame(rows) if rows else None
        changes = rs.table_changes(spark, refresh, new=frame(fresh), known=known, **options)
        assert changes.columns == [*KEYS, "day", "owner", "rank", "change", "version"]
        found = collected(changes)
        assert {row["version"] for row in found} <= {refresh.version}
        merged(table, found)
        rows += fresh
        assert table == expected(store, refresh.version, rows)
        if night == 1:
            # it broke off before it was finished, and the store went on meanwhile: the same again
            store.delete(store.subscriptions().ids.values[:3] if not text_ids else ["s1", "s2", "s3"])
            again = rs.begin_refresh(store, "matches", name="night-1")
            assert (again.since, again.version) == (refresh.since, refresh.version)
            twice = rs.table_changes(spark, again, new=frame(fresh), known=frame(rows[:first]), **options)
            assert sorted(map(str, twice.collect())) == sorted(str(row) for row in changes.collect())
            with pytest.raises(
                rc.OptionError, match=r"the refresh 'night-1' of the table .* is not finished"
            ):
                rs.begin_refresh(store, "matches", name="night-2")
        refresh.finish()
        with pytest.raises(rc.OptionError, match=f"the refresh 'night-{night}' of the table .* is finished"):
            rs.begin_refresh(store, "matches", name=f"night-{night}")
        # some go, some are new, some change, and one comes and goes before anybody looks
        ids = draw.choice(60, 12, replace=False).tolist()
        store.insert(subscriptions(schema, ids[:8], draw, text_ids))
        store.delete([f"s{own}" if text_ids else own for own in ids[6:]])
        store.compact()
    assert [hold.name for hold in store.holds()] == ["table-matches"]
    assert not list((tmp_path / "store").glob("tables/*/*"))
    # nothing has happened, and everything goes
    refresh = rs.begin_refresh(store, "matches", name="last")
    merged(
        table,
        [row.asDict() for row in rs.table_changes(spark, refresh, known=frame(rows), **options).collect()],
    )
    refresh.finish()
    refresh = rs.begin_refresh(store, "matches", name="none")
    assert rs.table_changes(spark, refresh, known=frame(rows), **options).collect() == []
    refresh.finish()
    store.delete(store.subscriptions().ids.arrow().to_pylist())
    refresh = rs.begin_refresh(store, "matches", name="empty")
    changes = [
        row.asDict() for row in rs.table_changes(spark, refresh, known=frame(rows), **options).collect()
    ]
    assert merged(table, changes) == {}


def test_what_is_refused(spark, tmp_path):
    store = rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price")))
    store.insert(rc.Subscriptions.parse(store.schema, {1: "price < 5"}))
    with pytest.raises(rc.OptionError, match="a refresh must have a name"):
        rs.begin_refresh(store, "matches", name="")
    refresh = rs.begin_refresh(tmp_path / "store", "matches", name="one")
    events = spark.createDataFrame([(1, 2)], "id long, price long")
    for words, options in (
        ("needs events", {}),
        ("form must be 'pairs'", {"new": events, "form": "lists"}),
        ("must differ, got 'price' twice", {"new": events, "keep": ["price"], "payload": ["price"]}),
        ("must differ, got 'change' twice", {"new": events, "payload": ["change"]}),
        ("no payload 'owner'", {"new": events, "payload": ["owner"]}),
    ):
        with pytest.raises(rc.OptionError, match=words):
            rs.table_changes(spark, refresh, **options)


def test_the_recipe_runs(spark, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    nightly, made = (block.replace("/data", str(tmp_path)) for block in blocks[:2])
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    alerts = str(tmp_path / "subscriptions")
    feed = {"delta.enableChangeDataFeed": "true"}
    rows = [
        {"id": 1, "condition": "price < 5", "owner": "ann"},
        {"id": 2, "condition": "symbol = 'B'", "owner": "bob"},
        {"id": 3, "condition": "price > 7", "owner": "eve"},
    ]
    deltalake.write_deltalake(alerts, pa.Table.from_pylist(rows), configuration=feed)
    exec(made, {"DeltaTable": deltalake.DeltaTable})
    draw = np.random.default_rng(2)
    first = dt.date.today() - dt.timedelta(days=3)
    events = {}
    for night in range(3):
        day = first + dt.timedelta(days=night)
        for k in range(6):
            symbol = ["A", "B"][draw.integers(2)]
            events[10 * night + k] = {"price": int(draw.integers(10)), "symbol": symbol, "day": day}
        of_day = {i: event for i, event in events.items() if event["day"] == day}
        folder = tmp_path / "events" / f"day={day}"
        folder.mkdir(parents=True)
        columns = {name: [event[name] for event in of_day.values()] for name in ("price", "symbol")}
        pq.write_table(pa.table({"id": list(of_day), **columns}), folder / "part.parquet")
        code = re.sub(r"^day = .*$", f"day = dt.date.fromisoformat('{day}')", nightly, flags=re.MULTILINE)
        if night == 1:
            # it breaks off after the merge, before it was finished
            with pytest.raises(ZeroDivisionError):
                exec(
                    compile(code.replace("refresh.finish()", "1 / 0"), str(PAGE), "exec"), {"schema": schema}
                )
            more = [{"id": 4, "condition": "price >= 0", "owner": "dan"}]
            deltalake.write_deltalake(alerts, pa.Table.from_pylist(more), mode="append")
        exec(code, {"schema": schema})
        store = rc.Store.open(tmp_path / "alerts")
        (held,) = store.holds()
        index = rc.open_index("scan", store.schema)
        index.insert(store.subscriptions(held.version))
        found = index.match([{"price": e["price"], "symbol": e["symbol"]} for e in events.values()])
        right = {(i, own) for k, i in enumerate(events) for own in found.row(k).tolist()}
        table = deltalake.DeltaTable(str(tmp_path / "matches")).to_pyarrow_table().to_pylist()
        assert {(row["event_id"], row["subscription_id"]) for row in table} == right
        assert len(table) == len(right) > 0
        owners = dict(zip([1, 2, 3, 4], ["ann", "bob" if night == 0 else "bea", "eve", "dan"], strict=True))
        for row in table:
            assert row["owner"] == owners[row["subscription_id"]]
            assert row["day"] == events[row["event_id"]]["day"]
        changes = deltalake.DeltaTable(alerts)
        if night == 0:
            changes.update({"owner": "'bea'"}, predicate="id = 2")
            changes.update({"condition": "'price > 8'"}, predicate="id = 3")
        else:
            changes.delete("id = 1")
