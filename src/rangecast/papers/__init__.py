"""The papers' experiments, by name: `rangecast experiment NAME`.

Each module has `run(report)`, which measures, writes its tables and plots through the report
(report.py) and states each of the paper's claims with what was seen. A new one joins with one line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from rangecast.errors import OptionError
from rangecast.papers.report import ExperimentReport, hash_code

EXPERIMENTS: dict[str, tuple[str, ...]] = {
    "ubtree": ("rangecast.papers.ubtree.experiment",),
    "covering": ("rangecast.papers.covering.experiment",),
    "vci": ("rangecast.papers.vci.experiment",),
    "vcr": ("rangecast.papers.vcr.experiment",),
    "batch": ("rangecast.papers.rtree.experiment",),
    "seeds": (
        "rangecast.papers.claims",
        *(f"rangecast.papers.{name}.experiment" for name in ("vci", "vcr", "ubtree", "rtree", "covering")),
    ),
}
"""The module whose `run` is called, and others that its page is made by."""

TITLES: dict[str, str] = {
    "ubtree": "The UB-tree with dimension transform (Wang, Zhang, Kitsuregawa 2004)",
    "covering": "Approximate search for covers along the Z curve (Shen, Tirthapura 2012)",
    "vci": "Virtual construct intervals beside interval skip lists (Wu, Chen, Yu, Mei 2004)",
    "vcr": "Virtual construct rectangles beside R-trees (Wu, Chen, Yu 2004)",
    "batch": "Batches on an R*-tree, short jobs first (Wang, Zhang, Kitsuregawa 2004)",
    "seeds": "The claims of all five, each on several seeds",
}
"""What `rangecast experiment --list` says of each."""


def experiment(name: str) -> Callable[[ExperimentReport], None]:
    """The `run` function of an experiment."""
    run: Callable[[ExperimentReport], None] = importlib.import_module(_modules(name)[0]).run
    return run


def code_of(name: str) -> str:
    """The hash of the code that an experiment's page is made by."""
    files = [getattr(importlib.import_module(module), "__file__", None) for module in _modules(name)]
    return hash_code([Path(file) for file in files if file])


def _modules(name: str) -> tuple[str, ...]:
    if name not in EXPERIMENTS:
        raise OptionError(f"no experiment is called {name!r}; there are {', '.join(sorted(EXPERIMENTS))}")
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "TITLES", "ExperimentReport", "code_of", "experiment"]
