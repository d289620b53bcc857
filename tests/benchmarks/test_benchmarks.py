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
figures, native, tables = load("figures"), load("native"), load("tables")


@pytest.mark.parametrize("name", workloads.names())
def test_a_peer_finds_what_the_scan_finds(name):
    small = peers.Plain(workloads.workload(name, 50, 5), threads=1)
    w = workloads.workload(name, 300, 30)
    plain = peers.Plain(w, threads=1)
    index = rc.open_index("scan", w.schema)
    index.insert(w.subscriptions())
    wanted = np.sort(index.match(w.events()).ids)
    for peer in peers.PEERS.values():
        if peer.left_out(small):
            continue
        ids = peer.ids(peer.match(peer.build(plain), peer.load(plain, 30)))
        assert np.array_equal(np.sort(ids), wanted), peer.name


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


def test_peers_are_left_out_where_predicates_are_lists():
    plain = peers.Plain(workloads.workload("boolean-expressions", 20, 2, member=0.3), 1)
    assert plain.used == list(range(100))
    for peer in peers.PEERS.values():
        assert not peer.installed or peer.left_out(plain) == "takes no lists of values"


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


def native_libraries():
    """What is built, or can be built here without a download."""
    crates = native.FOLDER / "target" / "release" / "libnative_peers.so"
    if crates.exists():
        yield crates, native.CRATES
    boost, _ = native.build_boost()
    if boost is not None:
        yield boost, native.BOOST


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 1, 2_000])
@pytest.mark.parametrize(("name", "dimensions"), [("intervals-wide-domain", 1), ("rectangles", 2)])
def test_native_contenders_find_the_pairs_that_the_scan_finds(name, dimensions, n):
    libraries = list(native_libraries())
    if not libraries:
        pytest.skip("no native library is built; python benchmarks/native.py builds them")
    w = workloads.workload(name, n, 500)
    plain = peers.Plain(w, threads=1)
    index = rc.open_index("scan", w.schema)
    index.insert(w.subscriptions())
    known = index.match(w.events())
    expected = native.fingerprint(np.arange(500), known.offsets, known.ids)
    for path, names in libraries:
        library = native.load_library(path)
        for contender in names[dimensions]:
            structure = native.Structure(library, contender, plain)
            columns = [column.astype(np.int32) for column in plain.values]
            for k in (500, 3, 500, 0):
                found = structure.match([column[:k] for column in columns])
                assert len(found.events) == len(found.offsets) - 1 == k
            found = structure.match(columns)
            ids = plain.ids[found.found]
            assert native.fingerprint(found.events, found.offsets, ids) == expected, contender
            assert structure.nbytes >= 8 * n
        with pytest.raises(SystemExit, match="has no contender 'no-such'"):
            native.Structure(library, "no-such", plain)


def test_a_tool_that_is_not_there_leaves_its_contenders_out(monkeypatch):
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    found, left_out = native.native_peers(2)
    assert found == []
    assert left_out == [
        "geo-index hilbert, geo-index str, rstar: there is no cargo",
        "boost rtree: there is no C++ compiler",
    ]


