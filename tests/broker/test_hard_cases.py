"""What could go wrong in silence: copies of different ages, full disks, clocks, retention, odd names."""

import json
import os
import shutil
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import rangecast as rc
from rangecast.broker import catch_up, event_log, webhooks
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.directory import Directory
from rangecast.broker.event_log import EventLog, PublishedBody, RecordNote, joined_strings
from rangecast.broker.frames import split_frames
from rangecast.broker.server import serving
from rangecast.broker.space import KeyMemory, Space, newest_pin
from rangecast.client import Client, ClientError
from rangecast.durable import lines
from rangecast.durable.lines import Journal
from rangecast.errors import StorageError

pytestmark = pytest.mark.once


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def full(*_):
    raise OSError(28, "No space left on device")


def unwritable(path):
    raise StorageError(f"{path}: cannot be written: No space left on device")


def prices(messages):
    return [message["event"]["price"] for message in messages]


def test_a_cursor_beyond_a_restored_log_passes_over_nothing(start, tmp_path, caplog):
    log = tmp_path / "data" / "main" / "log"
    with start() as url, Client(url) as client:
        client.subscribe("alice", "a", "price > 0")
        client.subscribe("bob", "b", "price > 0")
        client.publish([{"price": 1}, {"price": 2}])
    shutil.copytree(log, tmp_path / "copy")
    with start() as url, Client(url) as client:
        client.publish([{"price": n} for n in range(3, 10)])
        assert client.ack("alice", 9) == 9
        assert client.ack("bob", 1) == 1
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "copy", log)
    with start() as url, Client(url) as client:
        assert "the cursor of alice was at event 9, and the log ends at 2" in caplog.text
        client.publish([{"price": n} for n in range(103, 120)])
        assert prices(client.messages("alice")["messages"]) == list(range(103, 120))
        assert prices(client.messages("bob")["messages"]) == [2, *range(103, 120)]
    with start() as url, Client(url) as client:  # and it is on disk
        assert prices(client.messages("alice")["messages"]) == list(range(103, 120))


def test_a_store_that_is_older_than_the_log_gives_no_version_twice(start, tmp_path, caplog):
    store = tmp_path / "data" / "main" / "store"
    with start() as url, Client(url) as client:
        client.subscribe("alice", "a", "price > 100")
    shutil.copytree(store, tmp_path / "copy")
    with start() as url, Client(url) as client:
        client.subscribe("alice", "b", "price > 200")
        client.subscribe("alice", "c", "price > 300")
        client.publish({"price": 5})  # is pinned to version 3
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "copy", store)
    with start() as url, Client(url) as client:
        assert "the store was at version 1, and the log at 3" in caplog.text
        assert client.subscribe("alice", "d", "price > 0")["version"] == 4
        client.publish({"price": 6})
        # the event before the subscription stays without it
        assert prices(client.messages("alice")["messages"]) == [6]
        assert [s["name"] for s in client.subscriptions("alice")] == ["a", "d"]


