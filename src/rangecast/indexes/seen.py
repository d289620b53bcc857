"""Some of the events that an index was asked about lately, as codes.

They must not show in the time of a match: a batch is looked at only when EVERY events have passed since the
last look, and gives at most OF_BATCH of its events. So one event at a time costs an addition and a
comparison, and every EVERY-th a copy of one column.

Threads that match at once may both count or write here. A count may then be lost and a column be a mixture
of two events: these are statistics, and no answer depends on them.
"""

from __future__ import annotations

import numpy as np

from rangecast.attributes import Codes

ROOM = 128
EVERY = 64
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
        self._next = self.n + EVERY
        m = codes.shape[1]
        picked = np.arange(m)
        if m > OF_BATCH:
            # not the same places each time: a batch may be sorted, or come again
            step = m // OF_BATCH
            picked = np.arange(OF_BATCH) * step + self._kept * 7 % step
        self._codes[:, (self._kept + np.arange(len(picked))) % ROOM] = codes[:, picked]
        self._kept += len(picked)

    def sample(self) -> Codes | None:
        """The events kept, if they are enough to judge by."""
        if self._kept < ENOUGH:
            return None
        return self._codes[:, : min(self._kept, ROOM)].copy()
