"""Every step of the pipeline on a cluster, beside the library; prints one JSON object.

    python tests/spark/cluster_steps.py MASTER FOLDER

A process of its own: a Spark session belongs to one master.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import rangecast as rc
from rangecast import spark as rs
from rangecast.spark.doctor import examine


def main(master: str, folder: Path) -> None:
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    conf |= {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "4", "spark.log.level": "ERROR"}
    spark = rs.session(master, conf=conf)
    draw = np.random.default_rng(5)
    schema = rc.Schema(rc.Int("price", 0, 999), rc.Category("symbol"))
    lows = draw.integers(0, 900, 2_000)
    symbols = draw.choice(["A", "B", "C"], 2_000)
    texts = [f"price between {a} and {a + 40} and symbol = '{s}'" for a, s in zip(lows, symbols, strict=True)]
    rows = [(k, text) for k, text in enumerate(texts)]
    subscriptions = spark.createDataFrame(
        [*rows, (9_999, "price <")], "id long, condition string"
    ).repartition(4)
    prices, names = draw.integers(0, 1_000, 5_000).tolist(), draw.choice(["A", "B", "X"], 5_000).tolist()
    events = spark.createDataFrame(
        list(zip(range(5_000), prices, names, strict=True)), "id long, price long, symbol string"
    ).repartition(4)
    store = folder / "store"
    found = examine(spark, rc.Store.open(store, schema), tasks=6)
    report = rs.ingest(subscriptions, schema, store)
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, dict(rows)))
    table = rc.Events.from_arrays(schema, {"price": prices, "symbol": names})
    right = sorted(zip(*(column.tolist() for column in index.match(table).pairs()), strict=True))

    def same(frame) -> bool:
        pairs = sorted((row[0], row[1]) for row in frame.collect())
        return pairs == right

    answers = {"match": same(rs.match(events, store, event_id="id"))}
    answers["stripes"] = same(rs.match(events, store, event_id="id", mode="stripes", stripes=3))
    rs.register_sql(spark)
    events.createOrReplaceTempView("events")
    answers["sql"] = same(spark.sql(f"SELECT * FROM match_events_long(TABLE(events), '{store}')"))
    events.write.parquet(str(folder / "events"))
    rs.match_files(spark, str(folder / "events"), store, folder / "out", event_id="id")
    answers["match_files"] = same(spark.read.parquet(str(folder / "out")))
    flowing = spark.readStream.schema("id long, price long, symbol string").parquet(str(folder / "events"))
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
    hosts = len({(worker.host, worker.pid) for worker in found.workers})
    print(
        json.dumps(
            {
                "answers": answers,
                "pairs": len(right),
                "accepted": report.accepted,
                "rejected": report.rejected_rows,
                "workers": hosts,
                "troubles": list(found.troubles),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
