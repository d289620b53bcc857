"""Lists by leading entry: exact for every kind of entry, and as large as what is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes, match_held, rows_of
from rangecast import workloads
from rangecast.engine.auto import AutoPart
from rangecast.engine.layouts import leads
from rangecast.engine.layouts.leads import LeadsPart
from rangecast.engine.layouts.leads_kernels import INEXACT
from rangecast.engine.small_kernels import LEADS_ATTRIBUTES
from rangecast.errors import CapacityError, StorageError
from strategies import events, history, int_schema


@pytest.fixture
def always(monkeypatch):
    """Everything goes by leading entries."""
    use_always(monkeypatch)


def use_always(patch):
    patch.setattr("rangecast.engine.auto.TINY", 0)
    patch.setattr(leads, "are_sparse", lambda *_: True)
    patch.setattr("rangecast.engine.parts.TAIL_LIMIT", 0)


def part_of(index):
    part = index._state.parts[0].part
    assert isinstance(part, AutoPart)
    (path,) = part.paths
    assert path.kind == "leads"
    assert isinstance(path.part, LeadsPart)
    return path.part


@given(data=st.data())
def test_equals_the_oracle(data):
    with pytest.MonkeyPatch.context() as patch:
        use_always(patch)
        patch.setattr(leads, "_FIRST_ROOM", data.draw(st.sampled_from([0, 4096])))
        patch.setattr(leads, "_PER_CELL", data.draw(st.integers(1, 3)))
        patch.setattr(leads, "_LISTED", data.draw(st.integers(1, 3)))
        patch.setattr(leads, "_AGAIN", data.draw(st.sampled_from([0, 4, 16])))
        patch.setattr(leads, "_CROWDED", data.draw(st.sampled_from([0.0, 2.0])))
        patch.setattr(leads, "_MARK_BITS", data.draw(st.sampled_from([2, 3, 15])))
        patch.setattr(leads, "_LENGTH_BITS", data.draw(st.sampled_from([5, 10])))
        patch.setattr(leads, "_OUTLIERS", data.draw(st.sampled_from([3, 100])))
        schema = int_schema(4)
        index = rc.open_index("auto", schema)
        for held in history(data, index, schema, 4):
            batch = data.draw(events(schema))
            assert rows_of(index.match(batch)) == match_held(held, batch)


def test_codes_of_every_size(always):
    schema = rc.Schema(rc.Int("a"), rc.Float("b"), rc.Int("c"))
    edge = 2**62
    texts = {
        1: f"a >= {-edge} and b < 1e300",
        2: f"a <= {edge} and b > -1e300 and c = 0",
        3: "a is missing and b between -1e-300 and 1e-300",
        4: f"c = {edge} and a = {-edge}",
        5: f"c between {-edge} and {edge} and a > 5",
        6: "b is present",
        7: "b is missing or a = 5",
        8: f"c != {edge} and c != 3",
    }
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert part_of(index)
    values = [None, -edge, 0, 3, 5, 6, edge]
    floats = [None, -1e301, -1e-301, 0.0, 1e299, float("inf")]
    rows = [{"a": a, "b": b, "c": c} for a in values for b in floats for c in values]
    rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
    batch = rc.Events.from_rows(schema, rows)
    want = [sorted(row) for row in match_boxes(subs, batch)]
    assert rows_of(index.match(batch)) == want
    assert [sorted(index.match_one(row).tolist()) for row in rows[:40]] == want[:40]


@pytest.mark.parametrize("room", [0, 1, 2048])
def test_one_event_alone(room, size, monkeypatch):
    monkeypatch.setattr(leads, "_ROOM_OF_ONE", room)
    w = workloads.workload("wide", max(size(4_000), 600), 12)
    subs, batch = w.subscriptions(), w.events()
    index = rc.open_index("auto", w.schema)
    index.insert(subs)
    want = index.match(batch).sort()
    assert want.n_pairs
    assert part_of(index)
    for e in range(len(batch)):
        one = batch.select(np.array([e]))
        assert one.encoded(w.schema, entries=True).codes.starts.tolist()[0] == 0
        assert one.encoded(w.schema).codes is one.codes
        assert index.match(one).sort().ids.tolist() == want.row(e).tolist()
        columns = rc.Events(w.schema, one.codes)
        assert index.match(columns).sort().ids.tolist() == want.row(e).tolist()


def test_more_attributes_than_one_event_alone_has_room_for(always):
    d = LEADS_ATTRIBUTES + 1
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(d)))
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, {j: f"a{j} > 3 and a{(j + 1) % d} < 9" for j in range(d)}))
    assert part_of(index)
    batch = rc.Events.from_rows(schema, [{"a1023": 5, "a1024": 5, "a0": 4}, {"a7": 1}])
    assert rows_of(index.match(batch)) == [[1023, 1024], []]
    for e, want in enumerate(([1023, 1024], [])):
        assert rows_of(index.match(batch.select(np.array([e])))) == [want]
        assert rows_of(index.match(rc.Events(schema, batch.codes[:, e : e + 1]))) == [want]


def test_a_wide_schema_goes_by_it_and_is_small(size, tmp_path):
    w = workloads.workload("wide", max(size(4_000), 600), max(size(40), 10))
    subs, batch = w.subscriptions(), w.events()
    index, scan = rc.open_index("auto", w.schema), rc.open_index("scan", w.schema)
    for one in (index, scan):
        one.insert(subs)
    want = scan.match(batch)
    assert want.n_pairs
    assert index.match(batch) == want
    assert index.stats()["bytes_per_subscription"] < 200
    assert index.count(batch).tolist() == want.counts.tolist()
    assert (part_of(index).cost(batch.codes) >= want.counts).all()
    index.save(tmp_path / "i")
    assert rc.load_index(tmp_path / "i").match(batch) == want
    gone = subs.ids.values[::20]
    for one in (index, scan):
        one.delete(gone)
    assert index.match(batch) == scan.match(batch)


def test_what_does_not_fit_is_refused():
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(200)))
    index = rc.open_index("auto", schema, memory_limit=1000)
    subs = rc.Subscriptions.parse(schema, {i: f"a{i % 200} = {i}" for i in range(1000)})
    with pytest.raises(CapacityError, match="lists by leading entry over 1,000 boxes needs about"):
        index.insert(subs)


@pytest.mark.parametrize(
    ("field", "place", "change"),
    [
        ("attributes", -1, 9),
        ("attributes", 0, 2),
        ("bounded", -1, 9),
        ("every", -1, -1),
        ("cut_starts", -1, 99),
        ("starts", -1, 999),
        ("starts", 2, 3),
        ("records", 0, 99),
        ("records", 1, 99),
        ("records", 1, 0),
        ("records", 2, 9 << 25),
        ("form", 0, 4),
        ("form", 1, 16),
        ("form", 2, 31),
        ("scales", -1, 64),
    ],
)
def test_damaged_lists_are_refused(always, field, place, change):
    schema = int_schema(3)
    index = rc.open_index("auto", schema)
    texts = {i: f"a{i % 3} = {i}" for i in range(9)}
    index.insert(rc.Subscriptions.parse(schema, texts | {9: "a0 = 1 or a0 != 1 or a0 is missing"}))
    part = part_of(index)
    part.check(index._catalog.boxes, 10)
    array = getattr(part.lists, field).copy()
    array[place] = change
    with pytest.raises(StorageError):
        LeadsPart(part.lists._replace(**{field: array}), part.identical).check(index._catalog.boxes, 10)
    wide = part.lists._replace(records=part.lists.records.astype(np.int64))
    with pytest.raises(StorageError, match="that records are of 32 bits"):
        LeadsPart(wide, part.identical).check(index._catalog.boxes, 10)
    for other, words in (("origins", "marks begin at codes"), ("scales", "scales of marks are of 8 bits")):
        wide = part.lists._replace(**{other: getattr(part.lists, other).astype(np.int32)})
        with pytest.raises(StorageError, match=words):
            LeadsPart(wide, part.identical).check(index._catalog.boxes, 10)
    short = part.lists._replace(origins=part.lists.origins[:-1])
    with pytest.raises(StorageError, match="bounded attributes have marks"):
        LeadsPart(short, part.identical).check(index._catalog.boxes, 10)


@pytest.mark.parametrize("spread", [1, 1 << 20, 1 << 59])
@pytest.mark.parametrize("heaped", [False, True])
def test_cells_of_one_width_and_cells_between_quantiles(always, spread, heaped):
    """Both ways to find a cell, up to codes whose distance is none."""
    rng = np.random.default_rng(spread % 97)
    places = rng.integers(-8, 8, 400) * spread
    widths = rng.integers(0, 2, 400) * (spread // 2)
    if heaped:
        places[::2], widths[::2] = rng.integers(0, 1000, 200), 0
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    lows = np.column_stack([places, rng.integers(0, 4, 400)])
    highs = lows + np.column_stack([widths, np.full(400, 20)])
    subs = rc.Subscriptions.from_arrays(schema, np.arange(400), lows, highs)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    lists = part_of(index).lists
    (cells,) = leads._widths(lists.cuts, lists.cut_starts)
    assert (cells < 0) == heaped
    values = np.concatenate([places, places + 1, rng.integers(-9, 9, 50) * spread])
    batch = rc.Events.from_arrays(schema, {"a": values, "b": rng.integers(0, 25, len(values))})
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_records_refer_to_boxes_that_stand_in_many_lists(always, monkeypatch):
    monkeypatch.setattr(leads, "_PER_CELL", 1)
    monkeypatch.setattr(leads, "_LISTED", 99)
    schema = int_schema(4)
    texts = {i: f"a0 = {i}" for i in range(60)}
    texts |= {100 + i: f"a0 between {i} and {i + 30} and a1 < {40 + i} and a2 >= {i}" for i in range(20)}
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    lists = part_of(index).lists
    refers = set()
    for at in lists.starts[:-1][np.diff(lists.starts) > 0]:
        heads = lists.records[at + 1 : at + 1 + 2 * int(lists.records[at]) : 2]
        refers |= set((heads >> lists.form[2] & 1).tolist())
    assert refers == {0, 1}
    rng = np.random.default_rng(5)
    batch = rc.Events.from_arrays(schema, {f"a{j}": rng.integers(0, 80, 200) for j in range(4)})
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


@pytest.mark.parametrize("mark_bits", [4, 11, 15])
@pytest.mark.parametrize("length_bits", [5, 8, 10])
def test_ranges_of_every_length(always, monkeypatch, mark_bits, length_bits):
    """Also of those whose lengths have no word of their own, at both ends and one beyond."""
    monkeypatch.setattr(leads, "_MARK_BITS", mark_bits)
    monkeypatch.setattr(leads, "_LENGTH_BITS", length_bits)
    rng = np.random.default_rng(mark_bits)
    lengths = np.unique(np.concatenate([np.arange(70), 2 ** np.arange(15), 2 ** np.arange(1, 15) - 1]))
    lows = rng.integers(0, 3_000, len(lengths))
    highs = lows + lengths
    texts = {i: f"a0 between {low} and {high}" for i, (low, high) in enumerate(zip(lows, highs, strict=True))}
    n = len(texts)
    texts |= {n + i: f"a0 >= {low}" for i, low in enumerate(lows)}
    texts |= {2 * n + i: f"a0 <= {high} and a1 = 1" for i, high in enumerate(highs)}
    schema = int_schema(2)
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    exact = part_of(index).lists.scales[0] == 0
    assert exact == (mark_bits == 15)
    values = np.unique(np.concatenate([ends + k for ends in (lows, highs) for k in (-1, 0, 1)]))
    batch = rc.Events.from_arrays(schema, {"a0": values, "a1": np.ones(len(values), np.int64)})
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_more_entries_than_a_head_counts(always, monkeypatch):
    """With many boxes few bits are left for how many entries one has; others are asked of the box."""
    d = 12
    schema = int_schema(d)
    texts = {k: " and ".join(f"a{j} >= {j + k}" for j in range(1 + k % d)) for k in range(30)}
    subs = rc.Subscriptions.parse(schema, texts)
    form_of = leads._form_of

    def few_bits(n_attributes, n_boxes):
        form = form_of(n_attributes, n_boxes)
        form[2] = 29
        return form

    monkeypatch.setattr(leads, "_form_of", few_bits)
    monkeypatch.setattr(leads, "_AGAIN", 99)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert (part_of(index).lists.records[1] >> 30) <= 3
    rng = np.random.default_rng(3)
    batch = rc.Events.from_arrays(schema, {f"a{j}": rng.integers(0, 40, 200) for j in range(d)})
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_a_few_ends_far_away_leave_the_others_their_marks(always):
    schema = int_schema(2)
    texts = {i: f"a0 = {i} and a1 >= {i}" for i in range(400)}
    texts |= {
        400: f"a0 = {10**15} and a1 < 5",
        401: f"a0 > {10**15} and a1 < {10**16}",
        402: f"a0 < {-(10**15)}",
    }
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    lists = part_of(index).lists
    assert lists.scales.tolist() == [INEXACT, INEXACT]
    values = np.array([0, 5, 399, 400, 10**15 - 1, 10**15, 10**15 + 1, -(10**15), -(10**15) - 1])
    batch = rc.Events.from_arrays(schema, {"a0": np.repeat(values, 9), "a1": np.tile(values, 9)})
    assert rows_of(index.match(batch)) == [sorted(row) for row in match_boxes(subs, batch)]


def test_no_event_and_no_box(always):
    schema = int_schema(2)
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "a0 = 1 or a0 != 1 or a0 is missing", 2: "a1 = 3"}))
    assert index.match(rc.Events.from_rows(schema, [])).n_pairs == 0
    rows = [{}, {"a1": 3}]
    batch = rc.Events.from_rows(schema, rows)
    assert rows_of(index.match(batch)) == [[1], [1, 2]]


def test_sparse_is_what_words_have_room_for():
    assert not leads.are_sparse(10, 60, 100)
    assert leads.are_sparse(1 << 30, 1 << 30, 1 << 22)
    assert not leads.are_sparse((1 << 30) + 1, 1 << 30, 1 << 22)
    assert not leads.are_sparse(1 << 30, 1 << 30, (1 << 22) + 1)
