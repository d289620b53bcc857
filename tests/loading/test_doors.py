"""Every door gives the same: one nasty file in, and ids, matches and rejected rows are compared.

The file has what readers disagree on: ids that are nearly numbers, whole numbers at the ends of int64 and
beyond, empty and quoted empty fields, a byte order mark, NaN, booleans, time zones, and rows that are bad in
every way that the format allows. What comes out is written down here for each format; all doors must give it.
"""

import csv
import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rangecast as rc
from rangecast.cli.app import app
from rangecast.loading import EventFile

LARGEST, SMALLEST = 2**63 - 1, -(2**63)

# the events of some cases have ids and one attribute alone, which is said
pytestmark = pytest.mark.filterwarnings("ignore:no event has a value")
CONDITIONS = {
    1: "price = 12",
    2: "at = '2026-01-01T00:00:00Z'",
    3: "change is missing",
    4: "symbol = ''",
    5: "flag = 'true'",
    6: "price is missing",
}

CSV = [
    b"\xef\xbb\xbfid,price,change,symbol,flag,at,note",
    b"007,12,nan,IBM,true,2026-01-01T00:00:00Z,",
    b'+5,12,0.5,"",false,2026-01-01T01:00:00+01:00,',
    b"x6,,0.5,,,2026-01-01,",
    b"9223372036854775807,12,0.5,,,,",
    b"9223372036854775808,12,0.5,,,,",
    b"-9223372036854775808,12,0.5,,,,",
    b"5,NaN,0.5,,,,",
    b"5.0,12,0.5,,,,",
    b",12,0.5,,,,",
    b'"",12,0.5,,,,',
    b"14,twelve,0.5,,,,",
    b"15,12",
    b"16,12,0.5,\xff,,,",
    b"",
    b"17,3,0.5,A,,yesterday,",
    b'18,3,0.5,"open,,,',
    b'" 19",12,0.5,"a\nb",,,',
    b"-0,12,0.5,,,,",
    b"20,9223372036854775808,0.5,,,,",
]
CSV_GOOD = {
    "007": (1, 2, 3, 5),
    "+5": (1, 2, 4),
    "x6": (2, 6),
    "9223372036854775807": (1,),
    "9223372036854775808": (1,),
    "-9223372036854775808": (1,),
    "5": (6,),
    "5.0": (1,),
    "": (1,),
    " 19": (1,),
    "-0": (1,),
}
CSV_BAD = {
    (9, 10, None): "an event must have an id, got null",
    (11, 12, "14"): "'price' is an int, got the string 'twelve'",
    (12, 13, None): "a row must have 7 fields, got 2",
    (13, 14, None): "a line must be UTF-8",
    (14, 16, "17"): "'at' is a timestamp, got the string 'yesterday'",
    (15, 17, None): "a row must have 7 fields, got quotes out of place",
    (18, 21, "20"): "'price' is an int, got the string '9223372036854775808'",
}

JSONL = [
    '\ufeff{"id": "007", "price": 12, "change": NaN, "symbol": "IBM", "flag": true, '
    '"at": "2026-01-01T00:00:00Z"}',
    '{"id": "+5", "price": "12", "change": 0.5, "symbol": "", "flag": false, '
    '"at": "2026-01-01T01:00:00+01:00"}',
    '{"id": "x6", "price": null, "change": 0.5, "at": "2026-01-01"}',
    '{"id": 9223372036854775807, "price": 12, "change": 0.5}',
    '{"id": 9223372036854775808, "price": 12, "change": 0.5}',
    '{"id": -9223372036854775808, "price": 12.0, "change": 1}',
    '{"id": 5, "change": 0.5}',
    '{"id": 5.0, "price": 12, "change": 0.5}',
    '{"price": 12, "change": 0.5}',
    '{"id": "", "price": 12, "change": 0.5}',
    '{"id": "14", "price": "twelve", "change": 0.5}',
    '{"id": "15", "price": ',
    "[12]",
    "",
    '{"id": "17", "price": 3, "change": 0.5, "at": "yesterday"}',
    '{"id": true, "price": 12, "change": 0.5}',
    '{"id": "20", "price": 12.5, "change": 0.5}',
    '{"id": "21", "price": 12, "change": 0.5, "symbol": 5}',
]
JSONL_GOOD = {id: ids for id, ids in CSV_GOOD.items() if id not in ("5.0", " 19", "-0")}
JSONL_BAD = {
    (8, 8, "5.0"): "an event's id must be a whole number or a string, got the number 5.0",
    (9, 9, None): "an event must have an id, got null",
    (11, 11, "14"): "'price' is an int, got the string 'twelve'",
    (12, 12, None): "a line must be a JSON object: Expecting value at character 23",
    (13, 13, None): "a line must be a JSON object, got [12]",
    (14, 15, "17"): "'at' is a timestamp, got the string 'yesterday'",
    (15, 16, "true"): "an event's id must be a whole number or a string, got the boolean True",
    (16, 17, "20"): "'price' is an int, got the number 12.5",
    (17, 18, "21"): "'symbol' is a category, got 5",
}

