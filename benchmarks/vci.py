"""Construct intervals beside two packages and the paper's own look-up, in one run on one core.

    python benchmarks/vci.py            # a million intervals on 5,000 and on 250,000 values
    python benchmarks/vci.py --quick    # a tenth of it

What is timed is a number of events until all ids are there: `m.ids` for us, the packages' own answer for
them; in small batches, whose answers of some megabytes fit the memory of the batch before, and in one
large batch, whose answer of hundreds of megabytes is fresh memory that the system must clear first.
Contenders take turns on one thread, the best round counts, and all must find as many pairs with the same
sum of ids. Seconds are those of the processor (the process's own and the system's for it), so that what
others run on the same machine is not counted, though they still take cache and memory from all of us.
Then writes: a tenth of the subscriptions is deleted and as many come anew, in bulk, and the batches are
matched again. Every ratio that we claim is printed with the bound it has to reach and a verdict; the exit
code is 1 only when answers differ, since on a busy machine a ratio may fail for other reasons.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import rangecast as rc
from peers import PEERS, Peer, Plain
from rangecast import workloads
from rangecast.papers.measuring import PROCESS, take_turns, timed

console = Console(width=120)
PEER_NAMES = ("ncls", "superintervals")
OURS = {"runs": {}, "table": {"lookup": "table", "L": 128}}
# workload, events, batches that they come in, claim beside the best package
SIZES = (("intervals", 1_000, (10, 1), 20.0), ("intervals-wide-domain", 20_000, (10, 1), 6.0))


used = partial(timed, clock=PROCESS, pause_collector=True)
"""Seconds of the processor for a call and its answer, with the garbage collector out of the way."""
in_turns = partial(take_turns, clock=PROCESS, pause_collector=True)


def warm(schema: rc.Schema, subs: rc.Subscriptions, events: rc.Events, options: dict[str, Any]) -> None:
    """Compile every kernel that will be timed."""
    index = rc.open_index("vci", schema, **options)
    few = subs.select(np.arange(2_000))
    index.insert(few)
    index.match(events).ids  # noqa: B018
    index.delete(few.ids.values[:900])
    index.insert(few.select(np.arange(900)))


def delivered(index: rc.Index, batches: list[rc.Events]) -> tuple[int, int]:
    """Match batch after batch with all ids: how many, and the first of each batch's in sum."""
    pairs = first = 0
    for events in batches:
        ids = index.match(events).ids
        pairs += len(ids)
        first += int(ids[0])
    return pairs, first


def pairs_in(answer: tuple[int, int] | None) -> int | None:
    """The pairs of an answer of ours; packages are compared before, in check_answers."""
    return None if answer is None else answer[0]


def found_by(peer: Peer, built: Any, batches: list[Any]) -> None:
    """Match batch after batch with a package."""
    for events in batches:
        peer.match(built, events)


def cut(w: workloads.Workload, parts: int) -> list[workloads.Workload]:
    """The same subscriptions with a part of the events each."""
    step = w.n_events // parts
    return [
        replace(w, columns={name: column[i * step : (i + 1) * step] for name, column in w.columns.items()})
        for i in range(parts)
    ]


def verdict(what: str, ratio: float, bound: float) -> None:
    """One claim."""
    said = "[green]holds[/]" if ratio >= bound else "[red]does not hold[/]"
    console.print(f"{what}: {ratio:.2f} (at least {bound:g}) {said}")


