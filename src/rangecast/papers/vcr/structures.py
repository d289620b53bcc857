"""`vcr` in runs: the constructs of one size and row side by side, so that a point reads one slice a size.

The paper (structures.py) looks up each of the (2 Lx + kx)(2 Ly + ky) constructs that may hold a point. But
the constructs of one size in one row of cells that hold cell x begin at x - 2**i + 1 .. x: sorted by
where they begin, their lists are one slice. And a rectangle may be cut along y at multiples of 2**j,
which are constructs like any others; then only one row of each height holds a point. So a point reads
(kx + 1)(ky + 1) slices at most, and only of sizes in use. Cells are half-open here, so constructs of
one rectangle share no cell and an id comes once.

    array    dtype   shape            meaning
    planes   int64   (n_planes, 4)    one per size in use: 1 if crossed, i, j, key of its first place
    words    uint64  n_places / 64    a bit for each bucket of 2**shift places: does it hold entries?
    ranks    int32   as words         bits set before this word
    heads    int32   n_buckets + 1    first entry of each bucket that holds some
    starts   uint8   n_entries or 0   place within the bucket, ascending; none when a bucket is a place
    entries  int32   n_entries        slot, or box where it must be checked
    checked  int64   <= d             attributes besides the plane's that some box bounds

The key of a construct is plane + row * stride + x; bit and bucket follow by a shift. Headers exist
for buckets that hold something, and the bitmap costs 0.2 bytes a bucket, so memory follows the
subscriptions: `shift` is the smallest for which headers cost less than the entries, and `cells`
along an axis grow with the root of the number of boxes.

A box whose edge crosses cells (floats, coarse grids) is listed on crossed planes, where each entry
is compared with the box. Where many boxes lie on each other, the cells that it holds whole are
listed apart, to be copied without a look.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Found, Numbers, Request, Rows, restore_order
from rangecast.engine.boxes import Boxes, ExpandedBoxes, grown
from rangecast.engine.checks import ascending, flat, hold, listed, shaped, within
from rangecast.engine.grid import Grid, choose_attributes, named_attributes
from rangecast.engine.index import Index
from rangecast.engine.parts import Part, StaticIndex
from rangecast.errors import CapacityError, OptionError
from rangecast.memory import check_fits
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.vcr import kernels
from rangecast.papers.vcr.kernels import Cutting, RectangleLists, RectangleRuns
from rangecast.types.attributes import LAST, MISSING, Codes
from rangecast.types.schema import Schema

# `vcr`: rectangles cut into virtual construct rectangles.
#
# Source: Wu, Chen and Yu, "VCR indexing for fast event matching for highly-overlapping range
# predicates" (IBM Research Report, 2004). A construct is a rectangle (x, y, 2**i, 2**j) with any
# bottom-left corner and sides that are powers of two up to Lx and Ly. A subscription is cut into
# constructs and listed with each; the subscriptions that an event matches are in the lists of the
# constructs that hold its point.
#
#     storage          module          what it is
#     "runs"           structures.py     ours and the default: static, constructs of one size in one
#                                      row next to each other, so that a point reads one run a size
#     "array", "hash"  structures.py    the paper's: linked lists that change in place, a header for
#                                      every construct or a hash table of those in use
#     (pure functions) structures.py ids, decompositions, covering set, distance table
#
# All of them lie on a plane of cells (structures.py), so values of any type, outside the stated domain or
# missing are matched exactly; attributes that are not on the plane are checked per candidate.

_STORAGES = {
    "runs": "rangecast.papers.vcr.structures:RectangleRunsIndex",
    "array": "rangecast.papers.vcr.structures:RectangleListsIndex",
    "hash": "rangecast.papers.vcr.structures:RectangleListsIndex",
}


class VcrIndex(Index):
    """Rectangles over two attributes, by the constructs that they are made of.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("x", 0, 299), rc.Int("y", 0, 199))
    >>> index = rc.open_index("vcr", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "x between 3 and 14 and y between 3 and 9"}))
    >>> index.match(rc.Events.from_rows(schema, [{"x": 14, "y": 9}, {"x": 15, "y": 9}])).counts.tolist()
    [1, 0]
    """

    name = "vcr"

    def __new__(cls, schema: Schema, **options: Any) -> VcrIndex:
        if cls is not VcrIndex:
            return super().__new__(cls)
        storage = options.get("storage", "runs")
        if storage not in _STORAGES:
            raise OptionError(f"storage must be one of {', '.join(_STORAGES)}, got {storage!r}")
        module, _, kind = _STORAGES[storage].partition(":")
        found: type[VcrIndex] = getattr(importlib.import_module(module), kind)
        return super().__new__(found)


MOST_SHIFT = 6
SAMPLE = 4096
SPARE_ENTRIES = 1.25
FREE_ENTRIES = 8
DENSE = 256.0
ENTRIES_EACH = 64
ARRANGED = 4096
SORTED_EVENTS = 512
SORTED_ENTRIES = 512


class _Pieces(NamedTuple):
    """Rectangles to cut: cells, 1 where crossed, and what is listed."""

    x0: Cells
    x1: Cells
    y0: Cells
    y1: Cells
    kinds: npt.NDArray[np.int64]
    values: npt.NDArray[np.int32]


class _RunLayout(NamedTuple):
    """How boxes are to be laid out, and about how many entries they will have."""

    plane: Plane
    pieces: _Pieces
    kx: int
    ky: int
    checked: list[int]
    entries: float


@dataclass(eq=False)
class RectangleRunsPart(Part):
    """Runs of entries on a plane of cells."""

    plane: Plane
    sides: tuple[int, int]
    runs: RectangleRuns

    def __post_init__(self) -> None:
        self.tested = np.array([*self.plane.on, *self.runs.checked.tolist()], np.int64)
        self.n_whole = int((self.runs.planes[:, 0] == 0).sum())

    def check(self, boxes: Boxes, n_slots: int) -> None:
        runs, d = self.runs, boxes.n_attributes
        flat(runs, planes=2)
        self.plane.check(d)
        within("attributes of runs", runs.checked, d)
        hold("that buckets are of a byte at most", 0 <= runs.shift <= MOST_SHIFT <= 8)
        shaped("planes of runs", runs.planes, len(runs.planes), 4)
        kinds, widths, heights, bases = runs.planes.T
        nx, ny = self.plane.shape
        within("sizes of constructs", widths, 63)
        within("sizes of constructs", heights, 63)
        within("stride of runs", np.array([runs.stride]), 2**31, nx)
        hold("that whole planes come first", bool((np.diff(kinds, prepend=0) >= 0).all()))
        # where each plane ends: the next one begins there or later, in a bucket of its own
        ends = bases + ((ny - 1 >> heights) + 1) * runs.stride
        places = np.append(bases, max(int(ends[-1]), 0) if len(ends) else 0)
        within("planes of runs", places, 64 * len(runs.words) << runs.shift)
        hold("that planes follow one another", (ends <= places[1:]).all())
        hold("that planes begin buckets", not (bases & ((1 << runs.shift) - 1)).any())
        n_held = np.cumsum(np.bitwise_count(runs.words), dtype=np.int64)
        shaped("ranks of runs", runs.ranks, len(runs.words))
        hold("that ranks count buckets", (runs.ranks[1:] == n_held[:-1]).all() and not runs.ranks[:1].any())
        ascending("heads of runs", runs.heads, len(runs.entries), int(n_held[-1]) + 1)
        shaped("starts of runs", runs.starts, len(runs.entries) if runs.shift else 0)
        # entries of whole planes are copied as slots, unless other attributes are checked
        copied = len(runs.entries)
        if self.n_whole < len(runs.planes):
            bucket = int(bases[self.n_whole]) >> runs.shift
            below = int(runs.words[bucket >> 6]) & ((1 << (bucket & 63)) - 1)
            copied = int(runs.heads[int(runs.ranks[bucket >> 6]) + below.bit_count()])
        copied = 0 if len(runs.checked) else copied
        within("slots of runs", runs.entries[:copied], n_slots)
        within("boxes of runs", runs.entries[copied:], boxes.n)

    def stab(self, request: Request) -> Found:
        codes, boxes = request.codes, request.boxes
        xs, ys = self.plane.locate(codes)
        n = len(xs)
        step = 1 + n // 64
        seen = self._estimate(xs[::step], ys[::step])
        # one try is usually enough, and room that is not used is never touched
        room = 64 + seen * step * 5 // 4
        if n < SORTED_EVENTS or seen * step > SORTED_ENTRIES * n:
            return self._stab_in_turn(codes, xs, ys, boxes, room)
        # events of one place read the same runs: going along the Z curve they find them in the cache,
        # which halves the time where runs are short; where they are long, putting the rows back costs more
        places = np.zeros(n, np.int64)
        kernels.interleave(xs, ys, places)
        order = np.argsort(places)
        turned = np.ascontiguousarray(codes[:, order])
        offsets, slots = self._stab_in_turn(turned, xs[order], ys[order], boxes, room)
        return restore_order(order, n, offsets, slots)

    def _estimate(self, xs: Cells, ys: Cells) -> int:
        """How many entries these events will look at."""
        found = np.empty(2 * len(self.runs.planes), np.int64)
        return int(kernels.estimate(np.ascontiguousarray(xs), np.ascontiguousarray(ys), self.runs, found))

    def _stab_in_turn(self, codes: Codes, xs: Cells, ys: Cells, boxes: Boxes, room: int) -> Rows:
        offsets = np.zeros(len(xs) + 1, np.int64)
        found = np.empty(2 * len(self.runs.planes), np.int64)
        out = np.empty(room, np.int32)
        state = np.zeros(2, np.int64)
        while not kernels.stab_runs(
            codes, xs, ys, self.runs, self.n_whole, self.tested, boxes.arrays, found, state, offsets, out
        ):
            done, used = int(state[0]), int(state[1])
            at_once = self._estimate(xs[done : done + 1], ys[done : done + 1])
            grown = np.empty(max(2 * len(out), used + at_once), np.int32)
            grown[:used] = out[:used]
            out = grown
        return offsets, out[: state[1]]

    def stats(self) -> dict[str, int]:
        runs = self.runs
        return {
            "planes": len(runs.planes),
            "entries": len(runs.entries),
            "buckets": len(runs.heads) - 1,
            "header_bytes": runs.words.nbytes + runs.ranks.nbytes + runs.heads.nbytes + runs.starts.nbytes,
        }


class RectangleRunsIndex(VcrIndex, StaticIndex):
    """The rectangle index as immutable runs; see the module head."""

    def _configure(
        self,
        storage: str = "runs",
        on: Any = None,
        Lx: int | None = None,
        Ly: int | None = None,
        cells: int | None = None,
        split: bool | None = None,
        memory_limit: int | None = None,
    ) -> None:
        check_cells(cells)
        if split not in (None, True, False):
            raise OptionError(f"split must be True, False or None, got {split!r}")
        self._on = plane_attributes(self.schema, on)
        self._sides = log_of_side("Lx", Lx), log_of_side("Ly", Ly)
        self._cells = cells
        self._split = split
        self._memory_limit = memory_limit

    def _arranged(self, subs: Subscriptions) -> Subscriptions:
        if len(subs) < ARRANGED or not subs.n_boxes:
            return subs
        boxes = ExpandedBoxes(subs.lows, subs.highs, subs.owners, subs.n_boxes)
        firsts = np.minimum(subs.box_starts()[:-1], subs.n_boxes - 1)
        plane = Plane.fit(self.schema, self._on, boxes, firsts, 1024)
        held = plane.rectangles(boxes, firsts)
        # near each other on the plane is near each other along the Z curve through the middles
        places = np.zeros(len(subs), np.int64)
        kernels.interleave(held.x0 + held.x1 >> 1, held.y0 + held.y1 >> 1, places)
        return subs.select(np.argsort(places, kind="stable"))

    def _check_capacity(self, subs: Subscriptions) -> None:
        # a sample tells well enough, and before anything has changed
        step = 1 + subs.n_boxes // SAMPLE
        boxes = ExpandedBoxes(subs.lows, subs.highs, subs.owners, subs.n_boxes)
        plan = self._plan(boxes, np.arange(0, subs.n_boxes, step), subs.n_boxes)
        self._check_room(int(plan.entries * step), subs.n_boxes)

    def _check_room(self, n: int, n_boxes: int) -> None:
        check_entries(n)
        check_fits(
            28 * n,
            self._memory_limit,
            f"'vcr' with {n:,} entries of {n_boxes:,} boxes, while they are sorted,",
            "fewer cells=, larger Lx= and Ly=, or the index 'bitmap', need less",
        )

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        return self._lay_out(self._plan(boxes, numbers, len(numbers)), len(numbers))

    def _plan(self, boxes: Boxes, numbers: npt.NDArray[np.int64], n: int) -> _RunLayout:
        """Cells and sizes for n boxes, of which these are all or a sample."""
        cells = self._cells or default_cells(n)
        plane = Plane.fit(self.schema, self._on, boxes, numbers, cells)
        held = plane.rectangles(boxes, numbers)
        checked = plane.others(boxes, numbers)
        dense = _mean_depth(plane, held) * n >= DENSE
        split = dense and not checked if self._split is None else self._split
        if self._cells is None and not held.mostly_exact:
            # edges cross cells however fine these are, so fewer cells, and entries, cost little:
            # a fourth was best for lonlat, an eighth for floats that lie a thousand deep
            cells = max(cells >> (3 if dense else 2), LEAST_AUTOMATIC)
            plane = Plane.fit(self.schema, plane.on, boxes, numbers, cells)
            held = plane.rectangles(boxes, numbers)
        while True:
            # runs lie along x, where cuts are free and so fewer: the wider side goes there
            if len(plane.on) == 2 and self._on is None and _mean_side(held, "y") > _mean_side(held, "x"):
                plane = plane.flipped()
                held = plane.rectangles(boxes, numbers)
            pieces = cut_pieces(held, split, numbers, boxes.slots, not checked)
            kx, ky, share = choose_sides(pieces, plane.shape, *self._sides)
            entries = share * len(pieces.values)
            few = entries <= ENTRIES_EACH * len(numbers)
            if few or self._cells is not None or cells <= LEAST_AUTOMATIC:
                return _RunLayout(plane, pieces, kx, ky, checked, entries)
            cells >>= 1
            plane = Plane.fit(self.schema, plane.on, boxes, numbers, cells)
            held = plane.rectangles(boxes, numbers)

    def _lay_out(self, plan: _RunLayout, n_boxes: int) -> RectangleRunsPart:
        plane, pieces, kx, ky, checked, _ = plan
        counts = np.zeros((2, kx + 1, ky + 1), np.int64)
        kernels.count_planes(*pieces[:5], kx, ky, counts)
        n = int(counts.sum())
        self._check_room(n, n_boxes)
        nx, ny = plane.shape
        stride = -(-nx // 2**MOST_SHIFT) << MOST_SHIFT
        bases = np.full(counts.shape, -1, np.int64)
        planes = []
        end = 0
        for kind, i, j in np.argwhere(counts).tolist():
            bases[kind, i, j] = end
            planes.append((kind, i, j, end))
            end += ((ny - 1 >> j) + 1) * stride
        keys, entries = np.empty(n, np.int64), np.empty(n, np.int32)
        kernels.fill_keys(*pieces, kx, ky, bases, stride, keys, entries)
        keys, entries = sorted_by_key(keys, entries, end)
        shift, n_buckets = _choose_shift(keys, end)
        # a place past the last one is looked up as the end of a run
        n_words = ((end >> shift) + 1 >> 6) + 1
        runs = RectangleRuns(
            stride=stride,
            shift=shift,
            planes=np.array(planes, np.int64).reshape(len(planes), 4),
            words=np.zeros(n_words, np.uint64),
            ranks=np.empty(n_words, np.int32),
            heads=np.empty(n_buckets + 1, np.int32),
            starts=np.empty(n if shift else 0, np.uint8),
            entries=entries,
            checked=np.array(checked, np.int64),
        )
        kernels.fill_buckets(keys, runs)
        return RectangleRunsPart(plane, (1 << kx, 1 << ky), runs)


def cut_pieces(
    held: Rectangles,
    split: bool,
    numbers: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int32],
    copied: bool,
) -> _Pieces:
    """The rectangles to list: whole ones, crossed ones, and frames where a crossed one is split."""
    whole_w = np.maximum(held.whole_x1.astype(np.int64) - held.whole_x0 + 1, 0)
    whole_h = np.maximum(held.whole_y1.astype(np.int64) - held.whole_y0 + 1, 0)
    area = (held.x1.astype(np.int64) - held.x0 + 1) * (held.y1.astype(np.int64) - held.y0 + 1)
    exact = held.exact
    framed = ~exact & (2 * whole_w * whole_h >= area) if split else np.zeros(len(numbers), bool)
    crossed = ~exact & ~framed
    boxes = numbers.astype(np.int32)
    labels = slots[numbers] if copied else boxes
    x0, x1, y0, y1, wx0, wx1, wy0, wy1 = held
    # a mask, the sides of the piece, and whether it is crossed
    cuts = [
        (exact | framed, (wx0, wx1, wy0, wy1), 0),
        (crossed, (x0, x1, y0, y1), 1),
        (framed & (y0 < wy0), (x0, x1, y0, y0), 1),
        (framed & (wy1 < y1), (x0, x1, y1, y1), 1),
        (framed & (x0 < wx0), (x0, x0, wy0, wy1), 1),
        (framed & (wx1 < x1), (x1, x1, wy0, wy1), 1),
    ]
    rows = [np.flatnonzero(mask) for mask, _, _ in cuts]

    def side(c: int) -> Cells:
        return np.concatenate([sides[c][r] for (_, sides, _), r in zip(cuts, rows, strict=True)])

    return _Pieces(
        side(0),
        side(1),
        side(2),
        side(3),
        np.concatenate([np.full(len(r), kind, np.int64) for (_, _, kind), r in zip(cuts, rows, strict=True)]),
        np.concatenate([(boxes if kind else labels)[r] for (_, _, kind), r in zip(cuts, rows, strict=True)]),
    )


def choose_sides(
    pieces: _Pieces, shape: tuple[int, int], kx: int | None, ky: int | None
) -> tuple[int, int, float]:
    """Logarithms of the largest width and height, and the entries that a piece will have.

    The fewest sizes are taken whose entries are near the least there can be, or few in any case:
    each size costs an event a look, each entry four bytes.
    """
    tops = [size.bit_length() - 1 for size in shape]
    kx, ky = (None if k is None else min(k, top) for k, top in zip((kx, ky), tops, strict=True))
    if not len(pieces.values):
        return kx or 0, ky or 0, 0.0
    step = max(1, len(pieces.values) // SAMPLE)
    x0, x1, y0, y1 = (np.ascontiguousarray(side[::step]) for side in pieces[:4])
    across = np.empty((tops[0] + 1, len(x0)), np.int64)
    upward = np.empty((tops[1] + 1, len(x0)), np.int64)
    kernels.count_pieces(x0, x1, y0, y1, tops[0], tops[1], across, upward)
    totals = across.astype(np.float64) @ upward.T.astype(np.float64)
    if kx is not None:
        totals[np.arange(tops[0] + 1) != kx] = np.inf
    if ky is not None:
        totals[:, np.arange(tops[1] + 1) != ky] = np.inf
    sizes = np.multiply.outer(np.arange(tops[0] + 1) + 1.0, np.arange(tops[1] + 1) + 1.0)
    sizes[totals > max(SPARE_ENTRIES * totals.min(), FREE_ENTRIES * len(x0))] = np.inf
    place = int(np.lexsort((totals.ravel(), sizes.ravel()))[0])
    return *divmod(place, tops[1] + 1), float(totals.ravel()[place]) / len(x0)


def sorted_by_key(
    keys: npt.NDArray[np.int64], entries: npt.NDArray[np.int32], end: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Keys below `end` in ascending order, and their entries; equal keys keep their order."""
    spare_keys, spare = np.empty_like(keys), np.empty_like(entries)
    for shift in range(0, max(end - 1, 1).bit_length(), 11):
        kernels.sort_pass(keys, entries, shift, spare_keys, spare)
        keys, entries, spare_keys, spare = spare_keys, spare, keys, entries
    return keys, entries


