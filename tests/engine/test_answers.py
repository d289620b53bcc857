"""Answers as they are written: by one thread or several, as slots or as ids."""

import numpy as np
import pytest

import rangecast as rc
from rangecast.engine import answers
from rangecast.engine.layouts import runs

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


@pytest.mark.parametrize("named", ["counting up", "with gaps", "strings"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["auto", "vci", "cells"])
def test_answers_are_the_same_however_they_are_written(name, turned, named, size, monkeypatch):
    if turned:
        # events cell by cell, whatever their number
        monkeypatch.setattr(runs, "SORTED", 2)
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 4)
    # threads share small answers too
    monkeypatch.setattr(answers, "SHARED", 0)
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
