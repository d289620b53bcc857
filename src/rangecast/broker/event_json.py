"""Rows of an Arrow table as JSON objects: what consumers receive of events that were published as Arrow.

    type                                  JSON
    numbers, bool, null                   as they are; NaN and infinities are null
    strings, decimals, UUIDs              a string
    binary                                a string, base64
    date, time, timestamp                 a string, ISO 8601; with nine digits where nanoseconds are not whole
                                          microseconds, and in UTC where nobody here knows the time zone
    duration                              a string, ISO 8601
    list, struct, map                     an array, an object, an array of pairs
    dictionary, run-end encoded, a union  as the value that it stands for

A null of a column is left out. A few values cannot be written: a year that is not between 1 and 9999, a
duration of more than 999,999,998 days, a struct that has a name twice. Such an event is rejected when it is
published (`unwritable_rows`), since nobody could receive it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.types.strings import arrow_numbers

_EPOCH = dt.datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
# a day off the ends, as a time zone may move an instant by almost one
_FIRST_SECOND = -719_161 * _DAY  # 0001-01-02
_LAST_SECOND = 2_932_895 * _DAY  # 9999-12-30
_LONGEST_SECONDS = 999_999_998 * _DAY
_DEEPEST = 50  # a type that is nested deeper is tried by value


def json_rows(table: pa.Table, rows: npt.NDArray[np.int64]) -> list[bytes]:
    """Some rows as JSON objects of one line; empty bytes for one that cannot be written."""
    names = table.column_names
    columns = [_values(column, rows) for column in table.columns]
    texts = []
    for values in zip(*columns, strict=True):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        texts.append(b"" if any(type(v) is _Unwritable for v in values) else _encoded(row))
    return texts if columns else [b"{}"] * len(rows)


def unwritable_rows(table: pa.Table) -> dict[int, str]:
    """The rows of a table that cannot be written as JSON, and why."""
    bad: dict[int, str] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _always_writable(column.type) or _in_range(column):
            continue
        row = 0
        for chunk in column.chunks:
            for scalar in chunk:
                value = _tried(scalar)
                if type(value) is _Unwritable:
                    bad.setdefault(row, f"column {name!r} cannot be written as JSON: {value.reason}")
                row += 1
    return bad


def rows_kept(table: pa.Table, good: npt.NDArray[np.bool_]) -> pa.Table:
    """The rows of a table for which a flag is set, whatever the types of its columns."""
    try:
        return table.filter(pa.array(good))
    except pa.ArrowNotImplementedError:
        # of views and run-end encoded columns there are slices alone
        edges = np.flatnonzero(np.diff(good, prepend=False, append=False)).reshape(-1, 2).tolist()
        return pa.concat_tables([table.slice(a, b - a) for a, b in edges] or [table.slice(0, 0)])


class _Unwritable:
    """In place of a value that cannot be written."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _values(column: pa.ChunkedArray[Any], rows: npt.NDArray[np.int64]) -> Sequence[Any]:
    """The values of some rows, as msgspec takes them."""
    scalars: Sequence[Any]
    try:
        scalars = column.take(arrow_numbers(rows))
    except pa.ArrowNotImplementedError:
        scalars = [column[row] for row in rows.tolist()]
    kind = column.type
    # twice as fast as one by one; of nanoseconds Arrow makes an object of pandas, or none
    if _always_writable(kind) or (getattr(kind, "unit", "") != "ns" and _in_range(scalars)):
        # a time zone may be unknown here, and a damaged log may have anything: then one by one
        with contextlib.suppress(Exception):
            return [scalar.as_py() for scalar in scalars]
    return [_tried(scalar) for scalar in scalars]


def _tried(scalar: Any) -> Any:
    """A value as the JSON that was made of it, None for a null."""
    try:
        value = _plain(scalar)
        return None if value is None else msgspec.Raw(_encoded(value))
    except (
        Exception
    ) as error:  # whatever Arrow, a time zone or an extension type says: it is this value alone
        return _Unwritable(str(error)[:200] or type(error).__name__)


