"""Kill workers of a group inside their transactions, and count what is lost or doubled.

    python tests/kafka/kafka_soak.py --kills 20

A real broker on loopback, two workers of one group that match with --exactly-once, subscriptions that
change while they run, kill -9 at random moments, a new worker for each that was killed. At the end every
event must have been answered once, as a reader with read_committed sees it, and each answer must be right
for the version that its header names. Exits with 1 if anything was lost, doubled or wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rangecast as rc
import seeds
from rangecast.kafka import read_lag

SCHEMA = {"price": 1_000}


def start(store: Path, bootstrap: str, topics: list[str], name: str, batch: int) -> subprocess.Popen:
    """One worker as its own process."""
    ticks, out, dead = topics
    command = [sys.executable, "-m", "rangecast", "kafka", "match", "--store", str(store)]
    command += ["--bootstrap", bootstrap, "--in", ticks, "--out", out, "--dlq", dead, "--group", "soak"]
    command += ["--exactly-once", "--batch-events", str(batch), "--event-id", "id", "--worker", name]
    command += ["--config", "session.timeout.ms=6000", "--config", "heartbeat.interval.ms=1000"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def subscriptions(schema: rc.Schema, round: int) -> rc.Subscriptions:
    """The subscriptions that a version brings: 50 ranges that move with the version."""
    texts = {
        k: f"price between {(k * 20 + round) % 1000} and {(k * 20 + round) % 1000 + 15}" for k in range(50)
    }
    return rc.Subscriptions.parse(schema, texts)


def soak(
    bootstrap: str, topics: list[str], folder: Path, kills: int, n_events: int, seed: int
) -> dict[str, int]:
    """Run it, and count."""
    from confluent_kafka import Consumer, Producer

    draw = random.Random(seed)
    ticks, out, dead = topics
    schema = rc.Schema(rc.Int("price", 0, 999))
    store = rc.Store.open(folder / "store", schema)
    store.insert(subscriptions(schema, 0))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    prices = {}
    bad = set()
    for k in range(n_events):
        price = draw.randrange(1_000)
        prices[f"e{k}"] = price
        value = {"id": f"e{k}", "price": price}
        if k % 97 == 0:
            bad.add(f"e{k}")
            value["price"] = "none"
        producer.produce(ticks, json.dumps(value).encode(), f"e{k}".encode())
        producer.poll(0)
    producer.flush(30)
    # small batches, so that there are many transactions to be killed in
    batch = max(4, n_events // 1_000)
    workers = [start(store.path, bootstrap, topics, f"w{k}", batch) for k in range(2)]
    killed, reached = 0, n_events
    began = time.monotonic()
    try:
        while True:
            time.sleep(draw.uniform(0.05, 0.4))
            if store.version < 40:
                store.insert(subscriptions(schema, store.version))
            behind = sum(lag.behind for lag in read_lag(bootstrap, ticks, "soak"))
            if killed < kills and 0 < behind < reached:
                # they are at work: since the last kill some events were committed
                k = draw.randrange(len(workers))
                workers[k].kill()
                workers[k].wait()
                killed += 1
                reached = behind
                workers[k] = start(store.path, bootstrap, topics, f"w{k}", batch)
            if not behind:
                break
            if time.monotonic() - began > 60 + 15 * kills:
                raise SystemExit(f"{behind} events are still behind after {time.monotonic() - began:.0f} s")
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    answers = read_all(Consumer, bootstrap, out)
    letters = read_all(Consumer, bootstrap, dead)
    return count(store, schema, prices, bad, answers, letters, killed)


def read_all(consumer_type, bootstrap: str, topic: str) -> list[tuple[dict, int | None]]:
    """Everything that a reader of committed messages sees, with the version of its header."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "soak-reader", "auto.offset.reset": "earliest"}
    settings |= {"isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = consumer_type(settings)
    consumer.subscribe([topic])
    out, quiet = [], 0
    while quiet < 8:
        got = consumer.consume(5_000, 1.0)
        quiet = 0 if got else quiet + 1
        for message in got:
            assert message.error() is None, message.error()
            headers = dict(message.headers() or [])
            version = headers.get("rangecast-version")
            out.append((json.loads(message.value()), None if version is None else int(version)))
    consumer.close()
    return out


def count(store, schema, prices, bad, answers, letters, killed) -> dict[str, int]:
    """Lost, doubled and wrong ones."""
    seen = Counter(answer["event_id"] for answer, _ in answers)
    rejected = Counter(letter["id"] for letter, _ in letters)
    wrong = 0
    expected = {}
    for answer, version in answers:
        if version not in expected:
            expected[version] = store.index(version)
        event = {"price": prices[answer["event_id"]]}
        right = expected[version].match(rc.Events.from_rows(schema, [event])).row(0).tolist()
        wrong += sorted(right) != sorted(answer["subscription_ids"])
    # in every version some subscription holds 16 of 20 prices, so who has no answer must match nothing in
    # some version
    latest = [store.index(v) for v in range(1, store.version + 1)]
    lost = 0
    for name in set(prices) - set(seen) - bad:
        one = rc.Events.from_rows(schema, [{"price": prices[name]}])
        lost += all(index.match(one).n_pairs for index in latest)
    return {
        "events": len(prices),
        "kills": killed,
        "versions": len(expected),
        "answers": len(answers),
        "rejected": len(letters),
        "lost": lost + len(bad - set(rejected)),
        "doubled": sum(n - 1 for n in seen.values()) + sum(n - 1 for n in rejected.values()),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--events", type=int, default=60_000)
    seeds.add_option(parser)
    given = parser.parse_args()
    from confluent_kafka.admin import AdminClient, NewTopic

    from kafka_broker import running

    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as bootstrap:
        topics = ["ticks", "matches", "ticks.rejected"]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(name, 4, 1) for name in topics]).values():
            future.result(30)
        counted = soak(bootstrap, topics, Path(folder), given.kills, given.events, given.seed)
    print(", ".join(f"{name} {n:,}" for name, n in counted.items()))
    sys.exit(bool(counted["lost"] or counted["doubled"] or counted["wrong"]))


if __name__ == "__main__":
    main()
