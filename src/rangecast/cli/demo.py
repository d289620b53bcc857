"""`rangecast demo`: alerts on a day's trades (demo.py), from generated files to matches in Parquet.

On Spark it is the pipeline: ingest, publish, match_files. In process (--no-spark) each step is a function and
takes what the one before it left. Both end in a table, a picture (demo.py) and what to try next.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from rangecast.cli.console import FAILED, print_table, say
from rangecast.cli.match import (
    available_cores,
    match_with_bar,
    read_subscriptions,
    rejects_beside,
    report_rejects,
)
from rangecast.cli.spark import start_session
from rangecast.cli.workloads import events_table, write_table
from rangecast.client import Client, ClientError
from rangecast.engine import Index, open_index
from rangecast.errors import SetupError, StorageError, extra_hint
from rangecast.loading import PAIR_WRITERS, EventFile, FileMatch, OutputFile, Rejects
from rangecast.memory import readable
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.simd.compiler import running_seconds
from rangecast.store.store import Store
from rangecast.types.attributes import Category, Float, Int, Timestamp
from rangecast.types.schema import Schema
from rangecast.workloads import Workload, workload

# What people type; each becomes a row with its reason in the side file.
BROKEN = ("price above 10", "price < ", "prize > 5", "symbol = IBM", "change between 0.2 and 0.1")
_TAIL = 20
# for a session of seconds: no page, and Java compiles quickly rather than well, which halves its start
_BRIEF = ("spark.ui.enabled=false", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Files:
    """Where the demo keeps what it makes."""

    schema: Path
    texts: Path
    bounds: Path
    events: Path
    matches: Path

    @classmethod
    def under(cls, folder: Path) -> Files:
        """The files in a folder."""
        names = ("schema.toml", "alerts-text.parquet", "alerts-bounds.parquet", "trades.parquet")
        return cls(*(folder / name for name in (*names, "matches.parquet")))


def demo(
    subscriptions: Annotated[int, typer.Option(min=2, help="Number of alerts.")] = 200_000,
    events: Annotated[int, typer.Option(min=1, help="Number of trades.")] = 1_000_000,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo-output"),
    threads: Annotated[
        int, typer.Option(min=1, help="Threads that match.", show_default="all cores")
    ] = available_cores(),
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Use a local Spark, or only this process.")
    ] = True,
) -> None:
    """Match a day of made-up trades against price alerts: a table, a picture, and how fast it was.

    On Spark the alerts are ingested into a store, a snapshot is published, and workers match the trades
    in files. With --no-spark this process does everything.

    Half of the alerts are conditions in text and half are bounds in columns. A few texts are broken on
    purpose: they are rejected with their reasons and stop nothing.

    \b
    Example:
      rangecast demo --subscriptions 20000 --events 100000
    """
    if spark and importlib.util.find_spec("pyspark") is None:
        raise SetupError(
            f"the demo on Spark needs PySpark: {extra_hint('spark')}, or run rangecast demo --no-spark"
        )
    out.mkdir(parents=True, exist_ok=True)
    files = Files.under(out)
    said = f"drawing {subscriptions:,} alerts and {events:,} trades"
    home = out / "store" if spark else None
    if home is not None:
        say(f"{said} while Spark starts")
        drawing = partial(generate, files, subscriptions, events)
        with quiet_spark(out / "spark.log", drawing, _BRIEF) as started:
            rs, session, market = started
            pairs = run_pipeline(rs, session, files, home, out)
    else:
        say(said)
        market = generate(files, subscriptions, events)
        pairs = run_here(Schema.from_toml(files.schema), files, threads)
    found = np.asarray(pairs["event_id"]) - 1, np.asarray(pairs["subscription_id"]) - 1
    say()
    print_table(HEADER, busiest(market, *found), numbers=True)
    picture = out / "day.png"
    if draw_day(market, *found, picture):
        say(f"\na picture of the busiest symbol's day: {picture}")
    else:
        say(f"no picture: it needs Matplotlib; {extra_hint('bench')}")
    suggest(market, found, files, home)


def generate(files: Files, n_subscriptions: int, n_events: int) -> Market:
    """Draw the day and write it, with a few broken texts among the others."""
    market = draw_market(n_subscriptions, n_events)
    half = n_subscriptions // 2
    broken = pa.table({"id": range(-len(BROKEN), 0), "condition": BROKEN})
    files.schema.write_text(SCHEMA.to_toml(), encoding="utf-8")
    write_table(pa.concat_tables([market.conditions(0, half), broken]), files.texts)
    write_table(market.bounds.slice(half), files.bounds)
    write_table(market.trades, files.events)
    return market


def run_here(schema: Schema, files: Files, threads: int) -> pa.Table:
    """All steps in this process."""
    with Rejects(rejects_beside(files.matches)) as aside:
        say("ingesting the alerts: half of them texts, half of them bounds")
        start = running_seconds()
        parts = ingest(schema, files, aside)
        ingested = running_seconds() - start
        say("building the index")
        start = running_seconds()
        index = build(schema, parts)
        built = running_seconds() - start
        say("matching the trades")
        outcome = match(index, schema, files, aside, threads)
    report(index, outcome, ingested, built, threads)
    report_rejects(aside)
    say(f"matches: {files.matches}; the input is beside it")
    return pq.read_table(files.matches)


def ingest(schema: Schema, files: Files, aside: Rejects) -> list[Subscriptions]:
    """Load both files, rejecting what cannot be loaded."""
    return [read_subscriptions(schema, str(path), aside) for path in (files.texts, files.bounds)]


def build(schema: Schema, parts: list[Subscriptions]) -> Index:
    """Put the subscriptions into an index."""
    index = open_index("auto", schema)
    for part in parts:
        index.insert(part)
    return index


def match(index: Index, schema: Schema, files: Files, aside: Rejects, threads: int) -> FileMatch:
    """Match the events batch by batch and write the pairs."""
    with EventFile(schema, str(files.events)) as events, OutputFile(files.matches) as target:
        writer = PAIR_WRITERS["parquet"](target.stream)
        return match_with_bar(index, events, writer, aside, threads=threads)


def report(index: Index, outcome: FileMatch, ingested: float, built: float, threads: int) -> None:
    """Print what was done, as a short table."""
    stats = index.stats()
    seconds = max(outcome.match_seconds, 1e-9)
    rows = [
        ["alerts", f"{stats['subscriptions']:,}"],
        ["ingested in", f"{ingested:.2f} s"],
        [f"index {stats['index']!r} built in", f"{built:.2f} s"],
        ["bytes per alert", f"{stats['bytes_per_subscription']:,}"],
        ["trades", f"{outcome.n_events:,}"],
        ["notifications", f"{outcome.n_pairs:,}"],
        [f"matched in ({threads} threads)", f"{outcome.match_seconds:.2f} s"],
        ["read, matched and written in", f"{outcome.seconds:.2f} s"],
        ["trades per second", f"{outcome.n_events / seconds:,.0f}"],
    ]
    print_table(["", ""], rows)
    typer.echo()


def run_pipeline(rs: Any, spark: Any, files: Files, home: Path, out: Path) -> pa.Table:
    """Ingest the files of alerts into a store, match the trades against it, say what was done."""
    schema, matches = Schema.from_toml(files.schema), out / "matches"
    shutil.rmtree(home, ignore_errors=True)
    store = Store.open(home, schema)
    ingested = []
    for path in (files.texts, files.bounds):
        say(f"ingesting {path.name} into the store")
        # absolute: the JVM has a working folder of its own
        frame = spark.read.parquet(str(path.absolute()))
        ingested.append(rs.ingest(frame, schema, store, publish=path == files.bounds))
    say("matching the trades, in files")
    done = rs.match_files(spark, files.events, store, matches, overwrite=True)
    rejected = [
        f"alert {row.id}: {row.reason.splitlines()[0]}"
        for step in ingested
        if step.rejected_rows and step.rejected is not None
        for row in step.rejected.collect()
    ]
    steps: dict[str, float] = {}
    for step in ingested:
        for name, seconds in step.seconds.items():
            steps[name] = steps.get(name, 0.0) + seconds
    seconds = sum(done.seconds.values())
    pairs = pa.concat_tables(pq.read_table(path) for path in sorted(matches.glob("part-*.parquet")))
    matched = len(np.unique(np.asarray(pairs["event_id"])))
    parts = ", ".join(f"{name} {taken:.1f}" for name, taken in steps.items())
    rows = [
        ["alerts", f"{done.subscriptions:,} (and {len(rejected):,} rejected)"],
        ["ingested and published in", f"{sum(steps.values()):.1f} s ({parts})"],
        ["snapshot", f"version {done.version}, {readable(done.index_bytes or 0)}"],
        ["trades", f"{done.rows:,} in {done.files} pieces"],
        ["trades that fire an alert", f"{matched:,} ({matched / max(done.rows or 1, 1):.1%})"],
        ["notifications", f"{done.pairs:,}"],
        ["read, matched and written in", f"{seconds:.1f} s"],
        ["trades per second", f"{(done.rows or 0) / seconds:,.0f}"],
    ]
    print_table(["", ""], rows)
    typer.echo()
    for line in rejected:
        say(f"rejected: {line}")
    say(f"matches: {matches}; store: {home}; Spark's log: {out / 'spark.log'}")
    return pairs


@contextmanager
def quiet_spark(
    log: Path, meanwhile: Callable[[], _T], conf: Sequence[str] = ()
) -> Iterator[tuple[Any, Any, _T]]:
    """A Spark session whose processes write to a log, and not on the terminal; a failure shows its end.

    Something else is done in a thread while it starts: gives the module, the session, and what that gave.
    """
    with open(log, "wb") as file, _stderr_into(file.fileno()), ThreadPoolExecutor(1) as pool:
        other = pool.submit(meanwhile)
        spark = start_session(None, conf)
        try:
            made = other.result()
        except BaseException:
            spark.stop()
            raise
    from rangecast import spark as rs

    try:
        yield rs, spark, made
    except BaseException:
        for line in log.read_text(errors="replace").splitlines()[-_TAIL:]:
            say(line)
        raise
    finally:
        spark.stop()


@contextmanager
def _stderr_into(target: int) -> Iterator[None]:
    """Have processes that start in the block inherit another stderr."""
    before = os.dup(2)
    os.dup2(target, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def suggest(
    market: Market,
    found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    files: Files,
    home: Path | None,
) -> None:
    """Say which three commands to try next."""
    name = called_name()
    say()
    say("to try next:")
    source = (
        f"--store {home}" if home is not None else f"--schema {files.schema} --subscriptions {files.bounds}"
    )
    if home is not None and len(found[0]):
        alert, event = example(market, *found)
        say(f"  {name} explain {source} --id {alert} --event '{json.dumps(event)}'")
        say(f"  {name} store list {home} --limit 5")
    else:
        say(f"  {name} schema show {files.schema}")
        say(f"  {name} demo   # the same on Spark, with a store")
    say(f"  {name} match {source} --events {files.events} --keep symbol --keep price --out found.csv")


def called_name() -> str:
    """What to type for `rangecast`: the path by which it was called, if the shell does not find the name."""
    called = sys.argv[0]
    by_path = os.sep in called and Path(called).name == "rangecast" and shutil.which("rangecast") is None
    return called if by_path else "rangecast"


# A day on a made-up market, for the demo: prices that walk, and alerts that people have set around them.
#
# Every symbol that trades is watched, popular ones more. A price moves little from trade to trade, so an
# alert fires when the price crosses its level, in the direction that was asked for: a trade carries the price
# before it. Most levels lie within some per cent of the opening price, where people set them, and the day
# reaches the nearest of them alone.
#
#     alert                    of ten   condition
#     crosses upwards          4        symbol = 'AAPL' and previous < 187.5 and price >= 187.5
#     crosses downwards        3        symbol = 'AAPL' and previous > 171.2 and price <= 171.2
#     far from the opening     2        symbol = 'AAPL' and change >= 0.06 (or at most -0.06)
#     a large trade            1        symbol = 'AAPL' and volume >= 25000
#
# One in five holds for a part of the day alone: `at between ... and ...`.

OPENING = np.datetime64("2026-03-02T14:30:00", "us")
SESSION = 390 * 60 * 1_000_000
SCHEMA = Schema(
    Category("symbol"),
    Float("price", 0.0, 10_000.0),
    Float("previous", 0.0, 10_000.0),
    Float("change", -1.0, 1.0),
    Int("volume", 0, 10_000_000),
    Timestamp("at", str(OPENING), str(OPENING + np.timedelta64(SESSION, "us"))),
)
KNOWN = (
    *("AAPL", "MSFT", "NVDA", "AMZN", "GOOG", "META", "TSLA", "AVGO", "LLY", "JPM", "V", "XOM", "UNH", "MA"),
    *(
        "COST",
        "PG",
        "HD",
        "JNJ",
        "ABBV",
        "BAC",
        "KO",
        "MRK",
        "CRM",
        "AMD",
        "CVX",
        "PEP",
        "TMO",
        "WMT",
        "ADBE",
    ),
    *("LIN", "ORCL", "ACN", "MCD", "CSCO", "ABT", "INTU", "GE", "IBM", "TXN", "QCOM", "DHR", "VZ", "PFE"),
)
_WAYS = 4


@dataclass(frozen=True)
class Market:
    """Trades in the order of time, and alerts; `of` and `watches` are the symbols of both, as numbers."""

    symbols: npt.NDArray[np.object_]
    opening: npt.NDArray[np.float64]
    of: npt.NDArray[np.int64]
    trades: pa.Table
    watches: npt.NDArray[np.int64]
    levels: npt.NDArray[np.float64]
    bounds: pa.Table

    def conditions(self, first: int, last: int) -> pa.Table:
        """Some alerts as texts, as people would write them."""
        rows = self.bounds.slice(first, last - first).to_pylist()
        return pa.table({"id": [row["id"] for row in rows], "condition": list(map(_text, rows))})


def draw_market(n_alerts: int, n_trades: int, seed: int = 20260302) -> Market:
    """A market of this many alerts and trades; the same for the same numbers."""
    rng = np.random.default_rng([seed, n_alerts, n_trades])
    n_symbols = int(np.clip(n_alerts // 100, 1, 1_500))
    symbols = _names(n_symbols)
    shares = np.arange(10, 10 + n_symbols) ** -0.6
    shares /= shares.sum()
    opening = np.round(np.exp(rng.normal(4.4, 0.7, n_symbols)) + 5, 2)
    usual = np.exp(rng.normal(5.0, 0.5, n_symbols))
    of = rng.choice(n_symbols, n_trades, p=shares)
    trades = _walk(rng, symbols, opening, usual, of)

    watches = rng.choice(n_symbols, n_alerts, p=shares)
    watches[:n_symbols] = np.arange(n_symbols)  # nothing trades that nobody watches
    way = rng.choice(_WAYS, n_alerts, p=[0.4, 0.3, 0.2, 0.1])
    up, down, far, large = (way == k for k in range(_WAYS))
    distance = 0.002 + np.abs(rng.normal(0.0, 0.08, n_alerts))
    levels = np.round(opening[watches] * (1 + np.where(up, distance, -np.minimum(distance, 0.9))), 2)
    # people like round numbers, the more so the higher the price
    step = np.where(opening[watches] > 100, 1.0, 0.25)
    round_ones = rng.random(n_alerts) < 0.6
    levels = np.where(round_ones, np.round(levels / step) * step, levels)
    levels = np.where(up, np.maximum(levels, opening[watches] + 0.01), levels)
    levels = np.where(down, np.minimum(levels, opening[watches] - 0.01), levels).round(2)
    change = np.round(0.04 + rng.exponential(0.03, n_alerts), 3)
    rising = rng.random(n_alerts) < 0.5
    volume = np.round(usual[watches] * np.exp(rng.uniform(4.0, 6.0, n_alerts)), -2)
    start = rng.integers(0, SESSION // 1_800_000_000, n_alerts) * 1_800_000_000
    at = OPENING + start.astype("timedelta64[us]")
    timed = rng.random(n_alerts) < 0.2
    none = np.full(n_alerts, np.nan)
    columns: dict[str, Any] = {
        "id": np.arange(1, n_alerts + 1),
        "symbol": symbols[watches],
        "price_low": np.where(up, levels, none),
        "price_high": np.where(down, levels, none),
        "previous_low": np.where(down, np.round(levels + 0.01, 2), none),
        "previous_high": np.where(up, np.round(levels - 0.01, 2), none),
        "change_low": np.where(far & rising, change, none),
        "change_high": np.where(far & ~rising, -change, none),
        "volume_low": np.where(large, volume, none),
        "at_low": np.where(timed, at, np.datetime64("NaT", "us")),
        "at_high": np.where(timed, at + np.timedelta64(7_200_000_000, "us"), np.datetime64("NaT", "us")),
    }
    arrays = {name: pa.array(column, from_pandas=True) for name, column in columns.items()}
    arrays["volume_low"] = arrays["volume_low"].cast(pa.int64())
    levels = np.where(up | down, levels, np.nan)
    return Market(symbols, opening, of, trades, watches, levels, pa.table(arrays))


def _walk(
    rng: np.random.Generator,
    symbols: npt.NDArray[np.object_],
    opening: npt.NDArray[np.float64],
    usual: npt.NDArray[np.float64],
    of: npt.NDArray[np.int64],
) -> pa.Table:
    """Trades of these symbols through the day: each price is that of the symbol's last trade and a step."""
    m = len(of)
    times = np.sort(rng.integers(0, SESSION, m))
    daily = np.exp(rng.normal(-4.6, 0.3, len(symbols)))
    order = np.argsort(of, kind="stable")
    own, when = of[order], times[order]
    first = np.concatenate([[True], own[1:] != own[:-1]]) if m else np.empty(0, bool)
    since = np.where(first, when, np.diff(when, prepend=0))
    steps = daily[own] * np.sqrt(since / SESSION) * rng.standard_normal(m)
    total = np.cumsum(steps)
    starts = np.flatnonzero(first)
    before = np.repeat(total[starts] - steps[starts], np.diff(np.append(starts, m)))
    price = np.maximum(np.round(opening[own] * np.exp(total - before), 2), 0.01)
    previous = np.where(first, opening[own], np.concatenate([[0.0], price[:-1]])[:m])
    back = np.empty(m, np.int64)
    back[order] = np.arange(m)
    price, previous = price[back], previous[back]
    return pa.table({
        "id": np.arange(1, m + 1),
        "symbol": pa.array(symbols[of]),
        "price": price,
        "previous": previous,
        "change": np.round(price / opening[of] - 1, 4),
        "volume": np.maximum(np.round(usual[of] * np.exp(rng.standard_normal(m))), 1).astype(np.int64),
        "at": OPENING + times.astype("timedelta64[us]"),
    })  # fmt: skip


