"""Compare two runs of run.py, row by row: faster, slower or the same, with a noise band.

    python benchmarks/compare.py before.json after.json
    python benchmarks/compare.py main HEAD --workload intervals --index auto --rounds 3

Names that are no files are commits: each is checked out in a temporary worktree, and this tree's
run.py measures both in turns, with the sources of the one or the other, so that a slow hour of the
machine falls on both. A commit in which modules stood elsewhere is measured by its own run.py.

A row's figure is its best repeat. Its noise is how far the median repeat lies above the best one;
the band of a comparison is the wider noise of the two, and never less than `--floor`. Within a band
of more than 50 % nothing can be said, and the verdict is "too noisy". Peers are compared as well:
nothing of theirs changed, so a peer that is not "same" says that the machine did. Bytes do not vary,
and get a band of 1 %.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
_BYTES_BAND = 0.01
_WIDEST_BAND = 0.5
_STYLES = {
    "faster": "green",
    "smaller": "green",
    "slower": "red",
    "larger": "red",
    "answers differ": "bold red",
    "too noisy": "yellow",
}

# A pipe has no width; a table that is cut there would be of no use.
console = Console() if sys.stdout.isatty() else Console(width=140)


@dataclass(frozen=True)
class Verdict:
    """One figure of one row, before and after."""

    workload: str
    name: str
    kind: str
    measure: str
    before: float | None
    after: float | None
    band: float
    verdict: str


def noise(samples: list[float]) -> float:
    """How far the median lies above the best, as a share of the best.

    >>> noise([1.0, 1.1, 1.5])
    0.10000000000000009
    """
    best = min(samples)
    return statistics.median(samples) / best - 1 if best > 0 else 0.0


def judge(before: list[float], after: list[float], floor: float) -> tuple[str, float]:
    """The verdict on two sets of repeats and the band that it used.

    >>> judge([1.0, 1.02], [0.8, 0.81], floor=0.05)[0]
    'faster'
    >>> judge([1.0, 1.02], [1.03, 1.04], floor=0.05)[0]
    'same'
    """
    band = max(floor, noise(before), noise(after))
    ratio = min(after) / max(min(before), 1e-12)
    # The same factor either way, so that swapping the two runs swaps the verdicts.
    if ratio > 1 + band:
        return "slower", band
    if ratio < 1 / (1 + band):
        return "faster", band
    return "same" if band <= _WIDEST_BAND else "too noisy", band


def rows_of(report: dict[str, Any]) -> dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]]:
    """Each row that ran, with its workload, by the names of both."""
    return {
        (w["workload"], row["name"]): (w, row)
        for w in report["workloads"]
        for row in w["rows"]
        if "skipped" not in row
    }


def verdicts(before: dict[str, Any], after: dict[str, Any], floor: float) -> Iterator[Verdict]:
    """Every figure that either run has."""
    old, new = rows_of(before), rows_of(after)
    for key in dict.fromkeys([*old, *new]):
        if key not in old or key not in new:
            row = (old.get(key) or new[key])[1]
            yield Verdict(
                *key, row["kind"], "", None, None, 0.0, "only before" if key in old else "only after"
            )
            continue
        (w_old, r_old), (w_new, r_new) = old[key], new[key]
        drawn = ("n_subscriptions", "n_events", "parameters", "seed")
        if any(w_old[what] != w_new[what] for what in drawn):
            yield Verdict(*key, r_old["kind"], "", None, None, 0.0, "not the same workload")
            continue
        if r_old["events"] == r_new["events"] and r_old["pairs"] != r_new["pairs"]:
            counts = float(r_old["pairs"]), float(r_new["pairs"])
            yield Verdict(*key, r_old["kind"], "pairs", *counts, 0.0, "answers differ")
            continue
        for measure in ("build", "match"):
            a, b = samples(r_old, measure), samples(r_new, measure)
            said, band = judge(a, b, floor)
            yield Verdict(*key, r_old["kind"], measure, min(a), min(b), band, said)
        if r_old.get("bytes") and r_new.get("bytes"):
            ratio = r_new["bytes"] / r_old["bytes"]
            said = "larger" if ratio > 1 + _BYTES_BAND else "smaller" if ratio < 1 - _BYTES_BAND else "same"
            n = max(w_old["n_subscriptions"], 1)
            yield Verdict(
                *key, r_old["kind"], "bytes", r_old["bytes"] / n, r_new["bytes"] / n, _BYTES_BAND, said
            )


def samples(row: dict[str, Any], measure: str) -> list[float]:
    """Seconds of each build, or microseconds per event of each match."""
    if measure == "build":
        return list(row["build_s"])
    # Reports of several rounds may have timed different numbers of events.
    timed_on = row.get("match_events") or [row["events"]] * len(row["match_s"])
    return [s / max(k, 1) * 1e6 for s, k in zip(row["match_s"], timed_on, strict=True)]


def merge(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Several runs of the same sources as one, with all their repeats."""
    merged = json.loads(json.dumps(reports[0]))
    rows = rows_of(merged)
    for _, row in rows.values():
        row["match_events"] = [row["events"]] * len(row["match_s"])
    for report in reports[1:]:
        for key, (_, row) in rows_of(report).items():
            if key in rows:
                into = rows[key][1]
                into["build_s"] += row["build_s"]
                into["match_s"] += row["match_s"]
                into["match_events"] += [row["events"]] * len(row["match_s"])
    return merged


