"""`rangecast demo`: alerts on trades, from generated files to matches in Parquet.

On Spark it is the pipeline below; in process (--no-spark) each step is a function and takes
what the one before it left: generate, ingest, build, match, report.

The demo's pipeline on Spark: ingest, publish, match_files, a summary and a plot of match counts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from rangecast.cli.console import print_table, say
from rangecast.cli.generate import bounds_table, conditions_table, events_table, write_table
from rangecast.cli.match import (
    available_cores,
    match_with_bar,
    read_subscriptions,
    rejects_beside,
    report_rejects,
)
from rangecast.engine import Index, open_index
from rangecast.errors import SetupError
from rangecast.loading import PAIR_WRITERS, EventFile, FileMatch, OutputFile, Rejects
from rangecast.memory import readable
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.store import Store
from rangecast.types.schema import Schema
from rangecast.workloads import workload

WORKLOAD = "stock-alerts"
INDEX: str = "auto"
OPTIONS: dict[str, Any] = {}
# What people type; each becomes a row with its reason in the side file.
BROKEN = ("price above 10", "price < ", "prize > 5", "symbol = IBM", "change between 0.2 and 0.1")


@dataclass(frozen=True)
class Files:
    """Where the demo keeps what it makes."""

    schema: Path
    texts: Path
    bounds: Path
    events: Path
    matches: Path

    @classmethod
    def under(cls, folder: Path) -> Files:
        """The files in a folder."""
        names = ("schema.toml", "alerts-text.parquet", "alerts-bounds.parquet", "trades.parquet")
        return cls(*(folder / name for name in (*names, "matches.parquet")))


def demo(
    subscriptions: Annotated[int, typer.Option(min=2, help="How many alerts.")] = 200_000,
    events: Annotated[int, typer.Option(min=1, help="How many trades.")] = 1_000_000,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo-output"),
    threads: Annotated[
        int, typer.Option(min=1, help="Threads that match.", show_default="all cores")
    ] = available_cores(),
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="The pipeline on local Spark, or in this process.")
    ] = True,
) -> None:
    """Generate stock alerts and trades, match them, write Parquet and say how fast it was.

    On Spark the alerts are ingested into a store, a snapshot is published, and workers match the trades
    in files; a plot shows how many matches events have. With --no-spark this process does it alone.

    Half of the alerts are conditions in text and half are bounds in columns. A few texts are broken on
    purpose: they are rejected with their reasons and stop nothing.

    \b
    Example:
      rangecast demo --subscriptions 20000 --events 100000
    """
    out.mkdir(parents=True, exist_ok=True)
    files = Files.under(out)
    say(f"generating {subscriptions:,} alerts and {events:,} trades")
    generate(files, subscriptions, events)
    schema = Schema.from_toml(files.schema)
    if spark:
        run_pipeline(schema, [files.texts, files.bounds], files.events, out, INDEX, OPTIONS)
        return
    with Rejects(rejects_beside(files.matches)) as aside:
        say("ingesting the alerts: half of them texts, half of them bounds")
        start = time.perf_counter()
        parts = ingest(schema, files, aside)
        ingested = time.perf_counter() - start
        say(f"building the index {INDEX!r}")
        start = time.perf_counter()
        index = build(schema, parts)
        built = time.perf_counter() - start
        say("matching the trades")
        outcome = match(index, schema, files, aside, threads)
    report(index, outcome, ingested, built, threads)
    report_rejects(aside)
    say(f"matches: {files.matches}; the input is beside it")


def generate(files: Files, n_subscriptions: int, n_events: int) -> None:
    """Draw the workload and write it, with a few broken texts among the others."""
    drawn = workload(WORKLOAD, n_subscriptions, n_events)
    half = n_subscriptions // 2
    broken = pa.table({"id": range(-len(BROKEN), 0), "condition": BROKEN})
    files.schema.write_text(drawn.schema.to_toml(), encoding="utf-8")
    write_table(pa.concat_tables([conditions_table(drawn, 0, half), broken]), files.texts)
    write_table(bounds_table(drawn, half), files.bounds)
    write_table(events_table(drawn), files.events)


def ingest(schema: Schema, files: Files, aside: Rejects) -> list[Subscriptions]:
    """Load both files, rejecting what cannot be loaded."""
    return [read_subscriptions(schema, str(path), aside) for path in (files.texts, files.bounds)]


def build(schema: Schema, parts: list[Subscriptions]) -> Index:
    """Put the subscriptions into an index."""
    index = open_index(INDEX, schema, **OPTIONS)
    for part in parts:
        index.insert(part)
    return index


def match(index: Index, schema: Schema, files: Files, aside: Rejects, threads: int) -> FileMatch:
    """Match the events batch by batch and write the pairs."""
    with EventFile(schema, str(files.events)) as events, OutputFile(files.matches) as target:
        writer = PAIR_WRITERS["parquet"](target.stream)
        return match_with_bar(index, events, writer, aside, threads=threads)


def report(index: Index, outcome: FileMatch, ingested: float, built: float, threads: int) -> None:
    """Print what was done, as a short table."""
    stats = index.stats()
    seconds = max(outcome.match_seconds, 1e-9)
    rows = [
        ["subscriptions", f"{stats['subscriptions']:,}"],
        ["ingested in", f"{ingested:.2f} s"],
        [f"index {stats['index']!r} built in", f"{built:.2f} s"],
        ["bytes per subscription", f"{stats['bytes_per_subscription']:,}"],
        ["events", f"{outcome.n_events:,}"],
        ["matches", f"{outcome.n_pairs:,}"],
        [f"matched in ({threads} threads)", f"{outcome.match_seconds:.2f} s"],
        ["read, matched and written in", f"{outcome.seconds:.2f} s"],
        ["events/s", f"{outcome.n_events / seconds:,.0f}"],
        ["matches/s", f"{outcome.n_pairs / seconds:,.0f}"],
    ]
    print_table(["", ""], rows)


def run_pipeline(
    schema: Schema, alerts: Sequence[Path], trades: Path, out: Path, index: str, options: Mapping[str, Any]
) -> None:
    """Ingest the files of alerts into a store, match the trades against it, say what was done."""
    try:
        from rangecast import spark as rs
    except ImportError as error:
        raise SetupError(f"{error}; or run the demo with --no-spark") from None
    home, matches = out / "store", out / "matches"
    shutil.rmtree(home, ignore_errors=True)
    say("starting Spark")
    spark = rs.session(app="rangecast demo")
    store = Store.open(home, schema, index=index, options=options)
    ingested = []
    for path in alerts:
        say(f"ingesting {path.name} into the store")
        # absolute: the JVM has a working folder of its own
        frame = spark.read.parquet(str(path.absolute()))
        ingested.append(rs.ingest(frame, schema, store, publish=path == alerts[-1]))
    say("matching the trades, in files")
    report = rs.match_files(spark, trades, store, matches, overwrite=True)
    counts = match_counts(matches, report.rows or 0)
    steps: dict[str, float] = {}
    for step in ingested:
        for name, seconds in step.seconds.items():
            steps[name] = steps.get(name, 0.0) + seconds
    seconds = sum(report.seconds.values())
    rejected = sum(step.rejected_rows or 0 for step in ingested)
    parts = ", ".join(f"{name} {taken:.1f}" for name, taken in steps.items())
    rows = [
        ["subscriptions", f"{report.subscriptions:,} (and {rejected:,} rejected)"],
        ["ingested and published in", f"{sum(steps.values()):.1f} s ({parts})"],
        ["snapshot", f"version {report.version}, {readable(report.index_bytes or 0)}"],
        ["events", f"{report.rows:,} in {report.files} pieces"],
        ["matches", f"{report.pairs:,}"],
        ["matches of an event", f"{counts.mean():.2f} on average, {counts.max(initial=0):,} at most"],
        ["events without a match", f"{np.count_nonzero(counts == 0):,}"],
        ["read, matched and written in", f"{seconds:.1f} s"],
        ["events/s", f"{(report.rows or 0) / seconds:,.0f}"],
        ["matches/s", f"{(report.pairs or 0) / seconds:,.0f}"],
    ]
    print_table(["", ""], rows)
    for step in ingested:
        if step.rejected_rows and step.rejected is not None:
            for row in step.rejected.collect():
                say(f"rejected: alert {row.id}: {row.reason.splitlines()[0]}")
    spark.stop()
    draw_counts(counts, out / "match-counts.png")
    say(f"matches: {matches}; the store: {home}")


def match_counts(matches: Path, n_events: int) -> npt.NDArray[np.int64]:
    """How many matches each event has; events are numbered from 1."""
    counts = np.zeros(n_events, np.int64)
    for path in sorted(matches.glob("part-*.parquet")):
        events = pq.read_table(path, columns=["event_id"])["event_id"].to_numpy()
        counts += np.bincount(events - 1, minlength=n_events)
    return counts


def draw_counts(counts: npt.NDArray[np.int64], path: Path) -> None:
    """Plot how many events have how many matches."""
    try:
        import matplotlib as mpl
    except ImportError:
        say("no plot: it needs Matplotlib, pip install 'rangecast[bench]'")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawing, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    most = max(int(counts.max(initial=0)), 1)
    edges = np.unique(np.round(np.geomspace(1, most + 1, 40)).astype(np.int64))
    axes.hist(counts[counts > 0], bins=edges.tolist(), color="tab:blue")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(
        title=f"Matches of {len(counts):,} events ({np.count_nonzero(counts == 0):,} have none)",
        xlabel="matches of an event",
        ylabel="events",
    )
    axes.grid(True, alpha=0.3)
    drawing.savefig(path, dpi=120)
    plt.close(drawing)
    say(f"match counts: {path}")
