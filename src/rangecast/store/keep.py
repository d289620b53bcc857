"""Which subscriptions of a store end, and when.

A subscription that ends at time t is kept here as one that is interested in the clock, from t on: one
box [t, forever) on the attribute `now`. So what is due is what an event of this moment matches, and
inserting, replacing, deleting and giving back the room of the dead are those of any index. A scan
serves: it is asked once in a while, and a million boxes of one attribute take a millisecond or two.

Times are microseconds since 1970 UTC; 0 stands for never. A subscription ends when somebody says so
(`Store.expire`), by a change like any other: the versions before still have it, the ones after do not,
and a replay sees the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.engine import open_index
from rangecast.errors import SubscriptionError
from rangecast.model.events import Events
from rangecast.model.expiry_times import Times, expiry_times, instant
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.change import Change
from rangecast.types.attributes import LAST, Int
from rangecast.types.schema import Schema

__all__ = ["Expiries", "checked_times", "instant"]


class Expiries:
    """The subscriptions of one version that end some time.

    >>> ending = Expiries(Ids.of([7, 8]), np.array([100, 200]))
    >>> ending.due(150).values.tolist(), ending.next()
    ([7], 100)
    """

    def __init__(self, ids: Ids, expires: Times) -> None:
        self._clock = open_index("scan", Schema(Int("now")))
        self._insert(ids, expires)

    def __len__(self) -> int:
        return len(self._clock)

    def apply(self, change: Change) -> None:
        """Come to the next version."""
        if len(self._clock):
            for gone in (change.deleted, change.inserted.ids):
                if len(gone):
                    self._clock.delete(gone.select(np.flatnonzero(self._clock.known(gone))))
        if change.expires is not None:
            rows = np.flatnonzero(change.expires)
            self._insert(change.inserted.ids.select(rows), change.expires[rows])

    def due(self, now: int) -> Ids:
        """The subscriptions whose time has come."""
        matches = self._clock.match(Events(self._clock.schema, np.array([[now]], np.int64)))
        return Ids.of(matches.ids)

    def all(self) -> tuple[Ids, Times]:
        """Every subscription that ends some time, and when."""
        subs = self._clock.subscriptions()
        return subs.ids, subs.lows[0]

    def of(self, ids: Ids) -> Times:
        """When each of these ends; 0 where it does not."""
        ending, times = self.all()
        out = np.zeros(len(ids), np.int64)
        rows = IdTable(ending).find(ids)
        out[rows >= 0] = times[rows[rows >= 0]]
        return out

    def next(self) -> int | None:
        """When the next one ends."""
        _, times = self.all()
        return int(times.min()) if len(times) else None

    def _insert(self, ids: Ids, expires: Times) -> None:
        if len(ids):
            lows = expires.reshape(1, -1)
            self._clock.insert(Subscriptions(self._clock.schema, ids, lows, np.full_like(lows, LAST)))


def checked_times(expires: Any, n: int) -> Times | None:
    """What a caller said of n subscriptions, None when none ends; SubscriptionError for what is no time."""
    times, bad = expiry_times(expires, n)
    for row in sorted(bad):
        raise SubscriptionError(f"expires, row {row}: {bad[row]}")
    return times
