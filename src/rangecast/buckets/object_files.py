"""Files that may be objects: opened, sized and listed by their path or by their address.

An object is read by ranges, as far as it is read: the footer of a Parquet file and the columns that are
wanted, a text from its beginning. Nothing is fetched as a whole.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from rangecast.durable.bucket import Bucket, BucketAddress, is_address, place_of
from rangecast.errors import StorageError

_TEXT_BYTES = 1 << 22


class ObjectFile(io.RawIOBase):
    """An object as a file that can be read and sought; an object that changes while it is read is refused.

    >>> bucket = Bucket("memory://doctest/files")
    >>> tag = bucket.put("a.csv", b"id,price")
    >>> file = ObjectFile("memory://doctest/files/a.csv")
    >>> file.seek(3), file.read(5), file.size
    (3, b'price', 8)
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        place = BucketAddress(address)
        self._bucket, self._name = Bucket(place.parent), place.name
        with _as_a_disk():
            entry = self._bucket.stat(self._name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", address)
        self._entry = entry
        self._at = 0
        self.size = entry.size

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        return self._at

    def tell(self) -> int:
        """Where it is."""
        return self._at

    def readinto(self, room: Any) -> int:
        """Fill some room from here on; 0 at the end."""
        view = memoryview(room).cast("B")
        wanted = min(len(view), self.size - self._at)
        if wanted <= 0:
            return 0
        with _as_a_disk():
            found = self._bucket.read_same(self._entry, self._at, wanted)
        view[: len(found)] = found
        self._at += len(found)
        return len(found)


@contextlib.contextmanager
def _as_a_disk() -> Iterator[None]:
    """What a bucket refuses is to readers as a disk that fails: they must not take the file for damaged."""
    try:
        yield
    except StorageError as error:
        raise OSError(errno.EIO, str(error)) from error


def open_file(path: str) -> BinaryIO:
    """A file or an object, to be read from its beginning on."""
    path = place_of(path)
    if not is_address(path):
        return open(path, "rb")
    return io.BufferedReader(ObjectFile(path), _TEXT_BYTES)


def seekable_file(path: str) -> Any:
    """What PyArrow opens: the path of a file, or an object as a file."""
    path = place_of(path)
    return ObjectFile(path) if is_address(path) else path


def size_of(path: str) -> int:
    """The bytes of a file or of an object."""
    path = place_of(path)
    return ObjectFile(path).size if is_address(path) else os.path.getsize(path)


def objects_at(address: str) -> list[str]:
    """The addresses of the objects behind an address: one object, a folder or a pattern, sorted.

    >>> bucket = Bucket("memory://doctest/listed")
    >>> tags = [bucket.put(name, b"") for name in ("a.csv", "b.csv", "deep/c.csv")]
    >>> objects_at("memory://doctest/listed/[ab].csv")
    ['memory://doctest/listed/a.csv', 'memory://doctest/listed/b.csv']
    >>> len(objects_at("memory://doctest/listed/")), objects_at("memory://doctest/listed/a.csv")
    (3, ['memory://doctest/listed/a.csv'])
    """
    place = BucketAddress(address)
    if glob.has_magic(str(place)):
        # `*` goes no further than a folder, `**` through all of them
        parts = str(place).split("/")
        first = next(k for k, part in enumerate(parts) if glob.has_magic(part))
        top, pattern = "/".join(parts[:first]), parts[first:]
        found = [entry.name for entry in Bucket(top).entries("")]
        return [f"{top}/{name}" for name in found if _fits(name.split("/"), pattern)]
    if Bucket(place.parent).stat(place.name) is not None:
        return [str(place)]
    return [str(place / entry.name) for entry in Bucket(place).entries("")]


def _fits(parts: list[str], pattern: list[str]) -> bool:
    if not pattern or not parts:
        return not pattern and not parts
    if pattern[0] == "**":
        return _fits(parts, pattern[1:]) or _fits(parts[1:], pattern)
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])
