"""Weighing: what is counted on a sample is what layouts look at; made-up events are ends and middles."""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads
from rangecast.engine import costs, planner
from rangecast.engine.boxes import ExpandedBoxes
from rangecast.engine.layouts.cells import build_cells
from rangecast.types.attributes import LAST, MISSING, PRESENT

pytestmark = pytest.mark.once


def boxes_of(lows, highs):
    return ExpandedBoxes(lows, highs, np.arange(lows.shape[1], dtype=np.int32), lows.shape[1])


def choose(name, n, events=None):
    """What the planner takes for a workload: by subscriptions, or by its events."""
    w = workloads.workload(name, n, 400)
    index = rc.open_index("scan", w.schema)
    index.insert(w.subscriptions())
    boxes = index._catalog.boxes
    numbers = np.arange(boxes.n)
    codes = w.events().encoded(w.schema).codes if events else None
    return planner.choose_layout(boxes, numbers, boxes.bounded(numbers), numbers, codes).chosen


def crossing_entries(part, values):
    """How many entries events are compared with in cells as they were built."""
    plane, total = part.cells, 0
    x, y = (grid.locate(row).astype(np.int64) for grid, row in zip(part.packed.grids, values, strict=True))
    for level, (down_x, down_y) in enumerate(plane.shifts.tolist()):
        c = plane.bases[level] + (y >> down_y) * plane.columns[level] + (x >> down_x)
        total += int(((plane.starts[2 * c + 2] - plane.starts[2 * c + 1]) >> 1).sum())
    return total


@pytest.mark.parametrize(("most", "open_share"), [(40, 0.0), (900, 0.0), (300, 0.3)])
def test_counts_what_cells_look_at(most, open_share):
    """Where the sample is all boxes and each code has its fine cell, the count is exact."""
    rng = np.random.default_rng(most)
    n = 1_000
    lows = rng.integers(0, 2_000, (2, n))
    highs = lows + rng.integers(0, most, (2, n))
    lows[rng.random((2, n)) < open_share] = MISSING
    highs[rng.random((2, n)) < open_share] = LAST
    boxes = boxes_of(lows, highs)
    values = rng.integers(-5, 3_000, (2, costs.EVENTS))
    values[:, 0], values[0, 1] = MISSING, 10_000
    weighed = costs.Weighed.of(boxes, np.arange(n), n, (0, 1), values)
    part = build_cells(boxes, np.arange(n), (0, 1))
    looked_at = crossing_entries(part, values)
    assert looked_at > 0
    assert weighed.counts((0, 1))["looked_at"] * values.shape[1] == pytest.approx(looked_at)


@pytest.mark.parametrize(("distance", "doubtful"), [(0, 1.0), (100, 0.0)])
def test_ends_beside_events_are_in_doubt(distance, doubtful):
    """Boxes so wide that all stand in one cell, of which a step is several codes."""
    n = 2_000
    rng = np.random.default_rng(5)
    lows, highs = rng.integers(0, 250, (2, n)), rng.integers(750, 1_000, (2, n))
    highs[1] = 500 + distance
    boxes = boxes_of(lows, highs)
    batch = np.full((2, 64), 500)
    weighed = costs.Weighed.of(boxes, np.arange(n), n, (0, 1), batch)
    counts = weighed.counts((0, 1))
    assert counts["looked_at"] == n
    assert counts["doubtful"] == n * doubtful
    assert weighed.ns((0, 1)) >= weighed.least_ns((0, 1)) + costs.NS[2]["doubtful"] * n * doubtful


def test_few_codes_leave_no_doubt():
    """Where each step is a fine cell, and fine cells tell all codes apart, none are read."""
    rng = np.random.default_rng(6)
    lows = rng.integers(0, 90, (2, 500))
    boxes = boxes_of(lows, lows + rng.integers(0, 9, (2, 500)))
    batch = rng.integers(0, 99, (2, 64))
    weighed = costs.Weighed.of(boxes, np.arange(500), 500, (0, 1), batch)
    assert weighed.counts((0, 1))["doubtful"] == 0


def test_a_layout_in_use_is_weighed_in_full():
    n = 2_000
    rng = np.random.default_rng(7)
    lows, highs = rng.integers(0, 250, (3, n)), rng.integers(750, 1_000, (3, n))
    highs[1] = 500
    boxes, sample = boxes_of(lows, highs), np.arange(n)
    batch = np.full((3, 64), 501)
    weighed = costs.Weighed.of(boxes, sample, n, (0, 1, 2), batch)
    layouts = costs.weigh_layouts(boxes, sample, n, (0, 1, 2), batch, known=(0, 1))
    assert [one.ns for one in layouts if one.on == (0, 1)] == [weighed.ns((0, 1))]
    assert [one.ns for one in layouts] == sorted(one.ns for one in layouts)
    assert {one.on for one in layouts} >= {(), (0,), (1,), (2,)}
    # what was measured of a layout counts, for those that are not in use too
    factors = {("cells", (0, 2)): 1e-6}
    best = costs.weigh_layouts(boxes, sample, n, (0, 1, 2), batch, factors=factors)[0]
    assert best == costs.Layout("cells", (0, 2), pytest.approx(weighed.ns((0, 2)) * 1e-6))


def test_events_are_made_up_at_corners_and_centres():
    n = 300
    rng = np.random.default_rng(8)
    lows = np.stack([rng.integers(0, 50, n), np.full(n, MISSING), np.full(n, 2**62), np.full(n, PRESENT)])
    highs = np.stack([lows[0] + 10, rng.integers(0, 50, n), np.full(n, 2**62 + 3), np.full(n, LAST)])
    lows[0, 0], highs[0, 0] = -(2**62) - 9, -(2**62) - 1
    values = costs.invent_events(boxes_of(lows, highs), np.arange(n), (0, 1, 2, 3))
    corners, centres = values[:, 0::2], values[:, 1::2]
    assert np.isin(corners[0], np.concatenate([lows[0], highs[0]])).all()
    assert np.isin(centres[0], lows[0] + 5).all() or -(2**62) - 5 in centres[0]
    assert np.isin(corners[2], [2**62, 2**62 + 3]).all()
    assert (centres[2] == 2**62 + 1).all()
    # what is open on one side has no centre: some end on its side
    assert np.isin(values[1], highs[1]).all()
    assert (values[3] == 0).all()
    # each event comes from one box, on all attributes
    assert all(((lows[0] <= v) & (v <= highs[0]) & (w <= highs[1])).any() for v, w in values[:2].T)


def test_choices_by_subscriptions_alone(size):
    """Centres say that most boxes may match, corners that ends may lie next to events."""
    n = max(size(20_000), 3_000)
    chosen = choose("mostly-matching", n)
    assert (chosen.kind, len(chosen.on)) == ("cells", 2)
    assert choose("near-misses", n).kind == "bitmap"


def test_choices_by_events(size):
    """Of boxes on two attributes, few are candidates and many would be looked at."""
    n = max(size(20_000), 3_000)
    assert choose("market", n, events=True).kind == "bitmap"
    assert choose("near-misses", n, events=True).on == (7,)
