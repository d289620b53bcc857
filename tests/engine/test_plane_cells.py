"""Cells on two attributes: bounds in bytes, eight entries at a time, ids written at once, steps in doubt."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.durable.arrays import write_arrays
from rangecast.engine.answers import IdRows, Request
from rangecast.engine.layouts import cells
from rangecast.engine.layouts.cells import CellsPart
from rangecast.errors import StorageError
from rangecast.simd.compiler import kernel
from rangecast.simd.lanes import EIGHT, hold_entries_one_by_one, move_entries, move_one_by_one, which_hold
from rangecast.types.attributes import LAST, MISSING, PRESENT

# one fine cell per code, so that bounds tell all; steps of several fine cells; fine cells of several codes
DOMAINS = {"told": 900, "steps": 20_000, "codes": 10**7}


@kernel
def _which(words, first, point):
    return which_hold(words, first, point)


@kernel
def _move(words, first, held, add, out, to):
    return move_entries(words, first, held, add, out, to)


@pytest.fixture(autouse=True)
def no_tail(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)


def rectangles(kind, n, seed, wide=40):
    """Of mixed sizes, some over everything, on one side or at the ends of what there is."""
    rng = np.random.default_rng(seed)
    domain = DOMAINS[kind]
    lows = rng.integers(0, domain, (2, n))
    highs = np.minimum(lows + (domain / wide * rng.random((2, n)) ** 3).astype(np.int64), domain)
    for ends, beyond in ((lows, (MISSING, PRESENT)), (highs, (LAST, LAST))):
        odd = rng.random((2, n)) < 0.03
        ends[odd] = rng.choice(beyond, int(odd.sum()))
    return lows, highs


def batch(schema, lows, highs, m, seed):
    """Values on ends of boxes, beside them and anywhere, some of them missing."""
    rng = np.random.default_rng(seed)
    codes = np.where(rng.random((2, m)) < 0.5, lows[:, rng.integers(0, lows.shape[1], m)], 0)
    ends = highs[:, rng.integers(0, lows.shape[1], m)]
    codes = np.where(rng.random((2, m)) < 0.5, codes, np.minimum(ends, LAST - 1) + rng.integers(0, 2, (2, m)))
    codes[rng.random((2, m)) < 0.05] = MISSING
    return rc.Events(schema, codes)


def compare(index, events):
    """The index beside the oracle, with one thread and with two, as ids and as slots, alone and together."""
    want = [sorted(row) for row in match_boxes(index.subscriptions(), events)]
    found = index.match(events)
    assert rows_of(found) == want
    assert found.names.take(found.slots).tolist() == found.ids.tolist()
    assert rows_of(index.match(events, threads=2)) == want
    assert rows_of(index.match(events.select(np.arange(5)))) == want[:5]
    assert [rows_of(index.match(events.select(np.array([e]))))[0] for e in range(3)] == want[:3]
    assert sum(map(len, want)) > 0


@pytest.mark.parametrize("by_place", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", DOMAINS)
def test_a_batch_equals_the_oracle_through_changes(kind, shared, by_place, size, monkeypatch, tmp_path):
    if by_place:
        monkeypatch.setattr(cells, "SORTED", 1)
        monkeypatch.setattr(cells, "SORTED_ENTRIES", -1)
    if kind == "codes":
        monkeypatch.setattr("rangecast.engine.layouts.cells.CELLS", 100)
    # one place per event at first, so that answers outgrow their room
    monkeypatch.setattr(cells, "_PER_EVENT", 0.1)
    monkeypatch.setattr(cells, "_ROOM", 8)
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    n = max(size(700), 100)
    lows, highs = rectangles(kind, n, 1)
    owners = np.arange(n) // 2 if shared else np.arange(n)
    ids = np.arange(int(owners[-1]) + 1)
    index = rc.open_index("cells", schema, on=("a", "b"))
    index.insert(rc.Subscriptions(schema, ids, lows, highs, owners.astype(np.int32)))
    part = index._parts[0].part
    assert isinstance(part, CellsPart)
    told = not part._reader.steps.ones.any()
    assert told == (kind == "told")
    events = batch(schema, lows, highs, 100, 2)
    found = part.stab(Request(events.codes, index._state.catalog.boxes, base=0))
    assert isinstance(found, IdRows) == (not by_place and (told or not shared))
    compare(index, events)
    index.delete(ids[::7])
    compare(index, events)
    # behind a part, a tail
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 64)
    more_lows, more_highs = rectangles(kind, 40, 3)
    index.insert(rc.Subscriptions(schema, np.arange(10 * n, 10 * n + 40), more_lows, more_highs))
    compare(index, events)
    compare(pickle.loads(pickle.dumps(index)), events)
    index.save(tmp_path / "i")
    compare(rc.load_index(tmp_path / "i"), events)


def test_floats_by_their_codes(size):
    rng = np.random.default_rng(4)
    n = max(size(600), 100)
    schema = rc.Schema(rc.Float("lon"), rc.Float("lat"))
    lows = {name: rng.normal(0, 30, n) for name in schema.names}
    highs = {name: low + rng.exponential(0.7, n) for name, low in lows.items()}
    index = rc.open_index("cells", schema, on=schema.names)
    index.insert(rc.Subscriptions.from_arrays(schema, np.arange(n), lows, highs))
    picked = rng.integers(0, n, 120)
    values = {name: (highs[name] if k else lows[name])[picked] for k, name in enumerate(schema.names)}
    compare(index, rc.Events.from_arrays(schema, values))


def test_one_event_that_matches_more_than_there_is_room_for():
    schema = rc.Schema(rc.Int("a", 0, 9), rc.Int("b", 0, 9))
    n = 5_000
    index = rc.open_index("cells", schema, on=("a", "b"))
    lows = np.zeros((2, n), np.int64)
    index.insert(rc.Subscriptions(schema, np.arange(n), lows, lows + 3))
    codes = np.full((2, 80), 9)
    codes[:, 40] = 3
    assert index.match(rc.Events(schema, codes)).counts.tolist() == [0] * 40 + [n] + [0] * 39


@given(data=st.data(), wide=st.booleans())
def test_eight_at_once_equal_one_by_one(data, wide):
    few = st.sampled_from([0, 1, 7, 127, 128, 254, 255])
    four = st.tuples(few, few, few, few).map(lambda row: int.from_bytes(bytes(row), "little"))
    words = np.array(data.draw(st.lists(four, min_size=EIGHT + 3, max_size=EIGHT + 3)), np.uint32)
    point = np.uint32(data.draw(four))
    first = np.uint64(data.draw(st.integers(0, 3)))
    held = hold_entries_one_by_one(words, first, point)
    assert _which(words, first, point) == held
    entries = np.array([2**31 - 1 - k for k in range(EIGHT + 3)], np.uint32)
    kept = [int(entries[int(first) + k]) for k in range(EIGHT) if int(held) >> k & 1]
    add = np.int64(data.draw(st.sampled_from([-5, 0, 2**40]))) if wide else np.int64(0)
    for move in (_move, move_one_by_one):
        out = np.full(2 + EIGHT, -1, np.int64 if wide else np.int32)
        n = int(move(entries, first, held, add, out, np.uint64(2)))
        assert out[2 : 2 + n].tolist() == [number + int(add) for number in kept]
        assert out[:2].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("array", "change", "message"),
    [
        ("starts", lambda a: np.concatenate([a[:-1], a[-1:] + 4]), "starts of cells"),
        ("words", lambda a: a[:-1], "cells"),
        ("words", lambda a: a | np.uint32(2**31 - 2), "entries of cells"),
        ("shifts", lambda a: a[:, :1], "shifts of cells"),
        ("columns", lambda a: a * 1000, "lists of cells"),
    ],
)
def test_a_crafted_file_is_refused(array, change, message, tmp_path):
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    lows, highs = rectangles("told", 300, 5)
    index = rc.open_index("cells", schema, on=("a", "b"))
    index.insert(rc.Subscriptions(schema, np.arange(300), lows, highs))
    meta, arrays = index._dump()
    (name,) = [name for name in arrays if name.endswith(f"cells.{array}")]
    write_arrays(tmp_path / "i", meta, {**arrays, name: np.ascontiguousarray(change(arrays[name]))})
    with pytest.raises(StorageError, match=message):
        rc.load_index(tmp_path / "i")


def test_what_is_swept_has_the_room_that_batches_have_needed(monkeypatch):
    monkeypatch.setattr(cells, "_PER_EVENT", 0.1)
    monkeypatch.setattr(cells, "_ROOM", 8)
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    lows, highs = rectangles("told", 700, 1)
    index = rc.open_index("cells", schema, on=("a", "b"))
    index.insert(rc.Subscriptions(schema, np.arange(700), lows, highs))
    events = batch(schema, lows, highs, 100, 2)
    compare(index, events)
    part = index._parts[0].part
    assert part._reader.per_event > 0.1
    index.delete(np.arange(0, 700, 50))
    swept = index._parts[0].part
    assert swept is not part
    assert swept._reader.per_event == part._reader.per_event
    compare(index, events)
