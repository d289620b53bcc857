"""Values in Protobuf: one message, by descriptors from the registry or from a file.

A registry gives a file's descriptor in its serialized form, so no compiler of .proto files is needed;
between the schema's id and the body stand the indexes that say which message of the file it is. Without a
registry, the schema file is a descriptor set (`protoc --include_imports --descriptor_set_out=orders.desc
orders.proto`), and the message is its only one that stands at the top of the last file, unless it is named.

A field that knows whether it is there (`optional`, messages, proto2) is missing when it is not there; any
other has its default value then, as Protobuf has it. Enums are their names, Timestamp is a time, wrappers
(`Int64Value`, ...) are their value.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import OptionError, SetupError, StorageError, extra_hint
from rangecast.loading.files import RowBatch, UnreadRow
from rangecast.loading.formats import open_rows
from rangecast.types.frames import ObjectNames, key_of, value_inside

# Values of messages as rows: which format they have, and the reader of JSON.
#
#     format     a value is             its schema is
#     json       a JSON object          not needed; line breaks within a value are white space
#     avro       one record, binary     of the registry, or an Avro schema (JSON) in a file (formats.py)
#     protobuf   one message            of the registry, or a descriptor set in a file (formats.py)
#
# With a registry, a value begins with the byte 0 and the id of its schema in four bytes (formats.py), so
# values of one batch may have several schemas; without one, a value is the body alone and has the schema of
# the file.
#
# Readers give the rows of loading/files.py, whose numbers count the messages of the batch from 1. A value
# that is none of its format is an unread row with its reason. What the values of a row mean is not told here:
# numbers, texts and times of all formats go through the same step (loading/events.py).

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
            return SchemaValues(AvroSchemas(registry, self.schema_file).reader, registry is not None)

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


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WRAPPERS = "google.protobuf.", "Value"


class ProtobufSchemas:
    """The schemas of a topic's values; each message type is made once."""

    def __init__(
        self, registry: SchemaRegistry | None, schema_file: str | None, message: str | None = None
    ) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
            from google.protobuf.message import DecodeError
        except ImportError:
            raise SetupError(f"values in Protobuf need the package protobuf: {extra_hint('kafka')}") from None
        self._pb2: Any = descriptor_pb2
        self._new_pool: Any = descriptor_pool.DescriptorPool
        self._class_of: Any = message_factory.GetMessageClass
        self._decode_error: type[Exception] = DecodeError
        self._registry = registry
        self._files: dict[int, Any] = {}
        self._readers: dict[tuple[int, tuple[int, ...]], BodyReader] = {}
        self._own: BodyReader | None = None
        if schema_file is not None:
            self._own = self._of_file(schema_file, message)

    def reader(self, number: int | None, body: bytes) -> tuple[BodyReader, bytes]:
        """The reader of a value's message type, and the body that it reads."""
        if number is None:
            assert self._own is not None
            return self._own, body
        indexes, rest = _indexes(body)
        found = self._readers.get((number, indexes))
        if found is None:
            found = self._reader_of(self._message_at(number, indexes))
            self._readers[number, indexes] = found
        return found, rest

    def _of_file(self, path: str, message: str | None) -> BodyReader:
        wanted = self._pb2.FileDescriptorSet()
        try:
            wanted.ParseFromString(Path(path).read_bytes())
        except (OSError, self._decode_error) as error:
            raise OptionError(f"{path}: is not a descriptor set of Protobuf: {error}") from None
        if not wanted.file:
            raise OptionError(f"{path}: is not a descriptor set of Protobuf: it has no file")
        pool = self._new_pool()
        try:
            for file in wanted.file:
                pool.AddSerializedFile(file.SerializeToString())
            last = wanted.file[-1]
            tops = [".".join(filter(None, (last.package, found.name))) for found in last.message_type]
            if message is None and len(tops) != 1:
                raise OptionError(f"{path}: name the message: it has {', '.join(tops) or 'none'}")
            return self._reader_of(pool.FindMessageTypeByName(message or tops[0]))
        except KeyError:
            raise OptionError(f"{path}: has no message {message!r}; it has {', '.join(tops)}") from None
        except TypeError as error:
            raise OptionError(
                f"{path}: its imports must be in it (protoc --include_imports): {error}"
            ) from None

    def _message_at(self, number: int, indexes: tuple[int, ...]) -> Any:
        file = self._files.get(number)
        if file is None:
            file = self._registered(number)
            self._files[number] = file
        types = list(file.message_types_by_name.values())
        found = None
        for index in indexes:
            if index >= len(types):
                raise ValueError(f"the schema {number} has no message at the indexes {list(indexes)}")
            found = types[index]
            types = list(found.nested_types)
        return found

    def _registered(self, number: int) -> Any:
        assert self._registry is not None
        kind = self._registry.by_id(number).kind
        if kind != "PROTOBUF":
            raise ValueError(f"the schema {number} must be one of Protobuf, got {kind}")
        schema = self._registry.by_id(number, serialized=True)
        pool = self._new_pool()
        self._add_known(pool)
        try:
            self._add_references(pool, schema, set())
            return self._add(pool, schema.text, f"schema-{number}.proto")
        except (ValueError, TypeError, KeyError, self._decode_error) as error:
            raise ValueError(f"the schema {number} cannot be read: {error}") from None

    def _add_known(self, pool: Any) -> None:
        """The types that every Protobuf brings, which a registry need not have."""
        from google.protobuf import any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

        for module in (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)

    def _add_references(self, pool: Any, schema: RegisteredSchema, seen: set[str]) -> None:
        assert self._registry is not None
        for name, subject, version in schema.references:
            if name in seen or name.startswith("google/protobuf/"):
                continue
            seen.add(name)
            other = self._registry.by_subject(subject, version, serialized=True)
            self._add_references(pool, other, seen)
            self._add(pool, other.text, name)

    def _add(self, pool: Any, text: str, name: str) -> Any:
        file = self._pb2.FileDescriptorProto()
        file.ParseFromString(base64.b64decode(text))
        # a registry knows files by the names that others import them by, not by their own
        file.name = name
        pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(name)

    def _reader_of(self, descriptor: Any) -> BodyReader:
        message = self._class_of(descriptor)
        wrong = self._decode_error

        def decode(body: bytes) -> Any:
            try:
                return message.FromString(body)
            except wrong as error:
                raise ValueError(f"a value must be a message {descriptor.full_name}: {error}") from None

        return BodyReader([field.name for field in descriptor.fields], decode, _picks(descriptor))


