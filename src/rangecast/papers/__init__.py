"""The papers' experiments, by name: `rangecast experiment NAME`.

Each module has `run(report)`, which measures, writes its tables and plots through the report
(report.py) and states each of the paper's claims with what was seen. A new one joins with one line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from rangecast.errors import OptionError
from rangecast.papers.report import ExperimentReport

EXPERIMENTS: dict[str, str] = {
    "ubtree": "rangecast.papers.ubtree.experiment",
    "covering": "rangecast.papers.covering.experiment",
    "vci": "rangecast.papers.vci.experiment",
    "vcr": "rangecast.papers.vcr.experiment",
    "batch": "rangecast.papers.rtree.experiment",
}


def experiment(name: str) -> Callable[[ExperimentReport], None]:
    """The `run` function of an experiment."""
    if name not in EXPERIMENTS:
        raise OptionError(f"no experiment is called {name!r}; there are {', '.join(sorted(EXPERIMENTS))}")
    run: Callable[[ExperimentReport], None] = importlib.import_module(EXPERIMENTS[name]).run
    return run


__all__ = ["EXPERIMENTS", "ExperimentReport", "experiment"]
