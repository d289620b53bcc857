"""`rangecast spark`: the pipeline on Spark from the command line. PySpark is imported when a command runs."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, bar, live_table, print_table, say
from rangecast.durable.bucket import local_place
from rangecast.errors import OptionError, SetupError, StorageError
from rangecast.loading import RejectedRow
from rangecast.memory import readable
from rangecast.store.store import Store
from rangecast.types.schema import Schema

app = typer.Typer(
    no_args_is_help=True,
    help="Match on Spark: ingest subscriptions, match files and streams of events, reduce by covering.",
)

StoreOption = Annotated[
    str, typer.Option("--store", metavar="STORE", help="Folder or address (s3://...) of the store.")
]
Master = Annotated[
    str | None, typer.Option(help="Spark master, or sc://HOST:PORT for Connect.", show_default="local[*,3]")
]
Conf = Annotated[list[str] | None, typer.Option(help="Spark setting, as in 'k=v'; repeat for more.")]
_SHOWN = 5


@app.command()
def ingest(
    subscriptions: Annotated[
        list[str], typer.Argument(help="Files, folders or patterns: .csv, .jsonl or .parquet.")
    ],
    store: StoreOption,
    schema: Annotated[
        Path | None, typer.Option(help="Schema file (TOML); needed when the store is made.")
    ] = None,
    id: Annotated[str, typer.Option(help="Column of ids.")] = "id",
    condition: Annotated[
        str | None, typer.Option(help="Column of conditions.", show_default="condition, or else bounds")
    ] = None,
    sequence: Annotated[
        str | None, typer.Option(help="Column that orders rows of one id; the largest wins.")
    ] = None,
    op: Annotated[str | None, typer.Option(help="Column that says upsert or delete.")] = None,
    payload: Annotated[
        list[str] | None, typer.Option(help="Column to keep with the subscriptions; repeat for more.")
    ] = None,
    expires_column: Annotated[
        str | None, typer.Option(help="Column that says when each subscription expires.", show_default="none")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet.", show_default="by suffix")
    ] = None,
    stripes: Annotated[
        int | None,
        typer.Option(min=2, help="Let the workers build this many stripes.", show_default="one snapshot"),
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Load subscriptions into a store as one version and publish its snapshot, or stripes of it.

    Rows that cannot be loaded are rejected with their reasons, in the store's folder `rejected`.

    \b
    Example:
      rangecast spark ingest alerts/*.parquet --store store/ --schema schema.toml
      rangecast spark ingest alerts.csv --store store/ --payload owner --expires-column until
    """
    from rangecast.spark.batch.files import list_files

    files = list_files(subscriptions)
    model = Schema.from_toml(schema) if schema is not None else None
    home = Store.open(store, model)
    spark = start_session(master, conf)
    from rangecast.spark import ingest as run
    from rangecast.spark.ingest import read_subscriptions

    columns: dict[str, Any] = {"id": id, "condition": condition, "sequence": sequence, "op": op}
    columns |= {"payload": payload or [], "expires": expires_column}
    frame = read_subscriptions(spark, files, home.schema, format=format, **columns)
    say(f"ingesting {len(files):,} files into {home.path}")
    report = run(frame, model, home, stripes=stripes, **columns)
    say(str(report))
    raise typer.Exit(_show_rejected(report))


