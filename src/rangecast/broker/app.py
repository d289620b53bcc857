"""The HTTP interface: routes, errors as JSON, and what each request may do.

    requests.py   subscribe, replace, delete, list, batch, test; publish, match
    delivery.py   stream, WebSocket, long poll, acknowledge, tickets, webhooks
    app.py        schemas, spaces, health, metrics, status, the page, OpenAPI

The docstring of a handler is the description of its request, for OpenAPI and docs/broker-api.md; openapi.py
says what stands in it.

Without tokens, whoever reaches the broker may do everything, and a browser on this machine reaches it for
every page that it shows. `PageGuard` lets through what programs send, the broker's own page, and the pages of
the origins that the settings name.

An error is `{"error": {"type": "LimitError", "message": "..."}}` with its status; a condition that cannot
be read has `position` as well.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from rangecast.broker import delivery
from rangecast.broker import requests as publishing
from rangecast.broker.access import (
    BrokerError,
    BusyError,
    ForbiddenError,
    SpaceLimits,
    UnauthorizedError,
    UnavailableError,
)
from rangecast.broker.bodies import read_body
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.requests import Json, allowed, broker_of, decoded_object, run_beside, whole_number
from rangecast.errors import (
    CapacityError,
    LanguageError,
    OptionError,
    RangecastError,
    SchemaError,
    StorageError,
)
from rangecast.types.schema import Schema

# Requests about the broker itself: spaces and schemas, health, metrics, status, OpenAPI, the page.

_CONTENT = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def put_schema(request: Request) -> Response:
    """Make a space with a schema; if it has the same one already, nothing changes.

    Makes the space if there is none of this name; a space keeps its schema. `object_key` names the attribute
    that says which [object](broker.md#objects-that-enter-and-leave) an event is a state of.

    400: the name of the space or the body cannot be read
    409: the space has another schema or object key
    422: the schema cannot be used

    example: /v1/ticks/schema
    body: {"attributes": {"price": {"type": "int"}}}
    answer: {"space": "ticks", "attributes": {"price": {"type": "int"}}}
    """
    broker = broker_of(request)
    name = request.path_params["space"]
    broker.access(request.headers.get("authorization")).check("admin", name)
    raw = await read_body(request, SpaceLimits())
    content = await run_beside(len(raw), decoded_object, raw)
    entries = content.get("attributes")
    if not isinstance(entries, dict) or not entries:
        raise BrokerError('a schema must be {"attributes": {NAME: {"type": ...}}}')
    try:
        schema = await run_beside(len(raw), Schema.from_dict, entries)
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"the schema cannot be read: {error!r}") from None
    key = content.get("object_key")
    if key is not None and not isinstance(key, str):
        raise BrokerError(f"object_key must name an attribute, got {key!r}")
    broker.check_open()
    await broker.make_space(name, schema, key)
    answer = {"space": name, "attributes": broker.space(name).schema.to_dict()}
    return Json(answer if key is None else {**answer, "object_key": key})


async def get_schema(request: Request) -> Response:
    """Return the schema of a space.

    Attributes in the order of the schema, each with its type and what belongs to it.

    example: /v1/ticks/schema
    answer: {"space": "ticks", "attributes": {"price": {"type": "int"}}}
    """
    _, space, _ = allowed(request, "read")
    return Json({"space": space.name, "attributes": space.schema.to_dict()})


async def list_spaces(request: Request) -> Response:
    """List the spaces that the sender may use.

    Only those that the token is for.

    503: the broker is starting or ending, or its disk refuses

    answer: {"spaces": ["main", "ticks"]}
    """
    broker = broker_of(request)
    access = broker.access(request.headers.get("authorization"))
    access.check("read")
    broker.check_open()
    names = [name for name in sorted(broker.spaces) if access.may_see(name)]
    return Json({"spaces": names})


async def list_consumers(request: Request) -> Response:
    """List the consumers of a space with their states, those with connections first.

    Each is described as by a request for it alone. `limit` is 100 unless it is given, and at most 10,000.

    400: `limit` cannot be read

    query: limit integer
    example: /v1/main/consumers?limit=10
    answer: {"consumers": []}
    """
    _, space, _ = allowed(request, "read")
    limit = whole_number(request, "limit", 100, 1, 10_000)
    return Json({"consumers": space.list_consumers(limit)})


async def show_status(request: Request) -> Response:
    """Return counts and sizes of the spaces that the sender may use.

    For each space: version, subscriptions, consumers, the first sequence number in the log and the next one,
    bytes and segments of the log, events that wait to be matched, and connections by state.
    """
    broker = broker_of(request)
    access = broker.access(request.headers.get("authorization"))
    access.check("read")
    return Json(broker.status(access))


async def show_health(_: Request) -> Response:
    """Say that the process is alive.

    Needs no token, and is answered while the spaces are opened.

    answer: {"status": "ok"}
    """
    return Json({"status": "ok"})


async def show_readiness(request: Request) -> Response:
    """Say whether requests are served.

    Needs no token. `failed` names the spaces whose disk refuses.

    503: the spaces are being opened, the broker is ending, or a disk refuses; `reason` says which

    answer: {"ready": true, "failed": []}
    """
    broker = broker_of(request)
    failed = {name: space.log.failed for name, space in broker.spaces.items() if space.log.failed}
    opening = broker.opening
    if opening is not None:
        reason = opening.describe()
    else:
        reason = "the broker is ending" if broker.ending else "; ".join(map(str, failed.values()))
    content = {"ready": not reason, "failed": sorted(failed)}
    if not reason:
        return Json(content)
    return Json({**content, "reason": reason}, 503, {"Retry-After": "2"})


async def show_metrics(request: Request) -> Response:
    """Return counters in the text format of Prometheus.

    The names begin with `rangecast_`, and each figure has its space as a label.

    returns: text/plain
    """
    broker = broker_of(request)
    access = broker.access(request.headers.get("authorization"))
    access.check("read")
    return Response(broker.measure(access), media_type="text/plain; version=0.0.4")


async def show_openapi(_: Request) -> Response:
    """Return this reference as an OpenAPI document.

    Needs no token.
    """
    from rangecast.broker.openapi import document

    return Json(document())


async def show_page(_: Request) -> Response:
    """Return the page for people.

    Needs no token itself; it asks for one if the broker has tokens.

    returns: text/html
    """
    headers = {"Content-Security-Policy": _CONTENT, "X-Content-Type-Options": "nosniff"}
    return Response(_page(), media_type="text/html; charset=utf-8", headers=headers)


@cache
def _page() -> bytes:
    return resources.files("rangecast.broker").joinpath("page.html").read_bytes()


_log = logging.getLogger("rangecast.broker")
Handler = Callable[[Request], Awaitable[Response]]

CONSUMER = "/v1/{space}/consumers/{consumer}"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("PUT", CONSUMER + "/subscriptions/{name}", publishing.put_subscription),
    ("GET", CONSUMER + "/subscriptions/{name}", publishing.get_subscription),
    ("DELETE", CONSUMER + "/subscriptions/{name}", publishing.delete_subscription),
    ("GET", CONSUMER + "/subscriptions", publishing.list_subscriptions),
    ("POST", "/v1/{space}/subscriptions:batch", publishing.batch_subscriptions),
    ("POST", "/v1/{space}/subscriptions:test", publishing.test_condition),
    ("POST", "/v1/{space}/events", publishing.publish_events),
    ("POST", "/v1/{space}/match", publishing.match_events),
    ("GET", CONSUMER + "/stream", delivery.stream_messages),
    ("GET", CONSUMER + "/messages", delivery.poll_messages),
    ("POST", CONSUMER + "/ack", delivery.acknowledge),
    ("POST", CONSUMER + "/ticket", delivery.give_ticket),
    ("PUT", CONSUMER + "/webhook", delivery.put_webhook),
    ("GET", CONSUMER + "/webhook", delivery.get_webhook),
    ("DELETE", CONSUMER + "/webhook", delivery.delete_webhook),
    ("GET", CONSUMER + "/dead-letters", delivery.list_dead_letters),
    ("DELETE", CONSUMER + "/dead-letters", delivery.clear_dead_letters),
    ("GET", CONSUMER, delivery.get_consumer),
    ("DELETE", CONSUMER, delivery.delete_consumer),
    ("GET", "/v1/{space}/consumers", list_consumers),
    ("PUT", "/v1/{space}/schema", put_schema),
    ("GET", "/v1/{space}/schema", get_schema),
    ("GET", "/v1/spaces", list_spaces),
    ("GET", "/v1/admin/status", show_status),
    ("GET", "/healthz", show_health),
    ("GET", "/readyz", show_readiness),
    ("GET", "/metrics", show_metrics),
    ("GET", "/openapi.json", show_openapi),
    ("GET", "/", show_page),
)
WEBSOCKETS = ((CONSUMER + "/ws", delivery.talk),)


def make_app(broker: Broker) -> Starlette:
    """The ASGI application of a broker."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await broker.start()
        try:
            yield
        finally:
            await broker.stop()

    routes: list[BaseRoute] = [
        Route(path, _guarded(handler), methods=[method]) for method, path, handler in ROUTES
    ]
    routes += [WebSocketRoute(path, handler) for path, handler in WEBSOCKETS]
    middleware = []
    if broker.settings.tokens is None:
        names = _own_names(broker.settings)
        middleware.append(Middleware(PageGuard, names, broker.settings.origins))
    if broker.settings.origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=broker.settings.origins,
                allow_methods=["GET", "PUT", "POST", "DELETE"],
                allow_headers=[
                    "authorization",
                    "content-type",
                    "if-match",
                    "idempotency-key",
                    "last-event-id",
                ],
            )
        )
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=middleware,
        exception_handlers={HTTPException: _not_routed},
    )
    # a path is right or wrong: with an empty name at its end it is not that of a list
    app.router.redirect_slashes = False
    app.state.broker = broker
    return app


