"""Dicts as Python's `marshal` writes them, straight into codes: one pass over the bytes.

What `marshal` writes of a list of dicts (version 4) is one object after the other, each a letter for its type
and its content:

    letter     object                     content
    [          list                       how many objects follow, of four bytes
    {          dict                       keys and values by turns, then the letter 0
    z Z        string of ASCII, short     its length in one byte, its letters
    a A        the same, long             its length in four bytes, its letters
    u t        any other string           the same, in UTF-8; half of a surrogate pair is written too
    i          whole number of 32 bits    four bytes
    l          any other whole number     how many digits of 15 bits, below 0 for a negative number; two
                                          bytes for each, the lowest first
    g          double                     eight bytes
    T F N      True, False, None          none
    r          an object again            its number, of four bytes

Objects that others hold too are numbered in the order in which they begin; the letter of such a one has its
top bit set. So keys, which rows mostly share, are five bytes from the second row on.

An object is taken here if it is of the type that its attribute commonly has; of anything else the kernel
says ODD, and nothing that it read counts. As in lines of JSON (kernels/loading/json_lines.py), a key is first
compared with the one that came next before.

    array     dtype    shape       meaning
    keys      int64    (k, 3)      of each key: where it begins and ends in `spelled`, its kind; the first
                                   keys are the columns
    spelled   uint8                the keys, and eight bytes more
    tables    int64    (3c, 3)     of columns of WORD: where their WordTable lies (machine/views.py)
    codes     int64    (c, n)      of each column and row its code; MISSING is there before
    spans     int32    (c, 3, m)   of a column of WORD: row, begin and length of each string that is no word
                                   of its table, one after the other; m is the number of rows of one call
    counts    int64    c           how many those are
    numbers   int64    k           the number by which each key was met last, -1 at first
    met       uint8    k           whether a row has the key
    begins    int32                where each numbered object begins
    state     int64    5           the row to go on with, the place in the bytes, where it goes on behind a
                                   row that was there before or 0, how many objects are numbered, and the
                                   place of a key that is not known or 0
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.loading.decimals import bits_of
from rangecast.kernels.machine.views import view
from rangecast.kernels.types.strings import eight, find_in, four, same_letters
from rangecast.simd.compiler import inlined_kernel, kernel

SKIPPED, INT, FLOAT, BOOL, WORD = range(5)
DONE, ODD, NEW_KEY = range(3)
MISSING = -(2**63)
_INFINITE = 0x7FF0000000000000  # bits above these are no number
_NUMBERED = 0x80
_ASCII, _SHORT_ASCII, _TEXT, _LIST, _DICT, _AGAIN = 97, 122, 117, 91, 123, 114
_WHOLE, _LONG, _DOUBLE, _NONE, _TRUE, _FALSE, _END = 105, 108, 103, 78, 84, 70, 48


class RowKeys(NamedTuple):
    """What is read of rows, and how; see the module head."""

    keys: npt.NDArray[np.int64]
    spelled: npt.NDArray[np.uint8]
    tables: npt.NDArray[np.int64]


class RowCodes(NamedTuple):
    """What was read; see the module head."""

    codes: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    met: npt.NDArray[np.uint8]
    begins: npt.NDArray[np.int32]
    state: npt.NDArray[np.int64]


@inlined_kernel
def _number(letters, at):
    """Four bytes as a number with a sign."""
    number = np.int64(four(letters, at))
    return number - (np.int64(1) << 32) if number >> 31 else number


@inlined_kernel
def _string(letters, at):
    """Where the letters of a string begin and how many there are; -1 where it is none."""
    mark = letters[at] & 0x7F
    if mark == _SHORT_ASCII or mark == _SHORT_ASCII - 32:
        return at + 2, np.int64(letters[at + 1])
    if mark == _ASCII or mark == _ASCII - 32 or mark == _TEXT or mark == _TEXT - 1:
        return at + 5, _number(letters, at + 1)
    return at, np.int64(-1)


@inlined_kernel
def _is_whole_text(letters, at, end):
    """Whether a text in UTF-8 has no half of a surrogate pair, which is written as 0xED and 0xA0 or more."""
    for k in range(at, end - 1):
        if letters[k] == 0xED and letters[k + 1] >= 0xA0:
            return False
    return True


@inlined_kernel
def _take_word(letters, at, first, size, column, row, known, out):
    """Take a string; returns whether it is Unicode."""
    code = find_in(letters, first, size, known.tables, column)
    out.codes[column, row] = code
    if code == 0:
        plain = letters[at] & 0x7F
        if (plain == _TEXT or plain == _TEXT - 1) and not _is_whole_text(letters, first, first + size):
            return False
        k = out.counts[column]
        out.spans[column, 0, k] = row
        out.spans[column, 1, k] = first
        out.spans[column, 2, k] = size
        out.counts[column] = k + 1
    return True


@inlined_kernel
def _float_code(bits):
    """The code of a double: its bits reordered; NaN is MISSING, and both zeros are one."""
    size = bits & np.int64(0x7FFFFFFFFFFFFFFF)
    if size > _INFINITE:
        return np.int64(MISSING)
    return bits if bits >= 0 else ~size if size else np.int64(0)


@inlined_kernel
def _long(letters, at):
    """A whole number of up to 63 bits behind its letter, MISSING where it is longer, and where it ends."""
    n = _number(letters, at)
    size = abs(n)
    end = at + 4 + 2 * size
    if size > 5 or (size == 5 and letters[end - 2] >= 8) or (size == 5 and letters[end - 1]):
        return np.int64(MISSING), end
    number = np.int64(0)
    for k in range(size):
        digit = np.int64(letters[at + 4 + 2 * k]) | (np.int64(letters[at + 5 + 2 * k]) << 8)
        number |= digit << (15 * k)
    return number if n >= 0 else -number, end


@inlined_kernel
def _take_value(letters, at, kind, column, row, known, out):
    """Take a value; returns the place behind it, -1 for an odd one."""
    mark = letters[at] & 0x7F
    if mark == _DOUBLE:
        if kind == FLOAT:
            out.codes[column, row] = _float_code(np.int64(eight(letters, at + 1)))
        return at + 9 if kind == FLOAT or kind == SKIPPED else -1
    if mark == _WHOLE:
        if kind == INT:
            out.codes[column, row] = _number(letters, at + 1)
        elif kind == FLOAT:
            out.codes[column, row] = _float_code(bits_of(np.float64(_number(letters, at + 1))))
        elif kind != SKIPPED:
            return -1
        return at + 5
    if mark == _NONE:
        return at + 1
    if mark == _LONG:
        number, end = _long(letters, at + 1)
        if kind == SKIPPED:
            return end
        if kind != INT or number == MISSING:
            return -1
        out.codes[column, row] = number
        return end
    if mark == _TRUE or mark == _FALSE:
        if kind == BOOL:
            out.codes[column, row] = 1 if mark == _TRUE else 0
        return at + 1 if kind == BOOL or kind == SKIPPED else -1
    first, size = _string(letters, at)
    if size < 0 or (kind != WORD and kind != SKIPPED):
        return -1
    if kind == WORD and not _take_word(letters, at, first, size, column, row, known, out):
        return -1
    return first + size


@inlined_kernel
def _find_key(letters, first, size, known, near):
    """The key that is spelled at a place, first the one that is expected; -1 where it is not known."""
    n_keys = known.keys.shape[0]
    key = near
    for _ in range(n_keys):
        begin = known.keys[key, 0]
        if known.keys[key, 1] - begin == size and same_letters(letters, first, size, known.spelled, begin):
            return key
        key = key + 1 if key + 1 < n_keys else 0
    return -1


@kernel
def read_rows(text, first_row, known, out):
    """Read the rows of one list from state[0] on, into the codes from `first_row` on.

    Returns DONE, ODD, or NEW_KEY: then the place of a key that is not known is in state[4], and the kernel
    goes on there when it is. `text` says where the bytes lie.
    """
    letters = view(text[0], np.uint8)
    row, at, back, n_numbered, inside = (
        out.state[0],
        out.state[1],
        out.state[2],
        out.state[3],
        out.state[4] != 0,
    )
    n = _number(letters, 1)
    if at == 0:
        if letters[0] & 0x7F != _LIST:
            return ODD
        if letters[0] & _NUMBERED:
            out.begins[0] = 0
            n_numbered = 1
        at = np.int64(5)
    near = 0
    while row < n:
        if not inside:
            back = np.int64(0)
            if letters[at] == _AGAIN:
                # the same dict once more: it is read where it stands, and nothing in it is numbered again
                back = at + 5
                at = np.int64(out.begins[_number(letters, at + 1)])
            elif letters[at] & _NUMBERED:
                out.begins[n_numbered] = at
                n_numbered += 1
            if letters[at] & 0x7F != _DICT:
                return ODD
            at += 1
            near = 0
        inside = False
        while letters[at] != _END:
            again = letters[at] == _AGAIN
            number = _number(letters, at + 1) if again else np.int64(-1)
            if again and number == out.numbers[near]:
                key, end = near, at + 5
            else:
                place = np.int64(out.begins[number]) if again else at
                first, size = _string(letters, place)
                if size < 0:
                    return ODD
                key = _find_key(letters, first, size, known, near)
                if key < 0:
                    out.state[0], out.state[1], out.state[2], out.state[3] = row, at, back, n_numbered
                    out.state[4] = place
                    return NEW_KEY
                end = first + size
                if again:
                    out.numbers[key] = number
                    end = at + 5
                elif letters[at] & _NUMBERED and back == 0:
                    out.begins[n_numbered] = at
                    out.numbers[key] = n_numbered
                    n_numbered += 1
            out.met[key] = 1
            near = key + 1 if key + 1 < known.keys.shape[0] else 0
            # the value: its letter, or that of the object that it is again
            at = end
            place = at
            if letters[at] == _AGAIN:
                place = np.int64(out.begins[_number(letters, at + 1)])
            elif letters[at] & _NUMBERED and back == 0:
                out.begins[n_numbered] = at
                n_numbered += 1
            end = _take_value(letters, place, known.keys[key, 2], key, first_row + row, known, out)
            if end < 0:
                return ODD
            at = end if place == at else at + 5
        at = back if back else at + 1
        row += 1
    return DONE
