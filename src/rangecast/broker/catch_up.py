"""The catch-up thread of a space: it serves those that are behind from the log, round by round (catch_up.py).

A listener waits here until it is served, is served again when its connection has taken the bytes, and goes to
the matcher thread (pump.py) when it has come to where that one is.

Those who are live go first, so catching up has a budget:

    a round      takes about `_ROUND_SECONDS` of a processor while anybody is live: rounds that take longer
                 are followed by smaller ones. It does not matter whether events come just now: who is live
                 would wait for a large round that began before they came. Nor are small ones better: each
                 has a write to everybody who is behind, and with rounds of half the time the event loop came
                 to nothing else (p99 of the live 1.5 s, where it was 0.2)
    a rest       follows it while events are matched for those who are live: as long as the round and the
                 writing of what it made, and longer the later the live have their messages, up to ten times
                 as long. A rest follows also when most of those who are behind are still taking what they
                 were given: they gather, and one pass over the log serves all of them
    the loop     gets what a round made in slices, between which it writes what is live

Every second round begins with the one that is furthest behind, so that groups meet; the other ones with who
has waited longest, so that one who is a second behind does not wait for one who is a day behind.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rangecast.broker.directory import ONGOING, Directory
from rangecast.broker.event_log import DamagedRecordError, EventLog, EventRecord
from rangecast.broker.frames import OwnerFrames, PinnedEvents, change_frames, match_frames, notice
from rangecast.broker.listener import BUFFER, Listener
from rangecast.broker.objects import ChangedPairs, ObjectLinks, changed_pairs, widened
from rangecast.engine import Index, open_index
from rangecast.model.events import Events
from rangecast.tracking.kernels import ENTERED
from rangecast.types.schema import Schema

if TYPE_CHECKING:
    from rangecast.broker.space import Space

_ROUND_SECONDS = 0.1
_BUSY_SECONDS = 1.0  # after a match
_LEAST_EVENTS = 8_192  # of a round: fewer would not keep up with what is published on a slow machine
_LATE = 0.05  # seconds to a live message; from there on a rest grows with them
_MOST_RESTS = 10.0  # times the round, however late they are: who is behind must get on as well
_LONGEST_REST = 1.0
_SLICE = 64  # listeners that are given bytes before others have their turn
_TOLD_SECONDS = 1.0  # between two messages of progress to one for whom nothing matches


class CatchUp:
    """The thread that serves listeners from the log."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._behind: deque[Listener] = deque()
        self._taking: set[Listener] = set()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._furthest = True
        self._matched, self._match_seen = 0, 0.0
        # of the event loop's time, what writing took so far, and what of it has been rested for; the first
        # is written by the loop alone, the other by the thread
        self._writing = self._rested = 0.0
        self._replay = Replay(space.log, space.directory, space.schema, space.lock, space.index)
        self._thread = threading.Thread(target=self._run, name=f"catch-up-{space.name}", daemon=True)

    @property
    def running(self) -> bool:
        """Whether it was started, and not stopped."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def add(self, listeners: Sequence[Listener]) -> None:
        """Serve listeners from their positions on."""
        if listeners:
            self._behind.extend(listeners)
            self._wake.set()

    def give(self, several: Sequence[Served]) -> None:
        """Hand over what was made for some; each is served again when it has taken it."""
        self._space.post(self._send, several, 0)

    def _send(self, several: Sequence[Served], first: int) -> None:
        again: list[Listener] = []
        start = time.thread_time()
        for served in several[first : first + _SLICE]:
            listener = served.listener
            if served.data:
                listener.send(served.data, served.position)
                listener.told = time.monotonic()
            else:
                listener.position = max(listener.position, served.position)
            if not listener.closed and not listener.stalled:
                again.append(listener)
        self._writing += time.thread_time() - start
        # all of a slice at once, or the thread would begin with the first of them alone
        self._behind.extend(again)
        if first + _SLICE < len(several):
            self._space.post(self._send, several, first + _SLICE)
        else:
            self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(0.5)
            self._wake.clear()
            while self._behind and not self._stop.is_set():
                self._wake.clear()
                start = time.thread_time()
                try:
                    n = self._serve_some()
                except Exception as error:
                    self._space.log_error("catching up", error)
                    self._stop.wait(0.1)
                    continue
                if n:
                    self._rest(time.thread_time() - start, n, self._is_busy())

    def _is_busy(self) -> bool:
        """Whether events were matched lately; a round may be shorter than the time between two matches."""
        now, matched = time.monotonic(), self._space.pump.matched
        if matched != self._matched:
            self._matched, self._match_seen = matched, now
        return now - self._match_seen < _BUSY_SECONDS

    def _rest(self, took: float, n: int, busy: bool) -> None:
        """Leave time to others after a round for `n` listeners; `busy` says that events were matched."""
        replay, pump = self._replay, self._space.pump
        live = bool(pump.live)
        if live and took > _ROUND_SECONDS:
            replay.most = max(_LEAST_EVENTS, replay.most // 2)
        elif not live or took < _ROUND_SECONDS / 2:
            replay.most = min(ROUND, 2 * replay.most)
        replay.size = min(replay.size, replay.most)
        writing = self._writing
        took += writing - self._rested
        self._rested = writing
        if live and busy:
            took *= min(max(1.0, pump.late / _LATE), _MOST_RESTS)
        elif 2 * n >= len(self._taking):
            # until all of them have it: to serve those who had it first takes two passes for what one does
            self._wake.wait(took)
            return
        self._stop.wait(min(took, _LONGEST_REST))

    def _serve_some(self) -> int:
        """One round; how many it served."""
        waiting: list[Listener] = []
        while self._behind:
            listener = self._behind.popleft()
            if not listener.closed and not listener.stalled:
                waiting.append(listener)
        self._taking = {one for one in self._taking.difference(waiting) if not one.closed}
        space, replay = self._space, self._replay
        # what is on disk is read, and may be beyond what is matched: who is as far as that can join
        head = space.pump.matched
        for listener in waiting:
            if listener.position >= head:
                space.pump.join(listener)
        waiting = [one for one in waiting if one.position < head]
        if not waiting:
            return 0
        self._furthest = not self._furthest
        group = replay.group(waiting, None if self._furthest else waiting[0].position)
        chosen = set(group)
        rest = [one for one in waiting if one not in chosen]
        try:
            gaps, events = replay.gaps, replay.events
            served = replay.serve(group)
            space.metrics.gaps.inc(replay.gaps - gaps)
            space.metrics.replayed.inc(replay.events - events)
        except Exception:
            self._behind.extend(group)
            raise
        finally:
            self._behind.extendleft(reversed(rest))
        now = time.monotonic()
        for one in served:
            told = now - one.listener.told > _TOLD_SECONDS
            if told and not one.data and one.position > one.listener.position:
                one.data = notice("progress", {"sequence": one.position - 1}, one.position - 1)
        self._taking |= chosen
        self.give(served)
        return len(group)


# Catching up: events from the log, through an index of the subscriptions of those who are behind.
#
# Listeners that are near each other are served together: one pass over the log serves all of them. An entry
# is matched where the event's pin lies between its first and its last version (directory.py), so that what is
# replayed is what was, or would have been, delivered live.
#
# Two kinds of index serve:
#
#    few subscriptions    an index of those of the group, which is kept for the next round: it takes in what a
#                         larger group brings, and is rebuilt when it holds far more than is asked for
#    many                 the live index, whose matches for others are left out, and beside it an index of the
#                         entries that have ended, which the live one has no longer. To build an index of
#                         500,000 subscriptions takes seconds, and to match 65,536 events in one of twice as
#                         many a tenth of one
#
# One round reads up to `size` events. Per listener it gives at most `share` bytes; one that has more waits
# for its connection to take them, and is served again from there. So memory is bounded, however far behind
# whoever is. A round of which much was cut off is followed by smaller ones.

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
        return ChangedPairs(rows, np.asarray(matches.ids), np.full(len(rows), ENTERED, np.uint8)), False


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
