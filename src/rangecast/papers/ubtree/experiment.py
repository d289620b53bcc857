"""The experiments of "UB-tree based efficient predicate index with dimension transform for pub/sub system".

Wang, Zhang and Kitsuregawa (2004), sec. 4 and 5: where the time of a range search goes (figures 3a, 3b),
time by number of subscriptions, selectivity, dimensions, predicates and used attributes (6a to 6f), and the
filter's input before and after grid tables (7). The generator is the workload `predicates-16`: events are
points to which subscriptions belong, which is how the wanted selectivity is reached. Every point of every
figure asserts that all contenders give scan's answer (experiment.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.engine import REGISTRY, open_index
from rangecast.model.events import Events
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.measuring import THREAD, take_turns, timed
from rangecast.papers.report import Claim, ExperimentReport
from rangecast.papers.ubtree import kernels
from rangecast.papers.ubtree.structures import UBTreeIndex
from rangecast.workloads import Workload, workload

TITLE = "The UB-tree with dimension transform"
SOURCE = (
    "Paper: Botao Wang, Wang Zhang, Masaru Kitsuregawa, *UB-tree based efficient predicate index with "
    "dimension transform for pub/sub system*, 2004, sections 4 and 5. `plain` and `optimised` are its two "
    "forms (index `ubtree`), `counting` the algorithm it is measured beside, `scan` its brute force. "
    "Subscriptions and events are those of the workload `predicates-16`, the paper's Table 1: the wanted "
    "selectivity is reached by points to which subscriptions belong and of which each event is one. Times "
    "are processor time of one thread: all contenders of a point are built first and then take turns, three "
    "rounds each, of which the best counts, so that a busy moment falls on all of them; verdicts rest on "
    "ratios within this one run, and [seeds.md](seeds.md) has their spread over seeds. On every workload of "
    "every figure all contenders gave scan's answer before they were timed."
)
PAPER_SIZE = 1_200_000
BATCH = 1_000
FEW = 8


class SweepExtent(NamedTuple):
    """How much is measured: sizes of figure 6a, the size of the others and of 3a, events, parameters."""

    sizes: tuple[int, ...]
    usual: int
    leaves: int
    events: int
    selectivities: tuple[float, ...]
    attributes: tuple[int, ...]
    equality: tuple[float, ...]
    half: tuple[float, ...]
    used: tuple[int, ...]


EXTENT = SweepExtent(
    sizes=(300_000, 600_000, PAPER_SIZE, 2_000_000), usual=600_000, leaves=300_000, events=40,
    selectivities=(0.0, 0.0001, 0.001, 0.01, 0.1, 1.0), attributes=(8, 16, 24, 40),
    equality=(0.0, 0.4, 0.8, 1.0), half=(0.0, 0.5, 1.0), used=(2, 8, 16),
)  # fmt: skip
OTHERS = SweepExtent(
    sizes=(75_000, 100_000, 300_000), usual=100_000, leaves=100_000, events=20,
    selectivities=(0.0, 0.0001, 0.01), attributes=(8, 40), equality=(0.0, 1.0), half=(0.0, 1.0), used=(2, 16),
)  # fmt: skip
QUICK = SweepExtent(
    sizes=(1_500, 3_000), usual=3_000, leaves=3_000, events=8,
    selectivities=(0.0, 0.01), attributes=(8, 40), equality=(0.0, 1.0), half=(0.0, 1.0), used=(2, 16),
)  # fmt: skip

BY_TIME = "time of an event"
GROWN = "75,000, 100,000 and 300,000 subscriptions"
SIDE = "100,000 subscriptions"

CLAIMS = {
    "leaf": Claim(
        "there is a best range of leaf capacities, 400 to 900 entries (figure 3a)",
        "section 4.1, figure 3a",
        "plain: best capacity outside / inside of 400 to 1,024",
        1,
        by=f"{BY_TIME}, regions and filter",
        why="the filter stops at the first attribute that fails and so costs less per entry than the "
        "paper's, and going to another region costs more beside it",
        at=SIDE,
    ),
    "filter": Claim(
        "filtering takes the major part, collecting regions is small and stable (figure 3b)",
        "section 4.1, figure 3b",
        "share of the filter in plain's time; none where collecting grows by more than the whole",
        0.5,
        by=f"{BY_TIME}: the filter above half of it, and collecting grows by less than the whole",
        at=GROWN,
    ),
    "plain": Claim(
        "optimised is an order of magnitude faster than plain",
        "section 5, figure 6a",
        "plain / optimised, the least",
        5,
        by=f"{BY_TIME}; at least half an order",
        at=GROWN,
    ),
    "powers": Claim(
        "both forms of the UB-tree scale better with the number of subscriptions (figure 6a)",
        "section 5, figure 6a",
        "power of n: lesser of counting and scan less greater of plain and optimised",
        0,
        by=f"power of n by which the time of an event grows from {EXTENT.sizes[0]:,} to {EXTENT.sizes[-1]:,}",
        why="all grow about linearly: more subscriptions are more entries in the regions that an event meets",
        at=GROWN,
    ),
    "tables": Claim(
        "grid tables cut the filter's input by one to two orders of magnitude (figure 7)",
        "section 5, figure 7",
        "entries before / after tables, the least up to a selectivity of 1 %",
        9,
        by="entries that the filter gets before and after, at least 9 times up to a selectivity of 1 %",
        seeds_why="it turns on the size at a selectivity of 1 %: the more there are, the larger a part of "
        "the filter's input are matches, which no table can cut; at 0.1 % and below it is an order and more "
        "in all",
        at=SIDE,
        counted=True,
    ),
    "selectivity": Claim(
        "the transform's indexes are insensitive to selectivity (figure 6b)",
        "section 5, figure 6b",
        "optimised, slowest / fastest of selectivities up to 1 %",
        0,
        2,
        by=f"{BY_TIME} up to a selectivity of 1 %, within a factor of 2",
        why="what grows is the work on the matches themselves, a hundredth of all subscriptions at 1 %",
        at=SIDE,
    ),
    "grows": Claim(
        "time grows with dimensions for the UB-tree and brute force (figure 6c)",
        "section 5, figure 6c",
        "attributes compared with the most / with the fewest, lesser of plain and optimised",
        1.2,
        by="attributes compared when a filter compares them all, as the paper's does",
        why="fewer entries come to the filter",
        at=SIDE,
        counted=True,
    ),
    "dimensions": Claim(
        "the time of counting does not change with dimensions (figure 6c)",
        "section 5, figure 6c",
        "counting with the most / fewest attributes",
        2 / 3,
        1.5,
        by=f"{BY_TIME}, within a factor of 1.5",
        why="more attributes have trees to ask",
        at=SIDE,
    ),
    "counting": Claim(
        "optimised is four orders of magnitude faster than counting",
        "section 5, figure 6a",
        "counting / optimised, the least",
        1000,
        by=f"{BY_TIME}; at least three orders",
        why="with counters in one array and satisfied predicates in slices of lists, counting costs "
        "nanoseconds per predicate, not microseconds",
        at=GROWN,
    ),
    "equality": Claim(
        "counting depends heavily on the share of equality predicates (figure 6d)",
        "section 5, figure 6d",
        "counting with none / nothing else",
        5,
        by=f"{BY_TIME}, at least 5 times",
        at=SIDE,
    ),
    "half": Claim(
        "counting changes sharply with the share of half-intervals (figure 6e)",
        "section 5, figure 6e",
        "satisfied operators with none / with half-intervals alone",
        1.5,
        by="satisfied operators per event, an interval being two",
        why="an interval is one predicate",
        at=SIDE,
        counted=True,
    ),
    "used": Claim(
        "counting rises with the number of attributes used (figure 6f)",
        "section 5, figure 6f",
        "counting with the most / fewest attributes used",
        2,
        by=f"{BY_TIME}, at least twice",
        at=SIDE,
    ),
    "brute": Claim(
        "the transform's indexes are faster than brute force (figure 6a)",
        "section 5, figure 6a",
        "scan / slower of plain and optimised, the least",
        1,
        by=BY_TIME,
        why="optimised is; plain, which decodes addresses, is about level with a compiled scan by columns, "
        "which stops at the first attribute that fails",
        seeds_why="optimised is faster everywhere; plain, which decodes addresses, is ahead of a compiled "
        "scan by columns with every seed and level with it at the least size of this run",
        at=GROWN,
    ),
    "updates": Claim(
        "updates are logarithmic (section 2.1)",
        "section 2.1",
        "greater growth of insert and delete / root of the growth in subscriptions",
        0,
        1,
        by="time of a change; below the root of the growth in subscriptions",
        at="10,000 to 300,000 subscriptions",
    ),
}


def run(report: ExperimentReport) -> None:
    """All figures, then the claims."""
    extent = report.extent(EXTENT, OTHERS, QUICK)
    sizes, n, m = list(extent.sizes), extent.usual, extent.events
    say_departures(report, n, extent.leaves, m)
    leaves = figure_3a(report, extent.leaves, m)

    def drawn(x: int = n, m: int = m, **options: Any) -> Workload:
        return workload("predicates-16", x, m, seed=report.seed, **options)

    by_size = sweep(report, "figure6a", "subscriptions", sizes, drawn)
    figure_3b(report, by_size)
    usual = by_size[n]
    by_share = sweep(
        report,
        "figure6b",
        "selectivity",
        list(extent.selectivities),
        lambda x: drawn(m=m if x < 0.1 else FEW, selectivity=x),
        (0.0001, usual),
    )
    by_attributes = sweep(
        report,
        "figure6c",
        "attributes",
        list(extent.attributes),
        lambda x: drawn(attributes=x),
        (16, usual),
    )
    by_equality = sweep(
        report,
        "figure6d",
        "share of equality predicates",
        list(extent.equality),
        lambda x: drawn(equality=x),
        (0.8, usual),
    )
    by_half = sweep(
        report,
        "figure6e",
        "share of half-intervals",
        list(extent.half),
        lambda x: drawn(half=x),
        (0.5, usual),
    )
    by_used = sweep(
        report,
        "figure6f",
        "attributes that every subscription uses",
        list(extent.used),
        lambda x: drawn(always=x, often=0),
    )
    operators = {
        x: report.measured(
            f"figure6e: satisfied operators with a share of {x}",
            partial(_count_operators, drawn, x),
        )
        for x in by_half
    }
    figure_7(report, by_share, by_attributes)
    changes = updates(report, sizes)
    weigh_search(report, n, leaves, by_size, by_share, by_attributes)
    weigh_counting(report, by_size, by_equality, by_half, by_used, operators)
    weigh_updates(report, changes)
    report.write(TITLE, SOURCE)


def say_departures(report: ExperimentReport, n: int, n_leaves: int, m: int) -> None:
    """Every parameter that is not the paper's."""
    report.departs(
        "subscriptions in figures 6b to 7",
        f"{PAPER_SIZE:,}",
        f"{n:,}",
        "--quick" if report.quick else "half the time of a run; figure 6a has the paper's sizes",
    )
    report.departs(
        "subscriptions in figure 3a",
        f"{PAPER_SIZE:,}, by Table 1",
        f"{n_leaves:,}",
        "trees of all capacities are in memory at once and take turns",
    )
    report.departs(
        "points along the axes",
        "ranges alone (Table 1)",
        "both ends of each range and some points between; of 6a none below 300,000, of 6f none below 2",
        "where lines are nearly straight, more points say no more",
    )
    report.departs(
        "attributes used in figure 6f",
        "how many, not which",
        "the first x by every subscription, the others by 1 %",
        "in place of Table 1's three by all and five by 70 %",
    )
    report.departs(
        "events per point",
        "not given",
        f"{m}, and {FEW} where a tenth or more match",
        "all answers are compared",
    )
    report.departs(
        "events", "random; the share that matches is 0.01 %", "points to which subscriptions belong",
        "independent draws would match three subscriptions in a million",
    )  # fmt: skip
    report.departs(
        "grid tables",
        "two, over the first 8 attributes, in 5 parts each",
        "two, over the 8 most selective attributes, in 5 parts each",
        "the index chooses them from what it holds",
    )
    report.departs(
        "filter",
        "compares every dimension",
        "stops at the first that fails",
        "figure 6c is judged by comparisons",
    )
    report.departs(
        "counting", "one-dimensional indexes of operators", "an interval tree per attribute",
        "the paper leaves them open; figure 6e is judged by satisfied operators",
    )  # fmt: skip
    report.departs(
        "entries of a leaf", "stored as rows", "stored by column", "a table's pass reads two bytes per entry"
    )
    report.departs(
        "inserts and deletes", "said to be logarithmic, not measured", "measured", "the claim is weighed"
    )


