"""What of an input are the columns of events: by name of frames, and by key of rows; and what is kept of the
strings that no subscription had named (events.py)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import EventError, RangecastWarning
from rangecast.types.attributes import Attribute, Category, Codes
from rangecast.types.column_names import NamedColumns, ObjectNames, key_of, value_inside
from rangecast.types.columns import Column, as_column
from rangecast.types.frames import struct_inside
from rangecast.types.schema import Schema
from rangecast.types.strings import StrangeStrings, arrow_numbers, arrow_words, without_views
from rangecast.types.vocabulary import UNKNOWN, Vocabulary

_NOBODY = np.empty(0, np.int64)


StrangeWords = tuple[npt.NDArray[np.int64], "pa.Array[Any]"]
"""Rows, and a string for each."""


class RejectedEvent(NamedTuple):
    """An event that was not loaded."""

    row: int
    reason: str


class Strangers:
    """Rows of a category whose string had no code when the dictionary had `known` words, ascending, and their
    strings.

    Mostly nobody asks who they are, since the dictionary has not grown; so they may be given by what makes
    them, which is called once somebody does.
    """

    __slots__ = ("_given", "known")

    def __init__(self, known: int, given: StrangeWords | Callable[[], StrangeWords]) -> None:
        self.known = known
        self._given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return Strangers, (self.known, self.found())

    def found(self) -> StrangeWords:
        """The rows and their strings."""
        given = self._given
        if not isinstance(given, tuple):
            given = self._given = given()
        return given

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The rows, ascending."""
        return self.found()[0]

    @property
    def words(self) -> pa.Array[Any]:
        """The string of each."""
        return self.found()[1]

    def placed(self, places: npt.NDArray[np.int64]) -> Strangers:
        """The same where row k of these is row places[k] of all."""
        rows, words = self.found()
        return Strangers(self.known, (places[rows], words))

    def word(self, row: int) -> str | None:
        """The string of one row, None where it is no stranger's."""
        rows, words = self.found()
        at = int(np.searchsorted(rows, row))
        return words[at].as_py() if at < len(rows) and rows[at] == row else None

    def among(self, rows: npt.NDArray[np.int64], n: int) -> Strangers | None:
        """Those who are in some rows of n, by their number among these; None where nobody is."""
        own, words = self.found()
        where = np.full(n, -1, np.int64)
        where[own] = np.arange(len(own))
        held = where[rows]
        kept = np.flatnonzero(held >= 0)
        return Strangers(self.known, (kept, words.take(arrow_numbers(held[kept])))) if len(kept) else None

    def named(self, vocabulary: Vocabulary, codes: Codes, known: int) -> Strangers:
        """Look them up in a dictionary that has `known` words by now; those who are strangers to it still."""
        rows, words = self.found()
        codes[rows] = found = vocabulary.encode(words, grow=False)
        rest = np.flatnonzero(found == UNKNOWN)
        return Strangers(known, (rows[rest], words.take(arrow_numbers(rest))))


class CodeView(NamedTuple):
    """The codes for a schema whose dictionaries have `known` words, and who is still a stranger to them."""

    schema: Schema
    vocabularies: tuple[Vocabulary, ...]
    known: tuple[int, ...]
    codes: Codes
    strangers: dict[int, Strangers]


def check_on_error(on_error: str) -> None:
    """Raise EventError unless it is one of the two."""
    if on_error not in ("raise", "collect"):
        raise EventError(f"on_error must be 'raise' or 'collect', got {on_error!r}")


def common_length(schema: Schema, columns: Mapping[int, Any]) -> int:
    """How long these columns by position are, all of them."""
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        shown = ", ".join(f"{schema[at].name} {len(column)}" for at, column in columns.items())
        raise EventError(f"event columns must be equally long, got {shown}")
    return lengths.pop() if lengths else 0


