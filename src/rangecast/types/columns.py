"""Columns as they come from users, brought to one of four plain forms.

A column may be a numpy array, a list, a pandas Series, an Arrow array or chunked array. `as_column`
wraps it once; `integers`, `floats`, `microseconds` and `strings` give the values in the form that an
attribute encodes, and a mask of the rows that have no such value. Text (from CSV, say) is read as
numbers or times where the attribute wants those; the empty string is a null there (`numerals.py`,
`instants.py`).

No column raises for a value that it holds, and no value is read differently for the values beside it. A list
becomes an Arrow column where that changes none of its values; otherwise it stays a column of objects, which
are sorted by their type and read type by type.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types.arrow_compute import pc
from rangecast.types.instants import (
    instant_of_number,
    instants_of_arrow,
    instants_of_floats,
    instants_of_numpy,
    instants_of_text,
    instants_of_ticks,
    microseconds_of,
)
from rangecast.types.numerals import (
    MISSING,
    Mask,
    floats_of_decimals,
    floats_of_text,
    integers_of_decimals,
    integers_of_exact,
    integers_of_floats,
    integers_of_ints,
    integers_of_text,
)
from rangecast.types.strings import without_views

LISTS = (list, tuple, set, frozenset, np.ndarray)
"""What a cell with several values may be."""

_TRUNCATE = 60
# What Arrow raises for a list that is not a column of its own: a mixture, a text that is not Unicode, an
# integer of more than 64 bits, a Decimal that is no number.
_NO_COLUMN = (pa.ArrowException, ValueError, TypeError, ArithmeticError, AttributeError, RecursionError)


def describe(value: Any) -> str:
    """A value and its type, for messages.

    >>> describe("abc"), describe(None)
    ("the string 'abc'", 'null')
    """
    if value is None:
        return "null"
    value = value.item() if isinstance(value, np.generic) else value
    try:
        shown = repr(value)
    except Exception:  # an int of more digits than Python writes, or an object with a repr that fails
        shown = f"a value of type {type(value).__name__}"
    shown = shown if len(shown) <= _TRUNCATE else shown[: _TRUNCATE - 3] + "..."
    if isinstance(value, _Shown):
        return shown
    if isinstance(value, str):
        return f"the string {shown}"
    if isinstance(value, bool):
        return f"the boolean {shown}"
    if isinstance(value, float):
        return f"the number {shown}"
    return shown


def arrow_of(values: Any) -> Any:
    """What hands its values over by Arrow's C interface, as an Arrow column; anything else as it is.

    A Series of pandas stays as it is: what it is of is known better from its own type.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray) or type(values).__module__.startswith("pandas."):
        return values
    if hasattr(values, "__arrow_c_array__"):
        return pa.array(values)
    return pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else values


def as_column(values: Any) -> Column:
    """Wrap whatever a user gave as a column."""
    if isinstance(values, Column):
        return values
    values = arrow_of(values)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # an Arrow column too large for one array
            values = pa.concat_arrays(values.chunks)
    if isinstance(values, pa.Array):
        return _arrow_column(values)
    if isinstance(values, np.ma.MaskedArray):
        return _masked_column(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufbM":
        return Column(np.ascontiguousarray(values))
    # a pandas Series has these, without importing pandas
    series = hasattr(values, "to_numpy") and hasattr(values, "dtype")
    if series and values.dtype == object:
        values, series = values.to_numpy(), False
    items = values if series or isinstance(values, np.ndarray) else list(values)
    types = set() if series else set(map(type, items))
    if np.datetime64 in types and len(types) > 1:
        # pyarrow 26 ends the process where one list has datetime64 and other scalars of numpy
        return Column(np.fromiter(items, object, len(items)))
    try:
        made = pa.array(items, from_pandas=True)
    except _NO_COLUMN:
        return Column(np.fromiter(items, object, len(items)))
    if isinstance(made, pa.ChunkedArray):
        made = made.combine_chunks()
    if not series and _coerced(made.type, types):
        return Column(np.fromiter(items, object, len(items)))
    return Column(_undictionary(made))


def _coerced(kind: pa.DataType, types: set[type]) -> bool:
    """Whether Arrow may have made one type of several: bytes of text, numbers of booleans, whole numbers
    of numpy's half doubles, days of times, and doubles of numpy's whole numbers, of which it takes a uint64
    above 63 bits for a negative one; and one type of objects, of which it is each that is no value."""
    inner = kind
    while pa.types.is_list(inner):
        inner = inner.value_type
    if pa.types.is_struct(inner):
        return True
    if pa.types.is_binary(kind):
        return True
    if pa.types.is_integer(kind):
        return any(issubclass(one, np.bool_ | np.floating) for one in types)
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_temporal(kind)):
        return False
    if pa.types.is_temporal(kind):
        return len(types - {type(None)}) > 1
    return any(issubclass(one, bool | np.bool_ | np.integer) for one in types)


