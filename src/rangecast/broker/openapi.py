"""The interface in the words of OpenAPI, made from the routes, their docstrings and `openapi.py`.

python -m rangecast.broker.openapi docs/broker-api.md     writes the same into the page, between its marks
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from rangecast import __version__
from rangecast.broker.app import ROUTES

_PARAMETERS: dict[str, tuple[tuple[str, str], ...]] = {
    "list_subscriptions": (("after", "string"), ("limit", "integer")),
    "stream_messages": (("from", "string"), ("ticket", "string")),
    "poll_messages": (("max", "integer"), ("wait", "integer"), ("from", "string"), ("ticket", "string")),
    "list_consumers": (("limit", "integer"),),
}
_EVENTS = ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")
_BODIES: dict[str, tuple[str, ...]] = {
    "put_subscription": ("application/json",),
    "batch_subscriptions": (
        "application/x-ndjson", "application/json", "application/vnd.apache.parquet",
        "application/vnd.apache.arrow.stream",
    ),
    "test_condition": ("application/json",),
    "publish_events": _EVENTS,
    "match_events": _EVENTS,
    "acknowledge": ("application/json",),
    "put_webhook": ("application/json",),
    "put_schema": ("application/json",),
}  # fmt: skip
_HEADERS: dict[str, tuple[str, ...]] = {
    "put_subscription": ("If-Match",),
    "delete_subscription": ("If-Match",),
    "publish_events": ("Idempotency-Key",),
    "stream_messages": ("Last-Event-ID",),
}
_OPEN = ("show_health", "show_readiness", "show_openapi", "show_page")
_BEGIN = "<!-- written by python -m rangecast.broker.openapi -->"
_END = "<!-- end of what is written -->"
_KINDS = {
    "stream_messages": "text/event-stream",
    "show_metrics": "text/plain",
    "show_page": "text/html",
}


def summary(handler: Any) -> str:
    """The summary of a route: the first line of its docstring."""
    return str(handler.__doc__).strip().splitlines()[0]


def _responses(name: str) -> dict[str, Any]:
    note = NOTES[name]
    done: dict[str, Any] = {} if note.answer is None else {"example": note.answer}
    out: dict[str, Any] = {
        "200": {"description": "done", "content": {_KINDS.get(name, "application/json"): done}}
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, meaning in sorted(note.statuses.items()):
        out[str(status)] = {"description": meaning, "content": error}
    return out


def example_path(path: str, note: RouteNote) -> str:
    """What the example of a route asks for."""
    return note.path or path.format(**NAMES)


def page() -> str:
    """The description of every route, for docs/broker-api.md."""
    out: list[str] = []
    for method, path, handler in ROUTES:
        note = NOTES[handler.__name__]
        out += [f"### `{method} {path}`", "", f"{summary(handler)} {note.text}", ""]
        own = {status: said for status, said in sorted(note.statuses.items()) if COMMON.get(status) != said}
        if own:
            out += [f"- {status}: {said}" for status, said in own.items()] + [""]
        if note.answer is None:
            continue
        asked = [f"{method} {example_path(path, note)}"]
        asked += [] if note.body is None else [json.dumps(note.body)]
        out += ["```", *asked, "", json.dumps(note.answer), "```", ""]
    return "\n".join(out).strip()


def with_reference(text: str) -> str:
    """A page with the reference between its marks."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + "\n\n" + page() + "\n\n" + _END + rest.split(_END)[1]


