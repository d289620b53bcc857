"""What came after the five papers, beside what they had: one attribute, and conjunctions.

    python benchmarks/after_the_papers.py [--quick]

Each contender is built in turn and matches the same events; pairs must be the same for all. Times are of the
processor, the best of some rounds: read the ratios. docs/related-work.md shows the tables.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from rangecast.engine import Index, open_index
from rangecast.model.events import Events
from rangecast.papers.measuring import PROCESS, check_agreement, take_rounds, timed
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


def main() -> None:
    """Print a table per workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the subscriptions")
    quick = parser.parse_args().quick
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