def _names(n: int) -> npt.NDArray[np.object_]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    more = (a + b + c for a in "QXZJYKW" for b in letters for c in letters)
    known = dict.fromkeys(KNOWN)
    for name in more:
        if len(known) >= n:
            break
        known[name] = None
    return np.array(list(known)[:n], object)


def _text(row: dict[str, Any]) -> str:
    parts = [f"symbol = '{row['symbol']}'"]
    if row["price_low"] is not None:
        parts.append(f"previous < {row['price_low']:g} and price >= {row['price_low']:g}")
    if row["price_high"] is not None:
        parts.append(f"previous > {row['price_high']:g} and price <= {row['price_high']:g}")
    if row["change_low"] is not None:
        parts.append(f"change >= {row['change_low']:g}")
    if row["change_high"] is not None:
        parts.append(f"change <= {row['change_high']:g}")
    if row["volume_low"] is not None:
        parts.append(f"volume >= {row['volume_low']}")
    if row["at_low"] is not None:
        parts.append(f"at between '{row['at_low']:%Y-%m-%d %H:%M}' and '{row['at_high']:%Y-%m-%d %H:%M}'")
    return " and ".join(parts)


# What the demo shows of its day: a table of the busiest symbols, and a picture of one of them.

_ROWS = 8
HEADER = ("symbol", "trades", "opened", "closed", "change", "alerts", "fired", "notifications")


