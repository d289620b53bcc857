"""Asking for memory before it is needed, so that it is on its way while something else is computed."""

from __future__ import annotations

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from rangecast.kernels import kernel

_BYTE = ir.IntType(8).as_pointer()
_INT = ir.IntType(32)
_LINES = 64

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def prefetch(array, index):
        """Ask for the cache line of array[index]; here without effect."""

else:

    @intrinsic
    def prefetch(typing_context, array, index):
        """Ask for the cache line of array[index], which need not exist."""

        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.bitcast(builder.gep(data, [arguments[1]]), _BYTE)
            call = ir.FunctionType(ir.VoidType(), [_BYTE, _INT, _INT, _INT])
            # to read, into the second cache (the first would lose what is in use), data
            function = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE], call)
            builder.call(function, [place, _INT(0), _INT(2), _INT(1)])
            return context.get_dummy_value()

        return types.void(array, index), generate


@kernel
def ask(array, first, last):
    """Ask for what lies between two places; what lies far behind the first is read in order anyway."""
    line = 64 // array.itemsize
    for q in range(first, min(last, first + _LINES * line), line):
        prefetch(array, q)
