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

A match takes one `StaticState`, which is never changed: a writer makes another and swaps it in. So
matching needs no lock and sees all of an insert or delete, or nothing of it. `_parts` and `_gone` are the
writer's own, as `_catalog` is; each writer begins with those of the state.

Sweeping and merging are no part of what was asked for: where there is no room for them, the write or the
match goes on without.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import Arrays, count_bytes
from rangecast.engine.answers import (
    Counted,
    Cut,
    Estimate,
    Finder,
    Found,
    PartialReading,
    PendingRows,
    Portion,
    Rows,
    SeveralColumns,
    WrittenIds,
    count_rows,
    cut_batch,
    scan_rows,
    without_repeats,
    write_rows,
)
from rangecast.engine.boxes import Boxes
from rangecast.engine.catalog import Catalog, SlotChecks, checked_slots
from rangecast.engine.checks import hold
from rangecast.engine.index import Index
from rangecast.engine.threads import pool
from rangecast.errors import OptionError
from rangecast.language.kernels import SET
from rangecast.model import kernels as match_kernels
from rangecast.model.events import Events
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.model.wide_events import EventEntries
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
        flagged = catalog.overlapping[: catalog.n_slots] if catalog.n_overlapping else None
        covered = parts[-1].last if parts else 0
        said = checked_slots(catalog, catalog.slot_of(covered))
        tail = catalog.n_boxes - covered
        alone = dead is None and flagged is None and said is None and len(parts) + bool(tail) == 1
        first = parts[0] if parts else _Covered(0, tail, tail, Tail(0, tail), None)
        only = first if alone else None
        state = StaticState(
            catalog, parts, self._gone, catalog.boxes, dead, catalog.ids, flagged, said, tail, only,
            self._tail_work(covered),
        )  # fmt: skip
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

    def _reading(self) -> contextlib.AbstractContextManager[PartialReading]:
        return self._read

    def match(
        self, events: Events | Mapping[str, Any] | Any, threads: int = 1, limit: int | None = None
    ) -> Matches:
        if limit is None and type(events) is Events:
            # one event, without what only a batch needs: two thirds of the time; after the state, as for one
            reading = self._read
            codes, firsts = events.encoded(reading.catalog.schema, self.reads_entries)
            found = reading.match_single(codes) if firsts is None and codes.shape[1] == 1 else None
            if found is not None:
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
            counts = covered.part.count_candidates(codes)
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
            "bytes": sum(covered.part.nbytes for covered in state.parts) + dead,
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
            covered.part.loaded()
        if self._catalog.n_living < self._catalog.n_slots:
            for covered in self._parts:
                self._gone[covered.first] = covered.built - len(self._living(covered.first, covered.last))


# A static layout of some boxes: what one is asked for, and the tail of an index as one.

IdRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Offsets and ids: the matches of a batch in rows, one per event."""


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

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        """The matches of a batch within this part, dead slots included."""
        raise NotImplementedError

    def stab_entries(self, entries: EventEntries, boxes: Boxes) -> Found:
        """The same of events by what they say."""
        return self.stab(entries.columns(), boxes)

    def find(self, codes: Codes | EventEntries, boxes: Boxes) -> Found:
        """`stab` or `stab_entries`."""
        return self.stab_entries(codes, boxes) if isinstance(codes, EventEntries) else self.stab(codes, boxes)

    def writes_ids(self, codes: Codes) -> bool:
        """Whether `stab_ids` is there for such a batch, so that no slots come first."""
        return False

    def stab_ids(self, codes: Codes, boxes: Boxes, base: int, beside: IdRows | None) -> IdRows:
        """The ids of the matches where they are slots with `base` added, and behind those of each event the
        ones beside."""
        raise NotImplementedError

    def stab_variants(self, variants: SeveralColumns, boxes: Boxes) -> Found:
        """The same of events with several columns each: what is found of an event may stand in any column of
        it that holds it."""
        return self.stab(variants.codes, boxes)

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """The matches of one event, or None where there are so many that `stab` had better write them."""
        return None

    def stab_one_said(self, entries: EventEntries, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        """The same of one event by what it says, or None where a part does not read that."""
        return None

    def stab_some(self, codes: Codes, boxes: Boxes, limit: int) -> Rows:
        """Matches of a batch, so many of each event at least or all of them, dead slots included."""
        return write_rows(self.stab(codes, boxes))

    def count(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int64]:
        """How many matches each event of a batch has, dead slots included."""
        return count_rows(self.stab(codes, boxes))

    def hold_any(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.bool_]:
        """Whether each event of a batch has a match, dead slots included."""
        return self.count(codes, boxes) > 0

    def check(self, boxes: Boxes, n_slots: int) -> None:
        """Raise StorageError unless all that kernels index by is in range (checks.py)."""

    def loaded(self) -> None:
        """Take note that the part came from a file or a pickle."""

    def without(self, dead: npt.NDArray[np.uint8]) -> Part | None:
        """This part without the entries of dead slots, or None where only a rebuild does that."""
        return None

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64] | None:
        """How many entries each event would look at, None where that is not known before the search."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of the part's own arrays."""
        return count_bytes(self) + self.derived_bytes

    @property
    def derived_bytes(self) -> int:
        """Bytes of arrays that are made from the fields."""
        return 0

    def stats(self) -> dict[str, int]:
        """Counts that add up over parts."""
        return {}


