"""The packages that we measure ourselves against, one table of small adapters.

Every adapter has the same four parts; what is timed is `build` and `match`:

    unfit   why this peer cannot run this workload, or None
    build   the peer's structure over all subscriptions
    load    the first k events in the form that the peer takes, not timed (nor is our encoding)
    match   the ids of all matching pairs, in the peer's own form

Peers get the workload as plain numbers without nulls (`Plain`), so that they spend nothing on
parsing: strings are dictionary codes, times are microseconds. "Not bounded" is the widest bound
there is. A missing value lies below all others and an interval that is bounded on one side only
starts just above it, so that two comparisons an attribute give the exact answer.

A peer that is fast on equality only gets what a good engineer would write for it: subscriptions
that name one value of the attribute with most equalities are joined by hash on it, and only the
others by range. Where subscriptions come in a few shapes (which attributes they bound, and on which
sides), `duckdb-shapes` gives each shape a join of its own, with the tests that the shape needs and no
others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.workloads import Workload

_INT = (-(2**62) - 1, -(2**62), 2**62)
_FLOAT = (-np.inf, -np.finfo(np.float64).max, np.inf)
# Joins of one statement, and attributes of one join: beyond that a planner is measured, not a join.
_MOST_SHAPES = 16
_MOST_JOINED = 100


@dataclass(frozen=True)
class Plain:
    """A workload in numbers: one array per attribute for lows, highs and values."""

    workload: Workload
    threads: int

    @cached_property
    def _columns(self) -> tuple[list[Any], list[Any], list[Any]]:
        return tuple(zip(*(_plain(self.workload, name) for name in self.workload.schema.names), strict=True))

    @property
    def lows(self) -> list[npt.NDArray[Any]]:
        return self._columns[0]

    @property
    def highs(self) -> list[npt.NDArray[Any]]:
        return self._columns[1]

    @property
    def values(self) -> list[npt.NDArray[Any]]:
        return self._columns[2]

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self.workload.ids

    @cached_property
    def used(self) -> list[int]:
        """The attributes that some subscription bounds."""
        w = self.workload
        return [j for j, name in enumerate(w.schema.names) if name in w.lows or name in w.highs]

    @cached_property
    def equality(self) -> tuple[int, npt.NDArray[np.bool_]]:
        """The attribute with most equalities, and which subscriptions have one there."""
        equal = {j: self.lows[j] == self.highs[j] for j in self.used}
        best = max(equal, key=lambda j: int(np.count_nonzero(equal[j])))
        return best, equal[best]

    @cached_property
    def shapes(self) -> list[tuple[npt.NDArray[np.bool_], dict[int, str]]] | None:
        """The subscriptions of each shape, and how it bounds attributes; None if there are too many.

        How is "equal", "both", "low" or "high", for each attribute that the shape bounds.
        """
        kinds = ("", "low", "high", "both", "equal")
        number = np.zeros(self.workload.n_subscriptions, np.int64)
        said: list[dict[int, str]] = [{}]
        for j in self.used:
            _, least, most = _INT if self.lows[j].dtype.kind == "i" else _FLOAT
            how = (self.lows[j] > least) + 2 * (self.highs[j] < most)
            how[self.lows[j] == self.highs[j]] = kinds.index("equal")
            known, number = np.unique(number * len(kinds) + how, return_inverse=True)
            if len(known) > _MOST_SHAPES:
                return None
            pairs = [divmod(int(k), len(kinds)) for k in known]
            said = [said[k] | ({j: kinds[how]} if how else {}) for k, how in pairs]
        return [(number == k, bounds) for k, bounds in enumerate(said)]


@dataclass(frozen=True)
class Peer:
    """One row of the table."""

    name: str
    package: str
    unfit: Callable[[Plain], str | None]
    build: Callable[[Plain], Any]
    load: Callable[[Plain, int], Any]
    match: Callable[[Any, Any], Any]
    ids: Callable[[Any], npt.NDArray[np.int64]] = np.asarray
    most_events: Callable[[Plain], int] = lambda plain: plain.workload.n_events

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    def left_out(self, plain: Plain) -> str | None:
        """Why this peer is not measured on this workload, or None."""
        if not self.installed:
            return f"{self.package} is not installed"
        return "takes no lists of values" if plain.workload.has_lists else self.unfit(plain)


def _plain(w: Workload, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    sides = [w.lows.get(name), w.highs.get(name), w.columns[name]]
    if w.schema[name].kind == "category":
        sides = _coded(sides)
    whole = w.schema[name].kind != "float"
    missing, least, most = _INT if whole else _FLOAT
    numbers = [
        _numbers(side, n) for side, n in zip(sides, (w.n_subscriptions,) * 2 + (w.n_events,), strict=True)
    ]
    (low, open_low), (high, open_high), (value, absent) = numbers
    kind = np.int64 if whole else np.float64
    lows = np.where(open_low, np.where(open_high, missing, least), np.where(open_low, 0, low)).astype(kind)
    highs = np.where(open_high, most, np.where(open_high, 0, high)).astype(kind)
    values = np.where(absent, missing, np.where(absent, 0, value)).astype(kind)
    return lows, highs, values


def _numbers(column: npt.NDArray[Any] | None, n: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """A column as numbers and a mask of its nulls."""
    if column is None:
        return np.zeros(n), np.ones(n, bool)
    if column.dtype.kind == "M":
        return column.astype("datetime64[us]").astype(np.int64), np.isnat(column)
    if column.dtype.kind == "f":
        return column, np.isnan(column)
    return column, np.zeros(n, bool)


def _coded(sides: list[npt.NDArray[Any] | None]) -> list[npt.NDArray[Any] | None]:
    """Strings as positions in one dictionary, with NaN for null."""
    arrays = [None if side is None else pa.array(side, pa.string()) for side in sides]
    chunks = pa.chunked_array([a for a in arrays if a is not None]).combine_chunks()
    chunks = pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks
    codes = chunks.dictionary_encode().indices.cast(pa.float64()).to_numpy(zero_copy_only=False)
    out: list[npt.NDArray[Any] | None] = []
    start = 0
    for a in arrays:
        out.append(None if a is None else codes[start : start + len(a)])
        start += 0 if a is None else len(a)
    return out


def _needs(dimensions: tuple[int, ...], kinds: tuple[str, ...]) -> Callable[[Plain], str | None]:
    """A peer for fully bounded subscriptions over so many attributes of these types."""

    def unfit(plain: Plain) -> str | None:
        w = plain.workload
        if len(w.schema) not in dimensions:
            return f"is for {' or '.join(map(str, dimensions))}-D, not {len(w.schema)}-D"
        if any(a.kind not in kinds for a in w.schema):
            return f"is for attributes of type {' or '.join(kinds)}"
        ends = [*plain.lows, *plain.highs, *plain.values]
        extremes = {_INT[0], _INT[1], _INT[2], _FLOAT[0], _FLOAT[1], _FLOAT[2]}
        if any(end.size and ({end.min(), end.max()} & extremes) for end in ends):
            return "takes no open ends and no missing values"
        return None

    return unfit


def _ncls_build(plain: Plain) -> Any:
    from ncls import NCLS

    # Its intervals are half-open.
    return NCLS(plain.lows[0], plain.highs[0] + 1, plain.ids)


def _ncls_load(plain: Plain, k: int) -> Any:
    values = plain.values[0][:k]
    return values, values + 1, np.arange(k)


def _superintervals_build(plain: Plain) -> Any:
    from superintervals import IntervalMap

    return IntervalMap.from_arrays(
        plain.lows[0].astype(np.int32), plain.highs[0].astype(np.int32), plain.ids.tolist()
    )


def _strtree_build(plain: Plain) -> Any:
    import shapely

    return shapely.STRtree(shapely.box(*plain.lows, *plain.highs)), plain.ids


def _strtree_load(plain: Plain, k: int) -> Any:
    import shapely

    return shapely.points(plain.values[0][:k], plain.values[1][:k])


def _spatialindex_build(plain: Plain) -> Any:
    from rtree import index

    properties = index.Property(dimension=len(plain.lows))
    lows, highs = (np.stack(side, axis=1).astype(np.float64) for side in (plain.lows, plain.highs))
    return index.Index((plain.ids, lows, highs), properties=properties)


def _duckdb_build(plain: Plain) -> Any:
    import duckdb

    connection = duckdb.connect(config={"threads": plain.threads})
    arms = []
    for number, (rows, on) in enumerate(_arms(plain)):
        connection.register("arriving", pa.table(_sides(plain, rows)))
        connection.execute(f"CREATE TABLE s{number} AS SELECT * FROM arriving")
        connection.unregister("arriving")
        tests = [
            f"e.v{j} = s.low{j}" if j == on else f"e.v{j} >= s.low{j} AND e.v{j} <= s.high{j}"
            for j in plain.used
        ]
        arms.append(f"SELECT s.id FROM e JOIN s{number} s ON {' AND '.join(tests)}")
    return connection, " UNION ALL ".join(arms)


def _shapes_unfit(plain: Plain) -> str | None:
    if plain.shapes is None:
        return f"is for subscriptions of at most {_MOST_SHAPES} shapes"
    return "all subscriptions have one shape: see duckdb" if len(plain.shapes) == 1 else None


def _duckdb_shapes_build(plain: Plain) -> Any:
    import duckdb

    connection = duckdb.connect(config={"threads": plain.threads})
    arms = []
    for number, (rows, bounds) in enumerate(plain.shapes or []):
        connection.register("arriving", pa.table(_sides(plain, rows)))
        connection.execute(f"CREATE TABLE s{number} AS SELECT * FROM arriving")
        connection.unregister("arriving")
        tests = []
        for j, how in bounds.items():
            missing = (_INT if plain.values[j].dtype.kind == "i" else _FLOAT)[0]
            absent = bool((plain.values[j] == missing).any())
            if how == "equal":
                tests.append(f"e.v{j} = s.low{j}")
                continue
            # A missing value lies below all others, so one that is bounded above only needs both tests.
            if how != "high" or absent:
                tests.append(f"e.v{j} >= s.low{j}")
            if how != "low":
                tests.append(f"e.v{j} <= s.high{j}")
        arms.append(f"SELECT s.id FROM e JOIN s{number} s ON {' AND '.join(tests) or 'true'}")
    return connection, " UNION ALL ".join(arms)


def _duckdb_match(built: Any, events: pa.Table) -> npt.NDArray[np.int64]:
    connection, statement = built
    connection.register("e", events)
    return connection.execute(statement).fetchnumpy()["id"]


def _polars_build(plain: Plain) -> Any:
    import polars as pl

    arms = []
    for rows, on in _arms(plain):
        tests = []
        for j in plain.used:
            value, low, high = pl.col(f"v{j}"), pl.col(f"low{j}"), pl.col(f"high{j}")
            tests += [value == low] if j == on else [value >= low, value <= high]
        arms.append((pl.DataFrame(_sides(plain, rows)).lazy(), tests))
    return arms


def _polars_load(plain: Plain, k: int) -> Any:
    import polars as pl

    return pl.DataFrame(_events(plain, k)).lazy()


def _polars_match(arms: Any, events: Any) -> npt.NDArray[np.int64]:
    import polars as pl

    parts = [events.join_where(side, *tests).select("id") for side, tests in arms]
    return pl.concat(parts).collect()["id"].to_numpy()


def _join_unfit(plain: Plain) -> str | None:
    if len(plain.used) > _MOST_JOINED:
        return f"a join is for at most {_MOST_JOINED} attributes, not {len(plain.used)}"
    return None


def _arms(plain: Plain) -> list[tuple[npt.NDArray[np.bool_], int | None]]:
    """Subscriptions to join by hash on an attribute, and those to join by range alone."""
    on, equal = plain.equality
    arms = [(equal, on), (~equal, None)]
    return [(rows, key) for rows, key in arms if rows.any()] or [(~equal, None)]


def _sides(plain: Plain, rows: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
    sides = {"id": plain.ids[rows]}
    for j in plain.used:
        sides[f"low{j}"], sides[f"high{j}"] = plain.lows[j][rows], plain.highs[j][rows]
    return sides


def _events(plain: Plain, k: int) -> dict[str, npt.NDArray[Any]]:
    return {f"v{j}": plain.values[j][:k] for j in plain.used}


def _polars_most_events(plain: Plain) -> int:
    # A range join is evaluated on two comparisons first and its pairs are laid out whole.
    by_range = plain.workload.n_subscriptions - int(np.count_nonzero(plain.equality[1]))
    return max(50_000_000 // max(by_range, 1), 1)


_SPATIAL_DIMENSIONS = (2, 3, 4)

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "ncls", "ncls", _needs((1,), ("int",)), _ncls_build, _ncls_load,
            lambda tree, events: tree.all_overlaps_both(*events)[1],
        ),
        Peer(
            "superintervals", "superintervals", _needs((1,), ("int",)), _superintervals_build,
            lambda plain, k: plain.values[0][:k].astype(np.int32),
            lambda intervals, events: intervals.search_values_batch(events, events),
            lambda lists: np.array([i for row in lists for i in row], np.int64),
        ),
        Peer(
            "strtree", "shapely", _needs((2,), ("int", "float")), _strtree_build, _strtree_load,
            lambda built, points: built[1][built[0].query(points)[1]],
        ),
        Peer(
            "libspatialindex", "rtree", _needs(_SPATIAL_DIMENSIONS, ("int", "float")), _spatialindex_build,
            lambda plain, k: np.stack([v[:k] for v in plain.values], axis=1).astype(np.float64),
            lambda tree, points: tree.intersection_v(points, points)[0],
        ),
        Peer(
            "duckdb", "duckdb", _join_unfit, _duckdb_build,
            lambda plain, k: pa.table(_events(plain, k)), _duckdb_match,
        ),
        Peer(
            "duckdb-shapes", "duckdb", _shapes_unfit, _duckdb_shapes_build,
            lambda plain, k: pa.table(_events(plain, k)), _duckdb_match,
        ),
        Peer(
            "polars", "polars", _join_unfit, _polars_build, _polars_load, _polars_match,
            most_events=_polars_most_events,
        ),
    )
}  # fmt: skip
