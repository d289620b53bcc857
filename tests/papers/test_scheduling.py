"""Shortest first and the adaptive level: response times on a counted clock, never a real one."""

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads
from rangecast.papers.rtree.structures import respond
from rangecast.workloads import workload
from strategies import int_schema, random_events, random_subscriptions


class Ticks:
    """A clock that stands still but for what is added."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def tree(size, leg):
    # whole with bounds checks too: a tree of fewer levels leaves less to gain
    w = workload("boxes-12d", size(6_000) if leg == "nojit" else 6_000, 40)
    index = rc.open_index("rtree", w.schema, load="insert")
    index.insert(w.subscriptions())
    return index, w.events()


def counted(index):
    return lambda: index.node_visits


def test_responses_are_sums_of_the_work_before_them(tree):
    index, batch = tree
    alone = []
    for e in range(len(batch)):
        before = index.node_visits
        index.match(batch.select([e]))
        alone.append(index.node_visits - before)
    arrived = list(respond(index, batch, clock=counted(index)))
    assert [r.event for r in arrived] == list(range(len(batch)))
    assert [r.seconds for r in arrived] == np.cumsum(alone).tolist()


def test_shortest_first_lowers_the_mean_and_keeps_the_total(tree, leg):
    index, batch = tree
    means = []
    plain = index.match(batch).sort()
    arrived = [r.seconds for r in respond(index, batch, clock=counted(index))]
    for level in range(index.height):
        schedule = rc.ShortestFirst(index, level, clock=counted(index))
        estimate = index.estimate(batch, level)
        responses = list(schedule.match_each(batch))
        assert [r.event for r in responses] == estimate.order.tolist()
        for r in responses:
            assert sorted(r.ids.tolist()) == plain.row(r.event).tolist()
        seconds = [r.seconds for r in responses]
        assert seconds == sorted(seconds)
        last = schedule.last
        assert (last.events, last.level, last.estimate_seconds) == (len(batch), level, estimate.visits)
        assert last.mean_seconds == pytest.approx(np.mean(seconds))
        # nodes of the estimate are not searched again: the total is that of plain searches, to the node
        assert last.total_seconds == seconds[-1] == arrived[-1]
        means.append(np.mean(seconds))
        if level == 0:
            assert seconds == arrived
    if leg != "nojit":
        # a tree of three levels is too low to leave something to gain
        assert min(means) < 0.8 * means[0]


def test_at_the_leaves_the_order_is_the_best_there_is(tree):
    """There the workload is all that is left to do, so no other order can have a lower mean."""
    index, batch = tree
    level = index.height - 1
    schedule = rc.ShortestFirst(index, level, clock=counted(index))
    seconds = np.array([r.seconds for r in schedule.match_each(batch)])
    estimate = index.estimate(batch, level)
    left = np.sort(estimate.workloads)
    assert (seconds - estimate.visits).tolist() == np.cumsum(left).tolist()


def test_the_readers_own_time_is_not_counted():
    schema = int_schema(1)
    index = rc.open_index("rtree", schema)
    index.insert(random_subscriptions(schema, 20, seed=1))
    clock = Ticks()
    schedule = rc.ShortestFirst(index, clock=clock)
    for response in schedule.match_each(random_events(schema, 5, seed=2)):
        clock.now += 100
        assert response.seconds == 0
    assert schedule.last.total_seconds == 0


def test_any_index_that_estimates_can_be_scheduled():
    schema = rc.Schema(rc.Int("a", 0, 9))
    index = rc.open_index("direct", schema)
    index.insert(rc.Subscriptions.parse(schema, {i: f"a < {i % 10}" for i in range(1_000)}))
    batch = rc.Events.from_rows(schema, [{"a": a} for a in (0, 8, 4, 6)])
    schedule = rc.ShortestFirst(index)
    responses = list(schedule.match_each(batch))
    assert [r.event for r in responses] == [1, 3, 2, 0]
    assert [len(r.ids) for r in responses] == [100, 300, 500, 900]
    assert schedule.last.level is None
    with pytest.raises(rc.OptionError, match="index 'direct' has no levels to adapt; rtree has"):
        next(rc.ShortestFirst(index, rc.AdaptiveLevel()).match_each(batch))


@pytest.mark.parametrize(
    "name", ["intervals", "rectangles", "lonlat", "equality-led", "predicates-16", "rein"]
)
def test_auto_estimates_no_less_than_there_is(name, size):
    w = workloads.workload(name, max(size(4_000), 400), max(size(40), 10))
    index = rc.open_index("auto", w.schema)
    index.insert(w.subscriptions())
    estimate = index.estimate(w.events())
    counts = index.match(w.events()).counts
    assert (estimate.workloads >= counts).all()
    assert (estimate.workloads <= len(index) + 4096).all()  # a block of the bitmap may not be full
    assert sorted(r.event for r in rc.ShortestFirst(index).match_each(w.events())) == list(range(len(counts)))


def test_an_empty_batch_is_answered():
    schema = int_schema(1)
    index = rc.open_index("rtree", schema)
    adaptive = rc.AdaptiveLevel()
    schedule = rc.ShortestFirst(index, adaptive)
    assert list(schedule.match_each(rc.Events.from_rows(schema, []))) == []
    assert schedule.last[0] == 0
    assert adaptive.state(0).batches == 0


def test_the_adaptive_level_finds_the_best_of_a_real_tree(tree):
    """On the clock of node visits the mean is a function of the level alone, so the loop must end at its
    minimum, or at a level that is no worse than its neighbours."""
    index, batch = tree
    means = []
    for level in range(index.height):
        schedule = rc.ShortestFirst(index, level, clock=counted(index))
        list(schedule.match_each(batch))
        means.append(schedule.last.mean_seconds)
    for start in range(index.height):
        adaptive = rc.AdaptiveLevel(loops=1, start=start)
        schedule = rc.ShortestFirst(index, adaptive, clock=counted(index))
        for _ in range(3 * index.height + 3):
            list(schedule.match_each(batch))
        state = adaptive.state(len(batch))
        assert state.stable
        assert means[state.level] == min(means[level] for level in state.candidates)


def run_until_stable(adaptive, cost, size=100, height=8, updates=0, most=2_000):
    """Feed batches of one size until the level is stable; the levels that were used."""
    used = []
    for _ in range(most):
        level = adaptive.choose(size, height, updates)
        used.append(level)
        adaptive.record(size, level, cost(level))
        if adaptive.state(size).stable:
            return used
    raise AssertionError(f"not stable after {most} batches")


def test_a_loop_takes_turns():
    adaptive = rc.AdaptiveLevel(loops=2, start=4)
    used = run_until_stable(adaptive, lambda level: (level - 4) ** 2 + 1)
    assert used == [4, 3, 5, 4, 3, 5]
    assert adaptive.choose(100, 8, 0) == 4


@pytest.mark.parametrize("best", range(8))
@pytest.mark.parametrize("start", [0, 3, 7])
def test_without_noise_every_start_reaches_the_best(best, start):
    adaptive = rc.AdaptiveLevel(loops=1, start=start)
    run_until_stable(adaptive, lambda level: (level - best) ** 2 + 1)
    assert adaptive.state(100).level == best


def test_at_the_ends_two_levels_are_tried():
    adaptive = rc.AdaptiveLevel(loops=2, start=0)
    assert run_until_stable(adaptive, lambda level: level + 1) == [0, 1, 0, 1]
    adaptive = rc.AdaptiveLevel(loops=1, start=9)
    assert run_until_stable(adaptive, lambda level: 9 - level) == [7, 6]
    adaptive = rc.AdaptiveLevel(loops=1)
    assert run_until_stable(adaptive, lambda level: 1, height=1) == [0]


def test_a_flat_curve_is_stable_and_a_peak_is_left():
    adaptive = rc.AdaptiveLevel(loops=1, start=3)
    assert run_until_stable(adaptive, lambda level: 5.0) == [3, 2, 4]
    adaptive = rc.AdaptiveLevel(loops=1, start=3)
    run_until_stable(adaptive, lambda level: {2: 4.0, 3: 9.0, 4: 5.0}.get(level, 6.0))
    assert adaptive.state(100).level == 2


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_moving_best_is_followed(seed):
    """Concave as the paper's figure 3, with noise of a tenth, and an optimum that moves with updates."""
    rng = np.random.default_rng(seed)
    adaptive = rc.AdaptiveLevel(threshold=1_000, loops=16)
    updates = 0
    for best in (3, 4, 6, 2, 0, 7, 5, 1):
        run_until_stable(
            adaptive,
            lambda level, best=best: (10 + (level - best) ** 2) * rng.normal(1, 0.1),
            updates=updates,
        )
        assert abs(adaptive.state(100).level - best) <= 1
        updates += 1_000


