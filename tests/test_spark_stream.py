"""Streams on Spark: each batch against one version, once, through crashes; clear refusals."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")

NOW = {"availableNow": True}


class World:
    """A store, a folder of event files, and where a stream writes to."""

    def __init__(self, spark, folder, index="scan"):
        self.spark = spark
        self.schema = int_schema(2)
        self.store = rc.Store.open(folder / "store", self.schema, index=index)
        self.subs = random_subscriptions(self.schema, 60, seed=1, bounded=0.95)
        self.store.insert(self.subs)
        self.events = folder / "events"
        self.events.mkdir()
        self.out, self.checkpoint = folder / "out", folder / "checkpoint"
        self.files = []

    def add_file(self, n=40):
        """One more file of events; their ids go on."""
        number = len(self.files)
        events = random_events(self.schema, n, seed=100 + number)
        first = sum(len(e) for e in self.files)
        columns = {"id": np.arange(first, first + n)}
        columns |= {
            name: pa.array([events.value(name, e) for e in range(n)], pa.int64())
            for name in self.schema.names
        }
        scratch = self.events / f".{number}"
        pq.write_table(pa.table(columns), scratch)
        os.rename(scratch, self.events / f"{number:04}.parquet")
        self.files.append(events)

    def frame(self, per_batch=1):
        reader = self.spark.readStream.schema("id long, a0 long, a1 long")
        return reader.option("maxFilesPerTrigger", per_batch).parquet(str(self.events))

    def run(self, **options):
        """Match all files that are there."""
        given = {"out": self.out, "checkpoint": self.checkpoint, "trigger": NOW} | options
        query = rs.match_stream(self.frame(), self.store, **given)
        query.awaitTermination()
        return query

    def expected(self, file, version):
        first = sum(len(e) for e in self.files[:file])
        index = rc.open_index("scan", self.schema)
        index.insert(self.store.subscriptions(version))
        rows, ids = index.match(self.files[file]).pairs()
        return sorted(zip((rows + first).tolist(), ids.tolist(), strict=True))

    def found(self):
        rows = rs.read_matches(self.spark, self.out).collect()
        return {n: sorted((r[0], r[1]) for r in rows if r.batch_id == n) for n in {r.batch_id for r in rows}}

    def check(self):
        """Every batch has the matches of one file under the version that it was committed with."""
        commits = rs.committed(self.out)
        assert [c.batch for c in commits] == list(range(len(self.files)))
        expected = {c.batch: self.expected(c.batch, c.version) for c in commits}
        assert self.found() == {n: pairs for n, pairs in expected.items() if pairs}
        assert [c.pairs for c in commits] == [len(pairs) for pairs in expected.values()]
        assert [c.events for c in commits] == [len(e) for e in self.files]
        return commits


@pytest.fixture
def world(spark, tmp_path):
    return World(spark, tmp_path)


def test_each_batch_sees_the_subscriptions_of_its_time(world):
    world.add_file()
    world.add_file()
    world.run()
    world.store.delete(world.subs.ids.values[:30])
    world.add_file()
    world.run()
    new = random_subscriptions(world.schema, 90, seed=2, bounded=0.95)
    world.store.insert(new)
    world.add_file()
    world.run()
    assert [c.version for c in world.check()] == [1, 1, 2, 3]
    assert not list(world.out.glob("_rangecast/tmp/*"))


def test_a_batch_that_is_run_again_takes_its_pin(world):
    world.add_file()
    world.run()
    world.add_file()
    world.run()
    # as if the driver had died before the commit of batch 1, with half of its output written
    commits = world.out / "_rangecast" / "commits.jsonl"
    lines = commits.read_bytes().splitlines(keepends=True)
    commits.write_bytes(lines[0] + lines[1][:20])
    (world.checkpoint / "commits" / "1").unlink()
    (world.checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    for path in (world.out / "batch_id=1").iterdir():
        path.write_bytes(b"torn")
    (world.out / "_rangecast" / "tmp" / "1-dead").mkdir(parents=True)
    world.store.delete(world.subs.ids)
    assert set(world.found()) == {0}
    world.run()
    assert [c.version for c in world.check()] == [1, 1]
    # and as if it had died after that commit, before Spark's own: nothing is done again
    before = {path: path.stat().st_mtime_ns for path in world.out.rglob("*.parquet")}
    (world.checkpoint / "commits" / "1").unlink()
    (world.checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    world.run()
    assert before == {path: path.stat().st_mtime_ns for path in world.out.rglob("*.parquet")}
    world.add_file()
    world.run()
    assert [c.version for c in world.check()] == [1, 1, 2]


def test_of_two_pins_the_first_counts(tmp_path):
    from rangecast.spark.ledger import Commit, Ledger, Pin

    ledger = Ledger(str(tmp_path / "c"), str(tmp_path / "o"))
    assert ledger.pin(3) is None
    assert ledger.put_pin(Pin(3, "s", 7)).version == 7
    assert ledger.put_pin(Pin(3, "s", 8)).version == 7
    assert ledger.pin(3) == Pin(3, "s", 7)
    (tmp_path / "o" / "_rangecast").mkdir(parents=True)
    assert ledger.last() == -1
    path = tmp_path / "o" / "_rangecast" / "commits.jsonl"
    ledger.commit(Commit(0, 1, seconds={"match": 0.25}))
    line = path.read_bytes()
    rest = [line.replace(b'"batch": 0', b'"batch": %d' % batch) for batch in range(1, 1000)]
    path.write_bytes(line + b"".join(rest))
    assert ledger.last() == 999
    assert [c.batch for c in ledger.commits()] == list(range(1000))
    assert 100 < len(ledger.recent()) < 1000
    with open(path, "ab") as file:
        file.write(b'{"batch": 1000, "ver')
    assert ledger.last() == 999
    ledger.commit(Commit(1000, 5))
    assert [c.batch for c in ledger.recent()][-2:] == [999, 1000]


def test_a_function_as_sink(world, tmp_path):
    world.add_file()
    world.add_file()
    target = tmp_path / "delivered"

    def deliver(matches, batch):
        matches.write.mode("overwrite").parquet(f"{target}/{batch}")
        matches.count()

    world.run(out=None, sink=deliver)
    for file in range(2):
        found = pq.read_table(target / str(file)).to_pylist()
        assert sorted((r["event_id"], r["subscription_id"]) for r in found) == world.expected(file, 1)
    commits = rs.committed(world.checkpoint)
    assert [(c.batch, c.version) for c in commits] == [(0, 1), (1, 1)]
    assert not list((world.checkpoint / "_rangecast").glob("tmp/*"))


def test_forms_kept_columns_and_empty_batches(world, capfd):
    world.add_file()
    world.add_file(n=0)
    world.run(form="counts", keep=["a1"], outer=True)
    rows = rs.read_matches(world.spark, world.out).collect()
    expected = world.expected(0, 1)
    counts = {e: sum(1 for pair in expected if pair[0] == e) for e in range(40)}
    assert {r.event_id: r.matches for r in rows} == counts
    assert [r.a1 for r in sorted(rows)] == [world.files[0].value("a1", e) for e in range(40)]


def refused(world, message, **options):
    with pytest.raises(rc.RangecastError, match=message):
        world.run(**options)


def test_refusals(world, tmp_path, spark):
    world.add_file()
    world.run()
    other = rc.Store.open(tmp_path / "other", rc.Schema(rc.Int("a0"), rc.Int("a1")))
    other.insert(rc.Subscriptions.parse(other.schema, {1: "a0 < 5"}))
    mine, world.store = world.store, other
    refused(world, r"belongs to the store .*store, and .*other is another one and another schema; give that")
    world.store = mine
    refused(world, "was begun with fields .* got .*a0 long.*; to change that, begin anew", keep=["a0"])
    refused(world, "was begun with sink parquet, got console", sink="console", out=None)
    refused(world, "is empty, but the stream of the checkpoint .* has written", out=tmp_path / "elsewhere")
    refused(world, "holds the matches of a stream whose checkpoint is", checkpoint=tmp_path / "new")
    refused(world, r"out must be a folder that driver and workers see as files, got s3://", out="s3://x/y")
    refused(world, "sink must be 'parquet' or 'console' or a function, got 'kafka'", sink="kafka")
    refused(world, "needs a folder for the matches", out=None)
    refused(world, "out= goes with sink='parquet'", sink=print)
    refused(world, "no column 'key'", event_id="key")
    refused(world, "holds other files", checkpoint=tmp_path / "new", out=world.events)
    with pytest.raises(rc.EventError, match="takes a streaming DataFrame"):
        rs.match_stream(spark.range(3), mine, out=world.out, checkpoint=world.checkpoint)
    foreign = tmp_path / "foreign"
    (foreign / "offsets").mkdir(parents=True)
    refused(world, "is the checkpoint of another query", checkpoint=foreign, out=tmp_path / "new")
    empty = rc.Store.open(tmp_path / "empty", world.schema)
    world.store = empty
    refused(world, "has no subscription yet, .* text_ids=True", checkpoint=tmp_path / "n", out=tmp_path / "o")
    with pytest.raises(rc.OptionError, match="holds no matches of a stream"):
        rs.read_matches(spark, tmp_path)


def test_a_version_that_is_gone(world):
    world.add_file()
    world.run()
    world.add_file()
    from rangecast.spark.ledger import Ledger, Pin

    ledger = Ledger(str(world.checkpoint), str(world.out))
    ledger.put_pin(Pin(1, world.store.id, 1))
    world.store.delete(world.subs.ids.values[:5])
    world.store.compact()
    refused(world, r"batch 1 was begun with version 1 .* is gone \(the oldest is 2\).* delete .*pins/1.json")
    (world.checkpoint / "_rangecast" / "pins" / "1.json").unlink()
    world.run()
    assert [c.version for c in rs.committed(world.out)] == [1, 2]


def test_output_and_checkpoint_of_different_age(world):
    world.add_file()
    world.add_file()
    world.run()
    saved = json.loads((world.out / "_rangecast" / "stream.json").read_bytes())
    assert saved["checkpoint"] == str(world.checkpoint)
    (world.out / "_rangecast" / "commits.jsonl").unlink()
    world.add_file()
    with pytest.raises(Exception, match=r"has batches up to -1, but Spark goes on with 2: output is missing"):
        world.run()


def test_a_store_that_was_replaced(world):
    world.add_file()
    world.run()
    shutil.rmtree(world.store.path)
    world.store = rc.Store.open(world.store.path, world.schema, index="scan")
    world.store.insert(world.subs)
    refused(world, "belongs to the store .* is another one; give that store")
