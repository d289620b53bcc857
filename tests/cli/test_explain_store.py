"""`rangecast explain --store`: a subscription of a version, which a batch of a stream may know."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rangecast as rc
from rangecast.cli.app import app

pytestmark = pytest.mark.without_kernels

TOLD = [
    "subscription 7 does not match",
    "  no   AND",
    "    yes  price < 10: 5",
    "    no   NOT",
    "      yes  symbol in ('A','IBM'): 'IBM'",
]
EVENT = '{"price": 5, "symbol": "IBM"}'


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def explain(*words, event=EVENT):
    return run("explain", "--store", "s", "--event", event, *words)


def fails(*words):
    result = run(*words)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = rc.Store.open("s", rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")
    written = {7: "price < 10 and\n  not symbol in ('A','IBM')", 8: "price > 5"}
    store.insert(rc.Subscriptions.parse(store.schema, written))
    store.insert(rc.Subscriptions.parse(store.schema, {7: "price  = 5"}))
    store.insert(rc.Subscriptions.from_arrays(store.schema, [8], {"price": [1]}, {"price": [4]}))
    return store


def stream(store, version="newest", pins=(), commits=(), keep_checkpoint=True):
    """The files that a stream leaves in its output and in its checkpoint (the ledger's own test is below)."""
    own, place = Path("ckpt/_rangecast"), Path("out/_rangecast")
    (own / "pins").mkdir(parents=True)
    place.mkdir(parents=True)
    place.joinpath("stream.json").write_text(json.dumps({"stream": "x", "checkpoint": str(own.parent)}))
    if keep_checkpoint:
        own.joinpath("stream.json").write_text(json.dumps({"store": store.id, "version": version}))
    for batch, pinned in pins:
        said = {"batch": batch, "store": store.id, "version": pinned, "oldest": None, "time": 0}
        (own / "pins" / f"{batch}.json").write_text(json.dumps(said))
    lines = [json.dumps({"batch": batch, "version": pinned}) + "\n" for batch, pinned in commits]
    place.joinpath("commits.jsonl").write_text("".join(lines) + '{"batch": 99, "ver')


def test_versions(store):
    first = explain("--id", 7, "--version", 1)
    assert (first.exit_code, first.stdout.splitlines()) == (1, TOLD)
    newest = explain("--id", 7)
    assert (newest.exit_code, newest.stdout.splitlines()[1]) == (0, "  yes  price = 5: 5")
    bounds = explain("--id", 8)
    assert (bounds.exit_code, bounds.stdout.splitlines()[1]) == (1, "  no   price between 1 and 4: 5")


def test_other_views(store):
    in_boxes = explain("--id", 7, "--version", 1, "--boxes").stdout.splitlines()
    assert in_boxes[1:] == ["  yes  price <= 9: 5", "  no   symbol not in ('A', 'IBM'): 'IBM'"]
    data = json.loads(explain("--id", 7, "--version", 1, "--json").stdout)
    assert data["text"] == "price < 10 and\n  not symbol in ('A','IBM')"
    assert [part["holds"] for part in data["verdict"]["parts"]] == [True, False]
    assert data["matches"] is False


def test_a_batch_knows_its_version(store):
    stream(store, pins=[(4, 2)], commits=[(0, 1), (1, 1), (2, 2), (3, 3)])
    for batch, lines in ((1, TOLD), (4, ["subscription 7 matches", "  yes  price = 5: 5"])):
        found = explain("--id", 7, "--batch", batch, "--out", "out")
        assert found.stdout.splitlines() == lines
        assert f"batch {batch} was matched against version {1 if batch == 1 else 2}" in found.stderr


def test_a_batch_needs_no_spark(store):
    stream(store, commits=[(0, 1)])
    words = ["explain", "--store", "s", "--id", "7", "--event", EVENT, "--batch", "0", "--out", "out"]
    code = f"import sys; sys.modules['pyspark'] = None\nfrom rangecast.cli.app import app\napp({words!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == TOLD, done.stderr


def test_a_stream_without_its_checkpoint(store):
    stream(store, commits=[(0, 1)], keep_checkpoint=False)
    found = explain("--id", 7, "--batch", 0, "--out", "out")
    assert found.stdout.splitlines() == TOLD
    assert "its checkpoint is not there, so it is not known whether" in " ".join(found.stderr.split())


@pytest.mark.spark
def test_the_ledger_writes_what_is_read(store):
    ledger = pytest.importorskip("rangecast.spark.stream.ledger")
    books = ledger.Ledger("ckpt", "out")
    settings = {"store": store.id, "path": "s", "schema": {}, "fields": {}, "sink": "x", "version": "newest"}
    books.adopt(settings)
    books.put_pin(ledger.Pin(0, store.id, 1))
    assert explain("--id", 7, "--batch", 0, "--out", "out").stdout.splitlines() == TOLD
    books.commit(ledger.Commit(0, 1))
    Path("ckpt/_rangecast/pins/0.json").unlink()
    assert explain("--id", 7, "--batch", 0, "--out", "out").stdout.splitlines() == TOLD
    books.put_pin(ledger.Pin(1, store.id, 2, oldest=1))
    words = ["explain", "--store", "s", "--event", EVENT, "--id", 7, "--batch", 1, "--out", "out"]
    assert "against the version at its time" in fails(*words)


def test_errors(store):
    words = ["explain", "--store", "s", "--event", EVENT]
    assert "explain --store needs --id ID" in fails(*words)
    assert "explain takes --condition TEXT, or" in fails(*words, "--id", 7, "--condition", "price > 1")
    assert "takes --version N, or --batch N with" in fails(*words, "--id", 7, "--batch", 1)
    assert "takes --version N, or --batch N with" in fails(*words, "--id", 7, "--out", "out")
    both = ["--version", 1, "--batch", 1, "--out", "out"]
    assert "takes --version N, or --batch N with" in fails(*words, "--id", 7, *both)
    assert "no subscription has the id 9 in version 3" in fails(*words, "--id", 9)
    assert "ids are whole numbers, got 'x'" in fails(*words, "--id", "x")
    assert "has versions up to 3, got 9" in fails(*words, "--id", 7, "--version", 9)
    assert "there is no store here" in fails("explain", "--store", "none", "--id", 7, "--event", EVENT)
    assert "explain needs --schema FILE, unless" in fails("explain", "--event", "{}", "--condition", "a > 1")
    of_store = ["explain", "--event", "{}", "--condition", "a > 1", "--version", 3]
    assert "--version, --batch and --out are of a store" in fails(*of_store)


def test_errors_of_batches(store):
    words = ["explain", "--store", "s", "--event", EVENT, "--id", 7, "--out", "out", "--batch"]
    assert "out: is no output of a stream; there is no _rangecast/stream.json" in fails(*words, 0)
    stream(store)
    assert "out: has no batch 0; no batch is whole yet" in fails(*words, 0)
    commits = Path("out/_rangecast/commits.jsonl")
    commits.unlink()
    assert "no batch is whole yet" in fails(*words, 0)
    Path("out/_rangecast/commits.jsonl").write_text(
        '{"batch": 0, "version": 1}\n{"batch": 1, "version": 2}\n'
    )
    assert "out: has no batch 5; its batches are 0 to 1" in fails(*words, 5)
    begun = Path("ckpt/_rangecast/stream.json")
    begun.write_text(json.dumps({"store": store.id, "version": "event-time"}))
    by_time = "each event of batch 1 was matched against the version at its time, 2 or older"
    assert by_time in fails(*words, 1)
    begun.write_text(json.dumps({"store": "another", "version": "newest"}))
    assert "out: holds the matches of another store than" in fails(*words, 1)
    begun.write_text("{")
    assert "stream.json: cannot be read" in fails(*words, 1)


def test_list_and_show_say_what_was_written(store):
    assert run("store", "list", "s", "--version", 1).stdout.splitlines() == [
        "id  condition",
        "7   price < 10 and not symbol in ('A','IBM')",
        "8   price > 5",
    ]
    assert run("store", "list", "s", "--limit", 0).stdout.splitlines()[1:] == [
        "7   price = 5",
        "8   price between 1 and 4",
    ]
    assert run("store", "show", "s", 7).stdout.splitlines()[1] == "7   price = 5"
    assert run("store", "show", "s", 8).stdout.splitlines()[1] == "8   price between 1 and 4"
