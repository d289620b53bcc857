"""The change log of a store: append-only, checksummed, synced before it is acknowledged.

A log is a folder of segments, each named for its first version. A segment:

    bytes    meaning
    0-7      b"RNGLOG01"
    8-15     the version of its first change
    16-23    the mark: every byte before this offset was synced to disk
    24-      records

and a record, in little-endian numbers:

    0-3      b"RCRD"
    4-7      CRC-32 of bytes 8-39
    8-15     version; versions follow one another without a gap
    16-23    time, microseconds since 1970 UTC; never less than that of the version before
    24-31    length of the payload
    32-35    CRC-32 of the payload
    36-39    zero
    40-      payload: arrays (storage.py)

    payload                        meaning
    meta words                     category -> [how many words were known before, the new ones]
    meta textual                   whether ids are strings; null while there are none
    deleted.*                      the ids that go (ids.py)
    inserted.*, lows, highs, owners   the subscriptions that come, each replacing one of the same id

The first record of a segment, of the version before its first, changes nothing: it repeats all words,
so that older segments can be removed.

A writer appends, syncs, and only then moves the mark; readers stop at the mark, so they see what is
durable and nothing else. A crash leaves bytes beyond the mark: those that make whole records are
kept, for they may have been acknowledged, and a torn rest is cut off (and kept beside the log). A
record before the mark that does not check is damage, and is never cut.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import StorageError
from rangecast.ids import Ids
from rangecast.schema import Schema
from rangecast.storage import Arrays, pack_arrays, replacing, sync_folder, unpack_arrays, unpack_meta
from rangecast.subscriptions import Subscriptions

_SEGMENT = struct.Struct("<8sQQ")
_RECORD = struct.Struct("<4sIQQQII")
_MAGIC, _RECORD_MAGIC = b"RNGLOG01", b"RCRD"
Words = dict[str, tuple[int, list[str]]]


@dataclass(frozen=True)
class Change:
    """One version's change: what went, then what came."""

    version: int
    time: int
    deleted: Ids
    inserted: Subscriptions

    def apply_to(self, index: Any) -> None:
        """Bring an index of the version before to this version."""
        if len(self.deleted):
            index.delete(self.deleted)
        index.insert(self.inserted)


class Entry(NamedTuple):
    """Where a change stands."""

    version: int
    time: int
    path: Path
    offset: int
    length: int


