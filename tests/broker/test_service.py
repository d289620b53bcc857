"""Subscribe, publish, deliver, resume: over HTTP, against a broker in this process."""

import asyncio
import gzip
import itertools
import json
import time
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from rangecast.client import AsyncClient, Client, ClientError, GapError

pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parents[2]


def take(stream, n):
    return list(itertools.islice(stream, n))


def pairs(messages):
    return [(message.sequence, name) for message in messages for name in message.subscriptions]


def test_subscribe_publish_deliver_resume(client):
    first = client.subscribe("alice", "cheap", "price < 10 and symbol = 'IBM'")
    assert first == {"id": "alice/cheap", "version": 1}
    client.subscribe("alice", "any", "price > 5")
    client.subscribe("bob", "any", "price > 0")
    answer = client.publish(
        [{"price": 9, "symbol": "IBM"}, {"price": 1, "symbol": "X"}, {"price": 3, "symbol": "IBM"}]
    )
    assert (answer["first"], answer["last"], answer["rejected"]) == (1, 3, [])
    with Client(client_url(client)) as other:
        messages = take(other.stream("alice"), 2)
    assert pairs(messages) == [(1, "cheap"), (1, "any"), (3, "cheap")] or pairs(messages) == [
        (1, "any"), (1, "cheap"), (3, "cheap")]  # fmt: skip
    assert messages[0].event == {"price": 9, "symbol": "IBM"}
    assert messages[0].content["version"] == 3
    client.ack("alice", 1)
    assert [m.sequence for m in take(client.stream("alice"), 1)] == [3]
    assert [m.sequence for m in take(client.stream("alice", start=0), 2)] == [1, 3]
    assert [m.sequence for m in take(client.stream("bob"), 3)] == [1, 2, 3]


def client_url(client):
    return f"http://{client._place.host}:{client._place.port}"


def test_history_and_live_meet_without_loss_or_doubling(client, url):
    client.subscribe("alice", "all", "price >= 0")
    for k in range(0, 500, 50):
        client.publish([{"price": n} for n in range(k, k + 50)])
    stream = client.stream("alice", notices=True)
    seen = []
    with Client(url) as publisher:
        for k in range(500, 1000, 10):
            publisher.publish([{"price": n} for n in range(k, k + 10)])
            seen.append(next(stream))
    while len([m for m in seen if m.kind == "match"]) < 1000:
        seen.append(next(stream))
    assert [m.sequence for m in seen if m.kind == "match"] == list(range(1, 1001))
    assert "caught_up" in {m.kind for m in seen}


def test_events_match_the_subscriptions_of_their_time(client):
    """Replaced, deleted and late subscriptions: whoever comes later receives what one receives live."""
    client.subscribe("alice", "a", "price < 10")
    live = client.stream("alice", start="now", notices=True)
    assert next(live).kind == "caught_up"
    client.publish({"price": 5})  # a
    client.subscribe("alice", "a", "price > 100")
    client.publish([{"price": 5}, {"price": 500}])  # the second
    client.subscribe("alice", "b", "price = 5")
    client.publish({"price": 5})  # b
    client.unsubscribe("alice", "a")
    client.publish([{"price": 500}, {"price": 5}])  # the second, b
    expected = [(1, "a"), (3, "a"), (4, "b"), (6, "b")]
    assert pairs(take((m for m in live if m.kind == "match"), 4)) == expected
    assert pairs(take(client.stream("alice"), 4)) == expected


def test_a_few_of_many_consumers_are_live(client, url):
    client.subscribe_many({"consumer": f"c{n}", "name": "a", "condition": "price > 0"} for n in range(300))
    live = client.stream("c7", start="now", notices=True)
    assert next(live).kind == "caught_up"
    client.publish([{"price": 1}, {"price": 2}])
    assert [(m.kind, m.sequence) for m in take(live, 2)] == [("match", 1), ("match", 2)]
    assert 'rangecast_errors_total{space="main"} 0.0' in httpx.get(f"{url}/metrics").text


