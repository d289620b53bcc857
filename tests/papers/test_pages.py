"""The pages of the experiments are those that the experiments as they are now would write."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from rangecast.papers import EXPERIMENTS, ExperimentReport, code_of, experiment
from rangecast.papers.claims import RATIOS, SOURCES, describe, read_spread, settle, settled_text
from rangecast.papers.report import read_page

PAGES = Path(__file__).parents[2] / "docs" / "experiments"
QUICK = Path(__file__).parent / "quick-verdicts.json"
REMAKE = "run `rangecast experiment {} --docs`"


def text_of(name):
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.once
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_code_has_not_changed_since_the_page_was_made(name):
    made_by = text_of(name).partition(", Python ")[2].partition(", by code")[0].rpartition(".")[0]
    if made_by != platform.python_version().rpartition(".")[0]:
        pytest.skip(f"the hash is of the syntax tree of Python {made_by}")
    assert read_page(PAGES / f"{name}.md")[0] == code_of(name), REMAKE.format(name)


@pytest.mark.once
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_page_is_of_a_quick_run(name):
    assert f"was written by `rangecast experiment {name} --docs`" in text_of(name), REMAKE.format(name)
    # every file of the experiment is on its page
    for path in PAGES.glob(f"{name}-*"):
        assert path.name in text_of(name)
    assert "## Departures from the paper's parameters" in text_of(name)


@pytest.mark.once
@pytest.mark.parametrize("name", SOURCES)
def test_a_page_gives_a_reason_for_every_claim_that_does_not_agree(name):
    claims = read_page(PAGES / f"{name}.md")[1]
    assert f"Of {len(claims)} claims" in text_of(name)
    assert all(claim.by for claim in claims)
    assert all(claim.why for claim in claims if claim.verdict != "agrees")
    assert not any("(ours)" in claim.text for claim in claims)


@pytest.mark.once
def test_the_page_of_all_papers_is_made_from_theirs():
    claims = {name: read_page(PAGES / f"{name}.md")[1] for name in SOURCES}
    written = (PAGES / "README.md").read_text(encoding="utf-8")
    assert written == describe(claims)


@pytest.mark.once
@pytest.mark.parametrize("name", SOURCES)
def test_every_claim_has_its_seeds_and_no_verdict_contradicts_them(name):
    spreads = read_spread(PAGES / "seeds-ratios.csv")
    claims = read_page(PAGES / f"{name}.md")[1]
    assert [c.text for c in claims if c.text not in spreads] == []
    for claim in claims:
        own = spreads[claim.text]
        assert claim.verdict == settle(claim.run, own.agreeing, own.taken), claim.text
    assert text_of(name) == settled_text(PAGES / f"{name}.md", spreads), REMAKE.format("seeds")


@pytest.mark.once
def test_the_seeds_are_of_claims_that_are_weighed():
    for (paper, _), ratio in RATIOS.items():
        assert ratio.claim in {claim.text for claim in read_page(PAGES / f"{paper}.md")[1]}


def stable(report):
    """Verdicts that are the same in every quick run: of counted things, and of what stays open in it."""
    return {c.text: c.verdict if c.counted or c.agrees is None else "timed" for c in report.claims}


@pytest.mark.integration
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_quick_run_has_the_verdicts_that_are_committed(name, tmp_path):
    """What a change is meant to change is changed in quick-verdicts.json too, as the failure shows it."""
    report = ExperimentReport(name, tmp_path, quick=True, code="")
    experiment(name)(report)
    assert stable(report) == json.loads(QUICK.read_text(encoding="utf-8"))[name]
    # the page weighs the same claims, in the same order
    assert list(stable(report)) == [claim.text for claim in read_page(PAGES / f"{name}.md")[1]]
    assert (tmp_path / f"{name}.md").exists()


def test_a_changed_experiment_is_found_out(tmp_path, monkeypatch):
    """The hash is of what the code does: a comment leaves it, another number does not."""
    from rangecast.papers.report import hash_code

    one, two, three = (tmp_path / f"{k}.py" for k in range(3))
    one.write_text('"""A."""\nSIZE = 3\n')
    two.write_text('"""B."""\n# more\nSIZE = (\n    3\n)\n')
    three.write_text('"""A."""\nSIZE = 4\n')
    assert hash_code([one]) == hash_code([two]) != hash_code([three])
