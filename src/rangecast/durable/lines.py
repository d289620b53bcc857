"""Lines in append-only files, each with a sum; and a small durable table made of them.

A crash leaves a torn end: a line without its newline, or one with zeros where a sector of the disk was never
written. It is left out when the file is read, and cut off before the next line is written. Any other line
that does not check is damage and is refused, and so is a torn one that a whole line follows: who wrote that
one had the lines before it on disk.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rangecast.durable.arrays import replacing, sync_folder, writing_to
from rangecast.durable.documents import seal, unseal
from rangecast.errors import StorageError

T = TypeVar("T")
_SECTOR = 512
_ZEROS = re.compile(rb"\0+")
_SLACK = 1_000


class Line(NamedTuple, Generic[T]):
    """What a line says, and the byte at which the next one begins."""

    content: T
    end: int


class LineLog(Generic[T]):
    """The lines of a file. One process writes at a time; `parse` raises StorageError unless a line checks.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = LineLog(folder.name + "/some.jsonl", unseal)
    >>> log.append([seal({"batch": 0}), seal({"batch": 1})])
    >>> [line.content for line in LineLog(folder.name + "/some.jsonl", unseal).read()]
    [{'batch': 0}, {'batch': 1}]
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], parse: Callable[[bytes, str], T]) -> None:
        self.path = Path(path)
        self.end = 0
        """Where the lines end that were read or written so far."""
        self._parse = parse

    def read(self, sync: bool = False) -> list[Line[T]]:
        """The lines from `end` on, which are all at first; a torn end is left out.

        With `sync` they are on disk then, whoever wrote them.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(self.end)
                *raw, rest = file.read().split(b"\n")
                if sync and raw:
                    os.fsync(file.fileno())
        except FileNotFoundError:
            return []
        lines: list[Line[T]] = []
        end = self.end
        for number, line in enumerate(raw):
            try:
                lines.append(Line(self._parse(line, f"{self.path}, byte {end}"), end + len(line) + 1))
            except StorageError:
                if not _has_hole(line, end) or any(map(self._is_whole, raw[number + 1 :])):
                    raise
                break
            end = lines[-1].end
        if self._is_whole(rest[:-1]):
            raise StorageError(f"{self.path}: cannot be read: the end of its last line is damaged")
        self.end = end
        return lines

    def skip(self, most: int) -> None:
        """Have the next read begin at a line that is about so many bytes before the end of the file."""
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            first = os.fstat(file.fileno()).st_size
            while (first := max(0, first - most)) > 0:
                file.seek(first)
                tail = file.read()
                if tail.count(b"\n") > 1:  # one that ends before a whole line, at least
                    self.end = first + tail.find(b"\n") + 1
                    break

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines behind those that were read, in place of a torn end, and sync them.

        If that fails, the file is as before, and StorageError is raised.
        """
        fresh = not self.path.exists()
        with writing_to(self.path), open(self.path, "ab", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > self.end:
                self.read()  # only what is torn may go
                os.ftruncate(file.fileno(), self.end)
            waiting = memoryview(b"".join(line + b"\n" for line in lines))
            end = self.end + len(waiting)
            try:
                while waiting:  # a disk that is nearly full takes a part, and raises at the rest
                    waiting = waiting[file.write(waiting) :]
                os.fdatasync(file.fileno())
            except OSError:
                # lines that came to the disk whole would count after a crash
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), self.end)
                raise
        if fresh:
            sync_folder(self.path.parent)
        self.end = end

    def rewrite(self, lines: Sequence[bytes]) -> None:
        """Put a file of these lines in place of this one."""
        whole = b"".join(line + b"\n" for line in lines)
        with replacing(self.path) as file:
            file.write(whole)
        self.end = len(whole)

    def _is_whole(self, line: bytes) -> bool:
        try:
            self._parse(line, "")
        except StorageError:
            return False
        return True


def _has_hole(line: bytes, start: int) -> bool:
    """Whether a line that begins at a byte of a file lacks sectors: zeros from one end of a sector, or of the
    line, to another. JSON has no zeros, and a damaged bit makes one at most.

    >>> _has_hole(b"ab" + bytes(512), 510), _has_hole(bytes(4) + b"cd", 508), _has_hole(b"a\\0c", 0)
    (True, True, False)
    """
    return any(
        (zeros.start() == 0 or (start + zeros.start()) % _SECTOR == 0)
        and (zeros.end() == len(line) or (start + zeros.end()) % _SECTOR == 0)
        for zeros in _ZEROS.finditer(line)
    )


class Journal:
    """A durable table from keys to JSON values, such as cursors or payloads; one thread writes.

        {"key": "alice", "value": 41, "crc32": "..."}

    Each line is sealed (documents.py), and the last line of a key counts; null removes it. `put` remembers
    lines, `sync` writes them and waits until they are on disk. What a write that failed should have made
    durable is taken back: whoever is refused must find everything as it was. When most lines are outdated
    the file is rewritten.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(folder.name + "/cursors.journal")
    >>> journal.put("alice", 41)
    >>> journal.sync()
    >>> Journal(folder.name + "/cursors.journal").get("alice")
    41
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._log = LineLog(path, unseal)
        self._values: dict[str, Any] = {}
        self._before: dict[str, Any] = {}  # by key that was put since the last sync
        self._waiting: list[bytes] = []
        self._lines = 0
        for line in self._log.read():
            self._set(line.content["key"], line.content["value"])
            self._lines += 1

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        return self._values.get(key, default)

    def items(self) -> list[tuple[str, Any]]:
        """All keys and their values."""
        return list(self._values.items())

    def put(self, key: str, value: Any) -> None:
        """Give a key a value, or take it out with None; `sync` makes it durable."""
        before = self._values.get(key)
        if value is None and before is None:
            return
        self._before.setdefault(key, before)
        self._set(key, value)
        self._waiting.append(seal({"key": key, "value": value}))

    def sync(self) -> None:
        """Write what was put, and see that it is on disk; what cannot be written is taken back."""
        if not self._waiting:
            return
        try:
            if self._lines + len(self._waiting) > 4 * len(self._values) + _SLACK:
                self._log.rewrite([seal({"key": key, "value": value}) for key, value in self._values.items()])
                self._lines = len(self._values)
            else:
                self._log.append(self._waiting)
                self._lines += len(self._waiting)
        except BaseException:
            for key, value in self._before.items():
                self._set(key, value)
            raise
        finally:
            self._waiting, self._before = [], {}

    def _set(self, key: str, value: Any) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
