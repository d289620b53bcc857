"""One micro-batch of a stream: pin, match, put in place, commit.

hold      the version is kept by compact until the batch is whole
pin       put-if-absent; a batch that is run again takes the pin of the first time
match     workers write the files of matches and rejects into a folder aside
deliver   the folder is renamed to batch_id=N, or its matches go to the sink
commit    a line in commits.jsonl; from here on, running the batch again does nothing
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.errors import OptionError, StorageError
from rangecast.spark.ledger import Commit, Ledger, Pin, now, put_folder
from rangecast.spark.stream_tasks import COUNTED, StreamTask, stream_task
from rangecast.spark.worker import Answer
from rangecast.store import Store

Deliver = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class StreamPlan:
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
    whole_ids: bool = False

    @property
    def hold(self) -> str:
        """The name under which the store keeps versions for this stream."""
        return f"stream-{self.stream[:12]}"


def run_batch(plan: StreamPlan, frame: DataFrame, batch: int) -> None:
    """What foreachBatch does: all of a batch, once, however often it is called."""
    began = time.perf_counter()
    ledger = plan.ledger
    last = ledger.last()
    if batch == last:
        return  # whole, but Spark was stopped before it wrote that down
    _check_order(ledger, batch, last)
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
        whole_ids=plan.whole_ids,
    )
    chosen = frame.select(*[F.col(f"`{name.replace('`', '``')}`") for name in task.columns])
    counted = chosen.mapInArrow(stream_task(task), COUNTED).collect()
    matched = time.perf_counter()
    _drop_others(matches, {row.name for row in counted})
    _drop_others(rejects, {row.name for row in counted})
    put_folder(rejects, ledger.rejected(batch))
    if plan.deliver is None:
        put_folder(matches, ledger.output(batch))
    else:
        plan.deliver(read_part(frame, matches, plan.fields), batch)
    delivered = time.perf_counter()
    totals = {key: sum(row[key] for row in counted) for key in COUNTED.names if key != "name"}
    seconds = {"plan": planned - began, "match": matched - planned, "deliver": delivered - matched}
    rounded = {name: round(taken, 4) for name, taken in seconds.items()}
    ledger.commit(Commit(batch, pin.version, **totals, newest=store.version, time=now(), seconds=rounded))
    ledger.unstage(batch)


def pin_batch(plan: StreamPlan, store: Store, batch: int) -> Pin:
    """The version for a batch: the one that it had before, or the newest."""
    check_store(plan, store)
    pin = plan.ledger.pin(batch)
    if pin is None:
        pin = plan.ledger.put_pin(Pin(batch, store.id, store.version, time=now()))
    check_pin(plan, store, pin)
    return pin


def check_store(plan: StreamPlan, store: Store) -> None:
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


def check_pin(plan: StreamPlan, store: Store, pin: Pin) -> None:
    """Raise when the version that a batch needs is not there."""
    if pin.store == store.id and store.oldest <= pin.version <= store.version:
        return
    gone = f"the oldest is {store.oldest}" if pin.version < store.oldest else f"it has {store.version}"
    raise StorageError(
        f"{store.path}: batch {pin.batch} was begun with version {pin.version} of the store, which is gone "
        f"({gone}): bring back the snapshot from a backup; or, if it may be matched against the newest "
        f"version instead, delete {plan.ledger.own / 'pins' / f'{pin.batch}.json'} and start again"
    )


@functools.cache
def open_store(path: str) -> Store:
    """A store that is opened once per process; it takes in what others write by itself."""
    return Store.open(path)


def read_part(frame: DataFrame, folder: Path, fields: dict[str, Any]) -> DataFrame:
    """The matches that the workers have written, for a sink of the user's."""
    return frame.sparkSession.read.schema(T.StructType.fromJson(fields)).parquet(str(folder))


def _check_order(ledger: Ledger, batch: int, last: int) -> None:
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


def _drop_others(folder: Path, names: set[str]) -> None:
    """Remove files of tasks that were run twice."""
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in names:
                path.unlink()
