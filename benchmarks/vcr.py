"""The rectangle index beside STRtree and the paper's own look-up: speed, memory, and the same pairs.

    python benchmarks/vcr.py            # 256,000 rectangles, about a minute
    python benchmarks/vcr.py --quick    # 16,000: are the answers right?
    python benchmarks/vcr.py --page docs/indexes/vcr.md    # and into the page, between its marks

All contenders of a workload take turns in this process, on one core, and deliver the ids of all pairs;
the best of several turns counts (time of the processor, for the machine may be shared), and every one
must find exactly the known number of pairs. The last column says whether what must hold of `runs` at
full size did: at least 6 times STRtree and 5 times the paper's look-up on 300 x 200 points, 1.5 times
STRtree within 150 bytes per subscription on 2,000 x 1,500. The exit code is 1 when pairs differ, or at
full size when a floor is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import shapely
import typer
from rich.console import Console
from rich.table import Table

import figures
import rangecast as rc
from rangecast import workloads
from rangecast.papers.measuring import PROCESS, take_turns
from tables import put_between

PAPER = {"storage": "array", "Lx": 16, "Ly": 8}
HASH = {"storage": "hash", "Lx": 16, "Ly": 8, "decomposition": "od"}

# events, options of the paper's look-up, floors of runs: times STRtree, times the paper's, bytes
CASES: dict[str, tuple[int, dict[str, dict[str, Any]], tuple[float, float, float]]] = {
    "rectangles": (2_000, {"array": PAPER, "hash, od": HASH}, (6.0, 5.0, np.inf)),
    "rectangles-uniform": (4_000, {"array": PAPER}, (0.0, 0.0, np.inf)),
    "rectangles-wide-domain": (20_000, {"hash, od": HASH}, (1.5, 0.0, 150.0)),
    "lonlat": (20_000, {"hash, od": {"storage": "hash", "decomposition": "od"}}, (0.0, 0.0, np.inf)),
}
# (workload, subscriptions, events): pairs, as a compiled scan counts them
PAIRS = {
    ("rectangles", 256_000, 2_000): 13_829_557,
    ("rectangles-uniform", 256_000, 4_000): 3_883_376,
    ("rectangles-wide-domain", 256_000, 20_000): 3_385_000,
    ("lonlat", 256_000, 20_000): 722_789,
    ("rectangles", 16_000, 500): 209_184,
    ("rectangles-uniform", 16_000, 500): 30_279,
    ("rectangles-wide-domain", 16_000, 500): 5_178,
    ("lonlat", 16_000, 500): 1_063,
}


def strtree(w: workloads.Workload) -> Callable[[], int]:
    """A match by shapely, ids gathered."""
    tree = shapely.STRtree(shapely.box(*w.lows.values(), *w.highs.values()))
    points = shapely.points(*w.columns.values())
    return lambda: len(w.ids[tree.query(points)[1]])


def vcr(w: workloads.Workload, options: dict[str, Any]) -> tuple[rc.Index, Callable[[], int]]:
    """An index, and a match with ids gathered."""
    index = rc.open_index("vcr", w.schema, **options)
    index.insert(w.subscriptions())
    events = w.events()
    return index, lambda: len(index.match(events).ids)


COLUMNS = ("workload", "index", "us per event", "M pairs/s", "times runs", "bytes per subscription", "floor")


def run(
    quick: bool = False,
    turns: int = 7,
    page: Annotated[Path | None, typer.Option(help="Write the table between the marks of this page.")] = None,
) -> None:
    """Measure all workloads and print one table."""
    table, rows = Table(*COLUMNS), []
    wrong = False
    for name, (n_events, options, floors) in CASES.items():
        n, m = (16_000, 500) if quick else (256_000, n_events)
        w = workloads.workload(name, n, m)
        indexes, contenders = {}, {"STRtree": strtree(w)}
        for label, chosen in {"runs": {}, **options}.items():
            indexes[label], contenders[label] = vcr(w, chosen)
        pairs = {label: match() for label, match in contenders.items()}
        if set(pairs.values()) != {PAIRS[name, n, m]}:
            print(f"{name}: {PAIRS[name, n, m]:,} pairs expected, got {pairs}", file=sys.stderr)
            wrong = True
        taken = take_turns(contenders, turns, clock=PROCESS)
        best = {label: rounds.best for label, rounds in taken.items()}
        times = {label: best[label] / best["runs"] for label in best}
        each = indexes["runs"].stats()["bytes_per_subscription"]
        held = times["STRtree"] >= floors[0] and times[next(iter(options))] >= floors[1] and each <= floors[2]
        wrong |= not held and not quick
        for label, seconds in best.items():
            size = str(indexes[label].stats()["bytes_per_subscription"]) if label in indexes else ""
            row = [
                f"{1e6 * seconds / m:.2f}",
                f"{pairs[label] / seconds / 1e6:.0f}",
                f"{times[label]:.1f}",
                size,
            ]
            verdict = ("held" if held else "missed") if label == "runs" and not quick else ""
            rows.append([name if label == "STRtree" else "", label, *row, verdict])
            table.add_row(*rows[-1])
    Console(width=110).print(table)
    if page is not None:
        put_between(page, "runs", "vcr.py", figures.table(" | ".join(COLUMNS), "llrrrrl", rows))
    raise typer.Exit(int(wrong))


if __name__ == "__main__":
    typer.run(run)
