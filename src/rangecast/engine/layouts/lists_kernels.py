"""Lists by value whose boxes are one word each: bounds above, the box itself below."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.packed_kernels import hinted_cell
from rangecast.kernels.machine.views import view, view_rows
from rangecast.kernels.model.ids import hash_integer
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import MOST_TOGETHER, TOGETHER, WORDS_AT_ONCE, keep_words
from rangecast.simd.memory import prefetch, prefetch_near, prefetch_to_write, read_alone, scratch

# found and packed together; the ring has the lists of those at hand and of the next ones
_BLOCK = 128
_RING = 2 * _BLOCK
_NEXT = 16
ROWS = 9
"""Rows of the table of views that `stab_few` takes."""
_LINES = 16
_FIRST_LINES = 3
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_MISSING = np.iinfo(np.int64).min
_FOUR = np.uint64(TOGETHER)
_AT_ONCE = np.uint64(WORDS_AT_ONCE)
_LINE = np.uint64(8)
# ids of the answer whose line is asked for before they are written
_AHEAD = 128


class WordLists(NamedTuple):
    """Lists by value of attribute `on`; engine/word_lists.py tells what the arrays are."""

    on: int
    dense: bool
    member_bits: int
    values: npt.NDArray[np.int64]
    table: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint64]
    ends: npt.NDArray[np.int64]


class WordFields(NamedTuple):
    """What a comparison of words needs to know: the bits of the box, the guards, and per packed attribute
    where the field of its low end begins and which bits it has, none where there is none, the same of its
    high end, and the top of both."""

    mask: np.uint64
    guards: np.uint64
    places: npt.NDArray[np.uint64]


@inlined_kernel
def _find(code, lists):
    """The list of a code, -1 where it has none."""
    table = lists.table
    values = lists.values
    if lists.dense:
        if values.size and code >= values[0] and code <= values[0] + (table.size - 1):
            return np.int64(table[np.uint64(code - values[0])])
        return np.int64(-1)
    mask = np.uint64(table.size - 1)
    p = hash_integer(code) & mask
    k = np.int64(table[p])
    while k >= 0 and values[k] != code:
        p = (p + _ONE) & mask
        k = np.int64(table[p])
    return k


@kernel
def _find_block(own, lists, firsts, lasts):
    """Where the lists of some codes begin and end among the words; returns how many words they have."""
    starts = lists.starts
    values = lists.values
    total = _NONE
    n = np.uint64(own.size)
    if lists.dense and values.size:
        # without a branch, for nobody guesses which codes have a list
        table = lists.table
        least = values[0]
        span = np.uint64(table.size)
        full = table.size == values.size
        for k in range(n):
            at = np.uint64(own[k] - least)
            inside = at < span
            at = at if inside else _NONE
            if not full:
                found = np.int64(table[at])
                inside &= found >= 0
                at = np.uint64(max(found, np.int64(0)))
            first = np.uint64(starts[at]) * _FOUR
            last = np.uint64(starts[at + _ONE]) * _FOUR
            last = last if inside else first
            firsts[k] = first
            lasts[k] = last
            total += last - first
        return np.int64(total)
    for k in range(n):
        found = _find(own[k], lists)
        firsts[k] = _NONE
        lasts[k] = _NONE
        if found >= 0:
            firsts[k] = np.uint64(starts[np.uint64(found)]) * _FOUR
            lasts[k] = np.uint64(starts[np.uint64(found + 1)]) * _FOUR
            total += lasts[k] - firsts[k]
    return np.int64(total)


@kernel
def _add_counted(values, origin, above, n_cells, place, out):
    """The fields of codes in cells of one code each from `origin` to before `above`, without a branch."""
    low_at, low_bits, high_at, high_bits, top = place[0], place[1], place[2], place[3], place[4]
    before = origin - 3
    for k in range(values.size):
        v = values[k]
        c = v - before
        c = np.int64(2) if v < origin else c
        c = n_cells if v >= above else c
        c = np.int64(1) if v == _MISSING else c
        cell = np.uint64(c)
        out[k] |= (cell << low_at & low_bits) | ((top - cell) << high_at & high_bits)


@kernel
def _add_hinted(values, own, hints, first, last, down, start, place, out):
    """The same in a grid that is cut anywhere, where hints leave one cut to compare with.

    Its first cut of a value is the third, and `first`; the last one is `last`.
    """
    low_at, low_bits, high_at, high_bits, top = place[0], place[1], place[2], place[3], place[4]
    down = np.uint64(down)
    n = np.uint64(values.size)
    nears = scratch(_BLOCK, np.int64)
    cells = scratch(_BLOCK, np.uint64)
    # what looks nothing up is computed for several codes at once, which takes loops of its own: 1.4 instead
    # of 3.0 ns per code; what does is read code by code, for with gathers it takes 7
    for k in range(n):
        near = min(max(values[k], first), last)
        nears[k] = near
        cells[k] = np.uint64(near - first) >> down
    lowest = hints[start:]
    for k in range(n):
        low = np.uint64(read_alone(lowest, cells[k])) + _ONE
        cells[k] = low + np.uint64(read_alone(own, low) <= nears[k])
    for k in range(n):
        v = values[k]
        cell = cells[k]
        cell = np.uint64(2) if v < first else cell
        cell = _ONE if v == _MISSING else cell
        out[k] |= (cell << low_at & low_bits) | ((top - cell) << high_at & high_bits)


@kernel
def _add_searched(values, own, origin, shift, hints, hint, least, scale, place, out):
    """The same in any grid."""
    low_at, low_bits, high_at, high_bits, top = place[0], place[1], place[2], place[3], place[4]
    first, last, down, start, most = hint[0], hint[1], hint[2], hint[3], hint[4]
    for k in range(values.size):
        cell = np.uint64(
            hinted_cell(values[k], own, origin, shift, hints, first, last, down, start, most, least, scale)
        )
        out[k] |= (cell << low_at & low_bits) | ((top - cell) << high_at & high_bits)


@kernel
def _pack_block(codes, first, last, some, fields, packing, out):
    """The words of some events: guards set, and all bits of the box, so that nothing is borrowed.

    They are those from the first to before the last, or the ones in `some`, if it has any.
    """
    gathered = scratch(_BLOCK, np.int64)
    attributes = view(packing[1], np.int64)
    spans = view_rows(packing[2], np.int64)
    cuts = view(packing[3], np.int64)
    cut_starts = view(packing[4], np.int64)
    origins = view(packing[5], np.int64)
    shifts = view(packing[6], np.int64)
    hints = view(packing[7], np.int32)
    hint_at = view_rows(packing[8], np.int64)
    scales = view_rows(packing[9], np.float64)
    for k in range(np.uint64(out.size)):
        out[k] = fields.mask | fields.guards
    for i in range(attributes.size):
        values = codes[attributes[i], first:last]
        if some.size:
            all_values = codes[attributes[i]]
            values = gathered[: some.size]
            for k in range(np.uint64(some.size)):
                values[k] = all_values[some[k]]
        place = fields.places[i]
        own = cuts[cut_starts[i] : cut_starts[i + 1]]
        origin = origins[i]
        shift = shifts[i]
        hint = hint_at[i]
        if i < spans.shape[0]:
            span = spans[i, 1] - spans[i, 0]
            _add_counted(values, spans[i, 0], spans[i, 1] + 1, span + 4, place, out)
        elif shift == 0:
            _add_counted(values, origin, own[own.size - 1], own.size, place, out)
        elif shift < 0 and hint[2] >= 0 and hint[4] <= 1 and scales[i, 1] == 0:
            _add_hinted(values, own, hints, hint[0], hint[1], hint[2], hint[3], place, out)
        else:
            _add_searched(values, own, origin, shift, hints, hint, scales[i, 0], scales[i, 1], place, out)


@kernel
def _compare_block(
    words, lines, begin, end, firsts, lasts, ring, fields, add, beside_offsets, beside, offsets, out, to
):
    """Emit what holds each event of a block, and what another part found of it; returns where `out` ends.

    A function of its own: within the one that finds and packs, registers run out, and the place of the next
    id is read from memory and written back with every four words.
    """
    around = np.uint64(_RING - 1)
    guards = fields.guards
    mask = fields.mask
    more = beside.size > 0
    for k in range(begin, end):
        near = np.uint64(k + _NEXT) & around
        first = firsts[near]
        prefetch_near(words, first)
        if lines > _ONE:
            prefetch_near(words, first + _LINE)
            prefetch_near(words, first + _LINE + _LINE)
        for q in range(np.uint64(_FIRST_LINES), lines):
            prefetch_near(words, first + q * _LINE)
        # lists begin anywhere in a line, so they have one more than their length tells
        prefetch_near(words, lasts[near] - _ONE)
        prefetch_to_write(out, to + np.uint64(_AHEAD))
        at = np.uint64(k) & around
        value = ring[at]
        last = lasts[at]
        q = firsts[at]
        # the first four without a branch: in a small part it is anybody's guess which events have a list
        n = keep_words(words, q, last - q, value, guards, mask, add, out, to)
        to += n if q < last else _NONE
        q += _AT_ONCE
        # two fours per turn have one more end to guess: no faster where lists have twenty
        while q < last:
            to += keep_words(words, q, last - q, value, guards, mask, add, out, to)
            q += _AT_ONCE
        if more:
            # one of them without a branch, if there is any
            r = beside_offsets[np.uint64(k)]
            behind = beside_offsets[np.uint64(k + 1)]
            out[to] = beside[np.uint64(min(r, beside.size - 1))]
            to += np.uint64(r < behind)
            for other in range(r + 1, behind):
                out[to] = beside[np.uint64(other)]
                to += _ONE
        offsets[np.uint64(k + 1)] = np.int64(to)
    return to


@kernel
def stab_words(codes, lists, fields, packing, e, add, beside_offsets, beside, offsets, out):
    """Emit the boxes of each event's list that hold it, from event e on, with `add` added to each.

    Event e is a multiple of the block. Behind those of an event come the ones that another part found: row e
    of `beside`, if it has rows. Returns the event to go on with when `out` has no room for the next ones, or
    the number of events.
    """
    words = lists.words
    own = codes[lists.on]
    m = own.size
    firsts = scratch(_RING, np.uint64)
    lasts = scratch(_RING, np.uint64)
    ring = scratch(_RING, np.uint64)
    if words.size == 0:
        words = ring  # any four, of which none counts
    # always the lines that a list has on average: a loop that ends where each list does is guessed wrong
    lines = np.uint64(min(lists.words.size // max(lists.starts.size - 1, 1) // 8 + 1, _LINES))
    more = beside.size > 0
    to = np.uint64(offsets[e])
    needed = np.int64(0)
    for begin in range(e - _BLOCK, m, _BLOCK):
        # the next block, so that its lists can be asked for while this one's are compared
        room = needed
        needed = np.int64(MOST_TOGETHER)
        ahead = begin + _BLOCK
        behind = min(ahead + _BLOCK, m)
        if ahead < behind:
            at = np.uint64(ahead) & np.uint64(_RING - 1)
            past = at + np.uint64(behind - ahead)
            needed += _find_block(own[ahead:behind], lists, firsts[at:past], lasts[at:past])
            _pack_block(codes, ahead, behind, ring[:0], fields, packing, ring[at:past])
            if more:
                needed += beside_offsets[behind] - beside_offsets[ahead]
        if begin < e:
            continue
        if np.int64(to) + room > out.size:
            return begin
        end = min(begin + _BLOCK, m)
        to = _compare_block(
            words, lines, begin, end, firsts, lasts, ring, fields, add,
            beside_offsets, beside, offsets, out, to,
        )  # fmt: skip
    return m


@kernel
def stab_rare(codes, lists, fields, packing, e, add, offsets, out):
    """As `stab_words` with nothing beside, where less than half of the values have a list: only events that
    have one are packed and compared."""
    words = lists.words
    own = codes[lists.on]
    m = own.size
    firsts = scratch(_BLOCK, np.uint64)
    lasts = scratch(_BLOCK, np.uint64)
    some = scratch(_BLOCK, np.uint64)
    ring = scratch(_BLOCK, np.uint64)
    # how many of a block have a list, up to each event, and where the answers of so many end
    ranks = scratch(_BLOCK, np.uint64)
    ends = scratch(_RING, np.int64)
    to = np.uint64(offsets[e])
    for begin in range(e, m, _BLOCK):
        size = np.uint64(min(_BLOCK, m - begin))
        needed = _find_block(own[begin : begin + np.int64(size)], lists, firsts, lasts)
        if np.int64(to) + needed + MOST_TOGETHER > out.size:
            return begin
        # without a branch; it is written to where all of them are read from, never ahead of that
        n = _NONE
        for k in range(size):
            first = firsts[k]
            last = lasts[k]
            prefetch(words, first)
            firsts[n] = first
            lasts[n] = last
            some[n] = np.uint64(begin) + np.uint64(k)
            n += np.uint64(first < last)
            ranks[k] = n
        if n:
            _pack_block(codes, np.int64(0), np.int64(0), some[:n], fields, packing, ring[:n])
        ends[0] = np.int64(to)
        for k in range(n):
            q = firsts[k]
            while q < lasts[k]:
                to += keep_words(words, q, lasts[k] - q, ring[k], fields.guards, fields.mask, add, out, to)
                q += _AT_ONCE
            ends[np.uint64(k) + _ONE] = np.int64(to)
        for k in range(size):
            offsets[np.uint64(begin) + np.uint64(k) + _ONE] = ends[ranks[k]]
    return m


@kernel
def count_words(codes, lists, out):
    """out[e] = how many words the list of a code has, those included that fill up its last four."""
    for e in range(codes.size):
        found = _find(codes[e], lists)
        out[e] = TOGETHER * (lists.starts[found + 1] - lists.starts[found]) if found >= 0 else 0


@kernel
def fill_words(starts, packed, firsts, idle, out):
    """Lay out the words of each list from starts[k] on in fours, the last of them filled up."""
    for k in range(starts.size - 1):
        p = TOGETHER * np.int64(firsts[k])
        for q in range(starts[k], starts[k + 1]):
            out[p] = packed[q]
            p += 1
        while p < TOGETHER * np.int64(firsts[k + 1]):
            out[p] = idle
            p += 1


@kernel
def sweep_words(starts, words, mask, idle, dead, out_starts, out):
    """The same lists without dead boxes. Returns how many words are left."""
    p = np.int64(0)
    for k in range(starts.size - 1):
        out_starts[k] = p // TOGETHER
        for q in range(TOGETHER * np.int64(starts[k]), TOGETHER * np.int64(starts[k + 1])):
            out[p] = words[q]
            p += words[q] != idle and not dead[words[q] & mask]
        while p % TOGETHER:
            out[p] = idle
            p += 1
    out_starts[starts.size - 1] = p // TOGETHER
    return p


@allocating_kernel
def stab_few(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/word_lists.py.

    Returns how many boxes there are, or where `out` has less room than the lists have words, minus that.
    """
    head = view(part[0], np.int64)
    # in the order of the fields
    lists = WordLists(
        head[0],
        head[1] != 0,
        head[2],
        view(part[1], np.int64),
        view(part[2], np.int32),
        view(part[3], np.int32),
        view(part[4], np.uint64),
        view(part[5], np.int64),
    )
    total = np.int64(MOST_TOGETHER)
    own = codes[lists.on]
    for e in range(own.size):
        found = _find(own[e], lists)
        if found >= 0:
            total += TOGETHER * np.int64(lists.starts[found + 1] - lists.starts[found])
    if total > out.size:
        return -total
    bits = view(part[6], np.uint64)
    fields = WordFields(bits[0], bits[1], view_rows(part[7], np.uint64))
    offsets[0] = 0
    packing = view_rows(part[8], np.int64)
    none = offsets[:0]
    stab_words(codes, lists, fields, packing, np.int64(0), np.int64(0), none, out[:0], offsets, out)
    return offsets[own.size]
