"""A part of the answer: at most k matches per event, whether there is one, and how many there are.

Any k matches are found by looking at one structure after the other, a part or an access path each, and an
event that has k of them is not looked for in the next. Within a structure a kernel stops at k where it can
(`Part.stab_some`). What a structure finds may still be dropped: a dead slot, a repeat, a set that does not
hold the event. So an event that is left with fewer than k, of which more might have been found, is looked for
once more, without a limit. Such events are few, for few slots are dead.

The k of highest priority are chosen among all matches, before any id is read: `keep_highest` in
kernels/model/matches.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import (
    Estimate,
    Found,
    Reading,
    Rows,
    cut_batch,
    join_found,
    join_rows,
    match_variants,
    restore_order,
    without_repeats,
    write_rows,
)
from rangecast.engine.boxes import Boxes
from rangecast.engine.catalog import Catalog
from rangecast.engine.checked_slots import checked_slots
from rangecast.engine.threads import pool
from rangecast.errors import OptionError, SubscriptionError
from rangecast.model import kernels
from rangecast.model.matches import Matches
from rangecast.types.attributes import Codes

ALL = np.iinfo(np.int64).max
"""The limit that is none."""


Firsts = npt.NDArray[np.int64] | None
"""Where the columns of each event begin and the last ends, if events have several (model/events.py)."""

NOBODY = np.empty(0, bool)


class Finder(Protocol):
    """What is asked for matches: a part (parts.py)."""

    def stab_some(self, codes: Codes, boxes: Boxes, limit: int) -> Rows:
        """So many matches of each event at least, or all."""

    def count(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int64]:
        """How many each event has."""

    def hold_any(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.bool_]:
        """Whether each event has one."""


def check_limit(limit: int) -> int:
    """The limit, unless it is none."""
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


def cut_rows(rows: Rows, limit: int) -> Rows:
    """The first matches of each row, in place."""
    offsets, slots = rows
    if not len(slots) or int(np.diff(offsets).max(initial=0)) <= limit:
        return rows
    kept = np.empty_like(offsets)
    n = kernels.cut_rows(offsets, slots, limit, kept)
    return kept, slots[:n]


def highest_rows(rows: Rows, priorities: npt.NDArray[np.float64], limit: int) -> Rows:
    """The matches of highest priority of each row, the highest first, in place."""
    offsets, slots = rows
    kept = np.empty_like(offsets)
    n = kernels.keep_highest(offsets, slots, priorities, limit, kept)
    return kept, slots[:n]


def wanting(done: npt.NDArray[np.bool_], codes: Codes) -> tuple[npt.NDArray[np.int64], Codes]:
    """The events that are not done, and their codes."""
    rows = np.flatnonzero(~done)
    return rows, codes if len(rows) == len(done) else np.ascontiguousarray(codes[:, rows])


def stab_in_turn(finders: Sequence[Finder], codes: Codes, boxes: Boxes, limit: int) -> Rows:
    """At least so many matches of each event, or all: each is looked for until it has them."""
    m = codes.shape[1]
    if len(finders) == 1:
        return finders[0].stab_some(codes, boxes, limit)
    counts = np.zeros(m, np.int64)
    found: list[Found] = []
    for finder in finders:
        rows, own = wanting(counts >= limit, codes)
        if not len(rows):
            break
        offsets, slots = finder.stab_some(own, boxes, limit)
        counts[rows] += np.diff(offsets)
        found.append((offsets, slots) if len(rows) == m else restore_order(rows, m, offsets, slots))
    return write_rows(join_found(found, m))


def find_some(
    finders: Sequence[Finder],
    codes: Codes,
    boxes: Boxes,
    limit: int,
    settle: Callable[[Codes, Rows], Rows] | None,
) -> Rows:
    """At most so many matches of each event; `settle` drops what was found needlessly, where it can."""
    m = codes.shape[1]
    raw = stab_in_turn(finders, codes, boxes, limit)
    if settle is None:
        return cut_rows(raw, limit)
    many = np.diff(raw[0]) >= limit
    offsets, slots = cut_rows(settle(codes, raw), limit)
    again = np.flatnonzero(many & (np.diff(offsets) < limit))
    if not len(again):
        return offsets, slots
    own = np.ascontiguousarray(codes[:, again])
    whole = cut_rows(settle(own, stab_in_turn(finders, own, boxes, ALL)), limit)
    # their first rows give way to the second ones
    kept = np.diff(offsets)
    kept[again] = 0
    rest = np.empty(m + 1, np.int64)
    n = kernels.shorten_rows(offsets, slots, kept, rest)
    return write_rows(join_found([(rest, slots[:n]), restore_order(again, m, *whole)], m))


def hold_any(finders: Sequence[Finder], codes: Codes, boxes: Boxes) -> npt.NDArray[np.bool_]:
    """Whether each event has a match; one that has is not looked for again."""
    out = np.zeros(codes.shape[1], bool)
    for finder in finders:
        rows, own = wanting(out, codes)
        if len(rows):
            out[rows] = finder.hold_any(own, boxes)
    return out


def count_all(finders: Sequence[Finder], codes: Codes, boxes: Boxes) -> npt.NDArray[np.int64]:
    """How many matches each event has."""
    total = np.zeros(codes.shape[1], np.int64)
    for finder in finders:
        total += finder.count(codes, boxes)
    return total


class PartialReading(Reading):
    """What a match reads, also asked for a part of the answer.

    A structure that is asked as a whole has no `finders`, and all its matches are looked at.
    """

    @property
    def drops(self) -> bool:
        """Whether something that is found may have to be dropped."""
        return True

    def finders(self) -> list[Finder]:
        """What is asked one after the other: the parts, and the tail as one."""
        return []

    def settled(self, codes: Codes, rows: Rows) -> Rows:
        """What is left of rows without dead slots, sets that do not hold the event, and repeats."""
        return without_repeats(*rows, self.flagged)

    def whole(self, codes: Codes) -> Rows:
        """All matches, each once."""
        return without_repeats(*self.stab(codes), self.flagged)

    def match_columns(self, codes: Codes, threads: int, firsts: Firsts) -> Matches:
        """All matches of each event."""
        return self.match(codes, threads) if firsts is None else match_variants(self, codes, firsts)

    def match_choices(self, codes: Codes) -> npt.NDArray[Any]:
        """The ids that one event matches, of which each column is a choice of its values."""
        return match_variants(self, codes, np.array([0, codes.shape[1]])).ids

    def match_some(self, codes: Codes, threads: int, limit: int, firsts: Firsts = None) -> Matches:
        """At most so many matches of each event; events of several columns begin at those given."""
        if firsts is not None:
            every = match_variants(self, codes, firsts)
            return Matches(*self._cut((every.offsets, every.slots), limit), self.names)
        if threads == 1 or not self.finders():
            return Matches(*self._some(codes, limit), self.names)
        found = pool(threads)(lambda cut: self._some(cut.codes(), limit), cut_batch(codes, threads))
        return Matches(*join_rows(list(found)), self.names)

    def _some(self, codes: Codes, limit: int) -> Rows:
        finders = self.finders()
        if self.catalog.priorities is not None or not finders:
            return self._cut(self.whole(codes), limit)
        return find_some(finders, codes, self.catalog.boxes, limit, self.settled if self.drops else None)

    def _cut(self, rows: Rows, limit: int) -> Rows:
        priorities = self.catalog.priorities
        return cut_rows(rows, limit) if priorities is None else highest_rows(rows, priorities, limit)

    def match_any(self, codes: Codes, firsts: Firsts = None) -> npt.NDArray[np.bool_]:
        """Whether each event has a match."""
        if firsts is not None:
            return np.logical_or.reduceat(self.match_any(codes), firsts[:-1]) if len(firsts) > 1 else NOBODY
        if self.drops:
            return np.diff(self._some(codes, 1)[0]) > 0
        return hold_any(self.finders(), codes, self.catalog.boxes)

    def count(self, codes: Codes, firsts: Firsts = None) -> npt.NDArray[np.int64]:
        """How many matches each event has."""
        if firsts is not None:
            return match_variants(self, codes, firsts).counts
        if self.drops:
            return np.diff(self.whole(codes)[0])
        return count_all(self.finders(), codes, self.catalog.boxes)


class InPlaceReading(PartialReading):
    """What a match reads of a structure that changes in place (contract.py)."""

    def __init__(self, catalog: Catalog, index: Any) -> None:
        super().__init__(catalog)
        # the index holds its reading: the other way round too, and it would not go when nobody holds it
        self._index = weakref.proxy(index)
        self._checked = checked_slots(catalog)

    def stab(self, codes: Codes) -> Rows:
        return self._held(codes, self._index._stab(codes))

    def stab_from(self, codes: Codes, event: int, estimate: Estimate) -> Rows:
        return self._held(codes, self._index._stab_from(codes, event, estimate))

    def _held(self, codes: Codes, rows: Rows) -> Rows:
        return rows if self._checked is None else self._checked.held(codes, *rows)
