"""Every narrow number at its limit and one beyond: attributes, cells, fields of bits, entries, boxes, pairs.

What cannot be held is refused with a CapacityError. Where memory forbids to come near a limit, the limit is
set lower and the guard is tested.
"""

from __future__ import annotations

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine import catalog
from rangecast.errors import CapacityError
from rangecast.papers.vcr import runs as vcr_runs
from strategies import int_schema, random_subscriptions

FIELDS = {"15 bits": 2**15 - 1, "cells": 32_000, "16 bits": 2**16, "20 bits": 2**20 - 1, "31 bits": 2**31 - 1}


def check(index, subs, events):
    index.insert(subs)
    assert rows_of(index.match(events)) == [sorted(row) for row in match_boxes(subs, events)]


@pytest.mark.parametrize("d", [255, 256, 65_536])
def test_as_many_predicates_as_attributes(d, leg, monkeypatch):
    """`counting` counts to the number of attributes, whatever that takes."""
    if d > 300 and leg == "nojit":
        pytest.skip("too slow without compiled kernels")
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
    subs = rc.Subscriptions(schema, np.array([7]), np.zeros((d, 1), np.int64), np.full((d, 1), 5))
    codes = np.full((d, 3), 5)
    codes[d - 1, 1] = 6
    codes[:, 2] = 9
    index = rc.open_index("counting", schema)
    index.insert(subs)
    assert rows_of(index.match(rc.Events(schema, codes))) == [[7], [], []]


