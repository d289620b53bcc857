"""Access paths of `auto`: what one is, how one event asks them, and how those in use are described."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine import small_kernels
from rangecast.engine.boxes import Boxes
from rangecast.engine.costs import Layout
from rangecast.engine.equalities import EqualitiesPart
from rangecast.engine.layouts import sorted_lists_kernels as nested_kernels
from rangecast.engine.layouts.bitmap import BitmapPart
from rangecast.engine.layouts.cells import CellsPart
from rangecast.engine.layouts.lists import EqualityPart
from rangecast.engine.layouts.sorted_lists import NestedPart
from rangecast.engine.planner import Plan
from rangecast.engine.small import ROOM, FewEvents
from rangecast.engine.static_part import Part
from rangecast.engine.word_lists import WordListsPart
from rangecast.kernels.engine import equality as equality_kernels
from rangecast.kernels.machine.views import Views
from rangecast.types.attributes import Codes
from rangecast.types.schema import Schema

SMALL_BITMAP = 32
"""Blocks of a bitmap that is asked together with lists."""

Ask = Callable[[Codes, Boxes], npt.NDArray[np.int32] | None]
"""What gives the slots that one event matches, or None where they are many."""


class AccessPath(NamedTuple):
    """One access path of a part: its kind, its attributes, how many boxes it holds, and why."""

    kind: str
    on: tuple[int, ...]
    size: int
    part: Part
    plan: Plan | None = None

    @property
    def reads(self) -> tuple[int, ...] | None:
        """The attributes by which it decides, where it goes by all that its boxes bound."""
        part = self.part
        alone = (isinstance(part, CellsPart) and part.checked is None) or (
            isinstance(part, EqualityPart) and part.alone
        )
        return self.on if alone or self.kind in ("runs", "windows") else None


def asked_by_one(paths: list[AccessPath]) -> list[tuple[int, Ask]]:
    """What one event asks: the place of a path, and what gives slots.

    Lists are asked in one call, and a small bitmap with them, which counts as the time of the first of them:
    14.9 us instead of 17.7 for three lists and a bitmap of 37,868 boxes. What such a bitmap takes is as
    estimated then. That of a larger one decides whether it is laid out again (planner.py), so it is asked by
    itself.
    """
    together: dict[type[Part], list[int]] = {NestedPart: [], EqualityPart: [], BitmapPart: []}
    for k, path in enumerate(paths):
        part = path.part
        if isinstance(part, NestedPart) and part.identical:
            together[NestedPart].append(k)
        elif isinstance(part, EqualitiesPart | EqualityPart | WordListsPart) and part.identical:
            together[EqualityPart].append(k)
        elif isinstance(part, BitmapPart) and part.identical and part.n_blocks <= SMALL_BITMAP:
            together[BitmapPart].append(k)
    places = list(itertools.chain.from_iterable(together.values()))
    if len(places) < 2 or len(together[BitmapPart]) > 1:
        return [(k, path.part.stab_one) for k, path in enumerate(paths)]
    joined = _asked_together([paths[k].part for k in places])
    first = min(places)
    return [
        (k, joined if k == first else path.part.stab_one)
        for k, path in enumerate(paths)
        if k == first or k not in places
    ]


def _asked_together(parts: list[Part]) -> Ask:
    """One call for several parts: sorted lists, then lists by value, then a bitmap."""
    joined = NestedPart | EqualitiesPart | EqualityPart | WordListsPart | BitmapPart
    views = [part.few.views for part in parts if isinstance(part, joined)]
    if isinstance(parts[-1], BitmapPart):
        kernel, room = small_kernels.stab_lists_and_bitmap, parts[-1].few.room + ROOM
    elif not isinstance(parts[0], NestedPart):
        return FewEvents(equality_kernels.stab_one, Views(*views)).stab_one
    elif isinstance(parts[-1], NestedPart):
        return FewEvents(nested_kernels.stab_one, Views(*views)).stab_one
    else:
        kernel, room = small_kernels.stab_lists, ROOM
    n_sorted = np.array([sum(isinstance(part, NestedPart) for part in parts)], np.int64)
    return FewEvents(kernel, Views(n_sorted, *views), room).stab_one


def report_paths(schema: Schema, spent: Iterable[tuple[AccessPath, float, int]]) -> list[dict[str, Any]]:
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
        cost = f", {entry['seconds'] / entry['events'] * 1e6:.2f} us per event" if entry["events"] else ""
        lines.append(f"  {entry['path']}{by}: {entry['boxes']:,} boxes, {per_box:.0f} bytes each{cost}")
        if "estimated_ns" in entry:
            line = f"    by {entry['chosen_by']}: {entry['estimated_ns'] / 1e3:.2f} us per event estimated"
            if "runner_up" in entry:
                line += f", {entry['runner_up_ns'] / 1e3:.2f} for {entry['runner_up']}"
            lines.append(line)
    return lines
