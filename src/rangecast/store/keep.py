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

import os
import re
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import open_index
from rangecast.errors import OptionError, StorageError, SubscriptionError
from rangecast.model.events import Events
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import Times, expiry_times
from rangecast.store.change import Change
from rangecast.store.commits import STATE, commits_at
from rangecast.store.home import Home, home_of
from rangecast.types.attributes import LAST, Int
from rangecast.types.schema import Schema


class Expiries:
    """The subscriptions of one version that end some time.

    >>> ending = Expiries(Ids.of([7, 8]), np.array([100, 200]))
    >>> ending.due(150).values.tolist(), ending.next()
    ([7], 100)
    """

    def __init__(self, ids: Ids, expires: Times) -> None:
        self._clock = open_index("scan", Schema(Int("now")))
        # when the next one ends, LAST for never; None where that must be looked up
        self._next: int | None = LAST
        self._insert(ids, expires)

    def __len__(self) -> int:
        return len(self._clock)

    def apply(self, change: Change) -> None:
        """Come to the next version."""
        if len(self._clock):
            for gone in (change.deleted, change.inserted.ids):
                known = np.flatnonzero(self._clock.known(gone))
                if len(known):
                    self._clock.delete(gone.select(known))
                    self._next = None
        if change.expires is not None:
            rows = np.flatnonzero(change.expires)
            self._insert(change.inserted.ids.select(rows), change.expires[rows])

    def due(self, now: int) -> Ids:
        """The subscriptions whose time has come."""
        if self._next is not None and now < self._next:
            return Ids.of([])
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
        if self._next is None:
            self._next = int(self.all()[1].min(initial=LAST))
        return None if self._next == LAST else self._next

    def _insert(self, ids: Ids, expires: Times) -> None:
        if len(ids):
            lows = expires.reshape(1, -1)
            self._clock.insert(Subscriptions(self._clock.schema, ids, lows, np.full_like(lows, LAST)))
            if self._next is not None:
                self._next = min(self._next, int(expires.min()))


def checked_times(expires: Any, n: int) -> Times | None:
    """What a caller said of n subscriptions, None when none ends; SubscriptionError for what is no time."""
    times, bad = expiry_times(expires, n)
    for row in sorted(bad):
        raise SubscriptionError(f"expires, row {row}: {bad[row]}")
    return times


# Who still needs a version of a store: one small file for each, which `compact` reads.
#
#     holds/<name>.json    version, note, and when it was held; it has a sum (durable/documents.py)
#     holds/lock           taken for a moment by who holds, and by compact while it removes
#
# A hold is kept until it is released, also past the end of its process: a stream that crashed finds the
# version of its last batch again. The lock is not the writers' lock, so a hold never waits for a load;
# with it a hold that was given cannot lose its version to a compaction that had read the holds before. In a
# bucket, which has no locks, a hold is put first, then compared with what compact has closed (object_log.py).

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Hold(NamedTuple):
    """A version that `compact` must keep, and all after it."""

    name: str
    version: int
    note: str
    time: int