@dataclass(eq=False)
class Tail(Part):
    """The tail as a part, where all are asked alike; it is not kept."""

    first: int
    last: int

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        return scan_rows(codes, boxes, self.first, self.last)

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32]:
        return scan_rows(codes, boxes, self.first, self.last)[1]


# What a match of a static index reads: one state of its parts and its tail, which no writer changes.
#
# engine/parts.py makes a new state with every change and hands it over at once.

FEW_CHOICES = 16  # columns of one event that are asked for one by one sooner than as a batch


class _Covered(NamedTuple):
    """A part and the box numbers that it covers, with how many were alive when it was built.

    The base is there when ids count up with slots within the part: id = slot + base.
    """

    first: int
    last: int
    built: int
    part: Part
    base: int | None


class StaticState(NamedTuple):
    """All that a match reads, and what the next writer begins with."""

    catalog: Catalog
    parts: tuple[_Covered, ...]
    gone: dict[int, int]
    """How many boxes of a part, by its first one, have died since it was built."""
    boxes: Boxes
    dead: npt.NDArray[np.uint8] | None
    names: Ids
    flagged: npt.NDArray[np.uint8] | None
    said: SlotChecks | None
    """What slots with sets or regions are checked by, when some are."""
    tail: int
    """How many boxes no part covers."""
    only: _Covered | None
    """What answers alone, a part or the tail: there is no other, nothing to drop, and so nothing to join."""
    tail_work: int
    """What an event compares in the tail, counted in boxes."""


