"""Bitmap blocks: several blocks, attributes that only some use, clustering, sweeping."""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine.layouts.bitmap import (
    BLOCK,
    CELLS,
    CLUSTERED,
    FEWEST_CELLS,
    MIDDLE,
    BitmapPart,
    _clustered,
    choose_cells,
    row_width,
)
from rangecast.engine.layouts.bitmap_kernels import TOP, count_cells
from rangecast.simd.bytes import WIDEST, compare_word
from rangecast.simd.compiler import kernel
from rangecast.simd.lanes import count_bits, lowest
from rangecast.types.attributes import LAST, MISSING
from strategies import int_schema


def drawn(n, d, seed, span=1_000, used=0.6):
    rng = np.random.default_rng(seed)
    lows = rng.integers(0, span, (d, n))
    highs = lows + rng.integers(0, span // 2, (d, n))
    free = rng.random((d, n)) > used
    lows[free], highs[free] = MISSING, LAST
    # one attribute that only the first half of them uses
    lows[0, n // 2 :], highs[0, n // 2 :] = MISSING, LAST
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
    events = rc.Events(schema, rng.integers(-10, span + span // 2, (d, 90)))
    return rc.Subscriptions(schema, np.arange(n), lows, highs), events


@pytest.mark.parametrize("options", [{}, {"cells": 4}, {"clustered": False}])
@pytest.mark.parametrize("d", [1, 3, 7])
def test_equals_scan_over_several_blocks(size, d, options):
    subs, events = drawn(size(9_000), d, seed=d)
    index, scan = rc.open_index("bitmap", subs.schema, **options), rc.open_index("scan", subs.schema)
    index.insert(subs)
    scan.insert(subs)
    assert index.match(events) == scan.match(events)
    first = events.select([0])
    assert index.match(first) == scan.match(first)


def test_dead_are_swept(size):
    n = size(5_000)
    subs, events = drawn(n, 4, seed=9)
    index = rc.open_index("bitmap", subs.schema)
    index.insert(subs)
    gone = np.arange(0, n, 20)
    index.delete(gone)
    few = events.select(np.arange(10))
    left = subs.select(np.setdiff1d(np.arange(n), gone))
    scan = rc.open_index("scan", subs.schema)
    scan.insert(left)
    assert index.match(events) == scan.match(events)
    assert rows_of(index.match(few)) == [sorted(row) for row in match_boxes(left, few)]


@pytest.mark.slow
def test_an_answer_that_fills_its_room_to_the_last_place():
    """A block of boxes and 128 events that all match: the kernel asked for room without end."""
    schema = rc.Schema(rc.Int("a", 0, 99), rc.Int("b", 0, 99))
    subs = rc.Subscriptions(schema, np.arange(BLOCK), np.zeros((2, BLOCK), int), np.full((2, BLOCK), 90))
    index = rc.open_index("bitmap", schema)
    index.insert(subs)
    found = index.match(rc.Events(schema, np.full((2, 128), 5)))
    assert found.counts.tolist() == [BLOCK] * 128


def fields_of(firsts, lasts):
    """Rows of fields that say these cells of each attribute, as engine/layouts/bitmap_kernels.py tells."""
    k = len(firsts)
    bounds = np.zeros((len(firsts[0]), row_width(k)), np.uint8)
    for j in range(k):
        bounds[:, 2 * j], bounds[:, 2 * j + 1] = firsts[j] + 1, TOP - lasts[j]
    return bounds


def order_of(firsts, lasts, size):
    """The order that boxes of these cells are put in."""
    bounds, sizes = fields_of(firsts, lasts), np.full(len(firsts), size)
    counts = np.zeros((len(firsts), 2, MIDDLE), np.int64)
    count_cells(bounds, sizes, counts)
    order = np.arange(len(bounds))
    moved = _clustered(bounds.copy(), sizes, counts, order)
    assert np.array_equal(moved, bounds[order])
    return order


def test_clustering_is_an_order(size):
    rng = np.random.default_rng(4)
    n = max(size(20_000), 3 * BLOCK + 7)
    firsts = [rng.integers(0, 100, n).astype(np.int32) for _ in range(3)]
    lasts = [np.minimum(f + rng.integers(0, 30, n), 99).astype(np.int32) for f in firsts]
    order = order_of(firsts, lasts, 100)
    assert sorted(order.tolist()) == list(range(n))
    # an event finds more blocks in which nobody has its cell than by chance
    assert looked_at(firsts, lasts, order) < looked_at(firsts, lasts, np.arange(n))


def test_clustering_by_some_of_many_attributes():
    """The fields of those that are not cut at come along."""
    rng = np.random.default_rng(6)
    n, k = 2 * BLOCK + 9, CLUSTERED + 3
    firsts = [rng.integers(0, 100, n).astype(np.int32) for _ in range(k)]
    lasts = [np.minimum(f + rng.integers(0, 30, n), 99).astype(np.int32) for f in firsts]
    assert sorted(order_of(firsts, lasts, 100).tolist()) == list(range(n))


def looked_at(firsts, lasts, order):
    starts = np.arange(0, len(order), BLOCK)
    sizes = [
        np.maximum.reduceat(last[order], starts) - np.minimum.reduceat(first[order], starts) + 1
        for first, last in zip(firsts, lasts, strict=True)
    ]
    return np.prod(sizes, axis=0).mean()


@pytest.mark.parametrize(
    ("first", "last", "others"),
    [(0, 254, slice(0)), (0, 254, 7), (0, 254, slice(None, None, 2)), (5, 4, slice(0))],
)
def test_clustering_of_boxes_alike(first, last, others):
    """Little to cut at: all alike, one that differs, two kinds, and boxes that hold nothing."""
    n = 3 * BLOCK + 5
    firsts, lasts = np.full(n, first, np.int32), np.full(n, last, np.int32)
    firsts[others] = 254
    assert sorted(order_of([firsts], [lasts], 255).tolist()) == list(range(n))


def test_cells_are_as_many_as_pay():
    """Few where there are few candidates and much to deliver, the most where caches hold all."""
    shares, ends = np.full(12, 1 / 3), np.full(12, 2.0)
    assert choose_cells(shares, ends, 1_000) == CELLS
    assert FEWEST_CELLS <= choose_cells(shares, ends, 1_000_000) < CELLS
    # wide ones leave many candidates
    assert choose_cells(np.full(12, 0.8), ends, 1_000_000) == CELLS


@pytest.mark.parametrize("d", [1, 4, 8, 9, 16, 17, 20, 33, 40])
@pytest.mark.parametrize("span", [40, 700, 90_000, 2**50])
def test_equals_the_oracle_where_cells_hold_many_values(d, span):
    """Rows of fields of every length; ends by middle cell alone, by fine cell, and only by codes."""
    rng = np.random.default_rng([d, span])
    n, m = 400, 60
    schema = int_schema(d)
    lows = rng.integers(0, span, (d, n))
    highs = lows + rng.integers(0, span, (d, n))
    lows[rng.random((d, n)) < 0.5] = MISSING
    highs[rng.random((d, n)) < 0.5] = LAST
    # some hold an event on all attributes, or miss it by one value on one of them
    events = rng.integers(0, 2 * span, (d, m))
    events[rng.random((d, m)) < 0.05] = MISSING
    at = np.arange(n // 2) % m
    near = events[:, at]
    bounded = (rng.random(near.shape) < 0.6) & (near != MISSING)
    lows[:, : n // 2] = np.where(bounded, near - rng.integers(0, 2, near.shape), MISSING)
    highs[:, : n // 2] = np.where(bounded, near + rng.integers(0, 2, near.shape), LAST)
    missed = rng.integers(0, d, n // 4), np.arange(n // 4)
    lows[missed] = np.where(bounded[missed], near[missed] + 1, lows[missed])
    highs[missed] = np.maximum(highs[missed], lows[missed])
    subs = rc.Subscriptions(schema, np.arange(n), lows, highs)
    index = rc.open_index("bitmap", schema)
    index.insert(subs)
    want = [sorted(row) for row in match_boxes(subs, rc.Events(schema, events))]
    assert sum(map(len, want)) > n // 8
    assert rows_of(index.match(rc.Events(schema, events))) == want
    gone = np.arange(0, n, 7)
    index.delete(gone)
    left = [[i for i in row if i % 7] for row in want]
    assert rows_of(index.match(rc.Events(schema, events))) == left


def test_more_events_than_fit_the_room_at_first(size):
    """Everything matches: room runs out in the middle of a block, more than once."""
    schema = rc.Schema(rc.Float("a"), rc.Float("b"))
    n, m = size(6_000), size(1_000)
    rng = np.random.default_rng(8)
    lows = rng.random((n, 2)) * 0.1
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), lows, lows + 0.9)
    events = rc.Events.from_arrays(schema, {"a": 0.1 + 0.8 * rng.random(m), "b": 0.05 + rng.random(m)})
    index, scan = rc.open_index("bitmap", schema), rc.open_index("scan", schema)
    for one in (index, scan):
        one.insert(subs)
    assert index.match(events) == scan.match(events)


@kernel
def lowest_of(words, out):
    for k in range(words.size):
        out[k] = lowest(words[k]) + 100 * count_bits(words[k])


def test_lowest_bit_and_how_many():
    words = np.array([0, *(1 << k for k in range(64)), *(1 << k | 1 << 63 for k in range(64))], np.uint64)
    out = np.empty(len(words), np.int64)
    lowest_of(words, out)
    assert (out % 100).tolist() == [64, *range(64), *range(64)]
    assert (out // 100).tolist() == [0] + 64 * [1] + 63 * [2] + [1]


@kernel
def compare_all(bounds, first, left, points, e, ones, out, doubtful, ends):
    ends[0], ends[1] = compare_word(
        bounds, np.uint64(first), left, points, np.uint64(e), ones, 0, out, 0, doubtful
    )


@pytest.mark.parametrize("width", [16, 24, 32, 40, WIDEST])
@pytest.mark.parametrize("left", [0, 1, 1 << 63, 0x8000_0100_0000_0011, 2**64 - 1])
def test_a_word_of_candidates_is_compared_like_each_of_them(width, left):
    rng = np.random.default_rng(width)
    # the event's fields or one beside them: all three answers are common, and each field decides in some row
    points = rng.integers(1, 255, (3, width)).astype(np.uint8)
    bounds = np.zeros((70, width), np.uint8)
    for row in range(1, 70):
        bounds[row, rng.integers(width)] = points[1, rng.integers(width)]
        k = row % width
        bounds[row, k] = points[1, k].astype(np.int64) + (row % 3 - 1)
    ones = np.ones(width, np.uint8)
    expected = [[], []]
    for b in range(64):
        if left >> b & 1:
            row = bounds[3 + b].astype(np.int64)
            if (row < points[1]).all():
                expected[0].append(1 << 32 | (3 + b))
            elif (row <= points[1]).all():
                expected[1].append(1 << 32 | (3 + b))
    out, doubtful = np.zeros((2, 66), np.uint64)
    ends = np.zeros(2, np.int64)
    compare_all(bounds, 3, np.uint64(left), points, 1, ones, out, doubtful, ends)
    assert [out[: ends[0]].tolist(), doubtful[: ends[1]].tolist()] == expected


@pytest.mark.parametrize("d", [2, 12, 20, 32, 33])
@pytest.mark.parametrize("span", [60, 2**40])
def test_many_candidates_in_each_of_several_blocks(size, d, span):
    """So many that the fields of a block are asked for in order, and words are compared as they are found."""
    n = size(6 * BLOCK)
    rng = np.random.default_rng(d)
    schema = int_schema(d)
    lows = rng.integers(0, span // 2, (d, n))
    highs = lows + span // 2
    free = rng.random((d, n)) > 4 / d
    lows[free], highs[free] = MISSING, LAST
    # ends of boxes among the values, so that bounds touch, and missing ones
    values = rng.integers(0, span, (d, 130))
    values[:, ::3] = np.where(lows == MISSING, 0, lows)[:, rng.integers(n, size=44)]
    values[rng.random(values.shape) < 0.02] = MISSING
    events = rc.Events(schema, values)
    subs = rc.Subscriptions(schema, np.arange(n), lows, highs)
    index, scan = rc.open_index("bitmap", schema), rc.open_index("scan", schema)
    index.insert(subs)
    scan.insert(subs)
    assert index.match(events) == scan.match(events)
    counts = scan.match(events).counts
    assert index.match(events, limit=3).counts.tolist() == np.minimum(counts, 3).tolist()


def test_a_block_has_rows_only_where_somebody_is():
    n = 4 * BLOCK
    schema, rng = int_schema(2), np.random.default_rng(3)
    # narrow on the first attribute, by which they are put in order
    lows = np.stack([np.arange(n), rng.integers(0, 900, n)])
    highs = lows + np.array([[5], [400]])
    index, scan = (rc.open_index(name, schema) for name in ("bitmap", "scan"))
    for one in (index, scan):
        one.insert(rc.Subscriptions(schema, np.arange(n), lows, highs))
    events = rc.Events(schema, np.stack([rng.integers(-9, n + 9, 300), rng.integers(-9, 1_400, 300)]))
    assert index.match(events) == scan.match(events)
    part, boxes = index._state.parts[0].part, index._state.catalog.boxes
    blocks = part.blocks
    assert blocks.bits.any(axis=1).all()
    part.check(boxes, n)
    # a file cannot make a block read rows that are not its own
    for field, spoiled in (
        ("row_bases", blocks.row_bases - 1),
        ("row_bases", blocks.row_bases + 1),
        ("tops", np.full_like(blocks.tops, 2**64 - 1)),
    ):
        crafted = BitmapPart(part.packed, part.identical, blocks._replace(**{field: spoiled}))
        with pytest.raises(rc.StorageError, match="reads its own bitsets"):
            crafted.check(boxes, n)


def test_options_and_limit():
    schema = rc.Schema(rc.Int("a"), rc.Int("b"), rc.Int("c"))
    with pytest.raises(rc.OptionError, match="cells must be within 4 and 255"):
        rc.open_index("bitmap", schema, cells=1)
    subs, _ = drawn(2_000, 3, seed=1)
    index = rc.open_index("bitmap", subs.schema, memory_limit=10_000)
    with pytest.raises(rc.CapacityError, match="'bitmap' for 2,000 boxes on 3 attributes needs about"):
        index.insert(subs)


@pytest.mark.once
@pytest.mark.parametrize("kind", ["bitmap", "auto"])
@pytest.mark.parametrize("d", [255, 256, 257, 500])
def test_more_attributes_than_a_byte_counts(kind, d, size):
    """Each subscription bounds two attributes, and together they bound all; an event has all values.

    The first half is on the lower attributes and the second on the upper ones, so that a block has no rows of
    the attributes that a number of 8 bits would mean instead.
    """
    rng = np.random.default_rng(d)
    n, m = max(size(8_192), 600), 40
    schema = int_schema(d)
    lows = np.full((n, d), np.nan)
    highs = np.full((n, d), np.nan)
    half = d // 2
    for step in (0, half // 2):
        upper = half + (np.arange(n) + step) % (d - half)
        at = np.where(np.arange(n) < n // 2, (np.arange(n) + step) % half, upper)
        starts = rng.integers(0, 50, n)
        lows[np.arange(n), at] = starts
        highs[np.arange(n), at] = starts + rng.integers(5, 40, n)
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs)
    events = rc.Events(schema, rng.integers(0, 80, (d, m)))
    want, got = rc.open_index("scan", schema), rc.open_index(kind, schema)
    for index in (want, got):
        index.insert(subs)
    assert want.match(events).n_pairs > n
    assert got.match(events) == want.match(events)
