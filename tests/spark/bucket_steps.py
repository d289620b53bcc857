"""Every step of the pipeline with store, events and output in a bucket, beside the library; prints JSON.

    python tests/spark/bucket_steps.py s3://bucket/path FOLDER

A process of its own: workers take their variables from where the session was started.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import rangecast as rc
from rangecast import spark as rs
from rangecast.buckets.bucket import Bucket
from rangecast.spark import small_inputs
from rangecast.spark.doctor import examine


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
    small_inputs.SMALL_BYTES = 0
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
    table.to_pandas().to_parquet(folder / "events.parquet")
    flowing = spark.readStream.schema("id long, price long, symbol string").parquet(str(folder / "*.parquet"))
    query = rs.match_stream(
        flowing,
        store,
        out=folder / "stream",
        checkpoint=folder / "state",
        event_id="id",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    stream = spark.read.parquet(str(folder / "stream"))
    answers["match_stream"] = same(stream.select("event_id", "subscription_id"))
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
