"""Vehicles on a grid of streets: they stay on it, move by steps, and the circles are those of the fences."""

import numpy as np
import pytest

import rangecast as rc
from rangecast.workloads import vehicles, workload

pytestmark = pytest.mark.without_kernels


def test_vehicles_follow_the_streets():
    w = workload("vehicles", 10, 4_000, vehicles=40, streets=6, block=0.002, step=0.0003)
    places = np.stack([w.columns["lon"], w.columns["lat"]], axis=1).reshape(100, 40, 2)
    assert w.columns["vehicle"].reshape(100, 40).tolist() == [list(range(1, 41))] * 100
    blocks = (places - [13.0, 52.3]) / 0.002
    # on a street: one of the two is whole; and within the town
    assert np.abs(blocks - np.round(blocks)).min(axis=2).max() < 1e-3
    assert blocks.min() > -1e-3
    assert blocks.max() < 5 + 1e-3
    moves = np.abs(np.diff(blocks, axis=0))
    # along one street at a time, by a step or up to the crossing; hardly one stands still
    assert moves.min(axis=2).max() < 1e-3
    assert moves.sum(axis=2).max() < 0.15 + 1e-3
    assert (moves.sum(axis=2) > 1e-3).mean() > 0.95
    # some turn
    turned = (moves[1:] > 1e-3) & (moves[:-1, :, ::-1] > 1e-3)
    assert turned.any(axis=2).sum() > 50


def test_circles_have_the_height_of_the_fences():
    w = workload("vehicles", 60, 900, vehicles=30, streets=5)
    schema = rc.Schema(rc.Point("at"))
    boxes, circles = rc.open_index("scan", w.schema), rc.open_index("scan", schema)
    boxes.insert(w.subscriptions())
    circles.insert(rc.Subscriptions.parse(schema, vehicles.circles(w)))
    round_, square = (
        set(zip(rows.tolist(), ids.tolist(), strict=True))
        for rows, ids in (
            circles.match(rc.Events.from_arrays(schema, {"at": vehicles.points(w)})).pairs(),
            boxes.match(w.events()).pairs(),
        )
    )
    # 0.6 degrees of latitude are nearly as long as one of longitude here
    assert len(round_) > 100
    assert len(round_ & square) > 0.9 * len(round_)
    assert len(round_) < len(square)


def test_what_cannot_be_is_refused():
    with pytest.raises(rc.OptionError, match="workload 'vehicles': streets must be at least 2, got 1"):
        workload("vehicles", 1, 1, streets=1)
