"""Workloads that look like what applications store.

    name            an application of
    lonlat          areas on a map around places where people are, in degrees
    equality-led    a product number and a few ranges: the classified advertisement
    stock-alerts    price, change, volume and time alerts on symbols; the demo's workload

Popularity follows Zipf's law where it is skewed, in subscriptions and events alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.types.attributes import Category, Float, Int, Timestamp
from rangecast.types.schema import Schema
from rangecast.workloads.registry import Columns, Draw, Drawn, at_least, in_unit_range, named

_OPENING = np.datetime64("2026-03-02T14:30:00", "us")
_SESSION = 390 * 60 * 1_000_000  # six and a half hours, in microseconds


def zipf_shares(n: int, skew: float) -> npt.NDArray[np.float64]:
    """Shares of n ranks by Zipf's law; skew 0 makes them equal.

    >>> zipf_shares(4, 1.0).round(2).tolist()
    [0.48, 0.24, 0.16, 0.12]
    """
    weights = np.arange(1, n + 1, dtype=np.float64) ** -skew
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


@named("lonlat", "float rectangles of very unlike sizes, in clusters of unlike popularity", 256_000, 50_000)
def lonlat(
    draw: Draw,
    n: int,
    m: int,
    *,
    places: int = 400,
    skew: float = 1.0,
    spread: float = 0.15,
    size: float = 0.02,
) -> Drawn:
    """Degrees; places by Zipf's law, centres normal around them, sides lognormal around `size`."""
    at_least("lonlat", 1, places=places)
    rng = draw.subscriptions
    shares = zipf_shares(places, skew)
    at = {"lon": rng.uniform(-180, 180, places), "lat": rng.uniform(-55, 70, places)}
    limits = {"lon": 180.0, "lat": 90.0}
    mine = rng.choice(places, n, p=shares)
    theirs = draw.events.choice(places, m, p=shares)
    lows: Columns = {}
    highs: Columns = {}
    columns: Columns = {}
    for name, end in limits.items():
        centre = at[name][mine] + spread * rng.standard_normal(n)
        reach = size / 2 * np.exp(rng.standard_normal(n))
        lows[name] = np.clip(centre - reach, -end, end)
        highs[name] = np.clip(centre + reach, -end, end)
        columns[name] = np.clip(at[name][theirs] + spread * draw.events.standard_normal(m), -end, end)
    schema = Schema(*(Float(name, -end, end) for name, end in limits.items()))
    return Drawn(schema, lows, highs, columns)


@named(
    "equality-led", "equality on an attribute of many values decides nearly all, ranges the rest",
    1_000_000, 100_000,
)  # fmt: skip
def equality_led(
    draw: Draw, n: int, m: int, *, products: int = 50_000, ranged: float = 0.5, price_width: int = 2_500
) -> Drawn:
    """Every subscription names a product; a share `ranged` bounds the price, and one the rating."""
    at_least("equality-led", 1, products=products, price_width=price_width)
    in_unit_range("equality-led", ranged=ranged)
    rng = draw.subscriptions
    product = rng.integers(0, products, n)
    top = 9_999
    price_low = rng.integers(0, top + 1, n).astype(np.float64)
    price_high = np.minimum(price_low + rng.integers(1, price_width + 1, n), top)
    no_price = rng.random(n) >= ranged
    price_low[no_price] = price_high[no_price] = np.nan
    rating_low = np.where(rng.random(n) < ranged, np.round(rng.uniform(1, 5, n), 1), np.nan)
    schema = Schema(Int("product", 0, products - 1), Int("price", 0, top), Float("rating", 1.0, 5.0))
    lows: Columns = {"product": product, "price": price_low, "rating": rating_low}
    highs: Columns = {"product": product, "price": price_high}
    columns: Columns = {
        "product": draw.events.integers(0, products, m),
        "price": draw.events.integers(0, top + 1, m),
        "rating": np.round(draw.events.uniform(1, 5, m), 1),
    }
    return Drawn(schema, lows, highs, columns)