def busiest(market: Market, events: npt.NDArray[np.int64], alerts: npt.NDArray[np.int64]) -> list[list[str]]:
    """Rows for the symbols whose alerts fired most; `events` and `alerts` are the numbers of each match."""
    sent = np.bincount(market.of[events], minlength=len(market.symbols))
    trades = np.bincount(market.of, minlength=len(market.symbols))
    watched = np.bincount(market.watches, minlength=len(market.symbols))
    fired = np.bincount(market.watches[np.unique(alerts)], minlength=len(market.symbols))
    price = market.trades["price"].to_numpy()
    rows = []
    for symbol in np.argsort(-sent, kind="stable")[:_ROWS].tolist():
        own = np.flatnonzero(market.of == symbol)
        opened = float(market.opening[symbol])
        closed = float(price[own[-1]]) if len(own) else opened
        counts = (trades[symbol], watched[symbol], fired[symbol], sent[symbol])
        n_trades, n_alerts, n_fired, n_sent = (f"{n:,}" for n in counts)
        move = f"{closed / opened - 1:+.1%}"
        rows.append([
            str(market.symbols[symbol]), n_trades, f"{opened:.2f}", f"{closed:.2f}", move,
            n_alerts, n_fired, n_sent,
        ])  # fmt: skip
    return rows


