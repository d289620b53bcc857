"""`rangecast store` and `rangecast spark` from the command line."""

import re

import pyarrow as pa
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
    assert "version 4, 1 subscriptions had come to their end" in run("store", "expire", "s").stderr
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
def test_the_demo_runs_the_pipeline(spark, place, monkeypatch):
    # the session is shared with the other tests
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    result = run("demo", "--subscriptions", 400, "--events", 300)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^alerts +400 \(and 5 rejected\)$", result.stdout, re.M)
    n = sum(pq.read_metadata(path).num_rows for path in place.glob("demo-output/matches/part-*.parquet"))
    assert re.search(rf"^notifications +{n:,}$", result.stdout, re.M)
    assert (place / "demo-output/day.png").exists()
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
