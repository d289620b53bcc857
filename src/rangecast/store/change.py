"""A record of the change log: one change, or what opens a segment. In little-endian numbers:

    0-3      b"RCRD"
    4-7      CRC-32 of bytes 8-39
    8-15     version; versions follow one another without a gap
    16-23    time, microseconds since 1970 UTC; never less than that of the version before
    24-31    length of the payload
    32-35    CRC-32 of the payload
    36-39    zero
    40-      payload: arrays (durable/arrays.py)

    payload                        meaning
    meta words                     category -> [how many words were known before, the new ones]; the hidden
                                   attributes that conditions use (types/derived.py) stand under a line break
    meta textual                   whether ids are strings; null while there are none
    meta since                     opening records: when their version was made
    meta fragments                 a change in fragments (versions.py): their names, how many ids each has,
                                   whether some expire, whether ids are strings; no arrays then
    meta living                    opening records: what the names of fragments begin with, by version
    meta note                      what whoever wrote the change keeps with it, by name; absent without one
    meta notes                     opening records: the newest note of each name
    deleted.*                      the ids that go (model/ids.py)
    inserted.*, boxes.*            the subscriptions that come, each replacing one of the same id: ids, and
                                   the arrays of their boxes (model/boxes.py); older records have lows,
                                   highs and owners of dense boxes instead
    texts                          what was written for them (model/texts.py); absent when nothing was
    payload                        columns of the users' own (model/user_columns.py); absent without any
    expires                        when each of those ends, microseconds since 1970 UTC, 0 for never;
                                   absent when none does
    expiring.*, expires            opening records: all subscriptions that end some time, and when
    listed                         opening records: the records of the segment before (change_log.py)

A record is read whole or not at all: both sums must hold.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.durable.arrays import Arrays, unpack_head
from rangecast.durable.segments import RecordFormat
from rangecast.errors import StorageError
from rangecast.model.boxes import SparseBoxes
from rangecast.model.ids import Ids, IdTable
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.user_columns import Times, unpacked
from rangecast.types.schema import Schema

HEAD = struct.Struct("<4sIQQQII")
_MAGIC = b"RCRD"
Words = dict[str, tuple[int, list[str]]]
EXPRESSIONS = "\n"
"""The key of the texts of hidden attributes among words; no attribute has such a name."""
Note = dict[str, Any]
"""What a writer keeps with a change, by name: values that JSON can hold."""


@dataclass(frozen=True)
class Change:
    """One version's change: what went, then what came; `expires` is None when nothing of it ever ends."""

    version: int
    time: int
    deleted: Ids
    inserted: Subscriptions
    expires: Times | None = None
    note: Note | None = None

    def apply_to(self, index: Any) -> None:
        """Bring an index of the version before to this version."""
        if len(self.deleted):
            index.delete(self.deleted)
        index.insert(self.inserted)


