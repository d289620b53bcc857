"""The placement for an index larger than a worker's memory: stripes, each an index of its own.

spark/cuts.py says how the space is cut, spark/stripe_files.py how stripes are built and kept. Events are
routed in the workers, by the same encoding that matches them, then shuffled so that a worker maps only the
stripes it needs. A stripe with a large share of the events is salted: its events are spread over several
tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from rangecast.engine import Index
from rangecast.errors import OptionError
from rangecast.loading.pace import Pace
from rangecast.memory import available_bytes, readable
from rangecast.model.events import Events
from rangecast.spark.cuts import stripe_of
from rangecast.spark.output import Answer, map_arrow
from rangecast.spark.snapshots import Snapshot, store_of
from rangecast.spark.stripes import StripeFiles, newest_stripes, prepare_stripes, stripes_of_snapshot
from rangecast.spark.worker import answers, mapped, with_ids
from rangecast.store.store import Store

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
