"""How far the timed ratios of all five papers vary from seed to seed: `rangecast experiment seeds`.

The experiments draw with one seed, at the papers' sizes. Here the ratio that decides each timed claim is
taken again at one smaller size with several seeds: subscriptions and events are drawn anew, and contenders
take turns, round by round, in processor time. A verdict that holds for every seed does not rest on one draw.
Claims that rest on counted things do not vary, or have their seeds on their own page (covering).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import open_index
from rangecast.papers.covering.searches import time_searches
from rangecast.papers.measuring import PROCESS, take_turns, timed
from rangecast.papers.report import ExperimentReport, spread
from rangecast.papers.rtree.index import RTreeIndex
from rangecast.papers.rtree.scheduling import Response, ShortestFirst, respond
from rangecast.papers.ubtree.measures import Points, measure
from rangecast.papers.vci import experiment as vci
from rangecast.papers.vcr import experiment as vcr
from rangecast.papers.vcr.measures import INSERTED, matcher, microseconds, opened, own_trees
from rangecast.workloads import workload

ROUNDS = 5


class Ratio(NamedTuple):
    """What decides a claim: its verdict is "agrees" when a value lies in least..most."""

    paper: str
    claim: str
    what: str
    least: float
    most: float = float("inf")


RATIOS = {
    "find Dlist": Ratio("vci", "Finding is fastest with Dlist", "fastest other scheme / Dlist", 1),
    "find LCI": Ratio(
        "vci",
        "Finding with LCI takes about the same time for any number of predicates",
        "LCI, most / fewest predicates",
        0,
        10,
    ),
    "find BC": Ratio("vci", "LCI-BC is only a little slower than LCI", "LCI-BC / LCI", 1, 1.5),
    "find BV": Ratio(
        "vci", "LCI-BV is much slower than LCI when many constructs are active", "LCI-BV / LCI", 2
    ),
    "find DT": Ratio(
        "vci",
        "The distance table makes virtual bitmaps faster than bitmaps",
        "faster of LCI and LCI-BC / LCI-BV(DT)",
        1,
    ),
    "grow IS": Ratio(
        "vci",
        "IS-lists degrade quickly as n grows, and LCI does not",
        "growth of IS-lists, collecting / growth of LCI, finding",
        10,
    ),
    "deliver DT": Ratio(
        "vci",
        "LCI-BV(DT) is better than IS-lists in storage and search time for many predicates (conclusion 4)",
        "IS-lists / LCI-BV(DT), delivering",
        1,
    ),
    "tree": Ratio(
        "vcr",
        "VCR searches substantially faster than an R-tree, most when predicates overlap much",
        "R*-tree built by inserts / VCR, 90-10",
        1.5,
    ),
    "hash": Ratio(
        "vcr", "hashing costs search time, most for few rectangles (5 to 1.5 times)", "hash / array", 1
    ),
    "od": Ratio("vcr", "OD searches much faster than SD, most for large n", "SD / OD", 1.2),
    "pivot": Ratio(
        "vcr",
        "adding distances to a pivot is faster than working out ids",
        "working out / adding, uniform",
        1.05,
    ),
    "delete": Ratio(
        "vcr",
        "insertion is very efficient, and deletion slower, since half a list is walked (section 2.4)",
        "delete one by one / insert",
        1,
    ),
    "filter": Ratio(
        "ubtree",
        "filtering takes the major part, collecting regions is small and stable (figure 3b)",
        "share of the filter in plain's time",
        0.5,
    ),
    "plain": Ratio("ubtree", "optimised is an order of magnitude faster than plain", "plain / optimised", 5),
    "counting": Ratio(
        "ubtree",
        "optimised is four orders of magnitude faster than counting",
        "counting / optimised",
        1000,
    ),
    "brute": Ratio(
        "ubtree",
        "the transform's indexes are faster than brute force (figure 6a)",
        "scan / slower of plain and optimised",
        1,
    ),
    "powers": Ratio(
        "ubtree",
        "both forms of the UB-tree scale better with the number of subscriptions (figure 6a)",
        "power of n: lesser of counting and scan less greater of plain and optimised",
        0,
    ),
    "selectivity": Ratio(
        "ubtree",
        "the transform's indexes are insensitive to selectivity (figure 6b)",
        "optimised at 1 % / at 0.01 %",
        0,
        2,
    ),
    "dimensions": Ratio(
        "ubtree",
        "the time of counting does not change with dimensions (figure 6c)",
        "counting with 40 / 8 attributes",
        2 / 3,
        1.5,
    ),
    "equality": Ratio(
        "ubtree",
        "counting depends heavily on the share of equality predicates (figure 6d)",
        "counting with none / nothing else",
        5,
    ),
    "used": Ratio(
        "ubtree",
        "counting rises with the number of attributes used (figure 6f)",
        "counting with 16 / 2 attributes used",
        2,
    ),
    "batch": Ratio(
        "batch",
        "the mean response falls by up to nearly 50 % (4b)",
        "share by which it falls, best level and largest batch",
        0.4,
    ),
    "larger": Ratio(
        "batch", "the larger the batch, the more is gained (4b)", "gain with the largest less the smallest", 0
    ),
    "estimate": Ratio(
        "batch",
        "the cost of the estimate can be neglected beside the response (4b)",
        "estimate / mean response at the best level",
        0,
        0.1,
    ),
    "blocks": Ratio(
        "covering",
        "approximate covering gives much of the benefit at a fraction of the cost",
        "exact search by blocks / search at 90 % coverage",
        1,
    ),
}


class Sizes(NamedTuple):
    """How much each paper is given here."""

    seeds: int
    intervals: tuple[int, int]
    rectangles: int
    predicates: int
    boxes: int
    batches: tuple[int, int]
    stored: int


FULL = Sizes(3, (1_000, 32_000), 32_000, 20_000, 20_000, (10, 100), 20_000)
QUICK = Sizes(2, (200, 2_000), 1_000, 1_500, 2_000, (5, 20), 500)

SeedRatios = dict[str, float]


def run(report: ExperimentReport) -> None:
    """Take every ratio with every seed and say in how many the verdict is the page's."""
    sizes = QUICK if report.quick else FULL
    found: dict[str, list[float]] = {key: [] for key in RATIOS}
    for seed in range(1, sizes.seeds + 1):
        for paper, take in (("vci", take_vci), ("vcr", take_vcr), ("ubtree", take_ubtree),
                            ("batch", take_batch), ("covering", take_covering)):  # fmt: skip
            values = report.measured(f"{paper}, seed {seed}", partial(take, report, sizes, seed))
            for key, value in values.items():
                found[key].append(value)
    rows = [
        [
            f"[{ratio.paper}]({ratio.paper}.md)",
            ratio.claim,
            ratio.what,
            told(ratio),
            spread(found[key], ",.3g"),
            f"{sum(ratio.least < value < ratio.most for value in found[key])} of {len(found[key])}",
        ]
        for key, ratio in RATIOS.items()
    ]
    report.table(
        "ratios",
        f"Mean, least and greatest over {sizes.seeds} seeds",
        ["paper", "claim", "ratio", "agrees when", "seen", "seeds that agree"],
        rows,
    )
    report.departs("predicates (vci)", "1,000 to 1,024,000", shown(sizes.intervals), "several seeds")
    report.departs(
        "rectangles (vcr)",
        "32,000 to 256,000",
        f"{sizes.rectangles:,}; {8 * sizes.rectangles:,} for OD and SD",
        "several seeds",
    )
    report.departs(
        "subscriptions (ubtree)",
        "1,200,000",
        f"{sizes.predicates:,}; powers of n from a quarter of it",
        "several seeds",
    )
    report.departs("subscriptions (batch)", "500,000 to 2,600,000", f"{sizes.boxes:,}", "several seeds")
    report.departs("subscriptions (covering)", "not given", f"{sizes.stored:,}", "several seeds")
    report.write(
        "Timed claims, from seed to seed",
        "The ratio that decides each timed claim of the five papers, taken again with several seeds at a "
        "smaller size than the page of its own: [ubtree](ubtree.md), [covering](covering.md), [vci](vci.md), "
        "[vcr](vcr.md), [batch](batch.md). Contenders take turns in processor time. The verdict is that of "
        "the paper's page, whose sizes are larger; this says how much of it could be one draw.",
    )


