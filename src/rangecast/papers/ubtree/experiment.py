"""The experiments of "UB-tree based efficient predicate index with dimension transform for pub/sub system".

Wang, Zhang and Kitsuregawa (2004), sec. 4 and 5: where the time of a range search goes (figures 3a, 3b),
time by number of subscriptions, selectivity, dimensions, predicates and used attributes (6a to 6f), and the
filter's input before and after grid tables (7). The generator is the workload `predicates-16`: events are
points to which subscriptions belong, which is how the wanted selectivity is reached. Every point of every
figure asserts that all contenders give scan's answer (measures.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rangecast.engine import open_index
from rangecast.papers.measuring import THREAD, take_turns
from rangecast.papers.report import ExperimentReport
from rangecast.papers.ubtree.claims import weigh_counting, weigh_search, weigh_updates
from rangecast.papers.ubtree.measures import (
    ROUNDS,
    Points,
    changed,
    check,
    collecting,
    contenders,
    measure,
    satisfied_operators,
)
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


def run(report: ExperimentReport) -> None:
    """All figures, then the claims."""
    sizes = [1_500, 3_000] if report.quick else [300_000, 600_000, PAPER_SIZE, 2_000_000]
    n = sizes[-1] if report.quick else 600_000
    n_leaves = n if report.quick else 300_000
    m = 8 if report.quick else 40
    say_departures(report, n, n_leaves, m)
    leaves = figure_3a(report, n_leaves, m)
    by_size = sweep(report, "figure6a", "subscriptions", sizes, lambda x: workload("predicates-16", x, m))
    figure_3b(report, by_size)
    usual = by_size[n]
    by_share = sweep(
        report,
        "figure6b",
        "selectivity",
        [0.0, 0.01] if report.quick else [0.0, 0.0001, 0.001, 0.01, 0.1, 1.0],
        lambda x: workload("predicates-16", n, m if x < 0.1 else FEW, selectivity=x),
        (0.0001, usual),
    )
    by_attributes = sweep(
        report,
        "figure6c",
        "attributes",
        [8, 40] if report.quick else [8, 16, 24, 40],
        lambda x: workload("predicates-16", n, m, attributes=x),
        (16, usual),
    )
    by_equality = sweep(
        report,
        "figure6d",
        "share of equality predicates",
        [0.0, 1.0] if report.quick else [0.0, 0.4, 0.8, 1.0],
        lambda x: workload("predicates-16", n, m, equality=x),
        (0.8, usual),
    )
    by_half = sweep(
        report,
        "figure6e",
        "share of half-intervals",
        [0.0, 1.0] if report.quick else [0.0, 0.5, 1.0],
        lambda x: workload("predicates-16", n, m, half=x),
        (0.5, usual),
    )
    by_used = sweep(
        report,
        "figure6f",
        "attributes that every subscription uses",
        [2, 16] if report.quick else [2, 8, 16],
        lambda x: workload("predicates-16", n, m, always=x, often=0),
    )
    operators = {
        x: report.measured(
            f"figure6e: satisfied operators with a share of {x}",
            partial(_count_operators, n, m, x),
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


def _count_operators(n: int, m: int, half: float) -> float:
    return satisfied_operators(workload("predicates-16", n, m, half=half))


def figure_3a(report: ExperimentReport, n: int, m: int) -> dict[str, dict[int, tuple[float, float]]]:
    """Collecting regions and filtering, by the capacity of a leaf."""
    drawn = workload("predicates-16", n, m)
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
        drawn = workload("predicates-16", n + 2 * BATCH, 1, seed=7)
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

    for n in [10_000, *([100_000, *sizes] if not report.quick else [20_000])]:
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
