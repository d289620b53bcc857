"""Lists by value of one attribute, for boxes that ask for one value there: a path of `auto`.

A box stands once, in the list of its value, with its other bounds packed beside it (engine/packed.py), so
that a list is read from front to back and checked two attributes and several boxes at a time; where one
exact word holds all bounds, four boxes at a time (simd/lanes.py). The lists of the next
events are asked for while this one's is compared. Events keep their order: answering a large batch list by
list, and putting the rows back, took 1.5 times as long at a million subscriptions in 50,000 lists, and 2.3
times at four million in a million. A few events are answered by one kernel call (engine/parts.py).

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

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine import boxes_kernels, packed_kernels
from rangecast.engine.answers import Found, IdRows, Request, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.costs import draw_boxes
from rangecast.engine.grid import bounded_attributes
from rangecast.engine.kernels import sort_by_cell
from rangecast.engine.layouts import lists_kernels as kernels
from rangecast.engine.layouts.bitmap import BLOCK
from rangecast.engine.layouts.lists_kernels import (
    MOST_COUPLES,
    CoupleLists,
    ValueLists,
    WordFields,
    WordLists,
)
from rangecast.engine.packed import Packed
from rangecast.engine.parts import FEW_EVENTS, ROOM, FewEvents, Part
from rangecast.engine.threads import runner
from rangecast.language.kernels import ListedValues
from rangecast.memory import check_fits, check_numbered
from rangecast.model.kernels import hash_integers
from rangecast.simd.lanes import EIGHT, TOGETHER
from rangecast.simd.memory import Views
from rangecast.types.attributes import LAST, MISSING, Codes

if TYPE_CHECKING:
    from rangecast.engine.planner import Left

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
        found = memory.empty(codes.shape[1], np.int32)
        own = codes[on]
        if dense:
            return found, kernels.find_dense(own, values[0] if len(values) else 0, table, starts, found)
        hashes = np.empty(len(found), np.uint64)
        hash_integers(own, hashes)
        return found, kernels.find_hashed(own, hashes, values, table, starts, found)

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        found, _ = self._find(codes)
        starts = self.lists.starts.astype(np.int64)
        return np.where(found >= 0, starts[found + 1] - starts[found], 0)

    def stab(self, request: Request) -> Found:
        codes, boxes = request.codes, request.boxes
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
        out = memory.empty(total + EIGHT, np.int32)
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


# Lists by value in which a box is one word, its bounds and its number together: a path of `auto`.
#
# Where the bounds on all other attributes are exact and leave room in a word of 64 bits for the number of the
# box, nothing stands beside it (lists.py has the lists for all other cases). A list of twenty is then 160
# bytes in one place instead of 240 in two, and each load gives bounds and members of four boxes at once.
#
#     array    dtype    shape           meaning
#     values   int64    n_lists         the values, ascending
#     table    int32    values' span,   list of a value, as in lists.py
#                       or 2^k
#     starts   int32    n_lists + 1     where the lists begin, in fours of words
#     words    uint64   4 * starts[-1]  the boxes, list after list; the last four of each list are filled up
#                                       with words that hold no value
#     ends     int64    k               per packed attribute which ends some box bounds: 1 low, 2 high, 3 both
#
# A word has the number of the box in its lowest bits, then a field with a guard above it (engine/packed.py)
# for each end that some box bounds, just as wide as the cells of the attribute need.
#
# Ids can be written in the same pass where they count up with slots, and behind those of each event the ones
# that later parts of the index have found: then no row is copied to be joined.
#
# On a million boxes in 50,000 lists and batches of 100,000 events, 8.4 matches per event, the kernel took
# 2.4 ms at best. A cold answer costs little that asking for its lines ahead does not hide, so nothing is
# written past the caches. Tried in prototypes on a busy machine, as factors of the time:
#
#     lists asked for by the block of events before any of it is compared         1.15 to 1.25
#     all fours of a block of events in one loop that has no end to guess         about 1.4
#     as many fours for each event as lists have on average, masked, and the rest 1.1
#     lists that begin anywhere, with a mask for their last four                  about 1.1
#     three lines per list asked for, and not the one that it ends in             1.05 to 1.15
#     one function for all, in which registers run out                            1.2
#     a branch for events that have no list, and a look into a table of all       1.2
#     cells of events looked up by gathers                                        1.08
#     lists asked for into the second cache and not the first                     1.05

_LOW, _HIGH = 1, 2
_BITS = 64
"""Words of a cache line."""

_AT_FIRST = 32
"""Entries of an answer per event that there is room for at first."""

_ROOM = 4096
_NO_OFFSETS = np.empty(0, np.int64)


@dataclass(eq=False)
class WordListsPart(Part):
    """Lists by value of one word per box; see the module head."""

    packed: Packed
    lists: WordLists

    exact = True
    ratio = 32
    identical = True

    def __post_init__(self) -> None:
        lists = self.lists
        tops = _tops(self.packed)
        self.fields, self._idle = _fields(lists.ends, tops, lists.member_bits)
        head = np.array([lists.on, lists.dense, lists.member_bits], np.int64)
        bits = np.array([self.fields.mask, self.fields.guards], np.uint64)
        # as kernels.stab_few reads them
        views = Views(head, *lists[3:], bits, self.fields.places, self.packed.views)
        longest = int(np.diff(lists.starts).max(initial=0)) * TOGETHER
        # room for an answer; what a batch needed beyond it is there for the next
        self._per_event = min(len(lists.words) / max(len(lists.values), 1), _AT_FIRST)
        self.few = FewEvents(kernels.stab_few_words, views, min(longest + TOGETHER, ROOM))

    @property
    def members(self) -> npt.NDArray[np.int32]:
        """The boxes, list after list."""
        words = self.lists.words
        boxes: npt.NDArray[np.int32] = (words[words != self._idle] & self.fields.mask).astype(np.int32)
        return boxes

    def check(self, boxes: Boxes, n_slots: int) -> None:
        lists, k = self.lists, len(self.packed.attributes)
        self.packed.check(boxes.n_attributes)
        hold("that bounds of one word are exact", all(self.packed.exact))
        hold("that lists by value are on an attribute", 0 <= lists.on < boxes.n_attributes)
        shaped("ends in words", lists.ends, k)
        within("ends in words", lists.ends, _LOW + _HIGH + 1, 0)
        hold("that some end is bounded", bool((lists.ends > 0).any()))
        needed = _needed_bits(lists.ends, _tops(self.packed))
        hold("that a word has room", 0 < lists.member_bits < _BITS and needed + lists.member_bits <= _BITS)
        ascending(
            "starts of lists by value", lists.starts, len(lists.words) // TOGETHER, len(lists.values) + 1
        )
        shaped("words of lists by value", lists.words, TOGETHER * int(lists.starts[-1]))
        members = lists.words & self.fields.mask
        hold("that words are of boxes", bool((members < np.uint64(max(min(n_slots, boxes.n), 1))).all()))
        within("table of lists by value", lists.table, len(lists.values), -1)
        if not lists.dense:
            size = len(lists.table)
            # a probe ends at the first place that is free
            hold("that a table has a free place", size & (size - 1) == 0 and (lists.table < 0).any())

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_words(codes[self.lists.on], self.lists, counts)
        return counts

    def stab(self, request: Request) -> Found:
        codes = request.codes
        if codes.shape[1] < FEW_EVENTS:
            return self.few.stab(codes, request.boxes)
        if request.base is None:
            rows: Rows = self._stab(codes, 0, (_NO_OFFSETS, np.empty(0, np.int32)))
            return rows
        beside = None if request.beside is None else request.beside()
        return IdRows(*self._stab(codes, request.base, beside or (_NO_OFFSETS, np.empty(0, np.int64))))

    def _stab(self, codes: Codes, add: int, beside: tuple[npt.NDArray[np.int64], npt.NDArray[Any]]) -> Any:
        """Rows of boxes, with a number added to each, and behind them those beside."""
        lists, packing, m = self.lists, self.packed.views.table, codes.shape[1]
        # a small part, of what came last: most of its work would be for events that have no list there
        rare = lists.dense and 2 * len(lists.values) < len(lists.table) and not len(beside[1])
        offsets = memory.empty(m + 1, np.int64)
        offsets[0] = 0
        out = memory.empty(int(m * self._per_event) + len(beside[1]) + _ROOM, beside[1].dtype)
        e = 0
        while True:
            if rare:
                e = int(kernels.stab_rare(codes, lists, self.fields, packing, e, add, offsets, out))
            else:
                e = int(kernels.stab_words(codes, lists, self.fields, packing, e, add, *beside, offsets, out))
            if e == m:
                return offsets, out[: offsets[m]]
            out = memory.lengthened(out, int(offsets[e]), e / m)
            self._per_event = len(out) / m

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self.few.stab_one(codes, boxes)

    def without(self, dead: npt.NDArray[np.uint8]) -> WordListsPart | None:
        lists = self.lists
        starts, words = np.empty_like(lists.starts), memory.aligned(len(lists.words), np.uint64)
        kept = kernels.sweep_words(
            lists.starts, lists.words, self.fields.mask, self._idle, dead, starts, words
        )
        swept = memory.aligned(kept, np.uint64)
        swept[:] = words[:kept]
        part = WordListsPart(self.packed, lists._replace(starts=starts, words=swept))
        part._per_event = self._per_event
        return part

    def stats(self) -> dict[str, int]:
        return {"lists": len(self.lists.values)}


def build_lists(boxes: Boxes, numbers: npt.NDArray[np.int64], on: int) -> EqualityPart | WordListsPart:
    """Lists over boxes whose low is their high on the attribute `on`, of one word per box where that holds
    all."""
    identical = boxes.are_slots(numbers)
    grouped = group_by_value(boxes, numbers, on)
    packed = grouped.packed
    if identical and not grouped.rare and len(packed.attributes) and all(packed.exact):
        ends = np.array([_bounded_ends(boxes, numbers, int(j)) for j in packed.attributes], np.int64)
        member_bits = max(int(numbers.max(initial=0)).bit_length(), 1)
        if (ends > 0).any() and _needed_bits(ends, _tops(packed)) + member_bits <= _BITS:
            return _build_words(boxes, grouped, on, ends, member_bits)
    return build_equality(boxes, numbers, on, grouped)


def _build_words(
    boxes: Boxes, grouped: Grouped, on: int, ends: npt.NDArray[np.int64], member_bits: int
) -> WordListsPart:
    numbers, values, starts, packed, _ = grouped
    fields, idle = _fields(ends, _tops(packed), member_bits)
    own = numbers.astype(np.uint64)
    for i, j in enumerate(packed.attributes.tolist()):
        lows, highs = boxes.column(j, numbers)
        low_at, low_bits, high_at, high_bits, top = fields.places[i]
        if low_bits:
            own |= np.where(lows == MISSING, 0, _cells(packed, i, lows)).astype(np.uint64) << low_at
        if high_bits:
            cells = np.where(highs == LAST, 0, int(top) - _cells(packed, i, highs))
            own |= cells.astype(np.uint64) << high_at
    fours = np.zeros(len(starts), np.int32)
    np.cumsum(-(-np.diff(starts) // TOGETHER), out=fours[1:])
    words = memory.aligned(TOGETHER * int(fours[-1]), np.uint64)
    kernels.fill_words(starts, own, fours, idle, words)
    dense, table = enter_values(values)
    return WordListsPart(packed, WordLists(on, dense, member_bits, values, table, fours, words, ends))


def _cells(packed: Packed, i: int, codes: Codes) -> npt.NDArray[np.int64]:
    """The cells of codes on the i-th packed attribute, counted from 1."""
    grid = packed.grids[i]
    if grid is not None:
        return grid.locate(codes).astype(np.int64) + 1
    first, last = packed.spans[i].tolist()
    inner = np.clip(codes, first - 1 if first > MISSING else first, last + 1 if last < LAST else last)
    return np.where(codes == MISSING, 1, inner - first + 3)


def _bounded_ends(boxes: Boxes, numbers: npt.NDArray[np.int64], j: int) -> int:
    """Which ends some of these boxes bound on an attribute."""
    lows, highs = boxes.column(j, numbers)
    return _LOW * bool((lows != MISSING).any()) + _HIGH * bool((highs != LAST).any())


def _tops(packed: Packed) -> list[int]:
    """The largest number of a field of each packed attribute: above all its cells, which count from 1."""
    spanned = [last - first + 5 for first, last in packed.spans.tolist()]
    cells = spanned + [grid.n_cells + 1 for grid in packed.grids if grid is not None]
    return [(1 << n.bit_length()) - 1 for n in cells]


def _needed_bits(ends: npt.NDArray[np.int64], tops: list[int]) -> int:
    """Bits of the fields and their guards."""
    return sum(
        int(held & _LOW != 0) * (top.bit_length() + 1) + int(held & _HIGH != 0) * (top.bit_length() + 1)
        for held, top in zip(ends.tolist(), tops, strict=False)
    )


def _fields(ends: npt.NDArray[np.int64], tops: list[int], member_bits: int) -> tuple[WordFields, np.uint64]:
    """Where the fields of a word stand, and a word that holds no value: with a field above all cells.

    >>> fields, idle = _fields(np.array([3, 1]), [7, 15], 4)
    >>> fields.places.tolist(), bin(fields.guards), hex(idle)
    ([[4, 112, 8, 1792, 7], [12, 61440, 0, 0, 15]], '0b10000100010000000', '0x70')
    """
    wrap = (1 << _BITS) - 1
    places = np.zeros((len(tops), 5), np.uint64)
    # what came from a file is checked later
    at = bits = min(max(member_bits, 0), _BITS)
    guards = idle = 0
    for i, (held, top) in enumerate(zip(ends.tolist(), tops, strict=False)):
        places[i, 4] = top & wrap
        for side, end in enumerate((_LOW, _HIGH)):
            if held & end:
                places[i, 2 * side : 2 * side + 2] = min(at, _BITS - 1), top << at & wrap
                idle = idle or top << at
                at += top.bit_length()
                guards |= 1 << at
                at += 1
    mask = np.uint64((1 << bits) - 1)
    return WordFields(mask, np.uint64(guards & wrap), places), np.uint64(idle & wrap)


# Lists by the values of two attributes, for boxes that ask for one value of each: a path of `auto`.
#
# A list by one value (lists.py) is read whole, and where boxes ask for a second value nearly nothing of it is
# kept: of 100,000 boxes that name two of three words out of 2,000, an event reads fifty and one event in
# forty matches one. Here it is asked for each couple of attributes whether some box has the event's two
# values, which takes one word of a table, and the answer is nearly always no.
#
#   array     dtype    shape          meaning
#   couples   int64    (k, 2)         the couples of attributes
#   flags     uint64   2^i            two bits for each box, in the word that the hash of its two values names
#   starts    int32    2^j + 1        where lists begin; which list is told by other bits of the same hash
#   boxes     int32    n              the boxes, list after list
#
# No bounds are kept here. Different values may share a list, so all that a box asks for is compared by its
# own bounds: where its two values are there, and about one in a hundred times by chance. About MOST_ALIKE
# boxes at most have the same two values, so an event of which all couples have lists pays little as well;
# where more have them, they go to other paths.
#
# Couples are proposed on a sample of boxes, each the one that saves most beside lists by one value
# (lists.py), and weighed on all of them. Beside the weights there, in nanoseconds per event:
#
#     a couple                   _COUPLE_NS
#     a box that is compared     _CHECK_NS, times the share of events that have its two values
#
# Values are taken to be independent, but for couples of values that several boxes have: `predicates-16`,
# where each attribute tells all others, takes 2.3 times as long with couples.
#
# The boxes above (`strings` of the benchmark "doors") in batches of 50,000: 0.02 us per event, and 0.16 by
# lists on two attributes.

MOST_ALIKE = 8
_COUPLE_NS = 6.0
_CHECK_NS = 40.0
_MOST_ATTRIBUTES = 12


@dataclass(eq=False)
class EqualitiesPart(Part):
    """Lists by two values; see the module head."""

    identical: bool
    lists: CoupleLists

    exact = True
    ratio = 32

    def __post_init__(self) -> None:
        # as kernels.stab_few reads them
        self.few = FewEvents(kernels.stab_few_couples, Views(*self.lists))

    def check(self, boxes: Boxes, n_slots: int) -> None:
        couples, flags, starts, held = self.lists
        shaped("couples of attributes", couples, len(couples), 2)
        hold("that couples are few", len(couples) <= MOST_COUPLES)
        within("couples of attributes", couples, boxes.n_attributes)
        for size, least in ((len(flags), 2), (len(starts) - 1, 1)):
            hold("that tables are powers of two", size >= least and size & (size - 1) == 0)
        ascending("starts of lists by two values", starts, len(held))
        within("boxes of lists by two values", held, boxes.n)
        if self.identical:
            within("boxes of lists by two values", held, n_slots)

    def stab(self, request: Request) -> Found:
        codes, boxes = request.codes, request.boxes
        m = codes.shape[1]
        offsets, out = self.few.stab(codes, boxes) if m < FEW_EVENTS else self._stab(codes, boxes)
        if not self.identical:
            packed_kernels.to_slots(out, len(out), boxes.slots)
        return offsets, out

    def _stab(self, codes: Codes, boxes: Boxes) -> Rows:
        m = codes.shape[1]
        offsets, out = memory.empty(m + 1, np.int64), memory.empty(m // 2 + _ROOM, np.int32)
        offsets[0] = e = 0
        while (e := int(kernels.stab(codes, self.lists, boxes.arrays, e, offsets, out))) < m:
            out = memory.lengthened(out, int(offsets[e]), e / m)
        return offsets, out[: offsets[m]]

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self.few.stab_one(codes, boxes, None if self.identical else boxes.slots)

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_candidates(codes, self.lists, counts)
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> EqualitiesPart | None:
        if not self.identical:
            return None
        living = dead[self.lists.boxes] == 0
        before = np.concatenate([[0], np.cumsum(living)]).astype(np.int32)
        # flags stay: one of a dead box leads to a list without it
        swept = self.lists._replace(starts=before[self.lists.starts], boxes=self.lists.boxes[living])
        return EqualitiesPart(self.identical, swept)

    def stats(self) -> dict[str, int]:
        return {"couples": len(self.lists.couples)}


class Coupled(NamedTuple):
    """Couples of attributes, the boxes of each, and the hashes of their values there."""

    couples: list[tuple[int, int]]
    numbers: list[npt.NDArray[np.int64]]
    hashes: list[npt.NDArray[np.uint64]]


def build_equalities(boxes: Boxes, coupled: Coupled) -> EqualitiesPart:
    """Lists over boxes with one value on both attributes of their couple."""
    numbers, hashes = np.concatenate(coupled.numbers), np.concatenate(coupled.hashes)
    n_lists = _list_count(len(numbers))
    cells, order = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
    kernels.list_numbers(hashes, n_lists, cells)
    starts = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=n_lists))]).astype(np.int32)
    sort_by_cell(cells, np.zeros(n_lists + 1, np.int64), order)
    # 16 to 32 bits for each box, of which it sets two: about one in a hundred couples of values, or one in
    # two hundred, finds the bits of others
    flags = np.zeros(max(n_lists // 2, 2), np.uint64)
    kernels.set_flags(hashes, flags)
    couples = np.array(coupled.couples, np.int64).reshape(-1, 2)
    held = numbers[order].astype(np.int32)
    return EqualitiesPart(boxes.are_slots(numbers), CoupleLists(couples, flags, starts, held))


def _list_count(n: int) -> int:
    """A power of two, from half of so many boxes to all of them."""
    return 1 << max(n.bit_length() - 1, 0)


def choose_couples(
    boxes: Boxes, numbers: npt.NDArray[np.int64], asked: AskedValues, listed: list[int]
) -> Coupled | None:
    """Couples of attributes that save more than they cost beside lists by value on some attributes, with the
    boxes of each; None where they do not pay for a path."""
    n = len(asked.places)
    if len(asked.costs) < 2 or not n:
        return None
    now = np.full(n, rest_ns(asked.n), np.float32)
    for j in listed:
        now = np.minimum(now, asked.costs[j])
    chosen = _promising(asked, now)
    if not chosen:
        return None
    out = Coupled([], [], [])
    saved = 0.0
    for couple in chosen:
        held = numbers[asked.places]
        hashes = np.empty(n, np.uint64)
        firsts, seconds = (np.ascontiguousarray(boxes.column(j, held)[0]) for j in couple)
        kernels.hash_couple(firsts, seconds, len(out.couples), hashes)
        costs = _couple_costs(asked.costs, couple)
        rows = np.flatnonzero(costs < now)
        alike = _count_alike(hashes[rows])
        # values that come together more often than by chance in boxes will do so in events
        seen = (alike - 1) * np.float32(_CHECK_NS / max(len(rows), 1))
        gains = now[rows] - np.maximum(costs[rows], seen)
        # all but the longest lists: a few boxes in lists by one value would cost a look-up more
        kept = alike <= MOST_ALIKE
        gain = float(gains[kept].sum()) - _COUPLE_NS
        if gain < _COUPLE_NS:
            continue
        saved += gain
        out.couples.append(couple)
        out.numbers.append(held[rows[kept]])
        out.hashes.append(hashes[rows[kept]])
        now[rows[kept]] = 0.0
    return out if saved >= PROBE_NS else None


def _promising(asked: AskedValues, now: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
    """Couples by what they would save on a sample of boxes, those that save most first."""
    places = draw_boxes(np.arange(len(now)))
    scale = len(now) / len(places)
    own = {j: costs[places] for j, costs in asked.costs.items()}
    most = sorted(own, key=lambda j: -np.count_nonzero(own[j] < np.inf))[:_MOST_ATTRIBUTES]
    costs = {couple: _couple_costs(own, couple) for couple in itertools.combinations(sorted(most), 2)}
    left = now[places]
    chosen: list[tuple[int, int]] = []
    while costs and len(chosen) < MOST_COUPLES:
        gains = {couple: float(np.maximum(left - cost, 0).sum()) * scale for couple, cost in costs.items()}
        best = max(gains, key=lambda couple: gains[couple])
        if gains[best] < 2 * _COUPLE_NS:
            break
        chosen.append(best)
        left = np.minimum(left, costs.pop(best))
    return chosen


def _couple_costs(
    costs: dict[int, npt.NDArray[np.float32]], couple: tuple[int, int]
) -> npt.NDArray[np.float32]:
    """What boxes cost an event in lists of a couple, by what they cost in those of one value."""
    i, j = couple
    both: npt.NDArray[np.float32] = costs[i] * costs[j] * np.float32(_CHECK_NS / LIST_NS**2)
    return both


def _count_alike(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
    """How many have the same hash as each; a few more in one of twenty cases."""
    table = np.zeros(16 * _list_count(len(hashes)), np.uint8)
    alike = np.empty(len(hashes), np.float32)
    kernels.count_alike(hashes, table, alike)
    return alike


# Lists by value of boxes that are led by long lists of values (engine/boxes.py): a path of `auto`.
#
# The lists are those of lists.py, in which such a box stands once for each of its values. They are made by
# counting: how many boxes have each value, then each box is written where its values say. Values that lie too
# far apart to be counted are counted by their ranks.
#
# Boxes that bound nothing but the attribute of their list have lists of their own, without bounds beside
# them.

MOST_MEMBERS = 2**31 - 2
"""Of the lists of one path, whose places have 32 bits."""

# twice or half of it: a fifth slower with 20,000 lists of 5,000 values
_TILE = 1 << 19
_AT_LEAST = 8


class LedBoxes(NamedTuple):
    """Boxes that are led by lists on one attribute, ascending, and the places of their lists."""

    on: int
    numbers: npt.NDArray[np.int64]
    lists: npt.NDArray[np.int64]


def led_boxes(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> list[LedBoxes]:
    """Those of some boxes (ascending) that are led, by attribute and by whether they bound others too; so few
    together that their members can be numbered."""
    lists = boxes.lists
    if lists is None or not len(numbers):
        return []
    own = np.flatnonzero(lists.boxes >= 0)
    places = np.minimum(np.searchsorted(numbers, lists.boxes[own]), len(numbers) - 1)
    own = own[numbers[places] == lists.boxes[own]]
    if not len(own):
        return []
    held = lists.boxes[own].astype(np.int64)
    attributes, counts = lists.on[own], boxes.entry_counts(held)
    out = []
    for on in np.unique(attributes).tolist():
        for alone in (True, False):
            chosen = np.flatnonzero((attributes == on) & ((counts == 1) == alone))
            sizes = (lists.starts[own[chosen] + 1] - lists.starts[own[chosen]]).cumsum()
            while len(chosen):
                n = max(int(np.searchsorted(sizes, MOST_MEMBERS, "right")), 1)
                out.append(LedBoxes(on, held[chosen[:n]], own[chosen[:n]]))
                sizes = sizes[n:] - sizes[n - 1]
                chosen = chosen[n:]
    return out


class _Keyed(NamedTuple):
    """The values of lists as keys, which count up: a word of list i from firsts[i] to lasts[i], with adds[i]
    added."""

    words: npt.NDArray[np.uint32]
    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]
    adds: npt.NDArray[np.int64]
    n_keys: int
    values: Codes | None
    """The value of each key; without them it is the key, with `low` added."""
    low: int


def build_listed(boxes: Boxes, led: LedBoxes, memory_limit: int | None = None) -> EqualityPart:
    """Lists by value of boxes that are led by theirs."""
    on, numbers, own = led
    lists = boxes.lists
    assert lists is not None
    total = int(((lists.starts[own + 1] - lists.starts[own]) // (1 + lists.wide[own])).sum())
    used = bounded_attributes(boxes, numbers, (on,))
    check_fits(
        total * (4 + 4 * len(used)),
        memory_limit,
        f"'auto' for {len(numbers):,} lists of {total:,} values",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )
    keyed = _keyed(lists, own, total)
    starts, members = np.empty(keyed.n_keys + 1, np.int32), np.empty(total, np.int32)
    named = np.arange(len(numbers), dtype=np.int32) if used else numbers.astype(np.int32)
    # so many keys at a time that what they write stays in the caches, and each list has some of them
    tiles = max(min(total // _TILE, total // (_AT_LEAST * len(numbers))), 1)
    where = keyed.words, keyed.firsts, keyed.lasts, keyed.adds
    room = np.empty_like(keyed.firsts)
    boxes_kernels.lay_out_by_key(*where, named, -(-keyed.n_keys // tiles), room, starts, members)
    values = keyed.values
    if values is None:
        taken = np.flatnonzero(starts[1:] > starts[:-1])
        values, starts = taken + keyed.low, np.append(starts[taken], total)
    firsts = starts.astype(np.int32, copy=False)
    common, seldom = split_attributes(boxes, numbers, used)
    packed = Packed.fit(boxes, numbers, common, widen=total / max(len(values), 1))
    bounds = np.empty(total * packed.n_words, np.uint64)
    if packed.n_words:
        boxes_kernels.spread_columns(firsts, members, packed.pack_boxes(boxes, numbers), bounds)
    rare = []
    for j, rows in seldom:
        flags = np.zeros(len(numbers), bool)
        flags[rows] = True
        rare.append((j, np.flatnonzero(flags[members])))
    if used:
        boxes_kernels.rename(members, numbers.astype(np.int32))
    bounds_apart = rare_bounds(boxes, members, firsts, rare)
    dense, table = enter_values(values)
    held = ValueLists(on, dense, values, table, firsts, members, bounds, *bounds_apart)
    return EqualityPart(boxes.are_slots(numbers), packed, held)


def _keyed(lists: ListedValues, own: npt.NDArray[np.int64], total: int) -> _Keyed:
    firsts, lasts, bases = lists.starts[own], lists.starts[own + 1], lists.bases[own]
    if not lists.wide[own].any():
        low = int(bases.min())
        span = max((bases.astype(object) + lists.words[lasts - 1]).tolist()) - low + 1
        if span <= COUNTED * total + 1024:
            return _Keyed(lists.words, firsts, lasts, bases - low, span, None, low)
    # values that lie far from one another: their ranks among all of them
    codes = np.empty(total, np.int64)
    boxes_kernels.gather_values(lists, own, 0, codes)
    values = np.unique(codes)
    dense, table = enter_values(values)
    if dense:
        ranks = table[codes - values[0]].astype(np.uint32)
    else:
        hashes, ranks = np.empty(total, np.uint64), np.empty(total, np.uint32)
        hash_integers(codes, hashes)
        boxes_kernels.rank_values(codes, hashes, values, table, ranks)
    ends = ((lasts - firsts) // (1 + lists.wide[own])).cumsum()
    begins = np.concatenate([[0], ends[:-1]])
    return _Keyed(ranks, begins, ends, np.zeros(len(own), np.int64), len(values), values, 0)


# Which attributes get lists by value in `auto`, and which boxes stand in them.
#
# An attribute costs every event a look-up, and a list costs by how many of its boxes an event meets; a box
# without a list costs what it does in the layout of the rest, in nanoseconds per event:
#
#     a look-up                          PROBE_NS
#     a box of a list                    LIST_NS, times the share of events that read it
#     a box of the rest                  _REST_NS, and where they are few _REST_BLOCK_NS per block of them

_NEARLY = 1.5
LIST_NS = 1.5
PROBE_NS = 40.0
_REST_NS = 0.03
_REST_BLOCK_NS = 1000.0


class AskedValues(NamedTuple):
    """Which of n boxes ask for one value of an attribute, for attributes on which many do.

    The places of those that do on any, ascending, and per attribute what each would cost an event in the list
    of its value, in nanoseconds; infinitely much where it asks for no value.
    """

    n: int
    places: npt.NDArray[np.int64]
    costs: dict[int, npt.NDArray[np.float32]]


def ask_values(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int], threads: int = 1
) -> AskedValues:
    """What boxes ask for on the attributes that they bound."""
    n = len(numbers)
    asked: dict[int, tuple[npt.NDArray[np.int64], Codes]] = {}
    for j in used:
        rows, values = _equal_rows(boxes, numbers, j, threads)
        if len(rows) * rest_ns(len(rows)) >= PROBE_NS / 8 or len(rows) >= max(n // 2, 1):
            asked[j] = rows, values
    # boxes without any of these values are in no list, whatever is chosen
    marks = np.zeros(n, bool)
    for rows, _ in asked.values():
        marks[rows] = True
    some = np.flatnonzero(marks)
    costs = {j: np.full(len(some), np.inf, np.float32) for j in asked}
    for j, (rows, values) in asked.items():
        places = rows if len(some) == n else np.searchsorted(some, rows)
        costs[j][places] = _shares(values) * np.float32(LIST_NS)
    return AskedValues(n, some, costs)


def choose_equalities(
    asked: AskedValues, numbers: npt.NDArray[np.int64]
) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Attributes with lists by value, and the boxes of each.

    Attributes are taken one at a time, each the one that saves most; a box is listed under the first of them
    whose value is about as rare as its rarest.
    """
    n, some, costs = asked
    best = np.full(len(some), np.inf, np.float32)
    chosen: list[int] = []
    while len(chosen) < len(costs):
        # those without a list share a path, in which few cost more each than many do
        unlisted_ns = rest_ns(n - len(some) + int(np.count_nonzero(best == np.inf)))
        now = np.minimum(best, np.float32(unlisted_ns))
        gains = {j: float(np.maximum(now - cost, 0).sum()) for j, cost in costs.items() if j not in chosen}
        j = max(gains, key=lambda k: gains[k])
        # the first attribute pays for itself even with few boxes if it takes most of them
        if gains[j] < PROBE_NS and not (not chosen and gains[j] > 0.5 * n * unlisted_ns):
            break
        chosen.append(j)
        best = np.where(costs[j] < now, costs[j], best)
    if not chosen:
        return []
    # the first that is nearly as rare: one long list is read faster than several short ones
    winner = np.full(len(some), -1, np.int32)
    for k in reversed(range(len(chosen))):
        winner[costs[chosen[k]] <= _NEARLY * best] = k
    winner[best == np.inf] = -1
    return [(j, numbers[some[winner == k]]) for k, j in enumerate(chosen) if (winner == k).any()]


