"""Faults by number: an exception at the k-th line, or the k-th allocation, of what runs within.

`at_line` raises before a line of the package is run, which is where Ctrl-C can come (kernels are compiled and
run through). `at_allocation` lets an array not be had.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np
import pytest

import rangecast
from rangecast import memory

PACKAGE = str(Path(rangecast.__file__).parent)
LEFT_ALONE = (str(Path(PACKAGE) / "kernels"), str(Path(PACKAGE) / "memory.py"))
"""Kernels, and the reading of /proc/meminfo, whose file the interpreter would close late, with a warning."""
ALLOCATIONS = ("empty", "empty_like", "zeros", "full", "concatenate", "arange", "flatnonzero", "unique")


class Counter:
    """How many places were passed; the fault comes at one of them, or never when that is 0."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error, self.passed = at, error, 0

    def step(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise self.error


@contextlib.contextmanager
def at_line(at, error):
    counter = Counter(at, error)

    def trace(frame, event, arg):
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or file.startswith(LEFT_ALONE):
            return None
        if event == "line":
            counter.step()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield counter
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def at_allocation(at, error):
    counter = Counter(at, error)

    def counted(make):
        def allocate(*args, **kwargs):
            name = sys._getframe(1).f_globals.get("__name__", "")
            if name.startswith("rangecast.") and not name.startswith("rangecast.simd.compiler"):
                counter.step()
            return make(*args, **kwargs)

        return allocate

    with pytest.MonkeyPatch.context() as patch:
        for name in ALLOCATIONS:
            patch.setattr(np, name, counted(getattr(np, name)))
        patch.setattr(memory, "empty", counted(memory.empty))
        yield counter
