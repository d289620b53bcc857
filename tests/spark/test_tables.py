"""A table of matches that is kept up to date by merges is what matching everything anew would give."""

import numpy as np
import pytest

import rangecast as rc

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
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
