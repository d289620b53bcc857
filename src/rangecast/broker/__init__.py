"""The live broker: subscribe, publish, deliver and resume, over HTTP on one machine (the extra `serve`).

The log is the bus, and a consumer is a cursor in it. A published event passes server, app,
requests, bodies, space, pump, frames and listener; a subscription server, app, requests, changes, the store
and pump:

server.py          uvicorn; streams written straight to the transport, bounded requests, an orderly end
app.py             routes, errors as JSON; schemas, spaces, health, metrics, status, the page
requests.py        publish and match; subscribe, replace, delete, list, batch, test; answers as JSON
delivery.py        stream, WebSocket, long poll, acknowledge, tickets, webhooks
openapi.py         the interface in OpenAPI's words, from the docstrings of the handlers
bodies.py          what a request brings, within bounds
access.py          who may do what, limits of a space and rates, and what is refused
broker.py          `Broker`: the spaces of a data folder
space.py           `Space`: a schema, a store, a log, cursors, and the threads that serve them
changes.py         the thread that writes to the store
pump.py            the matcher thread: log, match, deliver, tick by tick
catch_up.py        listeners that are behind, from the log
frames.py          messages as bytes
kernels.py         frames put together, and written to many sockets in one call
listener.py        one connection of a consumer, and how far it is
directory.py       who subscribed to what, in which versions
event_log.py       the event log: segments, records, recovery, retention
event_json.py      events of Arrow as JSON
objects.py         what an event's object entered and left
webhooks.py        messages by POST, with retries and dead letters
metrics.py         what /metrics shows, and what is logged
"""
