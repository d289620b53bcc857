"""Decimal numbers as the doubles that are nearest to them.

A number is exact where its digits and its power of ten are exact doubles (Clinger 1990). Otherwise its digits
are multiplied by 128 bits of the power of five, of which the first 64 mostly tell how to round (Lemire 2021,
"Number parsing at a gigabyte per second", section 5). Where they do not, the number is left to others.

Digits are read eight at once: how many of eight bytes are digits is told by one comparison, and they are
joined by three multiplications (Lemire 2022, "Parse eight digits", has them for eight alone). A loop digit by
digit ends where the processor does not expect it, and takes a quarter longer on numbers of JSON.

    array    dtype    shape      meaning
    powers   uint64   (651, 2)   128 bits of each power of five from -342 on, the upper half first
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from rangecast.kernels.types.strings import eight
from rangecast.simd.compiler import inlined_kernel, kernel

LEAST_POWER, MOST_POWER = -342, 308
MISSING = -(2**63)
_LAST = 2**63 - 1
_NEARLY = _LAST // 10
_MOST_EXACT = 22
_EXACT = 1 << 53
_TENS = np.array([10.0**k for k in range(_MOST_EXACT + 1)])
_WHOLE_TENS = np.array([10**k for k in range(9)])
_ROOM = 10**10  # below this, eight more digits fit
_ZEROS = np.uint64(0x3030303030303030)
_BEYOND_NINE = np.uint64(0x7676767676767676)
_TOPS = np.uint64(0x8080808080808080)
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
