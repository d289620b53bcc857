"""The normal form: a condition as a disjunction of clauses.

    span    a closed interval of codes (low, high)
    spans   a tuple of spans, ascending, with a gap between any two: what a predicate allows
    clause  {attribute position: spans}; an attribute that is absent is ignored

Negation is pushed down to the predicates, where it is the complement among the values that are
present. Then AND intersects clauses and OR unites them. IN, NOT IN, != and OR on one attribute are spans of
one clause, however many, and two clauses that differ in a single attribute become one, which also absorbs a
clause that lies inside its neighbour. So only OR across attributes makes several clauses, and CLAUSE_LIMIT
is for those alone.

A clause that overlaps another is trimmed where no more spans on one of its own attributes do it, and left as
it is otherwise: `a < 5 or b = 1` would need disjoint clauses of two attributes, and those cost an index more
than reporting a subscription once when two of its clauses match. No clause lies inside another.

What a text may cost is bounded, since anybody may send one: each step says how many spans it will compare
before it does, and past WORK_LIMIT (about two seconds) the condition is refused. Trimming, which changes no
match, is given up instead.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from rangecast.errors import CapacityError, LanguageError, SchemaError
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Fits,
    Inside,
    LiteralInterval,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Stated,
    Value,
    Within,
    is_out_of_range,
    string_in,
    value_of,
)
from rangecast.types import places
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Float, Interval
from rangecast.types.columns import is_unicode
from rangecast.types.derived import Values, evaluate
from rangecast.types.expressions import RANGES, fitted
from rangecast.types.instants import odd_instant
from rangecast.types.patterns import Trait, TraitBundles, interval_of
from rangecast.types.places import MapExtent, Point
from rangecast.types.schema import Schema

Spans = tuple[Interval, ...]
Clause = dict[int, Spans]

CLAUSE_LIMIT = 1_024
WORK_LIMIT = 4_000_000

_JUNCTIONS = (And, Or)  # And | Or in isinstance would be made anew for each call
_ANY: Interval = (MISSING, LAST)
_EVERYTHING: Spans = (_ANY,)
PRESENT_SPANS: Spans = ((PRESENT, LAST),)
TRUTH_SPANS: Spans = ((0, 1),)
ABSENT_SPANS: Spans = ((MISSING, MISSING),)
_DAY = 86_400_000_000  # microseconds
# A memo of comparisons pays for strings, prices and days that return; this bounds it for the rest.
_MEMO_LIMIT = 65_536
MANY = 32
"""From so many values on, a list of whole numbers is read at once."""


class LiteralSpans:
    """The spans of attributes beside literals, each made once: by the parser, which says what is wrong with a
    literal, or by the expander for the next text of a shape."""

    __slots__ = ("_known", "_odd", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[int, str, str], Spans] = {}
        self._odd: set[tuple[int, str, str]] = set()

    def of(self, position: int, operator: str, text: str) -> Spans:
        """The spans of `attribute operator literal`; SchemaError or LanguageError for a value that the
        attribute cannot be compared with."""
        key = (position, operator, text)
        spans = self._known.get(key)
        if spans is None:
            if len(self._known) >= _MEMO_LIMIT:
                self._known.clear()
                self._odd.clear()
            attribute, value = self._schema.attribute(position), value_of(text)
            spans = self._known[key] = spans_of(attribute, operator, value)
            instant = attribute.kind == "timestamp" and odd_instant(
                operator, text, _counted(attribute, value)
            )
            function = "" if attribute.expression is None else attribute.expression.op
            beyond = function in RANGES and is_out_of_range(function, operator, text)
            if instant or beyond or not spans or spans == PRESENT_SPANS:
                self._odd.add(key)
        return spans

    def is_odd(self, position: int, operator: str, text: str) -> bool:
        """Whether lint.py should look at a comparison whose spans were asked for."""
        return bool(self._odd) and (position, operator, text) in self._odd


class Expander:
    """Turns conditions over one schema into clauses; `literals` remembers the comparisons it has seen."""

    def __init__(self, schema: Schema, bundles: TraitBundles | None = None) -> None:
        """With `bundles`, those of the conditions go there and not to the schema."""
        self._schema = schema
        self._bundles = schema.traits if bundles is None else bundles
        self.literals = LiteralSpans(schema)
        self._work = _Work()
        self._areas: NamedAreas | None = None
        self._traits: TraitPlaces | None = None
        self.doubtful = False
        """Set when something of the last condition is worth a look by lint.py; `clauses` clears it."""

    @property
    def spent(self) -> int:
        """How many spans were compared for the last condition."""
        return WORK_LIMIT - self._work.left

    def clauses(self, condition: Condition, texts: Sequence[str]) -> list[Clause]:
        """The clauses of a condition whose literals are `texts`, by their ordinals.

        Raises LanguageError past the limits of clauses and of work, and for a value that an attribute cannot
        hold.
        """
        self._work.left = WORK_LIMIT
        self.doubtful = False
        self._areas = None
        self._traits = None
        clauses = self._clauses(condition, False, texts)
        if self._traits:
            clauses = _merge(self._traits.folded(clauses), self._work)
        clauses = _separate(clauses, self._work) if len(clauses) > 1 and _may_trim(clauses) else clauses
        return clauses if self._areas is None else self._with_regions(self._areas, clauses)

    def _clauses(self, condition: Condition, negated: bool, texts: Sequence[str]) -> list[Clause]:
        if isinstance(condition, Comparison):
            position = condition.position
            spans = self._compare(position, condition.operator, condition.literal.among(texts))
        elif isinstance(condition, _JUNCTIONS):
            parts = [self._clauses(part, negated, texts) for part in condition.parts]
            if isinstance(condition, And) is not negated:
                met = _all_of(parts, self._work)
                self.doubtful |= not met
                return met
            united = _merge([clause for part in parts for clause in part], self._work)
            self.doubtful |= any(len(one) == 1 and PRESENT_SPANS in one.values() for one in united)
            return united
        elif isinstance(condition, Not):
            return self._clauses(condition.part, not negated, texts)
        elif isinstance(condition, Range):
            position = condition.position
            spans = self._between(condition, texts)
            negated = negated is not condition.negated
        elif isinstance(condition, Membership):
            position = condition.position
            self._work.spend(len(condition.literals))
            values = [literal.among(texts) for literal in condition.literals]
            plain = len(values) >= MANY and self._schema.attribute(position).kind == "int"
            whole = _whole_numbers(values) if plain else None
            if whole is None:
                whole = unite(span for value in values for span in self._compare(position, "=", value))
            spans = whole
            negated = negated is not condition.negated
        elif isinstance(condition, Stated):
            self.doubtful |= condition.odd is not None
            return self._clauses(condition.part, negated, texts)
        elif isinstance(condition, Within):
            position, spans = condition.position, condition.spans
        elif isinstance(condition, LiteralInterval):
            position, spans = condition.position, (condition.interval(texts),)
        elif isinstance(condition, Inside):
            if condition.area == "box":
                bounds = extent_bounds(condition, extent_of(condition, texts))
                return [{at: complement(spans)} for at, spans in bounds.items()] if negated else [bounds]
            if self._areas is None:
                self._areas = NamedAreas(self._schema)
            area, odd = self._areas.note(condition, texts)
            self.doubtful |= odd
            return [{area: DENIED if negated else WITHIN}]
        elif isinstance(condition, Fits):
            if self._traits is None:
                self._traits = TraitPlaces(self._bundles)
            met = self._traits.clauses(condition, negated, condition.literal.among(texts))
            self.doubtful |= not met
            return met
        elif isinstance(condition, Presence):
            return [{condition.position: PRESENT_SPANS if condition.present is not negated else ABSENT_SPANS}]
        else:
            raise TypeError(f"expected a condition, got {condition!r}")
        if negated:
            spans = complement(spans)
            if self._schema.attribute(position).kind == "bool":
                spans = intersect(spans, TRUTH_SPANS)  # one value is left, not what lies around the other
        if not spans:
            self.doubtful = True
            return []
        return [{position: spans}]

    def _with_regions(self, areas: NamedAreas, clauses: list[Clause]) -> list[Clause]:
        """The clauses with regions and their coverings for the areas that they name."""
        out: list[Clause] = []
        for clause in clauses:
            met: Clause | None = {at: spans for at, spans in clause.items() if at < FIRST}
            for bounds in areas.bounds(clause):
                met = None if met is None else _meet(met, bounds)
            if met is None:
                self.doubtful = True
            else:
                out.append(met)
        return out

    def _compare(self, position: int, operator: str, text: str) -> Spans:
        spans = self.literals.of(position, operator, text)
        self.doubtful |= self.literals.is_odd(position, operator, text)
        return spans

    def _between(self, condition: Range, texts: Sequence[str]) -> Spans:
        position, low, high = condition.position, condition.low.among(texts), condition.high.among(texts)
        spans = intersect(
            self._compare(position, condition.above, low), self._compare(position, condition.below, high)
        )
        if not spans:
            check_order(self._schema.attribute(position), value_of(low), value_of(high))
        return spans


def _whole_numbers(texts: list[str]) -> Spans | None:
    """The spans of many values of an attribute of whole numbers; None where one is written in another way, or
    has no code. Reading a list takes a third of the time that it takes one by one.

    >>> _whole_numbers(["7", "-2", "8"]), _whole_numbers(["7", "1e3"])
    (((-2, -2), (7, 8)), None)
    """
    together = "".join(texts)
    if not together.isascii() or not together.replace("-", "").isdigit():
        return None
    try:
        values = np.unique(np.array(list(map(int, texts)), np.int64))
    except (OverflowError, ValueError):  # past 64 bits, or a date
        return None
    if values[0] < PRESENT:
        return None
    # not their difference, which may be none
    apart = values[1:] - 1 != values[:-1]
    lows = values[np.concatenate([[True], apart])].tolist()
    return tuple(zip(lows, values[np.concatenate([apart, [True]])].tolist(), strict=True))


def _counted(attribute: Attribute, value: Value) -> Value:
    """A number on an attribute of instants as microseconds; any other value as it is."""
    return attribute.bracket(value)[0] if isinstance(value, int) else value


def is_everything(spans: Spans) -> bool:
    """Whether every value is within spans, and no missing one."""
    return spans == PRESENT_SPANS


def spans_of(attribute: Attribute, operator: str, value: Value) -> Spans:
    """The spans of `attribute operator value`; SchemaError for a value of the wrong type."""
    if operator == "ON":
        return _day(attribute, value)
    if isinstance(value, Decimal):
        if attribute.kind != "int":
            return attribute.intervals(operator, float(value))
        # between two whole numbers, with no double there to say so
        if operator in ("=", "!="):
            return PRESENT_SPANS if operator == "!=" else ()
        return attribute.intervals("<=" if operator[0] == "<" else ">", math.floor(value))
    return attribute.intervals(operator, value)


def _day(attribute: Attribute, value: Value) -> Spans:
    """The instants of a day in UTC."""
    if attribute.kind != "timestamp":
        raise SchemaError(
            f"ON takes an attribute of instants, {attribute.name!r} is {attribute.article} {attribute.kind}"
        )
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value.strip())
        except ValueError:
            raise attribute.wrong(value) from None
    if not isinstance(value, dt.datetime) or value.tzinfo is not None or value.time() != dt.time():
        raise SchemaError(f"ON takes a date, as {attribute.name} ON 2026-01-31, got {value}")
    first = attribute.bracket(value)[0]
    return ((first, first + _DAY - 1),)


def check_order(attribute: Attribute, low: Value, high: Value) -> None:
    """Raise SchemaError when the low end of a range is above its high end."""
    if isinstance(low, int | float | Decimal) and isinstance(high, int | float | Decimal):
        ordered = low <= high
    else:
        ordered = attribute.bracket(low)[0] <= attribute.bracket(high)[0]
    if not ordered:
        raise SchemaError(f"low must not exceed high on {attribute.name!r}, got [{low}, {high}]")


def unite(spans: Iterable[Interval]) -> Spans:
    """The union of spans in any order; spans that touch become one.

    >>> unite([(5, 6), (1, 2), (3, 3)])
    ((1, 3), (5, 6))
    """
    out: list[Interval] = []
    for low, high in sorted(spans):
        if out and low <= out[-1][1] + 1:
            if high > out[-1][1]:
                out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return tuple(out)


def intersect(ours: Spans, theirs: Spans) -> Spans:
    """What both allow.

    >>> intersect(((1, 3), (5, 9)), ((2, 6),))
    ((2, 3), (5, 6))
    """
    out: list[Interval] = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        low = max(ours[i][0], theirs[j][0])
        high = min(ours[i][1], theirs[j][1])
        if low <= high:
            out.append((low, high))
        if ours[i][1] < theirs[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def intersect_all(several: list[Spans]) -> Spans:
    """What all of some spans allow: two and two, since n times != one after the other are n * n spans.

    >>> intersect_all([((1, 9),), ((2, 3), (5, 20)), ((3, 6),)])
    ((3, 3), (5, 6))
    """
    while len(several) > 1:
        pairs = zip(several[::2], several[1::2], strict=False)
        several = [intersect(ours, theirs) for ours, theirs in pairs] + several[len(several) & ~1 :]
    return several[0]


def complement(spans: Spans) -> Spans:
    """The present values that `spans` leave out; a missing value is in neither.

    >>> complement(complement(((1, 3), (5, 9))))
    ((1, 3), (5, 9))
    """
    out: list[Interval] = []
    start = PRESENT
    for low, high in spans:
        if start < low:
            out.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        out.append((start, LAST))
    return tuple(out)


class _Work:
    """How many spans the expansion of one condition may still compare."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK_LIMIT

    def spend(self, spans: int) -> None:
        """Take note of work before it is done; LanguageError when it is too much."""
        self.left -= spans
        if self.left < 0:
            raise LanguageError(
                f"the condition needs more than {WORK_LIMIT:,} comparisons to be expanded: every AND of ORs "
                "multiplies them; cut it into several subscriptions"
            )


