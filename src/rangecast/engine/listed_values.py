"""Long lists of values: IN of hundreds or thousands, kept by value and laid out without a box for each.

A set of LEAST spans or more, nearly all of them single values, is a list. Its box stays one, whose entry has
the hull of the list, and layouts that know intervals alone find too much of it. So a box may be *led* by its
list: it stands in lists by value (equality.py), once for each of its values, with its other bounds packed
beside it, and what is found there needs no check of the list. Memory per value is 4 bytes here and 4 there,
where a box for each value took 43.

    array    dtype    shape       meaning
    sets     int64    n_lists     ascending: which set (said_boxes.py) is kept here; it has no spans there
    starts   int64    n_lists+1   where the words of a list begin
    bases    int64    n_lists     its least value
    wide     uint8    n_lists     1 where a value takes two words, the low one first
    on       int32    n_lists     the attribute that it is of
    boxes    int32    n_lists     the box that the list leads, in the catalog's numbers, or -1
    words    uint32   n_words     the values, ascending, less the base

The arrays grow at their ends and are replaced by larger ones when full, as those of the catalog are.

Which boxes are led. A list costs an event a comparison for each box whose list holds its value. A box with an
equality on another attribute may be cheaper by that: it goes with its hull where its equality takes it, and
what is found is looked up in the list. Both are estimated from what is loaded together (`choose_led`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.kernels.engine import listed_values as kernels
from rangecast.language.kernels import SET, ListedValues
from rangecast.model import boxes as sparse
from rangecast.model.boxes import SparseBoxes
from rangecast.types.attributes import MISSING, Codes

LEAST = 256
"""Spans of a set that is kept as a list."""

WIDEST = 8
"""Values per span of such a set on average, at the most: each of them takes memory."""

_LIST_NS, _CHECK_NS = 1.5, 100.0


class Listing(NamedTuple):
    """Which sets of some boxes are kept as lists, with how many values, and the piece that each leads, or
    -1."""

    sets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.int64]


def measure_sets(boxes: SparseBoxes) -> npt.NDArray[np.int64]:
    """How many values each set has that is a list; 0 for any other."""
    sizes = np.zeros(len(boxes.sets), np.int64)
    if _are_same(boxes.set_lows, boxes.set_highs):
        # both ends are one array, as lists that were just read have it: each span is one value, and looking
        # at none of them saves a fifth of what laying them out takes
        counts = np.diff(boxes.set_starts)
        own = np.flatnonzero(counts >= LEAST)
        own = own[boxes.set_lows[boxes.set_starts[own]] != MISSING]
        sizes[own] = counts[own]
        return sizes
    kernels.measure_sets(boxes, LEAST, WIDEST, sizes)
    return sizes


def _are_same(lows: Codes, highs: Codes) -> bool:
    """Whether two arrays are the same memory, and not only equal."""
    alike = len(lows) == len(highs) and lows.strides == highs.strides
    return alike and bool(lows.ctypes.data == highs.ctypes.data)


def choose_led(boxes: SparseBoxes, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Per box, 1 unless an equality of it is cheaper than its shortest list, as far as these boxes tell: how
    often events have a value is taken to be how often boxes ask for it."""
    n = len(boxes.owners)
    led = np.ones(n, np.uint8)
    lists = np.flatnonzero(sizes)
    entries = np.flatnonzero((boxes.attributes & SET == 0) & (boxes.lows == boxes.highs))
    if not len(lists) or not len(entries):
        return led
    owners = np.searchsorted(boxes.starts, np.arange(len(boxes.lows)), "right") - 1
    by_list = np.full(n, np.inf)
    attributes = boxes.attributes[boxes.sets[lists]]
    for j in np.unique(attributes):
        own = lists[attributes == j]
        ends = boxes.sets[own]
        span = int(boxes.highs[ends].max()) - int(boxes.lows[ends].min()) + 1
        # as many values as there may be: each list holds its share of them
        share = sizes[own] / min(span, int(sizes[own].sum()))
        np.minimum.at(by_list, owners[ends], _LIST_NS * share)
    by_value = np.full(n, np.inf)
    for j in np.unique(boxes.attributes[entries]):
        own = entries[boxes.attributes[entries] == j]
        _, places, counts = np.unique(boxes.lows[own], return_inverse=True, return_counts=True)
        share = (counts + 1.0) / (len(own) + len(counts))
        np.minimum.at(by_value, owners[own], (_LIST_NS + _CHECK_NS) * share[places])
    led[by_value < by_list] = 0
    return led


def without_listed(boxes: SparseBoxes, listed: npt.NDArray[np.int64]) -> SparseBoxes:
    """The same boxes, in which these sets have no spans."""
    kept = np.ones(len(boxes.sets), bool)
    kept[listed] = False
    spans = sparse.ragged(boxes.set_starts, np.flatnonzero(kept))
    starts = sparse.starts_of(np.where(kept, np.diff(boxes.set_starts), 0))
    return boxes._replace(set_starts=starts, set_lows=boxes.set_lows[spans], set_highs=boxes.set_highs[spans])


