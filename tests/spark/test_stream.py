"""Streams on Spark: each batch against one version, once, through crashes; clear refusals."""

import datetime as dt
import json
import logging
import os
import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader  # noqa: E402

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
        # Spark takes files by their time, and those of one moment in any order
        os.utime(scratch, (1_700_000_000 + number,) * 2)
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


def test_stripes_follow_the_subscriptions(world):
    """The same as without stripes, with no whole index anywhere; much that changed makes stripes anew."""
    for number in range(4):
        world.add_file()
        if number:
            world.store.delete(world.subs.ids.values[10 * number : 10 * number + 5])
            world.store.insert(random_subscriptions(world.schema, 40, seed=number, bounded=0.95))
        world.run(stripes=3)
    assert [c.version for c in world.check()] == [1, 3, 5, 7]
    assert world.store.snapshots() == []
    with pytest.raises(rc.OptionError, match="stripes must be at least 2"):
        world.run(stripes=1)
    with pytest.raises(rc.OptionError, match="stripes go with one version per batch"):
        world.run(stripes=3, version="event-time", time="a0")


def test_stripes_reject_what_cannot_be_matched(world):
    events = world.spark.readStream.format("rate").option("rowsPerSecond", 30).load()
    events = events.selectExpr("value as id", "if(value = 7, 'seven', cast(value % 20 as string)) as a0")
    events = events.selectExpr("*", "id % 17 as a1")
    every = {"processingTime": "200 milliseconds"}
    query = rs.match_stream(
        events, world.store, out=world.out, checkpoint=world.checkpoint, trigger=every, stripes=3
    )
    deadline = time.monotonic() + 120
    while query.isActive and sum(c.events for c in rs.committed(world.out)) < 40:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    query.stop()
    n = sum(c.events for c in rs.committed(world.out))
    [rejected] = rs.read_rejects(world.spark, world.out).collect()
    assert (rejected.id, rejected.reason) == ("7", "'a0' is an int, got the string 'seven'")
    ids = np.delete(np.arange(n), 7)
    rows = rs.read_matches(world.spark, world.out).collect()
    expected = expected_pairs(world, ids, {"a0": ids % 20, "a1": ids % 17})
    assert sorted((r.event_id, r.subscription_id) for r in rows) == expected


