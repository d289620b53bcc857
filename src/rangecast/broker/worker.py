"""A process that delivers to some of the consumers; workers.py tells how it is used and by whom."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rangecast.broker.access import Access, SpaceLimits, UnavailableError
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.catch_up import CatchUp
from rangecast.broker.channel import Channel, receive_first
from rangecast.broker.directory import Directory
from rangecast.broker.event_log import DamagedRecordError, LogMark
from rangecast.broker.followed_log import FollowedLog
from rangecast.broker.metrics import log_to
from rangecast.broker.objects import ObjectStates
from rangecast.broker.pump import LoggedEvents, Pump
from rangecast.broker.server import make_server, settle_memory
from rangecast.broker.space import Space, warm
from rangecast.broker.workers import COUNTED, WRITER, place_of
from rangecast.store.store import Store
from rangecast.types.schema import Schema

_log = logging.getLogger("rangecast.broker")
_REPORT_SECONDS = 0.5
_LATENCIES = 2_000  # that are told of in one report
_MOST_UNMATCHED = 65_536


class _Tally:
    """Counts, until they are reported."""

    def __init__(self) -> None:
        self.amount = 0.0
        self.seen: list[float] = []

    def inc(self, amount: float = 1) -> None:
        """Count."""
        self.amount += amount

    def observe(self, value: float) -> None:
        """Remember a value."""
        self.seen.append(value)

    def set(self, value: float) -> None:
        """What a gauge shows is worked out by the writer."""


class CountedMetrics:
    """In place of SpaceMetrics: what is counted here goes to the writer."""

    def __init__(self) -> None:
        self._counts: dict[str, _Tally] = {}

    def __getattr__(self, name: str) -> _Tally:
        return self.__dict__["_counts"].setdefault(name, _Tally())  # type: ignore[no-any-return]

    def taken(self) -> tuple[dict[str, float], list[float]]:
        """Counts and latencies since the last time."""
        counts = {}
        for name in COUNTED:
            one = getattr(self, name)
            counts[name], one.amount = one.amount, one.amount - one.amount
        latency = self.latency
        seen, latency.seen = latency.seen, []
        return counts, seen[-_LATENCIES:]


class FollowingPump(Pump):
    """The matcher thread of a worker: it takes events from the log, and versions as the writer says."""

    def __init__(self, space: FollowedSpace) -> None:
        super().__init__(space)
        self._followed = space
        self._marks: deque[LogMark] = deque()
        self._read = space.log.durable

    def follow(self, mark: LogMark) -> None:
        """Come to where the writer is."""
        self._marks.append(mark)
        self._wake.set()

    def acknowledge(self, consumer: str, sequence: int | None) -> Future[Any]:
        """Have the writer move a cursor."""
        return self._followed.ask(consumer, sequence)

    def _n_to_log(self) -> int:
        return len(self._marks)

    def _apply_changes(self, now: float) -> None:
        """Versions come with marks."""

    def _log_events(self) -> None:
        log = self._followed.followed
        while self._marks and self._n_unmatched < _MOST_UNMATCHED:
            mark = self._marks[0]
            if mark.durable > log.durable or mark.first > log.first:
                log.follow(mark)
            if self._read < mark.durable:
                self._take_records(mark.durable)
            if self._read >= mark.durable:
                self._come_to(mark.version)
                self._marks.popleft()

    def _take_records(self, until: int) -> None:
        now, moment = time.perf_counter(), time.time()
        try:
            for record in self._followed.followed.records(self._read, until):
                head = record.head
                if head.sequence != self._read:
                    raise DamagedRecordError(f"event {self._read} is not in the log", head.sequence)
                self._come_to(head.pin)
                received = now - (moment - head.time / 1_000_000)
                self._unmatched.append(
                    LoggedEvents(
                        head.sequence,
                        head.n,
                        record.codes,
                        record.owners,
                        record.links,
                        record.json,
                        received,
                    )
                )
                self._n_unmatched += head.n
                self._n_asked += head.n
                self._read = head.next
                if self._n_unmatched >= _MOST_UNMATCHED:
                    return
        except DamagedRecordError as error:
            # who is live hears of the gap from the log
            self._space.log_error("following the log", error)
            if self._unmatched:
                self._match_unmatched()
            self._set_all_behind()
            self._read = self.matched = max(error.after, self._read)
            return
        if self._read < until:  # retention was faster than we are
            self._set_all_behind()
            self._read = self.matched = until

    def _come_to(self, version: int) -> None:
        """Apply changes up to a version, after what was logged before it is matched."""
        if version <= self._space.directory.version:
            return
        if self._unmatched:
            self._match_unmatched()
        expired = self._space.take_changes(version)
        if expired:
            self._tell_expired(expired)


class FollowedSpace(Space):
    """A space that another process writes, with the subscriptions of some consumers."""

    def __init__(self, folder: Path, mark: LogMark, channel: Channel, number: int, n_workers: int) -> None:
        # not the writer's: no lock is taken, and nothing is written
        limits = Space.stored_limits(folder)
        each = max(1, -(-limits.connections // n_workers))
        self.folder = folder
        self.name = folder.name
        self.limits = SpaceLimits(**{**limits.changed(), "connections": each})
        self.counted = CountedMetrics()
        self.metrics = self.counted  # type: ignore[assignment]
        self.loop = None
        self.lock = threading.RLock()
        self.store = Store.open(folder / "store")
        self.schema = Schema.from_dict(self.store.schema.to_dict())
        self.log = self.followed = FollowedLog(folder / "log", mark)
        key = Space.stored_key(folder)
        self.objects = None if key is None else ObjectStates(key)
        self.known_cursors: dict[str, int] = {}
        self.cursors = self.known_cursors  # type: ignore[assignment]
        self.directory = Directory(lambda consumer: place_of(self.name, consumer, n_workers) == number)
        self._open_directory(mark.version)
        self.index = self.directory.index(self.schema)
        warm(self.name, self.schema, self.index, self.directory, lambda _: None)
        self.listeners = set()
        self._connected = {}
        self.followers = None
        self.elsewhere = {}
        self._stopping = False
        self._channel = channel
        self._asked: dict[int, Future[Any]] = {}
        self._n_asked = 0
        self.follower = FollowingPump(self)
        self.pump = self.follower
        self.catch_up = CatchUp(self)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to deliver."""
        self.loop = loop
        self.pump.start()
        self.catch_up.start()

    def close(self) -> None:
        """End the threads."""
        self._stopping = True
        self.catch_up.stop()
        self.pump.stop()

    def tend(self) -> None:
        """Forget what no event needs; the writer does the rest."""
        pin = self.log.oldest_pin()
        if pin is not None:
            with self.lock:
                self.directory.forget(pin)

    def start_position(self, consumer: str, wanted: str | None, last_id: str | None) -> int:
        """As the writer's, after all that it has said up to now."""
        self._channel.receive_now()
        return super().start_position(consumer, wanted, last_id)

    def ask(self, consumer: str, sequence: int | None) -> Future[Any]:
        """Have the writer move a cursor; the future is done when it is on disk."""
        future: Future[Any] = Future()
        self._n_asked += 1
        self._asked[self._n_asked] = future
        self._channel.send("ack", self.name, consumer, sequence, self._n_asked)
        return future

    def answered(self, number: int, sequence: int | None, error: str) -> bool:
        """Give the writer's answer; whether it was asked here."""
        future = self._asked.pop(number, None)
        if future is None:
            return False
        if error:
            future.set_exception(UnavailableError(error))
        else:
            future.set_result(sequence)
        return True

    def report(self) -> None:
        """Tell the writer what is counted here, and which connections there are."""
        listed = [(one.consumer, one.state, one.position) for one in self.listeners]
        counts, seen = self.counted.taken()
        self._channel.send("status", self.name, listed, counts, seen)


