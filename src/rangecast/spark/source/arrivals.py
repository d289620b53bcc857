"""The files of a place in the order in which they were first seen: what gives a file its number.

    origin.json    the log's own id and the place that it is about; written once
    files.log      a line per file: CRC-32, then path, size and time of change as JSON
    lock           held while files are entered

An offset of a stream must say in a few numbers which files were read, and go on saying so for years.
Names and times of change do not follow the order of arrival (a file that was written first may be
renamed into the folder last), so files are numbered as they are found, and the numbers are kept: an
offset is how many files of this log were read. Lines are synced before anybody gets to know their
numbers. A crash leaves at most a torn end that no offset speaks of (durable/lines.py).

A file is known by its path. One that is written again under an old name is not new, and one that has
another size or time of change than its line says is not the file that was meant (tasks.py).
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from array import array
from pathlib import Path
from typing import NamedTuple

from rangecast.durable.arrays import sync_folder
from rangecast.durable.documents import read_document, write_document
from rangecast.durable.lines import LineLog
from rangecast.durable.lock import holding
from rangecast.errors import StorageError
from rangecast.spark.batch.files import files_at

_WAIT_SECONDS = 60.0


class Arrival(NamedTuple):
    """A file as it was when it was first seen."""

    path: str
    size: int
    changed: int


class Arrivals:
    """The log of one place; any number of streams may share it."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder = folder
        self.place = place
        self._log = LineLog(folder / "files.log", _parse)
        folder.mkdir(parents=True, exist_ok=True)
        with holding(folder / "lock", _WAIT_SECONDS):
            self.id = self._origin()
            if not self._log.path.exists():
                self._log.path.touch()
                sync_folder(folder)
        self._seen: set[str] = set()
        self._starts = array("q", [0])
        self._sizes = array("q")
        self._read()

    def __len__(self) -> int:
        return len(self._sizes)

    def look(self) -> int:
        """Enter the files that are new; returns how many are known then."""
        self._read()
        if not self._unknown():
            return len(self)
        with holding(self.folder / "lock", _WAIT_SECONDS):
            self._read()
            # listed again, since another stream may have entered some while we waited
            found = sorted(self._unknown(), key=lambda arrival: (arrival.changed, arrival.path))
            lines = [_line(arrival) for arrival in found]
            self._log.append(lines)
            for arrival, line in zip(found, lines, strict=True):
                self._enter(arrival, self._starts[-1] + len(line) + 1)
        return len(self)

    def files(self, first: int, last: int) -> list[Arrival]:
        """The files with numbers first, ..., last - 1."""
        self._read()
        if not 0 <= first <= last <= len(self):
            raise StorageError(
                f"{self._log.path}: knows {len(self)} files, but the checkpoint speaks of {last}, so this is "
                "an old copy; restore the log that the checkpoint was made with"
            )
        with open(self._log.path, "rb") as file:
            file.seek(self._starts[first])
            raw = file.read(self._starts[last] - self._starts[first])
        return [_parse(line, f"{self._log.path}: the files {first} to {last}") for line in raw.splitlines()]

    def admit(self, first: int, last: int, max_files: int | None, max_bytes: int | None) -> int:
        """How far a batch may go that begins with file `first`: one file at least, if there is one."""
        stop = last if max_files is None else min(last, first + max_files)
        if max_bytes is None:
            return stop
        room = max_bytes
        for number in range(first, stop):
            room -= self._sizes[number]
            if room < 0:
                return max(number, first + 1)
        return stop

    def _origin(self) -> str:
        path = self.folder / "origin.json"
        if not path.exists():
            write_document(path, {"id": uuid.uuid4().hex, "events": self.place})
        origin = read_document(path) or {}
        if origin.get("events") != self.place:
            raise StorageError(
                f"{self.folder}: is the log of the files of {origin.get('events')}, not of {self.place}; "
                "name another folder in the option state"
            )
        return str(origin["id"])

    def _unknown(self) -> list[Arrival]:
        found = []
        for path in files_at(self.place):
            if path in self._seen:
                continue
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            found.append(Arrival(path, status.st_size, status.st_mtime_ns))
        return found

    def _read(self) -> None:
        """Take in the lines that are new; synced before they count, whoever wrote them."""
        for line in self._log.read(sync=True):
            self._enter(line.content, line.end)

    def _enter(self, arrival: Arrival, end: int) -> None:
        self._seen.add(arrival.path)
        self._sizes.append(arrival.size)
        self._starts.append(end)


def _line(arrival: Arrival) -> bytes:
    text = json.dumps(list(arrival)).encode()
    return b"%08x %s" % (zlib.crc32(text), text)


def _parse(line: bytes, where: str) -> Arrival:
    """The file of a line; `where` is what a StorageError names."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        raise StorageError(f"{where}: cannot be read: its sum does not hold; restore it from a copy")
    path, size, changed = json.loads(text)
    return Arrival(path, size, changed)
