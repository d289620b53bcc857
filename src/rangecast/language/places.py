"""Reading predicates on points: `at WITHIN 500 m OF (13.4, 52.5)`, `at IN BOX (...)`, `at IN POLYGON '...'`.

    predicate   = attribute [ NOT ] WITHIN distance OF "(" number "," number ")"
                | attribute [ NOT ] IN BOX "(" number "," number "," number "," number ")"
                | attribute [ NOT ] IN POLYGON string
    distance    = number ( m | km | mi )

WITHIN, OF, BOX and POLYGON are words here alone, after an attribute of points, and names elsewhere.
"""

from __future__ import annotations

import re

from rangecast.errors import LanguageError, SchemaError
from rangecast.language.operands import OperandReader
from rangecast.language.region_clauses import extent_of, word_of
from rangecast.language.tokens import error_at
from rangecast.language.tree import NUMBER, Condition, Inside, Literal, Not
from rangecast.types import expressions
from rangecast.types.expressions import POINT
from rangecast.types.names import unquoted
from rangecast.types.regions import UNITS

_DISTANCE = re.compile(rf"({NUMBER})({'|'.join(UNITS)})\Z")
_LONG_UNITS = {
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "kilometer": "km", "kilometers": "km",
    "kilometre": "km", "kilometres": "km", "mile": "mi", "miles": "mi",
}  # fmt: skip
_TAKES = "an operator (WITHIN 500 m OF (13.4, 52.5), IN BOX (...), IN POLYGON '...', IS)"


class PlaceReader(OperandReader):
    """Reads predicates on points."""

    def at_place(self) -> bool:
        """Whether a predicate on a point comes next."""
        if not self.schema.points:
            return False
        token, after = self.peek, self.tokens[min(self.next + 1, len(self.tokens) - 1)]
        if token.kind not in ("name", "quoted") or after.word in ("(", "IS"):
            return False
        name = unquoted(token.text) if token.kind == "quoted" else token.text
        try:
            return self.schema[self.schema.position(name)].kind == POINT
        except SchemaError:
            return False

    def place(self) -> Condition:
        """A predicate on a point."""
        start = self.peek.start
        position = self.attribute("an attribute")
        negated = bool(self.accept("NOT"))
        word = self.peek.text.upper()
        if word == "WITHIN":
            self.next += 1
            found = self.circle(position, start)
        elif self.accept("IN"):
            word = self.peek.text.upper()
            if word not in ("BOX", "POLYGON"):
                self.fail("BOX (west, south, east, north) or POLYGON 'POLYGON((...))'")
            self.next += 1
            found = self.map_box(position, start) if word == "BOX" else self.polygon(position, start)
        else:
            self.fail(_TAKES.replace(", IS", "") if negated else _TAKES)
        try:
            extent_of(found) if found.area == "box" else word_of(found)
        except SchemaError as error:
            message = str(error) if isinstance(error, LanguageError) else f"{found.attribute!r}: {error}"
            raise error_at(message, self.text, found.literals[0].start) from None
        return Not(found, self.since(start)) if negated else found

    def circle(self, position: int, start: int) -> Inside:
        token = self.peek
        attached = _DISTANCE.match(token.text)
        if token.kind == "bad" and attached is not None:
            self.next += 1
            self.irregular = True
            distance, unit = Literal(attached[1], token.start), attached[2]
        else:
            distance, word = self.number(), self.peek.text.lower()
            unit = _LONG_UNITS.get(word, word)
            if unit not in UNITS:
                self.fail("the unit of the distance (m, km or mi)")
            self.next += 1
        if self.peek.text.upper() != "OF":
            self.fail("OF and the centre, as (13.4, 52.5)")
        self.next += 1
        longitude, latitude = self.numbers(2, "longitude and latitude")
        return self.made(position, "circle", (distance, longitude, latitude), start, unit)

    def map_box(self, position: int, start: int) -> Inside:
        return self.made(position, "box", self.numbers(4, "west, south, east and north"), start)

    def polygon(self, position: int, start: int) -> Inside:
        if self.peek.kind != "value" or self.peek.text[:1] not in ("'", "\u2018", "\u201c"):
            self.fail("a polygon in quotes, as 'POLYGON((13 52, 14 52, 14 53, 13 52))'")
        return self.made(position, "polygon", (self.value(),), start)

    def numbers(self, n: int, what: str) -> tuple[Literal, ...]:
        """So many numbers in parentheses."""
        if not self.accept("("):
            self.fail(f"( and {what}")
        found = [self.number()]
        while self.accept(","):
            found.append(self.number())
        if len(found) != n or not self.accept(")"):
            self.fail(f"{what} in parentheses, {n} numbers")
        return tuple(found)

    def number(self) -> Literal:
        if self.peek.kind != "value" or self.peek.text[0] not in "0123456789.+-\u2212\u2013":
            self.fail("a number", operand=True)
        return self.value()

    def made(
        self, position: int, area: str, literals: tuple[Literal, ...], start: int, unit: str = ""
    ) -> Inside:
        name = self.schema.attributes[position].name
        of = expressions.attribute(name, POINT)
        places = [self.drafts.place(expressions.called(word, (of,)))[0] for word in ("longitude", "latitude")]
        return Inside(name, position, area, literals, unit, places[0], places[1], self.since(start))
