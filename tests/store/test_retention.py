"""Holds: versions that somebody needs, and what compact keeps for them."""

import threading

import numpy as np
import pytest

import rangecast as rc
from rangecast.store.keep import Hold

pytestmark = pytest.mark.without_kernels
# tests that look into the files of a store, or stand for its lock
IN_FOLDER = pytest.mark.parametrize("home", ["folder"], indirect=True)


@pytest.fixture
def store(home):
    store = rc.Store.open(home / "store", rc.Schema(rc.Int("price")), index="scan")
    for number in range(1, 9):
        insert(store, number)
    return store


def insert(store, id):
    return store.insert(rc.Subscriptions.parse(store.schema, {id: f"price > {id}"}))


def test_compact_keeps_everything_from_the_oldest_hold_on(store):
    assert store.hold("stream-b", 5, "batch 17") == 5
    assert store.hold("stream-a", 3) == 3
    assert [hold[:3] for hold in store.holds()] == [("stream-a", 3, ""), ("stream-b", 5, "batch 17")]
    store.compact()
    assert [len(store.index(version)) for version in range(3, 9)] == [3, 4, 5, 6, 7, 8]
    store.hold("stream-a", 6)
    insert(store, 9)
    store.compact()
    assert store.snapshots()[0] == 5
    assert store.release("stream-b")
    assert not store.release("stream-b")
    store.compact()
    assert store.snapshots()[0] == 6
    store.release("stream-a")
    store.compact()
    assert store.oldest == 9
    assert store.holds() == []


def test_a_hold_outlives_its_process_and_is_seen_by_all(store):
    rc.Store.open(store.path).hold("job", note="nightly")
    (hold,) = rc.Store.open(store.path).holds()
    assert isinstance(hold, Hold)
    assert hold[:3] == ("job", 8, "nightly")
    assert hold.time > 0


def test_a_hold_does_not_wait_for_a_writer(store):
    other = rc.Store.open(store.path, wait=0.0)
    with store.writing():
        assert other.hold("job", 2) == 2


@IN_FOLDER
def test_what_is_refused(store):
    store.hold("job", 4, "a long batch")
    with pytest.raises(
        rc.StorageError, match=r"version 4 is held by 'job' \(a long batch\).*keep 4, or release"
    ):
        store.compact(keep=5)
    store.compact(keep=4)
    with pytest.raises(rc.StorageError, match="has versions up to 8, got 9"):
        store.hold("other", 9)
    store.release("job")
    store.compact()
    with pytest.raises(rc.StorageError, match="version 4 is gone; the oldest is 8"):
        store.hold("job", 4)
    assert store.holds() == []
    for name in ("", "a/b", ".hidden", "../x", "x" * 101):
        with pytest.raises(rc.OptionError, match="the name of a hold must be"):
            store.hold(name, 8)
    (store.path / "holds" / "odd.json").write_text("{")
    assert "a hold that cannot be read" in store.verify()[0]
    with pytest.raises(
        rc.StorageError, match=r"odd.json: a hold that cannot be read .* release it by its name"
    ):
        store.compact()
    assert store.release("odd")
    store.compact()


@IN_FOLDER
def test_verify_names_a_hold_of_a_version_that_is_gone(store):
    store.hold("job", 3)
    held = (store.path / "holds" / "job.json").read_bytes()
    store.release("job")
    store.compact()
    assert store.verify() == []
    (store.path / "holds" / "job.json").write_bytes(held)
    assert store.verify() == [f"{store.path}: version 3 is gone; the oldest is 8"]


def test_a_version_that_was_held_is_never_compacted_away(store):
    """Holders and a compactor race; whatever `hold` acknowledged can be read."""
    failures, stop = [], threading.Event()

    def compact():
        mine = rc.Store.open(store.path)
        while not stop.is_set():
            insert(mine, 7)
            mine.compact()

    compactor = threading.Thread(target=compact)
    compactor.start()
    held = 0
    reader = rc.Store.open(store.path)
    for _ in range(60):
        version = reader.version
        try:
            reader.hold("racer", version)
        except rc.StorageError:
            continue
        held += 1
        if len(reader.index(version)) != 8:
            failures.append(version)
        reader.release("racer")
    stop.set()
    compactor.join()
    assert not failures
    assert held


def test_a_reader_starts_anew_when_compact_takes_away_what_it_reads(store):
    """As between a look at the log and the reading of it: the segment is gone when the file is opened."""
    schema = store.schema
    ending = rc.Subscriptions.parse(schema, {50: "price > 0", 51: "price > 0"})
    store.insert(ending, expires=np.array([1, 2**62]))
    reader = rc.Store.open(store.path)
    assert (len(reader), reader.next_expiry()) == (10, 1)
    for name, ask in [("_ends", reader.next_expiry), ("_lives", lambda: len(reader))]:
        insert(store, 60)
        refresh = reader.refresh

        def racing(refresh=refresh):
            newest = refresh()
            reader.refresh = refresh
            store.compact()
            return newest

        reader.refresh = racing
        assert ask() == {"_ends": 1, "_lives": 11}[name]
    assert len(reader.index(reader.expire())) == 10
