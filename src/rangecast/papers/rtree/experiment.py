"""The batch search: mean response of events that arrive together, on an R*-tree that grows.

Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based on
extended R-tree search algorithm with multiple inputs" (2004), section 5: 12 attributes of unsigned
shorts, subscriptions inserted one by one into an R*-tree of 10 children per node and 20 boxes per leaf.

One tree grows in steps, and every figure is measured on it on its way. Times are processor time of this
process, for which other jobs of the machine matter less; node visits, which do not vary at all, stand
beside them. A response counts from the arrival of the batch, so it holds the estimate and every event
that was answered before.

BatchSearch gains in two ways that the paper does not tell apart: short events go first, and the estimate
reads a node once for all events that meet it. `account` tells them apart in node visits: what an event
visits on each level says what every order and every level of the estimate would have cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import open_index
from rangecast.model.events import Events
from rangecast.papers.measuring import PROCESS, timed
from rangecast.papers.report import Claim, ExperimentReport
from rangecast.papers.rtree.structures import AdaptiveLevel, Descent, RTreeIndex, ShortestFirst, respond
from rangecast.workloads import SEED, workload

_COLUMNS_B = (
    "events", "batches", "best level", "arrival ms", "BatchSearch ms", "estimate ms", "whole batch ms",
    "lower by", "least batch", "greatest batch", "by order", "by order and sharing",
    "lower by, estimate below 2 %",
)  # fmt: skip


BY_TIME = "mean response in processor time"
BY_NODES = "mean response in node visits"


class Extent(NamedTuple):
    """How much is measured."""

    first: int
    step: int
    last: int
    drawn: int
    """How many subscriptions are drawn, of which the tree takes the first."""
    middle: int
    """The size of figures 4b and 4c."""
    batches_a: dict[int, int]
    """How many batches of each size make a point of figure 4a."""
    batches_b: tuple[int, ...]
    events_b: int
    """How many events make a point of figure 4b, in as many batches as that gives."""
    loops_c: tuple[int, ...]
    batch_c: int
    loops_d: int
    batch_d: int
    tried_d: int


FULL = Extent(
    500_000, 500_000, 1_500_000, 1_500_000, 1_500_000, {10: 64, 100: 4}, (10, 25, 50, 100, 200), 200,
    (4, 16, 64), 10, 64, 20, 8,
)  # fmt: skip


OTHERS = Extent(
    150_000, 150_000, 300_000, 300_000, 300_000, {10: 32, 100: 4}, (10, 100), 200, (4, 32), 10, 32, 20, 8
)
QUICK = Extent(3_000, 3_000, 6_000, 6_000, 3_000, {10: 4}, (10, 50), 50, (2, 8), 10, 2, 10, 2)

AT = f"{OTHERS.last:,} subscriptions"
GROWN = f"{OTHERS.first:,} and {OTHERS.last:,} subscriptions"

CLAIMS = {
    "slowly": Claim(
        "the best level changes slowly as the index grows (4a)",
        "section 5, figure 4a",
        "levels by which the best moves, counted from the leaves, at most",
        -1,
        1.5,
        by=f"{BY_TIME}, over {', '.join(f'{k} batches of {size}' for size, k in FULL.batches_a.items())}",
        why="the curve is flat near its least, and levels beside it differ by a few hundredths",
        at=GROWN,
    ),
    "batch": Claim(
        "the mean response falls by up to nearly 50 % (4b)",
        "section 5, figure 4b",
        "share by which it falls at the best level, the greatest",
        0.4,
        by=f"{BY_TIME} at the best level, the largest gain above 40 %",
        at=AT,
    ),
    "larger": Claim(
        "the larger the batch, the more is gained (4b)",
        "section 5, figure 4b",
        "gain with the largest batch less that with the smallest",
        0,
        by=BY_TIME,
        at=AT,
    ),
    "estimate": Claim(
        "the cost of the estimate can be neglected beside the response (4b)",
        "section 5, figure 4b",
        "estimate / mean response at the best level, the greatest",
        0,
        0.1,
        by="processor time of the estimate at the best level, below a tenth of the mean response",
        why="the best level is deep here, where the estimate is a large part of the search and its reads "
        "are shared; at shallow levels it can be neglected",
        at=AT,
    ),
    "minimum": Claim(
        "over the levels the mean response falls to one minimum and rises again (4c)",
        "section 5, figure 4c",
        "lesser of the first and last level / least between; none where the curve has two",
        1,
        by=f"{BY_TIME}, mean of {max(FULL.loops_c)} batches; rises and falls of a hundredth do not count",
        why="the least is at an end, or there are two",
        at=f"{AT}, {OTHERS.loops_c[-1]} batches",
    ),
    "merges": Claim(
        "with more loops the curve of different events merges into that of the same events (4c)",
        "section 5, figure 4c",
        "distance in node visits after the fewest / after the most loops",
        # sixteen times the loops should halve it twice
        2,
        by="largest distance of the curves in node visits, at least halved",
        seeds_why="with eight times the loops, where the page has sixteen, the distance falls by less than "
        "half",
        at=AT,
    ),
    "close": Claim(
        "even while unstable the adaptive level is very close to the best (5)",
        "section 5, figure 5",
        "adaptive / best level, less 1, on average",
        -1,
        0.15,
        by=f"{BY_TIME}, below 15 % above the best on average",
        at=GROWN,
    ),
    "better": Claim(
        "and much better than without BatchSearch (5)",
        "section 5, figure 5",
        "share by which it is lower, the least",
        0,
        by=f"{BY_TIME}, lower at every size",
        at=GROWN,
    ),
}


def run(report: ExperimentReport) -> None:
    """Measure figures 4 and 5 and weigh the paper's claims."""
    plan = report.extent(FULL, OTHERS, QUICK)
    tree = GrowingTree(plan, report.seed)
    sizes = list(range(plan.first, plan.last + 1, plan.step))
    say_departures(report, plan)
    adaptive = AdaptiveLevel(threshold=plan.step, loops=plan.loops_d)
    best_levels: list[tuple[Any, ...]] = []
    growth: list[tuple[Any, ...]] = []
    for n in sizes:
        tree.index = report.measured(f"a tree of {n:,} subscriptions", partial(tree.at, n))
        warm_up(tree.index, tree.source.take(10))
        best_levels += report.measured(
            f"figure 4a: {n:,} subscriptions", partial(measure_levels, plan, tree, n)
        )
        row, adaptive = report.measured(
            f"figure 5: {n:,} subscriptions", partial(measure_adaptive, plan, adaptive, tree, n)
        )
        growth.append((n, *row))
        if n == plan.middle:
            b = report.measured("figure 4b", partial(measure_batches, plan, tree, n))
            c = report.measured("figure 4c", partial(measure_loops, plan, tree, n))
            _figure_b(report, n, b)
            _figure_c(report, plan, c)
    _figure_a(report, plan, best_levels)
    _figure_d(report, growth)
    pairs = report.measured("answers", partial(check_answers, tree, sizes[0]))
    report.checked("the answers are those of the scan", True, f"{pairs:,} pairs, {sizes[0]:,} subscriptions")
    report.text(
        f"Sizes: {plan.first:,} subscriptions and {plan.step:,} more at a time, up to {plan.last:,}; figures "
        f"4b and 4c at {plan.middle:,}. Level 0 is the root alone, the highest that of the leaves."
    )
    report.write(
        "Batch search on an R*-tree",
        'Source: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system '
        'based on extended R-tree search algorithm with multiple inputs" (2004), section 5. Times are '
        "processor time: levels, orders and schedules take turns on the same batches, and "
        "verdicts rest on ratios within this one run; [seeds.md](seeds.md) has their spread over seeds.",
    )


