"""What matching costs a Kafka worker: events per second and CPU per event, beside workers that do not match.

    python benchmarks/kafka.py                          workers, some two minutes
    python benchmarks/kafka.py --spark                  read_kafka beside match_stream on files and connector
    python benchmarks/kafka.py --page docs/kafka.md     writes the table into the page, between its marks

A real broker on loopback, which shares the machine and whose CPU is not counted. All workers read the same
topic with the same settings of the client, in transactions of up to 5,000 events, by turns, and send a
message for every event:

    match      `TopicWorker`: read the batch, match it against the store, send, commit
    plain      json.loads and json.dumps for each event, as many ids, no index: as one writes it by hand
    bulk       our own reader and writer with an answer that is made up: what is left is the cost of matching

CPU is that of the process, with the client's own threads. Each is run once to warm up, then --repeat times;
the fastest counts. What was sent is counted: as many messages, as many ids.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import rangecast as rc
from jars import NoJars, kafka_connector
from rangecast.kafka import TopicMatch, TopicWorker
from rangecast.kafka.connection import make_consumer, make_producer
from rangecast.kafka.formats import ValueFormat
from rangecast.kafka.messages import VERSION_HEADER, MessageForm
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from tables import put_between

PRICES = 1_000_000
SYMBOLS = 200
BATCH = 5_000


class Cost(NamedTuple):
    """Of one run: events, messages, ids, seconds, CPU seconds."""

    events: int
    messages: int
    ids: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.events / self.wall

    @property
    def micros(self) -> float:
        return self.cpu / self.events * 1e6


def make_store(folder: Path, n: int, matches: float) -> rc.Store:
    """n subscriptions by symbol and price, so many matches per event, one of them by what always matches."""
    draw = np.random.default_rng(1)
    schema = rc.Schema(rc.Int("price", 0, PRICES - 1), rc.Category("symbol"), rc.Float("change"))
    store = rc.Store.open(folder, schema)
    width = int(PRICES * SYMBOLS * (matches - 1) / n)
    lows = draw.integers(0, PRICES, n).tolist()
    symbols = draw.integers(0, SYMBOLS, n).tolist()
    texts = {
        k: f"symbol = 'S{s}' and price between {low} and {low + width}"
        for k, (low, s) in enumerate(zip(lows, symbols, strict=True), 1)
    }
    store.insert(rc.Subscriptions.parse(schema, texts | {0: "price >= 0"}))
    store.snapshot()
    return store


def make_rows(n: int) -> Iterator[dict[str, Any]]:
    draw = np.random.default_rng(2)
    prices = draw.integers(0, PRICES, n).tolist()
    symbols = draw.integers(0, SYMBOLS, n).tolist()
    changes = np.round(draw.normal(size=n), 4).tolist()
    for k, (price, symbol, change) in enumerate(zip(prices, symbols, changes, strict=True)):
        yield {
            "id": f"event-{k:08}",
            "price": price,
            "symbol": f"S{symbol}",
            "change": change,
            "venue": "XETR",
        }


def fill(bootstrap: str, topic: str, n: int) -> None:
    producer = make_producer(bootstrap, {}, {"linger.ms": 50})
    for row in make_rows(n):
        while True:
            try:
                producer.produce(topic, json.dumps(row))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def timed(events: int, work: Callable[[], tuple[int, int]]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    messages, ids = work()
    return Cost(events, messages, ids, time.perf_counter() - wall, time.process_time() - cpu)


def job(bootstrap: str, topics: tuple[str, str], store: rc.Store, values: ValueFormat) -> TopicMatch:
    return TopicMatch(
        store=str(store.path),
        bootstrap=bootstrap,
        source=topics[0],
        out=topics[1],
        group=f"bench-{uuid.uuid4().hex}",
        exactly_once=True,
        batch_events=BATCH,
        shape=MessageForm("id"),
        values=values,
    )


def run_worker(bootstrap, topics, store, n, kind=TopicWorker, values=None) -> Cost:
    with kind(job(bootstrap, topics, store, values or ValueFormat())) as worker:
        worker.step()  # joins the group; the first events are there when it has
        while not worker.counts.events:
            worker.step()
        begun = worker.counts.events, worker.counts.messages, worker.counts.matches

        def work() -> tuple[int, int]:
            worker.run(lambda: worker.counts.events >= n)
            return worker.counts.messages - begun[1], worker.counts.matches - begun[2]

        return timed(n - begun[0], work)


class BulkWorker(TopicWorker):
    """A worker whose index answers without looking: as many ids for each event as there would be."""

    def __init__(self, job: TopicMatch, per_event: int = 3) -> None:
        super().__init__(job)
        reading = self._follower.reading

        @contextlib.contextmanager
        def without(version: int) -> Iterator[Any]:
            with reading(version) as index:
                yield _NoIndex(index.schema, per_event)

        self._follower.reading = without


class _NoIndex:
    def __init__(self, schema: rc.Schema, per_event: int) -> None:
        self.schema, self._each = schema, per_event

    def match(self, events: rc.Events) -> Matches:
        n = len(events)
        slots = np.tile(np.arange(50_000, 50_000 + self._each, dtype=np.int32), n)
        return Matches(np.arange(n + 1) * self._each, slots, Ids.counting(0, 100_000))


def run_plain(bootstrap, topics, n, per_event: int) -> Cost:
    """What one writes by hand: the same client, the same batches, the same transactions."""
    import confluent_kafka as kafka

    own = {"group.id": f"bench-{uuid.uuid4().hex}", "auto.offset.reset": "earliest"}
    consumer = make_consumer(bootstrap, {}, {**own, "isolation.level": "read_committed"})
    producer = make_producer(
        bootstrap, {}, {"transactional.id": uuid.uuid4().hex, "delivery.report.only.error": True}
    )
    producer.init_transactions(30)
    consumer.subscribe([topics[0]])
    headers = [(VERSION_HEADER, b"1")]
    ids = list(range(50_000, 50_000 + per_event))
    done = messages = 0

    def step() -> None:
        nonlocal done, messages
        got = consumer.consume(BATCH, timeout=0.02)
        if not got:
            return
        producer.begin_transaction()
        ends = {}
        for message in got:
            event = json.loads(message.value())
            value = json.dumps({"event_id": event["id"], "subscription_ids": ids})
            while True:
                try:
                    producer.produce(topics[1], value, event["id"], headers=headers)
                    break
                except BufferError:
                    producer.poll(0.05)
            messages += 1
            ends[message.partition()] = message.offset() + 1
        offsets = [kafka.TopicPartition(topics[0], p, at) for p, at in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        done += len(got)

    try:
        while not done:
            step()
        begun = done, messages

        def work() -> tuple[int, int]:
            while done < n:
                step()
            return messages - begun[1], (messages - begun[1]) * per_event

        return timed(n - begun[0], work)
    finally:
        consumer.close()


def workers(bootstrap: str, folder: Path, n: int, subscriptions: int, repeat: int) -> dict[str, Cost]:
    """All kinds by turns; the fastest of each."""
    topics = ("ticks", "matches")
    make_topics(bootstrap, topics)
    fill(bootstrap, topics[0], n)
    store = make_store(folder / "store", subscriptions, 3)
    kinds = {
        "match": lambda: run_worker(bootstrap, topics, store, n),
        "plain": lambda: run_plain(bootstrap, topics, n, 3),
        "bulk": lambda: run_worker(bootstrap, topics, store, n, BulkWorker),
    }
    found: dict[str, list[Cost]] = {name: [] for name in kinds}
    for turn in range(repeat + 1):
        for name, run in kinds.items():
            cost = run()
            assert cost.messages == cost.events, (name, cost)
            if turn:
                found[name].append(cost)
    return {name: min(costs, key=lambda cost: cost.micros) for name, costs in found.items()}


def make_topics(bootstrap: str, topics: tuple[str, ...], partitions: int = 2) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in topics]).values():
        future.result(30)


def on_spark(bootstrap: str, folder: Path, n: int, subscriptions: int, repeat: int) -> dict[str, Cost]:
    """read_kafka, and match_stream on Spark's own connector and over files of the same events, to Parquet.

    CPU is that of JVM and workers. The connector is left out where its jars cannot be fetched.

    What a stream of 100 events takes, its start, is taken off.
    """
    from rangecast import spark as rs

    make_topics(bootstrap, ("ticks",))
    fill(bootstrap, "ticks", n)
    store = make_store(folder / "store", subscriptions, 3)
    files = folder / "events"
    files.mkdir()
    rows = list(make_rows(n))
    for k in range(4):
        lines = (json.dumps(row) + "\n" for row in rows[k * n // 4 : (k + 1) * n // 4])
        (files / f"{k}.jsonl").write_text("".join(lines))
    conf = {"spark.ui.enabled": "false"}
    with contextlib.suppress(NoJars):
        conf["spark.jars"] = kafka_connector()
    spark = rs.session(master="local[2]", conf=conf)

    topic = "ticks"

    def kafka(out: Path) -> Any:
        matches = rs.read_kafka(spark, topic, store, bootstrap=bootstrap)
        writer = matches.writeStream.format("parquet").option("path", str(out / "matches"))
        return writer.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()

    def stream(out: Path) -> Any:
        events = rs.read_events(spark, files, store)
        place = {"out": out / "matches", "checkpoint": out / "checkpoint"}
        return rs.match_stream(events, store, trigger={"availableNow": True}, **place)

    def connector(out: Path) -> Any:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        messages = spark.readStream.format("kafka").options(**options).load()
        # numbers as texts, so that what is none is rejected and not null
        fields = "id string, price string, symbol string, change string"
        parsed = messages.selectExpr(f"from_json(cast(value as string), '{fields}') as e")
        place = {"out": out / "matches", "checkpoint": out / "checkpoint"}
        return rs.match_stream(parsed.select("e.*"), store, trigger={"availableNow": True}, **place)

    kinds = {"read_kafka": kafka, "match_stream over files": stream}
    if "spark.jars" in conf:
        kinds["match_stream on the connector"] = connector

    def run(name: str, turn: int) -> Cost:
        out = folder / f"{name.replace(' ', '-')}-{turn}"
        cpu, wall = cpu_of_all(), time.perf_counter()
        query = kinds[name](out)
        query.awaitTermination()
        assert query.exception() is None, query.exception()
        taken = time.perf_counter() - wall, cpu_of_all() - cpu
        return Cost(n, 0, spark.read.parquet(str(out / "matches")).count(), *taken)

    found: dict[str, list[Cost]] = {name: [] for name in kinds}
    for turn in range(repeat + 1):
        for name in kinds:
            cost = run(name, turn)
            if turn:
                found[name].append(cost)
    best = {name: min(costs, key=lambda cost: cost.micros) for name, costs in found.items()}
    assert len({cost.ids for cost in best.values()}) == 1, best
    # a stream starts processes, which has nothing to do with how many events there are
    make_topics(bootstrap, ("few",))
    fill(bootstrap, "few", 100)
    topic = "few"
    shutil.rmtree(files)
    files.mkdir()
    (files / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(100)))
    out = {}
    for name, cost in best.items():
        start = min((run(name, repeat + 1 + k) for k in range(2)), key=lambda each: each.cpu)
        print(f"{name}: the start takes {start.wall:.1f} s, {start.cpu:.1f} s of CPU")
        out[name] = cost._replace(wall=cost.wall - start.wall, cpu=cost.cpu - start.cpu)
    spark.stop()
    return out


def cpu_of_all() -> float:
    """CPU seconds of this process and all below it but the broker, also of those that have ended."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            if "kafka.Kafka" in process.cmdline():
                continue
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def table(costs: dict[str, Cost], base: str, said: dict[str, str]) -> str:
    lines = [
        "| | events per second | CPU per event | CPU beside |",
        "|---|---|---|---|",
    ]
    for name, cost in costs.items():
        ratio = cost.micros / costs[base].micros
        lines.append(f"| {said.get(name, name)} | {cost.rate:,.0f} | {cost.micros:.1f} µs | {ratio:.2f} |")
    return "\n".join(lines)


