"""What an event would cost in each layout, counted on a sample of boxes and events.

Boxes that no equality tells apart can be laid out as `cells` on one or two attributes, with the others
checked, or as `bitmap`. Which is best depends on how many boxes hold an event's value on each attribute,
alone and in pairs, and on how many match. All of that is counted on SAMPLE boxes and EVENTS events
(engine/kernels.py gives a bit for each), scaled to the number of boxes, and weighed:

    bitmap     270 +  4 per attribute + 0.2 per word ANDed + 3.5 per survivor + 3.9 per match
    cells, 1   270 +  3 per attribute + 3.8 per candidate, and where others are checked 0.5 per word of two
    cells, 2   120 +  0.2 per candidate + 0.9 per box looked at + 48 per box in doubt, and where others are
               checked 0.95 per word of two

in nanoseconds per event. Words ANDed: 64 per block and attribute, until less than one box of a block is left.
Survivors: boxes that overlap the event's cell on every attribute, with as many cells as a bitmap has.

For cells on two attributes the sample gets the levels that all boxes would get (engine/layouts/cells.py).
Looked at: boxes listed in the event's cells that do not hold these whole. In doubt: boxes with an end in the
event's step, where a cell has more fine cells than a byte counts, or where fine cells do not tell codes
apart; their codes are read. Both can be all boxes while few are candidates: on `near-misses` every end of one
attribute lies next to the events, two in three boxes are in doubt, and what was estimated at 64 us without
them takes 3,700. Counting them takes some milliseconds per pair of attributes, so it is done only where a
pair would be the best without them.

The numbers were fitted to the times of these layouts on workloads of several attributes, 100,000
subscriptions and 400 events per batch (benchmark "planning"; least error of the logarithm, then rounded):
those of a bitmap and of cells on one attribute long ago, those of cells on two when these had their bounds in
bytes and a block of a bitmap was 2,048 boxes. With events, half of the latter are within 1.2 of the time,
nine in ten within 1.5, and the worst is 4.5 too low (longitude and latitude, where nearly nothing is looked
at). Before, what is looked at was told by boxes widened by a third of their width, and doubt was not known
of: that was 14 times too low on `market` and 60 times on `near-misses`.
REIN's workload is left out: there cells take 400 times as long as the bitmap, and are taken for 70 times.
With events, the layout of the least estimate is the best one on all 13 workloads, or within 4 % of it. By
subscriptions alone it is so on twelve; on `near-misses` the bitmap is taken, at 1.1 to 1.6 times the time of
cells on the attribute that only events tell.

Whether boxes of one outline get sorted lists (costs.py) is still judged by those widened boxes, and by
corners alone, as told below: a sample of one outline has too few values of an equality to tell who shares a
cell with whom, and the other way is not cells for this outline alone. By the counts above, one of the four
outlines of `market` got none, and an event took 14 us instead of 3.3.

Before events were seen they are made up, from boxes that include those that go by an equality. One half are
corners of boxes: that is where an event meets the ends of many. The other half are centres: who asks for a
range asks for what is in it. From corners alone each of four predicates seems to hold for half of the events,
a match in sixteen, and a bitmap was taken where nearly every box matches and writing the answer is all
(`mostly-matching`, 1.7 to 3 times the best layout). From centres alone nobody is in doubt, and on
`near-misses` cells on two attributes were taken, at 340 times the best. With points anywhere between the ends
instead of centres, the choices were those by corners.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine import kernels
from rangecast.engine.boxes import Boxes
from rangecast.engine.grid import Grid
from rangecast.engine.layouts.bitmap import BLOCK, choose_cells
from rangecast.engine.layouts.cells import BUDGET, assign_levels, steps_of
from rangecast.engine.layouts.sorted_lists_kernels import CLOSED, FALLING, RISING
from rangecast.engine.packed import CELLS, fit_grid
from rangecast.types.attributes import LAST, MISSING, PRESENT, Codes

# by how many attributes a layout goes by, none for a bitmap: what each count of an event costs
NS: tuple[dict[str, float], ...] = (
    {"event": 270, "attributes": 4, "words": 0.2, "survivors": 3.5, "matches": 3.9},
    {"event": 270, "attributes": 3, "candidates": 1.5, "checks": 2.3, "check_words": 0.5},
    {"event": 120, "candidates": 0.2, "looked_at": 0.9, "doubtful": 48, "check_words": 0.95},
)  # fmt: skip
ROUGH_NS: dict[str, float] = {
    "event": 120, "attributes": 3, "candidates": 0.3, "near": 0.6, "checks": 3.2, "check_words": 0.5,
}  # fmt: skip
MARGIN = 0.35
SAMPLE = 2048
EVENTS = 64
_SINGLES, _PAIRED = 3, 5
_Bits = npt.NDArray[np.uint64]
Corrections = dict[tuple[str, tuple[int, ...]], float]
"""By kind and attributes, how many times its estimate a layout was measured to cost."""


class Layout(NamedTuple):
    """A way to lay out boxes: a kind, the attributes it goes by, and the nanoseconds of an event."""

    kind: str
    on: tuple[int, ...]
    ns: float


def draw_boxes(numbers: npt.NDArray[np.int64], shift: float = 0.0) -> npt.NDArray[np.int64]:
    """At most SAMPLE of the numbers, evenly spaced; `shift` moves all by that much of a space."""
    n = min(SAMPLE, len(numbers))
    drawn: npt.NDArray[np.int64] = numbers[((np.arange(n) + shift) * (len(numbers) / n)).astype(np.int64)]
    return drawn


def weigh_layouts(
    boxes: Boxes,
    sample: npt.NDArray[np.int64],
    n: int,
    used: tuple[int, ...],
    events: Codes,
    known: tuple[int, ...] = (),
    factors: Corrections | None = None,
) -> list[Layout]:
    """Layouts for n boxes, the cheapest first; `known` are attributes that one in use goes by.

    Cells on two attributes are among them as far as it was worth counting what they would look at.
    """
    weighed = Weighed.of(boxes, sample, n, used, events)
    held = tuple(used.index(j) for j in known)
    ways = weighed.ways()
    least = {on: weighed.least_ns(on) for on in ways if len(on) > 1 and on != held}
    layouts: list[Layout] = []

    def add(on: tuple[int, ...]) -> None:
        one = Layout("cells" if on else "bitmap", tuple(used[k] for k in on), weighed.ns(on))
        layouts.extend(corrected([one], factors or {}))
        layouts.sort(key=by_ns)

    for on in {on: None for on in (*ways, held) if on not in least}:
        add(on)
    for on in sorted(least, key=least.__getitem__):
        one, *_ = corrected([Layout("cells", tuple(used[k] for k in on), least[on])], factors or {})
        if one.ns < layouts[0].ns:
            add(on)
    return layouts


def least_roughly(
    boxes: Boxes, sample: npt.NDArray[np.int64], n: int, used: tuple[int, ...], events: Codes
) -> float:
    """What an event costs in the best layout for n boxes, without the levels of cells."""
    weighed = Weighed.of(boxes, sample, n, used, events)
    return min(weighed.rough_ns(on) for on in weighed.ways())


def corrected(layouts: list[Layout], factors: Corrections) -> list[Layout]:
    """Layouts at what was measured of them, where it was."""
    return [one._replace(ns=one.ns * factors.get((one.kind, one.on), 1.0)) for one in layouts]


def by_ns(layout: Layout) -> float:
    """What layouts are sorted by."""
    return layout.ns


class _Axis(NamedTuple):
    """One attribute of a sample on a grid: whether that tells all ends apart, the fine cells of both ends of
    boxes, and those of events."""

    grid: Grid
    exact: bool
    firsts: npt.NDArray[np.int32]
    lasts: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]


class Weighed:
    """Counts on a sample, as means an event over n boxes."""

    def __init__(self, values: Codes, lows: Codes, highs: Codes, n: int, n_sampled: int) -> None:
        self.values, self.lows, self.highs = values, lows, highs
        self.n = n
        self._n_sampled = n_sampled
        self._axes: dict[int, _Axis] = {}
        self._wide: _Bits | None = None
        self._scale: float = n / (n_sampled * values.shape[1])
        self.bits = _mark(values, lows, highs)
        self.shares = [self._count(bits) / n for bits in self.bits]
        self.matches = self._count(np.bitwise_and.reduce(self.bits, axis=0))

    @classmethod
    def of(
        cls, boxes: Boxes, sample: npt.NDArray[np.int64], n: int, used: tuple[int, ...], events: Codes
    ) -> Weighed:
        """Counts for n boxes, of which a sample is looked at, on some attributes."""
        return cls(_thinned(events, used), *_bounds(boxes, sample, used), n, len(sample))

    def holders(self, on: tuple[int, ...]) -> float:
        """How many boxes hold an event on all of some attributes, by their places among those used."""
        return self._count(np.bitwise_and.reduce(self.bits[list(on)], axis=0)) if on else float(self.n)

    def _count(self, bits: _Bits) -> float:
        return int(np.bitwise_count(bits).sum()) * self._scale

    def ways(self) -> list[tuple[int, ...]]:
        """What layouts go by: nothing, the attribute or the two that let least through, by their places."""
        order = np.argsort(self.shares, kind="stable").tolist()
        pairs = itertools.combinations(sorted(order[:_PAIRED]), 2)
        return [(), *((k,) for k in order[:_SINGLES]), *pairs]

    def ns(self, on: tuple[int, ...]) -> float:
        """What an event costs in cells on some attributes, by their places among those used, or in a bitmap
        where there are none."""
        return _weigh(NS[len(on)], self.counts(on))

    def least_ns(self, on: tuple[int, ...]) -> float:
        """The same by candidates alone, were nothing else looked at."""
        return _weigh(NS[len(on)], self._candidate_counts(on))

    def rough_ns(self, on: tuple[int, ...]) -> float:
        """The same, with boxes near an event on two attributes for those looked at."""
        if len(on) < 2:
            return self.ns(on)
        if self._wide is None:
            self._wide = _mark(self.values, *_widened(self.lows, self.highs))
        near = self._count(np.bitwise_and.reduce(self._wide[list(on)], axis=0))
        return _weigh(ROUGH_NS, {**self._candidate_counts(on), "near": near})

    def counts(self, on: tuple[int, ...]) -> dict[str, float]:
        """What an event costs by, for a layout; see the module head."""
        if not on:
            return self._bitmap_counts()
        counts = self._candidate_counts(on)
        return counts | self._plane_counts(on) if len(on) > 1 else counts

    def _candidate_counts(self, on: tuple[int, ...]) -> dict[str, float]:
        n_checked = len(self.bits) - len(on)
        candidates = self.holders(on)
        checks = candidates if n_checked else 0.0
        return {
            "attributes": float(n_checked), "candidates": candidates, "checks": checks,
            "check_words": checks * (n_checked + 1 >> 1),
        }  # fmt: skip

    def _plane_counts(self, on: tuple[int, ...]) -> dict[str, float]:
        """Boxes that cells on two attributes would have an event compare, and those in doubt after that."""
        n = self._n_sampled
        axes = [self._axis(k) for k in on]
        grids, exact = [axis.grid for axis in axes], [axis.exact for axis in axes]
        firsts, lasts = np.stack([axis.firsts for axis in axes]), np.stack([axis.lasts for axis in axes])
        places = np.stack([axis.places for axis in axes])
        levels, shifts, _ = assign_levels(firsts, lasts, grids, BUDGET, self.n / n)
        sides, steps = shifts[levels].T, steps_of(shifts, exact).downs[levels].T
        unsure = (steps > 0) | ~np.array(exact)[:, None]
        # an open end lies in no cell
        is_open = lasts == np.array([[grid.n_cells - 1] for grid in grids])
        first, last = firsts.astype(np.int64), lasts.astype(np.int64)

        def holders(lows: Codes, highs: Codes) -> _Bits:
            room = np.stack([np.full_like(self.lows[:2], LAST), np.full_like(self.highs[:2], MISSING)])
            room[0, :, :n], room[1, :, :n] = lows, highs
            both: _Bits = np.bitwise_and.reduce(_mark(places.astype(np.int64), *room), axis=0)
            return both

        touched = holders(first >> sides << sides, ((last >> sides) + 1 << sides) - 1)
        whole = holders(
            (first + (1 << sides) - 1) >> sides << sides,
            np.where(is_open, LAST, (last + 1 >> sides << sides) - 1),
        )
        near = holders(first >> steps << steps, ((last >> steps) + 1 << steps) - 1)
        sure = holders(
            np.where(unsure & (first > 0), (first >> steps) + 1 << steps, first),
            np.where(is_open, LAST, np.where(unsure, (last >> steps << steps) - 1, last)),
        )
        return {"looked_at": self._count(touched & ~whole), "doubtful": self._count(near & ~sure)}

    def _axis(self, k: int) -> _Axis:
        """The sample on a grid of one attribute, fitted when it is first asked for."""
        if k not in self._axes:
            lows, highs = self.lows[k, : self._n_sampled], self.highs[k, : self._n_sampled]
            grid, exact = fit_grid(lows, highs, CELLS)
            self._axes[k] = _Axis(grid, exact, *map(grid.locate, (lows, highs, self.values[k])))
        return self._axes[k]

    def bitmap_cells(self) -> int:
        """How many cells per attribute a bitmap over all the boxes would have."""
        held = (self.lows <= self.highs).any(axis=0)
        shares, ends = np.ones((2, len(self.lows)))
        for k in range(len(self.lows)):
            lows, highs = self.lows[k, held], self.highs[k, held]
            own = np.sort(ends_of(lows, highs))
            inside = np.searchsorted(own, highs, "right") - np.searchsorted(own, lows, "right")
            shares[k] = float(inside.mean()) / len(own) if len(own) else 1.0
            ends[k] = len(own) / max(len(lows), 1)
        return choose_cells(shares, ends, self.n)

    def _bitmap_counts(self) -> dict[str, float]:
        cells = _mark(*_coarse(self.values, self.lows, self.highs, self.bitmap_cells()))
        left = np.full_like(cells[0], 2**64 - 1)
        depth = 0
        for k in np.argsort(self.shares, kind="stable").tolist():
            if depth and self._count(left) / self.n * BLOCK < 1.0:
                break
            left &= cells[k]
            depth += 1
        survivors = self._count(np.bitwise_and.reduce(cells, axis=0))
        return {
            "attributes": float(len(cells)), "words": self.n / 64 * depth, "survivors": survivors,
            "matches": self.matches,
        }  # fmt: skip


def _weigh(weights: dict[str, float], counts: dict[str, float]) -> float:
    return weights["event"] + sum(weights.get(name, 0.0) * count for name, count in counts.items())


def _mark(values: Codes, lows: Codes, highs: Codes) -> _Bits:
    out = np.empty((len(values), values.shape[1], lows.shape[1] // 64), np.uint64)
    kernels.mark_holders(values, lows, highs, out)
    return out


def _bounds(boxes: Boxes, numbers: npt.NDArray[np.int64], used: tuple[int, ...]) -> tuple[Codes, Codes]:
    """The bounds of a sample, filled up to whole words by boxes that hold nothing."""
    room = -(-len(numbers) // 64) * 64
    lows = np.full((len(used), room), LAST, np.int64)
    highs = np.full((len(used), room), MISSING, np.int64)
    lows[:, : len(numbers)], highs[:, : len(numbers)] = boxes.columns(used, numbers)
    return lows, highs


def ends_of(lows: Codes, highs: Codes) -> Codes:
    """The end points of one attribute that are ends indeed, each followed by a value beyond."""
    return np.concatenate(
        [lows[(lows > PRESENT) & (lows < LAST)], highs[(highs > MISSING) & (highs < LAST)] + 1]
    )


def invent_events(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: tuple[int, ...], centres: bool = True
) -> Codes:
    """Events at corners of boxes and at centres, in turns: attributes that go together in boxes do so in them
    too."""
    rng = np.random.default_rng(len(numbers))
    picked = rng.choice(numbers, EVENTS)
    central = (np.arange(EVENTS) % 2 == 1) & centres
    values = np.zeros((boxes.n_attributes, EVENTS), np.int64)
    for j in used:
        lows, highs = boxes.column(j, numbers)
        ends = np.concatenate([lows[lows > PRESENT], highs[(highs > MISSING) & (highs < LAST)]])
        low, high = boxes.column(j, picked)
        has_low, has_high = low > PRESENT, (high > MISSING) & (high < LAST)
        upper = has_high & (~has_low | (rng.random(EVENTS) < 0.5))
        any_end = rng.choice(ends, EVENTS) if len(ends) else np.zeros(EVENTS, np.int64)
        corners = np.where(upper, high, np.where(has_low, low, any_end))
        # halved first, for the sum of two codes may be none; what is open on one side has no centre
        middles = (low >> 1) + (high >> 1) + (low & high & 1)
        outer = np.where(has_high, np.minimum(any_end, high), any_end)
        outer = np.where(has_low, np.maximum(any_end, low), outer)
        values[j] = np.where(central, np.where(has_low & has_high, middles, outer), corners)
    return values


def _thinned(events: Codes, used: tuple[int, ...]) -> Codes:
    picked = np.linspace(0, events.shape[1] - 1, min(EVENTS, events.shape[1])).astype(np.int64)
    return np.ascontiguousarray(events[np.ix_(np.array(used), picked)])


def _coarse(values: Codes, lows: Codes, highs: Codes, n_cells: int) -> tuple[Codes, Codes, Codes]:
    """Values and bounds as so many cells that hold about equally many ends."""
    out = np.empty_like(values), np.empty_like(lows), np.empty_like(highs)
    for k in range(len(values)):
        ends = np.sort(ends_of(lows[k], highs[k]))
        at = np.linspace(0, len(ends) - 1, n_cells if len(ends) else 0).astype(np.int64)
        cuts = np.unique(ends[at])
        for cells, codes in zip(out, (values[k], lows[k], highs[k]), strict=True):
            cells[k] = np.searchsorted(cuts, codes, "right")
        # boxes that only fill up the last word hold nothing here either
        out[1][k][lows[k] > highs[k]] = len(cuts) + 1
    return out


def _widened(lows: Codes, highs: Codes) -> tuple[Codes, Codes]:
    """Bounds moved outward by a share of their distance; an open end counts as the outermost one."""
    out = lows.copy(), highs.copy()
    for k in range(len(lows)):
        ends = ends_of(lows[k], highs[k])
        if not len(ends):
            continue
        low = np.maximum(lows[k], ends.min()).astype(np.float64)
        high = np.minimum(highs[k], ends.max()).astype(np.float64)
        by = np.minimum(np.maximum(high - low, 0.0) * MARGIN, 2.0**61).astype(np.int64)
        bounded = (np.abs(low) < 2.0**61) & (np.abs(high) < 2.0**61) & (lows[k] <= highs[k])
        closed = bounded & (lows[k] > PRESENT)
        out[0][k][closed] -= by[closed]
        closed = bounded & (highs[k] < LAST)
        out[1][k][closed] += by[closed]
    return out


# Boxes grouped by outline, and the outlines that sorted lists (engine/layouts/sorted_lists.py) suit better
# than other paths.
#
# The outline of a box is which attributes it bounds, and how. Subscriptions of people come in a few outlines,
# for they are made by a few forms and screens:
#
#     bound     low end       high end
#     equal     the same code at both ends
#     rising    a value       none
#     falling   none          a value
#     closed    a value       a larger value
#     odd       any other: those that hold a missing value and some others
#
# For each outline with FEWEST boxes or more it is counted on samples, as in costs.py, how many boxes an
# event would look at in lists by one of its equalities, sorted by one of its other attributes. In nanoseconds
# per event, judged by runs of `market` with 200,000 boxes, and not fitted:
#
#     sorted lists     100 + 12 per halving of the list + 0.4 per member read, 0.8 if closed, + 1.3 per check
#     lists by value   40 + 1.5 per member
#
# Sorted lists are taken unless lists by value, `cells` or a `bitmap` over the same boxes promise to be UNSURE
# times cheaper: what sorted lists cost is what is read of them, while what cells cost depends on how boxes
# lie in them, of which a sample says less.
#
# What `market` took, 200,000 boxes of four outlines, 5,000 events per batch, in turns: 4.4 us per event by
# this, 19 by a bitmap, 197 by cells on two attributes; the scan, for 100 of the events, 464. One event at a
# time it is 97 us beside 76 of the bitmap: sorted lists have no path for few events yet.

FEWEST = 1024
MOST_OUTLINES = 16
MOST_ATTRIBUTES = 32
MANY_ALONE = 16_384
SAMPLED_BOXES = 8192
UNSURE = 1.5
_NONE, _EQUAL, _RISING, _FALLING, _CLOSED, _ODD = range(6)
_FORMS = {_RISING: RISING, _FALLING: FALLING, _CLOSED: CLOSED}


class Outline(NamedTuple):
    """Some boxes of one outline, about how many there are, and how they bound each attribute, by number."""

    sample: npt.NDArray[np.int64]
    n: int
    bounds: dict[int, int]


class SortedChoice(NamedTuple):
    """Sorted lists for the boxes of an outline: by value of `on` (-1 for one list), sorted by `by`."""

    bounds: dict[int, int]
    on: int
    by: int
    form: int
    checked: list[int]
    ns: float

    @property
    def attributes(self) -> tuple[int, ...]:
        """The attributes that they go by."""
        return (self.by,) if self.on < 0 else (self.on, self.by)


def find_outlines(boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int]) -> list[Outline]:
    """The outlines of many boxes, those with most first, as far as a sample tells."""
    sample = numbers[:: max(1, len(numbers) // SAMPLED_BOXES)]
    kinds = np.stack([_kinds(*boxes.column(j, sample)) for j in used])
    outlines, of_boxes, counts = np.unique(kinds, axis=1, return_inverse=True, return_counts=True)
    found = []
    for k in np.argsort(-counts, kind="stable")[:MOST_OUTLINES].tolist():
        n = int(counts[k] * (len(numbers) / len(sample)))
        if n >= FEWEST:
            own = zip(used, outlines[:, k].tolist(), strict=True)
            found.append(
                Outline(sample[of_boxes.ravel() == k], n, {j: kind for j, kind in own if kind != _NONE})
            )
    return found


def assign_boxes(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int], choices: list[SortedChoice]
) -> list[npt.NDArray[np.int64]]:
    """The boxes of each choice: those of its outline, exactly."""
    if not choices:
        return []
    masks = np.ones((len(choices), len(numbers)), bool)
    for j in used:
        kinds = _kinds(*boxes.column(j, numbers))
        for mask, choice in zip(masks, choices, strict=True):
            mask &= kinds == choice.bounds.get(j, _NONE)
    return [numbers[mask] for mask in masks]


def _kinds(lows: Codes, highs: Codes) -> npt.NDArray[np.int8]:
    kinds = np.full(len(lows), _CLOSED, np.int8)
    kinds[lows == MISSING] = _ODD
    kinds[(lows == PRESENT) & (highs < LAST)] = _FALLING
    kinds[highs == LAST] = _RISING
    kinds[lows == highs] = _EQUAL
    kinds[(lows == MISSING) & (highs == LAST)] = _NONE
    return kinds


def choose_sorted(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int], events: Codes | None
) -> list[SortedChoice]:
    """The outlines for which sorted lists are best, and how they are laid out."""
    if not 2 <= len(used) <= MOST_ATTRIBUTES or len(numbers) < FEWEST:
        return []
    chosen = []
    for outline in find_outlines(boxes, numbers, used):
        if len(outline.bounds) < 2:
            # one attribute has paths of its own
            continue
        own = tuple(outline.bounds)
        seen = events
        if seen is None:
            seen = invent_events(boxes, draw_boxes(numbers, 0.5), own, centres=False)
        weighed = Weighed.of(boxes, draw_boxes(outline.sample), outline.n, own, seen)
        best = _best_sorted(outline.bounds, weighed)
        if best is not None and best.ns < UNSURE * _other_ns(boxes, outline, weighed, seen):
            chosen.append(best)
    return chosen


def _best_sorted(bounds: dict[int, int], weighed: Weighed) -> SortedChoice | None:
    """The cheapest sorted lists for boxes that bound attributes in this way."""
    places = {j: k for k, j in enumerate(bounds)}
    best: SortedChoice | None = None
    for on in [j for j, kind in bounds.items() if kind == _EQUAL] + [-1]:
        listed = () if on < 0 else (places[on],)
        length = max(weighed.holders(listed), 2.0)
        for by, kind in bounds.items():
            if kind not in _FORMS:
                continue
            held = (*listed, places[by])
            left = weighed.holders(held)
            ns = 100 + 12 * float(np.log2(length)) + (0.8 if kind == _CLOSED else 0.4) * left
            # the most selective of the others first
            checked = sorted(
                (j for j in bounds if j not in (on, by)), key=lambda j: weighed.shares[places[j]]
            )
            for j in checked:
                ns += 1.3 * left
                held = (*held, places[j])
                left = weighed.holders(held)
            if best is None or ns < best.ns:
                best = SortedChoice(bounds, on, by, _FORMS[kind], checked, ns)
    return best


def _other_ns(boxes: Boxes, outline: Outline, weighed: Weighed, events: Codes) -> float:
    """What the boxes of an outline cost on the path that they would have otherwise."""
    own = tuple(outline.bounds)
    best = least_roughly(boxes, draw_boxes(outline.sample), outline.n, own, events)
    for k, j in enumerate(own):
        if outline.bounds[j] == _EQUAL:
            best = min(best, 40 + 1.5 * weighed.holders((k,)))
    return best


def alone_on(boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int]) -> npt.NDArray[np.int32]:
    """The attribute that each box bounds, if it bounds no other of those in use; -1 for any other box."""
    found = np.full(len(numbers), -1, np.int32)
    several = np.zeros(len(numbers), bool)
    for j in used:
        for first, lows, highs in boxes.column_pieces(j, numbers):
            rows = first + np.flatnonzero((lows != MISSING) | (highs != LAST))
            several[rows] |= found[rows] >= 0
            found[rows] = j
    found[several] = -1
    return found


def many_alone(boxes: Boxes, numbers: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Attributes that many boxes bound and nothing else, with these boxes: a path of one attribute for each,
    where one layout for all would look at the other attributes as well. None where one path will do."""
    if len(numbers) < MANY_ALONE:
        return []
    used = boxes.bounded(numbers)
    if not 1 < len(used) <= MOST_ATTRIBUTES:
        return []
    of_boxes = alone_on(boxes, numbers, used)
    counts = np.bincount(of_boxes + 1, minlength=max(used) + 2)[1:]
    return [(j, numbers[of_boxes == j]) for j in used if counts[j] >= MANY_ALONE]
