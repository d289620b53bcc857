"""Who may connect, from where, for how long, and how many at once."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import threading
import time

import httpx
import pytest
import websockets

from rangecast.broker import server
from rangecast.broker.access import add_token
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import make_server
from rangecast.client import Client
from rangecast.errors import OptionError

pytestmark = pytest.mark.once


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def place_of(url):
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def connected(url):
    connection = socket.create_connection(place_of(url), 60)
    connection.settimeout(60)
    return connection


def raw_answer(url, head, body=b""):
    """The status and the text of the answer to a request as it stands."""
    with connected(url) as connection:
        connection.sendall(head.encode("latin-1") + b"\r\n\r\n" + body)
        return read_answer(connection)


def read_answer(connection):
    raw = b""
    while b"\r\n\r\n" not in raw:
        data = connection.recv(65_536)
        if not data:
            return 0, raw.decode("latin-1")
        raw += data
    head, _, body = raw.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
    while len(body) < length:
        data = connection.recv(65_536)
        if not data:
            break
        body += data
    return int(head[9:12]), body.decode("latin-1")


def get(url, *headers, path="/v1/spaces", version="1.1"):
    return raw_answer(url, "\r\n".join((f"GET {path} HTTP/{version}", *headers)))


def test_hosts_that_are_ours(start):
    with start(host_names=["broker.internal", "[fd00::5]"]) as url:
        port = place_of(url)[1]
        good = ["localhost", f"localhost:{port}", f"LOCALHOST:{port}", "localhost.", f"127.0.0.1:{port}",
                "[::1]", f"[::1]:{port}", "[0:0:0:0:0:0:0:1]", "localhost:9", "Broker.Internal:80",
                "[fd00:0::5]", "localhost:"]  # fmt: skip
        bad = ["evil.example", f"evil.example:{port}", "localhost.evil.example", "evil.localhost",
               "127.0.0.2", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "[fe80::1]"]  # fmt: skip
        odd = ["", "localhost..", ".", "[::1%eth0]", "[::1", "::1", "a@localhost", "localhost:x",
               "localhost:999999", "localhost, evil.example", "localhost/x",
               "localh\xf6st"]  # fmt: skip
        assert [host for host in good if get(url, f"Host: {host}")[0] != 200] == []
        assert [host for host in bad if get(url, f"Host: {host}")[0] != 403] == []
        assert [host for host in odd if get(url, f"Host: {host}")[0] != 400] == []
        assert get(url, "Host: localhost", "Host: evil.example")[0] == 400
        assert get(url, "Host: localhost", "HOST: localhost")[0] == 400
        assert get(url)[0] == 400
        assert get(url, version="1.0")[0] == 200  # a program: every browser says a Host
        assert get(url, "Origin: http://evil.example", version="1.0")[0] == 400
        assert get(url, "Host: evil.example", path=f"http://localhost:{port}/v1/spaces")[0] == 403
        assert "--host-name" in get(url, "Host: evil.example")[1]


def test_origins_that_may(start):
    with start(origins=["https://App.example"], host_names=["broker.internal"]) as url:
        port = place_of(url)[1]
        host = f"Host: localhost:{port}"

        def status(*headers, path="/v1/main/events", first=host):
            head = "\r\n".join((f"POST {path} HTTP/1.1", first, "Content-Length: 12", *headers))
            return raw_answer(url, head, b'{"price": 1}')[0]

        for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
            kind = f"Content-Type: {kind}"
            assert status(kind) == 200
            assert status(kind, f"Origin: http://localhost:{port}") == 200
            assert status(kind, f"Origin: HTTP://LocalHost:{port}") == 200
            assert status(kind, "Origin: https://app.example") == 200
            for origin in ("null", "", "http://evil.example", f"http://evil.example:{port}", "localhost",
                           f"http://127.0.0.1:{port}", "http://localhost:9", "http://localhost",
                           f"http://localhost.evil.example:{port}", f"ftp://localhost:{port}", "file://",
                           "https://app.example.evil",
                           f"http://localhost:{port} http://evil.example"):  # fmt: skip
                assert status(kind, f"Origin: {origin}") == 403, origin
            assert status(kind, f"Origin: http://localhost:{port}", "Origin: http://evil.example") == 400
            # the name of another was made to lead here
            assert (
                status(kind, f"Origin: http://evil.example:{port}", first=f"Host: evil.example:{port}") == 403
            )
        assert (
            status("Origin: https://broker.internal", first="Host: broker.internal") == 200
        )  # a proxy with TLS
        assert status("Origin: http://broker.internal", first="Host: broker.internal:80") == 200
        delete = f"DELETE /v1/main/consumers/alice HTTP/1.1\r\n{host}\r\nOrigin: http://evil.example"
        assert raw_answer(url, delete)[0] == 403
        assert get(url, host, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image")[0] == 403
        assert get(url, host, "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: iframe")[0] == 403
        assert get(url, host, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document", path="/")[0] == 200
        assert get(url, host, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty")[0] == 200
        assert get(url, host, "Sec-Fetch-Site: none", "Sec-Fetch-Dest: document")[0] == 200


def test_any_origin(start):
    with start(origins=["*"]) as url:
        assert get(url, "Host: localhost", "Origin: http://evil.example")[0] == 200
        assert get(url, "Host: evil.example", "Origin: http://evil.example")[0] == 403


def test_a_page_of_others_gets_no_websocket(start, caplog):
    with start() as url, Client(url) as client:
        client.subscribe("alice", "all", "price >= 0")
        client.publish([{"price": 1}, {"price": 2}])
        address = url.replace("http", "ws") + "/v1/main/consumers/alice/ws"

        async def talk(origin):
            async with websockets.connect(address, origin=origin) as connection:
                await connection.send('{"ack": 2}')
                while json.loads(await connection.recv())["type"] != "caught_up":
                    pass

        caplog.set_level("WARNING", "uvicorn.error")  # as `rangecast serve` has it
        for origin in ("http://evil.example", "null"):
            with pytest.raises(websockets.InvalidStatus) as caught:
                asyncio.run(talk(origin))
            assert caught.value.response.status_code == 403
        assert client.messages("alice")["next"] == 3
        assert httpx.get(f"{url}/v1/main/consumers/alice").json()["acknowledged"] != 2
        for origin in (None, url):
            asyncio.run(talk(origin))
        wait_for(lambda: httpx.get(f"{url}/v1/main/consumers/alice").json()["acknowledged"] == 2)
    # a page that tries again and again does not fill the log
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_with_tokens_nobody_is_asked_where_it_comes_from(start, tmp_path):
    """A page of others knows no token, and no header or cookie is sent by itself."""
    token = add_token(tmp_path / "tokens", "alice", ["read"])
    with start(tokens=tmp_path / "tokens") as url:
        headers = "Host: broker.example", "Origin: http://other.example"
        assert get(url, *headers)[0] == 401
        assert get(url, *headers, f"Cookie: token={token}")[0] == 401
        assert get(url, *headers, f"Authorization: Bearer {token}")[0] == 200


@pytest.mark.parametrize("name", ["a:80", "http://a", "a b", ""])
def test_host_names_that_cannot_be(tmp_path, name):
    broker = Broker(BrokerSettings(data=tmp_path / "data", host_names=[name]))
    with pytest.raises(OptionError, match="a host name must be a name without a port"):
        make_server(broker)


def begun(url):
    """A connection that has had an answer and may ask again."""
    connection = connected(url)
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_answer(connection)[0] == 200
    return connection


def seconds_until_closed(connection, say, patience=20.0):
    """How long a connection stays while a byte of `say` is sent now and then, for ever."""
    begin = time.monotonic()
    connection.settimeout(0.05)
    place = 0
    while time.monotonic() - begin < patience:
        with contextlib.suppress(TimeoutError):
            try:
                if not connection.recv(65_536):
                    break
            except ConnectionError:
                break
        with contextlib.suppress(OSError):
            connection.sendall(say[place : place + 1])
        place = (place + 1) % max(1, len(say))
    connection.close()
    return time.monotonic() - begin


HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 10_000
UPGRADE = (
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
SLOW = {
    "head": (b"", HEAD),
    "ends of lines": (b"", b"\r\n"),
    "body that nobody reads": (
        b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n",
        b"x",
    ),
    "chunks that nobody reads": (
        b"POST /none HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n",
    ),
    "head behind another request": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET", b"x"),
    "body of an upgrade": (
        b"GET /v1/main/consumers/a/ws HTTP/1.1\r\nContent-Length: 9999\r\n" + UPGRADE + b"\r\n",
        b"x",
    ),
}


@pytest.mark.parametrize("kept_alive", [False, True])
@pytest.mark.parametrize("kind", SLOW)
def test_what_comes_a_byte_at_a_time_has_an_end(start, monkeypatch, kind, kept_alive):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    with start() as url:
        connection = begun(url) if kept_alive else connected(url)
        first, then = SLOW[kind]
        connection.sendall(first)
        assert seconds_until_closed(connection, then) < 5


def test_a_request_that_waits_for_its_answer_is_not_cut(start, monkeypatch):
    """Not even when the next head has begun, which cannot be read before."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with start() as url, connected(url) as connection:
        wait = b"GET /v1/main/consumers/alice/messages?wait=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(wait + b"GET /heal")
        status, body = read_answer(connection)
        assert (status, json.loads(body)["messages"]) == (200, [])
        connection.sendall(b"thz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(connection)[0] == 200
        connection.sendall(wait + wait + b"GET /heal")
        assert [read_answer(connection)[0] for _ in range(2)] == [200, 200]
        assert seconds_until_closed(connection, b"x") < 5


def test_who_takes_nothing_of_an_answer_is_cut(start, monkeypatch):
    monkeypatch.setattr(server, "TAKE_SECONDS", 0.3)
    with start() as url, Client(url) as client, socket.socket() as slow:
        client.subscribe_many(
            [{"consumer": "alice", "name": f"{'n' * 100}{n}", "condition": "price > 0"} for n in range(200)]
        )
        body = json.dumps([{"price": 1}] * 1000).encode()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(place_of(url))
        head = f"POST /v1/main/match HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        slow.sendall(head.encode() + body)
        open_ones = re.compile(r"rangecast_open_connections ([0-9.]+)")

        def count():
            return float(open_ones.search(httpx.get(f"{url}/metrics").text)[1])

        wait_for(lambda: count() == 3)  # the client's, this one's and the slow one
        wait_for(lambda: count() == 2)


def test_connections_that_are_too_many_are_refused(start):
    """60 at once, of which 20 may stay: the others hear why, and nobody is forgotten."""
    most, n = 20, 60
    with start(open_connections=most) as url:
        kept, refused = [], []
        every = threading.Barrier(n)

        def ask():
            every.wait()
            connection = connected(url)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, body = read_answer(connection)
            (kept if status == 200 else refused).append((connection, status, body))

        threads = [threading.Thread(target=ask) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert (len(kept), len(refused)) == (most, n - most)
        for connection, status, body in refused:
            assert status == 503
            assert "the limit 'open_connections' of this broker is 20" in body
            assert connection.recv(1) == b""
            connection.close()
        silent = connected(url)
        assert seconds_until_closed(silent, b"") < 5  # one that is too many and says nothing
        for connection, *_ in kept:
            connection.close()

        def text():
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{url}/metrics")
                return answer.text if answer.status_code == 200 else ""

        wait_for(text)
        assert float(re.search(r"rangecast_connections_refused_total ([0-9.]+)", text())[1]) >= n - most + 1


def test_a_flood_of_connections_is_closed_at_once(start, monkeypatch):
    monkeypatch.setattr(server, "_REFUSED_TOGETHER", 3)
    monkeypatch.setattr(server, "REFUSED_SECONDS", 30.0)
    with start(open_connections=2) as url:
        connections = [connected(url) for _ in range(200)]
        ended = 0
        for connection in connections[5:]:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""
            ended += 1
        assert ended == 195
        assert read_after(connections[0]) == 200
        assert read_after(connections[4]) == 503
        for connection in connections:
            connection.close()
        wait_for(lambda: get(url, "Host: localhost")[0] == 200)


def read_after(connection):
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return read_answer(connection)[0]


@pytest.mark.parametrize("most", [0, -1, "many", True])
def test_numbers_of_connections_that_cannot_be(tmp_path, most):
    broker = Broker(BrokerSettings(data=tmp_path / "data", open_connections=most))
    with pytest.raises(OptionError, match="open_connections must be a whole number above 0, got"):
        make_server(broker)


@pytest.mark.parametrize(("files", "expected"), [(100, 50), (1024, 768), (65_536, 25_000), (-1, 25_000)])
def test_connections_are_fewer_where_files_are(tmp_path, monkeypatch, files, expected):
    monkeypatch.setattr(server.resource, "getrlimit", lambda _: (files, files))
    assert server.most_connections(BrokerSettings(data=tmp_path)) == expected


def test_sigterm_ends_every_kind_of_connection(process, tmp_path):
    """Half heads, half bodies, idle ones, streams that read nothing, answers that nobody takes."""
    with process(tmp_path) as (url, running), Client(url) as client:
        rows = [
            {"consumer": "alice", "name": f"{'n' * 100}{n}", "condition": "price > 0"} for n in range(200)
        ]
        client.subscribe_many(rows)
        body = json.dumps([{"price": 1}] * 1000).encode()
        match = f"POST /v1/main/match HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        kinds = [
            b"",
            b"GET /he",
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /v1/main/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n[",
            b"GET /v1/main/consumers/alice/stream?from=0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /v1/main/consumers/alice/messages?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /v1/main/consumers/alice/ws HTTP/1.1\r\n" + UPGRADE + b"\r\n",
            b"GET /v1/main/consumers/alice/ws HTTP/1.1\r\nContent-Length: 9999\r\n" + UPGRADE + b"\r\n",
            match.encode() + body,
        ]
        connections = []
        for k in range(40):
            connections.append(connected(url))
            connections[-1].sendall(kinds[k % len(kinds)])
        client.publish([{"price": 1}] * 100)
        running.send_signal(signal.SIGTERM)
        assert running.wait(25) == 0
        for connection in connections:
            connection.close()
