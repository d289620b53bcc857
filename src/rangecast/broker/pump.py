"""The matcher thread of a space: log, match, deliver, tick by tick.

One tick takes all that waits: changes of the store first, then published events, then listeners that join
or leave.

    changes     applied to the directory and the index, up to the newest version of the store, after all
                events that were logged before them are matched
    events      appended to the log with that version as their pin; one fdatasync; publishers are answered
    matches     one match for all events that were logged since the last one; frames per consumer that is
                live; one call to the event loop
    listeners   those that have caught up join the live set at the sequence number that follows the match, or
                at a later one where they have read more of the log than is matched: what a match then makes
                for them begins there

Events are logged as they come, and matched when the event loop has written the frames of the match before:
so what is matched at once grows under load by itself, one write carries many messages, and nobody waits when
there is no load. After a match whose messages took long to write, the next one rests for half that time, in
which more gathers: with a thousand consumers a write each is the larger part of the work.

All of this is one thread, which is what makes the order plain: a version is applied before the events that
are pinned to it and after those of the one before, events are on disk before they are matched, and a listener
joins between two matches.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.broker.catch_up import ROUND, Replay, Served, joined_events, joined_links
from rangecast.broker.event_log import PublishedBody, RecordNote
from rangecast.broker.frames import KEEP_ALIVE, OwnerFrames, PinnedEvents, change_frames, match_frames, notice
from rangecast.broker.kernels import JoinedStrings
from rangecast.broker.listener import Listener
from rangecast.broker.objects import ObjectLinks, changed_pairs
from rangecast.model.events import Events
from rangecast.store.change import Change
from rangecast.tracking.kernels import LEFT

if TYPE_CHECKING:
    from rangecast.broker.space import Space

PROGRESS_SECONDS = 5.0
_TURNS = 25  # in which listeners are told of progress, so that no tick has to tell all of them
_LAST_LAP = 16_384  # events that the matcher itself replays for those who join
_LOOK = 0.2  # seconds between two looks for changes by other processes
_UPKEEP_SECONDS = 10.0
_MOST_EVENTS = 65_536  # of one tick, and unmatched before publishers have to wait
_SPLIT = 8_192  # events from which on two threads match
_AGAIN = 0.2  # seconds after a tick that failed
_LONGEST_REST = 0.05  # seconds between two matches, when messages take long to write


# Who asked may have hung up: that cancels the future, at any moment and on another thread, so asking whether
# it is done beforehand would not do. Nobody else may go without an answer because of that.


def settle(future: Future[Any], answer: Any) -> None:
    """Answer a request, unless who asked has hung up."""
    with contextlib.suppress(InvalidStateError):
        future.set_result(answer)


def refuse(future: Future[Any], error: Exception) -> None:
    """Say why a request is not done, unless who asked has hung up."""
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


@dataclass
class Publication:
    """Events of one request, on their way to the log."""

    events: Events
    body: PublishedBody
    note: RecordNote | None
    received: float
    links: ObjectLinks | None = None
    future: Future[dict[str, Any]] = field(default_factory=Future)


class LoggedEvents(NamedTuple):
    """Events of one record that are to be matched."""

    first: int
    n: int
    codes: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64] | None
    links: ObjectLinks | None
    json: Callable[[npt.NDArray[np.int64]], JoinedStrings]
    received: float


@dataclass(frozen=True)
class ChangeTicket:
    """A version that is to be taken in, and the answers that wait for it."""

    version: int
    answers: list[tuple[Future[Any], Any]]
    change: Change | None
    done: threading.Event = field(default_factory=threading.Event)


class Pump:
    """The thread that owns log, index and live set."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.ticks = 0
        self.live = LiveSet()
        self._n_asked = self._n_done = 0
        self._publications: deque[Publication] = deque()
        self._tickets: deque[ChangeTicket] = deque()
        self._joining: deque[Listener] = deque()
        self._leaving: deque[tuple[Listener, bool]] = deque()
        self._acks: deque[tuple[str, int | None, Future[Any]]] = deque()
        self._unmatched: list[LoggedEvents] = []
        self._n_unmatched = 0
        # each of these counts is written by one thread alone
        self._n_handed = self._n_written = 0
        self._send_failed = False
        self._latency = 0.0
        self._began = 0.0
        self._rest_until = 0.0
        self.matched = space.log.durable
        """The sequence number of the next event to be matched: live listeners have seen what is before."""
        self._second: ThreadPoolExecutor | None = None
        self._wake = threading.Event()
        self._stop_asked = threading.Event()
        self._looked = 0.0
        self._told = time.monotonic()
        self._turn = 0
        self._tended = time.monotonic()
        self._replay = Replay(space.log, space.directory, space.schema, space.lock, space.index, build=False)
        self._thread = threading.Thread(target=self._run, name=f"matcher-{space.name}", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, and end."""
        self._stop_asked.set()
        self._wake.set()
        self._thread.join()
        if self._second is not None:
            self._second.shutdown()

    @property
    def waiting_events(self) -> int:
        """Events that were published and are not matched yet."""
        return self._n_asked - self._n_done

    @property
    def late(self) -> float:
        """How many seconds the oldest event has waited for its messages to be written; or those of the last
        match did, if that is more."""
        for waiting in (self._unmatched, self._publications):
            with contextlib.suppress(IndexError):  # another thread has taken it
                return max(self._latency, time.perf_counter() - waiting[0].received)
        return self._latency

    # what other threads ask for

    def publish(self, publication: Publication) -> Future[dict[str, Any]]:
        """Log and match events; the future has the answer when they are on disk."""
        self._n_asked += len(publication.events)
        self._publications.append(publication)
        self._wake.set()
        return publication.future

    def applied(
        self, version: int, answers: list[tuple[Future[Any], Any]], change: Change | None = None
    ) -> threading.Event:
        """Take in the store up to a version, then give answers; the event says when.

        The `change` of that version is read back from the store unless it is given.
        """
        ticket = ChangeTicket(version, answers, change)
        self._tickets.append(ticket)
        self._wake.set()
        return ticket.done

    def acknowledge(self, consumer: str, sequence: int | None) -> Future[Any]:
        """Move a cursor, or forget it with None; the future is done when it is on disk."""
        future: Future[Any] = Future()
        self._acks.append((consumer, sequence, future))
        self._wake.set()
        return future

    def join(self, listener: Listener) -> None:
        """Make a listener live that has caught up."""
        self._joining.append(listener)
        self._wake.set()

    def leave(self, listener: Listener, again: bool = False) -> None:
        """Take a listener out of the live set; with `again`, hand it to catch-up afterwards."""
        self._leaving.append((listener, again))
        self._wake.set()

    def delivered(self, failed: bool, latency: float) -> None:
        """The event loop has written the frames of the last match, or not, so long after they were due."""
        self._latency = latency
        now = time.monotonic()
        self._rest_until = now + min(_LONGEST_REST, (now - self._began) / 2)
        self._send_failed = self._send_failed or failed
        self._n_written += 1
        if self._unmatched or failed:
            self._wake.set()

    @property
    def ended(self) -> bool:
        """Whether nothing is taken in any more."""
        return not self._thread.is_alive()

    @property
    def _stopping(self) -> bool:
        return self._stop_asked.is_set()

    # the tick

    def _run(self) -> None:
        while True:
            self._wake.wait(self._pause())
            self._wake.clear()
            waited = self._n_waiting()
            failure: Exception | None = None
            try:
                self._tick()
            except Exception as error:
                # what cannot be matched must not be passed over in silence: listeners go back to the log
                self._space.log_error("matching", error)
                self._set_all_behind()
                failure = error
            waiting = self._n_waiting()
            if self._stopping and not waiting:
                return
            if failure is not None and waiting >= waited:
                if self._stopping:  # the next tick would do no better
                    self._give_up(failure)
                    return
                self._stop_asked.wait(_AGAIN)
            if self._stopping or (self._publications and self._n_unmatched < _MOST_EVENTS):
                self._wake.set()

    def _n_waiting(self) -> int:
        """How much waits for a tick, before the pump may end."""
        return len(self._publications) + len(self._unmatched) + len(self._acks) + len(self._tickets)

    def _give_up(self, error: Exception) -> None:
        """Refuse what waits, when the pump ends and cannot take it."""
        refused: list[Future[Any]] = [publication.future for publication in self._publications]
        refused += [future for _, _, future in self._acks]
        for ticket in self._tickets:
            refused += [future for future, _ in ticket.answers]
            ticket.done.set()
        for future in refused:
            refuse(future, error)

    def _pause(self) -> float:
        """How long to wait for the next tick, unless somebody asks for one."""
        if not self._unmatched or self._n_handed != self._n_written:
            return _LOOK
        return min(_LOOK, max(0.0, self._rest_until - time.monotonic()))

    def _may_match(self) -> bool:
        """Whether it is time to match what was logged."""
        if not self._unmatched:
            return False
        if self._stopping or not self.live:
            return True
        return self._n_handed == self._n_written and time.monotonic() >= self._rest_until

    def _tick(self) -> None:
        self.ticks += 1
        now = time.monotonic()
        if self._send_failed:
            self._send_failed = False
            self._set_all_behind()
        self._take_leaves()
        self._apply_changes(now)
        self._sync_cursors()
        self._log_events()
        if self._may_match():
            self._match_unmatched()
        self._take_joins()
        if now - self._told >= PROGRESS_SECONDS / _TURNS:
            self._told = now
            self._turn = (self._turn + 1) % _TURNS
            self._tell_progress()
        if now - self._tended >= _UPKEEP_SECONDS:
            self._tended = now
            self._space.tend()

    def _apply_changes(self, now: float) -> None:
        # they stay until they are answered: a version that cannot be taken in now is tried again
        space = self._space
        tickets = list(self._tickets)
        if tickets or now - self._looked >= _LOOK:
            wanted = max((ticket.version for ticket in tickets), default=None)
            if wanted is None:
                self._looked = now
            before = space.directory.version
            if self._unmatched and (space.has_changes() if wanted is None else wanted > before):
                self._match_unmatched()
            own = [ticket.change for ticket in tickets if ticket.change is not None]
            expired = space.take_changes(wanted, own)
            if expired:
                self._tell_expired(expired)
        for ticket in tickets:
            self._tickets.popleft()
            for future, answer in ticket.answers:
                settle(future, answer)
            ticket.done.set()

    def _tell_expired(self, expired: list[tuple[int, int]]) -> None:
        directory = self._space.directory
        sends = []
        for entry, version in expired:
            name = directory.ids[entry].partition("/")[2]
            data = notice("expired", {"subscription": name, "version": version})
            sends += [
                (listener, data, self.live.next_of(listener, self.matched))
                for listener in self.live.of(int(directory.owners[entry]))
            ]
        self._space.deliver(sends)

    def _sync_cursors(self) -> None:
        if not self._acks:
            return
        done: list[tuple[Future[Any], int | None]] = []
        while self._acks:
            consumer, sequence, future = self._acks.popleft()
            before = self._space.cursors.get(consumer)
            if sequence is None or before is None or sequence > before:
                self._space.cursors.put(consumer, sequence)
            done.append((future, self._space.cursors.get(consumer)))
        try:
            self._space.cursors.sync()
        except Exception as error:
            for future, _ in done:
                refuse(future, error)
            return
        for future, sequence in done:
            settle(future, sequence)

    def _log_events(self) -> None:
        """Append what waits and sync it; publishers have their answers then."""
        if not self._publications or self._n_unmatched >= _MOST_EVENTS:
            return
        space = self._space
        pin = space.directory.version
        wide = space.index.schema  # with the expressions of that version
        taken: list[tuple[LoggedEvents, Publication]] = []
        n = 0
        try:
            while self._publications and n < _MOST_EVENTS:
                publication = self._publications.popleft()
                n += len(publication.events)
                batch = publication.events.encoded(wide)
                codes, owners = batch.codes, batch.owners
                if space.objects is not None:
                    publication.links = space.objects.link(publication.events, codes, space.log.next, wide)
                first = space.log.append(
                    codes, publication.body, pin, publication.note, owners=owners, links=publication.links
                )
                own, links = publication.body.json, publication.links
                logged = LoggedEvents(
                    first, len(publication.events), codes, owners, links, own, publication.received
                )
                taken.append((logged, publication))
            start = time.perf_counter()
            space.log.sync()
            space.metrics.sync_seconds.observe(time.perf_counter() - start)
        except Exception as error:
            # whatever it was: who published hears of it, and nothing of this tick is seen by anybody
            if not space.log.failed:
                space.log.drop_waiting()
            if space.objects is not None:
                space.objects.drop()
            self._n_done += n
            for one in [*(p for _, p in taken), publication]:
                refuse(one.future, error)
            space.log_error("writing the event log", error)
            return
        if space.objects is not None:
            space.objects.keep()
        answers = []
        for logged, publication in taken:
            rejected = [] if publication.note is None else publication.note.rejected
            answer = {"first": logged.first, "last": logged.first + logged.n - 1, "rejected": rejected}
            space.keys.remember(publication.note, answer)
            answers.append((publication.future, answer))
        space.resolve(answers)
        space.metrics.published.inc(n)
        self._unmatched += [logged for logged, _ in taken]
        self._n_unmatched += n

    def _match_unmatched(self) -> None:
        """Match all that was logged and not matched yet."""
        published, self._unmatched = self._unmatched, []
        self._n_done += self._n_unmatched
        self._n_unmatched = 0
        # before it is tried: where it fails, all listeners go back to the log
        self.matched = published[-1].first + published[-1].n
        self._began = time.monotonic()
        self._rest_until = self._began
        self._match(published)

    def _match(self, published: list[LoggedEvents]) -> None:
        space = self._space
        directory = space.directory
        wide = space.index.schema
        events = joined_events(wide, [(one.codes, one.owners, one.n) for one in published])
        links = joined_links(wide, [one.links for one in published])
        changes = None
        if links is not None:
            changes = changed_pairs(space.index, events, links)
            rows, entries = changes.rows, changes.entries
            n_pairs = int(np.count_nonzero(changes.kinds != LEFT))
        else:
            rows, entries = self._pairs(events)
            n_pairs = len(rows)
        space.metrics.matched.inc(n_pairs)
        if not self.live or not len(rows):
            return
        self.live.make_room(len(directory.consumers))
        pin = directory.version
        stretches = [PinnedEvents(one.first, one.n, pin, one.json) for one in published]
        received = published[0].received
        if changes is not None:
            made = change_frames(
                stretches, changes.where(self.live.mask[directory.owners[entries]]), directory
            )
        else:
            made = match_frames(stretches, rows, entries, directory, self.live.mask)
        sends, n = self.live.sends(made, self.matched)
        space.metrics.delivered.inc(n)
        if sends:
            self._n_handed += 1
            if not space.deliver_frames(sends, received):
                self._n_written += 1  # the loop has ended, and counts no more

    def _pairs(self, events: Events) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The pairs of events and entries that match; many events are matched by two threads."""
        index = self._space.index
        alone = events.owners is not None or len(events) < _SPLIT or (os.cpu_count() or 1) < 2
        batch = None if alone else events.encoded(index.schema)
        if batch is None or batch.firsts is not None:
            matches = index.match(events)
            return matches.events(), np.asarray(matches.ids)
        if self._second is None:
            self._second = ThreadPoolExecutor(1, f"second-{self._space.name}")
        half = len(events) // 2
        halves = [
            Events.coded(index.schema, np.ascontiguousarray(some))
            for some in (batch.codes[:, :half], batch.codes[:, half:])
        ]
        other = self._second.submit(index.match, halves[1])
        one, two = index.match(halves[0]), other.result()
        rows = np.concatenate([one.events(), two.events() + half])
        return rows, np.concatenate([np.asarray(one.ids), np.asarray(two.ids)])

    # the live set

    def _take_joins(self) -> None:
        if not self._joining:
            return
        joining: list[Listener] = []
        while self._joining:
            joining.append(self._joining.popleft())
        head = self.matched
        joining = [one for one in joining if not one.closed]
        near = [one for one in joining if head - one.position <= _LAST_LAP]
        self._space.behind([one for one in joining if head - one.position > _LAST_LAP])
        late = [one for one in near if one.position < head]
        sends: list[tuple[Listener, bytes, int]] = []
        ready = [(one, one.position) for one in near if one.position >= head]
        if late:
            # a lap of at most ROUND events, and none are matched meanwhile
            assert _LAST_LAP < ROUND
            for served in self._last_lap(late, head):
                if served.position >= head:
                    ready.append((served.listener, head))
                    if served.data:
                        sends.append((served.listener, served.data, head))
                else:
                    self._space.catch_up.give([served])
        for listener, position in ready:
            listener.state = "live"
            listener.last_progress = position - 1
            self.live.add(listener, position, head)
            sends.append((listener, notice("caught_up", {"sequence": position - 1}, position - 1), position))
        self._space.deliver(sends)

    def _last_lap(self, late: list[Listener], head: int) -> list[Served]:
        try:
            return self._replay.serve(late, head)
        except Exception as error:
            # nobody else has them: they would be served no more, and never know
            self._space.log_error("joining", error)
            self._space.behind(late)
            return []

    def _take_leaves(self) -> None:
        again: list[Listener] = []
        while self._leaving:
            listener, returns = self._leaving.popleft()
            self.live.remove(listener)
            if returns and not listener.closed:
                again.append(listener)
        if again:
            self._space.resume(again)

    def _set_all_behind(self) -> None:
        self._space.set_back(self.live.clear())

    def _tell_progress(self) -> None:
        """Say how far the log has come, so that one with rare matches need not read it all again."""
        last = self.matched - 1
        moved: list[Listener] = []
        idle: list[Listener] = []
        for listener in self.live.turn(self._turn, _TURNS):
            if self.live.next_of(listener, self.matched) == self.matched:
                (moved if last > listener.last_progress else idle).append(listener)
                listener.last_progress = last
        self._space.deliver_notice(moved, notice("progress", {"sequence": last}, last), last + 1)
        self._space.deliver_notice(idle, KEEP_ALIVE, last + 1)


# The live listeners of a space, by consumer; used by the matcher thread alone.
#
# listeners   the live ones of each consumer, by its number
# mask        whether a consumer has any; the last place stands for entries of nobody, whose owner is -1
# ahead       those that have read more of the log than is matched, and what they must see next: of what a
#             match makes for them, only that is sent


class LiveSet:
    """Who is live, and from which sequence number on."""

    def __init__(self) -> None:
        self._listeners: dict[int, list[Listener]] = {}
        self._ahead: dict[Listener, int] = {}
        self.mask = np.zeros(1, bool)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def of(self, consumer: int) -> list[Listener]:
        """The live listeners of a consumer."""
        return self._listeners.get(consumer, [])

    def turn(self, number: int, turns: int) -> Iterator[Listener]:
        """One of so many parts of all of them."""
        for consumer in [consumer for consumer in self._listeners if consumer % turns == number]:
            yield from self._listeners[consumer]

    def next_of(self, listener: Listener, matched: int) -> int:
        """What a listener must see next, when everything before `matched` is matched."""
        return max(matched, self._ahead.get(listener, 0))

    def add(self, listener: Listener, position: int, matched: int) -> None:
        """Make a listener live from a sequence number on, which is not below what is matched."""
        self.make_room(listener.number + 1)
        self._listeners.setdefault(listener.number, []).append(listener)
        self.mask[listener.number] = True
        if position > matched:
            self._ahead[listener] = position

    def make_room(self, consumers: int) -> None:
        """See that the mask has a place for each consumer, and one more."""
        if consumers >= len(self.mask):
            mask = np.zeros(max(64, 2 * len(self.mask), consumers + 1), bool)
            mask[: len(self.mask) - 1] = self.mask[:-1]
            self.mask = mask

    def remove(self, listener: Listener) -> None:
        """Make a listener live no more, if it is."""
        self._ahead.pop(listener, None)
        others = self._listeners.get(listener.number)
        if others is not None and listener in others:
            others.remove(listener)
            if not others:
                del self._listeners[listener.number]
                self.mask[listener.number] = False

    def clear(self) -> list[Listener]:
        """Make nobody live; those who were."""
        gone = [listener for several in self._listeners.values() for listener in several]
        self._listeners.clear()
        self._ahead.clear()
        self.mask[:] = False
        return gone

    def sends(
        self, made: Iterable[OwnerFrames], matched: int
    ) -> tuple[list[tuple[Listener, OwnerFrames]], int]:
        """Who receives what of the frames of a match up to `matched`, and how many frames there are."""
        found: list[tuple[Listener, OwnerFrames]] = []
        cut: list[tuple[Listener, OwnerFrames]] = []
        ahead, n = self._ahead, 0
        for frames in made:
            n += frames.n
            for listener in self._listeners[frames.owner]:
                if not ahead or listener not in ahead:
                    found.append((listener, frames))
                else:
                    rest = frames.since(ahead[listener])
                    if rest is not None:
                        cut.append((listener, rest))
        if ahead:
            self._ahead = {one: position for one, position in ahead.items() if position > matched}
        return found + cut, n
