"""What runs inside Spark's Python workers: keep an index, match batches, give the answers as Arrow.

A worker process keeps what it has loaded: the index of a file, mapped once (`mapped`), and one index of
a store that moves from version to version (`followed`). Loading a version from scratch would cost as
much as the store is large; applying the changes of a second costs only as much as
they are many (rangecast.store.follower).

Spark's worker daemon collects garbage after each task, which would walk all of an index: `gc.freeze`
after loading takes 29 ms per task down to 2. Every iterator is drained to its end, because Spark throws a
worker away whose generator returns early.

Answers differ in size by orders of magnitude, so a batch of events is cut by how many pairs the last
events had (rangecast.loading.pairs), and what is emitted is cut again into batches that the JVM takes well.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import getpass
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from rangecast import errors
from rangecast.durable.bucket import Bucket, is_address
from rangecast.engine import Index, load_index
from rangecast.errors import RangecastError, SetupError, StorageError
from rangecast.loading.pairs import Pace
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.spark.output import COUNTS, LISTS, PAIRS, Answer
from rangecast.store.follower import Follower
from rangecast.store.home import local_file
from rangecast.store.store import Store

ROWS_OUT = 262_144
_MOST_MAPPED = 16
_mapped: OrderedDict[tuple[str, int], Index] = OrderedDict()


def mapped(path: str) -> Index:
    """The index of a file or of an object, mapped once per process."""
    try:
        file = file_here(path)
        status = os.stat(file)
        # a fetched file is named for its content, and its time is that of its last use
        key = (path, status.st_mtime_ns) if file == path else (file, 0)
    except FileNotFoundError:
        raise StorageError(
            f"{path}: the snapshot is not here; a worker must see the same files as the driver, and "
            "compact must keep the versions in use"
        ) from None
    except PermissionError:
        raise StorageError(
            f"{path}: this worker's user may not read the snapshot; let it read the store's folder, and all "
            "folders above it"
        ) from None
    index = _mapped.get(key)
    if index is None:
        # the driver has checked the sums, but maybe not here, and maybe not what is there by now; reading
        # everything in each worker would make each touch every page
        index = load_index(file, verify=None)
        _mapped[key] = index
        while len(_mapped) > _MOST_MAPPED:
            _mapped.popitem(last=False)
        gc.collect()
        gc.freeze()
    else:
        _mapped.move_to_end(key)
    return index


class WorkerFollower(Follower):
    """A follower that keeps what it has loaded out of the garbage collector's way."""

    def at(self, version: int) -> Index:
        """The index of a version. It stays at this version until another one is asked for."""
        loads = self.stats()["loads"]
        index = super().at(version)
        if self.stats()["loads"] > loads:
            # what an earlier load left behind goes first, or it would be frozen as well
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        return index


def followed(path: str) -> WorkerFollower:
    """What this process keeps of a store."""
    return _followed(path, creation_of(path))


def open_store(path: str) -> Store:
    """A store that is opened once per process; it takes in what others write by itself."""
    return _opened(path, creation_of(path))


def creation_of(path: str) -> tuple[int | str, int]:
    """What tells a store from another one that took its place: store.json is written once."""
    if is_address(path):
        entry = Bucket(path).stat("store.json")
        if entry is None:
            raise StorageError(f"{path}: there is no store here")
        return entry.tag, entry.size
    try:
        status = os.stat(os.path.join(path, "store.json"))
    except FileNotFoundError:
        raise StorageError(
            f"{path}: there is no store here; a worker must see the same files as the driver"
        ) from None
    except PermissionError:
        raise StorageError(
            f"{path}: this worker's user may not read the store; let it read this folder, and all above it"
        ) from None
    return status.st_ino, status.st_mtime_ns


@functools.lru_cache(maxsize=8)
def _followed(path: str, made: tuple[int | str, int]) -> WorkerFollower:
    return WorkerFollower(path)


@functools.lru_cache(maxsize=8)
def _opened(path: str, made: tuple[int | str, int]) -> Store:
    return Store.open(path)


