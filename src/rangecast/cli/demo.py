"""`rangecast demo`: alerts on a day's trades (demo_market.py), from generated files to matches in Parquet.

On Spark it is the pipeline: ingest, publish, match_files. In process (--no-spark) each step is a function and
takes what the one before it left. Both end in a table, a picture (demo_picture.py) and what to try next.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from rangecast.cli.console import print_table, say
from rangecast.cli.demo_market import SCHEMA, Market, draw_market
from rangecast.cli.demo_picture import HEADER, busiest, draw_day, example
from rangecast.cli.match import (
    available_cores,
    match_with_bar,
    read_subscriptions,
    rejects_beside,
    report_rejects,
)
from rangecast.cli.spark import start_session
from rangecast.cli.workloads import write_table
from rangecast.compile_clock import running_seconds
from rangecast.engine import Index, open_index
from rangecast.errors import SetupError, extra_hint
from rangecast.loading import PAIR_WRITERS, EventFile, FileMatch, OutputFile, Rejects
from rangecast.memory import readable
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.store import Store
from rangecast.types.schema import Schema

# What people type; each becomes a row with its reason in the side file.
BROKEN = ("price above 10", "price < ", "prize > 5", "symbol = IBM", "change between 0.2 and 0.1")
_TAIL = 20
# for a session of seconds: no page, and Java compiles quickly rather than well, which halves its start
_BRIEF = ("spark.ui.enabled=false", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")
_T = TypeVar("_T")


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
    subscriptions: Annotated[int, typer.Option(min=2, help="Number of alerts.")] = 200_000,
    events: Annotated[int, typer.Option(min=1, help="Number of trades.")] = 1_000_000,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo-output"),
    threads: Annotated[
        int, typer.Option(min=1, help="Threads that match.", show_default="all cores")
    ] = available_cores(),
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Use a local Spark, or only this process.")
    ] = True,
) -> None:
    """Match a day of made-up trades against price alerts: a table, a picture, and how fast it was.

    On Spark the alerts are ingested into a store, a snapshot is published, and workers match the trades
    in files. With --no-spark this process does everything.

    Half of the alerts are conditions in text and half are bounds in columns. A few texts are broken on
    purpose: they are rejected with their reasons and stop nothing.

    \b
    Example:
      rangecast demo --subscriptions 20000 --events 100000
    """
    if spark and importlib.util.find_spec("pyspark") is None:
        raise SetupError(
            f"the demo on Spark needs PySpark: {extra_hint('spark')}, or run rangecast demo --no-spark"
        )
    out.mkdir(parents=True, exist_ok=True)
    files = Files.under(out)
    said = f"drawing {subscriptions:,} alerts and {events:,} trades"
    home = out / "store" if spark else None
    if home is not None:
        say(f"{said} while Spark starts")
        drawing = partial(generate, files, subscriptions, events)
        with quiet_spark(out / "spark.log", drawing, _BRIEF) as started:
            rs, session, market = started
            pairs = run_pipeline(rs, session, files, home, out)
    else:
        say(said)
        market = generate(files, subscriptions, events)
        pairs = run_here(Schema.from_toml(files.schema), files, threads)
    found = np.asarray(pairs["event_id"]) - 1, np.asarray(pairs["subscription_id"]) - 1
    say()
    print_table(HEADER, busiest(market, *found), numbers=True)
    picture = out / "day.png"
    if draw_day(market, *found, picture):
        say(f"\na picture of the busiest symbol's day: {picture}")
    else:
        say(f"no picture: it needs Matplotlib; {extra_hint('bench')}")
    suggest(market, found, files, home)


def generate(files: Files, n_subscriptions: int, n_events: int) -> Market:
    """Draw the day and write it, with a few broken texts among the others."""
    market = draw_market(n_subscriptions, n_events)
    half = n_subscriptions // 2
    broken = pa.table({"id": range(-len(BROKEN), 0), "condition": BROKEN})
    files.schema.write_text(SCHEMA.to_toml(), encoding="utf-8")
    write_table(pa.concat_tables([market.conditions(0, half), broken]), files.texts)
    write_table(market.bounds.slice(half), files.bounds)
    write_table(market.trades, files.events)
    return market


def run_here(schema: Schema, files: Files, threads: int) -> pa.Table:
    """All steps in this process."""
    with Rejects(rejects_beside(files.matches)) as aside:
        say("ingesting the alerts: half of them texts, half of them bounds")
        start = running_seconds()
        parts = ingest(schema, files, aside)
        ingested = running_seconds() - start
        say("building the index")
        start = running_seconds()
        index = build(schema, parts)
        built = running_seconds() - start
        say("matching the trades")
        outcome = match(index, schema, files, aside, threads)
    report(index, outcome, ingested, built, threads)
    report_rejects(aside)
    say(f"matches: {files.matches}; the input is beside it")
    return pq.read_table(files.matches)


def ingest(schema: Schema, files: Files, aside: Rejects) -> list[Subscriptions]:
    """Load both files, rejecting what cannot be loaded."""
    return [read_subscriptions(schema, str(path), aside) for path in (files.texts, files.bounds)]


def build(schema: Schema, parts: list[Subscriptions]) -> Index:
    """Put the subscriptions into an index."""
    index = open_index("auto", schema)
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
        ["alerts", f"{stats['subscriptions']:,}"],
        ["ingested in", f"{ingested:.2f} s"],
        [f"index {stats['index']!r} built in", f"{built:.2f} s"],
        ["bytes per alert", f"{stats['bytes_per_subscription']:,}"],
        ["trades", f"{outcome.n_events:,}"],
        ["notifications", f"{outcome.n_pairs:,}"],
        [f"matched in ({threads} threads)", f"{outcome.match_seconds:.2f} s"],
        ["read, matched and written in", f"{outcome.seconds:.2f} s"],
        ["trades per second", f"{outcome.n_events / seconds:,.0f}"],
    ]
    print_table(["", ""], rows)
    typer.echo()


def run_pipeline(rs: Any, spark: Any, files: Files, home: Path, out: Path) -> pa.Table:
    """Ingest the files of alerts into a store, match the trades against it, say what was done."""
    schema, matches = Schema.from_toml(files.schema), out / "matches"
    shutil.rmtree(home, ignore_errors=True)
    store = Store.open(home, schema)
    ingested = []
    for path in (files.texts, files.bounds):
        say(f"ingesting {path.name} into the store")
        # absolute: the JVM has a working folder of its own
        frame = spark.read.parquet(str(path.absolute()))
        ingested.append(rs.ingest(frame, schema, store, publish=path == files.bounds))
    say("matching the trades, in files")
    done = rs.match_files(spark, files.events, store, matches, overwrite=True)
    rejected = [
        f"alert {row.id}: {row.reason.splitlines()[0]}"
        for step in ingested
        if step.rejected_rows and step.rejected is not None
        for row in step.rejected.collect()
    ]
    steps: dict[str, float] = {}
    for step in ingested:
        for name, seconds in step.seconds.items():
            steps[name] = steps.get(name, 0.0) + seconds
    seconds = sum(done.seconds.values())
    pairs = pa.concat_tables(pq.read_table(path) for path in sorted(matches.glob("part-*.parquet")))
    matched = len(np.unique(np.asarray(pairs["event_id"])))
    parts = ", ".join(f"{name} {taken:.1f}" for name, taken in steps.items())
    rows = [
        ["alerts", f"{done.subscriptions:,} (and {len(rejected):,} rejected)"],
        ["ingested and published in", f"{sum(steps.values()):.1f} s ({parts})"],
        ["snapshot", f"version {done.version}, {readable(done.index_bytes or 0)}"],
        ["trades", f"{done.rows:,} in {done.files} pieces"],
        ["trades that fire an alert", f"{matched:,} ({matched / max(done.rows or 1, 1):.1%})"],
        ["notifications", f"{done.pairs:,}"],
        ["read, matched and written in", f"{seconds:.1f} s"],
        ["trades per second", f"{(done.rows or 0) / seconds:,.0f}"],
    ]
    print_table(["", ""], rows)
    typer.echo()
    for line in rejected:
        say(f"rejected: {line}")
    say(f"matches: {matches}; store: {home}; Spark's log: {out / 'spark.log'}")
    return pairs


@contextmanager
def quiet_spark(
    log: Path, meanwhile: Callable[[], _T], conf: Sequence[str] = ()
) -> Iterator[tuple[Any, Any, _T]]:
    """A Spark session whose processes write to a log, and not on the terminal; a failure shows its end.

    Something else is done in a thread while it starts: gives the module, the session, and what that gave.
    """
    with open(log, "wb") as file, _stderr_into(file.fileno()), ThreadPoolExecutor(1) as pool:
        other = pool.submit(meanwhile)
        spark = start_session(None, conf)
        try:
            made = other.result()
        except BaseException:
            spark.stop()
            raise
    from rangecast import spark as rs

    try:
        yield rs, spark, made
    except BaseException:
        for line in log.read_text(errors="replace").splitlines()[-_TAIL:]:
            say(line)
        raise
    finally:
        spark.stop()


@contextmanager
def _stderr_into(target: int) -> Iterator[None]:
    """Have processes that start in the block inherit another stderr."""
    before = os.dup(2)
    os.dup2(target, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def suggest(
    market: Market,
    found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    files: Files,
    home: Path | None,
) -> None:
    """Say which three commands to try next."""
    name = called_name()
    say()
    say("to try next:")
    source = (
        f"--store {home}" if home is not None else f"--schema {files.schema} --subscriptions {files.bounds}"
    )
    if home is not None and len(found[0]):
        alert, event = example(market, *found)
        say(f"  {name} explain {source} --id {alert} --event '{json.dumps(event)}'")
        say(f"  {name} store list {home} --limit 5")
    else:
        say(f"  {name} schema show {files.schema}")
        say(f"  {name} demo   # the same on Spark, with a store")
    say(f"  {name} match {source} --events {files.events} --keep symbol --keep price --out found.csv")


def called_name() -> str:
    """What to type for `rangecast`: the path by which it was called, if the shell does not find the name."""
    called = sys.argv[0]
    by_path = os.sep in called and Path(called).name == "rangecast" and shutil.which("rangecast") is None
    return called if by_path else "rangecast"
