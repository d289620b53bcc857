"""How the UB-tree's experiment measures: who takes part, and one point of a figure.

Times are of this thread on the processor. All contenders of a point are built first and then take turns,
round by round, so that a busy moment falls on all of them; the best round counts, and every answer must be
scan's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import REGISTRY, open_index
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.measuring import THREAD, take_turns, timed
from rangecast.papers.ubtree import kernels
from rangecast.papers.ubtree.structures import UBTreeIndex
from rangecast.workloads import Workload

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ubtree", {"form": "plain", "leaf": 700, "fanout": 4}),
    "optimised": ("ubtree", {"form": "optimised", "leaf": 700, "fanout": 4}),
    "counting": ("counting", {}),
    "scan": ("scan", {}),
}
OURS = ("bitmap", "auto")
ROUNDS = 3


class ContenderPoint(NamedTuple):
    """One contender at one point of a figure, per event and per subscription."""

    micros: float
    collect: float
    before: float
    after: float
    build_seconds: float
    bytes_each: float
    events: int


Points = dict[str, ContenderPoint]


def contenders() -> dict[str, tuple[str, dict[str, Any]]]:
    """The paper's, and those of ours that are more than another name for scan."""
    scan = REGISTRY["scan"]
    ours: dict[str, tuple[str, dict[str, Any]]] = {
        name: (name, {}) for name in OURS if REGISTRY.get(name, scan) != scan
    }
    return FORMS | ours


def measure(drawn: Workload) -> Points:
    """All contenders on one workload, round by round in turns; their answers must be scan's."""
    subs, events = drawn.subscriptions(), drawn.events()
    indexes, build_seconds = {}, {}
    for name, (kind, options) in contenders().items():
        # a small set first: compiling is not building
        warm = open_index(kind, drawn.schema, **options)
        warm.insert(subs.select(np.arange(min(600, len(subs)))))
        warm.match(drawn.events(0, 2))
        indexes[name] = open_index(kind, drawn.schema, **options)
        build_seconds[name], _ = timed(indexes[name].insert, subs, clock=THREAD)
    expected = indexes["scan"].match(events).sort()
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for name, index in indexes.items():
        check(name, index.match(events), expected)
        calls["match", name] = partial(index.match, events)
        if isinstance(index, UBTreeIndex):
            calls["collect", name] = partial(collecting, index, events)
    taken = take_turns(calls, ROUNDS, clock=THREAD, pause_collector=True)
    points: Points = {}
    for name, index in indexes.items():
        index.match(events)
        stats = index.stats()
        collect = taken.get(("collect", name))
        points[name] = ContenderPoint(
            taken["match", name].best / len(events) * 1e6,
            collect.best / len(events) * 1e6 if collect else 0.0,
            stats.get("last_entries", 0) / len(events),
            stats.get("last_candidates", 0) / len(events),
            build_seconds[name],
            stats["bytes_per_subscription"],
            len(events),
        )
    return points


def satisfied_operators(drawn: Workload) -> float:
    """Satisfied operators per event when an interval is two of them, <= and >=, as the paper counts."""
    total = 0
    for name in drawn.schema.names:
        lows, highs, values = drawn.lows[name], drawn.highs[name], drawn.columns[name]
        equal = lows == highs
        points = np.sort(lows[equal])
        total += int(np.sum(np.searchsorted(points, values, "right") - np.searchsorted(points, values)))
        below = np.sort(lows[~equal & ~np.isnan(lows)])
        above = np.sort(highs[~equal & ~np.isnan(highs)])
        total += int(np.sum(np.searchsorted(below, values, "right")))
        total += int(np.sum(len(above) - np.searchsorted(above, values)))
    return total / drawn.n_events


def collecting(index: UBTreeIndex, events: Events) -> None:
    """The search without the filter: only the way from region to region."""
    index._search(events.codes_for(index.schema), kernels.COLLECT)


def check(name: str, found: Matches, expected: Matches) -> None:
    """Stop the experiment if an answer differs from scan's."""
    if found.n_pairs != expected.n_pairs or found.sort() != expected:
        raise AssertionError(f"{name}: {found.n_pairs} pairs differ from scan's {expected.n_pairs}")


def changed(index: UBTreeIndex, fresh: Subscriptions) -> tuple[float, float]:
    """Microseconds per subscription of inserting and of deleting them again, best of a few."""
    calls: dict[str, Callable[[], Any]] = {
        "insert": partial(index.insert, fresh),
        "delete": partial(index.delete, fresh.ids.values),
    }
    taken = take_turns(calls, ROUNDS, clock=THREAD, warm_up=1)
    return taken["insert"].best / len(fresh) * 1e6, taken["delete"].best / len(fresh) * 1e6
