"""A listener: one connection of a consumer, and how far it has come.

    state      who serves it
    behind     the catch-up thread, from the log
    live       the matcher thread, tick by tick
    stalled    nobody: its buffer is full; when it drains it is behind
    closed     nobody, any more

`position` is the sequence number that it must see next. It moves when bytes are handed to the connection,
on the event loop, and nowhere else: what a connection did not take was not sent.

An outlet is where the bytes go. It says how many of them wait (`waiting`), and calls `drained` when they
are few again.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rangecast.broker.frames import split_frames

if TYPE_CHECKING:
    from rangecast.broker.space import Space

BUFFER = 256 * 1024
"""Bytes that may wait for a connection before it leaves the live set."""
ROOM = 64 * 1024
"""Bytes below which one that was full is served again."""
SOCKET_BUFFER = 128 * 1024
"""Bytes that the operating system may hold for one connection, so that a stalled one costs no megabytes."""


class Outlet(Protocol):
    """Where the bytes of a listener go; used on the event loop alone."""

    def write(self, data: bytes) -> None:
        """Send bytes, or keep them until they can be sent."""

    def waiting(self) -> int:
        """How many bytes wait."""

    def close(self) -> None:
        """End the connection."""


class Listener:
    """One connection of a consumer."""

    __slots__ = (
        "closed", "consumer", "keep", "last_progress", "number", "on_close", "outlet", "position", "reason",
        "space", "stalled", "state", "taken",
    )  # fmt: skip

    def __init__(self, space: Space, consumer: str, number: int, position: int, outlet: Outlet) -> None:
        self.space = space
        self.consumer = consumer
        self.number = number
        self.position = position
        self.outlet = outlet
        self.state = "behind"
        self.closed = False
        self.stalled = False
        self.reason = ""
        self.taken = time.monotonic()
        """When the connection last took bytes."""
        self.last_progress = 0
        self.keep = 0.0
        self.on_close: Callable[[], None] | None = None

    def send(self, data: bytes, position: int) -> None:
        """Hand over bytes that tell of everything before `position`; on the event loop."""
        if self.closed or self.stalled:
            return
        self.outlet.write(data)
        if self.closed:
            return
        self.position = position
        waiting = self.outlet.waiting()
        if waiting > BUFFER:
            self.stalled = True
            if self.state == "live":
                self.space.leave(self)
            self.state = "stalled"
        elif waiting == 0:
            self.taken = time.monotonic()

    def drained(self) -> None:
        """The connection has room again; on the event loop."""
        self.taken = time.monotonic()
        if self.stalled and not self.closed:
            self.space.rejoin(self)

    def close(self, reason: str = "") -> None:
        """End the connection and be served no more; on the event loop."""
        if self.closed:
            return
        self.closed = True
        self.state = "closed"
        self.reason = reason
        self.space.leave(self)
        self.outlet.close()
        if self.on_close is not None:
            self.on_close()


class SseOutlet:
    """HTTP chunks straight to the transport: one write per tick, without a task or a queue per connection."""

    def __init__(self, transport: Any, chunked: bool = True) -> None:
        self._transport = transport
        self._chunked = chunked
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        transport.set_write_buffer_limits(high=BUFFER, low=ROOM)

    def write(self, data: bytes) -> None:
        """Send a chunk."""
        if not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def waiting(self) -> int:
        """How many bytes wait."""
        return int(self._transport.get_write_buffer_size())

    def close(self) -> None:
        """End the body, or give up the connection when what waits cannot be sent."""
        if self._transport.is_closing():
            return
        if self.waiting():
            self._transport.abort()
            return
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")
        self._transport.close()


class MessageOutlet:
    """Messages one by one, for a WebSocket or a webhook: a task takes them and says when they are sent."""

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._bytes = 0
        self._some = asyncio.Event()
        self.ended = False

    def write(self, data: bytes) -> None:
        """Keep messages until they are taken."""
        for kind, content in split_frames(data):
            self._messages.append(b'{"type":"%s",%b' % (kind.encode(), content[1:]))
        self._bytes += len(data)
        self._some.set()

    def waiting(self) -> int:
        """How many bytes wait."""
        return self._bytes

    def close(self) -> None:
        """Wake the task for the last time."""
        self.ended = True
        self._some.set()

    async def take(self) -> list[bytes]:
        """The messages that wait, or the next ones; none when it was closed."""
        while not self._messages and not self.ended:
            self._some.clear()
            await self._some.wait()
        found, self._messages = self._messages, []
        return found

    def sent(self) -> bool:
        """Say that what was taken is sent; whether there is room again."""
        self._bytes = sum(map(len, self._messages))
        return self._bytes <= ROOM


class PollOutlet:
    """Messages for one answer to a long poll: the first ones, up to a number."""

    def __init__(self, most: int, done: asyncio.Event) -> None:
        self.most = most
        self.messages: list[bytes] = []
        self.notices: list[bytes] = []
        self.done = done
        self.on_live: Callable[[], None] | None = None
        """What to do when there is nothing more for now."""

    def write(self, data: bytes) -> None:
        """Keep matches, and what else must be known; the rest is for connections that stay."""
        for kind, content in split_frames(data):
            if kind == "match":
                self.messages.append(content)
            elif kind in ("gap", "expired"):
                self.notices.append(b'{"type":"%s",%b' % (kind.encode(), content[1:]))
            elif kind == "caught_up" and self.on_live is not None:
                self.on_live()
        if self.messages or self.notices:
            self.done.set()

    def waiting(self) -> int:
        """How many bytes wait: too many when the answer is full."""
        return BUFFER + 1 if len(self.messages) >= self.most else 0

    def close(self) -> None:
        """Answer with what there is."""
        self.done.set()
