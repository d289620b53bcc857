"""Fuzz every encoder with arbitrary values: none raises, is wrong, or depends on the values beside it.

    python tests/fuzz/fuzz_values.py --seconds 60 --seed 7

Each round draws a column of nasty values for each type of attribute, in each form that a column may have (a
list, an object array, Arrow text of arbitrary bytes, a dictionary of those). It checks that a bad row has a
reason, that each value has the code that the plain definitions below give it, and that a row means the same
alone.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import re
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzzing

import rangecast as rc
from rangecast.types.attributes import LAST, MISSING
from rangecast.types.columns import describe

BAD = object()
NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?)\Z", re.I)
BLANK = " \t\n\r\f"
PIECES = [
    *"0123456789+-.eE ",
    "²",
    "٣",
    "\ud800",
    "\x00",
    "\u00a0",
    "nan",
    "inf",
    "9" * 19,
    "9007199254740993",
    "9223372036854775807",
    "0" * 40,
    "1e400",
    "e-99999999999999999999",
    "2026-01-02",
    "T03:04:05",
    ".123456789",
    "Z",
    "+01:00",
    "true",
    "'",
    "ß",
    "日本",
]
PLAIN = [
    0,
    -1,
    2**53 + 1,
    LAST,
    -LAST,
    MISSING,
    2**63,
    10**30,
    10**400,
    10**5000,
    0.5,
    -0.0,
    1e300,
    math.inf,
    -math.inf,
    math.nan,
    True,
    False,
    None,
    b"bytes",
    b"\xff",
    Decimal("9007199254740993"),
    Decimal("9007199254740993.5"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("1e-400"),
    Decimal("1e400"),
    dt.date(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59),
    dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=-23))),
    dt.time(1),
    np.datetime64("NaT"),
    np.datetime64(2**62, "s"),
    np.datetime64(300_001, "Y"),
    np.datetime64(17, "ps"),
    np.int8(-5),
    np.int64(2**53 + 1),
    np.uint64(2**64 - 1),
    np.float32(0.1),
    np.bool_(True),
    [1],
    {},
    object(),
    1j,
]


def drawn_text(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(6)))


def drawn_value(rng: random.Random):
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(PLAIN)
    if kind == 1:
        return rng.choice(
            [rng.getrandbits(64) - 2**63, rng.randrange(-9, 9), rng.random() * 10.0 ** rng.randrange(-9, 25)]
        )
    return drawn_text(rng)


def whole(value):
    """The code of a number as an Int, by exact arithmetic alone."""
    if isinstance(value, bool | np.bool_ | dt.date | bytes | complex | list | dict):
        return BAD
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return BAD
    if value is None or isinstance(value, np.datetime64):
        return MISSING
    if isinstance(value, str):
        text = value.strip(BLANK)
        if text.lower().lstrip("+-") in ("", "nan") and (not text or re.fullmatch(r"[+-]?nan", text, re.I)):
            return MISSING
        if not NUMBER.match(text) or not text.isascii():
            return BAD
        try:
            value = Decimal(text)
        except InvalidOperation:
            zero = not text.lower().partition("e")[0].strip("+-.0")
            return 0 if zero else BAD
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float | Decimal):
        if math.isnan(value) if isinstance(value, float) else value.is_nan():
            return MISSING
        if isinstance(value, float):
            if math.isinf(value):
                return BAD
            value = int(value) if value.is_integer() else Decimal(value)
        if isinstance(value, Decimal):
            if value.is_infinite() or not -(2**65) < value < 2**65 or value != value.to_integral_value():
                return BAD
            value = int(value)
    if not isinstance(value, int):
        return BAD
    return value if MISSING < value <= LAST else BAD


def nearest(value):
    """The double of a number as a Float; NaN where it is missing."""
    if isinstance(value, bool | np.bool_ | dt.date | bytes | complex | list | dict):
        return BAD
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return BAD
    if value is None or isinstance(value, np.datetime64):
        return math.nan
    if isinstance(value, str):
        text = value.strip(BLANK)
        if not text or re.fullmatch(r"[+-]?nan", text, re.I):
            return math.nan
        return float(text) if NUMBER.match(text) and text.isascii() else BAD
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan
    try:
        return float(value) if isinstance(value, int | float | Decimal | np.number) else BAD
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def word(value):
    """The string of a Category; None where it is missing."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if value is None or (isinstance(value, float | np.floating) and value != value):
        return None
    if isinstance(value, np.datetime64) and np.isnat(value):
        return None
    if isinstance(value, Decimal) and value.is_nan():
        return None
    if not isinstance(value, str):
        return BAD
    try:
        value.encode()
    except UnicodeEncodeError:
        return BAD
    return value


def encoded(attribute, column, grow=False):
    """The codes with BAD where a row is bad; each bad row has a reason that can be written down."""
    got = attribute.encode(column, grow=grow)
    codes = got.codes.tolist()
    assert len(got.bad) == len(got.reasons)
    for row, reason in zip(got.bad.tolist(), got.reasons, strict=True):
        assert reason.encode()
        assert codes[row] == MISSING
        codes[row] = BAD
    return codes


def check_column(values: list, forms: list) -> int:
    """One round; gives back how many values were encoded."""
    n = 0
    a, x, t = rc.Int("a"), rc.Float("x"), rc.Timestamp("t")
    for form in forms:
        c = rc.Category("c")
        assert encoded(a, form) == [whole(v) for v in values], shown(values)
        doubles = [v if v is BAD else nearest_code(x, v) for v in map(nearest, values)]
        assert encoded(x, form) == doubles, shown(values)
        words = encoded(c, form, grow=True)
        assert [w if w is BAD else c.decode(w) for w in words] == [word(v) for v in values], shown(values)
        times = encoded(t, form)
        n += 4 * len(values)
    for value, code in zip(values, times, strict=True):
        assert encoded(t, [value]) == [code], shown([value])
    return n + len(values)


def shown(values: list) -> str:
    """Values for a message; Python writes no number of 5,000 digits."""
    return ", ".join(map(describe, values))


def nearest_code(attribute, number):
    return MISSING if number != number else attribute.bracket(number)[0]


def forms_of(values: list, rng: random.Random) -> tuple[list, list]:
    """A column in every form that may hold it, and its values as a reader sees them."""
    if not all(isinstance(v, str | None) for v in values):
        objects = np.empty(len(values), object)
        objects[:] = values
        return values, [values, objects]
    raw = [None if v is None else v.encode(errors="surrogatepass") for v in values]
    binary = pa.array(raw, pa.binary())
    arrow = pa.StringArray.from_buffers(len(values), *binary.buffers()[1:], binary.buffers()[0])
    return values, [values, arrow, arrow.dictionary_encode(), np.array(values, object)]


def check(rng: random.Random, folder: Path) -> tuple[int, int]:
    """One column: (values encoded, columns)."""
    size = rng.randrange(1, 12)
    if rng.random() < 0.5:
        drawn = [drawn_text(rng) for _ in range(size)]
    else:
        drawn = [drawn_value(rng) for _ in range(size)]
    return check_column(*forms_of(drawn, rng)), 1


if __name__ == "__main__":
    fuzzing.main(__doc__, check, "{:,} values in {:,} columns, 0 raised, 0 wrong")
