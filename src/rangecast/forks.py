"""What a forked process does with locks that a thread of its parent held: that thread is not there to let go.

Objects with locks say `watch(self)` and have a method `_after_fork`, which is called in the child before
anything else runs there. One whose state is on disk starts again. One whose state was being changed cannot go
on: `renewed` gives it a lock that refuses instead of one that hangs.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

from rangecast.errors import ForkError


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