@pytest.mark.parametrize("kind", ["auto", "bitmap", "cells", "ubtree", "vcr"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
@pytest.mark.parametrize("single", [True, False], ids=["single values", "ranges"])
def test_values_at_the_limit_of_a_field(kind, field, beyond, single, leg, monkeypatch):
    """Spans of values that just fit, or just do not, into the fields of packed bounds and into cells."""
    if leg == "nojit" and (beyond not in (0, 1) or kind not in ("auto", "bitmap")):
        pytest.skip("too slow without compiled kernels")
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    last = FIELDS[field] + beyond
    # a stated domain for one of them: its cells are laid out by that
    schema = rc.Schema(rc.Int("a", 0, last), rc.Int("b"), rc.Int("c"), rc.Category("d"))
    rng = np.random.default_rng(last)
    n = 300
    edges = np.array([0, 1, 2, last // 2, last - 2, last - 1, last])
    lows = np.where(rng.random((4, n)) < 0.7, rng.choice(edges, (4, n)), rng.integers(0, last + 1, (4, n)))
    highs = lows if single else np.minimum(lows + rng.choice([0, 1, last], (4, n)), last)
    # on the others most are free, or nothing would match
    free = rng.random((4, n)) < 0.8
    free[0] = False
    lows, highs = np.where(free, np.iinfo(np.int64).min, lows), np.where(free, np.iinfo(np.int64).max, highs)
    subs = rc.Subscriptions(schema, np.arange(n), lows, highs)
    codes = rng.choice(np.append(edges, [-1, last + 1]), (4, 60))
    events = rc.Events(schema, codes)
    check(rc.open_index(kind, schema), subs, events)
    assert sum(map(len, match_boxes(subs, events))) > 60


@pytest.mark.parametrize("cells", [254, 255])
def test_as_many_cells_as_a_byte_numbers(cells, monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    rng = np.random.default_rng(1)
    lows = np.stack([np.arange(600), rng.integers(0, 600, 600)])
    subs = rc.Subscriptions(schema, np.arange(600), lows, lows + rng.integers(0, 200, (2, 600)))
    events = rc.Events(schema, rng.integers(-1, 802, (2, 40)))
    check(rc.open_index("bitmap", schema, cells=cells), subs, events)


def test_more_cells_than_a_byte_numbers():
    with pytest.raises(rc.OptionError, match="cells must be within 4 and 255, got 256"):
        rc.open_index("bitmap", int_schema(1), cells=256)
    with pytest.raises(rc.OptionError, match="cells must be within 5 and 65536, got 65537"):
        rc.open_index("ubtree", int_schema(1), cells=65_537)
    assert 1 << vcr_runs.MOST_SHIFT <= 256, "a place within a bucket is a byte"


@pytest.mark.parametrize(
    ("kind", "options", "what", "schema"),
    [
        ("cells", {}, "the entries of 'cells'", int_schema(1)),
        ("cells", {}, "the entries of 'cells'", int_schema(2)),
        ("bitmap", {}, "the bitsets of 'bitmap'", int_schema(2)),
        ("rtree", {}, "the nodes of 'rtree'", int_schema(2)),
        ("vci", {"lookup": "table"}, "the list entries of 'vci'", int_schema(1)),
        ("islist", {}, "the (edges|markers) of 'islist'", int_schema(1)),
    ],
)
def test_more_entries_than_32_bits_number(kind, options, what, schema, monkeypatch):
    """The guard, with the limit at what this index needs and at one less."""
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 16)
    subs = random_subscriptions(schema, 300, seed=2)
    asked = []
    with monkeypatch.context() as patch:
        patch.setattr("rangecast.memory.MOST_NUMBERED", Noted(asked))
        rc.open_index(kind, schema, **options).insert(subs)
    most = max(asked)
    monkeypatch.setattr("rangecast.memory.MOST_NUMBERED", most)
    index = rc.open_index(kind, schema, **options)
    index.insert(subs)
    assert len(index) == 300
    monkeypatch.setattr("rangecast.memory.MOST_NUMBERED", most - 1)
    index = rc.open_index(kind, schema, **options)
    message = rf"{what} can be {most - 1:,} at most, but would be {most:,}; .* (fewer|none)"
    with pytest.raises(CapacityError, match=message):
        index.insert(subs)
    # nothing of it is there, and what fits is taken
    assert len(index) == 0
    few = random_subscriptions(schema, 5, seed=3)
    events = rc.Events(schema, np.random.default_rng(1).integers(-3, 50, (len(schema), 20)))
    check(index, few, events)
    assert len(index) == 5


class Noted(int):
    """A limit that nothing reaches, and that takes note of what it is compared with."""

    def __new__(cls, asked):
        limit = super().__new__(cls, 2**31 - 1)
        limit.asked = asked
        return limit

    def __lt__(self, other):
        self.asked.append(other)
        return False


def test_more_rare_bounds_than_32_bits_number(monkeypatch):
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    n = 3_000
    conditions = {i: f"a = {i}" + (" and b < 5" if i % 1000 == 0 else "") for i in range(n)}
    subs = rc.Subscriptions.parse(schema, conditions)
    monkeypatch.setattr("rangecast.memory.MOST_NUMBERED", 3)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert len(index) == n
    monkeypatch.setattr("rangecast.memory.MOST_NUMBERED", 2)
    with pytest.raises(CapacityError, match="bounds of rare attributes can be 2 at most, but would be 3"):
        rc.open_index("auto", schema).insert(subs)


@pytest.mark.parametrize("counted", ["n_slots", "n_boxes"])
def test_more_subscriptions_than_slots(counted):
    schema = int_schema(1)
    held = catalog.Catalog(schema)
    setattr(held, counted, 2**31 - 2 - 4)
    held.check(random_subscriptions(schema, 4, seed=1))
    with pytest.raises(CapacityError, match=r"at most 2,147,483,646 subscriptions and boxes; split the set"):
        held.check(random_subscriptions(schema, 5, seed=1))


@pytest.mark.parametrize("kind", ["auto", "cells", "vci"])
def test_more_pairs_than_32_bits_number(kind, leg):
    """An answer counts them, and takes no room before somebody wants the ids."""
    if leg != "compiled":
        pytest.skip("too slow without compiled kernels")
    schema = rc.Schema(rc.Int("a", 0, 99))
    n, m = 50_000, 43_000
    highs = np.full((1, n), 90)
    highs[0, ::2] = 80
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions(schema, np.arange(n), np.zeros((1, n), np.int64), highs))
    found = index.match(rc.Events(schema, np.full((1, m), 85)))
    assert found.n_pairs == m * (n // 2)
    found = index.match(rc.Events(schema, np.full((1, m), 70)))
    assert found.n_pairs == m * n > 2**31
    assert int(found.offsets[-1]) == m * n
    assert (found.counts == n).all()