class ListStore:
    """The lists of a catalog; see the module head."""

    def __init__(self, arrays: ListedValues | None = None) -> None:
        none = np.empty(0, np.int64)
        empty = ListedValues(
            none, np.zeros(1, np.int64), none, np.empty(0, np.uint8), np.empty(0, np.int32),
            np.empty(0, np.int32), np.empty(0, np.uint32),
        )  # fmt: skip
        self._arrays = empty if arrays is None else arrays
        self._used = [len(array) for array in _columns(self._arrays)]

    def __len__(self) -> int:
        return self._used[0]

    @property
    def arrays(self) -> ListedValues:
        """The lists as they are now."""
        columns = zip(_columns(self._arrays), self._used, strict=True)
        return ListedValues(*(array[:n] for array, n in columns))

    def add(self, boxes: SparseBoxes, listing: Listing, first_set: int, first_box: int) -> ListStore:
        """The same with the lists of some boxes behind them; this one goes on as it is."""
        bases, wide = np.empty(len(listing.sets), np.int64), np.empty(len(listing.sets), np.uint8)
        kernels.describe_lists(boxes, listing.sets, bases, wide)
        n, used = self._used[0], self._used[-1]
        ends = used + np.cumsum(listing.sizes * (1 + wide.astype(np.int64)))
        led = np.where(listing.pieces >= 0, listing.pieces + first_box, -1).astype(np.int32)
        on = boxes.attributes[boxes.sets[listing.sets]] & ~np.int32(SET)
        more: list[npt.NDArray[Any]] = [listing.sets + first_set, ends, bases, wide, on, led]
        arrays: list[npt.NDArray[Any]] = []
        for array, count, new in zip(_columns(self._arrays), self._used, more, strict=False):
            arrays.append(with_room(array, count, count + len(new)))
            arrays[-1][count : count + len(new)] = new
        wanted = int(ends[-1]) if len(ends) else used
        arrays.append(with_room(self._arrays.words, used, wanted))
        kernels.fill_lists(boxes, listing.sets, listing.sizes, bases, wide, used, arrays[-1])
        out = ListStore()
        out._arrays = ListedValues(*arrays)
        out._used = [n + len(bases)] * len(arrays)
        out._used[1] += 1
        out._used[-1] = wanted
        return out

    def restored(self, boxes: SparseBoxes, numbers: npt.NDArray[np.int64]) -> SparseBoxes:
        """Boxes with the spans of their lists; numbers[k] is what set k of them is called here."""
        lists = self.arrays
        places = np.searchsorted(lists.sets, numbers)
        found = np.minimum(places, max(len(lists.sets) - 1, 0))
        held = np.flatnonzero(lists.sets[found] == numbers) if len(lists.sets) else places[:0]
        if not len(held):
            return boxes
        chosen = found[held]
        counts = np.empty(len(held), np.int64)
        kernels.count_spans(lists, chosen, counts)
        sizes = np.diff(boxes.set_starts)
        sizes[held] = counts
        starts = sparse.starts_of(sizes)
        lows, highs = np.empty(int(starts[-1]), np.int64), np.empty(int(starts[-1]), np.int64)
        kernels.fill_spans(lists, chosen, starts[held], lows, highs)
        others = np.ones(len(sizes), bool)
        others[held] = False
        rest = np.flatnonzero(others)
        if len(rest):
            to, own = sparse.ragged(starts, rest), sparse.ragged(boxes.set_starts, rest)
            lows[to], highs[to] = boxes.set_lows[own], boxes.set_highs[own]
        return boxes._replace(set_starts=starts, set_lows=lows, set_highs=highs)

    def n_led(self, first: int) -> int:
        """How many boxes from a number on are led by a list."""
        boxes = self.arrays.boxes
        return int(np.count_nonzero(boxes >= first))

    def check(self, n_sets: int, n_attributes: int, n_boxes: int) -> None:
        """Raise StorageError unless kernels that match stay within lists and boxes."""
        lists = self.arrays
        n = len(lists.sets)
        within("sets that are lists", lists.sets, n_sets)
        hold("that lists stand by sets", (lists.sets[1:] > lists.sets[:-1]).all())
        ascending("starts of lists of values", lists.starts, len(lists.words), n + 1)
        hold("that words are of lists", int(lists.starts[0]) == 0 and lists.starts[-1] == len(lists.words))
        shaped("bases of lists", lists.bases, n)
        shaped("widths of lists", lists.wide, n)
        within("widths of lists", lists.wide, 2)
        shaped("attributes of lists", lists.on, n)
        within("attributes of lists", lists.on, n_attributes)
        shaped("boxes of lists", lists.boxes, n)
        within("boxes of lists", lists.boxes, n_boxes, -1)
        hold("that wide values are whole", not (np.diff(lists.starts) % (1 + lists.wide)).any())

    def check_values(self) -> None:
        """Raise StorageError unless lists of a file can be laid out by value."""
        lists = self.arrays
        led = lists.boxes[lists.boxes >= 0]
        hold("that a list leads a box of its own", (led[1:] > led[:-1]).all())
        hold("that the values of a list ascend", kernels.check_lists(lists))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in use."""
        return sum(array.nbytes for array in _columns(self.arrays))


def _columns(lists: ListedValues) -> list[npt.NDArray[Any]]:
    return list(lists)


def with_room(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array, or a copy with more room at its end; one of a file, which is read-only, is copied too."""
    if wanted <= len(array) and array.flags.writeable:
        return array
    out = np.empty(wanted if used <= 1 else max(wanted, len(array) + (len(array) >> 1)), array.dtype)
    out[:used] = array[:used]
    return out
