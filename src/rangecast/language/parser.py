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
                | a predicate on an expression (parser.py)
                | a predicate on a point (parser.py)
    operator    = "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    value       = 'string' | number | [ sign ] INF | TRUE | FALSE | timestamp
    attribute   = name | "name in double quotes"

Tokens, names and values are read by parser.py. Nothing is added to a category's dictionary yet, nor
to the hidden attributes of the schema before the whole text was read: a text that fails leaves nothing
behind.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, NoReturn

from rangecast.errors import CapacityError, LanguageError, SchemaError
from rangecast.language.normal_form import Drafts, check_order, extent_of, spans_of, weekday, word_of
from rangecast.language.tokens import CURLY, Token, describe_position, error_at, hint_at, shortened, tokens_of
from rangecast.language.tree import (
    NUMBER,
    TIMESTAMP,
    And,
    Comparison,
    Condition,
    Fits,
    Has,
    Inside,
    Likeness,
    Literal,
    LiteralInterval,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Span,
    Stated,
    Value,
    Within,
    quoted_string,
    string_in,
    value_of,
)
from rangecast.types import expressions
from rangecast.types.attributes import Attribute, Category, Timestamp
from rangecast.types.columns import describe, is_unicode
from rangecast.types.derived import derived_attribute
from rangecast.types.expressions import (
    DURATION,
    FUNCTIONS,
    KEYWORDS,
    PLAIN_NAME,
    POINT,
    Expression,
    ExpressionError,
    ExpressionReader,
    quoted_name,
    unquoted,
)
from rangecast.types.places import UNITS
from rangecast.types.schema import Schema

# Reading a text token by token: what is next, names, values and lists, and errors that point at their place.
#
# Names of attributes and types of values are checked here, so that every error can point at its place.
# Nothing is added to a category's dictionary yet.

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


# Reading predicates on expressions: `price * quantity > 1000`, `bid > ask`, `hour(at) BETWEEN 9 AND 16`.
#
#     predicate   = operand operator operand [ operator operand ]
#                 | operand [ NOT ] BETWEEN operand AND operand
#                 | operand [ NOT ] IN "(" operand { "," operand } ")"
#                 | operand IS [ NOT ] ( MISSING | PRESENT | NULL )
#                 | operand [ NOT ] ( LIKE | ILIKE | CONTAINS | MATCHES | STARTS WITH | ENDS WITH ) string
#                 | operand [ NOT ] IN ( network | NETWORKS "(" network { "," network } ")" )
#
# Operands are read by types/expressions.py, and conditions made of them by normal_form.py. Where a single
# literal stands on the right and none on the left, the predicate keeps it as such, so that texts that differ
# in it alone are compiled together (templates.py); strings have to be alike for that, in what the
# predicate notes (tree.py). Any other text is read by itself.

# in steps of ExpressionReader: a comparison takes about as long as so many terms
_COMPARISON = 64
ORDERS = ("<", "<=", ">", ">=")
_ARITHMETIC = ("+", "-", "*", "/")
PATTERNS = ("LIKE", "ILIKE", "CONTAINS", "MATCHES", "STARTS", "ENDS")
_ALIKE_IN = {"LIKE": "like", "ILIKE": "like", "MATCHES": "regular expression"}


