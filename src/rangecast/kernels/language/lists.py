"""Lists of whole numbers, from the bytes that write them."""

from __future__ import annotations

import numpy as np

from rangecast.kernels import kernel

_MOST_DIGITS = 18  # any number of so many digits has a code
_ZERO, _NINE, _MINUS, _COMMA, _END = 48, 57, 45, 44, 41


@kernel
def _after_spaces(letters, at):
    """The next place that has no space, tab or end of a line."""
    while at < letters.size and (letters[at] == 32 or (9 <= letters[at] and letters[at] <= 13)):
        at += 1
    return at


@kernel
def read_numbers(letters, first, out, end):
    """Read whole numbers with commas between them, up to the bracket that ends their list.

    Returns how many there are, with the place of the bracket in end[0]; -1 where something else stands there:
    a number with a point, an exponent, a plus, or more digits than surely have a code.
    """
    n = 0
    at = np.int64(first)
    while True:
        at = _after_spaces(letters, at)
        negative = at < letters.size and letters[at] == _MINUS
        at += negative
        begin = at
        number = np.int64(0)
        while at < letters.size and _ZERO <= letters[at] and letters[at] <= _NINE:
            if at - begin == _MOST_DIGITS:
                return -1
            number = number * 10 + (np.int64(letters[at]) - _ZERO)
            at += 1
        if at == begin:
            return -1
        out[n] = -number if negative else number
        n += 1
        at = _after_spaces(letters, at)
        if at == letters.size:
            return -1
        if letters[at] == _END:
            end[0] = at
            return n
        if letters[at] != _COMMA:
            return -1
        at += 1


@kernel
def unite_values(values, lows, highs):
    """The spans of ascending values; those that touch become one. Returns how many there are."""
    n = 0
    for i in range(values.size):
        if n > 0 and values[i] <= highs[n - 1] + 1:
            highs[n - 1] = values[i]
        else:
            lows[n] = values[i]
            highs[n] = values[i]
            n += 1
    return n