def _choose_shift(keys: npt.NDArray[np.int64], end: int) -> tuple[int, int]:
    """The width of a bucket as a shift, and how many will hold something."""
    counts = np.zeros(MOST_SHIFT + 1, np.int64)
    kernels.count_buckets(keys, MOST_SHIFT, counts)
    costs = [
        12 * (end >> shift) / 64 + 4 * int(counts[shift]) + (len(keys) if shift else 0)
        for shift in range(MOST_SHIFT + 1)
    ]
    for shift, cost in enumerate(costs):
        if cost <= 2 * len(keys):
            return shift, int(counts[shift])
    best = int(np.argmin(costs))
    return best, int(counts[best])


def _mean_side(held: Rectangles, axis: str) -> float:
    first, last = (held.x0, held.x1) if axis == "x" else (held.y0, held.y1)
    return float((last - first).mean()) if len(first) else 0.0


def _mean_depth(plane: Plane, held: Rectangles) -> float:
    """The share of the cells that a box touches, on average: times n, in how many boxes a cell lies."""
    areas = (held.x1 - held.x0 + 1.0) * (held.y1 - held.y0 + 1.0)
    nx, ny = plane.shape
    return float(areas.mean()) / (nx * ny) if len(areas) else 0.0


# Construct rectangles as the paper defines them: ids, decompositions, covering set, distance table.
#
# Source: Wu, Chen and Yu 2004 (structures.py), sec. 2.1 to 2.3. Rectangles are closed: (x, y, w, h) holds
# x <= p <= x + w, so two constructs of one rectangle share the points of their seam.
#
#     number                                  where
#     id(x, y, 2**i, 2**j)                    eq. (1): B (x + y Rx) + j (kx + 1) + i, B = (kx + 1)(ky + 1)
#     simple, overlapped decomposition        sec. 2.2.1 and 2.2.2; both are products of cuts along the axes
#     |Cov(a, b)| = (2 Lx + kx)(2 Ly + ky)    theorem 1, for points with a >= Lx and b >= Ly
#     distance table                          sec. 2.3.2: ids of Cov(a, b) less that of the pivot
#                                             (a - Lx, b - Ly, 1, 1); the same for all such points
#
# A point nearer to the left or lower border than Lx, Ly has fewer constructs, for corners outside the
# domain do not exist; `covering` gives those that do. At the right and upper border nothing changes,
# because constructs may reach beyond it.

