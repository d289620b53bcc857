"""A bucket: the few things that are asked of an object store, the same for each of them, by obstore.

    create    put an object if there is none of its name; says whether it did
    put       put an object, in place of the one of its name
    read      an object, or a range of its bytes; None where there is none
    stat      size and tag of an object
    entries   the objects of a folder by name, also those after a name alone
    delete    take objects away; one that is not there is no fault

All of them are atomic by object and strongly consistent, as S3, Google Cloud Storage and Azure promise: what
was put is seen by whoever asks afterwards. Nothing is renamed, appended to or locked. `create` is a
conditional put (If-None-Match: *). Its answer may get lost, and a second try then finds what the first one
has put; so whoever creates gives bytes that are like no other's, and `create` looks whether they are there.

An address is `s3://bucket/path`, `gs://bucket/path` or `az://account/container/path`. `memory://name/path` is
a bucket in the memory of this process, for tests and trials. Keys, regions and endpoints come from the
variables that the clients of these services know (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP, ...).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fnmatch
import functools
import glob
import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from rangecast.errors import ForkError, OptionError, SetupError, StorageError, extra_hint

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]+):(?=/)")
SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
SECONDS = "RANGECAST_BUCKET_SECONDS"
"""The variable that says for how many seconds a request is tried again; 60 by default."""
_PLAIN_HTTP = ("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP")
_AT_ONCE = 16
_LARGE = 1 << 26
S = TypeVar("S")
T = TypeVar("T")


class BucketAddress(os.PathLike[str]):
    """The address of a bucket, a folder in it or an object.

    >>> place = BucketAddress("s3://bucket/alerts/")
    >>> str(place / "log" / "1"), place.name
    ('s3://bucket/alerts/log/1', 'alerts')
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text.rstrip("/")

    def __fspath__(self) -> str:
        return self._text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"BucketAddress({self._text!r})"

    def __truediv__(self, name: str) -> BucketAddress:
        return BucketAddress(f"{self._text}/{name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketAddress) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def name(self) -> str:
        """What follows the last slash."""
        return self._text.rpartition("/")[2]

    @property
    def parent(self) -> BucketAddress:
        """What precedes the last slash."""
        return BucketAddress(self._text.rpartition("/")[0])


def place_of(place: str | os.PathLike[str]) -> str:
    """What a name that a user gave stands for: the address of a bucket, or a path of this machine.

    A path may be written as file:///x or file:/x. Any other scheme is refused, with one slash as with two,
    which would otherwise name a folder below the working folder. A name with a colon is a path where no slash
    follows, or where a single letter precedes, as in C:/data.

    >>> place_of("s3://bucket/alerts"), place_of("file:///data/a b"), place_of("file:/data")
    ('s3://bucket/alerts', '/data/a b', '/data')
    >>> place_of("alerts"), place_of("C:/data"), place_of("12:30.csv"), place_of("./x:/y")
    ('alerts', 'C:/data', '12:30.csv', './x:/y')
    """
    text = os.fspath(place)
    found = _SCHEME.match(text)
    if found is None:
        return text
    scheme, rest = found[1], text[found.end() :]
    if scheme in SCHEMES and rest.startswith("//") and rest.strip("/"):
        return text
    if scheme.lower() == "file":
        host, _, inner = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
        if host in ("", "localhost"):
            return "/" + inner.lstrip("/")
    slashes = "//" if rest.startswith("//") else "/"
    hint = "; on Databricks, dbfs:/x is the folder /dbfs/x" if scheme == "dbfs" else ""
    hint = f"{hint}; for a folder of this name, write ./{text}" if slashes == "/" else hint
    known = ", ".join(f"{one}://" for one in SCHEMES[:-1])
    raise OptionError(
        f"{text}: an address must begin with {known}, or be a path, which may begin with file:///, got "
        f"{scheme}:{slashes}{hint}"
    )


def local_place(place: str | os.PathLike[str], what: str) -> str:
    """The path of this machine that a user named, where there can be no address; `what` is what it is for.

    >>> local_place("file:///data", "the log")
    '/data'
    """
    named = place_of(place)
    if _SCHEME.match(named):
        raise OptionError(f"{what} must be a file or folder of this machine, got {named}")
    return named


def is_address(place: Any) -> bool:
    """Whether something names an object store, and not a file or folder; see `place_of`.

    >>> is_address("s3://bucket/alerts"), is_address("alerts"), is_address(Path("s3:"))
    (True, False, False)
    """
    if not isinstance(place, str | os.PathLike):
        return False
    return isinstance(place, BucketAddress) or _SCHEME.match(place_of(place)) is not None


class ObjectEntry(NamedTuple):
    """An object: its name in the bucket's folder, its bytes, and a tag that changes with its content."""

    name: str
    size: int
    tag: str


class Bucket:
    """A folder of an object store.

    >>> bucket = Bucket("memory://doctest/alerts")
    >>> bucket.create("log/1", b"first"), bucket.create("log/1", b"second")
    (True, False)
    >>> bucket.read("log/1"), bucket.read("log/1", 1, 2), bucket.read("log/2")
    (b'first', b'ir', None)
    >>> [entry.name for entry in bucket.entries("log")], bucket.entries("log", after="log/1")
    (['log/1'], [])
    >>> bucket.delete(["log/1"])
    >>> bucket.entries("log")
    []
    """

    def __init__(self, address: str | BucketAddress) -> None:
        self.address = BucketAddress(str(address))
        # one connection for each bucket, for a folder of its own costs a new one
        top, self._inside = _top_and_folder(str(self.address))
        self._store = connect(top, os.getpid())
        self._process = os.getpid()

    def create(self, name: str, content: bytes) -> bool:
        """Put an object if there is none of its name; says whether these bytes are there by that."""
        with self._asking(name, "written"):
            try:
                self._api().put(self._store, self._inside + name, content, mode="create", use_multipart=False)
                return True
            except self._api().exceptions.AlreadyExistsError:
                pass
            except FileNotFoundError:
                raise StorageError(f"{self.address}: there is no such bucket") from None
        # an earlier try of the same request may have done it, whose answer got lost
        entry = self.stat(name)
        return entry is not None and entry.size == len(content) and self.read(name) == content

    def put(self, name: str, content: bytes | Path) -> str:
        """Put an object, in place of the one of its name; returns its tag."""
        with self._asking(name, "written"):
            try:
                return str(self._api().put(self._store, self._inside + name, content)["e_tag"])
            except FileNotFoundError:
                raise StorageError(f"{self.address}: there is no such bucket") from None

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes | None:
        """The bytes of an object, or a range of them, which ends with the object; None if there is none."""
        with self._asking(name, "read"):
            try:
                wanted: Any = {"offset": start} if length is None else (start, start + length)
                options = {} if start == 0 and length is None else {"range": wanted}
                return bytes(self._api().get(self._store, self._inside + name, options=options).bytes())
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None

    def read_same(self, entry: ObjectEntry, start: int, length: int) -> bytes:
        """A range of an object; StorageError if it has changed since `entry` was asked for, or is gone."""
        options = {"range": (start, start + length), "if_match": entry.tag}
        with self._asking(entry.name, "read"):
            try:
                return bytes(self._api().get(self._store, self._inside + entry.name, options=options).bytes())
            except FileNotFoundError:
                raise StorageError(f"{self.address / entry.name}: is gone since it was listed") from None

    def stat(self, name: str) -> ObjectEntry | None:
        """Size and tag of an object; None if there is none."""
        with self._asking(name, "read"):
            try:
                found = self._api().head(self._store, self._inside + name)
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None
        return ObjectEntry(name, int(found["size"]), str(found["e_tag"]))

    def entries(self, folder: str, after: str | None = None) -> list[ObjectEntry]:
        """The objects of a folder and of those inside, by name; with `after`, those of larger names."""
        with self._asking(folder, "listed"):
            try:
                start = None if after is None else self._inside + after
                pages = self._api().list(
                    self._store, self._inside + folder or None, offset=start, chunk_size=1000
                )
                found = [
                    ObjectEntry(
                        str(entry["path"])[len(self._inside) :], int(entry["size"]), str(entry["e_tag"])
                    )
                    for page in pages
                    for entry in page
                ]
            except FileNotFoundError as error:
                self._check_bucket(error)
                return []
        return sorted(found)

    def delete(self, names: Iterable[str]) -> None:
        """Take objects away; one that is not there is no fault."""
        gone = list(names)
        for first in range(0, len(gone), 1000):
            some = [self._inside + name for name in gone[first : first + 1000]]
            with self._asking(gone[first], "deleted"), contextlib.suppress(FileNotFoundError):
                self._api().delete(self._store, some)

    def fetch(self, entry: ObjectEntry, target: Path) -> None:
        """Write an object to a file; StorageError if it has changed since `entry` was asked for."""
        cuts = [(at, min(at + _LARGE, entry.size)) for at in range(0, entry.size, _LARGE)]

        def take(cut: tuple[int, int]) -> None:
            with self._asking(entry.name, "read"):
                options = {"if_match": entry.tag, "range": cut}
                got = self._api().get(self._store, self._inside + entry.name, options=options)
                handle = os.open(target, os.O_WRONLY)
                try:
                    at = cut[0]
                    for chunk in got.stream(min_chunk_size=1 << 20):
                        at += os.pwrite(handle, chunk, at)
                finally:
                    os.close(handle)
                if at != cut[1]:
                    raise StorageError(
                        f"{self.address / entry.name}: ended at byte {at}, must have {entry.size}"
                    )

        with open(target, "wb") as file:
            file.truncate(entry.size)
        try:
            self.each(take, cuts, 4)
        except FileNotFoundError:
            raise StorageError(f"{self.address / entry.name}: is gone since it was listed") from None

    def each(self, step: Callable[[S], T], items: Sequence[S], at_once: int = _AT_ONCE) -> list[T]:
        """What a step gives for each item, several at once: most of the time goes into waiting."""
        if len(items) < 2:
            return [step(item) for item in items]
        with ThreadPoolExecutor(min(at_once, len(items))) as pool:
            return list(pool.map(step, items))

    def _api(self) -> Any:
        if os.getpid() != self._process:
            raise ForkError(
                f"{self.address}: was opened before this process was forked, and connections do not survive "
                "that; open it in the new process, or start processes by 'spawn'"
            )
        import obstore

        return obstore

    def _check_bucket(self, error: FileNotFoundError) -> None:
        """StorageError where not the object but the bucket is not there."""
        if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
            raise StorageError(f"{self.address}: there is no such bucket") from None

    @contextlib.contextmanager
    def _asking(self, name: str, done: str) -> Iterator[None]:
        """Whatever the service refuses inside is a StorageError with the address of the object."""
        where = self.address / name if name else self.address
        try:
            yield
        except (StorageError, FileNotFoundError):
            raise
        except (OSError, ValueError) as error:
            raise StorageError(f"{where}: cannot be {done}: {_said(error)}") from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("obstore", "builtins"):
                raise
            raise StorageError(f"{where}: cannot be {done}: {_said(error)}") from error


def _top_and_folder(address: str) -> tuple[str, str]:
    """What is connected to, and the folder in it; Azure's addresses are left to its client."""
    scheme, _, rest = address.partition("://")
    name, _, folder = rest.partition("/")
    if scheme not in ("s3", "s3a", "gs", "memory"):
        return address, ""
    return f"{scheme}://{name}", f"{folder}/" if folder else ""


def _said(error: BaseException) -> str:
    """What a service said, on one line."""
    line = str(error).partition("\n")[0]
    return line if len(line) < 300 else line[:300] + "..."


_memory: dict[str, Any] = {}
_guard = threading.Lock()


@functools.lru_cache(maxsize=64)
def connect(address: str, process: int) -> Any:
    """The object store of an address, opened once per process."""
    try:
        from obstore.store import MemoryStore, from_url
    except ImportError:
        raise SetupError(f"{address}: an object store needs obstore; {extra_hint('buckets')}") from None
    scheme, _, rest = address.partition("://")
    if scheme == "memory":
        with _guard:
            return _memory.setdefault(rest.partition("/")[0], MemoryStore())
    seconds = float(os.environ.get(SECONDS, "60"))
    retries: Any = {"max_retries": 1000, "retry_timeout": dt.timedelta(seconds=seconds)}
    options: Any = {"timeout": f"{max(1, round(seconds / 2))}s", "connect_timeout": "5s"}
    if any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in _PLAIN_HTTP):
        options["allow_http"] = True
    try:
        return from_url(address, client_options=options, retry_config=retries)
    except Exception as error:
        raise StorageError(f"{address}: cannot be opened: {_said(error)}") from None


# Files that may be objects: opened, sized and listed by their path or by their address.
#
# An object is read by ranges, as far as it is read: the footer of a Parquet file and the columns that are
# wanted, a text from its beginning. Nothing is fetched as a whole.

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
