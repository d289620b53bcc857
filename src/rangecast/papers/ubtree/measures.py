"""How the UB-tree's experiment measures: who takes part, and one point of a figure.

Times are of this thread on the processor, best of a few rounds in which contenders take turns, so that
other work on the machine counts as little as it can; every contender's answer must be scan's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import REGISTRY, open_index
from rangecast.engine.contract import Index
from rangecast.kernels.papers.ubtree import search as kernels
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.measuring import THREAD, take_turns, timed
from rangecast.papers.ubtree.index import UBTreeIndex
from rangecast.workloads import Workload

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ubtree", {"form": "plain"}),
    "optimised": ("ubtree", {"form": "optimised"}),
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


Points = dict[str, ContenderPoint]


def contenders() -> dict[str, tuple[str, dict[str, Any]]]:
    """The paper's, and those of ours that are more than another name for scan."""
    scan = REGISTRY["scan"]
    ours: dict[str, tuple[str, dict[str, Any]]] = {
        name: (name, {}) for name in OURS if REGISTRY.get(name, scan) != scan
    }
    return FORMS | ours


def measure(drawn: Workload) -> Points:
    """All contenders on one workload, in turns; their answers must be scan's."""
    subs, events = drawn.subscriptions(), drawn.events()
    indexes: dict[str, Index] = {}
    builds: dict[str, float] = {}
    for name, (kind, options) in contenders().items():
        # a small set first: compiling is not building
        warm = open_index(kind, drawn.schema, **options)
        warm.insert(subs.select(np.arange(min(600, len(subs)))))
        warm.match(drawn.events(0, 2))
        index = indexes[name] = open_index(kind, drawn.schema, **options)
        builds[name], _ = timed(index.insert, subs, clock=THREAD)
    expected = indexes["scan"].match(events).sort()
    for name, index in indexes.items():
        check(name, index.match(events), expected)
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for name, index in indexes.items():
        calls[name, "match"] = partial(index.match, events)
        if isinstance(index, UBTreeIndex):
            calls[name, "collect"] = partial(collecting, index, events)
    taken = take_turns(calls, ROUNDS, clock=THREAD)
    points = {}
    for name, index in indexes.items():
        index.match(events)
        stats = index.stats()
        before, after = stats.get("last_entries", 0), stats.get("last_candidates", 0)
        points[name] = ContenderPoint(
            taken[name, "match"].best / len(events) * 1e6,
            taken[name, "collect"].best / len(events) * 1e6 if (name, "collect") in taken else 0.0,
            before / len(events),
            after / len(events),
            builds[name],
            stats["bytes_per_subscription"],
        )
    return points


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
    taken = take_turns(calls, ROUNDS, clock=THREAD)
    return taken["insert"].best / len(fresh) * 1e6, taken["delete"].best / len(fresh) * 1e6
