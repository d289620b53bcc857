"""Answers as they are written: past the caches or not, by one thread or several, as slots or as ids."""

import itertools

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine import answers
from rangecast.engine.layouts import runs
from rangecast.model.kernels import copy_run
from rangecast.simd.compiler import kernel

SCHEMA = rc.Schema(rc.Int("key"), rc.Int("a", 0, 9_999), rc.Int("b", 0, 99))


def subscriptions(n: int, ids, seed: int) -> rc.Subscriptions:
    """A third by key, a third on one attribute, a third on two."""
    rng = np.random.default_rng(seed)
    subs = rc.Subscriptions.from_arrays(SCHEMA, ids, {}, {})
    kind = rng.integers(0, 3, n)
    keyed = kind == 0
    subs.lows[0, keyed] = subs.highs[0, keyed] = rng.integers(0, max(1, n // 8), int(keyed.sum()))
    for j, top, wide in ((1, 9_999, 500), (2, 99, 30)):
        chosen = kind >= j
        low = rng.integers(0, top, int(chosen.sum()))
        subs.lows[j, chosen], subs.highs[j, chosen] = low, np.minimum(low + wide, top)
    return subs


def batch(m: int, n: int, seed: int) -> rc.Events:
    rng = np.random.default_rng(seed)
    tops = {"key": max(1, n // 8), "a": 10_000, "b": 100}
    return rc.Events.from_arrays(SCHEMA, {name: rng.integers(0, top, m) for name, top in tops.items()})


@pytest.fixture(params=["caches", "past them", "by turns"])
def written(request, monkeypatch):
    """Every answer is written past the caches, or none, or pieces of it."""
    monkeypatch.setattr(answers, "CACHES", 1 << 60 if request.param == "caches" else -1)
    monkeypatch.setattr(answers, "_TRIED", 1 << 60)
    for stores in (answers.STORES, answers.TURNED):
        monkeypatch.setattr(stores, "past", None if request.param == "by turns" else True)
    monkeypatch.setattr(answers, "SHARED", 0)


@pytest.mark.parametrize(("cost", "chosen"), [({True: 1, False: 2}, True), ({True: 3, False: 2}, False)])
def test_the_first_large_answers_tell_how_to_write(cost, chosen, monkeypatch):
    now = 0
    monkeypatch.setattr(answers, "perf_counter", lambda: now)
    stores, out, pieces = answers.Stores(), np.empty(0, np.int64), []
    large = answers.CACHES // out.itemsize + 1

    def write(first, last, past):
        nonlocal now
        pieces.append((first, last, past))
        n = large * (last - first) // 100
        now += cost[past] * n
        return n

    stores.write(large - 1, 100, out, write)
    assert pieces == [(0, 100, False)]
    # one row has it all, so that the other pieces tell nothing
    pieces.clear()
    stores.write(large, 1, out, write)
    assert sum(last - first for first, last, _ in pieces) == 1
    assert stores.past is None
    for _ in range(3):
        assert stores.past is None
        pieces.clear()
        stores.write(large, 100, out, write)
        assert pieces == [(0, 25, True), (25, 50, False), (50, 75, True), (75, 100, False)]
    pieces.clear()
    stores.write(large, 100, out, write)
    assert pieces == [(0, 100, chosen)]


@pytest.mark.parametrize("named", ["counting up", "with gaps", "strings"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["auto", "vci", "cells"])
@pytest.mark.usefixtures("written")
def test_answers_are_the_same_however_they_are_written(name, turned, named, size, monkeypatch):
    if turned:
        # events cell by cell, whatever their number
        monkeypatch.setattr(runs, "SORTED", 2)
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 4)
    n = max(size(4_000), 160)
    ids = {
        "counting up": np.arange(100, 100 + n),
        "with gaps": np.arange(n) * 3,
        "strings": [f"s{k}" for k in range(n)],
    }[named]
    index = rc.open_index(name, SCHEMA)
    subs = subscriptions(n, ids, 1)
    index.insert(subs.select(np.arange(n - n // 40)))
    index.insert(subs.select(np.arange(n - n // 40, n)))
    events = batch(size(400), n, 2)
    scan = rc.open_index("scan", SCHEMA)
    scan.insert(subs)
    expected = [sorted(row.tolist()) for row in map(scan.match(events).row, range(len(events)))]
    for threads in (1, 2, 3) if named != "strings" else (2,):
        found = index.match(events, threads=threads)
        ends = found.offsets[1:-1]
        assert [sorted(row.tolist()) for row in np.split(found.ids, ends)] == expected
        # slots, and ids from them
        assert [
            sorted(row.tolist()) for row in map(index.match(events, threads).row, range(len(events)))
        ] == expected


@kernel
def _copy_past(source, start, n, add, out, p):
    return copy_run(source, start, n, add, True, out, p)


@pytest.mark.parametrize("target", [np.int32, np.int64])
@pytest.mark.parametrize("source", [np.int32, np.uint32, np.int64])
def test_lines_are_written_past_the_caches_wherever_they_begin(source, target):
    add = target(7 if target == np.int64 else 0)
    most = min(int(np.iinfo(source).max), int(np.iinfo(target).max) - int(add))
    held = np.concatenate([np.arange(-3 if source != np.uint32 else 0, 60), [most, most - 1]]).astype(source)
    for start, p in itertools.product((0, 1, 5), range(17)):
        for n in (0, 1, 7, 8, 15, 16, 17, 33, len(held) - start):
            out = np.full(100, -9, target)
            assert _copy_past(held, start, n, add, out, p) == p + n
            assert np.array_equal(out[p : p + n], held[start : start + n].astype(target) + add)
            assert (out[:p] == -9).all()
            assert (out[p + n :] == -9).all()
