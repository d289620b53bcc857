"""A folder of event files as a streaming DataFrame: Parquet, CSV or JSON lines, as files arrive.

Text files are read as texts, and the workers make values of them as the library does: so a number that
is none is one event set aside with a reason, where Spark's own reader would make a null of it, which
means a missing value. A line that is no JSON or has too many or too few cells comes in the column
_corrupt_record. Spark takes a file when its name appears, so write it under a name that begins with
`.` or `_` and rename it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rangecast.errors import EventError, OptionError
from rangecast.loading import format_of, open_rows
from rangecast.store.store import Store
from rangecast.types.schema import Schema

CORRUPT = "_corrupt_record"
# in the metadata of a text column of ids: they must be whole numbers, and become such
WHOLE = "rangecast.whole"


def read_events(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    schema: Schema | Store | str | os.PathLike[str],
    *,
    event_id: str = "id",
    keep: Sequence[str] = (),
    absent: Sequence[str] = (),
    format: str | None = None,
    whole_ids: bool | None = None,
    files_per_batch: int | None = None,
) -> DataFrame:
    """Files of events in a folder, as a streaming DataFrame for `match_stream` with this store or schema.

    The format is told by `format` ("parquet", "csv", "jsonl") or by the suffix of the first file, and so
    are the columns of Parquet and CSV; a folder without a file will do for "jsonl" alone. `whole_ids` says
    whether the ids of text files are whole numbers (unless told, as the first event's is). `keep` names
    columns that shall come along, `files_per_batch` bounds a micro-batch.
    """
    place = Path(folder).absolute()
    if not place.is_dir():
        raise OptionError(f"{place}: events must be a folder that files arrive in; there is none")
    if not isinstance(schema, Schema):
        schema = (schema if isinstance(schema, Store) else Store.open(schema)).schema
    first = first_file(place)
    if first is None and format is None:
        raise OptionError(f"{place}: there is no file yet to tell the format by; say format=")
    kind = format_of(first or place, format)
    # unless told, Spark passes over a file whose time is a week before that of the newest one
    reader = spark.readStream.option("maxFileAge", "36500d")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    needed = [event_id, *keep, *(name for name in schema.names if name not in absent)]
    if kind == "jsonl":
        names = list(dict.fromkeys(needed))
    elif first is None:
        raise OptionError(f"{place}: the first file must be there to tell the columns of {kind}")
    elif kind == "parquet":
        return reader.schema(_parquet_schema(spark, first)).parquet(str(place))
    else:
        with open_rows(str(first), format=kind) as source:
            names = list(source.names or ())
        missing = [name for name in needed if name not in names]
        if missing:
            raise EventError(f"{first}: there is no column {missing[0]!r}, only {', '.join(names)}")
    texts = T.StructType([T.StructField(name, T.StringType()) for name in [*names, CORRUPT]])
    reader = reader.schema(texts).option("columnNameOfCorruptRecord", CORRUPT).option("mode", "PERMISSIVE")
    if kind == "csv":
        # names in the header are compared: files whose columns are in another order stop the stream
        frame = reader.option("header", True).option("enforceSchema", False).csv(str(place))
    else:
        frame = reader.json(str(place))
    if whole_ids if whole_ids is not None else _whole(first, kind, event_id):
        marked = F.col(_quoted(event_id)).alias(event_id, metadata={WHOLE: True})
        frame = frame.select(*[marked if name == event_id else F.col(_quoted(name)) for name in texts.names])
    return frame


def first_file(folder: Path) -> Path | None:
    """The first file of data in a folder, by name."""
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return next((p for p in paths if not p.name.startswith(("_", "."))), None)


def _whole(first: Path | None, kind: str, event_id: str) -> bool:
    """Whether the first id that a text file has is a whole number; taken to be so without a file."""
    if first is None:
        return True
    with open_rows(str(first), format=kind) as source:
        for batch in source.batches():
            if len(batch) and event_id in batch.columns:
                value: Any = batch.column(event_id)[0]
                text = str(value.as_py() if hasattr(value, "as_py") else value).strip()
                return text.removeprefix("-").isdigit()
    return True


def _parquet_schema(spark: SparkSession, first: Path) -> T.StructType:
    try:
        pq.read_schema(first)
    except (OSError, ValueError) as error:
        raise EventError(f"{first}: not a Parquet file that can be read: {error}") from None
    return spark.read.parquet(str(first)).schema


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
