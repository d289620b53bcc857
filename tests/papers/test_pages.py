"""The pages of the experiments are those that the experiments as they are now would write."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from rangecast.papers import EXPERIMENTS, code_of
from rangecast.papers.report import read_page

PAGES = Path(__file__).parents[2] / "docs" / "experiments"
# their full runs have not been made since the experiments were changed; the pages say what they depart in
TO_BE_MADE = {"batch", "ubtree"}
MADE = sorted(set(EXPERIMENTS) - TO_BE_MADE)


@pytest.mark.once
def test_pages_that_are_to_be_made_say_so():
    for name in TO_BE_MADE:
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert "by code `" not in text
        assert "This page was written by an earlier form of the experiment." in text


@pytest.mark.once
@pytest.mark.parametrize("name", MADE)
def test_the_code_has_not_changed_since_the_page_was_made(name):
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    made_by = text.partition(", Python ")[2].partition(", by code")[0].rpartition(".")[0]
    if made_by != platform.python_version().rpartition(".")[0]:
        pytest.skip(f"the hash is of the syntax tree of Python {made_by}")
    assert read_page(PAGES / f"{name}.md")[0] == code_of(name), f"run `rangecast experiment {name} --docs`"


@pytest.mark.once
@pytest.mark.parametrize("name", MADE)
def test_a_page_gives_a_reason_for_every_claim_that_does_not_agree(name):
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.partition("## Claims")[2].partition("\n## ")[0].splitlines()]
    claims = [row for row in rows if len(row) == 5 and row[1] in ("agrees", "differs", "open")]
    assert len(claims) == len(read_page(PAGES / f"{name}.md")[1])
    assert all(row[2] for row in claims)
    assert all(row[4].strip(" |") for row in claims if row[1] != "agrees")
    assert "(ours)" not in " ".join(row[0] for row in claims)
    assert "## Departures from the paper's parameters" in text
    # every file of the experiment is on its page
    for path in PAGES.glob(f"{name}-*"):
        assert path.name in text
