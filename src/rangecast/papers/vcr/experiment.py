"""The experiments of the rectangle paper: figures 6 to 9, and our layout beside them.

Source: Wu, Chen and Yu, "VCR indexing for fast event matching for highly-overlapping range
predicates" (IBM Research Report, 2004), sec. 3. Subscriptions and events follow the same skew rule
(workload `rectangles`); 90-10 means that nine in ten lie in a tenth of the area.

All contenders of one point of a figure take turns on the same events, the best of several turns counts
(time of the processor, one thread), and all must find the same number of pairs. A header is 4 bytes and a
list node 8, as in the paper.
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
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import Index, open_index
from rangecast.errors import OptionError
from rangecast.papers.measuring import PROCESS, check_agreement, take_turns, timed
from rangecast.papers.report import Claim, ExperimentReport
from rangecast.workloads import Workload, workload

PAPER: Mapping[str, Any] = {"Lx": 16, "Ly": 8, "storage": "array", "cells": 4096}
TABLE = 1_800_017
BY_TIME = "time of an event"
BY_BYTES = "bytes of the structure"
WIDE = {"rx": 2_000, "ry": 1_500}
BATCH = 1_000
ALONE = 50
TURNS = 5
CASES = {
    "300 x 200, 90-10": ("rectangles", 4_000),
    "300 x 200, uniform": ("rectangles-uniform", 4_000),
    "2,000 x 1,500, 90-10": ("rectangles-wide-domain", 20_000),
    "lon/lat, floats": ("lonlat", 20_000),
}
SKEWS: Mapping[str, dict[str, Any]] = {"uniform": {"alpha": 0.0}, "90-10": {"alpha": 0.9, "beta": 0.1}}

OTHERS = "32,000 and 128,000 rectangles"
SAID = {(20, "storage"): 8, (20, "time"): 16, (40, "storage"): 16, (40, "time"): 16}
"""The best L of figure 6, as the paper has it, by W."""

CLAIMS = {
    **{
        f"{what} {w}": Claim(
            f"W = {w}: the best L for {what} is {side} (n is not given)",
            "section 3, figure 6",
            f"least of the other L / L = {side}, the greatest over the numbers of rectangles",
            1,
            by=f"{BY_BYTES if what == 'storage' else BY_TIME}, at one of these n at least",
            why="at none of these sizes it is",
            at=OTHERS,
            counted=what == "storage",
        )
        for (w, what), side in SAID.items()
    },
    "best L": Claim(
        "larger predicates want a larger L",
        "section 3, figure 6",
        "best L with W = 40 / with W = 20: product of those by time and by bytes; none where one is smaller",
        1,
        by="the best L by time and by bytes, for the same n",
        why="for one n it is smaller",
        at=OTHERS,
    ),
    "tree": Claim(
        "VCR searches substantially faster than an R-tree, most when predicates overlap much",
        "section 3, figure 7a",
        "R*-tree built by inserts / VCR, the least of 90-10 and uniform",
        1.5,
        by=f"{BY_TIME}, at least 1.5 times, beside the R*-tree built by inserts",
        why="a tree of today reads whole nodes from the cache where a linked list jumps; beside "
        "libspatialindex's tree, which is slower than ours, VCR is ahead",
        at=OTHERS,
    ),
    "difference": Claim(
        "the difference between VCR and an R-tree grows with n",
        "section 3, figure 7a",
        "Rtree less VCR, with many / with few, 90-10",
        1,
        by="microseconds by which the slowest R-tree (Rtree, of pointers as the paper's) is slower, from the "
        "smallest n to the largest; beside trees in arrays VCR is the slower one, as the claim above says",
        why="VCR is the slower one",
        at=OTHERS,
    ),
    "modest": Claim(
        "the increase in storage is modest",
        "section 3, figure 7b",
        "VCR / R*-tree built by inserts, at the largest n",
        0,
        3,
        by="bytes of the structure at the largest n, below 3 times the R*-tree built by inserts",
        why="a node of the list costs 8 bytes in each of several constructs, a box in a leaf 20",
        at=OTHERS,
        counted=True,
    ),
    "overlap": Claim(
        "storage does not depend on the overlap",
        "section 3, figure 7b",
        "90-10 / uniform, the farthest from 1",
        0.9,
        1.1,
        by="bytes of the structure, within a tenth",
        at=OTHERS,
        counted=True,
    ),
    "less": Claim(
        "hashing needs much less storage on a large domain",
        "section 3, figure 8b",
        "array / hash, the least",
        1.5,
        by="bytes of the structure, at least 1.5 times",
        at=OTHERS,
        counted=True,
    ),
    "hash": Claim(
        "hashing costs search time, most for few rectangles (5 to 1.5 times)",
        "section 3, figure 8a",
        "the lesser of hash / array, the least, and of that with few / with many",
        1,
        by=f"{BY_TIME}; slower everywhere, and by more for the fewest",
        at=OTHERS,
    ),
    "activated": Claim(
        "OD activates fewer constructs than SD",
        "section 3, figure 9b",
        "OD / SD, the greatest",
        0,
        1,
        by="constructs in use",
        at=OTHERS,
        counted=True,
    ),
    "od": Claim(
        "OD searches much faster than SD, most for large n",
        "section 3, figure 9a",
        "SD / OD with many; none where it is less than with few",
        1.2,
        by=f"{BY_TIME}; at least 1.2 times at the largest n, and by more than at the smallest",
        at="32,000 and 256,000 rectangles",
    ),
    "pivot": Claim(
        "adding distances to a pivot is faster than working out ids",
        "section 2.3.2",
        "working out / adding, the lesser of 90-10 and uniform",
        1.05,
        by=f"{BY_TIME}, at least 1.05 times",
        why="working out an id is two multiplications, which cost little beside reading the list",
        at="32,000 rectangles",
    ),
    "delete": Claim(
        "insertion is very efficient, and deletion slower, since half a list is walked (section 2.4)",
        "section 2.4",
        "delete / insert, the least",
        1,
        by=f"time of a change among {BATCH:,}, drawn at random, at every n",
        why="lists are short: what an insert does besides, which a delete need not, costs more than "
        "half a list",
        at=OTHERS,
    ),
}


def run(report: ExperimentReport) -> None:
    """Measure all figures and weigh the claims."""
    sizes = report.extent([32_000, 64_000, 128_000, 256_000], [32_000, 128_000], [1_000, 2_000])
    say_departures(report)
    figure_6(report, sizes if not report.quick else sizes[1:])
    figure_7(report, sizes)
    figure_8(report, sizes)
    figure_9(report, report.extent(sizes, [sizes[0], 2 * sizes[-1]], sizes))
    distance_table(report, sizes[0])
    changes(report, sizes)
    if not report.repeats:
        our_layout(report, sizes[-1])
    report.write(
        "The rectangle index (VCR)",
        "Wu, Chen and Yu, *VCR indexing for fast event matching for highly-overlapping range predicates*, "
        "IBM Research Report, 2004.",
    )


def say_departures(report: ExperimentReport) -> None:
    """Every parameter that is not the paper's."""
    report.departs(
        "searches per point",
        "100,000",
        "as many as the slowest contender makes in 0.15 s, 32 to 4,000; the tables say",
        "contenders take turns on the same events, nine times",
    )
    report.departs("R-tree", "Theodoridis' C code, built by inserts",
                   "our R*-tree built by inserts; beside it packed ones: ours, Rtree (libspatialindex), "
                   "STRtree (GEOS)",
                   "the paper's is not to be had; packed trees overlap less than inserted ones")  # fmt: skip
    report.departs(
        "an id in two constructs of one point", "reported twice", "reported once", "a match is a set"
    )
    report.departs("number of rectangles in figure 6", "not given", "each of those of figure 7", "")
    report.departs("skew and sides L of figure 6", "not given", "90-10; powers of two from 2 to 64", "")
    report.departs(
        "sides of the domain",
        "Rx Ry = 60,000 and 3,000,000",
        "300 x 200 and 2,000 x 1,500",
        "the paper gives the products alone",
    )
    report.departs(
        "table of figure 8", "about 10 n", "10 n", "ours has one header per place, the paper's chains"
    )
    report.departs(
        "storage of Rtree and STRtree",
        "of the tree's nodes",
        "by how much building one raises the memory of a fresh process",
        "these packages do not say what their nodes hold",
    )
    report.departs(
        "the distance table, inserts and deletes",
        "argued (sections 2.3.2 and 2.4), not measured",
        "measured",
        "tables of their own, below figure 9",
    )
    if report.quick:
        report.departs("rectangles", "32,000 to 256,000", "1,000 and 2,000", "--quick")


