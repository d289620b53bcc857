"""Requests with events: publish them, or match them at once."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from rangecast.broker.answers import LARGE, Json, allowed, run_beside
from rangecast.broker.bodies import ARROW_TYPES, media_type, read_body, read_events
from rangecast.broker.errors import BrokerError, TooLargeError, UnavailableError
from rangecast.broker.event_record import RecordNote
from rangecast.broker.pump import Publication
from rangecast.broker.space import Space


async def publish_events(request: Request) -> Response:
    """Publish events: they are logged, matched and delivered."""
    received = time.perf_counter()
    broker, space, access = allowed(request, "publish")
    if broker.ending:
        raise UnavailableError("the broker is ending")
    kind = media_type(request.headers.get("content-type"))
    raw = await read_body(request, space.limits)
    key = request.headers.get("idempotency-key", "")
    if len(key) > 256:
        raise BrokerError(f"an Idempotency-Key may have 256 letters, got {len(key)}")
    if not key:
        return Json(await _publish(broker, space, access.name, raw, kind, None, received))
    digest = await run_beside(len(raw), _digest, raw)
    async with space.key_lock(access.name, key):
        answer = space.keys.find(access.name, key, digest)
        if answer is not None:
            rejected = [{"row": row, "reason": reason} for row, reason in answer["rejected"]]
            return Json({**answer, "rejected": rejected, "repeated": True})
        note = RecordNote(source=access.name, key=key, digest=digest)
        return Json(await _publish(broker, space, access.name, raw, kind, note, received))


async def _publish(
    broker: Any, space: Space, source: str, raw: bytes, kind: str, note: RecordNote | None, received: float
) -> dict[str, Any]:
    # a few bytes of a compressed Arrow stream may be many events
    size = LARGE + 1 if kind in ARROW_TYPES else len(raw)
    found = await run_beside(size, read_events, raw, kind, space.schema, space.limits)
    broker.pacer.spend(source, "events_per_second", space.limits.events_per_second, len(found.events))
    if found.rejected:
        space.metrics.rejected.inc(len(found.rejected))
        note = note or RecordNote(source=source)
        note.rejected = found.rejected if note.key else []
    if space.objects is not None and found.events.owners is not None:
        raise BrokerError("events of a space with an object key must have one value for each attribute")
    if len(found.events):
        answer = dict(await space.publish(Publication(found.events, found.body, note, received)))
    else:
        answer = {"first": None, "last": None}
    answer["rejected"] = [{"row": row, "reason": reason} for row, reason in found.rejected]
    return answer


def _digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


async def match_events(request: Request) -> Response:
    """Return the subscriptions that events match; nothing is logged or delivered."""
    _, space, _ = allowed(request, "publish")
    raw = await read_body(request, space.limits)
    kind = media_type(request.headers.get("content-type"))
    return await asyncio.to_thread(lambda: Json(matched(space, raw, kind)))


def matched(space: Space, raw: bytes, kind: str) -> dict[str, Any]:
    """The ids that each event of a body matches; null for a rejected one."""
    found = read_events(raw, kind, space.schema, space.limits)
    most = space.limits.match_pairs
    if len(found.events) * len(space.directory) > most:
        # counted before anything is collected, and without the lock, which keeps the matcher waiting
        _check_pairs(int(space.index.count(found.events).sum()), most)
    with space.lock:
        version = space.directory.version
        matches = space.index.match(found.events)
        # subscriptions may have come in between
        _check_pairs(len(matches.ids), most)
        entries = np.asarray(matches.ids).tolist()
    offsets = matches.offsets.tolist()
    ids = space.directory.ids
    rows = [sorted(ids[entry] for entry in entries[a:b]) for a, b in itertools.pairwise(offsets)]
    bad = {row for row, _ in found.rejected}
    out: list[list[str] | None] = []
    places = iter(rows)
    for row in range(len(rows) + len(bad)):
        out.append(None if row in bad else next(places))
    rejected = [{"row": row, "reason": reason} for row, reason in found.rejected]
    return {"matches": out, "version": version, "rejected": rejected}


def _check_pairs(n: int, most: int) -> None:
    if n > most:
        raise TooLargeError(
            f"the limit 'match_pairs' is {most:,}, and these events match {n:,} times: "
            "send fewer events at a time"
        )
