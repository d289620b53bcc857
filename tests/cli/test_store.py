"""`rangecast store` and `rangecast spark` from the command line."""

import csv
import json
import re
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rangecast as rc
from rangecast.cli.app import app

pytestmark = pytest.mark.once

SCHEMA = '[attributes.price]\ntype = "int"\n\n[attributes.symbol]\ntype = "category"\n'


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "alerts.csv").write_text("id,condition\n1,price < 5\n2,symbol = 'A'\n3,price >\n")
    return tmp_path


def test_a_store_from_the_shell(place):
    made = run(
        "store", "add", "s", "--schema", "schema.toml", "--subscriptions", "alerts.csv", "--index", "scan"
    )
    assert made.exit_code == 1
    assert "version 1, 2 subscriptions added or replaced" in made.stderr
    assert "rejected: 1 of " in made.stderr
    assert run("store", "add", "s", "--id", 7, "--condition", "price in (1, 5)").exit_code == 0
    listed = run("store", "list", "s")
    assert listed.stdout.splitlines() == [
        "id  condition",
        "1   price < 5",
        "2   symbol = 'A'",
        "7   price in (1, 5)",
    ]
    limited = run("store", "list", "s", "--limit", 1, "--version", 1)
    assert "and 1 more" in limited.stderr
    assert run("store", "show", "s", 7).stdout.splitlines()[1] == "7   price in (1, 5)"
    gone = run("store", "remove", "s", 1, 99)
    assert gone.exit_code == 1
    assert "version 3, 1 subscriptions removed" in gone.stderr
    assert "not there: 99" in gone.stderr
    shown = run("store", "show", "s").stdout
    assert re.search(r"^version +3$", shown, re.M)
    assert re.search(r"^subscriptions +2$", shown, re.M)
    assert "1 log files removed" in run("store", "compact", "s").stderr
    assert "versions 3 to 3 are sound" in run("store", "verify", "s").stderr
    assert sorted(rc.Store.open("s").subscriptions().ids.values.tolist()) == [2, 7]


def test_answers_as_json(place):
    def told(*words, code=0):
        result = run("store", *words, "--json")
        assert result.exit_code == code, result.stderr
        assert result.stderr == ""
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert all(row.pop("store", str(place / "s")) == str(place / "s") for row in found)
        return found

    (place / "alerts.csv").write_text(
        "id,condition,owner,until,odd\n1,price < 5,ann,2031-01-01,\n2,symbol = 'A',,,\n3,price >,,,\n"
    )
    columns = ("--payload", "owner", "--expires-column", "until", "--index", "scan")
    made = told(
        "add", "s", "--schema", "schema.toml", "--subscriptions", "alerts.csv", *columns, code=1
    )  # fmt: skip
    assert made == [
        {
            "version": 1,
            "added": 2,
            "ends": None,
            "rejected": {"alerts.csv": 1},
            "rejects": None,
            "remarks": ["alerts.csv: ignored: odd"],
        }
    ]
    (one,) = told("add", "s", "--id", 7, "--condition", "price in (1, 5)", "--expires", "2032-01-01")
    assert (one["version"], one["added"], one["ends"]) == (2, 1, "2032-01-01 00:00:00+00:00")
    first = {"id": 1, "condition": "price < 5", "payload": {"owner": "ann"}}
    first["ends"] = "2031-01-01 00:00:00+00:00"
    assert told("list", "s", "--limit", 2) == [
        first,
        {"id": 2, "condition": "symbol = 'A'", "payload": {"owner": None}},
    ]
    assert [row["id"] for row in told("list", "s", "--version", 1)] == [1, 2]
    assert told("show", "s", 1) == [first]
    (shown,) = told("show", "s")
    assert (shown["version"], shown["oldest"], shown["subscriptions"], shown["index"]) == (2, 0, 3, "scan")
    assert (shown["attributes"], shown["snapshots"]) == ({"price": "int", "symbol": "category"}, [])
    assert (shown["next_end"], shown["holds"]) == ("2031-01-01 00:00:00+00:00", [])
    assert shown["changed"].endswith("+00:00")
    gone = {"version": 3, "removed": 1, "not_there": [99]}
    assert told("remove", "s", 2, 99, code=1) == [gone]
    assert told("expire", "s", "--now", "2031-06-01") == [{"version": 4, "ended": 1}]
    rc.Store.open("s").hold("nightly", 3, "a note")
    (held,) = told("holds", "s")
    assert {**held["holds"][0], "since": ""} == {
        "name": "nightly",
        "version": 3,
        "since": "",
        "note": "a note",
    }
    (left,) = told("holds", "s", "--release", "other", "--release", "nightly", code=1)
    assert (left["holds"], left["not_there"]) == ([], ["other"])
    (freed,) = told("compact", "s")
    assert (freed["oldest"], freed["segments"]) == (4, 1)
    assert told("verify", "s") == [{"oldest": 4, "version": 4, "problems": []}]
    next((place / "s" / "snapshots").glob("*.index")).write_bytes(b"x")
    (verified,) = told("verify", "s", code=1)
    assert len(verified["problems"]) == 1


