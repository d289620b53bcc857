"""docs/performance-doors.md, written from what doors.py has kept: one paragraph or table per part."""

from __future__ import annotations

import itertools
from typing import Any

HEAD = """# Every way in

From what users have to ids, beside the cheapest way to the same columns without us: PyArrow's look-up of
strings, PyArrow's readers on the same file, a Python loop over the dicts. Each part is measured in one
process and in turns, so read the ratios. Where matching itself takes most of the time, `encoded before` says
so: it is the same match without a way in. Measured by `python benchmarks/doors.py`, whose head says what the
shapes of events are, kept in `benchmarks/figures/doors.json`, and written from there by
`python benchmarks/doors.py --page docs/performance-doors.md`; [loading.md](loading.md) has the ways in
themselves."""

TITLES = {
    "paths": "## One event at a time, by access path",
    "texts": "## Conditions from text",
    "frames": "## Frames",
    "start": "## The first match of a process",
    "demo": "## Ingest on Spark",
    "spark": "## Crossing to Spark's workers",
}


def table(head: str, align: str, rows: list[list[str]]) -> str:
    """A table in Markdown."""
    rule = "|".join("--:" if side == "r" else "---" for side in align)
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def doors(rows: list[dict[str, Any]]) -> str:
    """Rows of shapes of events."""
    said = []
    for row in rows:
        beside = ["", ""] if row["alone"] is None else [f"{row['alone']:.3f}", _times(row)]
        said.append([f"`{row['shape']}`", row["door"], f"{row['ours']:.3f}", *beside])
    return table("events | door | us/event | alone us/event | times alone", "llrrr", said)


def _times(row: dict[str, Any]) -> str:
    return f"{row['ours'] / row['alone']:.2f}"


def part(name: str, found: Any, subscriptions: int, events: int, **_: int) -> str:
    """What is said of one part."""
    match name:
        case "paths":
            rows = [
                [f"`{row['workload']}`", row["paths"], f"{row['pairs_per_event']:,.1f}", f"{row['us']:.1f}"]
                for row in found
            ]
            return table("workload | access paths | matches per event | us", "llrr", rows) + (
                f"\n\n{subscriptions:,} subscriptions; events that were encoded before, the median of 400."
            )
        case "texts":
            return f"{subscriptions:,} mixed conditions from text: {found:.2f} s."
        case "frames":
            beside = " and ".join(
                f"{found[one] / found['pandas']:.2f} with {one}" for one in ("Polars", "Arrow")
            )
            return (
                f"The time of `rc.match(events, rules)`, {events:,} events and {subscriptions // 5:,} "
                f"subscriptions, beside that with pandas frames: {beside} frames."
            )
        case "start":
            rows = [[f"{int(n):,}", f"{warm:.2f}", f"{cold:.1f}"] for n, (warm, cold) in found.items()]
            return (
                "Seconds from the start of the process to the ids of one dict, with the conditions parsed on "
                "the way: with kernels from the cache, and where they are compiled and `auto` scans. "
                "Coverage and yaml, which Numba loads where they are installed, are not there.\n\n"
            ) + table("conditions | from the cache | compiled", "rrr", rows)
        case "demo":
            parts = ", ".join(f"{one} {seconds:.1f}" for one, seconds in found.items() if one != "all")
            return f"`rangecast demo` ingests and publishes 200,000 alerts in {found['all']:.1f} s: {parts}."
        case "spark":
            return crossing(found)
    return doors(found)


def crossing(found: dict[str, Any]) -> str:
    """What crosses, and what follows from it."""
    each = 1e6 / found["events"]
    bare, identity = found["pairs, no match"], found["identity, needed"]
    names = ("identity, all", "identity, needed", "pairs, no match", "match")
    rows = [[name, f"{found[name] * each:.2f}", f"{found[name] / identity:.2f}"] for name in names]
    return table("crossing | CPU us/event | times identity, needed", "lrr", rows) + (
        f"\n\n{found['events']:,} events of 41 columns, {found['pairs']:,} pairs, best of {found['rounds']}, "
        "by `python benchmarks/crossing.py`, whose head says what the crossings are. `rs.match` costs "
        f"{found['match'] / identity:.2f} times an identity of the columns that it lets cross, and "
        f"{(found['match'] - bare) / found['match']:.0%} of it is above workers that emit as many pairs "
        f"without matching. An identity of all columns costs {found['identity, all'] / identity:.1f} times "
        "that of the needed ones."
    )


def losses(kept: dict[str, Any]) -> str:
    """Where a door loses to what stands beside it, from the figures themselves."""
    worst = [
        f"`{row['shape']}` by {row['door']} ({_times(row)} times)"
        for rows in kept.values()
        if isinstance(rows, list)
        for row in rows
        if row.get("alone") and row["door"].startswith("JSON lines") and row["ours"] > 1.6 * row["alone"]
    ]
    lines = [
        "- Rows and single dicts lose to a bare Python loop on every shape, which has codes and no answer.",
        "- Arrow loses to PyArrow's look-up of strings on every shape, by the match.",
    ]
    if worst:
        lines.append(f"- Files of JSON lines take over 1.6 times PyArrow's reader: {', '.join(worst)}.")
    return "\n".join(lines)


def page(kept: dict[str, Any]) -> str:
    """The whole page."""
    sizes = kept["sizes"]
    lists = [rows for name, rows in kept.items() if name not in TITLES and isinstance(rows, list)]
    texts = [
        HEAD,
        f"{sizes['subscriptions']:,} subscriptions, {sizes['events']:,} events, best of {sizes['repeat']}.",
        doors(list(itertools.chain.from_iterable(lists))),
        "## Where we lose",
        losses(kept),
    ]
    for name, title in TITLES.items():
        if name in kept:
            texts += [title, part(name, kept[name], **sizes)]
    return "\n\n".join(texts) + "\n"
