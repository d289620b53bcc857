"""Requests about subscriptions and events: subscribe, replace, delete, list, batch, test; publish, match.

Answers as JSON, and what a sender may use (`allowed`), are here for the other modules of requests too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from rangecast.broker.access import (
    Access,
    BrokerError,
    ForbiddenError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)
from rangecast.broker.bodies import (
    ARROW_TYPES,
    PARQUET_TYPES,
    arrow_table,
    media_type,
    parquet_table,
    read_body,
    read_events,
    rows_of,
    split_texts,
)
from rangecast.broker.broker import Broker
from rangecast.broker.changes import ChangeRequest, WantedSubscription, etag
from rangecast.broker.directory import NAME, subscription_id
from rangecast.broker.event_log import RecordNote
from rangecast.broker.pump import Publication
from rangecast.broker.space import Space
from rangecast.engine import open_index
from rangecast.errors import RangecastError
from rangecast.language import parse
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema

_TTL = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_MOST_TEST_EVENTS = 1_000
# 8,000 predicates and an event of 100 kB would be an answer of 800 MB, and 1,000 events with a list of
# 250,000 numbers an hour of reading it
_MOST_TEST_LETTERS = 8 << 20
_JOINING = re.compile(r"\b(?:and|or|not)\b", re.IGNORECASE)
_MOST_PAYLOAD = 65_536


async def put_subscription(request: Request) -> Response:
    """Add a subscription, or replace the one of this name.

    `condition` is required. `ttl` is a number of seconds, or a number with `ms`, `s`, `m`, `h` or `d`;
    without it the subscription lasts until it is deleted. `payload` is any JSON of up to 65,536 bytes, and is
    kept with the subscription. The answer comes when the change is on disk and in the index: every event that
    is published afterwards is matched against it. With `If-Match` the change is made only if the subscription
    has the state that `ETag` named, or with `*` if there is one.

    400: a name, `ttl` or the body cannot be read
    403: the token is not for this consumer, or the limit `subscriptions`, `consumer_subscriptions`,
        `consumer_expressions` or `boxes` is reached
    412: `If-Match` names another state
    413: the body is longer than the limit `body_bytes`
    422: the condition cannot be read; `position` says where
    429: the limit `changes_per_second` is reached; `Retry-After` says when to try again

    header: If-Match
    body: {"condition": "symbol = 'IBM' and price < 10", "payload": {"mail": "alice@example.org"}}
    answer: {"id": "alice/cheap", "version": 1}
    """
    consumer = consumer_of(request)
    broker, space, access = allowed(request, "subscribe", consumer)
    name = checked_name(request.path_params["name"], "a subscription")
    raw = await read_body(request, space.limits)
    broker.pacer.spend(access.name, "changes_per_second", space.limits.changes_per_second, 1)
    want = await run_beside(len(raw), _wanted, consumer, name, raw)
    # its condition is read by the thread that makes the change: a long one takes seconds
    change = ChangeRequest([want], if_match=request.headers.get("if-match"))
    answer = await asyncio.wrap_future(space.changer.submit(change))
    # of what was put, and not of what another request has made of it since
    tag = etag(want.condition, want.payload, want.expires)
    return Json({"id": want.id, "version": answer["version"]}, headers={"ETag": tag})


async def get_subscription(request: Request) -> Response:
    """Return one subscription.

    The answer has `expires`, in seconds since 1970, if the subscription has a `ttl`, and `payload` if it has
    one. `ETag` stands for its state.

    404: there is no such space or subscription

    answer: {"id": "alice/cheap", "name": "cheap", "condition": "symbol = 'IBM' and price < 10", "version": 1,
        "payload": {"mail": "alice@example.org"}}
    """
    consumer = consumer_of(request)
    _, space, _ = allowed(request, "subscribe", consumer)
    found = await asyncio.to_thread(
        space.changer.describe, subscription_id(consumer, request.path_params["name"])
    )
    tag = found.pop("etag")
    return Json(found, headers={"ETag": tag})


async def delete_subscription(request: Request) -> Response:
    """Delete a subscription.

    Events that were published before the answer may still be delivered for it, to consumers that are behind.
    `If-Match` works as for `PUT`.

    404: there is no such space or subscription
    412: `If-Match` names another state
    429: the limit `changes_per_second` is reached; `Retry-After` says when to try again

    header: If-Match
    answer: {"id": "alice/cheap", "version": 2}
    """
    consumer = consumer_of(request)
    broker, space, access = allowed(request, "subscribe", consumer)
    broker.pacer.spend(access.name, "changes_per_second", space.limits.changes_per_second, 1)
    id = subscription_id(consumer, request.path_params["name"])
    change = ChangeRequest([id], if_match=request.headers.get("if-match"))
    answer = await asyncio.wrap_future(space.changer.submit(change))
    return Json({"id": id, "version": answer["version"]})


async def list_subscriptions(request: Request) -> Response:
    """List the subscriptions of a consumer by name, a page at a time.

    `limit` is 100 unless it is given, and at most 10,000. If there are more, the answer has `after`: send it
    with the next request.

    400: the name or `limit` cannot be read

    query: after string, limit integer
    example: /v1/main/consumers/alice/subscriptions?limit=10
    answer: {"subscriptions": []}
    """
    consumer = consumer_of(request)
    _, space, _ = allowed(request, "subscribe", consumer)
    after = request.query_params.get("after", "")
    limit = whole_number(request, "limit", 100, 1, 10_000)
    return Json(await asyncio.to_thread(_page, space, consumer, after, limit))


def _page(space: Space, consumer: str, after: str, limit: int) -> dict[str, Any]:
    """Some subscriptions of a consumer by name, and after which one to go on if there are more."""
    number = space.directory.find_consumer(consumer)
    with space.lock:
        names = [] if number is None else space.directory.names_of(number)
    page = [name for name in names if name > after][: limit + 1]
    found = []
    for name in page[:limit]:
        id = subscription_id(consumer, name)
        with contextlib.suppress(NotFoundError):  # it was deleted meanwhile
            found.append({k: v for k, v in space.changer.describe(id).items() if k != "etag"})
    rest = {"after": page[limit - 1]} if len(page) > limit else {}
    return {"subscriptions": found, **rest}


async def batch_subscriptions(request: Request) -> Response:
    r"""Add, replace and delete many subscriptions, sent as JSON lines, JSON, Parquet or Arrow.

    A row has `consumer`, `name` and `condition`, and may have `ttl` and `payload`; a row with `"delete":
    true` deletes. Rows that cannot be accepted are listed in `rejected`, and count from 0; the others are one
    change, which is made as a whole. Rows are done in their order, so of several with the same consumer and
    name the last one counts. In Parquet and Arrow a payload is a string of JSON.

    400: the body cannot be read at all
    403: the token does not allow it, or the limit `subscriptions`, `consumer_subscriptions` or
        `consumer_expressions` is reached
    413: the body is longer than the limit `body_bytes`
    429: the limit `changes_per_second` is reached; `Retry-After` says when to try again

    accepts: application/x-ndjson, application/json, application/vnd.apache.parquet,
        application/vnd.apache.arrow.stream
    body: [{"consumer": "alice", "name": "cheap", "condition": "price < 10"}, {"consumer": "alice", "name":
        "odd", "condition": "price <"}]
    answer: {"deleted": 0, "accepted": 1, "rejected": [{"row": 1, "id": "alice/odd", "reason":
        "column 8: expected a value, got the end of the text\n  price <\n         ^"}], "version": 3}
    """
    broker, space, access = allowed(request, "subscribe")
    kind = media_type(request.headers.get("content-type"))
    raw = await read_body(request, space.limits)
    rows = await asyncio.to_thread(_batch_rows, raw, kind, space.limits.body_bytes)
    broker.pacer.spend(access.name, "changes_per_second", space.limits.changes_per_second, len(rows))
    change, places, rejected = await asyncio.to_thread(_batch_change, rows, access)
    answer = await asyncio.wrap_future(space.changer.submit(change))

    def finished() -> Response:
        every = rejected + [{**one, "row": places[one["row"]]} for one in answer["rejected"]]
        return Json({**answer, "rejected": sorted(every, key=lambda one: int(one["row"]))})

    return await asyncio.to_thread(finished)


def _batch_change(
    rows: list[dict[str, Any]], access: Access
) -> tuple[ChangeRequest, list[int], list[dict[str, Any]]]:
    """What a batch asks for, in the order of its rows; which row each came from; and what is rejected."""
    wanted: list[WantedSubscription | str] = []
    places: list[int] = []
    rejected: list[dict[str, Any]] = []
    for row, content in enumerate(rows):
        try:
            consumer = checked_name(_text(content, "consumer"), "a consumer")
            _own(access, consumer)
            name = checked_name(_text(content, "name"), "a subscription")
            if content.get("delete"):
                wanted.append(subscription_id(consumer, name))
            else:
                wanted.append(wanted_subscription(consumer, name, content))
            places.append(row)
        except RangecastError as error:
            rejected.append({"row": row, "id": None, "reason": str(error)})
    return ChangeRequest(wanted, single=False), places, rejected


async def test_condition(request: Request) -> Response:
    r"""Explain what a condition does to sample events; nothing is stored.

    The answer says how the condition was understood, of how many boxes it consists, which events match, by
    row, and why. At most 1,000 events are tested at once, and fewer of a long condition.

    400: the body cannot be read
    413: there are more than 1,000 events, the explanations would be too long, or the body is longer than the
        limit `body_bytes`
    422: the condition cannot be read; `position` says where

    body: {"condition": "price < 10", "events": [{"price": 9}]}
    answer: {"condition": "price < 10", "boxes": 1, "matches": [0], "explanation": [{"row": 0,
        "matches": true, "text": "subscription 1 matches\n  yes  price < 10: 9"}], "rejected": []}
    """
    _, space, _ = allowed(request, "subscribe")
    raw = await read_body(request, space.limits)
    content = await run_beside(len(raw), decoded_object, raw)
    condition = _text(content, "condition")
    events = content.get("events", [])
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise BrokerError("events must be a list of JSON objects")
    if len(events) > _MOST_TEST_EVENTS:
        raise TooLargeError(f"at most {_MOST_TEST_EVENTS:,} events are tested at once, got {len(events):,}")
    return Json(await asyncio.to_thread(tested, space.schema, condition, events))


def tested(schema: Schema, condition: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The condition as it was understood, and for each event whether it matches and why."""
    # each event but the first reads the condition again, and each predicate shows a value of the event
    letters = len(condition) * max(0, len(events) - 1)
    letters += (1 + len(_JOINING.findall(condition))) * len(msgspec.json.encode(events))
    if letters > _MOST_TEST_LETTERS:
        raise TooLargeError(
            f"explaining these events would take {letters:,} letters, and at most {_MOST_TEST_LETTERS:,} are "
            "written at once: test fewer or shorter events, or a shorter condition"
        )
    own = bare_schema(schema)
    understood = parse(condition, own)
    subs = Subscriptions.parse(own, {1: condition}, remarks=False)
    index = open_index("scan", own)
    index.insert(subs)
    matches, explanations, rejected = [], [], []
    for row, event in enumerate(events):
        received = Events.from_rows(own, [event], on_error="collect")
        if received.rejected:
            rejected.append({"row": row, "reason": received.rejected[0].reason})
            continue
        explanation = index.explain(1, received)
        if explanation.matches:
            matches.append(row)
        explanations.append({"row": row, "matches": bool(explanation.matches), "text": str(explanation)})
    return {
        "condition": str(understood), "boxes": subs.n_boxes, "matches": matches, "explanation": explanations,
        "rejected": rejected,
    }  # fmt: skip


