"""Circles and polygons beside a compiled scan and shapely: python benchmarks/places.py

Each row is that many conditions on one point, around the towns of a country of three degrees, matched by

    auto       the library's own choice, from points as they come: coordinates included
    scan       a compiled loop over all areas, which evaluates the same geometry: for a circle the straight
               line to its centre, for a polygon the box around it first and its edges then
    STRtree    shapely's tree of boxes around the areas, asked for all points at once; a polygon is decided
               by shapely, and a circle by numpy

All three answers are compared, and their number of pairs is shown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import shapely

import rangecast as rc
from rangecast.simd.compiler import kernel
from rangecast.types.kernels import SCALE, in_polygon
from rangecast.types.places import EARTH_RADIUS, Point

KINDS = ("circles", "polygons", "large polygons")
Pairs = npt.NDArray[np.int64]


@kernel
def scan_circles(circles, spheres, rows, numbers):
    """All pairs of a point on the unit sphere and a circle that holds it; returns how many."""
    found = 0
    for e in range(len(spheres)):
        x, y, z = spheres[e, 0], spheres[e, 1], spheres[e, 2]
        for k in range(len(circles)):
            dx, dy, dz = x - circles[k, 0], y - circles[k, 1], z - circles[k, 2]
            if dx * dx + dy * dy + dz * dz <= circles[k, 3]:
                rows[found] = e
                numbers[found] = k
                found += 1
    return found


@kernel
def scan_polygons(regions, points, rows, numbers):
    """All pairs of a point on the grid and a polygon that holds it; returns how many."""
    found = 0
    extents = regions.extents
    for e in range(len(points)):
        x, y = points[e, 0], points[e, 1]
        for k in range(len(extents)):
            near = extents[k, 0] <= x <= extents[k, 2] and extents[k, 1] <= y <= extents[k, 3]
            if near and in_polygon(regions, k, x, y):
                rows[found] = e
                numbers[found] = k
                found += 1
    return found


def drawn(n: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Places of seven decimals: half of them near one of fifty towns."""
    towns = rng.uniform([12, 51], [15, 54], (50, 2))
    near = rng.normal(towns[rng.integers(0, 50, n)], 0.05)
    wide = rng.uniform([12, 51], [15, 54], (n, 2))
    return np.round(np.where(rng.random((n, 1)) < 0.5, near, wide), 7)


def polygons(n: int, corners: int, rng: np.random.Generator) -> list[npt.NDArray[np.float64]]:
    """Rings around places: corners at rising angles and at distances of their own, so that none is convex."""
    centres = drawn(n, rng)
    angles = np.sort(rng.random((n, corners)) * 2 * np.pi, axis=1)
    sizes = rng.uniform(0.001, 0.01, (n, 1)) * rng.uniform(0.4, 1.0, (n, corners))
    rings = centres[:, None, :] + np.stack([sizes * np.cos(angles), sizes * np.sin(angles) / 2], axis=2)
    return list(np.round(rings, 7))


def conditions(kind: str, n: int, rng: np.random.Generator) -> tuple[list[str], list[shapely.Polygon]]:
    """The texts, and what shapely's tree holds: polygons, or boxes around circles."""
    if kind == "circles":
        centres, metres = drawn(n, rng), np.round(rng.uniform(50, 1_500, n), 1)
        texts = [
            f"at within {r} m of ({x}, {y})"
            for (x, y), r in zip(centres.tolist(), metres.tolist(), strict=True)
        ]
        high = np.degrees(metres / EARTH_RADIUS) * 1.0001
        wide = high / np.cos(np.radians(np.abs(centres[:, 1]) + high))
        around = np.stack([wide, high], axis=1)
        return texts, list(shapely.box(*(centres - around).T, *(centres + around).T))
    rings = polygons(n, 8 if kind == "polygons" else 100, rng)
    shapes = [shapely.Polygon(ring) for ring in rings]
    return [f"at in polygon '{shapely.to_wkt(shape, rounding_precision=7)}'" for shape in shapes], shapes


def on_sphere(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Places on the unit sphere."""
    east, north = np.radians(points).T
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1)


def by_tree(kind: str, own: rc.Schema, tree: shapely.STRtree, points: npt.NDArray[np.float64]) -> Pairs:
    """The pairs that shapely gives, as (2, n)."""
    places = shapely.points(points)
    if kind != "circles":
        return np.asarray(tree.query(places, predicate="intersects"), np.int64)
    rows, numbers = tree.query(places)
    at = own["at"]
    assert isinstance(at, Point)
    circles, sphere = at.regions().circles, on_sphere(points)
    kept = ((sphere[rows] - circles[numbers, :3]) ** 2).sum(axis=1) <= circles[numbers, 3]
    return np.stack([rows[kept], numbers[kept]])


def best(rounds: int, run: Callable[[], Pairs]) -> tuple[float, Pairs]:
    """The shortest time of some calls, and the last answer in order."""
    seconds, pairs = np.inf, np.empty((2, 0), np.int64)
    for _ in range(rounds):
        start = time.perf_counter()
        pairs = run()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, pairs[:, np.lexsort(pairs[::-1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", action="append", choices=KINDS, help="one kind alone; may be repeated")
    options = parser.parse_args()
    n, m = options.subscriptions, options.events
    few = min(m, 200)  # of the events, for the scan
    print(f"{n:,} subscriptions, {m:,} events ({few} for the scan)")
    print("| areas | parse, us each | pairs | auto, us/event | scan, us | times | STRtree, us | times |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind in options.kind or KINDS:
        own = rc.Schema(rc.Point("at"))
        texts, shapes = conditions(kind, n, np.random.default_rng(3))
        start = time.perf_counter()
        subs = rc.Subscriptions.parse(own, ids=np.arange(n), texts=texts)
        parsing = (time.perf_counter() - start) / n * 1e6
        index, tree = rc.open_index("auto", own), shapely.STRtree(shapes)
        index.insert(subs)
        points = drawn(m, np.random.default_rng(5))
        at = own["at"]
        assert isinstance(at, Point)
        # a subscription and its region have one number, if no two are alike
        regions = at.regions()
        assert len(regions.starts) == n + 1

        def by_index(points: npt.NDArray[np.float64], index: rc.Index = index, own: rc.Schema = own) -> Pairs:
            found = index.match(rc.Events.from_arrays(own, {"at": points}))
            return np.stack([np.repeat(np.arange(len(points)), found.counts), found.ids])

        def by_scan(kind=kind, regions=regions, points=points[:few]) -> Pairs:
            rows, numbers = np.empty(1 << 22, np.int64), np.empty(1 << 22, np.int64)
            if kind == "circles":
                found = scan_circles(regions.circles, on_sphere(points), rows, numbers)
            else:
                grid = np.rint(points * SCALE).astype(np.int64)
                found = scan_polygons(regions, grid, rows, numbers)
            return np.stack([rows[:found], numbers[:found]])

        fast, ours = best(options.rounds, lambda points=points: by_index(points))
        slow, scanned = best(2, by_scan)
        theirs, of_tree = best(
            options.rounds,
            lambda kind=kind, own=own, tree=tree, points=points: by_tree(kind, own, tree, points),
        )
        assert np.array_equal(ours, of_tree)
        assert np.array_equal(ours[:, ours[0] < few], scanned)
        fast, slow, theirs = fast / m * 1e6, slow / few * 1e6, theirs / m * 1e6
        print(
            f"| {kind} | {parsing:.1f} | {ours.shape[1]:,} | {fast:.2f} | {slow:.1f} | {slow / fast:.0f} | "
            f"{theirs:.2f} | {theirs / fast:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
