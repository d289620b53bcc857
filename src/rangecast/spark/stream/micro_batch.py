"""One micro-batch of a stream: pin, match, put in place, commit.

hold      the version is kept by compact until the batch is whole
pin       put-if-absent; a batch that is run again takes the pin of the first time
match     workers write the files of matches and rejects aside, or into a bucket under new names
deliver   a folder is renamed to batch_id=N, or the matches go to the sink; those for a topic are first
          put in a place where a batch that is run again finds them (kafka_sink.py)
commit    says that the batch is whole; from here on, running it again does nothing
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from rangecast.durable.bucket import is_address, place_of
from rangecast.errors import OptionError, StorageError
from rangecast.spark.output import column_named, map_arrow
from rangecast.spark.stream.kafka_sink import KafkaSink
from rangecast.spark.stream.ledger import Commit, GatheredBatch, Ledger, Pin, now
from rangecast.spark.stream.tasks import (
    COUNTED,
    StreamEvents,
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

SINKS = ("parquet", "console")
Deliver = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class StreamOptions:
    """Where a stream keeps its progress and what becomes of its matches, as whoever starts it says.

    It is checked when it is made; afterwards places are absolute paths or addresses.
    """

    checkpoint: str | os.PathLike[str]
    out: str | os.PathLike[str] | None = None
    rejects: str | os.PathLike[str] | None = None
    sink: str | Deliver | KafkaSink = "parquet"
    trigger: Mapping[str, Any] | None = None
    query_name: str | None = None
    stripes: int | None = None

    def __post_init__(self) -> None:
        if self.stripes is not None and self.stripes < 2:
            raise OptionError(f"stripes must be at least 2, got {self.stripes}")
        self._check_sink()
        for name in ("checkpoint", "out", "rejects"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else absolute_place(given, name))
        ledger = self.ledger
        if ledger.rejects is not None and is_address(ledger.out or ledger.checkpoint):
            raise OptionError(
                "rejects= names a folder; with matches or a checkpoint in a bucket they are in _rejects "
                f"there, got {ledger.rejects}"
            )

    def _check_sink(self) -> None:
        is_known = self.sink in SINKS if isinstance(self.sink, str) else self._takes_matches
        if not is_known:
            raise OptionError(
                f"sink must be {' or '.join(map(repr, SINKS))}, rs.kafka_sink(...) or a function, got "
                f"{self.sink!r}"
            )
        if self.sink == "parquet" and self.out is None:
            raise OptionError("match_stream needs a folder for the matches (out=), or another sink")
        if not isinstance(self.sink, str) and self.out is not None:
            what = "a topic" if isinstance(self.sink, KafkaSink) else "a function"
            raise OptionError(f"out= goes with sink='parquet'; {what} gets the matches instead")

    @property
    def _takes_matches(self) -> bool:
        return isinstance(self.sink, KafkaSink) or callable(self.sink)

    @property
    def ledger(self) -> Ledger:
        """What the stream writes down, at these places."""
        out = None if self.out is None else str(self.out)
        rejects = None if self.rejects is None else str(self.rejects)
        return Ledger(str(self.checkpoint), out, rejects)

    @property
    def deliver(self) -> Deliver | KafkaSink | None:
        """What is done with the matches of a batch; None where they become files of `out`."""
        if isinstance(self.sink, str):
            return _print if self.sink == "console" else None
        return self.sink


def absolute_place(given: str | os.PathLike[str], option: str) -> str:
    """The absolute path of a folder that an option names, or the address of one in a bucket."""
    try:
        text = place_of(given)
    except OptionError as error:
        raise OptionError(f"{option}: {error}") from None
    return text.rstrip("/") if is_address(text) else str(Path(text).absolute())


def _print(matches: DataFrame, batch: int) -> None:
    print(f"batch {batch}")
    matches.show(truncate=False)


@dataclass(frozen=True)
class Stream:
    """A stream as plain data: over Connect it goes to another process."""

    id: str
    store: str
    store_id: str
    options: StreamOptions
    versions: VersionPolicy
    events: StreamEvents
    fields: dict[str, Any]
    tracking: Tracking | None = None

    @property
    def ledger(self) -> Ledger:
        """What the stream has written down."""
        return self.options.ledger

    @property
    def holder(self) -> str:
        """The name under which the store keeps versions for this stream."""
        return f"stream-{self.id[:12]}"


def run_batch(stream: Stream, frame: DataFrame, batch: int) -> None:
    """What foreachBatch does: all of a batch, once, however often it is called."""
    began = time.perf_counter()
    ledger = stream.ledger
    deliver = stream.options.deliver
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
        events=stream.events,
        matches=staged.matches,
        rejects=staged.rejects,
    )
    counted = (
        _matched(stream, frame, task) if stream.tracking is None else tracked(stream, frame, task, batch)
    )
    matches = [row.name for row in counted if row.rows]
    found = files.gather(batch, staged, matches, [row.name for row in counted if row.rejected])
    return found, {key: sum(row[key] for row in counted) for key in COUNTED.names if key != "name"}


def _pinned_store(stream: Stream, frame: DataFrame, pin: Pin) -> PinnedStore | StripedStore:
    stripes = stream.options.stripes
    if stripes is None:
        return PinnedStore(stream.store, pin.pinned, stream.versions.time)
    files = stripes_for(frame.sparkSession, open_store(stream.store), pin.version, stripes)
    return StripedStore(stream.store, pin.pinned, files)


def _matched(stream: Stream, frame: DataFrame, task: StreamTask) -> list[Any]:
    chosen = frame.select(*(column_named(name, frame.schema) for name in task.columns))
    if isinstance(task.store, StripedStore) and not task.events.are_files:
        chosen = by_stripe(chosen, task.store, task.answer.attributes)
    return list(map_arrow(chosen, stream_task(task), COUNTED).collect())


def tracked(stream: Stream, frame: DataFrame, task: StreamTask, batch: int) -> list[Any]:
    """What the objects of a batch entered and left; what is known of them then is in its place."""
    assert stream.tracking is not None
    before = KnownObjects.after(stream.ledger, batch - 1)
    staged = stage_objects(stream.ledger, batch)
    counted = track_frame(frame, task, stream.tracking, before, staged).collect()
    keep_objects(stream.ledger, batch, staged, counted, before)
    return list(counted)


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
    if store.ids_are_text not in (None, stream.events.answer.textual):
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
