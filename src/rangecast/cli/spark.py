"""`rangecast spark`: the pipeline on Spark from the command line. PySpark is imported when a command runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, bar, print_table, say
from rangecast.durable.bucket import local_place
from rangecast.errors import OptionError, SetupError
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
    from rangecast.spark.subscription_files import read_subscriptions

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
    from rangecast.spark.subscription_files import read_subscriptions

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
