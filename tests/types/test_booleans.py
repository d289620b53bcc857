"""Booleans: every way to write one, at every door, and as a condition by itself."""

from __future__ import annotations

import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rangecast as rc
from rangecast.loading.formats import open_rows
from rangecast.loading.infer import infer_schema
from rangecast.types.attributes import MISSING

SCHEMA = rc.Schema(rc.Bool("active"), rc.Bool("paid"), rc.Int("n"))


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        ([True, False, None], [1, 0, None]),
        (["True", "FALSE", " yes", "n", "t", "F", "on", "0", ""], [1, 0, 1, 0, 1, 0, 1, 0, None]),
        (np.array([1, 0]), [1, 0]),
        (np.array([True, False]), [1, 0]),
        (np.array([1.0, np.nan, 0.0]), [1, None, 0]),
        (pa.array([True, None]), [1, None]),
        (pa.array(["Yes", None], pa.large_string()), [1, None]),
        (pa.array([decimal.Decimal(1), None]), [1, None]),
        (pd.Series([True, None], dtype="boolean"), [1, None]),
        (pd.Series([True, np.nan, pd.NA, "no", 1.0], dtype=object), [1, None, None, 0, 1]),
    ],
)
def test_ways_to_write_a_boolean(column, codes):
    encoded = rc.Bool("active").encode(column)
    assert encoded.codes.tolist() == [MISSING if code is None else code for code in codes]
    assert not len(encoded.bad)


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        (["true", "maybe", "2", None], [1, 2]),
        (np.array([1, 2, -1]), [1, 2]),
        (np.array([0.5, 1, np.nan]), [0]),
        (np.array(["2026-01-01", "NaT"], "datetime64[s]"), [0]),
        (pa.array([b"true", None]), [0]),
        ([True, [1], 3], [1, 2]),
    ],
)
def test_what_is_no_boolean_is_rejected(column, bad):
    encoded = rc.Bool("active").encode(column)
    assert encoded.bad.tolist() == bad
    assert "'active' is a bool, got" in encoded.reasons[0]


TRUTHS = {
    "active": lambda a, p: a is True,
    "NOT active": lambda a, p: a is False,
    "active = true": lambda a, p: a is True,
    "active = 'Yes'": lambda a, p: a is True,
    "active = 0": lambda a, p: a is False,
    "TRUE != active": lambda a, p: a is False,
    "active IN (true, 'no')": lambda a, p: a is not None,
    "active NOT IN (true)": lambda a, p: a is False,
    "active IS TRUE": lambda a, p: a is True,
    "active IS FALSE": lambda a, p: a is False,
    "active IS NOT TRUE": lambda a, p: a is not True,
    "NOT active IS NOT FALSE": lambda a, p: a is False,
    "active IS MISSING": lambda a, p: a is None,
    "active AND NOT paid": lambda a, p: a is True and p is False,
    "NOT (active OR paid)": lambda a, p: a is False and p is False,
    "(active OR paid) AND n IS MISSING": lambda a, p: a is True or p is True,
}


@pytest.mark.parametrize("index", ["auto", "scan", "cells"])
def test_conditions_on_booleans(index):
    subs = rc.Subscriptions.parse(SCHEMA, dict(enumerate(TRUTHS)))
    made = rc.open_index(index, SCHEMA)
    made.insert(subs)
    cases = [(a, p) for a in (True, False, None) for p in (True, False, None)]
    events = rc.Events.from_rows(SCHEMA, [{"active": a, "paid": p} for a, p in cases])
    matches = made.match(events).sort()
    for row, (a, p) in enumerate(cases):
        assert matches.row(row).tolist() == [i for i, holds in enumerate(TRUTHS.values()) if holds(a, p)]
        for i, holds in enumerate(TRUTHS.values()):
            assert bool(made.explain(i, events.select([row])).matches) is holds(a, p)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["active", "not paid", "active is not true", "n > 3", "paid"]), min_size=1))
