"""The HTTP interface: routes, errors as JSON, and what each request may do.

    subscriptions.py   subscribe, replace, delete, list, batch, test
    publishing.py      publish, match
    delivery.py        stream, WebSocket, long poll, acknowledge, tickets, webhooks
    operations.py      schemas, spaces, health, metrics, status, the page, OpenAPI

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

from rangecast.broker import delivery, operations, publishing
from rangecast.broker import requests as subscriptions
from rangecast.broker.answers import Json
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.errors import (
    BrokerError,
    BusyError,
    ForbiddenError,
    UnauthorizedError,
    UnavailableError,
)
from rangecast.errors import CapacityError, LanguageError, OptionError, RangecastError, StorageError

_log = logging.getLogger("rangecast.broker")
Handler = Callable[[Request], Awaitable[Response]]

CONSUMER = "/v1/{space}/consumers/{consumer}"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("PUT", CONSUMER + "/subscriptions/{name}", subscriptions.put_subscription),
    ("GET", CONSUMER + "/subscriptions/{name}", subscriptions.get_subscription),
    ("DELETE", CONSUMER + "/subscriptions/{name}", subscriptions.delete_subscription),
    ("GET", CONSUMER + "/subscriptions", subscriptions.list_subscriptions),
    ("POST", "/v1/{space}/subscriptions:batch", subscriptions.batch_subscriptions),
    ("POST", "/v1/{space}/subscriptions:test", subscriptions.test_condition),
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
    ("GET", "/v1/{space}/consumers", operations.list_consumers),
    ("PUT", "/v1/{space}/schema", operations.put_schema),
    ("GET", "/v1/{space}/schema", operations.get_schema),
    ("GET", "/v1/spaces", operations.list_spaces),
    ("GET", "/v1/admin/status", operations.show_status),
    ("GET", "/healthz", operations.show_health),
    ("GET", "/readyz", operations.show_readiness),
    ("GET", "/metrics", operations.show_metrics),
    ("GET", "/openapi.json", operations.show_openapi),
    ("GET", "/", operations.show_page),
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
