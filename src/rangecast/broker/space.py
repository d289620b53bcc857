"""A space: a schema, a store of subscriptions, a log of events, cursors and limits; a broker has several.

    <data>/<space>/
        space.json          the schema and the limits
        store/              subscriptions (rangecast.Store); other processes may read and change it
        log/                published events (event_log.py)
        cursors.journal     how far each consumer has acknowledged
        payloads.journal    what was stored with subscriptions
        expressions.journal which consumer brought which expression
        webhooks.journal    where consumers want their messages sent
        lock                held by the broker that serves the space

Three threads serve it: the matcher (pump.py), catch-up (catch_up.py), and the one that writes to the store
(changes.py). The event loop hands them work and gets back lists of bytes per listener; nothing waits for a
connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from rangecast.broker import kernels
from rangecast.broker.access import BrokerError, BusyError, SpaceLimits, UnavailableError
from rangecast.broker.bodies import ARROW_TYPES, LINES_TYPES, ReceivedEvents, read_events
from rangecast.broker.catch_up import CatchUp, EntryIndex
from rangecast.broker.changes import Changer
from rangecast.broker.directory import NAME, Directory
from rangecast.broker.event_log import EventLog, RecordNote, readable_records
from rangecast.broker.frames import OwnerFrames, PinnedEvents, match_frames, shared_frames
from rangecast.broker.listener import Listener, send_frames
from rangecast.broker.metrics import SpaceMetrics
from rangecast.broker.objects import ObjectLinks, ObjectStates, changed_pairs, check_object_key
from rangecast.broker.pump import Publication, Pump
from rangecast.durable.documents import read_document, write_document
from rangecast.durable.lines import Journal
from rangecast.durable.lock import holding
from rangecast.engine import Index, load_index
from rangecast.errors import StorageError
from rangecast.model.boxes import hulls
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.simd.compiler import compile_seconds, when_compiling
from rangecast.store.change import Change
from rangecast.store.store import Store
from rangecast.tracking.kernels import STAYS
from rangecast.types.attributes import Category, Float, Int
from rangecast.types.expressions import quoted_name
from rangecast.types.schema import Schema

_log = logging.getLogger("rangecast.broker")
_HOLD = "broker"


class Space:
    """One space of a broker, open for service."""

    def __init__(
        self,
        folder: Path,
        limits: SpaceLimits,
        metrics: SpaceMetrics,
        begin: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open a space; `begin` hears of each step that may take long."""
        self.folder = folder
        self.name = folder.name
        self.limits = limits
        self.metrics = metrics
        self.loop: asyncio.AbstractEventLoop | None = None
        self._closing = contextlib.ExitStack()
        self._closing.enter_context(holding(folder / "lock", 5.0))
        self.lock = threading.RLock()
        self.store = Store.open(folder / "store")
        self.schema = Schema.from_dict(self.store.schema.to_dict())
        """The schema of the index: its dictionaries have the words of versions that were taken in."""
        begin("reading the event log")
        self.log = EventLog(
            folder / "log",
            segment_bytes=limits.segment_bytes,
            keep_seconds=limits.keep_seconds,
            keep_bytes=limits.log_bytes,
        )
        self.log.retain()
        key = Space.stored_key(folder)
        self.objects = None if key is None else ObjectStates(key)
        if self.objects is not None:
            self.objects.load(readable_records(self.log, self.log.first))
        self.cursors = Journal(folder / "cursors.journal")
        set_back_cursors(self.cursors, self.log, self.name)
        raise_version(self.store, self.log, self.name)
        self.directory = Directory()
        begin("reading the subscriptions")
        wanted = self._open_directory()
        self.store.hold(_HOLD, wanted, "the oldest event in the broker's log")
        self._snapshot_looked = self.directory.version
        begin("building the index")
        self.index: Index = self.directory.index(self.schema, self.store.kind, self.store.options)
        warm(self, begin)
        self.keys = KeyMemory()
        self.keys.load(self.log)
        self._key_locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}
        self.listeners: set[Listener] = set()
        self._connected: dict[str, int] = {}
        self.pump = Pump(self)
        self.changer = Changer(self)
        self.catch_up = CatchUp(self)
        self._stopping = False

    @classmethod
    def create(
        cls,
        folder: Path,
        schema: Schema,
        limits: SpaceLimits,
        object_key: str | None = None,
        index: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the files of a new space, whose store and matcher have a kind of index, `auto` by default."""
        if object_key is not None:
            check_object_key(schema, object_key)
        if not NAME.fullmatch(folder.name):
            raise BrokerError(f"a space must be named by letters, digits and ._~:@+-, got {folder.name!r}")
        folder.mkdir(parents=True, exist_ok=True)
        Store.open(folder / "store", schema, index=index, options=options)
        write_document(
            folder / "space.json", {"format": 1, "limits": limits.changed(), "object_key": object_key}
        )

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether there is a space."""
        return (folder / "space.json").exists()

    @staticmethod
    def set_limits(folder: Path, given: dict[str, int]) -> SpaceLimits:
        """The limits of a space after some of them were set; the others stay as they were."""
        found = read_document(folder / "space.json") or {}
        before = SpaceLimits(**found.get("limits", {}))
        limits = SpaceLimits(**{**before.changed(), **given})
        if limits != before:
            write_document(folder / "space.json", {**found, "limits": limits.changed()})
        return limits

    @staticmethod
    def stored_key(folder: Path) -> str | None:
        """The object key that was given when the space was made."""
        found = read_document(folder / "space.json") or {}
        key = found.get("object_key")
        return None if key is None else str(key)

    def _open_directory(self) -> int:
        """Take in the store from the version on that the oldest event is pinned to, which is returned."""
        store = self.store
        newest = store.version
        oldest = self.log.oldest_pin()
        wanted = newest if oldest is None else min(oldest, newest)
        wanted = max(wanted, store.oldest)
        start = store.nearest(wanted)
        if start:
            subs = load_index(store.snapshot_path(start), verify=None).subscriptions()
            self.directory.load(start, subs, store.expires_at(subs.ids))
        for change in store.changes(start, newest):
            self.directory.apply(change)
        self.directory.version = newest
        return wanted

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve."""
        self.loop = loop
        self.pump.start()
        self.changer.start()
        self.catch_up.start()

    def close(self) -> None:
        """End all connections and threads; everything acknowledged is on disk."""
        self._stopping = True
        if self.catch_up.running:
            self.catch_up.stop()
            self.changer.stop()
            self.pump.stop()
        self.log.close()
        self._closing.close()

    def log_error(self, what: str, error: Exception) -> None:
        """Say in the log that something failed."""
        self.metrics.errors.inc()
        trace = None if isinstance(error, StorageError) else error
        _log.error("%s: %s", what, error, exc_info=trace, extra={"space": self.name})

    # the matcher thread

    def has_changes(self) -> bool:
        """Whether the store has a newer version than was taken in."""
        return self.store.refresh() != self.directory.version

    def take_changes(self, wanted: int | None = None, own: Sequence[Change] = ()) -> list[tuple[int, int]]:
        """Come to the newest version of the store, or to one; entries that expired, and when.

        The changes are read from the store, unless `own`, those that this process has made, are all of them.
        """
        newest = self.store.refresh() if wanted is None else wanted
        directory = self.directory
        if newest <= directory.version:
            return []
        expired: list[tuple[int, int]] = []
        changes: Iterable[Change] = [change for change in own if change.version > directory.version]
        if [change.version for change in changes] != list(range(directory.version + 1, newest + 1)):
            changes = self.store.changes(directory.version, newest)
        with self.lock:
            gone: list[int] = []
            first = directory.n_entries
            for change in changes:
                ended, over, _ = directory.apply(change)
                gone += ended
                expired += [(entry, change.version) for entry in over]
            old = np.array([entry for entry in gone if entry < first], np.int64)
            if len(old):
                self.index.delete(old)
            fresh = directory.lasting_from(first)
            if fresh is not None:
                self.index.insert(fresh)
            directory.version = newest
        self.metrics.subscriptions.set(len(directory))
        return expired

    def tend(self) -> None:
        """What must be done now and then: retention, and forgetting what no event needs."""
        if self.log.retain():
            if self.objects is not None:
                self.objects.forget(self.log.first)
            pin = self.log.oldest_pin()
            if pin is not None:
                with self.lock:
                    self.directory.forget(pin)
                self.store.hold(
                    _HOLD, min(pin, self.directory.version), "the oldest event in the broker's log"
                )
        if self.directory.version != self._snapshot_looked:
            # the look itself takes a while in a large store, so it is made after changes alone
            self._snapshot_looked = self.directory.version
            threading.Thread(target=self._publish_snapshot, daemon=True).start()

    def _publish_snapshot(self) -> None:
        try:
            self.store.publish_if_due()
        except StorageError as error:
            self.log_error("making a snapshot", error)

    # towards the event loop

    def post(self, function: Any, *arguments: Any) -> bool:
        """Schedule a call on the event loop; False if the loop has ended."""
        assert self.loop is not None
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop has ended
            return False
        return True

    def resolve(self, answers: list[tuple[Future[Any], Any]]) -> None:
        """Give answers on the event loop, all in one call."""
        self.post(_set_results, answers)

    def deliver(self, sends: Sequence[tuple[Listener, bytes, int]]) -> None:
        """Hand bytes to live listeners, all in one call."""
        if sends:
            self.post(self._send_all, sends)

    def _send_all(self, sends: Sequence[tuple[Listener, bytes, int]]) -> None:
        for listener, data, position in sends:
            listener.send(data, position)

    def deliver_notice(self, listeners: Sequence[Listener], data: bytes, position: int) -> None:
        """Hand the same bytes to live listeners, all in one call."""
        if listeners:
            frames = shared_frames(data, position - 1)
            self.post(send_frames, [(listener, frames) for listener in listeners])

    def deliver_frames(self, sends: Sequence[tuple[Listener, OwnerFrames]], received: float) -> bool:
        """Hand the frames of a tick to live listeners; the pump hears when it is done."""
        return self.post(self._send_frames, sends, received)

    def _send_frames(self, sends: Sequence[tuple[Listener, OwnerFrames]], received: float) -> None:
        failed = False
        try:
            send_frames(sends)
        except Exception as error:
            self.log_error("sending", error)
            failed = True
        latency = time.perf_counter() - received
        self.metrics.latency.observe(latency)
        self.pump.delivered(failed, latency)

    def resume(self, listeners: Sequence[Listener]) -> None:
        """Serve listeners again that were stalled, now that the live set is without them."""
        self.post(self._resume, listeners)

    def _resume(self, listeners: Sequence[Listener]) -> None:
        # one that is behind and not stalled is served already: twice at a time, it would hear all twice
        again = [one for one in listeners if not one.closed and (one.stalled or one.state != "behind")]
        for listener in again:
            listener.stalled = False
            listener.state = "behind"
        self.behind(again)

    def set_back(self, listeners: Sequence[Listener]) -> None:
        """Serve listeners from the log that were live until something failed."""
        self.post(self._resume, listeners)

    # from the event loop

    def listen(self, listener: Listener) -> None:
        """Begin to serve a listener, from its position on."""
        self.listeners.add(listener)
        self._connected[listener.consumer] = self._connected.get(listener.consumer, 0) + 1
        self.behind([listener])

    def behind(self, listeners: Sequence[Listener]) -> None:
        """Hand listeners to the catch-up thread."""
        self.catch_up.add(listeners)

    def leave(self, listener: Listener) -> None:
        """Serve a listener no more, at least not live."""
        if listener.closed and listener in self.listeners:
            self.listeners.discard(listener)
            self._connected[listener.consumer] -= 1
            if not self._connected[listener.consumer]:
                del self._connected[listener.consumer]
        self.pump.leave(listener)

    def rejoin(self, listener: Listener) -> None:
        """Serve a listener again that was stalled."""
        self.pump.leave(listener, again=True)

    def start_position(self, consumer: str, wanted: str | None, last_id: str | None) -> int:
        """Where a connection begins: after Last-Event-ID, from `from`, or after the cursor."""
        head = self.log.durable
        if last_id:
            return min(_number(last_id, "Last-Event-ID") + 1, head)
        if wanted in (None, "", "earliest"):
            cursor = self.cursors.get(consumer)
            return self.log.first if cursor is None else min(int(cursor) + 1, head)
        if wanted == "now":
            return head
        assert wanted is not None
        return min(max(1, _number(wanted, "from")), head)

    async def publish(self, publication: Publication) -> dict[str, Any]:
        """Log and match events; the answer comes when they are on disk."""
        if self._stopping:
            raise UnavailableError("the broker is ending")
        if self.log.failed:
            raise UnavailableError(f"nothing can be published: {self.log.failed}")
        waiting = self.pump.waiting_events
        # what is larger than the limit by itself is taken when nothing waits
        if waiting and waiting + len(publication.events) > self.limits.backlog:
            self.metrics.refused.inc()
            raise BusyError(
                f"the limit 'backlog' is {self.limits.backlog:,} events, {waiting:,} wait; send again later"
            )
        return await asyncio.wrap_future(self.pump.publish(publication))

    @contextlib.asynccontextmanager
    async def key_lock(self, source: str, key: str) -> AsyncIterator[None]:
        """One request of an idempotency key at a time: one that is sent twice at once waits for its first."""
        name = source, key
        lock, users = self._key_locks.get(name, (asyncio.Lock(), 0))
        self._key_locks[name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._key_locks.pop(name)
            if users > 1:
                self._key_locks[name] = lock, users - 1

    def close_slow(self, now: float, patience: float) -> int:
        """Close connections that took nothing for a while; their cursors stay."""
        slow = [one for one in self.listeners if one.stalled and one.look(now) > patience and not one.patient]
        for listener in slow:
            listener.close("slow")
            self.metrics.closed_slow.inc()
        return len(slow)

    # answers for people

    def connections_of(self, consumer: str) -> int:
        """How many connections a consumer has."""
        return self._connected.get(consumer, 0)

    def describe_consumer(self, consumer: str) -> dict[str, Any]:
        """How far a consumer is, and what it has."""
        return self._described(consumer, self._states(consumer).get(consumer, []))

    def _states(self, consumer: str | None = None) -> dict[str, list[tuple[str, int]]]:
        """State and position of each connection, by consumer; or of one alone."""
        found: dict[str, list[tuple[str, int]]] = {}
        for one in list(self.listeners):
            if consumer is None or one.consumer == consumer:
                found.setdefault(one.consumer, []).append((one.state, one.position))
        return found

    def _described(self, consumer: str, own: list[tuple[str, int]]) -> dict[str, Any]:
        number = self.directory.find_consumer(consumer)
        cursor = self.cursors.get(consumer)
        unacknowledged = self.log.durable - 1 - (cursor or self.log.first - 1)
        # who is served now is as far as the best of its connections, acknowledged or not
        behind = min(
            (0 if state == "live" else max(self.log.durable - position, 0) for state, position in own),
            default=unacknowledged,
        )
        return {
            "consumer": consumer,
            "subscriptions": 0 if number is None else self.directory.n_lasting(number),
            "expressions": self.changer.n_brought(consumer),
            "acknowledged": cursor,
            "unacknowledged": unacknowledged,
            "behind": behind,
            "connections": [{"state": state, "position": position} for state, position in own],
        }

    def _has(self, consumer: str) -> bool:
        """Whether a consumer has anything; a name stays known that was deleted, or has only connected."""
        number = self.directory.find_consumer(consumer)
        return self.cursors.get(consumer) is not None or bool(
            number is not None and self.directory.n_lasting(number)
        )

    def list_consumers(self, limit: int) -> list[dict[str, Any]]:
        """Some consumers, those with connections first and by name."""
        states = self._states()
        others = (name for name in list(self.directory.consumers) if name not in states and self._has(name))
        names = itertools.islice(itertools.chain(sorted(states), others), limit)
        return [self._described(name, states.get(name, [])) for name in names]

    def status(self) -> dict[str, Any]:
        """Counts and sizes, for the page and the administrator."""
        states: dict[str, int] = {"live": 0, "behind": 0, "stalled": 0}
        for listener in self.listeners:
            states[listener.state] = states.get(listener.state, 0) + 1
        return {
            "space": self.name,
            "index": self.store.kind,
            "version": self.directory.version,
            "subscriptions": len(self.directory),
            "expressions": self.store.schema.width - len(self.schema.names),
            "consumers": len(self.directory.consumers),
            "first": self.log.first,
            "next": self.log.durable,
            "log_bytes": self.log.bytes,
            "segments": self.log.n_segments,
            "waiting_events": self.pump.waiting_events,
            "connections": len(self.listeners),
            "states": states,
            "ticks": self.pump.ticks,
            "log_failed": self.log.failed,
        }


def _number(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BrokerError(f"{what} must be a sequence number, got {text[:40]!r}")
    return int(text)


def _set_results(answers: list[tuple[Future[Any], Any]]) -> None:
    for future, answer in answers:
        if not future.done():
            future.set_result(answer)


# Idempotency keys: a request that is sent again is answered as the first time, and logged once.
#
# A key belongs to its publisher and stands in the record of its events, so it survives a crash with them. The
# broker remembers the last hundred thousand keys; after a start, those of the last two segments of the log.

_MOST = 100_000


class KeyMemory:
    """The answers that were given, by publisher and key."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}

    def load(self, log: EventLog) -> None:
        """Take the keys from the end of a log."""
        for record in readable_records(log, log.recent(2)):
            if record.head.note_length:
                note, first = record.note, record.head.sequence
                answer = {"first": first, "last": record.head.next - 1, "rejected": note.rejected}
                self.remember(note, answer)

    def remember(self, note: RecordNote | None, answer: dict[str, Any]) -> None:
        """Keep the answer to a request that had a key."""
        if note is None or not note.key:
            return
        self._answers[note.source, note.key] = note.digest, answer
        while len(self._answers) > _MOST:
            self._answers.pop(next(iter(self._answers)), None)

    def find(self, source: str, key: str, digest: str) -> dict[str, Any] | None:
        """The answer to the first request of this key; None for a new one."""
        found = self._answers.get((source, key))
        if found is None:
            return None
        if found[0] != digest:
            raise KeyReusedError(f"the Idempotency-Key {key[:60]!r} was used for another request")
        return found[1]


class KeyReusedError(BrokerError):
    """An idempotency key came with other events than the first time."""

    status = 422


# Files of a space that were copied or restored at different moments are made to fit each other again.
#
# A copy of a live space has its files in any order, and an administrator may restore one of them alone. What
# is missing is missing then; but a number that was given once must not come to mean something else in
# silence:
#
#    a cursor beyond the log      the events that get those numbers now would be passed over; it is set back
#    a pin beyond the store       the next change would get the version of events before it, and they would be
#                                 replayed as if it had been there; versions without a change go before it

_NOTE = "broker"


def set_back_cursors(cursors: Journal, log: EventLog, space: str) -> None:
    """Set cursors to the end of the log that are beyond it."""
    last = log.next - 1
    for consumer, cursor in cursors.items():
        if cursor > last:
            cursors.put(consumer, last)
            text = "the cursor of %s was at event %d, and the log ends at %d: it is set back"
            _log.warning(text, consumer, cursor, last, extra={"space": space})
    cursors.sync()


def raise_version(store: Store, log: EventLog, space: str) -> None:
    """Bring a store to the version of the newest event, if it is behind that."""
    before, newest = store.version, newest_pin(log)
    if newest <= before:
        return
    for _ in range(before, newest):
        store.apply(note={_NOTE: {"restored_at": before}})
    text = "the store was at version %d, and the log at %d: the changes between them are missing"
    _log.warning(text, before, newest, extra={"space": space})


def newest_pin(log: EventLog) -> int:
    """The pin of the newest record, which no other exceeds; 0 when there is none."""
    newest = 0
    for segments in (1, 2, log.n_segments):
        for record in readable_records(log, log.recent(segments)):
            newest = record.head.pin
        if newest:
            break
    return newest


# What a broker does before it is ready: it opens its spaces, and goes once through what requests will call.
#
# A broker listens at once, and opens its spaces in a thread: `/healthz` answers, `/readyz` says what it waits
# for, and requests to a space that is not open yet are answered with 503. On a machine where the kernels were
# never compiled that takes half a minute, and with millions of subscriptions it takes seconds; `Opening` says
# so while it lasts.

FIRST_NEWS = 2.0
"""Seconds after which a start is worth a word; compiling is told of at once."""
NEWS = 5.0
_SAMPLES = 200
_BATCHES = (1, 100)  # one event and many take different kernels
_MANY_EVENTS = 20_000
_SOME = (2_000, 20_000, 100_000)  # subscriptions of those who catch up


class Opening:
    """Tells what is being done, from time to time, until it has ended."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._step = "opening the spaces"
        self._began = time.monotonic()
        self._compiled = compile_seconds()
        self._news = threading.Event()
        self.ended = threading.Event()

    def __enter__(self) -> Opening:
        when_compiling(self._news.set)
        threading.Thread(target=self._run, name="opening", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._news.set()

    def begin(self, step: str) -> None:
        """Say which step begins."""
        self._step = step

    def describe(self) -> str:
        """What is being done, and for how long."""
        text = f"starting for {time.monotonic() - self._began:.0f} s: {self._step}"
        compiled = compile_seconds() - self._compiled
        if compiled or self._news.is_set():
            text += f"; compiling kernels, once per machine: {compiled:.0f} s so far"
        return text

    def _run(self) -> None:
        self._news.wait(FIRST_NEWS)
        while not self.ended.is_set():
            self._tell(self.describe())
            self.ended.wait(NEWS)


def warm(space: Space, begin: Callable[[str], None]) -> None:
    """Go once through what requests to a space call, so that none of them waits for a kernel to be compiled
    or loaded; `begin` hears of each step.

    A step that fails is logged, and the others go on: a request may fail for the same reason, but a space
    that did not open would answer none at all, at this start and at every later one.
    """
    steps = list(_steps(space))
    for number, (name, step) in enumerate(steps, 1):
        begin(f"kernels for {name}, {number} of {len(steps)}")
        try:
            step()
        except Exception as error:
            text = "preparing the kernels for %s failed, and the start goes on without: %s"
            _log.warning(text, name, error, exc_info=True, extra={"space": space.name})


def _steps(space: Space) -> Iterator[tuple[str, Callable[[], None]]]:
    schema, index = space.schema, space.index
    yield "reading JSON", lambda: _read_lines(schema)
    yield "reading Arrow", lambda: _read_arrow(schema)
    yield "matching", lambda: _match(index, schema)
    yield "few subscriptions and messages", lambda: _serve_few(space)
    yield "catching up", lambda: _catch_up(schema, index, space.directory)
    if space.objects is not None:
        yield "states of objects", lambda: _compare(index, schema)
    yield "sockets", _send_nothing


def _lines(schema: Schema, n: int) -> ReceivedEvents:
    return read_events(b"{}\n" * n, LINES_TYPES[0], schema, SpaceLimits())


def _read_lines(schema: Schema) -> None:
    for n in _BATCHES:
        _lines(schema, n)


def _samples(schema: Schema) -> dict[str, list[Any]]:
    """Values for the attributes of common kinds; a schema may have none of them."""
    kinds: dict[type, Callable[[int], Any]] = {Int: int, Float: float, Category: lambda k: f"w{k}"}
    own = [a for a in schema.attributes if type(a) in kinds]
    return {a.name: [kinds[type(a)](k) for k in range(_SAMPLES)] for a in own}


def _read_arrow(schema: Schema) -> None:
    samples = _samples(schema)
    if not samples:  # a table must have a column of the schema
        return
    table = pa.table(samples)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    read_events(out.getvalue().to_pybytes(), ARROW_TYPES[0], schema, SpaceLimits())


def _match(index: Index, schema: Schema) -> None:
    for n in _BATCHES:
        _take_all(index.match(_lines(schema, n).events))


def _take_all(matches: Matches) -> None:
    assert matches.n_pairs == len(matches.ids) == len(matches.events())


def _serve_few(space: Space) -> None:
    """What the first subscriptions of a space call, and those of a consumer that is catching up."""
    schema = Schema.from_dict(space.schema.to_dict())
    values = _samples(schema)
    terms = [
        f"{quoted_name(name)} = '{several[0]}'"
        if isinstance(several[0], str)
        else f"{quoted_name(name)} between 0 and {_SAMPLES}"
        for name, several in values.items()
    ]
    texts = [term for term in (*terms, " and ".join(terms)) if term] * 3
    subs = Subscriptions.parse(schema, ids=[f"c/{k}" for k in range(len(texts))], texts=texts)
    if not len(subs):
        return
    directory = Directory()
    directory.load(1, subs)
    index = directory.index(schema, space.store.kind, space.store.options)
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    for n in _BATCHES:
        lines = b"\n".join(msgspec.json.encode(row) for row in rows[:n])
        found = read_events(lines, LINES_TYPES[0], schema, SpaceLimits())
        matches = index.match(found.events)
        stretches = [PinnedEvents(1, n, 1, found.body.json)]
        for wanted in (None, np.ones(len(directory.consumers) + 1, bool)):
            for frames in match_frames(
                stretches, matches.events(), np.asarray(matches.ids), directory, wanted
            ):
                assert frames.data
    index.delete(np.zeros(1, np.int64))
    index.match(found.events)


def _catch_up(schema: Schema, index: Index, directory: Directory) -> None:
    """What is called for consumers that catch up together: many events at a time, through an index of some of
    the subscriptions, which is of another make than one of few or of all."""
    n = directory.n_entries
    subs = directory.some(np.arange(0, n, max(1, n // _MANY_EVENTS))[:_MANY_EVENTS])
    if subs is None:
        return
    # an event in the corner of each: where nothing matches, less is called
    corners = hulls(subs.boxes, len(subs.schema.attributes)).lows
    places = np.arange(_MANY_EVENTS) % corners.shape[1]
    many = Events.coded(schema, np.ascontiguousarray(corners[:, places]))
    _take_all(index.match(many))
    for some in _SOME:
        held = EntryIndex(directory, schema)
        entries = np.arange(0, n, max(1, n // some))
        for part in (entries[::50], entries[::4], entries[::2], entries):  # as groups meet, it grows
            own = held.of(part)
            _match(own, schema)
        _take_all(own.match(many))


def _compare(index: Index, schema: Schema) -> None:
    """Compare an event without values with itself."""
    events = _lines(schema, 1).events
    before = events.encoded(index.schema).codes
    links = ObjectLinks(np.ones((2, 1), np.int64), np.ones(1, np.int64), before)
    assert not (changed_pairs(index, events, links).kinds != STAYS).any()


def _send_nothing() -> None:
    none = np.empty(0, np.int64)
    kernels.send_pieces(none, 0, none, none, none)
