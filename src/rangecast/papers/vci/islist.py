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

from typing import Any

import numpy as np

from rangecast.array_file import Arrays
from rangecast.engine.answers import Rows
from rangecast.engine.catalog import Boxes, grown
from rangecast.kernels.papers.vci import islist as kernels
from rangecast.papers.vci.in_place import InPlaceIndex, Numbers, grow_rows
from rangecast.types.attributes import MISSING, Codes

_NODES = ("keys", "owners", "heights", "edges")
_EDGES = ("targets", "edge_heads")
_STORED = (*_NODES, *_EDGES, "free_edges", "marks", "firsts", "state")


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
        self._arrays: Arrays = {
            "keys": np.array([MISSING], np.int64),
            "owners": np.ones(1, np.int32),
            "heights": np.array([levels], np.int32),
            "edges": np.zeros(1, np.int32),
            "targets": np.full(levels, -1, np.int32),
            "edge_heads": np.full(levels, -1, np.int32),
            "free_edges": np.full(levels + 1, -1, np.int32),
            "marks": np.empty((0, 5), np.int32),
            "firsts": np.empty(0, np.int32),
            "state": state,
        }

    def _enter(self, boxes: Boxes, numbers: Numbers) -> None:
        a = self._arrays
        known = len(a["firsts"])
        if known < boxes.n:
            a["firsts"] = grown(a["firsts"], known, len(boxes.slots))
            a["firsts"][known:] = -1
        state, lows, highs = a["state"], boxes.lows[self._on], boxes.highs[self._on]
        pending = np.empty(self._entered, np.int64)
        state[kernels.PENDING] = 0
        path = np.empty(kernels.LEVELS, np.int64)
        done = 0
        while True:
            done = kernels.add_ends(
                numbers, done, lows, highs, a["keys"], a["owners"], a["heights"], a["edges"], a["targets"],
                a["edge_heads"], a["free_edges"], a["firsts"], a["marks"], state, pending, path,
            )  # fmt: skip
            if done == len(numbers):
                break
            used = int(state[kernels.USED_NODES])
            for name in _NODES:
                a[name] = grown(a[name], used, used + 64)
            used = int(state[kernels.USED_EDGES])
            for name in _EDGES:
                a[name] = grown(a[name], used, used + 4 * kernels.LEVELS)
        self._mark(boxes, np.concatenate([pending[: state[kernels.PENDING]], numbers]))

    def _leave(self, boxes: Boxes, numbers: Numbers) -> None:
        a = self._arrays
        state = a["state"]
        pending = np.empty(self._entered, np.int64)
        state[kernels.PENDING] = 0
        kernels.drop_boxes(
            numbers, boxes.lows[self._on], boxes.highs[self._on], a["keys"], a["owners"], a["heights"],
            a["edges"], a["targets"], a["edge_heads"], a["free_edges"], a["firsts"], a["marks"], state,
            pending, np.empty(kernels.LEVELS, np.int64),
        )  # fmt: skip
        self._mark(boxes, pending[: state[kernels.PENDING]])

    def _mark(self, boxes: Boxes, numbers: Numbers) -> None:
        a = self._arrays
        path = np.empty(kernels.LEVELS, np.int64)
        done = 0
        while True:
            done = kernels.mark_boxes(
                numbers, done, boxes.lows[self._on], boxes.highs[self._on], a["keys"], a["heights"],
                a["edges"], a["targets"], a["edge_heads"], a["firsts"], a["marks"], a["state"], path,
            )  # fmt: skip
            if done == len(numbers):
                return
            used = int(a["state"][kernels.USED_MARKERS])
            # by what the boxes so far have needed, and never less than half more
            each = -(-used // done) if done else 16
            room = max(used + each * (len(numbers) - done), used * 3 // 2, 64)
            marks = np.empty((room, 5), np.int32)
            marks[:used] = a["marks"][:used]
            a["marks"] = marks

    def _emit(self, codes: Codes, boxes: Boxes) -> Rows:
        a = self._arrays
        return grow_rows(
            codes.shape[1],
            lambda event, offsets, out: kernels.stab(
                codes, self._on, event, self._top, a["keys"], a["edges"], a["targets"], a["edge_heads"],
                a["marks"], self._checked, boxes.lows, boxes.highs, boxes.slots, self._plain, offsets, out,
            ),
        )  # fmt: skip

    def count_lists(self, codes: Codes) -> int:
        """How many edges with markers a batch meets, without reading the markers."""
        a = self._arrays
        total: int = kernels.count_marked(
            codes[self._on], self._top, a["keys"], a["edges"], a["targets"], a["edge_heads"]
        )
        return total

    @property
    def _top(self) -> int:
        """How many levels a search must look at. The head's edges above all nodes lead to the tail, and
        are marked by the intervals that bound nothing."""
        a = self._arrays
        head = slice(0, kernels.LEVELS)
        used = np.flatnonzero((a["targets"][head] >= 0) | (a["edge_heads"][head] >= 0))
        return int(used[-1]) + 1 if len(used) else 0

    def _structure(self) -> tuple[dict[str, Any], Arrays]:
        return {}, self._used()

    def _used(self) -> Arrays:
        a, state = self._arrays, self._arrays["state"]
        nodes, edges = int(state[kernels.USED_NODES]), int(state[kernels.USED_EDGES])
        return {
            **{name: a[name][:nodes] for name in _NODES},
            **{name: a[name][:edges] for name in _EDGES},
            "free_edges": a["free_edges"],
            "marks": a["marks"][: int(state[kernels.USED_MARKERS])],
            "firsts": a["firsts"],
            "state": state,
        }

    def _take_structure(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self._arrays = {name: arrays[name] for name in _STORED}

    def _structure_stats(self) -> dict[str, Any]:
        if self._on < 0:
            return {"bytes": 0}
        state = self._arrays["state"]
        return {
            "bytes": sum(array.nbytes for array in self._used().values()),
            "nodes": int(state[kernels.USED_NODES]),
            "levels": self._top,
            "markers": int(state[kernels.USED_MARKERS] - state[kernels.FREE_MARKERS]),
        }
