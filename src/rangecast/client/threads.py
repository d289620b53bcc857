"""The client for threads, and a publisher that gathers events into batches."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from rangecast.client.wire import (
    Asked,
    Attempts,
    BrokerAddress,
    BrokerRequests,
    ClientError,
    Delivery,
    MessageReader,
    answer_of,
    headers_of,
)

_BROKEN = (OSError, http.client.HTTPException)


class Client(BrokerRequests[dict[str, Any], int]):
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

    def subscriptions(self, consumer: str) -> list[dict[str, Any]]:
        """All subscriptions of a consumer."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self._ask(self._page(consumer, after))
            found += page["subscriptions"]
            if "after" not in page:
                return found
            after = page["after"]

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
        while True:
            connection = self._connect(patience)
            response: http.client.HTTPResponse | None = None
            refusal: ClientError | None = None
            try:
                response = self._send(connection, self._stream(consumer, start, reader.last))
                if response.status != 200:
                    answer_of(response.status, response.read(65_536), response.headers.get("Retry-After"))
                while line := response.readline():
                    yield from reader.feed(line.decode().rstrip("\r\n"))
            except _BROKEN:
                pass
            except ClientError as error:
                refusal = error
            finally:
                if response is not None:
                    response.close()
                connection.close()
            pause = reader.pause(refusal)
            if not reconnect:
                return
            time.sleep(pause)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._place.secure else http.client.HTTPConnection
        return kind(self._place.host, self._place.port, timeout=timeout)

    def _send(self, connection: http.client.HTTPConnection, asked: Asked) -> http.client.HTTPResponse:
        path = self._place.path + asked.path
        connection.request(asked.method, path, asked.body, headers_of(asked, self._token))
        return connection.getresponse()

    def _ask(self, asked: Asked) -> dict[str, Any]:
        attempts = Attempts(self._place, asked)
        while True:
            connection = getattr(self._own, "connection", None)
            fresh = connection is None
            if connection is None:
                connection = self._own.connection = self._connect(self._timeout)
            try:
                response = self._send(connection, asked)
                raw = response.read()
                answer: dict[str, Any] = answer_of(response.status, raw, response.headers.get("Retry-After"))
                return answer
            except _BROKEN as error:
                self.close()
                pause = attempts.pause_broken(error, fresh)
            except ClientError as error:
                pause = attempts.pause_refused(error)
            time.sleep(pause)

    def _ask_sequence(self, asked: Asked) -> int:
        return int(self._ask(asked)["sequence"])


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
