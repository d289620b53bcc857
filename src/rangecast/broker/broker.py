"""The broker: its spaces, who may use them, and what it counts. `app.py` puts it behind HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rangecast.broker.access import (
    ANYBODY,
    Access,
    BrokerError,
    ConflictError,
    NotFoundError,
    Pacer,
    SpaceLimits,
    Tickets,
    TokenFile,
    UnauthorizedError,
    UnavailableError,
)
from rangecast.broker.directory import NAME
from rangecast.broker.metrics import Metrics, SpaceMetrics
from rangecast.broker.space import Opening, Space
from rangecast.broker.webhooks import Webhooks
from rangecast.errors import StorageError
from rangecast.types.schema import Schema

_log = logging.getLogger("rangecast.broker")
SLOW_SECONDS = 30.0
_REFUSALS_SECONDS = 60.0
_WATCH_SECONDS = 1.0


@dataclass
class BrokerSettings:
    """Where a broker keeps its data, where it listens, and whom it lets in."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    origins: list[str] = field(default_factory=list)
    """Origins of pages that may call the broker from a browser (CORS)."""
    host_names: list[str] = field(default_factory=list)
    """Names by which the broker is called without tokens, beside localhost and where it listens."""
    open_connections: int = 25_000
    """Connections of all kinds that may be open at a time; more are answered with 503."""
    limits: SpaceLimits = field(default_factory=SpaceLimits)
    """What differs from the usual here is set in every space."""
    space_limits: dict[str, SpaceLimits] = field(default_factory=dict)
    """By space, what differs there."""
    hooks: bool = True
    """Whether consumers may name a webhook."""
    private_hooks: bool = False
    """Whether a webhook may lie on a private or loopback address."""


