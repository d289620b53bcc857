"""Vehicles that follow the streets of a town, and fences around its crossings.

    name       an application of
    vehicles   continual range queries over moving objects, which is what the VCR paper monitors

The streets are a grid. A vehicle begins at a crossing, goes along a street, and at each crossing goes
straight on, turns or turns round, by chance. All vehicles report in turn, step after step, so that the events
of one vehicle are successive states of it: what `rc.Tracker` takes, with the column `vehicle` as the key. A
fence is a rectangle around a crossing, larger for some than for others.

`circles` has the same fences as circles on a point, and `points` the events as points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.types.attributes import Float, Int
from rangecast.types.schema import Schema
from rangecast.workloads.registry import Draw, Drawn, Workload, at_least, in_unit_range, named

_WEST, _SOUTH = 13.0, 52.3
_METRES = 111_195.0  # of a degree of latitude


@named(
    "vehicles", "objects that move little from one event to the next, along the streets of a grid",
    100_000, 100_000,
)  # fmt: skip
def vehicles(
    draw: Draw,
    n: int,
    m: int,
    *,
    vehicles: int = 10_000,
    streets: int = 200,
    block: float = 0.002,
    step: float = 0.0004,
    turning: float = 0.4,
    reach: float = 0.001,
) -> Drawn:
    """Degrees: a block between two streets, a step of a vehicle, the reach of a fence, lognormal."""
    at_least("vehicles", 1, vehicles=vehicles)
    at_least("vehicles", 2, streets=streets)
    in_unit_range("vehicles", turning=turning)
    rng = draw.subscriptions
    corner = np.array([_WEST, _SOUTH])
    centres = corner + block * rng.integers(0, streets, (n, 2))
    reaches = reach * np.exp(0.5 * rng.standard_normal((n, 1))) * [1.0, 0.6]
    lows, highs = centres - reaches, centres + reaches
    k = min(vehicles, m)
    places = _driven(draw.events, k, -(-m // max(k, 1)), streets, step / block, turning)[:m]
    columns: dict[str, npt.NDArray[Any]] = {"vehicle": np.arange(m) % max(k, 1) + 1}
    for axis, name in enumerate(("lon", "lat")):
        columns[name] = np.round(corner[axis] + block * places[:, axis], 7)
    schema = Schema(Int("vehicle"), Float("lon", -180.0, 180.0), Float("lat", -90.0, 90.0))
    names = ("lon", "lat")
    return Drawn(
        schema,
        {name: np.round(lows[:, axis], 7) for axis, name in enumerate(names)},
        {name: np.round(highs[:, axis], 7) for axis, name in enumerate(names)},
        columns,
    )


def _driven(
    rng: np.random.Generator, k: int, steps: int, streets: int, step: float, turning: float
) -> npt.NDArray[np.float64]:
    """The places of k vehicles after each step, in blocks: (steps * k, 2), step after step."""
    at = rng.integers(0, streets, (k, 2)).astype(np.float64)
    headings = rng.integers(0, 4, k)
    ways = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float64)
    out = np.empty((steps, k, 2))
    for now in range(steps):
        out[now] = at
        ahead = at + step * ways[headings]
        # the next crossing on the way; whoever passes it stops there and chooses
        along = np.take_along_axis(at, (headings % 2)[:, None], 1)[:, 0]
        forward = headings < 2
        crossing = np.where(forward, np.floor(along + 1e-9) + 1, np.ceil(along - 1e-9) - 1)
        reached = np.take_along_axis(ahead, (headings % 2)[:, None], 1)[:, 0]
        passes = np.where(forward, reached >= crossing, reached <= crossing)
        at = ahead
        rows = np.flatnonzero(passes)
        at[rows, headings[rows] % 2] = crossing[rows]
        turns = rng.random(k) < turning
        changed = (headings + rng.integers(1, 4, k)) % 4
        headings = np.where(passes & turns, changed, headings)
        # at the end of a street the way back is the only one
        last = streets - 1
        outside = (at + step * ways[headings] < 0).any(axis=1) | (at + step * ways[headings] > last).any(
            axis=1
        )
        at = np.clip(at, 0, last)
        headings = np.where(outside, (headings + 2) % 4, headings)
    return out.reshape(-1, 2)


def circles(w: Workload, name: str = "at", start: int = 0, stop: int | None = None) -> dict[int, str]:
    """The fences of the workload as circles of the same height, on a point.

    >>> from rangecast.workloads import workload
    >>> next(iter(circles(workload("vehicles", 3, 3)).values()))[:9]
    'at within'
    """
    ids = w.ids[start:stop].tolist()
    south, north = w.lows["lat"][start:stop], w.highs["lat"][start:stop]
    east = (w.lows["lon"][start:stop] + w.highs["lon"][start:stop]) / 2
    metres = np.round((north - south) / 2 * _METRES, 1).tolist()
    centres = np.round(np.stack([east, (south + north) / 2], axis=1), 7).tolist()
    return {
        i: f"{name} within {r} m of ({x}, {y})" for i, r, (x, y) in zip(ids, metres, centres, strict=True)
    }


def points(w: Workload, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float64]:
    """The events of the workload as points, (n, 2)."""
    return np.stack([w.columns["lon"][start:stop], w.columns["lat"][start:stop]], axis=1)
