"""The source "rangecast": the library's pairs, micro-batches fixed by their offsets, refusals that say why.

A stream on Spark starts three Python processes; most tests therefore call the readers as Spark would.
"""

import itertools
import json
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType  # noqa: E402

from rangecast.spark.source.arrivals import Arrivals  # noqa: E402
from rangecast.spark.source.options import read_options  # noqa: E402
from rangecast.spark.source.source import RangecastSource  # noqa: E402

N_EVENTS = 300
BOTH = {"store": "s", "events": "e"}


def event_table(first, n=N_EVENTS, seed=2):
    events = random_events(int_schema(3), n, seed=seed + first)
    columns = {"id": pa.array(np.arange(first, first + n))}
    for name in events.schema.names:
        columns[name] = pa.array([events.value(name, e) for e in range(n)], pa.int64())
    return pa.table(columns | {"note": pa.array([f"n{e}" for e in range(first, first + n)])})


def put(folder, name, table, write=pq.write_table):
    """A file that appears whole."""
    folder.mkdir(exist_ok=True)
    write(table, str(folder / f"_{name}"))
    os.rename(folder / f"_{name}", folder / name)


def write_json(table, path):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def pairs_of(table, index):
    events = rc.Events.from_arrow(index.schema, table.drop_columns(["id", "note"]))
    rows, ids = index.match(events).pairs()
    return sorted(zip(table["id"].to_numpy()[rows].tolist(), ids.tolist(), strict=True))


def fields(text):
    """The columns of a DDL string; Spark's own parser needs a session."""
    kinds = {"long": LongType(), "string": StringType(), "double": DoubleType()}
    return StructType([StructField(n, kinds[k]) for n, k in (part.split() for part in text.split(", "))])


@pytest.fixture
def store(tmp_path):
    schema = int_schema(3)
    store = rc.Store.open(tmp_path / "store", schema, index="scan")
    store.insert(random_subscriptions(schema, 60, seed=1, boxes=2))
    return store


@pytest.fixture
def folder(tmp_path):
    put(tmp_path / "events", "a.parquet", event_table(0))
    put(tmp_path / "events", "b.parquet", event_table(1000))
    (tmp_path / "events" / "_ignored").write_text("not data")
    (tmp_path / "events" / "half.parquet.tmp").write_text("not yet")
    return tmp_path / "events"


class Stream:
    """What Spark does with a stream reader, in this process: plan a micro-batch, read it, go on."""

    def __init__(self, home, folder, fields=None, start=None, **options):
        given = {"store": str(home.path), "events": str(folder), "tasks": "2"}
        self.source = RangecastSource(given | {name: str(value) for name, value in options.items()})
        self.fields = fields or self.source.schema()
        self.reader = pickle.loads(pickle.dumps(self.source.streamReader(self.fields)))
        self.offsets = [start or self.reader.initialOffset()]

    def plan(self):
        """Offsets of micro-batches until there are no more files; Spark keeps them as JSON."""
        while True:
            start = json.loads(json.dumps(self.offsets[-1]))
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if end == start:
                return self
            self.offsets.append(end)

    def read(self, batch):
        """The rows of a micro-batch, by a reader and with tasks that were sent to a worker."""
        tasks = self.reader.partitions(*self.offsets[batch : batch + 2])
        reader, tasks = pickle.loads(pickle.dumps((self.reader, tasks)))
        pieces = [piece for task in tasks for piece in reader.read(task)]
        return sorted((row["event_id"], row["subscription_id"]) for p in pieces for row in p.to_pylist())

    def all(self):
        return [self.read(batch) for batch in range(len(self.offsets) - 1)]


