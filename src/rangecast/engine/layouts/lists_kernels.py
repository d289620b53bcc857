"""Lists by value whose boxes are one word each: bounds above, the box itself below."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds, view_boxes
from rangecast.engine.packed_kernels import Fields, hinted_cell, pack_values
from rangecast.model.kernels import copy_run, hash_integer, hash_integers
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import (
    EIGHT,
    TOGETHER,
    hold_row,
    keep_members,
    keep_words,
    lowest,
    put_row,
)
from rangecast.simd.memory import (
    ask,
    prefetch,
    prefetch_near,
    prefetch_to_write,
    read_alone,
    scratch,
    view,
    view_rows,
)

# Lists by value: finding an event's list, and checking what else its members ask for.

_CHUNK = 512
_BLOCK = 64
_NEXT = 6
_LINES = 16
_MOST_WORDS = 64
_ALL = np.uint64(2**64 - 1)
_NONE = np.uint64(0)
_ONE = np.uint64(1)
_FOUR = np.uint64(2**TOGETHER - 1)


class ValueLists(NamedTuple):
    """The lists by value of attribute `on`; engine/layouts/lists.py tells what the arrays are."""

    on: int
    dense: bool
    values: npt.NDArray[np.int64]
    table: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.uint64]
    rare_starts: npt.NDArray[np.int32]
    rare: npt.NDArray[np.int64]


@kernel
def enter_values(values, hashes, table):
    """Put the position of each value into an open-addressing table of -1."""
    mask = np.uint64(table.size - 1)
    for i in range(values.size):
        p = hashes[i] & mask
        while table[p] >= 0:
            p = (p + np.uint64(1)) & mask
        table[p] = i


@kernel
def find_dense(codes, origin, table, starts, out):
    """out[e] = the list of a code, -1 where it has none; table[code - origin] names it.

    Returns how many entries all those lists have.
    """
    total = 0
    last = origin + table.size - 1
    for e in range(codes.size):
        k = np.int32(-1)
        if codes[e] >= origin and codes[e] <= last:
            k = table[codes[e] - origin]
        out[e] = k
        if k >= 0:
            total += starts[k + 1] - starts[k]
    return total


@kernel
def find_hashed(codes, hashes, values, table, starts, out):
    """As `find_dense`, by hash."""
    total = 0
    mask = np.uint64(table.size - 1)
    for e in range(codes.size):
        p = hashes[e] & mask
        k = table[p]
        while k >= 0 and values[k] != codes[e]:
            p = (p + np.uint64(1)) & mask
            k = table[p]
        out[e] = k
        if k >= 0:
            total += starts[k + 1] - starts[k]
    return total


@kernel
def to_columns(starts, rows, out):
    """Lay out the bounds of each list word by word: all first words of its boxes, then all second ones."""
    n_words = rows.shape[1]
    for k in range(starts.size - 1):
        a = starts[k]
        n = starts[k + 1] - a
        p = a * n_words
        for w in range(n_words):
            for q in range(n):
                out[p] = rows[a + q, w]
                p += 1


@kernel
def sweep_columns(starts, columns, n_words, living, out):
    """The same without some boxes. Returns how many words are left."""
    p = 0
    for k in range(starts.size - 1):
        a = starts[k]
        n = starts[k + 1] - a
        for w in range(n_words):
            for q in range(n):
                out[p] = columns[a * n_words + w * n + q]
                p += living[a + q]
    return p


@kernel
def _miss(words, value, guard, missed):
    """missed[q] gets a bit for each field of words[q] that exceeds the value's."""
    value |= guard
    for q in range(words.size):
        missed[q] |= ~(value - words[q]) & guard


@kernel
def _least(words):
    """The smallest of some words."""
    least = _ALL
    for q in range(words.size):
        least = min(least, words[q])
    return least


