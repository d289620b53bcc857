"""Values of messages as rows: which format they have, and the reader of JSON.

    format     a value is             its schema is
    json       a JSON object          not needed; line breaks within a value are white space
    avro       one record, binary     of the registry, or an Avro schema (JSON) in a file (avro_values.py)
    protobuf   one message            of the registry, or a descriptor set in a file (protobuf_values.py)

With a registry, a value begins with the byte 0 and the id of its schema in four bytes (registry.py), so
values of one batch may have several schemas; without one, a value is the body alone and has the schema of
the file.

Readers give the rows of loading/batches.py, whose numbers count the messages of the batch from 1. A value
that is none of its format is an unread row with its reason. What the values of a row mean is not told here:
numbers, texts and times of all formats go through the same step (loading/events.py).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import OptionError
from rangecast.kafka.registry import SchemaRegistry, wire_parts
from rangecast.loading.batches import RowBatch, UnreadRow
from rangecast.loading.formats import open_rows
from rangecast.types.column_names import ObjectNames

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
FORMATS = (JSON, AVRO, PROTOBUF)
_BOM = b"\xef\xbb\xbf"
_NOTHING = "a value must not be null or empty"

Wanted = Mapping[str, pa.DataType | None]
"""The columns that are read, with the type that JSON is expected to have; None: as the first value."""


@dataclass(frozen=True)
class ValueFormat:
    """The format of a topic's values, as it was asked for."""

    format: str = JSON
    registry: str | None = None
    schema_file: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(
                f"the format of values must be one of {', '.join(FORMATS)}, got {self.format!r}"
            )
        if self.registry is not None and self.schema_file is not None:
            raise OptionError("schemas come from a registry or from a schema file, not from both")
        if self.format == JSON and self.schema_file is not None:
            raise OptionError("values in JSON need no schema file")
        if self.format != JSON and self.registry is None and self.schema_file is None:
            raise OptionError(f"values in {self.format} need a registry or a schema file")
        if self.message is not None and (self.format != PROTOBUF or self.registry is not None):
            raise OptionError("a message is named for protobuf with a schema file, and nowhere else")

    def reader(self) -> MessageValues:
        """The reader of such values."""
        registry = None if self.registry is None else SchemaRegistry(self.registry)
        if self.format == JSON:
            return JsonValues(registry)
        if self.format == AVRO:
            from rangecast.kafka.avro_values import AvroSchemas

            return SchemaValues(AvroSchemas(registry, self.schema_file).reader, registry is not None)
        from rangecast.kafka.formats import ProtobufSchemas

        schemas = ProtobufSchemas(registry, self.schema_file, self.message)
        return SchemaValues(schemas.reader, registry is not None)


class MessageValues:
    """Reads the values of some messages as rows, and single members of one value."""

    def batches(self, values: Sequence[bytes | None], wanted: Wanted, source: str) -> Iterator[RowBatch]:
        """The rows of some values."""
        raise NotImplementedError

    def members(self, value: bytes, names: Sequence[str]) -> dict[str, Any]:
        """Members of a value that was read before, as JSON has them; None for those that it lacks."""
        raise NotImplementedError


class JsonValues(MessageValues):
    """JSON objects, read by the reader of JSON lines; with a registry, behind the id of their schema."""

    def __init__(self, registry: SchemaRegistry | None = None) -> None:
        # the schema of a JSON value says what producers keep to; reading does not need it
        self._behind_id = registry is not None

    def batches(self, values: Sequence[bytes | None], wanted: Wanted, source: str) -> Iterator[RowBatch]:
        bad: dict[int, str] = {}
        if self._behind_id:
            values = list(values)
            for i, value in enumerate(values):
                try:
                    values[i] = wire_parts(value)[1]
                except ValueError as error:
                    values[i], bad[i + 1] = None, str(error)
        lines = _as_lines(values)
        if lines.startswith(_BOM):
            # a value does not become another by being the first of its batch: a file may begin with this mark
            lines = _BOM + lines
        with open_rows(source, wanted, format="jsonl", stream=io.BytesIO(lines + b"\n")) as file:
            for batch in file.batches():
                for k, row in enumerate(batch.unread if bad else ()):
                    batch.unread[k] = row._replace(reason=bad.get(row.row, row.reason))
                yield batch

    def members(self, value: bytes, names: Sequence[str]) -> dict[str, Any]:
        found = json.loads(wire_parts(value)[1] if self._behind_id else value)
        settled = ObjectNames(names).settled(found)
        return {name: settled.get(name) for name in names}


