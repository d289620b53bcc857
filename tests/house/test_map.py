"""The map in docs/architecture.md against the tree, and every module that pages and docstrings name.

The map is the table under "The map": the first cell of a row is a folder below src/rangecast, or a module
that is in none. Each row says what its folder is useful for, what it is not useful for, and what it may
touch: the packages that it imports beside numpy and PyArrow, and whatever of the standard library reaches
out of this process, are named there, and nothing that it does not import.
"""

import ast
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from source_trees import nodes_of, tree_of

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rangecast"
PAGE = ROOT / "docs" / "architecture.md"

# A path of a module; `<name>.py` in a recipe is none.
NAMED = re.compile(r"(?<![\w/.*>])[\w.][\w./-]*\.py\b")
# What any folder may import; kernels need the two compilers.
EVERYWHERE = {"numpy", "pyarrow", "numba", "llvmlite"}
# What of the standard library reaches out of this process.
OUTWARD = {
    "asyncio", "ctypes", "fcntl", "http", "mmap", "multiprocessing", "selectors", "signal", "socket", "ssl",
    "subprocess", "urllib",
}  # fmt: skip


class MapRow(NamedTuple):
    """A row of the map."""

    path: str
    useful: str
    not_useful: str
    touches: str


def folder_of(path: Path) -> str:
    """The row of a module: its folder, or the module itself where it is in none."""
    inner = path.relative_to(PACKAGE)
    return inner.name if len(inner.parts) == 1 else f"{inner.parent}/"


def tree() -> set[str]:
    """Every folder below src/rangecast, and every module that is in none."""
    return {folder_of(path) for path in PACKAGE.rglob("*.py")}


def map_of(page: str) -> list[MapRow]:
    """The rows of the map."""
    section = page.partition("\n## The map\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert all(len(row) == len(MapRow._fields) for row in cells), "each row has four cells"
    return [MapRow(row[0].strip("`"), *row[1:]) for row in cells]


def faults_of(rows: list[MapRow], there: set[str]) -> list[str]:
    """What is wrong with a map, beside a tree."""
    named = [row.path for row in rows]
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


def imported_by(path: Path) -> set[str]:
    """The packages that a module imports, also those that it imports by a text."""
    names = []
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            names += [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    tops = {name.split(".")[0] for name in names}
    standard = {top for top in tops if top in sys.stdlib_module_names and top not in OUTWARD}
    return tops - standard - EVERYWHERE - {"rangecast", ""}


ROWS = map_of(PAGE.read_text())


def test_the_map_is_the_tree():
    assert not faults_of(ROWS, tree())


def test_the_map_stands_in_the_order_of_the_layers():
    tops = [row.path.split("/")[0].removesuffix(".py") for row in ROWS]
    assert list(dict.fromkeys(top for top in tops if top != "__init__")) == layers()
    # a layer stands in one piece, its folder first
    paths = [row.path for row in ROWS]
    for path in paths:
        folder = path.rstrip("/").rpartition("/")[0]
        assert not folder or paths.index(f"{folder}/") < paths.index(path), f"{path} stands before its folder"
    assert sum(a != b for a, b in pairwise(tops)) == len(set(tops)) - 1


def test_every_row_says_what_its_folder_is_for_and_what_it_may_touch():
    assert not [row.path for row in ROWS if not all(row)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.path)
def test_what_a_folder_may_touch_is_what_it_imports(row):
    imported = {
        name for path in PACKAGE.rglob("*.py") if folder_of(path) == row.path for name in imported_by(path)
    }
    named = {name.replace("-", "_") for name in re.findall(r"`([\w-]+)`", row.touches)}
    assert named == imported


def test_a_wrong_map_is_seen():
    table = "| `a/` | it | no | that |\n| `a/b/` | it | no | that |\n"
    rows = map_of(f"x\n## The map\n\n{table}\n## More\n| `c/` | no | no | no |\n")
    assert [row.path for row in rows] == ["a/", "a/b/"]
    assert faults_of(rows, {"a/", "a/b/"}) == []
    assert faults_of(rows, {"a/", "a/d/"}) == [
        "a/d/ is not in the map",
        "a/b/ is in the map and not in the tree",
    ]
    assert faults_of([*rows, rows[0]], {"a/", "a/b/"}) == ["a/ is in the map twice"]


def files_below(*folders: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")}


def docstrings(path: Path) -> str:
    """All docstrings of a module, of its classes and of its functions."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for node in nodes_of(tree_of(path)) if isinstance(node, kinds)]
    return "\n".join(text for node in nodes if (text := ast.get_docstring(node)))


def comments(path: Path) -> str:
    """The lines of a module that are comments."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return "\n".join(line for line in lines if line.startswith("#"))


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


def test_modules_that_docstrings_and_comments_name_exist():
    there = files_below("src", "tests")
    gone = {
        name_of(path): strays(docstrings(path) + "\n" + comments(path), there, name_of(path.parent))
        for path in SOURCES
    }
    gone = {path: names for path, names in gone.items() if names}
    assert not gone, "modules that are not there, or whose folder is left out"


def test_a_name_that_is_gone_is_seen():
    text = "see engine/scan.py, grid.py --ids.py--> `src/rangecast/x/<name>.py`, never old/scan.py or few.py."
    there = {f"src/rangecast/{name}.py" for name in ("engine/scan", "engine/grid", "model/ids", "errors")}
    assert strays(text, there) == ["few.py", "old/scan.py"]
    assert strays(text, there, "src/rangecast/engine") == ["few.py", "ids.py", "old/scan.py"]
    assert strays("errors.py", there, "src/rangecast/engine") == []
