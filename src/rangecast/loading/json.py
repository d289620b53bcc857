"""Files of JSON lines: one object a line.

Arrow reads a chunk at once where every value has the type that its column is expected to have. A
chunk in which something is different is cut into PARTS, and those of them again in which it is; what is left
is read line by line. So "12" for a number, a whole number written 12.0 or a broken line costs the lines
around it; both ways give the same values. Where most parts are different, cutting stops.

Each object names its values itself, so capitals are settled object by object: a key is taken for the wanted
name that it differs from in capitals alone. Arrow's reader knows the keys of the first object; a chunk in
which a wanted value is missing somewhere, and its name stands in other capitals, is read line by line too.

A wanted name with dots, `user.country`, that is not a key of an object is looked for inside of it: the key
`country` of the object that is its `user` (types/frames.py). Arrow's reader looks where the first
object has it; a chunk in which it may stand elsewhere is read line by line.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pajson

from rangecast.durable.bucket import size_of
from rangecast.loading.files import LineChunk, LineReader, RowBatch, RowFile, UnreadRow
from rangecast.model import kernels_rows as kernels
from rangecast.model.events import Events, Strangers
from rangecast.model.kernels_rows import LineCodes, LineKeys, powers_of_five
from rangecast.types.attributes import MISSING, Attribute, Bool, Category, Float, Int, Text, Timestamp
from rangecast.types.columns import describe
from rangecast.types.frames import ObjectNames, key_of, named_columns, struct_inside, value_inside
from rangecast.types.kernels import WordTable
from rangecast.types.schema import Schema
from rangecast.types.strings import strings_of_spans

_MANY_KINDS = 1_000
PARTS = 8
LEAST_CODED = 1 << 18  # bytes: what is less is read before the kernel has come from its cache
FEW_LINES = 64
_ESCAPED_KEY = re.compile(rb'\\u[0-9a-fA-F]{4}(?:[^"\\]|\\.)*"\s*:')


class JsonLinesFile(RowFile):
    """A file of JSON lines; `wanted` are the columns to keep and their Arrow types, None for all.

    A type of None stands for what the first object has: whole numbers or strings. `keys` are those of the
    first object, and of all others that were read line by line.
    """

    keys: Sequence[str] = ()

    def __init__(
        self,
        path: str,
        wanted: Mapping[str, pa.DataType | None] | None = None,
        stream: BinaryIO | None = None,
    ) -> None:
        self._reader = LineReader(path, stream)
        self._wanted = wanted
        self._schema: pa.Schema | None = None
        self._wanted_of: dict[str, str] | None = None
        self._objects = ObjectNames(list(wanted or ()))
        self._known_kinds: set[tuple[str, ...]] = set()
        self._dotted = [name for name in wanted or () if "." in name]
        # of those names: the path of keys that the first object has it by, or () for a key
        self._paths: dict[str, tuple[str, ...]] = {}
        self._tangled = False
        # whether no object so far had a key that is not wanted
        self._closed = False
        self._events: Schema | None = None
        self._at_once = True
        self._coder: LineCoder | None = None
        self.size = None if stream else size_of(path)

    def close(self) -> None:
        self._reader.close()

    def read_events(self, schema: Schema, at_once: bool) -> None:
        """Give batches with the events of a schema, whose attributes are wanted, where lines allow it.

        Unless `at_once`, that begins with a chunk of which all lines do: whoever still has to find out what
        ids are like looks at the first batch, which is to have the whole of its chunk.
        """
        self._events = schema
        self._at_once = at_once

    def batches(self) -> Iterator[RowBatch]:
        seen = 0
        for chunk in self._reader.chunks(quoted=False):
            for batch in self._coded(chunk, seen):
                seen += len(batch) + len(batch.unread)
                yield batch

    def _coded(self, chunk: LineChunk, seen: int) -> Iterator[RowBatch]:
        """A chunk as few batches: events straight from its lines, and what the others hold."""
        pieces = None
        if self._events is not None and not chunk.foreign and len(chunk.data) >= LEAST_CODED:
            coder = self._coder or self._new_coder(self._events, chunk)
            pieces = None if coder is None else coder.pieces(chunk)
            if coder is not None and pieces is None:
                self._events = None
            self._coder = coder
        if pieces is None or not (self._at_once or len(pieces) == 1):
            self._at_once = True
            yield from self._cut(chunk, seen)
            return
        self._at_once = True
        assert coder is not None
        self.keys = list(dict.fromkeys([*self.keys, *coder.keys]))
        for first, last, lines, events, others in pieces:
            if events is None:
                for batch in self._cut(chunk.part(first, last), seen):
                    seen += len(batch) + len(batch.unread)
                    yield batch
                continue
            rows = np.arange(seen + 1, seen + 1 + len(lines), dtype=np.int64)
            seen += len(lines)
            numbers = chunk.numbers[lines]
            yield RowBatch(others, rows, numbers, _raw(chunk, lines), [], chunk.position, None, events)

    def _new_coder(self, schema: Schema, chunk: LineChunk) -> LineCoder | None:
        """What reads lines into codes, by the first object of the file; None where that cannot be."""
        assert self._wanted is not None
        others = {name: kind for name, kind in self._wanted.items() if name not in schema.names}
        filled = np.flatnonzero(~chunk.blank())
        if not LineCoder.fits(schema, others):
            self._events = None
        elif len(filled):
            text = chunk.text(filled[0], filled[0] + 1)
            names = self._names(text)
            if self._wanted_of is not None and not names:
                kinds = _settle(self._wanted, names, self._paths, text)
                return LineCoder(schema, {name: kinds.field(name).type for name in others})
            self._events = None
        return None

    def _cut(self, chunk: LineChunk, seen: int) -> Iterator[RowBatch]:
        """A chunk as few batches: by Arrow as far as it can, line by line around what is different."""
        whole = self._fast(chunk, seen)
        if whole is not None:
            yield whole
            return
        n = len(chunk.numbers)
        if n <= FEW_LINES or self._wanted is None:
            yield self._careful(chunk, seen)
            return
        cuts = np.linspace(0, n, PARTS + 1).astype(int).tolist()
        parts = [chunk.part(a, b) for a, b in itertools.pairwise(cuts)]
        # not yet with their rows' numbers, which depend on how many rows the parts before have
        read = [self._fast(part, 0) for part in parts]
        if 2 * sum(batch is None for batch in read) > PARTS:
            yield self._careful(chunk, seen)
            return
        for part, batch in zip(parts, read, strict=True):
            batches = self._cut(part, seen) if batch is None else [_numbered(batch, seen)]
            for one in batches:
                seen += len(one) + len(one.unread)
                yield one

    def _fast(self, chunk: LineChunk, seen: int) -> RowBatch | None:
        """The batch by Arrow's reader, or None when it has to be read line by line."""
        if self._wanted is None or chunk.foreign:
            return None
        filled = np.flatnonzero(~chunk.blank())
        if not len(filled) or not _looks_regular(chunk, filled):
            return None
        text = chunk.text(filled[0], filled[0] + 1)
        names = self._names(text)
        if self._tangled or self._wanted_of is None:
            return None
        if self._schema is None:
            self._schema = _settle(self._wanted, names, self._paths, text)
        if self._paths and self._has_other_paths(chunk.data):
            return None
        try:
            table = self._read(chunk.data)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if len(table) != len(filled):
            return None
        if not self._closed and _other_capitals(chunk.data, table):
            return None
        for name, path in self._paths.items():
            if path:
                table = table.append_column(name, struct_inside(table[path[0]], path[1:], fold=False))
        table = table.rename_columns([names.get(name, name) for name in table.column_names])
        rows = np.arange(seen + 1, seen + 1 + len(filled), dtype=np.int64)
        return RowBatch(table, rows, chunk.numbers[filled], _raw(chunk, filled), [], chunk.position)

    def _has_other_paths(self, data: bytes) -> bool:
        """Whether some object may have by a key what the first has by a path, or by another path."""
        lowered = data.lower()
        # a key with escapes is not found by its letters
        if rb"\u" in data and _ESCAPED_KEY.search(data):
            return True
        for name, path in self._paths.items():
            # of other letters lower() knows no capitals
            if not name.isascii() and not data.isascii():
                return True
            if _key(name if path else name.partition(".")[0]).lower() in lowered:
                return True
            for key in map(_key, path):
                if lowered.count(key.lower()) != data.count(key):
                    keys = re.findall(re.escape(key) + rb"(?=\s*:)", data, re.IGNORECASE)
                    if any(one != key for one in keys):
                        return True
        return False

    def _read(self, data: bytes) -> pa.Table:
        """A chunk by Arrow's reader.

        Where all keys so far are wanted, the reader says when there is another one. As long as there is none,
        no key stands in other capitals: looking for that takes a fifth of the time of reading.
        """
        if self._closed:
            try:
                return _read_json(data, self._schema, "error")
            except pa.ArrowInvalid as error:
                if "unexpected field" not in str(error):
                    raise
                self._closed = False
        return _read_json(data, self._schema, "ignore")

    def _names(self, text: str) -> dict[str, str]:
        """The wanted name of each key that is written otherwise, by the first object of the file."""
        if self._wanted_of is None:
            try:
                found = _object(text)
            except ValueError:
                return {}
            self._wanted_of = self._own_names(found)
            keys = {self._wanted_of.get(key, key) for key in found}
            self._closed = not self._dotted and keys <= set(self._wanted or ())
            self._paths = {name: () if name in keys else _own_path(found, name) for name in self._dotted}
            # a value and what is inside of it: Arrow reads one type per key
            self._tangled = any(
                path and other != name and name.casefold().startswith(f"{other.casefold()}.")
                for name, path in self._paths.items()
                for other in self._wanted or ()
            )
        return self._wanted_of

    def _own_names(self, found: dict[str, Any]) -> dict[str, str]:
        """The same by the object itself; objects of one kind have the same keys."""
        self._note(found)
        columns = self._objects.kind_of(tuple(found)).columns
        return {key: name for name, key in columns.items() if key != name}

    def _note(self, found: dict[str, Any]) -> None:
        """Take note of the keys of an object."""
        keys = tuple(found)
        if keys not in self._known_kinds and len(self._known_kinds) < _MANY_KINDS:
            self._known_kinds.add(keys)
            self.keys = list(dict.fromkeys([*self.keys, *keys]))

    def _careful(self, chunk: LineChunk, seen: int) -> RowBatch:
        objects: list[dict[str, Any]] = []
        positions: list[int] = []
        rows: list[int] = []
        unread: list[UnreadRow] = []
        foreign = dict(chunk.foreign)
        where = {int(number): i for i, number in enumerate(chunk.numbers)}
        row = seen
        for line in sorted([*where, *foreign]):
            if line in foreign:
                row += 1
                raw = foreign[line].decode("utf-8", "replace")
                unread.append(UnreadRow(row, line, "a line must be UTF-8", raw))
                continue
            text = chunk.text(where[line], where[line] + 1)
            if not text.strip():
                continue
            row += 1
            try:
                found = _object(text)
            except ValueError as error:
                unread.append(UnreadRow(row, line, str(error), text))
                continue
            if self._wanted is not None:
                self._note(found)
                settled = self._objects.settled(found)
                found = {n: _widened(v, self._wanted[n]) for n, v in settled.items() if n in self._wanted}
            objects.append(found)
            positions.append(where[line])
            rows.append(row)
        at = np.array(positions, np.int64)
        numbers = chunk.numbers[at]
        return RowBatch(objects, np.array(rows, np.int64), numbers, _raw(chunk, at), unread, chunk.position)