class OperandReader(TokenReader):
    """Reads predicates on expressions."""

    def opens_operand(self) -> bool:
        """Whether the parenthesis that comes next is one of an expression: by what follows its end."""
        depth = 0
        for at in range(self.next, len(self.tokens)):
            word = self.tokens[at].word
            depth += (word == "(") - (word == ")")
            if depth == 0:
                after, then = self.tokens[at + 1], self.tokens[min(at + 2, len(self.tokens) - 1)]
                if after.word == "NOT":
                    return then.word in ("IN", "BETWEEN")
                signed = after.kind == "value" and after.text[0] in "+-"
                return after.word in (*MIRRORED, *_ARITHMETIC, "IN", "BETWEEN", "IS") or signed
        return False

    def is_derived(self) -> bool:
        """Whether the predicate that comes next has an expression, by the tokens that it may have."""
        if self.orders_text():
            return True
        depth, between = 0, False
        # `5 < price` is a plain predicate
        named = self.peek.kind in ("name", "quoted") and not self.at_instant()
        for at in range(self.next, len(self.tokens)):
            token = self.tokens[at]
            word = token.word
            if token.kind == "end" or word == "OR" or (word == "AND" and not between and not depth):
                return False
            between = (between or word == "BETWEEN") and word != "AND"
            if self.schema.computed and token.kind in ("name", "quoted") and self._is_computed(token.text):
                return True
            if word in _ARITHMETIC or (named and token.kind == "name" and token.text.upper() in PATTERNS):
                # an attribute may have such a name, and stands first or after an operator then
                before_it = self.tokens[at - 1]
                if word in _ARITHMETIC or (
                    at > self.next and before_it.kind in ("name", "quoted", "NOT", "mark")
                ):
                    return True
            before = self.tokens[at - 1] if at > self.next else None
            if word == "IN" and named and at + 1 < len(self.tokens) and self.at_networks(at + 1):
                return True
            if word == "(":
                depth += 1
                if before is not None and before.kind == "name" and before.text.lower() in FUNCTIONS:
                    return True
                if before is None:
                    return True  # `opens_operand` has said so
            elif word == ")":
                depth -= 1
                if depth < 0:
                    return False
            elif before is not None and token.kind in ("name", "quoted", "value"):
                if token.kind == "value":
                    if token.text[0] in "+-" and (before.kind in ("name", "quoted", "value")):
                        return True
                elif named and before.word in (*MIRRORED, "BETWEEN", "AND"):
                    name = unquoted(token.text) if token.kind == "quoted" else token.text
                    if name in self.schema or name.casefold() in map(str.casefold, self.schema.names):
                        return True
        return False

    def orders_text(self) -> bool:
        """Whether the order of an attribute of text is asked for next."""
        token, after = self.peek, self.tokens[min(self.next + 1, len(self.tokens) - 1)]
        if token.kind not in ("name", "quoted") or after.word not in (*ORDERS, "BETWEEN", "NOT"):
            return False
        if after.word == "NOT" and self.tokens[min(self.next + 2, len(self.tokens) - 1)].word != "BETWEEN":
            return False
        name = unquoted(token.text) if token.kind == "quoted" else token.text
        try:
            return self.schema[name].kind == "text"
        except SchemaError:
            return False

    def text_chain(self, literal: Literal, first: str, position: int) -> Condition:
        """'A' <= name, and perhaps < 'C' after it; the first operator and the attribute were read."""
        ours = expressions.attribute(self.schema.attributes[position].name, "text")
        ends = [(MIRRORED[first], literal)]
        if self.peek.word in ORDERS:
            if self.peek.word[0] != first[0]:
                self.fail(f"{first[0]} or {first[0]}= to go on with the range")
            second = self.take().word
            ends.append((second, self.value()))
        span = self.since(literal.start)
        parts: list[Condition] = []
        for operator, end in ends:
            value = value_of(end.text)
            if not isinstance(value, str):
                raise error_at(f"{ours.text!r} is a text, got {describe(value)}", self.text, end.start)
            self.share("string", end)
            parts.append(self.drafts.compared_text(ours, operator, end, span))
        part = parts[0] if len(parts) == 1 else And(tuple(parts), span)
        return self.stated(ours, position, part, span)

    def _is_computed(self, written: str) -> bool:
        name = (unquoted(written) if written[0] in '"`' else written).casefold()
        return any(name == attribute.name.casefold() for attribute in self.schema.computed)

    def operand(self) -> Expression:
        """An expression; its errors point at their place."""
        try:
            found, self.next = self.expressions.operand(self.next)
        except ExpressionError as error:
            token = self.tokens[error.at]
            # of an operator, the error says all
            hint = "" if token.word in _ARITHMETIC else hint_at(self.text, token.start, True)
            raise error_at(f"{error}{hint and '; ' + hint}", self.text, token.start) from None
        return found

    def compared(self, ours: Expression, operator: str, theirs: Expression, span: Span) -> Condition:
        """A comparison of two expressions, whose terms are all gone through."""
        self.expressions.spend(self.next - 1, _COMPARISON + len(ours.args) + len(theirs.args))
        return self.drafts.compared(ours, operator, theirs, span)

    def derived(self) -> Condition:
        """A predicate on an expression."""
        first, start = self.next, self.peek.start
        ours = self.operand()
        operator = self.peek
        plain = not any(token.ordinal >= 0 for token in self.tokens[first : self.next])
        try:
            if self.accept(*MIRRORED):
                part = self.derived_comparison(ours, operator.word, plain, start)
            elif self.accept("IS"):
                negated = bool(self.accept("NOT"))
                word = self.accept("MISSING", "PRESENT", "NULL")
                if not word:
                    self.fail("MISSING or PRESENT" if negated else "MISSING, PRESENT or NOT")
                position, attribute = self.drafts.place(ours)
                present = (word == "PRESENT") is not negated
                part = Presence(attribute.name, position, present, self.since(start))
                self.irregular |= not plain
            else:
                negated = bool(self.accept("NOT"))
                if self.accept("BETWEEN"):
                    part = self.derived_range(ours, plain, start)
                elif self.accept("IN"):
                    networks = self.at_networks(self.next)
                    listed = self.networks if networks else self.derived_list
                    part = listed(ours, plain, start)
                elif self.peek.text.upper() in PATTERNS:
                    part = self.fitting(ours, plain, start)
                else:
                    self.fail("BETWEEN or IN" if negated else "an operator (= != < <= > >= BETWEEN IN IS)")
                part = Not(part, self.since(start)) if negated else part
        except SchemaError as error:
            if isinstance(error, LanguageError):
                raise
            after = self.tokens[min(self.tokens.index(operator) + 1, len(self.tokens) - 1)]
            hint = "" if after.text[:1] == "'" else hint_at(self.text, after.start, True)
            raise error_at(f"{error}{hint and '; ' + hint}", self.text, operator.start) from None
        position = _first_position(part)
        span = self.since(start)
        if ours.op == "attribute" and ours.kind == "text":
            return self.stated(ours, self.schema.position(ours.value), part, span)
        return self.stated(self.expression_at(position), position, part, span)

    def stated(self, expression: Expression, position: int, part: Condition, span: tuple[int, int]) -> Stated:
        """A predicate with what was noted while it was read."""
        likenesses, self.likenesses = tuple(self.likenesses), []
        return Stated(self.text[slice(*span)], expression, position, part, likenesses, span)

    def share(self, what: str, literal: Literal) -> None:
        """Note in what a literal must be alike, so that texts share this one's tree."""
        self.irregular |= literal.ordinal < 0
        self.likenesses.append(Likeness(what, (literal,)))

    def expression_at(self, position: int) -> Expression:
        """The expression of the attribute at a position."""
        fresh = position - self.drafts.width
        attribute = self.drafts.fresh[fresh] if fresh >= 0 else self.schema.attribute(position)
        if attribute.expression is not None:
            return attribute.expression
        kind = self.schema.operands[attribute.name]
        assert isinstance(kind, str)
        return expressions.attribute(attribute.name, kind)

    def derived_comparison(self, ours: Expression, operator: str, plain: bool, start: int) -> Condition:
        if self.at_text(ours):
            return self.compared_with_text(ours, operator, plain, start)
        if plain and self.stands_alone(ours):
            # the shape of the text says all but this literal, so texts that differ in it share a tree
            literal, as_it_stands = self.value(), derived_attribute(ours)
            self.check(as_it_stands, operator, literal)
            form = canonical(ours)
            position, attribute = self.drafts.place(form.expression)
            if form.negated:
                operator, literal = MIRRORED[operator], literal.changed("negated")
            return Comparison(attribute.name, position, operator, literal, self.since(start))
        before = self.next
        theirs = self.operand()
        self.irregular |= not plain or any(token.ordinal >= 0 for token in self.tokens[before : self.next])
        part = self.compared(ours, operator, theirs, self.since(start))
        if self.peek.word in MIRRORED:
            onward = self.take().word
            if operator[0] not in "<>" or onward[0] != operator[0]:
                self.next -= 1
                self.fail("AND, OR or the end of the text")
            self.irregular = True
            more = self.compared(theirs, onward, self.operand(), self.since(start))
            return And((part, more), self.since(start))
        return part

    def fitting(self, ours: Expression, plain: bool, start: int) -> Condition:
        """LIKE, CONTAINS, STARTS WITH and so on, and a string."""
        word = self.take().text.upper()
        if word in ("STARTS", "ENDS"):
            if self.peek.text.upper() != "WITH":
                self.fail("WITH")
            self.next += 1
        literal = self.value()
        affix = word in ("STARTS", "ENDS")
        self.irregular |= not plain or (self.schema.traits.single_columns and not affix)
        value = value_of(literal.text)
        if not isinstance(value, str) or ours.kind != "text":
            raise SchemaError(
                f"{word} takes text and a string, and {ours.text} is {ours.kind}, got {literal.text}"
            )
        span = self.since(start)
        if word == "ILIKE":
            ours, literal = expressions.called("lower", (ours,)), literal.changed("small letters")
        self.irregular |= literal.ordinal < 0
        if word != "CONTAINS":
            self.share(_ALIKE_IN.get(word, "string"), literal)
        if word == "STARTS":
            return self.drafts.begins(ours, literal, span)
        if word == "ENDS":
            return self.drafts.ends(ours, literal, span)
        if word == "CONTAINS":
            return self.drafts.fits("contains", ours, literal, span)
        if word == "MATCHES":
            return self.drafts.matches(ours, literal, span)
        return self.drafts.like(ours, literal, span)

    def at_networks(self, at: int) -> bool:
        """Whether networks follow an IN: a string that no parenthesis opens, or the word NETWORKS."""
        token = self.tokens[at]
        return token.text[:1] in ("'", *CURLY) or (
            token.kind == "name" and token.text.upper() == "NETWORKS" and self.tokens[at + 1].word == "("
        )

    def networks(self, ours: Expression, plain: bool, start: int) -> Condition:
        """IN and a network, or several in parentheses."""
        several = self.peek.text.upper() == "NETWORKS"
        self.next += 2 * several
        self.irregular |= not plain
        ways: list[Condition] = []
        while not ways or (several and self.accept(",")):
            literal = self.value()
            value = value_of(literal.text)
            if not isinstance(value, str) or ours.kind != "text":
                shown = f"{ours.text} is {ours.kind}, got {literal.text}"
                raise SchemaError(f"IN and a network takes text and a string, and {shown}")
            literal = literal.changed("stripped")
            self.share("network", literal)
            ways.append(self.drafts.in_network(ours, literal, self.since(start)))
        if several and not self.accept(")"):
            self.fail("a comma or ) in the networks of IN")
        return ways[0] if len(ways) == 1 else Or(tuple(ways), self.since(start))

    def at_text(self, ours: Expression) -> bool:
        """Whether a string comes next, or must come."""
        return ours.kind == "text" or self.peek.text[:1] in ("'", *CURLY)

    def stands_alone(self, ours: Expression) -> bool:
        """Whether a single literal comes next, and the expression before it is as its attribute has it."""
        return self.literal_alone(ours) and canonical(ours).plain

    def literal_alone(self, ours: Expression) -> bool:
        """Whether a single literal comes next that an expression can be compared with as it stands."""
        token, after = self.peek, self.tokens[min(self.next + 1, len(self.tokens) - 1)]
        if token.kind != "value" or token.ordinal < 0 or ours.kind == DURATION or after.word in _ARITHMETIC:
            return False
        signed = after.kind == "value" and after.text[0] in "+-"
        return not signed and after.word not in MIRRORED and after.kind != "name"

    def compared_with_text(self, ours: Expression, operator: str, plain: bool, start: int) -> Condition:
        literal = self.value()
        self.irregular |= not plain or ours.kind != "text"
        value = value_of(literal.text)
        if ours.op == "weekday" and isinstance(value, str):
            return self.drafts.within(ours, operator, Fraction(weekday(value)), self.since(start))
        if ours.kind == "instant" and isinstance(value, str):
            instant = Timestamp("at").bracket(value)[0]
            theirs = expressions.constant(Fraction(instant), "instant")
            return self.compared(ours, operator, theirs, self.since(start))
        if not isinstance(value, str) or ours.kind != "text":
            raise SchemaError(f"{ours.text} is {ours.kind}, got {describe(value)}")
        self.share("string", literal)
        return self.drafts.compared_text(ours, operator, literal, self.since(start))

    def derived_range(self, ours: Expression, plain: bool, start: int) -> Condition:
        if plain and not self.at_text(ours) and self.stands_alone(ours):
            low = self.value()
            if not self.accept("AND"):
                self.fail("AND and the high end of BETWEEN")
            if self.stands_alone(ours):
                high, as_it_stands = self.value(), derived_attribute(ours)
                span, form = self.since(start), canonical(ours)
                self.checked_range(as_it_stands, Range(as_it_stands.name, 0, low, high, span=span))
                position, attribute = self.drafts.place(form.expression)
                if form.negated:
                    low, high = high.changed("negated"), low.changed("negated")
                return Range(attribute.name, position, low, high, span=span)
            self.next -= 2
        ends: list[Condition] = []
        written: list[str] = []
        for operator in (">=", "<="):
            if ends and not self.accept("AND"):
                self.fail("AND and the high end of BETWEEN")
            written.append(self.peek.text)
            if self.at_text(ours):
                ends.append(self.compared_with_text(ours, operator, plain, start))
            else:
                self.irregular = True
                ends.append(self.compared(ours, operator, self.operand(), self.since(start)))
        if ours.kind == "text" and all(text[0] == "'" for text in written):
            least, most = map(string_in, written)
            if least > most:
                raise SchemaError(f"low must not exceed high on {ours.text!r}, got [{least}, {most}]")
            both = [literal for one in self.likenesses[-2:] for literal in one.literals]
            self.likenesses[-2:] = [Likeness("ascending", tuple(both))]
        return And(tuple(ends), self.since(start))

    def derived_list(self, ours: Expression, plain: bool, start: int) -> Condition:
        opening = self.accept("(", "[")
        if not opening:
            self.fail("( and the values of IN")
        whole = self.whole_list(ours, start) if plain and not self.at_text(ours) else None
        if whole is not None:
            return whole
        ways: list[Condition] = []
        while not ways or self.accept(","):
            if self.at_text(ours):
                ways.append(self.compared_with_text(ours, "=", plain, start))
            else:
                self.irregular = True
                ways.append(self.compared(ours, "=", self.operand(), self.since(start)))
        if not self.accept(")" if opening == "(" else "]"):
            self.fail("a comma or ) in the values of IN")
        return ways[0] if len(ways) == 1 else Or(tuple(ways), self.since(start))

    def whole_list(self, ours: Expression, start: int) -> Condition | None:
        """The values of an IN as literals, or None and nothing read where one of them is no literal alone."""
        before, form = self.next, canonical(ours)
        attribute = derived_attribute(ours)
        literals: list[Literal] = []
        while not literals or self.accept(","):
            if self.peek.text[:1] in ("'", *CURLY) or not (form.plain and self.literal_alone(ours)):
                self.next = before
                return None
            literals.append(self.value())
            self.check(attribute, "=", literals[-1])
        if not self.accept(")", "]"):
            self.next = before
            return None
        if form.negated:
            literals = [literal.changed("negated") for literal in literals]
        position, attribute = self.drafts.place(form.expression)
        return Membership(attribute.name, position, tuple(literals), span=self.since(start))


