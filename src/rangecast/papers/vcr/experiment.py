"""The experiments of the rectangle paper: figures 6 to 9, and our layout beside them.

Source: Wu, Chen and Yu, "VCR indexing for fast event matching for highly-overlapping range
predicates" (IBM Research Report, 2004), sec. 3. Subscriptions and events follow the same skew rule
(workload `rectangles`); 90-10 means that nine in ten lie in a tenth of the area.

Where we differ: the paper makes 100,000 searches on one index after the other; here all contenders of
one point of a figure take turns on the same events, fewer of them, the best of several turns counts
(time of the processor, one thread), and all must find the same number of pairs. Our look-up reports
each id once, the paper's does not. A header is 4 bytes and a list node 8 in both. The paper's R-tree
is not to be had; here are the R*-tree of libspatialindex (package Rtree, asked for a whole batch at
once), the packed tree of GEOS (shapely's STRtree), and our own `rtree`, packed.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import itertools
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rangecast.engine import REGISTRY, Index, open_index
from rangecast.errors import OptionError
from rangecast.papers.measuring import PROCESS, check_agreement, take_turns, timed
from rangecast.papers.report import ExperimentReport
from rangecast.workloads import Workload, workload

PAPER: Mapping[str, Any] = {"Lx": 16, "Ly": 8, "storage": "array", "cells": 4096}
TABLE = 1_800_017
OWN_TREE = "rtree (ours)"
WIDE = {"rx": 2_000, "ry": 1_500}
SKEWS: Mapping[str, dict[str, Any]] = {"uniform": {"alpha": 0.0}, "90-10": {"alpha": 0.9, "beta": 0.1}}

CountPairs = Callable[[int], int]
"""CountPairs the first k events and say how many pairs there were."""


def run(report: ExperimentReport) -> None:
    """Measure all figures and weigh the claims."""
    sizes = [8_000, 16_000] if report.quick else [32_000, 64_000, 128_000, 256_000]
    report.text(__doc__.split("\n\n")[2].replace("\n", " "))
    figure_6(report, [sizes[0], sizes[-1]])
    figure_7(report, sizes)
    figure_8(report, sizes)
    figure_9(report, sizes)
    distance_table(report, sizes[0])
    our_layout(report, sizes[-1])
    report.write(
        "The rectangle index (VCR)",
        "Wu, Chen and Yu, *VCR indexing for fast event matching for highly-overlapping range predicates*, "
        "IBM Research Report, 2004.",
    )


def figure_6(report: ExperimentReport, sizes: list[int]) -> None:
    """The effect of the maximal side; the paper does not say for how many rectangles."""
    sides = [2, 4, 8, 16, 32, 64]
    axis = [float(side) for side in sides]
    rows: list[list[Any]] = []
    times: dict[str, tuple[list[float], list[float]]] = {}
    bytes_: dict[str, tuple[list[float], list[float]]] = {}
    best: dict[tuple[int, str], list[int]] = {}
    for w, n in itertools.product((20, 40), sizes):
        report.say(f"figure 6: W = {w}, {n:,} rectangles")
        drawn = workload("rectangles", n, 4_000, wx=w, wy=w)
        indexes = {side: opened(drawn, **{**PAPER, "Lx": side, "Ly": side}) for side in sides}
        taken = microseconds(report, drawn, {str(s): matcher(i, drawn) for s, i in indexes.items()})
        size = [structure_bytes(index) / 1e6 for index in indexes.values()]
        us = [taken[str(side)] for side in sides]
        rows += [[w, n, side, round(t, 2), round(s, 2)] for side, t, s in zip(sides, us, size, strict=True)]
        times[f"W = {w}, n = {n:,}"] = (axis, us)
        bytes_[f"W = {w}, n = {n:,}"] = (axis, size)
        for what, costs in (("time", us), ("storage", size)):
            best.setdefault((w, what), []).append(sides[int(np.argmin(costs))])
        del indexes
    report.table("6", "Figure 6: the maximal side, 300 x 200, 90-10",
                 ["W", "rectangles", "L", "us per event", "MB"], rows)  # fmt: skip
    for figure, unit, series in (("time", "us per event", times), ("storage", "MB", bytes_)):
        report.plot(f"6-{figure}", f"Figure 6: {figure} by maximal side L", "L", unit, series, True, True)
    report.text(
        "The paper does not say for how many rectangles. The best L grows with their number, so a value from "
        "that of the smallest set to that of the largest counts as agreement."
    )
    of = f"n = {', '.join(f'{n:,}' for n in sizes)}"
    for w, said in ((20, {"storage": 8, "time": 16}), (40, {"storage": 16, "time": 16})):
        for what, side in said.items():
            seen = best[w, what]
            report.claim(f"W = {w}: the best L for {what} is {side} (n is not given)",
                         min(seen) <= side <= max(seen), f"best is {shown(seen)} for {of}")  # fmt: skip
    pairs = [pair for what in ("time", "storage")
             for pair in zip(best[20, what], best[40, what], strict=True)]  # fmt: skip
    report.claim("larger predicates want a larger L",
                 all(b >= a for a, b in pairs) and any(b > a for a, b in pairs),
                 f"W = 20 and 40 for {of}: time {shown(best[20, 'time'])} and {shown(best[40, 'time'])}, "
                 f"storage {shown(best[20, 'storage'])} and {shown(best[40, 'storage'])}")  # fmt: skip


def figure_7(report: ExperimentReport, sizes: list[int]) -> None:
    """Beside R-trees."""
    trees = tree_names()
    names = ["VCR", "VCR runs (ours)", *trees]
    rows: list[list[Any]] = []
    seen: dict[tuple[str, str], list[float]] = {}
    storage: dict[tuple[str, str], list[float]] = {}
    pair_ns: list[float] = []
    for skew, options in SKEWS.items():
        for n in sizes:
            report.say(f"figure 7: {skew}, {n:,} rectangles")
            drawn = workload("rectangles", n, 4_000, **options)
            indexes = {"VCR": opened(drawn, **PAPER), "VCR runs (ours)": opened(drawn), **own_tree(drawn)}
            contenders = {name: matcher(index, drawn) for name, index in indexes.items()}
            contenders |= {name: tree_matcher(name, drawn) for name in trees if name not in indexes}
            taken = microseconds(report, drawn, contenders)
            if skew == "90-10":
                pair_ns.append(1000 * taken["VCR"] / (contenders["VCR"](500) / 500))
            held = {name: structure_bytes(index) for name, index in indexes.items()}
            held |= {name: resident(name, n, options) for name in trees if name not in indexes}
            for name in names:
                seen.setdefault((name, skew), []).append(taken[name])
                storage.setdefault((name, skew), []).append(held[name] / 1e6)
                rows.append([skew, n, name, round(taken[name], 2), round(held[name] / 1e6, 2)])
            del indexes, contenders
    report.table("7", "Figure 7: VCR and R-trees, 300 x 200, simple decomposition, L 16 x 8",
                 ["skew", "rectangles", "index", "us per event", "MB"], rows)  # fmt: skip
    thousands = [n / 1000 for n in sizes]
    for skew in SKEWS:
        lines = {name: (thousands, seen[name, skew]) for name in names}
        report.plot(f"7-time-{skew}", f"Figure 7a: search time, {skew}", "thousand rectangles",
                    "us per event", lines, log_y=True)  # fmt: skip
    report.text(
        f"The time of VCR for each pair that it finds grows from {pair_ns[0]:.0f} ns at {sizes[0]:,} "
        f"rectangles to {pair_ns[-1]:.0f} ns at {sizes[-1]:,} (90-10): its linked lists outgrow the cache, "
        "and each node is a jump in memory. Packed trees read whole nodes, and `runs` whole slices."
    )
    held_lines = {name: (thousands, mb) for (name, skew), mb in storage.items() if skew == "90-10"}
    report.plot("7-storage", "Figure 7b: storage", "thousand rectangles", "MB", held_lines)
    ratios = {k: [t / v for t, v in zip(us, seen["VCR", k[1]], strict=True)] for k, us in seen.items()}
    for tree in trees:
        hot, even = ratios[tree, "90-10"], ratios[tree, "uniform"]
        report.claim(f"VCR searches substantially faster than an R-tree (here {tree})",
                     min(*hot, *even) > 1.5,
                     f"90-10: {shown(hot)} times, uniform: {shown(even)} times")  # fmt: skip
        report.claim(f"the difference grows with n ({tree})", hot[-1] > hot[0], f"90-10: {shown(hot)}")
    reference = trees[0]
    more = [v / t for v, t in zip(storage["VCR", "90-10"], storage[reference, "90-10"], strict=True)]
    report.claim("the increase in storage is modest", more[-1] < 3, f"{shown(more)} times {reference}")
    apart = [a / b for a, b in zip(storage["VCR", "90-10"], storage["VCR", "uniform"], strict=True)]
    report.claim("storage does not depend on the overlap", all(abs(r - 1) < 0.1 for r in apart),
                 f"90-10 over uniform: {shown(apart)}")  # fmt: skip


def figure_8(report: ExperimentReport, sizes: list[int]) -> None:
    """A header for each construct, or a hash table of those in use."""
    rows: list[list[Any]] = []
    seen: dict[str, list[float]] = {}
    storage: dict[str, list[float]] = {}
    for n in sizes:
        report.say(f"figure 8: {n:,} rectangles")
        drawn = workload("rectangles", n, 4_000, alpha=0.9, beta=0.01, **WIDE)
        array = opened(drawn, **PAPER, decomposition="od")
        hashed = opened(drawn, **{**PAPER, "storage": "hash"}, decomposition="od", table=10 * n, max_load=0.9)
        indexes = {"array": array, "hash": hashed, "runs (ours)": opened(drawn)}
        taken = microseconds(report, drawn, {name: matcher(index, drawn) for name, index in indexes.items()})
        for name, index in indexes.items():
            mb = structure_bytes(index) / 1e6
            seen.setdefault(name, []).append(taken[name])
            storage.setdefault(name, []).append(mb)
            rows.append([n, name, round(taken[name], 2), round(mb, 1)])
        del array, hashed, indexes
    report.table("8", "Figure 8: hashing, 2,000 x 1,500, 90-1, overlapped decomposition, table of 10 n",
                 ["rectangles", "storage", "us per event", "MB"], rows)  # fmt: skip
    thousands = [n / 1000 for n in sizes]
    for figure, what, unit, values in (
        ("8-time", "Figure 8a: search time", "us per event", seen),
        ("8-storage", "Figure 8b: storage", "MB", storage),
    ):
        series = {name: (thousands, v) for name, v in values.items()}
        report.plot(figure, what, "thousand rectangles", unit, series, log_y=True)
    less = [a / h for a, h in zip(storage["array"], storage["hash"], strict=True)]
    report.claim("hashing needs much less storage on a large domain", min(less) > 1.5,
                 f"the array needs {shown(less)} times as much")  # fmt: skip
    slower = [h / a for h, a in zip(seen["hash"], seen["array"], strict=True)]
    report.claim("hashing costs search time, most for few rectangles (5 to 1.5 times)",
                 min(slower) > 1 and slower[0] > slower[-1], f"{shown(slower)} times")  # fmt: skip


def figure_9(report: ExperimentReport, sizes: list[int]) -> None:
    """Overlapped and simple decomposition in one hash table of a fixed size."""
    rows: list[list[Any]] = []
    seen: dict[str, list[float]] = {"SD": [], "OD": []}
    loads: dict[str, list[float]] = {"SD": [], "OD": []}
    for n in sizes:
        report.say(f"figure 9: {n:,} rectangles")
        drawn = workload("rectangles", n, 4_000, **WIDE)
        indexes = {
            name: opened(
                drawn, **{**PAPER, "storage": "hash"}, decomposition=name.lower(), table=TABLE, max_load=0.99
            )
            for name in ("SD", "OD")
        }
        taken = microseconds(report, drawn, {name: matcher(index, drawn) for name, index in indexes.items()})
        for name, index in indexes.items():
            stats = index.stats()
            seen[name].append(taken[name])
            loads[name].append(stats["load_factor"])
            rows.append([n, name, round(taken[name], 2), stats["load_factor"], stats["activated"],
                         stats["entries"], stats["mean_probes"], stats["headers"]])  # fmt: skip
        del indexes
    columns = ["rectangles", "decomposition", "us per event", "load factor", "activated", "entries",
               "mean probes", "table"]  # fmt: skip
    report.table("9", "Figure 9: decompositions, 2,000 x 1,500, 90-10, table of 1,800,017", columns, rows)
    thousands = [n / 1000 for n in sizes]
    for figure, what, unit, values in (
        ("9-time", "Figure 9a: search time", "us per event", seen),
        ("9-load", "Figure 9b: load factor of the hash table", "load factor", loads),
    ):
        series = {name: (thousands, v) for name, v in values.items()}
        report.plot(figure, what, "thousand rectangles", unit, series)
    fewer = [o / s for o, s in zip(loads["OD"], loads["SD"], strict=True)]
    report.claim("OD activates fewer constructs than SD", max(fewer) < 1, f"{shown(fewer)} times as many")
    faster = [s / o for s, o in zip(seen["SD"], seen["OD"], strict=True)]
    report.claim("OD searches much faster than SD, most for large n",
                 faster[-1] > 1.2 and faster[-1] > faster[0],
                 f"SD takes {shown(faster)} times as long")  # fmt: skip


def distance_table(report: ExperimentReport, n: int) -> None:
    """Adding distances to a pivot, or working out each id."""
    report.say("the distance table")
    rows: list[list[Any]] = []
    ratios = []
    for skew, options in SKEWS.items():
        drawn = workload("rectangles", n, 4_000, **options)
        kinds = {kind: opened(drawn, **PAPER, lookup=kind) for kind in ("distance", "enumerate")}
        taken = microseconds(report, drawn, {kind: matcher(index, drawn) for kind, index in kinds.items()})
        rows += [[skew, kind, round(us, 2)] for kind, us in taken.items()]
        ratios.append(taken["enumerate"] / taken["distance"])
    report.table("distances", f"The distance table, {n:,} rectangles, 300 x 200, 684 constructs per point",
                 ["skew", "look-up", "us per event"], rows)  # fmt: skip
    report.claim("adding distances to a pivot is faster than working out ids", min(ratios) > 1.05,
                 f"working out takes {shown(ratios)} times as long (uniform, 90-10)")  # fmt: skip


def our_layout(report: ExperimentReport, n: int) -> None:
    """Not in the paper: the same constructs in runs."""
    trees = tree_names()
    cases = {
        "300 x 200, 90-10": workload("rectangles", n, 4_000),
        "300 x 200, uniform": workload("rectangles-uniform", n, 4_000),
        "2,000 x 1,500, 90-10": workload("rectangles-wide-domain", n, 20_000),
        "lon/lat, floats": workload("lonlat", n, 20_000),
    }
    rows: list[list[Any]] = []
    for title, drawn in cases.items():
        report.say(f"runs: {title}")
        sides: dict[str, Any] = {} if title.startswith("lon") else {"Lx": 16, "Ly": 8}
        lists = opened(drawn, storage="array", **sides)
        indexes = {"runs": opened(drawn), "array": lists, **own_tree(drawn)}
        contenders = {name: matcher(index, drawn) for name, index in indexes.items()}
        contenders |= {name: tree_matcher(name, drawn) for name in trees if name not in indexes}
        taken = microseconds(report, drawn, contenders)
        for name, us in taken.items():
            each = indexes[name].stats()["bytes_per_subscription"] if name in indexes else None
            rows.append([title, name, round(us, 2), round(us / taken["runs"], 1), each])
        del indexes, contenders
    report.table("runs", f"Ours: `runs` beside the paper's look-up and R-trees, {n:,} rectangles",
                 ["data", "index", "us per event", "times runs", "bytes per subscription"], rows)  # fmt: skip


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
    return [*trees, *([OWN_TREE] if "rtree" in REGISTRY else [])]


def own_tree(drawn: Workload) -> dict[str, Index]:
    """Our R*-tree over a workload, where there is one."""
    return {OWN_TREE: opened(drawn, "rtree")} if "rtree" in REGISTRY else {}


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
) -> dict[str, float]:
    """Time an event of each contender: turns on the same events, as many as the slowest can take."""
    seconds = 0.05 if report.quick else 0.15
    few = 32
    check_agreement(f"{drawn.name}, pairs", {name: match(few) for name, match in contenders.items()})
    slowest = max(timed(match, few, clock=PROCESS)[0] for match in contenders.values())
    k = int(min(max(seconds / slowest * few, few), drawn.n_events))
    calls = {name: partial(match, k) for name, match in contenders.items()}
    taken = take_turns(calls, 3 if report.quick else 9, clock=PROCESS, count=int, where=drawn.name)
    return {name: 1e6 * rounds.best / k for name, rounds in taken.items()}


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


def shown(ratios: Sequence[float]) -> str:
    """Ratios along a figure in a few characters.

    >>> shown([1.234, 10.0])
    '1.2, 10'
    """
    return ", ".join(f"{ratio:.2g}" for ratio in ratios)