NOON = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PARQUET = {
    "id": pa.array(["007", "+5", "x6", str(2**63), "5", None, "", "14"]),
    "price": pa.array([12, 12, None, 12, None, 12, 12, SMALLEST], pa.int64()),
    "change": pa.array([float("nan"), 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
    "symbol": pa.array(["IBM", "", None, None, None, None, None, None]).dictionary_encode(),
    "flag": pa.array([True, False, None, None, None, None, None, None]),
    "at": pa.array([NOON, NOON, NOON, None, None, None, None, None], pa.timestamp("ms", "Europe/Paris")),
}
PARQUET_GOOD = {id: CSV_GOOD[id] for id in ("007", "+5", "x6", "9223372036854775808", "5", "")}
PARQUET_BAD = {
    (6, None, None): "an event must have an id, got null",
    (8, None, "14"): f"'price' is an int, got {SMALLEST}",
}

# With whole numbers asked for, the words are rejected and the others stay.
NOT_WHOLE = "an event's id must be a whole number in this run, got "


def schema():
    return rc.Schema(
        rc.Int("price"), rc.Float("change"), rc.Category("symbol"), rc.Category("flag"), rc.Timestamp("at")
    )


class Doors:
    """A store, an index and a file of each format, in folders of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.store = rc.Store.open(folder / "store", schema(), index="scan")
        self.store.insert(rc.Subscriptions.parse(self.store.schema, CONDITIONS))
        self.index = self.store.index()
        (folder / "schema.toml").write_text(schema().to_toml())
        with open(folder / "subs.csv", "w", newline="") as file:
            csv.writer(file).writerows([("id", "condition"), *CONDITIONS.items()])
        self.write("csv", b"\n".join(CSV) + b"\n")
        self.write("jsonl", ("\n".join(JSONL) + "\n").encode())
        pq.write_table(pa.table(PARQUET), self.write("parquet", b""), row_group_size=3)

    def write(self, kind, content, name="nasty"):
        place = self.folder / f"in-{kind}"
        place.mkdir(exist_ok=True)
        (place / f"{name}.{kind}").write_bytes(content)
        return place / f"{name}.{kind}"

    def file(self, kind):
        return self.folder / f"in-{kind}" / f"nasty.{kind}"


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    return Doors(tmp_path_factory.mktemp("doors"))


def grouped(pairs):
    """For each event id its subscriptions, in order."""
    found = {}
    for event, subscription in sorted(pairs):
        found[event] = (*found.get(event, ()), subscription)
    return found


def pairs_of(table):
    return zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)


def listed(rows, path):
    """Rejected rows by what must be the same, whatever the door; each must name the file."""
    rows = [row if isinstance(row, dict) else row.asDict() for row in rows]
    assert {str(row["source"]) for row in rows} <= {str(path)}
    found = {(row["row"], row["line"], row["id"]): (row["reason"], row["raw"]) for row in rows}
    assert len(found) == len(rows)
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def through_library(doors, kind, id_type):
    path = doors.file(kind)
    done = rc.match_file(doors.index, path, id_type=id_type)
    assert done.n_rejected == len(done.rejected)
    assert done.n_pairs == done.pairs.num_rows
    return grouped(pairs_of(done.pairs)), listed([row._asdict() for row in done.rejected], path)


def through_command_line(doors, kind, id_type):
    path, out = doors.file(kind), doors.folder / f"cli-{kind}-{id_type}.parquet"
    words = ["--schema", doors.folder / "schema.toml", "--subscriptions", doors.folder / "subs.csv"]
    words += ["--events", path, "--out", out, "--index", "scan", "--threads", 1]
    words += ["--id-type", id_type] if id_type else []
    result = CliRunner().invoke(app, ["match", *map(str, words)])
    assert result.exit_code == 1, result.output
    with open(out.with_name(f"{out.stem}.rejects.csv"), newline="") as file:
        rows = [{name: text or None for name, text in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        row |= {name: int(row[name]) if row[name] else None for name in ("row", "line")}
        row["raw"] = row["raw"] or ""
    return grouped(pairs_of(pq.read_table(out))), listed(rows, path)


def through_match_files(doors, kind, id_type, spark):
    from rangecast import spark as rs

    path, out = doors.file(kind), doors.folder / f"files-{kind}-{id_type}"
    report = rs.match_files(spark, path, doors.store, out, id_type=id_type)
    found = spark.read.parquet(str(out)).toArrow()
    return grouped(pairs_of(found)), listed(report.rejected.collect(), path)


def through_stream(doors, kind, id_type, spark):
    from rangecast import spark as rs

    path, out = doors.file(kind), doors.folder / f"stream-{kind}-{id_type}"
    events = rs.read_events(spark, path.parent, doors.store, id_type=id_type)
    query = rs.match_stream(
        events, doors.store, out=out, checkpoint=f"{out}-state", trigger={"availableNow": True}
    )
    query.awaitTermination()
    found = rs.read_matches(spark, out).select("event_id", "subscription_id").toArrow()
    return grouped(pairs_of(found)), listed(rs.read_rejects(spark, out).drop("batch_id").collect(), path)


def through_source(doors, kind, id_type, spark):
    from rangecast import spark as rs

    rs.register_source(spark)
    path, aside = doors.file(kind), doors.folder / f"source-{kind}-{id_type}"
    reader = spark.read.format("rangecast").option("store", str(doors.store.path))
    reader = reader.option("rejects", str(aside))
    if id_type:
        reader = reader.schema("event_id long, subscription_id long")
    found = reader.load(str(path)).toArrow()
    rows = pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(aside.rglob("*.parquet"))])
    return grouped(pairs_of(found)), listed(rows.to_pylist(), path)


GOOD = {"csv": CSV_GOOD, "jsonl": JSONL_GOOD, "parquet": PARQUET_GOOD}
BAD = {"csv": CSV_BAD, "jsonl": JSONL_BAD, "parquet": PARQUET_BAD}


@pytest.mark.parametrize("kind", GOOD)
def test_what_a_nasty_file_gives(doors, kind):
    """The library's answer is what is written above."""
    matches, rejected = through_library(doors, kind, None)
    assert matches == GOOD[kind]
    assert {key: reason for key, (reason, _) in rejected.items()} == BAD[kind]
    if kind == "csv":
        assert rejected[12, 13, None][1] == "15,12"
        assert rejected[13, 14, None][1] == "16,12,0.5,\ufffd,,,"
    elif kind == "jsonl":
        assert rejected[16, 17, "20"][1] == JSONL[16]
    else:
        assert json.loads(rejected[8, None, "14"][1])["price"] == SMALLEST


@pytest.mark.parametrize("kind", GOOD)
def test_what_it_gives_where_ids_must_be_whole_numbers(doors, kind):
    matches, rejected = through_library(doors, kind, "int64")
    whole = [id for id in GOOD[kind] if id in ("5", str(LARGEST), str(SMALLEST))]
    assert matches == {int(id): GOOD[kind][id] for id in whole}
    words = {id for (_, _, id), (reason, _) in rejected.items() if reason.startswith(NOT_WHOLE)}
    assert words == (set(GOOD[kind]) - set(whole)) | ({"5.0", "true"} if kind == "jsonl" else set())
    assert len(rejected) == len(BAD[kind]) + len(GOOD[kind]) - len(whole)


@pytest.mark.parametrize("id_type", [None, "int64"])
@pytest.mark.parametrize("kind", GOOD)
def test_the_command_line(doors, kind, id_type):
    matches, rejected = through_library(doors, kind, id_type)
    found, aside = through_command_line(doors, kind, id_type)
    assert found == matches
    # a side file has no difference between an empty text and none
    assert aside == {(row, line, id or None): said for (row, line, id), said in rejected.items()}


@pytest.mark.spark
@pytest.mark.parametrize("id_type", [None, "int64"])
@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("door", [through_match_files, through_stream, through_source])
def test_the_doors_of_spark(doors, kind, id_type, door, spark):
    assert door(doors, kind, id_type, spark) == through_library(doors, kind, id_type)


@pytest.mark.spark
def test_a_dataframe(doors, spark):
    """A DataFrame has no place for rejected rows: what is left after them gives the same pairs."""
    from rangecast import spark as rs

    frame = spark.read.parquet(str(doors.file("parquet"))).where("id is not null and id != '14'")
    found = rs.match(frame, doors.store).toArrow()
    assert grouped(pairs_of(found)) == PARQUET_GOOD


def test_ids_that_are_whole_numbers_everywhere_stay_numbers(doors):
    ids = [0, 7, -12, LARGEST, SMALLEST]
    texts = "id,price\n" + "".join(f"{id},12\n" for id in ids)
    lines = "".join(json.dumps({"id": id, "price": 12}) + "\n" for id in ids)
    files = [doors.write("csv", texts.encode(), ".whole"), doors.write("jsonl", lines.encode(), ".whole")]
    for kind in (pa.int64(), pa.string()):
        files.append(doors.folder / f"whole-{kind}.parquet")
        pq.write_table(pa.table({"id": pa.array(ids).cast(kind), "price": [12] * 5}), files[-1])
    for path in files:
        found = rc.match_file(doors.index, path).pairs
        kept = list(map(str, ids)) if path.name == "whole-string.parquet" else ids
        assert found.filter(np.equal(found["subscription_id"], 1))["event_id"].to_pylist() == kept


def test_a_word_after_the_first_block_is_rejected(doors, monkeypatch):
    monkeypatch.setattr("rangecast.loading.files.CHUNK", 32)
    path = doors.write("csv", b"id,price\n" + b"5,12\n" * 20 + b"x6,12\n", ".late")
    done = rc.match_file(doors.index, path)
    assert [(row.row, row.id, row.reason) for row in done.rejected] == [
        (21, "x6", NOT_WHOLE + "the string 'x6'")
    ]
    assert rc.match_file(doors.index, path, id_type="string").n_rejected == 0
    # a strict run also refuses attributes that no event has, so here every one has a value
    head, rest = b"id,price,change,symbol,flag,at\n", b",12,0.5,IBM,true,2026-01-31\n"
    path = doors.write("csv", head + (b"5" + rest) * 20 + b"x6" + rest, ".late2")
    with pytest.raises(rc.EventError, match=r"late2.csv row 21 \(line 22\), id x6: .* stops a strict run"):
        rc.match_file(doors.index, path, strict=True)


def test_kept_columns_of_a_text_file_are_texts(doors):
    """Whether a block of JSON was read at once or line by line."""
    lines = '{"id": 1, "price": 12, "flag": true}\n'
    for number, more in enumerate(["", '{"id": 2, "price": "x", "flag": 5}\n']):
        path = doors.write("jsonl", (lines + more).encode(), f".kept{number}")
        with EventFile(schema(), str(path), keep=["price", "flag"]) as file:
            (batch,) = file
        table = batch.table("id")
        assert table.schema.names == ["price", "flag", "id"]
        assert table.to_pylist() == [{"price": "12", "flag": "true", "id": 1}]


def test_subscriptions_by_the_same_rule(doors):
    """All ids of a file count, since it is loaded as a whole: with 007 among them, 7 is a string too."""
    texts = b"id,condition\n7,price = 1\n007,price = 1\n,price = 1\n7,price = 2\n8,price =\n"
    rows = [(7, "price = 1"), ("007", "price = 1"), (None, "price = 1"), ("7", "price = 2"), (8, "price =")]
    rows.append((1.5, "price = 1"))
    lines = "".join(json.dumps({"id": id, "condition": text}) + "\n" for id, text in rows).encode()
    for path in (doors.write("csv", texts, ".subs"), doors.write("jsonl", lines, ".subs")):
        rejects = rc.Rejects()
        subs = rc.load_subscriptions(schema(), path, rejects)
        assert [subs.ids[row] for row in range(len(subs))] == ["7", "007"]
        reasons = [
            (3, None, "a subscription must have an id, got null"),
            (4, "7", "this id stands in an earlier row of the load; ids must differ"),
            (5, "8", "column 8: expected a value"),
            (6, "1.5", "a subscription's id must be a whole number or a string, got the number 1.5"),
        ][: 3 if path.suffix == ".csv" else 4]
        for row, (number, id, reason) in zip(rejects.first, reasons, strict=True):
            assert (row.source, row.row, row.id) == (str(path), number, id)
            assert row.reason.startswith(reason)
        with pytest.raises(rc.SubscriptionError, match=r"subs\.\w+ row 3 .*must have an id, got null"):
            rc.load_subscriptions(schema(), path)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_subscriptions_that_spark_ingests(doors, kind, spark, tmp_path):
    """The same files through `rangecast spark ingest`: the same ids, and the same rejected rows."""
    from rangecast import spark as rs
    from rangecast.spark.ingest import read_subscriptions

    texts = (
        b'\xef\xbb\xbfid,condition,note\n7,price = 1,\n007,"price = 2\n",\n,price = 1,\n8,price =,\n9\n10,'
    )
    texts += b"\xff,\n"
    lines = b'{"id": 7, "condition": "price = 1"}\n{"id": "007", "condition": "price = 2"}\n'
    lines += b'{"condition": "price = 1"}\n{"id": 8, "condition": "price ="}\n{"id": \n'
    lines += b'{"id": 1.5, "condition": "price = 1"}\n'
    path = doors.write(kind, {"csv": texts, "jsonl": lines}[kind], ".ingest")
    rejects = rc.Rejects()
    subs = rc.load_subscriptions(schema(), path, rejects)
    assert len(rejects) == 4
    frame = read_subscriptions(spark, [str(path)], schema())
    for report in (rs.ingest(frame, schema(), tmp_path / "store"), rs.reduce(frame, schema())):
        found = sorted(report.rejected.collect(), key=lambda row: row.row)
        assert [row[:5] for row in found] == [tuple(row)[:5] for row in rejects.first]
    home = rc.Store.open(tmp_path / "store").subscriptions()
    assert sorted(home.ids.arrow().to_pylist()) == sorted(subs.ids.arrow().to_pylist()) == ["007", "7"]
    whole = doors.write(kind, {"csv": b"id,price,s\n7,1,2\n", "jsonl": b'{"id": 7, "s": 2}\n'}[kind], ".i2")
    frame = read_subscriptions(spark, [str(whole)], schema(), sequence="s")
    assert dict(frame.dtypes)["id"] == dict(frame.dtypes)["s"] == "bigint"
    with pytest.raises(rc.OptionError, match="files of one ingest must have one format, got csv, jsonl"):
        read_subscriptions(spark, ["a.csv", "b.jsonl"], schema())


def test_files_are_there_whole_or_not_at_all(doors, tmp_path):
    seen = []
    done = rc.match_file(
        doors.index,
        doors.file("csv"),
        tmp_path / "pairs.jsonl",
        rejected=tmp_path / "bad.csv",
        sort=True,
        progress=lambda position, so_far: seen.append((position, so_far.n_events)),
    )
    assert seen[-1] == (doors.file("csv").stat().st_size, len(CSV_GOOD))
    assert done.pairs is None
    assert done.absent == []
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == done.n_pairs
    with open(tmp_path / "bad.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == done.n_rejected == len(CSV_BAD)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(rc.EventError, match="there is no column 'key', only id, price"):
        rc.match_file(doors.index, doors.file("csv"), tmp_path / "pairs.csv", event_id="key")
    with pytest.raises(rc.EventError, match="stops a strict run"):
        rc.match_file(doors.index, doors.file("csv"), tmp_path / "pairs.csv", strict=True)
    with pytest.raises(rc.OptionError, match="id_type must be int64 or string, got 'int'"):
        rc.match_file(doors.index, doors.file("csv"), tmp_path / "pairs.csv", id_type="int")
    assert not list(tmp_path.iterdir())
