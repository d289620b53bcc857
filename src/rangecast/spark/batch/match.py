"""Match a DataFrame of events: each worker maps the snapshot, batches go through it as Arrow.

    events --select--> [event_id, attributes, kept columns] --mapInArrow--> event_id, subscription_id, kept

The result is lazy, like any DataFrame. What can be checked before anything runs is checked at once: the
snapshot's sums, that each attribute has a column, and that its type can hold the attribute's values
exactly. Everything here works on a classic session and over Spark Connect alike. `explain` says in words
what would be done: which snapshot, which columns, where the index is placed and why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Unpack

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import types as T
from pyspark.sql.functions import arrow_udtf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.udtf import AnalyzeResult

from rangecast.engine import Index
from rangecast.errors import EventError, OptionError
from rangecast.loading.pairs import Pace
from rangecast.memory import available_bytes, readable
from rangecast.model.events import Events
from rangecast.spark.output import (
    ALL,
    Answer,
    Output,
    OutputKeywords,
    check_frame,
    column_named,
    map_arrow,
    tells_capitals,
)
from rangecast.spark.report import Report
from rangecast.spark.snapshots import Snapshot, resolve, store_of
from rangecast.spark.stripes import (
    StripeFiles,
    choose_cuts,
    newest_stripes,
    prepare_stripes,
    stripe_of,
    stripes_of_snapshot,
)
from rangecast.spark.worker import answers, mapped, matcher, with_ids
from rangecast.store.store import Store


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


# The placement for an index larger than a worker's memory: stripes, each an index of its own.
#
# spark/stripes.py says how the space is cut, and how stripes are built and kept. Events are routed
# in the workers, by the same encoding that matches them, then shuffled so that a worker maps only the
# stripes it needs. A stripe with a large share of the events is salted: its events are spread over several
# tasks.

MODES = ("auto", "whole", "stripes")
_SMALL = 256_000_000
_SHARE = 0.6
_SAMPLE = 20_000
_TASK = "rangecast_task"
_STRIPE = "rangecast_stripe"


class Placement(NamedTuple):
    """How many stripes (1: every worker maps the whole), and why."""

    stripes: int
    reason: str


class PlacementOptions(NamedTuple):
    """What was asked for: a mode, a number of stripes, the bytes that a worker's machine may use."""

    mode: str = "auto"
    stripes: int | None = None
    memory: int | None = None

    def check(self) -> None:
        """Raise for what cannot be."""
        if self.mode not in MODES:
            raise OptionError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.stripes is not None and (self.stripes < 2 or self.mode == "whole"):
            raise OptionError(
                f"stripes must be at least 2 and go with mode 'stripes', got {self.stripes}, mode "
                f"{self.mode!r}"
            )


def striped_store(
    subscriptions: Any, version: int | None, wanted: PlacementOptions
) -> tuple[Store, int] | None:
    """The store and its version that are matched in stripes without a whole snapshot; None for all else.

    A version that has no snapshot is cut as it is, if stripes were asked for, or if it was cut before.
    """
    store = None if wanted.mode == "whole" else store_of(subscriptions)
    if store is None:
        return None
    version = store.version if version is None else version
    asked = wanted.mode == "stripes" or wanted.stripes is not None
    if (
        store.ids_are_text is None
        or version in store.snapshots()
        or not (asked or newest_stripes(store, version))
    ):
        return None
    return store, version


def place_store(
    spark: SparkSession, store: Store, version: int, wanted: PlacementOptions
) -> tuple[Snapshot, Placement]:
    """How the version of a store that has no snapshot is cut: as it was before, or from sizes."""
    textual = store.ids_are_text
    n_bytes = store.log_bytes()
    snapshot = Snapshot(
        str(store.snapshot_path(version)),
        store.schema,
        bool(textual),
        0 if textual is None else None,
        n_bytes,
        str(store.path),
        version,
    )
    found = newest_stripes(store, version, wanted.stripes)
    if found is None:
        return snapshot, choose_placement(snapshot, wanted._replace(mode="stripes"), spark)
    return snapshot, Placement(found.asked, f"{found.cuts.n} stripes, built at version {found.version}")


def cut_store(spark: SparkSession, snapshot: Snapshot, placement: Placement) -> StripeFiles:
    """The stripes of a snapshot, or of a store's version that has none."""
    if snapshot.n_subscriptions is None and snapshot.store is not None and snapshot.version is not None:
        return prepare_stripes(spark, Store.open(snapshot.store), snapshot.version, placement.stripes)
    return stripes_of_snapshot(spark, snapshot, placement.stripes)


