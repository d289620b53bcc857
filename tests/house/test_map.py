"""The map in docs/architecture.md against the tree, and every module that pages and docstrings name.

The map is the part of the page under "The map": in each table the first cell of a row is a path below
src/rangecast, a module or, with a slash at its end, a folder. A package's `__init__.py` is its folder's row.
"""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from source_trees import nodes_of, tree_of

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rangecast"
PAGE = ROOT / "docs" / "architecture.md"

ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \|(.*?)\|$", re.MULTILINE)
# A path of a module; `<name>.py` in a recipe is none.
NAMED = re.compile(r"(?<![\w/.*>])[\w.][\w./-]*\.py\b")


def tree() -> set[str]:
    """Every folder and every module below src/rangecast, as the map writes them."""
    paths = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    modules = {str(path) for path in paths if path.name != "__init__.py"}
    return modules | {f"{path.parent}/" for path in paths if len(path.parts) > 1} | {"__init__.py"}


def map_of(page: str) -> list[tuple[str, str, str]]:
    """The rows of the map: path, what it holds, what it may touch."""
    section = page.partition("\n## The map\n")[2].partition("\n## ")[0]
    return [(path, holds.strip(), touches.strip()) for path, holds, touches in ROW.findall(section)]


def faults_of(rows: list[tuple[str, str, str]], there: set[str]) -> list[str]:
    """What is wrong with a map, beside a tree."""
    named = [path for path, _, _ in rows]
    return [
        *(f"{path} is not in the map" for path in sorted(there - set(named))),
        *(f"{path} is in the map and not in the tree" for path in sorted(set(named) - there)),
        *(f"{path} is in the map twice" for path in sorted({p for p in named if named.count(p) > 1})),
    ]


def layers() -> list[str]:
    """The parts of LAYERS in tests/house/test_layout.py, outermost first, read from its source."""
    module = ast.parse((ROOT / "tests/house/test_layout.py").read_text())
    (value,) = (
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    return [part for layer in ast.literal_eval(value) for part in layer]


ROWS = map_of(PAGE.read_text())


def test_the_map_is_the_tree():
    assert not faults_of(ROWS, tree())


def test_the_map_stands_in_the_order_of_the_layers():
    tops = [path.rstrip("/").split("/")[0].removesuffix(".py") for path, _, _ in ROWS]
    assert list(dict.fromkeys(top for top in tops if top != "__init__")) == layers()
    # a layer stands in one piece, its folder first
    for path, _, _ in ROWS:
        folder = path.rstrip("/").rpartition("/")[0]
        if folder:
            paths = [other for other, _, _ in ROWS]
            assert paths.index(f"{folder}/") < paths.index(path), f"{path} stands before its folder"
    assert sum(a != b for a, b in pairwise(tops)) == len(set(tops)) - 1


def test_every_row_says_what_it_holds_and_every_layer_what_it_may_touch():
    silent = [path for path, holds, _ in ROWS if not holds]
    assert not silent
    unbound = [path for path, _, touches in ROWS if path.rstrip("/").count("/") == 0 and not touches]
    assert not unbound, f"say what these may touch: {unbound}"


def test_a_wrong_map_is_seen():
    rows = map_of(
        "x\n## The map\n\n| `a/` | it | that |\n| `a/b.py` | it | |\n\n## More\n| `c.py` | no | |\n"
    )
    assert rows == [("a/", "it", "that"), ("a/b.py", "it", "")]
    assert faults_of(rows, {"a/", "a/b.py"}) == []
    assert faults_of(rows, {"a/", "a/d.py"}) == [
        "a/d.py is not in the map",
        "a/b.py is in the map and not in the tree",
    ]
    assert faults_of([*rows, rows[0]], {"a/", "a/b.py"}) == ["a/ is in the map twice"]


def files_below(*folders: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")}


def docstrings(path: Path) -> str:
    """All docstrings of a module, of its classes and of its functions."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for node in nodes_of(tree_of(path)) if isinstance(node, kinds)]
    return "\n".join(text for node in nodes if (text := ast.get_docstring(node)))


def strays(text: str, files: set[str], home: str | None = None) -> list[str]:
    """The modules that a text names and that are not there.

    A page may name the end of a path. A docstring, whose folder is `home`, may name a module of its folder,
    of one below it or of the top of the package by its name alone; any other needs the folder too.
    """
    near = {file for file in files if home and (file.startswith(home + "/") or file.count("/") == 2)}
    gone = []
    for name in sorted({re.sub(r"^(\.{1,2}/)+", "", name) for name in NAMED.findall(text)}):
        among = near if home and "/" not in name else files
        if not any(f"/{file}".endswith(f"/{name}") for file in among):
            gone.append(name)
    return gone


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_that_pages_name_exist():
    there = files_below("src", "tests", "benchmarks", "examples", "website")
    gone = {name_of(page): strays(page.read_text(), there) for page in PAGES}
    assert not {page: names for page, names in gone.items() if names}, "modules that are not there"


def test_modules_that_docstrings_name_exist():
    there = files_below("src")
    gone = {name_of(path): strays(docstrings(path), there, name_of(path.parent)) for path in SOURCES}
    gone = {path: names for path, names in gone.items() if names}
    assert not gone, "modules that are not there, or whose folder is left out"


def test_a_name_that_is_gone_is_seen():
    text = "see engine/scan.py, grid.py --ids.py--> `src/rangecast/x/<name>.py`, never old/scan.py or few.py."
    there = {f"src/rangecast/{name}.py" for name in ("engine/scan", "engine/grid", "model/ids", "errors")}
    assert strays(text, there) == ["few.py", "old/scan.py"]
    assert strays(text, there, "src/rangecast/engine") == ["few.py", "ids.py", "old/scan.py"]
    assert strays("errors.py", there, "src/rangecast/engine") == []
