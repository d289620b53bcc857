"""Lines of JSON as events, by a kernel that writes codes (kernels/loading/json_lines.py).

A table of columns is built by Arrow's reader and then encoded, and both together take three times as long as
reading each value where it stands. Lines that the kernel does not take are left to the reader of any JSON:
a chunk comes as pieces, in the order of its lines, of which some are events and the others lines.

A key that was not there before is looked at once, here. One that differs from a wanted name in capitals alone
makes its lines odd: whether it is taken depends on the other keys of its object.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.kernels.loading.decimals import powers_of_five
from rangecast.kernels.types.strings import WordTable
from rangecast.loading.files import LineChunk
from rangecast.model import kernels_rows as kernels
from rangecast.model.event_columns import Strangers
from rangecast.model.events import Events
from rangecast.model.kernels_rows import LineCodes, LineKeys
from rangecast.types.attributes import MISSING, Attribute, Bool, Category, Float, Int, Timestamp
from rangecast.types.column_names import named_columns
from rangecast.types.schema import Schema
from rangecast.types.strings import strings_of_spans
from rangecast.types.text import Text

MOST_KEYS = 256
MOST_PIECES = 32
MOST_ODD = 0.5  # of all lines
_KINDS: dict[type[Attribute], int] = {
    Int: kernels.INT,
    Float: kernels.FLOAT,
    Bool: kernels.BOOL,
    Category: kernels.WORD,
    Text: kernels.WORD,
    Timestamp: kernels.TICKS,
}
_OTHER_KINDS = {pa.int64(): kernels.INT, pa.string(): kernels.TEXT}
# made once: a fifteenth of a microsecond for each of 50,000 lines
_powers = cache(powers_of_five)
# the kernel reads eight letters of a key at once
_PADDING = b"\0" * 8


class CodedLines(NamedTuple):
    """Some lines of a chunk, from the first to before the last; events and other columns of those taken."""

    first: int
    last: int
    lines: npt.NDArray[np.int64]
    events: Events | None
    others: pa.Table | None


class WholeLines(NamedTuple):
    """Lines that were all taken: their events, their texts one after the other, the length of the longest."""

    events: Events
    letters: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    longest: int


_Coded = tuple[npt.NDArray[np.int64], LineCodes, dict[int, WordTable]]
"""Where the letters lie, what the kernel read, and the tables of words that it knew."""


class LineCoder:
    """Reads lines of one file, with the keys that it has met so far.

    `others` are the columns beside the attributes, of whole numbers or strings.
    """

    def __init__(self, schema: Schema, others: Mapping[str, pa.DataType]) -> None:
        self._schema = schema.declared
        self._others = dict(others)
        self._names = [*self._schema.names, *others]
        kinds = [_kind(attribute) for attribute in self._schema]
        self._kinds = [*kinds, *(_OTHER_KINDS[kind] for kind in others.values())]
        self.keys: list[str] = []
        """The keys in the order in which they came."""
        self._spelled: list[bytes] = []
        self._rows: list[tuple[int, int, int, int]] = []
        some = kernels.FLOAT in self._kinds
        self._powers = _powers() if some else np.zeros((1, 2), np.uint64)

    @staticmethod
    def fits(schema: Schema, others: Mapping[str, pa.DataType | None]) -> bool:
        """Whether lines can be read for a schema and other columns."""
        known = all(type(a) in _KINDS and a.expression is None for a in schema.declared)
        named = [*schema.names, *others]
        return known and len(set(named)) == len(named) and not any("." in name for name in named)

    def pieces(self, chunk: LineChunk) -> list[CodedLines] | None:
        """A chunk in pieces, or None where too many lines of it are odd for that."""
        found = self._code(chunk.data, chunk.starts)
        return None if found is None else self._cut(*found)

    def whole(self, data: bytes, starts: npt.NDArray[np.int64]) -> WholeLines | None:
        """Lines as events, those that are blank left out; None where one is odd."""
        found = self._code(data, starts)
        if found is None or (found[1].marks == kernels.ODD).any():
            return None
        text, out, _ = found
        taken = self._piece(*found, 0, len(out.marks), odd=False)
        if taken.events is None:
            return None
        letters, firsts = np.empty(len(data), np.uint8), np.empty(len(taken.lines) + 1, np.int64)
        longest = kernels.trim_lines(text, starts, out.marks, letters, firsts)
        return WholeLines(taken.events, letters[: firsts[-1]], firsts, int(longest))

    def _code(self, data: bytes, starts: npt.NDArray[np.int64]) -> _Coded | None:
        n, c = len(starts) - 1, len(self._names)
        letters = np.frombuffer(data, np.uint8)
        text = np.array([(letters.ctypes.data, len(letters), 1)], np.int64)
        tables: dict[int, WordTable] = {}
        places = np.zeros((3 * c, 3), np.int64)
        for k, attribute in enumerate(self._schema):
            if isinstance(attribute, Category):
                tables[k], places[3 * k : 3 * k + 3] = attribute.vocabulary.placed_table()
        spans = np.zeros((c, 3, n), np.int32)
        for k, kind in enumerate(self._kinds):
            if kind == kernels.TEXT:
                spans[k, 2] = -1
        out = LineCodes(
            np.full((c, n), MISSING, np.int64),
            spans,
            np.zeros(c, np.int64),
            np.zeros(n, np.uint8),
            np.zeros(2, np.int64),
        )
        while not self._read(text, starts, places, out):
            if not self._learn(data, int(out.state[1])):
                return None
        return text, out, tables

    def _read(
        self,
        text: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        tables: npt.NDArray[np.int64],
        out: LineCodes,
    ) -> bool:
        spelled = np.frombuffer(b"".join(self._spelled) + _PADDING, np.uint8).copy()
        keys = np.array(self._rows, np.int64).reshape(-1, 4)
        known = LineKeys(keys, spelled, tables, self._powers)
        return bool(kernels.read_lines(text, starts, known, np.zeros(len(keys), np.int64), out))

    def _learn(self, data: bytes, at: int) -> bool:
        """Take note of the key that stands at a place; False where there are too many."""
        end = data.index(b'"', at + 1) + 1
        spelled = data[at:end]
        if len(self.keys) == MOST_KEYS:
            return False
        key = json.loads(spelled)
        kind, column = kernels.SKIPPED, 0
        if key in self._names:
            column = self._names.index(key)
            kind = self._kinds[column]
        elif named_columns(self._names, [key]).columns or _alike(self._names, key):
            kind = kernels.UNSURE
        first = sum(map(len, self._spelled))
        self.keys.append(key)
        self._spelled.append(spelled)
        self._rows.append((first, first + len(spelled), kind, column))
        return True

    def _cut(
        self, text: npt.NDArray[np.int64], out: LineCodes, tables: Mapping[int, WordTable]
    ) -> list[CodedLines] | None:
        n = len(out.marks)
        odd = out.marks == kernels.ODD
        edges = np.flatnonzero(np.diff(odd, prepend=False, append=False))
        if len(edges) > 2 * MOST_PIECES or np.count_nonzero(odd) > MOST_ODD * n:
            return None
        cuts = np.unique([0, *edges.tolist(), n])
        return [
            self._piece(text, out, tables, int(a), int(b), bool(odd[a])) for a, b in itertools.pairwise(cuts)
        ]

    def _piece(
        self,
        text: npt.NDArray[np.int64],
        out: LineCodes,
        tables: Mapping[int, WordTable],
        first: int,
        last: int,
        odd: bool,
    ) -> CodedLines:
        lines = first + np.flatnonzero(out.marks[first:last] == kernels.TAKEN)
        if odd or not len(lines):
            return CodedLines(first, last, lines, None, None)
        d, whole = len(self._schema), len(lines) == len(out.marks)
        events = Events(self._schema, out.codes[:d] if whole else out.codes[:d, lines], copy=False)
        for k, table in tables.items():
            rows, begins, sizes = out.spans[k, :, : out.counts[k]]
            if not whole:
                own = (rows >= first) & (rows < last)
                rows, begins, sizes = np.searchsorted(lines, rows[own]), begins[own], sizes[own]
            if len(rows):
                found = rows.astype(np.int64), strings_of_spans(text, begins, sizes)
                events.note_strangers(k, Strangers(len(table.starts) - 1, found))
        others = {}
        for k, (name, kind) in enumerate(self._others.items(), d):
            if kind == pa.int64():
                column = out.codes[k, lines]
                missing = column == MISSING
                others[name] = pa.array(column, kind, mask=missing if missing.any() else None)
            else:
                others[name] = strings_of_spans(text, out.spans[k, 1, lines], out.spans[k, 2, lines], kind)
        return CodedLines(first, last, lines, events, pa.table(others))


def _kind(attribute: Attribute) -> int:
    # whole numbers of another unit are left to others
    other = isinstance(attribute, Timestamp) and attribute.unit != "us"
    return kernels.INSTANT if other else _KINDS[type(attribute)]


def _alike(names: Sequence[str], key: str) -> bool:
    return any(name.casefold() == key.casefold() for name in names)
