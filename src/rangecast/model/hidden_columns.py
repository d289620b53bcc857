"""The columns of hidden attributes for a batch of events: expressions, and bundles of traits.

Expressions (types/derived.py) have one value in each column of codes. Trait sets (types/traits.py) have
any number: a column becomes as many copies as it needs, which belong to the event of the column, as the
choices among several values do (several_values.py). What is computed is kept for the next who asks with the
same schema; the sets are looked up again when the schema's dictionary of them has grown since.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types.attributes import LAST, MISSING, Attribute, Category, Codes, decoded_floats
from rangecast.types.derived import Look, Values, codes_of, evaluate
from rangecast.types.expression_text import parse_expression
from rangecast.types.patterns import HELD, HeldBundle, SourceWords, TraitBundles, names
from rangecast.types.schema import Schema
from rangecast.types.vocabulary import UNKNOWN

_EventNumbers = npt.NDArray[np.int64]


class CodeColumns(NamedTuple):
    """Codes as an index of a schema must see them, and where the columns of each event begin: None where each
    has one. An index that asks for them gets EventEntries (event_entries.py) in their place."""

    codes: Any
    firsts: _EventNumbers | None


class _SpreadColumns(NamedTuple):
    wide: Codes
    known: int
    codes: Codes
    owners: _EventNumbers | None


class HiddenColumns:
    """Hidden attributes of one batch: `given` codes by name, and what was computed."""

    def __init__(self) -> None:
        self.given: dict[str, Codes] = {}
        self.seconds: dict[str, float] = {}
        """How long each expression took, and all patterns together."""
        self._wide: tuple[Schema, Codes, Codes] | None = None
        self._spread: _SpreadColumns | None = None

    def widened(self, schema: Schema, declared: Codes, look: Look, owners: _EventNumbers | None) -> Codes:
        """The codes of declared attributes with those of expressions; bundles of traits hold nowhere yet."""
        wide = self._wide
        if wide is not None and wide[0] is schema and wide[1] is declared:
            return wide[2]
        hidden = schema.attributes[len(schema.names) :]
        memo: dict[str, Values] = {}
        n = declared.shape[1]
        rows = []
        for attribute in hidden:
            found = self.given.get(attribute.name)
            if found is None and isinstance(attribute, HeldBundle):
                found = np.full(n, LAST if attribute.name == names[2] else 0, np.int64)
            elif found is None:
                start = time.perf_counter()
                found = _having(attribute, look, owners)
                if found is None:
                    found = codes_of(attribute, look, n, memo)
                self.given[attribute.name] = found
                self.seconds[attribute.name] = time.perf_counter() - start
            rows.append(found)
        codes = np.concatenate([declared, np.stack(rows)])
        self._wide = schema, declared, codes
        return codes

    def spread(
        self, schema: Schema, wide: Codes, look: Look, owners: _EventNumbers | None
    ) -> tuple[Codes, _EventNumbers | None]:
        """The codes with the bundles of traits that hold, and the event of each column of them."""
        at = schema.hidden_position(HELD)
        if at is None or at >= len(schema) or HELD in self.given:
            return wide, owners
        # counted before the search: a set that comes in between is looked for once more
        known = len(schema.traits.vocabulary)
        last = self._spread
        if last is None or last.wide is not wide or last.known != known:
            start = time.perf_counter()
            codes, of_columns = _spread(
                schema.traits, at, wide, _BatchWords(schema, look, wide.shape[1]), owners
            )
            self.seconds["patterns"] = time.perf_counter() - start
            last = self._spread = _SpreadColumns(wide, known, codes, of_columns)
        return last.codes, last.owners


class _BatchWords:
    """The words of the sources of traits, each computed once."""

    def __init__(self, schema: Schema, look: Look, n: int) -> None:
        self._operands = schema.operands
        self._n = n
        self._look = look
        self._found: dict[str, SourceWords] = {}
        self._memo: dict[str, Values] = {}

    def __call__(self, source: str) -> SourceWords:
        found = self._found.get(source)
        if found is None:
            if source.startswith("has "):
                values = self._look(unquoted_source(source.removeprefix("has ")))
            else:
                values = evaluate(parse_expression(source, self._operands), self._look, self._n, self._memo)
            assert values.words is not None
            where = np.where(values.missing, -1, values.data).astype(np.int64)
            found = self._found[source] = SourceWords(values.words, where)
        return found


def unquoted_source(name: str) -> str:
    """The name of an attribute as an expression writes it."""
    return name[1:-1].replace('""', '"') if name[0] == '"' else name


def _spread(
    sets: TraitBundles, at: int, wide: Codes, finder: _BatchWords, owners: _EventNumbers | None
) -> tuple[Codes, _EventNumbers | None]:
    n = wide.shape[1]
    copies, own = sets.find(finder, n, owners).spread()
    if len(own[0]) == n:
        codes = wide.copy()
    else:
        columns = np.repeat(np.arange(n), copies)
        codes = wide[:, columns]
        owners = columns if owners is None else owners[columns]
    codes[at : at + len(own)] = own
    return codes, owners


def _having(attribute: Attribute, look: Look, owners: _EventNumbers | None) -> Codes | None:
    """For has(tags, 'x'): 1 where one of an event's values is the string, 0 where it has others."""
    expression = attribute.expression
    if expression is None or expression.op != "has":
        return None
    values = look(expression.args[0].value)
    places = [k for k, word in enumerate(values.words or ()) if word == expression.value]
    held = np.isin(values.data, places) & ~values.missing
    if owners is not None and len(owners):
        found = np.zeros(int(owners[-1]) + 1, bool)
        found[owners[held]] = True
        held = found[owners]
    return np.where(values.missing, MISSING, held).astype(np.int64)


def values_of(
    attribute: Attribute, codes: Codes, rows: _EventNumbers | None, words: pa.Array[Any] | None
) -> Values:
    """A declared attribute as values, for expressions; `rows` have strings that are in no dictionary."""
    missing = codes == MISSING
    if attribute.kind == "float":
        return Values(decoded_floats(codes), missing)
    if not isinstance(attribute, Category):
        return Values(codes, missing)
    used, where = np.unique(codes, return_inverse=True)
    known = [attribute.vocabulary.word(int(code)) or "" for code in used]
    where = where.astype(np.int64)
    # without its string there is nothing to compute from
    missing = missing | (codes == UNKNOWN)
    if rows is not None and words is not None and len(rows):
        once = words.dictionary_encode()
        where[rows] = len(known) + once.indices.to_numpy(zero_copy_only=False)
        known += once.dictionary.to_pylist()
        missing[rows] = False
    return Values(where, missing, known)
