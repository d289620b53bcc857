"""Matching from SQL: `SELECT * FROM match_events(TABLE(events), 'store')`.

An Arrow table function. Spark has it say its columns before it knows its arguments, so ids come as
strings from `match_events`; `match_events_long` gives whole numbers and takes no others. What else comes
out is said when the function is registered. The event's id is the column `id`, unless the output or a
third argument names another. It costs 1.4 times what `match` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Unpack

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.functions import arrow_udtf
from pyspark.sql.pandas.types import to_arrow_schema

from rangecast.errors import EventError
from rangecast.loading.pace import Pace
from rangecast.spark.output import Output, OutputKeywords
from rangecast.spark.snapshots import resolve
from rangecast.spark.worker import answers, mapped


def register_sql(
    spark: SparkSession,
    name: str = "match_events",
    output: Output | None = None,
    **keywords: Unpack[OutputKeywords],
) -> None:
    """Make `match_events` and `match_events_long` known to a session, or the same under another name.

    `output` and its keywords are those of `match`; columns that are kept come as strings.
    """
    said = Output.of(output, keywords)
    said.check_id_type()
    spark.udtf.register(name, _function(said, T.StringType()))
    spark.udtf.register(f"{name}_long", _function(said, T.LongType()))


def _function(output: Output, ids: T.DataType) -> Any:
    """The table function whose ids are of a type."""
    kinds = [ids, output.second_type(ids), *[T.StringType()] * len(output.keep)]
    fields = T.StructType([T.StructField(n, kind) for n, kind in zip(output.names, kinds, strict=True)])
    target = to_arrow_schema(fields)

    class MatchEvents:
        """What Spark calls, in a worker, with each Arrow batch of the table."""

        def eval(self, table: pa.RecordBatch, places: pa.Array, names: pa.Array = None) -> Iterator[pa.Table]:
            event_id = output.event_id if names is None else names[0].as_py()
            if table.num_rows:
                named = dataclasses.replace(output, event_id=event_id)
                yield from _match_table(table, places[0].as_py(), named, target)

    return arrow_udtf(MatchEvents, returnType=fields)


def _match_table(table: pa.RecordBatch, place: str, output: Output, target: pa.Schema) -> Iterator[pa.Table]:
    snapshot = resolve(place)
    index = mapped(snapshot.path)
    output.check_index(index)
    answer = output.answer(index.schema, snapshot.ids_are_text)
    have = set(table.schema.names)
    for wanted in answer.columns:
        if wanted not in have:
            raise EventError(
                f"match_events: the table has no column {wanted!r}; it has {', '.join(sorted(have))}"
            )
    for batch in answers(index, table, answer, Pace()):
        yield pa.Table.from_batches([batch]).cast(target)
