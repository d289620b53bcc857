"""Lists by value, each sorted by a second attribute: a path of `auto` for boxes of one outline.

Boxes of one outline (engine/costs.py) bound the same attributes in the same way. They stand in lists by the
value that they ask for on one attribute, or all in one list, and each list is sorted by what they bound on a
second attribute. So an event reads of its list only what holds it there:

    form      members bound it by     an event reads
    rising    a low end               the beginning of the list, up to the last low end that is not above it
    falling   a high end              the end of the list, from the first high end that is not below it
    closed    both ends               windows, as in windows.py, over the places of the list's own ends

Of lists with one end nothing is compared. What members bound beside these two attributes stands beside them
by position, and is compared for what is left, one attribute after the other.

An event finds its place among the ends of its list by bisection. Places are counted over all lists, so that
one structure of windows holds all of them in 32 bits, however the codes lie: floats over many magnitudes
crowd nowhere.

    array           dtype    shape          meaning
    values          int64    n_lists        the values, ascending
    table           int32    span or 2^k    list of a value, as in lists.py
    starts          int32    n_lists + 1    where the members of a list begin, unless it is closed
    ends            int64    n_ends         low ends; high ends, each plus one; or both, without repeats:
                                            ascending in each list
    end_starts      int32    n_lists + 1    where the ends of a list begin
    boxes           int32    n              the members, list after list, or class after class
    lows, highs     uint32   n, or none     places of their ends, if closed; a list of n ends has n + 1
    tables          int32    n_buckets      as in windows.py, over places
    classes         int64    (k, 5)
    checked         int64    c              the other attributes that members bound
    checked_lows    int64    (c, n)         their codes, by position
    checked_highs   int64    (c, n)

A large batch goes by places, so that neighbours read the same lines, and its rows are put back into the
order of the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine import packed_kernels
from rangecast.engine.answers import ALL, Found, Request, Rows, event_order, order_by_cell, restore_order
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.costs import assign_boxes, choose_sorted
from rangecast.engine.layouts import lists_kernels as list_kernels
from rangecast.engine.layouts import sorted_lists_kernels as kernels
from rangecast.engine.layouts.lists import enter_values
from rangecast.engine.layouts.sorted_lists_kernels import CLOSED, FALLING, RISING, SortedLists
from rangecast.engine.layouts.windows import lay_out
from rangecast.engine.parts import FEW_EVENTS, FewEvents, Part
from rangecast.memory import check_fits, check_numbered
from rangecast.model.kernels import hash_integers
from rangecast.simd.memory import Views
from rangecast.types.attributes import Codes

if TYPE_CHECKING:
    from rangecast.engine.planner import Left

SORTED = 4096
_BYTES = 40


@dataclass(eq=False)
class NestedPart(Part):
    """Sorted lists by value; see the module head. Without an attribute to list by, `on` is -1."""

    on: int
    dense: bool
    identical: bool
    values: Codes
    table: npt.NDArray[np.int32]
    lists: SortedLists

    exact = True
    ratio = 32

    def __post_init__(self) -> None:
        s = self.lists
        head = np.array([self.on, self.dense, s.by, s.form], np.int64)
        # as kernels.stab_few reads them
        arrays = (s.starts, s.ends, s.end_starts, s.boxes, s.lows, s.highs, s.tables, s.classes)
        checked = (s.checked, s.checked_lows, s.checked_highs)
        self.few = FewEvents(kernels.stab_few, Views(head, self.values, self.table, *arrays, *checked))

    def check(self, boxes: Boxes, n_slots: int) -> None:
        s, d = self.lists, boxes.n_attributes
        n, n_lists = len(s.boxes), len(s.starts) - 1
        hold("that sorted lists are on attributes", -1 <= self.on < d and 0 <= s.by < d)
        hold("that sorted lists have a form", s.form in (RISING, FALLING, CLOSED))
        hold("that sorted lists are there", n_lists >= 1 and (self.on >= 0 or n_lists == 1))
        ascending("starts of sorted lists", s.starts, n, n_lists + 1)
        ascending("ends of sorted lists", s.end_starts, len(s.ends), n_lists + 1)
        within("boxes of sorted lists", s.boxes, boxes.n)
        if self.identical:
            within("boxes of sorted lists", s.boxes, n_slots)
        if self.on >= 0:
            shaped("values of sorted lists", self.values, n_lists)
            within("table of sorted lists", self.table, n_lists, -1)
            size = len(self.table)
            free = self.dense or (size & (size - 1) == 0 and (self.table < 0).any())
            hold("that a table has a free place", free)
        if s.form == CLOSED:
            shaped("lows of sorted lists", s.lows, n)
            shaped("highs of sorted lists", s.highs, n)
            shaped("classes of sorted lists", s.classes, len(s.classes), 5)
            within("tables of sorted lists", s.tables, n + 1)
            tables, buckets = s.classes[:, 0], s.classes[:, 1]
            within("tables of classes", tables, len(s.tables))
            within("buckets of classes", buckets, len(s.tables))
            within("tables and buckets of classes", tables + buckets, len(s.tables))
            within("shifts of classes", s.classes[:, 2], 64)
            widths = s.classes[:, 3:].view(np.uint64)
            hold("that a class is no wider than its widest", (widths[:, 0] <= widths[:, 1]).all())
            falls = np.flatnonzero(s.tables[1:] < s.tables[:-1]) + 1
            hold("that tables of sorted lists ascend", np.isin(falls, tables).all())
        else:
            hold("that members have ends", np.array_equal(s.starts, s.end_starts))
        within("checked attributes", s.checked, d)
        for codes in (s.checked_lows, s.checked_highs):
            shaped("checked bounds of sorted lists", codes, len(s.checked), n)

    def _find(self, codes: Codes) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """The list of each event and its place in it, -1 where it has none."""
        m = codes.shape[1]
        found = memory.empty(m, np.int32)
        if self.on < 0:
            found[:] = 0
        else:
            own, values = codes[self.on], self.values
            if self.dense:
                first = values[0] if len(values) else 0
                list_kernels.find_dense(own, first, self.table, self.lists.starts, found)
            else:
                hashes = np.empty(m, np.uint64)
                hash_integers(own, hashes)
                list_kernels.find_hashed(own, hashes, values, self.table, self.lists.starts, found)
        places = memory.empty(m, np.int64)
        kernels.place(found, codes[self.lists.by], self.lists, places)
        return found, places

    def stab(self, request: Request) -> Found:
        codes, boxes = request.codes, request.boxes
        m = codes.shape[1]
        if request.limit < ALL:
            return self._stab(event_order(m), *self._find(codes), codes, boxes, request.limit)
        if m < FEW_EVENTS:
            offsets, out = self.few.stab(codes, boxes)
            if not self.identical:
                packed_kernels.to_slots(out, len(out), boxes.slots)
            return offsets, out
        found, places = self._find(codes)
        turned = m >= SORTED
        order = event_order(m)
        if turned:
            # those without a list first
            order = order_by_cell(places + 1, len(self.lists.ends) + len(self.lists.starts))
        rows = self._stab(order, found, places, codes, boxes, ALL)
        return restore_order(order, m, *rows) if turned else rows

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self.few.stab_one(codes, boxes, None if self.identical else boxes.slots)

    def _stab(
        self,
        order: npt.NDArray[np.int64],
        found: npt.NDArray[np.int32],
        places: npt.NDArray[np.int64],
        codes: Codes,
        boxes: Boxes,
        limit: int,
    ) -> Rows:
        counts = memory.empty(len(order), np.int64)
        total = int(kernels.count_members(order, found, places, self.lists, counts))
        offsets = np.empty(len(order) + 1, np.int64)
        # one more: a member that does not match is written before that is known
        out = memory.empty(total + 1, np.int32)
        n = int(kernels.stab(order, found, places, self.lists, codes, limit, offsets, out))
        if not self.identical:
            packed_kernels.to_slots(out, n, boxes.slots)
        return offsets, out[:n]

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_members(event_order(len(counts)), *self._find(codes), self.lists, counts)
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> NestedPart | None:
        if not self.identical:
            return None
        s = self.lists
        living = dead[s.boxes] == 0
        before = np.concatenate([[0], np.cumsum(living)]).astype(np.int32)
        swept = s._replace(
            boxes=s.boxes[living],
            starts=before[s.starts],
            checked_lows=np.ascontiguousarray(s.checked_lows[:, living]),
            checked_highs=np.ascontiguousarray(s.checked_highs[:, living]),
        )
        if s.form == CLOSED:
            # members stand by class: the ends of lists stay, and so do places
            swept = swept._replace(
                starts=s.starts, lows=s.lows[living], highs=s.highs[living], tables=before[s.tables]
            )
        else:
            swept = swept._replace(ends=s.ends[living], end_starts=swept.starts)
        return NestedPart(self.on, self.dense, self.identical, self.values, self.table, swept)

    def stats(self) -> dict[str, int]:
        return {"sorted_lists": len(self.lists.starts) - 1}


def claim_sorted(left: Left) -> None:
    """The boxes of each outline for which sorted lists cost least (engine/costs.py)."""
    choices = choose_sorted(left.boxes, left.numbers, left.used, left.events)
    taken = assign_boxes(left.boxes, left.numbers, left.used, choices)
    for choice, own in zip(choices, taken, strict=True):
        if len(own):
            build = partial(build_nested, left.boxes, own, *choice[1:5], left.memory_limit)
            left.claim("nested", choice.attributes, own, build)


def build_nested(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    on: int,
    by: int,
    form: int,
    checked: list[int],
    memory_limit: int | None = None,
) -> NestedPart:
    """Lists over boxes that ask for one value of `on`, unless it is -1, and bound `by` in this form."""
    n = len(numbers)
    check_fits(
        (_BYTES + 16 * len(checked)) * n,
        memory_limit,
        f"sorted lists over {n:,} boxes",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )
    keys = np.zeros(n, np.int64) if on < 0 else boxes.column(on, numbers)[0]
    lows, highs = boxes.column(by, numbers)
    ends = highs + 1 if form == FALLING else lows
    order = np.lexsort((ends, keys))
    keys, lows, highs, ends = keys[order], lows[order], highs[order], ends[order]
    firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    starts = np.append(firsts, n).astype(np.int32)
    values = np.ascontiguousarray(keys[firsts])
    dense, table = enter_values(values) if on >= 0 else (True, np.empty(0, np.int32))
    none = np.empty(0, np.uint32)
    lists = SortedLists(
        by=by,
        form=form,
        starts=starts,
        ends=np.ascontiguousarray(ends),
        end_starts=starts,
        boxes=np.empty(0, np.int32),
        lows=none,
        highs=none,
        tables=np.empty(0, np.int32),
        classes=np.empty((0, 5), np.int64),
        checked=np.array(checked, np.int64),
        checked_lows=np.empty((0, 0), np.int64),
        checked_highs=np.empty((0, 0), np.int64),
    )
    if form == CLOSED:
        lists, by_class = _lay_out_places(lists, lows, highs)
        order = order[by_class]
    held = numbers[order]
    checked_lows, checked_highs = boxes.columns(checked, held)
    lists = lists._replace(
        boxes=held.astype(np.int32), checked_lows=checked_lows, checked_highs=checked_highs
    )
    identical = boxes.are_slots(held)
    return NestedPart(on, dense, identical, values, table, lists)


def _lay_out_places(
    lists: SortedLists, lows: Codes, highs: Codes
) -> tuple[SortedLists, npt.NDArray[np.int32]]:
    """Windows over the places of closed members, which come list by list; and their order by class."""
    n_lists = len(lists.starts) - 1
    owners = np.repeat(np.arange(n_lists, dtype=np.int32), np.diff(lists.starts))
    both = np.concatenate([owners, owners])
    ends = np.concatenate([lows, highs + 1])
    order = np.lexsort((ends, both))
    both, ends = both[order], ends[order]
    fresh = np.concatenate([[True], (ends[1:] != ends[:-1]) | (both[1:] != both[:-1])])
    counts = np.bincount(both[fresh], minlength=n_lists)
    # up to two ends of each member
    check_numbered(int(counts.sum()), "the ends of sorted lists", "the index 'scan' needs none")
    lists = lists._replace(
        ends=np.ascontiguousarray(ends[fresh]),
        end_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
    )
    firsts, lasts = np.empty(len(lows), np.int64), np.empty(len(lows), np.int64)
    kernels.place(owners, np.ascontiguousarray(lows), lists, firsts)
    kernels.place(owners, np.ascontiguousarray(highs), lists, lasts)
    positions = np.arange(len(lows), dtype=np.int32)
    low, high, by_class, tables, classes = lay_out(
        firsts.astype(np.uint32), lasts.astype(np.uint32), positions
    )
    return lists._replace(lows=low, highs=high, tables=tables, classes=classes), by_class
