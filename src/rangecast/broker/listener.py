"""A listener: one connection of a consumer, and how far it has come.

    state      who serves it
    behind     the catch-up thread, from the log, each time that it has taken what it was given
    live       the matcher thread, tick by tick
    stalled    nobody: bytes wait for it; when it has taken them it is behind
    closed     nobody, any more

One that is live is stalled when more than `BUFFER` bytes wait for it, or when it has not taken all of them
for a second: what it would receive is in the log, so there is no reason to hold it here as well.

`position` is the sequence number that it must see next. It moves when bytes are handed to the connection,
on the event loop, and nowhere else: what a connection did not take was not sent.

An outlet is where the bytes go. It says how many of them wait (`waiting`), and `drained` is called when they
are gone.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rangecast.broker import kernels
from rangecast.broker.frames import OwnerFrames, split_frames

if TYPE_CHECKING:
    from rangecast.broker.access import Access
    from rangecast.broker.space import Space

BUFFER = 256 * 1024
"""Bytes that may wait for a connection before it leaves the live set."""
PATIENCE = 1.0
"""Seconds in which a live connection must take what waits for it."""
SOCKET_BUFFER = 128 * 1024
"""Bytes that the operating system may hold for one connection, so that a stalled one costs no megabytes."""


class Outlet(Protocol):
    """Where the bytes of a listener go; used on the event loop alone."""

    def write(self, data: bytes) -> None:
        """Send bytes, or keep them until they can be sent."""

    def waiting(self) -> int:
        """How many bytes wait."""

    def handle(self) -> int:
        """The socket's number if chunks may be written to it as it is, now; -1 otherwise."""

    def write_rest(self, data: bytes) -> None:
        """Send what the socket did not take of a chunk that was written to it."""

    def close(self) -> None:
        """End the connection."""


class Listener:
    """One connection of a consumer."""

    __slots__ = (
        "access", "closed", "consumer", "last_progress", "number", "on_close", "outlet", "patient",
        "position", "reason", "space", "stalled", "state", "taken", "told", "waited",
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
        self.waited = 0
        """How many bytes waited when that was last looked at."""
        self.patient = False
        """Whether it may take nothing for as long as it likes."""
        self.last_progress = 0
        self.told = self.taken
        """When the catch-up thread last told it something."""
        self.on_close: Callable[[], None] | None = None
        self.access: Access | None = None
        """What its token allowed when it was opened; None for a webhook, which has none."""

    def send(self, data: bytes, position: int) -> None:
        """Hand over bytes that tell of everything before `position`; on the event loop."""
        if self.closed or self.stalled:
            return
        self.outlet.write(data)
        self._moved(position)

    def send_rest(self, data: bytes, position: int) -> None:
        """As `send`, of a chunk whose beginning the socket has taken."""
        self.outlet.write_rest(data)
        self._moved(position)

    def _moved(self, position: int) -> None:
        if self.closed:
            return
        self.position = position
        waiting = self.outlet.waiting()
        if not waiting:
            self.waited = 0
            self.taken = time.monotonic()
        elif self.state != "live" or waiting > BUFFER or time.monotonic() - self.taken > PATIENCE:
            self._stall()
        self.waited = waiting

    def _stall(self) -> None:
        self.stalled = True
        if self.state == "live":
            self.space.leave(self)
            self.state = "stalled"

    def look(self, now: float) -> float:
        """How many seconds ago the connection last took bytes, as far as one can see; on the event loop."""
        waiting = self.outlet.waiting()
        if waiting < self.waited or not waiting:
            self.taken = now
        self.waited = waiting
        if self.stalled and now - self.taken > PATIENCE:
            self.state = "stalled"
        return now - self.taken

    def drained(self) -> None:
        """The connection has room again; on the event loop."""
        self.taken = time.monotonic()
        self.waited = 0
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


def send_frames(sends: Sequence[tuple[Listener, OwnerFrames]]) -> None:
    """Hand the frames of a tick to live listeners; on the event loop.

    Connections that are plain and have nothing waiting take theirs in one call for all of them, which lets
    other threads run. The others go by their transports, and so do frames that are not in the same array as
    the first, and what a socket does not take.
    """
    direct: list[tuple[Listener, OwnerFrames]] = []
    handles: list[int] = []
    out = sends[0][1].out
    for listener, frames in sends:
        if listener.closed or listener.stalled:
            continue
        handle = listener.outlet.handle()
        if handle < 0 or frames.out is not out:
            listener.send(frames.data, frames.last + 1)
        else:
            handles.append(handle)
            direct.append((listener, frames))
    if not direct:
        return
    begins = np.fromiter((frames.begin for _, frames in direct), np.int64, len(direct))
    ends = np.fromiter((frames.end for _, frames in direct), np.int64, len(direct))
    sent = np.empty(len(direct), np.int64)
    kernels.send_pieces(np.array(handles, np.int64), out.ctypes.data, begins, ends, sent)
    now = time.monotonic()
    for (listener, frames), taken, whole in zip(
        direct, sent.tolist(), (sent == ends - begins).tolist(), strict=True
    ):
        if whole:
            listener.position = frames.last + 1
            listener.taken = now
        else:
            rest = out[frames.begin + max(taken, 0) : frames.end].tobytes()
            listener.send_rest(rest, frames.last + 1)


class SseOutlet:
    """HTTP chunks straight to the transport: one write per tick, without a task or a queue per connection."""

    def __init__(self, transport: Any, chunked: bool = True) -> None:
        self._transport = transport
        self._chunked = chunked
        raw = transport.get_extra_info("socket")
        secret = transport.get_extra_info("ssl_object") is not None
        self._handle = raw.fileno() if chunked and raw is not None and not secret else -1
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        # so that the protocol hears when nothing waits any more; over TLS, a limit of 0 counts as passed
        transport.set_write_buffer_limits(high=1 if secret else 0, low=0)

    def write(self, data: bytes) -> None:
        """Send a chunk."""
        if not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def waiting(self) -> int:
        """How many bytes wait."""
        return int(self._transport.get_write_buffer_size())

    def handle(self) -> int:
        """The socket's number, if no bytes wait before what would be written to it."""
        transport = self._transport
        if transport.is_closing() or transport.get_write_buffer_size():
            return -1
        return self._handle

    def write_rest(self, data: bytes) -> None:
        """Send the rest of a chunk."""
        if not self._transport.is_closing():
            self._transport.write(data)

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


class _Collecting:
    """An outlet that no bytes can be written to directly."""

    def handle(self) -> int:
        """There is no socket."""
        return -1

    def write_rest(self, data: bytes) -> None:
        """Never asked for."""
        raise AssertionError(data)


class MessageOutlet(_Collecting):
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
        """Say that what was taken is sent; whether nothing waits any more."""
        self._bytes = sum(map(len, self._messages))
        return not self._bytes


class PollOutlet(_Collecting):
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
