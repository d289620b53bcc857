"""Predicates on expressions: `price * quantity > 1000`, `bid > ask`, `hour(at) BETWEEN 9 AND 16`.

    predicate   = operand operator operand [ operator operand ]
                | operand [ NOT ] BETWEEN operand AND operand
                | operand [ NOT ] IN "(" operand { "," operand } ")"
                | operand IS [ NOT ] ( MISSING | PRESENT | NULL )
                | operand [ NOT ] ( LIKE | ILIKE | CONTAINS | MATCHES | STARTS WITH | ENDS WITH ) string
                | operand [ NOT ] IN ( network | NETWORKS "(" network { "," network } ")" )

`parser.py` reads the first operand and hands the predicate over to `ExpressionPredicates`, which it makes
when a text has its first expression. Operands themselves are read by types/expressions.py. Here they become
conditions on hidden attributes (`Drafts`): a comparison of two expressions is one of an expression with a
constant, and so an interval of the codes of a hidden attribute (types/derived.py). One of text is a condition
on as many hidden attributes as the string has parts of eight bytes: `name < 'abcdefghij'` is
`p0 < 'abcdefgh' OR p0 = 'abcdefgh' AND p1 < 'ij'`.

Where a single literal stands on the right and none on the left, the predicate keeps it as such, so that texts
that differ in it alone are compiled together (templates.py); strings have to be alike for that, in what the
predicate notes (`Likeness`). Any other text is read by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from rangecast.errors import LanguageError, SchemaError
from rangecast.language.normal_form import check_order
from rangecast.language.tokens import ARITHMETIC, CURLY, Token, TokenReader, error_at, goes_on, hint_at
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Fits,
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
    Within,
    is_out_of_range,
    n_parts,
    quoted_string,
    string_in,
    value_of,
    what_is_wrong_with,
)
from rangecast.types import addresses, expressions
from rangecast.types.attributes import Attribute, Timestamp
from rangecast.types.columns import describe
from rangecast.types.derived import MAX_DERIVED, PART, derived_attribute, spans_of_number
from rangecast.types.expressions import (
    DURATION,
    RANGES,
    WEEKDAYS,
    Expression,
    ExpressionError,
    ExpressionReader,
)
from rangecast.types.patterns import HELD, like_pieces
from rangecast.types.schema import Schema

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
ORDERS = ("<", "<=", ">", ">=")
PATTERNS = ("LIKE", "ILIKE", "CONTAINS", "MATCHES", "STARTS", "ENDS")
AN_OPERATOR = "an operator (= != < <= > >= BETWEEN IN IS)"
HIGH_END = "AND and the high end of BETWEEN"

_ALIKE_IN = {"LIKE": "like", "ILIKE": "like", "MATCHES": "regular expression"}
# in steps of ExpressionReader: a comparison takes about as long as so many terms
_COMPARISON = 64


class Operand(NamedTuple):
    """What stands beside an operator: an attribute, a literal or an expression.

    It has the tokens from `first` up to `end`. An attribute (`position`) or a literal becomes an expression
    only where the predicate needs one. `inner` is its own token where `first` is a parenthesis around it.
    """

    first: int
    end: int
    position: int = -1
    literal: Literal | None = None
    expression: Expression | None = None
    inner: int = -1

    def within(self, opening: int) -> Operand:
        """The operand in parentheses that open at a token."""
        return self._replace(first=opening, inner=self.first if self.inner < 0 else self.inner)


class ExpressionPredicates:
    """Reads the predicates on expressions of one text, from their first operand on."""

    def __init__(self, reader: TokenReader, check: Callable[[Attribute, str, Literal], object]) -> None:
        """`check` raises an error at a literal that an attribute cannot be compared with."""
        self.drafts = Drafts(reader.schema)
        self._reader = reader
        self._check = check
        self._expressions = ExpressionReader(reader.tokens, reader.schema.operands)
        self._likenesses: list[Likeness] = []
        self._odd: tuple[str, str] | None = None

    # operands

    def operand(self, factor: Operand | None = None) -> Operand:
        """The expression that comes next, or that goes on behind a factor in parentheses."""
        reader = self._reader
        begun = None if factor is None else self.expression_of(factor)
        first = reader.next if factor is None else factor.first
        expression = self._read(reader.next, begun)
        return Operand(first, reader.next, expression=expression)

    def expression_of(self, operand: Operand) -> Expression:
        """An operand as an expression; LanguageError for what is none."""
        if operand.expression is not None:
            return operand.expression
        next_before = self._reader.next
        expression = self._read(operand.first if operand.inner < 0 else operand.inner, None)
        self._reader.next = next_before
        return expression

    def _read(self, at: int, factor: Expression | None) -> Expression:
        reader = self._reader
        try:
            expression, reader.next = self._expressions.operand(at, factor)
        except ExpressionError as error:
            token = reader.tokens[error.at]
            # of an operator, the error says all
            hint = "" if token.word in ARITHMETIC else hint_at(reader.text, token.start, True)
            raise error_at(f"{error}{hint and '; ' + hint}", reader.text, token.start) from None
        return expression

    def _is_plain(self, operand: Operand) -> bool:
        """Whether it has no literals, which another text of the same shape would have others of."""
        return not any(token.ordinal >= 0 for token in self._reader.tokens[operand.first : operand.end])

    # predicates

    def comparison(self, ours: Operand, operator: str, theirs: Operand | None = None) -> Condition:
        """`ours operator theirs`, and perhaps another one behind it; the operator was read."""
        return self._stated(ours, lambda of: self._compared_with(ours, of, operator, theirs))

    def chain(self, low: Operand, first: str, ours: Operand, second: str, high: Operand) -> Condition:
        """`low first ours second high`, all of which were read."""

        def made(of: Expression) -> Condition:
            self._reader.irregular = True
            span = self._since(low)
            middle = self.expression_of(ours)
            before = self._compared(of, first, middle, span)
            return And((before, self._compared(middle, second, self.expression_of(high), span)), span)

        return self._stated(low, made)

    def text_chain(self, literal: Literal, first: str, position: int) -> Condition:
        """'A' <= name, and perhaps < 'C' after it; the first operator and the attribute were read."""
        reader = self._reader
        ours = expressions.attribute(reader.schema.attributes[position].name, "text")
        ends = [(MIRRORED[first], literal)]
        if reader.peek.word in ORDERS:
            if reader.peek.word[0] != first[0]:
                reader.fail(f"{first[0]} or {first[0]}= to go on with the range")
            second = reader.accept(*ORDERS)
            ends.append((second, reader.value()))
        span = reader.since(literal.start)
        parts: list[Condition] = []
        for operator, end in ends:
            value = value_of(end.text)
            if not isinstance(value, str):
                raise error_at(f"{ours.text!r} is a text, got {describe(value)}", reader.text, end.start)
            self._share("string", end)
            parts.append(self.drafts.compared_text(ours, operator, end, span))
        part = parts[0] if len(parts) == 1 else And(tuple(parts), span)
        return self._noted(ours, position, part, span)

    def presence(self, ours: Operand, *, present: bool) -> Condition:
        """IS PRESENT and IS MISSING."""

        def made(of: Expression) -> Condition:
            self._reader.irregular |= not self._is_plain(ours)
            position, attribute = self.drafts.place(of)
            return Presence(attribute.name, position, present, self._since(ours))

        return self._stated(ours, made)

    def between(self, ours: Operand, *, negated: bool) -> Condition:
        """BETWEEN, from its low end on."""
        return self._stated(ours, lambda of: self._denied(ours, self._ranged(ours, of), negated))

    def membership(self, ours: Operand, *, negated: bool) -> Condition:
        """IN, from its opening parenthesis or its network on."""
        read = self._networks if self.at_network() else self._listed
        return self._stated(ours, lambda of: self._denied(ours, read(ours, of), negated))

    def fitting(self, ours: Operand, *, negated: bool) -> Condition:
        """LIKE, CONTAINS, STARTS WITH and so on, and a string."""
        return self._stated(ours, lambda of: self._denied(ours, self._fitted(ours, of), negated))

    def ending(self, ours: Operand, size: int, *, last: bool) -> Condition:
        """The first or last `size` characters of a text, from = != or IN on."""
        reader = self._reader
        reader.irregular = True
        operator = reader.accept("=", "!=", "IN", "NOT")
        listed = operator == "IN" or (operator == "NOT" and bool(reader.accept("IN")))
        if not listed and operator not in ("=", "!="):
            reader.fail("= != or IN")
        if listed and not reader.accept("("):
            reader.fail("( and the values of IN")

        def made(of: Expression) -> Condition:
            ways: list[Condition] = []
            while not ways or (listed and reader.accept(",")):
                literal = reader.value()
                string = value_of(literal.text)
                if not isinstance(string, str) or of.kind != "text":
                    raise SchemaError(f"{of.text} is {of.kind}, got {literal.text}")
                if len(string) > size:
                    message = f"{size} characters never equal the {len(string)} of {literal.text}"
                    raise error_at(message, reader.text, literal.start)
                span = self._since(ours)
                if len(string) < size:  # then it is the whole text
                    ways.append(self.drafts.compared_text(of, "=", literal, span))
                elif last:
                    ways.append(self.drafts.ends(of, literal, span))
                else:
                    ways.append(self.drafts.begins(of, literal, span))
            if listed and not reader.accept(")"):
                reader.fail("a comma or ) in the values of IN")
            part = ways[0] if len(ways) == 1 else Or(tuple(ways), self._since(ours))
            return self._denied(ours, part, operator in ("NOT", "!="))

        return self._stated(ours, made)

    def at_network(self) -> bool:
        """Whether networks follow an IN: one as a string without parentheses, or the word NETWORKS."""
        reader = self._reader
        token = reader.peek
        if token.text[:1] in ("'", *CURLY):
            return "/" in token.text
        return reader.follows == "NETWORKS" and reader.tokens[reader.next + 1].word == "("

    def _stated(self, ours: Operand, made: Callable[[Expression], Condition]) -> Stated:
        """A predicate with what was noted while it was read; an error about it as a whole points at its
        operator."""
        reader = self._reader
        of = self.expression_of(ours)
        try:
            part = made(of)
        except SchemaError as error:
            if isinstance(error, LanguageError):
                raise
            operator, after = (reader.tokens[min(ours.end + k, len(reader.tokens) - 1)] for k in (0, 1))
            hint = "" if after.text[:1] == "'" else hint_at(reader.text, after.start, True)
            raise error_at(f"{error}{hint and '; ' + hint}", reader.text, operator.start) from None
        position = _first_position(part)
        span = self._since(ours)
        if of.op == "attribute" and of.kind == "text":
            return self._noted(of, reader.schema.position(of.value), part, span)
        return self._noted(self._expression_at(position), position, part, span)

    def _noted(self, of: Expression, position: int, part: Condition, span: Span) -> Stated:
        likenesses = tuple(self._likenesses)
        odd = self._odd
        self._likenesses = []
        self._odd = None
        return Stated(self._reader.text[slice(*span)], of, position, part, likenesses, odd, span)

    def _denied(self, ours: Operand, part: Condition, negated: bool) -> Condition:
        return Not(part, self._since(ours)) if negated else part

    def _since(self, ours: Operand) -> Span:
        return self._reader.since(self._reader.tokens[ours.first].start)

    def _share(self, what: str, literal: Literal) -> None:
        """Note in what a literal must be alike, so that texts share this one's tree."""
        self._reader.irregular |= literal.ordinal < 0
        self._likenesses.append(Likeness(what, (literal,)))

    def _note_range(self, of: Expression, operator: str, literal: Literal) -> None:
        """Note that a function never gives a number."""
        if of.op not in RANGES:
            return
        if is_out_of_range(of.op, operator, literal.text):
            low, high = RANGES[of.op]
            limits = f"{low} to {high}" if high < math.inf else f"{low} and more"
            meant = f"a number that it gives, {limits}"
            if of.op == "weekday":
                meant += ", Monday being 1 and Sunday 7"
            self._odd = f"{of.text} {operator} {literal.text}: {of.text} gives {limits}", meant
            self._reader.irregular = True

    def _note_letters(self, of: Expression, operator: str, literal: Literal, string: str) -> None:
        """Note that a string must have the letters that `lower` or `upper` gives."""
        if of.op not in ("lower", "upper") or operator not in ("=", "!="):
            return
        self._share(of.op, literal)
        changed = string.lower() if of.op == "lower" else string.upper()
        if changed != string:
            self._odd = f"{of.text} never equals {literal.text}", quoted_string(changed)
            self._reader.irregular = True

    def _expression_at(self, position: int) -> Expression:
        """The expression of the attribute at a position."""
        schema = self._reader.schema
        fresh = position - self.drafts.width
        attribute = self.drafts.fresh[fresh] if fresh >= 0 else schema.attribute(position)
        if attribute.expression is not None:
            return attribute.expression
        kind = schema.operands[attribute.name]
        assert isinstance(kind, str)
        return expressions.attribute(attribute.name, kind)

    # what predicates consist of

    def _compared(self, ours: Expression, operator: str, theirs: Expression, span: Span) -> Condition:
        """A comparison of two expressions, whose terms are all gone through."""
        self._expressions.spend(self._reader.next - 1, _COMPARISON + len(ours.args) + len(theirs.args))
        return self.drafts.compared(ours, operator, theirs, span)

    def _compared_with(
        self, ours: Operand, of: Expression, operator: str, theirs: Operand | None
    ) -> Condition:
        reader = self._reader
        plain = self._is_plain(ours)
        if theirs is None:
            if self._at_text(of):
                return self._compared_with_text(ours, of, operator)
            if plain and self._stands_alone(of):
                # the shape of the text says all but this literal, so texts that differ in it share a tree
                literal = reader.value()
                self._check(derived_attribute(of), operator, literal)
                self._note_range(of, operator, literal)
                form = canonical(of)
                position, attribute = self.drafts.place(form.expression)
                if form.negated:
                    operator, literal = MIRRORED[operator], literal.changed("negated")
                return Comparison(attribute.name, position, operator, literal, self._since(ours))
            theirs = self.operand()
        reader.irregular |= not plain or not self._is_plain(theirs)
        other = self.expression_of(theirs)
        part = self._compared(of, operator, other, self._since(ours))
        onward = reader.peek.word
        if onward not in MIRRORED:
            return part
        if operator[0] not in "<>" or onward[0] != operator[0]:
            reader.fail("AND, OR or the end of the text")
        reader.next += 1
        reader.irregular = True
        last = self.expression_of(self.operand())
        return And((part, self._compared(other, onward, last, self._since(ours))), self._since(ours))

    def _compared_with_text(self, ours: Operand, of: Expression, operator: str) -> Condition:
        reader = self._reader
        literal = reader.value()
        reader.irregular |= not self._is_plain(ours) or of.kind != "text"
        value, span = value_of(literal.text), self._since(ours)
        if of.op == "weekday" and isinstance(value, str):
            return self.drafts.within(of, operator, Fraction(weekday(value)), span)
        if of.kind == "instant" and isinstance(value, str):
            instant = Timestamp("at").bracket(value)[0]
            return self._compared(of, operator, expressions.constant(Fraction(instant), "instant"), span)
        if not isinstance(value, str) or of.kind != "text":
            raise SchemaError(f"{of.text} is {of.kind}, got {describe(value)}")
        self._share("string", literal)
        self._note_letters(of, operator, literal, value)
        return self.drafts.compared_text(of, operator, literal, span)

    def _ranged(self, ours: Operand, of: Expression) -> Condition:
        reader = self._reader
        plain, begun = self._is_plain(ours), reader.next
        if plain and not self._at_text(of) and self._stands_alone(of):
            low = reader.value()
            if not reader.accept("AND"):
                reader.fail(HIGH_END)
            if self._stands_alone(of):
                return self._plain_range(ours, of, low, reader.value())
            reader.next = begun
        ends: list[Condition] = []
        written: list[Token] = []
        for operator in (">=", "<="):
            if ends and not reader.accept("AND"):
                reader.fail(HIGH_END)
            written.append(reader.peek)
            if self._at_text(of):
                ends.append(self._compared_with_text(ours, of, operator))
            else:
                reader.irregular = True
                theirs = self.expression_of(self.operand())
                ends.append(self._compared(of, operator, theirs, self._since(ours)))
        if of.kind == "text" and all(token.text[0] == "'" for token in written):
            least, most = (string_in(token.text) for token in written)
            if least > most:
                raise SchemaError(f"low must not exceed high on {of.text!r}, got [{least}, {most}]")
            both = [literal for likeness in self._likenesses[-2:] for literal in likeness.literals]
            self._likenesses[-2:] = [Likeness("ascending", tuple(both))]
        return And(tuple(ends), self._since(ours))

    def _plain_range(self, ours: Operand, of: Expression, low: Literal, high: Literal) -> Condition:
        """Two literals that stand alone around an expression."""
        as_it_stands, span, form = derived_attribute(of), self._since(ours), canonical(of)
        for literal in (low, high):
            self._check(as_it_stands, "BETWEEN", literal)
        try:
            check_order(as_it_stands, value_of(low.text), value_of(high.text))
        except SchemaError as error:
            raise error_at(str(error), self._reader.text, low.start) from None
        self._note_range(of, ">=", low)
        self._note_range(of, "<=", high)
        position, attribute = self.drafts.place(form.expression)
        if form.negated:
            low, high = high.changed("negated"), low.changed("negated")
        return Range(attribute.name, position, low, high, span=span)

    def _listed(self, ours: Operand, of: Expression) -> Condition:
        reader = self._reader
        opening = reader.accept("(", "[")
        if not opening:
            reader.fail("( and the values of IN")
        if self._is_plain(ours) and not self._at_text(of):
            whole = self._whole_list(ours, of)
            if whole is not None:
                return whole
        ways: list[Condition] = []
        while not ways or reader.accept(","):
            if self._at_text(of):
                ways.append(self._compared_with_text(ours, of, "="))
            else:
                reader.irregular = True
                theirs = self.expression_of(self.operand())
                ways.append(self._compared(of, "=", theirs, self._since(ours)))
        if not reader.accept(")" if opening == "(" else "]"):
            reader.fail("a comma or ) in the values of IN")
        return ways[0] if len(ways) == 1 else Or(tuple(ways), self._since(ours))

    def _whole_list(self, ours: Operand, of: Expression) -> Condition | None:
        """The values of an IN as literals, or None and nothing read where one of them is no literal alone."""
        reader = self._reader
        before, form = reader.next, canonical(of)
        attribute = derived_attribute(of)
        literals: list[Literal] = []
        while not literals or reader.accept(","):
            if reader.peek.text[:1] in ("'", *CURLY) or not (form.plain and self._literal_alone(of)):
                reader.next = before
                return None
            literals.append(reader.value())
            self._check(attribute, "=", literals[-1])
        if not reader.accept(")", "]"):
            reader.next = before
            return None
        for literal in literals:
            self._note_range(of, "=", literal)
        if form.negated:
            literals = [literal.changed("negated") for literal in literals]
        position, attribute = self.drafts.place(form.expression)
        return Membership(attribute.name, position, tuple(literals), span=self._since(ours))

    def _networks(self, ours: Operand, of: Expression) -> Condition:
        """A network, or several in parentheses."""
        reader = self._reader
        several = reader.follows == "NETWORKS"
        reader.next += 2 * several
        reader.irregular |= not self._is_plain(ours)
        ways: list[Condition] = []
        while not ways or (several and reader.accept(",")):
            literal = reader.value()
            value = value_of(literal.text)
            if not isinstance(value, str) or of.kind != "text":
                shown = f"{of.text} is {of.kind}, got {literal.text}"
                raise SchemaError(f"IN and a network takes text and a string, and {shown}")
            literal = literal.changed("stripped")
            self._share("network", literal)
            ways.append(self.drafts.in_network(of, literal, self._since(ours)))
        if several and not reader.accept(")"):
            reader.fail("a comma or ) in the networks of IN")
        return ways[0] if len(ways) == 1 else Or(tuple(ways), self._since(ours))

    def _fitted(self, ours: Operand, of: Expression) -> Condition:
        reader = self._reader
        word = reader.follows
        reader.next += 1
        affix = word in ("STARTS", "ENDS")
        if affix:
            if reader.peek.text.upper() != "WITH":
                reader.fail("WITH")
            reader.next += 1
        literal = reader.value()
        single = reader.schema.traits.single_columns and not affix
        reader.irregular |= not self._is_plain(ours) or single
        value = value_of(literal.text)
        if not isinstance(value, str) or of.kind != "text":
            raise SchemaError(
                f"{word} takes text and a string, and {of.text} is {of.kind}, got {literal.text}"
            )
        span = self._since(ours)
        if word == "ILIKE":
            of, literal = expressions.called("lower", (of,)), literal.changed("small letters")
        reader.irregular |= literal.ordinal < 0
        if word != "CONTAINS":
            self._share(_ALIKE_IN.get(word, "string"), literal)
        match word:
            case "STARTS":
                return self.drafts.begins(of, literal, span)
            case "ENDS":
                return self.drafts.ends(of, literal, span)
            case "CONTAINS":
                return self.drafts.fits("contains", of, literal, span)
            case "MATCHES":
                return self.drafts.matches(of, literal, span)
            case _:
                return self.drafts.like(of, literal, span)

    def _at_text(self, of: Expression) -> bool:
        """Whether a string comes next, or must come."""
        return of.kind == "text" or self._reader.peek.text[:1] in ("'", *CURLY)

    def _stands_alone(self, of: Expression) -> bool:
        """Whether a single literal comes next, and the expression before it is as its attribute has it."""
        return self._literal_alone(of) and canonical(of).plain

    def _literal_alone(self, of: Expression) -> bool:
        """Whether a single literal comes next that an expression can be compared with as it stands."""
        token = self._reader.peek
        if token.kind != "value" or token.ordinal < 0 or of.kind == DURATION:
            return False
        after = self._reader.tokens[self._reader.next + 1]
        return after.kind != "name" and after.word not in MIRRORED and not goes_on(after)


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


