"""One writer at a time: an advisory lock on a file, which the operating system drops with its process.

The file holds the id of the process that has the lock, for messages only; whether it is held is
flock's to say, so a crash leaves nothing to clean up. Each acquisition opens the file anew: flock
belongs to the open file, so it keeps apart threads of one process as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rangecast.errors import StorageError

_PAUSE = 0.005


class LockedError(StorageError):
    """Another has the lock."""


@contextlib.contextmanager
def holding(path: Path, wait: float) -> Iterator[None]:
    """Hold the lock; LockedError when another has it for longer than `wait` seconds."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _acquire(handle, path, wait)
        try:
            yield
        finally:
            # a forked child may hold the same open file: unlock it for both
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_PAUSE)
                continue
            holder = os.pread(handle, 100, 0).decode(errors="replace").strip() or "unknown"
            raise LockedError(
                f"{path.parent}: another process is writing (process {holder}); waited {wait:g} seconds"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return
