"""Lists by the values of two attributes: against the scan, which couples are taken, deletes, room, files."""

import pickle

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine.layouts import lists as equalities
from rangecast.engine.layouts import lists_kernels as kernels
from rangecast.engine.layouts.lists import (
    Coupled,
    EqualitiesPart,
    ask_values,
    build_equalities,
    choose_couples,
    choose_equalities,
)
from rangecast.engine.layouts.lists_kernels import BLOCK, CoupleLists
from rangecast.engine.layouts.scan import ScanPart
from rangecast.engine.parts import StaticIndex
from rangecast.errors import StorageError

NAMES = ("a", "b", "c", "d")
COUPLES = ((0, 1), (1, 2), (0, 2))
SCHEMA = rc.Schema(*(rc.Int(name) for name in NAMES))


class Couples(StaticIndex):
    """Every subscription in the list of the first couple of which it has both values."""

    name = "couples"
    expands = False

    def _build(self, boxes, numbers):
        coupled = Coupled([], [], [])
        free = np.ones(len(numbers), bool)
        for c, (i, j) in enumerate(COUPLES):
            lows, highs = boxes.columns((i, j), numbers)
            own = np.flatnonzero(free & (lows == highs).all(axis=0))
            free[own] = False
            hashes = np.empty(len(own), np.uint64)
            kernels.hash_couple(lows[0, own].copy(), lows[1, own].copy(), c, hashes)
            coupled.couples.append((i, j))
            coupled.numbers.append(numbers[own])
            coupled.hashes.append(hashes)
        assert not free.any()
        return build_equalities(boxes, coupled)


def subscriptions(n, seed, values=20, far=1):
    """One value on each of two attributes, and sometimes a range on the last."""
    rng = np.random.default_rng(seed)
    lows = np.full((n, 4), np.nan)
    for row, couple in zip(lows, rng.integers(0, 3, n), strict=True):
        row[list(COUPLES[couple])] = rng.integers(0, values, 2) * far
    highs = lows.copy()
    ranged = rng.random(n) < 0.3
    lows[ranged, 3] = rng.integers(0, 50, ranged.sum())
    highs[ranged, 3] = lows[ranged, 3] + 10
    return rc.Subscriptions.from_arrays(SCHEMA, np.arange(n), lows, highs)


def batch(m, seed, values=20, far=1):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(m):
        own = [int(v) * far for v in rng.integers(-1, values + 1, 3)] + [int(rng.integers(0, 60))]
        rows.append({k: None if rng.random() < 0.1 else v for k, v in zip(NAMES, own, strict=True)})
    return rc.Events.from_rows(SCHEMA, rows)


def check(index, events):
    scan = rc.open_index("scan", SCHEMA)
    scan.insert(index.subscriptions())
    expected = scan.match(events)
    assert expected.n_pairs
    assert index.match(events) == expected
    assert index.match(events, threads=2) == expected
    for e in range(min(len(events), 20)):
        one = events.select(np.array([e]))
        assert sorted(index.match(one).ids.tolist()) == sorted(expected.row(e).tolist())


