"""How much work each event of a batch will be: what scheduling orders it by.

A workload is a count of what an index will look at, in its own unit: nodes at a level of a tree, entries
of lists. Workloads are compared within one batch of one index and mean nothing beyond it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Estimate:
    """The workload of each event of a batch (`Index.estimate`), and the level at which a tree was asked.

    >>> estimate = Estimate(np.array([5, 1, 5, 2]))
    >>> len(estimate), estimate.order.tolist()
    (4, [1, 3, 0, 2])
    """

    def __init__(self, workloads: npt.NDArray[np.int64], level: int | None = None) -> None:
        self.workloads = workloads
        self.level = level

    def __len__(self) -> int:
        return len(self.workloads)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} events, {int(self.workloads.sum()):,} in all)"

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The rows of the events, the least workload first; those alike keep their order."""
        return np.argsort(self.workloads, kind="stable")