def measure_commits(commits: tuple[str, str], rounds: int, arguments: list[str]) -> list[dict[str, Any]]:
    """Both commits measured in turns, each in a worktree that is removed again."""
    with tempfile.TemporaryDirectory(prefix="rangecast-compare-") as folder:
        trees = [Path(folder) / f"tree{i}" for i in range(2)]
        made: list[Path] = []
        try:
            for tree, commit in zip(trees, commits, strict=True):
                git("worktree", "add", "--detach", "--quiet", str(tree), commit)
                made.append(tree)
            reports: list[list[dict[str, Any]]] = [[], []]
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    console.print(f"round {turn + 1} of {rounds}: {commits[side]}")
                    reports[side].append(measure_tree(trees[side], Path(folder), side, arguments))
            return [merge(side) for side in reports]
        finally:
            for tree in made:
                git("worktree", "remove", "--force", str(tree))


def measure_tree(tree: Path, folder: Path, side: int, arguments: list[str]) -> dict[str, Any]:
    """One run of run.py on the sources of a tree."""
    # A tree's kernels are compiled once, in a cache of its own.
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "NUMBA_CACHE_DIR": str(folder / f"cache{side}"),
    }
    check = "import rangecast; print(rangecast.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", check], env=environment, capture_output=True, text=True, check=False
    )
    if str(tree) not in found.stdout:
        fail(f"the sources of {tree.name} cannot be imported: {(found.stderr or found.stdout).strip()}")
    out = folder / f"report{side}.json"
    command = [sys.executable, str(runner(tree, environment)), "--no-compile", "--json", str(out), *arguments]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        fail(f"run.py ended with {ran.returncode}:\n{ran.stdout}")
    return json.loads(out.read_text())


def runner(tree: Path, environment: dict[str, str]) -> Path:
    """This tree's run.py, or the measured tree's own where its modules stood elsewhere."""
    ours = [sys.executable, str(HERE / "run.py"), "--help"]
    if subprocess.run(ours, env=environment, capture_output=True, check=False).returncode == 0:
        return HERE / "run.py"
    console.print(f"{tree.name}: its modules stand elsewhere, so its own run.py measures it")
    return tree / "benchmarks" / "run.py"


