"""The interface in the words of OpenAPI, made from the routes, their docstrings and `reference.py`.

python -m rangecast.broker.openapi docs/broker-api.md     writes the same into the page, between its marks
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from rangecast import __version__
from rangecast.broker.app import ROUTES
from rangecast.broker.reference import COMMON, NAMES, NOTES, RouteNote

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


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(with_reference(place.read_text()))
