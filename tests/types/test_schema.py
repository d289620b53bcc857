"""Schemas: files, inference, names."""

from __future__ import annotations

import copy
import pickle

import pyarrow as pa
import pytest

import rangecast as rc

pytestmark = pytest.mark.without_kernels


@pytest.fixture
def schema():
    return rc.Schema(
        rc.Int("price", 0, 4_999),
        rc.Category("symbol"),
        rc.Float("change", -1.0),
        rc.Timestamp("at", "2026-01-01"),
    )


def test_toml_round_trip(schema, tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(schema.to_toml())
    again = rc.Schema.from_toml(path)
    assert again == schema
    assert again["price"].domain == (0, 4_999)


def test_dict_keeps_words(schema):
    rc.Subscriptions.parse(schema, {1: "symbol = 'IBM'"})
    again = rc.Schema.from_dict(schema.to_dict(words=True))
    assert again["symbol"].vocabulary.words() == ["IBM"]
    assert rc.Schema.from_dict(schema.to_dict())["symbol"].vocabulary.words() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a table"),
        ("attributes = 5", "needs a table"),
        (
            "[attributes.a]\ntype = 'money'",
            "type must be one of int, float, category, timestamp, bool, tags, text, point, got 'money'",
        ),
        ("[attributes.a]\ntype = 'int'\nwidth = 3", "unknown setting width"),
        ("[attributes.a\n", "not a TOML file"),
        ("[attributes.a]\ntype = 'int'\nlow = 4\nhigh = 2", "low must not exceed high"),
    ],
)
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(rc.SchemaError, match=message) as caught:
        rc.Schema.from_toml(path)
    assert "schema.toml" in str(caught.value)


def test_infer():
    table = pa.table(
        {
            "id": [1],
            "n": [1],
            "x": [0.5],
            "s": ["a"],
            "b": [True],
            "t": pa.array([0], pa.timestamp("s")),
            "none": [None],
        }
    )
    schema = rc.Schema.infer(table, skip=("id",))
    assert [(a.name, a.kind) for a in schema] == [
        ("n", "int"),
        ("x", "float"),
        ("s", "category"),
        ("b", "bool"),
        ("t", "timestamp"),
        ("none", "category"),
    ]
    with pytest.raises(rc.SchemaError, match="column 'l' has type list"):
        rc.Schema.infer(pa.table({"l": [[1]]}))


def test_names_in_another_case(schema):
    assert schema.position("PRICE") == 0
    mixed = rc.Schema(rc.Int("a"), rc.Int("A"))
    assert mixed.position("A") == 1
    assert "a" in mixed


def test_pickles(schema):
    rc.Subscriptions.parse(schema, {1: "symbol = 'IBM'"})
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert again["symbol"].vocabulary.look_up("IBM") == 1
    assert copy.deepcopy(schema) == schema


def test_check_same(schema):
    with pytest.raises(
        rc.SchemaError, match=r"events must have the attributes \(price int, .*\), got \(a int\)"
    ):
        schema.check_same(rc.Schema(rc.Int("a")), "events")
