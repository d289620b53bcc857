"""What matching costs on Spark, beside the joins that one would write without rangecast.

    python benchmarks/spark.py                       the full run, a few minutes; prints the page
    python benchmarks/spark.py --quick               small sizes: is all well?
    python benchmarks/spark.py --page docs/performance-spark.md

One session, one set of data: events and rectangles on two attributes. Every contender reads the events
from Parquet and writes its pairs to Parquet, and all must write the same number of pairs.

    contender       what it is
    nested loop     a join on four comparisons, which Spark plans as a nested loop; few events, per event
    grid join       subscriptions exploded over the cells of a grid beforehand (measured apart), an equi-join
                    on the cell, the exact bounds as a filter: what a good Spark engineer would write; the
                    best of several cell sizes counts
    mapInArrow      rs.match
    file mode       rs.match_files
    boundary        mapInArrow that emits as many pairs without matching: what the crossing alone costs

What a worker does in file mode is measured by part too, in this process and without Spark: the rest of what
file mode costs is the job around it. Lists of ids that the JVM explodes were tried for mapInArrow instead of
pairs, and cost no less.

CPU seconds are those of this process, the JVM and all Python workers, so idle waiting and other people's
jobs do not count. Rounds are taken in turns and the best counts. What is prepared once (the grid's
explosion, the snapshot) is measured apart, and so is the start of Python workers: Spark ends those that
were idle for a minute, so a small job before each measurement sees to it that they are there.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

import rangecast as rc
from rangecast import spark as rs
from rangecast import workloads
from rangecast.loading.pairs import Pace, ParquetPairs
from rangecast.papers.measuring import WALL, timed
from rangecast.spark.batch.file_tasks import read_unit
from rangecast.spark.batch.files import units_of
from rangecast.spark.output import Answer, Output
from rangecast.spark.worker import answers, mapped, shaped
from tables import write_page

# some ten matches per event: a side of 64 on a domain of 10,000
RECTANGLES = {"rx": 10_000, "ry": 10_000, "wx": 64, "wy": 64, "alpha": 0.0}
CELLS = (32, 64)
PAIRS = "event_id long, subscription_id long"


class Cpu:
    """CPU seconds of this process and all below it, of those that have ended as well."""

    def __init__(self) -> None:
        self.start = self.now()
        self.wall = WALL()

    @staticmethod
    def now() -> float:
        """CPU seconds up to now."""
        me = psutil.Process()
        total = 0.0
        for process in (me, *me.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            # time of children counts once they have ended and were waited for
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def stop(self) -> tuple[float, float]:
        """CPU and wall seconds since the start."""
        return self.now() - self.start, WALL() - self.wall


def rows_in(folder: Path) -> int:
    """Rows of the Parquet files in a folder."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("part-*.parquet"))


def own_memory() -> int:
    """Bytes of this process that no file backs: what a worker takes beyond the pages that it shares."""
    with open("/proc/self/statm", encoding="ascii") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def prober(tiny: str, path: str, answer: Answer) -> Callable[[Any], Any]:
    """A function for mapInArrow that says how its worker's memory grows with an index: pid, before, after."""

    def probe(batches: Any) -> Any:
        rows = []
        for batch in batches:
            # kernels are loaded and buffers were used before the index comes
            sum(piece.num_rows for piece in answers(mapped(tiny), batch, answer, Pace()))
            before = own_memory()
            sum(piece.num_rows for piece in answers(mapped(path), batch, answer, Pace()))
            rows.append((os.getpid(), before, own_memory()))
        columns = [pa.array(list(column), pa.int64()) for column in zip(*rows, strict=True)]
        if columns:
            yield pa.RecordBatch.from_arrays(columns, ["pid", "before", "after"])

    return probe


def emitter(per_event: int) -> Callable[[Any], Any]:
    """A function for mapInArrow that emits pairs without matching."""

    def emit(batches: Any) -> Any:
        for batch in batches:
            events = np.repeat(batch.column(0).to_numpy(), per_event)
            yield pa.RecordBatch.from_arrays([pa.array(events)] * 2, ["event_id", "subscription_id"])

    return emit


