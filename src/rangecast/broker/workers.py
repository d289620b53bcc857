"""Delivery by several processes: `rangecast serve --workers W`.

One process writes: it listens, takes publications and changes, keeps the log, the store and the cursors. W
others deliver. A consumer belongs to one of them by a hash of its name; that process holds the subscriptions
of its consumers alone, follows the log up to what the writer says is on disk (followed_log.py), matches all
events against them, and has the connections of its consumers.

A connection is accepted by the writer. When the head of a request says that another process must answer it,
the open connection goes there with the bytes that were read of it; a worker sends one back in the same way.
So a stream costs the writer nothing, and a client notices nothing.

    writer -> worker    how far log and store are, cursors, tickets, connections
    worker -> writer    acknowledgements, connections, what /metrics and the page show

A worker that dies is started again. Its connections end with it, its consumers connect again and are served
from the log; nothing of theirs was anywhere else. When the writer dies, the workers end.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from rangecast.broker.access import Access
from rangecast.broker.channel import Channel
from rangecast.broker.event_log import LogMark
from rangecast.broker.space import Space

if TYPE_CHECKING:
    from rangecast.broker.broker import Broker

_log = logging.getLogger("rangecast.broker")
_DELIVERS = re.compile(rb"/v1/([^/?]+)/consumers/([^/?]+)/(?:stream|ws|messages)(?:\?|$)")
_TOGETHER = 1_000
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
WRITER = 0
COUNTED = ("matched", "delivered", "replayed", "gaps", "closed_slow", "errors")
"""Counters that a worker reports, and that count as the writer's."""


def place_of(space: str, consumer: str, n_workers: int) -> int:
    """The process that delivers to a consumer, from 1 on."""
    return 1 + zlib.crc32(f"{space}/{consumer}".encode()) % n_workers


def place_of_request(url: bytes, n_workers: int) -> int:
    """The process that must answer a request."""
    found = _DELIVERS.match(url)
    if found is None:
        return WRITER
    space, consumer = (unquote_to_bytes(part).decode("utf-8", "replace") for part in found.groups())
    return place_of(space, consumer, n_workers)


