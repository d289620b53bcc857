"""One writer at a time: an advisory lock on a file, which the operating system drops with its process.

The file holds the id of the process that has the lock, for messages only; whether it is held is
flock's to say, so a crash leaves nothing to clean up. Each acquisition opens the file again: flock
belongs to the open file, so it keeps apart threads of one process as well. A forked process has the same open
file, and would hold the lock when its parent is gone: it closes what it inherits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rangecast.durable.arrays import writing_to
from rangecast.errors import StorageError

_PAUSE = 0.005
_open: set[int] = set()


class LockedError(StorageError):
    """Another has the lock."""


@contextlib.contextmanager
def holding(path: Path, wait: float) -> Iterator[None]:
    """Hold the lock; LockedError when another has it for longer than `wait` seconds."""
    with writing_to(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _open.add(handle)
    try:
        with writing_to(path):
            _acquire(handle, path, wait)
        try:
            yield
        finally:
            if handle in _open:
                # a forked child may hold the same open file: unlock it for both
                fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        if handle in _open:
            _open.discard(handle)
            os.close(handle)


def _close_inherited() -> None:
    for handle in _open:
        with contextlib.suppress(OSError):
            os.close(handle)
    _open.clear()


os.register_at_fork(after_in_child=_close_inherited)


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
