"""Who may connect, from where, for how long, and how many at once."""

import asyncio
import json
import re
import socket
import time

import httpx
import pytest
import websockets

from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import make_server
from rangecast.broker.tokens import add_token
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


def test_a_page_of_others_gets_no_websocket(start):
    with start() as url, Client(url) as client:
        client.subscribe("alice", "all", "price >= 0")
        client.publish([{"price": 1}, {"price": 2}])
        address = url.replace("http", "ws") + "/v1/main/consumers/alice/ws"

        async def talk(origin):
            async with websockets.connect(address, origin=origin) as connection:
                await connection.send('{"ack": 2}')
                while json.loads(await connection.recv())["type"] != "caught_up":
                    pass

        for origin in ("http://evil.example", "null"):
            with pytest.raises(websockets.InvalidStatus) as caught:
                asyncio.run(talk(origin))
            assert caught.value.response.status_code == 403
        assert client.messages("alice")["next"] == 3
        assert httpx.get(f"{url}/v1/main/consumers/alice").json()["acknowledged"] != 2
        for origin in (None, url):
            asyncio.run(talk(origin))
        wait_for(lambda: httpx.get(f"{url}/v1/main/consumers/alice").json()["acknowledged"] == 2)


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
