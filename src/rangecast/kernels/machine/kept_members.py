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


def _wide_moves() -> ir.Constant:
    """The same for members of 64 bits, by the halves of each."""
    rows = []
    for held in range(1 << TOGETHER):
        row = [2 * k + half for k in range(TOGETHER) if held >> k & 1 for half in range(2)]
        row += [0] * (2 * TOGETHER - len(row))
        rows.append(ir.Constant(ir.ArrayType(_LANE, len(row)), row))
    return ir.Constant(ir.ArrayType(rows[0].type, len(rows)), rows)


def can_use(feature: str) -> bool:
    """Whether what is compiled here may use instructions of a kind."""
    told = config.CPU_NAME or config.CPU_FEATURES  # type: ignore[attr-defined]
    return not told and bool(binding.get_host_cpu_features().get(feature))


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


def words_one_by_one(words, first, value, guard, mask, add, out, to):
    """As `keep_one_by_one`, for words that hold a bound and, in the bits of `mask`, the member itself.

    What is written is the member with `add` added.
    """
    n = np.uint64(0)
    for k in range(np.uint64(TOGETHER)):
        word = words[first + np.uint64(k)]
        out[to + n] = np.int64(word & mask) + add
        n += np.uint64(((value - word) & guard) == guard)
    return n


def _load_four(builder, data, first, bits):
    kind = ir.VectorType(ir.IntType(bits), TOGETHER)
    return builder.load(builder.bitcast(builder.gep(data, [first]), kind.as_pointer()), align=bits // 8)


def _four(builder, number):
    """A number four times."""
    none = ir.Constant(ir.VectorType(number.type, TOGETHER), ir.Undefined)
    same = ir.Constant(ir.VectorType(_LANE, TOGETHER), [0] * TOGETHER)
    return builder.shuffle_vector(builder.insert_element(none, number, _LANE(0)), none, same)


def module_table(builder, name, make, align):
    """A table of moves, once per module."""
    table = builder.module.globals.get(name)
    if table is None:
        constant = make()
        table = ir.GlobalVariable(builder.module, constant.type, name)
        table.linkage, table.global_constant, table.align = "internal", True, align
        table.initializer = constant
    return table


def count_set(builder, held):
    """How many a set has."""
    kind = ir.FunctionType(_WORD, [_WORD])
    return builder.call(builder.module.declare_intrinsic("llvm.ctpop", [_WORD], kind), [held])


def _write(builder, moved, out, to, align):
    builder.store(moved, builder.bitcast(builder.gep(out, [to]), moved.type.as_pointer()), align=align)


def _move(builder, members, first, held, out, to):
    """Write the members of a set of four; returns how many they are."""
    place = builder.bitcast(builder.gep(members, [first]), _MEMBERS.as_pointer())
    return _move_loaded(builder, builder.load(place, align=4), held, out, to)


def _move_loaded(builder, four, held, out, to):
    """The same of members that are in a register, of 32 bits each."""
    table = module_table(builder, "rangecast.moves", _moves, 16)
    row = builder.bitcast(builder.gep(table, [_WORD(0), held]), _MEMBERS.as_pointer())
    kind = ir.FunctionType(_MEMBERS, [_MEMBERS, _MEMBERS])
    shuffle = builder.module.declare_intrinsic("llvm.x86.ssse3.pshuf.b.128", (), kind)
    _write(builder, builder.call(shuffle, [four, builder.load(row, align=16)]), out, to, 4)
    return count_set(builder, held)


def _move_wide(builder, four, held, out, to):
    """The same, of 64 bits each."""
    halves = ir.VectorType(_LANE, 2 * TOGETHER)
    table = module_table(builder, "rangecast.wide_moves", _wide_moves, 32)
    row = builder.bitcast(builder.gep(table, [_WORD(0), held]), halves.as_pointer())
    kind = ir.FunctionType(halves, [halves, halves])
    permute = builder.module.declare_intrinsic("llvm.x86.avx2.permd", (), kind)
    moved = builder.call(permute, [builder.bitcast(four, halves), builder.load(row, align=32)])
    _write(builder, moved, out, to, 8)
    return count_set(builder, held)


def _held(builder, holds, among):
    """Answers of a comparison as a set, of which some count."""
    return builder.and_(builder.zext(builder.bitcast(holds, ir.IntType(TOGETHER)), _WORD), among)


if config.DISABLE_JIT or not can_use("ssse3"):  # type: ignore[attr-defined]
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


if config.DISABLE_JIT or not (can_use("avx2") and can_use("ssse3")):  # type: ignore[attr-defined]
    keep_words = inlined_kernel(words_one_by_one)

else:

    @intrinsic
    def keep_words(typing_context, words, first, value, guard, mask, add, out, to):
        """As `words_one_by_one`, all four at once, into 32 or 64 bits."""

        def generate(context, builder, signature, arguments):
            packed, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 6)
            )
            first, value, guard, mask, add, to = (arguments[k] for k in (1, 2, 3, 4, 5, 7))
            guards = _four(builder, guard)
            own = _load_four(builder, packed, first, 64)
            less = builder.sub(_four(builder, value), own)
            holds = builder.icmp_unsigned("==", builder.and_(less, guards), guards)
            held = builder.zext(builder.bitcast(holds, ir.IntType(TOGETHER)), _WORD)
            members = builder.add(builder.and_(own, _four(builder, mask)), _four(builder, add))
            if signature.args[6].dtype.bitwidth == 64:
                return _move_wide(builder, members, held, target, to)
            low = builder.trunc(members, ir.VectorType(_LANE, TOGETHER))
            return _move_loaded(builder, builder.bitcast(low, _MEMBERS), held, target, to)

        word = types.uint64
        return word(words, word, word, word, word, types.int64, out, word), generate
