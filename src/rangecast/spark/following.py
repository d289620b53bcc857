"""An index that follows a store, one per worker process: from version to version by the changes between.

Loading a version anew would cost as much as the store is large; the changes of a second cost as much as
they are many. A version before the one that is held is loaded from the nearest snapshot.
"""

from __future__ import annotations

import gc
import os

from rangecast.indexes import Index
from rangecast.store import Store

_followed: dict[tuple[int, str], Followed] = {}


class Followed:
    """The index of one version of a store, moved to another when it is asked for."""

    def __init__(self, path: str) -> None:
        self.store = Store.open(path)
        self._version = -1
        self._index: Index | None = None

    def at(self, version: int) -> Index:
        """The index of a version; the one that was given before is changed by this."""
        if self._index is None or version < self._version or self._version < self.store.oldest:
            self._index = self.store.index(version)
            # the daemon of the workers collects garbage after each task, which would walk all of it
            gc.collect()
            gc.freeze()
        elif version > self._version:
            for change in self.store.changes(self._version, version):
                change.apply_to(self._index)
        self._version = version
        return self._index


def followed(path: str) -> Followed:
    """What this process holds of a store."""
    # a forked process has an index of its own
    key = os.getpid(), path
    if key not in _followed:
        _followed[key] = Followed(path)
    return _followed[key]