def test_a_build_that_fails_leaves_its_contenders_out(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    failing = [sys.executable, "-c", "raise SystemExit('error: no crates')"]
    made, why = native._built(failing, tmp_path / "made")
    assert made is None
    assert why.endswith("could not build them: error: no crates")
    monkeypatch.setattr(native, "BUILD_SECONDS", 0.2)
    made, why = native._built([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "made")
    assert made is None
    assert why.endswith("took longer than 0.2 s")


def test_native_contenders_take_32_bits():
    for name, fits in (("intervals", True), ("rectangles", True), ("lonlat", False)):
        plain = peers.Plain(workloads.workload(name, 50, 5), threads=1)
        assert (native.unfit(plain) is None) == fits
    plain = peers.Plain(workloads.workload("intervals", 50, 5, r=2**33), threads=1)
    assert native.unfit(plain) == "holds whole numbers from 0 to 2^31 - 1, bounded on both sides"


def test_fingerprints_tell_pairs_apart():
    rng = np.random.default_rng(1)
    offsets, ids = np.array([0, 40, 70, 100]), rng.permutation(1_000)[:100]
    one = native.fingerprint(np.arange(3), offsets, ids)
    assert one[0] == 100
    for start, stop in ((0, 40), (40, 70)):
        ids[start:stop] = rng.permutation(ids[start:stop])
    assert native.fingerprint(np.arange(3), offsets, ids) == one
    # the same ids with the same count, one pair of them in the other's event
    ids[[0, 50]] = ids[[50, 0]]
    assert native.fingerprint(np.arange(3), offsets, ids) != one


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_native_measures_ours_where_nothing_is_built(monkeypatch):
    monkeypatch.setattr(native, "native_peers", lambda dimensions: ([], ["rstar: there is no cargo"]))
    monkeypatch.setattr(native, "settle", lambda contender: None)
    result = native.measure("a line", workloads.workload("rectangles", 300, 40), rounds=2)
    assert [row["name"] for row in result["rows"]] == ["auto", "cells", "vcr", native.COPY]
    assert all(len(row["match_s"]) == 2 for row in result["rows"])
    assert all(row["bytes"] > 0 for row in result["rows"] if row["name"] != native.COPY)
    shown = native.section(result)
    assert "## a line" in shown
    assert "| auto |" in shown
    assert f"{result['pairs'] / 40:,.1f} matches per event" in shown


def test_native_ends_where_pairs_differ(monkeypatch):
    w = workloads.workload("intervals", 300, 30)
    other = workloads.workload("intervals", 300, 30, seed=1)
    monkeypatch.setattr(native, "settle", lambda contender: None)

    def contenders(w, limit):
        for name, subs in (("honest", w.subscriptions()), ("liar", other.subscriptions())):
            c = measure.index_contender("scan", w, subs, threads=1)
            c.name, c.built, c.loaded, c.row = name, c.build(), c.load(30), {}
            yield c

    monkeypatch.setattr(native, "contenders_of", contenders)
    with pytest.raises(SystemExit, match=r"a line: pairs differ: honest has .* liar has "):
        native.measure("a line", w, rounds=1)


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
        ("native.py", ["--only", "no-such"], 2, "no line has 'no-such' in its name"),
        ("compare.py", ["no-such", __file__], 2, "give two files or two commits"),
        ("compare.py", [__file__, __file__], 2, "not a report of run.py"),
    ],
)
def test_what_cannot_be_run_is_refused(script, arguments, code, message):
    ran = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, message in ran.stderr) == (code, True)


def test_following_agrees_with_loading(tmp_path, monkeypatch):
    following = load("following")
    seconds = following.measure(tmp_path, 3000, 0.1, 6)
    assert len(seconds["follow"]) + len(seconds["change over"]) == len(seconds["load"]) == 6
    assert len(seconds["publish"]) > 1
    page = tmp_path / "page.md"
    page.write_text(
        "# Followers\n\n<!-- following: made by benchmarks/following.py -->\n\n<!-- end of following -->\n"
    )
    options = ["--subscriptions", "2000", "--steps", "2", "--page", str(page)]
    monkeypatch.setattr(sys, "argv", ["following.py", *options])
    following.main()
    assert "2,000 subscriptions, of which 1.0% are replaced at each of 2 steps" in page.read_text()
    assert "| load that version again | 2 |" in page.read_text()


@pytest.mark.parametrize(
    ("stem", "options"),
    [
        ("places", ["--subscriptions", "300", "--events", "60", "--rounds", "1"]),
        ("tracking", ["--subscriptions", "300", "--events", "600", "--vehicles", "100", "--batch", "200"]),
    ],
)
def test_areas_and_tracking_agree_with_their_peers(stem, options, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [stem, *options])
    load(stem).main()  # which compares the answers
    assert capsys.readouterr().out.count("\n") > 3


def test_the_page_of_doors_is_made_from_what_is_kept():
    doors = load("doors")
    page = FOLDER.parent / "docs" / "performance-doors.md"
    assert page.read_text(encoding="utf-8") == doors.page(figures.load("doors"))
