"""`rangecast match`: stores, delimiters, pipes, columns that come along, summaries as data, variables."""

import fcntl
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from cli.test_cli import fails, run
from rangecast.cli import app
from rangecast.cli.app import main
from rangecast.loading import OutputFile, open_rows

pytestmark = pytest.mark.without_kernels

SCHEMA = '[attributes.price]\ntype = "int"\n\n[attributes.symbol]\ntype = "category"\n'
RULES = """id;condition;owner
1;price > 10 and symbol = 'IBM';ann
2;price < 5;bob
3;symbol in ('A','B');"c;d"
"""
EVENTS = "id\tprice\tsymbol\tnote\n11\t12\tIBM\thello\n12\t3\tA\t\n"
PAIRS = "event_id,subscription_id\n11,1\n12,2\n12,3\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA)
    Path("rules.csv").write_text(RULES)
    Path("trades.tsv").write_text(EVENTS)
    return tmp_path


def match(*more, rules="rules.csv", events="trades.tsv"):
    given = ["--schema", "schema.toml", "--subscriptions", rules, "--events", events]
    return ["match", *given, "--threads", "1", "--sort", *more]


def test_delimiters_are_told_by_suffix_and_header(folder):
    done = run(*match())
    assert (done.exit_code, done.stdout) == (0, PAIRS)
    Path("bars.csv").write_text(EVENTS.replace("\t", "|"))
    assert run(*match(events="bars.csv")).stdout == PAIRS


def test_a_delimiter_may_be_given(folder):
    Path("odd.csv").write_text(EVENTS.replace("\t", "#"))
    Path("rules.csv").write_text(RULES.replace('"c;d"', "c").replace(";", "#"))
    assert run(*match("--delimiter", "#", events="odd.csv")).stdout == PAIRS
    assert "must have a column of the schema" in fails(*match(events="odd.csv"))
    for bad in (";;", '"', "ä", ""):
        assert "a delimiter must be one character" in fails(*match("--delimiter", bad))
    Path("tabs.csv").write_text(EVENTS)
    inferred = run("schema", "infer", "tabs.csv", "--skip", "note", "--delimiter", "tab").stdout
    assert inferred == rc.Schema.from_toml("schema.toml").to_toml()


def test_quotes_and_ragged_rows_by_another_delimiter(folder):
    Path("e.csv").write_text('id;price;symbol\n1;3;"a;b\nc"\n2;3\n3;4;"open\n4;5;B\n')
    with open_rows("e.csv") as file:
        batches = list(file.batches())
    assert [row for batch in batches for row in batch.data["symbol"].to_pylist()] == ["a;b\nc", "B"]
    assert [u.reason for batch in batches for u in batch.unread] == [
        "a row must have 3 fields, got 2",
        "a row must have 3 fields, got quotes out of place",
    ]


def test_a_store_is_matched_without_spark(folder):
    run("store", "add", "alerts", "--schema", "schema.toml", "--subscriptions", "rules.csv")
    run("store", "remove", "alerts", "3")
    newest = ["match", "--store", "alerts", "--events", "trades.tsv", "--sort"]
    assert run(*newest).stdout == "event_id,subscription_id\n11,1\n12,2\n"
    assert run(*newest, "--version", "1").stdout == PAIRS
    assert "has versions up to 2" in fails(*newest, "--version", "9")
    for more in (("--schema", "s"), ("--subscriptions", "r"), ("--index", "scan")):
        assert f"--store or {more[0]}, not both" in fails(*newest, *more)
    run(
        "store",
        "add",
        "owned",
        "--schema",
        "schema.toml",
        "--subscriptions",
        "rules.csv",
        "--payload",
        "owner",
    )
    owned = ["match", "--store", "owned", "--events", "trades.tsv", "--sort", "--payload"]
    assert run(*owned, "owner").stdout.splitlines()[1:] == ['11,1,"ann"', '12,2,"bob"', '12,3,"c;d"']
    assert "no payload 'phone', only owner" in fails(*owned, "phone")
    assert "needs --schema FILE, or --store" in fails("match", "--events", "trades.tsv")
    assert "--version is of a store" in fails(*match("--version", "1"))


def test_subscriptions_from_a_pipe(folder):
    done = run(*match("--subscriptions-format", "csv", rules="-"), input=RULES)
    assert done.stdout == PAIRS
    assert "--subscriptions - needs --subscriptions-format" in fails(*match(rules="-"))
    assert "cannot be combined with" in fails(*match("--events-format", "csv", rules="-", events="-"))


def test_columns_come_along(folder):
    done = run(*match("--keep", "note", "--keep", "price", "--payload", "owner", "--out", "m.tsv"))
    assert done.exit_code == 0, done.output
    assert Path("m.tsv").read_text() == (
        "event_id\tsubscription_id\tnote\tprice\towner\n"
        '11\t1\t"hello"\t"12"\t"ann"\n12\t2\t\t"3"\t"bob"\n12\t3\t\t"3"\t"c;d"\n'
    )
    run(*match("--keep", "note", "--payload", "condition", "--out", "m.jsonl"))
    assert json.loads(Path("m.jsonl").read_text().splitlines()[1]) == {
        "event_id": 12,
        "subscription_id": 2,
        "note": None,
        "condition": "price < 5",
    }


