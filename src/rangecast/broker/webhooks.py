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

Everything here waits on the event loop, each webhook for itself: an address that answers a byte at a time
costs a connection and no thread, and it has ten seconds for looking up its name, connecting, and answering
to the end. Only names are looked up in threads, since the system knows no other way.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import socket
import ssl
import threading
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import httptools
import msgspec

from rangecast.broker.access import BrokerError, ForbiddenError
from rangecast.broker.listener import Listener, MessageOutlet
from rangecast.durable.lines import Journal

if TYPE_CHECKING:
    from rangecast.broker.broker import Broker
    from rangecast.broker.space import Space

ATTEMPTS = 8
FIRST_PAUSE = 1.0
RESTART_PAUSE = 1.0
TOGETHER = 100
DEAD_LETTERS = 1_000
EXCHANGE_SECONDS = 10.0
"""How long one request and its answer may take together, however they come."""
_ANSWER_BYTES = 65_536
_LOOKUPS = 256
"""Hosts that may be looked up at a time, each in a thread."""
_AS_THEY_ARE = "/?%:@!$&'()*+,;=-._~[]|"


class Webhooks:
    """The webhooks of all spaces of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._journals: dict[str, Journal] = {}
        self._letters: dict[str, Journal] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._names = _Names()

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
                status = await self._post(hook["url"], hook["secret"], consumer, body)
                if 200 <= status < 300:
                    space.metrics.hooks_sent.inc()
                    return True
            except (OSError, httptools.HttpParserError, httptools.HttpParserUpgrade, BrokerError, ValueError):
                pass  # ValueError: a host that no name server takes; OSError: also when its time is over
            space.metrics.hooks_failed.inc()
            if attempt + 1 < ATTEMPTS:
                await asyncio.sleep(pause)
                pause = min(60.0, 2 * pause)
        return False

    async def _post(self, url: str, secret: str, consumer: str, body: bytes) -> int:
        parts = urlsplit(url)
        assert parts.hostname is not None
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname.encode("idna").decode()
        host = name if parts.port is None else f"{name}:{port}"
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), _AS_THEY_ARE)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\nX-Rangecast-Consumer: {consumer}\r\n"
            f"X-Rangecast-Signature: {sign(secret, body)}\r\n\r\n"
        ).encode("ascii")
        answer = _HookAnswer()
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                address = await self._names.look_up(parts.hostname, port, self._broker.settings.private_hooks)
                await _exchange(address, parts.hostname if tls else None, (head, body), answer)
        except OSError:  # also when the time is over
            if not answer.status:
                raise
        return answer.status


class _Names:
    """Addresses of hosts, each from a thread of its own that nobody waits for.

    A name server may take a minute, and nothing ends the call: in a pool, a few such hosts would keep the
    threads from everybody, and the process from ending.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int], asyncio.Future[tuple[str, int]]] = {}
        self._room = asyncio.Semaphore(_LOOKUPS)

    async def look_up(self, host: str, port: int, private: bool) -> tuple[str, int]:
        """The address to connect to."""
        key = host, port
        if key not in self._asked:
            await self._room.acquire()
            if key in self._asked:  # somebody else was faster
                self._room.release()
            else:
                self._ask(key, private)
        # all who ask for one host wait for the same answer, and one that gives up ends nothing
        return await asyncio.shield(self._asked[key])

    def _ask(self, key: tuple[str, int], private: bool) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[str, int]] = loop.create_future()
        self._asked[key] = future

        def settle(address: tuple[str, int] | None, error: Exception | None) -> None:
            del self._asked[key]
            self._room.release()
            if address is not None:
                future.set_result(address)
            else:
                assert error is not None
                future.set_exception(error)
                future.exception()  # whoever asked may have given up

        def ask() -> None:
            address: tuple[str, int] | None = None
            failed: Exception | None = None
            try:
                address = _resolved(*key, private)
            except Exception as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, address, failed)

        threading.Thread(target=ask, name="webhook host", daemon=True).start()


def _opened(journals: dict[str, Journal], space: Space, name: str) -> Journal:
    """The journal of a space, which is read once."""
    if space.name not in journals:
        journals[space.name] = Journal(space.folder / name)
    return journals[space.name]


def sign(secret: str, body: bytes) -> str:
    """The signature of a request to a webhook."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class _HookAnswer:
    """What has come of the answer to a request, for httptools."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._n_bytes = 0
        self.status = 0
        """The status, once the head is there."""
        self.complete = False

    def take(self, data: bytes) -> None:
        """Read some bytes; HttpParserError where they cannot be one."""
        self._n_bytes += len(data)
        self._parser.feed_data(data)

    def enough(self) -> bool:
        """Whether nothing more must be read: its end is there, or more than anybody needs."""
        return self.complete or self._n_bytes > _ANSWER_BYTES

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        self.complete = self.status >= 200  # 100 and its like come before the answer


async def _exchange(
    address: tuple[str, int], tls_host: str | None, request: tuple[bytes, bytes], answer: _HookAnswer
) -> None:
    """Send a request on a connection of its own, and read the answer to its end."""
    options = {} if tls_host is None else {"ssl": _tls_context(), "server_hostname": tls_host}
    reader, writer = await asyncio.open_connection(*address, **options)  # type: ignore[arg-type]
    try:
        # not drained first: one that answers before it has read everything is heard all the same
        writer.writelines(request)
        while not answer.enough():
            data = await reader.read(16_384)
            if not data:
                return
            answer.take(data)
    finally:
        writer.transport.abort()  # what was not taken is not waited for


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


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
        if private or is_public(str(address[0])):
            return str(address[0]), int(address[1])
    raise BrokerError(f"the webhook's host {host!r} has no public address")


# What ipaddress calls global and is not the public internet: relays and tunnels carry an IPv4 address inside,
# which may be a private one, and some blocks have single exceptions that nobody serves webhooks on.
_NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # relays of 6to4
        "224.0.0.0/4",  # multicast
        "2001::/23",  # protocol assignments, Teredo among them
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
]
_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is given to anybody: mapped, translated (NAT64) and local addresses lie outside."""


def is_public(text: str) -> bool:
    """Whether an address lies in the public internet, and names no other address inside itself.

    >>> is_public("93.184.216.34"), is_public("10.0.0.1"), is_public("64:ff9b::7f00:1")
    (True, False, False)
    """
    address = ipaddress.ip_address(text)
    if address.version == 6 and (address not in _UNICAST or address.scope_id is not None):
        return False
    return address.is_global and not any(address in network for network in _NOT_PUBLIC)
