"""Bounds compared four at a time, and the members that hold moved together in one register.

A loop that writes every member and moves on only past those that hold has no branch to guess, but takes each
member alone. Here four bounds are compared at once, the four answers choose one of sixteen ways to move four
members to the front, and one store writes them; what stands behind those that hold is written over by the
next. A list of twenty takes 15 ns instead of 24.

Where the processor has AVX2, eight members of 32 bits are moved alike, by one of 256 ways: three quarters of
the time of four in slices of some ten members to a hundred.

Where it has AVX-512, eight members of either width are moved by one instruction (VPCOMPRESS), and
eight words of a list by value are compared at once. On a Zen 4 that takes 0.88 of the time of a batch on
`equality-led`, 0.86 to 0.93 on `predicates-16`, and 0.96 of either where caches were emptied before.

Moving by a table of places is an instruction of x86 (PSHUFB). On another processor, and where Numba was told
to compile for one (NUMBA_CPU_NAME) but not that it has such instructions (NUMBA_CPU_FEATURES), four members
are taken one after the other.
"""

from __future__ import annotations

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from rangecast.simd.compiler import inlined_kernel

TOGETHER = 4
"""Members that are looked at together: `out` has room for as many behind the last that holds."""

EIGHT = 8
"""The same, where eight are looked at together."""

MOST_TOGETHER = EIGHT
"""Room that is needed behind the last member that holds, on any processor."""

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


def _eight_moves() -> ir.Constant:
    """For each set of the eight, its members, the first ones first."""
    rows = []
    for held in range(1 << EIGHT):
        row = [k for k in range(EIGHT) if held >> k & 1]
        rows.append(ir.Constant(ir.ArrayType(_LANE, EIGHT), row + [0] * (EIGHT - len(row))))
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
    told = config.CPU_FEATURES  # type: ignore[attr-defined]
    if told or config.CPU_NAME:  # type: ignore[attr-defined]
        return f"+{feature}" in (told or "").split(",")
    return bool(binding.get_host_cpu_features().get(feature))


WIDE = not config.DISABLE_JIT and can_use("avx512f") and can_use("avx512vl")  # type: ignore[attr-defined]
"""Whether eight members are moved by one instruction."""

WORDS_AT_ONCE = EIGHT if WIDE else TOGETHER
"""Words of a list that `keep_words` looks at."""


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


def eight_one_by_one(members, lows, highs, first, left, value, out, to):
    """Write those of the members from `first` on, of eight or as many as are left, whose ends hold a value,
    from out[to] on. Returns how many hold; what is written behind them is nothing."""
    n = np.uint64(0)
    for k in range(min(left, np.uint64(EIGHT))):
        at = first + np.uint64(k)
        out[to + n] = members[at]
        n += np.uint64((lows[at] <= value) & (highs[at] >= value))
    return n


def reach_eight_one_by_one(members, highs, first, left, value, out, to):
    """As `eight_one_by_one`, of members that hold a value where their high end is not below it."""
    n = np.uint64(0)
    for k in range(min(left, np.uint64(EIGHT))):
        at = first + np.uint64(k)
        out[to + n] = members[at]
        n += np.uint64(highs[at] >= value)
    return n


def copy_one_by_one(source, first, out, to):
    """Copy eight entries."""
    for k in range(np.uint64(EIGHT)):
        out[to + np.uint64(k)] = source[first + np.uint64(k)]


def words_one_by_one(words, first, left, value, guard, mask, add, out, to):
    """As `keep_one_by_one`, for WORDS_AT_ONCE words that hold a bound and, in the bits of `mask`, the member
    itself; or for as many as are left, a multiple of four. Where none is, the answer means nothing.

    What is written is the member with `add` added.
    """
    n = np.uint64(0)
    for k in range(min(left, np.uint64(WORDS_AT_ONCE))):
        word = words[first + np.uint64(k)]
        out[to + n] = np.int64(word & mask) + add
        n += np.uint64(((value - word) & guard) == guard)
    return n


