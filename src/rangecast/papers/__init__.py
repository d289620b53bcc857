"""The papers' experiments, by name: `rangecast experiment NAME`.

Each module has `run(report)`, which measures, writes its tables and plots through the report (report.py) and
weighs its CLAIMS by what was measured. A new one joins with one line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from rangecast.engine import REGISTRY
from rangecast.errors import OptionError
from rangecast.papers.provenance import hash_all, modules_of
from rangecast.papers.report import ExperimentReport

_PAPER = "rangecast.papers.{}.experiment"
EXPERIMENTS: dict[str, tuple[str, ...]] = {
    "ubtree": (_PAPER.format("ubtree"), "ubtree", "counting", "scan", "bitmap", "auto"),
    "covering": (_PAPER.format("covering"),),
    "vci": (_PAPER.format("vci"), "vci", "direct", "islist"),
    "vcr": (_PAPER.format("vcr"), "vcr", "rtree"),
    "batch": (_PAPER.format("rtree"), "rtree", "scan"),
    "seeds": (
        "rangecast.papers.claims",
        *("ubtree", "counting", "scan", "bitmap", "auto", "vci", "direct", "islist", "vcr", "rtree"),
    ),
}
"""The module whose `run` is called, and the indexes that it opens by name."""

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


def made_by(name: str) -> dict[str, str]:
    """The hashes of the modules that an experiment's figures run through (provenance.py)."""
    module, *kinds = _modules(name)
    return modules_of([module, *(REGISTRY[kind].partition(":")[0] for kind in kinds)])


def code_of(name: str) -> str:
    """The hash of all of them."""
    return hash_all(made_by(name))


def _modules(name: str) -> tuple[str, ...]:
    if name not in EXPERIMENTS:
        raise OptionError(f"no experiment is called {name!r}; there are {', '.join(sorted(EXPERIMENTS))}")
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "TITLES", "ExperimentReport", "code_of", "experiment", "made_by"]
