"""What must hold of arrays that came from a file before a kernel follows them.

Kernels check nothing. A file whose sums are right may still have been made by somebody else, so whoever
loads a structure checks, in a pass or two of numpy over each array, that everything a kernel indexes by is in
range: a `check` of each kind of structure says what that is, in the words of this module. It keeps
reads and writes inside the arrays, and loops finite. It does not tell whether the answers are right: that is
what the sums are for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import StorageError


def hold(what: str, holds: Any) -> None:
    """Raise unless something holds."""
    if not holds:
        raise StorageError(f"{what} must hold in the structure of an index, but does not; save it again")


def within(name: str, numbers: npt.NDArray[Any], n: int, least: int = 0) -> None:
    """Every number is one of least, ..., n - 1."""
    if not numbers.size:
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
    met = np.zeros(n, np.bool_)
    total = 0
    for some in links:
        within(name, some, n, -1)
        targets = some[some >= 0]
        met[targets] = True
        total += len(targets)
    hold(f"that no two {name} lead to the same place", np.count_nonzero(met) == total)


def flat(arrays: tuple[Any, ...], **more: int) -> None:
    """The arrays of a structure have one dimension, but for those of which another number is said."""
    for name, array in zip(arrays._fields, arrays, strict=True):  # type: ignore[attr-defined]
        if isinstance(array, np.ndarray) and array.ndim != more.get(name, 1):
            raise StorageError(
                f"{name} must have {more.get(name, 1)} dimensions, got {array.ndim}; save it again"
            )


def shaped(name: str, array: npt.NDArray[Any], *shape: int) -> None:
    """An array has this shape."""
    if array.shape != shape:
        raise StorageError(f"{name} must have the shape {shape}, got {array.shape}; save it again")
