"""Tokens, limits, slow consumers and hostile requests."""

import asyncio
import contextlib
import gzip
import json
import random
import re
import socket
import threading
import time

import httpx
import pytest

import seeds
from rangecast import Int, Schema
from rangecast.broker.access import SpaceLimits, TokenFile, add_token
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.client import Client, ClientError
from rangecast.errors import OptionError, StorageError

pytestmark = pytest.mark.once


@pytest.fixture
def guarded(start, tmp_path):
    path = tmp_path / "tokens.jsonl"
    tokens = {
        "feed": add_token(path, "feed", ["publish"]),
        "alice": add_token(path, "alice", ["subscribe", "read"]),
        "both": add_token(path, "both", ["subscribe"], consumers=["a", "b"]),
        "other": add_token(path, "other", ["publish", "subscribe", "read"], spaces=["second"]),
        "root": add_token(path, "root", ["admin"]),
    }
    with start(tokens=path) as url:
        yield url, tokens


def status_of(url, token, method, path, **options):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, url + path, headers=headers, **options).status_code


def test_tokens_and_scopes(guarded):
    url, tokens = guarded
    own = "/v1/main/consumers/alice/subscriptions/a"
    wanted = {"condition": "price > 0"}
    assert status_of(url, None, "PUT", own, json=wanted) == 401
    assert status_of(url, "rc_wrong", "PUT", own, json=wanted) == 401
    assert status_of(url, tokens["feed"], "PUT", own, json=wanted) == 403
    assert status_of(url, tokens["both"], "PUT", own, json=wanted) == 403
    assert status_of(url, tokens["other"], "PUT", own, json=wanted) == 403
    assert status_of(url, tokens["alice"], "PUT", own, json=wanted) == 200
    assert status_of(url, tokens["root"], "GET", own) == 200
    for token, status in (("feed", 200), ("alice", 403), ("other", 403)):
        assert status_of(url, tokens[token], "POST", "/v1/main/events", json={"price": 1}) == status
    assert status_of(url, tokens["feed"], "GET", "/metrics") == 403
    assert status_of(url, tokens["alice"], "GET", "/metrics") == 200
    assert status_of(url, tokens["alice"], "PUT", "/v1/new/schema", json={}) == 403
    assert httpx.get(url + "/healthz").status_code == 200
    for name, status in (("a", 200), ("b", 200), ("c", 403)):
        path = f"/v1/main/consumers/{name}/messages"
        assert status_of(url, tokens["both"], "GET", path) == status
    rows = "\n".join(
        json.dumps({"consumer": c, "name": "x", "condition": "price = 1"}) for c in ("a", "alice")
    )
    answer = httpx.post(
        url + "/v1/main/subscriptions:batch",
        content=rows,
        headers={"Authorization": f"Bearer {tokens['both']}", "Content-Type": "application/x-ndjson"},
    ).json()
    assert answer["accepted"] == 1
    assert "is not for the consumer 'alice'" in answer["rejected"][0]["reason"]


def test_a_ticket_opens_one_stream(guarded):
    url, tokens = guarded
    path = "/v1/main/consumers/alice"
    headers = {"Authorization": f"Bearer {tokens['alice']}"}
    ticket = httpx.post(f"{url}{path}/ticket", headers=headers).json()["ticket"]
    assert httpx.get(f"{url}/v1/main/consumers/bob/messages?ticket={ticket}").status_code == 401
    ticket = httpx.post(f"{url}{path}/ticket", headers=headers).json()["ticket"]
    with httpx.stream("GET", f"{url}{path}/stream?ticket={ticket}") as response:
        assert response.status_code == 200
    assert httpx.get(f"{url}{path}/stream?ticket={ticket}").status_code == 401


def test_tokens_are_read_again(guarded, tmp_path):
    url, _ = guarded
    late = add_token(tmp_path / "tokens.jsonl", "late", ["read"])
    assert status_of(url, late, "GET", "/metrics") == 200
    (tmp_path / "tokens.jsonl").write_text("")
    assert status_of(url, late, "GET", "/metrics") == 401


