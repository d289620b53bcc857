"""The boxes of one moment, as layouts read them.

How bounds are kept is known here, in boxes.py and in engine/boxes_kernels.py alone. Whoever lays boxes
out asks for columns; whoever matches hands `arrays` to a kernel, or `table` where a few events must be fast,
and the kernel asks `holds`.

Boxes are kept by entry, and a layout is built attribute by attribute. So when many boxes are asked for a
column, their entries are turned around once, and kept for as long as this object lives: one for each build.
Where all boxes share their heads, a column is read from where it stands.

The structures of papers need the ends of every box on every attribute: `ExpandedBoxes` has them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine import boxes_kernels
from rangecast.engine.boxes_kernels import NARROW, POSITION, BoxArrays, DenseArrays
from rangecast.engine.checks import ascending, hold, shaped, within
from rangecast.engine.threads import runner
from rangecast.errors import CapacityError
from rangecast.language.kernels import SET, ListedValues
from rangecast.model import boxes as sparse
from rangecast.model.boxes import DenseBoxes, SparseBoxes, from_dense, starts_of
from rangecast.model.kernels import counts_up
from rangecast.simd.memory import Views
from rangecast.types.attributes import LAST, MISSING, Codes

FEW = 4096
AT_ONCE = 1 << 18
"""So many boxes are read one by one; for more, all entries are turned around once."""

_BoxNumbers = npt.NDArray[np.int64]
_NO_SLOTS = np.empty(0, np.int32)


class _Turned(NamedTuple):
    """The entries of boxes first..last by attribute: those of j are starts[j] .. starts[j + 1]."""

    first: int
    last: int
    starts: _BoxNumbers
    positions: npt.NDArray[np.int32]
    lows: Codes
    highs: Codes


class Boxes:
    """Boxes by number."""

    lists: ListedValues | None = None
    """The lists that some of them are led by (boxes.py)."""

    def __init__(self, arrays: BoxArrays, lists: ListedValues | None = None) -> None:
        self.arrays: Any = arrays
        self.lists = lists
        self._turned: _Turned | None = None

    @property
    def n(self) -> int:
        """How many boxes there are."""
        return int(self.arrays.n)

    @property
    def n_attributes(self) -> int:
        """How many attributes the schema has."""
        return len(self.arrays.bases)

    @property
    def slots(self) -> npt.NDArray[np.int32]:
        """The slot of each box; empty where it is the box's own number (`are_slots`)."""
        slots: npt.NDArray[np.int32] = self.arrays.slots
        return slots

    @cached_property
    def _views(self) -> Views:
        a = self.arrays
        return Views(a.words, a.heads, a.starts, a.bases, a.slots, np.array([a.n, a.stride], np.int64))

    @cached_property
    def table(self) -> _BoxNumbers:
        """The table from which `view_boxes` makes the arrays again."""
        return self._views.table

    @property
    def stand_in_columns(self) -> bool:
        """Whether a column of some boxes is read without a look at others."""
        return len(self.arrays.heads) > 0

    def again(self) -> Boxes:
        """The same boxes, for one build: what it turns around goes with it."""
        return Boxes(self.arrays, self.lists)

    def column(self, j: int, numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        """The low and the high ends of some boxes on one attribute, MISSING and LAST where it is ignored.

        They may be views, and must not be written to.
        """
        n = len(numbers)
        turned = self._turned
        if n <= FEW or len(self.arrays.heads):
            lows, highs = np.empty(n, np.int64), np.empty(n, np.int64)
            fill = boxes_kernels.fill_shared_column if len(self.arrays.heads) else boxes_kernels.fill_column
            fill(self.arrays, np.ascontiguousarray(numbers), j, lows, highs)
            return lows, highs
        first, last = int(numbers.min()), int(numbers.max()) + 1
        if turned is None or first < turned.first or last > turned.last:
            turned = self._turned = self._turn(first, last)
        own = slice(int(turned.starts[j]), int(turned.starts[j + 1]))
        size = turned.last - turned.first
        lows, highs = turned.lows[own], turned.highs[own]
        if len(lows) < size:
            positions = turned.positions[own]
            whole = np.full(size, MISSING), np.full(size, LAST)
            whole[0][positions], whole[1][positions] = lows, highs
            lows, highs = whole
        if follow_each_other(numbers):
            rows = slice(first - turned.first, last - turned.first)
            return lows[rows], highs[rows]
        places = numbers - turned.first
        return lows[places], highs[places]

    def column_pieces(self, j: int, numbers: _BoxNumbers) -> Iterator[tuple[int, Codes, Codes]]:
        """The same, some boxes at a time, with the place of the first: all codes of an attribute may take as
        much memory as all that is built of them. At once where the boxes have to be turned around anyway."""
        for first, last in self.pieces(len(numbers)):
            yield first, *self.column(j, numbers[first:last])

    def pieces(self, n: int) -> list[tuple[int, int]]:
        """Where to cut n boxes of which a column is read: threads may read the pieces side by side."""
        step = AT_ONCE if self.stand_in_columns else max(n, 1)
        return [(first, min(first + step, n)) for first in range(0, n, step)]

    def distances(self, j: int, numbers: _BoxNumbers, base: int, dtype: Any) -> tuple[Any, Any]:
        """The low and the high ends of boxes that have both on an attribute, unsigned and from a base on."""
        lows, highs = np.empty(len(numbers), dtype), np.empty(len(numbers), dtype)
        if dtype == np.uint32 and not isinstance(self, ExpandedBoxes) and len(self.arrays.heads):
            own = np.ascontiguousarray(numbers)
            if boxes_kernels.fill_distances(self.arrays, own, j, base, lows, highs):
                return lows, highs
        origin = np.array([base]).view(np.uint64)
        for codes, out in zip(self.column(j, numbers), (lows, highs), strict=True):
            np.subtract(codes.view(np.uint64), origin, out=out, casting="unsafe")
        return lows, highs

    def _turn(self, first: int, last: int) -> _Turned:
        counts = np.zeros(self.n_attributes, np.int64)
        boxes_kernels.count_entries(self.arrays, first, last, counts)
        starts = starts_of(counts)
        n = int(starts[-1])
        positions, lows, highs = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        boxes_kernels.turn_entries(self.arrays, first, last, starts[:-1].copy(), positions, lows, highs)
        return _Turned(first, last, starts, positions, lows, highs)

    def columns(self, attributes: Iterable[int], numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        """The same of several attributes, a row each."""
        own = np.array(list(attributes), np.int64)
        lows, highs = (np.empty((len(own), len(numbers)), np.int64) for _ in range(2))
        for k, j in enumerate(own.tolist()):
            lows[k], highs[k] = self.column(j, numbers)
        return lows, highs

    def bounded(self, numbers: _BoxNumbers) -> list[int]:
        """The attributes that some of the boxes bound."""
        if len(self.arrays.heads) and len(numbers):
            shared: list[int] = np.unique(self.arrays.heads & np.uint32(POSITION)).tolist()
            return shared
        marks = np.zeros(self.n_attributes, np.uint8)
        boxes_kernels.mark_bounded(self.arrays, np.ascontiguousarray(numbers), marks)
        found: list[int] = np.flatnonzero(marks).tolist()
        return found

    def bounds_at(self, attributes: npt.NDArray[Any], numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        """The ends of box numbers[i] on attributes[i]."""
        lows, highs = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
        boxes_kernels.find_bounds(self.arrays, attributes, np.ascontiguousarray(numbers), lows, highs)
        return lows, highs

    def entries(self, numbers: _BoxNumbers, owners: npt.NDArray[np.int32]) -> SparseBoxes:
        """Some boxes by their entries, with the owners that they get."""
        numbers = np.ascontiguousarray(numbers, np.int64)
        counts = np.empty(len(numbers), np.int64)
        boxes_kernels.count_own_entries(self.arrays, numbers, counts)
        starts = starts_of(counts)
        n = int(starts[-1])
        attributes, lows, highs = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        boxes_kernels.read_entries(self.arrays, numbers, attributes, lows, highs)
        none = np.empty(0, np.int64)
        return SparseBoxes(owners, starts, attributes, lows, highs, none, np.zeros(1, np.int64), none, none)

    def entry_counts(self, numbers: _BoxNumbers) -> npt.NDArray[np.int64]:
        """How many entries each of some boxes has."""
        counts = np.empty(len(numbers), np.int64)
        boxes_kernels.count_own_entries(self.arrays, np.ascontiguousarray(numbers), counts)
        return counts

    def count_entries(self, numbers: _BoxNumbers) -> int:
        """How many entries some boxes have together."""
        shared = len(self.arrays.heads)
        return shared * len(numbers) if shared else int(self.entry_counts(numbers).sum())

    def slots_of(self, numbers: _BoxNumbers) -> npt.NDArray[np.int32]:
        """The slots of some boxes."""
        slots = self.slots
        return slots[numbers] if len(slots) else numbers.astype(np.int32)

    def are_slots(self, numbers: _BoxNumbers) -> bool:
        """Whether the numbers of these boxes are their slots."""
        return not len(self.slots) or bool((self.slots[numbers] == numbers).all())

    @property
    def lows(self) -> Codes:
        """The low ends (d, >= n) of expanded boxes; others have none."""
        raise AttributeError("boxes are kept by entry: ask for column(), or set `expands` on the index")

    @property
    def highs(self) -> Codes:
        """The high ends (d, >= n) of expanded boxes; others have none."""
        raise AttributeError("boxes are kept by entry: ask for column(), or set `expands` on the index")


class ExpandedBoxes(Boxes):
    """Boxes with the ends of every attribute; what is behind `n` is spare room."""

    def __init__(self, lows: Codes, highs: Codes, slots: npt.NDArray[np.int32], n: int) -> None:
        self.arrays = DenseArrays(lows, highs, slots, n)

    @property
    def n_attributes(self) -> int:
        return len(self.arrays.lows)

    @property
    def lows(self) -> Codes:
        lows: Codes = self.arrays.lows
        return lows

    @property
    def highs(self) -> Codes:
        highs: Codes = self.arrays.highs
        return highs

    @property
    def stand_in_columns(self) -> bool:
        return True

    def again(self) -> ExpandedBoxes:
        return self

    def column(self, j: int, numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        n = len(numbers)
        if follow_each_other(numbers):
            own = slice(int(numbers[0]), int(numbers[0]) + n)
            return self.lows[j, own], self.highs[j, own]
        return self.lows[j, numbers], self.highs[j, numbers]

    def bounded(self, numbers: _BoxNumbers) -> list[int]:
        out = []
        for j in range(self.n_attributes):
            lows, highs = self.column(j, numbers)
            if (lows != MISSING).any() or (highs != LAST).any():
                out.append(j)
        return out

    def bounds_at(self, attributes: npt.NDArray[Any], numbers: _BoxNumbers) -> tuple[Codes, Codes]:
        return self.lows[attributes, numbers], self.highs[attributes, numbers]

    def entries(self, numbers: _BoxNumbers, owners: npt.NDArray[np.int32]) -> SparseBoxes:
        return from_dense(DenseBoxes(self.lows[:, numbers], self.highs[:, numbers], owners))


def follow_each_other(numbers: npt.NDArray[Any]) -> bool:
    """Whether each number is one more than the one before it.

    >>> follow_each_other(np.array([4, 5, 6])), follow_each_other(np.array([4, 6, 5, 7]))
    (True, False)
    """
    n = len(numbers)
    if not n or int(numbers[-1]) - int(numbers[0]) != n - 1:
        return False
    return bool(counts_up(numbers))


def grown(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array, or a copy with more room along its last axis, so that `wanted` entries fit."""
    capacity = array.shape[-1]
    if wanted <= capacity:
        return array
    # the first load gets exactly its size: most indexes are loaded once
    room = wanted if used == 0 else max(wanted, capacity + (capacity >> 1), 64)
    out = np.empty((*array.shape[:-1], room), array.dtype)
    out[..., :used] = array[..., :used]
    return out


# The bounds of a catalog's boxes, by entry: what a box says takes memory, and the width of the schema none.
#
#     array     dtype    shape           meaning
#     words     uint32   >= n_words      the entries of all boxes (engine/boxes_kernels.py has their form)
#     heads     uint32   n_entries       heads of the entries of a box, while all boxes share them; then words
#                                        are ends alone
#     starts    uint32   >= n_boxes + 1  where the words of a box begin; none while each has `stride` of them
#     bases     int64    d               what narrow ends of an attribute count from
#     based     uint8    d               1 where the base was chosen: it stays, and ends too far off are wide
#
# Arrays grow at their ends and are replaced by larger ones when full, as those of the catalog are, so a
# reader of one moment goes on reading them. The first box that does not share its heads with the others makes
# them all have their own. A base is chosen when an attribute is first bounded, so that the ends of that load
# lie in the middle of what 32 bits hold, and is written behind nobody's back: into a copy.

MOST_WORDS = 2**32 - 1
CHUNK = 1 << 17
_NO_STARTS = np.empty(0, np.uint32)


class EntryArrays(NamedTuple):
    """What a file holds of them."""

    words: npt.NDArray[np.uint32]
    heads: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.uint32]
    bases: npt.NDArray[np.int64]
    based: npt.NDArray[np.uint8]
    stride: int
    n: int


class BoxEntries:
    """Boxes that are added and never changed."""

    threads = 1
    """How many read a large number of boxes that are added."""

    def __init__(self, n_attributes: int) -> None:
        if n_attributes > boxes_kernels.MOST_ATTRIBUTES:
            raise CapacityError(
                f"a schema must have at most {boxes_kernels.MOST_ATTRIBUTES:,} attributes here"
            )
        self.n = 0
        self._n_words = 0
        self._stride = 0
        self._words: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self._heads: npt.NDArray[np.uint32] = _NO_STARTS
        self._starts: npt.NDArray[np.uint32] = _NO_STARTS
        self._bases: npt.NDArray[np.int64] = np.zeros(n_attributes, np.int64)
        self._based: npt.NDArray[np.uint8] = np.zeros(n_attributes, np.uint8)

    def draft(self) -> BoxEntries:
        """The same, to be added to while readers go on with this one."""
        return copy.copy(self)

    def add(self, boxes: SparseBoxes) -> None:
        """Append boxes without sets."""
        n, attributes, lows, highs = len(boxes.starts) - 1, boxes.attributes, boxes.lows, boxes.highs
        if not n:
            return
        self._choose_bases(boxes)
        if self.n == 0 or len(self._heads):
            if self._share_heads(boxes):
                return
            self._give_heads()
        counts = np.empty(n, np.int64)
        boxes_kernels.count_words(boxes.starts, attributes, lows, highs, self._bases, counts)
        more = int(counts.sum())
        used = self._n_words
        self._check_room(more)
        self._append_starts(counts)
        self._words = with_room(self._words, used, used + more)
        boxes_kernels.fill_words(boxes.starts, attributes, lows, highs, self._bases, used, self._words)
        self._n_words = used + more
        self.n += n

    def add_dense(self, boxes: DenseBoxes) -> None:
        """Append boxes with one interval per attribute, some at a time: by entry they take twice the room."""
        n = boxes.lows.shape[1]
        if not n:
            return
        self._take_bases(*self._span_dense(boxes))

        def chunk(first: int) -> SparseBoxes:
            own = slice(first, first + CHUNK)
            lows, highs = np.ascontiguousarray(boxes.lows[:, own]), np.ascontiguousarray(boxes.highs[:, own])
            return from_dense(DenseBoxes(lows, highs, boxes.owners[own]))

        for first in range(0, n, CHUNK):
            if first == CHUNK:
                # exactly, where all are alike
                wanted = self._n_words + -(-(n - CHUNK) * self._n_words // self.n)
                self._words = with_room(self._words, self._n_words, min(wanted, MOST_WORDS))
                if self._add_alike(boxes):
                    break
            self.add(chunk(first))

    def _span_dense(self, boxes: DenseBoxes) -> tuple[Codes, Codes, Codes]:
        """The least, the largest and the first end of each attribute."""
        d = len(self._bases)

        def look(first: int) -> tuple[Codes, Codes, Codes]:
            found = np.full(d, LAST), np.full(d, MISSING), np.zeros(d, np.int64)
            boxes_kernels.span_dense(boxes.lows, boxes.highs, first, first + CHUNK, *found)
            return found

        seen = list(runner(self.threads)(look, range(0, boxes.lows.shape[1], CHUNK)))
        least, largest, firsts = (np.stack(column) for column in zip(*seen, strict=True))
        # of the first chunk that has any
        at = np.argmax(least <= largest, axis=0)
        return least.min(axis=0), largest.max(axis=0), firsts[at, np.arange(d)]

    def _add_alike(self, boxes: DenseBoxes) -> bool:
        """Append the chunks behind the first, if all have the heads of those before: then each knows its
        place, and several threads may put them there."""
        stride, used, words, n = self._stride, self._n_words, self._words, boxes.lows.shape[1]
        if not len(self._heads):
            return False
        self._check_room((n - CHUNK) * stride)

        def put(first: int) -> bool:
            last, to = min(first + CHUNK, n), used + (first - CHUNK) * stride
            ends = boxes.lows, boxes.highs, first, last, self._bases, self._heads
            return bool(boxes_kernels.put_dense(*ends, to, words))

        # what lies behind the words in use is nobody's, so those that were put there in vain do no harm, once
        # no thread writes any more: all are waited for, also where one has said no
        if not all(list(runner(self.threads)(put, range(CHUNK, n, CHUNK)))):
            return False
        self._n_words = used + (n - CHUNK) * stride
        self.n += n - CHUNK
        return True

    def _check_room(self, more: int) -> None:
        wanted = self._n_words + more
        if wanted > MOST_WORDS:
            raise CapacityError(
                f"the bounds of an index take at most {MOST_WORDS:,} words of 32 bits, got {wanted:,}; "
                "split the set"
            )

    def _share_heads(self, boxes: SparseBoxes) -> bool:
        """Append the ends of boxes if they have the heads of those before; the first, if they share any."""
        n, fixed = len(boxes.starts) - 1, self.n > 0
        ends = boxes.starts, boxes.attributes, boxes.lows, boxes.highs, self._bases
        heads = self._heads if fixed else np.zeros(int(boxes.starts[1] - boxes.starts[0]), np.uint32)
        if not len(heads) or not boxes_kernels.share_heads(*ends, fixed, heads):
            return False
        stride, used = int(boxes_kernels.count_ends(heads)), self._n_words
        self._check_room(n * stride)
        self._words = with_room(self._words, used, used + n * stride)
        boxes_kernels.fill_ends(*ends, heads, used, self._words)
        self._heads, self._stride = heads, stride
        self._n_words = used + n * stride
        self.n += n
        return True

    def _give_heads(self) -> None:
        """Let each box have its own heads, in arrays of their own: readers go on with the others."""
        if not len(self._heads):
            return
        owners = np.empty(0, np.int32)
        stride = self._stride + len(self._heads)
        words = np.empty(self.n * stride, np.uint32)
        boxes_kernels.interleave_heads(self.arrays(owners), words)
        self._words, self._n_words = words, len(words)
        self._heads, self._stride = _NO_STARTS, stride

    def _choose_bases(self, boxes: SparseBoxes) -> None:
        d = len(self._bases)
        if self._based.all():
            return
        least, largest, firsts = np.full(d, LAST), np.full(d, MISSING), np.zeros(d, np.int64)
        boxes_kernels.span_ends(boxes.attributes, boxes.lows, boxes.highs, least, largest, firsts)
        self._take_bases(least, largest, firsts)

    def _take_bases(self, least: Codes, largest: Codes, firsts: Codes) -> None:
        """Choose the base of each attribute that is bounded for the first time, by the ends of a load."""
        fresh = np.flatnonzero((least <= largest) & (self._based == 0))
        if not len(fresh):
            return
        bases, based = self._bases.copy(), self._based.copy()
        for j in fresh.tolist():
            low, span = int(least[j]), int(largest[j]) - int(least[j])
            if span > NARROW:
                low, span = int(firsts[j]), 0
            bases[j] = min(max(low - (NARROW - span) // 2, MISSING), LAST - NARROW)
        based[fresh] = 1
        self._bases, self._based = bases, based

    def _append_starts(self, counts: npt.NDArray[np.int64]) -> None:
        n, more = self.n, len(counts)
        if not more:
            return
        alike = bool((counts == counts[0]).all())
        if not len(self._starts):
            if alike and (n == 0 or int(counts[0]) == self._stride):
                self._stride = int(counts[0])
                return
            self._starts = (np.arange(n + 1) * self._stride).astype(np.uint32)
        self._starts = with_room(self._starts, n + 1, n + 1 + more)
        self._starts[n + 1 : n + 1 + more] = self._n_words + np.cumsum(counts)

    def arrays(self, slots: npt.NDArray[np.int32]) -> BoxArrays:
        """What kernels take, with the slots of the boxes."""
        return BoxArrays(self._words, self._heads, self._starts, self._bases, slots, self.n, self._stride)

    def read(self, numbers: npt.NDArray[np.int64], owners: npt.NDArray[np.int32]) -> SparseBoxes:
        """Some boxes by their entries, with the owners that they get."""
        return Boxes(self.arrays(np.empty(0, np.int32))).entries(numbers, owners)

    def sizes(self) -> dict[str, int]:
        """Bytes of each array in use."""
        starts = 4 * (self.n + 1) if len(self._starts) else 0
        return {"bounds": 4 * self._n_words, "bound_starts": starts, "bases": 9 * len(self._bases)}

    def stored(self) -> EntryArrays:
        """What a file holds."""
        starts = self._starts[: self.n + 1] if len(self._starts) else _NO_STARTS
        words = self._words[: self._n_words]
        return EntryArrays(words, self._heads, starts, self._bases, self._based, self._stride, self.n)

    @classmethod
    def take(cls, arrays: EntryArrays, n_attributes: int) -> BoxEntries:
        """Those of a file; StorageError unless kernels stay within them."""
        out = cls(n_attributes)
        n, n_words = int(arrays.n), len(arrays.words)
        hold("that boxes are counted", n >= 0 and arrays.stride >= 0)
        hold("that words are of 32 bits", arrays.words.dtype == arrays.starts.dtype == np.uint32)
        shaped("bases of attributes", arrays.bases, n_attributes)
        shaped("chosen bases of attributes", arrays.based, n_attributes)
        used = n * int(arrays.stride)
        if len(arrays.starts):
            ascending("starts of bounds", arrays.starts, n_words, n + 1)
            used = int(arrays.starts[-1]) if int(arrays.starts[0]) == 0 else -1
        # a word that no box has would be taken for one of the next box that is added
        hold("that bounds are of boxes", used == n_words)
        hold("that bases leave room", n_attributes == 0 or int(arrays.bases.max()) <= LAST - NARROW)
        if len(arrays.heads):
            hold(
                "that shared heads are of 32 bits", arrays.heads.dtype == np.uint32 and not len(arrays.starts)
            )
            hold("that shared heads are of entries", boxes_kernels.check_heads(arrays.heads, n_attributes))
            hold("that bounds are ends", arrays.stride == boxes_kernels.count_ends(arrays.heads))
        else:
            hold("that bounds are on attributes", n_attributes > 0 or not n_words)
            whole = boxes_kernels.check_last(arrays.words, arrays.starts, int(arrays.stride), n)
            hold("that bounds are whole entries", whole)
        out._heads = arrays.heads
        out._words, out._starts, out._stride = arrays.words, arrays.starts, int(arrays.stride)
        out._bases, out._based, out.n, out._n_words = arrays.bases, arrays.based, n, n_words
        return out


def with_room(array: npt.NDArray[np.uint32], used: int, wanted: int) -> npt.NDArray[np.uint32]:
    """The array, or a copy with more room at its end."""
    if wanted <= len(array):
        return array
    out = np.empty(wanted if used <= 1 else max(wanted, len(array) + (len(array) >> 1), 64), np.uint32)
    out[:used] = array[:used]
    return out


# Long lists of values: IN of hundreds or thousands, kept by value and laid out without a box for each.
#
# A set of LEAST spans or more, nearly all of them single values, is a list. Its box stays one, whose entry
# has the hull of the list, and layouts that know intervals alone find too much of it. So a box may be *led*
# by its list: it stands in lists by value (engine/layouts/lists.py), once for each of its values, with its
# other bounds packed beside it, and what is found there needs no check of the list. Memory per value is 4
# bytes here and 4 there, where a box for each value took 43.
#
#     array    dtype    shape       meaning
#     sets     int64    n_lists     ascending: which set (catalog.py) is kept here; it has no spans there
#     starts   int64    n_lists+1   where the words of a list begin
#     bases    int64    n_lists     its least value
#     wide     uint8    n_lists     1 where a value takes two words, the low one first
#     on       int32    n_lists     the attribute that it is of
#     boxes    int32    n_lists     the box that the list leads, in the catalog's numbers, or -1
#     words    uint32   n_words     the values, ascending, less the base
#
# The arrays grow at their ends and are replaced by larger ones when full, as those of the catalog are.
#
# Which boxes are led. A list costs an event a comparison for each box whose list holds its value. A box with
# an equality on another attribute may be cheaper by that: it goes with its hull where its equality takes it,
# and what is found is looked up in the list. Both are estimated from what is loaded together (`choose_led`).

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
    boxes_kernels.measure_sets(boxes, LEAST, WIDEST, sizes)
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
        boxes_kernels.describe_lists(boxes, listing.sets, bases, wide)
        n, used = self._used[0], self._used[-1]
        ends = used + np.cumsum(listing.sizes * (1 + wide.astype(np.int64)))
        led = np.where(listing.pieces >= 0, listing.pieces + first_box, -1).astype(np.int32)
        on = boxes.attributes[boxes.sets[listing.sets]] & ~np.int32(SET)
        more: list[npt.NDArray[Any]] = [listing.sets + first_set, ends, bases, wide, on, led]
        arrays: list[npt.NDArray[Any]] = []
        for array, count, new in zip(_columns(self._arrays), self._used, more, strict=False):
            arrays.append(with_writable_room(array, count, count + len(new)))
            arrays[-1][count : count + len(new)] = new
        wanted = int(ends[-1]) if len(ends) else used
        arrays.append(with_writable_room(self._arrays.words, used, wanted))
        boxes_kernels.fill_lists(boxes, listing.sets, listing.sizes, bases, wide, used, arrays[-1])
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
        boxes_kernels.count_spans(lists, chosen, counts)
        sizes = np.diff(boxes.set_starts)
        sizes[held] = counts
        starts = sparse.starts_of(sizes)
        lows, highs = np.empty(int(starts[-1]), np.int64), np.empty(int(starts[-1]), np.int64)
        boxes_kernels.fill_spans(lists, chosen, starts[held], lows, highs)
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
        hold("that the values of a list ascend", boxes_kernels.check_lists(lists))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in use."""
        return sum(array.nbytes for array in _columns(self.arrays))


def _columns(lists: ListedValues) -> list[npt.NDArray[Any]]:
    return list(lists)


def with_writable_room(array: npt.NDArray[Any], used: int, wanted: int) -> npt.NDArray[Any]:
    """The array, or a copy with more room at its end; one of a file, which is read-only, is copied too."""
    if wanted <= len(array) and array.flags.writeable:
        return array
    out = np.empty(wanted if used <= 1 else max(wanted, len(array) + (len(array) >> 1)), array.dtype)
    out[:used] = array[:used]
    return out
