"""Delivery by several processes: connections go to theirs, and a worker that dies costs nobody a message."""

import asyncio
import json
import os
import signal
import socket
import threading
import time

import httpx
import psutil
import pytest

from rangecast.broker.workers import WRITER, place_of, place_of_request
from rangecast.client import Client

pytestmark = pytest.mark.integration

CONSUMERS = [f"c{k}" for k in range(8)]


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_requests_have_one_place():
    assert place_of_request(b"/v1/main/events", 4) == WRITER
    assert place_of_request(b"/v1/main/consumers/a/ack", 4) == WRITER
    for consumer in CONSUMERS:
        place = place_of("main", consumer, 4)
        assert 1 <= place <= 4
        for rest in ("stream", "ws", "messages?max=1", "stream?from=now"):
            assert place_of_request(f"/v1/main/consumers/{consumer}/{rest}".encode(), 4) == place
    assert place_of_request(b"/v1/main/consumers/%61/stream", 4) == place_of("main", "a", 4)
    assert {place_of("main", f"c{k}", 3) for k in range(50)} == {1, 2, 3}


class Listening(threading.Thread):
    """Receives until it has seen an event, over whatever breaks."""

    def __init__(self, url, consumer):
        super().__init__(daemon=True)
        self.url, self.consumer = url, consumer
        self.sequences = []
        self.wanted = None

    def run(self):
        with Client(self.url) as client:
            for message in client.stream(self.consumer, patience=10, notices=True):
                if message.kind == "match":
                    self.sequences.append(message.sequence)
                if (
                    self.wanted is not None
                    and message.sequence is not None
                    and message.sequence >= self.wanted
                ):
                    return


def test_workers_deliver_and_may_die(tmp_path, process):
    with process(tmp_path, "--workers", "2") as (url, running), Client(url) as client:
        for k, consumer in enumerate(CONSUMERS):
            client.subscribe(consumer, "some", f"price >= {k}")
        workers = psutil.Process(running.pid).children()
        assert len(workers) == 2
        everybody = [Listening(url, consumer) for consumer in CONSUMERS]
        for one in everybody:
            one.start()
        connected = lambda: client.status()["spaces"][0]["states"]["live"] == len(CONSUMERS)  # noqa: E731
        wait_for(connected)
        assert psutil.Process(running.pid).children() == workers
        prices = []
        for k in range(60):
            if k == 20:
                workers[0].kill()
            if k == 30:
                # a subscription that comes while a process starts again
                client.subscribe(CONSUMERS[0], "late", "price = 7")
            batch = [(k + n) % 10 for n in range(10)]
            prices += batch
            client.publish([{"price": price} for price in batch])
        last = client.publish({"price": 99})["last"]
        prices.append(99)
        for one in everybody:
            one.wanted = last
        for k, one in enumerate(everybody):
            one.join(240)
            assert not one.is_alive(), (one.consumer, one.sequences[-3:])
            assert one.sequences == [n for n, price in enumerate(prices, 1) if price >= k]
        # while there is no new process the writer answers, so everybody may be served before it starts
        wait_for(lambda: len(psutil.Process(running.pid).children()) == 2)
        living = psutil.Process(running.pid).children()
        assert workers[1] in living
        assert workers[0] not in living
        # one connection that is now the writer's and now a worker's
        with httpx.Client(base_url=url, timeout=120) as http:
            base = f"/v1/main/consumers/{CONSUMERS[0]}"
            for upto in (5, 9):
                assert http.post(f"{base}/ack", json={"sequence": upto}).json() == {"sequence": upto}
                assert http.get(f"{base}/messages?max=1").json()["messages"][0]["sequence"] == upto + 1
            assert http.get(f"{base}").json()["acknowledged"] == 9
        asyncio.run(talk(url))
        # more behind the head than a packet holds: the writer answers, or the worker, and nobody dies of it
        for length in (100_000, 140_000, 250_000):
            answer = http_get_with_body(url, f"/v1/main/consumers/{CONSUMERS[0]}/messages?max=1", length)
            assert answer.startswith(b"HTTP/1.1 200 ")
        assert psutil.Process(running.pid).children() == living
        text = httpx.get(f"{url}/metrics").text
        delivered = [line for line in text.splitlines() if line.startswith("rangecast_deliveries_total")]
        assert float(delivered[0].split()[-1]) > 0
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        wait_for(lambda: not any(psutil.pid_exists(one.pid) for one in living))
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


def http_get_with_body(url, path, length):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode() + b"x" * length)
        return connection.recv(1000)


async def talk(url):
    """Acknowledgements by a WebSocket go from the worker to the writer."""
    import websockets

    address = url.replace("http", "ws") + f"/v1/main/consumers/{CONSUMERS[1]}/ws?from=1"
    async with websockets.connect(address) as connection:
        first = json.loads(await connection.recv())
        await connection.send(json.dumps({"ack": first["sequence"]}))
        async with httpx.AsyncClient(base_url=url, timeout=120) as http:
            for _ in range(200):
                found = (await http.get(f"/v1/main/consumers/{CONSUMERS[1]}")).json()
                if found["acknowledged"] == first["sequence"]:
                    return
                await asyncio.sleep(0.05)
    raise AssertionError(found)


def test_workers_end_with_the_writer(tmp_path, process):
    with process(tmp_path, "--workers", "1") as (url, running):
        (worker,) = psutil.Process(running.pid).children()
        assert httpx.get(f"{url}/v1/main/consumers/a/messages", timeout=120).json()["messages"] == []
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        wait_for(lambda: not psutil.pid_exists(worker.pid) or worker.status() == psutil.STATUS_ZOMBIE)
