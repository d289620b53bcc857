"""Subscriptions from a file, as one load: ids must differ, and bad rows are rejected with their reasons.

What is loaded is small beside what is streamed, so a file is read whole, and all of its ids say whether they
are whole numbers or strings (ids.py).

Files of a parallel load are read in two steps: `survey_rows` tells which columns a file has and what its ids
are, and `text_rows` reads it when all are known, as texts for the workers to parse. Beside the columns it
gives those of a rejected row, under names that begin with `rangecast_`; where there is a reason, it is one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import SubscriptionError
from rangecast.loading.events import ARROW_TYPES
from rangecast.loading.files import RowBatch
from rangecast.loading.formats import open_rows
from rangecast.loading.ids import STRING, column_type, id_text, in_one_piece, settle, typed_ids
from rangecast.loading.rejected import REJECTED, RejectedRow, Rejects, rejected_table
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import PayloadColumn, payload_column, payload_needs, wider_kind
from rangecast.types.columns import describe
from rangecast.types.schema import Schema

_OWNER = "a subscription"
# what the columns of a rejected row begin with, beside those of the file
OWN = "rangecast_"


def load_subscriptions(  # noqa: PLR0913 - each is an option of whoever loads a file
    schema: Schema,
    path: str | os.PathLike[str],
    rejected: Rejects | None = None,
    *,
    id: str = "id",
    condition: str | None = None,
    payload: Sequence[str] = (),
    expires: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    remark: Callable[[str], None] | None = None,
    format: str | None = None,
    stream: BinaryIO | None = None,
    delimiter: str | None = None,
) -> Subscriptions:
    """The subscriptions of a file, in texts (`condition`) or bounds (`price_low`, `price_high`, `price`).

    The columns in `payload` stay with the subscriptions (`Subscriptions.payload`), and the column named by
    `expires` says when each ends. A row that cannot be loaded goes to `rejected`; without one, it raises.
    `progress` is called with how far the reader is and the file's size, `remark` with what a person should
    know: columns that are ignored. `format`, `stream` and `delimiter` are those of `open_rows`.
    """
    path = os.fspath(path)
    rejects = rejected if rejected is not None else Rejects(strict=True)
    wanted = wanted_columns(schema, id, condition) | dict.fromkeys(payload)
    needed = [id, *([condition] if condition else []), *([expires] if expires else []), *payload]
    if expires is not None:
        wanted[expires] = ARROW_TYPES["timestamp"]
    batches: list[RowBatch] = []
    with open_rows(path, wanted, format=format, stream=stream, delimiter=delimiter) as source:
        if source.names is not None:
            unused = _check_columns(path, source.names, wanted, needed)
            if unused and remark is not None:  # a bound whose name is mistyped would go unseen
                remark(f"{path}: ignored: {', '.join(unused)}")
        for batch in source.batches():
            batches.append(batch)
            if progress is not None:
                progress(batch.position, source.size)
    unread = [u for batch in batches for u in batch.unread]
    problems = [RejectedRow(path, u.row, u.line, None, u.reason, u.raw) for u in unread]
    named = source.names is not None
    options: dict[str, Any] = {"id": id, "condition": condition, "payload": payload, "expires": expires}
    try:
        subs, reasons = _load(schema, batches, named, source.textual, options)
    except SubscriptionError as error:
        raise SubscriptionError(f"{path}: {error}") from error
    starts = np.cumsum([0, *map(len, batches)])
    for row, reason in reasons.items():
        number = int(np.searchsorted(starts, row, "right")) - 1
        batch, i = batches[number], row - int(starts[number])
        line = None if batch.lines is None else int(batch.lines[i])
        assert batch.rows is not None
        given = batch.column(id)[i]
        value = id_text(given.as_py() if isinstance(given, pa.Scalar) else given)
        problems.append(RejectedRow(path, int(batch.rows[i]), line, value, reason, batch.raw(i)))
    for problem in sorted(problems, key=lambda p: p.row or 0):
        rejects.add(problem, SubscriptionError)
    return subs


def wanted_columns(schema: Schema, id: str, condition: str | None) -> dict[str, pa.DataType | None]:
    """The columns that subscriptions may have, with the types to expect in JSON."""
    wanted: dict[str, pa.DataType | None] = {id: None, condition or "condition": pa.string()}
    for attribute in schema:
        for name in (attribute.name, f"{attribute.name}_low", f"{attribute.name}_high"):
            wanted[name] = ARROW_TYPES[attribute.kind]
    return wanted


class RowSurvey(NamedTuple):
    """What a file of subscriptions has: its columns, which of those asked about are whole numbers, and of
    what kind those of the users' own are (model/user_columns.py)."""

    names: list[str]
    whole: dict[str, bool]
    kinds: dict[str, str]


