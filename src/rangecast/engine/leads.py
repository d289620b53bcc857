"""Lists by leading entry: a path of `auto` for schemas of hundreds of attributes, of which a box bounds few.

Each box stands in the lists of one of its entries, the one that lets the least through, judged by the ends
of all boxes on that attribute. A leading attribute is cut into cells at quantiles of the ends that lead by
it, with a cell of its own for missing values, and a box is listed in every cell that it meets. An event reads
one list per leading attribute; that of missing values, for those that it lacks, is nearly always empty.
Beside the box a list has the box's next best entry, its ends in 32 bits: most candidates end there, since
events lack most attributes. The others are compared with their whole boxes, which are asked for a few
candidates ahead.

    array        dtype    shape              meaning
    attributes   int32    k                  the leading attributes
    cut_starts   int64    k + 1              where the cuts of each begin
    cuts         int64    n_cuts             the least code of each cell but the first two
    starts       int32    n_cuts + 2k + 1    where the list of each cell begins, attribute after attribute
    listed       uint32   (n_listed, 4)      a box, the attribute of its next best entry, or that of the only
                                             one, and the ends of that entry (`squeeze`)
    every        int32    n_every            boxes without an entry

What it takes goes by what is said: 16 bytes per place in a list and two to three places per box, where
bitsets and packed bounds take some 7 bytes per box for every attribute that any box bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rangecast import buffers
from rangecast.engine.answers import Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, flat, hold, shaped, within
from rangecast.engine.parts import Part
from rangecast.kernels.engine import leads as kernels
from rangecast.kernels.engine.leads import LeadLists
from rangecast.memory import check_fits
from rangecast.model.boxes import SparseBoxes, starts_of
from rangecast.types.attributes import MISSING, PRESENT, Codes

FEWEST_ATTRIBUTES = 128
SPARSE = 8
"""Boxes bound so many times fewer attributes than all of them together."""

_LISTED = 3
_PER_CELL = 2
_MOST_CELLS = 1 << 16
_BYTES = 160
_FIRST_ROOM = 4096


def are_sparse(n_boxes: int, n_entries: int, n_used: int) -> bool:
    """Whether boxes bound so few of so many attributes that lists by leading entry are the path for them."""
    return n_used >= FEWEST_ATTRIBUTES and n_used * n_boxes > SPARSE * n_entries


@dataclass(eq=False)
class LeadsPart(Part):
    """Lists by leading entry; see the module head."""

    lists: LeadLists
    identical: bool
    """Whether the numbers of its boxes are their slots."""

    exact = True
    ratio = 16

    def __post_init__(self) -> None:
        sizes = np.diff(self.lists.starts)
        ends = self.lists.cut_starts[1:] + 2 * np.arange(1, len(self.lists.cut_starts))
        firsts = self.lists.cut_starts[:-1] + 2 * np.arange(len(self.lists.cut_starts) - 1)
        self._lacking = (sizes[firsts] > 0).astype(np.uint8)
        # a box stands in one list of an event at most
        self._most = sum(int(sizes[a:b].max(initial=0)) for a, b in zip(firsts, ends, strict=True))

    def check(self, boxes: Boxes, n_slots: int) -> None:
        lists, k, n = self.lists, len(self.lists.attributes), len(self.lists.listed)
        flat(lists, listed=2)
        shaped("leading lists", lists.listed, n, 4)
        hold("that leading lists are of 32 bits", lists.listed.dtype == np.uint32)
        within("leading attributes", lists.attributes, boxes.n_attributes)
        ascending("cuts of leading attributes", lists.cut_starts, len(lists.cuts), k + 1)
        ascending("lists of leading attributes", lists.starts, n, int(lists.cut_starts[-1]) + 2 * k + 1)
        within("second attributes", lists.listed[:, kernels.SECOND], boxes.n_attributes)
        for numbers in (lists.listed[:, kernels.BOX], lists.every):
            within("boxes of leading lists", numbers, min(boxes.n, n_slots) if self.identical else boxes.n)
        hold("that leading lists are by boxes of their own", boxes.n_attributes > 0 or not k)

    def stab(self, codes: Codes, boxes: Boxes) -> Rows:
        m = codes.shape[1]
        offsets = np.zeros(m + 1, np.int64)
        rows = np.empty((min(m, kernels.EVENTS), codes.shape[0]), np.uint32)
        found = buffers.empty(self._most + 1, np.int32)
        room = self._most + len(self.lists.every) + 1
        out = buffers.empty(_FIRST_ROOM + room, np.int32)
        e = 0
        while True:
            e = int(
                kernels.stab(codes, self.lists, self._lacking, boxes.arrays, e, rows, found, offsets, out)
            )
            if e == m:
                return offsets, out[: offsets[m]]
            used = int(offsets[e])
            more = buffers.empty(2 * len(out) + room, np.int32)
            more[:used] = out[:used]
            out = more

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_candidates(codes, self.lists, counts)
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> LeadsPart | None:
        if not self.identical:
            return None
        lists = self.lists
        living = dead[lists.listed[:, kernels.BOX]] == 0
        before = np.concatenate([[0], np.cumsum(living)])
        swept = lists._replace(
            starts=before[lists.starts].astype(np.int32),
            listed=lists.listed[living],
            every=lists.every[dead[lists.every] == 0],
        )
        return LeadsPart(swept, self.identical)

    def stats(self) -> dict[str, int]:
        return {"leading_attributes": len(self.lists.attributes), "listed": len(self.lists.listed)}


def build_leads(boxes: Boxes, numbers: npt.NDArray[np.int64], memory_limit: int | None = None) -> LeadsPart:
    """Lists over the boxes with these numbers."""
    check_fits(
        _BYTES * len(numbers),
        memory_limit,
        f"lists by leading entry over {len(numbers):,} boxes",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )
    entries = boxes.entries(numbers, np.empty(0, np.int32))
    n = len(numbers)
    leads, seconds = np.empty(n, np.int64), np.empty(n, np.int64)
    kernels.choose_leads(entries.starts, _shares(entries), leads, seconds)
    led = np.flatnonzero(leads >= 0)
    entry = leads[led]
    led = led[np.argsort(entries.attributes[entry], kind="stable")]
    entry = leads[led]
    attributes, firsts = np.unique(entries.attributes[entry], return_index=True)
    ends = np.append(firsts, len(led))
    cuts, counts, places = [], [], []
    for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        own = entry[a:b]
        cut, count, rows = _list_interval(entries.lows[own], entries.highs[own])
        cuts.append(cut)
        counts.append(count)
        places.append(rows + a)
    rows = np.concatenate([np.empty(0, np.int64), *places])
    listed = led[rows]
    # who has no other entry is compared by its own again
    second = np.where(seconds[listed] >= 0, seconds[listed], leads[listed])
    by = entries.attributes[second]
    table = np.empty((len(rows), 4), np.uint32)
    table[:, kernels.BOX], table[:, kernels.SECOND] = numbers[listed], by
    bases = boxes.arrays.bases
    kernels.squeeze_ends(entries.lows[second], by, bases, kernels.LOW, table)
    kernels.squeeze_ends(entries.highs[second], by, bases, kernels.HIGH, table)
    held = LeadLists(
        attributes=attributes.astype(np.int32),
        cut_starts=starts_of(np.array([len(cut) for cut in cuts], np.int64)),
        cuts=np.concatenate([np.empty(0, np.int64), *cuts]),
        starts=starts_of(np.concatenate([np.empty(0, np.int64), *counts])).astype(np.int32),
        listed=table,
        every=numbers[leads < 0].astype(np.int32),
    )
    return LeadsPart(held, boxes.are_slots(numbers))


def _shares(entries: SparseBoxes) -> npt.NDArray[np.float32]:
    """How much of its attribute each entry lets through, in ranks among all ends there."""
    order = np.argsort(entries.attributes, kind="stable")
    firsts = np.flatnonzero(np.diff(entries.attributes[order], prepend=-1))
    out = np.empty(len(order), np.float32)
    for a, b in zip(firsts.tolist(), np.append(firsts[1:], len(order)).tolist(), strict=True):
        own = order[a:b]
        lows, highs = entries.lows[own], entries.highs[own]
        points = np.sort(np.concatenate([lows, highs]))
        ranks = np.searchsorted(points, highs, "right") - np.searchsorted(points, lows, "left")
        # an attribute that few boxes bound tells as little of values as few ends do
        out[own] = (ranks + 1) / (len(points) + 2)
    return out


def _list_interval(lows: Codes, highs: Codes) -> tuple[Codes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cuts of cells, how many intervals each cell has, and which, cell after cell.

    >>> [x.tolist() for x in _list_interval(np.array([3, 5]), np.array([3, 9]))]
    [[3], [0, 0, 2], [0, 1]]
    """
    n = len(lows)
    points = np.sort(np.concatenate([lows[lows > PRESENT], highs[highs > MISSING]]))
    wanted = min(max(1, n // _PER_CELL), _MOST_CELLS)
    while True:
        cuts = np.unique(points[:: max(1, len(points) // wanted)])
        # cell 0 holds missing values alone
        firsts = np.where(lows == MISSING, 0, np.searchsorted(cuts, lows, "right") + 1)
        lasts = np.where(highs == MISSING, 0, np.searchsorted(cuts, highs, "right") + 1)
        if wanted == 1 or int((lasts - firsts + 1).sum()) <= _LISTED * n + len(cuts):
            break
        wanted >>= 1
    counts = np.bincount(firsts, minlength=len(cuts) + 3)
    ended = np.bincount(lasts + 1, minlength=len(cuts) + 3)
    counts = np.cumsum(counts - ended)[: len(cuts) + 2]
    starts = starts_of(counts)
    rows = np.empty(int(starts[-1]), np.int64)
    kernels.fill_cells(firsts, lasts, starts[:-1].copy(), rows)
    return cuts, counts, rows
