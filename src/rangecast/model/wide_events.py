"""Events of wide schemas by what they say: for each the attributes that have a value, and the codes.

    array        dtype   shape          meaning
    starts       int64   n_events + 1   where the entries of each event begin
    attributes   int32   n_entries      positions in the schema, ascending within an event
    codes        int64   n_entries      the value of each; never MISSING

Of hundreds of attributes an event mostly has few, and columns of all of them (events.py) are then nearly
nothing but MISSING: 4 kB per event of 500 attributes, where 50 values take 600 bytes. Lists by leading entry
read entries as they are (engine/layouts/leads.py); whoever needs columns gets them by `columns`, made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast import memory
from rangecast.model import kernels
from rangecast.model.boxes import ragged, starts_of
from rangecast.types.attributes import MISSING, Attribute, Category, Codes, Encoded
from rangecast.types.columns import LISTS, Column, as_column

WIDE = 128
"""From so many attributes on, events are kept by what they say."""

SPARSE = 4
"""Unless they say more than one in so many of them."""

SaidColumn = tuple[npt.NDArray[np.int64], Codes]
"""The rows that have a value of an attribute, ascending, and their codes."""


class EventEntries:
    """What events say, event after event; see the module head."""

    def __init__(
        self,
        n_attributes: int,
        starts: npt.NDArray[np.int64],
        attributes: npt.NDArray[np.int32],
        codes: Codes,
    ) -> None:
        self.n_attributes = n_attributes
        self.starts = starts
        self.attributes = attributes
        self.codes = codes
        self._columns: Codes | None = None

    @classmethod
    def of_columns(cls, n_attributes: int, n_events: int, said: dict[int, SaidColumn]) -> EventEntries:
        """Entries from attributes by position, each with the rows that have a value.

        >>> said = {2: (np.array([0, 1]), np.array([7, 8])), 0: (np.array([1]), np.array([5]))}
        >>> entries = EventEntries.of_columns(3, 2, said)
        >>> entries.starts.tolist(), entries.attributes.tolist(), entries.codes.tolist()
        ([0, 1, 3], [2, 0, 2], [7, 5, 8])
        """
        counts = np.zeros(n_events, np.int64)
        for rows, _ in said.values():
            kernels.count_rows(rows, counts)
        starts = starts_of(counts)
        n = int(starts[-1])
        attributes, codes, cursors = np.empty(n, np.int32), np.empty(n, np.int64), starts[:-1].copy()
        for position in sorted(said):
            kernels.enter_column(position, *said[position], cursors, attributes, codes)
        return cls(n_attributes, starts, attributes, codes)

    @property
    def shape(self) -> tuple[int, int]:
        """Attributes and events, as of columns."""
        return self.n_attributes, len(self.starts) - 1

    def __len__(self) -> int:
        return self.n_attributes

    def __getitem__(self, at: tuple[slice, Any]) -> EventEntries:
        """Some of the events: `entries[:, rows]`, as of columns."""
        _, events = at
        rows = np.arange(self.shape[1])[events]
        places = ragged(self.starts, rows)
        counts = np.diff(self.starts)[rows]
        return EventEntries(self.n_attributes, starts_of(counts), self.attributes[places], self.codes[places])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.columns(), dtype)

    def columns(self) -> Codes:
        """The codes as (d, n_events), MISSING where an event says nothing; not to be written to."""
        if self._columns is None:
            columns = np.full(self.shape, MISSING, np.int64)
            kernels.spread_entries(self.starts, self.attributes, self.codes, columns)
            self._columns = columns
        return self._columns

    def __reduce__(self) -> tuple[Any, ...]:
        return EventEntries, (self.n_attributes, self.starts, self.attributes, self.codes)


def present(column: Codes) -> SaidColumn:
    """The rows of a column that have a value, and their codes.

    >>> [part.tolist() for part in present(np.array([3, MISSING, 4]))]
    [[0, 2], [3, 4]]
    """
    # one more: what has no value is written before that is known
    rows, codes = np.empty(len(column) + 1, np.int64), np.empty(len(column) + 1, np.int64)
    n = int(kernels.keep_present(column, rows, codes))
    return rows[:n].copy(), codes[:n].copy()


def are_sparse(n_attributes: int, n_events: int, said: Sequence[SaidColumn]) -> bool:
    """Whether events say so little of what they could that it is worth keeping them by it."""
    n = sum(len(rows) for rows, _ in said)
    return n_attributes >= WIDE and n * SPARSE <= n_attributes * n_events


class CodeTarget:
    """Where the codes of a batch are put, attribute by attribute: in columns, or value by value."""

    def __init__(self, n_attributes: int, n: int, *, whole: bool) -> None:
        """For so many attributes and events; `whole` where columns are wanted even for few values."""
        self._shape = n_attributes, n
        self._said: dict[int, SaidColumn] | None = {} if n_attributes >= WIDE and not whole else None
        wide = self._shape if self._said is None else (0, 0)
        self._codes: Codes = memory.empty(wide[0] * wide[1], np.int64).reshape(wide)
        self._empty = set(range(n_attributes))
        self._written: Codes | None = None

    def encode(
        self, position: int, rows: npt.NDArray[np.int64] | None, attribute: Attribute, column: Any
    ) -> Encoded:
        """What an attribute makes of a column; codes of words are written where `put` leaves them."""
        if isinstance(attribute, Category) and self._said is None and rows is None:
            self._written = self._codes[position]
            found = attribute.find(column, self._written)
            if found is not None:
                return found
        return attribute.encode(column)

    def put(self, position: int, rows: npt.NDArray[np.int64] | None, codes: Codes) -> None:
        """Take the codes of an attribute, of all events or of some."""
        if self._said is None:
            own = self._codes[position]
            self._empty.discard(position)
            if rows is not None:
                own[:] = MISSING
            if codes is not self._written:
                own[slice(None) if rows is None else rows] = codes
            return
        here, own = present(codes)
        self._said[position] = here if rows is None else rows[here], own

    def codes(self) -> Codes | EventEntries:
        """All of them, in the form that suits."""
        if self._said is None:
            self._codes[list(self._empty)] = MISSING
            return self._codes
        entries = EventEntries.of_columns(*self._shape, self._said)
        return entries if are_sparse(*self._shape, list(self._said.values())) else entries.columns()


# Several values of one attribute in one event: lists of tags, of topics, of measurements.
#
# A predicate on such an attribute holds when one of the values is in its set. What a condition asks of one
# attribute is one set, which one value must be in: `x > 3 AND x < 7` is not held by the values 2 and 9. A
# list without values, or with nulls alone, is a missing value; a null beside values is none.
#
# An event becomes variants, one for each choice of a value per attribute: a box holds the event when it holds
# one of them, since each attribute is asked for by itself. Two attributes of three values each are nine
# variants.
#
#     array     dtype   shape            meaning
#     codes     int64   (d, n_variants)  the codes of each variant
#     owners    int64   n_variants       ascending: the event of each; every event has one at least
#     sources   int64   n_variants       per attribute: which of its values a variant has, -1 for none

MOST_VARIANTS = 1024
"""Of one event; one that has more is rejected."""

_Places = npt.NDArray[np.int64]


class ListColumn(NamedTuple):
    """The values of all rows, one after the other, and where those of a row begin."""

    values: Column
    starts: _Places


class Variants(NamedTuple):
    """The event of each variant, and per attribute with lists which value it has."""

    owners: _Places
    sources: dict[int, _Places]


def as_lists(column: Column) -> ListColumn | None:
    """The column as lists where a cell of it is one; a cell that is none is a list of itself.

    >>> lists = as_lists(as_column([[1, 2], None, 5]))
    >>> lists.starts.tolist()
    [0, 2, 2, 3]
    """
    data = column.data
    if isinstance(data, pa.Array):
        kind = data.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            return None
        sizes = data.value_lengths().fill_null(0) if not pa.types.is_fixed_size_list(kind) else None
        if sizes is None:
            sizes = np.where(np.asarray(data.is_valid()), kind.list_size, 0)
        return ListColumn(as_column(data.flatten()), starts_of(np.asarray(sizes, np.int64)))
    if data.ndim == 1 and (data.dtype != object or not any(isinstance(cell, LISTS) for cell in data)):
        return None
    flat: list[Any] = []
    sizes = np.empty(len(data), np.int64)
    for row, cell in enumerate(data):
        own = list(cell) if isinstance(cell, LISTS) else [] if cell is None else [cell]
        sizes[row] = len(own)
        flat += own
    return ListColumn(as_column(flat), starts_of(sizes))


def read(attribute: Attribute, values: Any) -> tuple[Any, ListColumn | None]:
    """The values of a column for an attribute to encode, and the lists that they are of, if they are."""
    if attribute.kind == "point":  # whose lists are one value
        return values, None
    column = as_column(values)
    lists = as_lists(column)
    return column if lists is None else lists.values, lists


def without_nulls(codes: Codes, starts: _Places) -> tuple[_Places, _Places]:
    """Which of the values of lists have a code, and where those of a row begin among them."""
    kept = np.flatnonzero(codes != MISSING)
    before = starts_of(codes != MISSING)
    return kept, before[starts]


def spread(starts: Mapping[int, _Places], n_events: int) -> Variants:
    """The variants of events whose attributes with lists begin where `starts` says; one that has too many
    gets one, for it is rejected.

    >>> spread({0: np.array([0, 2, 2]), 3: np.array([0, 2, 3])}, 2).owners.tolist()
    [0, 0, 0, 0, 1]
    """
    counted = count_variants(starts, n_events)
    counts = np.where(counted > MOST_VARIANTS, 1, counted).astype(np.int64)
    owners = np.repeat(np.arange(n_events), counts)
    rest = np.arange(len(owners)) - np.repeat(starts_of(counts)[:-1], counts)
    sources = {}
    for position, own in starts.items():
        sizes = np.diff(own)[owners]
        places = np.maximum(sizes, 1)
        sources[position] = np.where(sizes > 0, own[owners] + rest % places, -1)
        rest //= places
    return Variants(owners, sources)


def count_variants(starts: Mapping[int, _Places], n_events: int) -> npt.NDArray[np.float64]:
    """How many variants each event has; floats, for these may be many."""
    out = np.ones(n_events)
    for own in starts.values():
        out *= np.maximum(np.diff(own), 1)
    return out
