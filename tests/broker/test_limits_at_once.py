"""Each limit of a broker, with sixty requests at once: it holds exactly, and none is answered with a 500."""

import asyncio
import contextlib
import gzip
import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import httpx
import pytest
import websockets

from rangecast import Int, Schema
from rangecast.broker.access import SpaceLimits
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving
from rangecast.client import Client
from rangecast.types.derived import MAX_DERIVED

pytestmark = pytest.mark.once

N = 60
LINES = {"content-type": "application/x-ndjson"}


@contextlib.contextmanager
def limited(tmp_path, **limits):
    broker = Broker(BrokerSettings(data=tmp_path / "data", port=0, limits=SpaceLimits(**limits)))
    broker.ensure_space("main", Schema(Int("price"), Int("quantity")))
    with serving(broker) as url, httpx.Client(base_url=f"{url}/v1/main", timeout=120) as http:
        yield broker, http


def at_once(http, requests):
    """The answers to requests that are sent at the same time: method, path and options of each."""
    together = threading.Barrier(len(requests))

    def send(method, path, options):
        # a connection of its own: a pool would make them wait for each other
        with httpx.Client(base_url=http.base_url, timeout=120) as own:
            own.get(httpx.URL(http.base_url).join("/healthz"))
            together.wait(60)
            return own.request(method, path, **options)

    with ThreadPoolExecutor(len(requests)) as pool:
        calls = [pool.submit(send, method, path, options) for method, path, options in requests]
        answers = [call.result() for call in calls]
    assert not [answer.text for answer in answers if answer.status_code >= 500]
    return answers


def statuses(answers, limit=None):
    """How often there was each status; whatever was refused names the limit."""
    for answer in answers:
        assert answer.status_code == 200 or limit is None or f"'{limit}'" in answer.text, answer.text
    return Counter(answer.status_code for answer in answers)


def put(consumer, name, condition="price > 0", **more):
    return "PUT", f"/consumers/{consumer}/subscriptions/{name}", {"json": {"condition": condition, **more}}


def batch(rows):
    return "POST", "/subscriptions:batch", {"json": rows}


def publish(events, **headers):
    return "POST", "/events", {"content": json.dumps(events), "headers": headers}


def status_of(broker):
    return broker.status()["spaces"][0]


def subscriptions(tmp_path, monkeypatch):
    with limited(tmp_path, subscriptions=5) as (broker, http):
        answers = at_once(http, [put(f"c{k}", "a") for k in range(N)])
        assert statuses(answers, "subscriptions") == {200: 5, 403: N - 5}
        assert status_of(broker)["subscriptions"] == 5
        who = [one["consumer"] for one in http.get("/consumers").json()["consumers"]]
        # in place of others, in one request each, there is always room
        rows = [[put_row(w, "a", delete=True), put_row(w, f"b{k}")] for k, w in enumerate(who * 12)]
        at_once(http, [batch(several) for several in rows])
        assert status_of(broker)["subscriptions"] == 5
        at_once(http, [("DELETE", f"/consumers/{w}", {}) for w in who])
        assert status_of(broker)["subscriptions"] == 0
        answers = at_once(http, [batch([put_row(f"c{k}", "a"), put_row(f"c{k}", "b")]) for k in range(N)])
        assert statuses(answers, "subscriptions") == {200: 2, 403: N - 2}


def put_row(consumer, name, condition="price > 0", **more):
    return {"consumer": consumer, "name": name, "condition": condition, **more}


def consumer_subscriptions(tmp_path, monkeypatch):
    with limited(tmp_path, consumer_subscriptions=5) as (broker, http):
        answers = at_once(http, [put("ab"[k % 2], f"n{k}") for k in range(N)])
        assert statuses(answers, "consumer_subscriptions") == {200: 10, 403: N - 10}
        answers = at_once(http, [batch([put_row("c", f"n{k}"), put_row("c", f"m{k}")]) for k in range(N)])
        assert statuses(answers, "consumer_subscriptions") == {200: 2, 403: N - 2}
        assert status_of(broker)["subscriptions"] == 14


def consumer_expressions(tmp_path, monkeypatch):
    with limited(tmp_path, consumer_expressions=5) as (broker, http):
        puts = [put("ab"[k % 2], f"n{k}", f"price > {k + 2} * quantity") for k in range(N)]
        assert statuses(at_once(http, puts), "consumer_expressions") == {200: 10, 403: N - 10}
        assert status_of(broker)["expressions"] == 10
        # all together may use so many, and no more
        several = " or ".join("price > {} * quantity" for _ in range(5))
        puts = [put(f"c{k}", "a", several.format(*range(100 * k, 100 * k + 5))) for k in range(1, N + 1)]
        answers = at_once(http, puts)
        room = MAX_DERIVED - status_of(broker)["expressions"]
        assert 0 <= room < 5
        assert statuses(answers).keys() == {200, 422}


