"""One micro-batch of a stream: pin, match, put in place, commit.

hold      the version is kept by compact until the batch is whole
pin       put-if-absent; a batch that is run again takes the pin of the first time
match     workers write the files of matches and rejects into a folder aside
deliver   the folder is renamed to batch_id=N, or its matches go to the sink
commit    a line in commits.jsonl; from here on, running the batch again does nothing
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from rangecast.errors import OptionError, StorageError
from rangecast.spark.stream.ledger import Commit, Ledger, Pin, gather, now, put_folder
from rangecast.spark.stream.tasks import COUNTED, StreamTask, stream_task
from rangecast.spark.worker import Answer
from rangecast.spark.worker_index import open_store
from rangecast.store.lock import LockedError
from rangecast.store.store import Store

Deliver = Callable[[DataFrame, int], None]
_PUBLISH_SECONDS = 5.0
_log = logging.getLogger("rangecast.spark")


@dataclass(frozen=True)
class StreamRun:
    """A stream as plain data: over Connect it goes to another process."""

    stream: str
    store: str
    store_id: str
    ledger: Ledger
    answer: Answer
    fields: dict[str, Any]
    deliver: Deliver | None = None
    file: str | None = None
    corrupt: str | None = None
    files: str | None = None
    id_type: str | None = None
    time: str | None = None
    shortest_first: bool = False

    @property
    def hold(self) -> str:
        """The name under which the store keeps versions for this stream."""
        return f"stream-{self.stream[:12]}"


def run_batch(plan: StreamRun, frame: DataFrame, batch: int) -> None:
    """What foreachBatch does: all of a batch, once, however often it is called."""
    began = time.perf_counter()
    ledger = plan.ledger
    check_order(ledger, batch)
    if batch == ledger.last():
        return  # whole, but Spark was stopped before it wrote that down
    store = open_store(plan.store)
    pin = pin_batch(plan, store, batch)
    planned = time.perf_counter()
    matches, rejects = ledger.stage(batch)
    task = StreamTask(
        store=plan.store,
        version=pin.version,
        answer=plan.answer,
        matches=str(matches),
        rejects=str(rejects),
        file=plan.file,
        corrupt=plan.corrupt,
        files=plan.files,
        id_type=plan.id_type,
        types=_kept_types(plan) if plan.files else {},
        time=plan.time,
        oldest=pin.oldest or 0,
        shortest_first=plan.shortest_first,
    )
    chosen = frame.select(*[F.col(f"`{name.replace('`', '``')}`") for name in task.columns])
    counted = chosen.mapInArrow(stream_task(task), COUNTED).collect()
    matched = time.perf_counter()
    found = gather(matches, [row.name for row in counted if row.rows])
    aside = [row.name for row in counted if row.rejected]
    if aside or ledger.rejected(batch).exists():
        put_folder(gather(rejects, aside), ledger.rejected(batch))
    if plan.deliver is None:
        put_folder(found, ledger.output(batch))
    else:
        plan.deliver(read_part(frame, found, plan.fields), batch)
    delivered = time.perf_counter()
    totals = {key: sum(row[key] for row in counted) for key in COUNTED.names if key != "name"}
    seconds = {"plan": planned - began, "match": matched - planned, "deliver": delivered - matched}
    rounded = {name: round(taken, 4) for name, taken in seconds.items()}
    ledger.commit(Commit(batch, pin.version, **totals, newest=store.version, time=now(), seconds=rounded))
    ledger.unstage(batch)
    if plan.time is None:
        # a replay of a batch that is whole does nothing, so it needs no version
        store.release(plan.hold)


def _kept_types(plan: StreamRun) -> dict[str, pa.DataType]:
    """The types that the first file gave to the columns that come along."""
    fields = to_arrow_schema(T.StructType.fromJson(plan.fields), timezone="UTC")
    return {name: fields.field(name).type for name in plan.answer.keep}


def pin_batch(plan: StreamRun, store: Store, batch: int) -> Pin:
    """The version for a batch: the one that it had before, or the newest; held until it is whole."""
    check_store(plan, store)
    note = f"batch {batch} of the stream with the checkpoint {plan.ledger.checkpoint}"
    known = plan.ledger.pin(batch)
    if known is not None:
        check_pin(plan, store, known)
        if plan.time is None:
            store.hold(plan.hold, known.version, note)
        return known
    with contextlib.suppress(LockedError):
        # a long load by another writer; what is due goes with a later batch
        store.expire()
    publish_beside(plan.store)
    if plan.time is None:
        pin = Pin(batch, store.id, store.hold(plan.hold, note=note), time=now())
    else:
        oldest = hold_history(plan, store)
        pin = _pin_by_time(store, batch, oldest)
    return plan.ledger.put_pin(pin)


def _pin_by_time(store: Store, batch: int, oldest: int) -> Pin:
    """The newest version when nobody writes: a change under way has a time before now and must be seen."""
    while True:
        try:
            with store.writing():
                return Pin(batch, store.id, store.version, oldest, now())
        except LockedError:
            _log.warning("%s: batch %d waits for another process that writes", store.path, batch)


def hold_history(plan: StreamRun, store: Store) -> int:
    """Keep all versions that there are, for events of any time; gives the oldest."""
    held = [hold.version for hold in store.holds() if hold.name == plan.hold]
    if held:
        return held[0]
    note = f"by event time, the stream with the checkpoint {plan.ledger.checkpoint}"
    return store.hold(plan.hold, store.oldest, note)


_published: dict[str, tuple[float, threading.Thread]] = {}


def publish_beside(path: str) -> None:
    """Make a snapshot in a thread when enough has changed, so that new workers have little to apply."""
    last, thread = _published.get(path, (-_PUBLISH_SECONDS, None))
    if time.monotonic() - last < _PUBLISH_SECONDS or (thread is not None and thread.is_alive()):
        return
    thread = threading.Thread(target=_publish, args=(path,), daemon=True, name="rangecast-publish")
    _published[path] = time.monotonic(), thread
    thread.start()


def _publish(path: str) -> None:
    try:
        open_store(path).publish_if_due()
    except (StorageError, OSError) as error:
        # the stream goes on without it
        _log.warning("%s: no snapshot could be made: %s", path, error)


def check_store(plan: StreamRun, store: Store) -> None:
    """Raise when the store is not the one that the stream was begun with, or its ids have another type."""
    if store.id != plan.store_id:
        raise StorageError(
            f"{store.path}: was replaced by another store while the stream ran; bring the old one back, or "
            "begin anew with an empty checkpoint and output"
        )
    if store.ids_are_text not in (None, plan.answer.textual):
        kinds = ("strings", "whole numbers") if store.ids_are_text else ("whole numbers", "strings")
        raise StorageError(
            f"{store.path}: its ids are {kinds[0]}, but the stream was begun for {kinds[1]}; begin anew with "
            "an empty checkpoint and output"
        )


def check_pin(plan: StreamRun, store: Store, pin: Pin) -> None:
    """Raise when the version that a batch needs is not there."""
    needed = pin.version if pin.oldest is None else pin.oldest
    if pin.store == store.id and store.oldest <= needed <= store.version:
        return
    gone = f"the oldest is {store.oldest}" if needed < store.oldest else f"it has {store.version}"
    raise StorageError(
        f"{store.path}: batch {pin.batch} was begun with version {needed} of the store, which is gone "
        f"({gone}): bring back the snapshot from a backup; or, if it may be matched against the newest "
        f"version instead, delete {plan.ledger.own / 'pins' / f'{pin.batch}.json'} and start again"
    )


def read_part(frame: DataFrame, folder: Path, fields: dict[str, Any]) -> DataFrame:
    """The matches that the workers have written, for a sink of the user's."""
    return frame.sparkSession.read.schema(T.StructType.fromJson(fields)).parquet(str(folder))


def check_order(ledger: Ledger, batch: int) -> None:
    """Raise when the next batch does not follow on those that are whole."""
    last = ledger.last()
    if batch < last:
        raise OptionError(
            f"{ledger.checkpoint}: Spark begins with batch {batch}, but {ledger.place.parent} has all up to "
            f"{last}: the checkpoint is older than the output; bring back the newer one, or begin anew with "
            "an empty checkpoint and output"
        )
    if batch > last + 1:
        raise OptionError(
            f"{ledger.place.parent}: has batches up to {last}, but Spark goes on with {batch}: output is "
            "missing; bring it back, or begin anew with an empty checkpoint and output"
        )
