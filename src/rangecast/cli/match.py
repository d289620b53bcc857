"""`rangecast match`: which subscriptions does each event of a file match?"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from rangecast.cli.console import OK, REJECTED, bar, options_of, say, say_summary
from rangecast.engine import Index, open_index
from rangecast.errors import OptionError
from rangecast.loading import (
    EventFile,
    FileMatch,
    OutputFile,
    Rejects,
    format_of,
    load_subscriptions,
)
from rangecast.loading.events import EventFiles, PayloadColumns, check_names
from rangecast.loading.files import ROWS_AT_ONCE
from rangecast.loading.ids import named_type
from rangecast.loading.match_file import open_events, write_matches
from rangecast.loading.pairs import CsvPairs, PairWriter, pair_writer
from rangecast.loading.rejected import SHOWN
from rangecast.memory import readable
from rangecast.model.subscriptions import Subscriptions
from rangecast.simd.compiler import compile_seconds, running_seconds
from rangecast.store.store import Store
from rangecast.types.schema import Schema

STDIO = "-"


def available_cores() -> int:
    """How many threads can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def match(
    events: Annotated[
        list[str],
        typer.Option(help="Files of events, or patterns; repeat for more; - is stdin."),
    ],
    schema: Annotated[
        Path | None, typer.Option(help="Schema file (TOML); `rangecast schema infer` makes one.")
    ] = None,
    subscriptions: Annotated[
        str | None,
        typer.Option(help="File of subscriptions with an id and a condition, or bounds; - is stdin."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="Folder or address of a store, instead of the two files."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Version of the store.", show_default="the newest")
    ] = None,
    out: Annotated[str, typer.Option(help="Matches: .csv, .jsonl or .parquet; - is CSV on stdout.")] = STDIO,
    keep: Annotated[
        list[str] | None, typer.Option(help="Column of the events to write too; repeat for more.")
    ] = None,
    payload: Annotated[
        list[str] | None, typer.Option(help="Column of the subscriptions to write too; repeat for more.")
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(help="Name of the index; `rangecast indexes` lists them.", show_default="auto"),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the index, as in on=symbol; repeat for more.")
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
        typer.Option(help="Column of the events' ids.", show_default="id if there is one, or row numbers"),
    ] = None,
    id_type: Annotated[
        str | None,
        typer.Option(help="Type of the events' ids: int64 or string.", show_default="by the first of them"),
    ] = None,
    events_format: Annotated[
        str | None, typer.Option(help="Format of events without a suffix: csv, jsonl or parquet.")
    ] = None,
    subscriptions_format: Annotated[
        str | None, typer.Option(help="Format of subscriptions without a suffix.")
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Delimiter of CSV files; tab for a tab.", show_default="by the header"),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(help="CSV file for rows that were rejected.", show_default="OUT.rejects.csv"),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that cannot be loaded.")
    ] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Order each event's subscriptions by id.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="How many events are matched at once.")] = ROWS_AT_ONCE,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, on stderr if matches go to stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
) -> None:
    """Match files of events against a file of subscriptions, or a store.

    Writes one row per match: event_id, subscription_id, and the columns of --keep and --payload.
    Rows that cannot be loaded are rejected with their reasons and do not stop the others.

    \b
    Example:
      rangecast match --schema schema.toml --subscriptions alerts.csv \\
                      --events trades.parquet --out matches.parquet
      rangecast match --store alerts/ --events 'trades/*.csv' --keep at --out found.csv
      zcat trades.jsonl.gz | rangecast match --schema schema.toml \\
                      --subscriptions alerts.csv --events - --events-format jsonl

    \b
    Exit code: 0 all rows loaded, 1 finished but rows were rejected,
               2 wrong usage or unreadable input (nothing is written).
    """
    if out != STDIO:
        format_of(out)
    given = {"--schema": schema, "--subscriptions": subscriptions}
    _check_sources(store, given | {"--index": index, "--option": option or None}, version)
    check_names(keep or (), payload or ())
    remarks: list[str] = []
    streams = _stdin(events, events_format, subscriptions, subscriptions_format)
    compiled = compile_seconds()
    with contextlib.ExitStack() as stack:
        home = None if store is None else Store.open(store)
        model = Schema.from_toml(str(schema)) if home is None else home.schema
        made = None if home is not None else open_index(index or "auto", model, **options_of(option or []))
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
            stream=streams[0],
            batch=batch,
            keep=tuple(keep or ()),
            delimiter=delimiter,
        )
        stack.callback(flow.close)
        if strict:
            flow.refuse_absent()
        start = loaded = running_seconds()
        if home is not None:
            made = home.index(version, verify=None)
        else:
            subs = read_subscriptions(
                model,
                str(subscriptions),
                aside,
                id=id,
                condition=condition,
                format=subscriptions_format,
                stream=streams[1],
                delimiter=delimiter,
                payload=tuple(payload or ()),
                remark=remarks.append if as_json else say,
            )
            loaded = running_seconds()
            assert made is not None
            made.insert(subs)
        built = running_seconds()
        columns = PayloadColumns(made.subscriptions(), payload) if payload else None
        sink: BinaryIO = target.stream if target is not None else sys.stdout.buffer
        writer = CsvPairs(sink) if out == STDIO else pair_writer(out, sink)
        outcome = match_with_bar(
            made, flow, writer, aside, threads=threads, batch=batch, sort=sort, payload=columns
        )
        sink.flush()
    seconds = {"load": loaded - start, "build": built - loaded, "compile": compile_seconds() - compiled}
    if as_json:
        outcome.remarks[:0] = remarks
        summary = _summary(made, outcome, seconds, aside, None if out == STDIO else out)
        say_summary(summary, on_stdout=out != STDIO)
    else:
        if not quiet:
            _summarise(made, outcome, seconds, None if out == STDIO else out)
        report_rejects(aside)
    raise typer.Exit(REJECTED if len(aside) else OK)


