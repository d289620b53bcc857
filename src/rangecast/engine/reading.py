"""What a match reads: one state of an index, taken once, so that a writer can go on meanwhile.

A reading is made by whoever has changed the index and is handed over by one assignment (index.py). That of a
structure that changes in place is asked by one caller at a time, who holds a lock. That of a static index
(parts.py) has parts that never change, and needs none.

    asked for             by
    match                 `Index.match`: a batch, or at most so many matches of each event
    match_one             one event, or the choices of one that has several values
    match_from            `Index.match_each`: one event of a batch whose work was estimated
    match_any, count      whether there is a match, and how many there are
    catalog               whose ids the answers have

At most k matches per event are found by looking at one part after the other, and an event that has k of them
is not looked for in the next. Within a part a kernel stops at k where it can (`Request.limit`). What is found
may still be dropped: a dead slot, a repeat, a set that does not hold the event. So an event that is left with
fewer than k, of which more might have been found, is looked for once more, without a limit. Such events are
few, for few slots are dead. The k of highest priority are chosen among all matches, before any id is read:
`keep_highest` in model/kernels.py.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import (
    Counted,
    Cut,
    Estimate,
    Found,
    IdRows,
    PendingRows,
    Portion,
    Request,
    Rows,
    SeveralColumns,
    WrittenIds,
    count_rows,
    cut_batch,
    each_once,
    join_found,
    join_rows,
    restore_order,
    without_repeats,
    write_rows,
)
from rangecast.engine.catalog import Catalog, checked_slots
from rangecast.engine.threads import pool
from rangecast.errors import OptionError, SubscriptionError
from rangecast.language.kernels import SET
from rangecast.model import kernels
from rangecast.model.events import EventCodes
from rangecast.model.matches import Matches
from rangecast.model.wide_events import EventEntries
from rangecast.types.attributes import Codes

if TYPE_CHECKING:
    from rangecast.engine.parts import Part, StaticIndex, StaticState

FEW_CHOICES = 16  # columns of one event that are asked for one by one sooner than as a batch


class Reading:
    """The state of a structure; a kind of it provides `_stab`."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._names = catalog.ids
        self._flagged = catalog.overlapping[: catalog.n_slots] if catalog.n_overlapping else None

    def match(self, batch: EventCodes, threads: int = 1, limit: int | None = None) -> Matches:
        """The matches of a batch, each once; at most so many of each event."""
        codes, firsts = batch
        if limit is None:
            return self._all(codes, threads) if firsts is None else self._of_several(codes, firsts)
        if firsts is not None:
            every = self._of_several(codes, firsts)
            return Matches(*self._cut((every.offsets, every.slots), limit), self._names)
        return self._limited(codes, threads, limit)

    def match_one(self, codes: Codes | EventEntries) -> Matches:
        """The matches of one event, of which each column is a choice of its values."""
        if codes.shape[1] == 1:
            return self._all(codes, 1)
        return self._of_several(np.asarray(codes), np.array([0, codes.shape[1]]))

    def match_from(self, codes: Codes, row: int, estimate: Estimate | None) -> npt.NDArray[Any]:
        """The ids that one event matches, going on where the estimate of its batch stopped."""
        _, slots = self._stab(codes) if estimate is None else self._stab_from(codes, row, estimate)
        # for one event alone this is cheaper than a stamp per slot
        slots = slots if self._flagged is None and codes.shape[1] == 1 else np.unique(slots)
        return self._names.take(slots)

    def match_any(self, batch: EventCodes) -> npt.NDArray[np.bool_]:
        """Whether each event has a match."""
        codes, firsts = batch
        held = self._any(codes)
        if firsts is None:
            return held
        return np.logical_or.reduceat(held, firsts[:-1]) if len(firsts) > 1 else held[:0]

    def count(self, batch: EventCodes) -> npt.NDArray[np.int64]:
        """How many matches each event has."""
        codes, firsts = batch
        return np.diff(self._whole(codes)[0]) if firsts is None else self._of_several(codes, firsts).counts

    # what a kind of reading provides

    def _stab(self, codes: Codes | EventEntries) -> Rows:
        """The matches of a batch, as slots; a slot may repeat only if it is flagged."""
        raise NotImplementedError

    def _stab_several(self, several: SeveralColumns) -> Rows:
        """The matches of events with several columns each: what is found of an event may stand in any column
        of it that holds it."""
        return self._stab(several.codes)

    def _stab_from(self, codes: Codes, row: int, estimate: Estimate) -> Rows:
        """The matches of one event (d, 1) of a batch whose work was estimated."""
        return self._stab(codes)

    # the rest

    def _all(self, codes: Codes | EventEntries, threads: int) -> Matches:
        if threads == 1:
            return Matches(*self._whole(codes), self._names)
        found = pool(threads)(lambda cut: self._whole(cut.codes()), cut_batch(codes, threads))
        return Matches(*join_rows(list(found)), self._names)

    def _whole(self, codes: Codes | EventEntries) -> Rows:
        """All matches, each once."""
        return without_repeats(*self._stab(codes), self._flagged)

    def _of_several(self, codes: Codes, firsts: npt.NDArray[np.int64]) -> Matches:
        """The matches of events with several columns of codes each, from firsts[e] on: what one of them
        holds."""
        offsets, slots = self._stab_several(SeveralColumns(codes, firsts))
        return Matches(*each_once(np.ascontiguousarray(offsets[firsts]), slots), self._names)

    def _limited(self, codes: Codes, threads: int, limit: int) -> Matches:
        return Matches(*self._cut(self._whole(codes), limit), self._names)

    def _any(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """Whether each column has a match."""
        return np.diff(self._whole(codes)[0]) > 0

    def _cut(self, rows: Rows, limit: int) -> Rows:
        priorities = self.catalog.priorities
        return _cut_rows(rows, limit) if priorities is None else _highest_rows(rows, priorities, limit)


class InPlaceReading(Reading):
    """What a match reads of a structure that changes in place (index.py)."""

    def __init__(self, catalog: Catalog, index: Any) -> None:
        super().__init__(catalog)
        # the index holds its reading: the other way round too, and it would not go when nobody holds it
        self._index = weakref.proxy(index)
        self._checked = checked_slots(catalog)

    def _stab(self, codes: Codes | EventEntries) -> Rows:
        return self._held(codes, self._index._stab(codes))

    def _stab_from(self, codes: Codes, row: int, estimate: Estimate) -> Rows:
        return self._held(codes, self._index._stab_from(codes, row, estimate))

    def _held(self, codes: Codes | EventEntries, rows: Rows) -> Rows:
        return rows if self._checked is None else self._checked.held(np.asarray(codes), *rows)


class StaticReading(Reading):
    """One for all matches of a state: making it would show in a match of one event, as joining would."""

    def __init__(self, index: StaticIndex, state: StaticState) -> None:
        super().__init__(state.catalog)
        # the index holds its reading: the other way round too, and it would not go when nobody holds it
        self._index = weakref.proxy(index)
        self.state = state
        self._boxes = state.catalog.boxes
        self._drops = state.dead is not None or self._flagged is not None or state.said is not None
        # what answers alone: there is no other part, nothing to drop, and so nothing to join
        alone = len(state.sources) == 1 and not self._drops
        self._only = state.sources[0].part if alone else None

    # by hand: a generator's context manager shows in a match of one event
    def __enter__(self) -> StaticReading:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def match_one(self, codes: Codes | EventEntries) -> Matches:
        only = self._only
        if only is not None:
            if codes.shape[1] == 1:
                slots = only.stab_one(codes, self._boxes)
                if slots is not None:
                    return Matches(None, slots, self._names)
            elif codes.shape[1] <= FEW_CHOICES:
                columns = np.ascontiguousarray(np.asarray(codes).T)[:, :, None]
                found = [only.stab_one(column, self._boxes) for column in columns]
                some = [slots for slots in found if slots is not None]
                if len(some) == len(found):
                    return Matches(None, np.unique(np.concatenate(some)), self._names)
        return super().match_one(codes)

    def count(self, batch: EventCodes) -> npt.NDArray[np.int64]:
        codes, firsts = batch
        if self._drops or firsts is not None:
            return super().count(batch)
        total = np.zeros(codes.shape[1], np.int64)
        for source in self.state.sources:
            total += count_rows(source.part.stab(Request(codes, self._boxes, counts=True)))
        return total

    def _stab(self, codes: Codes | EventEntries) -> Rows:
        return self._rows(codes, self._portions(codes))

    def _stab_several(self, several: SeveralColumns) -> Rows:
        # what is found is checked in the column that it stands in
        checked = self._checked_attributes
        if checked is not None and several.varies[checked].any():
            return self._stab(several.codes)
        request = Request(several.codes, self._boxes, several)
        portions = [Portion(source.part.stab(request), source.base) for source in self.state.sources]
        return self._rows(several.codes, portions)

    @cached_property
    def _checked_attributes(self) -> npt.NDArray[np.int64] | None:
        """The attributes that slots are checked by, if any is."""
        said = self.state.said
        return None if said is None else np.unique(said.boxes.attributes & ~np.int32(SET)).astype(np.int64)

    def _all(self, codes: Codes | EventEntries, threads: int) -> Matches:
        sources = self.state.sources
        if threads > 1:
            portions = self._threaded(codes, threads)
        elif self._drops or not sources or (base := sources[0].base) is None:
            portions = self._portions(codes)
        else:
            # the first part may write ids at once, beside those of all others
            beside = _Beside(self, codes) if len(sources) > 1 else None
            ids = None if beside is None else beside.ids
            found = sources[0].part.stab(Request(codes, self._boxes, base=base, beside=ids))
            if isinstance(found, IdRows):
                others = None if beside is None else beside.found
                return Matches(found.offsets, WrittenIds(found, base, others), self._names)
            portions = [Portion(found, base)]
            if beside is not None:
                portions += beside.portions
        if self._drops:
            return Matches(*without_repeats(*self._rows(codes, portions), self._flagged), self._names)
        if len(portions) == 1 and not isinstance(portions[0].found, Counted):
            return Matches(*write_rows(portions[0].found), self._names, portions[0].base)
        pending = PendingRows(codes.shape[1], portions, self._names, map if threads == 1 else pool(threads))
        return Matches(pending.offsets, pending, self._names)

    def _limited(self, codes: Codes, threads: int, limit: int) -> Matches:
        if threads == 1:
            return Matches(*self._chosen(codes, limit), self._names)
        found = pool(threads)(lambda cut: self._chosen(cut.codes(), limit), cut_batch(codes, threads))
        return Matches(*join_rows(list(found)), self._names)

    def _chosen(self, codes: Codes, limit: int) -> Rows:
        """At most so many matches of each event: those of highest priority, where there are any."""
        if self.catalog.priorities is None:
            return self._some(codes, limit)
        return self._cut(self._whole(codes), limit)

    def _any(self, codes: Codes) -> npt.NDArray[np.bool_]:
        if self._drops:
            return np.diff(self._some(codes, 1)[0]) > 0
        held = np.zeros(codes.shape[1], bool)
        for source in self.state.sources:
            rows = np.flatnonzero(~held)
            if not len(rows):
                break
            own = codes if len(rows) == len(held) else np.ascontiguousarray(codes[:, rows])
            held[rows] = count_rows(source.part.stab(Request(own, self._boxes, limit=1, counts=True))) > 0
        return held

    def _some(self, codes: Codes, limit: int) -> Rows:
        """At most so many matches of each event, whatever their priority."""
        parts = [source.part for source in self.state.sources]
        raw = stab_in_turn(parts, Request(codes, self._boxes, limit=limit))
        if not self._drops:
            return _cut_rows(raw, limit)
        many = np.diff(raw[0]) >= limit
        offsets, slots = _cut_rows(self._settled(codes, raw), limit)
        again = np.flatnonzero(many & (np.diff(offsets) < limit))
        if not len(again):
            return offsets, slots
        whole = _cut_rows(self._whole(np.ascontiguousarray(codes[:, again])), limit)
        # their first rows give way to the second ones
        kept = np.diff(offsets)
        kept[again] = 0
        rest = np.empty(len(offsets), np.int64)
        n = kernels.shorten_rows(offsets, slots, kept, rest)
        both: list[Found] = [(rest, slots[:n]), restore_order(again, codes.shape[1], *whole)]
        return write_rows(join_found(both, codes.shape[1]))

    def _portions(self, codes: Codes | EventEntries, first: int = 0) -> list[Portion]:
        """What each part from the first on found."""
        request = Request(codes, self._boxes)
        return [Portion(source.part.stab(request), source.base) for source in self.state.sources[first:]]

    def _threaded(self, codes: Codes | EventEntries, threads: int) -> list[Portion]:
        """The same, by several threads: each looks in all parts, for some of the events."""

        def find(cut: Cut) -> list[Portion]:
            return [portion._replace(first=cut.first) for portion in self._portions(cut.codes())]

        return list(itertools.chain.from_iterable(pool(threads)(find, cut_batch(codes, threads))))

    def _rows(self, codes: Codes | EventEntries, portions: list[Portion]) -> Rows:
        """The matches without dead slots and without those whose sets do not hold the event."""
        if len(portions) == 1 and not isinstance(portions[0].found, Counted):
            return self._held(codes, write_rows(portions[0].found))
        pending = PendingRows(codes.shape[1], portions, self._names)
        return self._held(codes, (pending.offsets, pending.slots()))

    def _held(self, codes: Codes | EventEntries, rows: Rows) -> Rows:
        offsets, slots = rows
        state = self.state
        if state.dead is not None and len(slots):
            kept = np.empty_like(offsets)
            n = kernels.drop_dead(offsets, slots, state.dead, kept)
            self._index._filtered += len(slots)
            offsets, slots = kept, slots[:n]
        said = state.said
        return (offsets, slots) if said is None else said.held(np.asarray(codes), offsets, slots)

    def _settled(self, codes: Codes, rows: Rows) -> Rows:
        """What is left of rows without dead slots, sets that do not hold the event, and repeats."""
        return without_repeats(*self._held(codes, rows), self._flagged)


class _Beside:
    """What the other parts found, looked for when a part asks for it that writes ids beside them."""

    def __init__(self, reading: StaticReading, codes: Codes | EventEntries) -> None:
        self._reading = reading
        self._codes = codes
        self.found: PendingRows | Rows | None = None
        """The same as slots."""

    @cached_property
    def portions(self) -> list[Portion]:
        """What each of them found."""
        return self._reading._portions(self._codes, 1)

    def ids(self) -> IdRows:
        """Their ids, row by row."""
        portions = self.portions
        if len(portions) == 1 and not isinstance(portions[0].found, Counted):
            # a batch of some thousand events shows what joining one to nothing takes
            offsets, slots = self.found = write_rows(portions[0].found)
            return IdRows(offsets, self._reading._names.take(slots))
        self.found = PendingRows(self._codes.shape[1], portions, self._reading._names)
        return IdRows(self.found.offsets, self.found.ids())


# At most so many matches of each event.


def check_limit(limit: int) -> int:
    """The limit, if it is one."""
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
        raise OptionError(f"limit must be a whole number of at least 1, got {limit!r}")
    return int(limit)


def check_priorities(priorities: npt.ArrayLike, n: int) -> npt.NDArray[np.float64]:
    """A finite number for each of n subscriptions."""
    try:
        values = np.asarray(priorities, np.float64)
    except (TypeError, ValueError):
        raise SubscriptionError("priorities must be numbers, one per subscription") from None
    if values.shape != (n,):
        raise SubscriptionError(
            f"priorities must be one number per subscription, {n} of them, got the shape {values.shape}"
        )
    faulty = np.flatnonzero(~np.isfinite(values))
    if len(faulty):
        raise SubscriptionError(
            f"subscription {int(faulty[0])}: a priority must be finite, got {values[faulty[0]]} "
            f"({len(faulty)} of {n} subscriptions)"
        )
    return values


def stab_in_turn(parts: Sequence[Part], request: Request) -> Rows:
    """At least as many matches of each event as the request says, or all: each is looked for in one part
    after the other until it has them."""
    codes = request.codes
    m = codes.shape[1]
    request = request._replace(counts=False)
    if len(parts) == 1:
        return write_rows(parts[0].stab(request))
    counts = np.zeros(m, np.int64)
    found: list[Found] = []
    for part in parts:
        rows = np.flatnonzero(counts < request.limit)
        if not len(rows):
            break
        own = codes if len(rows) == m else np.ascontiguousarray(codes[:, rows])
        offsets, slots = write_rows(part.stab(request._replace(events=own)))
        counts[rows] += np.diff(offsets)
        found.append((offsets, slots) if len(rows) == m else restore_order(rows, m, offsets, slots))
    return write_rows(join_found(found, m))


def _cut_rows(rows: Rows, limit: int) -> Rows:
    """The first matches of each row, in place."""
    offsets, slots = rows
    if not len(slots) or int(np.diff(offsets).max(initial=0)) <= limit:
        return rows
    kept = np.empty_like(offsets)
    n = kernels.cut_rows(offsets, slots, limit, kept)
    return kept, slots[:n]


def _highest_rows(rows: Rows, priorities: npt.NDArray[np.float64], limit: int) -> Rows:
    """The matches of highest priority of each row, the highest first, in place."""
    offsets, slots = rows
    kept = np.empty_like(offsets)
    n = kernels.keep_highest(offsets, slots, priorities, limit, kept)
    return kept, slots[:n]