class ChangeLog:
    """Reads and appends changes; whoever appends must hold the store's lock.

    The schema is the log's own: its dictionaries hold the words that were written, and no others.
    """

    def __init__(self, folder: str | os.PathLike[str], schema: Schema) -> None:
        self.folder = Path(folder)
        self.schema = schema
        self._entries: list[Entry] = []
        self.textual: bool | None = None
        self._base = -1
        self._last: Path | None = None
        self._end = 0

    @property
    def base(self) -> int:
        """The version before the first change that is still in the log."""
        return self._base

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._entries[-1].version if self._entries else self._base

    def time_of(self, version: int) -> int:
        """When a version was made."""
        return self._entry(version).time

    def version_at(self, time: int) -> int:
        """The version that was the newest at a time."""
        times = np.fromiter((entry.time for entry in self._entries), np.int64, len(self._entries))
        return self._base + int(np.searchsorted(times, time, "right"))

    # reading

    def refresh(self) -> None:
        """Look for changes that other processes have appended."""
        segments = self.segments()
        if not segments:
            raise StorageError(f"{self.folder}: the change log has no segment; the store is damaged")
        paths = [path for _, path in segments]
        if self._last is None or self._last not in paths:
            self._entries, self._base = [], segments[0][0] - 1
            self._last, self._end = paths[0], 0
        position = paths.index(self._last)
        for first, path in segments[position:]:
            if path != self._last:
                if first != self.version + 1:
                    raise StorageError(
                        f"{path}: the segment must begin with version {self.version + 1}, got {first}"
                    )
                self._last, self._end = path, 0
            self._read_heads(path, first)
        # whole segments go at once, so the changes that went with them are those before the first left
        gone = max(0, segments[0][0] - 1 - self._base)
        del self._entries[:gone]
        self._base += gone

    def segments(self) -> list[tuple[int, Path]]:
        """First version and path of each segment, in order."""
        paths = sorted(self.folder.glob("*.log"))
        return [(int(path.stem), path) for path in paths]

    def changes(self, since: int) -> Iterator[Change]:
        """The changes after a version, in order."""
        if since < self._base:
            raise StorageError(
                f"{self.folder}: changes since version {since} were compacted away; "
                f"the log begins after version {self._base}, load a snapshot instead"
            )
        for entry in self._entries[since - self._base :]:
            yield self.read(entry)

    def read(self, entry: Entry) -> Change:
        """One change, checked against its sum."""
        try:
            with open(entry.path, "rb") as file:
                file.seek(entry.offset)
                head, payload = file.read(_RECORD.size), file.read(entry.length)
        except FileNotFoundError:
            raise StorageError(
                f"{entry.path}: version {entry.version} was compacted away while it was read; read again"
            ) from None
        if len(payload) != entry.length or zlib.crc32(payload) != _RECORD.unpack(head)[5]:
            raise StorageError(
                f"{entry.path}: the change of version {entry.version} at byte {entry.offset} is damaged"
            )
        _, arrays = unpack_arrays(payload)
        deleted = ids_from(arrays, "deleted")
        inserted = Subscriptions(
            self.schema,
            ids_from(arrays, "inserted"),
            arrays["lows"],
            arrays["highs"],
            arrays["owners"],
        )
        return Change(entry.version, entry.time, deleted, inserted)

    def _entry(self, version: int) -> Entry:
        if not self._base < version <= self.version:
            raise StorageError(
                f"{self.folder}: the log has versions {self._base + 1} to {self.version}, not {version}"
            )
        return self._entries[version - self._base - 1]

    def _read_heads(self, path: Path, first: int) -> None:
        """Enter the records between where we stopped and the mark."""
        try:
            with open(path, "rb") as file:
                magic, named, mark = _SEGMENT.unpack(file.read(_SEGMENT.size).ljust(_SEGMENT.size))
                if magic != _MAGIC or named != first:
                    raise StorageError(f"{path}: not a change log of rangecast, or damaged at its head")
                if self._end == 0:
                    self._end = _SEGMENT.size
                while self._end < mark:
                    file.seek(self._end)
                    head = _checked_head(file.read(_RECORD.size))
                    meta = _read_meta(file) if head else None
                    if head is None or meta is None or head[0] not in (self.version + 1, first - 1):
                        raise StorageError(f"{path}: damaged at byte {self._end}; restore it from a copy")
                    self._learn(meta["words"])
                    self.textual = meta["textual"]
                    version, time, length = head
                    if version == self.version + 1:
                        self._entries.append(Entry(version, time, path, self._end, length))
                    self._end += _RECORD.size + length
        except FileNotFoundError:
            raise StorageError(f"{path}: was compacted away while it was read; read again") from None

    def _learn(self, words: Words) -> None:
        for _, category in self.schema.categories():
            known, fresh = words.get(category.name, (0, []))
            have = category.vocabulary.words()[known : known + len(fresh)]
            if have != fresh[: len(have)] or len(category.vocabulary) < known:
                raise StorageError(
                    f"{self.folder}: the words of {category.name!r} do not follow one another; it is damaged"
                )
            for word in fresh[len(have) :]:
                category.vocabulary.add(word)

    # writing

    def start_segment(self, first: int, time: int) -> None:
        """Begin a segment whose first change will be version `first`."""
        words: Words = {c.name: (0, c.vocabulary.words()) for _, c in self.schema.categories()}
        record = _record(first - 1, time, pack_arrays({"words": words, "textual": self.textual}, {}))
        with replacing(self.folder / f"{first:020}.log") as file:
            file.write(_SEGMENT.pack(_MAGIC, first, _SEGMENT.size + len(record)) + record)

    def append(self, time: int, deleted: Ids, inserted: Subscriptions) -> int:
        """Write one change, sync it, show it to readers; returns its version.

        The dictionaries of `inserted.schema` begin with the log's; what they have beyond is written too.
        """
        assert self._last is not None
        time = max(time, self._entries[-1].time if self._entries else 0)
        words: Words = {}
        named = inserted.schema.categories()
        for (_, ours), (_, theirs) in zip(self.schema.categories(), named, strict=True):
            start = len(ours.vocabulary)
            if len(theirs.vocabulary) > start:
                words[ours.name] = (start, theirs.vocabulary.words()[start:])
        arrays: Arrays = {
            **ids_arrays(deleted, "deleted"),
            **ids_arrays(inserted.ids, "inserted"),
            "lows": inserted.lows,
            "highs": inserted.highs,
            "owners": inserted.owners,
        }
        for ids in (deleted, inserted.ids):
            self.textual = ids.textual if len(ids) else self.textual
        version = self.version + 1
        record = _record(version, time, pack_arrays({"words": words, "textual": self.textual}, arrays))
        with open(self._last, "r+b", buffering=0) as file:
            file.seek(self._end)
            _write_all(file, record)
            os.fsync(file.fileno())
            _move_mark(file, self._end + len(record))
        entry = Entry(version, time, self._last, self._end, len(record) - _RECORD.size)
        self._entries.append(entry)
        self._end += len(record)
        self._learn(words)
        return version

    def recover(self) -> int:
        """After a crash: keep whole records beyond the mark, cut the torn rest; returns the bytes cut."""
        path = self.segments()[-1][1]
        with open(path, "r+b", buffering=0) as file:
            _, _, mark = _SEGMENT.unpack(file.read(_SEGMENT.size))
            size = os.fstat(file.fileno()).st_size
            if size < mark:
                raise StorageError(f"{path}: truncated at {size} bytes, must have {mark}; restore it")
            end = mark
            while end < size:
                file.seek(end)
                head = _checked_head(file.read(_RECORD.size))
                if head is None or end + _RECORD.size + head[2] > size:
                    break
                payload = file.read(head[2])
                file.seek(end)
                if zlib.crc32(payload) != _RECORD.unpack(file.read(_RECORD.size))[5]:
                    break
                end += _RECORD.size + head[2]
            cut = int(size - end)
            if cut:
                file.seek(end)
                path.with_name(f"{path.name}.torn-{end}").write_bytes(file.read(cut))
                file.truncate(end)
            if end > mark or cut:
                # whole records beyond the mark may not be on disk yet
                os.fsync(file.fileno())
                _move_mark(file, end)
        return cut

    def drop_before(self, version: int) -> list[Path]:
        """Remove the segments that hold no change after `version`; returns what was removed."""
        segments = self.segments()
        gone = [
            path for (_, path), (following, _) in itertools.pairwise(segments) if following <= version + 1
        ]
        for path in gone:
            path.unlink(missing_ok=True)
        if gone:
            sync_folder(self.folder)
        return gone

    def check(self) -> list[str]:
        """Read every change; a sentence for each that is damaged."""
        problems = []
        for entry in self._entries:
            try:
                self.read(entry)
            except (StorageError, ValueError, KeyError) as error:
                problems.append(str(error))
        return problems


