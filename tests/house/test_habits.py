"""What stands beside the code agrees with it: the version, the workflow, the hooks, the editor's settings."""

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_citation_is_of_this_version():
    fields = dict(re.findall(r"^([\w-]+): (.+)$", text_of("CITATION.cff"), re.MULTILINE))
    assert fields["title"] == PROJECT["name"]
    assert fields["version"] == PROJECT["version"]
    assert fields["license"] == PROJECT["license"]
    assert re.findall(r"^  - (\S+)$", text_of("CITATION.cff"), re.MULTILINE) == PROJECT["keywords"]
    abstract = re.search(r"^abstract: >-\n((?:  .+\n)+)", text_of("CITATION.cff"), re.MULTILINE)
    assert abstract
    assert " ".join(abstract[1].split()) == PROJECT["description"]


def test_the_changelog_has_this_version_below_what_is_unreleased():
    sections = re.findall(r"^## (\S+)", text_of("CHANGELOG.md"), re.MULTILINE)
    assert sections[:2] == ["Unreleased", PROJECT["version"]]
    assert len(sections) == len(set(sections))


def test_the_workflow_runs_make_on_every_version_of_python():
    workflow = text_of(".github/workflows/check.yml")
    supported = {
        found[1]
        for line in PROJECT["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    }
    matrix = re.search(r"^ +python: \[(.+)\]$", workflow, re.MULTILINE)
    assert matrix
    assert set(re.findall(r"\d\.\d+", matrix[1])) == supported
    assert f">={min(supported)}" == PROJECT["requires-python"]
    # steps that the Makefile does not have would pass there and fail at home
    assert re.findall(r"run: (.+)", workflow) == ["make test", "make test-plain-kernels", "make test-bounds"]


def test_hooks_call_the_projects_own_tools():
    config = text_of(".pre-commit-config.yaml")
    assert set(re.findall(r"repo: (\S+)", config)) == {"local"}
    called = re.findall(r"entry: \.venv/bin/(\w+)", config)
    assert set(called) == {"ruff", "mypy", "python"}
    for path in re.findall(r"tests/\S+\.py", config):
        assert (ROOT / path).exists()
    for command in ("ruff check", "ruff format --check", "mypy --strict src"):
        assert f".venv/bin/{command}" in config
        assert f"$(BIN)/{command}" in text_of("Makefile")


@pytest.mark.parametrize(
    ("message", "good"),
    [
        ("loading: one rule for ids\n\nWhy it is.\n", True),
        ("language, covering: one word per idea\n", True),
        ("docs: " + "x" * 65 + "\n", True),
        ("docs: " + "x" * 66 + "\n", False),
        ("One rule for ids\n\nloading: not here\n", False),
        ("loading:\n", False),
        ("Merge branch 'x'\n", True),
    ],
)
def test_the_hook_for_subjects(message, good):
    entry = re.search(r"id: commit-subject\n.*\n +entry: '(.+)'", text_of(".pre-commit-config.yaml"))
    assert entry
    assert bool(re.search(entry[1], message, re.MULTILINE)) is good


def test_editors_break_lines_where_ruff_does():
    section = re.search(r"^\[\*\.py\]\nmax_line_length = (\d+)$", text_of(".editorconfig"), re.MULTILINE)
    assert section
    assert int(section[1]) == PYPROJECT["tool"]["ruff"]["line-length"]


def test_contributing_has_every_marker_and_every_target():
    page = text_of("CONTRIBUTING.md")
    markers = [line.split(":")[0] for line in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]]
    assert [name for name in markers if f"| `{name}` |" not in page] == []
    targets = set(re.findall(r"^([a-z.-]+):.*##", text_of("Makefile"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", page))
    assert named <= targets, f"the Makefile has no {sorted(named - targets)}"
    assert {"check", "test"} <= named


def test_families_of_tests_share_a_worker(request):
    """pytest-xdist must see the groups of conftest.py; if it does not, every worker compiles every kernel."""
    if "loadgroup" not in getattr(request.config, "workerinput", {}).get("mainargv", []):
        pytest.skip("these workers were not asked to keep groups together")
    grouped = [item for item in request.session.items if item.get_closest_marker("xdist_group")]
    assert all("@" in item.nodeid for item in grouped)
