"""How much memory there is, and refusing a build before it runs out, of memory or of numbers."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import CapacityError

MOST_NUMBERED = 2**31 - 1
"""Entries of a structure: its lists, nodes and bitsets."""
MOST_ROWS = 2**31 - 1
"""Subscriptions, boxes, events of a batch and ids that are given: their numbers have 32 bits everywhere."""


def available_bytes() -> int:
    """Memory that this process could still take, as the operating system says."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return sys.maxsize


def check_fits(needed: int, limit: int | None, what: str, advice: str) -> None:
    """Raise CapacityError when `needed` bytes exceed the limit, or 80 % of what is available."""
    room = limit if limit is not None else available_bytes() * 4 // 5
    if needed > room:
        raise CapacityError(f"{what} needs about {readable(needed)}, but may use {readable(room)}; {advice}")


def check_numbered(n: int, what: str, advice: str) -> None:
    """Raise CapacityError when there are more things than 32 bits can number."""
    if n > MOST_NUMBERED:
        raise CapacityError(f"{what} can be {MOST_NUMBERED:,} at most, but would be {n:,}; {advice}")


def check_rows(n: int, what: str) -> None:
    """Raise CapacityError when there are more subscriptions, boxes or events than 32 bits can number."""
    if n > MOST_ROWS:
        raise CapacityError(f"{what} can be {MOST_ROWS:,} at most, got {n:,}; cut them into several")


def readable(n: float) -> str:
    """Bytes in words.

    >>> readable(512), readable(3_500_000)
    ('512 bytes', '3.5 MB')
    """
    if n < 1000:
        return f"{n:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        n /= 1000
        if n < 1000 or unit == "GB":
            break
    return f"{n:.1f} {unit}"


# Memory for answers, used again when nobody holds it any more.
#
# The answer to a batch may be tens of megabytes that live until the next batch. Fresh memory of that size
# comes from the system and is cleared page by page at its first touch, which is 0.7 of the 1.6 ns that a
# delivered id costs; memory that was touched before costs nothing. So large arrays come from blocks that
# are kept: an array is a view of a block, and when the array and all views of it are gone, the block is
# free again. At most KEPT bytes lie waiting; what is beyond goes back to the system.

LEAST = 1 << 18
LINE = 64
"""Bytes of a line of memory."""
KEPT = 512 << 20
_ROUND = 1 << 16

_lock = threading.Lock()
_waiting: list[npt.NDArray[np.uint8]] = []
# a block may come back at any moment, even while this thread holds the lock, so that is one atomic step
_returned: deque[npt.NDArray[np.uint8]] = deque()


def _after_fork() -> None:
    # whoever held it is not here; at worst a block was about to be taken from the list
    _lock.acquire(blocking=False)
    _lock.release()


os.register_at_fork(after_in_child=_after_fork)


def empty(n: int, dtype: Any) -> npt.NDArray[Any]:
    """An array of n entries with whatever is in it, like numpy's.

    >>> empty(3, np.int32).shape
    (3,)
    """
    if n < LEAST // 8:
        # at once, for it shows in a match of one event
        return np.empty(n, dtype)
    size = n * np.dtype(dtype).itemsize
    if size < LEAST:
        return np.empty(n, dtype)
    block = _take(size)
    out: npt.NDArray[Any] = np.frombuffer(block.data, dtype, n)
    weakref.finalize(out, _returned.append, block).atexit = False
    return out


def lengthened(array: npt.NDArray[Any], used: int, done: float, more: int = 0) -> npt.NDArray[Any]:
    """An array with the first entries of another, and room for all where so many were a share of them.

    At least twice as long, with `more` behind it. A share that is small says little, so there is an eighth to
    spare: an answer that has to be moved once more is fresh memory once more.

    >>> lengthened(np.arange(100), 90, 0.1).shape, lengthened(np.arange(100), 90, 0.9, 5).shape
    ((1012,), (205,))
    """
    wanted = int(used / done * 1.125) if done > 0 else 0
    out = empty(max(2 * len(array), wanted) + more, array.dtype)
    out[:used] = array[:used]
    return out


def aligned(n: int, dtype: Any) -> npt.NDArray[Any]:
    """An array of n entries with whatever is in it, of which the first begins with a line of memory.

    >>> aligned(5, np.uint64).ctypes.data % LINE
    0
    """
    size = np.dtype(dtype).itemsize
    room = np.empty(n + LINE // size, dtype)
    first = -room.ctypes.data % LINE // size
    return room[first : first + n]


def waiting_bytes() -> int:
    """Bytes of the blocks that are kept for the next answer."""
    with _lock:
        _collect()
        return sum(block.nbytes for block in _waiting)


def release() -> None:
    """Give the waiting blocks back to the system."""
    with _lock:
        _collect()
        _waiting.clear()


def _take(size: int) -> npt.NDArray[np.uint8]:
    """The smallest block that has the room and is not mostly idle, or a new one."""
    with _lock:
        _collect()
        fits = [k for k, block in enumerate(_waiting) if size <= block.nbytes <= 4 * size]
        if fits:
            return _waiting.pop(min(fits, key=lambda k: _waiting[k].nbytes))
    # an eighth more than asked, so that a batch that matches a little more finds its room again
    return np.empty((size + size // 8 + _ROUND) & -_ROUND, np.uint8)


def _collect() -> None:
    while _returned:
        _waiting.append(_returned.popleft())
    total = sum(block.nbytes for block in _waiting)
    while total > KEPT:
        # those that came first have waited longest
        total -= _waiting.pop(0).nbytes
