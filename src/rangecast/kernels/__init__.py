"""The Numba loops, in the folders of the modules that call them.

`kernel` is the one home of the decorator and its defaults. Importing compiles nothing: each kernel
compiles at its first call and comes from the disk cache after that. The cache's folder is named by
a hash of all kernel sources, because Numba looks at one file's time stamp only and would keep
serving a kernel whose callee in another file has changed; and it is set here, before Numba is
imported, because a Spark worker inherits no environment from the driver under Connect.

A `kernel` gets no memory of its own, so it needs no count of who holds which array. Numba keeps those counts
by atomic instructions, at every call of another kernel and every view that is not optimised away, and for
each array of a call from Python it makes an object to hold one. An `allocating_kernel` does get memory. Where
calls of a small kernel would show, it is an `inlined_kernel`: Numba hands over an array as seven numbers.

Conventions: arrays are C-contiguous and writable (a memory-mapped index is mapped copy-on-write for
this reason: a read-only array is another type to Numba and would compile everything again). The
caller checks and allocates; a kernel writes into `out`. Where one event at a time must be fast, a kernel
takes the arrays of a part as one table of where they lie (machine/views.py).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any


def _sources(folder: Traversable, under: str = "") -> Iterator[tuple[str, bytes]]:
    """Every source by its name, by way of the importer: a Spark worker may have the package in a zip."""
    for entry in folder.iterdir():
        name = f"{under}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, name)
        elif name.endswith(".py"):
            yield name, entry.read_bytes()


def _cache_folder() -> str:
    digest = hashlib.sha256()
    for name, source in sorted(_sources(files("rangecast.kernels"))):
        digest.update(name.encode() + b"\0" + source + b"\0")
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "rangecast", "numba-" + digest.hexdigest()[:16])
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        folder = os.path.join(tempfile.gettempdir(), f"rangecast-{os.getuid()}", os.path.basename(folder))
        os.makedirs(folder, exist_ok=True)
    return folder


if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = _cache_folder()

from numba import njit

_COUNTED: dict[str, Any] = {"cache": True, "nogil": True}
_UNCOUNTED: dict[str, Any] = {**_COUNTED, "_nrt": False}

kernel = njit(**_UNCOUNTED)
inlined_kernel = njit(**_UNCOUNTED, forceinline=True)
allocating_kernel = njit(**_COUNTED)

__all__ = ["allocating_kernel", "inlined_kernel", "kernel"]
