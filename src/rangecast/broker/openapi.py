"""The interface in OpenAPI's words, made from the routes and the docstrings of their handlers."""

from __future__ import annotations

import re
from typing import Any

from rangecast import __version__
from rangecast.broker.app import ROUTES

_PARAMETERS: dict[str, tuple[tuple[str, str], ...]] = {
    "list_subscriptions": (("after", "string"), ("limit", "integer")),
    "stream_messages": (("from", "string"), ("ticket", "string")),
    "poll_messages": (("max", "integer"), ("wait", "integer"), ("from", "string")),
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
_KINDS = {
    "stream_messages": "text/event-stream",
    "show_metrics": "text/plain",
    "show_page": "text/html",
}


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
            "summary": (handler.__doc__ or "").strip().splitlines()[0],
            "parameters": parameters,
            "responses": {
                "200": {"description": "done", "content": {_KINDS.get(name, "application/json"): {}}},
                "default": {
                    "description": "refused",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        }
        if name in _BODIES:
            operation["requestBody"] = {"required": True, "content": {kind: {} for kind in _BODIES[name]}}
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
        "paths": paths,
        "components": {
            "schemas": {"Error": error},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
