"""Named, seeded workloads: subscriptions and events with one trait each.

The command line, the tests, the experiments and the benchmarks all draw from here, so that a name
means the same data everywhere. The papers' generators are in papers.py, those of applications in
applications.py, and those made to hurt in adversarial.py; registry.py says what a workload is.

>>> from rangecast import workloads
>>> w = workloads.workload("intervals", n_subscriptions=1_000, n_events=10)
>>> w.n_subscriptions, w.n_events, w.schema.names
(1000, 10, ('value',))
"""

from rangecast.workloads import adversarial, applications, papers
from rangecast.workloads.registry import SEED, Workload, describe, markdown_table, names, workload

__all__ = [
    "SEED",
    "Workload",
    "adversarial",
    "applications",
    "describe",
    "markdown_table",
    "names",
    "papers",
    "workload",
]