class CanonicalForm(NamedTuple):
    """The expression of the hidden attribute that stands for another one, or for what that is negated."""

    expression: Expression
    negated: bool
    plain: bool
    """Whether it is one of these two, so that a constant on the right is kept as it is or negated."""


def canonical(ours: Expression) -> CanonicalForm:
    """Which hidden attribute an expression has, when it is compared with a constant.

    >>> a, b = (expressions.attribute(name, "float") for name in "ab")
    >>> found = canonical(expressions.added(b, a, -1))
    >>> found.expression.text, found.negated, found.plain
    ('a - b', True, True)
    """
    zero = expressions.constant(Fraction(0), ours.kind if ours.kind == "instant" else "")
    found = expressions.comparison(ours, "<", zero)
    if found.operator == "<":
        return CanonicalForm(found.expression, False, found.expression.text == ours.text)
    if ours.kind not in ("int", "float"):
        return CanonicalForm(found.expression, True, False)
    negated = expressions.scaled(ours, Fraction(-1))
    return CanonicalForm(found.expression, True, negated.text == found.expression.text)


def _first_position(condition: Condition) -> int:
    """The position of the first attribute of a condition."""
    while isinstance(condition, And | Or | Not):
        condition = condition.part if isinstance(condition, Not) else condition.parts[0]
    assert isinstance(condition, Within | LiteralInterval | Comparison | Fits | Membership | Range | Presence)
    return condition.position


