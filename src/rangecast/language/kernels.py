"""Loops over sparse boxes (model/boxes.py): entries of the attributes that a box bounds, some with a set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import inlined_kernel, kernel
from rangecast.simd.lanes import lowest
from rangecast.simd.memory import prefetch
from rangecast.types.kernels import eight, hash_word, number_word

SET = 1 << 30
"""The bit of an entry's attribute that says that the entry has a set."""

_POSITION = SET - 1
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max


class ListedValues(NamedTuple):
    """Long sets of values, which have no spans among boxes; engine/boxes.py tells what each array
    is."""

    sets: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    wide: npt.NDArray[np.uint8]
    on: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint32]


@inlined_kernel
def find_set(boxes, entry):
    """The number of the set of an entry that has one."""
    a = np.int64(0)
    b = np.int64(boxes.sets.size)
    while b - a > 1:
        middle = (a + b) >> 1
        if boxes.sets[middle] <= entry:
            a = middle
        else:
            b = middle
    return a


@inlined_kernel
def in_set(boxes, number, code):
    """Whether a span of a set holds a code that its hull holds."""
    a = boxes.set_starts[number]
    b = boxes.set_starts[number + 1]
    while b - a > 1:
        middle = (a + b) >> 1
        if boxes.set_lows[middle] <= code:
            a = middle
        else:
            b = middle
    return code <= boxes.set_highs[a]


@kernel
def in_list(lists, number, code):
    """Whether the list of a set holds a code that its hull holds; a set without a list holds none."""
    a = np.int64(0)
    b = np.int64(lists.sets.size)
    while b - a > 1:
        middle = (a + b) >> 1
        if lists.sets[middle] <= number:
            a = middle
        else:
            b = middle
    if a == b or lists.sets[a] != number:
        return False
    wanted = np.uint64(code) - np.uint64(lists.bases[a])
    first = lists.starts[a]
    step = np.int64(1) + lists.wide[a]
    n = (lists.starts[a + 1] - first) // step
    low = np.int64(0)
    while low < n:
        middle = (low + n) >> 1
        found = np.uint64(lists.words[first + middle * step])
        if step == 2:
            found |= np.uint64(lists.words[first + middle * step + 1]) << np.uint64(32)
        if found == wanted:
            return True
        if found < wanted:
            low = middle + 1
        else:
            n = middle
    return False


@inlined_kernel
def in_spans_or_list(boxes, lists, number, code):
    """Whether a set holds a code that its hull holds: one without spans has a list."""
    if boxes.set_starts[number] == boxes.set_starts[number + 1]:
        return in_list(lists, number, code)
    return in_set(boxes, number, code)


@inlined_kernel
def first_check(check, slot, tail):
    """The first box that a slot is checked by, -1 where it is not; `drop_unheld` tells what a check is."""
    if check < 0:
        check = -check if slot >= tail else 0
    return check - 1


@inlined_kernel
def holds(boxes, lists, box, codes, e):
    """Whether a box holds event e: each entry's hull first, then the spans of those that have a set."""
    first = boxes.starts[box]
    last = boxes.starts[box + 1]
    with_set = last
    for i in range(last - 1, first - 1, -1):
        at = boxes.attributes[i]
        v = codes[at & _POSITION, e]
        if v < boxes.lows[i] or boxes.highs[i] < v:
            return False
        if at & SET:
            with_set = i
    if with_set < last:
        # the sets of a box follow one another, so that one is looked up and the others counted on from it
        number = find_set(boxes, with_set)
        for i in range(with_set, last):
            at = boxes.attributes[i]
            if at & SET:
                if not in_spans_or_list(boxes, lists, number, codes[at & _POSITION, e]):
                    return False
                number += 1
    return True


