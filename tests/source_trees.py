"""Syntax trees of source files, each parsed once per process: several rules of the house read all of them."""

import ast
import gc
import re
from functools import cache
from pathlib import Path

# The files of kernels, wherever they are; those of simd/ have other names.
KERNEL_FILE = re.compile(r"kernels\.py|kernels_\w+\.py|\w+_kernels\.py")


@cache
def tree_of(path: Path) -> ast.Module:
    # nothing of a tree is garbage, and looking for it takes most of the time
    looked = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(), path)
    finally:
        if looked:
            gc.enable()


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a tree, in the order of `ast.walk`."""
    return tuple(ast.walk(tree))