def draw_day(
    market: Market, events: npt.NDArray[np.int64], alerts: npt.NDArray[np.int64], path: Path
) -> bool:
    """The day of the symbol with the most notifications: price, alerts that fired, levels that wait.

    False where Matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import dates
    from matplotlib import pyplot as plt

    sent = np.bincount(market.of[events], minlength=len(market.symbols))
    symbol = int(np.argmax(sent))
    own = np.flatnonzero(market.of == symbol)
    at = market.trades["at"].to_numpy()[own]
    price = market.trades["price"].to_numpy()[own]
    mine = market.of[events] == symbol
    per_trade = np.bincount(np.searchsorted(own, events[mine]), minlength=len(own))
    hit = np.flatnonzero(per_trade)
    levels = market.levels[(market.watches == symbol) & ~np.isnan(market.levels)]
    done = np.zeros(len(market.watches), bool)
    done[alerts] = True
    fired = market.levels[(market.watches == symbol) & done & ~np.isnan(market.levels)]

    reach = max(float(np.ptp(price)) * 0.35, 0.01 * float(price[0]))
    low, high = float(price.min()) - reach, float(price.max()) + reach
    drawing, (left, right) = plt.subplots(
        1, 2, figsize=(11, 5.2), width_ratios=(4, 1), sharey=True, layout="constrained"
    )
    left.plot(at, price, color="#33475b", linewidth=0.9, zorder=2)
    shown = left.scatter(
        at[hit], price[hit], s=14 + 9 * np.sqrt(per_trade[hit]), c=per_trade[hit], cmap="autumn_r",
        edgecolors="#7a2b00", linewidths=0.4, zorder=3,
    )  # fmt: skip
    left.axhline(float(market.opening[symbol]), color="#33475b", linewidth=0.7, linestyle=":")
    left.set(xlabel="time (UTC)", ylabel="price", ylim=(low, high))
    left.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]
    left.grid(True, alpha=0.25)
    drawing.colorbar(shown, ax=left, pad=0.01, aspect=40).ax.set_title("alerts\nper trade", fontsize=8)
    edges = np.linspace(low, high, 70)
    right.hist(levels, bins=edges.tolist(), orientation="horizontal", color="#c9d3dc", label="set")
    right.hist(fired, bins=edges.tolist(), orientation="horizontal", color="#e8590c", label="fired")
    right.set(xlabel="alerts by level")
    right.grid(True, axis="x", alpha=0.25)
    # above the plot: inside, some bar would always reach it
    right.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)
    name, day = market.symbols[symbol], np.datetime_as_string(OPENING, "D")
    drawing.suptitle(
        f"{name}, {day}: {len(own):,} trades, {np.count_nonzero(market.watches == symbol):,} alerts, "
        f"{int(sent[symbol]):,} notifications",
        fontsize=13,
    )
    drawing.savefig(path, dpi=130)
    plt.close(drawing)
    return True


def example(
    market: Market, events: npt.NDArray[np.int64], alerts: npt.NDArray[np.int64]
) -> tuple[int, dict[str, Any]]:
    """One match to look into: an alert and the trade that it fired at, as people would type it."""
    crossing = np.flatnonzero(~np.isnan(market.levels[alerts])) if len(alerts) else np.empty(0, np.int64)
    at = int(crossing[0]) if len(crossing) else 0
    row = market.trades.slice(int(events[at]), 1).to_pylist()[0]
    alert = int(market.bounds["id"][int(alerts[at])].as_py())
    wanted = {name: row[name] for name in ("symbol", "previous", "price", "change", "volume")}
    return alert, wanted | {"at": row["at"].isoformat()}


# `rangecast stream-demo`: ticks flow, alerts come and go, matches appear; ends by itself and checks itself.
#
# Three processes besides Spark's: this one runs the stream, one writes a file of ticks every half second,
# one adds an alert every second, gives some of them an end, and removes others. Afterwards every batch is
# matched once more in process, against the version that it was pinned to, and compared.

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


# `rangecast serve-demo`: a broker with many alerts and a made-up market, for two minutes.

SYMBOLS = [f"{a}{b}{c}" for a in "ABCDEFGHIJ" for b in "AEIOU" for c in "KLMNRST"]
_TOGETHER = 5_000


def serve_demo(
    alerts: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 100_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long it runs, in seconds.")] = 120.0,
    rate: Annotated[int, typer.Option(min=1, help="Ticks of the market per second.")] = 2_000,
    port: Annotated[int, typer.Option(min=0, help="Port to listen on; 0 takes a free one.")] = 8080,
) -> None:
    """Run a broker with alerts and a made-up market, and print the address of its page.

    It ends by itself, or on Ctrl-C; nothing is kept.
    """
    try:
        from rangecast.broker.broker import Broker, BrokerSettings
        from rangecast.broker.server import serving
        from rangecast.broker.space import Opening
    except ImportError as error:
        raise SetupError(f"rangecast serve-demo needs {error.name}: {extra_hint('serve')}") from None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = Broker(BrokerSettings(data=folder, port=port))
        schema = Schema(Category("symbol"), Float("price"), Int("volume"), Float("x"), Float("y"))
        with Opening(lambda news: say(f"rangecast: {news}")) as broker.opening:
            broker.ensure_space("main", schema)
        broker.opening = None
        url = stack.enter_context(serving(broker))
        client = stack.enter_context(Client(url))
        say(f"rangecast: the page is at {url}/")
        source = random.Random(1)
        say(f"rangecast: subscribing {alerts:,} alerts")
        for first in range(0, alerts, _TOGETHER):
            client.subscribe_many(_alert(source, n) for n in range(first, min(alerts, first + _TOGETHER)))
        end = time.monotonic() + seconds
        stopping = threading.Event()
        listeners = [
            threading.Thread(target=_listen, args=(url, f"watcher-{k}", stopping), daemon=True)
            for k in range(20)
        ]
        for listener in listeners:
            listener.start()
        say(f"rangecast: the market is open for {seconds:g} seconds; Ctrl-C ends it")
        try:
            _trade(client, source, rate, end)
        finally:
            stopping.set()
        (status,) = client.status()["spaces"]
        n_events, n_alerts = status["next"] - 1, status["subscriptions"]
        say(f"rangecast: {n_events:,} events for {n_alerts:,} subscriptions; the demo has ended")


def _alert(source: random.Random, n: int) -> dict[str, object]:
    low = source.uniform(10, 200)
    condition = f"symbol = '{source.choice(SYMBOLS)}' and price between {low:.2f} and {low * 1.02:.2f}"
    if n % 50 == 0:
        x, y = source.uniform(0, 100), source.uniform(0, 100)
        condition = f"x between {x:.1f} and {x + 5:.1f} and y between {y:.1f} and {y + 5:.1f}"
    return {"consumer": f"watcher-{n % 1000}", "name": f"alert-{n}", "condition": condition}


def _trade(client: Client, source: random.Random, rate: int, end: float) -> None:
    prices = {symbol: source.uniform(20, 180) for symbol in SYMBOLS}
    size = max(1, rate // 20)
    due = time.monotonic()
    while time.monotonic() < end:
        ticks = []
        for _ in range(size):
            symbol = source.choice(SYMBOLS)
            prices[symbol] *= source.uniform(0.995, 1.005)
            ticks.append({
                "symbol": symbol, "price": round(prices[symbol], 2), "volume": source.randrange(1, 1000),
                "x": round(source.uniform(0, 100), 2), "y": round(source.uniform(0, 100), 2),
            })  # fmt: skip
        client.publish(ticks)
        due += size / rate
        time.sleep(max(0.0, due - time.monotonic()))


def _listen(url: str, consumer: str, stopping: threading.Event) -> None:
    with Client(url) as client:
        try:
            for _ in client.stream(consumer, "now", notices=True):
                if stopping.is_set():
                    return
        except (ClientError, json.JSONDecodeError):
            return
