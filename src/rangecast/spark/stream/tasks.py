"""One task of a micro-batch, inside a worker: take the pinned version, match, write Parquet.

As in file mode, matches do not go back through the JVM: a task writes its own file and gives back one
row that says what it wrote. A task that Spark runs twice leaves two files under different names, and
the driver takes the one whose row it got; so nothing is doubled, and no commit protocol is needed.

An event is matched against the version that its batch is pinned to; or, by event time, against the
newest version at its own time that is not newer than the pinned one.

Events that cannot be matched are written to a file beside, each with its reason:

    file       the input file, where the source has files
    event_id   as text; null where it has none
    reason     what must hold and what came
    raw        the line where it could not be read, else the event's columns as JSON
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T

from rangecast.engine import Index
from rangecast.model.events import Events
from rangecast.spark.worker import Answer, Pace, answer_events, pairs_in
from rangecast.spark.worker_index import followed, open_store
from rangecast.types.attributes import MISSING, Timestamp
from rangecast.types.schema import Schema

REJECTED = pa.schema([(name, pa.string()) for name in ("file", "event_id", "reason", "raw")])
COUNTED = T.StructType(
    [
        T.StructField("name", T.StringType()),
        *(T.StructField(name, T.LongType()) for name in ("events", "rows", "pairs", "rejected", "bytes")),
    ]
)


class StreamTask(NamedTuple):
    """All that a worker needs to know of a batch."""

    store: str
    version: int
    answer: Answer
    matches: str
    rejects: str
    file: str | None = None
    corrupt: str | None = None
    whole_ids: bool = False
    time: str | None = None
    oldest: int = 0
    shortest_first: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that are read of the events."""
        extra = [name for name in (self.file, self.corrupt, self.time) if name]
        return list(dict.fromkeys([*self.answer.columns, *extra]))


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
    with ParquetPart(Path(task.matches) / name) as matches, ParquetPart(Path(task.rejects) / name) as aside:
        for batch in batches:
            if not batch.num_rows:
                continue
            counted["events"] += batch.num_rows
            sorted_out = sort_out(batch, task)
            if sorted_out.rejected:
                counted["rejected"] += len(sorted_out.rejected)
                aside.write(pa.RecordBatch.from_pylist(sorted_out.rejected, REJECTED))
            for index, events, table in by_version(sorted_out, task):
                if task.shortest_first:
                    order = index.estimate(events).order
                    events, table = events.select(order), table.take(pa.array(order))
                for piece in answer_events(index, events, table, task.answer, pace):
                    matches.write(piece)
                    counted["rows"] += piece.num_rows
                    counted["pairs"] += pairs_in(piece, task.answer.form)
    if counted["events"]:
        row = {"name": name, **counted, "bytes": matches.bytes + aside.bytes}
        yield pa.RecordBatch.from_pydict({key: [value] for key, value in row.items()})


class ParquetPart:
    """A Parquet file that is there only when something was written, and is on disk when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ParquetPart:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch; the first one says the columns."""
        if not batch.num_rows:
            return
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._stack.enter_context(self.path.open("wb"))
            # a dictionary pays for event ids, which repeat in runs, and not for subscription ids
            once = [name for name in batch.schema.names if name != "subscription_id"]
            self._writer = pq.ParquetWriter(self._file, batch.schema, use_dictionary=once)
        self._writer.write_batch(batch)

    def __exit__(self, kind: object, *_: object) -> None:
        with self._stack:
            if self._writer is None:
                return
            self._writer.close()
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                self.bytes = self._file.tell()


class Sorted(NamedTuple):
    """The events of a batch that can be matched, their columns and versions, and the others."""

    events: Events
    table: pa.RecordBatch
    versions: Any
    rejected: list[dict[str, Any]]


def by_version(given: Sorted, task: StreamTask) -> Iterator[tuple[Index, Events, pa.RecordBatch]]:
    """The events with the index that they are matched against: the pinned one, or that of their time."""
    follower = followed(task.store)
    if given.versions is None:
        yield follower.at(task.version), given.events, given.table
        return
    for _, rows, index in follower.each(given.versions):
        yield index, given.events.select(rows), given.table.take(pa.array(rows))


