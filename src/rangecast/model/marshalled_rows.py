"""Lists of dicts as codes, by way of `marshal` and a kernel (kernels/model/marshalled_rows.py).

A column per attribute takes a pass over all dicts for each of them, one over its values for their types and
one that looks them up: 0.15 us per value. `marshal` walks over the dicts once, in C, and writes down each
value with its exact type: 0.06 us per key and value together. What the kernel does not take is left to
columns, all rows of it: instants, nested values, whole numbers that are no int64, keys that are no strings,
mappings that are no dicts, and types that an attribute does not commonly have. So nothing is decided here
about meaning.

The kernel takes 15 ms to load, so a process begins with columns; and where most keys of the first row
belong to no attribute, columns are faster, since they do not look at those.

Of `pickle` every value would have to be found behind opcodes that depend on what was written before, and it
takes as long; `json.dumps` takes five times as long.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.kernels.model import marshalled_rows as kernels
from rangecast.kernels.model.marshalled_rows import RowCodes, RowKeys
from rangecast.kernels.types.strings import WordTable
from rangecast.model.event_columns import Strangers, StrangeWords
from rangecast.types.attributes import MISSING, Attribute, Bool, Category, Codes, Float, Int, Timestamp
from rangecast.types.column_names import NamedColumns, named_columns
from rangecast.types.schema import Schema
from rangecast.types.strings import strings_of_spans
from rangecast.types.text import Text

PATIENCE = 20_000
"""Rows that a process reads before the kernel is loaded for lists of fewer."""
FEW = 64  # rows: fewer are read sooner as columns
_AT_ONCE = 4_096  # rows: what is written of them stays in the processor's caches
MOST_KEYS = 256
_VERSION = 4  # of what marshal writes
_KINDS: dict[type[Attribute], int] = {
    Int: kernels.INT,
    Float: kernels.FLOAT,
    Bool: kernels.BOOL,
    Category: kernels.WORD,
    Text: kernels.WORD,
    Timestamp: kernels.INT,
}
_TYPES = {int, float, str, bool, type(None)}
# the kernel reads eight letters of a key at once
_PADDING = b"\0" * 8
# values with the letters that marshal may give them, and what follows
_WRITTEN: tuple[tuple[Any, bytes, bytes], ...] = (
    ([], b"[", b"\0\0\0\0"),
    ({}, b"{", b"0"),
    ("ab", b"zZ", b"\2ab"),
    ("b" * 256, b"aA", b"\0\1\0\0" + b"b" * 256),
    ("é", b"ut", b"\2\0\0\0\xc3\xa9"),
    (-2, b"i", b"\xfe\xff\xff\xff"),
    (-(1 << 40), b"l", b"\xfd\xff\xff\xff\0\0\0\0\0\4"),
    (0.5, b"g", b"\0\0\0\0\0\0\xe0\x3f"),
    (None, b"N", b""),
    (True, b"T", b""),
    (False, b"F", b""),
)


class MarshalledRows(NamedTuple):
    """Codes of rows, the strings without one by position, and whose their keys are unless it is each
    attribute that has one."""

    codes: Codes
    strangers: dict[int, Strangers]
    named: NamedColumns | None


_Strange = tuple[bytes, npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""What marshal wrote of some rows, and `spans` and `counts` of the kernel."""


class _Read:
    n = 0  # rows of this process


