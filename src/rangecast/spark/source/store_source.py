"""What every source does with its store: a version for each DataFrame and micro-batch, which offsets say.

A source adds where the events are: their options, their part of the offset, their tasks.

    part of the offset   meaning
    version              that of the subscriptions which the last events were matched against
    oldest               the oldest version of then; events of an older time are rejected (event-time only)
    store, stream        ids: a checkpoint goes with one store, and has one name

A version is held in the store (`Store.hold`) from when it is planned with until its micro-batch is done, also
while the stream is stopped; Spark says so when it plans the next one.
"""

from __future__ import annotations

import dataclasses
import heapq
from typing import Any, Generic, TypeVar

from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from rangecast.errors import StorageError
from rangecast.spark.source.options import check_fields
from rangecast.spark.version_policy import Pinned, check_newer, check_pinned
from rangecast.store.store import Store

Offset = dict[str, Any]
Input = TypeVar("Input")


class StoreSource(DataSource):
    """Settings with a store, an output and a version policy, and the version of now."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        settings = self.read_settings(options)
        store = Store.open(settings.store)
        self.settings = dataclasses.replace(settings, versions=settings.versions.on(store.schema))
        # a DataFrame that is evaluated twice gives the same answer twice
        self.pinned: Pinned = self.settings.versions.now(store)
        if settings.output.order is not None:
            settings.output.check_index(store.index(verify=None))

    @staticmethod
    def read_settings(options: Any) -> Any:
        """The options of Spark, checked."""
        raise NotImplementedError


class StoreReader(DataSourceReader):
    """All events of now, against the version that was the newest when the DataFrame was made."""

    def __init__(self, source: StoreSource, fields: T.StructType) -> None:
        self.settings, self.pinned, self.fields = source.settings, source.pinned, fields
        check_fields(self.settings.output, Store.open(self.settings.store), fields)


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[Input]):
    """Plans micro-batches in a process of the driver's, and reads them in the workers."""

    def __init__(self, source: StoreSource, fields: T.StructType) -> None:
        self.settings, self.fields = source.settings, fields
        self._opened: tuple[Store, Input] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def _open(self) -> tuple[Store, Input]:
        if self._opened is None:
            store = Store.open(self.settings.store)
            check_fields(self.settings.output, store, self.fields)
            self._opened = store, self._open_input()
        return self._opened

    def _open_input(self) -> Input:
        """Where the events are."""
        raise NotImplementedError

    def _check_input(self, offset: Offset) -> None:
        """Refuse a checkpoint that goes with other events."""
        raise NotImplementedError

    @property
    def _note(self) -> str:
        """What holds versions, in words."""
        raise NotImplementedError

    def _check(self, offset: Offset) -> None:
        """Refuse a checkpoint that belongs to another store or to other events."""
        store, _ = self._open()
        if offset.get("store") != store.id:
            raise StorageError(
                f"{store.path}: is not the store that the checkpoint was made with (that has the id "
                f"{offset.get('store')}, this {store.id}); name that one, or a new checkpoint and output"
            )
        self._check_input(offset)
        check_newer(store, offset["version"])

    def _pin(self, start: Offset) -> dict[str, int]:
        """The version for the next micro-batch, as a part of its offset."""
        store, _ = self._open()
        pinned: Pinned = self.settings.versions.pin(store, _holder_of(start), self._note)
        return {name: value for name, value in pinned._asdict().items() if value is not None}

    def _pinned(self, end: Offset) -> Pinned:
        """The version of a micro-batch that is planned."""
        store, _ = self._open()
        self._check(end)
        pinned = _pinned_of(end)
        check_pinned(store, pinned, "a micro-batch", "start afresh with an empty checkpoint and output")
        return pinned

    def commit(self, end: Offset) -> None:
        store, _ = self._open()
        self.settings.versions.advance(store, _holder_of(end), _pinned_of(end), self._note)


def _holder_of(offset: Offset) -> str:
    """The name under which the store keeps versions for a stream."""
    return f"source-{offset['stream'][:12]}"


def _pinned_of(offset: Offset) -> Pinned:
    return Pinned(offset["version"], offset.get("oldest"))


def share_out(pieces: list[tuple[int, Any]], tasks: int) -> list[list[Any]]:
    """Pieces with their sizes, shared out so that tasks have about as much each.

    >>> share_out([(5, "a"), (2, "b"), (4, "c")], 2)
    [['a'], ['c', 'b']]
    """
    loads: list[tuple[int, int]] = [(0, number) for number in range(min(tasks, len(pieces)))]
    shares: list[list[Any]] = [[] for _ in loads]
    for size, piece in sorted(pieces, key=lambda each: -each[0]):
        load, number = heapq.heappop(loads)
        shares[number].append(piece)
        heapq.heappush(loads, (load + size, number))
    return shares
