"""Files of JSON lines: one object a line.

Arrow reads a chunk at once where every value has the type that its column is expected to have. A
chunk in which something is different is read line by line instead, so that "12" for a number, a whole
number written 12.0 or a broken line costs only the chunk it is in; both ways give the same values.

Each object names its values itself, so capitals are settled object by object: a key is taken for the wanted
name that it differs from in capitals alone. Arrow's reader knows the keys of the first object; a chunk in
which a wanted value is missing somewhere, and its name stands in other capitals, is read line by line too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from rangecast.loading.batches import RowBatch, RowFile, UnreadRow
from rangecast.loading.lines import LineChunk, LineReader
from rangecast.types.column_names import named_columns
from rangecast.types.columns import describe

_MANY_KINDS = 1_000


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
        self._names_of: dict[tuple[str, ...], dict[str, str]] = {}
        self.size = None if stream else os.path.getsize(path)

    def close(self) -> None:
        self._reader.close()

    def batches(self) -> Iterator[RowBatch]:
        seen = 0
        for chunk in self._reader.chunks(quoted=False):
            batch = self._fast(chunk, seen) or self._careful(chunk, seen)
            seen += len(batch) + len(batch.unread)
            yield batch

    def _fast(self, chunk: LineChunk, seen: int) -> RowBatch | None:
        """The batch by Arrow's reader, or None when it has to be read line by line."""
        if self._wanted is None or chunk.foreign:
            return None
        filled = np.flatnonzero(~chunk.blank())
        if not len(filled) or not _looks_regular(chunk, filled):
            return None
        names = self._names(chunk.text(filled[0], filled[0] + 1))
        if self._schema is None:
            self._schema = _settle(self._wanted, names, chunk.text(filled[0], filled[0] + 1))
        try:
            table = pajson.read_json(
                pa.py_buffer(chunk.data),
                pajson.ReadOptions(use_threads=False, block_size=len(chunk.data) + 1),
                pajson.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore"),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if len(table) != len(filled):
            return None
        if _other_capitals(chunk.data, table):
            return None
        table = table.rename_columns([names.get(name, name) for name in table.column_names])
        rows = np.arange(seen + 1, seen + 1 + len(filled), dtype=np.int64)
        return RowBatch(table, rows, chunk.numbers[filled], _raw(chunk, filled), [], chunk.position)

    def _names(self, text: str) -> dict[str, str]:
        """The wanted name of each key that is written otherwise, by the first object of the file."""
        if self._wanted_of is None:
            try:
                found = _object(text)
            except ValueError:
                return {}
            self._wanted_of = self._own_names(found)
        return self._wanted_of

    def _own_names(self, found: dict[str, Any]) -> dict[str, str]:
        """The same by the object itself; objects of one kind have the same keys."""
        keys = tuple(found)
        names = self._names_of.get(keys)
        if names is None:
            named = named_columns(list(self._wanted or ()), keys).columns
            names = {key: name for name, key in named.items() if key != name}
            if len(self._names_of) < _MANY_KINDS:
                self._names_of[keys] = names
                self.keys = list(dict.fromkeys([*self.keys, *keys]))
        return names

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
                names = self._own_names(found)
                found = {names.get(n, n): v for n, v in found.items()}
                found = {n: _widened(v, self._wanted[n]) for n, v in found.items() if n in self._wanted}
            objects.append(found)
            positions.append(where[line])
            rows.append(row)
        at = np.array(positions, np.int64)
        numbers = chunk.numbers[at]
        return RowBatch(objects, np.array(rows, np.int64), numbers, _raw(chunk, at), unread, chunk.position)


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
    for name in table.column_names:
        if not table[name].null_count:
            continue
        key = json.dumps(name, ensure_ascii=False)
        if name.isascii():
            # counting takes a few milliseconds for 8 MB, a search by a pattern fifty
            lowered = data.lower() if lowered is None else lowered
            if lowered.count(key.lower().encode()) == data.count(key.encode()):
                continue
        keys = re.findall(re.escape(key) + r"(?=\s*:)", data.decode(), re.IGNORECASE)
        if any(found != key for found in keys):
            return True
    return False


def _settle(wanted: Mapping[str, pa.DataType | None], names: Mapping[str, str], text: str) -> pa.Schema:
    try:
        first = _object(text)
    except ValueError:
        first = {}
    keys = {name: key for key, name in names.items()}
    read = {keys.get(name, name): kind for name, kind in wanted.items()}
    open_type = {key: pa.int64() if type(first.get(key)) is int else pa.string() for key in read}
    return pa.schema([(key, kind or open_type[key]) for key, kind in read.items()])


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
