"""The interface in the words of OpenAPI, made from the routes and the docstrings of their handlers.

    python -m rangecast.broker.openapi docs/broker-api.md     writes the same into the page, between its marks

A docstring has the summary in its first line, then the description, then fields, each a line that may go on
in indented ones:

    query      parameters of the address, each with its type
    header     headers that mean something here
    accepts    types of the body, JSON where there is none
    returns    type of the answer, JSON where there is none
    400 ...    statuses besides 200, and what they mean here; those of every route are in `_implied`
    example    address of the example, where it is not the route's own with the names of `_NAMES`
    body       what the example sends
    answer     what the broker answers to it, where that is JSON

The examples are of one story, which a test tells to a broker in the order of the routes: a space with
`price`, `symbol` and `change`, and a consumer that is called alice.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from rangecast import __version__
from rangecast.broker.app import ROUTES

_NAMES = {"space": "main", "consumer": "alice", "name": "cheap"}
_FIELD = re.compile(r"(query|header|accepts|returns|\d{3}|example|body|answer): ")
_EVERYBODY = ("show_health", "show_readiness", "show_openapi", "show_page")
"""Handlers that ask for no token."""
_COMMON = {
    401: "no token was given, or one that is not known",
    403: "the token does not allow it",
    404: "there is no such space",
    503: "the broker is starting or ending, or its disk refuses",
}
"""What any request to a space may be answered with; the page says it once."""
_BEGIN = "<!-- written by python -m rangecast.broker.openapi -->"
_END = "<!-- end of what is written -->"
_ERROR = {
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


class DescribedRoute(NamedTuple):
    """A route and what the docstring of its handler says."""

    method: str
    path: str
    name: str
    """The name of the handler."""
    summary: str
    text: str
    statuses: dict[int, str]
    """Besides 200: the status, and what it means here."""
    example: str
    """The address that the example asks for."""
    body: Any
    answer: Any
    """What the broker answers to the example; None where that is not JSON."""
    fields: dict[str, str]

    def names(self, field: str) -> list[str]:
        """The parts of a field."""
        return self.fields[field].split(", ") if field in self.fields else []


def _implied(path: str, name: str) -> dict[int, str]:
    """The statuses that a route has by its path, unless its docstring gives them another meaning."""
    statuses: dict[int, str] = {}
    if "{space}" in path:
        statuses |= _COMMON
    elif name not in _EVERYBODY:
        statuses |= {status: _COMMON[status] for status in (401, 403)}
    if "{consumer}" in path:
        statuses[400] = "the name of the consumer cannot be one"
    return statuses


def described(method: str, path: str, handler: Any) -> DescribedRoute:
    """A route, described by the docstring of its handler."""
    summary, _, rest = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
    fields: dict[str, str] = {}
    text: list[str] = []
    field = ""
    for line in rest.splitlines():
        begin = _FIELD.match(line)
        if begin is not None:
            field = begin[1]
            fields[field] = line[begin.end() :]
        elif field and line:
            fields[field] += " " + line.strip()
        elif line:
            text.append(line)
    name = handler.__name__
    own = {int(field): meaning for field, meaning in fields.items() if field.isdigit()}
    return DescribedRoute(
        method,
        path,
        name,
        summary,
        " ".join(text),
        dict(sorted((_implied(path, name) | own).items())),
        fields.get("example") or path.format(**_NAMES),
        json.loads(fields.get("body", "null")),
        json.loads(fields.get("answer", "null")),
        fields,
    )


def routes() -> list[DescribedRoute]:
    """All routes, in their order."""
    return [described(*route) for route in ROUTES]


def page() -> str:
    """The description of every route, for docs/broker-api.md."""
    out: list[str] = []
    for route in routes():
        out += [f"### `{route.method} {route.path}`", "", f"{route.summary} {route.text}", ""]
        own = [
            f"- {status}: {meaning}"
            for status, meaning in route.statuses.items()
            if _COMMON.get(status) != meaning
        ]
        out += [*own, ""] if own else []
        if route.answer is not None:
            sent = [] if route.body is None else [json.dumps(route.body)]
            out += ["```", f"{route.method} {route.example}", *sent, "", json.dumps(route.answer), "```", ""]
    return "\n".join(out).strip()


def with_reference(text: str) -> str:
    """A page with the reference between its marks."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + "\n\n" + page() + "\n\n" + _END + rest.split(_END)[1]


def _parameter(name: str, place: str, kind: str = "string") -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, "schema": {"type": kind}}


def _operation(route: DescribedRoute) -> dict[str, Any]:
    parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", route.path)]
    for parameter in route.names("query"):
        name, kind = parameter.split(" ")
        parameters.append(_parameter(name, "query", kind))
    parameters += [_parameter(name, "header") for name in route.names("header")]
    (kind,) = route.names("returns") or ["application/json"]
    done = {} if route.answer is None else {"example": route.answer}
    responses: dict[str, Any] = {"200": {"description": "done", "content": {kind: done}}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, meaning in route.statuses.items():
        responses[str(status)] = {"description": meaning, "content": error}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.text,
        "parameters": parameters,
        "responses": responses,
    }
    if route.body is not None:
        content: dict[str, Any] = {kind: {} for kind in route.names("accepts")}
        content["application/json"] = {"example": route.body}
        operation["requestBody"] = {"required": True, "content": content}
    if route.name in _EVERYBODY:
        operation["security"] = []
    return operation


def document() -> dict[str, Any]:
    """The document of all routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rangecast", "version": __version__},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(with_reference(place.read_text()))
