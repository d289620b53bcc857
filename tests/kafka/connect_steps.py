"""A topic over Spark Connect: rs.read_kafka, and match_stream on Spark's own connector; prints JSON.

    python tests/kafka/connect_steps.py BOOTSTRAP TOPIC STORE FOLDER JARS

A process of its own: one is classic or Connect for good, and jars are given when the server starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rangecast import spark as rs

NOW = {"availableNow": True}


def main(bootstrap: str, topic: str, store: str, folder: Path, jars: str) -> None:
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = rs.session(remote="local[2]", conf=conf | ({"spark.jars": jars} if jars else {}))
    said: dict[str, object] = {"connect": "connect" in type(spark).__module__}

    def pairs(frame) -> list[list[object]]:
        return sorted([row.event_id, row.subscription_id] for row in frame.collect())

    now = rs.read_kafka(spark, topic, store, bootstrap=bootstrap, streaming=False)
    said["batch"] = pairs(now)
    flowing = rs.read_kafka(spark, topic, store, bootstrap=bootstrap, max_events=50)
    writer = flowing.writeStream.format("parquet").option("path", str(folder / "read_kafka"))
    writer.option("checkpointLocation", str(folder / "state")).trigger(**NOW).start().awaitTermination()
    said["stream"] = pairs(spark.read.parquet(str(folder / "read_kafka")))
    if jars:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        messages = spark.readStream.format("kafka").options(**options).load()
        # numbers as texts: from_json would make null of what is none, and null is missing, which may match
        parsed = messages.selectExpr(
            "from_json(cast(value as string), 'id string, price string, symbol string') as e"
        )
        events = parsed.selectExpr("e.id", "e.price", "e.symbol")
        out = folder / "connector"
        query = rs.match_stream(
            events, store, out=out, checkpoint=folder / "state2", trigger=NOW, absent=["at"]
        )
        query.awaitTermination()
        said["connector"] = pairs(rs.read_matches(spark, out))
        said["rejected"] = [[row.id, row.reason] for row in rs.read_rejects(spark, out).collect()]
    print(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
