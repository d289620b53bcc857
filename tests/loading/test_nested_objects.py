"""A name with dots reaches into objects, dicts and structs, at every door and by one rule."""

import io
import json
import warnings

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rangecast as rc
from rangecast.cli.app import app
from rangecast.kafka.formats import JsonValues
from rangecast.types.frames import ObjectNames, flat_object

pytestmark = [pytest.mark.without_kernels, pytest.mark.filterwarnings("ignore:no event has a value")]
SCHEMA = rc.Schema(rc.Float("properties.mag"), rc.Category("properties.place.net"), rc.Int("n"))
CONDITIONS = {1: "properties.mag > 5", 2: "properties.place.net = 'us'", 3: "properties.mag is missing"}
QUAKE = {"n": 1, "properties": {"mag": 5.1, "place": {"net": "us", "lines": [1]}, "tz": None}}


@pytest.fixture(scope="module")
def index():
    made = rc.open_index("scan", SCHEMA)
    made.insert(rc.Subscriptions.parse(SCHEMA, CONDITIONS))
    return made


def lists(matches):
    return [sorted(matches.row(k).tolist()) for k in range(len(matches.offsets) - 1)]


def of_file(index, path):
    table = rc.match_file(index, path).pairs
    rows = list(zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True))
    return [sorted(id for event, id in rows if event == n) for n in (1, 2)]


OTHER = {"n": 2, "properties": {"mag": None, "place": None, "tz": 60}}


