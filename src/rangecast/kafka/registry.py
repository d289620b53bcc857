"""A schema registry: the schema of an id, asked for once.

The interface is the one that Confluent's registry has and others speak as well (Karapace, Redpanda,
Apicurio):

    GET /schemas/ids/7                       {"schema": ..., "schemaType": "AVRO", "references": [...]}
    GET /schemas/ids/7?format=serialized     Protobuf: the file's descriptor in base64 instead of its text
    GET /subjects/order.proto/versions/2     a schema that another one refers to

A value begins with the byte 0 and the schema's id in four bytes, the highest first; then comes the body.

What a registry says of an id never changes, so answers are kept. An id that it does not know is not kept:
it is asked for again after a while, and until then values with it are rejected. A registry that cannot be
reached is a StorageError, since nothing is wrong with the values.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from rangecast.errors import OptionError, StorageError

_MAGIC, _HEAD = 0, 5
_SECONDS = 10.0
_TRIES = 3
_UNKNOWN_SECONDS = 10.0
_NOT_FOUND = 404


def wire_parts(value: bytes | None) -> tuple[int, bytes]:
    """The schema's id and the body of a value; ValueError says what is wrong.

    >>> wire_parts(bytes([0, 0, 0, 1, 2]) + b"body")
    (258, b'body')
    """
    if not value:
        raise ValueError("a value must not be null or empty")
    if value[0] != _MAGIC or len(value) < _HEAD:
        raise ValueError(
            f"a value must begin with the byte 0 and the four bytes of its schema's id, got {value[:_HEAD]!r}"
        )
    return int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it; `references` are (name, subject, version)."""

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()


class SchemaRegistry:
    """The registry at an address; a user and a password may stand in it (https://user:password@host)."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"a registry is an address such as http://127.0.0.1:8081, got {url!r}")
        place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.url = urllib.parse.urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username:
            user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._known: dict[str, RegisteredSchema] = {}
        self._unknown: dict[str, float] = {}

    def by_id(self, number: int, serialized: bool = False) -> RegisteredSchema:
        """The schema of an id; ValueError where the registry has none."""
        return self._ask(f"/schemas/ids/{number}", f"the schema {number}", serialized)

    def by_subject(self, subject: str, version: int, serialized: bool = False) -> RegisteredSchema:
        """A version of a subject, to which another schema refers."""
        quoted = urllib.parse.quote(subject, safe="")
        return self._ask(f"/subjects/{quoted}/versions/{version}", f"{subject} {version}", serialized)

    def _ask(self, path: str, what: str, serialized: bool) -> RegisteredSchema:
        path += "?format=serialized" if serialized else ""
        known = self._known.get(path)
        if known is not None:
            return known
        asked = self._unknown.get(path)
        if asked is None or time.monotonic() - asked > _UNKNOWN_SECONDS:
            answer = self._get(path)
            if answer is not None:
                references = tuple(
                    (str(r["name"]), str(r["subject"]), int(r["version"]))
                    for r in answer.get("references") or ()
                )
                found = RegisteredSchema(answer.get("schemaType") or "AVRO", answer["schema"], references)
                self._known[path] = found
                return found
            self._unknown[path] = time.monotonic()
        raise ValueError(f"the registry does not have {what}")

    def _get(self, path: str) -> dict[str, Any] | None:
        request = urllib.request.Request(self.url + path, headers=self._headers)
        trouble = ""
        for attempt in range(_TRIES):
            try:
                with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                    found = json.load(response)
                if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
                    raise StorageError(f"{self.url}{path}: must answer with a schema, got {found!r}")
                return found
            except urllib.error.HTTPError as error:
                if error.code == _NOT_FOUND:
                    return None
                trouble = f"HTTP {error.code}"
                if error.code < 500:
                    break
            except (OSError, ValueError) as error:
                trouble = str(error)
            time.sleep(0.2 * 2**attempt)
        raise StorageError(f"{self.url}: the schema registry does not answer: {trouble}")
