"""Ids that count up take no memory, whatever happens to them afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.model.ids import Ids
from strategies import int_schema

LAST = np.iinfo(np.int64).max
FIRSTS = [0, 1, -3, 7, -(2**63), LAST - 5]


def subscriptions(schema, ids):
    """Subscription i holds the value i % 7, and those of tens more."""
    lows = np.array([[i % 7] for i in ids], np.int64)
    return rc.Subscriptions.from_arrays(schema, ids, lows, lows)


@given(first=st.sampled_from(FIRSTS), n=st.integers(1, 6), data=st.data())
def test_counting_ids_are_as_others(first, n, data):
    counted, plain = Ids.counting(first, n), Ids(np.array(range(first, first + n), np.int64))
    slots = np.array(data.draw(st.lists(st.integers(0, n - 1))), np.int32)
    assert counted.values.tolist() == plain.values.tolist()
    assert [counted[k] for k in range(n)] == [plain[k] for k in range(n)]
    assert counted[-1] == plain[-1]
    assert counted.take(slots).tolist() == plain.take(slots).tolist()
    assert counted.take(slots).dtype == np.int64
    assert np.array_equal(counted.take(np.tile(slots, 300)), plain.take(np.tile(slots, 300)))
    assert counted.select(slots).values.tolist() == plain.select(slots).values.tolist()
    assert counted.head(2).values.tolist() == plain.head(2).values.tolist()
    assert counted.take_arrow(slots).equals(plain.take_arrow(slots))
    assert counted.arrow().equals(plain.arrow())
    assert np.array_equal(counted.hashes(), plain.hashes())
    assert (counted.ranks(), counted.dense_order(), counted.repeats().tolist()) == (None, None, [])
    assert counted.dense
    assert counted.counts_up()
    assert plain.counts_up()
    around = np.array([v for v in range(first - 2, first + n + 2) if -(2**63) <= v <= LAST], np.int64)
    want = [int(v) - first if first <= v < first + n else -1 for v in around.tolist()]
    assert counted.places_of(Ids(around)).tolist() == want
    assert counted.places_of(Ids.of(["a"])).tolist() == [-1]


@pytest.mark.parametrize("first", FIRSTS)
def test_an_index_keeps_no_ids_that_count_up(first, tmp_path):
    schema = int_schema(1)
    index = rc.open_index("auto", schema)
    ids = list(range(first, first + 6))
    index.insert(subscriptions(schema, ids))
    assert "ids" not in index.stats()["catalog"]
    events = rc.Events.from_arrays(schema, {"a0": np.arange(7)})
    want = [sorted(i for i in ids if i % 7 == v) for v in range(7)]
    index.save(tmp_path / "i")
    for one in (index, rc.load_index(tmp_path / "i")):
        assert [sorted(row.tolist()) for row in one.match(events)] == want
        assert sorted(one.subscriptions().ids.values.tolist()) == ids
        assert one.delete(["x"]) == ["x"]
        assert one.delete([ids[2]]) == []
        assert one.delete([ids[2]]) == [ids[2]]
        left = [[i for i in row if i != ids[2]] for row in want]
        assert [sorted(row.tolist()) for row in one.match(events)] == left


@given(st.data())
def test_a_history_of_inserts_and_deletes(data):
    """Loads that go on counting, that leave a gap, that replace, and deletions, against a dict."""
    schema = int_schema(1)
    index = rc.open_index("auto", schema)
    held = set()
    first = data.draw(st.sampled_from([0, -4, 2**40]))
    top = first
    for step in data.draw(st.lists(st.sampled_from(["next", "gap", "replace", "delete"]), max_size=8)):
        size = data.draw(st.integers(1, 5))
        if step == "delete":
            gone = list(range(first, first + size))
            assert sorted(index.delete(gone)) == sorted(set(gone) - held)
            held -= set(gone)
            continue
        start = {"next": top, "gap": top + 2, "replace": max(first, top - 2)}[step]
        fresh = list(range(start, start + size))
        index.insert(subscriptions(schema, fresh))
        held |= set(fresh)
        top = max(top, start + size)
    assert sorted(index.subscriptions().ids.values.tolist()) == sorted(held)
    events = rc.Events.from_arrays(schema, {"a0": np.arange(7)})
    want = [sorted(i for i in held if i % 7 == v) for v in range(7)]
    assert [sorted(row.tolist()) for row in index.match(events)] == want
    assert sorted(int(index.match_one({"a0": v}).size) for v in range(7)) == sorted(map(len, want))
