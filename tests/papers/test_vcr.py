"""The rectangle index: the paper's numbers, its two storages, our runs, and what only they can get wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast import workloads
from rangecast.errors import CapacityError, OptionError
from rangecast.papers.vcr import kernels as runs_kernels
from rangecast.papers.vcr.structures import (
    ConstructRectangles,
    RectangleListsIndex,
    RectangleRunsIndex,
    next_prime,
    sorted_by_key,
)
from rangecast.types.attributes import LAST, MISSING, PRESENT
from strategies import events, int_schema, random_events, random_subscriptions, subscriptions

LISTS = [
    {"storage": storage, "decomposition": decomposition}
    for storage in ("array", "hash")
    for decomposition in ("sd", "od")
]
ALL = [{}, *LISTS]


def named(options):
    return "-".join(map(str, options.values())) or "runs"


def expected(subs, batch):
    return [sorted(row) for row in match_boxes(subs, batch)]


def opened(schema, subs, **options):
    index = rc.open_index("vcr", schema, **options)
    index.insert(subs)
    return index


@pytest.fixture(autouse=True)
def no_tails(monkeypatch):
    """Runs are built from the first box on: a scanned tail would hide them."""
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)


# the paper's geometry


def covers_of(constructs, a, b):
    """All constructs that hold a point, by looking at every construct."""
    found = []
    for y, x in itertools.product(range(constructs.ry), range(constructs.rx)):
        for j, i in itertools.product(range(constructs.ky + 1), range(constructs.kx + 1)):
            if x <= a <= x + (1 << i) and y <= b <= y + (1 << j):
                found.append(constructs.id(x, y, 1 << i, 1 << j))
    return sorted(found)


def test_ids_of_the_paper():
    small = ConstructRectangles(20, 20, 2, 2)
    assert small.id(0, 0, 1, 1) == 0
    assert small.id(0, 0, 4, 4) == 8
    assert small.id(1, 0, 1, 1) == 9
    assert small.id(0, 1, 1, 1) == 9 * 20
    assert (small.n_per_corner, small.n_constructs) == (9, 3600)
    uneven = ConstructRectangles(7, 5, 3, 1)
    numbers = [
        uneven.id(x, y, 1 << i, 1 << j)
        for y in range(5)
        for x in range(7)
        for j in range(2)
        for i in range(4)
    ]
    assert numbers == list(range(uneven.n_constructs))
    assert [uneven.id(*uneven.rectangle(n)) for n in numbers] == numbers


@pytest.mark.parametrize("wrong", [(0, 0, 3, 1), (0, 0, 8, 1), (20, 0, 1, 1), (0, -1, 1, 1), (0, 0, 0, 1)])
def test_ids_that_no_construct_has(wrong):
    with pytest.raises(OptionError, match="a construct has its corner within 20 x 20 and sides"):
        ConstructRectangles(20, 20, 2, 2).id(*wrong)


def test_decompositions_of_the_paper():
    small = ConstructRectangles(20, 20, 2, 2)
    simple = small.decompose(3, 3, 11, 6)
    assert simple == [
        (3, 3, 4, 4), (7, 3, 4, 4), (11, 3, 2, 4), (13, 3, 1, 4),
        (3, 7, 4, 2), (7, 7, 4, 2), (11, 7, 2, 2), (13, 7, 1, 2),
    ]  # fmt: skip
    overlapped = small.decompose(3, 3, 11, 6, overlapped=True)
    assert overlapped == [(x, y, 4, 4) for y in (3, 5) for x in (3, 7, 10)]
    assert ConstructRectangles(20, 20, 0, 3).decompose(0, 0, 1, 5) == [(0, 0, 1, 4), (0, 4, 1, 1)]
    with pytest.raises(OptionError, match="width or height 0 has no construct"):
        small.decompose(3, 3, 0, 6)


@given(
    sides=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    logs=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    overlapped=st.booleans(),
)
def test_decompositions_make_the_rectangle(sides, logs, overlapped):
    pieces = ConstructRectangles(64, 64, *logs).decompose(2, 5, *sides, overlapped=overlapped)
    points = {(x + dx, y + dy) for x, y, w, h in pieces for dx in range(w + 1) for dy in range(h + 1)}
    assert points == {(2 + dx, 5 + dy) for dx in range(sides[0] + 1) for dy in range(sides[1] + 1)}
    if overlapped:
        assert len({piece[2:] for piece in pieces}) == 1
    else:
        assert sum(w * h for _, _, w, h in pieces) == sides[0] * sides[1]


@pytest.mark.parametrize(("kx", "ky"), [(2, 2), (2, 1), (0, 2), (1, 0), (0, 0)])
def test_covering_set_and_distance_table(kx, ky):
    constructs = ConstructRectangles(12, 11, kx, ky)
    lx, ly = 1 << kx, 1 << ky
    table = constructs.distances()
    assert len(table) == constructs.n_covering == (2 * lx + kx) * (2 * ly + ky)
    for b, a in itertools.product(range(11), range(12)):
        held = constructs.covering(a, b).tolist()
        assert held == covers_of(constructs, a, b)
        if a >= lx and b >= ly:
            assert held == (constructs.pivot(a, b) + table).tolist()
        else:
            assert len(held) < constructs.n_covering


def test_covering_set_of_the_paper():
    assert ConstructRectangles(20, 20, 2, 2).n_covering == 100
    assert ConstructRectangles(300, 200, 4, 3).n_covering == 36 * 19


# the storages


@pytest.mark.parametrize("options", ALL, ids=named)
def test_every_point_of_a_small_domain(options, size):
    """All points, borders and outside included; rectangles of every small size, touching the borders."""
    schema = rc.Schema(rc.Int("x", 0, 11), rc.Int("y", 0, 9))
    rng = np.random.default_rng(3)
    n = size(400)
    lows = np.stack([rng.integers(0, 12, n), rng.integers(0, 10, n)])
    highs = np.minimum(lows + rng.integers(0, 7, (2, n)), [[11], [9]])
    subs = rc.Subscriptions(schema, np.arange(n), lows, highs)
    points = np.array(list(itertools.product(range(-2, 14), range(-2, 12)))).T
    batch = rc.Events(schema, np.ascontiguousarray(points, np.int64))
    index = opened(schema, subs, Lx=4, Ly=2, **options)
    assert rows_of(index.match(batch)) == expected(subs, batch)


@pytest.mark.parametrize("options", ALL, ids=named)
@given(data=st.data())
def test_odd_bounds_and_sides(options, data):
    schema = int_schema(data.draw(st.integers(1, 3)))
    sides = {name: data.draw(st.sampled_from([None, 1, 2, 8])) for name in ("Lx", "Ly")}
    cells = data.draw(st.sampled_from([None, 5, 7, 64]))
    subs = data.draw(subscriptions(schema))
    batch = data.draw(events(schema))
    index = opened(schema, subs, cells=cells, **sides, **options)
    assert rows_of(index.match(batch)) == expected(subs, batch)


@given(data=st.data())
def test_split_frames_equal_oracle(data):
    """Coarse cells and split rectangles: whole cells copied, crossed ones checked, none twice."""
    schema = int_schema(2)
    subs = data.draw(subscriptions(schema))
    batch = data.draw(events(schema))
    index = opened(schema, subs, split=True, cells=data.draw(st.sampled_from([5, 6, 9])))
    assert rows_of(index.match(batch)) == expected(subs, batch)


@pytest.mark.parametrize("options", [{}, {"split": True}, {"cells": 32, "split": True}, *LISTS], ids=named)
def test_floats_are_exact(options, size):
    w = workloads.workload("lonlat", size(1000), size(150), places=3)
    subs, batch = w.subscriptions(), w.events()
    # corners and their neighbours, where rounding to cells would show
    corners = np.concatenate([subs.lows[:, :20], subs.highs[:, :20]], axis=1)
    near = np.concatenate([corners - 1, corners, corners + 1], axis=1)
    index = opened(w.schema, subs, **options)
    for events_ in (batch, rc.Events(w.schema, near)):
        assert rows_of(index.match(events_)) == expected(subs, events_)


def test_wide_domain_equals_oracle(size):
    w = workloads.workload("rectangles-wide-domain", size(3000), size(100))
    subs, batch = w.subscriptions(), w.events()
    index = opened(w.schema, subs)
    want = expected(subs, batch)
    assert rows_of(index.match(batch)) == want
    fine = opened(w.schema, subs, cells=4096)
    assert rows_of(fine.match(batch)) == want
    # sparse rows in buckets of many places, so that runs are trimmed at both ends
    assert fine._parts[0].part.runs.shift > 0


@pytest.mark.parametrize("options", ALL, ids=named)
def test_other_attributes_are_checked(options, size):
    schema = int_schema(4)
    subs = random_subscriptions(schema, size(500), seed=1, boxes=2)
    batch = random_events(schema, 30, seed=2)
    index = opened(schema, subs, on=("a2", "a1"), **options)
    assert rows_of(index.match(batch)) == expected(subs, batch)
    assert rows_of(opened(schema, subs, split=True).match(batch)) == expected(subs, batch)


@pytest.mark.parametrize("options", LISTS, ids=named)
def test_lists_take_inserts_and_deletes(options, size):
    """Few at a time (unlinked one by one), many at once (swept), then nodes are used again."""
    schema = rc.Schema(rc.Int("x", 0, 60), rc.Int("y", 0, 60))
    subs = random_subscriptions(schema, size(600), seed=4)
    batch = random_events(schema, 40, seed=5, span=60)
    index = opened(schema, subs, **options)
    before = index.stats()
    ids = subs.ids.values
    few, many = ids[::40], ids[1::2]
    for gone in (few, many):
        assert index.delete(gone) == []
    left = subs.select(~np.isin(ids, np.concatenate([few, many])))
    assert rows_of(index.match(batch)) == expected(left, batch)
    assert index.stats()["entries"] < before["entries"]
    index.insert(subs.select(np.isin(ids, np.concatenate([few, many]))))
    after = index.stats()
    assert rows_of(index.match(batch)) == expected(subs, batch)
    assert (after["entries"], after["activated"]) == (before["entries"], before["activated"])
    assert len(index._lists.nodes) == before["entries"]
    assert index.delete(ids) == []
    assert index.stats()["activated"] == 0


def test_hash_table_grows_and_reports(size):
    w = workloads.workload("rectangles", size(4000), size(100))
    small = opened(w.schema, w.subscriptions(), storage="hash", table=100, max_load=0.9)
    large = opened(w.schema, w.subscriptions(), storage="hash", table=200_000)
    assert small.match(w.events()) == large.match(w.events())
    for index, most in ((small, 0.9), (large, 0.5)):
        stats = index.stats()
        assert stats["headers"] == next_prime(stats["headers"])
        assert stats["load_factor"] == pytest.approx(stats["activated"] / stats["headers"], abs=1e-4)
        assert stats["load_factor"] <= most
        assert 1 <= stats["mean_probes"] <= stats["max_probes"]
    assert large.stats()["headers"] == next_prime(200_000)


def test_array_and_hash_hold_the_same_lists(size):
    w = workloads.workload("rectangles", size(2000), size(50))
    kinds = [opened(w.schema, w.subscriptions(), Lx=16, Ly=8, **options) for options in LISTS]
    stats = [index.stats() for index in kinds]
    assert stats[0]["entries"] == stats[2]["entries"] > stats[1]["entries"] == stats[3]["entries"]
    assert stats[0]["activated"] == stats[2]["activated"]
    assert all(s["sides"] == (16, 8) for s in stats)
    assert kinds[0]._catalog.n_boxes == size(2000)
    # 20 constructs a corner, and three cells beside the domain on each axis
    assert stats[0]["headers"] == 20 * 303 * 203


@pytest.mark.parametrize("storage", ["array", "hash"])
def test_enumerating_equals_distances(storage, size):
    w = workloads.workload("rectangles", size(2000), size(100))
    one, other = (
        opened(w.schema, w.subscriptions(), storage=storage, lookup=lookup)
        for lookup in ("distance", "enumerate")
    )
    assert one.match(w.events()) == other.match(w.events())


def test_plane_is_fitted_again_when_many_more_come(size):
    """A first subscription says nothing of where the others will lie."""
    schema = rc.Schema(rc.Int("x"), rc.Int("y"))
    subs = random_subscriptions(schema, size(4000) + 1100, seed=6, span=200, bounded=1.0)
    index = rc.open_index("vcr", schema, storage="array")
    index.insert(subs.select([0]))
    index.delete([subs.ids[0]])
    cells = index._plane.shape
    index.insert(subs.select(np.arange(1, len(subs))))
    assert index._plane.shape > cells
    batch = random_events(schema, 20, seed=7, span=200)
    assert rows_of(index.match(batch)) == expected(subs.select(np.arange(1, len(subs))), batch)


def test_sides_follow_the_data(size):
    for w, sides in ((20, (8, 8)), (40, (16, 16))):
        drawn = workloads.workload("rectangles", size(5000), 1, wx=w, wy=w)
        assert opened(drawn.schema, drawn.subscriptions(), storage="array").stats()["sides"] == sides


# runs


def test_runs_memory_follows_the_subscriptions(size):
    """A domain of 10^12 points must cost no more than a small one."""
    n = size(20_000)
    bytes_each = []
    for r in (1_000, 1_000_000):
        w = workloads.workload("rectangles", n, 10, rx=r, ry=r, alpha=0.0)
        index = opened(w.schema, w.subscriptions())
        stats = index.stats()
        bytes_each.append((stats["bytes"] - stats["catalog_bytes"]) / n)
        assert rows_of(index.match(w.events())) == expected(w.subscriptions(), w.events())
    assert bytes_each[1] < 150
    assert bytes_each[0] < 250


def test_runs_of_giants_stay_few(size):
    n = size(3000)
    rng = np.random.default_rng(2)
    schema = rc.Schema(rc.Int("x", 0, 65_535), rc.Int("y", 0, 65_535))
    ends = np.sort(rng.integers(0, 65_536, (2, n, 2)), axis=2)
    subs = rc.Subscriptions(schema, np.arange(n), ends[:, :, 0].copy(), ends[:, :, 1].copy())
    index = opened(schema, subs)
    assert index.stats()["entries"] <= 80 * n
    batch = rc.Events(schema, rng.integers(0, 65_536, (2, 20)))
    assert rows_of(index.match(batch)) == expected(subs, batch)


def test_runs_grow_the_answer_when_the_guess_was_low(size):
    """Every event that the guess looks at is empty, the others match everything."""
    n = size(2000)
    schema = int_schema(2)
    subs = rc.Subscriptions(schema, np.arange(n), np.full((2, n), 3), np.full((2, n), 5))
    codes = np.full((2, 130), 4)
    codes[:, :: 1 + 130 // 64] = 9
    m = opened(schema, subs).match(rc.Events(schema, codes))
    assert m.counts.tolist() == [0 if e % 3 == 0 else n for e in range(130)]


def test_runs_of_sorted_events_keep_their_rows(size, monkeypatch):
    """A large batch is matched along the Z curve; the rows come back in the order of the events."""
    monkeypatch.setattr("rangecast.papers.vcr.structures.SORTED_EVENTS", 10)
    w = workloads.workload("rectangles-wide-domain", size(1000), 60, rx=200, ry=150)
    subs, batch = w.subscriptions(), w.events()
    assert rows_of(opened(w.schema, subs).match(batch)) == expected(subs, batch)


def test_runs_sort_is_stable():
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 5000, 400)
    keys, entries = sorted_by_key(keys, np.arange(400, dtype=np.int32), 5000)
    assert (np.diff(keys) >= 0).all()
    assert (np.diff(entries)[np.diff(keys) == 0] > 0).all()


@given(y=st.integers(0, 70), length=st.integers(1, 70), k=st.integers(0, 7))
def test_aligned_blocks_are_few(y, length, k):
    n = runs_kernels.count_blocks(y, y + length - 1, k)
    assert -(-length >> k) <= n <= (length >> k) + 2 * k + 1


def test_unbounded_and_missing(size):
    schema = int_schema(2)
    lows = np.array([[MISSING, PRESENT, MISSING, 3, 3], [MISSING, 2, MISSING, MISSING, PRESENT]])
    highs = np.array([[LAST, LAST, MISSING, 3, LAST], [LAST, 2, 7, LAST, LAST]])
    subs = rc.Subscriptions(schema, np.arange(5), lows, highs)
    values = [MISSING, PRESENT, 0, 2, 3, 7, 8, LAST]
    batch = rc.Events(schema, np.array(list(itertools.product(values, values))).T.copy())
    for options in ALL:
        assert rows_of(opened(schema, subs, **options).match(batch)) == expected(subs, batch)


# options


def test_storage_chooses_the_kind():
    schema = int_schema(2)
    assert type(rc.open_index("vcr", schema)) is RectangleRunsIndex
    assert type(rc.open_index("vcr", schema, storage="hash")) is RectangleListsIndex
    assert rc.open_index("vcr", schema).stats()["index"] == "vcr"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage": "tree"}, "storage must be one of runs, array, hash, got 'tree'"),
        ({"Lx": 3}, "Lx must be a power of two within 1 and 32768, got 3"),
        ({"Ly": 0, "storage": "array"}, "Ly must be a power of two"),
        ({"cells": 3}, "cells must be within 5 and 32768, got 3"),
        ({"split": "yes"}, "split must be True, False or None"),
        ({"decomposition": "xd", "storage": "array"}, "decomposition must be 'sd' or 'od', got 'xd'"),
        ({"lookup": "guess", "storage": "hash"}, "lookup must be 'distance' or 'enumerate'"),
        ({"table": 5, "storage": "array"}, "table= takes a size below"),
        ({"max_load": 1.0, "storage": "hash"}, "max_load must lie between 0 and 1"),
        ({"decomposition": "od"}, "unexpected keyword argument 'decomposition'"),
        ({"on": ("a0", "a0")}, "on= takes 2 different attribute names"),
        ({"on": "a0"}, "on= takes 2 different attribute names"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(OptionError, match=message):
        rc.open_index("vcr", int_schema(2), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "while they are sorted, needs about"),
        ({"storage": "array", "Lx": 1, "Ly": 1}, "header for each of"),
        ({"storage": "hash", "table": 2}, "list entries, 100 rectangles being added"),
    ],
)
def test_builds_that_do_not_fit(options, message):
    schema = int_schema(2)
    index = rc.open_index("vcr", schema, memory_limit=50, **options)
    with pytest.raises(CapacityError, match=message):
        index.insert(random_subscriptions(schema, 100, seed=1))
    assert len(index) == 0
    assert index.match(random_events(schema, 5, seed=2)).n_pairs == 0


def test_lists_that_cannot_be_fitted_again_stay_as_they_are(size, monkeypatch):
    schema = rc.Schema(rc.Int("x"), rc.Int("y"))
    subs = random_subscriptions(schema, size(1000) + 1100, seed=6, span=200, bounded=1.0)
    index = rc.open_index("vcr", schema, storage="array")
    index.insert(subs.select([0, 1, 2]))
    cells = index._plane.shape
    original = RectangleListsIndex._check_room

    def refuse(self, held, constructs, listed):
        if constructs is not self._constructs:
            raise CapacityError("no room")
        original(self, held, constructs, listed)

    monkeypatch.setattr(RectangleListsIndex, "_check_room", refuse)
    index.insert(subs.select(np.arange(3, len(subs))))
    assert index._plane.shape == cells
    batch = random_events(schema, 20, seed=7, span=200)
    assert rows_of(index.match(batch)) == expected(subs, batch)


@pytest.mark.parametrize("options", [{}, {"storage": "hash"}], ids=named)
def test_entries_that_cannot_be_numbered(options, monkeypatch):
    monkeypatch.setattr("rangecast.papers.vcr.structures.MOST_ENTRIES", 99)
    schema = int_schema(2)
    with pytest.raises(CapacityError, match="lists at most 99 entries, but would need"):
        opened(schema, random_subscriptions(schema, 100, seed=1), **options)
