"""Live updates for static layouts, by one mechanism: immutable parts, a tail, tombstones, merges.

Boxes are numbered in the order of arrival (catalog.py). A static layout covers them like this:

    box numbers   0 ................................................ n_boxes
                  [ part 0, large      ][ part 1 ][ p. 2 ][ tail: scanned ]

Each part is built once from the living boxes of its range and never changes. New boxes lengthen the
tail, which is scanned; past TAIL_LIMIT it becomes a part, taking along the parts before it that are
not at least `ratio` times larger, so there are few parts and a box is rebuilt a logarithmic number of
times. A kind may let the tail grow further as long as there is no part (`tail_alone`). When a merge takes
all parts, slots are renumbered too. A deleted or replaced slot is marked in `dead` and dropped from the
answers. A part in which more than one in SWEEP_SHARE is dead is swept, if it knows how to leave them out by
one pass over its entries, and one in which a quarter is dead is rebuilt; when more slots are dead than
alive, the catalog is too. A match that would spend more on the tail or on dead slots than it takes to be
rid of them, alone or with those before it, does that first, unless a writer is at work.

A match takes one `StaticState`, which is never changed: a writer makes another and swaps it in (reading.py).
So matching needs no lock and sees all of an insert or delete, or nothing of it. `_parts` and `_gone` are the
writer's own, as `_catalog` is; each writer begins with those of the state.

What a layout provides is a `Part`: arrays that never change, and what is asked of them.

Sweeping and merging are no part of what was asked for: where there is no room for them, the write or the
match goes on without.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.durable.arrays import Arrays, count_bytes
from rangecast.engine.answers import Estimate, Found, Request, Rows, scan_rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.catalog import Catalog, SlotChecks, checked_slots
from rangecast.engine.checks import hold
from rangecast.engine.index import Index
from rangecast.engine.packed import Packed
from rangecast.engine.reading import Reading, StaticReading
from rangecast.errors import OptionError
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.wide_events import EventEntries
from rangecast.simd.memory import Views
from rangecast.types.attributes import Codes

TAIL_LIMIT = 512
TAIL_WORK = 1 << 18  # boxes looked at, over all events of a batch
TAIL_SPENT = 1 << 24  # and over all events since the last part was built
LED = 63  # boxes beyond itself whose time one takes that is looked up in a long list
REBUILD_SHARE = 4
SWEEP_SHARE = 128


class _CoveredParts(NamedTuple):
    """What a file holds of a static index."""

    parts: tuple[_Covered, ...]


class StaticIndex(Index):
    """An index whose layout is built from boxes at once; a kind of it provides `_build`."""

    sweep_share: int | None = None
    """One in how many must be dead for a sweep; SWEEP_SHARE by default. A sweep goes over all entries of
    a part, and saves a look-up a match: who changes much and matches little sets it lower."""
    tail_alone: ClassVar[int] = 1
    """How many times TAIL_LIMIT boxes may be scanned before the first part is built, as far as that depends
    on the kind alone (`_tail_limit`)."""
    _scanned: int = 0
    """Boxes of the tail that matches have looked at since a part was built; threads may lose a count."""
    _parts: tuple[_Covered, ...]
    _gone: dict[int, int]
    _read: StaticReading
    _no_room: StaticState | None = None
    """The state for which a match found no room to make it better: it does not try again."""

    @property
    def _state(self) -> StaticState:
        return self._read.state

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        """A part over the boxes with these numbers (ascending)."""
        raise NotImplementedError

    def _reset(self) -> None:
        self._parts = ()
        self._gone = {}
        self._filtered = 0

    def _resume(self) -> None:
        state = self._read.state
        self._catalog, self._parts, self._gone = state.catalog, state.parts, dict(state.gone)

    def _begin(self) -> None:
        # a layout that came from a file was checked and is never changed, but new ones are built beside it
        self._resume()
        self._check_boxes()
        self._from_file = False

    def _publish(self) -> None:
        catalog, parts = self._catalog, self._parts
        dead = self._dead() if self._holds_dead() else None
        covered = parts[-1].last if parts else 0
        said = checked_slots(catalog, catalog.slot_of(covered))
        sources = [Source(part.part, part.base) for part in parts]
        if covered < catalog.n_boxes:
            sources.append(Source(Tail(covered, catalog.n_boxes), None))
        tail = catalog.n_boxes - covered
        state = StaticState(
            catalog, parts, self._gone, tuple(sources), dead, said, tail, self._tail_work(covered)
        )
        self._read = StaticReading(self, state)

    def _dead(self) -> npt.NDArray[np.uint8]:
        return 1 - self._catalog.alive[: self._catalog.n_slots]

    def _holds_dead(self) -> bool:
        """Whether a part or the tail could still give a dead slot."""
        catalog = self._catalog
        if catalog.n_living == catalog.n_slots:
            return False
        tail = self._parts[-1].last if self._parts else 0
        held = catalog.n_boxes - tail + sum(covered.built for covered in self._parts)
        exact = all(covered.part.exact for covered in self._parts)
        return not exact or held > catalog.n_living_boxes

    def _reading(self) -> contextlib.AbstractContextManager[Reading]:
        return self._read

    def match(
        self, events: Events | Mapping[str, Any] | Any, threads: int = 1, limit: int | None = None
    ) -> Matches:
        if limit is None and type(events) is Events:
            # one event, without what only a batch needs: two thirds of the time; after the state, as for one
            reading = self._read
            codes, firsts = events.encoded(reading.catalog.schema, self.reads_entries)
            if firsts is None and codes.shape[1] == 1:
                found = reading.match_one(codes)
                self._last = {"last_events": 1, "last_matches": found.n_pairs}
                if not self._passes():
                    self._prepare(codes)  # for the next ones
                return found
        return super().match(events, threads, limit)

    def _passes(self) -> bool:
        return False  # whether one event was counted and nothing else is to be done about it

    def _estimate(self, codes: Codes, level: int | None) -> Estimate:
        state = self._state
        if level is not None:
            raise OptionError(f"index {self.name!r} has no levels to estimate at, got level={level}")
        workloads = np.full(codes.shape[1], state.tail, np.int64)
        for covered in state.parts:
            counts = covered.part.cost(codes)
            if counts is None:
                return super()._estimate(codes, level)
            workloads += counts
        return Estimate(workloads)

    def _arranged(self, subs: Subscriptions) -> Subscriptions:
        # where ids can count up with slots they do, and reading ids is adding a number
        order = subs.ids.dense_order()
        return subs if order is None else subs.select(order)

    def _add(self, first: int, last: int) -> None:
        tail = self._parts[-1].last if self._parts else 0
        if self._tail_work(tail) > (TAIL_LIMIT if self._parts else self._tail_limit()):
            self._cover(tail)

    def _tail_work(self, first: int) -> int:
        """What an event compares where it scans the boxes from a number on, counted in boxes."""
        said = self._catalog.said
        led = 0 if said is None else said.lists.n_led(first)
        return self._catalog.n_boxes - first + LED * led

    def _tail_limit(self) -> int:
        """How many boxes may be scanned while there is no part."""
        return TAIL_LIMIT * self.tail_alone

    def _is_worth_a_part(self, work: int) -> bool:
        """Whether scanning so many boxes costs more than a part, which it does where kernels are compiled."""
        return True

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        """Count the boxes that each part loses; `_settle` publishes who is dead."""
        if not self._parts:
            return
        boxes, behind = self._catalog.box_ranges(slots)
        # those of the tail fall behind the last part
        ends = np.array([covered.last for covered in self._parts])
        counts = np.bincount(np.searchsorted(ends, boxes, "right"), behind - boxes, len(ends))
        for covered, count in zip(self._parts, counts.tolist(), strict=False):
            self._gone[covered.first] = self._gone.get(covered.first, 0) + int(count)

    def _settle(self) -> None:
        before = self._catalog, self._parts, self._gone.copy()
        try:
            self._tidy()
        except MemoryError:
            self._catalog, self._parts, self._gone = before

    def _tidy(self) -> None:
        """Rebuild the parts whose layout has lost much."""
        super()._settle()
        for covered in self._parts:
            gone = self._gone.get(covered.first, 0)
            if gone > covered.built // REBUILD_SHARE:
                living = self._living(covered.first, covered.last)
                self._replace(covered, len(living), self._build(self._catalog.boxes, living))
            elif gone > covered.built // (self.sweep_share or SWEEP_SHARE):
                self._sweep(covered)

    def _sweep(self, covered: _Covered) -> None:
        swept = covered.part.without(self._dead())
        if swept is not None:
            self._replace(covered, covered.built - self._gone[covered.first], swept)

    def _prepare(self, codes: Codes) -> None:
        state = self._read.state
        if not state.tail and not self._filtered:
            return
        work = state.tail_work * codes.shape[1]
        self._scanned += work
        much_tail = state.tail_work >= 16 and (work > TAIL_WORK or self._scanned > TAIL_SPENT)
        much_tail = much_tail and (bool(state.parts) or self._is_worth_a_part(max(work, self._scanned)))
        much_dead = self._filtered > state.catalog.n_living_boxes
        if not (much_tail or much_dead) or state is self._no_room:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._resume()
            self._check_boxes()
            if much_tail:
                self._cover(self._parts[-1].last if self._parts else 0)
            if much_dead:
                self._filtered = 0
                for covered in self._parts:
                    if self._gone.get(covered.first, 0):
                        self._sweep(covered)
            self._publish()
        except MemoryError:
            # a match must not fail for want of room to do better
            self._no_room = state
        finally:
            self._lock.release()

    def _living(self, first: int, last: int) -> npt.NDArray[np.int64]:
        return self._catalog.living_boxes(first, last)

    def _replace(self, covered: _Covered, built: int, part: Part) -> None:
        fresh = covered._replace(built=built, part=part)
        self._gone.pop(covered.first, None)
        self._parts = tuple(fresh if c is covered else c for c in self._parts)

    def _cover(self, first: int) -> None:
        """Make the tail a part, together with earlier parts that are not much larger."""
        self._scanned = 0
        last = self._catalog.n_boxes
        parts = list(self._parts)
        size = last - first
        while parts and parts[-1].built < parts[-1].part.ratio * size:
            taken = parts.pop()
            self._gone.pop(taken.first, None)
            first = taken.first
            size += taken.built
        if not parts and self._catalog.n_living < self._catalog.n_slots:
            # all is built anew, so slots may be given anew too
            self._compact(self._catalog)
            return
        living = self._living(first, last)
        part = self._build(self._catalog.boxes, living)
        self._parts = (*parts, _Covered(first, last, len(living), part, self._catalog.id_base(first, last)))

    def _structure_stats(self) -> dict[str, Any]:
        totals: dict[str, int] = {}
        state = self._state
        for covered in state.parts:
            for key, value in covered.part.stats().items():
                totals[key] = totals.get(key, 0) + value
        dead = 0 if state.dead is None else state.dead.nbytes
        return {
            "bytes": sum(part_bytes(covered.part) for covered in state.parts) + dead,
            "parts": len(state.parts),
            "tail_boxes": state.tail,
            **totals,
        }

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        with self._lock:
            self._resume()
            if not self._parts and self._tail_work(0) > TAIL_LIMIT * self.tail_alone:
                self._check_boxes()
                self._cover(0)
                self._publish()
            return super()._dump()

    def _structure(self) -> _CoveredParts:
        return _CoveredParts(self._parts)

    def _frozen(self, arrays: Arrays) -> Arrays:
        # nobody changes the arrays of a part
        return arrays

    def _take_structure(self, structure: _CoveredParts) -> None:
        self._parts = structure.parts
        boxes = self._catalog.boxes
        last = 0
        for covered in self._parts:
            hold("that parts follow one another", last <= covered.first <= covered.last <= boxes.n)
            last = covered.last
            covered.part.check(boxes, self._catalog.n_slots)
        if self._catalog.n_living < self._catalog.n_slots:
            for covered in self._parts:
                self._gone[covered.first] = covered.built - len(self._living(covered.first, covered.last))


# A static layout of some boxes: what one is asked for, and the tail of an index as one.


class Part:
    """A static layout of some boxes.

    A kind of it is a dataclass, whose fields are what a file holds (durable/arrays.py): arrays in
    NamedTuples, as kernels take them, and plain values. What follows from them it makes in `__post_init__`.
    """

    exact: ClassVar[bool] = False
    """Whether it holds the boxes it was made of and no others, so that none was dead at that time."""

    ratio: int = 8
    """A newer part that is not this many times smaller is merged with this one: more where building costs
    little beside what a second part costs every event."""

    def stab(self, request: Request) -> Found:
        """The matches of a batch within this part, dead slots included."""
        raise NotImplementedError

    def stab_one(self, codes: Any, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """The matches of one event, or None where `stab` had better find them: where they are many, or where
        codes are what the event says, and a part does not read that."""
        return None

    def without(self, dead: npt.NDArray[np.uint8]) -> Part | None:
        """This part without the entries of dead slots, or None where only a rebuild does that."""
        return None

    def check(self, boxes: Boxes, n_slots: int) -> None:
        """Raise StorageError unless all that kernels index by is in range (checks.py)."""

    def cost(self, codes: Codes) -> npt.NDArray[np.int64] | None:
        """How many entries each event would look at, None where that is not known before the search."""
        return None

    def stats(self) -> dict[str, int]:
        """Counts that add up over parts."""
        return {}


def part_bytes(part: Part) -> int:
    """Bytes of a part's arrays, and of the tables that its packed bounds have made of them."""

    def derived(tree: Any) -> int:
        if isinstance(tree, Packed):
            return tree.derived_bytes
        if dataclasses.is_dataclass(tree):
            return sum(derived(getattr(tree, field.name)) for field in dataclasses.fields(tree))
        return sum(map(derived, tree)) if isinstance(tree, list | tuple) else 0

    return count_bytes(part) + derived(part)


