"""Subscriptions from a file, as one load: ids must differ, and bad rows are set aside with their reasons."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.cli.console import bar, say
from rangecast.errors import SubscriptionError
from rangecast.loading import RejectedRow, Rejects, RowBatch, open_rows
from rangecast.loading.rejected import SUBSCRIPTIONS
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.schema import Schema

# What JSON is expected to hold for each kind of attribute; text files are parsed by the attribute.
ARROW_TYPES = {"int": pa.int64(), "float": pa.float64(), "category": pa.string(), "timestamp": pa.string()}
# 007 and 7 are different ids, so only what prints as it was written is read as a number.
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"


def load_subscriptions(
    schema: Schema, path: str, rejects: Rejects, *, id: str = "id", condition: str | None = None
) -> Subscriptions:
    """The subscriptions of a file, in texts (`condition`) or bounds (`price_low`, `price_high`, `price`)."""
    wanted: dict[str, Any] = {id: None, condition or "condition": pa.string()}
    for attribute in schema:
        for name in (attribute.name, f"{attribute.name}_low", f"{attribute.name}_high"):
            wanted[name] = ARROW_TYPES[attribute.kind]
    batches: list[RowBatch] = []
    with open_rows(path, wanted) as source, bar("subscriptions", source.size) as progress:
        if source.names is not None:
            _check_columns(path, source.names, wanted, [id, *([condition] if condition else [])])
        for batch in source.batches():
            batches.append(batch)
            progress.move(batch.position)
    unread = [u for batch in batches for u in batch.unread]
    problems = [RejectedRow(SUBSCRIPTIONS, u.row, u.line, None, u.reason, u.raw) for u in unread]
    try:
        subs = _load(schema, batches, source.names is not None, source.textual, id, condition)
    except SubscriptionError as error:
        raise SubscriptionError(f"{path}: {error}") from error
    starts = np.cumsum([0, *map(len, batches)])
    for rejected in subs.rejected:
        number = int(np.searchsorted(starts, rejected.row, "right")) - 1
        batch, i = batches[number], rejected.row - int(starts[number])
        line = None if batch.lines is None else int(batch.lines[i])
        row = int(batch.rows[i])
        problems.append(RejectedRow(SUBSCRIPTIONS, row, line, rejected.id, rejected.reason, batch.raw(i)))
    for problem in sorted(problems, key=lambda p: p.row):
        rejects.add(problem)
    return subs


def _check_columns(path: str, names: list[str], wanted: Collection[str], needed: list[str]) -> None:
    for name in needed:
        if name not in names:
            raise SubscriptionError(f"{path}: must have the column {name!r}, got {', '.join(names)}")
    unused = [name for name in names if name not in wanted]
    if unused:  # a bound whose name is mistyped would go unseen
        say(f"{path}: not looked at: {', '.join(unused)}")


def whole_numbers(column: pa.ChunkedArray | pa.Array[Any]) -> Any:
    """A column of texts as int64 when all of them are whole numbers, else as it is."""
    texts = in_one_piece(column)
    if len(texts) and pc.all(pc.match_substring_regex(texts, _WHOLE_NUMBER)).as_py():
        return texts.cast(pa.int64())
    return texts


def in_one_piece(column: pa.ChunkedArray | pa.Array[Any]) -> pa.Array[Any]:
    """A column without chunks."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    return column


def _load(
    schema: Schema, batches: Sequence[RowBatch], named: bool, textual: bool, id: str, condition: str | None
) -> Subscriptions:
    tables = [batch.data for batch in batches if isinstance(batch.data, pa.Table)]
    if len(tables) == len(batches):
        if not tables:
            return Subscriptions.empty(schema)
        table = pa.concat_tables(tables)
        if not named:  # JSON lines: a column that no row has is a column that is not there
            table = table.select([n for n in table.column_names if table[n].null_count < len(table)])
        if textual and id in table.column_names:
            table = table.set_column(table.column_names.index(id), id, whole_numbers(table[id]))
        return Subscriptions.from_arrow(schema, table, id=id, condition=condition, on_error="collect")
    rows: list[dict[str, Any]] = []
    for batch in batches:
        rows += batch.data.to_pylist() if isinstance(batch.data, pa.Table) else batch.data
    seen = set().union(*rows)
    if condition is not None and rows and condition not in seen:
        raise SubscriptionError(f"some row must have {condition!r}, got {', '.join(sorted(seen))}")
    return Subscriptions.from_rows(schema, rows, id=id, condition=condition, on_error="collect")