def told(ratio: Ratio) -> str:
    """When a ratio agrees."""
    if ratio.most == float("inf"):
        return f"above {ratio.least:,.3g}"
    return f"{ratio.least:.3g} to {ratio.most:.3g}" if ratio.least > 0 else f"below {ratio.most:.3g}"


def shown(numbers: Iterable[int]) -> str:
    """Numbers in a sentence."""
    return " and ".join(f"{n:,}" for n in numbers)


def take_vci(report: ExperimentReport, sizes: Sizes, seed: int) -> SeedRatios:
    """Finding and delivering by the paper's schemes, with few predicates and with many."""
    finding: dict[int, dict[str, float]] = {}
    delivering: dict[int, dict[str, float]] = {}
    for n in sizes.intervals:
        drawn = workload("intervals", n, 1_000, r=5_000, w=200, seed=seed)
        subs, events = drawn.subscriptions(), drawn.events()
        finders: dict[str, Callable[[], Any]] = {}
        deliverers: dict[str, Callable[[], Any]] = {}
        for name, (kind, options) in vci.SCHEMES.items():
            if name != "runs":
                index = open_index(kind, drawn.schema, **options)
                index.insert(subs)
                finders[name] = vci.finder(index, events)
                deliverers[name] = partial(vci.deliver, index, drawn.events(0, 50))
        finding[n] = _micros(finders, len(events))
        delivering[n] = _micros(deliverers, 50)
    few, many = (finding[n] for n in sizes.intervals)
    growth = delivering[sizes.intervals[1]]["IS-lists"] / delivering[sizes.intervals[0]]["IS-lists"]
    return {
        "find Dlist": min(us for name, us in many.items() if name != "Dlist") / many["Dlist"],
        "find LCI": many["LCI"] / few["LCI"],
        "find BC": many["LCI-BC"] / many["LCI"],
        "find BV": many["LCI-BV"] / many["LCI"],
        "find DT": min(many["LCI"], many["LCI-BC"]) / many["LCI-BV(DT)"],
        "grow IS": growth / (many["LCI"] / few["LCI"]),
        "deliver DT": delivering[sizes.intervals[1]]["IS-lists"]
        / delivering[sizes.intervals[1]]["LCI-BV(DT)"],
    }


