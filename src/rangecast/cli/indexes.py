"""`rangecast indexes`: what `--index` takes."""

from __future__ import annotations

import inspect

from rangecast.cli.console import print_table
from rangecast.engine import REGISTRY, index_type


def indexes() -> None:
    """List the indexes.

    All give the same answer; they differ in speed and memory.

    \b
    Example:
      rangecast indexes
    """
    rows = []
    for name in REGISTRY:
        kind = index_type(name)
        summary = (inspect.getdoc(kind) or "").partition("\n")[0]
        rows.append([name, summary if kind.name == name else f"For now the same as {kind.name}."])
    print_table(["index", "what it is"], rows)
