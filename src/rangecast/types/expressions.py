"""Expressions over the attributes of one event, and their canonical form.

    Expression
    ├── op      attribute, constant, sum, product, quotient, or the name of a function
    ├── args    the expressions that it is made of
    ├── value   the name of an attribute, the number of a constant, the coefficients of a sum, a pattern
    ├── kind    int, float, instant, duration or text: what it gives
    └── text    how it is written; two expressions that are alike have one text

Numbers are fractions until values are computed, so folding them loses nothing. A sum is kept as its terms,
each with a coefficient, sorted by their texts: `a + 2 * b` and `b + b + a` are one expression, and a
comparison of two sums is one of their difference with a constant (`comparison`). Products are sorted too,
and give their constant factors to the sum around them.

An expression is *missing* where an attribute in it is, but for coalesce; where it divides by zero; and
where its result is no whole number of 64 bits (int, instant, duration) or no finite double (float). Whole
numbers stay exact: a sum with whole coefficients, a product, abs, least and greatest of whole numbers. A
quotient is a double. `derived.py` computes columns of values.

Whoever walks an expression calls itself once for each level of it, so that the levels are limited where it is
made, whatever made them: parentheses, functions, a chain of divisions, or names that stand for expressions.
Numbers are limited because the text of an expression must be read back, and a number of it has 60 digits.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from rangecast.errors import SchemaError
from rangecast.types.names import quoted_name

INT, FLOAT, INSTANT, DURATION, TEXT, POINT = "int", "float", "instant", "duration", "text", "point"
_WHOLE = (INT, INSTANT, DURATION)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

# what a function takes, and what it gives: "same" is the kind of its arguments
FUNCTIONS: dict[str, tuple[tuple[str, ...], int, int, str]] = {
    "abs": ((INT, FLOAT, DURATION), 1, 1, "same"),
    "round": ((INT, FLOAT), 1, 2, "same"),
    "floor": ((INT, FLOAT), 1, 1, "same"),
    "ceil": ((INT, FLOAT), 1, 1, "same"),
    "least": ((INT, FLOAT, INSTANT, DURATION), 2, 16, "same"),
    "greatest": ((INT, FLOAT, INSTANT, DURATION), 2, 16, "same"),
    "coalesce": ((INT, FLOAT, INSTANT, DURATION), 2, 16, "same"),
    "year": ((INSTANT,), 1, 1, INT),
    "month": ((INSTANT,), 1, 1, INT),
    "day": ((INSTANT,), 1, 1, INT),
    "hour": ((INSTANT,), 1, 1, INT),
    "minute": ((INSTANT,), 1, 1, INT),
    "weekday": ((INSTANT,), 1, 1, INT),
    "date": ((INSTANT,), 1, 1, INSTANT),
    "length": ((TEXT,), 1, 1, INT),
    "lower": ((TEXT,), 1, 1, TEXT),
    "upper": ((TEXT,), 1, 1, TEXT),
    "reverse": ((TEXT,), 1, 1, TEXT),
    "longitude": ((POINT,), 1, 1, FLOAT),
    "latitude": ((POINT,), 1, 1, FLOAT),
    # the words of an address (addresses.py)
    "ip_high": ((TEXT,), 1, 1, INT),
    "ip_middle": ((TEXT,), 1, 1, INT),
    "ip_low": ((TEXT,), 1, 1, INT),
}

PATTERNS = ("contains", "like", "matches", "has")
"""Functions of a text and a string, which give 1 or 0: a string within it, a pattern of LIKE, a regular
expression, one of several values."""
ONE = Fraction(1)
MAX_LEVELS = 128
"""How deep an expression may be nested. Reading, writing and computing one takes up to four calls for each
level, and Python allows 1,000."""
MAX_DIGITS = 60
_LARGEST = 10**MAX_DIGITS


class Expression:
    """A node of an expression; see the module head. Made by the functions below, which keep it canonical."""

    __slots__ = ("__dict__", "args", "kind", "levels", "op", "value")

    def __init__(self, op: str, args: tuple[Expression, ...], kind: str, value: Any = None) -> None:
        self.levels: int = 1 + max([arg.levels for arg in args], default=0)
        if self.levels > MAX_LEVELS:
            raise SchemaError(
                f"an expression may be nested {MAX_LEVELS} deep, and each / of a chain nests what stands "
                "before it; this one goes deeper; write a / (b * c) for a / b / c"
            )
        self.op = op
        self.args = args
        self.kind = kind
        self.value = value

    @cached_property
    def text(self) -> str:
        """How it is written."""
        if self.op == "attribute":
            return quoted_name(self.value)
        if self.op == "constant":
            return _number(self.value)
        if self.op == "sum":
            return _sum_text(self)
        if self.op in PATTERNS:
            return f"{self.op}({self.args[0].text}, '{_in_one_line(self.value)}')"
        if self.op == "product":
            return " * ".join(map(_factor_text, self.args))
        if self.op == "quotient":
            top, bottom = self.args
            below = f"({bottom.text})" if bottom.op in ("sum", "product", "quotient") else bottom.text
            return f"{_factor_text(top)} / {below}"
        return f"{self.op}({', '.join(arg.text for arg in self.args)})"

    @cached_property
    def names(self) -> frozenset[str]:
        """The attributes that it reads."""
        if self.op == "attribute":
            return frozenset([self.value])
        return frozenset().union(*(arg.names for arg in self.args))

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self.op, self.args, self.kind, self.value)


class CanonicalComparison(NamedTuple):
    """`expression operator constant`: what a comparison of two expressions comes to."""

    expression: Expression
    operator: str
    constant: Fraction


def attribute(name: str, kind: str) -> Expression:
    """The value of an attribute."""
    return Expression("attribute", (), kind, name)


def constant(value: Fraction, kind: str = "") -> Expression:
    """A number; instants and durations are microseconds."""
    return Expression("constant", (), kind or (INT if value.denominator == 1 else FLOAT), value)


def is_constant(expression: Expression) -> bool:
    """Whether it reads no attribute."""
    return expression.op == "constant"


def added(ours: Expression, theirs: Expression, sign: int = 1) -> Expression:
    """Their sum, or with sign -1 their difference.

    >>> a, b = attribute("a", INT), attribute("b", INT)
    >>> added(added(b, constant(Fraction(3))), scaled(a, Fraction(2))).text
    '2 * a + b + 3'
    """
    _refuse_text("arithmetic", ours, theirs)
    timed = [side.kind in (INSTANT, DURATION) for side in (ours, theirs)]
    if timed[0] is not timed[1]:
        raise SchemaError("a time takes a duration with its unit, such as at + 5 min, got a plain number")
    kind = _sum_kind(ours.kind, theirs.kind, sign)
    terms: dict[str, tuple[Expression, Fraction]] = {}
    total = Fraction(0)
    for side, factor in ((ours, 1), (theirs, sign)):
        parts, more = _terms(side)
        total += factor * more
        for part, coefficient in parts:
            # fractions are slow: of a long sum, most terms are as they were
            own = coefficient if factor == 1 else -coefficient
            known = terms.get(part.text)
            terms[part.text] = (part, own) if known is None else (known[0], known[1] + own)
    return _sum([pair for pair in terms.values() if pair[1]], total, kind)


def scaled(expression: Expression, factor: Fraction) -> Expression:
    """A multiple of an expression."""
    if expression.kind == INSTANT:
        raise SchemaError("an instant cannot be multiplied or divided; the difference of two can")
    parts, total = _terms(expression)
    terms = [(part, coefficient * factor) for part, coefficient in parts if factor]
    return _sum(terms, total * factor, expression.kind)


def multiplied(ours: Expression, theirs: Expression) -> Expression:
    """Their product; constant factors go to the sum around it.

    >>> price, size = attribute("price", FLOAT), attribute("size", INT)
    >>> multiplied(scaled(size, Fraction(2)), price).text
    '2 * price * size'
    """
    _refuse_text("arithmetic", ours, theirs)
    if is_constant(ours):
        ours, theirs = theirs, ours
    if is_constant(theirs):
        _refuse_duration(theirs)
        return scaled(ours, theirs.value)
    _refuse_duration(ours, theirs)
    factors: list[Expression] = []
    factor = Fraction(1)
    for side in (ours, theirs):
        inner, own = _coefficient(side)
        factor *= own
        factors += inner.args if inner.op == "product" else (inner,)
    kind = INT if all(one.kind == INT for one in factors) else FLOAT
    product = Expression("product", tuple(sorted(factors, key=lambda one: one.text)), kind)
    return scaled(product, factor)


def divided(ours: Expression, theirs: Expression) -> Expression:
    """Their quotient."""
    _refuse_text("arithmetic", ours, theirs)
    if is_constant(theirs) and theirs.kind not in (INSTANT, DURATION):
        if not theirs.value:
            raise SchemaError("the expression divides by zero")
        return scaled(ours, 1 / theirs.value)
    both = ours.kind == theirs.kind == DURATION
    if not both:
        _refuse_duration(ours, theirs)
    (top, above), (bottom, below) = _coefficient(ours), _coefficient(theirs)
    if is_constant(ours) and not ours.value:
        top, above = ours, Fraction(1)
    return scaled(Expression("quotient", (top, bottom), FLOAT), above / below)


def called(name: str, args: tuple[Expression, ...]) -> Expression:
    """A function of some expressions; SchemaError for arguments that it does not take."""
    kinds, fewest, most, gives = FUNCTIONS[name]
    if not fewest <= len(args) <= most:
        wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise SchemaError(f"{name} takes {wanted} arguments, got {len(args)}")
    if name == "round" and len(args) == 2:
        digits = args[1]
        if not is_constant(digits) or digits.value.denominator != 1 or not 0 <= digits.value <= 15:
            raise SchemaError(f"round takes digits from 0 to 15, got {digits.text}")
    for arg in args:
        if arg.kind not in kinds:
            shown = " or ".join(kinds)
            raise SchemaError(f"{name} takes {shown}, and {arg.text} is {arg.kind}")
    if all(map(is_constant, args)):
        raise SchemaError(f"{name} of constants alone says nothing about an event")
    found = {arg.kind for arg in args[: 1 if name == "round" else None]}
    if gives == "same" and len(found) > 1 and not found <= {INT, FLOAT}:
        raise SchemaError(f"{name} takes expressions of one kind, got {' and '.join(sorted(found))}")
    kind = gives if gives != "same" else FLOAT if FLOAT in found else found.pop()
    return Expression(name, args, kind)


def fitted(name: str, text: Expression, pattern: str) -> Expression:
    """Whether a text fits a pattern, as 1 or 0; `name` is one of PATTERNS.

    >>> fitted("contains", attribute("title", TEXT), "it's").text
    "contains(title, 'it''s')"
    """
    if text.kind != TEXT:
        raise SchemaError(f"{name} takes text, and {text.text} is {text.kind}")
    return Expression(name, (text,), INT, pattern)


def comparison(ours: Expression, operator: str, theirs: Expression) -> CanonicalComparison:
    """`ours operator theirs` with all constants on the right and a first coefficient of 1, or whole ones.

    >>> a, b = attribute("a", INT), attribute("b", INT)
    >>> found = comparison(a, ">", added(b, constant(Fraction(3))))
    >>> found.expression.text, found.operator, int(found.constant)
    ('a - b', '>', 3)
    """
    if (ours.kind == INSTANT) is not (theirs.kind == INSTANT):
        raise SchemaError(
            f"{ours.text} is {ours.kind} and cannot be compared with {theirs.text}, {theirs.kind}"
        )
    parts, total = _terms(added(ours, theirs, -1))
    if not parts:
        raise SchemaError(
            "the attributes of this comparison cancel out, so that it says nothing about an event"
        )
    coefficients = [coefficient for _, coefficient in parts]
    if all(part.kind in _WHOLE for part, _ in parts):
        scale = Fraction(math.lcm(*(c.denominator for c in coefficients)))
        scale /= math.gcd(*(int(c * scale) for c in coefficients))
    else:
        scale = 1 / abs(coefficients[0])
    if coefficients[0] < 0:
        scale, operator = -scale, _MIRRORED[operator]
    kinds = {part.kind for part, _ in parts}
    kind = FLOAT if FLOAT in kinds else kinds.pop() if len(parts) == 1 else INT
    terms = [(part, coefficient * scale) for part, coefficient in parts]
    return CanonicalComparison(_sum(terms, Fraction(0), kind), operator, -total * scale)


def _sum(terms: list[tuple[Expression, Fraction]], total: Fraction, kind: str) -> Expression:
    for number in (total, *(coefficient for _, coefficient in terms)):
        if not -_LARGEST < number.numerator < _LARGEST or number.denominator >= _LARGEST:
            raise SchemaError(
                f"a number of an expression has at most {MAX_DIGITS} digits, and the constants of this one "
                "make up a longer one"
            )
    if not terms:
        return constant(total, kind)
    if len(terms) == 1 and terms[0][1] == 1 and not total:
        return terms[0][0]
    terms = sorted(terms, key=lambda pair: pair[0].text)
    coefficients = tuple(coefficient for _, coefficient in terms)
    whole = all(c.denominator == 1 for c in (*coefficients, total))
    if kind == INT and (not whole or any(part.kind == FLOAT for part, _ in terms)):
        kind = FLOAT
    return Expression("sum", tuple(part for part, _ in terms), kind, (coefficients, total))


def _terms(expression: Expression) -> tuple[list[tuple[Expression, Fraction]], Fraction]:
    if expression.op == "constant":
        return [], expression.value
    if expression.op == "sum":
        coefficients, total = expression.value
        return list(zip(expression.args, coefficients, strict=True)), total
    return [(expression, Fraction(1))], Fraction(0)


def _coefficient(expression: Expression) -> tuple[Expression, Fraction]:
    """A factor and its constant part."""
    if expression.op == "constant" and expression.value:
        return constant(Fraction(1), expression.kind), expression.value
    parts, total = _terms(expression)
    return (parts[0][0], parts[0][1]) if len(parts) == 1 and not total else (expression, Fraction(1))


def _sum_kind(ours: str, theirs: str, sign: int) -> str:
    if INSTANT not in (ours, theirs):
        return FLOAT if FLOAT in (ours, theirs) else ours
    if ours == theirs:
        if sign < 0:
            return DURATION
        raise SchemaError("two instants cannot be added; their difference is a duration")
    if sign < 0 and theirs == INSTANT:
        raise SchemaError("an instant cannot be taken from a duration")
    return INSTANT


def _refuse_text(what: str, *expressions: Expression) -> None:
    for one in expressions:
        if one.kind in (TEXT, POINT):
            raise SchemaError(f"{what} takes numbers and times, and {one.text} is {one.kind}")


def _refuse_duration(*expressions: Expression) -> None:
    for one in expressions:
        if one.kind in (INSTANT, DURATION):
            raise SchemaError(
                f"{one.text} is {one.kind}: it can be multiplied and divided by plain numbers alone"
            )


def _number(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    digits = next((d for d in range(1, MAX_DIGITS) if (value * 10**d).denominator == 1), 0)
    if rest > 1 or not digits or abs(value) * 10**digits >= _LARGEST:
        return f"{value.numerator}/{value.denominator}"
    shown = str(abs(value.numerator) * 10**digits // value.denominator).rjust(digits + 1, "0")
    return f"{'-' if value < 0 else ''}{shown[:-digits]}.{shown[-digits:]}"


def _in_one_line(pattern: str) -> str:
    """A pattern as a name may hold it: backslashes are doubled, what is not printed is \\U and its number."""
    if pattern.isprintable() and "\\" not in pattern:
        return pattern.replace("'", "''")
    letters = (c if c.isprintable() else f"\\U{ord(c):08x}" for c in pattern.replace("\\", "\\\\"))
    return "".join(letters).replace("'", "''")


def unescaped(text: str) -> str:
    """The pattern that `Expression.text` has between quotes.

    >>> unescaped(fitted("like", attribute("a", TEXT), "it's\\n").text[9:-2])
    "it's\\n"
    """
    single = text.replace("''", "'")
    return re.sub(r"\\(?:U([0-9a-f]{8})|(.))", lambda m: chr(int(m[1], 16)) if m[1] else m[2], single)


def _factor_text(expression: Expression) -> str:
    return f"({expression.text})" if expression.op == "sum" else expression.text


def _sum_text(expression: Expression) -> str:
    coefficients, total = expression.value
    pieces: list[str] = []
    for part, coefficient in zip(expression.args, coefficients, strict=True):
        size = "" if abs(coefficient) == 1 else _number(abs(coefficient)) + " * "
        sign = ("-" if not pieces else " - ") if coefficient < 0 else (" + " if pieces else "")
        pieces.append(f"{sign}{size}{part.text}")
    if total:
        pieces.append(f" {'-' if total < 0 else '+'} {_number(abs(total))}")
    return "".join(pieces)
