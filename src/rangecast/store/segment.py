"""The head of a segment of the change log: which version it begins with, and the mark.

    bytes    meaning
    0-7      b"RNGLOG02"
    8-15     the version of its first change
    16-19    CRC-32 of bytes 0-15
    20-23    zero
    24-31    the mark: every byte before this offset was synced to disk
    32-35    CRC-32 of bytes 24-31
    36-39    zero
    40-      records

The mark is written in place, with its sum in the same sixteen bytes, and needs no sync of its own: an older
mark is as good, for whoever writes next looks beyond it. A reader may come while it is written, so it looks
again before it calls it damaged. Segments of before (b"RNGLOG01": the version, the mark, no sums, records
from byte 24) are read, and followed by one of these at the next write.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path
from typing import NamedTuple

from rangecast.errors import StorageError

_MAGIC, _OLD_MAGIC = b"RNGLOG02", b"RNGLOG01"
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
    name = _NAME.pack(_MAGIC, first)
    return name + _SUMS.pack(zlib.crc32(name), 0) + _packed_mark(_SIZE + length)


def read_head(handle: int, path: Path, first: int) -> SegmentHead:
    """The head of an open segment, checked."""
    raw = os.pread(handle, _SIZE, 0)
    if raw[:8] == _OLD_MAGIC and len(raw) >= _OLD.size:
        _, named, mark = _OLD.unpack(raw[: _OLD.size])
        head = SegmentHead(_OLD.size, mark, False)
    else:
        name = raw[: _NAME.size]
        if raw[:8] != _MAGIC or raw[_NAME.size : _MARK_AT] != _SUMS.pack(zlib.crc32(name), 0):
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
