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

from rangecast.errors import SchemaError
from rangecast.language.tree import And, Condition, Not, Or, Span, Within
from rangecast.types import addresses, expressions
from rangecast.types.attributes import Attribute, Interval
from rangecast.types.derived import PART, derived_attribute, kinds_of, spans_of_number, text_code, text_range
from rangecast.types.expressions import WEEKDAYS, Expression
from rangecast.types.schema import Schema


class Drafts:
    """The hidden attributes that one text needs, and conditions on them."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.width = schema.width
        self.fresh: list[Attribute] = []
        self._kinds: dict[str, str] | None = None

    @property
    def kinds(self) -> dict[str, str]:
        """What kind of expression each attribute is."""
        if self._kinds is None:
            self._kinds = kinds_of(self.schema)
        return self._kinds

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

    def like(self, expression: Expression, pattern: str, span: Span) -> Condition:
        """Whether an expression that gives text fits a pattern with at most one %."""
        if "_" in pattern or "\\" in pattern or pattern.count("%") > 1:
            raise SchemaError(
                f"LIKE takes a pattern with one % and no _, such as 'AB%', '%YZ' or 'AB%YZ', got {pattern!r}"
            )
        first, anything, last = pattern.partition("%")
        if not anything:
            return self.compared_text(expression, "=", pattern, span)
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
