"""The boxes of subscriptions with sets, as they were said: beside the pieces that layouts are made of.

Layouts know one interval per attribute (kernels/engine/boxes.py). A box with sets goes to them in pieces, cut
along one set at most where all would be many: an IN list is a piece per value, and other sets are their
hulls. So the pieces of a box hold all that the box holds, and sometimes more; a slot whose pieces hold more
is *checked*: what a layout finds of it is compared with its boxes here (`drop_unheld` in
kernels/model/boxes.py).

`auto` does not cut a box along a long list of values: the list is kept beside the boxes (listed_values.py),
and may lead the box. Where nothing else is left to be said, its slot is checked only as long as it is in no
layout.

`scan` cuts along all sets or none: where all would be many pieces a box is its hull, and its slot is checked.

    array     type          shape           meaning
    boxes     SparseBoxes   >= n_boxes      the boxes of all slots that have sets; owners are slots
    checks    int32         >= n_slots      0 where the slot is not checked, otherwise 1 more than the number
                                            of its first box; negative where layouts by lists say all
    lists     ListedValues  <= n_sets       long lists of values; their sets have no spans

The arrays grow at their ends and are replaced by larger ones when full, as those of the catalog are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.checked_slots import without_regions
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.listed_values import (
    Listing,
    ListStore,
    choose_led,
    measure_sets,
    with_room,
    without_listed,
)
from rangecast.language import kernels
from rangecast.language.kernels import SET, ListedValues
from rangecast.model import boxes as sparse
from rangecast.model.boxes import DenseBoxes, SparseBoxes
from rangecast.model.subscriptions import Subscriptions
from rangecast.types.attributes import LAST

FEW = 16
"""Into so many pieces a box is cut along all its sets: they cost no more than a check of what is found."""

MOST = 1 << 22
"""How many entries the pieces of a box may have together; with more it is its hull, and checked."""


class SaidArrays(NamedTuple):
    """What a file holds of them."""

    boxes: SparseBoxes
    checks: npt.NDArray[np.int32]
    lists: ListedValues | None = None


class BoxPieces(NamedTuple):
    """Boxes as layouts take them; which subscriptions they hold more than (2: than lists that lead them say),
    which may be found twice, and the sets that are lists."""

    bounds: DenseBoxes | SparseBoxes
    checked: npt.NDArray[np.uint8] | None
    overlapping: npt.NDArray[np.uint8]
    listing: Listing | None = None


def into_pieces(
    subs: Subscriptions, *, cuts: bool, expands: bool, compares: bool = False, lists: bool = False
) -> BoxPieces:
    """The boxes of subscriptions in pieces, dense if they are expanded; without cuts, only where few of them
    say all. Whoever compares boxes with boxes, and not with events, has regions as they were named. With
    lists, a box is not cut along a long list of values, which may lead it instead."""
    covered = None if compares else without_regions(subs)
    if covered is not None:
        # sets of what is left are not those of the boxes as they were said, which lists are named by
        found = into_pieces(covered[0], cuts=cuts, expands=expands)
        marked = covered[1] if found.checked is None else covered[1] | found.checked
        return found._replace(checked=marked)
    if not subs.has_sets:
        # as they are there: by entry and dense at once they would take the room of both
        bounds = subs.dense() if expands or subs._sparse is None else subs.boxes
        return BoxPieces(bounds, None, subs.overlapping())
    boxes, d, n = subs.boxes, len(subs.schema), len(subs)
    sizes = measure_sets(boxes) if lists else np.zeros(len(boxes.sets), np.int64)
    chosen, leads = np.zeros(len(boxes.sets), np.uint8), np.zeros(len(boxes.sets), np.uint8)
    of_boxes = np.empty(len(boxes.owners), np.uint8)
    ends = d if expands else max(1, int(np.diff(boxes.starts).max(initial=0)))
    most = max(FEW, MOST // ends) if cuts else 0
    kernels.choose_cuts(boxes, FEW, most, sizes, choose_led(boxes, sizes), chosen, leads, of_boxes)
    checked = np.zeros(n, np.uint8)
    checked[boxes.owners[of_boxes == 2]] = 2
    checked[boxes.owners[of_boxes == 1]] = 1
    # hulls may meet where sets do not, and then the slot would be found, and hold, twice
    overlapping = subs.overlapping() | (sparse.flag_overlapping(boxes, n, by_hulls=True) & (checked != 0))
    listed = np.flatnonzero(sizes)
    listing = None
    if len(listed):
        own = np.searchsorted(boxes.starts, boxes.sets[listed], "right") - 1
        firsts = sparse.starts_of(sparse.count_pieces(boxes, chosen).astype(np.int64))
        listing = Listing(listed, sizes[listed], np.where(leads[listed] == 1, firsts[own], -1))
    bounds = sparse.cut(boxes, d, chosen)[0] if expands else sparse.cut_entries(boxes, chosen)
    return BoxPieces(bounds, checked, overlapping, listing)


class SaidBoxes:
    """Boxes with sets, by slot."""

    def __init__(self, arrays: SaidArrays | None = None) -> None:
        empty = np.empty(0, np.int64)
        none = SparseBoxes(
            np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32), empty, empty, empty,
            np.zeros(1, np.int64), empty, empty,
        )  # fmt: skip
        held = SaidArrays(none, np.empty(0, np.int32)) if arrays is None else arrays
        self._boxes, self._checks = held.boxes, held.checks
        self.lists = ListStore(held.lists)
        self._used = [len(array) for array in _columns(self._boxes)]
        self._n_slots = len(self._checks)
        self.any_checked = bool((self._checks > 0).any())
        listed = np.flatnonzero(self._checks < 0)
        self._last_led = int(listed[-1]) if len(listed) else -1
        self._regions = np.zeros(0, np.int32)
        self._n_regions = self._n_looked_at = 0
        self._bits = np.zeros(0, np.uint8)
        self._n_bits = 0

    def check(self, n_attributes: int, n_slots: int, n_boxes: int) -> None:
        """Raise StorageError unless kernels stay within entries, sets and slots."""
        b = self._boxes
        shaped("checks of slots", self._checks, n_slots)
        within("checks of slots", self._checks, len(b.owners) + 1, -len(b.owners))
        within("owners of boxes with sets", b.owners, n_slots)
        hold("that boxes with sets stand by slots", (b.owners[1:] >= b.owners[:-1]).all())
        n, n_spans = len(b.lows), len(b.set_lows)
        ascending("starts of entries", b.starts, n, len(b.owners) + 1)
        for name, array in (("attributes", b.attributes), ("highs of entries", b.highs)):
            shaped(name, array, n)
        within("attributes of entries", b.attributes & ~np.int32(SET), n_attributes)
        within("entries with sets", b.sets, n)
        marked = np.flatnonzero(b.attributes & np.int32(SET))
        hold("that entries with sets are marked", np.array_equal(marked, b.sets))
        ascending("starts of sets", b.set_starts, n_spans, len(b.sets) + 1)
        shaped("highs of sets", b.set_highs, n_spans)
        self.lists.check(len(b.sets), n_attributes, n_boxes)

    @property
    def boxes(self) -> SparseBoxes:
        """The boxes as they are now."""
        columns = zip(_columns(self._boxes), self._used, strict=True)
        return SparseBoxes(*(array[:n] for array, n in columns))

    def needs_checks(self, tail: int) -> bool:
        """Whether some slot is checked when those from `tail` on are in no layout."""
        return self.any_checked or self._last_led >= tail

    def checks(self, n_slots: int) -> npt.NDArray[np.int32]:
        """Which of all slots are checked, and by the boxes from which number on."""
        self._pad(n_slots)
        return self._checks[:n_slots]

    def checked_bits(self, n_slots: int) -> npt.NDArray[np.uint8]:
        """A bit for each slot, the lowest of a byte first: whether it is checked."""
        first, last = self._n_bits >> 3, (n_slots + 7) >> 3
        if self._n_bits < n_slots:
            # the byte that was begun is written anew as it is, for whoever reads it meanwhile
            self._bits = with_room(self._bits, first + 1 if self._n_bits & 7 else first, last)
            self._bits[first:last] = np.packbits(self.checks(n_slots)[8 * first :] != 0, bitorder="little")
            self._n_bits = n_slots
        return self._bits[:last]

    def lone_regions(self, n_slots: int, position: int) -> npt.NDArray[np.int32]:
        """The code of the region that a slot asks of an attribute of points, if the region alone says whether
        what was found of the slot holds: it has one box, without sets, whose pieces say all the rest. 0 for
        any other slot."""
        if self._n_regions < n_slots:
            self._regions = with_room(self._regions, self._n_regions, n_slots)
            self._regions[self._n_regions : n_slots] = 0
            self._n_regions = n_slots
        b, first = self.boxes, self._n_looked_at
        if first < len(b.owners):
            owners, starts = b.owners[first:], b.starts[first:]
            entries = slice(int(starts[0]), int(starts[-1]))
            attributes, lows, highs = b.attributes[entries], b.lows[entries], b.highs[entries]
            asked = (attributes == position) & (lows == highs) & (lows >= 1) & (lows < LAST)
            asked &= lows < 1 << 31
            n_asked, n_sets = (
                np.diff(sparse.starts_of(flags)[starts - starts[0]])
                for flags in (asked, attributes & SET != 0)
            )
            alone = np.bincount(owners - owners[0])[owners - owners[0]] == 1
            chosen = np.flatnonzero(alone & (n_asked == 1) & (n_sets == 0))
            codes = lows[asked][(sparse.starts_of(asked)[starts - starts[0]])[chosen]]
            self._regions[owners[chosen]] = codes
            self._n_looked_at = len(b.owners)
        return self._regions[:n_slots]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in use."""
        derived = self._regions.nbytes + self._bits.nbytes
        own = sum(array.nbytes for array in _columns(self.boxes)) + self.lists.nbytes
        return own + 4 * self._n_slots + derived

    def add(self, subs: Subscriptions, first: int, pieces: BoxPieces, first_box: int) -> None:
        """Take the boxes of those of the subscriptions that have sets or are checked; row 0 has the slot
        `first`, and the first of their pieces is box `first_box`."""
        boxes, checked = subs.boxes, pieces.checked
        assert checked is not None
        if pieces.listing is not None:
            # every box with a set is taken, so sets stay in their order
            self.lists = self.lists.add(boxes, pieces.listing, len(self.boxes.sets), first_box)
            boxes = without_listed(boxes, pieces.listing.sets)
        rows = checked.astype(bool)
        rows[boxes.owners[np.searchsorted(boxes.starts, boxes.sets, "right") - 1]] = True
        numbers = np.flatnonzero(rows[boxes.owners])
        owners = boxes.owners[numbers]
        found = np.flatnonzero(checked)
        firsts = self._used[0] + 1 + np.searchsorted(owners, found)
        self._append(sparse.select(boxes, numbers, owners + np.int32(first)))
        self._pad(first + len(subs))
        led = checked[found] == 2
        self._checks[first + found] = np.where(led, -firsts, firsts)
        self._n_bits = min(self._n_bits, first)
        self.any_checked |= bool((~led).any())
        if led.any():
            self._last_led = first + int(found[led][-1])

    def select(self, numbers: npt.NDArray[np.int64], owners: npt.NDArray[np.int32]) -> SparseBoxes:
        """Some boxes as they were said, with the owners that they get."""
        b = self.boxes
        chosen = sparse.select(b, numbers, owners)
        entries = sparse.ragged(b.starts, numbers)[chosen.sets]
        return self.lists.restored(chosen, np.searchsorted(b.sets, entries))

    def of_slots(self, slots: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The numbers of the boxes of some slots (ascending), and for each which of these slots has it."""
        owners = self.boxes.owners
        firsts, ends = np.searchsorted(owners, slots), np.searchsorted(owners, slots, "right")
        numbers = sparse.ragged(np.stack([firsts, ends], axis=1).ravel(), 2 * np.arange(len(slots)))
        return numbers, np.repeat(np.arange(len(slots)), ends - firsts)

    def stored(self, n_slots: int) -> SaidArrays:
        """What a file holds of it."""
        return SaidArrays(self.boxes, self.checks(n_slots), self.lists.arrays if len(self.lists) else None)

    def _append(self, more: SparseBoxes) -> None:
        n_entries, n_spans = len(self.boxes.lows), len(self.boxes.set_lows)
        moved = more._replace(
            starts=more.starts[1:] + n_entries,
            sets=more.sets + n_entries,
            set_starts=more.set_starts[1:] + n_spans,
        )
        arrays, counts = [], []
        for array, n, new in zip(_columns(self._boxes), self._used, _columns(moved), strict=True):
            arrays.append(with_room(array, n, n + len(new)))
            arrays[-1][n : n + len(new)] = new
            counts.append(n + len(new))
        self._boxes, self._used = SparseBoxes(*arrays), counts

    def _pad(self, n_slots: int) -> None:
        if n_slots > self._n_slots:
            self._checks = with_room(self._checks, self._n_slots, n_slots)
            self._checks[self._n_slots : n_slots] = 0
            self._n_slots = n_slots


def _columns(boxes: SparseBoxes) -> list[npt.NDArray[Any]]:
    return list(boxes)
