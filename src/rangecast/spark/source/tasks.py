"""One task of the source, inside a worker: read files with Arrow, match them, give the pairs to Spark.

A task names the files, the version that they are matched against, and what it needs to be the same
when it is done again: a replay reads the same bytes (size and time of change are checked), brings the
index to the same version, and so gives the same rows. Rows that cannot be read go to

    rejects/run=<stream>/batch_id=<micro-batch>/<task>.parquet    (rangecast.loading.rejected)

by rename, so a task done twice leaves one file. A file that does not hold events at all (torn, other
columns) is one such row, without a number; a disk that cannot be read raises, and Spark tries again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from rangecast.durable.arrays import replacing
from rangecast.errors import EventError, StorageError
from rangecast.loading import RowBatch
from rangecast.loading.events import reject_rows, whole_file_reason
from rangecast.loading.formats import table_raw
from rangecast.loading.ids import INT64, STRING
from rangecast.loading.pairs import Pace
from rangecast.loading.rejected import RejectedRow, rejected_table
from rangecast.spark.batch.file_tasks import FileBatch, Unit, read_unit
from rangecast.spark.batch.files import check_files
from rangecast.spark.output import COUNTS, Answer
from rangecast.spark.source.arrivals import Arrival
from rangecast.spark.source.options import REJECT, Settings
from rangecast.spark.version_policy import Pinned, PinnedStore
from rangecast.spark.worker import answer_events, open_store
from rangecast.types.schema import Schema

UNKNOWN_FORMAT = "unknown"
_BATCH = "streaming.sql.batchId"


class Task(InputPartition):
    """Some pieces of work (files, or spans of a topic) and what they are matched against."""

    def __init__(self, run: str, number: int, units: list[Any], pinned: Pinned) -> None:
        super().__init__(None)
        self.run = run
        self.number = number
        self.units = units
        self.pinned = pinned


class FileTrouble(Exception):
    """Why a whole file, or the rest of it, is rejected."""


def read_task(task: Task, settings: Settings, fields: T.StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a task; what was rejected is on disk when the last one is out."""
    target = to_arrow_schema(fields, timezone="UTC")
    store = PinnedStore(settings.store, task.pinned, settings.versions.time)
    schema = store.schema
    answer = settings.answer(schema, fields)
    check_ids(settings.store, answer)
    reading = answer
    if store.time is not None and store.time not in answer.keep:
        reading = dataclasses.replace(answer, keep=(*answer.keep, store.time))
    aside: list[RejectedRow] = []
    pace = Pace()
    id_type = STRING if pa.types.is_string(target.field(0).type) else INT64
    for unit, arrival in task.units:
        try:
            _check_file(unit, arrival, schema, answer, settings)
            for batch in _read(unit, schema, reading, id_type):
                yield from answer_batch(unit.path, batch, store, answer, aside, pace, target)
        except FileTrouble as trouble:
            aside.append(RejectedRow(unit.path, None, None, None, str(trouble), ""))
    keep_rejects(aside, task, settings.rejects)


def check_ids(store: str, answer: Answer) -> None:
    """Raise when the ids of subscriptions have another type than the columns of the DataFrame."""
    if open_store(store).ids_are_text and not answer.textual and answer.form != COUNTS:
        raise StorageError(
            f"{store}: subscription ids are strings by now, and the DataFrame was made when there "
            "were none; load it again"
        )


def answer_batch(
    place: str,
    batch: FileBatch,
    store: PinnedStore,
    answer: Answer,
    aside: list[RejectedRow],
    pace: Pace,
    target: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The rows of some events; what is rejected goes to `aside`."""
    aside += batch.rejected
    timely, versions = _timely(place, batch, store, answer, aside)
    for index, events, table in store.indexes(timely.events, timely.table, versions):
        for piece in answer_events(index, events, table, answer, pace):
            yield _cast(piece, target)


def _timely(
    place: str, batch: FileBatch, store: PinnedStore, answer: Answer, aside: list[RejectedRow]
) -> tuple[FileBatch, Any]:
    """By event time, the events that have a version and these versions; the others are rejected."""
    if store.time is None:
        return batch, None
    versions, reasons = store.versions_of(batch.table.column(store.time))
    if not reasons:
        return batch, versions
    rows = RowBatch(batch.table, batch.rows, None, table_raw(batch.table))
    aside += reject_rows(rows, reasons, answer.event_id, place)
    good = np.delete(np.arange(len(versions)), list(reasons))
    kept = batch.events.select(good), batch.table.take(pa.array(good))
    return FileBatch(*kept, batch.rejected, batch.rows[good]), versions[good]


def _check_file(unit: Unit, arrival: Arrival, schema: Schema, answer: Answer, settings: Settings) -> None:
    """Whether this is the file that was meant, and can hold events."""
    try:
        status = os.stat(unit.path)
    except FileNotFoundError:
        _lost(unit, "is gone", settings)
    if (status.st_size, status.st_mtime_ns) != (arrival.size, arrival.changed):
        _lost(unit, "was changed", settings)
    if unit.format == UNKNOWN_FORMAT:
        raise FileTrouble(
            "the format must be given by the suffix .csv, .jsonl or .parquet, or by the option format"
        )
    if unit.format == "parquet":
        try:
            check_files([unit.path], {unit.path: "parquet"}, schema, answer)
        except (EventError, StorageError) as error:
            raise _trouble(error) from error


def _lost(unit: Unit, what: str, settings: Settings) -> None:
    if settings.lost_files == REJECT:
        raise FileTrouble(f"the file {what} since it arrived")
    raise StorageError(
        f"{unit.path}: {what} since it arrived, so its events cannot be matched as they were. Put it back, "
        "or go on without it by .option('lostFiles', 'reject'). Files must be whole when they appear: write "
        "them under a name that begins with _ and rename them"
    )


def _read(unit: Unit, schema: Schema, answer: Answer, id_type: pa.DataType) -> Iterator[FileBatch]:
    try:
        yield from read_unit(unit, schema, answer, id_type)
    except (EventError, StorageError, pa.ArrowInvalid) as error:
        raise _trouble(error) from error


def _trouble(error: Exception) -> Exception:
    """What to raise: a file is rejected for what it holds, not for a disk that fails."""
    reason = whole_file_reason(error)
    return error if reason is None else FileTrouble(reason)


def _cast(piece: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    try:
        columns = [column.cast(field.type) for column, field in zip(piece.columns, target, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FileTrouble(
            f"columns must be of the types {target.types}, got {piece.schema.types}: {error}"
        ) from error
    return pa.RecordBatch.from_arrays(columns, schema=target)


def keep_rejects(aside: list[RejectedRow], task: Task, rejects: str) -> None:
    """Put what a task rejected in its place, if anything was."""
    if not aside:
        return
    context = TaskContext.get()
    batch = context.getLocalProperty(_BATCH) if context is not None else None
    folder = Path(rejects) / f"run={task.run}" / f"batch_id={batch or 0}"
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{task.number:05}.parquet") as file:
        pq.write_table(rejected_table(aside), file)
