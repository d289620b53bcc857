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
    tables    int64    (3c, 3)     of columns of WORD: where their WordTable lies (machine/views.py)
    powers    uint64   (651, 2)    128 bits of each power of five from -342 on, the upper half first
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import config

from rangecast.kernels.loading.decimals import float_code, is_digit, read_number
from rangecast.kernels.machine.views import view
from rangecast.kernels.types.strings import eight, find_in, same_letters
from rangecast.simd.compiler import inlined_kernel, kernel

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