def _arrow_column(values: pa.Array[Any]) -> Column:
    """A column of the user's own, whose text may be any bytes: Parquet's readers do not check it."""
    values = without_views(values)  # Arrow looks for no pattern in a view
    kind = values.type
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    values = _undictionary(values)
    if not _is_text(text):
        return Column(values)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        large = values.cast(pa.large_binary())
        return Column(np.fromiter(map(_text_or_bytes, large.to_pylist()), object, len(large)))
    return Column(values)


def _text_or_bytes(raw: bytes | None) -> str | bytes | None:
    try:
        return raw if raw is None else raw.decode()
    except UnicodeDecodeError:
        return raw


def _masked_column(values: np.ma.MaskedArray[Any, Any]) -> Column:
    data, mask = values.data, np.ma.getmaskarray(values)
    if data.dtype.kind == "M":
        return Column(np.where(mask, np.datetime64("NaT"), data).astype(data.dtype))
    if data.dtype.kind in "iufb":
        return Column(pa.array(data, mask=mask))
    return as_column([None if hidden else value for value, hidden in zip(data.tolist(), mask, strict=True)])


def _undictionary(array: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    return array


class Column:
    """A wrapped column: a typed numpy array, an Arrow array, or a numpy array of mixed objects."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    @property
    def is_numeric(self) -> bool:
        """Whether all of it are numbers, by its type."""
        if isinstance(self.data, np.ndarray):
            return self.data.dtype.kind in "iuf"
        return bool(pa.types.is_integer(self.data.type) or pa.types.is_floating(self.data.type))

    def values_at(self, rows: npt.NDArray[np.int64]) -> list[Any]:
        """The original values of some rows, for messages."""
        if not isinstance(self.data, pa.Array):
            return [_Shown(repr(v)) if isinstance(v, np.datetime64) else v for v in self.data[rows]]
        if _is_no_value(self.data.type):
            return [_Shown(f"a column of type {self.data.type}")] * len(rows)
        taken = self.data.take(pa.array(rows))
        try:
            return list(taken.to_pylist())
        except (*_NO_COLUMN, ImportError):  # a time beyond Python's calendar, or finer than its clock
            return [_Shown(f"{scalar.type} {scalar.value}") for scalar in taken]

    def integers(self, side: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Whole numbers; MISSING where null. A bound between two numbers goes inwards by `side`."""
        data = self.data
        if isinstance(data, np.ndarray):
            if data.dtype.kind in "iu":
                return integers_of_ints(data)
            if data.dtype.kind == "f":
                return integers_of_floats(data, side)
            if data.dtype.kind == "O":
                return self._by_type("integers", side)
        else:
            kind = data.type
            if pa.types.is_integer(kind):
                values = data.fill_null(0).to_numpy(zero_copy_only=False)
                codes, bad = integers_of_ints(values)
                if data.null_count:
                    codes = codes.copy() if codes is values else codes
                    codes[_nulls(data)] = MISSING
                return codes, bad
            if pa.types.is_floating(kind):
                return integers_of_floats(_floats_of_arrow(data), side)
            if pa.types.is_decimal(kind):
                return integers_of_decimals(data, side)
            if _is_text(kind):
                return integers_of_text(data, side)
        return np.full(len(data), MISSING, np.int64), self._present()

    def floats(self) -> tuple[npt.NDArray[np.float64], Mask | None]:
        """Numbers; NaN where null."""
        data = self.data
        if isinstance(data, np.ndarray):
            if data.dtype.kind in "iuf":
                return data.astype(np.float64), None
            if data.dtype.kind == "O":
                return self._by_type("floats", "value")
        else:
            kind = data.type
            if pa.types.is_integer(kind) or pa.types.is_floating(kind):
                return _floats_of_arrow(data), None
            if pa.types.is_decimal(kind):
                return floats_of_decimals(data), None
            if _is_text(kind):
                return floats_of_text(data)
        return np.full(len(data), np.nan), self._present()

    def microseconds(self, side: str, unit: str = "us") -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Instants as microseconds since 1970 UTC; MISSING where null. Numbers count in the unit."""
        if unit != "us":
            return self._counted(side, unit)
        data = self.data
        if isinstance(data, np.ndarray):
            if data.dtype.kind == "M":
                return instants_of_numpy(data, side)
            if data.dtype.kind == "O":
                return self._by_type("microseconds", side)
        elif pa.types.is_timestamp(data.type) or pa.types.is_date(data.type):
            return instants_of_arrow(data, side)
        elif _is_text(data.type):
            return instants_of_text(data, side)
        return self.integers(side)

    def _counted(self, side: str, unit: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """As `microseconds` where numbers, and texts that are numbers, count in another unit."""
        data = self.data
        if self.is_numeric:
            whole = (
                data.dtype.kind in "iu" if isinstance(data, np.ndarray) else pa.types.is_integer(data.type)
            )
            if not whole:
                return instants_of_floats(self.floats()[0], unit, side)
            ticks, bad = self.integers(side)
            codes, beyond = instants_of_ticks(ticks, unit, side)
            return codes, beyond if bad is None else bad if beyond is None else bad | beyond
        items: Any = data
        if isinstance(data, pa.Array):
            if not (_is_text(data.type) or pa.types.is_decimal(data.type)):
                return self.microseconds(side)
            items = data.to_pylist()
        elif data.dtype.kind != "O":
            return self.microseconds(side)
        found = np.empty(len(items), object)
        found[:] = [instant_of_number(item, unit, side) for item in items]
        return Column(found).microseconds(side)

    def strings(self) -> tuple[pa.Array[Any], Mask | None]:
        """Strings, null where null; booleans become 'true' and 'false'."""
        data = self.data
        if isinstance(data, np.ndarray) and data.dtype.kind == "b":
            data = pa.array(data)
        if isinstance(data, pa.Array):
            kind = data.type
            if pa.types.is_boolean(kind):
                return pc.if_else(data, "true", "false"), None
            if _is_text(kind) or pa.types.is_null(kind):
                return data.cast(pa.large_string()), None
        if not isinstance(data, np.ndarray) or data.dtype.kind != "O":
            return pa.nulls(len(data), pa.large_string()), self._present()
        words: list[str | None] = [None] * len(data)
        bad = np.zeros(len(data), bool)
        for row, item in enumerate(data):
            if isinstance(item, bool | np.bool_):
                words[row] = "true" if item else "false"
            elif isinstance(item, str) and is_unicode(item):
                words[row] = str(item)
            else:
                # a float NaN is how numpy and pandas write a null among strings
                bad[row] = not (item is None or _reader_of(item) is _nothing or _is_nan(item))
        return pa.array(words, pa.large_string()), bad

    def _present(self) -> Mask | None:
        """The rows with a value, all of which are bad where a column's type is none that is asked for."""
        data = self.data
        if isinstance(data, np.ndarray):
            return ~(np.isnat(data) if data.dtype.kind == "M" else data != data)
        if pa.types.is_floating(data.type):
            return ~np.isnan(_floats_of_arrow(data))
        return ~_nulls(data)

    def _by_type(self, form: str, side: str) -> tuple[Any, Mask]:
        """Mixed objects: those of one type are a column of their own."""
        n = len(self.data)
        out: Any = np.full(n, np.nan) if form == "floats" else np.full(n, MISSING, np.int64)
        bad = np.zeros(n, bool)
        groups: dict[_ValueReader, list[int]] = {}
        for row, item in enumerate(self.data):
            groups.setdefault(_READERS.get(type(item)) or _reader_of(item), []).append(row)
        for read, rows in groups.items():
            values, wrong = read(self.data[rows], form, side)
            if values is not None:
                out[rows] = values
            bad[rows] = False if wrong is None else wrong
        return out, bad


# Reads objects of one type in one of the forms: values, or None where they have none, and who is bad.
_ValueReader = Callable[[npt.NDArray[Any], str, str], tuple[Any, Mask | bool | None]]


def _reader_of(item: Any) -> _ValueReader:
    """The reader of a type that is not listed: numpy's and pandas' own, and what no attribute takes."""
    if isinstance(item, bool | np.bool_):
        return _nonsense
    if isinstance(item, dt.date):  # pandas' NaT is a datetime too, one that differs from itself
        return _instants if item == item else _nothing
    if isinstance(item, np.datetime64):
        return _nothing if np.isnat(item) else _numpy_instants
    for types, read in (
        (str, _texts),
        (int | np.integer, _ints),
        (float | np.floating, _doubles),
        (Decimal, _decimals),
    ):
        if isinstance(item, types):
            return read
    return _nothing if type(item).__name__ == "NAType" else _nonsense


def _nothing(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, bool]:
    return None, False


def _nonsense(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, bool]:
    return None, True


def _texts(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, Mask]:
    good = np.fromiter(map(is_unicode, items), bool, len(items))
    texts = pa.array(items, pa.large_string(), mask=~good)
    values, wrong = _read(Column(texts), form, side)
    return values, ~good if wrong is None else ~good | wrong


def _ints(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, Mask | None]:
    if form == "floats":
        return np.array([_nearest_double(int(item)) for item in items]), None
    bad = np.fromiter((not MISSING < item < 2**63 for item in items), bool, len(items))
    return np.where(bad, 0, items).astype(np.int64), bad


def _doubles(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, Mask | None]:
    return _read(Column(items.astype(np.float64)), form, side)


def _decimals(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, Mask | None]:
    if form == "floats":
        return np.array([np.nan if item.is_nan() else float(item) for item in items]), None
    return integers_of_exact(items, side)


def _instants(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, Mask | bool]:
    if form != "microseconds":
        return None, True
    codes = np.full(len(items), MISSING, np.int64)
    bad = np.zeros(len(items), bool)
    for row, item in enumerate(items):
        try:
            codes[row] = microseconds_of(item, side)
        except Exception:  # of a zone, which may be anybody's code
            bad[row] = True
    return codes, bad


def _numpy_instants(items: npt.NDArray[Any], form: str, side: str) -> tuple[Any, Mask]:
    # one by one: the units may differ, and numpy wraps around where it makes one of them
    found = [_read(Column(np.array([item])), form, side) for item in items]
    bad = np.array([wrong is not None and bool(wrong[0]) for _, wrong in found])
    return np.array([values[0] for values, _ in found]), bad


def _read(column: Column, form: str, side: str) -> tuple[Any, Mask | None]:
    if form == "floats":
        return column.floats()
    return column.integers(side) if form == "integers" else column.microseconds(side)


_READERS: dict[type, _ValueReader] = {
    type(None): _nothing,
    str: _texts,
    int: _ints,
    float: _doubles,
    Decimal: _decimals,
    dt.datetime: _instants,
    dt.date: _instants,
}


class _Shown(str):
    """A value that Python has no type for, as a message shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def is_unicode(text: str) -> bool:
    """Whether a string can be written down: half of a surrogate pair cannot."""
    try:
        return text.isascii() or text.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_nan(item: Any) -> bool:
    if isinstance(item, Decimal):
        return item.is_nan()
    return isinstance(item, float | np.floating) and bool(item != item)


def _nearest_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_no_value(kind: pa.DataType) -> bool:
    """Whether no attribute can hold anything of a type, so that the values do not matter."""
    return bool(
        pa.types.is_duration(kind)
        or pa.types.is_time(kind)
        or pa.types.is_struct(kind)
        or pa.types.is_map(kind)
        or pa.types.is_interval(kind)
    )


def _nulls(data: pa.Array[Any]) -> Mask:
    return pc.is_null(data).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _floats_of_arrow(data: pa.Array[Any]) -> npt.NDArray[np.float64]:
    if pa.types.is_float16(data.type):
        data = data.cast(pa.float64())
    return np.asarray(data.to_numpy(zero_copy_only=False), np.float64)
