"""Lines of JSON straight into codes: one pass over the bytes, and no column in between.

A line is taken here if it is one object whose keys are known and whose values are of the type that their
attribute commonly has. Every other line is ODD and left to those who read any JSON, so nothing is decided
here about meaning: what is taken means the same there. Odd are escapes, nested values, numbers for strings
and strings for numbers, fractions for whole numbers, numbers out of range or of more than 19 digits, instants
in uncommon forms, repeated keys, and what is not JSON. An attribute of TICKS takes microseconds beside the
text of INSTANT.

Objects mostly have their keys in one order, so a key is first compared with the one that came next before.

    array     dtype    shape       meaning
    keys      int64    (k, 4)      of each key: where it begins and ends in `spelled`, its kind, its column
    spelled   uint8                the keys in their quotes
    codes     int64    (c, n)      of each column and line its code; MISSING is there before
    spans     int32    (c, 3, n)   of a column of TEXT: begin and length of each string, of which 0 and -1 are
                                   there before; of a column of WORD: line, begin and length of each string
                                   that is no word of its table, one after the other
    counts    int64    c           how many those are
    marks     uint8    n           TAKEN, ODD or BLANK
    state     int64    2           the line to go on with, and the place of a key that is not known
    tables    int64    (3c, 3)     of columns of WORD: where their WordTable lies (simd/memory.py)
    powers    uint64   (651, 2)    128 bits of each power of five from -342 on, the upper half first
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from rangecast.simd.compiler import inlined_kernel, kernel
from rangecast.simd.memory import view
from rangecast.types.kernels import eight, find_in, four, same_letters

SKIPPED, INT, FLOAT, BOOL, WORD, INSTANT, TICKS, TEXT, UNSURE = range(9)
TAKEN, ODD, BLANK = range(3)
MISSING = -(2**63)
# between these a whole number is microseconds of an instant beyond doubt (types/instants.py)
_FEWEST_TICKS, _MOST_TICKS = 10**14, 10**17
_LONGEST = 1_000  # letters of a number that is passed over: Python reads no whole number of 4,300
_DAY = 86_400_000_000
_QUOTES = np.uint64(0x2222222222222222)
_SLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)


class LineKeys(NamedTuple):
    """What is read of lines, and how; see the module head."""

    keys: npt.NDArray[np.int64]
    spelled: npt.NDArray[np.uint8]
    tables: npt.NDArray[np.int64]
    powers: npt.NDArray[np.uint64]


class LineCodes(NamedTuple):
    """What was read; see the module head."""

    codes: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    marks: npt.NDArray[np.uint8]
    state: npt.NDArray[np.int64]


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _string_end(letters: Any, at: Any, end: Any) -> Any:
        """The place of the quote that ends a string, -1 where it has anything but plain letters."""
        while at < end:
            c = letters[at]
            if c == 34:
                return at
            if c == 92 or c < 32:
                return -1
            at += 1
        return -1

else:

    @inlined_kernel
    def _string_end(letters, at, end):
        """The place of the quote that ends a string, -1 where it has anything but plain letters."""
        while at + 8 <= end:
            word = eight(letters, at)
            quotes = word ^ _QUOTES
            slashes = word ^ _SLASHES
            found = (quotes - _ONES) & ~quotes
            found |= (slashes - _ONES) & ~slashes
            found |= (word - _SPACES) & ~word
            if found & _TOPS:
                break
            at += 8
        while at < end:
            c = letters[at]
            if c == 34:
                return at
            if c == 92 or c < 32:
                return -1
            at += 1
        return -1


@inlined_kernel
def _blanks_end(letters, at, end):
    while at < end and (letters[at] == 32 or letters[at] == 9 or letters[at] == 13):
        at += 1
    return at


@inlined_kernel
def _two(letters, at):
    """A number of two digits, -1 where they are none."""
    a, b = np.int64(letters[at]) - 48, np.int64(letters[at + 1]) - 48
    return a * 10 + b if 0 <= a <= 9 and 0 <= b <= 9 else -1


@inlined_kernel
def _instant(letters, a, b):
    """Microseconds of an instant in ISO 8601 as it is commonly written, MISSING for any other text."""
    n = b - a
    if n < 10 or letters[a + 4] != 45 or letters[a + 7] != 45:
        return np.int64(MISSING)
    century, years = _two(letters, a), _two(letters, a + 2)
    month, day = _two(letters, a + 5), _two(letters, a + 8)
    year = century * 100 + years
    if century < 0 or years < 0 or year < 2 or year > 9998 or month < 1 or month > 12 or day < 1:
        return np.int64(MISSING)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        longest = 29 if leap else 28
    if day > longest:
        return np.int64(MISSING)
    # years begin in March, so that the day that comes and goes is their last
    late = 1 if month <= 2 else 0
    y = year - late
    days = 365 * y + y // 4 - y // 100 + y // 400 + (153 * (month + 12 * late - 3) + 2) // 5 + day - 719_469
    micros = np.int64(0)
    if n > 10:
        if n < 16 or (letters[a + 10] != 84 and letters[a + 10] != 32) or letters[a + 13] != 58:
            return np.int64(MISSING)
        hours, minutes = _two(letters, a + 11), _two(letters, a + 14)
        if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
            return np.int64(MISSING)
        seconds = 0
        at = a + 16
        if at + 3 <= b and letters[at] == 58:
            seconds = _two(letters, at + 1)
            if seconds < 0 or seconds > 59:
                return np.int64(MISSING)
            at += 3
            if at < b and letters[at] == 46:
                first = at + 1
                at = first
                while at < b and is_digit(letters[at]):
                    micros = micros * 10 + np.int64(letters[at]) - 48
                    at += 1
                    if at - first > 6:
                        return np.int64(MISSING)
                if at - first == 3:
                    micros *= 1000
                elif at - first != 6:
                    return np.int64(MISSING)
        if at < b:
            if letters[at] == 90:
                at += 1
            elif at + 6 == b and (letters[at] == 43 or letters[at] == 45) and letters[at + 3] == 58:
                east, more = _two(letters, at + 1), _two(letters, at + 4)
                if east < 0 or east > 23 or more < 0 or more > 59:
                    return np.int64(MISSING)
                shift = east * 60 + more
                minutes += shift if letters[at] == 45 else -shift
                at += 6
            if at != b:
                return np.int64(MISSING)
        micros += (hours * 3600 + minutes * 60 + seconds) * np.int64(1_000_000)
    return days * np.int64(_DAY) + micros


@inlined_kernel
def _find_key(letters, at, end, known, near):
    """The key that begins at a place, first the one that is expected; -1 where it is not known."""
    n_keys = known.keys.shape[0]
    key = near
    for _ in range(n_keys):
        first = known.keys[key, 0]
        size = known.keys[key, 1] - first
        if at + size <= end and same_letters(letters, at, size, known.spelled, first):
            return key
        key += 1
        if key == n_keys:
            key = 0
    return -1


@inlined_kernel
def _literal(letters, at, end):
    """Of true, false or null at a place: where it ends and 1, 0 or -1; an end of -1 for anything else."""
    if at + 4 <= end:
        a, b, c, d = letters[at], letters[at + 1], letters[at + 2], letters[at + 3]
        if a == 110 and b == 117 and c == 108 and d == 108:
            return at + 4, -1
        if a == 116 and b == 114 and c == 117 and d == 101:
            return at + 4, 1
        if a == 102 and b == 97 and c == 108 and d == 115 and at + 5 <= end and letters[at + 4] == 101:
            return at + 5, 0
    return -1, 0


@inlined_kernel
def _take_string(letters, at, end, kind, column, line, known, out):
    """Read a string after its quote; returns the place behind it, -1 for an odd one."""
    stop = _string_end(letters, at, end)
    if stop < 0 or kind == SKIPPED:
        return stop + 1 if stop >= 0 else -1
    if kind == WORD:
        code = find_in(letters, at, stop - at, known.tables, column)
        out.codes[column, line] = code
        if code == 0:
            k = out.counts[column]
            out.spans[column, 0, k] = line
            out.spans[column, 1, k] = at
            out.spans[column, 2, k] = stop - at
            out.counts[column] = k + 1
    elif kind == INSTANT or kind == TICKS:
        code = _instant(letters, at, stop)
        if code == MISSING:
            return -1
        out.codes[column, line] = code
    elif kind == TEXT:
        out.spans[column, 1, line] = at
        out.spans[column, 2, line] = stop - at
    else:
        return -1
    return stop + 1


@inlined_kernel
def _take_number(letters, at, end, kind, column, line, known, out):
    """Read a number; returns the place behind it, -1 for an odd one."""
    stop, sign, digits, power, whole, many = read_number(letters, at, end)
    if stop >= 0 and kind == SKIPPED:
        return stop if stop - at < _LONGEST else -1
    if stop < 0 or many or (kind != INT and kind != FLOAT and kind != TICKS):
        return -1
    if kind != FLOAT:
        if not whole or (kind == TICKS and not (sign > 0 and _FEWEST_TICKS <= digits < _MOST_TICKS)):
            return -1
        out.codes[column, line] = sign * digits
    else:
        code = float_code(sign, digits, power, known.powers)
        if code == MISSING:
            return -1
        out.codes[column, line] = code
    return stop


@inlined_kernel
def _forget(out, line):
    """Leave out the strings of a line that is not taken, or is read again."""
    for column in range(out.counts.size):
        last = out.counts[column] - 1
        if last >= 0 and out.spans[column, 0, last] == line:
            out.counts[column] = last


@kernel
def read_lines(text, starts, known, stamps, out):
    """Read lines from state[0] on; `text` says where their letters lie.

    Returns whether all are done. If not, the place of a key that is not known is in state[1], in the line
    state[0], which is read again when the key is known. `stamps` has a 0 for each key.
    """
    letters = view(text[0], np.uint8)
    line = out.state[0]
    near = 0
    while line < starts.size - 1:
        at = _blanks_end(letters, starts[line], starts[line + 1])
        end = starts[line + 1]
        # the last letter of a line is its end
        while end > at and (letters[end - 1] == 10 or letters[end - 1] == 13):
            end -= 1
        if at >= end:
            out.marks[line] = BLANK
            line += 1
            continue
        mark = ODD
        if letters[at] == 123:
            at = _blanks_end(letters, at + 1, end)
            if at < end and letters[at] == 125:
                mark = TAKEN
                at += 1
            while mark == ODD and at < end and letters[at] == 34:
                key = _find_key(letters, at, end, known, near)
                if key < 0:
                    stop = _string_end(letters, at + 1, end)
                    if stop < 0:
                        break
                    _forget(out, line)
                    out.state[0] = line
                    out.state[1] = at
                    return False
                near = key + 1 if key + 1 < known.keys.shape[0] else 0
                if stamps[key] == line + 1:
                    break
                stamps[key] = line + 1
                at = _blanks_end(letters, at + known.keys[key, 1] - known.keys[key, 0], end)
                if at >= end or letters[at] != 58:
                    break
                at = _blanks_end(letters, at + 1, end)
                if at >= end:
                    break
                kind, column = known.keys[key, 2], known.keys[key, 3]
                c = letters[at]
                if kind == UNSURE:
                    break
                if c == 34:
                    at = _take_string(letters, at + 1, end, kind, column, line, known, out)
                elif c == 45 or is_digit(c):
                    at = _take_number(letters, at, end, kind, column, line, known, out)
                else:
                    at, said = _literal(letters, at, end)
                    if at >= 0 and said >= 0 and kind != SKIPPED:
                        if kind == BOOL:
                            out.codes[column, line] = said
                        else:
                            at = -1
                if at < 0:
                    break
                at = _blanks_end(letters, at, end)
                if at >= end:
                    break
                if letters[at] == 125:
                    mark = TAKEN
                    at += 1
                elif letters[at] == 44:
                    at = _blanks_end(letters, at + 1, end)
                else:
                    break
        if mark == TAKEN and _blanks_end(letters, at, end) < end:
            mark = ODD
        out.marks[line] = mark
        if mark == ODD:
            _forget(out, line)
        line += 1
    out.state[0] = line
    return True


@kernel
def trim_lines(text, starts, marks, letters, firsts):
    """Copy the lines that were taken one after the other, without blanks around them; returns the longest.

    `firsts` gets where each begins, and the end of the last one.
    """
    given = view(text[0], np.uint8)
    n = p = longest = 0
    for line in range(marks.size):
        if marks[line] != TAKEN:
            continue
        # a line that was taken begins and ends with a brace
        a, b = starts[line], starts[line + 1]
        while given[a] != 123:
            a += 1
        while given[b - 1] != 125:
            b -= 1
        firsts[n] = p
        n += 1
        for k in range(a, b):
            letters[p] = given[k]
            p += 1
        longest = max(longest, b - a)
    firsts[n] = p
    return longest


# Dicts as Python's `marshal` writes them, straight into codes: one pass over the bytes.
#
# What `marshal` writes of a list of dicts (version 4) is one object after the other, each a letter for its
# type and its content:
#
#     letter     object                     content
#     [          list                       how many objects follow, of four bytes
#     {          dict                       keys and values by turns, then the letter 0
#     z Z        string of ASCII, short     its length in one byte, its letters
#     a A        the same, long             its length in four bytes, its letters
#     u t        any other string           the same, in UTF-8; half of a surrogate pair is written too
#     i          whole number of 32 bits    four bytes
#     l          any other whole number     how many digits of 15 bits, below 0 for a negative number; two
#                                           bytes for each, the lowest first
#     g          double                     eight bytes
#     T F N      True, False, None          none
#     r          an object again            its number, of four bytes
#
# Objects that others hold too are numbered in the order in which they begin; the letter of such a one has its
# top bit set. So keys, which rows mostly share, are five bytes from the second row on.
#
# An object is taken here if it is of the type that its attribute commonly has; of anything else the kernel
# says ODD, and nothing that it read counts. As in lines of JSON (model/kernels_rows.py), a key is first
# compared with the one that came next before.
#
#     array     dtype    shape       meaning
#     keys      int64    (k, 3)      of each key: where it begins and ends in `spelled`, its kind; the first
#                                    keys are the columns
#     spelled   uint8                the keys, and eight bytes more
#     tables    int64    (3c, 3)     of columns of WORD: where their WordTable lies (simd/memory.py)
#     codes     int64    (c, n)      of each column and row its code; MISSING is there before
#     spans     int32    (c, 3, m)   of a column of WORD: row, begin and length of each string that is no word
#                                    of its table, one after the other; m is the number of rows of one call
#     counts    int64    c           how many those are
#     numbers   int64    k           the number by which each key was met last, -1 at first
#     met       uint8    k           whether a row has the key
#     begins    int32                where each numbered object begins
#     state     int64    5           the row to go on with, the place in the bytes, where it goes on behind a
#                                    row that was there before or 0, how many objects are numbered, and the
#                                    place of a key that is not known or 0

ROW_SKIPPED, ROW_INT, ROW_FLOAT, ROW_BOOL, ROW_WORD = range(5)
DONE, ROW_ODD, NEW_KEY = range(3)
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
        if kind == ROW_FLOAT:
            out.codes[column, row] = _float_code(np.int64(eight(letters, at + 1)))
        return at + 9 if kind == ROW_FLOAT or kind == ROW_SKIPPED else -1
    if mark == _WHOLE:
        if kind == ROW_INT:
            out.codes[column, row] = _number(letters, at + 1)
        elif kind == ROW_FLOAT:
            out.codes[column, row] = _float_code(bits_of(np.float64(_number(letters, at + 1))))
        elif kind != ROW_SKIPPED:
            return -1
        return at + 5
    if mark == _NONE:
        return at + 1
    if mark == _LONG:
        number, end = _long(letters, at + 1)
        if kind == ROW_SKIPPED:
            return end
        if kind != ROW_INT or number == MISSING:
            return -1
        out.codes[column, row] = number
        return end
    if mark == _TRUE or mark == _FALSE:
        if kind == ROW_BOOL:
            out.codes[column, row] = 1 if mark == _TRUE else 0
        return at + 1 if kind == ROW_BOOL or kind == ROW_SKIPPED else -1
    first, size = _string(letters, at)
    if size < 0 or (kind != ROW_WORD and kind != ROW_SKIPPED):
        return -1
    if kind == ROW_WORD and not _take_word(letters, at, first, size, column, row, known, out):
        return -1
    return first + size


@inlined_kernel
def _find_row_key(letters, first, size, known, near):
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
            return ROW_ODD
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
                return ROW_ODD
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
                    return ROW_ODD
                key = _find_row_key(letters, first, size, known, near)
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
                return ROW_ODD
            at = end if place == at else at + 5
        at = back if back else at + 1
        row += 1
    return DONE


# Decimal numbers as the doubles that are nearest to them.
#
# A number is exact where its digits and its power of ten are exact doubles (Clinger 1990). Otherwise its
# digits are multiplied by 128 bits of the power of five, of which the first 64 mostly tell how to round
# (Lemire 2021, "Number parsing at a gigabyte per second", section 5). Where they do not, the number is left
# to others.
#
# Digits are read eight at once: how many of eight bytes are digits is told by one comparison, and they are
# joined by three multiplications (Lemire 2022, "Parse eight digits", has them for eight alone). A loop digit
# by digit ends where the processor does not expect it, and takes a quarter longer on numbers of JSON.
#
#     array    dtype    shape      meaning
#     powers   uint64   (651, 2)   128 bits of each power of five from -342 on, the upper half first

LEAST_POWER, MOST_POWER = -342, 308
_LAST = 2**63 - 1
_NEARLY = _LAST // 10
_MOST_EXACT = 22
_EXACT = 1 << 53
_TENS = np.array([10.0**k for k in range(_MOST_EXACT + 1)])
_WHOLE_TENS = np.array([10**k for k in range(9)])
_ROOM = 10**10  # below this, eight more digits fit
_ZEROS = np.uint64(0x3030303030303030)
_BEYOND_NINE = np.uint64(0x7676767676767676)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_FOURS = np.uint64(0x0000FFFF0000FFFF)


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def bits_of(number: Any) -> Any:
        """The bits of a double."""
        return int(np.float64(number).view(np.int64))

    def _eight_digits(letters: Any, at: Any) -> Any:
        """How many of the next eight letters are digits, up to the first that is none, and their number."""
        n = 0
        number = np.int64(0)
        while n < 8 and 48 <= letters[at + n] <= 57:
            number = number * 10 + np.int64(letters[at + n]) - 48
            n += 1
        return n, number

    def _rounded(digits: Any, power: Any, powers: Any) -> Any:
        """The bits of digits * 10 ** power, -1 where they cannot be told."""
        number = float(f"{digits}e{power}")
        return bits_of(number) if 1e-300 < number < np.inf else -1

else:

    @intrinsic
    def bits_of(typing_context, number):
        """The bits of a double."""

        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], ir.IntType(64))

        return types.int64(types.float64), generate

    @intrinsic
    def _zeros_below(typing_context, word):
        """How many zeros stand below the lowest bit that is set, of a number that is not 0."""

        def generate(context, builder, signature, arguments):
            return builder.cttz(arguments[0], ir.IntType(1)(1))

        return types.int64(types.uint64), generate

    @inlined_kernel
    def _eight_digits(letters, at):
        """How many of the next eight letters are digits, up to the first that is none, and their number."""
        word = eight(letters, at) ^ _ZEROS
        others = ((word + _BEYOND_NINE) | word) & _TOPS
        n = _zeros_below(others) >> 3 if others else np.int64(8)  # type: ignore[call-arg]
        if n == 0:
            return np.int64(0), np.int64(0)
        # zeros before them, since the first letter is the lowest byte
        word <<= np.uint64(64 - 8 * n)
        word = (word * np.uint64(10) + (word >> np.uint64(8))) & _PAIRS
        word = (word * np.uint64(100) + (word >> np.uint64(16))) & _FOURS
        word = word * np.uint64(10_000) + (word >> np.uint64(32))
        return n, np.int64(word & np.uint64(0xFFFFFFFF))

    @inlined_kernel
    def _product(a, b):
        """Both halves of a product of 64 by 64 bits."""
        half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
        a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
        mid = a1 * b0 + ((a0 * b0) >> half)
        other = a0 * b1 + (mid & low)
        return a1 * b1 + (mid >> half) + (other >> half), a * b

    @kernel
    def _rounded(digits, power, powers):
        """The bits of digits * 10 ** power, -1 where they cannot be told."""
        if power < LEAST_POWER or power > MOST_POWER:
            return np.int64(-1)
        one = np.uint64(1)
        word = np.uint64(digits)
        zeros = 0
        while not word >> np.uint64(56):
            word <<= np.uint64(8)
            zeros += 8
        while not word >> np.uint64(63):
            word <<= one
            zeros += 1
        upper, lower = _product(word, powers[power - LEAST_POWER, 0])
        if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
            more, _ = _product(word, powers[power - LEAST_POWER, 1])
            lower += more
            if lower < more:
                upper += one
        if lower == np.uint64(0xFFFFFFFFFFFFFFFF) and (power < -27 or power > 55):
            return np.int64(-1)
        top = upper >> np.uint64(63)
        down = top + np.uint64(9)
        mantissa = upper >> down
        exponent = ((217_706 * power) >> 16) + 63 + np.int64(top) - zeros + 1023
        if exponent <= 0:
            return np.int64(-1)
        # a tie goes to the even number
        if (
            lower <= one
            and -4 <= power <= 23
            and mantissa & np.uint64(3) == one
            and mantissa << down == upper
        ):
            mantissa &= ~one
        mantissa += mantissa & one
        mantissa >>= one
        if mantissa >= one << np.uint64(53):
            mantissa = one << np.uint64(52)
            exponent += 1
        if exponent >= 0x7FF:
            return np.int64(-1)
        mantissa &= ~(one << np.uint64(52))
        return np.int64(mantissa) | (np.int64(exponent) << 52)


@inlined_kernel
def is_digit(c):
    return c >= 48 and c <= 57


@inlined_kernel
def _read_digits(letters, at, end, digits):
    """Digits behind others: where they end, the number that all are, and whether they are too many."""
    many = False
    if at + 8 <= letters.size and digits < _ROOM:
        n, number = _eight_digits(letters, at)
        if at + n <= end:
            digits = digits * _WHOLE_TENS[n] + number
            at += n
            if n < 8:
                return at, digits, many
    while at < end and is_digit(letters[at]):
        d = np.int64(letters[at]) - 48
        if digits >= _NEARLY and digits > (_LAST - d) // 10:
            many = True
            digits = np.int64(0)
        digits = digits * 10 + d
        at += 1
    return at, digits, many


@inlined_kernel
def read_number(letters, at, end):
    """A number: where it ends, its sign, digits and power of ten, whether it is written as a whole number,
    and whether it has more digits than are read. The end is -1 where it is no number of JSON.
    """
    sign = 1
    if at < end and letters[at] == 45:
        sign = -1
        at += 1
    first = at
    at, digits, many = _read_digits(letters, at, end, np.int64(0))
    if at == first or (letters[first] == 48 and at > first + 1):
        return -1, sign, digits, 0, True, many
    whole = True
    power = np.int64(0)
    if at < end and letters[at] == 46:
        whole = False
        at += 1
        first = at
        at, digits, more = _read_digits(letters, at, end, digits)
        many = many or more
        if at == first:
            return -1, sign, digits, 0, False, many
        power = first - at
    if at < end and (letters[at] | 32) == 101:
        whole = False
        at += 1
        down = False
        if at < end and (letters[at] == 43 or letters[at] == 45):
            down = letters[at] == 45
            at += 1
        first = at
        tens = np.int64(0)
        while at < end and is_digit(letters[at]):
            if tens < 100_000:
                tens = tens * 10 + np.int64(letters[at]) - 48
            at += 1
        if at == first:
            return -1, sign, digits, 0, False, many
        power += -tens if down else tens
    return at, sign, digits, power, whole, many


@inlined_kernel
def float_code(sign, digits, power, powers):
    """The code of a float, MISSING where it cannot be told."""
    if digits == 0:
        bits = np.int64(0)
    elif digits <= _EXACT and -_MOST_EXACT <= power <= _MOST_EXACT:
        number = np.float64(digits)
        number = number / _TENS[-power] if power < 0 else number * _TENS[power]
        bits = bits_of(number)
    else:
        bits = _rounded(digits, power, powers)
        if bits < 0:
            return np.int64(MISSING)
    # what is below zero: its bits, reordered
    return bits if sign > 0 or bits == 0 else ~bits


def powers_of_five() -> npt.NDArray[np.uint64]:
    """The table of powers, by Python's whole numbers: 128 bits of each, rounded as the method wants it."""
    out = []
    for power in range(LEAST_POWER, MOST_POWER + 1):
        if power < 0:
            whole = 5**-power
            bits = (whole - 1).bit_length()
            number = 2 ** (bits + 127 if power >= -27 else 2 * bits + 128) // whole + 1
        else:
            number = 5**power << 128
        number >>= number.bit_length() - 128
        out.append((number >> 64, number & (2**64 - 1)))
    return np.array(out, np.uint64)
