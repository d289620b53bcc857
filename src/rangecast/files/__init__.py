"""Files of subscriptions, events and matches: CSV, JSON lines and Parquet.

    lines.py                                text files as blocks of whole lines
    csv_rows.py json_rows.py parquet_rows.py   one reader a format, all giving batches (batches.py)
    pairs.py rejects.py output.py           what a run writes: matches, rows set aside, files by rename

A row that cannot be read never stops a file and never vanishes: it comes along in `Batch.unread`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.files.batches import Batch, Source, UnreadRow, format_of
from rangecast.files.csv_rows import CsvSource
from rangecast.files.json_rows import JsonSource
from rangecast.files.output import OutputFile
from rangecast.files.pairs import PAIR_WRITERS, PairWriter
from rangecast.files.parquet_rows import ParquetSource
from rangecast.files.rejects import RejectedRow, Rejects


def open_rows(
    path: str,
    wanted: Mapping[str, pa.DataType | None] | None = None,
    *,
    format: str | None = None,
    stream: BinaryIO | None = None,
    batch: int = 100_000,
) -> Source:
    """A file of rows, or a stream; `wanted` are the columns to keep with the types to expect in JSON."""
    kind = format_of(path, format)
    if kind == "csv":
        return CsvSource(path, wanted, stream)
    if kind == "jsonl":
        return JsonSource(path, wanted, stream)
    if stream is not None:
        raise OptionError("Parquet cannot be read from a pipe; name a file")
    return ParquetSource(path, wanted, batch)


__all__ = [
    "PAIR_WRITERS",
    "Batch",
    "OutputFile",
    "PairWriter",
    "RejectedRow",
    "Rejects",
    "Source",
    "UnreadRow",
    "format_of",
    "open_rows",
]