def figure_6(report: ExperimentReport, sizes: list[int]) -> None:
    """The effect of the maximal side; the paper does not say for how many rectangles."""
    sides = [2, 4, 8, 16, 32, 64]
    axis = [float(side) for side in sides]
    rows: list[list[Any]] = []
    times: dict[str, tuple[list[float], list[float]]] = {}
    bytes_: dict[str, tuple[list[float], list[float]]] = {}
    curves: dict[tuple[int, str], list[list[float]]] = {}
    for w, n in itertools.product((20, 40), sizes):
        us, size, k = report.measured(
            f"figure 6: W = {w}, {n:,} rectangles", partial(_by_side, report, w, n, sides)
        )
        rows += [
            [w, n, side, k, round(t, 2), round(s, 2)] for side, t, s in zip(sides, us, size, strict=True)
        ]
        times[f"W = {w}, n = {n:,}"] = (axis, us)
        bytes_[f"W = {w}, n = {n:,}"] = (axis, size)
        for what, costs in (("time", us), ("storage", size)):
            curves.setdefault((w, what), []).append(costs)
    report.table("6", "Figure 6: the maximal side, 300 x 200, 90-10",
                 ["W", "rectangles", "L", "events", "us per event", "MB"], rows)  # fmt: skip
    for figure, unit, series in (("time", "us per event", times), ("storage", "MB", bytes_)):
        report.plot(f"6-{figure}", f"Figure 6: {figure} by maximal side L", "L", unit, series, True, True)
    report.text(
        "The paper does not say how many rectangles figure 6 is drawn for. The best L grows with their "
        "number, so a claim agrees when the paper's L is the best one for one of these numbers."
    )
    best = {key: [sides[int(np.argmin(costs))] for costs in own] for key, own in curves.items()}
    of = f"n = {', '.join(f'{n:,}' for n in sizes)}"
    for (w, what), side in SAID.items():
        of_side = sides.index(side)
        number = max(
            min(cost for k, cost in enumerate(costs) if k != of_side) / costs[of_side]
            for costs in curves[w, what]
        )
        at = [f"{n:,}" for n, chosen in zip(sizes, best[w, what], strict=True) if chosen == side]
        report.weigh(
            CLAIMS[f"{what} {w}"],
            number,
            f"best is {shown(best[w, what])} for {of}" + (f"; {side} at n = {', '.join(at)}" if at else ""),
        )
    larger = [b / a for what in ("time", "storage")
              for a, b in zip(best[20, what], best[40, what], strict=True)]  # fmt: skip
    report.weigh(
        CLAIMS["best L"],
        0.0 if min(larger) < 1 else float(np.prod(larger)),
        f"W = 20 and 40 for {of}: time {shown(best[20, 'time'])} and {shown(best[40, 'time'])}, "
        f"storage {shown(best[20, 'storage'])} and {shown(best[40, 'storage'])}",
    )