def boxes(tmp_path, monkeypatch):
    with limited(tmp_path, boxes=2) as (_, http):
        puts = [put(f"c{k}", "a", "price > 1 or quantity > 1") for k in range(N)]
        assert statuses(at_once(http, puts)) == {200: N}
        three = "price > 1 and quantity > 1 or price > 2 and quantity < 0 or price < 0 and quantity < 7"
        mixed = [put(f"c{k}", "b", three if k % 3 else "price > 0") for k in range(N)]
        assert statuses(at_once(http, mixed), "boxes") == {200: N // 3, 403: N - N // 3}


async def _opened(http, consumer_of):
    """How many of sixty connections of three kinds are let in, when they come at once."""
    url = str(http.base_url).rstrip("/")
    granted, refused = [], []
    done = asyncio.Event()

    async def stream(consumer):
        async with (
            httpx.AsyncClient(timeout=60) as own,
            own.stream("GET", f"{url}/consumers/{consumer}/stream") as answer,
        ):
            (granted if answer.status_code == 200 else refused).append(answer.status_code)
            assert answer.status_code in (200, 429)
            await done.wait()

    async def talk(consumer):
        try:
            async with websockets.connect(f"{url.replace('http', 'ws')}/consumers/{consumer}/ws") as socket:
                await asyncio.wait_for(socket.recv(), 60)  # it is told when it has caught up
                granted.append(101)
                await done.wait()
        except websockets.ConnectionClosed as error:
            refused.append(error.rcvd.code)
        except websockets.InvalidStatus as error:
            refused.append(error.response.status_code)

    async def poll(consumer):
        async with httpx.AsyncClient(timeout=60) as own:
            answer = await own.get(f"{url}/consumers/{consumer}/messages?wait=4")
            (granted if answer.status_code == 200 else refused).append(answer.status_code)
            assert answer.status_code in (200, 429)
            await done.wait()

    kinds = [stream, talk, poll]
    tasks = [asyncio.create_task(kinds[k % 3](consumer_of(k))) for k in range(N)]
    async with asyncio.timeout(60):
        while len(granted) + len(refused) < N:
            await asyncio.sleep(0.02)
    done.set()
    await asyncio.gather(*tasks)
    assert set(refused) <= {429, 4429, 403}
    return len(granted), len(refused)


def connections(tmp_path, monkeypatch):
    with limited(tmp_path, connections=5) as (_, http):
        assert asyncio.run(_opened(http, lambda k: f"c{k}")) == (5, N - 5)


def consumer_connections(tmp_path, monkeypatch):
    with limited(tmp_path, consumer_connections=5) as (_, http):
        assert asyncio.run(_opened(http, lambda k: f"c{k // 3 % 2}")) == (10, N - 10)


def body_bytes(tmp_path, monkeypatch):
    with limited(tmp_path, body_bytes=2_000) as (_, http):
        event = json.dumps({"price": 1, "note": "x" * 1_970})
        event += " " * (2_000 - len(event))
        packed = {"headers": {"content-encoding": "gzip"}}
        for more, wanted in (("", {200: N}), (" ", {413: N})):
            plain = [("POST", "/events", {"content": event + more})] * (N // 2)
            zipped = [("POST", "/events", {"content": gzip.compress((event + more).encode()), **packed})]
            assert statuses(at_once(http, plain + zipped * (N // 2)), "body_bytes") == wanted


def line_bytes(tmp_path, monkeypatch):
    with limited(tmp_path, line_bytes=100) as (broker, http):
        lines = ['{"price": 1, "note": "%s"}' % ("x" * (100 - 24)), '{"price": 1, "note": "%s"}' % ("x" * 77)]
        assert [len(line) for line in lines] == [100, 101]
        content = {"content": "\n".join(lines * 20), "headers": LINES}
        answers = at_once(http, [("POST", "/events", content)] * N)
        for answer in answers:
            assert [row["row"] for row in answer.json()["rejected"]] == list(range(1, 40, 2))
        assert status_of(broker)["next"] == 1 + 20 * N


def request_events(tmp_path, monkeypatch):
    with limited(tmp_path, request_events=20) as (broker, http):
        answers = at_once(http, [publish([{"price": 1}] * (20 + k % 2)) for k in range(N)])
        assert statuses(answers, "request_events") == {200: N // 2, 413: N // 2}
        assert status_of(broker)["next"] == 1 + 20 * N // 2


def match_pairs(tmp_path, monkeypatch):
    with limited(tmp_path, match_pairs=100) as (_, http):
        rows = [put_row("a", str(k)) for k in range(10)]
        assert statuses(at_once(http, [batch(rows)])) == {200: 1}
        answers = at_once(
            http, [("POST", "/match", {"json": [{"price": 1}] * (10 + k % 2)}) for k in range(N)]
        )
        assert statuses(answers, "match_pairs") == {200: N // 2, 413: N // 2}


def backlog(tmp_path, monkeypatch):
    with limited(tmp_path, backlog=50) as (broker, http):
        pump = broker.spaces["main"].pump
        monkeypatch.setattr(pump, "_may_match", lambda: False)
        answers = at_once(http, [publish([{"price": 1}] * 10)] * N)
        assert statuses(answers, "backlog") == {200: 5, 429: N - 5}
        assert pump.waiting_events == 50
        monkeypatch.undo()
        with Client(str(http.base_url).removesuffix("/v1/main/")) as client:
            wait_for(lambda: client.status()["spaces"][0]["waiting_events"] == 0)
        # a request that is larger by itself is taken, alone
        assert http.request(*publish([{"price": 1}] * 60)[:2], json=[{"price": 1}] * 60).status_code == 200


def _paced(tmp_path, limit, request):
    with limited(tmp_path, **{limit: 10}) as (_, http):
        start = time.monotonic()
        found = statuses(at_once(http, [request(k) for k in range(N)]), limit)
        # the bucket holds one second, and fills while they come
        assert 10 <= found[200] <= 11 + 10 * (time.monotonic() - start)
        assert set(found) <= {200, 429}


def events_per_second(tmp_path, monkeypatch):
    _paced(tmp_path, "events_per_second", lambda k: publish([{"price": k}]))


def changes_per_second(tmp_path, monkeypatch):
    _paced(tmp_path, "changes_per_second", lambda k: put(f"c{k}", "a"))


@contextlib.contextmanager
def _retained(tmp_path, monkeypatch, **limits):
    monkeypatch.setattr("rangecast.broker.pump._UPKEEP_SECONDS", 0.05)
    with limited(tmp_path, segment_bytes=5_000, **limits) as (broker, http):
        for _ in range(2):
            answers = at_once(http, [publish([{"price": 1, "note": "x" * 1_000}])] * N)
            assert statuses(answers) == {200: N}
        assert sorted(answer.json()["first"] for answer in answers) == list(range(N + 1, 2 * N + 1))
        for _ in range(20):  # a tick is written as a whole, and then a new segment begins
            assert http.request("POST", "/events", json={"price": 1, "note": "x" * 1_000}).status_code == 200
        yield broker


def log_bytes(tmp_path, monkeypatch):
    with _retained(tmp_path, monkeypatch, log_bytes=20_000) as broker:
        # whole segments go, and the last one stays
        wait_for(lambda: status_of(broker)["log_bytes"] <= 20_000 + 2 * 5_000)
        assert status_of(broker)["first"] > N


def keep_seconds(tmp_path, monkeypatch):
    with _retained(tmp_path, monkeypatch, keep_seconds=1) as broker:
        wait_for(lambda: status_of(broker)["segments"] == 1)


def segment_bytes(tmp_path, monkeypatch):
    with _retained(tmp_path, monkeypatch) as broker:
        status = status_of(broker)
        assert status["segments"] > 5
        assert status["segments"] >= status["log_bytes"] / (5_000 + N * 1_500)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


CASES = [
    subscriptions, consumer_subscriptions, consumer_expressions, boxes, connections, consumer_connections,
    body_bytes, line_bytes, request_events, match_pairs, backlog, events_per_second, changes_per_second,
    log_bytes, keep_seconds, segment_bytes,
]  # fmt: skip


def test_each_limit_has_a_case():
    assert {case.__name__ for case in CASES} == {field.name for field in fields(SpaceLimits)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_sixty_requests_at_once(case, tmp_path, monkeypatch):
    case(tmp_path, monkeypatch)


def test_limits_that_are_the_same_for_all(tmp_path):
    """Those of payloads, of events that are tested, of keys and of names; and one key sent sixty times."""
    with limited(tmp_path) as (broker, http):
        large = [put(f"c{k}", "a", payload="x" * (65_534 + k % 2)) for k in range(N)]
        assert statuses(at_once(http, large)) == {200: N // 2, 413: N // 2}
        tests = [{"condition": "price > 1", "events": [{}] * (1_000 + k % 2)} for k in range(6)]
        answers = at_once(http, [("POST", "/subscriptions:test", {"json": one}) for one in tests])
        assert statuses(answers) == {200: 3, 413: 3}
        keys = [publish([{"price": 1}], **{"idempotency-key": "k" * (256 + k % 2)}) for k in range(N)]
        answers = at_once(http, keys)
        assert statuses(answers) == {200: N // 2, 400: N // 2}
        assert status_of(broker)["next"] == 2
        names = [put("n" * (128 + k % 2), "a") for k in range(N)]
        assert statuses(at_once(http, names)) == {200: N // 2, 400: N // 2}