def sweep(
    report: ExperimentReport,
    figure: str,
    parameter: str,
    values: list[Any],
    draw: Callable[[Any], Workload],
    default: tuple[Any, Points] | None = None,
) -> dict[Any, Points]:
    """A figure of times over one parameter, everything else at its default, of which the points are known."""
    found = {}
    for value in values:
        if default is not None and value == default[0]:
            found[value] = default[1]
            continue
        found[value] = report.measured(
            f"{figure}: {parameter} = {value}",
            partial(_measure_drawn, draw, value),
        )
    names = list(contenders())
    head = f"Figure {figure.removeprefix('figure')}: microseconds per event by {parameter}"
    columns = [parameter, "events", *names]
    rows = [
        [value, points["scan"].events, *(round(points[name].micros, 1) for name in names)]
        for value, points in found.items()
    ]
    report.table(figure, head, columns, rows)
    # selectivity goes over four powers of ten and has 0 among them: as words its values are evenly spaced
    xs = list(map(str, values)) if parameter == "selectivity" else values
    series = {name: (xs, [points[name].micros for points in found.values()]) for name in names}
    report.plot(figure, head, parameter, "microseconds per event", series, log_y=True)
    return found


def _measure_drawn(draw: Callable[[Any], Workload], value: Any) -> Points:
    return measure(draw(value))


