"""Which subscriptions objects enter, leave and stay in, as a stream: `rs.track`.

    events --micro-batch N--> pin N --by key, in order of time--> tracker of each part --> out/batch_id=N
                                      objects/N-1 is read            objects/N is written      commit N

An event is a state of an object (tracking/tracker.py). Objects are spread over a fixed number of *parts* by a
hash of their key, and a task has one part: it takes what was known of its objects after the batch before,
applies the events of this one in the order of their times, and writes the changes and what is known now into
new files. Nothing that a batch reads is ever changed, so a batch that is run again after a crash begins from
the same objects, finds the same events and the same version of the subscriptions, and gives the same changes;
its objects are put in the place of what the crash left before the batch is committed. What is known after the
last batch that is whole, and after the one before it, is kept.

    checkpoint/_rangecast/objects/12/part-3-....rct     what is known of the objects of part 3 after batch 12
    checkpoint/_rangecast/objects/12.json               which file has which part, and the newest time so far

Spark's own way, transformWithState, costs 14 to 17 us for a row and 72 for each entry of a map that it puts;
a batch here costs the writing of all that is known, about 30 bytes per object and 8 for each subscription
that it is in.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.durable.arrays import make_folder, sync_folder
from rangecast.durable.documents import read_document, write_document
from rangecast.errors import StorageError
from rangecast.loading import RejectedRow, RowBatch
from rangecast.loading.events import reject_rows
from rangecast.loading.formats import table_raw
from rangecast.loading.rejected import rejected_table
from rangecast.spark.output import column_named
from rangecast.spark.stream.ledger import Ledger, gather, put_folder
from rangecast.spark.stream.tasks import COUNTED, Sorted, StagedFile, StreamTask, sort_out
from rangecast.tracking import Tracker
from rangecast.types.attributes import MISSING

PART = "_rangecast_part"
TRACKED = T.StructType(
    [*COUNTED.fields, T.StructField("part", T.LongType()), T.StructField("newest", T.LongType())]
)
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Tracking:
    """What is tracked: the columns of keys and times, how long silent objects are known, and in how many
    parts."""

    key: str
    time: str
    parts: int
    expires: float | None = None
    stays: bool = False
    textual_keys: bool = False
    limit: int = 10_000_000


class KnownObjects(NamedTuple):
    """Where what is known of the objects of each part is, and the newest time of any event so far."""

    files: dict[int, str]
    newest: int | None

    @classmethod
    def after(cls, ledger: Ledger, batch: int) -> KnownObjects:
        """What was known after a batch; nothing before the first."""
        if batch < 0:
            return cls({}, None)
        found = read_document(_home(ledger) / f"{batch}.json")
        if found is None:
            raise StorageError(
                f"{_home(ledger) / f'{batch}.json'}: what was known of the objects after batch {batch} is "
                "gone; bring it back from a backup, or start afresh with an empty checkpoint and output"
            )
        folder = _home(ledger) / str(batch)
        return cls({int(part): str(folder / name) for part, name in found["files"].items()}, found["newest"])


def _home(ledger: Ledger) -> Path:
    return Path(ledger.checkpoint_state) / "objects"


def keep_objects(ledger: Ledger, batch: int, staged: Path, rows: Sequence[Any], before: KnownObjects) -> None:
    """Put what is known after a batch in its place, before the batch is committed."""
    files = {int(row.part): row.name for row in rows}
    times = [row.newest for row in rows if row.newest is not None]
    newest = max([*times, *([] if before.newest is None else [before.newest])], default=None)
    put_folder(gather(staged, files.values()), _home(ledger) / str(batch))
    write_document(_home(ledger) / f"{batch}.json", {"files": files, "newest": newest})
    sync_folder(_home(ledger))


def forget_batches(ledger: Ledger, batch: int) -> None:
    """Remove what was known after batches that no replay can ask for: all but this one and the one before."""
    for path in _home(ledger).iterdir():
        number = path.name.removesuffix(".json")
        if not number.isdigit() or int(number) < batch - 1:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def stage_objects(ledger: Ledger, batch: int) -> Path:
    """A new folder for the files of a batch; what earlier attempts left is removed."""
    home = _home(ledger)
    make_folder(home)
    for path in home.glob("tmp-*"):
        shutil.rmtree(path, ignore_errors=True)
    staged = home / f"tmp-{batch}-{uuid.uuid4().hex[:12]}"
    make_folder(staged)
    return staged


def track_frame(
    frame: DataFrame, task: StreamTask, tracking: Tracking, before: KnownObjects, staged: Path
) -> DataFrame:
    """One row for each part, of what its task wrote."""
    chosen = frame.select(*(column_named(name, frame.schema) for name in task.columns))
    key = column_named(tracking.key, chosen.schema)
    # an event without a key is rejected in part 0
    part = F.coalesce(F.pmod(F.xxhash64(key), F.lit(tracking.parts)), F.lit(0)).cast("long")
    spread = chosen.withColumn(PART, part)
    every = frame.sparkSession.range(tracking.parts).toDF(PART)
    work = track_part(task, tracking, before, str(staged))
    return every.groupBy(PART).cogroup(spread.groupBy(PART)).applyInArrow(work, TRACKED)


def track_part(
    task: StreamTask, tracking: Tracking, before: KnownObjects, staged: str
) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """The function that a worker calls for each part."""

    def work(parts: pa.Table, events: pa.Table) -> pa.Table:
        return run_part(task, tracking, before, Path(staged), int(parts.column(0)[0].as_py()), events)

    return work


def run_part(
    task: StreamTask, tracking: Tracking, before: KnownObjects, staged: Path, part: int, events: pa.Table
) -> pa.Table:
    """Apply the events of a part, write the changes and what is known now, and say what was written."""
    name = f"part-{part}-{uuid.uuid4().hex}"
    counted = dict.fromkeys(("events", "rows", "pairs", "rejected"), 0)
    newest = None
    (index,) = (found for found, _, _ in task.store.indexes(None, None, None))
    known = before.files.get(part)
    tracker = (
        Tracker(index, tracking.key, time=tracking.time, limit=tracking.limit)
        if known is None
        else Tracker.load(known, index, limit=tracking.limit)
    )
    with StagedFile(task.matches, name) as changes, StagedFile(task.rejects, name) as aside:
        if tracking.expires is not None and before.newest is not None:
            limit = before.newest - int(tracking.expires * _MICROSECONDS)
            silent = tracker.expire(dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=limit))
            counted["rows"] += len(silent)
            _write(changes, silent.to_arrow(pa.array([], _id_type(events, task))), tracking, task)
        table = events.drop_columns([PART]).combine_chunks()
        for batch in table.to_batches():
            for given in sort_out(batch, task):
                counted["events"] += len(given.events) + len(given.rejected)
                own, times, rejected = _in_order(given, task, tracking)
                if len(own.events):
                    newest = max(int(times.max()), newest if newest is not None else int(times.max()))
                    found = tracker.update(
                        own.events,
                        keys=own.table.column(tracking.key).combine_chunks(),
                        times=own.table.column(tracking.time).combine_chunks(),
                        stays=tracking.stays,
                    )
                    ids = own.table.column(task.answer.event_id)
                    counted["rows"] += len(found)
                    _write(changes, found.to_arrow(ids), tracking, task)
                    reason = f"late: {tracking.time!r} is before the last event of its {tracking.key!r}"
                    rejected += _rejected(own.table, dict.fromkeys(found.late.tolist(), reason), task)
                counted["rejected"] += len(rejected)
                for piece in rejected_table(rejected).to_batches():
                    aside.write(piece)
    counted["pairs"] = counted["rows"]
    tracker.save(staged / name)
    row = {"name": name, **counted, "bytes": changes.bytes + aside.bytes, "part": part, "newest": newest}
    fields = [(key, pa.string() if key == "name" else pa.int64()) for key in row]
    return pa.Table.from_pydict({key: [value] for key, value in row.items()}, pa.schema(fields))


def _id_type(events: pa.Table, task: StreamTask) -> pa.DataType:
    return events.schema.field(task.answer.event_id).type


def _in_order(given: Sorted, task: StreamTask, tracking: Tracking) -> tuple[Sorted, Any, list[RejectedRow]]:
    """The events of a part in the order of their times and ids, their times, and those that lack a key or a
    time among the rejected ones."""
    table = given.table
    encoded = task.store.schema.instants(tracking.time).encode(table.column(tracking.time))
    reasons = dict(zip(encoded.bad.tolist(), encoded.reasons, strict=True))
    for row in np.flatnonzero(encoded.codes == MISSING).tolist():
        reasons.setdefault(row, f"an event must have a time in {tracking.time!r}")
    for row in np.flatnonzero(np.asarray(pc.is_null(table.column(tracking.key)))).tolist():
        reasons.setdefault(row, f"an event must have a key in {tracking.key!r}")
    rejected = [*given.rejected, *_rejected(table, reasons, task)]
    good = np.ones(len(table), bool)
    good[list(reasons)] = False
    rows = np.flatnonzero(good)
    keyed = pa.table(
        {"time": encoded.codes[rows], "id": table.column(task.answer.event_id).take(pa.array(rows))}
    )
    order = pc.sort_indices(keyed, [("time", "ascending"), ("id", "ascending")]).to_numpy()
    rows = rows[order]
    chosen = given._replace(events=given.events.select(rows), table=table.take(pa.array(rows)))
    return chosen, encoded.codes[rows], rejected


def _rejected(table: pa.Table, reasons: dict[int, str], task: StreamTask) -> list[RejectedRow]:
    if not reasons:
        return []
    rows = RowBatch(table, None, None, table_raw(table))
    return list(reject_rows(rows, reasons, task.answer.event_id, None))


def _write(file: StagedFile, table: pa.Table, tracking: Tracking, task: StreamTask) -> None:
    """Write changes with the columns and types that the stream promised."""
    ids = pa.string() if task.answer.textual else pa.int64()
    keys = pa.string() if tracking.textual_keys else pa.int64()
    kinds = {tracking.key: keys, "change": pa.string(), "subscription_id": ids}
    columns = {
        name: column.cast(kinds[name]) if name in kinds else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    for batch in pa.table(columns).combine_chunks().to_batches():
        file.write(batch)


def default_parts(frame: DataFrame) -> int:
    """As many parts as Spark would shuffle into, unless that is many more than there are processors."""
    told = frame.sparkSession.conf.get("spark.sql.shuffle.partitions", "0")
    return max(1, min(int(told or 0) or 8, 2 * (os.cpu_count() or 4)))