def _indexes(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """Which message of its file a value is, by the numbers before its body; ValueError if they end early."""
    count, at = _varint(body, 0)
    if count <= 0:
        return (0,), body[at:]
    out = []
    for _ in range(count):
        index, at = _varint(body, at)
        out.append(max(index, 0))
    return tuple(out), body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(body) or shift > 63:
            raise ValueError("a value must name its message by indexes, and ends before they do")
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _picks(descriptor: Any) -> Callable[[tuple[str, ...]], Callable[[Any], Any]]:
    def pick(path: tuple[str, ...]) -> Callable[[Any], Any]:
        steps: list[Callable[[Any], Any]] = []
        here = descriptor
        for name in path:
            key = None if here is None else key_of(name, here.fields_by_name)
            if key is None:
                return lambda message: None
            field = here.fields_by_name[key]
            steps.append(_field(field))
            here = field.message_type
        if len(steps) == 1:
            return steps[0]

        def inside(message: Any) -> Any:
            for step in steps:
                message = None if message is None else step(message)
            return message

        return inside

    return pick


def _field(field: Any) -> Callable[[Any], Any]:
    """A function from a message to the value of a field."""
    name = field.name
    shown = _shown(field)
    if field.is_repeated:
        if shown is None:
            return lambda message: list(getattr(message, name))
        return lambda message: [shown(value) for value in getattr(message, name)]
    if field.has_presence:
        if shown is None:
            return lambda message: getattr(message, name) if message.HasField(name) else None
        return lambda message: shown(getattr(message, name)) if message.HasField(name) else None
    if shown is None:
        return lambda message: getattr(message, name)
    return lambda message: shown(getattr(message, name))


def _shown(field: Any) -> Callable[[Any], Any] | None:
    """What makes a value of a field one that events take; None where it is one."""
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    if field.message_type is None:
        return None
    known = field.message_type.full_name
    if known == "google.protobuf.Timestamp":
        return _moment
    if known.startswith(_WRAPPERS[0]) and known.endswith(_WRAPPERS[1]) and known.count("Value") == 1:
        inner = field.message_type.fields_by_name.get("value")
        if inner is not None:
            return lambda wrapper: wrapper.value
    return None


def _moment(stamp: Any) -> Any:
    """The time of a Timestamp; one beyond the years that a time may have is a text, and so rejected."""
    try:
        return _EPOCH + dt.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1_000)
    except OverflowError:
        return f"{stamp.seconds} seconds"