def _micros(calls: dict[str, Callable[[], Any]], n: int) -> dict[str, float]:
    taken = take_turns(calls, ROUNDS, clock=PROCESS, warm_up=1, pause_collector=True)
    return {name: 1e6 * rounds.best / n for name, rounds in taken.items()}


def take_vcr(report: ExperimentReport, sizes: Sizes, seed: int) -> SeedRatios:
    """VCR beside the R*-tree, and its storages, decompositions and look-ups beside each other."""
    n = sizes.rectangles
    drawn = workload("rectangles", n, 2_000, seed=seed, **vcr.SKEWS["90-10"])
    ours = {"VCR": opened(drawn, **vcr.PAPER), INSERTED: own_trees(drawn)[INSERTED]}
    beside, _ = microseconds(report, drawn, {name: matcher(index, drawn) for name, index in ours.items()})
    even = workload("rectangles", n, 2_000, seed=seed, **vcr.SKEWS["uniform"])
    kinds = {kind: opened(even, **vcr.PAPER, lookup=kind) for kind in ("distance", "enumerate")}
    pivot, _ = microseconds(report, even, {kind: matcher(index, even) for kind, index in kinds.items()})
    wide = workload("rectangles", n, 2_000, seed=seed, alpha=0.9, beta=0.01, **vcr.WIDE)
    hashing = {**vcr.PAPER, "storage": "hash"}
    stored = {
        "array": opened(wide, **vcr.PAPER, decomposition="od"),
        "hash": opened(wide, **hashing, decomposition="od", table=10 * n, max_load=0.9),
    }
    hashed, _ = microseconds(report, wide, {name: matcher(index, wide) for name, index in stored.items()})
    many = workload("rectangles", 8 * n, 2_000, seed=seed, **vcr.WIDE)
    fixed = {**hashing, "table": vcr.TABLE, "max_load": 0.99}
    cut = {name: opened(many, **fixed, decomposition=name.lower()) for name in ("SD", "OD")}
    decomposed, _ = microseconds(report, many, {name: matcher(index, many) for name, index in cut.items()})
    return {
        "tree": beside[INSERTED] / beside["VCR"],
        "hash": hashed["hash"] / hashed["array"],
        "od": decomposed["SD"] / decomposed["OD"],
        "pivot": pivot["enumerate"] / pivot["distance"],
        "delete": _deleting(n, seed),
    }


