"""What both clients share: messages, errors, requests, and reading server-sent events."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from rangecast.errors import OptionError, RangecastError

TRIES = 6
RETRIED = (429, 502, 503, 504)


class ClientError(RangecastError, RuntimeError):
    """The broker refused a request, or cannot be reached; `status` is 0 in the latter case."""

    def __init__(self, message: str, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class GapError(RangecastError, RuntimeError):
    """Events that a consumer should have seen are gone: `first` to `last`, and why."""

    def __init__(self, first: int, last: int, reason: str) -> None:
        super().__init__(f"events {first} to {last} were missed: {reason}")
        self.first = first
        self.last = last
        self.reason = reason


class Delivery(NamedTuple):
    """What a consumer receives; `kind` is match, progress, caught_up, gap or expired."""

    kind: str
    sequence: int | None
    event: dict[str, Any] | None
    subscriptions: tuple[str, ...]
    content: dict[str, Any]

    @property
    def entered(self) -> tuple[str, ...]:
        """The subscriptions that the event's object was not in before; only in a space with an object key."""
        return tuple(self.content.get("entered", ()))

    @property
    def left(self) -> tuple[str, ...]:
        """Those that it was in before, and is no longer."""
        return tuple(self.content.get("left", ()))

    @classmethod
    def of(cls, kind: str, content: dict[str, Any]) -> Delivery:
        """A message from what was sent."""
        return cls(
            kind,
            content.get("sequence"),
            content.get("event"),
            tuple(content.get("subscriptions", ())),
            content,
        )


class BrokerAddress(NamedTuple):
    """Where a broker is."""

    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> BrokerAddress:
        """A place from an address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"the address of a broker is http://HOST:PORT, got {url!r}")
        secure = parts.scheme == "https"
        return cls(secure, parts.hostname, parts.port or (443 if secure else 80), parts.path.rstrip("/"))


class Asked(NamedTuple):
    """A request: what is sent, and whether it may be sent again."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    again: bool = True


def subscription_request(
    space: str, consumer: str, name: str, condition: str, ttl: Any, payload: Any, if_match: str | None
) -> Asked:
    """Add or replace a subscription."""
    content = {"condition": condition, "ttl": ttl, "payload": payload}
    body = json.dumps({key: value for key, value in content.items() if value is not None}).encode()
    headers = {"If-Match": if_match} if if_match is not None else {}
    return Asked("PUT", subscription_path(space, consumer, name), body, headers)


def events_request(space: str, verb: str, events: Any, key: str | None = None) -> Asked:
    """Publish or match events: dicts, or an Arrow table."""
    headers: dict[str, str] = {}
    if verb == "events":
        headers["Idempotency-Key"] = key or uuid.uuid4().hex
    if hasattr(events, "schema") and hasattr(events, "num_rows"):
        import pyarrow as pa

        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, events.schema) as writer:
            writer.write(events)
        headers["Content-Type"] = "application/vnd.apache.arrow.stream"
        return Asked("POST", f"{space_path(space)}/{verb}", out.getvalue().to_pybytes(), headers)
    rows: Iterable[Mapping[str, Any]] = [events] if isinstance(events, Mapping) else events
    body = "\n".join(json.dumps(row, default=_plain) for row in rows).encode()
    headers["Content-Type"] = "application/x-ndjson"
    return Asked("POST", f"{space_path(space)}/{verb}", body, headers)


def space_path(space: str) -> str:
    """The path of a space."""
    return f"/v1/{quote(space, safe='')}"


def consumer_path(space: str, consumer: str) -> str:
    """The path of a consumer."""
    return f"{space_path(space)}/consumers/{quote(consumer, safe='')}"


def subscription_path(space: str, consumer: str, name: str) -> str:
    """The path of a subscription."""
    return f"{consumer_path(space, consumer)}/subscriptions/{quote(name, safe='')}"


def subscriptions_path(space: str, consumer: str, after: str) -> str:
    """The path of a list of subscriptions that begins after a name."""
    return f"{consumer_path(space, consumer)}/subscriptions?limit=1000&after={quote(after, safe='')}"


def stream_request(space: str, consumer: str, start: str | int, last: int | None) -> Asked:
    """Open a stream, or open it again after a message."""
    headers = {"Accept": "text/event-stream"}
    path = f"{consumer_path(space, consumer)}/stream?from={quote(str(start), safe='')}"
    if last is not None:
        headers["Last-Event-ID"] = str(last)
    return Asked("GET", path, None, headers)


def answer_of(status: int, raw: bytes, retry_after: str | None) -> Any:
    """What an answer says; ClientError when the request was refused."""
    try:
        content = json.loads(raw) if raw else {}
    except ValueError:
        content = {}
    if 200 <= status < 300:
        return content
    found = content.get("error", {}) if isinstance(content, dict) else {}
    message = found.get("message") or raw[:200].decode(errors="replace") or "no reason given"
    wait = float(retry_after) if retry_after and retry_after.isdigit() else None
    raise ClientError(f"{status}: {message}", status, wait)


def pause_before(attempt: int, wait: float | None) -> float:
    """How many seconds to wait before trying again."""
    return min(5.0, max(wait or 0.0, 0.05 * (1 << attempt)))


class MessageReader:
    """Server-sent events, line by line, as messages."""

    def __init__(self, notices: bool) -> None:
        self._notices = notices
        self._kind = ""
        self._id: str | None = None
        self._data: list[str] = []
        self.last: int | None = None
        """The id after which a broken stream is to be resumed."""

    def feed(self, line: str) -> Iterator[Delivery]:
        """The message that ends with this line, if one does; GapError for a gap that nobody asked to see."""
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._kind = value
            elif name == "id":
                self._id = value
            elif name == "data":
                self._data.append(value)
            return
        kind, id, data = self._kind, self._id, self._data
        self._kind, self._id, self._data = "", None, []
        if id is not None and id.isdigit():
            self.last = int(id)
        if not data:
            return
        content = json.loads("\n".join(data))
        if kind == "gap" and not self._notices:
            raise GapError(content["from"], content["to"], content["reason"])
        if kind == "match" or self._notices:
            yield Delivery.of(kind, content)


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(
        f"an event's value must be a number, a string, a time or null, got {type(value).__name__}"
    )
