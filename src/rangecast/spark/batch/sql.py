"""Matching from SQL: `SELECT * FROM match_events(TABLE(events), 'store')`.

An Arrow table function. Spark has it say its columns before it knows its arguments, so ids come as
strings from `match_events`; `match_events_long` gives whole numbers and takes no others. What else comes
out is chosen when the function is registered. The event's id is the column `id`, unless the output or a
third argument names another. It costs 1.4 times what `match` does.

Spark calls `analyze` while it plans a query, with the columns of the table and the constants. There the place
becomes the path of one saved index, which all tasks of the query match against, also when they are tried
again or a writer changes the store meanwhile; and what `match` refuses is refused before a job runs. PySpark
4.3 keeps `analyze` from Arrow's table functions by a check in Python alone (SPARK-53286 is to lift it), while
planning and running them with one works; so it is added to a function that was made without.
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
from rangecast.spark.output import ALL, Answer, Output, OutputKeywords, tells_capitals
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
    # the process that plans a query does not know the session's settings
    capitals = tells_capitals(spark)
    spark.udtf.register(name, _function(said, T.StringType(), capitals))
    spark.udtf.register(f"{name}_long", _function(said, T.LongType(), capitals))


def _function(output: Output, ids: T.DataType, case_sensitive: bool) -> Any:
    """The table function whose ids are of a type."""
    kinds = [ids, output.second_type(ids), *[T.StringType()] * len(output.keep)]
    fields = T.StructType([T.StructField(n, kind) for n, kind in zip(output.names, kinds, strict=True)])
    target = to_arrow_schema(fields)

    class MatchEvents:
        """What Spark calls, in a worker, with each Arrow batch of the table."""

        def __init__(self, planned: _PlannedCall) -> None:
            self.planned = planned

        def eval(self, table: pa.RecordBatch, place: pa.Array, name: pa.Array = None) -> Iterator[pa.Table]:
            if table.num_rows:
                yield from _match_table(table, self.planned, target)

        @staticmethod
        def analyze(table: Any, place: Any, name: Any = None) -> AnalyzeResult:
            event_id = output.event_id if name is None else _constant(name, "the name of the id column")
            named = dataclasses.replace(output, event_id=event_id)
            return _plan(fields, table.dataType, _constant(place, "the store"), named, case_sensitive)

    function: Any = arrow_udtf(_WithoutAnalyze, returnType=fields)
    function.func = MatchEvents
    # without a type Spark calls `analyze`; a Connect client has the type in the attribute itself
    setattr(function, "_returnType" if hasattr(function, "_returnType") else "returnType", None)
    return function


class _WithoutAnalyze:
    """What PySpark makes an Arrow table function of; the class with `analyze` takes its place."""

    def eval(self, table: pa.RecordBatch, place: pa.Array, name: pa.Array = None) -> Iterator[pa.Table]:
        raise NotImplementedError


@dataclasses.dataclass
class _PlannedCall(AnalyzeResult):
    """A call as it was planned: the saved index that all workers match against, what comes out, and which
    columns the table has in other capitals."""

    path: str = ""
    answer: Answer | None = None
    written: dict[str, str] = dataclasses.field(default_factory=dict)


def _constant(argument: Any, what: str) -> str:
    """An argument that is known while a query is planned."""
    if not argument.isConstantExpression or argument.value is None:
        raise OptionError(
            f"match_events: {what} must be a constant, so that a query has one version; got an expression "
            "or NULL"
        )
    return str(argument.value)


def _plan(
    fields: T.StructType, given: T.StructType, place: str, output: Output, case_sensitive: bool
) -> _PlannedCall:
    """Find the version, and raise what `match` would raise before anything runs."""
    snapshot = resolve(place)
    answer = output.answer(snapshot.schema, snapshot.ids_are_text)
    try:
        answer.check_columns(given, snapshot.schema, texts=True, case_sensitive=case_sensitive)
    except EventError as error:
        raise EventError(f"match_events: {error}") from None
    if answer.order is not None:
        answer.check_index(mapped(snapshot.path))
    return _PlannedCall(fields, path=snapshot.path, answer=answer, written=answer.written(given))


def _match_table(table: pa.RecordBatch, planned: _PlannedCall, target: pa.Schema) -> Iterator[pa.Table]:
    answer = planned.answer
    assert answer is not None
    columns = [planned.written.get(name, name) for name in answer.columns]
    for wanted in columns:
        if wanted not in table.schema.names:
            have = ", ".join(sorted(table.schema.names))
            raise EventError(f"match_events: the table has no column {wanted!r}; it has {have}")
    named = pa.RecordBatch.from_arrays([table.column(name) for name in columns], answer.columns)
    for batch in answers(mapped(planned.path), named, answer, Pace()):
        yield pa.Table.from_batches([batch]).cast(target)
