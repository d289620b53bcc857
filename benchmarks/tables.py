"""Figures in pages of Markdown: those of run.py as a page of its own, others between the marks of a page.

The page of run.py has a summary of where `auto` stands, then every contender.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import figures

CLOSE = 1.2
# ruff: noqa: E501
HEAD = """# Every index on every workload

`python benchmarks/run.py{arguments}` made this page on {day}, and [benchmarks.md](benchmarks.md) explains its figures.
The times are elapsed time, the best of {repeat} rounds, after each contender had answered its batch for a second. All
contenders deliver all ids, and their answers were compared. The machine was in use during the run, so read the ratios. The
changelog says what has changed since.

## `auto` compared with the best of the others

`best index` is the fastest of our other indexes, and `x best index` says how many times faster than it `auto` is; below 1,
`auto` is slower, and below {floor:.2f} it is more than {close} times slower.

| workload | subscriptions | pairs/event | auto us/event | bytes/sub | best index | x best index | best peer | x best peer |
|---|--:|--:|--:|--:|---|--:|---|--:|
"""


def put_between(page: Path, name: str, script: str, text: str) -> None:
    """Keep a text among the figures, and put it between the marks of a page."""
    command = " ".join(["python", f"benchmarks/{script}", *sys.argv[1:]])
    marks = f"<!-- {name}: made by benchmarks/{script} -->", f"<!-- end of {name} -->"
    figures.keep(page, f"{page.stem}-{name.replace(' ', '-')}", command, text, marks)


def write_page(page: Path, script: str, text: str) -> None:
    """Keep the whole text of a page among the figures, and write the page."""
    command = " ".join(["python", f"benchmarks/{script}", *sys.argv[1:]])
    figures.keep(page, page.stem, command, text, whole=True)


def cost(row: dict[str, Any]) -> float:
    """Seconds an event, in the best round."""
    return min(row["match_s"]) / max(row["events"], 1)


def page(report: dict[str, Any]) -> str:
    """The whole page."""
    settings = report["settings"]
    text = HEAD.format(
        arguments=settings.get("arguments", ""),
        repeat=settings["repeat"],
        day=figures.today(),
        floor=1 / CLOSE,
        close=CLOSE,
    )
    slower = []
    for result in report["workloads"]:
        line, ratio, best = summary(result)
        text += line
        if ratio is not None and ratio < 1 / CLOSE:
            slower.append(f"`{result['workload']}` ({best}, {1 / ratio:.2f} times as fast)")
    text += "\n"
    if slower:
        text += f"`auto` takes more than {CLOSE} times as long as the best index here: {'; '.join(slower)}.\n"
    else:
        text += f"`auto` takes at most {CLOSE} times as long as the best index everywhere.\n"
    for result in report["workloads"]:
        text += "\n" + details(result)
    return text


def summary(result: dict[str, Any]) -> tuple[str, float | None, str]:
    """The line of a workload, how many times faster than the best other index `auto` is, and which one."""
    ran = [row for row in result["rows"] if "skipped" not in row]
    auto = next((row for row in ran if row["name"] == "auto"), None)
    if auto is None:
        return "", None, ""
    others = [row for row in ran if row["kind"] == "index" and row is not auto]
    peers = [row for row in ran if row["kind"] == "peer"]
    cells = [
        f"`{result['workload']}`",
        f"{result['n_subscriptions']:,}",
        f"{auto['pairs'] / max(auto['events'], 1):,.1f}",
        f"{cost(auto) * 1e6:,.2f}",
        f"{auto['bytes'] / result['n_subscriptions']:,.0f}",
    ]
    ratios = []
    for group in (others, peers):
        best = min(group, key=cost, default=None)
        ratios.append((best["name"] if best else "", cost(best) / cost(auto) if best else None))
        cells += [ratios[-1][0], "" if best is None else f"{cost(best) / cost(auto):,.2f}"]
    return f"| {' | '.join(cells)} |\n", ratios[0][1], ratios[0][0]


def details(result: dict[str, Any]) -> str:
    """A table of all contenders of a workload."""
    text = f"## {result['workload']}\n\n"
    text += "| index or *peer* | events | build s | us/event | M pairs/s | bytes/sub |\n|---|--:|--:|--:|--:|--:|\n"
    for row in sorted((row for row in result["rows"] if "skipped" not in row), key=cost):
        name = row["name"] if row["kind"] == "index" else f"*{row['name']}*"
        size = f"{row['bytes'] / result['n_subscriptions']:,.0f}" if row.get("bytes") else ""
        text += (
            f"| {name} | {row['events']:,} | {min(row['build_s']):.2f} | {cost(row) * 1e6:,.2f} | "
            f"{row['pairs'] / min(row['match_s']) / 1e6:,.2f} | {size} |\n"
        )
    skipped = [f"{row['name']}: {row['skipped']}" for row in result["rows"] if "skipped" in row]
    return text + ("\nLeft out: " + "; ".join(skipped) + ".\n" if skipped else "")
