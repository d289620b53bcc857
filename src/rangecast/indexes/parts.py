"""Live updates for static layouts, by one mechanism: immutable parts, a tail, tombstones, merges.

Boxes are numbered in the order of arrival (catalog.py). A static layout covers them like this:

    box numbers   0 ................................................ n_boxes
                  [ part 0, large      ][ part 1 ][ p. 2 ][ tail: scanned ]

Each part is built once from the living boxes of its range and never changes. New boxes lengthen the
tail, which is scanned; past `tail_limit` it becomes a part, taking along the parts before it that are
not at least RATIO times larger, so there are few parts and a box is rebuilt a logarithmic number of
times. A deleted or replaced slot is marked in `dead` and dropped from the answers. A part in which more
than one in SWEEP_SHARE is dead is swept, if it knows how to leave them out by one pass over its entries,
and one in which a quarter is dead is built anew; when more slots are dead than alive, the catalog is too.

A match takes one `_State`, which is never changed: a writer makes another and swaps it in. So
matching needs no lock and sees all of an insert or delete, or nothing of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.attributes import Codes
from rangecast.errors import OptionError
from rangecast.ids import Ids
from rangecast.indexes.base import Index, Reading, Rows
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.estimate import Estimate
from rangecast.kernels import matches as match_kernels
from rangecast.kernels import scan as scan_kernels
from rangecast.storage import Arrays

RATIO = 8
TAIL_LIMIT = 512
REBUILD_SHARE = 4
SWEEP_SHARE = 128

_NO_ROWS = np.empty(0, np.int32)


class Counted(NamedTuple):
    """Matches that were counted, and what writes them: one row an event, from the places given on."""

    counts: npt.NDArray[np.int64]
    fill: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int32]], None]


class Part:
    """A static layout of some boxes. Subclasses hold arrays and say how they are matched."""

    exact: ClassVar[bool] = False
    """Whether it holds the boxes it was made of and no others, so that none was dead at that time."""

    def stab(self, codes: Codes, boxes: Boxes) -> Rows:
        """The matches of a batch within this part, dead slots included."""
        raise NotImplementedError

    def export(self) -> tuple[dict[str, Any], Arrays]:
        """Plain data and arrays from which `restore` makes the part again."""
        raise NotImplementedError

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: Arrays) -> Part:
        """The part of an export."""
        raise NotImplementedError

    def count_matches(self, codes: Codes) -> Counted | None:
        """The matches, counted before any is written, where a part can do that without a check: the
        matches of several parts then go straight to their places. None where it cannot."""
        return None

    def without(self, dead: npt.NDArray[np.uint8]) -> Part | None:
        """This part without the entries of dead slots, or None where only building anew does that."""
        return None

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64] | None:
        """How many entries each event would look at, None where that is not known before the search."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of the part's own arrays."""
        return sum(array.nbytes for array in self.export()[1].values())

    def stats(self) -> dict[str, int]:
        """Counts that add up over parts."""
        return {}


class _Covered(NamedTuple):
    """A part and the box numbers that it covers, with how many were alive when it was built."""

    first: int
    last: int
    built: int
    part: Part


class _State(NamedTuple):
    """All that a match reads."""

    parts: tuple[_Covered, ...]
    boxes: Boxes
    dead: npt.NDArray[np.uint8] | None
    names: Ids
    flagged: npt.NDArray[np.uint8] | None


class _StaticReading(Reading):
    def __init__(self, state: _State) -> None:
        self._state = state
        self.names = state.names
        self.flagged = state.flagged

    # by hand: a generator's context manager shows in a match of one event
    def __enter__(self) -> _StaticReading:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def stab(self, codes: Codes) -> Rows:
        state = self._state
        tail = state.parts[-1].last if state.parts else 0
        alone = len(state.parts) + (tail < state.boxes.n) == 1
        sources: list[Rows | Counted] = []
        for covered in state.parts:
            counted = None if alone else covered.part.count_matches(codes)
            sources.append(covered.part.stab(codes, state.boxes) if counted is None else counted)
        if tail < state.boxes.n:
            sources.append(scan_rows(codes, state.boxes, tail, state.boxes.n))
        offsets, slots = join_rows(sources, codes.shape[1])
        if state.dead is not None and len(slots):
            kept = np.empty_like(offsets)
            n = match_kernels.drop_dead(offsets, slots, state.dead, kept)
            offsets, slots = kept, slots[:n]
        return offsets, slots


