"""The answer: for each event, the ids of the subscriptions that it matches.

    array     dtype    shape        meaning
    offsets   int64    n_events + 1 row e of the answer is [offsets[e], offsets[e + 1])
    slots     int32    n_pairs      the matching subscriptions as row numbers of the index
    ids       int64 or object, n_pairs

Indexes work with slots, so that string ids cost one gather at the end and Arrow gets a dictionary
array without touching a string. An index that knows how many there are before it reads them leaves
writing slots or ids to the first who asks: counts alone then cost nearly nothing, and ids come
without slots in between.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast import memory
from rangecast.memory import check_rows
from rangecast.model import kernels
from rangecast.model.ids import Ids
from rangecast.types.strings import arrow_numbers

_SHOWN = 10
MANY = 1024  # below this, starting numpy's conversion costs more than reading a table


class PendingMatches(Protocol):
    """Matches that were counted and can be written."""

    def slots(self) -> npt.NDArray[np.int32]:
        """The slots, row after row."""

    def ids(self) -> npt.NDArray[Any]:
        """The ids, row after row."""


class Matches:
    """Matches in rows, one per event.

    >>> m = Matches.from_ids([0, 2, 2, 3], [8, 7, 9])
    >>> m.row(0).tolist(), m.counts.tolist(), m.sort().row(0).tolist(), len(m), m.n_pairs
    ([8, 7], [2, 0, 1], [7, 8], 3, 3)
    """

    def __init__(
        self,
        offsets: npt.NDArray[np.int64] | None,
        slots: npt.NDArray[np.int32] | PendingMatches,
        names: Ids,
        base: int | None = None,
    ) -> None:
        """Rows of slots or what will write them, or without offsets the slots of one event; where ids count
        up with slots, `base` is their distance."""
        self._offsets = offsets
        self._base = base
        self._slots: npt.NDArray[np.int32] | None = None
        self._pending: PendingMatches | None = None
        if isinstance(slots, np.ndarray):
            self._slots = slots
        else:
            self._pending = slots
        self._names = names
        self._ids: npt.NDArray[Any] | None = None

    @classmethod
    def from_ids(cls, offsets: Any, ids: Any) -> Matches:
        """Matches whose ids are given outright."""
        names = Ids.of(ids)
        check_rows(len(names), "ids that are given")
        return cls(np.array(offsets, np.int64), np.arange(len(names), dtype=np.int32), names)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Matches({len(self):,} events, {self.n_pairs:,} pairs)"

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where the row of each event begins, and where the last one ends."""
        if self._offsets is None:
            # made late, for it shows in a match of one event
            self._offsets = np.array([0, self.n_pairs], np.int64)
        return self._offsets

    @property
    def n_pairs(self) -> int:
        """How many (event, subscription) pairs there are."""
        if self._offsets is None:
            return len(self.slots)
        return int(self._offsets.item(-1))

    @property
    def names(self) -> Ids:
        """The ids of all rows of the index: pair p is names[slots[p]]."""
        return self._names

    @property
    def slots(self) -> npt.NDArray[np.int32]:
        """The row numbers within the index, row after row."""
        if self._slots is None:
            assert self._pending is not None
            self._slots = self._pending.slots()
        return self._slots

    @property
    def ids(self) -> npt.NDArray[Any]:
        """The subscription ids, row after row."""
        if self._ids is None:
            slots = self._slots
            if slots is None:
                assert self._pending is not None
                self._ids = self._pending.ids()
            elif self._base is not None and len(slots) > MANY:
                self._ids = memory.empty(len(slots), np.int64)
                np.add(slots, self._base, out=self._ids)
            else:
                self._ids = self._names.take(slots)
        return self._ids

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Matches per event."""
        return np.diff(self.offsets)

    def row(self, event: int) -> npt.NDArray[Any]:
        """The ids that one event matches."""
        n = len(self)
        if not -n <= event < n:
            raise IndexError(f"event must be within the batch of {n}, got {event}")
        event %= n
        if self._ids is not None:
            return self._ids[self.offsets[event] : self.offsets[event + 1]]
        return self._names.take(self.slots[self.offsets[event] : self.offsets[event + 1]])

    def __getitem__(self, event: int) -> npt.NDArray[Any]:
        return self.row(event)

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """The ids of one event after the other."""
        ids, ends = self.ids, self.offsets.tolist()
        return (ids[first:last] for first, last in itertools.pairwise(ends))

    def events(self) -> npt.NDArray[np.int64]:
        """For each pair, the row number of its event."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)

    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Event rows and subscription ids, one pair per position."""
        return self.events(), self.ids

    def sort(self) -> Matches:
        """The same matches with the ids of each row in ascending order."""
        ranks = self._names.ranks()
        keys = self.slots if ranks is None else ranks[self.slots]
        order = np.empty(len(keys), np.int64)
        kernels.order_rows(self.offsets, np.ascontiguousarray(keys), order)
        return Matches(self.offsets, self.slots[order], self._names)

    def names_at(self, slots: npt.NDArray[Any]) -> Ids:
        """The ids of some slots."""
        return self._names.select(slots)

    def to_arrow(self, event_ids: Any = None) -> pa.Table:
        """A table of pairs: `event_id` (the id given for it, or the row number) and `subscription_id`."""
        events: pa.Array[Any] = arrow_numbers(self.events())
        if event_ids is not None:
            column = (
                event_ids.combine_chunks() if isinstance(event_ids, pa.ChunkedArray) else pa.array(event_ids)
            )
            events = column.take(events)
        return pa.table({"event_id": events, "subscription_id": self._arrow_ids()})

    def _arrow_ids(self) -> pa.Array[Any]:
        """The ids of all pairs: numbers as they are delivered, strings by their place in a dictionary."""
        if self._names.textual:
            return self._names.take_arrow(self.slots)
        return arrow_numbers(self.ids)

    def to_pandas(self, event_ids: Any = None) -> Any:
        """The pairs of `to_arrow` as a DataFrame of pandas."""
        return self._plain(event_ids).to_pandas()

    def to_polars(self, event_ids: Any = None) -> Any:
        """The pairs of `to_arrow` as a DataFrame of Polars."""
        import polars

        return polars.from_arrow(self._plain(event_ids))

    def _plain(self, event_ids: Any) -> pa.Table:
        """The pairs with ids as they are, without a dictionary."""
        pairs = self.to_arrow(event_ids)
        kind = pairs.schema.field("subscription_id").type
        if not pa.types.is_dictionary(kind):
            return pairs
        return pairs.set_column(1, "subscription_id", pairs["subscription_id"].cast(kind.value_type))

    def _repr_html_(self) -> str:
        """The first events as a table, for a notebook."""
        shown = min(len(self), _SHOWN)
        rows = []
        for event in range(shown):
            ids = self.row(event).tolist()
            more = f", and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
            text = html.escape(", ".join(map(str, ids[:_SHOWN])) + more)
            rows.append(f"<tr><td>{event}</td><td>{len(ids):,}</td><td>{text}</td></tr>")
        head = "<tr><th>event</th><th>matches</th><th>subscriptions</th></tr>"
        rest = f"<p>and {len(self) - shown:,} more events</p>" if len(self) > shown else ""
        return f"<p>{html.escape(repr(self))}</p><table>{head}{''.join(rows)}</table>{rest}"

    def __eq__(self, other: object) -> bool:
        """Whether the same events match the same subscriptions, in whatever order."""
        if not isinstance(other, Matches):
            return NotImplemented
        if not np.array_equal(self.offsets, other.offsets):
            return False
        return bool(np.array_equal(self.sort().ids, other.sort().ids))

    __hash__ = None  # type: ignore[assignment]
