"""Which version of a store a batch is matched against: one rule for both kinds of stream.

    version       meaning
    newest        the version that the store has when the batch is planned
    a number      this version, for every batch
    event-time    for each event the version that was the newest at the event's own time, but none that
                  is newer than what the store had when the batch was planned

A batch is pinned when it is planned, before anything is matched, and a batch that is run again takes the
pin that it has. Where pins are kept is the stream's affair: `match_stream` puts them into files of its
checkpoint (stream/ledger.py), the source into Spark's log of offsets (source/source.py). What a pin means
is told here, in the order in which it happens:

    VersionPolicy.parse, .on    at the edge: check what was asked for, find the column of the events' time
    VersionPolicy.pin           on the driver, when a batch is planned: choose, and hold it in the store
    check_pinned           on the driver, when a batch is run again: whether all that it needs is there
    PinnedStore            in the workers: the version, and so the index, of each event
    VersionPolicy.release       when a batch is whole; .advance where only the batch before it is
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable.lock import LockedError
from rangecast.engine import Index
from rangecast.errors import OptionError, StorageError
from rangecast.spark.worker import followed, open_store
from rangecast.store.store import Store
from rangecast.types.attributes import MISSING
from rangecast.types.schema import Schema

NEWEST, EVENT_TIME = "newest", "event-time"
_PUBLISH_SECONDS = 5.0
_logger = logging.getLogger("rangecast.spark")


class Pinned(NamedTuple):
    """What a batch is matched against; `oldest` only where each event chooses its version by its time."""

    version: int
    oldest: int | None = None

    @property
    def needed(self) -> int:
        """The oldest version that the batch may ask for."""
        return self.version if self.oldest is None else self.oldest


@dataclass(frozen=True)
class VersionPolicy:
    """How the version of a batch is chosen; `time` is the column of the events' time, if it matters.

    Where workers map the `whole` index, a snapshot is made now and then, so that new ones have little to
    apply.
    """

    choice: str | int = NEWEST
    time: str | None = None
    whole: bool = True

    def __str__(self) -> str:
        return str(self.choice)

    @classmethod
    def parse(cls, choice: Any, time: str | None = None) -> VersionPolicy:
        """Check what was asked for.

        >>> str(VersionPolicy.parse("newest")), VersionPolicy.parse("12").choice
        ('newest', 12)
        """
        if isinstance(choice, VersionPolicy):
            choice, time = choice.choice, choice.time if time is None else time
        if isinstance(choice, str) and choice.isdigit():
            choice = int(choice)
        number = isinstance(choice, int) and not isinstance(choice, bool) and choice >= 0
        if not number and choice not in (NEWEST, EVENT_TIME):
            raise OptionError(
                f"version must be {NEWEST!r}, {EVENT_TIME!r} or the number of a version, got {choice!r}"
            )
        if time is not None and choice != EVENT_TIME:
            raise OptionError(
                f"time names the column of the events' time and goes with version {EVENT_TIME!r}, got "
                f"version {choice!r}"
            )
        return cls(choice, time)

    def on(self, schema: Schema) -> VersionPolicy:
        """The same for a schema: by event time, its only timestamp is the events' time by default."""
        if self.choice != EVENT_TIME or self.time is not None:
            return self
        found = [attribute.name for attribute in schema if attribute.kind == "timestamp"]
        if len(found) != 1:
            raise OptionError(
                f"version {EVENT_TIME!r} needs time, the column of the events' time: the schema must have "
                f"one timestamp to take instead, got {len(found)}"
            )
        return dataclasses.replace(self, time=found[0])

    def now(self, store: Store) -> Pinned:
        """What is chosen at this moment, for who reads it once and holds nothing."""
        version = store.version if isinstance(self.choice, str) else self.choice
        if not store.oldest <= version <= store.version:
            raise StorageError(
                f"{store.path}: has versions {store.oldest} to {store.version}, got version {version}"
            )
        return Pinned(version, None if self.time is None else store.oldest)

    def pin(self, store: Store, holder: str, note: str) -> Pinned:
        """What the next batch is matched against, held in the store before anybody gets to know it."""
        if isinstance(self.choice, int):
            return Pinned(store.hold(holder, self.choice, note))
        with contextlib.suppress(LockedError):
            # a long load by another writer; what is due goes with a later batch
            store.expire()
        if self.whole:
            publish_beside(str(store.path))
        held = [hold.version for hold in store.holds() if hold.name == holder]
        if self.time is None:
            # versions only grow, so what the batch before holds keeps this one as well
            return Pinned(store.version if held else store.hold(holder, note=note))
        # for events of any time all versions are held that there were at the beginning
        oldest = held[0] if held else store.hold(holder, store.oldest, note)
        return Pinned(_version_at_rest(store), oldest)

    def hold_again(self, store: Store, holder: str, pinned: Pinned, note: str) -> None:
        """Hold what a batch was pinned to, when it is run again."""
        if self.time is None:
            store.hold(holder, pinned.version, note)

    def release(self, store: Store, holder: str) -> None:
        """Hold nothing any more: the batch is whole, and the next one holds its own version.

        A version that was asked for by number, and those of event time, are needed by every batch.
        """
        if self.choice == NEWEST:
            store.release(holder)

    def advance(self, store: Store, holder: str, done: Pinned, note: str) -> None:
        """Hold the version of a batch that is whole; the next one is planned already, with none older."""
        if self.choice == NEWEST:
            # a hold that somebody released is missed by the next batch, not by this one, which is done
            with contextlib.suppress(StorageError):
                store.hold(holder, done.version, note)


