"""Conditions that can be read and were probably meant otherwise: what is odd, and what may have been meant.

    what is found                                                     what was probably meant
    a predicate that no value fulfils: `qty = 10.5` on an int,        a whole number, a float in the schema,
    or a number beyond 64 bits                                        a smaller number
    a predicate that every value fulfils: `qty != 10.5`               `qty IS PRESENT`
    an AND that contradicts itself: `price > 10 AND price < 5`        OR, or the signs turned around
    an OR that holds for every value: `x != 1 OR x != 2`              `x NOT IN (1, 2)`
    an instant that equals a date: `at = '2026-01-31'`                `at ON 2026-01-31`, the whole day
    a range of instants that ends with a date and loses that day      `at < '2026-02-01'`
    a number that a function never gives: `hour(at) = 24`             a number from 0 to 23
    a string that a function never gives: `lower(s) = 'UA'`           'ua'
    a number of seconds, milliseconds or nanoseconds for an instant   the instant that it is in that unit

`lint` takes one text. A load of many texts cannot afford that for each: it notes rows that are doubtful as it
goes (`Expander.doubtful`, `Filled.odd`), at the cost of a comparison per predicate, and looks at the first of
them here (`describe_doubts`). A row that is doubtful need not be odd; a row that is odd is always doubtful.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from rangecast.errors import LanguageError, visible
from rangecast.language.normal_form import (
    WORK_LIMIT,
    Expander,
    Spans,
    intersect_all,
    is_everything,
    spans_of,
    word_of,
)
from rangecast.language.parser import read
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Inside,
    Literal,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Stated,
    Value,
    value_of,
)
from rangecast.types.attributes import LAST, PRESENT, Attribute, Timestamp
from rangecast.types.expressions import quoted_name
from rangecast.types.instants import EPOCH, other_unit
from rangecast.types.patterns import TraitBundles
from rangecast.types.places import long_edge
from rangecast.types.schema import Schema

_log = logging.getLogger(__name__)

_DAY = dt.timedelta(days=1)
_DATE = re.compile(r"'?\s*([0-9]{4}-[0-9]{2}-[0-9]{2})\s*'?\Z")
_TICKS = {"seconds": 1, "milliseconds": 1_000, "nanoseconds": 10**9}
# how many doubtful texts of a load are looked at before the warning is given up
_LOOKED_AT = 16
_SHOWN = 120


class Finding(NamedTuple):
    """Something odd: where it starts and ends in the text, what it is, and what was probably meant."""

    start: int
    end: int
    what: str
    meant: str

    def __str__(self) -> str:
        return f"{self.what}; probably meant: {self.meant}"


def lint(schema: Schema, text: str) -> list[Finding]:
    """What is odd about a condition, in the order of the text; LanguageError for one that cannot be read.

    >>> from rangecast.types.attributes import Int, Timestamp
    >>> schema = Schema(Int("qty"), Timestamp("at"))
    >>> for found in lint(schema, "qty = 10.5 or at = '2026-01-31'"):
    ...     print(found)
    'qty' is an int, which never equals 10.5; probably meant: qty = 10 or qty = 11, or a float in the schema
    at = '2026-01-31' holds at midnight alone; probably meant: at ON 2026-01-31, the whole day
    >>> lint(schema, "qty = 10 and at ON 2026-01-31")
    []
    """
    condition, literals = read(text, schema)
    linter = _Linter(schema, literals)
    linter.walk(condition, False)
    return sorted(linter.findings)


def describe_doubts(
    schema: Schema, texts: Sequence[str], rows: Sequence[int], id_of: Callable[[int], Any]
) -> str | None:
    """A warning for a load with doubtful rows; None where nothing is odd about the first of them.

    >>> from rangecast.types.attributes import Int
    >>> texts = ["qty = 1", "qty <= 1 and qty > 2"]
    >>> print(describe_doubts(Schema(Int("qty")), texts, [1], [7, 8].__getitem__))
    subscription 8: qty <= 1 and qty > 2 can never hold together: no value of 'qty' fulfils them; probably \