def _by_side(
    report: ExperimentReport, w: int, n: int, sides: list[int]
) -> tuple[list[float], list[float], int]:
    drawn = workload("rectangles", n, 4_000, wx=w, wy=w, seed=report.seed)
    indexes = {side: opened(drawn, **{**PAPER, "Lx": side, "Ly": side}) for side in sides}
    taken, k = microseconds(report, drawn, {str(s): matcher(i, drawn) for s, i in indexes.items()})
    size = [structure_bytes(index) / 1e6 for index in indexes.values()]
    return [taken[str(side)] for side in sides], size, k


def figure_7(report: ExperimentReport, sizes: list[int]) -> None:
    """Beside R-trees."""
    trees = tree_names()
    names = ["VCR", "VCR runs (ours)", *trees]
    rows: list[list[Any]] = []
    seen: dict[tuple[str, str], list[float]] = {}
    storage: dict[tuple[str, str], list[float]] = {}
    for skew in SKEWS:
        for n in sizes:
            step = f"figure 7: {skew}, {n:,} rectangles"
            taken, held, k = report.measured(step, partial(_beside_trees, report, skew, n))
            for name in names:
                seen.setdefault((name, skew), []).append(taken[name])
                storage.setdefault((name, skew), []).append(held[name] / 1e6)
                rows.append([skew, n, name, k, round(taken[name], 2), round(held[name] / 1e6, 2)])
    report.table("7", "Figure 7: VCR and R-trees, 300 x 200, simple decomposition, L 16 x 8",
                 ["skew", "rectangles", "index", "events", "us per event", "MB"], rows)  # fmt: skip
    thousands = [n / 1000 for n in sizes]
    for skew in SKEWS:
        lines = {name: (thousands, seen[name, skew]) for name in names}
        report.plot(f"7-time-{skew}", f"Figure 7a: search time, {skew}", "thousand rectangles",
                    "us per event", lines, log_y=True)  # fmt: skip
    report.text(
        "The linked lists of VCR outgrow the cache as n grows, and each node is a jump in memory. Packed "
        "trees read "
        "whole nodes, and `runs` whole slices."
    )
    held_lines = {name: (thousands, mb) for (name, skew), mb in storage.items() if skew == "90-10"}
    report.plot("7-storage", "Figure 7b: storage", "thousand rectangles", "MB", held_lines)
    ratios = {k: [t / v for t, v in zip(us, seen["VCR", k[1]], strict=True)] for k, us in seen.items()}
    apart = {k: [t - v for t, v in zip(us, seen["VCR", k[1]], strict=True)] for k, us in seen.items()}
    told = "; ".join(
        f"{tree}: 90-10 {shown(ratios[tree, '90-10'])} times, uniform {shown(ratios[tree, 'uniform'])}"
        for tree in trees
    )
    report.weigh(CLAIMS["tree"], min(*ratios[INSERTED, "90-10"], *ratios[INSERTED, "uniform"]), told)
    few, *_, many = apart["Rtree" if "Rtree" in trees else INSERTED, "90-10"]
    report.weigh(
        CLAIMS["difference"],
        many / few if few > 0 else 0.0,
        "90-10: " + "; ".join(f"{tree} {shown(apart[tree, '90-10'])} us" for tree in trees),
    )
    more = {tree: [v / t for v, t in zip(storage["VCR", "90-10"], storage[tree, "90-10"], strict=True)]
            for tree in trees if storage[tree, "90-10"][0]}  # fmt: skip
    report.weigh(
        CLAIMS["modest"],
        more[INSERTED][-1],
        "; ".join(f"{shown(own)} times {tree}" for tree, own in more.items()),
    )
    over = [a / b for a, b in zip(storage["VCR", "90-10"], storage["VCR", "uniform"], strict=True)]
    report.weigh(
        CLAIMS["overlap"], max(over, key=lambda ratio: abs(ratio - 1)), f"90-10 over uniform: {shown(over)}"
    )


