"""How the batch search is measured: the tree that grows, batches of events, and what answering them takes.

Times are processor time of this process. Every batch is answered once before it is timed, and all levels
and orders are timed on the same batches, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import open_index
from rangecast.model.events import Events
from rangecast.papers.measuring import PROCESS, timed
from rangecast.papers.rtree.batch_search import Descent
from rangecast.papers.rtree.scheduling import AdaptiveLevel, ShortestFirst, respond
from rangecast.papers.rtree.structures import RTreeIndex
from rangecast.workloads import workload


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


QUICK = Extent(3_000, 3_000, 6_000, 6_000, 3_000, {10: 4}, (10, 50), 50, (2, 8), 10, 2, 10, 2)


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

    def __init__(self, plan: Extent) -> None:
        drawn = workload("boxes-12d", plan.drawn, 20_000)
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
