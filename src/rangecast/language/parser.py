"""The parser: the text of a condition to its tree, by recursive descent.

    condition   = part { OR part }
    part        = unit { AND unit }
    unit        = { NOT } ( "(" condition ")" | predicate )
    predicate   = attribute operator value
                | attribute [ NOT ] BETWEEN value AND value
                | attribute [ NOT ] IN "(" value { "," value } ")"
                | attribute IS [ NOT ] ( MISSING | PRESENT | NULL | TRUE | FALSE )
                | attribute of booleans
                | attribute ON date
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
from typing import NoReturn

from rangecast.errors import LanguageError, SchemaError
from rangecast.language.habits import hint_at
from rangecast.language.normal_form import check_order, spans_of
from rangecast.language.tokens import CURLY, Token, describe_position, error_at, shortened, tokens_of
from rangecast.language.tree import (
    KEYWORDS,
    NUMBER,
    PLAIN_NAME,
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
    quoted_string,
    unquoted,
    value_of,
)
from rangecast.types.attributes import Attribute
from rangecast.types.columns import is_unicode
from rangecast.types.schema import Schema

MAX_DEPTH = 128
_PLAIN = re.compile(PLAIN_NAME + r"\Z")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_INSTANTS = ("DATE", "TIMESTAMP", "DATETIME")
_NUMBER = re.compile(rf"\s*(?:{NUMBER})\s*\Z")
_INSTANT = re.compile(rf"'({TIMESTAMP})'\Z")
_THOUSANDS = re.compile(r"0[0-9]{2}")


def read(text: str, schema: Schema) -> tuple[Condition, list[str]]:
    """The condition of a text, and the texts of the literals that have an ordinal, in their order."""
    return _Parser(text, schema).read()


class _Parser:
    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.tokens, self.literals, self.irregular = tokens_of(text)
        self.next = 0

    def read(self) -> tuple[Condition, list[str]]:
        if len(self.tokens) == 1:
            raise LanguageError("the condition is empty; it needs at least one predicate", self.text, 0)
        if self.peek.text.upper() == "WHERE" and self.peek.text not in self.schema:
            self.next += 1
        condition = self.condition(0)
        if self.peek.kind != "end":
            self.fail("AND, OR or the end of the text")
        if self.irregular:  # one more than any shape has
            self.literals.append("")
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

    def fail(self, expected: str, hint: str = "", *, operand: bool = False) -> NoReturn:
        """Refuse the next token; `operand` where an attribute or a value was expected."""
        token = self.peek
        hint = hint_at(self.text, token.start, operand) or hint
        if token.kind == "name" and self.text[token.start - 1 : token.start] == "'":
            hint = "a quote within a string is doubled: 'it''s'"
        raise error_at(f"expected {expected}, got {token}{hint and '; ' + hint}", self.text, token.start)

    def since(self, start: int) -> Span:
        """From an offset up to the end of the last token taken."""
        return start, self.tokens[self.next - 1].end

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
                self.fail(f"AND, OR or a ) for the ( at {describe_position(self.text, opened.start)}")
        else:
            unit = self.predicate()
        for begun in reversed(starts):
            unit = Not(unit, self.since(begun))
        return unit

    def predicate(self) -> Condition:
        if self.peek.kind == "value" or self.at_instant():
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
        if operator.text.upper() == "ON":
            self.next += 1
            literal = self.value()
            self.check(attribute, "ON", literal)
            return Comparison(attribute.name, position, "ON", literal, self.since(start))
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
            again = self.next > 1 and self.tokens[self.next - 2].word in ("OR", "AND")
            hint = "name the attribute again, or write a list as price IN (5, 6)" if again else ""
            self.fail("one of = != < <= > >= after the value", hint)
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
            name = unquoted(token.text)
        elif token.kind in KEYWORDS and token.text in self.schema:
            self.fail(expected, f'an attribute with this name is written in double quotes: "{token.text}"')
        else:
            self.fail(expected, operand=True)
        self.next += 1
        try:
            return self.schema.position(name)
        except SchemaError:
            hint = hint_at(self.text, token.start, True)
            message = self.unknown(name)
            raise error_at(f"{message}; {hint}" if hint else message, self.text, token.start) from None

    def unknown(self, name: str) -> str:
        if name.rpartition(".")[2] in self.schema:
            last = name.rpartition(".")[2]
            return f"unknown attribute {shortened(name)!r}; write {last}, without what it is an attribute of"
        if re.split(r"[-.]", name)[0] in self.schema:
            first = re.split(r"[-.]", name)[0]
            return f"unknown attribute {shortened(name)!r}; after {first} a minus needs blanks around it"
        folded = {known.casefold(): known for known in self.schema.names}
        begun = self.text[self.tokens[self.next - 1].start :].casefold()
        spaced = [known for known in folded if begun.startswith(known) and not _PLAIN.match(known)]
        if spaced:
            written = quoted_name(folded[max(spaced, key=len)])
            return (
                f"unknown attribute {shortened(name)!r}; such a name is written in double quotes: {written}"
            )
        near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3)]
        if near:
            return f"unknown attribute {shortened(name)!r}; did you mean {' or '.join(near)}?"
        names = list(self.schema.names)
        shown = names if len(names) <= 12 else [*names[:12], f"{len(names) - 12:,} more"]
        return f"unknown attribute {shortened(name)!r}; the schema has {', '.join(shown)}"

    def value(self) -> Literal:
        token = self.peek
        if token.kind == "value":
            self.next += 1
            if token.text[0] in CURLY:
                return Literal(quoted_string(token.text[1:-1]), token.start)
            return Literal(token.text, token.start, token.ordinal)
        if self.at_instant():
            self.next += 2
            instant = _INSTANT.match(self.tokens[self.next - 1].text)
            if instant is None:
                message = f"{token.text} takes a date in quotes, as {token.text} '2026-01-31'"
                raise error_at(message, self.text, self.tokens[self.next - 1].start)
            self.irregular = True
            return Literal(instant[1], token.start)
        if token.kind == "quoted" and token.text[0] == '"' and unquoted(token.text) not in self.schema:
            self.next += 1
            self.irregular = True
            return Literal(quoted_string(unquoted(token.text)), token.start)
        return self.no_value(token)

    def at_instant(self) -> bool:
        """Whether an instant stands next as SQL writes it: DATE '2026-01-31'."""
        token = self.tokens[self.next]
        return (
            token.kind == "name"
            and token.text.upper() in _INSTANTS
            and self.tokens[self.next + 1].text[:1] == "'"
        )

    def no_value(self, token: Token) -> NoReturn:
        hint = ""
        if token.word in ("NULL", "MISSING", "PRESENT") or token.text.lower() == "nan":
            hint = "a missing value is tested with IS MISSING"
        elif token.kind in ("name", "quoted"):
            bare = shortened(token.text.strip('"').replace("'", "''"))
            hint = f"a string is written '{bare}', and two attributes cannot be compared"
        self.fail("a value", hint, operand=True)

    def values(self, attribute: Attribute) -> tuple[Literal, ...]:
        opening = self.accept("(", "[")
        if not opening:
            self.fail("( and the values of IN")
        literals: list[Literal] = []
        while not literals or self.accept(","):
            token = self.peek
            if literals and _THOUSANDS.fullmatch(token.text) and self.text[token.start - 1] == ",":
                self.fail("a value", "a large number is written 1000 or 1_000; numbers have no leading zeros")
            literals.append(self.value())
            self.check(attribute, "=", literals[-1])
        closing = ")" if opening == "(" else "]"
        if not self.accept(closing):
            self.fail(f"a comma or {closing} in the values of IN")
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
            if operator == "ON":
                spans_of(attribute, operator, value)
                return value
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
            message = str(error)
            if attribute.kind in ("int", "float") and _NUMBER.match(literal.text[1:-1]):
                message += f"; a number stands without quotes: {literal.text[1:-1].strip()}"
            elif attribute.kind == "category" and literal.text[0] != "'" and operator in ("=", "!="):
                message += f"; a string is written {quoted_string(literal.text)}"
            raise error_at(message, self.text, literal.start) from None