@inlined_kernel
def _ask_ahead(found, e, lists, n_words, bound_lines, member_lines):
    """Ask for the list of the event that is _NEXT ahead, and for where that of one twice as far begins.

    Always the same number of lines, those that a list has on average: a loop that ends where each list does
    is guessed wrong for most events, which costs more than a line too many or one too few.
    """
    if e + 2 * _NEXT < found.size:
        prefetch(lists.starts, found[e + 2 * _NEXT])
        if lists.rare.size:
            prefetch(lists.rare_starts, found[e + 2 * _NEXT])
    if e + _NEXT < found.size and found[e + _NEXT] >= 0:
        k = found[e + _NEXT]
        a = np.int64(lists.starts[k])
        for q in range(bound_lines):
            prefetch(lists.bounds, a * n_words + 8 * q)
        for q in range(member_lines):
            prefetch(lists.boxes, a + 16 * q)
        if lists.rare.size:
            width = lists.rare.shape[1]
            ask(lists.rare, width * lists.rare_starts[k], width * lists.rare_starts[k + 1])


@inlined_kernel
def _keep_exact(members, bounds, first, last, value, guard, out, p):
    """Emit the members of a list whose only word of bounds holds a value; returns where the next would go."""
    # unsigned, as everywhere that a negative index cannot be
    q = np.uint64(first)
    end = np.uint64(last)
    to = np.uint64(p)
    four = np.uint64(TOGETHER)
    if end + four > np.uint64(members.size) or to + end - q + four > np.uint64(out.size):
        # nothing is read behind the arrays, or written behind the answer
        for k in range(q, end):
            out[to] = members[k]
            to += np.uint64(((value - bounds[k]) & guard) == guard)
        return np.int64(to)
    while q + four <= end:
        to += keep_members(members, bounds, q, _FOUR, value, guard, out, to)
        q += four
    # of the last four only those of this list
    to += keep_members(members, bounds, q, (_ONE << (end - q)) - _ONE, value, guard, out, to)
    return np.int64(to)


@inlined_kernel
def _keep_listed(lists, a, n, rare_first, rare_last, values, guards, codes, e, out, p):
    """Emit the members of a list of n from `a` on whose words all hold an event's, and whose rare bounds do;
    returns where the next would go.

    All words of eight boxes are compared in registers, and what one of them misses is never written.
    """
    n_words = values.size
    q = np.uint64(0)
    size = np.uint64(n)
    eight = np.uint64(EIGHT)
    first = np.uint64(a)
    column = first * np.uint64(n_words)
    to = np.uint64(p)
    r = rare_first
    while q < size:
        held = hold_row(lists.bounds, column + q, size, values, guards)
        if size - q < eight:
            # of the last eight only those of this list
            held &= (_ONE << (size - q)) - _ONE
        # bounds that few boxes have, in the order of the list
        while r < rare_last and np.uint64(lists.rare[r, 0]) < q + eight:
            v = codes[lists.rare[r, 1], e]
            missed = np.uint64(v < lists.rare[r, 2] or v > lists.rare[r, 3])
            held &= ~(missed << (np.uint64(lists.rare[r, 0]) - q))
            r += 1
        to += put_row(lists.boxes, first + q, held, out, to)
        q += eight
    return np.int64(to)