class StaticIndex(Index):
    """An index whose layout is built from boxes at once; a kind of it provides `_build`."""

    part_type: ClassVar[type[Part]]
    sweep_share: int | None = None
    """One in how many must be dead for a sweep; SWEEP_SHARE unless told. A sweep goes over all entries of
    a part, and saves a look-up a match: who changes much and matches little sets it lower."""
    _parts: tuple[_Covered, ...]
    _state: _State

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        """A part over the boxes with these numbers (ascending)."""
        raise NotImplementedError

    def _reset(self) -> None:
        # not published when there is a state already: a match must not see the index empty while
        # it is built anew
        self._parts = ()
        if not hasattr(self, "_state"):
            self._publish()

    def _publish(self) -> None:
        catalog = self._catalog
        n = catalog.n_slots
        dead = self._dead() if self._holds_dead() else None
        flagged = catalog.overlapping[:n] if catalog.n_overlapping else None
        self._state = _State(self._parts, catalog.boxes, dead, catalog.ids, flagged)

    def _dead(self) -> npt.NDArray[np.uint8]:
        return 1 - self._catalog.alive[: self._catalog.n_slots]

    def _holds_dead(self) -> bool:
        """Whether a part or the tail could still give a dead slot."""
        catalog = self._catalog
        if catalog.n_living == catalog.n_slots:
            return False
        tail = self._parts[-1].last if self._parts else 0
        held = catalog.n_boxes - tail + sum(covered.built for covered in self._parts)
        return not self.part_type.exact or held > catalog.n_living_boxes

    def _reading(self) -> contextlib.AbstractContextManager[Reading]:
        return _StaticReading(self._state)

    def _estimate(self, codes: Codes, level: int | None) -> Estimate:
        state = self._state
        if level is not None:
            raise OptionError(f"index {self.name!r} has no levels to estimate at, got level={level}")
        tail = state.parts[-1].last if state.parts else 0
        workloads = np.full(codes.shape[1], state.boxes.n - tail, np.int64)
        for covered in state.parts:
            counts = covered.part.count_candidates(codes)
            if counts is None:
                return super()._estimate(codes, level)
            workloads += counts
        return Estimate(workloads)

    def _add(self, first: int, last: int) -> None:
        tail = self._parts[-1].last if self._parts else 0
        if last - tail > TAIL_LIMIT:
            self._cover(tail)

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        """Nothing to do: `_settle` publishes who is dead."""

    def _settle(self) -> None:
        super()._settle()
        if self._holds_dead():
            for covered in self._parts:
                living = self._living(covered.first, covered.last)
                gone = covered.built - len(living)
                if gone > covered.built // REBUILD_SHARE:
                    self._replace(covered, len(living), self._build(self._catalog.boxes, living))
                elif gone > covered.built // (self.sweep_share or SWEEP_SHARE):
                    swept = covered.part.without(self._dead())
                    if swept is not None:
                        self._replace(covered, len(living), swept)
        self._publish()

    def compact(self) -> None:
        with self._lock:
            super().compact()
            self._publish()

    def _living(self, first: int, last: int) -> npt.NDArray[np.int64]:
        catalog = self._catalog
        return np.flatnonzero(catalog.alive[catalog.box_slots[first:last]]) + first

    def _replace(self, covered: _Covered, built: int, part: Part) -> None:
        fresh = _Covered(covered.first, covered.last, built, part)
        self._parts = tuple(fresh if c is covered else c for c in self._parts)

    def _cover(self, first: int) -> None:
        """Make the tail a part, together with earlier parts that are not much larger."""
        last = self._catalog.n_boxes
        parts = list(self._parts)
        size = last - first
        while parts and parts[-1].built < RATIO * size:
            taken = parts.pop()
            first = taken.first
            size += taken.built
        living = self._living(first, last)
        part = self._build(self._catalog.boxes, living)
        self._parts = (*parts, _Covered(first, last, len(living), part))

    def _structure_stats(self) -> dict[str, Any]:
        totals: dict[str, int] = {}
        for covered in self._parts:
            for key, value in covered.part.stats().items():
                totals[key] = totals.get(key, 0) + value
        tail = self._parts[-1].last if self._parts else 0
        dead = self._state.dead
        return {
            "bytes": sum(c.part.nbytes for c in self._parts) + (dead.nbytes if dead is not None else 0),
            "parts": len(self._parts),
            "tail_boxes": self._catalog.n_boxes - tail,
            **totals,
        }

    def _export(self) -> tuple[dict[str, Any], Arrays]:
        metas: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for number, covered in enumerate(self._parts):
            meta, part_arrays = covered.part.export()
            metas.append({"first": covered.first, "last": covered.last, "built": covered.built, "meta": meta})
            arrays.update({f"part{number}.{name}": array for name, array in part_arrays.items()})
        return {"parts": metas}, arrays

    def _restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        parts = []
        for number, entry in enumerate(meta["parts"]):
            prefix = f"part{number}."
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            part = self.part_type.restore(entry["meta"], own)
            parts.append(_Covered(entry["first"], entry["last"], entry["built"], part))
        self._parts = tuple(parts)
        self._publish()


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
    out = np.empty(int(offsets[-1]), np.int32)
    for source, count in zip(sources, counts, strict=True):
        if isinstance(source, Counted):
            source.fill(places, out)
        else:
            match_kernels.place_rows(*source, places, out)
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
    out = np.empty(n, np.int32)
    match_kernels.group_pairs(events, slots, n, offsets, out)
    return offsets, out
