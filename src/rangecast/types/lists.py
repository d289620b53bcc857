"""Lists of Python values of one type to codes, with no step of Python per value.

A list from rows mostly holds values of one type, and None where a row has none. Arrow takes such a list into
a column several times as fast when it is told the type as when it has to find out, and strings are looked up
in the vocabulary's own dictionary by a `map`. Every other list is left to columns.py.

    attribute    types, beside None      by
    Int          int                     Arrow, as int64
    Float        float                   Arrow, as float64
    Category     str                     the vocabulary's dictionary
    Timestamp    int                     Arrow, as int64
    Timestamp    datetime                Arrow, as timestamps; one without a zone is UTC
"""

from __future__ import annotations

import datetime as dt
import operator
import struct
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.types.attributes import MISSING, Attribute, Category, Codes, Float, Int, Timestamp, float_codes
from rangecast.types.columns import is_unicode
from rangecast.types.text import Text
from rangecast.types.vocabulary import UNKNOWN

_NONE = type(None)
_SHORT = 4096
_TYPES: dict[type[Attribute], type] = {Int: int, Float: float, Category: str, Text: str, Timestamp: int}

_ARROW: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    dt.datetime: pa.timestamp("us"),
}


def list_codes(attribute: Attribute, items: list[Any]) -> Codes | None:
    """The codes of a list whose values are all good; None where columns.py has to look at it.

    >>> list_codes(Int("a"), [5, None, 7]).tolist() == [5, MISSING, 7]
    True
    >>> list_codes(Int("a"), [5, "7"]) is None
    True
    """
    wanted = _TYPES.get(type(attribute))
    types = set(map(type, items))
    some = _NONE in types
    types.discard(_NONE)
    if isinstance(attribute, Timestamp):
        if attribute.unit != "us":
            return None
        wanted = dt.datetime if types == {dt.datetime} else wanted
    if wanted is None or types != {wanted}:
        return None
    if isinstance(attribute, Category):
        return _words(attribute, items, some)
    if len(items) <= _SHORT and wanted is not dt.datetime and not (some and wanted is float):
        return _short(items, wanted, some)
    try:
        column = pa.array(items, _ARROW[wanted], from_pandas=False)
    except (pa.ArrowException, OverflowError):
        return None
    if wanted is dt.datetime:
        column = column.view(pa.int64())
    if wanted is float:
        return float_codes(column.to_numpy(zero_copy_only=False))
    codes: Codes = np.array(column.fill_null(MISSING)) if some else column.to_numpy()
    # the smallest number is no value, and None is
    if np.count_nonzero(codes == MISSING) != column.null_count:
        return None
    return codes


def _short(items: list[Any], wanted: type, some: bool) -> Codes | None:
    """A short list, whose types are known, packed at once: in a third of numpy's time and a fifth of Arrow's,
    which would import pandas first, half a second; whole numbers with None among them in half of Arrow's."""
    if wanted is float:
        return float_codes(np.frombuffer(struct.pack(f"={len(items)}d", *items), np.float64))
    whole = [MISSING if item is None else item for item in items] if some else items
    try:
        codes = np.frombuffer(struct.pack(f"={len(items)}q", *whole), np.int64)
    except struct.error:
        return None
    missing = np.count_nonzero(codes == MISSING)
    # the smallest number is no value, and None is
    return None if missing and missing != items.count(None) else codes


def _words(attribute: Category, items: list[Any], some: bool) -> Codes | None:
    codes = attribute.vocabulary.look_up_all(items)
    strangers = np.flatnonzero(codes == UNKNOWN)
    if not len(strangers):
        return codes
    # None is in no dictionary either
    unknown = list(map(items.__getitem__, strangers.tolist()))
    if some:
        none = np.fromiter(map(operator.is_, unknown, repeat(None)), bool, len(unknown))
        codes[strangers[none]] = MISSING
        unknown = list(filter(None, unknown))
    # a string that cannot be written down is in no dictionary
    return codes if is_unicode("".join(unknown)) else None
