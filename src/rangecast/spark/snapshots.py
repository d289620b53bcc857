"""What events are matched against: every form of it becomes the path of one saved index.

A closure that Spark sends to its workers carries this path and nothing else; each worker maps the
file, so all processes of a machine share its pages. The path may be an address in a bucket: then the first
process of a machine that needs it fetches it (rangecast.durable.fetched). A store, a store's folder, a saved
index, an `Index` and `Subscriptions` are all taken; the last two are saved to a folder that lives as long as
this process, and on a cluster Spark sends the file along (worker.py).
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rangecast.durable.bucket import is_address, place_of
from rangecast.engine import Index, load_index, open_index
from rangecast.errors import OptionError, StorageError
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import narrowed
from rangecast.spark.worker import file_here, ship
from rangecast.store.store import Store
from rangecast.types.schema import Schema


@dataclass(frozen=True)
class Snapshot:
    """A saved index and what the driver needs to know of it; of stripes nobody has counted subscriptions."""

    path: str
    schema: Schema
    textual: bool
    n_subscriptions: int | None
    n_bytes: int
    store: str | None = None
    version: int | None = None

    @property
    def ids_are_text(self) -> bool | None:
        """Whether ids are strings; None while there is no subscription to tell by."""
        return None if self.n_subscriptions == 0 and not self.textual else self.textual


def resolve(subscriptions: Any, version: int | None = None) -> Snapshot:
    """The snapshot behind whatever a user gave; checks every byte of it once."""
    if isinstance(subscriptions, Snapshot):
        return subscriptions
    path: str | None = None
    if is_address(subscriptions):
        path = str(subscriptions)
    elif isinstance(subscriptions, str | os.PathLike):
        place = Path(place_of(subscriptions)).absolute()
        path = str(place)
        if not place.exists():
            raise StorageError(f"{place}: there is no store and no saved index here")
    subscriptions = store_of(subscriptions) or subscriptions
    if isinstance(subscriptions, Store):
        version = subscriptions.version if version is None else version
        subscriptions.snapshot(version)
        return _described(str(subscriptions.snapshot_path(version)), str(subscriptions.path), version)
    if version is not None:
        raise OptionError("version= goes with a store; what was given has no versions")
    if path is not None:
        return _described(path, None, None)
    if isinstance(subscriptions, Subscriptions):
        index = open_index("auto", subscriptions.schema)
        index.insert(subscriptions)
        subscriptions = index
    if isinstance(subscriptions, Index):
        target = _scratch_folder() / f"{uuid.uuid4().hex}.index"
        subscriptions.save(target)
        return _described(ship(target), None, None)
    raise OptionError(
        "subscriptions must be a Store, the path of a store or of a saved index, Subscriptions or an "
        f"Index, got {type(subscriptions).__name__}"
    )


def store_of(subscriptions: Any) -> Store | None:
    """The store that a user gave, by itself or by its place; None if it is something else."""
    if isinstance(subscriptions, Store):
        return subscriptions
    if is_address(subscriptions):
        return None if str(subscriptions).endswith(".index") else Store.open(str(subscriptions))
    if isinstance(subscriptions, str | os.PathLike) and Path(place_of(subscriptions)).is_dir():
        return Store.open(subscriptions)
    return None


def _described(path: str, store: str | None, version: int | None) -> Snapshot:
    file = file_here(path)
    status = os.stat(file)
    # a fetched file is named for its content, and its time is that of its last use
    changed = status.st_mtime_ns if file == path else 0
    schema, textual, n = _facts(file, changed, status.st_size)
    return Snapshot(path, schema, textual, n, status.st_size, store, version)


@functools.lru_cache(maxsize=64)
def _facts(path: str, changed: int, size: int) -> tuple[Schema, bool, int]:
    """Schema, type of ids and number of subscriptions; the file is read once and checked."""
    index = load_index(path)
    return index.schema, index.ids_are_text, len(index)


@functools.cache
def _scratch_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rangecast-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# The users' own columns of a store's subscriptions as a DataFrame, to be joined with matches.


def payload(
    spark: SparkSession,
    store: Store | str | os.PathLike[str],
    names: Sequence[str] | None = None,
    *,
    version: int | None = None,
) -> DataFrame:
    """`subscription_id` and the payload of all subscriptions of a store, or the columns of it that are named.

    `rs.match(events, store).join(rs.payload(spark, store, ["owner"]), "subscription_id")` tells the owners.
    """
    home = store if isinstance(store, Store) else Store.open(store)
    return spark.createDataFrame(payload_table(home, names, version))


def payload_table(store: Store, names: Sequence[str] | None = None, version: int | None = None) -> pa.Table:
    """The same as an Arrow table."""
    subs = store.subscriptions(version)
    if not len(subs):  # none have no payload either
        return pa.table({name: pa.array([], pa.string()) for name in ("subscription_id", *(names or ()))})
    table = narrowed(subs.beside.table(names))
    ids = subs.ids.arrow()
    ids = ids.cast(pa.string()) if subs.ids.textual else ids
    return table.add_column(0, "subscription_id", ids)
