"""Long IN lists: loading them from arrays and from texts, their memory, and an event beside an equality.

    python benchmarks/in_lists.py                        20,000 lists of 5,000 values, from arrays
    python benchmarks/in_lists.py --lists 2000 --texts   fewer of them, from texts as well

Values are whole numbers below a million, or as many strings with --strings. Each list is drawn by itself, so
that all values are asked for about equally often. Beside the lists stand subscriptions that ask for one value
each, as many per value as lists hold it on average, two million of them.

The answers are checked: how many pairs a batch has is counted from the lists that were drawn, and the rows
of some events are searched for in every list. Times are processor time of the process; that of a batch is
the best of the rounds, ids delivered. The time of loading includes memory that is touched for the first time.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import rangecast as rc
from rangecast.language.kernels import SET
from rangecast.model.boxes import SparseBoxes
from rangecast.papers.measuring import PROCESS, take_turns, timed

VALUES = 1_000_000
EVENTS = 20_000
SINGLE = 2_000_000
LOOKED_AT = 40
Values = npt.NDArray[np.int64]


def draw(rng: np.random.Generator, n: int, size: int) -> Values:
    """Lists of ascending values with gaps between them, a row each; some end a little past the last value."""
    gaps = rng.integers(2, 2 * (VALUES // size) - 12, (n, size), dtype=np.int32)
    return gaps.cumsum(axis=1, dtype=np.int64)


def from_arrays(schema: rc.Schema, lists: Values) -> rc.Subscriptions:
    """A subscription for each list."""
    n, size = lists.shape
    attributes = np.full(n, schema.position("product") | SET, np.int32)
    # the codes of strings count up as well, from another number on
    first = int(schema["product"].encode(["p0"])[0][0]) if schema["product"].kind == "category" else 0
    codes = lists + first if first else lists
    spans = codes.reshape(-1)
    boxes = SparseBoxes(
        np.arange(n, dtype=np.int32), np.arange(n + 1), attributes, codes[:, 0].copy(), codes[:, -1].copy(),
        np.arange(n), np.arange(0, n * size + 1, size), spans, spans,
    )  # fmt: skip
    return rc.Subscriptions.of_boxes(schema, np.arange(n), boxes)


def schema_of(strings: bool) -> rc.Schema:
    """One attribute, of whole numbers or of strings whose codes are known."""
    schema = rc.Schema(rc.Category("product") if strings else rc.Int("product"))
    if strings:
        schema["product"].encode([f"p{i}" for i in range(VALUES)], grow=True)
    return schema


def check(what: str, matches: rc.Matches, lists: Values, asked: Values) -> None:
    """Stop unless the index found what the lists say."""
    counts = np.bincount(lists.reshape(-1), minlength=VALUES)
    if not np.array_equal(matches.counts, counts[asked]):
        raise SystemExit(f"{what}: {matches.n_pairs} pairs, and {int(counts[asked].sum())} by the lists")
    for e in range(LOOKED_AT):
        if sorted(matches.row(e).tolist()) != np.flatnonzero((lists == asked[e]).any(axis=1)).tolist():
            raise SystemExit(f"{what}: event {e} has another answer than its lists")


def single_values(rng: np.random.Generator, per_value: int, n: int) -> tuple[rc.Index, rc.Events]:
    """Subscriptions of one value each, and events that match as many of them as lists."""
    schema = rc.Schema(rc.Int("product"))
    values = np.repeat(np.arange(n // per_value), per_value)
    rng.shuffle(values)
    index = rc.open_index("auto", schema)
    index.insert(
        rc.Subscriptions.from_arrays(schema, np.arange(len(values)), values[:, None], values[:, None])
    )
    events = rc.Events.from_arrays(schema, {"product": rng.integers(0, n // per_value, EVENTS)})
    if index.count(events).tolist() != [per_value] * EVENTS:
        raise SystemExit("an equality has another answer than its values")
    return index, events


def measure(n: int, size: int, rounds: int, strings: bool, texts: bool) -> dict[str, Any]:
    """One set of lists, in figures."""
    rng = np.random.default_rng(17)
    schema = schema_of(strings)
    small = rc.open_index("auto", schema)
    small.insert(from_arrays(schema, draw(rng, 200, size)))  # kernels are compiled
    lists = draw(rng, n, size)
    asked = rng.integers(0, VALUES, EVENTS)
    column = [f"p{value}" for value in asked.tolist()] if strings else asked
    events = rc.Events.from_arrays(schema, {"product": column})
    subs = from_arrays(schema, lists)
    index = rc.open_index("auto", schema)
    load, _ = timed(index.insert, subs, clock=PROCESS)
    check("from arrays", index.match(events), lists, asked)
    per_value = max(round(n * size / VALUES), 1)
    other, its_events = single_values(rng, per_value, min(SINGLE, n * size))
    calls = {
        "lists": lambda: index.match(events).ids,
        "equality": lambda: other.match(its_events).ids,
    }
    taken = take_turns(calls, rounds, clock=PROCESS)
    stats = index.stats()
    row = {
        "load_s": load,
        "bytes_per_value": stats["bytes"] / (n * size),
        "us_per_event": taken["lists"].best / EVENTS * 1e6,
        "equality_us": taken["equality"].best / EVENTS * 1e6,
        "matches_per_event": n * size / VALUES,
    }
    if texts:
        sign = "'p%d'" if strings else "%d"
        written = [f"product IN ({', '.join(sign % value for value in own)})" for own in lists.tolist()]
        rc.Subscriptions.parse(schema, ids=np.arange(20), texts=written[:20])
        row["read_s"], read = timed(
            lambda: rc.Subscriptions.parse(schema, ids=np.arange(n), texts=written), clock=PROCESS
        )
        again = rc.open_index("auto", schema)
        row["insert_read_s"], _ = timed(again.insert, read, clock=PROCESS)
        check("from texts", again.match(events), lists, asked)
    return row


def said(n: int, size: int, row: dict[str, Any]) -> str:
    """The figures for whoever waits."""
    out = (
        f"{n:,} lists of {size:,} values: loaded in {row['load_s']:.2f} s, {row['bytes_per_value']:.1f} "
        f"bytes per value, {row['us_per_event']:.3f} us per event of {row['matches_per_event']:.0f} matches, "
        f"{row['equality_us']:.3f} for an equality"
    )
    if "read_s" in row:
        out += f"; from texts, read in {row['read_s']:.2f} s and inserted in {row['insert_read_s']:.2f}"
    return out


def run(
    lists: Annotated[int, typer.Option(help="How many subscriptions.")] = 20_000,
    size: Annotated[int, typer.Option(help="Values of each list.")] = 5_000,
    rounds: Annotated[int, typer.Option(help="Rounds; the best counts.")] = 7,
    strings: Annotated[bool, typer.Option(help="Strings instead of whole numbers.")] = False,
    texts: Annotated[bool, typer.Option(help="Read them from texts as well.")] = False,
) -> None:
    """Measure long IN lists."""
    print(said(lists, size, measure(lists, size, rounds, strings, texts)), flush=True)


if __name__ == "__main__":
    typer.run(run)
