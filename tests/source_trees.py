"""Syntax trees of source files, each parsed once per process: several rules of the house read all of them."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path)


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a tree, in the order of `ast.walk`."""
    return tuple(ast.walk(tree))
