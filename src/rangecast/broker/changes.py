"""Subscriptions that come, change and go: the thread that writes to the store.

Requests that wait are joined into one change of the store, so that a thousand small ones cost one sync. A
request is answered when the matcher has taken the change in: an event that is published after the answer is
matched against it.

A payload is kept beside the store (payloads.journal), under the version that its subscription comes with.
It is written before the change, so a crash leaves either both or a payload of a version that never was,
which is dropped for the one before it when the space is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rangecast.broker.errors import ConflictError, LimitError, NotFoundError, PreconditionError
from rangecast.broker.journal import Journal
from rangecast.errors import LanguageError, RangecastError, StorageError, SubscriptionError
from rangecast.model.subscriptions import Subscriptions

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

    wanted: list[WantedSubscription] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    if_match: str | None = None
    single: bool = True
    """Whether anything wrong refuses the request; otherwise what is wrong is rejected row by row."""
    future: Future[dict[str, Any]] = field(default_factory=Future)

    def ids(self) -> set[str]:
        """All ids that the request names."""
        return {want.id for want in self.wanted} | set(self.deleted)


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
        self._thread = threading.Thread(target=self._run, name=f"changes-{space.name}", daemon=True)
        self._mend_payloads()

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
        while True:
            self._wake.wait(_PAUSE)
            self._wake.clear()
            try:
                self._expire()
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
            with store.writing():
                version, answers = self._write(requests)
        except Exception as error:
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(_told(error))
            return
        # the next change is checked against a directory that has this one
        done = self._space.pump.applied(version, answers)
        while not done.wait(1.0):
            if self._space.pump.failed:
                return

    def _write(
        self, requests: list[ChangeRequest]
    ) -> tuple[int, list[tuple[Future[dict[str, Any]], dict[str, Any]]]]:
        space, store = self._space, self._space.store
        accepted = [request for request in requests if self._allowed(request)]
        wants = [want for request in accepted for want in request.wanted]
        # the state of an object is one column of codes
        store.schema.traits.single_columns = space.objects is not None
        subs = (
            Subscriptions.parse(
                store.schema,
                ids=[want.id for want in wants],
                texts=[want.condition for want in wants],
                on_error="collect",
                remarks=False,
            )
            if wants
            else Subscriptions.empty(store.schema)
        )
        reasons = {rejected.row: rejected for rejected in subs.rejected}
        boxes = np.bincount(subs.owners, minlength=len(subs)) if len(subs) else np.empty(0, np.int64)
        kept = [k for k in range(len(wants)) if k not in reasons]
        refused: dict[int, str] = {k: rejected.reason for k, rejected in reasons.items()}
        most = space.limits.boxes
        for row, k in enumerate(kept):
            if boxes[row] > most:
                refused[k] = f"the limit 'boxes' is {most} boxes for one condition, got {int(boxes[row])}"
        at = 0
        answers: list[tuple[Future[dict[str, Any]], dict[str, Any]]] = []
        deleted: list[str] = []
        taken: list[int] = []
        for request in accepted:
            rows = list(range(at, at + len(request.wanted)))
            at += len(rows)
            bad = [k for k in rows if k in refused]
            if bad and request.single:
                request.future.set_exception(_refusal(reasons.get(bad[0]), refused[bad[0]]))
                continue
            taken += [k for k in rows if k not in refused]
            gone = [id for id in request.deleted if id in space.directory.current]
            deleted += gone
            answers.append(
                (
                    request.future,
                    {
                        "deleted": len(gone),
                        "accepted": len(rows) - len(bad),
                        "rejected": [
                            {"row": k - rows[0], "id": wants[k].id, "reason": refused[k]} for k in bad
                        ],
                    },
                )
            )
        chosen = set(taken)
        places = [row for row, k in enumerate(kept) if k in chosen]
        if len(places) < len(kept):
            subs = subs.select(np.array(places, np.int64))
        version = store.version
        if taken or deleted:
            expires = [wants[k].expires for k in taken]
            try:
                self._write_payloads([wants[k] for k in taken], deleted, version)
                version = store.apply(subs, deleted, np.array(expires, np.int64) if any(expires) else None)
            except BaseException:
                # what was not changed keeps its payload; on disk a start sees to it
                with contextlib.suppress(StorageError):
                    self._mend_payloads()
                raise
        for _future, answer in answers:
            answer["version"] = version
        return version, answers

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

    def _allowed(self, request: ChangeRequest) -> bool:
        """Whether a request may go ahead; otherwise it has its answer."""
        try:
            self._check(request)
        except (RangecastError, LookupError) as error:
            request.future.set_exception(error)
            return False
        return True

    def _check(self, request: ChangeRequest) -> None:
        space = self._space
        directory, limits = space.directory, space.limits
        fresh = [want.id for want in request.wanted if want.id not in directory.current]
        if len(directory) + len(fresh) > limits.subscriptions:
            raise LimitError(
                f"the limit 'subscriptions' is {limits.subscriptions:,}, and the space has {len(directory):,}"
            )
        per_consumer: dict[str, int] = {}
        for id in fresh:
            consumer = id.partition("/")[0]
            per_consumer[consumer] = per_consumer.get(consumer, 0) + 1
        for consumer, more in per_consumer.items():
            number = directory.find_consumer(consumer)
            has = 0 if number is None else directory.n_lasting(number)
            if has + more > limits.consumer_subscriptions:
                raise LimitError(
                    f"the limit 'consumer_subscriptions' is {limits.consumer_subscriptions:,}, and consumer "
                    f"{consumer!r} has {has:,}"
                )
        if request.if_match is not None:
            for id in request.ids():
                if id not in directory.current:
                    raise PreconditionError(f"If-Match: there is no subscription {id!r}")
                state = self.describe(id)["etag"]
                if request.if_match not in ("*", state):
                    raise PreconditionError(f"If-Match: {id!r} has the state {state}, got {request.if_match}")
        if request.single and request.deleted and not request.wanted:
            absent = [id for id in request.deleted if id not in directory.current]
            if absent:
                raise NotFoundError(f"there is no subscription {absent[0]!r}")


def _refusal(rejected: Any, reason: str) -> Exception:
    if rejected is None:
        return LimitError(reason)
    error = getattr(rejected, "error", None)
    return error if isinstance(error, RangecastError) else SubscriptionError(reason)


def _told(error: Exception) -> Exception:
    if isinstance(error, StorageError) or not isinstance(error, LanguageError | SubscriptionError):
        return error
    return ConflictError(str(error))