# Values in Avro: one record in the binary encoding, by the schema that it was written with.
#
# fastavro decodes a record in C. To read by a schema of the wanted fields alone, so that the others are
# passed over, was tried: 10 % slower with half of six fields wanted. Enums are their symbols, logical times
# are times, a union is the value that was written.


class AvroSchemas:
    """The schemas of a topic's values, each parsed once."""

    def __init__(self, registry: SchemaRegistry | None, schema_file: str | None) -> None:
        try:
            import fastavro
        except ImportError:
            raise SetupError(f"values in Avro need the package fastavro: {extra_hint('kafka')}") from None
        self._avro: Any = fastavro
        self._registry = registry
        self._readers: dict[int | None, BodyReader] = {}
        if schema_file is not None:
            try:
                self._readers[None] = self._reader_of(json.loads(Path(schema_file).read_text()), {})
            except (OSError, ValueError, fastavro.schema.SchemaParseException) as error:
                raise OptionError(f"{schema_file}: is no Avro schema of a record: {error}") from None

    def reader(self, number: int | None, body: bytes) -> tuple[BodyReader, bytes]:
        """The reader of a schema, and the body that it reads."""
        found = self._readers.get(number)
        if found is None:
            assert self._registry is not None
            assert number is not None
            found = self._registered(number, self._registry)
            self._readers[number] = found
        return found, body

    def _registered(self, number: int, registry: SchemaRegistry) -> BodyReader:
        schema = registry.by_id(number)
        if schema.kind != "AVRO":
            raise ValueError(f"the schema {number} must be one of Avro, got {schema.kind}")
        named: dict[str, Any] = {}
        try:
            self._take_references(schema, registry, named)
            return self._reader_of(json.loads(schema.text), named)
        except (ValueError, self._avro.schema.SchemaParseException) as error:
            raise ValueError(f"the schema {number} cannot be read: {error}") from None

    def _take_references(
        self, schema: RegisteredSchema, registry: SchemaRegistry, named: dict[str, Any]
    ) -> None:
        for name, subject, version in schema.references:
            if name not in named:
                other = registry.by_subject(subject, version)
                self._take_references(other, registry, named)
                self._avro.parse_schema(json.loads(other.text), named_schemas=named)

    def _reader_of(self, schema: Any, named: dict[str, Any]) -> BodyReader:
        parsed = self._avro.parse_schema(schema, named_schemas=named)
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ValueError("a value must be a record")
        read = self._avro.schemaless_reader

        def decode(body: bytes) -> Any:
            stream = io.BytesIO(body)
            try:
                record = read(stream, parsed, None)
            except Exception as error:
                # whatever bytes can make a decoder do: the end too early, an index beyond its union, bad
                # UTF-8
                reason = str(error) or type(error).__name__
                raise ValueError(f"a value must be a record of {parsed['name']} in Avro: {reason}") from None
            if stream.tell() != len(body):
                rest = len(body) - stream.tell()
                raise ValueError(
                    f"a value must be a record of {parsed['name']} in Avro: {rest} bytes are left over"
                )
            return record

        return BodyReader([field["name"] for field in parsed["fields"]], decode, _pick)


