"""Memory as the processor sees it: asking for what will be needed, writing past the caches, scratch room.

What is asked for ahead is on its way while something else is computed. A store past the caches does not
fetch the line that it overwrites: of an answer that is larger than the caches nothing would be found there
anyway, and half the traffic is saved (12 GB per second become 18; 0.47 us per event become 0.38 where the
answer has 400 ids per event). Not every machine is like that (engine/answers.py). An answer that fits is
better left in the caches, for whoever reads it. Scratch room is on the stack, so that a kernel that needs
some counts no references (simd/compiler.py).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, config, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from rangecast.simd.compiler import inlined_kernel

_BYTE = ir.IntType(8).as_pointer()
_INT = ir.IntType(32)
_WORD = ir.IntType(64)
_LINES = 64

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def prefetch(array, index):
        """Ask for the cache line of array[index]; here without effect."""

    def prefetch_to_write(array, index):
        """Ask for the cache line of array[index]; here without effect."""

    def prefetch_near(array, index):
        """Ask for the cache line of array[index]; here without effect."""

    def read_alone(array, index):
        """array[index]."""
        return array[index]

    def put_past(array, index, value):
        """array[index] = value."""
        array[index] = value

    def count_to_line(array, index):
        """How many entries from array[index] on lie before a line begins; here none do."""
        return np.uint64(0)

    def put_line_past(source, first, add, out, to):
        """Copy the entries of a line, with `add` added."""
        for k in range(np.uint64(64 // out.itemsize)):
            out[to + k] = source[first + k] + add

    def settle():
        """Here without effect: nothing was written past the caches."""

    def scratch(n, dtype):
        """An array of n entries with whatever is in it."""
        return np.empty(n, dtype)

else:

    def _ask(context, builder, signature, arguments, write, near):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), _BYTE)
        call = ir.FunctionType(ir.VoidType(), [_BYTE, _INT, _INT, _INT])
        function = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE], call)
        builder.call(function, [place, _INT(write), _INT(near), _INT(1)])
        return context.get_dummy_value()

    @intrinsic
    def prefetch(typing_context, array, index):
        """Ask for the cache line of array[index], which need not exist."""

        def generate(context, builder, signature, arguments):
            # to read, into the second cache: the first would lose what is in use
            return _ask(context, builder, signature, arguments, 0, 2)

        return types.void(array, index), generate

    @intrinsic
    def prefetch_to_write(typing_context, array, index):
        """Ask for the cache line of array[index], which need not exist, to write to it."""

        def generate(context, builder, signature, arguments):
            return _ask(context, builder, signature, arguments, 1, 3)

        return types.void(array, index), generate

    @intrinsic
    def prefetch_near(typing_context, array, index):
        """Ask for the cache line of array[index], which need not exist, into the first cache: for lines that
        are read once, and soon."""

        def generate(context, builder, signature, arguments):
            return _ask(context, builder, signature, arguments, 0, 3)

        return types.void(array, index), generate

    @intrinsic
    def read_alone(typing_context, array, index):
        """array[index], by a load that the compiler does not join with others.

        Four loads from anywhere become a gather otherwise. On a Cascade Lake a gather of four words took 13
        ns, and four loads 1 ns; perhaps its microcode keeps gathers from leaking data.
        """

        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            width = context.get_abi_sizeof(data.type.pointee)
            return builder.load_atomic(builder.gep(data, [arguments[1]]), "monotonic", width)

        return array.dtype(array, index), generate

    @intrinsic
    def put_past(typing_context, array, index, value):
        """array[index] = value, of the array's own type, past the caches."""

        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            store = builder.store(arguments[2], builder.gep(data, [arguments[1]]))
            store.set_metadata("nontemporal", builder.module.add_metadata([_INT(1)]))
            return context.get_dummy_value()

        return types.void(array, index, array.dtype), generate

    @intrinsic
    def count_to_line(typing_context, array, index):
        """How many entries from array[index] on lie before the next line of memory begins."""

        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            at = builder.ptrtoint(builder.gep(data, [arguments[1]]), _WORD)
            behind = builder.and_(builder.neg(at), _WORD(63))
            return builder.udiv(behind, _WORD(signature.args[0].dtype.bitwidth // 8))

        return types.uint64(array, types.uint64), generate

    @intrinsic
    def put_line_past(typing_context, source, first, add, out, to):
        """Copy the entries of a line, which begins at out[to], with `add` added, past the caches."""

        def generate(context, builder, signature, arguments):
            own, target = signature.args[0].dtype, signature.args[3].dtype
            n = 512 // target.bitwidth
            wide = ir.VectorType(ir.IntType(target.bitwidth), n)
            narrow = ir.VectorType(ir.IntType(own.bitwidth), n)
            read, written = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 3)
            )
            place = builder.bitcast(builder.gep(read, [arguments[1]]), narrow.as_pointer())
            values = builder.load(place, align=own.bitwidth // 8)
            if own.bitwidth < target.bitwidth:
                values = (builder.sext if own.signed else builder.zext)(values, wide)
            elif own.bitwidth > target.bitwidth:
                values = builder.trunc(values, wide)
            none = ir.Constant(wide, ir.Undefined)
            more = builder.insert_element(none, arguments[2], _INT(0))
            more = builder.shuffle_vector(more, none, ir.Constant(ir.VectorType(_INT, n), [0] * n))
            place = builder.bitcast(builder.gep(written, [arguments[4]]), wide.as_pointer())
            store = builder.store(builder.add(values, more), place, align=64)
            store.set_metadata("nontemporal", builder.module.add_metadata([_INT(1)]))
            return context.get_dummy_value()

        return types.void(source, types.uint64, out.dtype, out, types.uint64), generate

    @intrinsic
    def settle(typing_context):
        """Wait until other threads see what was written past the caches."""

        def generate(context, builder, signature, arguments):
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic(prefer_literal=True)
    def scratch(typing_context, n, dtype):
        """An array of n entries, a constant of a few thousand at most, until the kernel returns."""
        array = types.Array(dtype.dtype, 1, "C")

        def generate(context, builder, signature, arguments):
            # loading this takes 30 ms, and only compiling needs it
            from numba.np.arrayobj import populate_array

            size = context.get_constant(types.intp, n.literal_value)
            kind = context.get_data_type(array.dtype)
            width = context.get_constant(types.intp, context.get_abi_sizeof(kind))
            room = cgutils.alloca_once(builder, kind, size=size)
            out = context.make_array(array)(context, builder)
            populate_array(out, room, [size], [width], width, None)
            return out._getvalue()

        return array(n, dtype), generate


@inlined_kernel
def ask(array, first, last):
    """Ask for what lies between two places; what lies far behind the first is read in order anyway."""
    line = 64 // array.itemsize
    for q in range(first, min(last, first + _LINES * line), line):
        prefetch(array, q)


# Arrays that are handed to kernels once, not at every call.
#
# Taking in an array costs a call 0.1 us, which is nothing to a batch but shows in a match of one event: a
# structure of twenty arrays spends 2 us before it looks at anything. A kernel that takes the table of some
# `Views` instead pays for one array, and makes the others again from where they lie.
#
#    array   dtype   shape    meaning
#    table   int64   (k, 3)   of each array: its address, its rows, its columns (1 for those of one dimension)
#
# The views hold their arrays, so an address is good as long as they are held. A copy in another process makes
# its own table.


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
