"""Where a store lives: a folder, or a bucket. The store asks the same few things of both.

    documents         small JSON objects with a sum (durable/documents.py): read, put in place of another,
                      removed
    names             what is in one of its folders
    files             an object as a local file that can be mapped: itself, or fetched once per machine
    saving            an index as an object
    the log           the segments of a folder (change_log.py), or the objects of a bucket (object_log.py)
    holding           a lock, where there are locks: flock in a folder, nothing in a bucket

`locks` says whether one writer keeps others out. Where it does not, a change that came too late is a
OvertakenError, and the store does it again.
"""

from __future__ import annotations

import abc
import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from rangecast.durable.arrays import (
    make_folder,
    read_arrays,
    reading_from,
    replacing,
    sync_folder,
    writing_to,
)
from rangecast.durable.bucket import Bucket, BucketAddress, ObjectEntry, is_address, place_of
from rangecast.durable.documents import read_document, seal, unseal, write_document
from rangecast.durable.fetched import fetched, keep, scratch_file
from rangecast.durable.lock import holding
from rangecast.engine import Index
from rangecast.errors import StorageError
from rangecast.store.change_log import ChangeEntries, ChangeLog
from rangecast.store.object_log import ObjectLog
from rangecast.types.schema import Schema

_STALE_SECONDS = 3600
_OWN = ("lock", "log", "snapshots")


