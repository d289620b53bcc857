"""Parquet files: columns come with their types, a row group at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.errors import StorageError
from rangecast.loading.batches import ROWS_AT_ONCE, RowBatch, RowFile


class ParquetFile(RowFile):
    """A Parquet file; `wanted` are the columns to keep, None for all.

    `groups` cuts row groups [first, last) out of it (-1: to the end), for one of many tasks: the file is
    mapped, and read by one thread.
    """

    def __init__(
        self,
        path: str,
        wanted: Collection[str] | None = None,
        batch: int = ROWS_AT_ONCE,
        groups: tuple[int, int] | None = None,
    ) -> None:
        self._path = path
        self._alone = groups is None
        try:
            self._file = pq.ParquetFile(path, memory_map=not self._alone)
            self.names = list(self._file.schema_arrow.names)
        # the last where the name of a column is no text
        except (OSError, pa.ArrowInvalid, UnicodeDecodeError) as error:
            errno = getattr(error, "errno", None)
            reason = error if errno is None else os.strerror(errno)
            raise StorageError(f"{path}: cannot be read: {reason}") from error
        self.types = {field.name: field.type for field in self._file.schema_arrow}
        self.size = self._file.metadata.num_rows
        first, last = groups or (0, -1)
        self._groups = range(first, last if last >= 0 else self._file.num_row_groups)
        self._kept = [name for name in self.names if wanted is None or name in wanted]
        self._batch = batch

    def close(self) -> None:
        self._file.close()

    def keep(self, names: Collection[str]) -> None:
        self._kept = [name for name in self.types if name in names]

    def batches(self) -> Iterator[RowBatch]:
        metadata = self._file.metadata
        seen = sum(metadata.row_group(group).num_rows for group in range(self._groups.start))
        pieces = self._file.iter_batches(
            self._batch, list(self._groups), columns=self._kept, use_threads=self._alone
        )
        while True:
            try:
                piece = next(pieces, None)
            except (OSError, pa.ArrowInvalid) as error:
                raise StorageError(f"{self._path}: damaged after row {seen:,}: {error}") from error
            if piece is None:
                break
            rows = np.arange(seen + 1, seen + 1 + len(piece), dtype=np.int64)
            seen += len(piece)
            table = pa.Table.from_batches([piece])
            yield RowBatch(table, rows, None, table_raw(table), [], seen)


def table_raw(table: pa.Table | pa.RecordBatch) -> Callable[[int], str]:
    """The rows of a table as JSON, by position."""

    def raw(i: int) -> str:
        row = table.slice(i, 1)
        values = {name: _value(column) for name, column in zip(row.schema.names, row.columns, strict=True)}
        return json.dumps(values, default=str, ensure_ascii=False)

    return raw


def _value(column: pa.Array[Any] | pa.ChunkedArray) -> Any:
    """The one value of a column; a file may call text what is none."""
    try:
        return column.to_pylist()[0]
    except UnicodeDecodeError:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return column.cast(pa.large_binary()).to_pylist()[0].decode(errors="replace")
        return f"{column.type} with text that is not UTF-8"
