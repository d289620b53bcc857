"""The bounds of a catalog's boxes, by entry: what a box says takes memory, and the width of the schema none.

    array     dtype    shape           meaning
    words     uint32   >= n_words      the entries of all boxes (kernels/engine/boxes.py has their form)
    heads     uint32   n_entries       heads of the entries of a box, while all boxes share them; then words
                                       are ends alone
    starts    uint32   >= n_boxes + 1  where the words of a box begin; none while each has `stride` of them
    bases     int64    d               what narrow ends of an attribute count from
    based     uint8    d               1 where the base was chosen: it stays, and ends too far off are wide

Arrays grow at their ends and are replaced by larger ones when full, as those of the catalog are, so a reader
of one moment goes on reading them. The first box that does not share its heads with the others makes them
all have their own. A base is chosen when an attribute is first bounded, so that the ends of
that load lie in the middle of what 32 bits hold, and is written behind nobody's back: into a copy.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine import boxes_kernels as kernels
from rangecast.engine.boxes import Boxes
from rangecast.engine.boxes_kernels import NARROW, BoxArrays
from rangecast.engine.checks import ascending, hold, shaped
from rangecast.engine.threads import runner
from rangecast.errors import CapacityError
from rangecast.kernels.engine import shared_heads
from rangecast.model.boxes import DenseBoxes, SparseBoxes, from_dense
from rangecast.types.attributes import LAST, MISSING, Codes

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
        if n_attributes > kernels.MOST_ATTRIBUTES:
            raise CapacityError(f"a schema must have at most {kernels.MOST_ATTRIBUTES:,} attributes here")
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
        kernels.count_words(boxes.starts, attributes, lows, highs, self._bases, counts)
        more = int(counts.sum())
        used = self._n_words
        self._check_room(more)
        self._append_starts(counts)
        self._words = with_room(self._words, used, used + more)
        kernels.fill_words(boxes.starts, attributes, lows, highs, self._bases, used, self._words)
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
            kernels.span_dense(boxes.lows, boxes.highs, first, first + CHUNK, *found)
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
            return bool(shared_heads.put_dense(*ends, to, words))

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
        if not len(heads) or not shared_heads.share_heads(*ends, fixed, heads):
            return False
        stride, used = int(shared_heads.count_ends(heads)), self._n_words
        self._check_room(n * stride)
        self._words = with_room(self._words, used, used + n * stride)
        shared_heads.fill_ends(*ends, heads, used, self._words)
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
        shared_heads.interleave_heads(self.arrays(owners), words)
        self._words, self._n_words = words, len(words)
        self._heads, self._stride = _NO_STARTS, stride

    def _choose_bases(self, boxes: SparseBoxes) -> None:
        d = len(self._bases)
        if self._based.all():
            return
        least, largest, firsts = np.full(d, LAST), np.full(d, MISSING), np.zeros(d, np.int64)
        kernels.span_ends(boxes.attributes, boxes.lows, boxes.highs, least, largest, firsts)
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
            hold("that shared heads are of entries", shared_heads.check_heads(arrays.heads, n_attributes))
            hold("that bounds are ends", arrays.stride == shared_heads.count_ends(arrays.heads))
        else:
            hold("that bounds are on attributes", n_attributes > 0 or not n_words)
            whole = kernels.check_last(arrays.words, arrays.starts, int(arrays.stride), n)
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
