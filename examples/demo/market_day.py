"""`rangecast demo`: alerts on a day's trades, from generated files to matches in Parquet.

On Spark it is the pipeline: ingest, publish, match_files. In process (--no-spark) each step is a function and
takes what the one before it left. Both end in a table, a picture and what to try next.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from rangecast.cli.console import print_table, say
from rangecast.cli.match import (
    available_cores,
    match_with_bar,
    read_subscriptions,
    rejects_beside,
    report_rejects,
)
from rangecast.cli.spark import start_session
from rangecast.cli.workloads import write_table
from rangecast.engine import Index, open_index
from rangecast.errors import SetupError, extra_hint
from rangecast.loading import PAIR_WRITERS, EventFile, FileMatch, OutputFile, Rejects
from rangecast.memory import readable
from rangecast.model.subscriptions import Subscriptions
from rangecast.simd.compiler import running_seconds
from rangecast.store.store import Store
from rangecast.types.attributes import Category, Float, Int, Timestamp
from rangecast.types.schema import Schema

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