def choose_placement(snapshot: Snapshot, wanted: PlacementOptions, spark: SparkSession) -> Placement:
    """Whole or stripes, and how many, from sizes."""
    wanted.check()
    mode, stripes, memory = wanted
    size = readable(snapshot.n_bytes)
    if mode == "whole":
        return Placement(1, f"whole, as asked: the index has {size}")
    if mode == "auto" and stripes is None and memory is None and snapshot.n_bytes <= _SMALL:
        return Placement(1, f"whole: the index has {size}, which any worker can map")
    room = _SHARE * (memory if memory is not None else _worker_memory(spark))
    needed = max(2, math.ceil(2 * snapshot.n_bytes / max(room, 1.0)))
    if stripes is not None or mode == "stripes":
        n = stripes or needed
        return Placement(n, f"{n} stripes, as asked: the index has {size}")
    if snapshot.n_bytes <= room:
        return Placement(1, f"whole: the index has {size}, and a worker's machine may map {readable(room)}")
    # two stripes should fit at once: the one in use and the one that comes
    return Placement(
        needed, f"{needed} stripes: the index has {size}, but a worker's machine may map {readable(room)}"
    )


def match_in_stripes(
    events: DataFrame, files: StripeFiles, answer: Answer, fields: T.StructType
) -> DataFrame:
    """Route events to their stripes and match them there."""
    spark = events.sparkSession
    cuts = files.cuts
    routed = T.StructType(
        [
            *events.schema.fields,
            T.StructField(_STRIPE, T.IntegerType()),
            T.StructField(_TASK, T.IntegerType()),
        ]
    )
    plain = router(files, answer, [1] * cuts.n)
    wanted = int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    seen = map_arrow(events.limit(_SAMPLE), plain, routed).groupBy(_STRIPE).count().collect()
    tasks = salt([(int(row[0]), int(row[1])) for row in seen], cuts.n, wanted)
    sent = map_arrow(events, router(files, answer, tasks), routed)
    return map_arrow(sent.repartitionById(sum(tasks), _TASK), stripe_matcher(files, answer), fields)


def salt(seen: list[tuple[int, int]], n_stripes: int, wanted: int) -> list[int]:
    """How many tasks each stripe's events are spread over, by its share of a sample.

    >>> salt([(0, 90), (1, 10)], 3, 10)
    [9, 1, 1]
    """
    total = sum(count for _, count in seen) or 1
    tasks = [1] * n_stripes
    for stripe, count in seen:
        tasks[stripe] = max(1, round(wanted * count / total))
    return tasks


# inside the workers


