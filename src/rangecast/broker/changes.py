"""Subscriptions that come, change and go: the thread that writes to the store.

Requests that wait are joined into one change of the store, so that a thousand small ones cost one sync. A
request is answered when the matcher has taken the change in: an event that is published after the answer is
matched against it.

A payload is kept beside the store (payloads.journal), under the version that its subscription comes with.
It is written before the change, so a crash leaves either both or a payload of a version that never was,
which is dropped for the one before it when the space is opened.

An expression that a condition brings to the space takes one of the places that its schema has
(types/derived.py), for as long as the space exists: indexes, the store and the event log know it by its
place. Which consumer brought it is kept in expressions.journal, so that none takes more than its share by
subscribing and deleting in turn.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from rangecast.broker.access import ConflictError, LimitError, NotFoundError, PreconditionError, SpaceLimits
from rangecast.broker.directory import Directory
from rangecast.broker.pump import refuse
from rangecast.durable.lines import Journal
from rangecast.errors import LanguageError, RangecastError, StorageError, SubscriptionError
from rangecast.language import parse
from rangecast.language.kernels import SET
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.change import Change
from rangecast.types.patterns import HeldBundle
from rangecast.types.schema import Schema

if TYPE_CHECKING:
    from rangecast.broker.space import Space

_PAUSE = 0.25


@dataclass
class WantedSubscription:
    """One subscription as it was asked for."""

    id: str
    condition: str
    expires: int = 0
    payload: Any = None


@dataclass
class ChangeRequest:
    """Subscriptions to add or replace, and ids to delete, as one request."""

    rows: list[WantedSubscription | str]
    """What is to be done, in this order: a subscription to add or replace, or an id to delete."""
    if_match: str | None = None
    single: bool = True
    """Whether anything wrong refuses the request; otherwise what is wrong is rejected row by row."""
    future: Future[dict[str, Any]] = field(default_factory=Future)

    def ids(self) -> set[str]:
        """All ids that the request names."""
        return {row if isinstance(row, str) else row.id for row in self.rows}


class _Outcome(NamedTuple):
    """What becomes of a request: its answer, or why it is refused."""

    request: ChangeRequest
    answer: dict[str, Any]
    refusal: Exception | None = None


class _ReadRows(NamedTuple):
    """The rows of some requests, one after the other, and what was read of their conditions."""

    base: Schema
    """The store's schema that they were read with."""
    width: int
    """How wide it was."""
    rows: list[WantedSubscription | str]
    subs: Subscriptions
    """Those whose condition could be read, under the numbers of their rows."""
    places: dict[int, int]
    """By row, where a subscription stands in `subs`."""
    refused: dict[int, Exception]
    """By row, why a subscription cannot be taken."""
    asked: dict[int, frozenset[str]]
    """By place in `subs`, the expressions that a condition asks for, if it does."""

    def fits(self, schema: Schema) -> bool:
        """Whether nobody else has changed the store's schema since."""
        return self.base is schema and self.width == schema.width


