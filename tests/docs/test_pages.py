"""The examples in README.md and docs/ run and print what the page shows.

The convention: a ```python block is an example. Directly followed by a ```text block (only blank
lines between), it must print exactly that; otherwise it must run and print nothing. The examples of
one page run in order and share their names, in an empty folder. A block that is not meant to run is
fenced as ```py. The pages of the tutorial run one after the other in one folder, their ```sh blocks too.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from page_blocks import Example, examples_of, run_examples

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = sorted((ROOT / "docs" / "tutorial").glob("[1-9]*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in TUTORIAL], ids=lambda page: str(page.relative_to(ROOT))
)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(page.read_text(), str(page))


@pytest.mark.slow
def test_the_tutorial_runs_as_far_as_it_needs_no_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for page in TUTORIAL[:2]:
        assert run_examples(page.read_text(), str(page), ("python", "sh")) >= 4


@pytest.mark.integration
def test_the_tutorial_runs(tmp_path):
    """In a process of its own, for Spark finds relative paths where its process was started."""
    pytest.importorskip("pyspark")
    assert len(TUTORIAL) == 5
    command = [sys.executable, ROOT / "tests" / "page_blocks.py", *TUTORIAL]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    assert min(map(int, ran.stdout.split())) >= 3


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    gone = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not gone, f"{page.name} links to what is not there: {gone}"


def test_readme_has_an_example_with_output():
    assert any(example.output for example in examples_of(PAGES[0].read_text()))


def test_examples_share_names_and_are_compared():
    page = "x\n```python\nx = 2\n```\ntext\n```python\nprint(x)\n```\n\n```text\n2\n```\n"
    assert examples_of(page) == [
        Example("python", 3, "x = 2\n", ""),
        Example("python", 7, "print(x)\n", "2\n"),
    ]
    assert run_examples(page, "page") == 2
    with pytest.raises(AssertionError, match="page, line 7"):
        run_examples(page.replace("\n2\n", "\n3\n"), "page")
