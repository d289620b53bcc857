"""Changes of subscriptions: the order of their rows, requests that come together, and what they may take."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from rangecast import Int, Schema
from rangecast.broker import changes
from rangecast.broker import requests as subscriptions
from rangecast.broker.access import SpaceLimits
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.changes import Changer, ChangeRequest, WantedSubscription
from rangecast.broker.server import serving
from rangecast.client import Client, ClientError
from rangecast.errors import StorageError
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.derived import MAX_DERIVED

pytestmark = pytest.mark.once


def send_batch(url, rows):
    answer = httpx.post(f"{url}/v1/main/subscriptions:batch", json=rows, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def put(name, condition="price > 0", consumer="alice", **more):
    return {"consumer": consumer, "name": name, "condition": condition, **more}


def delete(name, consumer="alice"):
    return {"consumer": consumer, "name": name, "delete": True}


def state(client, consumer):
    """What a broker says of a consumer's subscriptions: condition, payload, whether it expires, by name."""
    return {
        one["name"]: (one["condition"], one.get("payload"), "expires" in one)
        for one in client.subscriptions(consumer)
    }


class Model:
    """What the subscriptions must be: a dict that each row changes in turn."""

    def __init__(self):
        self.has = {}

    def apply(self, rows):
        """The answer to a batch, as far as it does not depend on others."""
        deleted = accepted = 0
        bad = []
        for k, row in enumerate(rows):
            key = row["consumer"], row["name"]
            if row.get("delete"):
                deleted += self.has.pop(key, None) is not None
            elif row["condition"].endswith("<"):
                bad.append(k)
            else:
                self.has[key] = row["condition"], row.get("payload"), "ttl" in row
                accepted += 1
        return deleted, accepted, bad

    def of(self, consumer):
        return {name: value for (owner, name), value in self.has.items() if owner == consumer}


def random_rows(source, consumer):
    rows = []
    for _ in range(source.randrange(1, 9)):
        name = source.choice("abcd")
        if source.random() < 0.35:
            rows.append(delete(name, consumer))
            continue
        row = put(name, f"price > {source.randrange(5)}", consumer)
        chance = source.random()
        if chance < 0.15:
            row["condition"] = "price <"
        elif chance < 0.3:
            row["condition"] = f"price * {source.randrange(2, 5)} > quantity"
        if source.random() < 0.4:
            row["payload"] = source.choice([{"k": source.randrange(9)}, [1], "text", 0, False])
        if source.random() < 0.3:
            row["ttl"] = "1h"
        rows.append(row)
    return rows


def test_rows_of_a_batch_are_done_in_their_order(client, url):
    answer = send_batch(url, [put("x", payload={"k": 1}), put("y", payload=1)])
    assert (answer["accepted"], answer["deleted"]) == (2, 0)
    answer = send_batch(url, [delete("x"), put("x", "price > 1", payload={"k": 2}), delete("y"), put("y")])
    assert (answer["accepted"], answer["deleted"], answer["rejected"]) == (2, 2, [])
    assert state(client, "alice") == {"x": ("price > 1", {"k": 2}, False), "y": ("price > 0", None, False)}
    answer = send_batch(
        url, [put("x", "price > 2", ttl="1h"), delete("x"), delete("x"), put("z"), delete("z")]
    )
    assert (answer["accepted"], answer["deleted"]) == (2, 2)
    assert list(state(client, "alice")) == ["y"]
    answer = send_batch(url, [put("y", "price > 3", payload=1), put("y", "price > 4"), put("y", "price <")])
    assert (answer["accepted"], [row["row"] for row in answer["rejected"]]) == (2, [2])
    assert state(client, "alice") == {"y": ("price > 4", None, False)}
    assert client.match([{"price": 4}, {"price": 5}])["matches"] == [[], ["alice/y"]]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_batches_of_several_consumers_at_once(tmp_path, seed):
    """Each consumer sends one batch after the other while the others do, so that changes are joined."""
    source = random.Random(seed)
    schema = Schema(Int("price"), Int("quantity"))
    consumers = [f"c{k}" for k in range(6)]
    models = {consumer: Model() for consumer in consumers}
    batches = {consumer: [random_rows(source, consumer) for _ in range(25)] for consumer in consumers}

    def send(consumer, url):
        for rows in batches[consumer]:
            answer = send_batch(url, rows)
            got = answer["deleted"], answer["accepted"], [row["row"] for row in answer["rejected"]]
            assert got == models[consumer].apply(rows), rows

    def agrees(url):
        with Client(url) as client:
            for consumer in consumers:
                assert state(client, consumer) == models[consumer].of(consumer)
            (found,) = client.match([{"price": 3, "quantity": 7}])["matches"]
        values = {"price": 3, "quantity": 7}
        wanted = [
            f"{owner}/{name}"
            for consumer in consumers
            for (owner, name), (condition, _, _) in models[consumer].has.items()
            if eval(condition, {}, values)
        ]
        assert found == sorted(wanted)

    for _ in range(2):
        broker = Broker(BrokerSettings(data=tmp_path / "data", port=0))
        broker.open()
        broker.ensure_space("main", schema)
        with serving(broker) as url:
            if any(model.has for model in models.values()):
                agrees(url)
            with ThreadPoolExecutor(len(consumers)) as pool:
                list(pool.map(lambda consumer: send(consumer, url), consumers))
            agrees(url)


