"""When subscriptions end, as a caller says it: one moment for all, or a column of them.

Times are microseconds since 1970 UTC; 0 stands for never.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import SubscriptionError
from rangecast.types.attributes import MISSING, VALUE, Timestamp

Times = npt.NDArray[np.int64]
"""Microseconds since 1970 UTC."""
_TIME = Timestamp("expires")


def instant(when: Any = None) -> int:
    """One moment as microseconds since 1970 UTC; now by default. A time without a zone is UTC."""
    if when is None:
        return time.time_ns() // 1000
    return int(_TIME.bracket(when)[0])


def expiry_times(expires: Any, n: int) -> tuple[Times | None, dict[int, str]]:
    """The times of n subscriptions (None when none ends), and what is wrong with some rows.

    >>> times, bad = expiry_times([None, "2026-01-31", -5], 3)
    >>> times.tolist(), bad
    ([0, 1769817600000000, 0], {2: 'must be a time after 1970, got -5'})
    """
    if expires is None:
        return None, {}
    if isinstance(expires, str) or not hasattr(expires, "__len__"):
        expires = [instant(expires)] * n
    if len(expires) != n:
        raise SubscriptionError(
            f"expires must be one time or one per subscription ({n:,}), got {len(expires):,}"
        )
    encoded = _TIME.encode(expires, VALUE)
    bad = dict(zip(encoded.bad.tolist(), encoded.reasons, strict=True))
    times = np.where(encoded.codes == MISSING, 0, encoded.codes)
    for row in np.flatnonzero(times < 0).tolist():
        bad[row] = f"must be a time after 1970, got {int(times[row])}"
    times = np.maximum(times, 0)
    return times if bool(times.any()) else None, bad