def said_rows(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[str, tuple[list[int], list[Any]]]:
    """By attribute, the rows that have its key, and the values there."""
    # a walk over what is said, where a column per attribute would ask every row for every name
    found: dict[Any, tuple[list[int], list[Any]]] = {key: ([], []) for key in names.values()}
    look = found.get
    for number, row in enumerate(rows):
        for key, value in row.items():
            own = look(key)
            if own is not None and value is not None:
                own[0].append(number)
                own[1].append(value)
    return {name: found[key] for name, key in names.items() if found[key][0]}


def columns_alike(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]] | None:
    """The columns of rows that all have the same keys, each of them one of these names, or None.

    >>> columns_alike([{"a": 1, "b": 2}, {"b": 3, "a": 4}], ["a", "b", "c"])
    {'a': [1, 4], 'b': [2, 3]}
    >>> columns_alike([{"a": 1}, {"b": 2}], ["a", "b"]), columns_alike([{"A": 1}], ["a"])
    (None, None)
    """
    keys = rows[0]
    if set(map(type, rows)) != {dict} or not keys or not keys.keys() <= set(names):
        return None
    # as many keys as the first row, and among them all of its own: no row has another one. That is told in a
    # quarter of the time of comparing the keys
    if set(map(len, rows)) != {len(keys)}:
        return None
    try:
        return {name: list(map(itemgetter(name), rows)) for name in names if name in keys}
    except KeyError:
        return None


def row_columns(rows: Sequence[Mapping[str, Any]], keys: Mapping[str, str]) -> dict[str, list[Any]]:
    """The values of each attribute, by its key; one that some row lacks is None there."""
    # a plain dict neither makes up a value nor keeps one that was asked for
    plain = set(map(type, rows)) == {dict}
    columns: dict[str, list[Any]] = {}
    for name, key in keys.items():
        try:
            columns[name] = list(map(itemgetter(key), rows)) if plain else [row.get(key) for row in rows]
        except KeyError:
            columns[name] = [row.get(key) for row in rows]
    return columns


def warn_of_points(schema: Schema, names: Iterable[str]) -> None:
    """Warn of a column that is ignored, since its attribute is made of two others."""
    for _, point in schema.points:
        if point.columns is not None and point.name in names:
            message = (
                f"{point.name!r} is ignored: it is made of {point.columns[0]!r} and {point.columns[1]!r}"
            )
            warnings.warn(message, RangecastWarning, stacklevel=4)


def columns_of(
    schema: Schema, names: Sequence[str], what: str, strict: bool, column: Callable[[str], Any]
) -> dict[str, Any]:
    """The values of each attribute that has a column, or a field inside of one, by its name."""
    warn_of_points(schema, names)
    objects = ObjectNames(schema.read_names)
    kind = objects.kind_of(tuple(names))
    found = {name: column(key) for name, key in kind.columns.items()}
    for name, path in kind.inside.items():
        key = key_of(path[0], names)
        assert key is not None
        values = _inside(column(key), path[1:], objects.folds(name))
        if values is not None:
            found[name] = values
    absent = [name for name in schema.read_names if name not in found]
    named = NamedColumns({name: kind.columns.get(name, name) for name in found}, absent, kind.unused)
    if not found:
        near = ", ".join(f"{name!r} for {key!r}" for name, key in named.near_misses().items())
        raise EventError(
            f"the {what} must have a column of the schema ({', '.join(schema.read_names)}), "
            f"got {', '.join(map(str, names))}" + (f"; did you mean {near}?" if near else "")
        )
    named.check(strict=strict, every=False, stacklevel=4)
    return found


def _inside(column: Any, path: Sequence[str], fold: bool) -> Any:
    """The values at a path in a column of structs, or of dicts; None where it has neither."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return struct_inside(column, path, fold)
    values = list(column)
    if not any(isinstance(value, Mapping) for value in values):
        return None
    return [value_inside(value, path, fold) for value in values]


def strangers_of(
    attribute: Attribute, column: Any, codes: Codes, known: int, told: StrangeStrings | tuple[()] | None
) -> Strangers | None:
    """The rows of a column whose string no subscription names, with their strings, or None where there are
    none; `told` is what encoding has said of them, if it has."""
    if told is not None:
        return Strangers(known, told) if told else None
    strange = np.flatnonzero(codes == UNKNOWN) if isinstance(attribute, Category) else _NOBODY
    return Strangers(known, (strange, words_at(column, strange))) if len(strange) else None


def words_at(column: Any, rows: npt.NDArray[np.int64]) -> pa.Array[Any]:
    """The strings of some rows of a column."""
    if type(column) is list:
        return arrow_words([column[row] for row in rows.tolist()])
    if isinstance(column, Column):
        words, _ = column.strings()
        return words.take(arrow_numbers(rows))
    return as_column(without_views(column).take(arrow_numbers(rows))).strings()[0]
