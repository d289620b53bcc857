"""Z-addresses against plain integers, and jumps into a box against walking the curve."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.zorder.curve import ZCurve
from rangecast.zorder.kernels import compare


def address_of(curve, point):
    """The address as one Python integer, from the definition."""
    out = 0
    for k, shift in zip(curve.dims.tolist(), curve.shifts.tolist(), strict=True):
        out = out << 1 | (point[k] >> shift & 1)
    return out << 64 * curve.n_words - len(curve.dims)


def as_integer(words):
    return int.from_bytes(words.astype(">u8").tobytes(), "big")


def points_of(bits):
    return list(itertools.product(*(range(1 << b) for b in bits)))


def test_first_bits_of_all_dimensions_come_first():
    curve = ZCurve([3, 1, 2])
    assert curve.dims.tolist() == [0, 1, 2, 0, 2, 0]
    assert curve.shifts.tolist() == [2, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("bits", [[5], [3, 3], [2, 3, 1], [16] * 32, [63, 63], [17, 0, 40, 9]])
def test_interleave_and_back(bits):
    curve = ZCurve(bits)
    rng = np.random.default_rng(1)
    points = np.array([rng.integers(0, 1 << b, 50, dtype=np.int64) for b in bits])
    addresses = curve.encode(points)
    assert addresses.shape == (50, -(-sum(bits) // 64))
    assert [as_integer(a) for a in addresses] == [address_of(curve, p) for p in points.T.tolist()]
    assert np.array_equal(curve.decode(addresses), points)


def test_compare_is_the_order_of_integers():
    rng = np.random.default_rng(2)
    words = rng.integers(0, 3, (20, 3)).astype(np.uint64) << np.uint64(62)
    for a, b in itertools.product(words, words):
        x, y = as_integer(a), as_integer(b)
        assert compare(a, b) == (x > y) - (x < y)


def jumps(curve, starts, lows, highs):
    addresses = curve.encode(np.array(starts).T)
    out, found = curve.jump_in(addresses, np.array(lows), np.array(highs))
    return [as_integer(a) if f else None for a, f in zip(out, found, strict=True)]


def expected_jumps(curve, points, starts, lows, highs):
    inside = sorted(
        address_of(curve, p)
        for p in points
        if all(a <= x <= b for a, x, b in zip(lows, p, highs, strict=True))
    )
    return [next((z for z in inside if z >= address_of(curve, s)), None) for s in starts]


@given(data=st.data())
def test_jump_in_equals_walking_the_curve(data):
    d = data.draw(st.integers(1, 8))
    most = [5, 3, 2, 2, 1, 1, 1, 1][d - 1]
    bits = data.draw(st.lists(st.integers(0 if d > 1 else 1, most), min_size=d, max_size=d).filter(any))
    curve = ZCurve(bits)
    points = points_of(bits)
    corners = [sorted(data.draw(st.tuples(*[st.integers(0, (1 << b) - 1)] * 2))) for b in bits]
    lows, highs = [c[0] for c in corners], [c[1] for c in corners]
    assert jumps(curve, points, lows, highs) == expected_jumps(curve, points, points, lows, highs)


def test_jump_in_over_several_words():
    """The top bits of 40 dimensions fill more than a word; the box fixes all but a few of them."""
    bits = [2] * 40
    curve = ZCurve(bits)
    rng = np.random.default_rng(3)
    for trial in range(20):
        fixed = rng.integers(0, 4, 40)
        lows, highs = fixed.copy(), fixed.copy()
        free = rng.choice(40, 3, replace=False)
        lows[free], highs[free] = 0, rng.integers(1, 4, 3)
        spans = [range(a, b + 1) for a, b in zip(lows.tolist(), highs.tolist(), strict=True)]
        points = list(itertools.product(*spans))
        near = [
            [int(np.clip(x + rng.integers(-1, 2), 0, 3)) if rng.random() < 0.05 else x for x in p]
            for p in points
        ]
        starts = [*points[:10], *near[:20], [0] * 40, [3] * 40]
        assert jumps(curve, starts, lows, highs) == expected_jumps(curve, points, starts, lows, highs), trial


def test_a_curve_needs_bits():
    with pytest.raises(rc.OptionError, match=r"1 to 63 bits a dimension, got \[\]"):
        ZCurve([])
    with pytest.raises(rc.OptionError, match=r"1 to 63 bits a dimension, got \[64\]"):
        ZCurve([64])
