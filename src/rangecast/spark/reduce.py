"""Reduce: which subscriptions of a DataFrame does another one cover?

    rows --shuffle by id--> parse, reduce in each partition --> what stays there --reduce once more--> pairs

A partition drops whatever a neighbour in it covers, so the driver sees the boxes of few. Covering is
transitive: if the cover found in a partition is covered itself by one of another partition, that one
covers both, and a pair always ends at a subscription that stays. Of subscriptions that match the same,
the smallest id stays in its partition, and then the smallest of those.

Reducing the subscriptions of one partition inside a worker, and putting together what comes back.

All rows of an id are in one partition, so the latest is known there, and a subscription that a later
row replaces covers nothing. A task gives one row per subscription, then its rejected rows, then its
counts:

    column              meaning
    id                  of the subscription
    covering            the id that stays in this partition and covers it; null where it stays itself
    bounds              of one that stays: for each box its lows, then its highs, by attribute
    source, row, line, bad, reason, raw    a row that was rejected; `bad` is its id
    rows, superseded    of the whole task
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.covering import reduce as reduce_locally
from rangecast.errors import OptionError
from rangecast.loading.rejected import REJECTED, RejectedRow, rejected_table
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.spark.ingest import check_columns, find_words, keyed, run_tasks
from rangecast.spark.ingest_tasks import (
    ORDER,
    Columns,
    ParsedPiece,
    SchemaPlace,
    latest,
    parsed,
    schema_of,
)
from rangecast.spark.output import check_frame
from rangecast.spark.report import REJECTED_FIELDS, Report
from rangecast.store.change import EXPRESSIONS
from rangecast.types.schema import Schema

_logger = logging.getLogger("rangecast.spark")
# the columns of a rejected row beside those of a subscription, which has the name `id`
_REJECTED = ["bad" if name == "id" else name for name in REJECTED.names]


@dataclass
class ReducedFrame:
    """What remains of a DataFrame of subscriptions, which ones cover the others, and counts.

    `pairs` has covered and covering, `kept` has id, `rejected` the rows that
    could not be loaded (rangecast.loading.rejected).
    """

    pairs: DataFrame = field(repr=False)
    kept: DataFrame = field(repr=False)
    rejected: DataFrame = field(repr=False)
    rows: int
    accepted: int
    superseded: int
    rejected_rows: int
    n_covered: int
    n_kept: int
    seconds: dict[str, float]

    def __str__(self) -> str:
        seconds = "".join(f", {name} {taken:.1f} s" for name, taken in self.seconds.items())
        return (
            f"reduce: {self.rows:,} rows, {self.accepted:,} accepted, {self.superseded:,} superseded, "
            f"{self.rejected_rows:,} rejected, {self.n_covered:,} covered, {self.n_kept:,} kept{seconds}"
        )


def reduce(
    subscriptions: DataFrame,
    schema: Schema,
    *,
    id: str = "id",
    condition: str | None = None,
    epsilon: float = 0.0,
    partitions: int | None = None,
) -> ReducedFrame:
    """The subscriptions that no other covers, and for each of the rest one that stays and covers it.

    Columns are those of `ingest`, and so are bad rows and several rows of one id. With epsilon > 0 some
    covered ones may stay; none goes that is not covered. `partitions` says in how many parts the rows
    are reduced first; by default Spark decides. Strings of categories enter the dictionaries of `schema`, as
    when subscriptions are parsed with it.
    """
    check_frame(subscriptions, "reduce", "read files with spark.read")
    # no rows, but the options are checked here and not in a worker
    reduce_locally(Subscriptions.empty(schema), epsilon)
    if partitions is not None and partitions < 1:
        raise OptionError(f"partitions must be at least 1, got {partitions}")
    columns = check_columns(subscriptions.schema, schema, id, condition, None, None)
    textual = isinstance(subscriptions.schema[id].dataType, T.StringType)
    times = Report(step="reduce")
    if columns.condition is not None or any(schema.categories()):
        with times.timed("words"):
            found = find_words(subscriptions, schema, schema.to_dict(words=True), columns)
            for name, vocabulary in schema.dictionaries():
                for word in found[name]:
                    vocabulary.add(word)
            schema.learn_hidden(len(schema.hidden_names()), found[EXPRESSIONS])
    schema = schema.widest()
    # numbered before the shuffle: the order of the input says which row of an id is the latest
    numbered = subscriptions.withColumn(ORDER, F.monotonically_increasing_id())
    spread = keyed(numbered, id, partitions)
    with times.timed("partitions"):
        task = reducer(schema.to_dict(words=True), columns, epsilon, textual)
        rows = run_tasks(spread, task, _row_fields(textual))
    with times.timed("driver"):
        covered, covering, kept = _reduce_across(schema, rows, epsilon, textual)
    bad = rows.filter(pc.field("reason").is_valid()).select(_REJECTED)
    spark = subscriptions.sparkSession
    reduction = ReducedFrame(
        pairs=_frame(spark, {"covered": covered, "covering": covering}, textual),
        kept=_frame(spark, {"id": kept}, textual),
        rejected=spark.createDataFrame(_rejected(bad), REJECTED_FIELDS),
        rows=_total(rows["rows"]),
        accepted=len(covered) + len(kept),
        superseded=_total(rows["superseded"]),
        rejected_rows=bad.num_rows,
        n_covered=len(covered),
        n_kept=len(kept),
        seconds=times.seconds,
    )
    _logger.info("%s", reduction)
    return reduction


def _reduce_across(schema: Schema, rows: pa.Table, epsilon: float, textual: bool) -> tuple[Ids, Ids, Ids]:
    """The ids of those covered, of those that cover them, and of those that stay."""
    left = gather_kept(schema, rows, textual)
    last = reduce_locally(left, epsilon)
    roots = np.arange(len(left))
    roots[last.covered] = last.covering
    pairs = rows.filter(pc.field("covering").is_valid())
    above = IdTable(left.ids).find(ids_of(pairs["covering"], textual))
    late = left.ids.select(last.covered).arrow()
    covered = Ids.of(pa.concat_arrays([ids_of(pairs["id"], textual).arrow(), late]))
    covering = left.ids.select(np.concatenate([roots[above], last.covering]))
    return covered, covering, last.kept.ids


def _row_fields(textual: bool) -> T.StructType:
    id_type: T.DataType = T.StringType() if textual else T.LongType()
    types: dict[str, T.DataType] = {"id": id_type, "covering": id_type, "bounds": T.ArrayType(T.LongType())}
    for name, known in zip(_REJECTED, REJECTED_FIELDS.fields, strict=True):
        types[name] = known.dataType
    types |= dict.fromkeys(("rows", "superseded"), T.LongType())
    return T.StructType([T.StructField(name, kind) for name, kind in types.items()])


def _frame(spark: SparkSession, columns: dict[str, Ids], textual: bool) -> DataFrame:
    id_type: T.DataType = T.StringType() if textual else T.LongType()
    table = pa.table({name: ids.arrow() for name, ids in columns.items()})
    return spark.createDataFrame(table, T.StructType([T.StructField(name, id_type) for name in columns]))


def _rejected(bad: pa.Table) -> pa.Table:
    """Rejected rows of tasks, in the one form."""
    return bad.rename_columns(REJECTED.names).cast(REJECTED)


def _total(column: pa.ChunkedArray[Any]) -> int:
    return int(pc.sum(column).as_py() or 0)


_ROWS_AT_ONCE = 16_384


def row_schema(textual: bool) -> pa.Schema:
    """The columns of the table above."""
    id_type = pa.string() if textual else pa.int64()
    return pa.schema(
        [
            ("id", id_type),
            ("covering", id_type),
            ("bounds", pa.list_(pa.int64())),
            *((name, field.type) for name, field in zip(_REJECTED, REJECTED, strict=True)),
            ("rows", pa.int64()),
            ("superseded", pa.int64()),
        ]
    )


def reducer(
    place: SchemaPlace, columns: Columns, epsilon: float, textual: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for mapInArrow: parse a partition and reduce it."""

    def reduce(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fields = row_schema(textual)
        schema = schema_of(place)
        parts: list[ParsedPiece] = []
        aside: list[RejectedRow] = []
        for part, rejected in parsed(schema, batches, columns):
            parts.append(part)
            aside += rejected
        rows = sum(len(part.ids) for part in parts) + len(aside)
        superseded = 0
        if parts:
            subs, _, superseded = latest(schema, parts)
            for columns_out in _reduced(subs, epsilon):
                yield _batch(fields, columns_out)
        for first in range(0, len(aside), _ROWS_AT_ONCE):
            some = rejected_table(aside[first : first + _ROWS_AT_ONCE])
            values = [column.combine_chunks() for column in some.columns]
            yield _batch(fields, dict(zip(_REJECTED, values, strict=True)))
        yield _batch(fields, {"rows": pa.array([rows]), "superseded": pa.array([superseded])})

    return reduce


def _reduced(subs: Subscriptions, epsilon: float) -> Iterator[dict[str, pa.Array[Any]]]:
    """The subscriptions of a partition, some at a time: those that stay with bounds, the others without."""
    found = reduce_locally(subs, epsilon)
    kept = found.kept.expanded()
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
