"""The benchmark scripts: peers agree with us on every workload, and verdicts follow the noise."""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rangecast as rc
from rangecast import workloads

pytestmark = pytest.mark.once

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def load(stem):
    spec = importlib.util.spec_from_file_location(stem, FOLDER / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


peers, measure, compare = load("peers"), load("measure"), load("compare")


def fitting():
    for name in workloads.names():
        plain = peers.Plain(workloads.workload(name, 50, 5), threads=1)
        yield from ((name, peer.name) for peer in peers.PEERS.values() if not peer.unfit(plain))


@pytest.mark.parametrize(("name", "peer"), list(fitting()))
def test_a_peer_finds_what_the_scan_finds(name, peer):
    adapter = peers.PEERS[peer]
    pytest.importorskip(adapter.package)
    w = workloads.workload(name, 300, 30)
    plain = peers.Plain(w, threads=1)
    ids = adapter.ids(adapter.match(adapter.build(plain), adapter.load(plain, 30)))
    index = rc.open_index("scan", w.schema)
    index.insert(w.subscriptions())
    assert np.array_equal(np.sort(ids), np.sort(index.match(w.events()).ids))


def test_each_shape_has_its_subscriptions():
    plain = peers.Plain(workloads.workload("market", 2_000, 10), threads=1)
    how = [{plain.workload.schema.names[j]: kind for j, kind in said.items()} for _, said in plain.shapes]
    assert sorted(how, key=str) == [
        {"close": "both", "volume": "low"},
        {"symbol": "equal", "close": "both"},
        {"symbol": "equal", "high": "low", "low": "high"},
        {"symbol": "equal", "volume": "low"},
    ]
    assert np.array_equal(sum(rows.astype(int) for rows, _ in plain.shapes), np.ones(2_000))


@pytest.mark.parametrize(
    ("name", "peer", "reason"),
    [
        ("intervals", "duckdb-shapes", "all subscriptions have one shape: see duckdb"),
        ("predicates-16", "duckdb-shapes", "is for subscriptions of at most 16 shapes"),
        ("wide", "duckdb", "a join is for at most 100 attributes, not 500"),
        ("wide", "polars", "a join is for at most 100 attributes, not 500"),
    ],
)
def test_a_join_says_what_it_is_not_for(name, peer, reason):
    plain = peers.Plain(workloads.workload(name, 300, 5), threads=1)
    assert peers.PEERS[peer].unfit(plain) == reason


def test_shapes_join_with_missing_values_below_an_upper_bound():
    pytest.importorskip("duckdb")
    w = workloads.workload("stock-alerts", 300, 200, symbols=1)
    w.columns["price"][::3] = np.nan
    plain, adapter = peers.Plain(w, threads=1), peers.PEERS["duckdb-shapes"]
    ids = adapter.ids(adapter.match(adapter.build(plain), adapter.load(plain, 200)))
    index = rc.open_index("scan", w.schema)
    index.insert(w.subscriptions())
    assert len(ids) > 0
    assert np.array_equal(np.sort(ids), np.sort(index.match(w.events()).ids))


@pytest.mark.parametrize("wrong", [lambda ids: ids[1:], lambda ids: ids + 1, lambda ids: np.append(ids, 1)])
def test_a_wrong_answer_ends_the_run(wrong):
    w = workloads.workload("intervals", 300, 30)
    honest = measure.index_contender("scan", w, w.subscriptions(), threads=1)
    liar = measure.index_contender("scan", w, w.subscriptions(), threads=1)
    liar.kind, liar.name = "peer", "liar"
    for contender, events in ((honest, 30), (liar, 20)):
        contender.built, contender.row = contender.build(), {"events": events}
    measure.check_agreement([liar, honest])
    assert (honest.row["events_checked"], liar.row["events_checked"]) == (30, 20)
    liar.ids = lambda answer: wrong(answer.ids)
    with pytest.raises(SystemExit, match=r"answers differ on the first 20 events: scan has .* liar has "):
        measure.check_agreement([liar, honest])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # peers of other tests have threads here
def test_a_contender_that_never_ends_is_left_out():
    w = workloads.workload("intervals", 300, 30)
    slow = measure.index_contender("scan", w, w.subscriptions(), threads=1)
    assert measure.try_in_child(slow, limit=30)["peak_bytes"] >= 0
    slow.build = lambda: time.sleep(60)
    assert "took longer than 1 s" in measure.try_in_child(slow, limit=1)["skipped"]
    slow.build = lambda: np.ones(2**45)
    assert "llocate" in measure.try_in_child(slow, limit=30)["skipped"]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([1.0, 1.01, 1.02], [1.03, 1.04, 1.05], "same"),
        ([1.0, 1.01, 1.02], [1.2, 1.21, 1.22], "slower"),
        ([1.2, 1.21, 1.22], [1.0, 1.01, 1.02], "faster"),
        ([1.0, 1.3, 1.4], [1.2, 1.21, 1.22], "same"),
        ([1.0, 1.3, 1.4], [1.5, 1.5, 1.5], "slower"),
        ([1.0, 2.0, 3.0], [1.5, 1.5, 1.5], "too noisy"),
        ([1.0], [1.0], "same"),
    ],
)
def test_a_verdict_needs_more_than_the_noise(before, after, verdict):
    assert compare.judge(before, after, floor=0.05)[0] == verdict


