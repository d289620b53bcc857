"""What is particular of a store in a bucket: writers without locks, late ones, damaged objects, the cache."""

import os
import threading
import uuid
from collections import OrderedDict

import numpy as np
import pytest

import rangecast as rc
from rangecast.durable.bucket import Bucket, is_address
from rangecast.durable.fetched import cache_folder
from rangecast.store.object_log import OvertakenError

pytestmark = pytest.mark.without_kernels


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}/alerts"


@pytest.fixture
def store(address):
    return rc.Store.open(address, rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")


def subs(store, *ids, symbol="A"):
    return rc.Subscriptions.parse(store.schema, {i: f"price > {i} and symbol = '{symbol}'" for i in ids})


def ids_of(store, version=None):
    return sorted(store.subscriptions(version).ids.values.tolist())


def names(store):
    return [entry.name for entry in Bucket(store.path).entries("")]


def read_all(address):
    store = rc.Store.open(address)
    store.holds()
    list(store.changes(0))
    store.index()


def test_what_is_an_address():
    assert [is_address(place) for place in ("s3://b/p", "gs://b", "az://a/c", "alerts", "/s3:/b")] == [
        *(True, True, True, False, False)
    ]
    with pytest.raises(rc.OptionError, match=r"must begin with s3://, .* or be a path, .* got ftp://"):
        rc.Store.open("ftp://host/alerts")


def test_a_change_is_one_object_and_a_snapshot_another(store):
    store.insert(subs(store, 1, 2))
    assert store.delete([2]) == []
    store.snapshot()
    assert names(store) == [
        *(f"log/{version:020}.change" for version in (1, 2)),
        f"snapshots/{2:020}.index",
        "store.json",
    ]
    assert rc.Store.open(store.path).id == store.id
    store.compact()
    assert [name for name in names(store) if name.endswith(".change")] == [f"log/{2:020}.change"]
    assert ids_of(rc.Store.open(store.path)) == [1]


def test_stores_that_are_made_at_once_are_one(address):
    schema = rc.Schema(rc.Int("price"))
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(rc.Store.open(address, schema).id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1
    Bucket(address).put("notes.txt", b"")
    Bucket(address).delete(["store.json"])
    with pytest.raises(rc.StorageError, match=r"holds other objects \(notes.txt\); name an empty folder"):
        rc.Store.open(address, schema)


def test_whoever_is_second_does_it_again(store):
    other = rc.Store.open(store.path)
    for number in range(1, 20, 2):
        assert store.insert(subs(store, number)) == number
        assert other.insert(subs(other, number + 1)) == number + 1
    assert ids_of(store) == ids_of(other) == list(range(1, 21))
    assert [change.version for change in store.changes(0)] == list(range(1, 21))


def test_inside_writing_a_second_writer_is_a_conflict(store):
    other = rc.Store.open(store.path)
    with store.writing():
        other.insert(subs(other, 1))
        with pytest.raises(OvertakenError, match="another process made version 1 meanwhile"):
            store.insert(subs(store, 2))
    assert ids_of(store) == [1]
    turns = []

    def step():
        turns.append(store.version)
        if len(turns) == 1:
            other.insert(subs(other, 3))
        return store.insert(subs(store, 4))

    assert store.exclusively(step) == 3
    assert turns == [1, 2]


def test_words_of_two_writers_do_not_mix(store):
    other = rc.Store.open(store.path)
    mine, theirs = subs(store, 1, symbol="MINE"), subs(other, 2, symbol="THEIRS")
    other.insert(theirs)
    with pytest.raises(rc.SchemaError, match="parse them again with the store's own schema"):
        store.insert(mine)
    store.insert(subs(store, 1, symbol="MINE"))
    found = rc.Store.open(store.path).index().match([{"price": 9, "symbol": s} for s in ("MINE", "THEIRS")])
    assert [found.row(0).tolist(), found.row(1).tolist()] == [[1], [2]]


def test_many_writers_at_once_lose_nothing(store):
    stores = [rc.Store.open(store.path, wait=120.0) for _ in range(4)]

    def work(n):
        for i in range(8):
            stores[n].insert(
                rc.Subscriptions.from_arrays(stores[n].schema, [100 * n + i], [[i, None]], [[i, None]])
            )

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids_of(store) == sorted(100 * n + i for n in range(4) for i in range(8))
    assert store.version == 32


def test_an_answer_that_got_lost_is_no_second_change(store, monkeypatch):
    import obstore

    real = obstore.put
    lost = []

    def put(*args, **keywords):
        real(*args, **keywords)
        if keywords.get("mode") == "create" and not lost:
            lost.append(True)
            return real(*args, **keywords)  # as a client does that heard nothing
        return None

    monkeypatch.setattr(obstore, "put", put)
    assert store.insert(subs(store, 1)) == 1
    assert lost
    assert ids_of(store) == [1]


def test_a_writer_that_slept_over_a_compaction_is_told_so(store):
    asleep = rc.Store.open(store.path)
    asleep.insert(subs(asleep, 1))
    for number in range(2, 7):
        store.insert(subs(store, number))
    store.compact(keep=4)
    # it believes that version 2 comes next, whose name is free by now
    log = asleep._log
    assert log.version == 1
    from rangecast.model.ids import Ids

    with pytest.raises(OvertakenError, match="compacted away while this one slept"):
        log.append(0, Ids.of([]), subs(asleep, 99))
    assert f"log/{2:020}.change" not in names(store)
    assert asleep.insert(subs(asleep, 7)) == 7
    assert ids_of(store) == ids_of(asleep) == list(range(1, 8))


def test_what_a_late_writer_left_is_not_read(store, monkeypatch):
    """It died between its put and its look; a reader that is as far behind meets what it has put."""
    asleep, behind = rc.Store.open(store.path), rc.Store.open(store.path)
    for one in (asleep, behind):
        one.refresh()
    store.insert(subs(store, 1))
    store.insert(subs(store, 2))
    store.compact(keep=1)
    monkeypatch.setattr(type(asleep._log), "_confirm", lambda *_: None)
    from rangecast.model.ids import Ids

    asleep._log.append(0, Ids.of([]), subs(asleep, 99, symbol="LATE"))
    assert f"log/{1:020}.change" in names(store)
    assert behind.version == 2
    assert ids_of(behind) == [1, 2]
    assert "LATE" not in behind.schema["symbol"].vocabulary.words()
    store.compact()
    assert f"log/{1:020}.change" not in names(store)


@pytest.mark.parametrize("moment", ["before the look at the holds", "after it"])
def test_a_hold_beside_a_compaction_is_kept_or_refused(store, monkeypatch, moment):
    for number in range(1, 6):
        store.insert(subs(store, number))
    other = rc.Store.open(store.path)
    given = []

    def hold():
        try:
            given.append(other.hold("job", 2))
        except rc.StorageError as error:
            given.append(str(error))

    look, drop = rc.Store._oldest_needed, rc.Store._drop_before
    calls = []

    def looking(self, keep):
        calls.append(keep)
        if len(calls) == 2 and moment.startswith("before"):
            hold()
        return look(self, keep)

    def dropping(self, keep):
        if moment.startswith("after"):
            hold()
        return drop(self, keep)

    monkeypatch.setattr(rc.Store, "_oldest_needed", looking)
    monkeypatch.setattr(rc.Store, "_drop_before", dropping)
    store.compact()
    # it was closed before either: refused, and what it asked for may go
    assert "version 2 is gone, or about to go" in given[0]
    assert store.holds() == []
    assert store.oldest == 5


def test_a_hold_before_a_compaction_closes_is_seen_by_it(store):
    for number in range(1, 6):
        store.insert(subs(store, number))
    other = rc.Store.open(store.path)
    real = type(store._log).checkpoint
    once = []

    def checkpoint(log, *args, **keywords):
        if not once:
            once.append(other.hold("job", 2))
        return real(log, *args, **keywords)

    type(store._log).checkpoint = checkpoint
    try:
        store.compact()
    finally:
        type(store._log).checkpoint = real
    assert store.oldest == 2
    assert ids_of(store, 2) == [1, 2]


def test_checkpoints_make_opening_short(store, monkeypatch):
    monkeypatch.setattr("rangecast.store.store.OBJECT_CHECKPOINT", 10)
    monkeypatch.setattr("rangecast.store.versions._MANY", 10)
    for number in range(1, 48):
        store.insert(subs(store, number, symbol=f"S{number}"), expires=10**15 + number)
    assert sum("checkpoint" in name for name in names(store)) == 2
    read = []
    real = Bucket.read
    monkeypatch.setattr(Bucket, "read", lambda b, name, *more: (read.append(name), real(b, name, *more))[1])
    again = rc.Store.open(store.path)
    assert again.version == 47
    assert len([name for name in read if name.endswith(".change")]) <= 10
    assert again.schema["symbol"].vocabulary.words() == [f"S{number}" for number in range(1, 48)]
    assert again.next_expiry() == 10**15 + 1
    assert again.time_of(3) == store.time_of(3)
    assert [c.inserted.ids.values.tolist() for c in again.changes(2, 4)] == [[3], [4]]


@pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
def test_damaged_objects_are_refused_by_their_address(store, harm):
    for number in range(1, 4):
        store.insert(subs(store, number))
    store.hold("job", 3)
    store.snapshot()
    bucket = Bucket(store.path)
    for name in names(store):
        whole = bucket.read(name)
        damaged = {"flip": bytearray(whole), "cut": whole[: len(whole) // 2], "empty": b""}[harm]
        if harm == "flip":
            damaged[len(whole) // 2] ^= 8
        bucket.put(name, bytes(damaged))
        with pytest.raises(rc.StorageError, match=name):
            read_all(store.path)
        bucket.put(name, whole)
    assert rc.Store.open(store.path).verify() == []
    bucket.delete([f"log/{2:020}.change"])
    with pytest.raises(rc.StorageError, match=rf"log/{2:020}.change: is not there, or is not"):
        rc.Store.open(store.path)


def test_heads_are_read_at_once_and_kept_by_one_thread(store, monkeypatch):
    reader = rc.Store.open(store.path)
    log = reader._log

    filled = set()

    class Watched(OrderedDict):
        def __setitem__(self, version, raw):
            filled.add(threading.get_ident())
            super().__setitem__(version, raw)

        def update(self, found):
            filled.add(threading.get_ident())
            super().update(found)

    log._kept = Watched()
    for number in range(20):
        store.insert(subs(store, number))
    asked = []
    real = Bucket.read
    monkeypatch.setattr(
        Bucket, "read", lambda b, *what: (asked.append(threading.get_ident()), real(b, *what))[1]
    )
    reader.refresh()
    assert ids_of(reader) == list(range(20))
    assert len(set(asked)) > 1
    assert filled == {threading.get_ident()}
    assert len(log._kept) == 20


def test_a_snapshot_is_fetched_once_and_the_cache_is_bounded(store, monkeypatch, tmp_path):
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path / "maker"))
    store.insert(
        rc.Subscriptions.from_arrays(store.schema, np.arange(500), [[1, None]] * 500, [[9, None]] * 500)
    )
    size = store.snapshot().stat().st_size
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path / "reader"))
    fetches = []
    real = Bucket.fetch
    monkeypatch.setattr(
        Bucket, "fetch", lambda b, entry, to: (fetches.append(entry.name), real(b, entry, to))[1]
    )
    files = {rc.Store.open(store.path).snapshot() for _ in range(3)}
    assert len(files) == len(fetches) == 1
    assert len(rc.load_index(files.pop())) == 500
    store.insert(subs(store, 999))
    size = max(size, store.snapshot().stat().st_size)
    monkeypatch.setenv("RANGECAST_CACHE_BYTES", str(int(2.5 * size)))
    kept = []
    for number in range(1000, 1004):
        store.insert(subs(store, number))
        kept.append(store.snapshot())
    assert [path.exists() for path in kept] == [False, False, True, True]
    assert sum(path.stat().st_size for path in cache_folder().glob("*.object")) <= 2.5 * size
    monkeypatch.setenv("RANGECAST_CACHE_BYTES", "lots")
    store.insert(subs(store, 2000))
    with pytest.raises(rc.OptionError, match="RANGECAST_CACHE_BYTES must be a number of bytes, got 'lots'"):
        store.snapshot()


def test_a_forked_process_is_told_to_open_it_itself(store):
    store.insert(subs(store, 1))
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            store.insert(subs(store, 2))
            said = "nothing"
        except rc.ForkError as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.wait()
    assert "connections do not survive that" in os.read(reader, 1000).decode()