def test_words_that_come_later(client):
    client.publish({"symbol": "NEW", "price": 1})
    client.subscribe("alice", "new", "symbol = 'NEW'")
    client.subscribe("alice", "other", "symbol != 'NEW'")
    client.publish([{"symbol": "NEW"}, {"symbol": "OLD"}])
    assert pairs(take(client.stream("alice"), 2)) == [(2, "new"), (3, "other")]


def test_conditional_changes_and_payloads(url):
    base = f"{url}/v1/main/consumers/alice/subscriptions"
    with httpx.Client() as http:
        put = http.put(f"{base}/a", json={"condition": "price < 10", "payload": {"to": "a@b"}})
        tag = put.headers["etag"]
        got = http.get(f"{base}/a")
        assert got.headers["etag"] == tag
        assert got.json()["condition"] == "price < 10"
        assert got.json()["payload"] == {"to": "a@b"}
        changed = http.put(f"{base}/a", json={"condition": "price < 20"}, headers={"If-Match": tag})
        assert changed.status_code == 200
        again = http.put(f"{base}/a", json={"condition": "price < 30"}, headers={"If-Match": tag})
        assert again.status_code == 412
        assert "If-Match" in again.json()["error"]["message"]
        assert "payload" not in http.get(f"{base}/a").json()
        assert (
            http.put(f"{base}/b", json={"condition": "price < 3"}, headers={"If-Match": "*"}).status_code
            == 412
        )
        assert http.get(f"{base}/b").status_code == 404
        assert http.delete(f"{base}/b").status_code == 404
        for name in "bcde":
            http.put(f"{base}/{name}", json={"condition": "price < 3"})
        page = http.get(base, params={"limit": 3}).json()
        assert [s["name"] for s in page["subscriptions"]] == ["a", "b", "c"]
        page = http.get(base, params={"limit": 3, "after": page["after"]}).json()
        assert [s["name"] for s in page["subscriptions"]] == ["d", "e"]
        assert "after" not in page


def test_a_wrong_condition_says_where(client):
    with pytest.raises(ClientError, match="expected a value") as caught:
        client.subscribe("alice", "a", "price <")
    assert caught.value.status == 422
    with pytest.raises(ClientError, match="prise"):
        client.subscribe("alice", "a", "prise < 3")


