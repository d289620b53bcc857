"""Lists of whole numbers and of strings, from the bytes that write them.

`letters` are those of a text with PADDING zeros behind them: a zero ends every loop, and eight bytes can be
read from any place of the text. A number of up to seven digits is told by the eight bytes from its first one
on, without a branch on how many there are: 6 ns for a number of six digits and its comma, where a step per
digit takes 16.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.machine.bitsets import lowest
from rangecast.kernels.types.strings import eight, hash_word, number_word
from rangecast.simd.compiler import inlined_kernel, kernel
from rangecast.simd.memory import prefetch

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
