"""Results that were once wrong without a word, each at the door where it was seen.

what was seen                                                            test
CSV `True` of pandas never equalled `prod = true`                        test_booleans_of_pandas_in_csv
`Amount` for `amount`: no match and no word                              test_a_column_in_other_capitals
a misspelt column: no match and no word                                  test_a_misspelt_column
the first of two files of events was dropped                             test_several_files_of_events
rules that can never match, or lose a day, or read seconds as            test_conditions_meant_otherwise
microseconds (all of them: tests/language/test_lint.py)
seconds in a column of instants, read as microseconds                    test_seconds_in_a_column_of_events
an IN list was refused or taken by the order in which its strings        test_a_long_list_in_any_order
were first seen
capitals of JSON lines were settled by the first object                  test_capitals_of_later_objects
ends of subscriptions no longer fitted once rows were rejected           test_ends_after_rejected_rows
"""

import random

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc

pytestmark = pytest.mark.without_kernels


def index_of(schema, conditions):
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, conditions))
    return index


def pairs(index, *paths, **options):
    """What `match_file` gives of files."""
    out = paths[0].parent / "pairs.parquet"
    rc.match_file(index, [str(path) for path in paths], out, **options)
    table = pq.read_table(out)
    return sorted(zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True))


def test_booleans_of_pandas_in_csv(tmp_path):
    frame = pd.DataFrame({"id": range(6), "prod": [True, False, None, True, False, True]})
    frame.to_csv(tmp_path / "events.csv", index=False)
    assert "True" in (tmp_path / "events.csv").read_text()
    index = index_of(rc.Schema(rc.Bool("prod")), {1: "prod = true", 2: "not prod"})
    assert pairs(index, tmp_path / "events.csv") == [(0, 1), (1, 2), (3, 1), (4, 2), (5, 1)]


def test_a_column_in_other_capitals():
    index = index_of(rc.Schema(rc.Int("amount")), {1: "amount > 5"})
    assert index.match([{"Amount": 6}]).ids.tolist() == [1]
    assert index.match(pd.DataFrame({"AMOUNT": [6]})).ids.tolist() == [1]


def test_a_misspelt_column(tmp_path):
    index = index_of(rc.Schema(rc.Int("amount"), rc.Int("day")), {1: "amount > 5"})
    table = pa.table({"amuont": [6], "day": [1]})
    with pytest.warns(rc.RangecastWarning, match="did you mean its column 'amuont'"):
        assert index.match(table).n_pairs == 0
    with pytest.raises(rc.EventError, match="did you mean its column 'amuont'"):
        rc.Events.of(index.schema, table, strict=True)
    with pytest.raises(rc.EventError, match="did you mean 'amount' for 'amuont'"):
        index.match(table.select(["amuont"]))
    (tmp_path / "events.jsonl").write_text('{"amuont": 6, "day": 1}\n')
    with pytest.warns(rc.RangecastWarning, match="no event has a value for 'amount'"):
        assert pairs(index, tmp_path / "events.jsonl") == []


