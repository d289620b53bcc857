"""Figures that stand on pages: kept in figures/, and put between the marks of the pages that show them.

    python benchmarks/figures.py             writes the tables of the pages anew, from the files
    python benchmarks/figures.py --check     says which pages differ from the files, with exit code 1

A benchmark saves what it measured (`save`), with the command that did it; nobody types a figure into a page.
`tests/docs/test_figures.py` makes the same check.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "figures"
# Rows of the README, and what a reader would call them.
SHOWN = {
    "boxes-12d": "ranges on 12 attributes",
    "predicates-16": "equality and ranges on 16 attributes",
    "equality-led": "a symbol and some ranges",
    "intervals-wide-domain": "intervals, {pairs:,.0f} matches per event",
    "rectangles": "rectangles, {pairs:,.0f} matches per event",
    "lonlat": "longitude and latitude",
}
PEERS = {"scan": "the compiled scan", "duckdb": "DuckDB", "strtree": "shapely's STRtree"}


def save(name: str, command: str, **tables: list[dict[str, Any]]) -> None:
    """Keep the tables of a run, with the command that made them."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps({"command": command, **tables}, indent=1) + "\n")


def load(name: str) -> dict[str, Any]:
    """What a run has kept."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def brief(value: float) -> str:
    """A figure with two digits that count, or all before the point.

    >>> brief(0.104), brief(3.49), brief(22.7), brief(705.6), brief(2000.3)
    ('0.10', '3.5', '23', '706', '2,000')
    """
    return f"{value:,.2f}" if value < 1 else f"{value:,.1f}" if value < 9.95 else f"{value:,.0f}"


def table(head: str, align: str, rows: list[list[str]]) -> str:
    """A table in Markdown; `align` has l or r for each column."""
    rule = "|".join("--:" if side == "r" else "---" for side in align)
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def readme() -> str:
    """The table of README.md."""
    found = {row["workload"]: row for row in load("floors")["beside"]}
    rows = [
        [
            said.format(pairs=found[name]["pairs_per_event"]),
            f"{found[name]['subscriptions']:,}",
            brief(found[name]["us_per_event"]),
            brief(found[name]["bytes"]),
            f"{brief(found[name]['ratio'])}, {PEERS.get(found[name]['beside'], found[name]['beside'])}",
        ]
        for name, said in SHOWN.items()
    ]
    return table(
        "workload | subscriptions | us per event | bytes per subscription | times faster than", "lrrrl", rows
    )


def beside() -> str:
    """`auto` beside its peers, for docs/performance.md."""
    rows = [
        [
            f"`{row['workload']}`",
            f"{row['subscriptions']:,}",
            f"{row['events']:,}",
            f"{row['pairs_per_event']:,.1f}",
            f"{row['us_per_event']:,.2f}",
            f"{row['bytes']:,.0f}",
            f"{row['build_s']:.1f}",
            row["beside"],
            f"{row['ratio']:,.1f}",
        ]
        for row in load("floors")["beside"]
    ]
    head = "workload | subscriptions | events | matches per event | us per event | bytes per subscription"
    return table(head + " | seconds to build | beside | times faster", "lrrrrrrlr", rows)


def alone() -> str:
    """`auto` beside itself, for docs/performance.md."""
    rows = [[row["what"], row["figure"]] for row in load("floors")["alone"]]
    return table("what | figure", "lr", rows)


def aims() -> str:
    """What the project wants to reach, beside what was measured, for benchmarks/README.md."""
    floors = load("floors")
    rows = [
        [f"`{row['workload']}`, times faster than {row['beside']}", brief(row["ratio"]), brief(row["aim"])]
        for row in floors["beside"]
    ]
    rows += [[row["what"], row["figure"], row["aim"]] for row in floors["alone"] if row["aim"]]
    return table("what | measured | aim", "lrr", rows)


# page, name of its marks, what stands between them
PLACES: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("README.md", "floors", readme),
    ("docs/performance.md", "floors", beside),
    ("docs/performance.md", "floors-alone", alone),
    ("benchmarks/README.md", "aims", aims),
)


def marks(name: str) -> tuple[str, str]:
    """What stands before and after a table."""
    return f"<!-- figures: {name} -->", f"<!-- end of figures: {name} -->"


def put(page: str, name: str, text: str) -> str:
    """A page with a table between its marks."""
    first, last = marks(name)
    between = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    new, n = between.subn(lambda _: f"{first}\n\n{text}\n\n{last}", page)
    if n != 1:
        raise SystemExit(f"a page must have the marks {first} and {last} once")
    return new


def stale() -> list[str]:
    """The tables that differ from the files."""
    return [
        f"{path}: the table {name} is not what the figures say; run python benchmarks/figures.py"
        for path, name, text in PLACES
        if put((ROOT / path).read_text(), name, text()) != (ROOT / path).read_text()
    ]


def write_pages() -> None:
    """Put all tables into their pages."""
    for path, name, text in PLACES:
        page = ROOT / path
        page.write_text(put(page.read_text(), name, text()))


def main() -> None:
    """Write the pages, or check them."""
    if "--check" not in sys.argv:
        write_pages()
    faults = stale()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