def matcher(path: str, answer: Answer) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for mapInArrow: a whole snapshot in every worker."""

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = mapped(path)
        pace = Pace()
        for batch in batches:
            yield from answers(index, batch, answer, pace)

    return match


def answers(
    index: Index, batch: pa.RecordBatch | pa.Table, answer: Answer, pace: Pace
) -> Iterator[pa.RecordBatch]:
    """The answer for a batch of events, in record batches."""
    batch = with_ids(batch, answer)
    events = Events.from_arrow(index.schema, batch.select(list(answer.attributes)))
    return answer_events(index, events, batch, answer, pace)


def with_ids(batch: pa.RecordBatch | pa.Table, answer: Answer) -> pa.RecordBatch | pa.Table:
    """The events of a batch that have an id; the others are rejected, as the readers of files do."""
    ids = batch.column(answer.event_id)
    return batch if not ids.null_count else batch.filter(pc.is_valid(ids))


def answer_events(
    index: Index, events: Events, batch: pa.RecordBatch | pa.Table, answer: Answer, pace: Pace
) -> Iterator[pa.RecordBatch]:
    """As `answers`, for events that are encoded already; `batch` has their other columns."""
    if answer.order is not None:
        order = index.estimate(events).order
        events, batch = events.select(order), batch.take(pa.array(order))
    n = len(events)
    for start, stop in pace.cut(n):
        part = events if stop - start == n else events.select(np.arange(start, stop))
        matches = index.match(part)
        pace.seen(len(part), matches.n_pairs)
        yield from shaped(batch.slice(start, stop - start), matches, answer)


def shaped(batch: pa.RecordBatch | pa.Table, matches: Matches, answer: Answer) -> Iterator[pa.RecordBatch]:
    """Matches of a batch in the form that was asked for; columns as `Output.names` says."""
    counts = matches.counts
    ids = subscription_ids(matches, answer.textual)
    kept: npt.NDArray[np.int64] | None = None
    if answer.form == PAIRS:
        spread = counts
        if answer.outer and not counts.all():
            spread = np.maximum(counts, 1)
            ids = _with_nulls(ids, counts)
    else:
        spread = np.ones(len(counts), np.int64)
        if not answer.outer and not counts.all():
            kept = np.flatnonzero(counts)
        if answer.form == COUNTS:
            ids = pa.array(counts)
        else:
            ids = pa.ListArray.from_arrays(pa.array(matches.offsets, pa.int32()), ids)
        if kept is not None:
            spread, ids = spread[kept], ids.take(pa.array(kept))
    columns = [_spread(batch, answer.event_id, spread, kept), ids]
    columns += [_spread(batch, name, spread, kept) for name in answer.keep]
    out = pa.RecordBatch.from_arrays(columns, names=answer.names)
    for first in range(0, out.num_rows, ROWS_OUT):
        yield out.slice(first, ROWS_OUT)


def pairs_in(piece: pa.RecordBatch, form: str) -> int:
    """How many pairs an answer's batch stands for."""
    column = piece.column(1)
    if form == COUNTS:
        return int(pc.sum(column).as_py() or 0)
    return len(column.flatten()) if form == LISTS else len(column) - column.null_count


def subscription_ids(matches: Matches, textual: bool) -> pa.Array[Any]:
    """The ids of all pairs as Spark takes them: long or string."""
    if not textual:
        return pa.array(np.asarray(matches.ids, np.int64))
    column = matches.to_arrow().column("subscription_id").combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def _spread(
    batch: pa.RecordBatch | pa.Table, name: str, spread: npt.NDArray[np.int64], kept: Any
) -> pa.Array[Any]:
    """A column of the events with each value as often as `spread` says."""
    column = batch.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if kept is not None:
        return column.take(pa.array(kept))
    if bool((spread == 1).all()):
        return column
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return pa.array(np.repeat(column.to_numpy(), spread), column.type)
    return column.take(pa.array(np.repeat(np.arange(len(column)), spread)))


def _with_nulls(ids: pa.Array[Any], counts: npt.NDArray[np.int64]) -> pa.Array[Any]:
    """The ids of pairs with one null more for each event that has none."""
    spread = np.maximum(counts, 1)
    where = np.zeros(int(spread.sum()), np.int64)
    filled = np.repeat(counts > 0, spread)
    where[filled] = np.arange(len(ids))
    return ids.take(pa.array(where, mask=~filled))