def _beside_trees(
    report: ExperimentReport, skew: str, n: int
) -> tuple[dict[str, float], dict[str, int], int]:
    drawn = workload("rectangles", n, 4_000, seed=report.seed, **SKEWS[skew])
    indexes = {"VCR": opened(drawn, **PAPER), "VCR runs (ours)": opened(drawn), **own_trees(drawn)}
    contenders = {name: matcher(index, drawn) for name, index in indexes.items()}
    others = [name for name in tree_names() if name not in indexes]
    contenders |= {name: tree_matcher(name, drawn) for name in others}
    taken, k = microseconds(report, drawn, contenders)
    held = {name: structure_bytes(index) for name, index in indexes.items()}
    held |= {name: 0 if report.quick or report.repeats else resident(name, n, SKEWS[skew]) for name in others}
    return taken, held, k


def figure_8(report: ExperimentReport, sizes: list[int]) -> None:
    """A header for each construct, or a hash table of those in use."""
    rows: list[list[Any]] = []
    seen: dict[str, list[float]] = {}
    storage: dict[str, list[float]] = {}
    for n in sizes:
        taken, held, k = report.measured(f"figure 8: {n:,} rectangles", partial(_hashed, report, n))
        for name in taken:
            mb = held[name] / 1e6
            seen.setdefault(name, []).append(taken[name])
            storage.setdefault(name, []).append(mb)
            rows.append([n, name, k, round(taken[name], 2), round(mb, 1)])
    report.table("8", "Figure 8: hashing, 2,000 x 1,500, 90-1, overlapped decomposition, table of 10 n",
                 ["rectangles", "storage", "events", "us per event", "MB"], rows)  # fmt: skip
    thousands = [n / 1000 for n in sizes]
    for figure, what, unit, values in (
        ("8-time", "Figure 8a: search time", "us per event", seen),
        ("8-storage", "Figure 8b: storage", "MB", storage),
    ):
        series = {name: (thousands, v) for name, v in values.items()}
        report.plot(figure, what, "thousand rectangles", unit, series, log_y=True)
    less = [a / h for a, h in zip(storage["array"], storage["hash"], strict=True)]
    report.weigh(CLAIMS["less"], min(less), f"the array needs {shown(less)} times as much")
    slower = [h / a for h, a in zip(seen["hash"], seen["array"], strict=True)]
    report.weigh(CLAIMS["hash"], min(*slower, slower[0] / slower[-1]), f"{shown(slower)} times")


