"""Every step of the pipeline with store, events and output in a bucket, beside the library; prints JSON.

    python tests/spark/bucket_steps.py s3://bucket/path FOLDER

A process of its own: workers take their variables from where the session was started.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import rangecast as rc
from rangecast import spark as rs
from rangecast.durable.bucket import Bucket
from rangecast.spark.doctor import examine


def streams(spark, table: pa.Table, store: str, folder: Path) -> dict[str, object]:
    """A stream into the bucket, in three batches, the last of which is run again after its commit is gone."""
    place = store.rpartition("/")[0]
    (folder / "ticks").mkdir()
    texts = table.set_column(1, "price", table["price"].cast(pa.string()))
    bad = pa.table({"id": pa.array([7_000]), "price": ["ten"], "symbol": ["A"]})
    for k, part in enumerate((texts.slice(0, 900), texts.slice(900), bad)):
        pq.write_table(part, folder / "ticks" / f"{k}.parquet")
        os.utime(folder / "ticks" / f"{k}.parquet", (1_700_000_000 + k,) * 2)
    out = f"{place}/stream"

    def run(sink="parquet", **where) -> None:
        read = spark.readStream.schema("id long, price string, symbol string")
        flowing = read.option("maxFilesPerTrigger", 1).parquet(str(folder / "ticks"))
        query = rs.match_stream(flowing, store, trigger={"availableNow": True}, sink=sink, **where)
        query.awaitTermination()
        if query.exception() is not None:
            raise query.exception()

    run(out=out, checkpoint=folder / "state")
    first = rs.read_matches(spark, out).toArrow()
    rejected = rs.read_rejects(spark, out).collect()
    bucket = Bucket(out)
    before = {entry.name for entry in bucket.entries("")}
    # as if the driver had died before the commit of batch 1: what it wrote is no part of the answer
    last = "_rangecast/commits/000000000002.json"
    for name in (last, "_rangecast/commits/000000000001.json"):
        bucket.delete([name])
    for name in ("1", "2"):
        for path in (folder / "state" / "commits" / name, folder / "state" / "commits" / f".{name}.crc"):
            path.unlink(missing_ok=True)
    for path in (folder / "state" / "offsets" / "2", folder / "state" / "offsets" / ".2.crc"):
        path.unlink(missing_ok=True)
    part_of_it = set(rs.read_matches(spark, out).select("batch_id").distinct().toPandas()["batch_id"])
    run(out=out, checkpoint=folder / "state")
    again = rs.read_matches(spark, out).toArrow()
    parts = [name for commit in rs.committed(out) for name in (*commit.parts, *commit.rejected_parts)]
    there = [entry.name for entry in bucket.entries("") if not entry.name.startswith("_rangecast")]
    given: dict[int, int] = {}

    def deliver(matches, batch: int) -> None:
        given[batch] = matches.count()

    run(sink=deliver, checkpoint=folder / "state2")
    right = sorted(tuple(row.values()) for row in first.to_pylist())
    return {
        "pairs": len(first) > 5_000 and first.num_columns == 3,
        "batches": {row["batch_id"] for row in first.to_pylist()} == {0, 1},
        "rejected": [(r.id, r.reason, r.batch_id) for r in rejected]
        == [("7000", "'price' is an int, got the string 'ten'", 2)],
        "half": part_of_it == {0},
        "again": sorted(tuple(row.values()) for row in again.to_pylist()) == right,
        "new names": len(before - {entry.name for entry in bucket.entries("")}) > 0,
        "no strays": len(there) == len(parts),
        "status": rs.stream_status(out).batch == 2,
        "a function": sum(given.values()) == len(first),
    }


def main(place: str, folder: Path) -> None:
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
    spark = rs.session("local[2]", conf=conf)
    draw = np.random.default_rng(5)
    schema = rc.Schema(rc.Int("price", 0, 999), rc.Category("symbol"))
    lows = draw.integers(0, 900, 500)
    symbols = draw.choice(["A", "B", "C"], 500)
    texts = [f"price between {a} and {a + 40} and symbol = '{s}'" for a, s in zip(lows, symbols, strict=True)]
    rows = list(enumerate(texts))
    # so that the workers parse it and stage what they have in the bucket
    importlib.import_module("rangecast.spark.ingest").SMALL_BYTES = 0
    subscriptions = spark.createDataFrame([*rows, (9_999, "price <")], "id long, condition string")
    store = f"{place}/store"
    report = rs.ingest(subscriptions.repartition(2), schema, store)
    found = examine(spark, store, tasks=2)
    prices, names = draw.integers(0, 1_000, 2_000).tolist(), draw.choice(["A", "B", "X"], 2_000).tolist()
    table = pa.table({"id": pa.array(range(2_000)), "price": prices, "symbol": names})
    bucket = Bucket(place)
    for k, part in enumerate((table.slice(0, 900), table.slice(900))):
        raw = io.BytesIO()
        pq.write_table(part, raw, row_group_size=300)
        bucket.put(f"events/{k}.parquet", raw.getvalue())
    bucket.put("events/_hidden/no.parquet", b"not an event")
    bucket.put("more/2.csv", b"id,price,symbol\n5000,10,A\n5001,x,A\n")
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, dict(rows)))
    events = rc.Events.from_arrays(schema, {"price": prices, "symbol": names})
    right = sorted(zip(*(column.tolist() for column in index.match(events).pairs()), strict=True))
    frame = spark.createDataFrame(table.to_pandas())

    def same(frame) -> bool:
        return sorted((row[0], row[1]) for row in frame.collect()) == right

    def parts(out: str) -> pa.Table:
        said = json.loads(Bucket(out).read("_rangecast/manifest.json"))
        return pa.concat_tables(
            pq.read_table(io.BytesIO(Bucket(out).read(unit["part"])))
            for unit in said["units"]
            if unit["part"]
        )

    answers = {"match": same(rs.match(frame, store, event_id="id"))}
    answers["stripes"] = same(rs.match(frame, store, event_id="id", mode="stripes", stripes=3))
    out = f"{place}/out"
    files = rs.match_files(spark, f"{place}/events", store, out, event_id="id")
    columns = parts(out).select([0, 1]).to_pydict().values()
    answers["match_files"] = sorted(zip(*columns, strict=True)) == right
    again = rs.match_files(spark, f"{place}/events", store, out, event_id="id")
    answers["taken up again"] = again.skipped == again.files == files.files
    bad = rs.match_files(spark, f"{place}/more/*.csv", store, f"{place}/out2", event_id="id")
    answers["rejected"] = [row["reason"] for row in bad.rejected.collect()] != []
    # an attempt that lost: what it has put is no part of the answer, and goes with the next call
    Bucket(out).put("part-00000-lost.parquet", b"")
    Bucket(out).delete(["_rangecast/done/00001.json", "_rangecast/manifest.json"])
    rs.match_files(spark, f"{place}/events", store, out, event_id="id")
    columns = parts(out).select([0, 1]).to_pydict().values()
    answers["after a crash"] = sorted(zip(*columns, strict=True)) == right
    there = [entry.name for entry in Bucket(out).entries("") if entry.name.startswith("part-")]
    answers["no strays"] = len(there) == files.files
    answers |= {f"match_stream {name}": value for name, value in streams(spark, table, store, folder).items()}
    said = {
        "answers": answers,
        "pairs": len(right),
        "accepted": report.accepted,
        "rejected": [row["reason"] for row in report.rejected.collect()],
        "troubles": list(found.troubles),
        "left": [entry.name for entry in Bucket(store).entries("staging")],
    }
    print(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