def test_batches_of_subscriptions(client, url):
    rows = [
        {"consumer": "alice", "name": "a", "condition": "price < 10", "payload": {"x": 1}},
        {"consumer": "alice", "name": "b", "condition": "price <"},
        {"consumer": "bob", "name": "b", "condition": "price > 10", "ttl": "1h"},
        {"consumer": "b o b", "name": "b", "condition": "price > 10"},
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    kind = {"content-type": "application/x-ndjson"}
    answer = httpx.post(f"{url}/v1/main/subscriptions:batch", content=lines, headers=kind).json()
    assert answer["accepted"] == 2
    assert [row["row"] for row in answer["rejected"]] == [1, 3]
    table = pa.table({"consumer": ["carl"] * 3, "name": ["x", "y", "z"], "condition": ["price = 1"] * 3})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write(table)
    kind = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = httpx.post(
        f"{url}/v1/main/subscriptions:batch", content=out.getvalue().to_pybytes(), headers=kind
    ).json()
    assert answer["accepted"] == 3
    assert answer["version"] == 2
    out = pa.BufferOutputStream()
    pq.write_table(table.append_column("ttl", pa.array(["1h", None, "90s"])), out)
    kind = {"content-type": "application/vnd.apache.parquet"}
    answer = httpx.post(
        f"{url}/v1/main/subscriptions:batch", content=out.getvalue().to_pybytes(), headers=kind
    ).json()
    assert (answer["accepted"], answer["rejected"]) == (3, [])
    assert ["expires" in s for s in client.subscriptions("carl")] == [True, False, True]
    gone = json.dumps({"consumer": "carl", "name": "x", "delete": True})
    answer = httpx.post(f"{url}/v1/main/subscriptions:batch", content=gone).json()
    assert answer["deleted"] == 1
    assert [s["name"] for s in client.subscriptions("carl")] == ["y", "z"]
    assert client.match([{"price": 1}])["matches"] == [["alice/a", "carl/y", "carl/z"]]


def test_subscriptions_expire_and_say_so(client):
    client.subscribe("alice", "short", "price > 0", ttl="2s")  # the event must be in time
    client.subscribe("alice", "long", "price > 0", ttl="1h")
    stream = client.stream("alice", notices=True)
    client.publish({"price": 1})
    kinds = {m.kind: m for m in take(stream, 2)}
    assert set(kinds["match"].subscriptions) == {"short", "long"}
    for message in stream:
        if message.kind == "expired":
            assert message.content["subscription"] == "short"
            break
    client.publish({"price": 2})
    assert next(m for m in stream if m.kind == "match").subscriptions == ("long",)
    # one who reads it from the log hears of it as well
    kinds = [m.kind for m in take(client.stream("alice", start=0, notices=True), 4)]
    assert kinds.count("expired") == 1
    assert kinds.count("match") == 2


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("form", ["object", "array", "pretty", "lines", "arrow"])
def test_forms_of_a_body(client, url, form, encoding):
    client.subscribe("alice", "a", "price >= 5")
    rows = [{"price": 4, "note": "no"}, {"price": 5, "note": "ä\n"}]
    kind = "application/json"
    match form:
        case "object":
            body = json.dumps(rows[1]).encode()
        case "array":
            body = json.dumps(rows).encode()
        case "pretty":
            body = json.dumps(rows, indent=2).encode()
        case "lines":
            body, kind = "\n".join(map(json.dumps, rows)).encode(), "application/x-ndjson"
        case "arrow":
            table = pa.Table.from_pylist(rows)
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, table.schema) as writer:
                writer.write(table)
            body, kind = out.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream"
    if encoding == "gzip":
        body = gzip.compress(body)
    elif encoding == "zstd":
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, "zstd") as packed:
            packed.write(body)
        body = out.getvalue().to_pybytes()
    headers = {"content-type": kind, "content-encoding": encoding}
    answer = httpx.post(f"{url}/v1/main/events", content=body, headers=headers).json()
    assert answer["rejected"] == []
    assert answer["first"] == 1
    (message,) = take(client.stream("alice"), 1)
    assert message.event == rows[1]


def test_rejected_events_say_why_and_stop_nobody(client):
    answer = client.publish([{"price": 1}, {"price": "x"}, {"price": 2}])
    assert (answer["first"], answer["last"]) == (1, 2)
    assert answer["rejected"] == [{"row": 1, "reason": "'price' is an int, got the string 'x'"}]
    found = client.match([{"price": "y"}, {"price": 2}])
    assert found["matches"] == [None, []]
    assert len(found["rejected"]) == 1


def test_several_values_of_an_attribute(client):
    """Live and from the log, beside events with one value, before and after a restart of the stream."""
    client.subscribe("alice", "low", "price < 5")
    client.subscribe("alice", "high", "price > 50 and symbol = 'a'")
    live = client.stream("alice", start="now", notices=True)
    assert next(live).kind == "caught_up"
    client.publish(
        [{"price": [1, 99], "symbol": ["a", "b"]}, {"price": 3}, {"price": [10, 20]}, {"price": [7, 2]}]
    )
    client.publish([{"price": 60, "symbol": ["b", "a"]}, {"price": 1}])
    expected = [(1, {"low", "high"}), (2, {"low"}), (4, {"low"}), (5, {"high"}), (6, {"low"})]
    found = take((m for m in live if m.kind == "match"), 5)
    assert [(m.sequence, set(m.subscriptions)) for m in found] == expected
    found = take(client.stream("alice"), 5)
    assert [(m.sequence, set(m.subscriptions)) for m in found] == expected
    assert found[0].event == {"price": [1, 99], "symbol": ["a", "b"]}


