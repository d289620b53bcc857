"""What came after the five papers, beside what they had: one attribute, and conjunctions.

    python benchmarks/after_the_papers.py [--quick] [--seeds 3]

Each contender is built in turn and matches the same events; pairs must be the same for all. Times are of the
processor, the best of some rounds: read the ratios. With --seeds the ratio that decides each claim of these
papers is taken with several seeds instead, contenders in turns. docs/related-work.md shows the tables.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, NamedTuple

from rangecast.engine import Index, open_index
from rangecast.model.events import Events
from rangecast.papers.measuring import PROCESS, check_agreement, take_rounds, take_turns, timed
from rangecast.papers.report import spread
from rangecast.workloads import workload

Contender = tuple[str, dict[str, Any]]
INTERVALS: dict[str, Contender] = {
    "hint": ("hint", {}),
    "cei": ("cei", {}),
    "vci, the paper's best (table)": ("vci", {"lookup": "table", "L": 128}),
    "vci, runs (ours)": ("vci", {}),
    "cells (ours)": ("cells", {}),
    "islist": ("islist", {}),
    "counting (interval tree)": ("counting", {}),
    "auto (ours)": ("auto", {}),
}
CONJUNCTIONS: dict[str, Contender] = {
    "rein": ("rein", {}),
    "opindex": ("opindex", {}),
    "counting": ("counting", {}),
    "ubtree": ("ubtree", {}),
    "scan": ("scan", {}),
    "bitmap (ours)": ("bitmap", {}),
    "auto (ours)": ("auto", {}),
}
CASES = {
    "intervals, 5,000 values": ("intervals", 200_000, 400, {}, INTERVALS),
    "intervals, 250,000 values": ("intervals-wide-domain", 200_000, 4_000, {}, INTERVALS),
    "rein: 20 attributes, 10 predicates of width 0.5": ("rein", 50_000, 60, {}, CONJUNCTIONS),
    "predicates-16": ("predicates-16", 200_000, 60, {}, CONJUNCTIONS),
    "wide: 500 attributes, at most 6 predicates": ("wide", 20_000, 100, {}, CONJUNCTIONS),
}


def deliver(index: Index, events: Events) -> int:
    """Match a batch and read all ids: some indexes put that off until they are asked for."""
    return len(index.match(events).ids)


class Measured(NamedTuple):
    """One contender on one workload."""

    micros: float
    bytes_each: float
    compared: float
    matches: float


def measure(case: str, names: tuple[str, ...], quick: bool, seed: int) -> dict[str, Measured]:
    """Some contenders on a workload, in turns, the first of which does not count."""
    name, n, m, options, contenders = CASES[case]
    drawn = workload(name, n // 10 if quick else n, m, seed=seed, **options)
    subs, events = drawn.subscriptions(), drawn.events()
    indexes = {}
    for label in names:
        kind, given = contenders[label]
        indexes[label] = open_index(kind, drawn.schema, **given)
        indexes[label].insert(subs)
    calls = {label: partial(deliver, index, events) for label, index in indexes.items()}
    taken = take_turns(calls, 4, clock=PROCESS, warm_up=1, count=int, where=case)
    found = {}
    for label, index in indexes.items():
        stats = index.stats()
        found[label] = Measured(
            1e6 * taken[label].best / m,
            (stats["bytes"] - stats["catalog_bytes"]) / len(subs),
            stats.get("compared", 0) / 5 / m,
            taken[label].count / m,
        )
    return found


def take_ratios(quick: bool, seed: int) -> dict[str, float]:
    """What decides each claim, with one seed."""
    small, wide, rein, predicates, many = CASES
    table, tree = "vci, the paper's best (table)", "counting (interval tree)"
    of_intervals = [measure(case, ("hint", "cei", table, tree), quick, seed) for case in (small, wide)]
    of_rein = [measure(case, ("rein", "scan"), quick, seed) for case in (rein, predicates)]
    of_wide = measure(many, ("opindex", "counting"), quick, seed)
    ratios = {}
    for domain, own in zip(("5,000", "250,000"), of_intervals, strict=True):
        ratios[f"CEI: time of vci / of cei, {domain} values"] = own[table].micros / own["cei"].micros
        ratios[f"CEI: bytes of vci / of cei, {domain} values"] = own[table].bytes_each / own["cei"].bytes_each
        ratios[f"HINT: time of an interval tree / of hint, {domain} values"] = (
            own[tree].micros / own["hint"].micros
        )
        ratios[f"HINT: entries compared / matches, {domain} values"] = (
            own["hint"].compared / own["hint"].matches
        )
    for case, own in zip(("rein", "predicates-16"), of_rein, strict=True):
        ratios[f"REIN: time of scan / of rein, {case}"] = own["scan"].micros / own["rein"].micros
    ratios["OpIndex: time of counting / of opindex, wide"] = (
        of_wide["counting"].micros / of_wide["opindex"].micros
    )
    return ratios


def print_spread(quick: bool, seeds: int) -> None:
    """A row per ratio: its mean, least and greatest."""
    taken = [take_ratios(quick, seed) for seed in range(1, seeds + 1)]
    print(f"| ratio | mean, least and greatest of {seeds} seeds |\n|---|---|")
    for name in taken[0]:
        print(f"| {name} | {spread([own[name] for own in taken], ',.3g')} |")


def main() -> None:
    """Print a table per workload, or the ratios of several seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the subscriptions")
    parser.add_argument("--seeds", type=int, default=0, help="the claims' ratios with so many seeds")
    chosen = parser.parse_args()
    quick = chosen.quick
    if chosen.seeds:
        print_spread(quick, chosen.seeds)
        return
    for title, (name, n, m, options, contenders) in CASES.items():
        drawn = workload(name, n // 10 if quick else n, m, **options)
        subs, events = drawn.subscriptions(), drawn.events()
        print(f"\n{title}: {len(subs):,} subscriptions, {len(events):,} events\n")
        print("| index | us per event | bytes per subscription | build, s | looked at per event |")
        print("|---|---|---|---|---|")
        pairs = {}
        for label, (kind, given) in contenders.items():
            index = open_index(kind, drawn.schema, **given)
            build, _ = timed(index.insert, subs, clock=PROCESS)
            rounds = take_rounds(partial(deliver, index, events), 4, clock=PROCESS, count=int)
            pairs[label] = rounds.count
            stats = index.stats()
            each = (stats["bytes"] - stats["catalog_bytes"]) / len(subs)
            seen = [stats[key] for key in ("satisfied_predicates", "compared", "marked") if key in stats]
            looked = f"{sum(seen) / 4 / len(events):,.0f}" if seen else ""
            micros = 1e6 * rounds.best / len(events)
            print(f"| {label} | {micros:,.3g} | {each:,.0f} | {build:.2f} | {looked} |", flush=True)
        check_agreement(title, pairs)
        print(f"\n{next(iter(pairs.values())) / len(events):,.1f} matches per event")


if __name__ == "__main__":
    main()
