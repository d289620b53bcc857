"""What a page was made by: every module that its figures ran through, by hash.

A figure depends on more than its experiment: on the structures and kernels that it times, on the contenders
beside them, and on what all of them run through. NAME-code.csv beside a page has these modules as they were
when the page was made:

    column   meaning
    module   its dotted name
    hash     of its syntax tree then: comments, docstrings and line breaks do not count
    since    "changed" or "gone" if it is no longer that; the page then says how many are

The modules are those that the experiment and the indexes it opens import, read from the source, as far as
they are in a layer that a search runs through (`MEASURED`): how a condition is parsed or a file is read is in
no figure. `mark_page` compares the list with the modules of today and writes what has changed onto the page.
A module that is marked may change again; the page says what is true until it is made again.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
"""The folder that holds the package."""
MEASURED = ("papers", "workloads", "routing", "covering", "engine", "model", "zorder", "simd")
COLUMNS = ("module", "hash", "since")
_MARK = re.compile(r"\nSince then \d+ of these \d+ modules[^\n]*\n")


def modules_of(starts: Iterable[str], source: Path = SOURCE) -> dict[str, str]:
    """The hashes of modules, and of all that they import from the layers that a search runs through."""
    hashes: dict[str, str] = {}
    todo = list(starts)
    while todo:
        name = todo.pop()
        path = _path_of(source, name)
        if path is None or name in hashes or name.split(".")[:2][-1] not in MEASURED:
            continue
        hashes[name] = hash_file(path)
        todo += _imports(source, name)
    return dict(sorted(hashes.items()))


def hash_all(modules: dict[str, str]) -> str:
    """A hash of hashes."""
    return hashlib.sha256("".join(f"{name}{own}" for name, own in modules.items()).encode()).hexdigest()[:12]


@cache
def hash_file(path: Path) -> str:
    """A short hash of what a source file does: comments, docstrings and line breaks do not change it.

    It is of the syntax tree, so another minor version of Python gives another hash.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [line for line in node.body if not _is_text(line)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def commit_of(source: Path = SOURCE) -> str:
    """The commit of a clone, with a + if files differ from it; "unknown" where there is no clone."""
    try:
        said = subprocess.run(
            ["git", "-C", str(source), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def write_modules(path: Path, modules: dict[str, str]) -> None:
    """Write the modules of a page that has just been made."""
    _write(path, [(name, own, "") for name, own in modules.items()])


def marks_of(path: Path, modules: dict[str, str]) -> dict[str, str]:
    """What has become of each module of a page's list: "", "changed" or "gone"."""
    return {
        name: "" if modules.get(name) == own else "changed" if name in modules else "gone"
        for name, own, _ in _read(path)
    }


def recorded_marks(path: Path) -> dict[str, str]:
    """What a page's list says has become of each module."""
    return {name: since for name, _, since in _read(path)}


def mark_page(page: Path, modules: dict[str, str]) -> int:
    """Say on a page how many of its modules have changed since, and in its list which; how many that are."""
    path = page.with_name(f"{page.stem}-code.csv")
    marks = marks_of(path, modules)
    _write(path, [(name, own, marks[name]) for name, own, _ in _read(path)])
    count = sum(map(bool, marks.values()))
    text = _MARK.sub("", page.read_text(encoding="utf-8"))
    if count:
        head, link, rest = text.partition(f"[{path.name}]({path.name})")
        sentence, end, rest = rest.partition("\n")
        text = (
            f"{head}{link}{sentence}{end}\nSince then {count} of these {len(marks)} modules have changed or "
            f"moved, so a run of today may give other figures.\n{rest}"
        )
    page.write_text(text, encoding="utf-8")
    return count


def _read(path: Path) -> list[tuple[str, str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return [(row["module"], row["hash"], row["since"]) for row in csv.DictReader(file)]


def _write(path: Path, rows: list[tuple[str, str, str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


@cache
def _path_of(source: Path, module: str) -> Path | None:
    path = source.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


@cache
def _imports(source: Path, module: str) -> tuple[str, ...]:
    path = _path_of(source, module)
    return () if path is None else tuple(_imported(source, module, path))


def _imported(source: Path, module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            )
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield name if _path_of(source, name) else base or ""
