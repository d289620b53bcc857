"""The experiments of "UB-tree based efficient predicate index with dimension transform for pub/sub system".

Wang, Zhang and Kitsuregawa (2004), sec. 4 and 5: where the time of a range search goes (figures 3a, 3b),
time by number of subscriptions, selectivity, dimensions, predicates and used attributes (6a to 6f), and the
filter's input before and after grid tables (7). The generator is the workload `predicates-16`: events are
points to which subscriptions belong, which is how the wanted selectivity is reached. Every point of every
figure asserts that all contenders give scan's answer (measures.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rangecast.engine import open_index
from rangecast.papers.measuring import THREAD, take_rounds
from rangecast.papers.report import ExperimentReport
from rangecast.papers.ubtree.index import UBTreeIndex
from rangecast.papers.ubtree.measures import (
    FORMS,
    ROUNDS,
    Points,
    changed,
    check,
    collecting,
    contenders,
    measure,
)
from rangecast.workloads import Workload, workload

TITLE = "The UB-tree with dimension transform"
SOURCE = (
    "Paper: Botao Wang, Wang Zhang, Masaru Kitsuregawa, *UB-tree based efficient predicate index with "
    "dimension transform for pub/sub system*, 2004, sections 4 and 5. `plain` and `optimised` are its two "
    "forms (index `ubtree`), `counting` the algorithm it is measured beside, `scan` its brute force. "
    "Subscriptions and events are those of the workload `predicates-16`, the paper's Table 1: the wanted "
    "selectivity is reached by points to which subscriptions belong and of which each event is one. Times "
    "are processor time of one thread; on every workload of every figure all contenders gave scan's answer "
    "before they were timed."
)
PAPER_SIZE = 1_200_000
BATCH = 1_000


def run(report: ExperimentReport) -> None:
    """All figures, then the claims."""
    sizes = [12_500, 25_000, 50_000] if report.quick else [300_000, 600_000, PAPER_SIZE, 2_000_000]
    n = sizes[-1] if report.quick else 300_000
    m = 50 if report.quick else 100
    report.text(
        f"Figures 6b to 7 have {n:,} subscriptions and {m} events per point (20 where a tenth or more match)."
        f" The paper's default is {PAPER_SIZE:,}; figure 6a goes up to {sizes[-1]:,}. All else is as in its "
        "Table 1."
    )
    leaves = figure_3a(report, n if report.quick else 600_000, m)
    by_size = sweep(report, "figure6a", "subscriptions", sizes, lambda x: workload("predicates-16", x, m))
    figure_3b(report, by_size)
    by_share = sweep(
        report,
        "figure6b",
        "selectivity",
        [0.0, 0.0001, 0.01, 1.0] if report.quick else [0.0, 0.0001, 0.001, 0.01, 0.1, 1.0],
        lambda x: workload("predicates-16", n, m if x < 0.1 else 20, selectivity=x),
    )
    by_attributes = sweep(
        report,
        "figure6c",
        "attributes",
        [8, 16, 40] if report.quick else [8, 16, 24, 32, 40],
        lambda x: workload("predicates-16", n, m, attributes=x),
    )
    by_equality = sweep(
        report,
        "figure6d",
        "share of equality predicates",
        [0.0, 0.8, 1.0] if report.quick else [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
        lambda x: workload("predicates-16", n, m, equality=x),
    )
    by_half = sweep(
        report,
        "figure6e",
        "share of half-intervals",
        [0.0, 0.5, 1.0] if report.quick else [0.0, 0.25, 0.5, 0.75, 1.0],
        lambda x: workload("predicates-16", n, m, half=x),
    )
    by_used = sweep(
        report,
        "figure6f",
        "attributes that every subscription uses",
        [2, 8, 16] if report.quick else [2, 4, 8, 12, 16],
        lambda x: workload("predicates-16", n, m, always=x, often=0),
    )
    figure_7(report, by_share, by_attributes)
    changes = updates(report, sizes)
    weigh_search(report, leaves, by_size, by_share, by_attributes)
    weigh_counting(report, by_size, by_equality, by_half, by_used)
    weigh_updates(report, changes)
    report.write(TITLE, SOURCE)


def sweep(
    report: ExperimentReport, figure: str, parameter: str, values: list[Any], draw: Callable[[Any], Workload]
) -> dict[Any, Points]:
    """A figure of times over one parameter, everything else at its default."""
    found = {}
    for value in values:
        report.say(f"{figure}: {parameter} = {value}")
        found[value] = measure(draw(value))
    names = list(contenders())
    head = f"Figure {figure.removeprefix('figure')}: microseconds per event by {parameter}"
    rows = [[value, *(round(points[name].micros, 1) for name in names)] for value, points in found.items()]
    report.table(figure, head, [parameter, *names], rows)
    # selectivity goes over four powers of ten and has 0 among them: as words its values are evenly spaced
    xs = list(map(str, values)) if parameter == "selectivity" else values
    series = {name: (xs, [points[name].micros for points in found.values()]) for name in names}
    report.plot(figure, head, parameter, "microseconds per event", series, log_y=True)
    return found


def figure_3a(report: ExperimentReport, n: int, m: int) -> dict[str, dict[int, tuple[float, float]]]:
    """Collecting regions and filtering, by the capacity of a leaf."""
    drawn = workload("predicates-16", n, m)
    subs, events = drawn.subscriptions(), drawn.events()
    capacities = [64, 256, 1024, 4096] if report.quick else [64, 128, 256, 512, 768, 1024, 2048, 4096]
    expected = open_index("scan", drawn.schema)
    expected.insert(subs)
    answer = expected.match(events).sort()
    found: dict[str, dict[int, tuple[float, float]]] = {"plain": {}, "optimised": {}}
    rows = []
    for capacity in capacities:
        report.say(f"figure3a: leaves of {capacity}")
        for form, times in found.items():
            index = open_index("ubtree", drawn.schema, form=form, leaf=capacity)
            assert isinstance(index, UBTreeIndex)
            index.insert(subs)
            check(form, index.match(events), answer)
            whole = take_rounds(partial(index.match, events), ROUNDS, clock=THREAD).best
            part = take_rounds(partial(collecting, index, events), ROUNDS, clock=THREAD).best
            times[capacity] = part / m * 1e6, max(whole - part, 0.0) / m * 1e6
        rows.append([capacity, *(round(x, 1) for form in found for x in found[form][capacity])])
    columns = ["entries per leaf", *(f"{form}: {step}" for form in found for step in ("regions", "filter"))]
    head = "Figure 3a: microseconds per event by the capacity of a leaf"
    report.text(f"**Figure 3a.** {n:,} subscriptions, all else as in the paper's Table 1.")
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
    report.table("figure7", "Figure 7: entries that the filter gets an event", columns, rows)
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
    for n in [10_000, *([100_000] if not report.quick else []), *sizes]:
        report.say(f"changes: {n} subscriptions")
        drawn = workload("predicates-16", n + 2 * BATCH, 1, seed=7)
        subs = drawn.subscriptions()
        # tables are named, so that the growth by a batch is no reason to choose them anew
        index = open_index("ubtree", drawn.schema, tables=[drawn.schema.names[:4], drawn.schema.names[4:8]])
        assert isinstance(index, UBTreeIndex)
        index.insert(subs.select(np.arange(n)))
        index.insert(subs.select(np.arange(n, n + BATCH)))  # the first small insert grows the catalog
        fresh = subs.select(np.arange(n + BATCH, n + 2 * BATCH))
        insert_us, delete_us = changed(index, fresh)
        stats = index.stats()
        rows.append([n, stats["leaves"], stats["height"], round(insert_us, 2), round(delete_us, 2)])
    columns = ["subscriptions", "leaves", "height", "insert, us", "delete, us"]
    report.text(
        f"**Changes.** {BATCH:,} subscriptions inserted into, then deleted from, an index of n others."
    )
    report.table("changes", "Cost of a change by the number of subscriptions", columns, rows)
    series = {
        name: ([r[0] for r in rows], [r[k] for r in rows]) for name, k in (("insert", 3), ("delete", 4))
    }
    report.plot(
        "changes", "Cost of a change", "subscriptions", "microseconds", series, log_x=True, log_y=False
    )
    return rows


def weigh_search(
    report: ExperimentReport,
    leaves: dict[str, dict[int, tuple[float, float]]],
    by_size: dict[Any, Points],
    by_share: dict[Any, Points],
    by_attributes: dict[Any, Points],
) -> None:
    """Claims about the UB-tree itself."""
    best = {form: min(times, key=lambda c: sum(times[c])) for form, times in leaves.items()}
    report.claim(
        "there is a best range of leaf capacities, 400 to 900 entries (figure 3a)",
        400 <= best["plain"] <= 1024,
        f"best: {best['plain']} for plain, {best['optimised']} for optimised, whose filter costs less",
    )
    large = by_size[max(by_size)]
    share = 1 - large["plain"].collect / large["plain"].micros
    report.claim(
        "filtering takes the major part, collecting regions is small and stable (figure 3b)",
        share > 0.5,
        f"{share:.0%} of plain's time, {1 - large['optimised'].collect / large['optimised'].micros:.0%} of "
        f"optimised's, at {max(by_size):,} subscriptions",
    )
    ratios = [p["plain"].micros / p["optimised"].micros for p in by_size.values()]
    report.claim(
        "optimised is an order of magnitude faster than plain",
        min(ratios) > 5,
        f"{min(ratios):.1f} to {max(ratios):.1f} times over figure 6a",
    )
    low = [p["optimised"].micros for x, p in by_share.items() if x <= 0.01]
    tables = [p["optimised"].before / max(p["optimised"].after, 1) for x, p in by_share.items() if x <= 0.01]
    report.claim(
        "grid tables cut the filter's input by one to two orders of magnitude (figure 7)",
        min(tables) > 10,
        f"{min(tables):.0f} to {max(tables):.0f} times up to a selectivity of 1 %; less where more matches, "
        "since what matches cannot be cut",
    )
    report.claim(
        "the transform's indexes are insensitive to selectivity (figure 6b)",
        max(low) < 2 * min(low),
        f"optimised {min(low):.0f} to {max(low):.0f} us up to 1 %: what grows is the work on the matches "
        "themselves, and from 10 % on it is most of it for every contender",
    )
    few, many = by_attributes[min(by_attributes)], by_attributes[max(by_attributes)]
    report.claim(
        "time grows with dimensions for the UB-tree and brute force, not for counting (figure 6c)",
        many["plain"].micros > 1.2 * few["plain"].micros
        and many["counting"].micros < 1.5 * few["counting"].micros,
        f"{max(by_attributes)} against {min(by_attributes)} attributes: "
        + ", ".join(f"{k} {many[k].micros / few[k].micros:.2f} times" for k in FORMS)
        + "; our scan stops at the first predicate that fails, so it hardly grows",
    )


def weigh_counting(
    report: ExperimentReport,
    by_size: dict[Any, Points],
    by_equality: dict[Any, Points],
    by_half: dict[Any, Points],
    by_used: dict[Any, Points],
) -> None:
    """Claims about counting beside it, and what today's scan does to the picture."""
    ratios = [p["counting"].micros / p["optimised"].micros for p in by_size.values()]
    report.claim(
        "optimised is four orders of magnitude faster than counting",
        min(ratios) > 1000,
        f"{min(ratios):.1f} to {max(ratios):.1f} times over figure 6a: with counters in one array and "
        "satisfied predicates in slices of lists, counting costs nanoseconds per predicate, not microseconds",
    )
    counting = {x: p["counting"].micros for x, p in by_equality.items()}
    report.claim(
        "counting depends heavily on the share of equality predicates (figure 6d)",
        counting[0.0] > 5 * counting[1.0],
        f"{counting[0.0]:,.0f} us with none, {counting[1.0]:,.0f} us with nothing else; optimised "
        f"{by_equality[0.0]['optimised'].micros:,.0f} and {by_equality[1.0]['optimised'].micros:,.0f} us",
    )
    half = [p["counting"].micros for p in by_half.values()]
    report.claim(
        "counting changes sharply with the share of half-intervals (figure 6e)",
        max(half) > 2 * min(half),
        f"{min(half):,.0f} to {max(half):,.0f} us: our one-dimensional index costs by satisfied predicates, "
        "and half-intervals are only somewhat wider than intervals",
    )
    used = [p["counting"].micros for p in by_used.values()]
    report.claim(
        "counting rises with the number of attributes used (figure 6f)",
        used[-1] > 2 * used[0],
        f"{used[0]:,.0f} us with {min(by_used)}, {used[-1]:,.0f} us with {max(by_used)}",
    )
    scans = [p["scan"].micros / p["optimised"].micros for p in by_size.values()]
    plains = [p["scan"].micros / p["plain"].micros for p in by_size.values()]
    report.claim(
        "the transform's indexes are faster than brute force (figure 6a)",
        min(scans) > 1 and min(plains) > 1,
        f"optimised {min(scans):.1f} to {max(scans):.1f} times; plain {min(plains):.2f} to "
        f"{max(plains):.2f} times: a compiled, columnar scan beats decoding addresses",
    )


def weigh_updates(report: ExperimentReport, rows: list[list[Any]]) -> None:
    """Logarithmic: cost may grow with the height of the tree, not with the number of entries."""
    growth = rows[-1][0] / rows[0][0]
    insert, delete = rows[-1][3] / rows[0][3], rows[-1][4] / rows[0][4]
    report.claim(
        "updates are logarithmic (section 2.1)",
        max(insert, delete) < growth**0.5,
        f"{growth:,.0f} times the subscriptions: an insert {insert:.1f} times, a delete {delete:.1f} times "
        "the cost",
    )
