"""Lists by value: finding an event's list, and checking what else its members ask for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.boxes_kernels import holds, view_boxes
from rangecast.engine.layouts import lists_kernels
from rangecast.engine.packed_kernels import Fields, pack_values
from rangecast.kernels.engine import equalities
from rangecast.kernels.machine.views import view, view_rows
from rangecast.kernels.model.ids import hash_integers
from rangecast.model.kernels import copy_run
from rangecast.simd.compiler import allocating_kernel, inlined_kernel, kernel
from rangecast.simd.lanes import EIGHT, TOGETHER, hold_row, keep_members, put_row
from rangecast.simd.memory import ask, prefetch, scratch

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
    """The lists by value of attribute `on`; engine/equality.py tells what the arrays are."""

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

    `part` is the table of views of engine/equality.py, `own_boxes` that of the boxes. Returns how many boxes
    there are, or where `out` has less room than the lists have entries, minus that.
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
    if part.shape[0] == lists_kernels.ROWS:
        return lists_kernels.stab_few(part, own_boxes, codes, offsets, out)
    if part.shape[0] == equalities.ROWS:
        return equalities.stab_few(part, own_boxes, codes, offsets, out)
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