def test_only_enough_updates_make_it_unstable():
    adaptive = rc.AdaptiveLevel(threshold=10, loops=1, start=2)
    run_until_stable(adaptive, lambda level: abs(level - 2), updates=5)
    assert [adaptive.choose(100, 8, updates) for updates in (6, 14)] == [2, 2]
    assert adaptive.state(100).stable
    adaptive.record(100, 2, 1e9)
    assert adaptive.state(100).stable
    adaptive.choose(100, 8, 15)
    assert not adaptive.state(100).stable
    run_until_stable(adaptive, lambda level: abs(level - 3), updates=16)
    assert (adaptive.state(100).level, adaptive.state(100).updates) == (3, 16)


def test_sizes_have_states_of_their_own():
    adaptive = rc.AdaptiveLevel(loops=1, start=4)
    run_until_stable(adaptive, lambda level: abs(level - 2), size=10)
    run_until_stable(adaptive, lambda level: abs(level - 6), size=200)
    assert [adaptive.state(n).level for n in (8, 10, 15, 128, 200)] == [2, 2, 2, 6, 6]
    assert adaptive.state(100) is None
    exact = rc.AdaptiveLevel(loops=1, exact_sizes=True)
    exact.choose(10, 8, 0)
    assert exact.state(11) is None


def test_a_change_of_height_restarts_the_loop():
    adaptive = rc.AdaptiveLevel(loops=1, start=6)
    run_until_stable(adaptive, lambda level: abs(level - 6))
    assert adaptive.choose(100, 9, 0) == 6
    assert adaptive.state(100).stable
    assert adaptive.choose(100, 4, 0) == 3
    assert not adaptive.state(100).stable
    adaptive.record(100, 3, 1.0)
    assert adaptive.choose(100, 5, 0) == 3
    assert adaptive.state(100).batches == 0
    # a batch that was chosen before the restart does not count in the new loop
    adaptive.record(100, 2, 1.0)
    assert adaptive.state(100).batches == 0


def test_a_batch_that_is_not_read_to_its_end_does_not_count(tree):
    index, batch = tree
    adaptive = rc.AdaptiveLevel()
    schedule = rc.ShortestFirst(index, adaptive)
    next(schedule.match_each(batch))
    assert adaptive.state(len(batch)).batches == 0
    assert schedule.last is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0}, "threshold must be at least 1, got 0"),
        ({"loops": 0}, "loops must be at least 1, got 0"),
        ({"start": -1}, "start must be at least 0, got -1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(rc.OptionError, match=message):
        rc.AdaptiveLevel(**options)