ConstructIds = npt.NDArray[np.int64]
Rectangle = tuple[int, int, int, int]


class ConstructRectangles(NamedTuple):
    """All constructs over rx by ry corners with sides up to 2**kx and 2**ky.

    >>> small = ConstructRectangles(20, 20, 2, 2)
    >>> small.id(0, 0, 1, 1), small.id(0, 0, 4, 4), small.n_per_corner
    (0, 8, 9)
    >>> len(small.decompose(3, 3, 11, 6)), len(small.decompose(3, 3, 11, 6, overlapped=True))
    (8, 6)
    >>> len(small.covering(10, 10)), len(small.distances())
    (100, 100)
    """

    rx: int
    ry: int
    kx: int
    ky: int

    @property
    def n_per_corner(self) -> int:
        """B, the constructs with one bottom-left corner."""
        return (self.kx + 1) * (self.ky + 1)

    @property
    def n_constructs(self) -> int:
        """How many constructs there are."""
        return self.n_per_corner * self.rx * self.ry

    @property
    def n_covering(self) -> int:
        """How many constructs hold a point that is not near the border."""
        return ((2 << self.kx) + self.kx) * ((2 << self.ky) + self.ky)

    def id(self, x: int, y: int, width: int, height: int) -> int:
        """The number of a construct."""
        i, j = width.bit_length() - 1, height.bit_length() - 1
        inside = 0 <= x < self.rx and 0 <= y < self.ry and 0 <= i <= self.kx and 0 <= j <= self.ky
        if not inside or (width, height) != (1 << i, 1 << j):
            raise OptionError(
                f"a construct has its corner within {self.rx} x {self.ry} and sides that are powers of two "
                f"up to {1 << self.kx} x {1 << self.ky}, got {(x, y, width, height)}"
            )
        return int(kernels.construct_id(x, y, i, j, self.rx, self.kx, self.ky))

    def rectangle(self, number: int) -> Rectangle:
        """The construct (x, y, width, height) with a number: the inverse of `id`."""
        corner, size = divmod(number, self.n_per_corner)
        j, i = divmod(size, self.kx + 1)
        y, x = divmod(corner, self.rx)
        return x, y, 1 << i, 1 << j

    def decompose(self, a: int, b: int, w: int, h: int, overlapped: bool = False) -> list[Rectangle]:
        """The constructs that make the rectangle (a, b, w, h), strip by strip from below."""
        if w < 1 or h < 1:
            raise OptionError(f"a rectangle of width or height 0 has no construct, got {(a, b, w, h)}")
        columns, rows = (
            self._cut(first, length, k, overlapped) for first, length, k in ((a, w, self.kx), (b, h, self.ky))
        )
        return [(x, y, width, height) for y, height in rows for x, width in columns]

    def covering(self, a: int, b: int) -> ConstructIds:
        """Ids of all constructs that hold the point (a, b), ascending."""
        out = np.empty(self.n_covering, np.int64)
        return out[: kernels.cover_point(a, b, self.rx, self.kx, self.ky, out)]

    def pivot(self, a: int, b: int) -> int:
        """The id of (a - Lx, b - Ly, 1, 1), to which distances are added."""
        return self.id(a - (1 << self.kx), b - (1 << self.ky), 1, 1)

    def distances(self) -> ConstructIds:
        """The distance table: what to add to a point's pivot to get the ids that hold it."""
        # the differences depend on the row length alone, so any point off the border will do
        held: ConstructIds = self.covering(1 << self.kx, 1 << self.ky)
        return held

    @staticmethod
    def _cut(first: int, length: int, k: int, overlapped: bool) -> list[tuple[int, int]]:
        n = int(kernels.count_along(length, k, overlapped))
        starts, logs = np.empty(n, np.int64), np.empty(n, np.int64)
        kernels.cut_along(first, length, k, overlapped, starts, logs)
        return [(int(start), 1 << int(log)) for start, log in zip(starts, logs, strict=True)]


