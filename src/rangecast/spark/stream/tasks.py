"""One task of a micro-batch, inside a worker: take the pinned version, match, write Parquet.

As in file mode, matches do not go back through the JVM: a task writes its own file and gives back one
row that says what it wrote. A task that Spark runs twice leaves two files under different names, and
the driver takes the one whose row it got; so nothing is doubled, and no commit protocol is needed.

Which version an event is matched against is told in spark/version_policy.py.

Events come as columns of a DataFrame, or as the names of files that are read here (stream.py); both
go through rangecast.loading.events. Those that cannot be matched are written to a file beside, each with
its reason (rangecast.loading.rejected).
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from rangecast.engine import Index
from rangecast.errors import EventError, OptionError, StorageError
from rangecast.loading import EventFile, RejectedRow, RowBatch
from rangecast.loading.events import EventBatch, EventColumns, load_events, reject_rows, whole_file_reason
from rangecast.loading.formats import table_raw
from rangecast.loading.ids import named_type
from rangecast.loading.pairs import Pace, pair_file
from rangecast.loading.rejected import rejected_table
from rangecast.model.events import Events
from rangecast.spark.output import Answer, map_arrow
from rangecast.spark.stripes import StripeFiles, followed_stripe, newest_stripes, prepare_stripes, stripe_of
from rangecast.spark.version_policy import Pinned, PinnedStore
from rangecast.spark.worker import answer_events, beside_driver, open_store, pairs_in
from rangecast.store.home import home_of
from rangecast.store.store import Store
from rangecast.types.schema import Schema

COUNTED = T.StructType(
    [
        T.StructField("name", T.StringType()),
        *(T.StructField(name, T.LongType()) for name in ("events", "rows", "pairs", "rejected", "bytes")),
    ]
)


@dataclass(frozen=True)
class StreamEvents:
    """What a stream reads of its events; it goes from the call that starts the stream to the workers.

    `file` is the column with the file that an event came from; or, where `format` says how they are written,
    with the files to read, whose ids become `id_type` and whose kept columns become `types`. `corrupt` is the
    column of lines that Spark's reader could not read.
    """

    answer: Answer
    file: str | None = None
    corrupt: str | None = None
    format: str | None = None
    id_type: str | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    @property
    def are_files(self) -> bool:
        """Whether the rows of the stream are names of files to read."""
        return self.format is not None


class StreamTask(NamedTuple):
    """All that a worker needs to know of a batch: the version, the events, where matches and rejects go."""

    store: PinnedStore | StripedStore
    events: StreamEvents
    matches: str
    rejects: str

    @property
    def answer(self) -> Answer:
        """What comes out of the events."""
        return self.events.answer

    @property
    def columns(self) -> list[str]:
        """The columns that are read of the stream."""
        events = self.events
        if events.are_files:
            assert events.file is not None
            return [events.file]
        extra = [name for name in (events.file, events.corrupt, self.store.time) if name]
        return list(dict.fromkeys([*events.answer.columns, *extra]))


def stream_task(task: StreamTask) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for mapInArrow."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(task, batches)

    return work


def run_task(task: StreamTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Match the events of a task, write the files, give back the row of what was counted."""
    name = f"part-{uuid.uuid4().hex}.parquet"
    counted = dict.fromkeys(("events", "rows", "pairs", "rejected"), 0)
    pace = Pace()
    with StagedFile(task.matches, name) as matches, StagedFile(task.rejects, name) as aside:
        for batch in batches:
            if not batch.num_rows:
                continue
            for given in sort_out(batch, task):
                counted["events"] += len(given.events) + len(given.rejected)
                counted["rejected"] += len(given.rejected)
                for rejected in rejected_table(given.rejected).to_batches():
                    aside.write(rejected)
                for index, events, table in task.store.indexes(given.events, given.table, given.versions):
                    for piece in answer_events(index, events, table, task.answer, pace):
                        matches.write(piece)
                        counted["rows"] += piece.num_rows
                        counted["pairs"] += pairs_in(piece, task.answer.form)
    if counted["events"]:
        row = {"name": name, **counted, "bytes": matches.bytes + aside.bytes}
        yield pa.RecordBatch.from_pydict({key: [value] for key, value in row.items()})


