"""Stripes: built without a whole index, brought forward by changes, the same matches as the whole gives."""

import importlib
import shutil

import numpy as np
import pyarrow as pa
import pytest

import rangecast as rc
from strategies import int_schema, random_events, random_subscriptions

pytest.importorskip("pyspark")

from rangecast.model.ids import Ids
from rangecast.spark.stripes import stripe_of
from rangecast.store.home import home_of
from rangecast.store.versions import new_stem, put_fragment

stripe_files = importlib.import_module("rangecast.spark.stripes")


class HereSession:
    """Does what Spark would have workers do, in this process."""

    def range(self, start, end, step, n):
        self.n = end
        return self

    schema = None

    def mapInArrow(self, work, fields):
        batches = [pa.record_batch({"id": [k]}) for k in range(self.n)]
        list(work(iter(batches)))
        return self

    def collect(self):
        return []


def subs_with(schema, ids, seed):
    drawn = random_subscriptions(schema, len(ids), seed=seed, bounded=0.8)
    return rc.Subscriptions.of_boxes(schema, list(ids), drawn.boxes)


@pytest.fixture
def store(tmp_path):
    """Four versions: a load in fragments, a replacement of many, deletes, a late one."""
    store = rc.Store.open(tmp_path / "store", int_schema(3), index="scan")
    home_of(store.path / "fragments").prepare()
    stem = new_stem()
    thirds = [subs_with(store.schema, range(k, 300, 3), seed=k) for k in range(3)]
    store.apply_fragments(
        [put_fragment(home_of(store.path), stem, "scan", Ids.of([]), some) for some in thirds]
    )
    store.insert(subs_with(store.schema, range(100, 160), seed=7))
    store.delete(range(140, 180))
    store.insert(subs_with(store.schema, range(290, 320), seed=8))
    return store


def pairs_by_stripe(store, files, version, events, follower=False):
    """What the stripes find, each for its own events."""
    stripes = stripe_of(files.cuts, events, store.schema)
    found = []
    for stripe in np.unique(stripes).tolist():
        rows = np.flatnonzero(stripes == stripe)
        index = (
            stripe_files.followed_stripe(str(store.path), files, stripe).at(version)
            if follower
            else rc.load_index(files.path(stripe))
        )
        at, ids = index.match(events.select(rows)).pairs()
        found += zip(rows[at].tolist(), ids.tolist(), strict=True)
    return sorted(found)


def right(store, version, events):
    rows, ids = store.index(version).match(events).pairs()
    return sorted(zip(rows.tolist(), ids.tolist(), strict=True))


@pytest.mark.parametrize("n", [2, 6])
def test_stripes_from_the_log_alone(store, n):
    events = random_events(store.schema, 300, seed=3)
    files = stripe_files.prepare_stripes(HereSession(), store, 4, n)
    assert store.snapshots() == []
    assert files.cuts.n > 1
    assert sorted(path.name for path in home_of(files.folder).path.iterdir())[-1] == "cuts.json"
    assert pairs_by_stripe(store, files, 4, events) == right(store, 4, events)
    # a second time they are there
    assert stripe_files.prepare_stripes(None, store, 4, n).folder == files.folder


def test_small_changes_are_cut_together(store, monkeypatch):
    monkeypatch.setattr(stripe_files, "_AT_ONCE", 120)
    assert [len(g) for g in stripe_files._grouped(store.pieces(0, 4))] == [1, 1, 1, 2, 1]
    events = random_events(store.schema, 300, seed=4)
    files = stripe_files.prepare_stripes(HereSession(), store, 3, 3)
    assert pairs_by_stripe(store, files, 3, events) == right(store, 3, events)


def test_stripes_follow_the_store(store, leg):
    events = random_events(store.schema, 40 if leg == "nojit" else 300, seed=5)
    first = stripe_files.prepare_stripes(HereSession(), store, 1, 4)
    for version in (1, 2, 3, 4, 2):
        expected = right(store, version, events)
        assert pairs_by_stripe(store, first, version, events, follower=True) == expected
    # those of a later version are made from them, with the same cuts
    last = stripe_files.prepare_stripes(HereSession(), store, 4, 4)
    assert [c.tolist() for c in last.cuts.at] == [c.tolist() for c in first.cuts.at]
    assert store.snapshots() == []
    assert pairs_by_stripe(store, last, 4, events) == right(store, 4, events)
    assert stripe_files.newest_stripes(store, 4).version == 4
    assert stripe_files.newest_stripes(store, 3, 4).version == 1
    assert stripe_files.newest_stripes(store, 3, 5) is None
    with pytest.raises(rc.StorageError, match="has stripes of version 4, got version 3"):
        stripe_files.followed_stripe(str(store.path), last, 0).at(3)