@kernel
def stab_lists(found, lists, values, fields, codes, boxes, offsets, out):
    """Emit the boxes of each event's list that hold it; found[e] is the list of event e, -1 for none."""
    starts = lists.starts
    members = lists.boxes
    bounds = lists.bounds
    rare_starts = lists.rare_starts
    rare = lists.rare
    ones = fields.ones
    guards = fields.guards
    inexact = fields.inexact
    p = np.int64(0)
    n_words = values.shape[1] if bounds.size else 0
    n_lists = max(starts.size - 1, 1)
    # the processor itself sees that a long list is read on
    bound_lines = min(members.size * n_words // n_lists // 8 + 1, _LINES) if n_words else 0
    member_lines = min(members.size // n_lists // 16 + 1, _LINES)
    missed = scratch(_CHUNK, np.uint64)
    unsure = scratch(_CHUNK, np.uint64)
    own_words = scratch(_MOST_WORDS, np.uint64)
    in_registers = inexact.size == 0 and 0 < n_words <= _MOST_WORDS
    for e in range(found.size):
        offsets[e] = p
        _ask_ahead(found, e, lists, n_words, bound_lines, member_lines)
        if found[e] < 0:
            continue
        a = np.int64(starts[found[e]])
        n = starts[found[e] + 1] - a
        if rare.size == 0 and n_words == 0:
            p = copy_run(members, a, n, np.int32(0), False, out, p)
            continue
        # the common case, of one exact word, without scratch room
        if rare.size == 0 and inexact.size == 0 and n_words == 1:
            p = _keep_exact(members, bounds, a, a + n, values[e, 0] | guards[0], guards[0], out, p)
            continue
        r = np.int64(rare_starts[found[e]])
        last_rare = np.int64(rare_starts[found[e] + 1])
        # nothing is read behind the arrays, or written behind the answer
        if in_registers and a + n + EIGHT <= members.size and p + n + EIGHT <= out.size:
            for w in range(n_words):
                own_words[w] = values[e, w] | guards[w]
            p = _keep_listed(lists, a, n, r, last_rare, own_words[:n_words], guards, codes, e, out, p)
            continue
        # a chunk at a time, word by word: each word is one loop that compares several boxes at once, and what
        # it finds missed stays in the first cache
        for first in range(0, n, _CHUNK):
            size = min(n - first, _CHUNK)
            missed[:size] = _NONE
            for w in range(n_words):
                at = a * n_words + w * n + first
                _miss(bounds[at : at + size], values[e, w], guards[w], missed)
            # bounds that few boxes have, in the order of the list
            while r < last_rare and rare[r, 0] < first + size:
                v = codes[rare[r, 1], e]
                if v < rare[r, 2] or v > rare[r, 3]:
                    missed[rare[r, 0] - first] = _ONE
                r += 1
            # most blocks of a long list have no hit, which one comparison of several boxes at once says
            own = members[a + first : a + first + size]
            into = out[p : p + size]
            k = 0
            for begin in range(0, size, _BLOCK):
                end = min(begin + _BLOCK, size)
                if _least(missed[begin:end]) != _NONE:
                    continue
                if inexact.size == 0:
                    for q in range(begin, end):
                        into[k] = own[q]
                        k += missed[q] == _NONE
                    continue
                # an end in the event's own cell: with one taken from the event's field it would be missed,
                # so only those boxes need their codes
                unsure[begin:end] = _NONE
                for w in range(n_words):
                    if ones[w] != _NONE:
                        at = a * n_words + w * n + first + begin
                        some = bounds[at : at + end - begin]
                        _miss(some, values[e, w] - ones[w], guards[w], unsure[begin:end])
                for q in range(begin, end):
                    into[k] = own[q]
                    if missed[q] == _NONE:
                        k += unsure[q] == _NONE or holds(boxes, own[q], codes, inexact, e)
            p += k
    offsets[found.size] = p
    return p


@allocating_kernel
def stab_few(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call: their lists, their words, the boxes that hold them.

    `part` is the table of views of engine/layouts/lists.py, `own_boxes` that of the boxes. Returns how many
    boxes there are, or where `out` has less room than the lists have entries, minus that.
    """
    m = codes.shape[1]
    # in the order of the fields
    lists = ValueLists(
        view(part[0], np.int64)[0],
        view(part[0], np.int64)[1] != 0,
        view(part[1], np.int64),
        view(part[2], np.int32),
        view(part[3], np.int32),
        view(part[4], np.int32),
        view(part[5], np.uint64),
        view(part[6], np.int32),
        view_rows(part[7], np.int64),
    )
    own = codes[lists.on]
    # on the stack where it fits: memory of one's own is counted by who holds it
    found = scratch(_CHUNK, np.int32)[:m] if m <= _CHUNK else np.empty(m, np.int32)
    if lists.dense:
        origin = lists.values[0] if lists.values.size else 0
        total = find_dense(own, origin, lists.table, lists.starts, found)
    else:
        hashes = np.empty(m, np.uint64)
        hash_integers(own, hashes)
        total = find_hashed(own, hashes, lists.values, lists.table, lists.starts, found)
    if total > out.size:
        return -total
    if total == 0:
        offsets[:] = 0
        return 0
    fields = Fields(view(part[8], np.uint64), view(part[9], np.uint64), view(part[10], np.int64))
    n_words = fields.ones.size
    words = (
        scratch(_CHUNK, np.uint64)[: m * n_words].reshape((m, n_words))
        if m * n_words <= _CHUNK
        else np.empty((m, n_words), np.uint64)
    )
    pack_values(codes, view_rows(part[11], np.int64), words)
    boxes = view_boxes(own_boxes)
    return stab_lists(found, lists, words, fields, codes, boxes, offsets, out)


@allocating_kernel
def stab_either(part, own_boxes, codes, offsets, out):
    """As `stab_few`, also of lists of one word per box or by two values, whose tables have fewer rows."""
    if part.shape[0] == WORD_ROWS:
        return stab_few_words(part, own_boxes, codes, offsets, out)
    if part.shape[0] == COUPLE_ROWS:
        return stab_few_couples(part, own_boxes, codes, offsets, out)
    return stab_few(part, own_boxes, codes, offsets, out)


@allocating_kernel
def stab_one(parts, own_boxes, codes, offsets, out):
    """What one event matches in several parts, one after the other; `parts` is a table of their tables.

    Returns how many boxes there are, or where `out` has too little room, minus the room to try with.
    """
    p = 0
    for k in range(parts.shape[0]):
        n = stab_either(view_rows(parts[k], np.int64), own_boxes, codes, offsets, out[p:])
        if n < 0:
            return n - 4 * out.size
        p += n
    offsets[0] = 0
    offsets[1] = p
    return p


# found and packed together; the ring has the lists of those at hand and of the next ones
_WORD_BLOCK = 128
_RING = 2 * _WORD_BLOCK
_WORDS_AHEAD = 16
WORD_ROWS = 9
"""Rows of the table of views that `stab_few_words` takes."""
_FIRST_LINES = 3
_MISSING = np.iinfo(np.int64).min
_AT_A_TIME = np.uint64(TOGETHER)
_LINE = np.uint64(8)
# ids of the answer whose line is asked for before they are written
_AHEAD = 128


class WordLists(NamedTuple):
    """Lists by value of attribute `on`; engine/layouts/lists.py tells what the arrays are."""

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
            first = np.uint64(starts[at]) * _AT_A_TIME
            last = np.uint64(starts[at + _ONE]) * _AT_A_TIME
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
            firsts[k] = np.uint64(starts[np.uint64(found)]) * _AT_A_TIME
            lasts[k] = np.uint64(starts[np.uint64(found + 1)]) * _AT_A_TIME
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
    nears = scratch(_WORD_BLOCK, np.int64)
    cells = scratch(_WORD_BLOCK, np.uint64)
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
    gathered = scratch(_WORD_BLOCK, np.int64)
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
        near = np.uint64(k + _WORDS_AHEAD) & around
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
        n = keep_words(words, q, value, guards, mask, add, out, to)
        to += n if q < last else _NONE
        q += _AT_A_TIME
        # two fours per turn have one more end to guess: no faster where lists have twenty
        while q < last:
            to += keep_words(words, q, value, guards, mask, add, out, to)
            q += _AT_A_TIME
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
    for begin in range(e - _WORD_BLOCK, m, _WORD_BLOCK):
        # the next block, so that its lists can be asked for while this one's are compared
        room = needed
        needed = np.int64(TOGETHER)
        ahead = begin + _WORD_BLOCK
        behind = min(ahead + _WORD_BLOCK, m)
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
        end = min(begin + _WORD_BLOCK, m)
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
    firsts = scratch(_WORD_BLOCK, np.uint64)
    lasts = scratch(_WORD_BLOCK, np.uint64)
    some = scratch(_WORD_BLOCK, np.uint64)
    ring = scratch(_WORD_BLOCK, np.uint64)
    # how many of a block have a list, up to each event, and where the answers of so many end
    ranks = scratch(_WORD_BLOCK, np.uint64)
    ends = scratch(_RING, np.int64)
    to = np.uint64(offsets[e])
    for begin in range(e, m, _WORD_BLOCK):
        size = np.uint64(min(_WORD_BLOCK, m - begin))
        needed = _find_block(own[begin : begin + np.int64(size)], lists, firsts, lasts)
        if np.int64(to) + needed + TOGETHER > out.size:
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
                to += keep_words(words, q, ring[k], fields.guards, fields.mask, add, out, to)
                q += _AT_A_TIME
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
def stab_few_words(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/layouts/lists.py.

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
    total = np.int64(TOGETHER)
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


# Lists by the values of two attributes: which of them may be there for an event, and what they hold.

BLOCK = 128
"""Events whose hashes are computed before the first of them is looked up."""
MOST_COUPLES = 16
"""Couples of attributes of one part: each is a bit of what an event found."""
COUPLE_ROWS = 4
"""Rows of the table of views that `stab_few_couples` takes."""
_HASHES = BLOCK * MOST_COUPLES
_NEAR = 4096
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_C = np.uint64(0xD6E8FEB86659FD93)
_BIT = np.uint64(63)
_SIX = np.uint64(6)
_TWELVE = np.uint64(12)
_HALF = np.uint64(32)


class CoupleLists(NamedTuple):
    """Lists by the values of couples of attributes; engine/layouts/lists.py tells what the arrays are."""

    couples: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]


@inlined_kernel
def _hash(first, second, c):
    """Of the values of couple c: the upper bits name a word of flags, the lower ones its bits and a list."""
    h = np.uint64(first) * _A + np.uint64(second) * _B + np.uint64(c) * _C
    h = (h ^ (h >> _HALF)) * _C
    return h ^ (h >> _HALF)


@inlined_kernel
def _bits(h):
    """The two bits of a word of flags that a hash has."""
    return (_ONE << (h & _BIT)) | (_ONE << ((h >> _SIX) & _BIT))


@inlined_kernel
def _list_of(h, n_lists):
    return (h >> _TWELVE) & np.uint64(n_lists - 1)


@inlined_kernel
def _shift(words):
    """How far a hash is shifted to leave the number of one of 2^k words, of which there are two at least."""
    k = np.uint64(0)
    while (1 << np.int64(k)) < words:
        k += _ONE
    return np.uint64(64) - k


@kernel
def hash_couple(firsts, seconds, c, out):
    """out[i] = the hash of the values of couple c."""
    for i in range(firsts.size):
        out[i] = _hash(firsts[i], seconds[i], c)


@kernel
def list_numbers(hashes, n_lists, out):
    """out[i] = the list of a hash, of 2^k lists."""
    for i in range(hashes.size):
        out[i] = _list_of(hashes[i], n_lists)


@kernel
def count_alike(hashes, table, out):
    """out[i] = how many have about the same hash as hashes[i], up to 255; table: zeros, 2^k of them."""
    most = np.uint8(255)
    for i in range(hashes.size):
        at = _list_of(hashes[i], table.size)
        table[at] += np.uint8(table[at] < most)
    for i in range(hashes.size):
        out[i] = table[_list_of(hashes[i], table.size)]


@kernel
def set_flags(hashes, flags):
    """Set the bits of hashes."""
    shift = _shift(flags.size)
    for i in range(hashes.size):
        flags[hashes[i] >> shift] |= _bits(hashes[i])


@kernel
def _ask_block(codes, lists, begin, end, hashes, found):
    """found[k] = a bit for each couple whose values event begin + k may have a list for.

    Couple by couple, so that its loops have nothing to choose; words are asked for one loop ahead.
    """
    flags = lists.flags
    shift = _shift(flags.size)
    n = np.uint64(end - begin)
    for k in range(n):
        found[k] = _NONE
    for c in range(lists.couples.shape[0]):
        firsts = codes[lists.couples[c, 0], begin:end]
        seconds = codes[lists.couples[c, 1], begin:end]
        own = hashes[c * BLOCK : (c + 1) * BLOCK]
        for k in range(n):
            own[k] = _hash(firsts[k], seconds[k], c)
        # those that fit the first cache are there
        if flags.size > _NEAR:
            for k in range(n):
                prefetch(flags, own[k] >> shift)
    for c in range(lists.couples.shape[0]):
        own = hashes[c * BLOCK : (c + 1) * BLOCK]
        bit = np.uint64(c)
        for k in range(n):
            bits = _bits(own[k])
            found[k] |= np.uint64((flags[own[k] >> shift] & bits) == bits) << bit


@inlined_kernel
def _is_repeated(hashes, k, c, before, n_lists):
    """Whether an earlier couple of the same event has led to the list of couple c: it was read then."""
    own = _list_of(hashes[c * BLOCK + k], n_lists)
    again = False
    while before != _NONE:
        other = np.int64(lowest(before))
        before &= before - _ONE
        again |= _list_of(hashes[other * BLOCK + k], n_lists) == own
    return again


@kernel
def stab(codes, lists, boxes, e, offsets, out):
    """Emit the boxes that hold each event, from event e on, a multiple of the block.

    Returns the event to go on with when `out` has no room for the next ones, or the number of events.
    """
    m = codes.shape[1]
    starts = lists.starts
    n_lists = starts.size - 1
    hashes = scratch(_HASHES, np.uint64)
    found = scratch(BLOCK, np.uint64)
    to = offsets[e]
    for begin in range(e, m, BLOCK):
        end = min(begin + BLOCK, m)
        _ask_block(codes, lists, begin, end, hashes, found)
        for k in range(end - begin):
            rest = found[k]
            before = _NONE
            while rest != _NONE:
                c = np.int64(lowest(rest))
                rest &= rest - _ONE
                b = np.int64(_list_of(hashes[c * BLOCK + k], n_lists))
                if not _is_repeated(hashes, k, c, before, n_lists):
                    if to + starts[b + 1] - starts[b] > out.size:
                        return begin
                    for q in range(starts[b], starts[b + 1]):
                        box = lists.boxes[q]
                        if holds(boxes, box, codes, starts, begin + k):
                            out[to] = box
                            to += 1
                before |= _ONE << np.uint64(c)
            offsets[begin + k + 1] = to
    return m


@kernel
def count_candidates(codes, lists, counts):
    """counts[e] = how many boxes event e looks at."""
    m = codes.shape[1]
    hashes = scratch(_HASHES, np.uint64)
    found = scratch(BLOCK, np.uint64)
    n_lists = lists.starts.size - 1
    for begin in range(0, m, BLOCK):
        end = min(begin + BLOCK, m)
        _ask_block(codes, lists, begin, end, hashes, found)
        for k in range(end - begin):
            total = 0
            for c in range(lists.couples.shape[0]):
                if (found[k] >> np.uint64(c)) & _ONE:
                    b = np.int64(_list_of(hashes[c * BLOCK + k], n_lists))
                    total += lists.starts[b + 1] - lists.starts[b]
            counts[begin + k] = total


@allocating_kernel
def stab_few_couples(part, own_boxes, codes, offsets, out):
    """All that a few events need, in one call; `part` is the table of views of engine/layouts/lists.py.

    Returns how many boxes there are, or where `out` has too little room, minus the room to try with.
    """
    # in the order of the fields
    lists = CoupleLists(
        view_rows(part[0], np.int64),
        view(part[1], np.uint64),
        view(part[2], np.int32),
        view(part[3], np.int32),
    )
    offsets[0] = 0
    boxes = view_boxes(own_boxes)
    m = codes.shape[1]
    if stab(codes, lists, boxes, np.int64(0), offsets, out) < m:
        return -(4 * out.size + BLOCK)
    return offsets[m]
