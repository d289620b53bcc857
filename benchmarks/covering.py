"""Who covers this subscription? The exact search beside a compiled scan and the paper's search, in one run.

    python benchmarks/covering.py            # a million subscriptions
    python benchmarks/covering.py --quick    # a tenth of it
    python benchmarks/covering.py --quick --page docs/covering.md    # and into the page, between its marks

Each set is asked for the covers of subscriptions drawn like its own. All searches must find the same
number of covered ones, except those by the curve with epsilon > 0, which may find fewer and must find no
others. The curve answers a search of at most 1,024 cubes and leaves the others to the exact search: the
table says how many those were. Contenders take turns and the best round counts; times are processor time
of the calling thread, since the machine may be shared. Then `reduce`, over the whole set.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import figures
import rangecast as rc
from rangecast.covering import kernels as dominance
from rangecast.covering.searches import seek_covers, stored_boxes
from rangecast.papers.measuring import THREAD, take_rounds, timed
from tables import put_between

console = Console(width=120)
SPAN = 1 << 16
ROUNDS = 3
COLUMNS = (
    *("boxes", "attributes", "covered", "scan", "blocks", "scan / blocks"),
    *("eps 0.5", "found", "eps 0.2", "found", "bytes each", "reduce, s", "kept"),
)


def boxes(kind: str, n_attributes: int, n: int, seed: int) -> rc.Subscriptions:
    """Boxes of one kind: `narrow` (up to 1 % a side), `skewed` (every size), `any` (two random ends)."""
    rng = np.random.default_rng(seed)
    shape = (n_attributes, n)
    if kind == "narrow":
        lows = rng.integers(0, SPAN - SPAN // 100, shape)
        highs = lows + rng.integers(0, SPAN // 100, shape)
    elif kind == "skewed":
        widths = np.exp(rng.uniform(0, np.log(SPAN / 4), shape)).astype(np.int64)
        lows = (rng.random(shape) * (SPAN - widths)).astype(np.int64)
        highs = lows + widths
    else:
        lows, highs = np.sort(rng.integers(0, SPAN, (2, *shape)), axis=0)
    schema = rc.Schema(*(rc.Int(f"a{j}", 0, SPAN - 1) for j in range(n_attributes)))
    return rc.Subscriptions(schema, np.arange(n) + seed * n, lows, highs)


def scan(index: rc.CoverIndex, asked: rc.Subscriptions) -> np.ndarray:
    """The same question, by looking at every stored box in turn."""
    catalog = index._catalog
    sought = seek_covers(asked, catalog.find(asked.ids))
    out = np.full(len(asked), -1, np.int32)
    rows, counts = np.arange(len(asked)), np.zeros(4, np.int64)
    dominance.search_tail(stored_boxes(catalog), 0, catalog.n_boxes, sought, rows, out, counts)
    return out >= 0


def best(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of a call, the best of a few, and its answer, as the rounds agree on it."""
    rounds = take_rounds(call, ROUNDS, clock=THREAD, count=np.ndarray.tobytes)
    return rounds.best, np.frombuffer(rounds.count, bool)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the size.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write the table between the marks of this page.")] = None,
) -> None:
    """Compare searches for covers."""
    n = 100_000 if quick else 1_000_000
    table = Table(
        title=f"Microseconds a subscription, {n:,} stored (eps: the curve, and how many it answered)"
    )
    for column in COLUMNS:
        table.add_column(column, justify="right")
    rows = []
    for kind, d in (("narrow", 2), ("skewed", 2), ("any", 2), ("skewed", 4), ("any", 4), ("any", 8)):
        warm = rc.CoverIndex(boxes(kind, d, 10, 0).schema)
        warm.insert(boxes(kind, d, 2_000, 0))
        for epsilon in (0.0, 0.5):
            warm.covers(boxes(kind, d, 10, 1), epsilon)
        subs = boxes(kind, d, n, 0)
        index = rc.CoverIndex(subs.schema)
        index.insert(subs)
        many = rc.Subscriptions(subs.schema, np.arange(20_000) - 20_000, *_bounds(kind, d, 20_000))
        few = many.select(np.arange(200))
        index.covers(few)
        exact, covered = best(lambda index=index, many=many: index.covered(many))
        scanned, truth = best(lambda index=index, few=few: scan(index, few))
        assert np.array_equal(truth, covered[:200]), "the exact search must agree with the scan"
        each = index.stats()["bytes_per_subscription"]
        cells = []
        for epsilon in (0.5, 0.2):
            index.covers(few.select([0]), epsilon)
            taken, got = best(lambda index=index, few=few, e=epsilon: index.covered(few, e))
            assert not (got & ~truth).any(), "a cover was invented"
            answered = 200 - index.stats().get("last_exact", 0)
            cells += [f"{5e3 * taken:,.0f} ({answered / 200:.0%})", f"{got.sum() / max(1, truth.sum()):.0%}"]
        seconds, reduction = timed(rc.covering.reduce, subs, clock=THREAD)
        us = 1e6 * exact / len(many)
        scan_us = 5e3 * scanned
        rows.append(
            [
                *(
                    kind,
                    str(d),
                    f"{covered.mean():.1%}",
                    f"{scan_us:,.0f}",
                    f"{us:.2f}",
                    f"{scan_us / us:,.0f}",
                ),
                *(*cells, f"{each:.0f}", f"{seconds:.1f}", f"{len(reduction.kept):,}"),
            ]
        )
        table.add_row(*rows[-1])
        console.print(f"{kind}, {d} attributes: done")
    console.print(table)
    if page is not None:
        text = figures.table(" | ".join(COLUMNS), "l" + "r" * (len(COLUMNS) - 1), rows)
        put_between(page, "searches", "covering.py", text)


def _bounds(kind: str, d: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    drawn = boxes(kind, d, n, 1)
    return drawn.lows, drawn.highs


if __name__ == "__main__":
    typer.run(main)
