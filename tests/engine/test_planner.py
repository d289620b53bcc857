"""Planning: layouts are weighed right, parts are laid out anew when that pays, and answers never change."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, match_held, rows_of
from rangecast import workloads
from rangecast.durable.arrays import flatten, unflatten
from rangecast.engine import auto, costs, planner
from rangecast.engine.boxes import ExpandedBoxes
from rangecast.engine.kernels import mark_holders
from rangecast.engine.layouts.cells import CellsPart
from rangecast.types.attributes import LAST, MISSING
from strategies import events, history, int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def no_tail(monkeypatch, leg):
    monkeypatch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    if leg == "nojit":
        monkeypatch.setattr(costs, "SAMPLE", 256)
        monkeypatch.setattr(costs, "EVENTS", 16)
        # among few subscriptions all layouts cost nearly the same
        monkeypatch.setattr(planner, "WORTH", 1.1)


@pytest.fixture
def eager(monkeypatch):
    """Parts are weighed at every match, and building is free; what pays is left to the estimates."""
    monkeypatch.setattr(planner, "SOONEST", 1)
    monkeypatch.setattr(planner, "LATEST", 1)
    monkeypatch.setattr(planner, "WEIGHING_SECONDS", 0.0)
    monkeypatch.setattr(planner, "BUILD_NS", {"cells": (0.0, 0.0, 0.0), "bitmap": (0.0, 0.0, 0.0)})


def paths(index):
    return [(entry["path"], *entry["on"]) for entry in index.stats()["paths"]]


def near_misses(size):
    w = workloads.workload("near-misses", max(size(20_000), 3_000), 64)
    index, scan = rc.open_index("auto", w.schema), rc.open_index("scan", w.schema)
    for one in (index, scan):
        one.insert(w.subscriptions())
    return w, index, scan.match(w.events())


@given(data=st.data())
def test_marks_who_holds_what(data):
    d, m = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    values = rng.integers(-3, 3, (d, m))
    lows = rng.integers(-3, 3, (d, 128))
    highs = rng.integers(-3, 3, (d, 128))
    out = np.empty((d, m, 2), np.uint64)
    mark_holders(values, lows, highs, out)
    bits = np.unpackbits(out.view(np.uint8), axis=-1, bitorder="little")
    held = (lows[:, None, :] <= values[:, :, None]) & (values[:, :, None] <= highs[:, None, :])
    assert (bits == held).all()


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 5_000])
def test_weighs_any_bounds(n):
    """Open ends, extremes and boxes that bound nothing come out as finite numbers above nothing."""
    rng = np.random.default_rng(n)
    lows, highs = rng.integers(-50, 50, (3, n)), rng.integers(50, 100, (3, n))
    lows[rng.random((3, n)) < 0.3], highs[rng.random((3, n)) < 0.3] = MISSING, LAST
    lows[0, 0], highs[0, 0] = LAST - 1, LAST - 1
    lows[1, 0], highs[1, 0] = MISSING + 2, LAST - 1
    lows[2], highs[2] = MISSING, LAST
    boxes = ExpandedBoxes(lows, highs, np.arange(n, dtype=np.int32), n)
    for batch in (None, np.full((3, 20), 7), np.full((3, 1), MISSING)):
        plan = planner.choose_layout(boxes, np.arange(n), [0, 1, 2], np.arange(n), batch)
        assert 0 < plan.chosen.ns <= planner.ROBUST * plan.runner_up.ns < 1e9
        assert plan.basis == ("subscriptions" if batch is None else "events")
        again = unflatten(planner.Plan, *flatten(plan))
        assert again == plan
        assert again.sample is None


def test_counts_scale_to_all_boxes():
    """Events that all boxes hold on one attribute and a hundredth on the other."""
    n = 10_000
    lows = np.stack([np.zeros(n, np.int64), np.arange(n) % 100])
    highs = np.stack([np.full(n, 10), np.arange(n) % 100])
    boxes = ExpandedBoxes(lows, highs, np.arange(n, dtype=np.int32), n)
    batch = np.stack([np.full(64, 5), np.arange(64)])
    layouts = costs.weigh_layouts(boxes, np.arange(n)[::5], n, (0, 1), batch)
    found = {(layout.kind, layout.on): layout.ns for layout in layouts}
    assert min(found, key=found.get) in {("cells", (1,)), ("cells", (0, 1))}
    # one in a hundred is a candidate there, everyone on the other
    assert 50 < (found["cells", (0,)] - 270) / (found["cells", (1,)] - 270) < 110


def test_sees_some_of_the_events():
    kept = planner.SeenEvents(2)
    assert kept.sample() is None
    for k in range(planner.EVERY * 40):
        kept.notice(np.array([[k], [-k]]))
    assert kept.n == planner.EVERY * 40
    assert kept.sample()[0].tolist() == [0, *range(64, planner.EVERY * 40, 64)]
    kept.notice(np.arange(200_000).reshape(2, -1))
    assert kept.sample().shape == (2, 40 + planner.OF_BATCH)
    kept.notice(np.arange(1_000).reshape(2, -1))
    kept.notice(np.arange(1_000).reshape(2, -1))
    assert kept.sample().shape == (2, planner.ROOM)
    for _ in range(10 * planner.SELDOM // 500):
        kept.notice(np.full((2, 500), 3))
    assert kept.sample().shape == (2, planner.ROOM)
    assert (kept.sample() == 3).all()
    kept.notice(np.empty((2, 0), np.int64))


def test_lays_out_anew_for_events_as_they_come(size, eager):
    """Only events tell that the last attribute is the one on which they fail."""
    w, index, want = near_misses(size)
    first = paths(index)
    assert first != [("cells", "a8")]
    assert "by subscriptions: " in index.explain_plan()
    for _ in range(6):
        assert index.match(w.events()) == want
    assert paths(index) == [("cells", "a8")]
    assert index.stats()["replans"] == 1
    assert "by events: " in index.explain_plan()
    assert index.stats()["paths"][0]["chosen_by"] == "events"
    # what is built from now on is built for such events
    index.compact()
    assert paths(index) == [("cells", "a8")]
    assert index.match(w.events()) == want
    assert index.stats()["replans"] == 1


def test_one_event_at_a_time_is_enough(size, eager):
    w, index, want = near_misses(size)
    for k in range(planner.EVERY * (planner.ENOUGH + 2)):
        if k % planner.EVERY < 2:
            assert index.match(w.events().select([k % 64])).counts[0] == want.counts[k % 64]
        else:
            index._replanner.seen.notice(w.events().encoded(w.schema).codes[:, :1])
    assert paths(index) == [("cells", "a8")]


@pytest.mark.parametrize("way", ["file", "pickle"])
def test_what_was_loaded_stays_as_it_is(size, eager, way, tmp_path):
    w, index, want = near_misses(size)
    first = paths(index)
    index.save(tmp_path / "i")
    loaded = rc.load_index(tmp_path / "i") if way == "file" else pickle.loads(pickle.dumps(index))
    for _ in range(6):
        assert loaded.match(w.events()) == want
    assert paths(loaded) == first
    assert loaded.stats()["replans"] == 0
    assert "by subscriptions: " in loaded.explain_plan()
    # until the user writes
    loaded.compact()
    assert paths(loaded) == [("cells", "a8")]
    assert loaded.match(w.events()) == want


def test_no_room_for_another_layout_fails_no_match(size, eager, monkeypatch):
    w, index, want = near_misses(size)
    first = paths(index)
    tries = []

    def refuse(*_):
        tries.append(1)
        raise rc.CapacityError("no room")

    monkeypatch.setattr(auto, "rest_path", refuse)
    for _ in range(6):
        assert index.match(w.events()) == want
    assert (paths(index), len(tries)) == (first, 1)


def test_waits_until_it_pays(size):
    """With its real price, a new layout is not built for the first few events."""
    w, index, want = near_misses(size)
    for _ in range(3):
        assert index.match(w.events()) == want
    assert index.stats()["replans"] == 0


def test_does_not_go_back_and_forth(size, eager, monkeypatch):
    """Events change their nature with every batch: each change must pay for itself, at twice the price."""
    monkeypatch.setattr(planner, "BUILD_NS", {"cells": (10.0, 0.0, 0.0), "bitmap": (10.0, 0.0, 0.0)})
    w, index, want = near_misses(size)
    other = np.tile(np.arange(64) % 8 * 100, (8, 1))
    others = rc.Events(w.schema, other)
    scan = rc.open_index("scan", w.schema)
    scan.insert(w.subscriptions())
    want_others = scan.match(others)
    for k in range(size(1_000) // 50 + 10):
        for _ in range(4):
            batch, answer = ((w.events(), want), (others, want_others))[k % 2]
            assert index.match(batch) == answer
    assert index.stats()["replans"] <= 8


def test_a_price_doubles_with_every_replan():
    n = 10_000
    lows = np.stack([np.zeros(n, np.int64), np.arange(n) % 100])
    boxes = ExpandedBoxes(lows, lows + np.array([[10], [0]]), np.arange(n, dtype=np.int32), n)
    batch = np.stack([np.full(64, 5), np.arange(64)])
    sample = np.arange(n)[::5]
    layouts = costs.weigh_layouts(boxes, sample, n, (0, 1), batch)
    now, best = next(one for one in layouts if one.on == (0,)), layouts[0]
    plan = planner.Plan(now, None, "events", (0, 1), sample)
    enough = planner.build_ns(best, boxes, sample, n, (0, 1)) / (now.ns - best.ns)
    for replans in range(4):
        for share, pays in ((0.9, False), (1.1, True)):
            replanner = planner.Replanner(2)
            replanner.seen.n = int(enough * 2**replans * share) + 1
            history = planner.PartHistory(replans=replans)
            assert replanner.pays(boxes, plan, n, history, 0.0, batch) is pays


def test_what_was_measured_replaces_an_estimate_that_is_far_off():
    history = planner.PartHistory()
    estimate = costs.Layout("cells", (0,), 1000.0)
    for _ in range(planner.FEWEST_BATCHES):
        assert history.correct(estimate) == estimate
        # the first one compiles
        history.took(
            0.011 * planner.TELLING if not history._costs else 11e-6 * planner.TELLING, planner.TELLING
        )
        # and small ones tell nothing
        history.took(1.0, planner.TELLING - 1)
    assert history.correct(estimate).ns == pytest.approx(11_000)
    # what is within OFF of the estimate is left to it, and what was said before is taken back
    for _ in range(planner.LOOKED_AT):
        history.took(2e-6 * planner.TELLING, planner.TELLING)
    assert history.correct(estimate) == estimate
    for _ in range(planner.LOOKED_AT):
        history.took(1e-7 * planner.TELLING, planner.TELLING)
    assert history.correct(estimate).ns == pytest.approx(100)
    after = history.laid_out_anew(7)
    assert (after.replans, after.since, after.factors) == (1, 7, {("cells", (0,)): pytest.approx(0.1)})


def test_a_layout_that_costs_more_than_estimated_is_given_up(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(auto, "perf_counter", lambda: now[0])
    monkeypatch.setattr(planner, "TELLING", 32)
    stab = CellsPart.stab

    def slow(self, request):
        now[0] += 1e-4 * request.codes.shape[1]
        return stab(self, request)

    monkeypatch.setattr(CellsPart, "stab", slow)
    rng = np.random.default_rng(3)
    n = 2_000
    schema = rc.Schema(rc.Int("x", 0, 999), rc.Int("y", 0, 999))
    lows = rng.integers(0, 900, (n, 2))
    subs = rc.Subscriptions.from_arrays(schema, np.arange(n), lows, lows + rng.integers(5, 60, (n, 2)))
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert paths(index)[0][0] == "cells"
    batch = rc.Events.from_arrays(schema, {"x": rng.integers(0, 999, 32), "y": rng.integers(0, 999, 32)})
    want = rows_of(index.match(batch))
    seen = 1
    while paths(index)[0][0] == "cells":
        seen += 1
        assert seen * 32 < 4_000
        assert rows_of(index.match(batch)) == want
    # and what was measured of it is remembered
    for _ in range(20):
        assert rows_of(index.match(batch)) == want
    assert "cells" not in {path for path, *_ in paths(index)}
    assert "bitmap" in index.explain_plan()


class Fickle:
    """Chooses any layout, and always another part is worth building."""

    def __init__(self, patch, seed):
        self.rng = np.random.default_rng(seed)
        self.real = auto.choose_layout
        patch.setattr(auto, "choose_layout", self.choose)
        patch.setattr(planner, "SOONEST", 1)
        patch.setattr(planner, "LATEST", 1)
        patch.setattr(planner, "ENOUGH", 1)
        patch.setattr(
            planner.Replanner,
            "events_to_go",
            lambda _, plan, history, seconds: 0.0 if plan is not None and not history.settled else np.inf,
        )
        patch.setattr(planner.Replanner, "pays", lambda *_: True)

    def choose(self, boxes, numbers, used, around, batch, factors=None):
        plan = self.real(boxes, numbers, used, around, batch)
        every = costs.invent_events(boxes, numbers, tuple(used)) if batch is None else batch
        layouts = costs.weigh_layouts(boxes, plan.sample, len(numbers), plan.used, every)
        return replace(plan, chosen=layouts[self.rng.integers(len(layouts))])


@given(data=st.data())
def test_answers_stay_the_same_whatever_is_laid_out_anew(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rangecast.engine.parts.TAIL_LIMIT", data.draw(st.sampled_from([0, 2])))
        patch.setattr("rangecast.engine.auto.TINY", 0)
        Fickle(patch, data.draw(st.integers(0, 9)))
        schema = int_schema(3)
        index = rc.open_index("auto", schema)
        for held in history(data, index, schema, 5):
            batch = data.draw(events(schema))
            assert rows_of(index.match(batch)) == match_held(held, batch)


def test_threads_see_no_change(size, monkeypatch):
    """Readers match while parts are laid out anew and a writer replaces some of the subscriptions."""
    Fickle(monkeypatch, 1)
    schema = int_schema(4)
    n = max(size(4_000), 300)
    subs = random_subscriptions(schema, n, seed=2)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    batch = random_events(schema, 20, seed=3)
    stable = subs.ids.values[: n // 2]
    want = [sorted(row & set(stable.tolist())) for row in match_boxes(subs, batch)]
    wrong = []

    def read():
        for k in range(12):
            found = index.match(batch, threads=1 + k % 2)
            rows = [[i for i in row if i in known] for row in rows_of(found)]
            if rows != want:
                wrong.append(rows)

    known = set(stable.tolist())
    readers = [threading.Thread(target=read) for _ in range(3)]
    for one in readers:
        one.start()
    moving = subs.ids.values[n // 2 :]
    for k in range(6):
        index.delete(moving[k::3])
        index.insert(subs.select(np.arange(n // 2 + k % 3, n, 3)))
    for one in readers:
        one.join()
    assert not wrong
    assert index.stats()["replans"] > 0
