"""Following a store from version to version; snapshots when they are due; versions by time."""

import pickle
import threading

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.without_kernels

ROWS = 40


@pytest.fixture
def schema():
    return int_schema(2)


@pytest.fixture
def store(home, schema):
    store = rc.Store.open(home / "store", schema, index="direct")
    for seed in range(8):
        store.insert(random_subscriptions(schema, ROWS + 10 * seed, seed=seed))
        store.delete(np.arange(5 + 3 * (seed % 3), 90, 9))
    return store


def rows_of(index, events):
    matches = index.match(events)
    return [set(matches.row(event).tolist()) for event in range(len(events))]


def test_any_order_of_versions_gives_the_index_of_each(store, schema):
    events = random_events(schema, 20, seed=9)
    follower = rc.Follower(store.path)
    assert follower.version is None
    rng = np.random.default_rng(3)
    for version in [*range(store.version + 1), *rng.integers(0, store.version + 1, 25).tolist()]:
        index = follower.at(version)
        assert follower.version == version
        assert rows_of(index, events) == match_boxes(store.subscriptions(version), events)


def test_forward_moves_by_changes_and_the_same_version_costs_nothing(store):
    follower = rc.Follower(store.path)
    first = follower.at(4)
    assert follower.at(4) is first
    assert follower.at(9) is first
    assert follower.stats()["loads"] == 1
    assert follower.stats()["moves"] == 1
    assert follower.at(2) is not first
    assert follower.stats()["loads"] == 2


def test_a_newer_snapshot_takes_over_when_much_was_applied(tmp_path):
    schema = int_schema(1)
    store = rc.Store.open(tmp_path / "s", schema, index="scan")
    store.insert(random_subscriptions(schema, 4000, seed=1))
    follower = rc.Follower(store.path, share=0.5)
    follower.at(1)
    for seed in range(4):
        store.insert(random_subscriptions(schema, 900, seed=seed))
    follower.at(3)
    store.snapshot(5)
    follower.at(4)
    assert follower.stats() == {"moves": 2, "loads": 1, "applied": 6700}
    follower.at(5)
    assert follower.stats() == {"moves": 2, "loads": 2, "applied": 0}
    assert len(follower.at(5)) == 4000


def test_changes_that_were_compacted_away_are_no_obstacle(store, schema):
    follower = rc.Follower(store.path)
    follower.at(2)
    store.compact()
    store.insert(random_subscriptions(schema, 5, seed=1))
    store.compact()
    events = random_events(schema, 10, seed=2)
    assert rows_of(follower.at(store.version), events) == match_boxes(store.subscriptions(), events)
    with pytest.raises(rc.StorageError, match="version 3 is gone"):
        follower.at(3)
    assert len(follower.at(store.version)) == len(store)
    with pytest.raises(rc.StorageError, match="has versions up to 17, got 99"):
        follower.at(99)


def test_rows_by_version_in_ascending_order(store):
    follower = rc.Follower(store.path)
    seen = [(v, rows.tolist(), len(index)) for v, rows, index in follower.each([7, 3, 7, 3, 16])]
    assert [(v, rows) for v, rows, _ in seen] == [(3, [1, 3]), (7, [0, 2]), (16, [4])]
    assert [n for _, _, n in seen] == [len(store.index(v)) for v in (3, 7, 16)]
    assert list(follower.each([])) == []


def test_threads_that_read_different_versions(store):
    follower = rc.Follower(store.path)
    sizes = {version: len(store.index(version)) for version in (3, 8, 16)}
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for version in rng.choice([3, 8, 16], 15).tolist():
            with follower.reading(version) as index:
                if len(index) != sizes[version]:
                    wrong.append(version)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_follower_pickles_as_its_path(store):
    follower = rc.Follower(store.path, share=0.3)
    follower.at(3)
    again = pickle.loads(pickle.dumps(follower))
    assert again.version is None
    assert len(again.at(3)) == len(follower.at(3))
    assert again.share == 0.3


def test_a_snapshot_is_published_when_it_is_due(tmp_path):
    schema = int_schema(1)
    store = rc.Store.open(tmp_path / "s", schema, index="scan")
    assert store.publish_if_due() is None
    store.insert(random_subscriptions(schema, 999, seed=1))
    assert store.publish_if_due() is None
    store.delete([5])
    assert store.publish_if_due() == store.snapshot_path(2)
    store.insert(random_subscriptions(schema, 9000, seed=2))
    assert store.publish_if_due() == store.snapshot_path(3)
    store.insert(random_subscriptions(schema, 1500, seed=3))
    assert store.publish_if_due(share=0.2) is None
    assert store.publish_if_due(share=0.15) == store.snapshot_path(4)
    assert len(rc.load_index(store.snapshot_path(4))) == 9000
    assert store.publish_if_due(share=0.0) is None


def test_publishing_waits_for_nobody(tmp_path):
    schema = int_schema(1)
    store = rc.Store.open(tmp_path / "s", schema, index="scan")
    store.insert(random_subscriptions(schema, 2000, seed=1))
    with store.writing():
        published = []
        thread = threading.Thread(target=lambda: published.append(store.publish_if_due()))
        thread.start()
        thread.join(30)
        assert published == [store.snapshot_path(1)]


def test_versions_at_many_times(store):
    times = [int(store.time_of(v).timestamp() * 1_000_000) for v in range(1, store.version + 1)]
    asked = np.array([0, times[0] - 1, times[4], times[-1], 2**62])
    found = store.versions_at(asked).tolist()
    assert found == [sum(t <= a for t in times) for a in asked.tolist()]
    store.compact(keep=10)
    store.compact()
    assert store.versions_at([0, times[0], times[-1] - 1, times[-1], 2**62]).tolist() == [-1, -1, -1, 16, 16]
    with pytest.raises(rc.StorageError, match="is gone; the oldest is 16"):
        store.version_at(store.time_of(16).replace(year=2001))
    assert store.version_at(store.time_of(16)) == 16


def test_changed_counts_without_reading(store):
    for since, until in [(0, 16), (3, 4), (5, 5)]:
        expected = sum(len(c.deleted) + len(c.inserted) for c in store.changes(since, until))
        assert store.changed(since, until) == expected
    assert rc.Store.open(store.path).changed(0) == store.changed(0)
    with pytest.raises(rc.StorageError, match="got 0 to 99"):
        store.changed(0, 99)