@app.command()
def match(
    events: Annotated[
        list[str], typer.Argument(help="Files, folders or patterns: .csv, .jsonl or .parquet.")
    ],
    store: StoreOption,
    out: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Folder or address for the matches; a run that broke off is continued.",
        ),
    ],
    event_id: Annotated[str, typer.Option(help="Column of the events' ids.")] = "id",
    keep: Annotated[list[str] | None, typer.Option(help="Column to keep; repeat for more.")] = None,
    form: Annotated[str, typer.Option(help="pairs, lists or counts.")] = "pairs",
    outer: Annotated[bool, typer.Option("--outer", help="Keep events without a match.")] = False,
    absent: Annotated[
        list[str] | None,
        typer.Option(help="Attribute without a column, missing in all events; repeat for more."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Version of the store.", show_default="the newest")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet.", show_default="by suffix")
    ] = None,
    id_type: Annotated[
        str | None,
        typer.Option(help="Type of the events' ids: int64 or string.", show_default="by the first of them"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Match files of events against a store and write Parquet.

    Workers read, match and write the files themselves. A second call with the same arguments does only the
    missing part.

    \b
    Example:
      rangecast spark match 'trades/*.parquet' --store store/ --out matches/
    """
    home = Store.open(store)
    spark = start_session(master, conf)
    from rangecast.spark import Output, match_files

    output = Output(
        event_id=event_id, keep=keep or (), form=form, outer=outer, absent=absent or (), id_type=id_type
    )
    with bar("matching", None) as progress:
        report = match_files(
            spark,
            events,
            home,
            out,
            output,
            version=version,
            format=format,
            overwrite=overwrite,
            progress=lambda done, units: progress.move(done, f"{done} of {units}"),
        )
    rows: list[list[Any]] = [
        ["version", report.version],
        ["subscriptions", f"{report.subscriptions:,}"],
        ["events", f"{report.rows:,}"],
        ["matches", f"{report.pairs:,}"],
        ["files", f"{report.files:,} ({report.skipped:,} done before)"],
        ["seconds", f"{sum(report.seconds.values()):.1f}"],
        ["matches in", report.out],
    ]
    print_table(["", ""], rows)
    raise typer.Exit(_show_rejected(report))


@app.command()
def reduce(
    subscriptions: Annotated[
        list[str], typer.Argument(help="Files, folders or patterns: .csv, .jsonl or .parquet.")
    ],
    schema: Annotated[Path, typer.Option(help="Schema file (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder for pairs/, kept/ and rejected/.")],
    id: Annotated[str, typer.Option(help="Column of ids.")] = "id",
    condition: Annotated[
        str | None, typer.Option(help="Column of conditions.", show_default="condition, or else bounds")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Share of the search space that may be left out.")] = 0.0,
    partitions: Annotated[
        int | None, typer.Option(help="How many parts are first reduced separately.", show_default="by size")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet.", show_default="by suffix")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Find the subscriptions that others cover and write Parquet.

    `pairs` says which subscription covers which, `kept` has the ids of those that no other covers.

    \b
    Example:
      rangecast spark reduce 'alerts/*.parquet' --schema schema.toml --out reduced/
    """
    from rangecast.spark.batch.files import list_files

    files = list_files(subscriptions)
    model = Schema.from_toml(schema)
    out = Path(local_place(out, "--out"))
    if out.exists() and not overwrite:
        raise OptionError(f"--out must be a folder that is not there yet, got {out}; or say --overwrite")
    spark = start_session(master, conf)
    from rangecast.spark import reduce as run
    from rangecast.spark.ingest import read_subscriptions

    frame = read_subscriptions(spark, files, model, id=id, condition=condition, format=format)
    say(f"reducing the subscriptions of {len(files):,} files")
    found = run(frame, model, id=id, condition=condition, epsilon=epsilon, partitions=partitions)
    for name in ("pairs", "kept", "rejected"):
        getattr(found, name).write.mode("overwrite").parquet(str((out / name).absolute()))
    rows: list[list[Any]] = [
        ["subscriptions", f"{found.accepted:,}"],
        ["covered", f"{found.n_covered:,}"],
        ["kept", f"{found.n_kept:,}"],
        ["seconds", f"{sum(found.seconds.values()):.1f}"],
        ["written to", out],
    ]
    print_table(["", ""], rows)
    raise typer.Exit(_show_rejected(found))


@app.command()
def doctor(
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="STORE", help="Folder or address of the store to look for."),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks ask; at least one per slot.")] = 8,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Ask the workers of a cluster which machine they are on and whether they can do what matching needs.

    Prints a row for each worker process and a sentence for each problem; the exit code is 1 if there are any.

    \b
    Example:
      rangecast spark doctor --master spark://10.0.0.1:7077 --store /shared/alerts
    """
    home = None if store is None else Store.open(store)
    spark = start_session(master, conf)
    from rangecast.spark.doctor import examine

    found = examine(spark, home, tasks)
    spark.stop()
    header = ["host", "process", "user", "python", "rangecast", "free", "sees store", "writes"]
    rows = [
        [w.host, w.pid, w.user, w.python, w.rangecast, readable(w.free_bytes), w.sees_store, w.writes]
        for w in found.workers
    ]
    print_table(header, rows)
    for trouble in found.troubles:
        say(trouble)
    say(f"{len(found.workers)} workers, {len(found.troubles)} troubles")
    raise typer.Exit(REJECTED if found.troubles else OK)


def start_session(master: str | None, conf: Sequence[str] | None) -> Any:
    """The session that --master and --conf ask for."""
    try:
        from rangecast.spark import session
    except ImportError as error:
        raise SetupError(str(error)) from None
    settings = {}
    for item in conf or ():
        key, equals, value = item.partition("=")
        if not equals or not key.startswith("spark."):
            raise OptionError(f"--conf takes spark.KEY=VALUE, got {item!r}")
        settings[key] = value
    say("starting Spark")
    if master is not None and master.startswith("sc://"):
        return session(remote=master, conf=settings)
    return session(master, conf=settings)


def _show_rejected(report: Any) -> int:
    if not report.rejected_rows:
        return OK
    say(f"rejected: {report.rejected_rows:,}")
    for row in report.rejected.limit(_SHOWN).collect():
        say(f"  {RejectedRow(**row.asDict())}")
    return REJECTED


# `rangecast spark stream`: match files as they arrive, until it is told to stop; and look at a stream.
#
# SIGTERM and Ctrl-C end it after the batch that runs; a second one ends it at once. Either way nothing is
# lost or doubled: what was not finished is run again by the next start with the same checkpoint.

_LOOK_SECONDS = 0.25
_LAST_WORDS_SECONDS = 5.0
_OWN_ERROR = re.compile(r"^rangecast\.errors\.\w+: (.*)$", re.MULTILINE)


@app.command()
def stream(
    out: Annotated[
        str,
        typer.Option(
            help="Folder or address (s3://...) for the matches, a folder batch_id=N for each micro-batch."
        ),
    ],
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="STORE", help="Folder or address (s3://...) of the store."),
    ] = None,
    events: Annotated[Path | None, typer.Option(help="Folder in which files of events arrive.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Folder for the state of the stream.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Match what is there now, then stop.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show the state of the stream that writes to --out.")
    ] = False,
    event_id: Annotated[str, typer.Option(help="Column of the events' ids.")] = "id",
    keep: Annotated[list[str] | None, typer.Option(help="Column to keep; repeat for more.")] = None,
    form: Annotated[str, typer.Option(help="pairs, lists or counts.")] = "pairs",
    absent: Annotated[
        list[str] | None,
        typer.Option(help="Attribute without a column, missing in all events; repeat for more."),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet.", show_default="by suffix of the first file")
    ] = None,
    id_type: Annotated[
        str | None,
        typer.Option(help="Type of the events' ids: int64 or string.", show_default="by the first file"),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Column of the events' time: match each against the subscriptions of its time."),
    ] = None,
    order: Annotated[str | None, typer.Option(help="shortest-first: matches of cheap events first.")] = None,
    every: Annotated[str, typer.Option(help="How often a micro-batch begins.")] = "1 second",
    files_per_batch: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many files a micro-batch has at most.", show_default="all that are there"
        ),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(help="Folder for events that cannot be matched.", show_default="OUT/_rejects"),
    ] = None,
    stripes: Annotated[
        int | None,
        typer.Option(min=2, help="Hold the store in this many stripes.", show_default="whole in each worker"),
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Match events as their files arrive, while subscriptions come and go.

    Each micro-batch is matched once, against one version of the store, even through crashes: start again with
    the same --checkpoint and --out, and it continues. Write files of events under a name that begins with a
    dot, and rename them. SIGTERM or Ctrl-C ends the stream after the current batch.

    \b
    Example:
      rangecast spark stream --store store/ --events ticks/ --out matches/ --checkpoint state/
      rangecast spark stream --out matches/ --status
      rangecast store add store/ --id 7 --condition "price < 10"
    """
    if status:
        show_status(out, once)
        return
    given = {"--store": store, "--events": events, "--checkpoint": checkpoint}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise OptionError(f"stream needs {', '.join(missing)}; with --status, --out alone will do")
    assert store is not None
    assert events is not None
    assert checkpoint is not None
    home = Store.open(store)
    with stop_signals() as stop:
        spark = start_session(master, ["spark.log.level=ERROR", *(conf or ())])
        from rangecast import spark as rs

        output = rs.Output(
            event_id=event_id,
            keep=keep or (),
            form=form,
            absent=absent or (),
            order=order,
            id_type=id_type,
        )
        frame = rs.read_events(
            spark,
            events,
            home,
            output,
            keep=list(dict.fromkeys([*output.keep, *([time] if time else [])])),
            format=format,
            files_per_batch=files_per_batch,
        )
        query = rs.match_stream(
            frame,
            home,
            output,
            out=out,
            checkpoint=checkpoint,
            trigger={"availableNow": True} if once else {"processingTime": every},
            version="event-time" if time else "newest",
            time=time,
            rejects=rejects,
            query_name="rangecast",
            stripes=stripes,
        )
        say(f"streaming from {events} to {out}, against {home.path}")
        # PySpark has put a handler of its own over ours
        with stop_signals(stop), live_table("stream") as table:
            if table.shown:
                table.show(status_rows(rs.stream_status(out)))
                metrics = rs.watch_stream(spark, query, out, lambda now: table.show(status_rows(now)))
            else:
                metrics = rs.watch_stream(spark, query, out, lambda now: typer.echo(batch_line(now)))
            run_until(query, stop, out)
            metrics.wait(_LAST_WORDS_SECONDS)
    last = rs.stream_status(out)
    raise_failure(query)
    spark.stop()
    if last.last is not None:
        say(f"ended after batch {last.batch}, version {last.version}")
    raise typer.Exit(REJECTED if once and last.rejected else OK)


def run_until(query: Any, stop: threading.Event, out: str) -> None:
    """Wait for the end of a query, or end it after the batch that runs."""
    from rangecast.spark import stream_status

    while query.isActive and not stop.wait(_LOOK_SECONDS):
        pass
    if not query.isActive:
        return
    before = stream_status(out).batch
    say("ending after the batch that runs")
    stop.clear()
    while (
        query.isActive
        and query.status["isTriggerActive"]
        and stream_status(out).batch == before
        and not stop.wait(_LOOK_SECONDS)
    ):
        pass
    query.stop()


@contextlib.contextmanager
def stop_signals(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set while the block runs."""
    stop = stop or threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_, asked=stop: asked.set())
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_failure(query: Any) -> None:
    """Raise what ended a query, in our own words where they are ours."""
    error = query.exception()
    if error is None:
        return
    said = _OWN_ERROR.findall(str(error))
    raise StorageError(said[-1] if said else f"the stream ended: {str(error).strip().splitlines()[0]}")


def show_status(out: str, once: bool) -> None:
    """Show the state of a stream from its files: a live table, or a line for each batch in a pipe."""
    try:
        from rangecast.spark import stream_status
    except ImportError as error:
        raise SetupError(str(error)) from None
    if once:
        print_table(["", ""], status_rows(stream_status(out)))
        return
    with stop_signals() as stop, live_table("stream") as table:
        shown = -2
        while True:
            now = stream_status(out)
            if table.shown:
                table.show(status_rows(now))
            elif now.batch != shown:
                typer.echo(batch_line(now))
            shown = now.batch
            if stop.wait(1.0):
                return


def batch_line(status: Any) -> str:
    """A batch as one line of text."""
    commit = status.last
    if commit is None:
        return f"no batch yet; the store has version {status.newest}"
    return (
        f"batch {commit.batch}: version {commit.version} (lag {status.lag}), {commit.events:,} events, "
        f"{commit.pairs:,} pairs, {commit.rejected:,} rejected, {sum(commit.seconds.values()):.2f} s; "
        f"{rate(status.events_per_second)} events/s, {rate(status.pairs_per_second)} pairs/s"
    )


def rate(number: float) -> str:
    """A number per second, with the digits that tell.

    >>> rate(1234.5), rate(1.25)
    ('1,234', '1.2')
    """
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def status_rows(status: Any) -> list[list[str]]:
    """The state of a stream as rows of a table."""
    running = f"batch {status.running} for {status.running_seconds:.1f} s"
    idle = f"nothing, for {status.idle_seconds:.0f} s" if status.last else "nothing"
    rows = [
        ["batches", f"up to {status.batch}" if status.batch >= 0 else "none yet"],
        ["running", running if status.running is not None else idle],
        ["version", f"{status.version:,} of {status.newest:,} (lag {status.lag:,})"],
        ["events/s", rate(status.events_per_second)],
        ["pairs/s", rate(status.pairs_per_second)],
        ["rejected", f"{status.rejected:,} of {status.events:,} events"],
        ["batch seconds", f"median {status.seconds:.2f}, slowest {status.slowest:.2f}"],
        ["busy", f"{status.busy:.0%} of {status.span:.0f} s ({status.batches} batches)"],
    ]
    return rows + [[f"{name} on disk", readable(size)] for name, size in status.disk.items()]
