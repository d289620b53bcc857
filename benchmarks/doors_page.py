"""docs/performance-doors.md, written from what doors.py has kept: one paragraph or table per part."""

from __future__ import annotations

import itertools
from typing import Any

HEAD = """# Every way in

This page shows how long it takes to get from events in various forms to the ids of the subscriptions that
they match. [loading.md](loading.md) describes these forms. The column "alone" has the time of the cheapest
way to the same columns without rangecast: PyArrow's look-up of strings, PyArrow's readers on the same file,
or a Python loop over the dicts. All contenders of a table take turns in one process, so read the ratios.
The rows `encoded before` are the same match with events that were read beforehand; they show where matching
itself takes most of the time. `python benchmarks/doors.py` measures all this, and its head describes the
shapes of events. The figures are kept in `benchmarks/figures/doors.json`, from which `python
benchmarks/doors.py --page docs/performance-doors.md` writes this page."""

TITLES = {
    "one": "## One dict of each kind",
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
        case "one":
            rows = [[row["kind"], f"{row['pairs_per_event']:.1f}", f"{row['us']:.1f}"] for row in found]
            return (
                "`match_one` of a dict with six numbers and strings and what the table names. There are "
                "2,000 subscriptions on the six, and a few on the rest. The time is process time.\n\n"
            ) + table("beside the six | matches per event | us", "lrr", rows)
        case "paths":
            rows = [
                [f"`{row['workload']}`", row["paths"], f"{row['pairs_per_event']:,.1f}", f"{row['us']:.1f}"]
                for row in found
            ]
            return table("workload | access paths | matches per event | us", "llrr", rows) + (
                f"\n\nThe index has {subscriptions:,} subscriptions. The events were encoded beforehand, "
                "and the time is the median of 400."
            )
        case "texts":
            return f"{subscriptions:,} mixed conditions are read from text in {found:.2f} s."
        case "frames":
            beside = " and ".join(
                f"{found[one] / found['pandas']:.2f} of the time with {one}" for one in ("Polars", "Arrow")
            )
            return (
                f"Compared with pandas frames, `rc.match` takes {beside} frames "
                f"({events:,} events, {subscriptions // 5:,} subscriptions)."
            )
        case "start":
            rows = [[f"{int(n):,}", f"{warm:.2f}", f"{cold:.1f}"] for n, (warm, cold) in found.items()]
            return (
                "The table has the seconds from the start of the process to the ids of one dict, including "
                "the time to parse the conditions: with kernels from the cache, and with kernels that must "
                "be compiled, while `auto` scans. The packages coverage and yaml, which Numba loads if "
                "they are installed, were not installed.\n\n"
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
        f"\n\n`python benchmarks/crossing.py` measures this with {found['events']:,} events of 41 columns, "
        f"which have {found['pairs']:,} pairs, as the best of {found['rounds']} rounds; its head describes "
        f"the rows. `rs.match` costs {found['match'] / identity:.2f} times as much as workers that return "
        "the columns it needs as they are. Workers that emit as many pairs without matching cost "
        f"{(found['match'] - bare) / found['match']:.0%} less than `rs.match`. Returning all columns costs "
        f"{found['identity, all'] / identity:.1f} times as much as returning the needed ones."
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
        "- Rows and dicts are slower than a bare Python loop on every shape, but that loop finds no matches.",
        "- Arrow is slower than PyArrow's look-up of strings on every shape, because it also matches.",
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
        f"The index has {sizes['subscriptions']:,} subscriptions, a batch has {sizes['events']:,} events, "
        f"and the best of {sizes['repeat']} rounds counts.",
        doors(list(itertools.chain.from_iterable(lists))),
        "## Where rangecast is slower",
        losses(kept),
    ]
    for name, title in TITLES.items():
        if name in kept:
            texts += [title, part(name, kept[name], **sizes)]
    return "\n\n".join(texts) + "\n"
