"""The store: versions, snapshots, what survives a crash, what is refused."""

import datetime as dt
import json
import multiprocessing
import os
import pickle
import random
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes
from rangecast.durable.arrays import pack_arrays
from rangecast.store.change import move_mark, pack_record
from rangecast.store.change_log import ChangeLog
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.once
# tests that look into the files of a store, or stand for its lock
IN_FOLDER = pytest.mark.parametrize("home", ["folder"], indirect=True)

HERE = Path(__file__).resolve().parent


@pytest.fixture
def schema():
    return rc.Schema(rc.Int("price"), rc.Category("symbol"))


@pytest.fixture
def store(home, schema):
    return rc.Store.open(home / "store", schema, index="scan")


def parse(store, conditions):
    return rc.Subscriptions.parse(store.schema, conditions)


def ids_of(store, version=None):
    subs = store.subscriptions(version)
    return sorted(subs.ids[row] for row in range(len(subs)))


def matched(index, **event):
    return sorted(index.match(rc.Events.from_rows(index.schema, [event])).row(0).tolist())


def segment(store):
    return sorted((store.path / "log").glob("*.log"))[-1]


def test_versions_count_changes(store):
    assert store.version == 0
    assert store.insert(parse(store, {1: "price < 5", 2: "symbol = 'A'"})) == 1
    assert store.insert(parse(store, {2: "symbol = 'B'", 3: "price > 7"})) == 2
    assert store.delete([1, 9]) == [9]
    assert store.version == 3
    assert [ids_of(store, v) for v in range(4)] == [[], [1, 2], [1, 2, 3], [2, 3]]
    assert matched(store.index(1), symbol="A") == [2]
    assert matched(store.index(2), symbol="A") == []
    assert matched(store.index(2), symbol="B") == [2]
    assert 2 in store
    assert 1 not in store
    assert len(store) == 2


def test_changes_that_change_nothing_make_no_version(store):
    assert store.insert(rc.Subscriptions.empty(store.schema)) == 0
    assert store.delete([4]) == [4]
    assert store.version == 0


def test_delete_and_insert_are_one_version(store):
    store.insert(parse(store, {1: "price < 5", 2: "price > 5"}))
    assert store.apply(parse(store, {3: "price = 5"}), [1]) == 2
    assert ids_of(store) == [2, 3]
    (change,) = store.changes(1)
    assert change.deleted.values.tolist() == [1]
    assert change.inserted.ids.values.tolist() == [3]


def test_a_snapshot_is_a_mapped_index_of_its_version(store):
    store.insert(parse(store, {1: "price < 5"}))
    first = store.snapshot()
    store.insert(parse(store, {2: "price < 5"}))
    assert matched(rc.load_index(first), price=1) == [1]
    assert matched(rc.load_index(store.snapshot()), price=1) == [1, 2]
    assert store.snapshot(1) == first
    assert store.snapshots() == [1, 2]


def test_changes_bring_an_index_forward(tmp_path):
    schema = int_schema(3)
    store = rc.Store.open(tmp_path / "s", schema, index="direct")
    store.insert(random_subscriptions(schema, 60, seed=1, boxes=2))
    index = rc.load_index(store.snapshot())
    store.insert(random_subscriptions(schema, 40, seed=2))
    store.delete(np.arange(5, 60, 6))
    store.insert(random_subscriptions(schema, 10, seed=3))
    for change in store.changes(1):
        change.apply_to(index)
    events = random_events(schema, 30, seed=4)
    expected = match_boxes(store.subscriptions(), events)
    for mine in (index, store.index(), rc.load_index(store.snapshot())):
        m = mine.match(events)
        assert [set(m.row(e).tolist()) for e in range(len(events))] == expected


def test_a_store_opens_again_and_takes_over_its_words(tmp_path, schema, store):
    store.insert(parse(store, {1: "symbol = 'A'", 2: "symbol = 'B'"}))
    mine = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    again = rc.Store.open(store.path, mine)
    assert again.schema is mine
    # made with the schema object of this run, whose dictionary began empty
    again.insert(rc.Subscriptions.parse(mine, {3: "symbol = 'C'", 4: "symbol != 'B'"}))
    assert matched(store.index(), symbol="C") == [3, 4]
    assert matched(store.index(), symbol="A") == [1, 4]
    assert store.schema["symbol"].vocabulary.words() == ["A", "B", "C"]


