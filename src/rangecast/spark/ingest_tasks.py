"""Parsing subscriptions inside Spark's workers, in two passes where there are categories.

A category's strings have codes, and a condition such as `symbol != 'IBM'` is a range of codes: workers
that each named strings on their own could not be put together again. So the first pass only finds
the strings, the store gives them codes for good (`Store.learn`), and the second pass parses with
those. A schema without categories needs no first pass.

The second pass leaves its result in files of the store's staging folder, since the store is where
both workers and driver can write and read; a row per file comes back through Spark. Rows:

    array          dtype   meaning
    ids.*          Ids     of each good row (changelog.py has the same form)
    gone           uint8   1 where the row is a delete
    sequences      int64   the order that the user gave, 0 without one
    orders         int64   the order of the rows in the input
    lows, highs, owners    the boxes of the rows, deletes have none
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangecast.errors import StorageError
from rangecast.ids import Ids
from rangecast.records import ids_arrays
from rangecast.schema import Schema
from rangecast.storage import Arrays, replacing, write_arrays
from rangecast.store import Store
from rangecast.subscriptions import Subscriptions

ORDER = "rangecast_order"
REJECTED = pa.schema([("id", pa.string()), ("reason", pa.string()), ("raw", pa.string())])
_UPSERTS, _DELETES = ("upsert", "insert", "update"), ("delete", "remove")
_BOXES_AT_ONCE = 500_000
_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# where a worker takes the schema and its codes from: the path of a store, or Schema.to_dict(words=True)
Source = str | dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Columns:
    """Which columns of the input mean what; without a condition, bounds are found by name."""

    id: str
    condition: str | None
    sequence: str | None
    op: str | None


def schema_of(source: Source) -> Schema:
    """The schema with the codes that are known so far."""
    return Store.open(source).schema if isinstance(source, str) else Schema.from_dict(source)


def word_finder(source: Source, columns: Columns) -> _Task:
    """The first pass: the strings that conditions name, as (attribute's position, word)."""

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = schema_of(source)
        schema = Schema.from_dict(known.to_dict(words=True))
        for batch in batches:
            table = pa.Table.from_batches([batch])
            deleting, _ = _deletes(table, columns)
            _load(schema, table.filter(pa.array(~deleting)), columns)
        positions: list[int] = []
        words: list[str] = []
        for (position, had), (_, has) in zip(known.categories(), schema.categories(), strict=True):
            fresh = has.vocabulary.words()[len(had.vocabulary) :]
            positions += [position] * len(fresh)
            words += fresh
        columns_out = [pa.array(positions, pa.int32()), pa.array(words, pa.string())]
        yield pa.RecordBatch.from_arrays(columns_out, ["position", "word"])

    return find


def loader(store: str, staging: str, columns: Columns) -> _Task:
    """The second pass: parse, and stage what is good and what is not; gives back the files."""

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[Part] = []
        rows = 0
        aside: list[dict[str, Any]] = []
        staged: list[tuple[str, str, int, int]] = []
        for part, rejected in parsed(schema_of(store), batches, columns):
            rows += len(part.ids) + len(rejected)
            aside += rejected
            parts.append(part)
            if sum(p.subs.n_boxes for p in parts) >= _BOXES_AT_ONCE:
                staged.append((_stage(staging, parts), "", 0, 0))
                parts = []
        staged.append(
            (_stage(staging, parts) if parts else "", _stage_rejected(staging, aside), rows, len(aside))
        )
        files, bad_files, counts, bad = zip(*staged, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(files), pa.array(bad_files), pa.array(counts, pa.int64()), pa.array(bad, pa.int64())],
            ["file", "rejected_file", "rows", "rejected"],
        )

    return load


@dataclass(frozen=True)
class Part:
    """The good rows of a batch."""

    ids: pa.Array[Any]
    gone: npt.NDArray[np.uint8]
    sequences: npt.NDArray[np.int64]
    orders: npt.NDArray[np.int64]
    subs: Subscriptions


def parsed(
    schema: Schema, batches: Iterator[pa.RecordBatch], columns: Columns
) -> Iterator[tuple[Part, list[dict[str, Any]]]]:
    """The good rows of each batch, and those set aside, by a schema that has all codes."""
    n_words = [len(category.vocabulary) for _, category in schema.categories()]
    for batch in batches:
        yield _part(schema, pa.Table.from_batches([batch]), columns)
    if n_words != [len(category.vocabulary) for _, category in schema.categories()]:
        raise StorageError(
            "the subscriptions changed while they were read: the second pass met strings that the "
            "first did not; persist the DataFrame first"
        )


