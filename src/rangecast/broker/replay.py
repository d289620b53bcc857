"""Catching up: events from the log, through an index of the subscriptions of those who are behind.

Listeners that are near each other are served together: one pass over the log serves all of them. An entry is
matched where the event's pin lies between its first and its last version (directory.py), so that what is
replayed is what was, or would have been, delivered live.

Two kinds of index serve:

    few subscriptions    an index of those of the group, which is kept for the next round: it takes in what a
                         larger group brings, and is rebuilt when it holds far more than is asked for
    many                 the live index, whose matches for others are left out, and beside it an index of the
                         entries that have ended, which the live one has no longer. To build an index of
                         500,000 subscriptions takes seconds, and to match 65,536 events in one of twice as
                         many a tenth of one

One round reads up to `size` events. Per listener it gives at most `share` bytes; one that has more waits for
its connection to take them, and is served again from there. So memory is bounded, however far behind whoever
is. A round of which much was cut off is followed by smaller ones.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rangecast.broker.directory import ONGOING, Directory
from rangecast.broker.event_log import DamagedRecordError, EventLog
from rangecast.broker.event_record import EventRecord
from rangecast.broker.frames import OwnerFrames, PinnedEvents, change_frames, match_frames, notice
from rangecast.broker.listener import BUFFER, Listener
from rangecast.broker.objects import ChangedPairs, ObjectLinks, changed_pairs, widened
from rangecast.engine import Index, open_index
from rangecast.model.events import Events
from rangecast.types.schema import Schema

ROUND = 65_536
_ROUND_BYTES = 32 << 20
_TOGETHER = 32 << 20  # bytes of frames in one round, for all listeners
_LEAST_SHARE = 16 * 1024
LEAST_ROUND = 1_024
_FIRST_ROUND = 8_192
_MANY = 8  # who have more than this part of all subscriptions are served by the live index
_SLACK = 4  # times as many entries as are asked for make an index be built anew
_FEW = 1_000  # entries, however few are asked for
_GONE = "the log no longer has these events (retention)"


@dataclass
class Served:
    """What a listener gets of one round, and where it stands after it."""

    listener: Listener
    data: bytes
    position: int


class EntryIndex:
    """An index of some entries, which grows by those that are asked for."""

    def __init__(self, directory: Directory, schema: Schema) -> None:
        self._directory = directory
        self._schema = schema
        self._has = np.zeros(0, bool)
        self._n = 0
        self._index: Index | None = None

    def of(self, entries: npt.NDArray[np.int64]) -> Index:
        """An index that has at least these entries."""
        n = self._directory.n_entries
        if self._index is None or self._n > _SLACK * max(len(entries), _FEW):
            self._index = open_index("auto", self._schema)
            self._has = np.zeros(n, bool)
            self._n = 0
        elif n > len(self._has):
            self._has = np.concatenate(
                [self._has, np.zeros(max(n, 2 * len(self._has)) - len(self._has), bool)]
            )
        fresh = np.sort(entries[~self._has[entries]])
        subs = self._directory.some(fresh)
        if subs is not None:
            self._index.insert(subs)
        self._has[fresh] = True
        self._n += len(fresh)
        return self._index


class Replay:
    """Serves listeners that are behind; used by one thread at a time."""

    def __init__(
        self,
        log: EventLog,
        directory: Directory,
        schema: Schema,
        lock: threading.RLock,
        live: Index,
        build: bool = True,
    ) -> None:
        """Without `build`, the live index serves small groups as well, which is quicker for few events."""
        self._log = log
        self._directory = directory
        self._lock = lock
        self._live = live
        self._build = build
        self._own = EntryIndex(directory, schema)
        self._ended = EntryIndex(directory, schema)
        self.size = self.most = _FIRST_ROUND
        """How many events the next round reads, and may read at most."""
        self.events = 0
        """How many events were read again so far."""
        self.gaps = 0
        """How many listeners were told of a gap so far."""

    def group(self, listeners: Sequence[Listener], start: int | None = None) -> list[Listener]:
        """Those to be served together: the one that is furthest behind, from `start` on, and all near it."""
        ordered = sorted(listeners, key=lambda listener: listener.position)
        if start is not None:
            ordered = [listener for listener in ordered if listener.position >= start]
        first = max(ordered[0].position, self._log.first)
        return [listener for listener in ordered if listener.position < first + self.size]

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
                if n >= self.size or size >= _ROUND_BYTES:
                    break
        except DamagedRecordError as error:
            return records, error.after
        return records, None

    def _match(self, records: list[EventRecord], served: list[Served]) -> None:
        base, last = records[0].head.sequence, records[-1].head.next
        pins = np.repeat([r.head.pin for r in records], [r.head.n for r in records])
        by_owner: dict[int, list[Served]] = {}
        for one in served:
            by_owner.setdefault(one.listener.number, []).append(one)
        pairs, links = self._pairs(records, list(by_owner), int(pins[0]))
        self.events += len(pins)
        directory = self._directory
        pin = pins[pairs.rows]
        with self._lock:
            valid = (directory.since[pairs.entries] <= pin) & (pin < directory.until[pairs.entries])
            expired = directory.expired_between(int(pins[0]), int(pins[-1]))
        wanted = np.zeros(len(directory.consumers) + 1, bool)
        wanted[list(by_owner)] = True
        stretches = [PinnedEvents(r.head.sequence, r.head.n, r.head.pin, r.json) for r in records]
        share = max(_LEAST_SHARE, min(BUFFER, _TOGETHER // len(served)))
        unheard = {id(one): one for one in served}
        if links:
            valid &= wanted[directory.owners[pairs.entries]]
            made = change_frames(stretches, pairs.where(valid), directory)
        else:
            made = match_frames(stretches, pairs.rows[valid], pairs.entries[valid], directory, wanted)
        offered = given = 0
        for frames in made:
            for one in by_owner[frames.owner]:
                before = len(one.data)
                offered += _fill(one, frames, share, last)
                given += len(one.data) - before
                unheard.pop(id(one), None)
        for one in unheard.values():
            one.position = max(one.position, last)
        if offered > 2 * given:
            self.size = max(LEAST_ROUND, self.size // 2)
        elif offered == given:
            self.size = min(self.most, 2 * self.size)
        for version, entry in expired:
            for one in by_owner.get(int(directory.owners[entry]), ()):
                at = base + int(np.searchsorted(pins, version))
                if one.listener.position <= at < one.position:
                    name = directory.ids[entry].partition("/")[2]
                    one.data += notice("expired", {"subscription": name, "version": version})

    def _pairs(self, records: list[EventRecord], consumers: list[int], low: int) -> tuple[ChangedPairs, bool]:
        """What events match of the subscriptions of some consumers and perhaps of others, whatever their
        versions; and whether states of objects were compared."""
        directory = self._directory
        with self._lock:
            many = not self._build or _MANY * directory.count_of(consumers) > len(directory)
            entries = None if many else directory.entries_of(consumers, low)
        if entries is not None:
            return self._matched(self._own.of(entries), records)
        found, links = self._matched(self._live, records)
        # looked at after the match: what has ended since then was found there, and is left out of it
        with self._lock:
            ended = directory.ended_since(low)
            found = found.where(directory.until[found.entries] == ONGOING)
        if len(ended):
            others, _ = self._matched(self._ended.of(ended), records)
            found = found.joined(others)
        return found, links

    def _matched(self, index: Index, records: list[EventRecord]) -> tuple[ChangedPairs, bool]:
        schema = index.schema
        events = joined_events(schema, [(r.codes, r.owners, r.head.n) for r in records])
        links = joined_links(schema, [r.links for r in records])
        if links is not None:
            return changed_pairs(index, events, links), True
        matches = index.match(events)
        rows = matches.events()
        return ChangedPairs(
            rows, np.asarray(matches.ids), np.ones(len(rows), bool), np.zeros(len(rows), bool)
        ), False


def _fill(one: Served, frames: OwnerFrames, share: int, last: int) -> int:
    """Give a listener its frames from its position on, up to a share of bytes and one frame beyond; how
    many bytes there were."""
    size = frames.size
    if one.position <= frames.sequences[frames.first] and len(one.data) + size <= share:
        # most rounds, for most: a fifth of the time of what follows
        one.data += frames.data
        one.position = max(one.position, last)
        return size
    sequences, ends = frames.places()
    start = int(np.searchsorted(sequences, one.position))
    if start == len(ends):
        one.position = max(one.position, last)
        return 0
    begin = int(ends[start - 1]) if start else 0
    k = max(start, int(np.searchsorted(ends, begin + share - len(one.data), "right")))
    one.data += frames.piece(begin, int(ends[min(k, len(ends) - 1)]))
    one.position = int(sequences[k]) + 1 if k < len(ends) else max(one.position, last)
    return int(ends[-1]) - begin


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
