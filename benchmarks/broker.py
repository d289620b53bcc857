"""The live broker on loopback: events in, messages out, latency; the load generator shares the machine.

    python benchmarks/broker.py --row batches       a row of the table in docs/broker.md; keeps its figures
    python benchmarks/broker.py --row stalled --rate 50000     another rate for it; kept as well
    python benchmarks/broker.py --consumers 1000 --rate 100000 --batch 500     anything else; only prints

The rows are batches, single, consumers, arrow, stalled and catch-up (`ROWS`). A run of a row replaces that
row in figures/broker.json and the table that is made from it. With --prepared FOLDER the space is made there
once, and copied for each run with the same subscriptions, consumers and matches; --seconds 0 makes it and
ends.

Open loop: requests are due at fixed times, whether or not the broker keeps up, and latency counts from the
time at which an event was due, so a broker that stalls cannot hide it. Every run ends by itself. Each event
carries its due time, and each consumer's connection is read by one loop that only looks for it. The number
of messages that must arrive is known from the events, and is checked at the end.
"""

import argparse
import asyncio
import json
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

import figures
from rangecast import Category, Int, Schema, Store, Subscriptions
from rangecast.client import Client

SCHEMA = '[attributes.symbol]\ntype = "category"\n[attributes.price]\ntype = "int"\n'
SYMBOLS = 1_000
PRICES = 1_000_000
DUE = re.compile(rb'"due":(\d+)')
# The rows of the table: what differs from the options' defaults. More is offered than must be held where the
# figure is how much the broker takes.
ROWS = {
    "batches": {"rate": 130_000, "batch": 500},
    "single": {"rate": 500, "batch": 1},
    "consumers": {"consumers": 10_000, "rate": 16_000, "batch": 500},
    "arrow": {"arrow": True, "rate": 700_000, "batch": 10_000, "matches": 0.01},
    "stalled": {"consumers": 2_000, "stalled": 1_000, "rate": 100_000, "seconds": 60.0},
    "catch-up": {"consumers": 10_000, "catch_up": True},
}


def prepare(folder, subscriptions, consumers, matches):
    """A space with subscriptions `symbol = S and price between a and b`."""
    source = np.random.default_rng(1)
    width = int(PRICES * SYMBOLS * matches / subscriptions)
    lows = source.integers(0, PRICES, subscriptions)
    symbols = source.integers(0, SYMBOLS, subscriptions)
    if folder.exists():
        return symbols, lows, width
    space = folder / "data" / "main"
    space.mkdir(parents=True)
    store = Store.open(space / "store", Schema(Category("symbol"), Int("price")))
    texts = [
        f"symbol = 'S{s}' and price between {low} and {low + width}"
        for s, low in zip(symbols.tolist(), lows.tolist(), strict=True)
    ]
    ids = [f"c{k % consumers}/n{k}" for k in range(subscriptions)]
    store.insert(Subscriptions.parse(store.schema, ids=ids, texts=texts))
    store.snapshot()
    (folder / "schema.toml").write_text(SCHEMA)
    return symbols, lows, width


