"""Requests about subscriptions: subscribe, replace, delete, list, batch, test."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import Any

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from rangecast.broker.access import Access
from rangecast.broker.answers import (
    Json,
    allowed,
    checked_name,
    consumer_of,
    decoded_object,
    run_beside,
    whole_number,
)
from rangecast.broker.bodies import (
    ARROW_TYPES,
    PARQUET_TYPES,
    media_type,
    read_body,
    split_texts,
)
from rangecast.broker.changes import ChangeRequest, WantedSubscription
from rangecast.broker.directory import subscription_id
from rangecast.broker.errors import BrokerError, ForbiddenError, NotFoundError, TooLargeError
from rangecast.broker.space import Space
from rangecast.broker.tables import arrow_table, parquet_table, rows_of
from rangecast.engine import open_index
from rangecast.errors import RangecastError
from rangecast.language import parse
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema

_TTL = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_MOST_TEST_EVENTS = 1_000
_MOST_PAYLOAD = 65_536


async def put_subscription(request: Request) -> Response:
    """Add a subscription, or replace the one of this name."""
    consumer = consumer_of(request)
    broker, space, access = allowed(request, "subscribe", consumer)
    name = checked_name(request.path_params["name"], "a subscription")
    raw = await read_body(request, space.limits)
    broker.pacer.spend(access.name, "changes_per_second", space.limits.changes_per_second, 1)
    want = await run_beside(len(raw), _wanted, consumer, name, raw)
    # its condition is read by the thread that makes the change: a long one takes seconds
    change = ChangeRequest([want], if_match=request.headers.get("if-match"))
    answer = await asyncio.wrap_future(space.changer.submit(change))
    try:
        state = await asyncio.to_thread(space.changer.describe, want.id)
    except NotFoundError:  # it was deleted meanwhile
        state = {"etag": ""}
    return Json({"id": want.id, "version": answer["version"]}, headers={"ETag": state["etag"]})


async def get_subscription(request: Request) -> Response:
    """Return one subscription."""
    consumer = consumer_of(request)
    _, space, _ = allowed(request, "subscribe", consumer)
    found = await asyncio.to_thread(
        space.changer.describe, subscription_id(consumer, request.path_params["name"])
    )
    tag = found.pop("etag")
    return Json(found, headers={"ETag": tag})


async def delete_subscription(request: Request) -> Response:
    """Delete a subscription."""
    consumer = consumer_of(request)
    broker, space, access = allowed(request, "subscribe", consumer)
    broker.pacer.spend(access.name, "changes_per_second", space.limits.changes_per_second, 1)
    id = subscription_id(consumer, request.path_params["name"])
    change = ChangeRequest([id], if_match=request.headers.get("if-match"))
    answer = await asyncio.wrap_future(space.changer.submit(change))
    return Json({"id": id, "version": answer["version"]})


async def list_subscriptions(request: Request) -> Response:
    """List the subscriptions of a consumer by name, a page at a time."""
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
    """Add, replace and delete many subscriptions, sent as JSON lines, JSON, Parquet or Arrow."""
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
    """Explain what a condition does to sample events; nothing is stored."""
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