# What is not below a string is an AND of as many ORs as it has parts: 24 take half a second to expand, and
# 32 more than is allowed.
_ORDERED_PARTS = 24


class Drafts:
    """The hidden attributes that one text needs, and conditions on them.

    What a text needs that no text before it did is a draft until the whole text was read: a text that fails
    leaves nothing behind.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.width = schema.width
        self.fresh: list[Attribute] = []
        self._numbers: dict[str, int] = {}

    def keep(self) -> bool:
        """Give the drafts their positions for good; False if other texts were first: read it again."""
        return self.schema.take_hidden(self.width, self.fresh)

    def place(self, expression: Expression, part: int = 0) -> tuple[int, Attribute]:
        """The attribute of an expression and its position: a declared one, a hidden one or a draft."""
        if expression.op == "attribute" and expression.kind != "text":
            position = self.schema.position(expression.value)
            return position, self.schema.attributes[position]
        made = derived_attribute(expression, part)
        known = self.schema.hidden_position(made.name)
        if known is not None and known < self.width:
            return known, self.schema.attribute(known)
        number = self._numbers.setdefault(made.name, len(self.fresh))
        if number == len(self.fresh):
            self.fresh.append(made)
        return self.width + number, self.fresh[number]

    def compared(self, ours: Expression, operator: str, theirs: Expression, span: Span) -> Condition:
        """`ours operator theirs`."""
        found = expressions.comparison(ours, operator, theirs)
        return self.within(found.expression, found.operator, found.constant, span)

    def within(self, expression: Expression, operator: str, constant: Fraction, span: Span) -> Condition:
        """`expression operator constant`."""
        position, attribute = self.place(expression)
        return Within(attribute.name, position, spans_of_number(attribute, operator, constant), span)

    def compared_text(self, expression: Expression, operator: str, literal: Literal, span: Span) -> Condition:
        """`expression operator 'literal'` for an expression that gives text."""
        ordered = operator not in ("=", "!=")
        whole, rest = _bounded_parts(literal, _ORDERED_PARTS if ordered else MAX_DERIVED)
        equal = [self._coded(expression, literal, "same", k, span) for k in range(whole + 1)]
        if not ordered:
            both = _all(equal, span)
            return both if operator == "=" else Not(both, span)
        if operator in (">", ">="):
            # the opposite of what a string below it is; a missing one is neither
            return Not(self.compared_text(expression, "<" if operator == ">=" else "<=", literal, span), span)
        ways = [
            _all([*equal[:k], self._coded(expression, literal, "below", k, span)], span)
            for k in range(whole + rest)
        ]
        if operator == "<=":
            ways.append(_all(equal, span))
        if not ways:  # nothing is below the empty string
            position, attribute = self.place(expression)
            return Within(attribute.name, position, (), span)
        return ways[0] if len(ways) == 1 else Or(tuple(ways), span)

    def begins(self, expression: Expression, prefix: Literal, span: Span) -> Condition:
        """Whether an expression that gives text begins with a string."""
        whole, rest = _bounded_parts(prefix)
        parts = [self._coded(expression, prefix, "same", k, span) for k in range(whole)]
        if rest or not parts:
            parts.append(self._coded(expression, prefix, "begins", whole, span))
        return _all(parts, span)

    def ends(self, expression: Expression, suffix: Literal, span: Span) -> Condition:
        """Whether an expression that gives text ends with a string: backwards, it begins with it."""
        return self.begins(expressions.called("reverse", (expression,)), suffix.changed("backwards"), span)

    def matches(self, expression: Expression, pattern: Literal, span: Span) -> Condition:
        """Whether a regular expression is found in an expression that gives text."""
        wrong = what_is_wrong_with(string_in(pattern.text))
        if wrong:
            raise SchemaError(wrong)
        return self.fits("matches", expression, pattern, span)

    def fits(self, name: str, expression: Expression, literal: Literal, span: Span) -> Condition:
        """Whether an expression that gives text fulfils a pattern (types/patterns.py)."""
        if self.schema.traits.single_columns:
            string = string_in(literal.text)
            if name == "contains" and not string:
                return self.begins(expression, literal, span)
            position, attribute = self.place(expressions.fitted(name, expression, string))
            return Within(attribute.name, position, ((1, 1),), span)
        (base,) = expression.names
        return Fits(name, expression, self.schema.position(base), self._bundles(), literal, span)

    def _bundles(self) -> int:
        """The position of the first attribute of trait bundles."""
        known = self.schema.hidden_position(HELD)
        if known is not None and known < self.width:
            return known
        number = self._numbers.setdefault(HELD, len(self.fresh))
        if number == len(self.fresh):
            self.fresh += self.schema.traits.attributes()
        return self.width + number

    def like(self, expression: Expression, pattern: Literal, span: Span) -> Condition:
        """Whether an expression that gives text fits a pattern; one with a single % is one of intervals."""
        pieces = like_pieces(string_in(pattern.text))
        wild = "".join(mark for mark, _ in pieces)
        if wild == "%%" and len(pieces) == 3 and pieces[1][1]:
            return self.fits("contains", expression, pattern.changed("like within"), span)
        if wild not in ("", "%"):
            return self.fits("like", expression, pattern, span)
        first, last = pattern.changed("like first"), pattern.changed("like last")
        if not wild:
            return self.compared_text(expression, "=", first, span)
        before, after = (string_in(one.text) for one in (first, last))
        parts = [self.begins(expression, first, span)] if before or not after else []
        if after:
            parts.append(self.ends(expression, last, span))
        if before and after:  # one after the other, without an overlap
            length = expressions.called("length", (expression,))
            parts.append(self._coded(length, pattern, "longer", 0, span))
        return _all(parts, span)

    def in_network(self, expression: Expression, network: Literal, span: Span) -> Condition:
        """Whether an expression that gives text is an address of a network."""
        named = addresses.network_words(string_in(network.text))
        words = [expressions.called(word, (expression,)) for word in addresses.WORDS[: len(named)]]
        return _all([self._coded(word, network, "network", k, span) for k, word in enumerate(words)], span)

    def _coded(self, of: Expression, literal: Literal, form: str, part: int, span: Span) -> Condition:
        position, attribute = self.place(of, part)
        return LiteralInterval(attribute.name, position, literal, form, part, span)


def _bounded_parts(literal: Literal, most: int = MAX_DERIVED) -> tuple[int, bool]:
    """What `n_parts` says of a string for whose parts there may be attributes enough, and time."""
    whole, rest = n_parts(literal.text)
    if whole + rest > most:
        what = (
            "that is compared by its order" if most < MAX_DERIVED else "that an expression is compared with"
        )
        size = len(string_in(literal.text).encode())
        raise SchemaError(f"a string {what} has at most {PART * most:,} bytes, this one {size:,}")
    return whole, rest


def weekday(word: str) -> int:
    """The number of a day of the week, Monday being 1."""
    short = word.strip().lower()[:3]
    if short not in WEEKDAYS or not any(
        day.startswith(word.strip().lower())
        for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    ):
        raise SchemaError(f"a day of the week is one of {', '.join(WEEKDAYS)} or 1 to 7, got {word!r}")
    return WEEKDAYS.index(short) + 1


def _all(parts: list[Condition], span: Span) -> Condition:
    return parts[0] if len(parts) == 1 else And(tuple(parts), span)