def _count_operators(draw: Callable[..., Workload], half: float) -> float:
    return satisfied_operators(draw(half=half))


def figure_3a(report: ExperimentReport, n: int, m: int) -> dict[str, dict[int, tuple[float, float]]]:
    """Collecting regions and filtering, by the capacity of a leaf."""
    drawn = workload("predicates-16", n, m, seed=report.seed)
    subs, events = drawn.subscriptions(), drawn.events()
    capacities = [64, 1024] if report.quick else [64, 128, 256, 512, 768, 1024, 2048, 4096]
    expected = open_index("scan", drawn.schema)
    expected.insert(subs)
    answer = expected.match(events).sort()
    forms = ("plain", "optimised")

    def measure_leaves() -> dict[str, dict[int, tuple[float, float]]]:
        calls: dict[tuple[str, int, str], Callable[[], Any]] = {}
        for form, capacity in itertools.product(forms, capacities):
            index = open_index("ubtree", drawn.schema, form=form, leaf=capacity, fanout=4)
            assert isinstance(index, UBTreeIndex)
            index.insert(subs)
            check(form, index.match(events), answer)
            calls[form, capacity, "whole"] = partial(index.match, events)
            calls[form, capacity, "regions"] = partial(collecting, index, events)
        taken = take_turns(calls, ROUNDS, clock=THREAD, pause_collector=True)
        micros = {key: rounds.best / m * 1e6 for key, rounds in taken.items()}
        return {
            form: {
                capacity: (
                    micros[form, capacity, "regions"],
                    max(micros[form, capacity, "whole"] - micros[form, capacity, "regions"], 0.0),
                )
                for capacity in capacities
            }
            for form in forms
        }

    found = report.measured("figure3a: all capacities", measure_leaves)
    rows = [[capacity, *(round(x, 1) for form in forms for x in found[form][capacity])]
            for capacity in capacities]  # fmt: skip
    columns = ["entries per leaf", *(f"{form}: {step}" for form in found for step in ("regions", "filter"))]
    head = "Figure 3a: microseconds per event by the capacity of a leaf"
    report.text(f"**Figure 3a.** {n:,} subscriptions, {m} events, all else as in the paper's Table 1.")
    report.table("figure3a", head, columns, rows)
    series = {
        f"{form}: {step}": (capacities, [found[form][c][k] for c in capacities])
        for form in found
        for k, step in enumerate(("regions", "filter"))
    }
    report.plot(
        "figure3a", head, "entries per leaf", "microseconds per event", series, log_x=True, log_y=True
    )
    return found


