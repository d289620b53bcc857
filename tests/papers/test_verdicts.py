"""Verdicts of a page's run and of several seeds: where these part, a claim is open."""

from __future__ import annotations

import pytest

from rangecast.papers.claims import COLUMNS, RATIOS, SeedSpread, read_spread, settle, settle_pages, settled
from rangecast.papers.report import ExperimentReport, PageClaim, read_page

pytestmark = [pytest.mark.without_kernels, pytest.mark.once]

HEAD = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("run", "agreeing", "taken", "verdict"),
    [
        ("agrees", 3, 3, "agrees"),
        ("agrees", 2, 3, "agrees"),
        ("agrees", 1, 3, "open"),
        ("agrees", 0, 3, "open"),
        ("agrees", 1, 2, "open"),
        ("differs", 0, 3, "differs"),
        ("differs", 1, 3, "differs"),
        ("differs", 2, 3, "open"),
        ("differs", 3, 3, "open"),
        ("open", 3, 3, "open"),
        ("open", 0, 3, "open"),
    ],
)
def test_a_verdict_needs_the_run_and_most_seeds(run, agreeing, taken, verdict):
    assert settle(run, agreeing, taken) == verdict


def claim(run="agrees", why=""):
    return PageClaim("it is fast", run, run, "", "time", "2 times", why)


def seen(agreeing, why=""):
    return SeedSpread("a / b", "2 (1 to 3)", "above 1", "9 rows", agreeing, 3, why)


def test_seeds_that_contradict_a_run_open_it_with_the_reason():
    found = settled(claim(), seen(1, "it turns on the size"))
    assert found.verdict == "open"
    assert found.run == "agrees"
    assert found.seeds == "1 of 3: a / b 2 (1 to 3), above 1 (9 rows)"
    assert found.why == "this run agrees, 1 of 3 seeds agree: it turns on the size"
    assert settled(claim("differs", "it is slow"), seen(3)).why == (
        "this run differs, 3 of 3 seeds agree: it is slow"
    )


def test_seeds_that_support_a_run_leave_its_verdict_and_reason():
    assert settled(claim(), seen(3))[:3] == ("it is fast", "agrees", "agrees")
    assert settled(claim("differs", "it is slow"), seen(0)).why == "it is slow"


def test_settling_again_forgets_what_was_settled_before():
    for first in (claim(), claim("differs", "it is slow")):
        once = settled(first, seen(2))
        assert settled(settled(settled(first, seen(1)), seen(3)), seen(2)) == once
        assert settled(once, None) == first


def test_pages_are_settled_where_they_lie(tmp_path):
    for name in ("vci", "vcr"):
        report = ExperimentReport(name, tmp_path, code="abc")
        report.claim(f"{name} is fast", True, "a | b", by="time")
        report.text("A figure.")
        report.departs("size", "9", "8", "time")
        path = report.write("Title", "Source.")
    plain = path.read_text()
    (tmp_path / "seeds-ratios.csv").write_text(
        f"{HEAD}\nvcr,vcr is fast,a / b,above 1,9 rows,2 (1 to 3),0 of 3,it turns on the size\n"
    )
    settle_pages(tmp_path, ("vci", "vcr", "no such page"))
    code, (only,) = read_page(path)
    assert (code, only.verdict, only.evidence) == ("abc", "open", "a | b")
    assert "Of 1 claims in the paper, 0 agree, 0 differ and 1 is open." in path.read_text()
    assert read_page(tmp_path / "vci.md")[1][0].verdict == "agrees"
    (tmp_path / "seeds-ratios.csv").unlink()
    settle_pages(tmp_path, ("vci", "vcr"))
    assert path.read_text() == plain
    assert read_spread(tmp_path / "seeds-ratios.csv") == {}


def test_a_ratio_agrees_between_its_bounds():
    for ratio in RATIOS.values():
        inside = ratio.least + 1e-6 if ratio.most == float("inf") else (ratio.least + ratio.most) / 2
        assert ratio.agrees(inside)
        assert not ratio.agrees(ratio.least)
        assert not ratio.agrees(ratio.most)
        assert ratio.at
        assert ratio.when
