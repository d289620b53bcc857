"""Turns that were replaced do not come back; CONTRIBUTING.md says what to write instead.

They are looked for on the pages, in the changelog, in reports of experiments, and in every text of the code:
docstrings, help texts, messages.
"""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
PER = "bytes|us|microseconds|nanoseconds|milliseconds|seconds|entries|predicates|pairs"
THING = "row|attribute|object|file|key|cover|claim|error|address|answer|JSON|home"
OF = "subscription|event|box|attribute|interval|rectangle|pair|match|call|batch|consumer|worker|message"
# As in the list of CONTRIBUTING.md: the turn, and what it looks like.
TURNS = {
    # not "how many entries a batch can touch"
    "bytes a subscription": rf"(?<!how many )\b(?:{PER}) an? (?:{OF})\b",
    "shall": r"\bshall\b",
    "anew": r"\banew\b",
    "unless told": r"\bunless told\b",
    "set aside": r"\bset aside\b",
    "not looked at": r"\bnot looked at\b",
    "dear": r"\bdear(?:er|est)?\b",
    "is no row": rf"(?<!there )\b(?:is|are|was|were) no (?:{THING})s?\b",
    "goes by": r"\bgo(?:es)? by (?:the|what|its)\b",
    ", else": r"[,;] else\b",
    "is said": r"\b(?:is|are) said(?! to\b)\b",
    "for nothing": r"\bfor nothing\b",
    "in vain": r"\bin vain\b",
    "as one likes": r"\bas one likes\b",
    "one would": r"(?<!right )\bone would\b",
    "spares": r"\bspares\b",
    "speaks for": r"\bspeaks for\b",
    "takes the place of": r"\btakes? the place of\b",
    "comes to its end": r"\b(?:come|comes|came) to (?:its|their) end\b",
    "what still rubs": r"\bstill rubs\b",
    "some thousands": r"\bsome thousands?\b",
}
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(
        ROOT / name
        for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md", "benchmarks/README.md")
    ),
]


def prose(text: str) -> str:
    """A page without its code, and without the glossary's table of words that have gone."""
    text = text.partition("## Words that have gone")[0]
    return re.sub(r"^```.*?^```|`[^`\n]*`", "``", text, flags=re.DOTALL | re.MULTILINE)


def turns_of(text: str) -> list[str]:
    """The turns in a text, as they stand there."""
    return [found[0] for turn in TURNS.values() for found in re.finditer(turn, prose(text), re.IGNORECASE)]


def test_replaced_turns_do_not_come_back():
    found = {str(page.relative_to(ROOT)): turns_of(page.read_text()) for page in PAGES}
    found = {page: turns for page, turns in found.items() if turns}
    assert not found, f"CONTRIBUTING.md, English, says what to write instead: {found}"


def texts_of(code: str) -> list[str]:
    """The texts of a module that somebody reads: all with a space in them."""
    found = (node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant))
    return [value for value in found if isinstance(value, str) and " " in value]


def test_replaced_turns_do_not_come_back_in_the_code():
    sources = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "website").glob("*.py"))]
    found = {
        str(path.relative_to(ROOT)): turns
        for path in sources
        if (turns := [turn for text in texts_of(path.read_text()) for turn in turns_of(text)])
    }
    assert not found, f"CONTRIBUTING.md, English, says what to write instead: {found}"


def test_contributing_lists_each_turn():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert [turn for turn in TURNS if f"| {turn} |" not in page] == []


def test_docstrings_and_help_texts_are_seen():
    code = 'def f(x="anew"):\n    """It is built anew."""\n    return option(help=f"Of {x} unless told.")\n'
    assert [turn for text in texts_of(code) for turn in turns_of(text)] == ["anew", "unless told"]


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("It takes 8 bytes a subscription, and `shall` is quoted.", ["bytes a subscription"]),
        ("There is no file. A line that is no object is rejected.", ["is no object"]),
        ("It is built anew, else nothing.", ["anew", ", else"]),
        ("It matches an event.\n\n```\nshall\n```\n", []),
        ("An attribute is said to have a domain.", []),
    ],
)
def test_turns_are_seen(text, turns):
    assert turns_of(text) == turns
