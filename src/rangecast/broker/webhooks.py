"""Webhooks: a consumer's messages, sent to an address of its own by POST.

A webhook is a listener like any other: it stands at a sequence number, is served from the log when it is
behind, and acknowledges what its address has taken. One request carries up to a hundred messages:

    POST https://example.org/hook
    X-Rangecast-Consumer: alice
    X-Rangecast-Signature: sha256=<HMAC of the body with the webhook's secret>
    {"messages": [{"type": "match", "sequence": 41, ...}]}

Any answer from 200 to 299 acknowledges all of them. Anything else is tried again, after 1, 2, 4, ... up to
60 seconds; a redirection is not followed, since nobody has checked where it leads. After `ATTEMPTS` of them
the messages go to the dead letters of the consumer (the last thousand are kept, and can be read and cleared),
and the webhook goes on with what follows.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from rangecast.broker.errors import BrokerError, ForbiddenError
from rangecast.broker.journal import Journal
from rangecast.broker.listener import Listener, MessageOutlet

if TYPE_CHECKING:
    from rangecast.broker.broker import Broker
    from rangecast.broker.space import Space

ATTEMPTS = 8
FIRST_PAUSE = 1.0
RESTART_PAUSE = 1.0
TOGETHER = 100
DEAD_LETTERS = 1_000
_SECONDS = 10.0


class Webhooks:
    """The webhooks of all spaces of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._journals: dict[str, Journal] = {}
        self._letters: dict[str, Journal] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to send for all webhooks that are known."""
        for space in self._broker.spaces.values():
            for consumer, _ in self._journal(space).items():
                self._begin(space, consumer)

    async def stop(self) -> None:
        """End all tasks; what was not acknowledged is sent again after the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def put(self, space: Space, consumer: str, url: str, secret: str) -> dict[str, Any]:
        """Give a consumer a webhook, in place of the one that it has."""
        if not self._broker.settings.hooks:
            raise ForbiddenError("this broker sends to no webhooks")
        if not _usable(url):
            raise BrokerError(
                f"a webhook must be an address of http or https without a password, got {url[:100]!r}"
            )
        if len(secret) < 16:
            raise BrokerError(f"the secret of a webhook must have at least 16 letters, got {len(secret)}")
        journal = self._journal(space)
        journal.put(consumer, {"url": url, "secret": secret})
        journal.sync()
        self._end(space, consumer)
        self._begin(space, consumer)
        return self.get(space, consumer)

    def get(self, space: Space, consumer: str) -> dict[str, Any]:
        """The webhook of a consumer, without its secret."""
        found = self._journal(space).get(consumer)
        return {
            "url": None if found is None else found["url"],
            "dead_letters": len(self.letters(space, consumer)),
        }

    def delete(self, space: Space, consumer: str) -> None:
        """Take a webhook away."""
        journal = self._journal(space)
        journal.put(consumer, None)
        journal.sync()
        self._end(space, consumer)

    def letters(self, space: Space, consumer: str) -> list[Any]:
        """The messages that could not be delivered."""
        return list(self._letter_journal(space).get(consumer, []))

    def clear(self, space: Space, consumer: str) -> None:
        """Forget the messages that could not be delivered."""
        journal = self._letter_journal(space)
        journal.put(consumer, None)
        journal.sync()

    def _journal(self, space: Space) -> Journal:
        return _opened(self._journals, space, "webhooks.journal")

    def _letter_journal(self, space: Space) -> Journal:
        return _opened(self._letters, space, "dead_letters.journal")

    def _begin(self, space: Space, consumer: str) -> None:
        self._tasks[space.name, consumer] = asyncio.get_running_loop().create_task(
            self._keep_sending(space, consumer)
        )

    def _end(self, space: Space, consumer: str) -> None:
        task = self._tasks.pop((space.name, consumer), None)
        if task is not None:
            task.cancel()

    async def _send(self, space: Space, consumer: str) -> None:
        outlet = MessageOutlet()
        position = space.start_position(consumer, None, None)
        listener = Listener(space, consumer, space.directory.consumer(consumer), position, outlet)
        # one that does not answer is tried again for longer than a connection may take nothing
        listener.patient = True
        space.listen(listener)
        try:
            while not outlet.ended:
                messages = await outlet.take()
                for k in range(0, len(messages), TOGETHER):
                    await self._send_some(space, consumer, messages[k : k + TOGETHER])
                if outlet.sent():
                    listener.drained()
        finally:
            listener.close()

    async def _keep_sending(self, space: Space, consumer: str) -> None:
        """Send, and begin again after the cursor where something fails here: a full disk, say."""
        while not self._broker.ending:
            try:
                await self._send(space, consumer)
            except Exception as error:
                space.log_error("sending to a webhook", error)
            await asyncio.sleep(RESTART_PAUSE)

    async def _send_some(self, space: Space, consumer: str, messages: list[bytes]) -> None:
        told = [
            message
            for message in messages
            if not message.startswith((b'{"type":"progress"', b'{"type":"caught'))
        ]
        if told:
            body = b'{"messages":[%b]}' % b",".join(told)
            if not await self._try(space, consumer, body):
                journal = self._letter_journal(space)
                letters = [*journal.get(consumer, []), *(msgspec.json.decode(message) for message in told)]
                journal.put(consumer, letters[-DEAD_LETTERS:])
                journal.sync()
        last = [msgspec.json.decode(message).get("sequence") for message in messages]
        known = [sequence for sequence in last if sequence is not None]
        if known:
            await asyncio.wrap_future(space.pump.acknowledge(consumer, max(known)))

    async def _try(self, space: Space, consumer: str, body: bytes) -> bool:
        hook = self._journal(space).get(consumer)
        pause = FIRST_PAUSE
        for attempt in range(ATTEMPTS):
            try:
                status = await asyncio.to_thread(
                    _post, hook["url"], hook["secret"], consumer, body, self._broker.settings.private_hooks
                )
                if 200 <= status < 300:
                    space.metrics.hooks_sent.inc()
                    return True
            except (OSError, http.client.HTTPException, BrokerError, ValueError):
                pass  # ValueError: a host that no name server takes
            space.metrics.hooks_failed.inc()
            if attempt + 1 < ATTEMPTS:
                await asyncio.sleep(pause)
                pause = min(60.0, 2 * pause)
        return False


