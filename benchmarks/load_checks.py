"""What it costs to trust no index file: the share of loading that goes into checking ranges.

    python benchmarks/load_checks.py
    python benchmarks/load_checks.py --subscriptions 100000 --only islist rtree

Each layout is saved once and loaded in turns with the others, its file in the page cache and its sums
verified. Loading is `load_index`; the checks are what `Catalog._check`, `BoxEntries.take`, the `check` of
parts and `_check_structure` take of it (engine/checks.py). The best round of each counts. A loaded index
must answer as the saved one did.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rangecast as rc
from rangecast.engine.boxes import BoxEntries
from rangecast.engine.catalog import Catalog
from rangecast.engine.index import Index
from rangecast.engine.parts import Part

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "scan": ("scan", {}),
    "cells": ("cells", {}),
    "bitmap": ("bitmap", {}),
    "auto": ("auto", {}),
    "vci": ("vci", {}),
    "vci, table": ("vci", {"lookup": "table"}),
    "vci, bitmap": ("vci", {"lookup": "bitmap", "cells": 1024}),
    "vci, clipped": ("vci", {"lookup": "clipped"}),
    "islist": ("islist", {}),
    "direct": ("direct", {"cells": 1024}),
    "vcr": ("vcr", {}),
    "vcr, array": ("vcr", {"storage": "array", "cells": 64}),
    "vcr, hash": ("vcr", {"storage": "hash", "cells": 64}),
    "counting": ("counting", {}),
    "ubtree": ("ubtree", {}),
    "rtree": ("rtree", {}),
    "hint": ("hint", {}),
    "cei": ("cei", {}),
    "rein": ("rein", {}),
    "opindex": ("opindex", {}),
}


class Clock:
    """Seconds spent within the functions that it was put around."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            self._depth += 1
            begun = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._depth -= 1
                # a check that another one calls is counted by that one
                if not self._depth:
                    self.seconds += time.perf_counter() - begun

        return timed


def watch(clock: Clock) -> None:
    """Put a clock around everything that checks what was loaded."""
    for base, name in ((Catalog, "_check"), (Part, "check"), (Index, "_check_structure")):
        kinds: list[type] = [base]
        for kind in kinds:
            kinds += kind.__subclasses__()
            if name in vars(kind):
                setattr(kind, name, clock.around(vars(kind)[name]))
    # which does little else
    BoxEntries.take = classmethod(clock.around(vars(BoxEntries)["take"].__func__))  # type: ignore[assignment]


def subscriptions(schema: rc.Schema, n: int) -> rc.Subscriptions:
    """Boxes of all widths, one attribute in three free."""
    rng = np.random.default_rng(1)
    lows = rng.integers(0, 10_000, (n, len(schema))).astype(float)
    highs = lows + rng.integers(0, 200, lows.shape)
    free = rng.random(lows.shape) < 1 / 3
    lows[free], highs[free] = np.nan, np.nan
    return rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    schema = rc.Schema(*(rc.Int(name, 0, 10_300) for name in "abc"))
    subs = subscriptions(schema, given.subscriptions)
    rng = np.random.default_rng(2)
    events = rc.Events.from_arrays(schema, {name: rng.integers(0, 10_300, 20) for name in "abc"})
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: Path(folder) / str(k) for k, kind in enumerate(given.only)}
        for kind, path in paths.items():
            index = rc.open_index(KINDS[kind][0], schema, **KINDS[kind][1])
            index.insert(subs)
            index.save(path)
            wanted, found = index.match(events).sort(), rc.load_index(path).match(events).sort()
            assert np.array_equal(wanted.offsets, found.offsets), kind
            assert np.array_equal(wanted.ids, found.ids), kind
        clock = Clock()
        watch(clock)  # once their modules are imported
        for _ in range(given.rounds):
            for kind, path in paths.items():
                clock.seconds = 0.0
                begun = time.perf_counter()
                rc.load_index(path)
                took = time.perf_counter() - begun
                loading, checks = best.get(kind, (np.inf, np.inf))
                best[kind] = min(loading, took), min(checks, clock.seconds)
        print("| layout | MB | loading, ms | checks, ms | share |\n|---|--:|--:|--:|--:|")
        for kind, (loading, checks) in best.items():
            size = paths[kind].stat().st_size / 1e6
            print(
                f"| {kind} | {size:.1f} | {1e3 * loading:.1f} | {1e3 * checks:.2f} | {checks / loading:.1%} |"
            )


if __name__ == "__main__":
    main()
