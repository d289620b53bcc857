"""The index that a worker process keeps of a store, and moves from version to version.

Loading a version anew would cost as much as the store is large; the changes of a second cost as much as
they are many (rangecast.store.follower). Spark's daemon of workers collects garbage after each task, which
would walk all of the index: it is frozen after each load.
"""

from __future__ import annotations

import functools
import gc
import os

from rangecast.engine import Index
from rangecast.errors import StorageError
from rangecast.store.follower import Follower
from rangecast.store.store import Store


class WorkerFollower(Follower):
    """A follower that keeps what it has loaded out of the garbage collector's way."""

    def at(self, version: int) -> Index:
        """The index of a version. It is this version's until another one is asked for."""
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
    return _followed(path, _creation_of(path))


def open_store(path: str) -> Store:
    """A store that is opened once per process; it takes in what others write by itself."""
    return _opened(path, _creation_of(path))


def _creation_of(path: str) -> tuple[int, int]:
    """What tells a store from another one that took its place: store.json is written once."""
    try:
        status = os.stat(os.path.join(path, "store.json"))
    except FileNotFoundError:
        raise StorageError(
            f"{path}: there is no store here; a worker must see the same files as the driver"
        ) from None
    return status.st_ino, status.st_mtime_ns


@functools.lru_cache(maxsize=8)
def _followed(path: str, made: tuple[int, int]) -> WorkerFollower:
    return WorkerFollower(path)


@functools.lru_cache(maxsize=8)
def _opened(path: str, made: tuple[int, int]) -> Store:
    return Store.open(path)
