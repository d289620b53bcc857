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
from rangecast.broker.frames import OwnerFrames, PinnedEvents, change_frames, match_frames, notice
from rangecast.broker.listener import BUFFER, Listener
from rangecast.broker.objects import ObjectLinks, changed_pairs, widened
from rangecast.engine import Index
from rangecast.model.events import Events
from rangecast.types.schema import Schema

ROUND = 65_536
_ROUND_BYTES = 32 << 20
_TOGETHER = 32 << 20  # bytes of frames in one round, for all listeners
_LEAST_SHARE = 16 * 1024
_GONE = "the log no longer has these events (retention)"


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
                self._tell_gap(one, first, _GONE)
        start = min(one.position for one in served.values())
        records, damage = self._read(start, until)
        if damage is not None and not records:
            for one in served.values():
                if one.position == start or one.position < damage:
                    self._tell_gap(one, damage, "these events cannot be read (damaged)")
            return list(served.values())
        if records:
            for one in served.values():
                # a segment that retention removed while it was read
                if one.position < records[0].head.sequence:
                    self._tell_gap(one, records[0].head.sequence, _GONE)
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
        consumers = sorted({one.listener.number for one in served})
        index = self._index_for(consumers, int(pins[0]), int(pins[-1]))
        events = joined_events(index.schema, [(r.codes, r.owners, r.head.n) for r in records])
        self.events += len(events)
        links = joined_links(index.schema, [r.links for r in records])
        changes = None
        if links is not None:
            changes = changed_pairs(index, events, links)
            rows, entries = changes.rows, changes.entries
        else:
            matches = index.match(events)
            rows, entries = matches.events(), np.asarray(matches.ids)
        with self._lock:
            directory = self._directory
            pin = pins[rows]
            valid = (directory.since[entries] <= pin) & (pin < directory.until[entries])
            expired = directory.expired_between(self._entries, int(pins[0]), int(pins[-1]))
        stretches = [PinnedEvents(r.head.sequence, r.head.n, r.head.pin, r.json) for r in records]
        by_owner: dict[int, list[Served]] = {}
        for one in served:
            by_owner.setdefault(one.listener.number, []).append(one)
        share = max(_LEAST_SHARE, min(BUFFER, _TOGETHER // len(served)))
        unheard = {id(one): one for one in served}
        if changes is not None:
            made = change_frames(stretches, changes.where(valid), directory)
        else:
            made = match_frames(stretches, rows[valid], entries[valid], directory)
        for frames in made:
            for one in by_owner[frames.owner]:
                _fill(one, frames, share, last)
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


def _fill(one: Served, frames: OwnerFrames, share: int, last: int) -> None:
    """Give a listener its frames from its position on, up to a share of bytes and one frame beyond."""
    sequences, ends = frames.places()
    data = frames.data
    start = int(np.searchsorted(sequences, one.position))
    begin = int(ends[start - 1]) if start else 0
    room = share - len(one.data)
    k = max(start, int(np.searchsorted(ends, begin + room, "right")))
    if k < len(ends):
        one.data += data[begin : int(ends[k])]
        one.position = int(sequences[k]) + 1
        return
    one.data += data[begin:]
    one.position = max(one.position, last)


def joined_links(schema: Schema, several: Sequence[ObjectLinks | None]) -> ObjectLinks | None:
    """The links of batches that were joined; None where none has any."""
    if not any(links is not None for links in several):
        return None
    assert all(links is not None for links in several), "a space has its key from the beginning"
    known = [links for links in several if links is not None]
    return ObjectLinks(
        np.concatenate([links.objects for links in known], axis=1),
        np.concatenate([links.previous for links in known]),
        np.concatenate([widened(schema, links.before) for links in known], axis=1),
    )


BatchCodes = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None, int]
"""Codes of a batch, the event of each column where events have several, and the number of events."""


def joined_events(schema: Schema, batches: Sequence[BatchCodes]) -> Events:
    """Several batches as one, each with the hidden attributes of its time; what no condition asked then is
    computed from the codes, and concerns later subscriptions alone."""
    every = [widened(schema, codes, owners) for codes, owners, _ in batches]
    joined = None
    if any(owners is not None for _, owners, _ in batches):
        first, parts = 0, []
        for _, owners, n in batches:
            parts.append(first + (np.arange(n) if owners is None else owners))
            first += n
        joined = np.concatenate(parts)
    return Events.coded(schema, every[0] if len(every) == 1 else np.concatenate(every, axis=1), joined)