def router(files: StripeFiles, answer: Answer, tasks: list[int]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that adds to each event its stripe and the number of its task."""

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # all stripes have the words of all
        schema = mapped(files.path(0)).schema
        many = np.array(tasks, np.int32)
        first = np.cumsum(many) - many
        seen = 0
        for given in batches:
            batch = with_ids(given, answer)
            events = Events.from_arrow(schema, batch.select(list(answer.attributes)))
            stripes = stripe_of(files.cuts, events, schema)
            turns = (seen + np.arange(len(stripes))) % many[stripes]
            seen += len(stripes)
            columns = [*batch.columns, pa.array(stripes), pa.array((first[stripes] + turns).astype(np.int32))]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, _STRIPE, _TASK])

    return route


def stripe_matcher(files: StripeFiles, answer: Answer) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that matches events against the stripes they were sent to."""

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pace = Pace()
        # kept for the task: each look at an object asks the bucket for it
        indexes: dict[int, Index] = {}
        for batch in batches:
            stripes = batch.column(_STRIPE).to_numpy()
            for stripe in np.unique(stripes).tolist():
                if stripe not in indexes:
                    indexes[stripe] = mapped(files.path(stripe))
                mine = batch.take(pa.array(np.flatnonzero(stripes == stripe)))
                yield from answers(indexes[stripe], mine, answer, pace)

    return match


def memory_asker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Says how much memory a worker's machine has left."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([available_bytes()] * batch.num_rows, pa.int64())], ["id"])


def _worker_memory(spark: SparkSession) -> int:
    one = spark.range(0, 1, 1, 1)
    return int(one.mapInArrow(memory_asker, one.schema).collect()[0][0])


# Matching from SQL: `SELECT * FROM match_events(TABLE(events), 'store')`.
#
# An Arrow table function. Spark has it say its columns before it knows its arguments, so ids come as
# strings from `match_events`; `match_events_long` gives whole numbers and takes no others. What else comes
# out is chosen when the function is registered. The event's id is the column `id`, unless the output or a
# third argument names another. It costs 1.4 times what `match` does.
#
# Spark calls `analyze` while it plans a query, with the columns of the table and the constants. There the
# place becomes the path of one saved index, which all tasks of the query match against, also when they are
# tried again or a writer changes the store meanwhile; and what `match` refuses is refused before a job runs.
# PySpark 4.3 keeps `analyze` from Arrow's table functions by a check in Python alone (SPARK-53286 is to lift
# it), while planning and running them with one works; so it is added to a function that was made without.


def register_sql(
    spark: SparkSession,
    name: str = "match_events",
    output: Output | None = None,
    **keywords: Unpack[OutputKeywords],
) -> None:
    """Make `match_events` and `match_events_long` known to a session, or the same under another name.

    `output` and its keywords are those of `match`; columns that are kept come as strings.
    """
    said = Output.of(output, keywords)
    said.check_id_type()
    if ALL in said.keep:
        raise OptionError('keep="*" needs the events, which SQL gives later; name the columns')
    # the process that plans a query does not know the session's settings
    capitals = tells_capitals(spark)
    spark.udtf.register(name, _function(said, T.StringType(), capitals))
    spark.udtf.register(f"{name}_long", _function(said, T.LongType(), capitals))


def _function(output: Output, ids: T.DataType, case_sensitive: bool) -> Any:
    """The table function whose ids are of a type."""
    kinds = [ids, output.second_type(ids), *[T.StringType()] * len(output.keep)]
    fields = T.StructType([T.StructField(n, kind) for n, kind in zip(output.names, kinds, strict=True)])
    target = to_arrow_schema(fields)

    class MatchEvents:
        """What Spark calls, in a worker, with each Arrow batch of the table."""

        def __init__(self, planned: _PlannedCall) -> None:
            self.planned = planned

        def eval(self, table: pa.RecordBatch, place: pa.Array, name: pa.Array = None) -> Iterator[pa.Table]:
            if table.num_rows:
                yield from _match_table(table, self.planned, target)

        @staticmethod
        def analyze(table: Any, place: Any, name: Any = None) -> AnalyzeResult:
            event_id = output.event_id if name is None else _constant(name, "the name of the id column")
            named = dataclasses.replace(output, event_id=event_id)
            return _plan(fields, table.dataType, _constant(place, "the store"), named, case_sensitive)

    function: Any = arrow_udtf(_WithoutAnalyze, returnType=fields)
    function.func = MatchEvents
    # without a type Spark calls `analyze`; a Connect client has the type in the attribute itself
    setattr(function, "_returnType" if hasattr(function, "_returnType") else "returnType", None)
    return function


class _WithoutAnalyze:
    """What PySpark makes an Arrow table function of; the class with `analyze` takes its place."""

    def eval(self, table: pa.RecordBatch, place: pa.Array, name: pa.Array = None) -> Iterator[pa.Table]:
        raise NotImplementedError


@dataclasses.dataclass
class _PlannedCall(AnalyzeResult):
    """A call as it was planned: the saved index that all workers match against, what comes out, and which
    columns the table has in other capitals."""

    path: str = ""
    answer: Answer | None = None
    written: dict[str, str] = dataclasses.field(default_factory=dict)


def _constant(argument: Any, what: str) -> str:
    """An argument that is known while a query is planned."""
    if not argument.isConstantExpression or argument.value is None:
        raise OptionError(
            f"match_events: {what} must be a constant, so that a query has one version; got an expression "
            "or NULL"
        )
    return str(argument.value)


def _plan(
    fields: T.StructType, given: T.StructType, place: str, output: Output, case_sensitive: bool
) -> _PlannedCall:
    """Find the version, and raise what `match` would raise before anything runs."""
    snapshot = resolve(place)
    answer = output.answer(snapshot.schema, snapshot.ids_are_text)
    try:
        answer.check_columns(given, snapshot.schema, texts=True, case_sensitive=case_sensitive)
    except EventError as error:
        raise EventError(f"match_events: {error}") from None
    if answer.order is not None:
        answer.check_index(mapped(snapshot.path))
    return _PlannedCall(fields, path=snapshot.path, answer=answer, written=answer.written(given))


def _match_table(table: pa.RecordBatch, planned: _PlannedCall, target: pa.Schema) -> Iterator[pa.Table]:
    answer = planned.answer
    assert answer is not None
    columns = [planned.written.get(name, name) for name in answer.columns]
    for wanted in columns:
        if wanted not in table.schema.names:
            have = ", ".join(sorted(table.schema.names))
            raise EventError(f"match_events: the table has no column {wanted!r}; it has {have}")
    named = pa.RecordBatch.from_arrays([table.column(name) for name in columns], answer.columns)
    for batch in answers(mapped(planned.path), named, answer, Pace()):
        yield pa.Table.from_batches([batch]).cast(target)
