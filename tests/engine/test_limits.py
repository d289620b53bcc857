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
from rangecast.engine.layouts.sorted_lists import build_nested
from rangecast.engine.layouts.sorted_lists_kernels import CLOSED
from rangecast.errors import CapacityError
from rangecast.papers.vcr import structures as vcr_runs
from strategies import int_schema, random_subscriptions

FIELDS = {
    "15 bits": 2**15 - 1,
    "cells": 32_000,
    "16 bits": 2**16,
    "20 bits": 2**20 - 1,
    "31 bits": 2**31 - 1,
    "32 bits": 2**32 - 1,
}


def check(index, subs, events):
    index.insert(subs)
    assert rows_of(index.match(events)) == [sorted(row) for row in match_boxes(subs, events)]


@pytest.mark.parametrize(
    ("kind", "d"),
    [
        ("counting", 255),
        ("counting", 256),
        ("counting", 65_536),
        ("opindex", 256),
        ("rein", 256),
        ("rtree", 256),
    ],
)
def test_as_many_predicates_as_attributes(kind, d, leg, monkeypatch):
    """They count to the number of attributes, whatever that takes."""
    if d > 300 and leg == "nojit":
        pytest.skip("too slow without compiled kernels")
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
    subs = rc.Subscriptions(schema, np.array([7]), np.zeros((d, 1), np.int64), np.full((d, 1), 5))
    codes = np.full((d, 3), 5)
    codes[d - 1, 1] = 6
    codes[:, 2] = 9
    index = rc.open_index(kind, schema)
    index.insert(subs)
    assert rows_of(index.match(rc.Events(schema, codes))) == [[7], [], []]


