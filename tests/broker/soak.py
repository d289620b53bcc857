"""Kill the broker again and again while consumers cut, stall and resume and subscriptions change; count
what is lost.

    python tests/broker/soak.py --seconds 600 --kills 20
    python tests/broker/soak.py --seconds 600 --kills 20 --keep [PRINTED]     for the table of docs/broker.md

With --keep the counts go to benchmarks/figures, and with a file after it, what such a run has printed into
that file.

At the end the event log and the store are read from disk, and for every event the subscriptions that it
must have reached are worked out by a plain function, at the version that the event is pinned to. Every such
pair of sequence number and subscription must have been received, and no other.
"""

import argparse
import contextlib
import importlib.util
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import seeds
from rangecast import Store
from rangecast.broker.event_log import EventLog
from rangecast.client import Client, ClientError

SCHEMA = '[attributes.symbol]\ntype = "category"\n[attributes.price]\ntype = "int"\n'
SYMBOLS = [f"S{k}" for k in range(8)]
CONDITION = re.compile(r"price between (\d+) and (\d+)(?: and symbol = '(\w+)')?")


def holds(condition, event):
    """The definition of a match, for the conditions of this soak."""
    low, high, symbol = CONDITION.fullmatch(condition).groups()
    return int(low) <= event["price"] <= int(high) and symbol in (None, event["symbol"])


