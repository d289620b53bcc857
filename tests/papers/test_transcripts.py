"""The papers' printed algorithms, as transcripts, do what the kernels do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.papers.covering import theory
from rangecast.papers.covering import transcript as covering
from rangecast.papers.rtree import transcript as rtree
from rangecast.papers.vci import transcript as vci
from rangecast.papers.vci.structures import ClosedIntervals, ConstructIntervals
from rangecast.papers.vcr import kernels as vcr_kernels
from rangecast.papers.vcr import transcript as vcr
from rangecast.zorder.curve import ZCurve

SIDES = st.integers(1, 40)
POWERS = st.integers(0, 4)


def cut(first, length, k, overlapped):
    starts, logs = np.empty(length, np.int64), np.empty(length, np.int64)
    n = vcr_kernels.cut_along(first, length, k, overlapped, starts, logs)
    return [(int(start), 1 << int(log)) for start, log in zip(starts[:n], logs[:n], strict=True)]


@given(a=SIDES, b=SIDES, w=SIDES, h=SIDES, kx=POWERS, ky=POWERS, overlapped=st.booleans())
def test_rectangles_are_cut_as_figures_2_and_4_of_000(a, b, w, h, kx, ky, overlapped):
    decompose = vcr.overlapped_decomposition if overlapped else vcr.simple_decomposition
    printed = decompose(a, b, w, h, 1 << kx, 1 << ky)
    ours = [
        (x, y, width, height)
        for y, height in cut(b, h, ky, overlapped)
        for x, width in cut(a, w, kx, overlapped)
    ]
    assert [tuple(v) for v in printed] == ours
    for v in printed:
        i, j = v.width.bit_length() - 1, v.height.bit_length() - 1
        assert vcr.vcr_id(v, 300, 1 << kx, 1 << ky) == vcr_kernels.construct_id(
            v.left, v.bottom, i, j, 300, kx, ky
        )


@given(
    L=st.sampled_from([2, 4, 8]),
    intervals=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=8),
)
def test_intervals_are_inserted_as_figure_2_of_001(L, intervals):
    printed, ours = vci.SCI(L, 62), ClosedIntervals("sci", L, 62)
    constructs = ConstructIntervals.of("sci", L)
    for p, (x, length) in enumerate(intervals):
        printed.INSERT(p, x, x + length)
        ours.insert(p, x, x + length)
        assert sorted(c for c, ids in printed.H.items() if ids[0] == p) == constructs.decompose(x, x + length)
    assert ours.lists == printed.H
    assert [sorted(vector) for vector in printed.B] == [np.flatnonzero(row).tolist() for row in ours.bits]


def node_of(tree, node):
    """A node of the index's arrays as the transcript has it."""
    places = range(int(tree.counts[node]))
    boxes = [(tree.lows[node, :, i].tolist(), tree.highs[node, :, i].tolist()) for i in places]
    children = [int(tree.children[node, i]) for i in places]
    if tree.levels[node] == 0:
        return rtree.Node(boxes, (), children)
    return rtree.Node(boxes, tuple(node_of(tree, child) for child in children), ())


def test_workloads_are_those_of_figure_2_of_003():
    rng = np.random.default_rng(3)
    schema = rc.Schema(rc.Int("x", 0, 1_000), rc.Int("y", 0, 1_000))
    lows = rng.integers(0, 900, (400, 2))
    subs = rc.Subscriptions.from_arrays(schema, np.arange(400), lows, lows + rng.integers(0, 100, (400, 2)))
    index = rc.open_index("rtree", schema, load="insert")
    index.insert(subs)
    values = rng.integers(0, 1_000, (30, 2))
    events = rc.Events.from_arrays(schema, {"x": values[:, 0], "y": values[:, 1]})
    root = node_of(index._tree, int(index._tree.header[0]))
    batch = [(point, point) for point in values.tolist()]
    assert index.height > 2
    answer = index.match(events)
    for level in range(index.height):
        table = rtree.EstimateWorkload(root, batch, level + 1)
        workloads = [len(item.nodes) for item in table]
        assert workloads == sorted(workloads)
        estimate = index.estimate(events, level)
        assert {item.event: len(item.nodes) for item in table} == dict(enumerate(estimate.workloads.tolist()))
        found = dict(rtree.BatchSearch(root, batch, level + 1))
        for event in range(len(events)):
            # boxes are numbered in the order of insertion, as these ids
            assert sorted(found[event]) == sorted(answer.row(event).tolist())
    # the paper's levels 0 and 1 both stop at the root
    assert rtree.EstimateWorkload(root, batch, 0) == rtree.EstimateWorkload(root, batch, 1)


@given(sides=st.lists(st.integers(1, 15), min_size=2, max_size=3).map(tuple))
def test_rectangles_and_cubes_are_those_of_algorithms_1_and_2_of_004(sides):
    k = 4
    for i in range(k):
        printed = list(covering.rectangles_of(sides, i))
        assert len(printed) == len(set(printed))
        assert sorted(tuple(1 << z for z in r) for r in printed) == sorted(theory.rectangles(sides, i))
    curve = ZCurve([k] * len(sides))
    keys = set()
    levels = []
    for i, c in covering.cubes_of(sides, k):
        levels.append(i)
        corner = np.array([coordinate << i for coordinate in c], np.int64)
        first = int(curve.encode(corner[:, None])[0, 0]) >> (64 - k * len(sides))
        keys |= set(range(first, first + (1 << i * len(sides))))
    assert levels == sorted(levels, reverse=True)
    assert len(levels) == theory.count_cubes(sides)
    firsts, lasts = theory.runs(list(sides), k)
    shift = 64 - k * len(sides)
    ours = {
        key
        for first, last in zip(firsts[:, 0].tolist(), lasts[:, 0].tolist(), strict=True)
        for key in range(first >> shift, (last >> shift) + 1)
    }
    assert keys == ours
