"""Requests about the broker itself: spaces and schemas, health, metrics, status, OpenAPI, the page."""

from __future__ import annotations

from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from rangecast.broker.answers import Json, allowed, broker_of, decoded_object, run_beside, whole_number
from rangecast.broker.bodies import read_body
from rangecast.broker.errors import BrokerError
from rangecast.broker.limits import SpaceLimits
from rangecast.errors import SchemaError
from rangecast.types.schema import Schema

_CONTENT = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def put_schema(request: Request) -> Response:
    """Make a space with a schema; if it has the same one already, nothing changes."""
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
    """Return the schema of a space."""
    _, space, _ = allowed(request, "read")
    return Json({"space": space.name, "attributes": space.schema.to_dict()})


async def list_spaces(request: Request) -> Response:
    """List the spaces that the sender may use."""
    broker = broker_of(request)
    access = broker.access(request.headers.get("authorization"))
    access.check("read")
    broker.check_open()
    names = [name for name in sorted(broker.spaces) if access.may_see(name)]
    return Json({"spaces": names})


async def list_consumers(request: Request) -> Response:
    """List the consumers of a space with their states, those with connections first."""
    _, space, _ = allowed(request, "read")
    limit = whole_number(request, "limit", 100, 1, 10_000)
    return Json({"consumers": space.list_consumers(limit)})


async def show_status(request: Request) -> Response:
    """Return counts and sizes of the spaces that the sender may use."""
    broker = broker_of(request)
    access = broker.access(request.headers.get("authorization"))
    access.check("read")
    return Json(broker.status(access))


async def show_health(_: Request) -> Response:
    """Say that the process is alive."""
    return Json({"status": "ok"})


async def show_readiness(request: Request) -> Response:
    """Say whether requests are served."""
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
    """Return counters in the text format of Prometheus."""
    broker = broker_of(request)
    access = broker.access(request.headers.get("authorization"))
    access.check("read")
    return Response(broker.measure(access), media_type="text/plain; version=0.0.4")


async def show_openapi(_: Request) -> Response:
    """Return this reference as an OpenAPI document."""
    from rangecast.broker.openapi import document

    return Json(document())


async def show_page(_: Request) -> Response:
    """Return the page for people."""
    headers = {"Content-Security-Policy": _CONTENT, "X-Content-Type-Options": "nosniff"}
    return Response(_page(), media_type="text/html; charset=utf-8", headers=headers)


@cache
def _page() -> bytes:
    return resources.files("rangecast.broker").joinpath("page.html").read_bytes()