def test_payload_of_mixed_types_is_kept_as_texts(place):
    values = ["5", "true", '"ann"', "1.5", "null", "18446744073709551617", "[1]", '{"a": 1}']
    lines = [f'{{"id": {i}, "condition": "price > {i}", "owner": {v}}}' for i, v in enumerate(values)]
    (place / "owned.jsonl").write_text("\n".join(lines) + "\n")
    words = ("--schema", "schema.toml", "--subscriptions", "owned.jsonl", "--payload", "owner")
    made = run("store", "add", "s", *words, "--index", "scan", "--rejects", "bad.csv")
    assert made.exit_code == 1, made.stderr
    kept = rc.Store.open("s").subscriptions().payload["owner"].to_pylist()
    assert kept == ["5", "true", "ann", "1.5", None, "18446744073709551617"]
    bad = (place / "bad.csv").read_text()
    assert "payload 'owner' must be strings, numbers, booleans, dates or times, got [1]" in bad
    assert "got {'a': 1}" in bad
    (place / "events.csv").write_text("id,price\n1,2\n")
    matched = run("match", "--store", "s", "--events", "events.csv", "--payload", "owner", "--sort")
    assert matched.stdout.splitlines() == ["event_id,subscription_id,owner", '1,0,"5"', '1,1,"true"']


def test_subscriptions_that_end(place):
    run("store", "add", "s", "--schema", "schema.toml", "--subscriptions", "alerts.csv", "--index", "scan")
    made = run("store", "add", "s", "--id", 7, "--condition", "price = 1", "--ttl", "2h")
    assert re.search(r"version 2, 1 subscriptions added or replaced, until 20\d\d-", made.stderr)
    made = run(
        "store", "add", "s", "--id", 8, "--condition", "price = 2", "--expires", "2020-02-03T01:00+01:00"
    )
    assert "until 2020-02-03 00:00:00+00:00" in made.stderr
    listed = run("store", "list", "s").stdout.splitlines()
    assert listed[0].split() == ["id", "condition", "ends"]
    assert listed[1].rstrip() == "1   price < 5"
    assert listed[4].rstrip() == "8   price = 2     2020-02-03 00:00:00+00:00"
    assert run("store", "show", "s", 8).stdout.splitlines()[1].endswith("2020-02-03 00:00:00+00:00")
    assert re.search(r"^next to end +2020-02-03 00:00:00", run("store", "show", "s").stdout, re.M)
    assert "version 3, 0 subscriptions" in run("store", "expire", "s", "--now", "2020-01-01").stderr
    assert "version 4, 1 subscriptions had expired" in run("store", "expire", "s").stderr
    assert "version 5, 1 subscriptions" in run("store", "expire", "s", "--now", "2999-01-01").stderr
    assert [line.split()[0] for line in run("store", "list", "s").stdout.splitlines()] == ["id", "1", "2"]


