"""The claims of the UB-tree's paper, with one seed: the points of its figures that decide them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rangecast.engine import open_index
from rangecast.papers.report import ExperimentReport
from rangecast.papers.seeds.ratio import Ratio, SeedRatios, best_micros
from rangecast.papers.ubtree.experiment import BATCH
from rangecast.papers.ubtree.measures import Points, changed, measure, satisfied_operators
from rangecast.papers.ubtree.structures import UBTreeIndex
from rangecast.workloads import workload

SUBSCRIPTIONS, FEWER, EACH = 300_000, 75_000, 100_000
AT = f"{SUBSCRIPTIONS:,} subscriptions"
GROWN = f"{FEWER:,} and {SUBSCRIPTIONS:,} subscriptions"
SIDE = f"{EACH:,} subscriptions"

RATIOS = {
    "leaf": Ratio(
        "there is a best range of leaf capacities, 400 to 900 entries (figure 3a)",
        "plain: best of 64, 128, 256, 2,048 / best of 512, 768, 1,024",
        1,
        at=SIDE,
    ),
    "filter": Ratio(
        "filtering takes the major part, collecting regions is small and stable (figure 3b)",
        "share of the filter in plain's time; none where collecting grows by more than the whole",
        0.5,
        at=GROWN,
    ),
    "plain": Ratio(
        "optimised is an order of magnitude faster than plain", "plain / optimised, the lesser", 5, at=GROWN
    ),
    "counting": Ratio(
        "optimised is four orders of magnitude faster than counting", "counting / optimised", 1000, at=AT
    ),
    "brute": Ratio(
        "the transform's indexes are faster than brute force (figure 6a)",
        "scan / slower of plain and optimised",
        1,
        at=AT,
        why="optimised is faster everywhere; plain, which decodes addresses, is ahead of a compiled scan by "
        "columns with every seed and level with it at the least size of this run",
    ),
    "powers": Ratio(
        "both forms of the UB-tree scale better with the number of subscriptions (figure 6a)",
        "power of n: lesser of counting and scan less greater of plain and optimised",
        0,
        at=GROWN,
    ),
    "tables": Ratio(
        "grid tables cut the filter's input by one to two orders of magnitude (figure 7)",
        "entries before / after tables, the least up to a selectivity of 1 %",
        9,
        at=SIDE,
        why="it turns on the size at a selectivity of 1 %: the more there are, the larger a part of the "
        "filter's input are matches, which no table can cut; at 0.1 % and below it is an order and more "
        "in all",
    ),
    "selectivity": Ratio(
        "the transform's indexes are insensitive to selectivity (figure 6b)",
        "optimised, slowest / fastest of selectivities 0, 0.01 % and 1 %",
        0,
        2,
        SIDE,
    ),
    "grows": Ratio(
        "time grows with dimensions for the UB-tree and brute force (figure 6c)",
        "attributes compared with 40 / with 8, lesser of plain and optimised",
        1.2,
        at=SIDE,
    ),
    "dimensions": Ratio(
        "the time of counting does not change with dimensions (figure 6c)",
        "counting with 40 / 8 attributes",
        2 / 3,
        1.5,
        SIDE,
    ),
    "equality": Ratio(
        "counting depends heavily on the share of equality predicates (figure 6d)",
        "counting with none / nothing else",
        5,
        at=SIDE,
    ),
    "half": Ratio(
        "counting changes sharply with the share of half-intervals (figure 6e)",
        "satisfied operators with none / with half-intervals alone",
        1.5,
        at=SIDE,
    ),
    "used": Ratio(
        "counting rises with the number of attributes used (figure 6f)",
        "counting with 16 / 2 attributes used",
        2,
        at=SIDE,
    ),
    "updates": Ratio(
        "updates are logarithmic (section 2.1)",
        "greater growth of insert and delete / root of the growth in subscriptions",
        0,
        1,
        f"10,000 and {SUBSCRIPTIONS:,} subscriptions",
    ),
}


def take(report: ExperimentReport, seed: int) -> SeedRatios:
    """All of them."""
    n, fewer, each = (1_500, 500, 1_500) if report.quick else (SUBSCRIPTIONS, FEWER, EACH)
    m = 8 if report.quick else 20

    def at(size: int, **options: Any) -> Points:
        return measure(workload("predicates-16", size, m, seed=seed, **options))

    usual, small, side = at(n), at(fewer), at(each)
    powers = {name: np.log(usual[name].micros / small[name].micros) / np.log(n / fewer) for name in usual}
    slower = max(usual["plain"].micros, usual["optimised"].micros)
    collects = usual["plain"].collect / small["plain"].collect
    steady = collects < usual["plain"].micros / small["plain"].micros
    by_share = [at(each, selectivity=0.0), side, at(each, selectivity=0.01)]
    optimised = [points["optimised"] for points in by_share]
    wide, narrow = at(each, attributes=40), at(each, attributes=8)
    contrasts: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "equality": ({"equality": 0.0}, {"equality": 1.0}),
        "used": ({"always": 16, "often": 0}, {"always": 2, "often": 0}),
    }
    counting = {
        key: [at(each, **options)["counting"].micros for options in both] for key, both in contrasts.items()
    }
    operators = [
        satisfied_operators(workload("predicates-16", each, m, seed=seed, half=x)) for x in (0.0, 1.0)
    ]
    return {
        "leaf": _leaves(each, m, seed),
        "filter": 1 - usual["plain"].collect / usual["plain"].micros if steady or report.quick else 0.0,
        "plain": min(points["plain"].micros / points["optimised"].micros for points in (usual, small)),
        "counting": usual["counting"].micros / usual["optimised"].micros,
        "brute": usual["scan"].micros / slower,
        "powers": min(powers["counting"], powers["scan"]) - max(powers["plain"], powers["optimised"]),
        "tables": min(point.before / max(point.after, 1) for point in optimised),
        "selectivity": max(p.micros for p in optimised) / min(p.micros for p in optimised),
        "grows": min(
            5 * wide["plain"].before / narrow["plain"].before,
            5 * wide["optimised"].after / max(narrow["optimised"].after, 1),
        ),
        "dimensions": wide["counting"].micros / narrow["counting"].micros,
        "half": operators[0] / operators[1],
        "updates": _updates(n, seed),
        **{key: one / other for key, (one, other) in counting.items()},
    }


def _leaves(n: int, m: int, seed: int) -> float:
    drawn = workload("predicates-16", n, m, seed=seed)
    calls: dict[str, Callable[[], Any]] = {}
    for capacity in (64, 128, 256, 512, 768, 1024, 2048):
        index = open_index("ubtree", drawn.schema, form="plain", leaf=capacity, fanout=4)
        index.insert(drawn.subscriptions())
        calls[str(capacity)] = partial(index.match, drawn.events())
    micros = best_micros(calls, m)
    inside = min(us for name, us in micros.items() if 400 <= int(name) <= 1024)
    return min(us for name, us in micros.items() if not 400 <= int(name) <= 1024) / inside


def _updates(n: int, seed: int) -> float:
    costs = []
    few = min(10_000, n)
    for size in (few, n):
        drawn = workload("predicates-16", size + 2 * BATCH, 1, seed=seed)
        subs, names = drawn.subscriptions(), drawn.schema.names
        index = open_index("ubtree", drawn.schema, fanout=4, leaf=700, tables=[names[:4], names[4:8]])
        assert isinstance(index, UBTreeIndex)
        index.insert(subs.select(np.arange(size)))
        # the first small insert grows the catalog
        index.insert(subs.select(np.arange(size, size + BATCH)))
        costs.append(changed(index, subs.select(np.arange(size + BATCH, size + 2 * BATCH))))
    growth = max(after / before for before, after in zip(*costs, strict=True))
    return float(growth / max(n / few, 1.0) ** 0.5)