def _version_at_rest(store: Store) -> int:
    """The newest version when nobody writes: a change under way has a time before now and must be seen."""
    while True:
        try:
            with store.writing():
                return store.version
        except LockedError:
            _logger.warning("%s: a batch by event time waits for another process that writes", store.path)


def check_pinned(store: Store, pinned: Pinned, batch: str, otherwise: str) -> None:
    """Raise when the store does not have what an unfinished batch is pinned to; says what to do then."""
    if store.oldest <= pinned.needed <= store.version:
        return
    has = f"the oldest is {store.oldest}" if pinned.needed < store.oldest else f"it has {store.version}"
    raise StorageError(
        f"{store.path}: {batch} was begun with version {pinned.needed} of the store, which is gone ({has}): "
        f"bring back the snapshot from a backup; or {otherwise}"
    )


def check_newer(store: Store, seen: int) -> None:
    """Raise when a store ends before a version that a stream has seen."""
    if seen > store.version:
        raise StorageError(
            f"{store.path}: has versions up to {store.version}, but the checkpoint has seen {seen}: the "
            "store is an old copy; bring back the newer one, or start afresh with an empty checkpoint and "
            "output"
        )


class PinnedStore(NamedTuple):
    """A store and what a batch of its is pinned to: all that a worker needs to find indexes."""

    path: str
    pinned: Pinned
    time: str | None = None

    @property
    def schema(self) -> Schema:
        """The schema to encode events with: the index's own, unless there will be several."""
        # by time there are many indexes, and all have the words of the newest or fewer
        return open_store(self.path).schema if self.time is not None else self._index().schema

    def versions_of(self, times: Any) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
        """The version of each event's time, and the rows that have none with the reason."""
        assert self.time is not None
        encoded = self.schema.instants(self.time).encode(times)
        reasons = dict(zip(encoded.bad.tolist(), encoded.reasons, strict=True))
        for row in np.flatnonzero(encoded.codes == MISSING).tolist():
            reasons.setdefault(row, f"an event must have a time in {self.time!r}")
        # what compact has removed since the batch was pinned is held; what was gone before is the same
        # each time
        versions = np.minimum(open_store(self.path).versions_at(encoded.codes), self.pinned.version)
        oldest = self.pinned.needed
        for row in np.flatnonzero(versions < oldest).tolist():
            reasons.setdefault(row, f"the subscriptions of its time are gone; the oldest version is {oldest}")
        return versions, reasons

    def indexes(self, events: Any, table: Any, versions: Any) -> Iterator[tuple[Index, Any, Any]]:
        """The events and their columns with the index that they are matched against, version by version."""
        if versions is None:
            yield self._index(), events, table
            return
        for _, rows, index in followed(self.path).each(versions):
            yield index, events.select(rows), table.take(pa.array(rows))

    def _index(self) -> Index:
        return followed(self.path).at(self.pinned.version)


_published: dict[str, tuple[float, threading.Thread]] = {}


def publish_beside(path: str) -> None:
    """Make a snapshot in a thread when enough has changed, so that new workers have little to apply."""
    last, thread = _published.get(path, (-_PUBLISH_SECONDS, None))
    if time.monotonic() - last < _PUBLISH_SECONDS or (thread is not None and thread.is_alive()):
        return
    thread = threading.Thread(target=_publish, args=(path,), daemon=True, name="rangecast-publish")
    _published[path] = time.monotonic(), thread
    thread.start()


def _publish(path: str) -> None:
    try:
        open_store(path).publish_if_due()
    except (StorageError, OSError) as error:
        # the stream goes on without it
        _logger.warning("%s: no snapshot could be made: %s", path, error)