class PageGuard:
    """Refuses what a web page of somebody else sends through the browser of a person on this machine.

    A page of another site says where it comes from: its requests have the header Origin, or at least
    Sec-Fetch-Site. A page whose own name was made to lead here (DNS rebinding) is of the same origin for the
    browser, and has a Host that is not ours. Programs send no Origin.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str], origins: Sequence[str]) -> None:
        self._app = app
        self._names = names
        self._origins = frozenset(origin.lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with what is wrong."""
        if scope["type"] in ("http", "websocket"):
            try:
                self._check(scope)
            except BrokerError as error:
                await error_answer(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            if name in _ASKED:
                headers.setdefault(name, []).append(value.decode("latin-1"))
        hosts = headers.get(b"host", [])
        origins = headers.get(b"origin", [])
        if len(hosts) > 1 or len(origins) > 1:
            raise BrokerError("a request must have one Host, and at most one Origin")
        host = _authority(hosts[0]) if hosts else None
        if hosts or origins or scope["http_version"] != "1.0":
            if host is None:
                raise BrokerError(f"a request must have a Host such as localhost:8080, got {hosts or 'none'}")
            if host[0] not in self._names:
                raise ForbiddenError(
                    f"the Host of a request must be one of {', '.join(sorted(self._names))}, got "
                    f"{hosts[0][:100]!r}; start the broker with --host-name for others, or with --tokens"
                )
        if origins:
            if not self._known(origins[0].lower(), host):
                raise ForbiddenError(
                    "the Origin of a request must be that of its Host, or one that --origin names, got "
                    f"{origins[0][:100]!r}"
                )
        elif headers.get(b"sec-fetch-site", [""])[0] in ("cross-site", "same-site"):
            # a link to us may be followed; images, scripts and frames of other pages carry no Origin
            opened = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
            if not opened or headers.get(b"sec-fetch-dest") != ["document"]:
                raise ForbiddenError(
                    "pages of other origins may call this broker only if --origin names them"
                )

    def _known(self, origin: str, host: tuple[str, int | None] | None) -> bool:
        if origin in self._origins or "*" in self._origins:
            return True
        scheme, _, rest = origin.partition("://")
        usual = {"http": 80, "https": 443}.get(scheme)
        own = _authority(rest)
        if usual is None or own is None or host is None:
            return False
        return own[0] == host[0] and (own[1] or usual) == (host[1] or usual)


_ASKED = frozenset((b"host", b"origin", b"sec-fetch-site", b"sec-fetch-dest"))
_AUTHORITY = re.compile(
    r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_~-]+(?:\.[a-z0-9_~-]+)*)\.?)(?::([0-9]{1,5})?)?", re.ASCII
)


