"""The batch search of an R-tree: how much work each event of a batch will be, and where to go on.

Source: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based
on extended R-tree search algorithm with multiple inputs" (2004), sec. 3. It has two steps. The estimate
takes all events of a batch down the tree together, to a given level: each node on the way is read once,
with the list of events that meet it, and the number of nodes where an event ends is its workload. The
events are then searched one by one from those nodes, the least workload first, so that cheap events do
not wait for expensive ones (scheduling.py).

Where we depart:

- The paper recurses node by node with an intersect buffer per level; we go level by level, which reads
  the same nodes with the same lists and keeps one buffer for a whole level.
- `level` counts the steps down from the root, so 0 is the root alone, and height - 1 the leaves. The
  paper's pseudo-code numbers the root 1, so that its levels 0 and 1 are alike.
- Nodes that the estimate has passed are not searched again. So the work is that of an ordinary search,
  node for node, but for putting the lists of nodes in order (`Descent.visits` and `node_visits` say).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Estimate
from rangecast.kernels.papers.rtree import search as kernels
from rangecast.kernels.papers.rtree.search import ROOT, Tree
from rangecast.model import kernels as match_kernels
from rangecast.types.attributes import Codes


class Descent(Estimate):
    """The workload table of a batch: the nodes of one level at which each event's search goes on."""

    def __init__(
        self,
        firsts: npt.NDArray[np.int64],
        nodes: npt.NDArray[np.int32],
        level: int,
        visits: int,
        version: int,
    ) -> None:
        super().__init__(np.diff(firsts), level)
        self.firsts = firsts
        self.nodes = nodes
        self.visits = visits
        self.version = version


class _Frontier(NamedTuple):
    """Nodes of one level, with the events that meet each: the intersect buffers of the whole level."""

    nodes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    events: npt.NDArray[np.int32]

    def descended(self, tree: Tree, codes: Codes) -> _Frontier:
        """The frontier one level further down."""
        state = np.zeros(3, np.int64)
        n, width = len(self.nodes), tree.children.shape[1]
        nodes = np.empty(n * width, np.int32)
        offsets = np.empty(n * width + 1, np.int64)
        # what one node may give at most must fit, however few events go on
        widest = int(np.diff(self.offsets).max(initial=0)) * width
        events = np.empty(max(2 * len(self.events), widest), np.int32)
        while not kernels.descend(tree, codes, codes, *self, state, nodes, offsets, events):
            events = np.concatenate([events, np.empty_like(events)])
        k, m = state[1:]
        return _Frontier(nodes[:k], offsets[: k + 1], events[:m])


def descend(tree: Tree, codes: Codes, level: int, version: int) -> Descent:
    """The workload table of a batch at a level, which must be one of the tree's."""
    n = codes.shape[1]
    frontier = _Frontier(
        np.full(min(n, 1), tree.header[ROOT], np.int32),
        np.array([0, n] if n else [0]),
        np.arange(n, dtype=np.int32),
    )
    visits = 0
    for _ in range(level):
        visits += len(frontier.events)
        frontier = frontier.descended(tree, codes)
    spread = np.empty(len(frontier.events), np.int32)
    kernels.spread(frontier.nodes, frontier.offsets, spread)
    firsts = np.zeros(n + 1, np.int64)
    nodes = np.empty(len(spread), np.int32)
    match_kernels.group_pairs(frontier.events, spread, len(spread), firsts, nodes)
    return Descent(firsts, nodes, level, visits, version)
