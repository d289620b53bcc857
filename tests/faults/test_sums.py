"""Everything that is relied on has a sum: bits of the log's mark, of store.json, holds, pins and commits."""

import dataclasses
import json
import struct

import pytest

import rangecast as rc
from rangecast.durable.documents import read_document, seal, unseal, write_document
from rangecast.store import change_log
from rangecast.store import commits as stored_commits
from rangecast.store.home import FolderHome
from rangecast.store.keep import Hold, pinned_batch, read_holds, write_hold

pytestmark = pytest.mark.once


def flips(raw):
    """A copy of some bytes with each single bit turned."""
    for place in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[place] ^= 1 << bit
            yield place, bytes(damaged)


@pytest.fixture
def store(tmp_path):
    store = rc.Store.open(tmp_path / "store", rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")
    for number in range(3):
        condition = f"price > {number} and symbol = 'S{number}'"
        store.insert(rc.Subscriptions.parse(store.schema, {number: condition}))
    return store


def segment(store):
    return sorted((store.path / "log").glob("*.log"))[-1]


def old_form(path):
    """A segment as it was written before marks had sums."""
    raw = path.read_bytes()
    (first,), (mark,) = struct.unpack("<Q", raw[8:16]), struct.unpack("<Q", raw[24:32])
    path.write_bytes(struct.pack("<8sQQ", b"RNGLOG01", first, mark - 16) + raw[40:])


def test_no_bit_of_a_head_shows_another_version_or_cuts_a_change(store, monkeypatch):
    monkeypatch.setattr("rangecast.store.change._LOOKS", 1)
    path = segment(store)
    whole = path.read_bytes()
    refused = mended = 0
    for place, damaged in flips(whole[:40]):
        path.write_bytes(damaged + whole[40:])
        with pytest.raises(rc.StorageError, match=r"damaged|truncated|not a change log"):
            rc.Store.open(store.path)
        refused += 1
        assert path.read_bytes()[40:] == whole[40:], place
    assert refused == 320
    again = rc.Store.open(store.path, wait=0) if path.write_bytes(whole) else None
    for place in range(24, 40):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with again.writing():
            pass
        assert path.read_bytes() == whole, "a mark that all records agree on is written anew"
        mended += 1
    assert mended == 16


def test_a_damaged_mark_before_a_torn_change_is_not_guessed(store, monkeypatch):
    monkeypatch.setattr("rangecast.store.change._LOOKS", 1)
    path = segment(store)
    raw = bytearray(path.read_bytes())
    raw[30] ^= 4
    path.write_bytes(raw[:-5])
    with pytest.raises(rc.StorageError, match=r"the mark is damaged, and so is what follows byte \d+"):
        store.delete([1])
    assert path.read_bytes() == raw[:-5]


def test_no_bit_of_a_mark_without_a_sum_cuts_a_change(store):
    path = segment(store)
    old_form(path)
    whole = path.read_bytes()
    (mark,) = struct.unpack("<Q", whole[16:24])
    for bit in range(64):
        path.write_bytes(whole[:16] + struct.pack("<Q", mark ^ (1 << bit)) + whole[24:])
        with pytest.raises(rc.StorageError, match=r"damaged|truncated"):
            rc.Store.open(store.path).insert(rc.Subscriptions.parse(store.schema, {9: "price > 1"}))
        assert path.read_bytes()[24:] == whole[24:]


def test_a_segment_without_sums_is_read_and_followed_by_one_with_them(store):
    old_form(segment(store))
    old = rc.Store.open(store.path)
    assert (old.version, len(old)) == (3, 3)
    old.delete([0])
    assert [p.read_bytes()[:8] for p in sorted((old.path / "log").glob("*.log"))] == [
        b"RNGLOG01",
        b"RNGLOG02",
    ]
    again = rc.Store.open(store.path)
    assert (again.version, len(again), again.verify()) == (4, 2, [])
    assert [len(again.subscriptions(v)) for v in range(5)] == [0, 1, 2, 3, 2]


def test_a_damaged_change_that_others_follow_is_not_cut(store):
    path = segment(store)
    whole = path.read_bytes()
    first = store._log._entries[0]
    behind = first.offset  # as if power was lost before the mark came to disk
    (path.with_name("copy")).write_bytes(whole)
    for place in (first.offset + 2, first.offset + 50):
        raw = bytearray(whole)
        raw[24:40] = change_log.pack_head(1, behind - 40)[24:40]
        raw[place] ^= 1
        path.write_bytes(raw)
        with pytest.raises(rc.StorageError, match=r"damaged at byte \d+, and whole changes follow"):
            rc.Store.open(store.path).delete([1])
        assert path.read_bytes() == raw


def test_no_bit_of_a_record_is_taken_for_another(store):
    path = segment(store)
    whole = path.read_bytes()
    expected = [(c.version, c.time, len(c.inserted), c.inserted.lows.tolist()) for c in store.changes(0)]
    for place, damaged in list(flips(whole))[40 * 8 :: 37]:
        path.write_bytes(damaged)
        try:
            again = rc.Store.open(store.path)
            found = [(c.version, c.time, len(c.inserted), c.inserted.lows.tolist()) for c in again.changes(0)]
        except rc.StorageError:
            continue
        # the opening record is empty but for its words, whose sum is checked; its alignment is not read
        assert found == expected, place
        assert again.schema["symbol"].vocabulary.words() == ["S0", "S1", "S2"]


def test_no_bit_of_a_document_is_relied_on(tmp_path):
    path = tmp_path / "odd.json"
    content = {"version": 12, "note": "n", "list": [1, {"a": None}]}
    write_document(path, content)
    assert read_document(path) == content
    for _, damaged in flips(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(rc.StorageError, match=r"odd.json: cannot be read"):
            read_document(path)
    for length in range(len(seal(content))):
        path.write_bytes(seal(content)[:length])
        with pytest.raises(rc.StorageError, match=r"odd.json: cannot be read"):
            read_document(path)
    assert read_document(tmp_path / "nothing") is None
    assert unseal(b'{"version": 12}\n', "here") == {"version": 12}, "of before there were sums"
    with pytest.raises(rc.StorageError, match=r"here: cannot be read: it must be a JSON object, got list"):
        unseal(b"[1]", "here")
    with pytest.raises(rc.StorageError, match=r"cannot be read: Is a directory"):
        read_document(tmp_path)


def test_no_bit_of_store_json_or_of_a_hold_is_relied_on(store):
    for _, damaged in list(flips((store.path / "store.json").read_bytes()))[::11]:
        (store.path / "store.json").write_bytes(damaged)
        with pytest.raises(rc.StorageError, match=r"store.json"):
            rc.Store.open(store.path)
    folder = store.path / "holds"
    folder.mkdir()
    write_hold(FolderHome(store.path), Hold("job", 2, "batch 7", 5))
    for _, damaged in flips((folder / "job.json").read_bytes()):
        (folder / "job.json").write_bytes(damaged)
        with pytest.raises(rc.StorageError, match=r"job.json: a hold that cannot be read .* release it"):
            read_holds(FolderHome(store.path))


@pytest.mark.parametrize("change", [{"id": None}, {"schema": {}}, {"index": "odd"}, {"options": {"odd": 1}}])
def test_a_store_json_without_a_sum_is_looked_at_too(store, change):
    settings = read_document(store.path / "store.json") | change
    settings = {key: value for key, value in settings.items() if value is not None}
    (store.path / "store.json").write_text(json.dumps(settings))
    with pytest.raises(rc.StorageError, match=r"store.json: cannot be read: "):
        rc.Store.open(store.path)


def test_no_bit_of_pins_and_commits_is_relied_on(tmp_path):
    ledgers = pytest.importorskip("rangecast.spark.stream.ledger")
    ledger = ledgers.Ledger(str(tmp_path / "ckpt"), str(tmp_path / "out"))
    ledger.output_state.mkdir(parents=True)
    write_document(ledger.output_state / "stream.json", {"stream": "x", "checkpoint": str(tmp_path / "ckpt")})
    pin = ledger.put_pin(ledgers.Pin(3, "id", 7, None, 5))
    assert ledger.pin(3) == pin
    path = ledger.pin_path(3)
    for _, damaged in list(flips(path.read_bytes()))[::3]:
        path.write_bytes(damaged)
        with pytest.raises(rc.StorageError, match=r"3.json: cannot be read"):
            ledger.pin(3)
        with pytest.raises(rc.StorageError, match=r"3.json: cannot be read"):
            pinned_batch(tmp_path / "out", 3)
    path.unlink()
    commits = [ledgers.Commit(batch, 7 + batch, seconds={"match": 0.5}) for batch in range(3)]
    for commit in commits:
        ledger.commit(commit)
    assert list(ledger.commits()) == commits
    path = ledger.output_state / "commits.jsonl"
    whole = path.read_bytes()
    for place, damaged in [*list(flips(whole))[::7], *list(flips(whole))[-8:]]:
        path.write_bytes(damaged)
        for read in (
            ledger.recent,
            lambda: list(ledger.commits()),
            stored_commits.FolderCommits(path.parent).read,
        ):
            with pytest.raises(rc.StorageError, match=r"commits.jsonl.*: cannot be read"):
                read()
        if place == len(whole) - 1:
            with pytest.raises(rc.StorageError, match=r"the end of its last line is damaged"):
                ledger.commit(commits[2])
            assert path.read_bytes() == damaged, "not taken for a torn line"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert list(ledger.commits()) == commits[: whole[:length].count(b"\n")]
    path.write_bytes(whole[:-9])
    ledger.commit(commits[2])
    assert path.read_bytes() == whole
    path.write_text('{"batch": 0, "odd": 1}\n')
    with pytest.raises(rc.StorageError, match=r"commits.jsonl: cannot be read: .*odd"):
        ledger.recent()
    ledger.pin_path(4).write_text('{"odd": 1}')
    with pytest.raises(rc.StorageError, match=r"4.json: cannot be read: .*odd"):
        ledger.pin(4)
    path.write_text(json.dumps(dataclasses.asdict(commits[0])) + "\n")
    assert ledger.recent() == commits[:1], "of before there were sums"


def test_commits_are_cut(tmp_path, monkeypatch):
    ledgers = pytest.importorskip("rangecast.spark.stream.ledger")
    monkeypatch.setattr(stored_commits, "CUT_BYTES", 2000)
    ledger = ledgers.Ledger(str(tmp_path / "ckpt"), str(tmp_path / "out"))
    ledger.output_state.mkdir(parents=True)
    for batch in range(60):
        ledger.commit(ledgers.Commit(batch, batch))
    batches = [commit.batch for commit in ledger.commits()]
    assert batches == list(range(batches[0], 60))
    assert 5 < len(batches) < 20
