"""How long this process has spent compiling kernels, and who wants to know when it begins.

A kernel compiles at its first call and comes from the disk after that, so the first match on a machine may
take seconds that say nothing about matching. Whoever reports times takes these off:

>>> before = compile_seconds()
>>> compile_seconds() - before
0.0

Numba announces each compilation; what comes from its disk cache is none. A kernel that calls others compiles
them on the way: the outermost one is timed.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

# the folder of Numba's cache is chosen there, before Numba is loaded
importlib.import_module("rangecast.simd.compiler")
_numba_events: Any = importlib.import_module("numba.core.event")

# A kernel or two take less than this; after that there are more to come, or a large one.
NOTICEABLE = 0.3


class _CompileClock(_numba_events.Listener):  # type: ignore[misc]
    """Listens to Numba; each thread that compiles is timed by itself, and one compiles at a time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waiting: list[Callable[[], None]] = []
        self._own = threading.local()

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        depth = getattr(self._own, "depth", 0)
        self._own.depth = depth + 1
        if depth == 0:
            self._own.start = perf_counter()
        if self.waiting and self.seconds + perf_counter() - self._own.start > NOTICEABLE:
            told, self.waiting = self.waiting, []
            for tell in told:
                tell()

    def on_end(self, event: Any) -> None:
        """A compilation has ended."""
        self._own.depth -= 1
        if self._own.depth == 0:
            self.seconds += perf_counter() - self._own.start


_clock = _CompileClock()
_numba_events.register("numba:compile", _clock)


def compile_seconds() -> float:
    """Seconds that this process has spent compiling since the engine was loaded."""
    return _clock.seconds


def running_seconds() -> float:
    """A clock that stands still while kernels compile, for who times a run."""
    return perf_counter() - _clock.seconds


def when_compiling(tell: Callable[[], None]) -> None:
    """Call `tell` once, when compiling has taken long enough to be noticed and goes on."""
    _clock.waiting.append(tell)
