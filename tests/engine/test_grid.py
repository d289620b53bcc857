"""Grids: every code has one cell, in order, and MISSING has a cell of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.durable.arrays import flatten, unflatten
from rangecast.engine.grid import Grid
from rangecast.types.attributes import LAST, MISSING, PRESENT
from strategies import code


def check(grid, codes):
    cells = grid.locate(np.array(codes, np.int64))
    for value, cell in zip(codes, cells.tolist(), strict=True):
        assert grid.cuts[cell] <= value
        assert cell == grid.n_cells - 1 or value < grid.cuts[cell + 1]
    assert grid.locate(np.array([MISSING]))[0] == 0
    assert (grid.locate(np.array([PRESENT, LAST])) >= 1).all()


@given(st.integers(-50, 50), st.integers(0, 300), st.integers(5, 40), st.lists(code(), max_size=20))
def test_uniform(low, span, n_cells, codes):
    grid = Grid.uniform(low, low + span, n_cells)
    assert grid.n_cells <= n_cells
    check(grid, [*codes, low - 1, low, low + span, low + span + 1])


@pytest.mark.parametrize(
    ("low", "high"), [(MISSING, LAST), (PRESENT, PRESENT), (LAST, LAST), (0, LAST), (LAST - 3, LAST - 1)]
)
def test_uniform_extremes(low, high):
    if max(low, PRESENT + 1) > min(high, LAST - 1):
        high, low = LAST - 1, LAST - 1
    check(Grid.uniform(low, high, 16), [MISSING, PRESENT, PRESENT + 1, -1, 0, 1, LAST - 1, LAST])


@given(st.lists(code(), max_size=30), st.lists(code(), max_size=20))
def test_cuts(cuts, codes):
    check(Grid.cut_at(np.array(cuts, np.int64)), codes)


@given(st.lists(st.tuples(code(), code()), max_size=30), st.integers(5, 20), st.lists(code(), max_size=20))
def test_fit(intervals, n_cells, codes):
    lows = np.array([min(i) for i in intervals], np.int64)
    highs = np.array([max(i) for i in intervals], np.int64)
    for attribute in (rc.Int("a"), rc.Int("a", 0, 7), rc.Float("x"), rc.Float("x", 0.0, 1.0)):
        grid = Grid.fit(attribute, lows, highs, n_cells)
        assert grid.n_cells <= n_cells + 2
        check(grid, codes)
        again = unflatten(Grid, *flatten(grid))
        assert np.array_equal(again.locate(np.array(codes, np.int64)), grid.locate(np.array(codes, np.int64)))


def test_wrong_grids():
    with pytest.raises(rc.OptionError, match="at least 5 cells"):
        Grid.uniform(0, 10, 3)
