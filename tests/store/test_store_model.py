"""A store against a plain dict: any sequence of changes, expiries, holds and compactions."""

import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_boxes
from rangecast.store.change import gathered

pytestmark = pytest.mark.without_kernels

SCHEMA = rc.Schema(rc.Int("price", 0, 40))
EVENTS = rc.Events.from_arrays(SCHEMA, {"price": np.arange(-1, 42, 3)})
# a whole life of a store each: a quarter of what the leg asks for
EXAMPLES = settings.default.max_examples // 4
IDS = st.integers(0, 11)
ENDS = st.sampled_from([0, 0, 1, 2, 3, 5, 8])
ROWS = st.dictionaries(IDS, st.tuples(st.integers(0, 40), st.integers(0, 12), ENDS), max_size=6)

STEP = st.one_of(
    st.tuples(st.just("apply"), ROWS, st.sets(IDS, max_size=4)),
    st.tuples(st.just("apply"), ROWS, st.sets(IDS, max_size=4)),
    st.tuples(st.just("delete"), st.sets(IDS, max_size=5)),
    st.tuples(st.just("expire"), st.integers(0, 8)),
    st.tuples(st.just("hold"), st.sampled_from("ab"), st.integers(0, 40)),
    st.tuples(st.just("release"), st.sampled_from("ab")),
    st.tuples(st.just("compact"), st.none() | st.integers(0, 40)),
    st.tuples(st.just("snapshot"), st.integers(0, 40)),
    st.tuples(st.just("open")),
)


class Model:
    """What a store must hold: per version a dict of id -> (low, high, end); who holds what; the oldest."""

    def __init__(self, textual):
        self.versions = [{}]
        self.holds = {}
        self.oldest = 0
        self.textual = textual

    @property
    def newest(self):
        return len(self.versions) - 1

    def id(self, number):
        return f"s{number}" if self.textual else number

    def become(self, state, made):
        if made:
            self.versions.append(state)
        return self.newest


def subscriptions(model, rows):
    ids = [model.id(i) for i in rows]
    bounds = np.array([(low, low + width, end) for low, width, end in rows.values()], np.int64).reshape(-1, 3)
    return rc.Subscriptions.from_arrays(SCHEMA, ids, bounds[:, :1], bounds[:, 1:2]), bounds[:, 2]


def take(store, model, step):
    kind, *given_ = step
    living = model.versions[-1]
    if kind == "apply":
        rows, gone = given_
        subs, ends = subscriptions(model, rows)
        version = store.apply(subs, [model.id(i) for i in sorted(gone)], expires=ends)
        state = {i: row for i, row in living.items() if i not in gone} | rows
        assert version == model.become(state, bool(rows or gone))
    elif kind == "delete":
        unknown = store.delete([model.id(i) for i in sorted(given_[0])])
        assert unknown == [model.id(i) for i in sorted(given_[0]) if i not in living]
        model.become({i: row for i, row in living.items() if i not in given_[0]}, given_[0] & set(living))
    elif kind == "expire":
        state = {i: row for i, row in living.items() if not 0 < row[2] <= given_[0]}
        version = store.expire(given_[0])
        assert version == model.become(state, len(state) < len(living))
    elif kind == "hold":
        name, version = given_
        if model.oldest <= version <= model.newest:
            assert store.hold(name, version) == version
            model.holds[name] = version
        elif version > model.newest:
            with pytest.raises(rc.StorageError, match="has versions up to"):
                store.hold(name, version)
    elif kind == "release":
        assert store.release(given_[0]) == (model.holds.pop(given_[0], None) is not None)
    elif kind == "compact":
        least = min([model.newest, *model.holds.values()])
        keep = least if given_[0] is None else given_[0]
        if model.oldest <= keep <= least:
            store.compact(given_[0])
            model.oldest = max(model.oldest, keep)
        elif keep > least:
            with pytest.raises(rc.StorageError, match=r"is held by|cannot keep"):
                store.compact(given_[0])
    elif kind == "snapshot" and model.oldest <= given_[0] <= model.newest:
        store.snapshot(given_[0])
    return rc.Store.open(store.path) if kind == "open" else store


def check(index, model, state):
    subs, _ = subscriptions(model, state)
    matches = index.match(EVENTS)
    assert [set(matches.row(e).tolist()) for e in range(len(EVENTS))] == match_boxes(subs, EVENTS)


@pytest.mark.parametrize(
    ("kind", "textual", "place"),
    [("scan", False, "folder"), ("auto", True, "folder"), ("scan", True, "bucket")],
)
@settings(max_examples=EXAMPLES)
@given(steps=st.lists(STEP, min_size=4, max_size=24), order=st.randoms(use_true_random=False))
def test_a_store_is_a_dict_with_versions(tmp_path_factory, kind, textual, place, steps, order):
    home = f"memory://{uuid.uuid4().hex}" if place == "bucket" else str(tmp_path_factory.mktemp("model"))
    store = rc.Store.open(f"{home}/s", SCHEMA, index=kind)
    model = Model(textual)
    for step in steps:
        store = take(store, model, step)
        assert store.version == model.newest
        assert {hold.name: hold.version for hold in store.holds()} == model.holds
    living = model.versions[-1]
    names = [model.id(i) for i in range(12)]
    assert store.expires_at(names).tolist() == [living[i][2] if i in living else 0 for i in range(12)]
    assert store.next_expiry() == min((row[2] for row in living.values() if row[2]), default=None)
    assert store.oldest <= model.oldest
    follower = rc.Follower(store.path)
    wanted = list(range(model.oldest, model.newest + 1)) * 2
    order.shuffle(wanted)
    for version in wanted[:12]:
        check(follower.at(version), model, model.versions[version])
        check(store.index(version), model, model.versions[version])
    assert store.verify() == []


@settings(max_examples=EXAMPLES)
@given(
    steps=st.lists(st.tuples(ROWS, st.sets(IDS, max_size=4)), min_size=1, max_size=10),
    most=st.integers(1, 30),
    textual=st.booleans(),
)
def test_changes_gathered_do_what_they_did_one_by_one(tmp_path_factory, steps, most, textual):
    store = rc.Store.open(tmp_path_factory.mktemp("gathered") / "s", SCHEMA, index="scan")
    model = Model(textual)
    for rows, gone in steps:
        take(store, model, ("apply", rows, gone))
    index = rc.open_index("scan", SCHEMA)
    reached = []
    for step in gathered(store.changes(0), most):
        step.apply_to(index)
        reached.append(step.version)
        check(index, model, model.versions[step.version])
    assert reached[-1:] == [model.newest] * bool(model.newest)
    assert sorted(set(reached)) == reached
