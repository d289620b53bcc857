"""What subscribers gave beside the boxes: the conditions as they wrote them, and columns of their own.

    column     kept as   meaning
    texts      Texts     the conditions as they were written, or None where all came as bounds
    payload    Texts     for each name: values as texts, and the type that they are given back in
    expires    int64     when each ends (user_columns.py), or None; only on the way to a store, which keeps it
                         elsewhere

No match reads any of it. A value is kept as its text, so one mechanism (texts.py) packs, selects, joins and
maps all columns, and a column whose type differs between two loads gets the wider type without being read;
so does one whose values differ in type within a load:

    kept as     from                                      joined with another type
    string      strings, dictionaries of them, decimals   string
    null        nothing at all                            the other
    int64       whole numbers                             double with double, otherwise string
    double      floating numbers                          double with int64, otherwise string
    bool        booleans                                  string
    date        dates                                     string
    timestamp   times without a zone, microseconds        string
    instant     times with one, as microseconds in UTC    string

Packed, the payload is one array of bytes, like the texts: a head of JSON with its sum, and the columns.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import OptionError, StorageError, SubscriptionError
from rangecast.model.texts import Texts
from rangecast.types.attributes import MISSING, VALUE, Timestamp
from rangecast.types.columns import describe
from rangecast.types.strings import without_views

_HEAD = struct.Struct("<4sII")
_MAGIC = b"RCPL"
PAYLOAD_TYPES: dict[str, pa.DataType] = {
    "string": pa.large_string(),
    "null": pa.large_string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
}


class PayloadColumn(NamedTuple):
    """One column of the users' own: the name of its type above, and its values as texts."""

    kind: str
    texts: Texts

    def arrow(self, rows: npt.NDArray[np.int64] | None = None) -> pa.Array[Any]:
        """Its values, or those of some rows."""
        texts = self.texts if rows is None else self.texts.select(rows)
        return texts.arrow().cast(PAYLOAD_TYPES[self.kind])


