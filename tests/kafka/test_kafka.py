"""Topics of a real Kafka: workers that are killed, subscriptions from a topic, how far a group is behind."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rangecast as rc
import seeds
from rangecast.cli.app import app
from rangecast.errors import OptionError, StorageError

pytestmark = [pytest.mark.integration, pytest.mark.once]

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def store(tmp_path):
    out = rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price"), rc.Category("symbol")))
    out.insert(rc.Subscriptions.parse(out.schema, {1: "price < 10", 2: "symbol = 'IBM'"}))
    return out


def send(bootstrap, topic, messages):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in messages:
        raw = None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, raw, key)
    assert producer.flush(30) == 0


def received(bootstrap, topic, n):
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    out = []
    for _ in range(30):
        out += consumer.consume(1_000, 1.0)
        if len(out) >= n:
            break
    out += consumer.consume(1_000, 1.0)
    consumer.close()
    return out


def job(store, bootstrap, names, **others):
    from rangecast.kafka import TopicMatch

    ticks, out, dead = names
    return TopicMatch(
        store=str(store.path),
        bootstrap=bootstrap,
        source=ticks,
        out=out,
        group=f"g-{ticks}",
        dead_letters=dead,
        **others,
    )


@pytest.mark.parametrize("exactly_once", [False, True])
def test_matches_go_out_and_what_cannot_be_read_goes_aside(store, bootstrap, topics, exactly_once):
    from rangecast.kafka import TopicWorker, read_lag

    names = topics("ticks", "matches", "dead")
    rows = [{"id": f"e{k}", "price": k, "symbol": "IBM" if k % 2 else "HAL"} for k in range(40)]
    send(bootstrap, names[0], [(row["id"].encode(), row) for row in rows])
    send(bootstrap, names[0], [(b"bad", b"[1]"), (b"gone", None)])
    with TopicWorker(job(store, bootstrap, names, exactly_once=exactly_once)) as worker:
        counts = worker.run(lambda: False, idle=4.0)
    assert (counts.events, counts.rejected) == (40, 2)
    expected = rc.open_index("scan", store.schema)
    expected.insert(store.subscriptions())
    matches = expected.match(rc.Events.from_rows(store.schema, rows)).sort()
    right = {f"e{k}": matches.row(k).tolist() for k in range(40) if matches.counts[k]}
    got = received(bootstrap, names[1], len(right))
    values = [json.loads(message.value()) for message in got]
    assert {v["event_id"]: sorted(v["subscription_ids"]) for v in values} == right
    assert len(values) == len(right)
    assert all(dict(message.headers())["rangecast-version"] == b"1" for message in got)
    dead = received(bootstrap, names[2], 2)
    assert sorted((m.key(), m.value()) for m in dead) == [(b"bad", b"[1]"), (b"gone", None)]
    assert sum(lag.behind for lag in read_lag(bootstrap, names[0], f"g-{names[0]}")) == 0


def test_a_change_of_the_store_counts_from_the_next_batch(store, bootstrap, topics):
    from rangecast.kafka import TopicWorker

    names = topics("ticks", "matches", "dead")
    with TopicWorker(job(store, bootstrap, names, exactly_once=True)) as worker:
        send(bootstrap, names[0], [(None, {"id": "a", "price": 500})])
        worker.run(lambda: worker.counts.events >= 1)
        store.insert(rc.Subscriptions.parse(store.schema, {3: "price > 400"}))
        send(bootstrap, names[0], [(None, {"id": "b", "price": 500})])
        worker.run(lambda: worker.counts.events >= 2)
    [only] = received(bootstrap, names[1], 1)
    assert json.loads(only.value()) == {"event_id": "b", "subscription_ids": [3]}
    assert dict(only.headers())["rangecast-version"] == b"2"


def test_a_time_to_begin_at(store, bootstrap, topics):
    from rangecast.kafka import TopicWorker

    names = topics("ticks", "matches", "dead")
    send(bootstrap, names[0], [(None, {"id": "a", "price": 1})])
    with TopicWorker(job(store, bootstrap, names, start="2999-01-01")) as worker:
        assert worker.run(lambda: False, idle=4.0).events == 0


def test_killed_workers_lose_and_double_nothing(bootstrap, topics, tmp_path):
    import kafka_soak

    names = topics("ticks", "matches", "dead", partitions=4)
    counted = kafka_soak.soak(
        bootstrap, names, tmp_path, kills=2, n_events=4_000, seed=seeds.seed_of("kafka soak")
    )
    assert counted["kills"] == 2
    assert (counted["lost"], counted["doubled"], counted["wrong"]) == (0, 0, 0), counted


def test_subscriptions_from_a_compacted_topic(bootstrap, topics, tmp_path):
    from rangecast.kafka import SubscriptionTopic

    topic = topics("alerts", **{"cleanup.policy": "compact"})
    store = rc.Store.open(tmp_path / "fed", rc.Schema(rc.Int("price"), rc.Category("symbol")))
    first = [(b"a", {"condition": "price < 10"}), (b"b", {"price_low": 5, "symbol": "IBM"})]
    more = [
        (b"c", {"condition": "x"}),
        (b"a", {"condition": "no such thing"}),
        (b"d", {"condition": "price = 1"}),
    ]
    send(bootstrap, topic, first + more)
    with SubscriptionTopic(store, bootstrap, topic) as following:
        counts = following.run(lambda: False, until_end=True)
    assert (counts.upserts, counts.rejected) == (3, 2)
    assert sorted(store.subscriptions().ids) == ["a", "b", "d"]
    version = store.version
    # nothing is taken twice
    with SubscriptionTopic(rc.Store.open(store.path), bootstrap, topic) as following:
        assert following.run(lambda: False, until_end=True).messages == 0
    assert store.version == version
    send(bootstrap, topic, [(b"a", None), (b"b", {"condition": "price > 7"})])
    with SubscriptionTopic(store, bootstrap, topic) as following:
        counts = following.run(lambda: False, until_end=True)
    assert (counts.messages, counts.deletes) == (2, 1)
    events = rc.Events.from_rows(store.schema, [{"price": 8}, {"price": 1}])
    matches = store.index().match(events)
    assert [matches.row(k).tolist() for k in range(2)] == [["b"], ["d"]]


def test_a_topic_that_is_another_one_is_refused(bootstrap, topics, tmp_path):
    from rangecast.kafka import SubscriptionTopic

    topic = topics("alerts")
    store = rc.Store.open(tmp_path / "fed", rc.Schema(rc.Int("price")))
    ahead = {"cluster": None, "offsets": {"0": 99}}
    with SubscriptionTopic(store, bootstrap, topic) as following:
        ahead["cluster"] = following._cluster
    store.apply(note={f"kafka:{topic}": ahead})
    with pytest.raises(StorageError, match="another topic, or messages are gone"):
        SubscriptionTopic(store, bootstrap, topic)
    store.apply(note={f"kafka:{topic}": {**ahead, "cluster": "elsewhere"}})
    with pytest.raises(StorageError, match="of the cluster elsewhere"):
        SubscriptionTopic(store, bootstrap, topic)


def test_the_command_line(store, bootstrap, topics):
    names = topics("ticks", "matches", "dead")
    send(bootstrap, names[0], [(None, {"id": 1, "price": 3}), (None, {"id": 2, "price": 30})])
    run = CliRunner().invoke
    place = ["--bootstrap", bootstrap, "--in", names[0], "--group", "shell"]
    words = ["kafka", "match", "--store", str(store.path), *place, "--out", names[1], "--form", "pairs"]
    done = run(app, [*words, "--keep", "price", "--id-type", "int64", "--idle", "4"])
    assert done.exit_code == 0, done.output
    [only] = received(bootstrap, names[1], 1)
    assert json.loads(only.value()) == {"event_id": 1, "subscription_id": 1, "price": 3}
    shown = run(app, ["kafka", "status", *place, "--json"])
    assert json.loads(shown.stdout)["behind"] == 0
    topic = topics("alerts")
    send(bootstrap, topic, [(b"9", {"condition": "price > 1"})])
    words = ["kafka", "subscriptions", "--store", str(store.path), *place[:2], "--topic", topic]
    fed = run(app, [*words, "--until-end"])
    assert fed.exit_code == 0, fed.output
    assert 9 in store


def test_workers_come_and_go_while_events_flow(store, bootstrap, topics):
    """Partitions move twice; each event is answered once, and each worker says what is its own."""
    from rangecast.kafka import TopicWorker

    names = topics("ticks", "matches", "dead", partitions=4)
    given = {"exactly_once": True, "batch_events": 40}
    shorter = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}

    def feed(first):
        rows = [(f"e{k}".encode(), {"id": f"e{k}", "price": 1}) for k in range(first, first + 200)]
        send(bootstrap, names[0], rows)

    def owned(worker):
        return len(worker._consumer.assignment())

    def run(*workers, until):
        """Step by turns: a worker that does not ask takes no part in a rebalance."""
        for _ in range(600):
            for worker in workers:
                worker.step()
            if until():
                return
        raise AssertionError("it did not come to that")

    with TopicWorker(job(store, bootstrap, names, settings=shorter, **given)) as first:
        feed(0)
        run(first, until=lambda: first.counts.events == 200)
        assert sorted(first.lag()) == [0, 1, 2, 3]
        assert set(first.lag().values()) == {0}
        with TopicWorker(job(store, bootstrap, names, settings=shorter, **given)) as second:
            feed(200)
            run(first, second, until=lambda: owned(first) == owned(second) == 2)
            feed(400)
            run(first, second, until=lambda: first.counts.events + second.counts.events >= 600)
            assert second.counts.events
        assert second.lag() == {}
        feed(600)
        total = second.counts.events
        run(first, until=lambda: first.counts.events + total >= 800)
    got = [json.loads(m.value())["event_id"] for m in received(bootstrap, names[1], 800)]
    assert sorted(got) == sorted(f"e{k}" for k in range(800))


def test_a_process_serves_metrics_and_ends_when_it_is_told(store, bootstrap, topics):
    from kafka_broker import free_port

    names = topics("ticks", "matches", "dead")
    send(bootstrap, names[0], [(b"k", {"id": f"e{k}", "price": 1}) for k in range(30)] + [(b"k", b"[1]")])
    port = free_port()
    command = [sys.executable, "-m", "rangecast", "kafka", "match", "--store", str(store.path)]
    command += ["--bootstrap", bootstrap, "--in", names[0], "--out", names[1], "--dlq", names[2]]
    command += ["--group", "served", "--exactly-once", "--metrics", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        deadline = time.monotonic() + 120
        while "rangecast_kafka_events_total 30.0" not in said:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline, said
            try:
                said = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
            except urllib.error.HTTPError as error:
                raise AssertionError("the metrics cannot be read") from error
            except TimeoutError as error:
                raise AssertionError("whoever asks for metrics waits for the worker") from error
            except OSError:
                pass  # not yet
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    assert "30 events in" in err
    for line in ("rejected_total 1.0", "version 1.0", 'batch_seconds_bucket{le="+Inf"}', "events_per_second"):
        assert f"rangecast_kafka_{line}" in said, said
    lag = [float(line.split()[-1]) for line in said.splitlines() if line.startswith("rangecast_kafka_lag{")]
    assert len(lag) == 3
    assert sum(lag) == 0
    shown = CliRunner().invoke(
        app, ["kafka", "status", "--bootstrap", bootstrap, "--in", names[0], "--group", "served", "--json"]
    )
    assert json.loads(shown.stdout)["behind"] == 0


def test_values_in_avro_by_a_registry(store, bootstrap, topics):
    import io

    import fastavro
    from schema_registry import serving, wire

    from rangecast.kafka import TopicWorker
    from rangecast.kafka.formats import ValueFormat

    names = topics("ticks", "matches", "dead", partitions=1)
    fields = [{"name": "id", "type": "string"}, {"name": "price", "type": "long"}]
    schema = {"type": "record", "name": "Tick", "fields": fields}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": "a", "price": 3})
    with serving() as (registry, url):
        registry.add(4, json.dumps(schema))
        send(bootstrap, names[0], [(b"k", wire(4, out.getvalue())), (b"k", wire(5, b"x")), (b"k", b"{}")])
        form = ValueFormat("avro", url)
        with TopicWorker(job(store, bootstrap, names, exactly_once=True, values=form)) as worker:
            worker.run(lambda: worker.counts.events + worker.counts.rejected >= 3)
    [only] = received(bootstrap, names[1], 1)
    assert json.loads(only.value()) == {"event_id": "a", "subscription_ids": [1]}
    reasons = [dict(m.headers())["rangecast-reason"].decode() for m in received(bootstrap, names[2], 2)]
    assert reasons[0] == "the registry does not have the schema 5"
    assert reasons[1].startswith("a value must begin with the byte 0")


def test_what_is_missing_is_said(store, bootstrap, topics):
    from rangecast.kafka import TopicMatch, TopicWorker

    fields = {"store": str(store.path), "bootstrap": bootstrap, "out": "o", "group": "g"}
    with pytest.raises(StorageError, match="no topic 'nowhere'"):
        TopicWorker(TopicMatch(source="nowhere", **fields))
    with pytest.raises(OptionError, match="must differ"):
        TopicMatch(source="o", **fields)
