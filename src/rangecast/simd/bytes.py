"""Rows of bytes, compared in registers: whether any field of a box exceeds that of an event.

Numba makes three loops of one over bytes whose length it does not know, and the last goes byte by byte. Here
a row is two vectors of 16 bytes, or of 32, or as many of these as it takes; the last one overlaps the one
before, or is the same once more. Comparing gives a mask, which is one test; where fields were subtracted and
what exceeds added up, a batch of REIN's workload took 1.05 to 1.1 times as long.
"""

from __future__ import annotations

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

SHORTEST = 16
"""Bytes of a row, at least; a row has a multiple of 8."""
WIDEST = 64
"""Bytes of a row that `compare_word` takes, at most."""
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

    def compare_word(bounds, first, left, points, e, ones, p, out, d, doubtful):
        """Compare the rows first + b with points[e], for each bit b of `left`: those that hold are written
        to `out` from the place p on, those that may to `doubtful` from d on, each below the event; returns
        the places behind them."""
        for b in range(64):
            if int(left) >> b & 1:
                row = int(first) + b
                held = compare_fields(bounds, row, points, e, ones)
                if held == 2:
                    out[p] = int(e) << 32 | row
                    p += 1
                elif held == 1:
                    doubtful[d] = int(e) << 32 | row
                    d += 1
        return p, d

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
            kind, whole = ir.VectorType(_BYTE, size), ir.IntType(size)
            none = kind([_BYTE(0)] * size)

            def read(array, place):
                place = builder.bitcast(builder.gep(array.data, [place]), kind.as_pointer())
                return builder.load(place, align=1)

            # slots on the stack that become registers: which fields exceed the values, and those less ones
            beyond = [cgutils.alloca_once_value(builder, whole(0)) for _ in range(2)]
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
                    more = builder.bitcast(builder.icmp_unsigned(">", field, values), whole)
                    builder.store(builder.or_(builder.load(kept), more), kept)

            if looped:
                with cgutils.for_range_slice(builder, _WORD(0), width, _WORD(size)) as (k, _):
                    add_up(builder.select(builder.icmp_signed("<", k, last), k, last))
            else:
                add_up(_WORD(0))
                add_up(last)
            held = [builder.icmp_unsigned("==", builder.load(kept), whole(0)) for kept in beyond]
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

    @intrinsic
    def compare_word(typing_context, bounds, first, left, points, e, ones, p, out, d, doubtful):
        """Compare the rows first + b with points[e], for each bit b of `left`: those that hold are written
        to `out` from the place p on, those that may to `doubtful` from d on, each below the event; returns
        the places behind them. A row has WIDEST bytes at most."""
        result = types.UniTuple(types.int64, 2)

        def generate(context, builder, signature, arguments):
            bounds, points, ones, out, doubtful = (
                context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 3, 5, 7, 9)
            )
            first, e = arguments[1], arguments[4]
            width = cgutils.unpack_tuple(builder, bounds.shape, 2)[1]
            rest = cgutils.alloca_once_value(builder, arguments[2])
            places = [cgutils.alloca_once_value(builder, arguments[k]) for k in (6, 8)]
            event = builder.shl(e, _WORD(32))

            def compare_by(size):
                kind, whole = ir.VectorType(_BYTE, size), ir.IntType(size)

                def read(array, place):
                    place = builder.bitcast(builder.gep(array.data, [place]), kind.as_pointer())
                    return builder.load(place, align=1)

                # the event's fields stay in registers, which is why the loop is in here
                parts = (_WORD(0), builder.sub(width, _WORD(size)))
                own = builder.mul(e, width)
                values = [read(points, builder.add(own, part)) for part in parts]
                surely = [
                    builder.sub(value, read(ones, part)) for value, part in zip(values, parts, strict=True)
                ]
                with cgutils.for_range(builder, builder.ctpop(arguments[2])):
                    word = builder.load(rest)
                    builder.store(builder.and_(word, builder.sub(word, _WORD(1))), rest)
                    row = builder.add(first, builder.cttz(word, ir.IntType(1)(1)))
                    at = builder.mul(row, width)
                    fields = [read(bounds, builder.add(at, part)) for part in parts]
                    held, sure = (
                        builder.icmp_unsigned(
                            "==",
                            builder.or_(
                                *(
                                    builder.bitcast(builder.icmp_unsigned(">", field, value), whole)
                                    for field, value in zip(fields, limits, strict=True)
                                )
                            ),
                            whole(0),
                        )
                        for limits in (values, surely)
                    )
                    pair = builder.or_(event, row)
                    for slot, array, more in zip(
                        places, (out, doubtful), (sure, builder.xor(held, sure)), strict=True
                    ):
                        place = builder.load(slot)
                        builder.store(pair, builder.gep(array.data, [place]))
                        builder.store(builder.add(place, builder.zext(more, _WORD)), slot)

            with builder.if_else(builder.icmp_signed("<=", width, _WORD(32))) as (then, otherwise):
                with then:
                    compare_by(16)
                with otherwise:
                    compare_by(32)
            return context.make_tuple(builder, result, [builder.load(slot) for slot in places])

        return result(bounds, first, left, points, e, ones, p, out, d, doubtful), generate
