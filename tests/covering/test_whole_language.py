"""Covers among conditions of the whole language: true by their meaning, and found where they can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from meanings import EVENTS, conditions, matches

pytestmark = [pytest.mark.without_kernels, pytest.mark.filterwarnings("ignore::rangecast.RangecastWarning")]


def schema_of():
    return rc.Schema(
        rc.Int("a"), rc.Int("b"), rc.Float("x"), rc.Timestamp("at"), rc.Text("name"), rc.Category("title"),
        rc.Tags("tags"), rc.Category("ip"), rc.Bool("ok"), rc.Point("spot"),
    )  # fmt: skip


@settings(max_examples=12)
@given(st.lists(conditions(), min_size=2, max_size=6), st.lists(EVENTS, min_size=1, max_size=12))
def test_no_cover_is_false(some, rows):
    schema = schema_of()
    try:
        subs = rc.Subscriptions.parse(schema, {k: text for k, (text, _) in enumerate(some)})
        index = rc.CoverIndex(schema)
        index.insert(subs)
    except rc.CapacityError:  # sets that are too many boxes of one interval
        return
    alone, together = index.covers(subs).tolist(), index.covers_together(subs)
    for row in matches(some, rows):
        for k in row:
            assert alone[k] < 0 or alone[k] in row, (some[k][0], some[alone[k]][0])
            assert not len(together[k]) or set(together[k].tolist()) & set(row), some[k][0]
    kept = rc.covering.reduce(subs).kept.ids.values.tolist()
    for row in matches(some, rows):
        assert not row or set(row) & set(kept)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("a - b > 3", "a > b + 5"),
        ("b - a < -3", "a - b between 4 and 9"),
        ("a * b > 10", "a * b > 20 and a = 1"),
        ("hour(at) between 9 and 17", "hour(at) in (9, 12) and a = 1"),
        ("title starts with 'a'", "title starts with 'ab'"),
        ("title starts with 'abcdefgh'", "title like 'abcdefghij%'"),
        ("title ends with 'z'", "title like '%yz'"),
        ("name >= 'b'", "name between 'c' and 'd'"),
        ("lower(title) < 'm'", "lower(title) = 'b'"),
        ("ip in '10.0.0.0/8'", "ip in '10.1.0.0/16'"),
        ("ip in 'fd00::/8'", "ip in 'fd00:1::/64'"),
        ("title contains 'ab'", "title contains 'ab' and a > 1"),
        ("tags has 'x'", "tags has 'x' and a > 1"),
        ("tags has any ('x', 'y')", "tags has 'y'"),
        ("spot within 1 km of (2, 3)", "spot within 1 km of (2, 3) and a > 1"),
        ("spot in box (0, 0, 9, 9)", "spot within 1 km of (2, 3)"),
        ("spot in box (0, 0, 9, 9)", "spot in polygon 'POLYGON((1 1, 2 1, 2 2, 1 1))'"),
    ],
)
def test_what_can_be_decided_is_found(wide, narrow):
    schema = schema_of()
    subs = rc.Subscriptions.parse(schema, {1: wide, 2: narrow})
    index = rc.CoverIndex(schema)
    index.insert(subs)
    assert index.covers(subs).tolist() == [-1, 1]
