"""A day on a made-up market, for the demo: prices that walk, and alerts that people have set around them.

Every symbol that trades is watched, popular ones more. A price moves little from trade to trade, so an alert
fires when the price crosses its level, in the direction that was asked for: a trade carries the price before
it. Most levels lie within some per cent of the opening price, where people set them, and the day reaches the
nearest of them alone.

    alert                    of ten   condition
    crosses upwards          4        symbol = 'AAPL' and previous < 187.5 and price >= 187.5
    crosses downwards        3        symbol = 'AAPL' and previous > 171.2 and price <= 171.2
    far from the opening     2        symbol = 'AAPL' and change >= 0.06 (or at most -0.06)
    a large trade            1        symbol = 'AAPL' and volume >= 25000

One in five holds for a part of the day alone: `at between ... and ...`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.types.attributes import Category, Float, Int, Timestamp
from rangecast.types.schema import Schema

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
