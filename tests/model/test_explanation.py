"""Explanations speak in the words that were written, and in boxes where there are none."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from language.test_language import make_schema, sampled_events, text_of, trees, truth
from oracle import match_boxes
from rangecast.types.attributes import LAST, MISSING
from strategies import events as drawn_events
from strategies import int_schema, subscriptions


@pytest.fixture
def index():
    schema = rc.Schema(rc.Category("symbol", ["HAL", "IBM", "SUN"]), rc.Float("change"), rc.Timestamp("at"))
    return rc.open_index("scan", schema)


def explained(index, text, event):
    return index.explain(rc.Subscriptions.parse(index.schema, {"s": text}), event)


def told(index, text, event):
    return str(explained(index, text, event)).splitlines()


def told_in_boxes(index, text, event):
    return explained(index, text, event).in_boxes().splitlines()


def test_the_words_that_were_written(index):
    assert told(index, "not symbol in ('A','IBM')", {"symbol": "IBM"}) == [
        "subscription 's' does not match",
        "  no   NOT",
        "    yes  symbol in ('A','IBM'): 'IBM'",
    ]
    text = "0.5 > change and (symbol = 'HAL' or\n\t symbol=='IBM'  OR NOT at is  NULL)"
    assert told(index, text, {"symbol": "a  b", "change": 0.25, "at": "2026-01-02T03:04:05Z"}) == [
        "subscription 's' matches",
        "  yes  AND",
        "    yes  0.5 > change: 0.25",
        "    yes  OR",
        "      no   symbol = 'HAL': 'a  b'",
        "      no   symbol=='IBM': 'a  b'",
        "      yes  NOT",
        "        no   at is NULL: 2026-01-02T03:04:05+00:00",
    ]
    assert told(index, "symbol  !=\n'a  b'", {"symbol": "x"})[1] == "  yes  symbol != 'a  b': 'x'"


def test_a_missing_value_leaves_undecided_and_only_what_holds_matches(index):
    assert told(index, "not change < 5", {}) == [
        "subscription 's' does not match",
        "  no   NOT: undecided, because a value is missing",
        "    no   change < 5: missing",
    ]
    assert told(index, "not (change < 5 and symbol = 'HAL')", {"symbol": "IBM"}) == [
        "subscription 's' matches",
        "  yes  NOT",
        "    no   AND",
        "      no   change < 5: missing",
        "      no   symbol = 'HAL': 'IBM'",
    ]
    undecided = explained(index, "not not change < 5", {}).verdict
    assert undecided.holds is undecided.parts[0].holds is undecided.parts[0].parts[0].holds is None


def test_boxes_are_a_second_view(index):
    assert told_in_boxes(index, "symbol in ('HAL', 'IBM')", {"symbol": "SUN"}) == [
        "subscription 's' does not match",
        "  no   symbol in ('HAL', 'IBM'): 'SUN'",
    ]
    assert told_in_boxes(index, "symbol != 'IBM'", {"symbol": "new"}) == [
        "subscription 's' matches",
        "  yes  symbol != 'IBM': 'new'",
    ]
    assert told_in_boxes(index, "symbol not in ('HAL', 'SUN', 'IBM')", {"symbol": "SUN"})[1:] == [
        "  no   symbol not in ('HAL', 'IBM', 'SUN'): 'SUN'",
    ]
    assert told_in_boxes(index, "change in (1, 2.5) or change > 7", {"change": 3})[1:] == [
        "  no   change = 1.0 or = 2.5 or >= 7.000000000000001: 3.0",
    ]
    odd = range(1, 21, 2)
    assert told_in_boxes(index, f"change in ({','.join(map(str, odd))})", {"change": 19})[1:] == [
        "  yes  change in (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, and 2 more): 19.0",
    ]


@pytest.mark.parametrize(
    ("text", "event", "line", "box"),
    [
        ("change < 0.5", {"change": 0.5}, "no   change < 0.5: 0.5", "change <= 0.49999999999999994: 0.5"),
        ("change is missing", {}, "yes  change is missing: missing", "change is missing: missing"),
        ("change is present", {}, "no   change is present: missing", "change is present: missing"),
        ("change is missing or change <= 1", {"change": 2}, "no   OR", "change is missing or <= 1.0: 2.0"),
        ("symbol = 'HAL'", {"symbol": "HAL"}, "yes  symbol = 'HAL': 'HAL'", "symbol = 'HAL': 'HAL'"),
        ("symbol = true", {"symbol": True}, "yes  symbol = true: 'true'", "symbol = 'true': 'true'"),
    ],
)
def test_lines(index, text, event, line, box):
    assert told(index, text, event)[1] == f"  {line}"
    assert told_in_boxes(index, text, event)[1] == f"  {line[:5]}{box}"


def test_a_condition_that_can_never_hold(index):
    assert told(index, "change > 1 and change < 1", {"change": 1}) == [
        "subscription 's' does not match",
        "  its condition can never hold",
        "  no   AND",
        "    no   change > 1: 1.0",
        "    no   change < 1: 1.0",
    ]


def test_subscriptions_of_arrays_are_explained_from_their_bounds(index):
    subs = rc.Subscriptions.from_arrays(index.schema, [7], {"change": [1]}, {"change": [2]})
    found = index.explain(subs, {"change": 3})
    assert (found.text, found.verdict) == (None, None)
    assert str(found) == found.in_boxes()
    assert str(found).splitlines()[1] == "  no   change between 1.0 and 2.0: 3.0"


@pytest.mark.parametrize("text", ["a note for ourselves", "change > 5"])
def test_a_text_that_is_not_the_condition_explains_nothing(index, text):
    bounds = rc.Subscriptions.from_arrays(index.schema, [7], {"change": [1]}, {"change": [2]})
    subs = rc.Subscriptions(index.schema, [7], bounds.lows, bounds.highs, texts=[text])
    found = index.explain(subs, {"change": 1.5})
    assert found.matches
    assert (found.text, found.verdict) == (text, None)
    assert str(found).splitlines()[1] == "  yes  change between 1.0 and 2.0: 1.5"


def test_as_data(index):
    text = "not at < 2026-01-02 and change > 0"
    found = explained(index, text, {"at": dt.datetime(2026, 1, 3)}).to_dict()
    assert json.loads(json.dumps(found)) == found
    predicate = {"attribute": "at", "value": "2026-01-03T00:00:00+00:00"}
    assert found == {
        "id": "s",
        "matches": False,
        "text": text,
        "verdict": {
            "text": text,
            "holds": False,
            "undecided": True,
            "word": "AND",
            "parts": [
                {
                    "text": "not at < 2026-01-02",
                    "holds": True,
                    "undecided": False,
                    "word": "NOT",
                    "parts": [{"text": "at < 2026-01-02", "holds": False, "undecided": False, **predicate}],
                },
                {
                    "text": "change > 0",
                    "holds": False,
                    "undecided": True,
                    "attribute": "change",
                    "value": None,
                },
            ],
        },
        "boxes": [
            [
                {"attribute": "change", "wanted": ">= 5e-324", "value": None, "holds": False},
                {**predicate, "wanted": found["boxes"][0][1]["wanted"], "holds": True},
            ]
        ],
    }


def test_asking_names_no_strings(index):
    subs = rc.Subscriptions.parse(rc.Schema(*index.schema), {1: "symbol = 'HAL'"})
    before = index.schema["symbol"].vocabulary.words()
    bounds = rc.Subscriptions(index.schema, [1], subs.lows, subs.highs, texts=["symbol != 'new'"])
    index.explain(bounds, {"symbol": "other"})
    assert index.schema["symbol"].vocabulary.words() == before


def test_by_id_after_replacing_and_compacting(index):
    parse = rc.Subscriptions.parse
    index.insert(parse(index.schema, {1: "change > 1", 2: "change > 2"}))
    index.insert(rc.Subscriptions.from_arrays(index.schema, [3], {"change": [3]}, {"change": [9]}))
    index.insert(parse(index.schema, {2: "change  > 22"}))
    for _ in range(2):
        assert [index.explain(i, {"change": 5}).text for i in (1, 2, 3)] == [
            "change > 1",
            "change  > 22",
            None,
        ]
        index.delete([1])
        index.compact()
        index.insert(parse(index.schema, {1: "change > 1"}))


def test_one_event_and_one_subscription(index):
    subs = rc.Subscriptions.parse(index.schema, {1: "change > 1", 2: "change > 2"})
    with pytest.raises(rc.SubscriptionError, match="explain takes one subscription, got 2"):
        index.explain(subs, {})
    with pytest.raises(rc.SubscriptionError, match="explain takes one event, got 2"):
        index.explain(subs.select([0]), rc.Events.from_rows(index.schema, [{}, {}]))


@given(st.lists(trees, min_size=1, max_size=4), st.lists(sampled_events, min_size=1, max_size=8))
def test_the_verdict_is_the_match(conditions, rows):
    """By the words, by the boxes, by an index, by the oracle and by the definition: one answer."""
    schema = make_schema()
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, dict(enumerate(map(text_of, conditions)))))
    subs = index.subscriptions()
    events = rc.Events.from_rows(schema, rows)
    matches, wanted = index.match(events), match_boxes(subs, events)
    for e, event in enumerate(rows):
        for id, tree in enumerate(conditions):
            found = index.explain(id, event)
            assert found.text == text_of(tree)
            assert found.verdict is not None
            assert found.verdict.holds == truth(tree, event)
            assert found.matches == (found.verdict.holds is True) == (id in wanted[e])
            assert found.matches == (id in matches.row(e).tolist())
            assert str(found).count("\n") >= 1
    assert index.explain(0, events.select([0])).matches == (0 in wanted[0])


@given(st.data())
def test_boxes_explain_what_is_matched(data):
    schema = int_schema(2)
    subs, events = data.draw(subscriptions(schema, max_size=4)), data.draw(drawn_events(schema, max_size=4))
    index = rc.open_index("scan", schema)
    index.insert(subs)
    matches, wanted = index.match(events), match_boxes(subs, events)
    for e in range(len(events)):
        for id in subs.ids.values.tolist():
            found = index.explain(id, events.select([e]))
            assert found.verdict is None
            assert found.matches == (id in wanted[e]) == (id in matches.row(e).tolist())


def test_a_subscription_that_asks_for_nothing(index):
    free = np.full((3, 1), MISSING), np.full((3, 1), LAST)
    found = index.explain(rc.Subscriptions(index.schema, ["s"], *free), {})
    assert str(found).splitlines() == ["subscription 's' matches", "  yes  it has no predicates"]
