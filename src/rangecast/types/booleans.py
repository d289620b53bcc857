"""Booleans as people and programs write them: true and false, yes and no, 1 and 0.

    form                      true                       false
    a boolean                 True                       False
    a number                  1, 1.0                     0, 0.0
    a text, in any case       true, t, yes, y, on, 1     false, f, no, n, off, 0

An empty text, null and NaN are missing. Anything else is no boolean: it is given back as bad.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types.arrow_compute import pc
from rangecast.types.columns import Column
from rangecast.types.numerals import MISSING, Mask

_TRUE = ("true", "t", "yes", "y", "on", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "off", "0", "0.0")
_WORDS = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)
_CODES = np.array([*_WORDS.values(), MISSING], np.int64)


def boolean_of(value: Any) -> bool | None:
    """The boolean that one value writes, None where it is none.

    >>> boolean_of("Yes"), boolean_of(0), boolean_of("maybe"), boolean_of(2)
    (True, False, None, None)
    """
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    if isinstance(value, bool | np.bool_ | int | float | np.integer | np.floating):
        return bool(value) if value in (0, 1) else None
    return None


def boolean_codes(column: Column) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """1 for true, 0 for false, MISSING for none; and the rows with a value that is no boolean."""
    data = column.data
    if isinstance(data, pa.Array):
        kind = data.type
        if pa.types.is_boolean(kind):
            codes = data.cast(pa.int8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            if data.null_count:
                codes[data.is_null().to_numpy(zero_copy_only=False)] = MISSING
            return codes, None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return _codes_of_texts(data)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            return np.full(len(data), MISSING, np.int64), data.is_valid().to_numpy(zero_copy_only=False)
    elif data.dtype.kind == "b":
        return data.astype(np.int64), None
    elif data.dtype.kind == "O":
        return _codes_of_objects(data)
    elif data.dtype.kind not in "iuf":
        return np.full(len(data), MISSING, np.int64), ~np.isnat(data)
    numbers, bad = column.floats()
    codes = np.where(numbers == 1, 1, np.where(numbers == 0, 0, MISSING))
    wrong = (codes == MISSING) & ~np.isnan(numbers)
    return codes, wrong if bad is None else wrong | bad


def _codes_of_texts(texts: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], Mask]:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(texts.cast(pa.large_string())))
    known = pa.array(list(_WORDS), pa.large_string())  # not on import: that would load pandas
    found = pc.index_in(words, known).fill_null(len(known)).to_numpy(zero_copy_only=False)
    codes = _CODES[found]
    blank = pc.equal(words, "").fill_null(True).to_numpy(zero_copy_only=False)
    return codes, (codes == MISSING) & ~blank


def _codes_of_objects(items: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], Mask]:
    codes = np.full(len(items), MISSING, np.int64)
    bad = np.zeros(len(items), bool)
    for row, item in enumerate(items):
        truth = boolean_of(item)
        if truth is not None:
            codes[row] = truth
        elif item is not None and not (isinstance(item, str) and not item.strip()):
            # NaN, NaT and pandas' NA are nulls: none of them equals itself
            bad[row] = type(item).__name__ != "NAType" and bool(item == item)
    return codes, bad
