"""The decorators of the Numba loops, and the folder of their cache.

Kernels are in the folder of the structure that calls them, in files with the word kernels in their names
(`_KERNEL_FILE`), and in simd/.

`kernel` is the one home of the decorator and its defaults. Importing compiles nothing: each kernel
compiles at its first call and comes from the disk cache after that. The cache's folder is named by
a hash of all kernel sources, because Numba looks at one file's time stamp only and would keep
serving a kernel whose callee in another file has changed; and it is set here, before Numba is
imported, because a Spark worker inherits no environment from the driver under Connect. What is in that
folder is run, so it must be one that nobody else can write to (`cache_folders`).

A `kernel` gets no memory of its own, so it needs no count of who holds which array. Numba keeps those counts
by atomic instructions, at every call of another kernel and every view that is not optimised away, and for
each array of a call from Python it makes an object to hold one. An `allocating_kernel` does get memory. Where
calls of a small kernel would show, it is an `inlined_kernel`: Numba hands over an array as seven numbers.

Conventions: arrays are C-contiguous and writable (a memory-mapped index is mapped copy-on-write for
this reason: a read-only array is another type to Numba and would compile everything again). The
caller checks and allocates; a kernel writes into `out`. Where one event at a time must be fast, a kernel
takes the arrays of a part as one table of where they lie (simd/memory.py). A kernel that calls another
with a number gives it as np.int64(0): of a plain 0 Numba compiles the other one once more.


How long this process has spent compiling kernels, and who wants to know when it begins.

A kernel compiles at its first call and comes from the disk after that, so the first match on a machine may
take seconds that say nothing about matching. Whoever reports times takes these off:

>>> before = compile_seconds()
>>> compile_seconds() - before
0.0

Numba announces each compilation; what comes from its disk cache is none. A kernel that calls others compiles
them on the way: the outermost one is timed.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from time import perf_counter
from typing import Any

_KERNEL_FILE = re.compile(r"kernels\.py|kernels_\w+\.py|\w+_kernels\.py")


def _sources(folder: Traversable, under: str = "") -> Iterator[tuple[str, bytes]]:
    """Every source of kernels by its name: those of simd/, and in other folders what the name says.

    They are read by way of the importer, because a Spark worker may have the package in a zip.
    """
    for entry in folder.iterdir():
        name = f"{under}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, name)
        elif _KERNEL_FILE.fullmatch(entry.name) or (under == "/simd" and name.endswith(".py")):
            yield name, entry.read_bytes()


def cache_folders(name: str) -> Iterator[str]:
    """Folders of a name for what this user will run, the best first; nobody else can have put files there.

    One is in the user's cache, one in the folder for temporary files, and the last is new and goes with the
    process. A folder is passed over when it is a link, belongs to another user or may be written to by
    others: whoever made it could have planted what is run from it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    shared = os.path.join(tempfile.gettempdir(), f"rangecast-{os.getuid()}")
    # a group of the user's own is common at home; in a folder that all share, nobody else may even look
    for root, forbidden in ((os.path.join(base, "rangecast"), stat.S_IWOTH), (shared, 0o077)):
        folder = os.path.join(root, name)
        try:
            os.makedirs(os.path.dirname(root), exist_ok=True)
            if not os.path.lexists(root):
                os.mkdir(root, 0o700)
        except FileExistsError:
            pass  # another process was faster
        except OSError:
            continue
        try:
            if _is_private(root, forbidden):
                os.makedirs(folder, 0o700, exist_ok=True)
                if _is_private(folder, forbidden):
                    yield folder
        except OSError:
            continue
    folder = tempfile.mkdtemp(prefix="rangecast-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    yield folder


def _is_private(folder: str, forbidden: int) -> bool:
    status = os.lstat(folder)
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return ours and not status.st_mode & forbidden


def _numba_folder() -> str:
    digest = hashlib.sha256()
    for name, source in sorted(_sources(files("rangecast"))):
        digest.update(name.encode() + b"\0" + source + b"\0")
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())
    return next(cache_folders("numba-" + digest.hexdigest()[:16]))


if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = _numba_folder()

from numba import config, njit
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

# a module of kernels that names numba itself may have loaded it before this one
config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # type: ignore[attr-defined]

# nobody calls a kernel from C: without a wrapper for it, compiling takes a fifteenth less
_COUNTED: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
_UNCOUNTED: dict[str, Any] = {**_COUNTED, "_nrt": False}


class _KernelCache:
    """Numba's cache on the disk.

    Numba makes all that compiling may need ready before it loads anything: 0.15 s of a process that compiles
    nothing. What is loaded needs none of it, but Numba's runtime where a kernel gets memory. For each kernel
    Numba also writes a file to prove that its folder can be written to, 0.1 ms for each of 300; here that is
    done for those that are called.
    """

    def __init__(self, function: Callable[..., Any], counted: bool) -> None:
        self._function = function
        self._counted = counted
        self._found: Any = None

    @property
    def _files(self) -> Any:
        if self._found is None:
            self._found = FunctionCache(self._function)
        return self._found

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What the cache has for a signature, or None."""
        if self._counted:
            rtsys.initialize(target_context)
        with self._files._guard_against_spurious_io_errors():
            return self._files._load_overload(sig, target_context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def _decorator(counted: bool, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    compiled = njit(**(_COUNTED if counted else _UNCOUNTED), **options)

    def decorate(function: Callable[..., Any]) -> Any:
        made = compiled(function)
        if not config.DISABLE_JIT:  # type: ignore[attr-defined]
            made._cache = _KernelCache(function, counted)
        return made

    return decorate


kernel = _decorator(counted=False)
inlined_kernel = _decorator(counted=False, forceinline=True)
allocating_kernel = _decorator(counted=True)


_numba_events: Any = importlib.import_module("numba.core.event")

# A kernel or two take less than this; after that there are more to come, or a large one.
NOTICEABLE = 0.3


class _CompileClock(_numba_events.Listener):  # type: ignore[misc]
    """Listens to Numba; each thread that compiles is timed by itself, and one compiles at a time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waiting: list[Callable[[], None]] = []
        self._own = threading.local()

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        depth = getattr(self._own, "depth", 0)
        self._own.depth = depth + 1
        if depth == 0:
            self._own.start = perf_counter()
        if self.waiting and self.seconds + perf_counter() - self._own.start > NOTICEABLE:
            told, self.waiting = self.waiting, []
            for tell in told:
                tell()

    def on_end(self, event: Any) -> None:
        """A compilation has ended."""
        self._own.depth -= 1
        if self._own.depth == 0:
            self.seconds += perf_counter() - self._own.start


_clock = _CompileClock()
_numba_events.register("numba:compile", _clock)


def compile_seconds() -> float:
    """Seconds that this process has spent compiling since the engine was loaded."""
    return _clock.seconds


def running_seconds() -> float:
    """A clock that stands still while kernels compile, for who times a run."""
    return perf_counter() - _clock.seconds


def when_compiling(tell: Callable[[], None]) -> None:
    """Call `tell` once, when compiling has taken long enough to be noticed and goes on."""
    _clock.waiting.append(tell)