SAID = {
    "read_kafka": "`rs.read_kafka` to Parquet, 2 partitions",
    "match_stream on the connector": "`rs.match_stream` on Spark's own connector, values as texts",
    "match_stream over files": "`rs.match_stream` over 4 files of JSON lines with the same events",
    "match": "`rangecast kafka match --exactly-once`",
    "plain": "the same by hand without matching: `json.loads`, `json.dumps`, produce, commit",
    "bulk": "our worker with an index that answers without looking",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--bootstrap", help="A broker that runs already, with empty topics.")
    parser.add_argument("--page", type=Path, help="Write the table between the marks of this page.")
    given = parser.parse_args()
    from kafka_broker import running

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        bootstrap = given.bootstrap or stack.enter_context(running(Path(folder)))
        run = on_spark if given.spark else workers
        costs = run(bootstrap, Path(folder), given.events, given.subscriptions, given.repeat)
    base = "plain"
    if given.spark:
        own = "match_stream on the connector"
        base = own if own in costs else "match_stream over files"
    text = table(costs, base, SAID)
    print(text)
    print(f"{given.events:,} events, {given.subscriptions:,} subscriptions, repeat {given.repeat}")
    if given.page is not None:
        put_between(given.page, "cost on Spark" if given.spark else "cost", "kafka.py", text)


if __name__ == "__main__":
    main()
