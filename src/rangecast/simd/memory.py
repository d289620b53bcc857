"""Memory as the processor sees it: asking for what will be needed, writing past the caches, scratch room.

What is asked for ahead is on its way while something else is computed. A store past the caches does not
fetch the line that it overwrites: of an answer that is larger than the caches nothing would be found there
anyway, and half the traffic is saved (12 GB per second become 18; 0.47 us per event become 0.38 where the
answer has 400 ids per event). Not every machine is like that (engine/past_caches.py). An answer that fits is
better left in the caches, for whoever reads it. Scratch room is on the stack, so that a kernel that needs
some counts no references (kernels/__init__.py).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, types
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