class _Draft:
    """What the requests that were accepted make of a space, before it is written.

    Each request is checked against the directory and all that was accepted before it, so that a limit holds
    for requests that were sent at once as it does for one after the other.
    """

    def __init__(
        self, directory: Directory, limits: SpaceLimits, parsed: _ReadRows, brought: Mapping[str, int]
    ) -> None:
        self._directory, self._limits, self._parsed = directory, limits, parsed
        self.last: dict[str, int | None] = {}
        """By id, the row that counts in the end; None where it is deleted."""
        self.fresh: dict[str, str] = {}
        """The expressions that the space did not have, each with the consumer that brought it."""
        self._total = len(directory)
        self._counts: dict[str, int] = {}
        self._brought = Counter(brought)

    def take(self, request: ChangeRequest, first: int) -> dict[str, Any]:
        """Accept a request whose rows begin at `first`, and return its answer; LimitError beyond a limit."""
        directory, refused = self._directory, self._parsed.refused
        last: dict[str, int | None] = {}
        more: Counter[str] = Counter()
        deleted = accepted = 0
        rejected: list[dict[str, Any]] = []
        for k, row in enumerate(request.rows, first):
            id = row if isinstance(row, str) else row.id
            there = last[id] is not None if id in last else id in directory.current
            if isinstance(row, str):
                last[id] = None
                deleted += there
                more[_consumer(id)] -= there
            elif k in refused:
                rejected.append({"row": k - first, "id": id, "reason": str(refused[k])})
            else:
                last[id] = k
                accepted += 1
                more[_consumer(id)] += not there
        fresh = self._fresh(last)
        self._check(more, Counter(fresh.values()))
        self.last |= last
        self._total += more.total()
        for consumer, n in more.items():
            self._counts[consumer] = self._count(consumer) + n
        self.fresh |= fresh
        self._brought.update(fresh.values())
        return {"deleted": deleted, "accepted": accepted, "rejected": rejected}

    def _count(self, consumer: str) -> int:
        """How many subscriptions a consumer has by now."""
        found = self._counts.get(consumer)
        if found is None:
            number = self._directory.find_consumer(consumer)
            found = 0 if number is None else self._directory.n_lasting(number)
        return found

    def _fresh(self, last: dict[str, int | None]) -> dict[str, str]:
        """The expressions that nobody has asked for before a request, and its consumers that bring them."""
        parsed = self._parsed
        found: dict[str, str] = {}
        for id, k in last.items():
            for name in () if k is None else parsed.asked.get(parsed.places[k], ()):
                if name not in self.fresh and parsed.base.hidden_position(name) is None:
                    found.setdefault(name, _consumer(id))
        return found

    def _check(self, more: Counter[str], fresh: Counter[str]) -> None:
        limits = self._limits
        if more.total() > 0 and self._total + more.total() > limits.subscriptions:
            raise LimitError(
                f"the limit 'subscriptions' is {limits.subscriptions:,}, and the space has {self._total:,}"
            )
        for consumer, n in more.items():
            has = self._count(consumer)
            if n > 0 and has + n > limits.consumer_subscriptions:
                raise LimitError(
                    f"the limit 'consumer_subscriptions' is {limits.consumer_subscriptions:,}, and consumer "
                    f"{consumer!r} has {has:,}"
                )
        for consumer, n in fresh.items():
            has = self._brought[consumer]
            if has + n > limits.consumer_expressions:
                raise LimitError(
                    f"the limit 'consumer_expressions' is {limits.consumer_expressions:,}, and consumer "
                    f"{consumer!r} has brought {has:,} to this space, where they stay; bring constants to "
                    "the other side of a comparison (price / close > 1.05 for price > 1.05 * close), so that "
                    "conditions share an expression"
                )


class _SplitError(Exception):
    """Some requests cannot be one change, although each might be one by itself."""


def etag(condition: str | None, payload: Any, expires: int) -> str:
    """What stands for the state of a subscription, for If-Match: the same after a restart."""
    raw = msgspec.json.encode([condition, payload, expires])
    return f'"{hashlib.blake2b(raw, digest_size=9).hexdigest()}"'