@pytest.mark.parametrize("frame", [list, pa.Table.from_pylist, pd.DataFrame, pl.DataFrame])
def test_frames(index, frame):
    events = frame([QUAKE, OTHER])
    assert lists(index.match(events)) == [[1, 2], [3]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rc.Events.of(SCHEMA, events, strict=True)
    pairs = rc.match(events, CONDITIONS)
    if isinstance(pairs, list):
        pairs = pa.Table.from_pylist(pairs)
    assert list(pairs["subscription_id"])[-1] in (3, pa.scalar(3))
    assert len(pairs["subscription_id"]) == 3


def test_one_event(index):
    assert sorted(index.match_one(QUAKE)) == sorted(index.match(QUAKE).ids) == [1, 2]
    assert index.match_one(OTHER, unknown="error").tolist() == [3]
    assert index.explain(1, QUAKE).matches
    assert not index.explain(1, OTHER).matches
    with pytest.raises(rc.EventError, match="'other'"):
        index.match_one({"other": 1, **QUAKE}, unknown="error")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_files(index, tmp_path, suffix):
    path = tmp_path / f"quakes.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([QUAKE, OTHER]), path)
    else:
        path.write_text(json.dumps(QUAKE) + "\n" + json.dumps(OTHER) + "\n")
    assert of_file(index, path) == [[1, 2], [3]]
    done = CliRunner().invoke(app, ["schema", "infer", str(path), "--skip", "properties.place.lines"])
    (tmp_path / "schema.toml").write_text(done.stdout)
    names = rc.Schema.from_toml(tmp_path / "schema.toml").names
    assert set(names) == {"n", "properties.mag", "properties.place.net", "properties.tz"}
    done = CliRunner().invoke(app, ["schema", "infer", str(path), "--skip", "properties"])
    assert done.stdout == '[attributes.n]\ntype = "int"\n'


def test_the_command_line_explains_the_same(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    words = ["explain", "--schema", str(tmp_path / "schema.toml"), "--condition", CONDITIONS[1]]
    done = CliRunner().invoke(app, [*words, "--event", json.dumps(QUAKE)])
    assert done.exit_code == 0
    assert "not attributes" not in done.output


def test_values_of_messages():
    [batch] = JsonValues().batches([json.dumps(QUAKE).encode()], dict.fromkeys(SCHEMA.names), "ticks")
    assert batch.column("properties.place.net")[0] in ("us", pa.scalar("us"))
    found = JsonValues().members(json.dumps(QUAKE).encode(), ["properties.place.net", "n", "x.y"])
    assert found == {"properties.place.net": "us", "n": 1, "x.y": None}


NESTED = rc.Schema(rc.Int("a.b"), rc.Int("c"))
# what `a.b` is in each object, by what docs/loading.md says
MEANT = [
    ({"a": {"b": 1}}, 1),
    ({"A": {"B": 1}}, 1),
    ({"a": {"b": 1, "B": 2}}, 1),
    ({"a": {"B": 1, "b ": 2}}, 1),
    ({"a": {"B": 1, "\u212a": 2}}, 1),
    ({"a.b": 2, "a": {"b": 1}}, 2),
    ({"A.B": 2, "a": {"b": 1}}, 2),
    ({"a.b": None, "a": {"b": 1}}, None),
    ({"a": {"b": None}, "A": {"b": 1}}, None),
    ({"A": {"b": 3}, "a": 1}, None),
    ({"a": [{"b": 1}]}, None),
    ({"a": {"c": 1}}, None),
    ({"a": 7}, None),
    ({"b": 1}, None),
    ({}, None),
]


def values_of_rows(rows):
    events = rc.Events.from_rows(NESTED, rows)
    return [events.value("a.b", k) for k in range(len(rows))]


def values_of_lines(rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    from rangecast.loading import EventFile

    found = []
    with EventFile(NESTED, "lines", format="jsonl", stream=io.BytesIO(lines)) as file:
        for batch in file:
            assert not batch.rejected
            found += [batch.events.value("a.b", k) for k in range(len(batch.events))]
    return found


@pytest.mark.filterwarnings("ignore::rangecast.errors.RangecastWarning")
@pytest.mark.parametrize("read", [values_of_rows, values_of_lines])
def test_what_a_name_with_dots_means_beside_whatever_stands_there(read):
    index = rc.open_index("scan", NESTED)
    index.insert(rc.Subscriptions.parse(NESTED, {1: "a.b = 1", 2: "a.b = 2", 3: "a.b is missing"}))
    for row, value in MEANT:
        assert index.match_one(row).tolist() == [value or 3], row
        assert read([row]) == [value], row
        for other, beside in MEANT:
            assert read([other, row, other]) == [beside, value, beside], (row, other)
    rows, values = zip(*MEANT, strict=True)
    assert read([*rows] * 3) == [*values] * 3


def test_names_that_differ_in_capitals_alone_are_taken_as_they_are():
    names = ObjectNames(["a.b", "A.b"])
    assert names.settled({"a": {"b": 1}}) == {"a.b": 1}
    assert names.settled({"a": {"B": 1}, "A": {"b": 2}}) == {"A.b": 2}


def test_a_frame_that_lacks_what_is_inside(index):
    with pytest.raises(rc.EventError, match="must have a column of the schema"):
        index.match(pa.table({"properties": pa.array([{"other": 1}])}))
    with pytest.raises(rc.EventError, match="must have a column of the schema"):
        index.match(pd.DataFrame({"properties": [1, 2]}))
    table = pa.table({"n": [1], "properties": pa.array([[{"mag": 6.0}]])})
    assert lists(index.match(table)) == [[3]]


def test_a_frame_without_any_object(index):
    """A column of nulls says as little as no object in any row of a list."""
    table = pa.table({"properties": pa.nulls(2)})
    assert lists(index.match(table)) == lists(index.match([{"properties": None}] * 2)) == [[3], [3]]
    assert lists(index.match(pd.DataFrame({"properties": [None, None]}))) == [[3], [3]]


def test_what_no_attribute_can_be_inferred_of(tmp_path):
    assert flat_object({"a": {"b.c": 1, "d": 2}, "a.d": 3}) == {"a.d": 3}
    path = tmp_path / "e.jsonl"
    path.write_text('{"a": {"b": 1}}\n{"a": 5}\n')
    done = CliRunner().invoke(app, ["schema", "infer", str(path)])
    assert done.exit_code == 2
    assert "{'b': 1}, as in 'a' beside other values; leave it out with --skip a" in done.output
    with pytest.raises(rc.SchemaError, match=r"column 'a\.b' has type list<.*: struct<c: int64>>"):
        rc.Schema.infer([{"a": {"b": [{"c": 1}]}}])
    assert rc.Schema.infer([{"a": {"b": [{"c": 1}], "d": 1}}], skip=["a.b"]).names == ("a.d",)


@pytest.mark.parametrize(
    "first", ['{"id": 7}', '{"id": 7, "n": 7}', '{"id": 7, "N": 7}', '{"id": 7, "\\u006e": 7}']
)
@pytest.mark.parametrize("n", [1, 3, 40_000])
def test_a_key_with_escapes_in_other_capitals(tmp_path, first, n):
    r"""{"\u004e": 5} behind an object without that key lost its value: its letters are not in the file."""
    schema = rc.Schema(rc.Int("n"), rc.Category("word"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "n = 5"}))
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join([*[first] * n, '{"id": 8, "\\u004e": 5}', '{"id": 9, "word": "b"}']) + "\n")
    rc.match_file(index, path, tmp_path / "pairs.csv", event_id="id")
    assert (tmp_path / "pairs.csv").read_text().split()[1:] == ["8,1"]