def rejects(folder):
    """What was rejected, with the name of the folder of its micro-batch."""
    found = []
    for path in sorted(folder.rglob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            found.append((Path(row["source"]).name, row["row"], row["id"], row["reason"]))
    return sorted(found, key=lambda row: (row[0], row[1] or 0))


def state_of(store):
    return next((store.path / "sources").iterdir())


def test_on_spark_in_batch_and_as_a_stream(spark, store, folder, tmp_path):
    """All of it once through Spark: batch read, micro-batches, rejects, a micro-batch done again."""
    rs.register_source(spark)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def load(reader, **options):
        reader = reader.format("rangecast").option("store", str(store.path)).option("events", str(folder))
        return reader.options(**options).load()

    def pairs(frame):
        return sorted((row[0], row[1]) for row in frame.collect())

    def run(frame):
        query = frame.writeStream.format("parquet").option("path", str(out))
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    expected = [pairs_of(event_table(first), store.index(1)) for first in (0, 1000)]
    frame = load(spark.read, keep="note")
    assert dict(frame.dtypes) == {"event_id": "bigint", "subscription_id": "bigint", "note": "string"}
    # the version is that of load, whenever the DataFrame is evaluated
    store.delete(np.arange(5, 60))
    found = frame.collect()
    assert sorted((row[0], row[1]) for row in found) == sorted(itertools.chain(*expected))
    assert all(row.note == f"n{row.event_id}" for row in found)

    with open(folder / "bad.csv", "w") as file:
        file.write("id,a0,a1,a2,note\n7000,x,1,1,bad\n")
    put(folder, "0-sorts-first.parquet", event_table(2000))
    stream = load(spark.readStream, maxFilesPerBatch=1)
    run(stream)
    expected = [pairs_of(event_table(first), store.index(2)) for first in (0, 1000, 2000)]
    assert pairs(spark.read.parquet(str(out))) == sorted(itertools.chain(*expected))
    # as a crash before the commit of the last micro-batch leaves it; then subscriptions change
    for path in [checkpoint / "commits/3", checkpoint / "commits/.3.crc", out / "_spark_metadata/3"]:
        path.unlink()
    (out / "_spark_metadata/.3.crc").unlink()
    store.delete(np.arange(60, 120))
    put(folder, "1.parquet", event_table(3000))
    run(stream)
    expected.append(pairs_of(event_table(3000), store.index(3)))
    assert pairs(spark.read.parquet(str(out))) == sorted(itertools.chain(*expected))
    aside = spark.read.parquet(str(state_of(store) / "rejects")).collect()
    assert [(row.id, row.batch_id) for row in aside] == [("7000", 2)]


def test_each_micro_batch_has_the_newest_version_and_files_in_order_of_arrival(store, folder):
    stream = Stream(store, folder, maxFilesPerBatch=1).plan()
    store.delete(np.arange(5, 60))
    # a change of subscriptions alone makes no micro-batch
    assert len(stream.plan().offsets) == 3
    put(folder, "0-sorts-first.parquet", event_table(2000))
    stream.plan()
    assert [(o["files"], o["version"]) for o in stream.offsets] == [(0, 0), (1, 1), (2, 1), (3, 2)]
    versions = zip((0, 1000, 2000), (1, 1, 2), strict=True)
    expected = [pairs_of(event_table(first), store.index(version)) for first, version in versions]
    assert stream.all() == expected
    # done again by another process after more changes, it gives the same
    store.delete(np.arange(60, 120))
    again = Stream(store, folder)
    again.offsets = stream.offsets
    assert again.all() == expected
    assert again.reader.reportLatestOffset() == {"files": 3, "version": 3}


def test_admission_by_files_and_bytes(store, folder):
    put(folder, "c.parquet", event_table(2000, 10))
    sizes = sorted(path.stat().st_size for path in folder.glob("*.parquet"))
    for options, files in [
        ({}, [3]),
        ({"maxFilesPerBatch": 2}, [2, 3]),
        ({"maxBytesPerBatch": 1}, [1, 2, 3]),
        ({"maxBytesPerBatch": sum(sizes)}, [3]),
        ({"maxBytesPerBatch": sum(sizes), "maxFilesPerBatch": 1}, [1, 2, 3]),
    ]:
        stream = Stream(store, folder, **options).plan()
        assert [offset["files"] for offset in stream.offsets[1:]] == files
    everything = stream.reader.latestOffset(stream.offsets[0], ReadAllAvailable())
    assert everything["files"] == 3
    stream.reader.prepareForTriggerAvailableNow()
    put(folder, "d.parquet", event_table(3000, 10))
    assert stream.plan().offsets[-1]["files"] == 3


def test_text_files_and_what_cannot_be_read(store, folder):
    for path in folder.glob("*.parquet"):
        path.unlink()
    raw = {
        "torn.parquet": b"PAR1",
        "torn.csv.gz": b"\x1f\x8bnothing",
        "what.is-it": b"?",
        "no-id.csv": b"a0,a1,a2\n1,2,3\n",
    }
    put(folder, "a.csv", event_table(0), pacsv.write_csv)
    with open(folder / "a.csv", "a") as file:
        file.write("300,abc,1,1,bad value\n,1,1,1,no id\nx,1,1,1,id of another type\n1,2\n")
    put(folder, "b.jsonl", event_table(1000), write_json)
    with open(folder / "b.jsonl", "a") as file:
        file.write("{broken\n")
    for name, content in raw.items():
        (folder / name).write_bytes(content)
    put(folder, "lacking.parquet", event_table(2000).drop_columns(["a1"]))
    put(folder, "wrong.parquet", event_table(3000).set_column(1, "a0", pa.array(["x"] * N_EVENTS)))
    put(folder, "words.parquet", event_table(5000, 1).set_column(0, "id", pa.array(["x"])))
    nulls = event_table(4000, 3).set_column(0, "id", pa.array([4000, None, 4002], pa.int64()))
    put(folder, "z.parquet", nulls)
    stream = Stream(store, folder, fields("event_id long, subscription_id long")).plan()
    good = [event_table(0), event_table(1000), nulls.take([0, 2])]
    assert stream.all() == [sorted(pair for table in good for pair in pairs_of(table, store.index()))]
    assert stream.all() == stream.all()
    aside = rejects(state_of(store) / "rejects")
    expected = {
        ("a.csv", 301, "300"): "'a0' is an int, got the string 'abc'",
        ("a.csv", 302, None): "an event must have an id",
        ("a.csv", 303, "x"): "an event's id must be a whole number in this run, got the string 'x'",
        ("a.csv", 304, None): "a row must have 5 fields, got 2",
        ("b.jsonl", 301, None): "JSON",
        ("lacking.parquet", None, None): "there is no column 'a1', only id",
        ("no-id.csv", None, None): "there is no column 'id', only a0, a1, a2",
        ("torn.csv.gz", None, None): "",
        ("torn.parquet", None, None): "not a Parquet file that can be read",
        ("what.is-it", None, None): "the format must be given by the suffix",
        ("words.parquet", 1, "x"): "must be a whole number in this run",
        ("wrong.parquet", None, None): "column 'a0' must be a whole number for an int, got string",
        ("z.parquet", 2, None): "an event must have an id",
    }
    assert [row[:3] for row in aside] == list(expected)
    for row, words in zip(aside, expected.values(), strict=True):
        assert words in row[3]
    # a batch read has no stream that must go on: what is wrong with a whole file stops it
    batch = RangecastSource({"store": str(store.path), "events": str(folder / "*.parquet")})
    with pytest.raises(rc.EventError, match=r"lacking.parquet: there is no column 'a1'"):
        batch.reader(batch.schema()).partitions()


def test_a_kept_column_of_another_type_costs_its_file(store, folder):
    lists = event_table(2000, 2).set_column(4, "note", pa.array([["a"], ["b"]]))
    put(folder, "c.parquet", lists)
    stream = Stream(store, folder, keep="note").plan()
    expected = pairs_of(event_table(0), store.index()) + pairs_of(event_table(1000), store.index())
    assert stream.read(0) == sorted(expected)
    (aside,) = rejects(state_of(store) / "rejects")
    assert aside[:3] == ("c.parquet", None, None)
    assert "columns must be of the types" in aside[3]


def test_a_folder_without_files_needs_a_schema(store, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(rc.OptionError, match=r"no files yet .* say them: \.schema"):
        Stream(store, empty)
    stream = Stream(store, empty, fields("event_id string, subscription_id string"))
    assert stream.plan().offsets[1:] == []
    put(empty, "a.parquet", event_table(0))
    assert stream.plan().read(0) == sorted(
        (str(event), str(sub)) for event, sub in pairs_of(event_table(0), store.index())
    )
    for given, message in [
        ("event_id long, other long", "must have the columns event_id, subscription_id, got event_id, other"),
        ("event_id long, subscription_id double", "must be bigint or string for this store, got double"),
    ]:
        with pytest.raises(rc.OptionError, match=message):
            Stream(store, empty, fields(given))


def test_a_checkpoint_of_another_store_is_refused(store, folder, tmp_path):
    start = Stream(store, folder).plan().offsets[-1]
    put(folder, "c.parquet", event_table(2000))
    other = rc.Store.open(tmp_path / "other", store.schema, index="scan")
    for at, options, message in [
        (other, {}, "is not the store that the checkpoint was made with"),
        (
            store,
            {"state": tmp_path / "state"},
            "is not the log of arrivals that the checkpoint was made with",
        ),
    ]:
        with pytest.raises(rc.StorageError, match=message):
            Stream(at, folder, start=start, **options).plan()
    with pytest.raises(rc.StorageError, match="has versions up to 1, but the checkpoint has seen 5"):
        Stream(store, folder, start=start | {"version": 5}).plan()
    with pytest.raises(rc.StorageError, match="has versions 0 to 1, got version 9"):
        Stream(store, folder, version=9)
    with pytest.raises(rc.StorageError, match="there is no store here"):
        Stream(store, folder, store=tmp_path / "nowhere")


def test_a_version_is_held_until_its_micro_batch_is_done(store, folder):
    stream = Stream(store, folder, maxFilesPerBatch=1).plan()
    store.delete([5])
    expected = pairs_of(event_table(0), store.index(1))
    store.compact()
    assert store.oldest <= 1
    assert stream.read(0) == expected
    put(folder, "c.parquet", event_table(2000))
    stream.plan().reader.commit(stream.offsets[2])
    assert [hold.version for hold in store.holds()] == [1]
    stream.reader.commit(stream.offsets[3])
    assert [hold.version for hold in store.holds()] == [2]
    store.compact()
    with pytest.raises(rc.StorageError, match=r"a micro-batch .* version 1 .*\(the oldest is 2\)"):
        stream.all()


def test_a_subscription_ends_when_a_micro_batch_is_planned(store, folder):
    schema = store.schema
    everything = rc.Subscriptions.parse(schema, {9000: "a0 is present or a0 is missing"})
    store.insert(everything, expires=time.time_ns() // 1000 + 300_000)
    stream = Stream(store, folder, maxFilesPerBatch=1)
    first = stream.reader.latestOffset(stream.offsets[0], stream.reader.getDefaultReadLimit())
    time.sleep(0.35)
    stream.offsets.append(first)
    before, after = stream.plan().all()
    assert [offset["version"] for offset in stream.offsets[1:]] == [2, 3]
    assert sum(sub == 9000 for _, sub in before) == N_EVENTS
    assert sum(sub == 9000 for _, sub in after) == 0


def test_each_event_against_the_version_of_its_time(tmp_path):
    schema = rc.Schema(rc.Int("price"), rc.Timestamp("at"))
    store = rc.Store.open(tmp_path / "store", schema, index="scan")
    moments = []
    for number in range(4):
        store.insert(rc.Subscriptions.parse(schema, {number: "price > 5", -1 - number: "price > 500"}))
        moments.append(int(store.time_of(number + 1).timestamp() * 1_000_000))
        time.sleep(0.002)
    times = [0, moments[0], moments[2] + 1, moments[1], moments[3] + 10**9, None]
    table = pa.table({"id": np.arange(6), "price": [9] * 6, "at": pa.array(times, pa.timestamp("us", "UTC"))})
    folder = tmp_path / "events"
    put(folder, "a.parquet", table)
    put(folder, "b.csv", table.set_column(0, "id", pa.array(np.arange(10, 16))), pacsv.write_csv)
    expected = [(1, 0), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2), (4, 3)]
    expected += [(10 + event, subscription) for event, subscription in expected]
    stream = Stream(store, folder, version="event-time").plan()
    assert stream.all() == [expected]
    aside = rejects(state_of(store) / "rejects")
    assert [row[1:] for row in aside] == [
        (6, event, "an event must have a time in 'at'") for event in ("5", "15")
    ]
    # a backfill years later gives what the live stream gave, for the versions are kept
    store.insert(rc.Subscriptions.parse(schema, {7: "price > 5"}))
    store.compact()
    assert stream.all() == [expected]
    late = Stream(store, folder, version="event-time", time="at").plan()
    # only an event ahead of the clock is matched against what was the newest when it was planned
    assert late.all() == [sorted([*expected, (4, 7), (14, 7)])]
    # where they are not, events of that time are rejected
    for hold in store.holds():
        store.release(hold.name)
    store.compact()
    with pytest.raises(rc.StorageError, match="with version 0 of the store, which is gone"):
        stream.all()
    short = Stream(store, folder, version="event-time", rejects=tmp_path / "gone").plan()
    assert short.all() == [[(event, sub) for event in (4, 14) for sub in (0, 1, 2, 3, 7)]]
    assert "the oldest version is 5" in rejects(tmp_path / "gone")[0][3]
    plain = rc.Store.open(tmp_path / "plain", int_schema(1), index="scan")
    with pytest.raises(rc.OptionError, match="'event-time' needs time"):
        Stream(plain, folder, version="event-time")


def test_files_that_are_lost_or_changed(store, folder, tmp_path):
    stream = Stream(store, folder, maxFilesPerBatch=1).plan()
    os.utime(folder / "a.parquet", ns=(1, 1))
    (folder / "b.parquet").unlink()
    with pytest.raises(rc.StorageError, match=r"a\.parquet: was changed since it arrived.*lostFiles"):
        stream.read(0)
    with pytest.raises(rc.StorageError, match=r"b\.parquet: is gone since it arrived.*rename them"):
        stream.read(1)
    tolerant = Stream(store, folder, lostFiles="reject", rejects=tmp_path / "aside")
    tolerant.offsets = stream.offsets
    assert tolerant.read(0) == []
    assert rejects(tmp_path / "aside") == [("a.parquet", None, None, "the file was changed since it arrived")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": "e"}, "the option 'store' must be given"),
        ({"store": "s"}, "the option 'events' must be given"),
        (BOTH | {"maxFiles": "1"}, "the source has no option 'maxfiles'; it has absent"),
        (BOTH | {"maxFilesPerBatch": "0"}, "maxFilesPerBatch must be a whole number from 1"),
        (BOTH | {"version": "old"}, "version must be 'newest', 'event-time' or the number"),
        (BOTH | {"form": "rows"}, "form must be one of pairs, lists, counts, got 'rows'"),
        (BOTH | {"keep": "[1"}, "keep must be names with commas between or a JSON list"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(options, message):
    with pytest.raises(rc.OptionError, match=message):
        read_options(options)


def test_options_in_any_spelling():
    settings = read_options(
        {"STORE": "s", "path": "e", "eventId": "key", "KEEP": '["a,b"]', "format": "json"}
    )
    assert (settings.output.event_id, settings.output.keep, settings.format) == ("key", ("a,b",), "jsonl")


def test_the_log_of_arrivals_numbers_a_file_once(tmp_path):
    place = tmp_path / "in"
    place.mkdir()
    log = Arrivals(tmp_path / "log", str(place))
    for number, name in enumerate("cab"):
        (place / name).write_text(name * 10)
        assert log.look() == number + 1
    assert [Path(f.path).name for f in log.files(0, 3)] == ["c", "a", "b"]
    # another process enters one; a crash leaves half a line; a file is written again
    other = Arrivals(tmp_path / "log", str(place))
    (place / "A").write_text("late, but written long ago")
    os.utime(place / "A", ns=(1, 1))
    assert other.look() == 4
    with open(tmp_path / "log/files.log", "ab") as file:
        file.write(b'00000000 ["half')
    (place / "c").write_text("again")
    assert log.look() == 4
    (place / "d").touch()
    assert log.look() == 5
    again = Arrivals(tmp_path / "log", str(place))
    assert [Path(f.path).name for f in again.files(2, 5)] == ["b", "A", "d"]
    assert [again.admit(0, 5, *limits) for limits in [(None, None), (2, None), (None, 20), (3, 1)]] == [
        5,
        2,
        2,
        1,
    ]
    with pytest.raises(rc.StorageError, match="knows 5 files, but the checkpoint speaks of 6"):
        again.files(0, 6)
    with pytest.raises(rc.StorageError, match=r"is the log of the files of .* not of"):
        Arrivals(tmp_path / "log", str(tmp_path))
    raw = bytearray((tmp_path / "log/files.log").read_bytes())
    raw[3] ^= 1
    (tmp_path / "log/files.log").write_bytes(raw)
    with pytest.raises(rc.StorageError, match=r"files.log, byte 0: cannot be read: its sum does not hold"):
        Arrivals(tmp_path / "log", str(place))