def _all_of(parts: list[list[Clause]], work: _Work) -> list[Clause]:
    parts.sort(key=len)  # narrow ones first, so that contradictions show before the product grows
    if not parts[0]:
        return []
    n_single = sum([len(part) == 1 for part in parts])
    clauses = parts[0] if n_single < 2 else _all_met([part[0] for part in parts[:n_single]], work)
    for others in parts[max(n_single, 1) :]:
        work.spend(len(others) * _size(clauses) + len(clauses) * _size(others))
        met: list[Clause] = []
        for ours in clauses:
            met += [clause for theirs in others if (clause := _meet(ours, theirs)) is not None]
            if len(met) > 2 * CLAUSE_LIMIT:
                met = _merge(met, work)
        clauses = _merge(met, work)
    return clauses


def _size(clauses: list[Clause]) -> int:
    """How many spans the clauses have, and one for each clause."""
    return len(clauses) + sum([len(spans) for clause in clauses for spans in clause.values()])


def _all_met(clauses: list[Clause], work: _Work) -> list[Clause]:
    """The clause that asks for what all of some clauses do, none if that can never hold."""
    asked: dict[int, list[Spans]] = {}
    for clause in clauses:
        for position, spans in clause.items():
            asked.setdefault(position, []).append(spans)
    out: Clause = {}
    for position, several in asked.items():
        work.spend(sum(map(len, several)) * len(several).bit_length())
        out[position] = intersect_all(several)
        if not out[position]:
            return []
    return [out]