def test_a_whole_snapshot_is_taken_where_there_is_one(store):
    events = random_events(store.schema, 200, seed=6)
    store.compact()
    files = stripe_files.prepare_stripes(HereSession(), store, 4, 3)
    assert pairs_by_stripe(store, files, 4, events) == right(store, 4, events)
    with pytest.raises(rc.OptionError, match="at least 2, got 1"):
        stripe_files.prepare_stripes(HereSession(), store, 4, 1)


def test_nobody_makes_a_cut_store_whole_by_himself(store):
    stripe_files.prepare_stripes(HereSession(), store, 4, 3)
    assert store.publish_if_due(share=0.0) is None
    assert store.snapshots() == []


def test_words_that_came_later(tmp_path):
    schema = rc.Schema(rc.Category("symbol"), rc.Int("price"))
    store = rc.Store.open(tmp_path / "store", schema, index="scan")
    nothing = stripe_files.prepare_stripes(HereSession(), store, 0, 2)
    assert len(rc.load_index(nothing.path(0))) == 0
    # a version of words alone, as ingest makes one
    store.learn({"symbol": ["s1", "s0"]})
    texts = {k: f"symbol = 's{k % 40}' and price < {k}" for k in range(200)}
    store.insert(rc.Subscriptions.parse(store.schema, texts))
    shutil.rmtree(store.path / "snapshots")
    (store.path / "snapshots").mkdir()
    files = stripe_files.prepare_stripes(HereSession(), store, 2, 3)
    assert store.snapshots() == []
    store.insert(rc.Subscriptions.parse(store.schema, {k: f"symbol = 't{k}'" for k in range(190, 230)}))
    rows = [{"symbol": f"{a}{k}", "price": k % 7} for a in "st" for k in range(230)]
    events = rc.Events.from_rows(store.schema, rows)
    for version in (2, 3):
        assert pairs_by_stripe(store, files, version, events, follower=True) == right(store, version, events)


@pytest.mark.spark
def test_ingest_and_match_without_a_whole_index(spark, tmp_path, monkeypatch):
    from rangecast import spark as rs

    # what is large is a matter of this driver
    monkeypatch.setattr(importlib.import_module("rangecast.spark.ingest"), "_IN_RECORD", 100)
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    rows = [
        (k % 900, k, f"price between {k % 500} and {k % 500 + 9} and symbol = 's{k % 5}'")
        for k in range(1_000)
    ]
    rows += [(k, 2_000, None) for k in range(50)] + [(7, 3_000, "price <")]
    frame = spark.createDataFrame(rows, "id long, at long, condition string").repartition(3)
    frame = frame.selectExpr("*", "if(condition is null, 'delete', 'upsert') as op")
    # behind a join nobody knows how many rows come, so workers parse them
    frame = frame.join(spark.range(1_000), "id")
    # else Spark puts so few rows into one task, which writes one fragment
    together = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(together, "false")
    try:
        report = rs.ingest(frame, schema, tmp_path / "store", sequence="at", op="op", stripes=3)
    finally:
        spark.conf.unset(together)
    assert (report.rows, report.accepted, report.deleted) == (1_051, 850, 50)
    assert (report.superseded, report.rejected_rows) == (150, 1)
    store = rc.Store.open(tmp_path / "store")
    assert (
        len(list((store.path / "fragments").iterdir()))
        == len(store.pieces(report.version - 1, report.version))
        > 1
    )
    assert store.snapshots() == []
    assert not list((store.path / "staging").iterdir())
    wanted = {k % 900: text for k, _, text in rows[:1_000]}
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {k: text for k, text in wanted.items() if k >= 50}))
    events = [(k, k % 511, f"s{k % 6}") for k in range(2_000)]
    table = rc.Events.from_arrays(schema, {"price": [e[1] for e in events], "symbol": [e[2] for e in events]})
    expected = sorted(zip(*(column.tolist() for column in index.match(table).pairs()), strict=True))
    given = spark.createDataFrame(events, "id long, price long, symbol string")
    assert "none; the workers build stripes from the log" in rs.explain(given, store)
    assert sorted(map(tuple, rs.match(given, store).collect())) == expected
    # changes later on, again without a whole index
    store.delete([60, 61])
    expected = [pair for pair in expected if pair[1] not in (60, 61)]
    assert sorted(map(tuple, rs.match(given, store).collect())) == expected
    assert store.snapshots() == []
    assert sorted(map(tuple, rs.match(given, store, mode="whole").collect())) == expected
