"""Sparse boxes: entries and sets, and what becomes of them as dense boxes, selected, joined and compared."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import rangecast as rc
from rangecast.model import boxes as sparse
from rangecast.model.boxes import DenseBoxes
from rangecast.model.subscriptions import DENSE_LIMIT

VALUES = range(-1, 8)


def make_schema(d=3):
    return rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))


values = st.lists(st.integers(0, 6), min_size=1, max_size=5).map(lambda some: ",".join(map(str, some)))
predicates = st.builds(
    lambda j, how, some: f"a{j} {how} ({some})", st.integers(0, 2), st.sampled_from(["in", "not in"]), values
) | st.builds(
    lambda j, how, value: f"a{j} {how} {value}",
    st.integers(0, 2),
    st.sampled_from(["=", "!=", "<", ">="]),
    st.integers(0, 6),
)
conjunctions = st.lists(predicates, min_size=1, max_size=4).map(" and ".join)
conditions = st.lists(conjunctions, min_size=1, max_size=3).map(" or ".join)
several = st.lists(conditions, min_size=1, max_size=6)


def parse(texts, schema):
    return rc.Subscriptions.parse(schema, dict(enumerate(texts)))


def all_events(schema):
    points = list(itertools.product(VALUES, repeat=len(schema)))
    rows = [{n: None if v < 0 else v for n, v in zip(schema.names, p, strict=True)} for p in points[::5]]
    return rc.Events.from_rows(schema, rows)


def held_by(dense, codes):
    """For each event, the owners of the dense boxes that hold it."""
    return [
        {
            int(dense.owners[b])
            for b in range(len(dense.owners))
            if (dense.lows[:, b] <= code).all() and (code <= dense.highs[:, b]).all()
        }
        for code in codes.T
    ]


@given(several)
def test_dense_boxes_hold_the_same_events(texts):
    schema = make_schema()
    subs, events = parse(texts, schema), all_events(schema)
    codes = events.encoded(schema).codes
    want = oracle.match_boxes(subs, events)
    assert held_by(subs.dense(), codes) == want
    hulls = held_by(sparse.hulls(subs.boxes, 3), codes)
    assert all(exact <= hull for exact, hull in zip(want, hulls, strict=True))
    assert not subs.expanded().has_sets
    assert oracle.match_boxes(subs.expanded(), events) == want


@given(several, st.randoms(use_true_random=False))
def test_select_and_concat_keep_each_subscription(texts, random):
    schema = make_schema()
    subs = parse(texts, schema)
    rows = random.sample(range(len(subs)), random.randint(0, len(subs)))
    alone = [parse([text], schema).boxes for text in texts]
    some = subs.select(rows)
    for place, row in enumerate(rows):
        mine = some.select([place]).boxes
        assert all(np.array_equal(a, b) for a, b in zip(mine, alone[row], strict=True))
    parts = [subs.select([row]) for row in rows]
    if parts:
        joined = rc.Subscriptions.concat(parts)
        assert all(np.array_equal(a, b) for a, b in zip(joined.boxes, some.boxes, strict=True))


@given(several)
def test_overlapping_is_that_of_dense_boxes_of_different_boxes(texts):
    schema = make_schema()
    subs = parse(texts, schema)
    want = []
    for row in range(len(subs)):
        numbers = np.flatnonzero(subs.owners == row)
        pieces = [
            sparse.cut(
                sparse.select(subs.boxes, np.array([number]), np.zeros(1, np.int32)),
                3,
                np.ones(int(((subs.boxes.sets >= subs.boxes.starts[number])
                             & (subs.boxes.sets < subs.boxes.starts[number + 1])).sum()), np.uint8),
            )[0]
            for number in numbers
        ]  # fmt: skip
        want.append(
            any(
                (np.maximum(a.lows[:, [i]], b.lows) <= np.minimum(a.highs[:, [i]], b.highs)).all(0).any()
                for a, b in itertools.combinations(pieces, 2)
                for i in range(len(a.owners))
            )
        )
    assert subs.overlapping().tolist() == want
    by_hulls = sparse.flag_overlapping(subs.boxes, len(subs), by_hulls=True)
    assert (by_hulls >= subs.overlapping()).all()


def test_dense_arrays_become_entries_and_come_back():
    rng = np.random.default_rng(5)
    lows = np.sort(rng.integers(0, 9, (2, 4, 50)), axis=0)
    lows[0][rng.random((4, 50)) < 0.4] = np.iinfo(np.int64).min
    lows[1][lows[0] < 0] = np.iinfo(np.int64).max
    dense = DenseBoxes(lows[0], lows[1], np.arange(50, dtype=np.int32))
    boxes = sparse.from_dense(dense)
    assert len(boxes.lows) == int((lows[0] >= 0).sum())
    again = sparse.hulls(boxes, 4)
    assert all(np.array_equal(a, b) for a, b in zip(dense, again, strict=True))


def test_memory_is_linear_in_what_was_written():
    schema = make_schema(20)
    twenty = parse([" and ".join(f"a{j} != {j}" for j in range(20))], schema)
    assert (twenty.n_boxes, len(twenty.boxes.lows), len(twenty.boxes.set_lows)) == (1, 20, 40)
    assert twenty.nbytes < 2_000
    long = parse(["a0 not in (" + ",".join(map(str, range(0, 10_000, 2))) + ")"], schema)
    assert (long.n_boxes, len(long.boxes.set_lows)) == (1, 5_001)
    assert long.nbytes < 17 * 5_001


def test_the_limit_of_dense_boxes_names_the_subscription():
    schema = make_schema(20)
    subs = parse(["a0 = 1", " and ".join(f"a{j} != {j}" for j in range(20)), "a1 != 2"], schema)
    wanted = (
        r"subscription 1 is 1,048,576 boxes of one interval per attribute, and this structure takes at most "
        r"1,024 \(1 of 3 subscriptions\); the indexes 'auto' and 'scan' take its sets as they are, or cut it"
    )
    with pytest.raises(rc.CapacityError, match=wanted):
        subs.dense()
    with pytest.raises(rc.CapacityError, match=wanted):
        rc.open_index("rtree", schema).insert(subs)
    odd = ",".join(map(str, range(1, 2 * DENSE_LIMIT, 2)))
    assert len(parse([f"a0 in ({odd})"], schema).dense().owners) == DENSE_LIMIT


def test_ends_are_not_given_where_boxes_have_sets():
    subs = parse(["a0 != 1"], make_schema())
    for ends in ("lows", "highs"):
        with pytest.raises(rc.SubscriptionError, match=r"boxes have sets of intervals; take expanded\(\)"):
            getattr(subs, ends)
    assert subs.expanded().lows.shape == (3, 2)