def _record(version: int, time: int, payload: bytes | bytearray) -> bytes:
    fields = struct.pack("<QQQII", version, time, len(payload), zlib.crc32(payload), 0)
    return _RECORD_MAGIC + struct.pack("<I", zlib.crc32(fields)) + fields + bytes(payload)


def _checked_head(raw: bytes) -> tuple[int, int, int] | None:
    """Version, time and length of a record, None when the head does not check."""
    if len(raw) < _RECORD.size:
        return None
    magic, crc, version, time, length, _, _ = _RECORD.unpack(raw)
    if magic != _RECORD_MAGIC or zlib.crc32(raw[8:]) != crc:
        return None
    return version, time, length


def _read_meta(file: Any) -> dict[str, Any] | None:
    """The meta data of the record whose payload begins here."""
    start = file.read(20)
    if len(start) < 20:
        return None
    (length, _) = struct.unpack("<QI", start[8:])
    try:
        return unpack_meta(start + file.read(length))
    except ValueError:
        return None


def ids_arrays(ids: Ids, prefix: str) -> Arrays:
    """A row of ids as named arrays."""
    if ids.textual:
        return {f"{prefix}.starts": ids.starts, f"{prefix}.letters": ids.letters[: ids.starts[-1]]}
    return {f"{prefix}.values": ids.values}


def ids_from(arrays: Arrays, prefix: str) -> Ids:
    """The row of ids that `ids_arrays` gave."""
    if f"{prefix}.starts" in arrays:
        return Ids(None, arrays[f"{prefix}.starts"], arrays[f"{prefix}.letters"])
    return Ids(arrays[f"{prefix}.values"])


def _write_all(file: Any, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[file.write(view) :]


def _move_mark(file: Any, end: int) -> None:
    # eight aligned bytes in one page; they need no sync of their own: an older mark is safe
    os.pwrite(file.fileno(), struct.pack("<Q", end), 16)
