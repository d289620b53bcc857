"""Answers of `match`: they are counted before they are made."""

import json
import threading

import httpx
import pytest

from rangecast.broker.access import SpaceLimits
from rangecast.client import Client, ClientError

pytestmark = pytest.mark.once


def fill(client, n, condition="price > 0"):
    client.subscribe_many([{"consumer": "a", "name": str(k), "condition": condition} for k in range(n)])


def test_answers_that_are_too_large(start, monkeypatch):
    with start(limits=SpaceLimits(match_pairs=1_000)) as url, Client(url) as client:
        fill(client, 100)
        assert sum(map(len, client.match([{"price": 1}] * 10)["matches"])) == 1_000
        with pytest.raises(ClientError, match=r"'match_pairs' is 1,000, and these events match 1,100 times"):
            client.match([{"price": 1}] * 11)
        answer = httpx.post(f"{url}/v1/main/match", json=[{"price": 1}] * 11)
        assert (answer.status_code, "send fewer events at a time" in answer.text) == (413, True)
        # events without a match cost nothing
        assert sum(map(len, client.match([{"price": 0}] * 5_000 + [{"price": 1}] * 10)["matches"])) == 1_000

        def never(*_):
            raise AssertionError

        monkeypatch.setattr("rangecast.engine.index.Index.match", never)
        assert httpx.post(f"{url}/v1/main/match", json=[{"price": 1}] * 11).status_code == 413


def test_no_answer_is_too_large_by_itself(start):
    """The default: 10 million pairs would be an answer of 100 MB and more."""
    with start() as url, Client(url, timeout=120) as client:
        fill(client, 2_000)
        answer = httpx.post(f"{url}/v1/main/match", json=[{"price": 1}] * 5_000, timeout=120)
        assert (answer.status_code, "'match_pairs' is 1,000,000" in answer.text) == (413, True)
        assert "10,000,000 times" in answer.text


def test_the_limit_under_many_requests_at_once(start):
    """60 at once, while subscriptions come and go: every answer is whole or refused, none is larger."""
    most, n = 1_000, 60
    with start(limits=SpaceLimits(match_pairs=most)) as url, Client(url, timeout=120) as client:
        fill(client, 100)
        found = []
        every = threading.Barrier(n + 1)
        ending = threading.Event()

        def ask(k):
            body = json.dumps([{"price": 1}] * (9 if k % 2 else 12))
            every.wait()
            found.append((k, httpx.post(f"{url}/v1/main/match", content=body, timeout=120)))

        def change():
            every.wait()
            with Client(url, timeout=120) as changer:
                while not ending.is_set():
                    changer.subscribe("b", "x", "price > 0")
                    changer.unsubscribe("b", "x")

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(n)]
        changing = threading.Thread(target=change)
        for thread in (*threads, changing):
            thread.start()
        for thread in threads:
            thread.join(120)
        ending.set()
        changing.join(60)
        assert len(found) == n
        for k, answer in found:
            assert answer.status_code == (200 if k % 2 else 413)
            if k % 2:
                assert sum(map(len, answer.json()["matches"])) in (900, 909)
