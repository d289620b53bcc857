"""The normal form: a condition as a disjunction of boxes.

    span    a closed interval of codes (low, high)
    spans   a tuple of spans, ascending, with a gap between any two: what a predicate allows
    clause  {attribute position: spans}; an attribute that is absent is ignored
    box     {attribute position: span}; what the indexes store

Negation is pushed down to the predicates, where it is the complement among the values that are
present. Then AND intersects clauses and OR unites them. Clauses instead of boxes keep the expansion
small: IN and != are one clause, and two clauses that differ in a single attribute become one, which also
absorbs a clause that lies inside its neighbour. Only the clauses that remain are multiplied out.

Boxes of one clause are disjoint. A box that overlaps one of another clause is trimmed where a narrower bound
on one of its own attributes does it, and left as it is otherwise: `a < 5 or b = 1` would need three
disjoint boxes of two attributes, and those cost an index more than reporting a subscription once when
two of its boxes match. No box lies inside another.

What a text may cost is bounded, since anybody may send one: each step says how many spans it will compare
before it does, and past WORK_LIMIT (about two seconds) the condition is refused. Trimming, which changes no
match, is given up instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import product

from rangecast.errors import LanguageError, SchemaError
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Value,
    value_of,
)
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Interval
from rangecast.types.schema import Schema

Spans = tuple[Interval, ...]
Clause = dict[int, Spans]
Box = dict[int, Interval]

BOX_LIMIT = 1_024
WORK_LIMIT = 4_000_000

_JUNCTIONS = (And, Or)  # And | Or in isinstance would be made anew for each call
_ANY: Interval = (MISSING, LAST)
_EVERYTHING: Spans = (_ANY,)
_PRESENT: Spans = ((PRESENT, LAST),)
_ABSENT: Spans = ((MISSING, MISSING),)
# A memo of comparisons pays for strings, prices and days that return; this bounds it for the rest.
_MEMO_LIMIT = 65_536


class Expander:
    """Turns conditions over one schema into boxes; it remembers the comparisons it has seen."""

    def __init__(self, schema: Schema) -> None:
        self._attributes = schema.attributes
        self._memo: dict[tuple[int, str, str], Spans] = {}
        self._work = _Work()

    def boxes(self, condition: Condition, texts: Sequence[str]) -> list[Box]:
        """The boxes of a condition whose literals are `texts`, by their ordinals.

        Raises LanguageError past the limits of boxes and of work, and for a value that an attribute cannot
        hold.
        """
        self._work.left = WORK_LIMIT
        clauses = self._clauses(condition, False, texts)
        if len(clauses) == 1 and all(len(spans) == 1 for spans in clauses[0].values()):
            return [{position: spans[0] for position, spans in clauses[0].items()}]
        needed = sum(math.prod(map(len, clause.values())) for clause in clauses)
        if needed > BOX_LIMIT:
            raise _too_many(needed)
        boxes = [
            dict(zip(clause, spans, strict=True)) for clause in clauses for spans in product(*clause.values())
        ]
        return _separate(boxes, self._work) if _may_trim(clauses) else boxes

    def _clauses(self, condition: Condition, negated: bool, texts: Sequence[str]) -> list[Clause]:
        if isinstance(condition, Comparison):
            position = condition.position
            spans = self._compare(position, condition.operator, condition.literal.among(texts))
        elif isinstance(condition, _JUNCTIONS):
            parts = [self._clauses(part, negated, texts) for part in condition.parts]
            if isinstance(condition, And) is not negated:
                return _all_of(parts, self._work)
            return _merge([clause for part in parts for clause in part], self._work)
        elif isinstance(condition, Not):
            return self._clauses(condition.part, not negated, texts)
        elif isinstance(condition, Range):
            position = condition.position
            spans = self._between(condition, texts)
            negated = negated is not condition.negated
        elif isinstance(condition, Membership):
            position = condition.position
            values = (literal.among(texts) for literal in condition.literals)
            spans = unite(span for value in values for span in self._compare(position, "=", value))
            negated = negated is not condition.negated
        elif isinstance(condition, Presence):
            return [{condition.position: _PRESENT if condition.present is not negated else _ABSENT}]
        else:
            raise TypeError(f"expected a condition, got {condition!r}")
        if negated:
            spans = complement(spans)
        return [{position: spans}] if spans else []

    def _compare(self, position: int, operator: str, text: str) -> Spans:
        key = (position, operator, text)
        spans = self._memo.get(key)
        if spans is None:
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            spans = self._memo[key] = spans_of(self._attributes[position], operator, value_of(text))
        return spans

    def _between(self, condition: Range, texts: Sequence[str]) -> Spans:
        position, low, high = condition.position, condition.low.among(texts), condition.high.among(texts)
        spans = intersect(
            self._compare(position, condition.above, low), self._compare(position, condition.below, high)
        )
        if not spans:
            check_order(self._attributes[position], value_of(low), value_of(high))
        return spans


def spans_of(attribute: Attribute, operator: str, value: Value) -> Spans:
    """The spans of `attribute operator value`; SchemaError for a value of the wrong type."""
    if isinstance(value, Decimal):
        if attribute.kind != "int":
            return attribute.intervals(operator, float(value))
        # between two whole numbers, with no double there to say so
        if operator in ("=", "!="):
            return _PRESENT if operator == "!=" else ()
        return attribute.intervals("<=" if operator[0] == "<" else ">", math.floor(value))
    return attribute.intervals(operator, value)


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
    clauses = parts[0]
    for others in parts[1:]:
        work.spend(len(others) * _size(clauses) + len(clauses) * _size(others))
        met: list[Clause] = []
        for ours in clauses:
            met += [clause for theirs in others if (clause := _meet(ours, theirs)) is not None]
            if len(met) > 2 * BOX_LIMIT:
                met = _merge(met, work)
        clauses = _merge(met, work)
    return clauses


def _size(clauses: list[Clause]) -> int:
    """How many spans the clauses have, and one for each clause."""
    return len(clauses) + sum([len(spans) for clause in clauses for spans in clause.values()])


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
    work.spend(len(clauses) * len(positions))
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
                        spans = unite(span for one in set(group) for span in known[one])
                        number = numbers.setdefault(spans, len(numbers))
                    rows.append((*rest[:j], number, *rest[j:]))
    if len(rows) > BOX_LIMIT:
        raise _too_many(len(rows))
    if len(rows) == len(clauses):
        return clauses
    known = list(numbers)
    return [
        {p: known[number] for p, number in zip(positions, row, strict=True) if known[number] != _EVERYTHING}
        for row in rows
    ]


def _may_trim(clauses: list[Clause]) -> bool:
    """Whether one clause bounds only attributes that another bounds too: no other can hold or trim a box."""
    bounded = {frozenset(clause) for clause in clauses}
    return len(bounded) < len(clauses) or any(ours < theirs for ours in bounded for theirs in bounded)


def _separate(boxes: list[Box], work: _Work) -> list[Box]:
    """Drop boxes inside others and trim overlaps where a narrower bound does it, as long as there is time."""
    # A box that holds another comes before it: it bounds fewer attributes, or the same ones wider.
    boxes.sort(key=lambda box: (len(box), sum(low - high for low, high in box.values())))
    kept: list[Box] = []
    cut = False
    for box in boxes:
        rest: Box | None = box
        while rest is not None and work.left > 0:
            before = rest
            work.left -= len(kept)
            for other in kept:
                rest = _subtract(rest, other)
                if rest is None:
                    break
            if rest is before:
                break
            cut = True
        if rest is not None:
            kept.append(rest)
    if cut and work.left > 0:  # what was cut down may now lie inside a box that came later
        kept = [
            box
            for box in kept
            if not any(_subtract(box, other) is None for other in kept if other is not box)
        ]
    return kept


def _subtract(box: Box, other: Box) -> Box | None:
    """`box` without `other` if a narrower bound says it, None if nothing is left, else `box` itself."""
    cut = None
    for position, (low, high) in other.items():
        start, end = box.get(position, _ANY)
        if end < low or high < start:
            return box
        if start < low or high < end:
            if cut is not None or position not in box or (start < low and high < end):
                return box
            cut = (position, (start, low - 1) if start < low else (high + 1, end))
    return None if cut is None else {**box, cut[0]: cut[1]}


def _too_many(needed: int) -> LanguageError:
    return LanguageError(
        f"the condition needs at least {needed:,} boxes, and the limit is {BOX_LIMIT:,}: every OR, IN and != "
        "multiplies them; cut it into several subscriptions"
    )