def read_rows(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> MarshalledRows | None:
    """The codes of rows, or None where columns have to say what they mean.

    >>> found = read_rows(Schema(Int("a"), Float("b")), [{"b": 0.0, "a": k} for k in range(20_000)])
    >>> found.codes[:, 7].tolist()
    [7, 0]
    """
    _Read.n += len(rows)
    if len(rows) < FEW or _Read.n < PATIENCE or type(rows) not in (list, tuple):
        return None
    kinds = tuple([_KINDS.get(type(attribute), -1) for attribute in schema])
    keys = _first_keys(schema, kinds, rows[0])
    if keys is None or not _is_known_format():
        return None
    coder = _Coder(schema, kinds, keys)
    codes = np.full((len(kinds), len(rows)), MISSING, np.int64)
    if not coder.read(rows, codes):
        return None
    met = coder.met_keys()
    named = None if len(met) == len(kinds) == len(coder.keys) else named_columns(schema.read_names, met)
    # a key in other capitals than its attribute may be what its row has of it, beside or without the other
    if named is not None:
        folds = {name.casefold() for name in schema.read_names}
        if any(key not in schema and key.casefold() in folds for key in met):
            return None
    return MarshalledRows(codes, coder.strangers(), named)


def _first_keys(schema: Schema, kinds: Sequence[int], row: Any) -> tuple[str, ...] | None:
    """The attributes and the other keys of a row, or None where rows like this one are read as columns."""
    if type(row) is not dict or not _TYPES.issuperset(map(type, row.values())):
        return None
    if -1 in kinds or any(isinstance(a, Timestamp) and a.unit != "us" for a in schema):
        return None
    others = [key for key in row if key not in schema]
    if 2 * len(others) > len(row) or not all(type(key) is str for key in row):
        return None
    return (*schema.names, *others)


class _Coder:
    """Reads lists of dicts, with the keys that it has met so far."""

    def __init__(self, schema: Schema, kinds: tuple[int, ...], keys: tuple[str, ...]) -> None:
        self._kinds = kinds
        self.keys = keys
        self._met = np.zeros(MOST_KEYS, np.uint8)
        self._strange: list[_Strange] = []
        self._tables: dict[int, WordTable] = {}
        places = np.zeros((3 * len(kinds), 3), np.int64)
        for k, attribute in enumerate(schema):
            if isinstance(attribute, Category):
                self._tables[k], places[3 * k : 3 * k + 3] = attribute.vocabulary.placed_table()
        spelled = _spelled(keys, kinds)
        self._known = RowKeys(spelled[0], spelled[1], places)

    def met_keys(self) -> list[str]:
        """The keys that some row has."""
        return [key for key, there in zip(self.keys, self._met.tolist(), strict=False) if there]

    def strangers(self) -> dict[int, Strangers]:
        """The strings that are in no table, by attribute."""
        return {
            k: Strangers(len(self._tables[k].starts) - 1, partial(_words_of, k, self._strange))
            for k in self._tables
            if any(counts[k] for _, _, counts in self._strange)
        }

    def read(self, rows: Sequence[Mapping[str, Any]], codes: Codes) -> bool:
        """Read all rows, some at once; returns whether the kernel takes them."""
        for first in range(0, len(rows), _AT_ONCE):
            some = rows if len(rows) <= _AT_ONCE else rows[first : first + _AT_ONCE]
            try:
                written = marshal.dumps(some if type(some) is list else list(some), _VERSION)
            except (ValueError, RecursionError):  # what marshal does not write
                return False
            if not self._read(written, first, len(some), codes):
                return False
        return True

    def _read(self, written: bytes, first: int, n: int, codes: Codes) -> bool:
        words = len(self._kinds) if self._tables else 0
        out = RowCodes(
            codes,
            np.empty((words, 3, n), np.int32),
            np.zeros(words, np.int64),
            np.full(MOST_KEYS, -1, np.int64),
            self._met,
            # an object that has a number is written in two bytes at least
            np.empty(len(written) // 2 + 1, np.int32),
            np.zeros(5, np.int64),
        )
        text = _place(written)
        while (said := kernels.read_rows(text, first, self._known, out)) == kernels.NEW_KEY:
            if len(self.keys) == MOST_KEYS:
                return False
            self.keys = (*self.keys, marshal.loads(written[out.state[4] :]))
            spelled = _spelled(self.keys, self._kinds)
            self._known = RowKeys(spelled[0], spelled[1], self._known.tables)
        if out.counts.any():
            self._strange.append((written, out.spans, out.counts))
        return bool(said == kernels.DONE)


def _words_of(column: int, strange: Sequence[_Strange]) -> StrangeWords:
    """The rows of a column's strange strings, and these."""
    pieces = []
    for written, spans, counts in strange:
        rows, begins, sizes = spans[column, :, : counts[column]]
        pieces.append((rows.astype(np.int64), strings_of_spans(_place(written), begins, sizes)))
    return np.concatenate([rows for rows, _ in pieces]), pa.concat_arrays([words for _, words in pieces])


def _place(written: bytes) -> npt.NDArray[np.int64]:
    return np.array([(np.frombuffer(written, np.uint8).ctypes.data, len(written), 1)], np.int64)


@lru_cache(maxsize=64)
def _spelled(
    keys: tuple[str, ...], kinds: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each key lies and its kind, and the letters of all."""
    letters = [key.encode("utf-8", "surrogatepass") for key in keys]
    ends = np.cumsum([0, *map(len, letters)])
    kinds += (kernels.SKIPPED,) * (len(keys) - len(kinds))
    table = np.stack([ends[:-1], ends[1:], kinds], 1).astype(np.int64)
    return table, np.frombuffer(bytearray(b"".join(letters) + _PADDING), np.uint8)


@cache
def _is_known_format() -> bool:
    """Whether this Python writes what the kernel reads."""
    written = ((marshal.dumps(value, _VERSION), letters, rest) for value, letters, rest in _WRITTEN)
    return all(raw[0] & 0x7F in letters and raw[1:] == rest for raw, letters, rest in written)
