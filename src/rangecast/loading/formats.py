"""Opening a file of rows by its format: the reader of CSV, JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.loading.batches import ROWS_AT_ONCE, RowFile, format_of
from rangecast.loading.csv_files import CsvFile
from rangecast.loading.json import JsonLinesFile
from rangecast.loading.parquet_files import ParquetFile


def open_rows(
    path: str,
    wanted: Mapping[str, pa.DataType | None] | None = None,
    *,
    format: str | None = None,
    stream: BinaryIO | None = None,
    batch: int = ROWS_AT_ONCE,
    groups: tuple[int, int] | None = None,
    delimiter: str | None = None,
) -> RowFile:
    """A file of rows, or a stream; `wanted` are the columns to keep with the types to expect in JSON.

    `batch` is how many rows of a Parquet file are read at once, `groups` a range of its row groups;
    `delimiter` is that of a CSV file, whose header says it by default.
    """
    kind = format_of(path, format)
    if kind == "csv":
        return CsvFile(path, wanted, stream, delimiter)
    if kind == "jsonl":
        return JsonLinesFile(path, wanted, stream)
    if stream is not None:
        raise OptionError("Parquet cannot be read from a pipe; name a file")
    return ParquetFile(path, wanted, batch, groups)
