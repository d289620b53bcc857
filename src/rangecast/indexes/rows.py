"""Matches on their way: counted, found, joined over several sources, and written as slots or ids.

A source is a part or the tail of a static layout. It gives rows (offsets and slots), or it counts its
matches first and writes them when they are wanted, straight to where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import recycling
from rangecast.attributes import Codes
from rangecast.ids import Ids
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.reading import Rows
from rangecast.kernels import matches as match_kernels
from rangecast.kernels import scan as scan_kernels

_NO_ROWS = np.empty(0, np.int32)


class Counted(NamedTuple):
    """Matches that were counted, and what writes them: one row an event, from the places given on.

    `fill(places, out, add)` writes slot + add: into 32 bits with 0 the slots, into 64 bits with what turns
    them into ids, where the ids of a part count up with its slots (`_Covered.base` in parts.py).
    """

    counts: npt.NDArray[np.int64]
    fill: Callable[[npt.NDArray[np.int64], npt.NDArray[Any], int], None]


class Source(NamedTuple):
    """The matches within one part or the tail, and what makes ids of its slots when added, if known."""

    found: Rows | Counted
    base: int | None = None

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Matches per event."""
        return self.found.counts if isinstance(self.found, Counted) else np.diff(self.found[0])


class PendingRows:
    """Matches that are counted but not written: whoever wants ids gets them without slots in between."""

    def __init__(self, offsets: npt.NDArray[np.int64], sources: list[Source], names: Ids) -> None:
        self._offsets = offsets
        self._sources = sources
        self._names = names

    def slots(self) -> npt.NDArray[np.int32]:
        """The slots, row after row."""
        return join_rows([source.found for source in self._sources], len(self._offsets) - 1)[1]

    def ids(self) -> npt.NDArray[Any]:
        """The ids, row after row."""
        if all(source.base is None for source in self._sources):
            return self._names.take(self.slots())
        out = recycling.empty(int(self._offsets[-1]), np.int64)
        places = self._offsets[:-1].copy()
        for source in self._sources:
            found, base = source
            if base is None:
                rows = found if not isinstance(found, Counted) else join_rows([found], len(places))
                match_kernels.place_ids(*rows, self._names.values, places, out)
            elif isinstance(found, Counted):
                found.fill(places, out, base)
            else:
                match_kernels.place_rows(*found, places, np.int64(base), out)
            places += source.counts
        return out


def join_rows(sources: Sequence[Rows | Counted], n_events: int) -> Rows:
    """The matches of several sources, one after the other within each event."""
    sources = [s for s in sources if isinstance(s, Counted) or len(s[1])]
    if not sources:
        return np.zeros(n_events + 1, np.int64), _NO_ROWS
    if len(sources) == 1 and not isinstance(sources[0], Counted):
        return sources[0]
    counts = [s.counts if isinstance(s, Counted) else np.diff(s[0]) for s in sources]
    offsets = np.zeros(n_events + 1, np.int64)
    np.cumsum(sum(counts[1:], start=counts[0]), out=offsets[1:])
    places = offsets[:-1].copy()
    out = recycling.empty(int(offsets[-1]), np.int32)
    for source, count in zip(sources, counts, strict=True):
        if isinstance(source, Counted):
            source.fill(places, out, 0)
        else:
            match_kernels.place_rows(*source, places, np.int32(0), out)
        places += count
    return offsets, out


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
