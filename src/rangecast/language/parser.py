"""The parser: the text of a condition to its tree, by recursive descent.

    condition   = part { OR part }
    part        = unit { AND unit }
    unit        = { NOT } ( "(" condition ")" | predicate )
    predicate   = operand what follows it
    operand     = attribute | value | an expression (expressions.py)

What follows an operand says which predicate it is (`_PREDICATES`):

    = != < <= > >=               operand [ operator operand ]
    [ NOT ] BETWEEN              operand AND operand
    [ NOT ] IN                   "(" operand { "," operand } ")", a network, BOX, POLYGON
    IS                           [ NOT ] ( MISSING | PRESENT | NULL | TRUE | FALSE )
    ON                           date
    [ NOT ] HAS                  string, or ANY, ALL, NONE and strings in parentheses
    [ NOT ] LIKE and so on       string
    [ NOT ] WITHIN               distance OF "(" number "," number ")"
    nothing                      after an attribute of booleans

A parenthesis may open a condition or an operand. What stands in it is read as a condition, which may come to
no more than an operand; what follows the closing one says whether that goes on.

An attribute beside literals is a node of the tree as it stands. Anything else is read by expressions.py, and
made when a text has it, as are the hidden attributes of points and of HAS: a plain condition passes none of
these. Nothing is added to a category's dictionary yet, nor to the hidden attributes of the schema before the
whole text was read: a text that fails leaves nothing behind.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import NoReturn

from rangecast.errors import CapacityError, LanguageError, SchemaError
from rangecast.language.expressions import (
    AN_OPERATOR,
    HIGH_END,
    MIRRORED,
    ORDERS,
    PATTERNS,
    Drafts,
    ExpressionPredicates,
    Operand,
)
from rangecast.language.normal_form import MANY, LiteralSpans, check_order, extent_of, word_of
from rangecast.language.tokens import Token, TokenReader, describe_position, error_at, goes_on
from rangecast.language.tree import (
    NUMBER,
    And,
    Comparison,
    Condition,
    Fits,
    Has,
    Inside,
    Literal,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Span,
    Stated,
    Value,
    quoted_string,
    value_of,
)
from rangecast.types import expressions
from rangecast.types.attributes import Attribute, Category
from rangecast.types.columns import is_unicode
from rangecast.types.expressions import POINT, is_duration, is_function
from rangecast.types.places import UNITS
from rangecast.types.schema import Schema

MAX_DEPTH = 128

_STRINGS = ("category", "text", "tags")
_NUMBER = re.compile(rf"\s*(?:{NUMBER})\s*\Z")
_THOUSANDS = re.compile(r"0[0-9]{2}")
_AFTER_A_VALUE = "one of = != < <= > >= after the value"
_BEGINNING = "an attribute, a value, NOT or ("


def read(text: str, schema: Schema, spans: LiteralSpans | None = None) -> tuple[Condition, list[str]]:
    """The condition of a text, and the texts of the literals that have an ordinal, in their order.

    `spans` keeps what its literals come to for whoever expands the condition.
    """
    if not (text.isascii() or is_unicode(text)):
        at = next(k for k, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
        raise error_at(f"a condition must be text, got half of a character: {text[at]!a}", text, at)
    spans = LiteralSpans(schema) if spans is None else spans
    while True:
        found = _Parser(text, schema, spans).read()
        if found is not None:
            return found


class _Parser:
    """The grammar of conditions over the tokens of one text."""

    def __init__(self, text: str, schema: Schema, spans: LiteralSpans) -> None:
        self.schema = schema
        self.spans = spans
        self.reader = TokenReader(text, schema)
        self.having = False
        self._derived: ExpressionPredicates | None = None

    @property
    def derived(self) -> ExpressionPredicates:
        """What reads expressions, made when a text has one."""
        if self._derived is None:
            self._derived = ExpressionPredicates(self.reader, self.check)
        return self._derived

    def read(self) -> tuple[Condition, list[str]] | None:
        """What `read` gives, or None where other texts have taken the positions of its hidden attributes."""
        reader = self.reader
        if len(reader.tokens) == 1:
            raise LanguageError("the condition is empty; it needs at least one predicate", reader.text, 0)
        if reader.follows == "WHERE" and reader.peek.text not in self.schema:
            reader.next += 1
        condition = self.condition(0)
        assert isinstance(condition, Condition)
        if reader.peek.kind != "end":
            reader.fail("AND, OR or the end of the text")
        if self.having:
            condition = settled(reader.text, condition, self.derived.drafts)
        if self._derived is not None:
            try:
                if not self._derived.drafts.keep():
                    return None
            except CapacityError as error:
                raise LanguageError(str(error), reader.text, 0) from None
        if reader.irregular:  # one more than any shape has
            reader.literals.append("")
        return condition, reader.literals

    def condition(self, depth: int, opened: bool = False) -> Condition | Operand:
        """Units joined by AND and OR; in a parenthesis that was opened, perhaps an operand alone."""
        reader = self.reader
        alternatives: list[Condition] = []
        start = reader.peek.start
        while True:
            first = reader.peek.start
            unit = self.unit(depth)
            if isinstance(unit, Operand):
                if opened and not alternatives and reader.peek.word == ")":
                    return unit
                unit = self.alone(unit)
            parts = [unit]
            while reader.accept("AND"):
                unit = self.unit(depth)
                parts.append(self.alone(unit) if isinstance(unit, Operand) else unit)
            alternatives.append(parts[0] if len(parts) == 1 else And(tuple(parts), reader.since(first)))
            if not reader.accept("OR"):
                if len(alternatives) == 1:
                    return alternatives[0]
                return Or(tuple(alternatives), reader.since(start))

    def unit(self, depth: int) -> Condition | Operand:
        """A predicate or a condition in parentheses, and the NOTs before it; or an operand that nothing
        follows but a closing parenthesis."""
        reader = self.reader
        start = reader.peek.start
        starts: list[int] = []
        while reader.peek.word == "NOT":
            starts.append(reader.peek.start)
            reader.next += 1
            depth += 1
        opening = reader.peek
        depth += opening.word == "("
        if depth > MAX_DEPTH:
            message = f"parentheses and NOTs may be nested at most {MAX_DEPTH} deep"
            raise error_at(message, reader.text, start)
        unit: Condition | Operand
        if opening.word == "(":
            unit = self.parenthesis(opening, depth)
        elif reader.follows in _CALLS and reader.is_call(reader.next):
            unit = _CALLS[reader.follows](self)
        else:
            unit = self.operand(_BEGINNING)
        if isinstance(unit, Operand):
            if reader.peek.word == ")" and not starts:
                return unit
            unit = self.predicate(unit) if reader.peek.word != ")" else self.alone(unit)
        for begun in reversed(starts):
            unit = Not(unit, reader.since(begun))
        return unit

    def parenthesis(self, opening: Token, depth: int) -> Condition | Operand:
        """What stands in parentheses: a condition, or an operand and what it goes on with."""
        reader = self.reader
        first = reader.next
        reader.next += 1
        inner = self.condition(depth, opened=True)
        if not reader.accept(")"):
            where = describe_position(reader.text, opening.start)
            reader.fail(f"AND, OR or a ) for the ( at {where}")
        if not isinstance(inner, Operand):
            return inner
        if goes_on(reader.peek):
            return self.derived.operand(inner.within(first))
        if reader.peek.word == ")":
            return inner.within(first)
        if not self.is_followed():
            return self.alone(inner)
        return Operand(first, reader.next, expression=self.derived.expression_of(inner))

    def is_followed(self) -> bool:
        """Whether a predicate goes on with the next token."""
        reader = self.reader
        word = reader.follows
        if word == "NOT":
            word = reader.tokens[reader.next + 1].text.upper()
        return word in MIRRORED or word in _PREDICATES

    def alone(self, operand: Operand) -> Condition:
        """The predicate of an operand that nothing follows: an attribute of booleans, or an error."""
        reader = self.reader
        behind, reader.next = reader.next, operand.end
        condition = self.predicate(operand)
        reader.next = behind
        return condition

    # operands

    def operand(self, expected: str) -> Operand:
        """The operand that comes next: the first one of a predicate, or an attribute behind an operator."""
        reader = self.reader
        first = reader.next
        token = reader.peek
        if token.kind in ("name", "quoted"):
            after = reader.tokens[first + 1]
            if after.word == "(" and token.kind == "name" and is_function(token.text):
                return self.derived.operand()
            if reader.is_date(first):
                return self.derived.operand() if goes_on(reader.tokens[first + 2]) else self.literal()
            if self.is_computed(reader.named(first)):
                return self.derived.operand()
            position = reader.attribute(expected)
            if goes_on(after) and self.schema.attributes[position].kind != POINT:
                reader.next = first
                return self.derived.operand()
            return Operand(first, reader.next, position)
        if token.kind == "value":
            after = reader.tokens[first + 1]
            timed = after.kind == "name" and token.ordinal >= 0 and is_duration("1" + after.text)
            if goes_on(after) or timed:
                expression = self.derived.operand()
                if expression.end > first + 1:
                    return expression
                reader.next = first
            return self.literal()
        if token.word in ("(", "+", "-") or (token.kind == "bad" and is_duration(token.text)):
            return self.derived.operand()
        reader.attribute(expected)
        raise AssertionError(token)

    def literal(self) -> Operand:
        """The literal that comes next."""
        first = self.reader.next
        literal = self.reader.value()
        return Operand(first, self.reader.next, literal=literal)

    def compared_with(self) -> Operand:
        """The operand behind an operator: mostly a literal, and what is none may be an expression."""
        return self.literal() if self.is_literal(self.reader.next) else self.operand("an attribute")

    def is_literal(self, at: int) -> bool:
        """Whether the operand at a place behind an operator is a literal alone, or wrong as one."""
        reader = self.reader
        token = reader.tokens[at]
        if token.kind in ("value", "bad"):
            # with a unit it is a part of a longer operand alone: 5 min + opened
            after = reader.tokens[at + 1]
            return not goes_on(reader.tokens[at + 2] if after.kind == "name" else after)
        if token.kind not in ("name", "quoted"):
            return token.word not in ("+", "-") and (token.word != "(" or self.is_no_operand(at + 1))
        after = reader.tokens[at + 1]
        if reader.is_date(at):
            return not goes_on(reader.tokens[at + 2])
        if after.word == "(" and token.kind == "name":
            return not is_function(token.text)
        return not (self.is_attribute(reader.named(at)) or goes_on(after))

    def is_no_operand(self, at: int) -> bool:
        """Whether a parenthesis before a place opens a list or a query, where an operand should stand."""
        tokens = self.reader.tokens
        if tokens[at].kind == "value":
            return tokens[at + 1].word == ","
        return tokens[at].kind == "name" and self.is_literal(at)

    def is_attribute(self, name: str) -> bool:
        """Whether the schema has an attribute of this name, computed ones included."""
        try:
            self.schema.position(name)
        except SchemaError:
            return self.is_computed(name)
        return True

    def is_computed(self, name: str) -> bool:
        """Whether a name is that of an attribute that the schema computes."""
        if not self.schema.computed:
            return False
        return any(name.casefold() == attribute.name.casefold() for attribute in self.schema.computed)

    # predicates

    def predicate(self, ours: Operand) -> Condition:
        """The predicate of an operand, by what follows that."""
        reader = self.reader
        attribute = self.schema.attributes[ours.position] if ours.position >= 0 else None
        word = reader.follows
        if attribute is not None and attribute.kind == POINT and word != "IS":
            return self.place(ours)
        if word in MIRRORED:
            reader.next += 1
            return self.comparison(ours, word)
        if self.is_constant(ours) and not self.is_among(ours):
            return self.not_compared(ours)
        negated = word == "NOT"
        if negated:
            reader.next += 1
            word = reader.follows
        read = _PREDICATES.get(word)
        if read is not None and not (negated and word in ("IS", "ON")):
            condition = read(self, ours, negated)
            if condition is not None:
                return condition
        if attribute is None or attribute.kind != "bool" or negated:
            reader.fail("BETWEEN or IN" if negated else AN_OPERATOR)
        if word not in ("AND", "OR", ")") and reader.peek.kind != "end":
            reader.fail("AND, OR, an operator (= != IN IS) or the end of the text")
        return Comparison(attribute.name, ours.position, "=", Literal("TRUE"), self.since(ours))

    def is_constant(self, ours: Operand) -> bool:
        """Whether an operand reads no attribute: a literal, or a number with its unit."""
        return ours.literal is not None or (ours.expression is not None and ours.expression.op == "constant")

    def is_among(self, ours: Operand) -> bool:
        """Whether BETWEEN or IN and an expression follow a number: 5 BETWEEN low AND high."""
        tokens, at = self.reader.tokens, self.reader.next
        if ours.literal is not None and (ours.literal.ordinal < 0 or ours.literal.text[0] == "'"):
            return False
        at += tokens[at].word == "NOT"
        if tokens[at].word == "BETWEEN":
            return not self.is_literal(at + 1)
        return tokens[at].word == "IN" and tokens[at + 1].word == "(" and not self.is_literal(at + 2)

    def not_compared(self, ours: Operand) -> NoReturn:
        """Refuse what follows a value in the place of an operator."""
        reader = self.reader
        number = reader.tokens[ours.first]
        if number.kind == "bad":
            reader.next = ours.first
            reader.fail(_BEGINNING, operand=True)
        if ours.literal is None and number.kind == "value" and ours.end == ours.first + 2:
            reader.next = ours.first + 1  # it is the unit that has no place there
        again = ours.first > 0 and reader.tokens[ours.first - 1].word in ("OR", "AND")
        hint = "name the attribute again, or write a list as price IN (5, 6)" if again else ""
        reader.fail(_AFTER_A_VALUE, hint)

    def since(self, ours: Operand) -> Span:
        """From an operand up to the end of the last token taken."""
        return self.reader.since(self.reader.tokens[ours.first].start)

    def comparison(self, ours: Operand, operator: str) -> Condition:
        """The operand behind an operator, which was read, and perhaps a second operator with a third one."""
        reader = self.reader
        if ours.literal is not None:
            return self.value_first(ours, ours.literal, operator)
        if ours.position < 0:
            return self.derived.comparison(ours, operator)
        attribute = self.schema.attributes[ours.position]
        if attribute.kind == "text" and operator in ORDERS:
            return self.derived.comparison(ours, operator)
        if attribute.kind in _STRINGS:
            literal = reader.value()
        else:
            theirs = self.compared_with()
            if theirs.literal is None or self.is_chained(theirs.literal, operator):
                return self.derived.comparison(ours, operator, theirs)
            literal = theirs.literal
        self.check(attribute, operator, literal, ours.position)
        return Comparison(attribute.name, ours.position, operator, literal, self.since(ours))

    def is_chained(self, literal: Literal, operator: str) -> bool:
        """Whether `attribute operator literal` goes on to an operand that is no literal: a < 5 < b."""
        if self.reader.peek.word not in MIRRORED or literal.text[0] == "'" or operator[0] not in "<>":
            return False
        return not self.is_literal(self.reader.next + 1)

    def value_first(self, ours: Operand, literal: Literal, first: str) -> Condition:
        """`5 < price`, and perhaps `< 10` behind it; the first operator was read."""
        reader = self.reader
        if first == "=" and reader.follows == "ANY" and reader.is_call(reader.next):
            reader.next += 2
            position = reader.attribute("an attribute of strings")
            self.close_call()
            return self.has_one(ours, position, literal)
        theirs = self.operand("an attribute")
        if theirs.literal is not None:
            reader.next = theirs.first
            reader.fail("an attribute", operand=True)
        if theirs.position < 0:
            return self.derived.comparison(ours, first, theirs)
        position = theirs.position
        attribute = self.schema.attributes[position]
        if attribute.kind == "text" and first in ORDERS:
            return self.derived.text_chain(literal, first, position)
        if reader.peek.word not in MIRRORED:
            self.check(attribute, MIRRORED[first], literal, position)
            return Comparison(attribute.name, position, MIRRORED[first], literal, self.since(ours))
        rising = first[0] == "<"
        if first in ("=", "!=") or reader.peek.word[0] != first[0]:
            onward = "< or <=" if rising else "> or >="
            reader.fail(f"{onward} to go on with the range" if first[0] in "<>" else "AND or OR")
        second = reader.accept(*MIRRORED)
        other = self.literal() if attribute.kind in _STRINGS else self.compared_with()
        if other.literal is None:
            return self.derived.chain(ours, first, theirs, second, other)
        span = self.since(ours)
        ends = literal, other.literal, MIRRORED[first], second
        if not rising:
            ends = other.literal, literal, second, MIRRORED[first]
        return self.checked(attribute, Range(attribute.name, position, *ends, span=span))

    def between(self, ours: Operand, negated: bool) -> Condition:
        """BETWEEN and both ends."""
        reader = self.reader
        reader.next += 1
        if ours.position < 0 or self.schema.attributes[ours.position].kind == "text":
            return self.derived.between(ours, negated=negated)
        begun = reader.next
        attribute = self.schema.attributes[ours.position]
        end = self.literal if attribute.kind in _STRINGS else self.compared_with
        low = end()
        if not reader.accept("AND"):
            reader.fail(HIGH_END)
        high = end()
        if low.literal is None or high.literal is None:
            reader.next = begun
            return self.derived.between(ours, negated=negated)
        span = self.since(ours)
        between = Range(attribute.name, ours.position, low.literal, high.literal, negated=negated, span=span)
        return self.checked(attribute, between)

    def membership(self, ours: Operand, negated: bool) -> Condition:
        """IN and a list, or networks."""
        reader = self.reader
        reader.next += 1
        if ours.position < 0 or reader.peek.word not in ("(", "["):
            if ours.position < 0 or self.derived.at_network():
                return self.derived.membership(ours, negated=negated)
            reader.fail("( and the values of IN")
        begun = reader.next
        attribute = self.schema.attributes[ours.position]
        values = self.values(attribute, ours.position)
        if values is None:
            reader.next = begun
            return self.derived.membership(ours, negated=negated)
        return Membership(attribute.name, ours.position, values, negated, self.since(ours))

    def values(self, attribute: Attribute, position: int = -1) -> tuple[Literal, ...] | None:
        """Literals in parentheses that an attribute may be equal to; None where some are expressions."""
        reader = self.reader
        closing = ")" if reader.accept("(", "[") == "(" else "]"
        strings = attribute.kind in _STRINGS
        literals: list[Literal] = []
        while not literals or reader.accept(","):
            token = reader.peek
            if literals and _THOUSANDS.fullmatch(token.text) and reader.text[token.start - 1] == ",":
                reader.fail(
                    "a value", "a large number is written 1000 or 1_000; numbers have no leading zeros"
                )
            if strings or (token.kind == "value" and reader.tokens[reader.next + 1].kind == "mark"):
                literal: Literal | None = reader.value()
                if not strings and goes_on(reader.peek):
                    return None
            else:
                literal = self.compared_with().literal
            if literal is None:
                return None
            literals.append(literal)
            # the expander reads a long list of whole numbers at once
            many = attribute.kind == "int" and len(literals) > MANY
            self.check(attribute, "=", literal, -1 if many else position)
        if not reader.accept(closing):
            reader.fail(f"a comma or {closing} in the values of IN")
        return tuple(literals)

    def presence(self, ours: Operand, negated: bool) -> Condition:
        """IS and what it says of a value."""
        reader = self.reader
        reader.next += 1
        negated = bool(reader.accept("NOT"))
        attribute = self.schema.attributes[ours.position] if ours.position >= 0 else None
        if attribute is not None and reader.peek.text.upper() in ("TRUE", "FALSE"):
            return self.is_boolean(ours, attribute, negated)
        word = reader.accept("MISSING", "PRESENT", "NULL")
        if not word:
            truths = ", TRUE, FALSE" if attribute is not None and attribute.kind == "bool" else ""
            ends = "MISSING or PRESENT" if negated else "MISSING, PRESENT or NOT"
            reader.fail(ends.replace(" or", truths + " or"))
        present = (word == "PRESENT") is not negated
        if attribute is None:
            return self.derived.presence(ours, present=present)
        return Presence(attribute.name, ours.position, present, self.since(ours))

    def is_boolean(self, ours: Operand, attribute: Attribute, negated: bool) -> Condition:
        """IS TRUE is equality; IS NOT TRUE, as in SQL, holds for a missing value too."""
        literal = self.reader.value()
        if attribute.kind != "bool":
            shown = f"{attribute.name!r} is {attribute.article} {attribute.kind}"
            message = f"IS {literal.text.upper()} is for a bool, {shown}"
            raise error_at(message, self.reader.text, literal.start)
        span, name = self.since(ours), attribute.name
        if not negated:
            return Comparison(name, ours.position, "=", literal, span)
        other = Comparison(name, ours.position, "!=", literal, span)
        return Or((other, Presence(name, ours.position, False, span)), span)

    def fitting(self, ours: Operand, negated: bool) -> Condition:
        """LIKE, CONTAINS and so on."""
        return self.derived.fitting(ours, negated=negated)

    def on_day(self, ours: Operand, negated: bool) -> Condition | None:
        """ON and a date."""
        if ours.position < 0:
            return None
        self.reader.next += 1
        attribute = self.schema.attributes[ours.position]
        literal = self.reader.value()
        self.check(attribute, "ON", literal, ours.position)
        return Comparison(attribute.name, ours.position, "ON", literal, self.since(ours))

    def has(self, ours: Operand, negated: bool) -> Condition | None:
        """HAS and a string, or ANY, ALL or NONE of several."""
        if ours.position < 0:
            return None
        reader = self.reader
        attribute, position = self.schema.attributes[ours.position], ours.position
        reader.next += 1
        word = reader.follows
        several = word in ("ANY", "ALL", "NONE")
        reader.next += several
        if several and reader.peek.word not in ("(", "["):
            reader.fail(f"( and the strings of HAS {word}")
        if not isinstance(attribute, Category):
            shown = f"{attribute.name!r} is {attribute.article} {attribute.kind}"
            start = reader.tokens[ours.first].start
            raise error_at(f"HAS takes an attribute of strings, {shown}", reader.text, start)
        alike = Category(attribute.name, attribute.vocabulary)  # to which a string may be equal
        if reader.peek.word in ("(", "["):
            literals = self.values(alike)
            assert literals is not None
        else:
            literals = (reader.value(),)
            self.check(alike, "=", literals[0])
        self.having = True
        reader.irregular |= any(one.ordinal < 0 and one.text[0] == "'" for one in literals)
        reader.irregular |= self.schema.traits.single_columns
        span = self.since(ours)
        if word == "ALL":
            each: tuple[Condition, ...] = tuple(
                Has(attribute.name, position, (one,), span) for one in literals
            )
            condition: Condition = each[0] if len(each) == 1 else And(each, span)
        else:
            condition = Has(attribute.name, position, literals, span)
        for _ in range((word == "NONE") + negated):
            condition = Not(condition, span)
        return condition

    # calls of other languages

    def list_contains(self) -> Condition:
        """list_contains(tags, 'x'), which is tags HAS 'x'."""
        reader = self.reader
        first = reader.next
        reader.next += 2
        position = reader.attribute("an attribute of strings")
        if not reader.accept(","):
            reader.fail("a comma and a string")
        literal = reader.value()
        self.close_call()
        return self.has_one(Operand(first, reader.next), position, literal)

    def has_one(self, ours: Operand, position: int, literal: Literal) -> Condition:
        """One of the values of an attribute is a string."""
        reader = self.reader
        attribute = self.schema.attributes[position]
        if not isinstance(attribute, Category):
            shown = f"{attribute.name!r} is {attribute.article} {attribute.kind}"
            start = reader.tokens[ours.first].start
            raise error_at(f"a list takes an attribute of strings, {shown}", reader.text, start)
        self.check(Category(attribute.name, attribute.vocabulary), "=", literal)
        self.having = True
        reader.irregular = True
        return Has(attribute.name, position, (literal,), self.since(ours))

    def beginning(self) -> Condition:
        """left(name, 2) = 'AB', which is name STARTS WITH 'AB'; substring(name, 1, 2), and right(name, 2)."""
        reader = self.reader
        first = reader.next
        word = reader.follows
        reader.next += 2
        text = self.derived.operand()
        numbers = []
        while reader.accept(","):
            numbers.append(reader.value().text)
        self.close_call()
        if word in ("SUBSTR", "SUBSTRING"):
            if len(numbers) != 2 or numbers[0] != "1":
                message = f"{word.lower()} takes a text, 1 and a length; for others write LIKE '_B%'"
                raise error_at(message, reader.text, reader.tokens[first].start)
            numbers.pop(0)
        if len(numbers) != 1 or not numbers[0].isdecimal():
            message = f"{word.lower()} takes a text and a length"
            raise error_at(message, reader.text, reader.tokens[first].start)
        whole = text._replace(first=first, end=reader.next)
        return self.derived.ending(whole, int(numbers[0]), last=word == "RIGHT")

    def close_call(self) -> None:
        """Take a closing parenthesis."""
        if not self.reader.accept(")"):
            self.reader.fail(")")

    # values of attributes

    def checked(self, attribute: Attribute, condition: Range) -> Range:
        """A range whose ends the attribute can be compared with, the low one not above the high one."""
        closed = condition.above == ">=" and condition.below == "<="
        shown = "BETWEEN" if closed else condition.below
        if attribute.kind in (*_STRINGS, "bool"):
            self.check(attribute, shown, condition.low)
        low = self.check(attribute, condition.above, condition.low, condition.position)
        high = self.check(attribute, condition.below, condition.high, condition.position)
        try:
            check_order(attribute, low, high)
        except SchemaError as error:
            start = min(condition.low.start, condition.high.start)
            raise error_at(str(error), self.reader.text, start) from None
        return condition

    def check(self, attribute: Attribute, operator: str, literal: Literal, position: int = -1) -> Value:
        """The literal's value, if the attribute can be compared with it in this way; its spans are kept for
        an attribute that has a position already."""
        try:
            value = value_of(literal.text)
            kind = attribute.kind
            if operator != "ON":
                if isinstance(value, dt.datetime) and kind != "timestamp":
                    got = f"the timestamp {literal.text}"
                    raise SchemaError(f"{attribute.name!r} is {attribute.article} {kind}, got {got}")
                if kind == "bool" and operator not in ("=", "!="):
                    shown = f"{operator} {literal.text}"
                    raise SchemaError(
                        f"{attribute.name!r} is a bool: it takes = != IN and IS TRUE, got {shown}"
                    )
                if kind == "tags":
                    raise SchemaError(
                        f"{attribute.name!r} has several values: write {attribute.name} HAS {literal.text}, "
                        "or HAS ANY, ALL or NONE of several"
                    )
                if kind in _STRINGS and operator not in ("=", "!="):
                    shown = f"{operator} {literal.text}"
                    raise SchemaError(f"{attribute.name!r} is a category: it takes = != IN, got {shown}")
            if kind in _STRINGS and isinstance(value, str) and operator != "ON":
                return value  # a string may be new: bracketing would name it
            if position >= 0:
                self.spans.of(position, operator, literal.text)
            else:
                attribute.bracket(float(value) if isinstance(value, Decimal) else value)
            return value
        except (SchemaError, LanguageError) as error:
            message = str(error) + _quoting(attribute, operator, literal)
            raise error_at(message, self.reader.text, literal.start) from None

    # points

    def place(self, ours: Operand) -> Condition:
        """A predicate on a point."""
        reader = self.reader
        negated = bool(reader.accept("NOT"))
        word = reader.follows
        if word == "WITHIN":
            reader.next += 1
            area = self.circle(ours)
        elif reader.accept("IN"):
            word = reader.follows
            if word not in ("BOX", "POLYGON"):
                reader.fail("BOX (west, south, east, north) or POLYGON 'POLYGON((...))'")
            reader.next += 1
            area = self.map_box(ours) if word == "BOX" else self.polygon(ours)
        else:
            reader.fail(_TAKES.replace(", IS", "") if negated else _TAKES)
        try:
            extent_of(area) if area.area == "box" else word_of(area)
        except SchemaError as error:
            message = str(error) if isinstance(error, LanguageError) else f"{area.attribute!r}: {error}"
            raise error_at(message, reader.text, area.literals[0].start) from None
        return Not(area, self.since(ours)) if negated else area

    def circle(self, ours: Operand) -> Inside:
        """A distance, OF and a centre."""
        reader = self.reader
        token = reader.peek
        attached = _DISTANCE.match(token.text)
        if token.kind == "bad" and attached is not None:
            reader.next += 1
            reader.irregular = True
            distance = Literal(attached[1], token.start)
            unit = attached[2]
        else:
            distance = self.number()
            word = reader.peek.text.lower()
            unit = _LONG_UNITS.get(word, word)
            if unit not in UNITS:
                reader.fail("the unit of the distance (m, km or mi)")
            reader.next += 1
        if reader.follows != "OF":
            reader.fail("OF and the centre, as (13.4, 52.5)")
        reader.next += 1
        centre = self.numbers(2, "longitude and latitude")
        return self.area(ours, "circle", (distance, *centre), unit)

    def map_box(self, ours: Operand) -> Inside:
        """The four ends of a box."""
        return self.area(ours, "box", self.numbers(4, "west, south, east and north"))

    def polygon(self, ours: Operand) -> Inside:
        """A polygon as a string."""
        reader = self.reader
        if reader.peek.kind != "value" or reader.peek.text[:1] not in ("'", "\u2018", "\u201c"):
            reader.fail("a polygon in quotes, as 'POLYGON((13 52, 14 52, 14 53, 13 52))'")
        return self.area(ours, "polygon", (reader.value(),))

    def numbers(self, n: int, what: str) -> tuple[Literal, ...]:
        """So many numbers in parentheses."""
        reader = self.reader
        if not reader.accept("("):
            reader.fail(f"( and {what}")
        numbers = [self.number()]
        while reader.accept(","):
            numbers.append(self.number())
        if len(numbers) != n or not reader.accept(")"):
            reader.fail(f"{what} in parentheses, {n} numbers")
        return tuple(numbers)

    def number(self) -> Literal:
        """The number that comes next."""
        token = self.reader.peek
        if token.kind != "value" or token.text[0] not in "0123456789.+-\u2212\u2013":
            self.reader.fail("a number", operand=True)
        return self.reader.value()

    def area(self, ours: Operand, kind: str, literals: tuple[Literal, ...], unit: str = "") -> Inside:
        """A predicate that asks for an area, on the hidden attributes of a point."""
        name = self.schema.attributes[ours.position].name
        of = expressions.attribute(name, POINT)
        drafts = self.derived.drafts
        longitude, latitude = (
            drafts.place(expressions.called(word, (of,)))[0] for word in ("longitude", "latitude")
        )
        span = self.since(ours)
        return Inside(name, ours.position, kind, literals, unit, longitude, latitude, span)


_DISTANCE = re.compile(rf"({NUMBER})({'|'.join(UNITS)})\Z")
_LONG_UNITS = {
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "kilometer": "km", "kilometers": "km",
    "kilometre": "km", "kilometres": "km", "mile": "mi", "miles": "mi",
}  # fmt: skip
_TAKES = "an operator (WITHIN 500 m OF (13.4, 52.5), IN BOX (...), IN POLYGON '...', IS)"

# How a predicate goes on behind its first operand, by the word that stands there. A reader gives None for an
# operand that does not go with the word.
_PREDICATES: dict[str, Callable[[_Parser, Operand, bool], Condition | None]] = {
    "BETWEEN": _Parser.between,
    "IN": _Parser.membership,
    "IS": _Parser.presence,
    "ON": _Parser.on_day,
    "HAS": _Parser.has,
    **dict.fromkeys(PATTERNS, _Parser.fitting),
}


# Calls that begin a predicate of their own, as other languages write it.
_CALLS: dict[str, Callable[[_Parser], Condition]] = {
    **dict.fromkeys(("LIST_CONTAINS", "ARRAY_CONTAINS", "ARRAY_HAS"), _Parser.list_contains),
    **dict.fromkeys(("LEFT", "RIGHT", "SUBSTR", "SUBSTRING"), _Parser.beginning),
}


def _quoting(attribute: Attribute, operator: str, literal: Literal) -> str:
    """What to say where a literal has quotes that it should not have, or none."""
    text = literal.text
    if attribute.kind in ("int", "float") and _NUMBER.match(text[1:-1]):
        return f"; a number stands without quotes: {text[1:-1].strip()}"
    if attribute.kind in ("category", "text") and text[0] != "'" and operator in ("=", "!="):
        return f"; a string is written {quoted_string(text)}"
    return ""


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
