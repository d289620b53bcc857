"""Which layout boxes get, and when another one is worth building.

What an event would cost in each is estimated in costs.py. Nothing is measured when an index is opened:
what an estimate is worth on a machine, and for these boxes, is told by the batches, as below.

Before events were seen they are made up. Events as they come can differ from that in all that matters: on
eight attributes as wide as each other, the one on which all events fail is known only from events. So before
events were seen a bitmap is preferred where it costs up to ROBUST times more: what it costs depends on events
least.

Building costs about BUILD_NS nanoseconds per box: so many, more per attribute, and more again for one whose
ends span too many codes for a cell each.

When a layout is weighed again, and when it is worth building another.

Weighing takes about a millisecond per attribute, and some four for pairs of them that may be the best, so a
part is weighed only when five times that was spent on its events, and again when twice as much was spent as
at the last time.

Another layout must promise to be WORTH times cheaper, and what was lost without it, of the time spent since
the part was built, must exceed what building it costs. So a choice that was wrong costs at most about as
much again as the right one would have, however many events come. Each time the same boxes are laid out again
the loss must be twice as large: events that change their nature every hour do not keep an index building.
Time is what the part counted, or as estimated where that is more, up to OFF times as much: an estimate from
subscriptions alone may be far off, and of threads that count at once one may be lost.

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

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import UNSAVED
from rangecast.engine.boxes import Boxes
from rangecast.engine.boxes_kernels import drop_marked
from rangecast.engine.costs import (
    Corrections,
    Layout,
    by_ns,
    corrected,
    draw_boxes,
    ends_of,
    invent_events,
    weigh_layouts,
)
from rangecast.engine.packed import CELLS as FINE_CELLS
from rangecast.types.attributes import Codes

ROBUST = 1.3
OFF, TELLING, LOOKED_AT, FEWEST_BATCHES = 3.0, 256, 8, 3
BUILD_NS = {"cells": (120.0, 12.0, 90.0), "bitmap": (200.0, 100.0, 150.0)}


class ClaimedBoxes(NamedTuple):
    """Some boxes that a layout takes, and what builds a part of them, or a whole path."""

    kind: str
    on: tuple[int, ...]
    size: int
    build: Callable[[], Any]


class Left:
    """The boxes that no layout has claimed yet, and what layouts choose by.

    The numbers are used up: those that are left by each layout overwrite them, for one more array of them
    would be a third of what is built of ten million intervals.
    """

    def __init__(
        self,
        boxes: Boxes,
        numbers: npt.NDArray[np.int64],
        memory_limit: int | None,
        events: Codes | None,
        threads: int,
    ) -> None:
        self.boxes = boxes
        self.numbers = numbers
        self.n = len(numbers)
        """How many there were at first."""
        self.around = draw_boxes(numbers, 0.5)
        """Some of them all, to make up events from."""
        self.memory_limit = memory_limit
        self.events = events
        self.threads = threads
        self.claims: list[ClaimedBoxes] = []
        self._taken: list[npt.NDArray[np.int64]] = []

    @cached_property
    def used(self) -> list[int]:
        """The attributes that those left bound."""
        return self.boxes.bounded(self.numbers)

    def claim(
        self, kind: str, on: tuple[int, ...], own: npt.NDArray[np.int64], build: Callable[[], Any]
    ) -> None:
        """Take some boxes; they are gone when they are settled."""
        self.claims.append(ClaimedBoxes(kind, on, len(own), build))
        self._taken.append(own)

    def settle(self) -> None:
        """Leave out the boxes that were claimed."""
        n_taken = sum(map(len, self._taken))
        if not n_taken:
            return
        if n_taken == len(self.numbers):
            self.numbers = self.numbers[:0]
        else:
            marks = np.zeros(int(self.numbers[-1]) + 1, np.uint8)
            for own in self._taken:
                marks[own] = 1
            self.numbers = self.numbers[: int(drop_marked(self.numbers, marks))]
        self._taken.clear()
        self.__dict__.pop("used", None)


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
    spans = [ends_of(*boxes.column(j, sample)).astype(np.float64) for j in used]
    n_wide = sum(bool(len(ends)) and float(np.ptp(ends)) > FINE_CELLS for ends in spans)
    return n * (fixed + each * len(used) + wide * n_wide)


SOONEST, LATEST = 64, 65_536
WEIGHING_SECONDS, PAIRS = 0.005, 4
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
        self.busy_at = 0
        """The first event that is more than counted; `auto` counts those before it by itself."""

    def notice(self, codes: Codes) -> bool:
        """Take note of a batch; whether so many events have passed that parts should be looked at again."""
        self.seen.notice(codes)
        self.busy_at = min(self._due_at, self.seen.next)
        return self.seen.n >= self._due_at

    def wait(self, n_events: float = 0.0) -> None:
        """Look again after so many events, within bounds."""
        self._due_at = self.seen.n + int(min(max(n_events, SOONEST), LATEST))
        self.busy_at = 0

    def events_to_go(self, plan: Plan | None, history: PartHistory, seconds: float) -> float:
        """After how many more events enough was spent on a part to weigh it; never, if it is to stay."""
        if plan is None or plan.sample is None or history.settled:
            return np.inf
        if history.before is None and seconds:
            history.before = seconds
        spent = self._spent(plan, history, seconds)
        needed = max(WEIGHING_SECONDS * (len(plan.used) + PAIRS), 2 * history.weighed_at)
        if spent >= needed:
            return 0.0
        # no later than when twice as many have come: they may take longer than it seemed
        n = self.seen.n - history.since
        return min(n * (needed / spent - 1), n) if spent else float(SOONEST)

    def _spent(self, plan: Plan, history: PartHistory, seconds: float) -> float:
        counted = seconds - (history.before or 0.0)
        estimated = plan.chosen.ns * 1e-9 * (self.seen.n - history.since)
        return max(counted, min(estimated, OFF * counted)) if counted > 0 else estimated

    def pays(
        self, boxes: Boxes, plan: Plan, size: int, history: PartHistory, seconds: float, events: Codes
    ) -> bool:
        """Whether a part of so many boxes should be rebuilt for events like these."""
        assert plan.sample is not None
        history.weighed_at = self._spent(plan, history, seconds)
        kind, on, _ = plan.chosen
        layouts = weigh_layouts(boxes, plan.sample, size, plan.used, events, on)
        now = history.correct(next(layout for layout in layouts if layout[:2] == (kind, on)))
        best = min(corrected(layouts, history.factors), key=by_ns)
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


# Whether layouts can be had at once, or have kernels to be compiled first: then `auto` goes on scanning.
#
# The kernels of `auto`'s access paths come from Numba's cache on the disk in a fifth of a second. Where they
# are not compiled yet they take 10 to 20 seconds, and scanning needs next to none of them: 10,000 boxes are
# scanned in 30 us per event. So on a machine that has not laid anything out yet, building has the price of
# compiling: up to COLD_BOXES boxes are scanned, until COLD_WORK of them were looked at, some three seconds of
# scanning. Then a layout is built as anywhere else, and the machine is one that has. A scan is exact, so that
# all this changes is the time. The first match of a fresh process with 10,000 subscriptions comes after a
# quarter of the time.
#
# That a layout was built is noted by an empty file in the folder of Numba's cache, named by what else the
# cache depends on. Which access paths it had is not noted: another data set may still compile some, as
# before. Whoever wants layouts without waiting for events says so by `lay_out_at_once`, as warming up and
# measuring do, or by the variable RANGECAST_LAYOUTS=at-once. What is saved is always laid out, for who reads
# it may be elsewhere.

# the folder of Numba's cache is chosen there, before Numba is loaded
importlib.import_module("rangecast.simd.compiler")
_numba: Any = importlib.import_module("numba")
_llvm: Any = importlib.import_module("llvmlite.binding")

COLD_BOXES = 1 << 17
COLD_WORK = 1 << 30


class _Layouts:
    """What this process knows: whether it is to lay out at once."""

    at_once = bool(_numba.config.DISABLE_JIT) or os.environ.get("RANGECAST_LAYOUTS") == "at-once"


def _note() -> Path:
    version = f"{_numba.__version__}-{sys.implementation.cache_tag}"
    return Path(os.environ["NUMBA_CACHE_DIR"]) / f"laid-out-{version}-{_llvm.get_host_cpu_name()}"


def are_layouts_compiled() -> bool:
    """Whether something was laid out here before, by this process or another."""
    if not _Layouts.at_once:
        _Layouts.at_once = _note().exists()
    return _Layouts.at_once


def lay_out_at_once() -> None:
    """From now on this process lays out what it gets, whether kernels have to be compiled or not."""
    _Layouts.at_once = True


def note_layout() -> None:
    """Something was laid out: its kernels are in the cache."""
    lay_out_at_once()
    # a folder that cannot be written to keeps no kernels either
    with contextlib.suppress(OSError):
        _note().touch()
