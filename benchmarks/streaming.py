"""What it costs a stream that subscriptions change while it runs, and how soon it sees them.

    python benchmarks/streaming.py                        the full run, some fifteen minutes; prints the page
    python benchmarks/streaming.py --quick                small sizes: is all well?
    python benchmarks/streaming.py --docs docs/performance-streaming.md

A million rectangles on two attributes in a store; a folder with a file of events for each core arrives for
each micro-batch, as soon as the one before is done. Both ways are measured: `match_stream` (A) and the source
with Spark's Parquet sink (B).

    batch time    spans without changes and spans in which a process of its own replaces 1 % of the
                  subscriptions per second, in turns; medians over all micro-batches, and their ratio
    memory        the own memory (what no other process shares) of the Python workers over 200
                  micro-batches with changes all the time; the last quarter beside the second
    how soon      a subscription that matches every event is inserted while the stream runs; how many
                  micro-batches after the one under way it takes until its matches are there

The pairs of micro-batches are counted, a sample of them, since each needs an index of its own: they must be
as many as the library finds with the version that the micro-batch was pinned to.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

import rangecast as rc
from rangecast import spark as rs
from rangecast import workloads
from rangecast.papers.measuring import WALL, timed
from tables import write_page

# some ten matches per event, as in spark.py
RECTANGLES = {"rx": 10_000, "ry": 10_000, "wx": 64, "wy": 64, "alpha": 0.0}
CHANGES_PER_SECOND = 5
FILES = 8
WAYS = {"A": "match_stream", "B": "the source"}


def churn(folder: Path, n: int, share: float) -> None:
    """Replace a share of the subscriptions each second, until told to stop or killed."""
    store = rc.Store.open(folder / "store")
    drawn = workloads.workload("rectangles-wide-domain", n, 1, seed=77, **RECTANGLES)
    lows = np.stack([drawn.lows[name] for name in store.schema.names], axis=1)
    highs = np.stack([drawn.highs[name] for name in store.schema.names], axis=1)
    rng = np.random.default_rng(5)
    size = max(1, round(n * share / CHANGES_PER_SECOND))
    due = time.monotonic()
    while True:
        if (folder / "changing").exists():
            ids, rows = rng.choice(n, size, replace=False) + 1, rng.integers(0, n, size)
            store.insert(rc.Subscriptions.from_arrays(store.schema, ids, lows[rows], highs[rows]))
            with (folder / "changed").open("a") as file:
                file.write(f"{time.time()} {size}\n")
        due = max(due + 1 / CHANGES_PER_SECOND, time.monotonic() - 1)
        time.sleep(max(0.0, due - time.monotonic()))


class Stream:
    """One stream, fed file by file."""

    def __init__(self, bench: Bench, way: str) -> None:
        self.bench, self.way = bench, way
        self.place = bench.folder / f"way-{way}-{time.monotonic_ns()}"
        self.events, self.out, self.check = (self.place / name for name in ("events", "out", "check"))
        self.events.mkdir(parents=True)
        self.fed = 0
        self.seconds: dict[int, float] = {}
        spark, store = bench.spark, str(bench.store.path)
        if way == "A":
            fields = spark.read.parquet(str(bench.files[0] / "0.parquet")).schema
            reader = spark.readStream.schema(fields).option("recursiveFileLookup", "true")
            files = reader.option("maxFilesPerTrigger", bench.cores).parquet(str(self.events))
            self.query = rs.match_stream(files, store, out=self.out, checkpoint=self.check)
        else:
            reader = spark.readStream.format("rangecast").schema("event_id long, subscription_id long")
            options = {"store": store, "events": str(self.events), "maxFilesPerBatch": bench.cores}
            writer = reader.options(**options).load().writeStream.format("parquet")
            places = {"path": str(self.out), "checkpointLocation": str(self.check)}
            self.query = writer.options(**places).start()

    def wait(self, batch: int) -> None:
        """Until a micro-batch is whole."""
        commit, looks = self.check / "commits" / str(batch), 0
        while not commit.exists():
            looks += 1
            if looks % 50 == 0 and not self.query.isActive:
                raise SystemExit(f"{self.way}: the stream has ended: {self.query.exception()}")
            time.sleep(0.01)

    def put(self) -> None:
        """Let the events of one micro-batch arrive, all at once."""
        scratch = self.events / f"_{self.fed:06}"
        shutil.copytree(self.bench.files[self.fed % FILES], scratch, copy_function=shutil.copyfile)
        scratch.rename(self.events / f"{self.fed:06}")
        self.fed += 1

    def step(self) -> float:
        """The events of one micro-batch, and wait until it is whole; seconds from one to the other."""
        number = self.fed

        def whole() -> None:
            self.put()
            self.wait(number)

        self.seconds[number], _ = timed(whole, clock=WALL)
        return self.seconds[number]

    def version(self, batch: int) -> int:
        """The version that a micro-batch was pinned to."""
        if self.way == "A":
            return next(c.version for c in rs.committed(self.out) if c.batch == batch)
        return int(json.loads((self.check / "offsets" / str(batch)).read_text().splitlines()[-1])["version"])

    def pairs(self, batch: int) -> pa.Table:
        """What a micro-batch gave."""
        if self.way == "A":
            files = sorted((self.out / f"batch_id={batch}").glob("*.parquet"))
        else:
            before = range(max(0, batch - 10), batch) if batch % 10 == 9 else ()
            files = sorted(self._entered(batch).difference(*(self._entered(b) for b in before)))
        tables = [pq.ParquetFile(path).read(["event_id", "subscription_id"]) for path in files]
        return pa.concat_tables(tables) if tables else None

    def _entered(self, batch: int) -> set[Path]:
        """The files of a micro-batch in the log of Spark's sink; every tenth has all up to it."""
        log = self.out / "_spark_metadata"
        if batch % 10 == 9:
            lines = (log / f"{batch}.compact").read_text().splitlines()[1:]
        else:
            lines = (log / str(batch)).read_text().splitlines()[1:]
        return {Path(json.loads(line)["path"].removeprefix("file://")) for line in lines}

    def verify(self, batch: int) -> int:
        """Whether a micro-batch has as many pairs as the library finds; gives the number."""
        found = self.pairs(batch)
        n = len(found) if found is not None else 0
        table = pq.read_table(self.bench.files[batch % FILES])
        index = self.bench.store.index(self.version(batch))
        expected = index.match(rc.Events.from_arrow(index.schema, table.drop_columns(["id"]))).n_pairs
        if n != expected:
            raise SystemExit(f"{self.way}: batch {batch} has {n:,} pairs, but {expected:,} are right")
        return n

    def stop(self) -> None:
        self.query.stop()
        self.query.awaitTermination(60)


