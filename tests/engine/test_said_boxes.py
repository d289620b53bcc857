"""Boxes with sets in `scan` and `auto`: exact, without products, through files, changes and both paths."""

import pickle

import numpy as np
import pytest

import oracle
import rangecast as rc
from rangecast.engine import catalog
from rangecast.model.boxes import from_dense

KINDS = ("scan", "auto")


def rows_of(matches):
    return [set(matches.row(e).tolist()) for e in range(len(matches))]


def check(index, subs, events):
    """The index finds what the oracle does, each subscription once, by every way of asking."""
    want = oracle.match_boxes(subs, events)
    for threads in (1, 2):
        found = index.match(events, threads=threads)
        assert rows_of(found) == want
        assert found.n_pairs == sum(map(len, want))
    assert [set(ids.tolist()) for _, ids in index.match_each(events)] == want
    return sum(map(len, want))


def random_condition(rng, n_values):
    """A conjunction, sometimes two, of sets of every size on four attributes."""

    def predicate(j):
        n = int(rng.choice([1, 2, 3, 40, 400]))
        values = ",".join(map(str, rng.integers(0, n_values, n)))
        return f"a{j} {rng.choice(['in', 'in', 'not in'])} ({values})"

    def conjunction():
        chosen = rng.choice(4, rng.integers(1, 4), replace=False)
        return " and ".join(predicate(j) for j in chosen)

    return " or ".join(conjunction() for _ in range(rng.integers(1, 3)))


def events_of(schema, rng, n, n_values):
    columns = {name: rng.integers(0, n_values, n) for name in schema.names}
    return rc.Events.from_arrays(schema, columns)


@pytest.mark.parametrize("kind", KINDS)
def test_random_sets_equal_the_oracle_through_changes_and_files(kind, tmp_path, leg):
    rng = np.random.default_rng(17)
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(4)))
    texts = {i: random_condition(rng, 60) for i in range(120)}
    subs = rc.Subscriptions.parse(schema, texts)
    events = events_of(schema, rng, 5 if leg == "nojit" else 40, 70)
    index = rc.open_index(kind, schema)
    for first in range(0, 120, 40):
        index.insert(subs.select(np.arange(first, first + 40)))
    assert check(index, subs, events) > 5 * len(events)
    index.save(tmp_path / "index")
    for other in (pickle.loads(pickle.dumps(index)), rc.load_index(tmp_path / "index")):
        check(other, subs, events)
        back = other.subscriptions()
        assert back.n_boxes == subs.n_boxes
        assert oracle.match_boxes(back, events) == oracle.match_boxes(subs, events)
        # replaced, deleted and built anew, on arrays that came from a file
        fresh = rc.Subscriptions.parse(other.schema, {i: random_condition(rng, 60) for i in range(100, 130)})
        other.insert(fresh)
        other.delete(list(range(50)))
        held = rc.Subscriptions.concat([subs.select(np.arange(50, 100)).reconciled(other.schema), fresh])
        check(other, held, events)
        other.compact()
        check(other, held, events)


@pytest.mark.once
def test_a_hundred_thousand_strings():
    schema = rc.Schema(rc.Category("symbol"), rc.Int("a"))
    # every other one is listed, so that no two codes touch
    schema["symbol"].encode([f"s{i}" for i in range(200_000)], grow=True)
    listed = ",".join(f"'s{i}'" for i in range(0, 200_000, 2))
    texts = {1: f"symbol in ({listed})", 2: "symbol = 's3'", 3: f"symbol in ({listed}) and a not in (1, 5)"}
    subs = rc.Subscriptions.parse(schema, texts)
    assert subs.n_boxes == 3
    symbols = ["s0", "s1", "s2", "s3", "s199998", "s199999", "other"]
    events = rc.Events.from_rows(schema, [{"symbol": s, "a": a} for s in symbols for a in (0, 1)])
    for kind in KINDS:
        index = rc.open_index(kind, schema)
        index.insert(subs)
        # a code is 8 bytes: a few ends for each value that was listed
        assert index.stats()["bytes"] < 200_000 * (17 if kind == "scan" else 150)
        check(index, subs, events)


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_times_not_equal(kind, leg):
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(20)))
    text = " and ".join(f"a{j} != {j % 3}" for j in range(20))
    subs = rc.Subscriptions.parse(schema, {i: text.replace("!= 0", f"!= {i}") for i in range(30)})
    rng = np.random.default_rng(3)
    n = 40 if leg == "nojit" else 200
    events = rc.Events.from_arrays(schema, {f"a{j}": rng.integers(0, 40, n) for j in range(20)})
    index = rc.open_index(kind, schema)
    index.insert(subs)
    assert check(index, subs, events) > n // 2
    assert index.stats()["boxes"] == 30