def test_holds_from_the_shell(place):
    run("store", "add", "s", "--schema", "schema.toml", "--subscriptions", "alerts.csv", "--index", "scan")
    assert "no version is held" in run("store", "holds", "s").stderr
    rc.Store.open("s").hold("nightly", 1, "batch 3")
    run("store", "remove", "s", 1)
    listed = run("store", "holds", "s").stdout.splitlines()
    assert listed[0].split() == ["name", "version", "since", "note"]
    assert re.fullmatch(r"nightly +1 +20\d\d-.* +batch 3", listed[1].rstrip())
    assert re.search(r"^held +version 1 by nightly$", run("store", "show", "s").stdout, re.M)
    refused = run("store", "compact", "s", "--keep", 2)
    assert refused.exit_code == 2
    assert "version 1 is held by 'nightly' (batch 3)" in refused.stderr
    assert run("store", "compact", "s").exit_code == 0
    assert rc.Store.open("s").snapshots() == [1]
    released = run("store", "holds", "s", "--release", "nightly", "--release", "nobody")
    assert released.exit_code == 1
    assert "not there: nobody" in released.stderr
    run("store", "compact", "s")
    assert rc.Store.open("s").oldest == 2
    assert re.search(r"^changed +20", run("store", "show", "s").stdout, re.M)


def test_a_damaged_store_fails_verify(place):
    run("store", "add", "s", "--schema", "schema.toml", "--subscriptions", "alerts.csv")
    path = rc.Store.open("s").snapshot()
    raw = bytearray(path.read_bytes())
    raw[-64] ^= 1
    path.write_bytes(raw)
    result = run("store", "verify", "s")
    assert result.exit_code == 1
    assert "is damaged" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["store", "show", "nothing"], "there is no store here"),
        (["store", "add", "s"], "--subscriptions FILE, or --id ID and --condition TEXT"),
        (["store", "remove", "s", "x"], "ids are whole numbers, got 'x'"),
        (["store", "show", "s", "12"], "no subscription has the id 12"),
        (["store", "compact", "s", "--keep", "9"], "cannot keep 9"),
        (["store", "add", "s", "--id", "1", "--condition", "price < 1", "--ttl", "2 hours"], "as in '90s'"),
        (["store", "add", "s", "--id", "1", "--condition", "price < 1", "--ttl", "h"], "got 'h'"),
        (["store", "add", "s", "--id", "1", "--condition", "x", "--ttl", "1h", "--expires", "2"], "not both"),
        (
            ["store", "add", "s", "--id", "1", "--condition", "price < 1", "--expires", "soon"],
            "must be a time",
        ),
        (["store", "expire", "s", "--now", "later"], "--now must be a time"),
    ],
)
def test_what_is_refused(place, words, message):
    run("store", "add", "s", "--schema", "schema.toml", "--subscriptions", "alerts.csv")
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.spark
def test_spark_ingest_and_match(spark, place):
    alerts = "id,condition\n1,price < 5\n2,symbol = 'A'\n3,price >\n"
    (place / "alerts.csv").write_text(alerts)
    made = run("spark", "ingest", "alerts.csv", "--store", "s", "--schema", "schema.toml")
    assert made.exit_code == 1, made.stderr
    assert "rejected: 1" in made.stderr
    pq.write_table(pa.table({"id": [10, 11], "price": [3, 9], "symbol": ["A", "B"]}), "trades.parquet")
    result = run("spark", "match", "trades.parquet", "--store", "s", "--out", "out")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^matches +2$", result.stdout, re.M)
    found = pq.read_table("out/part-00000.parquet").to_pylist()
    assert sorted((row["event_id"], row["subscription_id"]) for row in found) == [(10, 1), (10, 2)]
    failed = run("spark", "match", "trades.parquet", "--store", "s", "--out", "o", "--conf", "x")
    assert failed.exit_code == 2
    assert "--conf takes spark.KEY=VALUE" in failed.stderr


