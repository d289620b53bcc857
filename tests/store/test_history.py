"""Checkpoints and what a store forgets by itself."""

import pytest

import rangecast as rc
from rangecast.engine.index import Index
from rangecast.store import HistoryLimits
from rangecast.store import store as stores
from rangecast.store.change_log import ChangeLog

pytestmark = pytest.mark.once


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "CHECKPOINT", 20)
    monkeypatch.setattr("rangecast.store.versions._MANY", 20)
    return rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")


def write(store, n, first=0):
    for number in range(first, first + n):
        subs = rc.Subscriptions.parse(store.schema, {number % 7: f"symbol = 'S{number % 5}'"})
        store.insert(subs, expires=2**62 if number % 3 == 0 else None)


def facts(store):
    log = store._log
    ends = store._expiries().all()
    return (
        store.version,
        [(e.version, e.time, e.offset, e.length, e.changed, e.expiring) for e in log._entries],
        [e[:2] + e[3:] for e in log._openings],
        log.textual,
        store.schema["symbol"].vocabulary.words(),
        sorted(zip(ends[0].values.tolist(), ends[1].tolist(), strict=True)),
    )


def test_a_checkpoint_lists_what_came_before(store, monkeypatch):
    store.keep_history(None)
    write(store, 110)
    assert [first for first, _ in store._log.segments()] == [1, 21, 41, 61, 81, 101]
    read = []
    heads = ChangeLog._read_heads
    monkeypatch.setattr(
        ChangeLog, "_read_heads", lambda log, path, first: (read.append(first), heads(log, path, first))
    )
    again = rc.Store.open(store.path)
    assert read == [101], "the rest is in lists"
    assert facts(again) == facts(store)
    monkeypatch.setattr(ChangeLog, "_take_list", lambda *_: False)
    assert facts(rc.Store.open(store.path)) == facts(store)
    assert again.verify() == []
    assert [len(again.subscriptions(v)) for v in (0, 3, 40, 110)] == [0, 3, 7, 7]


def test_a_list_that_does_not_fit_is_refused(store):
    store.keep_history(None)
    write(store, 45)
    paths = [path for _, path in store._log.segments()]
    raw = paths[2].read_bytes()
    damaged = bytearray(raw)
    damaged[-70] ^= 1  # in the last change
    paths[2].write_bytes(damaged)
    assert rc.Store.open(store.path).version == 45
    damaged[60] ^= 1
    paths[2].write_bytes(damaged)
    with pytest.raises(rc.StorageError, match=r"the record that opens it is damaged"):
        rc.Store.open(store.path)
    paths[2].write_bytes(raw)
    paths[0].write_bytes(paths[0].read_bytes())
    paths[0].unlink()
    paths[1].rename(paths[0])
    with pytest.raises(rc.StorageError, match=r"list of 0+1.log does not fit"):
        rc.Store.open(store.path)


def test_a_store_forgets_by_its_history(store):
    store.keep_history(HistoryLimits(versions=30, seconds=0))
    write(store, 201)
    assert store.oldest > 120
    assert len(store) == 7
    again = rc.Store.open(store.path)
    assert (again.version, again.oldest, again.verify()) == (201, store.oldest, [])
    assert len(list((store.path / "log").glob("*.log"))) <= 4
    assert len(store.snapshots()) <= 4


def test_what_is_held_or_young_is_not_forgotten(store):
    store.keep_history(HistoryLimits(versions=30, seconds=0))
    write(store, 5)
    store.hold("job")
    write(store, 120, 5)
    assert store.oldest <= 5
    store.release("job")
    store.keep_history(HistoryLimits(versions=1))
    write(store, 60, 125)
    assert store.oldest <= 5, "nothing is an hour old"
    store.keep_history(HistoryLimits(versions=None, bytes=0, seconds=0))
    write(store, 30, 185)
    assert store.oldest > 150


def test_history_is_kept_and_checked(store):
    assert store.history == HistoryLimits()
    store.keep_history(None)
    assert rc.Store.open(store.path).history is None
    store.keep_history(HistoryLimits(versions=5))
    assert rc.Store.open(store.path).history == HistoryLimits(versions=5)
    with pytest.raises(rc.OptionError, match=r"versions of a history must be at least 1, got 0"):
        HistoryLimits(versions=0)
    (store.path / "history.json").write_text('{"odd": 1}')
    with pytest.raises(rc.StorageError, match=r"history.json: cannot be read"):
        _ = store.history


def test_upkeep_that_fails_stops_no_write(store, caplog):
    write(store, 20)
    (store.path / "history.json").write_text("{")
    write(store, 3, 20)
    assert store.version == 23
    assert "upkeep was put off" in caplog.text


def test_many_versions_are_one_change_of_an_index(tmp_path, monkeypatch):
    """Opening looks at the last segment alone, and whoever asks for the newest version replays no history."""
    monkeypatch.setattr(stores, "CHECKPOINT", 100)
    store = rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price")), index="scan")
    store.keep_history(None)
    subs = rc.Subscriptions.parse(store.schema, {7: "price > 5"})
    for _ in range(650):
        store.insert(subs)
    heads, inserts = [], []
    read, insert = ChangeLog._read_heads, Index.insert
    monkeypatch.setattr(ChangeLog, "_read_heads", lambda *args: (heads.append(args[2]), read(*args)))
    monkeypatch.setattr(Index, "insert", lambda *args: (inserts.append(args), insert(*args)))
    again = rc.Store.open(store.path)
    assert again.version == 650
    assert set(heads) == {601}
    assert len(again) == 1
    assert len(inserts) <= 2


def test_compact_clears_what_was_cut_off(store):
    write(store, 3)
    path = store._log.segments()[-1][1]
    with open(path, "ab") as file:
        file.write(b"torn")
    write(store, 1, 3)
    assert list((store.path / "log").glob("*.torn-*"))
    store.compact()
    assert not list((store.path / "log").glob("*.torn-*"))
