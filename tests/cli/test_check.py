"""`rangecast check`: lines, exit codes and JSON; and that commands say what the library warns of."""

import json

import pytest
from typer.testing import CliRunner

from rangecast.cli.app import app

pytestmark = pytest.mark.without_kernels

SCHEMA = '[attributes.price]\ntype = "int"\n\n[attributes.at]\ntype = "timestamp"\n'
ROWS = """id,condition
11,price > 10 and price < 5
12,price > 10
13,prise > 5
14,at = '2026-01-31'
12,price < 3
15,"price in (1, 2.5) or at <= 2026-01-31"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "alerts.csv").write_text(ROWS)
    (tmp_path / "good.csv").write_text("id,condition\n1,price > 3\n")
    (tmp_path / "bounds.csv").write_text("id,price_low\n1,3\n")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_each_row_that_is_wrong_or_odd_has_a_line(folder):
    result = run("check", "alerts.csv", "--schema", "schema.toml")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    starts = [
        "alerts.csv row 3 (line 4), id 13: column 1: unknown attribute 'prise'; did you mean price?",
        "alerts.csv row 5 (line 6), id 12: this id stands in an earlier row",
        "alerts.csv row 1, id 11, column 1: price > 10 and price < 5 can never hold together",
        "alerts.csv row 4, id 14, column 1: at = '2026-01-31' holds at midnight alone; probably meant: at ON",
        "alerts.csv row 6, id 15, column 14: 'price' is an int, which never equals 2.5",
        "alerts.csv row 6, id 15, column 22: 2026-01-31 as an end is midnight",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert "4 subscriptions, 3 of them odd; 2 rejected" in result.stderr


def test_as_json(folder):
    result = run("check", "alerts.csv", "--schema", "schema.toml", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert [row["row"] for row in said["rejected"]] == [3, 5]
    assert [(found["row"], found["id"]) for found in said["findings"]] == [(1, 11), (4, 14), (6, 15), (6, 15)]
    assert set(said["findings"][0]) == {"row", "id", "condition", "start", "end", "what", "meant"}


def test_exit_codes(folder):
    assert run("check", "good.csv", "--schema", "schema.toml").exit_code == 0
    assert run("check", "good.csv").exit_code == 2
    assert run("check", "absent.csv", "--schema", "schema.toml").exit_code == 2
    result = run("check", "bounds.csv", "--schema", "schema.toml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no condition to look at" in result.stderr


def test_a_store_has_the_schema(folder):
    added = run("store", "add", "alerts", "--schema", "schema.toml", "--subscriptions", "good.csv")
    assert added.exit_code == 0
    assert run("check", "alerts.csv", "--store", "alerts").exit_code == 1


def test_other_commands_say_what_the_library_warns_of(folder):
    result = run(
        "explain", "--schema", "schema.toml", "--event", '{"price": 3}', "--condition", "price = 3.5"
    )
    assert result.exit_code == 1
    assert "rangecast: warning: subscription 'price = 3.5': 'price' is an int" in result.stderr
