"""Bodies of requests: carriage returns between tokens, compressed members, and clients that hang up."""

import gzip
import json
import random
import socket
import time

import httpx
import numpy as np
import pyarrow as pa
import pytest

from rangecast import Category, Float, Int, Schema
from rangecast.broker import app, bodies
from rangecast.broker.access import BrokerError, SpaceLimits, TooLargeError
from rangecast.broker.bodies import JSON_TYPES, LINES_TYPES, decompressed, read_events
from rangecast.broker.event_log import (
    EventRecord,
    PublishedBody,
    joined_strings,
    pack_record,
    read_record_head,
)

LINES = {"Content-Type": LINES_TYPES[0]}
# U+2028, U+2029 and U+0085 end a line for Python, and for server-sent events they do not
STRANGE = "a\u2028b\u2029c\x85d\x7f\\r\\n\u000be".replace("\u000b", "\\u000b")
EVENT = '{"price":%s 5,"symbol":"' + STRANGE + '"%s}'


def market():
    return Schema(Int("price"), Category("symbol"), Float("change"))


def received(raw, kind):
    found = read_events(raw, kind, market(), SpaceLimits())
    return found.body.json(np.arange(len(found.events))).pieces(), found.rejected


@pytest.mark.parametrize("n", [1, 2, 15, 16, 40])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
def test_carriage_returns_between_the_tokens_of_lines_are_spaces(n, end):
    lines = [EVENT % ("\r", "\r"), EVENT % ("", ""), EVENT % ("\t\r ", "")]
    raw = (end.join(lines[k % 3] for k in range(n)) + end).encode()
    texts, rejected = received(raw, LINES_TYPES[0])
    assert not rejected
    assert [json.loads(text) for text in texts] == [json.loads(EVENT % ("", ""))] * n
    assert not any(b"\r" in text or b"\n" in text for text in texts)


@pytest.mark.parametrize("form", ["%s", "[%s]", "[%s,\r%s]", "\r%s\r", "\r[\r%s\r]\r"])
def test_carriage_returns_between_the_tokens_of_json_are_spaces(form):
    for event in (EVENT % ("\r", "\r"), EVENT % ("\r\n", "\n"), EVENT % ("", "")):
        texts, rejected = received(form.replace("%s", event).encode(), JSON_TYPES[0])
        assert not rejected
        assert {json.dumps(json.loads(text)) for text in texts} == {json.dumps(json.loads(EVENT % ("", "")))}
        assert not any(b"\r" in text or b"\n" in text for text in texts)


@pytest.mark.parametrize("n", [2, 20])
def test_carriage_returns_within_strings_are_not_json(n):
    lines = [b'{"price": %d}' % k for k in range(n)]
    lines[1] = b'{"symbol": "a\rb"}'
    texts, rejected = received(b"\n".join(lines), LINES_TYPES[0])
    assert len(texts) == n - 1
    assert [row for row, _ in rejected] == [1]
    assert "not JSON" in rejected[0][1]


def test_a_log_that_has_carriage_returns_is_delivered_without():
    texts = [b'{"n":\r5}', b'{"n":6\r}']
    codes = np.zeros((1, 2), np.int64)
    raw = b"".join(pack_record(1, 0, 1, 0, codes, PublishedBody(joined_strings(texts))))
    record = EventRecord(read_record_head(raw), memoryview(raw)[64:])
    assert record.json(np.array([0, 1])).pieces() == [b'{"n": 5}', b'{"n":6 }']


@pytest.mark.parametrize("n", [1, 20])
def test_a_consumer_receives_events_with_strange_white_space(client, url, n):
    client.subscribe("alice", "all", "price is present")
    body = "\n".join([EVENT % ("\r", "\r")] * n).encode()
    answer = httpx.post(f"{url}/v1/main/events", content=body, headers=LINES).json()
    assert (answer["last"], answer["rejected"]) == (n, [])
    stream = client.stream("alice")
    for _ in range(n):
        assert next(stream).event == json.loads(EVENT % ("", ""))
    with httpx.stream("GET", f"{url}/v1/main/consumers/alice/stream") as answer:
        raw = b""
        for piece in answer.iter_raw():
            raw += piece
            if raw.count(b"event: match") == n and b"caught_up" in raw:
                break
    assert b"\r" not in raw


