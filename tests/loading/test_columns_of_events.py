"""Columns of events: whose they are, what is said of a near miss, and several files as one."""

from __future__ import annotations

import json
import warnings

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from rangecast.types.frames import named_columns

SCHEMA = rc.Schema(rc.Int("amount"), rc.Category("symbol"))
ROWS = [{"id": 1, "amount": 5, "symbol": "A"}, {"id": 2, "amount": 50, "symbol": "B"}]


@pytest.fixture
def index():
    made = rc.open_index("scan", SCHEMA)
    made.insert(rc.Subscriptions.parse(SCHEMA, {7: "amount > 10", 8: "symbol = 'A'"}))
    return made


def renamed(**names):
    return [{names.get(key, key): value for key, value in row.items()} for row in ROWS]


def write(path, rows):
    if path.suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


DOORS = {
    "rows": lambda rows, **options: rc.Events.from_rows(SCHEMA, rows, **options),
    "pandas": lambda rows, **options: rc.Events.from_pandas(SCHEMA, pd.DataFrame(rows), **options),
    "arrow": lambda rows, **options: rc.Events.from_arrow(SCHEMA, pa.Table.from_pylist(rows), **options),
}


@pytest.mark.parametrize("door", DOORS)
def test_capitals_make_no_difference(door, index):
    """`Amount` for `amount` gave no match and no word."""
    matches = index.match(DOORS[door](renamed(amount="Amount", symbol="SYMBOL")))
    assert [matches.row(e).tolist() for e in range(2)] == [[8], [7]]


