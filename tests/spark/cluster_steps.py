"""What a cluster does, beside the library; prints one JSON object.

    cluster_steps.py steps MASTER FOLDER        every step of the pipeline, and folders that a worker's user
                                                may not enter or write to
    cluster_steps.py kills MASTER FOLDER PID    a stream during which executors are killed, and the worker
                                                with this process id
    cluster_steps.py hidden MASTER FOLDER       a worker that sees nothing in the folder, but events beside it

A process of its own: a Spark session belongs to one master.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import rangecast as rc
from rangecast import spark as rs
from rangecast.errors import RangecastError
from rangecast.spark.doctor import examine

SCHEMA = {"price": rc.Int("price", 0, 999), "symbol": rc.Category("symbol")}
EVENTS = "id long, price long, symbol string"


def start(master: str, **more: str):
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # nothing begins before each worker has its executor, and small tasks are not put together
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        # executors of two users on one machine may not read each other's shuffle files from disk
        "spark.shuffle.readHostLocalDisk": "false",
    }
    conf |= {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "4", "spark.log.level": "ERROR"}
    return rs.session(master, conf=conf | more)


def conditions(draw, n: int) -> list[str]:
    lows, symbols = draw.integers(0, 900, n), draw.choice(["A", "B", "C"], n)
    return [f"price between {a} and {a + 40} and symbol = '{s}'" for a, s in zip(lows, symbols, strict=True)]


def some_events(draw, n: int, first: int = 0) -> pa.Table:
    columns = {"id": np.arange(first, first + n), "price": draw.integers(0, 1_000, n)}
    return pa.table({**columns, "symbol": draw.choice(["A", "B", "X"], n)})


def pairs_of(index, table: pa.Table) -> list[tuple[int, int]]:
    """The pairs of the library, by the events' own ids."""
    found = index.match(rc.Events.from_arrow(index.schema, table.select(["price", "symbol"])))
    rows, ids = found.pairs()
    return list(zip(table["id"].to_numpy()[rows].tolist(), ids.tolist(), strict=True))


def for_workers(spark, rows: list[tuple[int, str]]):
    """Subscriptions that workers parse: behind a join nobody knows how many rows come."""
    frame = spark.createDataFrame(rows, "id long, condition string")
    return frame.join(spark.range(10_000), "id").repartition(6)


def outcome(step):
    """What a step gives, or what is said when it goes wrong: our own error, or Spark's with ours inside."""
    try:
        return step()
    except RangecastError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"Spark: {error}"


def sentence(step) -> str:
    """What is said when a step goes wrong; "nothing" if it does not."""
    found = outcome(step)
    return found if isinstance(found, str) else "nothing"