def document() -> dict[str, Any]:
    """The document of all routes."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler in ROUTES:
        name = handler.__name__
        parameters: list[dict[str, Any]] = [
            {"name": found, "in": "path", "required": True, "schema": {"type": "string"}}
            for found in re.findall(r"{(\w+)}", path)
        ]
        parameters += [
            {"name": key, "in": "query", "schema": {"type": kind}} for key, kind in _PARAMETERS.get(name, ())
        ]
        parameters += [
            {"name": key, "in": "header", "schema": {"type": "string"}} for key in _HEADERS.get(name, ())
        ]
        operation: dict[str, Any] = {
            "operationId": name,
            "summary": summary(handler),
            "description": NOTES[name].text,
            "parameters": parameters,
            "responses": _responses(name),
        }
        if name in _BODIES:
            content: dict[str, Any] = {kind: {} for kind in _BODIES[name]}
            content["application/json"] = {"example": NOTES[name].body}
            operation["requestBody"] = {"required": True, "content": content}
        if name in _OPEN:
            operation["security"] = []
        paths.setdefault(path, {})[method.lower()] = operation
    error = {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {
                    "type": {"type": "string"},
                    "message": {"type": "string"},
                    "position": {"type": "integer"},
                },
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "rangecast", "version": __version__},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": error},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


# The description of each request, beside its summary: its answer, its limits, its statuses, and an example.
#
# `openapi.py` puts it into the document that a broker gives out, and `page` into docs/broker-api.md. The
# examples are of one story, which a test tells to a broker in the order of the routes: a space with `price`,
# `symbol` and `change`, and a consumer that is called alice.

COMMON = {
    401: "no token was given, or one that is not known",
    403: "the token does not allow it",
    404: "there is no such space",
    503: "the broker is starting or ending, or its disk refuses",
}
"""What any request to a space may be answered with."""
_CHANGES = {
    413: "the body is longer than the limit `body_bytes`",
    429: "the limit `changes_per_second` is reached; `Retry-After` says when to try again",
}
_EVENT_ERRORS = {
    400: "the body is not JSON, or not what its content type says",
    413: "the body or an event is longer than `body_bytes` or `line_bytes`, or has more events than "
    "`request_events`",
    415: "the content type or the encoding is not one that is read",
}
_CONNECTIONS = {
    400: "the name, `from` or `Last-Event-ID` cannot be read",
    429: "the limit `connections` or `consumer_connections` is reached; `Retry-After` says when to try again",
}
_NAME = {400: "the name of the consumer cannot be one"}


class RouteNote(NamedTuple):
    """The description of one route."""

    text: str
    statuses: dict[int, str] = {}  # noqa: RUF012
    """Besides 200: the status, and what it means here."""
    path: str = ""
    """What an example asks for; the route's own path with these names where it is empty."""
    body: Any = None
    answer: Any = None
    """What the broker answers to the example; None where that is not JSON."""
    kind: str = "application/json"


