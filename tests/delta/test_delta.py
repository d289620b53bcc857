"""A store that follows a Delta table of subscriptions: each version once, bad rows rejected, nothing lost."""

import numpy as np
import pyarrow as pa
import pytest

import rangecast as rc

deltalake = pytest.importorskip("deltalake")
from rangecast.delta import follow_table  # noqa: E402

pytestmark = [pytest.mark.without_kernels, pytest.mark.once]
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "table")


@pytest.fixture
def store(tmp_path):
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    return rc.Store.open(tmp_path / "store", schema, index="scan")


def write(place, rows, **options):
    fields = [("id", pa.int64()), ("condition", pa.string()), ("owner", pa.string())]
    table = pa.Table.from_pylist(
        [dict(zip(("id", "condition", "owner"), row, strict=True)) for row in rows], schema=pa.schema(fields)
    )
    deltalake.write_deltalake(place, table, **{"configuration": FEED} | options)


def merge(place, rows):
    source = pa.Table.from_pylist([dict(zip(("id", "condition", "owner"), row, strict=True)) for row in rows])
    merger = deltalake.DeltaTable(place).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def held(store):
    subs = store.subscriptions()
    texts = subs.texts.to_list() if len(subs) else []
    owners = subs.payload["owner"].to_pylist() if len(subs) else []
    return {i: (t, o) for i, t, o in zip(subs.ids.values.tolist(), texts, owners, strict=True)}


def test_a_table_is_followed(store, place):
    write(place, [(1, "price < 5", "ann"), (2, "price > 9", "bob"), (3, "symbol = 'A'", None)])
    said = follow_table(store, place, payload=["owner"])
    assert (said.version, said.table_version, said.upserts, said.deletes) == (1, 0, 3, 0)
    assert held(store) == {1: ("price < 5", "ann"), 2: ("price > 9", "bob"), 3: ("symbol = 'A'", None)}
    assert follow_table(store, place, payload=["owner"]) == said._replace(upserts=0)
    # several versions of the table are one of the store
    merge(place, [(2, "price > 10", "bob"), (4, "symbol = 'B'", "dan")])
    deltalake.DeltaTable(place).delete("id = 3")
    merge(place, [(4, "symbol = 'C'", "dan")])
    said = follow_table(store, place, payload=["owner"])
    assert (said.version, said.table_version, said.upserts, said.deletes) == (2, 3, 2, 1)
    assert held(store) == {1: ("price < 5", "ann"), 2: ("price > 10", "bob"), 4: ("symbol = 'C'", "dan")}
    assert store.notes[f"delta:{place}"]["version"] == 3
    # what goes and comes again in one version stays
    write(place, [(1, "price < 6", "ann"), (9, "price = 1", "eve")], mode="overwrite")
    said = follow_table(store, place, payload=["owner"])
    assert held(store) == {1: ("price < 6", "ann"), 9: ("price = 1", "eve")}
    assert (said.upserts, said.deletes) == (2, 2)


def test_bad_rows_are_rejected_and_earlier_ones_stand(store, place):
    write(
        place,
        [(1, "price < 5", "ann"), (2, "price <", "bob"), (None, "price = 1", "x"), (7, "price = 7", "y")],
    )
    said = follow_table(store, place, payload=["owner"])
    assert held(store) == {1: ("price < 5", "ann"), 7: ("price = 7", "y")}
    assert [(row.id, row.reason.partition("\n")[0]) for row in said.rejected] == [
        ("2", "column 8: expected a value, got the end of the text"),
        (None, "a subscription must have an id, got null"),
    ]
    assert said.rejected[0].source == f"{place}, version 0"
    assert "price <" in said.rejected[0].raw
    merge(place, [(1, "price < 6", "ann")])
    merge(place, [(1, "price <<", "ann"), (2, "price < 2", "bob")])
    write(place, [(7, "price = 8", "y"), (7, "price = 9", "z")], mode="append")
    said = follow_table(store, place, payload=["owner"])
    assert held(store) == {1: ("price < 6", "ann"), 2: ("price < 2", "bob"), 7: ("price = 7", "y")}
    assert sorted(row.id for row in said.rejected) == ["1", "7", "7"]
    assert "got 2 rows of it in one version" in said.rejected[-1].reason


