"""Construct intervals beside two packages and the paper's own look-up, in one run on one core.

    python benchmarks/vci.py            # a million intervals on 5,000 and on 250,000 values
    python benchmarks/vci.py --quick    # a tenth of it

What is timed is a batch of events until all ids are there: `m.ids` for us, the packages' own answer for
them. Contenders take turns, the best round counts, and all must find as many pairs with the same sum of
ids. Then writes: a tenth of the subscriptions is deleted and as many come anew, in bulk, and the batch is
matched again. Every ratio that we claim is printed with the bound it has to reach and a verdict; the exit
code is 1 only when answers differ, since on a busy machine a ratio may fail for other reasons.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import rangecast as rc
from peers import PEERS, Plain
from rangecast import workloads

console = Console(width=120)
PEER_NAMES = ("ncls", "superintervals")
OURS = {"runs": {}, "table": {"lookup": "table", "L": 128}}
# workload, events a batch, claim beside the best package
SIZES = (("intervals", 1_000, 20.0), ("intervals-wide-domain", 20_000, 6.0))


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call and its answer, with the garbage collector out of the way."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        answer = call()
        return time.perf_counter() - start, answer
    finally:
        gc.enable()


def warm(schema: rc.Schema, subs: rc.Subscriptions, events: rc.Events, options: dict[str, Any]) -> None:
    """Compile every kernel that will be timed."""
    index = rc.open_index("vci", schema, **options)
    few = subs.select(np.arange(2_000))
    index.insert(few)
    index.match(events).ids  # noqa: B018
    index.delete(few.ids.values[:900])
    index.insert(few.select(np.arange(900)))


def delivered(index: rc.Index, events: rc.Events) -> np.ndarray:
    """The ids of all matches of a batch."""
    return index.match(events).ids


def verdict(what: str, ratio: float, bound: float) -> None:
    """One claim."""
    said = "[green]holds[/]" if ratio >= bound else "[red]does not hold[/]"
    console.print(f"{what}: {ratio:.2f} (at least {bound:g}) {said}")


def compare(name: str, n: int, k: int, claim: float, repeat: int) -> None:
    """One workload: all contenders in turns."""
    w = workloads.workload(name, n, k)
    subs, events, plain = w.subscriptions(), w.events(), Plain(w, 1)
    calls: dict[str, Callable[[], Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    for label, options in OURS.items():
        warm(w.schema, subs, events, options)
        index = rc.open_index("vci", w.schema, **options)
        seconds, _ = timed(lambda index=index: index.insert(subs))
        stats = index.stats()
        rows[label] = {
            "build": seconds,
            "bytes": stats["bytes_per_subscription"],
            "own": (stats["bytes"] - stats["catalog_bytes"]) / n,
        }
        calls[label] = lambda index=index: delivered(index, events)
    for label in PEER_NAMES:
        peer = PEERS[label]
        seconds, built = timed(lambda peer=peer: peer.build(plain))
        rows[label] = {"build": seconds}
        loaded = peer.load(plain, k)
        calls[label] = lambda peer=peer, built=built, loaded=loaded: peer.match(built, loaded)
    answers: dict[str, tuple[int, int]] = {}
    for _ in range(repeat):
        for label, call in calls.items():
            seconds, answer = timed(call)
            rows[label]["match"] = min(seconds, rows[label].get("match", np.inf))
            if label not in answers:
                ids = PEERS[label].ids(answer) if label in PEERS else answer
                answers[label] = len(ids), int(ids.sum())
            del answer
    if len(set(answers.values())) != 1:
        print(f"{name}: answers differ: {answers}", file=sys.stderr)
        raise typer.Exit(1)
    pairs = answers["runs"][0]
    ours = rows["runs"]["match"]
    table = Table(
        title=f"{name}: {n:,} subscriptions, {k:,} events, {pairs:,} pairs, all ids delivered",
        title_justify="left",
    )
    table.add_column("index or peer")
    for heading in ("build s", "us/event", "M pairs/s", "runs is faster by", "bytes/sub", "without catalog"):
        table.add_column(heading, justify="right")
    for label, row in sorted(rows.items(), key=lambda item: item[1]["match"]):
        table.add_row(
            label if label in PEERS else f"vci {label}",
            f"{row['build']:.3f}",
            f"{row['match'] / k * 1e6:,.2f}",
            f"{pairs / row['match'] / 1e6:,.1f}",
            f"{row['match'] / ours:,.1f}",
            f"{row['bytes']:,.1f}" if "bytes" in row else "",
            f"{row['own']:,.1f}" if "own" in row else "",
        )
    console.print(table)
    best = min(rows[label]["match"] for label in PEER_NAMES)
    verdict(f"{name}: runs beside the faster package", best / ours, claim)
    verdict(f"{name}: runs beside the paper's best look-up", rows["table"]["match"] / ours, 5.0)
    writes(w, subs, events, pairs, repeat)


def writes(w: workloads.Workload, subs: rc.Subscriptions, events: rc.Events, pairs: int, repeat: int) -> None:
    """A tenth of the subscriptions goes and comes back, in bulk; matching before and after in turns."""
    still, churned = (rc.open_index("vci", w.schema) for _ in range(2))
    still.insert(subs)
    churned.insert(subs)
    n = len(subs)
    chosen = np.random.default_rng(1).choice(n, n // 10, replace=False)
    back = subs.select(np.sort(chosen))
    delete_s, unknown = timed(lambda: churned.delete(subs.ids.values[chosen]))
    insert_s, _ = timed(lambda: churned.insert(back))
    assert not unknown
    console.print(
        f"{w.name}: {len(back):,} deletes in {delete_s:.3f} s, as many inserts in {insert_s:.3f} s, in bulk"
    )
    best = [np.inf, np.inf]
    for _ in range(repeat):
        for side, index in enumerate((still, churned)):
            seconds, ids = timed(lambda index=index: delivered(index, events))
            best[side] = min(best[side], seconds)
            if len(ids) != pairs:
                print(f"{w.name}: {len(ids):,} pairs after writes, {pairs:,} before", file=sys.stderr)
                raise typer.Exit(1)
            del ids
    console.print(f"{w.name}: parts after the writes: {churned.stats()['parts']}")
    verdict(f"{w.name}: matching after 10 % churn beside a static index", best[0] / best[1], 0.8)
    console.print()


def main(
    quick: Annotated[bool, typer.Option(help="A tenth of the subscriptions and events.")] = False,
    repeat: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 7,
) -> None:
    """Measure vci's runs beside ncls, superintervals and the paper's distance table."""
    for name, k, claim in SIZES:
        n = 100_000 if quick else 1_000_000
        compare(name, n, k // 10 if quick else k, claim, repeat)


if __name__ == "__main__":
    typer.run(main)
