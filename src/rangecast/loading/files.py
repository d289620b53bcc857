"""Text files as chunks of whole lines, in bounded memory.

A block holds some megabytes: enough for Arrow's readers to run at full speed, and little enough that
a bad line makes only its own block take the careful path. Lines that are not UTF-8 are rejected
here, so that no reader above has to know about encodings.

    array     dtype   shape     meaning
    starts    int64   n + 1     line i of the block is data[starts[i]:starts[i + 1]], its end included
    numbers   int64   n         the line's number in the file, from 1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable.bucket import open_file
from rangecast.errors import OptionError, StorageError
from rangecast.model.events import Events
from rangecast.types.attributes import MISSING

CHUNK = 8 << 20
LONGEST_LINE = 64 << 20
_BOM = b"\xef\xbb\xbf"
# A quoted value that spans lines is short; where the last line end outside of quotes is further from
# the end than this, a quote was left open, and the parity of quotes says nothing any more.
_QUOTE_REACH = 64 << 10


class LineChunk(NamedTuple):
    """Whole lines of valid UTF-8; `foreign` are the lines that are not, by number."""

    data: bytes
    starts: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    foreign: list[tuple[int, bytes]]
    position: int

    def text(self, first: int, last: int) -> str:
        """Some lines as text, without the last line's end."""
        return self.data[self.starts[first] : self.starts[last]].decode().rstrip("\r\n")

    def part(self, first: int, last: int) -> LineChunk:
        """Some of the lines as a chunk, with the foreign lines that come before the next one."""
        numbers = self.numbers
        begin = 0 if first == 0 else int(numbers[first])
        end = None if last == len(numbers) else int(numbers[last])
        foreign = [(n, raw) for n, raw in self.foreign if n > begin and (end is None or n < end)]
        data = self.data[self.starts[first] : self.starts[last]]
        starts = self.starts[first : last + 1] - self.starts[first]
        return LineChunk(data, starts, numbers[first:last], foreign, self.position)

    def blank(self) -> npt.NDArray[np.bool_]:
        """Which lines hold nothing but their end."""
        letters = np.frombuffer(self.data, np.uint8)
        lengths = np.diff(self.starts)
        blank: npt.NDArray[np.bool_] = lengths <= 1
        blank |= (lengths == 2) & (letters[self.starts[:-1]] == ord("\r"))
        return blank


class LineReader:
    """Reads a text file chunk by chunk; the first line can be taken off before."""

    def __init__(self, path: str, stream: BinaryIO | None = None) -> None:
        self.path = path
        try:
            self._raw: Any = stream or open_file(path)
            packing = COMPRESSIONS.get(Path(path).suffix.lstrip(".").lower())
            self._stream: Any = pa.input_stream(self._raw, compression=packing) if packing else self._raw
            self._rest = self._read(CHUNK).removeprefix(_BOM)
        except StorageError:
            self.close()
            raise
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from None
        self._line = 1

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def take_line(self) -> str | None:
        """The next line, or None at the end of the file."""
        while b"\n" not in self._rest:
            more = self._read(CHUNK)
            if not more:
                break
            self._grow(more)
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        self._line += 1
        try:
            return line.decode().rstrip("\r")
        except UnicodeDecodeError:
            raise StorageError(f"{self.path}: line {self._line - 1} must be UTF-8") from None

    def chunks(self, quoted: bool) -> Iterator[LineChunk]:
        """All lines from here on; `quoted` keeps a quoted value that spans lines in one chunk."""
        ended = stuck = False
        while not ended:
            if stuck or len(self._rest) < CHUNK:
                more = self._read(CHUNK)
                ended = not more
                self._grow(more)
            cut = len(self._rest) if ended else _last_end(self._rest, quoted)
            stuck = cut == 0
            if cut:
                data, self._rest = self._rest[:cut], self._rest[cut:]
                yield self._chunk(data if data.endswith(b"\n") else data + b"\n")

    def _grow(self, more: bytes) -> None:
        self._rest += more
        if len(self._rest) > LONGEST_LINE:
            raise StorageError(
                f"{self.path}: line {self._line} must not be longer than {LONGEST_LINE >> 20} MB"
            )

    def _read(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except (OSError, pa.ArrowInvalid) as error:
            raise StorageError(f"{self.path}: cannot be read: {error}") from None

    def _chunk(self, data: bytes) -> LineChunk:
        starts = _line_starts(data)
        numbers = np.arange(self._line, self._line + len(starts) - 1, dtype=np.int64)
        self._line += len(numbers)
        foreign: list[tuple[int, bytes]] = []
        try:
            if not data.isascii():  # asking takes a tenth of the time of decoding
                data.decode()
        except UnicodeDecodeError:
            kept: list[bytes] = []
            good = np.ones(len(numbers), bool)
            for i, line in enumerate(data.split(b"\n")[:-1]):
                try:
                    line.decode()
                    kept.append(line + b"\n")
                except UnicodeDecodeError:
                    good[i] = False
                    foreign.append((int(numbers[i]), line))
            data, numbers = b"".join(kept), numbers[good]
            starts = _line_starts(data)
        return LineChunk(data, starts, numbers, foreign, self._position())

    def _position(self) -> int:
        try:
            return int(self._raw.tell())
        except (OSError, ValueError):  # a pipe
            return 0


def _line_starts(data: bytes) -> npt.NDArray[np.int64]:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return np.concatenate([np.zeros(1, np.int64), ends + 1])


def _last_end(data: bytes, quoted: bool) -> int:
    """Where to cut: after the last line end, or the last one outside of quotes; 0 to read on."""
    last = data.rfind(b"\n") + 1
    if quoted and last and b'"' in data:
        letters = np.frombuffer(data, np.uint8)[:last]
        quotes = np.flatnonzero(letters == ord('"'))
        near = np.flatnonzero(letters[-_QUOTE_REACH:] == ord("\n")) + max(0, last - _QUOTE_REACH)
        outside = near[np.searchsorted(quotes, near) % 2 == 0]
        if len(outside):
            return int(outside[-1]) + 1
        if last <= _QUOTE_REACH:
            return 0
    return last


# What every file of rows is read as: batches, with the rows that could not be read rejected.
#
# field      meaning
# data       an Arrow table of the columns wanted; or dicts, where values of one column differ in type
# rows       int64[n], each row's number in the file, from 1, a CSV header not counted; or None (no file)
# lines      int64[n], its line in the file as an editor counts, or None when the file has no lines
# unread     the rows that cannot be read: ragged, not UTF-8, no JSON object
# raw        a function from a position in `data` to the row as the file has it
# source     one to the file that a row came from, where a batch has rows of several; otherwise None
# events     the rows as events, where they were read so; `data` has the other columns then
# position   how far the reader is, in the unit of `RowFile.size`

FORMATS = {
    "csv": "csv",
    "tsv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "pq": "parquet",
}
# of a table; a text file is cut by bytes (files.py)
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
