"""Threads that share the work of a batch or of a build, kept for the next."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Run = Callable[..., Iterable[Any]]
"""What calls a function with each of some arguments, one after the other or side by side, like `map`."""


def pool(threads: int) -> Run:
    """A `map` that runs its calls in so many threads."""
    return _pool(threads).map


def runner(threads: int) -> Run:
    """`map`, or one that runs its calls in so many threads where there are several."""
    return map if threads <= 1 else pool(threads)


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: starting them costs as much as a small batch."""
    return ThreadPoolExecutor(threads, "rangecast")


# a forked process has none of its parent's threads
os.register_at_fork(after_in_child=_pool.cache_clear)
