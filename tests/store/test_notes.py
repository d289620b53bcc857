"""Notes: what a writer keeps with a change, there exactly when the change is."""

import pytest

import rangecast as rc
from rangecast.errors import StorageError
from rangecast.store import store as store_module

pytestmark = pytest.mark.without_kernels
# tests that look into the files of a store, or stand for its lock
IN_FOLDER = pytest.mark.parametrize("home", ["folder"], indirect=True)


@pytest.fixture
def store(home):
    return rc.Store.open(home / "alerts", rc.Schema(rc.Int("price")))


def subscriptions(store, *ids):
    return rc.Subscriptions.parse(store.schema, dict.fromkeys(ids, "price < 10"))


def test_the_newest_note_of_each_name_stands(store):
    assert store.notes == {}
    store.apply(subscriptions(store, 1), note={"topic": {"0": 5}, "who": "a"})
    store.apply(subscriptions(store, 2))
    store.apply(deleted=[1], note={"topic": {"0": 9}})
    assert store.notes == {"topic": {"0": 9}, "who": "a"}
    assert rc.Store.open(store.path).notes == store.notes
    notes = [change.note for change in store.changes(0)]
    assert notes == [{"topic": {"0": 5}, "who": "a"}, None, {"topic": {"0": 9}}]


def test_a_note_alone_makes_a_version(store):
    assert store.apply(note={"topic": 3}) == 1
    assert store.apply() == 1
    assert store.notes == {"topic": 3}
    assert len(store) == 0


@IN_FOLDER
def test_notes_outlive_checkpoints_and_compaction(store, monkeypatch):
    monkeypatch.setattr(store_module, "CHECKPOINT", 3)
    for k in range(10):
        store.apply(subscriptions(store, k), note={"topic": k, f"seen {k % 2}": k})
    assert len(list((store.path / "log").glob("*.log"))) > 1
    assert rc.Store.open(store.path).notes == {"topic": 9, "seen 0": 8, "seen 1": 9}
    store.compact()
    assert rc.Store.open(store.path).notes == {"topic": 9, "seen 0": 8, "seen 1": 9}


def test_another_process_sees_a_note_when_it_sees_the_change(store):
    other = rc.Store.open(store.path)
    assert other.notes == {}
    store.apply(subscriptions(store, 1), note={"topic": 1})
    assert other.notes == {"topic": 1}


@pytest.mark.parametrize("note", [{"a": float("nan")}, {"a": object()}, {1: "a"}, {"a": (1, 2)}])
def test_what_json_cannot_hold_is_refused_and_nothing_is_written(store, note):
    with pytest.raises(StorageError, match="a note must"):
        store.apply(subscriptions(store, 1), note=note)
    assert store.version == 0
