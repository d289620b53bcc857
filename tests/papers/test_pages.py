"""The pages of the experiments are those that the experiments as they are now would write."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from rangecast.papers import EXPERIMENTS, ExperimentReport, experiment, made_by
from rangecast.papers.claims import PAPERS, SOURCES, describe, read_spread, settle, settled_text
from rangecast.papers.provenance import (
    commit_of,
    hash_file,
    mark_page,
    marks_of,
    modules_of,
    recorded_marks,
)
from rangecast.papers.report import read_page

PAGES = Path(__file__).parents[2] / "docs" / "experiments"
QUICK = Path(__file__).parent / "quick-verdicts.json"
REMAKE = "run `rangecast experiment {} --docs`"


def text_of(name):
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.once
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_page_says_which_modules_have_changed_since_it_was_made(name):
    """`rangecast experiment --mark` says so on all pages; a module that is marked may change again."""
    text = text_of(name)
    made_by_python = text.partition(", Python ")[2].partition(",")[0].rpartition(".")[0]
    if made_by_python != platform.python_version().rpartition(".")[0]:
        pytest.skip(f"hashes are of the syntax trees of Python {made_by_python}")
    path = PAGES / f"{name}-code.csv"
    marks = marks_of(path, made_by(name))
    recorded = recorded_marks(path)
    moved = [module for module in marks if marks[module] != recorded[module]]
    assert not moved, (
        f"{name}.md was made with other code of {', '.join(moved)}: `rangecast experiment {name} --docs` "
        "makes it again, and `rangecast experiment --mark` says on the page that they have changed"
    )
    count = sum(map(bool, recorded.values()))
    assert (f"Since then {count} of these {len(recorded)} modules" in text) == (count > 0)


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
    claims = read_page(PAGES / f"{name}.md")
    assert f"Of {len(claims)} claims" in text_of(name)
    assert all(claim.by for claim in claims)
    assert all(claim.why for claim in claims if claim.verdict != "agrees")
    assert not any("(ours)" in claim.text for claim in claims)


@pytest.mark.once
def test_the_page_of_all_papers_is_made_from_theirs():
    claims = {name: read_page(PAGES / f"{name}.md") for name in SOURCES}
    written = (PAGES / "README.md").read_text(encoding="utf-8")
    assert written == describe(claims)


@pytest.mark.once
@pytest.mark.parametrize("name", SOURCES)
def test_every_claim_has_its_seeds_and_no_verdict_contradicts_them(name):
    spreads = read_spread(PAGES / "seeds-ratios.csv")
    claims = read_page(PAGES / f"{name}.md")
    assert [c.text for c in claims if c.text not in spreads] == []
    for claim in claims:
        own = spreads[claim.text]
        assert claim.verdict == settle(claim.run, own.agreeing, own.taken), claim.text
    assert text_of(name) == settled_text(PAGES / f"{name}.md", spreads), REMAKE.format("seeds")


@pytest.mark.once
@pytest.mark.parametrize("name", SOURCES)
def test_a_page_weighs_the_claims_that_its_experiment_declares(name):
    declared = {claim.text: claim.by for claim in PAPERS[name].CLAIMS.values()}
    assert declared == {claim.text: claim.by for claim in read_page(PAGES / f"{name}.md")}


@pytest.mark.once
@pytest.mark.parametrize("name", SOURCES)
def test_claims_say_where_they_stand_and_what_seeds_take(name):
    for claim in PAPERS[name].CLAIMS.values():
        inside = claim.least + 1e-6 if claim.most == float("inf") else (claim.least + claim.most) / 2
        assert claim.agrees(inside)
        assert not claim.agrees(claim.least)
        assert not claim.agrees(claim.most)
        assert all((claim.where, claim.number, claim.when, claim.by, claim.at))


@pytest.mark.integration
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_quick_run_has_the_verdicts_that_are_committed(name, tmp_path):
    """What a change is meant to change is changed in quick-verdicts.json too, as the failure shows it."""
    report = ExperimentReport(name, tmp_path, quick=True, code="")
    experiment(name)(report)
    verdicts = {weighed.claim.text: weighed.verdict for weighed in report.weighed}
    assert verdicts == json.loads(QUICK.read_text(encoding="utf-8"))[name]
    # the page weighs the same claims, in the same order
    assert list(verdicts) == [claim.text for claim in read_page(PAGES / f"{name}.md")]
    assert (tmp_path / f"{name}.md").exists()


def test_a_hash_is_of_what_the_code_does(tmp_path):
    """A comment leaves it, another number does not."""
    one, two, three = (tmp_path / f"{k}.py" for k in range(3))
    one.write_text('"""A."""\nSIZE = 3\n')
    two.write_text('"""B."""\n# more\nSIZE = (\n    3\n)\n')
    three.write_text('"""A."""\nSIZE = 4\n')
    assert hash_file(one) == hash_file(two) != hash_file(three)


def tree_of(folder, *, size=3, kernel="fast"):
    """A package of an experiment, a structure with its kernel, and a parser, in a new folder."""
    files = {
        "papers/one/experiment.py": "from rangecast.engine import index\n",
        "engine/index.py": f"from .{kernel} import find\nfrom rangecast.language import parser\n",
        f"engine/{kernel}.py": f"SIZE = {size}\n",
        "language/parser.py": "",
        "engine/unused.py": "",
    }
    for name, text in files.items():
        path = folder / "rangecast" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return modules_of(["rangecast.papers.one.experiment"], folder)


def test_a_kernel_that_changes_or_goes_is_marked_on_the_page(tmp_path):
    before = tree_of(tmp_path / "before")
    assert sorted(before) == [
        "rangecast.engine.fast",
        "rangecast.engine.index",
        "rangecast.papers.one.experiment",
    ]
    report = ExperimentReport("one", tmp_path, modules=before)
    page = report.write("Title", "Source.")
    assert "[one-code.csv](one-code.csv)" in page.read_text()
    plain = page.read_text()
    listed = tmp_path / "one-code.csv"
    assert marks_of(listed, before) == recorded_marks(listed) == dict.fromkeys(before, "")
    changed = tree_of(tmp_path / "changed", size=4)
    assert marks_of(listed, changed) == dict.fromkeys(before, "") | {"rangecast.engine.fast": "changed"}
    assert mark_page(page, changed) == 1
    assert "Since then 1 of these 3 modules have changed or moved" in page.read_text()
    assert recorded_marks(listed) == marks_of(listed, changed)
    # what is marked may change again
    assert recorded_marks(listed) == marks_of(listed, tree_of(tmp_path / "again", size=5))
    assert mark_page(page, tree_of(tmp_path / "gone", kernel="faster")) == 2
    assert recorded_marks(listed)["rangecast.engine.fast"] == "gone"
    assert "Since then 2 of these 3 modules" in page.read_text()
    assert mark_page(page, before) == 0
    assert page.read_text() == plain


def test_the_commit_of_a_folder_that_is_no_clone_is_unknown(tmp_path):
    assert commit_of(tmp_path) == "unknown"
