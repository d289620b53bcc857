"""Building `auto`: processor time and the highest memory, beside the bytes of what is built.

    python benchmarks/building.py --subscriptions 10000000 --attributes 1
    python benchmarks/building.py --subscriptions 10000000 --threads 2

Subscriptions are there before the clock starts; kernels are compiled and loaded by a small build of the same
kind. With --threads the index is built with one thread and with so many in turns, and the best of three by
the wall clock counts. Memory is what the process has at most while it builds, less what it had before.
Linux alone tells it.
"""

from __future__ import annotations

import argparse
import gc
import time
from functools import partial

import numpy as np

import rangecast as rc
from measure import forget_peak, resident
from rangecast.papers.measuring import WALL, take_turns

WARM = 20_000


def draw(n: int, d: int) -> tuple[rc.Schema, rc.Subscriptions]:
    """Small intervals on a domain of 10^9, or boxes of which ten hold an event."""
    rng = np.random.default_rng(1)
    domain = 10**9 if d == 1 else 10**6
    schema = rc.Schema(*(rc.Int(f"a{j}", 0, domain) for j in range(d)))
    widest = max(2, int(2 * domain * (10 / n) ** (1 / d)))
    lows = rng.integers(0, domain, (n, d))
    highs = lows + rng.integers(0, widest, (n, d))
    return schema, rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)


def beside_one(schema: rc.Schema, subs: rc.Subscriptions, threads: int) -> str:
    """Seconds by the wall clock with one thread and with several."""
    calls = {k: partial(build, schema, subs, k) for k in (1, threads)}
    taken = take_turns(calls, 3, clock=WALL, count=len, where="building")
    one, several = taken[1].best, taken[threads].best
    return f"{one:.2f} s with one thread, {several:.2f} s with {threads}: {one / several:.2f} times as fast"


def build(schema: rc.Schema, subs: rc.Subscriptions, threads: int) -> rc.Index:
    """`auto` over all of them."""
    index = rc.open_index("auto", schema, build_threads=threads)
    index.insert(subs)
    return index


def main() -> None:
    """Build once, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--attributes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    n, d = args.subscriptions, args.attributes
    schema, subs = draw(min(WARM, n), d)
    rc.open_index("auto", schema).insert(subs)
    schema, subs = draw(n, d)
    gc.collect()
    if args.threads > 1:
        print(f"{n:,} subscriptions on {d} attributes: {beside_one(schema, subs, args.threads)}")
        return
    forget_peak()
    before = resident("VmRSS")
    start = time.process_time()
    index = rc.open_index("auto", schema)
    index.insert(subs)
    seconds = time.process_time() - start
    highest = resident("VmHWM")
    stats = index.stats()
    each = stats["bytes_per_subscription"]
    line = f"{n:,} subscriptions on {d} attributes: {seconds:.2f} s, {each} bytes each"
    if before is not None and highest is not None:
        line += f", at most {(highest - before) / stats['bytes']:.2f} times that while building"
    print(line)


if __name__ == "__main__":
    main()