def compare(name: str, n: int, k: int, parts: tuple[int, ...], claim: float, repeat: int) -> None:
    """One workload: all contenders built once, then matched in turns for each size of batches."""
    w = workloads.workload(name, n, k)
    subs, events, plain = w.subscriptions(), w.events(), Plain(w, 1)
    built: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    for label, options in OURS.items():
        warm(w.schema, subs, events, options)
        built[label] = rc.open_index("vci", w.schema, **options)
        seconds, _ = used(built[label].insert, subs)
        stats = built[label].stats()
        own = (stats["bytes"] - stats["catalog_bytes"]) / n
        rows[label] = {"build": seconds, "bytes": stats["bytes_per_subscription"], "own": own}
    for label in PEER_NAMES:
        seconds, built[label] = used(PEERS[label].build, plain)
        rows[label] = {"build": seconds}
    pairs = check_answers(w, built, plain, min(k, 200))
    for part in parts:
        match_in_turns(w, built, rows, part, repeat)
        table = Table(
            title=f"{name}: {n:,} subscriptions, {k:,} events in {part} batches, all ids delivered",
            title_justify="left",
        )
        table.add_column("index or peer")
        for heading in ("build s", "us/event", "M pairs/s", "runs is faster by", "bytes/sub", "of them ours"):
            table.add_column(heading, justify="right")
        ours = rows["runs"]["match"]
        for label, row in sorted(rows.items(), key=lambda item: item[1]["match"]):
            table.add_row(
                label if label in PEERS else f"vci {label}",
                f"{row['build']:.3f}",
                f"{row['match'] / k * 1e6:,.2f}",
                f"{rows['runs']['pairs'] / row['match'] / 1e6:,.1f}",
                f"{row['match'] / ours:,.1f}",
                f"{row['bytes']:,.1f}" if "bytes" in row else "",
                f"{row['own']:,.1f}" if "own" in row else "",
            )
        console.print(table)
        best = min(rows[label]["match"] for label in PEER_NAMES)
        verdict(f"{name}, {part} batches: runs beside the faster package", best / ours, claim)
        verdict(
            f"{name}, {part} batches: runs beside the paper's look-up", rows["table"]["match"] / ours, 5.0
        )
    console.print(
        f"{name}: all agree on {pairs:,} pairs of the first {min(k, 200)} events, and on the sum of ids"
    )
    writes(w, subs, rows["runs"]["pairs"], repeat)


def check_answers(w: workloads.Workload, built: dict[str, Any], plain: Plain, k: int) -> int:
    """All contenders give as many pairs, with the same sum of ids; else the run ends."""
    answers: dict[str, tuple[int, int]] = {}
    for label, structure in built.items():
        if label in PEERS:
            peer = PEERS[label]
            ids = peer.ids(peer.match(structure, peer.load(plain, k)))
        else:
            ids = structure.match(w.events(0, k)).ids
        answers[label] = len(ids), int(ids.sum())
    if len(set(answers.values())) != 1:
        print(f"{w.name}: answers differ: {answers}", file=sys.stderr)
        raise typer.Exit(1)
    return answers["runs"][0]


def match_in_turns(
    w: workloads.Workload, built: dict[str, Any], rows: dict[str, dict[str, Any]], parts: int, repeat: int
) -> None:
    """The best of some rounds for each contender, into its row; ours must agree in every round."""
    pieces = cut(w, parts)
    batches = [piece.events() for piece in pieces]
    plains = [Plain(piece, 1) for piece in pieces]
    loaded = {
        label: [PEERS[label].load(plain, plain.workload.n_events) for plain in plains] for label in PEER_NAMES
    }
    calls: dict[str, Callable[[], Any]] = {
        label: partial(found_by, PEERS[label], structure, loaded[label])
        if label in PEERS
        else partial(delivered, structure, batches)
        for label, structure in built.items()
    }
    taken = in_turns(calls, repeat, count=pairs_in, where=w.name)
    for label, rounds in taken.items():
        rows[label]["match"] = rounds.best
    rows["runs"]["pairs"] = taken["runs"].count


def writes(w: workloads.Workload, subs: rc.Subscriptions, pairs: int, repeat: int) -> None:
    """A tenth of the subscriptions goes and comes back, in bulk; matching before and after in turns."""
    still, churned = (rc.open_index("vci", w.schema) for _ in range(2))
    still.insert(subs)
    churned.insert(subs)
    n = len(subs)
    chosen = np.random.default_rng(1).choice(n, n // 10, replace=False)
    back = subs.select(np.sort(chosen))
    delete_s, unknown = used(churned.delete, subs.ids.values[chosen])
    insert_s, _ = used(churned.insert, back)
    assert not unknown
    console.print(
        f"{w.name}: {len(back):,} deletes in {delete_s:.3f} s, as many inserts in {insert_s:.3f} s, in bulk"
    )
    batches = [piece.events() for piece in cut(w, 10)]
    calls = {"still": partial(delivered, still, batches), "churned": partial(delivered, churned, batches)}
    taken = in_turns(calls, repeat, count=pairs_in, expected=pairs, where=w.name)
    console.print(f"{w.name}: parts after the writes: {churned.stats()['parts']}")
    verdict(
        f"{w.name}: matching after 10 % churn beside a static index",
        taken["still"].best / taken["churned"].best,
        0.8,
    )
    console.print()


def main(
    quick: Annotated[bool, typer.Option(help="A tenth of the subscriptions and events.")] = False,
    repeat: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 7,
) -> None:
    """Measure vci's runs beside ncls, superintervals and the paper's distance table."""
    for name, k, parts, claim in SIZES:
        n = 100_000 if quick else 1_000_000
        compare(name, n, k // 10 if quick else k, parts, claim, repeat)


if __name__ == "__main__":
    typer.run(main)
