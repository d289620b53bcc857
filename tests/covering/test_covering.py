"""Covering: the paper's numbers, every answer against the definition, reductions of whole sets."""

from __future__ import annotations

import itertools
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from oracle import covers, covers_of, match_boxes
from rangecast.covering import index as cover_index
from rangecast.covering import searches
from rangecast.papers.covering import theory
from rangecast.types.attributes import LAST, MISSING, PRESENT
from rangecast.zorder.curve import ZCurve
from strategies import events, int_schema, random_subscriptions, subscriptions

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "1"
N = 1500 if JIT else 90


@pytest.fixture(autouse=True, scope="module")
def small_tails():
    """Small sets must reach the blocks too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "TAIL_LIMIT", 4)
        yield


# The paper's numbers: Shen and Tirthapura 2012


def test_a_square_of_256_is_one_run_and_one_of_257_is_385():
    assert theory.count_runs([256, 256], 9) == 1
    assert theory.count_runs([257, 257], 9) == 385
    assert theory.count_runs([257, 257], 12) == 385
    assert theory.count_cubes([256, 256]) == 1
    assert theory.count_cubes([257, 257]) == 514


def test_the_largest_run_of_257_holds_99_percent():
    assert theory.cubes_until([257, 257], 0.01) == 1
    assert 256**2 / 257**2 > 0.99


def test_unit_cubes_of_7_by_5_make_four_rectangles():
    assert sorted(theory.rectangles([7, 5], 0)) == [(1, 1), (1, 4), (2, 1), (4, 1)]
    # sec. 5: the rectangle 2 x 1 holds two cubes, at (010, 011) and (011, 011)
    assert {(2, 3), (3, 3)} <= set(theory.cubes([7, 5], 3, 0))


@pytest.mark.parametrize("n_dims", [2, 4, 6, 8])
@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.3, 0.9])
def test_leading_bits_keep_the_volume(n_dims, epsilon):
    rng = np.random.default_rng(n_dims)
    m = theory.bits_for(n_dims, epsilon)
    assert 2**m >= 2 * n_dims / epsilon
    for sides in rng.integers(1, 2**16, (50, n_dims)).tolist():
        cut = theory.truncated(sides, m)
        share = np.prod([a / b for a, b in zip(cut, sides, strict=True)])
        assert share >= 1 - epsilon


@given(bits=st.integers(1, 4), data=st.data())
def test_cubes_and_runs_are_the_rectangle(bits, data):
    """The cubes are disjoint, fill the rectangle and are the least; the runs are its addresses."""
    d = data.draw(st.integers(1, 3 if JIT else 2))
    sides = data.draw(st.lists(st.integers(1, 2**bits), min_size=d, max_size=d))
    whole = set(itertools.product(*(range(2**bits - side, 2**bits) for side in sides)))
    seen = []
    for level, n in theory.cubes_by_level(sides, bits).items():
        cubes = theory.cubes(sides, bits, level)
        assert len(cubes) == n
        for cube in cubes:
            seen += itertools.product(*(range(c << level, (c + 1) << level) for c in cube))
    assert len(seen) == len(whole)
    assert set(seen) == whole
    curve = ZCurve([bits] * d)
    shift = 64 - bits * d
    want = sorted(int(a[0]) >> shift for a in curve.encode(np.array(sorted(whole)).T))
    firsts, lasts = theory.runs(sides, bits)
    spans = [(int(a[0]) >> shift, int(b[0]) >> shift) for a, b in zip(firsts, lasts, strict=True)]
    assert [x for a, b in spans for x in range(a, b + 1)] == want
    assert all(b + 1 < c for (_, b), (c, _) in itertools.pairwise(spans))


@given(
    sides=st.lists(st.integers(1, 300), min_size=2, max_size=4),
    epsilon=st.sampled_from([0.0, 0.01, 0.1, 0.5]),
)
def test_needed_cubes_as_counted_by_the_kernel(sides, epsilon):
    from rangecast.covering.kernels import count_needed_each

    out = np.empty(1)
    count_needed_each(np.array(sides, np.int64)[:, None], epsilon, out)
    assert abs(out[0] - theory.cubes_until(sides, epsilon)) <= 1


def test_wide_addresses_join_across_words():
    """6 dimensions of 13 bits are 78 bits, two words."""
    assert theory.count_runs([2] * 6, 13) == 1
    assert theory.count_runs([4096] * 6, 13) == 1
    assert theory.count_runs([3, 2, 2, 2, 2, 2], 13) == theory.count_runs([3, 2, 2, 2, 2, 2], 4)


def test_extremal_errors():
    with pytest.raises(rc.OptionError, match=r"within 1 and 2\*\*3"):
        theory.count_runs([9, 2], 3)
    with pytest.raises(rc.OptionError, match="epsilon must be at least 0"):
        theory.cubes_until([3], 1.0)
    with pytest.raises(rc.OptionError, match="epsilon must be above 0"):
        theory.bits_for(2, 0.0)
    with pytest.raises(rc.CapacityError, match="cubes can be listed"):
        theory.runs([2**20 - 1] * 4, 20)
    assert theory.rectangles([7, 5], 9) == []
    assert theory.aspect_ratio([8, 1]) == 3


# CoverIndex against the definition

SEARCHES = [("blocks", {}), ("curve", {"bits": 3}), ("curve", {"bits": 4, "on": "a0"}), (None, {})]


def answers(index, subs, **options):
    """The answer as a list, with None for "no cover"."""
    got = index.covers(subs, **options)
    return [
        None if not yes else i for i, yes in zip(got.tolist(), index.covered(subs, **options), strict=True)
    ]


def check(index, held, asked, **options):
    got = answers(index, asked, **options)
    for found, true in zip(got, covers_of(held, asked), strict=True):
        assert (found is None) == (not true)
        assert found is None or found in true


@pytest.mark.parametrize(("method", "options"), SEARCHES)
@given(data=st.data())
def test_exact_search_equals_oracle(method, options, data):
    schema = int_schema(data.draw(st.integers(1, 2)))
    held = data.draw(subscriptions(schema))
    asked = data.draw(subscriptions(schema, first_id=data.draw(st.integers(0, 20))))
    index = rc.CoverIndex(schema, **options)
    index.insert(held)
    check(index, held, asked, method=method)
    check(index, held, held, method=method)


@pytest.mark.parametrize("method", ["blocks", "curve"])
@pytest.mark.parametrize("boxes", [1, 2])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_bulk_equals_oracle(method, boxes, d):
    schema = int_schema(d)
    held = random_subscriptions(schema, N, seed=d, boxes=boxes)
    asked = random_subscriptions(schema, 60, seed=50 + d, boxes=boxes)
    index = rc.CoverIndex(schema, bits=3)
    index.insert(held)
    asked = rc.Subscriptions(schema, np.arange(60), asked.lows, asked.highs, asked.owners)
    got = index.covered(asked, method=method)
    assert np.array_equal(got, index.covered(asked, method="blocks"))
    assert np.array_equal(got, brute(held, asked))


def brute(held, asked):
    """The definition in NumPy, for sets that are too large for plain loops."""
    out = np.zeros(len(asked), bool)
    for t in range(len(asked)):
        kept = np.ones(len(held), bool)
        for b in np.flatnonzero(asked.owners == t):
            inside = (held.lows <= asked.lows[:, [b]]).all(0) & (held.highs >= asked.highs[:, [b]]).all(0)
            kept &= np.isin(np.arange(len(held)), held.owners[inside])
        kept &= held.ids.values != asked.ids[t]
        out[t] = kept.any()
    return out


@given(data=st.data(), epsilon=st.sampled_from([0.01, 0.2, 0.6, 0.95]))
def test_approximate_search_never_invents_a_cover(data, epsilon):
    schema = int_schema(data.draw(st.integers(1, 2)))
    held = data.draw(subscriptions(schema))
    index = rc.CoverIndex(schema, bits=data.draw(st.integers(3, 6)))
    index.insert(held)
    asked = data.draw(subscriptions(schema, first_id=6))
    for found, true in zip(answers(index, asked, epsilon=epsilon), covers_of(held, asked), strict=True):
        assert found is None or found in true


@given(data=st.data())
def test_a_cover_matches_whatever_is_covered(data):
    """The meaning of it: each event that the covered one matches, the cover matches."""
    schema = int_schema(2)
    held, batch = data.draw(subscriptions(schema)), data.draw(events(schema))
    index = rc.CoverIndex(schema)
    index.insert(held)
    for row in match_boxes(held, batch):
        for t, found in enumerate(answers(index, held)):
            assert found is None or held.ids[t] not in row or found in row


@settings(max_examples=40 if JIT else 15)
@given(data=st.data())
def test_history_equals_oracle(data):
    schema = int_schema(2)
    index = rc.CoverIndex(schema, bits=3)
    held = {}
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()) or not held:
            subs = data.draw(subscriptions(schema, max_size=6, first_id=data.draw(st.integers(0, 6))))
            index.insert(subs)
            held.update({subs.ids[i]: subs.select([i]) for i in range(len(subs))})
        else:
            ids = data.draw(st.lists(st.integers(0, 14), max_size=8, unique=True))
            assert sorted(index.delete(ids)) == sorted(i for i in ids if i not in held)
            for i in ids:
                held.pop(i, None)
        asked = data.draw(subscriptions(schema, max_size=4, first_id=3))
        for t in range(len(asked)):
            true = {i for i, s in held.items() if i != asked.ids[t] and covers(s, 0, asked, t)}
            one = asked.select([t])
            for method in ("blocks", "curve"):
                assert bool(index.covered(one, method=method)[0]) == bool(true)
    assert len(index) == len(held)


def test_searches_keep_up_with_many_updates():
    schema = int_schema(2)
    subs = random_subscriptions(schema, N, seed=9)
    index = rc.CoverIndex(schema, bits=4)
    for first in range(0, N, N // 10):
        index.insert(subs.select(np.arange(first, min(N, first + N // 10))))
        index.covered(subs.select([0]))
        index.covered(subs.select([0]), method="curve")
    ids = subs.ids.values
    assert index.delete([*ids[::3].tolist(), -7]) == [-7]
    left = subs.select(np.arange(N) % 3 != 0)
    asked = subs.select(np.arange(0, N, N // 30))
    want = brute(left, asked)
    assert np.array_equal(index.covered(asked), want)
    assert np.array_equal(index.covered(asked, method="curve"), want)
    again = pickle.loads(pickle.dumps(index))
    assert np.array_equal(again.covered(asked), want)
    index.compact()
    assert np.array_equal(index.covered(asked), want)
    assert index.delete(left.ids.values) == []
    assert len(index) == 0
    assert not index.covered(asked).any()


def test_all_alike_and_one_giant():
    schema = int_schema(2)
    n = 300
    ones = np.ones((2, n), np.int64)
    subs = rc.Subscriptions(schema, np.arange(n), ones, ones + 3)
    index = rc.CoverIndex(schema)
    index.insert(subs)
    assert index.covered(subs).all()
    assert (index.covers(subs) != np.arange(n)).all()
    giant = rc.Subscriptions(schema, [n], np.full((2, 1), MISSING), np.full((2, 1), LAST))
    assert index.covers(giant).tolist() == [-1]
    index.insert(giant)
    assert index.covers(giant).tolist() == [-1]
    # "present" does not cover "anything or missing", and is covered by it
    present = rc.Subscriptions(schema, [-5], np.full((2, 1), PRESENT), np.full((2, 1), LAST))
    assert index.covers(present).tolist() == [n]


def test_strings_floats_and_categories():
    schema = rc.Schema(rc.Float("x"), rc.Category("kind"))
    index = rc.CoverIndex(schema)
    index.insert(rc.Subscriptions.parse(schema, {"wide": "x < 0.5", "b": "x < 0.25 and kind = 'b'"}))
    asked = rc.Subscriptions.parse(
        schema, {"p": "x < 0.25 and kind = 'b' and x > 0", "q": "x <= 0.5", "b": "x < 0.25 and kind = 'b'"}
    )
    got = index.covers(asked).tolist()
    assert got[0] in ("wide", "b")
    assert got[1:] == [None, "wide"]
    assert "wide" in index
    assert "p" not in index


def test_stats_and_errors():
    schema = rc.Schema(rc.Int("a", 0, 60), rc.Int("b", 0, 60))
    index = rc.CoverIndex(schema, bits=6, max_cubes=10)
    assert index.stats()["subscriptions"] == 0
    subs = rc.Subscriptions.from_arrays(schema, [1, 2], [[0, 0], [30, 30]], [[9, 9], [33, 33]])
    index.insert(subs)
    inner = rc.Subscriptions.from_arrays(schema, [3], [[31, 31]], [[32, 32]])
    with pytest.raises(rc.CapacityError, match="may examine 10 cubes"):
        index.covers(inner, method="curve")
    # left open, the exact search answers instead
    assert index.covers(inner).tolist() == [2]
    roomy = rc.CoverIndex(schema, bits=6)
    roomy.insert(subs)
    assert roomy.covers(inner, method="curve").tolist() == [2]
    stats = roomy.stats()
    assert 0 < stats["last_runs"] <= stats["last_cubes"]
    assert 0 < stats["last_share"] <= 1
    assert stats["last_hits"] == 1
    assert stats["bytes"] >= stats["curve_bytes"] + stats["catalog_bytes"]
    nothing = rc.Subscriptions.from_arrays(schema, [3], [[50, 50]], [[59, 59]])
    roomy.covers(nothing, epsilon=0.3, method="curve")
    assert 0.7 <= roomy.stats()["last_share"] < 1
    assert repr(roomy) == "<CoverIndex: 2 subscriptions>"
    assert roomy.subscriptions([2]).lows.tolist() == [[30], [30]]
    for wrong, message in [
        ({"bits": 2}, "bits must be within 3 and 31"),
        ({"max_cubes": 0}, "max_cubes must be at least 1"),
        ({"on": ()}, "on= takes 1 to 31"),
    ]:
        with pytest.raises(rc.OptionError, match=message):
            rc.CoverIndex(schema, **wrong)
    with pytest.raises(rc.OptionError, match="method must be one of"):
        roomy.covers(inner, method="guess")
    with pytest.raises(rc.OptionError, match="epsilon must be at least 0"):
        roomy.covers(inner, epsilon=1)
    with pytest.raises(rc.SubscriptionError, match="no subscription has the id 77"):
        roomy.subscriptions([2, 77])
    with pytest.raises(rc.SubscriptionError, match="insert takes Subscriptions"):
        roomy.insert([1])
    with pytest.raises(rc.SubscriptionError, match="reduce takes Subscriptions"):
        rc.covering.reduce([1])


def test_many_attributes_are_confirmed_beyond_sixteen():
    schema = int_schema(20)
    held = random_subscriptions(schema, 40, seed=2, bounded=0.3)
    index = rc.CoverIndex(schema)
    index.insert(held)
    assert len(index._attributes()) == cover_index.MOST_ATTRIBUTES
    asked = rc.Subscriptions(schema, held.ids.values + 1, held.lows, held.highs)
    assert index.covered(asked).all()
    assert np.array_equal(index.covered(held), brute(held, held))


# Reductions


def check_reduction(subs, reduction, exact=True):
    covered = dict(zip(reduction.covered.tolist(), reduction.covering.tolist(), strict=True))
    kept = [s for s in range(len(subs)) if s not in covered]
    assert reduction.kept.ids.take(np.arange(len(kept))).tolist() == [subs.ids[s] for s in kept]
    for t, s in covered.items():
        assert s in kept
        assert covers(subs, s, subs, t)
        assert not covers(subs, t, subs, s) or subs.ids[s] < subs.ids[t]
    if exact:
        for s, t in itertools.permutations(kept, 2):
            assert not covers(subs, s, subs, t)


@given(data=st.data())
def test_reduce_keeps_what_nothing_covers(data):
    schema = int_schema(data.draw(st.integers(1, 2)))
    subs = data.draw(subscriptions(schema, textual=data.draw(st.booleans())))
    order = data.draw(st.permutations(range(len(subs))))
    subs = subs.select(np.array(order, np.int64)) if len(subs) else subs
    check_reduction(subs, rc.covering.reduce(subs))
    check_reduction(subs, rc.covering.reduce(subs, epsilon=0.4, bits=4), exact=False)


@given(data=st.data())
def test_a_reduction_matches_the_same_events(data):
    schema = int_schema(2)
    subs, batch = data.draw(subscriptions(schema)), data.draw(events(schema))
    reduction = rc.covering.reduce(subs)
    whole, kept = match_boxes(subs, batch), match_boxes(reduction.kept, batch)
    assert [bool(row) for row in whole] == [bool(row) for row in kept]


def test_reduce_bulk():
    schema = int_schema(2)
    subs = random_subscriptions(schema, N, seed=4, boxes=2)
    reduction = rc.covering.reduce(subs)
    want = brute(subs, subs)
    # of several that cover each other one stays, so at least all uncovered ones do
    kept = np.setdiff1d(np.arange(N), reduction.covered)
    assert set(np.flatnonzero(~want)) <= set(kept.tolist())
    assert not brute(reduction.kept, reduction.kept).any()
    table = reduction.to_arrow()
    assert table.column_names == ["covered", "covering"]
    assert table["covered"].to_pylist() == reduction.ids[0].tolist()
    assert "covered)" in repr(reduction)


def test_reduce_all_alike_keeps_the_smallest_id():
    schema = int_schema(1)
    n = 500
    subs = rc.Subscriptions(schema, np.arange(n)[::-1] + 7, np.zeros((1, n)), np.ones((1, n)))
    reduction = rc.covering.reduce(subs)
    assert reduction.kept.ids.values.tolist() == [7]
    assert set(reduction.ids[1].tolist()) == {7}


def test_reduce_nothing():
    schema = int_schema(1)
    empty = rc.covering.reduce(rc.Subscriptions.empty(schema))
    assert len(empty.kept) == 0
    none = rc.Subscriptions(schema, [4, 3], np.empty((1, 0)), np.empty((1, 0)), np.empty(0, np.int32))
    assert rc.covering.reduce(none).kept.ids.values.tolist() == [3]
