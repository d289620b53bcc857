"""`vcr` in runs: the constructs of one size and row side by side, so that a point reads one slice a size.

The paper (index.py) looks up each of the (2 Lx + kx)(2 Ly + ky) constructs that may hold a point. But
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

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Found, Rows, restore_order
from rangecast.engine.boxes import Boxes, ExpandedBoxes
from rangecast.engine.checks import ascending, flat, hold, shaped, within
from rangecast.engine.parts import StaticIndex
from rangecast.engine.static_part import Part
from rangecast.errors import OptionError
from rangecast.memory import check_fits
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.vcr import kernels
from rangecast.papers.vcr.index import VcrIndex
from rangecast.papers.vcr.kernels import RectangleRuns
from rangecast.papers.vcr.plane import (
    LEAST_AUTOMATIC,
    Cells,
    Plane,
    Rectangles,
    check_cells,
    check_entries,
    default_cells,
    log_of_side,
    plane_attributes,
)
from rangecast.types.attributes import Codes

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

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
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
        while not kernels.stab(
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