class _Worker:
    """A process that delivers, and the channel to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None
        self.pause = _SHORTEST_PAUSE


class Workers:
    """The processes that deliver for this one; used on the event loop alone."""

    def __init__(self, broker: Broker, n: int) -> None:
        self._broker = broker
        self.n = n
        self._workers = [_Worker(number) for number in range(1, n + 1)]
        self._ending = False

    def start(self) -> None:
        """Start the processes; connections wait for them until they are ready."""
        for worker in self._workers:
            self._start(worker)

    def _start(self, worker: _Worker) -> None:
        if self._ending:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "rangecast.broker.worker", str(theirs.fileno())]
        # a session of its own: Ctrl-C is for the writer, which ends them in order
        worker.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        worker.channel = Channel(
            ours, lambda message, handle: self._take(worker, message, handle), lambda: self._lost(worker)
        )
        settings = self._broker.settings
        worker.channel.send(
            "start",
            worker.number,
            self.n,
            {
                "data": str(settings.data),
                "tokens": None if settings.tokens is None else str(settings.tokens),
                "host": settings.host,
                "host_names": settings.host_names,
                "origins": settings.origins,
                "level": logging.getLogger("rangecast").getEffectiveLevel(),
            },
        )
        for space in self._broker.spaces.values():
            self._tell_space(worker, space)

    def _tell_space(self, worker: _Worker, space: Space) -> None:
        assert worker.channel is not None
        worker.channel.send("space", space.name, space.mark())
        own = [
            (consumer, cursor)
            for consumer, cursor in space.cursors.items()
            if place_of(space.name, consumer, self.n) == worker.number
        ]
        for k in range(0, len(own), _TOGETHER):
            worker.channel.send("cursors", space.name, own[k : k + _TOGETHER])

    def add_space(self, space: Space) -> None:
        """Have a space delivered that was opened just now."""
        space.followers = self
        for worker in self._workers:
            if worker.channel is not None:
                self._tell_space(worker, space)

    def tell_mark(self, space: Space, mark: LogMark) -> None:
        """Say how far log and store are."""
        for worker in self._workers:
            if worker.channel is not None:
                worker.channel.send("mark", space.name, mark)

    def tell_cursors(self, space: Space, cursors: Sequence[tuple[str, int | None]]) -> None:
        """Say how far consumers have acknowledged."""
        for consumer, cursor in cursors:
            self._to(space.name, consumer, "cursors", space.name, [(consumer, cursor)])

    def tell_ticket(self, ticket: str, space: str, consumer: str, access: Access) -> None:
        """Hand a ticket to where it will be used."""
        scopes, spaces, consumers = sorted(access.scopes), sorted(access.spaces), sorted(access.consumers)
        rights = access.name, scopes, spaces, consumers, access.key
        self._to(space, consumer, "ticket", ticket, space, consumer, *rights)

    def close_consumer(self, space: str, consumer: str, reason: str) -> None:
        """End the connections of a consumer."""
        self._to(space, consumer, "close", space, consumer, reason)

    def _to(self, space: str, consumer: str, *message: Any) -> None:
        worker = self._workers[place_of(space, consumer, self.n) - 1]
        if worker.channel is not None:
            worker.channel.send(*message)

    def hand_over(self, place: int, raw: bytes, handle: int) -> bool:
        """Give a connection to a worker; whether it was taken."""
        channel = self._workers[place - 1].channel
        if channel is None:
            return False
        channel.send("connection", raw, handle=handle)
        return True

    def _take(self, worker: _Worker, message: list[Any], handle: int) -> None:
        match message:
            case ["connection", raw]:
                self._broker.adopt(socket.socket(fileno=handle), raw)
            case ["ack", space, consumer, sequence, number]:
                task = asyncio.ensure_future(self._acknowledge(worker, space, consumer, sequence, number))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            case ["status", space, listed, counts, latencies]:
                self._count(worker, space, listed, counts, latencies)

    async def _acknowledge(
        self, worker: _Worker, space: str, consumer: str, sequence: int | None, number: int
    ) -> None:
        try:
            pump = self._broker.spaces[space].pump
            found = await asyncio.wrap_future(pump.acknowledge(consumer, sequence))
            answer: tuple[Any, ...] = ("acked", number, found, "")
        except Exception as error:
            answer = ("acked", number, None, str(error))
        if worker.channel is not None:
            worker.channel.send(*answer)

    def _count(
        self, worker: _Worker, name: str, listed: list[Any], counts: dict[str, float], latencies: list[float]
    ) -> None:
        space = self._broker.spaces.get(name)
        if space is None:
            return
        worker.pause = _SHORTEST_PAUSE  # it has come so far that it delivers
        space.elsewhere[worker.number] = [(c, state, position) for c, state, position in listed]
        for counter in COUNTED:
            getattr(space.metrics, counter).inc(counts.get(counter, 0))
        for seconds in latencies:
            space.metrics.latency.observe(seconds)

    def _lost(self, worker: _Worker) -> None:
        worker.channel = None
        for space in self._broker.spaces.values():
            space.elsewhere.pop(worker.number, None)
        if worker.process is not None and worker.process.poll() is None and not self._ending:
            worker.process.kill()  # it closed its channel and lives: it can do nothing more
        if self._ending:
            return
        _log.error("a worker has ended and is started again", extra={"worker": worker.number})
        loop = asyncio.get_running_loop()
        loop.call_later(worker.pause, self._restart, worker)
        worker.pause = min(_LONGEST_PAUSE, 2 * worker.pause)

    def _restart(self, worker: _Worker) -> None:
        if worker.process is not None:
            worker.process.wait()
        self._start(worker)

    def drain(self) -> None:
        """Have the connections ended, and the processes after them."""
        self._ending = True
        for worker in self._workers:
            if worker.channel is not None:
                worker.channel.send("drain")

    async def stop(self) -> None:
        """Wait for the processes; those that take too long are killed."""
        self.drain()
        for worker in self._workers:
            if worker.process is None:
                continue
            try:
                await asyncio.to_thread(worker.process.wait, 15)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                await asyncio.to_thread(worker.process.wait)
            if worker.channel is not None:
                worker.channel.close()
                worker.channel = None

    def processes(self) -> list[int]:
        """The process numbers, of those that live."""
        return [w.process.pid for w in self._workers if w.process is not None and w.process.poll() is None]