class Bench:
    """The data, the session and what was measured."""

    def __init__(self, folder: Path, n: int, m: int, cores: int, share: float) -> None:
        self.folder, self.n, self.m, self.share, self.cores = folder, n, m, share, cores
        drawn = workloads.workload("rectangles-wide-domain", n, FILES * m, **RECTANGLES)
        self.files = [folder / f"files-{number}" for number in range(FILES)]
        columns = {name: pa.array(values) for name, values in drawn.columns.items()}
        events = pa.table({"id": pa.array(np.arange(FILES * m)), **columns})
        for number, place in enumerate(self.files):
            place.mkdir()
            for core, rows in enumerate(np.array_split(np.arange(m) + number * m, cores)):
                pq.write_table(events.slice(rows[0], len(rows)), place / f"{core}.parquet")
        self.store = rc.Store.open(folder / "store", drawn.schema)
        self.store.insert(drawn.subscriptions())
        self.store.snapshot()
        conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(cores)}
        # the check looks at the offsets of all micro-batches
        conf["spark.sql.streaming.minBatchesToRetain"] = "100000"
        self.spark = rs.session(f"local[{cores},3]", conf=conf)
        self.spark.sparkContext.setLogLevel("ERROR")
        rs.register_source(self.spark)
        command = [sys.executable, __file__, "--role", str(folder), "--subscriptions", str(n)]
        self.changer = subprocess.Popen([*command, "--share", str(share)])

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Subscriptions change meanwhile."""
        (self.folder / "changing").touch()
        try:
            yield
        finally:
            (self.folder / "changing").unlink()

    def rate(self, since: float) -> float:
        """The share of the subscriptions that was changed per second since a time."""
        rows = [line.split() for line in (self.folder / "changed").read_text().splitlines()]
        sizes = [int(size) for at, size in rows if float(at) >= since]
        return sum(sizes) / self.n / (time.time() - since)

    def workers(self) -> dict[int, int]:
        """The own memory of each Python worker, in bytes."""
        found = {}
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                parent = process.parent()
                if parent and all("pyspark.daemon" in " ".join(p.cmdline()) for p in (process, parent)):
                    found[process.pid] = process.memory_full_info().uss
        return found

    def cpu(self) -> float:
        """CPU seconds of the session so far: this process, the JVM and the workers, not the changer."""
        me, total = psutil.Process(), 0.0
        for process in (me, *me.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                if process.pid != self.changer.pid:
                    times = process.cpu_times()
                    total += times.user + times.system + times.children_user + times.children_system
        return total

    def close(self) -> None:
        self.changer.kill()
        self.changer.wait()
        self.spark.stop()


def batch_time(bench: Bench, way: str, spans: int, batches: int) -> dict[str, Any]:
    """Micro-batches without and with changes, in turns."""
    stream = Stream(bench, way)
    for _ in range(8):  # workers start, kernels load, Java compiles
        stream.step()
    seconds: dict[str, list[float]] = {"quiet": [], "changing": []}
    cpu = {"quiet": 0.0, "changing": 0.0}
    rates, pairs = [], 0
    for span in range(spans):
        before = bench.cpu()
        seconds["quiet"] += [stream.step() for _ in range(batches)]
        cpu["quiet"] += bench.cpu() - before
        with bench.changing():
            began = time.time()
            stream.step()  # the first has no changes behind it
            before = bench.cpu()
            seconds["changing"] += [stream.step() for _ in range(batches)]
            cpu["changing"] += bench.cpu() - before
            rates.append(bench.rate(began))
        stream.step()
        pairs += stream.verify(stream.fed - 2)
        print(f"  {way} span {span}: " + _shown(seconds), file=sys.stderr)
    stream.stop()
    quiet, changing = (statistics.median(seconds[name]) for name in ("quiet", "changing"))
    best = {name: min(values) for name, values in seconds.items()}
    return {
        "quiet": quiet,
        "events": bench.m,
        "changing": changing,
        "ratio": changing / quiet,
        "ratio of best": best["changing"] / best["quiet"],
        "cpu": cpu["quiet"] / len(seconds["quiet"]),
        "cpu ratio": cpu["changing"] / cpu["quiet"],
        "rate": statistics.mean(rates),
        "batches": len(seconds["quiet"]) + len(seconds["changing"]),
        "pairs checked": pairs,
    }


def _shown(seconds: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {statistics.median(values):.3f} s" for name, values in seconds.items())


def memory(bench: Bench, way: str, batches: int) -> dict[str, Any]:
    """The workers' own memory over many micro-batches with changes all the time."""
    stream = Stream(bench, way)
    seen: list[int] = []
    with bench.changing():
        began = time.time()
        for number in range(batches):
            stream.step()
            found = bench.workers()
            seen.append(max(found.values()) if found else 0)
            if number % 20 == 19:
                print(
                    f"  {way} batch {number + 1}: {seen[-1] / 1e6:.0f} MB, {len(found)} workers",
                    file=sys.stderr,
                )
        rate = bench.rate(began)
    pairs = stream.verify(batches - 1)
    stream.stop()
    quarter = batches // 4
    early, late = statistics.median(seen[quarter : 2 * quarter]), statistics.median(seen[-quarter:])
    return {
        "batches": batches,
        "events": bench.m,
        "early": early,
        "late": late,
        "growth": late / early,
        "most": max(seen),
        "rate": rate,
        "seconds": time.time() - began,
        "versions": stream.version(batches - 1) - stream.version(0),
        "pairs checked": pairs,
    }


