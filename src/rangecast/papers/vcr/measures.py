"""How the rectangle paper's experiment measures: who takes part, and the time of an event.

Contenders answer the first k events of a workload and say how many pairs they found, so that all can be held
against each other; ids are delivered by each. Memory of a foreign tree is what it adds to a fresh process.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rangecast.engine import Index, open_index
from rangecast.errors import OptionError
from rangecast.papers.measuring import PROCESS, check_agreement, take_turns, timed
from rangecast.papers.report import ExperimentReport
from rangecast.workloads import Workload, workload

OWN_TREE = "rtree (ours), packed"
INSERTED = "rtree (ours), by inserts"

CountPairs = Callable[[int], int]
"""Match the first k events and say how many pairs there were."""


def opened(drawn: Workload, kind: str = "vcr", **options: Any) -> Index:
    """An index of a workload."""
    index = open_index(kind, drawn.schema, **options)
    index.insert(drawn.subscriptions())
    return index


def structure_bytes(index: Index) -> int:
    """What the structure itself holds, as the paper counts it: headers and lists."""
    stats = index.stats()
    return int(stats["bytes"] - stats["catalog_bytes"])


def matcher(index: Index, drawn: Workload) -> CountPairs:
    """CountPairs with one of our indexes, ids delivered."""
    events = {}

    def match(k: int) -> int:
        if k not in events:
            events[k] = drawn.events(0, k)
        return len(index.match(events[k]).ids)

    return match


def tree_names() -> list[str]:
    """The R-trees that are here to be compared with."""
    trees = [name for name, package in (("Rtree", "rtree"), ("STRtree", "shapely")) if found(package)]
    if not trees:
        raise OptionError("the R-trees of the comparison: pip install 'rangecast[bench]'")
    return [*trees, INSERTED, OWN_TREE]


def own_trees(drawn: Workload) -> dict[str, Index]:
    """Our R*-tree over a workload, built by inserts and packed."""
    return {INSERTED: opened(drawn, "rtree", load="insert"), OWN_TREE: opened(drawn, "rtree")}


def found(package: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(package) is not None


def tree_matcher(name: str, drawn: Workload) -> CountPairs:
    """Build an R-tree over a workload and match with it, ids delivered."""
    lows, highs, points = (np.stack([*side.values()], axis=1).astype(np.float64)
                           for side in (drawn.lows, drawn.highs, drawn.columns))  # fmt: skip
    if name == "Rtree":
        spatial: Any = importlib.import_module("rtree.index")
        tree = spatial.Index((drawn.ids, lows, highs), properties=spatial.Property(dimension=2))
        return lambda k: len(tree.intersection_v(points[:k], points[:k])[0])
    shapely: Any = importlib.import_module("shapely")
    packed = shapely.STRtree(shapely.box(*lows.T, *highs.T))
    targets = shapely.points(points)
    return lambda k: len(drawn.ids[packed.query(targets[:k])[1]])


def microseconds(
    report: ExperimentReport, drawn: Workload, contenders: Mapping[str, CountPairs]
) -> tuple[dict[str, float], int]:
    """Time an event of each contender, and how many there were: turns on as many as the slowest can take."""
    seconds = 0.005 if report.quick else 0.15
    few = 32
    check_agreement(f"{drawn.name}, pairs", {name: match(few) for name, match in contenders.items()})
    slowest = max(timed(match, few, clock=PROCESS)[0] for match in contenders.values())
    k = int(min(max(seconds / slowest * few, few), drawn.n_events))
    calls = {name: partial(match, k) for name, match in contenders.items()}
    taken = take_turns(calls, 2 if report.quick else 9, clock=PROCESS, count=int, where=drawn.name)
    return {name: 1e6 * rounds.best / k for name, rounds in taken.items()}, k


def resident(name: str, n: int, options: dict[str, Any]) -> int:
    """By how much building a tree raises the memory of a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown_by, (name, n, options))


def _grown_by(name: str, n: int, options: dict[str, Any]) -> int:
    # a small tree first, so that loading its package is not counted
    tree_matcher(name, workload("rectangles", 100, 1))(1)
    drawn = workload("rectangles", n, 1, **options)
    gc.collect()
    before = _resident_bytes()
    match = tree_matcher(name, drawn)
    match(1)
    return _resident_bytes() - before


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