def report(match=(1.0, 1.0), pairs=10, size=8, seed=1, name="scan"):
    row = {
        "name": name,
        "kind": "index",
        "events": 4,
        "pairs": pairs,
        "build_s": [1.0],
        "match_s": list(match),
    }
    w = {"workload": "intervals", "n_subscriptions": 2, "n_events": 4, "parameters": {}, "seed": seed}
    return {
        "workloads": [
            w | {"rows": [row | {"bytes": size}, {"name": "ncls", "kind": "peer", "skipped": "why"}]}
        ]
    }


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (report(), ["same", "same", "same"]),
        (report(match=(2.0, 2.0)), ["same", "slower", "same"]),
        (report(size=16), ["same", "same", "larger"]),
        (report(pairs=11), ["answers differ"]),
        (report(seed=2), ["not the same workload"]),
        (report(name="direct"), ["only before", "only after"]),
    ],
)
def test_reports_are_compared_figure_by_figure(after, said):
    assert [v.verdict for v in compare.verdicts(report(), after, floor=0.05)] == said


def test_rounds_are_merged_per_event():
    second = report(match=(1.0, 3.0))
    second["workloads"][0]["rows"][0]["events"] = 2
    merged = compare.merge([report(), second])
    row = merged["workloads"][0]["rows"][0]
    assert compare.samples(row, "match") == [0.25e6, 0.25e6, 0.5e6, 1.5e6]


@pytest.mark.slow
def test_a_run_writes_figures_and_compares_with_itself(tmp_path):
    out = tmp_path / "figures.json"
    arguments = ["--workload", "rectangles", "--index", "scan", "--index", "direct", "--peer", "ncls",
                 "--quick", "--subscriptions", "200", "--events", "20", "--json", str(out)]  # fmt: skip
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "pair counts agree" in ran.stdout
    assert "skipped ncls: is for 1-D, not 2-D" in ran.stdout
    (result,) = json.loads(out.read_text())["workloads"]
    scan, direct = (row for row in result["rows"] if row["kind"] == "index")
    assert scan["pairs"] == direct["pairs"] > 0
    assert len(scan["match_s"]) == 2
    assert scan["bytes"] > 0
    again = subprocess.run(
        [sys.executable, str(FOLDER / "compare.py"), str(out), str(out), "--all"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "slower" not in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "code", "message"),
    [
        ("run.py", ["--index", "no-such"], 2, "'no-such' is unknown"),
        ("run.py", ["--workload", "no-such"], 2, "'no-such' is unknown"),
        ("compare.py", ["no-such", __file__], 2, "give two files or two commits"),
        ("compare.py", [__file__, __file__], 2, "not a report of run.py"),
    ],
)
def test_what_cannot_be_run_is_refused(script, arguments, code, message):
    ran = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, message in ran.stderr) == (code, True)


def test_following_agrees_with_loading(tmp_path):
    seconds = load("following").measure(tmp_path, 3000, 0.1, 6)
    assert len(seconds["follow"]) + len(seconds["change over"]) == len(seconds["load"]) == 6
    assert len(seconds["publish"]) > 1
