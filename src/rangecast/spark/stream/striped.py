"""Streams against a store that is cut into stripes: each task holds the stripes that its events need.

    events --stripe of each--> shuffled --stripe at the pinned version--> matches

The stripes were built at some version (spark/stripe_files.py); a worker keeps an index of each stripe that it
was given events of, and brings it forward by what the changes since do to that stripe. When as much has
changed as a share of the whole, the workers rewrite the stripes, between two batches. Which stripes a
batch was matched with, and which task had which events, makes no difference to its matches: they are a
function of the events and of the pinned version, as they are without stripes.

A task sends each event to the index of its stripe by itself, so the shuffle decides only where a stripe is
held. Events that come as names of files are not shuffled: a task of theirs holds the stripes of its files'
events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from rangecast.engine import Index
from rangecast.errors import OptionError
from rangecast.model.events import Events
from rangecast.spark.cuts import stripe_of
from rangecast.spark.output import map_arrow
from rangecast.spark.stripes import StripeFiles, followed_stripe, newest_stripes, prepare_stripes
from rangecast.spark.version_policy import Pinned
from rangecast.spark.worker import open_store
from rangecast.store.store import Store
from rangecast.types.schema import Schema

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