@pytest.mark.spark
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_spark_ingest_keeps_columns_of_users(spark, place, form):
    columns = {
        "id": [1, 2, 3],
        "condition": ["price < 5", "price >", "price < 9"],
        "owner": ["ann", "bob", None],
        "level": [5, 6, 7],
        "until": ["2031-01-01", None, None],
    }
    table = pa.table(columns)
    if form == "parquet":
        pq.write_table(table, "alerts.parquet")
    elif form == "jsonl":
        lines = [json.dumps(row) for row in table.to_pylist()]
        (place / "alerts.jsonl").write_text("\n".join([*lines, '{"id": 4, "owner": [1]}', "{"]) + "\n")
    else:
        pa.csv.write_csv(table, "alerts.csv")
    words = ("--store", "s", "--schema", "schema.toml", "--payload", "owner", "--payload", "level")
    made = run("spark", "ingest", f"alerts.{form}", *words, "--expires-column", "until")
    assert made.exit_code == 1, made.stderr
    store = rc.Store.open("s")
    level = str if form == "csv" else int  # CSV has no types
    assert store.subscriptions().payload.to_pylist() == [
        {"owner": "ann", "level": level(5)},
        # an empty field of CSV is absent
        {"owner": None, "level": level(7)},
    ]
    assert store.expires_at([1, 3]).tolist() == [1924992000000000, 0]
    if form == "jsonl":
        assert "payload 'owner' must be strings" in made.stderr
    (place / "events.csv").write_text("id,price\n10,4\n")
    matched = run(
        "match", "--store", "s", "--events", "events.csv", "--payload", "owner", "--payload", "level"
    )
    found = sorted(csv.reader(matched.stdout.splitlines()[1:]))
    assert found == [["10", "1", "ann", "5"], ["10", "3", "", "7"]]


@pytest.mark.spark
def test_the_demo_runs_the_pipeline(spark, place, monkeypatch):
    # the session is shared with the other tests
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    result = run("demo", "--subscriptions", 400, "--events", 300)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^alerts +400 \(and 5 rejected\)$", result.stdout, re.M)
    n = sum(pq.read_metadata(path).num_rows for path in place.glob("demo-output/matches/part-*.parquet"))
    assert re.search(rf"^notifications +{n:,}$", result.stdout, re.M)
    # the picture needs the extra `bench`
    assert (place / "demo-output/day.png").exists() == (find_spec("matplotlib") is not None)
    assert "rejected: alert -3" in result.stderr


def test_columns_of_users_from_the_shell(place):
    rows = ["id,condition,owner,until", "1,price < 5,ann,2031-01-01", "2,price >,bob,", "3,price > 7,bob,"]
    (place / "owned.csv").write_text("\n".join(rows) + "\n")
    made = run(
        *("store", "add", "s", "--schema", "schema.toml", "--subscriptions", "owned.csv", "--index", "scan"),
        *("--payload", "owner", "--expires-column", "until"),
    )
    assert made.exit_code == 1, made.stderr
    assert run("store", "show", "s", 1).stdout.split() == [
        *("id", "condition", "owner", "ends"),
        *("1", "price", "<", "5", "ann", "2031-01-01", "00:00:00+00:00"),
    ]
    removed = run("store", "remove", "s", "--where", "owner = 'bob'")
    assert (removed.exit_code, "1 subscriptions removed" in removed.stderr) == (0, True)
    assert len(rc.Store.open(place / "s")) == 1
    assert "takes ids, or --where" in run("store", "remove", "s").stderr
    assert "unknown attribute 'ownr'" in run("store", "remove", "s", "--where", "ownr = 'x'").stderr
    refused = run("store", "add", "s", "--id", 9, "--condition", "price = 1", "--payload", "owner")
    assert "--payload and --expires-column are of a file" in refused.stderr
