"""Faults at every file operation of a store's writes, by number: after each the state is the old or the new.

Each write is run once to count its calls that reach the disk, then once for each of them and each kind of
fault, in a fresh copy of the store: the disk is full (a write is cut half-way first), the call is
interrupted, or the process ends there (all later calls fail as well, so nothing is tidied up). With the
environment variable RANGECAST_FULL every call of the long writes is taken, and not one in three.
"""

import builtins
import errno
import os
import shutil

import pytest

import rangecast as rc
from rangecast.store import HistoryLimits, change_log
from rangecast.store import store as stores

pytestmark = pytest.mark.once

SCHEMA = rc.Schema(rc.Int("price"), rc.Category("symbol"))
LATER = 500, "price = 5 and symbol = 'C'"
CALLS = ("fsync", "replace", "pwrite", "ftruncate", "unlink", "open", "link", "rename")


class KilledError(BaseException):
    """Stands for the end of a process: nothing that it would do after it happens."""


class Faults:
    """Counts calls that reach the disk, and lets one of them fail."""

    def __init__(self, monkeypatch, at=None, kind=None):
        self.n, self.at, self.kind, self.dead = 0, at, kind, False
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))
        opened = builtins.open
        monkeypatch.setattr(builtins, "open", self._wrapped(opened))
        write_pieces = change_log.write_pieces

        def write(handle, pieces, offset):
            def half():
                write_pieces(handle, [piece[: len(piece) // 2] for piece in pieces], offset)

            self._step(half)
            write_pieces(handle, pieces, offset)

        monkeypatch.setattr(change_log, "write_pieces", write)

    def _wrapped(self, call):
        def wrapped(*args, **kwargs):
            self._step()
            return call(*args, **kwargs)

        return wrapped

    def _step(self, before=None):
        if self.dead:
            raise KilledError
        self.n += 1
        if self.n - 1 != self.at:
            return
        if before is not None:
            before()
        if self.kind == "kill":
            self.dead = True
            raise KilledError
        if self.kind == "interrupt":
            raise KeyboardInterrupt
        raise OSError(errno.ENOSPC, "No space left on device")


def parse(conditions):
    return rc.Subscriptions.parse(rc.Schema.from_dict(SCHEMA.to_dict()), conditions)


def contents(store, version=None):
    subs = store.subscriptions(version)
    texts = subs.texts.to_list() if subs.texts is not None else []
    return sorted(zip([subs.ids[k] for k in range(len(subs))], texts, strict=True))


def insert(store):
    store.insert(rc.Subscriptions.parse(store.schema, {2: "symbol = 'NEW'", 9: "price = 9"}), expires=2**61)


def delete(store):
    store.delete([1, 77])


def snapshot(store):
    store.snapshot()


def hold(store):
    store.hold("job", 2)


def compact(store):
    store.compact()


def checkpoint(store):
    """A write that begins a segment, publishes and forgets first."""
    store.keep_history(HistoryLimits(versions=1, seconds=0))
    insert(store)


KINDS = ["full", "interrupt", "kill"]
CHANGES = [insert, delete, snapshot, hold, compact, checkpoint]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with three versions and something torn after them."""
    path = tmp_path_factory.mktemp("faults") / "store"
    store = rc.Store.open(path, rc.Schema.from_dict(SCHEMA.to_dict()), index="scan")
    store.insert(rc.Subscriptions.parse(store.schema, {1: "price > 5 and symbol = 'A'", 2: "price < 7"}))
    store.snapshot()
    store.insert(rc.Subscriptions.parse(store.schema, {3: "symbol in ('A', 'B')"}), expires=2**62)
    store.delete([2])
    with builtins.open(next((path / "log").glob("*.log")), "ab") as file:
        file.write(b"RCRD torn")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change", [insert, delete, snapshot, hold, compact, checkpoint], ids=lambda f: f.__name__
)
def test_a_fault_leaves_the_old_state_or_the_new(made, tmp_path, monkeypatch, change, kind):
    monkeypatch.setattr(stores, "CHECKPOINT", 3 if change is checkpoint else 1000)
    monkeypatch.setattr("rangecast.store.versions._MANY", 2)

    def copied(name):
        shutil.copytree(made, tmp_path / name)
        return rc.Store.open(tmp_path / name, wait=0.05)

    store = copied("old")
    old = store.version, contents(store)
    store = copied("new")
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        change(store)
    new = store.version, contents(store)
    assert faults.n >= 4
    seen = {"old": 0, "new": 0}
    # of a long write every third call, unless all are asked for
    step = 3 if faults.n > 20 and not os.environ.get("RANGECAST_FULL") else 1
    for at in range(KINDS.index(kind) % step, faults.n, step):
        store = copied(f"{at}")
        error = None
        with monkeypatch.context() as patch:
            Faults(patch, at, kind)
            try:
                change(store)
            except (rc.StorageError, KeyboardInterrupt, KilledError) as caught:
                error = caught
            # anything else, such as a bare OSError, is a fault of ours
        if kind == "full" and error is not None:
            assert str(tmp_path / f"{at}") in str(error), "a path says where"
        fresh = rc.Store.open(store.path, wait=0.05)
        found = fresh.version, contents(fresh)
        assert found in (old, new), at
        assert found == new or error is not None, f"acknowledged and lost at {at}"
        assert not [p for p in fresh.verify() if "hold" not in p], at
        users = [fresh] if kind == "kill" else [store, fresh]
        for user in users:
            # the next write finds everything in order, also in the process that saw the fault
            with user.writing():
                user.insert(rc.Subscriptions.parse(user.schema, dict([LATER])))
            assert LATER in contents(user)
        assert contents(rc.Store.open(store.path)) == contents(fresh)
        # what was under way may turn out to be done, but nothing else
        rest = [row for row in contents(fresh) if row != LATER]
        assert rest in (old[1], new[1]), at
        seen["new" if rest == new[1] else "old"] += 1
        shutil.rmtree(store.path)
    print(f"{change.__name__}, {kind}: {faults.n} calls, {seen}")
