"""Rows of bytes, compared in registers: whether any field of a box exceeds that of an event.

Numba makes three loops of one over bytes whose length it does not know, and the last goes byte by byte. Here
a row is two vectors of 16 bytes, or of 32, or as many of these as it takes; the last one overlaps the one
before, or is the same once more.
"""

from __future__ import annotations

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

SHORTEST = 16
"""Bytes of a row, at least; a row has a multiple of 8."""
_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def compare_fields(bounds, row, points, e, ones):
        """1 where no field of a row exceeds those of points[e], 2 where none exceeds them less `ones`, or
        0."""
        point = points[e]
        return int((bounds[row] <= point).all()) + int((bounds[row] <= point - ones).all())

    def compare_rests(bounds, rests, row, points, e, ones, closer):
        """The same by the rests and closer[e], of the fields alone that equal those of points[e]."""
        point, same = closer[e], bounds[row] == points[e]
        return int((rests[row] <= point)[same].all()) + int((rests[row] <= point - ones)[same].all())

else:

    def _compare(context, builder, arrays, row, e):
        """The code of both; arrays are bounds, points and ones and, or not, rests and closer points."""
        bounds, points, ones, *rests = (
            context.make_array(kind)(context, builder, value) for kind, value in arrays
        )
        row, e = (builder.zext(x, _WORD) if x.type.width < _WORD.width else x for x in (row, e))
        width = cgutils.unpack_tuple(builder, bounds.shape, 2)[1]
        at, own = builder.mul(row, width), builder.mul(e, width)
        out = cgutils.alloca_once(builder, _WORD)

        def compare_by(size, looped=False):
            """Compare by vectors of so many bytes; two of them, or as many as it takes."""
            kind, whole = ir.VectorType(_BYTE, size), ir.IntType(8 * size)
            none = kind([_BYTE(0)] * size)
            name, taken = f"llvm.usub.sat.v{size}i8", ir.FunctionType(kind, [kind, kind])
            less = builder.module.globals.get(name) or ir.Function(builder.module, taken, name)

            def read(array, place):
                place = builder.bitcast(builder.gep(array.data, [place]), kind.as_pointer())
                return builder.load(place, align=1)

            # slots on the stack that become registers: by how much fields exceed the values, and less
            beyond = [cgutils.alloca_once_value(builder, none) for _ in range(2)]
            last = builder.sub(width, _WORD(size))

            def add_up(first):
                field = read(bounds, builder.add(at, first))
                point = read(points, builder.add(own, first))
                if rests:
                    same = builder.icmp_unsigned("==", field, point)
                    field = builder.select(same, read(rests[0], builder.add(at, first)), none)
                    point = read(rests[1], builder.add(own, first))
                surely = builder.sub(point, read(ones, first))
                for kept, values in zip(beyond, (point, surely), strict=True):
                    more = builder.call(less, [field, values])
                    builder.store(builder.or_(builder.load(kept), more), kept)

            if looped:
                with cgutils.for_range_slice(builder, _WORD(0), width, _WORD(size)) as (k, _):
                    add_up(builder.select(builder.icmp_signed("<", k, last), k, last))
            else:
                add_up(_WORD(0))
                add_up(last)
            held = [
                builder.icmp_unsigned("==", builder.bitcast(builder.load(kept), whole), whole(0))
                for kept in beyond
            ]
            builder.store(builder.add(*(builder.zext(one, _WORD) for one in held)), out)

        with builder.if_else(builder.icmp_signed("<=", width, _WORD(32))) as (then, otherwise):
            with then:
                compare_by(16)
            with otherwise:
                with builder.if_else(builder.icmp_signed("<=", width, _WORD(64))) as (then, otherwise):
                    with then:
                        compare_by(32)
                    with otherwise:
                        compare_by(32, looped=True)
        return builder.load(out)

    @intrinsic
    def compare_fields(typing_context, bounds, row, points, e, ones):
        """1 where no field of a row exceeds those of points[e], 2 where none exceeds them less `ones`, or
        0."""

        def generate(context, builder, signature, arguments):
            arrays = [(signature.args[k], arguments[k]) for k in (0, 2, 4)]
            return _compare(context, builder, arrays, arguments[1], arguments[3])

        return types.int64(bounds, row, points, e, ones), generate

    @intrinsic
    def compare_rests(typing_context, bounds, rests, row, points, e, ones, closer):
        """The same by the rests and closer[e], of the fields alone that equal those of points[e]."""

        def generate(context, builder, signature, arguments):
            arrays = [(signature.args[k], arguments[k]) for k in (0, 3, 5, 1, 6)]
            return _compare(context, builder, arrays, arguments[2], arguments[4])

        return types.int64(bounds, rests, row, points, e, ones, closer), generate
