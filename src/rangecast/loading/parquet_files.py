"""Parquet files: columns come with their types, a row group at a time.

A few kilobytes can stand for any number of bytes: a text in the dictionary of a column is written once and
meant by every row. So before a row group is read, the longest text of its dictionaries tells how many rows
are read at once.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangecast.buckets.object_files import seekable_file
from rangecast.errors import StorageError
from rangecast.loading.batches import ROWS_AT_ONCE, RowBatch, RowFile
from rangecast.types.frames import flat_table, struct_inside

MOST_BYTES = 1 << 28
"""Of the texts of a column that are read at once, as far as dictionaries say them; one text may be longer."""


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
            self._file = pq.ParquetFile(self._source(), memory_map=not self._alone)
            self.names = list(self._file.schema_arrow.names)
        # the last where the name of a column is no text
        except (OSError, pa.ArrowInvalid, UnicodeDecodeError) as error:
            errno = getattr(error, "errno", None)
            reason = error if errno is None else os.strerror(errno)
            raise StorageError(f"{path}: cannot be read: {reason}") from error
        self.types = {field.name: field.type for field in self._file.schema_arrow}
        if wanted is not None:
            # what a struct has inside is a column by its path, where no column has that name
            inner = flat_table(self._file.schema_arrow.empty_table()).schema
            self.types = {field.name: field.type for field in inner} | self.types
            self.names += [name for name in inner.names if name not in self.names]
        self.size = self._file.metadata.num_rows
        first, last = groups or (0, -1)
        self._groups = range(first, last if last >= 0 else self._file.num_row_groups)
        self._kept = [name for name in self.names if wanted is None or name in wanted]
        self._batch = batch
        self._dictionaries: pq.ParquetFile | None = None

    def _source(self) -> Any:
        return seekable_file(self._path)

    def close(self) -> None:
        self._file.close()
        if self._dictionaries is not None:
            self._dictionaries.close()

    def keep(self, names: Collection[str]) -> None:
        self._kept = [name for name in self.types if name in names]

    def batches(self) -> Iterator[RowBatch]:
        metadata = self._file.metadata
        seen = sum(metadata.row_group(group).num_rows for group in range(self._groups.start))
        pieces = self._pieces()
        while True:
            try:
                piece = next(pieces, None)
            except (OSError, pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise StorageError(f"{self._path}: damaged after row {seen:,}: {error}") from error
            except MemoryError as error:
                raise StorageError(f"{self._path}: too large after row {seen:,}: {error}") from error
            if piece is None:
                break
            rows = np.arange(seen + 1, seen + 1 + len(piece), dtype=np.int64)
            seen += len(piece)
            table = self._flat(piece)
            yield RowBatch(table, rows, None, table_raw(table), [], seen)

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        """The rows, those of a run of row groups that are alike by one reader."""
        for at_once, groups in itertools.groupby(self._groups, self._rows_at_once):
            yield from self._file.iter_batches(
                at_once, list(groups), columns=self._kept, use_threads=self._alone
            )

    def _flat(self, piece: pa.RecordBatch) -> pa.Table:
        """The columns that are kept, those inside of structs by their paths."""
        table = pa.Table.from_batches([piece])
        there = set(self._file.schema_arrow.names)
        if there.issuperset(self._kept):
            return table
        columns = {}
        for name in self._kept:
            head, *path = [name] if name in there else name.split(".")
            columns[name] = struct_inside(table[head], path, fold=False)
        return pa.table(columns)

    def _rows_at_once(self, group: int) -> int:
        """How many rows of a row group are read at once.

        Only the metadata of the group as a whole is read: where the metadata of a column contradicts
        the schema, PyArrow (26) ends the process when asked, and refuses the file when reading.
        """
        metadata = self._file.metadata.row_group(group)
        most = min(self._batch, max(metadata.num_rows, 1))
        names = [name for name in self._kept if _is_text(self.types[name])]
        # what it says of its own size is no more than a reason to look
        if not names or most * metadata.total_byte_size <= MOST_BYTES:
            return self._batch
        if self._dictionaries is None:
            self._dictionaries = pq.ParquetFile(
                self._source(),
                metadata=self._file.metadata,
                memory_map=not self._alone,
                read_dictionary=names,
            )
        # one row brings the whole dictionary
        row = next(self._dictionaries.iter_batches(1, [group], columns=names, use_threads=False), None)
        columns = [] if row is None else [chunk for column in flat_table(pa.Table.from_batches([row])).columns
                                          for chunk in column.chunks]  # fmt: skip
        longest = max(
            (_longest(column.dictionary) for column in columns if pa.types.is_dictionary(column.type)),
            default=0,
        )
        return self._batch if most * longest <= MOST_BYTES else max(MOST_BYTES // longest, 1)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
                or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))  # fmt: skip


def _longest(texts: pa.Array[Any]) -> int:
    lengths = pc.binary_length(texts)
    return int(pc.max(lengths).as_py() or 0)


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