def test_places(start):
    """Live and from the log; what is no place is rejected with its reason."""
    with start(schema=rc.Schema(rc.Point("at"), rc.Int("price"))) as url, Client(url) as client:
        client.subscribe("alice", "near", "at within 1 km of (13.4, 52.5) and price < 9")
        client.subscribe("alice", "else", "not at within 1 km of (13.4, 52.5)")
        live = client.stream("alice", start="now", notices=True)
        assert next(live).kind == "caught_up"
        answer = client.publish(
            [
                {"at": [13.401, 52.5], "price": 3},
                {"at": {"lon": 13.6, "lat": 52.5}},
                {"at": [13.4, 152.5]},
                {"at": {"type": "Point", "coordinates": [13.4, 52.5]}, "price": 10},
                {"at": "POINT(13.4 52.5)", "price": 1},
                {"price": 1},
            ]
        )
        (rejected,) = answer["rejected"]
        assert rejected["row"] == 2
        assert "a latitude must lie within [-90, 90], got 152.5" in rejected["reason"]
        wanted = [(1, "near"), (2, "else"), (4, "near")]
        assert sorted(pairs(take((m for m in live if m.kind == "match"), 3))) == wanted
        assert sorted(pairs(take(client.stream("alice", start=0), 3))) == wanted


def test_a_key_is_logged_once(client, url, start):
    first = client.publish([{"price": 1}, {"price": "x"}], key="k1")
    again = client.publish([{"price": 1}, {"price": "x"}], key="k1")
    assert again == {**first, "repeated": True}
    with pytest.raises(ClientError, match="was used for another request"):
        client.publish([{"price": 2}], key="k1")
    assert client.publish([{"price": 1}], key="k2")["first"] == 2

    async def together():
        async with AsyncClient(url) as several:
            return await asyncio.gather(*(several.publish({"price": 3}, key="k3") for _ in range(5)))

    answers = asyncio.run(together())
    assert {answer["first"] for answer in answers} == {3}


def test_everything_is_there_after_a_restart(start):
    with start() as url, Client(url) as client:
        client.subscribe("alice", "a", "price < 10", payload={"k": [1]})
        client.publish([{"price": 1}, {"price": 11}], key="first")
        client.subscribe("alice", "a", "price > 10", ttl="1d")
        client.publish([{"price": 12}, {"price": 2}])
        client.ack("bob", 2)
    with start() as url, Client(url) as client:
        assert pairs(take(client.stream("alice"), 2)) == [(1, "a"), (3, "a")]
        assert client.publish([{"price": 1}, {"price": 11}], key="first")["repeated"]
        assert client.publish({"price": 13})["first"] == 5
        (found,) = client.subscriptions("alice")
        assert found["condition"] == "price > 10"
        assert found["expires"] > time.time() + 80_000
        client.subscribe("bob", "b", "price > 0")
        assert client.messages("bob")["messages"] == []
        client.publish({"price": 14})
        assert [m["sequence"] for m in client.messages("bob", wait=5)["messages"]] == [6]