# HAS, of attributes with several values: `tags HAS 'x'`, HAS ANY, HAS ALL, HAS NONE.
#
# A box asks one set of codes of an attribute, and an event with several values lies in it when one of them
# does (model/wide_events.py). So a HAS that is the only one of a conjunction is asked of the attribute
# itself, for any number of strings. Where there are several, or one is denied, they are patterns
# (types/patterns.py), which hold of an event and not of one of its values: what is denied is that *any* value
# is the string, not that some other value is there.


def settled(text: str, condition: Condition, drafts: Drafts) -> Condition:
    """The condition of a text with each HAS as a predicate of a kind that indexes know."""
    return _Settling(text, drafts).settle(condition, frozenset(_asked(condition)))[0]


class _Settling:
    def __init__(self, text: str, drafts: Drafts) -> None:
        self.text = text
        self.drafts = drafts
        self._written: dict[Span, str] = {}
        """What stands at a span: HAS ALL of thousands is as many conditions that have the same one."""

    def settle(self, condition: Condition, free: frozenset[int]) -> tuple[Condition, frozenset[int]]:
        """The condition, and the attributes that it asks; `free` are those that it may ask."""
        if isinstance(condition, Has):
            if condition.position in free:
                name, position = condition.attribute, condition.position
                return Membership(name, position, condition.literals, False, condition.span), frozenset(
                    [position]
                )
            return self._hidden(condition), frozenset()
        if isinstance(condition, Not):
            return Not(self.settle(condition.part, frozenset())[0], condition.span), frozenset()
        if isinstance(condition, And):
            free -= {position for part in condition.parts for position in _plainly(part)}
            asked = Counter([position for part in condition.parts for position in _asked(part)])
            free -= {position for position, times in asked.items() if times > 1}
            parts, spent = [], frozenset[int]()
            for part in condition.parts:
                made, own = self.settle(part, free - spent)
                parts.append(made)
                spent |= own
            return And(tuple(parts), condition.span), spent
        if isinstance(condition, Or):
            both = [self.settle(part, free) for part in condition.parts]
            made = Or(tuple(part for part, _ in both), condition.span)
            return made, frozenset().union(*(own for _, own in both))
        return condition, frozenset()

    def _hidden(self, condition: Has) -> Condition:
        ways: list[Condition] = []
        of = expressions.attribute(condition.attribute, "text")
        for literal in condition.literals:
            if literal.text[0] != "'":  # TRUE and FALSE are strings here
                literal = Literal(quoted_string(literal.text.lower()))
            ways.append(self.drafts.fits("has", of, literal, condition.span))
        part = ways[0] if len(ways) == 1 else Or(tuple(ways), condition.span)
        span = condition.span
        written = self._written.get(span)
        if written is None:
            written = self._written[span] = self.text[slice(*span)]
        return Stated(written, of, condition.position, part, span=span)


