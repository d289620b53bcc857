"""What `auto` must show beside the scan and the packages, one workload after the other, in one run.

    python benchmarks/floors.py                         keeps the figures, and writes them into the pages
    python benchmarks/floors.py --scale 0.1             a tenth of the subscriptions; only prints
    python benchmarks/floors.py --only rein --only wide  these rows; only prints

Each line draws a workload, builds `auto` and its peers, and lets them answer the same batch in turns.
The pair counts must agree. The time is CPU time of the process, best of the rounds, ids delivered: on
a machine that others use too, it is what can be repeated. A peer of two threads is charged for both; of
two peers the faster one counts. `boxes-12d` and `rein` stand here with two sizes of batches: `auto` reads
nearly all of its bitsets for each batch, so that an event of a small one costs it more, and the scan the
same. The second table is about `auto` alone: churn, wide among narrow, one event at a time, threads, loading.
Answers are compared there too: an index that was changed with one built from the same subscriptions, a loaded
one with the one that was saved; threads and loading are timed by the wall clock.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numba import njit

import figures
import in_lists
import rangecast as rc
from peers import PEERS, Plain
from rangecast import workloads
from rangecast.papers.measuring import PROCESS, WALL, take_rounds, take_turns, timed

LINES = (
    ("boxes-12d", {}, 1_000_000, 200, "scan", 400),
    ("boxes-12d", {}, 1_000_000, 2_000, "scan", 400),
    ("rein", {}, 1_000_000, 200, "scan", 100),
    ("rein", {}, 1_000_000, 2_000, "scan", 100),
    ("predicates-16", {}, 1_200_000, 1_000, "scan", 500),
    ("equality-led", {}, 1_000_000, 100_000, "duckdb", 25),
    ("intervals", {}, 1_000_000, 1_000, "ncls superintervals", 30),
    ("intervals-wide-domain", {}, 1_000_000, 20_000, "ncls superintervals", 20),
    ("rectangles", {}, 256_000, 2_000, "strtree", 8),
    ("rectangles-wide-domain", {}, 256_000, 20_000, "strtree", 5),
    ("lonlat", {}, 256_000, 20_000, "strtree", 5),
    ("market", {}, 200_000, 5_000, "scan", 60),
    ("wide", {}, 1_000_000, 1_000, "scan", 300),
)


def line(
    name: str, options: dict[str, Any], n: int, m: int, beside: str, aim: float, rounds: int
) -> dict[str, Any]:
    """One workload, as a row of the figures."""
    w = workloads.workload(name, n, m, **options)
    subs, events = w.subscriptions(), w.events()
    index = rc.open_index("auto", w.schema)
    build, _ = timed(index.insert, subs, clock=PROCESS)
    calls: dict[str, Callable[[], Any]] = {"auto": lambda: index.match(events).ids}
    calls |= {peer: contender(peer, w, subs, events) for peer in beside.split()}
    taken = take_turns(calls, rounds, clock=PROCESS, count=len, where=name)
    auto, pairs = taken["auto"].best, taken["auto"].count
    other = min(beside.split(), key=lambda peer: taken[peer].best)
    return {
        "workload": name,
        "subscriptions": n,
        "events": m,
        "pairs_per_event": pairs / m,
        "us_per_event": auto / m * 1e6,
        "bytes": index.stats()["bytes_per_subscription"],
        "build_s": build,
        "beside": other,
        "ratio": taken[other].best / auto,
        "aim": aim,
    }


def contender(
    name: str, w: workloads.Workload, subs: rc.Subscriptions, events: rc.Events
) -> Callable[[], Any]:
    """What answers the batch with the scan or a package, built already."""
    if name == "scan":
        scan = rc.open_index("scan", w.schema)
        scan.insert(subs)
        return lambda: scan.match(events).ids
    peer, plain = PEERS[name], Plain(w, 2)
    built, loaded = peer.build(plain), peer.load(plain, w.n_events)
    return lambda: peer.ids(peer.match(built, loaded))


# `auto` beside itself

CHURNED = (
    ("equality-led", 1_000_000, 20_000),
    ("intervals", 1_000_000, 500),
    ("intervals-wide-domain", 1_000_000, 20_000),
    ("rectangles-wide-domain", 256_000, 20_000),
    ("lonlat", 256_000, 20_000),
    ("boxes-12d", 1_000_000, 200),
)
THREADED = (
    ("boxes-12d", 1_000_000, 10_000),
    ("rein", 1_000_000, 2_000),
    ("predicates-16", 1_200_000, 100_000),
)


def opened(w: workloads.Workload, subs: rc.Subscriptions) -> rc.Index:
    """`auto` with these subscriptions."""
    index = rc.open_index("auto", w.schema)
    index.insert(subs)
    return index


def delivered(index: rc.Index, events: rc.Events, threads: int = 1) -> Any:
    """Match a batch and read all ids."""
    return index.match(events, threads=threads).ids


def check(what: str, ours: rc.Matches, other: rc.Matches) -> None:
    """The run ends where two answers differ."""
    same = np.array_equal(ours.offsets, other.offsets) and int(ours.ids.sum()) == int(other.ids.sum())
    if not same:
        raise SystemExit(f"{what}: answers differ, {ours.n_pairs:,} and {other.n_pairs:,} pairs")


def churn(name: str, n: int, m: int, turns: int) -> str:
    """One in a hundred replaced between batches: speed beside an index that nobody changes."""
    w = workloads.workload(name, n, m)
    subs, events = w.subscriptions(), w.events()
    still, changed = opened(w, subs), opened(w, subs)
    rng = np.random.default_rng(5)
    for index in (still, changed):
        index.match(events).ids  # noqa: B018
    seconds, pairs, write_s = [0.0, 0.0], [0, 0], 0.0
    for turn in range(turns + 1):
        chosen = np.sort(rng.choice(n, max(1, n // 100), replace=False))
        drawn = rng.choice(n, len(chosen), replace=False)
        fresh = rc.Subscriptions(w.schema, subs.ids.select(chosen), subs.lows[:, drawn], subs.highs[:, drawn])
        took, _ = timed(changed.insert, fresh, clock=PROCESS)
        write_s += took if turn else 0.0
        for _ in range(2):
            for side, index in enumerate((still, changed)):
                took, found = timed(delivered, index, events, clock=PROCESS)
                if turn:
                    # before the first, kernels of several parts may have to be compiled
                    seconds[side] += took
                    pairs[side] += len(found)
    again = opened(w, changed.subscriptions())
    check(f"{name} after churn", changed.match(events), again.match(events))
    # churned subscriptions match more or fewer events than before, so what counts is time per pair
    ratio = (seconds[0] / pairs[0]) / (seconds[1] / pairs[1])
    return (
        f"| `{name}`, {n:,}: speed after each of {turns} changes of 1 %, beside no change "
        f"(a change takes {write_s / turns:.2f} s) | {ratio:.2f} | 0.8 |"
    )


def mixed_widths(n: int, rounds: int) -> str:
    """One subscription in a hundred over half the domain: time per pair beside the same set without."""
    costs = []
    for wide in (0.0, 0.01):
        w = workloads.workload("mixed-widths", n, 1_000, wide=wide)
        index, events = opened(w, w.subscriptions()), w.events()
        pairs = len(index.match(events).ids)
        taken = take_rounds(
            partial(delivered, index, events), rounds, clock=PROCESS, count=len, expected=pairs
        )
        costs.append(taken.best / pairs)
    return (
        f"| `mixed-widths`, {n:,}: time per pair with 1 % over half the domain, beside none "
        f"| {costs[1] / costs[0]:.2f} | at most 1.5 |"
    )


def one_event(n: int) -> str:
    """Events one at a time."""
    w = workloads.workload("equality-led", n, 2_000)
    index = opened(w, w.subscriptions())
    events = [w.events(k, k + 1) for k in range(w.n_events)]
    for event in events[:200]:
        index.match(event).ids  # noqa: B018

    def one_by_one() -> None:
        for event in events:
            index.match(event).ids  # noqa: B018

    each = timed(one_by_one, clock=PROCESS)[0] / len(events)
    return (
        f"| `equality-led`, {n:,}: one event at a time, microseconds per call | {each * 1e6:.1f} | under 20 |"
    )


def two_threads(name: str, n: int, m: int, rounds: int) -> str:
    """Two threads beside one, by the wall clock."""
    w = workloads.workload(name, n, m)
    index, events = opened(w, w.subscriptions()), w.events()
    check(name, index.match(events, threads=2), index.match(events))
    calls = {k: partial(delivered, index, events, threads=k) for k in (1, 2)}
    taken = take_turns(calls, 4 * rounds, clock=WALL, count=len, where=name)
    ratio = taken[1].best / taken[2].best
    return f"| `{name}`, {n:,}: two threads beside one, {m:,} events | {ratio:.2f} | 1.7 |"


@njit(nogil=True)
def _multiply(n: int) -> Any:
    """A chain of multiplications, each of which waits for the one before."""
    x, y = np.uint64(1), np.uint64(2)
    for _ in range(n):
        x = x * np.uint64(6364136223846793005) + y
        y ^= x >> np.uint64(7)
    return y


@njit(nogil=True)
def _add(n: int) -> Any:
    """Additions that do not wait for each other: what one core does at a time is all in use."""
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    for i in range(np.uint64(n)):
        a += i ^ b
        b ^= c + i
        c += d ^ i
        d ^= a + i
    return a + b + c + d


@njit(nogil=True)
def _read(words: Any) -> Any:
    """A loop that does nothing but read memory."""
    total = np.uint64(0)
    for word in words:
        total += word
    return total


def machine(rounds: int) -> Iterator[str]:
    """What a second thread brings on this machine where nothing is shared but memory."""
    halves = [np.ones(1 << 24, np.uint64) for _ in range(2)]
    _multiply(1), _add(1), _read(halves[0][:1])
    with ThreadPoolExecutor(2) as pool:
        for what, call, each in (
            ("multiplies in a chain", _multiply, [20_000_000] * 2),
            ("adds as fast as it can", _add, [50_000_000] * 2),
            ("reads 128 MB only", _read, halves),
        ):
            calls = {
                1: lambda call=call, each=each: list(map(call, each)),
                2: lambda call=call, each=each: list(pool.map(call, each)),
            }
            taken = take_turns(calls, 2 * rounds, clock=WALL)
            ratio = taken[1].best / taken[2].best
            yield f"| control, a loop that {what}: two threads beside one | {ratio:.2f} | |"


def load_saved(n: int) -> str:
    """A saved index, until its first answer."""
    w = workloads.workload("equality-led", n, 1_000)
    index, events = opened(w, w.subscriptions()), w.events()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.index"
        size = index.save(path)
        took, loaded = timed(rc.load_index, path, clock=WALL)
        check("loaded", loaded.match(events), index.match(events))
    return (
        f"| `equality-led`, {n:,}: seconds to load a saved index of {size / 1e6:,.0f} MB, all sums checked "
        f"| {took:.2f} | well under 1 |"
    )


def in_lists_rows(n: int, rounds: int) -> Iterator[str]:
    """Subscriptions with IN lists of 5,000 values (in_lists.py)."""
    row = in_lists.measure(n, 5_000, rounds, False, False)
    what = f"in-lists, {n:,} of 5,000 values"
    yield f"| {what}: seconds to load them from arrays | {row['load_s']:.1f} | under 5 |"
    yield f"| {what}: bytes per value | {row['bytes_per_value']:.1f} | at most 12 |"
    ratio = row["us_per_event"] / row["equality_us"]
    yield f"| {what}: an event beside one of an equality with as many matches | {ratio:.2f} | |"


def alone_lines(scale: float, rounds: int) -> Iterator[str]:
    """The rows of the second table."""
    sized: Callable[[int], int] = lambda n: max(int(n * scale), 1_000)  # noqa: E731
    for name, n, m in CHURNED:
        yield churn(name, sized(n), m, 8)
    yield mixed_widths(sized(1_000_000), rounds)
    yield one_event(sized(100_000))
    for name, n, m in THREADED:
        yield two_threads(name, sized(n), m, rounds)
    yield from machine(rounds)
    yield load_saved(sized(1_000_000))
    yield from in_lists_rows(sized(20_000), rounds)


def run(
    scale: Annotated[float, typer.Option(help="Share of the subscriptions.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 5,
    only: Annotated[list[str] | None, typer.Option(help="Only the rows of these workloads.")] = None,
) -> None:
    """Measure `auto` beside its peers; a whole run at full size is kept and shown on the pages."""
    unknown = set(only or ()) - {name for name, *_ in LINES}
    if unknown:
        raise typer.BadParameter(f"no such row: {', '.join(sorted(unknown))}", param_hint="--only")
    beside: list[dict[str, Any]] = []
    for name, options, n, m, peers, aim in LINES:
        if not only or name in only:
            beside.append(line(name, options, max(int(n * scale), 1_000), m, peers, aim, rounds))
            print(said(beside[-1]), flush=True)
    if only:
        return
    alone: list[dict[str, Any]] = []
    for row in alone_lines(scale, rounds):
        alone.append(
            dict(
                zip(
                    ("what", "figure", "aim"),
                    (cell.strip() for cell in row.strip("|").split("|")),
                    strict=True,
                )
            )
        )
        print(row, flush=True)
    if scale == 1:
        figures.save("floors", "python benchmarks/floors.py", beside=beside, alone=alone)
        figures.write_pages()


def said(row: dict[str, Any]) -> str:
    """A row for whoever waits."""
    return (
        f"{row['workload']}: {row['subscriptions']:,} subscriptions, batches of {row['events']:,}, "
        f"{row['us_per_event']:,.2f} us per event, "
        f"{row['bytes']:,.0f} bytes per subscription, built in {row['build_s']:.1f} s, "
        f"{row['ratio']:,.1f} times faster than {row['beside']} (aim {row['aim']:,})"
    )


if __name__ == "__main__":
    typer.run(run)
