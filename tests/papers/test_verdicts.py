"""Verdicts of a page's run and of several seeds: where these part, a claim is open."""

from __future__ import annotations

import pytest

from rangecast.papers.claims import SeedSpread, read_spread, settle, settle_pages, settled
from rangecast.papers.report import Claim, ExperimentReport, PageClaim, SeedReport, read_page

pytestmark = [pytest.mark.without_kernels, pytest.mark.once]

HEAD = "paper,claim,ratio,agrees when,taken with,seen,seeds that agree,why not"


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
        report.weigh(Claim(f"{name} is fast", "", "a / b", 1, by="time"), 2.0, "a | b")
        report.text("A figure.")
        report.departs("size", "9", "8", "time")
        path = report.write("Title", "Source.")
    plain = path.read_text()
    (tmp_path / "seeds-ratios.csv").write_text(
        f"{HEAD}\nvcr,vcr is fast,a / b,above 1,9 rows,2 (1 to 3),0 of 3,it turns on the size\n"
    )
    settle_pages(tmp_path, ("vci", "vcr", "no such page"))
    (only,) = read_page(path)
    assert (only.verdict, only.evidence) == ("open", "a | b")
    assert "Of 1 claims in the paper, 0 agree, 0 differ and 1 is open." in path.read_text()
    assert read_page(tmp_path / "vci.md")[0].verdict == "agrees"
    (tmp_path / "seeds-ratios.csv").unlink()
    settle_pages(tmp_path, ("vci", "vcr"))
    assert path.read_text() == plain
    assert read_spread(tmp_path / "seeds-ratios.csv") == {}


def test_a_quick_run_decides_what_is_counted_alone(tmp_path):
    report = ExperimentReport("vci", tmp_path, quick=True)
    timed = Claim("it is fast", "", "a / b", 1, by="time", why="it is slow")
    report.weigh(timed, 0.5, "half as fast")
    report.weigh(timed._replace(counted=True), 0.5, "half as much")
    report.weigh(timed._replace(counted=True), 2.0, "it depends", divided=True)
    assert [(weighed.verdict, weighed.why) for weighed in report.weighed] == [
        ("open", "a run with --quick is too small to tell"),
        ("differs", "it is slow"),
        ("open", "it is slow"),
    ]


def test_a_run_with_another_seed_keeps_its_numbers_and_writes_nothing(tmp_path):
    steps = []
    parent = ExperimentReport("seeds", tmp_path, echo=steps.append)
    own = SeedReport(parent, "vci", 7)
    assert (own.seed, own.extent("page", "seeds", "quick")) == (7, "seeds")
    assert parent.extent("page", "seeds", "quick") == "page"
    assert ExperimentReport("vci", tmp_path, quick=True).extent("page", "seeds", "quick") == "quick"
    number = own.measured("figure 1", lambda: 3.0)
    own.text("A figure.")
    own.table("1", "Figure 1", ["a"], [[number]])
    own.plot("1", "Figure 1", "x", "y", {"a": ([1], [2.0])})
    own.weigh(Claim("it is fast", "", "a / b", 1), number, "3 times")
    own.write("Title", "Source.")
    assert steps[0] == "vci, seed 7: figure 1"
    assert [weighed.number for weighed in own.weighed] == [3.0]
    assert list(tmp_path.iterdir()) == []