class Home(abc.ABC):
    """What a store asks of the place where it lives; names are paths inside, such as `holds/nightly.json`."""

    path: Any
    locks: bool

    @abc.abstractmethod
    def begin(self, settings: Mapping[str, Any], schema: Schema, time: int, wait: float) -> None:
        """Make an empty store here, unless another process was faster."""

    @abc.abstractmethod
    def open_log(self, schema: Schema) -> ChangeEntries:
        """The change log; its words begin with those of the schema."""

    @abc.abstractmethod
    def read(self, name: str) -> dict[str, Any] | None:
        """A document, checked; None if there is none."""

    @abc.abstractmethod
    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Put a document in place, whole and to stay."""

    @abc.abstractmethod
    def remove(self, name: str) -> bool:
        """Take an object away; says whether it was there."""

    @abc.abstractmethod
    def remove_all(self, names: Iterable[str]) -> None:
        """Take objects away, some of which may be gone already."""

    @abc.abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names of the objects directly in a folder, sorted."""

    @abc.abstractmethod
    def top_names(self) -> list[str]:
        """The names of the objects and folders directly in here, sorted."""

    @abc.abstractmethod
    def folders(self, folder: str) -> list[str]:
        """The names of the folders directly in a folder, sorted."""

    @abc.abstractmethod
    def size(self, folder: str = "") -> int:
        """Bytes of all that is here, or in one of its folders."""

    @abc.abstractmethod
    def file(self, name: str) -> Path | None:
        """An object of arrays as a file of this machine, to be mapped; None if there is none."""

    @abc.abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is an object of this name."""

    @abc.abstractmethod
    def save(self, index: Index, name: str) -> Path:
        """Save an index as an object; returns it as a file of this machine."""

    @abc.abstractmethod
    def put(self, name: str, write: Callable[[BinaryIO], Any]) -> None:
        """Put what a function writes as an object, whole or not at all."""

    @abc.abstractmethod
    def get(self, name: str) -> bytes | None:
        """An object as it is; None if there is none."""

    @abc.abstractmethod
    def create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Put a document unless there is one in a bucket; says whether it counts.

        In a folder it replaces another: there whoever writes holds a lock, or writes the same.
        """

    @abc.abstractmethod
    def scratch(self, name: str) -> Path:
        """A file of this machine for what will be taken in; `name` is where a folder would have it."""

    @abc.abstractmethod
    def take(self, name: str, scratch: Path) -> None:
        """Take in a file that was written aside."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """See that objects can be put here."""

    @abc.abstractmethod
    def clear(self) -> None:
        """Remove everything."""

    @abc.abstractmethod
    def holding(self, name: str, wait: float) -> AbstractContextManager[None]:
        """Keep other processes out of what this lock guards, where there are locks."""

    @abc.abstractmethod
    def sweep(self, keep: int) -> None:
        """Remove what crashes have left, and what belongs to snapshots before a version."""


class FolderHome(Home):
    """A folder of a file system with working flock, rename and fsync."""

    locks = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, settings: Mapping[str, Any], schema: Schema, time: int, wait: float) -> None:
        """Make an empty store here, unless another process was faster."""
        folder = self.path
        if folder.exists() and not folder.is_dir():
            raise StorageError(f"{folder}: a store is a folder, but here is a file")
        others = self.top_names()
        if set(others) - set(_OWN):
            raise StorageError(f"{folder}: holds other files ({', '.join(others[:3])}); name an empty folder")
        make_folder(folder / "log")
        make_folder(folder / "snapshots")
        with holding(folder / "lock", wait):
            if (folder / "store.json").exists():
                return
            ChangeLog(folder / "log", schema).start_segment(1, time)
            write_document(folder / "store.json", settings)

    def open_log(self, schema: Schema) -> ChangeEntries:
        """The segments of the folder `log`."""
        return ChangeLog(self.path / "log", schema)

    def read(self, name: str) -> dict[str, Any] | None:
        """A document, checked; None if there is none."""
        return read_document(self.path / name)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Put a document in place, whole and on disk."""
        write_document(self.path / name, content)

    def remove(self, name: str) -> bool:
        """Take a file away; says whether it was there."""
        path = self.path / name
        with writing_to(path):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            sync_folder(path.parent)
        return True

    def remove_all(self, names: Iterable[str]) -> None:
        """Take files away, some of which may be gone already."""
        paths = [self.path / name for name in names]
        for folder in sorted({path.parent for path in paths}):
            with writing_to(folder):
                for path in paths:
                    if path.parent == folder:
                        path.unlink(missing_ok=True)
                sync_folder(folder)

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted."""
        try:
            return sorted(os.listdir(self.path / folder))
        except FileNotFoundError:
            return []

    def top_names(self) -> list[str]:
        """The names of the files and folders in here, sorted."""
        return self.names("") if self.path.is_dir() else []

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, sorted."""
        return [name for name in self.names(folder) if (self.path / folder / name).is_dir()]

    def size(self, folder: str = "") -> int:
        """Bytes of all files."""
        return sum(status.st_size for _, status in _files(self.path / folder))

    def file(self, name: str) -> Path | None:
        """The file itself."""
        path: Path = self.path / name
        return path if path.exists() else None

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return bool((self.path / name).exists())

    def save(self, index: Index, name: str) -> Path:
        """Save an index: written aside, synced and renamed."""
        path: Path = self.path / name
        index.save(path)
        return path

    def put(self, name: str, write: Callable[[BinaryIO], Any]) -> None:
        """Put a file: written aside, synced and renamed."""
        with replacing(self.path / name) as file:
            write(file)

    def get(self, name: str) -> bytes | None:
        """A file as it is."""
        with reading_from(self.path / name), contextlib.suppress(FileNotFoundError):
            return bytes((self.path / name).read_bytes())
        return None

    def create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Put a document in place."""
        self.write(name, content)
        return True

    def scratch(self, name: str) -> Path:
        """A file of the folder."""
        path: Path = self.path / name
        return path

    def take(self, name: str, scratch: Path) -> None:
        """Give a file its name."""
        os.replace(scratch, self.path / name)

    def prepare(self) -> None:
        """Make the folder."""
        with writing_to(self.path):
            make_folder(self.path)

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def holding(self, name: str, wait: float) -> AbstractContextManager[None]:
        """The lock of a file."""
        path = self.path / name
        if path.parent != self.path:
            with writing_to(path.parent):
                path.parent.mkdir(exist_ok=True)
        return holding(path, wait)

    def sweep(self, keep: int) -> None:
        """Remove what crashes have left half written, torn ends, and stripes of older snapshots."""
        strays = [path for path, status in _files(self.path) if path.suffix == ".tmp" and _is_stale(status)]
        with writing_to(self.path / "snapshots"):
            for path in [*strays, *(self.path / "log").glob("*.torn-*")]:
                path.unlink(missing_ok=True)
            for folder in (self.path / "snapshots").glob("*.stripes-*"):
                # what Spark has cut a snapshot into goes with it
                if int(folder.stem) < keep:
                    shutil.rmtree(folder, ignore_errors=True)
            sync_folder(self.path / "snapshots")


class BucketHome(Home):
    """A folder of a bucket."""

    locks = False

    def __init__(self, address: str) -> None:
        self.bucket = Bucket(address)
        self.path = self.bucket.address

    def begin(self, settings: Mapping[str, Any], schema: Schema, time: int, wait: float) -> None:
        """Make an empty store here, unless another process was faster: store.json decides."""
        others = [name for name in self.top_names() if name != "store.json"]
        if others:
            raise StorageError(
                f"{self.path}: holds other objects ({', '.join(others[:3])}); name an empty folder"
            )
        # the words that the schema brings are version 0; there is no other object that could be half there
        whole = {**settings, "schema": schema.to_dict(words=True)}
        self.create("store.json", whole)

    def open_log(self, schema: Schema) -> ObjectLog:
        """The objects of the folder `log`."""
        return ObjectLog(self.bucket, schema)

    def read(self, name: str) -> dict[str, Any] | None:
        """A document, checked; None if there is none."""
        raw = self.bucket.read(name)
        return None if raw is None else unseal(raw, self.path / name)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Put a document in place of the one of its name."""
        self.bucket.put(name, seal(content) + b"\n")

    def remove(self, name: str) -> bool:
        """Take an object away; says whether it was there."""
        there = self.has(name)
        self.bucket.delete([name])
        return there

    def remove_all(self, names: Iterable[str]) -> None:
        """Take objects away, some of which may be gone already."""
        self.bucket.delete(names)

    def names(self, folder: str) -> list[str]:
        """The names of the objects directly in a folder, sorted."""
        start = len(folder) + 1 if folder else 0
        return [e.name[start:] for e in self.bucket.entries(folder) if "/" not in e.name[start:]]

    def top_names(self) -> list[str]:
        """The names of the objects and folders directly in here, sorted."""
        return sorted({entry.name.partition("/")[0] for entry in self.bucket.entries("")})

    def folders(self, folder: str) -> list[str]:
        """The names that some objects of a folder share up to the next slash, sorted."""
        inner = [entry.name[len(folder) + 1 :] for entry in self.bucket.entries(folder)]
        return sorted({name.partition("/")[0] for name in inner if "/" in name})

    def size(self, folder: str = "") -> int:
        """Bytes of all objects."""
        return sum(entry.size for entry in self.bucket.entries(folder))

    def file(self, name: str) -> Path | None:
        """The object as it was fetched by this machine, checked against its sums."""
        return fetched(self.bucket, name, _check_arrays)

    def has(self, name: str) -> bool:
        """Whether there is an object of this name."""
        return self.bucket.stat(name) is not None

    def save(self, index: Index, name: str) -> Path:
        """Save an index here, put it, and keep the file as if it had been fetched."""
        scratch = scratch_file()
        try:
            index.save(scratch)
            entry = ObjectEntry(name, scratch.stat().st_size, self.bucket.put(name, scratch))
            return keep(self.bucket, entry, scratch)
        finally:
            scratch.unlink(missing_ok=True)

    def put(self, name: str, write: Callable[[BinaryIO], Any]) -> None:
        """Put an object, in parts where it is large."""
        scratch = scratch_file()
        try:
            with writing_to(scratch), open(scratch, "wb") as file:
                write(file)
            self.bucket.put(name, scratch)
        finally:
            scratch.unlink(missing_ok=True)

    def get(self, name: str) -> bytes | None:
        """An object as it is."""
        return self.bucket.read(name)

    def create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Put a document if there is none of its name."""
        return self.bucket.create(name, seal(content) + b"\n")

    def scratch(self, name: str) -> Path:
        """A file of the cache folder."""
        return scratch_file()

    def take(self, name: str, scratch: Path) -> None:
        """Put a file as an object."""
        self.bucket.put(name, scratch)

    def prepare(self) -> None:
        """Objects can be put anywhere."""

    def clear(self) -> None:
        """Delete all objects."""
        self.bucket.delete([entry.name for entry in self.bucket.entries("")])

    def holding(self, name: str, wait: float) -> AbstractContextManager[None]:
        """There is nothing to hold: whoever comes too late is told so."""
        return contextlib.nullcontext()

    def sweep(self, keep: int) -> None:
        """Remove stripes of older snapshots."""
        stripes = [e.name for e in self.bucket.entries("snapshots") if ".stripes-" in e.name]
        self.bucket.delete(n for n in stripes if int(n.split("/")[1].partition(".")[0]) < keep)


def home_of(path: str | os.PathLike[str]) -> Home:
    """The place that a path or an address names."""
    if is_address(path):
        return BucketHome(str(path))
    return FolderHome(Path(place_of(path)).absolute())


def local_file(path: str) -> str:
    """The file of this machine behind the path of a saved index: itself, or fetched from its address."""
    if not is_address(path):
        return path
    place = BucketAddress(path)
    found = fetched(Bucket(place.parent), place.name, _check_arrays)
    if found is None:
        raise StorageError(f"{path}: there is no such object; compact must keep the versions in use")
    return str(found)


def _check_arrays(path: Path) -> None:
    read_arrays(path)


def _is_stale(status: os.stat_result) -> bool:
    return status.st_mtime < time.time() - _STALE_SECONDS


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.rglob("*"):
        # others rename and remove theirs meanwhile
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                yield path, status