def figure_3b(report: ExperimentReport, by_size: dict[Any, Points]) -> None:
    """Collecting regions and filtering, by the number of subscriptions."""
    sizes = list(by_size)
    head = "Figure 3b: microseconds per event spent on regions and on the filter"
    series = {}
    for form in ("plain", "optimised"):
        regions = [points[form].collect for points in by_size.values()]
        totals = [points[form].micros for points in by_size.values()]
        series[f"{form}: regions"] = (sizes, regions)
        series[f"{form}: filter"] = (
            sizes,
            [max(t - r, 0.0) for t, r in zip(totals, regions, strict=True)],
        )
    rows = [[x, *(round(ys[i], 1) for _, ys in series.values())] for i, x in enumerate(sizes)]
    report.table("figure3b", head, ["subscriptions", *series], rows)
    report.plot("figure3b", head, "subscriptions", "microseconds per event", series, log_y=True)
    columns = ["subscriptions"]
    for name in contenders():
        columns += [f"{name}: build s", f"{name}: bytes"]
    built = [
        [x, *(v for name in contenders() for v in (round(p[name].build_seconds, 2), p[name].bytes_each))]
        for x, p in by_size.items()
    ]
    report.table("build", "Seconds to build, and bytes per subscription with the catalog", columns, built)


