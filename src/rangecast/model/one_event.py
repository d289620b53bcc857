"""One event, given as a dict, as a row of codes: what a service has, in microseconds.

`Events.from_rows` makes columns of its rows, which costs hundreds of microseconds before the first value is
looked at. Here a schema gets one encoder per attribute, made once. An encoder reads the types that events
commonly have without leaving Python's own:

    attribute    read here                                            code
    Int          int, float                                           the number, if it is whole and in range
    Float        float, int                                           the bits of the double, reordered
    Category     str, bool                                            the dictionary's
    Timestamp    datetime, date, int, ISO 8601 as commonly written    microseconds
    Bool         bool                                                 0 or 1

Every other value goes the way of columns, as a column of its own, so it means the same as in `from_rows`, and
is refused for the same reason. An attribute that is of none of these types makes the whole event go that way.
So does one with a list of values (wide_events.py), unless all of them are of one common type.

    array   dtype   shape    meaning
    row     int64   (d, 1)   the codes of the event; each thread has one, and uses it again
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from rangecast.errors import EventError
from rangecast.model.wide_events import LISTS, MOST_VARIANTS
from rangecast.types.attributes import (
    LAST,
    MISSING,
    Attribute,
    Bool,
    Category,
    Codes,
    Float,
    Int,
    Text,
    Timestamp,
)
from rangecast.types.columns import is_unicode
from rangecast.types.frames import ObjectNames
from rangecast.types.instants import EPOCH
from rangecast.types.schema import Schema
from rangecast.types.vocabulary import UNKNOWN

Encoder = Callable[[Any], int]

_DAY = 86_400_000_000
_FIRST_DAY = 719_163  # 1970-01-01 as Python numbers days
_NAIVE_EPOCH = EPOCH.replace(tzinfo=None)
# what Arrow and Python read alike; any other text is left to those who read columns
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.([0-9]{3}|[0-9]{6}))?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?\Z"
)
_PLAIN = {str, int, float}
# zones whose code is Python's own; another may do anything
_ZONES = (dt.timezone, ZoneInfo)
_double, _bits = struct.Struct("<d").pack, struct.Struct("<q").unpack


class RowEncoder:
    """Encodes dicts for a schema.

    >>> from rangecast import Int, Float, Schema
    >>> RowEncoder(Schema(Int("price"), Float("change"))).encode({"price": 5}).ravel().tolist()
    [5, -9223372036854775808]
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        makers = [_MAKERS.get(type(attribute)) for attribute in schema]
        self.fits = None not in makers and not schema.n_hidden
        """Whether every attribute is of a type that is known here."""
        self._plan = [(a.name, make(a)) for a, make in zip(schema, makers, strict=True) if make is not None]
        self._pack = struct.Struct(f"={len(schema)}q").pack_into
        self._rows = _ThreadRow(len(schema))
        self._objects = ObjectNames(schema.declared.read_names)
        self._plain_keys = self._objects.plain_keys

    def encode(self, event: Mapping[str, Any], unknown: str = "ignore") -> Codes | None:
        """The codes of an event, in a row that this thread uses again; a bad value raises EventError.

        An event with lists has a column for each choice of its values. None where columns must say what an
        event means.

        >>> from rangecast import Int, Schema
        >>> encoder = RowEncoder(Schema(Int("price"), Int("size")))
        >>> encoder.encode({"price": [5, 6, None], "size": 2}).tolist()
        [[5, 6], [2, 2]]
        """
        own = self._rows
        if not self.fits:
            self.check_keys(event, unknown)
            return None
        given = event
        if not event.keys() <= self._plain_keys:
            event = self._objects.settled(event)
        get = event.get
        try:
            self._pack(own.memory, 0, *[encode(get(name)) for name, encode in self._plan])
        except EventError:
            if not any(isinstance(get(name), LISTS) for name, _ in self._plan):
                raise
            self.check_keys(given, unknown)
            return self._choices(event)
        if unknown != "ignore":
            self.check_keys(given, unknown)
        return own.row

    def _choices(self, event: Mapping[str, Any]) -> Codes | None:
        """The codes of an event with lists, or None where one of them is not of one common type."""
        own: list[list[int]] = []
        n = 1
        for name, encode in self._plan:
            value = event.get(name)
            values = list(value) if isinstance(value, LISTS) else [value]
            kinds = {type(one) for one in values if one is not None}
            if len(kinds) > 1 or (len(values) > 1 and not kinds <= _PLAIN):
                return None
            try:
                codes = [code for code in map(encode, values) if code != MISSING]
            except EventError:
                return None
            n *= max(len(codes), 1)
            if n > MOST_VARIANTS:
                return None
            own.append(list(dict.fromkeys(codes)) or [MISSING])
        return np.array(list(itertools.product(*own)), np.int64).T.copy()

    def check_keys(self, event: Mapping[str, Any], unknown: str) -> None:
        """Refuse what is not an attribute, where that is asked for."""
        if unknown not in ("ignore", "error"):
            raise EventError(f"unknown must be 'ignore' or 'error', got {unknown!r}")
        if unknown == "error":
            for key in self._objects.kind_of(tuple(event)).unused:
                if key not in self._schema:
                    raise EventError(
                        f"an event must have attributes of the schema ({', '.join(self._schema.names)}), "
                        f"got {key!r}"
                    )


