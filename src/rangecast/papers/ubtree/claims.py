"""The claims of the UB-tree's paper, weighed by what its experiment has measured (experiment.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.papers.report import ExperimentReport
from rangecast.papers.ubtree.measures import FORMS, Points


def weigh_search(
    report: ExperimentReport,
    n_stored: int,
    leaves: dict[str, dict[int, tuple[float, float]]],
    by_size: dict[Any, Points],
    by_share: dict[Any, Points],
    by_attributes: dict[Any, Points],
) -> None:
    """Claims about the UB-tree itself."""
    best = {form: min(times, key=lambda c: sum(times[c])) for form, times in leaves.items()}
    near = min(sum(leaves["plain"][c]) for c in leaves["plain"] if 400 <= c <= 1024)
    over = near / sum(leaves["plain"][best["plain"]])
    report.claim(
        "there is a best range of leaf capacities, 400 to 900 entries (figure 3a)",
        None if report.quick else 400 <= best["plain"] <= 1024,
        f"best: {best['plain']} for plain, {best['optimised']} for optimised; the best within 400 to 1,024 "
        "takes "
        f"{over:.2f} times plain's best",
        by="time of an event, regions and filter",
        why="the filter stops at the first attribute that fails and so costs less per entry than the "
        "paper's, and "
        "going to another region costs more beside it",
    )
    large = by_size[max(by_size)]
    small = by_size[min(by_size)]
    share = 1 - large["plain"].collect / large["plain"].micros
    regions, whole = (
        large["plain"].collect / small["plain"].collect,
        large["plain"].micros / small["plain"].micros,
    )
    report.claim(
        "filtering takes the major part, collecting regions is small and stable (figure 3b)",
        share > 0.5 and (report.quick or regions < whole),
        f"{share:.0%} of plain's time, {1 - large['optimised'].collect / large['optimised'].micros:.0%} of "
        f"optimised's, at {max(by_size):,} subscriptions; from {min(by_size):,} on collecting grows "
        f"{regions:.1f} times, the whole {whole:.1f} times",
        by="time of an event: the filter above half of it, and collecting grows by less than the whole",
    )
    ratios = [p["plain"].micros / p["optimised"].micros for p in by_size.values()]
    report.claim(
        "optimised is an order of magnitude faster than plain",
        None if report.quick else min(ratios) > 5,
        f"{min(ratios):.1f} to {max(ratios):.1f} times over figure 6a",
        by="time of an event; at least half an order",
    )
    growth = {name: exponent(by_size, name) for name in FORMS}
    slowest = min(growth["counting"], growth["scan"])
    report.claim(
        "both forms of the UB-tree scale better with the number of subscriptions (figure 6a)",
        None if report.quick else max(growth["plain"], growth["optimised"]) < slowest,
        "time grows as n to the power " + ", ".join(f"{name} {power:.2f}" for name, power in growth.items()),
        by=f"power of n by which the time of an event grows from {min(by_size):,} to {max(by_size):,}",
        why="all grow about linearly: more subscriptions are more entries in the regions that an event meets",
    )
    low = [p["optimised"].micros for x, p in by_share.items() if x <= 0.01]
    tables = [p["optimised"].before / max(p["optimised"].after, 1) for x, p in by_share.items() if x <= 0.01]
    rare = min(
        p["optimised"].before / max(p["optimised"].after, 1) for x, p in by_share.items() if x <= 0.001
    )
    often = max((x, p["optimised"]) for x, p in by_share.items() if x <= 0.01)
    share_of_matches = often[0] * n_stored / max(often[1].before, 1)
    report.claim(
        "grid tables cut the filter's input by one to two orders of magnitude (figure 7)",
        min(tables) > 9,
        f"{min(tables):.0f} to {max(tables):.0f} times up to a selectivity of 1 %; less where more matches, "
        "since what matches cannot be cut",
        by="entries that the filter gets before and after, at least 9 times up to a selectivity of 1 %",
        why=f"with {share_of_matches:.0%} of its input matching, which no table can cut, a filter's input "
        f"falls {min(tables):.0f} times; up to a selectivity of 0.1 % it falls {rare:.0f} times and more",
        counted=True,
    )
    lowest = [p["optimised"].after for x, p in by_share.items() if x <= 0.001]
    report.claim(
        "the transform's indexes are insensitive to selectivity (figure 6b)",
        None if report.quick else max(low) < 2 * min(low),
        f"optimised {min(low):.0f} to {max(low):.0f} us up to 1 %; the filter's input up to 0.1 % is "
        f"{min(lowest):,.0f} to {max(lowest):,.0f} entries",
        by="time of an event up to a selectivity of 1 %, within a factor of 2",
        why="what grows is the work on the matches themselves, a hundredth of all subscriptions at 1 %",
    )
    few, many = min(by_attributes), max(by_attributes)
    plain = [x * by_attributes[x]["plain"].before for x in (few, many)]
    optimised = [x * by_attributes[x]["optimised"].after for x in (few, many)]
    calm = by_attributes[many]["counting"].micros / by_attributes[few]["counting"].micros
    report.claim(
        "time grows with dimensions for the UB-tree and brute force (figure 6c)",
        plain[1] > 1.2 * plain[0] and optimised[1] > 1.2 * optimised[0],
        f"{many} against {few} attributes: comparisons of plain {plain[1] / plain[0]:.1f} times, of "
        "optimised "
        f"{optimised[1] / optimised[0]:.1f}, of brute force {many / few:.1f}; in time, where the filter "
        "stops at the "
        "first attribute that fails, "
        + ", ".join(f"{k} {by_attributes[many][k].micros / by_attributes[few][k].micros:.2f}" for k in FORMS),
        by="attributes compared when a filter compares them all, as the paper's does",
        why="fewer entries come to the filter",
        counted=True,
    )
    report.claim(
        "the time of counting does not change with dimensions (figure 6c)",
        None if report.quick else 2 / 3 < calm < 1.5,
        f"{calm:.2f} times with {many} beside {few}",
        by="time of an event, within a factor of 1.5",
        why="more attributes have trees to ask",
    )


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
    report.claim(
        "optimised is four orders of magnitude faster than counting",
        None if report.quick else min(ratios) > 1000,
        f"{min(ratios):.1f} to {max(ratios):.1f} times over figure 6a",
        by="time of an event; at least three orders",
        why="with counters in one array and satisfied predicates in slices of lists, counting costs "
        "nanoseconds per "
        "predicate, not microseconds",
    )
    counting = {x: p["counting"].micros for x, p in by_equality.items()}
    report.claim(
        "counting depends heavily on the share of equality predicates (figure 6d)",
        None if report.quick else counting[0.0] > 5 * counting[1.0],
        f"{counting[0.0]:,.0f} us with none, {counting[1.0]:,.0f} us with nothing else; optimised "
        f"{by_equality[0.0]['optimised'].micros:,.0f} and {by_equality[1.0]['optimised'].micros:,.0f} us",
        by="time of an event, at least 5 times",
    )
    half = [p["counting"].micros for p in by_half.values()]
    first, last = operators[min(operators)], operators[max(operators)]
    report.claim(
        "counting changes sharply with the share of half-intervals (figure 6e)",
        first > 1.5 * last,
        f"{first:,.0f} operators with none, {last:,.0f} with half-intervals alone; the time of our interval "
        "trees, "
        f"which find both ends at once, is {min(half):,.0f} to {max(half):,.0f} us",
        by="satisfied operators per event, an interval being two",
        why="an interval is one predicate",
        counted=True,
    )
    used = [p["counting"].micros for p in by_used.values()]
    report.claim(
        "counting rises with the number of attributes used (figure 6f)",
        None if report.quick else used[-1] > 2 * used[0],
        f"{used[0]:,.0f} us with {min(by_used)}, {used[-1]:,.0f} us with {max(by_used)}",
        by="time of an event, at least twice",
    )
    scans = [p["scan"].micros / p["optimised"].micros for p in by_size.values()]
    plains = [p["scan"].micros / p["plain"].micros for p in by_size.values()]
    report.claim(
        "the transform's indexes are faster than brute force (figure 6a)",
        None if report.quick else min(scans) > 1 and min(plains) > 1,
        f"optimised {min(scans):.1f} to {max(scans):.1f} times; plain {min(plains):.2f} to "
        f"{max(plains):.2f} times",
        by="time of an event",
        why="optimised is; plain, which decodes addresses, is about level with a compiled scan by columns, "
        "which stops at the first attribute that fails",
    )


def weigh_updates(report: ExperimentReport, rows: list[list[Any]]) -> None:
    """Logarithmic: cost may grow with the height of the tree, not with the number of entries."""
    growth = rows[-1][0] / rows[0][0]
    insert, delete = rows[-1][3] / rows[0][3], rows[-1][4] / rows[0][4]
    report.claim(
        "updates are logarithmic (section 2.1)",
        None if report.quick else max(insert, delete) < growth**0.5,
        f"{growth:,.0f} times the subscriptions: an insert {insert:.1f} times, a delete {delete:.1f} times "
        f"the cost; the tree has {rows[0][2]} and {rows[-1][2]} levels",
        by="time of a change; below the root of the growth in subscriptions",
    )