def steps(master: str, folder: Path) -> dict:
    spark = start(master)
    draw = np.random.default_rng(5)
    schema = rc.Schema(*SCHEMA.values())
    rows = list(enumerate(conditions(draw, 2_000)))
    subscriptions = for_workers(spark, [*rows, (9_999, "price <")])
    table = some_events(draw, 5_000)
    (folder / "events").mkdir()
    pq.write_table(table, folder / "events" / "a.parquet")
    events = spark.read.parquet(str(folder / "events")).repartition(4)
    store = folder / "store"
    found = examine(spark, rc.Store.open(store, schema), tasks=6)
    report = rs.ingest(subscriptions, schema, store)
    index = rc.open_index("scan", schema)
    parsed = rc.Subscriptions.parse(schema, dict(rows))
    index.insert(parsed)
    right = sorted(pairs_of(index, table))

    def same(frame) -> bool:
        return sorted((row[0], row[1]) for row in frame.collect()) == right

    def found_by_reduce() -> bool:
        reduced, alone = rs.reduce(subscriptions, schema), rc.covering.reduce(parsed)
        return reduced.kept.count() == len(parsed) - len(alone.covered)

    answers = {"match": same(rs.match(events, store, event_id="id"))}
    answers["stripes"] = same(rs.match(events, store, event_id="id", mode="stripes", stripes=3))
    answers["subscriptions"] = same(rs.match(events, parsed, event_id="id"))
    answers["index"] = same(rs.match(events, index, event_id="id"))
    rs.register_sql(spark)
    events.createOrReplaceTempView("events")
    answers["sql"] = same(spark.sql(f"SELECT * FROM match_events_long(TABLE(events), '{store}')"))
    rs.match_files(spark, str(folder / "events"), store, folder / "out", event_id="id")
    answers["match_files"] = same(spark.read.parquet(str(folder / "out")))
    rs.match_files(spark, str(folder / "events"), parsed, folder / "out-2", event_id="id")
    answers["match_files of subscriptions"] = same(spark.read.parquet(str(folder / "out-2")))
    flowing = spark.readStream.schema(EVENTS).parquet(str(folder / "events"))
    query = rs.match_stream(
        flowing,
        store,
        out=folder / "stream",
        checkpoint=folder / "state",
        event_id="id",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    answers["match_stream"] = same(
        spark.read.parquet(str(folder / "stream")).select("event_id", "subscription_id")
    )
    rs.register_source(spark)
    reader = spark.read.format("rangecast").option("store", str(store)).options(**rs.Output("id").options())
    answers["source"] = outcome(lambda: same(reader.load(str(folder / "events"))))
    answers["reduce"] = outcome(found_by_reduce)
    spark.stop()
    # a task that fails is not tried again on another worker, where it might go well
    spark = start(master, **{"spark.task.maxFailures": "1"})
    subscriptions = for_workers(spark, rows)
    events = spark.read.parquet(str(folder / "events")).repartition(4)
    said = {}
    closed = folder / "closed"
    rc.Store.open(closed, rc.Schema(*SCHEMA.values())).insert(parsed)
    closed.chmod(0o755)
    said["not writable"] = sentence(lambda: rs.ingest(subscriptions, None, closed))
    closed.chmod(0o700)
    said["not readable"] = sentence(lambda: rs.match(events, closed, event_id="id").collect())
    said["ingest, not readable"] = sentence(lambda: rs.ingest(subscriptions, None, closed))
    spark.stop()
    return {
        "answers": answers,
        "said": said,
        "pairs": len(right),
        "accepted": report.accepted,
        "rejected": report.rejected_rows,
        "workers": len({(worker.host, worker.pid) for worker in found.workers}),
        "users": sorted({worker.user for worker in found.workers}),
        "troubles": list(found.troubles),
    }


def kills(master: str, folder: Path, victim: int) -> dict:
    """A stream of 9 files, one per batch; in each third batch an executor is killed, or once the worker."""
    from spark_cluster import executors_of

    spark = start(master, **{"spark.task.maxFailures": "20"})
    draw = np.random.default_rng(6)
    store = rc.Store.open(folder / "store", rc.Schema(*SCHEMA.values()))
    store.insert(rc.Subscriptions.parse(store.schema, dict(enumerate(conditions(draw, 2_000)))))
    tables = [some_events(draw, 2_000, 2_000 * k) for k in range(9)]
    events, out = folder / "events", folder / "out"
    events.mkdir()
    flowing = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(str(events))
    query = rs.match_stream(
        flowing.repartition(4), store, out=out, checkpoint=folder / "state", event_id="id", outer=True
    )
    killed = {"executors": 0, "workers": 0}
    for k, table in enumerate(tables):
        pq.write_table(table, folder / "aside.parquet")
        os.replace(folder / "aside.parquet", events / f"{k:02}.parquet")
        changed = dict(zip(range(100 * k, 100 * k + 50), conditions(draw, 50), strict=True))
        if k % 3 == 1:
            # the files are small: a batch has begun when its version is pinned
            until = time.monotonic() + 60
            while time.monotonic() < until and not (folder / f"state/_rangecast/pins/{k}.json").exists():
                time.sleep(0.01)
            # the store moves on while the batch runs: one that took the newest version again would show
            store.insert(rc.Subscriptions.parse(store.schema, changed))
            if k == 4:
                os.kill(victim, signal.SIGKILL)
                killed["workers"] += 1
            else:
                while not (running := executors_of(spark)):
                    time.sleep(0.05)
                os.kill(running[0], signal.SIGKILL)
                killed["executors"] += 1
        else:
            store.insert(rc.Subscriptions.parse(store.schema, changed))
        until = time.monotonic() + 120
        while len(rs.committed(out)) <= k and time.monotonic() < until and query.isActive:
            time.sleep(0.05)
    if query.exception() is not None:
        raise query.exception()
    versions = {commit.batch: commit.version for commit in rs.committed(out)}
    rows = rs.read_matches(spark, out).collect()
    query.stop()
    spark.stop()
    batch_of = {row["event_id"]: row["batch_id"] for row in rows}
    got = collections.Counter(
        (row["event_id"], row["subscription_id"]) for row in rows if row["subscription_id"] is not None
    )
    right = collections.Counter()
    everything = pa.concat_tables(tables)
    for batch, version in versions.items():
        mine = pa.array([batch_of.get(id) == batch for id in everything["id"].to_pylist()])
        right.update(pairs_of(store.index(version), everything.filter(mine)))
    return {
        **killed,
        "batches": len(versions),
        "versions": len(set(versions.values())),
        "events": len(batch_of),
        "pairs": sum(right.values()),
        "lost": sum((right - got).values()),
        "doubled": sum(n - 1 for n in got.values()),
        "wrong": len(set(got) - set(right)),
    }


def hidden(master: str, folder: Path) -> dict:
    spark = start(master, **{"spark.task.maxFailures": "1"})
    seen = str(folder.with_name("seen"))
    events = spark.read.schema(EVENTS).parquet(seen).repartition(6)
    rows = [(k, "price < 5") for k in range(60)]
    subscriptions = for_workers(spark, rows)
    store = folder / "store"
    before = rc.Store.open(store).version
    said = {
        "match": sentence(lambda: rs.match(events, store, event_id="id").collect()),
        "ingest": sentence(lambda: rs.ingest(subscriptions, None, store)),
        "match_files": sentence(
            lambda: rs.match_files(spark, [str(folder / "many")], store, folder / "out-3", event_id="id")
        ),
        "stripes": sentence(
            lambda: rs.match(events, store, event_id="id", mode="stripes", stripes=6).collect()
        ),
    }
    flowing = spark.readStream.schema(EVENTS).parquet(seen).repartition(6)
    query = rs.match_stream(
        flowing, store, out=folder / "out-4", checkpoint=folder / "state-4", trigger={"availableNow": True}
    )
    said["match_stream"] = sentence(query.awaitTermination)
    spark.stop()
    return {"said": said, "changed": rc.Store.open(store).version - before}


if __name__ == "__main__":
    kind, where, place, *rest = sys.argv[1:]
    made = {"steps": steps, "kills": kills, "hidden": hidden}[kind](where, Path(place), *map(int, rest))
    print(json.dumps(made))