@pytest.mark.parametrize("kind", ["auto", "bitmap", "cells", "ubtree", "vcr"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
@pytest.mark.parametrize("single", [True, False], ids=["single values", "ranges"])
def test_values_at_the_limit_of_a_field(kind, field, beyond, single, leg, monkeypatch):
    """Spans of values that just fit, or just do not, into the fields of packed bounds and into cells."""
    if leg == "nojit" and (beyond != 1 or kind != "auto"):
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
    ("kind", "option", "most", "beyond"),
    [
        ("hint", "m", 20, 21),
        ("cei", "L", 2**20, 2**21),
        ("cei", "cells", 2**24, 2**24 + 1),
        ("rein", "buckets", 2**20, 2**20 + 1),
        ("direct", "cells", 2**24, 2**24 + 1),
        ("vci", "cells", 2**24, 2**24 + 1),
        ("vci", "L", 2**20, 2**21),
        ("vcr", "cells", 2**15, 2**15 + 1),
        ("ubtree", "leaf", 2**20, 2**20 + 1),
        ("ubtree", "fanout", 2**16, 2**16 + 1),
    ],
)
def test_options_that_would_exceed_a_number(kind, option, most, beyond):
    rc.open_index(kind, int_schema(2), **{option: most})
    with pytest.raises(rc.OptionError, match=f", got {beyond}"):
        rc.open_index(kind, int_schema(2), **{option: beyond})


def test_distances_of_32_bits_and_one_more(leg, monkeypatch):
    """`auto`'s windows keep ends as distances of 32 bits from the lowest, or of 64."""
    if leg == "nojit":
        pytest.skip("too slow without compiled kernels")
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(rc.Int("a"))
    rng = np.random.default_rng(3)
    for last in (2**32 - 3, 2**32 - 2, 2**32 - 1):
        lows = rng.integers(0, last - 10, (1, 300))
        lows[0, :2], highs = 0, lows + 9
        lows[0, 2:4], highs[0, 2:4] = last, last
        subs = rc.Subscriptions(schema, np.arange(300), lows, highs)
        index = rc.open_index("auto", schema)
        check(index, subs, rc.Events(schema, np.append(lows[0, :40], [-1, last - 1, last + 1, 9, 10])[None]))
        widths = {a.dtype for a in arrays_named(index, "windows.lows")}
        assert widths == {np.dtype(np.uint32 if last < 2**32 - 1 else np.uint64)}, last


def arrays_named(index, end):
    return [array for name, array in index._dump()[1].items() if name.endswith(end)]


def test_entries_beyond_32_bits_have_places_of_64(monkeypatch):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    schema = rc.Schema(rc.Int("a", 0, 99))
    subs = random_subscriptions(schema, 200, seed=4)
    events = rc.Events(schema, np.arange(-1, 100)[None])
    index = rc.open_index("vci", schema)
    check(index, subs, events)
    (starts,) = arrays_named(index, "runs.starts")
    n_entries = int(starts[-1, -1])
    for most, dtype in ((n_entries, np.int32), (n_entries - 1, np.int64)):
        monkeypatch.setattr("rangecast.engine.layouts.runs.MOST_NARROW", most)
        index = rc.open_index("vci", schema)
        check(index, subs, events)
        (starts,) = arrays_named(index, "runs.starts")
        assert starts.dtype == dtype


def test_more_rows_than_32_bits_number(monkeypatch):
    monkeypatch.setattr("rangecast.memory.MOST_ROWS", 10)
    schema = int_schema(1)
    codes = np.zeros((1, 11), np.int64)
    conditions = {i: f"a0 = {i}" for i in range(11)}
    few = {i: conditions[i] for i in range(10)}
    assert len(rc.Events(schema, codes[:, :10])) == 10
    assert len(rc.Subscriptions(schema, np.arange(10), codes[:, :10], codes[:, :10])) == 10
    assert len(rc.Subscriptions.parse(schema, few)) == 10
    assert len(rc.Matches.from_ids([0, 10], np.arange(10)).ids) == 10
    with pytest.raises(CapacityError, match="the events of a batch can be 10 at most, got 11; cut them"):
        rc.Events(schema, codes)
    with pytest.raises(CapacityError, match="subscriptions and their boxes can be 10 at most, got 11"):
        rc.Subscriptions(schema, np.arange(11), codes, codes)
    with pytest.raises(CapacityError, match="subscriptions and their boxes can be 10 at most, got 11"):
        rc.Subscriptions.parse(schema, conditions)
    with pytest.raises(CapacityError, match="ids that are given can be 10 at most, got 11"):
        rc.Matches.from_ids([0, 11], np.arange(11))


def test_texts_longer_than_their_lengths_can_say(monkeypatch):
    schema = int_schema(1)
    texts = {1: "a0 = 1", 2: "a0 = 2 or a0 = 5"}
    monkeypatch.setattr("rangecast.model.texts.MOST_BYTES", 22)
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    assert index.subscriptions().texts.pack() is not None
    monkeypatch.setattr("rangecast.model.texts.MOST_BYTES", 21)
    with pytest.raises(
        CapacityError, match="texts of 2 subscriptions can have 21 bytes, got 22; write shorter"
    ):
        rc.Subscriptions.parse(schema, texts).texts.pack()


@pytest.mark.parametrize(
    ("kind", "options", "what", "schema"),
    [
        ("cells", {}, "the entries of 'cells'", int_schema(1)),
        ("cells", {}, "the words of 'cells'", int_schema(2)),
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


def test_more_ends_of_sorted_lists_than_32_bits_number(monkeypatch):
    lows = np.stack([np.repeat(np.arange(3), 100), np.tile(np.arange(100), 3) * 10])
    highs = lows + np.array([[0], [4]])
    numbers = np.arange(300)
    schema = int_schema(2)
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions(schema, numbers, lows, highs))
    boxes = index._catalog.boxes
    monkeypatch.setattr("rangecast.memory.MOST_NUMBERED", 600)
    build_nested(boxes, numbers, 0, 1, CLOSED, [])
    monkeypatch.setattr("rangecast.memory.MOST_NUMBERED", 599)
    with pytest.raises(CapacityError, match="the ends of sorted lists can be 599 at most, but would be 600"):
        build_nested(boxes, numbers, 0, 1, CLOSED, [])


def test_more_words_of_bounds_than_32_bits_number(monkeypatch):
    schema = int_schema(2)
    subs = random_subscriptions(schema, 100, seed=2)
    asked = []
    with monkeypatch.context() as patch:
        patch.setattr("rangecast.engine.boxes.MOST_WORDS", Noted(asked))
        rc.open_index("scan", schema).insert(subs)
    monkeypatch.setattr("rangecast.engine.boxes.MOST_WORDS", max(asked))
    rc.open_index("scan", schema).insert(subs)
    monkeypatch.setattr("rangecast.engine.boxes.MOST_WORDS", max(asked) - 1)
    index = rc.open_index("scan", schema)
    message = f"bounds of an index take at most {max(asked) - 1:,} words of 32 bits, got {max(asked):,}"
    with pytest.raises(CapacityError, match=message):
        index.insert(subs)
    assert len(index) == 0
    index.insert(subs.select(np.arange(5)))
    assert len(index) == 5


def test_more_attributes_than_an_entry_numbers(monkeypatch):
    monkeypatch.setattr("rangecast.engine.boxes_kernels.MOST_ATTRIBUTES", 2)
    rc.open_index("scan", int_schema(2))
    with pytest.raises(CapacityError, match="a schema must have at most 2 attributes here"):
        rc.open_index("scan", int_schema(3))


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
