"""The source "rangecast": a DataFrame of matches, in batch or as a stream, matched while it is read.

    events/  --files in order of arrival-->  offset {files, version}  --tasks-->  Arrow, match  -->  matches
    store/   --newest version when planned-->

No row of an event crosses into the JVM: Spark hands out files, workers read them with Arrow and give
the pairs. Each micro-batch is two offsets in Spark's own log, so it is fixed before anything is read
which files it has and which version of the subscriptions they are matched against; done again after
a crash, it gives the same rows. With a sink that takes a batch once (Spark's own Parquet sink), every
event is matched exactly once.

    offset     meaning
    files      how many files of the log of arrivals (arrivals.py) were read
    version    the version of the subscriptions that the last of them were matched against
    oldest     the oldest version there was then; events of an older time are rejected (event-time only)
    store, log, stream    ids: a checkpoint goes with one store and one log, and has one name

Where there is no new file the offset stays as it was, so a change of subscriptions alone makes no
micro-batch. A version is held in the store (`Store.hold`) from when it is planned with until its
micro-batch is done, also while the stream is stopped; Spark says so when it plans the next one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

# below this a Parquet file is one piece: reading its footer on the driver costs more than it gains
_SPLIT_BYTES = 32 << 20


def register_source(spark: SparkSession) -> None:
    """Make `format("rangecast")` known to a session, for `spark.read` and `spark.readStream`."""
    spark.dataSource.register(RangecastSource)


class RangecastSource(DataSource):
    """What Spark asks for by the name "rangecast"; options.py has the options."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        settings = read_options(options)
        store = Store.open(settings.store)
        self.settings = dataclasses.replace(settings, versions=settings.versions.on(store.schema))
        # a DataFrame that is evaluated twice gives the same answer twice
        self.pinned = self.settings.versions.now(store)
        if settings.output.order is not None:
            settings.output.check_index(store.index(verify=None))

    @classmethod
    def name(cls) -> str:
        return "rangecast"

    def schema(self) -> T.StructType:
        return infer_fields(self.settings, Store.open(self.settings.store))

    def reader(self, schema: T.StructType) -> DataSourceReader:
        return _Reader(self, schema)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        return _StreamReader(self, schema)


class _Reader(DataSourceReader):
    """All files of now, against the version that was the newest when the DataFrame was made."""

    def __init__(self, source: RangecastSource, fields: T.StructType) -> None:
        self.settings, self.pinned, self.fields = source.settings, source.pinned, fields
        check_fields(self.settings.output, Store.open(self.settings.store), fields)

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


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in a process of the driver's, and reads them in the workers."""

    def __init__(self, source: RangecastSource, fields: T.StructType) -> None:
        self.settings, self.fields = source.settings, fields
        self.target: int | None = None
        self._opened: tuple[Store, Arrivals] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def _open(self) -> tuple[Store, Arrivals]:
        if self._opened is None:
            store = Store.open(self.settings.store)
            check_fields(self.settings.output, store, self.fields)
            self._opened = store, Arrivals(Path(self.settings.state), self.settings.events)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
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

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        store, arrivals = self._open()
        self._check(start)
        first = start["files"]
        last = arrivals.look() if self.target is None else self.target
        if not isinstance(limit, ReadAllAvailable):
            last = arrivals.admit(first, last, self.settings.max_files, self.settings.max_bytes)
        if last <= first:
            return start
        pinned = self.settings.versions.pin(store, holder_of(start), self._note)
        return start | {"files": last} | as_offset(pinned)

    def reportLatestOffset(self) -> dict[str, Any]:
        store, arrivals = self._open()
        return {"files": len(arrivals), "version": store.version}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        store, arrivals = self._open()
        self._check(end)
        pinned = pinned_of(end)
        check_pinned(store, pinned, "a micro-batch", "start afresh with an empty checkpoint and output")
        found = [
            (arrival, self._kind(arrival.path)) for arrival in arrivals.files(start["files"], end["files"])
        ]
        return list(_tasks(end["stream"], found, self.settings, pinned))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self.settings, self.fields)

    def commit(self, end: dict[str, Any]) -> None:
        store, _ = self._open()
        self.settings.versions.advance(store, holder_of(end), pinned_of(end), self._note)

    @property
    def _note(self) -> str:
        return f"the source over {self.settings.events}"

    def _kind(self, path: str) -> str:
        try:
            return format_of(path, self.settings.format)
        except OptionError:
            return UNKNOWN_FORMAT

    def _check(self, offset: dict[str, Any]) -> None:
        """Refuse a checkpoint that belongs to another store or another log."""
        store, arrivals = self._open()
        check_same_store(store, offset)
        if offset["log"] != arrivals.id:
            raise StorageError(
                f"{arrivals.folder}: is not the log of arrivals that the checkpoint was made with; restore "
                "that one, or name a new checkpoint and a new output"
            )
        check_newer(store, offset["version"])


def check_same_store(store: Store, offset: dict[str, Any]) -> None:
    """Refuse a checkpoint that belongs to another store."""
    if offset.get("store") != store.id:
        raise StorageError(
            f"{store.path}: is not the store that the checkpoint was made with (that has the id "
            f"{offset.get('store')}, this {store.id}); name that one, or a new checkpoint and output"
        )


def holder_of(offset: dict[str, Any]) -> str:
    """The name under which the store keeps versions for a stream."""
    return f"source-{offset['stream'][:12]}"


def pinned_of(offset: dict[str, Any]) -> Pinned:
    return Pinned(offset["version"], offset.get("oldest"))


def as_offset(pinned: Pinned) -> dict[str, int]:
    return {name: value for name, value in pinned._asdict().items() if value is not None}


def _tasks(run: str, files: list[tuple[Arrival, str]], settings: Settings, pinned: Pinned) -> Iterator[Task]:
    """Files, and pieces of large ones, as tasks."""
    pieces: list[tuple[int, Any]] = []
    for arrival, kind in files:
        units = _units(arrival, kind)
        pieces += [(arrival.size // len(units), (unit, arrival)) for unit in units]
    for number, share in enumerate(share_out(pieces, settings.tasks)):
        yield Task(run, number, share, pinned)


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


def _units(arrival: Arrival, kind: str) -> list[Unit]:
    """A file in pieces; one that cannot be read is left whole for the worker to reject."""
    if kind == "parquet" and arrival.size > _SPLIT_BYTES:
        with contextlib.suppress(pa.ArrowInvalid, OSError):
            return list(units_of(arrival.path, kind)) or [Unit(arrival.path, kind, 0, -1)]
    return [Unit(arrival.path, kind, 0, -1)]


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
