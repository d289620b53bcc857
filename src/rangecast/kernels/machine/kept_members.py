"""Bounds compared four at a time, and the members that hold moved together in one register.

A loop that writes every member and moves on only past those that hold has no branch to guess, but takes each
member alone. Here four bounds are compared at once, the four answers choose one of sixteen ways to move four
members to the front, and one store writes them; what stands behind those that hold is written over by the
next. A list of twenty takes 15 ns instead of 24.

Moving by a table of places is an instruction of x86 (PSHUFB). On another processor, and where Numba was told
to compile for one (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES), four members are taken one after the other.
"""

from __future__ import annotations

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic

from rangecast.kernels import inlined_kernel

TOGETHER = 4
"""Members that are looked at together: `out` has room for as many behind the last that holds."""

_WORD = ir.IntType(64)
_BYTE = ir.IntType(8)
_LANE = ir.IntType(32)
_MEMBERS = ir.VectorType(_BYTE, 4 * TOGETHER)
_NOTHING = 0x80  # PSHUFB: a byte of zeros


def _moves() -> ir.Constant:
    """For each set of the four, the bytes of its members, the first ones first."""
    rows = []
    for held in range(1 << TOGETHER):
        row = [4 * k + byte for k in range(TOGETHER) if held >> k & 1 for byte in range(4)]
        row += [_NOTHING] * (4 * TOGETHER - len(row))
        rows.append(ir.Constant(ir.ArrayType(_BYTE, len(row)), row))
    return ir.Constant(ir.ArrayType(rows[0].type, len(rows)), rows)


def _moves_bytes() -> bool:
    """Whether what is compiled here may move bytes by a table."""
    told = config.CPU_NAME or config.CPU_FEATURES  # type: ignore[attr-defined]
    return not told and bool(binding.get_host_cpu_features().get("ssse3"))


def keep_one_by_one(members, bounds, first, among, value, guard, out, to):
    """Write those of the four members from `first` on that hold a value, from out[to] on.

    Bit k of `among` says whether the k-th of them counts. Returns how many hold; what is written behind them
    is nothing. All numbers are unsigned and of 64 bits.
    """
    n = np.uint64(0)
    one = np.uint64(1)
    for k in range(np.uint64(TOGETHER)):
        at = np.uint64(k)
        if (among >> at) & one:
            out[to + n] = members[first + at]
            n += np.uint64(((value - bounds[first + at]) & guard) == guard)
    return n


def reach_one_by_one(members, highs, first, among, value, out, to):
    """As `keep_one_by_one`, for members that hold a value where their high end is not below it."""
    n = np.uint64(0)
    one = np.uint64(1)
    for k in range(np.uint64(TOGETHER)):
        at = np.uint64(k)
        if (among >> at) & one:
            out[to + n] = members[first + at]
            n += np.uint64(highs[first + at] >= value)
    return n


def _load_four(builder, data, first, bits):
    kind = ir.VectorType(ir.IntType(bits), TOGETHER)
    return builder.load(builder.bitcast(builder.gep(data, [first]), kind.as_pointer()), align=bits // 8)


def _four(builder, number):
    """A number four times."""
    none = ir.Constant(ir.VectorType(number.type, TOGETHER), ir.Undefined)
    same = ir.Constant(ir.VectorType(_LANE, TOGETHER), [0] * TOGETHER)
    return builder.shuffle_vector(builder.insert_element(none, number, _LANE(0)), none, same)


def _move(builder, members, first, held, out, to):
    """Write the members of a set of four; returns how many they are."""
    module = builder.module
    table = module.globals.get("rangecast.moves")
    if table is None:
        constant = _moves()
        table = ir.GlobalVariable(module, constant.type, "rangecast.moves")
        table.linkage, table.global_constant, table.align = "internal", True, 16
        table.initializer = constant
    row = builder.bitcast(builder.gep(table, [_WORD(0), held]), _MEMBERS.as_pointer())
    place = builder.bitcast(builder.gep(members, [first]), _MEMBERS.as_pointer())
    kind = ir.FunctionType(_MEMBERS, [_MEMBERS, _MEMBERS])
    shuffle = module.declare_intrinsic("llvm.x86.ssse3.pshuf.b.128", (), kind)
    moved = builder.call(shuffle, [builder.load(place, align=4), builder.load(row, align=16)])
    builder.store(moved, builder.bitcast(builder.gep(out, [to]), _MEMBERS.as_pointer()), align=4)
    count = module.declare_intrinsic("llvm.ctpop", [_WORD], ir.FunctionType(_WORD, [_WORD]))
    return builder.call(count, [held])


def _held(builder, holds, among):
    """Answers of a comparison as a set, of which some count."""
    return builder.and_(builder.zext(builder.bitcast(holds, ir.IntType(TOGETHER)), _WORD), among)


if config.DISABLE_JIT or not _moves_bytes():  # type: ignore[attr-defined]
    keep_members = inlined_kernel(keep_one_by_one)
    keep_reaching = inlined_kernel(reach_one_by_one)

else:

    @intrinsic
    def keep_members(typing_context, members, bounds, first, among, value, guard, out, to):
        """As `keep_one_by_one`, all four at once: they are read, and four places written, whatever counts."""

        def generate(context, builder, signature, arguments):
            sources, packed, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1, 6)
            )
            first, among, value, guard, to = (arguments[k] for k in (2, 3, 4, 5, 7))
            guards = _four(builder, guard)
            less = builder.sub(_four(builder, value), _load_four(builder, packed, first, 64))
            holds = builder.icmp_unsigned("==", builder.and_(less, guards), guards)
            return _move(builder, sources, first, _held(builder, holds, among), target, to)

        word = types.uint64
        return word(members, bounds, word, word, word, word, out, word), generate

    @intrinsic
    def keep_reaching(typing_context, members, highs, first, among, value, out, to):
        """As `reach_one_by_one`, all four at once; ends and value are unsigned, of 32 or of 64 bits."""

        def generate(context, builder, signature, arguments):
            sources, ends, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1, 5)
            )
            first, among, value, to = (arguments[k] for k in (2, 3, 4, 6))
            own = _load_four(builder, ends, first, value.type.width)
            holds = builder.icmp_unsigned(">=", own, _four(builder, value))
            return _move(builder, sources, first, _held(builder, holds, among), target, to)

        word = types.uint64
        return word(members, highs, word, word, highs.dtype, out, word), generate
