"""Predicates on expressions, as conditions on hidden attributes.

A comparison of two expressions is one of an expression with a constant (types/expressions.py), and so an
interval of the codes of a hidden attribute (types/derived.py). One of text is a condition on as many hidden
attributes as the string has parts of eight bytes: `name < 'abcdefghij'` is `p0 < 'abcdefgh' OR p0 =
'abcdefgh' AND p1 < 'ij'`.

What a text needs that no text before it did is a draft until the whole text was read: a text that fails
leaves nothing behind.
"""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import SchemaError
from rangecast.language.tree import (
    And,
    Condition,
    Fits,
    Literal,
    Not,
    Or,
    Span,
    Within,
    quoted_string,
    value_of,
)
from rangecast.types import addresses, expressions
from rangecast.types.attributes import Attribute, Interval
from rangecast.types.derived import PART, derived_attribute, spans_of_number, text_code, text_range
from rangecast.types.expressions import WEEKDAYS, Expression
from rangecast.types.literal_pieces import like_pieces
from rangecast.types.schema import Schema
from rangecast.types.traits import HELD

LONGEST_PATTERN = 1_000


class Drafts:
    """The hidden attributes that one text needs, and conditions on them."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.width = schema.width
        self.fresh: list[Attribute] = []

    def keep(self) -> bool:
        """Give the drafts their positions for good; False if other texts were first: read it anew."""
        return self.schema.take_hidden(self.width, self.fresh)

    def place(self, expression: Expression, part: int = 0) -> tuple[int, Attribute]:
        """The attribute of an expression and its position: a declared one, a hidden one or a draft."""
        if expression.op == "attribute" and expression.kind != "text":
            position = self.schema.position(expression.value)
            return position, self.schema.attributes[position]
        made = derived_attribute(expression, part)
        known = self.schema.hidden_position(made.name)
        if known is not None and known < self.width:
            return known, self.schema.attribute(known)
        for k, draft in enumerate(self.fresh):
            if draft.name == made.name:
                return self.width + k, draft
        self.fresh.append(made)
        return self.width + len(self.fresh) - 1, made

    def compared(self, ours: Expression, operator: str, theirs: Expression, span: Span) -> Condition:
        """`ours operator theirs`."""
        found = expressions.comparison(ours, operator, theirs)
        return self.within(found.expression, found.operator, found.constant, span)

    def within(self, expression: Expression, operator: str, constant: Fraction, span: Span) -> Condition:
        """`expression operator constant`."""
        position, attribute = self.place(expression)
        return Within(attribute.name, position, spans_of_number(attribute, operator, constant), span)

    def compared_text(self, expression: Expression, operator: str, value: str, span: Span) -> Condition:
        """`expression operator 'value'` for an expression that gives text."""
        raw = value.encode()
        equal = [
            self._part(expression, k, _same(text_code(raw, k)), span) for k in range(len(raw) // PART + 1)
        ]
        if operator in ("=", "!="):
            whole = _all(equal, span)
            return whole if operator == "=" else Not(whole, span)
        if operator in (">", ">="):
            # the opposite of what a string below it is; a missing one is neither
            return Not(self.compared_text(expression, "<" if operator == ">=" else "<=", value, span), span)
        ways: list[Condition] = []
        for k in range(len(equal)):
            code = text_code(raw, k)
            low = text_range(b"")[0]
            if code > low:
                ways.append(_all([*equal[:k], self._part(expression, k, (low, code - 1), span)], span))
        if operator == "<=":
            ways.append(_all(equal, span))
        if not ways:  # nothing is below the empty string
            position, attribute = self.place(expression)
            return Within(attribute.name, position, (), span)
        return ways[0] if len(ways) == 1 else Or(tuple(ways), span)

    def begins(self, expression: Expression, prefix: str, span: Span) -> Condition:
        """Whether an expression that gives text begins with a string."""
        raw = prefix.encode()
        parts = [self._part(expression, k, _same(text_code(raw, k)), span) for k in range(len(raw) // PART)]
        rest = raw[len(parts) * PART :]
        if rest or not parts:
            parts.append(self._part(expression, len(parts), text_range(rest), span))
        return _all(parts, span)

    def ends(self, expression: Expression, suffix: str, span: Span) -> Condition:
        """Whether an expression that gives text ends with a string: backwards, it begins with it."""
        return self.begins(expressions.called("reverse", (expression,)), suffix[::-1], span)

    def contains(self, expression: Expression, within: str, span: Span) -> Condition:
        """Whether an expression that gives text has a string within it."""
        return self.fits("contains", expression, Literal(quoted_string(within)), span)

    def matches(self, expression: Expression, pattern: str, span: Span) -> Condition:
        """Whether a regular expression is found in an expression that gives text."""
        if len(pattern) > LONGEST_PATTERN:
            raise SchemaError(
                f"a regular expression has at most {LONGEST_PATTERN:,} characters, this one {len(pattern):,}"
            )
        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise SchemaError(
                f"{pattern!r} is no regular expression of RE2 (no look-around, no back references): {reason}"
            ) from None
        return self.fits("matches", expression, Literal(quoted_string(pattern)), span)

    def fits(self, name: str, expression: Expression, literal: Literal, span: Span) -> Condition:
        """Whether an expression that gives text fulfils a pattern (types/traits.py)."""
        if self.schema.traits.single_columns:
            string = str(value_of(literal.text))
            if name == "contains" and not string:
                return self.begins(expression, "", span)
            return self._part(expressions.fitted(name, expression, string), 0, _same(1), span)
        (base,) = expression.names
        return Fits(name, expression, self.schema.position(base), self._bundles(), literal, span)

    def _bundles(self) -> int:
        """The position of the first attribute of trait bundles."""
        known = self.schema.hidden_position(HELD)
        if known is not None and known < self.width:
            return known
        for k, draft in enumerate(self.fresh):
            if draft.name == HELD:
                return self.width + k
        self.fresh += self.schema.traits.attributes()
        return self.width + len(self.fresh) - 3

    def like(self, expression: Expression, pattern: str, span: Span) -> Condition:
        """Whether an expression that gives text fits a pattern; one with a single % is one of intervals."""
        pieces = like_pieces(pattern)
        wild = "".join(mark for mark, _ in pieces)
        if wild == "%%" and len(pieces) == 3 and pieces[1][1]:
            return self.contains(expression, pieces[1][1], span)
        if wild not in ("", "%"):
            return self.fits("like", expression, Literal(quoted_string(pattern)), span)
        if not wild:
            return self.compared_text(expression, "=", pieces[0][1] if pieces else "", span)
        at = pieces.index(("%", ""))
        first, last = ("".join(string for _, string in part) for part in (pieces[:at], pieces[at + 1 :]))
        parts = [self.begins(expression, first, span)] if first or not last else []
        if last:
            parts.append(self.ends(expression, last, span))
        if first and last:  # one after the other, without an overlap
            length = expressions.called("length", (expression,))
            parts.append(self.within(length, ">=", Fraction(len(first) + len(last)), span))
        return _all(parts, span)

    def in_network(self, expression: Expression, network: str, span: Span) -> Condition:
        """Whether an expression that gives text is an address of a network."""
        words = zip(addresses.WORDS, addresses.network_words(network), strict=False)
        return _all(
            [self._part(expressions.called(word, (expression,)), 0, ends, span) for word, ends in words], span
        )

    def _part(self, expression: Expression, part: int, interval: Interval, span: Span) -> Condition:
        position, attribute = self.place(expression, part)
        return Within(attribute.name, position, (interval,), span)


def weekday(word: str) -> int:
    """The number of a day of the week, Monday being 1."""
    short = word.strip().lower()[:3]
    if short not in WEEKDAYS or not any(
        day.startswith(word.strip().lower())
        for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    ):
        raise SchemaError(f"a day of the week is one of {', '.join(WEEKDAYS)} or 1 to 7, got {word!r}")
    return WEEKDAYS.index(short) + 1


def _all(parts: list[Condition], span: Span) -> Condition:
    return parts[0] if len(parts) == 1 else And(tuple(parts), span)


def _same(code: int) -> Interval:
    return code, code
