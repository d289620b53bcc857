"""Measure indexes beside the scan and other packages: compile, build, match and memory apart.

    python benchmarks/run.py                                  every workload, every index and peer
    python benchmarks/run.py --quick                          small sizes, to see that all is well
    python benchmarks/run.py --workload intervals --index auto --index scan --json out.json
    python benchmarks/run.py --list                           the workloads, as a Markdown table

How each figure is taken is told in measure.py; peers.py has the packages. Any disagreement in the
number of pairs ends the run with exit code 1.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import tables
from measure import parse_index
from peers import PEERS
from rangecast import workloads
from rangecast.engine import REGISTRY

HERE = Path(__file__).resolve().parent
_PACKAGES = ("rangecast", "numpy", "numba", "ncls", "superintervals", "shapely", "rtree", "duckdb", "polars")
_QUICK = {"subscriptions": 5_000, "events": 200, "repeat": 2, "budget": 0.05}

# A pipe has no width; a table that is cut there would be of no use.
console = Console() if sys.stdout.isatty() else Console(width=140)


def call_worker(request: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Run measure.py in a process of its own; its progress goes to standard error."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        worker = subprocess.run(
            [sys.executable, str(HERE / "measure.py")],
            input=json.dumps(request | {"out": str(out)}),
            text=True,
            env=os.environ | environment,
            check=False,
        )
        if worker.returncode or not out.exists():
            raise typer.Exit(1)
        return json.loads(out.read_text())


def first_calls(indexes: list[str]) -> list[dict[str, Any]]:
    """What the first call of each index costs with an empty cache of kernels, and with a full one."""
    rows = []
    for name in indexes:
        with tempfile.TemporaryDirectory() as cache:
            request, environment = {"first_call": name}, {"NUMBA_CACHE_DIR": cache}
            cold, cached = (call_worker(request, environment)["first_s"] for _ in range(2))
        rows.append({"name": name, "compile_s": cold, "cached_s": cached})
    return rows


def about() -> dict[str, Any]:
    """Versions and the machine, for whoever reads the figures later."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip() or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": versions,
    }


def shown(number: float) -> str:
    """A number of any size in few characters."""
    return (
        f"{number:,.1f}" if number >= 10 else f"{number:.3f}" if number >= 0.001 or not number else "< 0.001"
    )


def show(result: dict[str, Any]) -> None:
    """One workload as a table, and a line for each contender that did not run."""
    ran = [row for row in result["rows"] if "skipped" not in row]
    scan = next((row for row in ran if row["name"] == "scan"), None)
    peers = [row for row in ran if row["kind"] == "peer"]
    best_peer = min(peers, key=tables.cost, default=None)
    n = result["n_subscriptions"]
    drawn = ", ".join(f"{k}={v}" for k, v in result["parameters"].items())
    table = Table(
        title=f"{result['workload']}: {n:,} subscriptions, {result['n_attributes']} attributes ({drawn})",
        title_justify="left",
    )
    table.add_column("index or peer", no_wrap=True)
    for heading in ("events", "pairs/event", "build s", "us/event", "M pairs/s", "x scan", "x best peer",
                    "bytes/sub", "peak MB"):  # fmt: skip
        table.add_column(heading, justify="right")
    for row in sorted(ran, key=tables.cost):
        us, pairs = tables.cost(row) * 1e6, row["pairs"] / max(row["events"], 1)
        table.add_row(
            row["name"] if row["kind"] == "index" else f"[dim]{row['name']}[/dim]",
            f"{row['events']:,}",
            f"{pairs:,.1f}",
            f"{min(row['build_s']):.3f}",
            f"{us:,.2f}",
            shown(row["pairs"] / min(row["match_s"]) / 1e6),
            f"{tables.cost(scan) / tables.cost(row):,.2f}" if scan else "",
            f"{tables.cost(best_peer) / tables.cost(row):,.2f}" if best_peer else "",
            f"{row['bytes'] / n:,.1f}" if row.get("bytes") and n else "",
            f"{row['peak_bytes'] / 1e6:,.1f}" if row.get("peak_bytes") is not None else "",
        )
    console.print(table)
    console.print(
        f"pair counts agree; encoding: subscriptions {result['encode_subscriptions_s']:.3f} s, "
        f"events {result['encode_events_s']:.3f} s"
    )
    for row in result["rows"]:
        if "skipped" in row:
            console.print(f"skipped {row['name']}: {row['skipped']}", style="dim", markup=False)
    console.print()


