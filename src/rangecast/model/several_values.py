"""Several values of one attribute in one event: lists of tags, of topics, of measurements.

A predicate on such an attribute holds when one of the values is in its set. What a condition asks of one
attribute is one set, which one value must be in: `x > 3 AND x < 7` is not held by the values 2 and 9. A list
without values, or with nulls alone, is a missing value; a null beside values is none.

An event becomes variants, one for each choice of a value per attribute: a box holds the event when it holds
one of them, since each attribute is asked for by itself. Two attributes of three values each are nine
variants.

    array     dtype   shape            meaning
    codes     int64   (d, n_variants)  the codes of each variant
    owners    int64   n_variants       ascending: the event of each; every event has one at least
    sources   int64   n_variants       per attribute: which of its values a variant has, -1 for none
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.model.boxes import starts_of
from rangecast.types.attributes import MISSING, Attribute, Codes
from rangecast.types.columns import Column, as_column

MOST_VARIANTS = 1024
"""Of one event; one that has more is rejected."""

LISTS = (list, tuple, set, frozenset, np.ndarray)
"""What a cell with several values may be."""

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