meant: qty <= 1 OR qty > 2, or qty BETWEEN 1 AND 2
    """
    for row in rows[:_LOOKED_AT]:
        try:
            found = lint(schema, texts[row])
        except LanguageError:
            continue
        except Exception as error:  # a remark is not worth a load that went well
            _log.error("a condition that lint fails to look at: %.200r", texts[row], exc_info=error)
            continue
        if found:
            tail = "" if len(rows) == 1 else f" ({len(rows):,} of {len(texts):,} subscriptions look doubtful)"
            return f"subscription {id_of(row)!r}: {visible(str(found[0]))}{tail}"
    return None


class _Linter:
    def __init__(self, schema: Schema, literals: Sequence[str]) -> None:
        self.schema = schema
        self.literals = literals
        self.expander = Expander(schema, TraitBundles())
        self.findings: list[Finding] = []
        self.spent = 0
        """The work of all junctions so far: each is expanded with all within it."""

    def walk(self, condition: Condition, negated: bool) -> bool:
        """Look at a condition and all within it; says whether something was found."""
        before = len(self.findings)
        if isinstance(condition, Not):
            return self.walk(condition.part, not negated)
        if isinstance(condition, And | Or):
            odd = [self.walk(part, negated) for part in condition.parts]
            if not any(odd):
                self.junction(condition, negated)
        elif isinstance(condition, Comparison):
            self.comparison(condition, condition.operator, condition.literal, negated)
        elif isinstance(condition, Range):
            inverted = negated is not condition.negated
            self.comparison(condition, condition.above, condition.low, inverted, whole=False)
            self.comparison(condition, condition.below, condition.high, inverted, whole=False)
        elif isinstance(condition, Membership):
            for literal in condition.literals:
                self.comparison(condition, "=", literal, negated is not condition.negated, whole=False)
        elif isinstance(condition, Inside) and condition.area == "polygon":
            self.polygon(condition)
        elif isinstance(condition, Stated) and condition.odd is not None:
            self.add(condition, *condition.odd)
        elif isinstance(condition, Stated) and not self.clauses(condition, negated):
            self.add(condition, f"{condition} can never hold", "another bound")
        return len(self.findings) > before

    def polygon(self, condition: Inside) -> None:
        ends = long_edge(word_of(condition))
        if ends is not None:
            start, end = ends
            beyond = end + 360 if start > end else end - 360
            self.add(
                condition.literals[0],
                f"an edge of the polygon goes from {start:g} to {end:g} degrees the long way round the earth",
                f"{beyond:g} for {end:g}, which goes on over the date line",
            )

    def add(self, place: Condition | Literal, what: str, meant: str) -> None:
        span = (place.start, place.start + len(place.text)) if isinstance(place, Literal) else place.span
        self.findings.append(Finding(*span, what, meant))

    def clauses(self, condition: Condition, negated: bool) -> list[dict[int, Spans]]:
        try:
            return self.expander.clauses(Not(condition) if negated else condition, self.literals)
        finally:
            self.spent += self.expander.spent

    def comparison(
        self,
        place: Comparison | Range | Membership,
        operator: str,
        literal: Literal,
        negated: bool,
        *,
        whole: bool = True,
    ) -> None:
        """One attribute beside one value: is there a value that makes a difference?"""
        attribute = self.schema.attribute(place.position)
        value = value_of(literal.text)
        if attribute.kind == "timestamp":
            self.instant(attribute, operator, literal, value, negated, place if whole else literal)
            return
        if attribute.kind != "int" or (isinstance(value, float) and math.isinf(value)):
            return
        spans = spans_of(attribute, operator, value)
        if spans and not is_everything(spans):
            return
        name, never = quoted_name(attribute.name), (not spans) is not negated
        fractional = isinstance(value, Decimal) or (isinstance(value, float) and not value.is_integer())
        if fractional:
            floor = math.floor(value)  # type: ignore[arg-type]
            what = f"{attribute.name!r} is an int, which never equals {literal.text}"
            meant = f"{name} = {floor} or {name} = {floor + 1}, or a float in the schema"
            if isinstance(place, Membership):
                meant = f"{floor} or {floor + 1}, or a float in the schema"
            if not never:
                meant = f"{name} IS PRESENT, or a float in the schema"
        else:
            verb = "no value fulfils" if never else "every value fulfils"
            what = f"{verb} {name} {operator} {literal.text}: {attribute.name!r} is an int of 64 bits"
            meant = f"a number from {PRESENT} to {LAST}"
        self.add(place if whole else literal, what, meant)

    def instant(
        self,
        attribute: Attribute,
        operator: str,
        literal: Literal,
        value: Value,
        negated: bool,
        place: Condition | Literal,
    ) -> None:
        if operator == "ON":
            return
        name = quoted_name(attribute.name)
        unit = other_unit(attribute.bracket(value)[0]) if isinstance(value, int) else None
        if unit is not None and isinstance(attribute, Timestamp) and attribute.unit != "us":
            if attribute.unit == "s" and unit != "nanoseconds":  # nothing coarser is in use
                return
            self.add(
                place,
                f"{literal.text} is read as {attribute.unit} since 1970",
                "a number of that unit, or an instant such as 2026-01-31T09:30",
            )
            return
        if unit is not None and isinstance(value, int):
            meant = EPOCH + dt.timedelta(seconds=value // _TICKS[unit])
            self.add(
                place,
                f"{literal.text} is read as microseconds since 1970",
                f"{meant:%Y-%m-%dT%H:%M:%SZ}, if these are {unit}",
            )
            return
        date = _DATE.match(literal.text)
        if date is None:
            return
        if operator in ("=", "!="):
            self.add(
                place,
                f"{name} {operator} {literal.text} "
                + (
                    "holds at midnight alone"
                    if operator == "=" and not negated
                    else "leaves out midnight alone"
                ),
                f"{'NOT ' if operator == '!=' else ''}{name} ON {date[1]}, the whole day",
            )
        elif operator == "<=" and not negated:
            try:
                after = dt.date.fromisoformat(date[1]) + _DAY
            except (ValueError, OverflowError):
                return
            shown = quoted_date(literal.text, after)
            self.add(
                place,
                f"{literal.text} as an end is midnight, so the day itself is left out",
                f"{name} < {shown}",
            )

    def junction(self, condition: And | Or, negated: bool) -> None:
        """Parts that are good in themselves and contradict one another, or leave no value out."""
        if self.spent > WORK_LIMIT // 4:
            return
        try:
            clauses = self.clauses(condition, negated)
        except LanguageError:
            return
        united = isinstance(condition, Or) is not negated
        if not united and not clauses:
            self.contradiction(condition, negated)
        elif united:
            for clause in clauses:
                full = [p for p, spans in clause.items() if is_everything(spans)]
                if len(clause) == 1 and full and not self.says_present(condition, full[0], negated):
                    self.tautology(condition, full[0], negated)

    def says_present(self, condition: And | Or, position: int, negated: bool) -> bool:
        """Whether a part by itself asks for any value."""
        return any(
            set(clause) == {position} and is_everything(clause[position])
            for part in condition.parts
            for clause in self.clauses(part, negated)
        )

    def contradiction(self, condition: And | Or, negated: bool) -> None:
        groups: dict[int, list[Condition]] = {}
        for part in condition.parts:
            if not negated and isinstance(part, Comparison | Range | Membership | Presence):
                groups.setdefault(part.position, []).append(part)
        for position, parts in groups.items():
            allowed = [clause[position] for part in parts for clause in self.clauses(part, negated)]
            if not intersect_all([((PRESENT - 1, LAST),), *allowed]):
                name = self.schema.attribute(position).name
                said = " and ".join(map(str, parts))
                what = f"{said} can never hold together: no value of {name!r} fulfils them"
                self.add(condition, what, _instead(parts))
                return
        shown = f"NOT ({_short(condition)})" if negated else _short(condition)
        other = "AND within it" if negated else "OR instead of AND"
        self.add(condition, f"{shown} can never hold: its parts contradict one another", other)

    def tautology(self, condition: And | Or, position: int, negated: bool) -> None:
        name = quoted_name(self.schema.attribute(position).name)
        parts = condition.parts
        meant = "OR within it" if negated else "AND instead of OR"
        if not negated and all(
            isinstance(p, Comparison) and p.operator == "!=" and p.position == position for p in parts
        ):
            values = ", ".join(p.literal.text for p in parts if isinstance(p, Comparison))
            meant = f"{name} NOT IN ({values})"
        shown = f"NOT ({_short(condition)})" if negated else _short(condition)
        self.add(condition, f"{shown} holds for every value of {name}", meant)


def quoted_date(text: str, date: dt.date) -> str:
    """A date as the one beside it is written: with quotes or without."""
    return f"'{date}'" if text[0] == "'" else str(date)


def _short(condition: Condition) -> str:
    text = str(condition)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _instead(parts: Sequence[Condition]) -> str:
    """What was probably meant by predicates on one attribute that exclude one another."""
    if all(isinstance(part, Comparison) and part.operator == "=" for part in parts):
        first = parts[0]
        assert isinstance(first, Comparison)
        values = ", ".join(part.literal.text for part in parts if isinstance(part, Comparison))
        return f"{quoted_name(first.attribute)} IN ({values})"
    either = " OR ".join(map(str, parts))
    if len(parts) == 2:
        one, other = parts
        if isinstance(one, Comparison) and isinstance(other, Comparison):
            signs = one.operator[0] + other.operator[0]
            if signs in ("<>", "><"):
                low, high = (other, one) if signs == "><" else (one, other)
                name = quoted_name(one.attribute)
                return f"{either}, or {name} BETWEEN {low.literal.text} AND {high.literal.text}"
    return either
