"""Lists of one type: the codes that a column of the same values has, or left to it."""

import collections
import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from rangecast.types.attributes import MISSING, list_codes

pytestmark = pytest.mark.without_kernels
VALUES = {
    "int": st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), -(2**63) + 1, 2**63, 10**30])),
    "float": st.floats(),
    "str": st.one_of(st.sampled_from(["IBM", "HAL", "", "true"]), st.text(max_size=3)),
    "bool": st.booleans(),
    "datetime": st.datetimes(
        dt.datetime(1, 1, 3),
        dt.datetime(9999, 1, 1),
        timezones=st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-5, minutes=30))]),
    ),
}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_lists_have_the_codes_of_columns(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2, unique=True))
    items = data.draw(st.lists(st.one_of(st.none(), *(VALUES[kind] for kind in kinds)), max_size=8))
    for attribute in (
        rc.Int("a"),
        rc.Float("a"),
        rc.Category("a", ["IBM", "true"]),
        rc.Timestamp("a"),
        rc.Bool("a"),
    ):
        found = list_codes(attribute, items)
        encoded = attribute.encode(np.array([*items, None], object)[:-1])
        if found is not None:
            assert not len(encoded.bad)
            assert found.tolist() == encoded.codes.tolist()
        events = rc.Events.from_rows(
            rc.Schema(attribute), [{"a": item} for item in items], on_error="collect"
        )
        assert [row.row for row in events.rejected] == encoded.bad.tolist()
        good = np.delete(encoded.codes, encoded.bad)
        assert events.codes[0].tolist() == good.tolist()


def test_what_is_left_to_columns():
    assert list_codes(rc.Int("a"), [1, 2**63]) is None
    assert list_codes(rc.Int("a"), [1, -(2**63)]) is None
    assert list_codes(rc.Int("a"), [None, -(2**63)]) is None
    assert list_codes(rc.Int("a"), [True]) is None
    assert list_codes(rc.Int("a"), []) is None
    assert list_codes(rc.Category("a"), ["\ud800"]) is None
    assert list_codes(rc.Category("a"), [None, "\ud800"]) is None
    assert list_codes(rc.Timestamp("a", unit="s"), [dt.datetime(2026, 1, 1)]) is None
    assert list_codes(rc.Float("a"), [1.5, None, float("nan")]).tolist()[1:] == [MISSING, MISSING]


def test_rows_with_defaults_are_not_changed():
    schema = rc.Schema(rc.Int("a"), rc.Category("c"))
    row = collections.defaultdict(lambda: 5, c="x")
    events = rc.Events.from_rows(schema, [row, {"a": 1}])
    assert events.codes[0].tolist() == [MISSING, 1]
    assert dict(row) == {"c": "x"}
    assert events.value("c", 0) == "x"


def test_strangers_of_lists_are_looked_up_later():
    schema = rc.Schema(rc.Category("c"))
    index = rc.open_index("scan", schema)
    events = rc.Events.from_rows(schema, [{"c": "x"}, {}, {"c": "y"}])
    index.insert(rc.Subscriptions.parse(schema, {1: "c = 'y'"}))
    assert index.match(events).counts.tolist() == [0, 0, 1]