def test_several_files_of_events(tmp_path):
    (tmp_path / "a.csv").write_text("id,amount\n1,6\n")
    (tmp_path / "b.csv").write_text("id,amount\n2,7\n")
    index = index_of(rc.Schema(rc.Int("amount")), {1: "amount > 5"})
    assert pairs(index, tmp_path / "a.csv", tmp_path / "b.csv") == [(1, 1), (2, 1)]
    assert pairs(index, tmp_path / "*.csv") == [(1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("condition", "meant"),
    [
        ("qty = 10.5", "qty = 10 or qty = 11"),
        ("price > 10 and price < 5", "price BETWEEN 5 AND 10"),
        ("qty > 99999999999999999999", "a number from"),
        ("at = '2026-01-31'", "at ON 2026-01-31"),
        ("at between '2026-01-01' and '2026-01-31'", "at < '2026-02-01'"),
        ("at > 1769817600", "if these are seconds"),
        ("at > 1769817600000", "if these are milliseconds"),
    ],
)
def test_conditions_meant_otherwise(tmp_path, condition, meant):
    schema = rc.Schema(rc.Int("qty"), rc.Float("price"), rc.Timestamp("at"))
    (tmp_path / "alerts.csv").write_text(f'id,condition\n7,"{condition}"\n')
    with pytest.warns(rc.OddConditionWarning, match=f"subscription 7: .*probably meant: .*{meant}"):
        rc.load_subscriptions(schema, tmp_path / "alerts.csv")
    with pytest.warns(rc.OddConditionWarning, match=meant):
        rc.match([{"qty": 1}], {7: condition}, schema=schema, index="scan")


def test_seconds_in_a_column_of_events():
    index = index_of(rc.Schema(rc.Timestamp("at")), {1: "at > '2026-01-01'"})
    with pytest.warns(rc.RangecastWarning, match="these look like seconds"):
        assert index.match(pd.DataFrame({"at": [1_769_817_600]})).n_pairs == 0


@pytest.mark.parametrize("order", ["as seen", "reversed", "every other", "shuffled"])
def test_a_long_list_in_any_order(order):
    words = [f"S{k}" for k in range(4_000)]
    known = {
        "as seen": words,
        "reversed": words[::-1],
        "every other": words[::2] + words[1::2],
        "shuffled": random.Random(20).sample(words, len(words)),
    }[order]
    schema = rc.Schema(rc.Category("symbol", known), rc.Int("price"))
    chosen = words[:4_000:2]
    listed = ", ".join(f"'{word}'" for word in chosen)
    subs = rc.Subscriptions.parse(schema, {1: f"symbol in ({listed}) and price > 0"})
    assert len(subs) == 1
    index = rc.open_index("auto", schema)
    index.insert(subs)
    events = rc.Events.from_arrays(schema, {"symbol": words[-100:], "price": [1] * 100})
    assert index.match_any(events).tolist() == [True, False] * 50


def test_capitals_of_later_objects(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"amount": 6}\n{"Amount": 7}\n{"AMOUNT": 3}\n')
    index = index_of(rc.Schema(rc.Int("amount")), {1: "amount > 5", 2: "amount is missing"})
    assert [event for event, _ in pairs(index, tmp_path / "events.jsonl")] == [1, 2]


def test_ends_after_rejected_rows(tmp_path):
    schema = rc.Schema(rc.Int("price"))
    (tmp_path / "alerts.csv").write_text(
        "id,condition,until\n1,price >,2030-01-01\n2,price > 1,2031-01-01\n3,price > 2,\n"
    )
    rejects = rc.Rejects()
    store = rc.Store.open(tmp_path / "store", schema)
    store.insert(rc.load_subscriptions(schema, tmp_path / "alerts.csv", rejects, expires="until"))
    assert len(rejects) == 1
    assert store.expires_at([2, 3]).tolist() == [1_924_992_000_000_000, 0]


@pytest.mark.parametrize("several", [False, True])
def test_a_column_to_keep_that_no_line_has_is_said(tmp_path, several):
    index = rc.open_index("scan", rc.Schema(rc.Int("price")))
    paths = [tmp_path / f"{k}.jsonl" for k in range(1 + several)]
    for path in paths:
        path.write_text('{"price": 7, "note": "a"}\n{"price": 8}\n')
    events = paths if several else paths[0]
    with pytest.warns(rc.RangecastWarning, match="'nope', which was to be kept"):
        done = rc.match_file(index, events, keep=["note", "nope"])
    assert done.remarks == ["no event has a value for 'nope', which was to be kept"]
    assert rc.match_file(index, events, keep=["note"]).remarks == []
    with pytest.raises(rc.EventError, match="'nope', which was to be kept"):
        rc.match_file(index, events, keep=["nope"], strict=True)