@pytest.mark.parametrize("door", DOORS)
def test_a_near_miss_is_said_and_strict_refuses_it(door):
    said = r"no event has a value for 'amount' \(did you mean its column 'amuont'\?\)"
    with pytest.warns(rc.RangecastWarning, match=said):
        DOORS[door](renamed(amount="amuont"))
    with pytest.raises(rc.EventError, match=said):
        DOORS[door](renamed(amount="amuont"), strict=True)
    with pytest.raises(rc.EventError, match="no event has a value for 'amount'"):
        DOORS[door](renamed(amount="other"), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DOORS[door](renamed(amount="other"))
        DOORS[door](ROWS, strict=True)


@pytest.mark.parametrize("door", DOORS)
def test_two_columns_that_differ_in_capitals(door):
    rows = [row | {"AMOUNT": 1} for row in ROWS]
    with pytest.warns(rc.RangecastWarning, match="'AMOUNT' is ignored, because"):
        assert DOORS[door](rows).value("amount", 1) == 50


@pytest.mark.parametrize("door", ["pandas", "arrow"])
def test_no_column_at_all(door):
    with pytest.raises(rc.EventError, match=r"got amuont; did you mean 'amount' for 'amuont'\?"):
        DOORS[door]([{"amuont": 1}])


def test_ambiguous_capitals_are_nobodys():
    named = named_columns(["amount"], ["Amount", "AMOUNT"])
    assert named.absent == ["amount"]
    assert named_columns(["a", "A"], ["A", "b"]).columns == {"A": "A"}
    assert list(named_columns(["a"], ["A"]).columns.values()) == ["A"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_files_by_the_same_rule(tmp_path, suffix, index):
    path = write(tmp_path / f"e.{suffix}", renamed(amount="Amount", symbol="Symbol"))
    done = rc.match_file(index, path)
    assert done.pairs.to_pydict() == {"event_id": [1, 2], "subscription_id": [8, 7]}
    path = write(tmp_path / f"f.{suffix}", renamed(amount="amuont"))
    with pytest.warns(rc.RangecastWarning, match=r"'amount' \(did you mean its column 'amuont'\?\)"):
        done = rc.match_file(index, path)
    assert done.absent == ["amount"]
    with pytest.raises(rc.EventError, match="did you mean its column 'amuont'"):
        rc.match_file(index, path, tmp_path / "out.csv", strict=True)
    assert not (tmp_path / "out.csv").exists()


def test_lines_of_json_with_values_of_another_type(tmp_path, index):
    """The reader that goes line by line knows the same names."""
    path = tmp_path / "e.jsonl"
    path.write_text('{"id": 1, "Amount": "50"}\n{"id": 2, "Amount": 5, "symbol": "A"}\n')
    assert rc.match_file(index, path).pairs.to_pydict() == {"event_id": [1, 2], "subscription_id": [7, 8]}


@pytest.mark.parametrize("suffixes", [("csv", "csv"), ("jsonl", "parquet"), ("parquet", "csv")])
def test_several_files_are_all_matched(tmp_path, suffixes, index):
    """`--events a.csv --events b.csv` took the last one and dropped the first."""
    paths = [
        write(tmp_path / f"{i}.{suffix}", [row | {"id": 10 * i + row["id"]} for row in ROWS])
        for i, suffix in enumerate(suffixes)
    ]
    pairs = {"event_id": [1, 2, 11, 12], "subscription_id": [8, 7, 8, 7]}
    seen = []
    done = rc.match_file(index, paths, progress=lambda position, counts: seen.append(position))
    assert done.pairs.to_pydict() == pairs
    assert done.n_events == 4
    assert seen == sorted(seen)
    assert rc.match_file(index, tmp_path / "[01].*").pairs.to_pydict() == pairs
    assert rc.match_file(index, [paths[0], tmp_path / "*"]).pairs.to_pydict() == pairs


def test_rows_without_ids_are_numbered_on(tmp_path, index):
    for name, row in (("a.csv", "5,A\nx,A\n"), ("b.csv", "50,B\n")):
        (tmp_path / name).write_text("amount,symbol\n" + row)
    done = rc.match_file(index, tmp_path / "*.csv")
    assert done.pairs.to_pydict() == {"event_id": [1, 3], "subscription_id": [8, 7]}
    assert [(row.source[-5:], row.row) for row in done.rejected] == [("a.csv", 2)]


def test_a_file_whose_column_is_misspelt_is_named(tmp_path, index):
    write(tmp_path / "a.csv", ROWS)
    write(tmp_path / "b.csv", renamed(amount="amuont"))
    with pytest.warns(rc.RangecastWarning, match=r"no event of .*b.csv has a value for 'amount' \(did you"):
        done = rc.match_file(index, tmp_path / "*.csv")
    assert done.absent == []


def test_files_that_are_not_there(tmp_path, index):
    with pytest.raises(rc.StorageError, match="no file has a name like this"):
        rc.match_file(index, tmp_path / "*.csv")
    with pytest.raises(rc.StorageError, match="there is no such file"):
        rc.match_file(index, [tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(rc.OptionError, match="at least one file"):
        rc.match_file(index, [])


def test_a_file_that_is_no_events_is_refused_before_the_first_match(tmp_path, index):
    write(tmp_path / "a.csv", ROWS)
    (tmp_path / "b.csv").write_text("id,condition\n7,amount > 10\n")
    seen = []
    with pytest.raises(rc.EventError, match=r"b.csv: must have a column of the schema"):
        rc.match_file(index, tmp_path / "*.csv", progress=lambda position, done: seen.append(position))
    assert not seen


@pytest.mark.parametrize("strange", [False, True], ids=["by Arrow", "line by line"])
def test_each_object_of_json_lines_settles_its_capitals(tmp_path, strange):
    """They were settled by the first object, and values of others were missing without a word."""
    schema = rc.Schema(rc.Int("price"), rc.Category("größe"), rc.Category("note"))
    lines = [
        '{"id": 1, "price": 5, "größe": "XL"}',
        '{"id": 2, "Price": 6, "GRÖSSE": "M"}',
        '{"id": 3, "PRICE" : 7, "Größe": "S", "note": "Price"}',
        '{"id": 4, "price": 8, "Price": 99}',
        '{"id": 5, "note": "PRICE"}',
        '{"id": 6, "price": "9"}' if strange else '{"id": 6, "price": 9}',
    ]
    for first in (lines, lines[1:] + lines[:1]):
        path = tmp_path / "events.jsonl"
        path.write_text("\n".join(first) + "\n")
        with rc.loading.EventFile(schema, str(path)) as file:
            (batch,) = file
        found = {id: k for k, id in enumerate(batch.ids.to_pylist())}
        prices = [batch.events.value("price", found[id]) for id in range(1, 7)]
        assert prices == [5, 6, 7, 8, None, 9]
        assert [batch.events.value("größe", found[id]) for id in (1, 2, 3)] == ["XL", "M", "S"]


def test_subscriptions_in_json_lines_settle_their_capitals_too(tmp_path):
    schema = rc.Schema(rc.Int("price"))
    path = tmp_path / "alerts.jsonl"
    path.write_text('{"id": 1, "condition": "price > 1"}\n{"ID": 2, "Condition": "price > 2"}\n')
    assert rc.load_subscriptions(schema, path).texts.to_list() == ["price > 1", "price > 2"]