# Saved indexes that Spark itself brings to the workers.
#
# Subscriptions and an `Index` that are matched directly are saved to a folder of the driver's. Where workers
# run on the driver's machine under its user, they map the file there. On a cluster Spark sends it along
# (`addArtifact`): each executor fetches it once, and the Python workers of that executor map its copy. What
# travels in a closure is the name of the file, behind `shipped:`.

_PREFIX = "shipped:"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# what this process has sent, by name: the driver maps its own file
_sent: dict[str, str] = {}


def ship(file: Path) -> str:
    """Under which path workers find a file of the driver's; sent to them unless they run beside it."""
    spark = SparkSession.getActiveSession()
    if spark is None or is_beside(spark):
        return str(file)
    spark.addArtifact(str(file), file=True)
    _sent[file.name] = str(file)
    return _PREFIX + file.name


def is_shipped(path: str) -> bool:
    """Whether a path is that of a file that was sent."""
    return path.startswith(_PREFIX)


def file_here(path: str) -> str:
    """The file of this machine behind the path of a saved index, wherever the path leads."""
    if not is_shipped(path):
        return local_file(path)
    name = path.removeprefix(_PREFIX)
    return _sent.get(name) or SparkFiles.get(name)


def is_beside(spark: SparkSession) -> bool:
    """Whether the workers are threads and children of a process on this machine."""
    master = spark.conf.get("spark.master", "") or ""
    if not master.startswith("local") or master.startswith("local-cluster"):
        return False
    try:
        return spark.client.host in _LOOPBACK
    except PySparkRuntimeError:  # a classic session is in this process
        return True


# What went wrong in the workers, said on the driver in the words that the workers found for it.
#
# An action that fails in a worker comes back as Spark's own error: pages of two languages with our sentence
# somewhere inside, or, where no worker could start, with none of ours. `told` is put around the actions that
# rangecast starts by itself (ingest, file mode, stripes, the doctor): it raises the worker's own error here.
# A lazy DataFrame is evaluated by whoever uses it, so there Spark's error stays what it is.
#
# `beside_driver` is the worker's half: around what a worker reads and writes in folders that it shares with
# the driver. A user who may not, and a folder that is not there, get a sentence that says what to do.

_OURS = re.compile(r"rangecast\.\w[\w.]*\.(\w+Error): ([^\n]+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Raise what a worker said as the error that it was there."""
    try:
        yield
    except RangecastError:
        raise
    except Exception as error:  # PySpark's own, or Py4J's where it has none for what the JVM threw
        found = explained(str(error))
        if found is None:
            raise
        raise found from error


def explained(text: str) -> RangecastError | None:
    """The error of ours that a text of Spark's is about; None if it is about none.

    >>> str(explained("ModuleNotFoundError: No module named 'numba.core'")).partition(":")[0]
    "the workers' Python has no package 'numba'"
    """
    program = _NO_PROGRAM.search(text)
    if program:
        return SetupError(
            f"the workers cannot run {program[1]!r}: they need a Python at this path; put the same "
            "environment there, or name theirs by spark.pyspark.python or PYSPARK_PYTHON"
        )
    module = _NO_MODULE.search(text)
    if module:
        return SetupError(
            f"the workers' Python has no package {module[1].partition('.')[0]!r}: install rangecast and what "
            "it needs there, or send a packed environment by spark.archives"
        )
    said = _OURS.findall(text)
    if not said:
        return None
    name, sentence = said[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, RangecastError)):
        kind = StorageError
    return kind(sentence)


@contextlib.contextmanager
def beside_driver(folder: str | os.PathLike[str]) -> Iterator[None]:
    """In a worker: say it well when a folder that the driver has made is not here, or not for this user."""
    try:
        yield
    except (StorageError, PermissionError, FileNotFoundError) as error:
        cause = error if not isinstance(error, StorageError) else error.__cause__
        if isinstance(cause, PermissionError):
            raise StorageError(
                f"{folder}: the worker's user {_user()!r} may not write there; give the driver's user and "
                "this one a common group, and let it write to the folder above (chgrp, chmod g+ws)"
            ) from None
        if isinstance(cause, FileNotFoundError):
            raise StorageError(
                f"{folder}: is not here; a worker must see the same files as the driver"
            ) from None
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
