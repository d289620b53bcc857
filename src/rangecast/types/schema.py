"""The schema: ordered attributes, shared by subscriptions, events and indexes.

A schema also carries the dictionaries of its categories, which grow as subscriptions name strings.
Data made with another schema object of the same attributes is accepted where its codes can be
brought over (see `reconcile` in model/subscriptions.py and model/events.py).
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangecast.errors import SchemaError
from rangecast.types.attributes import KINDS, Attribute, Bool, Category, Float, Int, Timestamp

_CATEGORY_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_dictionary,
    pa.types.is_null,
)


class Schema:
    """Ordered attributes.

    >>> schema = Schema(Int("price", 0, 4_999), Category("symbol"))
    >>> len(schema), schema.names, schema["price"].domain
    (2, ('price', 'symbol'), (0, 4999))
    """

    def __init__(self, *attributes: Attribute) -> None:
        if not attributes:
            raise SchemaError("a schema must have at least one attribute")
        for attribute in attributes:
            if not isinstance(attribute, Attribute):
                raise SchemaError(f"a schema takes attributes such as Int and Bool, got {attribute!r}")
        self.attributes = tuple(attributes)
        self.names = tuple(a.name for a in attributes)
        self._positions = {name: position for position, name in enumerate(self.names)}
        if len(self._positions) < len(self.names):
            twice = sorted({n for n in self.names if self.names.count(n) > 1})
            raise SchemaError(f"attribute names must differ, got twice: {', '.join(twice)}")
        self._folded = {name.casefold(): position for name, position in self._positions.items()}

    def __len__(self) -> int:
        return len(self.attributes)

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __getitem__(self, key: str | int) -> Attribute:
        return self.attributes[self.position(key) if isinstance(key, str) else key]

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.attributes == other.attributes

    def __hash__(self) -> int:
        return hash(self.attributes)

    def __repr__(self) -> str:
        return f"Schema({', '.join(map(repr, self.attributes))})"

    def position(self, name: str) -> int:
        """Where an attribute stands; a name in another case is taken when it is unambiguous."""
        position = self._positions.get(name)
        if position is None and len(self._folded) == len(self.names):
            position = self._folded.get(name.casefold())
        if position is None:
            raise SchemaError(f"unknown attribute {name!r}; the schema has {', '.join(self.names)}")
        return position

    def categories(self) -> Iterator[tuple[int, Category]]:
        """The categories with their positions."""
        for position, attribute in enumerate(self.attributes):
            if isinstance(attribute, Category):
                yield position, attribute

    def check_same(self, other: Schema, what: str) -> None:
        """Raise SchemaError unless `other` has the same attribute names and types in this order."""
        ours = [(a.name, a.kind) for a in self.attributes]
        theirs = [(a.name, a.kind) for a in other.attributes]
        if ours != theirs:
            shown = ", ".join(f"{n} {k}" for n, k in theirs)
            wanted = ", ".join(f"{n} {k}" for n, k in ours)
            raise SchemaError(f"{what} must have the attributes ({wanted}), got ({shown})")

    def to_dict(self, words: bool = False) -> dict[str, dict[str, Any]]:
        """Plain data, as in a schema file; `words` adds the dictionaries of the categories."""
        out: dict[str, dict[str, Any]] = {}
        for a in self.attributes:
            entry: dict[str, Any] = {"type": a.kind}
            for side in ("low", "high"):
                bound = getattr(a, side)
                if bound is not None:
                    entry[side] = bound.isoformat() if isinstance(bound, dt.date) else bound
            if words and isinstance(a, Category) and len(a.vocabulary):
                entry["values"] = a.vocabulary.words()
            out[a.name] = entry
        return out

    @classmethod
    def from_dict(cls, entries: Mapping[str, Mapping[str, Any]]) -> Schema:
        """The schema of `to_dict` or of a schema file's [attributes] table."""
        attributes: list[Attribute] = []
        for name, entry in entries.items():
            got = entry.get("type") if hasattr(entry, "get") else entry
            if got not in KINDS:
                raise SchemaError(f"attribute {name!r}: type must be one of {', '.join(KINDS)}, got {got!r}")
            kind = KINDS[entry["type"]]
            allowed = {Category: {"type", "values"}, Bool: {"type"}}.get(kind, {"type", "low", "high"})
            extra = sorted(set(entry) - allowed)
            if extra:
                raise SchemaError(f"attribute {name!r}: unknown setting {', '.join(extra)}")
            if kind is Category:
                attributes.append(Category(name, entry.get("values", ())))
            elif kind is Bool:
                attributes.append(Bool(name))
            else:
                attributes.append(kind(name, entry.get("low"), entry.get("high")))
        return cls(*attributes)

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file: one [attributes.NAME] table each, in order."""
        try:
            with open(path, "rb") as file:
                document = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"{path}: not a TOML file: {error}") from None
        entries = document.get("attributes")
        if not isinstance(entries, dict) or not entries:
            raise SchemaError(f"{path}: needs a table [attributes.NAME] for each attribute")
        try:
            return cls.from_dict(entries)
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}") from None

    def to_toml(self) -> str:
        """The text of a schema file."""
        lines: list[str] = []
        for name, entry in self.to_dict(words=False).items():
            lines.append(f"[attributes.{_toml_key(name)}]")
            lines += [f"{key} = {_toml_value(value)}" for key, value in entry.items()]
            lines.append("")
        return "\n".join(lines)

    @classmethod
    def infer(cls, table: pa.Table, skip: tuple[str, ...] = ()) -> Schema:
        """A schema for the columns of an Arrow table, with no domains."""
        attributes: list[Attribute] = []
        for field in table.schema:
            if field.name in skip:
                continue
            kind = field.type
            if pa.types.is_integer(kind):
                attributes.append(Int(field.name))
            elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
                attributes.append(Float(field.name))
            elif pa.types.is_boolean(kind):
                attributes.append(Bool(field.name))
            elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
                attributes.append(Timestamp(field.name))
            elif any(holds(kind) for holds in _CATEGORY_TYPES):
                attributes.append(Category(field.name))
            else:
                raise SchemaError(
                    f"column {field.name!r} has type {kind}, which no attribute can hold; leave it out"
                )
        return cls(*attributes)


def _toml_key(name: str) -> str:
    return name if all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
