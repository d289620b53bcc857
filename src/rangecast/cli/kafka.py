"""`rangecast kafka`: events and subscriptions from topics, without Spark."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, print_table, say
from rangecast.cli.spark import StoreOption, stop_signals
from rangecast.cli.store import duration_of
from rangecast.kafka.connection import parse_settings
from rangecast.kafka.formats import ValueFormat
from rangecast.kafka.messages import MessageForm
from rangecast.kafka.subscriptions import SubscriptionTopic
from rangecast.kafka.worker import TopicMatch, TopicWorker, WorkerCounts, WorkerMetrics, read_lag
from rangecast.store.store import Store
from rangecast.types.schema import Schema

app = typer.Typer(
    no_args_is_help=True, help="Match the events of a Kafka topic; take subscriptions from one."
)

Bootstrap = Annotated[
    str, typer.Option("--bootstrap", help="HOST:PORT of the cluster; separate several by commas.")
]
Config = Annotated[
    list[str] | None, typer.Option("--config", help="Setting of the client, as in 'security.protocol=SSL'.")
]
_SAY_EVERY = 10.0


@app.command()
def match(
    store: StoreOption,
    bootstrap: Bootstrap,
    source: Annotated[str, typer.Option("--in", help="Topic of events.")],
    out: Annotated[str, typer.Option("--out", help="Topic for matches.")],
    group: Annotated[str, typer.Option(help="Consumer group; workers of one group share the partitions.")],
    dlq: Annotated[
        str | None, typer.Option(help="Topic for rejected events.", show_default="a line in the log each")
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="Where a new group begins: earliest, latest, or a time.")
    ] = "earliest",
    format: Annotated[str, typer.Option(help="Format of the values: json, avro or protobuf.")] = "json",
    registry: Annotated[
        str | None,
        typer.Option(help="Schema registry, as in http://127.0.0.1:8081.", show_default="none"),
    ] = None,
    schema_file: Annotated[
        Path | None,
        typer.Option(
            help="An Avro schema or a Protobuf descriptor set, instead of a registry.", show_default="none"
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(help="Message of the descriptor set.", show_default="its only one"),
    ] = None,
    event_id: Annotated[str, typer.Option(help="Field of the event's id, @key, or @offset.")] = "id",
    id_type: Annotated[
        str, typer.Option(help="Type in which event ids are sent: string or int64.")
    ] = "string",
    form: Annotated[str, typer.Option(help="lists: a message per event; pairs: one per match.")] = "lists",
    key: Annotated[str, typer.Option(help="Key of the messages: event or subscription.")] = "event",
    keep: Annotated[str, typer.Option(help="Fields of the event to send too, separated by commas.")] = "",
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Commit matches and offsets in one transaction.")
    ] = False,
    batch_events: Annotated[int, typer.Option(min=1, help="How many events a batch has at most.")] = 5_000,
    linger: Annotated[str, typer.Option(help="How long a batch waits for more, as in 20ms.")] = "20ms",
    worker: Annotated[
        str | None,
        typer.Option(help="Name that this worker keeps across restarts.", show_default="a new one"),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT for Prometheus.", show_default="none")
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(help="End when no event has come for this many seconds.", show_default="never"),
    ] = None,
    config: Config = None,
) -> None:
    """Match events as they arrive, against the newest version of the store, and send the matches to a topic.

    Start as many workers of one group as the topic has partitions. SIGTERM or Ctrl-C ends a worker after the
    current batch. With --exactly-once, readers need isolation.level=read_committed.

    \b
    Example:
      rangecast kafka match --store store/ --bootstrap 127.0.0.1:9092 --in ticks --out matches \\
                            --dlq ticks.rejected --group alerts --exactly-once
      rangecast kafka match --store store/ --bootstrap 127.0.0.1:9092 --in orders --out matches \\
                            --group alerts --format avro --registry http://127.0.0.1:8081
      rangecast kafka status --bootstrap 127.0.0.1:9092 --in ticks --group alerts
    """
    logging.basicConfig(format="rangecast: %(message)s", level=logging.WARNING)
    job = TopicMatch(
        store=str(store),
        bootstrap=bootstrap,
        source=source,
        out=out,
        group=group,
        dead_letters=dlq,
        start=start,
        shape=MessageForm(event_id, id_type, form, key, tuple(filter(None, keep.split(",")))),
        exactly_once=exactly_once,
        batch_events=batch_events,
        linger=duration_of(linger) / 1_000_000,
        settings=parse_settings(config or ()),
        worker=worker,
        values=ValueFormat(format, registry, None if schema_file is None else str(schema_file), message),
    )
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_signals())
        running = stack.enter_context(TopicWorker(job))
        if metrics is not None:
            stack.enter_context(WorkerMetrics(running, metrics))
        say(f"matching {source} to {out} as a worker of {group}")
        said = time.monotonic()

        def stopped() -> bool:
            nonlocal said
            if time.monotonic() - said > _SAY_EVERY:
                said = time.monotonic()
                say(_line(running.counts))
            return stop.is_set()

        counts = running.run(stopped, idle=idle)
    say(_line(counts))
    raise typer.Exit(REJECTED if counts.rejected and dlq is None else OK)


@app.command()
def subscriptions(
    store: StoreOption,
    bootstrap: Bootstrap,
    topic: Annotated[str, typer.Option(help="Compacted topic; the key is the id, the value the condition.")],
    schema: Annotated[
        Path | None, typer.Option(help="Schema file (TOML); needed when the store is made.")
    ] = None,
    id_type: Annotated[
        str | None, typer.Option(help="Ids of a new store: string or int64.", show_default="string")
    ] = None,
    payload: Annotated[
        list[str] | None,
        typer.Option(help="Member of the values to keep with the subscriptions; repeat for more."),
    ] = None,
    expires_column: Annotated[
        str | None, typer.Option(help="Member that says when a subscription expires.", show_default="none")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End when everything that is in the topic now has been read.")
    ] = False,
    config: Config = None,
) -> None:
    """Copy subscriptions from a compacted topic into a store, each batch as one version.

    A value is {"condition": "..."} or bounds such as {"price_low": 1, "price_high": 5}; null deletes. How
    far the topic was read is written with each change, so the command may be ended and started at any
    moment.

    \b
    Example:
      rangecast kafka subscriptions --store store/ --bootstrap 127.0.0.1:9092 --topic alerts --until-end
    """
    home = Store.open(store, Schema.from_toml(schema) if schema is not None else None)

    def rejected(row: Any) -> None:
        say(f"rejected: {row.in_one_line()}")

    with (
        stop_signals() as stop,
        SubscriptionTopic(
            home,
            bootstrap,
            topic,
            id_type=id_type,
            payload=payload or (),
            expires=expires_column,
            settings=parse_settings(config or ()),
            on_rejected=rejected,
        ) as following,
    ):
        counts = following.run(stop.is_set, until_end=until_end)
    say(
        f"{counts.messages:,} messages: {counts.upserts:,} subscriptions, {counts.deletes:,} deletes, "
        f"{counts.rejected:,} rejected; version {counts.version}"
    )
    raise typer.Exit(REJECTED if counts.rejected else OK)


@app.command()
def status(
    bootstrap: Bootstrap,
    source: Annotated[str, typer.Option("--in", help="Topic of events.")],
    group: Annotated[str, typer.Option(help="Consumer group of the workers.")],
    store: Annotated[
        str | None, typer.Option("--store", metavar="STORE", help="Store whose version is printed too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a table.")] = False,
    config: Config = None,
) -> None:
    """Print how far a group of workers is behind, partition by partition.

    \b
    Example:
      rangecast kafka status --bootstrap 127.0.0.1:9092 --in ticks --group alerts
    """
    rows = read_lag(bootstrap, source, group, parse_settings(config or ()))
    version = None if store is None else Store.open(store).version
    total = sum(row.behind for row in rows)
    if as_json:
        places = [{**row._asdict(), "behind": row.behind} for row in rows]
        typer.echo(json.dumps({"behind": total, "version": version, "partitions": places}))
        return
    print_table(
        ["partition", "committed", "end", "behind"],
        [[r.partition, "none yet" if r.committed is None else r.committed, r.end, r.behind] for r in rows],
    )
    say(f"{total:,} behind" + ("" if version is None else f"; the store has version {version}"))


def _line(counts: WorkerCounts) -> str:
    return (
        f"{counts.events:,} events in {counts.batches:,} batches, {counts.matches:,} matches, "
        f"{counts.rejected:,} rejected, version {counts.version}"
    )
