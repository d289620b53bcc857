"""Figures of README.md and docs/ are those that benchmarks have kept, and nobody's typing."""

import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
# What looks like something that was measured: a time, a rate, a ratio of times.
MEASURED = re.compile(
    r"\d[\d.,]* ?(?:us|µs|ns|ms)\b|\d[\d.,]* (?:events|messages)(?:/s| per second)"
    r"|\d[\d.,]* times (?:as fast|faster|slower|as long)"
)
# Reports of runs, which their own tests compare.
APART = ("docs/experiments/",)


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
    for path, *_ in figures.placed():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
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


def test_a_page_that_a_command_wrote_is_compared_as_a_whole(figures, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "FOLDER", tmp_path / "figures")
    monkeypatch.setattr(figures, "PLACES", ())
    whole, part = tmp_path / "whole.md", tmp_path / "part.md"
    first, last = figures.marks_of("speed")
    part.write_text(f"# Part\n\n{first}\n{last}\n\nMore.\n")
    figures.keep(whole, "whole", "python whole.py", "# Whole\n\n12 us\n", whole=True)
    figures.keep(part, "speed", "python part.py", "7 us\n")
    assert whole.read_text() == "# Whole\n\n12 us\n"
    assert part.read_text() == f"# Part\n\n{first}\n\n7 us\n\n{last}\n\nMore.\n"
    assert figures.stale() == []
    whole.write_text(whole.read_text().replace("12", "11"))
    part.write_text(part.read_text().replace("7 us", "6 us"))
    assert figures.stale() == [
        "part.md: what python part.py wrote is not what the figures say; run python benchmarks/figures.py",
        "whole.md: what python whole.py wrote is not what the figures say; run python benchmarks/figures.py",
    ]
    figures.write_pages()
    assert figures.stale() == []
    # a page outside of the clone is a trial: it is written, and nothing is kept
    monkeypatch.setattr(figures, "ROOT", tmp_path / "clone")
    figures.keep(whole, "other", "python whole.py", "14 us", whole=True)
    assert whole.read_text() == "14 us\n"
    assert not (tmp_path / "figures" / "other.json").exists()


def test_a_run_of_the_broker_replaces_its_own_row(figures, tmp_path, monkeypatch):
    pytest.importorskip("psutil")
    pytest.importorskip("msgspec", reason="needs the extra serve")
    spec = importlib.util.spec_from_file_location("broker_benchmark", ROOT / "benchmarks" / "broker.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    written = []
    monkeypatch.setattr(figures, "write_pages", lambda: written.append(1))
    options = SimpleNamespace(rate=500, seconds=10.0)
    for n, name in enumerate(reversed(benchmark.ROWS)):
        assert not written  # a page has all rows or is left alone
        benchmark.keep(name, options, {"events/s": n})
    before = figures.load("broker")["rows"]
    assert [row["row"] for row in before] == list(benchmark.ROWS)
    benchmark.keep("single", options, {"events/s": 77})
    after = figures.load("broker")["rows"]
    assert [row for row in after if row["row"] != "single"] == [r for r in before if r["row"] != "single"]
    assert after[1] == {"row": "single", "offered": 500, "seconds": 10.0, "events/s": 77}
    assert len(written) == 2


def test_figures_stand_in_tables_only():
    """Prose of the README has no measured figure that would grow old."""
    assert not re.findall(r"\d[\d.,]* (?:times|us\b|microseconds|bytes per|%)", by_hand(ROOT / "README.md"))


def by_hand(page: Path) -> str:
    """A page without the figures that are kept, and without code."""
    kept = r"<!-- figures: (.*?) -->.*?<!-- end of figures: \1 -->|<!-- (.*?): made by .*?<!-- end of \2 -->"
    return re.sub(rf"{kept}|```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


def test_no_measured_figure_is_typed_into_a_page(figures):
    whole = {kept["page"] for kept in figures.kept_texts() if kept["marks"] is None}
    pages = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
    typed = {
        name: found
        for name, path in pages.items()
        if not name.startswith(APART) and name not in whole
        if (found := MEASURED.findall(by_hand(path)))
    }
    assert not typed, f"keep these figures with benchmarks/figures.py, or leave them out: {typed}"


def test_figures_name_the_command_that_made_them(figures):
    kept = figures.kept_texts()
    for one in [*kept, figures.load("floors")]:
        script = re.match(r"python (benchmarks/\w+\.py)", one["command"])
        assert script, one["command"]
        assert (ROOT / script[1]).exists(), one["command"]
        assert "page" not in one or script[1] in (ROOT / one["page"]).read_text(), one["page"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", one["measured"]) for one in kept)