def test_words_named_by_two_writers_at_once(store):
    other = rc.Store.open(store.path)
    stale = rc.Subscriptions.parse(other.schema, {5: "symbol = 'X'"})
    store.insert(parse(store, {1: "symbol = 'Y'"}))
    with pytest.raises(rc.SchemaError, match=r"store's own schema \(store.schema\)"):
        other.insert(stale)
    other.insert(parse(other, {5: "symbol = 'X'"}))
    assert matched(store.index(), symbol="X") == [5]
    assert matched(store.index(), symbol="Y") == [1]


def test_a_snapshot_holds_no_word_that_was_never_written(store):
    store.insert(parse(store, {1: "symbol = 'A'"}))
    parse(store, {2: "symbol = 'lost'"})
    index = rc.load_index(store.snapshot())
    assert index.schema["symbol"].vocabulary.words() == ["A"]
    other = rc.Store.open(store.path)
    other.insert(parse(other, {3: "symbol = 'B'"}))
    for change in store.changes(1):
        change.apply_to(index)
    assert matched(index, symbol="B") == [3]


def test_learn_gives_words_their_codes(store):
    assert store.learn({"symbol": ["A", "B"]}) == 1
    assert store.learn({"symbol": ["B"]}) == 1
    other = rc.Store.open(store.path)
    other.insert(parse(other, {1: "symbol = 'B'"}))
    assert [len(c.inserted) for c in store.changes(0)] == [0, 1]
    assert matched(store.index(), symbol="B") == [1]


def test_string_ids(tmp_path):
    store = rc.Store.open(tmp_path / "s", rc.Schema(rc.Int("price")))
    store.insert(parse(store, {"a": "price < 5", "é": "price > 3"}))
    assert store.delete(["a", "nobody"]) == ["nobody"]
    assert ids_of(store) == ["é"]
    assert ids_of(rc.Store.open(store.path), 1) == ["a", "é"]
    with pytest.raises(rc.SubscriptionError, match="all whole numbers or all strings"):
        store.insert(parse(store, {7: "price < 5"}))


@IN_FOLDER
def test_compact_keeps_what_is_asked_for(store):
    for number in range(6):
        store.insert(parse(store, {number: f"price > {number} and symbol = 'S{number}'"}))
    stripes = store.snapshot(2).with_suffix(".stripes-3")
    stripes.mkdir()
    (stripes / "plan.json").write_text("{}")
    report = store.compact(keep=4)
    assert not stripes.exists()
    assert report["snapshots"] == 1
    assert store.snapshots() == [4]
    assert ids_of(store, 4) == [0, 1, 2, 3]
    assert ids_of(store, 5) == [0, 1, 2, 3, 4]
    store.insert(parse(store, {6: "symbol = 'S6'"}))
    report = store.compact()
    assert report["segments"] == 2
    assert report["bytes"] > 0
    assert store.oldest == 7
    with pytest.raises(rc.StorageError, match="version 3 is gone; the oldest is 7"):
        store.snapshot(3)
    again = rc.Store.open(store.path)
    assert ids_of(again) == list(range(7))
    assert matched(again.index(), symbol="S5", price=100) == [5]
    with pytest.raises(rc.StorageError, match="compacted away"):
        list(again.changes(3))
    again.insert(parse(again, {8: "symbol = 'S8'"}))
    assert [c.version for c in store.changes(7)] == [8]
    assert store.delete([8, 0]) == []
    assert again.version == 9


def test_a_reader_lives_through_compactions_of_another(store):
    reader = rc.Store.open(store.path)
    store.insert(parse(store, {1: "price < 5"}))
    assert ids_of(reader) == [1]
    store.compact()
    store.insert(parse(store, {2: "price < 5"}))
    store.compact()
    store.insert(parse(store, {3: "price < 5"}))
    assert ids_of(reader) == [1, 2, 3]


