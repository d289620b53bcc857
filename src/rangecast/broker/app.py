"""The HTTP interface: routes, errors as JSON, and what each request may do.

    subscriptions.py   subscribe, replace, delete, list, batch, test
    publishing.py      publish, match
    delivery.py        stream, WebSocket, long poll, acknowledge, tickets, webhooks
    operations.py      schemas, spaces, health, metrics, status, the page, OpenAPI

An error is `{"error": {"type": "LimitError", "message": "..."}}` with its status; a condition that cannot
be read has `position` as well.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from rangecast.broker import delivery, operations, publishing, subscriptions
from rangecast.broker.answers import Json
from rangecast.broker.broker import Broker
from rangecast.broker.errors import BrokerError, BusyError, UnauthorizedError, UnavailableError
from rangecast.errors import CapacityError, LanguageError, RangecastError, StorageError

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
