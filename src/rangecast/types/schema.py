"""The schema: ordered attributes, shared by subscriptions, events and indexes.

A schema also carries the dictionaries of its categories, which grow as subscriptions name strings.
Data made with another schema object of the same attributes is accepted where its codes can be
brought over (see `reconcile` in model/subscriptions.py and model/events.py).
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangecast.errors import OptionError, SchemaError
from rangecast.types.attributes import (
    KINDS,
    Attribute,
    Bool,
    Category,
    Float,
    Int,
    Tags,
    Text,
    Timestamp,
    ValueCoder,
)
from rangecast.types.derived import MAX_DERIVED, Derivations, declared_expression, hidden_from, kinds_of
from rangecast.types.expressions import Expression
from rangecast.types.frames import ObjectNames, describe_unreadable, flat_table, readable_table
from rangecast.types.patterns import HELD, HeldBundle, TraitBundles
from rangecast.types.places import Point
from rangecast.types.vocabulary import Vocabulary

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
        self.computed = tuple(a for a in attributes if a.formula is not None)
        """Names for expressions: conditions read them as what they say, and events have no column of them."""
        every = [a.name for a in attributes]
        attributes = tuple(a for a in attributes if a.formula is None)
        if not attributes:
            raise SchemaError("a schema must have an attribute that is not computed")
        attributes += tuple(_columns_of_points(attributes, every))
        every = [a.name for a in (*attributes, *self.computed)]
        self.attributes = attributes
        """The declared attributes, then the hidden ones (derived.py)."""
        self.names = tuple(a.name for a in attributes)
        """The names of the declared attributes."""
        self._derivations = Derivations()
        self._derivations.schemas[0] = self
        self.traits = TraitBundles()
        """The bundles of traits that conditions ask for, shared as the dictionaries of categories are."""
        self._positions = {name: position for position, name in enumerate(self.names)}
        if len(set(every)) < len(every):
            twice = sorted({n for n in every if every.count(n) > 1})
            raise SchemaError(f"attribute names must differ, got twice: {', '.join(twice)}")
        self.operands: dict[str, str | Expression] = {}
        """What a name is in an expression: the kind of an attribute, or what a computed one stands for."""
        self.operands |= kinds_of(self)
        for a in self.computed:
            self.operands[a.name] = declared_expression(a, self.operands)
        self._folded = {name.casefold(): position for name, position in self._positions.items()}

    def __len__(self) -> int:
        """How many attributes it has, hidden ones included."""
        return len(self.attributes)

    def __iter__(self) -> Iterator[Attribute]:
        """The declared attributes."""
        return iter(self.attributes[: len(self.names)])

    @property
    def n_hidden(self) -> int:
        """How many hidden attributes it has."""
        return len(self.attributes) - len(self.names)

    @property
    def width(self) -> int:
        """How many attributes it has with all hidden ones that conditions have used by now."""
        return len(self.names) + len(self._derivations.attributes)

    @property
    def declared(self) -> Schema:
        """The same schema without hidden attributes."""
        return self.with_hidden(0)

    def widest(self) -> Schema:
        """The same schema with all hidden attributes that conditions have used by now."""
        return self.with_hidden(len(self._derivations.attributes))

    def with_hidden(self, n: int) -> Schema:
        """The same schema with the first `n` hidden attributes."""
        if n == self.n_hidden:
            return self
        found = self._derivations.schemas.get(n)
        if found is None:
            found = object.__new__(type(self))
            found.__dict__.update(self.__dict__)
            hidden = tuple(self._derivations.attributes[:n])
            found.attributes = self.attributes[: len(self.names)] + hidden
            found = self._derivations.schemas.setdefault(n, found)
        out: Schema = found
        return out

    def apart(self) -> Schema:
        """The same schema with the same dictionaries, and a list of hidden attributes of its own: what is
        added to either is not in the other."""
        out = object.__new__(type(self))
        out.__dict__.update(self.with_hidden(0).__dict__)
        out._derivations = Derivations(list(self._derivations.attributes))
        out._derivations.schemas[0] = out
        return out

    def attribute(self, position: int) -> Attribute:
        """The attribute at a position, which may be that of a hidden one beyond this schema's width."""
        n = len(self.names)
        return self.attributes[position] if position < n else self._derivations.attributes[position - n]

    def hidden_position(self, name: str) -> int | None:
        """Where the hidden attribute of this name stands, None if there is none."""
        found = self._derivations.positions.get(name)
        return None if found is None else len(self.names) + found

    def take_hidden(self, width: int, fresh: list[Attribute]) -> bool:
        """Append hidden attributes for a caller that saw this width; False if the schema is wider by now."""
        return self._derivations.take(width - len(self.names), fresh)

    def hidden_names(self) -> list[str]:
        """The texts of all hidden attributes that conditions have used by now, in order."""
        return self._derivations.names()

    def learn_hidden(self, known: int, fresh: Sequence[str]) -> bool:
        """Take over hidden attributes after the first `known`; False where they do not follow or differ."""
        names = self.hidden_names()
        have = names[known : known + len(fresh)]
        if len(names) < known or have != list(fresh[: len(have)]):
            return False
        kinds = kinds_of(self)
        made = [hidden_from(name, kinds, self.traits) for name in fresh[len(have) :]]
        return self._derivations.take(len(names), made)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_derivations"] = self.hidden_names()[: self.n_hidden]
        state["attributes"] = self.attributes[: len(self.names)]
        # made again when they are needed
        state.pop("coders", None)
        state.pop("object_names", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        hidden = state.pop("_derivations")
        self.__dict__.update(state)
        kinds = kinds_of(self)
        self._derivations = Derivations(hidden_from(name, kinds, self.traits) for name in hidden)
        self.attributes += tuple(self._derivations.attributes)
        self._derivations.schemas[len(hidden)] = self

    def __getitem__(self, key: str | int) -> Attribute:
        return self.attributes[self.position(key) if isinstance(key, str) else key]

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and (tuple(self), self.computed) == (tuple(other), other.computed)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Schema({', '.join(map(repr, (*self, *self.computed)))})"

    def position(self, name: str) -> int:
        """The position of an attribute; a name in other capitals is accepted when it is unambiguous."""
        position = self._positions.get(name)
        if position is None and len(self._folded) == len(self.names):
            position = self._folded.get(name.casefold())
        if position is None:
            raise SchemaError(f"unknown attribute {name!r}; the schema has {', '.join(self.names)}")
        return position

    def instants(self, name: str) -> Timestamp:
        """How a column of times is read: as the attribute of its name, if that is one of instants."""
        position = self._positions.get(name, -1)
        found = self.attributes[position]
        return found if position >= 0 and isinstance(found, Timestamp) else Timestamp(name)

    def categories(self) -> Iterator[tuple[int, Category | Point]]:
        """The attributes that have a dictionary, with their positions."""
        for position, attribute in enumerate(self.attributes):
            if isinstance(attribute, Category | Point):
                yield position, attribute

    @cached_property
    def read_names(self) -> tuple[str, ...]:
        """The declared attributes that events have a value of: all but points that are made of two others."""
        return tuple(a.name for a in self if not isinstance(a, Point) or a.columns is None)

    @cached_property
    def coders(self) -> tuple[tuple[int, str, Attribute, ValueCoder], ...]:
        """The attributes that events have a value of, with their positions, and what encodes one value."""
        read = map(self.position, self.read_names)
        return tuple((at, self.names[at], self.attributes[at], self.attributes[at].coder()) for at in read)

    @cached_property
    def object_names(self) -> ObjectNames:
        """Which values of an object are of which attribute."""
        return ObjectNames(self.read_names)

    @cached_property
    def points(self) -> tuple[tuple[int, Point], ...]:
        """The attributes of points, with their positions."""
        return tuple((position, a) for position, a in enumerate(self) if isinstance(a, Point))

    def dictionaries(self) -> Iterator[tuple[str, Vocabulary]]:
        """The dictionaries that grow, by name: those of the categories, and of the bundles of traits."""
        for _, category in self.categories():
            yield category.name, category.vocabulary
        yield self.traits.name, self.traits.vocabulary

    def computed_counts(self) -> dict[str, Any]:
        """What conditions compute from events, for `stats` of an index; empty where they compute nothing."""
        found = {
            "expressions": sum(not isinstance(a, HeldBundle) for a in self.attributes[len(self.names) :]),
            "patterns": len(self.traits.vocabulary),
            "regions": sum(len(point.vocabulary) for _, point in self.points),
        }
        return {"computed": {**found, "most_expressions": MAX_DERIVED}} if any(found.values()) else {}

    def check_same(self, other: Schema, what: str) -> None:
        """Raise SchemaError unless `other` has the same attribute names and types in this order."""
        ours = [(a.name, a.kind) for a in self]
        theirs = [(a.name, a.kind) for a in other]
        if ours != theirs:
            shown = ", ".join(f"{n} {k}" for n, k in theirs)
            wanted = ", ".join(f"{n} {k}" for n, k in ours)
            raise SchemaError(f"{what} must have the attributes ({wanted}), got ({shown})")

    def check_declared(self, other: Schema, what: str) -> None:
        """As `check_same`, and units and computed attributes must be the same too; otherwise texts and
        numbers would mean something else."""
        self.check_same(other, what)
        ours, theirs = (
            [a for a in schema if isinstance(a, Timestamp) and a.unit != "us"] + list(schema.computed)
            for schema in (self, other)
        )
        if [_said(a) for a in ours] != [_said(a) for a in theirs]:
            wanted, shown = (", ".join(map(repr, some)) or "none" for some in (ours, theirs))
            raise SchemaError(f"{what} must have these units and computed attributes: {wanted}, got {shown}")

    def taking_over(self, other: Schema, what: str) -> Schema:
        """This schema, as wide as another of the same attributes, with the strings and expressions of both.

        SchemaError where the other one gives them other codes or positions.
        """
        self.check_same(other, what)
        if not self.learn_hidden(0, other.hidden_names()[: other.n_hidden]):
            raise SchemaError(
                f"the {what} were made with another schema object, whose expressions have other positions; "
                "make them with the index's own schema (index.schema)"
            )
        for (_, ours), (_, theirs) in zip(self.categories(), other.categories(), strict=True):
            if not ours.vocabulary.agrees_with(theirs.vocabulary):
                raise SchemaError(
                    f"the {what} were made with another schema object, whose {ours.name!r} has "
                    "other codes; make them with the index's own schema (index.schema)"
                )
            ours.vocabulary.extend_from(theirs.vocabulary)
        if not self.traits.vocabulary.agrees_with(other.traits.vocabulary):
            raise SchemaError(
                f"the {what} were made with another schema object, whose traits have other codes; make "
                "them with the index's own schema (index.schema)"
            )
        self.traits.vocabulary.extend_from(other.traits.vocabulary)
        return self.with_hidden(max(self.n_hidden, other.n_hidden))

    def to_dict(self, words: bool = False) -> dict[str, dict[str, Any]]:
        """Plain data, as in a schema file; `words` adds the dictionaries of the categories."""
        out: dict[str, dict[str, Any]] = {}
        for a in self:
            entry: dict[str, Any] = {"type": a.kind}
            for side in ("low", "high"):
                bound = getattr(a, side)
                if bound is not None:
                    entry[side] = bound.isoformat() if isinstance(bound, dt.date) else bound
            if isinstance(a, Timestamp) and a.unit != "us":
                entry["unit"] = a.unit
            if isinstance(a, Point) and a.columns is not None:
                entry["longitude"], entry["latitude"] = a.columns
            if words and isinstance(a, Category | Point) and len(a.vocabulary):
                entry["values"] = a.vocabulary.words()
            out[a.name] = entry
        out |= {a.name: {"type": a.kind, "expression": a.formula} for a in self.computed}
        if words:
            for a in self.attributes[len(self.names) :]:
                out["\n" + a.name] = {"type": a.kind, "hidden": True}
                if isinstance(a, HeldBundle) and a.name == HELD:
                    out["\n" + a.name]["values"] = self.traits.vocabulary.words()
        return out

    @classmethod
    def from_dict(cls, entries: Mapping[str, Mapping[str, Any]]) -> Schema:
        """The schema of `to_dict` or of a schema file's [attributes] table."""
        attributes: list[Attribute] = []
        hidden: list[str] = []
        sets: list[str] = []
        for name, entry in entries.items():
            if hasattr(entry, "get") and entry.get("hidden") is True:
                hidden.append(name.removeprefix("\n"))
                sets += entry.get("values", ())
                continue
            got = entry.get("type") if hasattr(entry, "get") else entry
            if got not in KINDS:
                raise SchemaError(f"attribute {name!r}: type must be one of {', '.join(KINDS)}, got {got!r}")
            kind = KINDS[entry["type"]]
            allowed = {"type", "low", "high"} | ({"unit"} if kind is Timestamp else set())
            allowed = {"type", "expression"} if "expression" in entry and kind in (Int, Float) else allowed
            words = {"type", "values"}
            place = {*words, "longitude", "latitude"}
            allowed = {Category: words, Tags: words, Text: words, Point: place, Bool: {"type"}}.get(
                kind, allowed
            )
            extra = sorted(set(entry) - allowed)
            if extra:
                raise SchemaError(f"attribute {name!r}: unknown setting {', '.join(extra)}")
            if issubclass(kind, Point):
                columns = {side: entry[side] for side in ("longitude", "latitude") if side in entry}
                attributes.append(Point(name, entry.get("values", ()), **columns))
            elif issubclass(kind, Category):
                attributes.append(kind(name, entry.get("values", ())))
            elif kind is Bool:
                attributes.append(Bool(name))
            elif kind is Timestamp:
                unit = entry.get("unit", "us")
                attributes.append(Timestamp(name, entry.get("low"), entry.get("high"), unit=unit))
            elif "expression" in entry:
                attributes.append(kind(name, str(entry["expression"])))
            else:
                attributes.append(kind(name, entry.get("low"), entry.get("high")))
        found = cls(*attributes)
        found.learn_hidden(0, hidden)
        for word in sets:
            found.traits.vocabulary.add(word)
        return found.widest()

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file, which has one [attributes.NAME] table per attribute, in order."""
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
    def infer(cls, frame: Any, skip: Sequence[str] = ()) -> Schema:
        """A schema for the columns of a frame of any kind (frames.py), with no domains.

        A field of a struct or of nested dicts is an attribute too, named by its path: `user.country`.
        SchemaError for a column that no attribute can hold, unless it is among those to `skip`.

        >>> Schema.infer([{"price": 12, "symbol": "IBM", "paid": True}])
        Schema(Int('price'), Category('symbol'), Bool('paid'))
        """
        table, unreadable = readable_table(frame, "the frame")
        for name in unreadable.keys() - set(skip):
            raise OptionError(f"the frame: {describe_unreadable(name, unreadable[name])}")
        table = flat_table(table.drop_columns([name for name in skip if name in table.column_names]))
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
            elif pa.types.is_list(kind) and any(holds(kind.value_type) for holds in _CATEGORY_TYPES):
                attributes.append(Tags(field.name))
            elif any(holds(kind) for holds in _CATEGORY_TYPES):
                attributes.append(Category(field.name))
            else:
                raise SchemaError(
                    f"column {field.name!r} has type {kind}, which no attribute can hold; leave it out"
                )
        return cls(*attributes)


def _columns_of_points(attributes: Sequence[Attribute], names: Sequence[str]) -> Iterator[Attribute]:
    """The attributes of numbers that points are made of and that nobody has declared."""
    declared, added = {a.name: a for a in attributes}, set[str]()
    for point in attributes:
        for name in (isinstance(point, Point) and point.columns) or ():
            found = declared.get(name)
            if (found is None and name in names) or (
                found is not None and found.kind not in ("int", "float")
            ):
                what = "a computed attribute" if found is None else f"{found.article} {found.kind}"
                raise SchemaError(
                    f"attribute {point.name!r} is made of {name!r}, a float or an int, not {what}"
                )
            if found is None and name not in added:
                added.add(name)
                yield Float(name)


def _said(attribute: Attribute) -> tuple[str, str | None]:
    return attribute.name, attribute.unit if isinstance(attribute, Timestamp) else attribute.formula


def _toml_key(name: str) -> str:
    return name if all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
