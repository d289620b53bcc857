"""A loss of power at every call that reaches the disk: what was acknowledged is there afterwards.

page_cache.py says what a crash leaves. Whatever that is, the next writer must find the last acknowledged
state, or that of the write that was under way, and go on from there.
"""

import os
import random
import shutil

import pytest

import rangecast as rc
from faults.page_cache import PageCache, lay_out
from rangecast.store import HistoryLimits
from rangecast.store import store as stores

pytestmark = pytest.mark.once

SCHEMA = rc.Schema(rc.Int("price"), rc.Category("symbol"))
DRAWS = 12 if os.environ.get("RANGECAST_FULL") else 1


def contents(store):
    subs = store.subscriptions()
    texts = subs.texts.to_list() if subs.texts is not None else []
    return store.version, sorted(zip([subs.ids[k] for k in range(len(subs))], texts, strict=True))


def parse(store, conditions):
    return rc.Subscriptions.parse(store.schema, conditions)


def many(store):
    # more than a sector, so that it can be torn
    store.insert(parse(store, {k: f"price = {k} and symbol = 'S{k}'" for k in range(100, 160)}))


WRITES = [
    lambda store: store.insert(parse(store, {1: "price > 5", 2: "symbol = 'A'"})),
    many,
    lambda store: store.delete([1, *range(100, 130)]),
    lambda store: store.snapshot(),
    lambda store: store.hold("job"),
    lambda store: store.insert(parse(store, {2: "symbol = 'B'", 3: "price < 3"}), expires=2**61),
    lambda store: store.release("job"),
    lambda store: store.compact(),
    lambda store: store.keep_history(HistoryLimits(versions=2, seconds=0)),
    many,
    lambda store: store.delete([2]),
]


def test_what_was_acknowledged_outlives_a_loss_of_power(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "CHECKPOINT", 4)
    monkeypatch.setattr("rangecast.store.versions._MANY", 2)
    path = tmp_path / "store"
    store = rc.Store.open(path, rc.Schema.from_dict(SCHEMA.to_dict()), index="scan")
    states = [contents(store)]
    rng = random.Random(18)
    crashes = []
    with monkeypatch.context() as patch:
        disk = PageCache(
            path,
            patch,
            lambda disk: crashes.extend((len(states) - 1, disk.crash(rng)) for _ in range(DRAWS)),
        )
        for write in WRITES:
            write(store)
            states.append(contents(store))
        disk.close()
    assert len(crashes) > 60
    seen = {"old": 0, "new": 0}
    for number, (k, image) in enumerate(crashes):
        folder = tmp_path / f"{number}"
        lay_out(image, folder)
        found = rc.Store.open(folder, wait=0.05)
        # the mark has no sync of its own: a reader may see the version before until a writer comes
        assert contents(found) in states[: k + 2], (number, k)
        assert found.version >= states[k][0] - 1, (number, k)
        with found.writing():
            pass
        assert contents(found) in states[k : k + 2], (number, k)
        assert not [problem for problem in found.verify() if "hold" not in problem], (number, k)
        seen["old" if contents(found) == states[k] else "new"] += 1
        found.insert(parse(found, {500: "price = 5"}))
        assert (500, "price = 5") in contents(rc.Store.open(folder))[1]
        shutil.rmtree(folder)
    print(f"{len(crashes)} crashes: {seen}")


def test_the_model_loses_what_was_not_synced(tmp_path, monkeypatch):
    """Without syncs files are torn: the model would see a store that leaves them out."""
    path = tmp_path / "folder"
    path.mkdir()
    rng = random.Random(1)
    with monkeypatch.context() as patch:
        disk = PageCache(path, patch, lambda disk: None)
        with open(path / "file.tmp", "wb") as file:
            file.write(b"x" * 4096)
        os.replace(path / "file.tmp", path / "file")
        images = [disk.crash(rng) for _ in range(200)]
        assert {frozenset(image) for image in images} == {
            frozenset({""}),
            frozenset({"", "file.tmp"}),
            frozenset({"", "file"}),
        }
        assert any(image.get("file", b"") not in (b"", b"x" * 4096) for image in images)
        with open(path / "file", "r+b") as file:
            os.fsync(file.fileno())
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        assert all(disk.crash(rng) == {"": None, "file": b"x" * 4096} for _ in range(50))
        disk.close()