def hold_one_by_one(bounds, first, stride, values, guards):
    """A bit for each of the members of a row that holds an event, of which all guards are left.

    The k-th member has the words bounds[first + k], bounds[first + k + stride] and so on, one for each of the
    event's, which have their guards set. All numbers are unsigned and of 64 bits.
    """
    held = np.uint64(0)
    for k in range(np.uint64(EIGHT)):
        missed = np.uint64(0)
        for w in range(np.uint64(values.size)):
            word = bounds[first + np.uint64(k) + np.uint64(w) * stride]
            # one that is larger is what lies behind a list, of which nobody wants to know
            missed |= ~(values[w] - min(word, values[w])) & guards[w]
        held |= np.uint64(missed == 0) << np.uint64(k)
    return held


def put_one_by_one(members, first, held, out, to):
    """Write the members of a row that a set has, those from `first` on, from out[to] on.

    Returns how many they are; what is written behind them is nothing.
    """
    n = np.uint64(0)
    one = np.uint64(1)
    for k in range(np.uint64(EIGHT)):
        if (held >> np.uint64(k)) & one:
            out[to + n] = members[first + np.uint64(k)]
            n += one
    return n


def _load_four(builder, data, first, bits, n=TOGETHER):
    kind = ir.VectorType(ir.IntType(bits), n)
    return builder.load(builder.bitcast(builder.gep(data, [first]), kind.as_pointer()), align=bits // 8)


def _four(builder, number, n=TOGETHER):
    """A number four times, or so many."""
    none = ir.Constant(ir.VectorType(number.type, n), ir.Undefined)
    same = ir.Constant(ir.VectorType(_LANE, n), [0] * n)
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


def _compress(builder, eight, held, out, to, align):
    """Write the members of a set of eight, of either width; returns how many they are."""
    mask = builder.bitcast(builder.trunc(held, _BYTE), ir.VectorType(ir.IntType(1), EIGHT))
    kind = ir.FunctionType(eight.type, [eight.type, eight.type, mask.type])
    name = f"llvm.x86.avx512.mask.compress.v{EIGHT}i{eight.type.element.width}"
    compress = cgutils.get_or_insert_function(builder.module, kind, name)
    nothing = ir.Constant(eight.type, [0] * EIGHT)
    _write(builder, builder.call(compress, [eight, nothing, mask]), out, to, align)
    return count_set(builder, held)


def _held(builder, holds, among):
    """Answers of a comparison as a set, of which some count."""
    return builder.and_(builder.zext(builder.bitcast(holds, ir.IntType(TOGETHER)), _WORD), among)


if config.DISABLE_JIT or not can_use("ssse3"):  # type: ignore[attr-defined]
    keep_members = inlined_kernel(keep_one_by_one)
    keep_reaching = inlined_kernel(reach_one_by_one)
    hold_row = inlined_kernel(hold_one_by_one)
    put_row = inlined_kernel(put_one_by_one)

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

    @intrinsic
    def hold_row(typing_context, bounds, first, stride, values, guards):
        """As `hold_one_by_one`, four members at a time."""

        def generate(context, builder, signature, arguments):
            packed, own, guard = (
                context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 3, 4)
            )
            _, first, stride, _, _ = arguments
            n = WORDS_AT_ONCE
            some = ir.VectorType(_WORD, n)
            none, every = ir.Constant(some, [0] * n), ir.Constant(some, [-1] * n)
            pieces = [cgutils.alloca_once_value(builder, none) for _ in range(0, EIGHT, n)]
            at = cgutils.alloca_once_value(builder, first)
            with cgutils.for_range(builder, own.nitems) as loop:
                value = _four(builder, builder.load(builder.gep(own.data, [loop.index])), n)
                guards = _four(builder, builder.load(builder.gep(guard.data, [loop.index])), n)
                place = builder.load(at)
                for k, missed in enumerate(pieces):
                    words = _load_four(builder, packed.data, builder.add(place, _WORD(n * k)), 64, n)
                    here = builder.and_(builder.xor(builder.sub(value, words), every), guards)
                    builder.store(builder.or_(builder.load(missed), here), missed)
                builder.store(builder.add(place, stride), at)
            held = _WORD(0)
            for k, missed in enumerate(pieces):
                holds = builder.icmp_unsigned("==", builder.load(missed), none)
                own_bits = builder.zext(builder.bitcast(holds, ir.IntType(n)), _WORD)
                held = builder.or_(held, builder.shl(own_bits, _WORD(n * k)))
            return held

        word = types.uint64
        return word(bounds, word, word, values, guards), generate

    @intrinsic
    def put_row(typing_context, members, first, held, out, to):
        """As `put_one_by_one`, four members at a time: all of a row are read, and as many places written."""

        def generate(context, builder, signature, arguments):
            sources, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 3)
            )
            _, first, held, _, to = arguments
            if WIDE:
                return _compress(builder, _load_four(builder, sources, first, 32, EIGHT), held, target, to, 4)
            n = _WORD(0)
            for k in range(0, EIGHT, TOGETHER):
                four = builder.and_(builder.lshr(held, _WORD(k)), _WORD((1 << TOGETHER) - 1))
                place = builder.add(to, n)
                n = builder.add(n, _move(builder, sources, builder.add(first, _WORD(k)), four, target, place))
            return n

        word = types.uint64
        return word(members, word, word, out, word), generate


