"""Workloads that look like what applications store.

    name            an application of
    lonlat          areas on a map around places where people are, in degrees
    equality-led    a product number and a few ranges: the classified advertisement
    stock-alerts    price, change, volume and time alerts on symbols; the demo's workload
    market          daily quotes, and alerts on them that come in four shapes

Popularity follows Zipf's law where it is skewed, in subscriptions and events alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import OptionError
from rangecast.types.attributes import Category, Float, Int, Timestamp
from rangecast.types.schema import Schema
from rangecast.workloads.registry import Draw, Drawn, DrawnColumns, at_least, in_unit_range, named

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
    lows: DrawnColumns = {}
    highs: DrawnColumns = {}
    columns: DrawnColumns = {}
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
    lows: DrawnColumns = {"product": product, "price": price_low, "rating": rating_low}
    highs: DrawnColumns = {"product": product, "price": price_high}
    columns: DrawnColumns = {
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
    lows: DrawnColumns = {
        "symbol": symbol,
        "price": price_low,
        "change": change_low,
        "volume": volume_low,
        "at": at_low,
    }
    highs: DrawnColumns = {"symbol": symbol, "price": price_high, "change": change_high, "at": at_high}
    columns: DrawnColumns = {
        "symbol": tickers[theirs],
        "price": np.round(opening[theirs] * (1 + change), 2),
        "change": change,
        "volume": volume,
        "at": _OPENING + times.astype("timedelta64[us]"),
    }
    return Drawn(schema, lows, highs, columns)


@named(
    "market", "four shapes of alerts, with and without an equality, on values that walk together",
    200_000, 20_000,
)  # fmt: skip
def market(
    draw: Draw,
    n: int,
    m: int,
    *,
    symbols: int = 100,
    days: int = 250,
    skew: float = 1.0,
    symbol_close: float = 1.0,
    symbol_volume: float = 1.0,
    symbol_low_high: float = 1.0,
    close_volume: float = 1.0,
    equality: float = 1.0,
    mixed: float = 0.0,
) -> Drawn:
    """Quotes of random walks, a day and a symbol each, by day; alerts on symbols by Zipf's law.

    An alert is of one of four shapes, in proportion to the weights of the same names: the symbol and a
    range of the close; the symbol and a volume at least; the symbol, a low at most and a high at least;
    a range of the close and a volume at least, of any symbol. It is drawn around the quote of its symbol
    on some day. A share `equality` of those that name their symbol keeps it, and a share `mixed` of all
    takes over what a second shape says of attributes that its own leaves open. Every symbol has as many
    quotes as any other, since a day brings one of each.
    """
    at_least("market", 1, symbols=symbols, days=days)
    in_unit_range("market", equality=equality, mixed=mixed)
    weights = np.array([symbol_close, symbol_volume, symbol_low_high, close_volume], np.float64)
    if weights.min() < 0 or not weights.sum() > 0:
        raise OptionError(
            "workload 'market': the weights of the shapes must not be negative, nor all 0, "
            f"got {', '.join(f'{weight:g}' for weight in weights)}"
        )
    rng = draw.subscriptions
    quotes, usual = _walks(rng, days, symbols)
    mine = rng.choice(symbols, n, p=zipf_shares(symbols, skew))
    when = rng.integers(0, days, n)
    level = quotes["close"][when, mine]
    # Half the width of a range, and how far below and above the level a day must reach.
    near = rng.uniform(0.0, 0.04, n)
    below, above = rng.uniform(0.0, 0.02, (2, n))
    busy = usual[mine] * np.exp(rng.uniform(0.2, 1.6, n))

    shapes = np.zeros((n, 4), bool)
    own, second = rng.choice(4, (2, n), p=weights / weights.sum())
    shapes[np.arange(n), own] = True
    both = rng.random(n) < mixed
    shapes[both, second[both]] = True
    close, volume, low_high = shapes[:, [0, 3]].any(axis=1), shapes[:, [1, 3]].any(axis=1), shapes[:, 2]
    symbol = _tickers(symbols)[mine]
    symbol[~shapes[:, :3].any(axis=1) | (rng.random(n) >= equality)] = None
    bounds = {
        # A range and no equality by accident: the ends are more than a cent apart before they are rounded.
        "close_low": (close, np.round(level * (1 - near) - 0.006, 2)),
        "close_high": (close, np.round(level * (1 + near) + 0.006, 2)),
        "low_high": (low_high, np.round(level * (1 - below), 2)),
        "high_low": (low_high, np.round(level * (1 + above), 2)),
        "volume_low": (volume, np.round(busy)),
    }
    said = {name: np.where(rows, column, np.nan) for name, (rows, column) in bounds.items()}
    lows: DrawnColumns = {
        "symbol": symbol,
        "high": said["high_low"],
        "close": said["close_low"],
        "volume": said["volume_low"],
    }
    highs: DrawnColumns = {"symbol": symbol, "low": said["low_high"], "close": said["close_high"]}

    drawn = np.sort(draw.events.integers(0, days * symbols, m))
    columns: DrawnColumns = {"symbol": _tickers(symbols)[drawn % symbols]}
    columns |= {name: table.reshape(-1)[drawn] for name, table in quotes.items()}
    prices = (Float(name) for name in ("open", "high", "low", "close"))
    return Drawn(Schema(Category("symbol"), *prices, Int("volume")), lows, highs, columns)


def _walks(
    rng: np.random.Generator, days: int, symbols: int
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float64]]:
    """Quotes as tables of (days, symbols), and each symbol's usual volume."""
    shape = (days, symbols)
    daily = rng.uniform(0.01, 0.03, symbols)
    first = np.exp(rng.normal(4.0, 0.8, symbols)) + 1
    close = first * np.exp(np.cumsum(daily * rng.standard_normal(shape), axis=0))
    # It opens near the last close, and the day reaches a little beyond both ends.
    last = np.concatenate([first[None], close[:-1]])
    opening = last * np.exp(0.3 * daily * rng.standard_normal(shape))
    beyond = 0.5 * daily * np.abs(rng.standard_normal((2, *shape)))
    high = np.maximum(opening, close) * (1 + beyond[0])
    low = np.minimum(opening, close) * (1 - beyond[1])
    usual = np.exp(rng.normal(13.0, 1.0, symbols))
    volume = np.round(usual * np.exp(0.5 * rng.standard_normal(shape))).astype(np.int64)
    prices = {"open": opening, "high": high, "low": low, "close": close}
    return {name: np.round(price, 2) for name, price in prices.items()} | {"volume": volume}, usual


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