def _asked(condition: Condition) -> set[int]:
    """The attributes of each HAS."""
    if isinstance(condition, And | Or):
        return {position for part in condition.parts for position in _asked(part)}
    if isinstance(condition, Not):
        return _asked(condition.part)
    return {condition.position} if isinstance(condition, Has) else set()


def _plainly(condition: Condition) -> set[int]:
    """The attributes of predicates that are no HAS."""
    if isinstance(condition, And | Or):
        return {position for part in condition.parts for position in _plainly(part)}
    if isinstance(condition, Not):
        return _plainly(condition.part)
    if isinstance(condition, Comparison | Fits | Membership | Range | Presence | Stated):
        return {condition.position}
    return set()


# Reading predicates on points: `at WITHIN 500 m OF (13.4, 52.5)`, `at IN BOX (...)`, `at IN POLYGON '...'`.
#
#     predicate   = attribute [ NOT ] WITHIN distance OF "(" number "," number ")"
#                 | attribute [ NOT ] IN BOX "(" number "," number "," number "," number ")"
#                 | attribute [ NOT ] IN POLYGON string
#     distance    = number ( m | km | mi )
#
# WITHIN, OF, BOX and POLYGON are words here alone, after an attribute of points, and names elsewhere.

_DISTANCE = re.compile(rf"({NUMBER})({'|'.join(UNITS)})\Z")
_LONG_UNITS = {
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "kilometer": "km", "kilometers": "km",
    "kilometre": "km", "kilometres": "km", "mile": "mi", "miles": "mi",
}  # fmt: skip
_TAKES = "an operator (WITHIN 500 m OF (13.4, 52.5), IN BOX (...), IN POLYGON '...', IS)"