def test_expressions_of_words_that_nobody_named(start):
    """Live, from the log, and from the log after a restart with more expressions."""
    conditions = {
        "prefix": "symbol starts with 'the'", "within": "symbol contains 'acme'",
        "lower": "lower(symbol) = 'xx'", "all": "symbol has all ('a', 'b')",
        "none": "symbol has none ('a')", "product": "price * price > 10",
    }  # fmt: skip
    events = [
        {"price": 4},
        {"symbol": "the acme"},
        {"symbol": "XX"},
        {"symbol": ["a", "b"]},
        {"symbol": ["b", "q"]},
    ]
    wanted = [(1, "product"), (2, "none"), (2, "prefix"), (2, "within"), (3, "lower"), (3, "none")]
    wanted += [(4, "all"), (5, "none")]
    with start() as url, Client(url) as client:
        for name, condition in conditions.items():
            client.subscribe("alice", name, condition)
        live = client.stream("alice", start="now", notices=True)
        assert next(live).kind == "caught_up"
        client.publish(events)
        assert sorted(pairs(take(live, 5))) == wanted
        assert sorted(pairs(take(client.stream("alice", start=0), 5))) == wanted
        client.subscribe("alice", "late", "symbol contains 'XX' or reverse(symbol) = 'YZ'")
        client.publish([{"symbol": "aXX"}, {"symbol": "ZY"}])
    wanted += [(6, "late"), (6, "none"), (7, "late"), (7, "none")]
    with start() as url, Client(url) as client:
        client.subscribe("alice", "later", "upper(symbol) = 'XX'")
        client.publish({"symbol": "xX"})
        messages = take(client.stream("alice", start=0), 8)
    assert sorted(pairs(messages)) == [*wanted, (8, "later"), (8, "lower"), (8, "none")]


def test_a_consumer_that_is_too_late_hears_of_the_gap(start, tmp_path):
    from rangecast.broker.access import SpaceLimits

    with start(limits=SpaceLimits(segment_bytes=2_000, log_bytes=4_000)) as url, Client(url) as client:
        client.subscribe("alice", "all", "price >= 0")
        client.ack("alice", 0)
        for k in range(200):
            client.publish([{"price": k}])
    with start() as url, Client(url) as client:
        deadline = time.monotonic() + 60
        while client.status()["spaces"][0]["first"] == 1 and time.monotonic() < deadline:
            time.sleep(0.2)
        first = client.status()["spaces"][0]["first"]
        assert first > 1
        with pytest.raises(GapError, match="retention") as caught:
            take(client.stream("alice"), 1)
        assert (caught.value.first, caught.value.last) == (1, first - 1)
        gap, message, *_ = take(client.stream("alice", notices=True), 3)
        assert gap.kind == "gap"
        assert gap.content["to"] == first - 1
        assert message.sequence == first
        found = client.messages("alice")
        assert json.loads(json.dumps(found["notices"]))[0]["type"] == "gap"


def test_long_poll(client, url):
    client.subscribe("alice", "a", "price > 0")
    assert client.messages("alice") == {"messages": [], "notices": [], "next": 1}
    client.publish([{"price": n} for n in range(1, 11)])
    found = client.messages("alice", most=4)
    assert [m["sequence"] for m in found["messages"]] == [1, 2, 3, 4]
    assert found["next"] == 5
    client.ack("alice", 4)
    assert [m["sequence"] for m in client.messages("alice")["messages"]] == [5, 6, 7, 8, 9, 10]
    client.ack("alice", 10)

    async def waiting():
        async with AsyncClient(url) as some:
            poll = asyncio.create_task(some.messages("alice", wait=60))
            await asyncio.sleep(0.2)
            await some.publish({"price": 5})
            return await poll

    started = time.monotonic()
    assert [m["sequence"] for m in asyncio.run(waiting())["messages"]] == [11]
    assert time.monotonic() - started < 55


def test_websocket_with_acknowledgements(client, url):
    import websockets

    async def talk():
        address = url.replace("http", "ws") + "/v1/main/consumers/alice/ws"
        async with websockets.connect(address) as socket:
            first = json.loads(await socket.recv())
            assert first["type"] == "match"
            assert first["sequence"] == 1
            assert json.loads(await socket.recv())["type"] == "caught_up"
            async with AsyncClient(url) as publisher:
                await publisher.publish({"price": 2})
            second = json.loads(await socket.recv())
            assert second["sequence"] == 2
            await socket.send(json.dumps({"ack": 1}))
            await asyncio.sleep(0.3)
            await socket.send("nonsense")
            await socket.wait_closed()
            assert socket.close_code == 4400

    client.subscribe("alice", "a", "price > 0")
    client.publish({"price": 1})
    asyncio.run(talk())
    assert [m["sequence"] for m in client.messages("alice")["messages"]] == [2]


