"""The server: uvicorn, with streams written straight to the transport, bounded requests, and an orderly
end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from rangecast.broker.access import UnavailableError
from rangecast.broker.app import error_answer, make_app
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.listener import Listener
from rangecast.errors import OptionError

_log = logging.getLogger("rangecast.broker")
HEAD_SECONDS = 10.0
"""How long a client may take for the head of a request, the first one of a connection and every other, and
for the rest of a body that was answered before it was read."""
TAKE_SECONDS = 30.0
"""How long a client may take nothing of an answer."""
REFUSED_SECONDS = 1.0
"""How long a connection that is one too many may take for its request, which is answered with 503."""
_REFUSED_TOGETHER = 128
"""Connections that may wait for this answer; what comes beyond them is closed at once."""
_FILES = 256
"""Files that are not connections: the log, stores, webhooks."""
HEAD_BYTES = 65_536
_SWITCH_SECONDS = (
    0.0005  # between threads: the matcher must not keep the event loop for 5 ms, Python's default
)

_YOUNG = 50_000  # objects more than at the last collection, which begin the next one


class BrokerProtocol(HttpToolsProtocol):
    """uvicorn's protocol; a stream's listener hears when its transport drains, and heads are bounded."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.listener: Listener | None = None
        self._patience: asyncio.TimerHandle | None = None
        """Ends a connection that has begun to say something and does not say it."""
        self._taking: asyncio.TimerHandle | None = None
        """Ends a connection that takes nothing of an answer."""
        self._refused = False
        self._head_bytes = 0
        self.broker: Broker = self.config.broker  # type: ignore[attr-defined]
        self._between = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        too_many = len(self.connections) - self.broker.most_connections
        if too_many > 0:
            self.broker.count_refusal()
            self._refused = True
            if too_many > _REFUSED_TOGETHER:
                transport.abort()
                return
        self._expect(REFUSED_SECONDS if self._refused else HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._refuse()
            return
        if self._between and self._patience is None:
            self._expect()  # from the first byte on, and be it only the end of a line
        super().data_received(data)

    def _refuse(self) -> None:
        """Answer whatever came with 503."""
        if not self.transport.is_closing():
            most = self.broker.most_connections
            error = UnavailableError(f"the limit 'open_connections' of this broker is {most:,}", 5)
            answer = error_answer(error)
            head = [b"HTTP/1.1 503 Service Unavailable", b"connection: close"]
            head += [name + b": " + value for name, value in answer.raw_headers]
            self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))
            self.transport.close()

    def _expect(self, seconds: float | None = None) -> None:
        """Give the client some time to say the rest of what it says."""
        self._settle()
        # the module's value now, which tests shorten
        self._patience = self.loop.call_later(HEAD_SECONDS if seconds is None else seconds, self._give_up)

    def _give_up(self) -> None:
        self._patience = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # it waits for an answer, and for as long nothing more may be read of it
            self._expect()
            return
        self.transport.abort()

    def _settle(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._patience is not None or not (self._between or self.transport.is_closing()):
            # the next head has begun, or the body was not wanted: the rest of it has its time from here on
            self._expect()
        waiting = self.transport.get_write_buffer_size()
        if waiting and self._taking is None:
            self._taking = self.loop.call_later(TAKE_SECONDS, self._look, waiting)

    def _look(self, before: int) -> None:
        """End the connection if nothing of an answer was taken since the last time."""
        self._taking = None
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before and self.listener is None:
            self.transport.abort()
        elif waiting:
            self._taking = self.loop.call_later(TAKE_SECONDS, self._look, waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        if self._taking is not None:
            self._taking.cancel()
        if self.listener is not None:
            self.listener.close()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._between = False
        if self._patience is None:
            self._expect()
        self.scope["rangecast.protocol"] = self  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name + value)
        super().on_header(name, value)

    def _count(self, piece: bytes) -> None:
        self._head_bytes += len(piece)
        if self._head_bytes > HEAD_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # an upgrade has none before its message ends, which must not take long
            self._settle()

    def on_message_complete(self) -> None:
        self._between = True
        self._settle()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._settle()
        super().handle_websocket_upgrade()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.listener is not None:
            self.listener.drained()


_NO_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BrokerWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket; the transport is known to whoever serves it, and one that hears nothing ends."""

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["rangecast.transport"] = self.transport  # type: ignore[typeddict-unknown-key]

    def data_received(self, data: bytes) -> None:
        """Read frames; the first call has the whole head, and one that is no handshake is answered here."""
        super().data_received(data)
        if not self.handshake_initiated and not self.close_sent:
            # a head with a body, or one too long for the library, which then answers nothing for ever
            self.close_sent = True
            self.transport.write(_NO_HANDSHAKE)
            self.transport.close()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # refused by an answer: otherwise an error is logged for each, and a page could fill the log
            self.handshake_complete = True

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # to close is to wait until the other end has taken what is left


class BrokerServer(uvicorn.Server):
    """uvicorn's server; before it ends, it ends the streams, which would never end by themselves."""

    def __init__(self, config: uvicorn.Config, broker: Broker) -> None:
        super().__init__(config)
        self._broker = broker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        spaces = sorted(self._broker.spaces)
        _log.info("ends", extra={"connections": len(self.server_state.connections), "spaces": spaces})
        self._broker.drain()
        await super().shutdown(sockets)
        # uvicorn would raise the signal again, and an orderly end would look like a failure
        self._captured_signals.clear()


def check_address(settings: BrokerSettings) -> None:
    """Refuse to listen beyond this machine without tokens."""
    try:
        local = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        local = settings.host == "localhost"
    if not local and settings.tokens is None:
        raise OptionError(
            f"listening on {settings.host} lets others in: give --tokens FILE (rangecast token makes them), "
            "or listen on 127.0.0.1"
        )


def check_connections(settings: BrokerSettings) -> None:
    """Refuse a number of connections that is none."""
    most = settings.open_connections
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise OptionError(f"open_connections must be a whole number above 0, got {most!r}")


def most_connections(settings: BrokerSettings) -> int:
    """How many connections may be open: those of the settings, or fewer where files are fewer."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return settings.open_connections
    return max(1, min(settings.open_connections, files - min(_FILES, files // 2)))


def allow_files(settings: BrokerSettings) -> None:
    """Have this process open as many files as its connections need, as far as the system allows."""
    wanted = settings.open_connections + _FILES
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < wanted:
        allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, allowed), most))
    if most_connections(settings) < settings.open_connections:
        _log.warning(
            "the limit of open files allows %s connections, and not %s",
            f"{most_connections(settings):,}",
            f"{settings.open_connections:,}",
        )


def make_server(broker: Broker) -> BrokerServer:
    """A server for a broker, not started yet."""
    settings = broker.settings
    check_address(settings)
    check_connections(settings)
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        make_app(broker),
        host=settings.host,
        port=settings.port,
        http=BrokerProtocol,
        ws=BrokerWebSocket,
        ws_max_size=1 << 16,
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        backlog=4096,
        ssl_certfile=None if settings.certificate is None else str(settings.certificate),
        ssl_keyfile=None if settings.key is None else str(settings.key),
    )
    config.broker = broker  # type: ignore[attr-defined]
    server = BrokerServer(config, broker)
    broker.connections = server.server_state.connections
    broker.most_connections = most_connections(settings)
    return server


def settle_memory() -> None:
    """Have Python look for garbage rarely, once all is loaded; for a process that does nothing but serve.

    What was loaded stays, so nobody goes through it again: a million ids took 15 ms each time. A connection
    has about a hundred objects that a collection goes through, and a match makes some for each connection,
    which are gone when its messages are written: with Python's thresholds, and 2,000 connections, everybody
    stood still for 85 ms every other second. Garbage that only a collection finds is found when there is
    `_YOUNG` of it, which takes 1 to 5 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 10, 10)


