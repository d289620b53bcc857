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

An expression is *missing* where an attribute in it is, but for coalesce, least and greatest, which take those
that are there; where it divides by zero; and where its result is no whole number of 64 bits (int, instant,
duration) or no finite double (float). Whole numbers stay exact: a sum with whole coefficients, a product,
abs, least and greatest of whole numbers. A quotient is a double. `derived.py` computes columns of values.

Whoever walks an expression calls itself once for each level of it, so that the levels are limited where it is
made, whatever made them: parentheses, functions, a chain of divisions, or names that stand for expressions.
Numbers are limited because the text of an expression must be read back, and a number of it has 60 digits.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from rangecast.errors import SchemaError
from rangecast.types.addresses import WORDS
from rangecast.types.instants import microseconds_of

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

SYNONYMS = {
    "ifnull": "coalesce", "nvl": "coalesce", "ceiling": "ceil", "len": "length", "char_length": "length",
    "character_length": "length", "lcase": "lower", "ucase": "upper", "dayofmonth": "day",
}  # fmt: skip
"""What other languages call a function."""
_FIELDS = {"isodow": "weekday"} | {name: name for name in ("year", "month", "day", "hour", "minute")}
_LIKE_SQL = ("extract", "date_trunc")

# what to write instead of functions of other languages; `language/parser.py` reads left, right and substring
# beside = and IN
_INSTEAD = {
    "write name CONTAINS 'x'": "contains instr strpos locate charindex position",
    "write name STARTS WITH 'x'": "startswith starts_with prefix",
    "write name ENDS WITH 'x'": "endswith ends_with suffix",
    "write name MATCHES 'regular expression'": "regexp_like regexp_matches regexp_match rlike regex",
    "write price IS MISSING": "isnull is_null isnan isna",
    "write price IS PRESENT": "isnotnull notnull",
    "write at - since > 5 min": "datediff date_diff timestampdiff timestamp_diff age",
    "write at + 5 min": "dateadd date_add date_sub timestampadd adddate",
    "an instant is written 2026-01-31T09:30": "to_date to_timestamp str_to_date strptime from_unixtime",
    "compare parts of it: year(at), month(at), day(at)": "strftime date_format to_char format",
    "write weekday(at), which is 1 on Mondays and 7 on Sundays": "dayofweek dow isodow day_of_week dayname",
    "a power is a product: price * price": "pow power square",
    "compare the square: a < 9 for sqrt(a) < 3": "sqrt",
    "let the event have the result as an attribute": "mod log ln log10 exp sign sin cos tan concat replace"
    " trim ltrim rtrim split_part md5 second week quarter dayofyear nullif",
    "write spot WITHIN 500 m OF (13.4, 52.5)": "st_distance st_dwithin haversine distance",
    "write spot IN POLYGON 'POLYGON((...))'": "st_within st_contains st_intersects",
    "write left(name, 2) = 'AB', or name LIKE 'AB%'": "left right substr substring mid",
    "a list of strings is asked with tags HAS ANY ('x', 'y')": "array_overlap arrays_overlap overlaps any",
}
_TRANSLATED = {name: instead for instead, names in _INSTEAD.items() for name in names.split()}

RANGES: dict[str, tuple[int, float]] = {
    "month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "weekday": (1, 7),
    "length": (0, math.inf),
}  # fmt: skip
"""The smallest and the largest value that a function gives."""

