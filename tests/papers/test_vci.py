"""The construct intervals: the paper's numbers, the four look-ups beside each other, the layout in runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine.grid import Grid
from rangecast.engine.layouts.runs import RunsIndex, choose_level
from rangecast.papers.vci.structures import LOOKUPS, ConstructIntervals, IntervalListsIndex
from rangecast.types.attributes import LAST, MISSING, PRESENT
from strategies import int_schema, random_events, random_subscriptions

KINDS = ["sci", "lci"]
LENGTHS = [1, 2, 4, 16, 64]


# the paper's numbers


def test_sci_coordinates_of_figure_1():
    sci = ConstructIntervals.of("sci", 4)
    assert [sci.coordinate(0, b) for b in (1, 2, 3, 4)] == [0, 1, 2, 3]
    assert [sci.coordinate(1, b) for b in (2, 3, 4, 5)] == [4, 5, 6, 7]
    assert sci.coordinate(4, 6) == 17
    assert sci.decompose(0, 2) == [1]
    assert sci.decompose(0, 6) == [3, 17]
    assert sci.decompose(10, 16, a0=10) == [3, 17]


def test_lci_coordinates_and_the_cut_of_seven():
    lci = ConstructIntervals.of("lci", 16)
    a = 100
    assert [lci.interval(c) for c in lci.decompose(a, a + 7)] == [(a, a + 4), (a + 4, a + 6), (a + 6, a + 7)]
    assert ConstructIntervals.of("lci", 4).coordinate(2, 6) == 2 * 3 + 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("longest", LENGTHS)
def test_segment_and_distance_table_have_the_sizes_of_the_paper(kind, longest):
    c = ConstructIntervals.of(kind, longest)
    k = longest.bit_length() - 1
    low, high = c.segment(3 * longest)
    assert high - low + 1 == (longest**2 + 1 if kind == "sci" else longest * (k + 1) + 1)
    table = c.distances()
    assert len(table) == (longest * (longest + 3) // 2 if kind == "sci" else 2 * longest + k)
    assert table[0] == 0
    assert table[-1] == high - low


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("longest", [1, 2, 4, 8])
@pytest.mark.parametrize("closed", [True, False])
def test_distance_table_names_the_constructs_that_cover_a_value(kind, longest, closed):
    """The same table for every value away from the border, against all constructs one by one."""
    c = ConstructIntervals.of(kind, longest)
    for j in (longest, longest + 1, 5 * longest + 3):
        covering = []
        for coordinate in range((j + 2) * c.width):
            a, b = c.interval(coordinate)
            if a <= j and (j <= b if closed else j < b):
                covering.append(coordinate)
        low, high = c.segment(j, closed)
        assert (low, high) == (covering[0], covering[-1])
        assert (c.distances(closed) + low).tolist() == covering


@pytest.mark.parametrize("kind", KINDS)
@given(x=st.integers(-50, 50), length=st.integers(1, 100), k=st.integers(0, 6))
def test_decomposition_covers_exactly_and_without_overlap(kind, x, length, k):
    c = ConstructIntervals.of(kind, 1 << k)
    pieces = [c.interval(i, a0=-50) for i in c.decompose(x, x + length, a0=-50)]
    assert pieces[0][0] == x
    assert pieces[-1][1] == x + length
    assert all(b == a for (_, b), (a, _) in itertools.pairwise(pieces))
    rest = length & ((1 << k) - 1)
    if kind == "sci":
        # the paper: floor((y - x - 1) / L) of length L, and a remnant
        assert len(pieces) == (length - 1) // (1 << k) + 1
    else:
        assert len(pieces) == (length >> k) + rest.bit_count()
    assert all(c.interval(c.coordinate(a, b)) == (a, b) for a, b in pieces)


# options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lookup": "tables"}, "lookup must be one of runs, bitmap, clipped, virtual, table, got 'tables'"),
        ({"lookup": "table", "constructs": "xci"}, "constructs must be 'sci' or 'lci', got 'xci'"),
        ({"constructs": "sci"}, "lays out constructs='lci'"),
        ({"L": 12}, "L must be a power of two"),
        ({"lookup": "table", "L": 0}, "L must be a power of two"),
        ({"lookup": "virtual", "cells": 4}, "cells must be within 5"),
        ({"cells": 4}, "cells must be within 5"),
        ({"on": "nope"}, "nope"),
        ({"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        rc.open_index("vci", int_schema(1), **options)


def test_coordinate_of_no_construct():
    with pytest.raises(rc.OptionError, match="no construct of lci with L = 8 has the length 3"):
        ConstructIntervals.of("lci", 8).coordinate(0, 3)


def test_lookup_opens_the_kind_and_loads_it_again(tmp_path):
    schema = int_schema(1)
    assert type(rc.open_index("vci", schema)) is RunsIndex
    index = rc.open_index("vci", schema, lookup="clipped", L=4)
    index.insert(random_subscriptions(schema, 30, seed=1))
    index.save(tmp_path / "i")
    loaded = rc.load_index(tmp_path / "i")
    assert type(loaded) is IntervalListsIndex
    assert loaded.stats()["L"] == 4


@pytest.mark.parametrize("options", [{}, {"lookup": "bitmap"}, {"lookup": "table"}])
def test_memory_limit_stops_a_build(options, monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(rc.Int("a", 0, 4_000))
    index = rc.open_index("vci", schema, memory_limit=1_000, cells=5_000, **options)
    with pytest.raises(rc.CapacityError, match=r"'vci' on 'a' with .* may use 1\.0 kB"):
        index.insert(random_subscriptions(schema, 40, seed=1))


def test_a_refused_first_load_leaves_lists_empty():
    schema = rc.Schema(rc.Int("a", 0, 4_000))
    index = rc.open_index("vci", schema, lookup="bitmap", memory_limit=1_000)
    with pytest.raises(rc.CapacityError):
        index.insert(random_subscriptions(schema, 40, seed=1))
    assert len(index) == 0
    assert index.match(random_events(schema, 5, seed=1)).n_pairs == 0


# look-ups


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("longest", [1, 4, 32])
def test_every_lookup_equals_the_oracle(kind, lookup, longest):
    """Values below, at and above the border, with a construct longer than the domain too."""
    schema = rc.Schema(rc.Int("a0", 0, 20), rc.Int("a1"))
    subs = random_subscriptions(schema, 60, seed=longest, span=24)
    events = rc.Events(schema, np.array([[MISSING, PRESENT, *range(-3, 26), LAST], [3] * 32], np.int64))
    index = rc.open_index("vci", schema, lookup=lookup, constructs=kind, L=longest, on="a0")
    index.insert(subs)
    assert rows_of(index.match(events)) == [sorted(row) for row in match_boxes(subs, events)]
    index.delete(subs.ids.values[::2])
    left = subs.select(np.arange(1, 60, 2))
    assert rows_of(index.match(events)) == [sorted(row) for row in match_boxes(left, events)]


@pytest.mark.parametrize("lookup", ["bitmap", "clipped"])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_set_with_the_first_predicate_and_reset_with_the_last(lookup, kind):
    schema = rc.Schema(rc.Int("a", 0, 30))
    index = rc.open_index("vci", schema, lookup=lookup, constructs=kind, L=4)
    ids = list(range(5))
    index.insert(rc.Subscriptions.parse(schema, dict.fromkeys(ids, "a between 3 and 12")))
    c = ConstructIntervals.of(kind, 4)
    cells = Grid.uniform(0, 30, index.stats()["cells"]).locate(np.array([3, 12]))
    n_bits = sum(b - a for a, b in (c.interval(i) for i in c.decompose(cells[0], cells[1] + 1)))

    def bits():
        return int(np.bitwise_count(index._lists.bits).sum())

    assert bits() == n_bits == 10
    assert index.stats()["active"] == len(c.decompose(3, 13))
    index.delete(ids[:4])
    assert bits() == 10
    index.delete(ids[4:])
    assert bits() == 0
    assert index.stats()["entries"] == 0


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_nodes_of_deleted_predicates_are_used_again(lookup):
    schema = rc.Schema(rc.Int("a", 0, 200))
    index = rc.open_index("vci", schema, lookup=lookup, L=16)
    subs = random_subscriptions(schema, 40, seed=2, span=150, bounded=1.0)
    index.insert(subs)
    used, entries = int(index._lists.pool[1]), index.stats()["entries"]
    for _ in range(5):
        index.insert(subs)
    assert int(index._lists.pool[1]) == used
    assert index.stats()["entries"] == entries


def test_unbounded_predicates_have_one_node():
    schema = int_schema(2)
    index = rc.open_index("vci", schema, lookup="table", on="a0")
    index.insert(rc.Subscriptions.parse(schema, {1: "a1 = 3", 2: "a1 > 3"}))
    assert index.stats()["entries"] == 2
    assert rows_of(index.match(rc.Events.from_rows(schema, [{"a1": 3}, {"a0": 9, "a1": 4}]))) == [[1], [2]]


def test_lists_adapt_to_what_comes_after_a_small_first_insert():
    """Without a domain the grid of the first insert would put all later ones into its outer cells."""
    schema = rc.Schema(rc.Int("a"))
    index = rc.open_index("vci", schema, lookup="table")
    index.insert(rc.Subscriptions.parse(schema, {-1: "a = 5"}))
    subs = random_subscriptions(schema, 64, seed=3, span=1_000, bounded=1.0)
    index.insert(subs)
    assert index.stats()["cells"] > 900
    index.delete([-1])
    batch = random_events(schema, 40, seed=4, span=1_000)
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_count_lists_counts_active_constructs():
    schema = rc.Schema(rc.Int("a", 0, 99))
    subs = rc.Subscriptions.parse(schema, {1: "a between 10 and 16", 2: "a between 10 and 13", 3: "a = 13"})
    counts = {}
    for lookup in LOOKUPS:
        index = rc.open_index("vci", schema, lookup=lookup, L=16)
        index.insert(subs)
        # 7 values are 4 + 2 + 1; the list of [10, 14) is shared; 13 has one of its own
        counts[lookup] = [index.count_lists(np.array([[v]], np.int64)) for v in (9, 10, 13, 14, 16, 17)]
    assert all(found == [0, 1, 2, 1, 1, 0] for found in counts.values())


# runs


@pytest.mark.parametrize("longest", [None, 1, 2, 8, 64])
@pytest.mark.parametrize("cells", [None, 8, 64])
def test_runs_equal_the_oracle_for_every_length_and_grid(longest, cells, monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(rc.Int("a0", 0, 40), rc.Int("a1"))
    subs = random_subscriptions(schema, 80, seed=5, boxes=2)
    batch = random_events(schema, 50, seed=6)
    index = rc.open_index("vci", schema, L=longest, cells=cells, on="a0")
    index.insert(subs)
    assert index.stats()["parts"] == 1
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_runs_hold_each_predicate_as_often_as_its_length_has_ones(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(rc.Int("a", 0, 999))
    rng = np.random.default_rng(7)
    lows = rng.integers(0, 800, 300)
    lengths = rng.integers(1, 128, 300)
    subs = rc.Subscriptions(schema, np.arange(300), lows[None], (lows + lengths - 1)[None])
    index = rc.open_index("vci", schema, L=64)
    index.insert(subs)
    assert index.stats()["entries"] == int(np.bitwise_count(lengths & 63).sum() + (lengths >> 6).sum())
    part = index._parts[0].part
    assert not len(part.runs.boxes)
    codes = np.arange(-1, 1001)[None]
    assert part.cost(codes).tolist() == index.match(rc.Events(schema, codes)).counts.tolist()


def test_runs_keep_boxes_only_for_what_is_checked(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(rc.Int("a", 0, 4_095))
    lows = np.arange(0, 3_000, 10)[None]
    subs = rc.Subscriptions(schema, np.arange(300), lows, lows + 600)
    index = rc.open_index("vci", schema, cells=67)  # 64 values per cell
    index.insert(subs)
    part = index._parts[0].part
    assert 0 < len(part.runs.boxes) < len(part.runs.slots)
    batch = rc.Events(schema, np.arange(0, 4_000, 7)[None])
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_level_with_the_fewest_bytes():
    # a giant is worth many entries, but not a level of its own
    lengths = np.ones(1_000, int)
    assert choose_level(lengths, 10_000) == 0
    lengths[0] = 9_000
    assert choose_level(lengths, 10_000) == 0
    assert choose_level(np.full(10_000, 64), 100) == 6
    assert choose_level(np.empty(0, int), 100) == 0


def test_slots_follow_the_indexed_attribute():
    schema = int_schema(2)
    subs = random_subscriptions(schema, 50, seed=8)
    index = rc.open_index("vci", schema, on="a1")
    index.insert(subs)
    held = index.subscriptions()
    lows, highs = held.lows[1].tolist(), held.highs[1].tolist()
    keys = [((high - low + 1).bit_length(), low) for low, high in zip(lows, highs, strict=True)]
    assert keys == sorted(keys)
    assert sorted(held.ids.values) == sorted(subs.ids.values)


def test_subscriptions_of_several_boxes_or_none_keep_them_when_slots_are_ordered():
    schema = int_schema(1)
    subs = random_subscriptions(schema, 50, seed=9, boxes=2)
    assert len(np.unique(subs.owners)) < len(subs)
    index = rc.open_index("vci", schema)
    index.insert(subs)
    held = index.subscriptions()
    batch = random_events(schema, 40, seed=10)
    assert match_boxes(held, batch) == match_boxes(subs, batch)


def test_deletes_in_bulk_are_swept_out_of_a_part(monkeypatch):
    """A few deletes are dropped from the answers; many leave the lists, and nothing is dropped then."""
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    monkeypatch.setattr("rangecast.engine.parts.SWEEP_SHARE", 10)
    schema = rc.Schema(rc.Int("a", 0, 4_095))
    subs = random_subscriptions(schema, 200, seed=11, span=3_000, width=900, bounded=1.0)
    batch = random_events(schema, 60, seed=12, span=3_000)
    for cells in (None, 67):
        index = rc.open_index("vci", schema, cells=cells)
        index.insert(subs)
        built = index._parts[0].part
        entries = index.stats()["entries"]
        index.delete(subs.ids.values[:10])
        assert index._parts[0].part is built
        assert index._state.dead is not None
        index.delete(subs.ids.values[10:40])
        assert index._parts[0].part is not built
        assert index._state.dead is None
        assert index.stats()["entries"] < entries
        left = subs.select(np.arange(40, 200))
        assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(left, batch)]
        index.insert(subs.select(np.arange(0, 4)))
        index.delete(subs.ids.values[[0, 50]])
        left = subs.select([*range(1, 4), *range(40, 50), *range(51, 200)])
        assert index.stats()["parts"] == 2
        assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(left, batch)]
