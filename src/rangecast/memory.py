"""How much memory there is, and refusing a build before it runs out, of memory or of numbers."""

from __future__ import annotations

import os
import sys

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
