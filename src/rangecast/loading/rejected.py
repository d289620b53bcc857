"""Rows that were rejected: which row of which input, why, and the row itself. One form for every door.

    column   type     meaning
    source   string   the file, as it was named; null where the input is not a file
    row      int64    the row's number in it, from 1, a CSV header not counted; null for a whole file, or
                      where rows have no numbers (DataFrames)
    line     int64    its line as an editor counts; null for what has no lines
    id       string   its id as it was written, null where it has none
    reason   string   what must hold and what came
    raw      string   the row as the file has it, or its columns as JSON

`Rejects` counts them and keeps them in memory, or in a CSV file that is created with the first such row; a
run without any leaves no file, and removes that of an earlier run. Spark keeps them in Parquet.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rangecast.durable.bucket import local_place
from rangecast.errors import EventError, RangecastError, visible
from rangecast.loading.pairs import OutputFile

SHOWN = 10
REJECTED = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("line", pa.int64()),
        ("id", pa.string()),
        ("reason", pa.string()),
        ("raw", pa.string()),
    ]
)


class RejectedRow(NamedTuple):
    """A row of an input that was not loaded; see the module head."""

    source: str | None
    row: int | None
    line: int | None
    id: str | None
    reason: str
    raw: str

    def __str__(self) -> str:
        place = "" if self.row is None else f" row {self.row:,}"
        place += "" if self.line is None else f" (line {self.line:,})"
        named = "" if self.id is None else f", id {visible(self.id)}"
        return f"{visible(self.source or 'the input')}{place}{named}: {visible(self.reason, lines=True)}"

    def in_one_line(self) -> RejectedRow:
        """Without what an error in a condition draws below its text: `raw` has the text."""
        return self._replace(reason=self.reason.partition("\n")[0])


def rejected_table(rows: Iterable[RejectedRow]) -> pa.Table:
    """Rejected rows as an Arrow table of the columns above."""
    return pa.Table.from_pylist([row.in_one_line()._asdict() for row in rows], REJECTED)


class Rejects:
    """Takes the rejected rows of a run, and counts them all.

    With a `path`, they are written to that file. `first` has the first `most` of them in memory: all of them
    by default, or a few if there is a file. `strict` raises at the first one instead. As a context, it is
    closed when the block ends or fails.

    >>> rejects = Rejects()
    >>> rejects.add(RejectedRow("trades.csv", 3, 4, "13", "'price' is an int, got the string 'x'", "13,x"))
    >>> len(rejects), str(rejects.first[0])
    (1, "trades.csv row 3 (line 4), id 13: 'price' is an int, got the string 'x'")
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, strict: bool = False, most: int | None = None
    ) -> None:
        self.path = None if path is None else Path(local_place(path, "a file of rejected rows"))
        self.first: list[RejectedRow] = []
        self.counts: dict[str, int] = {}
        self._most = SHOWN if path is not None and most is None else most
        self.strict = strict
        self._file: OutputFile | None = None

    def __enter__(self) -> Rejects:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(finished=kind is None)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, rejected: RejectedRow, error: type[RangecastError] = EventError) -> None:
        """Take a row; `error` is what a strict run raises."""
        rejected = rejected.in_one_line()
        if self.strict:
            raise error(f"{rejected} (the first bad row stops a strict run)")
        name = rejected.source or ""
        self.counts[name] = self.counts.get(name, 0) + 1
        if self._most is None or len(self.first) < self._most:
            self.first.append(rejected)
        if self.path is None:
            return
        if self._file is None:
            self._file = OutputFile(self.path)
            self._write(RejectedRow._fields)
        self._write(rejected)

    def to_arrow(self) -> pa.Table:
        """The rows of `first` as a table."""
        return rejected_table(self.first)

    def close(self, finished: bool = True) -> None:
        """Put the side file in its place, or drop it when the run failed.

        A run that finished without a rejected row removes the file that an earlier one left there.
        """
        if self._file is not None:
            if finished:
                self._file.keep()
            else:
                self._file.drop()
            self._file = None
        elif finished and self.path is not None and not len(self):
            self.path.unlink(missing_ok=True)

    def _write(self, row: Any) -> None:
        assert self._file is not None
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        self._file.stream.write(text.getvalue().encode())
