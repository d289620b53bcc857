"""`vci`: predicates cut into virtual construct intervals; the paper's look-ups, and ours.

Source: Wu, Chen, Yu and Mei, "Efficient interval indexing for content-based subscription e-commerce and
services" (IBM Research Report, 2004). structures.py has the constructs and their numbers. Each has
a list of the predicates that use it, and an event finds the lists of the constructs that cover its
value. `lookup=` says how:

    runs      ours, the default: no list but slices of one array; static parts (engine/layouts/runs.py)
    bitmap    a vector of bits per value, one per construct anywhere (sec. 2)
    clipped   the vector holds the value's covering segment only (sec. 3)
    virtual   no bits: every list of the segment is looked at, its right end computed (sec. 4)
    table     no bits: only the lists that the distance table names (sec. 4.1)

This module holds the paper's four, which take single predicates in and out in place:

    array     dtype    shape                 meaning
    heads     int32    n_cells * width + 1   first node of each construct's list, -1 if empty; the last
                                             list holds the boxes that cover every cell
    crossing  int32    n_cells or 0          first node of each cell's list of boxes that cross it
    nodes     int32    (capacity, 2)         box and next node; free nodes are linked the same way
    pool      int64    2                     first free node or -1, and how many were ever used
    bits      uint32   (n_cells, words)      bitmap and clipped: which constructs are active
    table     int64    L(L+1)/2 or 2L - 1    table: the distances

Where we depart. ConstructIntervals are read as half-open (structures.py says why), so each id is found
once and a predicate may hold a single value. They lie on the cells of a Grid: a small domain of whole
numbers has a value per cell, as in the paper, and the three outer cells take what lies outside; a
predicate that holds only some codes of a cell is in that cell's crossing list and is checked. One that
covers all cells is in one list instead of n_cells / L. A bulk delete sweeps each list that it touches
once, so that a thousand deletes from one long list do not walk it a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import count_bytes
from rangecast.engine import kernels as checks
from rangecast.engine.answers import Numbers, Request, Rows
from rangecast.engine.boxes import Boxes, ExpandedBoxes, grown
from rangecast.engine.checks import ascending, flat, hold, listed, shaped, within
from rangecast.engine.grid import Grid, bounded_attributes, choose_attributes, named_attributes
from rangecast.engine.index import Index
from rangecast.engine.layouts.runs import RunsIndex, check_length, cover_cells
from rangecast.engine.layouts.runs_kernels import CellRanges
from rangecast.engine.parts import Part, StaticIndex
from rangecast.errors import OptionError
from rangecast.memory import check_fits, check_numbered
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.vci import kernels
from rangecast.papers.vci.kernels import ConstructShape, DirectLists, IntervalLists, SkipList
from rangecast.types.attributes import LAST, MISSING, Codes
from rangecast.types.schema import Schema

# Virtual construct intervals: their coordinates, and which of them cover a value.
#
# Source: Wu, Chen, Yu and Mei, "Efficient interval indexing for content-based subscription e-commerce and
# services" (IBM Research Report, 2004), sec. 2-4. From every value start constructs of the lengths
# 1, 2, ..., L (simple, SCI) or 1, 2, 4, ..., L = 2**k (logarithmic, LCI); `width` of them, so the
# construct [a, b] has the coordinate (a - a0) * width + its place among the lengths (eq. 1 and 2).
#
# The paper's constructs are closed: [0, 4] and [4, 6] both cover 4. A predicate that was cut there would
# be found twice by the value 4, and a predicate of one value has no construct. The indexes therefore read
# a construct as half-open, [a, b): value 4 stands for the unit [4, 5), and the predicate "x to y" over
# whole numbers is the interval [x, y + 1) with a length of at least 1. Coordinates and decomposition are
# the same in both readings; a value is covered by one construct fewer of each length. `closed=True`,
# the default here, gives the paper's numbers:
#
#     what                      closed, as in the paper      half-open, as in the indexes
#     covering segment, SCI     L*L + 1                      L*L - L + 1
#     covering segment, LCI     L(k+1) + 1                   (L-1)(k+1) + 1
#     distance table, SCI       L(L+3)/2                     L(L+1)/2
#     distance table, LCI       2L + k                       2L - 1


class ConstructIntervals(NamedTuple):
    """The lengths that start at each value, ascending, and the place of the longest that fits."""

    kind: str
    lengths: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]

    @property
    def longest(self) -> int:
        """L, the maximal length."""
        return int(self.lengths[-1])

    @property
    def width(self) -> int:
        """How many constructs start at each value."""
        return len(self.lengths)

    @classmethod
    def of(cls, kind: str, longest: int) -> ConstructIntervals:
        """SCI or LCI with a maximal length.

        >>> ConstructIntervals.of("lci", 8).lengths.tolist(), ConstructIntervals.of("sci", 4).lengths.tolist()
        ([1, 2, 4, 8], [1, 2, 3, 4])
        """
        if kind not in ("sci", "lci"):
            raise OptionError(f"constructs must be 'sci' or 'lci', got {kind!r}")
        check_length(longest)
        fits = np.arange(longest + 1)
        if kind == "sci":
            return cls(kind, fits[1:], np.maximum(fits - 1, 0))
        powers = np.int64(1) << np.arange(longest.bit_length())
        return cls(kind, powers, np.maximum(np.searchsorted(powers, fits, "right") - 1, 0))

    def coordinate(self, a: int, b: int, a0: int = 0) -> int:
        """The coordinate of the construct [a, b].

        >>> ConstructIntervals.of("sci", 4).coordinate(0, 2)
        1
        """
        place = int(np.searchsorted(self.lengths, b - a))
        if place == self.width or self.lengths[place] != b - a:
            raise OptionError(f"no construct of {self.kind} with L = {self.longest} has the length {b - a}")
        return (a - a0) * self.width + place

    def interval(self, coordinate: int, a0: int = 0) -> tuple[int, int]:
        """The ends of a construct: the inverse of `coordinate`."""
        a, place = divmod(coordinate, self.width)
        return a0 + a, a0 + a + int(self.lengths[place])

    def decompose(self, x: int, y: int, a0: int = 0) -> list[int]:
        """The coordinates of the constructs that [x, y] is cut into, from the left.

        >>> ConstructIntervals.of("sci", 4).decompose(0, 6)
        [3, 17]
        """
        out = np.empty(max(y - x, 0), np.int64)
        n = kernels.decompose(x - a0, y - a0, self.columns, self.lengths, out)
        return [int(c) for c in out[:n]]

    def segment(self, j: int, closed: bool = True) -> tuple[int, int]:
        """The least and the greatest coordinate that can cover the value a0 + j, for j >= L.

        >>> low, high = ConstructIntervals.of("lci", 16).segment(100)
        >>> high - low + 1 == 16 * (4 + 1) + 1
        True
        """
        first = j - self.longest + (0 if closed else 1)
        return first * self.width + self.width - 1, j * self.width + self.width - 1

    def distances(self, closed: bool = True) -> npt.NDArray[np.int64]:
        """The distance table: coordinates of the constructs that cover a value, less the least of them.

        >>> len(ConstructIntervals.of("lci", 16).distances()) == 2 * 16 + 4
        True
        """
        reach = self.lengths + (1 if closed else 0)
        # relative to the value itself: starts 0, -1, ..., -(reach - 1) for each length
        places = np.repeat(np.arange(self.width), reach)
        back = np.arange(len(places)) - np.repeat(np.cumsum(reach) - reach, reach)
        coordinates = np.sort(places - back * self.width)
        table: npt.NDArray[np.int64] = coordinates - coordinates[0]
        return table


# The interval paper's own structures: closed constructs, linked lists, bit vectors; and what they weigh.
#
# The indexes read constructs as half-open (structures.py says why). Here they are closed, as printed: [0, 4]
# and [4, 6] both cover 4, so a value on a seam finds a predicate twice, and a predicate of one value cannot
# be stored. It is for checking the paper's numbers, not for speed: the lists are Python's.
#
#     what            bytes, as the paper counts them
#     header          4 per construct, R * width constructs
#     list node       8: an id and a pointer
#     SCI, LCI        a vector of R * width bits per value
#     SCI-BC, LCI-BC  a vector of the covering segment per value: L*L + 1 or L(k+1) + 1 bits
#     LCI-BV          no vector; with the distance table 2L + k numbers more
#     Dlist           a header per value, and a node in the list of every value that a predicate covers
#
# Source: Wu, Chen, Yu and Mei (IBM Research Report, 2004), sec. 2 to 5.

HEADER = 4
NODE = 8
BitVectors = npt.NDArray[np.bool_]


class ClosedIntervals:
    """Predicates on the values a0 .. a0 + r - 1, cut into closed constructs, with a bit vector per value.

    >>> index = ClosedIntervals("sci", 4, 7)
    >>> index.insert("p", 0, 6)
    >>> index.insert("q", 0, 2)
    >>> index.find(1), index.find(4)
    (['q', 'p'], ['p', 'p'])
    """

    def __init__(self, kind: str, longest: int, r: int, a0: int = 0) -> None:
        self.constructs = ConstructIntervals.of(kind, longest)
        self.a0 = a0
        self.bits: BitVectors = np.zeros((r, r * self.constructs.width), bool)
        self.lists: dict[int, list[Any]] = {}

    def insert(self, id: Any, x: int, y: int) -> None:
        """Cut [x, y] into constructs, note the id at the head of their lists, and set bits (figure 2)."""
        if not self.a0 <= x < y < self.a0 + len(self.bits):
            raise OptionError(
                f"a predicate must have x < y within {self.a0} and {self.a0 + len(self.bits) - 1}, got "
                f"[{x}, {y}]"
            )
        for c in self.constructs.decompose(x, y, self.a0):
            own = self.lists.setdefault(c, [])
            if not own:
                self._mark(c, True)
            own.insert(0, id)

    def delete(self, id: Any, x: int, y: int) -> None:
        """Take an id out of its lists, and reset the bits of those that are empty now."""
        for c in self.constructs.decompose(x, y, self.a0):
            self.lists[c].remove(id)
            if not self.lists[c]:
                self._mark(c, False)

    def find(self, value: int) -> list[Any]:
        """The ids of the lists whose bits are set for a value, one on a seam twice (sec. 2.2)."""
        active = np.flatnonzero(self.bits[value - self.a0])
        return [id for c in active.tolist() for id in self.lists[c]]

    def _mark(self, c: int, active: bool) -> None:
        a, b = self.constructs.interval(c)
        self.bits[a : b + 1, c] = active


def match_two_phases(
    indexes: Mapping[str, ClosedIntervals], needed: Mapping[Any, int], event: Mapping[str, int]
) -> list[Any]:
    """Conjunctions by one interval index per attribute: satisfied predicates, then counting (sec. 2.1).

    >>> index = ClosedIntervals("lci", 4, 10)
    >>> index.insert(7, 1, 5)
    >>> match_two_phases({"price": index}, {7: 1}, {"price": 5})
    [7]
    """
    counts: dict[Any, int] = {}
    for name, value in event.items():
        if name in indexes:
            for id in set(indexes[name].find(value)):
                counts[id] = counts.get(id, 0) + 1
    return sorted(id for id, n in needed.items() if counts.get(id, 0) == n)


def paper_bytes(scheme: str, lows: Any, highs: Any, r: int, longest: int) -> int:
    """Bytes of one of the paper's structures over predicates [low, high] on r values.

    >>> paper_bytes("Dlist", [1, 3], [4, 5], 100, 4)
    456
    """
    lows, highs = np.asarray(lows, np.int64), np.asarray(highs, np.int64)
    if scheme == "Dlist":
        return HEADER * r + NODE * int((highs - lows + 1).sum())
    kind, _, form = scheme.partition("-")
    constructs = ConstructIntervals.of(kind.lower(), longest)
    total = HEADER * r * constructs.width + NODE * count_constructs(constructs, highs - lows)
    if form == "":
        total += r * r * constructs.width // 8
    elif form == "BC":
        first, last = constructs.segment(longest)
        total += r * -(-(last - first + 1) // 8)
    elif form == "BV(DT)":
        total += HEADER * len(constructs.distances())
    elif form != "BV":
        raise OptionError(f"no scheme of the paper is called {scheme!r}")
    return total


def count_constructs(constructs: ConstructIntervals, lengths: npt.NDArray[np.int64]) -> int:
    """How many constructs intervals of these lengths are cut into, in all.

    >>> count_constructs(ConstructIntervals.of("lci", 16), np.array([7, 32]))
    5
    """
    whole = np.maximum(lengths - 1, 0) // constructs.longest
    rest = lengths - whole * constructs.longest
    if constructs.kind == "sci":
        return int((whole + (rest > 0)).sum())
    ones = np.zeros(len(rest), np.int64)
    for k in range(constructs.longest.bit_length()):
        ones += rest >> k & 1
    return int((whole + ones).sum())


# Structures on one attribute that change in place: what `vci`'s look-ups and `islist` share.
#
# Such a structure finds candidates on one attribute; predicates on the others are checked per candidate.
# A kind of it provides `_lay_out` (an empty structure for these boxes), `_enter`, `_leave` and `_emit`.
# The attribute, unless `on=` names it, and whatever else is chosen from the data is chosen at the first
# insert. A first insert may say little of what is to come, so the choice is made again, and the structure
# rebuilt, whenever there are REFIT times as many boxes as at the last choice: on average a box is
# moved less than once for it. A kind that has nothing to choose says so in `_adapts`.

REFIT = 8


class Head(NamedTuple):
    """What a file holds of every such index: the attribute (-1 before the first insert), how many boxes there
    were at the last choice and are now, whether slots are box numbers, and the attributes to be checked."""

    on: int
    fitted: int
    entered: int
    plain: bool
    checked: npt.NDArray[np.int64]


class InPlaceIndex(Index):
    """Candidates on one attribute, from a structure that takes boxes in and out one by one."""

    _on_option: tuple[int, ...] | None = None

    def _configure(self, on: Any = None) -> None:
        self._on_option = None if on is None else named_attributes(self.schema, on, 1)

    # what a kind of it provides

    def _adapts(self) -> bool:
        """Whether more data could change what was chosen at the first insert."""
        return self._on_option is None and len(self.schema) > 1

    def _lay_out(self, boxes: Boxes, numbers: Numbers) -> None:
        """Make an empty structure on attribute `self._on`, fit for these boxes."""
        raise NotImplementedError

    def _enter(self, boxes: Boxes, numbers: Numbers) -> None:
        """Take boxes in."""
        raise NotImplementedError

    def _leave(self, boxes: Boxes, numbers: Numbers) -> None:
        """Take boxes out."""
        raise NotImplementedError

    def _emit(self, codes: Codes, boxes: Boxes) -> Rows:
        """The matches of a batch; there is at least one box."""
        raise NotImplementedError

    def _take_laid_out(self, laid_out: Any) -> None:
        """Take the second half of what `_structure` gave: a head, and the structure unless it is empty."""
        raise NotImplementedError

    def _check_laid_out(self, n_boxes: int) -> None:
        """`_check_structure` of that half."""
        raise NotImplementedError

    # hooks of Index

    def _reset(self) -> None:
        self._on = -1
        self._fitted = 0
        self._entered = 0
        self._plain = True
        self._checked: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def _add(self, first: int, last: int) -> None:
        if first == last:
            return
        boxes = self._catalog.boxes
        numbers = np.arange(first, last)
        if self._on < 0:
            self._choose(boxes, numbers)
        elif self._adapts() and self._entered + len(numbers) >= REFIT * self._fitted:
            numbers = np.flatnonzero(self._catalog.alive[boxes.slots[: boxes.n]])
            self._choose(boxes, numbers)
        others = np.array(bounded_attributes(boxes, numbers, (self._on,)), np.int64)
        self._checked = np.union1d(self._checked, others)
        self._plain = self._plain and bool((boxes.slots[numbers] == numbers).all())
        self._enter(boxes, numbers)
        self._entered += len(numbers)

    def _choose(self, boxes: Boxes, numbers: Numbers) -> None:
        (self._on,) = self._on_option or choose_attributes(self.schema, None, 1, boxes, numbers)
        self._fitted = len(numbers)
        self._entered = 0
        self._checked = np.empty(0, np.int64)
        self._lay_out(boxes, numbers)

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        numbers = self._catalog.box_numbers(slots)
        if len(numbers):
            self._leave(self._catalog.boxes, numbers)
            self._entered -= len(numbers)

    def _stab(self, codes: Codes) -> Rows:
        if not self._entered:
            return np.zeros(codes.shape[1] + 1, np.int64), np.empty(0, np.int32)
        return self._emit(codes, self._catalog.boxes)

    def _head(self) -> Head:
        return Head(self._on, self._fitted, self._entered, self._plain, self._checked)

    def _check_structure(self) -> None:
        if self._on < 0:
            hold("that nothing is in a structure on no attribute", not self._entered)
            return
        d, catalog = len(self.schema), self._catalog
        hold("that a structure is on an attribute", self._on < d)
        flat(self._head())
        within("attributes of a structure", self._checked, d)
        hold("that slots number boxes", not self._plain or catalog.n_boxes <= catalog.n_slots)
        self._check_laid_out(catalog.n_boxes)

    def _take_structure(self, structure: Any) -> None:
        head, laid_out = structure
        self._on, self._fitted, self._entered, self._plain, self._checked = head
        if laid_out is not None:
            self._take_laid_out(laid_out)


def grow_rows(n_events: int, run: Callable[..., int]) -> Rows:
    """Rows from a kernel that writes them in order and stops, giving the event to go on with, when
    `out` is full; it gives n_events when it is done."""
    offsets = np.zeros(n_events + 1, np.int64)
    out = np.empty(max(1024, 8 * n_events), np.int32)
    event = 0
    while (event := run(event, offsets, out)) < n_events:
        larger = np.empty(2 * len(out), np.int32)
        larger[: offsets[event]] = out[: offsets[event]]
        out = larger
    return offsets, out[: offsets[n_events]]


LOOKUPS = {
    "bitmap": kernels.BITMAP,
    "clipped": kernels.CLIPPED,
    "virtual": kernels.VIRTUAL,
    "table": kernels.TABLE,
}
LONGEST_CHOSEN = 1024


class VciIndex(Index):
    """Opens the kind that `lookup=` names.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> rc.open_index("vci", schema), rc.open_index("vci", schema, lookup="table", L=16)
    (<RunsIndex 'vci': 0 subscriptions>, <IntervalListsIndex 'vci': 0 subscriptions>)
    """

    name = "vci"

    def __new__(cls, schema: Schema, **options: Any) -> Any:
        lookup = options.get("lookup", "runs")
        if lookup != "runs" and lookup not in LOOKUPS:
            raise OptionError(f"lookup must be one of runs, {', '.join(LOOKUPS)}, got {lookup!r}")
        return RunsIndex(schema, **options) if lookup == "runs" else IntervalListsIndex(schema, **options)


class _ListLayout(NamedTuple):
    """What the data decides: the grid, the constructs, and the bytes they take before any predicate."""

    grid: Grid
    constructs: ConstructIntervals
    words: int

    @property
    def n_constructs(self) -> int:
        return self.grid.n_cells * self.constructs.width

    @property
    def nbytes(self) -> int:
        return 4 * (self.n_constructs + 1) + 4 * self.words * self.grid.n_cells


class _LaidOut(NamedTuple):
    """What follows from the data, and the lists."""

    grid: Grid
    longest: int
    words: int
    free: int
    lists: IntervalLists


class _StoredIntervalLists(NamedTuple):
    """What a file holds."""

    head: Head
    laid_out: _LaidOut | None


class IntervalListsIndex(InPlaceIndex):
    """A list per construct, found by bitmap, clipped bitmap, virtual bitmap or distance table."""

    name = "vci"

    def _configure(  # type: ignore[override]
        self,
        lookup: str = "table",
        constructs: str = "lci",
        on: Any = None,
        L: int | None = None,
        cells: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        super()._configure(on)
        self._lookup = LOOKUPS[lookup]
        ConstructIntervals.of(constructs, 1)
        if L is not None:
            check_length(L)
        if cells is not None and not 5 <= cells <= 2**24:
            raise OptionError(f"cells must be within 5 and {2**24}, got {cells}")
        self._kind, self._longest, self._memory_limit = constructs, L, memory_limit
        # a value per cell for the paper's domains, except where bits grow with the square of the cells
        most = 2**13 if lookup == "bitmap" else 2**14 if constructs == "sci" else 2**18
        self._cells = cells or most

    def _reset(self) -> None:
        super()._reset()
        self._marked: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def _adapts(self) -> bool:
        stated = self._on_option is not None or len(self.schema) == 1
        return not stated or self._longest is None or self.schema[self._on].domain is None

    def _check_capacity(self, subs: Subscriptions) -> None:
        if self._on < 0 and subs.n_boxes:
            boxes = ExpandedBoxes(subs.lows, subs.highs, subs.owners, subs.n_boxes)
            numbers = np.arange(boxes.n)
            (on,) = self._on_option or choose_attributes(self.schema, None, 1, boxes, numbers)
            self._check_layout(on, self._plan(on, boxes, numbers))

    def _check_layout(self, on: int, layout: _ListLayout) -> None:
        check_fits(
            layout.nbytes,
            self._memory_limit,
            f"'vci' on {self.schema[on].name!r} with {layout.grid.n_cells:,} cells and "
            f"{layout.n_constructs:,} constructs",
            "fewer cells=, a smaller L= or lookup='table' need less",
        )

    def _plan(self, on: int, boxes: Boxes, numbers: Numbers) -> _ListLayout:
        lows, highs = boxes.lows[on, numbers], boxes.highs[on, numbers]
        grid = Grid.fit(self.schema[on], lows, highs, self._cells)
        longest = self._longest
        if longest is None:
            covered = grid.locate(highs).astype(np.int64) + 1 - grid.locate(lows)
            bounded = covered[covered < grid.n_cells]
            mean = int(np.ceil(bounded.mean())) if len(bounded) else 1
            longest = min(1 << (mean - 1).bit_length(), LONGEST_CHOSEN)
        constructs = ConstructIntervals.of(self._kind, longest)
        first, last = constructs.segment(longest, closed=False)
        n_bits = {kernels.BITMAP: grid.n_cells * constructs.width, kernels.CLIPPED: last - first + 1}
        return _ListLayout(grid, constructs, -(-n_bits.get(self._lookup, 0) // 32))

    def _lay_out(self, boxes: Boxes, numbers: Numbers) -> None:
        layout = self._plan(self._on, boxes, numbers)
        self._check_layout(self._on, layout)
        self._use(layout)
        distances = layout.constructs.distances(closed=False)
        self._lists = IntervalLists(
            heads=np.full(layout.n_constructs + 1, -1, np.int32),
            crossing=np.empty(0, np.int32),
            nodes=np.empty((0, 2), np.int32),
            pool=np.array([-1, 0], np.int64),
            bits=np.zeros((layout.grid.n_cells if layout.words else 0, layout.words), np.uint32),
            table=distances if self._lookup == kernels.TABLE else np.empty(0, np.int64),
        )
        self._free = 0

    def _use(self, layout: _ListLayout) -> None:
        self._layout = layout
        constructs = layout.constructs
        self._shape = ConstructShape(
            constructs.columns,
            constructs.lengths,
            constructs.longest,
            layout.grid.n_cells,
            layout.n_constructs,
            self._lookup,
        )
        # each construct that covers a cell, the list of all, and the crossing list
        longest = layout.constructs.longest
        most = longest * (longest + 1) // 2 if self._kind == "sci" else 2 * longest
        self._found: npt.NDArray[np.int32] = np.empty(min(most, layout.n_constructs) + 2, np.int32)

    def _cover(self, boxes: Boxes, numbers: Numbers) -> tuple[CellRanges, int]:
        return cover_cells(self._layout.grid, boxes.lows[self._on, numbers], boxes.highs[self._on, numbers])

    def _enter(self, boxes: Boxes, numbers: Numbers) -> None:
        lists, shape = self._lists, self._shape
        ranges, crossing = self._cover(boxes, numbers)
        if crossing and not len(lists.crossing):
            lists = lists._replace(crossing=np.full(shape.n_cells, -1, np.int32))
        needed = int(kernels.count_postings(ranges, shape))
        used = int(lists.pool[1])
        if (wanted := used + needed - self._free) > len(lists.nodes):
            check_numbered(wanted, "the list entries of 'vci'", "fewer cells= or a larger L= need fewer")
            # the first load gets exactly its size, as in the catalog
            room = wanted if used == 0 else max(wanted, len(lists.nodes) * 3 // 2, 64)
            nodes = np.empty((room, 2), np.int32)
            nodes[:used] = lists.nodes[:used]
            lists = lists._replace(nodes=nodes)
        self._free = max(0, self._free - needed)
        self._lists = lists
        kernels.enter(numbers, ranges, shape, lists)

    def _leave(self, boxes: Boxes, numbers: Numbers) -> None:
        ranges, _ = self._cover(boxes, numbers)
        n = int(kernels.count_postings(ranges, self._shape))
        postings = np.empty(n, np.int64)
        kernels.list_postings(ranges, self._shape, postings)
        named, counts = np.unique(postings, return_counts=True)
        if len(self._marked) < boxes.n:
            self._marked = grown(np.zeros(0, np.uint8), 0, len(boxes.slots))
            self._marked[:] = 0
        self._marked[numbers] = 1
        kernels.leave(named, counts, self._marked, self._shape, self._lists)
        self._marked[numbers] = 0
        self._free += n

    def _emit(self, codes: Codes, boxes: Boxes) -> Rows:
        cells = self._layout.grid.locate(codes[self._on])
        found = np.empty_like(self._found)
        return grow_rows(
            codes.shape[1],
            lambda event, offsets, out: kernels.stab_lists(
                codes, cells, self._on, event, self._shape, self._lists, found, self._checked, boxes.arrays,
                self._plain, offsets, out,
            ),
        )  # fmt: skip

    def count_lists(self, codes: Codes) -> int:
        """How many lists a batch finds, without reading them: what the paper times as a search."""
        cells = self._layout.grid.locate(codes[self._on])
        return int(kernels.count_lists(cells, self._shape, self._lists, self._found))

    def _structure(self) -> _StoredIntervalLists:
        return _StoredIntervalLists(self._head(), None if self._on < 0 else self._laid_out())

    def _laid_out(self) -> _LaidOut:
        used = int(self._lists.pool[1])
        grid, constructs, words = self._layout
        lists = self._lists._replace(nodes=self._lists.nodes[:used])
        return _LaidOut(grid, constructs.longest, words, self._free, lists)

    def _take_laid_out(self, laid_out: _LaidOut) -> None:
        self._lists, self._free = laid_out.lists, laid_out.free
        constructs = ConstructIntervals.of(self._kind, laid_out.longest)
        self._use(_ListLayout(laid_out.grid, constructs, laid_out.words))

    def _check_laid_out(self, n_boxes: int) -> None:
        lists, layout = self._lists, self._layout
        flat(lists, nodes=2, bits=2)
        layout.grid.check()
        n_cells, n_constructs = layout.grid.n_cells, layout.n_constructs
        shaped("heads of lists", lists.heads, n_constructs + 1)
        shaped("crossing lists", lists.crossing, n_cells if len(lists.crossing) else 0)
        shaped("nodes of lists", lists.nodes, len(lists.nodes), 2)
        shaped("the pool of lists", lists.pool, 2)
        listed("lists", lists.nodes, 1, n_boxes, lists.heads, lists.crossing, lists.pool[:1])
        if self._lookup == kernels.TABLE:
            distances = layout.constructs.distances(closed=False)
            hold("that distances are those of constructs", np.array_equal(lists.table, distances))
        shaped("bitmaps of cells", lists.bits, n_cells if layout.words else 0, layout.words)
        base, step = 0, 0
        if self._lookup == kernels.CLIPPED:
            width, longest = layout.constructs.width, layout.constructs.longest
            base, step = (1 - longest) * width + width - 1, width
        hold("that bits are of constructs", checks.check_bits(lists.bits, base, step, n_constructs))
        # beside the list of all and the crossing one
        most = checks.most_bits(lists.bits)
        hold("that bits find as many lists as there can be", most <= len(self._found) - 2)

    def _structure_stats(self) -> dict[str, Any]:
        if self._on < 0:
            return {"bytes": 0}
        lists = self._lists
        used = int(lists.pool[1])
        return {
            "bytes": count_bytes(self._laid_out()),
            "cells": self._layout.grid.n_cells,
            "L": self._layout.constructs.longest,
            "constructs": self._layout.n_constructs,
            "active": int((lists.heads >= 0).sum()),
            "entries": used - self._free,
            "bitmap_bytes": lists.bits.nbytes,
        }


# `direct`: for each value the list of subscriptions that cover it.
#
# Source: Wu, Chen, Yu and Mei, "Efficient interval indexing for content-based subscription e-commerce
# and services" (IBM Research Report, 2004), sec. 5.1, where it is called Dlist: the fastest look-up of
# that paper and the one that needs the most memory, since a subscription is listed once for every value
# it covers. We build the lists at once as one array in the order of the values instead of linked lists,
# and take live changes through engine/parts.py.
#
#     array    dtype   shape            meaning
#     starts   int64   2 * n_cells + 1  lists of cell c: whole ones [starts[2c], starts[2c + 1]), then
#                                       crossing ones [starts[2c + 1], starts[2c + 2])
#     slots    int32   n_entries        the slot of each entry
#     boxes    int32   n_entries or 0   its box, kept only when candidates must be checked
#     checked  int64   <= d             the other attributes that some box bounds
#
# A domain of more than `cells` values is laid on a Grid: an entry of a cell that its box covers whole
# needs no check on this attribute, one that it crosses does. `on=` names the attribute; by default the
# most selective one. Predicates on other attributes are checked per candidate.

DEFAULT_CELLS = 65_536


@dataclass(eq=False)
class DirectPart(Part):
    """Lists of entries, one pair of lists per cell."""

    grid: Grid
    lists: DirectLists

    def check(self, boxes: Boxes, n_slots: int) -> None:
        lists, d = self.lists, boxes.n_attributes
        flat(lists)
        self.grid.check()
        hold("that lists are on an attribute", 0 <= lists.on < d)
        ascending("starts of lists", lists.starts, len(lists.slots), 2 * self.grid.n_cells + 1)
        within("slots of lists", lists.slots, n_slots)
        within("attributes of lists", lists.checked, d)
        within("boxes of lists", lists.boxes, boxes.n)
        if len(lists.boxes):
            shaped("boxes of lists", lists.boxes, len(lists.slots))
        else:
            nothing = not len(lists.checked) and (lists.starts[1::2] == lists.starts[2::2]).all()
            hold("that checked entries have boxes", nothing)

    def stab(self, request: Request) -> Rows:
        codes, boxes = request.codes, request.boxes
        offsets = np.empty(codes.shape[1] + 1, np.int64)
        cells = self.grid.locate(codes[self.lists.on])
        out = np.empty(kernels.count(cells, self.lists.starts), np.int32)
        n = kernels.stab_direct(codes, cells, self.lists, boxes.lows, boxes.highs, offsets, out)
        return offsets, out[:n]

    def cost(self, codes: Codes) -> npt.NDArray[np.int64]:
        cells = self.grid.locate(codes[self.lists.on])
        counts: npt.NDArray[np.int64] = self.lists.starts[2 * cells + 2] - self.lists.starts[2 * cells]
        return counts

    def stats(self) -> dict[str, int]:
        return {"cells": self.grid.n_cells, "entries": len(self.lists.slots)}


class DirectIndex(StaticIndex):
    """An id list per value of one attribute.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price", 0, 99))
    >>> index = rc.open_index("direct", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price between 10 and 20"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 20}, {"price": 21}])).counts.tolist()
    [1, 0]
    """

    name = "direct"

    def _configure(self, on: Any = None, cells: int = DEFAULT_CELLS, memory_limit: int | None = None) -> None:
        if not 5 <= cells <= 2**24:
            raise OptionError(f"cells must be within 5 and {2**24}, got {cells}")
        self._on = None if on is None else named_attributes(self.schema, on, 1)
        self._cells = cells
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        (on,) = self._on or choose_attributes(self.schema, None, 1, boxes, numbers)
        lows, highs = boxes.lows[on, numbers], boxes.highs[on, numbers]
        grid = Grid.fit(self.schema[on], lows, highs, self._cells)
        others = [j for j in range(len(self.schema)) if j != on]
        checked = [
            j
            for j in others
            if (boxes.lows[j, numbers] != MISSING).any() or (boxes.highs[j, numbers] != LAST).any()
        ]
        firsts, lasts = grid.locate(lows), grid.locate(highs)
        starts = np.zeros(2 * grid.n_cells + 1, np.int64)
        crossing = kernels.count_entries(lows, highs, firsts, lasts, grid.cuts, starts)
        n = int(starts[-1])
        keep_boxes = crossing > 0 or bool(checked)
        check_fits(
            n * (8 if keep_boxes else 4) + starts.nbytes,
            self._memory_limit,
            f"'direct' on {self.schema[on].name!r} with {n:,} list entries",
            "fewer cells=, or the index 'vci' or 'cells', need less",
        )
        lists = DirectLists(
            on=on,
            starts=starts,
            slots=np.empty(n, np.int32),
            boxes=np.empty(n if keep_boxes else 0, np.int32),
            checked=np.array(checked, np.int64),
        )
        cursors = starts[:-1].copy()
        kernels.fill_entries(lows, highs, firsts, lasts, grid.cuts, cursors, numbers, boxes.slots, lists)
        return DirectPart(grid, lists)


# `islist`: the interval skip list, a skip list of end points whose edges carry the intervals over them.
#
# Source: Hanson and Johnson, "Selection predicate indexing for active databases using interval skip
# lists" (Information Systems 21(3), 1996); the peer with which Wu, Chen, Yu and Mei (2004, sec. 5) compare
# their construct intervals. Nodes are the end points in ascending order, each of a random height. An
# interval marks, from its low node to its high one, the highest edges that lie within it: a logarithmic
# number. A value goes down the list as in any skip list and collects the markers of the edge that it
# lies on, at each level. Intervals come and go one by one.
#
#     array       dtype   shape          meaning
#     keys        int64   nodes          end point; node 0 is the head, with the smallest code
#     owners      int32   nodes          how many intervals end there; of a free node, the next free one
#     heights     int32   nodes          levels of the node
#     edges       int32   nodes          its edge at level 0; the one at level i is i further
#     targets     int32   n_edges        the node at which an edge ends, -1 for the tail
#     edge_heads  int32   n_edges        the first marker of an edge, -1 for none
#     free_edges  int32   LEVELS + 1     per height, freed edges of a node
#     marks       int32   (capacity, 5)  box, edge, previous and next marker of the edge, next of the box
#     firsts      int32   boxes          the first marker of a box
#     state       int64   8              free and used nodes, edges and markers; the coins' state
#
# Where we depart. Codes are whole numbers, so [low, high] is [low, high + 1) and an edge from key a to key
# b stands for the codes a .. b - 1: a value lies on one edge of each level, and the second set of markers
# that the paper keeps at nodes, for values that equal an end point, is not needed (an interval then marks
# fewer places than the paper's; nothing of the search is lost). The smallest code, MISSING, is the
# head's, and the tail stands beyond the largest, so open ends need no node. When a node comes or goes,
# the intervals that mark an edge there are taken off and marked again by the same routine that marks a
# new one; those that pass over it on a higher edge are left alone. The paper moves single markers
# up and down instead, to the same result. A batch first sets all its nodes, then marks.

_NODES = ("keys", "owners", "heights", "edges")
_EDGES = ("targets", "edge_heads")
_ADVICE = "the index 'direct' or 'vci' has none"


class _StoredSkipList(NamedTuple):
    """What a file holds."""

    head: Head
    laid_out: SkipList | None


class IslistIndex(InPlaceIndex):
    """An interval skip list on one attribute.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"))
    >>> index = rc.open_index("islist", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price between 10 and 20", 8: "price > 15"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 20}, {"price": 9}])).counts.tolist()
    [2, 0]
    """

    name = "islist"

    def _lay_out(self, boxes: Boxes, numbers: Numbers) -> None:
        levels = kernels.LEVELS
        state = np.array([-1, 1, levels, -1, 0, 0, 0, 2026], np.int64)
        self._skip = SkipList(
            keys=np.array([MISSING], np.int64),
            owners=np.ones(1, np.int32),
            heights=np.array([levels], np.int32),
            edges=np.zeros(1, np.int32),
            targets=np.full(levels, -1, np.int32),
            edge_heads=np.full(levels, -1, np.int32),
            free_edges=np.full(levels + 1, -1, np.int32),
            marks=np.empty((0, 5), np.int32),
            firsts=np.empty(0, np.int32),
            state=state,
        )

    def _enter(self, boxes: Boxes, numbers: Numbers) -> None:
        known = len(self._skip.firsts)
        if known < boxes.n:
            firsts = grown(self._skip.firsts, known, len(boxes.slots))
            firsts[known:] = -1
            self._skip = self._skip._replace(firsts=firsts)
        state, lows, highs = self._skip.state, boxes.lows[self._on], boxes.highs[self._on]
        pending = np.empty(self._entered, np.int64)
        state[kernels.PENDING] = 0
        path = np.empty(kernels.LEVELS, np.int64)
        done = 0
        while True:
            done = kernels.add_ends(numbers, done, lows, highs, self._skip, pending, path)
            if done == len(numbers):
                break
            nodes, edges = int(state[kernels.USED_NODES]), int(state[kernels.USED_EDGES])
            check_numbered(edges + 4 * kernels.LEVELS, "the edges of 'islist'", _ADVICE)
            self._skip = self._skip._replace(
                **{name: grown(getattr(self._skip, name), nodes, nodes + 64) for name in _NODES},
                **{
                    name: grown(getattr(self._skip, name), edges, edges + 4 * kernels.LEVELS)
                    for name in _EDGES
                },
            )
        self._mark(boxes, np.concatenate([pending[: state[kernels.PENDING]], numbers]))

    def _leave(self, boxes: Boxes, numbers: Numbers) -> None:
        state, lows, highs = self._skip.state, boxes.lows[self._on], boxes.highs[self._on]
        pending = np.empty(self._entered, np.int64)
        state[kernels.PENDING] = 0
        kernels.drop_boxes(numbers, lows, highs, self._skip, pending, np.empty(kernels.LEVELS, np.int64))
        self._mark(boxes, pending[: state[kernels.PENDING]])

    def _mark(self, boxes: Boxes, numbers: Numbers) -> None:
        lows, highs = boxes.lows[self._on], boxes.highs[self._on]
        path = np.empty(kernels.LEVELS, np.int64)
        done = 0
        while True:
            done = kernels.mark_boxes(numbers, done, lows, highs, self._skip, path)
            if done == len(numbers):
                return
            used = int(self._skip.state[kernels.USED_MARKERS])
            # by what the boxes so far have needed, and never less than half more
            each = -(-used // done) if done else 16
            room = max(used + each * (len(numbers) - done), used * 3 // 2, 64)
            check_numbered(room, "the markers of 'islist'", _ADVICE)
            marks = np.empty((room, 5), np.int32)
            marks[:used] = self._skip.marks[:used]
            self._skip = self._skip._replace(marks=marks)

    def _emit(self, codes: Codes, boxes: Boxes) -> Rows:
        on, top = self._on, self._top
        return grow_rows(
            codes.shape[1],
            lambda event, offsets, out: kernels.stab_skip_list(
                codes, on, event, top, self._skip, self._checked, boxes.arrays, self._plain, offsets, out
            ),
        )

    def count_lists(self, codes: Codes) -> int:
        """How many edges with markers a batch meets, without reading the markers."""
        return int(kernels.count_marked(codes[self._on], self._top, self._skip))

    @property
    def _top(self) -> int:
        """How many levels a search must look at. The head's edges above all nodes lead to the tail, and
        are marked by the intervals that bound nothing."""
        head = slice(0, kernels.LEVELS)
        used = np.flatnonzero((self._skip.targets[head] >= 0) | (self._skip.edge_heads[head] >= 0))
        return int(used[-1]) + 1 if len(used) else 0

    def _structure(self) -> _StoredSkipList:
        return _StoredSkipList(self._head(), None if self._on < 0 else self._used())

    def _used(self) -> SkipList:
        """The arrays without spare room."""
        skip, state = self._skip, self._skip.state
        nodes, edges = int(state[kernels.USED_NODES]), int(state[kernels.USED_EDGES])
        return skip._replace(
            **{name: getattr(skip, name)[:nodes] for name in _NODES},
            **{name: getattr(skip, name)[:edges] for name in _EDGES},
            marks=skip.marks[: int(state[kernels.USED_MARKERS])],
        )

    def _take_laid_out(self, laid_out: SkipList) -> None:
        self._skip = laid_out

    def _check_laid_out(self, n_boxes: int) -> None:
        skip, levels = self._skip, kernels.LEVELS
        flat(skip, marks=2)
        n_nodes, n_edges, n_marks = len(skip.keys), len(skip.targets), len(skip.marks)
        for name in _NODES:
            shaped(f"{name} of the list", getattr(skip, name), n_nodes)
        shaped("heads of edges", skip.edge_heads, n_edges)
        shaped("markers", skip.marks, n_marks, 5)
        shaped("states of the list", skip.state, 8)
        hold("that a list has a head", n_nodes and skip.heights[0] == levels and skip.edges[0] == 0)
        # free nodes have no edges
        hold("that edges lead up and keep their level", checks.check_edges(skip, levels))
        listed("markers", skip.marks, 3, n_boxes, skip.edge_heads)

    def _structure_stats(self) -> dict[str, Any]:
        if self._on < 0:
            return {"bytes": 0}
        state = self._skip.state
        return {
            "bytes": count_bytes(self._used()),
            "nodes": int(state[kernels.USED_NODES]),
            "levels": self._top,
            "markers": int(state[kernels.USED_MARKERS] - state[kernels.FREE_MARKERS]),
        }