def zstd(raw):
    return pa.compress(raw, "zstd", asbytes=True)


MEMBERS = {"gzip": gzip.compress, "zstd": zstd}


@pytest.fixture(params=list(MEMBERS))
def member(request):
    return request.param, MEMBERS[request.param]


def test_members_of_any_number_and_size_are_read(member):
    encoding, make = member
    draw = random.Random(8)
    for _ in range(60):
        pieces = [
            draw.randbytes(draw.choice([0, 1, 100, 700, 5_000, 90_000])) for _ in range(draw.randint(1, 9))
        ]
        raw, whole = b"".join(map(make, pieces)), b"".join(pieces)
        assert decompressed(raw, encoding, len(whole)) == whole
        if whole:
            with pytest.raises(TooLargeError, match="when decompressed"):
                decompressed(raw, encoding, len(whole) - 1)
        cut = raw[: -draw.randint(1, min(len(make(pieces[-1])) - 1, 30))]
        with pytest.raises(BrokerError, match=r"not whole|Truncated"):
            decompressed(cut, encoding, len(whole))


@pytest.mark.parametrize("rest", [b"x", b"\0" * 12, b"\x1f\x8b\x08garbage", b'{"price": 1}'])
def test_what_stands_behind_the_last_member_is_refused(member, rest):
    encoding, make = member
    for n in (1, 2):
        with pytest.raises(BrokerError, match=f"not {encoding}|not whole"):
            decompressed(make(b"{}\n") * n + rest, encoding, 1_000)


def test_the_limit_holds_across_members(member):
    encoding, make = member
    bomb = make(b" " * 600_000)
    assert len(decompressed(bomb, encoding, 1_000_000)) == 600_000
    for n in (2, 50):
        with pytest.raises(TooLargeError, match="when decompressed"):
            decompressed(bomb * n, encoding, 1_000_000)


def test_members_of_nothing_are_counted(monkeypatch):
    monkeypatch.setattr(bodies, "_MOST_MEMBERS", 1_000)
    empty = gzip.compress(b"")
    assert decompressed(empty * 1_000, "gzip", 10) == b""
    with pytest.raises(TooLargeError, match="1,000 members"):
        decompressed(empty * 1_001, "gzip", 10)


def test_all_members_of_a_request_are_published(url, member):
    encoding, make = member
    body = make(b'{"price": 1}\n{"price": 2}\n') + make(b'{"price": 3}\n')
    headers = {**LINES, "Content-Encoding": encoding}
    answer = httpx.post(f"{url}/v1/main/events", content=body, headers=headers)
    assert (answer.status_code, answer.json()["last"]) == (200, 3)
    answer = httpx.post(f"{url}/v1/main/events", content=body + b"more", headers=headers)
    assert (answer.status_code, "from byte" in answer.text or "zstd" in answer.text) == (400, True)


@pytest.mark.parametrize("path", ["PUT /v1/main/consumers/a/subscriptions/b", "POST /v1/main/events"])
def test_a_client_that_hangs_up_within_its_body_is_no_fault_of_the_broker(url, path, monkeypatch, caplog):
    errors = []

    def answered(error, answer=app.error_answer):
        errors.append(error)
        return answer(error)

    monkeypatch.setattr(app, "error_answer", answered)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            f'{path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 99\r\n\r\n{{"pri'.encode()
        )
    deadline = time.monotonic() + 30
    while not errors and time.monotonic() < deadline:
        time.sleep(0.01)
    (error,) = errors
    assert isinstance(error, BrokerError)
    assert "closed the connection" in str(error)
    assert httpx.get(f"{url}/healthz").status_code == 200
    assert not caplog.records