def how_soon(bench: Bench, way: str, times: int) -> list[int]:
    """Micro-batches after the one under way until an inserted subscription is matched."""
    stream = Stream(bench, way)
    rng = np.random.default_rng(3)
    for _ in range(3):
        stream.step()
    schema = bench.store.schema
    x, y = schema.names
    waits: list[tuple[int, int]] = []
    for number in range(times):
        # files arrive all the time, so that some micro-batch is under way
        for _ in range(3):
            stream.put()
        time.sleep(rng.uniform(0, 0.5))
        id = 10 * bench.n + number
        bench.store.insert(rc.Subscriptions.parse(schema, {id: f"{x} >= 0 and {y} >= 0"}))
        offsets = stream.check / "offsets"
        under_way = max(int(p.name) for p in offsets.glob("[0-9]*") if p.name.isdigit())
        waits.append((id, under_way))
        stream.wait(stream.fed - 1)
        stream.step()
    stream.stop()
    found: list[int] = []
    for id, under_way in waits:
        batch = under_way
        while id not in set(stream.pairs(batch)["subscription_id"].to_pylist()):
            batch += 1
        found.append(batch - under_way)
    bench.store.delete([id for id, _ in waits])
    return found


def page(bench: Bench, found: dict[str, dict[str, Any]]) -> str:
    """The figures as Markdown."""
    import pyspark

    lines = [
        "# Streams, measured",
        "",
        "This page shows how long a micro-batch takes and how much memory the workers need while "
        "subscriptions change, and how soon a new subscription is matched. `python benchmarks/streaming.py "
        "--spans 3 --docs docs/performance-streaming.md` wrote it, and the head of that script says how it "
        "measures. The machine was shared, so read the ratios.",
        "",
        f"The subscriptions are {bench.n:,} rectangles on two attributes, of which {bench.share:.0%} are to "
        f"be replaced per second, in {CHANGES_PER_SECOND} changes. A micro-batch has {bench.cores} tasks. "
        f"It ran on PySpark {pyspark.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "## Batch time with changes and without",
        "",
        "A time lasts from the arrival of the files to the commit of their micro-batch. The table has the "
        "medians and their ratio, and then the ratios of the fastest micro-batches and of the processor "
        "time of the JVM and the Python workers.",
        "",
        "| | events | without changes | with changes | ratio | of the best | of CPU | changed per second "
        "| batches |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for way, words in WAYS.items():
        if "time" in found.get(way, {}):
            r = found[way]["time"]
            lines.append(
                f"| {words} | {r['events']:,} | {r['quiet'] * 1000:.0f} ms | {r['changing'] * 1000:.0f} ms | "
                f"{r['ratio']:.2f} | {r['ratio of best']:.2f} | {r['cpu ratio']:.2f} | {r['rate']:.1%} | "
                f"{r['batches']} |"
            )
    lines += [
        "",
        "## Memory of the workers",
        "",
        "The table shows the private memory of the largest Python worker after each micro-batch, with "
        "changes all the time, as the median over the second quarter of the micro-batches and over the "
        "last quarter.",
        "",
        "| | batches | events each | versions | changed per second | second quarter | last quarter | growth "
        "| most |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for way, words in WAYS.items():
        if "memory" in found.get(way, {}):
            r = found[way]["memory"]
            lines.append(
                f"| {words} | {r['batches']} | {r['events']:,} | {r['versions']:,} | {r['rate']:.1%} | "
                f"{r['early'] / 1e6:.0f} MB | {r['late'] / 1e6:.0f} MB | {r['growth']:.2f} | "
                f"{r['most'] / 1e6:.0f} MB |"
            )
    lines += ["", "## How soon a new subscription is matched", ""]
    for way, words in WAYS.items():
        if "soon" in found.get(way, {}):
            soon = found[way]["soon"]
            lines.append(
                f"- {words}: {len(soon)} subscriptions were inserted while micro-batches ran. Each was "
                f"matched by the micro-batch number {max(soon)} after the running one at the latest (on "
                f"average {statistics.mean(soon):.2f})."
            )
    measured = [r[what] for r in found.values() for what in ("time", "memory") if what in r]
    checked = sum(r["pairs checked"] for r in measured)
    lines += [
        "",
        f"The {checked:,} pairs of sampled micro-batches are exactly those that the library finds.",
        "",
    ]
    return "\n".join(lines)


def main(
    subscriptions: Annotated[int, typer.Option(help="Rectangles.")] = 1_000_000,
    events: Annotated[int, typer.Option(help="Events of a micro-batch.")] = 50_000,
    share: Annotated[float, typer.Option(help="Share of the subscriptions to change per second.")] = 0.01,
    spans: Annotated[int, typer.Option(help="Spans without and with changes, in turns.")] = 5,
    length: Annotated[int, typer.Option(help="Micro-batches of a span.")] = 15,
    batches: Annotated[int, typer.Option(help="Micro-batches for memory.")] = 200,
    inserts: Annotated[int, typer.Option(help="Subscriptions to add for how soon.")] = 10,
    cores: Annotated[int, typer.Option(help="Cores of the local session.")] = 2,
    ways: Annotated[str, typer.Option(help="A, B or both.")] = "A,B",
    parts: Annotated[str, typer.Option(help="What to measure.")] = "time,soon,memory",
    figures: Annotated[
        Path | None, typer.Option("--json", help="Keep figures here, with those of before.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes.")] = False,
    out: Annotated[Path | None, typer.Option("--docs", help="Write the page to this file.")] = None,
    role: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure streams while subscriptions change."""
    if role is not None:
        churn(role, subscriptions, share)
    if quick:
        subscriptions, events, spans, length, batches, inserts = 20_000, 2_000, 2, 3, 12, 2
    with tempfile.TemporaryDirectory(prefix="rangecast-bench-") as folder:
        bench = Bench(Path(folder), subscriptions, events, cores, share)
        found: dict[str, dict[str, Any]] = {}
        if figures is not None and figures.exists():
            found = json.loads(figures.read_text())
        measures: dict[str, Callable[[str], Any]] = {
            "time": lambda way: batch_time(bench, way, spans, length),
            "soon": lambda way: how_soon(bench, way, inserts),
            "memory": lambda way: memory(bench, way, batches),
        }
        try:
            for way in ways.split(","):
                for part in parts.split(","):
                    found.setdefault(way, {})[part] = measures[part](way)
                    if figures is not None:
                        figures.write_text(json.dumps(found, indent=1))
        finally:
            bench.close()
        text = page(bench, found)
    print(text)
    if out is not None:
        write_page(out, "streaming.py", text)


if __name__ == "__main__":
    typer.run(main)