class PlaceReader(OperandReader):
    """Reads predicates on points."""

    def at_place(self) -> bool:
        """Whether a predicate on a point comes next."""
        if not self.schema.points:
            return False
        token, after = self.peek, self.tokens[min(self.next + 1, len(self.tokens) - 1)]
        if token.kind not in ("name", "quoted") or after.word in ("(", "IS"):
            return False
        name = unquoted(token.text) if token.kind == "quoted" else token.text
        try:
            return self.schema[self.schema.position(name)].kind == POINT
        except SchemaError:
            return False

    def place(self) -> Condition:
        """A predicate on a point."""
        start = self.peek.start
        position = self.attribute("an attribute")
        negated = bool(self.accept("NOT"))
        word = self.peek.text.upper()
        if word == "WITHIN":
            self.next += 1
            found = self.circle(position, start)
        elif self.accept("IN"):
            word = self.peek.text.upper()
            if word not in ("BOX", "POLYGON"):
                self.fail("BOX (west, south, east, north) or POLYGON 'POLYGON((...))'")
            self.next += 1
            found = self.map_box(position, start) if word == "BOX" else self.polygon(position, start)
        else:
            self.fail(_TAKES.replace(", IS", "") if negated else _TAKES)
        try:
            extent_of(found) if found.area == "box" else word_of(found)
        except SchemaError as error:
            message = str(error) if isinstance(error, LanguageError) else f"{found.attribute!r}: {error}"
            raise error_at(message, self.text, found.literals[0].start) from None
        return Not(found, self.since(start)) if negated else found

    def circle(self, position: int, start: int) -> Inside:
        token = self.peek
        attached = _DISTANCE.match(token.text)
        if token.kind == "bad" and attached is not None:
            self.next += 1
            self.irregular = True
            distance, unit = Literal(attached[1], token.start), attached[2]
        else:
            distance, word = self.number(), self.peek.text.lower()
            unit = _LONG_UNITS.get(word, word)
            if unit not in UNITS:
                self.fail("the unit of the distance (m, km or mi)")
            self.next += 1
        if self.peek.text.upper() != "OF":
            self.fail("OF and the centre, as (13.4, 52.5)")
        self.next += 1
        longitude, latitude = self.numbers(2, "longitude and latitude")
        return self.made(position, "circle", (distance, longitude, latitude), start, unit)

    def map_box(self, position: int, start: int) -> Inside:
        return self.made(position, "box", self.numbers(4, "west, south, east and north"), start)

    def polygon(self, position: int, start: int) -> Inside:
        if self.peek.kind != "value" or self.peek.text[:1] not in ("'", "\u2018", "\u201c"):
            self.fail("a polygon in quotes, as 'POLYGON((13 52, 14 52, 14 53, 13 52))'")
        return self.made(position, "polygon", (self.value(),), start)

    def numbers(self, n: int, what: str) -> tuple[Literal, ...]:
        """So many numbers in parentheses."""
        if not self.accept("("):
            self.fail(f"( and {what}")
        found = [self.number()]
        while self.accept(","):
            found.append(self.number())
        if len(found) != n or not self.accept(")"):
            self.fail(f"{what} in parentheses, {n} numbers")
        return tuple(found)

    def number(self) -> Literal:
        if self.peek.kind != "value" or self.peek.text[0] not in "0123456789.+-\u2212\u2013":
            self.fail("a number", operand=True)
        return self.value()

    def made(
        self, position: int, area: str, literals: tuple[Literal, ...], start: int, unit: str = ""
    ) -> Inside:
        name = self.schema.attributes[position].name
        of = expressions.attribute(name, POINT)
        places = [self.drafts.place(expressions.called(word, (of,)))[0] for word in ("longitude", "latitude")]
        return Inside(name, position, area, literals, unit, places[0], places[1], self.since(start))


