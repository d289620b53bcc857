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

import json
import math
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    entries: list[dict[str, Any]] = []
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    offset = 0
    for name, array in packed.items():
        raw = _bytes(array)
        shape = list(arrays[name].shape)
        entry: dict[str, Any] = {
            "name": name,
            "dtype": array.dtype.str,
            "shape": shape,
            "offset": offset,
            "crc": zlib.crc32(raw),
        }
        entries.append(entry)
        offset += -(-len(raw) // _ALIGN) * _ALIGN
    header = json.dumps({"meta": meta, "arrays": entries}).encode()
    start = -(-(20 + len(header)) // _ALIGN) * _ALIGN
    target = Path(path)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with open(scratch, "wb") as file:
            file.write(_MAGIC + struct.pack("<QI", len(header), zlib.crc32(header)) + header)
            for entry, array in zip(entries, packed.values(), strict=True):
                file.seek(start + entry["offset"])
                file.write(_bytes(array))
            file.truncate(start + offset)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
        sync_folder(target.parent)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return start + offset


def read_arrays(
    path: str | os.PathLike[str], mmap: bool = True, verify: bool = True
) -> tuple[dict[str, Any], Arrays]:
    """The meta data and arrays of a file; a damaged or foreign file raises StorageError."""
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
        if verify and zlib.crc32(_bytes(raw)) != entry["crc"]:
            raise StorageError(f"{path}: array {entry['name']!r} is damaged; save the index again")
        arrays[entry["name"]] = raw.view(np.dtype(entry["dtype"])).reshape(entry["shape"])
    return document["meta"], arrays


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