def _load_left(builder, data, first, left):
    """Eight words, and which of them count: where four are left, these stand there twice, since what follows
    may be behind the array."""
    more = builder.icmp_unsigned(">", left, _WORD(TOGETHER))
    behind = builder.add(first, builder.select(more, _WORD(TOGETHER), _WORD(0)))
    fours = [_load_four(builder, data, place, 64) for place in (first, behind)]
    order = ir.Constant(ir.VectorType(_LANE, EIGHT), list(range(EIGHT)))
    among = builder.select(more, _WORD((1 << EIGHT) - 1), _WORD((1 << TOGETHER) - 1))
    return builder.shuffle_vector(*fours, order), among


def _move_eight(builder, members, first, left, holds, out, to):
    """Write those of eight members that hold and count; returns how many they are."""
    most = builder.select(builder.icmp_unsigned("<", left, _WORD(EIGHT)), left, _WORD(EIGHT))
    among = builder.sub(builder.shl(_WORD(1), most), _WORD(1))
    held = builder.and_(builder.zext(builder.bitcast(holds, ir.IntType(EIGHT)), _WORD), among)
    if WIDE:
        return _compress(builder, _load_four(builder, members, first, 32, EIGHT), held, out, to, 4)
    lanes = ir.VectorType(_LANE, EIGHT)
    table = module_table(builder, "rangecast.eight_moves", _eight_moves, 32)
    row = builder.bitcast(builder.gep(table, [_WORD(0), held]), lanes.as_pointer())
    permute = builder.module.declare_intrinsic(
        "llvm.x86.avx2.permd", (), ir.FunctionType(lanes, [lanes, lanes])
    )
    own = _load_four(builder, members, first, 32, EIGHT)
    _write(builder, builder.call(permute, [own, builder.load(row, align=32)]), out, to, 4)
    return count_set(builder, held)


if config.DISABLE_JIT or not (can_use("avx2") and can_use("ssse3")):  # type: ignore[attr-defined]
    keep_words = inlined_kernel(words_one_by_one)
    keep_eight = inlined_kernel(eight_one_by_one)
    keep_eight_reaching = inlined_kernel(reach_eight_one_by_one)
    copy_eight = inlined_kernel(copy_one_by_one)