class StaticReading(PartialReading):
    """One for all matches of a state: making it would show in a match of one event, as joining would."""

    def __init__(self, index: StaticIndex, state: StaticState) -> None:
        # the index holds its reading: the other way round too, and it would not go when nobody holds it
        self._index = weakref.proxy(index)
        self.catalog = state.catalog
        self.state = state
        self.names = state.names
        self.flagged = state.flagged

    # by hand: a generator's context manager shows in a match of one event
    def __enter__(self) -> StaticReading:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def stab(self, codes: Codes) -> Rows:
        return self._rows(codes, self._portions(codes))

    def stab_variants(self, variants: SeveralColumns) -> Rows:
        # what is found is checked in the column that it stands in
        checked = self._checked_attributes
        if checked is not None and variants.varies[checked].any():
            return self.stab(variants.codes)
        boxes = self.state.boxes
        portions = [Portion(c.part.stab_variants(variants, boxes), c.base) for c in self.state.parts]
        return self._rows(variants.codes, [*portions, *self._tail(variants.codes)])

    @cached_property
    def _checked_attributes(self) -> npt.NDArray[np.int64] | None:
        """The attributes that slots are checked by, if any is."""
        said = self.state.said
        return None if said is None else np.unique(said.boxes.attributes & ~np.int32(SET)).astype(np.int64)

    def match(self, codes: Codes | EventEntries, threads: int) -> Matches:
        state = self.state
        if threads == 1 and (written := self._written(codes)) is not None:
            return written
        if threads == 1 and state.only is not None:
            found = state.only.part.find(codes, state.boxes)
            if not isinstance(found, Counted):
                return Matches(*found, state.names, state.only.base)
            portions = [Portion(found, state.only.base)]
        else:
            portions = self._portions(codes) if threads == 1 else self._threaded(codes, threads)
        if self.drops:
            return Matches(*without_repeats(*self._rows(codes, portions), state.flagged), state.names)
        if len(portions) == 1 and not isinstance(portions[0].found, Counted):
            return Matches(*portions[0].found, state.names, portions[0].base)
        pending = PendingRows(codes.shape[1], portions, state.names, map if threads == 1 else pool(threads))
        return Matches(pending.offsets, pending, state.names)

    def _written(self, codes: Codes | EventEntries) -> Matches | None:
        """The matches as ids at once, where the first part can write them beside those of all others."""
        state, others = self.state, None
        beside: PendingRows | Rows | None = None
        first = state.parts[0] if state.parts and not self.drops else None
        if isinstance(codes, EventEntries) or first is None or first.base is None:
            return None
        if not first.part.writes_ids(codes):
            return None
        portions = self._portions(codes, 1)
        if len(portions) == 1 and not isinstance(portions[0].found, Counted):
            # a batch of some thousand events shows what joining one to nothing takes
            beside = portions[0].found
            others = beside[0], state.names.take(beside[1])
        elif portions:
            beside = PendingRows(codes.shape[1], portions, state.names)
            others = beside.offsets, beside.ids()
        rows = first.part.stab_ids(codes, state.boxes, first.base, others)
        return Matches(rows[0], WrittenIds(*rows, first.base, beside), state.names)

    def match_one(self, codes: Codes) -> npt.NDArray[Any]:
        only = self.state.only
        slots = None if only is None else only.part.stab_one(codes, self.state.boxes)
        return super().match_one(codes) if slots is None else self.names.take(slots)

    def match_choices(self, codes: Codes) -> npt.NDArray[Any]:
        only, boxes = self.state.only, self.state.boxes
        if only is not None and codes.shape[1] <= FEW_CHOICES:
            found = [only.part.stab_one(one, boxes) for one in np.ascontiguousarray(codes.T)[:, :, None]]
            if all(slots is not None for slots in found):
                return self.names.take(np.unique(np.concatenate(found)))  # type: ignore[arg-type]
        return super().match_choices(codes)

    def match_single(self, codes: Codes | EventEntries) -> Matches | None:
        """The matches of one event, where one part answers alone and they are not many, or None."""
        only, slots = self.state.only, None
        if only is not None:
            find = only.part.stab_one_said if type(codes) is EventEntries else only.part.stab_one
            slots = find(codes, self.state.boxes)  # type: ignore[arg-type]
        return None if slots is None else Matches(None, slots, self.names)

    def whole(self, codes: Codes) -> Rows:
        return without_repeats(*self._rows(codes, self._portions(codes)), self.flagged)

    @property
    def drops(self) -> bool:
        state = self.state
        return state.dead is not None or state.flagged is not None or state.said is not None

    def finders(self) -> list[Finder]:
        state = self.state
        tail = [Tail(state.boxes.n - state.tail, state.boxes.n)] if state.tail else []
        return [*(covered.part for covered in state.parts), *tail]

    def settled(self, codes: Codes, rows: Rows) -> Rows:
        return without_repeats(*self._held(codes, *self._without_dead(*rows)), self.flagged)

    def _portions(self, codes: Codes | EventEntries, first: int = 0) -> list[Portion]:
        """What each part from the first on and the tail found."""
        boxes = self.state.boxes
        portions = [Portion(c.part.find(codes, boxes), c.base) for c in self.state.parts[first:]]
        return [*portions, *self._tail(codes)]

    def _tail(self, codes: Codes | EventEntries) -> list[Portion]:
        """What the tail found, if there is one."""
        boxes, tail = self.state.boxes, self.state.tail
        return [Portion(Tail(boxes.n - tail, boxes.n).find(codes, boxes))] if tail else []

    def _threaded(self, codes: Codes | EventEntries, threads: int) -> list[Portion]:
        """The same, by several threads: each looks in all parts, for some of the events."""

        def find(cut: Cut) -> list[Portion]:
            return [portion._replace(first=cut.first) for portion in self._portions(cut.codes())]

        return list(itertools.chain.from_iterable(pool(threads)(find, cut_batch(codes, threads))))

    def _rows(self, codes: Codes | EventEntries, portions: list[Portion]) -> Rows:
        """The matches without dead slots and without those whose sets do not hold the event."""
        if len(portions) == 1 and not isinstance(portions[0].found, Counted):
            offsets, slots = self._without_dead(*portions[0].found)
        else:
            pending = PendingRows(codes.shape[1], portions, self.names)
            offsets, slots = self._without_dead(pending.offsets, pending.slots())
        return self._held(codes, offsets, slots)

    def _held(
        self, codes: Codes | EventEntries, offsets: npt.NDArray[np.int64], slots: npt.NDArray[np.int32]
    ) -> Rows:
        """The matches without those whose sets do not hold the event."""
        said = self.state.said
        return (offsets, slots) if said is None else said.held(np.asarray(codes), offsets, slots)

    def _without_dead(self, offsets: npt.NDArray[np.int64], slots: npt.NDArray[np.int32]) -> Rows:
        state = self.state
        if state.dead is not None and len(slots):
            kept = np.empty_like(offsets)
            n = match_kernels.drop_dead(offsets, slots, state.dead, kept)
            self._index._filtered += len(slots)
            offsets, slots = kept, slots[:n]
        return offsets, slots