def _authority(text: str) -> tuple[str, int | None] | None:
    """Name and port of a Host; None for what is none.

    >>> _authority("LocalHost.:8080"), _authority("[0::1]"), _authority("a b")
    (('localhost', 8080), ('::1', None), None)
    """
    found = _AUTHORITY.fullmatch(text.strip(" \t").lower())
    if found is None:
        return None
    address, name, port = found.groups()
    if address is not None:
        try:
            name = str(ipaddress.IPv6Address(address))
        except ValueError:
            return None
    return name, int(port) if port else None


def _own_names(settings: BrokerSettings) -> frozenset[str]:
    """The names that a Host may have."""
    names = {"localhost", "127.0.0.1", "::1"}
    listening = f"[{settings.host}]" if ":" in settings.host else settings.host
    for text in (listening, *settings.host_names):
        authority = _authority(text)
        if authority is None or authority[1] is not None:
            raise OptionError(f"a host name must be a name without a port, as in a URL, got {text!r}")
        names.add(authority[0])
    return frozenset(names)


def _guarded(handler: Handler) -> Handler:
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return error_answer(error)

    handle.__name__ = handler.__name__
    handle.__doc__ = handler.__doc__
    return handle


def error_answer(error: Exception) -> Response:
    """The answer to a request that failed."""
    content: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    headers: dict[str, str] = {}
    match error:
        case BrokerError():
            status = error.status
            if isinstance(error, BusyError | UnavailableError):
                headers["Retry-After"] = str(error.retry_after)
            if isinstance(error, UnauthorizedError):
                headers["WWW-Authenticate"] = "Bearer"
        case LanguageError():
            status = 422
            content["position"] = error.position
        case StorageError():
            status = 503
            headers["Retry-After"] = "5"
        case CapacityError():
            status = 413
        case RangecastError():
            status = 422
        case _:
            _log.error("a request failed", exc_info=error)
            status, content["message"] = 500, "the broker failed; its log says why"
    return Json({"error": content}, status, headers)


async def _not_routed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    content = {"error": {"type": "HTTPException", "message": error.detail}}
    return Response(
        msgspec.json.encode(content),
        error.status_code,
        dict(error.headers or {}),
        media_type="application/json",
    )