def checked_note(note: Mapping[str, Any] | None) -> Note | None:
    """A note as it will be read back; StorageError where JSON cannot hold it."""
    if not note:
        return None
    try:
        out: Note = json.loads(json.dumps(dict(note), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise StorageError(f"a note must be a mapping that JSON can hold: {error}") from None
    if out != dict(note):
        raise StorageError(f"a note must have strings for names and read back as it was, got {note!r}")
    return out


def gathered(changes: Iterable[Change], most: int = 500_000) -> Iterator[Change]:
    """The same changes in fewer steps: each step does at once what those of several versions do in turn.

    An index is brought forward by one large change in a fraction of the time of many small ones. A step
    names about `most` subscriptions, and is of the version of its last change.
    """
    waiting: list[Change] = []
    n = 0
    for change in changes:
        waiting.append(change)
        n += len(change.deleted) + len(change.inserted)
        if n >= most:
            yield _joined(waiting)
            waiting, n = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(changes: list[Change]) -> Change:
    """What several changes do together: for each id, what the last of them says."""
    if len(changes) == 1:
        return changes[0]
    last = changes[-1]
    came = [change.inserted for change in changes if len(change.inserted)]
    said = [(ids, k) for c in changes for ids, k in ((c.deleted, 0), (c.inserted.ids, 1)) if len(ids)]
    if not said:
        return Change(last.version, last.time, last.deleted, last.inserted)
    # latest first: a table of ids finds the first of each
    ids = Ids.of(pa.concat_arrays([ids.arrow() for ids, _ in said])[::-1])
    inserts = np.concatenate([np.full(len(ids), kind, bool) for ids, kind in said])[::-1]
    latest = IdTable(ids).find(ids) == np.arange(len(ids))
    deleted = ids.select(np.flatnonzero(latest & ~inserts))
    if not came:
        return Change(last.version, last.time, deleted, last.inserted)
    inserted = Subscriptions.concat(came, distinct=False)
    kept = latest[::-1][inserts[::-1]]
    return Change(
        last.version, last.time, deleted, inserted if kept.all() else inserted.select(np.flatnonzero(kept))
    )


class RecordEntry(NamedTuple):
    """Where a record stands, how many subscriptions it names, and whether some of them expire."""

    version: int
    time: int
    path: Path
    offset: int
    length: int
    changed: int
    expiring: bool


def pack_record(version: int, time: int, payload: bytes | bytearray) -> bytes:
    """The bytes of a record."""
    fields = struct.pack("<QQQII", version, time, len(payload), zlib.crc32(payload), 0)
    return _MAGIC + struct.pack("<I", zlib.crc32(fields)) + fields + bytes(payload)


class VersionHead(NamedTuple):
    """The head of a record, checked."""

    version: int
    time: int
    length: int
    crc: int

    @property
    def number(self) -> int:
        """The version."""
        return self.version

    @property
    def next(self) -> int:
        """The version that follows."""
        return self.version + 1


def checked_head(raw: Any, at: int = 0) -> VersionHead | None:
    """The head that begins here, None when it does not check."""
    if len(raw) < at + HEAD.size:
        return None
    magic, crc, version, time, length, payload_crc, _ = HEAD.unpack_from(raw, at)
    if magic != _MAGIC or zlib.crc32(memoryview(raw)[at + 8 : at + HEAD.size]) != crc:
        return None
    return VersionHead(version, time, length, payload_crc)


RECORDS = RecordFormat(HEAD.size, _MAGIC, checked_head)


def whole_payload(raw: bytes, version: int) -> bytes | None:
    """The payload of the record of a version that these bytes are; None when they are not that."""
    head = RECORDS.whole(raw, 0, version)
    return None if head is None or len(raw) != HEAD.size + head.length else raw[HEAD.size :]


def read_description(file: Any, most: int) -> tuple[dict[str, Any], dict[str, list[int]]] | None:
    """The meta data of the record whose payload of `most` bytes begins here, and the shapes of its arrays."""
    start = file.read(20)
    if len(start) < 20:
        return None
    length, crc = struct.unpack("<QI", start[8:])
    header = file.read(length) if length <= most else b""
    if len(header) != length or zlib.crc32(header) != crc:
        return None
    return unpack_head(start + header)


class FragmentEntry(NamedTuple):
    """A fragment: how many subscriptions it names, whether some expire, whether ids are strings."""

    name: str
    named: int
    expiring: bool
    textual: bool

    @property
    def stem(self) -> str:
        """What the names of all fragments of its change begin with."""
        return self.name.partition(".")[0]


def fragments_of(meta: Mapping[str, Any]) -> list[FragmentEntry]:
    """The fragments of a change, by what its record says; none of one that is in the record itself."""
    return [FragmentEntry(*fragment) for fragment in meta.get("fragments") or ()]


def named_and_expiring(meta: Mapping[str, Any], shapes: dict[str, list[int]]) -> tuple[int, bool]:
    """How many ids a change has, and whether some of them expire."""
    fragments = fragments_of(meta)
    return (
        n_named(shapes) + sum(fragment.named for fragment in fragments),
        "expires" in shapes or any(fragment.expiring for fragment in fragments),
    )


def n_named(shapes: dict[str, list[int]]) -> int:
    """How many ids a change has, by the shapes of its arrays."""
    rows = (shapes.get(f"{part}.values", [0])[0] for part in ("deleted", "inserted"))
    texts = (shapes.get(f"{part}.starts", [1])[0] - 1 for part in ("deleted", "inserted"))
    return sum(rows) + sum(texts)


def ids_arrays(ids: Ids, prefix: str) -> Arrays:
    """A row of ids as named arrays."""
    if ids.textual:
        return {f"{prefix}.starts": ids.starts, f"{prefix}.letters": ids.letters[: ids.starts[-1]]}
    return {f"{prefix}.values": ids.values}


def boxes_arrays(subs: Subscriptions) -> Arrays:
    """The boxes of subscriptions and what is beside them as named arrays."""
    arrays: Arrays = {f"boxes.{name}": array for name, array in subs.boxes._asdict().items()}
    if subs.texts is not None:
        arrays["texts"] = subs.texts.pack()
    payload = subs.beside.pack_payload()
    if payload is not None:
        arrays["payload"] = payload
    return arrays


def change_arrays(deleted: Ids, inserted: Subscriptions, expires: Times | None) -> Arrays:
    """The arrays of a change."""
    arrays: Arrays = {
        **ids_arrays(deleted, "deleted"),
        **ids_arrays(inserted.ids, "inserted"),
        **boxes_arrays(inserted),
    }
    if expires is not None:
        arrays["expires"] = expires
    return arrays


def subscriptions_from(schema: Schema, ids: Ids, arrays: Arrays) -> Subscriptions:
    """The subscriptions that `boxes_arrays` gave, or an earlier version wrote."""
    beside = unpacked(arrays.get("texts"), arrays.get("payload"))
    texts = beside if beside else None
    if "lows" in arrays:
        return Subscriptions(schema, ids, arrays["lows"], arrays["highs"], arrays["owners"], texts=texts)
    boxes = SparseBoxes(*(arrays[f"boxes.{name}"] for name in SparseBoxes._fields))
    return Subscriptions.of_boxes(schema, ids, boxes, texts=texts)


def ids_from(arrays: Arrays, prefix: str) -> Ids:
    """The row of ids that `ids_arrays` gave."""
    if f"{prefix}.starts" in arrays:
        return Ids(None, arrays[f"{prefix}.starts"], arrays[f"{prefix}.letters"])
    return Ids(arrays[f"{prefix}.values"])


# The head of a segment of the change log: which version it begins with, and the mark.
#
#     bytes    meaning
#     0-7      b"RNGLOG02"
#     8-15     the version of its first change
#     16-19    CRC-32 of bytes 0-15
#     20-23    zero
#     24-31    the mark: every byte before this offset was synced to disk
#     32-35    CRC-32 of bytes 24-31
#     36-39    zero
#     40-      records
#
# The mark is written in place, with its sum in the same sixteen bytes, and needs no sync of its own: an older
# mark is as good, for whoever writes next looks beyond it. A reader may come while it is written, so it looks
# again before it calls it damaged. Segments of before (b"RNGLOG01": the version, the mark, no sums, records
# from byte 24) are read, and followed by one of these at the next write.

_SEGMENT_MAGIC, _OLD_MAGIC = b"RNGLOG02", b"RNGLOG01"
_NAME, _SUMS, _OLD = struct.Struct("<8sQ"), struct.Struct("<II"), struct.Struct("<8sQQ")
_MARK_AT = _NAME.size + _SUMS.size
_SIZE = 2 * _MARK_AT - 8
_LOOKS, _PAUSE = 20, 0.001


class DamagedMarkError(StorageError):
    """A mark does not agree with its sum."""


class SegmentHead(NamedTuple):
    """Where the records of a segment begin, how far they are on disk, and whether the mark has a sum."""

    start: int
    mark: int
    summed: bool


def pack_head(first: int, length: int) -> bytes:
    """The head of a segment with so many bytes of records."""
    name = _NAME.pack(_SEGMENT_MAGIC, first)
    return name + _SUMS.pack(zlib.crc32(name), 0) + _packed_mark(_SIZE + length)


def read_head(handle: int, path: Path, first: int) -> SegmentHead:
    """The head of an open segment, checked."""
    raw = os.pread(handle, _SIZE, 0)
    if raw[:8] == _OLD_MAGIC and len(raw) >= _OLD.size:
        _, named, mark = _OLD.unpack(raw[: _OLD.size])
        head = SegmentHead(_OLD.size, mark, False)
    else:
        name = raw[: _NAME.size]
        if raw[:8] != _SEGMENT_MAGIC or raw[_NAME.size : _MARK_AT] != _SUMS.pack(zlib.crc32(name), 0):
            raise StorageError(f"{path}: not a change log of rangecast, or damaged at its head")
        named = _NAME.unpack(name)[1]
        head = SegmentHead(_SIZE, _read_mark(handle, path), True)
    if named != first:
        raise StorageError(f"{path}: must begin with version {first} by its name, got {named}; it is damaged")
    size = os.fstat(handle).st_size
    if size < head.mark:
        raise StorageError(
            f"{path}: truncated at {size} bytes, must have {head.mark}; restore it from a copy"
        )
    return head


def records_start(handle: int) -> int:
    """Where the records of an open segment begin."""
    return _OLD.size if os.pread(handle, 8, 0) == _OLD_MAGIC else _SIZE


def move_mark(handle: int, end: int) -> None:
    """Show readers everything before `end`."""
    if os.pread(handle, 8, 0) == _OLD_MAGIC:
        os.pwrite(handle, struct.pack("<Q", end), _NAME.size)
    else:
        os.pwrite(handle, _packed_mark(end), _MARK_AT)


def _packed_mark(end: int) -> bytes:
    mark = struct.pack("<Q", end)
    return mark + _SUMS.pack(zlib.crc32(mark), 0)


def _read_mark(handle: int, path: Path) -> int:
    for _ in range(_LOOKS):
        raw = os.pread(handle, 16, _MARK_AT)
        if len(raw) == 16 and raw[8:] == _SUMS.pack(zlib.crc32(raw[:8]), 0):
            (mark,) = struct.unpack("<Q", raw[:8])
            return int(mark)
        time.sleep(_PAUSE)
    raise DamagedMarkError(
        f"{path}: the mark at byte {_MARK_AT} is damaged; the next write mends it if it can"
    )
