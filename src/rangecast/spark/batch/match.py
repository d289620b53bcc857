"""Match a DataFrame of events: each worker maps the snapshot, batches go through it as Arrow.

    events --select--> [event_id, attributes, kept columns] --mapInArrow--> event_id, subscription_id, kept

The result is lazy, like any DataFrame. What can be checked before anything runs is checked at once: the
snapshot's sums, that each attribute has a column, and that its type can hold the attribute's values
exactly. Everything here works on a classic session and over Spark Connect alike. `explain` says in words
what would be done: which snapshot, which columns, where the index is placed and why.
"""

from __future__ import annotations

from typing import Any, Unpack

from pyspark.sql import DataFrame, Observation

from rangecast.errors import EventError
from rangecast.memory import readable
from rangecast.spark.batch.stripes import (
    Placement,
    PlacementOptions,
    choose_placement,
    cut_store,
    match_in_stripes,
    place_store,
    striped_store,
)
from rangecast.spark.cuts import choose_cuts
from rangecast.spark.output import (
    Answer,
    Output,
    OutputKeywords,
    check_frame,
    column_named,
    map_arrow,
    tells_capitals,
)
from rangecast.spark.report import Report
from rangecast.spark.snapshots import Snapshot, resolve
from rangecast.spark.worker import mapped, matcher


def match(
    events: DataFrame,
    subscriptions: Any,
    output: Output | None = None,
    *,
    version: int | None = None,
    mode: str = "auto",
    stripes: int | None = None,
    memory: int | None = None,
    report: Report | None = None,
    **keywords: Unpack[OutputKeywords],
) -> DataFrame:
    """The subscriptions that each event matches, as a lazy DataFrame.

    `subscriptions` is a Store, the path of a store or of a saved index, Subscriptions or an Index; `version`
    names a version of a store; by default it is the newest one at the time of the call. `output` says what
    comes out, or its fields do as keywords: `event_id` names the column of ids, columns in `keep` come along;
    `form` "pairs" gives a row per match (event_id, subscription_id), "lists" a row per event with an array of
    ids, "counts" with their number; events without a match leave no row unless `outer`. A null value is
    missing; an attribute that the events have no column for must be named in `absent`. `mode` places the
    index: "whole" in every worker, "stripes" cut into `stripes` parts, "auto" by its size and `memory`, the
    bytes that a worker's machine may use for it. An event without an id is rejected: it matches nothing. A
    `report` counts events, those that were rejected, and rows as the DataFrame is evaluated.
    """
    _check_events(events, "match")
    wanted = PlacementOptions(mode, stripes, memory)
    snapshot, placement, answer = _prepared(
        events, subscriptions, version, Output.of(output, keywords), wanted
    )
    chosen = events.select(*(column_named(name, events.schema) for name in answer.columns))
    fields = answer.fields(events.schema)
    if report is not None:
        report.describe(snapshot)
        chosen = report.watch(chosen, Observation(), events=None, rejected=answer.event_id)
    if placement.stripes > 1:
        files = cut_store(events.sparkSession, snapshot, placement)
        if answer.order is not None:
            answer.check_index(mapped(files.path(0)))
        found = match_in_stripes(chosen, files, answer, fields)
    else:
        found = map_arrow(chosen, matcher(snapshot.path, answer), fields)
    if report is not None:
        found = report.watch(found, Observation(), rows=None)
    return found


def _check_events(events: Any, door: str) -> None:
    """Raise for what is no DataFrame, and for a stream, which would stay at the version of now for ever."""
    check_frame(events, door, "read files with spark.read, or match them with rs.match_files")
    if events.isStreaming:
        raise EventError(
            f"{door} takes a DataFrame that is not streaming; rs.match_stream takes a streaming one "
            "(spark.readStream), and matches each batch against the version of its time"
        )


def _prepared(
    events: DataFrame, subscriptions: Any, version: int | None, output: Output, wanted: PlacementOptions
) -> tuple[Snapshot, Placement, Answer]:
    """What is matched against and what comes out, after all was checked that can be before anything runs."""
    wanted.check()
    cut = striped_store(subscriptions, version, wanted)
    if cut is not None:
        snapshot, placement = place_store(events.sparkSession, *cut, wanted)
    else:
        snapshot = resolve(subscriptions, version)
        placement = choose_placement(snapshot, wanted, events.sparkSession)
    answer = output.expanded(events.columns).answer(snapshot.schema, snapshot.ids_are_text)
    answer.check_id_type()
    capitals = tells_capitals(events.sparkSession)
    answer.check_columns(events.schema, snapshot.schema, case_sensitive=capitals)
    if answer.order is not None and placement.stripes == 1:
        answer.check_index(mapped(snapshot.path))
    return snapshot, placement, answer


_STRIPED_STEPS = "steps          route in the workers, shuffle by stripe, match; hot stripes are salted"


class Lines(str):
    """A text that is shown as its lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(
    events: DataFrame,
    subscriptions: Any,
    output: Output | None = None,
    *,
    version: int | None = None,
    mode: str = "auto",
    stripes: int | None = None,
    memory: int | None = None,
    **keywords: Unpack[OutputKeywords],
) -> str:
    """What `match` with the same arguments would do, as a text that a prompt or a notebook shows line by
    line."""
    _check_events(events, "explain")
    wanted = PlacementOptions(mode, stripes, memory)
    snapshot, placement, answer = _prepared(
        events, subscriptions, version, Output.of(output, keywords), wanted
    )
    if snapshot.n_subscriptions is None:
        return Lines("\n".join(_explained_stripes(snapshot, placement, answer)))
    index = mapped(snapshot.path)
    place = f", version {snapshot.version} of {snapshot.store}" if snapshot.store else ""
    lines = [
        f"subscriptions  {snapshot.n_subscriptions:,} in an index {index.name!r} of "
        f"{readable(snapshot.n_bytes)}{place}",
        f"snapshot       {snapshot.path}",
        f"columns in     {', '.join(answer.columns)}",
        f"columns out    {', '.join(answer.names)}",
        f"placement      {placement.reason}",
    ]
    if placement.stripes > 1:
        cuts = choose_cuts([index.subscriptions()], placement.stripes)
        along = " and ".join(
            f"{snapshot.schema[j].name} ({len(at) + 1})" for j, at in zip(cuts.on, cuts.at, strict=True)
        )
        lines += [
            f"stripes        {cuts.n} along {along}, by quantiles of a sample",
            f"copies         {cuts.copies:.2f} of each box; about "
            f"{readable(snapshot.n_bytes * cuts.copies / cuts.n)} per stripe",
            _STRIPED_STEPS,
        ]
    else:
        lines.append("steps          each worker maps the snapshot and matches its own events; no shuffle")
    return Lines("\n".join(lines))


def _explained_stripes(snapshot: Snapshot, placement: Placement, answer: Answer) -> list[str]:
    """What is done with a store's version that has no snapshot; nothing of it is read."""
    return [
        f"subscriptions  a change log of {readable(snapshot.n_bytes)}, version {snapshot.version} of "
        f"{snapshot.store}",
        "snapshot       none; the workers build stripes from the log",
        f"columns in     {', '.join(answer.columns)}",
        f"columns out    {', '.join(answer.names)}",
        f"placement      {placement.reason}",
        _STRIPED_STEPS,
    ]
