"""What `auto` must show beside the scan and the packages, one workload after the other, in one run.

    python benchmarks/floors.py                         keeps the figures, and writes them into the pages
    python benchmarks/floors.py --scale 0.1             a tenth of the subscriptions; only prints
    python benchmarks/floors.py --only rein --only wide  these rows; only prints

Each line draws a workload, builds `auto` and its peers, and lets them answer the same batch in turns.
The pair counts must agree. The time is CPU time of the process, best of the rounds, ids delivered: on
a machine that others use too, it is what can be repeated. A peer of two threads is charged for both; of
two peers the faster one counts. `boxes-12d` and `rein` stand here with two sizes of batches: `auto` reads
nearly all of its bitsets for each batch, so that an event of a small one costs it more, and the scan the
same. The second table is about `auto` alone: churn, wide among narrow, one event at a time, threads, loading
(floors_alone.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

import figures
import floors_alone
import rangecast as rc
from peers import PEERS, Plain
from rangecast import workloads
from rangecast.papers.measuring import PROCESS, take_turns, timed

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
    for row in floors_alone.lines(scale, rounds):
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