def sort_out(batch: pa.RecordBatch, task: StreamTask) -> Sorted:
    """Tell the events that can be matched from those that cannot, and say why."""
    answer = task.answer
    columns = {name: batch.column(name) for name in answer.attributes}
    events = Events.from_arrays(_schema(task), columns, on_error="collect")
    reasons: dict[int, str] = {}
    unread = batch.column(task.corrupt) if task.corrupt else None
    if unread is not None and unread.null_count < len(unread):
        reasons |= dict.fromkeys(_rows(_valid(unread)), "the line cannot be read")
    ids = batch.column(answer.event_id)
    if task.whole_ids:
        ids, wrong = _whole_numbers(ids)
        for row in wrong:
            got = batch.column(answer.event_id)[row].as_py()
            reasons.setdefault(row, f"the event's id must be a whole number, got {got!r}")
        batch = batch.set_column(batch.schema.get_field_index(answer.event_id), answer.event_id, ids)
    for row in _rows(~_valid(ids)) if ids.null_count else ():
        reasons.setdefault(row, f"an event must have an id in {answer.event_id!r}, got null")
    own = np.ones(batch.num_rows, bool)
    for each in events.rejected:
        own[each.row] = False
        reasons.setdefault(each.row, each.reason)
    versions = None if task.time is None else _versions(batch.column(task.time), task, reasons)
    if not reasons:
        return Sorted(events, batch, versions, [])
    good = np.ones(batch.num_rows, bool)
    good[list(reasons)] = False
    aside = [_rejected(batch, row, reasons[row], task) for row in sorted(reasons)]
    # rows that the events' own encoding rejected are gone from `events` already
    kept = events.select(good[own]), batch.filter(pa.array(good))
    return Sorted(*kept, None if versions is None else versions[good], aside)


def _schema(task: StreamTask) -> Schema:
    """The schema to encode with: the index's own, unless there will be several."""
    return (
        followed(task.store).at(task.version).schema if task.time is None else open_store(task.store).schema
    )


def _versions(column: pa.Array[Any], task: StreamTask, reasons: dict[int, str]) -> Any:
    """The version of each event's time, no newer than the pinned one; adds reasons where there is none."""
    assert task.time is not None
    encoded = Timestamp(task.time).encode(column)
    for row, reason in zip(encoded.bad.tolist(), encoded.reasons, strict=True):
        reasons.setdefault(row, reason)
    times = encoded.codes
    for row in _rows(times == MISSING):
        reasons.setdefault(row, f"an event must have a time in {task.time!r}")
    # what compact has removed since the batch was pinned is held; what was gone before is the same each time
    versions = np.minimum(open_store(task.store).versions_at(times), task.version)
    for row in _rows(versions < task.oldest):
        reasons.setdefault(
            row, f"the subscriptions of its time are gone; the oldest version is {task.oldest}"
        )
    return versions


def _rejected(batch: pa.RecordBatch, row: int, reason: str, task: StreamTask) -> dict[str, Any]:
    values = {name: batch.column(name)[row].as_py() for name in task.columns}
    place = values.pop(task.file) if task.file else None
    file = re.sub("^file:/+", "/", unquote(place)) if place else None
    line = values.pop(task.corrupt) if task.corrupt else None
    raw = line if line is not None else json.dumps(values, default=str)
    event = values[task.answer.event_id]
    return {"file": file, "event_id": None if event is None else str(event), "reason": reason, "raw": raw}


def _whole_numbers(texts: pa.Array[Any]) -> tuple[pa.Array[Any], list[int]]:
    """Ids that a text file has, as int64, and the rows that are something else."""
    trimmed = pc.utf8_trim_whitespace(texts)
    whole = pc.match_substring_regex(trimmed, r"^-?[0-9]{1,18}$").fill_null(False)
    numbers = pc.if_else(whole, trimmed, pa.scalar(None, pa.string())).cast(pa.int64())
    return numbers, _rows(_valid(texts) & ~whole.to_numpy(zero_copy_only=False))


def _rows(mask: Any) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _valid(column: pa.Array[Any]) -> Any:
    return pc.is_valid(column).to_numpy(zero_copy_only=False)
