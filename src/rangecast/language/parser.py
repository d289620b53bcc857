"""The parser: the text of a condition to its tree, by recursive descent.

    condition   = part { OR part }
    part        = unit { AND unit }
    unit        = { NOT } ( "(" condition ")" | predicate )
    predicate   = attribute operator value
                | attribute [ NOT ] BETWEEN value AND value
                | attribute [ NOT ] IN "(" value { "," value } ")"
                | attribute IS [ NOT ] ( MISSING | PRESENT | NULL | TRUE | FALSE )
                | attribute of booleans
                | value operator attribute [ operator value ]
    operator    = "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    value       = 'string' | number | [ sign ] INF | TRUE | FALSE | timestamp
    attribute   = name | "name in double quotes"

Names of attributes and types of values are checked here too, so that every error can point at its
place. Nothing is added to a category's dictionary yet: a text that fails leaves no strings behind.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from decimal import Decimal
from typing import NamedTuple, NoReturn

from rangecast.errors import LanguageError, SchemaError
from rangecast.language.normal_form import check_order
from rangecast.language.tree import (
    KEYWORDS,
    NUMBER,
    PLAIN_NAME,
    STRING,
    TIMESTAMP,
    And,
    Comparison,
    Condition,
    Literal,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Span,
    Value,
    quoted_name,
    value_of,
)
from rangecast.types.attributes import Attribute
from rangecast.types.columns import is_unicode
from rangecast.types.schema import Schema

MAX_DEPTH = 128
MAX_TOKENS = 32_768
MAX_LISTED = 262_144
"""How many values the IN lists of a condition may have together; they are no words of MAX_TOKENS."""

_TOKEN = re.compile(
    rf"\s+|(?P<value>{STRING}|(?:{TIMESTAMP}|{NUMBER}|(?i:true|false))(?![\w.$:+-]))|(?P<name>{PLAIN_NAME})"
    r'|(?P<quoted>"[^"]*(?:""[^"]*)*")|(?P<operator><=|>=|<>|!=|==|[=<>])|(?P<mark>[(),])'
    r"|(?P<bad>[+-]?[0-9.][\w.:+-]*|.)",
    re.DOTALL,
)
_PLAIN = re.compile(PLAIN_NAME + r"\Z")
_OPERATORS = {"==": "=", "<>": "!="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_WINDOW = 72
_SHOWN = 40


class Token(NamedTuple):
    """A piece of the text; `word` is the keyword in capitals, the operator, the mark, or empty."""

    kind: str
    text: str
    start: int
    word: str
    ordinal: int

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        if self.kind == "bad" and self.text in "'\"":
            return f"a {self.text} that is not closed"
        text = _short(self.text)
        return f"the name {text}" if self.kind in ("name", "quoted") else self.word or text


def error_at(message: str, text: str, position: int) -> LanguageError:
    """An error that begins with the column and ends with a caret under the text."""
    line_start = text.rfind("\n", 0, position) + 1
    line = text[line_start:].split("\n", 1)[0]
    column = position - line_start
    first = max(0, min(column - _WINDOW // 2, len(line) - _WINDOW))
    before, after = "..." if first else "", "..." if first + _WINDOW < len(line) else ""
    # one column for each character, whatever a tab would take
    shown = "".join(c if c.isprintable() else " " for c in line[first : first + _WINDOW])
    caret = " " * (len(before) + column - first) + "^"
    lines = f"{_describe_position(text, position)}: {message}", before + shown + after, caret
    return LanguageError("\n  ".join(lines), text, position)


def _describe_position(text: str, position: int) -> str:
    column = position - text.rfind("\n", 0, position)
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {column}" if "\n" in text else f"column {column}"


def _short(text: str) -> str:
    text = text if is_unicode(text) else text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def read(text: str, schema: Schema) -> tuple[Condition, list[str]]:
    """The condition of a text, and the texts of the literals that have an ordinal, in their order."""
    return _Parser(text, schema).read()


class _Parser:
    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.tokens: list[Token] = []
        self.literals: list[str] = []
        self.next = 0
        listed = 0
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup
            if kind is None:
                continue
            piece, word = match.group(), ""
            if kind == "name" and piece.upper() in KEYWORDS:
                kind = word = piece.upper()
            elif kind in ("operator", "mark"):
                word = _OPERATORS.get(piece, piece)
            ordinal = -1
            if kind == "value" and not piece[0].isalpha():
                ordinal = len(self.literals)
                self.literals.append(piece)
            if word == "," or (kind == "value" and self.tokens and self.tokens[-1].word == ","):
                listed += 1
                if listed == 2 * MAX_LISTED:
                    message = f"the IN lists of a condition may have {MAX_LISTED:,} values, these have more"
                    raise error_at(message + "; cut it into several subscriptions", text, match.start())
            elif len(self.tokens) - listed == MAX_TOKENS:
                message = f"a condition may have {MAX_TOKENS:,} words, values and signs, this one has more"
                raise error_at(message + "; cut it into several subscriptions", text, match.start())
            self.tokens.append(Token(kind, piece, match.start(), word, ordinal))
        self.tokens.append(Token("end", "", len(text), "", -1))

    def read(self) -> tuple[Condition, list[str]]:
        if len(self.tokens) == 1:
            raise LanguageError("the condition is empty; it needs at least one predicate", self.text, 0)
        condition = self.condition(0)
        if self.peek.kind != "end":
            self.fail("AND, OR or the end of the text")
        return condition, self.literals

    @property
    def peek(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.tokens[self.next]
        self.next += token.kind != "end"
        return token

    def accept(self, *words: str) -> str:
        """The word of the next token, taken if it is one of these, or an empty string."""
        token = self.tokens[self.next]
        if token.word not in words:
            return ""
        self.next += 1
        return token.word

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        token = self.peek
        raise error_at(f"expected {expected}, got {token}{hint and '; ' + hint}", self.text, token.start)

    def since(self, start: int) -> Span:
        """From an offset up to the end of the last token taken."""
        last = self.tokens[self.next - 1]
        return start, last.start + len(last.text)

    def condition(self, depth: int) -> Condition:
        alternatives: list[Condition] = []
        start = self.peek.start
        while True:
            first = self.peek.start
            parts = [self.unit(depth)]
            while self.accept("AND"):
                parts.append(self.unit(depth))
            alternatives.append(parts[0] if len(parts) == 1 else And(tuple(parts), self.since(first)))
            if not self.accept("OR"):
                if len(alternatives) == 1:
                    return alternatives[0]
                return Or(tuple(alternatives), self.since(start))

    def unit(self, depth: int) -> Condition:
        start = self.peek.start
        starts: list[int] = []
        while self.peek.word == "NOT":
            starts.append(self.take().start)
            depth += 1
        opened = self.peek
        depth += opened.word == "("
        if depth > MAX_DEPTH:
            message = f"parentheses and NOTs may be nested {MAX_DEPTH} deep, these go deeper"
            raise error_at(message, self.text, start)
        if self.accept("("):
            unit = self.condition(depth)
            if not self.accept(")"):
                self.fail(f"AND, OR or a ) for the ( at {_describe_position(self.text, opened.start)}")
        else:
            unit = self.predicate()
        for begun in reversed(starts):
            unit = Not(unit, self.since(begun))
        return unit

    def predicate(self) -> Condition:
        if self.peek.kind == "value":
            return self.value_first()
        start = self.peek.start
        position = self.attribute("an attribute, a value, NOT or (")
        attribute = self.schema.attributes[position]
        operator = self.peek
        if self.accept(*_MIRRORED):
            literal = self.value()
            self.check(attribute, operator.word, literal)
            return Comparison(attribute.name, position, operator.word, literal, self.since(start))
        if self.accept("IS"):
            negated = bool(self.accept("NOT"))
            if self.peek.text.upper() in ("TRUE", "FALSE"):
                return self.is_boolean(attribute, position, start, negated)
            word = self.accept("MISSING", "PRESENT", "NULL")
            if not word:
                truths = ", TRUE, FALSE" if attribute.kind == "bool" else ""
                ends = "MISSING or PRESENT" if negated else "MISSING, PRESENT or NOT"
                self.fail(ends.replace(" or", truths + " or"))
            present = (word == "PRESENT") is not negated
            return Presence(attribute.name, position, present, self.since(start))
        if attribute.kind == "bool" and operator.word not in ("NOT", "BETWEEN", "IN"):
            if operator.word not in ("AND", "OR", ")") and operator.kind != "end":
                self.fail("AND, OR, an operator (= != IN IS) or the end of the text")
            return Comparison(attribute.name, position, "=", Literal("TRUE"), self.since(start))
        negated = bool(self.accept("NOT"))
        if self.accept("BETWEEN"):
            low = self.value()
            if not self.accept("AND"):
                self.fail("AND and the high end of BETWEEN")
            high = self.value()
            span = self.since(start)
            between = Range(attribute.name, position, low, high, negated=negated, span=span)
            return self.checked_range(attribute, between)
        if not self.accept("IN"):
            self.fail("BETWEEN or IN" if negated else "an operator (= != < <= > >= BETWEEN IN IS)")
        values = self.values(attribute)
        return Membership(attribute.name, position, values, negated, self.since(start))

    def is_boolean(self, attribute: Attribute, position: int, start: int, negated: bool) -> Condition:
        """IS TRUE is equality; IS NOT TRUE, as in SQL, holds for a missing value too."""
        literal = self.value()
        if attribute.kind != "bool":
            shown = f"{attribute.name!r} is {attribute.article} {attribute.kind}"
            raise error_at(f"IS {literal.text.upper()} is for a bool, {shown}", self.text, literal.start)
        span, name = self.since(start), attribute.name
        if not negated:
            return Comparison(name, position, "=", literal, span)
        other = Comparison(name, position, "!=", literal, span)
        return Or((other, Presence(name, position, False, span)), span)

    def value_first(self) -> Condition:
        literal = self.value()
        if self.peek.word not in _MIRRORED:
            self.fail("one of = != < <= > >= after the value")
        first = self.take().word
        position = self.attribute("an attribute")
        attribute = self.schema.attributes[position]
        if self.peek.word not in _MIRRORED:
            self.check(attribute, _MIRRORED[first], literal)
            span = self.since(literal.start)
            return Comparison(attribute.name, position, _MIRRORED[first], literal, span)
        rising = first[0] == "<"
        if first in ("=", "!=") or self.peek.word[0] != first[0]:
            onward = "< or <=" if rising else "> or >="
            self.fail(f"{onward} to go on with the range" if first[0] in "<>" else "AND or OR")
        second = self.take().word
        other = self.value()
        span = self.since(literal.start)
        if rising:
            chain = Range(attribute.name, position, literal, other, _MIRRORED[first], second, span=span)
        else:
            chain = Range(attribute.name, position, other, literal, second, _MIRRORED[first], span=span)
        return self.checked_range(attribute, chain)

    def attribute(self, expected: str) -> int:
        token = self.peek
        if token.kind == "name":
            name = token.text
        elif token.kind == "quoted":
            name = token.text[1:-1].replace('""', '"')
        elif token.kind in KEYWORDS and token.text in self.schema:
            self.fail(expected, f'an attribute with this name is written in double quotes: "{token.text}"')
        else:
            self.fail(expected)
        self.next += 1
        try:
            return self.schema.position(name)
        except SchemaError:
            raise error_at(self.unknown(name), self.text, token.start) from None

    def unknown(self, name: str) -> str:
        folded = {known.casefold(): known for known in self.schema.names}
        begun = self.text[self.tokens[self.next - 1].start :].casefold()
        spaced = [known for known in folded if begun.startswith(known) and not _PLAIN.match(known)]
        if spaced:
            written = quoted_name(folded[max(spaced, key=len)])
            return f"unknown attribute {_short(name)!r}; such a name is written in double quotes: {written}"
        near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3)]
        if near:
            return f"unknown attribute {_short(name)!r}; did you mean {' or '.join(near)}?"
        names = list(self.schema.names)
        shown = names if len(names) <= 12 else [*names[:12], f"{len(names) - 12:,} more"]
        return f"unknown attribute {_short(name)!r}; the schema has {', '.join(shown)}"

    def value(self) -> Literal:
        token = self.peek
        if token.kind != "value":
            hint = ""
            if token.word in ("NULL", "MISSING", "PRESENT") or token.text.lower() == "nan":
                hint = "a missing value is tested with IS MISSING"
            elif token.kind in ("name", "quoted"):
                bare = _short(token.text.strip('"').replace("'", "''"))
                hint = f"a string is written '{bare}', and two attributes cannot be compared"
            self.fail("a value", hint)
        self.next += 1
        return Literal(token.text, token.start, token.ordinal)

    def values(self, attribute: Attribute) -> tuple[Literal, ...]:
        if not self.accept("("):
            self.fail("( and the values of IN")
        literals: list[Literal] = []
        while not literals or self.accept(","):
            literals.append(self.value())
            self.check(attribute, "=", literals[-1])
        if not self.accept(")"):
            self.fail("a comma or ) in the values of IN")
        return tuple(literals)

    def checked_range(self, attribute: Attribute, condition: Range) -> Range:
        word = "BETWEEN" if condition.above == ">=" and condition.below == "<=" else condition.below
        low = self.check(attribute, word, condition.low)
        high = self.check(attribute, word, condition.high)
        try:
            check_order(attribute, low, high)
        except SchemaError as error:
            start = min(condition.low.start, condition.high.start)
            raise error_at(str(error), self.text, start) from None
        return condition

    def check(self, attribute: Attribute, operator: str, literal: Literal) -> Value:
        """The literal's value, if the attribute can be compared with it in this way."""
        try:
            value = value_of(literal.text)
            if isinstance(value, dt.datetime) and attribute.kind != "timestamp":
                got = f"the timestamp {literal.text}"
                raise SchemaError(f"{attribute.name!r} is {attribute.article} {attribute.kind}, got {got}")
            if attribute.kind == "bool" and operator not in ("=", "!="):
                shown = f"{operator} {literal.text}"
                raise SchemaError(f"{attribute.name!r} is a bool: it takes = != IN and IS TRUE, got {shown}")
            if attribute.kind == "category":
                if operator not in ("=", "!="):
                    shown = f"{operator} {literal.text}"
                    raise SchemaError(f"{attribute.name!r} is a category: it takes = != IN, got {shown}")
                if not isinstance(value, str):  # a string may be new: bracket would name it
                    attribute.bracket(value)
                elif not is_unicode(value):
                    raise attribute.wrong(value)
            else:
                attribute.bracket(float(value) if isinstance(value, Decimal) else value)
            return value
        except (SchemaError, LanguageError) as error:
            raise error_at(str(error), self.text, literal.start) from None