def git(*arguments: str) -> None:
    """A git command in this repository; a failure ends the run with what git said."""
    git_path = shutil.which("git") or fail("comparing commits needs git")
    ran = subprocess.run([git_path, *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    if ran.returncode:
        fail(f"git {' '.join(arguments)}: {ran.stderr.strip()}")


def fail(message: str) -> Any:
    """End with a message and exit code 2."""
    print(message, file=sys.stderr)
    raise typer.Exit(2)


def show(found: list[Verdict], everything: bool) -> None:
    """The figures that moved, or all of them, and a count of each verdict."""
    table = Table(title="after, beside before", title_justify="left")
    for heading in ("workload", "index or peer", "figure"):
        table.add_column(heading)
    for heading in ("before", "after", "ratio", "band"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    units = {"build": "s", "match": "us/event", "bytes": "B/sub", "pairs": "pairs", "": ""}
    alone: dict[str, list[str]] = {}
    for v in found:
        if v.verdict.startswith("only"):
            alone.setdefault(v.verdict, []).append(f"{v.workload}/{v.name}")
            continue
        if v.verdict == "same" and not everything:
            continue
        known = v.before is not None and v.after is not None
        table.add_row(
            v.workload,
            v.name if v.kind == "index" else f"[dim]{v.name} (peer)[/dim]",
            f"{v.measure} {units[v.measure]}".strip(),
            f"{v.before:,.4g}" if known else "",
            f"{v.after:,.4g}" if known else "",
            f"{v.after / v.before:.3f}" if known and v.before else "",
            f"{v.band:.0%}" if known else "",
            f"[{_STYLES[v.verdict]}]{v.verdict}[/]" if v.verdict in _STYLES else v.verdict,
        )
    if table.row_count:
        console.print(table)
    counts: dict[str, int] = {}
    for v in found:
        counts[v.verdict] = counts.get(v.verdict, 0) + 1
    for verdict, rows in alone.items():
        console.print(f"{verdict}: {', '.join(rows)}", style="dim")
    console.print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing to compare")
    moved = [v for v in found if v.kind == "peer" and v.verdict in ("faster", "slower")]
    if moved:
        console.print(f"{len(moved)} figures of peers moved too: the machine was not as quiet in both runs")


def compare(
    before: Annotated[str, typer.Argument(help="A JSON file of run.py, or a commit.")],
    after: Annotated[str, typer.Argument(help="A JSON file of run.py, or a commit.")],
    floor: Annotated[float, typer.Option(help="The narrowest noise band.")] = 0.05,
    all_: Annotated[bool, typer.Option("--all", help="Show what stayed the same too.")] = False,
    check: Annotated[bool, typer.Option(help="Exit with 1 if an index got slower or larger.")] = False,
    rounds: Annotated[int, typer.Option(help="Commits: how often each is measured.")] = 3,
    workload: Annotated[list[str] | None, typer.Option(help="Commits: as for run.py.")] = None,
    index: Annotated[list[str] | None, typer.Option(help="Commits: as for run.py.")] = None,
    peer: Annotated[list[str] | None, typer.Option(help="Commits: as for run.py.")] = None,
    subscriptions: Annotated[int | None, typer.Option(help="Commits: as for run.py.")] = None,
    events: Annotated[int | None, typer.Option(help="Commits: as for run.py.")] = None,
    repeat: Annotated[int | None, typer.Option(help="Commits: as for run.py.")] = None,
    threads: Annotated[int | None, typer.Option(help="Commits: as for run.py.")] = None,
    quick: Annotated[bool, typer.Option(help="Commits: as for run.py.")] = False,
) -> None:
    """Say what got faster, what slower and what stayed, between two runs or two commits."""
    files = [Path(before).is_file(), Path(after).is_file()]
    if all(files):
        try:
            old, new = (json.loads(Path(name).read_text()) for name in (before, after))
            _ = rows_of(old), rows_of(new)
        except (ValueError, KeyError, TypeError) as error:
            fail(f"not a report of run.py: {type(error).__name__}: {error}")
    elif any(files):
        fail(f"give two files or two commits, got {before} and {after}")
    else:
        arguments = ["--quick"] if quick else []
        given = {"workload": workload, "index": index, "peer": peer, "subscriptions": subscriptions,
                 "events": events, "repeat": repeat, "threads": threads}  # fmt: skip
        for option, value in given.items():
            for item in value if isinstance(value, list) else [value]:
                arguments += [] if item is None else [f"--{option}", str(item)]
        old, new = measure_commits((before, after), rounds, arguments)
    found = list(verdicts(old, new, floor))
    show(found, all_)
    wrong = [v for v in found if v.verdict == "answers differ"]
    worse = [v for v in found if v.kind == "index" and v.verdict in ("slower", "larger")]
    if wrong or (check and worse):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(compare)
