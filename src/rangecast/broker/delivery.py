"""Requests by which a consumer receives: stream, WebSocket, long poll; acknowledge; tickets and webhooks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rangecast.broker.access import Access, BrokerError, BusyError, UnavailableError, new_ticket
from rangecast.broker.bodies import read_body
from rangecast.broker.changes import ChangeRequest
from rangecast.broker.directory import subscription_id
from rangecast.broker.listener import Listener, MessageOutlet, Outlet, PollOutlet, SseOutlet
from rangecast.broker.requests import (
    Json,
    allowed,
    broker_of,
    consumer_of,
    decoded_object,
    run_beside,
    whole_number,
)
from rangecast.broker.space import Space

MOST_MESSAGES = 10_000
LONGEST_WAIT = 60
_WHILE_BEHIND = 5  # seconds in which one that does not wait may be served from the log
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class _Opened(NamedTuple):
    """A connection that may be opened."""

    space: Space
    consumer: str
    position: int
    access: Access

    def listener(self, outlet: Outlet) -> Listener:
        """Its listener, which is not served yet."""
        number = self.space.directory.consumer(self.consumer)
        listener = Listener(self.space, self.consumer, number, self.position, outlet)
        listener.access = self.access
        return listener


def _opened(request: HTTPConnection) -> _Opened:
    """Space, consumer, first sequence number and access of a connection, if it may be opened."""
    consumer = consumer_of(request)
    broker = broker_of(request)
    ticket = request.query_params.get("ticket")
    if ticket is not None and broker.tokens is not None:
        name = request.path_params["space"]
        broker.tokens.refresh()  # the token may have been revoked since it asked for the ticket
        access = broker.tokens.now(broker.tickets.use(ticket, name, consumer))
        access.check("subscribe", name, consumer)
        space = broker.space(name)
    else:
        broker, space, access = allowed(request, "subscribe", consumer)
    if broker.ending:
        raise UnavailableError("the broker is ending")
    _check_room(space, consumer)
    start = space.start_position(
        consumer, request.query_params.get("from"), request.headers.get("last-event-id")
    )
    return _Opened(space, consumer, start, access)


def _check_room(space: Space, consumer: str) -> None:
    """Raise BusyError where there are as many connections as the limits allow."""
    limits = space.limits
    if len(space.listeners) >= limits.connections:
        raise BusyError(f"the limit 'connections' of this space is {limits.connections:,}", 5)
    if limits.consumer_connections < limits.connections:
        own = space.connections_of(consumer)
        if own >= limits.consumer_connections:
            raise BusyError(
                f"the limit 'consumer_connections' is {limits.consumer_connections:,}, and it has {own:,}",
                5,
            )


class _SseResponse(Response):
    """Server-sent events: the head goes by ASGI, everything after it straight to the transport."""

    def __init__(self, opened: _Opened) -> None:
        super().__init__()
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        protocol = scope["rangecast.protocol"]
        outlet = SseOutlet(protocol.transport)
        listener = self._opened.listener(outlet)
        protocol.listener = listener
        outlet.write(b"retry: 1000\n\n")
        listener.space.listen(listener)
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            protocol.listener = None
            listener.close()


async def stream_messages(request: Request) -> Response:
    """Send the messages of a consumer as server-sent events.

    The stream begins after `Last-Event-ID`, at `from`, or after the cursor, and stays open: `match`, and the
    notices `caught_up`, `progress` every 5 seconds, `gap` and `expired`. A connection that takes nothing for
    30 seconds is closed; what it missed is sent when it comes back. Browsers, which can send no token here,
    give a `ticket`.

    400: the name, `from` or `Last-Event-ID` cannot be read
    429: the limit `connections` or `consumer_connections` is reached; `Retry-After` says when to try again

    query: from string, ticket string
    header: Last-Event-ID
    returns: text/event-stream
    example: /v1/main/consumers/alice/stream?from=1
    """
    opened = _opened(request)
    if request.method == "HEAD":
        return Response(headers={name.decode(): value.decode() for name, value in _HEADERS})
    return _SseResponse(opened)


async def poll_messages(request: Request) -> Response:
    """Return the next messages of a consumer, and wait for the first one if asked to.

    At most `max` messages are returned: 100 unless it is given, and no more than 10,000. If there is none,
    the request waits for `wait` seconds: 0 unless it is given, and no more than 60. `next` is the sequence
    number to go on with, as `from`; after an acknowledgement `from` is not needed. `notices` tells of gaps
    and of subscriptions that have expired.

    400: the name, `max`, `wait` or `from` cannot be read
    429: the limit `connections` or `consumer_connections` is reached; `Retry-After` says when to try again

    query: max integer, wait integer, from string, ticket string
    example: /v1/main/consumers/alice/messages?max=10&from=1
    answer: {"messages": [{"sequence": 1, "event": {"symbol": "IBM", "price": 9}, "subscriptions": ["cheap"],
        "version": 3}], "notices": [], "next": 2}
    """
    most = whole_number(request, "max", 100, 1, MOST_MESSAGES)
    wait = whole_number(request, "wait", 0, 0, LONGEST_WAIT)
    opened = _opened(request)
    done = asyncio.Event()
    outlet = PollOutlet(most, done)
    listener = opened.listener(outlet)
    outlet.on_live = None if wait else done.set
    protocol = request.scope["rangecast.protocol"]
    protocol.listener = listener  # who hangs up does not wait here until the time is over
    opened.space.listen(listener)
    try:
        async with asyncio.timeout(wait or _WHILE_BEHIND):
            await done.wait()
    except TimeoutError:
        pass
    finally:
        protocol.listener = None
        next_position = listener.position
        listener.close()
    messages = outlet.messages
    if len(messages) > most:
        messages = messages[:most]
        next_position = msgspec.json.decode(messages[-1])["sequence"] + 1
    body = b'{"messages":[%b],"notices":[%b],"next":%d}' % (
        b",".join(messages), b",".join(outlet.notices), next_position
    )  # fmt: skip
    return Response(body, media_type="application/json")


async def talk(socket: WebSocket) -> None:
    """The messages of a consumer over a WebSocket; the consumer sends {"ack": N}."""
    try:
        opened = _opened(socket)
    except BrokerError as error:
        await socket.close(4000 + error.status, str(error)[:120])
        return
    space, consumer = opened.space, opened.consumer
    await socket.accept()
    try:
        _check_room(space, consumer)  # others came while it was accepted
    except BusyError as error:
        await socket.close(4000 + error.status, str(error)[:120])
        return
    outlet = MessageOutlet()
    listener = opened.listener(outlet)
    space.listen(listener)
    closed = asyncio.Event()
    listener.on_close = closed.set
    tasks = {
        asyncio.create_task(_say(socket, listener, outlet)),
        asyncio.create_task(_hear(socket, space, consumer)),
        asyncio.create_task(closed.wait()),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        reason = next(
            (str(task.exception()) for task in done if isinstance(task.exception(), BrokerError)), ""
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listener.close()
    transport = socket.scope["rangecast.transport"]
    if transport.get_write_buffer_size():
        # nothing can be said to one that does not read, and the connection would stay for as long as it likes
        transport.abort()
        return
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the other end was first
        await socket.close(4400 if reason else 1001, reason[:120])


async def _say(socket: WebSocket, listener: Listener, outlet: MessageOutlet) -> None:
    while not outlet.ended:
        for message in await outlet.take():
            await socket.send_text(message.decode())
        if outlet.sent():
            listener.drained()


async def _hear(socket: WebSocket, space: Space, consumer: str) -> None:
    while True:
        try:
            text = await socket.receive_text()
        except (WebSocketDisconnect, KeyError):
            return
        content = decoded_object(text.encode("utf-8", "surrogatepass")[:65_536])
        sequence = _acknowledged(content.get("ack"), "ack", space)
        await asyncio.wrap_future(space.pump.acknowledge(consumer, sequence))


def _acknowledged(value: Any, what: str, space: Space) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < space.log.durable:
        raise BrokerError(
            f"{what} must be the sequence number of an event, below {space.log.durable}, got {value!r}"
        )
    return value


async def acknowledge(request: Request) -> Response:
    """Acknowledge every message up to a sequence number.

    The answer comes when the cursor is on disk, and says where it is: a number below it changes nothing. A
    connection without `from` begins after it.

    400: `sequence` is not the number of an event that was published

    body: {"sequence": 1}
    answer: {"sequence": 1}
    """
    consumer = consumer_of(request)
    _, space, _ = allowed(request, "subscribe", consumer)
    raw = await read_body(request, space.limits)
    content = await run_beside(len(raw), decoded_object, raw)
    sequence = _acknowledged(content.get("sequence"), "sequence", space)
    return Json({"sequence": await asyncio.wrap_future(space.pump.acknowledge(consumer, sequence))})


async def get_consumer(request: Request) -> Response:
    """Return how far a consumer is, with its subscriptions and connections counted.

    `acknowledged` is the cursor, null if there is none; `unacknowledged` counts the events after it, and
    `behind` those that were not sent yet to the connection that is furthest. A connection is live, behind or
    stalled.

    answer: {"consumer": "alice", "subscriptions": 1, "expressions": 0, "acknowledged": 1,
        "unacknowledged": 0, "behind": 0, "connections": []}
    """
    consumer = consumer_of(request)
    _, space, _ = allowed(request, "subscribe", consumer)
    return Json(space.describe_consumer(consumer))


async def delete_consumer(request: Request) -> Response:
    """Delete a consumer: its subscriptions, cursor, webhook and dead letters; its connections are closed.

    Nothing of it is left. Events stay in the log, as they concern others.

    answer: {"consumer": "alice", "deleted": 1, "version": 4}
    """
    consumer = consumer_of(request)
    broker, space, _ = allowed(request, "subscribe", consumer)
    number = space.directory.find_consumer(consumer)

    def names() -> list[str]:
        with space.lock:
            return [] if number is None else space.directory.names_of(number)

    # the lock may be held for as long as many subscriptions are taken in
    own = await asyncio.to_thread(names)
    change = ChangeRequest([subscription_id(consumer, name) for name in own], single=False)
    answer = await asyncio.wrap_future(space.changer.submit(change))
    await asyncio.wrap_future(space.pump.acknowledge(consumer, None))
    broker.webhooks.delete(space, consumer)
    broker.webhooks.clear(space, consumer)
    for listener in list(space.listeners):
        if listener.consumer == consumer:
            listener.close("the consumer was deleted")
    return Json({"consumer": consumer, "deleted": answer["deleted"], "version": answer["version"]})


async def give_ticket(request: Request) -> Response:
    """Give a ticket for one connection, for browsers, whose EventSource cannot send a token.

    A ticket opens one stream or WebSocket of this consumer, within half a minute, and is used up by that.

    answer: {"ticket": "..."}
    """
    consumer = consumer_of(request)
    broker, space, access = allowed(request, "subscribe", consumer)
    ticket = new_ticket()
    broker.tickets.keep(ticket, space.name, consumer, access)
    return Json({"ticket": ticket})


async def put_webhook(request: Request) -> Response:
    """Have the messages of a consumer sent to an address.

    `url` is an address of http or https, without a password, and `secret`, of at least 16 letters, signs what
    is sent. It replaces the webhook that the consumer has. See [webhooks](#webhooks).

    400: the address or the secret cannot be used
    403: the token does not allow it, or the broker sends to no webhooks

    body: {"url": "https://example.org/hook", "secret": "at least 16 letters"}
    answer: {"url": "https://example.org/hook", "dead_letters": 0}
    """
    consumer = consumer_of(request)
    broker, space, _ = allowed(request, "subscribe", consumer)
    raw = await read_body(request, space.limits)
    content = await run_beside(len(raw), decoded_object, raw)
    url, secret = content.get("url"), content.get("secret")
    if not isinstance(url, str) or not isinstance(secret, str):
        raise BrokerError("a webhook must have url and secret, both strings")
    return Json(broker.webhooks.put(space, consumer, url, secret))


async def get_webhook(request: Request) -> Response:
    """Return the webhook of a consumer.

    `url` is null if there is none. The secret is never shown.

    answer: {"url": "https://example.org/hook", "dead_letters": 0}
    """
    consumer = consumer_of(request)
    broker, space, _ = allowed(request, "subscribe", consumer)
    return Json(broker.webhooks.get(space, consumer))


async def delete_webhook(request: Request) -> Response:
    """Delete the webhook of a consumer; nothing more is sent to it.

    The cursor stays, and so do the dead letters.

    answer: {"consumer": "alice"}
    """
    consumer = consumer_of(request)
    broker, space, _ = allowed(request, "subscribe", consumer)
    broker.webhooks.delete(space, consumer)
    return Json({"consumer": consumer})


async def list_dead_letters(request: Request) -> Response:
    """Return the messages that the webhook of a consumer did not take.

    The last 1,000 messages that the webhook did not take in 8 attempts, oldest first.

    answer: {"messages": []}
    """
    consumer = consumer_of(request)
    broker, space, _ = allowed(request, "subscribe", consumer)
    return Json({"messages": broker.webhooks.letters(space, consumer)})


async def clear_dead_letters(request: Request) -> Response:
    """Delete the messages that the webhook of a consumer did not take.

    They are gone for good.

    answer: {"messages": []}
    """
    consumer = consumer_of(request)
    broker, space, _ = allowed(request, "subscribe", consumer)
    broker.webhooks.clear(space, consumer)
    return Json({"messages": []})
