"""VersionPolicy of batches: what is chosen, what is held, what is refused; without a session of Spark's."""

import threading

import pyarrow as pa
import pytest

import rangecast as rc
from strategies import int_schema, random_subscriptions

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
from rangecast.spark.version_policy import Pinned, PinnedStore, VersionPolicy, check_newer, check_pinned  # noqa: E402


@pytest.fixture
def store(tmp_path):
    """VersionPolicy 1 to 3, of 30, 20 and 10 subscriptions."""
    schema = int_schema(2)
    store = rc.Store.open(tmp_path / "store", schema, index="scan")
    subs = random_subscriptions(schema, 30, seed=1)
    store.insert(subs)
    store.delete(subs.ids.values[:10])
    store.delete(subs.ids.values[10:20])
    return store


def held(store):
    return [(hold.name, hold.version, hold.note) for hold in store.holds()]


@pytest.mark.parametrize("choice", ["old", "", "-1", -1, True, None, 1.5])
def test_choices_that_cannot_be(choice):
    with pytest.raises(rc.OptionError, match="version must be 'newest', 'event-time' or the number of a ver"):
        VersionPolicy.parse(choice)


@pytest.mark.parametrize("choice", ["newest", 3])
def test_a_time_goes_with_event_time_only(choice):
    with pytest.raises(rc.OptionError, match=f"time names the column .* got version {choice!r}"):
        VersionPolicy.parse(choice, "at")


def test_the_only_timestamp_is_the_time_unless_told():
    one = rc.Schema(rc.Int("price"), rc.Timestamp("at"))
    assert VersionPolicy.parse("event-time").on(one) == VersionPolicy("event-time", "at")
    assert VersionPolicy.parse("event-time", "when").on(one) == VersionPolicy("event-time", "when")
    assert VersionPolicy.parse("7").on(one) == VersionPolicy(7)
    two = rc.Schema(rc.Timestamp("at"), rc.Timestamp("until"))
    with pytest.raises(rc.OptionError, match=r"'event-time' needs time, .* one timestamp .*, got 2"):
        VersionPolicy.parse("event-time").on(two)


def test_the_newest_is_held_from_its_pin_until_its_batch_is_whole(store):
    versions = VersionPolicy.parse("newest")
    assert versions.now(store) == Pinned(3)
    assert held(store) == []
    assert versions.pin(store, "me", "batch 0") == Pinned(3)
    assert held(store) == [("me", 3, "batch 0")]
    store.insert(rc.Subscriptions.parse(store.schema, {1: "a0 is present"}))
    # as the source does: the next is planned before this one is said to be whole
    assert versions.pin(store, "me", "batch 1") == Pinned(4)
    versions.advance(store, "me", Pinned(3), "batch 0")
    assert held(store) == [("me", 3, "batch 0")]
    versions.advance(store, "me", Pinned(4), "batch 1")
    assert held(store) == [("me", 4, "batch 1")]
    versions.release(store, "me")
    assert held(store) == []
    store.compact()
    # what is gone cannot be held; nobody needs it
    versions.advance(store, "me", Pinned(1), "batch 0")
    assert held(store) == []


def test_a_version_by_number_is_held_for_good(store):
    versions = VersionPolicy.parse(2)
    assert versions.now(store) == versions.pin(store, "me", "batch 0") == Pinned(2)
    versions.advance(store, "me", Pinned(2), "batch 0")
    versions.release(store, "me")
    assert held(store) == [("me", 2, "batch 0")]
    with pytest.raises(rc.StorageError, match="has versions 0 to 3, got version 9"):
        VersionPolicy.parse(9).now(store)
    with pytest.raises(rc.StorageError, match="9"):
        VersionPolicy.parse(9).pin(store, "other", "")


def test_by_event_time_all_versions_are_held_for_good(store):
    versions = VersionPolicy.parse("event-time", "at")
    assert versions.now(store) == versions.pin(store, "me", "batch 0") == Pinned(3, 0)
    versions.release(store, "me")
    versions.advance(store, "me", Pinned(3, 0), "batch 0")
    store.insert(rc.Subscriptions.parse(store.schema, {1: "a0 is present"}))
    assert versions.pin(store, "me", "batch 1") == Pinned(4, 0)
    assert held(store) == [("me", 0, "batch 0")]


def test_a_batch_that_waits_for_a_writer_says_so(store, caplog):
    store.wait = 0.05
    other = rc.Store.open(store.path)
    locked, done = threading.Event(), threading.Event()

    def write():
        with other.writing():
            locked.set()
            done.wait(30)

    thread = threading.Thread(target=write)
    thread.start()
    locked.wait(30)
    threading.Timer(0.3, done.set).start()
    assert VersionPolicy.parse("event-time", "at").pin(store, "me", "") == Pinned(3, 0)
    thread.join()
    assert "a batch by event time waits for another process that writes" in caplog.text


def test_versions_and_indexes_of_events(store):
    made = [int(store.time_of(version).timestamp() * 1_000_000) for version in (1, 2, 3)]
    times = pa.array([made[0], made[2], 0, None, made[1], made[2] + 10**12], pa.timestamp("us", "UTC"))
    by_time = PinnedStore(str(store.path), Pinned(2, 1), "at")
    found, reasons = by_time.versions_of(times)
    assert found.tolist() == [1, 2, 0, 0, 2, 2]
    assert reasons == {
        2: "the subscriptions of its time are gone; the oldest version is 1",
        3: "an event must have a time in 'at'",
    }
    events = rc.Events.from_arrays(store.schema, {"a0": [1, 2, 3], "a1": [1, 2, 3]})
    table = pa.table({"id": [10, 11, 12]})
    groups = [
        (len(index), part["id"].to_pylist())
        for index, _, part in by_time.indexes(events, table, found[[0, 1, 4]])
    ]
    assert groups == [(30, [10]), (20, [11, 12])]
    plain = PinnedStore(str(store.path), Pinned(3))
    ((index, same, all_rows),) = plain.indexes(events, table, None)
    assert (len(index), same, all_rows) == (10, events, table)
    assert plain.schema.names == by_time.schema.names == ("a0", "a1")


def test_what_is_gone_is_said_with_what_to_do(store):
    check_pinned(store, Pinned(3), "batch 4", "start afresh")
    check_pinned(store, Pinned(3, 0), "batch 4", "start afresh")
    with pytest.raises(rc.StorageError, match=r"batch 4 .* version 7 .* \(it has 3\): .*; or start afresh"):
        check_pinned(store, Pinned(7), "batch 4", "start afresh")
    store.compact()
    with pytest.raises(rc.StorageError, match=r"batch 4 was begun with version 0 .*\(the oldest is 3\)"):
        check_pinned(store, Pinned(3, 0), "batch 4", "start afresh")
    check_newer(store, 3)
    with pytest.raises(
        rc.StorageError, match=r"versions up to 3, but the checkpoint has seen 4: .* old copy"
    ):
        check_newer(store, 4)
