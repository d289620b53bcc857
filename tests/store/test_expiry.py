"""Subscriptions that end: which, when, and through compactions."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import rangecast as rc

pytestmark = pytest.mark.without_kernels
# tests that look into the files of a store, or stand for its lock
IN_FOLDER = pytest.mark.parametrize("home", ["folder"], indirect=True)

HOUR = 3_600_000_000


@pytest.fixture
def store(home):
    return rc.Store.open(home / "store", rc.Schema(rc.Int("price")), index="scan")


def subs_of(store, ids):
    return rc.Subscriptions.parse(store.schema, dict.fromkeys(ids, "price < 5"))


def ids_of(store, version=None):
    return sorted(store.subscriptions(version).ids.arrow().to_pylist())


def test_expire_deletes_what_is_due_as_one_version(store):
    store.insert(subs_of(store, [1, 2, 3, 4]), expires=[100, 200, 0, None])
    store.insert(subs_of(store, [5]))
    assert store.next_expiry() == 100
    assert store.expires_at([1, 2, 3, 4, 5, 99]).tolist() == [100, 200, 0, 0, 0, 0]
    assert store.expire(99) == 2, "nothing is due: no version"
    assert store.expire(100) == 3
    assert ids_of(store) == [2, 3, 4, 5]
    assert ids_of(store, 2) == [1, 2, 3, 4, 5]
    (change,) = store.changes(2)
    assert change.deleted.values.tolist() == [1]
    assert store.expire(10**15) == 4
    assert ids_of(store) == [3, 4, 5]
    assert store.next_expiry() is None
    assert store.expire() == 4


@IN_FOLDER
def test_expire_needs_no_lock_while_nothing_is_due(store):
    store.insert(subs_of(store, [1]), expires=2**62)
    other = rc.Store.open(store.path, wait=0.0)
    with store.writing():
        assert other.expire() == 1
        with pytest.raises(rc.StorageError, match="another process is writing"):
            other.expire(2**62)
        assert rc.Store.open(store.path).expire(2**62, patient=False) == 1, "left for the next time"
    assert other.expire(2**62, patient=False) == 2


def test_replacing_replaces_the_end(store):
    store.insert(subs_of(store, [1, 2, 3]), expires=100)
    store.insert(subs_of(store, [1]))
    store.apply(subs_of(store, [2]), expires=500)
    store.delete([3])
    store.insert(subs_of(store, [3]))
    assert store.expires_at([1, 2, 3]).tolist() == [0, 500, 0]
    store.expire(400)
    assert ids_of(store) == [1, 2, 3]
    store.expire(500)
    assert ids_of(store) == [1, 3]


def test_an_id_that_is_deleted_and_inserted_at_once_gets_the_new_end(store):
    store.insert(subs_of(store, [1, 2]), expires=100)
    store.apply(subs_of(store, [1]), deleted=[1, 2], expires=300)
    assert store.expires_at([1, 2]).tolist() == [300, 0]


@pytest.mark.parametrize("textual", [False, True])
def test_ends_are_kept_through_compactions(store, textual):
    names = ["a", "b", "c", "d"] if textual else [1, 2, 3, 4]
    store.insert(subs_of(store, names), expires=[100, 200, 0, 300])
    store.delete(names[:1])
    store.compact()
    store.compact()
    again = rc.Store.open(store.path)
    assert again.expires_at(names).tolist() == [0, 200, 0, 300]
    assert [len(c.deleted) for c in again.changes(2)] == []
    again.insert(subs_of(again, names[:1]), expires=250)
    again.compact(keep=2)
    third = rc.Store.open(store.path)
    assert third.expire(260) == 4
    assert ids_of(third) == sorted(names[2:])
    assert store.next_expiry() == 300


def test_expiry_goes_on_in_a_process_that_saw_none_before(store):
    reader = rc.Store.open(store.path)
    store.insert(subs_of(store, [1]))
    assert reader.expire(10**15) == 1
    store.insert(subs_of(store, [2]), expires=100)
    store.compact()
    store.insert(subs_of(store, [3]), expires=100)
    assert reader.expire(10**15) == 4
    assert ids_of(reader) == [1]


@pytest.mark.parametrize(
    "expires",
    [
        dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 2, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.datetime(2026, 1, 2, 3),
        "2026-01-02T03:00:00Z",
        np.datetime64("2026-01-02T03"),
        1_767_322_800_000_000,
        np.int64(1_767_322_800_000_000),
        np.array(["2026-01-02T03", "2026-01-02T03"], "datetime64[s]"),
        [dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)] * 2,
        pa.array([1_767_322_800_000_000] * 2, pa.timestamp("us", "UTC")),
    ],
)
def test_forms_of_a_time(store, expires):
    store.insert(subs_of(store, [1, 2]), expires=expires)
    assert store.expires_at([1, 2]).tolist() == [1_767_322_800_000_000] * 2


def test_what_is_refused(store):
    subs = subs_of(store, [1, 2])
    with pytest.raises(rc.SubscriptionError, match=r"one per subscription \(2\), got 3"):
        store.insert(subs, expires=[1, 2, 3])
    with pytest.raises(rc.SubscriptionError, match="row 1: must be a time after 1970, got -5"):
        store.insert(subs, expires=[1, -5])
    with pytest.raises(rc.SubscriptionError, match="expires, row 0"):
        store.insert(subs, expires=["soon", "later"])
    with pytest.raises(rc.RangecastError, match="soon"):
        store.insert(subs, expires="soon")
    assert store.version == 0


def test_a_store_without_ends_writes_none(store):
    store.insert(subs_of(store, [1, 2]), expires=[0, 0])
    (change,) = store.changes(0)
    assert change.expires is None
