"""`rtree`: a main-memory R*-tree over the boxes, and searching it for a batch of events at once.

Sources: Wang, Zhang and Kitsuregawa, "Adaptively improving average response time of pub/sub system based
on extended R-tree search algorithm with multiple inputs" (2004), for the batch search; Beckmann and
others (1990) for the R*-tree; Leutenegger and others (1997) for loading at once. A node has up to
`node_capacity` children (10, the paper's default), a leaf up to `leaf_capacity` boxes (20).

    array           dtype    shape              meaning
    header          int64    4                  root, nodes ever used, head and length of the free list
    lows, highs     int64    (n, d, width)      closed boxes of a node's entries, attribute by attribute
    children        int32    (n, width)         nodes below, or in a leaf box numbers of the catalog
    counts          int32    n                  entries in use
    levels          int32    n                  0 in leaves, one more in each level above
    parents         int32    n                  the node above, -1 at the root; the next one if free
    leaves          int32    >= n_boxes         the leaf that holds a box, -1 when none does
    floors, scales  float64  d                  the data's span, for volumes and margins only

Every node but the root keeps 40 % of its capacity, so the number of nodes is bounded by that of boxes:
room for that many is reserved, and pages of it that were never written cost nothing.

A first load is packed by sort-tile-recursive, later ones are inserted one by one, unless they are so many
that packing all again is quicker (`load="pack"`). `load="insert"` always inserts, as the paper does.

The batch search is in batch_search.py.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.engine.answers import Estimate, Rows, each_once, join_rows
from rangecast.engine.boxes import ExpandedBoxes, grown
from rangecast.engine.checks import flat, hold, linked, shaped, within
from rangecast.engine.index import Index
from rangecast.engine.selectivity import estimate_selectivity
from rangecast.errors import OptionError, SubscriptionError
from rangecast.kernels.papers.rtree import load
from rangecast.kernels.papers.rtree import search as kernels
from rangecast.kernels.papers.rtree.search import N_FREE, ROOT, USED, Tree
from rangecast.memory import check_fits, check_numbered
from rangecast.model.matches import Matches
from rangecast.model.subscriptions import Subscriptions
from rangecast.papers.rtree import kernels as update
from rangecast.papers.rtree.batch_search import Descent, descend
from rangecast.types.attributes import LAST, PRESENT, Codes

LOADS = ("pack", "insert")
_LEAST_SHARE = 0.4
# packed nodes keep some room, so that the first insertions do not split every one of them
_PACKED_SHARE = 0.9
# packing takes some 2 us per box and inserting 20 to 40 (12 attributes, a million boxes)
_REPACK = 8
# below _TOGETHER events there is little to share; 64 at a time are 60 % slower than _PIECE, 256 some 20 %
_TOGETHER = 8
_PIECE = 1024
_NODE_ARRAYS = ("lows", "highs", "children", "counts", "levels", "parents")


class _StoredTree(NamedTuple):
    """What a file holds: how many boxes the tree has, and its nodes without spare room."""

    held: int
    tree: Tree


class RTreeIndex(Index):
    """An R*-tree with batch search.

    >>> import rangecast as rc
    >>> schema = rc.Schema(rc.Int("price"), rc.Int("size"))
    >>> index = rc.open_index("rtree", schema)
    >>> index.insert(rc.Subscriptions.parse(schema, {7: "price < 10 and size > 2", 8: "price >= 5"}))
    >>> events = rc.Events.from_rows(schema, [{"price": 7, "size": 3}, {"price": 7}])
    >>> index.match(events).sort().ids.tolist(), index.height, index.estimate(events).workloads.tolist()
    ([7, 8, 8], 1, [1, 1])
    """

    name = "rtree"

    def _configure(
        self,
        node_capacity: int = 10,
        leaf_capacity: int = 20,
        load: str = "pack",
        memory_limit: int | None = None,
    ) -> None:
        for option, capacity in (("node_capacity", node_capacity), ("leaf_capacity", leaf_capacity)):
            if not 4 <= capacity <= 1024:
                raise OptionError(f"{option} must be within 4 and 1024, got {capacity}")
        if load not in LOADS:
            raise OptionError(f"load must be one of {', '.join(LOADS)}, got {load!r}")
        self._capacities = (node_capacity, leaf_capacity)
        self._leasts = tuple(max(2, int(c * _LEAST_SHARE)) for c in self._capacities)
        self._width = max(self._capacities) + 1
        self._load = load
        self._memory_limit = memory_limit
        self._version = 0
        self._visits = 0
        self._counting = threading.Lock()

    def _reset(self) -> None:
        d = len(self.schema)
        self._tree = self._room(64, np.zeros(4, np.int64), np.full(0, -1, np.int32), np.zeros(d), np.ones(d))
        self._tree.header[ROOT] = update.new_node(self._tree, 0)
        self._n_held = 0
        self._version += 1

    def _room(
        self,
        n_nodes: int,
        header: npt.NDArray[np.int64],
        leaves: npt.NDArray[np.int32],
        floors: npt.NDArray[np.float64],
        scales: npt.NDArray[np.float64],
    ) -> Tree:
        """A tree without nodes and room for some."""
        d, width = len(self.schema), self._width
        (capacity, leaf_capacity), (least, leaf_least) = self._capacities, self._leasts
        return Tree(
            header=header,
            sizes=np.array([capacity, least, leaf_capacity, leaf_least], np.int64),
            lows=np.empty((n_nodes, d, width), np.int64),
            highs=np.empty((n_nodes, d, width), np.int64),
            children=np.empty((n_nodes, width), np.int32),
            counts=np.empty(n_nodes, np.int32),
            levels=np.empty(n_nodes, np.int32),
            parents=np.empty(n_nodes, np.int32),
            leaves=leaves,
            floors=floors,
            scales=scales,
        )

    def _nodes_for(self, n_boxes: int) -> int:
        """The most nodes that a tree of so many boxes can have."""
        least, leaf_least = self._leasts
        return n_boxes // leaf_least * least // (least - 1) + 64

    @property
    def height(self) -> int:
        """How many levels of nodes there are; an empty tree has one."""
        with self._lock:
            self._resume()
            return self._height()

    def _height(self) -> int:
        tree = self._tree
        return int(tree.levels[tree.header[ROOT]]) + 1

    # changes

    def _check_capacity(self, subs: Subscriptions) -> None:
        per_node = self._node_bytes()
        nodes = 1.6 * subs.n_boxes / self._capacities[1] + 64
        check_fits(
            int(nodes * per_node),
            self._memory_limit,
            f"'rtree' with {subs.n_boxes:,} more boxes of {len(self.schema)} attributes",
            "a smaller leaf_capacity=, or the index 'bitmap' or 'scan', needs less",
        )

    def _add(self, first: int, last: int) -> None:
        self._version += 1
        k = last - first
        if self._load == "pack" and k * _REPACK >= self._n_held + k:
            held = np.flatnonzero(self._tree.leaves[:first] >= 0)
            self._pack(np.concatenate([held, np.arange(first, last)]))
            return
        if self._n_held == 0:
            self._measure_span(np.arange(first, last))
        self._reserve(self._n_held + k, last)
        self._change(np.empty(0, np.int64), first, last)
        self._n_held += k

    def _remove(self, slots: npt.NDArray[np.int32]) -> None:
        self._version += 1
        boxes = self._catalog.box_numbers(slots)
        if self._load == "pack" and len(boxes) * _REPACK > self._n_held:
            self._tree.leaves[boxes] = -1
            self._pack(np.flatnonzero(self._tree.leaves >= 0))
            return
        # dissolved nodes are freed before their entries split others, so no room is needed
        self._change(boxes, 0, 0)
        self._n_held -= len(boxes)

    def _pack(self, numbers: npt.NDArray[np.int64]) -> None:
        """Rebuild the tree from these boxes, by sort-tile-recursive."""
        catalog = self._catalog
        self._reset()
        if not len(numbers):
            return
        self._measure_span(numbers)
        self._reserve(len(numbers), catalog.n_boxes)
        tree = self._tree
        tree.header[USED] = 0
        lows, highs = catalog.lows, catalog.highs
        level = 0
        while True:
            capacity, least = self._capacities[level == 0], self._leasts[level == 0]
            n_pages = -(-len(numbers) // max(int(capacity * _PACKED_SHARE), 2 * least - 1))
            columns = numbers if level == 0 else np.arange(len(numbers))
            centres = np.empty((len(lows), len(numbers)))
            load.box_centres(tree, lows, highs, columns, centres)
            widths = estimate_selectivity(
                ExpandedBoxes(lows, highs, catalog.box_slots, lows.shape[1]), columns
            )
            narrowest = np.argsort(widths, kind="stable")
            order = np.empty(len(numbers), np.int64)
            load.tile(centres[narrowest], widths[narrowest], n_pages, order)
            first = int(tree.header[USED])
            load.fill_pages(tree, level, lows, highs, numbers, order, n_pages)
            if n_pages == 1:
                break
            last = int(tree.header[USED])
            lows, highs = (np.empty((len(lows), n_pages), np.int64) for _ in range(2))
            load.node_covers(tree, first, last, lows, highs)
            numbers = np.arange(first, last)
            level += 1
        self._n_held = int((tree.leaves >= 0).sum())

    def _measure_span(self, numbers: npt.NDArray[np.int64]) -> None:
        """Take the span of each attribute's bounds, those that are open apart."""
        tree = self._tree
        for j in range(len(self.schema)):
            bounds = np.concatenate([self._catalog.lows[j, numbers], self._catalog.highs[j, numbers]])
            bounds = bounds[(bounds > PRESENT) & (bounds < LAST)]
            floor, ceiling = (float(bounds.min()), float(bounds.max())) if len(bounds) else (0.0, 0.0)
            tree.floors[j] = floor
            tree.scales[j] = 1 / (ceiling - floor) if ceiling > floor else 1.0

    def _reserve(self, n_held: int, n_boxes: int) -> None:
        """Room for a tree of so many boxes, whose numbers are below n_boxes."""
        tree = self._tree
        used, room = int(tree.header[USED]), len(tree.counts)
        if len(tree.leaves) < n_boxes:
            was = len(tree.leaves)
            leaves = grown(tree.leaves, was, n_boxes)
            leaves[was:] = -1
            tree = tree._replace(leaves=leaves)
        wanted = self._nodes_for(n_held)
        check_numbered(wanted, "the nodes of 'rtree'", "a larger leaf_capacity= needs fewer")
        if room < wanted:
            fresh = self._room(
                max(wanted, room + room // 2), tree.header, tree.leaves, tree.floors, tree.scales
            )
            for name in _NODE_ARRAYS:
                getattr(fresh, name)[:used] = getattr(tree, name)[:used]
            tree = fresh
        self._tree = tree

    def _change(self, gone: npt.NDArray[np.int64], first: int, last: int) -> None:
        # a third of a node, or all but one of its least, may wait at each level
        n, d = 32 * self._width, len(self.schema)
        pending = update.PendingEntries(
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty((n, d), np.int64),
            np.empty((n, d), np.int64),
        )
        catalog = self._catalog
        update.change_boxes(self._tree, gone, catalog.lows, catalog.highs, first, last, pending)

    # searches

    def _stab(self, codes: Codes) -> Rows:
        n = codes.shape[1]
        if n < _TOGETHER:
            return self._search(codes, codes, np.arange(n), *self._from_root(n))
        # a whole batch goes down together, past the leaves to the boxes: each node is read once for all
        # events that meet it, 5 times as fast as one by one in twelve attributes and 300,000 boxes
        rows = []
        for first in range(0, n, _PIECE):
            piece = np.ascontiguousarray(codes[:, first : first + _PIECE])
            descent = self._counted(descend(self._tree, piece, self._height(), self._version))
            rows.append((descent.firsts, self._catalog.box_slots[descent.nodes]))
        return join_rows(rows)

    def _counted(self, descent: Descent) -> Descent:
        with self._counting:
            self._visits += descent.visits
        return descent

    def _stab_from(self, codes: Codes, event: int, estimate: Estimate) -> Rows:
        # the nodes of an estimate are of no use once the tree has changed
        if not isinstance(estimate, Descent) or estimate.version != self._version:
            return self._stab(codes)
        firsts = estimate.firsts[event : event + 2]
        return self._search(codes, codes, np.zeros(1, np.int64), firsts, estimate.nodes)

    def _from_root(self, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        return np.arange(n + 1), np.full(n, self._tree.header[ROOT], np.int32)

    def _search(
        self,
        lows: Codes,
        highs: Codes,
        events: npt.NDArray[np.int64],
        firsts: npt.NDArray[np.int64],
        nodes: npt.NDArray[np.int32],
    ) -> Rows:
        state = np.zeros(2, np.int64)
        offsets = np.zeros(len(events) + 1, np.int64)
        visits = np.zeros(len(events), np.int64)
        out = np.empty(max(1024, 8 * len(events)), np.int32)
        tree, slots = self._tree, self._catalog.box_slots
        while not kernels.search(
            tree, slots, lows, highs, events, firsts, nodes, state, offsets, out, visits
        ):
            out = np.concatenate([out, np.empty_like(out)])
        with self._counting:
            self._visits += int(visits.sum())
        return offsets, out[: state[1]]

    def _estimate(self, codes: Codes, level: int | None) -> Descent:
        height = self._height()
        if level is None:
            level = max(0, height - 3)
        if level < 0:
            raise OptionError(f"level must be 0 for the root, or the steps down from it, got {level}")
        return self._counted(descend(self._tree, codes, min(level, height - 1), self._version))

    def overlapping(self, subs: Subscriptions) -> Matches:
        """For each of these subscriptions, the ids of those in the index that share an event with it.

        >>> import rangecast as rc
        >>> schema = rc.Schema(rc.Int("price"))
        >>> index = rc.open_index("rtree", schema)
        >>> index.insert(rc.Subscriptions.parse(schema, {7: "price < 10", 8: "price > 20"}))
        >>> index.overlapping(rc.Subscriptions.parse(schema, {1: "price between 10 and 30"})).row(0).tolist()
        [8]
        """
        if not isinstance(subs, Subscriptions):
            raise SubscriptionError(f"overlapping takes Subscriptions, got {type(subs).__name__}")
        subs = subs.reconciled(self.schema).expanded()
        n = subs.n_boxes
        lows, highs = np.ascontiguousarray(subs.lows), np.ascontiguousarray(subs.highs)
        with self._lock:
            self._resume()
            by_box, slots = self._search(lows, highs, np.arange(n), *self._from_root(n))
            names = self._catalog.ids
        return Matches(*each_once(by_box[subs.box_starts()], slots), names)

    @property
    def node_visits(self) -> int:
        """How many nodes all searches and estimates have looked at so far, each event by itself."""
        return self._visits

    # files and counts

    def _node_bytes(self) -> int:
        return self._width * (16 * len(self.schema) + 4) + 12

    def _structure_stats(self) -> dict[str, Any]:
        tree = self._tree
        nodes = int(tree.header[USED] - tree.header[N_FREE])
        counts, levels = tree.counts[: tree.header[USED]], tree.levels[: tree.header[USED]]
        # free nodes count nothing, and so does the one leaf of an empty tree
        leaves = max(int(((levels == 0) & (counts > 0)).sum()), 1)
        return {
            "bytes": int(tree.header[USED]) * self._node_bytes() + tree.leaves.nbytes,
            "height": self._height(),
            "nodes": nodes,
            "leaves": leaves,
            "leaf_fill": round(self._n_held / leaves / self._capacities[1], 3),
            "node_visits": self._visits,
        }

    def _structure(self) -> _StoredTree:
        tree, used = self._tree, int(self._tree.header[USED])
        nodes = {name: getattr(tree, name)[:used] for name in _NODE_ARRAYS}
        leaves = tree.leaves[: self._catalog.n_boxes]
        return _StoredTree(self._n_held, tree._replace(**nodes, leaves=leaves))

    def _take_structure(self, structure: _StoredTree) -> None:
        self._n_held, self._tree = structure
        self._version += 1

    def _check_structure(self) -> None:
        tree, d, width = self._tree, len(self.schema), self._width
        flat(tree, lows=3, highs=3, children=2)
        n = len(tree.counts)
        shaped("the header of a tree", tree.header, 4)
        shaped("lows of nodes", tree.lows, n, d, width)
        shaped("highs of nodes", tree.highs, n, d, width)
        shaped("children of nodes", tree.children, n, width)
        shaped("levels of nodes", tree.levels, n)
        within("the root", tree.header[:1], n)
        within("entries of nodes", tree.counts, width + 1)
        within("levels of nodes", tree.levels, 64)
        held = np.arange(width) < tree.counts[:, None]
        inner = tree.levels > 0
        below = tree.children[inner][held[inner]]
        # one parent each, so that no search comes to a node twice
        linked("children of nodes", n, below)
        within("children of nodes", below, n)
        above = np.repeat(tree.levels[inner], tree.counts[inner])
        hold("that children are one level below", (tree.levels[below] == above - 1).all())
        within("boxes of leaves", tree.children[~inner][held[~inner]], self._catalog.n_boxes)
