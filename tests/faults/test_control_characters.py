"""Ids, names and values that would steer a terminal, or begin a line of a log that nobody wrote."""

import re

import pytest
from typer.testing import CliRunner

import rangecast as rc
from rangecast.cli.app import app
from rangecast.errors import visible
from rangecast.loading.rejected import RejectedRow

pytestmark = pytest.mark.once

EVIL = "7\x1b[31m\nrangecast: all is well\r\x9b2J\u202e"
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(
        '[attributes.price]\ntype = "int"\n[attributes.symbol]\ntype = "category"\n'
    )
    quoted = EVIL.replace('"', '""')
    (tmp_path / "alerts.csv").write_text(
        f'id,condition\n"{quoted}",price > 1\n"{quoted}x",price > {EVIL[1:6]}\n', newline=""
    )
    (tmp_path / "events.csv").write_text(f'id,price,symbol\n"{quoted}",5,A\n"{quoted}y",zz,A\n', newline="")
    return tmp_path


def spoken(result):
    assert not UNSEEN.search(result.stderr), result.stderr
    assert not any(line.startswith("rangecast: all is well") for line in result.stderr.splitlines())
    return result.stderr


def test_what_is_said_of_a_match(place):
    options = "--schema", "schema.toml", "--subscriptions", "alerts.csv", "--events", "events.csv"
    done = run("match", *options, "--rejects", "bad.csv", "--index", "scan")
    assert done.exit_code == 1
    assert "id 7\\x1b[31m\\nrangecast: all is well" in spoken(done)
    # data is given as it is, quoted as its format says
    assert f'"{EVIL}","{EVIL}"' in done.stdout
    assert EVIL in (place / "bad.csv").read_bytes().decode()


def test_what_a_store_prints(place):
    store = rc.Store.open("s", rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")
    store.insert(rc.Subscriptions.parse(store.schema, {EVIL: "price > 5"}))
    store.hold("job", note=EVIL)
    for words in (["list", "s"], ["show", "s", EVIL], ["holds", "s"]):
        done = run("store", *words)
        spoken(done)
        assert done.exit_code == 0
        assert not UNSEEN.search(done.stdout), done.stdout
        assert "7\\x1b[31m\\nrangecast: all is well" in done.stdout
    assert "all is well" in spoken(run("store", "remove", "s", EVIL + "z"))


def test_a_rejected_row_is_one_line():
    row = RejectedRow(EVIL, 3, 4, EVIL, EVIL, EVIL)
    assert str(row.in_one_line()).count("\n") == 0
    assert not UNSEEN.search(str(row))


def test_visible():
    assert visible("a\tb\nc\x00\x85") == "a\\tb\\nc\\x00\\x85"
    assert visible("a\nb\r", lines=True) == "a\nb\\r"
    assert visible("Grüße, 東京 ✓") == "Grüße, 東京 ✓"