def _opened(journals: dict[str, Journal], space: Space, name: str) -> Journal:
    """The journal of a space, which is read once."""
    if space.name not in journals:
        journals[space.name] = Journal(space.folder / name)
    return journals[space.name]


def sign(secret: str, body: bytes) -> str:
    """The signature of a request to a webhook."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _post(url: str, secret: str, consumer: str, body: bytes, private: bool) -> int:
    parts = urlsplit(url)
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _resolved(parts.hostname, port, private)
    raw = socket.create_connection(address, _SECONDS)
    try:
        if parts.scheme == "https":
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=parts.hostname)
        connection = http.client.HTTPConnection(parts.hostname, port, timeout=_SECONDS)
        connection.sock = raw
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Content-Type": "application/json",
            "X-Rangecast-Consumer": consumer,
            "X-Rangecast-Signature": sign(secret, body),
        }
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        response.read(65_536)
        return response.status
    finally:
        raw.close()


def _usable(url: str) -> bool:
    """Whether requests can be sent to an address."""
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:  # no number, or too large a one; a name that is none
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username and port != 0


def _resolved(host: str, port: int, private: bool) -> tuple[str, int]:
    """The address to connect to: resolved once, so that what was checked is what is used."""
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if private or ipaddress.ip_address(address[0]).is_global:
            return str(address[0]), int(address[1])
    raise BrokerError(f"the webhook's host {host!r} has no public address")
