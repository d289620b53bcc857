"""The page of all papers: counts, reasons and the spread over seeds, from the papers' own pages."""

from __future__ import annotations

import pytest

from rangecast.papers.claims import SOURCES, describe, write_overview
from rangecast.papers.report import Claim, ExperimentReport, PageClaim, read_page

pytestmark = [pytest.mark.without_kernels, pytest.mark.once]


def filled(name, folder, **options):
    report = ExperimentReport(name, folder, code="abc", **options)
    report.weigh(Claim("it is fast", "", "a / b", 1, by="time"), 2.0, "2 times")
    report.weigh(Claim("it is small", "", "a / b", 1, by="bytes", why="it is not"), 0.5, "3 | 4 bytes")
    report.weigh(Claim("it is fair", "", "", 1, by="taste", why="nobody said"), 2, "who knows", divided=True)
    return report


def test_a_page_is_read_as_it_was_written(tmp_path):
    path = filled("vci", tmp_path).write("Title", "Source.")
    claims = read_page(path)
    assert claims[0] == PageClaim("it is fast", "agrees", "agrees", "", "time", "2 times", "")
    assert [claim.verdict for claim in claims] == ["agrees", "differs", "open"]
    assert claims[1].evidence == "3 | 4 bytes"


def test_all_papers_on_one_page(tmp_path):
    assert write_overview(tmp_path) is None
    for name in SOURCES:
        filled(name, tmp_path).write("Title", "Source.")
    text = write_overview(tmp_path).read_text()
    assert "| all | 15 | 5 | 5 | 5 |" in text
    assert "| vci | it is small | differs | it is not |" in text
    (tmp_path / "seeds-ratios.csv").write_text(
        "paper,claim,ratio,agrees when,taken with,seen,seeds that agree,why not\n"
        "vci,it is fast,a / b,above 1,9 rows,2 (1 to 3),1 of 3,"
    )
    text = write_overview(tmp_path).read_text()
    assert "| it is fast | open | time | 1 of 3: a / b 2 (1 to 3), above 1 (9 rows) |" in text
    assert "| all | 15 | 0 | 5 | 10 |" in text
    assert "| vci | it is fast | open | this run agrees, 1 of 3 seeds agree |" in text


def test_a_report_without_claims_has_no_table_of_them(tmp_path):
    report = ExperimentReport("seeds", tmp_path, code="abc")
    report.table("ratios", "Ratios", ["a"], [[1]])
    assert "## Claims" not in report.write("Title", "Source.").read_text()


def test_nothing_claimed_is_nothing_counted():
    assert "| all | 0 | 0 | 0 | 0 |" in describe({name: [] for name in SOURCES})