@pytest.mark.parametrize("stripes", [None, 3])
def test_a_batch_that_is_run_again_takes_its_pin(world, stripes):
    world.add_file()
    world.run(stripes=stripes)
    world.add_file()
    world.run(stripes=stripes)
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
    world.run(stripes=stripes)
    assert [c.version for c in world.check()] == [1, 1]
    # and as if it had died after that commit, before Spark's own: nothing is done again
    before = {path: path.stat().st_mtime_ns for path in world.out.rglob("*.parquet")}
    (world.checkpoint / "commits" / "1").unlink()
    (world.checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    world.run(stripes=stripes)
    assert before == {path: path.stat().st_mtime_ns for path in world.out.rglob("*.parquet")}
    world.add_file()
    world.run(stripes=stripes)
    assert [c.version for c in world.check()] == [1, 1, 2]


def test_of_two_pins_the_first_counts(tmp_path):
    from rangecast.durable.documents import seal, unseal
    from rangecast.spark.stream.ledger import Commit, Ledger, Pin

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
    first = unseal(line, path)
    rest = [seal({**first, "batch": batch}) + b"\n" for batch in range(1, 1000)]
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


def test_a_listener_hears_of_every_batch(world):
    for _ in range(3):
        world.add_file()
    heard = []
    query = rs.match_stream(
        world.frame(), world.store, out=world.out, checkpoint=world.checkpoint, trigger=NOW
    )
    metrics = rs.watch_stream(world.spark, query, world.out, heard.append)
    query.awaitTermination()
    assert metrics.wait(30)
    assert metrics.error is None
    commits = world.check()
    # the first may have been over before it listened
    assert [status.batch for status in heard] in ([0, 1, 2], [1, 2])
    assert heard[-1].events == 120
    assert heard[-1].pairs == sum(c.pairs for c in commits)
    assert heard[-1].events_per_second > 0
    assert 0 < heard[-1].busy <= 1
    assert heard[-1].trigger["triggerExecution"] > 0
    assert set(heard[-1].disk) == {"output", "checkpoint", "store"}
    world.store.delete(world.subs.ids.values[:3])
    now = rs.stream_status(world.out)
    assert (now.batch, now.version, now.lag, now.running) == (2, 1, 1, None)
    with pytest.raises(rc.OptionError, match="no stream has written here"):
        rs.stream_status(world.events)


def texts_world(world, name, lines, **options):
    (world.events / name).write_text("".join(f"{line}\n" for line in lines))
    os.utime(world.events / name, (1_000_000_000,) * 2)
    return rs.read_events(world.spark, world.events, world.store.path, **options)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_bad_events_are_set_aside_and_stop_nothing(world, kind):
    lines = {
        "jsonl": [
            '{"id": 1, "a0": 5, "a1": 7}',
            '{"id": 2, "a0": 5.5}',
            '{"id": "x", "a0": 5}',
            '{"a0": 5}',
            '{"id": 6, "a0": ',
            '{"id": 7, "a0": null, "a1": "8"}',
        ],
        "csv": ["id,a0,a1", "1,5,7", "2,5.5,", "x,5,", ",5,", "6,5,6,7", "7,,8"],
    }[kind]
    world.files = [rc.Events.from_rows(world.schema, [{"a0": 5, "a1": 7}, {"a1": 8}])]
    events = texts_world(world, f"a 1%.{kind}", lines, id_type="int64")
    rs.match_stream(
        events, world.store, out=world.out, checkpoint=world.checkpoint, trigger=NOW
    ).awaitTermination()
    matches = rs.read_matches(world.spark, world.out)
    assert matches.schema["event_id"].dataType.simpleString() == "bigint"
    ids = {0: 1, 1: 7}
    assert {(r[0], r[1]) for r in matches.collect()} == {(ids[e], s) for e, s in world.expected(0, 1)}
    rows = rs.read_rejects(world.spark, world.out).collect()
    assert {(r.source, r.batch_id) for r in rows} == {(str(world.events / f"a 1%.{kind}"), 0)}
    value, unread = {
        "jsonl": ("the number 5.5", "a line must be a JSON object: Expecting value at character 17"),
        "csv": ("the string '5.5'", "a row must have 3 fields, got 4"),
    }[kind]
    assert sorted((r.row, r.line, r.id, r.reason) for r in rows) == [
        (2, 2 + (kind == "csv"), "2", f"'a0' is an int, got {value}"),
        (3, 3 + (kind == "csv"), "x", "an event's id must be a whole number in this run, got the string 'x'"),
        (4, 4 + (kind == "csv"), None, "an event must have an id, got null"),
        (5, 5 + (kind == "csv"), None, unread),
    ]
    assert {r.raw for r in rows} == set(lines[1 + (kind == "csv") : 5 + (kind == "csv")])
    (commit,) = rs.committed(world.out)
    assert (commit.events, commit.rejected) == (6, 4)


def test_texts_that_spark_has_read_and_a_file_of_something_else(world):
    """A DataFrame of texts is taken too: what its reader could not read is in its column for that."""
    (world.events / "a b.jsonl").write_text('{"id": 1, "a0": "5", "a1": "7"}\n{"id": 2, "a0": "x"}\n{\n')
    reader = world.spark.readStream.schema("id long, a0 string, a1 string, _corrupt_record string")
    world.files = [rc.Events.from_rows(world.schema, [{"a0": 5, "a1": 7}])]
    query = rs.match_stream(
        reader.json(str(world.events)),
        world.store,
        out=world.out,
        checkpoint=world.checkpoint,
        trigger=NOW,
    )
    query.awaitTermination()
    found = {(r[0], r[1]) for r in rs.read_matches(world.spark, world.out).collect()}
    assert found == {(1, s) for _, s in world.expected(0, 1)}
    rows = sorted(rs.read_rejects(world.spark, world.out).collect(), key=lambda row: row.raw)
    assert {row.source for row in rows} == {str(world.events / "a b.jsonl")}
    assert [(row.row, row.id, row.reason) for row in rows] == [
        (None, None, "the line cannot be read"),
        (None, "2", "'a0' is an int, got the string 'x'"),
    ]
    assert rows[0].raw == "{"


def test_a_file_that_holds_no_events_is_one_rejected_row(world, tmp_path):
    events = texts_world(world, "a.csv", ["id,a0,a1", "1,5,7"])
    (world.events / "b.csv").write_text("id,a0\n2,5\n")
    rs.match_stream(
        events, world.store, out=world.out, checkpoint=world.checkpoint, trigger=NOW
    ).awaitTermination()
    (row,) = rs.read_rejects(world.spark, world.out).collect()
    assert (row.source, row.row, row.id) == (str(world.events / "b.csv"), None, None)
    assert row.reason == f"{world.events / 'b.csv'}: there is no column 'a1', only id, a0"


def test_files_of_events_that_cannot_be_told(world, tmp_path):
    def read(**options):
        return rs.read_events(world.spark, world.events, world.store, **options)

    with pytest.raises(rc.OptionError, match="no file yet to tell the format by; say format="):
        read()
    with pytest.raises(rc.OptionError, match="first file must be there to tell the columns of csv"):
        read(format="csv")
    with pytest.raises(rc.OptionError, match="events must be a folder that files arrive in"):
        rs.read_events(world.spark, tmp_path / "none", world.store)
    assert read(format="jsonl", keep=["note"]).columns == ["rangecast_path"]
    (world.events / "a.csv").write_text("id,a0\n1,2\n")
    with pytest.raises(rc.EventError, match="no column 'a1', only id, a0"):
        read()


def expected_pairs(world, ids, columns):
    """What the library finds for events that came from somewhere else than files."""
    index = rc.open_index("scan", world.schema)
    index.insert(world.subs)
    rows, found = index.match(rc.Events.from_arrays(world.schema, columns)).pairs()
    return sorted(zip(np.asarray(ids)[rows].tolist(), found.tolist(), strict=True))


def test_a_stream_from_rate(world):
    """A source of Spark's own that has no files; that it has none is not reported as an error."""
    reported = []
    handler = logging.Handler()
    handler.emit = reported.append
    logging.getLogger("DataFrameQueryContextLogger").addHandler(handler)
    events = world.spark.readStream.format("rate").option("rowsPerSecond", 30).load()
    events = events.selectExpr("value as id", "value % 20 as a0", "value % 17 as a1")
    every = {"processingTime": "200 milliseconds"}
    query = rs.match_stream(events, world.store, out=world.out, checkpoint=world.checkpoint, trigger=every)
    assert reported == []
    deadline = time.monotonic() + 120
    while query.isActive and sum(c.events for c in rs.committed(world.out)) < 60:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    query.stop()
    commits = rs.committed(world.out)
    n = sum(c.events for c in commits)
    assert n >= 60
    last = commits[-1].batch
    rows = rs.read_matches(world.spark, world.out).where(f"batch_id <= {last}").collect()
    ids = np.arange(n)
    expected = expected_pairs(world, ids, {"a0": ids % 20, "a1": ids % 17})
    assert sorted((r.event_id, r.subscription_id) for r in rows) == expected
    assert len(expected) > 60


def test_a_stream_shaped_like_kafka(world):
    """A source without files that gives bytes; what is no number is rejected, with its offset as its id."""
    values = [{"a0": n % 20, "a1": n % 17} for n in range(90)]
    values[7]["a0"] = "seven"
    messages = [json.dumps(value).encode() for value in values]

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self):
            return {"offset": 0}

        def read(self, start):
            end = {"offset": len(messages)}
            return self.readBetweenOffsets(start, end), end

        def readBetweenOffsets(self, start, end):
            offsets = range(start["offset"], end["offset"])
            return iter([(b"key", messages[offset], "ticks", 0, offset) for offset in offsets])

    class Messages(DataSource):
        @classmethod
        def name(cls):
            return "messages"

        def schema(self):
            return "key binary, value binary, topic string, partition int, offset long"

        def simpleStreamReader(self, schema):
            return Reader()

    world.spark.dataSource.register(Messages)
    events = world.spark.readStream.format("messages").load()
    parsed = "from_json(cast(value as string), 'a0 string, a1 string') as e"
    events = events.selectExpr("offset as id", parsed)
    events = events.selectExpr("id", "e.a0", "e.a1")
    rs.match_stream(
        events, world.store, out=world.out, checkpoint=world.checkpoint, trigger=NOW
    ).awaitTermination()
    good = np.array([n for n in range(90) if n != 7])
    expected = expected_pairs(world, good, {"a0": good % 20, "a1": good % 17})
    assert [pair for batch in world.found().values() for pair in batch] == expected
    (reject,) = rs.read_rejects(world.spark, world.out).collect()
    assert (reject.source, reject.id) == (None, "7")
    assert reject.reason == "'a0' is an int, got the string 'seven'"


