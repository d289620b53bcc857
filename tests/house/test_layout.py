"""The shape of the code base: which way imports point, and what modules may be called.

The imports are read from the source, also those inside functions, so nothing has to be installed or run.
"""

import ast
import re
import tomllib
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

from source_trees import KERNEL_FILE, nodes_of, tree_of

pytestmark = pytest.mark.without_kernels

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

# Outermost first, as docs/architecture.md draws them. A module imports from its own layer or a later one,
# never from an earlier one. There is no default: what stands at the top and in no layer fails.
LAYERS = (
    ("__main__", "cli"),
    ("broker",),
    ("client",),
    ("spark",),
    ("kafka", "delta"),
    ("papers",),
    ("workloads",),
    ("routing", "tracking"),
    ("covering",),
    ("store",),
    ("engine",),
    ("loading",),
    ("model",),
    ("language",),
    ("types",),
    ("zorder",),
    ("durable",),
    ("memory",),
    ("simd",),
    ("errors",),
)
DEPTH = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
# What `import rangecast` does not load.
OUTERMOST = ("__main__", "cli", "broker", "client", "spark", "kafka", "delta")

# What a module of kernels may import from outside; that with their decorators also chooses the cache's
# folder.
KERNEL_IMPORTS = {"numpy", "numba", "llvmlite", "ctypes", "__future__", "typing", "collections"}
COMPILER = "rangecast.simd.compiler"
COMPILER_IMPORTS = KERNEL_IMPORTS | {
    "atexit",
    "hashlib",
    "importlib",
    "os",
    "re",
    "shutil",
    "stat",
    "tempfile",
    "threading",
    "time",
}
VAGUE_NAMES = {"utils", "util", "common", "core", "helpers", "helper", "misc"}


def module_name(path: Path) -> str:
    """`src/rangecast/engine/scan.py` is `rangecast.engine.scan`; a package is named without `__init__`."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SRC.rglob("*.py"))}


def imports_of(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """Every module that `path` imports, in full; `from package import module` names the module."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                found.add(inner if inner in modules else origin)
    return found


@cache
def imports() -> dict[str, set[str]]:
    """What every module imports. Read when first asked for: every worker process loads this file."""
    return {name: imports_of(name, path, MODULES) for name, path in MODULES.items()}


def layer_of(name: str) -> int:
    """How deep the layer of a module lies; KeyError for one that no layer lists."""
    return DEPTH[name.split(".")[1]]


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_every_module_stands_in_a_layer():
    homeless = [name for name in MODULES if name != "rangecast" and name.split(".")[1] not in DEPTH]
    assert not homeless, "these stand in no layer: say in LAYERS which they belong to"


def test_every_layer_is_there():
    assert set(DEPTH) == {name.split(".")[1] for name in MODULES if name != "rangecast"}


def test_imports_point_one_way():
    wrong = []
    for name, imported in imports().items():
        if name == "rangecast":
            continue
        own = {i for i in imported if inside(i, "rangecast")}
        # The public face imports what users get, so only what stands above all of that may import it.
        if "rangecast" in own and name.split(".")[1] not in OUTERMOST:
            wrong.append(f"{name} must import the module that defines a name, not the package")
        upward = {i for i in own - {"rangecast"} if layer_of(i) < layer_of(name)}
        wrong += [f"{name} imports {i} from a layer above its own" for i in sorted(upward)]
    assert not wrong


def test_public_face_leaves_the_outermost_layer_alone():
    own = {i for i in imports()["rangecast"] if inside(i, "rangecast")} - {"rangecast"}
    outermost = {i for i in own if i.split(".")[1] in OUTERMOST}
    assert not outermost, f"`import rangecast` would load {sorted(outermost)}"


def is_kernels(name: str) -> bool:
    """Whether a module holds kernels: its file's name says so, or it is in simd/."""
    return inside(name, "rangecast.simd") or bool(KERNEL_FILE.fullmatch(name.rpartition(".")[2] + ".py"))


def test_kernels_import_arrays_and_compiler_only():
    wrong = []
    for name, imported in imports().items():
        if is_kernels(name):
            allowed = COMPILER_IMPORTS if name == COMPILER else KERNEL_IMPORTS
            outside = {i for i in imported if not is_kernels(i)}
            wrong += [f"{name} imports {i}" for i in outside if i.split(".")[0] not in allowed]
    assert not wrong, "kernels may import numpy, numba and other kernels"


def test_loops_are_compiled_in_modules_of_kernels_only():
    """The cache's folder is named by a hash of these; a kernel in another file would be served stale."""
    decorators = {"kernel", "inlined_kernel", "allocating_kernel"}
    elsewhere = [
        name
        for name, path in MODULES.items()
        if not is_kernels(name)
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.FunctionDef) and decorators & {ast.unparse(d) for d in node.decorator_list}
    ]
    assert not elsewhere


@pytest.mark.parametrize("file", ["src/rangecast/simd/compiler.py", "tests/conftest.py"])
def test_one_rule_says_which_files_hold_kernels(file):
    assert f're.compile(r"{KERNEL_FILE.pattern}")' in (ROOT / file).read_text()


def test_only_the_spark_package_imports_pyspark():
    outside = {name: i for name, i in imports().items() if not inside(name, "rangecast.spark")}
    assert not [name for name, imported in outside.items() if any(inside(i, "pyspark") for i in imported)]


def test_source_imports_no_tests():
    beside = {path.stem for path in (ROOT / "tests").glob("*.py")} | {"tests", "benchmarks"}
    assert not [name for name, own in imports().items() if {i.split(".")[0] for i in own} & beside]


def test_modules_say_what_they_hold():
    vague = [name for name in MODULES if VAGUE_NAMES & set(name.split("."))]
    assert not vague, "name the concept"
    silent = [name for name, path in MODULES.items() if not ast.get_docstring(tree_of(path))]
    assert not silent, "these must open with prose"


def test_the_reader_sees_every_form_of_import(tmp_path):
    source = tmp_path / "index.py"
    source.write_text(
        "import numpy as np\nfrom rangecast.engine import grid, nothing\nfrom ...kernels import vci\n"
        "def f():\n    import pyspark.sql\n    from . import lists\n"
    )
    modules = dict.fromkeys(["rangecast.engine.grid", "rangecast.kernels.vci", "rangecast.papers.vci.lists"])
    assert imports_of("rangecast.papers.vci.index", source, modules) == {
        "numpy",
        "rangecast.engine",
        "rangecast.engine.grid",
        "rangecast.kernels.vci",
        "pyspark.sql",
        "rangecast.papers.vci.lists",
    }


def test_readme_agrees_with_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = (ROOT / "README.md").read_text()
    minimum = project["requires-python"].removeprefix(">=")
    assert set(re.findall(r"Python (3\.\d+)", readme)) == {minimum}
    named = {extra for names in re.findall(r"rangecast\[([\w,]+)\]", readme) for extra in names.split(",")}
    assert named == set(project["optional-dependencies"])
    assert project["license"] in readme
    assert len(readme.splitlines()) < 150


def test_makefile_installs_every_extra_under_the_constraints():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = re.search(r"-e '\.\[([\w,]+)\]' -c constraints\.txt", (ROOT / "Makefile").read_text())
    assert installed
    assert set(installed[1].split(",")) == set(extras)


def test_constraints_are_plain_pins():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line), f"not a plain name==version: {line!r}"