def bare_schema(schema: Schema) -> Schema:
    """The same attributes with dictionaries of their own, so that a try leaves no words behind."""
    return Schema.from_dict(schema.to_dict())


def _wanted(consumer: str, name: str, raw: bytes) -> WantedSubscription:
    return wanted_subscription(consumer, name, decoded_object(raw))


def wanted_subscription(consumer: str, name: str, content: dict[str, Any]) -> WantedSubscription:
    """A subscription from a JSON object."""
    condition = _text(content, "condition")
    payload = content.get("payload")
    if payload is not None and len(msgspec.json.encode(payload, enc_hook=str)) > _MOST_PAYLOAD:
        raise TooLargeError(f"a payload may have {_MOST_PAYLOAD:,} bytes of JSON")
    seconds = ttl_seconds(content.get("ttl"))
    expires = 0 if seconds is None else int((time.time() + seconds) * 1_000_000)
    return WantedSubscription(subscription_id(consumer, name), condition, expires, payload)


def ttl_seconds(ttl: Any) -> float | None:
    """How long a subscription lasts; None for ever.

    >>> ttl_seconds("2h"), ttl_seconds(30), ttl_seconds("1.5m"), ttl_seconds(None)
    (7200.0, 30.0, 90.0, None)
    """
    if ttl is None:
        return None
    found = (
        _TTL.fullmatch(str(ttl).strip())
        if isinstance(ttl, str | int | float) and not isinstance(ttl, bool)
        else None
    )
    seconds = 0.0 if found is None else float(found[1]) * _UNITS[found[2]]
    if not 0 < seconds < 1e9:
        raise BrokerError(f"ttl must be seconds or a number with ms, s, m, h or d, such as '2h', got {ttl!r}")
    return seconds