def figure_7(report: ExperimentReport, by_share: dict[Any, Points], by_attributes: dict[Any, Points]) -> None:
    """What the filter gets, before and after grid tables."""
    rows = []
    for what, found in (("selectivity", by_share), ("attributes", by_attributes)):
        for value, points in found.items():
            before, after = points["optimised"].before, points["optimised"].after
            rows.append([f"{what} {value}", round(before), round(after), round(before / max(after, 1), 1)])
    columns = ["workload", "before tables", "after tables", "ratio"]
    report.table("figure7", "Figure 7: entries that the filter gets per event", columns, rows)
    xs = list(map(str, by_share))
    series = {
        "before grid tables": (xs, [p["optimised"].before for p in by_share.values()]),
        "after grid tables": (xs, [p["optimised"].after for p in by_share.values()]),
    }
    title = "Figure 7: input of the filter"
    report.plot("figure7", title, "selectivity", "entries per event", series, log_y=True)


def updates(report: ExperimentReport, sizes: list[int]) -> list[list[Any]]:
    """Inserts and deletes into trees of different sizes, in the tree alone and in the whole index."""
    rows: list[list[Any]] = []
    # from ten batches on: a batch that is large beside the tree is loaded with it anew, not inserted

    def change(n: int) -> list[Any]:
        drawn = workload("predicates-16", n + 2 * BATCH, 1, seed=report.seed)
        subs = drawn.subscriptions()
        # tables are named, so that the growth by a batch is no reason to choose them anew
        index = open_index("ubtree", drawn.schema, fanout=4, leaf=700,
                           tables=[drawn.schema.names[:4], drawn.schema.names[4:8]])  # fmt: skip
        assert isinstance(index, UBTreeIndex)
        index.insert(subs.select(np.arange(n)))
        index.insert(subs.select(np.arange(n, n + BATCH)))  # the first small insert grows the catalog
        fresh = subs.select(np.arange(n + BATCH, n + 2 * BATCH))
        insert_us, delete_us = changed(index, fresh)
        stats = index.stats()
        return [n, stats["leaves"], stats["height"], round(insert_us, 2), round(delete_us, 2)]

    for n in [10_000, 20_000] if report.quick else sorted({10_000, 100_000, *sizes}):
        rows.append(report.measured(f"changes: {n} subscriptions", partial(change, n)))
    columns = ["subscriptions", "leaves", "height", "insert, us", "delete, us"]
    report.text(
        f"**Changes.** {BATCH:,} subscriptions inserted into, then deleted from, an index of n others; the "
        f"best of {ROUNDS} rounds counts, after one to warm up."
    )
    report.table("changes", "Cost of a change by the number of subscriptions", columns, rows)
    series = {
        name: ([r[0] for r in rows], [r[k] for r in rows]) for name, k in (("insert", 3), ("delete", 4))
    }
    report.plot(
        "changes", "Cost of a change", "subscriptions", "microseconds", series, log_x=True, log_y=False
    )
    return rows


