"""The examples in README.md and docs/ run and print what the page shows.

The convention: a ```python block is an example. Directly followed by a ```text block (only blank
lines between), it must print exactly that; otherwise it must run and print nothing. The examples of
one page run in order and share their names, in an empty folder. A block that is not meant to run is
fenced as ```py.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

EXAMPLE = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL
)


def examples_of(text: str) -> list[tuple[int, str, str]]:
    """The examples of a page: line of the first statement, code, and the output shown."""
    return [
        (text.count("\n", 0, found.start("code")) + 1, found["code"], found["output"] or "")
        for found in EXAMPLE.finditer(text)
    ]


def run_examples(text: str, page: str) -> int:
    """Run the examples of a page in order, compare what they print, and return how many there were."""
    names: dict[str, object] = {"__name__": "__main__"}
    examples = examples_of(text)
    for line, code, shown in examples:
        # The blank lines let a traceback point at the line of the page.
        compiled = compile("\n" * (line - 1) + code, page, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compiled, names)
        got = "\n".join(row.rstrip() for row in printed.getvalue().splitlines())
        assert got == shown.rstrip("\n"), f"{page}, line {line}: the output differs from the block shown"
    return len(examples)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(page.read_text(), str(page))


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    gone = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not gone, f"{page.name} links to what is not there: {gone}"


def test_readme_has_an_example_with_output():
    assert any(shown for _, _, shown in examples_of(PAGES[0].read_text()))


def test_examples_share_names_and_are_compared():
    page = "x\n```python\nx = 2\n```\ntext\n```python\nprint(x)\n```\n\n```text\n2\n```\n"
    assert examples_of(page) == [(3, "x = 2\n", ""), (7, "print(x)\n", "2\n")]
    assert run_examples(page, "page") == 2
    with pytest.raises(AssertionError, match="page, line 7"):
        run_examples(page.replace("\n2\n", "\n3\n"), "page")