def survey_rows(
    path: str,
    wanted: Mapping[str, pa.DataType | None],
    numbers: Sequence[str],
    format: str | None = None,
    payload: Sequence[str] = (),
) -> RowSurvey:
    """Read a text file for its columns and for whether the values in `numbers` are all whole numbers."""
    names: dict[str, None] = {}
    whole = dict.fromkeys(numbers, True)
    kinds = dict.fromkeys(payload, "null")
    with open_rows(path, wanted, format=format) as source:
        for batch in source.batches():
            there = [name for name in batch.columns if name in wanted]
            names |= dict.fromkeys(there)
            for name in numbers:
                if name in there:
                    whole[name] &= settle(batch.column(name), source.textual) in (None, pa.int64())
            for name in payload:
                if name in there:
                    kinds[name] = wider_kind({kinds[name], _own_column(batch, name, {}).kind})
        names = dict.fromkeys(name for name in source.names or names if name in wanted)
    return RowSurvey(list(names), whole, kinds)


def text_rows(
    path: str,
    wanted: Mapping[str, pa.DataType | None],
    id: str,
    types: Mapping[str, pa.DataType],
    format: str | None = None,
    payload: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """The rows of a text file: the columns of `types`, and those of a rejected row."""
    with open_rows(path, wanted, format=format) as source:
        for batch in source.batches():
            assert batch.rows is not None
            assert batch.lines is not None
            columns: dict[str, pa.Array[Any]] = {}
            reasons: dict[int, str] = {}
            for name, kind in types.items():
                if name in payload:
                    continue
                column = _texts(batch, name)
                columns[name] = column if kind == STRING else typed_ids(column, kind, name)[0]
            ids: Any = pa.nulls(len(batch), STRING)
            if id in columns:
                ids = _texts(batch, id)
                columns[id], reasons = typed_ids(batch.column(id), types[id], _OWNER)
            for name in payload:
                columns[name] = _own_column(batch, name, reasons).texts.arrow().cast(types[name])
            own = {
                "source": pa.repeat(path, len(batch)),
                "row": pa.array(batch.rows),
                "line": pa.array(batch.lines),
                "id": ids,
                "reason": _at(reasons, len(batch)),
                "raw": _at({i: batch.raw(i) for i in reasons}, len(batch)),
            }
            fields = pa.schema([*types.items(), *((OWN + f.name, f.type) for f in REJECTED)])
            yield pa.table([*(columns[name] for name in types), *own.values()], schema=fields)
            if batch.unread:
                unread = (RejectedRow(path, u.row, u.line, None, u.reason, u.raw) for u in batch.unread)
                rows = rejected_table(unread)
                none = [pa.nulls(len(rows), kind) for kind in types.values()]
                yield pa.table([*none, *rows.columns], schema=fields)


def _at(texts: dict[int, str], n: int) -> pa.Array[Any]:
    """A column of n texts that is null but for some positions."""
    where = np.full(n, -1)
    where[list(texts)] = np.arange(len(texts))
    return pa.array(list(texts.values()), STRING).take(pa.array(where, mask=where < 0))


def _texts(batch: RowBatch, name: str) -> pa.Array[Any]:
    """A column as texts; nulls where the file has none of this name."""
    if not isinstance(batch.data, pa.Table):
        return pa.array([id_text(value) for value in batch.column(name)], STRING)
    if name not in batch.data.column_names:
        return pa.nulls(len(batch), STRING)
    return in_one_piece(batch.column(name)).cast(STRING)


def _own_column(batch: RowBatch, name: str, reasons: dict[int, str]) -> PayloadColumn:
    """A column of the users' own; what cannot be kept is absent, and a reason."""
    if isinstance(batch.data, pa.Table):
        absent = name not in batch.data.column_names
        return payload_column(name, pa.nulls(len(batch)) if absent else batch.column(name))
    values = list(batch.column(name))
    for i, value in enumerate(values):
        if isinstance(value, list | dict):
            reasons.setdefault(i, payload_needs(name, describe(value)))
            values[i] = None
    return payload_column(name, values)


def _check_columns(path: str, names: list[str], wanted: Collection[str], needed: list[str]) -> list[str]:
    """Raise when a column is not there; gives those that are ignored."""
    for name in needed:
        if name not in names:
            raise SubscriptionError(f"{path}: there is no column {name!r}, only {', '.join(names)}")
    return [name for name in names if name not in wanted]


def _load(
    schema: Schema, batches: Sequence[RowBatch], named: bool, textual: bool, options: dict[str, Any]
) -> tuple[Subscriptions, dict[int, str]]:
    """The good rows, and what is wrong with the others, by position."""
    id, condition = options["id"], options["condition"]
    beside = {*options["payload"], *([options["expires"]] if options["expires"] else [])}
    tables = [batch.data for batch in batches if isinstance(batch.data, pa.Table)]
    rows: list[dict[str, Any]] = []
    if len(tables) == len(batches):
        if not tables:
            return Subscriptions.empty(schema), {}
        table = pa.concat_tables(tables)
        if not named:  # JSON lines: a column that no row has is a column that is not there
            table = table.select(
                [n for n in table.column_names if n in beside or table[n].null_count < len(table)]
            )
        there: Collection[str] = table.column_names
        column: Any = in_one_piece(table[id]) if id in there else None
    else:
        for batch in batches:
            rows += batch.data.to_pylist() if isinstance(batch.data, pa.Table) else batch.data
        there = set().union(*rows)
        column = [row.get(id) for row in rows] if id in there else None
        if condition is not None and rows and condition not in there:
            raise SubscriptionError(f"some row must have {condition!r}, got {', '.join(sorted(there))}")
        if not rows:
            return Subscriptions.empty(schema), {}
    if column is None:
        raise SubscriptionError(f"there is no column {id!r}, only {', '.join(sorted(there))}")
    if not isinstance(column, list) and column_type(column.type) is None:
        raise SubscriptionError(f"ids must be whole numbers or strings, {id!r} is {column.type}")
    id_type = settle(column, textual) or pa.int64()
    ids, reasons = typed_ids(column, id_type, _OWNER)
    for row, reason in _nested(rows, options["payload"]).items():
        reasons.setdefault(row, reason)
    fine = ids.is_valid().to_numpy(zero_copy_only=False).copy()
    fine[list(reasons)] = False
    good = np.flatnonzero(fine)
    options = options | {"on_error": "collect"}
    if rows:
        absent = dict.fromkeys(beside)
        values = ids.to_pylist()
        kept = [absent | rows[i] | {id: values[i]} for i in good.tolist()]
        subs = Subscriptions.from_rows(schema, kept, **options)
    else:
        table = table.set_column(table.column_names.index(id), id, ids)
        if reasons:
            table = table.take(pa.array(good))
        subs = Subscriptions.from_arrow(schema, table, **options)
    reasons |= {int(good[found.row]): found.reason for found in subs.rejected}
    return subs, reasons


def _nested(rows: list[dict[str, Any]], payload: Sequence[str]) -> dict[int, str]:
    """The rows with a list or an object in a column of the users' own, where others have one value."""
    found: dict[int, str] = {}
    for name in payload:
        for i, row in enumerate(rows):
            if isinstance(row.get(name), list | dict):
                found.setdefault(i, payload_needs(name, describe(row[name])))
    return found