def _hashed(report: ExperimentReport, n: int) -> tuple[dict[str, float], dict[str, int], int]:
    drawn = workload("rectangles", n, 4_000, alpha=0.9, beta=0.01, seed=report.seed, **WIDE)
    hashing = {**PAPER, "storage": "hash"}
    indexes = {
        "array": opened(drawn, **PAPER, decomposition="od"),
        "hash": opened(drawn, **hashing, decomposition="od", table=10 * n, max_load=0.9),
        "runs (ours)": opened(drawn),
    }
    taken, k = microseconds(report, drawn, {name: matcher(index, drawn) for name, index in indexes.items()})
    return taken, {name: structure_bytes(index) for name, index in indexes.items()}, k


def figure_9(report: ExperimentReport, sizes: list[int]) -> None:
    """Overlapped and simple decomposition in one hash table of a fixed size."""
    rows: list[list[Any]] = []
    seen: dict[str, list[float]] = {"SD": [], "OD": []}
    loads: dict[str, list[float]] = {"SD": [], "OD": []}
    for n in sizes:
        taken, told, k = report.measured(f"figure 9: {n:,} rectangles", partial(_decomposed, report, n))
        for name, stats in told.items():
            seen[name].append(taken[name])
            loads[name].append(stats["load_factor"])
            rows.append([n, name, k, round(taken[name], 2), stats["load_factor"], stats["activated"],
                         stats["entries"], stats["mean_probes"], stats["headers"]])  # fmt: skip
    columns = ["rectangles", "decomposition", "events", "us per event", "load factor", "activated", "entries",
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
    report.weigh(CLAIMS["activated"], max(fewer), f"{shown(fewer)} times as many")
    faster = [s / o for s, o in zip(seen["SD"], seen["OD"], strict=True)]
    report.weigh(
        CLAIMS["od"],
        faster[-1] if faster[-1] > faster[0] else 0.0,
        f"SD takes {shown(faster)} times as long",
    )


def _decomposed(report: ExperimentReport, n: int) -> tuple[dict[str, float], dict[str, Any], int]:
    drawn = workload("rectangles", n, 4_000, seed=report.seed, **WIDE)
    hashing = {**PAPER, "storage": "hash", "table": TABLE, "max_load": 0.99}
    indexes = {name: opened(drawn, **hashing, decomposition=name.lower()) for name in ("SD", "OD")}
    taken, k = microseconds(report, drawn, {name: matcher(index, drawn) for name, index in indexes.items()})
    return taken, {name: index.stats() for name, index in indexes.items()}, k


def distance_table(report: ExperimentReport, n: int) -> None:
    """Adding distances to a pivot, or working out each id."""
    rows: list[list[Any]] = []
    ratios = []
    for skew in SKEWS:
        taken, k = report.measured(f"the distance table, {skew}", partial(_look_up, report, skew, n))
        rows += [[skew, kind, k, round(us, 2)] for kind, us in taken.items()]
        ratios.append(taken["enumerate"] / taken["distance"])
    report.table("distances", f"The distance table, {n:,} rectangles, 300 x 200, 684 constructs per point",
                 ["skew", "look-up", "events", "us per event"], rows)  # fmt: skip
    report.weigh(
        CLAIMS["pivot"], min(ratios), f"working out takes {shown(ratios)} times as long (uniform, 90-10)"
    )


def _look_up(report: ExperimentReport, skew: str, n: int) -> tuple[dict[str, float], int]:
    drawn = workload("rectangles", n, 4_000, seed=report.seed, **SKEWS[skew])
    kinds = {kind: opened(drawn, **PAPER, lookup=kind) for kind in ("distance", "enumerate")}
    return microseconds(report, drawn, {kind: matcher(index, drawn) for kind, index in kinds.items()})


def changes(report: ExperimentReport, sizes: list[int]) -> None:
    """What an insert and a delete cost, in lists and in the tree."""
    rows: list[list[Any]] = []
    costs: dict[str, list[ChangeCost]] = {}
    for n in sizes:
        found = report.measured(f"changes: {n:,} rectangles", partial(change_costs, n, report.seed))
        for name, cost in found.items():
            costs.setdefault(name, []).append(cost)
            rows.append([n, name, *(round(us, 2) for us in cost)])
    columns = ["rectangles", "index", "insert, us", "delete, us", "insert alone, us", "delete alone, us"]
    report.table("changes", "Cost of a change per rectangle, 300 x 200, 90-10", columns, rows)
    report.text(
        f"`insert` and `delete` take {BATCH:,} rectangles in one call; `alone` takes {ALONE} in a call each, "
        "where the call itself is most of the cost. What is deleted is drawn at random from all that are "
        f"stored, and then inserted again; the fastest of {TURNS} turns counts, after one to warm up."
    )
    own = costs["VCR"]
    report.weigh(
        CLAIMS["delete"],
        min(cost.delete / cost.insert for cost in own),
        f"VCR, insert and delete of {BATCH:,} at once: "
        + "; ".join(
            f"{cost.insert:.2g} and {cost.delete:.2g} us at {n:,}" for n, cost in zip(sizes, own, strict=True)
        ),
    )


class ChangeCost(NamedTuple):
    """Microseconds per rectangle of changes, many in a call and alone."""

    insert: float
    delete: float
    insert_alone: float
    delete_alone: float


def change_costs(n: int, seed: int) -> dict[str, ChangeCost]:
    """Delete some of n rectangles, and insert them again, in each index by turns."""
    drawn = workload("rectangles", n, 1, seed=seed)
    subs = drawn.subscriptions()
    hashing = {**PAPER, "storage": "hash", "table": TABLE, "max_load": 0.99}
    indexes = {
        name: opened(drawn, kind, **options)
        for name, (kind, options) in {
            "VCR": ("vcr", PAPER),
            "VCR, hashed": ("vcr", hashing),
            "VCR runs (ours)": ("vcr", {}),
            INSERTED: ("rtree", {"load": "insert"}),
        }.items()
    }
    rng = np.random.default_rng(seed)
    turns: dict[str, list[ChangeCost]] = {name: [] for name in indexes}
    # one turn more: the first also compiles, and touches memory for the first time
    for _ in range(1 + TURNS):
        picked = rng.permutation(n)[: min(BATCH, n // 4) + ALONE]
        many, few = subs.select(picked[ALONE:]), [subs.select(picked[[i]]) for i in range(ALONE)]
        for name, index in indexes.items():
            delete = timed(index.delete, many.ids.values, clock=PROCESS)[0]
            insert = timed(index.insert, many, clock=PROCESS)[0]
            delete_alone = timed(_each, index.delete, [own.ids.values for own in few], clock=PROCESS)[0]
            insert_alone = timed(_each, index.insert, few, clock=PROCESS)[0]
            turns[name].append(
                ChangeCost(insert / len(many), delete / len(many), insert_alone / ALONE, delete_alone / ALONE)
            )
    return {
        name: ChangeCost(*(1e6 * min(costs) for costs in zip(*own[1:], strict=True)))
        for name, own in turns.items()
    }


def _each(change: Callable[[Any], Any], parts: Sequence[Any]) -> None:
    for part in parts:
        change(part)


def our_layout(report: ExperimentReport, n: int) -> None:
    """Not in the paper: the same constructs in runs."""
    rows: list[list[Any]] = []
    for title in CASES:
        taken, each, k = report.measured(f"runs: {title}", partial(_in_runs, report, title, n))
        rows += [[title, name, k, round(us, 2), round(us / taken["runs"], 1), each.get(name)]
                 for name, us in taken.items()]  # fmt: skip
    report.table("runs", f"Ours: `runs` beside the paper's look-up and R-trees, {n:,} rectangles",
                 ["data", "index", "events", "us per event", "times runs", "bytes each"], rows)  # fmt: skip


def _in_runs(report: ExperimentReport, title: str, n: int) -> tuple[dict[str, float], dict[str, float], int]:
    name, m = CASES[title]
    drawn = workload(name, n, m)
    sides: dict[str, Any] = {} if title.startswith("lon") else {"Lx": 16, "Ly": 8}
    indexes = {"runs": opened(drawn), "array": opened(drawn, storage="array", **sides),
               OWN_TREE: opened(drawn, "rtree")}  # fmt: skip
    contenders = {name: matcher(index, drawn) for name, index in indexes.items()}
    contenders |= {name: tree_matcher(name, drawn) for name in tree_names() if name in ("Rtree", "STRtree")}
    taken, k = microseconds(report, drawn, contenders)
    return taken, {name: index.stats()["bytes_per_subscription"] for name, index in indexes.items()}, k


def shown(ratios: Sequence[float]) -> str:
    """Ratios along a figure in a few characters.

    >>> shown([1.234, 10.0, 1234.5])
    '1.2, 10, 1,234'
    """
    return ", ".join(f"{ratio:,.0f}" if abs(ratio) >= 100 else f"{ratio:.2g}" for ratio in ratios)


# How the rectangle paper's experiment measures: who takes part, and the time of an event.
#
# Contenders answer the first k events of a workload and say how many pairs they found, so that all can be
# held against each other; ids are delivered by each. Memory of a foreign tree is what it adds to a fresh
# process.

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