@dataclass(eq=False)
class Tail(Part):
    """The tail as a part, where all are asked alike; it is not kept."""

    first: int
    last: int

    def stab(self, request: Request) -> Found:
        return scan_rows(request.codes, request.boxes, self.first, self.last)

    def stab_one(self, codes: Any, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        own = codes.columns() if isinstance(codes, EventEntries) else codes
        return scan_rows(own, boxes, self.first, self.last)[1]


class _Covered(NamedTuple):
    """A part and the box numbers that it covers, with how many were alive when it was built.

    The base is there when ids count up with slots within the part: id = slot + base.
    """

    first: int
    last: int
    built: int
    part: Part
    base: int | None


class Source(NamedTuple):
    """What a match asks: a part or the tail, with its base."""

    part: Part
    base: int | None


class StaticState(NamedTuple):
    """All that a match reads, and what the next writer begins with."""

    catalog: Catalog
    parts: tuple[_Covered, ...]
    gone: dict[int, int]
    """How many boxes of a part, by its first one, have died since it was built."""
    sources: tuple[Source, ...]
    """The parts, and the tail behind them if there is one."""
    dead: npt.NDArray[np.uint8] | None
    said: SlotChecks | None
    """What slots with sets or regions are checked by, when some are."""
    tail: int
    """How many boxes no part covers."""
    tail_work: int
    """What an event compares in the tail, counted in boxes."""


# A few events at a time: one kernel call where a batch gets several.
#
# Where events come one at a time, calling is what costs: in lists by value, three calls with thirty arrays
# took two fifths of a match, and comparing nearly nothing. So a part may have a kernel that does all its
# steps for a few events, and finds the part's arrays by a table (simd/memory.py).
#
# How much room the answer needs is known only within the call. It gets ROOM entries per event, or as many as
# the part says, and is called again if that was too little. One event alone gets as much as one before it has
# needed: called twice, one of 2,000 matches would take twice the time.

FEW_EVENTS = 64  # smaller batches take this way
ROOM = 256  # matches per event at first
MOST_ROOM = 1 << 14
"""Matches of one event for which room is kept ready."""
_NO_BOXES = np.empty((0, 3), np.int64)
# of a class numpy makes one of these at each call, which is a third of the time of a small array
_SLOT, _OFFSET = np.dtype(np.int32), np.dtype(np.int64)


class FewEvents:
    """A kernel with the arrays of a part.

    `kernel(table, boxes.table, codes, offsets, out)` writes rows of box numbers and returns how many there
    are, or minus the room to try with.
    """

    def __init__(self, kernel: Callable[..., int], views: Views, room: int = ROOM) -> None:
        self._kernel = kernel
        self._views = views
        self._room = room
        self._room_of_one = room

    @property
    def views(self) -> Views:
        """The arrays of the part."""
        return self._views

    @property
    def room(self) -> int:
        """Matches per event for which there is room at first."""
        return self._room

    def stab(self, codes: Codes, boxes: Boxes | None) -> Rows:
        """The boxes that hold each event; a kernel that looks at no box needs none."""
        m = codes.shape[1]
        table, own = self._views.table, _NO_BOXES if boxes is None else boxes.table
        offsets, out = np.empty(m + 1, np.int64), np.empty(m * self._room, np.int32)
        n = self._kernel(table, own, codes, offsets, out)
        while n < 0:
            out = memory.empty(-n, np.int32)
            n = self._kernel(table, own, codes, offsets, out)
        return offsets, out[:n]

    def stab_one(
        self, codes: Codes, boxes: Boxes | None, slots: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """The boxes that hold one event; with `slots`, those of the boxes."""
        own = _NO_BOXES if boxes is None else boxes.table
        out = np.empty(self._room_of_one, _SLOT)
        n = self._kernel(self._views.table, own, codes, np.empty(2, _OFFSET), out)
        if n < 0 or self._room_of_one > self._room:
            out, n = self._fitted(own, codes, out, n)
        return out[:n] if slots is None else slots[out[:n]]

    def stab_one_small(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """The same as `stab_small`, of one event."""
        out = np.empty(self._room_of_one, _SLOT)
        n = self._kernel(self._views.table, boxes.table, codes, np.empty(2, _OFFSET), out)
        if n < -MOST_ROOM:
            return None
        if n < 0 or self._room_of_one > self._room:
            out, n = self._fitted(boxes.table, codes, out, n)
        return out[:n]

    def _fitted(
        self, own: npt.NDArray[np.int64], codes: Codes, out: npt.NDArray[np.int32], n: int
    ) -> tuple[npt.NDArray[np.int32], int]:
        """An answer of one event in room that suits it: called again where there was too little, which the
        next one then has, and copied where much is left, for others may hold it."""
        while n < 0:
            self._room_of_one = max(self._room_of_one, min(-n, MOST_ROOM))
            out = memory.empty(-n, np.int32)
            n = self._kernel(self._views.table, own, codes, np.empty(2, np.int64), out)
        return (out[:n].copy() if 4 * n < len(out) else out), n

    def stab_small(self, codes: Codes, boxes: Boxes) -> Rows | None:
        """The same, or None where the answer is not small: whoever can write ids without slots in between
        then does so."""
        m = codes.shape[1]
        offsets, out = np.empty(m + 1, np.int64), np.empty(m * self._room, np.int32)
        n = self._kernel(self._views.table, boxes.table, codes, offsets, out)
        return None if n < 0 else (offsets, out[:n])
