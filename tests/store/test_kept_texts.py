"""What was written stays with its id: through the log, snapshots, compaction and followers, and old files."""

import pickle
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.model.texts import PackedTexts

pytestmark = pytest.mark.without_kernels

# a store and two indexes as version 0.1 wrote them, before there were texts
OLD = Path(__file__).resolve().parents[1] / "data" / "without_texts.zip"


@pytest.fixture
def schema():
    return rc.Schema(rc.Int("price"), rc.Category("symbol"))


@pytest.fixture
def store(home, schema):
    return rc.Store.open(home / "store", schema, index="scan")


@pytest.fixture
def old(tmp_path):
    with zipfile.ZipFile(OLD) as files:
        files.extractall(tmp_path / "old")
    return tmp_path / "old"


def parse(store, conditions):
    return rc.Subscriptions.parse(store.schema, conditions)


def texts(subs):
    kept = [None] * len(subs) if subs.texts is None else subs.texts.to_list()
    return {subs.ids[row]: text for row, text in enumerate(kept)}


def test_versions_have_the_texts_of_their_time(store):
    store.insert(parse(store, {1: "price  < 5", 2: "not symbol in ('A','B')"}))
    store.insert(parse(store, {2: "symbol = 'C'", 3: "price > 7"}))
    store.delete([1])
    wanted = [
        {},
        {1: "price  < 5", 2: "not symbol in ('A','B')"},
        {1: "price  < 5", 2: "symbol = 'C'", 3: "price > 7"},
        {2: "symbol = 'C'", 3: "price > 7"},
    ]
    for again in (store, rc.Store.open(store.path), pickle.loads(pickle.dumps(store))):
        assert [texts(again.subscriptions(version)) for version in range(4)] == wanted
    assert [texts(change.inserted) for change in store.changes(0)] == [wanted[1], wanted[3], {}]
    store.snapshot(2)
    store.compact(2)
    assert [texts(rc.Store.open(store.path).subscriptions(v)) for v in (2, 3)] == wanted[2:]
    assert rc.load_index(store.snapshot(2)).explain(2, {"symbol": "C"}).text == "symbol = 'C'"


def test_a_store_may_hold_both_texts_and_bounds(store):
    store.insert(rc.Subscriptions.from_arrays(store.schema, [1], {"price": [3]}, {"price": [9]}))
    store.snapshot()
    store.insert(parse(store, {2: "price > 7"}))
    store.insert(rc.Subscriptions.from_arrays(store.schema, [2, 3], {"price": [3, 4]}, {"price": [9, 9]}))
    store.insert(parse(store, {3: "price = 1"}))
    assert texts(rc.Store.open(store.path).subscriptions()) == {1: None, 2: None, 3: "price = 1"}


def test_a_follower_keeps_them(store):
    store.insert(parse(store, {id: f"price < {id}" for id in range(50)}))
    store.snapshot()
    follower = rc.Follower(store.path)
    follower.at(1)
    store.insert(parse(store, {3: "price > 3", 70: "price > 70"}))
    store.delete([4])
    index = follower.at(3)
    assert follower.stats()["moves"] == 1
    found = texts(index.subscriptions())
    assert found == {**{id: f"price < {id}" for id in range(50) if id != 4}, 3: "price > 3", 70: "price > 70"}
    assert index.explain(70, {"price": 5}).text == "price > 70"


def test_matching_a_snapshot_and_its_changes_reads_no_text(store, monkeypatch):
    store.insert(parse(store, {id: f"price < {id}" for id in range(3000)}))
    store.snapshot()
    store.insert(parse(store, {id: f"price > {id}" for id in range(1000, 3000)}))
    read = []
    plain = PackedTexts._read
    monkeypatch.setattr(PackedTexts, "_read", lambda self, block: read.append(block) or plain(self, block))
    for verify in (True, False):
        index = rc.Store.open(store.path).index(verify=verify)
        index.match(rc.Events.from_rows(index.schema, [{"price": 2000}]))
        index.compact()
    assert read == []
    assert index.explain(999, {"price": 5}).text == "price < 999"
    assert index.explain(2999, {"price": 5}).text == "price > 2999"
    assert read == [0, 1]


