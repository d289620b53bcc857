"""Static layouts under writes: parts, tail, dead slots, merges, and ids that come without slots."""

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads
from rangecast.engine import load_index
from rangecast.engine.parts import FEW_EVENTS, TAIL_LIMIT, StaticIndex
from rangecast.model.ids import Ids

SCHEMA = rc.Schema(rc.Int("a", 0, 999))
KINDS = ("vci", "cells", "auto", "direct")


def intervals(ids, seed: int = 0) -> rc.Subscriptions:
    rng = np.random.default_rng(seed)
    lows = rng.integers(0, 950, len(ids))
    highs = np.minimum(lows + rng.integers(0, 50, len(ids)), 999)
    return rc.Subscriptions.from_arrays(SCHEMA, ids, {"a": lows}, {"a": highs})


def expected(index: rc.Index, values: np.ndarray) -> list[list]:
    subs = index.subscriptions()
    ids = np.array([subs.ids[k] for k in range(len(subs))], object)
    low, high = subs.lows[0][:, None], subs.highs[0][:, None]
    codes = rc.Events.from_arrays(SCHEMA, {"a": values}).encoded(SCHEMA).codes[0]
    held = (low <= codes) & (codes <= high)
    return [sorted(ids[held[:, e]].tolist()) for e in range(len(values))]


def answers(index: rc.Index, values: np.ndarray) -> list[list]:
    """The ids, which must be the same whether slots were asked for before, after or never."""
    events = rc.Events.from_arrays(SCHEMA, {"a": values})
    straight, by_slots, threaded = index.match(events), index.match(events), index.match(events, threads=2)
    assert len(by_slots.slots) == straight.n_pairs == int(straight.counts.sum())
    assert straight.ids.tolist() == by_slots.ids.tolist() == threaded.ids.tolist()
    assert straight.slots.tolist() == by_slots.slots.tolist()
    rows = [sorted(straight.row(e).tolist()) for e in range(len(values))]
    assert rows == [sorted(by_slots.row(e).tolist()) for e in range(len(values))]
    return rows