def say_departures(report: ExperimentReport, plan: Extent) -> None:
    """Every parameter that is not the paper's."""
    report.departs(
        "space",
        "12 dimensions, random unsigned shorts",
        "12 attributes, a subscription is a box",
        "the paper does not say whether its 12 dimensions are 12 attributes or 6 that are transformed to "
        "points; "
        "its search intersects MBRs of events with those of the tree, which boxes need and points do not",
    )
    report.departs(
        "growth in figures 4a, 4d and 5",
        "by 300,000 from 500,000 to 2,600,000",
        f"by {plan.step:,} from {plan.first:,} to {plan.last:,}",
        "the time of a run",
    )
    if plan.middle != 1_500_000:
        report.departs("size in figures 4b and 4c", "1,500,000", f"{plan.middle:,}", "--quick")
    report.departs(
        "threshold of updates, after which a level is searched again",
        "300,000",
        f"{plan.step:,}",
        "as many as the index grows by",
    )
    report.departs(
        "R*-tree",
        "spatialindex 0.62b, 10 children per node and 20 boxes per leaf",
        "ours, of the same capacities",
        "its nodes can be asked for the level of an estimate",
    )
    report.departs(
        "response time", "wall clock", "processor time", "other work on the machine does not count"
    )
    report.departs(
        "batches",
        "answered once",
        "answered once before they are timed",
        "a batch that comes for the first time finds memory that is not in the cache: the first way of "
        "answering it would pay for all others",
    )
    loops = ", ".join(f"{k} of {size} events" for size, k in plan.batches_a.items())
    report.departs("batches per point of figure 4a", "not given", loops, "one batch varies by a third")
    if plan.loops_d != 64:
        report.departs("loop counter in figure 5", "64", f"{plan.loops_d}", "--quick")
    report.departs(
        "events in a batch",
        "not given",
        f"figure 4a {words(plan.batches_a)}; 4b {words(plan.batches_b)}; 4c {plan.batch_c}; 5 {plan.batch_d}",
        "",
    )
    report.departs(
        "batches per point of figures 4b, 4c and 5",
        "not given; up to 64 in 4c",
        f"as many as make {plan.events_b} events in 4b; {words(plan.loops_c)} in 4c; {plan.tried_d} in 5",
        "",
    )


