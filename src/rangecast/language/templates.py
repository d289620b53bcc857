"""Shapes: texts that differ in their literals alone, compiled together.

The shape of a text is what lies between its literals. `price < 10 and symbol = 'IBM'` and
`price < 25 and symbol = 'HAL'` have the same, so it is parsed once, and the literals of all its texts are
turned into spans column by column:

    literals   texts of a literal, one column per ordinal
    floors     int64   n_texts   the largest code not above the literal
    ceils      int64   n_texts   the smallest code not below it

From there on this is `normal_form.py` on columns of spans: the same steps in the same
order, as long as they do not depend on the values. They depend on them where a predicate can never hold,
where two clauses are so alike that they become one, and where one may be trimmed by another. Such rows are
doubtful, and so are rows with a literal that is no value of its attribute or lies at the end of the codes.
Doubtful rows are filled into the tree of the shape one by one, or parsed, which alone makes the errors.

Measured on 100,000 texts: 0.4 to 0.7 s with three predicates each, and 1.2 s for a mixture of AND, OR, NOT
and IN, against 4 to 6 s for filling the tree of each text and 9 to 18 s for parsing each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import SchemaError
from rangecast.language.normal_form import (
    ABSENT_SPANS,
    PRESENT_SPANS,
    TRUTH_SPANS,
    TraitsAsked,
    bundle_codes,
    has_traits,
    traits_asked,
)
from rangecast.language.tree import (
    CHANGES,
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
    interval_of,
    value_of,
)
from rangecast.types import places
from rangecast.types.attributes import (
    LAST,
    MISSING,
    PRESENT,
    Attribute,
    Codes,
    Float,
    decoded_floats,
    float_codes,
)
from rangecast.types.expressions import RANGES
from rangecast.types.numerals import Mask
from rangecast.types.places import Point
from rangecast.types.schema import Schema

# Spans of many texts at once: what `normal_form.py` does with the spans of one text, on arrays.
#
#     array    dtype   shape     meaning
#     lows     int64   (n, k)    low ends of the spans of each row, ascending, with a gap between any two
#     highs    int64   (n, k)    their high ends
#     counts   int64   n         how many spans a row has; behind them stand (LAST, MISSING)
#
# A row without a span is one whose predicate can never hold. Rows do not know of each other, so a row
# that makes no sense (a literal that is no value) costs nothing but its own result.


class SpanColumns(NamedTuple):
    """Spans of n rows (see the module head)."""

    lows: Codes
    highs: Codes
    counts: Codes

    @property
    def valid(self) -> Mask:
        """Which places hold a span, (n, k)."""
        return np.arange(self.lows.shape[1]) < self.counts[:, None]


def one_span(lows: Codes, highs: Codes) -> SpanColumns:
    """One span per row, or none where the low end is above the high end."""
    valid = lows <= highs
    if not valid.all():
        lows, highs = np.where(valid, lows, LAST), np.where(valid, highs, MISSING)
    return SpanColumns(lows[:, None], highs[:, None], valid.astype(np.int64))


def constant(spans: tuple[tuple[int, int], ...], n: int) -> SpanColumns:
    """The same spans in every row."""
    ends = np.array(spans or ((LAST, MISSING),), np.int64)
    shape = (n, len(ends))
    lows, highs = np.broadcast_to(ends[:, 0], shape), np.broadcast_to(ends[:, 1], shape)
    return SpanColumns(lows, highs, np.full(n, len(spans)))


def unite(lows: Codes, highs: Codes) -> SpanColumns:
    """The union of spans (n, k) in any order; spans that touch become one.

    >>> unite(np.array([[5, 1, 3]]), np.array([[6, 2, 3]])).highs.tolist()
    [[3, 6]]
    """
    order = np.argsort(lows, axis=1, kind="stable")
    lows = np.take_along_axis(lows, order, 1)
    own = np.take_along_axis(highs, order, 1)
    reached = np.maximum.accumulate(own, axis=1)
    opens = lows <= own
    # a low end above another is above MISSING, so there is a code before it
    opens[:, 1:] &= (lows[:, 1:] > reached[:, :-1]) & (lows[:, 1:] - 1 > reached[:, :-1])
    rows, places = np.nonzero(opens)
    if not len(rows):
        return _packed(np.zeros_like(opens), lows, own)
    last = np.append(places[1:] - 1, lows.shape[1] - 1)
    last[:-1][rows[1:] != rows[:-1]] = lows.shape[1] - 1
    highs = own.copy()
    highs[rows, places] = reached[rows, last]
    return _packed(opens, lows, highs)


def unite_values(codes: Codes) -> SpanColumns:
    """The union of single codes (n, k); codes that touch become one span.

    >>> unite_values(np.array([[5, 1, 2, 5]])).lows.tolist()
    [[1, 5]]
    """
    codes = np.sort(codes, axis=1)
    parts = np.ones(codes.shape, bool)
    parts[:, 1:] = (codes[:, 1:] > codes[:, :-1]) & (codes[:, 1:] - 1 > codes[:, :-1])
    ends = np.ones(codes.shape, bool)
    ends[:, :-1] = parts[:, 1:]
    firsts, lasts = _packed(parts, codes, codes), _packed(ends, codes, codes)
    return SpanColumns(firsts.lows, lasts.highs, firsts.counts)


def intersect(ours: SpanColumns, theirs: SpanColumns) -> SpanColumns:
    """What both allow.

    >>> both = intersect(constant(((1, 3), (5, 9)), 1), constant(((2, 6),), 1))
    >>> both.lows.tolist(), both.highs.tolist()
    ([[2, 5]], [[3, 6]])
    """
    n = len(ours.lows)
    # pairs in the order of ours, then theirs: what they have in common ascends as it stands
    lows = np.maximum(ours.lows[:, :, None], theirs.lows[:, None, :]).reshape(n, -1)
    highs = np.minimum(ours.highs[:, :, None], theirs.highs[:, None, :]).reshape(n, -1)
    return _packed(lows <= highs, lows, highs)


def complement(spans: SpanColumns) -> SpanColumns:
    """The present values that the spans leave out.

    >>> complement(constant(((PRESENT, 3), (5, LAST)), 1)).lows.tolist()
    [[4]]
    """
    n, k = spans.lows.shape
    lows, highs = np.empty((n, k + 1), np.int64), np.empty((n, k + 1), np.int64)
    lows[:, 0], highs[:, k] = PRESENT, LAST
    lows[:, 1:] = spans.highs + 1  # the code after LAST is none
    highs[:, :k] = spans.lows - 1  # and so is the one before MISSING
    valid = np.ones((n, k + 1), bool)
    valid[:, 1:] = spans.valid & (spans.highs < LAST)
    valid[:, :k] &= ~spans.valid | (spans.lows > MISSING)
    highs[np.arange(n), spans.counts] = LAST
    return _packed(valid & (lows <= highs), lows, highs)


def equal(ours: SpanColumns, theirs: SpanColumns) -> Mask:
    """The rows in which both have the same spans."""
    k = min(ours.lows.shape[1], theirs.lows.shape[1])
    same: Mask = ours.counts == theirs.counts
    same &= (ours.lows[:, :k] == theirs.lows[:, :k]).all(1)
    same &= (ours.highs[:, :k] == theirs.highs[:, :k]).all(1)
    return same


def width(spans: SpanColumns) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """How many codes the spans of each row have: in units of 2**32, and what is left."""
    sizes = np.where(spans.valid, spans.highs.view(np.uint64) - spans.lows.view(np.uint64), 0)
    rest = (sizes & 0xFFFFFFFF).sum(1, dtype=np.uint64) + spans.counts.astype(np.uint64)
    return (sizes >> 32).sum(1, dtype=np.uint64), rest


def _packed(valid: Mask, lows: Codes, highs: Codes) -> SpanColumns:
    """The valid spans of each row, moved to its beginning."""
    counts = valid.sum(1)
    k = lows.shape[1]
    if k == 1 or bool((counts == k).all()):
        if not bool(valid.all()):
            lows, highs = np.where(valid, lows, LAST), np.where(valid, highs, MISSING)
        return SpanColumns(lows, highs, counts)
    shape = (len(lows), max(int(counts.max(initial=0)), 1))
    out_lows, out_highs = np.full(shape, LAST, np.int64), np.full(shape, MISSING, np.int64)
    filled = np.arange(shape[1]) < counts[:, None]
    out_lows[filled], out_highs[filled] = lows[valid], highs[valid]
    return SpanColumns(out_lows, out_highs, counts)


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
        self.odd |= _out_of_range(attribute, operator, floors)
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
        self.odd |= np.any(_out_of_range(attribute, "=", floors), axis=-1)
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
        # a gap between those that do not hold (types/patterns.py)
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


def _out_of_range(attribute: Attribute, operator: str, floors: Codes) -> Mask | bool:
    """What `is_out_of_range` finds of whole numbers, by the codes."""
    function = "" if attribute.expression is None else attribute.expression.op
    if function not in RANGES:
        return False
    low, high = RANGES[function]
    if operator == "<":
        return np.asarray((floors <= low) | (floors > high + 1))
    if operator == ">":
        return np.asarray((floors >= high) | (floors < low - 1))
    return np.asarray((floors < low) | (floors > high))


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


# Areas of many texts of one shape at once: what normal_form.py does for one text, on columns.
#
# A predicate on a point that stands without a NOT becomes intervals of longitude and latitude and a region of
# its own. Two of them on one point have no region in common, so that their conjunction is empty here and the
# row is doubtful; rows whose circle reaches over the date line or a pole are doubtful too, and so is whatever
# is no place. Doubtful rows are expanded one by one, and make the errors.

Brackets = Callable[[Attribute, Sequence[Literal]], tuple[Codes, Codes]]
_DEGREES = Float("degrees")


def inside_columns(
    attribute: Point, condition: Inside, texts: list[str], brackets: Brackets, doubtful: Mask
) -> dict[int, SpanColumns]:
    """The clause of a predicate for each text; sets `doubtful`. `texts` are the polygons, if it has one."""
    if condition.area == "polygon":
        words, ends = _polygons(texts, doubtful)
    else:
        numbers = decoded_floats(brackets(_DEGREES, condition.literals)[0])
        if condition.area == "box":
            return _bounds(condition, numbers.T, doubtful, places.boxes_hold(numbers.T))
        metres = numbers[:, 0] * places.UNITS[condition.unit]
        ends, plain = places.circle_extents(numbers[:, 1], numbers[:, 2], metres)
        doubtful |= ~plain
        rows = zip(numbers[:, 1].tolist(), numbers[:, 2].tolist(), metres.tolist(), strict=True)
        words = [f"circle {x!r} {y!r} {m!r}" for x, y, m in rows]
    add = attribute.vocabulary.add
    codes = np.array([0 if odd else add(word) for word, odd in zip(words, doubtful, strict=True)], np.int64)
    found = _bounds(condition, ends, doubtful, ~doubtful)
    found[condition.position] = one_span(codes, codes)
    return found


def _bounds(
    condition: Inside, ends: npt.NDArray[np.float64], doubtful: Mask, plain: Mask
) -> dict[int, SpanColumns]:
    """West, south, east and north ends as intervals of the hidden attributes."""
    doubtful |= ~plain
    west, south, east, north = (float_codes(np.where(plain, row, 0.0)) for row in ends)
    return {condition.longitude: one_span(west, east), condition.latitude: one_span(south, north)}


def _polygons(texts: Sequence[str], doubtful: Mask) -> tuple[list[str], npt.NDArray[np.float64]]:
    words, ends = [""] * len(texts), np.zeros((4, len(texts)))
    for row, text in enumerate(texts):
        try:
            word = places.polygon(str(value_of(text)))
            extent = places.extent_of(word)
        except SchemaError:
            doubtful[row] = True
            continue
        # lint.py looks at texts one by one
        doubtful[row] |= extent.longitudes[-1][1] - extent.longitudes[0][0] > 180
        words[row] = word
        (west, east), *more = extent.longitudes
        ends[:, row] = west, extent.south, east, extent.north
        doubtful[row] |= bool(more)
    return words, ends
