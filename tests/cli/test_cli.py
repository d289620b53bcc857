"""The command line: what it writes where, its exit codes, its errors, and that bad rows stop nothing."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rangecast as rc
from page_blocks import run_examples
from rangecast import workloads
from rangecast.cli import workloads as experiment_module
from rangecast.cli import workloads as warm_up_module
from rangecast.cli.app import COMMANDS, app, load_command
from rangecast.loading import pairs
from rangecast.papers import EXPERIMENTS
from rangecast.papers.report import Claim

pytestmark = pytest.mark.without_kernels

SCHEMA = """
[attributes.price]
type = "int"

[attributes.symbol]
type = "category"

[attributes.at]
type = "timestamp"
"""

SUBSCRIPTIONS = """id,condition
1,price between 10 and 20 and symbol = 'IBM'
2,"symbol in ('A', 'B')"
3,price < 5 or price > 100
4,at >= '2026-01-02'
"""

EVENTS = """id,price,symbol,at
11,12,IBM,2026-01-01T00:00:00Z
12,,A,2026-01-03
13,200,C,
"""

PAIRS = [(11, 1), (12, 2), (12, 4), (13, 3)]

# Ten rows, each bad in its own way, and what must be said of it.
BAD = [
    (b"20,price >", "column 8: expected a value"),
    (b"21,prize > 3", "column 1: unknown attribute 'prize'"),
    (b"22,price = 'x'", "column 9: 'price' is an int"),
    (b"23", "a row must have 2 fields, got 1"),
    (b"24,price > 3,more", "a row must have 2 fields, got 3"),
    (b"25,", "a condition must be a string, got null"),
    (b",price > 3", "a subscription must have an id, got null"),
    (b"1,price > 3", "this id stands in an earlier row"),
    (b"26,price > \xff", "a line must be UTF-8"),
    (b'27,"price > 3', "a row must have 2 fields, got quotes out of place"),
]


def run(*arguments, input=None):
    """Run the app; stdout and stderr apart, an exception that is no exit raised."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def fails(*arguments):
    """Run what must fail: exit code 2, nothing on stdout, one line on stderr, which is returned."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("rangecast: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a schema, four subscriptions and three events, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA)
    Path("subs.csv").write_text(SUBSCRIPTIONS)
    Path("events.csv").write_text(EVENTS)
    return tmp_path


def match(*more, subscriptions="subs.csv", events="events.csv"):
    options = ["--schema", "schema.toml", "--subscriptions", subscriptions, "--events", events]
    return ["match", *options, "--threads", "1", *more]


def pairs_in(text):
    header, *rows = csv.reader(text.splitlines())
    assert header == ["event_id", "subscription_id"]
    return [(int(event), int(subscription)) for event, subscription in rows]


def test_version():
    assert run("--version").stdout == f"rangecast {rc.__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        ["match"],
        ["explain"],
        ["generate"],
        ["indexes"],
        ["experiment"],
        ["demo"],
        ["stream-demo"],
        ["schema", "infer"],
        ["schema", "show"],
        ["spark", "ingest"],
        ["spark", "match"],
        ["spark", "reduce"],
        ["spark", "stream"],
        ["store", "add"],
        ["store", "compact"],
        ["store", "list"],
        ["store", "remove"],
        ["store", "show"],
        ["store", "verify"],
    ],
    ids=" ".join,
)
def test_help_teaches_with_an_example(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Example:" in result.stdout
    assert f"rangecast {' '.join(command)}" in result.stdout


def test_indexes_are_listed():
    lines = run("indexes").stdout.splitlines()
    assert lines[0].split() == ["index", "good", "for"]
    assert {"auto", "scan", "direct"} <= {line.split()[0] for line in lines[1:]}


class TestMatch:
    def test_pairs_on_stdout_and_the_summary_on_stderr(self, folder):
        result = run(*match("--sort"))
        assert result.exit_code == 0
        assert pairs_in(result.stdout) == PAIRS
        assert "4 subscriptions loaded" in result.stderr
        assert "3 events, 4 matches" in result.stderr

    def test_quiet(self, folder):
        assert run(*match("--quiet")).stderr == ""

    @pytest.mark.parametrize("index", ["auto", "scan", "direct"])
    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
    def test_output_by_suffix(self, folder, index, suffix):
        result = run(*match("--sort", "--index", index, "--out", f"out.{suffix}"))
        assert (result.exit_code, result.stdout) == (0, "")
        assert f"matches: out.{suffix}" in result.stderr
        path = folder / f"out.{suffix}"
        if suffix == "csv":
            assert pairs_in(path.read_text()) == PAIRS
        elif suffix == "jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            assert [(row["event_id"], row["subscription_id"]) for row in rows] == PAIRS
        else:
            table = pq.read_table(path)
            assert table.schema.names == ["event_id", "subscription_id"]
            assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == PAIRS

    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
    def test_input_by_suffix(self, folder, suffix):
        for stem in ("subs", "events"):
            table = pacsv.read_csv(
                f"{stem}.csv", convert_options=pacsv.ConvertOptions(column_types={"at": pa.string()})
            )
            if suffix == "jsonl":
                Path(f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
            elif suffix == "parquet":
                pq.write_table(table, f"{stem}.parquet")
        result = run(*match("--sort", subscriptions=f"subs.{suffix}", events=f"events.{suffix}"))
        assert (result.exit_code, pairs_in(result.stdout)) == (0, PAIRS)

    def test_ten_bad_rows_stop_nothing_and_are_all_listed(self, folder):
        body = SUBSCRIPTIONS.encode() + b"".join(line + b"\n" for line, _ in BAD) + b"5,price is missing\n"
        Path("subs.csv").write_bytes(body)
        result = run(*match("--sort", "--out", "out.csv"))
        assert result.exit_code == 1
        assert pairs_in(Path("out.csv").read_text()) == sorted([*PAIRS, (12, 5)])
        assert "rejected: 10 of subs.csv (all in out.rejects.csv)" in result.stderr
        with open("out.rejects.csv", newline="") as file:
            listed = list(csv.DictReader(file))
        assert [(row["source"], int(row["row"]), int(row["line"])) for row in listed] == [
            ("subs.csv", 5 + i, 6 + i) for i in range(10)
        ]
        for row, (line, reason) in zip(listed, BAD, strict=True):
            assert row["reason"].startswith(reason)
            assert row["raw"] == line.decode("utf-8", "replace")
            assert reason in result.stderr
        assert [row["id"] for row in listed] == ["20", "21", "22", "", "", "25", "", "1", "", ""]

    def test_bad_events_stop_nothing(self, folder):
        Path("events.csv").write_text(EVENTS + "14,abc,A,\n15,3\n16,3,,yesterday\n,3,A,\n17,3,,\n")
        result = run(*match("--sort", "--rejects", "bad.csv"))
        assert result.exit_code == 1
        assert pairs_in(result.stdout) == [*PAIRS, (17, 3)]
        with open("bad.csv", newline="") as file:
            listed = [(row["row"], row["id"], row["reason"]) for row in csv.DictReader(file)]
        assert listed == [
            ("4", "14", "'price' is an int, got the string 'abc'"),
            ("5", "", "a row must have 4 fields, got 2"),
            ("6", "16", "'at' is a timestamp, got the string 'yesterday'"),
            ("7", "", "an event must have an id, got null"),
        ]

    def test_rejects_without_a_file_are_shown(self, folder):
        Path("subs.csv").write_text(SUBSCRIPTIONS + "".join(f"{i},price >\n" for i in range(50, 62)))
        result = run(*match())
        assert result.exit_code == 1
        assert "rejected: 12 of subs.csv (--rejects FILE lists all)" in result.stderr
        assert "subs.csv row 14 (line 15), id 59: column 8" in result.stderr
        assert "id 60" not in result.stderr
        assert "and 2 more" in result.stderr

    def test_strict_stops_and_leaves_no_file(self, folder):
        Path("subs.csv").write_text(SUBSCRIPTIONS + "7,price >\n")
        message = fails(*match("--strict", "--out", "out.csv"))
        assert "subs.csv row 5 (line 6), id 7: column 8: expected a value" in message
        Path("subs.csv").write_text(SUBSCRIPTIONS)
        Path("events.csv").write_text(EVENTS + "14,abc,A,\n")
        assert "events.csv row 4 (line 5), id 14: 'price' is an int" in fails(
            *match("--strict", "--out", "out.csv")
        )
        assert {path.name for path in folder.iterdir()} == {"schema.toml", "subs.csv", "events.csv"}

    def test_a_good_run_removes_the_rejects_of_an_earlier_one(self, folder):
        Path("out.rejects.csv").write_text("old")
        assert run(*match("--out", "out.csv")).exit_code == 0
        assert not Path("out.rejects.csv").exists()

    def test_events_without_ids_are_numbered_by_row(self, folder):
        Path("events.csv").write_text("price,symbol\n12,IBM\n1\n,A\n")
        result = run(*match("--sort", "--rejects", "bad.csv"))
        assert pairs_in(result.stdout) == [(1, 1), (3, 2)]
        assert "no event has a value for 'at'" in result.stderr

    def test_several_files_and_patterns(self, folder):
        Path("more.csv").write_text("id,Price,symbol\n99,12,IBM\n")
        result = run(*match("--sort", "--events", "mor?.csv", "--out", "out.csv"))
        assert result.exit_code == 0
        got = pairs_in(Path("out.csv").read_text())
        assert got == [*pairs_in(run(*match("--sort")).stdout), (99, 1)]
        assert "stdin, which cannot be combined with other files" in fails(*match("--events", "-"))
        assert "no file has a name like this" in fails(*match("--events", "no*.csv"))

    def test_a_misspelt_column_is_said(self, folder):
        Path("events.csv").write_text("id,prize,symbol\n1,12,IBM\n")
        assert "(did you mean its column 'prize'?)" in run(*match()).stderr
        assert "(did you mean its column 'prize'?)" in fails(*match("--strict"))

    def test_string_ids(self, folder):
        Path("subs.csv").write_text('name,condition\nx,price > 1\n"a,""b",price > 1\n007,price > 1\n')
        Path("events.csv").write_text("key,price\ne1,5\n7,5\n")
        result = run(*match("--sort", "--id", "name", "--event-id", "key", "--out", "out.jsonl"))
        assert result.exit_code == 0
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
        assert [(row["event_id"], row["subscription_id"]) for row in rows] == [
            (event, name) for event in ("e1", "7") for name in ("007", 'a,"b', "x")
        ]

    def test_the_start_of_the_file_settles_what_event_ids_are(self, folder):
        pq.write_table(pa.table({"id": [1, 2], "price": [1, 1]}), "events.parquet")
        Path("events.jsonl").write_text(
            '{"id": 1, "price": 1}\n{"id": "x", "price": 1}\n{"id": true, "price": 1}\n'
        )
        Path("subs.csv").write_text("id,price\n5,1\n")
        assert run(*match(events="events.parquet")).stdout == "event_id,subscription_id\n1,5\n2,5\n"
        result = run(*match(events="events.jsonl"))
        assert result.exit_code == 1
        assert result.stdout == 'event_id,subscription_id\n"1",5\n"x",5\n'
        assert (
            "events.jsonl row 3 (line 3), id true: an event's id must be a whole number or a string, got the "
            "boolean True" in result.stderr
        )
        result = run(*match("--id-type", "int64", events="events.jsonl"))
        assert pairs_in(result.stdout) == [(1, 5)]
        assert "id x: an event's id must be a whole number in this run, got the string 'x'" in result.stderr
        assert "id_type must be int64 or string, got 'long'" in fails(*match("--id-type", "long"))

    def test_bounds_instead_of_conditions(self, folder):
        Path("subs.csv").write_text(
            "id,price_low,price_high,symbol,comment\n1,10,20,IBM,\n2,,15,,x\n3,9,5,,\n"
        )
        result = run(*match("--sort"))
        assert pairs_in(result.stdout) == [(11, 1), (11, 2)]
        assert "subs.csv: ignored: comment" in result.stderr
        assert "id 3: low must not exceed high on 'price', got [9, 5]" in result.stderr

    def test_condition_column_by_name(self, folder):
        Path("subs.csv").write_text(SUBSCRIPTIONS.replace("condition", "rule"))
        assert pairs_in(run(*match("--sort", "--condition", "rule")).stdout) == PAIRS
        Path("subs.jsonl").write_text('{"id": 1, "rule": "price > 0"}\n{"id": 2, "rule": 5}\n')
        result = run(*match("--sort", "--condition", "rule", subscriptions="subs.jsonl"))
        assert pairs_in(result.stdout) == [(11, 1), (13, 1)]
        assert "id 2: a condition must be a string, got 5" in result.stderr

    def test_small_batches_and_threads_agree(self, folder, monkeypatch):
        monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", 2)
        Path("events.csv").write_text("price\n" + "".join(f"{i % 150}\n" for i in range(100)))
        expected = pairs_in(run(*match("--sort")).stdout)
        assert len(expected) == 5
        assert pairs_in(run(*match("--sort", "--batch", "3", "--threads", "3")).stdout) == expected

    def test_no_events_and_no_subscriptions(self, folder):
        Path("events.csv").write_text("id,price\n")
        assert run(*match()).stdout == "event_id,subscription_id\n"
        Path("events.csv").write_text(EVENTS)
        for name, content in (("none.csv", "id,condition\n"), ("none.jsonl", "")):
            Path(name).write_text(content)
            result = run(*match("--out", "out.parquet", subscriptions=name))
            assert result.exit_code == 0
            assert pq.read_table("out.parquet").num_rows == 0

    def test_events_from_stdin(self, folder):
        result = run(*match("--sort", "--events-format", "csv", events="-"), input=EVENTS)
        assert pairs_in(result.stdout) == PAIRS

    def test_index_options(self, folder):
        result = run(*match("--sort", "--index", "direct", "--option", "on=symbol", "--option", "cells=64"))
        assert pairs_in(result.stdout) == PAIRS

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (match("--out", "out.xlsx"), "out.xlsx: the format must be given by the suffix"),
            (match("--out", "none/out.csv"), "none/out.csv: cannot be written: No such file"),
            (match("--index", "magic"), "no index is called 'magic'; there are"),
            (match("--index", "direct", "--option", "on=size"), "unknown attribute 'size'"),
            (match("--index", "scan", "--option", "depth=3"), "index 'scan': got an unexpected keyword"),
            (match("--option", "depth"), "--option takes name=value, got 'depth'"),
            (match("--id", "key"), "subs.csv: there is no column 'key', only id, condition"),
            (match("--condition", "rule"), "subs.csv: there is no column 'rule', only id"),
            (match("--event-id", "key"), "events.csv: there is no column 'key', only id, price"),
            (match(subscriptions="none.csv"), "none.csv: cannot be read: No such file"),
            (match(events="none.parquet"), "none.parquet: cannot be read: No such file"),
            (match(events="subs.csv"), "subs.csv: must have a column of the schema (price, symbol, at), got"),
            (match(subscriptions="schema.toml"), "schema.toml: the format must be given"),
            (match(events="-"), "--events - needs --events-format csv or jsonl"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_errors_are_one_line(self, folder, arguments, message):
        before = set(folder.iterdir())
        assert message in fails(*arguments)
        assert set(folder.iterdir()) == before

    def test_schema_errors(self, folder):
        Path("schema.toml").unlink()
        assert "schema.toml: No such file" in fails(*match())
        Path("schema.toml").write_text("[attributes.price]\ntype = 'number'\n")
        assert "schema.toml: attribute 'price': type must be one of" in fails(*match())

    def test_ids_of_another_type(self, folder):
        pq.write_table(pa.table({"id": [1.5], "price": [1]}), "events.parquet")
        assert "ids must be whole numbers or strings, 'id' is double" in fails(
            *match(events="events.parquet")
        )

    def test_usage_errors(self, folder):
        result = run("match", "--schema", "schema.toml", "--events", "events.csv")
        assert result.exit_code == 2
        assert "--subscriptions" in result.stderr
        assert run(*match("--threads", "0")).exit_code == 2


class TestProcess:
    """The installed command, as a shell sees it."""

    COMMAND = (sys.executable, "-m", "rangecast")

    def test_stdout_is_data_and_nothing_else(self, folder):
        done = subprocess.run(
            [*self.COMMAND, *match("--sort")],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert pairs_in(done.stdout) == PAIRS
        assert "\x1b" not in done.stdout + done.stderr

    def test_a_reader_that_goes_away(self, folder):
        Path("events.csv").write_text("price\n" + "200\n" * 50_000)
        process = subprocess.Popen(
            [*self.COMMAND, *match("--batch", "1000")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout.readline() == b"event_id,subscription_id\n"
        process.stdout.close()
        complaint = process.stderr.read()
        process.stderr.close()
        assert process.wait() == 141
        assert b"Traceback" not in complaint
        assert b"rangecast:" not in complaint

    def test_the_installed_script(self):
        script = Path(sys.executable).with_name("rangecast")
        if not script.exists():
            pytest.skip("the package is not installed beside this Python")
        done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"rangecast {rc.__version__}\n"


class TestSchema:
    def test_infer_and_match(self, folder):
        result = run("schema", "infer", "events.csv")
        assert (result.exit_code, result.stderr) == (0, "")
        Path("schema.toml").write_text(result.stdout)
        assert rc.Schema.from_toml("schema.toml") == rc.Schema(
            rc.Int("price"), rc.Category("symbol"), rc.Timestamp("at")
        )
        assert pairs_in(run(*match("--sort")).stdout) == PAIRS

    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
    def test_types_are_told_by_the_values(self, folder, suffix):
        columns = {
            "id": [1, 2, 3],
            "whole": [1, None, 3],
            "number": [1.0, 2.5, None],
            "word": ["1x", "2026-01-01", None],
            "flag": [True, False, None],
            "at": ["2026-01-01T10:00:00Z", None, "2026-01-02"],
        }
        table = pa.table(columns)
        path = f"typed.{suffix}"
        if suffix == "csv":
            pacsv.write_csv(table, path)
        elif suffix == "jsonl":
            Path(path).write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        else:
            times = pa.array(["2026-01-01T10:00:00", None, "2026-01-02"]).cast(pa.timestamp("us"))
            pq.write_table(table.set_column(5, "at", times), path)
        Path("out.toml").write_text(run("schema", "infer", path).stdout)
        kinds = {a.name: a.kind for a in rc.Schema.from_toml("out.toml")}
        assert kinds == {
            "whole": "int",
            "number": "float",
            "word": "category",
            "flag": "bool",
            "at": "timestamp",
        }
        Path("out.toml").write_text(run("schema", "infer", path, "--domains", "--skip", "word").stdout)
        schema = rc.Schema.from_toml("out.toml")
        assert "word" not in schema
        assert (schema["whole"].low, schema["whole"].high) == (1, 3)
        assert (schema["number"].low, schema["number"].high) == (1.0, 2.5)
        assert schema["at"].high == "2026-01-02T00:00:00+00:00"

    def test_a_few_typing_errors_do_not_make_a_category(self, folder):
        Path("typed.csv").write_text("price,none\n" + "".join(f"{i},\n" for i in range(99)) + "12a,\n")
        result = run("schema", "infer", "typed.csv")
        assert '[attributes.price]\ntype = "int"' in result.stdout
        assert (
            "'price' is taken as int, which 1 of 100 values do not fit, such as the string '12a'"
            in result.stderr
        )
        assert "'none' has no values: taken as a category" in result.stderr

    def test_rows_limit_what_is_looked_at(self, folder):
        pq.write_table(pa.table({"x": range(10)}), "typed.parquet")
        assert "high = 9" in run("schema", "infer", "typed.parquet", "--domains").stdout
        Path("typed.csv").write_text("x\n1\n2\n")
        assert run("schema", "infer", "typed.csv", "--rows", "1").exit_code == 0

    def test_show(self, folder):
        assert run("schema", "show", "schema.toml").stdout.split("\n") == [
            "attribute  type       low  high",
            "price      int",
            "symbol     category",
            "at         timestamp",
            "",
        ]

    def test_errors(self, folder):
        assert "events.csv: there is no column 'key', but id, price" in fails(
            "schema", "infer", "events.csv", "--id", "key"
        )
        Path("deep.jsonl").write_text('{"a": 1, "b": [1]}\n')
        assert "deep.jsonl: no attribute can hold [1], as in 'b'; leave it out with --skip b" in fails(
            "schema", "infer", "deep.jsonl"
        )
        Path("ids.csv").write_text("id\n1\n")
        assert "ids.csv: no columns are left to make attributes of" in fails("schema", "infer", "ids.csv")
        Path("odd.csv").write_text("unit\x01price\n1\n")
        assert "name must be a text in one line" in fails("schema", "infer", "odd.csv")
        Path("bad.toml").write_text("attributes = 5\n")
        assert "bad.toml: needs a table [attributes.NAME]" in fails("schema", "show", "bad.toml")


class TestExplain:
    def explain(self, *more, event='{"price": 12}'):
        return ["explain", "--schema", "schema.toml", "--event", event, *more]

    def test_it_matches(self, folder):
        result = run(*self.explain("--condition", "price between 10 and 20"))
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "subscription 'price between 10 and 20' matches",
            "  yes  price between 10 and 20: 12",
        ]

    def test_it_does_not(self, folder):
        result = run(*self.explain("--subscriptions", "subs.csv", "--subscription", "1"))
        assert result.exit_code == 1
        assert result.stdout.splitlines() == [
            "subscription 1 does not match",
            "  no   AND: undecided, because a value is missing",
            "    yes  price between 10 and 20: 12",
            "    no   symbol = 'IBM': missing",
        ]

    def test_string_ids(self, folder):
        Path("subs.csv").write_text("id,condition\nx,price > 1\n")
        assert run(*self.explain("--subscriptions", "subs.csv", "--subscription", "x")).exit_code == 0

    def test_what_is_no_attribute_is_said(self, folder):
        result = run(*self.explain("--condition", "price > 1", event='{"price": 12, "prize": 3}'))
        assert result.exit_code == 0
        assert "not attributes of the schema, and ignored: prize" in result.stderr

    def test_errors(self, folder):
        explain = self.explain
        assert "explain takes --condition TEXT, or" in fails(*explain())
        assert "explain takes --condition TEXT, or" in fails(*explain("--subscriptions", "subs.csv"))
        assert "--event must be a JSON object such as" in fails(
            *explain("--condition", "price > 1", event="{")
        )
        assert "--event must be a JSON object such as" in fails(
            *explain("--condition", "price > 1", event="[]")
        )
        assert "'price' is an int, got the string 'x'" in fails(
            *explain("--condition", "price > 1", event='{"price": "x"}')
        )
        missing = explain("--subscriptions", "subs.csv", "--subscription", "99")
        assert "subs.csv: no subscription has the id '99'" in fails(*missing)
        assert "no subscription has the id 'x'" in fails(*missing[:-1], "x")
        Path("subs.csv").write_text(SUBSCRIPTIONS + "99,price >\n")
        assert "it could not be loaded: subs.csv row 5 (line 6), id 99: column 8" in fails(*missing)

    def test_a_broken_condition_is_pointed_at(self, folder):
        result = run(*self.explain("--condition", "price >"))
        assert result.exit_code == 2
        assert "column 8: expected a value" in result.stderr
        assert "Traceback" not in result.stderr


class TestGenerate:
    # bounds as columns are the same in CSV and in Parquet, so that a few workloads do in CSV
    @pytest.mark.parametrize(
        ("name", "form"),
        [(name, form) for name in workloads.names() for form in ([], ["--format", "csv", "--text"])]
        + [(name, ["--format", "csv"]) for name in ("intervals", "stock-alerts", "lonlat")],
    )
    def test_files_match_like_the_workload(self, folder, name, form):
        result = run("generate", name, "--subscriptions", 30, "--events", 20, "--out", "data", *form)
        assert result.exit_code == 0
        assert f"30 subscriptions and 20 events of '{name}' in data" in result.stderr
        suffix = "csv" if form else "parquet"
        files = [f"--{what}=data/{what}.{suffix}" for what in ("subscriptions", "events")]
        result = run("match", "--schema", "data/schema.toml", *files, "--threads", "1", "--sort")
        assert result.exit_code == 0, result.stderr
        drawn = workloads.workload(name, 30, 20)
        index = rc.open_index("scan", drawn.schema)
        index.insert(drawn.subscriptions())
        events, subscriptions = index.match(drawn.events()).sort().pairs()
        assert pairs_in(result.stdout) == list(
            zip((events + 1).tolist(), subscriptions.tolist(), strict=True)
        )

    def test_lists_of_values_are_written_as_texts_alone(self, folder):
        lists = (
            "generate",
            "boolean-expressions",
            "--subscriptions",
            30,
            "--events",
            3,
            "--option",
            "member=0.2",
        )
        result = run(*lists, "--out", "data")
        assert result.exit_code == 2
        assert "write these subscriptions with --text" in result.stderr
        assert not Path("data").exists()
        assert run(*lists, "--out", "data", "--text").exit_code == 0
        texts = pq.read_table("data/subscriptions.parquet")["condition"].to_pylist()
        assert any(" in (" in text for text in texts)

    def test_options_and_seed(self, folder):
        run("generate", "intervals", "--subscriptions", 5, "--events", 5, "--option", "r=100", "--seed", 7)
        drawn = workloads.workload("intervals", 5, 5, seed=7, r=100)
        assert (
            pq.read_table("intervals/events.parquet")["value"].to_pylist() == drawn.columns["value"].tolist()
        )

    def test_list(self):
        listed = run("generate", "--list").stdout.splitlines()
        assert [line.split()[0] for line in listed] == ["workload", *workloads.names()]

    def test_errors(self, folder):
        assert "unknown workload 'x'; there are" in fails("generate", "x")
        assert "generate takes the name of a WORKLOAD" in fails("generate")
        assert "workload 'intervals': unknown option z" in fails("generate", "intervals", "--option", "z=1")


class TestExperiment:
    @pytest.fixture
    def small(self, monkeypatch):
        """An experiment of one table and one claim."""
        module = type(sys)("rangecast_small_experiment")

        def run_small(report):
            report.table("one", "One", ["n"], [[1 if report.quick else 2]])
            two = report.measured("two", lambda: 2)
            report.weigh(
                Claim("two is more than one", "", "two / one", 1, by="arithmetic", counted=True), two, "2 > 1"
            )
            report.checked("one is less than two", True, "1 < 2")
            report.departs("numbers", "all", "two of them", "no room")
            report.write("Small", "Nobody, 2026.")

        module.run = run_small
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(EXPERIMENTS, "small", (module.__name__,))

    def test_run(self, folder, small):
        result = run("experiment", "small", "--quick", "--out", "results")
        assert result.exit_code == 0
        assert "1 claims: 1 agrees, 0 differs, 0 open; written to results" in result.stderr
        page = Path("results/small.md").read_text()
        assert "Of 1 claims in the paper, 1 agrees, 0 differ and 0 are open." in page
        assert "| two is more than one | agrees | agrees |  | arithmetic | 2 > 1 |  |" in page
        assert "| one is less than two | yes | 1 < 2 |" in page
        assert "| numbers | all | two of them | no room |" in page
        assert Path("results/small-one.csv").read_text().split() == ["n", "1"]
        assert "small" in run("experiment", "--list").stdout.split()

    def test_docs(self, folder, small):
        assert "--docs and --mark must run in the root of a clone" in fails("experiment", "small", "--docs")
        Path("docs").mkdir()
        assert run("experiment", "small", "--docs").exit_code == 0
        assert (experiment_module.DOCS / "small.md").exists()

    def test_mark(self, folder, small, monkeypatch):
        assert "--docs and --mark must run in the root of a clone" in fails("experiment", "--mark")
        monkeypatch.setattr(experiment_module, "EXPERIMENTS", {"small": EXPERIMENTS["small"]})
        page = experiment_module.DOCS / "small.md"
        page.parent.mkdir(parents=True)
        page.write_text("Made, through [small-code.csv](small-code.csv). More.\n\n## Claims\n")
        page.with_name("small-code.csv").write_text("module,hash,since\nrangecast.engine.gone,abc,\n")
        assert "small: 1 of its modules" in run("experiment", "--mark").stderr
        assert "Since then 1 of these 1 modules have changed" in page.read_text()

    def test_a_run_that_is_cut_short_goes_on(self, folder, small):
        result = run("experiment", "small", "--out", "results", "--seconds", "-1")
        assert result.exit_code == 3
        assert "the time is over before two" in result.stderr
        assert run("experiment", "small", "--out", "results", "--seconds", "60").exit_code == 0
        # what was measured is not measured again, and needs no time
        assert run("experiment", "small", "--out", "results", "--seconds", "-1").exit_code == 0

    def test_errors(self, folder, small):
        assert "no experiment is called 'x'" in fails("experiment", "x")
        assert "experiment takes a NAME" in fails("experiment")
        assert "--out or --docs, not both" in fails("experiment", "small", "--docs", "--out", "x")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cli.md", "first-steps.md"])
def test_the_examples_of_the_page_run(tmp_path, monkeypatch, name):
    """Shell blocks of a page print what the text block after them shows."""
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / name
    assert run_examples(page.read_text(), name, ("sh",)) >= 4


def test_the_help_of_the_app_says_what_each_command_says_of_itself():
    shown = run("--help")
    assert shown.exit_code == 0
    for name, place in COMMANDS.items():
        assert f" {name} " in shown.stdout
        assert load_command(name).get_short_help_str(200).rstrip(".") == place.line.rstrip(".")
    mistaken = run("mach")
    assert mistaken.exit_code == 2
    assert "match" in mistaken.stderr


def test_help_loads_no_compiler():
    heavy = ["numba", "pyarrow", "numpy", "pyspark"]
    code = (
        "import sys; from rangecast.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


def test_warm_up(monkeypatch):
    monkeypatch.setattr(warm_up_module, "compile_all", lambda: 2.0)
    assert run("warm-up").stderr == "compiled for 2.0 s\n"
    monkeypatch.setattr(warm_up_module, "compile_all", lambda: 0.0)
    assert run("warm-up").stderr == "everything was compiled before\n"
