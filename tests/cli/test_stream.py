"""`rangecast spark stream`: a stream in its own process, changed and looked at from others, then ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rangecast as rc
from rangecast.cli.app import app
from rangecast.cli.demo import load_script

demo = load_script("tick_stream")

pytestmark = pytest.mark.spark
rs = pytest.importorskip("rangecast.spark")
Commit = pytest.importorskip("rangecast.spark.stream.ledger").Commit
FAST_START = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = rc.Store.open("store", rc.Schema(rc.Int("price"), rc.Category("symbol")), index="scan")
    store.insert(rc.Subscriptions.parse(store.schema, {1: "price < 10", 2: "symbol = 'A'"}))
    (tmp_path / "ticks").mkdir()
    return tmp_path


def add_ticks(place, name, *lines):
    scratch = place / "ticks" / f".{name}"
    scratch.write_text("".join(f"{line}\n" for line in lines))
    os.rename(scratch, place / "ticks" / name)


def lines_until(process, words, seconds=90):
    """The lines of a process up to the one with these words."""
    seen, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        line = process.stdout.readline()
        seen.append(line)
        if words in line or not line:
            break
    assert any(words in line for line in seen), "".join(seen)
    return seen


@pytest.mark.integration
def test_subscriptions_change_while_it_runs_and_sigterm_ends_it(place):
    add_ticks(place, "a.jsonl", '{"id": 1, "price": 5, "symbol": "A"}', '{"id": 2, "price": "x"}', "{")
    words = ["--store", "store", "--events", "ticks", "--out", "out", "--checkpoint", "state"]
    start = [sys.executable, "-m", "rangecast", "spark", "stream", *words, "--every", "100 milliseconds"]
    process = subprocess.Popen(
        [*start, "--conf", "spark.ui.enabled=false", "--conf", FAST_START, "--master", "local[2,3]"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        (line,) = lines_until(process, "batch 0")[-1:]
        assert "version 1 (lag 0), 3 events, 2 pairs, 2 rejected" in line
        assert run("store", "add", "store", "--id", 3, "--condition", "price > 100").exit_code == 0
        assert run("store", "remove", "store", 1).exit_code == 0
        add_ticks(place, "b.jsonl", '{"id": 3, "price": 5, "symbol": "B"}', '{"id": 4, "price": 200}')
        (line,) = lines_until(process, "batch 1")[-1:]
        assert "version 3 (lag 0), 2 events, 1 pairs" in line
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "ended after batch 1, version 3" in rest
    found = ds.dataset("out", partitioning="hive", exclude_invalid_files=False).to_table().to_pylist()
    pairs = sorted((row["batch_id"], row["event_id"], row["subscription_id"]) for row in found)
    assert pairs == [(0, 1, 1), (0, 1, 2), (1, 4, 3)]
    shown = run("spark", "stream", "--out", "out", "--status", "--once").stdout
    assert "up to 1" in shown
    assert "3 of 3 (lag 0)" in shown
    assert "2 of 5 events" in shown
    assert rs.stream_status("out").batch == 1


def test_what_is_refused(place):
    refused = run("spark", "stream", "--out", "out", "--status", "--once")
    assert refused.exit_code == 2
    assert "no stream has written here" in refused.stderr
    refused = run("spark", "stream", "--out", "out", "--events", "ticks")
    assert refused.exit_code == 2
    assert "stream needs --store, --checkpoint; with --status, --out alone will do" in refused.stderr


def test_the_demo_finds_what_is_lost_doubled_and_invented(tmp_path):
    """What the demo says at the end is no foregone conclusion."""
    schema = rc.Schema(rc.Int("price"))
    store = rc.Store.open(tmp_path / "store", schema, index="scan")
    store.insert(rc.Subscriptions.parse(store.schema, {1: "price < 10", 2: "price > 5"}))
    ticks = pa.table({"id": [1, 2, 3], "price": [3, 7, 20]})
    pairs = [(1, 1), (2, 1), (2, 2), (3, 2)]
    commits = [Commit(0, 1, events=2), Commit(1, 1, events=1)]

    def compared(pairs):
        for batch, rows in enumerate(([p for p in pairs if p[0] < 3], [p for p in pairs if p[0] == 3])):
            folder = tmp_path / "out" / f"batch_id={batch}"
            folder.mkdir(parents=True, exist_ok=True)
            columns = {"event_id": [e for e, _ in rows], "subscription_id": [s for _, s in rows]}
            pq.write_table(
                pa.table(columns, pa.schema([(n, pa.int64()) for n in columns])), folder / "a.parquet"
            )
        return demo.compare(tmp_path / "out", store, commits, ticks)

    assert compared(pairs) == (0, 0, 0)
    assert compared(pairs[1:]) == (1, 0, 0)
    assert compared([*pairs, (2, 2)]) == (0, 1, 0)
    assert compared([*pairs, (1, 2)]) == (0, 0, 1)
    assert demo.compare(tmp_path / "out", store, commits[:1], ticks)[0] == 1


def test_the_demo_changes_alerts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "_CHANGE_PAUSE", 0.0)
    monkeypatch.setattr(demo, "_LIVES", 2)
    store = rc.Store.open(
        tmp_path / "store", rc.Schema(rc.Category("symbol"), rc.Int("volume")), index="scan"
    )
    demo.change_alerts(str(store.path), ["A", "B"], 4, str(tmp_path))
    first = demo.FIRST_ID
    assert json.loads((tmp_path / "added.json").read_text()) == [
        [first + n, v] for n, v in enumerate([1, 2, 3, 5])
    ]
    assert sorted(store.subscriptions().ids.values.tolist()) == [first + 1, first + 2, first + 3]
    assert store.expires_at([first, first + 1])[1] > 0
    assert f"alert {first} removed" in capsys.readouterr().err
    pq.write_table(pa.table({"id": range(5)}), tmp_path / "all.parquet")
    (tmp_path / "ticks").mkdir()
    assert demo.put_ticks(tmp_path / "all.parquet", tmp_path / "ticks", 0, 3)
    monkeypatch.setattr(demo, "_PAUSE", 0.0)
    demo.flow_ticks(str(tmp_path / "all.parquet"), str(tmp_path / "ticks"), 3)
    assert [pq.read_table(p)["id"].to_pylist() for p in sorted((tmp_path / "ticks").iterdir())] == [
        [0, 1, 2],
        [3, 4],
    ]
