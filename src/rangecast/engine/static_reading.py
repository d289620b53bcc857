"""What a match of a static index reads: one state of its parts and its tail, which no writer changes.

engine/parts.py makes a new state with every change and hands it over at once.
"""

from __future__ import annotations

import itertools
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import (
    Counted,
    Cut,
    PendingRows,
    Portion,
    Rows,
    SeveralColumns,
    WrittenIds,
    cut_batch,
    without_repeats,
)
from rangecast.engine.boxes import Boxes
from rangecast.engine.catalog import Catalog
from rangecast.engine.checked_slots import SlotChecks
from rangecast.engine.limited import Finder, PartialReading
from rangecast.engine.static_part import Part, Tail
from rangecast.engine.threads import pool
from rangecast.language.kernels import SET
from rangecast.model import kernels as match_kernels
from rangecast.model.ids import Ids
from rangecast.model.matches import Matches
from rangecast.model.wide_events import EventEntries
from rangecast.types.attributes import Codes

if TYPE_CHECKING:
    from rangecast.engine.parts import StaticIndex

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
