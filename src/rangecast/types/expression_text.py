"""From texts to expressions: operands of conditions, and the expressions that a schema declares.

    operand   = term { ( "+" | "-" ) term }
    term      = factor { ( "*" | "/" ) factor }
    factor    = { "-" | "+" } ( number [ unit ] | instant | attribute
              | function "(" operand { "," operand } ")" | "(" operand ")"
              | pattern_function "(" operand "," string ")" )    in the names of hidden attributes alone
    unit      = us | ms | s | min | h | d | w, and their names

It reads tokens from a place on and says where it stopped, so that conditions, which have tokens of their own,
share it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from rangecast.errors import SchemaError
from rangecast.types import expressions
from rangecast.types.addresses import WORDS
from rangecast.types.expressions import (
    DURATION,
    FUNCTIONS,
    INSTANT,
    MAX_DIGITS,
    PATTERNS,
    POINT,
    Expression,
)
from rangecast.types.instants import microseconds_of
from rangecast.types.names import PLAIN_NAME, unquoted

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

    def operand(self, at: int) -> tuple[Expression, int]:
        """A sum."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"expressions may be nested {MAX_DEPTH} deep, this one goes deeper", at)
        found, at = self._term(at)
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
            found = self._made(place, expressions.added, found, other, sign)

    def _term(self, at: int) -> tuple[Expression, int]:
        found, at = self._factor(at)
        while (mark := self._tokens[at].text) in ("*", "/"):
            place = at
            other, at = self._factor(at + 1)
            make = expressions.multiplied if mark == "*" else expressions.divided
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
            return (
                self._made(at, expressions.scaled, found, Fraction(-1)) if token.text == "-" else found
            ), after
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
        return expressions.attribute(name, kind), at + 1

    def _call(self, at: int) -> tuple[Expression, int]:
        name = self._tokens[at].text.lower()
        if name in PATTERNS and any(token.kind == "string" for token in self._tokens[at:]):
            return self._fitted(name, at)
        if name not in FUNCTIONS:
            known = ", ".join(sorted(set(FUNCTIONS) - set(WORDS)))
            raise ExpressionError(f"unknown function {name}; there are {known}", at)
        args: list[Expression] = []
        after = at + 1
        while not args or self._tokens[after].text == ",":
            arg, after = self.operand(after + 1)
            args.append(arg)
        if self._tokens[after].text != ")":
            raise ExpressionError(f"expected ) after the arguments of {name}", after)
        return self._made(at, expressions.called, name, tuple(args)), after + 1

    def _fitted(self, name: str, at: int) -> tuple[Expression, int]:
        if name == "has":  # of an attribute with several values, which nothing else takes
            named = self._tokens[at + 2]
            whose = unquoted(named.text) if named.kind == "quoted" else named.text
            text, after = expressions.attribute(whose, "text"), at + 3
        else:
            text, after = self.operand(at + 2)
        comma, pattern, closing = (self._tokens[min(after + k, len(self._tokens) - 1)] for k in range(3))
        if comma.text != "," or pattern.kind != "string" or closing.text != ")":
            raise ExpressionError(f"{name} takes a text and a string in single quotes", after)
        string = expressions.unescaped(pattern.text[1:-1])
        return self._made(at, expressions.fitted, name, text, string), after + 3

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

    def _constant(self, at: int) -> tuple[Expression, int]:
        token = self._tokens[at]
        if token.kind == "value" and _INSTANT.match(token.text):
            try:
                instant = dt.datetime.fromisoformat(token.text.upper())
            except ValueError as error:
                raise ExpressionError(f"{token.text} is not a timestamp: {error}", at) from None
            return expressions.constant(Fraction(microseconds_of(instant, "value")), INSTANT), at + 1
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
            return expressions.constant(number * 1_000), after
        follows = self._tokens[after]
        if not unit and follows.kind == "name" and _unit(follows.text) and follows.text not in self._kinds:
            unit, after = follows.text, after + 1
        if not unit:
            return expressions.constant(number), after
        if _unit(unit) is None:
            raise ExpressionError(f"expected a number, got {token.text}", at)
        return expressions.constant(number * (_unit(unit) or 0), DURATION), after


def _unit(word: str) -> int | None:
    """The microseconds of a unit of time."""
    word = word.lower()
    return _MICROSECONDS.get(word) or _MICROSECONDS.get(word.removesuffix("s") if len(word) > 2 else word)


def _shown(token: TokenLike) -> str:
    return "the end" if token.kind == "end" else token.text[:40]
