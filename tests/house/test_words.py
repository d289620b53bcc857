"""One word per idea: no type's name is used twice, and a subscription is called a subscription."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from source_trees import nodes_of, tree_of

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rangecast"


@cache
def trees() -> dict[str, ast.Module]:
    """Every module's syntax tree. Parsed when first asked for: every worker process loads this file."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {str(path.relative_to(PACKAGE)): tree_of(path) for path in paths}


# For a subscription. The filter of the UB-tree's leaf is the paper's, and Spark's callbacks are Spark's.
NEVER_WORDS = {"rule", "filter", "pattern", "query"}
ALLOWED_NAMES = {
    "_filter_addresses",
    "_filter_columns",
    "onQueryStarted",
    "onQueryProgress",
    "onQueryIdle",
    "onQueryTerminated",
}


def words_of(name: str) -> list[str]:
    """The words of a name, small and singular.

    `_ParquetParts` is parquet, part; `match_queries` is match, query.
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return [re.sub(r"ies$", "y", word.lower()).removesuffix("s") for word in words]


def classes_of(trees: dict[str, ast.Module]) -> list[tuple[str, str]]:
    """Path and name of every class, a leading underscore left out."""
    return [
        (path, node.name.lstrip("_"))
        for path, tree in trees.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef)
    ]


def types_of(trees: dict[str, ast.Module]) -> list[tuple[str, str]]:
    """The classes, and the types that a module gives a name: `Rows = tuple[...]`."""
    aliases = [
        (path, node.targets[0].id.lstrip("_"))
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and re.fullmatch(r"_?[A-Z][a-z]\w*", node.targets[0].id)
    ]
    return classes_of(trees) + aliases


def repeated(types: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The names of types that stand in several places."""
    places: dict[str, list[str]] = {}
    for path, name in types:
        places.setdefault(name, []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def banned(trees: dict[str, ast.Module]) -> list[tuple[str, str]]:
    """The classes and functions that call a subscription by another word."""
    return [
        (path, node.name)
        for path, tree in trees.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and NEVER_WORDS & set(words_of(node.name))
        and node.name not in ALLOWED_NAMES
    ]


def test_no_type_name_is_used_twice():
    assert not repeated(types_of(trees()))


def test_a_subscription_is_called_a_subscription():
    assert not banned(trees())


def test_the_glossary_has_each_word_once():
    defined = re.findall(
        r"^\| ([a-z -]+) \| [A-Z]", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    assert len(defined) == len(set(defined))


def test_faults_are_seen():
    trees = {
        "spark/reduce.py": ast.parse("class _Plan: ...\nFileSource = tuple\ndef match_rules(): ..."),
        "engine/planner.py": ast.parse("class Plan:\n    class Queries: ..."),
    }
    assert repeated(classes_of(trees)) == {"Plan": ["spark/reduce.py", "engine/planner.py"]}
    trees["spark/ingest.py"] = ast.parse("_FileSource = dict")
    assert repeated(types_of(trees))["FileSource"] == ["spark/reduce.py", "spark/ingest.py"]
    assert banned(trees) == [("spark/reduce.py", "match_rules"), ("engine/planner.py", "Queries")]
    assert words_of("_HTTPPart") == ["http", "part"]
