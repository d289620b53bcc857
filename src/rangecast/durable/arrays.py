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

What is written is a tree: NamedTuples, dataclasses, tuples and lists, down to arrays and plain values. A
structure declares its fields once, as the dataclass or NamedTuple that it is; `flatten` names each array by
the way to it, and keeps the plain values as JSON of the same shape:

    parts.0.part.runs.starts      {"parts": [{"Covered": {"first": 0, "part": {"RunsPart": {...}}}}]}

`unflatten` builds the tree again by the annotations of the fields. NamedTuples and dataclasses are written
with their names, so that a field may be declared as a base or a union and hold any kind of it. A field with
the metadata UNSAVED is left out, and gets its default.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import stat
import struct
import types
import typing
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

UNSAVED = {"saved": False}
"""The metadata of a dataclass field that no file holds."""


def flatten(tree: Any, name: str = "") -> tuple[Any, Arrays]:
    """The plain values of a tree as JSON, and its arrays by name; names begin with the one given.

    >>> class Lists(NamedTuple):
    ...     starts: npt.NDArray[np.int64]
    ...     longest: int
    >>> meta, arrays = flatten([Lists(np.array([0, 2, 3]), 2)], "lists")
    >>> meta, list(arrays)
    ([{'Lists': {'longest': 2}}], ['lists.0.starts'])
    >>> unflatten(list[Lists], meta, arrays, "lists")
    [Lists(starts=array([0, 2, 3]), longest=2)]
    """
    arrays: Arrays = {}
    return _flatten(tree, name, arrays), arrays


def _flatten(tree: Any, name: str, arrays: Arrays) -> Any:
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, np.ndarray):
        # its place among the plain values is empty
        arrays[name] = tree
        return None
    if isinstance(tree, np.generic):
        return tree.item()
    if dataclasses.is_dataclass(tree) or hasattr(tree, "_fields"):
        values = {key: getattr(tree, key) for key in _field_names(tree.__class__)}
        flat = {key: _flatten(value, _join(name, key), arrays) for key, value in values.items()}
        return {type(tree).__name__: {key: value for key, value in flat.items() if value is not None}}
    if isinstance(tree, tuple | list):
        return [_flatten(item, _join(name, k), arrays) for k, item in enumerate(tree)]
    raise TypeError(
        f"{name or 'a tree'} must be an array, a plain value, a NamedTuple, a dataclass, a tuple or a list, "
        f"got {type(tree).__name__}"
    )


def unflatten(kind: Any, meta: Any, arrays: Arrays, name: str = "") -> Any:
    """The tree of a kind, as annotations tell it, out of what `flatten` gave."""
    if name in arrays:
        _check_type(kind, arrays[name], name)
        return arrays[name]
    kinds = _alternatives(kind)
    if meta is None:
        if kind in (bool, int, float, str):
            raise StorageError(f"{name} must be {kind.__name__}, got nothing; save it again")
        return None
    if not isinstance(meta, dict | list):
        _check_value(kinds, meta, name)
        return meta
    if isinstance(meta, list):
        (sequence,) = (one for one in kinds if typing.get_origin(one) in (tuple, list))
        origin, inner = typing.get_origin(sequence), typing.get_args(sequence)
        each = inner if origin is tuple and inner[-1] is not ... else inner[:1] * len(meta)
        return origin(
            unflatten(one, value, arrays, _join(name, k))
            for k, (one, value) in enumerate(zip(each, meta, strict=True))
        )
    ((label, fields),) = meta.items()
    kind = _named_kind(kinds, label, name)
    hints = _hints(kind)
    found = {
        key: unflatten(hints[key], fields.get(key), arrays, _join(name, key)) for key in _field_names(kind)
    }
    return kind(**found)


def _check_type(kind: Any, array: npt.NDArray[Any], name: str) -> None:
    """Raise unless an array is of the type that its annotation says; some kernels know no other."""
    for one in _alternatives(kind):
        scalars = [typing.get_args(inner)[0] for inner in typing.get_args(one)[1:2]]
        for wanted in scalars:
            if isinstance(wanted, type) and issubclass(wanted, np.generic) and array.dtype != wanted:
                raise StorageError(f"{name} must be {np.dtype(wanted)}, got {array.dtype}; save it again")


def _check_value(kinds: list[Any], value: Any, name: str) -> None:
    """Raise unless a plain value is of the type that its annotation says, and a whole number of 64 bits."""
    fits = any(
        one is Any or type(value) is one or (one is float and type(value) is int) for one in kinds
    ) and not (type(value) is int and not -(2**63) <= value < 2**63)
    if not fits:
        wanted = " or ".join(getattr(one, "__name__", str(one)) for one in kinds)
        raise StorageError(f"{name} must be {wanted}, got {value!r}; save it again")


def count_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree."""
    return sum(array.nbytes for array in flatten(tree)[1].values())


def _join(name: str, key: str | int) -> str:
    return f"{name}.{key}" if name else str(key)


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(f.name for f in dataclasses.fields(kind) if f.metadata.get("saved", True))
    names: tuple[str, ...] = kind._fields
    return names


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _alternatives(kind: Any) -> list[Any]:
    """The kinds of a union, or the one given."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [one for one in typing.get_args(kind) if one is not types.NoneType]
    return [kind]


def _named_kind(bases: list[type], label: str, name: str) -> type:
    """The class of this name among some and all that are derived from them."""
    kinds = list(bases)
    for kind in kinds:
        if kind.__name__ == label:
            return kind
        kinds += kind.__subclasses__()
    wanted = " or ".join(kind.__name__ for kind in bases)
    raise StorageError(f"{name or 'the tree'} must be a kind of {wanted}, got {label!r}")


def write_arrays(
    path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> int:
    """Write a file of arrays and return its size in bytes."""
    with replacing(path) as file:
        return write_arrays_to(file, meta, arrays)


def write_arrays_to(file: BinaryIO, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Write arrays to an empty file that is open; returns its size in bytes."""
    layout = _lay_out(meta, arrays)
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
    with writing_to(target), _scratch_for(target) as file:
        yield file


@contextlib.contextmanager
def writing_to(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever the system refuses inside, such as room on the disk, is a StorageError with this path."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def reading_from(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever the system refuses inside is a StorageError with this path, but that a file is not there."""
    try:
        yield
    except (StorageError, FileNotFoundError):
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def _scratch_for(target: Path) -> Iterator[BinaryIO]:
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
    with reading_from(path):
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


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Make a folder and those above it that are not there, each open to whom the one above it is open to.

    What a group may write to stays so further down, so that processes of several users can work in it. A
    folder that everybody shares with everybody else, as the one for temporary files, is no such one.
    """
    path = Path(folder)
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    above, own = path.parent.stat().st_mode, stat.S_IMODE(path.stat().st_mode)
    shared = above & (stat.S_IWGRP | stat.S_IWOTH) if not above & stat.S_ISVTX else 0
    if shared & ~own:
        path.chmod(own | shared)


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
