"""File mode on Spark: the same pairs, taken up again after a crash, nothing half-written."""

import csv
import datetime as dt
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from strategies import int_schema, random_events, random_subscriptions

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
context_of = pytest.importorskip("rangecast.spark.session").context_of


@pytest.fixture(scope="module")
def schema():
    return int_schema(3)


@pytest.fixture(scope="module")
def subs(schema):
    return random_subscriptions(schema, 200, seed=1, boxes=2)


@pytest.fixture(scope="module")
def events(schema):
    return random_events(schema, 1200, seed=2)


@pytest.fixture(scope="module")
def table(events):
    columns = {"id": pa.array(np.arange(len(events)))}
    for name in events.schema.names:
        columns[name] = pa.array([events.value(name, e) for e in range(len(events))])
    columns["note"] = pa.array([f"n{e}" for e in range(len(events))])
    return pa.table(columns)


@pytest.fixture(scope="module")
def expected(subs, events):
    index = rc.open_index("scan", subs.schema)
    index.insert(subs)
    rows, ids = index.match(events).pairs()
    return sorted(zip(rows.tolist(), ids.tolist(), strict=True))


@pytest.fixture
def store(tmp_path, subs):
    store = rc.Store.open(tmp_path / "store", subs.schema, index="scan")
    store.insert(subs)
    return store


@pytest.fixture
def folder(tmp_path, table, monkeypatch):
    """Two Parquet files, one of several row groups, cut into more than two units."""
    monkeypatch.setattr("rangecast.spark.batch.files._ROWS_AT_LEAST", 250)
    folder = tmp_path / "events"
    folder.mkdir()
    pq.write_table(table.slice(0, 800), folder / "a.parquet", row_group_size=200)
    pq.write_table(table.slice(800), folder / "b.parquet")
    (folder / "_ignored").write_text("not data")
    return folder


def read(out):
    """The pairs of an output folder, and its files."""
    files = sorted(out.glob("part-*.parquet"))
    found = pa.concat_tables([pq.read_table(f) for f in files])
    return sorted(
        zip(found["event_id"].to_pylist(), found["subscription_id"].to_pylist(), strict=True)
    ), files


def test_pairs_are_those_of_the_library(spark, folder, store, expected, tmp_path):
    seen = []
    report = rs.match_files(spark, folder, store, tmp_path / "out", progress=lambda *n: seen.append(n))
    pairs, files = read(tmp_path / "out")
    assert pairs == expected
    assert len(files) == report.files == 3
    assert (report.rows, report.pairs, report.rejected_rows) == (1200, len(expected), 0)
    assert report.version == 1
    assert seen[-1] == (3, 3)
    assert "1,200 rows" in str(report)
    manifest = json.loads((tmp_path / "out/_rangecast/manifest.json").read_text())
    assert manifest["pairs"] == len(expected)
    # Spark reads the folder as it is
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(expected)


def test_jobs_without_a_plan_run_in_the_workers_of_dataframes(spark):
    def daemons(numbers):
        return [os.getppid() for _ in numbers]

    def daemons_of_batches(batches):
        for batch in batches:
            pids = pa.array([os.getppid()] * batch.num_rows, pa.int64())
            yield pa.RecordBatch.from_arrays([pids], ["id"])

    context = context_of(spark)
    assert context is not None
    frame = spark.range(0, 2, 1, 2).mapInArrow(daemons_of_batches, "id long").collect()
    assert {pid for (pid,) in frame} == set(context.parallelize([1, 2], 2).mapPartitions(daemons).collect())


