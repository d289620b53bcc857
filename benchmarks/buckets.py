"""A store in a bucket beside one in a folder: what inserts, opening, a snapshot and its fetch take.

    python tests/s3_server.py python benchmarks/buckets.py s3://alerts/bench [--subscriptions 200000]
    ... --page docs/object-stores.md        writes the table into the page, between its marks

The server is on loopback, so a request takes a few milliseconds; `requests` says how many each step makes,
which is what counts on a real service. Both stores get the same subscriptions, and must find the same pairs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np

import rangecast as rc
from rangecast.durable import bucket as buckets
from tables import put_between

STEPS = (
    "create",
    "insert one",
    "insert many",
    "open",
    "look for news",
    "make a snapshot",
    "fetch it",
    "match",
)


def count_requests() -> list[int]:
    """Count what is asked of buckets from here on."""
    asked = [0]
    real = buckets.Bucket._api

    def api(self: buckets.Bucket) -> object:
        asked[0] += 1
        return real(self)

    buckets.Bucket._api = api  # type: ignore[method-assign]
    return asked


def measure(place: str, n: int, rounds: int, asked: list[int]) -> tuple[dict[str, tuple[float, float]], int]:
    """Milliseconds (the median) and requests of each step, and the pairs that were found."""
    schema = rc.Schema(rc.Int("price", 0, 1_000_000))
    draw = np.random.default_rng(3)
    found: dict[str, tuple[float, float]] = {}

    def timed(name: str, step: Callable[[], object], times: int) -> object:
        taken, before, out = [], asked[0], None
        for _ in range(times):
            start = time.perf_counter()
            out = step()
            taken.append(1000 * (time.perf_counter() - start))
        found[name] = statistics.median(taken), (asked[0] - before) / times
        return out

    numbers = itertools.count(10)

    def some(first: int, count: int) -> rc.Subscriptions:
        lows = draw.integers(0, 999_000, (count, 1))
        return rc.Subscriptions.from_arrays(schema, np.arange(first, first + count), lows, lows + 100)

    store = rc.Store.open(f"{place}/{uuid.uuid4().hex}", schema)
    timed("create", lambda: rc.Store.open(f"{place}/{uuid.uuid4().hex}", schema), 3)
    store.insert(some(0, 10))
    timed("insert one", lambda: store.insert(some(next(numbers), 1)), rounds)
    timed("insert many", lambda: store.insert(some(1_000_000, n)), 1)
    timed("open", lambda: rc.Store.open(store.path), 5)
    timed("look for news", lambda: store.version, rounds)
    timed("make a snapshot", store.snapshot, 1)
    if "://" in place:
        cache = Path(os.environ["RANGECAST_CACHE"])
        shutil.rmtree(cache)
    path = timed("fetch it", rc.Store.open(store.path).snapshot, 1)
    index = rc.load_index(path)
    events = rc.Events.from_arrays(schema, {"price": draw.integers(0, 1_000_000, 10_000)})
    index.match(events)
    matches = timed("match", lambda: index.match(events), 5)
    assert isinstance(matches, rc.Matches)
    return found, matches.n_pairs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("place", help="an address, such as s3://alerts/bench")
    parser.add_argument("--subscriptions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--page", type=Path, help="Write the table between the marks of this page.")
    given = parser.parse_args()
    asked = count_requests()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("RANGECAST_CACHE", f"{scratch}/cache")
        # what is compiled once is no cost of either
        measure(f"{scratch}/warm", given.subscriptions, 1, asked)
        folder, pairs = measure(f"{scratch}/stores", given.subscriptions, given.rounds, asked)
        bucket, same = measure(given.place, given.subscriptions, given.rounds, asked)
    assert pairs == same > 0, (pairs, same)
    lines = ["| step | folder, ms | bucket, ms | requests |", "|---|---|---|---|"]
    for name in STEPS:
        requests = "" if name == "match" else f"{bucket[name][1]:.0f}"
        lines.append(f"| {name} | {folder[name][0]:.2f} | {bucket[name][0]:.2f} | {requests} |")
    print(f"{given.subscriptions:,} subscriptions, {pairs:,} pairs of 10,000 events\n")
    print("\n".join(lines))
    if given.page is not None:
        put_between(given.page, "steps", "buckets.py", "\n".join(lines))


if __name__ == "__main__":
    main()
