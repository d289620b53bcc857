"""Reduction on Spark: who is covered and by whom, over several partitions, as the library finds it."""

import numpy as np
import pytest

import rangecast as rc
from oracle import covers
from rangecast import workloads

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")


def check(reduction, subs):
    """The same subscriptions go as in the library; each pair is true and ends at one that stays."""
    expected = rc.covering.reduce(subs)
    gone = set(expected.ids[0].tolist())
    ids = subs.ids.take(np.arange(len(subs))).tolist()
    pairs = [(row.covered, row.covering) for row in reduction.pairs.collect()]
    kept = [row.id for row in reduction.kept.collect()]
    assert sorted(covered for covered, _ in pairs) == sorted(gone)
    assert sorted(kept) == sorted(set(ids) - gone)
    assert {covering for _, covering in pairs} <= set(kept)
    rows = {id: row for row, id in enumerate(ids)}
    subs = subs.expanded()
    assert all(covers(subs, rows[covering], subs, rows[covered]) for covered, covering in pairs)
    assert (reduction.n_covered, reduction.n_kept) == (len(pairs), len(kept))
    assert reduction.accepted == len(subs)


@pytest.mark.parametrize("textual", [False, True], ids=["ints", "strings"])
def test_nested_boxes_in_several_partitions(spark, size, textual):
    load = workloads.workload("covering", size(2_000), 1, seed=7)
    texts = load.conditions()
    order = np.random.default_rng(3).permutation(list(texts)).tolist()
    rows = [(f"s{i}" if textual else i, texts[i]) for i in order]
    kind = "string" if textual else "int"
    frame = spark.createDataFrame(rows, f"id {kind}, condition string")
    reduction = rs.reduce(frame, load.schema, partitions=4)
    check(reduction, rc.Subscriptions.parse(load.schema, rows))
    assert reduction.n_covered > len(rows) // 2
    assert reduction.rejected.count() == 0
    assert reduction.pairs.schema.simpleString() == (
        "struct<covered:string,covering:string>" if textual else "struct<covered:bigint,covering:bigint>"
    )
    assert set(reduction.seconds) == {"words", "partitions", "driver"}


def test_categories_and_several_boxes(spark, size):
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    rng = np.random.default_rng(11)
    forms = [
        "price between {a} and {b}",
        "symbol != 'S{k}' and price < {b}",
        "symbol in ('S{k}', 'T{a}') and price = {a}",
        "symbol = 'S{k}' or price between {a} and {b}",
        "price > {b} and price < {a}",
    ]
    rows = []
    for i in range(size(400)):
        a, w, k = rng.integers(0, 30), rng.integers(0, 9), rng.integers(0, 6)
        rows.append((i, forms[rng.integers(len(forms))].format(a=a, b=a + w, k=k)))
    frame = spark.createDataFrame(rows, "id long, condition string")
    reduction = rs.reduce(frame, schema, partitions=3)
    # the schema has the strings now, so parsing here gives the same codes
    check(reduction, rc.Subscriptions.parse(schema, rows))
    assert "words" in reduction.seconds


def test_of_those_alike_the_smallest_id_stays(spark):
    schema = rc.Schema(rc.Int("price"))
    for ids, kind, least in ((range(40, 0, -1), "long", 1), ([f"s{i}" for i in range(40)], "string", "s0")):
        frame = spark.createDataFrame([(i, "price in (3, 5)") for i in ids], f"id {kind}, condition string")
        reduction = rs.reduce(frame, schema, partitions=8)
        assert [row.id for row in reduction.kept.collect()] == [least]
        assert {row.covering for row in reduction.pairs.collect()} == {least}
        assert reduction.n_covered == 39


