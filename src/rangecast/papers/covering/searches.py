"""What the covering experiment takes times of: searches along the curve and by blocks, covers found, routing.

The cubes of a search need no run (extremal.py); here the searches are made, on an index in which none ends
early, and the cubes that they examined must be as many as the lemmas say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rangecast.covering import CoverIndex
from rangecast.covering.universe import Sides
from rangecast.model.events import Events
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.covering import extremal
from rangecast.papers.measuring import PROCESS, THREAD, take_rounds, timed
from rangecast.papers.report import ExperimentReport
from rangecast.routing import Network
from rangecast.types.attributes import Int
from rangecast.types.schema import Schema

BITS = 10
COVERAGES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
SEED = 2012
ATTEMPTS = 3
MOST_CUBES = 5_000_000


def n_stored(report: ExperimentReport) -> int:
    """How many subscriptions a search is made in."""
    return 5_000 if report.quick else 100_000


def draw_sides(n_dims: int, shortest: int, longest: int, n: int, rng: np.random.Generator) -> Sides:
    """Rectangles whose shortest side has `shortest` bits and whose longest has `longest`."""
    out = np.empty((n_dims, n), np.int64)
    for i in range(n):
        bits = rng.integers(shortest, longest + 1, n_dims)
        ends = rng.permutation(n_dims)[:2]
        bits[ends[0]], bits[ends[1]] = shortest, longest
        out[:, i] = rng.integers(1 << (bits - 1), 1 << bits)
    return out


def subscriptions_of(schema: Schema, sides: Sides, first_id: int) -> Subscriptions:
    """The subscriptions whose extremal rectangles have these sides (`covering/universe.py` has the cells)."""
    ids = np.arange(first_id, first_id + sides.shape[1])
    return Subscriptions(schema, ids, sides[0::2] - 3, (1 << BITS) - 2 - sides[1::2])


def _index(n_dims: int, queries: Sides, n: int, rng: np.random.Generator) -> CoverIndex:
    """An index of random subscriptions, none of which covers any of the queries."""
    span = (1 << BITS) - 4
    schema = Schema(*(Int(f"a{j}", 0, span) for j in range(n_dims // 2)))
    ends = np.sort(rng.integers(0, span + 1, (2, n_dims // 2, n)), axis=0)
    asked = subscriptions_of(schema, queries, 0)
    for q in range(queries.shape[1]):
        above = (ends[0] <= asked.lows[:, [q]]).all(0) & (ends[1] >= asked.highs[:, [q]]).all(0)
        ends = ends[:, :, ~above]
    index = CoverIndex(schema, bits=BITS, max_cubes=1 << 40)
    index.insert(Subscriptions(schema, np.arange(ends.shape[2]), ends[0], ends[1]))
    return index


def _seconds(work: Callable[[], Any]) -> float:
    return take_rounds(work, ATTEMPTS, clock=THREAD, enough=0.3).best


class TimedSearch(NamedTuple):
    """Searches of one shape: how many, and of each by coverage the microseconds, cubes and runs."""

    n: int
    micros: dict[float, float]
    cubes: dict[float, float]
    runs: dict[float, float]
    blocks: float


def time_searches(
    n_dims: int, shortest: int, longest: int, n_queries: int, n_boxes: int, seed: int
) -> TimedSearch:
    """Searches of one shape by the curve at every coverage, and by blocks, where nothing is to be found."""
    rng = np.random.default_rng([SEED, n_dims, longest - shortest, shortest, seed])
    sides = draw_sides(n_dims, shortest, longest, n_queries, rng)
    cubes = np.cumsum([extremal.count_cubes(column) for column in sides.T.tolist()])
    sides = sides[:, : max(3, int(np.searchsorted(cubes, MOST_CUBES)))]
    n = sides.shape[1]
    index = _index(n_dims, sides, n_boxes, rng)
    asked = subscriptions_of(index.schema, sides, 1 << 40)
    index.covers(asked, 0.9, "curve")
    index.covers(asked)
    found = TimedSearch(n, {}, {}, {}, 1e6 * _seconds(lambda: index.covers(asked)) / n)
    for coverage in COVERAGES:
        epsilon = 1 - coverage
        seconds = _seconds(lambda e=epsilon: index.covers(asked, e, "curve"))  # type: ignore[misc]
        stats = index.stats()
        assert stats["last_hits"] == 0
        assert stats["last_share"] >= coverage - 1e-9
        found.micros[coverage] = 1e6 * seconds / n
        found.cubes[coverage] = stats["last_cubes"] / n
        found.runs[coverage] = stats["last_runs"] / n
    # the paper's count is the search's
    assert round(found.cubes[1.0] * n) == cubes[n - 1]
    return found


def clustered(
    schema: Schema, n: int, centres: int, narrowest: int, widest: int, rng: np.random.Generator
) -> Subscriptions:
    """Boxes around some centres, half as wide as between narrowest and widest, evenly in logarithms."""
    span = (1 << BITS) - 4
    d = len(schema)
    middle = rng.integers(0, span + 1, (d, centres))[:, rng.integers(0, centres, n)]
    half = (2 ** rng.uniform(np.log2(narrowest), np.log2(widest), (d, n))).astype(np.int64)
    return Subscriptions(schema, np.arange(n), np.maximum(middle - half, 0), np.minimum(middle + half, span))


def _schema(n_attributes: int) -> Schema:
    return Schema(*(Int(f"a{j}", 0, (1 << BITS) - 4) for j in range(n_attributes)))


def find_covers(report: ExperimentReport) -> dict[str, dict[float, float]]:
    """How many of the true covers an approximate search finds."""
    n, n_asked = (2_000, 60) if report.quick else (100_000, 300)
    rows: list[list[Any]] = []
    series: dict[str, tuple[list[float], list[float]]] = {}
    for name, centres, narrowest, widest in (
        ("clustered", 50, 1, 200),
        ("scattered", n, 1, 200),
        ("alike in size", n, 8, 20),
    ):
        report.say(f"covers found: {name}")
        rng = np.random.default_rng(SEED)
        schema = _schema(2)
        subs = clustered(schema, n + n_asked, centres, narrowest, widest, rng)
        index = CoverIndex(schema, bits=5, max_cubes=1 << 40)
        index.insert(subs.select(np.arange(n)))
        asked = subs.select(np.arange(n, n + n_asked))
        truth = index.covered(asked)
        exact = _seconds(lambda index=index, asked=asked: index.covered(asked))  # type: ignore[misc]
        found = []
        for coverage in COVERAGES:
            epsilon = 1 - coverage
            got = index.covered(asked, epsilon, "curve")
            taken = _seconds(lambda index=index, asked=asked, e=epsilon: index.covered(asked, e, "curve"))  # type: ignore[misc]
            assert not (got & ~truth).any()
            share = float(got.sum() / truth.sum())
            found.append(share)
            rows.append([name, coverage, share, 1e6 * taken / n_asked, 1e6 * exact / n_asked])
        assert found[-1] == 1
        series[name] = (list(COVERAGES), found)
    series["what even spread would give"] = (list(COVERAGES), list(COVERAGES))
    columns = [
        "subscriptions",
        "coverage",
        "share of the covered found",
        "us per search",
        "us by blocks, exact",
    ]
    report.table("found", f"Covers found, 2 attributes, {n:,} subscriptions", columns, rows)
    report.plot("found", "Covered subscriptions that are found", "space coverage", "share found", series)
    report.text(
        "Not in the paper: the share of the volume that is searched is not the share of covers that are "
        "found. The largest cubes lie far from the query's point, where boxes much larger than the query "
        "are: where sizes vary widely (clustered, scattered) covers are found sooner than an even spread "
        "would suggest. Where subscriptions are alike in size, a cover is only a little larger than what "
        "it covers, near the query's corner, which is cut into the smallest cubes and searched last."
    )
    return {name: dict(zip(*line, strict=True)) for name, line in series.items()}


def route(report: ExperimentReport) -> None:
    """Routing tables and messages over epsilon, and without and with covering in a larger network."""
    size = (5, 60, 20) if report.quick else (40, 1_000, 20)
    modes = (None, 0.5, 0.3, 0.1, 0.0)
    # a small network first: compiling is not routing
    _route(report, [], "clustered", modes, 3, 40, 20)
    rows: list[list[Any]] = []
    tables: dict[str, tuple[list[float], list[float]]] = {}
    for name in ("clustered", "scattered"):
        entries = _route(report, rows, name, modes, *size)
        tables[name] = ([1.0, *modes[1:]], [e / size[1] for e in entries])
    if not report.quick:
        _route(report, rows, "clustered", (None, 0.0), 100, 2_000, 40)
    columns = [
        "subscriptions",
        "routers",
        "epsilon",
        "table entries a router",
        "of all subscriptions",
        "subscription messages",
        "event messages",
        "notifications",
        "us per subscription, all routers",
    ]
    report.table("routing", "Random trees of routers", columns, rows)
    report.plot(
        "routing",
        f"Routing tables of {size[0]} routers (1: no covering, 0: exact)",
        "epsilon",
        "table entries a router / subscriptions",
        tables,
    )
    report.text(
        "Every row of one workload has the same notifications: covering saves table entries and messages "
        "and changes nothing else. `none` means without covering; epsilon 0 is the exact search by blocks, "
        "and the others are searches along the curve with 5 bits per coordinate. Times are processor time."
    )


def _route(
    report: ExperimentReport,
    rows: list[list[Any]],
    name: str,
    modes: tuple[float | None, ...],
    n_routers: int,
    n: int,
    batch: int,
) -> list[float]:
    """One workload in each mode: table entries a router; a row of the table each."""
    schema = _schema(2)
    centres = 20 if name == "clustered" else n
    subs = clustered(schema, n, centres, 1, 200, np.random.default_rng(SEED))
    homes = np.random.default_rng(SEED + 1).integers(0, n_routers, n // batch).tolist()
    events = _events(schema, subs, np.random.default_rng(SEED + 2))
    entries = []
    answers = set()
    for epsilon in modes:
        mode = "none" if epsilon is None else f"{epsilon:g}"
        report.say(f"routing: {name}, {n_routers} routers, epsilon {mode}")
        method = "curve" if epsilon else None
        network = Network.random_tree(
            schema, n_routers, SEED, epsilon=epsilon, method=method, bits=5, max_cubes=1 << 40
        )
        parts = [subs.select(np.arange(i * batch, (i + 1) * batch)) for i in range(len(homes))]
        seconds, _ = timed(_subscribe, network, homes, parts, clock=PROCESS)
        notified = network.publish(0, events)
        answers.add((notified.n_pairs, int(notified.ids.sum())))
        stats = network.stats()
        entries.append(stats["table_entries"] / n_routers)
        rows.append(
            [
                f"{name}, {n:,}",
                n_routers,
                mode,
                entries[-1],
                entries[-1] / n,
                stats["subscription_messages"],
                stats["event_messages"],
                stats["notifications"],
                1e6 * seconds / n,
            ]
        )
    # covering never changes who hears of what
    assert len(answers) == 1
    return entries


def _subscribe(network: Network, homes: list[int], parts: list[Subscriptions]) -> None:
    for home, part in zip(homes, parts, strict=True):
        network.subscribe(home, part)


def _events(schema: Schema, subs: Subscriptions, rng: np.random.Generator) -> Events:
    """Events in the middle of some subscriptions, so that they find someone."""
    picked = rng.integers(0, len(subs), 200)
    return Events(schema, (subs.lows[:, picked] + subs.highs[:, picked]) // 2)
