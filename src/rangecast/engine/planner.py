"""What an event would cost in each layout, estimated on a sample of boxes and events.

Boxes that no equality tells apart can be laid out as `cells` on one or two attributes, with the others
checked, or as `bitmap`. Which is best depends on how many boxes hold an event's value on each attribute,
alone and in pairs, and on how many match. All of that is counted on SAMPLE boxes and EVENTS events
(kernels/engine/planner.py gives a bit for each), scaled to the number of boxes, and weighed:

    bitmap     270 +  4 per attribute + 0.2 per word ANDed + 3.5 per survivor + 3.9 per match
    cells, 1   270 +  3 per attribute + 1.5 per candidate + what a check costs
    cells, 2   120 +  3 per attribute + 0.3 per candidate + 0.6 per entry looked at + what a check costs
    a check    2.3 per candidate, 3.2 on two, + 0.5 per word of two packed attributes

in nanoseconds per event. Words ANDed: 64 per block and attribute, until less than one box of a block is left.
Survivors: boxes that overlap the event's cell on every attribute, with as many cells as a bitmap has.
Looked at: boxes that hold the event when widened by MARGIN of their width, for that is about how large a
cell is beside a box where a budget of bytes is kept.

The numbers were fitted to the times of these layouts on 13 workloads of several attributes, 100,000
subscriptions and 400 events per batch (least error of the logarithm, then rounded). With events, half of the
64 estimates are within 1.3 of the time, nine in ten within 1.9, and the worst is 4.9 too low (cells on
longitude and latitude, whose grid is cut at quantiles); on each workload the layout of the least estimate
was that of the least time, or within 1 % of it.

They were tried again when a block of a bitmap had become 1,024 boxes (benchmark "planning", 13 workloads,
a busy machine), and left as they are: with events, the layout of the least estimate is the best one on eleven
and takes 1.03 times as long on another. Once more when cells on two attributes had their bounds in bytes: on
eleven it is the best one or within 1 %, on `mostly-matching` it takes 1.22 times as long. On `market`, which
`auto` lays out as sorted lists, cells on symbol and close are taken for 4 us and take 75, where a bitmap
takes 11. Before they took 19: nine tenths of it now goes into codes of boxes whose bounds are in doubt, in
cells of more fine cells than a byte counts.

Nothing is measured when an index is opened: what an estimate is worth on a machine, and for these boxes, is
told by the batches, as below.

Before events were seen they are made up: corners of boxes, those included that go by an equality. Events as
they come can differ from that in all that matters. On eight attributes as wide as each other, the one on
which all events fail is known only from events; so is that nearly every box matches, which makes a bitmap
expensive. So before events were seen a bitmap is preferred where it costs up to ROBUST times more: what
it costs depends on events least.

Building costs about BUILD_NS nanoseconds per box: so many, more per attribute, and more again for one whose
ends span too many codes for a cell each.

When a layout is weighed again, and when it is worth building another.

Weighing takes about a millisecond per attribute, so a part is weighed only when five times that was spent on
its events, and again when twice as much was spent as at the last time.

Another layout must promise to be WORTH times cheaper, and what was lost without it, of the time spent since
the part was built, must exceed what building it costs. So a choice that was wrong costs at most about as
much again as the right one would have, however many events come. Each time the same boxes are laid out again
the loss must be twice as large: events that change their nature every hour do not keep an index building.
Time is what the part counted, or as estimated where that is more: an estimate from subscriptions alone may be
far off, and of threads that count at once one may be lost.

Estimates are checked against that. The least time per event of the last LOOKED_AT batches of TELLING events
and more is what a layout costs here; smaller batches pay for calls more than for matches, and the least is
what a busy machine does not change. Where the estimate is off by more than OFF, what was measured replaces
it, for this layout of these boxes, also when another one is in use by then.

Some of the events that an index was asked about lately, as codes.

They must not show in the time of a match: a batch is looked at only when EVERY events have passed since the
last look, or SELDOM once there are enough, and gives at most OF_BATCH of its events. So one event at a time
costs an addition and a comparison, and now and then a copy of one column.

Threads that match at once may both count or write here. A count may then be lost and a column be a mixture
of two events: these are statistics, and no answer depends on them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.array_file import UNSAVED
from rangecast.engine.bitmap import BLOCK, choose_cells
from rangecast.engine.catalog import Boxes
from rangecast.engine.packed_bounds import CELLS as FINE_CELLS
from rangecast.kernels.engine import planner as kernels
from rangecast.types.attributes import LAST, MISSING, PRESENT, Codes

# by how many attributes a layout goes by, none for a bitmap: what each count of an event costs
NS: tuple[dict[str, float], ...] = (
    {"event": 270, "attributes": 4, "words": 0.2, "survivors": 3.5, "matches": 3.9},
    {"event": 270, "attributes": 3, "candidates": 1.5, "checks": 2.3, "check_words": 0.5},
    {
        "event": 120, "attributes": 3, "candidates": 0.3, "looked_at": 0.6, "checks": 3.2, "check_words": 0.5,
    },
)  # fmt: skip
SAMPLE = 2048
EVENTS = 64
MARGIN = 0.35
ROBUST = 1.3
OFF, TELLING, LOOKED_AT, FEWEST_BATCHES = 3.0, 256, 8, 3
BUILD_NS = {"cells": (120.0, 12.0, 90.0), "bitmap": (200.0, 100.0, 150.0)}
_SINGLES, _PAIRED = 3, 5
_Bits = npt.NDArray[np.uint64]
Corrections = dict[tuple[str, tuple[int, ...]], float]
"""By kind and attributes, how many times its estimate a layout was measured to cost."""


class Layout(NamedTuple):
    """A way to lay out boxes: a kind, the attributes it goes by, and the nanoseconds of an event."""

    kind: str
    on: tuple[int, ...]
    ns: float


@dataclass(frozen=True)
class Plan:
    """What was chosen, the next best, and whether by events or by subscriptions alone.

    The sample holds box numbers, so that the choice can be weighed again; a plan from a file has none.
    """

    chosen: Layout
    runner_up: Layout | None
    basis: str
    used: tuple[int, ...]
    sample: npt.NDArray[np.int64] | None = field(default=None, compare=False, metadata=UNSAVED)


def choose_layout(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    used: list[int],
    around: npt.NDArray[np.int64],
    events: Codes | None,
    factors: Corrections | None = None,
) -> Plan:
    """The cheapest layout for boxes that bound these attributes, among all boxes `around` them."""
    own = tuple(used)
    sample = draw_boxes(numbers)
    basis = "events"
    if events is None:
        basis = "subscriptions"
        # not the boxes of the sample, each of which would meet itself
        events = invent_events(boxes, draw_boxes(around, 0.5), own)
    layouts = weigh_layouts(boxes, sample, len(numbers), own, events, factors=factors)
    if basis == "subscriptions":
        # made-up events may be wrong, and a bitmap depends on them least
        layouts.sort(key=lambda layout: layout.ns / (ROBUST if layout.kind == "bitmap" else 1.0))
    return Plan(layouts[0], layouts[1], basis, own, sample)


def build_ns(
    layout: Layout, boxes: Boxes, sample: npt.NDArray[np.int64], n: int, used: tuple[int, ...]
) -> float:
    """About how long it takes to build a layout of n boxes."""
    fixed, each, wide = BUILD_NS[layout.kind]
    spans = [_ends(*boxes.column(j, sample)).astype(np.float64) for j in used]
    n_wide = sum(bool(len(ends)) and float(np.ptp(ends)) > FINE_CELLS for ends in spans)
    return n * (fixed + each * len(used) + wide * n_wide)


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
    """Layouts for n boxes, the cheapest first; `known` are attributes that one in use goes by."""
    weighed = Weighed.of(boxes, sample, n, used, events)
    order = np.argsort(weighed.shares, kind="stable").tolist()
    singles = order[:_SINGLES]
    held = tuple(used.index(j) for j in known)
    ons: list[tuple[int, ...]] = [(k,) for k in singles]
    ons += list(itertools.combinations(sorted(order[:_PAIRED]), 2))
    if held and held not in ons:
        ons.append(held)
    layouts = [Layout("bitmap", (), weighed.ns(()))]
    layouts += [Layout("cells", tuple(used[k] for k in on), weighed.ns(on)) for on in ons]
    return sorted(corrected(layouts, factors or {}), key=_by_ns)


def corrected(layouts: list[Layout], factors: Corrections) -> list[Layout]:
    """Layouts at what was measured of them, where it was."""
    return [one._replace(ns=one.ns * factors.get((one.kind, one.on), 1.0)) for one in layouts]


def _by_ns(layout: Layout) -> float:
    return layout.ns


class Weighed:
    """Counts on a sample, as means an event over n boxes."""

    def __init__(self, values: Codes, lows: Codes, highs: Codes, n: int, n_sampled: int) -> None:
        self.values, self.lows, self.highs = values, lows, highs
        self.n = n
        self._scale: float = n / (n_sampled * values.shape[1])
        self.bits = _mark(values, lows, highs)
        self.shares = [self._count(bits) / n for bits in self.bits]
        self.matches = self._count(np.bitwise_and.reduce(self.bits, axis=0))
        self._wide: _Bits | None = None

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

    def ns(self, on: tuple[int, ...]) -> float:
        """What an event costs in cells on some attributes, by their places among those used, or in a bitmap
        where there are none."""
        weights = NS[len(on)]
        return weights["event"] + sum(weights[name] * count for name, count in self.counts(on).items())

    def counts(self, on: tuple[int, ...]) -> dict[str, float]:
        """What an event costs by, for a layout; see the module head."""
        if not on:
            return self._bitmap_counts()
        n_checked = len(self.bits) - len(on)
        candidates = self._count(np.bitwise_and.reduce(self.bits[list(on)], axis=0))
        checks = candidates if n_checked else 0.0
        counts = {
            "attributes": float(n_checked), "candidates": candidates, "checks": checks,
            "check_words": checks * (n_checked + 1 >> 1),
        }  # fmt: skip
        if len(on) > 1:
            if self._wide is None:
                self._wide = _mark(self.values, *_widened(self.lows, self.highs))
            counts["looked_at"] = self._count(np.bitwise_and.reduce(self._wide[list(on)], axis=0))
        return counts

    def bitmap_cells(self) -> int:
        """How many cells per attribute a bitmap over all the boxes would have."""
        held = (self.lows <= self.highs).any(axis=0)
        shares, ends = np.ones((2, len(self.lows)))
        for k in range(len(self.lows)):
            lows, highs = self.lows[k, held], self.highs[k, held]
            own = np.sort(_ends(lows, highs))
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


def _ends(lows: Codes, highs: Codes) -> Codes:
    """The end points of one attribute that are ends indeed, each followed by a value beyond."""
    return np.concatenate(
        [lows[(lows > PRESENT) & (lows < LAST)], highs[(highs > MISSING) & (highs < LAST)] + 1]
    )


def invent_events(boxes: Boxes, numbers: npt.NDArray[np.int64], used: tuple[int, ...]) -> Codes:
    """Events at corners of boxes: attributes that go together in boxes do so in them too."""
    rng = np.random.default_rng(len(numbers))
    picked = rng.choice(numbers, EVENTS)
    values = np.zeros((boxes.n_attributes, EVENTS), np.int64)
    for j in used:
        lows, highs = boxes.column(j, numbers)
        ends = np.concatenate([lows[lows > PRESENT], highs[(highs > MISSING) & (highs < LAST)]])
        low, high = boxes.column(j, picked)
        has_low, has_high = low > PRESENT, (high > MISSING) & (high < LAST)
        upper = has_high & (~has_low | (rng.random(EVENTS) < 0.5))
        any_end = rng.choice(ends, EVENTS) if len(ends) else np.zeros(EVENTS, np.int64)
        values[j] = np.where(upper, high, np.where(has_low, low, any_end))
    return values


def _thinned(events: Codes, used: tuple[int, ...]) -> Codes:
    picked = np.linspace(0, events.shape[1] - 1, min(EVENTS, events.shape[1])).astype(np.int64)
    return np.ascontiguousarray(events[np.ix_(np.array(used), picked)])


def _coarse(values: Codes, lows: Codes, highs: Codes, n_cells: int) -> tuple[Codes, Codes, Codes]:
    """Values and bounds as so many cells that hold about equally many ends."""
    out = np.empty_like(values), np.empty_like(lows), np.empty_like(highs)
    for k in range(len(values)):
        ends = np.sort(_ends(lows[k], highs[k]))
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
        ends = _ends(lows[k], highs[k])
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


SOONEST, LATEST = 64, 65_536
WEIGHING_SECONDS = 0.005
WORTH = 1.3


class PartHistory:
    """What a part went through since its boxes were first laid out."""

    def __init__(self, since: int = 0, replans: int = 0, settled: bool = False) -> None:
        self.since = since
        """Events that the index had seen when the part was built."""
        self.replans = replans
        self.settled = settled
        """Whether it is to stay as it is: it came from a file, or there was no room for another."""
        self.before: float | None = None
        """Seconds that do not count: the first match may have compiled kernels or read a disk."""
        self.weighed_at = 0.0
        """Seconds spent on its events when it was last weighed."""
        self.factors: Corrections = {}
        self._costs: list[float] = []

    def took(self, seconds: float, n_events: int) -> None:
        """Take note of what a batch cost the layout that was chosen by an estimate."""
        if n_events >= TELLING:
            self._costs = [*self._costs[1 - LOOKED_AT :], seconds * 1e9 / n_events]

    def correct(self, estimate: Layout) -> Layout:
        """What a layout in use costs, given what it was estimated to for events as they are now."""
        key = estimate.kind, estimate.on
        if len(self._costs) >= FEWEST_BATCHES:
            factor = max(min(self._costs), 1.0) / estimate.ns
            self.factors.pop(key, None)
            if not 1 / OFF <= factor <= OFF:
                self.factors[key] = factor
        return estimate._replace(ns=estimate.ns * self.factors.get(key, 1.0))

    def laid_out_anew(self, since: int) -> PartHistory:
        """The history of the part that takes its place."""
        out = PartHistory(since, self.replans + 1)
        out.factors = self.factors
        return out


class Replanner:
    """The events an index has seen, and what follows from them for the layouts of its parts."""

    def __init__(self, n_attributes: int) -> None:
        self.seen = SeenEvents(n_attributes)
        self.replans = 0
        self._due_at = SOONEST
        self._busy_at = 0
        """The first event that is more than counted."""

    def notice(self, codes: Codes) -> bool:
        """Take note of a batch; whether so many events have passed that parts should be looked at again."""
        self.seen.notice(codes)
        self._busy_at = min(self._due_at, self.seen.next)
        return self.seen.n >= self._due_at

    def passes(self) -> bool:
        """Count one event, where that is all there is to do about it; otherwise `notice` will."""
        seen = self.seen
        if seen.n + 1 >= self._busy_at:
            return False
        seen.n += 1
        return True

    def wait(self, n_events: float = 0.0) -> None:
        """Look again after so many events, within bounds."""
        self._due_at = self.seen.n + int(min(max(n_events, SOONEST), LATEST))
        self._busy_at = 0

    def events_to_go(self, plan: Plan | None, history: PartHistory, seconds: float) -> float:
        """After how many more events enough was spent on a part to weigh it; never, if it is to stay."""
        if plan is None or plan.sample is None or history.settled:
            return np.inf
        if history.before is None and seconds:
            history.before = seconds
        spent = self._spent(plan, history, seconds)
        needed = max(WEIGHING_SECONDS * len(plan.used), 2 * history.weighed_at)
        if spent >= needed:
            return 0.0
        # no later than when twice as many have come: they may take longer than it seemed
        n = self.seen.n - history.since
        return min(n * (needed / spent - 1), n) if spent else float(SOONEST)

    def _spent(self, plan: Plan, history: PartHistory, seconds: float) -> float:
        counted = seconds - (history.before or 0.0)
        return max(counted, plan.chosen.ns * 1e-9 * (self.seen.n - history.since))

    def pays(
        self, boxes: Boxes, plan: Plan, size: int, history: PartHistory, seconds: float, events: Codes
    ) -> bool:
        """Whether a part of so many boxes should be rebuilt for events like these."""
        assert plan.sample is not None
        history.weighed_at = self._spent(plan, history, seconds)
        kind, on, _ = plan.chosen
        layouts = weigh_layouts(boxes, plan.sample, size, plan.used, events, on)
        now = history.correct(next(layout for layout in layouts if layout[:2] == (kind, on)))
        best = min(corrected(layouts, history.factors), key=_by_ns)
        lost = history.weighed_at * 1e9 * (1 - best.ns / now.ns)
        price = build_ns(best, boxes, plan.sample, size, plan.used) * 2.0**history.replans
        return now.ns > WORTH * best.ns and lost > price


ROOM = 128
EVERY, SELDOM = 64, 1024
OF_BATCH = 32
ENOUGH = 16


class SeenEvents:
    """A ring of recent events, and how many there were."""

    def __init__(self, n_attributes: int) -> None:
        self.n = 0
        self._codes = np.empty((n_attributes, ROOM), np.int64)
        self._kept = 0
        self.next = 1
        """When one is to be kept, by how many there were."""

    def notice(self, codes: Codes) -> None:
        """Count a batch, and keep some of it when it is time."""
        m = codes.shape[1]
        self.n += m
        if self.n >= self.next and m:
            self._keep(codes)

    def _keep(self, codes: Codes) -> None:
        at = self._kept % ROOM
        k = min(codes.shape[1], OF_BATCH, ROOM - at)
        # not the same places each time: a batch may be sorted, or come again
        step = codes.shape[1] // k
        first = self._kept * 7 % step
        self._codes[:, at : at + k] = codes[:, first : first + k * step : step]
        self._kept += k
        self.next = self.n + (EVERY if self._kept < ROOM else SELDOM)

    def sample(self) -> Codes | None:
        """The events kept, if they are enough to judge by."""
        if self._kept < ENOUGH:
            return None
        return self._codes[:, : min(self._kept, ROOM)].copy()