def test_bad_rows_and_the_latest_row_of_an_id(spark):
    schema = rc.Schema(rc.Int("price"))
    rows = [
        (1, "price < 100"),  # replaced below, so it covers nothing
        (2, "price < 50"),
        (3, "price = 7"),
        (4, "price >"),
        (None, "price < 9"),
        (1, "price = 60"),
        (2, "prize < 5"),
    ]
    frame = spark.createDataFrame(rows, "id long, condition string").coalesce(1)
    reduction = rs.reduce(frame, schema, partitions=2)
    assert [tuple(row) for row in reduction.pairs.collect()] == [(3, 2)]
    assert sorted(row.id for row in reduction.kept.collect()) == [1, 2]
    reasons = {(row.id, row.reason.split(",")[0]) for row in reduction.rejected.collect()}
    assert {id for id, _ in reasons} == {"4", None, "2"}
    assert (None, "a subscription must have an id") in reasons
    assert "reduce: 7 rows, 3 accepted, 1 superseded, 3 rejected, 1 covered, 2 kept" in str(reduction)


def test_bounds_in_columns_and_epsilon(spark, size):
    load = workloads.workload("covering", size(600), 1, seed=2)
    subs = load.subscriptions()
    names = load.schema.names
    rows = [
        (i, *(int(c) for j in range(len(names)) for c in (subs.lows[j, i], subs.highs[j, i])))
        for i in range(len(subs))
    ]
    fields = ", ".join(f"{name}_low long, {name}_high long" for name in names)
    frame = spark.createDataFrame(rows, f"key long, {fields}")
    exact = rs.reduce(frame, load.schema, id="key", partitions=3)
    check(exact, rc.Subscriptions(load.schema, np.arange(len(subs)), subs.lows, subs.highs))
    nearly = rs.reduce(frame, load.schema, id="key", epsilon=0.3, partitions=3)
    assert 0 < nearly.n_covered <= exact.n_covered
    assert {row.covered for row in nearly.pairs.collect()} <= {row.covered for row in exact.pairs.collect()}


@pytest.mark.parametrize("kind", ["long", "string"])
def test_nothing_to_reduce(spark, kind):
    schema = rc.Schema(rc.Int("price"), rc.Category("symbol"))
    reduction = rs.reduce(spark.createDataFrame([], f"id {kind}, condition string"), schema)
    assert (reduction.rows, reduction.accepted, reduction.n_covered, reduction.n_kept) == (0, 0, 0, 0)
    assert reduction.pairs.collect() == reduction.kept.collect() == reduction.rejected.collect() == []


def test_what_is_refused_at_once(spark):
    schema = rc.Schema(rc.Int("price"))
    frame = spark.createDataFrame([], "id long, condition string")
    with pytest.raises(rc.OptionError, match="epsilon must be at least 0 and below 1, got 1"):
        rs.reduce(frame, schema, epsilon=1)
    with pytest.raises(rc.OptionError, match="partitions must be at least 1, got 0"):
        rs.reduce(frame, schema, partitions=0)
    with pytest.raises(rc.SubscriptionError, match="there is no column 'key'"):
        rs.reduce(frame, schema, id="key")


def test_from_the_shell(spark, tmp_path):
    from typer.testing import CliRunner

    from rangecast.cli.app import app

    (tmp_path / "schema.toml").write_text(rc.Schema(rc.Int("price")).to_toml())
    (tmp_path / "alerts.csv").write_text("id,condition\n3,price < 50\n2,price = 7\n9,price < 50\n5,price >\n")
    out = tmp_path / "reduced"
    call = ["spark", "reduce", str(tmp_path / "alerts.csv"), "--schema", str(tmp_path / "schema.toml")]
    result = CliRunner().invoke(app, [*call, "--out", str(out)])
    assert result.exit_code == 1, result.output
    assert "rejected: 1" in result.stderr
    assert {tuple(row) for row in spark.read.parquet(str(out / "pairs")).collect()} == {(2, 3), (9, 3)}
    assert [row.id for row in spark.read.parquet(str(out / "kept")).collect()] == [3]
    assert [row.id for row in spark.read.parquet(str(out / "rejected")).collect()] == ["5"]
    again = CliRunner().invoke(app, [*call, "--out", str(out)])
    assert again.exit_code == 2
    assert "--out must be a folder that is not there yet" in again.stderr
    assert CliRunner().invoke(app, [*call, "--out", str(out), "--overwrite"]).exit_code == 1
