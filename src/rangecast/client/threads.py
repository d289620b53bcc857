"""The client for threads, and a publisher that gathers events into batches."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from rangecast.client.wire import (
    RETRIED,
    TRIES,
    Asked,
    BrokerAddress,
    ClientError,
    Delivery,
    MessageReader,
    answer_of,
    consumer_path,
    events_request,
    pause_before,
    space_path,
    stream_request,
    subscription_path,
    subscription_request,
    subscriptions_path,
)

_BROKEN = (OSError, http.client.HTTPException)


class Client:
    """A client of a broker, for any number of threads; each keeps its own connection."""

    def __init__(
        self, url: str, token: str | None = None, *, space: str = "main", timeout: float = 30.0
    ) -> None:
        self._place = BrokerAddress.of(url)
        self._token = token
        self.space = space
        self._timeout = timeout
        self._own = threading.local()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def subscribe(
        self,
        consumer: str,
        name: str,
        condition: str,
        ttl: Any = None,
        payload: Any = None,
        *,
        if_match: str | None = None,
    ) -> dict[str, Any]:
        """Add a subscription, or replace the one of this name; returns its id and the version that has it."""
        return self._ask(subscription_request(self.space, consumer, name, condition, ttl, payload, if_match))

    def subscribe_many(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Add, replace or delete many: dicts of consumer, name, condition, ttl, payload; or delete=True."""
        body = "\n".join(map(json.dumps, rows)).encode()
        headers = {"Content-Type": "application/x-ndjson"}
        return self._ask(Asked("POST", f"{space_path(self.space)}/subscriptions:batch", body, headers))

    def unsubscribe(self, consumer: str, name: str) -> dict[str, Any]:
        """Delete a subscription."""
        return self._ask(Asked("DELETE", subscription_path(self.space, consumer, name), again=False))

    def subscriptions(self, consumer: str) -> list[dict[str, Any]]:
        """All subscriptions of a consumer."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self._ask(Asked("GET", subscriptions_path(self.space, consumer, after)))
            found += page["subscriptions"]
            if "after" not in page:
                return found
            after = page["after"]

    def publish(self, events: Any, *, key: str | None = None) -> dict[str, Any]:
        """Publish dicts or an Arrow table; returns the first and last sequence number, and what was
        rejected."""
        return self._ask(events_request(self.space, "events", events, key))

    def match(self, events: Any) -> dict[str, Any]:
        """Return at once which subscriptions the events match; nothing is delivered."""
        return self._ask(events_request(self.space, "match", events))

    def test(self, condition: str, events: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Which of the sample events a condition matches, and why."""
        body = json.dumps({"condition": condition, "events": events}).encode()
        return self._ask(Asked("POST", f"{space_path(self.space)}/subscriptions:test", body))

    def ack(self, consumer: str, sequence: int) -> int:
        """Acknowledge everything up to a sequence number."""
        body = json.dumps({"sequence": sequence}).encode()
        return int(self._ask(Asked("POST", f"{consumer_path(self.space, consumer)}/ack", body))["sequence"])

    def messages(self, consumer: str, *, most: int = 100, wait: int = 0) -> dict[str, Any]:
        """The next messages, without a stream."""
        path = f"{consumer_path(self.space, consumer)}/messages?max={most}&wait={wait}"
        return self._ask(Asked("GET", path))

    def create_space(self, attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Make the client's space with a schema."""
        body = json.dumps({"attributes": attributes}).encode()
        return self._ask(Asked("PUT", f"{space_path(self.space)}/schema", body))

    def delete_consumer(self, consumer: str) -> dict[str, Any]:
        """Delete a consumer with its subscriptions and its cursor."""
        return self._ask(Asked("DELETE", consumer_path(self.space, consumer)))

    def status(self) -> dict[str, Any]:
        """Counts and sizes of all spaces."""
        return self._ask(Asked("GET", "/v1/admin/status"))

    def publisher(self, size: int = 500, seconds: float = 0.05) -> Publisher:
        """A publisher that gathers events into batches."""
        return Publisher(self, size, seconds)

    def stream(
        self,
        consumer: str,
        start: str | int = "earliest",
        *,
        notices: bool = False,
        patience: float = 20.0,
        reconnect: bool = True,
    ) -> Iterator[Delivery]:
        """The messages of a consumer, for as long as the caller takes them; reconnects and resumes.

        `start` is "earliest" (after what was acknowledged, otherwise the oldest event), "now", or a sequence
        number. With `notices`, progress, gaps and whatever else is not a match are included; without, a gap
        raises GapError. A broker that is silent for `patience` seconds is considered gone.
        """
        reader = MessageReader(notices)
        attempt = 0
        while True:
            wait: float | None = None
            connection = self._connect(patience)
            response: http.client.HTTPResponse | None = None
            try:
                response = self._stream_response(
                    connection, stream_request(self.space, consumer, start, reader.last)
                )
                while line := response.readline():
                    attempt = 0
                    yield from reader.feed(line.decode().rstrip("\r\n"))
            except _BROKEN:
                pass
            except ClientError as error:
                if error.status not in RETRIED:
                    raise
                wait = error.retry_after
            finally:
                if response is not None:
                    response.close()
                connection.close()
            if not reconnect:
                return
            time.sleep(pause_before(attempt, wait))
            attempt = min(attempt + 1, TRIES)

    def _stream_response(
        self, connection: http.client.HTTPConnection, asked: Asked
    ) -> http.client.HTTPResponse:
        connection.request(asked.method, self._place.path + asked.path, headers=self._headers(asked))
        response = connection.getresponse()
        if response.status != 200:
            with response:
                answer_of(response.status, response.read(65_536), response.headers.get("Retry-After"))
        return response

    def _headers(self, asked: Asked) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **asked.headers}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._place.secure else http.client.HTTPConnection
        return kind(self._place.host, self._place.port, timeout=timeout)

    def _ask(self, asked: Asked) -> dict[str, Any]:
        for attempt in range(TRIES):
            last = attempt + 1 == TRIES or not asked.again
            connection = getattr(self._own, "connection", None)
            fresh = connection is None
            if connection is None:
                connection = self._own.connection = self._connect(self._timeout)
            try:
                connection.request(
                    asked.method, self._place.path + asked.path, asked.body, self._headers(asked)
                )
                response = connection.getresponse()
                raw = response.read()
                answer: dict[str, Any] = answer_of(response.status, raw, response.headers.get("Retry-After"))
                return answer
            except _BROKEN as error:
                self.close()
                if last and fresh:
                    place = f"{self._place.host}:{self._place.port}"
                    raise ClientError(f"the broker at {place} cannot be reached: {error!r}") from None
                if fresh:
                    time.sleep(pause_before(attempt, None))
            except ClientError as error:
                if last or error.status not in RETRIED:
                    raise
                time.sleep(pause_before(attempt, error.retry_after))
        raise ClientError("the broker cannot be reached")