class StagedFile:
    """A Parquet file that is there only when something was written, and stays when it is closed."""

    def __init__(self, place: str, name: str) -> None:
        self.bytes = 0
        self._home, self._name = home_of(place), name
        self._writer: pq.ParquetWriter | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> StagedFile:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch; the first one says the columns."""
        if not batch.num_rows:
            return
        if self._writer is None:
            with beside_driver(self._home.path):
                self._home.prepare()
                self._scratch = self._home.scratch(self._name)
                self._file = self._stack.enter_context(self._scratch.open("wb"))
            self._writer = pair_file(self._file, batch.schema)
        self._writer.write_batch(batch)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer is None:
            return
        try:
            with self._stack:
                self._writer.close()
                if kind is None:
                    self._file.flush()
                    os.fsync(self._file.fileno())
                    self.bytes = self._file.tell()
            if kind is None:
                self._home.take(self._name, self._scratch)
        finally:
            if not self._home.locks:
                self._scratch.unlink(missing_ok=True)


class Sorted(NamedTuple):
    """The events of a batch that can be matched, their columns and versions, and the others."""

    events: Events
    table: pa.Table
    versions: Any
    rejected: list[RejectedRow]


def sort_out(batch: pa.RecordBatch, task: StreamTask) -> Iterator[Sorted]:
    """Tell the events that can be matched from those that cannot, and say why."""
    answer = task.answer
    columns = EventColumns(answer.event_id, answer.attributes, _kept(task))
    if not task.events.are_files:
        unread, rows = _rows_of(batch, task)
        found = load_events(task.store.schema, rows, columns)
        yield _with_versions(found, task, unread)
        return
    for place in batch.column(task.events.file).to_pylist():
        path = re.sub("^file:/+", "/", place)
        for part in _read_file(path, task):
            yield _with_versions(part, task, [], path)


def _kept(task: StreamTask) -> tuple[str, ...]:
    """The columns that come along to the workers' tables, beside ids."""
    place = None if task.events.are_files else task.events.file
    return tuple(dict.fromkeys(name for name in (*task.answer.keep, task.store.time, place) if name))


