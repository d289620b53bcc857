"""Instants as microseconds since 1970 in UTC: from Arrow, from numpy's datetime64, from text, from Python.

A time of any unit is `ticks * numerator / denominator` microseconds. What is finer than a microsecond is
cut off, or goes inwards where it is a bound. What lies beyond 63 bits of microseconds (the years -290,308
and 294,247) has no code, and its row is bad.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types.arrow_compute import pc
from rangecast.types.numerals import Integers, Mask, integers_of_floats

MISSING = -(2**63)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
_LAST = 2**63 - 1
_DAY = 86_400_000_000
# microseconds of a tick, as numerator and denominator; years and months are counted in days first
_UNITS = {
    "W": (7 * _DAY, 1),
    "D": (_DAY, 1),
    "h": (3_600_000_000, 1),
    "m": (60_000_000, 1),
    "s": (1_000_000, 1),
    "ms": (1_000, 1),
    "us": (1, 1),
    "ns": (1, 1_000),
    "ps": (1, 10**6),
    "fs": (1, 10**9),
    "as": (1, 10**12),
}
_YEARS = 300_000  # more than microseconds reach, and few enough that days do not wrap
_SAMPLE = 1_024
_DATE_LENGTH = len("'2026-01-31'")
_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ZONED = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


def other_unit(microseconds: int) -> str | None:
    """The unit in which whole numbers since 1970 would be a usual time, where microseconds would not be.

    That is where they lie in 1970 to 1973, and in seconds or milliseconds between 1973 and 5138; or beyond
    the year 5138, and in nanoseconds between 1973 and 2096.

    >>> other_unit(1_769_817_600), other_unit(1_769_817_600_000), other_unit(1_769_817_600_000_000)
    ('seconds', 'milliseconds', None)
    """
    if 10**8 <= microseconds < 10**14:
        return "seconds" if microseconds < 10**11 else "milliseconds"
    return "nanoseconds" if 10**17 <= microseconds < 4 * 10**18 else None


def unit_of_numbers(codes: Integers) -> str | None:
    """`other_unit` of a column of whole numbers, where the first of them all agree."""
    some = codes[:_SAMPLE]
    some = some[some != MISSING]
    if not len(some):
        return None
    unit = other_unit(int(some.min()))
    return unit if unit is not None and unit == other_unit(int(some.max())) else None


EPOCH_UNITS = ("s", "ms", "us", "ns")
"""In which whole numbers may count the time since 1970."""

# doubles from the first on are whole numbers, and from the second on no int64
_WHOLE, _LARGEST = 2.0**52, 2.0**63
_NUMERAL = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?\s*\Z")


def instants_of_ticks(ticks: Integers, unit: str, side: str) -> tuple[Integers, Mask | None]:
    """Codes of whole numbers of a unit since 1970; MISSING stays.

    >>> instants_of_ticks(np.array([1_769_817_600, MISSING]), "s", "value")[0].tolist()[0]
    1769817600000000
    """
    null = ticks == MISSING
    return _scaled(ticks, *_UNITS[unit], side, null if null.any() else None)


def instants_of_floats(numbers: npt.NDArray[Any], unit: str, side: str) -> tuple[Integers, Mask | None]:
    """Codes of numbers with fractions; NaN is MISSING. A double of seconds is good to a microsecond."""
    numerator, denominator = _UNITS[unit]
    numbers = numbers.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        products = numbers * numerator / denominator
        ticks = np.rint(products)
        # A product is the double nearest to what is meant, which tells its nearest tick in all but these two
        # cases. They are settled as one number is, since a column must not mean another instant than a value.
        ties = np.flatnonzero(np.abs(products - ticks) == 0.5)
        large = np.flatnonzero((np.abs(products) >= _WHOLE) & (np.abs(products) < _LARGEST))
    if len(ties):
        ticks[ties] = _nearest(numbers[ties], unit)
    codes, bad = integers_of_floats(ticks, side)
    if len(large):
        codes = codes.copy()
        codes[large] = _nearest(numbers[large], unit)
    return codes, bad


def _nearest(numbers: npt.NDArray[np.float64], unit: str) -> list[int]:
    """The tick nearest to each number, exactly; of two the even one."""
    numerator, denominator = _UNITS[unit]
    found = []
    for number in numbers.tolist():
        above, below = number.as_integer_ratio()
        above, below = above * numerator, below * denominator
        tick, over = divmod(2 * above + below, 2 * below)
        # exactly between two: the lower one, if that is even
        found.append(tick - 1 if over == 0 and tick % 2 else tick)
    return found


def instant_of_number(value: Any, unit: str, side: str) -> Any:
    """A number, or a text that is one, as microseconds since 1970; any other value as it is.

    >>> instant_of_number("1769817600.25", "s", "value"), instant_of_number("2026-01-31", "s", "value")
    (1769817600250000, '2026-01-31')
    """
    if isinstance(value, str) and _NUMERAL.match(value):
        value = Decimal(value.strip())
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating | Decimal
    ):
        return value
    if isinstance(value, float | np.floating | Decimal) and not math.isfinite(value):
        return value
    # not by `item`, which leaves a longdouble what it is
    plain = float(value) if isinstance(value, np.floating) else value
    ticks = Fraction(int(plain) if isinstance(plain, np.integer) else plain) * Fraction(*_UNITS[unit])
    if isinstance(value, float | np.floating):
        return round(ticks)
    return math.ceil(ticks) if side == "low" else math.floor(ticks)


def instants_of_arrow(data: pa.Array[Any], side: str) -> tuple[Integers, Mask | None]:
    """Codes of a column of timestamps or dates, and the rows that lie beyond."""
    kind = data.type
    if pa.types.is_date32(kind):
        unit, ticks = "D", data.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    else:
        unit = "ms" if pa.types.is_date64(kind) else kind.unit
        ticks = data.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    null = pc.is_null(data).to_numpy(zero_copy_only=False) if data.null_count else None
    return _scaled(ticks.astype(np.int64, copy=False), *_UNITS[unit], side, null)


def instants_of_numpy(data: npt.NDArray[Any], side: str) -> tuple[Integers, Mask | None]:
    """The same of datetime64 in any unit, also several of it such as datetime64[15m]; NaT is MISSING."""
    unit, count = np.datetime_data(data.dtype)
    ticks = data.astype(data.dtype.newbyteorder("="), copy=False).view(np.int64)
    absent = np.isnat(data)
    null = absent if absent.any() else None
    if unit == "generic":  # numpy gives no unit to NaT alone
        return np.full(len(data), MISSING, np.int64), ~absent
    if unit in ("Y", "M"):
        reach = _YEARS // count * (1 if unit == "Y" else 12)
        beyond = (ticks > reach) | (ticks < -reach)
        spans = np.where(beyond, 0, ticks) * count
        if null is not None:
            beyond &= ~null
        days = spans.view(f"datetime64[{unit}]").astype("datetime64[D]").view(np.int64)
        codes, bad = _scaled(days, _DAY, 1, side, null)
        beyond = beyond if bad is None else beyond | bad
        return codes, beyond if beyond.any() else None
    numerator, denominator = _UNITS[unit]
    return _scaled(ticks, numerator * count, denominator, side, null)


def _scaled(
    ticks: Integers, numerator: int, denominator: int, side: str, null: Mask | None
) -> tuple[Integers, Mask | None]:
    if null is not None:
        ticks = np.where(null, 0, ticks)
    bad: Mask | None = None
    if denominator > 1:
        exact = ticks if numerator == 1 else ticks.astype(object) * numerator
        codes = -(-exact // denominator) if side == "low" else exact // denominator
        if numerator > 1:  # datetime64[3ns]: too rare for more than Python's whole numbers
            bad = ((codes > _LAST) | (codes < -_LAST)).astype(bool)
            codes = np.where(bad, 0, codes).astype(np.int64)
    else:
        reach = _LAST // numerator
        if len(ticks) and (int(ticks.max()) > reach or int(ticks.min()) < -reach):
            bad = (ticks > reach) | (ticks < -reach)
            ticks = np.where(bad, 0, ticks)
        codes = ticks * numerator
    if null is not None:
        codes[null] = MISSING
    return codes, bad if bad is not None and bad.any() else None


def instants_of_text(data: pa.Array[Any], side: str) -> tuple[Integers, Mask | None]:
    """Codes of texts in ISO 8601; an empty text is MISSING."""
    text = pc.utf8_trim_whitespace(data)
    codes = np.full(len(data), MISSING, np.int64)
    bad = np.zeros(len(data), bool)
    zoned = pc.match_substring_regex(text, _ZONED).fill_null(False).to_numpy(zero_copy_only=False)
    for rows, kind in (
        (np.flatnonzero(zoned), pa.timestamp("us", "UTC")),
        (np.flatnonzero(~zoned), pa.timestamp("us")),
    ):
        part = text.take(pa.array(rows))
        try:
            codes[rows], _ = instants_of_arrow(part.cast(kind), side)
        except pa.ArrowInvalid:  # one bad or unusual text: each text by itself, once
            once = part.dictionary_encode()
            found = [_instant(word, kind) for word in once.dictionary.to_pylist()]
            where = once.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
            codes[rows] = np.array([*(MISSING if c is None else c for c in found), MISSING], np.int64)[where]
            bad[rows] = np.array([*(c is None for c in found), False])[where]
    return codes, bad if bad.any() else None


def _instant(word: str, kind: pa.DataType) -> int | None:
    """As Arrow reads it or else as Python does, so that it does not depend on the texts beside it."""
    if not word:
        return MISSING
    if _DATED.match(
        word
    ):  # nothing else is a time to Arrow, and its error takes 50 times as long as Python's
        try:
            return int(pa.scalar(word).cast(kind).value)
        except pa.ArrowInvalid:
            pass
    try:
        return microseconds_of(dt.datetime.fromisoformat(word), "value")
    except (ValueError, OverflowError):
        return None


def microseconds_of(value: dt.date, side: str) -> int:
    """The code of a Python date or datetime; one without a zone is in UTC."""
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    since = (value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value) - EPOCH
    # pandas' datetimes have nanoseconds
    return int(-(-since // MICROSECOND)) if side == "low" else int(since // MICROSECOND)


def odd_instant(operator: str, text: str, value: Any) -> bool:
    """Whether an instant that is compared so was perhaps meant otherwise (language/lint.py).

    >>> odd_instant("=", "2026-01-31", dt.datetime(2026, 1, 31)), odd_instant(">", "1769817600", 1769817600)
    (True, True)
    """
    if isinstance(value, int):
        return other_unit(value) is not None
    return operator in ("=", "!=", "<=") and len(text) <= _DATE_LENGTH
