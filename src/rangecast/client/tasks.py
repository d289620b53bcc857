"""The client for asyncio: the same requests, over streams of the standard library."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
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
)

_BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError)
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncClient:
    """A client of a broker, for any number of tasks of one event loop."""

    def __init__(
        self, url: str, token: str | None = None, *, space: str = "main", timeout: float = 30.0
    ) -> None:
        self._place = BrokerAddress.of(url)
        self._token = token
        self.space = space
        self._timeout = timeout
        self._idle: list[_Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            await _close(self._idle.pop()[1])

    async def subscribe(
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
        return await self._ask(
            subscription_request(self.space, consumer, name, condition, ttl, payload, if_match)
        )

    async def unsubscribe(self, consumer: str, name: str) -> dict[str, Any]:
        """Delete a subscription."""
        return await self._ask(Asked("DELETE", subscription_path(self.space, consumer, name), again=False))

    async def publish(self, events: Any, *, key: str | None = None) -> dict[str, Any]:
        """Publish dicts or an Arrow table; returns the first and last sequence number, and what was
        rejected."""
        return await self._ask(events_request(self.space, "events", events, key))

    async def match(self, events: Any) -> dict[str, Any]:
        """Return at once which subscriptions the events match; nothing is delivered."""
        return await self._ask(events_request(self.space, "match", events))

    async def test(self, condition: str, events: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Which of the sample events a condition matches, and why."""
        body = json.dumps({"condition": condition, "events": events}).encode()
        return await self._ask(Asked("POST", f"{space_path(self.space)}/subscriptions:test", body))

    async def ack(self, consumer: str, sequence: int) -> int:
        """Acknowledge everything up to a sequence number."""
        body = json.dumps({"sequence": sequence}).encode()
        return int(
            (await self._ask(Asked("POST", f"{consumer_path(self.space, consumer)}/ack", body)))["sequence"]
        )

    async def messages(self, consumer: str, *, most: int = 100, wait: int = 0) -> dict[str, Any]:
        """The next messages, without a stream."""
        path = f"{consumer_path(self.space, consumer)}/messages?max={most}&wait={wait}"
        return await self._ask(Asked("GET", path))

    async def stream(
        self,
        consumer: str,
        start: str | int = "earliest",
        *,
        notices: bool = False,
        patience: float = 20.0,
        reconnect: bool = True,
    ) -> AsyncIterator[Delivery]:
        """The messages of a consumer, as `Client.stream` gives them."""
        reader = MessageReader(notices)
        attempt = 0
        while True:
            wait: float | None = None
            connection: _Connection | None = None
            try:
                connection = await self._connect()
                asked = stream_request(self.space, consumer, start, reader.last)
                status, headers = await self._send(connection, asked)
                if status != 200:
                    raw = await _body(connection[0], headers)
                    answer_of(status, raw, headers.get("retry-after"))
                async for line in _lines(connection[0], patience):
                    attempt = 0
                    for message in reader.feed(line):
                        yield message
            except ClientError as error:
                if error.status not in RETRIED:
                    raise
                wait = error.retry_after
            except _BROKEN:
                pass
            finally:
                if connection is not None:
                    await _close(connection[1])
            if not reconnect:
                return
            await asyncio.sleep(pause_before(attempt, wait))
            attempt = min(attempt + 1, TRIES)

    async def _connect(self) -> _Connection:
        context = ssl.create_default_context() if self._place.secure else None
        async with asyncio.timeout(self._timeout):
            return await asyncio.open_connection(
                self._place.host, self._place.port, ssl=context, limit=1 << 24
            )

    async def _send(self, connection: _Connection, asked: Asked) -> tuple[int, dict[str, str]]:
        body = asked.body or b""
        headers = {
            "Host": f"{self._place.host}:{self._place.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **asked.headers,
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        head = f"{asked.method} {self._place.path}{asked.path} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        reader, writer = connection
        writer.write(head.encode("latin-1") + body)
        await writer.drain()
        async with asyncio.timeout(self._timeout):
            raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.split("\r\n")
        found = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
        }
        return int(first.split(" ", 2)[1]), found

    async def _ask(self, asked: Asked) -> dict[str, Any]:
        for attempt in range(TRIES):
            last = attempt + 1 == TRIES or not asked.again
            fresh = not self._idle
            connection: _Connection | None = None
            try:
                connection = self._idle.pop() if self._idle else await self._connect()
                status, headers = await self._send(connection, asked)
                async with asyncio.timeout(self._timeout):
                    raw = await _body(connection[0], headers)
                if headers.get("connection", "") == "close":
                    await _close(connection[1])
                else:
                    self._idle.append(connection)
                answer: dict[str, Any] = answer_of(status, raw, headers.get("retry-after"))
                return answer
            except _BROKEN as error:
                if connection is not None:
                    await _close(connection[1])
                if last and fresh:
                    place = f"{self._place.host}:{self._place.port}"
                    raise ClientError(f"the broker at {place} cannot be reached: {error!r}") from None
                if fresh:
                    await asyncio.sleep(pause_before(attempt, None))
            except ClientError as error:
                if last or error.status not in RETRIED:
                    raise
                await asyncio.sleep(pause_before(attempt, error.retry_after))
        raise ClientError("the broker cannot be reached")


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):  # it is gone already
        await writer.wait_closed()


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "") == "chunked":
        pieces = []
        while size := int(await reader.readline(), 16):
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readline()
        return b"".join(pieces)
    return await reader.readexactly(int(headers.get("content-length", "0")))


async def _lines(reader: asyncio.StreamReader, patience: float) -> AsyncIterator[str]:
    """The lines of a chunked body, until it ends or nothing comes for a while."""
    rest = b""
    while True:
        async with asyncio.timeout(patience):
            size = int(await reader.readline() or b"0", 16)
            if not size:
                return
            rest += await reader.readexactly(size)
            await reader.readexactly(2)
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line.decode().rstrip("\r")
