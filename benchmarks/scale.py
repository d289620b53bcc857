"""More subscriptions than a process should hold: ingest, stripes and matching, with the memory of each.

    python benchmarks/scale.py                              20 million subscriptions, some minutes
    python benchmarks/scale.py --subscriptions 200000 --events 50000 --stripes 4     is all well?

Rectangles of random place on two attributes, as wide as makes about `--matches` matches per event whatever
their number. Files of bounds are written by a process of its own; then, in one local session:

    ingest     rs.ingest(..., stripes=N): rows by id, parsed in the workers, fragments of one version, stripes
               built by the workers
    match      rs.match of events against the stripes, matches counted
    whole      with `--whole`: the same events against one index of everything, for comparison

CPU seconds are those of the driver, the JVM and all Python workers. Memory is the peak that the system has
seen of each process (VmHWM): of the Python driver, of the JVM, which is driver and executor at once in a
local session, and of the largest Python worker, mapped files included. A sample of the events is matched by
comparing it with every rectangle, and the pairs must be the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

import rangecast as rc
from measure import resident
from rangecast import spark as rs
from rangecast.memory import readable
from rangecast.papers.measuring import WALL
from rangecast.spark.stripes import newest_stripes

DOMAIN = 1_000_000
AT_ONCE = 500_000
SAMPLE = 40
SCHEMA = {"x": rc.Int("x", 0, DOMAIN - 1), "y": rc.Int("y", 0, DOMAIN - 1)}


def side_for(n: int, matches: float) -> int:
    """The side of squares of which about so many hold a point."""
    return max(1, round(DOMAIN * (matches / n) ** 0.5))


def rectangles(first: int, n: int, side: int) -> dict[str, npt.NDArray[np.int64]]:
    """Some of the rectangles, by their ids: the same whoever asks."""
    draw = np.random.default_rng([11, first])
    x, y = (draw.integers(0, DOMAIN - side, n) for _ in range(2))
    ids = np.arange(first, first + n)
    return {"id": ids, "x_low": x, "x_high": x + side - 1, "y_low": y, "y_high": y + side - 1}


def write_files(folder: Path, n: int, side: int, n_events: int) -> None:
    """The files of subscriptions and of events."""
    (folder / "subscriptions").mkdir()
    (folder / "events").mkdir()
    for first in range(0, n, AT_ONCE):
        some = rectangles(first, min(AT_ONCE, n - first), side)
        pq.write_table(pa.table(some), folder / "subscriptions" / f"{first:012}.parquet")
    for first in range(0, n_events, AT_ONCE):
        m = min(AT_ONCE, n_events - first)
        draw = np.random.default_rng([12, first])
        columns = {"id": np.arange(first, first + m), "x": draw.integers(0, DOMAIN, m)}
        columns["y"] = draw.integers(0, DOMAIN, m)
        pq.write_table(pa.table(columns), folder / "events" / f"{first:012}.parquet")


class Watch:
    """CPU seconds and peaks of memory of this process and all below it, looked at five times per second."""

    def __init__(self) -> None:
        self.cpu: dict[tuple[int, float], float] = {}
        self.peaks: dict[tuple[int, float], tuple[str, int]] = {}
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def _look_on(self) -> None:
        while True:
            self.look()
            time.sleep(0.2)

    def look(self) -> None:
        """Take in what there is now."""
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            try:
                key = process.pid, process.create_time()
                times = process.cpu_times()
                self.cpu[key] = times.user + times.system
                peak = resident("VmHWM", f"/proc/{process.pid}/status") or 0
                kind = "driver" if process.pid == me.pid else process.name()
                self.peaks[key] = "worker" if kind.startswith("python") else kind, peak
            except (psutil.Error, OSError):
                continue

    def seconds(self) -> float:
        """CPU seconds up to now."""
        self.look()
        return sum(self.cpu.values())

    def peak(self, kind: str) -> int:
        """The largest peak of a kind of process."""
        self.look()
        return max((peak for name, peak in self.peaks.values() if name == kind), default=0)


def step(watch: Watch, name: str, n: int, what: str, work: Any) -> Any:
    """Do something and say what it took."""
    cpu, wall = watch.seconds(), WALL()
    result = work()
    cpu, wall = watch.seconds() - cpu, WALL() - wall
    print(f"| {name} | {n:,} {what} | {wall:.1f} | {cpu:.1f} | {1e6 * cpu / n:.2f} |", flush=True)
    return result


def check(pairs: set[tuple[int, int]], folder: Path, n: int, side: int) -> int:
    """Compare the pairs of the first events with all rectangles; gives how many they have."""
    table = pq.read_table(folder / "events" / f"{0:012}.parquet").slice(0, SAMPLE)
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    right = set()
    for first in range(0, n, AT_ONCE):
        some = rectangles(first, min(AT_ONCE, n - first), side)
        for event in range(len(x)):
            inside = (some["x_low"] <= x[event]) & (x[event] <= some["x_high"])
            inside &= (some["y_low"] <= y[event]) & (y[event] <= some["y_high"])
            right |= {(event, id) for id in some["id"][inside].tolist()}
    if pairs != right:
        raise SystemExit(f"wrong: {len(pairs - right)} pairs too many, {len(right - pairs)} missing")
    return len(right)


def main(
    subscriptions: Annotated[int, typer.Option(help="How many.")] = 20_000_000,
    events: Annotated[int, typer.Option(help="How many.")] = 1_000_000,
    stripes: Annotated[int, typer.Option(help="How many.")] = 16,
    matches: Annotated[float, typer.Option(help="Matches per event, about.")] = 10.0,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2,3]",
    memory: Annotated[str, typer.Option(help="Heap of the JVM.")] = "1g",
    whole: Annotated[bool, typer.Option(help="Also match against one index of everything.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where files go; a temporary one unless told.")] = None,
    files_only: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Ingest, cut and match; prints a table."""
    side = side_for(subscriptions, matches)
    if files_only:
        assert folder is not None
        write_files(folder, subscriptions, side, events)
        return
    place = Path(tempfile.mkdtemp(prefix="rangecast-scale-", dir=folder))
    try:
        asked = ["--subscriptions", str(subscriptions), "--events", str(events), "--matches", str(matches)]
        command = [sys.executable, __file__, *asked, "--folder", str(place), "--files-only"]
        subprocess.run(command, check=True)
        run(place, subscriptions, events, stripes, side, master, memory, whole)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run(
    place: Path, n: int, n_events: int, stripes: int, side: int, master: str, memory: str, whole: bool
) -> None:
    """The measurements."""
    watch = Watch()
    conf = {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "64",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(place / "spark"),
    }
    spark = rs.session(master, conf=conf)
    schema = rc.Schema(*SCHEMA.values())
    warm = place / "warm"
    rs.ingest(spark.range(1000).selectExpr("id", "id x_low", "id x_high"), schema, warm, stripes=2)
    given = spark.read.parquet(str(place / "events"))
    rs.match(given.limit(1000), warm).count()
    print("| step | of | wall s | CPU s | us each |\n|---|---|---|---|---|")
    rows = spark.read.parquet(str(place / "subscriptions"))
    store = rc.Store.open(place / "store", schema)
    report = step(
        watch, "ingest", n, "subscriptions", lambda: rs.ingest(rows, schema, store, stripes=stripes)
    )
    if (report.accepted, report.rejected_rows) != (n, 0) or store.snapshots():
        raise SystemExit(f"wrong: {report}")
    after_ingest = {kind: watch.peak(kind) for kind in ("driver", "java", "worker")}
    files = newest_stripes(store, report.version)
    assert files is not None
    pairs = step(
        watch,
        "match in stripes",
        n_events,
        "events",
        lambda: rs.match(given, store, form="counts").groupBy().sum("matches").collect()[0][0],
    )
    some = rs.match(given.where(f"id < {SAMPLE}"), store).collect()
    checked = check({(row[0], row[1]) for row in some}, place, n, side)
    if whole:
        store.snapshot()
        same = step(
            watch,
            "match whole",
            n_events,
            "events",
            lambda: (
                rs.match(given, store, form="counts", mode="whole").groupBy().sum("matches").collect()[0][0]
            ),
        )
        if same != pairs:
            raise SystemExit(f"wrong: {pairs} pairs in stripes, {same} in one index")
    print(f"\n{pairs:,} pairs, {pairs / n_events:.1f} per event")
    print(f"the {checked} pairs of {SAMPLE} events are those that a comparison with all rectangles gives")
    print("ingest, wall:", ", ".join(f"{name} {taken:.1f} s" for name, taken in report.seconds.items()))
    print(
        f"log and fragments {readable(store.log_bytes())}: {store.log_bytes() / n:.1f} bytes per subscription"
    )
    print(f"{files.cuts.n} stripes of {readable(files.n_bytes / files.cuts.n)}, ", end="")
    print(f"{files.n_bytes / n:.1f} bytes per subscription; {files.cuts.copies:.3f} copies of each box")
    for kind, word in (("driver", "Python driver"), ("java", "JVM"), ("worker", "largest Python worker")):
        last = readable(watch.peak(kind))
        print(f"peak of the {word}: {readable(after_ingest[kind])} after ingest, {last} at last")
    spark.stop()


if __name__ == "__main__":
    typer.run(main)
