"""The source "rangecast": a DataFrame of matches, in batch or as a stream, matched while it is read.

    events/  --files in order of arrival-->  offset {files, version}  --tasks-->  Arrow, match  -->  matches
    store/   --newest version when planned-->

No row of an event crosses into the JVM: Spark hands out files, workers read them with Arrow and give
the pairs. Each micro-batch is two offsets in Spark's own log, so it is fixed before anything is read
which files it has and which version of the subscriptions they are matched against; done again after
a crash, it gives the same rows. With a sink that takes a batch once (Spark's own Parquet sink), every
event is matched exactly once.

    offset   meaning
    files    how many files of the log of arrivals (arrivals.py) were read
    log      its id: a checkpoint goes with one
    version, oldest, store, stream   as those of every source (source.py)

Where there is no new file the offset stays as it was, so a change of subscriptions alone makes no
micro-batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from rangecast.errors import OptionError, StorageError
from rangecast.loading import format_of
from rangecast.spark.batch.file_tasks import Unit
from rangecast.spark.batch.files import check_files, list_files, units_of
from rangecast.spark.source.arrivals import Arrival, Arrivals
from rangecast.spark.source.options import Settings, check_fields, infer_fields, read_options
from rangecast.spark.source.tasks import UNKNOWN_FORMAT, Task, read_task
from rangecast.spark.version_policy import Pinned, check_newer, check_pinned
from rangecast.store.store import Store

# What every source does with its store: a version for each DataFrame and micro-batch, which offsets say.
#
# A source adds where the events are: their options, their part of the offset, their tasks.
#
#     part of the offset   meaning
#     version              that of the subscriptions which the last events were matched against
#     oldest               the oldest version of then; events of an older time are rejected (event-time only)
#     store, stream        ids: a checkpoint goes with one store, and has one name
#
# A version is held in the store (`Store.hold`) from when it is planned with until its micro-batch is done,
# also while the stream is stopped; Spark says so when it plans the next one.

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


# below this a Parquet file is one piece: reading its footer on the driver costs more than it gains
_SPLIT_BYTES = 32 << 20


def register_source(spark: SparkSession) -> None:
    """Make `format("rangecast")` known to a session, for `spark.read` and `spark.readStream`."""
    spark.dataSource.register(RangecastSource)


class RangecastSource(StoreSource):
    """What Spark asks for by the name "rangecast"; options.py has the options."""

    read_settings = staticmethod(read_options)

    @classmethod
    def name(cls) -> str:
        return "rangecast"

    def schema(self) -> T.StructType:
        return infer_fields(self.settings, Store.open(self.settings.store))

    def reader(self, schema: T.StructType) -> DataSourceReader:
        return _Reader(self, schema)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        return _StreamReader(self, schema)


class _Reader(StoreReader):
    def partitions(self) -> list[Task]:
        settings = self.settings
        files = list_files(settings.events)
        kinds = {path: format_of(path, settings.format) for path in files}
        schema = Store.open(settings.store).schema
        check_files(files, kinds, schema, settings.answer(schema, self.fields))
        found = [(Arrival(path, *_stamp(path)), kinds[path]) for path in files]
        return list(_tasks(f"read-{uuid.uuid4().hex}", found, settings, self.pinned))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self.settings, self.fields)


class _StreamReader(StoreStreamReader[Arrivals]):
    def __init__(self, source: RangecastSource, fields: T.StructType) -> None:
        super().__init__(source, fields)
        self.target: int | None = None

    def _open_input(self) -> Arrivals:
        return Arrivals(Path(self.settings.state), self.settings.events)

    def initialOffset(self) -> Offset:
        store, arrivals = self._open()
        return {"files": 0, "version": 0, "store": store.id, "log": arrivals.id, "stream": uuid.uuid4().hex}

    def getDefaultReadLimit(self) -> ReadLimit:
        # with both limits this names one of them; latestOffset keeps both
        if self.settings.max_files is not None:
            return ReadMaxFiles(self.settings.max_files)
        if self.settings.max_bytes is not None:
            return ReadMaxBytes(self.settings.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._open()[1].look()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        _, arrivals = self._open()
        self._check(start)
        first = start["files"]
        last = arrivals.look() if self.target is None else self.target
        if not isinstance(limit, ReadAllAvailable):
            last = arrivals.admit(first, last, self.settings.max_files, self.settings.max_bytes)
        if last <= first:
            return start
        return start | {"files": last} | self._pin(start)

    def reportLatestOffset(self) -> Offset:
        store, arrivals = self._open()
        return {"files": len(arrivals), "version": store.version}

    def partitions(self, start: Offset, end: Offset) -> list[Task]:
        _, arrivals = self._open()
        pinned = self._pinned(end)
        found = [
            (arrival, self._kind(arrival.path)) for arrival in arrivals.files(start["files"], end["files"])
        ]
        return list(_tasks(end["stream"], found, self.settings, pinned))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self.settings, self.fields)

    @property
    def _note(self) -> str:
        return f"the source over {self.settings.events}"

    def _kind(self, path: str) -> str:
        try:
            return format_of(path, self.settings.format)
        except OptionError:
            return UNKNOWN_FORMAT

    def _check_input(self, offset: Offset) -> None:
        _, arrivals = self._open()
        if offset["log"] != arrivals.id:
            raise StorageError(
                f"{arrivals.folder}: is not the log of arrivals that the checkpoint was made with; restore "
                "that one, or name a new checkpoint and a new output"
            )


def _tasks(run: str, files: list[tuple[Arrival, str]], settings: Settings, pinned: Pinned) -> Iterator[Task]:
    """Files, and pieces of large ones, as tasks."""
    pieces: list[tuple[int, Any]] = []
    for arrival, kind in files:
        units = _units(arrival, kind)
        pieces += [(arrival.size // len(units), (unit, arrival)) for unit in units]
    for number, share in enumerate(share_out(pieces, settings.tasks)):
        yield Task(run, number, share, pinned)


def _units(arrival: Arrival, kind: str) -> list[Unit]:
    """A file in pieces; one that cannot be read is left whole for the worker to reject."""
    if kind == "parquet" and arrival.size > _SPLIT_BYTES:
        with contextlib.suppress(pa.ArrowInvalid, OSError):
            return list(units_of(arrival.path, kind)) or [Unit(arrival.path, kind, 0, -1)]
    return [Unit(arrival.path, kind, 0, -1)]


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
