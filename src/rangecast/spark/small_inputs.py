"""Small inputs, which the driver takes as one Arrow table instead of handing them to Python workers.

The first job of Python workers takes seconds to start them, and the first job of a JVM takes seconds too. So
an input is taken here if it is known to be small before it is read: its plan must begin with files, local
data or caches, whose size Spark knows, and all steps of it must be such that give at most as many rows as
they get. Everything else is left to the workers: a join, a UDTF, an explode, a source of Python's, and
whatever is asked for over Spark Connect, which shows no plan.

One Parquet file that nothing is done to is read by PyArrow, without a job, if that gives just what Spark
would give: the same columns, of types that both read alike. What is large after all goes back to the workers.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

# bytes as Spark estimates them, then rows
SMALL_BYTES = 8_000_000
SMALL_ROWS = 500_000
# steps that give at most as many rows as they get, and leaves whose size Spark knows
_NO_MORE_ROWS = {
    *("Project", "Filter", "Sort", "Repartition", "RepartitionByExpression", "GlobalLimit", "LocalLimit"),
    *("Aggregate", "Window", "Union", "ArrowEvalPython", "BatchEvalPython"),
}
_SIZED = {"LogicalRelation", "LocalRelation", "InMemoryRelation"}
# columns that Spark and PyArrow read alike from Parquet; times only of files that Arrow has written, since
# Spark may count those of other writers by another calendar
_PLAIN = (
    *(T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    *(T.FloatType, T.DoubleType, T.BooleanType, T.StringType),
)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_ARROW = "parquet-cpp-arrow"


def collect_small(frame: DataFrame, order: str) -> pa.Table | None:
    """The rows of a small input, with their order in a column of this name; None for any other input."""
    try:
        plan = frame._jdf.queryExecution().optimizedPlan()
    except AttributeError:  # Connect
        return None
    size = _known_bytes(plan)
    if size is None or size > SMALL_BYTES:
        return None
    rows = file_rows(frame, plan)
    if rows is not None:
        rows = rows.append_column(order, pa.array(np.arange(len(rows))))
    else:
        names = [*frame.columns, order]
        numbered = frame.withColumn(order, F.monotonically_increasing_id())
        rows = numbered.toDF(*(f"c{i}" for i in range(len(names)))).toArrow().rename_columns(names)
    return rows if rows.num_rows <= SMALL_ROWS else None


def _known_bytes(plan: Any) -> int | None:
    """The size of what a plan reads, if it adds no rows to that."""
    steps = [plan]
    size = 0
    while steps:
        step = steps.pop()
        name, below = step.getClass().getSimpleName(), step.children()
        if name not in (_NO_MORE_ROWS if below.size() else _SIZED):
            return None
        size += 0 if below.size() else int(step.stats().sizeInBytes())
        steps += [below.apply(i) for i in range(below.size())]
    return size


def file_rows(frame: DataFrame, plan: Any) -> pa.Table | None:
    """The rows of a frame that is one Parquet file as it is, as `toArrow` gives them; otherwise None."""
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    if relation.fileFormat().toString() != "Parquet" or relation.partitionSchema().length():
        return None
    place = [urlparse(file) for file in frame.inputFiles()]
    if len(place) != 1 or place[0].scheme != "file" or place[0].netloc:
        return None
    utc = frame.sparkSession.conf.get("spark.sql.session.timeZone") == "UTC"
    taken = _PLAIN + (_TIMES if utc else ())
    kinds = [field.dataType for field in frame.schema.fields]
    if not all(isinstance(kind, taken) for kind in kinds):
        return None
    try:
        with pq.ParquetFile(unquote(place[0].path)) as file:
            by_arrow = str(file.metadata.created_by).startswith(_ARROW)
            if not by_arrow and any(isinstance(kind, _TIMES) for kind in kinds):
                return None
            if any(file.schema_arrow.names.count(name) != 1 for name in frame.columns):
                return None
            return file.read().select(frame.columns).cast(to_arrow_schema(frame.schema, timezone="UTC"))
    except (OSError, pa.ArrowException):  # Spark has its own words for it
        return None
