"""JSON lines of flat objects as columns: what most publishers send, read by a kernel.

The kernel (kernels/broker/json_lines.py) reads lines whose values are numbers, strings without escapes, true,
false and null, and stops at the first thing that it does not know. What it has read becomes Arrow columns,
which go the way of all columns: so the codes, and the reasons of rejected events, are those of any other
door. A column of mixed kinds is left to the ordinary reader too, whose words for it are better.

    kinds in the lines          column
    integers                    int64
    integers and fractions      float64, for an attribute of floats and integers that a double holds
    strings                     large_string
    true and false              bool
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.broker.event_record import joined_strings
from rangecast.kernels.broker import json_lines as kernels
from rangecast.kernels.broker.frames import JoinedStrings
from rangecast.kernels.broker.json_lines import ABSENT, BOOLEAN, FRACTION, INTEGER, STRING
from rangecast.types.schema import Schema

_MOST_ATTRIBUTES = 64  # the arrays have a place for each attribute of each line
_EXACT = 1 << 53


class FlatLines(NamedTuple):
    """The lines of a body: how many, the columns of attributes that any of them has, and their texts."""

    n: int
    columns: dict[str, Any]
    texts: JoinedStrings


@lru_cache(maxsize=64)
def _names(names: tuple[str, ...]) -> JoinedStrings | None:
    """The names of attributes for the kernel; None where it cannot tell them from other keys."""
    if len(names) > _MOST_ATTRIBUTES or not all(name.isascii() for name in names):
        return None
    return joined_strings([name.encode() for name in names])


def read_flat(raw: bytes, most_lines: int, schema: Schema, longest: int) -> FlatLines | None:
    """The lines of a body, of which none may be longer than `longest`; None where they are not flat."""
    names = _names(schema.names)
    if names is None or any(attribute.formula is not None for attribute in schema.declared.attributes):
        return None
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return None
    d, n = len(schema.names), most_lines
    given = np.frombuffer(raw, np.uint8)
    kinds, lengths = np.empty((d, n), np.uint8), np.empty((d, n), np.int32)
    values, floats = np.empty((d, n), np.int64), np.empty((d, n), np.float64)
    letters, starts = np.empty(len(raw), np.uint8), np.empty(n + 1, np.int64)
    seen = np.empty(d, np.uint8)
    n = kernels.read_flat_lines(given, names, longest, kinds, values, floats, lengths, letters, starts, seen)
    if n <= 0:
        return None
    columns: dict[str, Any] = {}
    for j, (name, bits) in enumerate(zip(schema.names, seen.tolist(), strict=True)):
        own = kinds[j, :n]
        valid = None if not bits & 1 << ABSENT else _bits(own != ABSENT)
        found = bits & ~(1 << ABSENT)
        if found == 1 << INTEGER:
            columns[name] = _column(pa.int64(), n, valid, values[j, :n])
        elif found == 1 << STRING:
            places = np.empty(n + 1, np.int64)
            words = np.empty(int(lengths[j, :n][own == STRING].sum()), np.uint8)
            kernels.gather_strings(given, values[j], lengths[j], own, words, places)
            columns[name] = _column(pa.large_string(), n, valid, places, words)
        elif found == 1 << BOOLEAN:
            columns[name] = _column(pa.bool_(), n, valid, _bits(values[j, :n] != 0))
        elif found and not found & ~(1 << INTEGER | 1 << FRACTION) and schema[j].kind == "float":
            if np.abs(values[j, :n][own == INTEGER]).max(initial=0) > _EXACT:
                return None
            columns[name] = _column(pa.float64(), n, valid, floats[j, :n])
        elif found:
            return None
    return FlatLines(n, columns, JoinedStrings(letters[: starts[n]], starts[: n + 1]))


def _bits(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")


def _column(kind: pa.DataType, n: int, valid: Any, *buffers: npt.NDArray[Any]) -> Any:
    pieces = [None if buffer is None else pa.py_buffer(buffer) for buffer in (valid, *buffers)]
    return pa.Array.from_buffers(kind, n, pieces)
