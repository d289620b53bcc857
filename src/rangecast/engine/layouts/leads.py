"""Lists by leading entry: a path of `auto` for schemas of hundreds of attributes, of which a box bounds few.

Each box stands in the lists of one of its entries, the one that lets the least through, judged by the ends
of all boxes on that attribute. A leading attribute is cut into cells, with one of its own for missing values,
and a box is listed in every cell that it meets. An event reads one list per leading attribute; that of
missing values, for those that it lacks, is nearly always empty. A list has the entries of its boxes as well,
one word of 32 bits each, the next best one beside the box, since most candidates end there. So a list is read
from front to back and nothing else is. An entry in a word tells of nearly every value whether it holds it;
where it does not, or where its other entries would be written into many lists, the box is asked.

    array        dtype    shape              meaning
    attributes   int32    k                  the leading attributes, ascending
    cut_starts   int64    k + 1              where the cuts of each begin
    cuts         int64    n_cuts             the least code of each cell but the first two
    starts       int64    n_cuts + 2k + 1    where the list of each cell begins, attribute after attribute
    records      uint32   n_words            the lists; engine/layouts/leads_kernels.py has the words
    every        int32    n_every            boxes without an entry
    bounded      int32    n_bounded          the attributes that boxes bound, ascending
    origins      int64    d                  by attribute, the code at which its marks begin
    scales       uint8    d                  the logarithm of how many codes a mark is, and INEXACT unless
                                             each end of an entry has a mark of its own
    form         int64    3                  how many bits of a word are a length, a mark, the number of a box

Cells are as wide as each other where that leaves no crowds, and then an event computes its cell; otherwise
they are cut at quantiles and searched. EVENTS events at a time are turned into rows, attribute by attribute
or by what they say where they are kept so (model/wide_events.py), and the lists of the next one are asked
for while those of this one are read.

Tried at a million boxes on 500 attributes, six predicates at most, 50 values and 197 matches per event, in
turns, beside 1 for what is here, 8.1 us and 73 bytes per box with the catalog:

    entries of two or three words with ends of 32 bits, box after box: 91 bytes             2.0
    entries of one word, box after box                                                      1.45
    the same with heads in front, and a choice where an entry is not sure                   1.4
    the same with a number instead of that choice                                           1.2
    no end of the loop over entries that depends on them, so that LLVM makes vectors        1.15
    boxes in the order of their lists, not by how many entries they have                    1.05
    one box per cell and not 2: 87 bytes                                                    1.0
    8 words of a box in its lists beside the first and not 16: 72 bytes                     1.0

And of the form before, of the first row, beside 1 for that:

    boxes read for all entries but the next best one, cuts searched one event at a time     3.0
    8 boxes per cell and not 2                                                              1.4
    events in columns and not by what they say                                              1.2
    the lists of the next event asked for one by one, between those of this one             1.0

Its size follows the number of predicates: some 20 bytes per place in a list and 1.5 places per box, where
bitsets and packed bounds take some 7 bytes per box for every attribute that any box bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast import memory
from rangecast.engine import small_kernels
from rangecast.engine.answers import Request, Rows
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, flat, hold, within
from rangecast.engine.layouts import leads_kernels
from rangecast.engine.layouts import leads_kernels as kernels
from rangecast.engine.layouts.leads_kernels import CellFinder, LeadLists, Room
from rangecast.engine.parts import Part
from rangecast.memory import check_fits, check_numbered
from rangecast.model.boxes import SparseBoxes, starts_of
from rangecast.model.wide_events import EventEntries
from rangecast.simd.memory import Views
from rangecast.types.attributes import LAST, MISSING, PRESENT, Codes

if TYPE_CHECKING:
    from rangecast.engine.planner import Left

FEWEST_ATTRIBUTES = 128
SPARSE = 8
"""Boxes bound so many times fewer attributes than all of them together."""

_LISTED = 3
_PER_CELL = 2
_MOST_CELLS = 1 << 16
_CROWDED = 2.0
_AGAIN = 16
"""Words that the entries of a box may take in all of its lists, beside the first one of each."""

_BYTES = 200
_FIRST_ROOM = 4096
_ROOM_OF_ONE = 2048
_SHORTEST = 2
"""Words of a box in a list at least."""

_MOST_ATTRIBUTES = 1 << 22
_MOST_BOXES = 1 << 30
_MARK_BITS = 15
_FEWEST_LENGTH_BITS, _LENGTH_BITS = 5, 10
_OUTLIERS = 100
"""One end among so many may lie where marks do not tell, on either side."""


def are_sparse(n_boxes: int, n_entries: int, n_used: int) -> bool:
    """Whether boxes bound so few of so many attributes that lists by leading entry are the path for them."""
    # words have no room for numbers beyond these
    fit = n_used <= _MOST_ATTRIBUTES and n_boxes <= _MOST_BOXES
    return fit and n_used >= FEWEST_ATTRIBUTES and n_used * n_boxes > SPARSE * n_entries


@dataclass(eq=False)
class LeadsPart(Part):
    """Lists by leading entry; see the module head."""

    lists: LeadLists
    identical: bool
    """Whether the numbers of its boxes are their slots."""

    exact = True
    ratio = 16

    # not before they are asked for: what came from a file is checked first
    @cached_property
    def _finder(self) -> CellFinder:
        lists = self.lists
        k = len(lists.attributes)
        leads = np.full(int(lists.bounded[-1]) + 1 if len(lists.bounded) else 0, -1, np.int32)
        leads[lists.attributes] = np.arange(k)
        firsts = lists.cut_starts[:-1] + 2 * np.arange(k)
        lacking = (lists.starts[firsts + 1] > lists.starts[firsts]).astype(np.uint8)
        widths = _widths(lists.cuts, lists.cut_starts)
        bits = int(lists.form[0])
        reaches, sure = np.empty(1 << bits, np.uint64), np.empty(2 << bits, np.uint64)
        leads_kernels.fill_lengths(bits, reaches, sure)
        return CellFinder(leads, lacking, np.flatnonzero(lacking).astype(np.int32), widths, reaches, sure)

    @cached_property
    def _views(self) -> Views:
        # as engine/small_kernels.py reads them
        return Views(*self.lists, *self._finder)

    @cached_property
    def _most(self) -> int:
        """How many boxes the lists of an event have at most."""
        lists = self.lists
        firsts = lists.cut_starts[:-1] + 2 * np.arange(len(lists.attributes))
        longest = np.maximum.reduceat(np.diff(lists.starts), firsts) if len(firsts) else firsts
        return int(longest.sum()) // _SHORTEST

    def check(self, boxes: Boxes, n_slots: int) -> None:
        lists, k = self.lists, len(self.lists.attributes)
        flat(lists)
        hold("that records are of 32 bits", lists.records.dtype == np.uint32)
        hold("that marks begin at codes", lists.origins.dtype == np.int64 and lists.form.dtype == np.int64)
        hold("that scales of marks are of 8 bits", lists.scales.dtype == np.uint8)
        hold("that marks are of 64 bits at most", (lists.scales & (leads_kernels.INEXACT - 1) < 64).all())
        for name, attributes in (("leading", lists.attributes), ("bounded", lists.bounded)):
            within(f"{name} attributes", attributes, boxes.n_attributes)
            hold(f"that {name} attributes ascend", (np.diff(attributes) > 0).all())
        hold("that leading attributes are bounded", np.isin(lists.attributes, lists.bounded).all())
        ascending("cuts of leading attributes", lists.cut_starts, len(lists.cuts), k + 1)
        n_cells = int(lists.cut_starts[-1]) + 2 * k
        ascending("lists of leading attributes", lists.starts, len(lists.records), n_cells + 1)
        n = min(boxes.n, n_slots) if self.identical else boxes.n
        hold("that words of records have three fields", _is_form(lists.form))
        n_scaled = min(len(lists.origins), len(lists.scales))
        hold("that bounded attributes have marks", not len(lists.bounded) or lists.bounded[-1] < n_scaled)
        whole = leads_kernels.check_lists(lists, n, min(n_scaled, boxes.n_attributes))
        hold("that leading lists are whole records of boxes", whole)
        within("boxes without an entry", lists.every, n)

    def stab_one(self, codes: Any, boxes: Boxes) -> npt.NDArray[np.int32] | None:
        out = np.empty(_ROOM_OF_ONE, np.int32)
        if type(codes) is EventEntries:
            n: int = small_kernels.stab_leads_entries(
                self._views.table, boxes.table, codes.starts, codes.attributes, codes.codes, out
            )
        else:
            n = small_kernels.stab_leads(self._views.table, boxes.table, codes, out)
        return None if n < 0 else out[:n]

    def stab(self, request: Request) -> Rows:
        events = request.events
        if isinstance(events, EventEntries):
            find = partial(kernels.stab_entries, events.starts, events.attributes, events.codes)
        else:
            find = partial(kernels.stab, events)
        return self._stab(find, events.shape[1], request.boxes)

    def _stab(self, find: Callable[..., int], m: int, boxes: Boxes) -> Rows:
        """Rows of m events, of which `find` writes as many as there is room for."""
        k = len(self.lists.attributes)
        n = min(m, kernels.EVENTS)
        offsets = np.zeros(m + 1, np.int64)
        # an odd number of cache lines, so that the rows of events do not fall on the same places of a cache
        wide = (boxes.n_attributes // 16 | 1) + 2
        room = Room(
            rows=np.empty((n, 16 * wide), np.uint64),
            codes=np.empty((n, 16 * wide), np.int64),
            cells=np.empty((n, k), np.int64),
            counts=np.empty(n, np.int64),
            found=memory.empty(self._most + 1, np.int64),
            heads=memory.empty(self._most + 1, np.uint32),
            order=memory.empty(self._most + 1, np.int32),
            ends=np.empty(kernels.NUMBERS, np.int64),
            left=memory.empty(self._most + 1, np.int64),
        )
        most = self._most + len(self.lists.every) + 1
        out = memory.empty(_FIRST_ROOM + most, np.int32)
        e = 0
        while True:
            e = int(find(self.lists, self._finder, boxes.arrays, e, room, offsets, out))
            if e == m:
                return offsets, out[: offsets[m]]
            used = int(offsets[e])
            # as much as the events before took, and a little more
            wanted = max(2 * len(out), int(1.1 * used * m / e) if e else 0)
            more = memory.empty(wanted + most, np.int32)
            more[:used] = out[:used]
            out = more

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        counts = np.empty(codes.shape[1], np.int64)
        kernels.count_candidates(codes, self.lists, self._finder, counts)
        return counts

    def without(self, dead: npt.NDArray[np.uint8]) -> LeadsPart | None:
        if not self.identical:
            return None
        lists = self.lists
        starts, records = np.empty_like(lists.starts), np.empty_like(lists.records)
        kept = leads_kernels.sweep_lists(lists, dead, starts, records)
        swept = lists._replace(
            starts=starts, records=records[:kept].copy(), every=lists.every[dead[lists.every] == 0]
        )
        return LeadsPart(swept, self.identical)

    def stats(self) -> dict[str, int]:
        return {"leading_attributes": len(self.lists.attributes), "record_words": len(self.lists.records)}


def claim_leads(left: Left) -> None:
    """All boxes, if they bound so few of so many attributes that a list of each attribute is short."""
    own = left.numbers
    if are_sparse(left.n, left.boxes.count_entries(own), len(left.used)):
        left.claim("leads", (), own, partial(build_leads, left.boxes, own, left.memory_limit))


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
    n_attributes = int(entries.attributes.max(initial=-1)) + 1
    form = _form_of(n_attributes, int(numbers.max(initial=0)) + 1)
    shares, origins, scales = _weigh(entries, n_attributes, (1 << int(form[1])) - 1)
    leads_kernels.choose_leads(entries.starts, shares, leads, seconds)
    led = np.flatnonzero(leads >= 0)
    entry = leads[led]
    led = led[np.argsort(entries.attributes[entry], kind="stable")]
    entry = leads[led]
    attributes, firsts = np.unique(entries.attributes[entry], return_index=True)
    ends = np.append(firsts, len(led))
    cuts, in_cells, places = [], [], []
    for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        own = entry[a:b]
        cut, count, rows = _list_interval(entries.lows[own], entries.highs[own])
        cuts.append(cut)
        in_cells.append(count)
        places.append(rows + a)
    listed = led[np.concatenate([np.empty(0, np.int64), *places])]
    said = entries.starts, entries.attributes, entries.lows, entries.highs
    counts, refers = np.empty(n, np.int64), np.empty(n, np.bool_)
    n_places = np.bincount(listed, minlength=n)
    most = (1 << int(31 - form[2])) - 1
    leads_kernels.size_records(entries.starts, leads, n_places, _AGAIN, most, counts, refers)
    list_starts = starts_of(np.concatenate([np.empty(0, np.int64), *in_cells]))
    held = LeadLists(
        attributes=attributes.astype(np.int32),
        cut_starts=starts_of(np.array([len(cut) for cut in cuts], np.int64)),
        cuts=np.concatenate([np.empty(0, np.int64), *cuts]),
        starts=np.empty_like(list_starts),
        records=np.empty(0, np.uint32),
        every=numbers[leads < 0].astype(np.int32),
        bounded=np.unique(entries.attributes).astype(np.int32),
        origins=origins,
        scales=scales,
        form=form,
    )
    leads_kernels.find_inexact(said, origins, (1 << int(form[1])) - 1, scales)
    fill = partial(
        leads_kernels.fill_lists, listed, list_starts, numbers, said, leads, seconds, counts, refers
    )
    n_words = int(fill(held))
    check_numbered(n_words, "words of leading lists", "split the set")
    held = held._replace(records=np.empty(n_words, np.uint32))
    fill(held)
    return LeadsPart(held, boxes.are_slots(numbers))


def _form_of(n_attributes: int, n_boxes: int) -> npt.NDArray[np.int64]:
    """How many bits of a word are a length, a mark and the number of a box.

    >>> _form_of(500, 1_000_000).tolist(), _form_of(30_000, 5).tolist()
    ([9, 14, 20], [6, 11, 3])
    """
    left = 32 - max(n_attributes - 1, 1).bit_length()
    length = min(max(_FEWEST_LENGTH_BITS, left * 2 // 5), _LENGTH_BITS)
    return np.array([length, min(left - length, _MARK_BITS), max(n_boxes - 1, 1).bit_length()], np.int64)


def _is_form(form: npt.NDArray[np.int64]) -> bool:
    """Whether kernels can read words by it."""
    if len(form) != 3:
        return False
    length, mark, box = form.tolist()
    fits = _FEWEST_LENGTH_BITS <= length <= _LENGTH_BITS and 1 < mark <= _MARK_BITS and 0 < box <= 30
    return bool(fits)


def _weigh(
    entries: SparseBoxes, n_attributes: int, last: int
) -> tuple[npt.NDArray[np.float32], Codes, npt.NDArray[np.uint8]]:
    """How much of its attribute each entry lets through, in ranks among all ends there; and where the marks
    of each attribute begin and how wide they are."""
    order = np.argsort(entries.attributes, kind="stable")
    firsts = np.flatnonzero(np.diff(entries.attributes[order], prepend=-1))
    shares = np.empty(len(order), np.float32)
    origins, scales = np.zeros(n_attributes, np.int64), np.zeros(n_attributes, np.uint8)
    for a, b in zip(firsts.tolist(), np.append(firsts[1:], len(order)).tolist(), strict=True):
        own = order[a:b]
        lows, highs = entries.lows[own], entries.highs[own]
        points = np.sort(np.concatenate([lows, highs]))
        ranks = np.searchsorted(points, highs, "right") - np.searchsorted(points, lows, "left")
        # an attribute that few boxes bound tells as little of values as few ends do
        shares[own] = (ranks + 1) / (len(points) + 2)
        j = entries.attributes[own[0]]
        origins[j], scales[j] = _place_marks(points, last)
    return shares, origins, scales


def _place_marks(points: Codes, last: int) -> tuple[int, int]:
    """Where the marks of an attribute with these ends begin, and the logarithm of how many codes each is.

    >>> _place_marks(np.array([3, 5, 9]), 1023), _place_marks(np.array([*range(500), 10**12]), 1023)
    ((3, 0), (5, 0))
    """
    inner = points[np.searchsorted(points, PRESENT, "right") : np.searchsorted(points, LAST)]
    if not len(inner):
        return 0, 0
    few = len(inner) // _OUTLIERS
    tries = []
    for first, end in ((inner[0], inner[-1]), (inner[few], inner[-1 - few])):
        span = int(end) - int(first)
        tries.append((int(first), max(0, (span // (last - 2)).bit_length())))
    # most ends stand close together: marks tell of those
    return tries[1] if tries[1][1] + 3 <= tries[0][1] else tries[0]


def _widths(cuts: Codes, cut_starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Per leading attribute the logarithm of the distance between its cuts, -1 unless it is the same for all
    and a power of two.

    >>> _widths(np.array([3, 7, 11, 0, 5, 8]), np.array([0, 3, 4, 6])).tolist()
    [2, 0, -1]
    """
    counts = np.diff(cut_starts)
    out = np.where(counts > 1, -1, 0)
    some = np.flatnonzero(counts > 1)
    if len(some):
        # as unsigned: the difference of two codes may be none
        steps = np.diff(cuts.view(np.uint64))
        between = np.unique(cut_starts[1:-1])
        inner = np.delete(steps, between[(between > 0) & (between < len(cuts))] - 1)
        firsts = np.concatenate([[0], np.cumsum(counts[some] - 1)[:-1]])
        least, largest = np.minimum.reduceat(inner, firsts), np.maximum.reduceat(inner, firsts)
        alike = (least == largest) & (np.bitwise_count(least) == 1)
        out[some[alike]] = np.bitwise_count(least[alike] - np.uint64(1))
    return out


