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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rangecast.errors import OptionError, SetupError, extra_hint
from rangecast.kafka.registry import RegisteredSchema, SchemaRegistry
from rangecast.kafka.values import BodyReader
from rangecast.types.column_names import key_of

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