@kernel
def count_entries(lows, highs, starts):
    """starts[b + 1] = how many entries the boxes up to b have, of dense ends."""
    d = lows.shape[0]
    n = lows.shape[1]
    for b in range(n + 1):
        starts[b] = 0
    for j in range(d):
        for b in range(n):
            starts[b + 1] += (lows[j, b] != _MISSING) | (highs[j, b] != _LAST)
    for b in range(n):
        starts[b + 1] += starts[b]


@kernel
def fill_entries(lows, highs, starts, cursors, attributes, out_lows, out_highs):
    """The entries of dense ends; `cursors` takes one number per box."""
    d = lows.shape[0]
    n = lows.shape[1]
    for b in range(n):
        cursors[b] = starts[b]
    for j in range(d):
        for b in range(n):
            if lows[j, b] != _MISSING or highs[j, b] != _LAST:
                p = cursors[b]
                attributes[p] = j
                out_lows[p] = lows[j, b]
                out_highs[p] = highs[j, b]
                cursors[b] = p + 1


@kernel
def fill_pieces(boxes, chosen, firsts, lows, highs):
    """Dense ends of the pieces of each box, which are firsts[b] .. firsts[b + 1]; all ends are written.

    A box is cut along its chosen sets, one piece for each choice of spans; other sets give their hull.
    """
    d = lows.shape[0]
    n = firsts.size - 1
    for j in range(d):
        for p in range(firsts[n]):
            lows[j, p] = _MISSING
            highs[j, p] = _LAST
    number = np.int64(0)
    for b in range(n):
        first = firsts[b]
        n_pieces = firsts[b + 1] - first
        every = np.int64(1)
        for i in range(boxes.starts[b], boxes.starts[b + 1]):
            j = boxes.attributes[i] & _POSITION
            size = np.int64(1)
            if boxes.attributes[i] & SET:
                if chosen[number]:
                    start = boxes.set_starts[number]
                    size = boxes.set_starts[number + 1] - start
                    for p in range(n_pieces):
                        q = start + (p // every) % size
                        lows[j, first + p] = boxes.set_lows[q]
                        highs[j, first + p] = boxes.set_highs[q]
                number += 1
            if size == 1:
                for p in range(first, first + n_pieces):
                    lows[j, p] = boxes.lows[i]
                    highs[j, p] = boxes.highs[i]
            every *= size


@kernel
def fill_piece_entries(boxes, chosen, counts, attributes, lows, highs):
    """As `fill_pieces`, by entry: the counts[b] pieces of box b one after the other."""
    number = np.int64(0)
    end = np.int64(0)
    for b in range(counts.size):
        width = boxes.starts[b + 1] - boxes.starts[b]
        every = np.int64(1)
        for k in range(width):
            i = boxes.starts[b] + k
            size = np.int64(1)
            start = np.int64(-1)
            if boxes.attributes[i] & SET:
                if chosen[number]:
                    start = boxes.set_starts[number]
                    size = boxes.set_starts[number + 1] - start
                number += 1
            for p in range(counts[b]):
                at = end + p * width + k
                attributes[at] = boxes.attributes[i] & _POSITION
                lows[at] = boxes.lows[i]
                highs[at] = boxes.highs[i]
                if start >= 0:
                    q = start + (p // every) % size
                    lows[at] = boxes.set_lows[q]
                    highs[at] = boxes.set_highs[q]
            every *= size
        end += width * counts[b]


@kernel
def choose_cuts(boxes, few, most, sizes, led, chosen, leads, checked):
    """Which sets to cut a box along: all where that makes few pieces, otherwise one, at most.

    That one is the shortest list of values (half of its spans are single codes), of `most` spans at the most.
    sizes[k] > 0 where set k is a long list of so many values: no box is cut along that, but leads[k] says
    that a layout finds the box by its list, if led[b] allows it.
    checked[b] = 1 where a set is left that the pieces of box b do not say, 2 where it is the one that leads.
    """
    number = np.int64(0)
    for b in range(boxes.owners.size):
        first = number
        product = np.int64(1)
        best = np.int64(-1)
        best_size = np.int64(most + 1)
        for i in range(boxes.starts[b], boxes.starts[b + 1]):
            if boxes.attributes[i] & SET:
                start = boxes.set_starts[number]
                size = boxes.set_starts[number + 1] - start
                product = min(product * size, np.int64(1) << 31)
                if sizes[number] > 0:
                    if size < best_size or best < 0:
                        best = number
                        best_size = size
                elif size < best_size:
                    values = np.int64(0)
                    for q in range(start, start + size):
                        values += boxes.set_lows[q] == boxes.set_highs[q]
                    if 2 * values >= size:
                        best = number
                        best_size = size
                number += 1
        checked[b] = 0
        for k in range(first, number):
            chosen[k] = 1 if product <= few or (k == best and sizes[k] == 0) else 0
            leads[k] = 1 if k == best and not chosen[k] and led[b] else 0
            if not chosen[k]:
                checked[b] = 2 if leads[k] and checked[b] != 1 and number == first + 1 else 1


@inlined_kernel
def _sets_meet(boxes, i, k):
    """Whether two entries of one attribute share a code, by their sets where they have some."""
    a = i
    a_end = i + 1
    a_lows = boxes.lows
    a_highs = boxes.highs
    if boxes.attributes[i] & SET:
        number = find_set(boxes, i)
        a = boxes.set_starts[number]
        a_end = boxes.set_starts[number + 1]
        a_lows = boxes.set_lows
        a_highs = boxes.set_highs
    c = k
    c_end = k + 1
    c_lows = boxes.lows
    c_highs = boxes.highs
    if boxes.attributes[k] & SET:
        number = find_set(boxes, k)
        c = boxes.set_starts[number]
        c_end = boxes.set_starts[number + 1]
        c_lows = boxes.set_lows
        c_highs = boxes.set_highs
    while a < a_end and c < c_end:
        if a_highs[a] < c_lows[c]:
            a += 1
        elif c_highs[c] < a_lows[a]:
            c += 1
        else:
            return True
    return False


@kernel
def _boxes_meet(boxes, b, c, hulls):
    """Whether two boxes share a point; by the hulls of their sets alone if told."""
    i = boxes.starts[b]
    k = boxes.starts[c]
    while i < boxes.starts[b + 1] and k < boxes.starts[c + 1]:
        own = boxes.attributes[i] & _POSITION
        other = boxes.attributes[k] & _POSITION
        if own < other:
            i += 1
        elif other < own:
            k += 1
        else:
            if boxes.lows[i] > boxes.highs[k] or boxes.lows[k] > boxes.highs[i]:
                return False
            either = (boxes.attributes[i] | boxes.attributes[k]) & SET
            if either and not hulls and not _sets_meet(boxes, i, k):
                return False
            i += 1
            k += 1
    return True


@kernel
def flag_meeting(boxes, hulls, out):
    """out[s] = 1 when two boxes of subscription s share a point; by the hulls of sets alone if told."""
    owners = boxes.owners
    n = owners.size
    for b in range(n):
        s = owners[b]
        c = b + 1
        while c < n and owners[c] == s and not out[s]:
            if _boxes_meet(boxes, b, c, hulls):
                out[s] = 1
            c += 1


@kernel
def drop_unheld(codes, offsets, slots, checks, boxes, lists, tail, out_offsets):
    """Keep the slots that need no check and those of which a box holds the event, in place.

    checks[s] is 0 where slot s needs none, otherwise 1 more than the number of its first box; it is negative
    where a layout that goes by lists finds nothing else, so that only slots from `tail` on, which are in
    none, are checked. `owners` of the boxes are slots. Returns the new size.
    """
    p = np.int64(0)
    n = np.int64(boxes.owners.size)
    for e in range(offsets.size - 1):
        first = offsets[e]
        out_offsets[e] = p
        for q in range(first, offsets[e + 1]):
            s = slots[q]
            box = first_check(np.int64(checks[s]), s, tail)
            kept = box < 0
            while not kept and box < n and boxes.owners[box] == s:
                kept = holds(boxes, lists, box, codes, e)
                box += 1
            if kept:
                slots[p] = s
                p += 1
    out_offsets[offsets.size - 1] = p
    return p


# Lists of whole numbers and of strings, from the bytes that write them.
#
# `letters` are those of a text with PADDING zeros behind them: a zero ends every loop, and eight bytes can be
# read from any place of the text. A number of up to seven digits is told by the eight bytes from its first
# one on, without a branch on how many there are: 6 ns for a number of six digits and its comma, where a step
# per digit takes 16.

PADDING = 16
_AHEAD = 16  # strings; half or twice as many: the same
_MOST_DIGITS = 18  # any number of so many digits has a code
_SPACE, _QUOTE, _MINUS, _COMMA, _END, _ZERO, _NINE = 32, 39, 45, 44, 41, 48, 57
_LEAST = -(2**62)  # less than any number of eighteen digits
_COMMA_SPACE, _TWO_LETTERS = np.uint64(0x202C), np.uint64(0xFFFF)
_ZEROS = np.uint64(0x3030303030303030)
_HIGH_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0)
_LOW_HALVES = np.uint64(0x0F0F0F0F0F0F0F0F)
_SIXES = np.uint64(0x0606060606060606)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_FOURS = np.uint64(0x0000FFFF0000FFFF)
_ALL = np.uint64(0x00000000FFFFFFFF)
_TEN, _HUNDRED, _MYRIAD = np.uint64(10), np.uint64(100), np.uint64(10_000)
_BYTE, _TWO, _FOUR = np.uint64(8), np.uint64(16), np.uint64(32)


@inlined_kernel
def _after_spaces(letters, at):
    """The next place that has no space, tab or end of a line."""
    while letters[at] == _SPACE or (9 <= letters[at] and letters[at] <= 13):
        at += 1
    return at


@inlined_kernel
def _count_digits(word):
    """How many digits stand first in eight letters, which were compared with zeros."""
    return lowest((word & _HIGH_HALVES) | (((word & _LOW_HALVES) + _SIXES) & _HIGH_HALVES)) >> 3


@inlined_kernel
def _number_of(word, n):
    """The number that the first n of eight letters write, n from 1 to 7."""
    # the first digit is the lowest byte: zeros come before it, and digits, pairs and fours are joined
    word = word << np.uint64(64 - 8 * n)
    word = (word * _TEN + (word >> _BYTE)) & _PAIRS
    word = (word * _HUNDRED + (word >> _TWO)) & _FOURS
    return np.int64((word * _MYRIAD + (word >> _FOUR)) & _ALL)


@kernel
def read_numbers(letters, first, out, found):
    """Read whole numbers with commas between them, up to the bracket that ends their list.

    Returns how many there are, with the place of the bracket in found[0], and in found[1] whether they ascend
    and none touches the next one; -1 where something else stands there: a number with a point, an exponent, a
    plus, or more digits than surely have a code, or three digits behind a comma that may be thousands.
    """
    n = np.int64(0)
    at = np.int64(first)
    apart = True
    before = np.int64(_LEAST)
    while True:
        here = eight(letters, at)
        word = here ^ _ZEROS
        digits = _count_digits(word)
        plain = digits > 0 and digits <= 6 and digits != 3
        if plain and (here >> np.uint64(8 * digits)) & _TWO_LETTERS == _COMMA_SPACE:
            # as most are written: the place of the next one depends on nothing but how many digits there are
            number = _number_of(word, digits)
            at += digits + 2
            apart &= number > before + 1
            before = number
            out[n] = number
            n += 1
            continue
        at = _after_spaces(letters, at)
        negative = letters[at] == _MINUS
        at += negative
        word = eight(letters, at) ^ _ZEROS
        digits = _count_digits(word)
        if digits == 0:
            return -1
        number = np.int64(0)
        if digits == 8:
            digits = np.int64(0)
            while _ZERO <= letters[at + digits] and letters[at + digits] <= _NINE:
                if digits == _MOST_DIGITS:
                    return -1
                number = number * 10 + (np.int64(letters[at + digits]) - _ZERO)
                digits += 1
        else:
            number = _number_of(word, digits)
            if digits == 3 and number < 100 and n > 0 and letters[at - 1] == _COMMA:
                return -1
        at += digits
        if negative:
            number = -number
        apart &= number > before + 1
        before = number
        out[n] = number
        n += 1
        if letters[at] != _COMMA:
            at = _after_spaces(letters, at)
            if letters[at] == _END:
                found[0] = at
                found[1] = apart
                return n
            if letters[at] != _COMMA:
                return -1
        at += 1
        at += letters[at] == _SPACE


@kernel
def read_words(letters, first, words, counts, room, spans, out, found):
    """Read strings in quotes with commas between them, likewise, and number them by a table of words that
    takes in new ones (number_word).

    Returns how many there are, with the place of the bracket in found[0] and the end of the first one in
    found[1]; -1 where something else stands there. `room` is for strings with quotes inside.

    Each string is a place of its own in a table that no cache holds. So spans[i] notes where string i begins
    and how long it is, and when all of them are known, the places of those some strings ahead are asked for.
    """
    n = _split_words(letters, first, room, spans, found)
    mask = np.uint64(words.places.shape[0] - 1)
    for i in range(n + _AHEAD):
        if i < n:
            if spans[i, 0] >= 0:
                place = hash_word(letters, spans[i, 0], spans[i, 1]) & mask
            else:
                place = hash_word(room, ~spans[i, 0], spans[i, 1]) & mask
            # a place may lie in two lines of memory, and the next one too
            prefetch(words.places, 3 * np.int64(place))
            prefetch(words.places, 3 * np.int64(place) + 5)
        k = i - _AHEAD
        if k >= 0:
            if spans[k, 0] >= 0:
                out[k] = number_word(letters, spans[k, 0], spans[k, 1], words, counts)
            else:
                out[k] = number_word(room, ~spans[k, 0], spans[k, 1], words, counts)
    return n


@kernel
def _split_words(letters, first, room, spans, found):
    """Where the strings of a list lie; one with quotes inside is written to `room` without them, and ~ of
    where it begins there is noted."""
    n = 0
    used = np.int64(0)
    last = letters.size - PADDING
    at = np.int64(first)
    while True:
        at = _after_spaces(letters, at)
        if letters[at] != _QUOTE:
            return -1
        at += 1
        begin = at
        doubled = 0
        while True:
            while letters[at] != _QUOTE:
                at += 1
                if at >= last:
                    return -1
            if letters[at + 1] != _QUOTE:
                break
            doubled += 1
            at += 2
        if doubled:
            spans[n, 0] = ~used
            spans[n, 1] = at - begin - doubled
            q = begin
            while q < at:
                room[used] = letters[q]
                used += 1
                q += 2 if letters[q] == _QUOTE else 1
        else:
            spans[n, 0] = begin
            spans[n, 1] = at - begin
        at += 1
        if n == 0:
            found[1] = at
        n += 1
        at = _after_spaces(letters, at)
        if letters[at] == _END:
            found[0] = at
            return n
        if letters[at] != _COMMA:
            return -1
        at += 1


@kernel
def unite_values(values, lows, highs):
    """The spans of ascending values; those that touch become one. Returns how many there are.

    `lows` may be the values themselves: no span is written before its first value was read.
    """
    n = 0
    for i in range(values.size):
        value = values[i]
        if n > 0 and value <= highs[n - 1] + 1:
            highs[n - 1] = value
        else:
            lows[n] = value
            highs[n] = value
            n += 1
    return n