def joined(monkeypatch, space):
    """Keeps the thread that makes changes from beginning until it is let go, so that they are joined."""
    gate = threading.Event()
    next_requests = space.changer._next_requests

    def waiting():
        gate.wait(60)
        return next_requests()

    monkeypatch.setattr(space.changer, "_next_requests", waiting)
    return gate


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def at_once(calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def opened(tmp_path, schema=None, **limits):
    broker = Broker(BrokerSettings(data=tmp_path / "data", port=0, limits=SpaceLimits(**limits)))
    broker.open()
    broker.ensure_space("main", schema or Schema(Int("price"), Int("quantity")))
    return broker


def put_one(url, consumer, name, condition):
    path = f"{url}/v1/main/consumers/{consumer}/subscriptions/{name}"
    return httpx.put(path, json={"condition": condition}, timeout=60)


def test_a_request_that_fails_takes_no_other_with_it(tmp_path, monkeypatch):
    broker = opened(tmp_path)
    parse = Subscriptions.parse
    sizes = []

    def failing(schema, *, texts, **more):
        sizes.append(len(texts))
        if any("13" in text for text in texts):
            raise RecursionError("too deep")
        return parse(schema, texts=texts, **more)

    monkeypatch.setattr(changes.Subscriptions, "parse", failing)
    with serving(broker) as url:
        space = broker.spaces["main"]
        gate = joined(monkeypatch, space)
        with ThreadPoolExecutor(30) as pool:
            calls = [pool.submit(put_one, url, f"c{k}", "a", f"price > {k}") for k in range(30)]
            wait_for(lambda: len(space.changer._queue) == 30)
            gate.set()
            codes = [call.result().status_code for call in calls]
        assert codes == [500 if k == 13 else 200 for k in range(30)]
        assert max(sizes) > 20  # they were joined
        with Client(url) as client:
            assert len(client.match([{"price": 100}])["matches"][0]) == 29


def test_who_has_hung_up_keeps_no_answer_from_others(tmp_path, monkeypatch):
    broker = opened(tmp_path)
    with serving(broker) as url:
        space = broker.spaces["main"]
        gate = joined(monkeypatch, space)
        for condition in ("price <", "price > 1"):
            wanted = changes.WantedSubscription(f"gone/{len(condition)}", condition)
            assert space.changer.submit(changes.ChangeRequest([wanted])).cancel()
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(put_one, url, "alice", "a", "price > 0")
            wait_for(lambda: len(space.changer._queue) == 3)
            gate.set()
            assert call.result().status_code == 200


def test_a_long_condition_keeps_nobody_else_waiting(tmp_path, monkeypatch):
    """While a condition is read, streams and other requests go on."""
    broker = opened(tmp_path)
    reading, done = threading.Event(), threading.Event()
    parse, parse_alone = Subscriptions.parse, subscriptions.parse

    def hold(texts):
        if any("12345" in text for text in texts):
            reading.set()
            assert done.wait(60)

    def slow(schema, *, texts, **more):
        hold(texts)
        return parse(schema, texts=texts, **more)

    def slow_alone(text, schema):
        hold([text])
        return parse_alone(text, schema)

    with serving(broker) as url, Client(url) as client:
        client.subscribe("bob", "all", "price >= 0")
        stream = client.stream("bob")
        monkeypatch.setattr(changes.Subscriptions, "parse", slow)
        # handlers must not read a condition on the event loop either
        monkeypatch.setattr(subscriptions, "parse", slow_alone)
        with ThreadPoolExecutor(2) as pool:
            long = pool.submit(put_one, url, "alice", "long", "price > 12345")
            assert reading.wait(60)
            late = pool.submit(put_one, url, "alice", "long", "price > 7")
            assert httpx.get(f"{url}/healthz", timeout=30).status_code == 200
            sequence = client.publish({"price": 1})["last"]
            assert next(stream).sequence == sequence
            assert client.match([{"price": 1}])["matches"] == [["bob/all"]]
            assert not late.done()
            done.set()
            assert (long.result().status_code, late.result().status_code) == (200, 200)
        # the changes of a consumer are made in the order in which they came
        assert state(client, "alice") == {"long": ("price > 7", None, False)}


def test_a_condition_of_many_terms_leaves_the_loop_free(tmp_path):
    broker = opened(tmp_path)
    text = " or ".join(f"(price = {k} and quantity > {k})" for k in range(900))
    with serving(broker) as url, ThreadPoolExecutor(1) as pool, httpx.Client(base_url=url) as http:
        http.get("/healthz")
        call = pool.submit(put_one, url, "alice", "many", text)
        slowest = 0.0
        while not call.done():
            start = time.perf_counter()
            assert http.get("/healthz", timeout=30).status_code == 200
            slowest = max(slowest, time.perf_counter() - start)
        assert call.result().status_code == 200
    assert slowest < 3.0


def test_wrong_conditions_say_where_though_they_are_read_elsewhere(client, url):
    answer = put_one(url, "alice", "a", "price < 3 and price <")
    assert answer.status_code == 422
    assert answer.json()["error"]["position"] == 21
    assert put_one(url, "alice", "a", "prise < 3").status_code == 422


def test_one_consumer_cannot_take_the_expressions_of_all(tmp_path):
    """Nor by subscribing and deleting in turn, nor by a restart: a place is taken for good."""
    text = "price > {} * quantity"
    with serving(opened(tmp_path, consumer_expressions=5)) as url, Client(url) as client:
        for k in range(2, 7):
            client.subscribe("alice", "s", text.format(k))
            client.unsubscribe("alice", "s")
        with pytest.raises(ClientError, match=r"'consumer_expressions' is 5, .* has brought 5 ") as caught:
            client.subscribe("alice", "s7", text.format(7))
        assert caught.value.status == 403
        client.subscribe("alice", "again", "price < 6 * quantity + 1")
        client.subscribe("alice", "plain", "price < 6")
        client.subscribe("bob", "s7", text.format(7))
        client.subscribe("alice", "s7", text.format(7))  # it is there now, whoever brought it
        rows = [put("again"), *(put(f"t{k}", text.format(k), "bob") for k in range(20, 25))]
        with pytest.raises(ClientError, match="'consumer_expressions'"):
            client.subscribe_many(rows)
        assert client.subscribe_many([*rows[:-1], put("t24")])["accepted"] == 6
        status = client.status()["spaces"][0]
        assert status["expressions"] == 10
        assert httpx.get(f"{url}/v1/main/consumers/bob").json()["expressions"] == 5
        assert 'rangecast_expressions{space="main"} 10.0' in httpx.get(f"{url}/metrics").text
        assert client.match([{"price": 30, "quantity": 4}])["matches"] == [
            ["alice/again", "alice/s7", "alice/t24", "bob/s7"]
        ]
        httpx.delete(f"{url}/v1/main/consumers/alice").raise_for_status()
    with serving(opened(tmp_path)) as url, Client(url) as client:
        assert client.status()["spaces"][0]["expressions"] == 10
        for consumer in ("alice", "bob"):
            with pytest.raises(ClientError, match="'consumer_expressions'"):
                client.subscribe(consumer, "s9", text.format(9))
        client.subscribe("carl", "s9", text.format(9))


def test_a_change_that_fails_counts_no_expression(tmp_path, monkeypatch):
    broker = opened(tmp_path, consumer_expressions=2)
    with serving(broker) as url, Client(url) as client:
        store = broker.spaces["main"].store

        def full(*_):
            raise StorageError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(store, "make_change", full)
            for k in range(2, 6):
                assert put_one(url, "alice", "a", f"price > {k} * quantity").status_code == 503
        assert httpx.get(f"{url}/v1/main/consumers/alice").json()["expressions"] == 0
        for k in (7, 8):
            client.subscribe("alice", f"a{k}", f"price > {k} * quantity")


def test_what_is_refused_takes_no_expression(tmp_path):
    """Nor does a condition that nothing fulfils: otherwise a schema would be used up by nothing."""
    limits = {"consumer_expressions": 3, "boxes": 2, "consumer_subscriptions": 4}
    broker = opened(tmp_path, **limits)
    with serving(broker) as url, Client(url) as client:
        for k in range(2, MAX_DERIVED + 20):
            many = [put(f"m{j}", f"price > {1000 * k + j} * quantity") for j in range(4)]
            assert httpx.post(f"{url}/v1/main/subscriptions:batch", json=many).status_code == 403
            if k % 8 == 0:
                boxes = f"price > {k} or quantity > {k} or price > {5000 + k} * quantity"
                assert put_one(url, "bob", "b", boxes).status_code == 403
                client.subscribe("carl", "none", f"price > {k} * quantity and price < {k} * quantity - 1")
        assert broker.spaces["main"].store.schema.width == 2
        client.subscribe("dora", "a", "price > 3 * quantity")
        assert broker.spaces["main"].store.schema.width == 3
        assert client.match([{"price": 30, "quantity": 4}])["matches"] == [["dora/a"]]


def test_joined_requests_do_not_spoil_each_others_expressions(tmp_path, monkeypatch):
    """One that asks for more than there are is refused alone."""
    broker = opened(tmp_path, consumer_expressions=MAX_DERIVED)
    with serving(broker) as url, Client(url) as client:
        space = broker.spaces["main"]
        greedy = [put(f"g{k}", f"price > {100 + k} * quantity", "greedy") for k in range(MAX_DERIVED - 3)]
        client.subscribe_many(greedy)
        gate = joined(monkeypatch, space)
        wide = " or ".join(f"price > {k} * quantity" for k in range(1000, 1009))
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(put_one, url, "wide", "w", wide)]
            calls += [pool.submit(put_one, url, f"c{k}", "a", f"price > {k} * quantity") for k in (2, 3, 4)]
            wait_for(lambda: len(space.changer._queue) == 4)
            gate.set()
            codes = [call.result().status_code for call in calls]
        assert codes == [422, 200, 200, 200]
        assert put_one(url, "bob", "x", "price > 55 * quantity").status_code == 422
        assert put_one(url, "bob", "x", "price > 3 * quantity").status_code == 200