PATTERNS = ("contains", "like", "matches", "has")
"""Functions of a text and a string, which give 1 or 0: a string within it, a pattern of LIKE, a regular
expression, one of several values."""
ONE = Fraction(1)
MAX_LEVELS = 128
"""How deep an expression may be nested. Reading, writing and computing one takes up to four calls for each
level, and Python allows 1,000."""
MAX_DIGITS = 60
_LARGEST = 10**MAX_DIGITS
_EXACT = 1 << 53  # as far as doubles have all whole numbers


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

    @cached_property
    def numbers(self) -> tuple[tuple[Any, ...], Any]:
        """Of a sum, the coefficients of its terms and what is added, as numbers of its kind."""
        coefficients, total = self.value
        kind = float if self.kind == FLOAT else int
        return tuple(map(kind, coefficients)), kind(total)

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
    """`ours operator theirs` with all constants on the right and whole coefficients or a first one of 1.

    Doubles keep whole coefficients where both sides have attributes: `a >= b / 10` is `10 * a - b >= 0`,
    which holds for 7.1 and 71, as 7.1 - 0.1 * 71 >= 0 does not.

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
    scale = Fraction(math.lcm(*(c.denominator for c in coefficients)))
    scale /= math.gcd(*(int(c * scale) for c in coefficients))
    if not all(part.kind in _WHOLE for part, _ in parts):
        both = bool(_terms(ours)[0]) and bool(_terms(theirs)[0])
        if not both or max(abs(c * scale) for c in coefficients) > _EXACT:
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


# Names of attributes as conditions and expressions write them.

_JOINING = {"AND", "OR", "NOT", "BETWEEN", "IN", "IS"}
KEYWORDS = frozenset(_JOINING | {"MISSING", "PRESENT", "NULL", "TRUE", "FALSE", "INF", "INFINITY"})
PLAIN_NAME = r"[^\W\d][\w.$-]*"

_PLAIN = re.compile(PLAIN_NAME + r"\Z")


def quoted_name(name: str) -> str:
    """An attribute's name as a condition must write it.

    >>> quoted_name("price"), quoted_name("order id"), quoted_name("in")
    ('price', '"order id"', '"in"')
    """
    if _PLAIN.match(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def unquoted(name: str) -> str:
    """A name without its quotes, which are " or `.

    >>> unquoted('"order id"'), unquoted("`in`")
    ('order id', 'in')
    """
    return name[1:-1].replace('""', '"') if name[0] == '"' else name[1:-1]


# From texts to expressions: operands of conditions, and the expressions that a schema declares.
#
#     operand   = term { ( "+" | "-" ) term }
#     term      = factor { ( "*" | "/" ) factor }
#     factor    = { "-" | "+" } ( number [ unit ] | instant | DATE string | attribute
#               | function "(" operand { "," operand } ")" | "(" operand ")"
#               | EXTRACT "(" part FROM operand ")" | date_trunc "(" 'day' "," operand ")"
#               | pattern_function "(" operand "," string ")" )    in the names of hidden attributes alone
#     unit      = us | ms | s | min | h | d | w, and their names
#
# It reads tokens from a place on and says where it stopped, so that conditions, which have tokens of their
# own, share it.

_MICROSECONDS = {
    "us": 1, "microsecond": 1, "ms": 1_000, "millisecond": 1_000, "s": 10**6, "sec": 10**6, "second": 10**6,
    "min": 60 * 10**6, "minute": 60 * 10**6, "h": 3_600 * 10**6, "hr": 3_600 * 10**6, "hour": 3_600 * 10**6,
    "d": 86_400 * 10**6, "day": 86_400 * 10**6, "w": 604_800 * 10**6, "week": 604_800 * 10**6,
}  # fmt: skip
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_AMOUNT = re.compile(
    rf"([+\u2212\u2013-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?[0-9]{{1,3}})?)([a-zA-Z]*)\Z"
)
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
INSTANT_WORDS = ("DATE", "TIMESTAMP", "DATETIME")
"""What SQL writes before an instant in quotes."""
_PIECE = re.compile(
    rf"\s+|(?P<value>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:T[0-9:.]+Z?)?|(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})"
    rf"(?:[eE][+-]?[0-9]{{1,3}})?)|(?P<name>{PLAIN_NAME})"
    r'|(?P<quoted>"[^"]*(?:""[^"]*)*")'
    r"|(?P<string>'[^']*(?:''[^']*)*')|(?P<mark>[()+*/,-])|(?P<bad>.)",
    re.DOTALL,
)
MAX_DEPTH = 32
MAX_STEPS = 1_000_000
"""How many terms and factors the expressions of one text may make the reader go through: a sum is made of the
operands of its chain one by one, and each time all its terms are gone through."""


class TokenLike(Protocol):
    """What is read of a token: its kind, its text, and where it begins."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...


class _Lexeme(NamedTuple):
    kind: str
    text: str
    start: int


def is_function(name: str) -> bool:
    """Whether there is a function of this name, or of one that other languages have for it."""
    name = name.lower()
    return name in FUNCTIONS or name in SYNONYMS or name in _LIKE_SQL


def unknown_function(name: str) -> str:
    """What to say of a function that does not exist, with what stands for it here.

    >>> unknown_function("sqrt")
    'unknown function sqrt; compare the square: a < 9 for sqrt(a) < 3'
    """
    instead = _TRANSLATED.get(name.lower())
    if instead is None:
        instead = "there are " + ", ".join(sorted(set(FUNCTIONS) - set(WORDS)))
    return f"unknown function {name}; {instead}"