def filled_log(folder, n, **options):
    log = EventLog(folder, segment_bytes=1, **options)  # each record is a segment
    for k in range(n):
        body = PublishedBody(joined_strings([b'{"n":%d}' % k] * 2))
        note = RecordNote(source="feed", key=f"k{k}", digest="d")
        log.append(np.full((1, 2), k, np.int64), body, k // 2, note)
        log.sync()
    return log


def test_the_newest_pin_is_found_behind_empty_segments(tmp_path):
    assert newest_pin(EventLog(tmp_path / "empty")) == 0
    log = filled_log(tmp_path / "some", 6)
    assert log.n_segments == 7
    assert newest_pin(log) == 2
    log.close()


def test_keys_behind_damage_are_known(tmp_path):
    log = filled_log(tmp_path, 3)
    log.close()
    damaged = sorted(tmp_path.glob("*.events"))[1]
    raw = bytearray(damaged.read_bytes())
    raw[-20] ^= 1
    damaged.write_bytes(raw)
    log = EventLog(tmp_path, segment_bytes=1)
    log.recent = lambda _: 1
    keys = KeyMemory()
    keys.load(log)
    assert keys.find("feed", "k0", "d")["first"] == 1
    assert keys.find("feed", "k1", "d") is None
    assert keys.find("feed", "k2", "d")["first"] == 5
    log.close()


def test_retention_cuts_under_one_who_catches_up_and_the_gap_is_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(catch_up, "_FIRST_ROUND", 4)
    schema = rc.Schema(rc.Int("n"))
    directory = Directory()
    directory.load(0, rc.Subscriptions.parse(schema, ids=["c0/all"], texts=["n >= 0"]))
    log = filled_log(tmp_path, 10)  # events 1 to 20
    served = catch_up.Replay(log, directory, schema, threading.RLock(), directory.index(schema))
    one = SimpleNamespace(number=0, position=1)
    told = []

    def round_():
        (answer,) = served.serve([one])
        told.extend((kind, json.loads(content)) for kind, content in split_frames(answer.data))
        one.position = answer.position

    round_()
    assert one.position == 5
    log.keep_bytes = sum(segment.end for segment in log._segments[-4:])
    assert log.retain() == 7  # one of the four has no events yet: 15 is the first event now
    assert log.first == 15
    while one.position < log.durable:
        round_()
    gaps = [content for kind, content in told if kind == "gap"]
    assert [(gap["from"], gap["to"]) for gap in gaps] == [(5, 14)]
    assert [c["sequence"] for kind, c in told if kind == "match"] == [1, 2, 3, 4, *range(15, 21)]
    assert served.gaps == 1
    log.close()


def test_the_end_of_a_subscription_lies_between_two_requests(client):
    """Each request has one version: all of its events match or none, live as from the log, and none after
    the end was told."""
    client.subscribe("alice", "short", "price > 0", ttl="2s")
    client.subscribe("alice", "other", "price > 0")
    requests, told = [], None
    stream = client.stream("alice", notices=True)
    live = {}
    deadline = time.monotonic() + 60
    while (told is None or len(requests) < told + 2) and time.monotonic() < deadline:
        answer = client.publish([{"price": n} for n in range(1, 21)])
        requests.append((answer["first"], answer["last"]))
        for message in stream:
            if message.kind == "expired":
                told = len(requests)
            if message.kind == "match":
                live[message.sequence] = frozenset(message.subscriptions)
                if message.sequence == answer["last"]:
                    break
    assert told is not None
    seen = ["short" in live[first] for first, _ in requests]
    assert seen == sorted(seen, reverse=True)
    assert seen[0]
    assert not any(seen[told:])
    for (first, last), early in zip(requests, seen, strict=True):
        assert all(("short" in live[n]) == early for n in range(first, last + 1))
    again = {}
    for message in client.stream("alice", 1):
        again[message.sequence] = frozenset(message.subscriptions)
        if message.sequence == requests[-1][1]:
            break
    assert again == live


def test_a_clock_that_is_set_back_ends_nothing_twice(client, monkeypatch):
    real, shift = time.time, [0.0]
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + shift[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(shift[0] * 1e9))
    client.subscribe("alice", "hour", "price > 0", ttl="1h")
    client.subscribe("alice", "ever", "price > 0")
    version = client.status()["spaces"][0]["version"]
    shift[0] = -86_400.0
    time.sleep(0.6)
    client.publish({"price": 1})
    assert client.status()["spaces"][0]["version"] == version  # it has not ended
    shift[0] = 7_200.0
    wait_for(lambda: client.status()["spaces"][0]["version"] > version)
    client.publish({"price": 2})
    shift[0] = -86_400.0
    time.sleep(0.6)
    client.publish({"price": 3})
    found = client.messages("alice")
    assert [set(m["subscriptions"]) for m in found["messages"]] == [{"hour", "ever"}, {"ever"}, {"ever"}]
    assert [n["type"] for n in found["notices"]] == ["expired"]
    assert [s["name"] for s in client.subscriptions("alice")] == ["ever"]


def test_a_full_disk_is_told_to_the_publisher_and_nothing_is_seen(client, url, monkeypatch):
    client.subscribe("alice", "a", "price > 0")
    assert client.publish({"price": 1})["last"] == 1
    real = os.pwritev

    def half(handle, pieces, offset):
        real(handle, pieces[:1], offset)  # the disk takes the first bytes
        full()

    with monkeypatch.context() as patch:
        patch.setattr(event_log.os, "pwritev", half)
        answer = httpx.post(f"{url}/v1/main/events", json=[{"price": 2}, {"price": 3}])
        assert answer.status_code == 503
        assert "No space left on device" in answer.json()["error"]["message"]
        assert client.status()["spaces"][0]["next"] == 2
        assert prices(client.messages("alice")["messages"]) == [1]
    assert client.publish({"price": 4})["first"] == 2
    assert prices(client.messages("alice")["messages"]) == [1, 4]


def test_a_failure_that_nobody_thought_of_leaves_no_publisher_waiting(client, url, monkeypatch):
    client.subscribe("alice", "a", "price > 0")

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(event_log, "pack_record", fail)
        assert httpx.post(f"{url}/v1/main/events", json={"price": 1}, timeout=60).status_code == 500
    assert client.publish({"price": 2}) == {"first": 1, "last": 1, "rejected": []}
    assert prices(client.messages("alice")["messages"]) == [2]


def test_a_journal_after_a_write_that_failed(tmp_path, monkeypatch):
    """What could not be written is taken back, and half a line is not followed by another."""
    table = Journal(tmp_path / "cursors.journal")
    table.put("alice", 1)
    table.sync()

    def torn(handle):
        os.ftruncate(handle, os.fstat(handle).st_size - 7)
        full()

    with monkeypatch.context() as patch:
        patch.setattr(lines.os, "fdatasync", torn)
        patch.setattr(lines, "replacing", unwritable)
        for _ in range(2):
            table.put("bob", 2)
            table.put("alice", 7)
            table.put("alice", None)
            with pytest.raises(StorageError, match="No space left on device"):
                table.sync()
            assert dict(table.items()) == {"alice": 1}
            assert dict(Journal(tmp_path / "cursors.journal").items()) == {"alice": 1}
    table.sync()
    assert dict(Journal(tmp_path / "cursors.journal").items()) == {"alice": 1}
    table.put("bob", 2)
    table.sync()
    assert dict(Journal(tmp_path / "cursors.journal").items()) == {"alice": 1, "bob": 2}
    table.put("carl", 3)
    table.sync()
    assert dict(Journal(tmp_path / "cursors.journal").items()) == {"alice": 1, "bob": 2, "carl": 3}


def test_a_cursor_that_is_not_on_disk_is_not_acknowledged(client, url, start, monkeypatch):
    client.subscribe("alice", "a", "price > 0")
    client.publish([{"price": n} for n in range(1, 6)])
    ack = f"{url}/v1/main/consumers/alice/ack"
    with monkeypatch.context() as patch:
        patch.setattr(lines.os, "fdatasync", full)
        patch.setattr(lines, "replacing", unwritable)
        for _ in range(2):
            assert httpx.post(ack, json={"sequence": 3}).status_code == 503
            assert prices(client.messages("alice")["messages"]) == [1, 2, 3, 4, 5]
            assert httpx.get(ack.removesuffix("/ack")).json()["acknowledged"] is None
    assert prices(client.messages("alice")["messages"]) == [1, 2, 3, 4, 5]
    assert httpx.post(ack, json={"sequence": 3}).json() == {"sequence": 3}


def test_a_cursor_that_was_refused_is_not_found_after_a_crash(tmp_path, monkeypatch):
    table = Journal(tmp_path / "cursors.journal")
    table.put("alice", 1)
    table.sync()
    with monkeypatch.context() as patch:
        patch.setattr(lines.os, "fdatasync", full)  # its line is in the file, and whole
        table.put("alice", 7)
        with pytest.raises(StorageError, match="No space left on device"):
            table.sync()
    assert Journal(tmp_path / "cursors.journal").get("alice") == table.get("alice") == 1


def test_a_change_that_failed_leaves_the_payload(tmp_path, monkeypatch):
    broker = Broker(BrokerSettings(data=tmp_path, port=0))
    broker.ensure_space("main", rc.Schema(rc.Int("price")))
    with serving(broker) as url, Client(url) as client:
        client.subscribe("alice", "a", "price > 1", payload={"n": 1})
        store = broker.spaces["main"].store

        def fail(*_):
            raise StorageError("the store cannot be written")

        path = f"{url}/v1/main/consumers/alice/subscriptions/a"
        before = httpx.get(path).json()
        with monkeypatch.context() as patch:
            patch.setattr(store, "make_change", fail)
            body = {"condition": "price > 2", "payload": {"n": 2}}
            assert httpx.put(path, json=body).status_code == 503
            assert httpx.delete(path).status_code == 503
        assert httpx.get(path).json() == before
        client.subscribe("alice", "a", "price > 2", payload={"n": 2})
        assert httpx.get(path).json()["payload"] == {"n": 2}


def test_a_webhook_follows_no_redirection_and_begins_again(start, monkeypatch):
    from http.server import BaseHTTPRequestHandler, HTTPServer

    asked, statuses = [], []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(statuses.pop(0) if statuses else 204)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(webhooks, "RESTART_PAUSE", 0.02)
    statuses += [301, 302, 307, 308]
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with start(private_hooks=True) as url, Client(url) as client:
        base = f"{url}/v1/main/consumers/alice"
        hook = {"url": f"http://127.0.0.1:{server.server_port}/hook", "secret": "s" * 16}
        client.subscribe("alice", "a", "price > 0")
        for wrong in (
            "http://a..b/",
            f"http://{'a' * 64}.org/",
            "http://x:99999/",
            "http://x:0/",
            "http://:1/",
        ):
            assert httpx.put(f"{base}/webhook", json={**hook, "url": wrong}).status_code == 400, wrong
        assert httpx.put(f"{base}/webhook", json=hook).status_code == 200
        client.publish({"price": 1})
        wait_for(lambda: httpx.get(base).json()["acknowledged"] == 1)
        assert [path for path, _ in asked] == ["/hook"] * 5
        # a failure of the broker's own, such as a disk that is full when it acknowledges, ends nothing
        failing = [StorageError("the cursors cannot be written")]
        real = webhooks.Webhooks._send_some

        async def send(*arguments):
            if failing:
                raise failing.pop()
            await real(*arguments)

        monkeypatch.setattr(webhooks.Webhooks, "_send_some", send)
        client.publish({"price": 2})
        wait_for(lambda: httpx.get(base).json()["acknowledged"] == 2)
        assert not failing
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["a+b", "a~b:c@d", "A.1-2_3", "x" * 128])
def test_names_with_signs(client, name):
    client.subscribe(name, name, "price > 0")
    client.publish({"price": 1})
    assert next(client.stream(name)).subscriptions == (name,)
    assert client.ack(name, 1) == 1
    assert [s["name"] for s in client.subscriptions(name)] == [name]
    client.unsubscribe(name, name)
    assert client.subscriptions(name) == []
    assert client.delete_consumer(name)["consumer"] == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "..", "a\nb", "é", "a%20b", "-a", "x" * 129, "a?b#c"]
)
def test_names_that_are_refused(client, name):
    for call in (
        lambda: client.subscribe(name, "a", "price > 0"),
        lambda: client.subscribe("alice", name, "price > 0"),
        lambda: client.ack(name, 0),
        lambda: client.unsubscribe("alice", name),
    ):
        with pytest.raises(ClientError) as refused:
            call()
        assert refused.value.status in (400, 404, 405), name
    assert client.status()["spaces"][0]["subscriptions"] == 0


