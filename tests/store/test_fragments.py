"""Changes in fragments: one version that no process holds as a whole, with the promises of any other."""

import numpy as np
import pytest

import rangecast as rc
from rangecast.errors import StorageError, SubscriptionError
from rangecast.model.ids import Ids
from rangecast.store.change_log import FRAGMENTS
from rangecast.store.follower import Follower
from rangecast.store.home import home_of
from rangecast.store.versions import drop_fragments, new_stem, put_fragment

pytestmark = pytest.mark.once


@pytest.fixture
def store(home):
    return rc.Store.open(home / "store", rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")


def parse(store, conditions, **more):
    return rc.Subscriptions.parse(store.schema, ids=list(conditions), texts=list(conditions.values()), **more)


def put(store, *changes):
    home = home_of(store.path)
    home_of(store.path / FRAGMENTS).prepare()
    stem = new_stem()
    return [put_fragment(home, stem, "scan", Ids.of(gone), coming) for gone, coming in changes]


def matched(index, **event):
    return sorted(index.match(rc.Events.from_rows(index.schema, [event])).row(0).tolist())


def test_parts_are_one_version(store):
    store.insert(parse(store, {1: "price < 5", 2: "price < 6", 3: "symbol = 'A'"}))
    store.learn({"symbol": ["B"]})
    follower = Follower(store.path)
    follower.at(2)
    fragments = put(
        store,
        ([1], parse(store, {2: "price < 1", 4: "symbol = 'B'"})),
        ([], parse(store, {5: "price < 9"})),
        ([3], rc.Subscriptions.empty(store.schema)),
    )
    assert store.version == 2
    assert store.apply_fragments(fragments, note={"load": 7}) == 3
    assert store.notes == {"load": 7}
    assert [change.version for change in store.changes(2)] == [3, 3, 3]
    assert store.changed(2) == 5
    expected = {"price": 0}, [2, 5]
    for reader in (store, rc.Store.open(store.path)):
        assert matched(reader.index(), **expected[0]) == expected[1]
        assert len(reader) == 3
    assert matched(follower.at(3), symbol="B", price=8) == [4, 5]
    assert matched(store.index(2), price=0) == [1, 2]
    assert store.verify() == []
    # later changes are as after any other
    store.delete([5])
    assert matched(rc.load_index(store.snapshot()), price=0) == [2]


def test_no_parts_make_no_version_and_wrong_ids_are_refused(store):
    assert store.apply_fragments([]) == 0
    store.insert(parse(store, {1: "price < 5"}))
    [words] = put(store, ([], parse(store, {"a": "price < 5"})))
    with pytest.raises(SubscriptionError, match="all whole numbers or all strings"):
        store.apply_fragments([words])
    with pytest.raises(StorageError, match="a worker wrote this file, and the driver does not see it"):
        store.apply_fragments([words._replace(name="gone.arrays")])
    assert store.version == 1


def test_ends_come_along(store):
    subs = parse(store, {1: "price < 5", 2: "price < 6"}, expires=[1_000, None])
    store.apply_fragments(put(store, ([], subs), ([], parse(store, {3: "price < 7"}))))
    assert store.expires_at([1, 2, 3]).tolist() == [1_000, 0, 0]
    assert store.expire(2_000) == 2
    assert matched(store.index(), price=0) == [2, 3]


def test_compacting_takes_parts_along_and_what_a_killed_load_left(store, monkeypatch):
    for k in range(3):
        store.apply_fragments(put(store, ([], parse(store, {k: "price < 5", k + 10: "price < 6"}))))
    [left] = put(store, ([], parse(store, {99: "price < 5"})))
    home = home_of(store.path)
    assert len(home.names(FRAGMENTS)) == 4
    store.compact(2)
    again = rc.Store.open(store.path)
    assert matched(again.index(), price=0) == [0, 1, 2, 10, 11, 12]
    assert again.verify() == []
    store.compact()
    assert home.names(FRAGMENTS) == [left.name]
    # a load that runs may still put its fragments; after a day it is none that runs
    monkeypatch.setattr("rangecast.store.versions.instant", lambda: int(left.stem[:20]) + 86_400_000_001)
    store.insert(parse(store, {50: "price < 5"}))
    store.compact()
    assert home.names(FRAGMENTS) == []
    assert matched(rc.Store.open(store.path).index(), price=0) == [0, 1, 2, 10, 11, 12, 50]


def test_parts_outlive_checkpoints(store):
    store.apply_fragments(put(store, ([], parse(store, {1: "price < 5"}))))
    store._checkpoint()
    store.insert(parse(store, {2: "price < 5"}))
    again = rc.Store.open(store.path)
    assert matched(again.index(), price=0) == [1, 2]
    again.compact()
    assert home_of(store.path).names(FRAGMENTS) == []


@pytest.mark.parametrize("home", ["folder"], indirect=True)
def test_a_damaged_part_is_named(store):
    [fragment] = (
        store.apply_fragments(fragments := put(store, ([], parse(store, {1: "price < 5"})))) and fragments
    )
    file = store.path / FRAGMENTS / fragment.name
    raw = bytearray(file.read_bytes())
    raw[40] ^= 1
    file.write_bytes(bytes(raw))
    with pytest.raises(StorageError, match="is damaged"):
        rc.Store.open(store.path).index()
    assert any(fragment.name in problem for problem in store.verify())
    file.unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        rc.Store.open(store.path).index()


def test_strays_of_a_load(store):
    fragments = put(store, *(([], parse(store, {k: "price < 5"})) for k in range(3)))
    drop_fragments(home_of(store.path), fragments[0].stem, {fragments[1].name})
    assert home_of(store.path).names(FRAGMENTS) == [fragments[1].name]


def test_pieces(store):
    store.insert(parse(store, {1: "price < 5"}))
    store.apply_fragments(
        put(store, ([1], parse(store, {2: "price < 5"})), ([], parse(store, {3: "price < 5"})))
    )
    pieces = store.pieces(0, 2)
    assert [(piece.version, piece.named) for piece in pieces] == [(1, 1), (2, 2), (2, 1)]
    changes = list(store.read_pieces(pieces[::-1]))
    assert [change.inserted.ids.values.tolist() for change in changes] == [[3], [2], [1]]
    assert np.array_equal(changes[1].deleted.values, [1])