def _pick(path: tuple[str, ...]) -> Callable[[Any], Any]:
    if len(path) == 1:
        [name] = path
        return lambda record: record[name]

    return lambda record: value_inside(record, path)


# A schema registry: the schema of an id, asked for once.
#
# The interface is the one that Confluent's registry has and others speak as well (Karapace, Redpanda,
# Apicurio):
#
#     GET /schemas/ids/7                       {"schema": ..., "schemaType": "AVRO", "references": [...]}
#     GET /schemas/ids/7?format=serialized     Protobuf: the file's descriptor in base64 instead of its text
#     GET /subjects/order.proto/versions/2     a schema that another one refers to
#
# A value begins with the byte 0 and the schema's id in four bytes, the highest first; then comes the body.
#
# What a registry says of an id never changes, so answers are kept. An id that it does not know is not kept:
# it is asked for again after a while, and until then values with it are rejected. A registry that cannot be
# reached is a StorageError, since nothing is wrong with the values.

_MAGIC, _HEAD = 0, 5
_SECONDS = 10.0
_TRIES = 3
_UNKNOWN_SECONDS = 10.0
_NOT_FOUND = 404


def wire_parts(value: bytes | None) -> tuple[int, bytes]:
    """The schema's id and the body of a value; ValueError says what is wrong.

    >>> wire_parts(bytes([0, 0, 0, 1, 2]) + b"body")
    (258, b'body')
    """
    if not value:
        raise ValueError("a value must not be null or empty")
    if value[0] != _MAGIC or len(value) < _HEAD:
        raise ValueError(
            f"a value must begin with the byte 0 and the four bytes of its schema's id, got {value[:_HEAD]!r}"
        )
    return int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it; `references` are (name, subject, version)."""

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()


class SchemaRegistry:
    """The registry at an address; a user and a password may stand in it (https://user:password@host)."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"a registry is an address such as http://127.0.0.1:8081, got {url!r}")
        place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.url = urllib.parse.urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username:
            user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._known: dict[str, RegisteredSchema] = {}
        self._unknown: dict[str, float] = {}

    def by_id(self, number: int, serialized: bool = False) -> RegisteredSchema:
        """The schema of an id; ValueError where the registry has none."""
        return self._ask(f"/schemas/ids/{number}", f"the schema {number}", serialized)

    def by_subject(self, subject: str, version: int, serialized: bool = False) -> RegisteredSchema:
        """A version of a subject, to which another schema refers."""
        quoted = urllib.parse.quote(subject, safe="")
        return self._ask(f"/subjects/{quoted}/versions/{version}", f"{subject} {version}", serialized)

    def _ask(self, path: str, what: str, serialized: bool) -> RegisteredSchema:
        path += "?format=serialized" if serialized else ""
        known = self._known.get(path)
        if known is not None:
            return known
        asked = self._unknown.get(path)
        if asked is None or time.monotonic() - asked > _UNKNOWN_SECONDS:
            answer = self._get(path)
            if answer is not None:
                references = tuple(
                    (str(r["name"]), str(r["subject"]), int(r["version"]))
                    for r in answer.get("references") or ()
                )
                found = RegisteredSchema(answer.get("schemaType") or "AVRO", answer["schema"], references)
                self._known[path] = found
                return found
            self._unknown[path] = time.monotonic()
        raise ValueError(f"the registry does not have {what}")

    def _get(self, path: str) -> dict[str, Any] | None:
        request = urllib.request.Request(self.url + path, headers=self._headers)
        trouble = ""
        for attempt in range(_TRIES):
            try:
                with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                    found = json.load(response)
                if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
                    raise StorageError(f"{self.url}{path}: must answer with a schema, got {found!r}")
                return found
            except urllib.error.HTTPError as error:
                if error.code == _NOT_FOUND:
                    return None
                trouble = f"HTTP {error.code}"
                if error.code < 500:
                    break
            except (OSError, ValueError) as error:
                trouble = str(error)
            time.sleep(0.2 * 2**attempt)
        raise StorageError(f"{self.url}: the schema registry does not answer: {trouble}")