class _ThreadRow(threading.local):
    """A row of codes for each thread."""

    def __init__(self, d: int) -> None:
        self.row: Codes = np.empty((d, 1), np.int64)
        self.memory = self.row.data.cast("B")


def _by_columns(attribute: Attribute, value: Any) -> int:
    """The code of a value as a column of its own."""
    if isinstance(value, np.generic) and value.dtype.kind in "iuf":
        plain = value.item()
        if type(plain) in (int, float):
            return _MAKERS[type(attribute)](attribute)(plain)
    if isinstance(value, LISTS):
        raise EventError(f"{attribute.name!r} must have one value here, got a list of {len(value)}")
    encoded = attribute.encode([value])
    if len(encoded.bad):
        raise EventError(encoded.reasons[0])
    return int(encoded.codes[0])


def _int_encoder(attribute: Attribute) -> Encoder:
    def encode(value: Any) -> int:
        kind = type(value)
        if kind is int and MISSING < value <= LAST:
            return value  # type: ignore[no-any-return]
        if value is None:
            return MISSING
        if kind is float and value.is_integer() and abs(value) < 2.0**63:
            return int(value)
        return _by_columns(attribute, value)

    return encode


def _float_encoder(attribute: Attribute) -> Encoder:
    def encode(value: Any) -> int:
        kind = type(value)
        if kind is not float:
            if value is None:
                return MISSING
            if kind is not int or not MISSING < value <= LAST:
                return _by_columns(attribute, value)
            value = float(value)
        if value != value:
            return MISSING
        bits: int = _bits(_double(value + 0.0))[0]
        return bits if bits >= 0 else bits ^ LAST

    return encode


def _category_encoder(attribute: Attribute) -> Encoder:
    assert isinstance(attribute, Category)
    look_up = attribute.vocabulary.look_up

    def encode(value: Any) -> int:
        if type(value) is str:
            code = look_up(value)
            # a string that cannot be written down is in no dictionary
            if code == UNKNOWN and not is_unicode(value):
                return _by_columns(attribute, value)
            return code
        if value is None:
            return MISSING
        if type(value) is bool:
            return look_up("true" if value else "false")
        return _by_columns(attribute, value)

    return encode


def _timestamp_encoder(attribute: Attribute) -> Encoder:
    assert isinstance(attribute, Timestamp)
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}[attribute.unit]

    def encode(value: Any) -> int:
        kind = type(value)
        if kind is int and scale and MISSING < value * scale <= LAST:
            return value * scale  # type: ignore[no-any-return]
        if value is None:
            return MISSING
        if kind is str and _ISO.match(value):
            try:
                value = dt.datetime.fromisoformat(value)
            except ValueError:  # a month 13, or the year 0
                return _by_columns(attribute, value)
            kind = dt.datetime
        if kind is dt.datetime:
            zone = value.tzinfo
            if zone is None or type(zone) in _ZONES:
                since = value - (_NAIVE_EPOCH if zone is None else EPOCH)
                code: int = since.days * _DAY + since.seconds * 1_000_000 + since.microseconds
                return code
        elif kind is dt.date:
            return int(value.toordinal() - _FIRST_DAY) * _DAY
        return _by_columns(attribute, value)

    return encode


def _bool_encoder(attribute: Attribute) -> Encoder:
    def encode(value: Any) -> int:
        if type(value) is bool:
            return int(value)
        return MISSING if value is None else _by_columns(attribute, value)

    return encode


_MAKERS: dict[type[Attribute], Callable[[Attribute], Encoder]] = {
    Int: _int_encoder,
    Float: _float_encoder,
    Category: _category_encoder,
    Text: _category_encoder,
    Timestamp: _timestamp_encoder,
    Bool: _bool_encoder,
}
