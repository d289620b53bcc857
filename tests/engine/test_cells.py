"""Cells: levels, runs, skew and odd widths beyond what the contract draws."""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine.layouts.cells import choose_levels
from rangecast.engine.packed import fit_grid
from rangecast.types.attributes import LAST, MISSING, PRESENT


def check(schema, lows, highs, codes, **options):
    subs = rc.Subscriptions(schema, np.arange(lows.shape[1]), lows, highs)
    events = rc.Events(schema, codes)
    index = rc.open_index("cells", schema, **options)
    index.insert(subs)
    index.compact()
    assert rows_of(index.match(events)) == [sorted(row) for row in match_boxes(subs, events)]
    return index


@pytest.fixture(autouse=True)
def no_tail(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("span", [50, 5_000, 10**12])
def test_mixed_widths(d, span, size):
    rng = np.random.default_rng(d)
    n = size(2_000)
    lows = rng.integers(-span, span, (d, n))
    widths = (2.0 ** rng.uniform(0, np.log2(span), (d, n))).astype(np.int64)
    highs = lows + widths
    lows[:, 0], highs[:, 0] = MISSING, LAST
    lows[:, 1 % n], highs[:, 1 % n] = PRESENT, LAST
    codes = rng.integers(-2 * span, 2 * span, (d, 40))
    codes[:, 0], codes[:, 1] = MISSING, LAST
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
    check(schema, lows, highs, codes, on=schema.names)


@pytest.mark.parametrize("d", [1, 2])
def test_floats_in_clusters(d, size):
    """Quantile cuts: many end points share a fine cell, and events lie on them."""
    rng = np.random.default_rng(7)
    n = size(3_000)
    schema = rc.Schema(*(rc.Float(f"a{j}") for j in range(d)))
    lows = {f"a{j}": rng.normal(0, 1e-3, n) + rng.integers(0, 3, n) * 1e6 for j in range(d)}
    highs = {name: low + rng.exponential(1e-3, n) for name, low in lows.items()}
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)
    picked = rng.integers(0, n, 40)
    events = rc.Events.from_arrays(schema, {name: highs[name][picked] for name in schema.names})
    index = rc.open_index("cells", schema, on=schema.names)
    index.insert(subs)
    assert rows_of(index.match(events)) == [sorted(row) for row in match_boxes(subs, events)]


def test_one_giant_is_few_entries():
    rng = np.random.default_rng(1)
    lows = rng.integers(0, 100_000, (1, 400))
    highs = lows + 5
    schema = rc.Schema(rc.Int("a"))
    without = check(schema, lows, highs, lows[:, :20]).stats()["entries"]
    lows = np.concatenate([lows, [[MISSING]]], axis=1)
    highs = np.concatenate([highs, [[LAST]]], axis=1)
    assert check(schema, lows, highs, lows[:, :20]).stats()["entries"] <= without + 16


def test_dead_are_swept(size):
    rng = np.random.default_rng(2)
    n = size(1_000)
    for d in (1, 2):
        schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
        lows = rng.integers(0, 500, (d, n))
        subs = rc.Subscriptions(schema, np.arange(n), lows, lows + rng.integers(0, 60, (d, n)))
        index = rc.open_index("cells", schema, on=schema.names)
        index.insert(subs)
        before = index.stats()["entries"]
        gone = np.arange(0, n, 10)
        index.delete(gone)
        events = rc.Events(schema, rng.integers(0, 560, (d, 30)))
        left = subs.select(np.setdiff1d(np.arange(n), gone))
        assert rows_of(index.match(events)) == [sorted(row) for row in match_boxes(left, events)]
        assert index.stats()["entries"] < before


def test_options_are_checked():
    schema = rc.Schema(rc.Int("a"), rc.Int("b"), rc.Int("c"))
    with pytest.raises(rc.OptionError, match="one or two attribute names"):
        rc.open_index("cells", schema, on=("a", "b", "c"))
    with pytest.raises(rc.OptionError, match="at least 16"):
        rc.open_index("cells", schema, bytes_per_subscription=3)