def words(numbers: Iterable[int]) -> str:
    """Numbers in a sentence.

    >>> words([4, 16, 64])
    '4, 16 and 64'
    """
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _figure_a(report: ExperimentReport, plan: Extent, rows: list[tuple[Any, ...]]) -> None:
    tallest = max(row[3] for row in rows)
    report.table(
        "4a",
        "Figure 4a: the best level over the size of the index (mean response in ms at each level)",
        ("subscriptions", "events", "batches", "height", "best level", "best by node visits",
         "least of a batch", "greatest of a batch", *(f"level {level}" for level in range(tallest))),
        [(*row, *[None] * (tallest - row[3])) for row in rows],
    )  # fmt: skip
    series = {}
    moves = []
    for size in plan.batches_a:
        own = [row for row in rows if row[1] == size]
        series[f"best level, batches of {size}"] = ([r[0] for r in own], [r[4] for r in own])
        # a level counts from the leaves: where the tree grew by one, all levels moved down by one
        moves += [abs((b[3] - b[4]) - (a[3] - a[4])) for a, b in itertools.pairwise(own)]
    leaves = {"level of the leaves": ([r[0] for r in own], [r[3] - 1 for r in own])}
    report.plot("4a", "Best level", "subscriptions", "level", leaves | series, whole_y=True)
    report.weigh(
        CLAIMS["slowly"],
        float(max(moves, default=0)),
        f"from one size to the next by at most {max(moves, default=0)}, counted from the leaves; in one "
        f"batch alone it is level {min(r[6] for r in rows)} to {max(r[7] for r in rows)}",
    )


def _figure_b(report: ExperimentReport, n: int, rows: list[tuple[Any, ...]]) -> None:
    report.table("4b", "Figure 4b: mean response by the size of the batch", _COLUMNS_B, rows)
    columns = {name: [row[at] for row in rows] for at, name in enumerate(_COLUMNS_B)}
    xs = columns["events"]
    report.plot(
        "4b",
        f"Mean response with {n:,} subscriptions",
        "events in a batch",
        "milliseconds of processor time",
        {
            "in the order of arrival, from the root": (xs, columns["arrival ms"]),
            "BatchSearch at its best level": (xs, columns["BatchSearch ms"]),
            "of this, the estimate": (xs, columns["estimate ms"]),
            "whole batch together (match), all answers at the end": (xs, columns["whole batch ms"]),
        },
    )
    report.text(
        "Two gains are shown. `by order` is what answering the shortest first gains in node visits when "
        "every event pays for its own share of the estimate; `by order and sharing` counts a node of the "
        "estimate once for all events that meet it. Searching with the whole batch at once, which amounts "
        "to an estimate down to the boxes, ends at about the mean response of BatchSearch."
    )
    lower, order, both = columns["lower by"], columns["by order"], columns["by order and sharing"]
    report.weigh(
        CLAIMS["batch"],
        max(lower),
        f"{min(lower):.0%} to {max(lower):.0%} lower; in node visits the order alone gains {min(order):.0%} "
        f"to {max(order):.0%}, order and sharing {min(both):.0%} to {max(both):.0%}",
    )
    report.weigh(
        CLAIMS["larger"],
        lower[-1] - lower[0],
        f"{lower[0]:.0%} with {xs[0]} events, {lower[-1]:.0%} with {xs[-1]}; by order alone {order[0]:.0%} "
        f"and {order[-1]:.0%}",
    )
    shares = [row[5] / row[4] for row in rows]
    cheap = columns["lower by, estimate below 2 %"]
    report.weigh(
        CLAIMS["estimate"],
        max(shares),
        f"at the best level it is {min(shares):.0%} to {max(shares):.0%} of the mean response; at levels "
        f"where it is below 2 %, the mean is {min(cheap):.0%} to {max(cheap):.0%} lower than on arrival",
    )
    report.checked(
        "the work is that of searching event by event, node for node",
        True,
        "estimate and searches together visit as many nodes as searches from the root, at every level",
    )


