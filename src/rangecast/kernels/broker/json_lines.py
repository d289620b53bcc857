"""Reading JSON lines whose objects are flat, without a Python object for any of them.

This reads what nearly all events are: one object per line, keys without escapes, values that are numbers,
strings without escapes, true, false or null. At anything else it stops, and the caller reads the body in the
ordinary way: it never guesses, and never refuses. A number is taken only where its value is exact: up to 18
digits as an integer; as a float where the digits are a whole number below 2^53 and the power of ten is one
that a double holds (Clinger 1990), so that one multiplication or division rounds it correctly.

    array     dtype     shape   meaning
    kinds     uint8     (d, n)  what attribute j of line k is: ABSENT, INTEGER, FRACTION, STRING, BOOLEAN
    values    int64     (d, n)  the integer, 1 for true, or where the string begins
    floats    float64   (d, n)  the number, of integers too
    lengths   int32     (d, n)  how long the string is
    starts    int64     n + 1   where the text of line k begins among the texts, which stand without a gap
    seen      uint8     d       the kinds of an attribute in all lines, a bit for each
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels import inlined_kernel, kernel

ABSENT, INTEGER, FRACTION, STRING, BOOLEAN = 0, 1, 2, 3, 4
SLOWLY = -1
"""What is returned where the body must be read in the ordinary way."""

_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE = 34, 92, 58, 44, 123, 125
_NEWLINE, _SPACE, _TAB, _RETURN = 10, 32, 9, 13
_MINUS, _PLUS, _POINT, _ZERO, _NINE = 45, 43, 46, 48, 57
_SMALL_E, _LARGE_E = 101, 69
_EXACT = 1 << 53
_POWERS = 10.0 ** np.arange(23)


@inlined_kernel
def _skip(raw, p, end):
    while p < end and (raw[p] == _SPACE or raw[p] == _TAB or raw[p] == _RETURN):
        p += 1
    return p


@inlined_kernel
def _string_end(raw, p, end):
    """Where the string that begins at p has its closing quote; -1 where it is none, or has escapes."""
    while p < end:
        letter = raw[p]
        if letter == _QUOTE:
            return p
        if letter == _BACKSLASH or letter < _SPACE:
            return -1
        p += 1
    return -1


@inlined_kernel
def _is_name(raw, a, n, names, j, folded):
    """Whether raw[a:a + n] is the name of attribute j; with `folded`, in whatever capitals."""
    begin = names.starts[j]
    if names.starts[j + 1] - begin != n:
        return False
    for q in range(n):
        one, other = raw[a + q], names.letters[begin + q]
        if folded:
            if 65 <= one <= 90:
                one += 32
            if 65 <= other <= 90:
                other += 32
        if one != other:
            return False
    return True


@inlined_kernel
def _attribute(raw, a, n, names, hint):
    """The attribute of a key, the number of attributes where it is none, -1 where capitals differ."""
    d = names.starts.size - 1
    if hint < d and _is_name(raw, a, n, names, hint, False):
        return hint
    for j in range(d):
        if _is_name(raw, a, n, names, j, False):
            return j
    for j in range(d):
        if _is_name(raw, a, n, names, j, True):
            return -1
    for q in range(n):
        if raw[a + q] >= 128:  # may fold to a name
            return -1
    return d


@inlined_kernel
def _is_word(raw, p, end, a, b, c, e):
    return p + 4 <= end and raw[p] == a and raw[p + 1] == b and raw[p + 2] == c and raw[p + 3] == e


@kernel
def read_flat_lines(raw, names, longest, kinds, values, floats, lengths, letters, starts, seen):
    """Read lines into the arrays of the module's head; returns how many there are, or SLOWLY.

    `names` are those of the attributes, `longest` is the most bytes of one line; the texts of the lines go to
    `letters`.
    """
    d = names.starts.size - 1
    end = raw.size
    p = 0
    n = 0
    written = 0
    for j in range(d):
        seen[j] = 0
    while p < end:
        p = _skip(raw, p, end)
        if p < end and raw[p] == _NEWLINE:
            p += 1
            continue
        if p >= end:
            break
        if raw[p] != _OPEN or n >= kinds.shape[1]:
            return SLOWLY
        begin = p
        for j in range(d):
            kinds[j, n] = ABSENT
        p = _skip(raw, p + 1, end)
        hint = 0
        first = True
        while True:
            if p >= end:
                return SLOWLY
            if raw[p] == _CLOSE and first:
                break
            first = False
            # the key
            if raw[p] != _QUOTE:
                return SLOWLY
            a = p + 1
            p = _string_end(raw, a, end)
            if p < 0:
                return SLOWLY
            j = _attribute(raw, a, p - a, names, hint)
            if j < 0:
                return SLOWLY
            hint = j + 1 if j < d else hint
            p = _skip(raw, p + 1, end)
            if p >= end or raw[p] != _COLON:
                return SLOWLY
            p = _skip(raw, p + 1, end)
            if p >= end:
                return SLOWLY
            # the value; where a key comes twice, the last one counts, as everywhere
            letter = raw[p]
            kind = ABSENT
            number: Any = 0
            fraction = 0.0
            length = 0
            if letter == _QUOTE:
                number = p + 1
                p = _string_end(raw, number, end)
                if p < 0:
                    return SLOWLY
                length = p - number
                kind = STRING
                p += 1
            elif letter == _MINUS or _ZERO <= letter <= _NINE:
                negative = letter == _MINUS
                if negative:
                    p += 1
                a = p
                while p < end and _ZERO <= raw[p] <= _NINE:
                    if p - a == 18:
                        return SLOWLY
                    number = number * 10 + (np.int64(raw[p]) - _ZERO)
                    p += 1
                digits = p - a
                if digits == 0 or (digits > 1 and raw[a] == _ZERO):
                    return SLOWLY
                kind = INTEGER
                power = 0
                if p < end and raw[p] == _POINT:
                    kind = FRACTION
                    p += 1
                    a = p
                    while p < end and _ZERO <= raw[p] <= _NINE:
                        if digits + p - a == 18:
                            return SLOWLY
                        number = number * 10 + (np.int64(raw[p]) - _ZERO)
                        p += 1
                    if p == a:
                        return SLOWLY
                    power = a - p
                if p < end and (raw[p] == _SMALL_E or raw[p] == _LARGE_E):
                    kind = FRACTION
                    p += 1
                    below = p < end and raw[p] == _MINUS
                    if p < end and (raw[p] == _MINUS or raw[p] == _PLUS):
                        p += 1
                    a = p
                    exponent: Any = 0
                    while p < end and _ZERO <= raw[p] <= _NINE:
                        exponent = exponent * 10 + (np.int64(raw[p]) - _ZERO)
                        p += 1
                        if p - a > 4:
                            return SLOWLY
                    if p == a:
                        return SLOWLY
                    power += -exponent if below else exponent
                if kind == FRACTION:
                    if number >= _EXACT or power > 22 or power < -22:
                        return SLOWLY
                    fraction = float(number)
                    fraction = fraction * _POWERS[power] if power >= 0 else fraction / _POWERS[-power]
                    if negative:
                        fraction = -fraction
                else:
                    if negative:
                        number = -number
                    fraction = float(number)
            elif _is_word(raw, p, end, 116, 114, 117, 101):
                kind = BOOLEAN
                number = 1
                p += 4
            elif letter == 102 and _is_word(raw, p + 1, end, 97, 108, 115, 101):
                kind = BOOLEAN
                p += 5
            elif _is_word(raw, p, end, 110, 117, 108, 108):
                p += 4
            else:
                return SLOWLY
            if j < d:
                kinds[j, n] = kind
                values[j, n] = number
                floats[j, n] = fraction
                lengths[j, n] = length
            p = _skip(raw, p, end)
            if p >= end:
                return SLOWLY
            if raw[p] == _CLOSE:
                break
            if raw[p] != _COMMA:
                return SLOWLY
            p = _skip(raw, p + 1, end)
        p += 1
        if p - begin > longest:
            return SLOWLY
        starts[n] = written
        for q in range(begin, p):
            letters[written] = raw[q]
            written += 1
        for j in range(d):
            seen[j] |= np.uint8(1 << kinds[j, n])
        n += 1
        p = _skip(raw, p, end)
        if p < end and raw[p] != _NEWLINE:
            return SLOWLY
    starts[n] = written
    return n


@kernel
def gather_strings(raw, places, lengths, kinds, letters, starts):
    """Put the strings of one attribute one after the other; what is no string is empty there."""
    written = 0
    for k in range(starts.size - 1):
        starts[k] = written
        if kinds[k] == STRING:
            for q in range(places[k], places[k] + lengths[k]):
                letters[written] = raw[q]
                written += 1
    starts[starts.size - 1] = written
