"""One micro-batch of a stream: pin, match, put in place, commit.

hold      the version is kept by compact until the batch is whole
pin       put-if-absent; a batch that is run again takes the pin of the first time
match     workers write the files of matches and rejects aside, or into a bucket under new names
deliver   a folder is renamed to batch_id=N, or the matches go to the sink; those for a topic are first
          put in a place where a batch that is run again finds them (kafka_sink.py)
commit    says that the batch is whole; from here on, running it again does nothing
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from rangecast.errors import OptionError, StorageError
from rangecast.spark.output import Answer, column_named, map_arrow
from rangecast.spark.stream.kafka_sink import KafkaSink
from rangecast.spark.stream.ledger import Commit, GatheredBatch, Ledger, Pin, now
from rangecast.spark.stream.tasks import (
    COUNTED,
    StreamTask,
    StripedStore,
    by_stripe,
    stream_task,
    stripes_for,
)
from rangecast.spark.stream.tracking import (
    KnownObjects,
    Tracking,
    forget_batches,
    keep_objects,
    stage_objects,
    track_frame,
)
from rangecast.spark.version_policy import PinnedStore, VersionPolicy, check_pinned
from rangecast.spark.worker import open_store
from rangecast.store.store import Store

Deliver = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Stream:
    """A stream as plain data: over Connect it goes to another process."""

    id: str
    store: str
    store_id: str
    ledger: Ledger
    versions: VersionPolicy
    answer: Answer
    fields: dict[str, Any]
    deliver: Deliver | KafkaSink | None = None
    file: str | None = None
    corrupt: str | None = None
    files: str | None = None
    id_type: str | None = None
    tracking: Tracking | None = None
    stripes: int | None = None

    @property
    def holder(self) -> str:
        """The name under which the store keeps versions for this stream."""
        return f"stream-{self.id[:12]}"


def run_batch(stream: Stream, frame: DataFrame, batch: int) -> None:
    """What foreachBatch does: all of a batch, once, however often it is called."""
    began = time.perf_counter()
    ledger, deliver = stream.ledger, stream.deliver
    if check_order(ledger, batch):
        ledger.clear(batch)
        return  # whole, but Spark was stopped before it wrote that down
    store = open_store(stream.store)
    pin = pin_batch(stream, store, batch)
    planned = time.perf_counter()
    # what was matched and is being sent must not be matched again, for other files would be other tokens
    found, totals = ledger.ready(batch) or _match_batch(stream, frame, batch, pin)
    matched = time.perf_counter()
    if deliver is None:
        ledger.files.put(batch, found)
    elif isinstance(deliver, KafkaSink):
        version = None if stream.versions.time is not None else pin.version
        deliver.send(stream.id, batch, ledger.make_ready(batch, found, totals), version)
    else:
        fields = T.StructType.fromJson(stream.fields)
        deliver(ledger.files.frame(frame.sparkSession, found, fields), batch)
    delivered = time.perf_counter()
    seconds = {"plan": planned - began, "match": matched - planned, "deliver": delivered - matched}
    rounded = {name: round(taken, 4) for name, taken in seconds.items()}
    # what went to a sink need not stay
    parts = found.parts if ledger.out is not None else ()
    commit = Commit(
        batch,
        pin.version,
        newest=store.version,
        time=now(),
        seconds=rounded,
        parts=parts,
        rejected_parts=found.rejected_parts,
        **totals,
    )
    # where another driver has done this batch meanwhile, with the same pin, what it wrote counts
    ledger.clear(batch, commit if ledger.commit(commit) else None)
    if stream.tracking is not None:
        forget_batches(ledger, batch)
    # a replay of a batch that is whole does nothing, so it needs no version
    stream.versions.release(store, stream.holder)


def _match_batch(
    stream: Stream, frame: DataFrame, batch: int, pin: Pin
) -> tuple[GatheredBatch, dict[str, Any]]:
    """Match a batch: its matches, its rejects in their place, and what was counted."""
    files = stream.ledger.files
    staged = files.stage(batch)
    task = StreamTask(
        store=_pinned_store(stream, frame, pin),
        answer=stream.answer,
        matches=staged.matches,
        rejects=staged.rejects,
        file=stream.file,
        corrupt=stream.corrupt,
        files=stream.files,
        id_type=stream.id_type,
        types=_kept_types(stream) if stream.files else {},
    )
    counted = (
        _matched(stream, frame, task) if stream.tracking is None else tracked(stream, frame, task, batch)
    )
    matches = [row.name for row in counted if row.rows]
    found = files.gather(batch, staged, matches, [row.name for row in counted if row.rejected])
    return found, {key: sum(row[key] for row in counted) for key in COUNTED.names if key != "name"}


def _pinned_store(stream: Stream, frame: DataFrame, pin: Pin) -> PinnedStore | StripedStore:
    if stream.stripes is None:
        return PinnedStore(stream.store, pin.pinned, stream.versions.time)
    files = stripes_for(frame.sparkSession, open_store(stream.store), pin.version, stream.stripes)
    return StripedStore(stream.store, pin.pinned, files)


def _matched(stream: Stream, frame: DataFrame, task: StreamTask) -> list[Any]:
    chosen = frame.select(*(column_named(name, frame.schema) for name in task.columns))
    if isinstance(task.store, StripedStore) and task.files is None:
        chosen = by_stripe(chosen, task.store, stream.answer.attributes)
    return list(map_arrow(chosen, stream_task(task), COUNTED).collect())


def tracked(stream: Stream, frame: DataFrame, task: StreamTask, batch: int) -> list[Any]:
    """What the objects of a batch entered and left; what is known of them then is in its place."""
    assert stream.tracking is not None
    before = KnownObjects.after(stream.ledger, batch - 1)
    staged = stage_objects(stream.ledger, batch)
    counted = track_frame(frame, task, stream.tracking, before, staged).collect()
    keep_objects(stream.ledger, batch, staged, counted, before)
    return list(counted)


def _kept_types(stream: Stream) -> dict[str, pa.DataType]:
    """The types that the first file gave to the columns that come along."""
    fields = to_arrow_schema(T.StructType.fromJson(stream.fields), timezone="UTC")
    return {name: fields.field(name).type for name in stream.answer.keep}


def pin_batch(stream: Stream, store: Store, batch: int) -> Pin:
    """What a batch is matched against: what it was before, or what is chosen now; held until it is whole."""
    check_store(stream, store)
    note = f"batch {batch} of the stream with the checkpoint {stream.ledger.checkpoint}"
    known = stream.ledger.pin(batch)
    if known is not None:
        check_pin(stream, store, known)
        stream.versions.hold_again(store, stream.holder, known.pinned, note)
        return known
    version, oldest = stream.versions.pin(store, stream.holder, note)
    return stream.ledger.put_pin(Pin(batch, store.id, version, oldest, now()))


def check_store(stream: Stream, store: Store) -> None:
    """Raise when the store is not the one that the stream was begun with, or its ids have another type."""
    if store.id != stream.store_id:
        raise StorageError(
            f"{store.path}: was replaced by another store while the stream ran; bring the old one back, or "
            "start afresh with an empty checkpoint and output"
        )
    if store.ids_are_text not in (None, stream.answer.textual):
        kinds = ("strings", "whole numbers") if store.ids_are_text else ("whole numbers", "strings")
        raise StorageError(
            f"{store.path}: its ids are {kinds[0]}, but the stream was begun for {kinds[1]}; start afresh "
            "with an empty checkpoint and output"
        )


def check_pin(stream: Stream, store: Store, pin: Pin) -> None:
    """Raise when the version that a batch needs is not there."""
    otherwise = (
        "if it may be matched against the newest version instead, delete "
        f"{stream.ledger.pin_path(pin.batch)} and start again"
    )
    check_pinned(store, pin.pinned, f"batch {pin.batch}", otherwise)


def check_order(ledger: Ledger, batch: int) -> bool:
    """Raise when the next batch does not follow on those that are whole; says whether it is the last."""
    last, out = ledger.last(), ledger.output_state.parent
    if batch < last:
        raise OptionError(
            f"{ledger.checkpoint}: Spark begins with batch {batch}, but {out} has all up to "
            f"{last}: the checkpoint is older than the output; bring back the newer one, or start afresh "
            "with an empty checkpoint and output"
        )
    if batch > last + 1:
        raise OptionError(
            f"{out}: has batches up to {last}, but Spark goes on with {batch}: output is "
            "missing; bring it back, or start afresh with an empty checkpoint and output"
        )
    return batch == last
