"""Lists by value of one attribute, for boxes that ask for one value there: a path of `auto`.

A box stands once, in the list of its value, with its other bounds packed beside it (packed_bounds.py), so
that a list is read from front to back and checked two attributes and several boxes at a time; where one
exact word holds all bounds, four boxes at a time (kernels/machine/kept_members.py). The lists of the next
events are asked for while this one's is compared. Events keep their order: answering a large batch list by
list, and putting the rows back, took 1.5 times as long at a million subscriptions in 50,000 lists, and 2.3
times at four million in a million. A few events are answered by one kernel call (small_batches.py).

    array    dtype    shape           meaning
    values   int64    n_lists         the values, ascending
    table    int32    values' span,   list of a value, -1 where there is none: by value when the
                      or 2^k          values lie close together; otherwise by hash
    starts   int32    n_lists + 1     where the lists begin
    boxes    int32    n               the boxes, list after list
    bounds   uint64   n * n_words     their bounds on the other attributes that many of them bound: in each
                                      list the first words of all its boxes, then the second ones, and so on
    rare_starts   int32   n_lists + 1   where a list's bounds on attributes that few boxes bound begin
    rare     int64    (n_rare, 4)     such a bound: the box's position in its list, the attribute, both ends

An attribute that fewer than one in RARE of the boxes bounds is not worth a field beside each of them,
nor the packing of every event: its bounds stand in a list of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import buffers
from rangecast.engine import packed_kernels
from rangecast.engine.answers import Found, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.packed import Packed
from rangecast.engine.selectivity import bounded_attributes
from rangecast.engine.small import FEW_EVENTS, ROOM, FewEvents
from rangecast.engine.static_part import Part
from rangecast.kernels.engine import equality as kernels
from rangecast.kernels.engine.equality import ValueLists
from rangecast.kernels.engine.grid import sort_by_cell
from rangecast.kernels.machine.views import Views
from rangecast.kernels.model.ids import hash_integers
from rangecast.memory import check_numbered
from rangecast.simd.lanes import EIGHT
from rangecast.types.attributes import LAST, MISSING, Codes

RARE = 16
COUNTED = 8
"""Keys are counted and not compared where they lie within so many times their number."""


@dataclass(eq=False)
class EqualityPart(Part):
    """Lists by value; see the module head."""

    identical: bool
    packed: Packed
    lists: ValueLists

    exact = True
    ratio = 32

    def __post_init__(self) -> None:
        head = np.array([self.lists.on, self.lists.dense], np.int64)
        arrays: tuple[npt.NDArray[Any], ...] = self.lists[2:]
        # as kernels.stab_few reads them
        views = Views(head, *arrays, *self.packed.fields, self.packed.views)
        longest = int(np.diff(self.lists.starts).max(initial=0))
        self.few = FewEvents(kernels.stab_few, views, min(longest, ROOM))

    @property
    def alone(self) -> bool:
        """Whether its boxes bound no other attribute."""
        return not self.packed.n_words and not len(self.lists.rare)

    def check(self, boxes: Boxes, n_slots: int) -> None:
        lists, n = self.lists, len(self.lists.boxes)
        self.packed.check(boxes.n_attributes)
        hold("that lists by value are on an attribute", 0 <= lists.on < boxes.n_attributes)
        ascending("starts of lists by value", lists.starts, n, len(lists.values) + 1)
        within("boxes of lists by value", lists.boxes, n_slots if self.identical else boxes.n)
        within("boxes of lists by value", lists.boxes, boxes.n)
        within("table of lists by value", lists.table, len(lists.values), -1)
        if not lists.dense:
            size = len(lists.table)
            # a probe ends at the first place that is free
            hold("that a table has a free place", size & (size - 1) == 0 and (lists.table < 0).any())
        shaped("bounds of lists by value", lists.bounds, n * self.packed.n_words)
        ascending("rare bounds of lists by value", lists.rare_starts, len(lists.rare), len(lists.starts))
        shaped("rare bounds", lists.rare, len(lists.rare), 4)
        within("attributes of rare bounds", lists.rare[:, 1], boxes.n_attributes)
        lengths = np.diff(lists.starts).repeat(np.diff(lists.rare_starts))
        rare = lists.rare[: len(lengths), 0]
        hold("that rare bounds are of entries", ((rare >= 0) & (rare < lengths)).all())

    def _find(self, codes: Codes) -> tuple[npt.NDArray[np.int32], int]:
        """The list of each event, -1 where it has none, and how many entries they have together."""
        on, dense, values, table, starts, *_ = self.lists
        found = buffers.empty(codes.shape[1], np.int32)
        own = codes[on]
        if dense:
            return found, kernels.find_dense(own, values[0] if len(values) else 0, table, starts, found)
        hashes = np.empty(len(found), np.uint64)
        hash_integers(own, hashes)
        return found, kernels.find_hashed(own, hashes, values, table, starts, found)

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64]:
        found, _ = self._find(codes)
        starts = self.lists.starts.astype(np.int64)
        return np.where(found >= 0, starts[found + 1] - starts[found], 0)

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        m = codes.shape[1]
        if m < FEW_EVENTS:
            offsets, out = self.few.stab(codes, boxes)
            if not self.identical:
                packed_kernels.to_slots(out, len(out), boxes.slots)
            return offsets, out
        lists, total = self._find(codes)
        listed = lists >= 0
        if np.count_nonzero(listed) >= m // 2:
            return self._stab_lists(lists, total, codes, boxes)
        # few events have a list: nothing else is looked at for the others
        hits = np.flatnonzero(listed)
        own = np.ascontiguousarray(codes[:, hits])
        ends, out = self._stab_lists(lists[hits], total, own, boxes)
        # an event without a list ends where the last one with a list before it does
        before = np.zeros(m + 1, np.int64)
        before[hits + 1] = 1
        return ends[np.cumsum(before)], out

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self.few.stab_one(codes, boxes, None if self.identical else boxes.slots)

    def _stab_lists(self, found: npt.NDArray[np.int32], total: int, codes: Codes, boxes: Boxes) -> Rows:
        """The matches of events whose lists have so many entries together."""
        offsets = np.empty(len(found) + 1, np.int64)
        out = buffers.empty(total + EIGHT, np.int32)
        values = self.packed.pack_events(codes)
        n = kernels.stab_lists(
            found, self.lists, values, self.packed.fields, codes, boxes.arrays, offsets, out
        )
        if not self.identical:
            packed_kernels.to_slots(out, n, boxes.slots)
        return offsets, out[:n]

    def without(self, dead: npt.NDArray[np.uint8]) -> EqualityPart | None:
        if not self.identical:
            return None
        lists = self.lists
        living = dead[lists.boxes] == 0
        bounds = np.empty_like(lists.bounds)
        kept = kernels.sweep_columns(lists.starts, lists.bounds, self.packed.n_words, living, bounds)
        before = np.concatenate([[0], np.cumsum(living)])
        swept = lists._replace(
            starts=before[lists.starts].astype(np.int32),
            boxes=lists.boxes[living],
            bounds=bounds[:kept].copy(),
        )
        if len(lists.rare):
            rare, counts = lists.rare, np.diff(lists.rare_starts)
            owners = np.repeat(np.arange(len(counts)), counts)
            firsts = lists.starts[owners]
            own = living[firsts + rare[:, 0]]
            moved = before[firsts + rare[:, 0]] - before[firsts]
            swept = swept._replace(
                rare=np.column_stack([moved, rare[:, 1:]])[own],
                rare_starts=_starts(np.bincount(owners[own], minlength=len(counts))),
            )
        return EqualityPart(self.identical, self.packed, swept)

    @property
    def derived_bytes(self) -> int:
        return self.packed.derived_bytes

    def stats(self) -> dict[str, int]:
        return {"lists": len(self.lists.values)}


class Grouped(NamedTuple):
    """Boxes by their value on an attribute, and how their other bounds can be packed."""

    numbers: npt.NDArray[np.int64]
    values: Codes
    starts: npt.NDArray[np.int32]
    packed: Packed
    rare: list[tuple[int, npt.NDArray[np.int64]]]
    """Attributes that few of them bound, and the places of those."""


def group_by_value(boxes: Boxes, numbers: npt.NDArray[np.int64], on: int) -> Grouped:
    """Boxes whose low is their high on the attribute `on`, list after list."""
    keys, _ = boxes.column(on, numbers)
    order = ascending_order(keys)
    numbers, keys = numbers[order], keys[order]
    firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else keys[:0]
    values = np.ascontiguousarray(keys[firsts])
    starts = np.append(firsts, len(keys)).astype(np.int32)
    common, rare = split_attributes(boxes, numbers, bounded_attributes(boxes, numbers, (on,)))
    packed = Packed.fit(boxes, numbers, common, widen=len(numbers) / max(len(values), 1))
    return Grouped(numbers, values, starts, packed, rare)


def split_attributes(
    boxes: Boxes, numbers: npt.NDArray[np.int64], attributes: list[int]
) -> tuple[list[int], list[tuple[int, npt.NDArray[np.int64]]]]:
    """The attributes that many of the boxes bound, and those that few do with the places of these."""
    common, rare = [], []
    for j in attributes:
        lows, highs = boxes.column(j, numbers)
        bounded = (lows != MISSING) | (highs != LAST)
        if np.count_nonzero(bounded) * RARE < len(numbers):
            rare.append((j, np.flatnonzero(bounded)))
        else:
            common.append(j)
    return common, rare


def build_equality(
    boxes: Boxes, numbers: npt.NDArray[np.int64], on: int, grouped: Grouped | None = None
) -> EqualityPart:
    """Lists over boxes whose low is their high on the attribute `on`."""
    identical = boxes.are_slots(numbers)
    numbers, values, starts, packed, rare = grouped or group_by_value(boxes, numbers, on)
    dense, table = enter_values(values)
    bounds = np.empty(len(numbers) * packed.n_words, np.uint64)
    if packed.n_words:
        kernels.to_columns(starts, packed.pack_boxes(boxes, numbers), bounds)
    apart = rare_bounds(boxes, numbers, starts, rare)
    lists = ValueLists(on, dense, values, table, starts, numbers.astype(np.int32), bounds, *apart)
    return EqualityPart(identical, packed, lists)


def ascending_order(keys: Codes) -> npt.NDArray[np.int64]:
    """The places of keys by ascending key, those alike in the order in which they stand.

    >>> ascending_order(np.array([5, -2, 5, 3])).tolist()
    [1, 3, 0, 2]
    """
    low, span = span_of(keys)
    if span > COUNTED * len(keys):
        return np.argsort(keys, kind="stable")
    order = np.empty(len(keys), np.int64)
    sort_by_cell(keys - low, np.zeros(span + 1, np.int64), order)
    return order


def span_of(keys: Codes) -> tuple[int, int]:
    """The least key, and how many there are from it to the largest."""
    low = int(keys.min(initial=LAST))
    return low, max(int(keys.max(initial=MISSING)) - low + 1, 0)


def enter_values(values: Codes) -> tuple[bool, npt.NDArray[np.int32]]:
    """A table from value to list, for ascending values; whether it is by value and not by hash."""
    span = int(values[-1]) - int(values[0]) + 1 if len(values) else 0
    if span <= 8 * len(values) + 1024:
        table = np.full(span, -1, np.int32)
        if span:
            table[values - values[0]] = np.arange(len(values))
        return True, table
    table = np.full(1 << int(2 * len(values)).bit_length(), -1, np.int32)
    hashes = np.empty(len(values), np.uint64)
    hash_integers(values, hashes)
    kernels.enter_values(values, hashes, table)
    return False, table


def rare_bounds(
    boxes: Boxes,
    numbers: npt.NDArray[Any],
    starts: npt.NDArray[np.int32],
    rare: list[tuple[int, npt.NDArray[np.int64]]],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Per list, and one after the other, the bounds on attributes that few boxes bound."""
    positions = np.concatenate([np.empty(0, np.int64), *(where for _, where in rare)])
    attributes = np.concatenate([np.empty(0, np.int64), *(np.full(len(where), j) for j, where in rare)])
    order = np.argsort(positions, kind="stable")
    positions, attributes = positions[order], attributes[order]
    held = numbers[positions].astype(np.int64)
    lists = np.searchsorted(starts, positions, "right") - 1
    columns = (
        positions - starts[lists],
        attributes,
        *boxes.bounds_at(attributes, held),
    )
    counts = np.bincount(lists, minlength=len(starts) - 1)
    return _starts(counts), np.ascontiguousarray(np.column_stack(columns).astype(np.int64))


def _starts(counts: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    check_numbered(int(counts.sum()), "the bounds of rare attributes", "the index 'scan' needs none")
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
