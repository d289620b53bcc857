"""The claims of the batch search paper, with one seed, on a tree that is smaller than the page's."""

from __future__ import annotations

import itertools

import numpy as np

from rangecast.engine import open_index
from rangecast.papers.report import ExperimentReport
from rangecast.papers.rtree.measures import (
    Extent,
    FreshEvents,
    GrowingTree,
    measure_adaptive,
    measure_batches,
    measure_levels,
    measure_loops,
    warm_up,
)
from rangecast.papers.rtree.scheduling import AdaptiveLevel
from rangecast.papers.rtree.structures import RTreeIndex
from rangecast.papers.seeds.ratio import Ratio, SeedRatios
from rangecast.workloads import workload

FULL = Extent(
    150_000, 150_000, 300_000, 300_000, 300_000, {10: 32, 100: 4}, (10, 100), 200, (4, 32), 10, 32, 20, 8
)
QUICK = Extent(1_500, 1_500, 3_000, 3_000, 3_000, {10: 2}, (5, 20), 20, (2, 4), 5, 2, 5, 2)
AT = f"{FULL.last:,} subscriptions"
GROWN = f"{FULL.first:,} and {FULL.last:,} subscriptions"

RATIOS = {
    "batch": Ratio(
        "the mean response falls by up to nearly 50 % (4b)",
        "share by which it falls at the best level, batches of 100",
        0.4,
        at=AT,
    ),
    "larger": Ratio(
        "the larger the batch, the more is gained (4b)", "gain with 100 events less with 10", 0, at=AT
    ),
    "estimate": Ratio(
        "the cost of the estimate can be neglected beside the response (4b)",
        "estimate / mean response at the best level, the greater",
        0,
        0.1,
        AT,
    ),
    "minimum": Ratio(
        "over the levels the mean response falls to one minimum and rises again (4c)",
        "lesser of the first and last level / least between; none where the curve has two",
        1,
        at=f"{AT}, {FULL.loops_c[-1]} batches",
    ),
    "merges": Ratio(
        "with more loops the curve of different events merges into that of the same events (4c)",
        f"distance in node visits after {FULL.loops_c[0]} / after {FULL.loops_c[-1]} loops",
        2,
        at=AT,
        why="with eight times the loops, where the page has sixteen, the distance falls by less than half",
    ),
    "slowly": Ratio(
        "the best level changes slowly as the index grows (4a)",
        "levels by which the best moves, counted from the leaves, at most",
        -1,
        1.5,
        GROWN,
    ),
    "close": Ratio(
        "even while unstable the adaptive level is very close to the best (5)",
        "adaptive / best level, less 1, on average",
        -1,
        0.15,
        GROWN,
    ),
    "better": Ratio(
        "and much better than without BatchSearch (5)", "share by which it is lower, the least", 0, at=GROWN
    ),
}


class SeededTree(GrowingTree):
    """A tree that grows, from a seed of its own."""

    def __init__(self, plan: Extent, seed: int) -> None:
        drawn = workload("boxes-12d", plan.drawn, 20_000, seed=seed)
        self.subscriptions, self.source = drawn.subscriptions(), FreshEvents(drawn.events())
        index = open_index("rtree", drawn.schema, load="insert")
        assert isinstance(index, RTreeIndex)
        self.index = index


def take(report: ExperimentReport, seed: int) -> SeedRatios:
    """All of them."""
    plan = QUICK if report.quick else FULL
    tree = SeededTree(plan, seed)
    adaptive = AdaptiveLevel(threshold=plan.step, loops=plan.loops_d)
    depths: dict[int, list[int]] = {}
    above, lower = [], []
    for n in (plan.first, plan.last):
        warm_up(tree.at(n), tree.source.take(10))
        for row in measure_levels(plan, tree, n):
            depths.setdefault(row[1], []).append(row[3] - row[4])
        (*_, own, best, none), adaptive = measure_adaptive(plan, adaptive, tree, n)
        above.append(own / best - 1)
        lower.append(1 - own / none)
    batches = measure_batches(plan, tree, plan.last)
    curves = measure_loops(plan, tree, plan.last)
    target = curves["same events"].mean(axis=0)
    far = [
        float(np.abs(curves["different events"][:loops].mean(axis=0)[:, 1] / target[:, 1] - 1).max())
        for loops in plan.loops_c
    ]
    gains = [row[7] for row in batches]
    moves = [abs(b - a) for own in depths.values() for a, b in itertools.pairwise(own)]
    return {
        "batch": max(gains),
        "larger": gains[-1] - gains[0],
        "estimate": max(row[5] / row[4] for row in batches),
        "minimum": _one_minimum(target[:, 0].tolist()),
        "merges": far[0] / far[-1],
        "slowly": float(max(moves)),
        "close": float(np.mean(above)),
        "better": min(lower),
    }


def _one_minimum(curve: list[float]) -> float:
    at = int(np.argmin(curve))
    falls = all(b - a < 0.01 * curve[0] for a, b in itertools.pairwise(curve[: at + 1]))
    rises = all(b - a > -0.01 * curve[0] for a, b in itertools.pairwise(curve[at:]))
    return min(curve[0], curve[-1]) / min(curve[1:-1]) if falls and rises else 0.0