class Changer:
    """The one thread of a space that writes to its store."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._queue: deque[ChangeRequest] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._payloads = Journal(space.folder / "payloads.journal")
        self._expressions = Journal(space.folder / "expressions.journal")
        self._thread = threading.Thread(target=self._run, name=f"changes-{space.name}", daemon=True)
        self._mend_payloads()
        self._mend_expressions()

    def start(self) -> None:
        """Begin to take requests."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, and end."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def submit(self, request: ChangeRequest) -> Future[dict[str, Any]]:
        """Ask for a change; the future has the answer when the matcher has taken it in."""
        self._queue.append(request)
        self._wake.set()
        return request.future

    def payload(self, id: str) -> Any:
        """The payload of a subscription, None where it has none."""
        found = self._payloads.get(id)
        return None if found is None else found["payload"]

    def n_brought(self, consumer: str) -> int:
        """How many expressions a consumer has brought to the space."""
        return self._brought[consumer]

    def describe(self, id: str) -> dict[str, Any]:
        """A subscription as GET shows it; NotFoundError."""
        directory = self._space.directory
        with self._space.lock:
            entry = directory.current.get(id)
            if entry is None:
                raise NotFoundError(f"there is no subscription {id!r}")
            condition, since, expires = (
                directory.text(entry),
                int(directory.since[entry]),
                int(directory.expires[entry]),
            )
        payload = self.payload(id)
        out: dict[str, Any] = {
            "id": id,
            "name": id.partition("/")[2],
            "condition": condition,
            "version": since,
        }
        if expires:
            out["expires"] = expires / 1_000_000
        if payload is not None:
            out["payload"] = payload
        out["etag"] = etag(condition, payload, expires)
        return out

    def _mend_payloads(self) -> None:
        newest = self._space.store.version
        for id, found in self._payloads.items():
            if found["version"] > newest:
                self._payloads.put(id, found.get("before"))
        self._payloads.sync()

    def _run(self) -> None:
        looked = 0.0
        while True:
            self._wake.wait(_PAUSE)
            self._wake.clear()
            try:
                if time.monotonic() - looked >= _PAUSE:
                    self._expire()
                    looked = time.monotonic()
                while self._queue:
                    self._apply(self._next_requests())
            except Exception as error:  # the thread must live; what failed is said where it was asked for
                self._space.log_error("changing subscriptions", error)
            if self._stopping and not self._queue:
                return

    def _next_requests(self) -> list[ChangeRequest]:
        """Requests that can be one change: no id is named twice."""
        found: list[ChangeRequest] = []
        named: set[str] = set()
        while self._queue:
            ids = self._queue[0].ids()
            if found and (ids & named or len(named) > 100_000):
                break
            named |= ids
            found.append(self._queue.popleft())
        return found

    def _expire(self) -> None:
        store = self._space.store
        due = store.next_expiry()
        if due is not None and due <= time.time() * 1_000_000:
            version = store.expire(patient=False)
            self._space.pump.applied(version, [])

    def _apply(self, requests: list[ChangeRequest]) -> None:
        store = self._space.store
        try:
            # before the store is held: a long condition takes seconds, and the matcher looks into the store
            parsed = self._parse(requests)
            with store.writing():
                if not parsed.fits(store.schema):
                    parsed = self._parse(requests)
                version, change, outcomes = self._write(requests, parsed)
        except Exception as error:
            if len(requests) > 1 and not isinstance(error, StorageError | OSError):
                # nothing was changed, and only the request that is at fault must hear of it
                half = len(requests) // 2
                self._apply(requests[:half])
                self._apply(requests[half:])
                return
            for request in requests:
                refuse(request.future, _told(error))
            return
        answers = []
        for request, answer, refusal in outcomes:
            if refusal is None:
                answers.append((request.future, {**answer, "version": version}))
            else:
                refuse(request.future, refusal)
        # the next change is checked against a directory that has this one
        done = self._space.pump.applied(version, answers, change)
        while not done.wait(1.0):
            if self._space.pump.ended:
                return

    def _parse(self, requests: list[ChangeRequest]) -> _ReadRows:
        """Read the conditions of requests; what they need of the schema is not yet the store's."""
        space = self._space
        base = space.store.schema
        width = base.width
        rows = [row for request in requests for row in request.rows]
        wants = {k: row for k, row in enumerate(rows) if not isinstance(row, str)}
        if not wants:
            return _ReadRows(base, width, rows, Subscriptions.empty(base), {}, {}, {})
        # the state of an object is one column of codes
        base.traits.single_columns = space.objects is not None
        subs = Subscriptions.parse(
            base.apart(),
            ids=list(wants),
            texts=[want.condition for want in wants.values()],
            on_error="collect",
            remarks=False,
        )
        if subs.rejected and len(subs.schema) > width and len(requests) > 1:
            # a schema has so many expressions and no more: those of a request that will be refused must not
            # be in the way of another
            raise _SplitError
        numbers = list(wants)
        refused: dict[int, Exception] = {
            numbers[bad.row]: SubscriptionError(bad.reason) for bad in subs.rejected
        }
        places = {int(k): place for place, k in enumerate(subs.ids.values)}
        most = space.limits.boxes
        boxes = np.bincount(subs.owners, minlength=len(subs))
        for k, place in places.items():
            if boxes[place] > most:
                refused[k] = LimitError(
                    f"the limit 'boxes' is {most} boxes for one condition, got {int(boxes[place])}"
                )
        return _ReadRows(base, width, rows, subs, places, refused, _asked_expressions(subs))

    def _write(
        self, requests: list[ChangeRequest], parsed: _ReadRows
    ) -> tuple[int, Change | None, list[_Outcome]]:
        """Make one change of requests that do not name the same ids, as far as they are accepted.

        Returns the newest version, and the change that made it if there was something to change.
        """
        space, store = self._space, self._space.store
        directory = space.directory
        draft = _Draft(directory, space.limits, parsed, self._brought)
        outcomes: list[_Outcome] = []
        first = 0
        for request in requests:
            try:
                self._check(request, parsed, first)
                outcomes.append(_Outcome(request, draft.take(request, first)))
            except (RangecastError, LookupError) as error:
                outcomes.append(_Outcome(request, {}, error))
            first += len(request.rows)
        taken = [k for k in draft.last.values() if k is not None]
        deleted = [id for id, k in draft.last.items() if k is None and id in directory.current]
        version, change = store.version, None
        if taken or deleted:
            wants = [row for k in taken if not isinstance(row := parsed.rows[k], str)]
            chosen = parsed.subs.select(np.array([parsed.places[k] for k in taken], np.int64))
            subs = _without_spare(chosen, parsed, [want.id for want in wants])
            expires = [want.expires for want in wants]
            try:
                self._write_payloads(wants, deleted, version)
                self._write_expressions(draft.fresh)
                ends = np.array(expires, np.int64) if any(expires) else None
                change = store.make_change(subs, deleted, ends)
                version = change.version
            except BaseException:
                # what was not changed keeps its payload; on disk a start sees to it
                with contextlib.suppress(StorageError):
                    self._mend_payloads()
                    self._mend_expressions()
                raise
        return version, change, outcomes

    def _write_payloads(self, wants: list[WantedSubscription], deleted: list[str], version: int) -> None:
        for want in wants:
            before = self._payloads.get(want.id)
            if want.payload is not None or before is not None:
                if before is not None:
                    before = {"version": before["version"], "payload": before["payload"]}
                self._payloads.put(
                    want.id, {"version": version + 1, "payload": want.payload, "before": before}
                )
        for id in deleted:
            before = self._payloads.get(id)
            if before is not None:
                self._payloads.put(id, {"version": version + 1, "payload": None, "before": before})
        self._payloads.sync()

    def _write_expressions(self, fresh: dict[str, str]) -> None:
        for name, consumer in fresh.items():
            self._expressions.put(name, consumer)
            self._brought[consumer] += 1
        self._expressions.sync()

    def _mend_expressions(self) -> None:
        """Forget who brought an expression that the store does not have: its change was never made."""
        have = set(self._space.store.schema.hidden_names())
        for name, _ in self._expressions.items():
            if name not in have:
                self._expressions.put(name, None)
        self._brought = Counter(consumer for _, consumer in self._expressions.items())
        self._expressions.sync()

    def _check(self, request: ChangeRequest, parsed: _ReadRows, first: int) -> None:
        """Raise what is wrong with a request, whatever the limits say."""
        directory = self._space.directory
        if request.if_match is not None:
            for id in request.ids():
                if id not in directory.current:
                    raise PreconditionError(f"If-Match: there is no subscription {id!r}")
                state = self.describe(id)["etag"]
                if request.if_match not in ("*", state):
                    raise PreconditionError(f"If-Match: {id!r} has the state {state}, got {request.if_match}")
        if not request.single:
            return
        for k, row in enumerate(request.rows, first):
            if isinstance(row, str):
                if row not in directory.current:
                    raise NotFoundError(f"there is no subscription {row!r}")
            elif k in parsed.refused:
                raise _placed(parsed.refused[k], row.condition, parsed.base)


