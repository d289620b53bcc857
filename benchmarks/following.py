"""A follower beside loading anew: how long a process takes to come to the next version of a store.

    python benchmarks/following.py [--subscriptions 1000000] [--share 0.01] [--steps 24]
    python benchmarks/following.py --page docs/store.md     writes the table into the page, between its marks

A store of rectangles on two attributes, of which a share is replaced at each step. After each, the
follower moves to the new version, and beside it the index of that version is loaded from the nearest
snapshot with the changes since (`Store.index`, which is all there would be without a follower), in turns
in one run. Both match the same events, and must find the same number of pairs. Snapshots are made when
they are due, as in a stream; the steps in which the follower changed over to one are shown apart.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import figures
import rangecast as rc
from rangecast.papers.measuring import WALL, Rounds, timed
from tables import put_between

DOMAIN = 100_000
EVENTS = 2000
SAID = {
    "follow": "follow to the next version",
    "load": "load that version again",
    "change over": "the follower changes over to a newer snapshot",
    "publish": "make a snapshot",
}


def rectangles(schema: rc.Schema, ids: Any, rng: np.random.Generator) -> rc.Subscriptions:
    lows = rng.integers(0, DOMAIN - 1000, (len(ids), 2))
    return rc.Subscriptions.from_arrays(schema, ids, lows, lows + rng.integers(0, 1000, lows.shape))


def measure(folder: Path, n: int, share: float, steps: int) -> dict[str, list[float]]:
    """Seconds of each kind of step; ends the run when an answer differs."""
    rng = np.random.default_rng(7)
    schema = rc.Schema(rc.Int("x", 0, DOMAIN - 1), rc.Int("y", 0, DOMAIN - 1))
    store = rc.Store.open(folder / "store", schema)
    store.insert(rectangles(schema, np.arange(n), rng))
    seconds: dict[str, list[float]] = {"publish": [], "follow": [], "change over": [], "load": []}
    seconds["publish"].append(timed(store.snapshot, clock=WALL)[0])
    events = rc.Events.from_arrays(schema, {name: rng.integers(0, DOMAIN, EVENTS) for name in ("x", "y")})
    follower = rc.Follower(store.path)
    follower.at(1).match(events)
    for _ in range(steps):
        version = store.insert(rectangles(schema, rng.choice(n, max(1, int(n * share)), replace=False), rng))
        loads = follower.stats()["loads"]
        took, index = timed(follower.at, version, clock=WALL)
        anew, other = timed(lambda version=version: store.index(version, verify=False), clock=WALL)
        pairs = index.match(events).n_pairs, other.match(events).n_pairs
        if pairs[0] != pairs[1] or len(index) != n:
            raise SystemExit(f"version {version}: the follower finds {pairs[0]} pairs, a load {pairs[1]}")
        seconds["follow" if follower.stats()["loads"] == loads else "change over"].append(took)
        seconds["load"].append(anew)
        spent, path = timed(store.publish_if_due, clock=WALL)
        if path is not None:
            seconds["publish"].append(spent)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="A follower beside loading anew.")
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--share", type=float, default=0.01, help="replaced at each step")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--page", type=Path, help="Write the table between the marks of this page.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder) / "first", 5_000, args.share, 2)  # compiles
        seconds = measure(Path(folder), args.subscriptions, args.share, args.steps)
    rows = [
        [said, str(len(seconds[kind])), *(f"{1000 * s:,.0f}" for s in (rounds.best, rounds.median))]
        for kind, said in SAID.items()
        if seconds[kind]
        for rounds in [Rounds(seconds[kind])]
    ]
    ratio = Rounds(seconds["load"]).median / Rounds(seconds["follow"]).median
    text = "\n".join(
        [
            f"{args.subscriptions:,} subscriptions, of which {args.share:.1%} are replaced "
            f"at each of {args.steps} steps:",
            "",
            figures.table("step | times | best ms | median ms", "lrrr", rows),
            "",
            f"Loading it again takes {ratio:.1f} times as long as following, by the medians.",
        ]
    )
    print(text)
    if args.page is not None:
        put_between(args.page, "following", "following.py", text)


if __name__ == "__main__":
    main()
