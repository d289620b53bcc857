"""Files of subscriptions, events and matches: CSV, JSON lines and Parquet.

    lines.py                                text files as blocks of whole lines
    csv_files.py jsonl_files.py parquet_files.py   one reader a format, all giving batches (batches.py)
    pairs.py rejected.py output.py           what a run writes: matches, rows set aside, files by rename

A row that cannot be read never stops a file and never vanishes: it comes along in `RowBatch.unread`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.loading.batches import RowBatch, RowFile, UnreadRow, format_of
from rangecast.loading.csv_files import CsvFile
from rangecast.loading.jsonl_files import JsonLinesFile
from rangecast.loading.output import OutputFile
from rangecast.loading.pairs import PAIR_WRITERS, PairWriter
from rangecast.loading.parquet_files import ParquetFile
from rangecast.loading.rejected import RejectedRow, Rejects


def open_rows(
    path: str,
    wanted: Mapping[str, pa.DataType | None] | None = None,
    *,
    format: str | None = None,
    stream: BinaryIO | None = None,
    batch: int = 100_000,
) -> RowFile:
    """A file of rows, or a stream; `wanted` are the columns to keep with the types to expect in JSON."""
    kind = format_of(path, format)
    if kind == "csv":
        return CsvFile(path, wanted, stream)
    if kind == "jsonl":
        return JsonLinesFile(path, wanted, stream)
    if stream is not None:
        raise OptionError("Parquet cannot be read from a pipe; name a file")
    return ParquetFile(path, wanted, batch)


__all__ = [
    "PAIR_WRITERS",
    "OutputFile",
    "PairWriter",
    "RejectedRow",
    "Rejects",
    "RowBatch",
    "RowFile",
    "UnreadRow",
    "format_of",
    "open_rows",
]