def claim_lists(left: Left) -> None:
    """The boxes that ask for one value of two attributes, where that pays, then those that ask for one value
    that events seldom have."""
    asked = ask_values(left.boxes, left.numbers, left.used, left.threads)
    listed = choose_equalities(asked, left.numbers)
    coupled = choose_couples(left.boxes, left.numbers, asked, [on for on, _ in listed])
    if coupled is not None:
        on = tuple(sorted({j for couple in coupled.couples for j in couple}))
        own = np.concatenate(coupled.numbers)
        left.claim("equalities", on, own, partial(build_equalities, left.boxes, coupled))
        left.settle()
        asked = ask_values(left.boxes, left.numbers, left.used, left.threads)
        listed = choose_equalities(asked, left.numbers)
    for j, own in listed:
        left.claim("equality", (j,), own, partial(build_lists, left.boxes, own, j))


def _equal_rows(
    boxes: Boxes, numbers: npt.NDArray[np.int64], j: int, threads: int
) -> tuple[npt.NDArray[np.int64], Codes]:
    """Which of the boxes give one value to an attribute, and the values."""

    def look(piece: tuple[int, int]) -> tuple[npt.NDArray[np.int64], Codes]:
        lows, highs = boxes.column(j, numbers[slice(*piece)])
        own = np.flatnonzero(lows == highs)
        return own + piece[0], lows[own]

    none = np.empty(0, np.int64)
    rows, values = zip((none, none), *runner(threads)(look, boxes.pieces(len(numbers))), strict=True)
    return np.concatenate(rows), np.concatenate(values)


def rest_ns(n: int) -> float:
    """What one of n boxes without a list costs an event, where it is not passed over with its block."""
    return max(_REST_NS, _REST_BLOCK_NS / max(n, BLOCK))


def _shares(values: Codes) -> npt.NDArray[np.float32]:
    """For each value, the share of all that are equal to it; rare ones count as their average."""
    if not len(values):
        return np.empty(0, np.float32)
    low, span = span_of(values)
    if span <= COUNTED * len(values):
        held = np.bincount(values - low)
        each = ((held + 1.0) / (len(values) + np.count_nonzero(held))).astype(np.float32)
        return each[values - low]
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    smoothed = (counts + 1.0) / (len(values) + len(distinct))
    return smoothed[inverse].astype(np.float32)