def _plain(scalar: Any) -> Any:
    """A value without what Arrow makes of it only with pandas, or not at all."""
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.DictionaryScalar() | pa.RunEndEncodedScalar() | pa.UnionScalar():
            return _plain(scalar.value)
        case pa.MapScalar():
            return [[_plain(pair[0]), _plain(pair[1])] for pair in map(_pair, scalar.values or ())]
        case (
            pa.ListScalar()
            | pa.LargeListScalar()
            | pa.FixedSizeListScalar()
            | pa.ListViewScalar()
            | pa.LargeListViewScalar()
        ):
            return [_plain(item) for item in scalar.values or ()]
        case pa.StructScalar():
            names = [field.name for field in scalar.type]
            if len(set(names)) < len(names):
                raise ValueError("a struct must have different names")
            return {name: _plain(item) for name, item in scalar.items()}
        case pa.TimestampScalar():
            return _timestamp(scalar.value, scalar.type.unit, scalar.type.tz, scalar)
        case pa.Time64Scalar() if scalar.type.unit == "ns":
            seconds, nanos = divmod(scalar.value, 10**9)
            return (dt.datetime.min + dt.timedelta(seconds=seconds)).time().isoformat() + _digits(nanos)
        case pa.DurationScalar():
            return _duration(scalar.value, scalar.type.unit)
    return scalar.as_py()


def _pair(entry: Any) -> tuple[Any, Any]:
    key, item = entry.values() if isinstance(entry, pa.StructScalar) else entry
    return key, item


def _timestamp(value: int, unit: str, zone: str | None, scalar: Any) -> str:
    seconds, part = divmod(value, _PER_SECOND[unit])
    moment = _EPOCH + dt.timedelta(seconds=seconds)
    offset = ""
    if zone is not None:
        try:
            there = pa.scalar(seconds, pa.timestamp("s", zone)).as_py()
        except OverflowError:
            raise
        except Exception:  # a zone that is not known here: the instant is known all the same
            offset = "Z"
        else:
            text = _encoded(there).decode().strip('"')
            moment, offset = there.replace(tzinfo=None), text[19:]
    return moment.isoformat() + _digits(part * (10**9 // _PER_SECOND[unit])) + offset


def _duration(value: int, unit: str) -> str:
    per = _PER_SECOND[unit]
    if abs(value) > _LONGEST_SECONDS * per:
        raise OverflowError("a duration may have 999,999,998 days")
    seconds, part = divmod(abs(value), per)
    days, seconds = divmod(seconds, _DAY)
    text = f"{days}D" if days else ""
    nanos = _digits(part * (10**9 // per)).rstrip("0")
    if seconds or nanos:
        text += f"T{seconds}{nanos}S"
    return ("-P" if value < 0 else "P") + (text or "0D")


def _digits(nanos: int) -> str:
    """What stands behind the seconds: nothing, six digits or nine."""
    if not nanos:
        return ""
    return f".{nanos:09}" if nanos % 1_000 else f".{nanos // 1_000:06}"


def _always_writable(kind: pa.DataType, depth: int = 0) -> bool:
    """Whether each value of a type can be written, and Arrow makes a Python object of it that does."""
    types = pa.types
    if depth > _DEEPEST:
        return False
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _always_writable(kind.value_type, depth + 1)
    if types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(
            _always_writable(field.type, depth + 1) for field in kind
        )
    if types.is_map(kind):
        return _always_writable(kind.key_type, depth + 1) and _always_writable(kind.item_type, depth + 1)
    if types.is_nested(kind):
        return not types.is_union(kind) and _always_writable(kind.value_type, depth + 1)
    return any(
        of_kind(kind)
        for of_kind in (
            types.is_integer,
            types.is_floating,
            types.is_boolean,
            types.is_null,
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
            types.is_fixed_size_binary,
            types.is_decimal,
            types.is_time32,
        )
    )


def _in_range(column: Any) -> bool:
    """Whether all values of a column of dates, timestamps or durations are within what can be written."""
    if not isinstance(column, pa.ChunkedArray):
        return False
    kind = column.type
    if pa.types.is_date32(kind):
        column, low, high = column.cast(pa.int32()), _FIRST_SECOND // _DAY, _LAST_SECOND // _DAY
    elif pa.types.is_timestamp(kind):
        per = _PER_SECOND[kind.unit]
        low, high = _FIRST_SECOND * per, _LAST_SECOND * per
    elif pa.types.is_duration(kind):
        high = _LONGEST_SECONDS * _PER_SECOND[kind.unit]
        low = -high
    else:
        return False
    ends = pc.min_max(column.cast(pa.int64()))
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    return least is None or (low <= least and greatest <= high)
