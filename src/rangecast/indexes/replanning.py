"""When a layout is weighed again, and when it is worth building another.

Weighing takes about a millisecond an attribute, so a part is weighed only when five times that was spent on
its events, and again when twice as much was spent as at the last time.

Another layout must promise to be WORTH times cheaper, and what was lost without it, of the time spent since
the part was built, must exceed what building it costs. So a choice that was wrong costs at most about as
much again as the right one would have, however many events come. Each time the same boxes are laid out anew
the loss must be twice as large: events that change their nature every hour do not keep an index building.
Time is what the part counted, or as estimated where that is more: an estimate from subscriptions alone may be
far off, and of threads that count at once one may be lost.
"""

from __future__ import annotations

import numpy as np

from rangecast.attributes import Codes
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.planning import Plan, build_ns, weigh_layouts
from rangecast.indexes.seen import SeenEvents

SOONEST, LATEST = 64, 65_536
WEIGHING_SECONDS = 0.005
WORTH = 1.3


class History:
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


class Replanner:
    """The events an index has seen, and what follows from them for the layouts of its parts."""

    def __init__(self, n_attributes: int) -> None:
        self.seen = SeenEvents(n_attributes)
        self.replans = 0
        self._due_at = SOONEST

    def notice(self, codes: Codes) -> bool:
        """Take note of a batch; whether so many events have passed that parts should be looked at again."""
        self.seen.notice(codes)
        return self.seen.n >= self._due_at

    def wait(self, n_events: float = 0.0) -> None:
        """Look again after so many events, within bounds."""
        self._due_at = self.seen.n + int(min(max(n_events, SOONEST), LATEST))

    def events_to_go(self, plan: Plan | None, history: History, seconds: float) -> float:
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

    def _spent(self, plan: Plan, history: History, seconds: float) -> float:
        counted = seconds - (history.before or 0.0)
        return max(counted, plan.chosen.ns * 1e-9 * (self.seen.n - history.since))

    def pays(
        self, boxes: Boxes, plan: Plan, size: int, history: History, seconds: float, events: Codes
    ) -> bool:
        """Whether a part of so many boxes should be built anew for events like these."""
        assert plan.sample is not None
        history.weighed_at = self._spent(plan, history, seconds)
        kind, on, _ = plan.chosen
        layouts = weigh_layouts(boxes, plan.sample, size, plan.used, events, on)
        best = layouts[0]
        now = next(layout for layout in layouts if (layout.kind, layout.on) == (kind, on))
        lost = history.weighed_at * 1e9 * (1 - best.ns / now.ns)
        price = build_ns(best, boxes, plan.sample, size, plan.used) * 2.0**history.replans
        return now.ns > WORTH * best.ns and lost > price
