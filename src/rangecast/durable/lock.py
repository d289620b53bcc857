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
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rangecast.durable.arrays import writing_to
from rangecast.errors import ForkError, StorageError

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
        # not truncated first: a file system may flush the file for that, which takes longer than a change
        name = b"%-20d" % os.getpid()
        if os.pread(handle, 100, 0) != name:
            os.pwrite(handle, name, 0)
        return


# What a forked process does with locks that a thread of its parent held: that thread is not there to let go.
#
# Objects with locks say `watch(self)` and have a method `_after_fork`, which is called in the child before
# anything else runs there. One whose state is on disk starts again. One whose state was being changed cannot
# go on: `renewed` gives it a lock that refuses instead of one that hangs.


class _Watched(Protocol):
    def _after_fork(self) -> None: ...


_PLAIN = type(threading.Lock())
_watched: weakref.WeakSet[Any] = weakref.WeakSet()


class _RefusingLock:
    """Stands for a lock that nobody will ever let go."""

    def __init__(self, what: str) -> None:
        self._what = what

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking:
            return False
        raise ForkError(
            f"{self._what} was being used by another thread when this process was forked, and cannot be used "
            "here: fork before threads begin, or load it again"
        )

    def release(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def watch(owner: _Watched) -> None:
    """Call `_after_fork` of an object in every process that is forked from now on."""
    _watched.add(owner)


def renewed(lock: Any, what: str) -> Any:
    """A lock for the child: a new one, or one that refuses where another thread held it at the fork."""
    if not lock.acquire(blocking=False):
        return _RefusingLock(what)
    lock.release()
    return threading.RLock()


def renew_counters(owner: Any) -> None:
    """Give an object new plain locks, which guard no more than a number each."""
    for name, value in vars(owner).items():
        if isinstance(value, _PLAIN):
            setattr(owner, name, threading.Lock())


def _in_child() -> None:
    for owner in list(_watched):
        owner._after_fork()


os.register_at_fork(after_in_child=_in_child)
