"""What both clients share: the table of requests, messages, errors, and reading server-sent events.

`BrokerRequests` has every request once, as a method that makes an `Asked`; a client is these methods over its
own way to send one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from rangecast.errors import OptionError, RangecastError

TRIES = 6
RETRIED = (429, 502, 503, 504)
Reply = TypeVar("Reply")
"""What a request gives: a dict, or one to wait for."""
Number = TypeVar("Number")
"""What an acknowledgement gives: a sequence number, or one to wait for."""


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


_LINES = {"Content-Type": "application/x-ndjson"}


class BrokerRequests(Generic[Reply, Number]):
    """The requests of a client, each of which gives the broker's answer."""

    space: str

    def _ask(self, asked: Asked) -> Reply:
        """Send a request, again where that may help, and return the answer."""
        raise NotImplementedError

    def _ask_sequence(self, asked: Asked) -> Number:
        """Return the `sequence` of an answer."""
        raise NotImplementedError

    def subscribe(
        self,
        consumer: str,
        name: str,
        condition: str,
        ttl: Any = None,
        payload: Any = None,
        *,
        if_match: str | None = None,
    ) -> Reply:
        """Add a subscription, or replace the one of this name; returns its id and the version that has it."""
        content = {"condition": condition, "ttl": ttl, "payload": payload}
        body = _json({key: value for key, value in content.items() if value is not None})
        headers = {"If-Match": if_match} if if_match is not None else {}
        return self._ask(Asked("PUT", self._subscription(consumer, name), body, headers))

    def subscribe_many(self, rows: Iterable[Mapping[str, Any]]) -> Reply:
        """Add, replace or delete many: dicts of consumer, name, condition, ttl, payload; or delete=True."""
        body = "\n".join(map(json.dumps, rows)).encode()
        return self._ask(Asked("POST", f"{self._space()}/subscriptions:batch", body, _LINES))

    def unsubscribe(self, consumer: str, name: str) -> Reply:
        """Delete a subscription."""
        return self._ask(Asked("DELETE", self._subscription(consumer, name), again=False))

    def publish(self, events: Any, *, key: str | None = None) -> Reply:
        """Publish dicts or an Arrow table; returns the first and last sequence number, and what was
        rejected."""
        body, headers = events_body(events)
        headers = {**headers, "Idempotency-Key": key or uuid.uuid4().hex}
        return self._ask(Asked("POST", f"{self._space()}/events", body, headers))

    def match(self, events: Any) -> Reply:
        """Return at once which subscriptions the events match; nothing is delivered."""
        return self._ask(Asked("POST", f"{self._space()}/match", *events_body(events)))

    def test(self, condition: str, events: list[Mapping[str, Any]]) -> Reply:
        """Return which of the sample events a condition matches, and why."""
        body = _json({"condition": condition, "events": events})
        return self._ask(Asked("POST", f"{self._space()}/subscriptions:test", body))

    def ack(self, consumer: str, sequence: int) -> Number:
        """Acknowledge everything up to a sequence number; returns where the cursor is."""
        return self._ask_sequence(
            Asked("POST", f"{self._consumer(consumer)}/ack", _json({"sequence": sequence}))
        )

    def messages(self, consumer: str, *, most: int = 100, wait: int = 0) -> Reply:
        """Return the next messages, without a stream."""
        return self._ask(Asked("GET", f"{self._consumer(consumer)}/messages?max={most}&wait={wait}"))

    def create_space(self, attributes: Mapping[str, Mapping[str, Any]]) -> Reply:
        """Make the client's space with a schema."""
        return self._ask(Asked("PUT", f"{self._space()}/schema", _json({"attributes": attributes})))

    def delete_consumer(self, consumer: str) -> Reply:
        """Delete a consumer with its subscriptions and its cursor."""
        return self._ask(Asked("DELETE", self._consumer(consumer)))

    def status(self) -> Reply:
        """Return counts and sizes of all spaces."""
        return self._ask(Asked("GET", "/v1/admin/status"))

    def _space(self) -> str:
        return f"/v1/{quote(self.space, safe='')}"

    def _consumer(self, consumer: str) -> str:
        return f"{self._space()}/consumers/{quote(consumer, safe='')}"

    def _subscription(self, consumer: str, name: str) -> str:
        return f"{self._consumer(consumer)}/subscriptions/{quote(name, safe='')}"

    def _page(self, consumer: str, after: str) -> Asked:
        """The request for a list of subscriptions that begins after a name."""
        path = f"{self._consumer(consumer)}/subscriptions?limit=1000&after={quote(after, safe='')}"
        return Asked("GET", path)

    def _stream(self, consumer: str, start: str | int, last: int | None) -> Asked:
        """The request that opens a stream, or opens it again after a message."""
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        path = f"{self._consumer(consumer)}/stream?from={quote(str(start), safe='')}"
        return Asked("GET", path, None, headers)


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def events_body(events: Any) -> tuple[bytes, Mapping[str, str]]:
    """The body for events, dicts or an Arrow table, and its content type."""
    if hasattr(events, "schema") and hasattr(events, "num_rows"):
        import pyarrow as pa

        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, events.schema) as writer:
            writer.write(events)
        return out.getvalue().to_pybytes(), {"Content-Type": "application/vnd.apache.arrow.stream"}
    rows: Iterable[Mapping[str, Any]] = [events] if isinstance(events, Mapping) else events
    return "\n".join(json.dumps(row, default=_plain) for row in rows).encode(), _LINES


