"""Kill a stream that sends its matches to a topic, at every point between producing and Spark's checkpoint.

    python tests/kafka/sink_soak.py --kills 12

A real broker on loopback, a stream of files on Spark with `rs.kafka_sink`, subscriptions that change
between the batches, and a driver that kills itself (SIGKILL) at one of these points, by turns, and is
started again:

    marks     the batch is matched, nothing of it is sent
    produce   messages of a file are sent, their transaction is open
    commit    a file's transaction is committed, the others' are not
    ledger    all files are sent, the batch is not committed
    spark     the batch is committed, Spark has not written that down

At the end every pair of event and subscription must be in the topic once, as a reader of committed messages
sees it, and be right for the version that its header names. Exits with 1 if anything was lost, doubled or
wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import seeds

POINTS = ("marks", "produce", "commit", "ledger", "spark")


def kill_at(point: str, nth: int) -> None:
    """Make this process kill itself the nth time that it comes to a point."""
    from rangecast.spark.stream import kafka_sink, micro_batch
    from rangecast.spark.stream.ledger import Ledger

    passed = 0

    def come() -> None:
        nonlocal passed
        passed += 1
        if passed == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(home, name, flush=False):
        was = getattr(home, name)

        def work(*given):
            if flush:
                given[0].__self__.flush(10)
            come()
            return was(*given)

        setattr(home, name, work)

    if point == "marks":
        before(kafka_sink, "_connect")
    elif point == "produce":
        was = kafka_sink._finish

        def finish(step):
            if step.__name__ == "commit_transaction":
                step.__self__.flush(10)  # the messages are in the broker's log, and not committed
                come()
            was(step)

        kafka_sink._finish = finish
    elif point == "commit":
        was = kafka_sink._finish

        def finish(step):
            was(step)
            if step.__name__ == "commit_transaction":
                come()

        kafka_sink._finish = finish
    elif point == "ledger":
        before(Ledger, "commit")
    else:
        was_release = micro_batch.VersionPolicy.release

        def release(*given):
            was_release(*given)
            come()

        micro_batch.VersionPolicy.release = release


def drive(folder: Path, bootstrap: str, topic: str) -> None:
    """Run the stream over the files that are there, to the end."""
    from rangecast import spark as rs

    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = rs.session(master="local[2]", conf=conf)
    events = rs.read_events(spark, folder / "events", folder / "store", format="jsonl", files_per_batch=3)
    query = rs.match_stream(
        events,
        folder / "store",
        checkpoint=folder / "checkpoint",
        sink=rs.kafka_sink(topic, bootstrap=bootstrap),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    spark.stop()


def soak(bootstrap: str, topic: str, folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Feed, kill, start again, and count."""
    import rangecast as rc

    draw = random.Random(seed)
    schema = rc.Schema(rc.Int("price", 0, 999))
    store = rc.Store.open(folder / "store", schema)
    events = folder / "events"
    events.mkdir()
    prices: dict[int, int] = {}
    killed = 0
    for turn in range(kills + 1):
        store.insert(_subscriptions(schema, turn))
        for part in range(6):
            rows = [{"id": len(prices) + k, "price": draw.randrange(1_000)} for k in range(100)]
            prices |= {row["id"]: row["price"] for row in rows}
            scratch = events / f"_{turn}-{part}"
            scratch.write_text("".join(json.dumps(row) + "\n" for row in rows))
            scratch.rename(events / f"{turn:03}-{part}.jsonl")
        point = POINTS[turn % len(POINTS)] if turn < kills else "none"
        command = [sys.executable, __file__, "--drive", str(folder), bootstrap, topic, point]
        done = subprocess.run(
            [*command, str(draw.randrange(1, 3))], capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode == -signal.SIGKILL:
            killed += 1
        elif done.returncode:
            raise SystemExit(f"the stream ended by itself: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return count(store, schema, prices, read_tokens(bootstrap, topic), killed)


def _subscriptions(schema, turn: int):
    import rangecast as rc

    starts = [(k * 25 + turn) % 960 for k in range(40)]
    texts = {k: f"price between {a} and {a + 30}" for k, a in enumerate(starts)}
    return rc.Subscriptions.parse(schema, {**texts, 99: "price >= 0"})


def read_tokens(bootstrap: str, topic: str) -> list[tuple[dict, int, str]]:
    """All that a reader of committed messages sees: value, version and token."""
    from rangecast.kafka.spans import SpanReader, TopicEnds, TopicSpan

    ends = TopicEnds(bootstrap, topic, {})
    reader = SpanReader(bootstrap, topic, {})
    out = []
    for partition, (first, end) in ends.ends().items():
        for messages in reader.read(TopicSpan(partition, first, end)):
            for message in messages:
                headers = dict(message.headers())
                version = int(headers["rangecast-version"])
                out.append((json.loads(message.value()), version, headers["rangecast-token"].decode()))
    ends.close()
    reader.close()
    return out


def count(store, schema, prices, answers, killed) -> dict[str, int]:
    """Lost, doubled and wrong pairs."""
    import rangecast as rc

    seen = Counter((answer["event_id"], answer["subscription_id"]) for answer, _, _ in answers)
    versions = {}
    for answer, version, _ in answers:
        versions.setdefault(answer["event_id"], set()).add(version)
    found = {}
    for event, subscription in seen:
        found.setdefault(event, set()).add(subscription)
    lost = wrong = 0
    indexes = {v: store.index(v) for v in {v for some in versions.values() for v in some}}
    for event, price in prices.items():
        if event not in versions:
            lost += 1  # a subscription of every version matches all events
            continue
        version, *others = sorted(versions[event])
        right = indexes[version].match(rc.Events.from_rows(schema, [{"price": price}])).row(0).tolist()
        lost += len(set(right) - found[event])
        wrong += len(found[event] - set(right)) + len(others)
    return {
        "events": len(prices),
        "kills": killed,
        "versions": len(indexes),
        "batches": len({token.split("/")[1] for _, _, token in answers}),
        "files": len({token for _, _, token in answers}),
        "pairs": len(answers),
        "lost": lost,
        "doubled": sum(n - 1 for n in seen.values()),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=12)
    seeds.add_option(parser)
    parser.add_argument("--drive", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        folder, bootstrap, topic, point, nth = given.drive
        if point != "none":
            kill_at(point, int(nth))
        drive(Path(folder), bootstrap, topic)
        return
    from confluent_kafka.admin import AdminClient, NewTopic

    from kafka_broker import running

    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic("matches", 4, 1)]).values():
            future.result(30)
        began = time.monotonic()
        counted = soak(bootstrap, "matches", Path(folder), given.kills, given.seed)
    print(", ".join(f"{name} {n:,}" for name, n in counted.items()), f"({time.monotonic() - began:.0f} s)")
    sys.exit(bool(counted["lost"] or counted["doubled"] or counted["wrong"]))


if __name__ == "__main__":
    main()
