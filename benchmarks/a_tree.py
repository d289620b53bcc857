"""The crate a-tree beside our indexes, on conjunctions, in one process and in turns.

    python benchmarks/a_tree.py [--quick]

A-Tree (Ji and Jacobsen 2021) indexes boolean expressions and shares what they have in common; the crate
a-tree implements it in Rust (benchmarks/native/a_tree). Its expressions are written from the same
workloads, an interval as two comparisons. Its events are made beforehand and its answers only added up, so
a search's time is the search alone, while ours delivers all ids. Pairs must be the same for all. Times are
of the processor, the best of some rounds: read the ratios. docs/related-work.md shows the table.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rangecast.engine import Index, open_index
from rangecast.model.events import Events
from rangecast.papers.measuring import PROCESS, take_turns, timed
from rangecast.workloads import Workload, workload

FOLDER = Path(__file__).resolve().parent / "native" / "a_tree"
OURS = ("auto", "opindex", "counting", "scan")
CASES = {
    "boolean-expressions: 100 attributes, 5 to 15 predicates": ("boolean-expressions", 10_000, 50),
    "predicates-16": ("predicates-16", 10_000, 50),
    "wide: 500 attributes, at most 6 predicates": ("wide", 10_000, 50),
}


def build() -> ctypes.CDLL:
    """The library, built if it is not up to date."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise SystemExit("there is no cargo: the crate a-tree cannot be built")
    subprocess.run([cargo, "build", "--release", "--quiet"], cwd=FOLDER, check=True)
    suffix = {"darwin": "liba_tree_peer.dylib", "win32": "a_tree_peer.dll"}
    library = ctypes.CDLL(str(FOLDER / "target" / "release" / suffix.get(sys.platform, "liba_tree_peer.so")))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    library.atree_build.argtypes, library.atree_build.restype = (text, text), pointer
    library.atree_events.argtypes = (pointer, text, ctypes.c_uint64, pointer)
    library.atree_events.restype = ctypes.c_bool
    library.atree_search.argtypes = (pointer, ctypes.POINTER(ctypes.c_uint64))
    library.atree_search.restype = ctypes.c_uint64
    library.atree_free.argtypes, library.atree_free.restype = (pointer,), None
    return library


def write_expressions(drawn: Workload) -> list[str]:
    """Each subscription as the crate writes it; a side without a bound is left out."""
    said: list[list[str]] = [[] for _ in range(drawn.n_subscriptions)]
    for name in drawn.schema.names:
        lows, highs = (np.asarray(side[name], np.float64) for side in (drawn.lows, drawn.highs))
        for row in np.flatnonzero(~(np.isnan(lows) & np.isnan(highs))).tolist():
            low, high = lows[row], highs[row]
            if low == high:
                said[row].append(f"{name} = {int(low)}")
                continue
            if not np.isnan(low):
                said[row].append(f"{name} >= {int(low)}")
            if not np.isnan(high):
                said[row].append(f"{name} <= {int(high)}")
    if not all(said):
        raise SystemExit(f"{drawn.name}: a-tree has no expression that is always true")
    return [" and ".join(each) for each in said]


class Peer:
    """The crate's tree over a workload, its events made; frees itself."""

    def __init__(self, library: ctypes.CDLL, drawn: Workload) -> None:
        self._library = library
        names = "\n".join(drawn.schema.names).encode()
        self.expressions = "\n".join(write_expressions(drawn)).encode()
        self.build_seconds, self._handle = timed(library.atree_build, names, self.expressions, clock=PROCESS)
        if not self._handle:
            raise SystemExit(f"{drawn.name}: a-tree refused an expression")
        columns = [np.asarray(drawn.columns[name], np.float64) for name in drawn.schema.names]
        rows = np.ascontiguousarray(np.stack(columns, axis=1))
        missing = np.isnan(rows)
        values = np.where(missing, 0, rows).astype(np.int64)
        values[missing] = np.iinfo(np.int64).min
        if not library.atree_events(self._handle, names, len(values), values.ctypes.data):
            raise SystemExit(f"{drawn.name}: a-tree refused an event")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.atree_free(self._handle)

    def search(self) -> tuple[int, int]:
        """How many pairs there are, and what their numbers add up to."""
        total = ctypes.c_uint64()
        return int(self._library.atree_search(self._handle, ctypes.byref(total))), int(total.value)


def deliver(index: Index, events: Events) -> tuple[int, int]:
    """The same of one of our indexes, all ids delivered."""
    matches = index.match(events)
    ids = matches.ids.astype(np.uint64)
    return len(ids), int((ids * (matches.events().astype(np.uint64) + np.uint64(1))).sum())


def main() -> None:
    """Print a table per workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the subscriptions")
    quick = parser.parse_args().quick
    library = build()
    for title, (name, n, m) in CASES.items():
        drawn = workload(name, n // 10 if quick else n, m)
        subs, events = drawn.subscriptions(), drawn.events()
        peer = Peer(library, drawn)
        builds = {"a-tree (crate)": peer.build_seconds}
        calls: dict[str, Callable[[], Any]] = {"a-tree (crate)": peer.search}
        for kind in OURS:
            warm = open_index(kind, drawn.schema)
            warm.insert(subs.select(np.arange(100)))
            warm.match(events)
            index = open_index(kind, drawn.schema)
            builds[kind], _ = timed(index.insert, subs, clock=PROCESS)
            calls[kind] = partial(deliver, index, events)
        taken = take_turns(calls, 5, clock=PROCESS, warm_up=1, count=lambda found: found, where=title)
        print(f"\n{title}: {len(subs):,} subscriptions, {len(events):,} events, "
              f"{taken['auto'].count[0] / len(events):,.1f} matches per event\n")  # fmt: skip
        print("| index | us per event | x auto | build, s |")
        print("|---|---|---|---|")
        for label, rounds in taken.items():
            micros = 1e6 * rounds.best / len(events)
            times = rounds.best / taken["auto"].best
            print(f"| {label} | {micros:,.3g} | {times:,.3g} | {builds[label]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
