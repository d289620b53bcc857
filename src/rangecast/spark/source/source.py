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
    oldest     the oldest version there was then; events of an older time are set aside (event-time only)
    store, log, stream    ids: a checkpoint goes with one store and one log, and has one name

Where there is no new file the offset stays as it was, so a change of subscriptions alone makes no
micro-batch. A version is held in the store (`Store.hold`) from when it is planned with until its
micro-batch is done, also while the stream is stopped; Spark says so when it plans the next one.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
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
from rangecast.spark.source.options import (
    EVENT_TIME,
    Settings,
    check_fields,
    infer_fields,
    read_options,
    time_column,
)
from rangecast.spark.source.tasks import UNKNOWN_FORMAT, Task, read_task
from rangecast.spark.stream.micro_batch import publish_beside
from rangecast.store.store import Store

# below this a Parquet file is one piece: reading its footer on the driver costs more than it gains
_SPLIT_BYTES = 32 << 20
_log = logging.getLogger("rangecast.spark")


def register_source(spark: SparkSession) -> None:
    """Make `format("rangecast")` known to a session, for `spark.read` and `spark.readStream`."""
    spark.dataSource.register(RangecastSource)


class RangecastSource(DataSource):
    """What Spark asks for by the name "rangecast"; options.py has the options."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.settings = read_options(options)
        store = Store.open(self.settings.store)
        self.time = time_column(self.settings, store)
        # a DataFrame that is evaluated twice gives the same answer twice
        self.version = store.version if isinstance(self.settings.version, str) else self.settings.version
        self.oldest = store.oldest
        if not self.oldest <= self.version <= store.version:
            raise StorageError(
                f"{store.path}: has versions {self.oldest} to {store.version}, got version {self.version}"
            )

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
        self.settings, self.time, self.fields = source.settings, source.time, fields
        self.version, self.oldest = source.version, source.oldest
        check_fields(self.settings, Store.open(self.settings.store), fields)

    def partitions(self) -> list[Task]:
        settings = self.settings
        files = list_files(settings.events)
        kinds = {path: format_of(path, settings.format) for path in files}
        schema = Store.open(settings.store).schema
        check_files(files, kinds, schema, settings.event_id, settings.keep, settings.absent)
        found = [(Arrival(path, *_stamp(path)), kinds[path]) for path in files]
        return list(_tasks(f"read-{uuid.uuid4().hex}", found, settings, self.version, self.oldest))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self.settings, self.fields, self.time)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in a process of the driver's, and reads them in the workers."""

    def __init__(self, source: RangecastSource, fields: T.StructType) -> None:
        self.settings, self.time, self.fields = source.settings, source.time, fields
        self.target: int | None = None
        self._opened: tuple[Store, Arrivals] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def _open(self) -> tuple[Store, Arrivals]:
        if self._opened is None:
            store = Store.open(self.settings.store)
            check_fields(self.settings, store, self.fields)
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
        return start | {"files": last} | self._pin(store, start)

    def reportLatestOffset(self) -> dict[str, Any]:
        store, arrivals = self._open()
        return {"files": len(arrivals), "version": store.version}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        store, arrivals = self._open()
        self._check(end)
        version, oldest = end["version"], end.get("oldest", 0)
        needed = version if self.time is None else oldest
        if needed < store.oldest:
            raise StorageError(
                f"{store.path}: version {needed} is gone, and a micro-batch that was planned with it is not "
                f"finished; the oldest is {store.oldest}. Restore the store from a copy that has it, or "
                "begin again with a new checkpoint and a new output"
            )
        found = [
            (arrival, self._kind(arrival.path)) for arrival in arrivals.files(start["files"], end["files"])
        ]
        return list(_tasks(end["stream"], found, self.settings, version, oldest))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self.settings, self.fields, self.time)

    def commit(self, end: dict[str, Any]) -> None:
        # by time, all that there was at the beginning is needed for good
        if self.settings.version != EVENT_TIME:
            # a hold that somebody released is missed by the next micro-batch, not by this one, which is done
            with contextlib.suppress(StorageError):
                self._hold(self._open()[0], end, end["version"])

    def _pin(self, store: Store, start: dict[str, Any]) -> dict[str, int]:
        """What the next micro-batch is matched against, held before anybody gets to know it."""
        if isinstance(self.settings.version, int):
            return {"version": self._hold(store, start, self.settings.version)}
        store.expire(patient=False)
        publish_beside(str(store.path))
        held = [hold.version for hold in store.holds() if hold.name == _hold_name(start)]
        if self.settings.version == EVENT_TIME:
            oldest = start.get("oldest", held[0] if held else self._hold(store, start, store.oldest))
            # the lock: a change that is being written has a time before now and must be seen
            with store.writing():
                return {"version": store.version, "oldest": oldest}
        # versions only grow, so what the micro-batch before holds keeps this one as well
        return {"version": store.version if held else self._hold(store, start, None)}

    def _hold(self, store: Store, offset: dict[str, Any], version: int | None) -> int:
        return store.hold(_hold_name(offset), version, f"the source over {self.settings.events}")

    def _kind(self, path: str) -> str:
        try:
            return format_of(path, self.settings.format)
        except OptionError:
            return UNKNOWN_FORMAT

    def _check(self, offset: dict[str, Any]) -> None:
        """Refuse a checkpoint that belongs to another store or another log."""
        store, arrivals = self._open()
        if offset.get("store") != store.id:
            raise StorageError(
                f"{store.path}: is not the store that the checkpoint was made with (that has the id "
                f"{offset.get('store')}, this {store.id}); name that one, or a new checkpoint and output"
            )
        if offset["log"] != arrivals.id:
            raise StorageError(
                f"{arrivals.folder}: is not the log of arrivals that the checkpoint was made with; restore "
                "that one, or name a new checkpoint and a new output"
            )
        if offset["version"] > store.version:
            raise StorageError(
                f"{store.path}: has versions up to {store.version}, but the checkpoint has seen "
                f"{offset['version']}: the store is an old copy. Name a new checkpoint and a new output"
            )


def _hold_name(offset: dict[str, Any]) -> str:
    return f"source-{offset['stream'][:12]}"


def _tasks(
    run: str, files: list[tuple[Arrival, str]], settings: Settings, version: int, oldest: int
) -> Iterator[Task]:
    """Files, and pieces of large ones, shared out so that tasks have about as many bytes each."""
    pieces: list[tuple[int, Unit, Arrival]] = []
    for arrival, kind in files:
        units = _units(arrival, kind)
        pieces += [(arrival.size // len(units), unit, arrival) for unit in units]
    loads: list[tuple[int, int]] = [(0, number) for number in range(min(settings.tasks, len(pieces)))]
    shares: list[list[tuple[Unit, Arrival]]] = [[] for _ in loads]
    for size, unit, arrival in sorted(pieces, key=lambda piece: -piece[0]):
        load, number = heapq.heappop(loads)
        shares[number].append((unit, arrival))
        heapq.heappush(loads, (load + size, number))
    for number, share in enumerate(shares):
        yield Task(run, number, share, version, oldest)


def _units(arrival: Arrival, kind: str) -> list[Unit]:
    """A file in pieces; one that cannot be read is left whole for the worker to set aside."""
    if kind == "parquet" and arrival.size > _SPLIT_BYTES:
        with contextlib.suppress(pa.ArrowInvalid, OSError):
            return list(units_of(arrival.path, kind)) or [Unit(arrival.path, kind, 0, -1)]
    return [Unit(arrival.path, kind, 0, -1)]


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