def _read_file(path: str, task: StreamTask) -> Iterator[EventBatch]:
    """The events of a file; one that holds no events, or not to its end, is a rejected row by itself."""
    schema = task.store.schema
    answer = task.answer
    format = task.events.format
    types = task.events.types
    id_type = named_type(task.events.id_type)
    try:
        with EventFile(
            schema,
            path,
            event_id=answer.event_id,
            attributes=answer.attributes,
            keep=_kept(task),
            id_type=id_type,
            format=format,
            groups=(0, -1) if format == "parquet" else None,
        ) as file:
            for part in file:
                kept = {n: c.cast(types[n]) if n in types else c for n, c in part.kept.items()}
                yield part._replace(kept=kept)
    except (EventError, StorageError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = whole_file_reason(error)
        if reason is None:
            raise
        none = Events(schema, np.empty((len(schema), 0), np.int64))
        kept = {name: pa.array([], types.get(name, pa.string())) for name in _kept(task)}
        rejected = [RejectedRow(path, None, None, None, reason, "")]
        yield EventBatch(none, pa.array([], id_type), kept, None, rejected)


def _rows_of(batch: pa.RecordBatch, task: StreamTask) -> tuple[list[RejectedRow], RowBatch]:
    """The rows of a DataFrame's batch; those that its reader could not read come apart."""
    file, corrupt = task.events.file, task.events.corrupt
    shown = [name for name in task.columns if name not in (file, corrupt)]
    unread: list[RejectedRow] = []
    if corrupt is not None:
        lines = batch.column(corrupt)
        if lines.null_count < len(lines):
            bad = pc.is_valid(lines)
            places = _places(batch.filter(bad), task)
            for i, line in enumerate(lines.filter(bad).to_pylist()):
                unread.append(RejectedRow(places(i), None, None, None, "the line cannot be read", line))
            batch = batch.filter(pc.invert(bad))
    table = pa.Table.from_batches([batch])
    raw = table_raw(table.select(shown))
    return unread, RowBatch(table, None, None, raw, source=_places(table, task))


def _places(table: pa.Table | pa.RecordBatch, task: StreamTask) -> Callable[[int], str | None]:
    """The file that each row of a table came from, if its source has files."""

    file = task.events.file

    def place(i: int) -> str | None:
        name = table.column(file)[i].as_py() if file else None
        return re.sub("^file:/+", "/", unquote(name)) if name else None

    return place


def _with_versions(
    found: EventBatch, task: StreamTask, unread: list[RejectedRow], path: str | None = None
) -> Sorted:
    """Events with the version that each is matched against; those of a time without one are rejected."""
    answer = task.answer
    table = found.table(answer.event_id)
    rejected = [*unread, *found.rejected]
    if task.store.time is None:
        return Sorted(found.events, table, None, rejected)
    versions, reasons = task.store.versions_of(table.column(task.store.time).combine_chunks())
    if not reasons:
        return Sorted(found.events, table, versions, rejected)
    source = _places(table, task) if path is None else None
    rows = RowBatch(table, found.rows, None, table_raw(table), source=source)
    rejected += reject_rows(rows, reasons, answer.event_id, path)
    good = np.ones(len(found.events), bool)
    good[list(reasons)] = False
    return Sorted(found.events.select(good), table.filter(pa.array(good)), versions[good], rejected)


# Streams against a store that is cut into stripes: each task holds the stripes that its events need.
#
#     events --stripe of each--> shuffled --stripe at the pinned version--> matches
#
# The stripes were built at some version (spark/stripes.py); a worker keeps an index of each stripe that it
# was given events of, and brings it forward by what the changes since do to that stripe. When as much has
# changed as a share of the whole, the workers rewrite the stripes, between two batches. Which stripes a
# batch was matched with, and which task had which events, makes no difference to its matches: they are a
# function of the events and of the pinned version, as they are without stripes.
#
# A task sends each event to the index of its stripe by itself, so the shuffle decides only where a stripe is
# held. Events that come as names of files are not shuffled: a task of theirs holds the stripes of its files'
# events.

_TASK = "rangecast_task"
_FEW = 1000
_SHARE = 0.2


class StripedStore(NamedTuple):
    """A store in stripes and what a batch is pinned to; to a task it is what a PinnedStore is."""

    path: str
    pinned: Pinned
    files: StripeFiles
    time: str | None = None

    @property
    def schema(self) -> Schema:
        """The schema to encode events with: stripes have its words or fewer."""
        return open_store(self.path).schema

    def versions_of(self, times: Any) -> Any:
        """By event time there are no stripes (match_stream refuses them)."""
        raise OptionError(f"stripes have one version per batch, got times {times}")

    def indexes(self, events: Any, table: Any, versions: Any) -> Iterator[tuple[Index, Any, Any]]:
        """The events and their columns with the index that they are matched against, stripe by stripe."""
        stripes = stripe_of(self.files.cuts, events, self.schema)
        for stripe in np.unique(stripes).tolist():
            rows = np.flatnonzero(stripes == stripe)
            index = followed_stripe(self.path, self.files, stripe).at(self.pinned.version)
            yield index, events.select(rows), table.take(pa.array(rows))


def stripes_for(spark: SparkSession, store: Store, version: int, n: int) -> StripeFiles:
    """The stripes that a batch of a version is matched with, rewritten when much has changed since."""
    found = newest_stripes(store, version, n)
    if found is None or found.version is None:
        return prepare_stripes(spark, store, version, n)
    before = store.changed(store.oldest, found.version)
    if store.changed(found.version, version) > max(_FEW, _SHARE * before):
        return prepare_stripes(spark, store, version, n)
    return found


def by_stripe(frame: DataFrame, store: StripedStore, attributes: tuple[str, ...]) -> DataFrame:
    """The rows, those of a stripe in one partition; those that cannot be matched go to the first."""
    n = store.files.cuts.n
    fields = T.StructType([*frame.schema.fields, T.StructField(_TASK, T.IntegerType())])
    routed = map_arrow(frame, _router(store, attributes), fields)
    return routed.repartitionById(n, _TASK).drop(_TASK)


def _router(
    store: StripedStore, attributes: tuple[str, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = store.schema
        for batch in batches:
            given = {name: batch.column(name) for name in attributes}
            events = Events.from_arrays(schema, given, on_error="collect")
            good = np.ones(batch.num_rows, bool)
            good[[rejected.row for rejected in events.rejected]] = False
            stripes = np.zeros(batch.num_rows, np.int32)
            stripes[good] = stripe_of(store.files.cuts, events, schema)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(stripes)], [*batch.schema.names, _TASK]
            )

    return route