@named(
    "stock-alerts", "a category of skewed popularity, one-sided ranges of mixed types, missing values",
    200_000, 1_000_000,
)  # fmt: skip
def stock_alerts(
    draw: Draw, n: int, m: int, *, symbols: int = 5_000, skew: float = 1.0, volatility: float = 0.02
) -> Drawn:
    """Alerts on a day's trades; symbols by Zipf's law in alerts and trades alike.

    An alert is one of five: price above, price below, a price band, a change beyond what a day
    brings, a large volume. One in ten holds for a part of the day only, and one in a thousand
    names no symbol (a large change of anything at a large volume). A trade has a normal change of
    `volatility` on its symbol's opening price; one in a hundred reports no volume.
    """
    at_least("stock-alerts", 1, symbols=symbols)
    rng = draw.subscriptions
    shares = zipf_shares(symbols, skew)
    tickers = _tickers(symbols)
    opening = np.round(np.exp(rng.normal(3.5, 1.0, symbols)), 2) + 1
    usual = np.exp(rng.normal(5.0, 0.5, symbols))
    mine = rng.choice(symbols, n, p=shares)

    kind = rng.choice(5, n, p=[0.3, 0.3, 0.15, 0.15, 0.1])
    # How many standard deviations away an alert lies: beyond 2.8 a trade seldom reaches it.
    far = 2.8 + rng.exponential(1.0, n)
    price_low, price_high, change_low, change_high, volume_low = np.full((5, n), np.nan)
    level = opening[mine]
    above, below, band, move, busy = (kind == k for k in range(5))
    price_low[above] = (level * (1 + volatility * far))[above]
    price_high[below] = (level * np.maximum(1 - volatility * far, 0.01))[below]
    price_low[band] = (level * (1 + volatility * far))[band]
    price_high[band] = (level * (1 + volatility * (far + 0.5)))[band]
    up = rng.random(n) < 0.5
    change_low[move & up] = (volatility * far)[move & up]
    change_high[move & ~up] = (-volatility * far)[move & ~up]
    volume_low[busy] = (usual[mine] * np.exp(np.minimum(far, 6)))[busy]
    symbol = tickers[mine]
    anything = rng.random(n) < 0.001
    symbol[anything] = None
    for column in (price_low, price_high, change_high):
        column[anything] = np.nan
    change_low[anything] = (volatility * (far + 1))[anything]
    volume_low[anything] = 10_000
    # Cents and hundredths of a per cent, as a person would write them.
    price_low, price_high = np.round(price_low, 2), np.round(price_high, 2)
    change_low, change_high = np.round(change_low, 4), np.round(change_high, 4)
    volume_low = np.round(volume_low)
    start = rng.integers(0, _SESSION // 60_000_000, n) * 60_000_000
    stop = np.minimum(start + rng.integers(15, 121, n) * 60_000_000, _SESSION)
    at_low, at_high = (_OPENING + x.astype("timedelta64[us]") for x in (start, stop))
    always = rng.random(n) >= 0.1
    at_low[always] = at_high[always] = np.datetime64("NaT", "us")

    rng = draw.events
    theirs = rng.choice(symbols, m, p=shares)
    change = np.round(np.maximum(rng.normal(0, volatility, m), -0.99), 4)
    volume = np.round(usual[theirs] * np.exp(rng.standard_normal(m)))
    volume[rng.random(m) < 0.01] = np.nan
    times = np.sort(rng.integers(0, _SESSION, m))
    schema = Schema(
        Category("symbol"),
        Float("price", 0.0, 10_000.0),
        Float("change", -1.0, 1.0),
        Int("volume", 0, 10_000_000),
        Timestamp("at", str(_OPENING), str(_OPENING + np.timedelta64(_SESSION, "us"))),
    )
    lows: Columns = {
        "symbol": symbol,
        "price": price_low,
        "change": change_low,
        "volume": volume_low,
        "at": at_low,
    }
    highs: Columns = {"symbol": symbol, "price": price_high, "change": change_high, "at": at_high}
    columns: Columns = {
        "symbol": tickers[theirs],
        "price": np.round(opening[theirs] * (1 + change), 2),
        "change": change,
        "volume": volume,
        "at": _OPENING + times.astype("timedelta64[us]"),
    }
    return Drawn(schema, lows, highs, columns)


def _tickers(n: int) -> npt.NDArray[np.object_]:
    """n different words of capital letters, three letters or more, as an array of objects."""
    length = 3
    while 26**length < n:
        length += 1
    # A stride without a common factor with 26 walks through all words, so that neighbours in
    # popularity do not look alike.
    codes = (np.arange(n, dtype=np.int64) * 7_919) % 26**length
    digits = np.stack([codes // 26**k % 26 for k in reversed(range(length))], axis=1)
    letters = digits.astype(np.uint8) + np.uint8(ord("A"))
    return np.ascontiguousarray(letters).view(f"S{length}").ravel().astype(str).astype(object)