def test_verify_reads_the_texts(store):
    store.insert(parse(store, {id: f"price < {id}" for id in range(2000)}))
    path = store.snapshot()
    assert store.verify() == []
    raw = bytearray(path.read_bytes())
    end = len(raw) - 1
    while raw[end] == 0:
        end -= 1
    raw[end] ^= 1
    path.write_bytes(raw)
    assert any("array 'catalog.texts' is damaged" in problem for problem in store.verify())


@given(st.data())
def test_a_history_of_changes(data):
    """Against a dict: whatever is inserted, replaced, deleted, published and compacted."""
    with tempfile.TemporaryDirectory() as folder:
        store = rc.Store.open(Path(folder) / "store", rc.Schema(rc.Int("price")), index="scan")
        held = {}
        kinds = st.sampled_from(["text", "bounds", "delete", "publish", "compact"])
        for number, step in enumerate(data.draw(st.lists(kinds))):
            ids = data.draw(st.lists(st.integers(0, 9), unique=True, max_size=5))
            if step == "text":
                store.insert(parse(store, {id: f"price < {number * 10 + id}" for id in ids}))
                held |= {id: f"price < {number * 10 + id}" for id in ids}
            elif step == "bounds" and ids:
                lows, highs = np.full((len(ids), 1), 1), np.full((len(ids), 1), 2)
                store.insert(rc.Subscriptions.from_arrays(store.schema, ids, lows, highs))
                held |= dict.fromkeys(ids)
            elif step == "delete":
                store.delete(ids)
                held = {id: text for id, text in held.items() if id not in ids}
            elif step == "publish":
                store.snapshot()
            else:
                store.compact()
        assert texts(store.subscriptions()) == held
        assert texts(rc.Store.open(store.path).subscriptions()) == held


def test_a_store_without_texts_is_read_and_goes_on(old):
    store = rc.Store.open(old / "store")
    assert store.version == 3
    assert store.snapshots() == [2]
    wanted = {1: {7: None, 8: None, 9: None}, 2: {7: None, 8: None}, 3: {7: None, 8: None, 10: None}}
    assert {version: texts(store.subscriptions(version)) for version in wanted} == wanted
    index = store.index()
    events = rc.Events.from_rows(index.schema, [{"price": 12, "symbol": "IBM"}, {"symbol": "HAL"}])
    assert [sorted(index.match(events).row(e).tolist()) for e in range(2)] == [[7], [8, 10]]
    assert index.explain(7, {"price": 12}).text is None
    assert str(index.explain(7, {"price": 12})).splitlines()[1] == "  yes  price between 10 and 20: 12"
    store.insert(parse(store, {8: "price  = 1"}))
    assert texts(store.subscriptions()) == {7: None, 8: "price  = 1", 10: None}
    store.compact()
    assert texts(rc.Store.open(store.path).subscriptions()) == {7: None, 8: "price  = 1", 10: None}
    assert store.verify() == []


@pytest.mark.parametrize("name", ["auto", "scan"])
@pytest.mark.parametrize("mmap", [True, False])
def test_an_index_without_texts_is_read_and_goes_on(old, name, mmap):
    index = rc.load_index(old / f"{name}.index", mmap=mmap)
    assert index.name == name
    assert index.subscriptions().texts is None
    assert index.explain(8, {"symbol": "IBM"}).verdict is None
    index.insert(rc.Subscriptions.parse(index.schema, {8: "price  = 1"}))
    assert texts(index.subscriptions()) == {7: None, 8: "price  = 1", 10: None}
    index.save(old / "new.index")
    assert texts(rc.load_index(old / "new.index").subscriptions()) == {7: None, 8: "price  = 1", 10: None}
