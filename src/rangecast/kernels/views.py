"""Arrays that are handed to kernels once, not at every call.

Taking in an array costs a call 0.1 us, which is nothing to a batch but shows in a match of one event: a
structure of twenty arrays spends 2 us before it looks at anything. A kernel that takes the table of some
`Views` instead pays for one array, and makes the others again from where they lie.

    array   dtype   shape    meaning
    table   int64   (k, 3)   of each array: its address, its rows, its columns (1 for those of one dimension)

The views hold their arrays, so an address is good as long as they are held. A copy in another process makes
its table anew.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, config, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from rangecast.kernels import kernel


class Views:
    """Arrays and the table of where they lie; other views stand for their table.

    >>> views = Views(np.array([5, 7]), np.empty((0, 4)))
    >>> views.table[:, 1:].tolist(), view(views.table[0], np.int64).tolist()
    ([[2, 1], [0, 4]], [5, 7])
    """

    __slots__ = ("_held", "table")
    table: npt.NDArray[np.int64]

    def __init__(self, *held: npt.NDArray[Any] | Views) -> None:
        arrays = [one.table if isinstance(one, Views) else one for one in held]
        assert all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
        self._held = held
        self.table = np.array([(a.ctypes.data, *a.shape, 1)[:3] for a in arrays], np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return Views, self._held


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _pointer(address):
        """An address as a pointer."""
        return ctypes.c_void_p(int(address))

else:

    @intrinsic
    def _pointer(typing_context, address):
        """An address as a pointer."""

        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

        return types.voidptr(types.int64), generate


@kernel
def view(row, dtype):
    """The array of a row of the table, of one dimension; the type must be the one it has."""
    return carray(_pointer(row[0]), (row[1],), dtype)


@kernel
def view_rows(row, dtype):
    """The same of two dimensions."""
    return carray(_pointer(row[0]), (row[1], row[2]), dtype)