def test_as_a_dataframe_where_workers_are_elsewhere(spark, folder, store, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("rangecast.spark.batch.files.is_beside", lambda spark: False)
    report = rs.match_files(spark, folder, store, tmp_path / "out")
    assert read(tmp_path / "out")[0] == expected
    assert (report.files, report.pairs) == (3, len(expected))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_a_worker_says_is_said_here(spark, folder, store, tmp_path, monkeypatch, elsewhere):
    if elsewhere:
        monkeypatch.setattr("rangecast.spark.batch.files.is_beside", lambda spark: False)
    seen = []

    def spoil(done, units):  # before the job begins
        seen.append(done)
        (tmp_path / "out/_rangecast/plan.json").unlink(missing_ok=True)

    with pytest.raises(rc.StorageError, match="a worker must see the same files as the driver"):
        rs.match_files(spark, folder, store, tmp_path / "out", progress=spoil)
    assert seen[0] == 0


def test_which_columns_have_a_value_in_each_row(spark, folder, store, tmp_path):
    def nullable(name, **options):
        rs.match_files(spark, folder, store, tmp_path / name, keep=["note"], **options)
        parts = sorted((tmp_path / name).glob("part-*"))
        kinds = {tuple(field.nullable for field in pq.read_schema(path)) for path in parts}
        # no row group is small but for the last one
        assert all(pq.read_metadata(path).num_row_groups == 1 for path in parts)
        return kinds

    assert nullable("pairs") == {(False, False, True)}
    assert nullable("outer", outer=True) == {(False, True, True)}
    assert nullable("lists", form="lists") == {(False, True, True)}
    assert nullable("counts", form="counts", outer=True) == {(False, False, True)}


def test_a_run_is_taken_up_where_it_was_left(spark, folder, store, expected, tmp_path):
    out = tmp_path / "out"
    rs.match_files(spark, f"{folder}/*.parquet", store, out)
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    # as a crash would leave it: a unit without its entry, another without its output, a torn file
    (out / "_rangecast/manifest.json").unlink()
    (out / "_rangecast/done/00001.json").unlink()
    (out / "part-00001.parquet").unlink()
    (out / "_rangecast/done/00002.json").unlink()
    (out / "_rangecast/tmp").mkdir()
    (out / "_rangecast/tmp/00002-torn.parquet").write_bytes(b"PAR1")
    store.delete(np.arange(5, 300))
    kept = (out / "part-00000.parquet").stat().st_mtime_ns
    report = rs.match_files(spark, f"{folder}/*.parquet", store, out)
    assert (report.files, report.skipped, report.version) == (3, 1, 1)
    assert (out / "part-00000.parquet").stat().st_mtime_ns == kept
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == before
    assert not (out / "_rangecast/tmp").exists()
    with pytest.raises(rc.OptionError, match="holds the matches of version 1, and the store has version 2"):
        rs.match_files(spark, f"{folder}/*.parquet", store, out)
    report = rs.match_files(spark, f"{folder}/*.parquet", store, out, overwrite=True)
    assert report.version == 2
    assert read(out)[0] != expected


def test_what_is_refused_leaves_no_output(spark, folder, store, table, tmp_path):
    out = tmp_path / "out"
    wrong = tmp_path / "wrong.parquet"
    pq.write_table(table.set_column(1, "a0", pa.array(["x"] * len(table))), wrong)
    lacking = tmp_path / "lacking.parquet"
    pq.write_table(table.drop_columns(["a1"]), lacking)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1nothing")
    for path, error, message in [
        (wrong, rc.EventError, "column 'a0' must be a whole number for an int, got string"),
        (lacking, rc.EventError, "lacking.parquet: there is no column 'a1', only id, a0, a2, note"),
        (broken, rc.StorageError, "broken.parquet: not a Parquet file that can be read"),
        (tmp_path / "no*.parquet", rc.OptionError, "there is no such file"),
    ]:
        with pytest.raises(error, match=message):
            rs.match_files(spark, [str(folder / "a.parquet"), str(path)], store, out, strict=True)
        assert not out.exists()
    snapshot = store.snapshot()
    raw = bytearray(snapshot.read_bytes())
    raw[-64] ^= 1
    snapshot.write_bytes(raw)
    with pytest.raises(rc.StorageError, match="is damaged"):
        rs.match_files(spark, folder, store, out)
    assert not out.exists()
    out.mkdir()
    (out / "precious.txt").touch()
    with pytest.raises(rc.OptionError, match=r"holds other files \(precious.txt\)"):
        rs.match_files(spark, folder, store, out, overwrite=True)


def test_other_arguments_need_another_folder(spark, folder, subs, tmp_path):
    rs.match_files(spark, folder, subs, tmp_path / "out", form="counts")
    again = rs.match_files(spark, folder, subs, tmp_path / "out", form="counts")
    assert again.skipped == again.files
    with pytest.raises(rc.OptionError, match="was begun with other answer; name another folder"):
        rs.match_files(spark, folder, subs, tmp_path / "out")


def test_forms_kept_columns_and_outer(spark, folder, store, expected, tmp_path):
    report = rs.match_files(spark, folder, store, tmp_path / "l", form="lists", outer=True, keep=["note"])
    found = spark.read.parquet(str(tmp_path / "l")).collect()
    assert len(found) == 1200
    assert report.pairs == sum(len(r.subscription_ids) for r in found) == len(expected)
    assert all(r.note == f"n{r.event_id}" for r in found)
    report = rs.match_files(spark, folder, store, tmp_path / "c", form="counts")
    assert report.pairs == len(expected)


def test_text_files_and_events_that_cannot_be_read(spark, store, table, expected, tmp_path):
    rows = table.to_pylist()
    with open(tmp_path / "a.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, table.column_names)
        writer.writeheader()
        writer.writerows(rows[:600])
        file.write("600,abc,1,1,bad\n")
        file.write(",1,1,1,bad\n")
    with open(tmp_path / "b.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows[600:])
        file.write("{broken\n")
    report = rs.match_files(
        spark, [str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl")], store, tmp_path / "out", keep=["note"]
    )
    pairs, _ = read(tmp_path / "out")
    assert pairs == expected
    assert (report.rows, report.rejected_rows) == (1200, 3)
    reasons = {(row.source.rsplit("/", 1)[1], row.row): row.reason for row in report.rejected.collect()}
    assert "'a0' is an int, got the string 'abc'" in reasons["a.csv", 601]
    assert reasons["a.csv", 602] == "an event must have an id, got null"
    assert ("b.jsonl", 601) in reasons


def test_files_without_a_match_and_without_rows(spark, schema, table, tmp_path):
    nobody = rc.Subscriptions.parse(schema, {"s": "a0 = 123456"})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    report = rs.match_files(spark, [str(tmp_path / f"{n}.parquet") for n in "ab"], nobody, tmp_path / "out")
    assert (report.rows, report.pairs) == (1200, 0)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert dict(found.dtypes) == {"event_id": "bigint", "subscription_id": "string"}


def test_a_damaged_file_among_good_ones_is_rejected_as_a_whole(spark, store, table, tmp_path):
    events = tmp_path / "damaged"
    events.mkdir()
    table = table.slice(0, 300)
    for name in ("a", "b", "c", "d"):
        pq.write_table(table, events / f"{name}.parquet")
    whole = (events / "b.parquet").read_bytes()
    (events / "b.parquet").write_bytes(whole[: len(whole) // 2])
    torn = bytearray(whole)
    torn[4 : len(torn) // 2] = bytes(len(torn) // 2 - 4)  # the pages, not the footer
    (events / "c.parquet").write_bytes(torn)
    one = rs.match_files(spark, str(events / "a.parquet"), store, tmp_path / "one")
    report = rs.match_files(spark, str(events), store, tmp_path / "out")
    assert report.pairs == 2 * one.pairs
    assert report.rejected_rows == 2
    rows = {Path(row.source).name: row.reason for row in report.rejected.collect()}
    assert set(rows) == {"b.parquet", "c.parquet"}
    assert "cannot be read: Parquet magic bytes not found in footer" in rows["b.parquet"]
    with pytest.raises(rc.StorageError, match=r"b.parquet: not a Parquet file that can be read"):
        rs.match_files(spark, str(events), store, tmp_path / "strict", strict=True)


def test_booleans_and_numbers_of_seconds(spark, tmp_path):
    schema = rc.Schema(rc.Timestamp("at", unit="s"), rc.Bool("ok"))
    rows = [{"id": 1, "at": 1_769_860_800, "ok": True}, {"id": 2, "at": 1_769_860_801, "ok": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    subs = rc.Subscriptions.parse(schema, {7: "at > 1769860800", 8: "at on 2026-01-31 and ok"})
    wanted = [(1, 8), (2, 7)]
    rs.match_files(spark, str(tmp_path / "events.parquet"), subs, str(tmp_path / "out"), event_id="id")
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["event_id"], row["subscription_id"]) for row in found) == wanted
    frame = spark.createDataFrame(rows, "id long, at long, ok boolean")
    assert sorted(map(tuple, rs.match(frame, subs, event_id="id").collect())) == wanted
    with pytest.raises(
        rc.EventError, match="must be timestamp, timestamp_ntz or date for a timestamp, got bigint"
    ):
        rs.match(frame, rc.Subscriptions.parse(rc.Schema(rc.Timestamp("at")), {7: "at > 5"}), event_id="id")


def test_arrays_of_tags(spark, tmp_path):
    schema = rc.Schema(rc.Tags("tags"), rc.Int("a"))
    rows = [
        {"id": 1, "tags": ["x", "y"], "a": 1},
        {"id": 2, "tags": ["z"], "a": 1},
        {"id": 3, "tags": None, "a": 1},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    texts = {7: "tags has all ('x', 'y')", 8: "tags has none ('x')", 9: "tags has any ('x', 'z') and a = 1"}
    subs = rc.Subscriptions.parse(schema, texts)
    wanted = [(1, 7), (1, 9), (2, 8), (2, 9)]
    rs.match_files(spark, str(tmp_path / "events.parquet"), subs, str(tmp_path / "out"), event_id="id")
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["event_id"], row["subscription_id"]) for row in found) == wanted
    frame = spark.createDataFrame(rows, "id long, tags array<string>, a int")
    assert sorted(map(tuple, rs.match(frame, subs, event_id="id").collect())) == wanted


def test_the_whole_language_as_the_library_reads_it(spark, tmp_path):
    schema = rc.Schema(
        rc.Int("a"), rc.Int("b"), rc.Text("name"), rc.Category("title"), rc.Tags("tags"), rc.Timestamp("at")
    )
    texts = [
        "a * b > 6", "a > b + 1", "hour(at) between 9 and 16", "name >= 'M' and name < 'Zz'",
        "name between 'A' and 'C' or name = 'Zoe'", "title contains 'disk' and not title contains 'test'",
        "not title contains 'disk'", "title like '%k_f%'", "title matches 'disk [0-9]+'",
        "title ilike 'DISK%'",
        "tags has all ('x', 'y')", "tags has none ('x')", "tags has 'x' and title contains 'full'",
        "not (tags has 'y' or title starts with 'a')", "name contains 'o' and title contains 'o'",
    ]  # fmt: skip
    at = dt.datetime(2026, 1, 30, 8, 15)
    rows = [
        {
            "id": k,
            "a": k % 5,
            "b": k % 4 if k % 7 else None,
            "name": ["Bob", "Moe", "Zoe", None, "anna"][k % 5],
            "title": ["disk 7 full", "a test of disk 9", "no disk_full", None, "Disk"][k // 2 % 5],
            "tags": [["x", "y"], ["x"], [], ["z", "y"], None][k % 5],
            "at": at + dt.timedelta(hours=k),
        }
        for k in range(24)
    ]
    index = rc.open_index("auto", schema)
    index.insert(rc.Subscriptions.parse(schema, dict(enumerate(texts))))
    found = index.match(rc.Events.from_rows(schema, rows))
    wanted = sorted((e, int(k)) for e in range(len(rows)) for k in found.row(e))
    assert len({k for _, k in wanted}) == len(texts)
    store = tmp_path / "store"
    rules = spark.createDataFrame(list(enumerate(texts)), "id long, condition string")
    report = rs.ingest(rules, rc.Schema(*schema), store, id="id", condition="condition")
    assert report.rejected_rows == 0
    kinds = "id long, a int, b int, name string, title string, tags array<string>, at timestamp_ntz"
    frame = spark.createDataFrame(rows, kinds)
    assert sorted(map(tuple, rs.match(frame, store, event_id="id").collect())) == wanted
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    rs.match_files(spark, str(tmp_path / "events.parquet"), store, str(tmp_path / "out"), event_id="id")
    pairs = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["event_id"], row["subscription_id"]) for row in pairs) == wanted
