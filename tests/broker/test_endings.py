"""Connections that end, or should: what is left of them, and who is served after something failed."""

import asyncio
import socket
import threading
import time
from types import SimpleNamespace

import httpx
import psutil
import pytest

from rangecast import Int, Schema
from rangecast.broker import webhooks
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.client import Client
from rangecast.durable.lines import Journal
from rangecast.errors import StorageError

pytestmark = pytest.mark.once


@pytest.fixture
def served(tmp_path):
    """A broker in this process: its space, its address, a client."""
    broker = Broker(BrokerSettings(data=tmp_path / "data", port=0, private_hooks=True))
    broker.ensure_space("main", Schema(Int("price")))
    with serving(broker) as url, Client(url) as client:
        yield broker.spaces["main"], url, client


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def connect(url, path, head="", receive=4096):
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    connection.connect((host, int(port)))
    connection.sendall(f"GET /v1/main/consumers/{path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
    return connection


def established(url, connection):
    """Whether the broker's end of a connection is there."""
    port, peer = int(url.rsplit(":", 1)[1]), connection.getsockname()[1]
    return any(
        one.laddr.port == port and one.raddr and one.raddr.port == peer and one.status == "ESTABLISHED"
        for one in psutil.Process().net_connections("tcp")
    )


UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def test_a_websocket_that_takes_nothing_is_cut_and_not_only_forgotten(served, monkeypatch):
    """Its bytes and its socket were kept for as long as the other end liked, beside every limit."""
    monkeypatch.setattr("rangecast.broker.broker.SLOW_SECONDS", 0.5)
    space, url, client = served
    client.subscribe("slow", "all", "price >= 0")
    slow = connect(url, "slow/ws", UPGRADE)
    wait_for(lambda: client.status()["spaces"][0]["connections"] == 1)
    for _ in range(30):
        client.publish([{"price": 1, "note": "x" * 2000}] * 200)
    wait_for(lambda: not space.listeners)
    wait_for(lambda: not established(url, slow))
    assert 'connections_closed_slow_total{space="main"} 1.0' in httpx.get(f"{url}/metrics").text
    assert {"_say", "_hear"}.isdisjoint(task.get_coro().__name__ for task in asyncio.all_tasks(space.loop))
    slow.close()
    # what it did not take is there when it comes again
    assert client.messages("slow", most=1)["messages"][0]["sequence"] == 1


def test_a_websocket_that_answers_no_ping_is_cut_although_bytes_wait(served):
    """To close it in order would be to wait until the other end has taken them."""
    space, url, client = served
    client.subscribe("slow", "all", "price >= 0")
    slow = connect(url, "slow/ws", UPGRADE)
    wait_for(lambda: space.listeners)
    (listener,) = space.listeners
    listener.patient = True
    for _ in range(30):
        client.publish([{"price": 1, "note": "x" * 2000}] * 200)
    wait_for(lambda: listener.stalled)

    async def give_up():
        from rangecast.broker.server import BrokerWebSocket

        (protocol,) = (one for one in _protocols(space.loop) if isinstance(one, BrokerWebSocket))
        assert protocol.transport.get_write_buffer_size()
        protocol.keepalive_timeout()

    asyncio.run_coroutine_threadsafe(give_up(), space.loop).result(60)
    wait_for(lambda: not established(url, slow) and not space.listeners)
    slow.close()


def _protocols(loop):
    import gc

    from rangecast.broker.server import BrokerServer

    # by its type: isinstance asks a weak proxy for the class of what it stands for, which may be gone
    (server,) = (one for one in gc.get_objects() if type(one) is BrokerServer and not one.should_exit)
    return list(server.server_state.connections)


def test_who_hangs_up_a_long_poll_frees_its_place(served):
    space, url, client = served
    client.subscribe("alice", "all", "price >= 0")
    polls = [connect(url, "alice/messages?wait=60") for _ in range(3)]
    wait_for(lambda: len(space.listeners) == 3)
    for poll in polls:
        poll.close()
    wait_for(lambda: not space.listeners, 20)
    assert not space.connections_of("alice")


@pytest.mark.parametrize("disk", ["good", "full"])
def test_who_hangs_up_while_it_acknowledges_keeps_no_answer_from_others(served, monkeypatch, caplog, disk):
    """A WebSocket that closes behind its acknowledgement cancels it."""
    space, _, client = served
    client.publish([{"price": 1}] * 3)
    held, gate = threading.Event(), threading.Event()
    apply = space.pump._apply_changes

    def hold(now):
        held.set()
        assert gate.wait(60)
        apply(now)

    def full():
        raise StorageError("cursors.journal: cannot be written: No space left on device")

    monkeypatch.setattr(space.pump, "_apply_changes", hold)
    if disk == "full":
        monkeypatch.setattr(space.cursors, "sync", full)
    assert held.wait(60)
    gone, kept = (space.pump.acknowledge(name, 2) for name in ("gone", "kept"))
    assert gone.cancel()
    gate.set()
    if disk == "full":
        with pytest.raises(StorageError, match="No space left"):
            kept.result(60)
    else:
        assert kept.result(60) == 2
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_listeners_whose_last_lap_fails_are_served_from_the_log(served, monkeypatch):
    """Nobody else knew of them any more: connected, and silent for good."""
    space, _, client = served
    client.subscribe("alice", "all", "price >= 0")
    failures = []

    def serve(late, head):
        failures.append(head)
        if len(failures) < 3:
            raise OSError(5, "Input/output error")
        return serves(late, head)

    serves = space.pump._replay.serve
    monkeypatch.setattr(space.pump._replay, "serve", serve)
    # it always has a lap to go when it joins
    joined = space.pump.join
    monkeypatch.setattr(
        space.pump, "join", lambda one: (setattr(one, "position", max(1, one.position - 1)), joined(one))
    )
    client.publish([{"price": n} for n in range(10)])
    stream = client.stream("alice")
    seen = {next(stream).sequence for _ in range(10)}
    wait_for(lambda: len(failures) >= 3)
    client.publish({"price": 99})
    while 11 not in seen:
        seen.add(next(stream).sequence)
    assert seen == set(range(1, 12))
    stream.close()


def test_one_that_is_served_already_is_not_served_twice_at_a_time(served, monkeypatch):
    space, _, _ = served
    given = []
    monkeypatch.setattr(space, "behind", given.append)

    def one(**options):
        return SimpleNamespace(**{"closed": False, "stalled": False, "state": "live", **options})

    was_live, drained, waits = one(), one(stalled=True, state="stalled"), one(stalled=True, state="behind")
    served_now, closed = one(state="behind"), one(closed=True, state="closed")
    space._resume([was_live, drained, waits, served_now, closed])
    assert given == [[was_live, drained, waits]]
    assert {(x.state, x.stalled) for x in given[0]} == {("behind", False)}
    assert closed.state == "closed"
    space._resume([was_live, drained])  # a second word about the same ones
    assert given[1:] == [[]]


def test_a_list_of_consumers_goes_once_through_the_connections(served):
    space, url, client = served

    class Counted(list):
        rounds = 0

        def __iter__(self):
            self.rounds += 1
            return super().__iter__()

    for name in ("here", "twice", "away"):
        client.subscribe(name, "all", "price >= 0")
    client.subscribe("deleted", "all", "price >= 0")
    assert httpx.delete(f"{url}/v1/main/consumers/deleted").status_code == 200
    client.publish({"price": 1})
    assert client.messages("passing")["messages"] == []
    listed = Counted([
        SimpleNamespace(consumer=name, state="live", position=2) for name in ("twice", "here", "twice")
    ])  # fmt: skip
    space.listeners, kept = listed, space.listeners
    try:
        found = space.list_consumers(10)
        alone = space.describe_consumer("twice")
    finally:
        space.listeners = kept
    assert listed.rounds == 2
    assert [(one["consumer"], len(one["connections"]), one["behind"]) for one in found] == [
        ("here", 1, 0),
        ("twice", 2, 0),
        ("away", 0, 1),
    ]
    assert alone == found[1]


def test_a_consumer_that_is_deleted_leaves_no_letters_to_the_next_of_its_name(served, monkeypatch, free_port):
    space, url, client = served
    monkeypatch.setattr(webhooks, "ATTEMPTS", 1)
    opened = []
    monkeypatch.setattr(webhooks, "Journal", lambda path: opened.append(path.name) or Journal(path))
    base = f"{url}/v1/main/consumers/alice"
    client.subscribe("alice", "all", "price >= 0")
    client.publish([{"price": n} for n in range(3)])
    httpx.put(f"{base}/webhook", json={"url": f"http://127.0.0.1:{free_port()}/", "secret": "s" * 16})
    wait_for(lambda: httpx.get(f"{base}/dead-letters").json()["messages"])
    assert httpx.delete(base).status_code == 200
    assert httpx.get(f"{base}/dead-letters").json() == {"messages": []}
    assert httpx.get(f"{base}/webhook").json() == {"url": None, "dead_letters": 0}
    # the file is read once, and not with every message
    assert opened == ["dead_letters.journal"]
    assert not space.pump.ended
