"""The demo: what it makes up, what it writes and shows, and what it refuses before it begins."""

import importlib.util
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import rangecast as rc
from cli.test_cli import fails, run
from rangecast.cli import demo as command

demo = command.load_script("market_day")
SCHEMA = demo.SCHEMA

pytestmark = pytest.mark.without_kernels


@pytest.fixture(scope="module")
def market():
    return demo.draw_market(600, 800)


def matches_of(alerts, market):
    index = rc.open_index("scan", SCHEMA)
    index.insert(rc.Subscriptions.from_arrow(SCHEMA, alerts))
    return index.match(rc.Events.from_arrow(SCHEMA, market.trades))


def test_texts_and_bounds_say_the_same(market):
    whole = matches_of(market.bounds, market)
    assert whole == matches_of(market.conditions(0, 600), market)
    assert 0 < np.count_nonzero(whole.counts) < 0.5 * len(market.of)


def test_prices_walk_and_every_symbol_is_watched(market):
    assert set(market.of) <= set(market.watches)
    price, previous = (market.trades[name].to_numpy() for name in ("price", "previous"))
    for symbol in range(len(market.symbols)):
        own = np.flatnonzero(market.of == symbol)
        assert (previous[own] == np.concatenate([[market.opening[symbol]], price[own][:-1]])).all()
    assert np.abs(price / previous - 1).max() < 0.05
    near = np.abs(market.levels / market.opening[market.watches] - 1)
    assert (near[~np.isnan(near)] < 0.1).mean() > 0.6


@pytest.mark.once
def test_the_demo_without_spark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("demo", "--no-spark", "--subscriptions", 600, "--events", 800, "--threads", "2")
    assert done.exit_code == 0, done.output
    table = pq.read_table("demo-output/matches.parquet")
    market = demo.draw_market(600, 800)
    assert table.num_rows == matches_of(market.bounds, market).n_pairs
    assert f"notifications                 {table.num_rows:,}\n" in done.stdout
    assert "symbol  trades  opened" in done.stdout
    assert f"rejected: {len(demo.BROKEN)} of demo-output/alerts-text.parquet" in done.stderr
    if importlib.util.find_spec("matplotlib"):
        assert Path("demo-output/day.png").stat().st_size > 20_000
    tried = [line.split("#")[0].split() for line in done.stderr.partition("to try next:")[2].splitlines()]
    commands = [words[1:] for words in tried if words]
    assert len(commands) == 3
    assert all(run(*words).exit_code == 0 for words in commands if words != ["demo"])


@pytest.mark.once
def test_what_the_demo_suggests_can_be_typed(market, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = matches_of(market.bounds, market)
    pairs = found.events(), found.ids - 1
    store = rc.Store.open("store", SCHEMA)
    store.insert(rc.Subscriptions.from_arrow(SCHEMA, market.bounds))
    pq.write_table(market.trades, "trades.parquet")
    files = demo.Files(*map(Path, ("s", "t", "b", "trades.parquet", "m")))
    demo.suggest(market, pairs, files, Path("store"))
    said = capsys.readouterr().err.partition("to try next:")[2]
    commands = [shlex.split(line)[1:] for line in said.splitlines() if line.strip()]
    assert [run(*words).exit_code for words in commands] == [0, 0, 0]
    assert commands[0][0] == "explain"
    assert demo.example(market, *pairs)[0] in found.ids


def test_what_the_demo_suggests_has_the_path_that_was_called(monkeypatch):
    monkeypatch.setattr(sys, "argv", [".venv/bin/rangecast", "demo"])
    monkeypatch.setattr(demo.shutil, "which", lambda name: None)
    assert demo.called_name() == ".venv/bin/rangecast"
    monkeypatch.setattr(demo.shutil, "which", lambda name: "/usr/bin/rangecast")
    assert demo.called_name() == "rangecast"
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert demo.called_name() == "rangecast"


def test_the_extra_is_checked_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "needs PySpark: install the extra 'spark'" in fails("demo")
    assert not list(tmp_path.iterdir())


def test_what_starts_quietly_writes_to_the_log(tmp_path, capfd):
    with open(tmp_path / "log", "wb") as file, demo._stderr_into(file.fileno()):
        os.write(2, b"noise")
    os.write(2, b"word")
    assert (tmp_path / "log").read_bytes() == b"noise"
    assert capfd.readouterr().err == "word"


def test_a_command_whose_script_is_gone_says_where_it_looked(monkeypatch):
    monkeypatch.setattr(command, "FOLDERS", (Path("nowhere"), Path("elsewhere")))
    with pytest.raises(rc.SetupError, match="neither in nowhere nor elsewhere: install rangecast again"):
        command.load_script("market_day")
    with pytest.raises(AttributeError, match="no attribute 'other_demo'"):
        _ = command.other_demo
