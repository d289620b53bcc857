"""Reading a text token by token: what is next, names, values and lists, and errors that point at their place.

Names of attributes and types of values are checked here, so that every error can point at its place.
Nothing is added to a category's dictionary yet.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from decimal import Decimal
from typing import NoReturn

from rangecast.errors import LanguageError, SchemaError
from rangecast.language.derivation import Drafts
from rangecast.language.habits import hint_at
from rangecast.language.literal_forms import Likeness, quoted_string
from rangecast.language.normal_form import check_order, spans_of
from rangecast.language.tokens import CURLY, Token, error_at, shortened, tokens_of
from rangecast.language.tree import NUMBER, TIMESTAMP, Literal, Range, Span, Value, value_of
from rangecast.types.attributes import Attribute
from rangecast.types.expression_text import ExpressionReader
from rangecast.types.names import KEYWORDS, PLAIN_NAME, quoted_name, unquoted
from rangecast.types.schema import Schema

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_PLAIN = re.compile(PLAIN_NAME + r"\Z")
_INSTANTS = ("DATE", "TIMESTAMP", "DATETIME")
_NUMBER = re.compile(rf"\s*(?:{NUMBER})\s*\Z")
_INSTANT = re.compile(rf"'({TIMESTAMP})'\Z")
_THOUSANDS = re.compile(r"0[0-9]{2}")
# what any predicate on an expression has, and many others: then its tokens are looked at
_DERIVED = re.compile(
    r"[*/+(\u2212\u2013-]|[=<>≤≥≠]\s*[^\W\d]|[=<>≤≥≠]\s*[\"`]"
    r"|(?i:\b(?:i?like|contains|matches|starts|ends)\b)|(?i:between|and)\s+[^\W\d]"
)


class TokenReader:
    """A text, its tokens, and the place of the next one."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.tokens, self.literals, self.irregular = tokens_of(text)
        self.next = 0
        self.drafts = Drafts(schema)
        self.expressions = ExpressionReader(self.tokens, schema.operands)
        self.having = False
        self.likenesses: list[Likeness] = []
        self.may_derive = bool(schema.computed) or _DERIVED.search(text) is not None
        self.may_derive |= any(attribute.kind == "text" for attribute in schema)

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
            hint = f"a string is written '{bare}', and two attributes of strings cannot be compared"
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
            if attribute.kind == "tags":
                raise SchemaError(
                    f"{attribute.name!r} has several values: write {attribute.name} HAS {literal.text}, "
                    "or HAS ANY, ALL or NONE of several"
                )
            if attribute.kind in ("category", "text"):
                if operator not in ("=", "!="):
                    shown = f"{operator} {literal.text}"
                    raise SchemaError(f"{attribute.name!r} is a category: it takes = != IN, got {shown}")
                if not isinstance(value, str):  # a string may be new: bracket would name it
                    attribute.bracket(value)
            else:
                attribute.bracket(float(value) if isinstance(value, Decimal) else value)
            return value
        except (SchemaError, LanguageError) as error:
            message = str(error)
            if attribute.kind in ("int", "float") and _NUMBER.match(literal.text[1:-1]):
                message += f"; a number stands without quotes: {literal.text[1:-1].strip()}"
            elif (
                attribute.kind in ("category", "text") and literal.text[0] != "'" and operator in ("=", "!=")
            ):
                message += f"; a string is written {quoted_string(literal.text)}"
            raise error_at(message, self.text, literal.start) from None