def _part(schema: Schema, table: pa.Table, columns: Columns) -> tuple[Part, list[dict[str, Any]]]:
    n = table.num_rows
    reasons: dict[int, str] = {}
    deleting, bad_ops = _deletes(table, columns)
    reasons.update(bad_ops)
    for row in np.flatnonzero(_nulls(table[columns.id])).tolist():
        reasons.setdefault(row, "a subscription must have an id, got null")
    sequences = np.zeros(n, np.int64)
    if columns.sequence is not None:
        column = table[columns.sequence].combine_chunks()
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        sequences = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(_nulls(column)).tolist():
            reasons.setdefault(row, f"the sequence {columns.sequence!r} must not be null")
    coming = np.flatnonzero(~deleting)
    subs = _load(schema, table.take(pa.array(coming)), columns)
    for rejected in subs.rejected:
        reasons.setdefault(int(coming[rejected.row]), rejected.reason)
    aside = [
        {
            "id": _text(table[columns.id][row].as_py()),
            "reason": reasons[row],
            "raw": json.dumps(
                table.drop_columns([ORDER]).slice(row, 1).to_pylist()[0], default=str, ensure_ascii=False
            ),
        }
        for row in sorted(reasons)
    ]
    good = np.ones(n, bool)
    good[list(reasons)] = False
    # the subscriptions carry their row as id; those whose row was rejected for another reason go
    rows = coming[subs.ids.values]
    subs = subs.select(good[rows])
    rank = np.cumsum(good) - 1
    owners = rank[coming[subs.ids.values]][subs.owners].astype(np.int32) if len(subs) else subs.owners
    kept = pa.array(good)
    ids = table[columns.id].combine_chunks().filter(kept)
    whole = Subscriptions(schema, np.arange(int(good.sum())), subs.lows, subs.highs, owners)
    orders = table[ORDER].combine_chunks().to_numpy(zero_copy_only=False)
    return Part(ids, deleting[good].astype(np.uint8), sequences[good], orders[good], whole), aside


def _load(schema: Schema, table: pa.Table, columns: Columns) -> Subscriptions:
    """Subscriptions whose ids are row numbers; what is wrong with a row is in `rejected`."""
    rows = np.arange(table.num_rows)
    if not table.num_rows:
        return Subscriptions.empty(schema)
    if columns.condition is not None:
        return Subscriptions.parse(schema, ids=rows, texts=table[columns.condition], on_error="collect")
    name = "rangecast_row"
    numbered = table.append_column(name, pa.array(rows))
    return Subscriptions.from_arrow(schema, numbered, id=name, condition=None, on_error="collect")


def _deletes(table: pa.Table, columns: Columns) -> tuple[npt.NDArray[np.bool_], dict[int, str]]:
    """Which rows delete, and the rows whose op is none."""
    if columns.op is None:
        return np.zeros(table.num_rows, bool), {}
    said = table[columns.op].combine_chunks().cast(pa.string())
    words = pc.utf8_lower(pc.utf8_trim_whitespace(said.fill_null(_UPSERTS[0])))
    deleting = pc.is_in(words, value_set=pa.array(_DELETES)).to_numpy(zero_copy_only=False)
    known = pc.is_in(words, value_set=pa.array([*_UPSERTS, *_DELETES])).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~known).tolist()
    return deleting, {row: f"op must be upsert or delete, got {said[row].as_py()!r}" for row in bad}


def joined(parts: list[Part]) -> Arrays:
    """The rows of some batches as the arrays of the table above."""
    ids = Ids.of(pa.concat_arrays([part.ids for part in parts]))
    shift = np.cumsum([0, *(len(part.ids) for part in parts)])
    return {
        **ids_arrays(ids, "ids"),
        "gone": np.concatenate([part.gone for part in parts]),
        "sequences": np.concatenate([part.sequences for part in parts]),
        "orders": np.concatenate([part.orders for part in parts]),
        "lows": np.concatenate([part.subs.lows for part in parts], axis=1),
        "highs": np.concatenate([part.subs.highs for part in parts], axis=1),
        "owners": np.concatenate(
            [part.subs.owners + first for part, first in zip(parts, shift, strict=False)]
        ),
    }


def _stage(staging: str, parts: list[Part]) -> str:
    name = f"{uuid.uuid4().hex}.arrays"
    write_arrays(Path(staging) / name, {}, joined(parts))
    return name


def _stage_rejected(staging: str, aside: list[dict[str, Any]]) -> str:
    if not aside:
        return ""
    name = f"{uuid.uuid4().hex}.parquet"
    with replacing(Path(staging) / name) as file:
        pq.write_table(pa.Table.from_pylist(aside, REJECTED), file)
    return name


def _nulls(column: Any) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False))
    return nulls


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
