"""Reading predicates on expressions: `price * quantity > 1000`, `bid > ask`, `hour(at) BETWEEN 9 AND 16`.

    predicate   = operand operator operand [ operator operand ]
                | operand [ NOT ] BETWEEN operand AND operand
                | operand [ NOT ] IN "(" operand { "," operand } ")"
                | operand IS [ NOT ] ( MISSING | PRESENT | NULL )
                | operand [ NOT ] ( LIKE | ILIKE | CONTAINS | MATCHES | STARTS WITH | ENDS WITH ) string
                | operand [ NOT ] IN ( network | NETWORKS "(" network { "," network } ")" )

Operands are read by types/expression_text.py, and conditions made of them by derivation.py. Where a single
literal stands on the right and none on the left, the predicate keeps it as such, so that texts that differ
in it alone are compiled together (templates.py); strings have to be alike for that, in what the
predicate notes (literal_forms.py). Any other text is read by itself.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from rangecast.errors import LanguageError, SchemaError
from rangecast.language.derivation import weekday
from rangecast.language.habits import hint_at
from rangecast.language.literal_forms import Likeness, string_in
from rangecast.language.token_reader import MIRRORED, TokenReader
from rangecast.language.tokens import CURLY, error_at
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Fits,
    Literal,
    LiteralInterval,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Span,
    Stated,
    Within,
    value_of,
)
from rangecast.types import expressions
from rangecast.types.attributes import Timestamp
from rangecast.types.columns import describe
from rangecast.types.derived import derived_attribute
from rangecast.types.expression_text import ExpressionError
from rangecast.types.expressions import DURATION, FUNCTIONS, Expression
from rangecast.types.names import unquoted

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
