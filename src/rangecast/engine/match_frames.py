"""`rc.match`: a frame of events and a frame of subscriptions in, a frame of their matches out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.engine import open_index
from rangecast.errors import EventError, OptionError, SchemaError, SubscriptionError
from rangecast.loading.ids import in_one_piece
from rangecast.model.events import Events
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import Attribute
from rangecast.types.frames import (
    describe_unreadable,
    flat_table,
    frame_like,
    named_columns,
    readable_table,
)
from rangecast.types.schema import Schema


def match(  # noqa: PLR0913 - each is an option of whoever calls it
    events: Any,
    subscriptions: Any,
    *,
    schema: Schema | None = None,
    event_id: str | None = None,
    id: str = "id",
    condition: str | None = None,
    keep: Sequence[str] = (),
    payload: Sequence[str] = (),
    index: str = "auto",
    threads: int = 1,
    strict: bool = False,
) -> Any:
    """Which subscriptions does each event match? A frame of pairs of the kind that `events` is.

    `events` is a DataFrame of pandas or Polars, an Arrow table, a DuckDB relation or a list of dicts, and
    `subscriptions` any of these with an id and a condition or bounds, a dict of ids and conditions, or
    Subscriptions. Without a `schema` the columns of the events say it. `event_id` names the column of ids:
    by default it is `id`, and without one rows are numbered from 0. Columns of the events in `keep` and of
    the subscriptions in `payload` come along. A row that cannot be loaded raises.

    >>> match([{"price": 12}, {"price": 3}], {7: "price > 10", 8: "price < 15"})[0]
    {'event_id': 0, 'subscription_id': 7}
    """
    table, unreadable = readable_table(events, "events")
    given = event_id or ("id" if "id" in {*table.column_names, *unreadable} else None)
    _check_columns(table, unreadable, [*([given] if given else []), *keep], "events")
    if given is not None:
        _check_ids(table[given])
    refused: dict[str, str] = {}
    empty: list[str] = []
    if schema is None and isinstance(subscriptions, Subscriptions):
        schema = subscriptions.schema
    if schema is None:
        refused = {name: describe_unreadable(name, reason) for name, reason in unreadable.items()}
        schema = _infer(table, given, refused)
        empty = _without_values(table, schema)
    else:
        _check_columns(table, unreadable, named_columns(schema.names, unreadable).columns.values(), "events")
    beside: pa.Table | None = None
    try:
        if isinstance(subscriptions, Subscriptions):
            subs = subscriptions
        elif isinstance(subscriptions, Mapping):
            subs = Subscriptions.parse(schema, subscriptions)
        else:
            beside, unread = readable_table(subscriptions, "subscriptions")
            named = condition or ("condition" if "condition" in {*beside.column_names, *unread} else None)
            # without conditions every column may be a bound
            _check_columns(beside, unread, [id, *payload, *([named] if named else unread)], "subscriptions")
            subs = Subscriptions.from_arrow(schema, beside, id=id, condition=condition)
    except SubscriptionError as error:
        reasons = [reason for name, reason in refused.items() if f"unknown attribute {name!r}" in str(error)]
        reasons += [
            f"column {name!r} has no value, which says no type: give `schema`"
            for name in empty
            if f"{name!r} is a category" in str(error)
        ]
        if not reasons:
            raise
        raise SubscriptionError(f"{error}\n  of the events: {'; '.join(reasons)}") from None
    names = ["event_id", "subscription_id", *keep, *payload]
    if len(set(names)) < len(names):
        raise OptionError(
            f"columns of the answer must differ, got {', '.join(names)}; rename the columns that you keep"
        )
    made = open_index(index, schema)
    made.insert(subs)
    matches = made.match(Events.from_arrow(schema, table, strict=strict), threads=threads).sort()
    pairs = matches.to_arrow(None if given is None else in_one_piece(table[given]))
    subscription_ids = in_one_piece(pairs["subscription_id"])
    pairs = pairs.set_column(1, "subscription_id", subscription_ids)
    rows = pa.array(matches.events())
    for name in keep:
        pairs = pairs.append_column(name, table[name].take(rows))
    if payload:
        places = IdTable(subs.ids).find(Ids.of(subscription_ids)).astype(np.int64)
        # of a frame, columns of any type come along as they are
        own = subs.beside.table(payload, places) if beside is None else beside.take(pa.array(places))
        for name in payload:
            pairs = pairs.append_column(name, own[name])
    return frame_like(pairs, events)


def _check_columns(table: pa.Table, unreadable: Mapping[str, str], needed: Iterable[str], what: str) -> None:
    for name in needed:
        if name in unreadable:
            raise OptionError(f"{what}: {describe_unreadable(name, unreadable[name])}")
        if name not in table.column_names:
            raise OptionError(f"{what}: there is no column {name!r}, only {', '.join(table.column_names)}")


def _check_ids(ids: pa.ChunkedArray) -> None:
    if ids.null_count:
        first = ids.is_null().index(True).as_py()
        raise EventError(
            f"event {first}: an event must have an id, got null ({ids.null_count} of {len(ids)} events)"
        )


def _without_values(table: pa.Table, schema: Schema) -> list[str]:
    """The columns that were taken for categories because nothing in them says what they are."""
    flat = flat_table(table)
    return [name for name in schema.names if flat[name].null_count == len(flat)]


def _infer(table: pa.Table, event_id: str | None, refused: dict[str, str]) -> Schema:
    """The schema of the columns, and of the fields of structs, that an attribute can hold.

    Other columns may be kept, but no condition can name them: the reason of each goes into `refused`.
    """
    attributes: list[Attribute] = []
    given = [*table.column_names, *refused]
    table = flat_table(table)
    for name in table.column_names:
        if name != event_id:
            try:
                attributes += Schema.infer(table.select([name]))
            except SchemaError as error:
                refused[name] = str(error).removesuffix("; leave it out")
    if not attributes:
        raise SchemaError(f"no column of the events can be an attribute, got {', '.join(given)}")
    return Schema(*attributes)