def test_bounds_texts_as_ids_and_versions_by_number(tmp_path, place):
    store = rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price")), index="scan")
    first = pa.table({"key": ["a", "b"], "price_low": [1, None], "price_high": [4, 9]})
    deltalake.write_deltalake(place, first, configuration=FEED)
    deltalake.write_deltalake(
        place, pa.table({"key": ["c"], "price_low": [7], "price_high": [8]}), mode="append"
    )
    assert follow_table(store, place, id="key", version=0).upserts == 2
    assert follow_table(store, place, id="key", version=0).upserts == 0
    assert follow_table(store, place, id="key").upserts == 1
    index = rc.load_index(store.snapshot())
    found = index.match([{"price": 3}, {"price": 8}]).sort()
    assert [found.row(k).tolist() for k in (0, 1)] == [["a", "b"], ["b", "c"]]
    with pytest.raises(rc.StorageError, match="has read its version 1, and the table ends at 0"):
        follow_table(store, place, id="key", version=0)
    with pytest.raises(rc.SubscriptionError, match="must have the id column 'id', got key, price_low"):
        follow_table(rc.Store.open(tmp_path / "other", store.schema), place)


def test_a_change_is_taken_once_wherever_it_ends(store, place, monkeypatch):
    write(place, [(k, f"price < {k}", "o") for k in range(5)])
    follow_table(store, place, payload=["owner"])
    deltalake.DeltaTable(place).delete("id < 2")
    real = type(store._log).append

    def torn(log, *args):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(store._log), "append", torn)
    with pytest.raises(KeyboardInterrupt):
        follow_table(store, place, payload=["owner"])
    monkeypatch.setattr(type(store._log), "append", real)
    again = rc.Store.open(store.path)
    assert (len(again), again.notes[f"delta:{place}"]["version"]) == (5, 0)
    # what the change says of the table and what it changes are there together, for others that follow too
    assert follow_table(again, place, payload=["owner"]).deletes == 2
    assert follow_table(store, place, payload=["owner"]).deletes == 0
    assert sorted(held(store)) == [2, 3, 4]


@pytest.mark.parametrize("feed", [True, False])
def test_many_random_changes(store, place, feed):
    draw = np.random.default_rng(3)
    living = {}
    write(place, [], configuration=FEED if feed else None)
    for _ in range(12):
        ids = draw.choice(12, 4, replace=False).tolist()
        rows = [(i, f"price < {int(draw.integers(50))}", "o") for i in ids[:3]]
        merge(place, rows)
        living |= {i: (text, "o") for i, text, _ in rows}
        if draw.random() < 0.5:
            deltalake.DeltaTable(place).delete(f"id = {ids[0]}")
            del living[ids[0]]
        if draw.random() < 0.3:
            deltalake.DeltaTable(place).optimize.compact()
        if draw.random() < 0.5:
            follow_table(store, place, payload=["owner"])
            assert held(store) == living
    follow_table(store, place, payload=["owner"])
    assert held(store) == living


def test_what_is_refused(store, place, tmp_path):
    with pytest.raises(rc.StorageError, match="cannot be read as a Delta table"):
        follow_table(store, place)
    deltalake.write_deltalake(place, pa.table({"id": [1], "condition": ["price < 5"]}))
    follow_table(store, place)
    table = deltalake.DeltaTable(place)
    table.delete("id = 1")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(rc.StorageError, match="what changed in the table cannot be read"):
        follow_table(store, place)
    deltalake.write_deltalake(str(tmp_path / "second"), pa.table({"id": [1], "condition": ["price < 5"]}))
    (tmp_path / "table").rename(tmp_path / "first")
    (tmp_path / "second").rename(tmp_path / "table")
    with pytest.raises(rc.StorageError, match=r"was filled from the table .*, and this is the table"):
        follow_table(store, place)
