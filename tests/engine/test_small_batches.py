"""A few events at a time: the same answers as in a batch, whatever room they need."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine.auto import AccessPath, AutoPart
from rangecast.engine.layouts.bitmap import build_bitmap
from rangecast.engine.layouts.cells import build_cells
from rangecast.engine.layouts.lists import build_equality
from rangecast.engine.layouts.sorted_lists import build_nested
from rangecast.engine.layouts.sorted_lists_kernels import CLOSED, FALLING, RISING
from rangecast.engine.layouts.windows import build_windows
from rangecast.engine.parts import FEW_EVENTS, ROOM, StaticIndex
from rangecast.simd.compiler import kernel
from rangecast.simd.memory import Views, view, view_rows
from rangecast.types.attributes import LAST, MISSING, PRESENT

SCHEMA = rc.Schema(rc.Int("key"), rc.Int("a"), rc.Float("b"))
SPAN = 10**12


class Lists(StaticIndex):
    """Lists by key."""

    expands = False

    def _build(self, boxes, numbers):
        return build_equality(boxes, numbers, 0)


class Plane(StaticIndex):
    """Cells on the other attributes."""

    expands = False

    def _build(self, boxes, numbers):
        return build_cells(boxes, numbers, (1, 2))


def subscriptions(n: int, keys: int, step: int, n_ids: int) -> rc.Subscriptions:
    """One of some keys and a range on both other attributes; with fewer ids than boxes some have two."""
    rng = np.random.default_rng(keys)
    lows = rng.integers(0, SPAN, (3, n))
    highs = lows + rng.integers(0, SPAN, (3, n))
    lows[0] = highs[0] = rng.integers(0, keys, n) * step
    lows[1, ::5], highs[1, ::5] = MISSING, LAST
    return rc.Subscriptions(SCHEMA, np.arange(n_ids), lows, highs, np.sort(np.arange(n) % n_ids))


class Windows(StaticIndex):
    """Intervals of one attribute."""

    expands = False

    def _build(self, boxes, numbers):
        return build_windows(boxes, numbers, 0)


class Bitsets(StaticIndex):
    """Bitsets on all attributes."""

    expands = False

    def _build(self, boxes, numbers):
        return build_bitmap(boxes, numbers)


class Several(StaticIndex):
    """Two parts of lists by key, which one event asks in one call, and cells."""

    expands = False

    def _build(self, boxes, numbers):
        lists = [build_equality(boxes, numbers[k::3], 0) for k in range(2)]
        paths = [AccessPath("equality", (0,), len(part.lists.boxes), part) for part in lists]
        plane = build_cells(boxes, numbers[2::3], (1, 2))
        return AutoPart([*paths, AccessPath("cells", (1, 2), len(numbers[2::3]), plane)])


@pytest.mark.parametrize("kind", [Lists, Plane, Bitsets, Several])
@pytest.mark.parametrize(("keys", "step"), [(1, 1), (60, 1), (60, 10**9)])
@pytest.mark.parametrize("n_boxes", [1, 2])
def test_events_match_the_same_however_many_come(kind, keys, step, n_boxes, size, leg, monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    n = 2 * max(size(2_000), 2 * ROOM)
    subs = subscriptions(n, keys, step, n // n_boxes)
    index, scan = kind(SCHEMA), rc.open_index("scan", SCHEMA)
    for one in (index, scan):
        one.insert(subs)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2 * SPAN, (3, FEW_EVENTS + 1))
    codes[0] = rng.integers(-1, keys + 1, FEW_EVENTS + 1) * step
    codes[1, ::7] = MISSING
    want = scan.match(rc.Events(SCHEMA, codes))
    assert want.n_pairs > 0
    # the last two are batches alike
    for m in (0, 1, FEW_EVENTS - 1, FEW_EVENTS, FEW_EVENTS + 1)[: 4 if leg == "nojit" else 5]:
        found = index.match(rc.Events(SCHEMA, codes[:, :m])).sort()
        assert found.offsets.tolist() == want.offsets[: m + 1].tolist()
        assert found.ids.tolist() == want.sort().ids[: want.offsets[m]].tolist()
    for e in range(0, FEW_EVENTS, 6 if leg == "nojit" else 1):
        event = rc.Events(SCHEMA, codes[:, e : e + 1])
        assert sorted(index.match(event).ids.tolist()) == sorted(want.row(e).tolist())
        row = {name: event.value(name, 0) for name in SCHEMA.names}
        assert sorted(index.match_one(row).tolist()) == sorted(want.row(e).tolist())


class Sorted(StaticIndex):
    """Sorted lists by key, of three forms and in three parts."""

    expands = False

    def _build(self, boxes, numbers):
        forms = [(CLOSED, [2]), (RISING, []), (FALLING, [2])]
        parts = [build_nested(boxes, numbers[k::3], 0, 1, *forms[k]) for k in range(3)]
        return AutoPart([AccessPath("nested", (0, 1), len(part.lists.boxes), part) for part in parts])


def thirds(n: int, keys: int) -> rc.Subscriptions:
    """One of some keys, and on the second attribute a range, a low end, or a high end."""
    subs = subscriptions(n, keys, 1, n)
    lows, highs = subs.lows.copy(), subs.highs.copy()
    lows[1, lows[1] == MISSING] = 5
    highs[1, highs[1] == LAST] = SPAN
    highs[1, 1::3], lows[1, 2::3] = LAST, PRESENT
    lows[2, 1::3], highs[2, 1::3] = MISSING, LAST
    return rc.Subscriptions(SCHEMA, np.arange(n), lows, highs)


@pytest.mark.parametrize("room", [1, ROOM])
@pytest.mark.parametrize("kind", [Sorted, Windows])
def test_lists_and_windows_need_whatever_room(kind, room, size, monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    subs = thirds(3 * max(size(700), 60), 3)
    if kind is Windows:
        # one attribute alone, of 32 bits or of 64
        wide = SPAN if room == 1 else 2**31
        own = rc.Schema(SCHEMA[1])
        ends = np.minimum(subs.lows[1:2], wide), np.where(subs.highs[1:2] == LAST, LAST, wide + 7)
        subs = rc.Subscriptions(own, np.arange(len(subs)), *ends)
    index, scan = kind(subs.schema), rc.open_index("scan", subs.schema)
    for one in (index, scan):
        one.insert(subs)
    (part,) = [covered.part for covered in index._read.state.parts]
    held = [part._few] if kind is Windows else [path.part.few for path in part.paths]
    if kind is Sorted:
        ((_, ask),) = part._asked
        held.append(ask.__self__)
    for few in held:
        few._room = few._room_of_one = room
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 2 * SPAN, (3, FEW_EVENTS + 1))
    codes[0] = rng.integers(0, 4, FEW_EVENTS + 1)
    codes[1, ::7] = MISSING
    events = rc.Events(subs.schema, codes if kind is Sorted else codes[1:2])
    want = scan.match(events).sort()
    assert want.n_pairs > 0
    for e in range(12):
        one = index.match(events.select(np.array([e])))
        assert np.sort(one.ids).tolist() == want.row(e).tolist()
    for m in (0, 2, FEW_EVENTS - 1, FEW_EVENTS + 1):
        some = events.select(np.arange(m))
        assert index.match(some) == scan.match(some)
    assert pickle.loads(pickle.dumps(index)).match(events) == want


@kernel
def read_rows(row, out):
    rows = view_rows(row, np.int64)
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i, j] = rows[i, j]


@kernel
def read_inner(row, out):
    numbers = view(view_rows(row, np.int64)[0], np.int32)
    for i in range(numbers.size):
        out[i] = numbers[i]


@kernel
def count(row):
    return view(row, np.uint64).size


def test_views_are_made_anew_where_they_are_copied():
    inner = Views(np.arange(3, dtype=np.int32))
    views = Views(np.arange(6, dtype=np.int64).reshape(3, 2), np.empty(0, np.uint64), inner)
    copies = [copy.deepcopy(views), pickle.loads(pickle.dumps(views))]
    for made in (views, *copies):
        rows, numbers = np.empty((3, 2), np.int64), np.empty(3, np.int32)
        read_rows(made.table[0], rows)
        read_inner(made.table[2], numbers)
        assert rows.tolist() == [[0, 1], [2, 3], [4, 5]]
        assert count(made.table[1]) == 0
        assert numbers.tolist() == [0, 1, 2]
    assert len({made.table[0, 0] for made in (views, *copies)}) == 3


class Everything(StaticIndex):
    """Sorted lists, lists by key and a bitmap, which one event asks in one call."""

    expands = False
    bitmap = True

    def _build(self, boxes, numbers):
        own = [numbers[k::3] for k in range(3)]
        parts = [
            ("nested", build_nested(boxes, own[0], 0, 1, CLOSED, [2])),
            ("equality", build_equality(boxes, own[1], 0)),
            ("bitmap", build_bitmap(boxes, own[2]))
            if self.bitmap
            else ("equality", build_equality(boxes, own[2], 0)),
        ]
        return AutoPart([AccessPath(kind, (0,), len(numbers) // 3, part) for kind, part in parts])


class ListsAlone(Everything):
    """The same without a bitmap."""

    bitmap = False


@pytest.mark.parametrize("kind", [Everything, ListsAlone])
@pytest.mark.parametrize(("keys", "room"), [(1, 1), (1, None), (40, None)])
def test_paths_of_several_kinds_are_asked_in_one_call(kind, keys, room, size, monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    n = 3 * max(size(1_500), 2 * ROOM)
    subs = thirds(n, keys)
    lows, highs = subs.lows.copy(), subs.highs.copy()
    lows[1, ::3], highs[1, ::3] = 5, SPAN  # those that are sorted by both ends
    subs = rc.Subscriptions(SCHEMA, np.arange(n), lows, highs)
    index, scan = kind(SCHEMA), rc.open_index("scan", SCHEMA)
    for one in (index, scan):
        one.insert(subs)
    (part,) = [covered.part for covered in index._read.state.parts]
    ((first, ask),) = part._asked
    assert first == 0
    if room is not None:
        ask.__self__._room = ask.__self__._room_of_one = room
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 2 * SPAN, (3, 12))
    codes[0] = rng.integers(0, keys + 1, 12)
    codes[1, ::7] = MISSING
    events = rc.Events(SCHEMA, codes)
    want = scan.match(events).sort()
    assert want.n_pairs > 0
    for e in range(12):
        one = index.match(events.select(np.array([e])))
        assert np.sort(one.ids).tolist() == want.row(e).tolist()
        assert one.offsets.tolist() == [0, len(want.row(e))]
    assert index.match(events) == want


def test_a_larger_bitmap_is_asked_by_itself(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    monkeypatch.setattr("rangecast.engine.auto.SMALL_BITMAP", 0)
    index = Everything(SCHEMA)
    index.insert(thirds(300, 3))
    (part,) = [covered.part for covered in index._read.state.parts]
    assert [k for k, _ in part._asked] == [0, 2]


def test_room_grows_with_what_events_match_and_answers_do_not_hold_it(monkeypatch):
    own = rc.Schema(rc.Int("a", 0, 99))
    n = 5_000
    index, scan = rc.open_index("vci", own), rc.open_index("scan", own)
    lows = np.zeros(n, np.int64)
    lows[n // 2 :] = 50
    for one in (index, scan):
        one.insert(rc.Subscriptions.from_arrays(own, np.arange(n), {"a": lows}, {"a": lows + 49}))
    few = index._read.state.parts[0].part._few
    assert few._room_of_one < n // 2
    for value in (10, 60, 10, 120):
        event = rc.Events.from_rows(own, [{"a": value}])
        found = index.match(event)
        assert found == scan.match(event)
        assert found.slots.base is None or len(found.slots.base) <= max(4 * len(found.slots), few._room)
    assert few._room_of_one >= n // 2
    monkeypatch.setattr("rangecast.engine.parts.MOST_ROOM", 1_024)
    few._room_of_one = 1_024
    assert index.match(rc.Events.from_rows(own, [{"a": 10}])).n_pairs == n // 2
    assert few._room_of_one == 1_024
