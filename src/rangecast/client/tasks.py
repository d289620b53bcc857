"""The client for asyncio: the same requests, over streams of the standard library."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
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

_BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError)
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncClient(BrokerRequests[Coroutine[Any, Any, dict[str, Any]], Coroutine[Any, Any, int]]):
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

    async def subscriptions(self, consumer: str) -> list[dict[str, Any]]:
        """All subscriptions of a consumer."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = await self._ask(self._page(consumer, after))
            found += page["subscriptions"]
            if "after" not in page:
                return found
            after = page["after"]

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
        while True:
            connection: _Connection | None = None
            refusal: ClientError | None = None
            try:
                connection = await self._connect()
                status, headers = await self._send(connection, self._stream(consumer, start, reader.last))
                if status != 200:
                    raw = await _body(connection[0], headers)
                    answer_of(status, raw, headers.get("retry-after"))
                async for line in _lines(connection[0], patience):
                    for message in reader.feed(line):
                        yield message
            except ClientError as error:
                refusal = error
            except _BROKEN:
                pass
            finally:
                if connection is not None:
                    await _close(connection[1])
            pause = reader.pause(refusal)
            if not reconnect:
                return
            await asyncio.sleep(pause)

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
            "Content-Length": str(len(body)),
            **headers_of(asked, self._token),
        }
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
        attempts = Attempts(self._place, asked)
        while True:
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
                pause = attempts.pause_broken(error, fresh)
            except ClientError as error:
                pause = attempts.pause_refused(error)
            await asyncio.sleep(pause)

    async def _ask_sequence(self, asked: Asked) -> int:
        return int((await self._ask(asked))["sequence"])


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
