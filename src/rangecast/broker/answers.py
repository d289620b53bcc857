"""Answers as JSON, and what handlers ask of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from rangecast.broker.access import Access
from rangecast.broker.broker import Broker
from rangecast.broker.directory import NAME
from rangecast.broker.errors import BrokerError
from rangecast.broker.space import Space

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