def test_refuses_what_does_not_fit():
    schema = rc.Schema(rc.Int("a"))
    lows = np.arange(2_000)[None]
    index = rc.open_index("cells", schema, memory_limit=1_000)
    with pytest.raises(rc.CapacityError, match=r"needs about .* but may use 1.0 kB; a smaller bytes_per"):
        index.insert(rc.Subscriptions(schema, np.arange(2_000), lows, lows + 50))


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("span", [900, 1_500, 3_500, 10**6])
def test_few_boxes_on_a_wide_domain(d, span, size):
    """There is a level to choose for any number of boxes, however many values they could tell apart."""
    rng = np.random.default_rng(span)
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
    for n in (1, 7, 60, 255, 256, 257, 500, 900, 1_023, 1_024, 1_500, 2_100):
        n = min(n, size(1_500))
        lows = rng.integers(0, span, (d, n))
        codes = rng.integers(0, span, (d, 12))
        codes[:, :2] = MISSING
        index = check(schema, lows, lows + rng.integers(0, 40, (d, n)), codes, on=schema.names)
        assert len(index._state.parts) == 1


@pytest.mark.parametrize("n_cells", [1, 2, 5, 1_024, 4_096, 100_000])
def test_one_level_at_least_is_chosen(n_cells):
    for n in (1, 30, 1_000):
        chosen = choose_levels(np.array([3]), [np.array([2.0])], np.array([float(n)]), [n_cells], 1.0, 72.0)
        assert len(chosen.shifts) == 1
        assert chosen.level_of_class.tolist() == [0] * 4


def test_grids_are_exact_where_they_can_be():
    rng = np.random.default_rng(3)
    few = rng.integers(-(2**60), 2**60, 50)
    lows = rng.choice(few, 500)
    grid, exact = fit_grid(lows, lows, 1_000)
    assert exact
    assert np.isin(lows, grid.cuts).all()
    many = rng.integers(0, 2**20, 5_000)
    assert not fit_grid(many, many, 1_000)[1]
    assert fit_grid(many % 900, many % 900, 1_000)[1]


@pytest.mark.parametrize(("on", "turned"), [(("a0",), False), (("a0", "a1"), False), (("a0", "a1"), True)])
def test_other_attributes_are_checked_exactly(on, turned, size, tmp_path, monkeypatch):
    """Their grids cannot hold every end point, boxes have gaps between them, and events lie on ends; a large
    batch goes in another order."""
    if turned:
        monkeypatch.setattr("rangecast.engine.layouts.cells.SORTED", 0)
        monkeypatch.setattr("rangecast.engine.layouts.cells.SORTED_ENTRIES", 0)
    rng = np.random.default_rng(11)
    n = size(60_000)
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(5)))
    lows = rng.integers(0, 10**9, (5, n))
    highs = lows + rng.integers(0, 10**9, (5, n))
    lows[:2], highs[:2] = 0, 5
    free = rng.random((5, n)) < 0.2
    lows[free], highs[free] = MISSING, LAST
    subs = rc.Subscriptions(schema, np.arange(n), lows, highs)
    index = rc.open_index("cells", schema, on=on)
    index.insert(subs)
    scan = rc.open_index("scan", schema)
    scan.insert(subs)
    gone = np.flatnonzero(rng.random(n) < 0.4)
    index.delete(gone)
    scan.delete(gone)
    picked = rng.integers(0, n, 24)
    codes = np.where(
        rng.random((5, 24)) < 0.5, lows[:, picked], highs[:, picked] + rng.integers(0, 2, (5, 24))
    )
    codes[:2] = rng.integers(-1, 7, (2, 24))
    codes[:, :2] = MISSING
    events = rc.Events(schema, codes)
    want = scan.match(events)
    assert want.n_pairs > 0
    assert index.match(events) == want
    index.save(tmp_path / "i")
    assert rc.load_index(tmp_path / "i").match(events) == want
