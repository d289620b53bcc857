"""Named, seeded workloads: subscriptions and events with one trait each.

The command line, the tests, the experiments and the benchmarks all draw from here, so that a name
means the same data everywhere. The papers' generators are in papers.py, those of applications in
applications.py, objects that move in vehicles.py, those of many attributes in expressions.py, and those made
to hurt in adversarial.py; registry.py says what a workload is, and what one of many attributes has beside its
columns.

>>> from rangecast import workloads
>>> w = workloads.workload("intervals", n_subscriptions=1_000, n_events=10)
>>> w.n_subscriptions, w.n_events, w.schema.names
(1000, 10, ('value',))
"""

from rangecast.workloads import adversarial, applications, expressions, papers, vehicles
from rangecast.workloads.registry import SEED, Entries, Workload, describe, markdown_table, names, workload

__all__ = [
    "SEED",
    "Entries",
    "Workload",
    "adversarial",
    "applications",
    "describe",
    "expressions",
    "markdown_table",
    "names",
    "papers",
    "vehicles",
    "workload",
]
