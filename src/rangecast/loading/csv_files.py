"""CSV files: every value is read as text, and attributes parse it later, value by value.

Arrow's reader does the work, a chunk of lines at a time. It cannot be left alone with a damaged file:
a quote that is never closed swallows all lines up to the next quote, and the answer may even have the
right number of fields. So a row of several lines counts only if it is well-formed by the strict rules
of Python's csv module; of any other, the first line is rejected and the lines after it are read
again by themselves. An empty field is null, a quoted empty one ("") is the empty string, and an empty
line is not a row.

What stands between the fields is a comma, unless the caller, the suffix .tsv or the header says otherwise: a
semicolon, a tab or a bar that the header has more of than commas.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from rangecast.buckets.object_files import size_of
from rangecast.errors import OptionError, StorageError
from rangecast.loading.batches import RowBatch, RowFile, UnreadRow, suffix_of
from rangecast.loading.files import LineChunk, LineReader

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
