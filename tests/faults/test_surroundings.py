"""Around a store: the clock is set back, it is copied while it is written, its disk is read-only."""

import builtins
import datetime as dt
import errno
import io
import os
import shutil
import time

import pytest

import rangecast as rc
from rangecast.store import store as stores

pytestmark = pytest.mark.once


def parse(store, conditions):
    return rc.Subscriptions.parse(store.schema, conditions)


def new_store(path):
    return rc.Store.open(path, rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")


def contents(store, version=None):
    subs = store.subscriptions(version)
    texts = subs.texts.to_list() if subs.texts is not None else []
    return sorted(zip([subs.ids[k] for k in range(len(subs))], texts, strict=True))


def test_a_clock_that_is_set_back_turns_no_version_around(tmp_path, monkeypatch):
    store = new_store(tmp_path / "store")
    now = [1_800_000_000_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    for number, step in enumerate([0, 10**9, -3600 * 10**9, 1, -(10**15), 10**10]):
        now[0] += step
        store.insert(parse(store, {number: f"price > {number}"}), expires=2**62)
    times = [store.time_of(version) for version in range(1, 7)]
    assert times == sorted(times)
    # a version that was current at a time stays that of its time
    assert store.version_at(times[-1]) == 6
    assert store.version_at(times[0] - dt.timedelta(microseconds=1)) == 0
    assert store.verify() == []
    again = rc.Store.open(store.path)
    assert [again.time_of(version) for version in range(1, 7)] == times


def test_a_copy_of_a_store_that_is_written_is_an_older_version_or_refused(tmp_path, monkeypatch):
    """Each file is copied while the next change comes: a copy holds files of different moments."""
    monkeypatch.setattr(stores, "CHECKPOINT", 3)
    monkeypatch.setattr("rangecast.store.versions._MANY", 2)
    seen = {"whole": 0, "refused": 0}
    for start in range(1, 7):
        store = new_store(tmp_path / f"store{start}")
        states = [contents(store)]

        def change(store=store, states=states):
            number = store.version
            store.insert(parse(store, {number % 5: f"price = {number} and symbol = 'S{number}'"}))
            states.append(contents(store))

        for _ in range(start):
            change()
        store.snapshot()

        def copied(source, target, change=change, store=store, start=start):
            done = shutil.copy2(source, target)
            change()
            if start % 2 and store.version % 4 == 0:
                store.snapshot()
            return done

        target = tmp_path / f"copy{start}"
        try:
            shutil.copytree(store.path, target, copy_function=copied)
        except (shutil.Error, FileNotFoundError):
            # a file that went meanwhile: whoever copies sees that
            continue
        try:
            copy = rc.Store.open(target, wait=0.05)
            for version in range(copy.oldest, copy.version + 1):
                assert contents(copy, version) == states[version]
            with copy.writing():
                pass
            assert contents(copy) == states[copy.version]
            copy.insert(parse(copy, {99: "price = 99"}))
            assert (99, "price = 99") in contents(rc.Store.open(target))
            seen["whole"] += 1
        except rc.StorageError as error:
            if "must not be newer than the log" in str(error):
                for newer in [v for v in copy.snapshots() if v > copy.version]:
                    copy.snapshot_path(newer).unlink()
                copy.insert(parse(copy, {99: "price = 99"}))
                assert (99, "price = 99") in contents(rc.Store.open(target))
            seen["refused"] += 1
    assert min(seen.values()) > 0, seen


def test_readers_need_no_disk_that_can_be_written(tmp_path, monkeypatch):
    path = tmp_path / "store"
    store = new_store(path)
    store.insert(parse(store, {1: "price > 5", 2: "symbol = 'A'"}))
    store.snapshot()
    store.insert(parse(store, {3: "price < 3"}))
    store.index().save(tmp_path / "saved.index")
    events = rc.Events.from_rows(store.schema, [{"price": 7, "symbol": "A"}, {"price": 1}])
    expected = [store.index().match(events).sort().row(k).tolist() for k in range(2)]

    def refuse(name):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(name))

    opened, os_opened = builtins.open, os.open

    def checked_open(name, mode="r", *args, **kwargs):
        if str(name).startswith(str(tmp_path)) and set(mode) & set("wax+"):
            refuse(name)
        return opened(name, mode, *args, **kwargs)

    def checked_os_open(name, flags, *args, **kwargs):
        if str(name).startswith(str(tmp_path)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse(name)
        return os_opened(name, flags, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", checked_open)
    monkeypatch.setattr(io, "open", checked_open)
    monkeypatch.setattr(os, "open", checked_os_open)
    for name in ("replace", "rename", "unlink", "mkdir", "link"):
        monkeypatch.setattr(os, name, lambda path, *_, **__: refuse(path))

    reader = rc.Store.open(path)
    assert (reader.version, len(reader)) == (2, 3)
    index = reader.index()
    assert [index.match(events).sort().row(k).tolist() for k in range(2)] == expected
    assert contents(reader, 1) == [(1, "price > 5"), (2, "symbol = 'A'")]
    assert reader.verify() == []
    assert len(rc.load_index(tmp_path / "saved.index")) == 3
    followed = rc.Follower(path).at(2)
    assert [followed.match(events).sort().row(k).tolist() for k in range(2)] == expected
    with pytest.raises(rc.StorageError, match=r"store.*Read-only file system"):
        reader.insert(parse(reader, {4: "price = 4"}))
    with pytest.raises(rc.StorageError, match=r"other.*Read-only file system"):
        index.save(tmp_path / "other.index")
