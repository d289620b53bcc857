"""On a machine that has compiled no layout `auto` scans first, with the same answers, and then lays out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rangecast as rc
from oracle import match_boxes, rows_of
from rangecast.engine import auto, parts, planner

# what is compiled, and when, is a matter of the compiled kernels
pytestmark = pytest.mark.once
SCHEMA = rc.Schema(rc.Int("a"), rc.Float("b"), rc.Category("c"))
N = 2_600
NOTE = planner._note


@pytest.fixture
def cold(monkeypatch, tmp_path):
    """As if Numba's cache were empty; the kernels themselves come from where they are."""
    monkeypatch.setattr(planner._Layouts, "at_once", False)
    monkeypatch.setattr(planner, "_note", NOTE)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


def make(n=N):
    rng = np.random.default_rng(8)
    rows = zip(rng.integers(0, 900, n).tolist(), rng.random(n).round(3).tolist(), strict=True)
    texts = {}
    for k, (a, b) in enumerate(rows):
        texts[k] = (
            f"a between {a} and {a + 9} and c = 'w{k % 30}'",
            f"b <= {b} and a != {a} and c in ('w{k % 7}', 'w{k % 11}')",
            f"b is missing and a >= {a}",
        )[k % 3]
    subs = rc.Subscriptions.parse(SCHEMA, texts)
    index = rc.open_index("auto", SCHEMA)
    index.insert(subs)
    return index, subs


def events():
    rng = np.random.default_rng(9)
    rows = [{"a": int(a), "b": float(b), "c": f"w{a % 33}"} for a, b in rng.random((25, 2)) * (900, 1)]
    rows += [{}, {"a": 899}, {"c": "w3"}, {"a": 5, "b": 0.0, "c": "nobody's"}]
    return rows, rc.Events.from_rows(SCHEMA, rows)


def check(index, subs, gone=()):
    rows, batch = events()
    wanted = [sorted(set(row) - set(gone)) for row in match_boxes(subs, batch)]
    assert rows_of(index.match(batch)) == wanted
    assert index.count(batch).tolist() == [len(row) for row in wanted]
    assert index.match_any(batch).tolist() == [bool(row) for row in wanted]
    limited = index.match(batch, limit=2)
    for row, own in enumerate(wanted):
        assert sorted(index.match_one(rows[row]).tolist()) == own
        assert sorted(index.match(batch.select([row])).ids.tolist()) == own
        assert set(limited.row(row).tolist()) <= set(own)
        assert len(limited.row(row)) == min(2, len(own))


@pytest.mark.usefixtures("cold")
def test_boxes_are_scanned_until_that_has_cost_much(monkeypatch):
    monkeypatch.setattr(parts, "TAIL_WORK", N)  # were layouts compiled, a batch would be worth one
    index, subs = make()
    assert index.stats()["parts"] == 0
    assert index.stats()["tail_boxes"] >= N
    check(index, subs)
    gone = list(range(0, N, 5))
    index.delete(gone)
    check(index, subs, gone)
    assert index.stats()["parts"] == 0
    assert not planner.are_layouts_compiled()
    monkeypatch.setattr(auto, "COLD_WORK", 25 * N)
    check(index, subs, gone)
    assert index.stats()["parts"] == 1
    assert index.stats()["tail_boxes"] == 0
    # for this process, and for those to come
    assert planner._note().exists()
    planner._Layouts.at_once = False
    assert planner.are_layouts_compiled()
    assert make()[0].stats()["parts"] == 1


@pytest.mark.usefixtures("cold")
def test_many_boxes_are_laid_out_however_long_that_takes(monkeypatch):
    monkeypatch.setattr(auto, "COLD_BOXES", N - 1)
    index, subs = make()
    assert index.stats()["parts"] == 1
    check(index, subs)


@pytest.mark.usefixtures("cold")
def test_what_is_saved_is_laid_out(tmp_path):
    index, subs = make()
    assert index.stats()["parts"] == 0
    index.save(tmp_path / "index")
    loaded = rc.load_index(tmp_path / "index")
    assert loaded.stats()["parts"] == 1
    check(loaded, subs)
    planner._Layouts.at_once = False
    planner._note().unlink()
    index, subs = make()
    copied = pickle.loads(pickle.dumps(index))
    assert [one.stats()["parts"] for one in (index, copied)] == [1, 1]
    check(copied, subs)
    check(index, subs)


@pytest.mark.usefixtures("cold")
def test_who_does_not_want_to_wait_for_events():
    planner.lay_out_at_once()
    assert make()[0].stats()["parts"] == 1


@pytest.mark.usefixtures("cold")
def test_a_folder_that_cannot_be_written_to(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "nowhere"))
    planner.note_layout()
    assert planner.are_layouts_compiled()
    assert not (tmp_path / "nowhere").exists()
