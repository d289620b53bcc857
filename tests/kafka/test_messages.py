"""Values of messages to events and matches to messages, without a broker."""

import json

import numpy as np
import pytest

import rangecast as rc
from rangecast.errors import OptionError
from rangecast.kafka.formats import JsonValues
from rangecast.kafka.messages import MessageForm, dead_letter, matches_to_messages
from rangecast.kafka.messages import read_events as read_messages
from rangecast.kafka.subscriptions import SubscriptionTopic, TopicCounts


class Message:
    def __init__(self, value, key=None, partition=0, offset=0, headers=None):
        self._fields = {"value": value, "key": key, "partition": partition, "offset": offset}
        self._fields |= {"headers": headers, "topic": "ticks"}

    def __getattr__(self, name):
        return lambda: self._fields[name]


SCHEMA = rc.Schema(rc.Int("price"), rc.Category("symbol"))
VALUES = [
    b'{"id": "a", "price": 5, "symbol": "IBM"}',
    None,
    b'{\n  "id": "b",\r\n  "price": 50\n}',
    b'{"id": "c", "price": "x"}',
    b"   ",
    b"[1]",
    b"\xff\xfe",
    b'{"price": 7, "id": 12}',
]


def index():
    out = rc.open_index("scan", SCHEMA)
    out.insert(rc.Subscriptions.parse(SCHEMA, {1: "price < 10", 2: "price > 4", 3: "symbol = 'IBM'"}))
    return out


def read_events(schema, messages, shape, source, values=None):
    given = {"event_id": shape.event_id, "id_type": shape.type, "values": values}
    return read_messages(schema, messages, shape.columns(schema), source, **given)


def run(messages, shape):
    out, rejected = [], []
    for batch in read_events(SCHEMA, messages, shape, "ticks"):
        matches = index().match(batch.events).sort()
        sent = matches_to_messages(batch, matches, messages, shape, JsonValues())
        out += [(m.key.encode(), json.loads(m.value)) for m in sent]
        rejected += [(row.row, row.reason) for row in batch.rejected]
    return out, rejected


def test_every_message_is_an_event_or_rejected_with_its_reason():
    out, rejected = run([Message(value) for value in VALUES], MessageForm())
    assert out == [
        (b"a", {"event_id": "a", "subscription_ids": [1, 2, 3]}),
        (b"b", {"event_id": "b", "subscription_ids": [2]}),
        (b"12", {"event_id": "12", "subscription_ids": [1, 2]}),
    ]
    assert [row for row, _ in rejected] == [2, 4, 5, 6, 7]
    reasons = [reason for _, reason in rejected]
    assert "'price' is an int" in reasons[1]
    assert "UTF-8" in reasons[4]
    assert all("JSON object" in reasons[k] for k in (0, 2, 3))


def test_the_same_as_the_library_gives():
    values = [
        json.dumps({"id": f"e{k}", "price": k % 60, "symbol": "IBM" if k % 3 else "HAL"}) for k in range(500)
    ]
    out, _ = run([Message(value.encode()) for value in values], MessageForm())
    events = rc.Events.from_rows(SCHEMA, [json.loads(value) for value in values])
    expected = index().match(events).sort()
    found = {value["event_id"]: value["subscription_ids"] for _, value in out}
    assert found == {f"e{k}": row for k in range(500) if (row := expected.row(k).tolist())}


def test_pairs_by_subscription_with_kept_fields():
    shape = MessageForm("@offset", form="pairs", key="subscription", keep=("symbol", "absent"))
    messages = [Message(b'{"price": 5, "symbol": "IBM"}', partition=2, offset=41)]
    out, rejected = run(messages, shape)
    rest = {"event_id": "2:41", "symbol": "IBM", "absent": None}
    assert out == [(str(k).encode(), {**rest, "subscription_id": k}) for k in (1, 2, 3)]
    assert rejected == []


def test_ids_by_key_and_as_whole_numbers():
    assert run([Message(b'{"price": 5}', key=b"k1")], MessageForm("@key"))[0][0][1]["event_id"] == "k1"
    out, rejected = run(
        [Message(b'{"id": "7", "price": 5}'), Message(b'{"id": "x"}')], MessageForm(id_type="int64")
    )
    assert out[0][1]["event_id"] == 7
    assert "whole number" in rejected[0][1]


def test_a_dead_letter_keeps_what_came():
    bad = Message(b"[1]", b"k", 1, 9, [("trace", b"t")])
    [batch] = read_events(SCHEMA, [bad], MessageForm(), "ticks")
    headers = dict(dead_letter(bad, batch.rejected[0]))
    assert headers["trace"] == b"t"
    assert headers["rangecast-place"] == b"ticks:1:9"
    assert b"JSON object" in headers["rangecast-reason"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"form": "rows"}, "form must be"),
        ({"key": "none"}, "key must be"),
        ({"key": "subscription"}, "take form pairs"),
        ({"event_id": "@time"}, "@key or @offset"),
        ({"event_id": "@key", "id_type": "int64"}, "are strings"),
        ({"id_type": "uuid"}, "id_type must be"),
        ({"keep": ("event_id",)}, "another name"),
    ],
)
def test_shapes_that_cannot_be(fields, said):
    with pytest.raises(OptionError, match=said):
        MessageForm(**fields).check()


def test_numbers_beyond_a_double_stay_exact():
    message = Message(b'{"id": "a", "price": 9007199254740993}')
    [batch] = read_events(SCHEMA, [message], MessageForm(), "ticks")
    assert batch.events.value("price", 0) == 9007199254740993
    assert isinstance(batch.rows, np.ndarray)


def test_values_of_subscriptions_have_columns_of_users_and_ends(tmp_path):
    """What a batch of messages does to a store; how they come is in test_kafka.py."""
    topic = SubscriptionTopic.__new__(SubscriptionTopic)
    topic.store = rc.Store.open(tmp_path / "store", SCHEMA)
    topic.counts = TopicCounts()
    topic.name, topic._topic, topic._cluster = "kafka:alerts", "alerts", "c"
    topic._id_type, topic._payload, topic._expires = "int64", ("owner", "n"), "until"
    topic._on_rejected = lambda row: None
    values = [
        {"condition": "price < 5", "owner": "ann", "n": 1, "until": "2031-01-01"},
        {"price_low": 3, "owner": "bob", "n": 2, "until": "2030-01-01"},
        {"condition": "price < 7", "owner": ["x"], "n": "three"},
        {"condition": "price < 8", "until": "soon"},
        {"owner": "eve"},
        {"condition": 5},
    ]
    messages = [
        Message(json.dumps(value).encode(), str(key).encode(), offset=key) for key, value in enumerate(values)
    ]
    topic._apply(messages, {})
    store = topic.store
    assert store.index().payload([0, 1, 2]).to_pylist() == [
        {"owner": "ann", "n": "1"},
        {"owner": "bob", "n": "2"},
        {"owner": '["x"]', "n": "three"},
    ]
    assert store.expires_at([0, 1, 2]).tolist() == [1924992000000000, 1893456000000000, 0]
    assert [(row.id, row.reason.partition(",")[0]) for row in topic.counts.first_rejected] == [
        ("3", "expires: 'expires' is a timestamp"),
        ("4", "a value must have a condition or bounds such as price_low"),
        ("5", "a condition must be a text"),
    ]
    topic._apply([Message(None, b"0", offset=9)], {})
    assert store.delete(where="owner = 'bob'") == [1]
    assert [*store.subscriptions().ids] == [2]