def test_kept_columns_have_the_types_of_their_files(folder):
    trades = pa.table({"id": [1, 2, 3], "price": [1, 50, 2], "fee": [0.5, 0.25, None]})
    pq.write_table(trades, "trades.parquet", row_group_size=1)
    rules = pa.table(
        {"id": ["a", "b", "c"], "price_low": [0, 2, 90], "level": pa.array([1, None, 3], pa.int8())}
    )
    pq.write_table(rules, "rules.parquet")
    more = ["--keep", "fee", "--payload", "level", "--batch", "1", "--out", "m.parquet"]
    done = run(*match(*more, rules="rules.parquet", events="trades.parquet"))
    assert done.exit_code == 0, done.output
    table = pq.read_table("m.parquet")
    assert table.schema.field("level").type == pa.int64()
    assert table.schema.field("fee").type == pa.float64()
    assert table.to_pydict() == {
        "event_id": [1, 2, 2, 3, 3],
        "subscription_id": ["a", "a", "b", "a", "b"],
        "fee": [0.5, 0.25, 0.25, None, None],
        "level": [1, 1, None, 1, None],
    }
    none = trades.slice(0, 0)
    pq.write_table(none, "none.parquet")
    run(*match(*more, rules="rules.parquet", events="none.parquet"))
    assert pq.read_schema("m.parquet").names == ["event_id", "subscription_id", "fee", "level"]


def test_what_cannot_come_along_is_refused(folder):
    assert "there is no column 'nope'" in fails(*match("--keep", "nope"))
    assert "there is no column 'nope'" in fails(*match("--payload", "nope"))
    assert "got twice: note" in fails(*match("--keep", "note", "--payload", "note"))
    assert "got twice: event_id" in fails(*match("--keep", "event_id"))
    pq.write_table(pa.table({"id": [1], "price": [1], "tags": [["a"]]}), "nested.parquet")
    assert "CSV cannot hold it" in fails(
        *match("--keep", "tags", "--payload", "owner", "--out", "m.csv", events="nested.parquet")
    )
    assert not list(folder.glob(".m.csv*"))


def test_a_payload_leaves_out_rejected_rows(folder):
    Path("r.jsonl").write_text(
        '{"id": 1, "condition": "price >", "owner": "x"}\n'
        '{"id": 2, "condition": "price < 5", "owner": "bob"}\nnonsense\n'
        '{"id": 3, "condition": "price < 6"}\n'
    )
    done = run(*match("--payload", "owner", rules="r.jsonl"))
    assert done.exit_code == 1
    assert done.stdout == 'event_id,subscription_id,owner\n12,2,"bob"\n12,3,\n'


def test_a_summary_as_json(folder):
    done = run(*match("--json", "--out", "m.csv"))
    found = json.loads(done.stdout)
    assert done.stderr == ""
    assert found["remarks"] == ["rules.csv: ignored: owner"]
    assert (found["subscriptions"], found["events"], found["matches"], found["out"]) == (3, 2, 3, "m.csv")
    assert set(found["seconds"]) == {"load", "build", "compile", "match", "read_match_write"}
    done = run(*match("--json"))  # the matches have stdout
    assert (done.stdout, json.loads(done.stderr)["matches"]) == (PAIRS, 3)


def test_options_from_variables(folder, monkeypatch):
    monkeypatch.setenv("RANGECAST_MATCH_SCHEMA", "schema.toml")
    monkeypatch.setenv("RANGECAST_MATCH_SORT", "1")
    monkeypatch.setenv("RANGECAST_VERSION", "9.9")  # an image may have it, and it is none of ours
    assert run("match", "--subscriptions", "rules.csv", "--events", "trades.tsv").stdout == PAIRS


def test_help_shows_flags_as_flags():
    for command in ("match", "store add", "schema infer", ""):
        shown = run(*command.split(), "--help").stdout
        assert "bool" not in shown
        assert "env var" not in shown


@pytest.mark.parametrize("shell", app.SHELLS)
def test_completion_scripts(shell):
    script = run("completion", shell).stdout
    assert "_RANGECAST_COMPLETE=complete_" + shell in script


def test_a_shell_is_answered(monkeypatch, capsys):
    assert "completion is for bash, zsh, fish" in fails("completion", "tcsh")
    monkeypatch.setenv("_RANGECAST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "rangecast match --subscriptions-f")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.split() == ["--subscriptions-format"]


def test_scratch_of_killed_runs_is_cleared(tmp_path):
    out = tmp_path / "m[1].csv"
    left = tmp_path / ".m[1].csv.999999.tmp"
    other = tmp_path / ".m[1].csv.notes.tmp"
    live = tmp_path / ".m[1].csv.999998.tmp"  # of a run that goes on, on whatever machine
    for path in (left, other, live):
        path.write_text("half")
    with open(live, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with OutputFile(out) as file:
            file.stream.write(b"whole")
        assert sorted(tmp_path.iterdir()) == sorted([out, other, live])