def _text(content: dict[str, Any], key: str) -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise BrokerError(
            f"{key} must be a string, got {'nothing' if value is None else type(value).__name__}"
        )
    return value


def _own(access: Access, consumer: str) -> None:
    try:
        access.check("subscribe", None, consumer)
    except ForbiddenError:
        raise ForbiddenError(f"the token {access.name!r} is not for the consumer {consumer!r}") from None


def _batch_rows(raw: bytes, kind: str, most: int) -> list[dict[str, Any]]:
    table: pa.Table | None = None
    if kind in ARROW_TYPES:
        table = arrow_table(raw, most)
    elif kind in PARQUET_TYPES:
        table = parquet_table(raw, most)
    if table is not None:
        rows = rows_of(table, most)
        for row in rows:
            if isinstance(row.get("payload"), str):
                with contextlib.suppress(msgspec.MsgspecError):  # a payload may be a plain string
                    row["payload"] = msgspec.json.decode(row["payload"])
        return rows
    out: list[dict[str, Any]] = []
    for text in split_texts(raw, kind):
        try:
            content = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            content = None
        out.append(content if isinstance(content, dict) else {})
    return out


# Requests with events: publish them, or match them at once.


async def publish_events(request: Request) -> Response:
    """Publish events: they are logged, matched and delivered.

    The answer comes when the events are on disk: `first` and `last` are their sequence numbers, and null if
    all were rejected. A rejected event has its row, from 0, and a reason; the others are published. With
    `Idempotency-Key`, of up to 256 letters, a repeated request publishes nothing: its answer is the first one
    with `"repeated": true`.

    400: the body is not JSON, or not what its content type says
    413: the body or an event is longer than `body_bytes` or `line_bytes`, or has more events than
        `request_events`
    415: the content type or the encoding is not one that is read
    422: the idempotency key was used for another body
    429: the limit `events_per_second` or `backlog` is reached; `Retry-After` says when to try again

    header: Idempotency-Key
    accepts: application/json, application/x-ndjson, application/vnd.apache.arrow.stream
    body: [{"symbol": "IBM", "price": 9}, {"price": "nine"}]
    answer: {"first": 1, "last": 1, "rejected": [{"row": 1, "reason":
        "'price' is an int, got the string 'nine'"}]}
    """
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
    """Return the subscriptions that events match; nothing is logged or delivered.

    For each event the ids that it matches, sorted; null for one that was rejected. Ids without a slash, which
    belong to no consumer, are among them. Nothing is logged, and nobody is told.

    400: the body is not JSON, or not what its content type says
    413: the body or an event is longer than `body_bytes` or `line_bytes`, or has more events than
        `request_events`, or they match more often than `match_pairs`: send fewer at a time
    415: the content type or the encoding is not one that is read

    accepts: application/json, application/x-ndjson, application/vnd.apache.arrow.stream
    body: [{"symbol": "IBM", "price": 9}, {"price": 30}]
    answer: {"matches": [["alice/cheap"], []], "version": 3, "rejected": []}
    """
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


