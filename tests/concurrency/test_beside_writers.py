"""Readers, savers and writers of one index, each let in at the worst moment: no clock, and one thread where
one is enough."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine import REGISTRY, catalog
from rangecast.engine import index as contract
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.once

SCHEMA = int_schema(2)
EVENTS = random_events(SCHEMA, 20, seed=3)
VARIANTS = [(name, {}) for name in REGISTRY]
VARIANTS += [("vci", {"lookup": "table"}), ("vci", {"lookup": "clipped", "constructs": "sci", "L": 4})]
VARIANTS += [("vcr", {"storage": "array"}), ("vcr", {"storage": "hash", "decomposition": "od"})]
every_index = pytest.mark.parametrize(
    "variant", VARIANTS, ids=lambda v: "-".join([v[0], *map(str, v[1].values())])
)


@pytest.fixture(autouse=True)
def small_tails(monkeypatch, used_machine):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 16)


def oracle(subs):
    return [sorted(row) for row in match_boxes(subs, EVENTS)]


def filled(variant, n=80):
    index = rc.open_index(variant[0], SCHEMA, **variant[1])
    index.insert(some(n, seed=1, boxes=2))
    return index


def some(n, seed, first=0, boxes=1):
    """Random subscriptions with the ids first, first + 1, ..."""
    subs = random_subscriptions(SCHEMA, n, seed=seed, boxes=boxes)
    return rc.Subscriptions(SCHEMA, np.arange(first, first + n), subs.lows, subs.highs, subs.owners)


def write_much(index):
    """Deletes, a replacement, and enough new ones that arrays grow and lists change."""
    index.delete(np.arange(0, 30))
    index.insert(some(20, seed=7, first=60))
    index.insert(some(200, seed=8, first=500))


@every_index
def test_asking_for_an_id_changes_no_write(variant, monkeypatch):
    """The table of ids is made when an id is first asked for, which may be in the middle of a write."""
    index = filled(variant)
    plain = catalog.Catalog._append_ids
    asked, askers = [], []

    def slowly(self, *args):
        plain(self, *args)
        asker = threading.Thread(target=lambda: asked.append(5 in index))
        askers.append(asker)
        asker.start()
        # it waits for the writer, or has its answer at once
        asker.join(0.05)

    with monkeypatch.context() as patch:
        patch.setattr(catalog.Catalog, "_append_ids", slowly)
        index.compact()
    for asker in askers:
        asker.join()
    index.insert(some(20, seed=7, first=70))
    assert index.delete([0]) == []
    assert len(index) == 89
    assert asked == [True] * len(askers)
    assert askers
    assert index.subscriptions().ids.repeats().tolist() == []
    assert rows_of(index.match(EVENTS)) == oracle(index.subscriptions())


@every_index
def test_a_save_is_of_one_state(variant, tmp_path, monkeypatch):
    index = filled(variant)
    before = oracle(index.subscriptions())
    plain = contract.write_arrays

    def write_arrays(*args):
        write_much(index)
        return plain(*args)

    monkeypatch.setattr(contract, "write_arrays", write_arrays)
    index.save(tmp_path / "index")
    assert rows_of(rc.load_index(tmp_path / "index").match(EVENTS)) == before
    assert rows_of(index.match(EVENTS)) == oracle(index.subscriptions())


@every_index
def test_a_pickle_is_of_one_state(variant):
    index = filled(variant)
    before = oracle(index.subscriptions())
    revive, taken = index.__reduce__()
    write_much(index)
    assert rows_of(revive(*taken).match(EVENTS)) == before


@every_index
def test_what_readers_hold_stays_as_it_was(variant):
    """The subscriptions that were given out are those of their moment, however much is written."""
    index = filled(variant)
    index.delete([3])
    subs, rows = index.subscriptions(), oracle(index.subscriptions())
    names = index._read.catalog
    write_much(index)
    index.compact()
    assert oracle(subs) == rows
    assert (names.n_living, int(names.alive[: names.n_slots].sum())) == (79, 79)


@pytest.mark.parametrize("kind", ["auto", "bitmap", "cells", "counting", "direct", "vci", "vcr"])
def test_an_insert_that_finds_no_room_is_not_there(kind, monkeypatch):
    index = rc.open_index(kind, SCHEMA)
    index.insert(some(10, seed=1))
    monkeypatch.setattr("rangecast.memory.available_bytes", lambda: 5_000)
    rows = rows_of(index.match(EVENTS))
    with pytest.raises(rc.CapacityError, match=r"may use 4\.0 kB"):
        index.insert(some(3_000, seed=2, first=5))
    assert len(index) == 10
    assert rows_of(index.match(EVENTS)) == rows
    # and the next one that fits is taken
    index.insert(some(3, seed=2, first=100))
    assert len(index) == 13
    assert rows_of(index.match(EVENTS)) == oracle(index.subscriptions())


def test_a_match_does_not_fail_for_want_of_room(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 512)
    monkeypatch.setattr("rangecast.engine.parts.TAIL_WORK", 1)
    index = rc.open_index("auto", SCHEMA, memory_limit=2_000)
    index.insert(some(400, seed=1))
    built = []
    plain = index._build
    monkeypatch.setattr(index, "_build", lambda *args: built.append(1) or plain(*args))
    for _ in range(3):
        assert rows_of(index.match(EVENTS)) == oracle(index.subscriptions())
    assert len(built) == 1, "it is tried once per state"


def test_a_delete_needs_no_room(monkeypatch):
    index = rc.open_index("auto", SCHEMA)
    index.insert(some(400, seed=1))
    monkeypatch.setattr(index, "_build", lambda *args: (_ for _ in ()).throw(MemoryError()))
    assert index.delete(np.arange(300)) == []
    assert len(index) == 100
    assert rows_of(index.match(EVENTS)) == oracle(index.subscriptions())