def _deleting(n: int, seed: int) -> float:
    """How many times an insert, of many at once, a delete costs, one at a time."""
    drawn = workload("rectangles", n + 200, 1, seed=seed)
    subs = drawn.subscriptions()
    fresh = subs.select(np.arange(n, n + 200))
    index = open_index("vcr", drawn.schema, **vcr.PAPER)
    index.insert(subs.select(np.arange(n)))
    seconds: dict[str, list[float]] = {"insert": [], "delete": []}
    for _ in range(ROUNDS):
        seconds["insert"].append(timed(index.insert, fresh, clock=PROCESS)[0])
        seconds["delete"].append(timed(_delete_each, index, fresh.ids.values.tolist(), clock=PROCESS)[0])
    return min(seconds["delete"]) / min(seconds["insert"])


def _delete_each(index: Any, ids: Sequence[int]) -> None:
    for each in ids:
        index.delete([each])


def take_ubtree(report: ExperimentReport, sizes: Sizes, seed: int) -> SeedRatios:
    """The points of figure 6 that decide its claims."""

    def at(n: int, **options: Any) -> Points:
        return measure(workload("predicates-16", n, 8 if report.quick else 20, seed=seed, **options))

    n = sizes.predicates
    usual, fewer = at(n), at(n // 4)
    powers = {name: np.log(usual[name].micros / fewer[name].micros) / np.log(4) for name in usual}
    slower = max(usual["plain"].micros, usual["optimised"].micros)
    contrasts: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "dimensions": ({"attributes": 40}, {"attributes": 8}),
        "equality": ({"equality": 0.0}, {"equality": 1.0}),
        "used": ({"always": 16, "often": 0}, {"always": 2, "often": 0}),
    }
    counting = {
        key: [at(n, **options)["counting"].micros for options in both] for key, both in contrasts.items()
    }
    return {
        "filter": 1 - usual["plain"].collect / usual["plain"].micros,
        "plain": usual["plain"].micros / usual["optimised"].micros,
        "counting": usual["counting"].micros / usual["optimised"].micros,
        "brute": usual["scan"].micros / slower,
        "powers": min(powers["counting"], powers["scan"]) - max(powers["plain"], powers["optimised"]),
        "selectivity": at(n, selectivity=0.01)["optimised"].micros / usual["optimised"].micros,
        **{key: one / other for key, (one, other) in counting.items()},
    }


def take_batch(report: ExperimentReport, sizes: Sizes, seed: int) -> SeedRatios:
    """What BatchSearch gains at its best level, with a small and with a large batch."""
    drawn = workload("boxes-12d", sizes.boxes, 8 * sizes.batches[1], seed=seed)
    index = open_index("rtree", drawn.schema, load="insert")
    assert isinstance(index, RTreeIndex)
    index.insert(drawn.subscriptions())
    gains: list[float] = []
    shares: list[float] = []
    for size in sizes.batches:
        means: list[list[float]] = []
        estimates: list[list[float]] = []
        # the first batch is for what has to be compiled
        for k in range(1 + max(2, 4 * sizes.batches[1] // size // 5)):
            events = drawn.events(k * size, (k + 1) * size)
            schedules = [ShortestFirst(index, level, clock=PROCESS) for level in range(index.height)]
            row = [_mean(respond(index, events, clock=PROCESS))]
            row += [_mean(schedule.match_each(events)) for schedule in schedules]
            if k:
                means.append(row)
                estimates.append([s.last.estimate_seconds if s.last else 0.0 for s in schedules])
        mean, estimate = np.mean(means, axis=0), np.mean(estimates, axis=0)
        best = int(np.argmin(mean[1:]))
        gains.append(float(1 - mean[1 + best] / mean[0]))
        shares.append(float(estimate[best] / mean[1 + best]))
    return {"batch": gains[-1], "larger": gains[-1] - gains[0], "estimate": max(shares)}


def _mean(responses: Iterable[Response]) -> float:
    return float(np.mean([response.seconds for response in responses]))


def take_covering(report: ExperimentReport, sizes: Sizes, seed: int) -> SeedRatios:
    """An exact search beside an approximate one, in 4 dimensions."""
    side = 4 if report.quick else 6
    found = time_searches(4, side, side, 5 if report.quick else 20, sizes.stored, seed)
    return {"blocks": found.blocks / found.micros[0.9]}
