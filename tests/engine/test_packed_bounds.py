"""Packed bounds and values: fields of all widths, and cells found by hints as by search."""

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads
from rangecast.durable.arrays import flatten, unflatten
from rangecast.engine.boxes import ExpandedBoxes
from rangecast.engine.packed import Packed
from rangecast.engine.parts import part_bytes
from rangecast.types.attributes import LAST, MISSING, float_codes

RNG = np.random.default_rng(11)
SEEDED = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same, whatever ran before it."""
    RNG.bit_generator.state = SEEDED


def columns(n: int) -> dict[str, np.ndarray]:
    """End points that lie in every way that grids are cut for."""
    return {
        "small": RNG.integers(0, 50, n),
        "short": RNG.integers(0, 65_536, n),
        "million": RNG.integers(-500_000, 500_000, n),
        "billion": RNG.integers(0, 2**30, n),
        "huge": RNG.integers(-(2**62), 2**62, n),
        "around zero": float_codes(RNG.normal(0, 90, n)),
        "tiny": float_codes(RNG.normal(0, 1e-300, n)),
        "steps": float_codes(np.round(RNG.uniform(1, 5, n), 1)),
        "crowded": float_codes(np.where(RNG.random(n) < 0.9, RNG.normal(7, 1e-9, n), RNG.normal(0, 1e9, n))),
        "infinite": float_codes(np.where(RNG.random(n) < 0.1, np.inf, RNG.normal(0, 1, n))),
        "same": np.full(n, 17),
    }


def boxes_of(names: list[str], n: int) -> ExpandedBoxes:
    lows, highs = [], []
    for name in names:
        a, b = columns(n)[name], columns(n)[name]
        low, high = np.minimum(a, b), np.maximum(a, b)
        kind = RNG.integers(0, 5, n)  # whole, one side, the other, both, one value
        low = np.where((kind == 0) | (kind == 1), MISSING, low)
        high = np.where((kind == 0) | (kind == 2), LAST, np.where(kind == 4, low, high))
        lows.append(low)
        highs.append(np.where((low == MISSING) & (kind == 4), LAST, high))
    return ExpandedBoxes(np.stack(lows), np.stack(highs), np.arange(n, dtype=np.int32), n)


def events_of(names: list[str], boxes: ExpandedBoxes, m: int) -> np.ndarray:
    """Values at ends, beside them, anywhere, beyond all, and missing."""
    out = []
    for j, name in enumerate(names):
        ends = np.concatenate([boxes.lows[j], boxes.highs[j]])
        ends = ends[(ends != MISSING) & (ends != LAST)]
        at = RNG.choice(ends, m) if len(ends) else np.zeros(m, np.int64)
        beside = np.clip(at, MISSING + 2, LAST - 2) + RNG.integers(-1, 2, m)
        anywhere = RNG.integers(MISSING + 1, LAST, m)
        kind = RNG.integers(0, 5, m)
        picked = np.choose(kind, [at, beside, columns(m)[name], anywhere, np.full(m, MISSING)])
        out.append(picked)
    return np.ascontiguousarray(np.stack(out))


@pytest.mark.parametrize("widen", [None, 1.0, 1000.0])
@pytest.mark.parametrize("name", sorted(columns(1)))
def test_one_attribute(name, widen, size):
    check([name], widen, size(1500))


@pytest.mark.parametrize("widen", [None, 1.0])
@pytest.mark.parametrize(
    "names",
    [
        ["short", "million", "short"],
        ["billion", "short", "million", "steps", "short", "short"],
        ["around zero", "million", "small", "huge", "billion"],
    ],
)
def test_several_attributes(names, widen, size):
    check(names, widen, size(800))


def check(names: list[str], widen: float | None, n: int) -> None:
    boxes = boxes_of(names, n)
    numbers = np.arange(n)
    packed = Packed.fit(boxes, numbers, range(len(names)), widen=widen)
    restored = unflatten(Packed, *flatten(packed))
    codes = events_of(names, boxes, 60)
    values = packed.pack_events(codes)
    assert (restored.pack_events(codes) == values).all()
    bounds = packed.pack_boxes(boxes, numbers)
    for i, (j, grid) in enumerate(zip(packed.attributes, packed.grids, strict=True)):
        if grid is not None:
            word, half = packed._field_of(i)
            cells = (values[:, word] >> np.uint64(32 * half)) & np.uint64(0x7FFF)
            assert cells.astype(np.int64).tolist() == (grid.locate(codes[j]) + 1).tolist()
    guards, ones = packed.fields.guards, packed.fields.ones
    for e in range(codes.shape[1]):
        inside = ((boxes.lows <= codes[:, e : e + 1]) & (codes[:, e : e + 1] <= boxes.highs)).all(axis=0)
        held = (((values[e] | guards) - bounds) & guards == guards).all(axis=1)
        sure = ((((values[e] - ones) | guards) - bounds) & guards == guards).all(axis=1)
        assert not (inside & ~held).any()
        assert not (sure & ~inside).any()
        if not len(packed.fields.inexact):
            assert (held == inside).all()


def test_fields_are_as_wide_as_values_need():
    n = 40_000
    lows = np.stack([np.arange(n) * 7, np.arange(n) * 3, np.arange(n) * 2**15, np.arange(n) % 50])
    boxes = ExpandedBoxes(lows, lows.copy(), np.arange(n, dtype=np.int32), n)
    packed = Packed.fit(boxes, np.arange(n), range(4), widen=1.0)
    assert packed.attributes.tolist() == [2, 0, 1, 3]
    assert (packed.n_wide, len(packed.spans), packed.n_words) == (1, 3, 1 + 2 + 1)


@pytest.mark.parametrize("kind", ["auto", "cells", "bitmap"])
def test_the_tables_of_hints_are_counted_and_small(kind, size):
    n = size(20_000)
    w = workloads.workload("lonlat", n, 1)
    index = rc.open_index(kind, w.schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
        patch.setattr("rangecast.engine.auto.TINY", 0)
        index.insert(w.subscriptions())
    (covered,) = index._state.parts
    part = covered.part
    saved = sum(array.nbytes for array in flatten(part)[1].values())
    derived = part_bytes(part) - saved
    packed = (part.paths[0].part if kind == "auto" else part).packed
    cells = sum(packed.grid(k).n_cells for k in range(2))
    assert 0 < packed.derived_bytes == derived
    # of few cells, hints that are finer by far; never many bytes
    assert derived <= max(4 * (2 * cells + 100), min(4 * (16 * cells + 100), 1 << 19))