def _read_json(data: bytes, schema: pa.Schema | None, unexpected: str) -> pa.Table:
    """What Arrow's reader makes of lines."""
    return pajson.read_json(
        pa.py_buffer(data),
        pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


def _raw(chunk: LineChunk, positions: Any) -> Any:
    return lambda i: chunk.text(positions[i], positions[i] + 1)


def _looks_regular(chunk: LineChunk, filled: Any) -> bool:
    """Whether each line is one object or several: then as many rows as lines means one in each."""
    letters = np.frombuffer(chunk.data, np.uint8)
    starts, ends = chunk.starts[filled], chunk.starts[filled + 1] - 2
    returns = letters[ends] == ord("\r")
    return bool((letters[starts] == ord("{")).all() and (letters[ends - returns] == ord("}")).all())


def _other_capitals(data: bytes, table: pa.Table) -> bool:
    """Whether a column that lacks values has its name in the text in other capitals too, as a key."""
    lowered: bytes | None = None
    capitals: bool | None = None
    for name in table.column_names:
        if not table[name].null_count:
            continue
        # a key with escapes is not found by its letters
        if rb"\u" in data and _ESCAPED_KEY.search(data):
            return True
        key = json.dumps(name, ensure_ascii=False)
        if name.isascii() and key == f'"{name.lower()}"':
            capitals = _capital_keys(data) if capitals is None else capitals
            if not capitals:
                continue
        if name.isascii():
            # counting takes a few milliseconds for 8 MB, a search by a pattern fifty
            lowered = data.lower() if lowered is None else lowered
            if lowered.count(key.lower().encode()) == data.count(key.encode()):
                continue
        keys = re.findall(re.escape(key) + r"(?=\s*:)", data.decode(), re.IGNORECASE)
        if any(found != key for found in keys):
            return True
    return False


def _capital_keys(data: bytes) -> bool:
    """Whether some key may have a capital of ASCII: one in a string that a colon, or a blank, comes after.

    Two milliseconds per megabyte, where counting one name takes as long.
    """
    letters = np.frombuffer(data, np.uint8)
    capitals = np.flatnonzero((letters >= ord("A")) & (letters <= ord("Z")))
    quotes = np.append(np.flatnonzero(letters[:-1] == ord('"')), len(letters) - 1)
    ends = quotes[np.searchsorted(quotes, capitals)]
    after = letters[np.minimum(ends + 1, len(letters) - 1)]
    return bool(((after == ord(":")) | (after <= ord(" "))).any())


def _settle(
    wanted: Mapping[str, pa.DataType | None],
    names: Mapping[str, str],
    paths: Mapping[str, tuple[str, ...]],
    text: str,
) -> pa.Schema:
    try:
        first = _object(text)
    except ValueError:
        first = {}
    keys = {name: key for key, name in names.items()}
    fields: dict[str, Any] = {}
    for name, kind in wanted.items():
        path = paths.get(name) or (keys.get(name, name),)
        value = value_inside(first, path, fold=False)
        inner = fields
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = kind or (pa.int64() if type(value) is int else pa.string())
    return pa.schema(list(_struct(fields)))


def _struct(fields: Mapping[str, Any]) -> pa.DataType:
    kinds = {key: _struct(kind) if isinstance(kind, dict) else kind for key, kind in fields.items()}
    return pa.struct(list(kinds.items()))


def _own_path(found: dict[str, Any], name: str) -> tuple[str, ...]:
    """The path of keys that a name with dots means, as an object writes them as far as it has them."""
    path: list[str] = []
    here: Any = found
    for step in name.split("."):
        key = key_of(step, here) if isinstance(here, dict) else None
        here = None if key is None else here[key]
        path.append(step if key is None else key)
    return tuple(path)


def _key(name: str) -> bytes:
    return f'"{name}"'.encode()


def _numbered(batch: RowBatch, seen: int) -> RowBatch:
    """A batch whose rows were counted from 1, after so many rows."""
    assert batch.rows is not None
    return dataclasses.replace(batch, rows=batch.rows + seen)


def _widened(value: Any, kind: pa.DataType | None) -> Any:
    """A whole number beyond 64 bits as a float where floats are expected, as Arrow's reader has it."""
    if type(value) is int and kind == pa.float64() and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            return value
    return value


def _object(text: str) -> dict[str, Any]:
    """The object of a line; ValueError says what is wrong."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"a line must be a JSON object: {error.msg} at character {error.pos + 1}") from None
    except (RecursionError, ValueError) as error:
        raise ValueError(f"a line must be a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"a line must be a JSON object, got {describe(found)}")
    if "\\u" in text:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a line must be a JSON object: half of a surrogate pair in a string") from None
    return found


# Lines of JSON as events, by a kernel that writes codes (model/kernels_rows.py).
#
# A table of columns is built by Arrow's reader and then encoded, and both together take three times as long
# as reading each value where it stands. Lines that the kernel does not take are left to the reader of any
# JSON: a chunk comes as pieces, in the order of its lines, of which some are events and the others lines.
#
# A key that was not there before is looked at once, here. One that differs from a wanted name in capitals
# alone makes its lines odd: whether it is taken depends on the other keys of its object.

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
