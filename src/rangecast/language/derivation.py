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
from rangecast.language.literal_forms import n_parts, string_in, what_is_wrong_with
from rangecast.language.tree import And, Condition, Fits, Literal, LiteralInterval, Not, Or, Span, Within
from rangecast.types import addresses, expressions
from rangecast.types.attributes import Attribute
from rangecast.types.derived import MAX_DERIVED, PART, derived_attribute, spans_of_number
from rangecast.types.expressions import WEEKDAYS, Expression
from rangecast.types.literal_pieces import like_pieces
from rangecast.types.patterns import HELD
from rangecast.types.schema import Schema

# What is not below a string is an AND of as many ORs as it has parts: 24 take half a second to expand, and
# 32 more than is allowed.
_ORDERED_PARTS = 24


class Drafts:
    """The hidden attributes that one text needs, and conditions on them."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.width = schema.width
        self.fresh: list[Attribute] = []
        self._numbers: dict[str, int] = {}

    def keep(self) -> bool:
        """Give the drafts their positions for good; False if other texts were first: read it again."""
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
        number = self._numbers.setdefault(made.name, len(self.fresh))
        if number == len(self.fresh):
            self.fresh.append(made)
        return self.width + number, self.fresh[number]

    def compared(self, ours: Expression, operator: str, theirs: Expression, span: Span) -> Condition:
        """`ours operator theirs`."""
        found = expressions.comparison(ours, operator, theirs)
        return self.within(found.expression, found.operator, found.constant, span)

    def within(self, expression: Expression, operator: str, constant: Fraction, span: Span) -> Condition:
        """`expression operator constant`."""
        position, attribute = self.place(expression)
        return Within(attribute.name, position, spans_of_number(attribute, operator, constant), span)

    def compared_text(self, expression: Expression, operator: str, literal: Literal, span: Span) -> Condition:
        """`expression operator 'literal'` for an expression that gives text."""
        ordered = operator not in ("=", "!=")
        whole, rest = _bounded_parts(literal, _ORDERED_PARTS if ordered else MAX_DERIVED)
        equal = [self._coded(expression, literal, "same", k, span) for k in range(whole + 1)]
        if not ordered:
            both = _all(equal, span)
            return both if operator == "=" else Not(both, span)
        if operator in (">", ">="):
            # the opposite of what a string below it is; a missing one is neither
            return Not(self.compared_text(expression, "<" if operator == ">=" else "<=", literal, span), span)
        ways = [
            _all([*equal[:k], self._coded(expression, literal, "below", k, span)], span)
            for k in range(whole + rest)
        ]
        if operator == "<=":
            ways.append(_all(equal, span))
        if not ways:  # nothing is below the empty string
            position, attribute = self.place(expression)
            return Within(attribute.name, position, (), span)
        return ways[0] if len(ways) == 1 else Or(tuple(ways), span)

    def begins(self, expression: Expression, prefix: Literal, span: Span) -> Condition:
        """Whether an expression that gives text begins with a string."""
        whole, rest = _bounded_parts(prefix)
        parts = [self._coded(expression, prefix, "same", k, span) for k in range(whole)]
        if rest or not parts:
            parts.append(self._coded(expression, prefix, "begins", whole, span))
        return _all(parts, span)

    def ends(self, expression: Expression, suffix: Literal, span: Span) -> Condition:
        """Whether an expression that gives text ends with a string: backwards, it begins with it."""
        return self.begins(expressions.called("reverse", (expression,)), suffix.changed("backwards"), span)

    def matches(self, expression: Expression, pattern: Literal, span: Span) -> Condition:
        """Whether a regular expression is found in an expression that gives text."""
        wrong = what_is_wrong_with(string_in(pattern.text))
        if wrong:
            raise SchemaError(wrong)
        return self.fits("matches", expression, pattern, span)

    def fits(self, name: str, expression: Expression, literal: Literal, span: Span) -> Condition:
        """Whether an expression that gives text fulfils a pattern (types/traits.py)."""
        if self.schema.traits.single_columns:
            string = string_in(literal.text)
            if name == "contains" and not string:
                return self.begins(expression, literal, span)
            position, attribute = self.place(expressions.fitted(name, expression, string))
            return Within(attribute.name, position, ((1, 1),), span)
        (base,) = expression.names
        return Fits(name, expression, self.schema.position(base), self._bundles(), literal, span)

    def _bundles(self) -> int:
        """The position of the first attribute of trait bundles."""
        known = self.schema.hidden_position(HELD)
        if known is not None and known < self.width:
            return known
        number = self._numbers.setdefault(HELD, len(self.fresh))
        if number == len(self.fresh):
            self.fresh += self.schema.traits.attributes()
        return self.width + number

    def like(self, expression: Expression, pattern: Literal, span: Span) -> Condition:
        """Whether an expression that gives text fits a pattern; one with a single % is one of intervals."""
        pieces = like_pieces(string_in(pattern.text))
        wild = "".join(mark for mark, _ in pieces)
        if wild == "%%" and len(pieces) == 3 and pieces[1][1]:
            return self.fits("contains", expression, pattern.changed("like within"), span)
        if wild not in ("", "%"):
            return self.fits("like", expression, pattern, span)
        first, last = pattern.changed("like first"), pattern.changed("like last")
        if not wild:
            return self.compared_text(expression, "=", first, span)
        before, after = (string_in(one.text) for one in (first, last))
        parts = [self.begins(expression, first, span)] if before or not after else []
        if after:
            parts.append(self.ends(expression, last, span))
        if before and after:  # one after the other, without an overlap
            length = expressions.called("length", (expression,))
            parts.append(self._coded(length, pattern, "longer", 0, span))
        return _all(parts, span)

    def in_network(self, expression: Expression, network: Literal, span: Span) -> Condition:
        """Whether an expression that gives text is an address of a network."""
        named = addresses.network_words(string_in(network.text))
        words = [expressions.called(word, (expression,)) for word in addresses.WORDS[: len(named)]]
        return _all([self._coded(word, network, "network", k, span) for k, word in enumerate(words)], span)

    def _coded(self, of: Expression, literal: Literal, form: str, part: int, span: Span) -> Condition:
        position, attribute = self.place(of, part)
        return LiteralInterval(attribute.name, position, literal, form, part, span)


def _bounded_parts(literal: Literal, most: int = MAX_DERIVED) -> tuple[int, bool]:
    """What `n_parts` says of a string for whose parts there may be attributes enough, and time."""
    whole, rest = n_parts(literal.text)
    if whole + rest > most:
        what = (
            "that is compared by its order" if most < MAX_DERIVED else "that an expression is compared with"
        )
        size = len(string_in(literal.text).encode())
        raise SchemaError(f"a string {what} has at most {PART * most:,} bytes, this one {size:,}")
    return whole, rest


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
