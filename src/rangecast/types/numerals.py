"""Numbers as text and as decimals: whole numbers exactly, doubles correctly rounded.

No whole number passes through a double, which has 53 bits for the 63 of a code. What is common goes column
by column; each remaining text is read once, as a Decimal:

    form                          by
    up to 18 digits               Arrow, as int64
    up to 38 digits, also 5.0     Arrow, as decimal128
    any other text, 1e3 say       the double where it has a fraction, as its text does; otherwise a Decimal
    decimal, |unscaled| < 2^63    its own 64 bits, divided by a power of ten
    any other decimal             a Decimal

The limits of `int` and of Decimal (digits, exponents) are met nowhere: a text of any length is a number, or
its row is bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types.arrow_compute import pc

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

MISSING = -(2**63)
_LAST = 2**63 - 1
_INTEGER = r"^\s*[+-]?[0-9]{1,18}\s*$"
_LONG_INTEGER = r"^\s*[+-]?[0-9]{1,38}(?:\.0*)?\s*$"
_NUMBER = r"^\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)\s*$"
_NOTHING = r"^\s*([+-]?[nN][aA][nN])?\s*$"
_EXACT_DOUBLES = 2**53
_EXACT_POWERS = 22  # 10^22 is the last power of ten that is a double
_POWERS = 19  # and 10^18 the last that is an int64


def integers_of_ints(values: npt.NDArray[Any]) -> tuple[Integers, Mask | None]:
    """Codes of whole numbers of any width."""
    if values.dtype == np.uint64:
        bad = values > np.uint64(_LAST)
        return values.astype(np.int64), bad if bad.any() else None
    codes = values.astype(np.int64, copy=False)
    if values.dtype == np.int64:
        bad = codes == MISSING
        if bad.any():
            return codes.copy(), bad
    return codes, None


def integers_of_floats(values: npt.NDArray[Any], side: str) -> tuple[Integers, Mask | None]:
    """Codes of doubles: NaN is MISSING, a fraction is bad or goes inwards by `side`."""
    null = np.isnan(values)
    whole = np.ceil(values) if side == "low" else np.floor(values)
    # 2^63 is a double but no int64; the smallest int64 is MISSING
    fits = (whole < 2.0**63) & (whole > -(2.0**63))
    bad = ~fits & ~null
    if side == "value":
        bad |= (whole != values) & ~null
    codes = np.where(fits & ~null, whole, 0.0).astype(np.int64)
    codes[null] = MISSING
    if side != "value":
        # an infinite bound on its open side bounds nothing but presence
        open_side = np.isneginf(values) if side == "low" else np.isposinf(values)
        codes[open_side] = MISSING + 1 if side == "low" else _LAST
        bad &= ~open_side
    return codes, bad if bad.any() else None


def integers_of_decimals(data: pa.Array[Any], side: str) -> tuple[Integers, Mask | None]:
    """Codes of an Arrow column of decimals."""
    unscaled, fits, scale = _unscaled(data)
    null = pc.is_null(data).to_numpy(zero_copy_only=False)
    bad = np.zeros(len(data), bool)
    if 0 <= scale < _POWERS:
        codes = unscaled
        if scale:
            power = 10**scale
            codes = unscaled // power
            inexact = codes * power != unscaled
            if side == "value":
                bad |= inexact
            elif side == "low":
                codes += inexact
        bad |= codes == MISSING
    else:
        codes, fits = np.zeros(len(data), np.int64), np.zeros(len(data), bool)
    rest = np.flatnonzero(~fits & ~null)
    if len(rest):
        codes[rest], bad[rest] = integers_of_exact(data.take(pa.array(rest)).to_pylist(), side)
    bad &= ~null
    codes[null] = MISSING
    return codes, bad if bad.any() else None


def floats_of_decimals(data: pa.Array[Any]) -> Doubles:
    """The nearest doubles of an Arrow column of decimals; NaN where null."""
    unscaled, fits, scale = _unscaled(data)
    fits &= (unscaled <= _EXACT_DOUBLES) & (unscaled >= -_EXACT_DOUBLES)
    if 0 <= scale <= _EXACT_POWERS:
        # both are doubles, so that the quotient is the nearest one
        values = unscaled / 10.0**scale
    else:
        values, fits = np.zeros(len(data)), np.zeros(len(data), bool)
    null = pc.is_null(data).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero(~fits & ~null)
    if len(rest):
        # the fastest cast that rounds correctly is that of text; the one of decimals may be an ulp off
        text = data.take(pa.array(rest)).cast(pa.string())
        values[rest] = text.cast(pa.float64()).to_numpy(zero_copy_only=False)
    values[null] = np.nan
    return values


def _unscaled(data: pa.Array[Any]) -> tuple[Integers, Mask, int]:
    """The decimals times 10^scale where 64 bits hold them, which those are, and the scale."""
    scale: int = data.type.scale
    try:
        wide = data if pa.types.is_decimal128(data.type) else data.cast(pa.decimal128(38, scale))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a decimal256 of more digits
        return np.zeros(len(data), np.int64), np.zeros(len(data), bool), scale
    halves = np.frombuffer(wide.buffers()[1] or b"", np.int64).reshape(-1, 2)
    halves = halves[wide.offset : wide.offset + len(wide)]
    low = halves[:, 0].copy()  # of one row it would be a view, and codes are written into it
    return low, halves[:, 1] == low >> 63, scale


def integers_of_exact(values: Iterable[Decimal], side: str) -> tuple[Integers, Mask]:
    """Codes of Decimals one by one, and which have none."""
    whole = [_whole(value, side) for value in values]
    bad = np.array([code is None for code in whole], bool)
    return np.array([0 if code is None else code for code in whole], np.int64), bad


def _whole(value: Decimal, side: str) -> int | None:
    if value.is_nan():
        return MISSING
    if value.is_infinite():
        if side == "value" or (value > 0) is (side == "low"):
            return None
        return MISSING + 1 if side == "low" else _LAST
    if not -(2**64) < value < 2**64:
        return None
    if side == "value":
        if value != value.to_integral_value():
            return None
        code = int(value)
    else:
        code = math.ceil(value) if side == "low" else math.floor(value)
    return code if MISSING < code <= _LAST else None


def integers_of_text(data: pa.Array[Any], side: str) -> tuple[Integers, Mask | None]:
    """Codes of texts; a text that is empty, or says NaN, is MISSING."""
    quick = _cast_of_letters(data, _DIGIT_LETTERS, pa.int64())
    if quick is not None:
        codes = quick.fill_null(MISSING).to_numpy(zero_copy_only=False)
        if np.count_nonzero(codes == MISSING) == data.null_count:  # the smallest number is none
            return codes, None
    plain = _matches(data, _INTEGER)
    codes = np.full(len(data), MISSING, np.int64)
    codes[plain] = _digits(data.filter(pa.array(plain))).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if plain.all():
        return codes, None
    rows = np.flatnonzero(~plain)
    bad = np.zeros(len(data), bool)
    rest = data.take(pa.array(rows))
    long = _matches(rest, _LONG_INTEGER)
    if long.any():
        digits = pc.replace_substring_regex(_digits(rest.filter(pa.array(long))), r"\.0*$", "")
        decimals = digits.cast(pa.decimal128(38, 0))
        codes[rows[long]], off = integers_of_decimals(decimals, side)
        if off is not None:
            bad[rows[long]] = off
        rows, rest = rows[~long], rest.filter(pa.array(~long))
    if len(rows):
        once = rest.dictionary_encode()
        found, off = _integers_of_numerals(once.dictionary, side)
        # a null has no entry: it takes the one that stands behind the last
        where = once.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        codes[rows] = np.append(found, MISSING)[where]
        bad[rows] = np.append(off, False)[where]
    return codes, bad if bad.any() else None


def _integers_of_numerals(data: pa.Array[Any], side: str) -> tuple[Integers, Mask]:
    numbers, wrong = floats_of_text(data)
    codes, off = integers_of_floats(numbers, side)
    bad = np.zeros(len(data), bool) if off is None else off
    # a double with a fraction has the whole part of its text; one without may have lost digits
    doubtful = np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**64)
    for row in np.flatnonzero(doubtful).tolist():
        code = _whole(_decimal(data[row].as_py().strip(), numbers[row]), side)
        bad[row] = code is None
        codes[row] = MISSING if code is None else code
    overflown = _matches(data, r"[0-9]") & np.isinf(numbers)
    return codes, bad | overflown if wrong is None else bad | overflown | wrong


def _decimal(text: str, nearest: float) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        # An exponent that Decimal does not take. The double is 0, or it would be infinite: what matters is
        # on which side of it the number lies.
        if not text.lower().partition("e")[0].strip("+-.0"):
            return Decimal(0)
        return Decimal("0.5").copy_sign(Decimal(nearest))


def floats_of_text(data: pa.Array[Any]) -> tuple[Doubles, Mask | None]:
    """The nearest doubles of texts; a text that is empty, or says NaN, is NaN."""
    quick = _cast_of_letters(data, _DECIMAL_LETTERS, pa.float64())
    if quick is not None:
        return np.asarray(quick.to_numpy(zero_copy_only=False), np.float64), None
    number = _matches(data, _NUMBER)
    values = np.full(len(data), np.nan)
    values[number] = _digits(data.filter(pa.array(number))).cast(pa.float64()).to_numpy(zero_copy_only=False)
    if number.all():
        return values, None
    nothing = pc.match_substring_regex(data, _NOTHING).fill_null(True).to_numpy(zero_copy_only=False)
    bad = ~number & ~nothing
    return values, bad if bad.any() else None


def _cast_of_letters(data: pa.Array[Any], allowed: Mask, kind: pa.DataType) -> pa.Array[Any] | None:
    """Texts as Arrow casts them if they are made of these letters alone and all can be cast, or None.

    A tenth of the time of asking a regular expression about each text: among such letters Arrow takes nothing
    that we do not.
    """
    wide = pa.types.is_large_string(data.type)
    if not len(data) or not (wide or pa.types.is_string(data.type)):
        return None
    _, starts, letters = data.buffers()
    if letters is None:
        return None
    ends = np.frombuffer(starts, np.int64 if wide else np.int32)[data.offset : data.offset + len(data) + 1]
    if not allowed[np.frombuffer(letters, np.uint8)[ends[0] : ends[-1]]].all():
        return None
    try:
        return data.cast(kind)
    except pa.ArrowInvalid:
        return None


def _letters(which: bytes) -> Mask:
    allowed = np.zeros(256, bool)
    allowed[list(which)] = True
    return allowed


_DIGIT_LETTERS, _DECIMAL_LETTERS = _letters(b"0123456789-"), _letters(b"0123456789-.")


def _digits(text: pa.Array[Any]) -> pa.Array[Any]:
    """Numbers as Arrow casts them: without spaces, without a +."""
    return pc.utf8_ltrim(pc.utf8_trim_whitespace(text), characters="+")


def _matches(data: pa.Array[Any], pattern: str) -> Mask:
    found: Mask = pc.match_substring_regex(data, pattern).fill_null(False).to_numpy(zero_copy_only=False)
    return found
