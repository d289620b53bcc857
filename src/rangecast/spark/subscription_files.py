"""Files of subscriptions as a DataFrame for `ingest` and `reduce`.

Parquet has types, and Spark reads it. CSV and JSON lines are read in the workers by the reader of the
library, a file per task, so that ids follow the one rule and a row that cannot be read is a rejected row:
once for the columns and for whether all ids are whole numbers, then for the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.errors import OptionError
from rangecast.loading import format_of
from rangecast.loading.ids import INT64, STRING
from rangecast.loading.rejected import REJECTED
from rangecast.loading.subscriptions import OWN, survey_rows, text_rows, wanted_columns
from rangecast.model.user_columns import PAYLOAD_TYPES, wider_kind
from rangecast.types.schema import Schema

_SURVEY = T.StructType(
    [
        T.StructField("name", T.StringType()),
        T.StructField("whole", T.BooleanType()),
        T.StructField("kind", T.StringType()),
    ]
)


def read_subscriptions(
    spark: SparkSession,
    files: Sequence[str],
    schema: Schema,
    *,
    id: str = "id",
    condition: str | None = None,
    sequence: str | None = None,
    op: str | None = None,
    payload: Sequence[str] = (),
    expires: str | None = None,
    format: str | None = None,
) -> DataFrame:
    """Files of subscriptions as a DataFrame: the columns that subscriptions of this schema may have.

    Ids of text files are long when all of them are whole numbers, and strings otherwise; so is a sequence.
    Columns of the users' own have the type of their values in all files (rangecast.model.user_columns).
    """
    kinds = {format_of(path, format) for path in files}
    if len(kinds) > 1:
        raise OptionError(f"files of one ingest must have one format, got {', '.join(sorted(kinds))}")
    kind = kinds.pop()
    if kind == "parquet":
        return spark.read.parquet(*files)
    wanted = wanted_columns(schema, id, condition)
    numbers = [name for name in (id, sequence) if name is not None]
    wanted |= dict.fromkeys(numbers) | ({} if op is None else {op: STRING})
    wanted |= dict.fromkeys(payload) | ({} if expires is None else {expires: STRING})
    paths, own = tuple(files), tuple(payload)

    def survey(path: str) -> Iterator[pa.Table]:
        found = survey_rows(path, wanted, numbers, kind, own)
        whole = pa.array([found.whole.get(name) for name in found.names], pa.bool_())
        kinds = pa.array([found.kinds.get(name) for name in found.names], STRING)
        yield pa.table({"name": pa.array(found.names, STRING), "whole": whole, "kind": kinds})

    # a task per file, in the order of the files: without a sequence, the last row of an id counts
    positions = spark.range(0, len(paths), 1, len(paths)).toDF("file")
    rows = positions.mapInArrow(_each_file(paths, survey), _SURVEY).collect()
    there = [name for name in wanted if any(row.name == name for row in rows)]
    words = {row.name for row in rows if row.whole is False}
    types = {name: INT64 if name in numbers and name not in words else STRING for name in there}
    for name in {*payload} & {*there}:
        found = PAYLOAD_TYPES[wider_kind({row.kind for row in rows if row.name == name})]
        types[name] = STRING if pa.types.is_large_string(found) else found
    kept = tuple(name for name in payload if name in there)

    def read(path: str) -> Iterator[pa.Table]:
        return text_rows(path, wanted, id, types, kind, kept)

    fields = from_arrow_schema(pa.schema([*types.items(), *((OWN + f.name, f.type) for f in REJECTED)]))
    return positions.mapInArrow(_each_file(paths, read), fields)


def _each_file(
    paths: tuple[str, ...], read: Callable[[str], Iterator[pa.Table]]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for mapInArrow: what a reader gives for the files at some positions."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for position in batch.column(0).to_pylist():
                for table in read(paths[position]):
                    yield from table.combine_chunks().to_batches()

    return work