def test_a_reader_goes_on_while_another_compacts(store):
    store.insert(parse(store, {number: f"price > {number}" for number in range(6)}))
    stop = threading.Event()

    def compact():
        mine = rc.Store.open(store.path)
        while not stop.is_set():
            mine.insert(parse(mine, {3: "price < 3"}))
            mine.compact()

    compactor = threading.Thread(target=compact)
    compactor.start()
    try:
        reader = rc.Store.open(store.path)
        sizes = {len(reader.index()) for _ in range(40)} | {len(reader) for _ in range(20)}
    finally:
        stop.set()
        compactor.join()
    assert sizes == {6}


@IN_FOLDER
def test_a_log_from_before_there_were_ends_is_read(store):
    for number in range(3):
        store.insert(parse(store, {number: "price < 5 and symbol = 'A'"}))
    store.compact()
    # as it was written then: an opening record that says nothing of the version's time, nor of ends
    words = {"symbol": (0, ["A"])}
    made = 1_700_000_000_000_000
    record = pack_record(3, made, pack_arrays({"words": words, "textual": False}, {}))
    segment(store).write_bytes(struct.pack("<8sQQ", b"RNGLOG01", 4, 24 + len(record)) + record)
    old = rc.Store.open(store.path)
    assert (old.version, old.oldest, old.expire(2**62), old.next_expiry()) == (3, 3, 3, None)
    assert old.versions_at([made - 1, made]).tolist() == [-1, 3]
    old.insert(parse(old, {7: "symbol = 'B'"}), expires=5)
    assert old.expire() == 5
    assert ids_of(old) == [0, 1, 2]
    assert old.verify() == []


def test_times(store):
    before = dt.datetime.now(dt.UTC)
    store.insert(parse(store, {1: "price < 5"}))
    store.insert(parse(store, {2: "price < 5"}))
    assert before <= store.time_of(1) <= store.time_of(2)
    assert store.version_at(before - dt.timedelta(seconds=1)) == 0
    assert store.version_at(store.time_of(1)) in (1, 2)
    assert store.version_at(dt.datetime(2999, 1, 1)) == 2
    with pytest.raises(rc.StorageError, match="has versions 1 to 2, not 3"):
        store.time_of(3)


def test_a_store_pickles_as_its_path(store):
    store.insert(parse(store, {1: "price < 5"}))
    assert ids_of(pickle.loads(pickle.dumps(store))) == [1]


@IN_FOLDER
def test_a_torn_tail_is_cut_and_kept_aside(store, caplog):
    store.insert(parse(store, {1: "price < 5"}))
    whole = segment(store).read_bytes()
    store.insert(parse(store, {2: "price < 5"}))
    longer = segment(store).read_bytes()
    for length in sorted(random.Random(3).sample(range(len(whole) + 1, len(longer)), 12)):
        segment(store).write_bytes(whole[:40] + longer[40:length])
        again = rc.Store.open(store.path)
        assert again.version == 1
        assert again.insert(parse(again, {3: "price > 5"})) == 2
        assert ids_of(again) == [1, 3]
        assert again.verify() == []
    assert "never finished" in caplog.text
    assert list((store.path / "log").glob("*.torn-*"))


@IN_FOLDER
def test_a_whole_record_beyond_the_mark_is_kept(store):
    store.insert(parse(store, {1: "price < 5"}))
    mark = segment(store).read_bytes()[:40]
    store.insert(parse(store, {2: "symbol = 'B'"}))
    segment(store).write_bytes(mark + segment(store).read_bytes()[40:])
    reader = rc.Store.open(store.path)
    assert reader.version == 1, "not synced yet, as far as a reader knows"
    with reader.writing():
        pass
    assert ids_of(reader) == [1, 2]


@IN_FOLDER
@pytest.mark.parametrize("place", [24, 30, 45, -300, -1])
def test_damage_before_the_mark_is_never_cut(store, place):
    store.insert(parse(store, {1: "price < 5"}))
    store.insert(parse(store, {2: "price < 5"}))
    path = segment(store)
    raw = bytearray(path.read_bytes())
    raw[place] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(rc.StorageError, match="damaged"):
        list(rc.Store.open(store.path).changes(0))
    assert path.read_bytes() == raw