MAX_DEPTH = 128


def read(text: str, schema: Schema) -> tuple[Condition, list[str]]:
    """The condition of a text, and the texts of the literals that have an ordinal, in their order."""
    if not is_unicode(text):
        at = next(k for k, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
        raise error_at(f"a condition must be text, got half of a character: {text[at]!a}", text, at)
    while True:
        found = _Parser(text, schema).read()
        if found is not None:
            return found


class _Parser(PlaceReader):
    def read(self) -> tuple[Condition, list[str]] | None:
        """What `read` gives, or None where other texts have taken the positions of its hidden attributes."""
        if len(self.tokens) == 1:
            raise LanguageError("the condition is empty; it needs at least one predicate", self.text, 0)
        if self.peek.text.upper() == "WHERE" and self.peek.text not in self.schema:
            self.next += 1
        condition = self.condition(0)
        if self.peek.kind != "end":
            self.fail("AND, OR or the end of the text")
        if self.having:
            condition = settled(self.text, condition, self.drafts)
        try:
            if not self.drafts.keep():
                return None
        except CapacityError as error:
            raise LanguageError(str(error), self.text, 0) from None
        if self.irregular:  # one more than any shape has
            self.literals.append("")
        return condition, self.literals

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
            message = f"parentheses and NOTs may be nested at most {MAX_DEPTH} deep"
            raise error_at(message, self.text, start)
        if opened.word == "(" and not (self.may_derive and self.opens_operand()):
            self.next += 1
            unit = self.condition(depth)
            if not self.accept(")"):
                self.fail(f"AND, OR or a ) for the ( at {describe_position(self.text, opened.start)}")
        else:
            unit = self.predicate()
        for begun in reversed(starts):
            unit = Not(unit, self.since(begun))
        return unit

    def predicate(self) -> Condition:
        if self.at_place():
            return self.place()
        if self.may_derive and self.is_derived():
            return self.derived()
        if self.peek.kind == "value" or self.at_instant():
            return self.value_first()
        start = self.peek.start
        position = self.attribute("an attribute, a value, NOT or (")
        attribute = self.schema.attributes[position]
        operator = self.peek
        if self.accept(*MIRRORED):
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
        if operator.text.upper() == "HAS":
            return self.has(attribute, position, start)
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
        if negated and self.peek.text.upper() == "HAS":
            return Not(self.has(attribute, position, start), self.since(start))
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

    def has(self, attribute: Attribute, position: int, start: int) -> Condition:
        """HAS and a string, or ANY, ALL or NONE of several."""
        self.next += 1
        word = self.peek.text.upper()
        several = word in ("ANY", "ALL", "NONE")
        self.next += several
        if several and self.peek.word not in ("(", "["):
            self.fail(f"( and the strings of HAS {word}")
        if not isinstance(attribute, Category):
            shown = f"{attribute.name!r} is {attribute.article} {attribute.kind}"
            raise error_at(f"HAS takes an attribute of strings, {shown}", self.text, start)
        alike = Category(attribute.name, attribute.vocabulary)  # to which a string may be equal
        listed = self.peek.word in ("(", "[")
        literals = self.values(alike) if listed else (self.value(),)
        if not listed:
            self.check(alike, "=", literals[0])
        self.having = True
        self.irregular |= any(one.ordinal < 0 and one.text[0] == "'" for one in literals)
        self.irregular |= self.schema.traits.single_columns
        span = self.since(start)
        if word == "ALL":
            each: tuple[Condition, ...] = tuple(
                Has(attribute.name, position, (one,), span) for one in literals
            )
            return each[0] if len(each) == 1 else And(each, span)
        found = Has(attribute.name, position, literals, span)
        return Not(found, span) if word == "NONE" else found

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
        if self.peek.word not in MIRRORED:
            again = self.next > 1 and self.tokens[self.next - 2].word in ("OR", "AND")
            hint = "name the attribute again, or write a list as price IN (5, 6)" if again else ""
            self.fail("one of = != < <= > >= after the value", hint)
        first = self.take().word
        position = self.attribute("an attribute")
        attribute = self.schema.attributes[position]
        if attribute.kind == "text" and first in ORDERS:
            return self.text_chain(literal, first, position)
        if self.peek.word not in MIRRORED:
            self.check(attribute, MIRRORED[first], literal)
            span = self.since(literal.start)
            return Comparison(attribute.name, position, MIRRORED[first], literal, span)
        rising = first[0] == "<"
        if first in ("=", "!=") or self.peek.word[0] != first[0]:
            onward = "< or <=" if rising else "> or >="
            self.fail(f"{onward} to go on with the range" if first[0] in "<>" else "AND or OR")
        second = self.take().word
        other = self.value()
        span = self.since(literal.start)
        if rising:
            chain = Range(attribute.name, position, literal, other, MIRRORED[first], second, span=span)
        else:
            chain = Range(attribute.name, position, other, literal, second, MIRRORED[first], span=span)
        return self.checked_range(attribute, chain)
