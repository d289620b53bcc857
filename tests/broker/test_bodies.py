"""Bodies of requests: carriage returns between tokens, compressed members, and clients that hang up."""

import json

import httpx
import numpy as np
import pytest

from rangecast.broker.bodies import JSON_TYPES, LINES_TYPES, read_events
from rangecast.broker.event_record import (
    EventRecord,
    PublishedBody,
    joined_strings,
    pack_record,
    read_record_head,
)
from rangecast.broker.limits import SpaceLimits

from .conftest import market

LINES = {"Content-Type": LINES_TYPES[0]}
# U+2028, U+2029 and U+0085 end a line for Python, and for server-sent events they do not
STRANGE = "a\u2028b\u2029c\x85d\x7f\\r\\n\u000be".replace("\u000b", "\\u000b")
EVENT = '{"price":%s 5,"symbol":"' + STRANGE + '"%s}'


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
