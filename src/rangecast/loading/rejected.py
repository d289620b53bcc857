"""The side file of rows that were set aside: which row of which input, why, and the row itself.

    column   meaning
    input    "subscriptions" or "events"
    row      the row's number in that file, from 1, a CSV header not counted
    line     its line as an editor counts; empty for Parquet
    id       its id, where it has one
    reason   what must hold and what came
    raw      the row as the file has it

The file is created with the first such row; a run without any leaves none, and removes that of an
earlier run.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

from rangecast.errors import EventError, SubscriptionError
from rangecast.loading.output import OutputFile

SHOWN = 10
SUBSCRIPTIONS, EVENTS = "subscriptions", "events"


class RejectedRow(NamedTuple):
    """A row of an input file that was not loaded."""

    input: str
    row: int
    line: int | None
    id: Any
    reason: str
    raw: str

    def __str__(self) -> str:
        place = f"row {self.row:,}" + ("" if self.line is None else f" (line {self.line:,})")
        named = "" if self.id is None else f", id {self.id!r}"
        return f"{self.input} {place}{named}: {self.reason}"


class Rejects:
    """Counts rows that were set aside, keeps the first few, and writes all to a file if there is one.

    `strict` raises at the first one instead. As a context, it is closed when the block ends or fails.
    """

    def __init__(self, path: str | Path | None = None, strict: bool = False) -> None:
        self.path = None if path is None else Path(path)
        self.first: list[RejectedRow] = []
        self.counts: dict[str, int] = {}
        self._strict = strict
        self._file: OutputFile | None = None

    def __enter__(self) -> Rejects:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(finished=kind is None)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, rejected: RejectedRow) -> None:
        """Set a row aside."""
        # an error in a condition points into the text on further lines; the row is told by `raw`
        rejected = rejected._replace(reason=rejected.reason.partition("\n")[0])
        if self._strict:
            kind = EventError if rejected.input == EVENTS else SubscriptionError
            raise kind(f"{rejected} (the first bad row stops a strict run)")
        self.counts[rejected.input] = self.counts.get(rejected.input, 0) + 1
        if len(self.first) < SHOWN:
            self.first.append(rejected)
        if self.path is None:
            return
        if self._file is None:
            self._file = OutputFile(self.path)
            self._write(RejectedRow._fields)
        self._write(rejected)

    def close(self, finished: bool) -> None:
        """Put the side file in its place, or drop it when the run failed."""
        if self._file is not None:
            if finished:
                self._file.keep()
            else:
                self._file.drop()
        elif finished and self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write(self, row: Any) -> None:
        assert self._file is not None
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        self._file.stream.write(text.getvalue().encode())