def _list_interval(lows: Codes, highs: Codes) -> tuple[Codes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cuts of cells, how many intervals each cell has, and which, cell after cell.

    >>> [x.tolist() for x in _list_interval(np.array([3, 5]), np.array([3, 9]))]
    [[3], [0, 0, 2], [0, 1]]
    """
    points = np.sort(np.concatenate([lows[lows > PRESENT], highs[highs > MISSING]]))
    wanted = min(max(1, len(lows) // _PER_CELL), _MOST_CELLS)
    best = _enter(_cut_evenly, points, wanted, lows, highs)
    if len(points) and best.crowd > _CROWDED * _PER_CELL:
        other = _enter(_cut_by_rank, points, wanted, lows, highs)
        if best.crowd > _CROWDED * other.crowd:
            best = other
    starts = starts_of(best.counts)
    rows = np.empty(int(starts[-1]), np.int64)
    leads_kernels.fill_cells(best.firsts, best.lasts, starts[:-1].copy(), rows)
    return best.cuts, best.counts, rows


class _Entered(NamedTuple):
    """Intervals in cells."""

    cuts: Codes
    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    crowd: float
    """How many stand in the cell of one of them."""


def _enter(
    cut: Callable[[Codes, int], Codes], points: Codes, wanted: int, lows: Codes, highs: Codes
) -> _Entered:
    """The first and last cell of each interval, with so few cells that they stand in some of them only."""
    while True:
        cuts = cut(points, wanted)
        # cell 0 holds missing values alone
        firsts = np.where(lows == MISSING, 0, np.searchsorted(cuts, lows, "right") + 1)
        lasts = np.where(highs == MISSING, 0, np.searchsorted(cuts, highs, "right") + 1)
        if wanted == 1 or int((lasts - firsts + 1).sum()) <= _LISTED * len(lows) + len(cuts):
            break
        wanted >>= 1
    counts = np.bincount(firsts, minlength=len(cuts) + 3)
    ended = np.bincount(lasts + 1, minlength=len(cuts) + 3)
    counts = np.cumsum(counts - ended)[: len(cuts) + 2]
    crowd = float((counts.astype(np.float64) ** 2).sum() / max(int(counts.sum()), 1))
    return _Entered(cuts, firsts, lasts, counts, crowd)


def _cut_by_rank(points: Codes, wanted: int) -> Codes:
    """Cuts between which there are about equally many points."""
    return np.unique(points[:: max(1, len(points) // wanted)])


def _cut_evenly(points: Codes, wanted: int) -> Codes:
    """Cuts at the same distance, a power of two, from the first point to the last."""
    if not len(points):
        return points
    first, span = int(points[0]), int(points[-1]) - int(points[0])
    shift = max((span // wanted).bit_length(), 0)
    steps = np.arange((span >> shift) + 1, dtype=np.uint64) << np.uint64(shift)
    # as unsigned: the sum is a code, the step may be none
    cuts: Codes = (steps + np.uint64(first & 2**64 - 1)).view(np.int64)
    return cuts