class Publisher:
    """Gathers events into batches and publishes them from a thread of its own.

    A batch goes when it has `size` events, or `seconds` after its first. `flush` waits until everything has
    been acknowledged; an error in a batch is raised by the next `send` or `flush`, or at the end.
    """

    def __init__(self, client: Client, size: int, seconds: float) -> None:
        self._client = client
        self._size = size
        self._seconds = seconds
        self._waiting: list[Mapping[str, Any]] = []
        self._busy = False
        self._change = threading.Condition()
        self._error: Exception | None = None
        self._ended = False
        self.rejected: list[dict[str, Any]] = []
        """Events that the broker rejected, each with its reason and the event itself."""
        self.last: int | None = None
        """The sequence number of the last event that was acknowledged."""
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, event: Mapping[str, Any]) -> None:
        """Add an event to the next batch; waits while ten batches are not acknowledged."""
        with self._change:
            while len(self._waiting) >= 10 * self._size and self._error is None:
                self._change.wait()
            self._check()
            self._waiting.append(event)
            if len(self._waiting) in (1, self._size):
                self._change.notify_all()

    def flush(self) -> None:
        """Wait until everything has been acknowledged."""
        with self._change:
            while (self._waiting or self._busy) and self._error is None:
                self._change.wait()
            self._check()

    def close(self) -> None:
        """Publish what is waiting, and end the thread."""
        try:
            self.flush()
        finally:
            with self._change:
                self._ended = True
                self._change.notify_all()
            self._thread.join()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._publish_all()
        finally:
            self._client.close()  # this thread's connection

    def _publish_all(self) -> None:
        while True:
            with self._change:
                while not self._waiting and not self._ended:
                    self._change.wait()
                if self._ended:
                    return
                if len(self._waiting) < self._size:
                    self._change.wait(self._seconds)
                batch, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
                self._busy = True
                self._change.notify_all()
            try:
                answer = self._client.publish(batch)
                self.rejected += [{**row, "event": batch[row["row"]]} for row in answer["rejected"]]
                self.last = answer["last"] or self.last
            except Exception as error:
                self._error = error
            with self._change:
                self._busy = False
                self._change.notify_all()
                if self._error is not None:
                    return
