"""Webhooks that answer slowly, never, or from where they must not: nobody else waits for them."""

import contextlib
import signal
import socket
import threading
import time

import httpx
import pytest

from rangecast.broker import webhooks
from rangecast.broker.access import BrokerError
from rangecast.client import Client

pytestmark = pytest.mark.once


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def receiver(answer):
    """A server that hands each connection to `answer`, in a thread; gives its address, and how many came."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    came, ending = [], threading.Event()

    def serve(connection):
        with connection, contextlib.suppress(OSError):
            answer(connection, ending)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                came.append(time.monotonic())
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/hook", came
    finally:
        ending.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def trickling(connection, ending):
    """An answer of a byte now and then."""
    for byte in b"HTTP/1.1 204 No Content\r\nX: " + b"x" * 10_000:
        connection.sendall(bytes([byte]))
        if ending.wait(0.2):
            return


def silent(_, ending):
    """Never an answer."""
    ending.wait()


def with_status(text):
    def answer(connection, ending):
        read_request(connection)
        connection.sendall(f"HTTP/1.1 {text}\r\nContent-Length: 0\r\n\r\n".encode())

    return answer


def read_request(connection):
    raw = b""
    while b"\r\n\r\n" not in raw or not raw.endswith(b"]}"):
        data = connection.recv(65_536)
        if not data:
            break
        raw += data
    return raw


def put_hook(url, consumer, address):
    hook = {"url": address, "secret": "s" * 16}
    assert httpx.put(f"{url}/v1/main/consumers/{consumer}/webhook", json=hook).status_code == 200


@pytest.mark.parametrize("answer", [trickling, silent])
def test_hooks_that_do_not_answer_stop_nobody(process, tmp_path, answer):
    """More of them than a pool has threads; a good one, a match of its own thread, and SIGTERM go on."""
    good = []

    def take(connection, _):
        good.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")

    config = tmp_path / "broker.toml"
    config.write_text("private_hooks = true\n")
    with (
        receiver(answer) as (slow, came),
        receiver(take) as (fast, _),
        process(tmp_path, "--config", str(config)) as (url, running),
        Client(url) as client,
    ):
        n = 40
        for k in range(n):
            client.subscribe(f"slow{k}", "all", "price >= 0")
            put_hook(url, f"slow{k}", slow)
        client.publish({"price": 1})
        wait_for(lambda: len(came) >= n)
        client.subscribe("good", "all", "price >= 0")
        put_hook(url, "good", fast)
        begun = time.monotonic()
        client.publish({"price": 2})
        wait_for(lambda: good, 5)
        assert client.match({"price": 1})["matches"][0][0] == "good/all"
        assert time.monotonic() - begun < 8
        assert b'"sequence":2' in good[0]
        assert b"\r\nX-Rangecast-Consumer: good\r\n" in good[0]
        running.send_signal(signal.SIGTERM)
        assert running.wait(15) == 0


def test_a_whole_exchange_has_one_deadline(start, monkeypatch):
    """A byte now and then is no answer, whatever comes between; the next attempt follows."""
    monkeypatch.setattr(webhooks, "EXCHANGE_SECONDS", 0.5)
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.02)
    with (
        receiver(trickling) as (slow, came),
        start(private_hooks=True) as url,
        Client(url) as client,
    ):
        client.subscribe("alice", "all", "price >= 0")
        put_hook(url, "alice", slow)
        client.publish({"price": 1})
        wait_for(lambda: len(came) >= 2, 20)
        assert came[1] - came[0] < 5


def test_a_name_that_is_looked_up_for_ever_stops_nobody(start, monkeypatch):
    """Nothing ends a call to a name server, and one call is enough for those who wait for the same name."""
    release, asked = threading.Event(), []
    real = webhooks.socket.getaddrinfo

    def getaddrinfo(host, *rest, **options):
        if host == "slow.example":
            asked.append(host)
            release.wait()
        return real(host, *rest, **options)

    monkeypatch.setattr(webhooks.socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(webhooks, "EXCHANGE_SECONDS", 0.2)
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.02)
    taken = []

    def take(connection, _):
        taken.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    try:
        with receiver(take) as (fast, _), start(private_hooks=True) as url, Client(url) as client:
            for k in range(40):
                client.subscribe(f"slow{k}", "all", "price >= 0")
                put_hook(url, f"slow{k}", "http://slow.example/")
            client.publish({"price": 1})
            failed = 'webhook_failures_total{space="main"} 0.0'
            wait_for(lambda: failed not in httpx.get(f"{url}/metrics").text)
            client.subscribe("good", "all", "price >= 0")
            put_hook(url, "good", fast)
            client.publish({"price": 2})
            wait_for(lambda: taken, 5)
            assert len(asked) == 1
    finally:
        release.set()


@pytest.mark.parametrize(
    "status", ["302 Found\r\nLocation: http://127.0.0.1:9/", "101 Go\r\nUpgrade: x", "x"]
)
def test_what_is_no_answer_is_tried_again(start, monkeypatch, status):
    monkeypatch.setattr(webhooks, "ATTEMPTS", 2)
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.02)
    with receiver(with_status(status)) as (address, came), start(private_hooks=True) as url:
        with Client(url) as client:
            client.subscribe("alice", "all", "price >= 0")
            put_hook(url, "alice", address)
            client.publish({"price": 1})
            base = f"{url}/v1/main/consumers/alice"
            wait_for(lambda: httpx.get(f"{base}/webhook").json()["dead_letters"] == 1)
        assert len(came) == 2


PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"]
NOT_PUBLIC = [
    "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "255.255.255.255", "224.0.0.1", "239.1.1.1", "233.252.0.1", "240.0.0.1", "192.0.0.9", "192.88.99.1",
    "198.18.0.1", "192.0.2.1", "::", "::1", "::7f00:1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::7f00:1",
    "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2001:20::1", "2002:7f00:1::", "2002:a00:1::1",
    "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1", "fe80::1%1", "2606:4700::1%1", "fec0::1",
    "feff::1", "ff02::1", "ff0e::1",
]  # fmt: skip


def test_addresses_that_are_not_public():
    assert [text for text in NOT_PUBLIC if webhooks.is_public(text)] == []
    assert [text for text in PUBLIC if not webhooks.is_public(text)] == []


def test_hooks_connect_to_the_address_that_was_checked(monkeypatch):
    """A name is looked up once: with a public address among others, that one is used."""
    answers = ["::ffff:127.0.0.1", "64:ff9b::7f00:1", "127.0.0.1"]

    def getaddrinfo(_, port, **__):
        return [(None, None, None, "", (text, port)) for text in answers]

    monkeypatch.setattr(webhooks.socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(BrokerError, match="has no public address"):
        webhooks._resolved("rebinding.example", 80, private=False)
    answers.append("93.184.216.34")
    assert webhooks._resolved("rebinding.example", 80, private=False) == ("93.184.216.34", 80)
