"""The interval skip list: its invariants after every kind of change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.papers.vci import kernels
from rangecast.types.attributes import LAST, MISSING
from strategies import events, int_schema, random_events, random_subscriptions, subscriptions


def check(index):
    """Keys ascend at every level; marked edges tile each interval, each as high as it can be."""
    a, catalog = index._skip, index._catalog
    keys, edges, targets = a.keys, a.edges, a.targets
    ends = {}
    for level in range(kernels.LEVELS):
        x, seen = 0, []
        while x >= 0:
            assert a.heights[x] > level
            seen.append(int(keys[x]))
            ends[int(edges[x]) + level] = (x, level, int(targets[edges[x] + level]))
            x = int(targets[edges[x] + level])
        assert seen == sorted(set(seen))
        if level == 0:
            nodes = seen
    boxes = np.flatnonzero(catalog.alive[catalog.box_slots[: catalog.n_boxes]])
    lows, highs = catalog.lows[index._on, boxes].tolist(), catalog.highs[index._on, boxes].tolist()
    wanted = {MISSING} | set(lows) | {v + 1 for v in highs if v != LAST}
    assert set(nodes) == wanted
    on_edges = {}
    for edge in ends:
        m = int(a.edge_heads[edge])
        while m >= 0:
            assert int(a.marks[m, 1]) == edge
            on_edges.setdefault(int(a.marks[m, 0]), []).append(edge)
            m = int(a.marks[m, 3])
    assert sorted(on_edges) == boxes.tolist()
    infinity = LAST + 1
    for box, low, high in zip(boxes.tolist(), lows, highs, strict=True):
        spans = []
        for edge in on_edges[box]:
            x, level, y = ends[edge]
            spans.append((int(keys[x]), infinity if y < 0 else int(keys[y])))
            if level + 1 < a.heights[x]:
                above = int(targets[edges[x] + level + 1])
                assert (infinity if above < 0 else int(keys[above])) > high + 1
        spans.sort()
        assert spans[0][0] == low
        assert spans[-1][1] == high + 1
        assert all(b == c for (_, b), (c, _) in itertools.pairwise(spans))
    markers = sum(len(e) for e in on_edges.values())
    assert index.stats()["markers"] == markers


@given(data=st.data())
def test_invariants_hold_after_any_history(data):
    schema = int_schema(1)
    index = rc.open_index("islist", schema)
    held = {}
    for _ in range(data.draw(st.integers(1, 4))):
        subs = data.draw(subscriptions(schema, max_size=8, first_id=data.draw(st.integers(0, 4))))
        index.insert(subs)
        held.update({subs.ids[i]: subs.select([i]) for i in range(len(subs))})
        gone = data.draw(st.lists(st.integers(0, 12), max_size=4, unique=True))
        index.delete(gone)
        for i in gone:
            held.pop(i, None)
        if index._on >= 0:
            check(index)
    batch = data.draw(events(schema))
    want = [set() for _ in range(len(batch))]
    for one in held.values():
        want = [row | found for row, found in zip(want, match_boxes(one, batch), strict=True)]
    assert rows_of(index.match(batch)) == [sorted(row) for row in want]


def test_single_inserts_and_deletes_equal_a_bulk_load(size):
    schema = rc.Schema(rc.Int("a"))
    n = max(size(150), 40)
    subs = random_subscriptions(schema, n, seed=1, span=300, width=60)
    batch = random_events(schema, 60, seed=2, span=300)
    bulk, single = rc.open_index("islist", schema), rc.open_index("islist", schema)
    bulk.insert(subs)
    for i in range(n):
        single.insert(subs.select([i]))
    check(bulk)
    check(single)
    assert bulk.match(batch) == single.match(batch)
    for i in subs.ids.values[::2].tolist():
        single.delete([i])
    check(single)
    left = subs.select(np.arange(1, n, 2))
    assert rows_of(single.match(batch)) == [sorted(row) for row in match_boxes(left, batch)]


def test_nodes_edges_and_markers_are_used_again():
    schema = rc.Schema(rc.Int("a"))
    index = rc.open_index("islist", schema)
    subs = random_subscriptions(schema, 50, seed=3, span=200, bounded=1.0)
    index.insert(subs)
    nodes = index.stats()["nodes"]
    for _ in range(6):
        index.delete(subs.ids.values)
        assert index.stats()["markers"] == 0
        index.insert(subs)
        check(index)
    assert index.stats()["nodes"] == nodes


def test_markers_grow_with_the_logarithm(leg):
    if leg != "compiled":
        pytest.skip("needs thousands of nodes")
    schema = rc.Schema(rc.Int("a"))
    per_box = []
    for n in (1_000, 16_000):
        rng = np.random.default_rng(4)
        lows = rng.integers(0, 10**6, n)
        subs = rc.Subscriptions(schema, np.arange(n), lows[None], (lows + rng.integers(0, 10**5, n))[None])
        index = rc.open_index("islist", schema)
        index.insert(subs)
        per_box.append(index.stats()["markers"] / n)
    # four doublings add about two edges each: far from the sixteenfold of a list of cells
    assert per_box[1] < 2.5 * per_box[0]


def test_count_lists_counts_marked_edges_on_the_way():
    schema = rc.Schema(rc.Int("a"))
    index = rc.open_index("islist", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "a between 3 and 5", 2: "a between 3 and 5"}))
    assert [index.count_lists(np.array([[v]], np.int64)) for v in (2, 3, 5, 6)] == [0, 1, 1, 0]


def test_options_are_checked():
    with pytest.raises(rc.OptionError, match="unexpected keyword argument 'L'"):
        rc.open_index("islist", int_schema(1), L=4)
