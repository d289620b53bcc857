"""What `auto` must show beside the scan and the packages, one workload after the other, in one run.

    python benchmarks/floors.py                        writes docs/performance.md
    python benchmarks/floors.py --scale 0.1 --out x.md  a tenth of the subscriptions
    python benchmarks/floors.py --only rein --only wide  these rows, and no page

Each line draws a workload, builds `auto` and its peers, and lets them answer the same batch in turns.
The pair counts must agree. The time is CPU time of the process, best of the rounds, ids delivered: on
a machine that others use too, it is what can be repeated. A peer of two threads is charged for both; of
two peers the faster one counts. The second table is about `auto` alone: churn, wide among narrow, one
event at a time, threads, loading (floors_alone.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import floors_alone
import rangecast as rc
from peers import PEERS, Plain
from rangecast import workloads
from rangecast.papers.measuring import PROCESS, take_turns, timed

LINES = (
    ("boxes-12d", {}, 1_000_000, 200, "scan", 100),
    ("rein", {}, 1_000_000, 200, "scan", 30),
    ("predicates-16", {}, 1_200_000, 1_000, "scan", 500),
    ("equality-led", {}, 1_000_000, 100_000, "duckdb", 10),
    ("intervals", {}, 1_000_000, 1_000, "ncls superintervals", 30),
    ("intervals-wide-domain", {}, 1_000_000, 20_000, "ncls superintervals", 20),
    ("rectangles", {}, 256_000, 2_000, "strtree", 8),
    ("rectangles-wide-domain", {}, 256_000, 20_000, "strtree", 5),
    ("lonlat", {}, 256_000, 20_000, "strtree", 5),
    ("market", {}, 200_000, 5_000, "scan", 60),
    ("wide", {}, 1_000_000, 1_000, "scan", 300),
)
COLUMNS = (
    "workload", "subscriptions", "events", "pairs/event", "us/event", "M pairs/s", "bytes/subscription",
    "build s", "beside", "ratio", "aim",
)  # fmt: skip
HEAD = """# Performance

`auto` beside the compiled scan or a package that does the same job, in one run, on a machine in use. Made by
`python benchmarks/floors.py{arguments}`; times are CPU time, best of {rounds} rounds, with all ids
delivered and pair counts compared; DuckDB has two threads and is
charged for both; of two packages the faster one is named. `aim` is
the ratio that the project wants at the full sizes.

"""
TAIL = """
## Beside native code

`python benchmarks/native.py` builds crates of Rust (superintervals, coitrees, geo-index, rstar) and Boost's
packed R-tree and measures them in the same process as `auto`, `cells` and the papers' indexes: intervals on
large and small domains with 10 to 20,000 matches per event, and small and skewed rectangles. It prints, for
each contender, processor time per event, the time to build and bytes per subscription, and ends if any pair
differs. Where a native contender is faster, or smaller, its row says so.

Every index and package on every workload is in [performance-all.md](performance-all.md), with the places
where `auto`
is not the best; how to run it yourself in [benchmarks.md](benchmarks.md).
"""


def line(name: str, options: dict[str, Any], n: int, m: int, beside: str, aim: float, rounds: int) -> str:
    """One workload as a row of the table."""
    w = workloads.workload(name, n, m, **options)
    subs, events = w.subscriptions(), w.events()
    index = rc.open_index("auto", w.schema)
    build, _ = timed(index.insert, subs, clock=PROCESS)
    calls: dict[str, Callable[[], Any]] = {"auto": lambda: index.match(events).ids}
    calls |= {peer: contender(peer, w, subs, events) for peer in beside.split()}
    taken = take_turns(calls, rounds, clock=PROCESS, count=len, where=name)
    auto, pairs = taken["auto"].best, taken["auto"].count
    other = min(beside.split(), key=lambda peer: taken[peer].best)
    size = index.stats()["bytes_per_subscription"]
    return (
        f"| `{name}` | {n:,} | {m:,} | {pairs / m:,.1f} | {auto / m * 1e6:,.2f} | "
        f"{pairs / auto / 1e6:,.1f} | {size:,.0f} | {build:.1f} | {other} | "
        f"{taken[other].best / auto:,.1f} | {aim:,} |"
    )


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
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path(__file__).parent.parent
    / "docs/performance.md",
    scale: Annotated[float, typer.Option(help="Share of the subscriptions.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 5,
    only: Annotated[
        list[str] | None, typer.Option(help="Print the rows of these workloads, and write no page.")
    ] = None,
) -> None:
    """Measure `auto` beside its peers and write the page."""
    unknown = set(only or ()) - {name for name, *_ in LINES}
    if unknown:
        raise typer.BadParameter(f"no such row: {', '.join(sorted(unknown))}", param_hint="--only")
    table = f"| {' | '.join(COLUMNS)} |\n|---{'|--:' * 7}|---|--:|--:|\n"
    arguments = "" if scale == 1 else f" --scale {scale}"
    rows: list[str] = []
    more: list[str] = []

    def write() -> None:
        page = HEAD.format(arguments=arguments, rounds=rounds) + table + "\n".join(rows) + "\n"
        if more:
            page += floors_alone.HEAD + "\n".join(more) + "\n"
        out.write_text(page + TAIL)

    for name, options, n, m, beside, aim in LINES:
        if only and name not in only:
            continue
        rows.append(line(name, options, max(int(n * scale), 1_000), m, beside, aim, rounds))
        print(rows[-1], flush=True)
        if not only:
            write()
    if only:
        return
    for row in floors_alone.lines(scale, rounds):
        more.append(row)
        print(row, flush=True)
        write()


if __name__ == "__main__":
    typer.run(run)
