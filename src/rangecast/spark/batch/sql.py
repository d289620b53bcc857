"""Matching from SQL: `SELECT * FROM match_events(TABLE(events), 'store')`.

An Arrow table function. Spark has it say its columns before it knows its arguments, so ids come as
strings from `match_events`; `match_events_long` gives whole numbers and takes no others. What else comes
out is chosen when the function is registered. The event's id is the column `id`, unless the output or a
third argument names another. It costs 1.4 times what `match` does.

What `match` refuses is refused here too before a job runs: Spark calls `analyze` while it plans a query, with
the columns of the table and the constants. PySpark 4.3 keeps `analyze` from Arrow's table functions by a
check in Python alone (SPARK-53286 is to lift it), while planning and running them with one works; so it is
added to a function that was made without.
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
from pyspark.sql.udtf import AnalyzeResult

from rangecast.errors import EventError, OptionError
from rangecast.loading.pace import Pace
from rangecast.spark.output import ALL, Output, OutputKeywords
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
    if ALL in said.keep:
        raise OptionError('keep="*" needs the events, which SQL gives later; name the columns')
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

    function: Any = arrow_udtf(MatchEvents, returnType=fields)

    class CheckedEvents(MatchEvents):
        """The same with what Spark calls while it plans."""

        @staticmethod
        def analyze(table: Any, place: Any, name: Any = None) -> AnalyzeResult:
            event_id = output.event_id if name is None else name.value
            _check_table(table.dataType, place.value, dataclasses.replace(output, event_id=event_id))
            return AnalyzeResult(fields)

    function.func, function._returnType = CheckedEvents, None
    return function


def _check_table(given: T.StructType, place: str | None, output: Output) -> None:
    """Raise what `match` would raise before anything runs, if the place is a constant."""
    if place is None:
        return
    snapshot = resolve(place)
    answer = output.answer(snapshot.schema, snapshot.ids_are_text)
    try:
        answer.check_columns(given, snapshot.schema, texts=True)
    except EventError as error:
        raise EventError(f"match_events: {error}") from None


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
