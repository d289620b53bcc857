"""What every file of rows is read as: batches, with the rows that could not be read rejected.

field      meaning
data       an Arrow table of the columns wanted; or dicts, where values of one column differ in type
rows       int64[n], each row's number in the file, from 1, a CSV header not counted; or None (no file)
lines      int64[n], its line in the file as an editor counts, or None when the file has no lines
unread     the rows that cannot be read: ragged, not UTF-8, no JSON object
raw        a function from a position in `data` to the row as the file has it
source     one to the file that a row came from, where a batch has rows of several; otherwise None
events     the rows as events, where they were read so; `data` has the other columns then
position   how far the reader is, in the unit of `RowFile.size`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.model.events import Events
from rangecast.types.attributes import MISSING

FORMATS = {
    "csv": "csv",
    "tsv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "pq": "parquet",
}
# of a table; a text file is cut by bytes (lines.py)
ROWS_AT_ONCE = 65_536
COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}


class UnreadRow(NamedTuple):
    """A row that could not be read, and why."""

    row: int
    line: int
    reason: str
    raw: str


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a file; see the module head."""

    data: pa.Table | list[dict[str, Any]]
    rows: npt.NDArray[np.int64] | None
    lines: npt.NDArray[np.int64] | None
    raw: Callable[[int], str]
    unread: list[UnreadRow] = field(default_factory=list)
    position: int = 0
    source: Callable[[int], str | None] | None = None
    events: Events | None = None

    def __len__(self) -> int:
        return len(self.data if self.events is None else self.events)

    @property
    def columns(self) -> list[str]:
        """The names of the columns that have a value in some row."""
        if isinstance(self.data, pa.Table):
            held = [n for n in self.data.column_names if self.data[n].null_count < len(self.data)]
            if self.events is None:
                return held
            some = (self.events.codes != MISSING).any(axis=1).tolist()
            return [n for n, there in zip(self.events.schema.names, some, strict=True) if there] + held
        return list(dict.fromkeys(n for row in self.data for n, v in row.items() if v is not None))

    def column(self, name: str) -> Any:
        """One column: Arrow, or a list of Python values."""
        if isinstance(self.data, pa.Table):
            return self.data[name]
        return [row.get(name) for row in self.data]


class RowFile:
    """An open file of rows. `names` are its columns, or None when only reading can tell; `types` are
    those of a file that has types. A `textual` file has texts alone.
    """

    textual: ClassVar[bool] = False
    names: list[str] | None = None
    types: Mapping[str, pa.DataType] = {}
    size: int | None = None

    def batches(self) -> Iterator[RowBatch]:
        """The rows, some at a time."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""
        raise NotImplementedError

    def keep(self, names: Collection[str]) -> None:
        """Read these columns alone, for who wanted to see `names` first."""
        raise NotImplementedError

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def suffix_of(path: str | Path) -> str:
    """The suffix that tells the format, below that of a compression; "" without one.

    >>> suffix_of("trades.TSV.gz")
    'tsv'
    """
    suffixes = [s.lstrip(".").lower() for s in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def format_of(path: str | Path, given: str | None = None) -> str:
    """The format of a file: as given, or by its suffix, below that of a compression.

    >>> format_of("events.csv"), format_of("events.jsonl.gz"), format_of("-", "csv")
    ('csv', 'jsonl', 'csv')
    """
    found = given or suffix_of(path)
    if found not in FORMATS:
        wanted = ".csv, .jsonl or .parquet"
        raise OptionError(f"{path}: the format must be given by the suffix {wanted}, got {found or 'none'!r}")
    return FORMATS[found]
