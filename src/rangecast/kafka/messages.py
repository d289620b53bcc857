"""Values of messages to events, and matches to messages.

Values are rows of a format (formats.py), and become events by the step that all doors share
(rangecast.loading): the same values mean the same, and are rejected for the same reasons, as in a file. A
value that is null or empty is rejected.

An event's id is a field of the value, the message's key (`@key`), or its place (`@offset`: "3:1041" is offset
1,041 of partition 3). Ids are strings in what is sent, unless `id_type` says int64.

    form     a message for each           value
    lists    event that matches           {"event_id": ..., "subscription_ids": [...], kept fields}
    pairs    event and subscription       {"event_id": ..., "subscription_id": ..., kept fields}
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.kafka.formats import JsonValues, MessageValues
from rangecast.loading.events import ARROW_TYPES, EventBatch, EventColumns, load_events
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

    def columns(self, schema: Schema) -> EventColumns:
        """What is read of the values."""
        return EventColumns(self.field, tuple(schema.names))

    @property
    def type(self) -> pa.DataType:
        """The type of events' ids."""
        return named_type(self.id_type) or STRING

    @property
    def field(self) -> str | None:
        """The field of the value that has the id, if one has."""
        return None if self.event_id.startswith("@") else self.event_id


class Outgoing(NamedTuple):
    """A message to be sent; the client makes UTF-8 of it."""

    key: str
    value: str


def read_events(
    schema: Schema,
    messages: Sequence[Any],
    columns: EventColumns,
    source: str,
    *,
    event_id: str = "id",
    id_type: pa.DataType = STRING,
    values: MessageValues | None = None,
) -> Iterator[EventBatch]:
    """The events of some messages; `rows` of a batch, and of its rejected ones, count messages from 1.

    `columns.id` is the field of ids, None where `event_id` is @key or @offset.
    """
    wanted: dict[str, Any] = dict.fromkeys(columns.keep)
    wanted |= {name: ARROW_TYPES[schema[name].kind] for name in columns.attributes}
    if columns.id is not None:
        # as the first value has them: numbers that are read as texts are read one by one
        wanted[columns.id] = None
    given = [message.value() for message in messages]
    for batch in (values or JsonValues()).batches(given, wanted, source):
        loaded = load_events(schema, batch, columns, id_type, source)
        if columns.id is None:
            loaded = loaded._replace(ids=_place_ids(messages, loaded.rows, event_id))
        yield loaded


def _place_ids(messages: Sequence[Any], rows: Any, by: str) -> pa.Array[Any]:
    some = [messages[row - 1] for row in rows.tolist()]
    if by == OFFSET:
        return pa.array([f"{m.partition()}:{m.offset()}" for m in some], STRING)
    return pa.array([(m.key() or b"").decode("utf-8", "replace") for m in some], STRING)


def matches_to_messages(
    batch: EventBatch, matches: Matches, messages: Sequence[Any], shape: MessageForm, values: MessageValues
) -> Iterator[Outgoing]:
    """What is sent for the matches of a batch."""
    assert batch.rows is not None
    found = np.flatnonzero(matches.counts)
    offsets = matches.offsets
    starts, ends = offsets[found].tolist(), offsets[found + 1].tolist()
    plain = matches.ids.tolist()
    ids = texts_of(plain)
    event_ids = batch.ids.take(pa.array(found)).to_pylist()
    keys = list(map(str, event_ids))
    shown = texts_of(event_ids)
    rests = [""] * len(found)
    if shape.keep:
        rests = [_kept_text(messages[row - 1], shape.keep, values) for row in batch.rows[found].tolist()]
    # texts are put together, which takes a third of the time of json.dumps
    if shape.form == LISTS:
        for key, event, start, end, rest in zip(keys, shown, starts, ends, rests, strict=True):
            own = ", ".join(ids[start:end])
            yield Outgoing(key, f'{{"event_id": {event}, "subscription_ids": [{own}]{rest}}}')
        return
    for key, event, start, end, rest in zip(keys, shown, starts, ends, rests, strict=True):
        for k in range(start, end):
            value = f'{{"event_id": {event}, "subscription_id": {ids[k]}{rest}}}'
            yield Outgoing(key if shape.key == BY_EVENT else str(plain[k]), value)


def texts_of(values: Sequence[Any]) -> list[str]:
    """Values as JSON texts; ids are whole numbers or strings, all of them one or the other.

    >>> texts_of([7, 8]), texts_of(["a", None])
    (['7', '8'], ['"a"', 'null'])
    """
    if values and isinstance(values[0], str):
        with contextlib.suppress(TypeError):
            return list(map(encode_basestring_ascii, values))
    if values and type(values[0]) is int and None not in values:
        return list(map(str, values))
    return list(map(json.dumps, values))


def _kept_text(message: Any, names: Sequence[str], values: MessageValues) -> str:
    # the value was read before, or there would be no match
    kept = values.members(message.value(), names)
    return "".join(f", {json.dumps(name)}: {json.dumps(value)}" for name, value in kept.items())


def dead_letter(message: Any, rejected: RejectedRow) -> list[tuple[str, bytes]]:
    """The headers of a rejected message as it is sent on: its own, why, and where it stood."""
    place = f"{message.topic()}:{message.partition()}:{message.offset()}"
    own = [(name, value) for name, value in message.headers() or []]
    return [*own, (REASON_HEADER, rejected.reason.encode()), (PLACE_HEADER, place.encode())]
