"""Explanations name what is asked for in the words of the language."""

from __future__ import annotations

import pytest

import rangecast as rc


@pytest.fixture
def index():
    schema = rc.Schema(rc.Category("symbol", ["HAL", "IBM", "SUN"]), rc.Float("change"), rc.Timestamp("at"))
    return rc.open_index("scan", schema)


def told(index, text, event):
    return str(index.explain(rc.Subscriptions.parse(index.schema, {"s": text}), event)).splitlines()


def test_words_of_a_category(index):
    assert told(index, "symbol in ('HAL', 'IBM')", {"symbol": "SUN"}) == [
        "subscription 's' does not match",
        "  no   symbol in ('HAL', 'IBM'): 'SUN'",
    ]
    assert told(index, "symbol != 'IBM'", {"symbol": "new"}) == [
        "subscription 's' matches",
        "  alternative 1 of 2: yes",
        "    yes  symbol != 'IBM', and named before it or by no subscription: 'new'",
        "  alternative 2 of 2: no",
        "    no   symbol != 'IBM', and named after it: 'new'",
    ]


@pytest.mark.parametrize(
    ("text", "event", "line"),
    [
        ("change < 0.5", {"change": 0.5}, "  no   change <= 0.49999999999999994: 0.5"),
        ("change is missing", {}, "  yes  change is missing: missing"),
        ("change is present", {}, "  no   change is present: missing"),
        ("change is missing or change <= 1", {"change": 2}, "  no   change is missing or <= 1.0: 2.0"),
        ("symbol = 'HAL'", {"symbol": "HAL"}, "  yes  symbol = 'HAL': 'HAL'"),
        ("change > 1 and change < 1", {}, "  its condition can never hold"),
    ],
)
def test_lines(index, text, event, line):
    assert told(index, text, event)[1] == line


def test_one_event_and_one_subscription(index):
    subs = rc.Subscriptions.parse(index.schema, {1: "change > 1", 2: "change > 2"})
    with pytest.raises(rc.SubscriptionError, match="explain takes one subscription, got 2"):
        index.explain(subs, {})
    with pytest.raises(rc.SubscriptionError, match="explain takes one event, got 2"):
        index.explain(subs.select([0]), rc.Events.from_rows(index.schema, [{}, {}]))