def test_other_processes_share_the_store(client, start, tmp_path):
    from rangecast import Store, Subscriptions

    store = Store.open(tmp_path / "data" / "main" / "store")
    version = store.insert(
        Subscriptions.parse(store.schema, {"alice/x": "price = 7", "nobodys": "price = 7"})
    )
    deadline = time.monotonic() + 60
    while client.status()["spaces"][0]["version"] < version and time.monotonic() < deadline:
        time.sleep(0.05)
    client.publish({"price": 7})
    assert pairs(take(client.stream("alice"), 1)) == [(1, "x")]
    assert client.match({"price": 7})["matches"] == [["alice/x", "nobodys"]]
    client.subscribe("bob", "y", "price = 8")
    assert store.version == version + 1
    assert "bob/y" in store


def test_delete_a_consumer(client):
    client.subscribe("alice", "a", "price > 0")
    client.publish({"price": 1})
    client.ack("alice", 1)
    assert client.delete_consumer("alice")["deleted"] == 1
    assert client.subscriptions("alice") == []
    assert (
        client.messages("alice")["messages"][0]["sequence"] == 1
    )  # no cursor; the event was matched in its time


def test_spaces_are_apart(client, url):
    with Client(url, space="second") as second:
        with pytest.raises(ClientError, match="there is no space 'second'"):
            second.publish({"n": 1})
        second.create_space({"n": {"type": "int"}})
        second.create_space({"n": {"type": "int"}})
        with pytest.raises(ClientError, match="has another schema"):
            second.create_space({"n": {"type": "float"}})
        second.subscribe("alice", "a", "n = 1")
        second.publish({"n": 1})
        assert client.subscriptions("alice") == []
        assert [m.sequence for m in take(second.stream("alice"), 1)] == [1]
    assert httpx.get(f"{url}/v1/spaces").json() == {"spaces": ["main", "second"]}
    assert httpx.get(f"{url}/v1/second/schema").json()["attributes"] == {"n": {"type": "int"}}


def test_testing_a_condition_stores_nothing(client):
    found = client.test("price < 10 or symbol = 'NEVER'", [{"price": 5}, {"price": 50}, {"price": "x"}])
    assert found["matches"] == [0]
    assert found["boxes"] >= 1
    assert "50" in found["explanation"][1]["text"]
    assert found["rejected"][0]["row"] == 2
    with pytest.raises(ClientError, match="expected") as caught:
        client.test("price <", [])
    assert caught.value.status == 422


def test_explanations_that_are_too_long(client):
    """A long list is one predicate; each of many shows the value of an event."""
    long_list = f"price in ({', '.join(map(str, range(0, 400_000, 2)))})"
    assert client.test(long_list, [{"price": 4}])["matches"] == [0]
    with pytest.raises(ClientError, match="at most 8,388,608 are written at once: test fewer") as caught:
        client.test(long_list, [{"price": 4}] * 1_000)
    assert caught.value.status == 413
    names = " OR ".join(f"symbol = 'a{k}'" for k in range(1_000))
    assert client.test(names, [{"symbol": "x" * 1_000}])["matches"] == []
    with pytest.raises(ClientError, match=r"would take 10,0[0-9,]* letters"):
        client.test(names, [{"symbol": "x" * 10_000}])
    assert client.test("price > 1 and symbol = 'a'", [{"price": 2, "symbol": "a"}] * 1_000)["matches"]


