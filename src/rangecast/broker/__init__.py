"""The live broker: subscribe, publish, deliver and resume, over HTTP on one machine (the extra `serve`).

The log is the bus, and a consumer is a cursor in it. In the order in which an event passes them:

server.py          uvicorn; streams written straight to the transport, bounded requests, an orderly end
app.py             routes, and errors as JSON
publishing.py      publish and match
subscriptions.py   subscribe, replace, delete, list, batch, test
delivery.py        stream, WebSocket, long poll, acknowledge, tickets, webhooks
operations.py      schemas, spaces, health, metrics, status, the page
openapi.py         the interface in OpenAPI's words
answers.py         answers as JSON, and what handlers ask of a request
bodies.py          what a request brings, within bounds
errors.py          what is refused, and the status of the answer
tokens.py          who may do what
limits.py          limits of a space, and rates
broker.py          `Broker`: the spaces of a data folder
space.py           `Space`: a schema, a store, a log, cursors, and the threads that serve them
changes.py         the thread that writes to the store
pump.py            the matcher thread: log, match, deliver, tick by tick
replay.py          catching up from the log
frames.py          messages as bytes
listener.py        one connection of a consumer, and how far it is
directory.py       who subscribed to what, in which versions
event_log.py       the event log: segments, recovery, retention
event_record.py    one record in it
journal.py         small durable tables: cursors, payloads, webhooks
keys.py            idempotency keys
webhooks.py        messages by POST, with retries and dead letters
metrics.py         what /metrics shows
"""
