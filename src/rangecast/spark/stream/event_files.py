"""A folder of event files as a stream for `match_stream`: Parquet, CSV or JSON lines, as files arrive.

The stream has the names of the files, and the workers read them with the readers of the library: so a
number that is none is one rejected event with its row and reason, where Spark's own readers would make a
null of it, which means a missing value. What the files hold (format, columns, type of ids) is told by the
first of them and goes along in the metadata of the one column. Spark takes a file when its name appears,
so write it under a name that begins with `.` or `_` and rename it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.durable.bucket import local_place
from rangecast.errors import OptionError
from rangecast.loading import format_of
from rangecast.spark.batch.files import check_files
from rangecast.spark.output import Output, OutputKeywords
from rangecast.store.store import Store
from rangecast.types.schema import Schema

PATH = "rangecast_path"
_CONTENT = "rangecast.files"
# as Spark's reader of whole files has it; the content is not read
_NAMES = T.StructType(
    [
        T.StructField("path", T.StringType()),
        T.StructField("modificationTime", T.TimestampType()),
        T.StructField("length", T.LongType()),
        T.StructField("content", T.BinaryType()),
    ]
)


@dataclass(frozen=True)
class FilesOfEvents:
    """What the files of a stream hold: their format, their columns, and the type of ids."""

    format: str
    fields: T.StructType
    id_type: str

    @classmethod
    def of(cls, frame: DataFrame) -> FilesOfEvents | None:
        """What `read_events` wrote down in a stream of files; None for any other stream."""
        if frame.columns != [PATH] or _CONTENT not in frame.schema[PATH].metadata:
            return None
        raw = json.loads(frame.schema[PATH].metadata[_CONTENT])
        return cls(raw["format"], T.StructType.fromJson(raw["fields"]), raw["id_type"])

    def metadata(self) -> dict[str, Any]:
        """The same as metadata of a column."""
        raw = {"format": self.format, "fields": self.fields.jsonValue(), "id_type": self.id_type}
        return {_CONTENT: json.dumps(raw)}


def read_events(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    schema: Schema | Store | str | os.PathLike[str],
    output: Output | None = None,
    *,
    format: str | None = None,
    files_per_batch: int | None = None,
    **keywords: Unpack[OutputKeywords],
) -> DataFrame:
    """Files of events in a folder, as a stream of their names for `match_stream` with this store or schema.

    The format is told by `format` ("parquet", "csv", "jsonl") or by the suffix of the first file, and so
    are the columns of Parquet and CSV; a folder without a file will do for "jsonl" alone. `output`, or
    its keywords, are those of `match_stream`: its columns are read, and its `id_type` says "int64" or
    "string" where the first file would tell otherwise; without a file, ids are whole numbers.
    `files_per_batch` bounds a micro-batch.
    """
    said = Output.of(output, keywords)
    place = Path(local_place(folder, "the folder of events")).absolute()
    if not place.is_dir():
        raise OptionError(f"{place}: events must be a folder that files arrive in; there is none")
    if not isinstance(schema, Schema):
        schema = (schema if isinstance(schema, Store) else Store.open(schema)).schema
    first = first_file(place)
    if first is None and format is None:
        raise OptionError(f"{place}: there is no file yet to tell the format by; say format=")
    kind = format_of(first or place, format)
    if first is None and kind != "jsonl":
        raise OptionError(f"{place}: the first file must be there to tell the columns of {kind}")
    answer = said.answer(schema, textual=None)
    settled = "int64"
    if first is not None:
        settled = check_files([str(first)], {str(first): kind}, schema, answer)
    if kind == "parquet":
        fields = from_arrow_schema(pq.read_schema(str(first)), prefer_timestamp_ntz=True)
    else:
        fields = T.StructType([T.StructField(name, T.StringType()) for name in answer.columns])
    settled = answer.id_type or settled
    fields[answer.event_id].dataType = T.LongType() if settled == "int64" else T.StringType()
    # by default, Spark passes over a file whose time is a week before that of the newest one
    reader = spark.readStream.format("binaryFile").schema(_NAMES).option("maxFileAge", "36500d")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    files = FilesOfEvents(kind, fields, settled)
    return reader.load(str(place)).select(F.col("path").alias(PATH, metadata=files.metadata()))


def first_file(folder: Path) -> Path | None:
    """The first file of data in a folder, by name."""
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return next((p for p in paths if not p.name.startswith(("_", "."))), None)
