"""`rangecast demo`: alerts on trades, from generated files to matches in Parquet.

On Spark it is the pipeline of demo_spark.py; in process (--no-spark) each step is a function and takes
what the one before it left: generate, ingest, build, match, report.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from rangecast.commands.console import print_table, say
from rangecast.commands.demo_spark import run_pipeline
from rangecast.commands.generate import bounds_table, conditions_table, events_table, write_table
from rangecast.commands.loading import load_subscriptions
from rangecast.commands.match import available_cores, rejects_beside, report_rejects
from rangecast.commands.matching import Outcome, match_stream
from rangecast.commands.streaming import EventStream
from rangecast.files import PAIR_WRITERS, OutputFile, Rejects
from rangecast.indexes import Index, open_index
from rangecast.schema import Schema
from rangecast.subscriptions import Subscriptions
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
    purpose: they are set aside with their reasons and stop nothing.

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
    """Load both files, setting aside what cannot be loaded."""
    return [load_subscriptions(schema, str(path), aside) for path in (files.texts, files.bounds)]


def build(schema: Schema, parts: list[Subscriptions]) -> Index:
    """Put the subscriptions into an index."""
    index = open_index(INDEX, schema, **OPTIONS)
    for part in parts:
        index.insert(part)
    return index


def match(index: Index, schema: Schema, files: Files, aside: Rejects, threads: int) -> Outcome:
    """Match the events batch by batch and write the pairs."""
    flow = EventStream(schema, str(files.events), aside)
    with contextlib.closing(flow), OutputFile(files.matches) as target:
        writer = PAIR_WRITERS["parquet"](target.stream)
        return match_stream(index, flow, writer, threads=threads, batch=100_000)


def report(index: Index, outcome: Outcome, ingested: float, built: float, threads: int) -> None:
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
