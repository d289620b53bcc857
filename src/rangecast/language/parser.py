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
                | a predicate on an expression (operands.py)
                | a predicate on a point (places.py)
    operator    = "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    value       = 'string' | number | [ sign ] INF | TRUE | FALSE | timestamp
    attribute   = name | "name in double quotes"

Tokens, names and values are read by token_reader.py. Nothing is added to a category's dictionary yet, nor
to the hidden attributes of the schema before the whole text was read: a text that fails leaves nothing
behind.
"""

from __future__ import annotations

from rangecast.errors import CapacityError, LanguageError
from rangecast.language.operands import ORDERS
from rangecast.language.places import PlaceReader
from rangecast.language.tags import settled
from rangecast.language.token_reader import MIRRORED
from rangecast.language.tokens import describe_position, error_at
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Has,
    Literal,
    Membership,
    Not,
    Or,
    Presence,
    Range,
)
from rangecast.types.attributes import Attribute, Category
from rangecast.types.columns import is_unicode
from rangecast.types.schema import Schema

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