class Broker:
    """The process that is killed."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "schema.toml").write_text(SCHEMA)
        (folder / "broker.toml").write_text("[limits]\nsegment_bytes = 200000\n")
        self.process = None

    def start(self):
        command = [
            sys.executable, "-m", "rangecast", "serve", "--data", str(self.folder / "data"), "--schema",
            str(self.folder / "schema.toml"), "--listen", f"127.0.0.1:{self.port}",
            "--config", str(self.folder / "broker.toml"),
        ]  # fmt: skip
        with open(self.folder / "log.txt", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 300  # kernels may have to be compiled
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                    return
            except OSError:  # nobody listens, or 503 while the spaces are opened
                assert self.process.poll() is None, (self.folder / "log.txt").read_text()[-3000:]
                time.sleep(0.05)
        raise AssertionError("the broker did not start within five minutes")

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(60)


class Publisher(threading.Thread):
    def __init__(self, url, seed, stop):
        super().__init__(daemon=True)
        self.url, self.random, self.stop = url, random.Random(seed), stop
        self.answers = []
        self.name = f"publisher-{seed}"

    def run(self):
        n = 0
        with Client(self.url, timeout=5) as client:
            while not self.stop.is_set():
                n += 1
                size = self.random.choice([1, 1, 3, 40])
                events = [
                    {
                        "symbol": self.random.choice(SYMBOLS),
                        "price": self.random.randrange(1000),
                        "n": n,
                        "k": k,
                    }
                    for k in range(size)
                ]
                while True:
                    try:
                        answer = client.publish(events, key=f"{self.name}-{n}")
                        break
                    except ClientError:
                        time.sleep(0.1)
                self.answers.append((answer["first"], answer["last"], events))
                time.sleep(self.random.choice([0, 0.002, 0.01]))


class Changer(threading.Thread):
    def __init__(self, url, seed, consumers, stop):
        super().__init__(daemon=True)
        self.url, self.random, self.consumers, self.stop = url, random.Random(seed), consumers, stop
        self.done = []

    def run(self):
        with Client(self.url, timeout=5) as client:
            while not self.stop.is_set():
                consumer, name = self.random.choice(self.consumers), f"n{self.random.randrange(6)}"
                with contextlib.suppress(ClientError):
                    if self.random.random() < 0.2:
                        answer = client.unsubscribe(consumer, name)
                        self.done.append((answer["version"], f"{consumer}/{name}", None))
                    else:
                        condition = made_condition(self.random)
                        answer = client.subscribe(consumer, name, condition)
                        self.done.append((answer["version"], f"{consumer}/{name}", condition))
                time.sleep(self.random.random() * 0.05)


def made_condition(source):
    low = source.randrange(1000)
    text = f"price between {low} and {low + source.randrange(300)}"
    return text + (f" and symbol = '{source.choice(SYMBOLS)}'" if source.random() < 0.5 else "")


class Consumer(threading.Thread):
    """Receives, acknowledges now and then, and misbehaves until it is wanted to come to the end."""

    def __init__(self, url, name, seed, stop):
        super().__init__(daemon=True)
        self.url, self.consumer, self.random, self.stop = url, name, random.Random(seed), stop
        self.received = {}
        self.upto = 0
        self.wanted = None
        self.repeats = 0
        self.failure = None

    def run(self):
        try:
            with Client(self.url, timeout=5) as client:
                while not (self.wanted is not None and self.upto >= self.wanted):
                    self.listen(client)
        except Exception as error:
            self.failure = error

    def listen(self, client):
        stream = client.stream(self.consumer, notices=True, patience=8)
        end = time.monotonic() + self.random.choice([0.2, 1, 3])
        for message in stream:
            if message.kind == "match":
                for name in message.subscriptions:
                    self.repeats += (message.sequence, name) in self.received
                    self.received[message.sequence, name] = message.event
            assert message.kind != "gap", message
            if message.sequence is not None:
                self.upto = max(self.upto, message.sequence)
            if self.wanted is None and self.random.random() < 0.001:
                time.sleep(self.random.random() * 2)  # stalls
            done = self.wanted is not None and self.upto >= self.wanted
            if (self.random.random() < 0.02 and message.sequence is not None) or done:
                with contextlib.suppress(ClientError):
                    client.ack(self.consumer, message.sequence or 0)
            if done or (self.wanted is None and time.monotonic() > end and self.random.random() < 0.2):
                break
        stream.close()  # cuts; what was not acknowledged comes again


def soak(folder, seconds, kills, n_consumers, seed):
    """Run it; a dict of counts, of which `lost` and `wrong` must be 0."""
    broker = Broker(folder)
    broker.start()
    stop = threading.Event()
    names = [f"c{k}" for k in range(n_consumers)]
    publishers = [Publisher(broker.url, 100 * seed + k, stop) for k in range(2)]
    changer = Changer(broker.url, seed, names, stop)
    consumers = [Consumer(broker.url, name, 100 * seed + k, stop) for k, name in enumerate(names)]
    for thread in [*publishers, changer, *consumers]:
        thread.start()
    source = random.Random(seed)
    with Client(broker.url, timeout=120) as client:
        for name in names:
            client.subscribe(name, "first", made_condition(source))
    # a machine with much else to do may be slow to begin
    deadline = time.monotonic() + 60
    while min(len(publisher.answers) for publisher in publishers) < 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    pause = seconds / (kills + 1)
    for kill in range(kills):
        time.sleep(pause * source.uniform(0.5, 1.5))
        broker.end(signal.SIGKILL if kill % 4 < 3 else signal.SIGTERM)
        broker.start()
    time.sleep(pause)
    stop.set()
    for thread in [*publishers, changer]:
        thread.join(60)
    with Client(broker.url) as client:
        # one event more: whoever has heard of it has heard of everything before
        last = client.publish({"symbol": "S0", "price": 5})["last"]
    for consumer in consumers:
        consumer.wanted = last
    for consumer in consumers:
        # a stalling consumer falls behind fast publishers: it may take its time as long as it gets on
        at = -1
        while consumer.is_alive() and consumer.upto > at:
            at = consumer.upto
            consumer.join(60)
        assert consumer.failure is None, consumer.failure
        assert not consumer.is_alive(), f"{consumer.consumer} stands at {at}, and must come to {last}"
    broker.end(signal.SIGTERM)
    assert broker.process.returncode == 0
    return judge(folder / "data" / "main", publishers, changer, consumers)


def judge(folder, publishers, changer, consumers):
    store = Store.open(folder / "store")
    log = EventLog(folder / "log")
    history = {}
    said = {}
    for change in store.changes(0):
        for id in change.deleted.arrow().to_pylist():
            history[id][-1][1] = change.version
            said[change.version, id] = None
        texts = [] if change.inserted.texts is None else change.inserted.texts.to_list()
        for id, text in zip(change.inserted.ids.arrow().to_pylist(), texts, strict=True):
            if history.get(id) and history[id][-1][1] is None:
                history[id][-1][1] = change.version
            history.setdefault(id, []).append([change.version, None, text])
            said[change.version, id] = text
    for version, id, condition in changer.done:
        assert said[version, id] == condition, f"the change of {id} in version {version} was lost"
    events = {}
    for record in log.records(1):
        for row, text in enumerate(record.json(np.arange(record.head.n)).pieces()):
            events[record.head.sequence + row] = json.loads(text), record.head.pin
    log.close()
    for publisher in publishers:
        for first, last, published in publisher.answers:
            assert last - first + 1 == len(published)
            for k, event in enumerate(published):
                assert events[first + k][0] == event, f"event {first + k} is another one"
    expected = {consumer.consumer: set() for consumer in consumers}
    for id, spans in history.items():
        consumer, _, name = id.partition("/")
        for since, until, condition in spans:
            for sequence, (event, pin) in events.items():
                if since <= pin and (until is None or pin < until) and holds(condition, event):
                    expected[consumer].add((sequence, name))
    received = {consumer.consumer: set(consumer.received) for consumer in consumers}
    for consumer in consumers:
        for (sequence, _), event in consumer.received.items():
            assert events[sequence][0] == event
    return {
        "events": len(events),
        "versions": store.version,
        "expected": sum(map(len, expected.values())),
        "received": sum(map(len, received.values())),
        "repeats": sum(consumer.repeats for consumer in consumers),
        "lost": sum(len(expected[name] - received[name]) for name in expected),
        "wrong": sum(len(received[name] - expected[name]) for name in expected),
    }


def printed_counts(text):
    """The counts that a run has printed."""
    lines = (line.split() for line in text.splitlines())
    return {name: int(count.replace(",", "")) for name, count in lines}


def figures():
    """The module that keeps figures of pages."""
    place = Path(__file__).resolve().parents[2] / "benchmarks" / "figures.py"
    spec = importlib.util.spec_from_file_location("figures", place)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--consumers", type=int, default=12)
    seeds.add_option(parser)
    parser.add_argument("--keep", nargs="?", const=True)
    options = parser.parse_args()
    if isinstance(options.keep, str):
        counts = printed_counts(Path(options.keep).read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            counts = soak(Path(folder), options.seconds, options.kills, options.consumers, options.seed)
    if options.keep:
        command = f"python tests/broker/soak.py --seconds {options.seconds:g} --kills {options.kills}"
        figures().keep_soak("soaks", {"command": command, **counts})
    for name, count in counts.items():
        print(f"{name:10} {count:12,}")
    sys.exit(1 if counts["lost"] or counts["wrong"] or not counts["expected"] else 0)


if __name__ == "__main__":
    main()