class Bench:
    """The data, the contenders and what was measured."""

    def __init__(self, folder: Path, n_subscriptions: int, n_events: int, index: str, cores: int) -> None:
        self.folder = folder
        self.drawn = workloads.workload("rectangles-wide-domain", n_subscriptions, n_events, **RECTANGLES)
        self.x, self.y = self.drawn.schema.names
        self.n_events = n_events
        self.events_file = folder / "events.parquet"
        columns = {name: pa.array(values) for name, values in self.drawn.columns.items()}
        events = pa.table({"id": pa.array(np.arange(n_events)), **columns})
        pq.write_table(events, self.events_file, row_group_size=max(1, n_events // (4 * cores)))
        few = max(1, n_events // 1000)
        self.few_file = folder / "few.parquet"
        self.n_few = few
        pq.write_table(events.slice(0, few), self.few_file)
        bounds = {f"{n}_low": self.drawn.lows[n] for n in (self.x, self.y)}
        bounds |= {f"{n}_high": self.drawn.highs[n] for n in (self.x, self.y)}
        subs = pa.table({"sid": self.drawn.ids, **bounds})
        self.subs_file = folder / "subscriptions.parquet"
        pq.write_table(subs, self.subs_file, row_group_size=max(1, n_subscriptions // 8))
        self.publish_s, (self.store, self.snapshot) = timed(self.publish, index, clock=WALL)
        loaded = rc.load_index(self.snapshot)
        self.expected = loaded.match(self.drawn.events()).n_pairs
        self.expected_few = loaded.match(self.drawn.events(0, few)).n_pairs
        self.spark = rs.session(f"local[{cores},3]", conf={"spark.ui.enabled": "false"})
        self.spark.conf.set("spark.sql.shuffle.partitions", str(4 * cores))
        self.best: dict[str, tuple[float, float]] = {}
        self.explode_s: dict[int, float] = {}

    def publish(self, index: str) -> tuple[rc.Store, Path]:
        """A store of the subscriptions, and its snapshot."""
        store = rc.Store.open(self.folder / "store", self.drawn.schema, index=index)
        store.insert(self.drawn.subscriptions())
        return store, store.snapshot()

    def frame(self, path: Path) -> Any:
        """A Parquet file as a DataFrame."""
        return self.spark.read.parquet(str(path))

    def out(self, name: str) -> Path:
        """An output folder that is not there."""
        target = self.folder / f"out-{name}"
        shutil.rmtree(target, ignore_errors=True)
        return target

    def explode(self, cell: int) -> None:
        """Subscriptions over the cells of a grid, written beforehand."""
        from pyspark.sql import functions as F

        def cells(name: str) -> Any:
            low, high = F.col(f"{name}_low"), F.col(f"{name}_high")
            return F.explode(F.sequence(F.floor(low / cell), F.floor(high / cell)))

        cpu = Cpu()
        frame = self.frame(self.subs_file).withColumn("cx", cells(self.x)).withColumn("cy", cells(self.y))
        frame.write.mode("overwrite").parquet(str(self.folder / f"grid-{cell}"))
        self.explode_s[cell] = cpu.stop()[0]

    def inside(self, events: Any, subs: Any) -> Any:
        """The exact test of a join."""
        tests = [(events[n] >= subs[f"{n}_low"]) & (events[n] <= subs[f"{n}_high"]) for n in (self.x, self.y)]
        return tests[0] & tests[1]

    def nested_loop(self) -> int:
        """A join on comparisons alone."""
        events, subs = self.frame(self.few_file), self.frame(self.subs_file)
        target = self.out("nested")
        found = events.join(subs, self.inside(events, subs)).select("id", "sid")
        found.write.parquet(str(target))
        return rows_in(target)

    def grid_join(self, cell: int) -> int:
        """An equi-join on the cell, then the exact test."""
        from pyspark.sql import functions as F

        subs = self.frame(self.folder / f"grid-{cell}")
        events = self.frame(self.events_file)
        events = events.withColumn("ex", F.floor(events[self.x] / cell)).withColumn(
            "ey", F.floor(events[self.y] / cell)
        )
        same = (events["ex"] == subs["cx"]) & (events["ey"] == subs["cy"])
        target = self.out(f"grid-{cell}")
        events.join(subs, same & self.inside(events, subs)).select("id", "sid").write.parquet(str(target))
        return rows_in(target)

    def map_in_arrow(self) -> int:
        """rs.match."""
        target = self.out("match")
        rs.match(self.frame(self.events_file), self.store).write.parquet(str(target))
        return rows_in(target)

    def file_mode(self) -> int:
        """rs.match_files."""
        target = self.out("files")
        rs.match_files(self.spark, self.events_file, self.store, target)
        return rows_in(target)

    def boundary(self) -> int:
        """The crossing alone."""
        target = self.out("boundary")
        per_event = max(1, round(self.expected / self.n_events))
        events = self.frame(self.events_file)
        events.mapInArrow(emitter(per_event), PAIRS).write.parquet(str(target))
        return self.expected

    def parts(self, repeat: int) -> dict[str, float]:
        """CPU seconds of what a worker does in file mode, by part: the best of some rounds each."""
        index = mapped(str(self.snapshot))
        answer = Output().answer(self.drawn.schema, textual=False)
        best = dict.fromkeys(("read and encode", "match", "shape", "write"), np.inf)
        for _ in range(repeat):
            spent = dict.fromkeys(best, 0.0)
            for unit in units_of(str(self.events_file), "parquet"):
                spent["read and encode"] -= process_time()
                batches = list(read_unit(unit, index.schema, answer, pa.int64()))
                spent["read and encode"] += process_time()
                spent["match"] -= process_time()
                matches = [index.match(batch.events) for batch in batches]
                found = sum(len(one.ids) for one in matches)
                spent["match"] += process_time()
                spent["shape"] -= process_time()
                both = zip(batches, matches, strict=True)
                pieces = [piece for batch, one in both for piece in shaped(batch.table, one, answer)]
                spent["shape"] += process_time()
                if sum(piece.num_rows for piece in pieces) != found:
                    raise SystemExit("file mode by part: pairs were lost")
                spent["write"] -= process_time()
                writer = ParquetPairs(self.folder / "parts.parquet", group=1 << 18)
                for piece in pieces:
                    writer.write(pa.Table.from_batches([piece]))
                writer.close()
                spent["write"] += process_time()
            best = {name: min(best[name], spent[name]) for name in best}
        return best

    def measure(self, name: str, run: Callable[[], int], expected: int) -> None:
        """One round; the answer's size must be right."""
        self.wake_workers()
        cpu = Cpu()
        pairs = run()
        used, wall = cpu.stop()
        if pairs != expected:
            raise SystemExit(f"{name}: {pairs:,} pairs, but {expected:,} are right")
        before = self.best.get(name, (np.inf, np.inf))
        self.best[name] = min(before[0], used), min(before[1], wall)
        print(f"  {name}: {used:.2f} s CPU, {wall:.2f} s wall", file=sys.stderr)

    def wake_workers(self) -> float:
        """Start the Python workers if they are gone; gives the CPU seconds that took."""
        cpu = Cpu()
        rs.match(self.frame(self.few_file).repartition(4), self.store).count()
        return cpu.stop()[0]

    def worker_memory(self) -> tuple[float, float]:
        """By how much the own memory of a worker grows with the mapped index, and the index's bytes."""
        tiny = self.folder / "tiny.index"
        index = rc.open_index(self.store.kind, self.drawn.schema)
        index.insert(self.drawn.subscriptions().select(np.arange(1000)))
        index.save(tiny)
        answer = Output().answer(self.drawn.schema, textual=False)
        probe = prober(str(tiny), str(self.snapshot), answer)
        seen = self.frame(self.events_file).mapInArrow(probe, "pid long, before long, after long").collect()
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for pid, before, after in seen:
            first[pid] = min(first.get(pid, before), before)
            last[pid] = max(last.get(pid, after), after)
        return float(max(last[pid] - first[pid] for pid in first)), float(os.path.getsize(self.snapshot))


def check_workloads(spark: Any, folder: Path, n: int, m: int) -> list[tuple[str, int]]:
    """Spark's pairs beside the library's, on every workload."""
    from rangecast.cli.workloads import events_table

    seen = []
    for name in workloads.names():
        drawn = workloads.workload(name, n_subscriptions=n, n_events=m)
        index = rc.open_index("scan", drawn.schema)
        index.insert(drawn.subscriptions())
        rows, ids = index.match(drawn.events()).pairs()
        expected = sorted(zip((rows + 1).tolist(), ids.tolist(), strict=True))
        path, out = folder / f"{name}.parquet", folder / f"{name}-out"
        pq.write_table(events_table(drawn), path, row_group_size=max(1, m // 2))
        frame = rs.match(spark.read.parquet(str(path)), drawn.subscriptions()).toArrow()
        rs.match_files(spark, path, drawn.subscriptions(), out)
        files = pa.concat_tables([pq.read_table(p) for p in sorted(out.glob("part-*"))])
        for what, table in (("match", frame), ("match_files", files)):
            got = zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)
            if sorted(got) != expected:
                raise SystemExit(f"{name}: {what} gives other pairs than the library")
        seen.append((name, len(expected)))
        print(f"  {name}: {len(expected):,} pairs equal", file=sys.stderr)
    return seen


def page(
    bench: Bench, grid: int, cold: float, memory: tuple[float, float], checked: list[tuple[str, int]]
) -> str:
    """The figures as Markdown."""
    us = {name: used / bench.n_events * 1e6 for name, (used, _) in bench.best.items()}
    us["nested loop"] = bench.best["nested loop"][0] / bench.n_few * 1e6
    walls = {name: wall for name, (_, wall) in bench.best.items()}
    join = us["grid join"]
    n = bench.drawn.n_subscriptions
    lines = [
        "# Matching on Spark, measured",
        "",
        "This page compares the ways to match on Spark with the joins that you would write otherwise: a "
        "nested loop, and a grid join, which joins by cells. `boundary` is a job that moves the same rows "
        "into Python and back without matching them. `python benchmarks/spark.py --page "
        "docs/performance-spark.md` wrote this page, and the head of that script says how it measures. The "
        "machine was shared, so read the ratios.",
        "",
        f"{bench.n_events:,} events are matched against {n:,} rectangles on two attributes, with the index "
        f"`{rc.load_index(bench.snapshot).name}`; they have {bench.expected:,} pairs, "
        f"{bench.expected / bench.n_events:.1f} per event. All contenders read and write Parquet and find "
        f"equally many pairs. They ran on PySpark {_version()}, Python {platform.python_version()}, "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "| contender | CPU us per event | wall s | times the grid join |",
        "|---|--:|--:|--:|",
    ]
    for name in ("nested loop", "grid join", "mapInArrow", "file mode", "boundary"):
        note = f" ({bench.n_few:,} events)" if name == "nested loop" else ""
        note = f" (cells of {grid})" if name == "grid join" else note
        lines.append(f"| {name}{note} | {us[name]:,.2f} | {walls[name]:.1f} | {join / us[name]:,.3g} |")
    share = us["boundary"] / us["mapInArrow"]
    parts = {name: seconds / bench.n_events * 1e6 for name, seconds in bench.parts(5).items()}
    by_part = ", ".join(f"{name} {each:.2f}" for name, each in parts.items())
    grown, size = memory
    lines += [
        "",
        f"- mapInArrow is {join / us['mapInArrow']:.1f} times and file mode "
        f"{join / us['file mode']:.1f} times cheaper than the grid join; mapInArrow is "
        f"{us['nested loop'] / us['mapInArrow']:,.0f} times cheaper than the nested loop.",
        f"- The boundary (rows into Arrow and back, Parquet on both sides) costs {share:.0%} of what "
        "mapInArrow costs; file mode does not cross it.",
        f"- In file mode, a worker takes {sum(parts.values()):.2f} us per event ({by_part}); the rest is the "
        "job around it.",
        f"- Some work is done once: exploding the grid takes {bench.explode_s[grid]:.1f} s of processor "
        f"time, and the store and its snapshot take {bench.publish_s:.1f} s. The first job of a session, "
        f"which starts the workers, took {cold:.1f} s.",
        f"- The snapshot has {size / 1e6:,.1f} MB. Mapping it and matching raised a worker's private memory "
        f"by at most {grown / 1e6:,.1f} MB, {grown / size:.2f} times that size.",
        f"- On {len(checked)} workloads, `match` and `match_files` gave exactly the library's pairs "
        f"({sum(pairs for _, pairs in checked):,} in all): {', '.join(name for name, _ in checked)}.",
        "",
    ]
    return "\n".join(lines)


def _version() -> str:
    import pyspark

    return pyspark.__version__


def main(
    subscriptions: Annotated[int, typer.Option(help="Rectangles.")] = 1_000_000,
    events: Annotated[int, typer.Option(help="Events.")] = 200_000,
    index: Annotated[str, typer.Option(help="Index of the snapshot.")] = "auto",
    repeat: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 3,
    cores: Annotated[int, typer.Option(help="Cores of the local session.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, one round.")] = False,
    out: Annotated[Path | None, typer.Option("--page", help="Write the page to this file.")] = None,
) -> None:
    """Measure matching on Spark beside joins."""
    if quick:
        subscriptions, events, repeat = 20_000, 4_000, 1
    with tempfile.TemporaryDirectory(prefix="rangecast-bench-") as folder:
        bench = Bench(Path(folder), subscriptions, events, index, cores)
        cold = bench.wake_workers()
        for cell in CELLS:
            bench.explode(cell)
            for _ in range(2):  # the first run compiles
                bench.measure(f"grid join {cell}", lambda cell=cell: bench.grid_join(cell), bench.expected)
        grid = min(CELLS, key=lambda cell: bench.best[f"grid join {cell}"][0])
        rounds: list[tuple[str, Callable[[], int], int]] = [
            ("nested loop", bench.nested_loop, bench.expected_few),
            ("grid join", lambda: bench.grid_join(grid), bench.expected),
            ("mapInArrow", bench.map_in_arrow, bench.expected),
            ("file mode", bench.file_mode, bench.expected),
            ("boundary", bench.boundary, bench.expected),
        ]
        for number in range(repeat + 1):
            print(f"round {number} of {repeat}" if number else "warming up", file=sys.stderr)
            if number == 1:
                bench.best.clear()
            for name, run, expected in rounds:
                bench.measure(name, run, expected)
        memory = bench.worker_memory()
        checked = check_workloads(bench.spark, Path(folder), *((500, 200) if quick else (5_000, 1_000)))
        text = page(bench, grid, cold, memory, checked)
        bench.spark.stop()
    print(text)
    if out is not None:
        write_page(out, "spark.py", text)


if __name__ == "__main__":
    typer.run(main)