else:

    @intrinsic
    def keep_words(typing_context, words, first, left, value, guard, mask, add, out, to):
        """As `words_one_by_one`, all four or eight at once, into 32 or 64 bits."""

        def generate(context, builder, signature, arguments):
            packed, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 7)
            )
            first, left, value, guard, mask, add, to = (arguments[k] for k in (1, 2, 3, 4, 5, 6, 8))
            n, of_64_bits = WORDS_AT_ONCE, signature.args[7].dtype.bitwidth == 64
            guards = _four(builder, guard, n)
            if WIDE:
                own, among = _load_left(builder, packed, first, left)
            else:
                own, among = _load_four(builder, packed, first, 64), _WORD((1 << TOGETHER) - 1)
            less = builder.sub(_four(builder, value, n), own)
            holds = builder.icmp_unsigned("==", builder.and_(less, guards), guards)
            held = builder.and_(builder.zext(builder.bitcast(holds, ir.IntType(n)), _WORD), among)
            members = builder.add(builder.and_(own, _four(builder, mask, n)), _four(builder, add, n))
            if not of_64_bits:
                members = builder.trunc(members, ir.VectorType(_LANE, n))
            if WIDE:
                return _compress(builder, members, held, target, to, 8 if of_64_bits else 4)
            if of_64_bits:
                return _move_wide(builder, members, held, target, to)
            return _move_loaded(builder, builder.bitcast(members, _MEMBERS), held, target, to)

        word = types.uint64
        return word(words, word, word, word, word, word, types.int64, out, word), generate

    @intrinsic
    def keep_eight(typing_context, members, lows, highs, first, left, value, out, to):
        """As `eight_one_by_one`, at once: eight are read, and eight places written, whatever counts."""

        def generate(context, builder, signature, arguments):
            sources, begins, ends, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data
                for k in (0, 1, 2, 6)
            )
            first, left, value, to = (arguments[k] for k in (3, 4, 5, 7))
            bits, values = value.type.width, _four(builder, value, EIGHT)
            begun = builder.icmp_unsigned("<=", _load_four(builder, begins, first, bits, EIGHT), values)
            lasts = builder.icmp_unsigned(">=", _load_four(builder, ends, first, bits, EIGHT), values)
            return _move_eight(builder, sources, first, left, builder.and_(begun, lasts), target, to)

        word = types.uint64
        return word(members, lows, highs, word, word, highs.dtype, out, word), generate

    @intrinsic
    def keep_eight_reaching(typing_context, members, highs, first, left, value, out, to):
        """As `reach_eight_one_by_one`, at once."""

        def generate(context, builder, signature, arguments):
            sources, ends, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1, 5)
            )
            first, left, value, to = (arguments[k] for k in (2, 3, 4, 6))
            own = _load_four(builder, ends, first, value.type.width, EIGHT)
            lasts = builder.icmp_unsigned(">=", own, _four(builder, value, EIGHT))
            return _move_eight(builder, sources, first, left, lasts, target, to)

        word = types.uint64
        return word(members, highs, word, word, highs.dtype, out, word), generate

    @intrinsic
    def copy_eight(typing_context, source, first, out, to):
        """As `copy_one_by_one`, at once, of 32 bits each."""

        def generate(context, builder, signature, arguments):
            sources, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 2)
            )
            own = _load_four(builder, sources, arguments[1], 32, EIGHT)
            _write(builder, own, target, arguments[3], 4)
            return context.get_dummy_value()

        return types.void(source, types.uint64, out, types.uint64), generate


# Entries of eight at a time: which of them hold a point, and writing those, moved together in one register.
#
# The bounds of an entry are four bytes, and those of a point are too: a bound holds where none of its bytes
# is above that of the point. Eight bounds are one register of 32 bytes, so one subtraction that stops at zero
# and one comparison tell of all eight. The answers choose one of 256 ways to move eight entries to the front,
# and what stands behind those that hold is written over by the next. A list of 620 entries, of which 170
# hold, takes 0.26 us instead of 0.79 by a loop without a branch; 0.62 with the moves of the table done one
# after the other, 0.84 by LLVM's own `vector.compress`, and 1.02 by going from one answer that holds to the
# next.
#
# Moving eight by a table is an instruction of x86 (VPERMD, AVX2). On another processor, and where Numba was
# told to compile for one, entries are taken one after the other.

"""Entries that are looked at together: as many are read behind the last, and `out` has as much room."""

_LANES = ir.VectorType(_LANE, EIGHT)
_BYTES = ir.VectorType(_BYTE, 4 * EIGHT)


def hold_entries_one_by_one(words, first, point):
    """Which of the eight bounds from `first` on hold a point, as a set of bits."""
    held = np.uint64(0)
    for k in range(EIGHT):
        bounds = words[first + np.uint64(k)]
        holds = True
        for byte in range(4):
            down = np.uint32(8 * byte)
            holds &= ((bounds >> down) & np.uint32(255)) <= ((point >> down) & np.uint32(255))
        held |= np.uint64(holds) << np.uint64(k)
    return held


