"""Parquet files: columns come with their types, a row group at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.errors import StorageError
from rangecast.loading.batches import RowBatch, RowFile


class ParquetFile(RowFile):
    """A Parquet file; `wanted` are the columns to keep, None for all."""

    def __init__(self, path: str, wanted: Collection[str] | None = None, batch: int = 100_000) -> None:
        self._path = path
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowInvalid) as error:
            errno = getattr(error, "errno", None)
            reason = error if errno is None else os.strerror(errno)
            raise StorageError(f"{path}: cannot be read: {reason}") from None
        self.names = list(self._file.schema_arrow.names)
        self.size = self._file.metadata.num_rows
        self._kept = [name for name in self.names if wanted is None or name in wanted]
        self._batch = batch

    def close(self) -> None:
        self._file.close()

    def batches(self) -> Iterator[RowBatch]:
        seen = 0
        pieces = self._file.iter_batches(self._batch, columns=self._kept, use_threads=True)
        while True:
            try:
                piece = next(pieces, None)
            except (OSError, pa.ArrowInvalid) as error:
                raise StorageError(f"{self._path}: damaged after row {seen:,}: {error}") from None
            if piece is None:
                break
            rows = np.arange(seen + 1, seen + 1 + len(piece), dtype=np.int64)
            seen += len(piece)
            table = pa.Table.from_batches([piece])
            yield RowBatch(table, rows, None, _raw(table), [], seen)


def _raw(table: pa.Table) -> Callable[[int], str]:
    return lambda i: json.dumps(table.slice(i, 1).to_pylist()[0], default=str, ensure_ascii=False)
