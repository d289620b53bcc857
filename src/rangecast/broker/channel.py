"""Messages and connections between the process that writes and those that deliver.

A channel is one end of a pair of Unix sockets (SOCK_SEQPACKET): messages keep their order and their ends, one
may carry an open connection (SCM_RIGHTS), and the other end notices when a process has died. A message is a
list in MessagePack, its first item says what it is:

    to a worker     start, space, mark, cursors, acked, ticket, connection, close, drain
    to the writer   ack, connection, status

The system takes no packet of any length, and one that is longer than what is asked for loses its end. So a
message goes in packets of at most `_PACKET` bytes after the first one, which says whether more of it follow.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

_PACKET = 1 << 16
_LAST, _MORE = b"\0", b"\1"
_encode = msgspec.msgpack.encode
Receive = Callable[[list[Any], int], None]
"""What is done with a message and the number of the connection that it carries, -1 for none."""


def _packets(raw: bytes) -> list[bytes]:
    """A message as packets."""
    parts = [raw[k : k + _PACKET] for k in range(0, len(raw), _PACKET)]
    return [*(_MORE + part for part in parts[:-1]), _LAST + parts[-1]]


def receive_first(end: socket.socket) -> list[Any]:
    """The first message that comes, which is waited for: before there is an event loop."""
    parts = []
    while True:
        raw = end.recv(1 + _PACKET)
        if not raw:
            raise EOFError("the other end has gone")
        parts.append(raw[1:])
        if raw[:1] == _LAST:
            first: list[Any] = msgspec.msgpack.decode(b"".join(parts))
            return first


class Channel:
    """One end of a channel; used on the event loop alone."""

    def __init__(self, end: socket.socket, receive: Receive, lost: Callable[[], None]) -> None:
        end.setblocking(False)
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * _PACKET)
        self._end = end
        self._receive = receive
        self._lost = lost
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._open = True
        self._loop.add_reader(end.fileno(), self.receive_now)

    def send(self, *message: Any, handle: int = -1) -> None:
        """Send a message, and hand over a connection with it; it is ours no more."""
        if not self._open:
            if handle >= 0:
                os.close(handle)
            return
        idle = not self._waiting
        *parts, last = _packets(_encode(message))
        self._waiting += [(part, -1) for part in parts]
        self._waiting.append((last, handle))
        if idle:
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting:
            raw, handle = self._waiting[0]
            rights = [] if handle < 0 else [
                (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))
            ]  # fmt: skip
            try:
                self._end.sendmsg([raw], rights)
            except BlockingIOError:
                self._loop.add_writer(self._end.fileno(), self._send_waiting)
                return
            except OSError:
                self.close()
                self._lost()
                return
            self._waiting.popleft()
            if handle >= 0:
                os.close(handle)
        self._loop.remove_writer(self._end.fileno())

    def receive_now(self) -> None:
        """Take all messages that have come."""
        while self._open:
            try:
                raw, rights, _, _ = self._end.recvmsg(1 + _PACKET, socket.CMSG_SPACE(4))
            except BlockingIOError:
                return
            except OSError:
                raw = b""
            if not raw:
                self.close()
                self._lost()
                return
            self._parts.append(raw[1:])
            if raw[:1] == _MORE:
                continue
            whole = b"".join(self._parts)
            self._parts.clear()
            handle = -1
            for _, kind, data in rights:
                if kind == socket.SCM_RIGHTS:
                    handle = array.array("i", data[:4])[0]
            self._receive(msgspec.msgpack.decode(whole), handle)

    def close(self) -> None:
        """Send and take nothing more."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._end.fileno())
        self._loop.remove_writer(self._end.fileno())
        self._end.close()
        for _, handle in self._waiting:
            if handle >= 0:
                os.close(handle)
        self._waiting.clear()
