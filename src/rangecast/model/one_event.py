"""One event, given as a dict, as the codes that an index of it sees: what a service has, in microseconds.

`Events.from_rows` makes columns of its rows, which costs hundreds of microseconds before the first value is
looked at. An `EventPlan` is made once for the subscriptions of an index, and then does for an event what they
need and no more:

    step                  of                                                  by
    read                  every declared attribute                            its coder (types/attributes.py)
    points of two         points that are made of two other attributes        Point.code_of
    choices               attributes that have several values in this         a column for each choice
                          event and that somebody asks for
    expressions           those that a subscription bounds                    types/derived.py
    patterns, HAS         all of the schema, once a subscription has one      types/patterns.py

An attribute that nobody bounds is read as well, so that an event is refused here if it is anywhere, but its
several values make no choices. What the coders refuse goes the way of columns, where lists are looked at once
more and the reason is found.

    array   dtype   shape    meaning
    row     int64   (d, 1)   the codes of an event; each thread has one, and uses it again

An event with choices, or with several patterns, has a column for each of them in an array of its own.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from rangecast.errors import EventError
from rangecast.model.events import warn_of_points
from rangecast.model.wide_events import MOST_VARIANTS
from rangecast.types.attributes import LAST, MISSING, Category, Codes, Tags, decoded_float
from rangecast.types.columns import LISTS
from rangecast.types.derived import code_of, value_of
from rangecast.types.expressions import Expression, parse_expression, unquoted
from rangecast.types.patterns import HELD, HeldBundle
from rangecast.types.schema import Schema

_Choice = tuple[int, Any]
"""The code of a value, and the value where it is a string."""


class EventPlan:
    """Encodes dicts for a schema, and for subscriptions that bound some of its attributes.

    >>> from rangecast import Int, Float, Schema
    >>> EventPlan(Schema(Int("price"), Float("change"))).encode({"price": 5}).ravel().tolist()
    [5, -9223372036854775808]
    """

    def __init__(
        self, schema: Schema, bound: Collection[int] | None = None, bundles: Collection[int] | None = None
    ) -> None:
        """A plan for the attributes that are `bound`, by position, and for these codes of trait bundles: all
        unless they are given."""
        self.schema = schema
        n = len(schema.names)
        asked = frozenset(range(len(schema)) if bound is None else bound)
        self._asked = asked
        self._bundles = bundles
        self._read = schema.coders
        self._coders = [(name, code) for _, name, _, code in self._read]
        self._joined = [(position, point) for position, point in schema.points if point.columns is not None]
        hidden = [(position, schema[position]) for position in range(n, len(schema)) if position in asked]
        self._expressions = [(at - n, found) for at, found in hidden if not isinstance(found, HeldBundle)]
        self._traits_at = next((at - n for at, found in hidden if isinstance(found, HeldBundle)), None)
        if self._traits_at is not None:
            self._traits_at = (schema.hidden_position(HELD) or n) - n
        self._sources: dict[str, Expression] = {}
        self._unbound = [MISSING] * (len(schema) - n)
        # Tags have lists: an error first and the choices afterwards would be twice the work
        self._plain = not (
            self._joined or hidden or any(isinstance(attribute, Tags) for _, _, attribute, _ in self._read)
        )
        self._choosing = self._choosing_of(asked)
        self._pack = struct.Struct(f"={len(schema)}q").pack_into
        self._rows = _ThreadRow(len(schema))
        self._objects = schema.object_names
        self._plain_keys = self._objects.plain_keys

    def reads(self, bound: Collection[int], bundles: Collection[int] | None) -> bool:
        """Whether the plan is one for these attributes and for these bundles."""
        return self._asked >= set(bound) and bundles is self._bundles

    def _choosing_of(self, asked: Iterable[int]) -> frozenset[int]:
        """The attributes whose several values in one event make choices: those that somebody asks for."""
        names = {self.schema.names[position] for position in asked if position < len(self.schema.names)}
        for _, attribute in self._expressions:
            assert attribute.expression is not None
            names |= attribute.expression.names if attribute.expression.op != "has" else set()
        for _, point in self._joined:
            names.update(point.columns or ())
        if self._traits_at is not None:
            # a pattern may be asked of any text; what HAS asks for is asked of all values at once
            names.update(a.name for a in self.schema if isinstance(a, Category) and not isinstance(a, Tags))
        return frozenset(map(self.schema.position, names))

    def encode(self, event: Mapping[str, Any], unknown: str = "ignore") -> Codes | None:
        """The codes of an event, in a row that this thread uses again; a bad value raises EventError.

        An event with lists has a column for each choice of its values. None where columns must say what an
        event means.

        >>> from rangecast import Int, Schema
        >>> plan = EventPlan(Schema(Int("price"), Int("size")))
        >>> plan.encode({"price": [5, 6, None], "size": 2}).tolist()
        [[5, 6], [2, 2]]
        """
        given = event
        if not event.keys() <= self._plain_keys:
            event = self._objects.settled(event)
            if self._joined:
                warn_of_points(self.schema, given)
        if unknown != "ignore":
            self.check_keys(given, unknown)
        if self._plain:
            get = event.get
            try:
                codes = [code(get(name)) for name, code in self._coders]
            except EventError:
                if not any(isinstance(get(name), LISTS) for name, _ in self._coders):
                    raise
            else:
                return self._row(codes + self._unbound)
        return self._with_choices(event)

    def _row(self, codes: list[int]) -> Codes:
        own = self._rows
        self._pack(own.memory, 0, *codes)
        return own.row

    def _with_choices(self, event: Mapping[str, Any]) -> Codes | None:
        """The codes of an event of any kind; None where a list has a value that is refused, or too many."""
        said = _SaidByOne(self.schema, event)
        several: dict[int, list[_Choice]] = {}
        n = 1
        for position, name, attribute, code in self._read:
            value = event.get(name)
            if not isinstance(value, LISTS) or attribute.kind == "point":  # of a point, a list is one value
                said.codes[position] = code(value)
                continue
            try:
                codes = [(code(item), item) for item in value]
            except EventError:
                return None
            present = [(found, item) for found, item in codes if found != MISSING]
            n *= max(len(present), 1)
            if n > MOST_VARIANTS:
                return None
            words = isinstance(attribute, Category)
            if words:
                said.words[position] = [attribute.word_of(item) for _, item in present]  # type: ignore[attr-defined]
            if not present:
                continue
            said.codes[position] = present[0][0]
            if position in self._choosing:
                choices = [(found, item if words else None) for found, item in present]
                several[position] = list(dict.fromkeys(choices))
        columns = self._columns(said, {at: found for at, found in several.items() if len(found) > 1})
        return self._row(columns[0]) if len(columns) == 1 else np.array(columns, np.int64).T.copy()

    def _columns(self, said: _SaidByOne, several: Mapping[int, list[_Choice]]) -> list[list[int]]:
        """The codes of each column, hidden attributes included."""
        if not several:
            return self._of_choice(said)
        columns = []
        for choice in itertools.product(*several.values()):
            for position, (code, word) in zip(several, choice, strict=True):
                said.codes[position] = code
                said.chosen[position] = word
            columns += self._of_choice(said)
        return columns

    def _of_choice(self, said: _SaidByOne) -> list[list[int]]:
        """The codes where each attribute has one value: a column, or more where several patterns hold."""
        for position, point in self._joined:
            numbers = [said.degrees(name) for name in point.columns or ()]
            found = point.code_of(*numbers)
            if found is None:
                raise EventError(str(point.wrong(numbers)))
            said.codes[position] = found
        hidden = self._unbound.copy()
        for at, attribute in self._expressions:
            hidden[at] = code_of(attribute, said)
        if self._traits_at is None:
            return [said.codes + hidden]
        return self._with_traits(said, hidden)

    def _with_traits(self, said: _SaidByOne, hidden: list[int]) -> list[list[int]]:
        """A column for each bundle of patterns that holds, and for each gap between those that do not, as
        types/patterns.py says."""
        held, barred = self.schema.traits.find_one(lambda source: self._words_of(source, said))
        if self._bundles is not None:
            # those of other indexes on this schema are nobody's here
            held = [code for code in held if code in self._bundles]
            barred = [code for code in barred if code in self._bundles]
        at = self._traits_at or 0
        gaps = [0, *barred, LAST]
        columns = []
        for k in range(max(len(held), len(gaps) - 1)):
            gap = k if k < len(gaps) - 1 else 0
            hidden[at : at + 3] = (held[k] if k < len(held) else held[0] if held else 0, *gaps[gap : gap + 2])
            columns.append(said.codes + hidden)
        return columns

    def _words_of(self, source: str, said: _SaidByOne) -> list[str]:
        """The strings that an event has of a source of patterns."""
        if source.startswith("has "):
            name = source.removeprefix("has ")
            return said.every(unquoted(name) if name[0] == '"' else name)
        expression = self._sources.get(source)
        if expression is None:
            expression = self._sources[source] = parse_expression(source, self.schema.operands)
        word = value_of(expression, said)
        return [] if word is None else [word]

    def check_keys(self, event: Mapping[str, Any], unknown: str) -> None:
        """Refuse what is not an attribute, where that is asked for."""
        if unknown not in ("ignore", "error"):
            raise EventError(f"unknown must be 'ignore' or 'error', got {unknown!r}")
        if unknown == "error":
            for key in self._objects.kind_of(tuple(event)).unused:
                if key not in self.schema:
                    raise EventError(
                        f"an event must have attributes of the schema ({', '.join(self.schema.names)}), "
                        f"got {key!r}"
                    )


class _SaidByOne:
    """What one event says, for the expressions that are computed from it."""

    def __init__(self, schema: Schema, event: Mapping[str, Any]) -> None:
        self._schema = schema
        self._event = event
        self.codes = [MISSING] * len(schema.names)
        self.words: dict[int, list[str]] = {}
        """All strings of an attribute that has several."""
        self.chosen: dict[int, Any] = {}
        """The one that is looked at now."""

    def value(self, name: str) -> Any:
        """The value of an attribute, None where it is missing: an int, a float or a string."""
        position = self._schema.position(name)
        code = self.codes[position]
        if code == MISSING:
            return None
        attribute = self._schema.attributes[position]
        if isinstance(attribute, Category):
            word = self.chosen.get(position)
            if word is None:
                own = self.words.get(position)
                word = own[0] if own else self._event[name]
            return word if type(word) is str else attribute.word_of(word)
        return decoded_float(code) if attribute.kind == "float" else code

    def every(self, name: str) -> list[str]:
        """All strings of an attribute."""
        own = self.words.get(self._schema.position(name))
        if own is not None:
            return own
        value = self.value(name)
        return [] if value is None else [value]

    def degrees(self, name: str) -> float:
        """A number of which a point is made, NaN where it is missing."""
        value = self.value(name)
        return float("nan") if value is None else float(value)


class _ThreadRow(threading.local):
    """A row of codes for each thread."""

    def __init__(self, d: int) -> None:
        self.row: Codes = np.empty((d, 1), np.int64)
        self.memory = self.row.data.cast("B")
