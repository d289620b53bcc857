"""Predicates and values of wide schemas, row by row of what was said, and columns of them on demand.

With hundreds of attributes, of which a subscription bounds few and an event has few, dense columns hold
almost nothing but "not bounded" and "missing". A generator of such a workload gives `Entries` instead:

    array        dtype   shape   meaning
    rows         int64   k       the subscription or event that an entry belongs to, from 0
    attributes   int32   k       position in the schema, ascending; rows ascend within an attribute
    lows         int64   k       inclusive bounds of a predicate, both sides always bounded;
    highs        int64   k       the value twice for an event

A predicate with a list of values (IN, NOT IN) has the ends of what it allows as its bounds, and `spans` tells
what lies between.

`SparseColumns` is a view of one side of them as a workload's columns: a mapping that makes a column when it
is asked for and keeps none, so that 30,000 attributes cost nothing until somebody asks for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.language.kernels import SET
from rangecast.model.boxes import SparseBoxes, ragged, starts_of
from rangecast.model.wide_events import EventEntries
from rangecast.types.attributes import Attribute
from rangecast.types.schema import Schema


class AllowedSpans(NamedTuple):
    """What entries with a list allow: starts[e] .. starts[e + 1] of entry e, none where it is an interval."""

    starts: npt.NDArray[np.int64]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]

    def taken(self, order: npt.NDArray[np.int64]) -> AllowedSpans:
        """The spans of the same entries in another order."""
        chosen = ragged(self.starts, order)
        return AllowedSpans(starts_of(np.diff(self.starts)[order]), self.lows[chosen], self.highs[chosen])


@dataclass(frozen=True)
class Entries:
    """Predicates of subscriptions, or values of events, one row each."""

    rows: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.int32]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    spans: AllowedSpans | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; an event's lows and highs are one array."""
        held = (self.rows, self.attributes, self.lows, self.highs, *(self.spans or ()))
        return sum({id(a): a.nbytes for a in held}.values())

    def boxes(self, n: int) -> SparseBoxes:
        """The predicates as boxes, one for each of n subscriptions; all attributes are of whole numbers."""
        order = np.argsort(self.rows, kind="stable")
        starts = starts_of(np.bincount(self.rows, minlength=n))
        none = np.empty(0, np.int64)
        spans = AllowedSpans(np.zeros(len(self) + 1, np.int64), none, none)
        if self.spans is not None:
            spans = self.spans.taken(order)
        sets = np.flatnonzero(np.diff(spans.starts))
        attributes = self.attributes[order]
        attributes[sets] |= SET
        ends = self.lows[order], self.highs[order]
        owners = np.arange(n, dtype=np.int32)
        # entries without a set have no spans, so these begin where the last of the others end
        set_starts = np.append(spans.starts[sets], len(spans.lows))
        return SparseBoxes(owners, starts, attributes, *ends, sets, set_starts, spans.lows, spans.highs)

    def texts(self, schema: Schema, first: int, last: int) -> list[list[str]]:
        """What each subscription from `first` to before `last` asks for, predicate by predicate, as text."""
        said: list[list[str]] = [[] for _ in range(first, last)]
        own = np.flatnonzero((self.rows >= first) & (self.rows < last))
        columns = self.rows[own], self.attributes[own], self.lows[own], self.highs[own]
        for e, row, position, low, high in zip(own.tolist(), *(c.tolist() for c in columns), strict=True):
            attribute = schema[position]
            text = (
                f"{attribute.name} = {low}" if low == high else f"{attribute.name} between {low} and {high}"
            )
            if self.spans is not None and self.spans.starts[e] < self.spans.starts[e + 1]:
                text = self._list_text(attribute, e)
            said[row - first].append(text)
        return said

    def _list_text(self, attribute: Attribute, e: int) -> str:
        """The shorter one of what an entry with a list allows, and of what it leaves out of the domain."""
        assert self.spans is not None
        own = slice(self.spans.starts[e], self.spans.starts[e + 1])
        lows, highs = self.spans.lows[own].tolist(), self.spans.highs[own].tolist()
        allowed = [v for low, high in zip(lows, highs, strict=True) for v in range(low, high + 1)]
        left_out = sorted(set(range(attribute.low, attribute.high + 1)).difference(allowed))
        operator, values = ("in", allowed) if len(allowed) <= len(left_out) else ("not in", left_out)
        return f"{attribute.name} {operator} ({', '.join(map(str, values))})"

    def said(self, n_attributes: int, first: int, last: int) -> EventEntries:
        """The values of the events from `first` to before `last`, by event."""
        own = np.flatnonzero((self.rows >= first) & (self.rows < last))
        order = own[np.argsort(self.rows[own], kind="stable")]
        starts = starts_of(np.bincount(self.rows[own] - first, minlength=last - first))
        return EventEntries(n_attributes, starts, self.attributes[order], self.lows[order])

    @classmethod
    def sorted(
        cls, rows: Any, attributes: Any, lows: Any, highs: Any, spans: AllowedSpans | None = None
    ) -> Entries:
        """Entries in the order of attributes and rows, from any order.

        >>> entries = Entries.sorted([1, 0, 0], [0, 2, 0], [5, 6, 7], [5, 6, 9])
        >>> entries.rows.tolist(), entries.attributes.tolist(), entries.highs.tolist()
        ([0, 1, 0], [0, 0, 2], [9, 5, 6])
        """
        rows, attributes = np.asarray(rows, np.int64), np.asarray(attributes, np.int32)
        order = np.lexsort((rows, attributes))
        one = np.asarray(lows, np.int64)[order]
        other = one if highs is lows else np.asarray(highs, np.int64)[order]
        return cls(rows[order], attributes[order], one, other, spans.taken(order) if spans else None)


class SparseColumns(Mapping[str, npt.NDArray[np.float64]]):
    """One side of entries as columns by attribute name, NaN where there is no entry.

    >>> entries = Entries.sorted([1, 0, 0], [0, 2, 0], [5, 6, 7], [5, 6, 9])
    >>> columns = SparseColumns(entries, entries.highs, 2, ("a", "b", "c"))
    >>> list(columns), columns["a"].tolist(), columns["b"].tolist()
    (['a', 'b', 'c'], [9.0, 5.0], [nan, nan])
    """

    def __init__(
        self, entries: Entries, side: npt.NDArray[np.int64], n_rows: int, names: Sequence[str]
    ) -> None:
        self._entries = entries
        self._side = side
        self._n_rows = n_rows
        self._positions = {name: position for position, name in enumerate(names)}
        self._starts = np.searchsorted(entries.attributes, np.arange(len(names) + 1))

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        position = self._positions[name]
        chosen = slice(self._starts[position], self._starts[position + 1])
        spans = self._entries.spans
        if spans is not None and spans.starts[chosen.start] < spans.starts[chosen.stop]:
            raise OptionError(
                f"some predicates on {name!r} have lists of values, which a low and a high end cannot say; "
                "take `predicates`, subscriptions() or conditions()"
            )
        # A float column keeps NaN beside whole numbers, which are exact below 2^53.
        column = np.full(self._n_rows, np.nan)
        column[self._entries.rows[chosen]] = self._side[chosen]
        return column

    def __contains__(self, name: object) -> bool:
        # a Mapping would make the column to find out
        return name in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)
