"""Reducing the subscriptions of one partition inside a worker, and putting together what comes back.

All rows of an id are in one partition, so the latest is known there, and a subscription that a later
row replaces covers nothing. A task gives one row per subscription, then its rejected rows, then its
counts:

    column              meaning
    id                  of the subscription
    covering            the id that stays in this partition and covers it; null where it stays itself
    bounds              of one that stays: for each box its lows, then its highs, by attribute
    bad, reason, raw    a row that was set aside
    rows, superseded    of the whole task
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.covering import reduce as reduce_locally
from rangecast.ids import Ids
from rangecast.schema import Schema
from rangecast.spark.ingest import latest
from rangecast.spark.ingest_tasks import Columns, Part, Source, joined, parsed, schema_of
from rangecast.subscriptions import Subscriptions

_ROWS_AT_ONCE = 16_384


def row_schema(textual: bool) -> pa.Schema:
    """The columns of the table above."""
    id_type = pa.string() if textual else pa.int64()
    return pa.schema(
        [
            ("id", id_type),
            ("covering", id_type),
            ("bounds", pa.list_(pa.int64())),
            ("bad", pa.string()),
            ("reason", pa.string()),
            ("raw", pa.string()),
            ("rows", pa.int64()),
            ("superseded", pa.int64()),
        ]
    )


def reducer(
    source: Source, columns: Columns, epsilon: float, textual: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for mapInArrow: parse a partition and reduce it."""

    def reduce(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fields = row_schema(textual)
        schema = schema_of(source)
        parts: list[Part] = []
        aside: list[dict[str, Any]] = []
        for part, rejected in parsed(schema, batches, columns):
            parts.append(part)
            aside += rejected
        rows = sum(len(part.ids) for part in parts) + len(aside)
        superseded = 0
        if parts:
            subs, _, superseded = latest(schema, [joined(parts)])
            for columns_out in _reduced(subs, epsilon):
                yield _batch(fields, columns_out)
        for first in range(0, len(aside), _ROWS_AT_ONCE):
            some = aside[first : first + _ROWS_AT_ONCE]
            named = {"bad": "id", "reason": "reason", "raw": "raw"}
            yield _batch(fields, {to: pa.array([row[of] for row in some]) for to, of in named.items()})
        yield _batch(fields, {"rows": pa.array([rows]), "superseded": pa.array([superseded])})

    return reduce


def _reduced(subs: Subscriptions, epsilon: float) -> Iterator[dict[str, pa.Array[Any]]]:
    """The subscriptions of a partition, some at a time: those that stay with bounds, the others without."""
    found = reduce_locally(subs, epsilon)
    kept = found.kept
    for first in range(0, len(kept), _ROWS_AT_ONCE):
        # cut before the lists are made: their offsets are 32 bits wide
        some = kept.select(np.arange(first, min(len(kept), first + _ROWS_AT_ONCE)))
        values = np.concatenate([some.lows, some.highs]).T.ravel()
        starts = some.box_starts() * (2 * len(subs.schema))
        bounds = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values))
        yield {"id": some.ids.arrow(), "bounds": bounds}
    for first in range(0, len(found.covered), _ROWS_AT_ONCE):
        pairs = slice(first, first + _ROWS_AT_ONCE)
        ids, above = subs.ids.select(found.covered[pairs]), subs.ids.select(found.covering[pairs])
        yield {"id": ids.arrow(), "covering": above.arrow()}


def _batch(fields: pa.Schema, columns: dict[str, pa.Array[Any]]) -> pa.RecordBatch:
    n = len(next(iter(columns.values())))
    filled = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(n, field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(filled, schema=fields)


def gather_kept(schema: Schema, rows: pa.Table, textual: bool) -> Subscriptions:
    """The subscriptions that stay in their partitions, of the rows of all tasks."""
    wide = 2 * len(schema)
    kept = rows.filter(pc.field("bounds").is_valid()).select(["id", "bounds"])
    values, counts = [np.empty((0, wide), np.int64)], [np.empty(0, np.int64)]
    for chunk in kept["bounds"].chunks:
        values.append(chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, wide))
        counts.append(pc.list_value_length(chunk).to_numpy(zero_copy_only=False) // wide)
    boxes = np.concatenate(values).T
    owners = np.repeat(np.arange(kept.num_rows, dtype=np.int32), np.concatenate(counts))
    return Subscriptions(
        schema, ids_of(kept["id"], textual), boxes[: len(schema)], boxes[len(schema) :], owners
    )


def ids_of(column: pa.ChunkedArray[Any], textual: bool) -> Ids:
    """A column of ids; large strings, since all of them in one array may pass 2 GB."""
    return Ids.of(column.cast(pa.large_string() if textual else pa.int64()))