VALUES = np.concatenate([np.arange(0, 1000, 37), [0, 999, 500, 500]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["in order", "shuffled", "from -5", "with gaps", "huge", "strings"],
)
def test_ids_of_all_kinds_through_writes(kind, name, size):
    n = max(size(3000), 700)
    rng = np.random.default_rng(1)
    ids = {
        "in order": np.arange(n),
        "shuffled": rng.permutation(n),
        "from -5": np.arange(n) - 5,
        "with gaps": np.arange(n) * 7,
        "huge": np.int64(2**63 - 1) - np.arange(n)[::-1],
        "strings": np.array([f"s{k:05}" for k in range(n)], object),
    }[name]
    index = rc.open_index(kind, SCHEMA)
    index.insert(intervals(ids))
    assert answers(index, VALUES) == expected(index, VALUES)
    for turn, share in enumerate((100, 20, 3)):
        some = rng.choice(n, n // share, replace=False)
        index.delete(ids[some[: len(some) // 2]])
        index.insert(intervals(ids[some], seed=turn + 2))
        assert answers(index, VALUES) == expected(index, VALUES)
    assert len(index) == n


def test_ids_that_count_up_need_no_table(size):
    n = max(size(5000), 2 * TAIL_LIMIT)
    index = rc.open_index("cells", SCHEMA)
    index.insert(intervals(np.random.default_rng(3).permutation(n) + 100))
    (covered,) = index._state.parts
    assert covered.base == 100
    gaps = rc.open_index("cells", SCHEMA)
    gaps.insert(intervals(np.arange(n) * 2))
    assert gaps._state.parts[0].base is None


def test_a_merge_of_all_parts_lets_ids_count_up_again(size):
    n = max(size(8000), 4 * TAIL_LIMIT)
    index = rc.open_index("cells", SCHEMA)
    index.insert(intervals(np.arange(n)))
    some = np.arange(0, n, 3)
    index.insert(intervals(some, seed=9))
    (covered,) = index._state.parts
    assert covered.base == 0
    assert index._catalog.n_slots == n
    assert answers(index, VALUES) == expected(index, VALUES)


def test_a_small_part_stays_beside_a_large_one(size):
    n = max(size(40_000), 20 * TAIL_LIMIT)
    index = rc.open_index("cells", SCHEMA)
    index.insert(intervals(np.arange(n)))
    index.insert(intervals(np.arange(n, n + TAIL_LIMIT + 1), seed=2))
    assert [covered.base for covered in index._state.parts] == [0, 0]
    index.insert(intervals(np.arange(TAIL_LIMIT + 1), seed=3))
    assert answers(index, VALUES) == expected(index, VALUES)


def test_the_base_is_saved(tmp_path, size):
    n = max(size(3000), 2 * TAIL_LIMIT)
    index = rc.open_index("auto", SCHEMA)
    index.insert(intervals(np.arange(n) + 7))
    index.save(tmp_path / "x.index")
    again = load_index(tmp_path / "x.index")
    assert isinstance(again, StaticIndex)
    assert [c.base for c in again._state.parts] == [c.base for c in index._state.parts] == [7]
    assert answers(again, VALUES) == expected(index, VALUES)


def test_counts_alone_write_nothing(size):
    index = rc.open_index("cells", SCHEMA)
    index.insert(intervals(np.arange(max(size(3000), 2 * TAIL_LIMIT))))
    # a few events are answered at once
    values = np.tile(VALUES, -(-FEW_EVENTS // len(VALUES)))
    m = index.match(rc.Events.from_arrays(SCHEMA, {"a": values}))
    assert m.counts.tolist() == [len(row) for row in expected(index, values)]
    assert m._slots is None
    assert m._ids is None


def test_an_answer_outlives_later_writes(size):
    n = max(size(3000), 2 * TAIL_LIMIT)
    index = rc.open_index("cells", SCHEMA)
    index.insert(intervals(np.arange(n)))
    before = expected(index, VALUES)
    m = index.match(rc.Events.from_arrays(SCHEMA, {"a": VALUES}))
    index.delete(np.arange(n - 3))
    index.insert(intervals(np.arange(n), seed=5))
    assert [sorted(m.row(e).tolist()) for e in range(len(VALUES))] == before
    assert sorted(m.ids.tolist()) == sorted(id for row in before for id in row)


def test_ids_that_stand_twice_are_not_taken_for_dense():
    ids = Ids.of([0, 0, 2])
    assert ids.dense
    assert ids.dense_order() is None
    assert Ids.of([2, 0, 1]).dense_order().tolist() == [1, 2, 0]


@pytest.mark.parametrize("name", ["predicates-16", "intervals", "rein", "equality-led"])
def test_threads_write_the_same_ids_in_the_same_places(name, size, leg, monkeypatch):
    if leg == "nojit" and name == "rein":
        pytest.skip("too slow without compiled kernels")
    monkeypatch.setattr("rangecast.engine.answers.SHARED", 0)
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 4)
    n = max(size(6_000), 400)
    w = workloads.workload(name, n, 200)
    index = rc.open_index("auto", w.schema)
    index.insert(w.subscriptions())
    index.insert(w.subscriptions().select(np.arange(n // 40)))
    assert len(index._state.parts) == 2
    alone = index.match(w.events())
    for threads in (2, 3):
        shared = index.match(w.events(), threads=threads)
        assert shared.offsets.tolist() == alone.offsets.tolist()
        assert shared.sort().ids.tolist() == alone.sort().ids.tolist()
        assert index.match(w.events(), threads=threads) == alone


def test_tail_alone_is_scanned_until_that_has_cost_as_much_as_building(monkeypatch):
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    texts = {k: f"price between {k} and {k + 10} and symbol = 's{k % 5}'" for k in range(700)}
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    one = {"price": 55, "symbol": "s0"}

    def shown():
        return index.stats()["parts"], index.stats()["tail_boxes"]

    assert index.match_one(one).tolist() == [45, 50, 55]
    assert shown() == (0, 700)
    monkeypatch.setattr("rangecast.engine.parts.TAIL_SPENT", 2_000)
    found = [sorted(index.match_one(one).tolist()) for _ in range(3)]
    assert found == [[45, 50, 55]] * 3
    assert shown() == (1, 0)
    # with a part the tail is short again, and what is past it is a part at once
    index.insert(rc.Subscriptions.parse(schema, {1_000 + k: text for k, text in texts.items()}))
    assert shown() == (1, 0)
    assert len(index.match_one(one)) == 6


def test_tail_alone_has_all_matches_of_a_few_events():
    """More matches than the first room, several events, boxes with the slots of others."""
    schema = rc.Schema(rc.Int("price"))
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, {k: f"price >= {k % 3} or price = -7" for k in range(600)}))
    events = rc.Events.from_rows(schema, [{"price": p} for p in (2, -7, -1)])
    counts = [len(index.match_one({"price": p})) for p in (2, -7, -1)]
    assert counts == index.match(events).counts.tolist() == [600, 600, 0]
    assert sorted(index.match_one({"price": 1}).tolist()) == [k for k in range(600) if k % 3 < 2]
