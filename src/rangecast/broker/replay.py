"""Catching up: events from the log, through an index of the subscriptions of those who are behind.

Listeners that are near each other are served together: their subscriptions make one index, and one pass
over the log serves all of them. An entry is matched where the event's pin lies between its first and its
last version (directory.py), so that what is replayed is what was, or would have been, delivered live.

One round reads up to `ROUND` events. Per listener it gives at most `share` bytes; one that has more waits
for its connection to take them, and is served again from there. So memory is bounded, however far behind
whoever is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rangecast.broker.directory import Directory
from rangecast.broker.event_log import DamagedRecordError, EventLog
from rangecast.broker.event_record import EventRecord
from rangecast.broker.frames import PinnedEvents, match_frames, notice
from rangecast.broker.listener import BUFFER, Listener
from rangecast.engine import Index
from rangecast.model.events import Events
from rangecast.types.schema import Schema

ROUND = 65_536
_ROUND_BYTES = 32 << 20
_TOGETHER = 32 << 20  # bytes of frames in one round, for all listeners
_LEAST_SHARE = 16 * 1024


@dataclass
class Served:
    """What a listener gets of one round, and where it stands after it."""

    listener: Listener
    data: bytes
    position: int


class Replay:
    """Serves listeners that are behind; used by one thread at a time."""

    def __init__(self, log: EventLog, directory: Directory, schema: Schema, lock: threading.RLock) -> None:
        self._log = log
        self._directory = directory
        self._schema = schema
        self._lock = lock
        self._key: tuple[object, ...] = ()
        self._index: Index | None = None
        self._entries = np.empty(0, np.int64)
        self.events = 0
        """How many events were read again so far."""
        self.gaps = 0
        """How many listeners were told of a gap so far."""

    def group(self, listeners: Sequence[Listener]) -> list[Listener]:
        """Those to be served together: the one that is furthest behind, and all near it."""
        ordered = sorted(listeners, key=lambda listener: listener.position)
        start = max(ordered[0].position, self._log.first)
        return [listener for listener in ordered if listener.position < start + ROUND]

    def serve(self, group: Sequence[Listener], until: int | None = None) -> list[Served]:
        """One round for a group, up to an event or to what is on disk."""
        served = {id(listener): Served(listener, b"", listener.position) for listener in group}
        first = self._log.first
        for one in served.values():
            if one.position < first:
                self._tell_gap(one, first, "the log no longer has these events (retention)")
        start = min(one.position for one in served.values())
        records, damage = self._read(start, until)
        if damage is not None and not records:
            for one in served.values():
                if one.position == start or one.position < damage:
                    self._tell_gap(one, damage, "these events cannot be read (damaged)")
            return list(served.values())
        if records:
            self._match(records, list(served.values()))
        return list(served.values())

    def _tell_gap(self, one: Served, position: int, reason: str) -> None:
        content = {"from": one.position, "to": position - 1, "reason": reason}
        one.data += notice("gap", content, position - 1)
        one.position = position
        self.gaps += 1

    def _read(self, start: int, until: int | None) -> tuple[list[EventRecord], int | None]:
        records: list[EventRecord] = []
        n = size = 0
        try:
            for record in self._log.records(start, until):
                if records and record.head.sequence != records[-1].head.next:
                    break
                records.append(record)
                n += record.head.n
                size += record.head.length
                if n >= ROUND or size >= _ROUND_BYTES:
                    break
        except DamagedRecordError as error:
            return records, error.after
        return records, None

    def _match(self, records: list[EventRecord], served: list[Served]) -> None:
        base, last = records[0].head.sequence, records[-1].head.next
        pins = np.repeat([r.head.pin for r in records], [r.head.n for r in records])
        events = joined_events(self._schema, [(r.codes, r.owners, r.head.n) for r in records])
        consumers = sorted({one.listener.number for one in served})
        index = self._index_for(consumers, int(pins[0]), int(pins[-1]))
        self.events += len(events)
        matches = index.match(events)
        rows, entries = matches.events(), np.asarray(matches.ids)
        with self._lock:
            directory = self._directory
            pin = pins[rows]
            valid = (directory.since[entries] <= pin) & (pin < directory.until[entries])
            if not valid.all():
                rows, entries = rows[valid], entries[valid]
            expired = directory.expired_between(self._entries, int(pins[0]), int(pins[-1]))
        stretches = [PinnedEvents(r.head.sequence, r.head.n, r.head.pin, r.json) for r in records]
        by_owner: dict[int, list[Served]] = {}
        for one in served:
            by_owner.setdefault(one.listener.number, []).append(one)
        share = max(_LEAST_SHARE, min(BUFFER, _TOGETHER // len(served)))
        unheard = {id(one): one for one in served}
        for owner, sequences, frames in match_frames(stretches, rows, entries, directory):
            for one in by_owner[owner]:
                _fill(one, sequences, frames, share, last)
                unheard.pop(id(one), None)
        for one in unheard.values():
            one.position = max(one.position, last)
        for entry, version in expired:
            for one in by_owner[int(directory.owners[entry])]:
                at = base + int(np.searchsorted(pins, version))
                if one.listener.position <= at < one.position:
                    name = directory.ids[entry].partition("/")[2]
                    one.data += notice("expired", {"subscription": name, "version": version})

    def _index_for(self, consumers: list[int], low: int, high: int) -> Index:
        """An index of all entries of these consumers that events pinned to low..high may concern."""
        with self._lock:
            directory = self._directory
            entries = directory.entries_of(consumers, low)
            key = (tuple(consumers), len(entries), int(entries[-1]) if len(entries) else -1)
            if self._index is None or key != self._key or not np.array_equal(entries, self._entries):
                self._index = directory.index_of(entries, self._schema)
                self._key, self._entries = key, entries
            return self._index


def _fill(one: Served, sequences: list[int], frames: list[bytes], share: int, last: int) -> None:
    """Give a listener its frames from its position on, up to a share of bytes."""
    start = int(np.searchsorted(np.asarray(sequences), one.position))
    taken, size = [], len(one.data)
    for k in range(start, len(frames)):
        taken.append(frames[k])
        size += len(frames[k])
        if size > share:
            one.data += b"".join(taken)
            one.position = sequences[k] + 1
            return
    one.data += b"".join(taken)
    one.position = max(one.position, last)


BatchCodes = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None, int]
"""Codes of a batch, the event of each column where events have several, and the number of events."""


def joined_events(schema: Schema, batches: Sequence[BatchCodes]) -> Events:
    """Several batches as one."""
    codes = batches[0][0] if len(batches) == 1 else np.concatenate([codes for codes, _, _ in batches], axis=1)
    events = Events(schema, codes, copy=False)
    if any(owners is not None for _, owners, _ in batches):
        first, parts = 0, []
        for _, owners, n in batches:
            parts.append(first + (np.arange(n) if owners is None else owners))
            first += n
        events.owners = np.concatenate(parts)
    return events
