"""Loading subscriptions: forms, bounds, and what happens to bad rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from oracle import match_values, rows_of
from rangecast.types.attributes import LAST, MISSING, PRESENT


@pytest.fixture
def schema():
    return rc.Schema(rc.Int("price", 0, 100), rc.Category("symbol"))


BOUND = st.one_of(st.none(), st.integers(-3, 5))


@given(st.data())
def test_bounds_mean_what_they_say(data):
    schema = rc.Schema(rc.Int("a"), rc.Float("b"))
    n = data.draw(st.integers(0, 6))
    lows = [[data.draw(BOUND), data.draw(BOUND)] for _ in range(n)]
    highs = [[data.draw(BOUND), data.draw(BOUND)] for _ in range(n)]
    for low, high in zip(lows, highs, strict=True):
        for j in range(2):
            if low[j] is not None and high[j] is not None and low[j] > high[j]:
                low[j], high[j] = high[j], low[j]
    rows = [{"a": data.draw(BOUND), "b": data.draw(BOUND)} for _ in range(4)]
    ids = list(range(n))
    shape = (n, 2)
    subs = rc.Subscriptions.from_arrays(
        schema, ids, np.array(lows, object).reshape(shape), np.array(highs, object).reshape(shape)
    )
    index = rc.open_index("scan", schema)
    index.insert(subs)
    want = [sorted(row) for row in match_values(schema, ids, lows, highs, rows)]
    assert rows_of(index.match(rc.Events.from_rows(schema, rows))) == want


def test_forms_agree(schema):
    lows = {"price": [1, None], "symbol": ["IBM", None]}
    highs = {"price": [None, 9], "symbol": ["IBM", None]}
    subs = rc.Subscriptions.from_arrays(schema, [1, 2], lows, highs)
    table = pa.table({"id": [1, 2], "price_low": [1, None], "price_high": [None, 9], "symbol": ["IBM", None]})
    rows = [{"id": 1, "price_low": 1, "symbol": "IBM"}, {"id": 2, "price_high": 9}]
    matrix = np.array([[1, "IBM"], [None, None]], object), np.array([[None, "IBM"], [9, None]], object)
    for other in (
        rc.Subscriptions.from_arrow(schema, table),
        rc.Subscriptions.from_pandas(schema, table.to_pandas()),
        rc.Subscriptions.from_rows(schema, rows),
        rc.Subscriptions.from_arrays(schema, [1, 2], *matrix),
        rc.Subscriptions.parse(schema, {1: "price >= 1 and symbol = 'IBM'", 2: "price <= 9"}),
        rc.Subscriptions.parse(schema, [(1, "price >= 1 and symbol = 'IBM'"), (2, "price <= 9")]),
    ):
        assert np.array_equal(other.lows, subs.lows)
        assert np.array_equal(other.highs, subs.highs)
    assert subs.lows.tolist() == [[1, PRESENT], [1, MISSING]]
    assert subs.highs.tolist() == [[LAST, 9], [1, LAST]]


def test_matrix_of_lists_keeps_whole_numbers_exact():
    schema = rc.Schema(rc.Int("a"))
    big = 2**62 + 1
    subs = rc.Subscriptions.from_arrays(schema, [1, 2], [[big], [None]], [[big], [3]])
    assert subs.lows[0].tolist() == [big, PRESENT]


def test_condition_column(schema):
    table = pa.table({"id": ["x", "y"], "condition": ["price < 5", "symbol = 'A'"]})
    subs = rc.Subscriptions.from_arrow(schema, table)
    assert (len(subs), subs.ids[1]) == (2, "y")
    rows = [{"key": 4, "rule": "price < 5"}]
    assert len(rc.Subscriptions.from_rows(schema, rows, id="key", condition="rule")) == 1


BAD_LOADS = [
    (
        [1, 2],
        [[5, None], [7, None]],
        [[9, None], [3, None]],
        "subscription 2: low must not exceed high on 'price', got [7, 3] (1 of 2",
    ),
    ([1, 1], [[5, None]] * 2, [[9, None]] * 2, "subscription 1: this id stands in an earlier row"),
    (
        ["a", "b"],
        [["x", None], [1, None]],
        [[9, None]] * 2,
        "subscription 'a': 'price' is an int, got the string 'x'",
    ),
    ([1], [[None, "A"]], [[None, "B"]], "low must equal high on the category 'symbol', got [A, B]"),
    ([1], [[None, "A"]], [[None, None]], "low must equal high on the category 'symbol'"),
    ([1, 2], [[5, None]], [[9, None]], "must have one row per id, got 1 for 2 ids"),
    ([1], [[5]], [[9]], "lows must be (n, 2) values or a dict of columns, got (1, 1)"),
    (
        [1.5],
        [[5, None]],
        [[9, None]],
        "row 0: a subscription's id must be an int64 or a string, got the number 1.5",
    ),
    ([1, "a"], [[5, None]] * 2, [[9, None]] * 2, "all whole numbers or all strings, got both"),
    ([1, None], [[5, None]] * 2, [[9, None]] * 2, "row 1: a subscription must have an id, got null"),
]


@pytest.mark.parametrize(("ids", "lows", "highs", "message"), BAD_LOADS, ids=range(len(BAD_LOADS)))
def test_bad_loads_raise(schema, ids, lows, highs, message):
    with pytest.raises(rc.SubscriptionError) as caught:
        rc.Subscriptions.from_arrays(schema, ids, np.array(lows, object), np.array(highs, object))
    assert message in str(caught.value)


def test_collect_sets_bad_rows_aside(schema):
    lows = {"price": [1, 9, "x", 4, 5], "symbol": ["A", None, None, 5, None]}
    highs = {"price": [3, 2, None, 6, 7], "symbol": ["A", None, None, None, None]}
    subs = rc.Subscriptions.from_arrays(schema, [10, 11, 12, 13, 10], lows, highs, on_error="collect")
    assert subs.ids.values.tolist() == [10]
    assert [(r.row, r.id) for r in subs.rejected] == [(1, 11), (2, 12), (3, 13), (4, 10)]
    assert "low must not exceed high" in subs.rejected[0].reason
    assert "got the string 'x'" in subs.rejected[1].reason
    assert "is a category, got 5" in subs.rejected[2].reason
    assert "earlier row" in subs.rejected[3].reason


def test_collect_takes_bad_ids(schema):
    subs = rc.Subscriptions.parse(schema, ids=[1, None, 2.5, 3], texts=["price < 1"] * 4, on_error="collect")
    assert subs.ids.values.tolist() == [1, 3]
    assert [(r.row, r.id) for r in subs.rejected] == [(1, None), (2, 2.5)]
    for spare in (0, ""):  # what stands in for a bad id is nobody's id
        ids = [None, spare, None, type(spare)(7), type(spare)(7)]
        subs = rc.Subscriptions.parse(schema, ids=ids, texts=["price < 1"] * 5, on_error="collect")
        assert (subs.ids[0], len(subs), [r.row for r in subs.rejected]) == (spare, 2, [0, 2, 4])


def test_parse_collects(schema):
    texts = {1: "price < 5", 2: "price <", 3: "", 4: "cost > 1", 5: "symbol in ('A','B')", 6: "price = 'x'"}
    subs = rc.Subscriptions.parse(schema, texts, on_error="collect")
    assert subs.ids.values.tolist() == [1, 5]
    assert subs.owners.tolist()[0] == 0
    assert [r.id for r in subs.rejected] == [2, 3, 4, 6]
    with pytest.raises(
        rc.SubscriptionError, match=r"(?s)subscription 2: .*\(4 of 6 subscriptions\)"
    ) as caught:
        rc.Subscriptions.parse(schema, texts)
    assert isinstance(caught.value.__cause__, rc.LanguageError)


def test_parse_rejects_what_is_no_text(schema):
    subs = rc.Subscriptions.parse(schema, {1: None, 2: "price < 5", 3: 7}, on_error="collect")
    assert subs.ids.values.tolist() == [2]
    assert [r.id for r in subs.rejected] == [1, 3]


def test_contradiction_has_no_box(schema):
    subs = rc.Subscriptions.parse(schema, {1: "price > 5 and price < 3", 2: "price = 1"})
    assert (len(subs), subs.n_boxes) == (2, 1)
    index = rc.open_index("scan", schema)
    index.insert(subs)
    assert len(index) == 2
    assert index.explain(1, {"price": 4}).boxes == []
    assert index.delete([1]) == []


def test_wrong_calls(schema):
    with pytest.raises(rc.SubscriptionError, match="on_error must be 'raise' or 'collect', got 'skip'"):
        rc.Subscriptions.parse(schema, {1: "price < 5"}, on_error="skip")
    with pytest.raises(rc.SubscriptionError, match="parse takes conditions, or ids= and texts="):
        rc.Subscriptions.parse(schema)
    with pytest.raises(rc.SubscriptionError, match="must have the id column 'id', got x"):
        rc.Subscriptions.from_arrow(schema, pa.table({"x": [1]}))
    with pytest.raises(
        rc.SubscriptionError, match="must have a condition column, or bounds such as price_low"
    ):
        rc.Subscriptions.from_arrow(schema, pa.table({"id": [1]}))
    with pytest.raises(rc.SchemaError, match="unknown attribute 'cost'"):
        rc.Subscriptions.from_arrays(schema, [1], {"cost": [1]}, {})
    with pytest.raises(rc.SubscriptionError, match="insert takes Subscriptions, got dict"):
        rc.open_index("scan", schema).insert({1: "price < 5"})
    with pytest.raises(rc.UnknownIndexError, match="no index is called 'btree'; there are "):
        rc.open_index("btree", schema)
    with pytest.raises(rc.OptionError, match="index 'scan': got an unexpected keyword argument 'size'"):
        rc.open_index("scan", schema, size=5)
    boxes = np.zeros((2, 2), np.int64)
    with pytest.raises(rc.SubscriptionError, match="owners must ascend"):
        rc.Subscriptions(schema, [1, 2], boxes, boxes, np.array([1, 0], np.int32))


def test_other_schema_objects(schema):
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "symbol = 'A'"}))
    same = rc.Schema(rc.Int("price", 0, 100), rc.Category("symbol", ["A", "B"]))
    index.insert(rc.Subscriptions.parse(same, {2: "symbol = 'B'"}))
    assert schema["symbol"].vocabulary.words() == ["A", "B"]
    other = rc.Schema(rc.Int("price", 0, 100), rc.Category("symbol", ["B", "A"]))
    with pytest.raises(rc.SchemaError, match="another schema object, whose 'symbol' has other codes"):
        index.insert(rc.Subscriptions.parse(other, {3: "symbol = 'B'"}))
    with pytest.raises(rc.SchemaError, match="subscriptions must have the attributes"):
        index.insert(rc.Subscriptions.parse(rc.Schema(rc.Int("x")), {3: "x = 1"}))


def test_select(schema):
    subs = rc.Subscriptions.parse(schema, {1: "price in (1, 5)", 2: "price = 9", 3: "price != 4"})
    some = subs.select([2, 0])
    assert some.ids.values.tolist() == [3, 1]
    assert some.owners.tolist() == [0, 1]
    assert some.dense().owners.tolist() == [0, 0, 1, 1]
    assert some.dense().lows[0].tolist() == [PRESENT, 5, 1, 5]
    assert len(subs.select(np.array([False, True, False]))) == 1
    assert len(subs.select([])) == 0


def test_pandas_index_is_not_a_column(schema):
    frame = pd.DataFrame({"id": [5], "price_low": [1], "price_high": [2]}, index=["row"])
    assert rc.Subscriptions.from_pandas(schema, frame).ids.values.tolist() == [5]


def test_a_bad_row_takes_nothing_from_a_later_good_one():
    schema = rc.Schema(rc.Int("price"))
    texts = ["price >", "price > 5", "price > 6", "price <", "price < 9"]
    for ids in ([1, 1, 1, 2, 3], ["a", "a", "a", "b", "c"]):
        subs = rc.Subscriptions.parse(schema, ids=ids, texts=texts, on_error="collect")
        assert [subs.ids[row] for row in range(len(subs))] == [ids[1], ids[4]]
        assert subs.lows.tolist() == [[6, PRESENT]]
        assert [(r.row, r.id) for r in subs.rejected] == [(0, ids[0]), (2, ids[0]), (3, ids[3])]
        assert subs.rejected[1].reason == "this id stands in an earlier row of the load; ids must differ"
    bounds = {"price": ["x", "1", "2"]}
    subs = rc.Subscriptions.from_arrays(schema, [7, 7, 8], bounds, bounds, on_error="collect")
    assert [subs.ids[row] for row in range(len(subs))] == [7, 8]
    assert subs.lows.tolist() == [[1, 2]]


def test_an_id_that_cannot_be_written_down():
    schema = rc.Schema(rc.Int("price"))
    texts = ["price > 5", "price > 6"]
    subs = rc.Subscriptions.parse(schema, ids=["a", "\ud800"], texts=texts, on_error="collect")
    assert [r.row for r in subs.rejected] == [1]
    with pytest.raises(rc.SubscriptionError, match=r"row 1: .* must be an int64 or a string, got the string"):
        rc.Subscriptions.parse(schema, ids=["a", "\ud800"], texts=texts)


class TestTexts:
    def test_are_kept_as_they_were_written(self, schema):
        written = {7: "price  between 10 AND 20", 8: "not symbol in ('A','IBM')"}
        subs = rc.Subscriptions.parse(schema, written)
        assert subs.texts.to_list() == list(written.values())
        assert subs.select([1, 0, 1]).texts.to_list() == [written[8], written[7], written[8]]
        assert subs.select(np.array([False, True])).texts.to_list() == [written[8]]
        assert subs.reconciled(rc.Schema(*schema)).texts.to_list() == list(written.values())

    def test_there_are_none_for_arrays(self, schema):
        subs = rc.Subscriptions.from_arrays(schema, [1], {"price": [3]}, {"price": [9]})
        assert subs.texts is None
        assert subs.select([0]).texts is None
        assert rc.Subscriptions.empty(schema).texts is None

    def test_of_rejected_rows_are_left_out(self, schema):
        texts = ["price >", "price > 1", 5, None, "price > 2", "symbol = '\ud800'"]
        subs = rc.Subscriptions.parse(schema, ids=range(6), texts=texts, on_error="collect")
        assert [row.row for row in subs.rejected] == [0, 2, 3, 5]
        assert subs.texts.to_list() == ["price > 1", "price > 2"]

    def test_must_be_one_per_id(self, schema):
        boxes = np.zeros((2, 1), np.int64)
        with pytest.raises(rc.SubscriptionError, match="texts must have one row per id, got 2 for 1 ids"):
            rc.Subscriptions(schema, [1], boxes, boxes, texts=["price < 1", "price < 2"])


class TestConcat:
    def test_keeps_boxes_texts_and_what_was_rejected(self, schema):
        one = rc.Subscriptions.parse(schema, {1: "price in (1, 5)", 2: "price > 7 and price < 3"})
        two = rc.Subscriptions.from_arrays(schema, [3], {"price": [3]}, {"price": [9]})
        bad = rc.Subscriptions.parse(schema, {4: "price >"}, on_error="collect")
        both = rc.Subscriptions.concat([one, bad, two])
        assert both.ids.values.tolist() == [1, 2, 3]
        assert both.owners.tolist() == [0, 2]
        assert both.dense().owners.tolist() == [0, 0, 2]
        assert both.dense().lows[0].tolist() == [1, 5, 3]
        assert both.dense().highs[0].tolist() == [1, 5, 9]
        assert both.texts.to_list() == ["price in (1, 5)", "price > 7 and price < 3", None]
        assert [row.id for row in both.rejected] == [4]
        assert rc.Subscriptions.concat([two, two.select([])]).texts is None
        assert [row.id for row in rc.Subscriptions.concat([bad, one]).rejected] == [4]
        assert len(rc.Subscriptions.concat([rc.Subscriptions.empty(schema)])) == 0

    def test_takes_the_schema_of_the_first(self, schema):
        other = rc.Schema(rc.Int("price", 0, 100), rc.Category("symbol"))
        one = rc.Subscriptions.parse(schema, {"a": "symbol = 'A'"})
        two = rc.Subscriptions.parse(other, {"b": "symbol = 'A' or symbol = 'B'"})
        both = rc.Subscriptions.concat([one, two])
        assert both.schema is schema
        index = rc.open_index("scan", schema)
        index.insert(both)
        assert rows_of(index.match(rc.Events.from_rows(schema, [{"symbol": "A"}, {"symbol": "B"}]))) == [
            ["a", "b"],
            ["b"],
        ]

    def test_refused(self, schema):
        one = rc.Subscriptions.parse(schema, {1: "price < 1", 2: "price < 2"})
        with pytest.raises(rc.SubscriptionError, match=r"must differ, got 2 twice \(1 of 3 subscriptions\)"):
            rc.Subscriptions.concat([one, one.select([1])])
        assert rc.Subscriptions.concat([one, one.select([1])], distinct=False).ids.values.tolist() == [
            1,
            2,
            2,
        ]
        with pytest.raises(rc.SubscriptionError, match="all whole numbers or all strings, got both"):
            rc.Subscriptions.concat([one, rc.Subscriptions.parse(schema, {"x": "price < 1"})])
        with pytest.raises(rc.SubscriptionError, match="concat takes at least one Subscriptions"):
            rc.Subscriptions.concat([])
        strange = rc.Subscriptions.parse(rc.Schema(rc.Int("size")), {9: "size < 1"})
        with pytest.raises(rc.SchemaError):
            rc.Subscriptions.concat([one, strange])
