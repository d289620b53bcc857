"""`rangecast match`: which subscriptions does each event of a file match?"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from rangecast.cli.console import OK, REJECTED, bar, options_of, say
from rangecast.engine import Index, open_index
from rangecast.errors import OptionError
from rangecast.loading import (
    PAIR_WRITERS,
    EventFile,
    FileMatch,
    OutputFile,
    Rejects,
    format_of,
    load_subscriptions,
)
from rangecast.loading.batches import ROWS_AT_ONCE
from rangecast.loading.ids import named_type
from rangecast.loading.match_file import open_events, write_matches
from rangecast.loading.pairs import PairWriter
from rangecast.loading.rejected import SHOWN
from rangecast.loading.several_files import EventFiles
from rangecast.memory import readable
from rangecast.model.subscriptions import Subscriptions
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
    events: Annotated[
        list[str],
        typer.Option(help="Events: .csv, .jsonl or .parquet, or a pattern; repeat for more; - is stdin."),
    ],
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
    id_type: Annotated[
        str | None,
        typer.Option(help="Type of the events' ids: int64 or string.", show_default="by the first of them"),
    ] = None,
    events_format: Annotated[
        str | None, typer.Option(help="Format of the events where no suffix tells: csv, jsonl or parquet.")
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(help="CSV file for rows that were rejected.", show_default="OUT.rejects.csv"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad row.")] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Order each event's subscriptions by id.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Most events matched at once.")] = ROWS_AT_ONCE,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
) -> None:
    """Match a file of events against a file of subscriptions.

    Writes one row per match: event_id, subscription_id. Rows that cannot be loaded
    are rejected with their reasons and do not stop the others.

    \b
    Example:
      rangecast match --schema schema.toml --subscriptions alerts.csv \\
                      --events trades.parquet --out matches.parquet
      zcat trades.jsonl.gz | rangecast match --schema schema.toml \\
                      --subscriptions alerts.csv --events - --events-format jsonl

    \b
    Exit code: 0 all rows loaded, 1 finished but rows were rejected,
               2 wrong usage or unreadable input (nothing is written).
    """
    form = "csv" if out == STDIO else format_of(out)
    if STDIO in events and len(events) > 1:
        raise OptionError("--events - is stdin, which cannot be read beside other files")
    stream = _stdin(events_format) if STDIO in events else None
    model = Schema.from_toml(schema)
    made = open_index(index, model, **options_of(option or []))
    with contextlib.ExitStack() as stack:
        # opened before anything is loaded: a name that cannot be should not cost an hour first
        target = None if out == STDIO else stack.enter_context(OutputFile(out))
        beside = None if target is None else rejects_beside(target.path)
        aside = stack.enter_context(Rejects(rejects or beside, strict=strict, most=SHOWN))
        flow = open_events(
            model,
            events,
            event_id=event_id,
            id_type=named_type(id_type),
            format=events_format,
            stream=stream,
            batch=batch,
        )
        stack.callback(flow.close)
        if strict:
            flow.refuse_absent()
        start = time.perf_counter()
        subs = read_subscriptions(model, subscriptions, aside, id=id, condition=condition)
        loaded = time.perf_counter()
        made.insert(subs)
        built = time.perf_counter()
        sink: BinaryIO = target.stream if target is not None else sys.stdout.buffer
        writer = PAIR_WRITERS[form](sink)
        outcome = match_with_bar(made, flow, writer, aside, threads=threads, batch=batch, sort=sort)
        sink.flush()
    if not quiet:
        _summarise(made, outcome, loaded - start, built - loaded, None if out == STDIO else out)
    report_rejects(aside)
    raise typer.Exit(REJECTED if len(aside) else OK)


def read_subscriptions(schema: Schema, path: str, aside: Rejects, **options: Any) -> Subscriptions:
    """The subscriptions of a file, with a progress bar and a word on columns that are ignored."""
    with bar("subscriptions", None) as progress:
        return load_subscriptions(schema, path, aside, progress=progress.reach, remark=say, **options)


def match_with_bar(
    index: Index, events: EventFile | EventFiles, writer: PairWriter, aside: Rejects, **options: Any
) -> FileMatch:
    """Match a file of events with a progress bar."""
    with bar("events", events.size) as progress:

        def show(position: int, done: FileMatch) -> None:
            progress.move(position, f"{done.n_events:,} events, {done.n_pairs:,} matches")

        return write_matches(index, events, writer, aside, progress=show, **options)


def rejects_beside(out: Path) -> Path:
    """Where the side file of an output goes.

    >>> str(rejects_beside(Path("out/matches.parquet")))
    'out/matches.rejects.csv'
    """
    return out.with_name(f"{out.stem}.rejects.csv")


def report_rejects(aside: Rejects) -> None:
    """Say how many rows were rejected, the first of them, and where the rest is."""
    if not len(aside):
        return
    counts = " and ".join(f"{n:,} of {name}" for name, n in aside.counts.items())
    place = f"all in {aside.path}" if aside.path else "--rejects FILE lists all"
    say(f"rejected: {counts} ({place})")
    for rejected in aside.first[:SHOWN]:
        say(f"  {rejected}")
    if len(aside) > SHOWN:
        say(f"  and {len(aside) - SHOWN:,} more")


def _summarise(index: Index, outcome: FileMatch, load: float, build: float, out: str | None) -> None:
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
    for remark in outcome.remarks:
        say(remark)
    if out is not None:
        say(f"matches: {out}")


def _stdin(format: str | None) -> BinaryIO:
    if format is None:
        raise OptionError("--events - needs --events-format csv or jsonl")
    return sys.stdin.buffer
