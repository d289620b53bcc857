"""`islist`: the interval skip list, a skip list of end points whose edges carry the intervals over them.

Source: Hanson and Johnson, "Selection predicate indexing for active databases using interval skip
lists" (Information Systems 21(3), 1996); the peer with which Wu, Chen, Yu and Mei (2004, sec. 5) compare
their construct intervals. Nodes are the end points in ascending order, each of a random height. An
interval marks, from its low node to its high one, the highest edges that lie within it: a logarithmic
number. A value goes down the list as in any skip list and collects the markers of the edge that it
lies on, at each level. Intervals come and go one by one.

    array       dtype   shape          meaning
    keys        int64   nodes          end point; node 0 is the head, with the smallest code
    owners      int32   nodes          how many intervals end there; of a free node, the next free one
    heights     int32   nodes          levels of the node
    edges       int32   nodes          its edge at level 0; the one at level i is i further
    targets     int32   n_edges        the node at which an edge ends, -1 for the tail
    edge_heads  int32   n_edges        the first marker of an edge, -1 for none
    free_edges  int32   LEVELS + 1     per height, freed edges of a node
    marks       int32   (capacity, 5)  box, edge, previous and next marker of the edge, next of the box
    firsts      int32   boxes          the first marker of a box
    state       int64   8              free and used nodes, edges and markers; the coins' state

Where we depart. Codes are whole numbers, so [low, high] is [low, high + 1) and an edge from key a to key
b stands for the codes a .. b - 1: a value lies on one edge of each level, and the second set of markers
that the paper keeps at nodes, for values that equal an end point, is not needed (an interval then marks
fewer places than the paper's; nothing of the search is lost). The smallest code, MISSING, is the
head's, and the tail stands beyond the largest, so open ends need no node. When a node comes or goes,
the intervals that mark an edge there are taken off and marked again by the same routine that marks a
new one; those that pass over it on a higher edge are left alone. The paper moves single markers
up and down instead, to the same result. A batch first sets all its nodes, then marks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.durable.arrays import count_bytes
from rangecast.engine import kernels as checks
from rangecast.engine.answers import Numbers, Rows
from rangecast.engine.boxes import Boxes, grown
from rangecast.engine.checks import flat, hold, listed, shaped
from rangecast.memory import check_numbered
from rangecast.papers.vci import kernels
from rangecast.papers.vci.in_place import Head, InPlaceIndex, grow_rows
from rangecast.papers.vci.kernels import SkipList
from rangecast.types.attributes import MISSING, Codes

_NODES = ("keys", "owners", "heights", "edges")
_EDGES = ("targets", "edge_heads")
_ADVICE = "the index 'direct' or 'vci' has none"


class _StoredSkipList(NamedTuple):
    """What a file holds."""

    head: Head
    laid_out: SkipList | None


class IslistIndex(InPlaceIndex):
    """An interval skip list on one attribute.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"))
    >>> index = rc.open_index("islist", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price between 10 and 20", 8: "price > 15"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 20}, {"price": 9}])).counts.tolist()
    [2, 0]
    """

    name = "islist"

    def _lay_out(self, boxes: Boxes, numbers: Numbers) -> None:
        levels = kernels.LEVELS
        state = np.array([-1, 1, levels, -1, 0, 0, 0, 2026], np.int64)
        self._skip = SkipList(
            keys=np.array([MISSING], np.int64),
            owners=np.ones(1, np.int32),
            heights=np.array([levels], np.int32),
            edges=np.zeros(1, np.int32),
            targets=np.full(levels, -1, np.int32),
            edge_heads=np.full(levels, -1, np.int32),
            free_edges=np.full(levels + 1, -1, np.int32),
            marks=np.empty((0, 5), np.int32),
            firsts=np.empty(0, np.int32),
            state=state,
        )

    def _enter(self, boxes: Boxes, numbers: Numbers) -> None:
        known = len(self._skip.firsts)
        if known < boxes.n:
            firsts = grown(self._skip.firsts, known, len(boxes.slots))
            firsts[known:] = -1
            self._skip = self._skip._replace(firsts=firsts)
        state, lows, highs = self._skip.state, boxes.lows[self._on], boxes.highs[self._on]
        pending = np.empty(self._entered, np.int64)
        state[kernels.PENDING] = 0
        path = np.empty(kernels.LEVELS, np.int64)
        done = 0
        while True:
            done = kernels.add_ends(numbers, done, lows, highs, self._skip, pending, path)
            if done == len(numbers):
                break
            nodes, edges = int(state[kernels.USED_NODES]), int(state[kernels.USED_EDGES])
            check_numbered(edges + 4 * kernels.LEVELS, "the edges of 'islist'", _ADVICE)
            self._skip = self._skip._replace(
                **{name: grown(getattr(self._skip, name), nodes, nodes + 64) for name in _NODES},
                **{
                    name: grown(getattr(self._skip, name), edges, edges + 4 * kernels.LEVELS)
                    for name in _EDGES
                },
            )
        self._mark(boxes, np.concatenate([pending[: state[kernels.PENDING]], numbers]))

    def _leave(self, boxes: Boxes, numbers: Numbers) -> None:
        state, lows, highs = self._skip.state, boxes.lows[self._on], boxes.highs[self._on]
        pending = np.empty(self._entered, np.int64)
        state[kernels.PENDING] = 0
        kernels.drop_boxes(numbers, lows, highs, self._skip, pending, np.empty(kernels.LEVELS, np.int64))
        self._mark(boxes, pending[: state[kernels.PENDING]])

    def _mark(self, boxes: Boxes, numbers: Numbers) -> None:
        lows, highs = boxes.lows[self._on], boxes.highs[self._on]
        path = np.empty(kernels.LEVELS, np.int64)
        done = 0
        while True:
            done = kernels.mark_boxes(numbers, done, lows, highs, self._skip, path)
            if done == len(numbers):
                return
            used = int(self._skip.state[kernels.USED_MARKERS])
            # by what the boxes so far have needed, and never less than half more
            each = -(-used // done) if done else 16
            room = max(used + each * (len(numbers) - done), used * 3 // 2, 64)
            check_numbered(room, "the markers of 'islist'", _ADVICE)
            marks = np.empty((room, 5), np.int32)
            marks[:used] = self._skip.marks[:used]
            self._skip = self._skip._replace(marks=marks)

    def _emit(self, codes: Codes, boxes: Boxes) -> Rows:
        on, top = self._on, self._top
        return grow_rows(
            codes.shape[1],
            lambda event, offsets, out: kernels.stab(
                codes, on, event, top, self._skip, self._checked, boxes.arrays, self._plain, offsets, out
            ),
        )

    def count_lists(self, codes: Codes) -> int:
        """How many edges with markers a batch meets, without reading the markers."""
        return int(kernels.count_marked(codes[self._on], self._top, self._skip))

    @property
    def _top(self) -> int:
        """How many levels a search must look at. The head's edges above all nodes lead to the tail, and
        are marked by the intervals that bound nothing."""
        head = slice(0, kernels.LEVELS)
        used = np.flatnonzero((self._skip.targets[head] >= 0) | (self._skip.edge_heads[head] >= 0))
        return int(used[-1]) + 1 if len(used) else 0

    def _structure(self) -> _StoredSkipList:
        return _StoredSkipList(self._head(), None if self._on < 0 else self._used())

    def _used(self) -> SkipList:
        """The arrays without spare room."""
        skip, state = self._skip, self._skip.state
        nodes, edges = int(state[kernels.USED_NODES]), int(state[kernels.USED_EDGES])
        return skip._replace(
            **{name: getattr(skip, name)[:nodes] for name in _NODES},
            **{name: getattr(skip, name)[:edges] for name in _EDGES},
            marks=skip.marks[: int(state[kernels.USED_MARKERS])],
        )

    def _take_laid_out(self, laid_out: SkipList) -> None:
        self._skip = laid_out

    def _check_laid_out(self, n_boxes: int) -> None:
        skip, levels = self._skip, kernels.LEVELS
        flat(skip, marks=2)
        n_nodes, n_edges, n_marks = len(skip.keys), len(skip.targets), len(skip.marks)
        for name in _NODES:
            shaped(f"{name} of the list", getattr(skip, name), n_nodes)
        shaped("heads of edges", skip.edge_heads, n_edges)
        shaped("markers", skip.marks, n_marks, 5)
        shaped("states of the list", skip.state, 8)
        hold("that a list has a head", n_nodes and skip.heights[0] == levels and skip.edges[0] == 0)
        # free nodes have no edges
        hold("that edges lead up and keep their level", checks.check_edges(skip, levels))
        listed("markers", skip.marks, 3, n_boxes, skip.edge_heads)

    def _structure_stats(self) -> dict[str, Any]:
        if self._on < 0:
            return {"bytes": 0}
        state = self._skip.state
        return {
            "bytes": count_bytes(self._used()),
            "nodes": int(state[kernels.USED_NODES]),
            "levels": self._top,
            "markers": int(state[kernels.USED_MARKERS] - state[kernels.FREE_MARKERS]),
        }