@pytest.mark.parametrize("far", [1, 2**40, -(2**33)])
@pytest.mark.parametrize("m", [1, 63, 64, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_lists_equal_the_scan(m, far, leg):
    if leg == "nojit" and m > BLOCK + 1:
        pytest.skip("too slow without compiled kernels")
    index = Couples(SCHEMA)
    index.insert(subscriptions(700, 1, 5, far))
    events = batch(m + 40, 2, 5, far)
    check(index, events)
    check(index, events.select(np.arange(max(m, 30))))


def test_deletes_are_swept():
    index = Couples(SCHEMA)
    index.insert(subscriptions(800, 3))
    events = batch(150, 4)
    part = index._state.parts[0].part
    index.delete(np.arange(0, 800, 7))
    swept = index._state.parts[0].part
    assert swept is not part
    assert len(swept.lists.boxes) < len(part.lists.boxes)
    assert swept.lists.flags is part.lists.flags
    check(index, events)
    check(pickle.loads(pickle.dumps(index)), events)


@pytest.mark.parametrize("n_lists", [1, 2])
def test_a_box_is_given_once_where_couples_share_a_list(n_lists, monkeypatch):
    monkeypatch.setattr(equalities, "_list_count", lambda n: n_lists)
    index = Couples(SCHEMA)
    index.insert(subscriptions(600, 5, 3))
    assert len(index._state.parts[0].part.lists.starts) == n_lists + 1
    check(index, batch(150, 6, 3))


def test_room_grows_where_events_match_much(monkeypatch):
    monkeypatch.setattr(equalities, "_ROOM", 0)
    index = Couples(SCHEMA)
    index.insert(subscriptions(900, 7, 2))
    events = batch(200, 8, 2)
    assert index.match(events).n_pairs > 10 * len(events)
    check(index, events)


def test_several_boxes_of_a_subscription():
    texts = {
        k: f"a = {k % 40} and b in ({k % 7}, {k % 11 + 20}, {k % 13 + 40}) and c = 1" for k in range(900)
    }
    index = Couples(SCHEMA)
    index.insert(rc.Subscriptions.parse(SCHEMA, texts))
    rng = np.random.default_rng(9)
    rows = [
        {"a": int(a), "b": int(b), "c": 1}
        for a, b in zip(rng.integers(0, 40, 200), rng.integers(0, 53, 200), strict=True)
    ]
    check(index, rc.Events.from_rows(SCHEMA, rows))


def test_none_and_missing_values():
    index = Couples(SCHEMA)
    assert index.match(batch(100, 1)).n_pairs == 0
    texts = {k: f"a is null and b = {k}" for k in range(600)}
    index.insert(rc.Subscriptions.parse(SCHEMA, texts))
    check(index, rc.Events.from_rows(SCHEMA, [{"b": k} if k % 2 else {"a": 1, "b": k} for k in range(200)]))


class Scanned(StaticIndex):
    """Boxes as `auto` keeps them, without a layout."""

    name = "scanned"
    expands = False

    def _build(self, boxes, numbers):
        return ScanPart(int(numbers[0]), int(numbers[-1]) + 1)


def chosen(lows, highs):
    """What `auto` would take of these boxes."""
    index = Scanned(SCHEMA)
    index.insert(rc.Subscriptions.from_arrays(SCHEMA, np.arange(len(lows)), lows, highs))
    boxes, numbers = index._state.catalog.boxes.again(), np.arange(len(lows))
    used = boxes.bounded(numbers)
    asked = ask_values(boxes, numbers, used)
    return choose_couples(boxes, numbers, asked, [on for on, _ in choose_equalities(asked, numbers)])


@pytest.mark.slow
def test_couples_are_taken_where_lists_are_read_for_little():
    n = 60_000
    rng = np.random.default_rng(1)
    values = rng.integers(0, 400, (n, 3)).astype(float)
    values[np.arange(n), rng.integers(0, 3, n)] = np.nan
    lows = np.column_stack([values, np.full(n, np.nan)])
    coupled = chosen(lows, lows)
    assert sorted(coupled.couples) == [(0, 1), (0, 2), (1, 2)]
    assert sum(map(len, coupled.numbers)) > 0.9 * n
    # a box stands in one list
    assert len(np.unique(np.concatenate(coupled.numbers))) == sum(map(len, coupled.numbers))


@pytest.mark.slow
def test_couples_are_left_where_values_go_together_or_lists_are_short():
    n = 40_000
    rng = np.random.default_rng(2)
    one = rng.integers(0, n // 10, n).astype(float)
    together = np.column_stack([one, one + 1, one + 2, np.full(n, np.nan)])
    assert chosen(together, together) is None
    short = np.column_stack([rng.permutation(n), rng.permutation(n), *np.full((2, n), np.nan)]).astype(float)
    assert chosen(short, short) is None
    alone = np.column_stack([one, *np.full((3, n), np.nan)])
    assert chosen(alone, alone) is None


@pytest.mark.slow
def test_values_that_many_boxes_share_stay_in_other_lists():
    n = 60_000
    rng = np.random.default_rng(3)
    values = rng.integers(0, 300, (n, 2)).astype(float)
    values[: n // 20] = 7
    lows = np.column_stack([values, rng.integers(0, 1000, n), np.full(n, np.nan)]).astype(float)
    highs = lows.copy()
    highs[:, 2] += 100
    coupled = chosen(lows, highs)
    assert coupled is not None
    held = np.concatenate(coupled.numbers)
    assert not (held < n // 20).any()


@pytest.mark.slow
def test_auto_takes_them_and_answers_as_the_scan():
    n = 60_000
    rng = np.random.default_rng(4)
    values = rng.integers(0, 400, (n, 3)).astype(float)
    values[np.arange(n), rng.integers(0, 3, n)] = np.nan
    lows = np.column_stack([values, np.full(n, np.nan)])
    index = rc.open_index("auto", SCHEMA)
    index.insert(rc.Subscriptions.from_arrays(SCHEMA, np.arange(n), lows, lows))
    assert index.stats()["paths"][0]["path"] == "equalities"
    events = batch(600, 5, 400)
    at = [{k: v for k, v in zip(NAMES, row, strict=True) if v == v} for row in lows[:100].tolist()]
    check(index, rc.Events.from_rows(SCHEMA, [*at, *({"a": 1, "b": 2, "c": 3},) * 10]))
    index.delete(np.arange(0, n, 3))
    index.insert(subscriptions(900, 6))
    check(index, batch(100, 7))
    assert index.estimate(events).workloads.sum() >= index.match(events).n_pairs


def test_what_a_file_may_not_hold():
    index = Couples(SCHEMA)
    index.insert(subscriptions(700, 1))
    part, boxes = index._state.parts[0].part, index._state.catalog.boxes
    part.check(boxes, 700)
    held = part.lists
    for lists in (
        held._replace(couples=held.couples + 4),
        held._replace(couples=np.zeros((17, 2), np.int64)),
        held._replace(couples=held.couples.reshape(2, 3)),
        held._replace(flags=held.flags[:-1]),
        held._replace(flags=held.flags[:1]),
        held._replace(starts=held.starts[:-1]),
        held._replace(starts=held.starts[::-1].copy()),
        held._replace(boxes=held.boxes[:-1]),
        held._replace(boxes=held.boxes + 1),
        held._replace(boxes=held.boxes - 1),
    ):
        with pytest.raises(StorageError, match="save it again"):
            EqualitiesPart(True, CoupleLists(*lists)).check(boxes, 700)