def _figure_c(report: ExperimentReport, plan: Extent, curves: dict[str, Any]) -> None:
    most = max(plan.loops_c)
    rows: list[tuple[Any, ...]] = []
    series = {}
    deviations = []
    target = curves["same events"].mean(axis=0)
    levels = range(len(target))
    for loops in plan.loops_c:
        for label, values in curves.items():
            curve = values[:loops].mean(axis=0)
            rows += [(loops, label, level, *curve[level].tolist()) for level in levels]
            if label == "different events":
                deviations.append(np.abs(curve / target - 1).max(axis=0))
                series[f"different events, {loops} loops"] = (list(levels), curve[:, 0].tolist())
    series[f"same events, {most} loops"] = (list(levels), target[:, 0].tolist())
    report.table(
        "4c",
        f"Figure 4c: mean response over levels, batches of {plan.batch_c}",
        ("loops", "events", "level", "milliseconds", "nodes"),
        rows,
    )
    report.plot(
        "4c", "Mean response over levels", "level of the estimate", "milliseconds of processor time", series
    )
    curve = target[:, 0]
    at = int(curve.argmin())
    report.weigh(
        CLAIMS["minimum"],
        _one_minimum(curve.tolist()),
        f"least at level {at} of 0 to {len(curve) - 1}: " + ", ".join(f"{v:.0f}" for v in curve) + " ms",
    )
    report.weigh(
        CLAIMS["merges"],
        float(deviations[0][1] / deviations[-1][1]),
        "largest distance "
        + ", ".join(
            f"{time_:.0%} ({nodes:.0%} in node visits) after {n} loops"
            for (time_, nodes), n in zip(deviations, plan.loops_c, strict=True)
        ),
    )


def _figure_d(report: ExperimentReport, rows: list[tuple[Any, ...]]) -> None:
    report.table(
        "5",
        "Figures 4d and 5: the adaptive level while the index grows, in its unstable state",
        ("subscriptions", "height", "batches until stable", "adaptive level", "best level",
         "adaptive ms", "best level ms", "no BatchSearch ms"),
        rows,
    )  # fmt: skip
    xs = [row[0] for row in rows]
    report.plot(
        "5",
        "Mean response while the index grows",
        "subscriptions",
        "milliseconds of processor time",
        {
            "no BatchSearch": (xs, [r[7] for r in rows]),
            "adaptive level, unstable": (xs, [r[5] for r in rows]),
            "best level": (xs, [r[6] for r in rows]),
        },
    )
    beside_best = [r[5] / r[6] - 1 for r in rows]
    beside_none = [1 - r[5] / r[7] for r in rows]
    apart = [abs(r[3] - r[4]) for r in rows]
    report.weigh(
        CLAIMS["close"],
        float(np.mean(beside_best)),
        f"{np.mean(beside_best):.0%} above the best on average, {max(beside_best):.0%} at most; it settles "
        f"{max(apart)} levels from the best at most",
    )
    report.weigh(
        CLAIMS["better"], min(beside_none), f"{min(beside_none):.0%} to {max(beside_none):.0%} lower"
    )


# How the batch search is measured: the tree that grows, batches of events, and what answering them takes.
#
# Times are processor time of this process. Every batch is answered once before it is timed, and all levels
# and orders are timed on the same batches, one after the other.


class Mean(NamedTuple):
    """The mean response of a batch in milliseconds and in node visits, and what it is made of."""

    milliseconds: float
    nodes: float
    estimate: float
    total_nodes: int