def _as_lines(values: Sequence[bytes | None]) -> bytes:
    """A line for each value."""
    if all(values) and not any(map(bytes.isspace, values)):  # type: ignore[arg-type]
        lines = b"\n".join(values)  # type: ignore[arg-type]
        if lines.count(b"\n") == len(values) - 1 and b"\r" not in lines:
            return lines
    return b"\n".join(map(_one_line, values))


def _one_line(value: bytes | None) -> bytes:
    if not value or value.isspace():
        return b"null"  # the reader would pass over an empty line, and so not count it
    if b"\n" in value or b"\r" in value:
        return value.replace(b"\r", b" ").replace(b"\n", b" ")
    return value


class BodyReader(NamedTuple):
    """What reads the bodies of one schema.

    `names` are the fields of its record; `decode` gives a record or raises ValueError; `pick` gives a
    function from a record to the value at a path of fields, in any capitals where that is unambiguous.
    """

    names: Sequence[str]
    decode: Callable[[bytes], Any]
    pick: Callable[[tuple[str, ...]], Callable[[Any], Any]]

    def picker(self, name: str) -> Callable[[Any], Any]:
        """A function to the value of a wanted name: a field, in any capitals, or the field at a path."""
        kind = ObjectNames([name]).kind_of(tuple(self.names))
        if name in kind.columns:
            return self.pick((kind.columns[name],))
        return self.pick(tuple(kind.inside[name])) if kind.inside else lambda record: None


class SchemaValues(MessageValues):
    """Values that only their schema can read: columns are made of the records of each schema at once.

    `schema_of` gives the reader of a schema's id, of None for the one in the file; ValueError where there
    is no such schema.
    """

    def __init__(
        self, schema_of: Callable[[int | None, bytes], tuple[BodyReader, bytes]], by_id: bool
    ) -> None:
        self._schema_of = schema_of
        self._by_id = by_id

    def batches(self, values: Sequence[bytes | None], wanted: Wanted, source: str) -> Iterator[RowBatch]:
        unread: list[UnreadRow] = []
        groups: dict[int, tuple[BodyReader, list[Any], list[int]]] = {}
        for i, value in enumerate(values):
            try:
                reader, body = self._open(value)
                record = reader.decode(body)
            except ValueError as error:
                raw = (value or b"").decode("utf-8", "replace")
                unread.append(UnreadRow(i + 1, i + 1, str(error), raw))
                continue
            _, records, rows = groups.setdefault(id(reader), (reader, [], []))
            records.append(record)
            rows.append(i + 1)

        for k, (reader, records, rows) in enumerate(groups.values()):
            columns = {name: list(map(reader.picker(name), records)) for name in wanted}
            yield _batch(columns, rows, values, unread if k == 0 else [])
        if unread and not groups:
            yield _batch({name: [] for name in wanted}, [], values, unread)

    def members(self, value: bytes, names: Sequence[str]) -> dict[str, Any]:
        reader, body = self._open(value)
        record = reader.decode(body)
        return {name: _plain(reader.picker(name)(record)) for name in names}

    def _open(self, value: bytes | None) -> tuple[BodyReader, bytes]:
        if not value:
            raise ValueError(_NOTHING)
        number, body = wire_parts(value) if self._by_id else (None, value)
        return self._schema_of(number, body)


def _batch(
    columns: dict[str, list[Any]], rows: list[int], values: Sequence[bytes | None], unread: list[UnreadRow]
) -> RowBatch:
    """Columns as an Arrow table; as dicts where the values of one differ in type."""
    data: pa.Table | list[dict[str, Any]]
    try:
        data = pa.table({name: pa.array(column) for name, column in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        data = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    numbers = np.array(rows, np.int64)

    def raw(i: int) -> str:
        row = {name: _plain(column[i]) for name, column in columns.items()}
        return json.dumps(row)

    return RowBatch(data, numbers, None, raw, unread)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