def test_a_space_that_many_make_at_once(url):
    def make(schema):
        return lambda: httpx.put(f"{url}/v1/second/schema", json={"attributes": schema}, timeout=120)

    answers = at_once([make({"price": {"type": "int"}})] * 20)
    assert [answer.status_code for answer in answers] == [200] * 20
    assert len({answer.text for answer in answers}) == 1
    kinds = [{"price": {"type": kind}} for kind in ("int", "float")]
    codes = [answer.status_code for answer in at_once([make(kinds[k % 2]) for k in range(20)])]
    assert codes == [200, 409] * 10
    assert json.loads(httpx.get(f"{url}/v1/spaces").text)["spaces"] == ["main", "second"]


def test_an_etag_is_that_of_what_was_put(start, monkeypatch):
    """It was that of what another request had made of it meanwhile, which If-Match then overwrote."""
    conditions = [
        "  price<10 AND symbol =\t'é'",
        f"price in ({', '.join(map(str, range(0, 9_000, 3)))})",
        "price * 2 > 7 or symbol like 'a%'",
    ]
    base = "/v1/main/consumers/alice/subscriptions"
    tags = []
    with start() as url, httpx.Client(base_url=url + base, timeout=120) as http:
        for k, condition in enumerate(conditions):
            content = {"condition": condition, "ttl": "1h", "payload": {"n": [1, 2.5, None, "é"]}}
            tags.append(http.put(f"/s{k}", json=content).headers["etag"])
            assert http.get(f"/s{k}").headers["etag"] == tags[k]
        submit = Changer.submit

        def overtaken(changer, request):
            done = submit(changer, request)
            done.result(60)
            submit(changer, ChangeRequest([WantedSubscription("alice/s0", "price < 1")])).result(60)
            return done

        with monkeypatch.context() as patch:
            patch.setattr(Changer, "submit", overtaken)
            tag = http.put("/s0", json={"condition": "price < 5"}).headers["etag"]
        assert http.get("/s0").headers["etag"] not in (tag, tags[0])
        assert http.put("/s0", json={"condition": "price < 6"}, headers={"If-Match": tag}).status_code == 412
    with start() as url, httpx.Client(base_url=url + base, timeout=120) as http:
        assert [http.get(f"/s{k}").headers["etag"] for k in (1, 2)] == tags[1:]