def test_operations(client, url):
    client.subscribe("alice", "a", "price > 0")
    client.publish({"price": 1})
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{url}/readyz").json()["ready"]
    text = httpx.get(f"{url}/metrics").text
    for name in ("events_published_total", "subscriptions", "sync_seconds_count"):
        assert f'rangecast_{name}{{space="main"}} 1.0' in text
    (status,) = client.status()["spaces"]
    assert status["subscriptions"] == 1
    assert status["next"] == 2
    consumers = httpx.get(f"{url}/v1/main/consumers").json()["consumers"]
    assert consumers[0]["consumer"] == "alice"
    assert (consumers[0]["behind"], consumers[0]["unacknowledged"]) == (1, 1)
    # who is sent everything and acknowledges nothing is not behind
    stream = client.stream("alice", start=1)
    next(stream)
    deadline = time.monotonic() + 60
    while (found := httpx.get(f"{url}/v1/main/consumers").json()["consumers"][0])["behind"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found["unacknowledged"] == 1
    stream.close()
    assert httpx.get(f"{url}/").headers["content-type"].startswith("text/html")


def test_openapi_names_every_route(url):
    from rangecast.broker.app import ROUTES

    document = httpx.get(f"{url}/openapi.json").json()
    said = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert said == {(method, path) for method, path, _ in ROUTES}
    assert all(op["summary"] for methods in document["paths"].values() for op in methods.values())
    page = (ROOT / "docs/broker-api.md").read_text()
    for method, path, _ in ROUTES:
        assert any(method in row and path in row for row in page.splitlines() if row.startswith("|")), path


def test_the_reference_says_what_the_broker_does(url):
    """Its examples are one story, told in the order of the routes; statuses are those that errors have."""
    from rangecast.broker.openapi import routes, with_reference

    for route in routes():
        assert route.summary, route.name
        assert route.text, route.name
        assert set(route.statuses) <= {400, 401, 403, 404, 409, 412, 413, 415, 422, 429, 503}
        if route.name == "stream_messages":
            continue
        body = {} if route.body is None else {"json": route.body}
        answer = httpx.request(route.method, url + route.example, timeout=60, **body)
        assert answer.status_code == 200, (route.path, answer.text)
        if route.name == "give_ticket":
            assert list(answer.json()) == ["ticket"]
        elif route.answer is not None:
            assert answer.json() == route.answer, route.path
    page = (ROOT / "docs/broker-api.md").read_text()
    assert page == with_reference(page), "python -m rangecast.broker.openapi docs/broker-api.md"


def test_async_client(url):
    async def everything():
        async with AsyncClient(url) as client:
            await client.subscribe("alice", "a", "price > 1")
            answer = await client.publish([{"price": 1}, {"price": 2}])
            assert answer["last"] == 2
            async for message in client.stream("alice"):
                assert message.event == {"price": 2}
                await client.ack("alice", message.sequence)
                break
            assert (await client.match({"price": 5}))["matches"] == [["alice/a"]]
            assert (await client.messages("alice"))["messages"] == []
            assert (await client.test("price > 1", [{"price": 2}]))["matches"] == [0]
            await client.unsubscribe("alice", "a")
            with pytest.raises(ClientError, match="there is no subscription"):
                await client.unsubscribe("alice", "a")

    asyncio.run(everything())


def test_publisher_gathers_batches(client):
    client.subscribe("alice", "a", "price >= 0")
    with client.publisher(size=100, seconds=0.01) as publisher:
        for n in range(1050):
            publisher.send({"price": n})
        publisher.send({"price": "x"})
        publisher.flush()
        assert publisher.last == 1050
        assert publisher.rejected[0]["event"] == {"price": "x"}
    assert client.status()["spaces"][0]["next"] == 1051


def test_a_client_says_that_nobody_is_there():
    with (
        Client("http://127.0.0.1:9", timeout=1) as client,
        pytest.raises(ClientError, match="cannot be reached"),
    ):
        client.status()