def serve(broker: Broker, prepare: Callable[[], None], ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C: listen at once, open the spaces by `prepare`, say when that is done."""
    settings = broker.settings
    secure = settings.certificate is not None
    where = {"host": settings.host, "port": settings.port, "tls": secure}
    _log.info("listens", extra=where)
    # what it says of itself is said here as well, and in better words
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    allow_files(settings)
    server = make_server(broker)
    failures: list[BaseException] = []

    def opened(failed: BaseException | None) -> None:
        if failed is not None:
            failures.append(failed)
            server.should_exit = True
            return
        settle_memory()
        _log.info("serves", extra={**where, "spaces": sorted(broker.spaces)})
        ready()

    broker.on_open = opened
    broker.open_later(prepare, _log.info)
    code: Any = 0
    try:
        server.run()
    except SystemExit as ended:
        code = ended.code
    if failures:
        raise failures[0]
    if broker.opening is not None:
        # a thread compiles or reads, which nothing interrupts; no request was taken, so nothing is lost
        logging.shutdown()
        os._exit(code if isinstance(code, int) else 1)
    if code:
        raise SystemExit(code)


@contextlib.contextmanager
def serving(broker: Broker) -> Iterator[str]:
    """Serve in a thread of this process, on a free port; gives the address. For tests and notebooks."""
    broker.settings.port = broker.settings.port or _free_port(broker.settings.host)
    server = make_server(broker)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    thread = threading.Thread(target=server.run, name="broker", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise OptionError(
                    f"the broker could not listen on {broker.settings.host}:{broker.settings.port}"
                )
            thread.join(0.01)
        scheme = "http" if broker.settings.certificate is None else "https"
        yield f"{scheme}://{broker.settings.host}:{broker.settings.port}"
    finally:
        server.should_exit = True
        thread.join(30)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
