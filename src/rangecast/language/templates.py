"""Shapes: texts that differ in their literals alone, compiled together.

The shape of a text is what lies between its literals. `price < 10 and symbol = 'IBM'` and
`price < 25 and symbol = 'HAL'` have the same, so it is parsed once, and the literals of all its texts are
turned into spans column by column:

    literals   texts of a literal, one column per ordinal
    floors     int64   n_texts   the largest code not above the literal
    ceils      int64   n_texts   the smallest code not below it

From there on this is `normal_form.py` on columns of spans (span_columns.py): the same steps in the same
order, as long as they do not depend on the values. They depend on them where a predicate can never hold,
where two clauses are so alike that they become one, and where one may be trimmed by another. Such rows are
doubtful, and so are rows with a literal that is no value of its attribute or lies at the end of the codes.
Doubtful rows are filled into the tree of the shape one by one, or parsed, which alone makes the errors.

Measured on 100,000 texts: 0.4 to 0.7 s with three predicates each, and 1.2 s for a mixture of AND, OR, NOT
and IN, against 4 to 6 s for filling the tree of each text and 9 to 18 s for parsing each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.language.literal_forms import CHANGES, interval_of
from rangecast.language.normal_form import ABSENT_SPANS, PRESENT_SPANS, TRUTH_SPANS
from rangecast.language.region_columns import inside_columns
from rangecast.language.span_columns import (
    SpanColumns,
    complement,
    constant,
    equal,
    intersect,
    one_span,
    unite,
    unite_values,
    width,
)
from rangecast.language.traits import TraitsAsked, bundle_codes, has_traits, traits_asked
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Inside,
    Literal,
    LiteralInterval,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Stated,
    Within,
    value_of,
)
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Codes, float_codes
from rangecast.types.numerals import Mask
from rangecast.types.places import Point
from rangecast.types.schema import Schema

# A quoted string, or a word that begins like a number and does not go on from a name; a sign alone is none.
# Looser than the parser's literals, and led by a set of characters: that lets `re` skip ahead, 1.8 to 3.3
# times faster.
_LITERALS = re.compile(
    r"([0-9'+.-](?:(?<=')[^']*(?:''[^']*)*'"
    r"|(?<!')(?<![\w.$+-].)(?:(?<=[0-9])|(?=[0-9.iI]))[0-9A-Za-z_.:+-]*(?![\w$.:+-])))"
)


_DAY = 86_400_000_000  # microseconds
ClauseColumns = dict[int, SpanColumns]

# Past these, arrays of all pairs are no faster than one text after the other.
_MANY_LITERALS = 1_024
_MANY_CLAUSES = 16


class Filled(NamedTuple):
    """The clauses of some texts of one shape, which of the texts are doubtful, and which were perhaps meant
    otherwise (lint.py).

    `ranks` are the places of the clauses in each row, (n_clauses, n_texts), or None for the order they have.
    """

    clauses: list[ClauseColumns]
    ranks: npt.NDArray[np.int64] | None
    doubtful: Mask
    odd: Mask


def split(text: str) -> tuple[tuple[str, ...], list[str]]:
    """The shape of a text and its literals.

    >>> split("price < 10 and symbol = 'IBM'")
    (('price < ', ' and symbol = ', ''), ['10', "'IBM'"])
    """
    pieces = _LITERALS.split(text)
    return tuple(pieces[::2]), pieces[1::2]


def fill(schema: Schema, condition: Condition, n_texts: int, literals: Sequence[str]) -> Filled:
    """The clauses of each text; `literals` are those of the first text, then those of the second, ..."""
    filler = _Filler(schema, n_texts, literals)
    try:
        clauses = filler.clauses(condition, False)
        return Filled(clauses, filler.separate(clauses), filler.doubtful, filler.odd)
    except _TooLarge:
        return Filled([], None, np.ones(n_texts, bool), np.zeros(n_texts, bool))


class _TooLarge(Exception):
    """A shape that arrays would not make faster."""


class _Filler:
    """`Expander` (normal_form.py) for the texts of one shape."""

    def __init__(self, schema: Schema, n_texts: int, literals: Sequence[str]) -> None:
        self.schema = schema
        self.n = n_texts
        self.literals = literals
        self.n_literals = len(literals) // n_texts
        self.doubtful = np.zeros(n_texts, bool)
        self.odd = np.zeros(n_texts, bool)

    def clauses(self, condition: Condition, negated: bool) -> list[ClauseColumns]:
        asked = traits_asked(condition, negated)
        if asked is not None:
            return [self._traits(asked)]
        if isinstance(condition, And | Or):
            if isinstance(condition, And) is not negated:
                return self._conjunction(condition, negated)
            parts = [self.clauses(part, negated) for part in condition.parts]
            united = self._merge([clause for part in parts for clause in part])
            for clause in united:
                if len(clause) == 1:
                    self.odd |= _all_present(*clause.values())
            return united
        if isinstance(condition, Not):
            return self.clauses(condition.part, not negated)
        if isinstance(condition, Stated):
            return self.clauses(condition.part, negated)
        if isinstance(condition, Presence):
            spans = constant(PRESENT_SPANS if condition.present is not negated else ABSENT_SPANS, self.n)
            return [{condition.position: spans}]
        if isinstance(condition, Comparison) and condition.operator != "ON":
            spans = self._compare(condition.position, condition.operator, condition.literal)
        elif isinstance(condition, Range):
            spans = intersect(
                self._compare(condition.position, condition.above, condition.low),
                self._compare(condition.position, condition.below, condition.high),
            )
            negated = negated is not condition.negated
            self.doubtful |= spans.counts == 0  # an error, unless both ends touch
        elif isinstance(condition, Membership):
            spans = self._member(condition)
            negated = negated is not condition.negated
        elif isinstance(condition, Within):
            spans = constant(condition.spans, self.n)
        elif isinstance(condition, LiteralInterval):
            spans = self._coded(condition)
        elif isinstance(condition, Inside) and not negated:
            return [self._inside(condition)]
        else:
            raise _TooLarge
        if negated:
            spans = complement(spans)
            if self.schema.attribute(condition.position).kind == "bool":
                spans = intersect(spans, constant(TRUTH_SPANS, self.n))
        self.doubtful |= spans.counts == 0
        return [{condition.position: spans}]

    def _inside(self, condition: Inside) -> ClauseColumns:
        attribute = self.schema.attribute(condition.position)
        assert isinstance(attribute, Point)
        texts: list[str] = []
        if condition.area == "polygon":
            texts = list(self._texts(condition.literals[0]))
        return inside_columns(attribute, condition, texts, self._brackets, self.doubtful)

    def _compare(self, position: int, operator: str, literal: Literal) -> SpanColumns:
        attribute = self.schema.attribute(position)
        floors, ceils = self._brackets(attribute, (literal,))
        floors, ceils = floors[:, 0], ceils[:, 0]
        if attribute.kind == "timestamp":
            self.odd |= _odd_instants(operator, floors)
        if operator in ("=", "!="):
            self.doubtful |= floors != ceils
            if operator == "=":
                return one_span(ceils, floors)
            if attribute.kind == "bool":
                return one_span(1 - floors, 1 - floors)
            return complement(one_span(floors, floors))
        if attribute.kind in ("category", "text", "bool"):
            raise _TooLarge  # refused by the attribute
        lows, highs = np.full(self.n, PRESENT), np.full(self.n, LAST)
        if operator[0] == ">":
            lows = floors + 1 if operator == ">" else ceils
        else:
            highs = ceils - 1 if operator == "<" else floors
        spans = one_span(np.maximum(lows, PRESENT), highs)
        self.odd |= _all_present(spans)
        return spans

    def _member(self, condition: Membership) -> SpanColumns:
        attribute = self.schema.attribute(condition.position)
        floors, ceils = self._brackets(attribute, condition.literals)
        self.doubtful |= (floors != ceils).any(1)
        if attribute.kind == "timestamp":
            self.odd |= _odd_instants("=", floors).any(1)
        return unite_values(floors)

    def _coded(self, condition: LiteralInterval) -> SpanColumns:
        own = self._texts(condition.literal)
        form, part = condition.form, condition.part
        known = {text: interval_of(form, part, text) for text in dict.fromkeys(own)}
        both = np.array([known[text] for text in own], np.int64)
        return one_span(both[:, 0], both[:, 1])

    def _conjunction(self, condition: And | Or, negated: bool) -> list[ClauseColumns]:
        """What all parts ask for; the traits of all of them are one bundle."""
        parts: list[list[ClauseColumns]] = []
        together: list[TraitsAsked] = []
        for part in condition.parts:
            asked = traits_asked(part, negated)
            if asked is not None:
                together.append(asked)
            else:
                parts.append(self.clauses(part, negated))
        n_asking = sum(map(has_traits, condition.parts))
        if n_asking > max(1, len(together)):
            raise _TooLarge  # some clauses would have the traits of several parts
        if together:
            parts.append([self._traits([one for asked in together for one in asked])])
        return self._all_of(parts)

    def _traits(self, asked: TraitsAsked) -> ClauseColumns:
        """The clause of one bundle: of the traits that each text asks for and denies."""
        texts = [self._texts(condition.literal) for condition, _ in asked]
        codes = np.array(bundle_codes(self.schema.traits, asked, texts), np.int64)
        self.doubtful |= codes == 0
        found = {condition.position: constant(PRESENT_SPANS, self.n) for condition, denied in asked if denied}
        first = asked[0][0].bundles
        if not all(denied for _, denied in asked):
            return {**found, first: one_span(codes, codes)}
        # a gap between those that do not hold (types/traits.py)
        found[first + 1] = one_span(np.full(self.n, PRESENT), codes - 1)
        found[first + 2] = one_span(codes + 1, np.full(self.n, LAST))
        return found

    def _texts(self, literal: Literal) -> Sequence[str]:
        """The texts of a literal, changed as it is."""
        if literal.ordinal < 0:
            return [literal.text] * self.n
        own = self.literals[literal.ordinal :: self.n_literals]
        for change in literal.changes:
            own = list(map(CHANGES[change], own))
        return own

    def _brackets(self, attribute: Attribute, wanted: Sequence[Literal]) -> tuple[Codes, Codes]:
        """Floors and ceils of some literals of each text, (n_texts, n_literals)."""
        if len(wanted) > _MANY_LITERALS:
            raise _TooLarge
        step, k = self.n_literals, len(wanted)
        firsts = [literal.ordinal for literal in wanted]
        if max(firsts) < 0:
            own: Sequence[str] = [literal.text for literal in wanted] * self.n
        elif k == 1:
            own = self._texts(wanted[0])
        elif any(literal.changes for literal in wanted):
            own = [text for row in zip(*map(self._texts, wanted), strict=True) for text in row]
        elif k == step and firsts == list(range(k)):
            own = self.literals
        else:
            own = [
                wanted[j].text if ordinal < 0 else self.literals[start + ordinal]
                for start in range(0, self.n * step, step)
                for j, ordinal in enumerate(firsts)
            ]
        floors, ceils, bad = _brackets(attribute, own)
        self.doubtful |= bad.reshape(-1, k).any(1)
        return floors.reshape(-1, k), ceils.reshape(-1, k)

    def _all_of(self, parts: list[list[ClauseColumns]]) -> list[ClauseColumns]:
        parts.sort(key=len)
        clauses = parts[0]
        for others in parts[1:]:
            if len(clauses) * len(others) > _MANY_CLAUSES:
                raise _TooLarge
            clauses = self._merge([self._meet(ours, theirs) for ours in clauses for theirs in others])
        return clauses

    def _meet(self, ours: ClauseColumns, theirs: ClauseColumns) -> ClauseColumns:
        out = dict(ours)
        for position, spans in theirs.items():
            mine = out.get(position)
            if mine is not None:
                if mine.lows.shape[1] * spans.lows.shape[1] > _MANY_LITERALS:
                    raise _TooLarge
                spans = intersect(mine, spans)
                self.doubtful |= spans.counts == 0
            out[position] = spans
        return out

    def _merge(self, clauses: list[ClauseColumns]) -> list[ClauseColumns]:
        """Unite clauses on the same attribute alone; rows where others become one are doubtful."""
        if len(clauses) > _MANY_CLAUSES:
            raise _TooLarge
        groups: dict[int, list[ClauseColumns]] = {}
        for k, clause in enumerate(clauses):
            # the attribute of a clause that has no other, or a number that no other clause has
            groups.setdefault(next(iter(clause)) if len(clause) == 1 else ~k, []).append(clause)
        if len(clauses) > 1:
            self._doubt_alike(clauses)
        if len(groups) == len(clauses):
            return clauses
        merged: list[ClauseColumns] = []
        for position, group in groups.items():
            if len(group) == 1:
                merged.append(group[0])
                continue
            several = [clause[position] for clause in group]
            spans = unite(
                np.concatenate([some.lows for some in several], axis=1),
                np.concatenate([some.highs for some in several], axis=1),
            )
            self.doubtful |= (spans.lows[:, 0] == MISSING) & (spans.highs[:, 0] == LAST)
            merged.append({position: spans})
        if len(merged) > 1:
            self._doubt_alike(merged)
        return merged

    def _doubt_alike(self, clauses: list[ClauseColumns]) -> None:
        """Doubt the rows in which two clauses differ in one attribute at most, and would become one."""
        for ours, theirs in combinations(clauses, 2):
            apart = len(ours.keys() ^ theirs.keys())
            if apart > 1 or (apart == 0 and len(ours) == 1):
                continue
            differ = np.full(self.n, apart)
            for position in ours.keys() & theirs.keys():
                differ += ~equal(ours[position], theirs[position])
            self.doubtful |= differ < 2

    def separate(self, clauses: list[ClauseColumns]) -> npt.NDArray[np.int64] | None:
        """The places of the clauses after trimming; rows in which one may be trimmed are doubtful."""
        if len(clauses) < 2:
            return None
        may_trim = False
        for ours, theirs in combinations(clauses, 2):
            if ours.keys() <= theirs.keys() or theirs.keys() <= ours.keys():
                may_trim = True
                disjoint = np.zeros(self.n, bool)
                for position in ours.keys() & theirs.keys():
                    disjoint |= intersect(ours[position], theirs[position]).counts == 0
                self.doubtful |= ~disjoint
        if not may_trim:
            return None
        units = np.zeros((len(clauses), self.n), np.uint64)
        rests = np.zeros((len(clauses), self.n), np.uint64)
        for k, clause in enumerate(clauses):
            for spans in clause.values():
                more = width(spans)
                units[k] += more[0]
                rests[k] += more[1]
        units += rests >> np.uint64(32)
        rests &= np.uint64(0xFFFFFFFF)
        sizes = np.repeat([[len(clause)] for clause in clauses], self.n, axis=1)
        order = np.lexsort((~rests, ~units, sizes), axis=0)
        ranks: npt.NDArray[np.int64] = np.argsort(order, axis=0)
        return ranks


def _all_present(spans: SpanColumns) -> Mask:
    """The rows in which every value is within the spans."""
    whole: Mask = (spans.counts == 1) & (spans.lows[:, 0] == PRESENT) & (spans.highs[:, 0] == LAST)
    return whole


def _odd_instants(operator: str, floors: Codes) -> Mask:
    """What `odd_instant` finds, by the codes: midnights that may be dates, and small or huge numbers."""
    odd: Mask = (floors >= 10**17) | ((floors >= 10**8) & (floors < 10**14))
    if operator in ("=", "!=", "<="):
        odd |= floors % _DAY == 0
    return odd


def _brackets(attribute: Attribute, texts: Sequence[str]) -> tuple[Codes, Codes, Mask]:
    """Floor and ceil of each literal, and which have none that can be counted on from."""
    codes = _numbers(attribute, texts)
    if codes is not None:
        return codes, codes, (codes == MISSING) | (codes == LAST)
    known = {text: _bracket(attribute, text) for text in dict.fromkeys(texts)}
    both = np.array([known[text] for text in texts], np.int64)
    return both[:, 0], both[:, 1], both[:, 0] == LAST


def _numbers(attribute: Attribute, texts: Sequence[str]) -> Codes | None:
    """Codes of a column of plain numbers, or None where a literal needs a closer look."""
    try:
        if attribute.kind == "int":
            return np.array([int(text) for text in texts], np.int64)
        if attribute.kind == "float":
            return float_codes(np.array([float(text) for text in texts]))
    except (ValueError, OverflowError):
        pass
    return None


def _bracket(attribute: Attribute, text: str) -> tuple[int, int]:
    try:
        value = value_of(text)
        if not isinstance(value, Decimal):
            floor, ceil = attribute.bracket(value)
            if floor < LAST and ceil > MISSING:
                return floor, ceil
    except ValueError:
        pass
    return LAST, LAST
