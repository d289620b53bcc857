"""`rangecast stream-demo`: ticks flow, alerts come and go, matches appear; ends by itself and checks itself.

Three processes besides Spark's: this one runs the stream, one writes a file of ticks every half second,
one adds an alert every second, gives some of them an end, and removes others. Afterwards every batch is
matched once more in process, against the version that it was pinned to, and compared.
"""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from market_day import quiet_spark
from rangecast.cli.console import FAILED, print_table, say
from rangecast.cli.workloads import events_table
from rangecast.errors import StorageError
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.store.store import Store
from rangecast.workloads import Workload, workload

FIRST_ID = 1_000_000
_PAUSE = 0.5
_CHANGE_PAUSE = 1.0
_LIVES = 8
_SHOWN = 4


def stream_demo(
    seconds: Annotated[int, typer.Option(min=2, max=3600, help="How long ticks are sent, in seconds.")] = 30,
    subscriptions: Annotated[int, typer.Option(min=1, help="Alerts that are there from the start.")] = 20_000,
    rate: Annotated[int, typer.Option(min=10, help="Ticks per second.")] = 4_000,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("stream-demo-output"),
) -> None:
    """Send stock ticks through a stream on Spark while another process adds and removes alerts.

    Prints a line for each micro-batch, with the matches of the alerts that were added meanwhile. At the end
    all of the output is compared with what the library finds under the versions of the batches. While it
    runs, try from another terminal what the example shows.

    \b
    Example:
      rangecast stream-demo --seconds 60
      rangecast spark stream --out stream-demo-output/matches --status
      rangecast store add stream-demo-output/store --id 5000000 --condition "price < 5"
    """
    shutil.rmtree(out, ignore_errors=True)
    ticks, waiting, matches = out / "ticks", out / "ticks-to-come.parquet", out / "matches"
    ticks.mkdir(parents=True)
    per_file = max(1, int(rate * _PAUSE))

    def generate() -> tuple[Workload, Store, list[str]]:
        drawn = workload("stock-alerts", subscriptions, seconds * rate)
        pq.write_table(events_table(drawn), waiting)
        store = Store.open(out / "store", drawn.schema)
        store.insert(drawn.subscriptions())
        popular, counts = np.unique(drawn.columns["symbol"].astype(str), return_counts=True)
        # one file at the start, by which workers warm up
        put_ticks(waiting, ticks, 0, per_file)
        return drawn, store, popular[np.argsort(-counts)][:20].tolist()

    say(f"generating {subscriptions:,} alerts and {seconds * rate:,} ticks while Spark starts")
    settings = ["spark.log.level=ERROR", "spark.ui.enabled=false"]
    with quiet_spark(out / "spark.log", generate, settings) as (rs, spark, (drawn, store, symbols)):
        query = rs.match_stream(
            rs.read_events(spark, ticks, store),
            store,
            out=matches,
            checkpoint=out / "checkpoint",
            trigger={"processingTime": "500 milliseconds"},
        )
        rs.watch_stream(spark, query, matches, lambda status: say(_line(matches, status)))
        say("the first batch starts the workers, which takes some seconds")
        while query.isActive and not rs.committed(matches):
            time.sleep(0.1)
        spawn = multiprocessing.get_context("spawn")
        changes = str(store.path), symbols, seconds, str(out)
        helpers = [
            spawn.Process(target=flow_ticks, args=(str(waiting), str(ticks), per_file), daemon=True),
            spawn.Process(target=change_alerts, args=changes, daemon=True),
        ]
        for helper in helpers:
            helper.start()
        while query.isActive and any(helper.is_alive() for helper in helpers):
            time.sleep(0.2)
        if query.isActive:
            query.processAllAvailable()
            query.stop()
        failed = query.exception()
        for helper in helpers:
            helper.terminate()
        if failed is not None:
            raise StorageError(f"the stream ended: {str(failed).strip().splitlines()[0]}")
    say("matching every batch once more, in process")
    report_batches(out, store, rs.committed(matches), events_table(drawn))


def put_ticks(waiting: Path, folder: Path, first: int, n: int) -> bool:
    """Write the next file of ticks under a hidden name and rename it; False when there are no more."""
    table = pq.read_table(waiting).slice(first, n)
    if not len(table):
        return False
    scratch = folder / f".{first:09}.parquet"
    pq.write_table(table, scratch)
    os.rename(scratch, folder / f"{first:09}.parquet")
    return True


def flow_ticks(waiting: str, folder: str, per_file: int) -> None:
    """A process of its own: a file of ticks every half second, until all are out."""
    first, due = per_file, time.monotonic()
    while put_ticks(Path(waiting), Path(folder), first, per_file):
        first += per_file
        due += _PAUSE
        time.sleep(max(0.0, due - time.monotonic()))


