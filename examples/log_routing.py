"""Log lines of a Kafka topic, routed to teams: `python examples/log_routing.py BOOTSTRAP LOGS ROUTED`.

Each team says by a condition which lines it wants. A worker matches the topic LOGS and sends pairs of a line
and a team to the topic ROUTED, exactly once. The teams live in a store, so that they can be changed while it
runs: `rangecast store add teams --id search --condition "service = 'search'"`.
"""

import json
import sys

from confluent_kafka import Consumer, Producer

import rangecast as rc
from rangecast.kafka import TopicMatch, TopicWorker
from rangecast.kafka.messages import MessageForm

SCHEMA = rc.Schema(
    rc.Category("service"), rc.Int("status"), rc.Float("seconds"), rc.Category("message"), rc.Category("ip")
)
TEAMS = {
    "payments": "service = 'checkout' and (status >= 500 or seconds > 2)",
    "security": "message CONTAINS 'denied' or ip IN '203.0.113.0/24'",
    "search": "service = 'search' and status != 200",
}
LINES = [
    {"id": "a", "service": "checkout", "status": 502, "seconds": 0.2, "message": "bad gateway"},
    {"id": "b", "service": "checkout", "status": 200, "seconds": 3.5, "ip": "203.0.113.9"},
    {"id": "c", "service": "search", "status": 403, "message": "access denied", "ip": "198.51.100.8"},
    {"id": "d", "service": "search", "status": 200, "seconds": 0.1, "message": "ok"},
]


def produce(bootstrap: str, topic: str) -> None:
    """Write some lines, as services do all day."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for line in LINES:
        producer.produce(topic, json.dumps(line), line["id"])
    producer.flush(30)


def routed(bootstrap: str, topic: str, n: int) -> list[tuple[str, str]]:
    """What stands in the topic of routed lines: line and team."""
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    reader = Consumer({"bootstrap.servers": bootstrap, **settings})
    reader.subscribe([topic])
    found: list[tuple[str, str]] = []
    for _ in range(60):
        for message in reader.consume(100, 0.5):
            value = json.loads(message.value())
            found.append((value["event_id"], value["subscription_id"]))
        if len(found) >= n:
            break
    reader.close()
    return sorted(found)


def main(bootstrap: str, logs: str, out: str) -> None:
    store = rc.Store.open("teams", SCHEMA)
    store.insert(rc.Subscriptions.parse(SCHEMA, TEAMS))
    produce(bootstrap, logs)
    job = TopicMatch(
        store="teams",
        bootstrap=bootstrap,
        source=logs,
        out=out,
        group="routing",
        shape=MessageForm(form="pairs", event_id="id"),
        exactly_once=True,
    )
    with TopicWorker(job) as worker:
        counts = worker.run(lambda: worker.counts.events >= len(LINES), idle=20)
    print(counts.events, "lines,", counts.matches, "routed")
    for line, team in routed(bootstrap, out, counts.matches):
        print(line, "goes to", team)


if __name__ == "__main__":
    main(*sys.argv[1:4])