class FreshEvents:
    """Endless batches of events that have not been used yet."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._next = 0

    def take(self, size: int) -> Events:
        """The next batch."""
        rows = (np.arange(size) + self._next) % len(self._events)
        self._next += size
        return self._events.select(rows)


class GrowingTree:
    """The tree, which grows when a step asks for a larger one, and fresh events."""

    def __init__(self, plan: Extent, seed: int = SEED) -> None:
        drawn = workload("boxes-12d", plan.drawn, 20_000, seed=seed)
        self.subscriptions, self.source = drawn.subscriptions(), FreshEvents(drawn.events())
        index = open_index("rtree", drawn.schema, load="insert")
        assert isinstance(index, RTreeIndex)
        self.index = index

    def at(self, n: int) -> RTreeIndex:
        """The tree with n subscriptions."""
        if len(self.index) < n:
            self.index.insert(self.subscriptions.select(np.arange(len(self.index), n)))
        return self.index


def account(index: RTreeIndex, events: Events) -> dict[str, Any]:
    """Mean responses of a batch in node visits, of every level of the estimate, with and without sharing.

    `arrival` is event by event from the root. At a level, `order` counts a node of the estimate for each
    event that meets it, `shared` once for all of them: the first gains by the order alone.
    """
    found = [index.estimate(events, level) for level in range(index.height)]
    visits = np.stack([estimate.workloads for estimate in found])
    nodes = [len(np.unique(estimate.nodes)) for estimate in found if isinstance(estimate, Descent)]
    total = visits.sum(axis=0)
    order, shared = [], []
    for level in range(index.height):
        rest = visits[level:].sum(axis=0)[np.argsort(visits[level], kind="stable")]
        waited = float(np.cumsum(rest).mean())
        order.append(waited + float(visits[:level].sum()))
        shared.append(waited + float(sum(nodes[:level])))
    return {"arrival": float(np.cumsum(total).mean()), "order": np.array(order), "shared": np.array(shared)}


def warm_up(index: RTreeIndex, events: Events) -> None:
    """Let every loop compile before anything is timed."""
    for level in (0, 1):
        list(ShortestFirst(index, level).match_each(events))
    index.match(events)


def _touched(index: RTreeIndex, events: Events) -> Events:
    """A batch that has been answered once: whoever comes first would else pay for memory not in the cache."""
    index.match(events)
    return events


def _mean(index: RTreeIndex, events: Events, level: int | None) -> Mean:
    """One batch in the order of arrival (no level) or by BatchSearch."""
    start = index.node_visits
    schedule = ShortestFirst(index, level, clock=PROCESS)
    responses = respond(index, events, clock=PROCESS) if level is None else schedule.match_each(events)
    seconds = nodes = 0.0
    for response in responses:
        seconds += response.seconds
        nodes += index.node_visits - start
    estimate = schedule.last.estimate_seconds if schedule.last else 0.0
    n = len(events)
    return Mean(1e3 * seconds / n, nodes / n, 1e3 * estimate, index.node_visits - start)


def _best(curve: Sequence[float]) -> int:
    return int(np.argmin(curve))


def measure_levels(plan: Extent, tree: GrowingTree, n: int) -> list[tuple[Any, ...]]:
    """The best level at one size, from the mean over several batches: by time and by node visits."""
    index = tree.at(n)
    rows: list[tuple[Any, ...]] = []
    for size, loops in plan.batches_a.items():
        batches = [tree.source.take(size) for _ in range(loops)]
        levels = range(index.height)
        curves = np.array(
            [[_mean(index, each, level).milliseconds for level in levels]
             for each in (_touched(index, batch) for batch in batches)]
        )  # fmt: skip
        curve = curves.mean(axis=0)
        nodes = np.mean([account(index, events)["shared"] for events in batches], axis=0)
        alone = [_best(own) for own in curves.tolist()]
        bests = _best(curve), _best(nodes), min(alone), max(alone)
        rows.append((n, size, loops, index.height, *bests, *curve.tolist()))
    return rows


def measure_batches(plan: Extent, tree: GrowingTree, n: int) -> list[tuple[Any, ...]]:
    index = tree.at(n)
    rows: list[tuple[Any, ...]] = []
    for size in plan.batches_b:
        arrival, whole, levels, nodes = [], [], [], []
        for _ in range(max(1, plan.events_b // size)):
            events = _touched(index, tree.source.take(size))
            arrival.append(_mean(index, events, None))
            levels.append([_mean(index, events, level) for level in range(index.height)])
            whole.append(1e3 * timed(index.match, events, clock=PROCESS)[0])
            nodes.append(account(index, events))
            # estimate and searches together visit as many nodes as searches from the root, at every level
            assert all(mean.total_nodes == arrival[-1].total_nodes for mean in levels[-1])
        times = np.mean([[mean.milliseconds for mean in own] for own in levels], axis=0)
        estimates = np.mean([[mean.estimate for mean in own] for own in levels], axis=0)
        level = _best(times)
        none = float(np.mean([mean.milliseconds for mean in arrival]))
        by_nodes = float(np.mean([own["arrival"] for own in nodes]))
        order = np.mean([own["order"] for own in nodes], axis=0)
        shared = np.mean([own["shared"] for own in nodes], axis=0)
        cheap = [t for t, e in zip(times, estimates, strict=True) if e < 0.02 * t]
        each = [1 - own[level].milliseconds / a.milliseconds for own, a in zip(levels, arrival, strict=True)]
        rows.append((
            size, len(arrival), level, none, float(times[level]), float(estimates[level]),
            float(np.mean(whole)), 1 - float(times[level]) / none, min(each), max(each), 1 -
            float(order.min()) / by_nodes, 1 - float(shared.min()) / by_nodes, 1 - float(min(cheap)) / none
            if cheap else 0.0,
        ))  # fmt: skip
    return rows


def measure_loops(plan: Extent, tree: GrowingTree, n: int) -> dict[str, Any]:
    index = tree.at(n)
    levels = range(index.height)
    measured: dict[str, list[list[tuple[float, float]]]] = {"same events": [], "different events": []}
    for _ in range(max(plan.loops_c)):
        events = _touched(index, tree.source.take(plan.batch_c))
        # in turn, so that a noisy minute falls on both
        measured["same events"].append([_mean(index, events, level)[:2] for level in levels])
        measured["different events"].append(
            [_mean(index, _touched(index, tree.source.take(plan.batch_c)), level)[:2] for level in levels]
        )
    return {label: np.array(values) for label, values in measured.items()}


def measure_adaptive(
    plan: Extent, adaptive: AdaptiveLevel, tree: GrowingTree, n: int
) -> tuple[tuple[Any, ...], AdaptiveLevel]:
    """Batches until the level is stable, and some of these at every level and without BatchSearch."""
    index = tree.at(n)
    schedule = ShortestFirst(index, adaptive, clock=PROCESS)
    batches: list[Events] = []
    used: list[int] = []
    # the loop ends by itself; this bounds a run in which noise keeps the level wandering
    for _ in range(3 * plan.loops_d * 3):
        batches.append(tree.source.take(plan.batch_d))
        list(schedule.match_each(batches[-1]))
        assert schedule.last is not None
        used.append(schedule.last.level or 0)
        state = adaptive.state(plan.batch_d)
        if state is not None and state.stable:
            break
    assert state is not None
    # batches differ more than levels do, so all levels are measured on some of the same batches, and the
    # adaptive one has what its level takes there
    some = np.linspace(0, len(batches) - 1, plan.tried_d).astype(int).tolist()
    levels, none = [], []
    for i in some:
        events = _touched(index, batches[i])
        levels.append([_mean(index, events, level).milliseconds for level in range(index.height)])
        none.append(_mean(index, events, None).milliseconds)
    curve = np.mean(levels, axis=0)
    best = int(np.argmin(curve))
    own = float(np.mean([row[used[i]] for i, row in zip(some, levels, strict=True)]))
    return (
        index.height,
        len(used),
        state.level,
        best,
        own,
        float(curve[best]),
        float(np.mean(none)),
    ), adaptive


def check_answers(tree: GrowingTree, n: int) -> int:
    """How many pairs 50 events have, which must be scan's by every way of asking."""
    index, events = tree.at(n), tree.source.take(50)
    scan = open_index("scan", index.schema)
    scan.insert(tree.subscriptions.select(np.arange(len(index))))
    want = scan.match(events)
    answers = dict(index.match_each(events, index.estimate(events)))
    assert all(np.array_equal(np.sort(answers[e]), np.sort(want.row(e))) for e in range(len(events)))
    assert index.match(events) == want
    return want.n_pairs


def _one_minimum(curve: list[float]) -> float:
    """The lesser end over the least between; 0 where there is no single least between the ends."""
    # a hundredth is within what one run differs from another
    at = int(np.argmin(curve))
    falls = all(b - a < 0.01 * curve[0] for a, b in itertools.pairwise(curve[: at + 1]))
    rises = all(b - a > -0.01 * curve[0] for a, b in itertools.pairwise(curve[at:]))
    single = len(curve) > 2 and falls and rises
    return min(curve[0], curve[-1]) / min(curve[1:-1]) if single else 0.0
