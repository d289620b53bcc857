"""`rangecast match`: which subscriptions does each event of a file match?"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from rangecast.cli.console import OK, REJECTED, options_of, say
from rangecast.cli.loading import load_subscriptions
from rangecast.cli.matching import Outcome, match_stream
from rangecast.cli.streaming import EventStream
from rangecast.engine import Index, open_index
from rangecast.errors import OptionError
from rangecast.loading import PAIR_WRITERS, OutputFile, Rejects, format_of
from rangecast.memory import readable
from rangecast.types.schema import Schema

STDIO = "-"


def available_cores() -> int:
    """How many threads can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def match(
    schema: Annotated[Path, typer.Option(help="Schema file (TOML); `rangecast schema infer` makes one.")],
    subscriptions: Annotated[
        str,
        typer.Option(help="Subscriptions: .csv, .jsonl or .parquet with an id and a condition, or bounds."),
    ],
    events: Annotated[str, typer.Option(help="Events: .csv, .jsonl or .parquet; - is stdin.")],
    out: Annotated[str, typer.Option(help="Matches: .csv, .jsonl or .parquet; - is CSV on stdout.")] = STDIO,
    index: Annotated[str, typer.Option(help="Name of the index; `rangecast indexes` lists them.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the index, such as on=symbol; repeat for more.")
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads that match.", show_default="all cores")
    ] = available_cores(),
    id: Annotated[str, typer.Option(help="Column of the subscriptions' ids.")] = "id",
    condition: Annotated[
        str | None,
        typer.Option(help="Column of the subscriptions' conditions.", show_default="condition, if there"),
    ] = None,
    event_id: Annotated[
        str | None,
        typer.Option(help="Column of the events' ids.", show_default="id, if there; else row numbers"),
    ] = None,
    events_format: Annotated[
        str | None, typer.Option(help="Format of the events where no suffix tells: csv, jsonl or parquet.")
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(help="CSV file for rows that were set aside.", show_default="OUT.rejects.csv"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad row.")] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Order each event's subscriptions by id.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Most events matched at once.")] = 100_000,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
) -> None:
    """Match a file of events against a file of subscriptions.

    Writes one row a match: event, subscription. Rows that cannot be loaded
    are set aside with their reasons and do not stop the others.

    \b
    Example:
      rangecast match --schema schema.toml --subscriptions alerts.csv \\
                      --events trades.parquet --out matches.parquet
      zcat trades.jsonl.gz | rangecast match --schema schema.toml \\
                      --subscriptions alerts.csv --events - --events-format jsonl

    \b
    Exit code: 0 all rows loaded, 1 finished but rows were set aside,
               2 wrong usage or unreadable input (nothing is written).
    """
    form = "csv" if out == STDIO else format_of(out)
    stream = _stdin(events_format) if events == STDIO else None
    model = Schema.from_toml(schema)
    made = open_index(index, model, **options_of(option or []))
    with contextlib.ExitStack() as stack:
        # opened before anything is loaded: a name that cannot be should not cost an hour first
        target = None if out == STDIO else stack.enter_context(OutputFile(out))
        beside = None if target is None else rejects_beside(target.path)
        aside = stack.enter_context(Rejects(rejects or beside, strict))
        flow = EventStream(
            model, events, aside, event_id=event_id, format=events_format, stream=stream, batch=batch
        )
        stack.callback(flow.close)
        start = time.perf_counter()
        subs = load_subscriptions(model, subscriptions, aside, id=id, condition=condition)
        loaded = time.perf_counter()
        made.insert(subs)
        built = time.perf_counter()
        sink: BinaryIO = target.stream if target is not None else sys.stdout.buffer
        outcome = match_stream(made, flow, PAIR_WRITERS[form](sink), threads=threads, batch=batch, sort=sort)
        sink.flush()
    if not quiet:
        _summarise(made, outcome, flow, loaded - start, built - loaded, None if out == STDIO else out)
    report_rejects(aside)
    raise typer.Exit(REJECTED if len(aside) else OK)


def rejects_beside(out: Path) -> Path:
    """Where the side file of an output goes.

    >>> str(rejects_beside(Path("out/matches.parquet")))
    'out/matches.rejects.csv'
    """
    return out.with_name(f"{out.stem}.rejects.csv")


def report_rejects(aside: Rejects) -> None:
    """Say how many rows were set aside, the first of them, and where the rest is."""
    if not len(aside):
        return
    counts = " and ".join(f"{n:,} of the {name}" for name, n in aside.counts.items())
    place = f"all in {aside.path}" if aside.path else "--rejects FILE lists all"
    say(f"set aside: {counts} ({place})")
    for rejected in aside.first:
        say(f"  {rejected}")
    if len(aside) > len(aside.first):
        say(f"  and {len(aside) - len(aside.first):,} more")


def _summarise(
    index: Index, outcome: Outcome, flow: EventStream, load: float, build: float, out: str | None
) -> None:
    stats: dict[str, Any] = index.stats()
    say(
        f"{stats['subscriptions']:,} subscriptions loaded in {load:.2f} s; index {stats['index']!r} built in "
        f"{build:.2f} s, {readable(stats['bytes'])}, {stats['bytes_per_subscription']:,} bytes each"
    )
    seconds = max(outcome.match_seconds, 1e-9)
    say(
        f"{outcome.n_events:,} events, {outcome.n_pairs:,} matches in {outcome.seconds:.2f} s, of which "
        f"{outcome.match_seconds:.2f} s matching: {outcome.n_events / seconds:,.0f} events/s, "
        f"{outcome.n_pairs / seconds:,.0f} matches/s"
    )
    if outcome.n_events and flow.absent:
        say(f"no event has a value for: {', '.join(flow.absent)}")
    if out is not None:
        say(f"matches: {out}")


def _stdin(format: str | None) -> BinaryIO:
    if format is None:
        raise OptionError("--events - needs --events-format csv or jsonl")
    return sys.stdin.buffer
