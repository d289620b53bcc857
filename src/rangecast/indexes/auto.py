"""`auto`: an access path for each subscription, chosen from statistics.

    path       holds                                                   module
    equality   boxes that ask for one value of an attribute where      equality.py
               events seldom have that value
    runs       the rest, when they bound one attribute of few values   vci_runs.py
    cells      the rest, when they bound one or two attributes, or     cells.py
               one or two of them leave little
    bitmap     the rest otherwise                                      bitmap.py
    scan       everything, when it is little

How often events have a value is taken to be how often subscriptions ask for it. So a value that one
in a hundred asks for is no equality worth a list: its boxes go with the rest, where their other
bounds tell them apart and clustering keeps them together. An attribute with the same value in 99 of
100 boxes is such a case too.

A part of `auto` is one part per path. Their answers are joined row by row. Each path counts the time
it took, so that `stats` and `explain_plan` say what the last batches cost where.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.attributes import Codes
from rangecast.errors import CapacityError
from rangecast.indexes.bitmap import BitmapPart, build_bitmap, estimate_bytes
from rangecast.indexes.catalog import Boxes
from rangecast.indexes.cells import BUDGET, CellsPart, build_cells
from rangecast.indexes.equality import EqualityPart, build_equality
from rangecast.indexes.packed import bounded_attributes, column, fit_grid
from rangecast.indexes.parts import Part, Piece, StaticIndex
from rangecast.indexes.rows import Found, together
from rangecast.indexes.scan import ScanPart
from rangecast.indexes.selectivity import estimate_selectivity
from rangecast.indexes.vci_runs import FEWEST_CELLS, MOST_CELLS, RunsPart, build_runs
from rangecast.memory import check_fits
from rangecast.storage import Arrays

TINY = 192
_HOT = 0.01
_NEARLY = 1.5
_LIST_NS = 1.5
_PROBE_NS = 40.0
_REST_NS = 0.03
_SELECTIVE = 0.0005
_KINDS: dict[str, type[Part]] = {
    "equality": EqualityPart,
    "runs": RunsPart,
    "cells": CellsPart,
    "bitmap": BitmapPart,
    "scan": ScanPart,
}


class Path(NamedTuple):
    """One access path of a part: its kind, the attributes it goes by, and how many boxes it holds."""

    kind: str
    on: tuple[int, ...]
    size: int
    part: Part


class AutoPart(Part):
    """A part per access path."""

    exact = True

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.ratio = min((path.part.ratio for path in paths), default=Part.ratio)
        self.seconds = [0.0] * len(paths)
        self.events = 0

    def stab(self, codes: Codes, boxes: Boxes) -> Found:
        found = []
        start = time.perf_counter()
        for k, path in enumerate(self.paths):
            found.append(path.part.stab(codes, boxes))
            now = time.perf_counter()
            self.seconds[k] += now - start
            start = now
        self.events += codes.shape[1]
        return found[0] if len(found) == 1 else together(found, codes.shape[1])

    def pieces(self, codes: Codes, cuts: list[tuple[int, Codes]], boxes: Boxes, threads: int) -> list[Piece]:
        return [piece for path in self.paths for piece in path.part.pieces(codes, cuts, boxes, threads)]

    def count_candidates(self, codes: Codes) -> npt.NDArray[np.int64] | None:
        total = np.zeros(codes.shape[1], np.int64)
        for path in self.paths:
            counts = path.part.count_candidates(codes)
            if counts is None:
                return None
            total += counts
        return total

    def without(self, dead: npt.NDArray[np.uint8]) -> AutoPart | None:
        swept = [(path, path.part.without(dead)) for path in self.paths]
        if any(part is None for _, part in swept):
            return None
        return AutoPart([path._replace(part=part) for path, part in swept if part is not None])

    def export(self) -> tuple[dict[str, Any], Arrays]:
        metas, arrays = [], {}
        for k, path in enumerate(self.paths):
            meta, own = path.part.export()
            metas.append({"kind": path.kind, "on": list(path.on), "size": path.size, "meta": meta})
            arrays.update({f"path{k}.{name}": array for name, array in own.items()})
        return {"paths": metas}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: Arrays) -> AutoPart:
        paths = []
        for k, entry in enumerate(meta["paths"]):
            prefix = f"path{k}."
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            part = _KINDS[entry["kind"]].restore(entry["meta"], own)
            paths.append(Path(entry["kind"], tuple(entry["on"]), entry["size"], part))
        return cls(paths)


class AutoIndex(StaticIndex):
    """The index to open when nothing speaks for another.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Category("symbol"), rc.Float("price"))
    >>> index = rc.open_index("auto", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "symbol = 'IBM' and price > 120"}))
    >>> index.match(rc.Events.from_rows(schema, [{"symbol": "IBM", "price": 121.5}])).row(0).tolist()
    [7]
    """

    name = "auto"
    part_type = AutoPart

    def _configure(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        return AutoPart(build_paths(boxes, numbers, self._memory_limit))

    def plan(self) -> list[dict[str, Any]]:
        """Per access path: its kind, the attributes it goes by, boxes, bytes and time spent."""
        merged: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
        for covered in self._state.parts:
            part = covered.part
            assert isinstance(part, AutoPart)
            for k, path in enumerate(part.paths):
                entry = merged.setdefault(
                    (path.kind, path.on),
                    {
                        "path": path.kind,
                        "on": [self.schema[j].name for j in path.on],
                        "boxes": 0,
                        "bytes": 0,
                        "seconds": 0.0,
                        "events": 0,
                    },
                )
                entry["boxes"] += path.size
                entry["bytes"] += path.part.nbytes
                entry["seconds"] += part.seconds[k]
                entry["events"] = max(entry["events"], part.events)
        return sorted(merged.values(), key=lambda entry: -int(entry["boxes"]))

    def explain_plan(self) -> str:
        """The access paths in use, for a person.

        >>> import rangecast as rc
        >>> print(rc.open_index("auto", rc.Schema(rc.Int("a"))).explain_plan())
        0 subscriptions in 0 parts, 0 boxes in the unsorted tail
        """
        lines = [
            f"{len(self):,} subscriptions in {len(self._state.parts)} parts, "
            f"{self._structure_stats()['tail_boxes']:,} boxes in the unsorted tail"
        ]
        for entry in self.plan():
            by = f" on {', '.join(entry['on'])}" if entry["on"] else ""
            per_box = entry["bytes"] / max(entry["boxes"], 1)
            cost = f", {entry['seconds'] / entry['events'] * 1e6:.2f} us an event" if entry["events"] else ""
            lines.append(f"  {entry['path']}{by}: {entry['boxes']:,} boxes, {per_box:.0f} bytes each{cost}")
        return "\n".join(lines)

    def _structure_stats(self) -> dict[str, Any]:
        return {**super()._structure_stats(), "paths": self.plan()}


def build_paths(boxes: Boxes, numbers: npt.NDArray[np.int64], memory_limit: int | None = None) -> list[Path]:
    """Access paths for the boxes with these numbers."""
    n = len(numbers)
    if n == 0:
        return []
    # a scan looks at a range of boxes, so only when no dead one lies between them
    if n <= TINY and int(numbers[-1]) - int(numbers[0]) == n - 1:
        return [Path("scan", (), n, ScanPart(int(numbers[0]), int(numbers[-1]) + 1))]
    used = bounded_attributes(boxes, numbers)
    check_fits(
        estimate_bytes(n, len(used), 4),
        memory_limit,
        f"'auto' for {n:,} boxes on {len(used)} attributes",
        "the index 'scan' needs nearly nothing beyond the subscriptions",
    )
    paths = []
    rest = numbers
    for on, chosen in _choose_equalities(boxes, numbers, used):
        paths.append(Path("equality", (on,), len(chosen), build_equality(boxes, chosen, on)))
    if paths:
        taken = np.zeros(int(numbers[-1]) + 1, bool)
        for path in paths:
            part = path.part
            assert isinstance(part, EqualityPart)
            taken[part.arrays["boxes"]] = True
        rest = numbers[~taken[numbers]]
    if len(rest):
        paths.append(_rest_path(boxes, rest, memory_limit))
    return paths


def _rest_path(boxes: Boxes, numbers: npt.NDArray[np.int64], memory_limit: int | None) -> Path:
    """Cells or bitmap, for boxes that no equality tells apart."""
    n = len(numbers)
    used = bounded_attributes(boxes, numbers)
    if not used:
        return Path("cells", (0,), n, build_cells(boxes, numbers, (0,), BUDGET, memory_limit))
    on = tuple(used)
    if len(used) == 1:
        lows, highs = column(boxes.lows, on[0], numbers), column(boxes.highs, on[0], numbers)
        # a value a cell: nothing is compared then, and lists are slices whatever the widths
        grid, _ = fit_grid(lows, highs, min(max(4 * n, FEWEST_CELLS), MOST_CELLS))
        if grid.shift == 0:
            return Path("runs", on, n, build_runs(boxes, numbers, on[0], grid, None, memory_limit))
    if len(used) > 2:
        shares = estimate_selectivity(boxes, numbers)
        on = tuple(int(j) for j in np.argsort(shares, kind="stable")[:2])
        if shares[on[0]] * shares[on[1]] > _SELECTIVE:
            on = ()
    try:
        if on:
            return Path("cells", on, n, build_cells(boxes, numbers, on, BUDGET, memory_limit))
        return Path("bitmap", (), n, build_bitmap(boxes, numbers, memory_limit=memory_limit))
    except CapacityError:
        # fewer and larger cells before giving up
        return Path("bitmap", (), n, build_bitmap(boxes, numbers, 8, memory_limit))


def _choose_equalities(
    boxes: Boxes, numbers: npt.NDArray[np.int64], used: list[int]
) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Attributes with lists by value, and the boxes of each.

    Attributes are taken one at a time, each the one that saves most; a box goes by the first of them
    whose value is about as rare as its rarest.
    """
    n = len(numbers)
    shares: dict[int, npt.NDArray[np.float32]] = {}
    for j in used:
        lows, highs = column(boxes.lows, j, numbers), column(boxes.highs, j, numbers)
        equal = lows == highs
        asked = int(np.count_nonzero(equal))
        if asked * _REST_NS < _PROBE_NS / 8 and asked < n // 2:
            continue
        own = _shares(lows[equal])
        shares[j] = np.full(n, np.inf, np.float32)
        shares[j][equal] = np.where(own < _HOT, own, np.inf)
    best = np.full(n, _REST_NS, np.float32)
    chosen: list[int] = []
    while len(chosen) < len(shares):
        gains = {
            j: float(np.maximum(best - share * np.float32(_LIST_NS), 0).sum())
            for j, share in shares.items()
            if j not in chosen
        }
        j = max(gains, key=lambda k: gains[k])
        # the first attribute pays for itself even with few boxes if it takes most of them
        if gains[j] < _PROBE_NS and not (not chosen and gains[j] > 0.5 * n * _REST_NS):
            break
        chosen.append(j)
        best = np.minimum(best, shares[j] * np.float32(_LIST_NS))
    if not chosen:
        return []
    rarest = np.minimum.reduce([shares[j] for j in chosen])
    # the first that is nearly as rare: one long list is read faster than several short ones
    winner = np.full(n, -1, np.int16)
    for k in reversed(range(len(chosen))):
        winner[shares[chosen[k]] <= _NEARLY * rarest] = k
    winner[np.isinf(rarest)] = -1
    return [(j, numbers[winner == k]) for k, j in enumerate(chosen) if (winner == k).any()]


def _shares(values: Codes) -> npt.NDArray[np.float32]:
    """For each value, the share of all that are equal to it; rare ones count as their average."""
    if not len(values):
        return np.empty(0, np.float32)
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    smoothed = (counts + 1.0) / (len(values) + len(distinct))
    return smoothed[inverse].astype(np.float32)
