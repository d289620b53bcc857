"""The interval paper's own structures: its picture, its cuts, and what they weigh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import OptionError
from rangecast.papers.vci.structures import (
    ClosedIntervals,
    ConstructIntervals,
    count_constructs,
    match_two_phases,
    paper_bytes,
)
from rangecast.workloads import workload

R = 24
INTERVALS = st.tuples(st.integers(0, R - 2), st.integers(1, R - 1)).map(lambda p: (p[0], max(p[0] + 1, p[1])))
KINDS = st.sampled_from([("sci", 4), ("sci", 8), ("lci", 4), ("lci", 8)])


def test_figure_3a_bit_by_bit():
    index = ClosedIntervals("sci", 4, 7)
    index.insert("p", 0, 6)
    index.insert("q", 0, 2)
    assert index.bits.shape == (7, 28)
    want = {(0, 1), (1, 1), (2, 1), (0, 3), (1, 3), (2, 3), (3, 3), (4, 3), (4, 17), (5, 17), (6, 17)}
    assert {tuple(at) for at in np.argwhere(index.bits).tolist()} == want
    assert index.lists == {3: ["p"], 17: ["p"], 1: ["q"]}
    index.delete("p", 0, 6)
    assert {tuple(at) for at in np.argwhere(index.bits).tolist()} == {(0, 1), (1, 1), (2, 1)}


@given(kind=KINDS, intervals=st.lists(INTERVALS, max_size=12), gone=st.integers(0, 12))
def test_finds_what_holds_the_value(kind, intervals, gone):
    index = ClosedIntervals(*kind, R)
    for i, (x, y) in enumerate(intervals):
        index.insert(i, x, y)
    for i, (x, y) in enumerate(intervals[:gone]):
        index.delete(i, x, y)
    for value in range(R):
        want = {i for i, (x, y) in enumerate(intervals) if x <= value <= y and i >= gone}
        assert set(index.find(value)) == want


@given(
    boxes=st.lists(st.tuples(INTERVALS, st.none() | INTERVALS), max_size=10),
    event=st.tuples(st.integers(0, R - 1), st.integers(0, R - 1)),
)
def test_two_phases_match_conjunctions(boxes, event):
    indexes = {"a": ClosedIntervals("lci", 8, R), "b": ClosedIntervals("sci", 4, R)}
    for i, box in enumerate(boxes):
        for name, interval in zip("ab", box, strict=True):
            if interval is not None:
                indexes[name].insert(i, *interval)
    needed = {i: sum(interval is not None for interval in box) for i, box in enumerate(boxes)}
    found = match_two_phases(indexes, needed, dict(zip("ab", event, strict=True)))
    assert found == [
        i
        for i, box in enumerate(boxes)
        if all(p is None or p[0] <= v <= p[1] for p, v in zip(box, event, strict=True))
    ]


@given(kind=KINDS, lengths=st.lists(st.integers(1, 40), max_size=6))
def test_constructs_are_counted_as_they_are_cut(kind, lengths):
    constructs = ConstructIntervals.of(*kind)
    assert count_constructs(constructs, np.array(lengths, np.int64)) == sum(
        len(constructs.decompose(0, length)) for length in lengths
    )


def test_dlist_crosses_lci_where_the_paper_says():
    """Section 5.5: at about 32,000 predicates, R = 5,000, W = 200, L = 128."""
    drawn = workload("intervals", 40_000, 1, r=5_000, w=200)
    lows, highs = drawn.lows["value"], drawn.highs["value"]

    def apart(n):
        sizes = [paper_bytes(scheme, lows[:n], highs[:n], 5_000, 128) for scheme in ("Dlist", "LCI")]
        return sizes[0] - sizes[1]

    assert apart(30_000) < 0 < apart(35_000)


def test_errors():
    index = ClosedIntervals("lci", 4, 10)
    with pytest.raises(OptionError, match=r"a predicate must have x < y within 0 and 9, got \[3, 3\]"):
        index.insert(1, 3, 3)
    with pytest.raises(OptionError, match="no scheme of the paper is called 'LCI-X'"):
        paper_bytes("LCI-X", [1], [2], 10, 4)