def read_holds(home: Home) -> list[Hold]:
    """All holds of a store, the oldest version first."""
    found = []
    for name in (name for name in home.names("holds") if name.endswith(".json")):
        path = home.path / "holds" / name
        try:
            said = home.read(f"holds/{name}")
            if said is not None:
                stem = name.removesuffix(".json")
                found.append(Hold(stem, int(said["version"]), str(said["note"]), int(said["time"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            # not passed over: what it held would be removed
            raise StorageError(
                f"{path}: a hold that cannot be read ({error}); release it by its name"
            ) from None
    return sorted(found, key=lambda hold: (hold.version, hold.name))


def write_hold(home: Home, hold: Hold) -> None:
    """Put a hold, in place of the one of the same name."""
    said = {"version": hold.version, "note": hold.note, "time": hold.time}
    home.write(hold_name(hold.name), said)


def remove_hold(home: Home, name: str) -> bool:
    """Take a hold away; says whether there was one."""
    return home.remove(hold_name(name))


def hold_name(name: str) -> str:
    """The document of a hold."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            "the name of a hold must be up to 100 letters, digits, '_', '-' and '.', not '-' or '.' first, "
            f"got {name!r}"
        )
    return f"holds/{name}.json"


# How much of its past a store keeps by itself.
#
#     history.json    versions, seconds and bytes, with a sum (durable/documents.py); the defaults where
#                     there is none
#
# Every CHECKPOINT versions a writer begins a segment of the log, sees to it that there is a recent snapshot,
# and lets `compact` remove what is beyond the limits. So opening a store costs what has changed since the
# last checkpoint, and its folder does not grow for ever. Holds are respected, as by every `compact`.

CHECKPOINT = 1000
_FILE = "history.json"


@dataclass(frozen=True)
class HistoryLimits:
    """Limits of the past: a version goes when it is beyond `versions` or the folder is larger than `bytes`,
    but not while it is younger than `seconds`. None is no limit.

    >>> HistoryLimits(versions=100).keeps(newest=5000, young=4990, size=0)
    4900
    >>> HistoryLimits(versions=100).keeps(newest=5000, young=2000, size=0)
    2000
    >>> HistoryLimits(versions=None, bytes=1000).keeps(newest=5000, young=4990, size=1001)
    4990
    """

    versions: int | None = 10_000
    seconds: float = 3600.0
    bytes: int | None = 1 << 34

    def __post_init__(self) -> None:
        for name, least in (("versions", 1), ("seconds", 0), ("bytes", 0)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= least):
                raise OptionError(f"{name} of a history must be at least {least}, got {value!r}")

    def keeps(self, newest: int, young: int, size: int) -> int:
        """The oldest version to keep; `young` is the newest one that is as old as `seconds`."""
        limit = 0 if self.versions is None else newest - self.versions
        if self.bytes is not None and size > self.bytes:
            limit = newest
        return max(0, min(limit, young))


def read_history(home: Home) -> HistoryLimits | None:
    """The limits of a store; None when it keeps everything until somebody compacts it."""
    said = home.read(_FILE)
    if said is None:
        return HistoryLimits()
    if not said:
        return None
    try:
        return HistoryLimits(**said)
    except (TypeError, OptionError) as error:
        raise StorageError(f"{home.path / _FILE}: cannot be read: {error}") from None


def write_history(home: Home, history: HistoryLimits | None) -> None:
    """Put the limits of a store."""
    home.write(_FILE, {} if history is None else asdict(history))


# Which version of a store a batch of a stream was matched against, read from the stream's output.
#
#    out/_rangecast/stream.json           names the checkpoint
#    out/_rangecast/commits...            batch and version of each batch that is whole (commits.py)
#    checkpoint/_rangecast/stream.json    the store's id, and whether each event chose its version by its time
#    checkpoint/_rangecast/pins/12.json   store, version and oldest version of one of the last batches
#
# The stream writes these files or objects (spark/stream/ledger.py); reading them needs no Spark. Each has a
# sum (durable/documents.py).

BY_TIME = "event-time"


class PinnedBatch(NamedTuple):
    """What a batch was matched against; `store` and `by_time` are None where the checkpoint is not there."""

    batch: int
    version: int
    store: str | None
    by_time: bool | None


def pinned_batch(out: str | os.PathLike[str], batch: int) -> PinnedBatch:
    """The pin of a batch, by the output of its stream, a folder or an address."""
    stream = home_of(out).read(f"{STATE}/stream.json")
    if stream is None:
        raise StorageError(f"{out}: is no output of a stream; there is no {STATE}/stream.json in it")
    try:
        own = home_of(stream["checkpoint"])
        begun = own.read(f"{STATE}/stream.json")
        store = None if begun is None else str(begun["store"])
        by_time = None if begun is None else begun["version"] == BY_TIME
        pin = own.read(f"{STATE}/pins/{batch}.json")
        if pin is not None:
            return PinnedBatch(batch, int(pin["version"]), str(pin["store"]), pin["oldest"] is not None)
        commits = commits_at(out).read()
        batches = [int(commit["batch"]) for commit in commits]
        if batch in batches:
            version = int(commits[batches.index(batch)]["version"])
            return PinnedBatch(batch, version, store, by_time)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{out}: the stream's record of batch {batch} lacks {error}") from None
    has = f"its batches are {batches[0]} to {batches[-1]}" if batches else "no batch is whole yet"
    raise StorageError(f"{out}: has no batch {batch}; {has}")
