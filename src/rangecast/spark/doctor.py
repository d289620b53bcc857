"""What the workers of a cluster are like, and whether they can do what matching asks of them.

A small task on each slot says who it is: host, user, versions, clock, memory, where kernels are cached;
whether it sees the store, a file that the driver has just written beside it, and whether it may write
there. The driver then looks whether it sees what they wrote. `diagnose` makes a sentence of each trouble.

The function that runs in the workers is made inside another one: such functions travel whole, so that a
worker without rangecast can say so, instead of failing to read what it was sent.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from rangecast import __version__
from rangecast.durable.bucket import is_address
from rangecast.spark.worker import told
from rangecast.store.home import home_of
from rangecast.store.store import Store

MOST_SECONDS_APART = 5.0
_FIELDS = (
    ("host", T.StringType()),
    ("pid", T.LongType()),
    ("user", T.StringType()),
    ("python", T.StringType()),
    ("rangecast", T.StringType()),
    ("pyarrow", T.StringType()),
    ("numba", T.StringType()),
    ("cache", T.StringType()),
    ("free_bytes", T.LongType()),
    ("clock", T.DoubleType()),
    ("sees_store", T.StringType()),
    ("sees_driver", T.StringType()),
    ("writes", T.StringType()),
)


@dataclass(frozen=True)
class WorkerReport:
    """What one task said of the process that it ran in; a check that went well is "yes"."""

    host: str
    pid: int
    user: str
    python: str
    rangecast: str
    pyarrow: str
    numba: str
    cache: str
    free_bytes: int
    clock: float
    sees_store: str
    sees_driver: str
    writes: str


@dataclass(frozen=True)
class Diagnosis:
    """The workers, one row for each process that answered, and a sentence for each trouble."""

    workers: tuple[WorkerReport, ...]
    troubles: tuple[str, ...]


def examine(
    spark: SparkSession, store: Store | str | os.PathLike[str] | None = None, tasks: int = 8
) -> Diagnosis:
    """Ask the workers; `store` is the one that they would match against."""
    home = store if isinstance(store, Store) or store is None else Store.open(store)
    mark = uuid.uuid4().hex
    folder = None if home is None else home_of(home.path / "staging" / f"doctor-{mark}")
    if folder is not None:
        folder.prepare()
        folder.put("driver", lambda file: file.write(mark.encode()))
    try:
        store_path = None if home is None else str(home.path)
        probe = _probe(store_path, None if folder is None else str(folder.path), mark)
        fields = T.StructType([T.StructField(name, kind) for name, kind in _FIELDS])
        began = time.time()
        with told():
            rows = spark.range(0, tasks, 1, tasks).mapInArrow(probe, fields).collect()
        found = {(row["host"], row["pid"]): WorkerReport(**row.asDict()) for row in rows}
        workers = tuple(sorted(found.values(), key=lambda worker: (worker.host, worker.pid)))
        seen = set() if folder is None else set(folder.names(""))
        return Diagnosis(workers, tuple(diagnose(workers, home, seen, (began, time.time()))))
    finally:
        if folder is not None:
            folder.clear()


def _probe(
    store: str | None, folder: str | None, mark: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = [name for name, _ in _FIELDS]
    in_bucket = is_address(store)

    def probe(batches: Any) -> Any:
        # imports in here: what this refers to outside would have to be installed to be read
        import getpass
        import importlib.metadata
        import os
        import platform
        import socket
        import time

        import pyarrow as pa

        def version(package: str) -> str:
            try:
                return importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                return "none"

        def attempt(step: Any) -> str:
            try:
                return str(step())
            except (OSError, ImportError) as error:
                return f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"

        def own_version() -> str:
            try:
                import rangecast

                return rangecast.__version__
            except ImportError:
                return "none"

        def cache() -> str:
            try:
                from rangecast.simd.compiler import cache_folders

                return os.environ.get("NUMBA_CACHE_DIR") or next(iter(cache_folders("kernels")))
            except Exception as error:
                return f"{type(error).__name__}"

        def who() -> str:
            try:
                return getpass.getuser()
            except (KeyError, OSError):
                return str(os.getuid())

        def place(path: str | None) -> Any:
            from rangecast.store.home import home_of

            return home_of(str(path))

        def sees() -> str:
            if in_bucket:
                return "yes" if place(store).has("store.json") else "there is no store.json"
            return "yes" if os.stat(os.path.join(str(store), "store.json")) else "no"

        def read() -> str:
            if in_bucket:
                return "yes" if place(folder).get("driver") == mark.encode() else "another file"
            with open(os.path.join(str(folder), "driver")) as file:
                return "yes" if file.read() == mark else "another file"

        def write() -> str:
            if in_bucket:
                name = f"{socket.gethostname()}-{os.getpid()}"
                place(folder).put(name, lambda file: file.write(mark.encode()))
                return "yes"
            with open(os.path.join(str(folder), f"{socket.gethostname()}-{os.getpid()}"), "w") as file:
                file.write(mark)
            return "yes"

        def free() -> int:
            pages: int = os.sysconf("SC_AVPHYS_PAGES")
            return pages * os.sysconf("SC_PAGE_SIZE")

        for _ in batches:
            pass
        # long enough that one slot does not take the tasks of all
        time.sleep(0.3)
        none = "not asked"
        there = none
        if store is not None:
            there = attempt(sees)
        values: list[Any] = [
            socket.gethostname(),
            os.getpid(),
            who(),
            platform.python_version(),
            own_version(),
            version("pyarrow"),
            version("numba"),
            cache(),
            free(),
            time.time(),
            there,
            none if folder is None else attempt(read),
            none if folder is None else attempt(write),
        ]
        yield pa.RecordBatch.from_arrays([pa.array([value]) for value in values], names)

    return probe


def diagnose(
    workers: tuple[WorkerReport, ...], store: Store | None, seen: set[str], asked: tuple[float, float]
) -> Iterator[str]:
    """A sentence for each trouble, and what to do about it; `asked` is when, by the driver's clock."""
    if not workers:
        yield "no worker answered: are there executors?"
    own = ".".join(map(str, sys.version_info[:2]))
    for worker in workers:
        where = f"{worker.host} (process {worker.pid}, user {worker.user})"
        if worker.rangecast == "none":
            yield f"{where}: rangecast is not installed: install it there, or send it by spark.submit.pyFiles"
        elif worker.rangecast != __version__:
            yield f"{where}: has rangecast {worker.rangecast}, the driver {__version__}: use one version"
        if ".".join(worker.python.split(".")[:2]) != own:
            yield f"{where}: runs Python {worker.python}, the driver {own}: use one minor version"
        apart = max(asked[0] - worker.clock, worker.clock - asked[1])
        if apart > MOST_SECONDS_APART:
            yield f"{where}: its clock is {apart:.0f} s off the driver's: versions by event time go wrong"
        if store is None:
            continue
        if worker.sees_store != "yes":
            yield (
                f"{where}: does not see the store {store.path} ({worker.sees_store}): "
                + (
                    "give the workers its keys and endpoint, by spark.executorEnv or a role, and obstore"
                    if is_address(store.path)
                    else "let it read this folder, and all above it"
                    if worker.sees_store.startswith("PermissionError")
                    else "put it on storage that all machines mount under one path"
                )
            )
            continue
        if worker.sees_driver != "yes":
            yield f"{where}: sees the store, and not what the driver writes there ({worker.sees_driver})"
        if worker.writes != "yes":
            yield (
                f"{where}: may not write to {store.path / 'staging'} ({worker.writes}): matching works, "
                "ingest does not; give both users a common group that may write to the store (chmod g+ws)"
            )
        elif f"{worker.host}-{worker.pid}" not in seen:
            yield f"{where}: wrote a file that the driver does not see: the store is not the same storage"
