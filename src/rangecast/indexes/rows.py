"""Matches on their way: counted, found, joined over several sources, and written as slots or ids.

A source is a part of a static layout or the tail, for all events of a batch or some of them. It gives rows
(offsets and slots), or it counts its matches first and writes them when they are wanted, straight to where
they belong. Several sources can be written side by side, since each knows its places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import recycling
from rangecast.attributes import Codes
from rangecast.ids import Ids
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.reading import Rows, Run
from rangecast.kernels import matches as match_kernels
from rangecast.kernels import scan as scan_kernels
from rangecast.kernels.grid import sort_by_cell

SHARED = 1 << 16
CACHES = 32 << 20
_ORDER_BITS = 14
_FIRST = np.arange(64)
_NO_ROWS = np.empty(0, np.int32)


class Counted(NamedTuple):
    """Matches that were counted, and what writes them: one row an event, from the places given on.

    `fill(places, out, add)` writes slot + add: into 32 bits with 0 the slots, into 64 bits with what turns
    them into ids, where the ids of a part count up with its slots (`_Covered.base` in parts.py).
    """

    counts: npt.NDArray[np.int64]
    fill: Callable[[npt.NDArray[np.int64], npt.NDArray[Any], int], None]


Found = Rows | Counted


def past_caches(n: int, out: npt.NDArray[Any]) -> bool:
    """Whether one source writes so much that nobody would find it in the caches.

    What little another adds to each row does not: a line that is written past them in pieces costs more than
    one that is fetched.
    """
    return n * out.itemsize > CACHES


def count_rows(found: Found) -> npt.NDArray[np.int64]:
    """Matches per event."""
    return found.counts if isinstance(found, Counted) else np.diff(found[0])


def place(found: Found, places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
    """Write the slots of each event, with something added, from its place on."""
    if isinstance(found, Counted):
        found.fill(places, out, add)
    else:
        match_kernels.place_rows(*found, places, out.dtype.type(add), past_caches(len(found[1]), out), out)


def as_they_come(n_events: int) -> npt.NDArray[np.int64]:
    """The events of a batch in their own order."""
    # cut from a table, for it shows in a match of one event
    return _FIRST[:n_events] if n_events <= len(_FIRST) else np.arange(n_events)


def along(cells: npt.NDArray[Any], n_cells: int) -> npt.NDArray[np.int64]:
    """Events of neighbouring cells after each other, for they read the same lists."""
    down = max(0, n_cells.bit_length() - _ORDER_BITS)
    order = recycling.empty(len(cells), np.int64)
    sort_by_cell(cells >> down, np.zeros((1 << _ORDER_BITS) + 1, np.int64), order)
    return order


def in_turn(
    order: npt.NDArray[np.int64],
    n_events: int,
    offsets: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int32],
) -> Counted:
    """Rows of some or all events that were found in another order: row r is that of event order[r]."""
    counts = recycling.empty(n_events, np.int64)
    if len(order) < n_events:
        counts[:] = 0
    counts[order] = np.diff(offsets)

    def fill(places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
        past, plus = past_caches(len(slots), out), out.dtype.type(add)
        match_kernels.place_turned(order, offsets, slots, places, plus, past, out)

    return Counted(counts, fill)


def together(several: Sequence[Found], n_events: int) -> Found:
    """What several sources found, one after the other within each event."""
    held = [found for found in several if isinstance(found, Counted) or len(found[1])]
    if not held:
        return np.zeros(n_events + 1, np.int64), _NO_ROWS
    if len(held) == 1:
        return held[0]
    counts = [count_rows(found) for found in held]

    def fill(places: npt.NDArray[np.int64], out: npt.NDArray[Any], add: int) -> None:
        places = places.copy()
        for found, own in zip(held, counts, strict=True):
            place(found, places, out, add)
            places += own

    return Counted(sum(counts[1:], start=counts[0]), fill)


def written(found: Found) -> Rows:
    """The same as rows."""
    if not isinstance(found, Counted):
        return found
    offsets = np.zeros(len(found.counts) + 1, np.int64)
    np.cumsum(found.counts, out=offsets[1:])
    out = recycling.empty(int(offsets[-1]), np.int32)
    found.fill(offsets[:-1].copy(), out, 0)
    return offsets, out


class Source(NamedTuple):
    """What one part or the tail found, from some event on, and what makes ids of its slots
    when added, if known."""

    found: Found
    base: int | None = None
    first: int = 0


class PendingRows:
    """Matches that are counted but not written: whoever wants ids gets them without slots in between."""

    def __init__(self, n_events: int, sources: list[Source], names: Ids, run: Run = map) -> None:
        self.offsets = np.zeros(n_events + 1, np.int64)
        self._sources = sources
        self._counts = [count_rows(source.found) for source in sources]
        self._names = names
        self._run = run
        for source, counts in zip(sources, self._counts, strict=True):
            self.offsets[source.first + 1 : source.first + 1 + len(counts)] += counts
        np.cumsum(self.offsets, out=self.offsets)

    def slots(self) -> npt.NDArray[np.int32]:
        """The slots, row after row."""
        out = recycling.empty(int(self.offsets[-1]), np.int32)
        self._write(lambda source, counts, places: place(source.found, places, out, 0))
        return out

    def ids(self) -> npt.NDArray[Any]:
        """The ids, row after row."""
        if all(source.base is None for source in self._sources):
            return self._names.take(self.slots())
        out = recycling.empty(int(self.offsets[-1]), np.int64)

        def write(source: Source, counts: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> None:
            place(source.found, places, out, source.base or 0)
            if source.base is None:
                match_kernels.name_rows(counts, self._names.values, places, out)

        self._write(write)
        return out

    def _write(self, write: Callable[[Source, npt.NDArray[np.int64], npt.NDArray[np.int64]], None]) -> None:
        free = self.offsets[:-1].copy()
        calls = []
        for source, counts in zip(self._sources, self._counts, strict=True):
            own = free[source.first : source.first + len(counts)]
            calls.append(partial(write, source, counts, own.copy()))
            own += counts
        # waking threads takes as long as writing some ten thousand
        run = self._run if self.offsets[-1] > SHARED else map
        for _ in run(lambda call: call(), calls):
            pass


def scan_rows(codes: Codes, boxes: Boxes, first: int, last: int) -> Rows:
    """Match a batch against a range of boxes by looking at each."""
    lows, highs = boxes.lows, boxes.highs
    order = np.empty(len(lows), np.int64)
    used = scan_kernels.order_attributes(lows, highs, first, last, order)
    return grow_and_group(
        codes.shape[1],
        lambda state, events, slots: scan_kernels.scan(
            codes, lows, highs, boxes.slots, first, last, order[:used], state, events, slots
        ),
    )


def grow_and_group(n_events: int, run: Any) -> Rows:
    """Call a kernel that emits (event, slot) pairs until it is done, then put them into rows.

    The kernel gets `state` (int64[2]: where to go on, pairs written) and two int32 buffers; it returns
    True when done and False when the buffers are full.
    """
    state = np.zeros(2, np.int64)
    events = np.empty(max(1024, 4 * n_events), np.int32)
    slots = np.empty(len(events), np.int32)
    while not run(state, events, slots):
        events, slots = (np.concatenate([a, np.empty(len(a), np.int32)]) for a in (events, slots))
    n = int(state[1])
    offsets = np.zeros(n_events + 1, np.int64)
    out = recycling.empty(n, np.int32)
    match_kernels.group_pairs(events, slots, n, offsets, out)
    return offsets, out
