"""What must hold of arrays that came from a file before a kernel follows them.

Kernels check nothing. A file whose sums are right may still have been made by somebody else, so whoever
loads a structure checks, in one pass over each array, that everything a kernel indexes by is in range: a
`check` of each kind of structure says what that is, in the words of this module. It keeps reads and writes
inside the arrays, and loops finite. It does not tell whether the answers are right: that is what the sums
are for. docs/reliability.md tells what it costs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.engine import kernels
from rangecast.errors import StorageError
from rangecast.simd.compiler import cache_folders


def hold(what: str, holds: Any) -> None:
    """Raise unless something holds."""
    if not holds:
        raise StorageError(f"{what} must hold in the structure of an index, but does not; save it again")


def within(name: str, numbers: npt.NDArray[Any], n: int, least: int = 0) -> None:
    """Every number is one of least, ..., n - 1."""
    if not numbers.size:
        return
    # a negative number is a large one without its sign: one pass instead of two
    signed = least == 0 and numbers.dtype.kind == "i"
    if signed and int(numbers.view(f"u{numbers.dtype.itemsize}").max()) < n:
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low < least or high >= n:
        raise StorageError(f"{name} must be from {least} to {n - 1}, got {low} to {high}; save it again")


def ascending(name: str, starts: npt.NDArray[Any], end: int, length: int | None = None) -> None:
    """Where lists begin: so many places, none before the one before it, all up to the end."""
    if length is not None and starts.shape != (length,):
        raise StorageError(f"{name} must be {length} places, got {starts.shape}; save it again")
    if not starts.size:
        raise StorageError(f"{name} must say where its lists end, but is empty; save it again")
    flat = starts.reshape(-1)
    if int(flat[0]) < 0 or int(flat[-1]) > end or not bool((flat[1:] >= flat[:-1]).all()):
        raise StorageError(f"{name} must ascend from 0 to {end} at most, but do not; save it again")


def linked(name: str, n: int, *links: npt.NDArray[Any]) -> None:
    """Links of lists lead to one of n nodes or, with -1, nowhere, and no two of them to the same node.

    A walk along them then ends: it would come back only to a node that two links lead to.
    """
    met = np.zeros(n // 64 + 1, np.uint64)
    if not all(kernels.meet(some, n, met) for some in links):
        for some in links:
            within(name, some, n, -1)
        hold(f"that no two {name} lead to the same place", False)


def listed(
    name: str, nodes: npt.NDArray[np.int32], link: int, n_boxes: int, *heads: npt.NDArray[Any]
) -> None:
    """Nodes of lists are boxes, in column 0, and the node that follows; every walk from heads ends.

    In lists that have only grown each node leads to one from before it. Where nodes were freed and taken
    again, no two links lead to the same node.
    """
    paired = nodes.shape[1] == 2 and nodes.flags.c_contiguous
    seen = (
        kernels.check_pairs(nodes.reshape(-1).view("<u8"), n_boxes)
        if paired
        else kernels.check_nodes(nodes, link, n_boxes)
    )
    if seen == kernels.OUTSIDE:
        within(f"boxes of {name}", nodes[:, 0], n_boxes)
    if seen == kernels.FINE:
        for some in heads:
            within(f"links of {name}", some, len(nodes), -1)
    else:
        linked(f"links of {name}", len(nodes), *heads, nodes[:, link])


def counted(what: str, members: npt.NDArray[Any], n: int, needed: npt.NDArray[Any]) -> None:
    """Each of n members, which are in range, occurs as often as its count states, in a wide enough type."""
    counts = np.zeros(n, needed.dtype)
    whole = kernels.count_members(members, counts, needed.dtype.type(np.iinfo(needed.dtype).max))
    hold(what, whole and np.array_equal(counts, needed))


def flat(arrays: tuple[Any, ...], **more: int) -> None:
    """The arrays of a structure have one dimension, except those for which another number is given."""
    for name, array in zip(arrays._fields, arrays, strict=True):  # type: ignore[attr-defined]
        if isinstance(array, np.ndarray) and array.ndim != more.get(name, 1):
            raise StorageError(
                f"{name} must have {more.get(name, 1)} dimensions, got {array.ndim}; save it again"
            )


def shaped(name: str, array: npt.NDArray[Any], *shape: int) -> None:
    """An array has this shape."""
    if array.shape != shape:
        raise StorageError(f"{name} must have the shape {shape}, got {array.shape}; save it again")


# Which files this machine has checked: so that a hundred workers read a file against its sums once.
#
# A worker maps a snapshot that somebody else has checked before, maybe on another machine, maybe days ago.
# Reading all of it against its sums again would cost each worker as much as the file is large. So whoever has
# done that leaves a marker among the user's own files (kernels.cache_folders), named for all that changes
# when a file does: its path, device, inode, size, and the times of the last change of its content and of its
# inode, and for the start of the machine. A file that was written to since, in whatever way, has no marker
# and is checked again.

_MOST = 4096


def marker_of(path: str | os.PathLike[str]) -> Path:
    """Where the marker of a file in its present state is, or would be."""
    status = os.stat(path)
    state = (
        os.path.abspath(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns,
        status.st_ctime_ns, _start_of_machine(),
    )  # fmt: skip
    return _folder() / hashlib.sha256(repr(state).encode()).hexdigest()


def mark_verified(marker: Path) -> None:
    """Leave a marker; what cannot be written costs a check more, and nothing else."""
    with contextlib.suppress(OSError):
        if len(os.listdir(marker.parent)) >= _MOST:
            for other in marker.parent.iterdir():
                other.unlink(missing_ok=True)
        marker.touch()


@functools.cache
def _folder() -> Path:
    return Path(next(cache_folders("verified")))


@functools.cache
def _start_of_machine() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    return ""
