"""The R*-tree: its invariants after every kind of change, exact node counts, the batch search, box search."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine.layouts import scan
from rangecast.engine.layouts.bitmap import BLOCK
from rangecast.papers.rtree import structures as rtree
from rangecast.papers.rtree.kernels import N_FREE, ROOT, USED
from rangecast.types.attributes import LAST, MISSING
from rangecast.workloads import workload
from strategies import events, int_schema, random_events, random_subscriptions, subscriptions

SMALL = {"node_capacity": 4, "leaf_capacity": 4}
LOADS = pytest.mark.parametrize("load", rtree.LOADS)


def opened(schema, subs=None, **options):
    index = rc.open_index("rtree", schema, **options)
    if subs is not None:
        index.insert(subs)
    return index


def walk(index):
    """Each node as (node, depth), outermost first, by plain recursion."""
    tree = index._tree

    def below(node, depth):
        yield node, depth
        if tree.levels[node]:
            for i in range(tree.counts[node]):
                yield from below(int(tree.children[node, i]), depth + 1)

    return list(below(int(tree.header[ROOT]), 0))


def box_of(index, node):
    tree, n = index._tree, index._tree.counts[node]
    return tree.lows[node, :, :n].min(axis=1), tree.highs[node, :, :n].max(axis=1)


def check_invariants(index):
    tree, catalog = index._tree, index._catalog
    (capacity, leaf_capacity), (least, leaf_least) = index._capacities, index._leasts
    nodes = walk(index)
    held = []
    for node, depth in nodes:
        level, n = int(tree.levels[node]), int(tree.counts[node])
        assert level + depth == index.height - 1
        most, fewest = (capacity, least) if level else (leaf_capacity, leaf_least)
        assert n <= most
        assert depth == 0 or n >= fewest
        assert depth > 0 or level == 0 or n >= 2
        assert depth > 0 or tree.parents[node] == -1
        for i in range(n):
            child = int(tree.children[node, i])
            entry = tree.lows[node, :, i], tree.highs[node, :, i]
            if level:
                assert tree.parents[child] == node
                assert np.array_equal(entry, box_of(index, child))
            else:
                held.append(child)
                assert tree.leaves[child] == node
                assert np.array_equal(entry, (catalog.lows[:, child], catalog.highs[:, child]))
    living = np.flatnonzero(catalog.alive[catalog.box_slots[: catalog.n_boxes]])
    assert sorted(held) == living.tolist()
    assert np.flatnonzero(tree.leaves >= 0).tolist() == living.tolist()
    assert tree.header[USED] - tree.header[N_FREE] == len(nodes) == index.stats()["nodes"]
    assert tree.header[USED] <= len(tree.counts)
    assert index._n_held == len(held)


def meets(index, node, codes):
    """Whether an event is in the box around a node."""
    if not index._tree.counts[node]:
        return False
    low, high = box_of(index, node)
    return bool(np.all((low <= codes) & (codes <= high)))


def visits_by_hand(index, codes):
    """Nodes that a search from the root looks at: the root, and every node whose box holds the event."""
    return sum(depth == 0 or meets(index, node, codes) for node, depth in walk(index))


@LOADS
@pytest.mark.parametrize("d", [1, 3])
def test_a_load_keeps_the_invariants(load, d, size):
    schema = int_schema(d)
    for n in (1, 4, 5, 21, size(2_000)):
        index = opened(schema, random_subscriptions(schema, n, seed=n), load=load)
        check_invariants(index)


@LOADS
def test_deletes_and_inserts_keep_the_invariants(load, size):
    schema = int_schema(2)
    n = size(1_500)
    subs = random_subscriptions(schema, n, seed=1)
    index = opened(schema, subs, load=load, **SMALL)
    rng = np.random.default_rng(2)
    nodes = index.stats()["nodes"]
    for _ in range(3):
        ids = rng.choice(subs.ids.values, n // 10, replace=False)
        index.delete(ids)
        check_invariants(index)
        index.insert(subs.select(np.isin(subs.ids.values, ids)))
        check_invariants(index)
    assert index._tree.header[USED] < 2 * nodes
    for piece in np.array_split(rng.permutation(subs.ids.values), 40):
        index.delete(piece)
        check_invariants(index)
    assert (index.height, index.stats()["nodes"], len(index)) == (1, 1, 0)


@given(data=st.data())
def test_any_history_keeps_the_invariants(data):
    schema = int_schema(2)
    load = data.draw(st.sampled_from(rtree.LOADS))
    index = opened(schema, load=load, **SMALL)
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            index.insert(data.draw(subscriptions(schema, max_size=12, first_id=data.draw(st.integers(0, 9)))))
        else:
            index.delete(data.draw(st.lists(st.integers(0, 20), max_size=12, unique=True)))
        check_invariants(index)


def test_all_alike_split_too(size):
    schema = int_schema(2)
    n = size(500)
    bounds = np.full((2, n), 3)
    index = opened(schema, rc.Subscriptions(schema, np.arange(n), bounds, bounds), load="insert")
    check_invariants(index)
    index.delete(np.arange(0, n, 2))
    check_invariants(index)


def test_packing_fills_nodes_evenly():
    schema = int_schema(2)
    index = opened(schema, random_subscriptions(schema, 1_000, seed=3, bounded=1.0))
    tree = index._tree
    by_level = {}
    for node, _ in walk(index):
        by_level.setdefault(int(tree.levels[node]), []).append(int(tree.counts[node]))
    # 1,000 boxes at 18 a leaf are 56 leaves, these at 9 a node are 7 nodes, and these have one root
    assert {level: len(counts) for level, counts in by_level.items()} == {0: 56, 1: 7, 2: 1}
    assert set(by_level[0]) == {17, 18}
    assert set(by_level[1]) == {8}
    stats = index.stats()
    assert (stats["height"], stats["nodes"], stats["leaves"]) == (3, 64, 56)
    assert stats["leaf_fill"] == pytest.approx(1_000 / 56 / 20, abs=0.001)


def test_packing_tiles_a_grid():
    """Points of a 12 x 12 grid at 9 a leaf: sixteen leaves, each a tile of 3 x 3."""
    schema = rc.Schema(rc.Int("x"), rc.Int("y"))
    points = np.stack(np.meshgrid(np.arange(12), np.arange(12))).reshape(2, 144)
    shuffled = points[:, np.random.default_rng(4).permutation(144)]
    index = opened(schema, rc.Subscriptions(schema, np.arange(144), shuffled, shuffled), leaf_capacity=10)
    leaves = [box_of(index, node) for node, depth in walk(index) if depth == index.height - 1]
    assert len(leaves) == 16
    assert {tuple(high - low) for low, high in leaves} == {(2, 2)}
    assert sorted(tuple(low) for low, _ in leaves) == [
        (x, y) for x in range(0, 12, 3) for y in range(0, 12, 3)
    ]


def test_later_loads_are_packed_only_when_large(monkeypatch, size):
    schema = int_schema(2)
    n = size(2_000)
    packed = []
    original = rtree.RTreeIndex._pack
    monkeypatch.setattr(
        rtree.RTreeIndex,
        "_pack",
        lambda self, numbers: (packed.append(len(numbers)), original(self, numbers)),
    )
    subs = random_subscriptions(schema, n, seed=5)
    index = opened(schema, subs)
    more = random_subscriptions(schema, n, seed=6)
    renamed = rc.Subscriptions(schema, more.ids.values + 10 * n, more.lows, more.highs)
    index.insert(renamed.select(np.arange(n // 20)))
    assert packed == [n]
    index.insert(renamed.select(np.arange(n // 20, n)))
    assert packed == [n, 2 * n]
    index.delete(subs.ids.values[: n // 20])
    assert packed == [n, 2 * n]
    index.delete(subs.ids.values)
    assert packed == [n, 2 * n, n]
    check_invariants(index)
    batch = random_events(schema, 20, seed=7)
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(renamed, batch)]


@LOADS
def test_searches_visit_the_nodes_that_hold_the_event(load, size):
    schema = int_schema(2)
    index = opened(schema, random_subscriptions(schema, size(1_000), seed=8), load=load)
    batch = random_events(schema, 12, seed=9)
    want = [visits_by_hand(index, batch.codes[:, e]) for e in range(12)]
    before = index.node_visits
    seen = []
    for _ in index.match_each(batch):
        seen.append(index.node_visits - before)
        before = index.node_visits
    assert seen == want
    index.match(batch, threads=3)
    assert index.node_visits - before == sum(want)
    assert index.stats()["node_visits"] == 2 * sum(want)


@LOADS
def test_workloads_count_the_nodes_of_a_level(load, size):
    schema = int_schema(2)
    index = opened(schema, random_subscriptions(schema, size(1_000), seed=10), load=load, **SMALL)
    batch = random_events(schema, 15, seed=11)
    nodes = walk(index)
    assert index.height >= 3
    for level in range(index.height):
        estimate = index.estimate(batch, level)
        assert estimate.level == level
        for e in range(len(batch)):
            codes = batch.codes[:, e]
            found = sorted(
                n for n, depth in nodes if depth == level and (level == 0 or meets(index, n, codes))
            )
            assert sorted(estimate.nodes[estimate.firsts[e] : estimate.firsts[e + 1]].tolist()) == found
            assert estimate.workloads[e] == len(found)
        assert sorted(estimate.order.tolist()) == list(range(15))
        assert np.all(np.diff(estimate.workloads[estimate.order]) >= 0)


def test_the_root_alone_keeps_the_order_of_arrival(size):
    schema = int_schema(2)
    index = opened(schema, random_subscriptions(schema, size(1_000), seed=12))
    estimate = index.estimate(random_events(schema, 9, seed=13), 0)
    assert estimate.workloads.tolist() == [1] * 9
    assert (estimate.order.tolist(), estimate.visits) == (list(range(9)), 0)


@LOADS
def test_a_batch_search_visits_no_node_more_than_plain_searches(load, size):
    w = workload("boxes-12d", size(4_000), 30)
    index = opened(w.schema, w.subscriptions(), load=load)
    batch = w.events()
    plain = index.match(batch)
    total = index.node_visits
    by_scan = rc.open_index("scan", w.schema)
    by_scan.insert(w.subscriptions())
    assert plain == by_scan.match(batch)
    for level in range(index.height):
        before = index.node_visits
        estimate = index.estimate(batch, level)
        assert index.node_visits - before == estimate.visits
        answers = dict(index.match_each(batch, estimate))
        assert index.node_visits - before == total
        assert list(answers) == estimate.order.tolist()
        for e in range(len(batch)):
            assert sorted(answers[e].tolist()) == plain.sort().row(e).tolist()


def test_levels_beyond_the_leaves_stop_there(size):
    schema = int_schema(2)
    index = opened(schema, random_subscriptions(schema, size(1_000), seed=14))
    batch = random_events(schema, 5, seed=15)
    assert index.estimate(batch, 99).level == index.height - 1
    assert index.estimate(batch).level == max(0, index.height - 3)
    with pytest.raises(
        rc.OptionError, match="level must be 0 for the root, or the steps down from it, got -1"
    ):
        index.estimate(batch, -1)


def test_estimates_of_nothing():
    schema = int_schema(2)
    index = opened(schema)
    empty = rc.Events.from_rows(schema, [])
    assert len(index.estimate(empty, 3)) == 0
    assert list(index.match_each(empty, index.estimate(empty))) == []
    batch = random_events(schema, 3, seed=16)
    assert index.estimate(batch, 3).workloads.tolist() == [1, 1, 1]
    assert [(e, ids.tolist()) for e, ids in index.match_each(batch)] == [(0, []), (1, []), (2, [])]


def test_changes_between_events_are_seen(size):
    """Once the tree has changed, the nodes of an estimate are stale: the search starts at the root again."""
    schema = int_schema(1)
    n = size(2_000)
    subs = rc.Subscriptions(schema, np.arange(n), np.zeros((1, n), int), np.arange(n).reshape(1, n))
    index = opened(schema, subs, load="insert")
    batch = rc.Events(schema, np.zeros((1, 3), np.int64))
    steps = index.match_each(batch, index.estimate(batch, index.height - 1))
    assert len(next(steps)[1]) == n
    index.delete(np.arange(n - 3))
    assert sorted(next(steps)[1].tolist()) == [n - 3, n - 2, n - 1]
    index.compact()
    index.insert(rc.Subscriptions.parse(schema, {n + 5: "a0 = 0"}))
    assert sorted(next(steps)[1].tolist()) == [n - 3, n - 2, n - 1, n + 5]


def test_an_estimate_is_of_its_batch():
    schema = int_schema(1)
    index = opened(schema, random_subscriptions(schema, 5, seed=17))
    estimate = index.estimate(random_events(schema, 3, seed=18))
    with pytest.raises(rc.OptionError, match="the estimate must be of this batch of 2 events, got 3"):
        index.match_each(random_events(schema, 2, seed=19), estimate)


@pytest.mark.parametrize("name", ["scan", "direct", "rtree"])
def test_each_reports_a_subscription_once(name):
    schema = int_schema(2)
    index = rc.open_index(name, schema)
    index.insert(random_subscriptions(schema, 60, seed=20, boxes=3))
    batch = random_events(schema, 20, seed=21)
    want = rows_of(index.match(batch))
    estimate = index.estimate(batch)
    for steps in (index.match_each(batch), index.match_each(batch, estimate)):
        assert {e: sorted(ids.tolist()) for e, ids in steps} == dict(enumerate(want))


def test_each_sees_strings_that_were_named_meanwhile():
    schema = rc.Schema(rc.Category("symbol"))
    index = opened(schema, rc.Subscriptions.parse(schema, {1: "symbol = 'a'"}))
    steps = index.match_each(rc.Events.from_rows(schema, [{"symbol": "a"}, {"symbol": "b"}]))
    assert next(steps)[1].tolist() == [1]
    index.insert(rc.Subscriptions.parse(schema, {2: "symbol = 'b'"}))
    assert next(steps)[1].tolist() == [2]


def test_lists_are_estimates_too(monkeypatch):
    schema = rc.Schema(rc.Int("a", 0, 9))
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    subs = rc.Subscriptions.parse(schema, {1: "a < 5", 2: "a < 3", 3: "a = 7"})
    batch = rc.Events.from_rows(schema, [{"a": 1}, {"a": 4}, {"a": 9}, {}])
    direct, by_scan = rc.open_index("direct", schema), rc.open_index("scan", schema)
    direct.insert(subs)
    by_scan.insert(subs)
    assert direct.estimate(batch).workloads.tolist() == [2, 1, 0, 0]
    assert by_scan.estimate(batch).workloads.tolist() == [3, 3, 3, 3]
    with pytest.raises(rc.OptionError, match="index 'direct' has no levels to estimate at, got level=2"):
        direct.estimate(batch, 2)
    blocks = rc.open_index("bitmap", schema)
    blocks.insert(subs)
    # one block, which a coarse bitset rules out where no box overlaps the value's cell
    assert blocks.estimate(batch).workloads.tolist() == [BLOCK, BLOCK, 0, 0]
    monkeypatch.setattr(scan.ScanPart, "cost", lambda self, codes: None)
    with pytest.raises(rc.OptionError, match="index 'scan' cannot estimate the work of an event"):
        by_scan.estimate(batch)


@LOADS
def test_overlapping_finds_what_shares_an_event(load, size):
    schema = int_schema(2)
    subs = random_subscriptions(schema, size(1_000), seed=22, boxes=2)
    asked = random_subscriptions(schema, 20, seed=23, boxes=2)
    found = opened(schema, subs, load=load).overlapping(asked)
    assert len(found) == 20
    for i in range(20):
        want = set()
        for a in np.flatnonzero(asked.owners == i):
            share = (subs.lows <= asked.highs[:, [a]]) & (subs.highs >= asked.lows[:, [a]])
            want |= set(subs.ids.values[subs.owners[share.all(axis=0)]].tolist())
        assert sorted(found.row(i).tolist()) == sorted(want)


@given(data=st.data())
def test_overlapping_a_point_is_matching_it(data):
    schema = int_schema(2)
    subs = data.draw(subscriptions(schema))
    batch = data.draw(events(schema))
    index = opened(schema, subs, **SMALL)
    points = rc.Subscriptions(schema, np.arange(len(batch)), batch.codes, batch.codes)
    assert rows_of(index.overlapping(points)) == rows_of(index.match(batch))


def test_overlapping_takes_subscriptions():
    with pytest.raises(rc.SubscriptionError, match="overlapping takes Subscriptions, got dict"):
        opened(int_schema(1)).overlapping({})


def test_a_reopened_tree_estimates_and_grows(size):
    schema = int_schema(2)
    n = size(1_000)
    index = opened(schema, random_subscriptions(schema, n, seed=24), load="insert")
    again = pickle.loads(pickle.dumps(index))
    batch = random_events(schema, 10, seed=25)
    theirs = rc.Events(again.schema, batch.codes)
    level = index.height - 1
    assert again.estimate(theirs, level).workloads.tolist() == index.estimate(batch, level).workloads.tolist()
    more = random_subscriptions(again.schema, n, seed=26)
    again.insert(rc.Subscriptions(again.schema, more.ids.values + 10 * n, more.lows, more.highs))
    again.delete(more.ids.values[::3])
    check_invariants(again)


@LOADS
def test_unwritten_room_never_reaches_a_file(monkeypatch, size, load):
    original = rtree.RTreeIndex._room

    def littered(self, *arguments):
        tree = original(self, *arguments)
        for array in (tree.lows, tree.highs, tree.children):
            array[...] = 77_777
        return tree

    monkeypatch.setattr(rtree.RTreeIndex, "_room", littered)
    schema = int_schema(2)
    subs = random_subscriptions(schema, size(500), seed=27)
    index = opened(schema, subs, load=load)
    index.delete(subs.ids.values[::20])
    tree = index._structure().tree
    assert not any((getattr(tree, name) == 77_777).any() for name in ("lows", "highs", "children"))


def test_updates_are_counted():
    schema = int_schema(1)
    index = opened(schema, random_subscriptions(schema, 10, seed=28))
    index.insert(random_subscriptions(schema, 4, seed=29))
    index.delete([5, 8, -1])
    assert index.updates == 16


def test_spans_leave_open_ends_aside():
    schema = int_schema(2)
    lows = np.array([[10, MISSING, 20], [MISSING, MISSING, MISSING]])
    highs = np.array([[LAST, 30, 25], [LAST, LAST, MISSING]])
    index = opened(schema, rc.Subscriptions(schema, [1, 2, 3], lows, highs))
    assert (index._tree.floors.tolist(), index._tree.scales.tolist()) == ([10.0, 0.0], [1 / 20, 1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_capacity": 3}, "node_capacity must be within 4 and 1024, got 3"),
        ({"leaf_capacity": 2000}, "leaf_capacity must be within 4 and 1024, got 2000"),
        ({"load": "bulk"}, "load must be one of pack, insert, got 'bulk'"),
        ({"fanout": 3}, "index 'rtree': got an unexpected keyword argument 'fanout'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(rc.OptionError, match=message):
        opened(int_schema(1), **options)


def test_what_does_not_fit_is_refused_before_anything_changes():
    schema = int_schema(2)
    index = opened(schema, memory_limit=10_000)
    with pytest.raises(rc.CapacityError, match="'rtree' with 900 more boxes of 2 attributes needs about"):
        index.insert(random_subscriptions(schema, 900, seed=30))
    assert len(index) == 0
    assert index.updates == 0
