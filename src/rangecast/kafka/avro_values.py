"""Values in Avro: one record in the binary encoding, by the schema that it was written with.

fastavro decodes a record in C. To read by a schema of the wanted fields alone, so that the others are
passed over, was tried: 10 % slower with half of six fields wanted. Enums are their symbols, logical times
are times, a union is the value that was written.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rangecast.errors import OptionError, SetupError, extra_hint
from rangecast.kafka.registry import RegisteredSchema, SchemaRegistry
from rangecast.kafka.values import BodyReader
from rangecast.types.column_names import value_inside


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
