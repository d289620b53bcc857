"""The traits of a clause, as one bundle: see the head of types/traits.py.

While a condition is expanded, each trait of it is an attribute of its own, 1 where it holds and 0 where it
does not, at a position below 0. At the end the traits of a clause become one bundle of the schema's
dictionary, and the clause asks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rangecast.errors import CapacityError, LanguageError, SchemaError
from rangecast.language.literal_forms import string_in
from rangecast.language.tree import And, Condition, Fits, Not, Or, Stated, value_of
from rangecast.types.attributes import LAST, PRESENT, Interval
from rangecast.types.columns import is_unicode
from rangecast.types.derived import Values, evaluate
from rangecast.types.expressions import fitted
from rangecast.types.patterns import Trait, TraitBundles, interval_of

TraitsAsked = list[tuple[Fits, bool]]
"""Patterns, and whether each is denied."""

_NamedTrait = tuple[Trait, str]


class TraitPlaces:
    """The traits of one condition and their positions."""

    def __init__(self, bundles: TraitBundles) -> None:
        self._bundles = bundles
        self._known: dict[str, int] = {}
        self._traits: list[tuple[Trait, str, Fits]] = []

    def __len__(self) -> int:
        return len(self._traits)

    def clauses(self, condition: Fits, negated: bool, literal: str) -> list[dict[int, tuple[Interval, ...]]]:
        """The clauses of a pattern or of its denial; one that is within any text is no pattern."""
        string = string_of(condition, literal)
        if condition.op == "contains" and not string:
            return [] if negated else [{condition.position: ((PRESENT, LAST),)}]
        code = 0 if negated else 1
        return [{self.place(condition, string): ((code, code),)}]

    def place(self, condition: Fits, string: str) -> int:
        """The position of a trait."""
        text = fitted(condition.op, condition.source, string).text
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = -1 - len(self._traits)
            self._traits.append((trait_of(condition, string), text, condition))
        return found

    def folded(self, clauses: list[dict[int, tuple[Interval, ...]]]) -> list[dict[int, tuple[Interval, ...]]]:
        """The clauses with a bundle instead of the traits of each; one that can never hold is left out."""
        # a clause that asks for nothing at all holds everywhere, and has no trait
        found = [self._folded(clause) if min(clause, default=0) < 0 else clause for clause in clauses]
        return [clause for clause in found if clause is not None]

    def _folded(self, clause: dict[int, tuple[Interval, ...]]) -> dict[int, tuple[Interval, ...]] | None:
        """The clause with one bundle instead of its traits, None where it can never hold."""
        out = {position: spans for position, spans in clause.items() if position >= 0}
        members: list[Trait] = []
        texts: list[str] = []
        present: list[int] = []
        bundles = 0
        for position, spans in clause.items():
            if position >= 0:
                continue
            trait, text, condition = self._traits[-1 - position]
            asked, denied = (any(low <= code <= high for low, high in spans) for code in (1, 0))
            if denied:
                present.append(condition.position)
            if asked and denied:
                continue
            members.append(trait._replace(denied=denied))
            texts.append(f"NOT {text}" if denied else text)
            bundles = condition.bundles
        for position in present:
            spans = out.get(position, ((PRESENT, LAST),))
            out[position] = tuple((max(low, PRESENT), high) for low, high in spans if high >= PRESENT)
            if not out[position]:
                return None
        if members:
            code = bundle_code(self._bundles, members, texts)
            for k, interval in interval_of(code, all(one.denied for one in members)).items():
                out[bundles + k] = (interval,)
        return out


def bundle_code(bundles: TraitBundles, members: Sequence[Trait], texts: Sequence[str]) -> int:
    """The code of a bundle; LanguageError where there is no room for it."""
    try:
        return bundles.code(members, texts)
    except CapacityError as error:
        raise LanguageError(str(error)) from None


def has_traits(condition: Condition) -> bool:
    """Whether a condition has a pattern."""
    if isinstance(condition, And | Or):
        return any(map(has_traits, condition.parts))
    if isinstance(condition, Not | Stated):
        return has_traits(condition.part)
    return isinstance(condition, Fits)


def traits_asked(condition: Condition, negated: bool) -> TraitsAsked | None:
    """The patterns that a condition asks for and denies, if it is a conjunction of nothing else."""
    if isinstance(condition, Stated):
        return traits_asked(condition.part, negated)
    if isinstance(condition, Not):
        return traits_asked(condition.part, not negated)
    if isinstance(condition, Fits):
        return [(condition, negated)]
    if not isinstance(condition, And | Or) or isinstance(condition, And) is negated:
        return None
    found: TraitsAsked = []
    for part in condition.parts:
        own = traits_asked(part, negated)
        if own is None:
            return None
        found += own
    return found


def bundle_codes(bundles: TraitBundles, asked: TraitsAsked, texts: Sequence[Sequence[str]]) -> list[int]:
    """The codes of the bundles of many texts, given by a column of literals for each pattern that they have.

    0 where there is none: a literal that is no string, a pattern that is within any text, one that is asked
    twice, or no room.
    """
    columns = [
        _trait_column(condition, denied, own) for (condition, denied), own in zip(asked, texts, strict=True)
    ]
    known: dict[tuple[_NamedTrait | None, ...], int] = {}
    for members in zip(*columns, strict=True):
        if members not in known:
            known[members] = _bundle_or_none(bundles, members)
    return [known[members] for members in zip(*columns, strict=True)]


def _trait_column(condition: Fits, denied: bool, literals: Sequence[str]) -> list[_NamedTrait | None]:
    """The traits of one pattern, with the texts that name them; None for what is no trait."""
    known: dict[str, _NamedTrait | None] = {}
    for literal in dict.fromkeys(literals):
        known[literal] = None
        if literal[0] == "'" and literal != "''" and is_unicode(literal):
            string = string_in(literal)
            text = fitted(condition.op, condition.source, string).text
            named = f"NOT {text}" if denied else text
            known[literal] = trait_of(condition, string)._replace(denied=denied), named
    return [known[literal] for literal in literals]


def _bundle_or_none(bundles: TraitBundles, members: Sequence[_NamedTrait | None]) -> int:
    found = [one for one in members if one is not None]
    if len({text.removeprefix("NOT ") for _, text in found}) < len(members):
        return 0
    try:
        return bundles.code([trait for trait, _ in found], [text for _, text in found])
    except CapacityError:
        return 0


def trait_of(condition: Fits, string: str) -> Trait:
    """The trait that a condition asks for."""
    return Trait(condition.op, condition.source.text, string)


def fulfils(condition: Fits, value: Any) -> bool:
    """Whether a value fulfils a trait; it may be a list of several."""
    string = string_of(condition, condition.literal.text)
    words = [str(one) for one in value] if isinstance(value, list) else [str(value)]
    if condition.op == "has":
        return string in words
    source = condition.source

    def look(name: str) -> Values:
        return Values(np.arange(len(words)), np.zeros(len(words), bool), words)

    if condition.op == "contains":
        found = evaluate(source, look, len(words), {}).words or []
        return any(string in word for word in found)
    return bool(evaluate(fitted(condition.op, source, string), look, len(words), {}).data.any())


def string_of(condition: Fits, literal: str) -> str:
    """The string of a trait; SchemaError where the literal is none."""
    value = value_of(literal)
    if not isinstance(value, str) or not is_unicode(value):
        raise SchemaError(f"{condition.op.upper()} takes a string, got {literal}")
    return value
