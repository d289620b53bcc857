"""Columns as they come from users, brought to one of four plain forms.

A column may be a numpy array, a list, a pandas Series, an Arrow array or chunked array. `as_column`
wraps it once; `integers`, `floats`, `microseconds` and `strings` give the values in the form that an
attribute encodes, and a mask of the rows that have no such value. Text (from CSV, say) is read as
numbers or times where the attribute wants those; the empty string is a null there.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
MISSING = -(2**63)

_INTEGER = r"^\s*[+-]?[0-9]{1,18}\s*$"
_NUMBER = r"^\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)\s*$"
_NAN = r"^\s*([+-]?[nN][aA][nN])?\s*$"
_TRUNCATE = 60


def describe(value: Any) -> str:
    """A value and its type, for messages.

    >>> describe("abc"), describe(None)
    ("the string 'abc'", 'null')
    """
    if value is None:
        return "null"
    value = value.item() if isinstance(value, np.generic) else value
    shown = repr(value)
    shown = shown if len(shown) <= _TRUNCATE else shown[: _TRUNCATE - 3] + "..."
    if isinstance(value, str):
        return f"the string {shown}"
    if isinstance(value, bool):
        return f"the boolean {shown}"
    if isinstance(value, float):
        return f"the number {shown}"
    return shown


def as_column(values: Any) -> Column:
    """Wrap whatever a user gave as a column."""
    if isinstance(values, Column):
        return values
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # an Arrow column too large for one array
            values = pa.concat_arrays(values.chunks)
    if isinstance(values, pa.Array):
        return Column(_undictionary(values))
    if hasattr(values, "to_numpy") and hasattr(values, "dtype"):  # pandas, without importing it
        values = pa.array(values, from_pandas=True) if values.dtype != object else values.to_numpy()
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Array):
            return Column(_undictionary(values))
    if isinstance(values, np.ma.MaskedArray):
        return Column(pa.array(values.data, mask=np.ma.getmaskarray(values)))
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufbM":
        return Column(np.ascontiguousarray(values))
    items = values if isinstance(values, np.ndarray) else list(values)
    try:
        return Column(_undictionary(pa.array(items, from_pandas=True)))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return Column(np.fromiter(items, object, len(items)))


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

    def values_at(self, rows: npt.NDArray[np.int64]) -> list[Any]:
        """The original values of some rows."""
        if isinstance(self.data, pa.Array):
            return list(self.data.take(pa.array(rows)).to_pylist())
        return [v.item() if isinstance(v, np.generic) else v for v in self.data[rows]]

    def integers(self, side: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Whole numbers; MISSING where null. A bound between two numbers goes inwards by `side`."""
        data = self.data
        if isinstance(data, np.ndarray) and data.dtype.kind in "iu":
            return _integers_of_ints(data)
        if isinstance(data, np.ndarray) and data.dtype.kind == "f":
            return _integers_of_floats(data, side)
        if isinstance(data, pa.Array):
            kind = data.type
            if pa.types.is_integer(kind):
                values = data.fill_null(0).to_numpy(zero_copy_only=False)
                codes, bad = _integers_of_ints(values)
                if data.null_count:
                    codes = codes.copy() if codes is values else codes
                    codes[_nulls(data)] = MISSING
                return codes, bad
            if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
                return _integers_of_floats(_floats_of_arrow(data), side)
            if _is_text(kind):
                return _integers_of_text(data, side)
            if pa.types.is_null(kind):
                return np.full(len(data), MISSING, np.int64), None
        return self._one_by_one("integers", side)

    def floats(self) -> tuple[npt.NDArray[np.float64], Mask | None]:
        """Numbers; NaN where null."""
        data = self.data
        if isinstance(data, np.ndarray) and data.dtype.kind in "iuf":
            return data.astype(np.float64), None
        if isinstance(data, pa.Array):
            kind = data.type
            if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
                return _floats_of_arrow(data), None
            if _is_text(kind):
                return _floats_of_text(data)
            if pa.types.is_null(kind):
                return np.full(len(data), np.nan), None
        return self._one_by_one("floats", "value")

    def microseconds(self, side: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Instants as microseconds since 1970 UTC; MISSING where null."""
        data = self.data
        if isinstance(data, np.ndarray) and data.dtype.kind == "M":
            data = pa.array(
                data.astype("datetime64[s]") if data.dtype.str.endswith(("[D]", "[h]", "[m]")) else data
            )
        if isinstance(data, pa.Array):
            kind = data.type
            if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
                return _microseconds_of_arrow(data, side), None
            if _is_text(kind):
                return _microseconds_of_text(data, side)
        if isinstance(data, np.ndarray) and data.dtype.kind == "O":
            return self._one_by_one("microseconds", side)
        if isinstance(data, pa.Array) and not (
            pa.types.is_integer(data.type) or pa.types.is_floating(data.type) or pa.types.is_null(data.type)
        ):
            return self._one_by_one("microseconds", side)
        return self.integers(side)

    def strings(self) -> tuple[pa.Array[Any], Mask | None]:
        """Strings, null where null; booleans become 'true' and 'false'."""
        data = self.data
        if isinstance(data, np.ndarray) and data.dtype.kind == "b":
            data = pa.array(data)
        if isinstance(data, pa.Array):
            kind = data.type
            if pa.types.is_boolean(kind):
                return pc.if_else(data, "true", "false"), None
            if _is_text(kind):
                return data.cast(pa.large_string()), None
            if pa.types.is_null(kind):
                return data.cast(pa.large_string()), None
        items = data.to_pylist() if isinstance(data, pa.Array) else list(data)
        bad = np.zeros(len(items), bool)
        words: list[str | None] = []
        for row, item in enumerate(items):
            if isinstance(item, bool | np.bool_):
                words.append("true" if item else "false")
            elif isinstance(item, str) or item is None:
                words.append(item)
            else:
                # a float NaN is how numpy and pandas write a null among strings
                bad[row] = not (isinstance(item, float) and item != item)
                words.append(None)
        return pa.array(words, pa.large_string()), bad

    def _one_by_one(self, form: str, side: str) -> tuple[Any, Mask]:
        """Mixed objects: each value is a column of its own. Slow, and only for irregular input."""
        items = self.data.to_pylist() if isinstance(self.data, pa.Array) else list(self.data)
        n = len(items)
        out: Any = np.full(n, np.nan) if form == "floats" else np.full(n, MISSING, np.int64)
        bad = np.zeros(n, bool)
        for row, item in enumerate(items):
            if item is None or (isinstance(item, float) and item != item):
                continue
            try:
                single = pa.array([_plain(item)])
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
                bad[row] = True
                continue
            column, kind = Column(single), single.type
            instant = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
            if not (_numeric_or_text(kind) or (instant and form == "microseconds")):
                bad[row] = True
                continue
            values: Any
            if form == "floats":
                values, wrong = column.floats()
            else:
                values, wrong = column.integers(side) if form == "integers" else column.microseconds(side)
            out[row] = values[0]
            bad[row] = wrong is not None and bool(wrong[0])
        return out, bad


def _plain(item: Any) -> Any:
    if isinstance(item, np.generic) and not isinstance(item, np.datetime64):
        return item.item()
    if isinstance(item, dt.datetime) and item.tzinfo is not None:
        return item.astimezone(dt.UTC)
    return item


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _numeric_or_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or _is_text(kind)
    )


def _nulls(data: pa.Array[Any]) -> Mask:
    return pc.is_null(data).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _integers_of_ints(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], Mask | None]:
    if values.dtype == np.uint64:
        bad = values > np.uint64(2**63 - 1)
        return values.astype(np.int64), bad if bad.any() else None
    codes = values.astype(np.int64, copy=False)
    if values.dtype == np.int64:
        bad = codes == MISSING
        if bad.any():
            return codes.copy(), bad
    return codes, None


def _integers_of_floats(values: npt.NDArray[Any], side: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
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
        codes[open_side] = MISSING + 1 if side == "low" else 2**63 - 1
        bad &= ~open_side
    return codes, bad if bad.any() else None


def _integers_of_text(data: pa.Array[Any], side: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
    plain = pc.match_substring_regex(data, _INTEGER).fill_null(False).to_numpy(zero_copy_only=False)
    codes = np.full(len(data), MISSING, np.int64)
    digits = pc.utf8_ltrim(pc.utf8_trim_whitespace(data.filter(pa.array(plain))), characters="+")
    codes[plain] = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if plain.all():
        return codes, None
    rows = np.flatnonzero(~plain)
    rest = data.take(pa.array(rows))
    # 19 digits and more, and other forms of whole numbers such as 1e3
    numbers, wrong = _floats_of_text(rest)
    bad = np.zeros(len(data), bool)
    exact, off = _integers_of_floats(numbers, side)
    for i, text in enumerate(rest.to_pylist()):
        if text is not None and text.strip().lstrip("+-").isdigit():
            value = int(text)
            fits = MISSING < value < 2**63
            exact[i] = value if fits else MISSING
            if off is not None:
                off[i] = not fits
            elif not fits:
                off = np.zeros(len(rest), bool)
                off[i] = True
    codes[rows] = exact
    if wrong is not None:
        bad[rows] |= wrong
    if off is not None:
        bad[rows] |= off
    return codes, bad


def _floats_of_arrow(data: pa.Array[Any]) -> npt.NDArray[np.float64]:
    if pa.types.is_decimal(data.type) or pa.types.is_float16(data.type):
        data = data.cast(pa.float64())
    return np.asarray(data.to_numpy(zero_copy_only=False), np.float64)


def _floats_of_text(data: pa.Array[Any]) -> tuple[npt.NDArray[np.float64], Mask | None]:
    number = pc.match_substring_regex(data, _NUMBER).fill_null(False).to_numpy(zero_copy_only=False)
    values = np.full(len(data), np.nan)
    text = pc.utf8_ltrim(pc.utf8_trim_whitespace(data.filter(pa.array(number))), characters="+")
    values[number] = text.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if number.all():
        return values, None
    nothing = pc.match_substring_regex(data, _NAN).fill_null(True).to_numpy(zero_copy_only=False)
    bad = ~number & ~nothing
    return values, bad if bad.any() else None


def _microseconds_of_arrow(data: pa.Array[Any], side: str) -> npt.NDArray[np.int64]:
    kind = data.type
    if pa.types.is_date(kind):
        data = data.cast(pa.timestamp("ms"))
        kind = data.type
    ticks = data.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(kind.unit)
    if scale is not None:
        codes = ticks * scale
    elif side == "low":
        codes = -(-ticks // 1_000)
    else:
        codes = ticks // 1_000
    if data.null_count:
        codes[_nulls(data)] = MISSING
    return codes  # type: ignore[no-any-return]


def _microseconds_of_text(data: pa.Array[Any], side: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
    text = pc.utf8_trim_whitespace(data)
    codes = np.full(len(data), MISSING, np.int64)
    zoned = pc.match_substring_regex(text, r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
    zoned = zoned.fill_null(False).to_numpy(zero_copy_only=False)
    done = np.zeros(len(data), bool)
    for rows, kind in (
        (np.flatnonzero(zoned), pa.timestamp("us", "UTC")),
        (np.flatnonzero(~zoned), pa.timestamp("us")),
    ):
        try:
            part = text.take(pa.array(rows)).cast(kind)
        except pa.ArrowInvalid:
            continue
        codes[rows] = _microseconds_of_arrow(part, side)
        done[rows] = True
    bad = np.zeros(len(data), bool)
    for row in np.flatnonzero(~done):  # a group with a bad or unusual text: one by one
        word = text[row].as_py()
        if not word:
            continue
        try:
            value = dt.datetime.fromisoformat(word)
        except ValueError:
            bad[row] = True
            continue
        aware = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
        codes[row] = (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return codes, bad if bad.any() else None
