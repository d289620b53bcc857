"""The batch search: mean response of events that arrive together, on an R*-tree that grows.

Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based on
extended R-tree search algorithm with multiple inputs" (2004), section 5: 12 attributes of unsigned
shorts, subscriptions inserted one by one into an R*-tree of 10 children per node and 20 boxes per leaf.

One tree grows in steps, and every figure is measured on it on its way. Times are processor time of this
process, for which other jobs of the machine matter less; node visits, which do not vary at all, stand
beside them. A response counts from the arrival of the batch, so it holds the estimate and every event
that was answered before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import open_index
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.measuring import PROCESS, WALL, timed
from rangecast.papers.report import ExperimentReport
from rangecast.papers.rtree.index import RTreeIndex
from rangecast.papers.rtree.scheduling import AdaptiveLevel, ShortestFirst, respond
from rangecast.workloads import workload

_COLUMNS_B = (
    "events", "best level", "arrival ms", "BatchSearch ms", "estimate ms", "whole batch ms", "lower by",
    "arrival nodes", "BatchSearch nodes", "lower by (nodes)",
)  # fmt: skip


# a full run stops growing after this many seconds, and the page says at which size
_BUDGET = 1_800


class Extent(NamedTuple):
    """How much is measured."""

    first: int
    step: int
    last: int
    batches_a: tuple[int, ...]
    batches_b: tuple[int, ...]
    repeats: int
    loops_c: tuple[int, ...]
    batch_c: int
    loops_d: int
    batch_d: int
    tried_d: int


FULL = Extent(500_000, 300_000, 2_600_000, (10, 100), (10, 25, 50, 100, 200), 2, (4, 16, 64), 10, 8, 20, 8)
QUICK = Extent(20_000, 20_000, 80_000, (10, 100), (10, 50, 200), 2, (4, 16, 64), 20, 8, 20, 8)


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


def run(report: ExperimentReport) -> None:
    """Measure figures 4 and 5 and weigh the paper's claims."""
    plan = QUICK if report.quick else FULL
    drawn = workload("boxes-12d", plan.last, 20_000)
    subscriptions, source = drawn.subscriptions(), FreshEvents(drawn.events())
    index = open_index("rtree", drawn.schema, load="insert")
    assert isinstance(index, RTreeIndex)
    sizes = list(range(plan.first, plan.last + 1, plan.step))
    middle = sizes[len(sizes) * 3 // 7]
    adaptive = AdaptiveLevel(threshold=plan.step, loops=plan.loops_d)
    best_levels: list[tuple[Any, ...]] = []
    growth: list[tuple[Any, ...]] = []
    began = WALL()
    for n in sizes:
        report.say(f"inserting up to {n:,} subscriptions")
        index.insert(subscriptions.select(np.arange(len(index), n)))
        if n == sizes[0]:
            _warm_up(index, source.take(10))
        report.say(f"a tree of height {index.height}: every level, then the adaptive one")
        for size in plan.batches_a:
            curve = _levels(index, source.take(size), plan.repeats)
            best_levels.append((n, size, index.height, _best(curve), *(m.milliseconds for m in curve)))
        growth.append((n, index.height, *_adapt(plan, adaptive, index, source)))
        late = WALL() - began > _BUDGET
        if n == middle or (late and n < middle):
            _figure_b(report, plan, index, source)
            _figure_c(report, plan, index, source)
            middle = n
        if late or WALL() - began > _BUDGET:
            break
    _figure_a(report, best_levels)
    _figure_d(report, growth)
    _check_answers(report, index, subscriptions, source.take(50))
    report.text(
        f"Sizes: {plan.first:,} subscriptions and {plan.step:,} more at a time, up to {len(index):,}"
        + (f" of {plan.last:,}, where the time for a run was over" if len(index) < plan.last else "")
        + f"; figures 4b and 4c at {middle:,}. Level 0 is the root alone, the highest that of the leaves."
    )
    report.write(
        "Batch search on an R*-tree",
        'Source: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system '
        'based on extended R-tree search algorithm with multiple inputs" (2004), section 5. Times are '
        "processor time of the process.",
    )


def _warm_up(index: RTreeIndex, events: Events) -> None:
    """Let every loop compile before anything is timed."""
    for level in (0, 1):
        list(ShortestFirst(index, level).match_each(events))
    index.match(events)


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


def _least(means: Sequence[Mean]) -> Mean:
    """The repeat that was disturbed the least."""
    return min(means, key=lambda mean: mean.milliseconds)


def _levels(index: RTreeIndex, events: Events, repeats: int) -> list[Mean]:
    """The same events at every level; repeats are taken in turn, so that all levels share a noisy moment."""
    rounds = [[_mean(index, events, level) for level in range(index.height)] for _ in range(repeats)]
    return [_least(means) for means in zip(*rounds, strict=True)]


def _best(curve: Sequence[Mean]) -> int:
    return int(np.argmin([mean.milliseconds for mean in curve]))


def _figure_a(report: ExperimentReport, rows: list[tuple[Any, ...]]) -> None:
    tallest = max(row[2] for row in rows)
    report.table(
        "4a",
        "Figure 4a: the best level over the size of the index (mean response in ms at each level)",
        ("subscriptions", "events", "height", "best level", *(f"level {level}" for level in range(tallest))),
        [(*row, *[None] * (tallest - row[2])) for row in rows],
    )
    series = {}
    for size in sorted({row[1] for row in rows}):
        own = [row for row in rows if row[1] == size]
        series[f"best level, batches of {size}"] = ([r[0] for r in own], [r[3] for r in own])
    series["level of the leaves"] = ([r[0] for r in own], [r[2] - 1 for r in own])
    report.plot("4a", "Best level", "subscriptions", "level", series)
    from_leaves = [row[2] - 1 - row[3] for row in rows]
    moves = [
        abs(after[3] - before[3])
        for own in ([row for row in rows if row[1] == size] for size in {row[1] for row in rows})
        for before, after in itertools.pairwise(own)
    ]
    report.claim(
        "the best level changes slowly as the index grows (4a)",
        max(moves, default=0) <= 1,
        f"from one size to the next by at most {max(moves, default=0)}; it is {min(from_leaves)} to "
        f"{max(from_leaves)} levels above the leaves",
    )


def _figure_b(report: ExperimentReport, plan: Extent, index: RTreeIndex, source: FreshEvents) -> None:
    rows = []
    shallow = []
    same = True
    for size in plan.batches_b:
        events = source.take(size)
        arrival, whole = [], []
        curves = []
        for _ in range(plan.repeats):
            arrival.append(_mean(index, events, None))
            curves.append([_mean(index, events, level) for level in range(index.height)])
            whole.append(1e3 * timed(index.match, events, clock=PROCESS)[0])
        none = _least(arrival)
        curve = [_least(means) for means in zip(*curves, strict=True)]
        level = _best(curve)
        best = curve[level]
        rows.append((
            size, level, none.milliseconds, best.milliseconds, best.estimate, min(whole),
            1 - best.milliseconds / none.milliseconds, none.nodes, best.nodes, 1 - best.nodes / none.nodes,
        ))  # fmt: skip
        # the deepest level whose estimate is below a fiftieth of the mean response
        cheap = [mean for mean in curve if mean.estimate < 0.02 * mean.milliseconds]
        shallow.append((1 - min(m.milliseconds for m in cheap) / none.milliseconds) if cheap else 0.0)
        same = same and all(mean.total_nodes == none.total_nodes for mean in curve)
    report.table("4b", "Figure 4b: mean response by the size of the batch", _COLUMNS_B, rows)
    xs = [row[0] for row in rows]
    columns = {name: [row[at] for row in rows] for at, name in enumerate(_COLUMNS_B)}
    report.plot(
        "4b",
        f"Mean response with {len(index):,} subscriptions",
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
        "Node visits weigh a visit of the estimate like one of a search. It is cheaper, since the estimate "
        "reads a node once for all events that meet it: so in large batches the level of the leaves has the "
        "best time and the worst count, and taking the batch whole, which is an estimate down to the boxes, "
        "ends about when BatchSearch has its mean."
    )
    lower, nodes = columns["lower by"], columns["lower by (nodes)"]
    report.claim(
        "the mean response falls by up to nearly 50 % (4b)",
        max(lower) > 0.4,
        f"{min(lower):.0%} to {max(lower):.0%} lower; counted in node visits {min(nodes):.0%} to "
        f"{max(nodes):.0%}",
    )
    report.claim(
        "the larger the batch, the more is gained (4b)",
        lower[-1] > lower[0],
        f"{lower[0]:.0%} with {xs[0]} events, {lower[-1]:.0%} with {xs[-1]}",
    )
    shares = [row[4] / row[3] for row in rows]
    report.claim(
        "the cost of the estimate can be neglected beside the response (4b)",
        max(shares) < 0.1,
        f"at the best level it is {min(shares):.0%} to {max(shares):.0%} of the mean response; at levels "
        f"where it is below 2 %, the mean is {min(shallow):.0%} to {max(shallow):.0%} lower than on arrival",
    )
    report.claim(
        "(ours) the work is that of searching event by event, node for node",
        same,
        "estimate and searches together visit as many nodes as searches from the root, at every level",
    )


def _figure_c(report: ExperimentReport, plan: Extent, index: RTreeIndex, source: FreshEvents) -> None:
    levels = range(index.height)
    most = max(plan.loops_c)
    measured: dict[str, list[list[tuple[float, float]]]] = {"same events": [], "different events": []}
    for _ in range(most):
        events = source.take(plan.batch_c)
        # in turn, so that a noisy minute falls on both
        measured["same events"].append([_mean(index, events, level)[:2] for level in levels])
        measured["different events"].append(
            [_mean(index, source.take(plan.batch_c), level)[:2] for level in levels]
        )
    curves = {label: np.array(values) for label, values in measured.items()}
    rows: list[tuple[Any, ...]] = []
    series = {}
    deviations = []
    target = curves["same events"].mean(axis=0)
    for loops in plan.loops_c:
        for label, values in curves.items():
            curve = values[:loops].mean(axis=0)
            rows.extend((loops, label, level, curve[level, 0], curve[level, 1]) for level in levels)
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
    # a hundredth is within what one run differs from another
    falls = bool(np.all(np.diff(curve[: at + 1]) < 0.01 * curve[0]))
    rises = bool(np.all(np.diff(curve[at:]) > -0.01 * curve[0]))
    report.claim(
        "over the levels the mean response falls to one minimum and rises again (4c)",
        falls and rises and 0 < at < len(curve) - 1,
        f"least at level {at} of 0 to {len(curve) - 1}: " + ", ".join(f"{v:.0f}" for v in curve) + " ms",
    )
    report.claim(
        "with more loops the curve of different events merges into that of the same events (4c)",
        # in node visits, on which other jobs have no influence; sixteen times the loops should halve it twice
        bool(deviations[-1][1] < deviations[0][1] / 2),
        "largest distance "
        + ", ".join(
            f"{time_:.0%} ({nodes:.0%} in node visits) after {n} loops"
            for (time_, nodes), n in zip(deviations, plan.loops_c, strict=True)
        ),
    )


def _adapt(plan: Extent, adaptive: AdaptiveLevel, index: RTreeIndex, source: FreshEvents) -> tuple[Any, ...]:
    """Batches until the level is stable, and some of these at every level and without BatchSearch."""
    schedule = ShortestFirst(index, adaptive, clock=PROCESS)
    batches: list[Events] = []
    seconds: list[float] = []
    # the loop ends by itself; this bounds a run in which noise keeps the level wandering
    for _ in range(3 * plan.loops_d * 8):
        batches.append(source.take(plan.batch_d))
        list(schedule.match_each(batches[-1]))
        assert schedule.last is not None
        seconds.append(schedule.last.mean_seconds)
        state = adaptive.state(plan.batch_d)
        if state is not None and state.stable:
            break
    assert state is not None
    # batches differ more than levels do, so the others are measured on some of the same batches
    some = np.linspace(0, len(batches) - 1, plan.tried_d).astype(int)
    curve = [
        np.mean([_mean(index, batches[i], level).milliseconds for i in some]) for level in range(index.height)
    ]
    none = np.mean([_mean(index, batches[i], None).milliseconds for i in some])
    best = int(np.argmin(curve))
    own = 1e3 * float(np.mean([seconds[i] for i in some]))
    return len(seconds), state.level, best, own, float(curve[best]), float(none)


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
    report.claim(
        "even while unstable the adaptive level is very close to the best (5)",
        float(np.mean(beside_best)) < 0.15,
        f"{np.mean(beside_best):.0%} above the best on average, {max(beside_best):.0%} at most; it settles "
        f"{max(apart)} levels from the best at most",
    )
    report.claim(
        "and much better than without BatchSearch (5)",
        min(beside_none) > 0,
        f"{min(beside_none):.0%} to {max(beside_none):.0%} lower",
    )


def _check_answers(
    report: ExperimentReport, index: RTreeIndex, subscriptions: Subscriptions, events: Events
) -> None:
    scan = open_index("scan", index.schema)
    scan.insert(subscriptions.select(np.arange(len(index))))
    want = scan.match(events)
    answers = dict(index.match_each(events, index.estimate(events)))
    equal = all(np.array_equal(np.sort(answers[e]), np.sort(want.row(e))) for e in range(len(events)))
    report.claim(
        "(ours) the answers are those of the scan",
        equal and index.match(events) == want,
        f"{want.n_pairs:,} pairs of {len(events)} events and {len(index):,} subscriptions",
    )