# Two attributes as a plane of cells: what the rectangle index is laid out on.
#
#     field     meaning
#     on        positions of the two attributes; one in a schema of one attribute
#     grids     a Grid for each, so cell 0 is MISSING and every code has a cell
#     shape     cells along x and y; y is a single cell where there is no second attribute
#
# A box is a rectangle of cells on it, `Rectangles`, with the part of that rectangle that the box holds
# whole. Between the two lie crossed cells: they hold codes inside and outside the box, so an event
# there must be compared with the box itself.

Cells = npt.NDArray[np.int32]

LEAST_CELLS, MOST_CELLS = 5, 2**15
LEAST_AUTOMATIC = 64
EXACT_SHARE = 0.9
MOST_ENTRIES = 2**31 - 1


class Rectangles(NamedTuple):
    """Per box, the cells that it touches and those that it holds whole (first and last, inclusive)."""

    x0: Cells
    x1: Cells
    y0: Cells
    y1: Cells
    whole_x0: Cells
    whole_x1: Cells
    whole_y0: Cells
    whole_y1: Cells

    @property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Which boxes cross no cell."""
        same: npt.NDArray[np.bool_] = (
            (self.x0 == self.whole_x0)
            & (self.x1 == self.whole_x1)
            & (self.y0 == self.whole_y0)
            & (self.y1 == self.whole_y1)
        )
        return same

    @property
    def mostly_exact(self) -> bool:
        """Whether few boxes cross cells: finer cells than these would not help."""
        return bool(np.count_nonzero(self.exact) >= EXACT_SHARE * len(self.x0))


@dataclass(eq=False)
class Plane:
    """The cells of one or two attributes."""

    on: tuple[int, ...]
    grids: tuple[Grid, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Cells along x and along y."""
        return self.grids[0].n_cells, self.grids[1].n_cells if len(self.grids) > 1 else 1

    @classmethod
    def fit(
        cls,
        schema: Schema,
        on: tuple[int, ...] | None,
        boxes: Boxes,
        numbers: npt.NDArray[np.int64],
        cells: int,
    ) -> Plane:
        """A plane for these boxes, on the two most selective attributes unless `on` names them."""
        chosen = on or choose_attributes(schema, None, min(2, len(schema)), boxes, numbers)
        grids = tuple(
            Grid.fit(schema[j], boxes.lows[j, numbers], boxes.highs[j, numbers], cells) for j in chosen
        )
        return cls(chosen, grids)

    def check(self, n_attributes: int) -> None:
        """Raise StorageError unless every event has a cell on it."""
        n = min(2, n_attributes)
        hold("that a plane is of two attributes", len(self.on) == len(self.grids) == len(set(self.on)) == n)
        hold("that a plane is of attributes", all(0 <= j < n_attributes for j in self.on))
        for grid in self.grids:
            grid.check()

    def flipped(self) -> Plane:
        """The same plane with x and y exchanged."""
        return Plane(self.on[::-1], self.grids[::-1])

    def locate(self, codes: Codes) -> tuple[Cells, Cells]:
        """The cells of a batch."""
        xs = self.grids[0].locate(codes[self.on[0]])
        if len(self.on) == 1:
            return xs, np.zeros(len(xs), np.int32)
        return xs, self.grids[1].locate(codes[self.on[1]])

    def rectangles(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Rectangles:
        """The cells of boxes."""
        sides: list[list[Cells]] = []
        for j, grid in zip(self.on, self.grids, strict=True):
            lows, highs = boxes.lows[j, numbers], boxes.highs[j, numbers]
            first, last = grid.locate(lows), grid.locate(highs)
            ends = np.append(grid.cuts[1:] - 1, LAST)
            whole_first = first + (lows > grid.cuts[first]).astype(np.int32)
            whole_last = last - (highs < ends[last]).astype(np.int32)
            sides.append([first, last, whole_first, whole_last])
        if len(sides) == 1:
            sides.append([np.zeros(len(numbers), np.int32)] * 4)
        (x0, x1, wx0, wx1), (y0, y1, wy0, wy1) = sides
        return Rectangles(x0, x1, y0, y1, wx0, wx1, wy0, wy1)

    def others(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> list[int]:
        """Attributes that are not on the plane and that some box bounds."""
        return [
            j
            for j in range(len(boxes.lows))
            if j not in self.on
            and bool((boxes.lows[j, numbers] != MISSING).any() or (boxes.highs[j, numbers] != LAST).any())
        ]


def plane_attributes(schema: Schema, on: Any) -> tuple[int, ...] | None:
    """The attributes of an `on=` option: two names, or the one name of a schema of one attribute."""
    return None if on is None else named_attributes(schema, on, min(2, len(schema)))


def default_cells(n: int) -> int:
    """Cells along an axis for n boxes: their number grows with n, not with the domain.

    >>> default_cells(1_000), default_cells(256_000)
    (256, 4096)
    """
    return min(max(1 << int(8 * max(n, 1) ** 0.5).bit_length(), 2 * LEAST_AUTOMATIC), 8192)


def check_cells(cells: int | None) -> None:
    """Raise unless `cells` is a number of cells along an axis, or None."""
    if cells is not None and not LEAST_CELLS <= cells <= MOST_CELLS:
        raise OptionError(f"cells must be within {LEAST_CELLS} and {MOST_CELLS}, got {cells}")


def check_entries(n: int) -> None:
    """Raise when lists would have more entries than int32 can number."""
    if n > MOST_ENTRIES:
        raise CapacityError(
            f"'vcr' lists at most {MOST_ENTRIES:,} entries, but would need {n:,}; "
            "larger Lx= and Ly= or fewer cells= need fewer"
        )


def log_of_side(name: str, side: int | None) -> int | None:
    """The k of a maximal side 2**k given as an option."""
    if side is None:
        return None
    if not isinstance(side, int) or side < 1 or side & (side - 1) or side > MOST_CELLS:
        raise OptionError(f"{name} must be a power of two within 1 and {MOST_CELLS}, got {side!r}")
    return side.bit_length() - 1


# `vcr` as in its paper: a linked list of subscriptions per construct, changed in place.
#
# Source: Wu, Chen and Yu 2004 (structures.py). `storage="array"` keeps a header for each of the B Rx Ry
# constructs, `storage="hash"` only those in use, in a table whose size is prime; the id is mixed
# before the division, because ids in use lie close together (sec. 2.2.3). New entries go to the head
# of a list; taking out walks the list (sec. 2.4).
#
#     array      dtype   shape          meaning
#     heads      int32   B Rx Ry, or H  first node of a construct's list, -1 when it is empty
#     keys       int64   0, or H        hash: the id of the construct that has this place, -1 for none
#     nodes      int32   (>= n, 2)      a box, and the node that follows in its list, -1 at the end
#     needs      uint8   n_boxes        1 when a candidate must be compared with the box
#     distances  int64   |Cov|          the distance table (structures.py)
#     state      int64   5              papers/vcr/kernels.py
#
# Departures. Coordinates are cells of a plane (structures.py), so that any value has one; a box that crosses
# cells, or bounds other attributes too, is compared. A rectangle of width or height 0 has no construct: it is
# listed as if it were 1 wide, and compared. ConstructRectangles share seams and, under "od", overlap, so a
# point can meet a box twice: each event stamps the boxes it has met and skips those with its stamp. A point
# near the left or lower border works out the ids of its constructs one by one. Open addressing instead of
# chains: the table grows, to twice the size, before it is fuller than `max_load`. When a large share is taken
# out at once, one sweep over all lists does it.
#
# The plane and the sides are chosen when the first boxes come, and again when there are eight times as
# many. Lx and Ly are by default the powers of two next below the median width and height, which is what
# sec. 3.2 finds best.

DEFAULT_CELLS = 4096
MOST_SIDE = 5
REFIT = 8
SWEEP_SHARE = 8

_NONE = np.empty(0, np.uint8)


class _StoredRectangleLists(NamedTuple):
    """What a file holds: what was chosen for how many boxes, how many are to be compared, and the lists."""

    plane: Plane | None
    constructs: tuple[int, int, int, int]
    fitted: int
    n_needs: int
    lists: RectangleLists


class RectangleListsIndex(VcrIndex):
    """The rectangle index of the paper; see the module head."""

    def _configure(
        self,
        storage: str = "array",
        on: Any = None,
        decomposition: str = "sd",
        Lx: int | None = None,
        Ly: int | None = None,
        lookup: str = "distance",
        cells: int | None = None,
        table: int | None = None,
        max_load: float = 0.5,
        memory_limit: int | None = None,
    ) -> None:
        check_cells(cells)
        if decomposition not in ("sd", "od"):
            raise OptionError(f"decomposition must be 'sd' or 'od', got {decomposition!r}")
        if lookup not in ("distance", "enumerate"):
            raise OptionError(f"lookup must be 'distance' or 'enumerate', got {lookup!r}")
        if table is not None and (storage != "hash" or not 1 <= table < 2**31):
            raise OptionError(f"table= takes a size below 2**31, with storage='hash', got {table!r}")
        if not 0 < max_load < 1:
            raise OptionError(f"max_load must lie between 0 and 1, got {max_load!r}")
        self._hashed = storage == "hash"
        self._on = plane_attributes(self.schema, on)
        self._overlapped = decomposition == "od"
        self._sides = log_of_side("Lx", Lx), log_of_side("Ly", Ly)
        self._by_distance = lookup == "distance"
        self._cells = cells
        self._table_size = table
        self._max_load = max_load
        self._memory_limit = memory_limit

    def _reset(self) -> None:
        self._plane: Plane | None = None
        self._constructs = ConstructRectangles(1, 1, 0, 0)
        self._fitted = 0
        self._n_needs = 0
        self._lists = RectangleLists(
            heads=np.empty(0, np.int32),
            keys=np.empty(0, np.int64),
            nodes=np.empty((0, 2), np.int32),
            needs=np.empty(0, np.uint8),
            distances=np.empty(0, np.int64),
            state=np.array([-1, 0, 0, 0, 0], np.int64),
        )

    def _check_capacity(self, subs: Subscriptions) -> None:
        boxes, numbers = (
            ExpandedBoxes(subs.lows, subs.highs, subs.owners, subs.n_boxes),
            np.arange(subs.n_boxes),
        )
        plane, constructs = self._plane, self._constructs
        if plane is None:
            plane, constructs = self._choose(boxes, numbers)
        self._check_room(plane.rectangles(boxes, numbers), constructs, int(self._lists.state[2]))

    def _add(self, first: int, last: int) -> None:
        numbers = np.arange(first, last)
        catalog = self._catalog
        boxes = catalog.boxes
        if self._plane is None or last > REFIT * self._fitted + 1024:
            living = np.flatnonzero(catalog.alive[catalog.box_slots[:last]])
            plane, constructs = self._choose(boxes, living)
            try:
                self._check_room(plane.rectangles(boxes, living), constructs, 0)
            except CapacityError:
                if self._plane is None:
                    raise
                # what is there works, only less well; better than to fail after all was checked
                self._fitted = len(living)
            else:
                self._start(plane, constructs, len(living))
                self._lists = self._lists._replace(needs=np.zeros(last, np.uint8))
                numbers = living
        assert self._plane is not None
        self._lists = self._lists._replace(needs=grown(self._lists.needs, first, last))
        held = self._plane.rectangles(boxes, numbers)
        needs = ~held.exact | (held.x0 == held.x1)
        if len(self._plane.on) == 2:
            needs |= held.y0 == held.y1
        for j in self._plane.others(boxes, numbers):
            needs |= (boxes.lows[j, numbers] != MISSING) | (boxes.highs[j, numbers] != LAST)
        self._lists.needs[numbers] = needs
        self._n_needs += int(np.count_nonzero(needs))
        self._insert(held, numbers)

    def _choose(self, boxes: Boxes, numbers: Numbers) -> tuple[Plane, ConstructRectangles]:
        """The plane and the sides for these boxes."""
        cells = self._cells or DEFAULT_CELLS
        room = max(2**24, 1024 * len(numbers))
        while True:
            plane = Plane.fit(self.schema, self._on, boxes, numbers, cells)
            held = plane.rectangles(boxes, numbers)
            kx = _side(held.x0, held.x1) if self._sides[0] is None else self._sides[0]
            ky = _side(held.y0, held.y1) if self._sides[1] is None else self._sides[1]
            constructs = ConstructRectangles(*plane.shape, kx, ky if len(plane.on) == 2 else 0)
            fine = self._cells is None and cells > LEAST_AUTOMATIC
            if fine and not held.mostly_exact and cells > default_cells(len(numbers)) >> 2:
                # edges cross cells however fine these are, and each more is more nodes
                cells >>= 1
            elif fine and not self._hashed and 4 * constructs.n_constructs > room:
                cells >>= 1
            else:
                return plane, constructs

    def _check_room(self, held: Rectangles, constructs: ConstructRectangles, listed: int) -> None:
        """Raise CapacityError unless headers and nodes of these rectangles fit, beside those listed."""
        if not self._hashed:
            n = constructs.n_constructs
            check_fits(
                4 * n,
                self._memory_limit,
                f"'vcr' with a header for each of {n:,} constructs",
                "fewer cells=, storage='hash' or storage='runs' need less",
            )
        wanted = listed + self._count(held, constructs)
        check_entries(wanted)
        check_fits(
            8 * wanted,
            self._memory_limit,
            f"'vcr' with {wanted:,} list entries, {len(held.x0):,} rectangles being added,",
            "larger Lx= and Ly=, fewer cells= or storage='runs' need less",
        )

    def _count(self, held: Rectangles, constructs: ConstructRectangles) -> int:
        counts = np.empty(len(held.x0), np.int64)
        kernels.count_list_pieces(*held[:4], constructs.kx, constructs.ky, self._overlapped, counts)
        return int(counts.sum())

    def _start(self, plane: Plane, constructs: ConstructRectangles, n_boxes: int) -> None:
        """Make empty lists."""
        self._reset()
        self._plane, self._constructs, self._fitted = plane, constructs, n_boxes
        n = constructs.n_constructs
        if self._hashed:
            n = next_prime(self._table_size or 1024)
        self._lists = self._lists._replace(
            heads=np.full(n, -1, np.int32),
            keys=np.full(n if self._hashed else 0, -1, np.int64),
            distances=constructs.distances() if self._by_distance else np.empty(0, np.int64),
        )

    def _insert(self, held: Rectangles, numbers: Numbers) -> None:
        listed, used = int(self._lists.state[2]), int(self._lists.state[1])
        wanted = max(listed + self._count(held, self._constructs), used)
        self._lists = self._lists._replace(nodes=_with_room(self._lists.nodes, used, wanted))
        cutting = self._cutting()
        at = 0
        while at < len(numbers):
            most = int(self._max_load * len(self._lists.keys))
            at = kernels.insert(*held[:4], numbers, at, cutting, most, self._lists)
            if at < len(numbers):
                self._rehash(2 * len(self._lists.keys))

    def _rehash(self, size: int) -> None:
        size = next_prime(size)
        keys, heads = np.full(size, -1, np.int64), np.full(size, -1, np.int32)
        kernels.rehash(self._lists.keys, self._lists.heads, keys, heads, self._lists.state)
        self._lists = self._lists._replace(keys=keys, heads=heads)

    def _cutting(self) -> Cutting:
        c = self._constructs
        rooms = [np.empty((n >> k) + k + 2, np.int64) for n, k in ((c.rx, c.kx), (c.ry, c.ky)) for _ in "xy"]
        return Cutting(c.rx, c.kx, c.ky, self._overlapped, *rooms)

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        catalog = self._catalog
        numbers = catalog.box_numbers(slots)
        if self._plane is None or not len(numbers):
            return
        if SWEEP_SHARE * len(numbers) > catalog.n_living:
            flags = np.zeros(catalog.n_boxes, np.uint8)
            flags[numbers] = 1
            kernels.sweep(flags, self._lists)
            return
        held = self._plane.rectangles(catalog.boxes, numbers)
        kernels.remove(*held[:4], numbers, self._cutting(), self._lists)

    def _stab(self, codes: Codes) -> Rows:
        n = codes.shape[1]
        offsets = np.zeros(n + 1, np.int64)
        out = np.empty(max(1024, 16 * n), np.int32)
        if self._plane is None:
            return offsets, out[:0]
        boxes, constructs = self._catalog.boxes, self._constructs
        xs, ys = self._plane.locate(codes)
        others = [j for j in range(len(codes)) if j not in self._plane.on]
        tested = np.array([*self._plane.on, *others], np.int64)
        stamps = np.zeros(boxes.n, np.int32)
        progress = np.zeros(3, np.int64)
        lists = self._lists if self._n_needs else self._lists._replace(needs=_NONE)
        rx, _, kx, ky = constructs
        while not kernels.stab_lists(
            codes, xs, ys, rx, kx, ky, lists, tested, boxes.arrays, stamps, progress, offsets, out
        ):
            used = int(progress[1])
            more = np.empty(2 * len(out), np.int32)
            more[:used] = out[:used]
            out = more
        return offsets, out[: progress[1]]

    def _structure(self) -> _StoredRectangleLists:
        used = int(self._lists.state[1])
        lists = self._lists._replace(nodes=self._lists.nodes[:used])
        rx, ry, kx, ky = self._constructs
        return _StoredRectangleLists(self._plane, (rx, ry, kx, ky), self._fitted, self._n_needs, lists)

    def _take_structure(self, structure: _StoredRectangleLists) -> None:
        self._plane, constructs, self._fitted, self._n_needs, self._lists = structure
        self._constructs = ConstructRectangles(*constructs)

    def _check_structure(self) -> None:
        if self._plane is None:
            return
        lists, constructs, n_boxes = self._lists, self._constructs, self._catalog.n_boxes
        flat(lists, nodes=2)
        self._plane.check(len(self.schema))
        rx, ry, kx, ky = constructs
        hold("that constructs are those of a plane", (rx, ry) == self._plane.shape)
        hold("that constructs have sides", 0 <= kx < 16 and 0 <= ky < 16)
        if self._hashed:
            shaped("keys of lists", lists.keys, len(lists.heads))
            hold("that a table has room", bool((lists.keys == -1).any()))
        else:
            shaped("keys of lists", lists.keys, 0)
            shaped("heads of lists", lists.heads, constructs.n_constructs)
        # in a smaller plane no event is far enough from the border to use them
        if rx > 1 << kx and ry > 1 << ky:
            pivot = constructs.id(rx - 1 - (1 << kx), ry - 1 - (1 << ky), 1, 1)
            within("distances of constructs", lists.distances, constructs.n_constructs - pivot)
        shaped("nodes of lists", lists.nodes, len(lists.nodes), 2)
        shaped("states of lists", lists.state, 5)
        listed("lists", lists.nodes, 1, n_boxes, lists.heads, lists.state[:1])
        hold("that boxes are to be compared or not", not self._n_needs or len(lists.needs) >= n_boxes)

    def _structure_stats(self) -> dict[str, Any]:
        own = self._lists
        _, _, listed, _, active = own.state.tolist()
        c = self._constructs
        lists = 8 * int(self._lists.state[1])
        rest = (own.heads, own.keys, own.needs[: self._catalog.n_boxes], own.distances, own.state)
        stats: dict[str, Any] = {
            "bytes": lists + sum(array.nbytes for array in rest),
            "entries": listed,
            "activated": active,
            "headers": len(own.heads),
            "sides": (1 << c.kx, 1 << c.ky),
        }
        if self._hashed and len(own.keys):
            probes = np.zeros(2, np.int64)
            kernels.measure_probes(own.keys, own.heads, probes)
            stats["load_factor"] = round(active / len(own.keys), 4)
            stats["mean_probes"] = round(int(probes[0]) / max(active, 1), 3)
            stats["max_probes"] = int(probes[1])
        return stats


def next_prime(n: int) -> int:
    """The smallest prime that is not below n.

    >>> next_prime(1_800_000), next_prime(1)
    (1800017, 2)
    """
    n = max(n, 2)
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n += 1
    return n


def _with_room(nodes: npt.NDArray[np.int32], used: int, wanted: int) -> npt.NDArray[np.int32]:
    if wanted <= len(nodes):
        return nodes
    out = np.empty((max(wanted, len(nodes) * 3 // 2) if used else wanted, 2), np.int32)
    out[:used] = nodes[:used]
    return out


def _side(firsts: npt.NDArray[np.int32], lasts: npt.NDArray[np.int32]) -> int:
    """The logarithm of a maximal side for rectangles: next below the median."""
    if not len(firsts):
        return 0
    return min(max(int(np.median(lasts - firsts)), 1).bit_length() - 1, MOST_SIDE)
