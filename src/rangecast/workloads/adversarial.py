"""Workloads made to hurt.

    name              the assumption it breaks
    one-giant         no subscription is far larger than the others
    all-alike         bounds tell subscriptions apart
    near-misses       a predicate is as selective as its width says; early exit comes early
    mostly-matching   the answer is small beside the subscriptions
    mixed-widths      one cell size suits all
    hot-value         a value has few subscriptions

Each breaks one assumption that some index would like to make.
"""

from __future__ import annotations

import numpy as np

from rangecast.types.attributes import Int
from rangecast.types.schema import Schema
from rangecast.workloads.registry import Draw, Drawn, DrawnColumns, at_least, in_unit_range, named


@named("one-giant", "one subscription over everything among small ones", 200_000, 20_000)
def one_giant(draw: Draw, n: int, m: int, *, r: int = 100_000, w: int = 200) -> Drawn:
    """Squares of side at most w on r by r points; the last subscription spans the domain."""
    at_least("one-giant", 1, r=r, w=w)
    lows: DrawnColumns = {}
    highs: DrawnColumns = {}
    for name in ("x", "y"):
        lows[name] = draw.subscriptions.integers(0, r, n)
        highs[name] = np.minimum(lows[name] + draw.subscriptions.integers(0, w, n), r - 1)
        lows[name][-1:] = 0
        highs[name][-1:] = r - 1
    columns: DrawnColumns = {name: draw.events.integers(0, r, m) for name in ("x", "y")}
    return Drawn(Schema(Int("x", 0, r - 1), Int("y", 0, r - 1)), lows, highs, columns)


@named("all-alike", "every subscription has the same bounds", 100_000, 1_000)
def all_alike(draw: Draw, n: int, m: int, *, hits: float = 0.1) -> Drawn:
    """[400, 599] on both attributes of 0..999; a share `hits` of the events falls within."""
    in_unit_range("all-alike", hits=hits)
    rng = draw.events
    inside = rng.random(m) < hits
    lows: DrawnColumns = {name: np.full(n, 400, np.int64) for name in ("x", "y")}
    highs: DrawnColumns = {name: np.full(n, 599, np.int64) for name in ("x", "y")}
    # Outside on x alone, just beyond the bound as often as far away; y stays within.
    beyond = rng.choice(np.array([0, 200, 399, 600, 800, 999]), m)
    columns: DrawnColumns = {
        "x": np.where(inside, rng.integers(400, 600, m), beyond),
        "y": rng.integers(400, 600, m),
    }
    return Drawn(Schema(Int("x", 0, 999), Int("y", 0, 999)), lows, highs, columns)


@named("near-misses", "all predicates hold but the last, which looks as wide as the others", 100_000, 500)
def near_misses(draw: Draw, n: int, m: int, *, attributes: int = 8, hits: float = 0.01) -> Drawn:
    """Wide intervals on 0..999 that hold every event, until the last attribute.

    There an interval ends just below 500 or starts just above, and every event is 500: a cell of
    any width that holds 500 also holds an end of each subscription. A share `hits` spans 500.
    """
    at_least("near-misses", 1, attributes=attributes)
    in_unit_range("near-misses", hits=hits)
    rng = draw.subscriptions
    names = [f"a{j}" for j in range(1, attributes + 1)]
    lows: DrawnColumns = {name: rng.integers(0, 250, n) for name in names}
    highs: DrawnColumns = {name: rng.integers(750, 1_000, n) for name in names}
    last = names[-1]
    miss = rng.random(n) >= hits
    below = miss & (rng.random(n) < 0.5)
    above = miss & ~below
    highs[last][below] = rng.integers(496, 500, int(below.sum()))
    lows[last][above] = rng.integers(501, 505, int(above.sum()))
    columns: DrawnColumns = {name: draw.events.integers(250, 750, m) for name in names}
    columns[last] = np.full(m, 500, np.int64)
    return Drawn(Schema(*(Int(name, 0, 999) for name in names)), lows, highs, columns)


@named("mostly-matching", "99 % of the subscriptions match every event", 20_000, 300)
def mostly_matching(draw: Draw, n: int, m: int, *, attributes: int = 4, hits: float = 0.99) -> Drawn:
    """Intervals of 0..9999 around the events' range; the others miss it on one attribute."""
    at_least("mostly-matching", 1, attributes=attributes)
    in_unit_range("mostly-matching", hits=hits)
    rng = draw.subscriptions
    names = [f"a{j}" for j in range(1, attributes + 1)]
    lows: DrawnColumns = {name: rng.integers(0, 4_001, n) for name in names}
    highs: DrawnColumns = {name: rng.integers(5_999, 10_000, n) for name in names}
    misses_on = np.where(rng.random(n) < hits, -1, rng.integers(0, attributes, n))
    for j, name in enumerate(names):
        rows = np.flatnonzero(misses_on == j)
        highs[name][rows] = rng.integers(0, 4_000, len(rows))
        lows[name][rows] = rng.integers(0, highs[name][rows] + 1)
    columns: DrawnColumns = {name: draw.events.integers(4_000, 6_000, m) for name in names}
    return Drawn(Schema(*(Int(name, 0, 9_999) for name in names)), lows, highs, columns)


@named("mixed-widths", "short intervals, and 1 % that span half the domain", 1_000_000, 1_000)
def mixed_widths(draw: Draw, n: int, m: int, *, r: int = 250_000, w: int = 200, wide: float = 0.01) -> Drawn:
    """The intervals of `intervals-wide-domain`, a share `wide` of them stretched; wide=0 stretches none."""
    at_least("mixed-widths", 2, r=r)
    at_least("mixed-widths", 1, w=w)
    in_unit_range("mixed-widths", wide=wide)
    rng = draw.subscriptions
    lows = rng.integers(1, r, n)
    highs = np.minimum(lows + rng.integers(1, w + 1, n), r)
    stretched = rng.random(n) < wide
    starts = rng.integers(1, r - r // 2 + 1, n)
    lows[stretched] = starts[stretched]
    highs[stretched] = starts[stretched] + r // 2 - 1
    values = draw.events.integers(1, r + 1, m)
    return Drawn(Schema(Int("value", 1, r)), {"value": lows}, {"value": highs}, {"value": values})


@named("hot-value", "one value has nine in ten of the subscriptions", 1_000_000, 2_000)
def hot_value(
    draw: Draw,
    n: int,
    m: int,
    *,
    values: int = 100_000,
    hot: float = 0.9,
    hot_events: float = 0.1,
    w: int = 100,
) -> Drawn:
    """Equality on a key, where a share `hot` names one value, and a short range beside it."""
    at_least("hot-value", 1, values=values, w=w)
    in_unit_range("hot-value", hot=hot, hot_events=hot_events)
    rng = draw.subscriptions
    favourite = values // 2
    top = 99_999
    key = np.where(rng.random(n) < hot, favourite, rng.integers(0, values, n))
    low = rng.integers(0, top + 1, n)
    high = np.minimum(low + rng.integers(0, w, n), top)
    columns: DrawnColumns = {
        "key": np.where(draw.events.random(m) < hot_events, favourite, draw.events.integers(0, values, m)),
        "amount": draw.events.integers(0, top + 1, m),
    }
    lows: DrawnColumns = {"key": key, "amount": low}
    highs: DrawnColumns = {"key": key, "amount": high}
    return Drawn(Schema(Int("key", 0, values - 1), Int("amount", 0, top)), lows, highs, columns)
