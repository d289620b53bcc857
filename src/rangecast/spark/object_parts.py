"""Parquet objects as a DataFrame, read by the workers with Arrow: Spark itself need not know the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from rangecast.buckets.object_files import seekable_file

BATCH = "batch_id"
_ROWS = 65_536
_PLACES = T.StructType([T.StructField("place", T.StringType()), T.StructField(BATCH, T.LongType())])


def read_parts(
    spark: SparkSession, parts: Sequence[tuple[str, int]], fields: T.StructType, *, by_batch: bool = True
) -> DataFrame:
    """The rows of objects, by their addresses and the batch of each, which is the last column if `by_batch`.

    An object that is not there, or whose columns are others, ends the job that reads it.
    """
    whole = T.StructType([*fields, T.StructField(BATCH, T.LongType())]) if by_batch else fields
    places = spark.createDataFrame(list(parts), _PLACES)
    return places.mapInArrow(_reader(to_arrow_schema(fields, timezone="UTC"), by_batch), whole)


def _reader(fields: pa.Schema, by_batch: bool) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for mapInArrow."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place, number in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                with pq.ParquetFile(seekable_file(place)) as file:
                    for piece in file.iter_batches(_ROWS, columns=fields.names):
                        table = pa.Table.from_batches([piece]).cast(fields)
                        if by_batch:
                            table = table.append_column(BATCH, pa.array([number] * len(piece), pa.int64()))
                        yield from table.combine_chunks().to_batches()

    return work
