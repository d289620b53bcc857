"""What to look at when the house is tidied: `make lint` prints it, and nothing here fails.

    python tests/house/report.py           totals, and how many of each
    python tests/house/report.py --all     and their names

A long module or function is no fault by itself: it may hold one structure. A short module with one user is
often a part of that user.
"""

import ast
import sys
import tokenize
from collections import Counter
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).resolve().parents[2] / "src"
LONG_MODULE, LONG_FUNCTION, SHORT_MODULE = 900, 90, 120


class Finding(NamedTuple):
    """A kind of place to look at, and where."""

    title: str
    places: list[str]


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def users_of(trees: dict[str, ast.Module], paths: dict[str, Path]) -> Counter[str]:
    """How many modules import each module."""
    users: Counter[str] = Counter()
    for name, tree in trees.items():
        package = name if paths[name].name == "__init__.py" else name.rpartition(".")[0]
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = resolve_name("." * node.level + (node.module or ""), package)
                inner = {f"{origin}.{alias.name}" for alias in node.names}
                imported |= inner & set(trees) or {origin}
        users.update((imported & set(trees)) - {name})
    return users


def comments_in(path: Path) -> int:
    """The number of comments that are not for a tool."""
    with tokenize.open(path) as file:
        tokens = tokenize.generate_tokens(file.readline)
        texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not text.startswith(("# type:", "# noqa", "# fmt:")) for text in texts)


def findings() -> tuple[str, list[Finding]]:
    """The totals, and each kind of place."""
    paths = {module_name(path): path for path in sorted(SRC.rglob("*.py"))}
    sources = {name: path.read_text() for name, path in paths.items()}
    trees = {name: ast.parse(source) for name, source in sources.items()}
    lines = {name: len(source.splitlines()) for name, source in sources.items()}
    users = users_of(trees, paths)
    total, comments = sum(lines.values()), sum(map(comments_in, paths.values()))
    kernels = [name for name in paths if "kernels" in name.rpartition(".")[2] or ".simd." in name]
    kernel_lines = sum(lines[name] for name in kernels)
    kernel_comments = sum(comments_in(paths[name]) for name in kernels)
    each, in_kernels = 100 * comments / total, 100 * kernel_comments / kernel_lines
    head = (
        f"{len(paths)} modules, {total:,} lines, {total / len(paths):.0f} per module; "
        f"{each:.1f} comments per 100 lines, {in_kernels:.1f} in kernels"
    )
    functions = [
        (node.end_lineno - node.lineno + 1, f"{name}.{node.name}")
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    longest = sorted(((n, name) for name, n in lines.items() if n > LONG_MODULE), reverse=True)
    return head, [
        Finding(f"modules over {LONG_MODULE} lines", [f"{name} ({n:,})" for n, name in longest]),
        Finding(
            f"functions over {LONG_FUNCTION} lines",
            [f"{name} ({n})" for n, name in sorted(functions, reverse=True) if n > LONG_FUNCTION],
        ),
        Finding(
            f"modules with one user and fewer than {SHORT_MODULE} lines",
            [
                f"{name} ({lines[name]})"
                for name, path in paths.items()
                if users[name] == 1 and lines[name] < SHORT_MODULE and path.name != "__init__.py"
            ],
        ),
    ]


def main() -> None:
    head, kinds = findings()
    print(head)
    for kind in kinds:
        print(f"{len(kind.places):4} {kind.title}")
        if "--all" in sys.argv:
            print("".join(f"       {place}\n" for place in kind.places), end="")


if __name__ == "__main__":
    main()