class ExpressionError(SchemaError):
    """An expression that cannot be read, and the token where."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, int]]:
        return type(self), (str(self), self.at)


def parse_expression(text: str, kinds: Mapping[str, str | Expression]) -> Expression:
    """The expression of a text; `kinds` has the kind of each attribute by name, or an expression for it.

    >>> parse_expression("quantity * price", {"price": "float", "quantity": "int"}).text
    'price * quantity'
    """
    tokens = [
        _Lexeme(match.lastgroup, match.group(), match.start())
        for match in _PIECE.finditer(text)
        if match.lastgroup is not None
    ]
    tokens.append(_Lexeme("end", "", len(text)))
    try:
        found, at = ExpressionReader(tokens, kinds).operand(0)
        if tokens[at].kind != "end":
            raise ExpressionError(f"expected the end of the expression, got {tokens[at].text}", at)
    except ExpressionError as error:
        raise SchemaError(f"expression {text!r}, column {tokens[error.at].start + 1}: {error}") from None
    return found


class ExpressionReader:
    """Reads operands from tokens; each method takes a place and gives what it read and the place after it."""

    def __init__(self, tokens: Sequence[TokenLike], kinds: Mapping[str, str | Expression]) -> None:
        self._tokens = tokens
        self._kinds = kinds
        self._depth = 0
        self._steps = 0

    def operand(self, at: int, factor: Expression | None = None) -> tuple[Expression, int]:
        """A sum; with `factor`, that was read already and the place is the one behind it."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"expressions may be nested {MAX_DEPTH} deep, this one goes deeper", at)
        found, at = self._term(at, factor)
        while True:
            token = self._tokens[at]
            signed = token.kind == "value" and token.text[0] in "+-\u2212\u2013"
            if token.text not in ("+", "-") and not signed:
                self._depth -= 1
                return found, at
            place = at
            # `a -5` is read as a difference: a value with a sign cannot follow an operand
            other, at = self._term(at if signed else at + 1)
            sign = 1 if signed or token.text == "+" else -1
            found = self._made(place, added, found, other, sign)

    def _term(self, at: int, factor: Expression | None = None) -> tuple[Expression, int]:
        found, at = self._factor(at) if factor is None else (factor, at)
        while (mark := self._tokens[at].text) in ("*", "/"):
            place = at
            other, at = self._factor(at + 1)
            make = multiplied if mark == "*" else divided
            found = self._made(place, make, found, other)
        return found, at

    def _factor(self, at: int) -> tuple[Expression, int]:
        token = self._tokens[at]
        if token.text in ("+", "-"):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise ExpressionError(f"expressions may be nested {MAX_DEPTH} deep, this one goes deeper", at)
            found, after = self._factor(at + 1)
            self._depth -= 1
            return (self._made(at, scaled, found, Fraction(-1)) if token.text == "-" else found), after
        if token.text == "(":
            found, after = self.operand(at + 1)
            if self._tokens[after].text != ")":
                raise ExpressionError(f"expected ) or an operator, got {_shown(self._tokens[after])}", after)
            return found, after + 1
        if token.kind in ("name", "quoted"):
            return self._named(at)
        if token.kind in ("value", "bad"):
            return self._constant(at)
        raise ExpressionError(f"expected an attribute or a number, got {_shown(token)}", at)

    def _named(self, at: int) -> tuple[Expression, int]:
        token = self._tokens[at]
        if token.kind == "name" and self._tokens[at + 1].text == "(":
            return self._call(at)
        if token.kind == "name" and token.text.upper() in INSTANT_WORDS:
            written = self._tokens[at + 1]
            if written.text[:1] == "'":
                return self._instant(written.text[1:-1], at + 1)
        name = unquoted(token.text) if token.kind == "quoted" else token.text
        kind = self._kinds.get(name)
        if kind is None:
            alike = [known for known in self._kinds if known.casefold() == name.casefold()]
            if len(alike) == 1:
                name, kind = alike[0], self._kinds[alike[0]]
        if kind is None:
            raise ExpressionError(f"unknown attribute {name!r}", at)
        if isinstance(kind, Expression):
            return kind, at + 1
        if kind not in ("int", "float", INSTANT, "text", POINT):
            raise ExpressionError(f"{name!r} is a {kind}, which no expression takes", at)
        return attribute(name, kind), at + 1

    def _call(self, at: int) -> tuple[Expression, int]:
        name = self._tokens[at].text.lower()
        if name in PATTERNS and any(token.kind == "string" for token in self._tokens[at:]):
            return self._fitted(name, at)
        if not is_function(name):
            raise ExpressionError(unknown_function(name), at)
        if name in _LIKE_SQL:
            return self._extracted(name, at)
        name = SYNONYMS.get(name, name)
        args: list[Expression] = []
        after = at + 1
        while not args or self._tokens[after].text == ",":
            arg, after = self.operand(after + 1)
            args.append(arg)
        if self._tokens[after].text != ")":
            raise ExpressionError(f"expected ) after the arguments of {name}", after)
        return self._made(at, called, name, tuple(args)), after + 1

    def _extracted(self, name: str, at: int) -> tuple[Expression, int]:
        """EXTRACT(hour FROM at), and date_trunc('day', at)."""
        tokens = self._tokens
        written, between = tokens[at + 2], tokens[min(at + 3, len(tokens) - 1)]
        if name == "extract":
            field = _FIELDS.get(written.text.lower())
            if field is None or between.text.upper() != "FROM":
                known = ", ".join(sorted(_FIELDS))
                raise ExpressionError(f"EXTRACT takes a part and FROM: EXTRACT(hour FROM at), of {known}", at)
        else:
            field = "date"
            if written.text.lower() != "'day'" or between.text != ",":
                message = "date_trunc takes 'day' and an instant; for others compare year(at) and month(at)"
                raise ExpressionError(message, at)
        of, after = self.operand(at + 4)
        if tokens[after].text != ")":
            raise ExpressionError(f"expected ) after the arguments of {name}", after)
        return self._made(at, called, field, (of,)), after + 1

    def _fitted(self, name: str, at: int) -> tuple[Expression, int]:
        if name == "has":  # of an attribute with several values, which nothing else takes
            named = self._tokens[at + 2]
            whose = unquoted(named.text) if named.kind == "quoted" else named.text
            text, after = attribute(whose, "text"), at + 3
        else:
            text, after = self.operand(at + 2)
        comma, pattern, closing = (self._tokens[min(after + k, len(self._tokens) - 1)] for k in range(3))
        if comma.text != "," or pattern.kind != "string" or closing.text != ")":
            raise ExpressionError(f"{name} takes a text and a string in single quotes", after)
        string = unescaped(pattern.text[1:-1])
        return self._made(at, fitted, name, text, string), after + 3

    def _made(self, at: int, make: Any, *args: Any) -> Expression:
        try:
            found: Expression = make(*args)
        except SchemaError as error:
            raise ExpressionError(str(error), at) from None
        self.spend(at, 1 + len(found.args))
        return found

    def spend(self, at: int, steps: int) -> None:
        """Count steps; ExpressionError where the text has taken too many."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise ExpressionError(
                "the expressions of this text have too many terms and factors: taking them together would be "
                f"more than {MAX_STEPS:,} steps; cut it into several, or let the event have the result",
                at,
            )

    def _instant(self, text: str, at: int) -> tuple[Expression, int]:
        try:
            instant = dt.datetime.fromisoformat(text.upper())
        except ValueError as error:
            raise ExpressionError(f"{text} is not a timestamp: {error}", at) from None
        return constant(Fraction(microseconds_of(instant, "value")), INSTANT), at + 1

    def _constant(self, at: int) -> tuple[Expression, int]:
        token = self._tokens[at]
        if token.kind == "value" and _INSTANT.match(token.text):
            return self._instant(token.text, at)
        amount = _AMOUNT.match(token.text)
        if amount is None:
            raise ExpressionError(f"expected an attribute or a number, got {_shown(token)}", at)
        try:
            exact = Decimal(amount[1].replace("\u2212", "-").replace("\u2013", "-"))
        except InvalidOperation:
            raise ExpressionError(f"expected a number, got {token.text}", at) from None
        if abs(exact.adjusted()) >= MAX_DIGITS or len(exact.as_tuple().digits) > MAX_DIGITS:
            raise ExpressionError(f"a number of an expression has at most {MAX_DIGITS} digits", at)
        number = Fraction(exact)
        unit, after = amount[2], at + 1
        if unit in ("k", "K"):
            return constant(number * 1_000), after
        follows = self._tokens[after]
        if not unit and follows.kind == "name" and _unit(follows.text) and follows.text not in self._kinds:
            unit, after = follows.text, after + 1
        if not unit:
            return constant(number), after
        if _unit(unit) is None:
            raise ExpressionError(f"expected a number, got {token.text}", at)
        return constant(number * (_unit(unit) or 0), DURATION), after


def is_duration(text: str) -> bool:
    """Whether a number is written together with a unit of time.

    >>> is_duration("5min"), is_duration("5"), is_duration("5px")
    (True, False, False)
    """
    amount = _AMOUNT.match(text)
    return amount is not None and _unit(amount[2]) is not None


def _unit(word: str) -> int | None:
    """The microseconds of a unit of time."""
    word = word.lower()
    return _MICROSECONDS.get(word) or _MICROSECONDS.get(word.removesuffix("s") if len(word) > 2 else word)


def _shown(token: TokenLike) -> str:
    return "the end" if token.kind == "end" else token.text[:40]