def test_a_list_of_names_with_signs_ends(client):
    client.subscribe_many(
        {"consumer": "alice", "name": f"n+{k:04}", "condition": "price > 0"} for k in range(1_001)
    )
    assert [s["name"] for s in client.subscriptions("alice")] == [f"n+{k:04}" for k in range(1_001)]


def ended(stop):
    """Whether a call comes to its end."""
    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


def test_a_pump_ends_whose_store_cannot_be_read(tmp_path, monkeypatch):
    broker = Broker(BrokerSettings(data=tmp_path, port=0))
    broker.ensure_space("main", rc.Schema(rc.Int("price")))
    with serving(broker):
        space = broker.spaces["main"]
        tries = []

        def fail(*_):
            tries.append(None)
            raise StorageError("the store cannot be read")

        with monkeypatch.context() as patch:
            patch.setattr(space, "take_changes", fail)
            future = Future()
            done = space.pump.applied(9, [(future, {})])
            wait_for(lambda: len(tries) >= 2)
            assert not future.done()
            assert ended(space.pump.stop)
        assert done.is_set()
        with pytest.raises(StorageError, match="the store cannot be read"):
            future.result(0)


def test_a_change_is_answered_when_its_version_can_be_taken_in_again(client, url, start, monkeypatch):
    takes = Space.take_changes
    tries = []

    def fail(space, *given):
        tries.append(None)
        if len(tries) < 4:
            raise StorageError("the store cannot be read")
        return takes(space, *given)

    monkeypatch.setattr(Space, "take_changes", fail)
    assert client.subscribe("alice", "a", "price > 1")["version"] == 1
    assert len(tries) >= 4
