"""What is particular to the UB-tree: the transform, grid tables, wide cells, options, live changes."""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.papers.ubtree import kernels
from rangecast.papers.ubtree.structures import finest_parts, fit_grid, wide_cells
from rangecast.types.attributes import LAST, MISSING
from rangecast.workloads import workload
from strategies import int_schema, random_events, random_subscriptions

FORMS = ["plain", "optimised"]


def expected(subs, batch):
    return [sorted(row) for row in match_boxes(subs, batch)]


def cell_of(starts, ends, parts, n_cells):
    """The cell id of one point in one table over all its attributes."""
    points = np.array([c for pair in zip(starts, ends, strict=True) for c in pair], np.uint16)[:, None]
    k = len(starts)
    out = np.empty((1, 1), np.uint16)
    cells = np.full(k, n_cells, np.int64)
    kernels.cell_ids(points, np.arange(k)[None], np.full((1, k), parts, np.int64), cells, out)
    return int(out[0, 0])


def test_cells_of_a_grid_table_leave_out_dead_space():
    """Two parts an attribute: 3 cells for one attribute, 9 for two (the paper's Fig. 4b)."""
    halves = [(0, 0), (0, 9), (9, 9)]
    assert [cell_of([s], [e], 2, 10) for s, e in halves] == [0, 1, 2]
    pairs = [(a, b) for a in halves for b in halves]
    assert [cell_of([a[0], b[0]], [a[1], b[1]], 2, 10) for a, b in pairs] == list(range(9))


def test_tables_of_the_paper_have_15_to_the_4_cells():
    assert finest_parts(4) == 5
    assert cell_of([9] * 4, [9] * 4, 5, 10) == 15**4 - 1


def test_shorts_are_exact_but_for_the_outer_cells():
    grid = fit_grid(rc.Int("a", 0, 65_535), np.array([0]), np.array([9]), 65_536)
    wide = wide_cells(grid)
    assert (grid.n_cells, np.flatnonzero(wide).tolist()) == (65_536, [1, 65_535])
    assert grid.locate(np.array([65_532, 65_533, 65_535, 70_000, -1])).tolist() == [65_534, *[65_535] * 3, 1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cells", [5, 16])
def test_cells_of_many_codes_are_checked(form, cells, size):
    schema = int_schema(3)
    subs = random_subscriptions(schema, size(600), seed=5)
    batch = random_events(schema, 40, seed=6)
    index = rc.open_index("ubtree", schema, form=form, cells=cells, leaf=8, fanout=4)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("attributes", "equality"), [(2, 0.0), (8, 0.5), (16, 0.8), (16, 1.0), (40, 0.8)])
def test_the_papers_workload_equals_scan(form, attributes, equality, leg):
    n, m = (3_000, 40) if leg != "nojit" else (60, 5)
    drawn = workload("predicates-16", n, m, attributes=attributes, equality=equality, selectivity=0.01)
    scan, index = (rc.open_index(*o, **k) for o, k in [
        (("scan", drawn.schema), {}), (("ubtree", drawn.schema), {"form": form, "leaf": 32}),
    ])  # fmt: skip
    for one in (scan, index):
        one.insert(drawn.subscriptions())
    assert index.match(drawn.events()).sort() == scan.match(drawn.events()).sort()


@pytest.mark.parametrize("tables", [[], [["a0"]], [["a2", "a0"], ["a1"]], [["a0", "a1", "a2"]]])
@pytest.mark.parametrize("parts", [None, 1, 3])
def test_any_tables_give_the_same_matches(tables, parts, size):
    schema = int_schema(3)
    subs = random_subscriptions(schema, size(400), seed=7)
    batch = random_events(schema, 30, seed=8)
    index = rc.open_index("ubtree", schema, tables=tables, parts=parts, leaf=16)
    index.insert(subs)
    assert rows_of(index.match(batch)) == expected(subs, batch)
    assert index.stats()["grid_tables"] == len(tables)


def test_grid_tables_shorten_the_filter(leg):
    n, m = (20_000, 20) if leg != "nojit" else (300, 3)
    drawn = workload("predicates-16", n, m)
    with_tables = rc.open_index("ubtree", drawn.schema, leaf=32)
    without = rc.open_index("ubtree", drawn.schema, leaf=32, tables=[])
    for index in (with_tables, without):
        index.insert(drawn.subscriptions())
        index.match(drawn.events())
    one, other = with_tables.stats(), without.stats()
    assert one["last_entries"] == other["last_entries"] == other["last_candidates"]
    assert one["last_matches"] <= one["last_candidates"] < one["last_entries"]
    assert other["last_entries"] < m * n  # regions outside the event's box were jumped over


