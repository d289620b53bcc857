"""One file of named arrays: aligned, checksummed, memory-mapped.

    bytes            meaning
    0-7              b"RNGCAST1"
    8-15             length of the header, little-endian
    16-19            CRC-32 of the header
    20-...           the header: JSON with `meta` and, per array, name, dtype, shape, offset, CRC-32
    aligned to 64    the arrays, each at its offset

A file is written under a temporary name, synced and renamed, so a reader sees all of it or none.
Arrays are mapped copy-on-write: pages are shared among processes until somebody writes, and Numba
sees writable arrays, for which its kernels are already compiled.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import uuid
import zlib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import StorageError

_MAGIC = b"RNGCAST1"
_ALIGN = 64
Arrays = dict[str, npt.NDArray[Any]]


def write_arrays(
    path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> int:
    """Write a file of arrays and return its size in bytes."""
    layout = _lay_out(meta, arrays)
    with replacing(path) as file:
        file.write(layout.head)
        for offset, array in zip(layout.offsets, layout.packed, strict=True):
            file.seek(offset)
            file.write(_bytes(array))
        file.truncate(layout.size)
    return layout.size


def pack_arrays(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytearray:
    """What `write_arrays` would write, in memory."""
    layout = _lay_out(meta, arrays)
    out = bytearray(layout.size)
    out[: len(layout.head)] = layout.head
    for offset, array in zip(layout.offsets, layout.packed, strict=True):
        out[offset : offset + array.nbytes] = _bytes(array)
    return out


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that takes its name only when it is whole and on disk."""
    target = Path(path)
    # not the process id: writers may be threads, or on several machines
    scratch = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with open(scratch, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
        sync_folder(target.parent)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


class _FileLayout(NamedTuple):
    """Where everything goes: the head, and per array its offset and its contiguous form."""

    head: bytes
    offsets: list[int]
    packed: list[npt.NDArray[Any]]
    size: int


def _lay_out(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> _FileLayout:
    entries: list[dict[str, Any]] = []
    packed = [np.ascontiguousarray(array) for array in arrays.values()]
    offset = 0
    for (name, given), array in zip(arrays.items(), packed, strict=True):
        raw = _bytes(array)
        entry: dict[str, Any] = {
            "name": name,
            "dtype": array.dtype.str,
            "shape": list(given.shape),
            "offset": offset,
            "crc": zlib.crc32(raw),
        }
        entries.append(entry)
        offset += -(-len(raw) // _ALIGN) * _ALIGN
    header = json.dumps({"meta": meta, "arrays": entries}).encode()
    start = -(-(20 + len(header)) // _ALIGN) * _ALIGN
    head = _MAGIC + struct.pack("<QI", len(header), zlib.crc32(header)) + header
    return _FileLayout(head, [start + entry["offset"] for entry in entries], packed, start + offset)


def read_arrays(
    path: str | os.PathLike[str], mmap: bool = True, verify: bool = True, unread: Container[str] = ()
) -> tuple[dict[str, Any], Arrays]:
    """The meta data and arrays of a file; a damaged or foreign file raises StorageError.

    `verify` reads every array to check its sum, but for the `unread` ones, which check themselves.
    """
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            head = file.read(20)
            if len(head) < 20 or head[:8] != _MAGIC:
                raise StorageError(f"{path}: not a file of rangecast, or of another version")
            length, crc = struct.unpack("<QI", head[8:])
            header = file.read(length) if length < size else b""
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(header) != length or zlib.crc32(header) != crc:
        raise StorageError(f"{path}: the header is damaged; save the index again")
    document = json.loads(header)
    start = -(-(20 + length) // _ALIGN) * _ALIGN
    entries = document["arrays"]
    if size < start + max((e["offset"] + _size(e) for e in entries), default=0):
        raise StorageError(f"{path}: truncated at {size} bytes; save the index again")
    if size == start:
        whole: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
    elif mmap:
        whole = np.memmap(path, np.uint8, "c", start)
        whole = whole.view(np.ndarray)
    else:
        whole = np.fromfile(path, np.uint8, offset=start)
    arrays: Arrays = {}
    for entry in entries:
        raw = whole[entry["offset"] : entry["offset"] + _size(entry)]
        if verify and entry["name"] not in unread and zlib.crc32(_bytes(raw)) != entry["crc"]:
            raise StorageError(f"{path}: array {entry['name']!r} is damaged; save the index again")
        arrays[entry["name"]] = raw.view(np.dtype(entry["dtype"])).reshape(entry["shape"])
    return document["meta"], arrays


def unpack_head(raw: bytes | memoryview) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The meta data at the head of what `pack_arrays` gave, and the shape of each array."""
    document = _header(raw)[0]
    return document["meta"], {entry["name"]: entry["shape"] for entry in document["arrays"]}


def unpack_arrays(raw: bytes | memoryview) -> tuple[dict[str, Any], Arrays]:
    """The meta data and copies of the arrays of what `pack_arrays` gave; the caller has checked `raw`."""
    document, start = _header(raw)
    whole = np.frombuffer(raw, np.uint8)
    arrays: Arrays = {}
    for entry in document["arrays"]:
        first = start + entry["offset"]
        part = whole[first : first + _size(entry)].copy()
        arrays[entry["name"]] = part.view(np.dtype(entry["dtype"])).reshape(entry["shape"])
    return document["meta"], arrays


def _header(raw: bytes | memoryview) -> tuple[dict[str, Any], int]:
    length, _ = struct.unpack("<QI", raw[8:20])
    return json.loads(bytes(raw[20 : 20 + length])), -(-(20 + length) // _ALIGN) * _ALIGN


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make a rename in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size(entry: Mapping[str, Any]) -> int:
    return math.prod(map(int, entry["shape"])) * int(np.dtype(entry["dtype"]).itemsize)


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
