"""Long lists of values in `auto`: kept by value, one box each, exact however they are asked and changed."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import match_boxes, match_held

import rangecast as rc
from rangecast.durable.arrays import read_arrays, write_arrays
from rangecast.engine import boxes as listed_values
from rangecast.engine import index as contract
from rangecast.engine import parts
from rangecast.engine.auto import AutoIndex
from rangecast.engine.catalog import into_pieces
from rangecast.engine.layouts import lists as listed_paths
from rangecast.model import boxes as sparse
from rangecast.types.attributes import LAST, MISSING, PRESENT

SHORT = 20


@pytest.fixture(autouse=True)
def short_lists(monkeypatch):
    """Lists of twenty values are long, and a handful of them is worth a part."""
    monkeypatch.setattr(listed_values, "LEAST", SHORT)
    monkeypatch.setattr(parts, "LED", 600)


def written(values):
    return ", ".join(map(str, values))


def rows(matches):
    return [set(matches.row(e).tolist()) for e in range(len(matches))]


def check(index, subs, events):
    """Every way of asking gives what the oracle does, each subscription once. Returns how many pairs."""
    want = match_boxes(subs, events)
    sizes = [len(ids) for ids in want]
    for threads in (1, 2):
        found = index.match(events, threads=threads)
        assert rows(found) == want
        assert found.counts.tolist() == sizes
    assert [set(ids.tolist()) for _, ids in index.match_each(events)] == want
    assert index.count(events).tolist() == sizes
    assert index.match_any(events).tolist() == [size > 0 for size in sizes]
    some = index.match(events, limit=2)
    assert some.counts.tolist() == [min(size, 2) for size in sizes]
    assert all(own <= ids for own, ids in zip(rows(some), want, strict=True))
    for e in range(min(len(events), 12)):
        assert set(index.match(events.select([e])).ids.tolist()) == want[e]
    return sum(sizes)


def random_condition(rng, n_values):
    """A list on a, alone or with what else a condition may ask for, or two of them."""
    step = int(rng.choice([1, 1, 7, 10**12]))
    values = step * rng.integers(-n_values // 2, n_values, int(rng.choice([5, 60, 90])))
    text = f"a in ({written(values)})"
    rest = [
        "",
        "",
        f" and b < {rng.integers(0, 9)}",
        f" and b = {rng.integers(0, 9)}",
        f" and c between {rng.integers(0, 4)} and 7 and b != 3",
        f" and c in ({written(rng.integers(0, 90, 60))})",
        " and c is missing",
        f" or c in ({written(range(0, 90, 2))})",
        f" or a in ({written(3 * values)}) and c > 5",
    ]
    return text + str(rng.choice(rest))


def events_of(schema, rng, n, n_values):
    a = rng.choice([1, 1, 7, 10**12], n) * rng.integers(-n_values, n_values + 3, n)
    columns = {"a": a.tolist(), "b": rng.integers(0, 9, n).tolist(), "c": rng.integers(0, 90, n).tolist()}
    for column in columns.values():
        for e in rng.integers(0, n, n // 8).tolist():
            column[e] = None
    return rc.Events.from_arrays(schema, columns)


def schema_of():
    return rc.Schema(rc.Int("a"), rc.Int("b"), rc.Int("c"))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_lists_equal_the_oracle_through_changes_and_files(seed, tmp_path, leg):
    rng = np.random.default_rng(seed)
    schema, n = schema_of(), 40 if leg == "nojit" else 160
    subs = rc.Subscriptions.parse(schema, {i: random_condition(rng, 60) for i in range(n)}, remarks=False)
    events = events_of(schema, rng, 16 if leg == "nojit" else 120, 70)
    index = rc.open_index("auto", schema)
    for first in range(0, n, n // 4):
        index.insert(subs.select(np.arange(first, first + n // 4)))
        held = subs.select(np.arange(first + n // 4))
        check(index, held, events)
    assert "listed" in {path["path"] for path in index.plan()}
    index.save(tmp_path / "index")
    for other in (pickle.loads(pickle.dumps(index)), rc.load_index(tmp_path / "index", mmap=True)):
        check(other, subs, events)
        back = other.subscriptions()
        assert [array.tolist() for array in back.boxes] == [array.tolist() for array in subs.boxes]
        texts = {i: random_condition(rng, 60) for i in range(n - 10, n + 20)}
        fresh = rc.Subscriptions.parse(other.schema, texts, remarks=False)
        other.insert(fresh)
        other.delete(list(range(n // 2)))
        kept = subs.select(np.arange(n // 2, n - 10)).reconciled(other.schema)
        held = rc.Subscriptions.concat([kept, fresh])
        check(other, held, events)
        other.compact()
        check(other, held, events)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(-60, 60), min_size=SHORT + 10, max_size=60),
            st.sampled_from(["", " and b = 1"]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sets(st.integers(0, 11)),
    st.lists(st.one_of(st.none(), st.integers(-63, 63)), min_size=1, max_size=12),
)
def test_lists_that_touch_and_repeat(lists, gone, asked):
    """Small domains, so that values meet, lists are alike, and some have no gap."""
    schema = schema_of()
    texts = {i: f"a in ({written(sorted(own))}){rest}" for i, (own, rest) in enumerate(lists)}
    subs = rc.Subscriptions.parse(schema, texts)
    events = rc.Events.from_rows(schema, [{"a": value, "b": e % 2} for e, value in enumerate(asked)])
    index = rc.open_index("auto", schema)
    index.insert(subs)
    check(index, subs, events)
    index.delete(sorted(gone))
    check(index, subs.select([i for i in range(len(subs)) if i not in gone]), events)


def test_a_list_takes_one_box_and_a_few_bytes_per_value():
    schema = schema_of()
    rng = np.random.default_rng(5)
    texts = {i: f"a in ({written(rng.choice(4_000, 1_000, replace=False))})" for i in range(200)}
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    stats = index.stats()
    assert stats["boxes"] == 200
    # 4 in the catalog, 4 in the lists, and 20 for each of 4,000 values
    assert stats["bytes"] < 200_000 * 8.6
    assert [path["path"] for path in index.plan()] == ["listed"]
    assert index.explain_plan().startswith("200 subscriptions in 1 parts")
    assert index.explain(7, {"a": int(subs.boxes.set_lows[subs.boxes.set_starts[7]])})


def test_lists_of_strings_and_of_several_values():
    schema = rc.Schema(rc.Category("tag"), rc.Int("size"))
    rng = np.random.default_rng(6)
    words = [f"w{i}" for i in range(120)]
    schema["tag"].encode(words, grow=True)
    texts = {}
    for i in range(60):
        listed = written(repr(words[k]) for k in rng.choice(120, 40, replace=False))
        texts[i] = f"tag in ({listed})" + ("" if i % 3 else " and size < 5")
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert {path["path"] for path in index.plan()} == {"listed"}
    events = rc.Events.from_rows(
        schema, [{"tag": words[e], "size": e % 9} for e in range(100)] + [{"size": 3}]
    )
    assert check(index, subs, events) > 100
    several = [{"tag": [words[e], words[e + 1]], "size": [e % 9, 4]} for e in range(80)]
    found = index.match(rc.Events.from_rows(schema, several))
    for e, row in enumerate(several):
        choices = [{"tag": tag, "size": size} for tag in row["tag"] for size in row["size"]]
        want = set().union(*match_boxes(subs, rc.Events.from_rows(schema, choices)))
        assert set(found.row(e).tolist()) == want
        assert found.counts[e] == len(want)
        assert set(index.match_one(row).tolist()) == want


def test_few_lists_are_scanned_and_looked_up(monkeypatch):
    """In the tail a box is its hull: what is found of it is looked up in its list."""
    monkeypatch.setattr(parts, "LED", 1)
    schema = schema_of()
    texts = {1: f"a in ({written(range(0, 400, 3))})", 2: f"a in ({written(range(0, 400, 5))}) and b > 2"}
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert index.stats()["tail_boxes"] == 2
    events = rc.Events.from_rows(schema, [{"a": a, "b": a % 4} for a in range(-3, 60)])
    assert check(index, subs, events) > 20


def test_lists_beside_boxes_that_are_kept_in_groups():
    schema = schema_of()
    rng = np.random.default_rng(7)
    alike = [f"a > {k} and b < {k % 7 + 1} and c > {k}" for k in range(12)]
    texts = {i: alike[i % 12] for i in range(3_000)}
    for i in range(3_000, 3_040):
        texts[i] = f"a in ({written(rng.choice(140, 45, replace=False))})" + ("" if i % 2 else " and b < 4")
    subs = rc.Subscriptions.parse(schema, texts)
    index = rc.open_index("auto", schema)
    index.insert(subs)
    assert index.stats()["groups"] == 12
    assert "listed" in {path["path"] for path in index.plan()}
    events = rc.Events.from_rows(schema, [{"a": a, "b": a % 8, "c": a} for a in range(20)])
    check(index, subs, events)
    gone = [*range(0, 3_000, 40), *range(3_000, 3_030)]
    index.delete(gone)
    check(index, subs.select(np.setdiff1d(np.arange(3_040), gone)), events)


def test_which_boxes_are_led_by_their_lists():
    schema = schema_of()
    listed = written(range(0, 120, 2))
    common = dict.fromkeys(range(50), f"a in ({listed}) and b = 1")
    rare = {i: f"a in ({listed}) and b = {i}" for i in range(100, 600)}
    subs = rc.Subscriptions.parse(schema, {**common, **rare, 700: f"a in ({listed})"})
    pieces = into_pieces(subs, cuts=True, expands=False, lists=True)
    led = pieces.listing.pieces
    # nearly every event has one of these values: a rare value of another attribute tells more
    assert (led[:50] >= 0).all()
    assert (led[50:550] == -1).all()
    assert led[550] == 550
    assert pieces.checked.tolist() == [2] * 50 + [1] * 500 + [2]
    index = rc.open_index("auto", schema)
    index.insert(subs)
    events = rc.Events.from_rows(
        schema, [{"a": a, "b": b} for a in (0, 1, 2, 118, 119) for b in (1, 99, 100)]
    )
    assert check(index, subs, events) > 100


def test_sets_that_are_no_lists():
    schema = schema_of()
    wide = " or ".join(f"a between {k} and {k + 40}" for k in range(0, 50 * 60, 50))
    texts = {
        1: f"a not in ({written(range(0, 200, 2))})",
        2: wide,
        3: f"a is missing or a in ({written(range(0, 200, 2))})",
        4: f"a in ({written(range(SHORT - 1))}, 100)",
    }
    subs = rc.Subscriptions.parse(schema, texts)
    assert listed_values.measure_sets(subs.boxes).tolist() == [0, 0, 0, 0]
    whole = rc.Subscriptions.parse(schema, {1: f"a in ({written(range(0, 200, 2))})"}).boxes
    ends = whole._replace(set_lows=whole.set_lows.copy(), set_highs=whole.set_highs.copy())
    assert listed_values.measure_sets(ends).tolist() == [100]
    ends.set_lows[0], ends.set_highs[-1] = PRESENT, LAST
    assert listed_values.measure_sets(ends).tolist() == [0]


def test_lists_are_divided_where_places_would_not_do(monkeypatch):
    monkeypatch.setattr(listed_paths, "MOST_MEMBERS", 150)
    schema = schema_of()
    rng = np.random.default_rng(8)
    subs = rc.Subscriptions.parse(
        schema, {i: f"a in ({written(rng.choice(140, 40, replace=False))})" for i in range(10)}
    )
    index = rc.open_index("auto", schema)
    index.insert(subs)
    led = listed_paths.led_boxes(index._state.catalog.boxes, np.arange(10))
    assert [len(own.numbers) for own in led] == [3, 3, 3, 1]
    check(index, subs, rc.Events.from_rows(schema, [{"a": a} for a in range(142)]))


def test_a_memory_limit_is_kept_to():
    schema = schema_of()
    index = rc.open_index("auto", schema, memory_limit=20_000)
    subs = rc.Subscriptions.parse(schema, {i: f"a in ({written(range(0, 2_000, 2))})" for i in range(10)})
    with pytest.raises(rc.CapacityError, match="for 10 lists of 10,000 values"):
        index.insert(subs)


@pytest.mark.parametrize(
    ("array", "change", "word"),
    [
        ("sets", lambda a: a + 1, "sets that are lists"),
        ("sets", lambda a: a[::-1].copy(), "stand by sets"),
        ("starts", lambda a: a[::-1].copy(), "starts of lists of values"),
        ("starts", lambda a: np.concatenate([a[:-1], a[-1:] - 1]), "words are of lists"),
        ("wide", lambda a: a + 2, "widths of lists"),
        ("wide", lambda a: a + 1, "wide values are whole"),
        ("bases", lambda a: a[1:], "bases of lists"),
        ("on", lambda a: a + 3, "attributes of lists"),
        ("boxes", lambda a: a + 40, "boxes of lists"),
    ],
)
def test_lists_of_a_file_that_lead_astray_are_refused(array, change, word, tmp_path):
    schema = schema_of()
    texts = {i: f"a in ({written(range(i, 2 * (20 + i) + 1 + i, 2))})" for i in range(0, 40, 2)}
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    index.save(tmp_path / "index")
    meta, arrays = read_arrays(tmp_path / "index")
    name = f"catalog.said.lists.{array}"
    write_arrays(tmp_path / "other", meta, {**arrays, name: change(np.array(arrays[name]))})
    with pytest.raises(rc.StorageError, match=word):
        rc.load_index(tmp_path / "other")


@pytest.mark.parametrize("change", ["words", "boxes"])
def test_lists_of_a_file_are_looked_at_before_they_are_laid_out(change, tmp_path):
    schema = schema_of()
    texts = {i: f"a in ({written(range(0, 80, 2))})" for i in range(30)}
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, texts))
    index.save(tmp_path / "index")
    meta, arrays = read_arrays(tmp_path / "index")
    name = f"catalog.said.lists.{change}"
    write_arrays(tmp_path / "other", meta, {**arrays, name: np.array(arrays[name])[::-1].copy()})
    other = rc.load_index(tmp_path / "other")
    with pytest.raises(rc.StorageError, match=r"values of a list ascend|list leads a box"):
        other.insert(rc.Subscriptions.parse(other.schema, {77: "a = 1"}))


def test_a_file_in_which_lists_were_cut_is_read(monkeypatch, tmp_path):
    """A box per value, as layout 7 had them: what is added to it has the new form."""
    schema = schema_of()
    rng = np.random.default_rng(12)
    subs = rc.Subscriptions.parse(schema, {i: random_condition(rng, 60) for i in range(60)}, remarks=False)
    with monkeypatch.context() as patch:
        patch.setattr(AutoIndex, "sets", "cut")
        before = rc.open_index("auto", schema)
        before.insert(subs.select(np.arange(40)))
        before.save(tmp_path / "index")
    meta, arrays = read_arrays(tmp_path / "index")
    assert "catalog.said.lists.words" not in arrays
    write_arrays(tmp_path / "older", {**meta, "layout": 7}, arrays)
    # one of that time with cells on two attributes would be built again, which is not the question here
    monkeypatch.setitem(contract._CHANGED, 7, ())
    index = rc.load_index(tmp_path / "older")
    events = events_of(schema, rng, 30, 60)
    n_boxes = index.stats()["boxes"]
    check(index, subs.select(np.arange(40)), events)
    assert index.stats()["boxes"] == n_boxes > 1_000
    index.insert(subs.select(np.arange(40, 60)).reconciled(index.schema))
    check(index, subs, events)
    index.compact()
    assert index.stats()["boxes"] < 400
    check(index, subs, events)


def test_changes_one_by_one_equal_what_is_held():
    schema = schema_of()
    rng = np.random.default_rng(11)
    index, held = rc.open_index("auto", schema), {}
    events = events_of(schema, rng, 30, 60)
    for step in range(60):
        id = int(rng.integers(0, 25))
        if step % 3 == 2:
            index.delete([id])
            held.pop(id, None)
        else:
            subs = rc.Subscriptions.parse(schema, {id: random_condition(rng, 50)}, remarks=False)
            index.insert(subs)
            held[id] = subs
        if step % 6 == 5:
            want = match_held(held, events)
            assert rows(index.match(events)) == [set(ids) for ids in want]


def test_both_ends_in_one_array_are_values():
    """Lists are measured by how many spans they have where both ends are the same memory, and only there."""
    ends = np.arange(0, 9 * SHORT, 3)
    ends[2 * SHORT] = MISSING
    starts = np.array([0, SHORT, 2 * SHORT - 1, 2 * SHORT, 3 * SHORT])
    n = len(starts) - 1
    boxes = sparse.SparseBoxes(
        np.arange(n, dtype=np.int32), np.arange(n + 1), np.full(n, sparse.SET, np.int32),
        np.zeros(n, np.int64), np.zeros(n, np.int64), np.arange(n), starts, ends, ends,
    )  # fmt: skip
    want = [SHORT, 0, 0, 0]  # too few of them, one, and one that a missing value may be
    assert listed_values.measure_sets(boxes).tolist() == want
    assert listed_values.measure_sets(boxes._replace(set_lows=ends[:])).tolist() == want
    assert listed_values.measure_sets(boxes._replace(set_lows=ends.copy())).tolist() == want
    # one place further on in the same memory: spans of four values
    moved = boxes._replace(set_lows=ends[:-1], set_highs=ends[1:])
    assert listed_values.measure_sets(moved)[0] == 4 * SHORT