class WorkerBroker(Broker):
    """The spaces of a worker."""

    def __init__(self, settings: BrokerSettings, number: int, n_workers: int) -> None:
        super().__init__(settings)
        self.number = number
        self.n_workers = n_workers
        self.channel: Channel | None = None
        self.followed: dict[str, FollowedSpace] = {}
        self.on_start: Callable[[], None] | None = None
        self.on_drain: Callable[[], None] | None = None
        self._reporting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to take connections, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._watch = asyncio.create_task(self._watch_connections())
        self._reporting = asyncio.create_task(self._report())
        if self.on_start is not None:
            self.on_start()

    async def stop(self) -> None:
        """End all connections and threads."""
        self.drain()
        for task in (self._watch, self._reporting):
            if task is not None:
                task.cancel()
        for space in self.spaces.values():
            await asyncio.to_thread(space.close)

    def hand_over(self, place: int, raw: bytes, handle: int) -> bool:
        """Send a connection back, whose next request is not for this process."""
        assert self.channel is not None
        if place == WRITER:
            self.channel.send("connection", raw, handle=handle)
        return place == WRITER

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            for space in self.followed.values():
                space.report()

    def take(self, message: list[Any], handle: int) -> None:
        """Do what the writer says."""
        assert self.channel is not None
        match message:
            case ["space", name, mark]:
                if name not in self.followed:
                    folder = self.settings.data / name
                    space = FollowedSpace(folder, LogMark(*mark), self.channel, self.number, self.n_workers)
                    self.spaces[name] = self.followed[name] = space
                    assert self._loop is not None
                    space.start(self._loop)
                    settle_memory()
                else:
                    self.followed[name].follower.follow(LogMark(*mark))
            case ["mark", name, mark]:
                self.followed[name].follower.follow(LogMark(*mark))
            case ["cursors", name, cursors]:
                known = self.followed[name].known_cursors
                for consumer, cursor in cursors:
                    if cursor is None:
                        known.pop(consumer, None)
                    else:
                        known[consumer] = cursor
            case ["acked", number, sequence, error]:
                any(space.answered(number, sequence, error) for space in self.followed.values())
            case ["ticket", ticket, space_name, consumer, name, scopes, spaces, consumers, key]:
                access = Access(name, frozenset(scopes), frozenset(spaces), frozenset(consumers), key)
                self.tickets.keep(ticket, space_name, consumer, access)
            case ["close", name, consumer, reason]:
                for listener in list(self.followed[name].listeners):
                    if listener.consumer == consumer:
                        listener.close(reason)
            case ["connection", raw]:
                self.adopt(socket.socket(fileno=handle), raw)
            case ["drain"]:
                self.drain()
                if self.on_drain is not None:
                    self.on_drain()


def _started(end: socket.socket) -> tuple[int, int, dict[str, Any]]:
    """The first message of the writer."""
    name, number, n_workers, given = receive_first(end)
    assert name == "start", name
    return number, n_workers, given


def main() -> None:
    """Deliver until the writer says otherwise, or is gone."""
    end = socket.socket(fileno=int(sys.argv[1]))
    number, n_workers, given = _started(end)
    log_to(sys.stderr, "text")
    logging.getLogger("rangecast").setLevel(given["level"])
    tokens = None if given["tokens"] is None else Path(given["tokens"])
    settings = BrokerSettings(
        data=Path(given["data"]),
        host=given["host"],
        tokens=tokens,
        origins=given["origins"],
        host_names=given["host_names"],
        hooks=False,
    )
    broker = WorkerBroker(settings, number, n_workers)
    server = make_server(broker)

    def ended() -> None:
        broker.drain()
        server.should_exit = True

    def begun() -> None:
        broker.channel = Channel(end, broker.take, ended)

    broker.on_start, broker.on_drain = begun, ended
    server.run(sockets=[])


if __name__ == "__main__":
    main()