NAMES = {"space": "main", "consumer": "alice", "name": "cheap"}
NOTES: dict[str, RouteNote] = {
    "put_subscription": RouteNote(
        "`condition` is required. `ttl` is a number of seconds, or a number with `ms`, `s`, `m`, `h` or "
        "`d`; without it the subscription lasts until it is deleted. `payload` is any JSON of up to 65,536"
        " bytes, and is kept with the subscription. The answer comes when the change is on disk and in the"
        " index: every event that is published afterwards is matched against it. With `If-Match` the "
        "change is made only if the subscription has the state that `ETag` named, or with `*` if there is "
        "one.",
        {
            400: "a name, `ttl` or the body cannot be read",
            **COMMON,
            403: "the token is not for this consumer, or the limit `subscriptions`, "
            "`consumer_subscriptions`, `consumer_expressions` or `boxes` is reached",
            412: "`If-Match` names another state",
            **_CHANGES,
            422: "the condition cannot be read; `position` says where",
        },
        body={"condition": "symbol = 'IBM' and price < 10", "payload": {"mail": "alice@example.org"}},
        answer={"id": "alice/cheap", "version": 1},
    ),
    "get_subscription": RouteNote(
        "The answer has `expires`, in seconds since 1970, if the subscription has a `ttl`, and `payload` "
        "if it has one. `ETag` stands for its state.",
        {**_NAME, **COMMON, 404: "there is no such space or subscription"},
        answer={
            "id": "alice/cheap",
            "name": "cheap",
            "condition": "symbol = 'IBM' and price < 10",
            "version": 1,
            "payload": {"mail": "alice@example.org"},
        },
    ),
    "delete_subscription": RouteNote(
        "Events that were published before the answer may still be delivered for it, to consumers that are "
        "behind. `If-Match` works as for `PUT`.",
        {
            **_NAME,
            **COMMON,
            404: "there is no such space or subscription",
            412: "`If-Match` names another state",
            429: _CHANGES[429],
        },
        answer={"id": "alice/cheap", "version": 2},
    ),
    "list_subscriptions": RouteNote(
        "`limit` is 100 unless it is given, and at most 10,000. If there are more, the answer has `after`:"
        " send it with the next request.",
        {400: "the name or `limit` cannot be read", **COMMON},
        path="/v1/main/consumers/alice/subscriptions?limit=10",
        answer={"subscriptions": []},
    ),
    "batch_subscriptions": RouteNote(
        "A row has `consumer`, `name` and `condition`, and may have `ttl` and `payload`; a row with "
        '`"delete": true` deletes. Rows that cannot be accepted are listed in `rejected`, and count from '
        "0; the others are one change, which is made as a whole. Rows are done in their order, so of several "
        "with the same consumer and name the last one counts. In Parquet and Arrow a payload is a string of "
        "JSON.",
        {
            400: "the body cannot be read at all",
            **COMMON,
            403: "the token does not allow it, or the limit `subscriptions`, `consumer_subscriptions` or "
            "`consumer_expressions` is reached",
            **_CHANGES,
        },
        body=[
            {"consumer": "alice", "name": "cheap", "condition": "price < 10"},
            {"consumer": "alice", "name": "odd", "condition": "price <"},
        ],
        answer={
            "deleted": 0,
            "accepted": 1,
            "rejected": [
                {
                    "row": 1,
                    "id": "alice/odd",
                    "reason": "column 8: expected a value, got the end of the text\n  price <\n         ^",
                }
            ],
            "version": 3,
        },
    ),
    "test_condition": RouteNote(
        "The answer says how the condition was understood, of how many boxes it consists, which events "
        "match, by row, and why. At most 1,000 events are tested at once.",
        {
            400: "the body cannot be read",
            **COMMON,
            413: "there are more than 1,000 events, or the body is longer than the limit `body_bytes`",
            422: "the condition cannot be read; `position` says where",
        },
        body={"condition": "price < 10", "events": [{"price": 9}]},
        answer={
            "condition": "price < 10",
            "boxes": 1,
            "matches": [0],
            "explanation": [
                {"row": 0, "matches": True, "text": "subscription 1 matches\n  yes  price < 10: 9"}
            ],
            "rejected": [],
        },
    ),
    "publish_events": RouteNote(
        "The answer comes when the events are on disk: `first` and `last` are their sequence numbers, and "
        "null if all were rejected. A rejected event has its row, from 0, and a reason; the others are "
        "published. With `Idempotency-Key`, of up to 256 letters, a repeated request publishes nothing: "
        'its answer is the first one with `"repeated": true`.',
        {
            **_EVENT_ERRORS,
            **COMMON,
            422: "the idempotency key was used for another body",
            429: "the limit `events_per_second` or `backlog` is reached; `Retry-After` says when to try "
            "again",
        },
        body=[{"symbol": "IBM", "price": 9}, {"price": "nine"}],
        answer={
            "first": 1,
            "last": 1,
            "rejected": [{"row": 1, "reason": "'price' is an int, got the string 'nine'"}],
        },
    ),
    "match_events": RouteNote(
        "For each event the ids that it matches, sorted; null for one that was rejected. Ids without a "
        "slash, which belong to no consumer, are among them. Nothing is logged, and nobody is told.",
        {
            **_EVENT_ERRORS,
            413: _EVENT_ERRORS[413] + ", or they match more often than `match_pairs`: send fewer at a time",
            **COMMON,
        },
        body=[{"symbol": "IBM", "price": 9}, {"price": 30}],
        answer={"matches": [["alice/cheap"], []], "version": 3, "rejected": []},
    ),
    "stream_messages": RouteNote(
        "The stream begins after `Last-Event-ID`, at `from`, or after the cursor, and stays open: `match`,"
        " and the notices `caught_up`, `progress` every 5 seconds, `gap` and `expired`. A connection that "
        "takes nothing for 30 seconds is closed; what it missed is sent when it comes back. Browsers, "
        "which can send no token here, give a `ticket`.",
        {**COMMON, **_CONNECTIONS},
        path="/v1/main/consumers/alice/stream?from=1",
    ),
    "poll_messages": RouteNote(
        "At most `max` messages are returned: 100 unless it is given, and no more than 10,000. If there is"
        " none, the request waits for `wait` seconds: 0 unless it is given, and no more than 60. `next` is"
        " the sequence number to go on with, as `from`; after an acknowledgement `from` is not needed. "
        "`notices` tells of gaps and of subscriptions that have expired.",
        {**COMMON, **_CONNECTIONS, 400: "the name, `max`, `wait` or `from` cannot be read"},
        path="/v1/main/consumers/alice/messages?max=10&from=1",
        answer={
            "messages": [
                {
                    "sequence": 1,
                    "event": {"symbol": "IBM", "price": 9},
                    "subscriptions": ["cheap"],
                    "version": 3,
                }
            ],
            "notices": [],
            "next": 2,
        },
    ),
    "acknowledge": RouteNote(
        "The answer comes when the cursor is on disk, and says where it is: a number below it changes "
        "nothing. A connection without `from` begins after it.",
        {400: "`sequence` is not the number of an event that was published", **COMMON},
        body={"sequence": 1},
        answer={"sequence": 1},
    ),
    "give_ticket": RouteNote(
        "A ticket opens one stream or WebSocket of this consumer, within half a minute, and is used up by "
        "that.",
        {**_NAME, **COMMON},
        answer={"ticket": "..."},
    ),
    "put_webhook": RouteNote(
        "`url` is an address of http or https, without a password, and `secret`, of at least 16 letters, "
        "signs what is sent. It replaces the webhook that the consumer has. See [webhooks](#webhooks).",
        {
            400: "the address or the secret cannot be used",
            **COMMON,
            403: "the token does not allow it, or the broker sends to no webhooks",
        },
        body={"url": "https://example.org/hook", "secret": "at least 16 letters"},
        answer={"url": "https://example.org/hook", "dead_letters": 0},
    ),
    "get_webhook": RouteNote(
        "`url` is null if there is none. The secret is never shown.",
        {**_NAME, **COMMON},
        answer={"url": "https://example.org/hook", "dead_letters": 0},
    ),
    "delete_webhook": RouteNote(
        "The cursor stays, and so do the dead letters.", {**_NAME, **COMMON}, answer={"consumer": "alice"}
    ),
    "list_dead_letters": RouteNote(
        "The last 1,000 messages that the webhook did not take in 8 attempts, oldest first.",
        {**_NAME, **COMMON},
        answer={"messages": []},
    ),
    "clear_dead_letters": RouteNote("They are gone for good.", {**_NAME, **COMMON}, answer={"messages": []}),
    "get_consumer": RouteNote(
        "`acknowledged` is the cursor, null if there is none; `unacknowledged` counts the events after it,"
        " and `behind` those that were not sent yet to the connection that is furthest. A connection is "
        "live, behind or stalled.",
        {**_NAME, **COMMON},
        answer={
            "consumer": "alice",
            "subscriptions": 1,
            "expressions": 0,
            "acknowledged": 1,
            "unacknowledged": 0,
            "behind": 0,
            "connections": [],
        },
    ),
    "delete_consumer": RouteNote(
        "Nothing of it is left. Events stay in the log, as they concern others.",
        {**_NAME, **COMMON},
        answer={"consumer": "alice", "deleted": 1, "version": 4},
    ),
    "list_consumers": RouteNote(
        "Each is described as by a request for it alone. `limit` is 100 unless it is given, and at most "
        "10,000.",
        {400: "`limit` cannot be read", **COMMON},
        path="/v1/main/consumers?limit=10",
        answer={"consumers": []},
    ),
    "put_schema": RouteNote(
        "Makes the space if there is none of this name; a space keeps its schema. `object_key` names the "
        "attribute that says which [object](broker.md#objects-that-enter-and-leave) an event is a state "
        "of.",
        {
            400: "the name of the space or the body cannot be read",
            **COMMON,
            409: "the space has another schema or object key",
            422: "the schema cannot be used",
        },
        path="/v1/ticks/schema",
        body={"attributes": {"price": {"type": "int"}}},
        answer={"space": "ticks", "attributes": {"price": {"type": "int"}}},
    ),
    "get_schema": RouteNote(
        "Attributes in the order of the schema, each with its type and what belongs to it.",
        COMMON,
        path="/v1/ticks/schema",
        answer={"space": "ticks", "attributes": {"price": {"type": "int"}}},
    ),
    "list_spaces": RouteNote(
        "Only those that the token is for.",
        {status: COMMON[status] for status in (401, 403, 503)},
        answer={"spaces": ["main", "ticks"]},
    ),
    "show_status": RouteNote(
        "For each space: version, subscriptions, consumers, the first sequence number in the log and the "
        "next one, bytes and segments of the log, events that wait to be matched, and connections by "
        "state.",
        {status: COMMON[status] for status in (401, 403)},
    ),
    "show_health": RouteNote(
        "Needs no token, and is answered while the spaces are opened.", answer={"status": "ok"}
    ),
    "show_readiness": RouteNote(
        "Needs no token. `failed` names the spaces whose disk refuses.",
        {503: "the spaces are being opened, the broker is ending, or a disk refuses; `reason` says which"},
        answer={"ready": True, "failed": []},
    ),
    "show_metrics": RouteNote(
        "The names begin with `rangecast_`, and each figure has its space as a label.",
        {status: COMMON[status] for status in (401, 403)},
    ),
    "show_openapi": RouteNote("Needs no token."),
    "show_page": RouteNote("Needs no token itself; it asks for one if the broker has tokens."),
}

if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(with_reference(place.read_text()))