def test_by_event_time_a_backfill_gives_what_was_live(world, tmp_path):
    """Each event sees the subscriptions of its own time, in whatever batch it comes."""
    store, ids = world.store, world.subs.ids.values
    moments = [store.time_of(1)]
    for first in (0, 20, 40):
        store.delete(ids[first : first + 20])
        moments.append(store.time_of(store.version))
    rows, answer = [], {}
    step = dt.timedelta(microseconds=1)
    for number, moment in enumerate(moments):
        # just before a version, and at it; one before all of them has none to match
        for at, version in ((moment - step, number), (moment, number + 1)):
            for value in (3, 7, 11):
                event = rc.Events.from_rows(world.schema, [{"a0": value, "a1": value}])
                answer[len(rows)] = {
                    s for _, s in zip(*store.index(version).match(event).pairs(), strict=True)
                }
                rows.append({"id": len(rows), "a0": value, "a1": value, "at": at})
    assert len({len(found) for found in answer.values()}) > 3
    rows.append({"id": len(rows), "a0": 3, "a1": 3, "at": None})
    order = np.random.default_rng(3).permutation(len(rows))
    kinds = pa.schema(
        [("id", pa.int64()), ("a0", pa.int64()), ("a1", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
    )
    for part in range(2):
        table = pa.Table.from_pylist([rows[i] for i in order[part::2]], kinds)
        pq.write_table(table, world.events / f"{part}.parquet")
    events = rs.read_events(world.spark, world.events, store, files_per_batch=1)
    query = rs.match_stream(
        events,
        store,
        out=world.out,
        checkpoint=world.checkpoint,
        trigger=NOW,
        version="event-time",
        time="at",
    )
    query.awaitTermination()
    found = {}
    for row in rs.read_matches(world.spark, world.out).collect():
        found.setdefault(row.event_id, set()).add(row.subscription_id)
    assert found == {event: ids for event, ids in answer.items() if ids}
    (aside,) = rs.read_rejects(world.spark, world.out).collect()
    assert aside.reason == "an event must have a time in 'at'"
    # history is held for events that come late
    (hold,) = store.holds()
    assert hold.version == 0
    refused(world, "was begun with version event-time, got newest")
    refused(world, "version 'event-time' needs time, .* one timestamp .*, got 0", version="event-time")
    refused(world, "time names the column .* got version 'newest'", time="at")
    refused(world, "time: the events have no column 'when'", version="event-time", time="when")
    refused(world, "was begun with version event-time, got 3", version=3)
    refused(world, "version must be 'newest', 'event-time' or the number of a version", version="old")


def test_one_version_for_every_batch(world):
    """It is held while the stream is down too, and compact keeps it."""
    world.add_file()
    world.store.delete(world.subs.ids.values[:30])
    world.run(version=1)
    world.store.delete(world.subs.ids.values[30:])
    world.store.compact()
    world.add_file()
    world.run(version=1)
    assert [c.version for c in world.check()] == [1, 1]
    assert [hold.version for hold in world.store.holds()] == [1]
    refused(world, "was begun with version 1, got 2", version=2)


def test_a_store_that_is_an_old_copy(world, tmp_path):
    world.add_file()
    shutil.copytree(world.store.path, tmp_path / "copy")
    world.store.delete(world.subs.ids.values[:30])
    world.run()
    shutil.rmtree(world.store.path)
    shutil.move(tmp_path / "copy", world.store.path)
    world.store = rc.Store.open(world.store.path)
    refused(world, "has versions up to 1, but the checkpoint has seen 2: the store is an old copy")


def test_shortest_first(spark, tmp_path):
    world = World(spark, tmp_path, index="direct")
    world.store.insert(
        rc.Subscriptions.parse(world.schema, {1000 + i: f"a0 between 0 and {i % 9}" for i in range(900)})
    )
    world.add_file(200)
    world.run(order="shortest-first")
    (part,) = world.out.glob("batch_id=0/*.parquet")
    events = pq.read_table(part)["event_id"].to_numpy()
    index = world.store.index()
    rank = np.empty(200, np.int64)
    rank[index.estimate(world.files[0]).order] = np.arange(200)
    assert (np.diff(rank[events]) >= 0).all()
    assert len(np.unique(events)) > 50
    world.check()
    other = rc.Store.open(tmp_path / "other", world.schema, index="islist")
    other.insert(random_subscriptions(world.schema, 600, seed=3))
    world.store = other
    refused(world, "'islist' cannot estimate the work of an event", order="shortest-first")
    refused(world, "order must be None or 'shortest-first', got 'longest'", order="longest")


def test_versions_are_held_while_a_batch_needs_them(world, tmp_path):
    """The sink looks at the store in the middle of a batch, and compacts it."""
    world.add_file()
    world.add_file()
    path, seen = str(world.store.path), tmp_path / "seen.jsonl"

    def deliver(matches, batch):
        store = rc.Store.open(path)
        store.delete([int(store.subscriptions().ids[0])])
        with open(seen, "a") as file:
            file.write(json.dumps([batch, [h.version for h in store.holds()], store.compact()]) + "\n")
        matches.count()

    world.run(out=None, sink=deliver)
    lines = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [line[:2] for line in lines] == [[0, [1]], [1, [2]]]
    assert world.store.holds() == []
    assert world.store.oldest == 2


def test_a_load_by_another_writer_holds_no_batch_up(world):
    """What is due then goes with a later batch."""
    ends = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    world.store.insert(rc.Subscriptions.parse(world.schema, {1: "a0 is present"}), expires=ends)
    world.add_file()
    from rangecast.spark.worker import open_store

    open_store(str(world.store.path)).wait = 0.1
    with world.store.writing():
        query = rs.match_stream(
            world.frame(), world.store, out=world.out, checkpoint=world.checkpoint, trigger=NOW
        )
        query.awaitTermination()
    assert [c.version for c in world.check()] == [2]
    world.add_file()
    world.run()
    assert [c.version for c in world.check()] == [2, 3]


def test_subscriptions_that_end(world):
    ends = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    world.store.insert(
        rc.Subscriptions.parse(world.schema, {1: "a0 is present or a0 is missing"}), expires=ends
    )
    world.add_file()
    world.run()
    (commit,) = world.check()
    assert commit.version == 3
    assert all(pair[1] != 1 for pair in world.found()[0])


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
    refused(world, "was begun with fields .* got .*a0 long.*; to change that, start afresh", keep=["a0"])
    refused(world, "was begun with sink parquet, got console", sink="console", out=None)
    refused(world, "is empty, but the stream of the checkpoint .* has written", out=tmp_path / "elsewhere")
    refused(world, "holds the matches of a stream whose checkpoint is", checkpoint=tmp_path / "new")
    refused(world, r"out: hdfs://x/y: an address must begin with s3://, .* got hdfs://", out="hdfs://x/y")
    refused(
        world,
        r"sink must be 'parquet' or 'console', rs.kafka_sink\(...\) or a function, got 'kafka'",
        sink="kafka",
    )
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
    from rangecast.spark.stream.ledger import Ledger, Pin

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
    for batch in (0, 1):
        os.rename(world.checkpoint / "commits" / str(batch), world.checkpoint / f"{batch}")
    refused(world, "Spark begins with batch 0, but .* has all up to 1: the checkpoint is older")
    for batch in (0, 1):
        os.rename(world.checkpoint / f"{batch}", world.checkpoint / "commits" / str(batch))
    (world.out / "_rangecast" / "commits.jsonl").unlink()
    refused(world, "has batches up to -1, but Spark goes on with 2: output is missing")


def test_a_store_that_was_replaced(world):
    world.add_file()
    world.run()
    shutil.rmtree(world.store.path)
    world.store = rc.Store.open(world.store.path, world.schema, index="scan")
    world.store.insert(world.subs)
    refused(world, "belongs to the store .* is another one; give that store")
    # a new stream in its place: neither driver nor workers go by what they remember of the old store
    world.store.delete(world.subs.ids.values[:40])
    shutil.rmtree(world.out)
    shutil.rmtree(world.checkpoint)
    world.run()
    assert [c.version for c in world.check()] == [2]