def test_the_most_selective_attributes_get_the_tables(leg):
    drawn = workload("predicates-16", 2_000 if leg != "nojit" else 200, 1)
    index = rc.open_index("ubtree", drawn.schema)
    index.insert(drawn.subscriptions())
    assert sorted(index._members.ravel().tolist()) == list(range(8))
    assert set(index._members[0].tolist()) > {0, 1, 2}


@pytest.mark.parametrize("form", FORMS)
def test_one_by_one_equals_at_once(form, size):
    """Grids and tables are chosen again as the set grows from nothing."""
    schema = rc.Schema(rc.Float("x"), rc.Category("c"), rc.Int("k", 0, 9))
    n = size(300)
    rng = np.random.default_rng(9)
    x = rng.random(n)
    texts = [f"x between {x[i]} and {x[i] + 0.1} and c = 'w{i % 7}' and k < {i % 12}" for i in range(n)]
    subs = [rc.Subscriptions.parse(schema, {i: text}) for i, text in enumerate(texts)]
    index = rc.open_index("ubtree", schema, form=form, leaf=8)
    scan = rc.open_index("scan", schema)
    for one in subs:
        index.insert(one)
        scan.insert(one)
    rows = [{"x": v, "c": f"w{i % 8}", "k": i % 10} for i, v in enumerate(rng.random(50))]
    batch = rc.Events.from_rows(schema, rows)
    assert index.match(batch).sort() == scan.match(batch).sort()
    index.delete(list(range(0, n, 2)))
    scan.delete(list(range(0, n, 2)))
    assert index.match(batch).sort() == scan.match(batch).sort()
    assert index.stats()["boxes"] == len(index._tree) == n // 2


def test_an_attribute_first_bounded_later_is_checked():
    schema = int_schema(3)
    index = rc.open_index("ubtree", schema, tables=[["a0"]])
    index.insert(rc.Subscriptions.parse(schema, {i: f"a0 = {i}" for i in range(40)}))
    index.insert(rc.Subscriptions.parse(schema, {99: "a2 > 5"}))
    rows = [{"a0": 1, "a2": 5}, {"a0": 1, "a2": 6}]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == [[1], [1, 99]]


@pytest.mark.parametrize("form", FORMS)
def test_room_for_matches_grows(form, size):
    schema = int_schema(2)
    n = size(10_000)
    index = rc.open_index("ubtree", schema, form=form)
    index.insert(rc.Subscriptions(schema, np.arange(n), np.full((2, n), MISSING), np.full((2, n), LAST)))
    batch = random_events(schema, 4, seed=3)
    assert index.match(batch).counts.tolist() == [n] * 4


def test_options_are_checked():
    schema = int_schema(5)
    for options, message in [
        ({"form": "fast"}, "form must be one of 'plain', 'optimised', got 'fast'"),
        ({"cells": 4}, "cells must be within 5 and 65536, got 4"),
        ({"parts": 0}, "parts must be within 1 and 64, got 0"),
        ({"leaf": 2}, "capacity of a leaf must be within 4 and 1048576, got 2"),
        ({"tables": ["a0", "a1"]}, "tables= takes groups of attribute names"),
        ({"tables": [["a0"], ["a0"]]}, "names each attribute once"),
        ({"tables": [["a0"], []]}, "in groups of one or more"),
        ({"tables": [list(schema.names)], "parts": 5}, "at most 65,536 cells, got 5 attributes of 15"),
    ]:
        with pytest.raises(rc.OptionError, match=message):
            rc.open_index("ubtree", schema, **options)
    with pytest.raises(rc.SchemaError, match="zz"):
        rc.open_index("ubtree", schema, tables=[["zz"]])


def test_a_limit_of_memory_is_kept():
    schema = int_schema(2)
    index = rc.open_index("ubtree", schema, memory_limit=100)
    with pytest.raises(rc.CapacityError, match="'ubtree' of 2 attributes needs about"):
        index.insert(random_subscriptions(schema, 50, seed=1))
    assert len(index) == 0
