"""Records in files, one after the other: what the change log of a store and the event log of a broker share.

    <folder>/00000000000000000012.log    a segment, named for the number of its first record
        a head                           what it says is the log's own
        records                          each a head of a fixed size, with a sum, and a payload, with another

The numbers of records follow one another; a record may have several. One process writes, behind the last
record, and says that a record is there when it is on disk. So a crash leaves a torn end: records that were
never acknowledged, whole, in part or with holes. The next writer keeps those that are whole up to the first
that is not, and moves the rest into a file beside the segment. A record that was on disk and does not check
is damage, which is never cut: each log knows by its own means how far that was, and looks for whole records
behind a bad one.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rangecast.durable.arrays import sync_folder, writing_to

_MOST_BUFFERS = 512  # of one writev


class NumberedHead(Protocol):
    """What the head of a record says, when its own sum holds."""

    @property
    def number(self) -> int:
        """The number of the record, or of the first thing in it."""

    @property
    def next(self) -> int:
        """The number of the record that follows."""

    @property
    def length(self) -> int:
        """How many bytes the payload has."""

    @property
    def crc(self) -> int:
        """The sum of the payload."""


class RecordFormat(NamedTuple):
    """How the records of a segment are found and checked."""

    head_size: int
    begins: bytes
    """The bytes that each record begins with, and that others have by chance or on purpose."""
    read_head: Callable[[Any, int], Any]
    """The head in some bytes at a place, None where it does not check."""

    def whole(self, raw: Any, at: int, number: int | None = None) -> Any:
        """The head of the record at a place, None unless it is whole, and of this number if one is given."""
        head = self.read_head(raw, at)
        if head is None or (number is not None and head.number != number):
            return None
        payload = memoryview(raw)[at + self.head_size : at + self.head_size + head.length]
        return head if len(payload) == head.length and zlib.crc32(payload) == head.crc else None

    def walk(self, raw: Any, at: int, number: int) -> Iterator[tuple[int, Any]]:
        """Places and heads of the records from a place on, up to the first that is not whole."""
        while (head := self.whole(raw, at, number)) is not None:
            yield at, head
            at += self.head_size + head.length
            number = head.next

    def beyond(
        self, raw: Any, at: int, accepts: Callable[[int, Any], bool] = lambda *_: True
    ) -> Iterator[tuple[int, Any]]:
        """Places and heads of the whole records behind a bad one that are accepted.

        Where the bad one has a good head, its length says what is behind it: its payload may have anything in
        it, also the bytes of a record. Otherwise records are looked for by what they begin with.
        """
        bad = self.read_head(raw, at)
        found = raw.find(self.begins, at + 1 if bad is None else at + self.head_size + bad.length)
        while found >= 0:
            after = found + 1
            head = self.whole(raw, found)
            if head is not None and accepts(found, head):
                yield found, head
                after = found + self.head_size + head.length
            found = raw.find(self.begins, after)

    def read(self, file: Any, at: int, number: int) -> bytes | None:
        """The payload of the record of a number at a place of an open file; None when it is not whole."""
        file.seek(at)
        raw = file.read(self.head_size)
        head = self.read_head(raw, 0)
        if head is None or head.number != number:
            return None
        if at + self.head_size + head.length > os.fstat(file.fileno()).st_size:
            return None
        payload: bytes = file.read(head.length)
        return payload if len(payload) == head.length and zlib.crc32(payload) == head.crc else None


def segment_path(folder: Path, first: int, suffix: str) -> Path:
    """The file of the segment that begins with a number."""
    return folder / f"{first:020}{suffix}"


def segment_paths(folder: Path, suffix: str) -> list[tuple[int, Path]]:
    """The segments of a folder, by the number that each is named for."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(suffix))
    except FileNotFoundError:
        return []
    return [(int(name.removesuffix(suffix)), folder / name) for name in names]


def write_pieces(handle: int, pieces: Sequence[Any], offset: int) -> None:
    """Write pieces one after the other at a place of an open file."""
    for k in range(0, len(pieces), _MOST_BUFFERS):
        some = pieces[k : k + _MOST_BUFFERS]
        total = sum(map(len, some))
        written = os.pwritev(handle, some, offset)
        if written < total:  # a disk that is nearly full takes a part, and raises at the rest
            rest = b"".join(some)
            while written < total:
                written += os.pwrite(handle, rest[written:], offset + written)
        offset += total


def cut_torn_end(path: Path, at: int) -> int:
    """Move what follows a place of a segment into a file beside it; returns how many bytes those are."""
    with writing_to(path), open(path, "r+b", buffering=0) as file:
        file.seek(at)
        rest = file.read()
        if rest:
            path.with_name(f"{path.name}.torn-{time.time_ns()}").write_bytes(rest)
            file.truncate(at)
        os.fsync(file.fileno())
    return len(rest)


def remove_segments(folder: Path, paths: Iterable[Path]) -> int:
    """Remove some segments, the oldest first; returns how many."""
    gone = list(paths)
    if gone:
        with writing_to(folder):
            for path in gone:
                path.unlink(missing_ok=True)
            sync_folder(folder)
    return len(gone)
