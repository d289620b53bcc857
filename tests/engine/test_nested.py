"""Sorted lists by value: every form, with and without an equality and other bounds; outlines."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine import costs
from rangecast.engine.auto import AutoPart
from rangecast.engine.layouts import sorted_lists
from rangecast.engine.layouts.sorted_lists_kernels import CLOSED, FALLING, RISING
from rangecast.errors import StorageError
from rangecast.types.attributes import LAST, MISSING, PRESENT
from strategies import events, int_schema, random_events

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "1"
EDGES = st.one_of(st.integers(-3, 9), st.sampled_from([PRESENT + 1, -(2**62), 2**62, LAST - 1]))
BOUNDS = {
    "equal": EDGES.map(lambda v: (v, v)),
    "missing": st.just((MISSING, MISSING)),
    "rising": st.one_of(EDGES, st.just(PRESENT)).map(lambda v: (v, LAST)),
    "falling": EDGES.map(lambda v: (PRESENT, v)),
    "closed": st.tuples(EDGES, EDGES).map(sorted).filter(lambda ends: ends[0] < ends[1]),
    "odd": st.integers(-3, 9).map(lambda v: (MISSING, v)),
    "open": st.just((MISSING, LAST)),
}
KINDS = st.sampled_from(list(BOUNDS))


@st.composite
def outlined(draw, schema, max_size=10):
    """Subscriptions of one to three outlines, some of two boxes."""
    columns, owners = [], []
    for _ in range(draw(st.integers(1, 3))):
        kinds = [draw(KINDS) for _ in schema]
        for _ in range(draw(st.integers(0, max_size))):
            if not owners or draw(st.integers(0, 5)):
                owners.append(owners[-1] + 1 if owners else 0)
            else:
                owners.append(owners[-1])
            columns.append([draw(BOUNDS[kind]) for kind in kinds])
    boxes = np.array(columns, np.int64).reshape(len(columns), len(schema), 2)
    ids = np.arange(owners[-1] + 1 if owners else 0) + 20
    return rc.Subscriptions(schema, ids, boxes[:, :, 0].T, boxes[:, :, 1].T, np.array(owners, np.int32))


def prefer_sorted(patch):
    """Sorted lists wherever they can be, of however few boxes."""
    patch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)
    patch.setattr("rangecast.engine.auto.TINY", 0)
    patch.setattr(costs, "FEWEST", 1)
    patch.setattr(costs, "UNSURE", np.inf)


@pytest.fixture
def always(monkeypatch):
    prefer_sorted(monkeypatch)


def paths_of(index):
    return [path for covered in index._state.parts for path in covered.part.paths]


@settings(max_examples=80 if JIT else 30)
@given(data=st.data())
def test_any_outline_equals_the_oracle(data):
    with pytest.MonkeyPatch.context() as patch:
        prefer_sorted(patch)
        patch.setattr(sorted_lists, "SORTED", data.draw(st.sampled_from([1, 10**9])))
        patch.setattr(
            "rangecast.engine.layouts.windows._FEW_CANDIDATES", data.draw(st.sampled_from([0.0, 8.0]))
        )
        schema = int_schema(data.draw(st.integers(2, 4)))
        subs = data.draw(outlined(schema))
        batch = data.draw(events(schema))
        index = rc.open_index("auto", schema)
        index.insert(subs)
        whole = [sorted(row) for row in match_boxes(subs, batch)]
        assert rows_of(index.match(batch)) == whole
        assert index.count(batch).tolist() == [len(row) for row in whole]
        assert index.match_any(batch).tolist() == [len(row) > 0 for row in whole]
        assert index.match(batch, limit=2).counts.tolist() == [min(len(row), 2) for row in whole]
        gone = data.draw(st.lists(st.integers(20, 30), max_size=3, unique=True))
        index.delete(gone)
        kept = subs.select([i for i in range(len(subs)) if subs.ids[i] not in gone])
        assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(kept, batch)]


FORMS = {"rising": RISING, "falling": FALLING, "closed": CLOSED}
# one attribute alone has paths of its own
BESIDE = [(True, True), (True, False), (False, True)]


def many(schema, n, form, equal, checked):
    rng = np.random.default_rng(7)
    lows, highs = np.full((3, n), MISSING), np.full((3, n), LAST)
    if equal:
        lows[0] = highs[0] = rng.integers(0, 9, n) * (1 if n % 2 else 10**12)
    ends = np.sort(rng.integers(0, 60, (2, n)), axis=0)
    lows[1] = PRESENT if form == "falling" else ends[0]
    highs[1] = LAST if form == "rising" else ends[1] + 1
    if checked:
        lows[2] = rng.integers(0, 30, n)
    return rc.Subscriptions(schema, np.arange(n), lows, highs)


@pytest.mark.parametrize(("equal", "checked"), BESIDE)
@pytest.mark.parametrize("form", FORMS)
def test_forms(always, tmp_path, form, equal, checked):
    """Each form, by value and by hash, saved and loaded, swept, one event at a time and many."""
    schema = rc.Schema(rc.Int("a0"), rc.Int("a1"), rc.Int("a2"))
    for n in (60, 61):
        subs = many(schema, n, form, equal, checked)
        batch = random_events(schema, 66, seed=n, span=60)
        codes = batch.codes.copy()
        codes[0] = np.where(codes[0] == MISSING, MISSING, codes[0] % 10 * (1 if n % 2 else 10**12))
        batch = rc.Events(schema, codes)
        index = rc.open_index("auto", schema)
        index.insert(subs)
        (path,) = paths_of(index)
        assert path.kind == "nested"
        assert (path.part.on >= 0) == equal
        assert path.part.lists.form == FORMS[form] or checked
        path_file = tmp_path / f"{n}.rc"
        index.save(path_file)
        loaded = rc.load_index(path_file)
        for gone in ([], list(range(0, n, 5))):
            index.delete(gone)
            loaded.delete(gone)
            kept = subs.select(np.setdiff1d(np.arange(n), gone))
            whole = [sorted(row) for row in match_boxes(kept, batch)]
            for own in (index, loaded):
                assert rows_of(own.match(batch)) == whole
                assert [own.match(batch.select([e])).n_pairs for e in range(3)] == [len(r) for r in whole[:3]]
                assert (own.estimate(batch).workloads >= [len(row) for row in whole]).all()


def test_outlines_are_told_apart():
    schema = int_schema(2)
    bounds = [(MISSING, LAST), (3, 3), (3, LAST), (PRESENT, 3), (3, 4), (MISSING, 3), (PRESENT, LAST)]
    kinds = costs._kinds(*np.array(bounds).T.copy())
    assert kinds.tolist() == [0, 1, 2, 3, 4, 5, 2]
    n = 400
    lows = np.array([np.arange(n) % 2, np.full(n, 5)])
    lows[1, ::2] = PRESENT
    subs = rc.Subscriptions(schema, np.arange(n), lows, np.where(lows == PRESENT, 9, lows))
    index = rc.open_index("scan", schema)
    index.insert(subs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "FEWEST", 1)
        found = costs.find_outlines(index._catalog.boxes, np.arange(n), [0, 1])
    assert [(outline.n, outline.bounds) for outline in found] == [(200, {0: 1, 1: 1}), (200, {0: 1, 1: 3})]


def test_a_damaged_part_is_refused(always):
    schema = rc.Schema(rc.Int("a0"), rc.Int("a1"), rc.Int("a2"))
    index = rc.open_index("auto", schema)
    index.insert(many(schema, 100, "closed", True, True))
    (path,) = paths_of(index)
    part, boxes = path.part, index._catalog.boxes
    part.check(boxes, 100)
    lists = part.lists
    damages = {
        "boxes": np.full_like(lists.boxes, 100),
        "checked": np.array([3]),
        "tables": np.full_like(lists.tables, 101),
        "classes": lists.classes + 1000,
        "end_starts": lists.end_starts[::-1].copy(),
        "checked_lows": lists.checked_lows[:, 1:],
        "by": 3,
    }
    for name, damaged in damages.items():
        part.lists = lists._replace(**{name: damaged})
        with pytest.raises(StorageError):
            part.check(boxes, 100)
    assert isinstance(index._state.parts[0].part, AutoPart)