def _meet(ours: Clause, theirs: Clause) -> Clause | None:
    out = dict(ours)
    for position, spans in theirs.items():
        mine = out.get(position)
        if mine is not None:
            spans = intersect(mine, spans)
            if not spans:
                return None
        out[position] = spans
    return out


def _merge(clauses: list[Clause], work: _Work) -> list[Clause]:
    """Unite clauses that differ in one attribute only, as long as there are any; refuse too many."""
    if len(clauses) < 2 or (len(clauses) == 2 and len(clauses[0].keys() ^ clauses[1].keys()) > 1):
        return clauses  # the usual OR, at a tenth of the cost of finding out below
    positions = sorted({position for clause in clauses for position in clause})
    work.spend(len(clauses) * len(positions) + _size(clauses))
    # Clauses as rows of small numbers: hashing the spans themselves took three times as long.
    numbers: dict[Spans, int] = {}
    rows = [
        tuple([numbers.setdefault(clause.get(position, _EVERYTHING), len(numbers)) for position in positions])
        for clause in clauses
    ]
    before = len(rows) + 1
    while 1 < len(rows) < before:
        before = len(rows)
        # a row is hashed and copied for each attribute: sixteen numbers cost about as much as one span
        work.spend(before * len(positions) * (1 + len(positions) // 16))
        for j in range(len(positions)):
            alike: dict[tuple[int, ...], list[int]] = {}
            for row in rows:
                alike.setdefault(row[:j] + row[j + 1 :], []).append(row[j])
            if len(alike) < len(rows):
                known = list(numbers)
                rows = []
                for rest, group in alike.items():
                    number = group[0]
                    if len(group) > 1:
                        work.spend(sum([len(known[one]) for one in set(group)]))
                        spans = unite(span for one in set(group) for span in known[one])
                        number = numbers.setdefault(spans, len(numbers))
                    rows.append((*rest[:j], number, *rest[j:]))
    if len(rows) > CLAUSE_LIMIT:
        raise _too_many(len(rows))
    if len(rows) == len(clauses):
        return clauses
    known = list(numbers)
    return [
        {p: known[number] for p, number in zip(positions, row, strict=True) if known[number] != _EVERYTHING}
        for row in rows
    ]


def _may_trim(clauses: list[Clause]) -> bool:
    """Whether one clause bounds only attributes that another bounds too: no other can hold or trim one."""
    bounded = {frozenset(clause) for clause in clauses}
    return len(bounded) < len(clauses) or any(ours < theirs for ours in bounded for theirs in bounded)


def _separate(clauses: list[Clause], work: _Work) -> list[Clause]:
    """Drop clauses inside others and trim overlaps where no more spans do it, as long as there is time."""
    # A clause that holds another comes before it: it bounds fewer attributes, or the same ones wider.
    clauses.sort(key=lambda clause: (len(clause), -_width(clause)))
    kept: list[Clause] = []
    cut = False
    size = 0
    for clause in clauses:
        rest: Clause | None = clause
        while rest is not None and work.left > 0:
            before = rest
            work.left -= size + len(kept) * _size([rest])
            if work.left <= 0:
                break
            for other in kept:
                rest = _subtract(rest, other)
                if rest is None:
                    break
            if rest is before:
                break
            cut = True
        if rest is not None:
            kept.append(rest)
            size += _size([rest])
    if cut and work.left > len(kept) * size:  # what was cut may now lie inside a clause that came later
        kept = [
            clause
            for clause in kept
            if not any(_subtract(clause, other) is None for other in kept if other is not clause)
        ]
    return kept


def _width(clause: Clause) -> int:
    return sum([high - low + 1 for spans in clause.values() for low, high in spans])


def _subtract(clause: Clause, other: Clause) -> Clause | None:
    """`clause` without `other` where one attribute's spans can say it, None if nothing is left, or itself."""
    cut = None
    for position, theirs in other.items():
        ours = clause.get(position, _EVERYTHING)
        if ours[-1][1] < theirs[0][0] or theirs[-1][1] < ours[0][0]:
            return clause
        rest = _without(ours, theirs)
        if rest == ours:
            return clause
        if rest:
            # a long list of values must not be copied into every clause that it meets
            if cut is not None or position not in clause or len(rest) > len(ours):
                return clause
            cut = (position, rest)
    return None if cut is None else {**clause, cut[0]: cut[1]}


def _without(ours: Spans, theirs: Spans) -> Spans:
    """What is in ours and not in theirs.

    >>> _without(((1, 9),), ((3, 4), (9, 12)))
    ((1, 2), (5, 8))
    """
    outside = complement(theirs)
    if theirs[0][0] > MISSING:
        outside = unite([(MISSING, MISSING), *outside])
    return intersect(ours, outside)


def _too_many(needed: int) -> LanguageError:
    return LanguageError(
        f"the condition needs at least {needed:,} alternatives, and the limit is {CLAUSE_LIMIT:,}: every AND "
        "of ORs across attributes multiplies them; cut it into several subscriptions"
    )


# NamedAreas within clauses: circles and polygons that a condition names, and the regions that they come to.
#
# A clause asks one set of codes of an attribute (normal_form.py), but several circles may be asked of one
# point, some of them denied. So while a condition is expanded, each area that it names is an attribute of its
# own, 1 where the point is in it and 0 where it is elsewhere: AND, OR and NOT are then what they are for any
# attribute. At the end the areas of a clause become one region of the point's dictionary (types/places.py)
# and the intervals of longitude and latitude that cover it.

FIRST = 1 << 40
"""Behind the positions of all attributes: area k stands for the attribute FIRST + k."""

WITHIN, DENIED = ((1, 1),), ((0, 0),)
_PRESENT_SPANS = ((PRESENT, LAST),)
_ANY_FLOAT = Float("degrees")

Bounds = dict[int, tuple[Interval, ...]]


class NamedAreas:
    """The areas that one condition names."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._noted: list[tuple[str, Inside]] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, condition: Inside, texts: Sequence[str]) -> tuple[int, bool]:
        """The attribute that an area stands for, and whether lint.py should look at it."""
        word = word_of(condition, texts)
        odd = condition.area == "polygon" and places.long_edge(word) is not None
        known = self._numbers.setdefault((condition.position, word), len(self._noted))
        if known == len(self._noted):
            self._noted.append((word, condition))
        return FIRST + known, odd

    def bounds(self, clause: Mapping[int, tuple[Interval, ...]]) -> Iterator[Bounds]:
        """What the areas of a clause ask of attributes, in steps that must all hold."""
        named: dict[int, list[tuple[str, bool]]] = {}
        for position, spans in clause.items():
            if position < FIRST:
                continue
            word, condition = self._noted[position - FIRST]
            yield {condition.position: _PRESENT_SPANS}
            if spans not in (WITHIN, DENIED):  # in it or not, the point is somewhere
                continue
            named.setdefault(condition.position, []).append((word, spans == DENIED))
            if spans == WITHIN:
                yield extent_bounds(condition, places.extent_of(word))
        for position, areas in named.items():
            attribute = self._schema.attribute(position)
            assert isinstance(attribute, Point)
            code = attribute.vocabulary.add(places.region(areas))
            yield {position: ((code, code),)}


def word_of(condition: Inside, texts: Sequence[str] | None = None) -> str:
    """The word of the circle or polygon of a predicate, with other literals if there are any."""
    if condition.area == "polygon":
        return places.polygon(str(value_of(_texts(condition, texts)[0])))
    metres, longitude, latitude = numbers_of(condition, texts)
    return places.circle(longitude, latitude, metres * places.UNITS[condition.unit])


def extent_of(condition: Inside, texts: Sequence[str] | None = None) -> MapExtent:
    """The extent of a predicate that asks for a box."""
    return places.box_extent(*numbers_of(condition, texts))


def extent_bounds(condition: Inside, extent: MapExtent) -> Bounds:
    """An extent as intervals of longitude and latitude."""
    across = tuple((_code(low), _code(high)) for low, high in extent.longitudes)
    return {condition.longitude: across, condition.latitude: ((_code(extent.south), _code(extent.north)),)}


def numbers_of(condition: Inside, texts: Sequence[str] | None = None) -> list[float]:
    """The numbers that a predicate has; SchemaError for a literal that is none."""
    out = []
    for text in _texts(condition, texts):
        value = value_of(text)
        if isinstance(value, bool | str) or not hasattr(value, "__float__"):
            raise SchemaError(f"{condition.attribute!r} is a point: expected a number, got {text}")
        out.append(float(value))
    return out


def _texts(condition: Inside, texts: Sequence[str] | None) -> list[str]:
    return [one.text if texts is None else one.among(texts) for one in condition.literals]


def _code(degrees: float) -> int:
    return _ANY_FLOAT.bracket(degrees)[0]


# The traits of a clause, as one bundle: see the head of types/patterns.py.
#
# While a condition is expanded, each trait of it is an attribute of its own, 1 where it holds and 0 where it
# does not, at a position below 0. At the end the traits of a clause become one bundle of the schema's
# dictionary, and the clause asks for that.

TraitsAsked = list[tuple[Fits, bool]]
"""Patterns, and whether each is denied."""

_NamedTrait = tuple[Trait, str]


class TraitPlaces:
    """The traits of one condition and their positions."""

    def __init__(self, bundles: TraitBundles) -> None:
        self._bundles = bundles
        self._known: dict[str, int] = {}
        self._traits: list[tuple[Trait, str, Fits]] = []

    def __len__(self) -> int:
        return len(self._traits)

    def clauses(self, condition: Fits, negated: bool, literal: str) -> list[dict[int, tuple[Interval, ...]]]:
        """The clauses of a pattern or of its denial; one that is within any text is no pattern."""
        string = string_of(condition, literal)
        if condition.op == "contains" and not string:
            return [] if negated else [{condition.position: ((PRESENT, LAST),)}]
        code = 0 if negated else 1
        return [{self.place(condition, string): ((code, code),)}]

    def place(self, condition: Fits, string: str) -> int:
        """The position of a trait."""
        text = fitted(condition.op, condition.source, string).text
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = -1 - len(self._traits)
            self._traits.append((trait_of(condition, string), text, condition))
        return found

    def folded(self, clauses: list[dict[int, tuple[Interval, ...]]]) -> list[dict[int, tuple[Interval, ...]]]:
        """The clauses with a bundle instead of the traits of each; one that can never hold is left out."""
        # a clause that asks for nothing at all holds everywhere, and has no trait
        found = [self._folded(clause) if min(clause, default=0) < 0 else clause for clause in clauses]
        return [clause for clause in found if clause is not None]

    def _folded(self, clause: dict[int, tuple[Interval, ...]]) -> dict[int, tuple[Interval, ...]] | None:
        """The clause with one bundle instead of its traits, None where it can never hold."""
        out = {position: spans for position, spans in clause.items() if position >= 0}
        members: list[Trait] = []
        texts: list[str] = []
        present: list[int] = []
        bundles = 0
        for position, spans in clause.items():
            if position >= 0:
                continue
            trait, text, condition = self._traits[-1 - position]
            asked, denied = (any(low <= code <= high for low, high in spans) for code in (1, 0))
            if denied:
                present.append(condition.position)
            if asked and denied:
                continue
            members.append(trait._replace(denied=denied))
            texts.append(f"NOT {text}" if denied else text)
            bundles = condition.bundles
        for position in present:
            spans = out.get(position, ((PRESENT, LAST),))
            out[position] = tuple((max(low, PRESENT), high) for low, high in spans if high >= PRESENT)
            if not out[position]:
                return None
        if members:
            code = bundle_code(self._bundles, members, texts)
            for k, interval in interval_of(code, all(one.denied for one in members)).items():
                out[bundles + k] = (interval,)
        return out


def bundle_code(bundles: TraitBundles, members: Sequence[Trait], texts: Sequence[str]) -> int:
    """The code of a bundle; LanguageError where there is no room for it."""
    try:
        return bundles.code(members, texts)
    except CapacityError as error:
        raise LanguageError(str(error)) from None


def has_traits(condition: Condition) -> bool:
    """Whether a condition has a pattern."""
    if isinstance(condition, And | Or):
        return any(map(has_traits, condition.parts))
    if isinstance(condition, Not | Stated):
        return has_traits(condition.part)
    return isinstance(condition, Fits)


def traits_asked(condition: Condition, negated: bool) -> TraitsAsked | None:
    """The patterns that a condition asks for and denies, if it is a conjunction of nothing else."""
    if isinstance(condition, Stated):
        return traits_asked(condition.part, negated)
    if isinstance(condition, Not):
        return traits_asked(condition.part, not negated)
    if isinstance(condition, Fits):
        return [(condition, negated)]
    if not isinstance(condition, And | Or) or isinstance(condition, And) is negated:
        return None
    found: TraitsAsked = []
    for part in condition.parts:
        own = traits_asked(part, negated)
        if own is None:
            return None
        found += own
    return found


def bundle_codes(bundles: TraitBundles, asked: TraitsAsked, texts: Sequence[Sequence[str]]) -> list[int]:
    """The codes of the bundles of many texts, given by a column of literals for each pattern that they have.

    0 where there is none: a literal that is no string, a pattern that is within any text, one that is asked
    twice, or no room.
    """
    columns = [
        _trait_column(condition, denied, own) for (condition, denied), own in zip(asked, texts, strict=True)
    ]
    known: dict[tuple[_NamedTrait | None, ...], int] = {}
    for members in zip(*columns, strict=True):
        if members not in known:
            known[members] = _bundle_or_none(bundles, members)
    return [known[members] for members in zip(*columns, strict=True)]


def _trait_column(condition: Fits, denied: bool, literals: Sequence[str]) -> list[_NamedTrait | None]:
    """The traits of one pattern, with the texts that name them; None for what is no trait."""
    known: dict[str, _NamedTrait | None] = {}
    for literal in dict.fromkeys(literals):
        known[literal] = None
        if literal[0] == "'" and literal != "''" and is_unicode(literal):
            string = string_in(literal)
            text = fitted(condition.op, condition.source, string).text
            named = f"NOT {text}" if denied else text
            known[literal] = trait_of(condition, string)._replace(denied=denied), named
    return [known[literal] for literal in literals]


def _bundle_or_none(bundles: TraitBundles, members: Sequence[_NamedTrait | None]) -> int:
    found = [one for one in members if one is not None]
    if len({text.removeprefix("NOT ") for _, text in found}) < len(members):
        return 0
    try:
        return bundles.code([trait for trait, _ in found], [text for _, text in found])
    except CapacityError:
        return 0


def trait_of(condition: Fits, string: str) -> Trait:
    """The trait that a condition asks for."""
    return Trait(condition.op, condition.source.text, string)


def fulfils(condition: Fits, value: Any) -> bool:
    """Whether a value fulfils a trait; it may be a list of several."""
    string = string_of(condition, condition.literal.text)
    words = [str(one) for one in value] if isinstance(value, list) else [str(value)]
    if condition.op == "has":
        return string in words
    source = condition.source

    def look(name: str) -> Values:
        return Values(np.arange(len(words)), np.zeros(len(words), bool), words)

    if condition.op == "contains":
        found = evaluate(source, look, len(words), {}).words or []
        return any(string in word for word in found)
    return bool(evaluate(fitted(condition.op, source, string), look, len(words), {}).data.any())


def string_of(condition: Fits, literal: str) -> str:
    """The string of a trait; SchemaError where the literal is none."""
    value = value_of(literal)
    if not isinstance(value, str) or not is_unicode(value):
        raise SchemaError(f"{condition.op.upper()} takes a string, got {literal}")
    return value