def _consumer(id: str) -> str:
    return id.partition("/")[0]


def _placed(error: Exception, condition: str, schema: Schema) -> Exception:
    """Why a condition is refused, with the place where it is wrong if it can be said."""
    if isinstance(error, SubscriptionError):
        try:
            parse(condition, Schema.from_dict(schema.to_dict()))
        except RangecastError as found:
            return found
    return error


def _asked_expressions(subs: Subscriptions) -> dict[int, frozenset[str]]:
    """The expressions that conditions ask for, by row, for those that ask for any. Bundles of traits are not
    among them: all patterns share those."""
    schema = subs.schema
    if not schema.n_hidden or not len(subs):
        return {}
    boxes = subs.boxes
    positions = (boxes.attributes & ~SET).astype(np.int64)
    entries = np.flatnonzero(positions >= len(schema.names))
    rows = boxes.owners[np.searchsorted(boxes.starts, entries, "right") - 1].astype(np.int64)
    found: dict[int, set[str]] = {}
    for pair in np.unique((rows << 32) | positions[entries]).tolist():
        attribute = schema.attributes[pair & 0xFFFF_FFFF]
        if not isinstance(attribute, HeldBundle):
            found.setdefault(pair >> 32, set()).add(attribute.name)
    return {row: frozenset(names) for row, names in found.items()}


def _without_spare(subs: Subscriptions, parsed: _ReadRows, ids: list[str]) -> Subscriptions:
    """The same under their ids, with the expressions that they ask for and no other ones that are new.

    What was refused, and a condition that turned out to need less, must not take places from others.
    """
    boxes, schema = subs.boxes, subs.schema
    if len(schema) > parsed.width:
        positions = boxes.attributes & ~SET
        kept = np.zeros(len(schema), bool)
        kept[: parsed.width] = True
        kept[positions] = True
        bundles = [k for k, attribute in enumerate(schema.attributes) if isinstance(attribute, HeldBundle)]
        kept[bundles] = kept[bundles].any()  # they stand beside each other
        fresh = np.flatnonzero(kept[parsed.width :]) + parsed.width
        schema = parsed.base.apart()
        schema.take_hidden(parsed.width, [subs.schema.attributes[k] for k in fresh])
        schema = schema.widest()
        ranks = (np.cumsum(kept) - 1).astype(np.int32)
        boxes = boxes._replace(attributes=ranks[positions] | (boxes.attributes & SET))
    return Subscriptions.of_boxes(schema, ids, boxes, texts=subs.beside)


def _told(error: Exception) -> Exception:
    if isinstance(error, StorageError) or not isinstance(error, LanguageError | SubscriptionError):
        return error
    return ConflictError(str(error))