class UserColumns:
    """The texts and the payload of some subscriptions, row by row.

    >>> columns = UserColumns.of(2, ["price < 10", "price > 5"], {"owner": ["ann", None], "level": [1, 2]})
    >>> columns.select(np.array([1])).table().to_pylist()
    [{'owner': None, 'level': 2}]
    """

    __slots__ = ("expires", "n", "payload", "texts")

    def __init__(
        self,
        n: int,
        texts: Texts | None,
        payload: Mapping[str, PayloadColumn],
        expires: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.n = n
        self.expires = expires
        self.texts = texts
        self.payload = dict(payload)

    @classmethod
    def of(cls, n: int, texts: Any = None, payload: Any = None) -> UserColumns:
        """The columns of n subscriptions; `payload` is a table or a mapping of names to columns."""
        if isinstance(texts, UserColumns):
            if texts.n != n:
                raise SubscriptionError(f"texts and payload must be of {n} ids, got {texts.n} rows")
            if payload is None:
                return texts
            return cls(n, texts.texts, texts.payload | cls.of(n, None, payload).payload, texts.expires)
        written = None if texts is None else Texts.of(texts)
        if written is not None and len(written) != n:
            raise SubscriptionError(f"texts must have one row per id, got {len(written)} for {n} ids")
        columns: dict[str, PayloadColumn] = {}
        for name, values in _named(payload):
            columns[name] = payload_column(name, values)
            if len(columns[name].texts) != n:
                got = len(columns[name].texts)
                raise SubscriptionError(f"payload {name!r} must have one row per id, got {got} for {n} ids")
        return cls(n, written, columns)

    @classmethod
    def concat(cls, several: Iterable[UserColumns]) -> UserColumns:
        """Several as one; what one of them lacks is absent in its rows."""
        parts = list(several)
        texts = None
        if any(part.texts is not None for part in parts):
            texts = Texts.concat(Texts.absent(part.n) if part.texts is None else part.texts for part in parts)
        payload: dict[str, PayloadColumn] = {}
        for name in dict.fromkeys(name for part in parts for name in part.payload):
            found = [part.payload.get(name) for part in parts]
            kinds = {column.kind for column in found if column is not None}
            columns = (
                Texts.absent(part.n) if column is None else column.texts
                for part, column in zip(parts, found, strict=True)
            )
            payload[name] = PayloadColumn(wider_kind(kinds), Texts.concat(columns))
        expires = None
        if any(part.expires is not None for part in parts):
            expires = np.concatenate(
                [np.zeros(part.n, np.int64) if part.expires is None else part.expires for part in parts]
            )
        return cls(sum(part.n for part in parts), texts, payload, expires)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, packed."""
        texts = 0 if self.texts is None else self.texts.nbytes
        return texts + sum(column.texts.nbytes for column in self.payload.values())

    def __bool__(self) -> bool:
        """Whether there is something to keep with the boxes."""
        return self.texts is not None or bool(self.payload)

    def select(self, rows: npt.NDArray[Any]) -> UserColumns:
        """Those of some rows; nothing is read."""
        texts = None if self.texts is None else self.texts.select(rows)
        payload = {n: PayloadColumn(c.kind, c.texts.select(rows)) for n, c in self.payload.items()}
        expires = None if self.expires is None else self.expires[rows]
        return UserColumns(len(rows), texts, payload, expires)

    def kept(self) -> UserColumns:
        """What an index keeps: all but when they end."""
        return UserColumns(self.n, self.texts, self.payload)

    def padded(self, n: int) -> UserColumns:
        """With rows at the end that have nothing, so that there are n."""
        if n == self.n:
            return self
        return UserColumns.concat([self, UserColumns(n - self.n, None, {})])

    def table(
        self, names: Sequence[str] | None = None, rows: npt.NDArray[np.int64] | None = None
    ) -> pa.Table:
        """The payload, or some columns and rows of it; OptionError for a name that there is not."""
        columns: dict[str, pa.Array[Any]] = {}
        for name in self.payload if names is None else names:
            if name not in self.payload:
                there = ", ".join(self.payload) or "none at all"
                raise OptionError(f"the subscriptions have no payload {name!r}, only {there}")
            columns[name] = self.payload[name].arrow(rows)
        return pa.table(columns)

    def pack_payload(self) -> npt.NDArray[np.uint8] | None:
        """The payload as one array of bytes; None where there is none."""
        if not self.payload:
            return None
        packed = [column.texts.pack() for column in self.payload.values()]
        head = json.dumps(
            [
                [name, column.kind, len(raw)]
                for (name, column), raw in zip(self.payload.items(), packed, strict=True)
            ]
        ).encode()
        start = _HEAD.pack(_MAGIC, len(head), zlib.crc32(head)) + head
        return np.concatenate([np.frombuffer(start, np.uint8), *packed])


def unpacked(
    texts: npt.NDArray[np.uint8] | None, payload: npt.NDArray[np.uint8] | None, resident: bool = True
) -> UserColumns:
    """What `Texts.pack` and `pack_payload` gave; what is mapped is not `resident`."""
    written = None if texts is None else Texts.unpack(texts, resident)
    columns = {} if payload is None else _payload_columns(payload, resident)
    sizes = {len(column.texts) for column in columns.values()} | (
        {len(written)} if written is not None else set()
    )
    if len(sizes) > 1:
        raise StorageError(
            "texts and payload of the subscriptions are damaged: their lengths differ; save them again"
        )
    return UserColumns(max(sizes, default=0), written, columns)


def _payload_columns(raw: npt.NDArray[np.uint8], resident: bool) -> dict[str, PayloadColumn]:
    start = raw[: _HEAD.size].tobytes()
    magic, length, crc = _HEAD.unpack(start) if len(start) == _HEAD.size else (b"", 0, 0)
    head = raw[_HEAD.size : _HEAD.size + length].tobytes()
    if magic != _MAGIC or len(head) != length or zlib.crc32(head) != crc:
        raise StorageError("the payload of the subscriptions is damaged: its head is none; save it again")
    columns: dict[str, PayloadColumn] = {}
    at = _HEAD.size + length
    for name, kind, size in json.loads(head):
        if kind not in PAYLOAD_TYPES or at + size > len(raw):
            raise StorageError(f"the payload {name!r} of the subscriptions is damaged; save it again")
        columns[name] = PayloadColumn(kind, Texts.unpack(raw[at : at + size], resident))
        at += size
    return columns


def narrowed(table: pa.Table) -> pa.Table:
    """The same with strings of the type that all readers take."""
    fields = [pa.field(f.name, pa.string()) if pa.types.is_large_string(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def _named(payload: Any) -> Iterable[tuple[str, Any]]:
    if payload is None:
        return ()
    if isinstance(payload, pa.Table):
        return zip(payload.column_names, payload.columns, strict=True)
    if isinstance(payload, Mapping):
        return payload.items()
    raise SubscriptionError(
        f"payload must be an Arrow table or a mapping of names to columns, got {describe(payload)}"
    )


def payload_column(name: str, values: Any) -> PayloadColumn:
    """A column of the users' own, of an Arrow array or values of Python."""
    if not isinstance(name, str) or not name:
        raise SubscriptionError(f"a payload's name must be a text, got {describe(name)}")
    try:
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else _column(name, values)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        column = without_views(column)
        kind = _kind(column.type)
        if kind is None:
            raise SubscriptionError(payload_needs(name, column.type))
        return PayloadColumn(kind, Texts.of(column.cast(PAYLOAD_TYPES[kind]).cast(pa.large_string())))
    except (pa.ArrowException, OverflowError) as error:
        raise SubscriptionError(f"payload {name!r} cannot be kept: {error}") from None


def _column(name: str, values: Any) -> pa.Array[Any]:
    """Values of Python as a column; those of several types as texts, as when columns are joined."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([_text(name, value) for value in values], pa.large_string())


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # also beyond 64 bits
    try:
        scalar = pa.scalar(value)
    except (pa.ArrowException, OverflowError):
        raise SubscriptionError(payload_needs(name, describe(value))) from None
    if _kind(scalar.type) is None:
        raise SubscriptionError(payload_needs(name, describe(value)))
    text: str | None = scalar.cast(pa.large_string()).as_py()
    return text


def payload_needs(name: str, got: Any) -> str:
    """What a payload must be, and what came."""
    return f"payload {name!r} must be strings, numbers, booleans, dates or times, got {got}"


def _kind(kind: pa.DataType) -> str | None:
    is_ = pa.types
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_decimal(kind):
        return "string"
    if is_.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "instant"
    tests = (
        ("int64", is_.is_integer),
        ("double", is_.is_floating),
        ("null", is_.is_null),
        ("bool", is_.is_boolean),
        ("date", is_.is_date),
    )
    return next((name for name, holds in tests if holds(kind)), None)


def wider_kind(kinds: set[str]) -> str:
    """The type that holds what columns of several types hold."""
    kinds = kinds - {"null"} or {"null"}
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"int64", "double"} else "string"


# When subscriptions end, as a caller says it: one moment for all, or a column of them.
#
# Times are microseconds since 1970 UTC; 0 stands for never.

Times = npt.NDArray[np.int64]
"""Microseconds since 1970 UTC."""
_TIME = Timestamp("expires")


def instant(when: Any = None) -> int:
    """One moment as microseconds since 1970 UTC; now by default. A time without a zone is UTC."""
    if when is None:
        return time.time_ns() // 1000
    return int(_TIME.bracket(when)[0])


def expiry_times(expires: Any, n: int) -> tuple[Times | None, dict[int, str]]:
    """The times of n subscriptions (None when none ends), and what is wrong with some rows.

    >>> times, bad = expiry_times([None, "2026-01-31", -5], 3)
    >>> times.tolist(), bad
    ([0, 1769817600000000, 0], {2: 'must be a time after 1970, got -5'})
    """
    if expires is None:
        return None, {}
    if isinstance(expires, str) or not hasattr(expires, "__len__"):
        expires = [instant(expires)] * n
    if len(expires) != n:
        raise SubscriptionError(
            f"expires must be one time or one per subscription ({n:,}), got {len(expires):,}"
        )
    encoded = _TIME.encode(expires, VALUE)
    bad = dict(zip(encoded.bad.tolist(), encoded.reasons, strict=True))
    times = np.where(encoded.codes == MISSING, 0, encoded.codes)
    for row in np.flatnonzero(times < 0).tolist():
        bad[row] = f"must be a time after 1970, got {int(times[row])}"
    times = np.maximum(times, 0)
    return times if bool(times.any()) else None, bad
