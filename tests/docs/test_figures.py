"""Figures of README.md and docs/ are those that benchmarks have kept, and nobody's typing."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
# Pages whose whole text a command writes; each names it.
WRITTEN = {
    "performance-all.md": "benchmarks/run.py",
    "performance-doors.md": "benchmarks/doors.py",
    "performance-language.md": "benchmarks/language.py",
    "performance-spark.md": "benchmarks/spark.py",
    "performance-streaming.md": "benchmarks/streaming.py",
}


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "benchmarks" / "figures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module
    spec.loader.exec_module(module)
    return module


def test_tables_are_what_the_benchmarks_have_kept(figures):
    assert figures.stale() == []


def test_a_figure_that_is_changed_by_hand_is_seen(figures, tmp_path, monkeypatch):
    for path, _, _ in figures.PLACES:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text())
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    assert figures.stale() == []
    page = tmp_path / "README.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ranges on 12 attributes")]
    page.write_text(page.read_text().replace(rows[0], re.sub(r"\d", "9", rows[0])))
    (said,) = figures.stale()
    assert said.startswith("README.md: the table floors")
    figures.write_pages()
    assert figures.stale() == []
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="marks"):
        figures.stale()


def test_figures_stand_in_tables_only():
    """Prose of the README has no measured figure that would grow old."""
    text = re.sub(
        r"<!-- figures.*?<!-- end of figures.*?-->|```.*?```",
        "",
        (ROOT / "README.md").read_text(),
        flags=re.DOTALL,
    )
    assert not re.findall(r"\d[\d.,]* (?:times|us\b|microseconds|bytes per|%)", text)


def test_pages_that_a_command_writes_name_it():
    for page, script in WRITTEN.items():
        assert (ROOT / script).exists()
        assert f"python {script}" in (ROOT / "docs" / page).read_text(), page
    assert {path.name for path in (ROOT / "docs").glob("performance-*.md")} == set(WRITTEN)
