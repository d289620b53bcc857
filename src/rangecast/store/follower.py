"""One index in this process that follows a store from version to version.

A process that matches batch after batch, each against a version of its own, would load most of the same
index for every one of them. `Follower` holds one index and moves it: forward by the changes in between,
which costs as much as they are many, not as the store is large. It starts again from the nearest
snapshot when it must go back, when the changes were compacted away, or when a newer snapshot saves
more than half of what it has applied by itself, and that is more than a share of the whole: what was
applied is this process's own memory, while a mapped snapshot is shared by all.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.durable import lock
from rangecast.engine import Index
from rangecast.engine.parts import StaticIndex
from rangecast.errors import StorageError
from rangecast.store.change import Change, gathered
from rangecast.store.store import Store

_FEW = 1000
# With 1 % of a million subscriptions changed at a time, sweeping each time is half of the work, and
# saves some nanoseconds per match, of which there would have to be many millions between two changes.
_SWEEP_SHARE = 5


class Follower:
    """An index that moves with the versions of a store.

    >>> import tempfile
    >>> from rangecast import Int, Schema, Subscriptions
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store.open(folder.name + "/alerts", Schema(Int("price")))
    >>> store.insert(Subscriptions.parse(store.schema, {7: "price < 10"}))
    1
    >>> store.insert(Subscriptions.parse(store.schema, {8: "price > 5"}))
    2
    >>> follower = Follower(store.path)
    >>> [len(follower.at(version)) for version in (1, 2, 0)]
    [1, 2, 0]
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, share: float = 0.2) -> None:
        self.path = os.fspath(path)
        self.share = share
        self._begin()
        lock.watch(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._index: Index | None = None
        self._version = -1
        self._start = -1
        self._applied = 0
        self._loads = 0
        self._moves = 0

    def _after_fork(self) -> None:
        # what another thread was moving is loaded again; a pause between batches leaves all as it is
        if not self._lock.acquire(blocking=False):
            self._begin()
        else:
            self._lock.release()

    def __repr__(self) -> str:
        return f"<Follower {self.path!r}: version {self.version}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (self.path, self.share)

    @property
    def version(self) -> int | None:
        """The version that it holds; None before the first."""
        return None if self._index is None else self._version

    def at(self, version: int) -> Index:
        """The index of a version. It stays at this version until another one is asked for.

        Threads that ask for different versions use `reading`, which keeps it in place meanwhile.
        """
        with self._lock:
            if self._index is None or self._version != version:
                self._move(version)
            assert self._index is not None
            return self._index

    @contextlib.contextmanager
    def reading(self, version: int) -> Iterator[Index]:
        """The index of a version, which other threads cannot move while it is used."""
        with self._lock:
            yield self.at(version)

    def each(self, versions: npt.ArrayLike) -> Iterator[tuple[int, npt.NDArray[np.int64], Index]]:
        """Rows grouped by the version that each of them wants: (version, rows, index), ascending."""
        wanted = np.asarray(versions, np.int64)
        order = np.argsort(wanted, kind="stable")
        distinct, firsts = np.unique(wanted[order], return_index=True)
        for version, rows in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=False):
            with self.reading(version) as index:
                yield version, rows, index

    def stats(self) -> dict[str, int]:
        """How often it moved by changes and by loading, and how many changes were applied since."""
        return {"moves": self._moves, "loads": self._loads, "applied": self._applied}

    def _move(self, version: int) -> None:
        if self._store is None:
            self._store = Store.open(self.path)
        store = self._store
        if self._index is not None and version > self._version:
            with contextlib.suppress(StorageError):
                changed = store.changed(self._version, version)
                if not self._better_loaded(store, version, self._applied + changed):
                    self._follow(store, version)
                    self._applied += changed
                    return
        self._index = None
        start, index = self._load(store, version)
        self._applied = store.changed(start, version) if start < version else 0
        if isinstance(index, StaticIndex):
            index.sweep_share = _SWEEP_SHARE
        self._index, self._version, self._start = index, version, start
        self._loads += 1

    def _load(self, store: Store, version: int) -> tuple[int, Index]:
        """The index of a version, and the version that it was made from by changes."""
        # once per machine: in each process it would touch every page
        return store.nearest(version), store.index(version, verify=None)

    def _apply(self, step: Change, index: Index) -> None:
        """Bring an index forward by a change."""
        step.apply_to(index)

    def _nearest(self, store: Store, version: int) -> int:
        """The version from which the index of a version would be made."""
        return store.nearest(version)

    def _follow(self, store: Store, version: int) -> None:
        assert self._index is not None
        index, self._index = self._index, None  # until it is whole again: a change may fail half-way
        for step in gathered(store.changes(self._version, version)):
            self._apply(step, index)
        self._index, self._version = index, version
        self._moves += 1

    def _better_loaded(self, store: Store, version: int, applied: int) -> bool:
        assert self._index is not None
        if applied <= max(_FEW, self.share * len(self._index)):
            return False
        start = self._nearest(store, version)
        return start > self._start and 2 * store.changed(start, version) <= applied


def _revive(path: str, share: float) -> Follower:
    return Follower(path, share=share)
