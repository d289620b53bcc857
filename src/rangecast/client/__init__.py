"""Clients of the live broker: `Client` for threads, `AsyncClient` for asyncio. Neither needs more than
rangecast itself.

    from rangecast.client import Client

    client = Client("http://127.0.0.1:8080")
    client.subscribe("alice", "cheap", "price < 10 and symbol = 'IBM'")
    client.publish([{"symbol": "IBM", "price": 9}])
    for message in client.stream("alice"):
        print(message.sequence, message.event, message.subscriptions)
        client.ack("alice", message.sequence)

Both try again what may be tried again: a publication carries an Idempotency-Key, so that it is logged once
however often it is sent; a stream that breaks is opened again after the last message that was received.

    wire.py        messages, errors, server-sent events
    threads.py     Client and Publisher
    tasks.py       AsyncClient
"""

from rangecast.client.tasks import AsyncClient
from rangecast.client.threads import Client, Publisher
from rangecast.client.wire import ClientError, Delivery, GapError

__all__ = ["AsyncClient", "Client", "ClientError", "Delivery", "GapError", "Publisher"]