@pytest.mark.once
@pytest.mark.parametrize("kind", KINDS)
def test_not_in_five_thousand(kind):
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    odd = ",".join(map(str, range(1, 10_000, 2)))
    even = ",".join(map(str, range(0, 40_000, 8)))
    subs = rc.Subscriptions.parse(
        schema, {1: f"a not in ({odd}) and b not in ({even})", 2: f"a not in ({even})"}
    )
    rng = np.random.default_rng(4)
    events = rc.Events.from_arrays(schema, {"a": rng.integers(0, 40, 300), "b": rng.integers(0, 40, 300)})
    index = rc.open_index(kind, schema)
    index.insert(subs)
    assert check(index, subs, events) > 100


def test_what_a_box_is_cut_along():
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    listed = ",".join(map(str, range(0, 200, 2)))
    wide = ",".join(map(str, range(0, 2_000, 20)))
    texts = [
        "a != 1 and b != 2",  # few pieces: all of them, and nothing is left to be checked
        f"a in ({listed})",  # a piece per value
        f"a in ({listed}) and b != 3",  # the list of values, and the rest is checked
        f"a not in ({wide})",  # no list of values: its hull, checked
        f"a in ({listed}) and b in (1, 3, 5)",  # the shorter list
    ]
    subs = rc.Subscriptions.parse(schema, dict(enumerate(texts)))
    dense = catalog.into_pieces(subs, cuts=True, expands=True)
    pieces = catalog.into_pieces(subs, cuts=True, expands=False)
    assert np.bincount(pieces.bounds.owners).tolist() == [4, 100, 100, 1, 3]
    assert pieces.checked.tolist() == [0, 0, 1, 1, 1]
    for one, other in zip(pieces.bounds, from_dense(dense.bounds), strict=True):
        assert np.array_equal(one, other)
    hulls = catalog.into_pieces(subs, cuts=False, expands=True)
    assert np.bincount(hulls.bounds.owners).tolist() == [4, 1, 1, 1, 1]
    assert hulls.checked.tolist() == [0, 1, 1, 1, 1]


def test_a_long_list_in_a_wide_schema_is_not_cut():
    n = catalog.MOST // 500 + 2
    schema = rc.Schema(*(rc.Int(f"a{j}") for j in range(500)))
    subs = rc.Subscriptions.parse(schema, {1: f"a7 in ({','.join(map(str, range(0, 2 * n, 2)))})"})
    pieces = catalog.into_pieces(subs, cuts=True, expands=True)
    assert (len(pieces.bounds.owners), pieces.checked.tolist()) == (1, [1])
    # by entry the width of the schema does not count
    pieces = catalog.into_pieces(subs, cuts=True, expands=False)
    assert (len(pieces.bounds.owners), pieces.checked.tolist()) == (n, [0])


@pytest.mark.parametrize("kind", KINDS)
def test_hulls_that_meet_are_reported_once(kind):
    """The sets of the two boxes are disjoint, their hulls are not."""
    schema = rc.Schema(rc.Int("a"), rc.Int("b"), rc.Int("c"))
    odd, even = (",".join(map(str, range(k, 90, 2))) for k in (1, 0))
    text = f"a not in ({odd}) and b not in ({odd}) and c < 50 or a in ({odd}) and b not in ({even})"
    subs = rc.Subscriptions.parse(schema, {1: text})
    assert subs.overlapping().tolist() == [0]
    rng = np.random.default_rng(6)
    events = events_of(schema, rng, 200, 90)
    index = rc.open_index(kind, schema)
    index.insert(subs)
    assert check(index, subs, events) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_explain_says_sets(kind):
    schema = rc.Schema(rc.Int("a"), rc.Int("b"))
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "a in (1, 5) and b != 3", 2: "a = 1"}))
    told = index.explain(1, {"a": 1, "b": 3})
    assert not told
    assert [(p.attribute, p.wanted, p.holds) for p in told.boxes[0]] == [
        ("a", "in (1, 5)", True),
        ("b", "!= 3", False),
    ]
    assert index.explain(2, {"a": 1})