def move_one_by_one(words, first, held, add, out, to):
    """Write those of the eight entries from `first` on that are in a set, with `add` added, from out[to] on;
    returns how many they are. What is written behind them is nothing."""
    n = np.uint64(0)
    for k in range(EIGHT):
        if (held >> np.uint64(k)) & np.uint64(1):
            out[to + n] = np.int64(words[first + np.uint64(k)]) + add
            n += np.uint64(1)
    return n


def _entry_moves() -> ir.Constant:
    """For each set of the eight, the places of its entries, the first ones first."""
    rows = []
    for held in range(1 << EIGHT):
        row = [k for k in range(EIGHT) if held >> k & 1]
        rows.append(ir.Constant(ir.ArrayType(_BYTE, EIGHT), row + [0] * (EIGHT - len(row))))
    return ir.Constant(ir.ArrayType(rows[0].type, len(rows)), rows)


def _times_eight(builder, number):
    """A number eight times."""
    none = ir.Constant(ir.VectorType(number.type, EIGHT), ir.Undefined)
    return builder.shuffle_vector(
        builder.insert_element(none, number, _LANE(0)), none, ir.Constant(_LANES, [0] * EIGHT)
    )


if config.DISABLE_JIT or not can_use("avx2"):  # type: ignore[attr-defined]
    which_hold = inlined_kernel(hold_entries_one_by_one)
    move_entries = inlined_kernel(move_one_by_one)

else:

    @intrinsic
    def which_hold(typing_context, words, first, point):
        """As `hold_entries_one_by_one`, all eight at once."""

        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.bitcast(builder.gep(data, [arguments[1]]), _BYTES.as_pointer())
            bounds = builder.load(place, align=4)
            point = builder.bitcast(_times_eight(builder, arguments[2]), _BYTES)
            kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES])
            less = builder.module.declare_intrinsic("llvm.usub.sat.v32i8", (), kind)
            beyond = builder.bitcast(builder.call(less, [bounds, point]), _LANES)
            holds = builder.icmp_unsigned("==", beyond, ir.Constant(_LANES, [0] * EIGHT))
            return builder.zext(builder.bitcast(holds, _BYTE), _WORD)

        return types.uint64(words, types.uint64, types.uint32), generate

    @intrinsic
    def move_entries(typing_context, words, first, held, add, out, to):
        """As `move_one_by_one`, all eight at once, into 32 or 64 bits: eight places are written."""

        def generate(context, builder, signature, arguments):
            source, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 4)
            )
            first, held, add, to = (arguments[k] for k in (1, 2, 3, 5))
            place = builder.bitcast(builder.gep(source, [first]), _LANES.as_pointer())
            table = module_table(builder, "rangecast.moves_of_eight", _entry_moves, EIGHT)
            few = ir.VectorType(_BYTE, EIGHT)
            row = builder.bitcast(builder.gep(table, [_WORD(0), held]), few.as_pointer())
            places = builder.zext(builder.load(row, align=EIGHT), _LANES)
            kind = ir.FunctionType(_LANES, [_LANES, _LANES])
            permute = builder.module.declare_intrinsic("llvm.x86.avx2.permd", (), kind)
            moved = builder.call(permute, [builder.load(place, align=4), places])
            width = signature.args[4].dtype.bitwidth
            if width == _WORD.width:
                moved = builder.zext(moved, ir.VectorType(_WORD, EIGHT))
            else:
                add = builder.trunc(add, _LANE)
            moved = builder.add(moved, _times_eight(builder, add))
            place = builder.bitcast(builder.gep(target, [to]), moved.type.as_pointer())
            builder.store(moved, place, align=width // 8)
            return count_set(builder, held)

        word = types.uint64
        return word(words, word, word, types.int64, out, word), generate


# Bitsets of WORDS words, ANDed in registers.
#
# A loop over rows that keeps what is left in an array loads and stores it once per row, and Numba makes no
# vectors of 32 words of its own accord. Here they are one value of the intermediate language, which
# becomes as many registers as the processor needs: four where they have 512 bits.

WORDS = 32
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
