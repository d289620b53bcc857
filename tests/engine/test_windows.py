"""Windows over sorted intervals: ends of every kind, far apart and touching; sweeping; what is not taken."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.engine import boxes as engine_boxes
from rangecast.engine.answers import ALL, Request, write_rows
from rangecast.engine.boxes import BoxEntries, Boxes, ExpandedBoxes
from rangecast.engine.layouts import windows
from rangecast.engine.layouts import windows_kernels as kernels
from rangecast.errors import CapacityError
from rangecast.model.boxes import DenseBoxes, from_dense
from rangecast.simd.compiler import kernel
from rangecast.simd.lanes import (
    EIGHT,
    eight_one_by_one,
    keep_eight,
    keep_eight_reaching,
    keep_reaching,
    reach_eight_one_by_one,
    reach_one_by_one,
)
from rangecast.types.attributes import LAST, MISSING, PRESENT

ENDS = st.one_of(
    st.integers(-5, 5),
    st.integers(10**9, 10**9 + 40),
    st.integers(-(2**62), 2**62),
    st.sampled_from([MISSING, PRESENT, PRESENT + 1, LAST - 1, LAST]),
)
INTERVALS = st.tuples(ENDS, ENDS).map(sorted)


def boxes_of(intervals) -> ExpandedBoxes:
    ends = np.array(list(intervals), np.int64).reshape(-1, 2).T
    n = ends.shape[1]
    return ExpandedBoxes(ends[:1].copy(), ends[1:].copy(), np.arange(n, dtype=np.int32), n)


def values_around(boxes: ExpandedBoxes) -> np.ndarray:
    """Every end, and the values beside it."""
    ends = np.concatenate([boxes.lows[0], boxes.highs[0]])
    beside = [np.minimum(ends, LAST - 1) + 1, np.maximum(ends, PRESENT) - 1]
    return np.concatenate([ends, *beside, [MISSING, PRESENT, 0, LAST]])


def check(part: windows.WindowsPart, boxes: ExpandedBoxes, alive: np.ndarray) -> None:
    values = values_around(boxes)
    offsets, slots = write_rows(part.stab(Request(values[None], boxes)))
    candidates = part.cost(values[None])
    for e, value in enumerate(values.tolist()):
        want = np.flatnonzero((boxes.lows[0] <= value) & (value <= boxes.highs[0]) & alive)
        assert sorted(slots[offsets[e] : offsets[e + 1]].tolist()) == want.tolist()
        assert candidates[e] >= len(want)


@pytest.mark.parametrize("in_order", [False, True])
@given(intervals=st.lists(INTERVALS, max_size=30), data=st.data())
def test_holders_are_those_of_a_plain_loop(in_order, intervals, data):
    boxes = boxes_of(intervals)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "SORTED", 1 if in_order else 10**9)
        patch.setattr(windows, "_FEW_CANDIDATES", data.draw(st.sampled_from([0.0, 8.0])))
        part = windows.build_windows(boxes, np.arange(boxes.n), 0)
        check(part, boxes, np.ones(boxes.n, bool))
        dead = np.array(data.draw(st.lists(st.booleans(), min_size=boxes.n, max_size=boxes.n)), np.uint8)
        check(part.without(dead), boxes, dead == 0)


@pytest.mark.parametrize("kind", [rc.Int, rc.Float, rc.Timestamp])
def test_auto_takes_them_for_one_attribute_of_many_values(kind, size, tmp_path):
    rng = np.random.default_rng(3)
    n, m = max(size(20_000), 600), max(size(6_000), 50)
    schema = rc.Schema(kind("at"))
    lows = rng.integers(10**6, 10**9, n)
    highs = lows + rng.integers(0, 10**6, n)
    points = np.concatenate([rng.integers(0, 10**9, m), lows[:20], highs[:20], highs[:20] + 1])
    if kind is rc.Timestamp:
        lows, highs, points = (array.astype("datetime64[us]") for array in (lows, highs, points))
    elif kind is rc.Float:
        lows, highs, points = (array / 1000 for array in (lows, highs, points))
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), {"at": lows}, {"at": highs})
    events = rc.Events.from_arrays(schema, {"at": points})
    index, scan = rc.open_index("auto", schema), rc.open_index("scan", schema)
    for one in (index, scan):
        one.insert(subs)
    assert [path["path"] for path in index.plan()] == ["windows"]
    assert index.match(events) == scan.match(events)
    gone = np.arange(0, n, 7)
    for one in (index, scan):
        assert one.delete(gone) == []
    index.save(tmp_path / "index")
    for one in (index, rc.load_index(tmp_path / "index")):
        assert one.match(events) == scan.match(events)


def test_one_sided_bounds_are_copied_not_compared(size):
    n = max(size(5_000), 800)
    schema = rc.Schema(rc.Int("a"))
    rare = {0: "a is missing", 1: "a is present", 2: "a between 5 and {}", 3: "a != {}"}
    texts = [rare.get(i % 40, ("a >= {}", "a < {}")[i % 2]).format(i * 10**6 + 9) for i in range(n)]
    subs = rc.Subscriptions.parse(schema, ids=np.arange(n), texts=texts)
    index, scan = rc.open_index("auto", schema), rc.open_index("scan", schema)
    for one in (index, scan):
        one.insert(subs)
    rows = [{"a": 10**6 * (n // 2)}, {"a": 0}, {}, {"a": 10**9 * n}, {"a": -1}]
    events = rc.Events.from_rows(schema, rows)
    assert index.match(events) == scan.match(events)
    path = next(path for path in index.plan() if path["path"] == "windows")
    assert path["boxes"] > n // 2
    dense = subs.dense()
    boxes = ExpandedBoxes(dense.lows, dense.highs, dense.owners, len(dense.owners))
    assert windows.build_windows(boxes, np.arange(boxes.n), 0).stats()["open_ended"] > n // 2


def test_crowded_ends_go_to_cells(size):
    """Half of the intervals are within a millionth of the domain, so that one bucket holds them all."""
    n = max(size(20_000), 2_000)
    rng = np.random.default_rng(1)
    lows = np.where(np.arange(n) % 2, rng.integers(0, 10**4, n), rng.integers(0, 10**12, n))
    schema = rc.Schema(rc.Int("a"))
    index, scan = rc.open_index("auto", schema), rc.open_index("scan", schema)
    for one in (index, scan):
        one.insert(rc.Subscriptions(schema, np.arange(n), lows[None], lows[None] + 2))
    assert [path["path"] for path in index.plan()] == ["cells"]
    events = rc.Events(schema, lows[None, :200])
    assert index.match(events) == scan.match(events)


def test_a_build_that_does_not_fit_is_refused():
    boxes = boxes_of([(1, 2)] * 1000)
    with pytest.raises(CapacityError, match=r"windows over 1,000 boxes .*needs about"):
        windows.build_windows(boxes, np.arange(1000), 0, memory_limit=1000)


@pytest.mark.parametrize("far", [100, 2**40])
@pytest.mark.parametrize("kind", ["expanded", "by entry", "open"])
def test_what_is_read_in_pieces_is_laid_out_alike(monkeypatch, kind, far):
    rng = np.random.default_rng(5)
    n = 40
    lows = np.sort(rng.integers(-far, far, (1, n)))[:, ::-1].copy()
    highs = lows + rng.integers(0, 50, (1, n))
    if kind == "open":
        highs[0, 7] = LAST
    boxes = ExpandedBoxes(lows, highs, np.arange(n, dtype=np.int32), n)
    if kind != "expanded":
        entries = BoxEntries(1)
        entries.add(from_dense(DenseBoxes(lows, highs, np.arange(n, dtype=np.int32))))
        boxes = Boxes(entries.arrays(np.empty(0, np.int32)))
    whole = windows.build_windows(boxes, np.arange(n), 0).windows
    for module in (windows, engine_boxes):
        monkeypatch.setattr(module, "AT_ONCE", 7)
    pieces = windows.build_windows(boxes, np.arange(n), 0).windows
    assert pieces.base == whole.base
    for one, other in zip(pieces[1:], whole[1:], strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("top", "dtype"), [(2**32 - 2, np.uint32), (2**32 - 1, np.uint64), (2**33, np.uint64)]
)
@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("base", [-5, 0, PRESENT + 1])
def test_ends_are_read_as_distances_up_to_the_limit(monkeypatch, base, equal, top, dtype):
    monkeypatch.setattr(windows, "AT_ONCE", 2)
    lows = base + np.array([0, 3, 7, top])
    highs = lows if equal else np.array([base, base + top - 1, base + top, base + top])
    entries = BoxEntries(1)
    entries.add(from_dense(DenseBoxes(lows[None], highs[None], np.arange(4, dtype=np.int32))))
    boxes = Boxes(entries.arrays(np.empty(0, np.int32)))
    built = windows.build_windows(boxes, np.arange(4), 0, threads=2).windows
    assert (built.base, built.lows.dtype, built.highs.dtype) == (base, dtype, dtype)
    found = sorted(zip(built.slots.tolist(), built.lows.tolist(), built.highs.tolist(), strict=True))
    assert found == [(k, int(lows[k]) - base, int(highs[k]) - base) for k in range(4)]


@given(data=st.data(), threads=st.integers(1, 3))
def test_laid_out_by_class_and_low_end(data, threads):
    dtype = data.draw(st.sampled_from([np.uint32, np.uint64]))
    top = data.draw(st.sampled_from([3, 200, int(np.iinfo(dtype).max)]))
    ends = data.draw(st.lists(st.tuples(st.integers(0, top), st.integers(0, top)).map(sorted), max_size=40))
    starts, stops = (np.array([end[k] for end in ends], dtype) for k in range(2))
    slots = np.array(data.draw(st.permutations(range(len(ends)))), np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "AT_ONCE", data.draw(st.sampled_from([1, 7, 1000])))
        patch.setattr(windows, "_HEAP", data.draw(st.sampled_from([1, 4, 4096])))
        patch.setattr(windows, "_FEW_CANDIDATES", data.draw(st.sampled_from([0.0, 8.0])))
        lows, highs, of, tables, classes = windows.lay_out(starts, stops, slots, threads)
    where = np.argsort(slots)
    assert np.array_equal(starts[where][of], lows)
    assert np.array_equal(stops[where][of], highs)
    n = 0
    for table, buckets, shift, narrowest, widest in classes.view(np.uint64).tolist():
        own = slice(n, int(tables[table + buckets]))
        n = own.stop
        assert (np.diff(lows[own].astype(object)) >= 0).all()
        widths = (highs[own] - lows[own]).tolist()
        assert (min(widths), max(widths)) == (narrowest, widest)
        begins = [own.start + int(np.sum(lows[own].astype(object) < (c << shift))) for c in range(buckets)]
        assert tables[table : table + buckets].tolist() == begins
    assert n == len(ends)
    assert sorted(of.tolist()) == list(range(len(ends)))


@kernel
def _reach(members, highs, first, among, value, out, to):
    return keep_reaching(members, highs, first, among, value, out, to)


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_four_ends_are_compared_as_one_by_one(kind):
    members, most = np.arange(100, 110, dtype=np.int32), int(np.iinfo(kind).max)
    for among, held, value in itertools.product(range(16), range(16), (1, 7, most)):
        highs = np.full(10, most, kind)
        highs[3:7] = [value if held >> k & 1 else value - 1 for k in range(4)]
        for reach in (_reach, reach_one_by_one):
            out = np.full(8, -1, np.int32)
            n = reach(members, highs, np.uint64(3), np.uint64(among), kind(value), out, np.uint64(2))
            assert out[2 : 2 + int(n)].tolist() == [103 + k for k in range(4) if among & held & 1 << k]
            assert (out[[0, 1, 6, 7]] == -1).all()


@kernel
def _keep_eight(members, lows, highs, first, left, value, out, to):
    return keep_eight(members, lows, highs, first, left, value, out, to)


@kernel
def _reach_eight(members, highs, first, left, value, out, to):
    return keep_eight_reaching(members, highs, first, left, value, out, to)


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_eight_ends_are_compared_as_one_by_one(kind):
    members, most = np.arange(100, 120, dtype=np.int32), int(np.iinfo(kind).max)
    rng = np.random.default_rng(3)
    for left, value in itertools.product((*range(10), 1000), (1, 7, most)):
        for held in (0, 1, 128, 255, *rng.integers(0, 256, 8).tolist()):
            begun = int(rng.integers(0, 256))
            lows, highs = np.zeros(20, kind), np.full(20, most, kind)
            for k in range(8):
                highs[3 + k] = value if held >> k & 1 else value - 1
                if value < most:
                    lows[3 + k] = value if begun >> k & 1 else value + 1
            among = [k for k in range(min(left, 8)) if held >> k & 1]
            both = [k for k in among if value == most or begun >> k & 1]
            where = np.uint64(3), np.uint64(left), kind(value)
            for keep in (_keep_eight, eight_one_by_one):
                out = np.full(12, -1, np.int32)
                n = keep(members, lows, highs, *where, out, np.uint64(2))
                assert out[2 : 2 + int(n)].tolist() == [103 + k for k in both]
                assert (out[[0, 1, 10, 11]] == -1).all()
            for reach in (_reach_eight, reach_eight_one_by_one):
                out = np.full(12, -1, np.int32)
                n = reach(members, highs, *where, out, np.uint64(2))
                assert out[2 : 2 + int(n)].tolist() == [103 + k for k in among]
                assert (out[[0, 1, 10, 11]] == -1).all()


@given(data=st.data(), wide=st.booleans())
def test_eight_at_a_time_finds_what_is_held(data, wide):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    n, far = data.draw(st.integers(1, 90)), 2**40 if wide else 60
    lows = rng.integers(0, far if wide else 50, n)
    highs = lows + rng.integers(0, data.draw(st.sampled_from([1, 3, 40])), n)
    values = np.sort(np.concatenate([lows, highs, highs + 1, rng.integers(-3, 120, 20)]))
    part = windows.build_windows(
        boxes_of(list(zip(lows.tolist(), highs.tolist(), strict=True))), np.arange(n), 0
    )
    order, counts = np.arange(len(values)), np.empty(len(values), np.int64)
    total = int(kernels.count_candidates(order, values, part.windows, counts))
    want = [np.flatnonzero((lows <= v) & (v <= highs)).tolist() for v in values]
    for more in (1, data.draw(st.integers(2, 7)), EIGHT, 50):
        offsets, out = np.empty(len(values) + 1, np.int64), np.full(total + more + 9, -1, np.int32)
        room = out[: total + more]
        assert kernels.stab(order, values, part.windows, ALL, offsets, room) == sum(map(len, want))
        assert [sorted(row.tolist()) for row in np.split(room[: offsets[-1]], offsets[1:-1])] == want
        assert (out[total + more :] == -1).all()
