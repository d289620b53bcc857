"""Matching while another thread writes: the state is taken first, then the codes of the events.

Each test lets the writer come in at the worst moment, always: no thread, no clock.
"""

from __future__ import annotations

import contextlib

import pytest

import rangecast as rc

INDEXES = ["scan", "auto", "rtree"]


def with_own_schema(words):
    schema = rc.Schema(rc.Category("c"))
    return rc.Events.from_arrays(schema, {"c": words})


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("own", [True, False])
def test_a_string_that_comes_right_before_the_state_is_known(kind, own, monkeypatch):
    schema = rc.Schema(rc.Category("c"))
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "c != 'v'"}))
    events = with_own_schema(["w", "v"]) if own else rc.Events.from_arrays(schema, {"c": ["w", "v"]})
    plain = index._reading

    @contextlib.contextmanager
    def reading():
        index.insert(rc.Subscriptions.parse(schema, {2: "c != 'w'", 3: "c = 'w'"}))
        with plain() as taken:
            yield taken

    monkeypatch.setattr(index, "_reading", reading)
    found = index.match(events).sort()
    assert [found.row(e).tolist() for e in range(2)] == [[1, 3], [2]]
    assert index.count(events).tolist() == [2, 1]


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("own", [True, False])
def test_a_string_that_comes_with_the_state_is_known(kind, own, monkeypatch):
    """`c != 'w'` must not match c = 'w', though nobody had named 'w' when the match began."""
    schema = rc.Schema(rc.Category("c"))
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "c != 'v'"}))
    events = with_own_schema(["w", "v"]) if own else rc.Events.from_arrays(schema, {"c": ["w", "v"]})
    plain = index._prepare

    def prepare(codes):
        plain(codes)
        index.insert(rc.Subscriptions.parse(schema, {2: "c != 'w'", 3: "c = 'w'"}))

    monkeypatch.setattr(index, "_prepare", prepare)
    found = index.match(events).sort()
    assert [found.row(e).tolist() for e in range(2)] == [[1, 3], [2]]


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("own", [True, False])
def test_events_one_by_one_see_what_came_before_them(kind, own, monkeypatch):
    schema = rc.Schema(rc.Category("c"))
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "c != 'v'"}))
    events = with_own_schema(["w", "w"]) if own else rc.Events.from_arrays(schema, {"c": ["w", "w"]})
    each = index.match_each(events)
    row, ids = next(each)
    assert (row, ids.tolist()) == (0, [1])
    plain = index._reading
    came = []

    @contextlib.contextmanager
    def reading():
        if not came:
            came.append(True)
            index.insert(rc.Subscriptions.parse(schema, {2: "c != 'w'", 3: "c = 'w'"}))
        with plain() as taken:
            yield taken

    monkeypatch.setattr(index, "_reading", reading)
    row, ids = next(each)
    assert (row, sorted(ids.tolist())) == (1, [1, 3])


@pytest.mark.parametrize("kind", INDEXES)
def test_a_string_that_comes_after_the_state_changes_nothing(kind, monkeypatch):
    """The other way round: a code that no subscription of the state names lies where the unknown one does."""
    schema = rc.Schema(rc.Category("c"))
    index = rc.open_index(kind, schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "c != 'v'", 2: "c in ('v', 'u')", 3: "c is present"}))
    events = with_own_schema(["w", "v"])
    plain = index._reading

    @contextlib.contextmanager
    def reading():
        with plain() as taken:
            rc.Subscriptions.parse(schema, {4: "c = 'w'"})  # named, but not inserted
            yield taken

    monkeypatch.setattr(index, "_reading", reading)
    found = index.match(events).sort()
    assert [found.row(e).tolist() for e in range(2)] == [[1, 3], [2, 3]]