@IN_FOLDER
def test_a_log_shorter_than_its_mark_is_refused(store):
    store.insert(parse(store, {1: "price < 5"}))
    with open(segment(store), "r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 3)
    with pytest.raises(rc.StorageError, match=r"truncated|damaged"):
        rc.Store.open(store.path).insert(parse(store, {2: "price < 5"}))


def test_verify_names_a_damaged_snapshot(store):
    store.insert(parse(store, {1: "price < 5"}))
    path = store.snapshot()
    assert store.verify() == []
    raw = bytearray(path.read_bytes())
    raw[-64] ^= 1
    path.write_bytes(raw)
    (problem,) = store.verify()
    assert "is damaged" in problem


@IN_FOLDER
def test_what_is_refused(tmp_path, store):
    with pytest.raises(rc.StorageError, match="no store here; give a schema"):
        rc.Store.open(tmp_path / "nothing")
    with pytest.raises(rc.SchemaError, match=r"must have the attributes \(price int, symbol category\)"):
        rc.Store.open(store.path, rc.Schema(rc.Int("other")))
    with pytest.raises(rc.StorageError, match="was made with index 'scan', got 'direct'"):
        rc.Store.open(store.path, index="direct")
    with pytest.raises(rc.StorageError, match="has versions up to 0, got 5"):
        store.snapshot(5)
    with pytest.raises(rc.StorageError, match="got 3 to 0"):
        list(store.changes(3))
    with pytest.raises(rc.StorageError, match="cannot keep 2"):
        store.compact(keep=2)
    with pytest.raises(rc.SubscriptionError, match="a store takes Subscriptions, got dict"):
        store.insert({1: "price < 5"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(rc.StorageError, match=r"holds other files \(notes.txt\)"):
        rc.Store.open(tmp_path / "full", rc.Schema(rc.Int("a")))
    with pytest.raises(rc.StorageError, match="a store is a folder"):
        rc.Store.open(tmp_path / "full" / "notes.txt", rc.Schema(rc.Int("a")))
    with pytest.raises(rc.UnknownIndexError):
        rc.Store.open(tmp_path / "new", rc.Schema(rc.Int("a")), index="nothing")
    settings = json.loads((store.path / "store.json").read_text())
    settings.pop("crc32")
    (store.path / "store.json").write_text(json.dumps(settings | {"format": 99}))
    with pytest.raises(rc.StorageError, match="format 1 is read, got 99"):
        rc.Store.open(store.path)
    (store.path / "store.json").write_text("{")
    with pytest.raises(rc.StorageError, match=r"store.json: cannot be read"):
        rc.Store.open(store.path)


def hold(path, held, release):
    with rc.Store.open(path).writing():
        held.set()
        release.wait(60)


@IN_FOLDER
def test_one_writer_at_a_time_and_a_crash_frees_the_lock(store):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    writer = context.Process(target=hold, args=(store.path, held, release))
    writer.start()
    try:
        assert held.wait(60)
        impatient = rc.Store.open(store.path, wait=0.05)
        with pytest.raises(rc.StorageError, match=rf"another process is writing \(process {writer.pid}\)"):
            impatient.insert(parse(impatient, {1: "price < 5"}))
        assert impatient.version == 0
    finally:
        writer.kill()
        writer.join()
    assert store.insert(parse(store, {1: "price < 5"})) == 1


def test_threads_of_one_process_take_turns(store):
    stores = [store, rc.Store.open(store.path)]

    def work(number):
        mine = stores[number % 2]
        for i in range(10):
            mine.insert(
                rc.Subscriptions.from_arrays(mine.schema, [number * 100 + i], [[i, None]], [[i, None]])
            )

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.version == 40
    assert len(store) == 40


def test_a_killed_writer_loses_nothing_acknowledged(tmp_path, leg):
    rounds = {"compiled": 60, "bounds": 20, "nojit": 8}[leg]
    run = subprocess.run(
        [sys.executable, str(HERE / "store_crash.py"), str(tmp_path / "store"), str(rounds), "11"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["rounds"] == rounds
    assert seen["acknowledged"] > 0
    if leg == "compiled":
        assert seen["acknowledged"] > rounds
        assert min(seen["held"], seen["torn"], seen["unacknowledged_kept"]) > 0, seen


@pytest.mark.parametrize("kind", ["scan", "auto"])
def test_sets_are_stored_as_they_were_said(tmp_path, schema, kind):
    """Through the log, a snapshot, the log after it, and a store that is opened again."""
    store = rc.Store.open(tmp_path / "store", schema, index=kind)
    listed = ",".join(f"'s{i}'" for i in range(0, 4_000, 2))
    store.insert(parse(store, {0: " or ".join(f"symbol = 's{i}'" for i in range(4_000))}))
    said = {1: f"symbol in ({listed})", 2: f"symbol not in ({listed}) and price != 5", 3: "price != 7"}
    store.insert(parse(store, said))
    store.snapshot()
    store.apply(parse(store, {4: f"symbol in ({listed}) and price not in (1, 5, 9)"}), deleted=[3])
    again = rc.Store.open(store.path)
    for _ in range(2):
        subs = again.subscriptions()
        assert sorted(subs.ids.values.tolist()) == [0, 1, 2, 4]
        assert np.bincount(subs.owners).tolist() == [1, 1, 1, 1]
        assert len(subs.boxes.set_lows) > 6_000
        index = again.index()
        rows = [{"symbol": f"s{i}", "price": p} for i in (0, 1, 2, 3_999, 5_000) for p in (1, 2, 5)]
        found = index.match(rc.Events.from_rows(index.schema, rows))
        assert [sorted(found.row(e).tolist()) for e in range(len(rows))] == [
            [0, 1], [0, 1, 4], [0, 1],
            [0, 2], [0, 2], [0],
            [0, 1], [0, 1, 4], [0, 1],
            [0, 2], [0, 2], [0],
            [2], [2], [],
        ]  # fmt: skip
        again.snapshot()
        again.compact()


def test_a_store_refuses_what_its_index_could_not_take(tmp_path, schema):
    store = rc.Store.open(tmp_path / "store", schema, index="rtree")
    listed = ",".join(map(str, range(0, 3_000, 2)))
    with pytest.raises(rc.CapacityError, match="subscription 7 is 1,500 boxes of one interval per attribute"):
        store.insert(parse(store, {7: f"price in ({listed})"}))
    assert store.version == 0
    store.insert(parse(store, {7: "price in (1, 5)"}))
    assert matched(store.index(), price=5) == [7]


@IN_FOLDER
def test_records_of_dense_boxes_are_read(store):
    """What versions before sparse boxes wrote."""
    before = store.insert(parse(store, {1: "price = 5"}))
    path = segment(store)
    raw = path.read_bytes()
    arrays = {
        "deleted.values": np.empty(0, np.int64),
        "inserted.values": np.array([2, 3]),
        "lows": np.array([[1, 7, 9], [-(2**63)] * 3]),
        "highs": np.array([[1, 7, 9], [2**63 - 1] * 3]),
        "owners": np.array([0, 0, 1], np.int32),
    }
    record = pack_record(before + 1, 2**50, pack_arrays({"words": {}, "textual": False}, arrays))
    path.write_bytes(raw + record)
    with open(path, "r+b") as file:
        move_mark(file.fileno(), len(raw) + len(record))
    index = rc.Store.open(store.path).index()
    assert [matched(index, price=price) for price in (1, 5, 7, 9)] == [[2], [1], [2], [3]]


@IN_FOLDER
def test_a_change_looks_at_the_log_once(store, monkeypatch):
    """Under the lock nobody else makes a version, so there is nothing to look for."""
    looks = []
    refresh = ChangeLog.refresh
    monkeypatch.setattr(ChangeLog, "refresh", lambda log: looks.append(log) or refresh(log))
    subs = parse(store, {1: "price < 5 and symbol = 'NEW'"})
    store.insert(subs)
    assert len(looks) == 1
    looks.clear()
    with store.writing():
        store.insert(parse(store, {2: "symbol = 'B'"}))
        assert store.version == 2
        assert store.delete([1, 7]) == [7]
        assert ids_of(store) == [2]
        assert store.compact()["segments"] == 1
        assert store.version == 3
    # once for the lock, and for each segment that compact begins or removes
    assert len(looks) == 3
    assert rc.Store.open(store.path).verify() == []


def test_a_change_that_was_made_is_the_one_that_is_read(store):
    store.insert(parse(store, {1: "price < 5", 2: "price < 5"}))
    schema = rc.Schema.from_dict(store.schema.to_dict())
    subs = rc.Subscriptions.parse(schema, {2: "symbol = 'X' or price = 3", 3: "price > 5"})
    own = store.make_change(subs, [1], [0, 2**61], {"topic": 7})
    (read,) = rc.Store.open(store.path).changes(1)
    assert (own.version, own.time, own.note) == (read.version, read.time, read.note)
    assert (own.version, own.note) == (2, {"topic": 7})
    before, after = store.index(1), store.index(1)
    own.apply_to(before)
    read.apply_to(after)
    assert sorted(before.match_one({"price": 3, "symbol": "X"})) == [2]
    rows = [{"price": p, "symbol": s} for p in (1, 3, 9) for s in ("X", "Y", None)]
    found = [index.match(rc.Events.from_rows(index.schema, rows)).sort() for index in (before, after)]
    assert found[0].ids.tolist() == found[1].ids.tolist()
    assert found[0].offsets.tolist() == found[1].offsets.tolist()
    assert own.inserted.texts.to_list() == read.inserted.texts.to_list()
    assert own.expires.tolist() == read.expires.tolist() == [0, 2**61]
    nothing = store.make_change()
    assert (nothing.version, len(nothing.inserted), len(nothing.deleted)) == (2, 0, 0)


def test_the_next_expiry_is_known_after_each_change(home):
    store = rc.Store.open(home / "ends", rc.Schema(rc.Int("price")), index="scan")
    other = rc.Store.open(home / "ends")
    draw = random.Random(5)
    ends = {}
    for _ in range(60):
        id, end = draw.randrange(8), draw.choice([0, *range(100, 120)])
        if draw.random() < 0.3:
            store.delete([id])
            ends.pop(id, None)
        else:
            writer = draw.choice([store, other])
            writer.insert(rc.Subscriptions.parse(writer.schema, {id: "price < 5"}), expires=[end])
            ends[id] = end
        times = [end for end in ends.values() if end]
        assert store.next_expiry() == min(times, default=None)
        if draw.random() < 0.1:
            now = draw.randrange(95, 125)
            store.expire(now)
            ends = {id: end for id, end in ends.items() if not 0 < end <= now}
            assert store.next_expiry() == min((e for e in ends.values() if e), default=None)


@IN_FOLDER
@pytest.mark.parametrize("torn", ["head", "payload"])
def test_a_record_within_a_text_is_none(store, torn):
    """The bytes of a record of a later version, as anybody may write them into a condition."""
    store.insert(parse(store, {1: "price < 5"}))
    before = segment(store).read_bytes()
    forged = pack_record(9, 0, b"")
    note = {"note": forged.decode("latin-1")}
    payload = bytes(
        pack_arrays({"words": {}, "textual": False, "note": note}, {"deleted.values": np.arange(9)})
    )
    record = pack_record(2, 0, payload + forged)
    raw = bytearray(before + record)
    raw[len(before) + (20 if torn == "head" else 60)] ^= 0xFF
    segment(store).write_bytes(raw)
    if torn == "head":
        # where the next record begins is not known then, and what looks like one is taken for it
        with pytest.raises(rc.StorageError, match="whole changes follow"):
            store.insert(parse(store, {2: "price > 5"}))
    else:
        assert store.insert(parse(store, {2: "price > 5"})) == 2
        assert (ids_of(store), rc.Store.open(store.path).verify()) == ([1, 2], [])