# The claims of the UB-tree's paper, weighed by what its experiment has measured (experiment.py).


def weigh_search(
    report: ExperimentReport,
    n_stored: int,
    leaves: dict[str, dict[int, tuple[float, float]]],
    by_size: dict[Any, Points],
    by_share: dict[Any, Points],
    by_attributes: dict[Any, Points],
) -> None:
    """Claims about the UB-tree itself."""
    totals = {form: {c: sum(steps) for c, steps in times.items()} for form, times in leaves.items()}
    best = {form: min(times, key=lambda c: times[c]) for form, times in totals.items()}
    inside = min(us for c, us in totals["plain"].items() if 400 <= c <= 1024)
    outside = min(us for c, us in totals["plain"].items() if not 400 <= c <= 1024)
    report.weigh(
        CLAIMS["leaf"],
        outside / inside,
        f"best: {best['plain']} for plain, {best['optimised']} for optimised; the best within 400 to 1,024 "
        f"takes {inside / min(inside, outside):.2f} times plain's best",
    )
    large = by_size[max(by_size)]
    small = by_size[min(by_size)]
    share = 1 - large["plain"].collect / large["plain"].micros
    regions = large["plain"].collect / small["plain"].collect
    whole = large["plain"].micros / small["plain"].micros
    report.weigh(
        CLAIMS["filter"],
        share if regions < whole else 0.0,
        f"{share:.0%} of plain's time, {1 - large['optimised'].collect / large['optimised'].micros:.0%} of "
        f"optimised's, at {max(by_size):,} subscriptions; from {min(by_size):,} on collecting grows "
        f"{regions:.1f} times, the whole {whole:.1f} times",
    )
    ratios = [p["plain"].micros / p["optimised"].micros for p in by_size.values()]
    report.weigh(CLAIMS["plain"], min(ratios), f"{min(ratios):.1f} to {max(ratios):.1f} times over figure 6a")
    growth = {name: exponent(by_size, name) for name in FORMS}
    report.weigh(
        CLAIMS["powers"],
        min(growth["counting"], growth["scan"]) - max(growth["plain"], growth["optimised"]),
        "time grows as n to the power " + ", ".join(f"{name} {power:.2f}" for name, power in growth.items()),
    )
    low = [p["optimised"].micros for x, p in by_share.items() if x <= 0.01]
    tables = [p["optimised"].before / max(p["optimised"].after, 1) for x, p in by_share.items() if x <= 0.01]
    rare = min(
        p["optimised"].before / max(p["optimised"].after, 1) for x, p in by_share.items() if x <= 0.001
    )
    often = max((x, p["optimised"]) for x, p in by_share.items() if x <= 0.01)
    share_of_matches = often[0] * n_stored / max(often[1].before, 1)
    report.weigh(
        CLAIMS["tables"],
        min(tables),
        f"{min(tables):.0f} to {max(tables):.0f} times up to a selectivity of 1 %; less where more matches, "
        "since what matches cannot be cut",
        why=f"with {share_of_matches:.0%} of its input matching, which no table can cut, a filter's input "
        f"falls {min(tables):.0f} times; up to a selectivity of 0.1 % it falls {rare:.0f} times and more",
    )
    lowest = [p["optimised"].after for x, p in by_share.items() if x <= 0.001]
    report.weigh(
        CLAIMS["selectivity"],
        max(low) / min(low),
        f"optimised {min(low):.0f} to {max(low):.0f} us up to 1 %; the filter's input up to 0.1 % is "
        f"{min(lowest):,.0f} to {max(lowest):,.0f} entries",
    )
    few, many = min(by_attributes), max(by_attributes)
    plain = many * by_attributes[many]["plain"].before / (few * by_attributes[few]["plain"].before)
    optimised = many * by_attributes[many]["optimised"].after / (few * by_attributes[few]["optimised"].after)
    calm = by_attributes[many]["counting"].micros / by_attributes[few]["counting"].micros
    report.weigh(
        CLAIMS["grows"],
        min(plain, optimised),
        f"{many} against {few} attributes: comparisons of plain {plain:.1f} times, of optimised "
        f"{optimised:.1f}, of brute force {many / few:.1f}; in time, where the filter stops at the first "
        "attribute that fails, "
        + ", ".join(f"{k} {by_attributes[many][k].micros / by_attributes[few][k].micros:.2f}" for k in FORMS),
    )
    report.weigh(CLAIMS["dimensions"], calm, f"{calm:.2f} times with {many} beside {few}")