class Broker:
    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "broker.toml").write_text("[limits]\nlog_bytes = 20000000000\n")
        command = [
            sys.executable, "-m", "rangecast", "serve", "--data", str(folder / "data"), "--listen",
            f"127.0.0.1:{self.port}", "--schema", str(folder / "schema.toml"),
            "--config", str(folder / "broker.toml"),
        ]  # fmt: skip
        started = time.perf_counter()
        self.log = open(folder / "log.txt", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while True:
            try:
                with urllib.request.urlopen(self.url + "/readyz", timeout=5):
                    break
            except OSError:  # nobody listens, or 503 while it opens its spaces
                if self.process.poll() is not None:
                    raise SystemExit((folder / "log.txt").read_text()) from None
                time.sleep(0.05)
        self.start_seconds = time.perf_counter() - started

    def processes(self):
        own = psutil.Process(self.process.pid)
        return [own, *own.children()]

    def memory(self):
        return sum(process.memory_info().rss for process in self.processes())

    def processor_seconds(self):
        return sum(sum(process.cpu_times()[:2]) for process in self.processes())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()


class Reader(asyncio.Protocol):
    """Counts messages of one consumer and takes their latencies."""

    def __init__(self, counts, latencies, request):
        self.counts, self.latencies, self.request = counts, latencies, request

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        now = time.perf_counter_ns()
        self.counts[1] += data.count(b"event: caught_up")
        n = data.count(b"event: match")
        if n:
            self.counts[0] += n
            if self.latencies is not None:
                self.latencies += [now - int(due) for due in DUE.findall(data)]


def made_batches(options, source, width):
    """Bodies without their due times, and how many matches each event has."""
    batches = []
    for _ in range(64):
        symbols = source.integers(0, SYMBOLS, options.batch)
        prices = source.integers(0, PRICES, options.batch)
        names = pa.array([f"S{s}" for s in symbols.tolist()]) if options.arrow else None
        batches.append((symbols, prices, names))
    return batches


def body_of(symbols, prices, names, due):
    if names is not None:
        table = pa.table({"symbol": names, "price": prices, "due": np.full(len(prices), due, np.int64)})
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write(table)
        return out.getvalue().to_pybytes(), b"application/vnd.apache.arrow.stream"
    lines = [
        b'{"symbol":"S%d","price":%d,"due":%d}' % (s, p, due)
        for s, p in zip(symbols.tolist(), prices.tolist(), strict=True)
    ]
    return b"\n".join(lines), b"application/x-ndjson"


def expected_messages(batches, symbols, lows, width, consumers):
    """How many messages each batch makes for each consumer: one per event that concerns it."""
    order = np.lexsort((lows, symbols))
    keys = symbols[order].astype(np.int64) * (4 * PRICES) + lows[order]
    owners = order % consumers
    counts = []
    for wanted_symbols, prices, _ in batches:
        key = wanted_symbols.astype(np.int64) * (4 * PRICES) + prices
        # below the symbol's first key the neighbour's begin, whose keys are far away
        first, last = np.searchsorted(keys, key - width, "left"), np.searchsorted(keys, key, "right")
        sizes = last - first
        rows = np.repeat(np.arange(len(key)), sizes)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(first, sizes)
        told = np.unique(rows * consumers + owners[places])
        counts.append(np.bincount(told % consumers, minlength=consumers))
    return counts


async def publish(port, due_times, make, pipeline=1):
    """Send requests at their due times over one connection; refusals are counted, never sent again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    refused = 0

    async def answers():
        nonlocal refused
        for _ in due_times:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head)[1])
            await reader.readexactly(length)
            refused += b" 200 " not in head.split(b"\r\n", 1)[0]

    reading = asyncio.create_task(answers())
    for k, due in enumerate(due_times):
        wait = due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        body, kind = make(k, int(due * 1e9))
        writer.write(
            b"POST /v1/main/events HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)
        )
        await writer.drain()
    await reading
    writer.close()
    return refused


class Offered:
    """Requests at fixed times, and how many messages they make for each consumer."""

    def __init__(self, options, symbols, lows, width):
        self.options = options
        self.batches = made_batches(options, np.random.default_rng(2), width)
        self.expected = expected_messages(self.batches, symbols, lows, width, options.consumers)
        self.sent = 0

    def wanted(self, consumers):
        """Messages of the first so many requests, for consumers below a number."""
        each = [int(counts[:consumers].sum()) for counts in self.expected]
        return sum(each[k % len(each)] for k in range(self.sent))

    async def publish(self, broker, seconds):
        """Offer the rate for some seconds; how long it took, and how many requests were refused."""
        options, batches = self.options, self.batches
        n = max(1, int(options.rate * seconds / options.batch))
        first = self.sent
        self.sent += n
        start = time.perf_counter() + 0.2
        dues = [start + k * options.batch / options.rate for k in range(n)]
        many = options.publishers

        def body(k, due):
            return body_of(*batches[(first + k) % len(batches)], due)

        refused = sum(await asyncio.gather(*(
            publish(broker.port, dues[p::many], lambda k, due, p=p: body(p + k * many, due))
            for p in range(many)
        )))  # fmt: skip
        return start, time.perf_counter() - start, refused


class Processors:
    """How many processors were busy on the mean since a moment: for the broker, for us, for whatever else."""

    def __init__(self, broker):
        self._broker = broker
        self._before = self._now()

    def _now(self):
        times = psutil.cpu_times()
        idle = times.idle + times.iowait
        return time.perf_counter(), self._broker.processor_seconds(), time.process_time(), idle

    def used(self):
        wall, broker, generator, idle = (b - a for a, b in zip(self._before, self._now(), strict=True))
        rest = psutil.cpu_count() - (broker + generator + idle) / wall
        return {
            "broker": round(broker / wall, 2),
            "generator": round(generator / wall, 2),
            "others": round(max(rest, 0.0), 2),
        }


def percentiles(latencies):
    found = np.array(latencies) / 1e6
    return {f"p{q} ms": round(float(np.percentile(found, q)), 1) for q in (50, 99)} if latencies else {}


async def listening(broker, consumers, start="now", timed=True):
    """Connections of consumers, and where their messages are counted and timed."""
    counts, latencies, readers = [0, 0], [] if timed else None, []
    loop = asyncio.get_running_loop()
    for k in consumers:
        request = b"GET /v1/main/consumers/c%d/stream?from=%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (
            k, start.encode()
        )  # fmt: skip
        transport, _ = await loop.create_connection(
            lambda request=request: Reader(counts, latencies, request), "127.0.0.1", broker.port
        )
        readers.append(transport)
    return counts, latencies, readers


async def until(condition, seconds=60):
    deadline = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < deadline:
        await asyncio.sleep(0.05)


async def flow(options, broker, symbols, lows, width):
    offered = Offered(options, symbols, lows, width)
    counts, latencies, readers = await listening(broker, range(options.consumers))
    await until(lambda: counts[1] >= len(readers))
    idle = broker.memory()
    used = broker.processor_seconds(), time.process_time()
    start, published, refused = await offered.publish(broker, options.seconds)
    wanted = offered.wanted(options.consumers)
    await until(lambda: counts[0] >= wanted or refused)
    delivered = time.perf_counter() - start
    events = offered.sent * options.batch
    row = {
        "events": events,
        "events/s": round(events / published),
        "messages": counts[0],
        "messages wanted": wanted,
        "messages/s": round(counts[0] / delivered),
        "refused": refused,
        "kB per connection": round((idle - options.before) / 1000 / max(1, options.consumers), 1),
        "memory MB": round(broker.memory() / 1e6),
        "broker us per event": round(1e6 * (broker.processor_seconds() - used[0]) / events, 2),
        "generator us per event": round(1e6 * (time.process_time() - used[1]) / events, 2),
        **percentiles(latencies),
    }
    for transport in readers:
        transport.close()
    if not refused:
        assert counts[0] == wanted, f"{wanted} messages must arrive, got {counts[0]}"
    return row


async def stall(options, broker, symbols, lows, width):
    """Some consumers stop reading for a while; what the others notice, and how the stalled ones come back.

    Three stretches at the same rate: all read; some have stopped; those come back while events are published,
    and catch up. A connection that takes nothing for 30 seconds is closed by the broker, so they connect
    again, from the event on at which they stopped, and must receive every message.
    """
    offered = Offered(options, symbols, lows, width)
    active, every = options.consumers - options.stalled, options.consumers
    counts, latencies, readers = await listening(broker, range(active))
    early, _, stalled = await listening(broker, range(active, every), timed=False)
    await until(lambda: counts[1] + early[1] >= every)
    seen, rates, refused, memory, connected, busy = [], [], 0, [], [], []

    async def watch():
        while True:
            memory[-1].append(broker.memory())
            await asyncio.sleep(0.25)

    async def stretch(seconds, beside=None):
        nonlocal refused
        latencies.clear()
        memory.append([])
        watching = asyncio.create_task(watch())
        processors = Processors(broker)
        publishing = asyncio.create_task(offered.publish(broker, seconds))
        if beside is not None:
            await asyncio.sleep(0.5)
            connected.append(await beside)
        _, published, some = await publishing
        await until(lambda: counts[0] >= offered.wanted(active))
        watching.cancel()
        busy.append(processors.used())
        refused += some
        rates.append(round(seconds * options.rate / published))
        seen.append(percentiles(latencies))

    await stretch(options.seconds / 4)
    before = offered.wanted(every) - offered.wanted(active)
    await until(lambda: early[0] >= before)
    stop = offered.sent * options.batch
    for transport in stalled:
        transport.pause_reading()
    await stretch(options.seconds)
    for transport in stalled:
        transport.abort()
    started = time.perf_counter()
    back = listening(broker, range(active, every), str(stop + 1), timed=False)
    await stretch(options.seconds / 4, back)
    ((late, _, others),) = connected
    owed = offered.wanted(every) - offered.wanted(active) - before
    await until(lambda: late[0] >= owed, 90)
    caught = time.perf_counter() - started
    row = {
        "events/s": rates,
        "refused": refused,
        "all read": seen[0],
        "some stopped": seen[1],
        "they catch up": seen[2],
        "processors": busy,
        "memory MB at first, most of each stretch": [
            round(x / 1e6) for x in (memory[0][0], *map(max, memory))
        ],
        "messages of the stalled": late[0],
        "messages owed": owed,
        "seconds to catch up": round(caught, 1),
        "lost": offered.wanted(active) - counts[0] + before - early[0] + owed - late[0],
    }
    for transport in [*readers, *others]:
        transport.close()
    return row


def catch_up(options, broker):
    """One consumer that has seen nothing, after all is published: how fast the log is read for it."""
    source = np.random.default_rng(2)
    with Client(broker.url) as client:
        total = 0
        while total < options.events:
            n = 20_000
            table = pa.table({
                "symbol": [f"S{s}" for s in source.integers(0, SYMBOLS, n).tolist()],
                "price": source.integers(0, PRICES, n),
            })  # fmt: skip
            total = client.publish(table)["last"]
        start = time.perf_counter()
        received = 0
        for message in client.stream("c0", 1, notices=True):
            received += message.kind == "match"
            if message.kind == "caught_up":
                break
        seconds = time.perf_counter() - start
    return {
        "events": total,
        "messages": received,
        "seconds": round(seconds, 2),
        "events/s": round(total / seconds),
    }


def keep(name, options, row):
    """Replace one row of the figures, and write the table anew."""
    try:
        rows = figures.load("broker")["rows"]
    except FileNotFoundError:
        rows = []
    kept = {one["row"]: one for one in rows}
    kept[name] = {"row": name, "offered": options.rate, "seconds": options.seconds, **row}
    command = "python benchmarks/broker.py --row ROW"
    figures.save("broker", command, rows=[kept[known] for known in ROWS if known in kept])
    if len(kept) == len(ROWS):
        figures.write_pages()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", choices=ROWS, help="a row of the table in docs/broker.md")
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--consumers", type=int, default=1_000)
    parser.add_argument("--matches", type=float, default=2.0, help="matches per event")
    parser.add_argument("--rate", type=int, default=100_000, help="events per second")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--stalled", type=int, default=0, help="consumers of these that read nothing")
    parser.add_argument("--prepared", type=Path, help="folder that keeps spaces for later runs")
    parser.add_argument("--arrow", action="store_true")
    parser.add_argument("--catch-up", action="store_true")
    parser.add_argument("--events", type=int, default=2_000_000, help="events of --catch-up")
    parser.add_argument("--print-only", action="store_true", help="keep no figures")
    row_of, _ = parser.parse_known_args()
    parser.set_defaults(**ROWS.get(row_of.row, {}))
    options = parser.parse_args()
    random.seed(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 65_536)), hard))
    with tempfile.TemporaryDirectory() as place:
        sizes = options.subscriptions, options.consumers, options.matches
        prepared = (options.prepared or Path(place)) / "-".join(map(str, sizes))
        symbols, lows, width = prepare(prepared, *sizes)
        if not options.seconds:
            return
        folder = Path(place) / "run"
        shutil.copytree(prepared, folder)
        broker = Broker(folder)
        options.before = broker.memory()
        try:
            if options.catch_up:
                row = catch_up(options, broker)
            else:
                import uvloop

                what = stall if options.stalled else flow
                row = uvloop.run(what(options, broker, symbols, lows, width))
            row["start s"] = round(broker.start_seconds, 1)
        finally:
            broker.stop()
    print(json.dumps(row))
    if options.row and not options.print_only:
        keep(options.row, options, row)


if __name__ == "__main__":
    main()
