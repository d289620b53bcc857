"""`counting`: find the satisfied predicates of each attribute, count them per subscription.

Source: the counting algorithm (Yan and Garcia-Molina, 1999), as Wang, Zhang and Kitsuregawa (2004, sec.
5) measure the UB-tree beside it: one index of one dimension per attribute says which predicates an
event satisfies; each adds one to its box's counter, and a box is a match when its counter reaches the
number of its predicates. An attribute that a box does not bound has no predicate and costs nothing.

    array          dtype    shape          meaning
    used           int64    k              the attributes that some box bounds
    point_starts   int64    k + 1          the points of used attribute k are point_starts[k] ..
    points         int64    n_points       distinct end points of its predicates, ascending
    node_starts    int64    n_points + 1   the predicates of each point as a node of the tree
    low_keys       int64    n_predicates   lows, ascending within a node
    low_boxes      int32    n_predicates   their boxes
    high_keys      int64    n_predicates   highs, descending within a node
    high_boxes     int32    n_predicates   their boxes
    needed         uint8    n              predicates of each box (16 or 32 bits for more than 255 attributes)
    always         int32    any            boxes without a predicate
    slots          int32    n              the slot of each box

The index of one attribute is a static interval tree (Edelsbrunner's, over ranks as in Kriegel, Pötke and
Seidl's relational interval tree, 2000): equality, half-intervals, intervals and "is missing" alike are
found exactly, in one slice of a list per level, so a candidate is never checked. The papers leave the
one-dimensional index open. Boxes are numbered within their part; live changes go through engine/parts.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.durable.arrays import Arrays
from rangecast.engine.boxes import Boxes
from rangecast.engine.checks import ascending, flat, hold, shaped, within
from rangecast.engine.parts import StaticIndex
from rangecast.engine.static_part import Part
from rangecast.kernels.papers.ubtree import counting as kernels
from rangecast.kernels.papers.ubtree.counting import IntervalTrees
from rangecast.memory import check_fits
from rangecast.papers.counted import CountedPart, hold_needed
from rangecast.types.attributes import LAST, MISSING, Codes

_OF_A_TREE = ("points", "node_starts", "low_keys", "low_boxes", "high_keys", "high_boxes")


@dataclass(eq=False)
class CountingPart(CountedPart):
    """One interval tree per attribute over some boxes."""

    trees: IntervalTrees

    kernel = staticmethod(kernels.stab)

    @property
    def arrays(self) -> IntervalTrees:
        return self.trees

    def check(self, boxes: Boxes, n_slots: int) -> None:
        t = self.trees
        flat(t)
        n, n_predicates = len(t.slots), len(t.low_boxes)
        within("attributes of trees", t.used, boxes.n_attributes)
        ascending("points of trees", t.point_starts, len(t.points), len(t.used) + 1)
        ascending("nodes of trees", t.node_starts, n_predicates, len(t.points) + 1)
        for name in ("low_keys", "high_keys", "high_boxes"):
            shaped(f"{name} of trees", getattr(t, name), n_predicates)
        hold("that counts are whole numbers", t.needed.dtype.kind == "u")
        shaped("counts of trees", t.needed, n)
        within("slots of trees", t.slots, n_slots)
        within("boxes without predicates", t.always, n)
        for name, held in (("low_boxes", t.low_boxes), ("high_boxes", t.high_boxes)):
            within(f"{name} of trees", held, n)
            hold_needed(held, n, t.needed)

    def stats(self) -> dict[str, int]:
        return {
            "predicates": len(self.trees.low_boxes),
            "points": len(self.trees.points),
            "satisfied_predicates": self._satisfied,
        }


class CountingIndex(StaticIndex):
    """Counts satisfied predicates; see the module head.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"), rc.Int("volume"))
    >>> index = rc.open_index("counting", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price > 9 and volume = 5", 8: "price < 30"}))
    >>> index.match(rc.Events.from_rows(schema, [{"price": 10, "volume": 5}, {"price": 10}])).counts.tolist()
    [2, 1]
    """

    name = "counting"

    def _configure(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit

    def _build(self, boxes: Boxes, numbers: npt.NDArray[np.int64]) -> Part:
        d, n = len(self.schema), len(numbers)
        needed: npt.NDArray[Any] = np.zeros(n, np.min_scalar_type(d))
        for j in range(d):
            bounded = (boxes.lows[j, numbers] != MISSING) | (boxes.highs[j, numbers] != LAST)
            needed = needed + bounded.astype(needed.dtype)
        check_fits(
            24 * int(needed.sum(dtype=np.int64)) + 6 * n,
            self._memory_limit,
            f"'counting' of {n:,} boxes",
            "'scan' needs less",
        )
        used = []
        trees: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _OF_A_TREE}
        for j in range(d):
            lows, highs = boxes.lows[j, numbers], boxes.highs[j, numbers]
            own = np.flatnonzero((lows != MISSING) | (highs != LAST)).astype(np.int32)
            if len(own):
                used.append(j)
                for name, array in _interval_tree(lows[own], highs[own], own).items():
                    trees[name].append(array)
        sizes = [len(points) for points in trees["points"]]
        # each tree numbers its entries from 0: put them one after the other
        total = 0
        for k, starts in enumerate(trees["node_starts"]):
            trees["node_starts"][k] = starts[:-1] + total
            total += int(starts[-1])
        trees["node_starts"].append(np.array([total], np.int64))
        dtypes = {"low_boxes": np.int32, "high_boxes": np.int32}
        arrays: Arrays = {
            name: np.concatenate([np.empty(0, dtypes.get(name, np.int64)), *parts])
            for name, parts in trees.items()
        }
        return CountingPart(
            IntervalTrees(
                used=np.array(used, np.int64),
                point_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
                **arrays,
                needed=needed,
                always=np.flatnonzero(needed == 0).astype(np.int32),
                slots=boxes.slots[numbers],
            )
        )


def _interval_tree(lows: Codes, highs: Codes, boxes: npt.NDArray[np.int32]) -> Arrays:
    """The points and the two sorted lists of one attribute's predicates."""
    points = np.unique(np.concatenate([lows, highs]))
    nodes = np.empty(len(lows), np.int64)
    low_ranks = np.searchsorted(points, lows) + 1
    high_ranks = np.searchsorted(points, highs) + 1
    kernels.forks(low_ranks, high_ranks, nodes)
    by_low = np.lexsort((low_ranks, nodes))
    by_high = np.lexsort((-high_ranks, nodes))
    node_starts = np.searchsorted(nodes[by_low], np.arange(1, len(points) + 2))
    return {
        "points": points,
        "node_starts": node_starts.astype(np.int64),
        "low_keys": lows[by_low],
        "low_boxes": boxes[by_low],
        "high_keys": highs[by_high],
        "high_boxes": boxes[by_high],
    }
