"""Estimates of `auto`'s planner beside what layouts take: is the layout of the least estimate the best one?

    python benchmarks/planning.py                          every workload of several attributes
    python benchmarks/planning.py --only rein --json x.json

For each workload all boxes are laid out in each of the ways that the planner weighs, and a batch of 400
events is matched by each, in turns, processor time. A line per layout: its estimate from events like those of
the batch, and the time; the JSON file has the counts that the estimate is made of as well, to fit its
constants by (engine/costs.py). Then what the choices cost beside the best layout: that by events, and that
by subscriptions alone.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import rangecast as rc
from rangecast import workloads
from rangecast.engine import costs, planner
from rangecast.engine.answers import Request, count_rows
from rangecast.engine.layouts.bitmap import build_bitmap
from rangecast.engine.layouts.cells import BUDGET, build_cells
from rangecast.papers.measuring import PROCESS, take_turns

NAMES = (
    "boxes-12d", "rein", "predicates-16", "rectangles", "rectangles-uniform", "rectangles-wide-domain",
    "lonlat", "covering", "stock-alerts", "market", "near-misses", "mostly-matching", "one-giant",
)  # fmt: skip
EVENTS = 400


def measure(name: str, n: int, rounds: int) -> dict[str, Any]:
    """One workload: every layout with its estimate and its time, and the two choices."""
    w = workloads.workload(name, n, 2 * EVENTS)
    index = rc.open_index("scan", w.schema)
    index.insert(w.subscriptions())
    boxes = index._catalog.boxes
    numbers = np.arange(boxes.n)
    used = tuple(boxes.bounded(numbers))
    codes = w.events().encoded(w.schema).codes
    seen, batch = codes[:, EVENTS:], np.ascontiguousarray(codes[:, :EVENTS])
    sample = costs.draw_boxes(numbers)
    weighed = costs.Weighed.of(boxes, sample, boxes.n, used, seen)
    ways = sorted(weighed.ways(), key=weighed.ns)
    chosen = costs.weigh_layouts(boxes, sample, boxes.n, used, seen)[0]
    alone = planner.choose_layout(boxes, numbers, list(used), numbers, None).chosen
    parts = {}
    # what is chosen without events may be none of those that are weighed with them
    for on in {tuple(used[k] for k in way): None for way in ways} | {alone.on: None}:
        part = build_cells(boxes, numbers, on, BUDGET) if on else build_bitmap(boxes, numbers)
        parts[on] = partial(part.stab, Request(batch, boxes))
    taken = take_turns(parts, rounds, clock=PROCESS, count=lambda found: int(count_rows(found).sum()))
    times = {on: one.best / EVENTS * 1e9 for on, one in taken.items()}
    rows = [
        {
            "kind": "cells" if on else "bitmap", "on": [w.schema[j].name for j in on],
            "estimate": weighed.ns(way), "ns": times[on], "counts": weighed.counts(way),
        }
        for on, way in ((on, tuple(used.index(j) for j in on)) for on in parts)
    ]  # fmt: skip
    best = min(times.values())
    return {
        "workload": name, "subscriptions": n, "attributes": len(used), "layouts": rows,
        "by_events": times[chosen.on] / best,
        "by_subscriptions": times[alone.on] / best,
    }  # fmt: skip


def run(
    only: Annotated[list[str] | None, typer.Option(help="These workloads.")] = None,
    n: Annotated[int, typer.Option(help="Subscriptions.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 5,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Measure every layout of every workload."""
    results = []
    for name in only or NAMES:
        result = measure(name, n, rounds)
        results.append(result)
        print(
            f"{name}: choice by events {result['by_events']:.2f} times the best layout, "
            f"by subscriptions {result['by_subscriptions']:.2f}"
        )
        for row in result["layouts"]:
            print(
                f"    {row['kind']} {', '.join(row['on'])}: estimated {row['estimate']:,.0f} ns, "
                f"takes {row['ns']:,.0f}"
            )
        if json_out:
            json_out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(run)