def read_subscriptions(
    schema: Schema, path: str, aside: Rejects, *, remark: Callable[[str], None] = say, **options: Any
) -> Subscriptions:
    """The subscriptions of a file, with a progress bar and a word on columns that are ignored."""
    with bar("subscriptions", None) as progress:
        return load_subscriptions(schema, path, aside, progress=progress.reach, remark=remark, **options)


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


def _summarise(index: Index, outcome: FileMatch, seconds: dict[str, float], out: str | None) -> None:
    stats: dict[str, Any] = index.stats()
    say(
        f"{stats['subscriptions']:,} subscriptions loaded in {seconds['load']:.2f} s; index "
        f"{stats['index']!r} built in {seconds['build']:.2f} s, {readable(stats['bytes'])}, "
        f"{stats['bytes_per_subscription']:,} bytes each"
    )
    spent = max(outcome.match_seconds, 1e-9)
    say(
        f"{outcome.n_events:,} events, {outcome.n_pairs:,} matches in {outcome.seconds:.2f} s, of which "
        f"{outcome.match_seconds:.2f} s matching: {outcome.n_events / spent:,.0f} events/s, "
        f"{outcome.n_pairs / spent:,.0f} matches/s"
    )
    if seconds["compile"] >= 0.1:
        say(f"compiling took {seconds['compile']:.1f} s more, once per machine")
    for remark in outcome.remarks:
        say(remark)
    if out is not None:
        say(f"matches: {out}")


def _summary(
    index: Index, outcome: FileMatch, seconds: dict[str, float], aside: Rejects, out: str | None
) -> dict[str, Any]:
    """The same as data."""
    stats: dict[str, Any] = index.stats()
    taken = seconds | {"match": outcome.match_seconds, "read_match_write": outcome.seconds}
    return {
        "subscriptions": stats["subscriptions"],
        "index": stats["index"],
        "index_bytes": stats["bytes"],
        "events": outcome.n_events,
        "matches": outcome.n_pairs,
        "rejected": aside.counts,
        "rejects": str(aside.path) if aside.path and len(aside) else None,
        "remarks": outcome.remarks,
        "seconds": {name: round(value, 6) for name, value in taken.items()},
        "out": out,
    }


def _check_sources(store: str | None, given: dict[str, Any], version: int | None) -> None:
    """Raise unless there is a store, or a schema and subscriptions, and nothing that is of the other."""
    if store is None:
        for name in ("--schema", "--subscriptions"):
            if given[name] is None:
                raise OptionError(f"match needs {name} FILE, or --store STORE in place of both")
        if version is not None:
            raise OptionError("--version is of a store; give it with --store")
        return
    for name, value in given.items():
        if value is not None:
            raise OptionError(f"match takes --store or {name}, not both: a store has its own")


def _stdin(
    events: list[str], events_format: str | None, subscriptions: str | None, subscriptions_format: str | None
) -> tuple[BinaryIO | None, BinaryIO | None]:
    """Stdin as the stream of events, or of subscriptions."""
    if STDIO in events and (len(events) > 1 or subscriptions == STDIO):
        raise OptionError("--events - is stdin, which cannot be combined with other files")
    for name, piped, form in (
        ("--events", STDIO in events, events_format),
        ("--subscriptions", subscriptions == STDIO, subscriptions_format),
    ):
        if piped and form is None:
            raise OptionError(f"{name} - needs {name}-format csv or jsonl")
    stdin = sys.stdin.buffer
    return stdin if STDIO in events else None, stdin if subscriptions == STDIO else None
