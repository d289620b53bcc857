"""Opening a file of rows by its format: the reader of CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rangecast.durable.bucket import seekable_file, size_of
from rangecast.errors import OptionError, StorageError
from rangecast.loading.files import (
    ROWS_AT_ONCE,
    LineChunk,
    LineReader,
    RowBatch,
    RowFile,
    UnreadRow,
    format_of,
    suffix_of,
)
from rangecast.loading.json import JsonLinesFile
from rangecast.types.frames import flat_table, struct_inside

# CSV files: every value is read as text, and attributes parse it later, value by value.
#
# Arrow's reader does the work, a chunk of lines at a time. It cannot be left alone with a damaged file:
# a quote that is never closed swallows all lines up to the next quote, and the answer may even have the
# right number of fields. So a row of several lines counts only if it is well-formed by the strict rules
# of Python's csv module; of any other, the first line is rejected and the lines after it are read
# again by themselves. An empty field is null, a quoted empty one ("") is the empty string, and an empty
# line is not a row.
#
# What stands between the fields is a comma, unless the caller, the suffix .tsv or the header says otherwise:
# a semicolon, a tab or a bar that the header has more of than commas.

# in the order in which they win where a header has as many of several
_DELIMITERS = (",", ";", "\t", "|")


def checked_delimiter(given: str | None) -> str | None:
    """What somebody gave for a delimiter: one character, or the word tab.

    >>> checked_delimiter("tab"), checked_delimiter(";"), checked_delimiter(None)
    ('\\t', ';', None)
    """
    found = "\t" if given in ("tab", "\\t") else given
    if found is not None and (len(found) != 1 or not found.isascii() or found in '"\r\n\0'):
        raise OptionError(f"a delimiter must be one character such as ; or the word tab, got {given!r}")
    return found


def _sniffed(header: str) -> str:
    """What a header has most of outside of quotes, among the usual ones.

    >>> _sniffed('id;"last, first";at'), _sniffed("id"), _sniffed("a,b;c")
    (';', ',', ',')
    """
    plain = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=plain.count)


class _Parsed(NamedTuple):
    """Rows of a chunk: the first line of each, how many lines it has, and its values."""

    table: pa.Table
    firsts: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]


class CsvFile(RowFile):
    """A CSV file with a header; `wanted` are the columns to keep, None for all.

    `delimiter` stands between the fields; by default, the suffix .tsv or the header says it.
    """

    textual = True
    names: list[str]

    def __init__(
        self,
        path: str,
        wanted: Collection[str] | None = None,
        stream: BinaryIO | None = None,
        delimiter: str | None = None,
    ) -> None:
        self._path = path
        self._delimiter = checked_delimiter(delimiter) or ("\t" if suffix_of(path) == "tsv" else "")
        self._reader = LineReader(path, stream)
        try:
            self.names = self._header()
        except StorageError:
            self.close()
            raise
        self._kept = [name for name in self.names if wanted is None or name in wanted] or self.names
        self.size = None if stream else size_of(path)

    def _header(self) -> list[str]:
        path, header = self._path, self._reader.take_line()
        if header is None or not header.strip():
            raise StorageError(f"{path}: the first line must be a header with the names of the columns")
        self._delimiter = self._delimiter or _sniffed(header)
        try:
            names = [name.strip() for name in next(csv.reader([header], delimiter=self._delimiter))]
        except csv.Error as error:
            raise StorageError(f"{path}: the header cannot be read: {error}") from error
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise StorageError(
                f"{path}: the columns of the header must differ, got twice: {', '.join(twice)}"
            )
        return names

    def close(self) -> None:
        self._reader.close()

    def keep(self, names: Collection[str]) -> None:
        self._kept = [name for name in self.names if name in names] or self.names

    def batches(self) -> Iterator[RowBatch]:
        seen = 0
        for chunk in self._reader.chunks(quoted=True):
            batch = self._batch(chunk, seen)
            seen += len(batch) + len(batch.unread)
            yield batch

    def _batch(self, chunk: LineChunk, seen: int) -> RowBatch:
        parsed, bad = self._parse(chunk)
        table, firsts, spans = parsed
        lines = chunk.numbers[firsts]
        troubles = [
            *((int(chunk.numbers[i]), reason, chunk.text(i, i + 1)) for i, reason in bad),
            *((line, "a line must be UTF-8", raw.decode("utf-8", "replace")) for line, raw in chunk.foreign),
        ]
        troubles.sort()
        bad_lines = np.array([line for line, _, _ in troubles], np.int64)
        # a row's number counts the rows before it, rejected ones included
        rows = seen + 1 + np.arange(len(lines)) + np.searchsorted(bad_lines, lines)
        before = seen + 1 + np.searchsorted(lines, bad_lines) + np.arange(len(bad_lines))
        unread = [UnreadRow(int(row), *trouble) for row, trouble in zip(before, troubles, strict=True)]
        return RowBatch(
            table, rows, lines, lambda i: chunk.text(firsts[i], firsts[i] + spans[i]), unread, chunk.position
        )

    def _parse(self, chunk: LineChunk) -> tuple[_Parsed, list[tuple[int, str]]]:
        pieces: list[_Parsed] = []
        bad: list[tuple[int, str]] = []
        waiting = [(0, len(chunk.numbers))]
        while waiting:
            first, last = waiting.pop()
            if first < last:
                piece, again = self._parse_lines(chunk, first, last, bad)
                pieces.append(piece)
                waiting += again
        if not pieces:
            none = np.empty(0, np.int64)
            return _Parsed(
                pa.table({name: pa.array([], pa.string()) for name in self._kept}), none, none
            ), bad
        if len(pieces) == 1:
            return pieces[0], bad
        firsts = np.concatenate([p.firsts for p in pieces])
        order = np.argsort(firsts)
        table = pa.concat_tables([p.table for p in pieces]).take(pa.array(order))
        return _Parsed(table, firsts[order], np.concatenate([p.spans for p in pieces])[order]), bad

    def _parse_lines(
        self, chunk: LineChunk, first: int, last: int, bad: list[tuple[int, str]]
    ) -> tuple[_Parsed, list[tuple[int, int]]]:
        """The rows of some lines; what is wrong goes to `bad`, and line ranges to read again come back."""
        data = chunk.data[chunk.starts[first] : chunk.starts[last]]
        table, ragged = self._arrow(data, self._kept)
        n_rows, n_fields = len(table) + len(ragged), len(self.names)
        spans = np.ones(n_rows, np.int64)
        held = np.ones(n_rows, bool)
        held[[number - 1 for number, _ in ragged]] = False
        if n_rows != last - first:  # some row has several lines
            breaks = np.zeros(len(table), np.int64)
            for column in self._arrow(data, self.names)[0].columns:
                breaks += pc.count_substring(column, "\n").fill_null(0).to_numpy()
            spans[held] += breaks
            for number, text in ragged:
                spans[number - 1] += text.count("\n")
        # a carriage return alone ends a row for Arrow and not for us: such rows share a line
        firsts = np.minimum(first + np.cumsum(spans) - spans, last - 1)
        spans = np.minimum(spans, last - firsts)
        kept = held & ~((spans == 1) & chunk.blank()[firsts])
        again: list[tuple[int, int]] = []
        for i in np.flatnonzero((spans > 1) | ~held):
            a, b = int(firsts[i]), min(int(firsts[i] + spans[i]), last)
            if held[i] and _strict_fields(chunk.text(a, b), self._delimiter) == n_fields:
                continue
            kept[i] = False
            fields = _strict_fields(chunk.text(a, a + 1), self._delimiter)
            got = str(fields) if fields else "quotes out of place"
            bad.append((a, f"a row must have {n_fields} fields, got {got}"))
            again.append((a + 1, b))
        if not kept.all():
            positions = np.cumsum(held) - 1
            table, firsts, spans = table.take(pa.array(positions[kept])), firsts[kept], spans[kept]
        return _Parsed(table, firsts, spans), again

    def _arrow(self, data: bytes, columns: list[str]) -> tuple[pa.Table, list[tuple[int, str]]]:
        """The rows of some lines, and those with too few or too many fields: number from 1, and text."""
        ragged: list[tuple[int, str]] = []

        def skip(row: pacsv.InvalidRow) -> str:
            ragged.append((row.number, row.text))
            return "skip"

        table = pacsv.read_csv(
            pa.py_buffer(data),
            pacsv.ReadOptions(column_names=self.names, use_threads=False, block_size=len(data) + 1),
            pacsv.ParseOptions(
                delimiter=self._delimiter,
                invalid_row_handler=skip,
                newlines_in_values=True,
                ignore_empty_lines=False,
            ),
            pacsv.ConvertOptions(
                column_types={name: pa.string() for name in self.names},
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        return table, ragged


def _strict_fields(text: str, delimiter: str) -> int:
    """How many fields a row has, 0 when it is none by the strict rules."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return 0
    return len(rows[0]) if len(rows) == 1 else 0


# Parquet files: columns come with their types, a row group at a time.
#
# A few kilobytes can stand for any number of bytes: a text in the dictionary of a column is written once and
# meant by every row. So before a row group is read, the longest text of its dictionaries tells how many rows
# are read at once.

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
