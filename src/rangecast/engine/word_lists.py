"""Lists by value in which a box is one word, its bounds and its number together: a path of `auto`.

Where the bounds on all other attributes are exact and leave room in a word of 64 bits for the number of the
box, nothing stands beside it (equality.py has the lists for all other cases). A list of twenty is then 160
bytes in one place instead of 240 in two, and each load gives bounds and members of four boxes at once.

    array    dtype    shape           meaning
    values   int64    n_lists         the values, ascending
    table    int32    values' span,   list of a value, as in equality.py
                      or 2^k
    starts   int32    n_lists + 1     where the lists begin, in fours of words
    words    uint64   4 * starts[-1]  the boxes, list after list; the last four of each list are filled up
                                      with words that hold no value
    ends     int64    k               per packed attribute which ends some box bounds: 1 low, 2 high, 3 both

A word has the number of the box in its lowest bits, then a field with a guard above it (packed_bounds.py) for
each end that some box bounds, just as wide as the cells of the attribute need.

Ids can be written in the same pass where they count up with slots, and behind those of each event the ones
that later parts of the index have found: then no row is copied to be joined.

On a million boxes in 50,000 lists and batches of 100,000 events, 8.4 matches per event, the kernel took
2.4 ms at best. A cold answer costs little that asking for its lines ahead does not hide, so nothing is
written past the caches. Tried in prototypes on a busy machine, as factors of the time:

    lists asked for by the block of events before any of it is compared         1.15 to 1.25
    all fours of a block of events in one loop that has no end to guess         about 1.4
    as many fours for each event as lists have on average, masked, and the rest 1.1
    lists that begin anywhere, with a mask for their last four                  about 1.1
    three lines per list asked for, and not the one that it ends in             1.05 to 1.15
    one function for all, in which registers run out                            1.2
    a branch for events that have no list, and a look into a table of all       1.2
    cells of events looked up by gathers                                        1.08
    lists asked for into the second cache and not the first                     1.05
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast import buffers
from rangecast.engine.answers import Found, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.layouts import lists_kernels as kernels
from rangecast.engine.layouts.lists import EqualityPart, Grouped, build_equality, enter_values, group_by_value
from rangecast.engine.layouts.lists_kernels import WordFields, WordLists
from rangecast.engine.packed import Packed
from rangecast.engine.small import FEW_EVENTS, ROOM, FewEvents
from rangecast.engine.static_part import IdRows, Part
from rangecast.kernels.machine.views import Views
from rangecast.simd.lanes import MOST_TOGETHER, TOGETHER
from rangecast.types.attributes import LAST, MISSING, Codes

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
        self.few = FewEvents(kernels.stab_few, views, min(longest + MOST_TOGETHER, ROOM))

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

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_words(codes[self.lists.on], self.lists, counts)
        return counts

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        if codes.shape[1] < FEW_EVENTS:
            return self.few.stab(codes, boxes)
        rows: Rows = self._stab(codes, 0, (_NO_OFFSETS, np.empty(0, np.int32)))
        return rows

    def writes_ids(self, codes: Codes) -> bool:
        return bool(codes.shape[1] >= FEW_EVENTS)

    def stab_ids(self, codes: Codes, boxes: Boxes, base: int, beside: IdRows | None) -> IdRows:
        ids: IdRows = self._stab(codes, base, beside or (_NO_OFFSETS, np.empty(0, np.int64)))
        return ids

    def _stab(self, codes: Codes, add: int, beside: tuple[npt.NDArray[np.int64], npt.NDArray[Any]]) -> Any:
        """Rows of boxes, with a number added to each, and behind them those beside."""
        lists, packing, m = self.lists, self.packed.views.table, codes.shape[1]
        # a small part, of what came last: most of its work would be for events that have no list there
        rare = lists.dense and 2 * len(lists.values) < len(lists.table) and not len(beside[1])
        offsets = buffers.empty(m + 1, np.int64)
        offsets[0] = 0
        out = buffers.empty(int(m * self._per_event) + len(beside[1]) + _ROOM, beside[1].dtype)
        e = 0
        while True:
            if rare:
                e = int(kernels.stab_rare(codes, lists, self.fields, packing, e, add, offsets, out))
            else:
                e = int(kernels.stab_words(codes, lists, self.fields, packing, e, add, *beside, offsets, out))
            if e == m:
                return offsets, out[: offsets[m]]
            out = buffers.lengthened(out, int(offsets[e]), e / m)
            self._per_event = len(out) / m

    def stab_one(self, codes: Codes, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        return self.few.stab_one(codes, boxes)

    def without(self, dead: npt.NDArray[np.uint8]) -> WordListsPart | None:
        lists = self.lists
        starts, words = np.empty_like(lists.starts), buffers.aligned(len(lists.words), np.uint64)
        kept = kernels.sweep_words(
            lists.starts, lists.words, self.fields.mask, self._idle, dead, starts, words
        )
        swept = buffers.aligned(kept, np.uint64)
        swept[:] = words[:kept]
        part = WordListsPart(self.packed, lists._replace(starts=starts, words=swept))
        part._per_event = self._per_event
        return part

    @property
    def derived_bytes(self) -> int:
        return self.packed.derived_bytes

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
    words = buffers.aligned(TOGETHER * int(fours[-1]), np.uint64)
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
