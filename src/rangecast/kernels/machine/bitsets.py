"""Bitsets of WORDS words, ANDed in registers.

A loop over rows that keeps what is left in an array loads and stores it once per row, and Numba makes no
vectors of 32 words of its own accord. Here they are one value of the intermediate language, which
becomes as many registers as the processor needs: four where they have 512 bits.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

WORDS = 32
_WORD = ir.IntType(64)
_BITSET = ir.VectorType(_WORD, WORDS)

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def lowest(x):
        """The position of the lowest bit that is set, 64 where none is."""
        return (int(x) & -int(x)).bit_length() - 1 if x else 64

    def count_bits(x):
        """How many bits are set."""
        return int(x).bit_count()

    def and_cells(bits, bases, attributes, cells, e, first, last, left):
        """AND the rows that event e has on the attributes first..last; returns which words have a bit left.

        The row of attribute k is bits[bases[k] + cells[e, attributes[k]]]. `left` is what those before have
        left, and becomes what these do; where first is 0 it is not read.
        """
        if first == 0:
            left[:] = np.uint64(2**64 - 1)
        for k in range(first, last):
            left &= bits[bases[k] + cells[e, attributes[k]]]
        return np.uint64(sum(1 << w for w in range(WORDS) if left[w]))

else:

    @intrinsic
    def lowest(typing_context, x):
        """The position of the lowest bit that is set, 64 where none is."""

        def generate(context, builder, signature, arguments):
            return builder.cttz(arguments[0], ir.IntType(1)(0))

        return types.int64(types.uint64), generate

    @intrinsic
    def count_bits(typing_context, x):
        """How many bits are set."""

        def generate(context, builder, signature, arguments):
            return builder.ctpop(arguments[0])

        return types.int64(types.uint64), generate

    @intrinsic
    def and_cells(typing_context, bits, bases, attributes, cells, e, first, last, left):
        """AND the rows that event e has on the attributes first..last; returns which words have a bit left.

        The row of attribute k is bits[bases[k] + cells[e, attributes[k]]]. `left` is what those before have
        left, and becomes what these do; where first is 0 it is not read.
        """

        def generate(context, builder, signature, arguments):
            arrays = [
                context.make_array(kind)(context, builder, value)
                for kind, value in zip(signature.args, arguments, strict=True)
                if isinstance(kind, types.Array)
            ]
            rows, bases, attributes, cells, left = arrays
            e, first, last = arguments[4:7]
            width = cgutils.unpack_tuple(builder, cells.shape, 2)[1]
            own = builder.gep(cells.data, [builder.mul(e, width)])
            out = builder.bitcast(left.data, _BITSET.as_pointer())
            # a slot on the stack that becomes registers
            kept = cgutils.alloca_once(builder, _BITSET)
            with builder.if_else(builder.icmp_signed("==", first, _WORD(0))) as (then, otherwise):
                with then:
                    builder.store(_BITSET([_WORD(2**64 - 1)] * WORDS), kept)
                with otherwise:
                    builder.store(builder.load(out, align=8), kept)
            with cgutils.for_range_slice(builder, first, last, _WORD(1)) as (k, _):
                attribute = builder.load(builder.gep(attributes.data, [k]))
                cell = builder.zext(builder.load(builder.gep(own, [attribute])), _WORD)
                row = builder.add(builder.load(builder.gep(bases.data, [k])), cell)
                place = builder.gep(rows.data, [builder.mul(row, _WORD(WORDS))])
                words = builder.load(builder.bitcast(place, _BITSET.as_pointer()), align=8)
                builder.store(builder.and_(builder.load(kept), words), kept)
            words = builder.load(kept)
            builder.store(words, out, align=8)
            some = builder.icmp_unsigned("!=", words, _BITSET([_WORD(0)] * WORDS))
            return builder.zext(builder.bitcast(some, ir.IntType(WORDS)), _WORD)

        return types.uint64(bits, bases, attributes, cells, e, first, last, left), generate
