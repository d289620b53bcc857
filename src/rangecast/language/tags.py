"""HAS, of attributes with several values: `tags HAS 'x'`, HAS ANY, HAS ALL, HAS NONE.

A box asks one set of codes of an attribute, and an event with several values lies in it when one of them does
(model/several_values.py). So a HAS that is the only one of a conjunction is asked of the attribute itself,
for any number of strings. Where there are several, or one is denied, they are patterns (types/traits.py),
which hold of an event and not of one of its values: what is denied is that *any* value is the string, not
that some other value is there.
"""

from __future__ import annotations

from collections import Counter

from rangecast.language.derivation import Drafts
from rangecast.language.literal_forms import quoted_string
from rangecast.language.tree import (
    And,
    Comparison,
    Condition,
    Fits,
    Has,
    Literal,
    Membership,
    Not,
    Or,
    Presence,
    Range,
    Span,
    Stated,
)
from rangecast.types import expressions


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