# Answers as JSON, and what handlers ask of a request.

LARGE = 64 * 1024  # bytes from which on a body is read beside the event loop
T = TypeVar("T")


class Json(Response):
    """An answer in JSON."""

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        raw = msgspec.json.encode(content, enc_hook=str)
        super().__init__(raw, status, dict(headers or {}), media_type="application/json")


def broker_of(request: HTTPConnection) -> Broker:
    """The broker that serves a request."""
    broker: Broker = request.app.state.broker
    return broker


def allowed(request: HTTPConnection, scope: str, consumer: str | None = None) -> tuple[Broker, Space, Access]:
    """Broker, space and access of a request that needs a scope."""
    broker = broker_of(request)
    name = request.path_params["space"]
    access = broker.access(request.headers.get("authorization"))
    access.check(scope, name, consumer)
    return broker, broker.space(name), access


def consumer_of(request: HTTPConnection) -> str:
    """The consumer that a request names."""
    return checked_name(request.path_params["consumer"], "a consumer")


def checked_name(name: str, what: str) -> str:
    """A name that may be used; BrokerError otherwise."""
    if not NAME.fullmatch(name):
        raise BrokerError(
            f"{what} must be named by up to 128 letters, digits and ._~:@+-, and begin with a letter "
            f"or digit, got {name[:60]!r}"
        )
    return name


def whole_number(request: HTTPConnection, name: str, default: int, low: int, high: int) -> int:
    """A parameter of the address that must be a whole number."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or not low <= int(text) <= high:
        raise BrokerError(f"{name} must be a whole number from {low} to {high}, got {text[:40]!r}")
    return int(text)


async def run_beside(size: int, step: Callable[..., T], *arguments: Any) -> T:
    """The result of a step whose work grows with a body of so many bytes: a large one is done in a thread, so
    that streams and other requests go on."""
    if size > LARGE:
        return await asyncio.to_thread(step, *arguments)
    return step(*arguments)


def decoded_object(raw: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    try:
        content = msgspec.json.decode(raw) if raw else {}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BrokerError(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BrokerError(f"the body must be a JSON object, got {type(content).__name__}")
    return content