def change_alerts(path: str, symbols: list[str], seconds: int, out: str) -> None:
    """A process of its own: an alert added every second; they are removed again, or end by themselves."""
    store = Store.open(path)
    added = []
    for number in range(seconds):
        symbol = symbols[number % len(symbols)]
        condition = f"symbol = '{symbol}' and volume > 50"
        subs = Subscriptions.parse(store.schema, {FIRST_ID + number: condition})
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=_LIVES) if number % 2 else None
        version = store.insert(subs, expires=ends)
        added.append([FIRST_ID + number, version])
        said = [f"version {version}: alert {FIRST_ID + number} added, {condition}"]
        said += [f"for {_LIVES} s"] if ends else []
        old = FIRST_ID + number - _LIVES
        if number >= _LIVES and old % 2 == 0:
            store.delete([old])
            said.append(f"alert {old} removed")
        say("  " + ", ".join(said))
        time.sleep(_CHANGE_PAUSE)
    (Path(out) / "added.json").write_text(json.dumps(added))


def _line(matches: Path, status: Any) -> str:
    """A batch, and the alerts of the demo's own that it matched."""
    commit = status.last
    new: dict[int, int] = {}
    for path in matches.glob(f"batch_id={commit.batch}/*.parquet"):
        ids = pq.read_table(path, columns=["subscription_id"])["subscription_id"].to_numpy()
        for id, n in zip(*np.unique(ids[ids >= FIRST_ID], return_counts=True), strict=True):
            new[int(id)] = new.get(int(id), 0) + int(n)
    latest = sorted(new.items())[-_SHOWN:]
    shown = ", ".join(f"{id} ({n})" for id, n in latest)
    shown += f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
    return (
        f"batch {commit.batch}: version {commit.version}, {commit.events:,} ticks, {commit.pairs:,} matches "
        f"in {sum(commit.seconds.values()):.2f} s" + (f"; new alerts {shown}" if shown else "")
    )


def report_batches(out: Path, store: Store, commits: list[Any], ticks: pa.Table) -> None:
    """Compare all batches with the library and say what was seen."""
    lost, doubled, invented = compare(out / "matches", store, commits, ticks)
    added = json.loads((out / "added.json").read_text())
    waits, steps = [], []
    for _, version in added:
        made = int(store.time_of(version).timestamp() * 1_000_000)
        after = [c for c in commits if c.time >= made]
        seen = next((place for place, commit in enumerate(after) if commit.version >= version), None)
        if seen is not None:
            waits.append((after[seen].time - made) / 1e6)
            steps.append(seen + 1)
    taken = [sum(commit.seconds.values()) for commit in commits[1:]] or [0.0]
    rows = [
        ["ticks", f"{sum(commit.events for commit in commits):,}"],
        ["matches", f"{sum(commit.pairs for commit in commits):,}"],
        ["micro-batches", f"{len(commits)}, median {statistics.median(taken):.2f} s"],
        ["versions of the alerts", f"{store.version}"],
        ["lost, doubled, invented", f"{lost}, {doubled}, {invented}"],
    ]
    if steps:
        typical, longest = statistics.median(waits), max(waits)
        rows.append(["an added alert is matched", f"after {typical:.2f} s (median), {longest:.2f} s at most"])
        rows.append(["", f"by the {max(steps)}. micro-batch that ends after it was added, at most"])
    print_table(["", ""], rows)
    say(f"matches: {out / 'matches'}; the store: {store.path}")
    if lost or doubled or invented:
        raise typer.Exit(FAILED)


def compare(matches: Path, store: Store, commits: list[Any], ticks: pa.Table) -> tuple[int, int, int]:
    """How many pairs are lost, doubled and invented, beside each batch's version in process."""
    lost = doubled = invented = done = 0
    for commit in commits:
        index = store.index(commit.version)
        part = ticks.slice(done, commit.events)
        done += commit.events
        events = Events.from_arrow(index.schema, part.drop_columns(["id"]))
        rows, ids = index.match(events).pairs()
        wanted = np.unique(np.stack([part["id"].to_numpy()[rows], np.asarray(ids, np.int64)], 1), axis=0)
        files = sorted(matches.glob(f"batch_id={commit.batch}/*.parquet"))
        tables = [pq.read_table(path, columns=["event_id", "subscription_id"]) for path in files]
        got = np.concatenate(
            [np.stack([t["event_id"].to_numpy(), t["subscription_id"].to_numpy()], 1) for t in tables]
            or [np.empty((0, 2), np.int64)]
        )
        found = np.unique(got, axis=0)
        both = len(np.unique(np.concatenate([wanted, found]), axis=0))
        doubled += len(got) - len(found)
        invented += both - len(wanted)
        lost += both - len(found)
    return lost + len(ticks) - done, doubled, invented