def show_first_calls(rows: list[dict[str, Any]]) -> None:
    """The cost of first calls as a table."""
    table = Table(title="first call of a process, seconds over a later one", title_justify="left")
    table.add_column("index")
    table.add_column("compile (empty cache)", justify="right")
    table.add_column("kernels cached", justify="right")
    for row in rows:
        table.add_row(row["name"], f"{row['compile_s']:.2f}", f"{row['cached_s']:.2f}")
    console.print(table)
    console.print()


def choose(asked: list[str] | None, known: list[str], option: str) -> list[str]:
    """What was asked for, or all; an unknown name ends the run with the list of known ones."""
    for name in asked or ():
        if name.partition(":")[0] not in known:
            raise typer.BadParameter(f"{name!r} is unknown; there are {', '.join(known)}", param_hint=option)
    return asked or known


def run(
    workload: Annotated[
        list[str] | None, typer.Option(help="A workload; may repeat. All, if none is named.")
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(
            help="An index, with options as in 'vci:lookup=runs'; may repeat. All, if none is named."
        ),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="A peer, or 'none'; may repeat. All that fit, if none.")
    ] = None,
    subscriptions: Annotated[
        int | None, typer.Option(help="Subscriptions, instead of the workload's own.")
    ] = None,
    events: Annotated[int | None, typer.Option(help="Events, instead of the workload's own.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A parameter of the workload, as in 'alpha=0'; may repeat.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = workloads.SEED,
    repeat: Annotated[int | None, typer.Option(help="Rounds; the best counts.", show_default="5")] = None,
    threads: Annotated[int, typer.Option(help="Threads of a match, for us and for DuckDB and Polars.")] = 1,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds of a batch; slow ones answer fewer events.", show_default="1"),
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds to build; what takes longer is left out.")] = 120.0,
    quick: Annotated[bool, typer.Option(help="Small sizes, few rounds, no compile times.")] = False,
    compile: Annotated[
        bool, typer.Option(help="Measure first calls, with an empty cache of kernels.")
    ] = True,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write all figures as a page in Markdown.")] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Print the workloads as a Markdown table and end.")
    ] = False,
) -> None:
    """Measure indexes and peers on named workloads: compile, build, match and memory apart."""
    if list_:
        print(workloads.markdown_table(), end="")
        return
    chosen = choose(workload, workloads.names(), "--workload")
    indexes = choose(index, list(REGISTRY), "--index")
    peers = [] if peer == ["none"] else choose(peer, list(PEERS), "--peer")
    for name in indexes:
        parse_index(name)
    _, options = parse_index(":" + ",".join(option or ()))
    small = _QUICK if quick else {}
    report: dict[str, Any] = {
        "about": about(),
        "settings": {
            "threads": threads,
            "seed": seed,
            "quick": quick,
            "options": options,
            "repeat": repeat or small.get("repeat", 5),
            "arguments": "".join(f" {word}" for word in sys.argv[1:]),
        },
        "first_calls": first_calls(indexes) if compile and not quick else [],
        "workloads": [],
    }
    if report["first_calls"]:
        show_first_calls(report["first_calls"])
    defaults = {entry.name: entry for entry in workloads.describe()}
    for name in chosen:
        entry = defaults[name]
        request = {
            "workload": name,
            "n_subscriptions": subscriptions or min(entry.n_subscriptions, small.get("subscriptions", 2**62)),
            "n_events": events or min(entry.n_events, small.get("events", 2**62)),
            "seed": seed,
            "options": options,
            "indexes": indexes,
            "peers": peers,
            "repeat": repeat or small.get("repeat", 5),
            "threads": threads,
            "budget": budget or small.get("budget", 1.0),
            "limit": limit,
        }
        result = call_worker(request, {"POLARS_MAX_THREADS": str(threads)})
        report["workloads"].append(result)
        show(result)
        if json_out:
            # After each workload, so that an interrupted run leaves what it has.
            json_out.write_text(json.dumps(report, indent=1) + "\n")
        if page:
            tables.write_page(page, "run.py", tables.page(report))
    if json_out:
        console.print(f"figures in {json_out}")


if __name__ == "__main__":
    typer.run(run)
