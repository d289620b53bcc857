"""Objects as files of this machine: fetched once, checked, and mapped by every process that wants them.

    <cache folder>/objects/<key>.object     a whole object; the key is of its address, its tag and its size
    <cache folder>/objects/<key>.lock       held by the process that fetches it
    <cache folder>/objects/<key>.<id>.tmp   being fetched

A process that wants an object asks the bucket for its tag. If a file of that tag is here, it is taken as it
is; if not, one process fetches it while the others wait. The file is checked by whoever knows its sums and
then takes its name by a rename, so half a file is never seen. All processes map the same pages.

The folder is bounded: when it holds more bytes than RANGECAST_CACHE_BYTES says (32 GB by default), those go
first that were used least recently. A file that is still mapped keeps its pages until it is let go.
RANGECAST_CACHE names another folder, such as one on a large local disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from rangecast.durable.arrays import writing_to
from rangecast.durable.bucket import Bucket, ObjectEntry
from rangecast.errors import OptionError, StorageError
from rangecast.simd.compiler import cache_folders

FOLDER, BYTES = "RANGECAST_CACHE", "RANGECAST_CACHE_BYTES"
_MOST = 32_000_000_000
_STALE_SECONDS = 3600


def fetched(bucket: Bucket, name: str, check: Callable[[Path], None]) -> Path | None:
    """The file of an object, fetched now if it is not here yet; None if there is no such object.

    `check` raises StorageError for a file that is damaged, by its sums.
    """
    entry = bucket.stat(name)
    if entry is None:
        return None
    target = _file_of(bucket, entry)
    if not _is_here(target, entry.size):
        with _alone(target.with_suffix(".lock")):
            if not _is_here(target, entry.size):
                _fetch(bucket, entry, target, check)
    return target


def scratch_file() -> Path:
    """A new name in the cache folder, for what will be put into a bucket and then kept here."""
    return cache_folder() / f"{uuid.uuid4().hex}.tmp"


def keep(bucket: Bucket, entry: ObjectEntry, scratch: Path) -> Path:
    """Keep a file that was just put as an object: it need not be fetched."""
    target = _file_of(bucket, entry)
    with writing_to(target):
        os.replace(scratch, target)
    _make_room(target)
    return target


def cache_folder() -> Path:
    """Where fetched objects are kept."""
    said = os.environ.get(FOLDER)
    if said is None:
        return _own_folder()
    folder = Path(said).absolute() / "objects"
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def _own_folder() -> Path:
    return Path(next(cache_folders("objects")))


def _file_of(bucket: Bucket, entry: ObjectEntry) -> Path:
    key = repr((str(bucket.address / entry.name), entry.tag, entry.size))
    return cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.object"


def _is_here(target: Path, size: int) -> bool:
    try:
        if target.stat().st_size != size:
            return False
        os.utime(target)  # who was used least recently goes first
    except FileNotFoundError:
        return False
    except PermissionError:
        pass  # of another user, who shares the folder
    return True


def _fetch(bucket: Bucket, entry: ObjectEntry, target: Path, check: Callable[[Path], None]) -> None:
    scratch = target.with_suffix(f".{uuid.uuid4().hex[:12]}.tmp")
    where = bucket.address / entry.name
    try:
        with writing_to(scratch):
            bucket.fetch(entry, scratch)
        try:
            check(scratch)
        except StorageError as error:
            raise StorageError(str(error).replace(str(scratch), str(where))) from None
        with writing_to(target):
            os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
    _make_room(target)


def _make_room(newest: Path) -> None:
    """Remove what was used least recently, down to the bound; the newest stays whatever its size."""
    try:
        most = int(float(os.environ.get(BYTES, _MOST)))
    except ValueError:
        raise OptionError(f"{BYTES} must be a number of bytes, got {os.environ[BYTES]!r}") from None
    found = []
    for path in newest.parent.iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            if path.suffix == ".object" and path != newest:
                found.append((status.st_mtime, status.st_size, path))
            elif path.suffix == ".tmp" and status.st_mtime < time.time() - _STALE_SECONDS:
                path.unlink()
    held = newest.stat().st_size
    for _, size, path in sorted(found, reverse=True):
        held += size
        if held > most:
            for gone in (path, path.with_suffix(".lock")):
                with contextlib.suppress(OSError):
                    gone.unlink()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of this machine at a time; a crash lets go."""
    with writing_to(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
