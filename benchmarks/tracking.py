"""What changed, beside matching alone and beside a dict of sets: python benchmarks/tracking.py

The workload `vehicles`, batch by batch: 100,000 fences, and vehicles that move from event to event. Each row
has the time of an event in microseconds for

    match      the index alone: which fences hold each event
    tracker    `rc.Tracker`: which fences each vehicle entered and left; it matches too
    sets       the same from the answers of the index, with a set of fences per vehicle in Python; it has to
               match as well, which is counted in

The changes of the tracker and of the sets are compared, and their number is shown.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import rangecast as rc
from rangecast.workloads import vehicles, workload


def changes_by_sets(
    known: dict[int, frozenset[int]], keys: list[int], matches: rc.Matches
) -> list[tuple[str, int, int]]:
    """What a batch changed, vehicle by vehicle; as a program without a tracker would do it."""
    out = []
    offsets, ids = matches.offsets.tolist(), matches.ids.tolist()
    for event, key in enumerate(keys):
        now = frozenset(ids[offsets[event] : offsets[event + 1]])
        before = known.get(key, frozenset())
        out += [("entered", key, fence) for fence in now - before]
        out += [("left", key, fence) for fence in before - now]
        known[key] = now
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--vehicles", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=10_000)
    options = parser.parse_args()
    w = workload("vehicles", options.subscriptions, options.events, vehicles=options.vehicles)
    print(
        f"{options.subscriptions:,} fences, {options.vehicles:,} vehicles, {options.events:,} events in "
        f"batches of {options.batch:,}"
    )
    print("| fences | changes | match, us/event | tracker, us/event | sets, us/event | times |")
    print("|---|---:|---:|---:|---:|---:|")
    keys = w.columns["vehicle"]
    for kind in ("rectangles", "circles"):
        if kind == "rectangles":
            schema, subs, places = w.schema, w.subscriptions(), w.columns
        else:
            schema = rc.Schema(rc.Point("at"))
            subs = rc.Subscriptions.parse(schema, vehicles.circles(w))
            places = {"at": vehicles.points(w)}
        index = rc.open_index("auto", schema)
        index.insert(subs)
        tracker, known = rc.Tracker(index, "vehicle"), {}
        spent = dict.fromkeys(("match", "tracker", "sets"), 0.0)
        n_changes = 0
        for first in range(0, options.events, options.batch):
            rows = slice(first, first + options.batch)
            columns = {name: column[rows] for name, column in places.items()}
            # computed anew each time, as a batch that comes is
            given = [rc.Events.from_arrays(schema, columns) for _ in range(3)]
            start = time.perf_counter()
            index.match(given[0]).ids  # noqa: B018
            matched = time.perf_counter()
            found = tracker.update(given[1], keys=keys[rows], stays=False)
            tracked = time.perf_counter()
            by_sets = changes_by_sets(known, keys[rows].tolist(), index.match(given[2]))
            ended = time.perf_counter()
            assert len(found) == len(by_sets)
            assert sorted(found) == sorted(by_sets)
            n_changes += len(found)
            if first:  # the first batch compiles, and meets every vehicle for the first time
                for name, seconds in zip(
                    spent, (matched - start, tracked - matched, ended - tracked), strict=True
                ):
                    spent[name] += seconds
        each = {name: seconds / (options.events - options.batch) * 1e6 for name, seconds in spent.items()}
        print(
            f"| {kind} | {n_changes:,} | {each['match']:.2f} | {each['tracker']:.2f} | {each['sets']:.2f} | "
            f"{each['sets'] / each['tracker']:.1f} |",
            flush=True,
        )
    assert np.array_equal(np.unique(keys), np.arange(1, options.vehicles + 1))


if __name__ == "__main__":
    main()
