"""Some of the events that an index was asked about lately, as codes.

They must not show in the time of a match: a batch is looked at only when EVERY events have passed since the
last look, or SELDOM once there are enough, and gives at most OF_BATCH of its events. So one event at a time
costs an addition and a comparison, and now and then a copy of one column.

Threads that match at once may both count or write here. A count may then be lost and a column be a mixture
of two events: these are statistics, and no answer depends on them.
"""

from __future__ import annotations

import numpy as np

from rangecast.attributes import Codes

ROOM = 128
EVERY, SELDOM = 64, 1024
OF_BATCH = 32
ENOUGH = 16


class SeenEvents:
    """A ring of recent events, and how many there were."""

    def __init__(self, n_attributes: int) -> None:
        self.n = 0
        self._codes = np.empty((n_attributes, ROOM), np.int64)
        self._kept = 0
        self._next = 1

    def notice(self, codes: Codes) -> None:
        """Count a batch, and keep some of it when it is time."""
        m = codes.shape[1]
        self.n += m
        if self.n >= self._next and m:
            self._keep(codes)

    def _keep(self, codes: Codes) -> None:
        at = self._kept % ROOM
        k = min(codes.shape[1], OF_BATCH, ROOM - at)
        # not the same places each time: a batch may be sorted, or come again
        step = codes.shape[1] // k
        first = self._kept * 7 % step
        self._codes[:, at : at + k] = codes[:, first : first + k * step : step]
        self._kept += k
        self._next = self.n + (EVERY if self._kept < ROOM else SELDOM)

    def sample(self) -> Codes | None:
        """The events kept, if they are enough to judge by."""
        if self._kept < ENOUGH:
            return None
        return self._codes[:, : min(self._kept, ROOM)].copy()
