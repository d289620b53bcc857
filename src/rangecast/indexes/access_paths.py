"""An access path of `auto`: how boxes without an equality get theirs, and what is said of paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.attributes import Codes
from rangecast.errors import CapacityError
from rangecast.indexes.bitmap import build_bitmap
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.cells import BUDGET, build_cells
from rangecast.indexes.packed import bounded_attributes, column, fit_grid
from rangecast.indexes.parts import Part
from rangecast.indexes.planning import Layout, Plan, choose_layout
from rangecast.indexes.vci_runs import FEWEST_CELLS, MOST_CELLS, build_runs
from rangecast.schema import Schema


class Path(NamedTuple):
    """One access path of a part: its kind, the attributes it goes by, how many boxes it holds, and why."""

    kind: str
    on: tuple[int, ...]
    size: int
    part: Part
    plan: Plan | None = None


def rest_path(
    boxes: Boxes,
    numbers: npt.NDArray[np.int64],
    around: npt.NDArray[np.int64],
    memory_limit: int | None,
    events: Codes | None,
) -> Path:
    """Runs, cells or bitmap, for boxes that no equality tells apart, among all those `around` them."""
    n = len(numbers)
    used = bounded_attributes(boxes, numbers)
    if len(used) < 2:
        return _line_path(boxes, numbers, used[0] if used else 0, memory_limit)
    plan = choose_layout(boxes, numbers, used, around, events)
    kind, on, _ = plan.chosen
    try:
        if kind == "cells":
            return Path(kind, on, n, build_cells(boxes, numbers, on, BUDGET, memory_limit), plan)
        return Path(kind, on, n, build_bitmap(boxes, numbers, memory_limit=memory_limit), plan)
    except CapacityError:
        # fewer and larger cells before giving up
        return Path("bitmap", (), n, build_bitmap(boxes, numbers, 8, memory_limit))


def _line_path(boxes: Boxes, numbers: npt.NDArray[np.int64], on: int, memory_limit: int | None) -> Path:
    """Runs or cells, for boxes that bound one attribute at most."""
    n = len(numbers)
    lows, highs = column(boxes.lows, on, numbers), column(boxes.highs, on, numbers)
    # a value a cell: nothing is compared then, and lists are slices whatever the widths; a small part may
    # have as many cells as beside the large one do not matter
    grid, _ = fit_grid(lows, highs, min(max(4 * n, boxes.n // 2, FEWEST_CELLS), MOST_CELLS))
    try:
        if grid.shift == 0:
            return Path("runs", (on,), n, build_runs(boxes, numbers, on, grid, None, memory_limit))
        return Path("cells", (on,), n, build_cells(boxes, numbers, (on,), BUDGET, memory_limit))
    except CapacityError:
        return Path("bitmap", (), n, build_bitmap(boxes, numbers, 8, memory_limit))


def report_paths(schema: Schema, spent: Iterable[tuple[Path, float, int]]) -> list[dict[str, Any]]:
    """Paths of several parts, with their seconds and events, summed by kind and attributes; those with most
    boxes first. An estimate is that of the largest."""
    merged: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    largest: dict[tuple[str, tuple[int, ...]], int] = {}
    for path, seconds, events in spent:
        key = path.kind, path.on
        named = {"path": path.kind, "on": [schema[j].name for j in path.on]}
        entry = merged.setdefault(key, {**named, "boxes": 0, "bytes": 0, "seconds": 0.0, "events": 0})
        entry["boxes"] += path.size
        entry["bytes"] += path.part.nbytes
        entry["seconds"] += seconds
        entry["events"] = max(entry["events"], events)
        if path.plan is not None and path.size > largest.get(key, 0):
            largest[key] = path.size
            entry.update(_reasons(schema, path.plan))
    return sorted(merged.values(), key=lambda entry: -int(entry["boxes"]))


def _reasons(schema: Schema, plan: Plan) -> dict[str, Any]:
    reasons: dict[str, Any] = {"estimated_ns": round(plan.chosen.ns), "chosen_by": plan.basis}
    if plan.runner_up is not None:
        reasons["runner_up"] = _named(schema, plan.runner_up)
        reasons["runner_up_ns"] = round(plan.runner_up.ns)
    return reasons


def _named(schema: Schema, layout: Layout) -> str:
    names = ", ".join(schema[j].name for j in layout.on)
    return f"{layout.kind} on {names}" if names else layout.kind


def explain_paths(entries: list[dict[str, Any]]) -> list[str]:
    """The same as lines for a person."""
    lines = []
    for entry in entries:
        by = f" on {', '.join(entry['on'])}" if entry["on"] else ""
        per_box = entry["bytes"] / max(entry["boxes"], 1)
        cost = f", {entry['seconds'] / entry['events'] * 1e6:.2f} us an event" if entry["events"] else ""
        lines.append(f"  {entry['path']}{by}: {entry['boxes']:,} boxes, {per_box:.0f} bytes each{cost}")
        if "estimated_ns" in entry:
            line = f"    by {entry['chosen_by']}: {entry['estimated_ns'] / 1e3:.2f} us an event estimated"
            if "runner_up" in entry:
                line += f", {entry['runner_up_ns'] / 1e3:.2f} for {entry['runner_up']}"
            lines.append(line)
    return lines