def headers_of(asked: Asked, token: str | None) -> dict[str, str]:
    """The headers of a request."""
    headers = {"Content-Type": "application/json", **asked.headers}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return headers


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


def _pause_before(attempt: int, wait: float | None) -> float:
    """How many seconds to wait before trying again."""
    return min(5.0, max(wait or 0.0, 0.05 * (1 << attempt)))


class Attempts:
    """The attempts of one request: how long to wait after one that failed; the error after the last one."""

    def __init__(self, place: BrokerAddress, asked: Asked) -> None:
        self._place = place
        self._again = asked.again
        self._attempt = 0

    def pause_broken(self, error: Exception, fresh: bool) -> float:
        """Seconds to wait after a connection broke; none after one that was not fresh, as a broker closes
        those that were idle for long, and has not seen the request."""
        if self._ends if fresh else self._attempt + 1 == TRIES:
            place = f"{self._place.host}:{self._place.port}"
            raise ClientError(f"the broker at {place} cannot be reached: {error!r}") from None
        self._attempt += 1
        return _pause_before(self._attempt - 1, None) if fresh else 0.0

    def pause_refused(self, error: ClientError) -> float:
        """Seconds to wait after an answer that refused the request."""
        if self._ends or error.status not in RETRIED:
            raise error
        self._attempt += 1
        return _pause_before(self._attempt - 1, error.retry_after)

    @property
    def _ends(self) -> bool:
        return not self._again or self._attempt + 1 == TRIES


class MessageReader:
    """Server-sent events, line by line, as messages."""

    def __init__(self, notices: bool) -> None:
        self._notices = notices
        self._kind = ""
        self._id: str | None = None
        self._data: list[str] = []
        self.last: int | None = None
        """The id after which a broken stream is to be resumed."""
        self._attempt = 0

    def pause(self, refusal: ClientError | None) -> float:
        """Seconds to wait before a stream that broke, or was refused, is opened again; there is no last
        attempt."""
        if refusal is not None and refusal.status not in RETRIED:
            raise refusal
        attempt = self._attempt
        self._attempt = min(attempt + 1, TRIES)
        return _pause_before(attempt, None if refusal is None else refusal.retry_after)

    def feed(self, line: str) -> Iterator[Delivery]:
        """The message that ends with this line, if one does; GapError for a gap that nobody asked to see."""
        self._attempt = 0
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
