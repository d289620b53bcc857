"""Values of messages to events, and matches to messages.

The values of a batch are JSON objects, read by the reader of JSON lines (rangecast.loading): the same
values mean the same, and are rejected for the same reasons, as in a file. Line breaks within a value are
white space in JSON, so a value that was printed over several lines becomes one; a value that is null or
empty is rejected.

An event's id is a field of the value, the message's key (`@key`), or its place (`@offset`: "3:1041" is offset
1,041 of partition 3). Ids are strings in what is sent, unless `id_type` says int64.

    form     a message for each           value
    lists    event that matches           {"event_id": ..., "subscription_ids": [...], kept fields}
    pairs    event and subscription       {"event_id": ..., "subscription_id": ..., kept fields}
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.loading.events import ARROW_TYPES, EventBatch, EventColumns, load_events
from rangecast.loading.formats import open_rows
from rangecast.loading.ids import STRING, named_type
from rangecast.loading.rejected import RejectedRow
from rangecast.model.matches import Matches
from rangecast.types.schema import Schema

KEY, OFFSET = "@key", "@offset"
LISTS, PAIRS = "lists", "pairs"
BY_EVENT, BY_SUBSCRIPTION = "event", "subscription"
VERSION_HEADER, REASON_HEADER, PLACE_HEADER = "rangecast-version", "rangecast-reason", "rangecast-place"


class MessageForm(NamedTuple):
    """What is sent for a match: where ids come from, which form, by which key, what is kept."""

    event_id: str = "id"
    id_type: str = "string"
    form: str = LISTS
    key: str = BY_EVENT
    keep: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise OptionError unless it can be."""
        if self.form not in (LISTS, PAIRS):
            raise OptionError(f"form must be {LISTS} or {PAIRS}, got {self.form!r}")
        if self.key not in (BY_EVENT, BY_SUBSCRIPTION):
            raise OptionError(f"key must be {BY_EVENT} or {BY_SUBSCRIPTION}, got {self.key!r}")
        if self.key == BY_SUBSCRIPTION and self.form == LISTS:
            raise OptionError(
                f"a message of form {LISTS} has many subscriptions: take form {PAIRS} for that key"
            )
        if self.event_id.startswith("@") and self.event_id not in (KEY, OFFSET):
            raise OptionError(f"an event's id is a field, {KEY} or {OFFSET}, got {self.event_id!r}")
        kind = named_type(self.id_type)
        if self.field is None and kind != STRING:
            raise OptionError(f"ids by {self.event_id} are strings, got id_type {self.id_type!r}")
        taken = {"event_id", "subscription_id", "subscription_ids"} & set(self.keep)
        if taken:
            raise OptionError(f"a kept field must have another name than {', '.join(sorted(taken))}")

    @property
    def field(self) -> str | None:
        """The field of the value that has the id, if one has."""
        return None if self.event_id.startswith("@") else self.event_id


class Outgoing(NamedTuple):
    """A message to be sent."""

    key: bytes
    value: bytes


def read_events(
    schema: Schema, messages: Sequence[Any], shape: MessageForm, source: str
) -> Iterator[EventBatch]:
    """The events of some messages; `rows` of a batch, and of its rejected ones, count messages from 1."""
    lines = b"\n".join(_one_line(message.value()) for message in messages)
    id_type = named_type(shape.id_type) or STRING
    wanted: dict[str, Any] = {name: ARROW_TYPES[schema[name].kind] for name in schema.names}
    if shape.field is not None:
        wanted[shape.field] = id_type
    columns = EventColumns(shape.field, tuple(schema.names))
    with open_rows(source, wanted, format="jsonl", stream=io.BytesIO(lines + b"\n")) as file:
        for batch in file.batches():
            loaded = load_events(schema, batch, columns, id_type, source)
            if shape.field is None:
                loaded = loaded._replace(ids=_place_ids(messages, loaded.rows, shape.event_id))
            yield loaded


def _one_line(value: bytes | None) -> bytes:
    if not value or value.isspace():
        return b"null"  # the reader would pass over an empty line, and so not count it
    if b"\n" in value or b"\r" in value:
        return value.replace(b"\r", b" ").replace(b"\n", b" ")
    return value


def _place_ids(messages: Sequence[Any], rows: Any, by: str) -> pa.Array[Any]:
    some = [messages[row - 1] for row in rows.tolist()]
    if by == OFFSET:
        return pa.array([f"{m.partition()}:{m.offset()}" for m in some], STRING)
    return pa.array([(m.key() or b"").decode("utf-8", "replace") for m in some], STRING)


def matches_to_messages(
    batch: EventBatch, matches: Matches, messages: Sequence[Any], shape: MessageForm
) -> Iterator[Outgoing]:
    """What is sent for the matches of a batch."""
    assert batch.rows is not None
    offsets = matches.offsets.tolist()
    found = np.flatnonzero(matches.counts).tolist()
    ids = matches.ids.tolist()
    event_ids = batch.ids.to_pylist()
    rows = batch.rows.tolist()
    kept = _keeper(shape.keep)
    for event in found:
        event_id = event_ids[event]
        own = ids[offsets[event] : offsets[event + 1]]
        rest = kept(messages[rows[event] - 1])
        key = str(event_id).encode()
        if shape.form == LISTS:
            text = json.dumps({"event_id": event_id, "subscription_ids": own, **rest})
            yield Outgoing(key, text.encode())
            continue
        for one in own:
            text = json.dumps({"event_id": event_id, "subscription_id": one, **rest})
            yield Outgoing(key if shape.key == BY_EVENT else str(one).encode(), text.encode())


def _keeper(names: Sequence[str]) -> Callable[[Any], dict[str, Any]]:
    """A function from a message to its kept fields; those that it does not have are null."""
    if not names:
        return lambda message: {}

    def keep(message: Any) -> dict[str, Any]:
        # the value was read before as an object, or there would be no match
        value = json.loads(message.value())
        return {name: value.get(name) for name in names}

    return keep


def dead_letter(message: Any, rejected: RejectedRow) -> list[tuple[str, bytes]]:
    """The headers of a rejected message as it is sent on: its own, why, and where it stood."""
    place = f"{message.topic()}:{message.partition()}:{message.offset()}"
    own = [(name, value) for name, value in message.headers() or []]
    return [*own, (REASON_HEADER, rejected.reason.encode()), (PLACE_HEADER, place.encode())]