class Broker:
    """All spaces of one data folder, open for service."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.tokens = None if settings.tokens is None else TokenFile(settings.tokens)
        self.tickets = Tickets()
        self.pacer = Pacer()
        self.spaces: dict[str, Space] = {}
        self.webhooks = Webhooks(self)
        self.connections: set[Any] = set()
        """The connections of the server, of all kinds."""
        self.most_connections = settings.open_connections
        self._told_of_refusals = -math.inf
        self._told_of_tokens = ""
        self._checked_reads = 0, 0
        self.ending = False
        self._prepare: Callable[[], None] | None = None
        self.opening: Opening | None = None
        """What is done before all spaces are open; None when they are."""
        self.on_open: Callable[[BaseException | None], None] = lambda _: None
        """Called on the event loop when all spaces are open, or with why they cannot be."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        self._making = asyncio.Lock()
        settings.data.mkdir(parents=True, exist_ok=True)

    async def make_space(self, name: str, schema: Schema, object_key: str | None = None) -> None:
        """`ensure_space` for requests: in a thread, since it waits for the disk, and one after the other, so
        that of several who ask for a new space at once one makes it and the others find it."""
        async with self._making:
            await asyncio.to_thread(self.ensure_space, name, schema, object_key)

    def ensure_space(
        self,
        name: str,
        schema: Schema,
        object_key: str | None = None,
        index: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a space unless it is there; ConflictError when it has another schema, object key or index.

        `index` and `options` say which kind of index matches its events, `auto` by default.
        """
        folder = self._folder(name)
        if Space.exists(folder):
            space = self.spaces.get(name) or self._open(folder)
            if space.schema.to_dict() != schema.to_dict():
                raise ConflictError(f"the space {name!r} has another schema: {space.schema.to_dict()}")
            if Space.stored_key(folder) != object_key:
                raise ConflictError(
                    f"the space {name!r} has another object key: {Space.stored_key(folder)!r}"
                )
            store = space.store
            if index not in (None, store.kind) or (options is not None and dict(options) != store.options):
                made = f"the index {store.kind!r} and the options {store.options}"
                raise ConflictError(f"the space {name!r} was made with {made}")
            return
        Space.create(folder, schema, SpaceLimits(), object_key, index, options)
        self._open(folder)

    def _folder(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise BrokerError(f"a space must be named by letters, digits and ._~:@+-, got {name[:60]!r}")
        return self.settings.data / name

    def open(self) -> None:
        """Open all spaces of the data folder."""
        for folder in sorted(self.settings.data.iterdir()):
            if Space.exists(folder) and folder.name not in self.spaces:
                self._open(folder)

    def _open(self, folder: Path) -> Space:
        own = self.settings.space_limits.get(folder.name, SpaceLimits())
        limits = Space.set_limits(folder, {**self.settings.limits.changed(), **own.changed()})
        space = Space(
            folder,
            limits,
            SpaceMetrics(self.metrics, folder.name),
            lambda step: None if self.opening is None else self.opening.begin(f"space {folder.name}, {step}"),
        )
        space.metrics.subscriptions.set(len(space.directory))
        if self._loop is not None:
            space.start(self._loop)
        # a new dict: others go through the old one
        self.spaces = {**self.spaces, folder.name: space}
        return space

    def open_later(self, prepare: Callable[[], None], tell: Callable[[str], None]) -> None:
        """Have the spaces opened by `prepare` in a thread, once the broker listens; `tell` hears of it."""
        self._prepare = prepare
        self.opening = Opening(tell)

    async def start(self) -> None:
        """Begin to serve, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._watch = asyncio.create_task(self._watch_connections())
        if self._prepare is None:
            for space in self.spaces.values():
                space.start(self._loop)
            self._opened(None)
        else:
            # a daemon: compiling cannot be stopped, and whoever ends the broker does not wait for it
            threading.Thread(target=self._open_all, name="spaces", daemon=True).start()

    def _open_all(self) -> None:
        prepare, opening, loop = self._prepare, self.opening, self._loop
        assert prepare is not None
        assert opening is not None
        assert loop is not None
        failed: BaseException | None = None
        with opening:
            try:
                prepare()
            except BaseException as error:
                failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._opened, failed)

    def _opened(self, failed: BaseException | None) -> None:
        """All spaces are open: send to webhooks, be ready."""
        if failed is None and not self.ending:
            self.opening = None
            self.webhooks.start()
        self.on_open(failed)

    async def stop(self) -> None:
        """End all connections, write everything, and let go of the files."""
        self.drain()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        await self.webhooks.stop()
        for space in self.spaces.values():
            await asyncio.to_thread(space.close)

    def drain(self) -> None:
        """Take no more connections, and end those that there are; their cursors stay."""
        self.ending = True
        for space in self.spaces.values():
            for listener in list(space.listeners):
                listener.close("the broker is ending")

    def check_open(self) -> None:
        """UnavailableError while spaces are being opened."""
        opening = self.opening
        if opening is not None:
            raise UnavailableError(f"the broker is not ready: {opening.describe()}", 2)

    def space(self, name: str) -> Space:
        """A space by name."""
        found = self.spaces.get(name)
        if found is None:
            self.check_open()
            raise NotFoundError(f"there is no space {name[:60]!r}")
        return found

    def access(self, header: str | None) -> Access:
        """What the sender of a request may do, by its Authorization header."""
        if self.tokens is None:
            return ANYBODY
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise UnauthorizedError("a request must have the header 'Authorization: Bearer TOKEN'")
        return self.tokens.find(token.strip())

    def count_refusal(self) -> None:
        """A connection was one too many; the log says so once a minute at most."""
        self.metrics.connections_refused.inc()
        now = time.monotonic()
        if now - self._told_of_refusals > _REFUSALS_SECONDS:
            self._told_of_refusals = now
            _log.warning("connections are refused", extra={"open_connections": self.most_connections})

    async def _watch_connections(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self._close_revoked()
            now = time.monotonic()
            for space in list(self.spaces.values()):
                space.close_slow(now, SLOW_SECONDS)

    def _close_revoked(self) -> None:
        """End the connections whose token was revoked, or allows them no more."""
        tokens = self.tokens
        if tokens is None:
            return
        try:
            tokens.refresh()
        except StorageError as error:
            # requests are answered with 503; who is connected stays until the file can be read
            if str(error) != self._told_of_tokens:
                self._told_of_tokens = str(error)
                _log.error("%s", error)
            return
        self._told_of_tokens = ""
        # once more at the next turn: a connection may have been let in, and not have been there at this one
        if self._checked_reads == (tokens.n_reads, tokens.n_reads):
            return
        self._checked_reads = self._checked_reads[1], tokens.n_reads
        for space in list(self.spaces.values()):
            for listener in list(space.listeners):
                if listener.access is None:
                    continue
                try:
                    tokens.now(listener.access).check("subscribe", space.name, listener.consumer)
                except BrokerError:
                    listener.close("the token was revoked")

    def measure(self, access: Access = ANYBODY) -> bytes:
        """The text of /metrics, with the spaces that somebody may see."""
        for space in self.spaces.values():
            status = space.status()
            metrics = space.metrics
            metrics.expressions.set(status["expressions"])
            metrics.connections.set(status["connections"])
            metrics.live.set(status["states"]["live"])
            metrics.behind.set(status["states"]["behind"])
            metrics.stalled.set(status["states"]["stalled"])
            metrics.lag.set(status["waiting_events"])
            metrics.log_bytes.set(status["log_bytes"])
        self.metrics.open_connections.set(len(self.connections))
        return self.metrics.text(access.may_see)

    def status(self, access: Access = ANYBODY) -> dict[str, Any]:
        """The spaces that somebody may see."""
        spaces = [space.status() for name, space in self.spaces.items() if access.may_see(name)]
        return {"spaces": spaces, "ending": self.ending}