def test_files_of_tokens_that_cannot_be_read(tmp_path):
    with pytest.raises(StorageError, match="cannot be read"):
        TokenFile(tmp_path / "none")
    (tmp_path / "bad").write_text("{}\n")
    with pytest.raises(StorageError, match="line 1: is not a token"):
        TokenFile(tmp_path / "bad")
    with pytest.raises(OptionError, match="a scope must be one of"):
        add_token(tmp_path / "bad", "x", ["everything"])


LIMITS = SpaceLimits(
    subscriptions=5,
    consumer_subscriptions=3,
    boxes=2,
    consumer_connections=2,
    body_bytes=20_000,
    line_bytes=500,
    request_events=100,
    events_per_second=10,
)


def test_limits_are_named(start):
    with start(limits=LIMITS) as url, Client(url) as client:
        for name in "abc":
            client.subscribe("alice", name, "price > 0")
        with pytest.raises(ClientError, match="'consumer_subscriptions' is 3") as caught:
            client.subscribe("alice", "d", "price > 0")
        assert caught.value.status == 403
        client.subscribe("alice", "a", "price > 1")  # replacing is no more
        with pytest.raises(ClientError, match="'boxes' is 2"):
            client.subscribe("bob", "a", "price > 1 or symbol = 'a' or change > 1")
        client.subscribe("bob", "a", "price > 0")
        client.subscribe("bob", "b", "price > 0")
        with pytest.raises(ClientError, match="'subscriptions' is 5"):
            client.subscribe("carl", "a", "price > 0")
        events = f"{url}/v1/main/events"
        large = httpx.post(events, content=b" " * 20_001)
        assert (large.status_code, "body_bytes" in large.text) == (413, True)
        bomb = gzip.compress(b" " * 10_000_000)
        assert len(bomb) < 20_000
        large = httpx.post(events, content=bomb, headers={"Content-Encoding": "gzip"})
        assert (large.status_code, "when decompressed" in large.text) == (413, True)
        assert httpx.post(events, content=b"x", headers={"Content-Encoding": "br"}).status_code == 415
        assert httpx.post(events, content=b"x", headers={"Content-Type": "text/html2"}).status_code in (
            200,
            415,
        )
        assert httpx.post(events, content=b"x", headers={"Content-Type": "image/png"}).status_code == 415
        many = httpx.post(events, json=[{"price": 1}] * 101)
        assert (many.status_code, "request_events" in many.text) == (413, True)
        answer = client.publish([{"price": 1, "note": "x" * 600}])
        assert "line_bytes" in answer["rejected"][0]["reason"]
        # one request may be larger than its second; the next ones wait for what it owes, which is 8 seconds
        codes = [httpx.post(events, json=[{"price": 1}] * 90).status_code for _ in range(2)]
        assert codes == [200, 429]
        with (
            httpx.stream("GET", f"{url}/v1/main/consumers/alice/stream"),
            httpx.stream("GET", f"{url}/v1/main/consumers/alice/stream"),
        ):
            third = httpx.get(f"{url}/v1/main/consumers/alice/stream")
            assert (third.status_code, "consumer_connections" in third.text) == (429, True)
            assert third.headers["retry-after"] == "5"
        deadline = time.monotonic() + 60
        while client.status()["spaces"][0]["connections"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert client.messages("alice")["messages"]


def test_limits_of_connections_changes_and_backlog(start, monkeypatch):
    limits = SpaceLimits(connections=1, changes_per_second=2)
    with start(limits=limits) as url, Client(url) as client:
        rows = [{"consumer": "alice", "name": str(n), "condition": "price > 0"} for n in range(9)]
        client.subscribe_many(rows)
        late = httpx.put(f"{url}/v1/main/consumers/alice/subscriptions/x", json={"condition": "price > 0"})
        assert (late.status_code, "changes_per_second" in late.text) == (429, True)
        assert int(late.headers["retry-after"]) >= 1
        with httpx.stream("GET", f"{url}/v1/main/consumers/alice/stream") as first:
            assert first.status_code == 200
            other = httpx.get(f"{url}/v1/main/consumers/bob/messages")
            assert (other.status_code, "'connections' of this space is 1" in other.text) == (429, True)
        monkeypatch.setattr("rangecast.broker.pump.Pump.waiting_events", 400_001)
        busy = httpx.post(f"{url}/v1/main/events", json={"price": 1})
        assert (busy.status_code, "'backlog' is 400,000" in busy.text) == (429, True)
        assert int(busy.headers["retry-after"]) >= 1
        assert 'rangecast_publishes_refused_total{space="main"} 1.0' in httpx.get(f"{url}/metrics").text


def test_limits_are_set_again_at_a_start(start):
    """Those that are given; the others stay, and one space may differ."""
    with (
        start(limits=SpaceLimits(boxes=2, keep_seconds=60)) as url,
        Client(url) as client,
        pytest.raises(ClientError, match="'boxes' is 2"),
    ):
        client.subscribe("bob", "a", "price > 1 or symbol = 'a' or change > 1")
    own = {"main": SpaceLimits(boxes=3)}
    with start(limits=SpaceLimits(request_events=5), space_limits=own) as url, Client(url) as client:
        client.subscribe("bob", "a", "price > 1 or symbol = 'a' or change > 1")
        with pytest.raises(ClientError, match="'request_events' is 5"):
            client.publish([{"price": 1}] * 6)
    with start() as url, Client(url) as client, pytest.raises(ClientError, match="'request_events' is 5"):
        client.publish([{"price": 1}] * 6)


def test_limits_that_cannot_be():
    with pytest.raises(OptionError, match="must be a whole number and not negative, got -1"):
        SpaceLimits(boxes=-1)
    with pytest.raises(OptionError, match="there is no limit boxen"):
        SpaceLimits.of({"boxen": 1})


def raw_stream(url, consumer, receive=4096):
    """A connection that reads only when it is told to."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    connection.connect((host, int(port)))
    connection.sendall(
        f"GET /v1/main/consumers/{consumer}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    )
    return connection


def test_a_slow_consumer_is_left_behind_and_misses_nothing(client, url):
    for consumer in ("slow", "fast"):
        client.subscribe(consumer, "all", "price >= 0")
    slow = raw_stream(url, "slow")
    fast = client.stream("fast")
    note = "x" * 2000
    n = 2000
    for k in range(0, n, 100):
        client.publish([{"price": p, "note": note} for p in range(k, k + 100)])
        for expected in range(k + 1, k + 101):
            assert next(fast).sequence == expected
    wait_for(lambda: client.status()["spaces"][0]["states"]["stalled"] == 1)
    received = bytearray()
    deadline = time.monotonic() + 60
    slow.settimeout(60)
    while b"id: %d\n" % n not in received and time.monotonic() < deadline:
        received += slow.recv(1 << 20)
    slow.close()
    found = re.findall(rb"event: match\nid: (\d+)\n", received)
    assert [int(id) for id in found] == list(range(1, n + 1))


def test_a_few_bytes_that_wait_for_a_second_end_the_live_stretch(tmp_path):
    """Little is held in memory for one that takes nothing, although much more may wait."""
    broker = Broker(BrokerSettings(data=tmp_path / "data", port=0))
    broker.ensure_space("main", Schema(Int("price")))
    with serving(broker) as url, Client(url) as client:
        client.subscribe("slow", "all", "price >= 0")
        slow = raw_stream(url, "slow")
        wait_for(lambda: client.status()["spaces"][0]["states"]["live"] == 1)
        (listener,) = broker.spaces["main"].listeners
        last = 0

        def waits():
            nonlocal last
            last = client.publish([{"price": 1, "note": "x" * 2000}] * 5)["last"]
            time.sleep(0.01)  # the event loop writes after it has answered
            return listener.outlet.waiting()

        wait_for(waits)
        assert listener.state == "live"
        time.sleep(1.1)
        last = client.publish({"price": 1})["last"]
        wait_for(lambda: listener.state == "stalled")
        assert listener.outlet.waiting() < 100_000
        received = bytearray()
        slow.settimeout(60)
        while b"id: %d\n" % last not in received:
            received += slow.recv(1 << 20)
        slow.close()
    found = re.findall(rb"event: match\nid: (\d+)\n", received)
    assert [int(id) for id in found] == list(range(1, last + 1))


def test_a_consumer_that_takes_nothing_is_closed(start, monkeypatch):
    monkeypatch.setattr("rangecast.broker.broker.SLOW_SECONDS", 0.5)
    with start() as url, Client(url) as client:
        client.subscribe("slow", "all", "price >= 0")
        slow = raw_stream(url, "slow")
        for _ in range(20):
            client.publish([{"price": 1, "note": "x" * 2000}] * 100)
        deadline = time.monotonic() + 60
        while client.status()["spaces"][0]["connections"] and time.monotonic() < deadline:
            time.sleep(0.1)
        assert client.status()["spaces"][0]["connections"] == 0
        slow.close()
        assert 'connections_closed_slow_total{space="main"} 1.0' in httpx.get(f"{url}/metrics").text
        assert client.messages("slow", most=1)["messages"][0]["sequence"] == 1


def test_a_head_that_never_ends_is_cut(url, monkeypatch):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises((ConnectionError, BrokenPipeError)):
            send_slowly(connection, [b"X-Pad: " + b"a" * 1000 + b"\r\n"] * 2000)
    assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_head_that_takes_too_long_is_cut(url, monkeypatch):
    monkeypatch.setattr("rangecast.broker.server.HEAD_SECONDS", 0.3)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        for piece in (b"GET /heal", b"thz HTTP/1.1\r\n", b"X-Pad: a\r\n"):
            connection.sendall(piece)
            time.sleep(0.05)
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1000) == b""
        assert time.monotonic() - start < 20


def test_the_head_of_a_stream_has_no_body_and_opens_nothing(client, url):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        for request in (b"HEAD /v1/main/consumers/alice/stream", b"GET /healthz"):
            connection.sendall(request + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.1)
        connection.settimeout(5)
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(1000)
    stream, health = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"text/event-stream" in stream
    assert stream.endswith(b"\r\n\r\n")
    assert b"application/json" in health
    assert client.status()["spaces"][0]["connections"] == 0


def send_slowly(connection, pieces):
    for piece in pieces:
        connection.sendall(piece)
        time.sleep(0.0005)


METHODS = ["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"]
SEGMENTS = [
    "v1",
    "main",
    "none",
    "consumers",
    "alice",
    "subscriptions",
    "subscriptions:batch",
    "subscriptions:test",
    "events",
    "match",
    "stream",
    "messages",
    "ack",
    "schema",
    "webhook",
    "ticket",
    "ws",
    "..",
    "%00",
    "%ff",
    "a" * 300,
    "ä",
    "",
]
BODIES = [
    b"",
    b"{",
    b"[]",
    b"[1,2]",
    b"null",
    b"{}",
    b'{"price": 1e999}',
    b'{"price": 123456789012345678901234567890}',
    b'{"condition": 5}',
    b'{"condition": "price <"}',
    b'{"condition": "price < 1", "ttl": -5}',
    b"\xff\xfe\x00",
    b'{"condition": "price < 1", "payload": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b"[" * 100_000,
    b'"' * 1000,
    b'{"sequence": -1}',
    b'{"sequence": 99999999999999999999}',
    b'{"sequence": true}',
    b'{"attributes": {"a": 1}}',
    b'{"attributes": {"a": {"type": "int", "low": "x"}}}',
    b'{"events": [[]], "condition": "price < 1"}',
    b'{"price": {"a": [1]}, "symbol": ["x"], "change": "nan"}',
    b'{"symbol": "\\ud800"}',
    b"PAR1",
    b"ARROW1\0\0",
    b'{"condition": "' + b"(" * 5000 + b'"}',
    b'{"condition": "price in (' + b"1," * 3000 + b'1)"}',
    b'{"url": "ftp://x", "secret": "0123456789abcdef"}',
    b'{"url": "http://127.0.0.1:9", "secret": "short"}',
]
KINDS = [
    "application/json",
    "application/x-ndjson",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
    "text/plain",
    "x",
    "",
    "application/json; charset=utf-16",
]
HEADERS = [
    {},
    {"Content-Encoding": "gzip"},
    {"Content-Encoding": "zstd"},
    {"If-Match": "*"},
    {"If-Match": '"x"'},
    {"Idempotency-Key": "k" * 300},
    {"Idempotency-Key": "k"},
    {"Last-Event-ID": "-1"},
    {"Last-Event-ID": "9" * 30},
    {"Authorization": "Basic x"},
    {"Expect": "100-continue"},
    {"Transfer-Encoding": "chunked, gzip"},
]
QUESTIONS = [
    "",
    "?max=0",
    "?max=x&wait=-1",
    "?from=x",
    "?from=-1",
    "?limit=99999999",
    "?after=%ff",
    "?wait=0&max=1",
]


def hostile_request(source):
    method = source.choice(METHODS)
    path = "/" + "/".join(source.choice(SEGMENTS) for _ in range(source.randrange(1, 7)))
    if source.random() < 0.6:
        path = "/v1/main/" + source.choice(
            [
                "events",
                "match",
                "subscriptions:batch",
                "subscriptions:test",
                "schema",
                "consumers",
                "consumers/alice/subscriptions/a",
                "consumers/alice/ack",
                "consumers/alice/messages",
                "consumers/alice/webhook",
                "consumers/a b/subscriptions/c",
                "consumers/alice/ticket",
                "consumers/alice",
            ]
        )
    body = source.choice(BODIES)
    if source.random() < 0.2:
        body = source.randbytes(source.randrange(200))
    headers = {"Content-Type": source.choice(KINDS), **source.choice(HEADERS)}
    return method, path + source.choice(QUESTIONS), body, headers


def hostile_http(url, n, seed):
    """Send odd requests; the statuses that came back, by number."""
    source = random.Random(seed)
    counts = {}
    host, port = url.removeprefix("http://").split(":")
    for _ in range(n):
        method, path, body, headers = hostile_request(source)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += "Connection: close\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        raw = head.encode("latin-1", "replace") + b"\r\n" + body
        if source.random() < 0.1:
            raw = bytearray(raw)
            for _ in range(source.randrange(1, 5)):
                raw[source.randrange(len(raw))] = source.randrange(256)
        with socket.create_connection((host, int(port)), 10) as connection:
            try:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(4096)
            except OSError:
                answer = b""
        status = answer[9:12].decode("latin-1")
        counts[status] = counts.get(status, 0) + 1
        assert status != "500", (raw[:300], answer)
    return counts


def test_hostile_requests_are_refused(client, url):
    """Random and malformed requests: no 500, no crash, and the space still works."""
    counts = hostile_http(url, 400, seed=seeds.seed_of("hostile requests"))
    assert len(counts) > 4
    assert "500" not in counts
    client.subscribe("alice", "after", "price = 4242")
    assert client.match({"price": 4242})["matches"][0].count("alice/after") == 1


def test_hostile_websockets(client, url):
    import websockets

    client.subscribe("alice", "a", "price > 0")
    frames = [
        "",
        "{",
        "[]",
        '{"ack": -1}',
        '{"ack": "x"}',
        '{"ack": 9999999}',
        "x" * 100_000,
        b"\xff\x00",
        "null",
    ]

    async def all_frames():
        for frame in frames:
            async with websockets.connect(
                url.replace("http", "ws") + "/v1/main/consumers/alice/ws"
            ) as socket_:
                await socket_.send(frame)
                await asyncio.wait_for(socket_.wait_closed(), 60)
                assert socket_.close_code in (4400, 1009, 1001, 1003, 1007)
        for path in ("/v1/none/consumers/alice/ws", "/v1/main/consumers/a%20b/ws", "/nothing"):
            with pytest.raises(websockets.InvalidStatus):
                await websockets.connect(url.replace("http", "ws") + path)

    asyncio.run(all_frames())
    deadline = time.monotonic() + 60
    while client.status()["spaces"][0]["connections"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert client.status()["spaces"][0]["connections"] == 0


def test_webhooks_retry_sign_and_give_up(start, monkeypatch):
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from rangecast.broker import webhooks

    taken, refusals = [], [2]

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            good = self.headers["X-Rangecast-Signature"] == webhooks.sign("s" * 16, body)
            if refusals[0]:
                refusals[0] -= 1
                self.send_response(500)
            else:
                taken.append((good, self.headers["X-Rangecast-Consumer"], json.loads(body)["messages"]))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    monkeypatch.setattr(webhooks, "ATTEMPTS", 3)
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.02)
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hook = {"url": f"http://127.0.0.1:{server.server_port}/hook", "secret": "s" * 16}
    with start(private_hooks=True) as url, Client(url) as client:
        base = f"{url}/v1/main/consumers/alice"
        client.subscribe("alice", "a", "price > 0")
        assert httpx.put(f"{base}/webhook", json=hook).json() == {"url": hook["url"], "dead_letters": 0}
        client.publish([{"price": 1}, {"price": 2}])
        wait_for(lambda: taken)
        assert taken[0][:2] == (True, "alice")
        assert [m["sequence"] for m in taken[0][2]] == [1, 2]
        wait_for(lambda: httpx.get(base).json()["acknowledged"] == 2)
        refusals[0] = 100
        client.publish({"price": 3})
        wait_for(lambda: httpx.get(f"{base}/webhook").json()["dead_letters"] == 1)
        assert httpx.get(f"{base}/dead-letters").json()["messages"][0]["sequence"] == 3
        refusals[0] = 0
        client.publish({"price": 4})
        wait_for(lambda: len(taken) > 1)
        assert [m["sequence"] for m in taken[1][2]] == [4]
        httpx.delete(f"{base}/dead-letters")
        assert httpx.get(f"{base}/dead-letters").json()["messages"] == []
        httpx.delete(f"{base}/webhook")
        assert httpx.get(f"{base}/webhook").json()["url"] is None
        for wrong in (
            {"url": "ftp://x", "secret": "s" * 16},
            {"url": hook["url"], "secret": "s"},
            {"url": 5},
        ):
            assert httpx.put(f"{base}/webhook", json=wrong).status_code == 400
    server.shutdown()
    server.server_close()


def test_a_webhook_that_does_not_answer_is_not_given_up(tmp_path, free_port):
    """Its connection takes nothing for minutes between two tries, which a stream may not."""
    broker = Broker(BrokerSettings(data=tmp_path / "data", port=0, private_hooks=True))
    broker.ensure_space("main", Schema(Int("price")))
    with serving(broker) as url, Client(url) as client:
        client.subscribe("alice", "a", "price > 0")
        hook = {"url": f"http://127.0.0.1:{free_port()}/", "secret": "s" * 16}
        httpx.put(f"{url}/v1/main/consumers/alice/webhook", json=hook)
        client.publish({"price": 1})
        space = broker.spaces["main"]
        failed = 'webhook_failures_total{space="main"} 0.0'
        wait_for(lambda: failed not in httpx.get(f"{url}/metrics").text)
        client.publish({"price": 2})  # it waits behind the first
        wait_for(lambda: any(one.outlet.waiting() for one in space.listeners))

        async def close_slow():
            return space.close_slow(time.monotonic() + 1000, 30)

        assert asyncio.run_coroutine_threadsafe(close_slow(), space.loop).result(60) == 0
        assert client.status()["spaces"][0]["connections"] == 1


def test_webhooks_stay_off_private_addresses():
    from rangecast.broker.access import BrokerError
    from rangecast.broker.webhooks import _resolved

    assert _resolved("127.0.0.1", 80, private=True) == ("127.0.0.1", 80)
    with pytest.raises(BrokerError, match="has no public address"):
        _resolved("127.0.0.1", 80, private=False)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_pages_of_other_origins(start):
    with start(origins=["https://example.org"]) as url:
        asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
        answer = httpx.options(f"{url}/v1/main/events", headers=asked)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        answer = httpx.options(f"{url}/v1/main/events", headers={**asked, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers
