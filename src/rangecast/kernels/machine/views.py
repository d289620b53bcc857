"""Arrays that are handed to kernels once, not at every call.

Taking in an array costs a call 0.1 us, which is nothing to a batch but shows in a match of one event: a
structure of twenty arrays spends 2 us before it looks at anything. A kernel that takes the table of some
`Views` instead pays for one array, and makes the others again from where they lie.

    array   dtype   shape    meaning
    table   int64   (k, 3)   of each array: its address, its rows, its columns (1 for those of one dimension)

The views hold their arrays, so an address is good as long as they are held. A copy in another process makes
its own table.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, config, types  # type: ignore[attr-defined]
from numba.extending import intrinsic


class Views:
    """Arrays and the table of where they lie; other views stand for their table.

    >>> views = Views(np.array([5, 7]), np.empty((0, 4)))
    >>> views.table[:, 1:].tolist()
    [[2, 1], [0, 4]]
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


def _read(context, builder, row, kind):
    """The array that a row of the table tells of, in compiled code."""
    # loading this takes 30 ms, and only compiling needs it
    from numba.np.arrayobj import populate_array

    numbers = context.make_array(types.Array(types.int64, 1, "C"))(context, builder, row).data
    place, *shape = (builder.load(builder.gep(numbers, [ir.IntType(64)(k)])) for k in range(1 + kind.ndim))
    width = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [width] if kind.ndim == 1 else [builder.mul(shape[1], width), width]
    out = context.make_array(kind)(context, builder)
    data = builder.inttoptr(place, context.get_data_type(kind.dtype).as_pointer())
    populate_array(out, data, shape, strides, width, None)
    return out._getvalue()


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def view(row, dtype):
        """The array of a row of the table, of one dimension; the type must be the one it has."""
        return carray(ctypes.c_void_p(int(row[0])), (int(row[1]),), dtype)

    def view_rows(row, dtype):
        """The same of two dimensions."""
        return carray(ctypes.c_void_p(int(row[0])), (int(row[1]), int(row[2])), dtype)

    def float_of(bits):
        """The float that has these bits."""
        return np.int64(bits).view(np.float64)

else:

    @intrinsic
    def view(typing_context, row, dtype):
        """The array of a row of the table, of one dimension; the type must be the one it has."""
        kind = types.Array(dtype.dtype, 1, "C")
        return kind(row, dtype), lambda context, builder, _, given: _read(context, builder, given[0], kind)

    @intrinsic
    def view_rows(typing_context, row, dtype):
        """The same of two dimensions."""
        kind = types.Array(dtype.dtype, 2, "C")
        return kind(row, dtype), lambda context, builder, _, given: _read(context, builder, given[0], kind)

    @intrinsic
    def float_of(typing_context, bits):
        """The float that has these bits; a view of an array would say it too, and take 0.2 s to compile."""

        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], ir.DoubleType())

        return types.float64(types.int64), generate