def test_the_text_of_a_condition_reads_back(parts):
    from rangecast.language.parser import read

    text = " or ".join(f"({part} and n < 9)" for part in parts)
    condition, _ = read(text, SCHEMA)
    again, _ = read(str(condition), SCHEMA)
    assert str(again) == str(condition)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("active < true", "'active' is a bool: it takes = != IN and IS TRUE, got < true"),
        ("active between 0 and 1", "it takes = != IN and IS TRUE, got BETWEEN 0"),
        ("active = 2", "'active' is a bool, got 2"),
        ("active paid", "expected AND, OR, an operator"),
        ("active is 5", "expected MISSING, PRESENT, TRUE, FALSE or NOT"),
        ("n is true", "IS TRUE is for a bool, 'n' is an int"),
        ("n", "expected an operator"),
    ],
)
def test_what_is_no_condition_on_a_boolean(text, message):
    with pytest.raises(rc.SubscriptionError, match=message):
        rc.Subscriptions.parse(SCHEMA, {1: text})


def test_many_texts_of_one_shape_are_compiled_as_one():
    texts = {i: f"active = {('true', 'false', 0, 1, 2)[i % 5]} and n = {i}" for i in range(200)}
    subs = rc.Subscriptions.parse(SCHEMA, texts, on_error="collect")
    assert len(subs) == 160
    assert {rejected.id % 5 for rejected in subs.rejected} == {4}


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("e.csv", "id,prod\n1,True\n2,False\n3,\n", "bool"),
        ("e.csv", "id,prod\n1,yes\n2,no\n", "bool"),
        ("e.csv", "id,prod\n1,yes\n2,no\n3,maybe\n", "category"),
        ("e.csv", "id,prod\n1,1\n2,0\n", "int"),
        ("e.jsonl", '{"id": 1, "prod": true}\n{"id": 2, "prod": null}\n', "bool"),
        ("e.jsonl", '{"id": 1, "prod": "true"}\n', "category"),
    ],
)
def test_inferred_from_files(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    with open_rows(str(tmp_path / name)) as source:
        inferred = infer_schema(source, ("id",), 100, domains=True)
    assert [a.kind for a in inferred.schema] == [kind]


@pytest.mark.parametrize("file", ["e.csv", "e.jsonl"])
def test_what_pandas_writes_equals_true(tmp_path, file):
    """A file with True, as pandas writes it, and `prod = true`: no match was lost silently."""
    schema = rc.Schema.infer(pa.table({"prod": [True]}))
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "prod = true", 2: "not prod"}))
    frame = pd.DataFrame({"id": [1, 2, 3], "prod": [True, False, True]})
    path = tmp_path / file
    if file == "e.csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    done = rc.match_file(index, path, sort=True)
    assert done.pairs.to_pydict() == {"event_id": [1, 2, 3], "subscription_id": [1, 2, 1]}


def test_schema_files_and_names():
    schema = rc.Schema(rc.Bool("is active?"), rc.Int('size [m]: "raw"'), rc.Float("52w high"))
    assert rc.Schema.from_dict(schema.to_dict()) == schema
    subs = rc.Subscriptions.parse(
        schema, {1: '"is active?" and "size [m]: ""raw""" > 5', 2: 'not "IS ACTIVE?"', 3: '"52w high" > 1'}
    )
    events = rc.Events.from_rows(schema, [{"is active?": "t", 'size [m]: "raw"': 6, "52w high": 2}])
    index = rc.open_index("scan", schema)
    index.insert(subs)
    assert index.match(events).sort().row(0).tolist() == [1, 3]
    with pytest.raises(rc.SchemaError, match="unknown setting low"):
        rc.Schema.from_dict({"a": {"type": "bool", "low": 0}})


def test_schema_file_with_odd_names(tmp_path):
    schema = rc.Schema(rc.Int("order id"), rc.Int('a "b" \\c'), rc.Bool("ü"))
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert rc.Schema.from_toml(tmp_path / "schema.toml") == schema


def test_a_name_with_a_blank_is_written_in_quotes():
    with pytest.raises(rc.SubscriptionError, match='written in double quotes: "order id"'):
        rc.Subscriptions.parse(rc.Schema(rc.Int("order id")), {1: "order id > 5"})
