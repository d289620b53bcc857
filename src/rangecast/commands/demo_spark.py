"""The demo's pipeline on Spark: ingest, publish, match_files, a summary and a plot of match counts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from rangecast.commands.console import print_table, say
from rangecast.errors import SetupError
from rangecast.memory import readable
from rangecast.schema import Schema
from rangecast.store import Store


def run_pipeline(
    schema: Schema, alerts: Sequence[Path], trades: Path, out: Path, index: str, options: Mapping[str, Any]
) -> None:
    """Ingest the files of alerts into a store, match the trades against it, say what was done."""
    try:
        from rangecast import spark as rs
    except ImportError as error:
        raise SetupError(f"{error}; or run the demo with --no-spark") from None
    home, matches = out / "store", out / "matches"
    shutil.rmtree(home, ignore_errors=True)
    say("starting Spark")
    spark = rs.session(app="rangecast demo")
    store = Store.open(home, schema, index=index, options=options)
    ingested = []
    for path in alerts:
        say(f"ingesting {path.name} into the store")
        # absolute: the JVM has a working folder of its own
        frame = spark.read.parquet(str(path.absolute()))
        ingested.append(rs.ingest(frame, schema, store, publish=path == alerts[-1]))
    say("matching the trades, in files")
    report = rs.match_files(spark, trades, store, matches, overwrite=True)
    counts = match_counts(matches, report.rows or 0)
    steps: dict[str, float] = {}
    for step in ingested:
        for name, seconds in step.seconds.items():
            steps[name] = steps.get(name, 0.0) + seconds
    seconds = sum(report.seconds.values())
    rejected = sum(step.rejected_rows or 0 for step in ingested)
    parts = ", ".join(f"{name} {taken:.1f}" for name, taken in steps.items())
    rows = [
        ["subscriptions", f"{report.subscriptions:,} (and {rejected:,} set aside)"],
        ["ingested and published in", f"{sum(steps.values()):.1f} s ({parts})"],
        ["snapshot", f"version {report.version}, {readable(report.index_bytes or 0)}"],
        ["events", f"{report.rows:,} in {report.files} pieces"],
        ["matches", f"{report.pairs:,}"],
        ["matches of an event", f"{counts.mean():.2f} on average, {counts.max(initial=0):,} at most"],
        ["events without a match", f"{np.count_nonzero(counts == 0):,}"],
        ["read, matched and written in", f"{seconds:.1f} s"],
        ["events/s", f"{(report.rows or 0) / seconds:,.0f}"],
        ["matches/s", f"{(report.pairs or 0) / seconds:,.0f}"],
    ]
    print_table(["", ""], rows)
    for step in ingested:
        if step.rejected_rows and step.rejected is not None:
            for row in step.rejected.collect():
                say(f"set aside: alert {row.id}: {row.reason.splitlines()[0]}")
    spark.stop()
    draw_counts(counts, out / "match-counts.png")
    say(f"matches: {matches}; the store: {home}")


def match_counts(matches: Path, n_events: int) -> npt.NDArray[np.int64]:
    """How many matches each event has; events are numbered from 1."""
    counts = np.zeros(n_events, np.int64)
    for path in sorted(matches.glob("part-*.parquet")):
        events = pq.read_table(path, columns=["event_id"])["event_id"].to_numpy()
        counts += np.bincount(events - 1, minlength=n_events)
    return counts


def draw_counts(counts: npt.NDArray[np.int64], path: Path) -> None:
    """Plot how many events have how many matches."""
    try:
        import matplotlib as mpl
    except ImportError:
        say("no plot: it needs Matplotlib, pip install 'rangecast[bench]'")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawing, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    most = max(int(counts.max(initial=0)), 1)
    edges = np.unique(np.round(np.geomspace(1, most + 1, 40)).astype(np.int64))
    axes.hist(counts[counts > 0], bins=edges.tolist(), color="tab:blue")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(
        title=f"Matches of {len(counts):,} events ({np.count_nonzero(counts == 0):,} have none)",
        xlabel="matches of an event",
        ylabel="events",
    )
    axes.grid(True, alpha=0.3)
    drawing.savefig(path, dpi=120)
    plt.close(drawing)
    say(f"match counts: {path}")