def exponent(by_size: dict[Any, Points], name: str) -> float:
    """The power of n by which a contender's time grows."""
    few, many = min(by_size), max(by_size)
    return float(np.log(by_size[many][name].micros / by_size[few][name].micros) / np.log(many / few))


def weigh_counting(
    report: ExperimentReport,
    by_size: dict[Any, Points],
    by_equality: dict[Any, Points],
    by_half: dict[Any, Points],
    by_used: dict[Any, Points],
    operators: dict[Any, float],
) -> None:
    """Claims about counting beside it, and what today's scan does to the picture."""
    ratios = [p["counting"].micros / p["optimised"].micros for p in by_size.values()]
    report.weigh(
        CLAIMS["counting"], min(ratios), f"{min(ratios):.1f} to {max(ratios):.1f} times over figure 6a"
    )
    counting = {x: p["counting"].micros for x, p in by_equality.items()}
    report.weigh(
        CLAIMS["equality"],
        counting[0.0] / counting[1.0],
        f"{counting[0.0]:,.0f} us with none, {counting[1.0]:,.0f} us with nothing else; optimised "
        f"{by_equality[0.0]['optimised'].micros:,.0f} and {by_equality[1.0]['optimised'].micros:,.0f} us",
    )
    half = [p["counting"].micros for p in by_half.values()]
    first, last = operators[min(operators)], operators[max(operators)]
    report.weigh(
        CLAIMS["half"],
        first / last,
        f"{first:,.0f} operators with none, {last:,.0f} with half-intervals alone; the time of our interval "
        f"trees, which find both ends at once, is {min(half):,.0f} to {max(half):,.0f} us",
    )
    used = [p["counting"].micros for p in by_used.values()]
    report.weigh(
        CLAIMS["used"],
        used[-1] / used[0],
        f"{used[0]:,.0f} us with {min(by_used)}, {used[-1]:,.0f} us with {max(by_used)}",
    )
    scans = [p["scan"].micros / p["optimised"].micros for p in by_size.values()]
    plains = [p["scan"].micros / p["plain"].micros for p in by_size.values()]
    report.weigh(
        CLAIMS["brute"],
        min(*scans, *plains),
        f"optimised {min(scans):.1f} to {max(scans):.1f} times; plain {min(plains):.2f} to "
        f"{max(plains):.2f} times",
    )


def weigh_updates(report: ExperimentReport, rows: list[list[Any]]) -> None:
    """Logarithmic: cost may grow with the height of the tree, not with the number of entries."""
    growth = rows[-1][0] / rows[0][0]
    insert, delete = rows[-1][3] / rows[0][3], rows[-1][4] / rows[0][4]
    report.weigh(
        CLAIMS["updates"],
        max(insert, delete) / growth**0.5,
        f"{growth:,.0f} times the subscriptions: an insert {insert:.1f} times, a delete {delete:.1f} times "
        f"the cost; the tree has {rows[0][2]} and {rows[-1][2]} levels",
    )


# How the UB-tree's experiment measures: who takes part, and one point of a figure.
#
# Times are of this thread on the processor. All contenders of a point are built first and then take turns,
# round by round, so that a busy moment falls on all of them; the best round counts, and every answer must be
# scan's.

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
    index._search(events.encoded(index.schema).codes, kernels.COLLECT)


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
